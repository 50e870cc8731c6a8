//! What a client decides, without I/O: routing, resends, sessions, open files, what is unsynced.
//!
//! Owns: the life of an operation ([`operation`]), which is one of tries ([`call`]), each an exchange with one server
//! ([`exchange`]); what a client keeps for each set ([`set`]); which files
//! moved to other sets while they were open ([`moved`]); the numbers of a session's
//! connections to one server ([`connections`]); and who serves what by a volume's map ([`routes`]). The crate `client`
//! carries the decisions out with threads and sockets, the simulator with events.
//!
//! What must always be true: time comes in as an argument, since the call began; nothing here waits, locks or draws
//! random numbers; and equal inputs lead to equal decisions, so maps are ordered.
//!
//! What it does not do: sockets, threads, caches of attributes, the choice of the server that sends the map.
#![no_std]
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

extern crate alloc;

pub mod call;
pub mod connections;
pub mod exchange;
pub mod homes;
pub mod lock_right;
pub mod moved;
mod numbers;
mod opens;
pub mod operation;
pub mod routes;
pub mod set;
pub mod stripes;
mod unsynced;
