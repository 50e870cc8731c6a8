//! The only source of chance in a run: everything follows from its seed.

use core::time::Duration;

/// SplitMix64 (Steele, Lea, Flood 2014): small, and good enough to choose faults.
#[derive(Clone, Debug)]
pub struct Prng(u64);

impl Prng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Prng {
        Prng(seed ^ 0x6d6f_7274_6172_0001)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n` (0 if `n` is 0).
    pub fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.draw() % (n.max(1) as u64)).unwrap_or(0)
    }

    /// True `permille` times out of a thousand.
    pub fn chance(&mut self, permille: usize) -> bool {
        self.below(1000) < permille
    }

    /// A time from `low` up to `high`.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let span = u64::try_from(high.saturating_sub(low).as_nanos()).unwrap_or(u64::MAX);
        low + Duration::from_nanos(self.draw() % span.max(1))
    }

    /// A time from `low` up to `high`, in microseconds.
    pub fn micros(&mut self, low: u64, high: u64) -> Duration {
        self.between(Duration::from_micros(low), Duration::from_micros(high))
    }

    /// A time from `low` up to `high`, in milliseconds.
    pub fn millis(&mut self, low: u64, high: u64) -> Duration {
        self.between(Duration::from_millis(low), Duration::from_millis(high))
    }

    /// One of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }
}
