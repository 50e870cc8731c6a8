//! Another authority takes the place of the pool's (`docs/design/0021-trust.md`, "Rotation").
//!
//! Always true: from the first number of a change on each key is signed by the next authority, and a change ends only when
//! no key of the old one is left. Servers take only what is announced, so what all of them have when a change begins is what
//! was announced last: of two administrators at once the later one goes on, and the other is refused.

use ids::KeyId;
use serde::{Deserialize, Serialize};

use crate::keys::check_hex;
use crate::{Key, KeyHolder, KeyRefusal, Outcome, Refusal, State};

/// A change of the pool's authority that is under way: servers believe two.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AuthorityChange {
    /// The fingerprint of the next one, 64 hex digits.
    pub next: String,
    /// Keys with this number and later ones are signed by it, all others by the one before.
    pub first: KeyId,
}

impl State {
    /// Whether the next authority signs the key of that number.
    pub fn is_signed_by_next(&self, key: KeyId) -> bool {
        self.keys.change.as_ref().is_some_and(|change| key >= change.first)
    }

    /// The keys that the old authority has signed, while another one takes its place.
    pub fn keys_of_old_authority(&self) -> impl Iterator<Item = (KeyId, &Key)> {
        let first = self.keys.change.as_ref().map_or(KeyId(0), |change| change.first);
        self.keys.keys.range(..first).map(|(id, key)| (*id, key))
    }

    /// The authority that servers are to believe beside the pool's: the one of the change that is under way, or that was
    /// announced.
    pub fn authority_to_come(&self) -> Option<&str> {
        let of_change = self.keys.change.as_ref().map(|change| &change.next);
        of_change.or(self.keys.announced.as_ref()).map(String::as_str)
    }

    /// Servers get this one now. One that was announced before may have reached some of them only, and was not begun with.
    pub(crate) fn announce_authority(&mut self, next: &str) -> Result<Outcome, Refusal> {
        if !self.keys.secured {
            return Err(KeyRefusal::NotSecured.into());
        }
        check_hex(next)?;
        match &self.keys.change {
            Some(change) if change.next == next => {}
            Some(_) => return Err(KeyRefusal::AuthorityChanges.into()),
            None => self.keys.announced = Some(next.to_owned()),
        }
        Ok(Outcome::Done)
    }

    /// All servers believe the next authority: it signs keys from now on. Tokens name the old one by its fingerprint, and go.
    pub(crate) fn begin_authority(&mut self, next: &str) -> Result<Outcome, Refusal> {
        match &self.keys.change {
            Some(change) if change.next == next => {}
            Some(_) => return Err(KeyRefusal::AuthorityChanges.into()),
            None if self.keys.announced.as_deref() != Some(next) => {
                return Err(KeyRefusal::AnotherAuthority.into());
            }
            None => {
                let change = AuthorityChange { next: next.to_owned(), first: self.keys.next };
                self.keys.announced = None;
                self.keys.change = Some(change);
                self.keys.tokens.clear();
            }
        }
        Ok(Outcome::Done)
    }

