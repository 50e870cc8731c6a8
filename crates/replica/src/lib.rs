//! Replication inside a set: who orders changes, when an answer may leave, and who is in sync.
//!
//! Primary-copy replication with an outside configuration master, after PacificA (Lin et al., 2008) and Ceph's
//! primary-copy pools. One [`Replica`] is one brick's part in its set. It is a plain state machine: [`Replica::step`] takes
//! the time and one [`Input`] and appends [`Output`]s; it has no clock, thread, socket or file, so the daemon and the
//! simulator run the same code.
//!
//! Invariants (checked after each step, and by the simulator over whole sets):
//! - An answer that says a change is done leaves only after every in-sync brick applied that change and all before it.
//! - An answer that shows a state leaves only after all that the state contains is applied on every in-sync brick.
//! - No answer leaves when the server's lease has run out, or in an epoch other than the one it was worked out in
//!   unless this brick stayed primary.
//! - Of the journals of two bricks in sync one is the beginning of the other. A new primary makes them equal before it
//!   serves.
//! - A brick applies changes in lsn order without gaps, and never one from a primary of an older epoch.
//!
//! What it does not do: decide what a request changes (crate `namespace`), agree on views (the pool store).
#![no_std]
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

extern crate alloc;

mod admission;
mod dirty;
mod failing;
mod fids;
pub mod heal;
mod heal_target;
pub mod healing;
mod io;
mod join;
mod join_ids;
mod lease;
mod leaving;
pub mod limits;
mod new_view;
mod opening;
mod peer_state;
mod placed;
mod primary;
mod progress;
pub mod ranges;
mod reconcile;
mod replica;
mod results;
mod secondary;
mod view;

pub use fids::Fids;
pub use io::{Admission, ChangeBody, Input, LogEntry, Message, Output, Proposal, SyncToken, Ticket};
pub use join_ids::JoinIds;
pub use replica::{Replica, Role};
pub use results::{Outcome, Results};
pub use view::View;
