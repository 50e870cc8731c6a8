//! `mortar peer`: the servers of the pool.

mod detach;
mod drain;
pub(super) mod probe;
mod replace;
mod status;

use crate::cli::Global;
use clap::Subcommand;

/// Take servers into the pool, let them go, see how they do.
#[derive(Subcommand, Debug)]
pub(crate) enum Peer {
    Probe(probe::Probe),
    Detach(detach::Detach),
    Replace(replace::Replace),
    Drain(drain::Drain),
    Status(status::PeerStatusCommand),
}

impl Peer {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match self {
            Peer::Probe(c) => c.run(global),
            Peer::Detach(c) => c.run(global),
            Peer::Replace(c) => c.run(global),
            Peer::Drain(c) => c.run(global),
            Peer::Status(c) => c.run(global),
        }
    }
}

pub(super) use status::servers;
