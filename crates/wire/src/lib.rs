//! What travels between clients, servers and journals: frames and messages, as bytes.
//!
//! Owns: the frame head ([`frame`]), the codec ([`codec`]), the file operations ([`op`]), the replicated changes
//! ([`change`]) and the talk between the bricks of a set ([`peer`]); what attributes allow a user ([`user`]), as both ends read
//! them, and what sets ask each other of that ([`rights`]). Byte tables: `docs/formats/wire.md`.
//! Invariant: decoding any bytes gives a value or an error, never a panic, and never allocates more than the
//! input's own length allows. No sockets here, and no meaning: who may send what is decided above.
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

pub mod change;
mod clients;
pub mod codec;
mod counted;
pub mod errno;
pub mod frame;
mod hand_over;
pub mod hello;
pub mod limits;
pub mod map;
pub mod name;
pub mod op;
pub mod peer;
pub mod reply;
pub mod rights;
pub mod stripes;
pub mod user;

pub use change::Change;
pub use codec::{DecodeError, Reader, Wire};
pub use errno::Errno;
pub use frame::{Frame, FrameHead, Kind};
pub use name::Name;
pub use op::{Call, Op};
pub use reply::{Attr, Body, Fail, Reply};
pub use user::User;
