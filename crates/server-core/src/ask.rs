//! Requests of one set's primary to another's, which may be on another server or on this one.
//!
//! Always true: a change keeps its name over all tries, and a try that failed on a connection is followed by one on a newer
//! connection, whose handshake ends the one before: what still lies there is not begun any more (see
//! `docs/design/0011-late-copies.md`). A set asks sets of its own volume only: a server may ask for anything, so who may use
//! one volume must not have its sets ask those of another one.

use crate::limits::{ASK_WAIT, SYNC_WAIT};
use cluster::State;
use ids::{Epoch, OpId, ServerId, SessionId, SetId};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Body, Call, Errno, Fail, Op, Reply};

/// That is two seconds of pauses.
const TRIES: u32 = 44;
/// The first pause between two tries, and the longest: what keeps a set busy is mostly a sync, or another transaction.
const PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));
/// Results of this many changes are kept for tries that come late.
const KEPT: u64 = 256;

/// One question to another set, until it is answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    id: OpId,
    /// The set that asks.
    from: SetId,
    set: SetId,
    op: Op,
    tries: u32,
    /// The connection of the try that is under way.
    sent: Option<(ServerId, u64)>,
    /// Of a sync: before which epoch the set had lost changes when it was asked first.
    lost_before: Option<Epoch>,
}

impl Question {
    /// The set that is asked.
    pub fn set(&self) -> SetId {
        self.set
    }
}

/// A try got no answer: its connection broke, could not be made, or stayed silent for too long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Broken;

/// What a question needs next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// This server serves the set itself: give it the request, then say [`Asker::answered`].
    Here(Call),
    /// Send the request to a server, then say [`Asker::answered`], after that time at the latest.
    There {
        /// The server.
        server: ServerId,
        /// The connection of this session with that number; it is to be made if it was not named before.
        connection: u64,
        /// All below this number are given up, which its handshake says.
        oldest: u64,
        /// What to send.
        call: Call,
        /// How long the answer may take, and the handshake.
        timeout: Duration,
    },
    /// Say [`Asker::look`] after that time.
    Pause(Duration),
    /// That is the answer.
    Done(Result<Body, Fail>),
}

/// A server's own session, under which its sets ask others.
#[derive(Debug)]
pub struct Asker {
    session: SessionId,
    /// Names given to changes.
    seq: u64,
    /// Connections begun.
    connections: u64,
    /// The connection to each server that is in use.
    open: BTreeMap<ServerId, u64>,
}

impl Asker {
    /// Nothing was asked yet in that session, which nobody else has or had.
    pub fn new(session: SessionId) -> Asker {
        Asker { session, seq: 0, connections: 0, open: BTreeMap::new() }
    }

    /// The session.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// A name for a request to another set that nobody else has or will have.
    pub fn next_id(&mut self) -> OpId {
        self.seq += 1;
        OpId { session: self.session, seq: self.seq }
    }

    /// A new question of one set to another, under a name that [`Asker::next_id`] gave if there is one, or that of the
    /// client's request which it answers in the own set. [`Asker::look`] comes next.
    pub fn begin(&mut self, name: Option<OpId>, (from, set): (SetId, SetId), op: Op) -> Question {
        let id = match name {
            Some(name) => name,
            None if op.changes() => self.next_id(),
            None => OpId { session: self.session, seq: 0 },
        };
        Question { id, from, set, op, tries: 0, sent: None, lost_before: None }
    }

    /// Looks in the pool's state for whom to ask. `me`: this server.
    pub fn look(&mut self, question: &mut Question, state: &State, me: ServerId) -> Step {
        assert!(question.sent.is_none(), "one try at a time");
        let [from, set] = [question.from, question.set].map(|set| state.sets.get(&set));
        let (Some(from), Some(set)) = (from, set) else { return Step::Done(Err(Fail::Busy)) };
        if from.volume != set.volume {
            return Step::Done(Err(Errno::EXDEV.into()));
        }
        let sync = question.op.is_sync();
        if sync && *question.lost_before.get_or_insert(set.lost_before) != set.lost_before {
            // What is to be synced may be gone: that the rest is on disk says nothing of it.
            return Step::Done(Err(Fail::Busy));
        }
        let brick = set.view.primary.and_then(|p| set.brick(p));
        let Some(server) = brick.map(|b| b.server) else { return question.again() };
        let call = Call {
            set: question.set,
            epoch: set.view.epoch,
            id: question.id,
            // What others have finished they say themselves.
            finished: if question.id.session == self.session {
                question.id.seq.saturating_sub(KEPT)
            } else {
                0
            },
            op: question.op.clone(),
        };
        if server == me {
            return Step::Here(call);
        }
        let connection = *self.open.entry(server).or_insert_with(|| {
            // One connection at a time: each ends those before it.
            self.connections += 1;
            self.connections
        });
        question.sent = Some((server, connection));
        let timeout = if sync { SYNC_WAIT } else { ASK_WAIT };
        Step::There { server, connection, oldest: connection, call, timeout }
    }

    /// A try has ended.
    pub fn answered(&mut self, question: &mut Question, answer: Result<Reply, Broken>) -> Step {
        let sent = question.sent.take();
        match answer {
            Ok(Reply(Ok(body))) => Step::Done(Ok(body)),
            Ok(Reply(Err(Fail::Busy | Fail::WrongView { .. }))) => question.again(),
            Ok(Reply(Err(fail))) => Step::Done(Err(fail)),
            Err(Broken) => {
                if let Some((server, connection)) = sent {
                    self.closed(server, connection);
                }
                question.again()
            }
        }
    }

    /// A connection is gone, or is not to be used any more: the next one ends it, and with it what may still lie there.
    pub fn closed(&mut self, server: ServerId, connection: u64) {
        if self.open.get(&server) == Some(&connection) {
            self.open.remove(&server);
        }
    }
}

impl Question {
    fn again(&mut self) -> Step {
        let pause = PAUSE.0.saturating_mul(2_u32.saturating_pow(self.tries)).min(PAUSE.1);
        self.tries += 1;
        if self.tries < TRIES { Step::Pause(pause) } else { Step::Done(Err(Fail::Busy)) }
    }
}
