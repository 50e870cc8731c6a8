//! `mortar config apply`.

use super::read;
use crate::cli::Global;
use crate::commands::peer::probe;
use crate::{ask, confirm, keys, output};
use anyhow::{Context, bail};
use clap::Args;
use std::path::PathBuf;

/// Bring the pool to what a document says.
///
/// Servers that the pool lacks are taken in first. Volumes that it lacks are created, options that are not listed are reset: all
/// that in one transaction, all of it or nothing. Last, keys of clients that it lacks are made, and their files written.
/// Servers, volumes and keys that the document lacks are left alone. If it fails half-way, apply it again.
/// Prints its plan first. Where it stops a volume it asks; without a terminal it needs --yes.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar config apply pool.toml --dry-run")]
pub(crate) struct Apply {
    /// The document, as `mortar config export` prints it; - reads stdin.
    file: String,
    /// Only tell what would change, or why it would be refused.
    #[arg(long)]
    dry_run: bool,
    /// The directory for the files of keys that are made, each NAME.key; this directory unless given.
    #[arg(long, value_name = "DIR")]
    keys: Option<PathBuf>,
}

/// What was changed, and where the files of new keys are.
#[derive(serde::Serialize)]
struct Applied {
    #[serde(flatten)]
    changes: admin::Changes,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    written: Vec<keys::Written>,
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
        let files = self.places(&plan.keys)?;
        if !plan.stopped.is_empty() {
            let stopped = plan.stopped.join(", ");
            confirm::confirm(global, &format!("Stop volume {stopped}? Its mounts do not answer then."))?;
        }
        for server in &plan.servers {
            let how =
                format!("write it into the document, under [server.\"{}\"]: fingerprint =", server.host);
            let answer = probe::take_in(global, server.clone(), &how)?;
            say(global, &probe::line(&answer))?;
        }
        let left = plan.changes.iter().skip(plan.servers.len()).cloned().collect();
        let mut applied = Applied { changes: ask_for(false, Some(left))?, written: Vec::new() };
        for (key, path) in plan.keys.into_iter().zip(files) {
            let made = ask::ask(global, key)?;
            keys::write(&path, &made.name, &made.file)?;
            say(global, &format!("key {} is in {}", made.name, path.display()))?;
            applied.written.push(keys::Written::new(&made, &path));
        }
        applied.changes.changes = plan.changes;
        match global.json {
            true => output::json(&applied),
            false => output::line(&count(applied.changes.changes.len(), "made")),
        }
    }

    /// Where the files of keys are to be written: looked at before anything is changed.
    fn places(&self, keys: &[admin::ClientAdd]) -> anyhow::Result<Vec<PathBuf>> {
        let folder = self.keys.clone().unwrap_or_default();
        if !keys.is_empty() && self.keys.is_some() && !folder.is_dir() {
            bail!("{}: it is no directory: make it, or name another one with --keys", folder.display());
        }
        let place = |key: &admin::ClientAdd| {
            let path = folder.join(format!("{}.key", key.name));
            match std::fs::symlink_metadata(&path) {
                Ok(_) => bail!("{}: it is there already: name another directory with --keys", path.display()),
                Err(_) => Ok(path),
            }
        };
        keys.iter().map(place).collect()
    }
}

/// Progress, for people.
fn say(global: &Global, line: &str) -> anyhow::Result<()> {
    if global.json { Ok(()) } else { output::line(line) }
}

fn count(changes: usize, what: &str) -> String {
    format!("{changes} change{} {what}", if changes == 1 { "" } else { "s" })
}
