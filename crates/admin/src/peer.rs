//! The servers of the pool, as an answer.

use ids::ServerId;
use serde::{Deserialize, Serialize};

/// A server's part in the agreement on the pool's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerRole {
    /// Has a vote.
    Voter,
    /// Has a copy, no vote.
    Learner,
}

impl std::fmt::Display for ServerRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            ServerRole::Voter => "voter",
            ServerRole::Learner => "learner",
        })
    }
}

/// The pool's servers, and what is weak about the pool.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The pool's id.
    pub pool: String,
    /// The server that answered.
    pub me: ServerId,
    /// Who leads the pool store now.
    #[serde(default)]
    pub leader: Option<ServerId>,
    /// How far the programs of all servers go; 0: some of them are of before levels.
    #[serde(default)]
    pub level: u32,
    /// All servers, the one that answered too.
    pub peers: Vec<Peer>,
    /// What to know and do.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The pool's servers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Peers {
    /// By their numbers.
    pub peers: Vec<Peer>,
}

/// A server as others see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its number.
    pub id: ServerId,
    /// Its random identity.
    pub identity: String,
    /// The name it was probed by.
    pub host: String,
    /// "host:port".
    pub address: String,
    /// Its part in the pool store.
    pub role: ServerRole,
    /// Whether it holds its lease; `None`: the one that answered does not know.
    #[serde(default)]
    pub connected: Option<bool>,
    /// Fenced off by a recovery.
    #[serde(default)]
    pub lost: bool,
    /// A voter without bricks.
    #[serde(default)]
    pub witness: bool,
}
