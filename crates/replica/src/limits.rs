//! Bounds and waiting times of the replication core.

use core::time::Duration;

/// Changes that may be under way (ordered, not yet on every in-sync brick) in one set.
pub const WINDOW: usize = 4096;
/// Bytes of changes that may be under way in one set.
pub const WINDOW_BYTES: usize = 128 << 20;
/// Changes that a brick keeps for the next primary: as many as may be under way, and some that are ordered by servers.
pub const TAIL: usize = WINDOW + 256;
/// Bytes of these changes: as many as may be under way, and one more change.
pub const TAIL_BYTES: usize = WINDOW_BYTES + (2 << 20);
/// Messages of a newer epoch, or out of order, that a secondary keeps until it can use them.
pub const EARLY: usize = 4096;
/// Results remembered for one session (it never has more operations outstanding).
pub const RESULTS_PER_SESSION: usize = 1024;
/// Sessions whose results are remembered.
pub const SESSIONS: usize = 16384;
/// An unacknowledged change is sent again after this.
pub const RESEND: Duration = Duration::from_millis(500);
/// A sync that a secondary has not answered is asked for again after this (it may just take long).
pub const SYNC_RESEND: Duration = Duration::from_secs(10);
/// A secondary that leaves a change unacknowledged for this long is removed from the view.
pub const ACK_TIMEOUT: Duration = Duration::from_millis(2000);
/// What a brick said of its room counts for so long. One that lives says it once a second.
pub const ROOM_COUNTS: Duration = Duration::from_millis(3500);
/// A server whose lease was not renewed for this long, three heartbeats, may be cut off itself.
pub const LEASE_GAP: Duration = Duration::from_millis(1500);
/// A proposal that brought no new view is made again after this.
pub const REPROPOSE: Duration = Duration::from_millis(300);
/// Changes wait for so long before they are refused if a new primary has to leave out bricks that the quorum needs.
pub const QUORUM_WAIT: Duration = Duration::from_secs(5);

const _: () = assert!(RESEND.as_millis() < ACK_TIMEOUT.as_millis());
