//! Hand-written histories, and histories of a file system in memory.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod altered;
mod losses;
mod moved;
mod parted;
mod reference;
mod script;
mod speed;
mod violations;
