//! One exchange with a server: a connection, what the set has to hear first, the request, the wait, and what becomes of the
//! connection.
//!
//! ```text
//!   Connect --> Send(Opens) --> Wait ... --> Send(Request) --> Wait --> End
//!                  ^              |                             | ^
//!                  +--------------+                 Handshake --+ |  a server that is slow, but answers handshakes, gets more time
//!               as long as there are more                 +-------+
//! ```
//!
//! Whoever carries an exchange out does one [`Step`] after the other, and says after each what came of it. Times are those
//! since the call began.
//!
//! What must always be true: a set that may have forgotten which files are open is told before it is asked; a claim to tell
//! it, and releases taken, are given back however the exchange ends; and a connection on which something that binds was
//! asked and not answered carries no further call.

use alloc::vec::Vec;
use core::ops::DerefMut;
use core::time::Duration;

use ids::{Epoch, Fid, ServerId, SetId};
use wire::{Fail, Reply};

use crate::call::{Ended, Fate, RetryPolicy};
use crate::connections::Era;
use crate::routes::Routes;
use crate::set::{ReclaimMark, SetState};

/// A server that answers handshakes may take this many network timeouts for one answer.
pub const SLOW: u32 = 15;
/// After so long without an end, the server may not be the right one any more: the map may be old.
pub const SLOW_ANSWER: Duration = Duration::from_secs(1);
/// Files told of in one go when a set has to hear again what is open.
const TOLD_AT_ONCE: usize = 64;

/// Whom an exchange is with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// The set.
    pub set: SetId,
    /// The epoch of its view.
    pub epoch: Epoch,
    /// The server of its primary.
    pub server: ServerId,
}

impl Target {
    /// Whether the set has moved away from there: the exchange ends with [`Failure::Moved`].
    pub fn has_moved(&self, routes: &Routes) -> bool {
        routes.has_moved(self.set, self.epoch, self.server)
    }
}

/// What is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// An open for each of these files, without a number.
    Opens(Vec<Fid>),
    /// A release for each of these files, without a number.
    Releases(Vec<Fid>),
    /// The request.
    Request,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Get a connection to the server, an idle one or a new one; then [`Exchange::connected`].
    Connect,
    /// Send this, in the epoch of the target; then wait as after [`Step::Wait`].
    Send {
        /// What to send.
        what: Message,
        /// The largest number up to which all changes of the set are finished.
        finished: u64,
    },
    /// Wait for the next answer until [`Exchange::deadline`]; then [`Exchange::answered`].
    Wait,
    /// Make another connection to the server, to see whether it answers a handshake. Perhaps the map is old: find out
    /// meanwhile. Then [`Exchange::handshake_done`].
    Handshake,
    /// The exchange is over.
    End {
        /// How.
        how: Ended,
        /// What becomes of the connection; `None`: there was none, and one that is being made is closed.
        fate: Option<Fate>,
    },
}

/// Why a step failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The deadline passed, and no part of an answer had come.
    TimedOut,
    /// The deadline passed while a message was half sent or half received.
    Stalled,
    /// The connection broke, or could not be made.
    Broke,
    /// The server is none that can be talked to.
    Unusable,
    /// The set is served by another server now.
    Moved,
    /// Whoever made the call gave up.
    Interrupted,
    /// The client ends.
    Stopped,
}

/// What an exchange is for.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Task {
    /// A request. If it binds, it must not be done after nobody waits for it any more.
    Call { binds: bool },
    /// Only to tell the set which files are open.
    Reclaim,
    /// To release these.
    Release(Vec<Fid>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Connecting,
    /// Opens are being told; so many answers are missing.
    Telling(usize),
    /// Releases are being told; so many answers are missing.
    Releasing(usize),
    Asking,
    Handshaking,
    Over,
}

/// One exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    task: Task,
    target: Target,
    retry_policy: RetryPolicy,
    phase: Phase,
    deadline: Duration,
    /// The connection had been used before.
    used: bool,
    mark: Option<ReclaimMark>,
    /// Files that the set has to hear of still, the next ones last.
    files: Vec<Fid>,
    /// What one of several answers said.
    refused: Option<Ended>,
    handshakes: u32,
}

