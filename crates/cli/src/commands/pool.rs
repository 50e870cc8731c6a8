//! `mortar pool list`.

use crate::ask;
use crate::cli::Global;
use crate::commands::peer::servers;
use crate::output;
use clap::Args;

/// List the servers of the pool.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar pool list")]
pub struct PoolList {}

impl PoolList {
    /// Asks for the list and prints it.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::PoolList {})?;
        if global.json { output::json(&answer) } else { output::line(&servers(&answer.peers)) }
    }
}
