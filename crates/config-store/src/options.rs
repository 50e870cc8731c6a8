//! The store's times and sizes.

use std::{sync::Arc, time::Duration};

use openraft::{Config, SnapshotPolicy};

use crate::OpenError;

/// Times and sizes. The defaults replace a silent leader in 1.2 s at the latest, one that is known to be dead in 0.7 s
/// (see `ConfigStore::replace_leader`); a split vote costs up to two `election_max` more (see `break_ties`). A leader that is
/// replaced without need costs as little: views and leases stay.
///
/// openraft waits the leader's lease (`election_max`) and then an election time-out (`election_min` to
/// `election_max`) before it elects, looking at the clock every 1.5 heartbeats.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often the leader shows its followers that it lives.
    pub heartbeat: Duration,
    /// The shortest time-out of an election.
    pub election_min: Duration,
    /// The longest one, and the leader's lease.
    pub election_max: Duration,
    /// How many entries make a snapshot, after which the log before it is dropped.
    pub snapshot_after: u64,
    /// How long a voter is down before another server votes in its place.
    pub replace_voter_after: Duration,
    /// How long one command may take before it is given up ("no majority answers").
    pub command_timeout: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            heartbeat: Duration::from_millis(100),
            election_min: Duration::from_millis(300),
            election_max: Duration::from_millis(500),
            snapshot_after: 1000,
            replace_voter_after: Duration::from_secs(30),
            command_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    pub(crate) fn raft_config(&self) -> Result<Arc<Config>, OpenError> {
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        let config = Config {
            cluster_name: "mortar".to_string(),
            heartbeat_interval: ms(self.heartbeat),
            election_timeout_min: ms(self.election_min),
            election_timeout_max: ms(self.election_max),
            install_snapshot_timeout: 10_000,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(self.snapshot_after),
            max_in_snapshot_log_to_keep: self.snapshot_after / 4,
            ..Config::default()
        };
        config.validate().map(Arc::new).map_err(|e| OpenError::Options { reason: e.to_string() })
    }
}
