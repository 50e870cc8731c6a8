//! The keys that the pool lets in, and the tokens with which servers join (`docs/design/0021-trust.md`).
//!
//! Always true: numbers are never reused, and a key that does not stand here is not let in. One that has expired stands here
//! for some time and is in nobody's way. Secrets are not here.

use std::collections::{BTreeMap, BTreeSet};

use ids::{Epoch, Fid, KeyId, KeyUser, Lsn, ServerId, SetId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{AuthorityChange, KeyRefusal, NewServer, Outcome, Refusal, State, Volume, limits};

/// How the names begin of keys that servers make for root of their machines.
pub const LOCAL_NAME: &str = "root.server";

/// Whether only servers give keys such names.
pub fn is_local_name(name: &str) -> bool {
    name.starts_with(LOCAL_NAME)
}

/// Who has a key, and what it is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyHolder {
    /// A server of the pool.
    Server(ServerId),
    /// Who mounts a volume.
    Client(ClientKey),
    /// An administrator.
    Admin {
        /// What it is called.
        name: String,
    },
}

/// What a client's key is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientKey {
    /// What it is called.
    pub name: String,
    /// The volume that it mounts.
    pub volume: VolumeId,
    /// It changes nothing.
    #[serde(default)]
    pub read_only: bool,
    /// Each of its requests is taken as this user's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub squash: Option<Squash>,
    /// Only these users ask with it, and servers check what each of them may; empty: the client is trusted with all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<KeyUser>,
    /// It reaches only what lies beneath this directory; `None`: all of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdir: Option<KeySubdir>,
}

/// A directory that a key is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeySubdir {
    /// The directory, whatever it is called by now: the parts of its fid.
    pub set: SetId,
    /// Likewise.
    pub epoch: Epoch,
    /// Likewise.
    pub lsn: Lsn,
    /// The set that answers for it.
    pub home: SetId,
    /// Where it was when the key was made, for people.
    pub path: String,
}

impl KeySubdir {
    /// The directory.
    pub fn fid(&self) -> Fid {
        Fid { set: self.set, epoch: self.epoch, lsn: self.lsn }
    }

    /// Checks it: nothing lies beneath a folder of names, and beneath the volume's own directory lies all.
    fn check(&self, volume: &Volume) -> Result<(), Refusal> {
        let of_volume = volume.sets.contains(&self.home);
        let fine = of_volume
            && !self.fid().is_root()
            && !self.fid().is_names()
            && self.path.len() <= limits::KEY_PATH;
        if fine { Ok(()) } else { Err(KeyRefusal::Subdir { path: self.path.clone() }.into()) }
    }
}

/// Whether a user can be called so. What a name means is known to the machine where he was looked up.
fn is_user_name(name: &str) -> bool {
    (1..=limits::USER_NAME).contains(&name.len()) && !name.contains(char::is_control)
}

/// The same key, whose users have been looked up again: their groups may be others, and nothing else.
fn looked_up_again(key: &ClientKey, users: &[KeyUser]) -> Result<ClientKey, Refusal> {
    let uids = |users: &[KeyUser]| users.iter().map(|user| user.uid).collect::<Vec<_>>();
    if uids(users) != uids(&key.users) {
        return Err(KeyRefusal::OtherUsers.into());
    }
    let key = ClientKey { users: users.to_vec(), ..key.clone() };
    check_users(&key)?;
    Ok(key)
}

/// Checks a key's users: none is root, none is there twice, and there are not too many.
fn check_users(key: &ClientKey) -> Result<(), Refusal> {
    if key.squash.is_some() && !key.users.is_empty() {
        return Err(KeyRefusal::SquashOfUsers.into());
    }
    let (mut seen, mut groups) = (BTreeSet::new(), 0);
    for user in &key.users {
        let known_groups = user.gid != u32::MAX && !user.groups.contains(&u32::MAX);
        let fine_name = user.name.as_deref().is_none_or(is_user_name);
        if !(1..u32::MAX).contains(&user.uid) || !known_groups || !fine_name || !seen.insert(user.uid) {
            return Err(KeyRefusal::User { uid: user.uid }.into());
        }
        groups += user.groups.len();
    }
    if key.users.len() > limits::KEY_USERS || groups > limits::KEY_GROUPS {
        let (users, groups) = (limits::KEY_USERS, limits::KEY_GROUPS);
        return Err(KeyRefusal::ManyUsers { users, groups }.into());
    }
    Ok(())
}

