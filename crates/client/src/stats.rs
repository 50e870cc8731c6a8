//! Counts and latencies of operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use wire::op::COUNTED;
use wire::{Body, Errno};

use crate::layer::{Layer, Next, Request};

/// Buckets of a histogram: bucket `i` counts operations below 2^i microseconds (the last one: all others).
pub const BUCKETS: usize = 26;

#[derive(Debug, Default)]
struct Counter {
    errors: AtomicU64,
    nanoseconds: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

/// Counts and latencies of all operations of a client.
#[derive(Debug)]
pub struct Stats {
    counters: [Counter; COUNTED.len()],
}

impl Default for Stats {
    fn default() -> Stats {
        Stats { counters: std::array::from_fn(|_| Counter::default()) }
    }
}

/// Figures of one operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpStats {
    /// Its name.
    pub name: &'static str,
    /// How often it was done.
    pub count: u64,
    /// How often with an errno.
    pub errors: u64,
    /// Time of all together.
    pub total: Duration,
    /// How many took less than 2^i microseconds (and not less than half of it).
    pub buckets: [u64; BUCKETS],
}

impl Stats {
    fn add(&self, index: usize, took: Duration, failed: bool) {
        let Some(c) = self.counters.get(index) else { return };
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        c.nanoseconds.fetch_add(nanoseconds, Relaxed);
        let bucket = (u64::BITS - (nanoseconds / 1000).leading_zeros()) as usize;
        c.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Relaxed);
        if failed {
            c.errors.fetch_add(1, Relaxed);
        }
    }

    /// Figures of the operations that were used.
    pub fn snapshot(&self) -> Vec<OpStats> {
        let all = COUNTED.iter().zip(&self.counters).map(|(name, c)| {
            let buckets = std::array::from_fn(|i| c.buckets[i].load(Relaxed));
            OpStats {
                name,
                count: buckets.iter().sum(),
                errors: c.errors.load(Relaxed),
                total: Duration::from_nanos(c.nanoseconds.load(Relaxed)),
                buckets,
            }
        });
        all.filter(|s| s.count > 0).collect()
    }
}

/// The layer that counts.
pub(crate) struct Counting(pub Arc<Stats>);

impl Layer for Counting {
    fn name(&self) -> &'static str {
        "statistics"
    }

    fn pass(&self, request: &mut Request<'_, '_>, next: Next<'_>) -> Result<Body, Errno> {
        let index = request.call.op.index();
        let start = Instant::now();
        let result = next.run(request);
        self.0.add(index, start.elapsed(), result.is_err());
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_buckets() {
        let s = Stats::default();
        s.add(0, Duration::from_nanos(10), false);
        s.add(0, Duration::from_micros(3), true);
        s.add(0, Duration::from_secs(10_000), false);
        let got = s.snapshot();
        assert_eq!((got.len(), got[0].name, got[0].count, got[0].errors), (1, "lookup", 3, 1));
        assert_eq!((got[0].buckets[0], got[0].buckets[2], got[0].buckets[BUCKETS - 1]), (1, 1, 1));
    }
}
