//! The server: one process for all bricks of a machine.
//!
//! Owns threads, sockets and the state folder. `control` is the control plane (pool store, membership, volumes, leases) on a
//! small runtime of its own, so that a busy or blocked disk never delays a lease; `shard` serves files, on threads
//! by disk.
//! Invariant: what is decided is decided in the crates `set-core`, `server-core` and `cluster`; here is only the doing.

mod adoption;
mod attempts;
mod clock;
mod console;
mod control;
mod doors;
mod events;
mod findings;
mod guests;
mod http;
mod keys;
mod limits;
mod metrics;
mod pulse;
mod recovery;
mod shard;
mod shared;
mod speaker;

/// The options of volumes: key, default, values that are allowed, what it does.
pub fn volume_options() -> impl Iterator<Item = [String; 4]> {
    cluster::options::TABLE
        .iter()
        .map(|o| [o.key.to_owned(), o.default.to_owned(), o.kind.expected(), o.help.to_owned()])
}

/// The codes of errors with what they mean.
pub fn error_codes() -> impl Iterator<Item = (String, &'static str)> {
    let name = |code| serde_json::to_value(code).ok().and_then(|v| v.as_str().map(str::to_owned));
    admin::ErrorCode::ALL.iter().filter_map(move |(code, meaning)| Some((name(*code)?, *meaning)))
}

pub use cluster::options::parse_size;
pub use control::{Join, PageKey, Server, ServerOptions, StartError};
pub use doors::is_http_request;
pub use recovery::{RecoveryFolder, RecoveryReport};