/// The user as whom requests are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Squash {
    /// Its number, not 0.
    pub uid: u32,
    /// Its only group.
    pub gid: u32,
}

impl Squash {
    /// Checks it: permissions do not bind root, and the kernel takes the highest number as none.
    fn check(self) -> Result<(), Refusal> {
        let is_user = (1..u32::MAX).contains(&self.uid) && self.gid != u32::MAX;
        if is_user { Ok(()) } else { Err(KeyRefusal::Squash { uid: self.uid, gid: self.gid }.into()) }
    }
}

/// A key that is let in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Key {
    /// Whose it is.
    pub holder: KeyHolder,
    /// Seconds since 1970 by the clock of whoever made it: keys that had expired then leave their names to it.
    #[serde(default)]
    pub created: u64,
    /// Until when, in seconds since 1970; `None`: it does not expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

/// A token to join, or what became of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Token {
    /// SHA-256 of its secret, in hex digits.
    pub hash: String,
    /// Until when it is good, in seconds since 1970.
    pub until: u64,
    /// Whoever joins takes this server's place and bricks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<ServerId>,
    /// Who joined with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
}

/// A server that joined with a token. If the answer was lost it may ask again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Spent {
    /// Its public key, in hex digits.
    pub public: String,
    /// Its number.
    pub server: ServerId,
    /// Its key's number.
    pub key: KeyId,
}

/// A server that wants to join with a token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Joining {
    /// The token's number.
    pub token: KeyId,
    /// SHA-256 of the secret that it said, in hex digits.
    pub hash: String,
    /// Its public key, in hex digits.
    pub public: String,
    /// The server.
    pub server: NewServer,
    /// The time by the clock of the server that it asked, in seconds since 1970.
    pub now: u64,
}

/// All keys and tokens of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Keys {
    /// Connections without a key are refused.
    #[serde(default)]
    pub secured: bool,
    /// The number that the next key or token gets.
    pub next: KeyId,
    /// Those that are let in.
    #[serde(default)]
    pub keys: BTreeMap<KeyId, Key>,
    /// Tokens, spent or not, until they expire.
    #[serde(default)]
    pub tokens: BTreeMap<KeyId, Token>,
    /// The fingerprint of the authority that servers are given and that signs nothing yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<String>,
    /// Another authority takes the place of the pool's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<AuthorityChange>,
}

impl Default for Keys {
    /// The authority's own certificate has number 1.
    fn default() -> Keys {
        Keys {
            secured: false,
            next: KeyId(2),
            keys: BTreeMap::new(),
            tokens: BTreeMap::new(),
            announced: None,
            change: None,
        }
    }
}

impl Keys {
    /// Whether there never was a key.
    pub(crate) fn is_unused(&self) -> bool {
        *self == Keys::default()
    }

    /// The key of that number, if it is let in at `now`, seconds since 1970.
    pub fn get(&self, id: KeyId, now: u64) -> Option<&Key> {
        self.keys.get(&id).filter(|key| key.until.is_none_or(|until| now <= until))
    }

    fn take_number(&mut self) -> Result<KeyId, Refusal> {
        let number = self.next;
        self.next = KeyId(number.0.checked_add(1).ok_or(Refusal::OutOfIds)?);
        Ok(number)
    }

    /// Keys that expired long before `now`, seconds since 1970, are not there any more.
    fn forget_expired(&mut self, now: u64) {
        let is_old = |until: u64| until.saturating_add(limits::EXPIRED_KEPT) < now;
        self.keys.retain(|_, key| !key.until.is_some_and(is_old));
    }

    /// A server is not in the pool any more.
    pub(crate) fn forget_server(&mut self, server: ServerId) {
        self.keys.retain(|_, key| key.holder != KeyHolder::Server(server));
        self.tokens.retain(|_, t| t.spent.as_ref().is_none_or(|s| s.server != server));
    }

