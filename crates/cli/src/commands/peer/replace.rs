//! `mortar peer replace`.

use crate::cli::Global;
use crate::table::shown_host;
use crate::{ask, confirm, output};
use clap::Args;

/// Give the place of a server that is gone, or lost its state folder, to another one.
///
/// The new server must run with an empty state folder: at the old one's address, or at that given with --by.
/// It takes over the bricks at their paths: what is there rejoins, empty directories are filled from their sets.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar peer replace server2 --by server7")]
pub(crate) struct Replace {
    /// The server that is gone, as it was probed.
    host: String,
    /// The server that takes its place, if it has another address.
    #[arg(long, value_name = "HOST[:PORT]")]
    by: Option<String>,
}

impl Replace {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let Replace { host, by } = self;
        let shown = shown_host(&host);
        confirm::confirm_at_terminal(
            global,
            &format!("Cut the old server {shown} off for good, also if it still runs somewhere?"),
        )?;
        let answer = ask::ask(global, admin::PeerReplace { host, by })?;
        let mut line = format!(
            "{} is in the pool now, as server {} in the place of server {}, with its {} brick{}",
            shown_host(&answer.host),
            answer.server,
            answer.replaced,
            answer.bricks,
            if answer.bricks == 1 { "" } else { "s" }
        );
        for note in &answer.offline {
            line.push_str("; ");
            line.push_str(note);
        }
        output::done(global.json, &answer, &line)
    }
}
