//! Keys of clients in a document: how their limits are written, and whether the pool has such a key.

use crate::{ClientKey, Key, KeyHolder, Squash, State};
use ids::KeyUser;

/// One key of a document.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientDoc {
    /// What it is called.
    pub name: String,
    /// The name of the volume that it mounts.
    pub volume: String,
    /// It changes nothing.
    pub read_only: bool,
    /// Each of its requests is taken as this user's.
    pub squash: Option<Squash>,
    /// Only these users ask with it; empty: the client is trusted with all.
    pub users: Vec<KeyUser>,
    /// It reaches only what lies beneath the directory at this path.
    pub subdir: Option<String>,
    /// For how many seconds it is good once it is made; `None`: for ever. One that the pool has keeps its end.
    pub expires: Option<u64>,
}

impl ClientDoc {
    /// What the pool's key of this name is that the document's is not, in one word; `None`: they are alike, but for their end.
    pub(super) fn differs(&self, state: &State, key: &ClientKey) -> Option<&'static str> {
        let volume = state.volumes.get(&key.volume).map(|v| v.name.as_str());
        let path = key.subdir.as_ref().map(|subdir| subdir.path.as_str());
        let alike = [
            (volume == Some(self.volume.as_str()), "volume"),
            (key.read_only == self.read_only, "read_only"),
            (key.squash == self.squash, "squash"),
            (numbers(&key.users).eq(numbers(&self.users)), "users"),
            (path == self.subdir.as_deref(), "subdir"),
        ];
        alike.into_iter().find(|(alike, _)| !alike).map(|(_, what)| what)
    }
}

/// The keys of clients that are let in at `now`, each name once, in the order of their names. Those that servers made for root
/// of their machines are nobody's to write down.
pub(super) fn client_keys(state: &State, now: u64) -> Vec<(&ClientKey, &Key)> {
    let mut found: Vec<(&ClientKey, &Key)> = Vec::new();
    for key in state.keys.keys.keys().filter_map(|id| state.keys.get(*id, now)) {
        if let KeyHolder::Client(holder) = &key.holder
            && !crate::keys::is_local_name(&holder.name)
        {
            // Of a key that was made anew the last one counts.
            found.retain(|(other, _)| other.name != holder.name);
            found.push((holder, key));
        }
    }
    found.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    found
}

/// The user and the group of `UID:GID`.
pub(super) fn squash(text: &str) -> Option<Squash> {
    let user: KeyUser = text.parse().ok()?;
    user.groups.is_empty().then_some(Squash { uid: user.uid, gid: user.gid })
}

/// What is compared of users: how they are called is not in documents.
fn numbers(users: &[KeyUser]) -> impl Iterator<Item = (u32, u32, &[u32])> {
    users.iter().map(KeyUser::numbers)
}

/// Seconds of `30m`, `24h` or `7d`.
pub(super) fn lifetime(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    // As long as a certificate may be good.
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=100 * 365 * 86_400).contains(&seconds).then_some(seconds)
}
