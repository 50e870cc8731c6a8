//! `mortar pool list`.

use crate::ask;
use crate::cli::Global;
use crate::commands::peer::servers;
use crate::view::View;
use clap::Args;

/// List the servers of the pool.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar pool list")]
pub struct PoolList {
    #[command(flatten)]
    view: View,
}

impl PoolList {
    /// Asks for the list and prints it.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::PoolList {})?;
        self.view.show(global, &answer, |_| servers(&answer.peers))
    }
}
