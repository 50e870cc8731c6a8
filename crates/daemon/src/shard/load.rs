//! How busy a set is: what placement goes by besides room (docs/design/0017).

use super::slow_calls::Spent;
use std::cell::Cell;
use std::time::Duration;

/// A measurement counts for so much of the figure, the ones before it for the rest.
const NEW: u64 = 1;
const OF: u64 = 3;

/// The share of its time for which a set's thread or its disk worked, over some seconds.
#[derive(Debug, Default)]
pub(super) struct Load {
    last: Cell<Option<(Duration, Spent)>>,
    per_mille: Cell<u64>,
}

impl Load {
    /// Percent, now that all this was spent since the beginning.
    pub(super) fn measure(&self, now: Duration, spent: Spent) -> u8 {
        if let Some((then, before)) = self.last.replace(Some((now, spent))) {
            let passed = u64::try_from(now.saturating_sub(then).as_micros()).unwrap_or(u64::MAX);
            let worked = u64::try_from(spent.most_since(before).as_micros()).unwrap_or(u64::MAX);
            let this = worked.saturating_mul(1000).checked_div(passed).unwrap_or(0).min(1000);
            self.per_mille.set((this * NEW + self.per_mille.get() * (OF - NEW)) / OF);
        }
        u8::try_from(self.per_mille.get() / 10).unwrap_or(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_what_the_thread_and_the_disk_do() {
        let load = Load::default();
        let second = Duration::from_secs;
        let half = |n: u64| Duration::from_millis(500 * n);
        assert_eq!(load.measure(second(5), Spent::new(half(2), second(3))), 0, "since when is not known");
        let then: Vec<u8> =
            (1..12).map(|n| load.measure(second(5 + n), Spent::new(half(2 + n), second(3)))).collect();
        assert!(then.is_sorted());
        assert_eq!((then[0], then[10]), (16, 49), "{then:?}");
        let disk: Vec<u8> =
            (1..12).map(|n| load.measure(second(16 + n), Spent::new(half(13), second(3 + n)))).collect();
        assert_eq!(disk[10], 99, "the busier of the two counts: {disk:?}");
        let idle: Vec<u8> =
            (1..12).map(|n| load.measure(second(27 + n), Spent::new(half(13), second(14)))).collect();
        assert!(idle[10] < 2, "{idle:?}");
    }
}
