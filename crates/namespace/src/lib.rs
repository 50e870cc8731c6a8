//! What an operation does to a set: POSIX rules over one brick's tree, decided without touching it.
//!
//! Owns: [`decide()`], which turns a request into a [`wire::Change`] or a refusal, [`placement`], which picks the set of
//! a new directory, [`permission`], [`rights`] and [`beneath`], which say what a client may do that is not trusted to know,
//! [`transaction`], the decisions of operations that touch two sets, and [`lock_right`], which mount may grant locks.
//! Everything it needs to know it asks of a [`TreeState`]; the same code runs over a real brick in the daemon and over a
//! model in the simulator. No clocks, no files, no randomness: they come in as arguments.
#![no_std]
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

extern crate alloc;

pub mod beneath;
mod decide;
mod departures;
mod dir_moves;
mod exchange;
mod file_ends;
mod files;
mod hand_over;
pub mod lock_right;
pub mod permission;
pub mod placement;
mod rename;
pub mod rights;
pub mod stripes;
pub mod transaction;
mod tree_state;
mod xattrs;

pub use decide::{Context, Decision, InExchange, Need, decide};
pub use tree_state::{Entry, Lineage, TreeState};
