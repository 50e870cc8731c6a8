//! Timers: what is due at which time.

use alloc::collections::BTreeMap;
use core::time::Duration;

/// What is due when.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    number: u64,
    due: BTreeMap<(Duration, u64), T>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers { number: 0, due: BTreeMap::new() }
    }
}

impl<T> Timers<T> {
    /// From `at` on it is due. What is due at the same time comes in the order in which it was set.
    pub(crate) fn set(&mut self, at: Duration, what: T) {
        self.number += 1;
        self.due.insert((at, self.number), what);
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    /// What is due next.
    pub(crate) fn peek(&self) -> Option<&T> {
        self.due.first_key_value().map(|(_, what)| what)
    }

    /// Takes one that is due.
    pub(crate) fn take(&mut self, now: Duration) -> Option<T> {
        self.next().filter(|at| *at <= now)?;
        self.due.pop_first().map(|(_, what)| what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_its_order() {
        let at = Duration::from_millis;
        let mut timers = Timers::default();
        for (ms, what) in [(30, 'd'), (10, 'a'), (20, 'b'), (20, 'c')] {
            timers.set(at(ms), what);
        }
        assert_eq!((timers.next(), timers.take(at(9))), (Some(at(10)), None));
        let due: alloc::string::String = core::iter::from_fn(|| timers.take(at(25))).collect();
        assert_eq!(due, "abc");
        assert_eq!(timers.next(), Some(at(30)));
    }
}
