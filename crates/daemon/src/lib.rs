//! The server: one process for all bricks of a machine.
//!
//! Owns threads, sockets and the state folder. `control` is the control plane (pool store, membership, volumes, leases) on a
//! small runtime of its own, so that a busy or blocked disk never delays a lease; `shard` serves files, on threads
//! by disk.
//! Invariant: what is decided is decided in the crates `set-core`, `server-core` and `cluster`; here is only the doing.

mod adoption;
mod clock;
mod control;
mod guests;
mod keys;
mod limits;
mod metrics;
mod pulse;
mod recovery;
mod shard;
mod shared;
mod speaker;

pub use control::{Server, ServerOptions, StartError};
pub use recovery::{RecoveryFolder, RecoveryReport};
