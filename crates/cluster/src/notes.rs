//! What an administrator should know about the pool and its volumes, and what to do about it.

use std::collections::BTreeSet;

use ids::ServerId;

use crate::{Role, Set, State, Volume};

impl State {
    /// Why sets of this volume serve nothing or are read-only, and what to do. `down`: servers that do not answer.
    pub fn volume_notes(&self, volume: &Volume, down: &BTreeSet<ServerId>) -> Vec<String> {
        self.sets_of(volume).filter_map(|set| self.set_note(volume, set, down)).collect()
    }

    fn set_note(&self, volume: &Volume, set: &Set, down: &BTreeSet<ServerId>) -> Option<String> {
        let in_sync = set.view.in_sync.len() as u32;
        let quorum = volume.write_quorum(set.copies());
        let names = |in_sync: bool| {
            let bricks = set.bricks.iter().filter(|b| set.view.in_sync.contains(&b.id) == in_sync);
            bricks.map(|b| self.brick_name(b)).collect::<Vec<_>>().join(", ")
        };
        if set.view.primary.is_none() {
            return Some(self.offline_note(volume, set));
        }
        if in_sync < quorum {
            return Some(format!(
                "set {} is read-only: {in_sync} of {} bricks in sync, {quorum} needed (cluster.quorum-type {}); bring \
                 back {}",
                set.name(),
                set.bricks.len(),
                volume.typed_options().quorum_type,
                names(false)
            ));
        }
        let away = |b: &&crate::Brick| down.contains(&b.server);
        if let Some(brick) = set.bricks.iter().find(away) {
            return Some(format!(
                "set {} goes on without {}: its server is down",
                set.name(),
                self.brick_name(brick)
            ));
        }
        (!names(false).is_empty()).then(|| format!("set {} is healing: {}", set.name(), names(false)))
    }

    /// What to do about a set that nobody serves.
    pub fn offline_note(&self, volume: &Volume, set: &Set) -> String {
        let holders = set.bricks.iter().filter(|b| !b.arbiter && set.view.in_sync.contains(&b.id));
        let holders: Vec<String> = holders.map(|b| self.brick_name(b)).collect();
        format!(
            "{} is offline: only these bricks hold its latest data: {}; bring one of them back, or give up what they hold \
             and go on with another brick of the set: mortar volume promote {} HOST:/PATH",
            self.named_set(set),
            holders.join(", "),
            volume.name
        )
    }

    /// What is weak about the pool itself.
    pub fn pool_notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let live: Vec<_> = self.servers.values().filter(|s| !s.lost).collect();
        for server in self.servers.values().filter(|s| s.lost) {
            notes.push(format!(
                "server {0} was fenced off when the pool was recovered: empty its state folder, start it and run mortar peer \
                 replace {0}; or detach it",
                ids::bracketed(&server.host)
            ));
        }
        if let [a, b] = live[..] {
            let voter = if a.role == Role::Voter { a } else { b };
            notes.push(format!(
                "a pool of two servers stops taking changes when {} is down: add a third small server as a witness \
                 (mortar pool token)",
                ids::bracketed(&voter.host)
            ));
        }
        notes
    }

    /// Whether a server only votes: it is a voter and holds no brick.
    pub fn is_witness(&self, id: ServerId) -> bool {
        self.servers.get(&id).is_some_and(|s| s.role == Role::Voter) && self.bricks_of(id).next().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, testing};

    #[test]
    fn a_pool_of_two_asks_for_a_witness() {
        assert!(testing::pool(1).pool_notes().is_empty() && testing::pool(3).pool_notes().is_empty());
        let note = testing::pool(2).pool_notes().remove(0);
        assert!(note.contains("when h1 is down") && note.contains("witness"), "{note}");
        assert!(testing::pool(2).is_witness(ServerId(1)) && !testing::pool(2).is_witness(ServerId(2)));
    }

    #[test]
    fn sets_say_what_they_lack() {
        let mut state = testing::pool(3);
        testing::create(&mut state, "v", 3, 0, 3);
        let note = |s: &State, down: &[u64]| {
            let down = down.iter().map(|id| ServerId(*id)).collect();
            s.volume_notes(s.volume("v").unwrap(), &down).join("\n")
        };
        assert_eq!(note(&state, &[]), "");
        assert_eq!(note(&state, &[3]), "set 1 goes on without h3:/b3: its server is down");
        state.apply(&Command::ServerDown { server: ServerId(3) }).unwrap();
        assert_eq!(note(&state, &[]), "set 1 is healing: h3:/b3");
        state.apply(&Command::ServerDown { server: ServerId(2) }).unwrap();
        assert!(note(&state, &[]).starts_with("set 1 is read-only: 1 of 3 bricks in sync, 2 needed"));
        state.apply(&Command::ServerDown { server: ServerId(1) }).unwrap();
        assert!(note(&state, &[]).contains("offline: only these bricks hold its latest data: h1:/b1"));
        // An arbiter is no brick to wait for.
        let mut state = testing::pool(3);
        testing::create(&mut state, "v", 3, 1, 3);
        state.apply(&Command::ServerDown { server: ServerId(1) }).unwrap();
        state.apply(&Command::ServerDown { server: ServerId(2) }).unwrap();
        assert!(
            note(&state, &[]).contains("latest data: h2:/b2; bring one of them back"),
            "{}",
            note(&state, &[])
        );
    }

    #[test]
    fn lost_servers_are_named() {
        let mut state = testing::pool(3);
        state.apply(&Command::RecoverPool { server: ServerId(2) }).unwrap();
        assert_eq!(state.pool_notes().len(), 2);
    }
}
