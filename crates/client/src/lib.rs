//! A mounted volume as a library: routing, sessions, resends, open files, layers. Blocking, for many threads.
//!
//! What is decided about calls, connections and open files is decided by the crate `client-core`; here are threads, sockets
//! and locks.
//!
//! Owns the connection to the pool (a watch that keeps the volume's map fresh) and pools of connections to the
//! servers. A call finds the primary of its set in the map, uses a connection alone for one request, and goes on under
//! the same [`ids::OpId`] until it is answered: applications see a pause, not an error.
//!
//! Always true: a changing operation is numbered once and keeps its number over all resends; a connection carries one
//! call at a time, so a late answer can never be taken for another's; a thread that waits does so through [`wait`],
//! so that its owner can serve other work meanwhile. Deliberately absent: caches (the kernel's are driven by the
//! mount), leases, locks, async.

pub mod address;
mod background;
mod call;
mod conn;
mod directories;
mod error;
mod exchange;
mod files;
pub mod grant;
mod homes;
mod key;
mod layer;
mod locks;
mod map;
mod moved;
mod names;
mod options;
mod own_changes;
mod page;
mod payload;
mod server_link;
mod sets;
mod slow;
mod socket;
mod stats;
mod stripes;
mod together;
pub mod user;
pub mod wait;
mod watch;

pub use call::Client;
pub use error::ConnectError;
pub use files::{NewEntry, Object, Page, Span};
pub use key::{GivenKey, Key};
pub use layer::{Layer, Next, ReadOnly, Request};
pub use locks::LockRight;
pub use options::{Options, duration};
pub use own_changes::PAGE_AGE;
pub use payload::Payload;
pub use stats::{BUCKETS, OpStats, Stats};
