//! `mortar pool`: the pool as a list.

use crate::ask::{self, unexpected};
use crate::cli::Global;
use crate::commands::peer::servers;
use crate::output;
use clap::Subcommand;
use cluster::admin::{AdminReply, AdminRequest};

/// The pool as a whole.
#[derive(Subcommand, Debug)]
pub(crate) enum Pool {
    /// List the servers of the pool.
    #[command(after_help = "Example: mortar pool list")]
    List,
}

impl Pool {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let Pool::List = self;
        match ask::ask(global, AdminRequest::PoolList)? {
            AdminReply::PoolList(peers) if global.json => output::json(&peers),
            AdminReply::PoolList(peers) => output::line(&servers(&peers)),
            other => unexpected(&other),
        }
    }
}
