//! Who is signed in to the console. Bounded, and over when nobody uses it.
//!
//! A session is known by two secrets: one in a cookie, which the browser sends by itself, and one that only the page
//! knows, so that no other page can ask in its name.

use crate::shared::lock;
use crate::speaker::Speaker;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

/// Sessions at a time; the one that was not used for longest ends for one more.
const MOST: usize = 64;
/// A session ends when nobody has used it for so long.
pub(super) const IDLE: Duration = Duration::from_secs(30 * 60);
/// A session ends after so long, used or not.
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);

#[derive(Debug)]
struct Session {
    who: Speaker,
    token: String,
    begun: Duration,
    used: Duration,
}

/// The secrets of a session, in hex digits.
#[derive(Clone, Debug)]
pub(super) struct Secrets {
    /// The cookie's value.
    pub(super) cookie: String,
    /// What the page says with each request.
    pub(super) token: String,
}

/// All that are signed in.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Session>>);

fn secret() -> String {
    trust::hex(&rand::random::<[u8; 32]>())
}

impl Sessions {
    /// Somebody signs in.
    pub(super) fn begin(&self, now: Duration, who: Speaker) -> Secrets {
        let mut all = lock(&self.0);
        all.retain(|_, session| session.lasts(now));
        if all.len() >= MOST {
            let oldest = all.iter().min_by_key(|(_, session)| session.used).map(|(cookie, _)| cookie.clone());
            oldest.and_then(|cookie| all.remove(&cookie));
        }
        let secrets = Secrets { cookie: secret(), token: secret() };
        let session = Session { who, token: secrets.token.clone(), begun: now, used: now };
        all.insert(secrets.cookie.clone(), session);
        secrets
    }

    /// Whose session it is; it is used now if a `person` asks, and not a page that nobody may be looking at.
    pub(super) fn of(&self, now: Duration, secrets: &Secrets, person: bool) -> Option<Speaker> {
        let mut all = lock(&self.0);
        let session = all.get_mut(&secrets.cookie).filter(|session| session.token == secrets.token)?;
        if !session.lasts(now) {
            all.remove(&secrets.cookie);
            return None;
        }
        if person {
            session.used = now;
        }
        Some(session.who.clone())
    }

    /// Somebody signs out, or is not let in any more.
    pub(super) fn end(&self, secrets: &Secrets) {
        lock(&self.0).remove(&secrets.cookie);
    }
}

impl Session {
    fn lasts(&self, now: Duration) -> bool {
        now.saturating_sub(self.used) < IDLE && now.saturating_sub(self.begun) < LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1000);
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_session_needs_both_secrets() {
        let sessions = Sessions::default();
        let (one, two) = (sessions.begin(START, Speaker::Root), sessions.begin(START, Speaker::Anybody));
        assert_eq!(sessions.of(START, &one, true), Some(Speaker::Root));
        assert_eq!(sessions.of(START, &two, true), Some(Speaker::Anybody));
        let mixed = Secrets { cookie: one.cookie.clone(), token: two.token.clone() };
        assert_eq!(sessions.of(START, &mixed, true), None);
        assert_eq!(sessions.of(START, &one, true), Some(Speaker::Root), "a wrong guess ends nothing");
        sessions.end(&one);
        assert_eq!(sessions.of(START, &one, true), None);
        assert_eq!((one.cookie.len(), one.token.len()), (64, 64));
    }

    #[test]
    fn only_a_person_keeps_a_session() {
        let sessions = Sessions::default();
        let one = sessions.begin(START, Speaker::Root);
        assert!(sessions.of(START + MINUTE * 20, &one, true).is_some());
        for minute in 21..50 {
            assert!(sessions.of(START + MINUTE * minute, &one, false).is_some(), "{minute}");
        }
        assert!(sessions.of(START + MINUTE * 50, &one, true).is_none(), "30 minutes after the person");
        assert!(lock(&sessions.0).is_empty());
        let long = sessions.begin(START, Speaker::Root);
        let mut now = START;
        while sessions.of(now, &long, true).is_some() {
            now += MINUTE;
        }
        assert_eq!(now, START + LONGEST);
    }

    #[test]
    fn there_are_not_more_than_some() {
        let sessions = Sessions::default();
        let all: Vec<Secrets> =
            (0..MOST as u64).map(|n| sessions.begin(START + Duration::from_secs(n), Speaker::Root)).collect();
        let now = START + MINUTE * 2;
        sessions.of(now, &all[0], true).unwrap();
        let more = sessions.begin(now, Speaker::Root);
        assert_eq!(lock(&sessions.0).len(), MOST);
        assert!(sessions.of(now, &all[1], true).is_none(), "it was not used for longest");
        assert!(sessions.of(now, &all[0], true).is_some() && sessions.of(now, &more, true).is_some());
    }
}
