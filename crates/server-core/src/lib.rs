//! What one server decides outside its sets: which bricks it opens and how, who its clients are, and how its sets ask those
//! of other servers.
//!
//! Owns: which sets a server has open ([`OpenSets`]), the opening of a brick ([`OpenSet`]), the settings that a set takes
//! from the pool's state ([`settings()`]), the map by which clients route ([`volume_map`]), their sessions ([`Sessions`]) and what their keys allow ([`Limits`]), the requests of one set's primary to another's ([`Asker`]), both sides of the leases
//! ([`leases`]), the rounds of the arbitration ([`ArbitrationRun`]), what follows when a server seems dead ([`suspicion`]),
//! and which thread serves which set ([`Threads`]).
//!
//! What must always be true: time, chance and all that happened come in as arguments; what is to be done is an answer. The
//! server (crate `daemon`) and the simulator do it, each in its own way. The one exception is the opening of a brick, which
//! reads and writes the brick's file system.
//!
//! What it does not do: threads, sockets, clocks.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

pub mod arbitration_run;
pub mod ask;
mod evidence;
mod key_limits;
pub mod leases;
pub mod levels;
mod limits;
mod map;
mod open_sets;
mod opening;
mod rooms;
mod sessions;
mod settings;
pub mod suspicion;
pub mod threads;

pub use arbitration_run::ArbitrationRun;
pub use ask::Asker;
pub use evidence::{OpenBrick, Unopened};
pub use key_limits::Limits;
pub use leases::Lease;
pub use map::volume_map;
pub use open_sets::{Adopted, OpenSets};
pub use opening::{OpenSet, OpenedBrick, Place, RecoveryVerdict};
pub use rooms::Rooms;
pub use sessions::{Connect, Disconnect, Sessions};
pub use settings::{brick_options, bricks_to_open, identity, made, pool_bytes, root_set, settings};
pub use threads::Threads;
