//! Grants: which sessions are active in a set, and which of them may cache answers.
//!
//! As long as one session alone is active, each answer grants it [`GRANT`]: it may keep entries and attributes for that long
//! from when it asked. When a second session comes, no more is granted, and its first change waits until what was granted
//! has run out. A new primary does not know what its predecessor granted: its first changes wait that long too.
//! This is a whole-set form of leases (Gray and Cheriton, 1989); finer ones, with recall, are to follow.

use core::time::Duration;
use ids::SessionId;

/// How long an only session may keep what it was told.
pub(crate) const GRANT: Duration = Duration::from_millis(250);
/// A session that asked nothing for this long counts as idle.
const IDLE: Duration = Duration::from_secs(5);

/// The sessions of a set, as far as it has to be known whether one is alone: nothing here grows with their number.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// Who asked last, and when.
    latest: Option<(SessionId, Duration)>,
    /// When anybody else asked last.
    others: Option<Duration>,
    granted: Option<(SessionId, Duration)>,
}

impl Grants {
    /// A session asks something. For how long it may keep the answer, in milliseconds.
    pub(crate) fn arrive(&mut self, now: Duration, session: SessionId) -> u16 {
        if let Some((latest, asked)) = self.latest
            && latest != session
        {
            self.others = Some(asked);
        }
        self.latest = Some((session, now));
        let alone = self.others.is_none_or(|asked| now >= asked + IDLE);
        let taken = self.granted.is_some_and(|(s, until)| s != session && now < until);
        if !alone || taken {
            return 0;
        }
        self.granted = Some((session, now + GRANT));
        u16::try_from(GRANT.as_millis()).unwrap_or(0)
    }

    /// Whether another session is active: that this one asks something may end its grants.
    pub(crate) fn are_anothers(&self, now: Duration, session: SessionId) -> bool {
        self.latest.is_some_and(|(latest, asked)| latest != session && now < asked + IDLE)
    }

    /// Until when somebody may keep what was granted so far.
    pub(crate) fn outstanding(&self) -> Duration {
        self.granted.map_or(Duration::ZERO, |(_, until)| until)
    }

    /// A session wants to change something: until when it has to wait.
    pub(crate) fn wait(&self, now: Duration, session: SessionId) -> Option<Duration> {
        self.granted.filter(|(s, until)| *s != session && now < *until).map(|(_, until)| until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_session_waits_once_and_ends_the_grants() {
        let (a, b) = (SessionId(1), SessionId(2));
        let at = Duration::from_millis;
        let mut g = Grants::default();
        assert_eq!(g.arrive(at(1000), a), 250);
        assert_eq!(g.arrive(at(1100), b), 0);
        assert_eq!(g.wait(at(1100), b), Some(at(1250)));
        assert_eq!(g.wait(at(1100), a), None);
        assert_eq!(g.arrive(at(1200), a), 0);
        assert_eq!(g.wait(at(1250), b), None);
        // The other one falls silent.
        assert_eq!(g.arrive(at(6200), a), 250);
    }

    #[test]
    fn whoever_asked_last_among_many_is_not_alone_before_the_others_are_idle() {
        let at = Duration::from_millis;
        let mut g = Grants::default();
        for (ms, session) in [(0, 1), (10, 2), (20, 3), (30, 3), (40, 2), (50, 2)] {
            g.arrive(at(ms), SessionId(session));
        }
        assert_eq!(g.arrive(at(5029), SessionId(2)), 0, "the third asked 5 s ago, less one millisecond");
        assert_eq!(g.arrive(at(5030), SessionId(2)), 250);
        assert_eq!(g.arrive(at(5100), SessionId(1)), 0, "the second is active");
    }
}
