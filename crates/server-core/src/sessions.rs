//! The sessions that a server serves: their connections, and which of those they have given up.
//!
//! Always true: once a connection came that names an older one as given up, no request of the older one is begun, whether
//! it is open still or has closed. The session sends again what it sent there, so its copy there would be done a second
//! time, or after its end (see `docs/design/0011-late-copies.md`). A session counts as gone when it had no connection for
//! [`CLAIM_TIME`] without a break. A session belongs to the client that began it: nobody else can take it over by its
//! number.

use ids::SessionId;
use set_core::CLAIM_TIME;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
struct Session<C> {
    /// The client that it belongs to, if it showed a key.
    owner: Option<String>,
    /// The connections below this number are given up, also those that are still to come.
    oldest: u64,
    open: BTreeMap<u64, C>,
    /// Since when it has no connection.
    away_since: Option<Duration>,
}

/// What comes of a new connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Connect<C> {
    /// It may be served; else a newer one has ended it already.
    pub accepted: bool,
    /// Those that their session has given up with it: nothing that lies there may be begun from now on.
    pub given_up: Vec<C>,
}

/// What comes of a connection's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Disconnect<C> {
    /// The connection, if nobody was told that it is given up: nothing that came on it may be begun from now on. A newer one
    /// does not name it any more among those that it ends.
    pub given_up: Option<C>,
    /// If it was the session's last one: when [`Sessions::end`] is to be asked.
    pub look_at: Option<Duration>,
}

/// All sessions of a thread that serves sets. `C` stands for a connection.
#[derive(Debug)]
pub struct Sessions<C>(BTreeMap<SessionId, Session<C>>);

impl<C> Default for Sessions<C> {
    fn default() -> Sessions<C> {
        Sessions(BTreeMap::new())
    }
}

impl<C> Sessions<C> {
    /// A connection comes, and ends those below `oldest`.
    pub fn connect(
        &mut self,
        (session, owner): (SessionId, Option<String>),
        (number, oldest): (u64, u64),
        connection: C,
    ) -> Connect<C> {
        if number < oldest {
            return Connect { accepted: false, given_up: Vec::new() };
        }
        let s = self.0.entry(session).or_insert_with(|| Session {
            owner: owner.clone(),
            oldest: 0,
            open: BTreeMap::new(),
            away_since: None,
        });
        if s.owner != owner {
            return Connect { accepted: false, given_up: Vec::new() };
        }
        s.oldest = s.oldest.max(oldest);
        let stay = s.open.split_off(&s.oldest);
        let given_up = std::mem::replace(&mut s.open, stay).into_values().collect();
        let accepted = number >= s.oldest && !s.open.contains_key(&number);
        if accepted {
            s.open.insert(number, connection);
            s.away_since = None;
        }
        Connect { accepted, given_up }
    }

    /// An accepted connection closed.
    #[must_use]
    pub fn disconnect(&mut self, now: Duration, session: SessionId, number: u64) -> Disconnect<C> {
        let Some(s) = self.0.get_mut(&session) else { return Disconnect { given_up: None, look_at: None } };
        let given_up = s.open.remove(&number);
        // It may come back: only a session that stays away loses its open files.
        let look_at = s.open.is_empty().then(|| *s.away_since.get_or_insert(now) + CLAIM_TIME);
        Disconnect { given_up, look_at }
    }

