//! What a primary knows of the other bricks.

use crate::limits::ROOM_COUNTS;
use core::time::Duration;
use ids::Lsn;

/// The room of a brick that has not told it: that is no reason to refuse what needs room.
const UNKNOWN: u64 = u64::MAX;

/// What the primary knows of another brick in sync.
#[derive(Clone, Debug)]
pub(crate) struct PeerState {
    pub(crate) acked: Lsn,
    pub(crate) durable: Lsn,
    /// Its room in bytes.
    pub(crate) available: u64,
    /// When it said that.
    pub(crate) room_told: Duration,
    /// Since when something is unacknowledged without progress.
    pub(crate) waits_since: Option<Duration>,
    /// When unacknowledged changes were last sent again.
    pub(crate) resent: Duration,
    /// A joining brick: everything that was answered as synced without it is on its disk.
    pub(crate) synced_for_admission: bool,
}

impl Default for PeerState {
    fn default() -> PeerState {
        PeerState {
            acked: Lsn(0),
            durable: Lsn(0),
            available: UNKNOWN,
            room_told: Duration::ZERO,
            waits_since: None,
            resent: Duration::ZERO,
            synced_for_admission: false,
        }
    }
}

impl PeerState {
    pub(crate) fn set_room(&mut self, now: Duration, available: u64) {
        (self.available, self.room_told) = (available, now);
    }

    /// A brick that has said nothing for long may have ended, and its disk not be full any more.
    pub(crate) fn forget_old_room(&mut self, now: Duration) {
        if now >= self.room_told.saturating_add(ROOM_COUNTS) {
            self.available = UNKNOWN;
        }
    }
}
