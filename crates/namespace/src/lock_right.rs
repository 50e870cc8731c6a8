//! Which mount grants locks on the files of a volume (docs/design/0024).
//!
//! As long as locks are not agreed on between mounts, one mount alone grants them, to its own processes; it has the right
//! for some time and renews it. The primary of the root's set gives the right, and keeps it in memory only: a new primary
//! takes the word of whoever still has it.
//!
//! Always true: at no time two sessions hold the right, each by its own clock.

use core::time::Duration;
use ids::SessionId;
use wire::op::LockClaim;

/// How long the right lasts, by the clock of the primary that gives it, if it is not renewed.
pub const LOCK_RIGHT: Duration = Duration::from_secs(20);

/// What comes of asking for the right.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Held {
    /// The session has it from now on.
    Given,
    /// Another session has it, or had it since.
    Taken,
    /// It is not known yet: whoever has it may not have said so.
    Wait,
}

/// The right, as the primary of the root's set knows it.
#[derive(Clone, Copy, Default, Debug)]
pub struct LockRight {
    /// Who had it last, in which of its terms, and until when it has it.
    last: Option<((SessionId, u64), Duration)>,
    /// Until then somebody may have it whom nobody has heard of here.
    grace: Duration,
}

impl LockRight {
    /// The set is led from here from now on. `is_new`: nobody can have it from
    /// an earlier primary.
    pub fn begin(&mut self, now: Duration, is_new: bool) {
        *self = LockRight { last: None, grace: if is_new { now } else { now + LOCK_RIGHT } };
    }

    /// A session asks for the right in one of its terms.
    pub fn hold(&mut self, now: Duration, (session, term): (SessionId, u64), claim: &LockClaim) -> Held {
        let given = match self.last {
            Some(((holder, before), _)) if holder == session => {
                self.last = Some(((session, before.max(term)), now + LOCK_RIGHT));
                return Held::Given;
            }
            Some((_, until)) if now < until => Held::Taken,
            // Another one has had it since.
            Some(_) if *claim != LockClaim::New => Held::Taken,
            None if now < self.grace && *claim != LockClaim::Held => Held::Wait,
            Some(_) | None => Held::Given,
        };
        if given == Held::Given {
            self.last = Some(((session, term), now + LOCK_RIGHT));
        }
        given
    }

    /// A term of a session is over. A later one of the same session is not: the message was late.
    pub fn release(&mut self, now: Duration, term: (SessionId, u64)) {
        if let Some((last, until)) = &mut self.last
            && *last == term
        {
            *until = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_session_has_it_until_it_gives_it_up_or_falls_silent() {
        let mut right = LockRight::default();
        right.begin(at(0), true);
        assert_eq!(right.hold(at(1), (A, 1), &LockClaim::New), Held::Given);
        assert_eq!(right.hold(at(2), (B, 1), &LockClaim::New), Held::Taken);
        assert_eq!(right.hold(at(15), (A, 1), &LockClaim::Held), Held::Given);
        assert_eq!(right.hold(at(34), (B, 1), &LockClaim::New), Held::Taken);
        assert_eq!(right.hold(at(35), (B, 1), &LockClaim::New), Held::Given, "20 s of silence");
        assert_eq!(right.hold(at(36), (A, 1), &LockClaim::Expired), Held::Taken);
        right.release(at(37), (B, 1));
        assert_eq!(right.hold(at(38), (A, 1), &LockClaim::Expired), Held::Taken, "another one had it");
        assert_eq!(right.hold(at(39), (A, 2), &LockClaim::New), Held::Given);
    }

    #[test]
    fn whoever_was_silent_goes_on_if_nobody_else_has_had_it() {
        let mut right = LockRight::default();
        right.begin(at(0), true);
        assert_eq!(right.hold(at(0), (A, 1), &LockClaim::New), Held::Given);
        assert_eq!(right.hold(at(100), (A, 1), &LockClaim::Expired), Held::Given);
        assert_eq!(right.hold(at(101), (B, 1), &LockClaim::New), Held::Taken);
    }

    #[test]
    fn a_late_release_ends_no_later_term() {
        let mut right = LockRight::default();
        right.begin(at(0), true);
        right.hold(at(0), (A, 1), &LockClaim::New);
        right.hold(at(1), (A, 2), &LockClaim::New);
        right.release(at(2), (A, 1));
        assert_eq!(right.hold(at(3), (B, 1), &LockClaim::New), Held::Taken);
        right.release(at(4), (A, 2));
        assert_eq!(right.hold(at(4), (B, 1), &LockClaim::New), Held::Given);
        right.release(at(5), (A, 2));
        assert_eq!(right.hold(at(6), (A, 3), &LockClaim::New), Held::Taken, "it is another's by now");
    }

    #[test]
    fn a_new_primary_takes_the_word_of_whoever_has_it() {
        let mut right = LockRight::default();
        right.begin(at(100), false);
        assert_eq!(right.hold(at(101), (B, 1), &LockClaim::New), Held::Wait);
        assert_eq!(right.hold(at(101), (B, 1), &LockClaim::Expired), Held::Wait);
        assert_eq!(right.hold(at(102), (A, 1), &LockClaim::Held), Held::Given);
        assert_eq!(right.hold(at(103), (B, 1), &LockClaim::New), Held::Taken);
        right.begin(at(200), false);
        assert_eq!(right.hold(at(219), (B, 1), &LockClaim::New), Held::Wait);
        assert_eq!(right.hold(at(220), (B, 1), &LockClaim::New), Held::Given, "nobody said that he has it");
        assert_eq!(right.hold(at(221), (A, 1), &LockClaim::Held), Held::Taken);
    }
}
