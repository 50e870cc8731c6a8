//! How long things took, in classes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// The upper ends of the classes; what took longer than the last is in one more.
pub(crate) const BOUNDS: [Duration; 13] = [
    us(100),
    us(250),
    us(500),
    us(1_000),
    us(2_500),
    us(5_000),
    us(10_000),
    us(25_000),
    us(50_000),
    us(100_000),
    us(500_000),
    us(2_500_000),
    us(10_000_000),
];

const CLASSES: usize = BOUNDS.len() + 1;

/// Durations of one kind, counted by one thread and read by any.
#[derive(Debug)]
pub(crate) struct Histogram {
    classes: [AtomicU64; CLASSES],
    nanos: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { classes: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Something took that long.
    pub(crate) fn note(&self, took: Duration) {
        let class = BOUNDS.iter().position(|end| took <= *end).unwrap_or(BOUNDS.len());
        if let Some(n) = self.classes.get(class) {
            n.fetch_add(1, Ordering::Relaxed);
        }
        self.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was noted until now.
    pub(crate) fn read(&self) -> Times {
        Times {
            classes: self.classes.iter().map(|n| n.load(Ordering::Relaxed)).collect(),
            nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

/// What a histogram had noted at some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Times {
    /// How many, by class.
    pub(crate) classes: Vec<u64>,
    /// How long all of them took together.
    pub(crate) nanos: u64,
}

impl Times {
    /// What came after `before`.
    pub(crate) fn since(&self, before: &Times) -> Times {
        let classes = self.classes.iter().zip(&before.classes);
        Times {
            classes: classes.map(|(now, then)| now.saturating_sub(*then)).collect(),
            nanos: self.nanos.saturating_sub(before.nanos),
        }
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_first_class_that_it_does_not_exceed() {
        let h = Histogram::default();
        for took in [us(0), us(100), us(101), Duration::from_secs(3600)] {
            h.note(took);
        }
        let times = h.read();
        assert_eq!(times.count(), 4);
        assert_eq!((times.classes[0], times.classes[1], times.classes[CLASSES - 1]), (2, 1, 1));
        assert_eq!(times.nanos, 3_600_000_201_000);
        assert!(BOUNDS.is_sorted());
    }
}
