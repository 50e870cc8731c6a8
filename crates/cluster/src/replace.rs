//! Giving a brick's place in its set to another brick, while the set serves.
//!
//! Always true:
//! - A brick that is in sync stays until the new one is: both are members meanwhile, and the view change that brings the
//!   new one in takes the old one out.
//! - A brick that is not in sync counts for nothing, and goes at once. So does one whose server would have to serve both,
//!   if another brick in sync holds the data and the administrator accepts a copy less.
//! - The new brick comes into the view like any brick that was healed.

use ids::{BrickId, SetId};

use crate::{Brick, BrickSpec, NewBrick, Outcome, Refusal, Set, State, names};

impl State {
    pub(crate) fn replace_brick(&mut self, r: &NewBrick) -> Result<Outcome, Refusal> {
        let set = self.sets.get(&r.set).ok_or(Refusal::UnknownSet { set: r.set })?;
        let (expected, actual) = (r.expect_epoch, set.view.epoch);
        if expected != actual {
            return Err(Refusal::StaleEpoch { set: r.set, expected, actual });
        }
        let old = set.brick(r.old).ok_or(Refusal::NotMember { set: r.set, brick: r.old })?.clone();
        if !self.servers.contains_key(&r.new.server) {
            return Err(Refusal::UnknownServer { id: r.new.server });
        }
        let spec = BrickSpec { server: r.new.server, path: names::normal_path(&r.new.path)? };
        self.check_free(std::slice::from_ref(&spec))?;
        self.check_replaceable(set, &old, &spec, r.force)?;
        let id = self.next_brick;
        self.next_brick = BrickId(id.0.checked_add(1).ok_or(Refusal::OutOfIds)?);
        let at_once = !set.view.in_sync.contains(&old.id) || old.server == spec.server;
        let replaces = if at_once { old.replaces } else { Some(old.id) };
        let BrickSpec { server, path } = spec;
        let new = Brick { id, server, path, arbiter: old.arbiter, mount: String::new(), replaces };
        let views = if at_once { self.leave_views(|b| b.id == old.id) } else { Vec::new() };
        let Some(set) = self.sets.get_mut(&r.set) else { return Ok(Outcome::Views(views)) };
        let at = set.bricks.iter().position(|b| b.id == old.id).unwrap_or(set.bricks.len());
        set.bricks.insert(at, new);
        if at_once {
            set.bricks.retain(|b| b.id != old.id);
        }
        Ok(Outcome::Views(views))
    }

    fn check_replaceable(&self, set: &Set, old: &Brick, new: &BrickSpec, force: bool) -> Result<(), Refusal> {
        let brick = self.brick_name(old);
        if set.view.primary.is_none() {
            return Err(Refusal::SetOffline { set: set.id });
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

    /// Bricks whose successors are in sync now leave their set.
    pub(crate) fn finish_replacements(&mut self, id: SetId) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        let mut gone = Vec::new();
        for brick in set.bricks.iter_mut().filter(|b| set.view.in_sync.contains(&b.id)) {
            gone.extend(brick.replaces.take());
        }
        set.bricks.retain(|b| !gone.contains(&b.id));
        set.view.in_sync.retain(|b| !gone.contains(b));
        if set.view.primary.is_none_or(|p| !gone.contains(&p)) {
            return;
        }
        let Some(set) = self.sets.get(&id) else { return };
        let holders = set.bricks.iter().filter(|b| !b.arbiter && set.view.in_sync.contains(&b.id));
        let primary = self.least_loaded(holders);
        self.sets.get_mut(&id).into_iter().for_each(|set| set.view.primary = primary);
    }
}

#[cfg(test)]
#[path = "replace_tests.rs"]
mod tests;
