//! The life of a call: what to do next, from what the map says and how the last try ended.
//!
//! Always true: a change keeps its number until it is answered, and a call that nobody waits for any more is not sent
//! again. Times are those since the call began.

use core::time::Duration;

use wire::{Errno, Fail, Op, Reply};

/// The shortest and the longest pause between two tries.
pub const PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(250));
/// How long a call lasts whose answer nobody needs: less than half of what servers grant, so that the answer is of use for
/// some time.
pub const IMPATIENCE: Duration = Duration::from_millis(100);
/// Without an answer for so long, something is wrong.
const TROUBLE: Duration = Duration::from_millis(500);

/// How patient calls are.
#[derive(Clone, Copy, Debug)]
pub struct RetryPolicy {
    /// Calls that take longer end with `ETIMEDOUT`; `None`: they go on for ever.
    pub soft: Option<Duration>,
    /// A server that accepts but does not answer for so long is given up.
    pub network_timeout: Duration,
    /// How long changes wait for a set without write quorum.
    pub quorum_wait: Duration,
    /// Calls are tried once.
    pub once: bool,
}

impl RetryPolicy {
    /// The policy for an operation. Whoever asks for attributes of several objects can do without them.
    #[must_use]
    pub fn of(self, op: &Op) -> RetryPolicy {
        match op {
            Op::GetAttrs { .. } => {
                let soft = self.soft.map_or(IMPATIENCE, |soft| soft.min(IMPATIENCE));
                RetryPolicy { soft: Some(soft), once: true, ..self }
            }
            _ => self,
        }
    }
}

/// What is known before a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Known {
    /// The client ends.
    Stopped,
    /// The volume is stopped: somebody may start it again.
    NotStarted,
    /// It was deleted.
    Deleted,
    /// The map has no such set.
    NoSet,
    /// No brick of the set may serve, by the map of this version.
    NoPrimary(u64),
    /// There is a primary, by the map of this version.
    Primary(u64),
}

/// How a try ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// It was carried out, or refused for good.
    Answered,
    /// A transaction holds what the operation needs: it was refused, with nothing done.
    Held,
    /// The server knows another view of the set.
    WrongView,
    /// The server cannot say yet.
    Busy,
    /// Too few bricks are in sync.
    BelowQuorum,
    /// While the call waited a newer map named another server.
    Moved,
    /// Whoever made the call gave up.
    Interrupted,
    /// The client ends.
    Stopped,
    /// The connection broke, and had been used before.
    OldBroke,
    /// No answer, for any other reason.
    Lost,
}

impl Ended {
    /// What becomes of the connection. `binds`: what was asked on it must not be done after nobody waits for it any more.
    pub fn fate(self, binds: bool) -> Fate {
        match self {
            Ended::Answered | Ended::Held | Ended::WrongView | Ended::Busy | Ended::BelowQuorum => {
                Fate::PutBack
            }
            Ended::Interrupted | Ended::Stopped if binds => Fate::GiveUp,
            Ended::Interrupted | Ended::Stopped => Fate::Close,
            Ended::Moved | Ended::OldBroke | Ended::Lost => Fate::Broke,
        }
    }
}

impl From<&Reply> for Ended {
    fn from(reply: &Reply) -> Ended {
        match &reply.0 {
            Err(Fail::Errno { errno }) if Errno(*errno) == Errno::EAGAIN => Ended::Held,
            Ok(_) | Err(Fail::Errno { .. }) => Ended::Answered,
            Err(Fail::WrongView { .. }) => Ended::WrongView,
            Err(Fail::Busy) => Ended::Busy,
            Err(Fail::BelowQuorum) => Ended::BelowQuorum,
        }
    }
}

/// What becomes of the connection of a try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Others may use it.
    PutBack,
    /// What was asked on it must not be done at some later time: it is given up, and the older ones with it.
    GiveUp,
    /// Likewise; the server may have forgotten what the session holds open, too.
    Broke,
    /// It is closed; what was asked on it changes nothing.
    Close,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send the request to the primary, with this kind of number.
    Send(Number),
    /// Look at the map again at once.
    Look,
    /// Wait for a newer map, then look at it.
    Pause {
        /// The longest wait.
        time: Duration,
        /// It has taken too long already: the map may be old, and people should know.
        alarm: bool,
    },
    /// The answer is the result.
    Return,
    /// The call ends without an answer of the set.
    Fail(Errno),
}