    /// A volume is not there any more.
    pub(crate) fn forget_volume(&mut self, volume: VolumeId) {
        self.keys.retain(|_, key| !matches!(&key.holder, KeyHolder::Client(c) if c.volume == volume));
    }

    /// Numbers that servers may have given which were fenced off are left out.
    pub(crate) fn skip_numbers(&mut self) {
        self.next = KeyId(self.next.0.saturating_add(limits::RECOVERY_IDS.into()));
    }

    /// Asserts what must hold between any two commands.
    pub(crate) fn check(&self, state: &State) {
        for (id, key) in &self.keys {
            assert!(*id < self.next, "numbers of keys are never reused");
            if let KeyHolder::Server(server) = key.holder {
                assert!(state.servers.contains_key(&server), "a server's key goes with it");
            }
        }
        assert!(self.tokens.keys().all(|id| *id < self.next), "nor those of tokens");
        assert!(
            self.announced.is_none() || self.change.is_none(),
            "authorities are announced before a change"
        );
    }
}

/// 1 to 64 letters, digits, `.`, `_` or `-`, the first a letter or digit.
fn check_name(name: &str) -> Result<(), Refusal> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let begins_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let fine = begins_well && name.len() <= limits::KEY_NAME && name.bytes().all(plain);
    if fine { Ok(()) } else { Err(KeyRefusal::Name { name: name.to_owned() }.into()) }
}

/// Lower-case hex digits of a hash or a key.
pub(crate) fn check_hex(value: &str) -> Result<(), Refusal> {
    let fine = value.len() == 64 && value.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if fine { Ok(()) } else { Err(KeyRefusal::Hash.into()) }
}

impl State {
    /// What a person calls the key's holder.
    pub fn key_name(&self, key: &Key) -> String {
        match &key.holder {
            KeyHolder::Server(id) => self.servers.get(id).map_or_else(|| id.to_string(), |s| s.host.clone()),
            KeyHolder::Client(client) => client.name.clone(),
            KeyHolder::Admin { name } => name.clone(),
        }
    }

    pub(crate) fn add_key(&mut self, key: &Key) -> Result<Outcome, Refusal> {
        let same = |other: &KeyHolder, name: &str| match other {
            KeyHolder::Client(c) => c.name == name,
            KeyHolder::Admin { name: other } => other == name,
            KeyHolder::Server(_) => false,
        };
        match &key.holder {
            KeyHolder::Server(id) if !self.servers.contains_key(id) => {
                return Err(Refusal::UnknownServer { id: *id });
            }
            KeyHolder::Server(_) => {}
            KeyHolder::Client(ClientKey { name, .. }) | KeyHolder::Admin { name } => {
                check_name(name)?;
                let good = |id: &KeyId| self.keys.get(*id, key.created).is_some();
                if self.keys.keys.iter().any(|(id, k)| same(&k.holder, name) && good(id)) {
                    return Err(KeyRefusal::Exists { name: name.clone() }.into());
                }
            }
        }
        if let KeyHolder::Client(client) = &key.holder {
            let Some(volume) = self.volumes.get(&client.volume) else {
                return Err(Refusal::UnknownVolume { name: client.volume.to_string() });
            };
            client.subdir.as_ref().map_or(Ok(()), |subdir| subdir.check(volume))?;
            client.squash.map_or(Ok(()), Squash::check)?;
            check_users(client)?;
        }
        self.insert_key(key.clone()).map(Outcome::Key)
    }

    fn insert_key(&mut self, key: Key) -> Result<KeyId, Refusal> {
        self.keys.forget_expired(key.created);
        if self.keys.keys.len() >= limits::KEYS {
            return Err(KeyRefusal::TooMany { max: limits::KEYS }.into());
        }
        let number = self.keys.take_number()?;
        self.keys.keys.insert(number, key);
        Ok(number)
    }

    pub(crate) fn revoke_key(&mut self, key: KeyId) -> Result<Outcome, Refusal> {
        let gone = self.keys.keys.remove(&key);
        gone.map(|_| Outcome::Done).ok_or(KeyRefusal::Unknown { key }.into())
    }

