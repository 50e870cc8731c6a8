//! Why the store cannot be opened, and why a command was not done.

use std::path::PathBuf;

use cluster::Refusal;
use ids::ServerId;
use thiserror::Error;

/// The store cannot be opened.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum OpenError {
    #[error(
        "pool store {}: it is damaged ({reason}): start the server with an empty state folder, then run mortar peer replace \
         HOST at another server of the pool; if no other server is left, restore the file from a backup",
        path.display()
    )]
    Corrupt { path: PathBuf, reason: String },
    #[error("pool store {}: {reason}", path.display())]
    Io { path: PathBuf, reason: String },
    #[error("pool store {}: another process has it open: stop that one first", path.display())]
    InUse { path: PathBuf },
    #[error("pool store {}: it has format {format}, this program knows up to {max}: update it", path.display())]
    Newer { path: PathBuf, format: u32, max: u32 },
    #[error("pool store {}: it belongs to server {stored}, not {me}: use the state folder of server {me}", path.display())]
    OtherServer { path: PathBuf, stored: ServerId, me: ServerId },
    #[error("pool store {}: it holds no pool to recover: start the server normally", path.display())]
    NoPool { path: PathBuf },
    #[error("times of the pool store: {reason}")]
    Options { reason: String },
    #[error("the pool store cannot start: {reason}")]
    Raft { reason: String },
}

/// A command was not done (or, after a time-out, nobody knows: then send it again under the same id).
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum ProposeError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("this server does not lead the pool store: ask {}", show(leader))]
    NotLeader { leader: Option<(ServerId, String)> },
    #[error(
        "no majority of the pool store answers ({reason}): see mortar peer status, bring the voters back"
    )]
    Unavailable { reason: String },
    #[error("the pool store of this server stopped: {reason}")]
    Stopped { reason: String },
}

fn show(leader: &Option<(ServerId, String)>) -> String {
    match leader {
        Some((id, address)) => format!("server {id} at {address}"),
        None => "again when the servers have elected a leader".to_string(),
    }
}