/// Ways to begin.
impl Exchange {
    /// For a request, at the time `now`. `binds`: it changes something, or has the server hold something.
    pub fn call(target: Target, retry_policy: RetryPolicy, now: Duration, binds: bool) -> Exchange {
        Exchange::new(Task::Call { binds }, target, retry_policy, now)
    }

    /// To tell the set which files are open.
    pub fn reclaim(target: Target, retry_policy: RetryPolicy, now: Duration) -> Exchange {
        Exchange::new(Task::Reclaim, target, retry_policy, now)
    }

    /// To release files ([`SetState::take_releases`]). What becomes of them is told to the set's state in the end.
    pub fn release(target: Target, retry_policy: RetryPolicy, now: Duration, fids: Vec<Fid>) -> Exchange {
        Exchange::new(Task::Release(fids), target, retry_policy, now)
    }

    fn new(task: Task, target: Target, retry_policy: RetryPolicy, now: Duration) -> Exchange {
        let deadline = now + retry_policy.network_timeout;
        // Nobody waits for the rest.
        let soft = retry_policy.soft.filter(|_| matches!(task, Task::Call { .. }));
        Exchange {
            task,
            target,
            retry_policy,
            phase: Phase::Connecting,
            deadline: soft.map_or(deadline, |soft| deadline.min(soft)),
            used: false,
            mark: None,
            files: Vec::new(),
            refused: None,
            handshakes: 0,
        }
    }

    /// The first step.
    pub fn first(&self) -> Step {
        Step::Connect
    }
}

/// What came of a step. `set` gives the client's memory of the set; it is asked only if it is needed.
impl Exchange {
    /// There is a connection; `used`: it had been used before, `era`: of the connections to the server.
    pub fn connected<S>(&mut self, used: bool, era: Era, set: impl FnOnce() -> S) -> Step
    where
        S: DerefMut<Target = SetState>,
    {
        assert!(self.phase == Phase::Connecting, "an exchange has one connection");
        self.used = used;
        let mark = ReclaimMark { epoch: self.target.epoch, server: self.target.server, era };
        self.mark = Some(mark);
        let mut set = set();
        if let Task::Release(fids) = &self.task {
            self.phase = Phase::Releasing(fids.len());
            return Step::Send { what: Message::Releases(fids.clone()), finished: set.finished() };
        }
        if !set.needs_reclaim(mark) {
            return self.after_reclaim(&set);
        }
        match set.begin_reclaim(mark) {
            // Somebody else is telling, and it is not known whether that goes well.
            None => self.end(Ended::Busy),
            Some(files) => {
                self.files = files;
                self.files.reverse();
                self.tell_more(&mut set)
            }
        }
    }

    /// An answer came.
    pub fn answered<S>(&mut self, reply: &Reply, set: impl FnOnce() -> S) -> Step
    where
        S: DerefMut<Target = SetState>,
    {
        let how = Ended::from(reply);
        match self.phase {
            Phase::Asking | Phase::Handshaking => self.end(how),
            Phase::Telling(missing) | Phase::Releasing(missing) => {
                // Errnos do not matter: the file is gone.
                if let Err(Fail::WrongView { .. } | Fail::Busy | Fail::BelowQuorum) = reply.0 {
                    self.refused = Some(how);
                }
                self.one_of_several(missing.saturating_sub(1), set)
            }
            Phase::Connecting | Phase::Over => self.over(Failure::Unusable, set),
        }
    }

    /// The server answered a handshake on another connection, at the time `now`: it has more time.
    pub fn handshake_done(&mut self, now: Duration) -> Step {
        assert!(self.phase == Phase::Handshaking, "a handshake answers a question");
        self.phase = Phase::Asking;
        self.deadline = now + self.retry_policy.network_timeout;
        Step::Wait
    }

