//! `mortar peer detach`.

use crate::cli::Global;
use crate::table::shown_host;
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
        let shown = shown_host(&self.host);
        let question = if self.force {
            format!("Cut server {shown} off for good, also if it still runs somewhere?")
        } else {
            format!("Let server {shown} go out of the pool?")
        };
        confirm::confirm(global, &question)?;
        let answer = ask::ask(global, admin::PeerDetach { host: self.host, force: self.force })?;
        output::done(global.json, &answer, &format!("{shown} is out of the pool"))
    }
}
