//! A machine's clocks: one that only goes forward, at its own rate, and one for the wall that an administrator may set.

use crate::rng::Prng;
use core::time::Duration;
use ids::Time;

/// Parts in a million by which two machines' clocks may differ. The lease protocol allows for 1/16 (see
/// `cluster::liveness`).
const SKEW: usize = 20_000;
/// 2023-11-14, in seconds since 1970.
const BEGIN: i64 = 1_700_000_000;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    /// What it showed at true time zero.
    start: Duration,
    /// Millionths of its rate above or below true time.
    rate: i64,
    /// Seconds between the wall clock and the one that only goes forward.
    wall: i64,
}

impl Clock {
    pub(crate) fn draw(rng: &mut Prng) -> Clock {
        let rate = i64::try_from(rng.below(SKEW)).unwrap_or(0) - i64::try_from(SKEW / 2).unwrap_or(0);
        Clock { start: rng.millis(0, 100_000_000), rate, wall: BEGIN }
    }

    /// What the clock that only goes forward shows.
    pub(crate) fn now(&self, time: Duration) -> Duration {
        let nanos = i128::try_from(time.as_nanos()).unwrap_or(0);
        let shown = nanos + nanos * i128::from(self.rate) / 1_000_000;
        self.start + Duration::from_nanos(u64::try_from(shown).unwrap_or(0))
    }

    /// How much true time passes while the clock shows `shown` more.
    pub(crate) fn lasts(&self, shown: Duration) -> Duration {
        let nanos = i128::try_from(shown.as_nanos()).unwrap_or(0);
        let nanos = nanos * 1_000_000 / (1_000_000 + i128::from(self.rate)) + 1;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
    }

    /// What the wall clock shows.
    pub(crate) fn wall(&self, time: Duration) -> Time {
        let now = self.now(time);
        Time { sec: self.wall + i64::try_from(now.as_secs()).unwrap_or(0), nsec: now.subsec_nanos() }
    }

    /// Somebody sets the wall clock, forward or back.
    pub(crate) fn jump(&mut self, seconds: i64) {
        self.wall += seconds;
    }
}
