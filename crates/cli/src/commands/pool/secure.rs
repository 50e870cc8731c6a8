//! `mortar pool secure`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Let nobody into the pool without a key from now on: a pool that was made by a version without keys.
///
/// Makes the pool's authority and gives each server a key; all servers have to run. Run it on one of them, as root.
/// From then on all connections are encrypted, a mount needs a key (mortar client add), a command from elsewhere too
/// (mortar pool key), and servers join with a token (mortar pool token). Mounts of before end: mount them anew, with a key.
/// It cannot be taken back.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar pool secure")]
pub struct PoolSecure {}

impl PoolSecure {
    /// Asks, and says what the pool is known by from now on.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        confirm::confirm(
            global,
            "Let nobody into the pool without a key from now on? Mounts without one end.",
        )?;
        let answer = ask::ask(global, admin::PoolSecure {})?;
        let line = match answer.servers {
            0 => "the pool is secured already: nothing to do".to_owned(),
            _ => format!("the pool is secured; its authority has fingerprint {}", answer.fingerprint),
        };
        output::done(global.json, &answer, &line)
    }
}
