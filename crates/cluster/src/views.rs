//! View changes: which bricks of a set serve after a brick or a server failed, and which may come back.
//!
//! Always true: an acknowledged change is held by a brick that stays in sync. Therefore the last in-sync data brick
//! never leaves; when it fails nobody leads, and nobody else may.

use std::collections::BTreeSet;

use ids::{BrickId, Epoch, ServerId, SetId};

use crate::{Brick, Outcome, Refusal, Set, State, View, ViewChange};

impl State {
    pub(crate) fn change_view(&mut self, change: &ViewChange) -> Result<Outcome, Refusal> {
        let set = self.sets.get(&change.set).ok_or(Refusal::UnknownSet { set: change.set })?;
        self.check_change(set, change)?;
        let epoch = set.view.epoch.next();
        let view = View { epoch, primary: change.primary, in_sync: change.in_sync.clone() };
        if let Some(set) = self.sets.get_mut(&change.set) {
            set.view = view;
            if change.lost {
                set.lost_before = epoch;
            }
        }
        self.update_members(change.set);
        Ok(Outcome::Views(vec![(change.set, epoch)]))
    }

    /// The one way to a view without a brick that was in sync. What its clients did not sync, or other bricks alone hold,
    /// counts as lost.
    pub(crate) fn promote(&mut self, id: SetId, expect: Epoch, brick: BrickId) -> Result<Outcome, Refusal> {
        let unknown = Refusal::UnknownSet { set: id };
        let set = self.sets.get(&id).ok_or(unknown.clone())?;
        let (named, actual) = (self.named_set(set), set.view.epoch);
        if expect != actual {
            return Err(Refusal::StaleEpoch { set: named, expected: expect, actual });
        }
        match set.brick(brick) {
            None => return Err(Refusal::NotMember { set: named, brick }),
            Some(b) if b.arbiter => return Err(Refusal::BadPrimary { set: named, brick }),
            Some(b) if b.joining || b.replaces.is_some() => {
                return Err(Refusal::NeverInSync { set: named, brick });
            }
            Some(_) => {}
        }
        let epoch = actual.next();
        let set = self.sets.get_mut(&id).ok_or(unknown)?;
        set.view = View { epoch, primary: Some(brick), in_sync: BTreeSet::from([brick]) };
        set.lost_before = epoch;
        self.update_members(id);
        Ok(Outcome::Views(vec![(id, epoch)]))
    }

    fn check_change(&self, set: &Set, change: &ViewChange) -> Result<(), Refusal> {
        let (named, actual) = (|| self.named_set(set), set.view.epoch);
        if change.expect_epoch != actual {
            return Err(Refusal::StaleEpoch { set: named(), expected: change.expect_epoch, actual });
        }
        for brick in &change.in_sync {
            if set.brick(*brick).is_none() {
                return Err(Refusal::NotMember { set: named(), brick: *brick });
            }
            if !set.view.in_sync.contains(brick) && !change.healed.contains(brick) {
                return Err(Refusal::NotHealed { set: named(), brick: *brick });
            }
        }
        let stays: BTreeSet<BrickId> = set.view.in_sync.intersection(&change.in_sync).copied().collect();
        if !set.has_data(&stays) {
            return Err(Refusal::DataWouldBeLost { set: named() });
        }
        if let Some(brick) = change.primary {
            let fit = change.in_sync.contains(&brick) && set.brick(brick).is_some_and(|b| !b.arbiter);
            if !fit {
                return Err(Refusal::BadPrimary { set: named(), brick });
            }
        }
        Ok(())
    }

    pub(crate) fn server_down(&mut self, server: ServerId) -> Result<Outcome, Refusal> {
        if !self.servers.contains_key(&server) {
            return Err(Refusal::UnknownServer { id: server });
        }
        Ok(Outcome::Views(self.leave_views(|brick| brick.server == server)))
    }

    pub(crate) fn brick_failed(&mut self, brick: BrickId) -> Result<Outcome, Refusal> {
        if self.brick(brick).is_none() {
            return Err(Refusal::UnknownBrick { brick });
        }
        Ok(Outcome::Views(self.leave_views(|b| b.id == brick)))
    }

    /// Takes bricks out of all views. Returns what changed.
    pub(crate) fn leave_views(&mut self, gone: impl Fn(&Brick) -> bool) -> Vec<(SetId, Epoch)> {
        let mut changed = Vec::new();
        let touched: Vec<SetId> =
            self.sets.values().filter(|s| s.bricks.iter().any(&gone)).map(|s| s.id).collect();
        for id in touched {
            let Some(view) = self.sets.get(&id).and_then(|set| self.view_without(set, &gone)) else {
                continue;
            };
            changed.push((id, view.epoch));
            if let Some(set) = self.sets.get_mut(&id) {
                set.view = view;
            }
            self.update_members(id);
        }
        changed
    }

    /// The next view of a set when these bricks are gone; `None`: nothing changes.
    fn view_without(&self, set: &Set, gone: &impl Fn(&Brick) -> bool) -> Option<View> {
        let leaves = |id: &BrickId| set.brick(*id).is_some_and(gone);
        let rest: BTreeSet<BrickId> = set.view.in_sync.iter().copied().filter(|id| !leaves(id)).collect();
        let led = set.view.primary;
        let view = if !set.has_data(&rest) {
            View { epoch: set.view.epoch.next(), primary: None, in_sync: set.view.in_sync.clone() }
        } else {
            let candidates = set.bricks.iter().filter(|b| !b.arbiter && rest.contains(&b.id));
            let primary = match led {
                Some(id) if !leaves(&id) => Some(id),
                Some(_) => self
                    .least_loaded(candidates.clone().filter(|b| !b.leaving))
                    .or_else(|| self.least_loaded(candidates)),
                // Nobody led: the brick everybody waits for is another one, which may be gone as well.
                None => None,
            };
            View { epoch: set.view.epoch.next(), primary, in_sync: rest }
        };
        let same = view.primary == led && view.in_sync == set.view.in_sync;
        (!same).then_some(view)
    }
}

#[cfg(test)]
#[path = "views_tests.rs"]
mod tests;