    /// Another number for the same holder; the old one ends at `end`. `users`: as they were looked up again, if they were.
    pub(crate) fn rotate_key(
        &mut self,
        old: KeyId,
        (created, end): (u64, u64),
        users: &[KeyUser],
    ) -> Result<Outcome, Refusal> {
        let known = self.keys.get(old, created).ok_or(KeyRefusal::Unknown { key: old })?;
        let holder = match &known.holder {
            holder if users.is_empty() => holder.clone(),
            KeyHolder::Client(client) => KeyHolder::Client(looked_up_again(client, users)?),
            KeyHolder::Server(_) | KeyHolder::Admin { .. } => return Err(KeyRefusal::OtherUsers.into()),
        };
        let number = self.insert_key(Key { holder, created, until: known.until })?;
        if let Some(key) = self.keys.keys.get_mut(&old) {
            key.until = Some(key.until.map_or(end, |until| until.min(end)));
        }
        Ok(Outcome::Key(number))
    }

    /// From now on only keys are let in: these of servers, and no other servers' keys.
    pub(crate) fn secure_pool(&mut self, keys: &BTreeMap<ServerId, KeyId>) -> Result<Outcome, Refusal> {
        if self.keys.secured {
            return Err(KeyRefusal::Secured.into());
        }
        let has = |server: &ServerId| {
            let key = keys.get(server).and_then(|key| self.keys.keys.get(key));
            key.is_some_and(|key| key.holder == KeyHolder::Server(*server))
        };
        if !self.servers.keys().all(has) || keys.len() != self.servers.len() {
            return Err(KeyRefusal::ServersWithout.into());
        }
        let chosen: BTreeSet<KeyId> = keys.values().copied().collect();
        let stays =
            |id: &KeyId, key: &Key| !matches!(key.holder, KeyHolder::Server(_)) || chosen.contains(id);
        self.keys.keys.retain(|id, key| stays(id, key));
        self.keys.secured = true;
        Ok(Outcome::Done)
    }

    pub(crate) fn add_token(&mut self, token: &Token, now: u64) -> Result<Outcome, Refusal> {
        if !self.keys.secured {
            return Err(KeyRefusal::NotSecured.into());
        }
        if self.keys.change.is_some() {
            return Err(KeyRefusal::AuthorityChanges.into());
        }
        check_hex(&token.hash)?;
        if let Some(id) = token.replaces.filter(|id| !self.servers.contains_key(id)) {
            return Err(Refusal::UnknownServer { id });
        }
        let good = self.keys.tokens.values().filter(|t| t.until >= now).count();
        if good >= limits::TOKENS {
            return Err(KeyRefusal::TooMany { max: limits::TOKENS }.into());
        }
        let number = self.keys.take_number()?;
        self.keys.tokens.retain(|_, t| t.until >= now);
        self.keys.tokens.insert(number, Token { spent: None, ..token.clone() });
        Ok(Outcome::Key(number))
    }

    /// Spends a token: the server is in the pool, and has a key.
    pub(crate) fn join_server(&mut self, joining: &Joining) -> Result<Outcome, Refusal> {
        let Joining { token: number, hash, public, server, now } = joining;
        check_hex(public)?;
        let known = self.keys.tokens.get(number).filter(|t| t.hash == *hash && t.until >= *now);
        let token = known.ok_or(KeyRefusal::BadToken)?.clone();
        if let Some(spent) = &token.spent {
            let same = spent.public == *public && self.keys.keys.contains_key(&spent.key);
            let (server, key) = (spent.server, spent.key);
            return if same { Ok(Outcome::Joined { server, key }) } else { Err(KeyRefusal::BadToken.into()) };
        }
        let mut next = self.clone();
        let added = match token.replaces {
            None => next.add_server(server)?,
            Some(old) => next.replace_server(old, server)?,
        };
        let Outcome::Server(server) = added else { return Ok(added) };
        let key = Key { holder: KeyHolder::Server(server), created: *now, until: None };
        let key = next.insert_key(key)?;
        if let Some(token) = next.keys.tokens.get_mut(number) {
            token.spent = Some(Spent { public: public.clone(), server, key });
        }
        *self = next;
        Ok(Outcome::Joined { server, key })
    }
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
