//! The commands of `mortar`, but those that have the server inside (crate `mortar`).
//!
//! Owns words, tables and exit codes (0 done, 1 refused or failed, 2 usage); what commands mean is decided by the server,
//! which is asked in the admin protocol.
//! Invariant: a command that fails prints exactly one line on stderr, which names the object, the reason and what to do.
//! Each command is a file in `commands`: its documentation, its arguments and its output. What the server cannot do yet has
//! no command.

mod address;
mod ask;
mod cli;
mod commands;
mod confirm;
mod contexts;
mod ended;
mod error;
mod keys;
mod lifetime;
mod limits;
mod live;
mod local;
mod local_key;
mod logging;
mod notify;
pub mod output;
mod panics;
mod parent;
mod table;
mod terminal;
mod view;
mod yaml;

pub use address::host_and_port;
pub use cli::{Commands, Global};
pub use commands::mount::helper::mount_helper;
pub use commands::pool::{PoolKey, PoolList, PoolRotateAuthority, PoolRotateKey, PoolSecure, PoolToken};
pub use confirm::confirm;
pub use error::{report, report_to_mount, usage};
pub use logging::{Log, LogArgs};
pub use notify::notify_ready;
pub use panics::end_at_panics;
pub use parent::die_with;

/// Time since 1970.
fn unix_time() -> std::time::Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
