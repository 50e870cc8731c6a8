//! When a server that does not answer is dialled again: all sets of a shard share the dials, so that they do not become more
//! with the sets.

use crate::limits::CONNECT_WAIT;
use std::time::Duration;

/// The pause after the first failure; it doubles with each.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_millis(400);

/// What is known of dialling one server.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Redial {
    /// The server does not answer: not before then, and by one set.
    next: Option<Duration>,
    pause: Duration,
}

impl Redial {
    /// Whether somebody may dial now, who then says how it ended.
    ///
    /// # Errors
    /// When to ask again.
    pub(super) fn may_dial(&mut self, now: Duration) -> Result<(), Duration> {
        match self.next {
            None => Ok(()),
            Some(at) if now < at => Err(at),
            Some(_) => {
                // Whoever dials may be stopped in the midst of it.
                self.next = Some(now + CONNECT_WAIT + LONGEST);
                Ok(())
            }
        }
    }

    /// Nobody answered.
    pub(super) fn failed(&mut self, now: Duration) {
        // Many may have dialled before the first of them knew.
        let known = self.next.is_some_and(|at| at <= now + LONGEST && now < at);
        if !known {
            self.pause = (self.pause * 2).clamp(SHORTEST, LONGEST);
            self.next = Some(now + self.pause);
        }
    }

    /// The server answered.
    pub(super) fn answered(&mut self) {
        *self = Redial::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_hundred_sets_dial_a_dead_server_as_often_as_one() {
        let mut redial = Redial::default();
        let mut dials = 0;
        for now in (10_000..20_000).step_by(5).map(ms) {
            let dialling = (0..100).filter(|_| redial.may_dial(now).is_ok()).count();
            (0..dialling).for_each(|_| redial.failed(now + ms(1)));
            dials += dialling;
            assert!(dialling <= 1 || now == ms(10_000), "{dialling} at {now:?}");
        }
        assert!((100 + 24..100 + 30).contains(&dials), "{dials} dials in ten seconds");
        redial.answered();
        assert!(redial.may_dial(ms(20_000)).is_ok() && redial.may_dial(ms(20_000)).is_ok());
    }

    #[test]
    fn one_who_stops_in_the_midst_of_a_dial_holds_nobody_up_for_long() {
        let mut redial = Redial::default();
        redial.failed(ms(1000));
        assert_eq!(redial.may_dial(ms(1050)), Err(ms(1100)));
        assert!(redial.may_dial(ms(1100)).is_ok());
        let again = redial.may_dial(ms(1101)).unwrap_err();
        assert!(again > ms(1100) + CONNECT_WAIT && redial.may_dial(again).is_ok());
    }
}
