//! The sessions that a shard serves: their connections, and which of those they have given up.
//!
//! Always true: once a connection came that names an older one as given up, no request of the older one is begun. The
//! session sends again what it sent there, so its copy there would be done a second time, or after its end (see
//! `docs/design/0011-late-copies.md`). A session counts as gone when it had no connection for [`CLAIM_TIME`] without a
//! break.

use ids::SessionId;
use set_core::CLAIM_TIME;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// One connection of a session, as those know it who serve what came on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<State>);

#[derive(Debug, Default)]
struct State {
    number: u64,
    given_up: AtomicBool,
    end: Notify,
}

impl Connection {
    fn new(number: u64) -> Connection {
        Connection(Arc::new(State { number, ..State::default() }))
    }

    fn give_up(&self) {
        self.0.given_up.store(true, Ordering::Release);
        self.0.end.notify_one();
    }

    /// Whether its session has given it up: nothing that came on it may be begun.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.given_up.load(Ordering::Acquire)
    }

    /// Returns when its session has given it up.
    pub(super) async fn given_up(&self) {
        self.0.end.notified().await;
    }
}

#[derive(Debug, Default)]
struct Session {
    /// The connections below this number are given up, also those that are still to come.
    oldest: u64,
    open: BTreeMap<u64, Connection>,
    /// Since when it has no connection.
    away_since: Option<Duration>,
}

/// All sessions of a shard.
#[derive(Debug, Default)]
pub(super) struct Sessions(HashMap<SessionId, Session>);

impl Sessions {
    /// A connection comes, and ends those below `oldest`. `None`: a newer one has ended it already.
    pub(super) fn connect(&mut self, session: SessionId, number: u64, oldest: u64) -> Option<Connection> {
        if number < oldest {
            return None;
        }
        let s = self.0.entry(session).or_default();
        s.oldest = s.oldest.max(oldest);
        let stay = s.open.split_off(&s.oldest);
        std::mem::replace(&mut s.open, stay).into_values().for_each(|old| old.give_up());
        if number < s.oldest || s.open.contains_key(&number) {
            return None;
        }
        let connection = Connection::new(number);
        s.open.insert(number, connection.clone());
        s.away_since = None;
        Some(connection)
    }

    /// A connection closed; whether it was the session's last one.
    pub(super) fn disconnect(&mut self, now: Duration, session: SessionId, connection: &Connection) -> bool {
        let Some(s) = self.0.get_mut(&session) else { return false };
        s.open.remove(&connection.0.number);
        if s.open.is_empty() {
            s.away_since.get_or_insert(now);
        }
        s.open.is_empty()
    }

    /// Forgets the session if it was away for [`CLAIM_TIME`]; whether it was.
    pub(super) fn end(&mut self, now: Duration, session: SessionId) -> bool {
        let gone = |s: &Session| s.away_since.is_some_and(|since| now >= since + CLAIM_TIME);
        let ended = self.0.get(&session).is_some_and(gone);
        if ended {
            self.0.remove(&session);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(7);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_newer_connection_ends_those_that_were_given_up() {
        let mut all = Sessions::default();
        let first = all.connect(SESSION, 1, 0).unwrap();
        let second = all.connect(SESSION, 2, 0).unwrap();
        assert!(!first.is_given_up() && !second.is_given_up(), "several at a time");
        let other = all.connect(SessionId(8), 1, 0).unwrap();
        let fourth = all.connect(SESSION, 4, 2).unwrap();
        assert!(first.is_given_up());
        assert!(!second.is_given_up() && !fourth.is_given_up() && !other.is_given_up());
        all.connect(SESSION, 5, 5).unwrap();
        assert!(second.is_given_up() && fourth.is_given_up());
        assert!(all.connect(SESSION, 3, 0).is_none(), "its greeting was overtaken");
        assert!(all.connect(SESSION, 5, 0).is_none(), "a number is given once");
        assert!(all.connect(SessionId(9), 1, 2).is_none() && !all.0.contains_key(&SessionId(9)));
    }

    #[test]
    fn a_session_is_gone_after_it_was_away_without_a_break() {
        let mut all = Sessions::default();
        let first = all.connect(SESSION, 1, 0).unwrap();
        assert!(all.disconnect(at(0), SESSION, &first));
        let second = all.connect(SESSION, 2, 0).unwrap();
        let third = all.connect(SESSION, 3, 0).unwrap();
        assert!(!all.disconnect(at(55), SESSION, &second));
        assert!(all.disconnect(at(59), SESSION, &third));
        assert!(!all.end(at(60), SESSION), "it was there a second ago");
        assert!(!all.end(at(59) + CLAIM_TIME - at(1), SESSION));
        assert!(all.end(at(59) + CLAIM_TIME, SESSION));
        assert!(!all.end(at(200), SESSION), "once");
    }
}
