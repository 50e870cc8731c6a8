//! `mortar config apply`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use anyhow::Context;
use clap::Args;
use std::io::Read;

/// Bring the pool to what a document says, in one transaction: all of it or nothing.
///
/// Volumes that the pool lacks are created, options that are not listed are reset.
/// Volumes that the document lacks are left alone.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar config apply pool.toml --dry-run")]
pub(crate) struct Apply {
    /// The document, as `mortar config export` prints it; - reads stdin.
    file: String,
    /// Only tell what would change.
    #[arg(long)]
    dry_run: bool,
}

impl Apply {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let document = read(&self.file)?;
        let request = admin::ConfigApply { document, dry_run: self.dry_run };
        let answer = ask::ask(global, request).with_context(|| self.file.clone())?;
        if global.json {
            return output::json(&answer);
        }
        let changes = answer.changes;
        if changes.is_empty() {
            return output::line("nothing to change");
        }
        output::line(&changes.join("\n"))?;
        let verb = if self.dry_run { "would be made" } else { "made" };
        output::line(&format!("{} change{} {verb}", changes.len(), if changes.len() == 1 { "" } else { "s" }))
    }
}

fn read(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("stdin")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("document {file}"))
}
