//! What a command left that was interrupted: bricks that it made, and that the pool does not have.
//!
//! The next command that is given such a directory takes it over. Only a brick that was never opened and holds nothing is
//! taken apart ([`brick::clear_unused`]), and only if it cannot be the pool's nor that of a command that is still at work.

use crate::clock;
use cluster::State;
use disk_format::Identity;
use ids::{BrickId, ServerId};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// So long is data looked at that is to be adopted. The rest is looked at when the volume is started.
const LOOK: Duration = Duration::from_secs(15);

/// What is known where directories are looked at.
pub(super) struct Leftovers<'a> {
    pub(super) state: &'a State,
    /// The server whose directories they are.
    pub(super) me: ServerId,
    /// The numbers of bricks that commands made here which may not be over.
    pub(super) making: BTreeSet<BrickId>,
}

impl Leftovers<'_> {
    /// Whether a directory can become a brick. A leftover there goes.
    pub(super) fn check(&self, path: &Path) -> Result<(), String> {
        let elsewhere = |owner: &str, found: &Identity| is_elsewhere(path, Path::new(owner), found);
        if brick::clear_unused(path, |found| self.is_leftover(found, |owner| elsewhere(owner, found))) {
            tracing::warn!(path = %path.display(), "an interrupted command made it a brick: it is taken over");
        }
        brick::check_path(path).map_err(|e| self.with_owner(path, e.to_string()))
    }

    /// Why a directory will not do, with what can be done if it is a brick.
    fn with_owner(&self, path: &Path, why: String) -> String {
        match brick::read_identity(path) {
            Ok(Some(found)) if self.is_pending(&found) => {
                format!("{why}; the command that made it may not be over: run this one again in a minute")
            }
            Ok(Some(found)) => match self.deleted(&found) {
                Some(name) => format!(
                    "{why}, which was deleted: mortar volume import {name} makes it again, mortar volume delete {name} \
                     --release frees its bricks"
                ),
                None => why,
            },
            _ => why,
        }
    }

    /// The deleted volume that a brick belongs to.
    fn deleted(&self, found: &Identity) -> Option<&str> {
        let retired = self.state.retired_with(found.brick)?;
        let same = found.pool == server_core::pool_bytes(self.state) && found.volume == retired.volume.id;
        same.then_some(retired.volume.name.as_str())
    }

    /// Whether the data in a directory can become a brick's, as far as can be told in short.
    pub(super) fn check_data(&self, path: &Path) -> Result<(), String> {
        let until = clock::now() + LOOK;
        let is_leftover =
            |found: &Identity| self.is_leftover(found, |owner| is_elsewhere(path, Path::new(owner), found));
        brick::check_adoptable(path, is_leftover, &|| clock::now() < until)
            .map_err(|e| self.with_owner(path, e.to_string()))
    }

    /// Whether nobody has a brick that was never opened. `elsewhere`: whether the pool's brick of that number is in another
    /// directory of this server for certain.
    fn is_leftover(&self, found: &Identity, elsewhere: impl Fn(&str) -> bool) -> bool {
        if found.pool != server_core::pool_bytes(self.state) || self.is_pending(found) {
            return false;
        }
        let Some((set, owner)) = self.state.brick(found.brick) else { return true };
        let volume = self.state.volumes.get(&set.volume);
        let other =
            volume.is_some_and(|v| (found.volume, found.set, &found.volume_name) != (v.id, set.id, &v.name));
        // A brick's disk can be moved, and its directory have several paths.
        other || owner.server == self.me && elsewhere(&owner.path)
    }

    /// A number that was given is no pending command's.
    fn is_pending(&self, found: &Identity) -> bool {
        self.making.contains(&found.brick) && found.brick >= self.state.next_brick
    }
}

