//! `mortar peer detach`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Let a server without bricks go. It is a pool of its own afterwards.
///
/// Asks first; without a terminal it needs --yes.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar peer detach server2 --yes")]
pub(crate) struct Detach {
    /// The server, as it was probed.
    host: String,
    /// Also if it does not answer: it is lost for good.
    #[arg(long)]
    force: bool,
}

impl Detach {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let question = if self.force {
            format!("Cut server {} off for good, also if it still runs somewhere?", self.host)
        } else {
            format!("Let server {} go out of the pool?", self.host)
        };
        confirm::confirm(global, &question)?;
        let answer = ask::ask(global, admin::PeerDetach { host: self.host, force: self.force })?;
        output::done(global.json, &answer, &format!("{} is out of the pool", answer.host))
    }
}
