//! The results of each session's recent operations, so that an operation that is sent again is answered and not repeated.

use crate::limits::{RESULTS_PER_SESSION, SESSIONS};
use alloc::collections::BTreeMap;
use ids::{Fid, Lsn, OpId, SessionId};

/// What an operation came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The change that it was.
    pub lsn: Lsn,
    /// The object that the answer is about.
    pub result_fid: Option<Fid>,
    /// How much was done, where the answer is that number.
    pub amount: u64,
}

#[derive(Clone, Debug, Default)]
struct Session {
    /// Results above `finished`, by the operation's number.
    done: BTreeMap<u64, Outcome>,
    finished: u64,
    last: Lsn,
}

/// Results by session. Every brick of the set keeps them: they are in the journal.
#[derive(Clone, Debug, Default)]
pub struct Results {
    sessions: BTreeMap<SessionId, Session>,
    by_age: BTreeMap<Lsn, SessionId>,
}

impl Results {
    /// Remembers what the operation came to.
    pub fn record(&mut self, op: OpId, outcome: Outcome) {
        let lsn = outcome.lsn;
        if op.seq == 0 {
            return;
        }
        let s = self.sessions.entry(op.session).or_default();
        self.by_age.remove(&s.last);
        s.last = lsn;
        self.by_age.insert(lsn, op.session);
        s.done.insert(op.seq, outcome);
        while s.done.len() > RESULTS_PER_SESSION {
            s.done.pop_first();
        }
        if self.sessions.len() > SESSIONS
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.sessions.remove(&oldest);
        }
    }

    /// Forgets the change at `lsn`: it did not come to be.
    pub fn withdraw(&mut self, op: OpId, lsn: Lsn) {
        if let Some(s) = self.sessions.get_mut(&op.session)
            && s.done.get(&op.seq).is_some_and(|done| done.lsn == lsn)
        {
            s.done.remove(&op.seq);
        }
    }

    /// Forgets all changes after `lsn`: they did not come to be.
    pub fn cut_after(&mut self, lsn: Lsn) {
        for s in self.sessions.values_mut() {
            s.done.retain(|_, done| done.lsn <= lsn);
        }
    }

    /// The session says that it waits for no answer up to `finished`.
    pub fn finish(&mut self, session: SessionId, finished: u64) {
        if let Some(s) = self.sessions.get_mut(&session)
            && finished > s.finished
        {
            s.finished = finished;
            s.done = s.done.split_off(&finished.saturating_add(1));
        }
    }

    /// Whether the session said that it waits for this operation no more.
    pub fn is_finished(&self, op: OpId) -> bool {
        self.sessions.get(&op.session).is_some_and(|s| op.seq <= s.finished)
    }

    /// What the operation came to, if it is known.
    pub fn get(&self, op: OpId) -> Option<Outcome> {
        self.sessions.get(&op.session)?.done.get(&op.seq).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(lsn: u64) -> Outcome {
        Outcome { lsn: Lsn(lsn), result_fid: None, amount: 3 * lsn }
    }

    #[test]
    fn remembers_until_finished() {
        let mut r = Results::default();
        let op = |seq| OpId { session: SessionId(5), seq };
        r.record(op(1), outcome(10));
        r.record(op(2), outcome(11));
        assert_eq!(r.get(op(1)), Some(outcome(10)));
        r.finish(SessionId(5), 1);
        assert_eq!(r.get(op(1)), None);
        assert!(r.is_finished(op(1)) && !r.is_finished(op(2)));
        assert_eq!(r.get(op(2)), Some(outcome(11)));
        r.withdraw(op(2), Lsn(11));
        assert_eq!(r.get(op(2)), None);
    }

    #[test]
    fn is_bounded() {
        let mut r = Results::default();
        for i in 1..=(SESSIONS as u64 + 100) {
            r.record(OpId { session: SessionId(i), seq: 1 }, outcome(i));
        }
        assert_eq!(r.sessions.len(), SESSIONS);
        assert_eq!(r.get(OpId { session: SessionId(1), seq: 1 }), None);
    }
}
