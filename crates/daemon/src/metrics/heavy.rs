//! Who or what asks most, in bounded memory: the algorithm Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient
//! Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).
//!
//! It keeps a fixed number of counters. A key that has none takes over the smallest one, with what that had counted: so a
//! count is never too small, and too large by at most what is told with it. Every key that has more than its share, one
//! part in as many as there are counters, is among them.

use std::collections::HashMap;
use std::hash::Hash;

/// One counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Counted<K> {
    pub(crate) key: K,
    /// What was counted, and perhaps too much.
    pub(crate) count: u64,
    /// By how much it may be too large.
    pub(crate) error: u64,
}

/// The keys that count most.
#[derive(Debug)]
pub(crate) struct Heavy<K> {
    most: usize,
    counters: Vec<Counted<K>>,
    at: HashMap<K, usize>,
}

impl<K: Copy + Eq + Hash> Heavy<K> {
    /// With so many counters.
    pub(crate) fn new(most: usize) -> Heavy<K> {
        Heavy { most, counters: Vec::new(), at: HashMap::new() }
    }

    /// The key counts so much more.
    pub(crate) fn add(&mut self, key: K, much: u64) {
        if let Some(c) = self.at.get(&key).and_then(|at| self.counters.get_mut(*at)) {
            c.count = c.count.saturating_add(much);
            return;
        }
        if self.counters.len() < self.most {
            self.at.insert(key, self.counters.len());
            self.counters.push(Counted { key, count: much, error: 0 });
            return;
        }
        let smallest = self.counters.iter_mut().enumerate().min_by_key(|(_, c)| c.count);
        let Some((at, c)) = smallest else { return };
        self.at.remove(&c.key);
        self.at.insert(key, at);
        *c = Counted { key, count: c.count.saturating_add(much), error: c.count };
    }

    /// Those that count most, the largest first.
    pub(crate) fn top(&self, many: usize) -> Vec<Counted<K>> {
        let mut all = self.counters.clone();
        all.sort_by_key(|c| std::cmp::Reverse(c.count));
        all.truncate(many);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_keys_are_counted_exactly() {
        let mut h = Heavy::new(4);
        for key in [1, 2, 1, 3, 1, 2] {
            h.add(key, 10);
        }
        let told: Vec<_> = h.top(2).iter().map(|c| (c.key, c.count, c.error)).collect();
        assert_eq!(told, [(1, 30, 0), (2, 20, 0)]);
    }

    /// One key in ten of a stream with very many: it is found, and its count is within the bounds that are told.
    #[test]
    fn what_counts_most_is_found_among_very_many() {
        let mut h = Heavy::new(64);
        for n in 0..100_000u64 {
            h.add(if n % 10 == 0 { 7 } else { n + 1000 }, 1);
        }
        let first = h.top(1)[0];
        assert_eq!(first.key, 7);
        assert!(first.count >= 10_000 && first.count - first.error <= 10_000, "{first:?}");
        assert_eq!((h.counters.len(), h.at.len()), (64, 64), "memory is bounded");
    }
}