    /// Forgets the session if it was away for [`CLAIM_TIME`]; whether it was.
    pub fn end(&mut self, now: Duration, session: SessionId) -> bool {
        let gone = |s: &Session<C>| s.away_since.is_some_and(|since| now >= since + CLAIM_TIME);
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

    fn connected(given_up: &[&'static str]) -> Connect<&'static str> {
        Connect { accepted: true, given_up: given_up.to_vec() }
    }

    #[test]
    fn a_newer_connection_ends_those_that_were_given_up() {
        let mut all = Sessions::default();
        assert_eq!(all.connect((SESSION, None), (1, 0), "one"), connected(&[]));
        assert_eq!(all.connect((SESSION, None), (2, 0), "two"), connected(&[]), "several at a time");
        assert_eq!(all.connect((SessionId(8), None), (1, 0), "other"), connected(&[]));
        assert_eq!(all.connect((SESSION, None), (4, 2), "four"), connected(&["one"]));
        assert_eq!(all.connect((SESSION, None), (5, 5), "five"), connected(&["two", "four"]));
        let refused = Connect { accepted: false, given_up: vec![] };
        assert_eq!(all.connect((SESSION, None), (3, 0), "three"), refused, "its handshake was overtaken");
        assert_eq!(all.connect((SESSION, None), (5, 0), "again"), refused, "a number is given once");
        assert_eq!(all.connect((SessionId(9), None), (1, 2), "wrong"), refused);
        assert!(!all.0.contains_key(&SessionId(9)));
    }

    #[test]
    fn a_session_is_its_clients_alone() {
        let mut all = Sessions::default();
        let web = || Some("web".to_owned());
        assert_eq!(all.connect((SESSION, web()), (1, 0), "web"), connected(&[]));
        let refused = Connect { accepted: false, given_up: vec![] };
        for other in [None, Some("other".to_owned())] {
            assert_eq!(all.connect((SESSION, other), (5, 5), "thief"), refused);
        }
        assert_eq!(all.connect((SESSION, web()), (2, 2), "again"), connected(&["web"]));
    }

    #[test]
    fn a_connection_that_comes_too_late_still_ends_others() {
        let mut all = Sessions::default();
        all.connect((SESSION, None), (4, 0), "four");
        all.connect((SESSION, None), (6, 5), "six");
        all.connect((SESSION, None), (7, 5), "seven");
        assert_eq!(
            all.connect((SESSION, None), (6, 6), "twice"),
            Connect { accepted: false, given_up: vec![] }
        );
        let late = all.connect((SESSION, None), (7, 7), "twice");
        assert_eq!(late, Connect { accepted: false, given_up: vec!["six"] });
    }

    #[test]
    fn a_session_is_gone_after_it_was_away_without_a_break() {
        let mut all = Sessions::default();
        all.connect((SESSION, None), (1, 0), ());
        assert_eq!(all.disconnect(at(0), SESSION, 1).look_at, Some(CLAIM_TIME));
        all.connect((SESSION, None), (2, 0), ());
        all.connect((SESSION, None), (3, 0), ());
        assert_eq!(all.disconnect(at(55), SESSION, 2).look_at, None);
        assert_eq!(all.disconnect(at(59), SESSION, 3).look_at, Some(at(59) + CLAIM_TIME));
        assert!(!all.end(at(60), SESSION), "it was there a second ago");
        assert!(!all.end(at(59) + CLAIM_TIME - at(1), SESSION));
        assert!(all.end(at(59) + CLAIM_TIME, SESSION));
        assert!(!all.end(at(200), SESSION), "once");
        let forgotten = Disconnect { given_up: None, look_at: None };
        assert_eq!(all.disconnect(at(201), SESSION, 3), forgotten, "nothing is known of it any more");
    }

    /// A request of it may wait for the end of a grant: its copy on the next connection must not be answered before that.
    #[test]
    fn a_connection_that_closed_before_the_next_one_came_is_given_up() {
        let mut all = Sessions::default();
        all.connect((SESSION, None), (1, 0), "one");
        all.connect((SESSION, None), (2, 0), "two");
        let closed = |given_up, look_at| Disconnect { given_up, look_at };
        assert_eq!(all.disconnect(at(0), SESSION, 1), closed(Some("one"), None));
        assert_eq!(all.connect((SESSION, None), (3, 3), "three"), connected(&["two"]), "one is closed");
        assert_eq!(all.disconnect(at(0), SESSION, 2), closed(None, None), "that was told");
        assert_eq!(all.disconnect(at(0), SESSION, 3), closed(Some("three"), Some(CLAIM_TIME)));
    }
}
