//! `mortar pool`: the pool as a list.

use crate::ask::{self, unexpected};
use crate::cli::Global;
use crate::commands::peer::servers;
use crate::{confirm, output};
use anyhow::{anyhow, bail};
use clap::Subcommand;
use cluster::admin::{AdminReply, AdminRequest};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// The pool as a whole.
#[derive(Subcommand, Debug)]
pub(crate) enum Pool {
    /// List the servers of the pool.
    #[command(after_help = "Example: mortar pool list")]
    List,
    /// Go on from this server's copy of the pool when most of the other servers are gone for good. It must be stopped.
    ///
    /// Says what may be lost and asks; without a terminal it needs --yes. The others are cut off: they come back with an
    /// empty state folder and `mortar peer replace`.
    #[command(after_help = "Example: mortar pool recover --state /var/lib/mortar")]
    Recover {
        /// The state folder of the stopped server.
        #[arg(long, value_name = "DIR")]
        state: PathBuf,
    },
}

impl Pool {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        if let Pool::Recover { state } = self {
            return recover(global, &state);
        }
        match ask::ask(global, AdminRequest::PoolList)? {
            AdminReply::PoolList(peers) if global.json => output::json(&peers),
            AdminReply::PoolList(peers) => output::line(&servers(&peers)),
            other => unexpected(&other),
        }
    }
}

fn recover(global: &Global, state: &Path) -> anyhow::Result<()> {
    let folder = daemon::RecoveryFolder::open(state).map_err(|e| anyhow!("{e}"))?;
    let plan = folder.plan().map_err(|e| anyhow!("{e}"))?;
    if plan.lost.is_empty() {
        bail!("state folder {}: its pool has no other server: start it normally", state.display());
    }
    if !global.yes {
        for note in &plan.notes {
            output::line(&format!("note: {note}"))?;
        }
        if !std::io::stdin().is_terminal() {
            bail!("nothing was done: give --yes if this is what you want");
        }
        confirm::confirm(
            global,
            &format!("Go on from version {} of the pool without {}?", plan.version, plan.lost.join(", ")),
        )?;
    }
    let done = folder.recover().map_err(|e| anyhow!("{e}"))?;
    if global.json {
        let document = serde_json::json!({ "version": done.version, "lost": done.lost, "notes": done.notes });
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
