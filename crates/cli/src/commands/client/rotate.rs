//! `mortar client rotate`.

use super::users;
use crate::cli::Global;
use crate::{ask, keys, lifetime, output};
use clap::Args;
use std::path::PathBuf;

/// Make another key with the same limits. The old one ends some time later.
///
/// Users who were named when the key was made (client add --users ann) are looked up again on this machine: the new key has the
/// groups that they have now. Users who were written as numbers stay as they are.
///
/// Replace the client's key file by the new one: the mount reads it at its next connection, and need not be mounted anew.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar client rotate web-1 --after 1h --out web-1.new.key")]
pub(crate) struct Rotate {
    /// What it is called.
    name: String,
    /// After how long the old one ends; 0s: at once.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = lifetime::parse_or_now)]
    after: u64,
    /// Look nobody up: users have the groups that they have in the old key.
    #[arg(long)]
    keep_groups: bool,
    /// The key file to write or to replace; NAME.key in this directory unless given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Rotate {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let path = keys::place(self.out, &self.name, true)?;
        let users = if self.keep_groups { Vec::new() } else { looked_up(global, &self.name)? };
        let made = ask::ask(global, admin::ClientRotate { name: self.name, after: self.after, users })?;
        keys::write(&path, &made.name, &made.file)?;
        let made = keys::Written::new(&made, &path);
        output::done(global.json, &made, &format!("another key {} is in {}", made.name, path.display()))
    }
}

/// The users of the newest key of that name, if somebody of them has to be looked up: servers make that one anew.
fn looked_up(global: &Global, name: &str) -> anyhow::Result<Vec<admin::KeyUser>> {
    let keys = ask::ask(global, admin::ClientList {})?.keys;
    let own = keys.into_iter().filter(|key| key.role != admin::KeyRole::Server && key.name == name);
    own.max_by_key(|key| key.key).map_or(Ok(Vec::new()), |key| users::again(key.users))
}
