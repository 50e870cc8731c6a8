//! Volumes that were deleted and may come back: what they were made of.
//!
//! Their bricks stay as they are on their servers; nothing serves them, and nothing else has their numbers.

use std::collections::{BTreeMap, BTreeSet};

use ids::{BrickId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{BrickSpec, NamedSet, Outcome, Refusal, Set, State, Status, Volume, limits, set_numbers};

/// A volume that was deleted, with its sets as they were.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Retired {
    /// The volume.
    pub volume: Volume,
    /// Its sets.
    #[serde(deserialize_with = "set_numbers::read_list")]
    pub sets: Vec<Set>,
}

impl State {
    /// The deleted volume of that name; of several, the one that was made last.
    pub fn retired(&self, name: &str) -> Option<&Retired> {
        self.retired.values().rev().find(|r| r.volume.name == name)
    }

    /// The deleted volume that had bricks in all of these directories; of several, the one that was made last.
    pub fn retired_at(&self, bricks: &[BrickSpec]) -> Option<&Retired> {
        let has =
            |r: &Retired, spec: &BrickSpec| r.sets.iter().flat_map(|s| &s.bricks).any(|b| b.spec() == *spec);
        self.retired.values().rev().find(|r| bricks.iter().all(|spec| has(r, spec)))
    }

    /// The deleted volume that a brick belongs to.
    pub fn retired_with(&self, brick: BrickId) -> Option<&Retired> {
        self.retired.values().find(|r| r.sets.iter().any(|s| s.brick(brick).is_some()))
    }

    /// Takes a stopped volume out of the pool.
    pub(crate) fn take_out(&mut self, name: &str) -> Result<Retired, Refusal> {
        let volume = self.volume(name).ok_or_else(|| Refusal::UnknownVolume { name: name.to_string() })?;
        if volume.status == Status::Started {
            return Err(Refusal::VolumeStarted { name: name.to_string() });
        }
        let volume = volume.clone();
        let sets = self.sets_of(&volume).cloned().collect();
        self.volumes.remove(&volume.id);
        self.keys.forget_volume(volume.id);
        self.sets.retain(|_, set| set.volume != volume.id);
        Ok(Retired { volume, sets })
    }

    pub(crate) fn retire_volume(&mut self, name: &str) -> Result<Outcome, Refusal> {
        let retired = self.take_out(name)?;
        self.retired.insert(retired.volume.id, retired);
        while self.retired.len() > limits::RETIRED {
            self.retired.pop_first();
        }
        Ok(Outcome::Done)
    }

    pub(crate) fn forget_retired(&mut self, volume: VolumeId) -> Result<Outcome, Refusal> {
        self.retired.remove(&volume);
        Ok(Outcome::Done)
    }

    /// Makes a deleted volume again of the bricks that are there. They go on with their numbers; who is missing has to be
    /// healed, or replaced.
    pub(crate) fn import_volume(
        &mut self,
        id: VolumeId,
        present: &BTreeSet<BrickId>,
    ) -> Result<Outcome, Refusal> {
        let Some(Retired { volume, sets }) = self.retired.get(&id).cloned() else {
            return Err(Refusal::NotDeleted { name: format!("number {id}") });
        };
        if self.volume(&volume.name).is_some() {
            return Err(Refusal::VolumeExists { name: volume.name });
        }
        if self.volumes.len() >= limits::VOLUMES {
            return Err(Refusal::TooManyVolumes { max: limits::VOLUMES });
        }
        for brick in sets.iter().flat_map(|s| &s.bricks) {
            if !self.servers.contains_key(&brick.server) {
                return Err(Refusal::UnknownServer { id: brick.server });
            }
            self.check_free(&[brick.spec()])?;
        }
        let mut again = BTreeMap::new();
        for set in sets {
            again.insert(set.id, self.with_present(set, &volume, present)?);
        }
        self.retired.remove(&id);
        self.sets.append(&mut again);
        self.volumes.insert(id, volume);
        Ok(Outcome::Volume(id))
    }

    /// A set that goes on with what is there of the bricks that have its latest data.
    fn with_present(
        &self,
        mut set: Set,
        volume: &Volume,
        present: &BTreeSet<BrickId>,
    ) -> Result<Set, Refusal> {
        let in_sync: BTreeSet<BrickId> = set.view.in_sync.intersection(present).copied().collect();
        if !set.has_data(&in_sync) {
            let latest = |b: &&crate::Brick| set.view.in_sync.contains(&b.id) && !b.arbiter;
            let bricks: Vec<String> = set.bricks.iter().filter(latest).map(|b| self.brick_name(b)).collect();
            let set = NamedSet { set: set.name(), volume: volume.name.clone() };
            return Err(Refusal::SetMissing { set, bricks: bricks.join(", ") });
        }
        let leads = |id: &BrickId| in_sync.contains(id) && set.brick(*id).is_some_and(|b| !b.arbiter);
        let data = set.bricks.iter().filter(|b| leads(&b.id));
        let primary = set.view.primary.filter(leads).or_else(|| self.least_loaded(data));
        set.view.epoch = set.view.epoch.next();
        set.view.primary = primary;
        set.view.in_sync = in_sync;
        Ok(set)
    }
}

#[cfg(test)]
#[path = "retired_tests.rs"]
mod tests;
