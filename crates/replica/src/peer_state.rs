//! What a primary knows of the other bricks.

use core::time::Duration;
use ids::Lsn;

/// What the primary knows of another brick in sync.
#[derive(Clone, Debug)]
pub(crate) struct PeerState {
    pub(crate) acked: Lsn,
    pub(crate) durable: Lsn,
    pub(crate) available: u64,
    /// Since when something is unacknowledged without progress.
    pub(crate) waits_since: Option<Duration>,
    /// When unacknowledged changes were last sent again.
    pub(crate) resent: Duration,
    /// A joining brick: everything that was answered as synced without it is on its disk.
    pub(crate) synced_for_admission: bool,
}

impl Default for PeerState {
    /// Nothing is known yet; that is no reason to refuse what needs room.
    fn default() -> PeerState {
        PeerState {
            acked: Lsn(0),
            durable: Lsn(0),
            available: u64::MAX,
            waits_since: None,
            resent: Duration::ZERO,
            synced_for_admission: false,
        }
    }
}
