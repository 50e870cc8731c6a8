//! How far all servers of the pool go: what only newer programs understand is used when no server is older.

use crate::{Outcome, Refusal, State};
use ids::ServerId;
use std::collections::BTreeMap;

/// How far this program goes. It grows with what programs of before would misread, or leave undone:
///
/// - 1: two files of one set whose names are in directories of another one change places there.
/// - 2: a directory is marked to move to a directory of another set, and a set has an entry for it from then on.
/// - 2: volumes begin with options ([`NEW_VOLUMES_HAVE_OPTIONS`]).
/// - 3: a directory whose entry is another set's than its own is marked likewise, and so is what that set has of it.
/// - 3: a file's data lies on several sets, in nameless objects that stay ([`FILES_ARE_STRIPED`]).
/// - 4: two files whose names are on two sets change places there: what one of the sets has is marked to lead to the other file.
/// - 5: the groups of a key's users may be others in the key that takes its place ([`GROUPS_ARE_LOOKED_UP_AGAIN`]).
/// - 6: a directory is answered for by another set than the one that made it, and has names whose files go by that one.
/// - 7: hosts are named in `auth.allow` and `auth.reject` ([`HOSTS_BY_NAME`]).
/// - 8: what is marked at one of two names that change places may be a directory, or is to lead to one.
pub const LEVEL: u32 = 8;

/// From this level of the pool on files are striped.
pub const FILES_ARE_STRIPED: u32 = 3;

/// From this level of the pool on users of a key have their groups looked up again when it is made anew.
pub const GROUPS_ARE_LOOKED_UP_AGAIN: u32 = 5;

/// From this level of the pool on options name hosts, whose addresses are noted.
pub const HOSTS_BY_NAME: u32 = 7;

/// From this level of the pool on new volumes begin with options.
pub const NEW_VOLUMES_HAVE_OPTIONS: u32 = 2;

impl State {
    /// The level that the pool can have, as its servers say which theirs are: that of the lowest, once all have spoken. `None`:
    /// it has that already.
    pub fn next_level(&self, said: &BTreeMap<ServerId, u32>) -> Option<u32> {
        let servers = self.servers.values().filter(|server| !server.lost);
        let lowest = servers.map(|server| said.get(&server.id).copied().unwrap_or(0)).min()?;
        (lowest > self.level).then_some(lowest)
    }

    /// No server is older any more. It stays so: one of before that comes back gets no lease.
    pub(crate) fn raise_level(&mut self, level: u32) -> Result<Outcome, Refusal> {
        self.level = self.level.max(level);
        Ok(Outcome::Done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Command;
    use crate::testing::pool;

    #[test]
    fn a_pool_has_the_level_of_its_oldest_server() {
        let mut state = pool(3);
        let said = |levels: &[u32]| (1..).map(ServerId).zip(levels.iter().copied()).collect();
        assert_eq!(state.next_level(&said(&[2, 2])), None, "one has said nothing");
        assert_eq!(state.next_level(&said(&[2, 0, 2])), None);
        assert_eq!(state.next_level(&said(&[3, 1, 2])), Some(1));
        state.apply(&Command::RaiseLevel { level: 1 }).unwrap();
        assert_eq!((state.level, state.next_level(&said(&[3, 1, 2]))), (1, None));
        assert_eq!(state.next_level(&said(&[3, 2, 2, 9])), Some(2), "others do not count");
        state.apply(&Command::RaiseLevel { level: 2 }).unwrap();
        state.apply(&Command::RaiseLevel { level: 1 }).unwrap();
        assert_eq!(state.level, 2, "it never falls");
        state.servers.get_mut(&ServerId(3)).unwrap().lost = true;
        assert_eq!(state.next_level(&said(&[3, 3])), Some(3), "who is lost does not come back as it was");
    }
}
