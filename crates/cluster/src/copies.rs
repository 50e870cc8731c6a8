//! More or fewer copies of all that a volume holds: further bricks for each of its sets, or some less.
//!
//! Always true: all sets of a volume get or lose the same number of bricks in one command. What each brick counts for
//! meanwhile is in [`crate::members`].

use std::collections::BTreeSet;

use ids::{BrickId, SetId};

use crate::{
    Brick, BrickSpec, FewerCopies, MoreCopies, Outcome, Refusal, Set, State, Volume, create, limits, names,
};

impl State {
    pub(crate) fn add_copies(&mut self, more: &MoreCopies) -> Result<Outcome, Refusal> {
        let volume = self.known_volume(&more.volume)?.clone();
        let (name, has) = (volume.name.clone(), volume.replica);
        if more.replica <= has {
            return Err(Refusal::NotMoreCopies { name, has });
        }
        create::check_copies(more.replica, more.arbiter)?;
        let (arbiter, each) = (more.arbiter.saturating_sub(volume.arbiter), more.replica - has);
        if more.arbiter < volume.arbiter {
            return Err(Refusal::Arbiter { replica: more.replica, arbiter: volume.arbiter });
        }
        let bricks = self.check_new(&more.bricks)?;
        let (count, sets) = (bricks.len(), volume.sets.len());
        if count != sets * each as usize {
            return Err(Refusal::CopiesCount { name, count, sets, each });
        }
        let all = self.bricks_of_volume(&volume).count() + count;
        if all > limits::VOLUME_BRICKS {
            return Err(Refusal::TooManyBricks { count: all, max: limits::VOLUME_BRICKS });
        }
        self.check_ids_left(count as u32, each)?;
        for (set, of_set) in self.sets_of(&volume).zip(bricks.chunks(each as usize)) {
            self.check_servers_free(set, of_set)?;
        }
        for (set, of_set) in volume.sets.iter().zip(bricks.chunks(each as usize)) {
            self.add_members(*set, of_set, arbiter as usize);
        }
        if let Some(volume) = self.volumes.get_mut(&volume.id) {
            (volume.replica, volume.arbiter) = (more.replica, more.arbiter);
        }
        Ok(Outcome::Done)
    }

    /// A server serves one brick of a set.
    fn check_servers_free(&self, set: &Set, new: &[BrickSpec]) -> Result<(), Refusal> {
        for (at, spec) in new.iter().enumerate() {
            let member = set.bricks.iter().find(|b| b.server == spec.server).map(|b| self.brick_name(b));
            let beside = new[..at].iter().find(|o| o.server == spec.server).map(|o| self.spec_name(o));
            if let Some(other) = member.or(beside) {
                return Err(Refusal::ServerHasBrickOfSet { brick: self.spec_name(spec), other });
            }
        }
        Ok(())
    }

    /// Bricks that hold nothing yet, and are filled from the set.
    pub(crate) fn add_members(&mut self, set: SetId, new: &[BrickSpec], arbiters: usize) {
        for (at, spec) in new.iter().enumerate() {
            let brick = Brick {
                id: self.next_brick,
                server: spec.server,
                path: spec.path.clone(),
                arbiter: at + arbiters >= new.len(),
                mount: String::new(),
                replaces: None,
                joining: true,
                leaving: false,
            };
            self.next_brick = BrickId(self.next_brick.0 + 1);
            self.sets.get_mut(&set).into_iter().for_each(|s| s.bricks.push(brick.clone()));
        }
    }

    pub(crate) fn remove_copies(&mut self, fewer: &FewerCopies) -> Result<Outcome, Refusal> {
        let volume = self.known_volume(&fewer.volume)?.clone();
        if fewer.replica >= volume.replica || fewer.replica == 0 {
            return Err(Refusal::NotFewerCopies { name: volume.name, has: volume.replica });
        }
        let gone = self.find_bricks(&volume, &fewer.bricks)?;
        for set in self.sets_of(&volume) {
            self.check_removal(&volume, set, &gone, fewer)?;
        }
        let gone: Vec<BrickId> = gone.into_iter().collect();
        let mut views = Vec::new();
        for set in &volume.sets {
            views.extend(self.begin_leaving(*set, &gone));
        }
        if let Some(volume) = self.volumes.get_mut(&volume.id) {
            (volume.replica, volume.arbiter) = (fewer.replica, 0);
            let count = volume.options.get_mut("cluster.quorum-count");
            count.filter(|n| n.parse().is_ok_and(|n: u32| n > fewer.replica)).into_iter().for_each(|n| {
                *n = fewer.replica.to_string();
            });
        }
        Ok(Outcome::Views(views))
    }

    fn find_bricks(&self, volume: &Volume, given: &[BrickSpec]) -> Result<BTreeSet<BrickId>, Refusal> {
        let mut found = BTreeSet::new();
        for spec in given {
            let spec = BrickSpec { server: spec.server, path: names::normal_path(&spec.path)? };
            let brick = self.brick_at(volume, &spec)?.1;
            if brick.leaving {
                return Err(Refusal::BrickLeaves { brick: self.spec_name(&spec) });
            }
            if !found.insert(brick.id) {
                return Err(Refusal::DuplicateBrick { brick: self.spec_name(&spec) });
            }
        }
        Ok(found)
    }

    /// A volume's brick in that directory.
    pub fn brick_at(&self, volume: &Volume, spec: &BrickSpec) -> Result<(&Set, &Brick), Refusal> {
        let mut all = self.bricks_of(spec.server);
        let found = all.find(|(set, b)| set.volume == volume.id && b.path == spec.path);
        found.ok_or_else(|| Refusal::NoBrickOf { brick: self.spec_name(spec), name: volume.name.clone() })
    }

    fn check_removal(
        &self,
        volume: &Volume,
        set: &Set,
        gone: &BTreeSet<BrickId>,
        fewer: &FewerCopies,
    ) -> Result<(), Refusal> {
        let name = volume.name.clone();
        if set.view.primary.is_none() {
            return Err(Refusal::OfflineKeeps { set: set.name(), name });
        }
        if let Some(by) = set.bricks.iter().find(|b| b.replaces.is_some()) {
            let old = by.replaces.and_then(|old| set.brick(old));
            let brick = old.map(|b| self.brick_name(b)).unwrap_or_default();
            return Err(Refusal::BeingReplaced { brick, by: self.brick_name(by) });
        }
        let (go, stay): (Vec<&Brick>, Vec<&Brick>) =
            set.bricks.iter().filter(|b| !b.leaving).partition(|b| gone.contains(&b.id));
        let each = volume.replica - fewer.replica;
        if go.len() != each as usize {
            return Err(Refusal::UnevenCopies { set: set.name(), name, count: go.len(), each });
        }
        if let Some(arbiter) = stay.iter().find(|b| b.arbiter) {
            return Err(Refusal::ArbiterStays { brick: self.brick_name(arbiter) });
        }
        let in_sync = |b: &&Brick| set.view.in_sync.contains(&b.id);
        if !stay.iter().any(in_sync) {
            let holder = go.iter().copied().find(|b| in_sync(b) && !b.arbiter);
            let brick = holder.map(|b| self.brick_name(b)).unwrap_or_default();
            return Err(Refusal::LastCopy { set: set.name(), brick, name });
        }
        match stay.iter().find(|b| !in_sync(b)) {
            Some(late) if !fewer.force => Err(Refusal::CopyNotInSync { brick: self.brick_name(late), name }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
