//! The pool's state, agreed on by its servers: openraft over one redb file, replicating [`cluster::State`].
//!
//! Owns the log, the vote and the snapshots on disk, the servers' membership in the agreement, and the way a command
//! finds the leader. Always true: what `propose` answered is on disk on a majority of the voters.
//! Deliberately absent: sockets (see [`Transport`]), liveness (the daemon reports who is down), reading state files of
//! other versions than those in `docs/formats/pool-store.md`.

mod answer;
mod db;
mod elections;
mod error;
mod log;
mod machine;
mod members;
mod network;
mod options;
mod propose;
mod record;
mod recover;
mod rpc;
mod store;
mod types;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use error::{OpenError, ProposeError};
pub use members::{Candidates, choose_voters};
pub use network::{BoxFuture, Transport, TransportError};
pub use options::Options;
pub use recover::Recovery;
pub use store::{ConfigStore, Metrics};