/// The number of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// None: it changes nothing.
    None,
    /// The next one of the set.
    New,
    /// The one that the call has.
    Same,
}

/// The state of one call.
#[derive(Debug)]
pub struct CallMachine {
    retry_policy: RetryPolicy,
    changes: bool,
    /// The call has a number.
    numbered: bool,
    pause: Duration,
    /// The map of the try that is under way or has ended.
    version: u64,
    /// The map that the last pause was for.
    paused_for: u64,
    /// An old connection that broke was replaced at once.
    replaced: bool,
}

impl CallMachine {
    /// A call that begins now; `changes`: its operation changes something.
    pub fn new(retry_policy: RetryPolicy, changes: bool) -> CallMachine {
        let (pause, numbered, replaced) = (PAUSE.0, false, false);
        CallMachine { retry_policy, changes, numbered, pause, version: 0, paused_for: 0, replaced }
    }

    /// What to do, by the map. `waited` is asked only if the call cannot be sent.
    pub fn look(&mut self, known: Known, waited: impl FnOnce() -> Duration) -> Action {
        match known {
            Known::Stopped => Action::Fail(Errno::ESHUTDOWN),
            Known::Deleted => Action::Fail(Errno::ENOTCONN),
            // Whoever does not want to wait for servers does not want to wait for people.
            Known::NotStarted if self.retry_policy.once || self.retry_policy.soft.is_some() => {
                Action::Fail(Errno::ENOTCONN)
            }
            Known::NotStarted => self.again(waited()),
            Known::NoSet => Action::Fail(Errno::ESTALE),
            Known::NoPrimary(version) => {
                self.version = version;
                self.again(waited())
            }
            Known::Primary(version) => {
                self.version = version;
                let number = match (self.changes, self.numbered) {
                    (false, _) => Number::None,
                    (true, false) => Number::New,
                    (true, true) => Number::Same,
                };
                self.numbered = self.changes;
                Action::Send(number)
            }
        }
    }

    /// What to do after a try. `waited` is asked only if it was not the last one.
    pub fn ended(&mut self, how: Ended, waited: impl FnOnce() -> Duration) -> Action {
        match how {
            Ended::Answered => Action::Return,
            Ended::Held => {
                // That was an answer, so the next try is a new operation.
                self.numbered = false;
                self.again(waited())
            }
            Ended::WrongView | Ended::Busy | Ended::Lost => self.again(waited()),
            Ended::BelowQuorum => {
                let waited = waited();
                if self.changes && waited >= self.retry_policy.quorum_wait {
                    return Action::Fail(Errno::EROFS);
                }
                self.again(waited)
            }
            Ended::Moved => {
                self.pause = PAUSE.0;
                self.replaced = false;
                Action::Look
            }
            Ended::Interrupted => Action::Fail(Errno::EINTR),
            Ended::Stopped => Action::Fail(Errno::ESHUTDOWN),
            // That a connection from the pool is broken is old news.
            Ended::OldBroke if !self.replaced && !self.retry_policy.once => {
                self.replaced = true;
                Action::Look
            }
            Ended::OldBroke => self.again(waited()),
        }
    }

    /// How patient it is.
    pub fn retry_policy(&self) -> RetryPolicy {
        self.retry_policy
    }

    /// Whether the call has a number that counts as under way.
    pub fn is_numbered(&self) -> bool {
        self.numbered
    }

    fn again(&mut self, waited: Duration) -> Action {
        let policy = &self.retry_policy;
        if policy.once || policy.soft.is_some_and(|soft| waited >= soft) {
            return Action::Fail(Errno::ETIMEDOUT);
        }
        if self.version > self.paused_for {
            self.paused_for = self.version;
            self.pause = PAUSE.0;
        }
        let time = self.pause;
        self.pause = (time * 2).min(PAUSE.1);
        Action::Pause { time, alarm: waited >= TROUBLE }
    }
}

#[cfg(test)]
mod tests;
