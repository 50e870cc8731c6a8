//! Keys and tokens: requests and answers.

use ids::{KeyId, KeyUser};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Make the pool's authority, give each server a key, and let nobody in without one from then on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolSecure {}

/// Make a token with which one server joins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GetPoolToken {
    /// For how many seconds it is good.
    pub valid: u64,
    /// Whoever joins takes the place and the bricks of this server.
    #[serde(default)]
    pub replace: Option<String>,
}

/// Make an administrator's key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolKey {
    /// What it is to be called.
    pub name: String,
}

/// Make a client's key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientAdd {
    /// What it is to be called.
    pub name: String,
    /// The volume that it is for.
    pub volume: String,
    /// It changes nothing.
    #[serde(default)]
    pub read_only: bool,
    /// Each of its requests is taken as this user's.
    #[serde(default)]
    pub squash: Option<Squash>,
    /// Only these users ask with it, and servers check what each of them may; empty: all do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<KeyUser>,
    /// It reaches only what lies beneath the directory at this path; `None`: all of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdir: Option<String>,
    /// After so many seconds it is let in no more.
    #[serde(default)]
    pub expires: Option<u64>,
}

/// A user with one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Squash {
    /// The user's number.
    pub uid: u32,
    /// The group's number.
    pub gid: u32,
}

impl fmt::Display for Squash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

/// Which keys are let in?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClientList {}

/// Let a key in no more, and end its connections.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientRevoke {
    /// What it is called.
    pub name: String,
}

/// Make another key with the same limits; the old one ends some time later.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClientRotate {
    /// What it is called.
    pub name: String,
    /// After how many seconds the old one ends.
    pub after: u64,
    /// The users of the new one, the same whose groups were looked up again; empty: they and their groups are the old one's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<KeyUser>,
}

/// Give servers other keys in place of theirs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolRotateKey {
    /// Only this one.
    #[serde(default)]
    pub server: Option<String>,
}

/// Have another authority take the place of the pool's, or end that.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolRotateAuthority {
    /// The old one is not believed any more.
    #[serde(default)]
    pub finish: bool,
    /// Keys that it has signed end.
    #[serde(default)]
    pub force: bool,
}

/// Give root of this machine a key; on the local socket only.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GetLocalKey {
    /// The volume that it is for; `None`: an administrator's.
    #[serde(default)]
    pub volume: Option<String>,
}

/// A key for root of the machine of a server.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalKey {
    /// The key file: a secret. `None`: the pool has no keys.
    #[serde(default)]
    pub file: Option<String>,
}

impl std::fmt::Debug for LocalKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalKey({})", if self.file.is_some() { "..." } else { "none" })
    }
}

/// The pool lets nobody in without a key from now on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PoolSecured {
    /// What the pool's authority is known by.
    pub fingerprint: String,
    /// How many servers have got a key: none if the pool was secured already.
    pub servers: u32,
}

/// A token with which one server joins. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolToken {
    /// The token: a secret.
    pub token: String,
    /// Until when it is good, in seconds since 1970.
    pub until: u64,
    /// Where the server that made it listens: what to join.
    pub address: String,
}

/// A key was made. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMade {
    /// What it is called.
    pub name: String,
    /// Its number.
    pub key: KeyId,
    /// The key file: a secret.
    pub file: String,
    /// Until when it is good, in seconds since 1970; `None`: for ever.
    #[serde(default)]
    pub until: Option<u64>,
}

impl fmt::Debug for PoolToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolToken(of {}, until {})", self.address, self.until)
    }
}

impl fmt::Debug for KeyMade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyMade({} {:?}, until {:?})", self.key, self.name, self.until)
    }
}

/// A server has another key.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RotatedKey {
    /// The server.
    pub host: String,
    /// The number of its new key.
    pub key: KeyId,
}

/// Servers have other keys; their old ones are not let in any more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeysRotated {
    /// Which, in the order in which they got them.
    pub servers: Vec<RotatedKey>,
}

/// Another authority takes the place of the pool's, or has taken it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuthorityRotated {
    /// What it is known by.
    pub fingerprint: String,
    /// The keys of clients and administrators that the old one has signed, by their names: they were ended, or are to be made
    /// anew before it ends.
    #[serde(default)]
    pub old_keys: Vec<String>,
    /// The keys of clients and administrators that were made while there were two: their files still tell their holders to
    /// believe the old one, too. Empty before it is forgotten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub believe_both: Vec<String>,
    /// It is the only one.
    #[serde(default)]
    pub finished: bool,
}

/// Keys are not let in any more.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeysRevoked {
    /// What they were called.
    pub name: String,
    /// How many there were.
    pub keys: u32,
}

/// What a key is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyRole {
    /// A server.
    Server,
    /// A client.
    Client,
    /// An administrator.
    Admin,
}

impl fmt::Display for KeyRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            KeyRole::Server => "server",
            KeyRole::Client => "client",
            KeyRole::Admin => "admin",
        })
    }
}

/// Which authority has signed a key, while another one takes the place of the pool's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SignedBy {
    /// The one that goes: the key is to be made anew before it does.
    Old,
    /// The one that takes its place.
    Next,
}

impl fmt::Display for SignedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SignedBy::Old => "old",
            SignedBy::Next => "next",
        })
    }
}

/// A key that is let in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyLine {
    /// Its number.
    pub key: KeyId,
    /// What it is called; a server's host.
    pub name: String,
    /// What it is for.
    pub role: KeyRole,
    /// The volume that a client's is for.
    #[serde(default)]
    pub volume: Option<String>,
    /// Whether a client's changes nothing.
    #[serde(default)]
    pub read_only: bool,
    /// The user as whom a client's requests are taken.
    #[serde(default)]
    pub squash: Option<Squash>,
    /// The users that a client's is for; empty: for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<KeyUser>,
    /// Where the directory was that a client's is for when it was made; `None`: for all of the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdir: Option<String>,
    /// When it was made, in seconds since 1970.
    #[serde(default)]
    pub created: u64,
    /// Until when it is good, likewise; `None`: for ever.
    #[serde(default)]
    pub until: Option<u64>,
    /// Its connections to the server that answered.
    #[serde(default)]
    pub connections: u32,
    /// Which authority has signed it; `None`: the pool has but one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<SignedBy>,
}

/// The keys that are let in.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KeyList {
    /// By their numbers.
    pub keys: Vec<KeyLine>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown_where_answers_are_logged() {
        let (secret, until) = (|| "secret".to_owned(), 7);
        let token = PoolToken { token: secret(), until, address: "h:1".to_owned() };
        let made = KeyMade { name: "web".to_owned(), key: KeyId(3), file: secret(), until: None };
        for shown in [format!("{token:?}"), format!("{:?}", crate::AdminAnswer::ClientAdd(made))] {
            assert!(!shown.contains("secret") && (shown.contains("web") || shown.contains("h:1")), "{shown}");
        }
    }
}
