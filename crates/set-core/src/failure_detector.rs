//! The failure detector for bricks in sync that are silent while a client waits.
//!
//! A change that a brick does not acknowledge is noticed where changes are ordered. A sync may take long, so its answer says
//! nothing; but a live brick speaks at least once a second (it tells its room), and one whose link is cut does not. Time in
//! which this process did not run does not count.

use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;
use ids::BrickId;

/// Silent for so long, a brick is to leave.
const SILENT: Duration = Duration::from_millis(2500);
/// Ticks further apart than this: this process did not run.
const GAP: Duration = Duration::from_millis(500);

/// When each brick was last heard.
#[derive(Debug, Default)]
pub(crate) struct FailureDetector {
    heard: BTreeMap<BrickId, Duration>,
    /// Since when somebody waits, without a gap.
    waits: Option<Duration>,
    ticked: Duration,
}

impl FailureDetector {
    pub(crate) fn heard(&mut self, now: Duration, from: BrickId) {
        self.heard.insert(from, now);
    }

    /// Time passed. `waits`: a client waits for these bricks. Those that are silent.
    pub(crate) fn tick(&mut self, now: Duration, waits: Option<BTreeSet<BrickId>>) -> BTreeSet<BrickId> {
        let gap = now > self.ticked + GAP;
        self.ticked = now;
        let Some(bricks) = waits else {
            self.waits = None;
            return BTreeSet::new();
        };
        let since = *if gap { self.waits.insert(now) } else { self.waits.get_or_insert(now) };
        let last = |b: &BrickId| self.heard.get(b).copied().unwrap_or_default().max(since);
        bricks.into_iter().filter(|b| now >= last(b) + SILENT).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_waited_for_all_the_time_is_silent() {
        let (a, b) = (BrickId(1), BrickId(2));
        let both = || Some(BTreeSet::from([a, b]));
        let at = Duration::from_millis;
        let mut s = FailureDetector::default();
        let mut run = |from: u64, to: u64, speaks: bool, waits: bool| {
            let mut silent = BTreeSet::new();
            for ms in (from..to).step_by(50) {
                if speaks && ms % 1000 == 0 {
                    s.heard(at(ms), a);
                }
                silent.extend(s.tick(at(ms), both().filter(|_| waits)));
            }
            silent
        };
        assert!(run(10_000, 20_000, false, false).is_empty(), "nobody waits");
        assert!(run(20_000, 22_400, true, true).is_empty(), "not for long enough");
        assert_eq!(run(22_400, 30_000, true, true), BTreeSet::from([b]), "the other speaks");
        assert!(run(40_000, 42_000, false, true).is_empty(), "this process slept");
    }
}
