//! Giving a brick's place in its set to another brick, while the set serves.
//!
//! Always true:
//! - A brick that is in sync stays until the new one is: both are members meanwhile. Then it leaves (see
//!   [`crate::members`]).
//! - A brick that is not in sync counts for nothing, and goes at once. One whose server would have to serve both leaves
//!   without waiting for the new one, if another brick in sync holds the data and the administrator accepts a copy less.
//! - The new brick comes into the view like any brick that was healed.

use ids::BrickId;

use crate::{Brick, BrickSpec, NewBrick, Outcome, Refusal, Set, State, names};

impl State {
    pub(crate) fn replace_brick(&mut self, r: &NewBrick) -> Result<Outcome, Refusal> {
        let set = self.sets.get(&r.set).ok_or(Refusal::UnknownSet { set: r.set })?;
        let (expected, actual) = (r.expect_epoch, set.view.epoch);
        if expected != actual {
            return Err(Refusal::StaleEpoch { set: self.named_set(set), expected, actual });
        }
        let unknown = || Refusal::NotMember { set: self.named_set(set), brick: r.old };
        let old = set.brick(r.old).ok_or_else(unknown)?.clone();
        if !self.servers.contains_key(&r.new.server) {
            return Err(Refusal::UnknownServer { id: r.new.server });
        }
        let spec = BrickSpec { server: r.new.server, path: names::normal_path(&r.new.path)? };
        self.check_free(std::slice::from_ref(&spec))?;
        self.check_replaceable(set, &old, &spec, r.force)?;
        let id = self.next_brick;
        self.next_brick = BrickId(id.0.checked_add(1).ok_or(Refusal::OutOfIds)?);
        let in_sync = set.view.in_sync.contains(&old.id);
        let same_server = old.server == spec.server;
        let replaces = match (in_sync, same_server) {
            (true, false) => Some(old.id),
            (true, true) => None,
            (false, _) => old.replaces,
        };
        let BrickSpec { server, path } = spec;
        let Brick { arbiter, joining, .. } = old;
        let new =
            Brick { id, server, path, arbiter, mount: String::new(), replaces, joining, leaving: false };
        let Some(set) = self.sets.get_mut(&r.set) else { return Ok(Outcome::Done) };
        let at = set.bricks.iter().position(|b| b.id == old.id).unwrap_or(set.bricks.len());
        // After the old one: of two bricks of a set a server serves the first.
        set.bricks.insert((at + 1).min(set.bricks.len()), new);
        let leaves = !in_sync || same_server;
        let views = if leaves { self.begin_leaving(r.set, &[old.id]) } else { Vec::new() };
        Ok(Outcome::Views(views))
    }

    fn check_replaceable(&self, set: &Set, old: &Brick, new: &BrickSpec, force: bool) -> Result<(), Refusal> {
        let brick = self.brick_name(old);
        if set.view.primary.is_none() {
            return Err(Refusal::SetOffline { set: self.named_set(set) });
        }
        if old.leaving {
            return Err(Refusal::BrickLeaves { brick });
        }
        if let Some(by) = set.bricks.iter().find(|b| b.replaces == Some(old.id)) {
            return Err(Refusal::BeingReplaced { brick, by: self.brick_name(by) });
        }
        if let Some(other) = set.bricks.iter().find(|b| b.id != old.id && b.server == new.server) {
            let (brick, other) = (self.spec_name(new), self.brick_name(other));
            return Err(Refusal::ServerHasBrickOfSet { brick, other });
        }
        if old.server == new.server && set.view.in_sync.contains(&old.id) {
            let mut rest = set.view.in_sync.clone();
            rest.remove(&old.id);
            if !set.has_data(&rest) {
                return Err(Refusal::OnlyCopy { brick });
            }
            if !force {
                return Err(Refusal::CopyLess { brick });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
