//! Timers: what is due at which time.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, Later, SetCore};
use crate::io::ReplyTo;
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

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The time has come that was asked for.
    pub(crate) fn on_wake(&mut self, cx: &mut Cx<'_, B, R>) {
        // One at a time: what it leads to is done before the next is taken, with the next wake.
        match self.timers.take(cx.at.now) {
            Some(Due::Request(request)) => self.serve(cx, request),
            Some(Due::Syncs) => self.begin_round(cx),
            Some(Due::Announce) => self.later.push_back(Later::Announce(cx.at.now)),
            Some(Due::Absent(healing)) => self.later.push_back(Later::LookAtAbsent(healing, cx.at.now)),
            Some(Due::Flush) => self.later.push_back(Later::Flush(cx.at.now)),
            Some(Due::Trash) => self.later.push_back(Later::ForgetTrash(None)),
            Some(Due::WriteAgain) => self.later.push_back(Later::WriteAgain(None)),
            Some(Due::Answers) => self.later.push_back(Later::AnswerOne(cx.at.now)),
            Some(Due::CatchUp(brick, join_id)) => self.send_slice(cx, brick, join_id),
            Some(Due::Sums(to, epoch, body)) => self.send_sums(cx, to, epoch, body),
            Some(Due::Departure(number)) => self.go_on_departing(cx, number),
            Some(Due::Rebalance) => self.rebalance_on(cx),
            Some(Due::HandOver) => self.hand_over_on(cx),
            None => {}
        }
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