/// Whether this brick is in the other directory, which is not the same one by another path.
fn is_elsewhere(path: &Path, other: &Path, identity: &Identity) -> bool {
    let place = |p: &Path| p.metadata().ok().map(|m| (m.dev(), m.ino()));
    let different = place(path).zip(place(other)).is_some_and(|(a, b)| a != b);
    different && matches!(brick::read_identity(other), Ok(Some(i)) if i == *identity)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it fails")]
    use super::*;
    use cluster::{BrickSpec, Command, NewServer, NewVolume, hex};

    const ME: ServerId = ServerId(1);

    /// Two servers, a volume with a brick on each.
    fn pool() -> State {
        let mut state = State::default();
        let server = |n: u64| NewServer {
            identity: hex::encode(u128::from(n)),
            host: format!("h{n}"),
            address: format!("127.0.0.{n}:24240"),
        };
        let volume = NewVolume {
            name: "v".into(),
            replica: 2,
            arbiter: 0,
            bricks: [1, 2].map(|n| BrickSpec { server: ServerId(n), path: "/b".into() }).into(),
            force: false,
            created: 0,
            expect_brick: None,
            options: std::collections::BTreeMap::new(),
        };
        state.apply(&Command::InitPool { pool: hex::encode(7), server: server(1) }).unwrap();
        state.apply(&Command::AddServer(server(2))).unwrap();
        state.apply(&Command::CreateVolume(volume)).unwrap();
        state
    }

    /// A brick of the pool's volume, as it says itself.
    fn identity(state: &State, number: u32) -> Identity {
        let (set, brick) = state.brick(BrickId(number)).unwrap();
        server_core::identity(server_core::pool_bytes(state), state.volume("v").unwrap(), set, brick)
    }

    fn is_leftover(state: &State, making: &[u32], found: &Identity, elsewhere: bool) -> bool {
        let making = making.iter().copied().map(BrickId).collect();
        Leftovers { state, me: ME, making }.is_leftover(found, |_| elsewhere)
    }

    #[test]
    fn what_the_pool_has_or_may_have_is_no_leftover() {
        let state = pool();
        let (mine, theirs) = (identity(&state, 1), identity(&state, 2));
        assert!(!is_leftover(&state, &[], &mine, false), "by whatever path");
        assert!(is_leftover(&state, &[], &mine, true), "a copy of it");
        // The disk of another server may be here now.
        assert!(!is_leftover(&state, &[], &theirs, true));
        assert!(!is_leftover(&state, &[], &Identity { pool: [9; 16], ..mine.clone() }, true), "another pool");
        // A number that was given to others.
        for changed in [
            Identity { volume: ids::VolumeId(9), ..theirs.clone() },
            Identity { set: ids::SetId(9), ..theirs.clone() },
            Identity { volume_name: "w".into(), ..theirs.clone() },
        ] {
            assert!(is_leftover(&state, &[], &changed, false), "{changed:?}");
        }
    }

    #[test]
    fn what_a_command_at_work_made_is_no_leftover() {
        let state = pool();
        let new = Identity { brick: state.next_brick, volume_name: "w".into(), ..identity(&state, 1) };
        assert!(is_leftover(&state, &[], &new, false));
        assert!(!is_leftover(&state, &[new.brick.0], &new, true));
        // The pool gave the number to another one meanwhile.
        let given = Identity { brick: BrickId(2), ..new };
        assert!(is_leftover(&state, &[2], &given, false));
    }

    #[test]
    fn a_directory_has_several_paths() {
        let dir = std::env::temp_dir().join(format!("mortar-leftovers-{}", std::process::id()));
        let found = identity(&pool(), 1);
        let [one, copy, empty] = ["one", "copy", "empty"].map(|n| dir.join(n));
        for brick in [&one, &copy] {
            std::fs::create_dir_all(brick.join(".mortar")).unwrap();
            std::fs::write(brick.join(".mortar/identity"), found.encode()).unwrap();
        }
        std::fs::create_dir(&empty).unwrap();
        assert!(is_elsewhere(&copy, &one, &found));
        assert!(!is_elsewhere(&one.join("../one"), &one, &found), "the same");
        assert!(!is_elsewhere(&copy, &empty, &found), "it lost its place, or its disk is missing");
        assert!(!is_elsewhere(&copy, &dir.join("none"), &found));
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
