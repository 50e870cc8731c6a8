//! What a shard lets the watchdog see: whether its thread goes on, and which lease its sets may be using.
//!
//! A shard takes leases through its [`Pulse`], so that they can be withheld from it while it hangs. The beat comes before
//! the look at what it must know, and [`Pulse::withhold`] does it the other way round, all in one order (`SeqCst`): a
//! shard whose beats did not change while its leases were withheld takes none until they are given again.

use crate::shared::Shared;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A shard's sign of life. Written by its thread; `needs` by the watchdog alone.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    /// Grows with everything the shard does; odd while it takes a lease.
    beats: AtomicU64,
    /// The latest end of a lease that it took, in nanoseconds.
    until: AtomicU64,
    /// The version of the pool's state that it must know to take one.
    needs: AtomicU64,
}

impl Pulse {
    /// On the shard: it lives.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(2, Ordering::SeqCst);
    }

    /// On the shard, which knows the pool's state of that version: until when it may answer.
    pub(crate) fn lease(&self, shared: &Shared, version: u64) -> Option<Duration> {
        self.beats.fetch_add(1, Ordering::SeqCst);
        let knows = version >= self.needs.load(Ordering::SeqCst);
        let lease = if knows { shared.lease(version) } else { None };
        if let Some(until) = lease {
            self.until.fetch_max(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
        self.beats.fetch_add(1, Ordering::SeqCst);
        lease
    }

    /// How often it has beaten.
    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::SeqCst)
    }

    /// If it has not beaten since `beats`, and every lease that it took is over: it gets none from now on.
    pub(crate) fn withhold(&self, beats: u64, now: Duration) -> bool {
        let needed = self.needs.swap(u64::MAX, Ordering::SeqCst);
        let rests = beats.is_multiple_of(2) && self.beats() == beats;
        let until = Duration::from_nanos(self.until.load(Ordering::SeqCst));
        let done = rests && until <= now;
        if !done {
            self.needs.store(needed, Ordering::SeqCst);
        }
        done
    }

    /// It may take leases again when it knows the pool's state of that version.
    pub(crate) fn give(&self, version: u64) {
        self.needs.store(version, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use server_core::Lease;
    use tokio::sync::mpsc;

    fn shared(until: Duration, version: u64) -> Shared {
        let shared = Shared::new(mpsc::unbounded_channel().0, 1, None);
        shared.renew_lease(Lease { until, version });
        shared
    }

    #[test]
    fn a_lease_is_withheld_only_after_the_last_one_that_was_taken() {
        let at = Duration::from_secs;
        let (shared, pulse) = (shared(at(13), 7), Pulse::default());
        assert_eq!(pulse.lease(&shared, 6), None, "it knows too little");
        assert_eq!(pulse.lease(&shared, 7), Some(at(13)));
        let beats = pulse.beats();
        shared.renew_lease(Lease { until: at(20), version: 7 });
        assert!(!pulse.withhold(beats, at(12)), "its sets may answer until 13");
        assert_eq!(pulse.beats(), beats);
        assert!(pulse.withhold(beats, at(13)), "that another thread renewed the lease means nothing");
        assert_eq!(pulse.lease(&shared, 7), None, "it goes on, and its sets are elsewhere");
        pulse.give(9);
        assert_eq!(pulse.lease(&shared, 8), None, "it does not know yet where its sets are");
        assert_eq!(pulse.lease(&shared, 9), Some(at(20)));
    }

    #[test]
    fn a_shard_that_goes_on_keeps_its_leases() {
        let at = Duration::from_secs;
        let (shared, pulse) = (shared(at(13), 7), Pulse::default());
        let beats = pulse.beats();
        pulse.beat();
        assert!(!pulse.withhold(beats, at(14)));
        assert_eq!(pulse.lease(&shared, 7), Some(at(13)));
    }

    /// Two threads race: whenever leases are withheld, the shard has taken none that is not over.
    #[test]
    fn no_lease_is_taken_while_they_are_withheld() {
        let now = Duration::from_secs(10);
        let (shared, pulse) = (shared(now + Duration::from_secs(3), 1), Pulse::default());
        let stop = std::sync::atomic::AtomicBool::new(false);
        let taken = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    if pulse.lease(&shared, 1).is_some() {
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            for _ in 0..20_000 {
                let before = pulse.beats();
                if pulse.withhold(before, now) {
                    assert_eq!(taken.load(Ordering::SeqCst), 0, "a lease was taken that is not over");
                    pulse.give(0);
                }
            }
            stop.store(true, Ordering::SeqCst);
        });
    }
}
