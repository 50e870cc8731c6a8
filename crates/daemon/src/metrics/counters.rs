//! What is counted of one set, by the thread that serves it.

use super::histogram::{Histogram, Times};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use wire::op::COUNTED;
use wire::{Errno, Fail, Reply};

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It was done.
    Done,
    /// It was answered with an error that programs expect, like that a file does not exist.
    Errno,
    /// No room.
    NoSpace,
    /// A disk or a server failed.
    Io,
    /// The set is not served here, or its view has changed: the client asks again elsewhere.
    WrongView,
    /// Not now: the client asks again.
    Busy,
    /// Too few bricks in sync.
    BelowQuorum,
}

impl Outcome {
    /// What is not [`Outcome::Done`], by name.
    const FAILURES: [&str; 6] = ["errno", "no_space", "io", "wrong_view", "busy", "below_quorum"];

    pub(crate) fn of(reply: &Reply) -> Outcome {
        let Err(fail) = &reply.0 else { return Outcome::Done };
        match fail {
            Fail::Errno { errno } if *errno == Errno::EIO.0 => Outcome::Io,
            Fail::Errno { errno } if *errno == Errno::ENOSPC.0 => Outcome::NoSpace,
            Fail::Errno { .. } => Outcome::Errno,
            Fail::WrongView { .. } => Outcome::WrongView,
            Fail::Busy => Outcome::Busy,
            Fail::BelowQuorum => Outcome::BelowQuorum,
        }
    }
}

/// Counters of one set since the server started.
#[derive(Debug)]
pub(crate) struct SetCounters {
    times: [Histogram; COUNTED.len()],
    failures: [AtomicU64; Outcome::FAILURES.len()],
    read: AtomicU64,
    written: AtomicU64,
    long_steps: AtomicU64,
}

impl Default for SetCounters {
    fn default() -> SetCounters {
        SetCounters {
            times: std::array::from_fn(|_| Histogram::default()),
            failures: std::array::from_fn(|_| AtomicU64::new(0)),
            read: AtomicU64::new(0),
            written: AtomicU64::new(0),
            long_steps: AtomicU64::new(0),
        }
    }
}

/// The same at some time.
#[derive(Clone, Debug)]
pub(crate) struct SetCounts {
    /// How long requests took, by operation; only those that there were.
    pub(crate) times: Vec<(&'static str, Times)>,
    /// What was not done, by reason.
    pub(crate) failures: Vec<(&'static str, u64)>,
    /// Bytes of file data that were sent with answers.
    pub(crate) read: u64,
    /// Bytes of file data that came with requests.
    pub(crate) written: u64,
    /// How often the set held its thread up.
    pub(crate) long_steps: u64,
}

impl SetCounts {
    /// What came after `before`; all if there was nothing before.
    pub(crate) fn since(&self, before: Option<&SetCounts>) -> SetCounts {
        let Some(before) = before else { return self.clone() };
        let times = self.times.iter().map(|(name, times)| {
            let then = before.times.iter().find(|(n, _)| n == name);
            (*name, then.map_or_else(|| times.clone(), |(_, then)| times.since(then)))
        });
        let failures = self.failures.iter().zip(&before.failures);
        SetCounts {
            times: times.filter(|(_, t)| t.count() > 0).collect(),
            failures: failures.map(|((name, n), (_, then))| (*name, n.saturating_sub(*then))).collect(),
            read: self.read.saturating_sub(before.read),
            written: self.written.saturating_sub(before.written),
            long_steps: self.long_steps.saturating_sub(before.long_steps),
        }
    }
}

impl SetCounters {
    /// A request with that much data came.
    pub(crate) fn asked(&self, bytes: usize) {
        if bytes > 0 {
            self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    /// It is answered, with that much data.
    pub(crate) fn answered(&self, outcome: Outcome, bytes: usize) {
        if bytes > 0 {
            self.read.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        let failure = (outcome as usize).checked_sub(1).and_then(|n| self.failures.get(n));
        if let Some(n) = failure {
            n.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So long it was served.
    pub(crate) fn took(&self, op: usize, took: Duration) {
        if let Some(times) = self.times.get(op) {
            times.note(took);
        }
    }

    /// The set held its thread up.
    pub(crate) fn long_step(&self) {
        self.long_steps.fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted until now.
    pub(crate) fn read(&self) -> SetCounts {
        let value = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let times = COUNTED.iter().zip(&self.times).map(|(name, h)| (*name, h.read()));
        let failures = Outcome::FAILURES.iter().zip(&self.failures);
        SetCounts {
            times: times.filter(|(_, t)| t.count() > 0).collect(),
            failures: failures.map(|(name, n)| (*name, value(n))).collect(),
            read: value(&self.read),
            written: value(&self.written),
            long_steps: value(&self.long_steps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_has_its_counter() {
        let c = SetCounters::default();
        let fails = [
            Fail::Errno { errno: Errno::ENOENT.0 },
            Fail::Errno { errno: Errno::ENOSPC.0 },
            Fail::Errno { errno: Errno::EIO.0 },
            Fail::WrongView { epoch: ids::Epoch(1) },
            Fail::Busy,
            Fail::BelowQuorum,
        ];
        for (i, fail) in fails.into_iter().enumerate() {
            for _ in 0..=i {
                c.answered(Outcome::of(&Reply(Err(fail.clone()))), 0);
            }
        }
        c.answered(Outcome::of(&Reply(Ok(wire::Body::Done))), 100);
        c.asked(7);
        let counts = c.read();
        let numbers: Vec<u64> = counts.failures.iter().map(|(_, n)| *n).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        assert_eq!((counts.read, counts.written), (100, 7));
        assert!(counts.times.is_empty(), "nothing was asked");
        c.took(0, Duration::from_millis(1));
        assert_eq!(c.read().times[0].0, "lookup");
    }
}
