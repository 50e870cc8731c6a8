//! Changes and syncs of the set's primary that took this brick long, and what an answer of the primary waited for at last.
//!
//! Each server tells what it did itself: nothing about time is on the wire. The lines of several servers about one request
//! name it alike, by its session and its number there.

use super::slow_calls::{SlowCalls, Spent};
use ids::{BrickId, Lsn, OpId};
use set_core::Input;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;
use wire::peer::PeerBody;

/// So many are remembered at a time: of more nothing is told.
const MOST: usize = 256;

/// A request as all lines about it name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Named(pub(super) OpId);

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.seq {
            // What changes nothing has no number.
            0 => write!(f, "for session {:016x}", self.0.session.0),
            seq => write!(f, "for session {:016x}, operation {seq}", self.0.session.0),
        }
    }
}

/// What came when an answer left: the last of all that it waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Last {
    /// Nothing: the request itself, or a timer.
    Nothing,
    /// That brick's acknowledgement.
    Brick(BrickId),
    /// Work for the own disk ended.
    Disk,
    /// Another set's answer.
    Set,
    /// A new view, or other settings.
    View,
}

impl Last {
    pub(super) fn of<R>(input: &Input<R>) -> Last {
        match input {
            Input::Peer(m, _) if matches!(m.body, PeerBody::Ack { .. } | PeerBody::Synced { .. }) => {
                Last::Brick(m.from)
            }
            Input::Worked(..) => Last::Disk,
            Input::Answered(..) => Last::Set,
            Input::Settings(_) => Last::View,
            _ => Last::Nothing,
        }
    }

    /// The end of a line about a slow request. `name`: what a brick is called.
    pub(super) fn words(self, name: impl FnOnce(BrickId) -> Option<String>) -> String {
        match self {
            Last::Nothing => String::new(),
            Last::Brick(id) => {
                let name = name(id).unwrap_or_else(|| id.to_string());
                format!("; the last to acknowledge was brick {name}")
            }
            Last::Disk => "; it waited for the own disk at last".to_owned(),
            Last::Set => "; it waited for another set at last".to_owned(),
            Last::View => "; it waited for a new view at last".to_owned(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Change(Lsn, OpId),
    Sync(u64),
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Change(lsn, op) => write!(f, "the primary's change {lsn} {}", Named(*op)),
            What::Sync(_) => f.write_str("a sync for the primary"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Received {
    what: What,
    since: Duration,
    spent: Spent,
}

/// What came from the primary and is not acknowledged yet.
#[derive(Debug, Default)]
pub(super) struct SlowChanges {
    open: RefCell<VecDeque<Received>>,
    done: RefCell<Vec<Received>>,
}

impl SlowChanges {
    /// An input comes at this time.
    pub(super) fn received<R>(&self, input: &Input<R>, now: Duration, calls: &SlowCalls) {
        let what = match input {
            Input::Peer(m, _) => match &m.body {
                PeerBody::Replicate { stamp, op, .. } => What::Change(stamp.lsn, *op),
                PeerBody::Sync { ticket, .. } => What::Sync(*ticket),
                _ => return,
            },
            // Another view: what the old primary sent may never be acknowledged.
            Input::Settings(_) => return self.open.borrow_mut().clear(),
            _ => return,
        };
        let mut open = self.open.borrow_mut();
        if open.len() < MOST {
            open.push_back(Received { what, since: now, spent: calls.spent(now) });
        }
    }

    /// A message leaves for another brick: it may acknowledge some.
    pub(super) fn sent(&self, body: &PeerBody) {
        let acknowledged = |what: What| match (body, what) {
            (PeerBody::Ack { lsn, .. }, What::Change(of, _)) => of <= *lsn,
            (PeerBody::Synced { ticket, .. }, What::Sync(of)) => of == *ticket,
            _ => false,
        };
        if matches!(body, PeerBody::Ack { .. } | PeerBody::Synced { .. }) {
            let (mut open, mut done) = (self.open.borrow_mut(), self.done.borrow_mut());
            open.retain(|received| {
                let over = acknowledged(received.what);
                if over {
                    done.push(*received);
                }
                !over
            });
        }
    }

    /// The lines about those that were acknowledged since this was asked last and took long.
    pub(super) fn lines(&self, now: Duration, calls: &SlowCalls) -> Vec<String> {
        let mut done = self.done.borrow_mut();
        let slow = done.drain(..).filter(|r| calls.is_told(now.saturating_sub(r.since)));
        slow.map(|r| calls.line_of_change(&r.what.to_string(), r.since, r.spent, now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, SessionId, SetId};
    use wire::peer::{PeerMessage, Stamp};

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn from(brick: u32, body: PeerBody) -> Input<()> {
        let (from, to) = (BrickId(brick), BrickId(9));
        Input::Peer(PeerMessage { set: SetId(1), from, to, epoch: Epoch(1), body }, bytes::Bytes::new())
    }

    fn change(lsn: u64) -> Input<()> {
        let stamp = Stamp { epoch: Epoch(1), lsn: Lsn(lsn) };
        let op = OpId { session: SessionId(0xab), seq: lsn + 100 };
        let change = wire::Change::Nop;
        from(1, PeerBody::Replicate { stamp, commit: Lsn(0), op, result_fid: None, change })
    }

    fn ack(lsn: u64) -> PeerBody {
        PeerBody::Ack { lsn: Lsn(lsn), durable: Lsn(0), available: 0 }
    }

    #[test]
    fn what_took_long_until_it_was_acknowledged_is_told_with_the_name_of_its_request() {
        let (calls, changes) = (SlowCalls::default(), SlowChanges::default());
        calls.set_limit(ms(100));
        changes.received(&change(1), ms(0), &calls);
        changes.received(&change(2), ms(950), &calls);
        changes.received(&from(1, PeerBody::Sync { ticket: 7, lsn: Lsn(2), fid: None }), ms(960), &calls);
        calls.worked(ms(600));
        changes.sent(&ack(2));
        let lines = changes.lines(ms(1000), &calls);
        assert_eq!(lines.len(), 1, "the second took 50 ms: {lines:?}");
        for words in
            ["change 1 for session 00000000000000ab, operation 101", "took this brick 1.0s", "worked 600.0ms"]
        {
            assert!(lines[0].contains(words), "{lines:?}");
        }
        assert_eq!(changes.lines(ms(2000), &calls).len(), 0, "once");
        changes.sent(&PeerBody::Synced { ticket: 8, errno: 0 });
        changes.sent(&PeerBody::Synced { ticket: 7, errno: 0 });
        let lines = changes.lines(ms(2000), &calls);
        assert!(lines.len() == 1 && lines[0].contains("a sync for the primary"), "{lines:?}");
    }

    #[test]
    fn a_primary_that_sends_without_an_end_takes_bounded_memory() {
        let (calls, changes) = (SlowCalls::default(), SlowChanges::default());
        for lsn in 0..10_000 {
            changes.received(&change(lsn), ms(lsn), &calls);
        }
        assert_eq!(changes.open.borrow().len(), MOST);
    }

    #[test]
    fn the_last_that_an_answer_waited_for_has_words() {
        let last = Last::of(&from(4, ack(1)));
        assert_eq!(last, Last::Brick(BrickId(4)));
        assert_eq!(last.words(|_| Some("h2:/b".to_owned())), "; the last to acknowledge was brick h2:/b");
        assert_eq!(Last::of(&change(1)), Last::Nothing);
        assert_eq!(Last::of(&Input::<()>::Tick).words(|_| None), "");
    }
}
