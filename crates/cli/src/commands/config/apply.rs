//! `mortar config apply`.

use super::read;
use crate::cli::Global;
use crate::{ask, confirm, output};
use anyhow::Context;
use clap::Args;

/// Bring the pool to what a document says, in one transaction: all of it or nothing.
///
/// Volumes that the pool lacks are created, options that are not listed are reset.
/// Volumes that the document lacks are left alone.
/// Prints its plan first. Where it stops a volume it asks; without a terminal it needs --yes.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar config apply pool.toml --dry-run")]
pub(crate) struct Apply {
    /// The document, as `mortar config export` prints it; - reads stdin.
    file: String,
    /// Only tell what would change, or why it would be refused.
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let document = read(&self.file)?;
        let ask_for = |dry_run, plan| {
            let request = admin::ConfigApply { document: document.clone(), dry_run, plan };
            ask::ask(global, request).with_context(|| self.file.clone())
        };
        let plan = ask_for(true, None)?;
        if self.dry_run && global.json {
            return output::json(&plan);
        }
        if !global.json {
            if plan.changes.is_empty() {
                return output::line("nothing to change");
            }
            output::line(&plan.changes.join("\n"))?;
        }
        if self.dry_run {
            return output::line(&count(plan.changes.len(), "would be made"));
        }
        if !plan.stopped.is_empty() {
            let stopped = plan.stopped.join(", ");
            confirm::confirm(global, &format!("Stop volume {stopped}? Its mounts do not answer then."))?;
        }
        let made = ask_for(false, Some(plan.changes))?;
        if global.json { output::json(&made) } else { output::line(&count(made.changes.len(), "made")) }
    }
}

fn count(changes: usize, what: &str) -> String {
    format!("{changes} change{} {what}", if changes == 1 { "" } else { "s" })
}
