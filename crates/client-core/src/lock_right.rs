//! The right of this client to grant locks on the files of its volume to its own processes (docs/design/0024).
//!
//! The primary of the root's set gives it to one client at a time, for some time; a client that uses it renews it. Times are
//! those of any clock that runs through suspension, and a term counts from before it was asked for.
//!
//! Always true: while [`LockRight::is_valid`], no other client has the right.

use core::time::Duration;

use wire::op::LockClaim;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum State {
    #[default]
    None,
    /// Asked for last at the first time; may be used until the second.
    Held(Duration, Duration),
}

/// What to ask for the right with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ask {
    /// The term.
    pub term: u64,
    /// What to say of it.
    pub claim: LockClaim,
    at: Duration,
}

/// The right, as a client knows it.
#[derive(Debug, Default)]
pub struct LockRight {
    /// The number of the newest term.
    term: u64,
    state: State,
}

impl LockRight {
    /// How long the right may be used. It lasts a third longer by the clock of the primary, which may run otherwise.
    pub const USE: Duration = Duration::from_secs(15);
    /// How long after it was asked for it is renewed.
    pub const RENEWAL: Duration = Duration::from_secs(4);
    /// A request for it is not sent after so long any more.
    pub const TIMEOUT: Duration = Duration::from_secs(3);

    /// Whether locks may be granted now.
    pub fn is_valid(&self, now: Duration) -> bool {
        matches!(self.state, State::Held(_, until) if now < until)
    }

    /// Whether its time ran out, and nobody has said yet whether another client has had it since.
    pub fn is_expired(&self, now: Duration) -> bool {
        self.is_held() && !self.is_valid(now)
    }

    /// Until when locks may be granted.
    pub fn until(&self) -> Option<Duration> {
        match self.state {
            State::None => None,
            State::Held(_, until) => Some(until),
        }
    }

    /// Whether it was given, and neither given up nor lost.
    pub fn is_held(&self) -> bool {
        self.state != State::None
    }

    /// Whether it is time to ask again.
    pub fn wants_renewal(&self, now: Duration) -> bool {
        matches!(self.state, State::Held(asked, _) if now >= asked + LockRight::RENEWAL)
    }

    /// Asks for the right: for a new term, or for more time. The request must not be sent later than [`LockRight::TIMEOUT`] from now.
    pub fn ask(&mut self, now: Duration) -> Ask {
        let claim = match self.state {
            State::None => {
                self.term += 1;
                LockClaim::New
            }
            State::Held(_, until) if now + LockRight::TIMEOUT < until => LockClaim::Held,
            State::Held(..) => LockClaim::Expired,
        };
        Ask { term: self.term, claim, at: now }
    }

    /// The right was given as asked.
    pub fn given(&mut self, ask: &Ask) {
        if ask.term == self.term && (ask.claim == LockClaim::New || self.is_held()) {
            self.state = State::Held(ask.at, ask.at + LockRight::USE);
        }
    }

    /// Another client has the right, or has had it since: it is lost. Whether it was held.
    pub fn taken(&mut self) -> bool {
        core::mem::take(&mut self.state) != State::None
    }

    /// The right is given up: the term to name, if there was one.
    pub fn give_up(&mut self) -> Option<u64> {
        (core::mem::take(&mut self.state) != State::None).then_some(self.term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_term_counts_from_when_it_was_asked_for() {
        let mut right = LockRight::default();
        assert!(!right.is_valid(at(0)) && !right.is_expired(at(0)) && right.give_up().is_none());
        let ask = right.ask(at(1));
        assert_eq!((ask.term, ask.claim.clone()), (1, LockClaim::New));
        right.given(&ask);
        assert!(right.is_valid(at(15)) && !right.wants_renewal(at(4)) && right.wants_renewal(at(5)));
        assert_eq!(right.ask(at(12)).claim, LockClaim::Held);
        assert_eq!(right.ask(at(13)).claim, LockClaim::Expired, "it may arrive when the time is over");
        assert!(!right.is_valid(at(16)) && right.is_expired(at(16)));
        let again = right.ask(at(40));
        assert_eq!((again.term, again.claim.clone()), (1, LockClaim::Expired));
        right.given(&again);
        assert!(right.is_valid(at(54)));
        assert_eq!(right.give_up(), Some(1));
        right.given(&again);
        assert!(!right.is_held(), "the answer was late");
        assert_eq!(right.ask(at(60)).term, 2);
    }

    #[test]
    fn what_another_client_had_is_lost() {
        let mut right = LockRight::default();
        assert!(!right.taken());
        let ask = right.ask(at(1));
        right.given(&ask);
        assert!(right.taken() && !right.is_held());
        assert_eq!(right.give_up(), None);
    }
}
