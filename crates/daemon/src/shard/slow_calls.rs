//! Requests that took long, and where their time went, as far as the thread of their set can tell.
//!
//! A request waits for several things at once, and the core of a set does not say which of them held it up. So what is told
//! is what went on in the set meanwhile: how long its thread worked, how long work for the disk was under way, and how
//! long another set was asked. What is left is waiting for the set's other bricks, for its view, or for a grant to end; what
//! came last is told too. What a change took on another brick that brick's server tells ([`super::slow_changes`]).

use super::set::Served;
use super::slow_changes::Named;
use ids::{Fid, OpId, SessionId};
use std::cell::Cell;
use std::time::Duration;
use wire::Call;

/// Lines a second of one set.
const LINES: u32 = 2;

/// For how long something was under way, all together.
#[derive(Debug, Default)]
pub(super) struct Busy {
    many: Cell<u32>,
    since: Cell<Duration>,
    before: Cell<Duration>,
}

impl Busy {
    pub(super) fn begin(&self, now: Duration) {
        if self.many.get() == 0 {
            self.since.set(now);
        }
        self.many.set(self.many.get().saturating_add(1));
    }

    pub(super) fn end(&self, now: Duration) {
        let many = self.many.get().saturating_sub(1);
        if many == 0 && self.many.get() > 0 {
            self.before.set(self.until(now));
        }
        self.many.set(many);
    }

    fn until(&self, now: Duration) -> Duration {
        let running = if self.many.get() > 0 { now.saturating_sub(self.since.get()) } else { Duration::ZERO };
        self.before.get() + running
    }
}

/// What went on in a set until some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Spent {
    thread: Duration,
    disk: Duration,
    asked: Duration,
}

impl Spent {
    #[cfg(test)]
    pub(super) fn new(thread: Duration, disk: Duration) -> Spent {
        Spent { thread, disk, asked: Duration::ZERO }
    }

    /// For how long the thread or the disk worked since then, whichever worked longer.
    pub(super) fn most_since(&self, then: Spent) -> Duration {
        self.thread.saturating_sub(then.thread).max(self.disk.saturating_sub(then.disk))
    }
}

/// What a request is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) fid: Option<Fid>,
    pub(super) id: OpId,
}

impl About {
    pub(super) fn of(call: &Call, session: SessionId) -> About {
        // What changes nothing has no name.
        let id = if call.id.seq == 0 { OpId { session, seq: 0 } } else { call.id };
        About { fid: super::top::object(&call.op).map(super::top::Object::fid), id }
    }
}

/// Looks for slow requests of one set.
#[derive(Debug, Default)]
pub(super) struct SlowCalls {
    /// Longer is slow; zero: nothing is.
    limit: Cell<Duration>,
    thread: Cell<Duration>,
    pub(super) disk: Busy,
    pub(super) asked: Busy,
    told: Cell<u32>,
    left_out: Cell<u32>,
}

impl SlowCalls {
    pub(super) fn set_limit(&self, limit: Duration) {
        self.limit.set(limit);
    }

    /// The thread worked that long.
    pub(super) fn worked(&self, took: Duration) {
        self.thread.set(self.thread.get() + took);
    }

    /// What went on until now.
    pub(super) fn spent(&self, now: Duration) -> Spent {
        Spent { thread: self.thread.get(), disk: self.disk.until(now), asked: self.asked.until(now) }
    }

    /// Whether a request that took that long is to be told.
    pub(super) fn is_told(&self, took: Duration) -> bool {
        let limit = self.limit.get();
        if limit == Duration::ZERO || took < limit {
            return false;
        }
        let counter = if self.told.get() < LINES { &self.told } else { &self.left_out };
        counter.set(counter.get() + 1);
        std::ptr::eq(counter, &self.told)
    }

    /// The line about it.
    pub(super) fn line(&self, served: &Served, name: &str, path: Option<String>, now: Duration) -> String {
        let took = now.saturating_sub(served.since);
        let Spent { thread, disk, asked } = self.meanwhile(served.spent, took, now);
        let known = thread.max(disk).max(asked);
        let object = match (path, served.about.fid) {
            (Some(path), _) => format!(" of {path:?}"),
            (None, Some(fid)) => format!(" of {fid}"),
            (None, None) => String::new(),
        };
        format!(
            "slow: {name}{object} {}, took {took:.1?}; meanwhile the set's thread worked {thread:.1?}, its disk \
             {disk:.1?}, other sets were asked {asked:.1?}; at least {:.1?} were none of these but waiting for other bricks, \
             a view or a grant",
            Named(served.about.id),
            took.saturating_sub(thread + disk + asked).min(took.saturating_sub(known))
        )
    }

    /// The line about something that the primary wanted of this brick.
    pub(super) fn line_of_change(&self, what: &str, since: Duration, then: Spent, now: Duration) -> String {
        let took = now.saturating_sub(since);
        let Spent { thread, disk, .. } = self.meanwhile(then, took, now);
        format!(
            "slow: {what}, took this brick {took:.1?} until it was acknowledged; meanwhile the set's thread worked \
             {thread:.1?}, its disk {disk:.1?}"
        )
    }

    /// What went on since then, for so long.
    fn meanwhile(&self, then: Spent, took: Duration, now: Duration) -> Spent {
        let spent = self.spent(now);
        Spent {
            thread: spent.thread.saturating_sub(then.thread).min(took),
            disk: spent.disk.saturating_sub(then.disk).min(took),
            asked: spent.asked.saturating_sub(then.asked).min(took),
        }
    }

    /// Once a second: how many were left out.
    pub(super) fn tell(&self, set: &str) {
        self.told.set(0);
        let left_out = self.left_out.take();
        if left_out > 0 {
            tracing::warn!("{set}: slow: {left_out} more requests");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn time_that_overlaps_counts_once() {
        let busy = Busy::default();
        busy.begin(ms(10));
        busy.begin(ms(12));
        busy.end(ms(14));
        assert_eq!(busy.until(ms(15)), ms(5));
        busy.end(ms(20));
        busy.end(ms(30));
        assert_eq!(busy.until(ms(40)), ms(10));
        busy.begin(ms(50));
        assert_eq!(busy.until(ms(51)), ms(11));
    }

    #[test]
    fn few_lines_a_second_and_none_without_a_limit() {
        let slow = SlowCalls::default();
        assert!(!slow.is_told(ms(100_000)));
        slow.set_limit(ms(100));
        assert!(!slow.is_told(ms(99)));
        assert_eq!([1, 2, 3, 4].map(|_| slow.is_told(ms(100))), [true, true, false, false]);
        slow.tell("set 1 of volume v");
        assert!(slow.is_told(ms(100)));
    }

    #[test]
    fn a_line_says_where_the_time_went() {
        let slow = SlowCalls::default();
        slow.worked(ms(500));
        let about = About { fid: None, id: OpId { session: SessionId(0xab), seq: 12 } };
        let served = Served { op: 0, since: ms(1000), spent: slow.spent(ms(1000)), about };
        slow.worked(ms(30));
        slow.disk.begin(ms(1100));
        slow.disk.end(ms(1300));
        let line = slow.line(&served, "write", Some("/a\n".to_owned()), ms(2000));
        let words = [
            "write of \"/a\\n\" for session 00000000000000ab, operation 12, took 1.0s",
            "thread worked 30.0ms, its disk 200.0ms",
            "asked 0.0ns; at least 770.0ms",
        ];
        assert!(words.iter().all(|w| line.contains(w)), "{line}");
    }
}
