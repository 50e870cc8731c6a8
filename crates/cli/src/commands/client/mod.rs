//! `mortar client`: the keys of those who mount.

mod add;
mod list;
mod revoke;
mod rotate;
mod users;

use crate::cli::Global;
use clap::Subcommand;

/// Make keys with which clients mount, list and revoke them.
#[derive(Subcommand, Debug)]
pub(crate) enum Client {
    Add(add::Add),
    List(list::List),
    Revoke(revoke::Revoke),
    Rotate(rotate::Rotate),
}

impl Client {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match self {
            Client::Add(c) => c.run(global),
            Client::List(c) => c.run(global),
            Client::Revoke(c) => c.run(global),
            Client::Rotate(c) => c.run(global),
        }
    }
}