    /// No server believes the old authority any more.
    pub(crate) fn end_authority(&mut self, next: &str) -> Result<Outcome, Refusal> {
        match &self.keys.change {
            Some(change) if change.next == next => {}
            Some(_) => return Err(KeyRefusal::AuthorityChanges.into()),
            None => return Err(KeyRefusal::AuthorityStays.into()),
        }
        let has_one = |server| self.keys.keys.values().any(|key| key.holder == KeyHolder::Server(server));
        if self.keys_of_old_authority().next().is_some() || !self.servers.keys().all(|id| has_one(*id)) {
            return Err(KeyRefusal::OldKeys.into());
        }
        self.keys.change = None;
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;
    use ids::ServerId;

    fn key(holder: KeyHolder) -> Command {
        Command::AddKey(Key { holder, created: 1, until: None })
    }

    fn number(outcome: Result<Outcome, Refusal>) -> KeyId {
        let Ok(Outcome::Key(key)) = outcome else { panic!("{outcome:?}") };
        key
    }

    #[test]
    fn an_authority_is_changed_when_no_key_of_the_old_one_is_left() {
        let mut state = crate::testing::pool(1);
        let (a, b) = ("a".repeat(64), "b".repeat(64));
        let announce = |next: &str| Command::AnnounceAuthority { next: next.to_owned() };
        let begin = |next: &str| Command::BeginAuthority { next: next.to_owned() };
        let end = |next: &str| Command::EndAuthority { next: next.to_owned() };
        assert_eq!(state.apply(&announce(&a)), Err(KeyRefusal::NotSecured.into()));
        let server = || key(KeyHolder::Server(ServerId(1)));
        let admin = |name: &str| key(KeyHolder::Admin { name: name.to_owned() });
        let old = number(state.apply(&server()));
        state.apply(&Command::SecurePool { keys: [(ServerId(1), old)].into() }).unwrap();
        let ann = number(state.apply(&admin("ann")));
        let token = crate::Token { hash: "c".repeat(64), until: 60, replaces: None, spent: None };
        let invite = Command::AddToken { token, now: 50 };
        state.apply(&invite).unwrap();
        assert_eq!(state.apply(&end(&a)), Err(KeyRefusal::AuthorityStays.into()));
        assert_eq!(state.apply(&announce("x")), Err(KeyRefusal::Hash.into()));
        assert!(!state.is_signed_by_next(state.keys.next));

        assert_eq!(state.apply(&begin(&a)), Err(KeyRefusal::AnotherAuthority.into()), "not announced");
        state.apply(&announce(&b)).unwrap();
        assert_eq!(state.authority_to_come(), Some(&*b));
        state.apply(&announce(&a)).unwrap();
        assert_eq!(
            state.apply(&begin(&b)),
            Err(KeyRefusal::AnotherAuthority.into()),
            "the later one goes on"
        );
        assert!(state.keys.change.is_none() && !state.keys.tokens.is_empty(), "nothing has begun");
        assert_eq!(state.authority_to_come(), Some(&*a));
        state.apply(&begin(&a)).unwrap();
        assert_eq!(state.apply(&begin(&a)), Ok(Outcome::Done), "the same again");
        assert_eq!(state.apply(&announce(&a)), Ok(Outcome::Done), "the same again");
        assert_eq!(state.apply(&announce(&b)), Err(KeyRefusal::AuthorityChanges.into()));
        assert_eq!((state.authority_to_come(), &state.keys.announced), (Some(&*a), &None));
        assert_eq!(state.apply(&begin(&b)), Err(KeyRefusal::AuthorityChanges.into()));
        assert!(state.keys.tokens.is_empty());
        assert_eq!(state.apply(&invite), Err(KeyRefusal::AuthorityChanges.into()));
        let left: Vec<KeyId> = state.keys_of_old_authority().map(|(id, _)| id).collect();
        assert_eq!(left, [old, ann]);
        let bob = number(state.apply(&admin("bob")));
        assert!(state.is_signed_by_next(bob) && !state.is_signed_by_next(ann));

        state.apply(&Command::RevokeKey { key: ann }).unwrap();
        assert_eq!(state.apply(&end(&a)), Err(KeyRefusal::OldKeys.into()), "the server's own");
        state.apply(&Command::RevokeKey { key: old }).unwrap();
        assert_eq!(state.apply(&end(&a)), Err(KeyRefusal::OldKeys.into()), "the server has none");
        state.apply(&server()).unwrap();
        assert_eq!(state.apply(&end(&b)), Err(KeyRefusal::AuthorityChanges.into()));
        state.apply(&end(&a)).unwrap();
        assert_eq!((&state.keys.change, state.authority_to_come()), (&None, None));
        assert_eq!(state.apply(&begin(&a)), Err(KeyRefusal::AnotherAuthority.into()), "it is over");
        state.apply(&invite).unwrap();
        assert_eq!(state.keys_of_old_authority().count(), 0);
    }
}
