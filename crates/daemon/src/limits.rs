//! How long this crate waits for what, and what whoever connects may use: one place, so that they can be compared.

use std::time::Duration;

/// For the lease of a server that is replaced to run out, and for the command that replaces it.
pub(crate) const REPLACE_WAIT: Duration = Duration::from_secs(15);

/// For the pool store to take a command that a shard asked for.
pub(crate) const PROPOSE_WAIT: Duration = Duration::from_secs(10);

/// For the pool store, and for other servers, when an administrator waits.
pub(crate) const ADMIN_WAIT: Duration = Duration::from_secs(30);

/// For a server that joins with a token: the one that it replaces may have to lose its lease first.
pub(crate) const JOIN_WAIT: Duration = Duration::from_secs(45);

/// For a server that is invited to come in, with all its tries.
pub(crate) const INVITATION_WAIT: Duration = Duration::from_secs(60);

/// Seconds for which the token in an invitation is good.
pub(crate) const INVITATION_VALID: u64 = 120;

/// For a server of this machine to say who it is.
pub(crate) const LOCAL_WAIT: Duration = Duration::from_millis(500);

/// For all servers to know that their pool is secured.
pub(crate) const SECURED_WAIT: Duration = Duration::from_secs(5);

/// For a server that joins or leaves, and for the pool store to record it.
pub(crate) const MEMBERSHIP_WAIT: Duration = Duration::from_secs(10);

/// For the pool store in one round of an arbitration.
pub(crate) const ARBITRATION_WAIT: Duration = Duration::from_secs(10);

/// For the pool store when the bricks of a hung disk leave their views.
pub(crate) const WATCHDOG_WAIT: Duration = Duration::from_secs(10);

/// For the status of one server.
pub(crate) const STATUS_WAIT: Duration = Duration::from_secs(3);

/// For a connection to another server.
pub(crate) const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// For a key that was made just now to be known here.
pub(crate) const NEW_KEY_WAIT: Duration = Duration::from_secs(2);

/// Between two looks for keys that have expired.
pub(crate) const EXPIRY_LOOK: Duration = Duration::from_millis(250);

/// For the answers to somebody who lost his right after he asked.
pub(crate) const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// For a handshake.
pub(crate) const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);

/// For the rest of a frame that began to come, and for somebody to take something of what is sent to him.
pub(crate) const FRAME_WAIT: Duration = Duration::from_secs(60);

/// Unfinished handshakes of one address.
pub(crate) const HANDSHAKES: usize = 64;

/// Unfinished handshakes of all together.
pub(crate) const HANDSHAKES_OF_ALL: usize = 1024;

/// Connections of one address, and of all, that have shown no key to a pool that has keys.
pub(crate) const KEYLESS_CONNECTIONS: usize = 16;
/// See [`KEYLESS_CONNECTIONS`].
pub(crate) const KEYLESS_OF_ALL: usize = 128;

/// For one of those to ask something, and between two questions.
pub(crate) const KEYLESS_WAIT: Duration = Duration::from_secs(10);

/// For one of those in all: as long as an invitation may take, and a token to be made for it.
pub(crate) const KEYLESS_TIME: Duration = Duration::from_secs(75);

/// Bytes of requests that are served and of answers that were not taken yet, of those of one address.
pub(crate) const KEYLESS_MEMORY: usize = 256 << 10;

/// Tries to join of one address: so many at once, and one more after each pause.
pub(crate) const ATTEMPTS: (u32, Duration) = (10, Duration::from_secs(2));

/// The same of all together.
pub(crate) const ATTEMPTS_OF_ALL: (u32, Duration) = (50, Duration::from_millis(200));

/// Lines in the log about whom this server refused, of one address: so many at once, and one more after each pause.
pub(crate) const REFUSALS_TOLD: (u32, Duration) = (10, Duration::from_secs(30));

/// The same of all together.
pub(crate) const REFUSALS_TOLD_OF_ALL: (u32, Duration) = (100, Duration::from_secs(1));

/// Connections of one address, and of one server.
pub(crate) const GUEST_CONNECTIONS: usize = 2048;

/// Bytes of requests that are served and of answers that were not taken yet, of one address, and of one server.
pub(crate) const GUEST_MEMORY: usize = 64 << 20;

/// The same of all together but servers, at least: see [`crate::guests::memory_of_all`].
pub(crate) const LEAST_MEMORY_OF_ALL: usize = 256 << 20;

/// Of that, what is kept for those who use nothing yet: some dozens of the longest requests.
pub(crate) const MEMORY_FOR_NEWCOMERS: usize = 64 << 20;

/// Bytes of the body of a request to a set.
pub(crate) const CALL_BODY: u32 = 256 << 10;

/// Control requests and watches of one connection at a time, each.
pub(crate) const CONTROL_REQUESTS: usize = 64;
