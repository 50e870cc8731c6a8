//! `mortar brick`: a brick's directory, on its own server.

use crate::cli::Global;
use crate::limits::{BRICK_CLOSE_LOOK, BRICK_CLOSE_WAIT};
use crate::view::View;
use anyhow::{anyhow, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Look after a brick's directory, on its own server.
#[derive(Subcommand, Debug)]
pub(crate) enum BrickCommand {
    /// Check a brick that is not in use: identity, journal, tree and index.
    ///
    /// Stop the server first, or the volume. With --repair what can be derived is written again: the index, tags of files
    /// that the index knows, an unreadable journal. What is not certain any more heals from the set when the server starts.
    /// Ends with 0 if nothing is wrong (any more), else with 1.
    #[command(after_help = "Example: mortar brick check /data/home")]
    Check {
        /// The brick's directory.
        path: PathBuf,
        /// Repair what can be repaired here.
        #[arg(long)]
        repair: bool,
        #[command(flatten)]
        view: View,
    },
}

impl BrickCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let BrickCommand::Check { path, repair, view } = self;
        check(&path, repair, global, view)
    }
}

/// A server that was just told to stop the volume still closes its bricks.
fn check_when_free(path: &Path, repair: bool) -> anyhow::Result<brick::Report> {
    let until = Instant::now() + BRICK_CLOSE_WAIT;
    loop {
        match brick::check(path, repair) {
            Err(brick::OpenError::Locked { .. }) if Instant::now() < until => {
                std::thread::sleep(BRICK_CLOSE_LOOK);
            }
            Err(e @ brick::OpenError::Locked { .. }) => {
                bail!("{e}: stop its volume first (mortar volume stop), or its server")
            }
            report => return report.map_err(|e| anyhow!("{e}")),
        }
    }
}

fn check(path: &Path, repair: bool, global: &Global, view: View) -> anyhow::Result<()> {
    let report = check_when_free(path, repair)?;
    let shown = path.display().to_string();
    view.show(global, &document(&report, &shown, repair), |_| lines(&report, &shown))?;
    let left = report.problems.iter().filter(|p| !p.remedy.is_empty()).count();
    match left {
        0 => Ok(()),
        1 => bail!("brick {shown}: 1 problem: do what stands beside it"),
        n => bail!("brick {shown}: {n} problems: do what stands beside each"),
    }
}

/// What programs read.
fn document(report: &brick::Report, shown: &str, repair: bool) -> Value {
    let problem = |p: &brick::Problem| json!({ "path": p.path.display().to_string(), "problem": p.problem, "remedy": p.remedy, "repaired": p.remedy.is_empty() });
    json!({
        "brick": shown,
        "files": report.files,
        "directories": report.directories,
        "orphans": report.orphans,
        "records": report.records,
        "last_lsn": report.last,
        "repaired": repair && !report.problems.is_empty(),
        "to_heal": report.to_heal.map(|h| match h {
            brick::ToHeal::Objects(n) => json!(n),
            brick::ToHeal::Everything => json!("everything"),
        }),
        "problems": report.problems.iter().map(problem).collect::<Vec<_>>(),
    })
}

/// What people read.
fn lines(report: &brick::Report, shown: &str) -> String {
    let mut lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    lines.push(format!(
        "{shown}: {} files, {} directories, {} orphans, {} journal records up to change {}",
        report.files, report.directories, report.orphans, report.records, report.last
    ));
    let stale = match report.to_heal {
        Some(brick::ToHeal::Objects(n)) => Some(format!("the content of {n} objects")),
        Some(brick::ToHeal::Everything) => Some("everything".to_owned()),
        None => None,
    };
    let heals = |what| format!("{shown}: {what} is stale: it heals from the set before the brick serves");
    lines.extend(stale.map(heals));
    lines.join("\n")
}
