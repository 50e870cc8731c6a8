//! `mortar pool recover`: with the server stopped, on its own machine.

use anyhow::{anyhow, bail};
use clap::Args;
use cli::{Global, output};
use std::path::PathBuf;

/// Go on from this server's copy of the pool when most of the other servers are gone for good. It must be stopped.
///
/// Says what may be lost and asks; without a terminal it needs --yes. The others are fenced off: they come back with an
/// empty state folder and `mortar peer replace`.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar pool recover --state /var/lib/mortar")]
pub(crate) struct Recover {
    /// The state folder of the stopped server.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
}

impl Recover {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let state = &self.state;
        let folder = daemon::RecoveryFolder::open(state).map_err(|e| anyhow!("{e}"))?;
        let plan = folder.plan().map_err(|e| anyhow!("{e}"))?;
        if plan.lost.is_empty() {
            bail!("state folder {}: its pool has no other server: start it normally", state.display());
        }
        if !global.yes {
            for note in &plan.notes {
                output::line(&format!("note: {note}"))?;
            }
            cli::confirm(
                global,
                &format!("Go on from version {} of the pool without {}?", plan.version, plan.lost.join(", ")),
            )?;
        }
        let done = folder.recover().map_err(|e| anyhow!("{e}"))?;
        if global.json {
            let document =
                serde_json::json!({ "version": done.version, "lost": done.lost, "notes": done.notes });
            return output::json(&document);
        }
        if global.yes {
            for note in &done.notes {
                output::line(&format!("note: {note}"))?;
            }
        }
        output::line(&format!(
            "the pool goes on from this server: start it, then bring back {} one after the other, each with an empty state folder \
             and mortar peer replace",
            done.lost.join(", ")
        ))
    }
}
