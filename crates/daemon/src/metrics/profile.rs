//! What volumes did since somebody began to profile them.
//!
//! Requests are counted all the time; a profile only remembers what the counters were when it began, and when it was last
//! looked at. It is forgotten when the server stops.

use super::{Metrics, SetCounts};
use crate::shared::lock;
use ids::{SetId, VolumeId};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

type Counts = BTreeMap<SetId, SetCounts>;

#[derive(Debug)]
struct Profile {
    since: Duration,
    first: Counts,
    looked: Duration,
    last: Counts,
}

/// The profiles that are under way.
#[derive(Debug, Default)]
pub(crate) struct Profiles(Mutex<BTreeMap<VolumeId, Profile>>);

/// What was counted in a span of time.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) length: Duration,
    pub(crate) sets: Counts,
}

impl Profiles {
    /// Begins a profile anew.
    pub(crate) fn start(&self, now: Duration, volume: VolumeId, counts: Counts) {
        let profile = Profile { since: now, first: counts.clone(), looked: now, last: counts };
        lock(&self.0).insert(volume, profile);
    }

    /// Ends a profile; whether there was one.
    pub(crate) fn stop(&self, volume: VolumeId) -> bool {
        lock(&self.0).remove(&volume).is_some()
    }

    /// What was counted since the profile began, and since it was last looked at; `None`: there is none.
    pub(crate) fn look(&self, now: Duration, volume: VolumeId, counts: &Counts) -> Option<(Span, Span)> {
        let mut all = lock(&self.0);
        let profile = all.get_mut(&volume)?;
        let span = |since: Duration, before: &Counts| Span {
            length: now.saturating_sub(since),
            sets: counts.iter().map(|(set, c)| (*set, c.since(before.get(set)))).collect(),
        };
        let spans = (span(profile.since, &profile.first), span(profile.looked, &profile.last));
        (profile.looked, profile.last) = (now, counts.clone());
        Some(spans)
    }

    /// Forgets the volumes that are gone.
    pub(super) fn keep(&self, exists: impl Fn(VolumeId) -> bool) {
        lock(&self.0).retain(|volume, _| exists(*volume));
    }
}

impl Metrics {
    /// What was counted of these sets until now.
    pub(crate) fn counts_of(&self, sets: impl IntoIterator<Item = SetId>) -> Counts {
        sets.into_iter().filter_map(|set| Some((set, self.counts(set)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Outcome;

    #[test]
    fn a_profile_counts_from_its_start_and_from_the_last_look() {
        let (profiles, metrics, at) = (Profiles::default(), Metrics::default(), Duration::from_secs);
        let (volume, set) = (VolumeId(1), SetId(2));
        let counters = metrics.set(set);
        let work = |n: usize| {
            for _ in 0..n {
                counters.asked(10);
                counters.answered(Outcome::Busy, 0);
                counters.took(0, at(1));
            }
        };
        work(5);
        let counts = || metrics.counts_of([set, SetId(3)]);
        assert!(profiles.look(at(1), volume, &counts()).is_none());
        profiles.start(at(10), volume, counts());
        work(2);
        let (all, new) = profiles.look(at(12), volume, &counts()).unwrap();
        assert_eq!((all.length, new.length), (at(2), at(2)));
        work(1);
        let (all, new) = profiles.look(at(15), volume, &counts()).unwrap();
        assert_eq!((all.length, new.length), (at(5), at(3)));
        let told = |s: &Span| {
            let c = &s.sets[&set];
            let (op, times) = &c.times[0];
            (*op, times.count(), times.nanos / 1_000_000_000, c.written, c.failures[4].1)
        };
        assert_eq!((told(&all), told(&new)), (("lookup", 3, 3, 30, 3), ("lookup", 1, 1, 10, 1)));
        assert!(profiles.stop(volume) && !profiles.stop(volume));
    }
}
