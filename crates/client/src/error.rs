//! Why a volume could not be connected to: one line each, with what to do.

use std::fmt;

/// A server that was tried, and why it was of no use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// `host:port`.
    pub server: String,
    /// Why.
    pub why: String,
}

/// Several attempts in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempts(pub Vec<Tried>);

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Tried { server, why }) in self.0.iter().enumerate() {
            write!(f, "{}{server}: {why}", if i == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// Why [`crate::Client::connect`] failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// None was named.
    #[error("no server given: write HOST[:PORT]:/VOL")]
    NoServers,
    /// Not a server's address.
    #[error("{0:?} is not a server: write HOST[:PORT]")]
    BadServer(String),
    /// The key is of no use.
    #[error("{0}")]
    Key(std::io::Error),
    /// Nobody answered.
    #[error("no server can be reached ({0}): is `mortar server` running there?")]
    Unreachable(Attempts),
    /// A server does not talk to us.
    #[error("server {} refuses this client: {}", .0.server, .0.why)]
    Refused(Tried),
    /// This client may not use the volume.
    #[error("server {} says: {}", .0.server, .0.why)]
    Denied(Tried),
    /// The pool has no such volume.
    #[error("volume {volume}: no such volume in the pool of {server} (see `mortar volume list`)")]
    NoSuchVolume {
        /// The name asked for.
        volume: String,
        /// Who said so.
        server: String,
    },
    /// The volume does not serve.
    #[error("volume {volume} is not started: run `mortar volume start {volume}`")]
    NotStarted {
        /// Its name.
        volume: String,
    },
    /// This machine lacks what a client needs.
    #[error("cannot start the client: {0}")]
    System(#[from] std::io::Error),
}