    /// A step failed, at the time `now`.
    pub fn failed<S>(&mut self, why: Failure, now: Duration, set: impl FnOnce() -> S) -> Step
    where
        S: DerefMut<Target = SetState>,
    {
        let may_be_slow = self.retry_policy.soft.is_none() && self.handshakes < SLOW;
        if self.phase == Phase::Asking && why == Failure::TimedOut && may_be_slow {
            self.handshakes += 1;
            self.phase = Phase::Handshaking;
            self.deadline = now + self.retry_policy.network_timeout / 2;
            return Step::Handshake;
        }
        self.over(why, set)
    }
}

/// What is known of it.
impl Exchange {
    /// Whom it is with.
    pub fn target(&self) -> Target {
        self.target
    }

    /// How long the step under way may last.
    pub fn deadline(&self) -> Duration {
        self.deadline
    }
}

impl Exchange {
    /// Everything is told: on to what the exchange is for.
    fn after_reclaim(&mut self, set: &SetState) -> Step {
        if self.task == Task::Reclaim {
            return self.end(Ended::Answered);
        }
        self.phase = Phase::Asking;
        Step::Send { what: Message::Request, finished: set.finished() }
    }

    fn tell_more(&mut self, set: &mut SetState) -> Step {
        if self.files.is_empty() {
            set.end_reclaim(self.mark);
            return self.after_reclaim(set);
        }
        let rest = self.files.len().saturating_sub(TOLD_AT_ONCE);
        let mut some = self.files.split_off(rest);
        some.reverse();
        self.phase = Phase::Telling(some.len());
        Step::Send { what: Message::Opens(some), finished: set.finished() }
    }

    /// One of several answers came.
    fn one_of_several<S>(&mut self, missing: usize, set: impl FnOnce() -> S) -> Step
    where
        S: DerefMut<Target = SetState>,
    {
        let tells = matches!(self.phase, Phase::Telling(_));
        self.phase = if tells { Phase::Telling(missing) } else { Phase::Releasing(missing) };
        if missing > 0 {
            return Step::Wait;
        }
        let mut set = set();
        match self.refused {
            None if tells => self.tell_more(&mut set),
            None => {
                self.give_back(&mut set, true);
                self.end(Ended::Answered)
            }
            Some(how) => {
                self.give_back(&mut set, false);
                self.end(how)
            }
        }
    }

    /// Nothing more comes.
    fn over<S>(&mut self, why: Failure, set: impl FnOnce() -> S) -> Step
    where
        S: DerefMut<Target = SetState>,
    {
        if matches!(self.phase, Phase::Telling(_)) || matches!(self.task, Task::Release(_)) {
            self.give_back(&mut set(), false);
        }
        self.end(match why {
            Failure::Moved => Ended::Moved,
            Failure::Interrupted => Ended::Interrupted,
            // Nobody waits longer, and nothing is said against the server.
            Failure::TimedOut | Failure::Stalled if self.retry_policy.once => Ended::Interrupted,
            Failure::Stopped => Ended::Stopped,
            Failure::Broke if self.used && self.phase != Phase::Handshaking => Ended::OldBroke,
            Failure::Broke | Failure::TimedOut | Failure::Stalled | Failure::Unusable => Ended::Lost,
        })
    }

    /// What was taken from the set's state goes back there.
    fn give_back(&mut self, set: &mut SetState, done: bool) {
        match &self.task {
            Task::Release(fids) if done => set.released(fids),
            Task::Release(fids) => set.release_failed(fids),
            Task::Call { .. } | Task::Reclaim => set.end_reclaim(self.mark.filter(|_| done)),
        }
    }

    fn end(&mut self, how: Ended) -> Step {
        assert!(self.phase != Phase::Over, "an exchange ends once");
        let binds = match self.phase {
            Phase::Connecting | Phase::Over => false,
            Phase::Telling(_) | Phase::Releasing(_) => true,
            Phase::Asking | Phase::Handshaking => self.task == Task::Call { binds: true },
        };
        self.phase = Phase::Over;
        let fate = self.mark.map(|_| how.fate(binds));
        Step::End { how, fate }
    }
}

#[cfg(test)]
mod tests;
