//! The numbers by which users know sets: 1, 2, 3 in each volume, in the order in which it got its sets.
//!
//! Always true: a set keeps its number, and a volume never gives one twice. A set that is gone leaves a gap.
//!
//! Programs of before keep no numbers: their records and snapshots are without. Whoever reads such a record numbers the sets
//! of each volume in the order of their ids, and no level of the pool is needed for that. Ids only grow, and no program of
//! before takes a set out of a volume that stays, so the order of the ids is the order in which the volume got its sets: all
//! servers arrive at the same numbers, whoever wrote the record. A command that takes a set out of a volume has to wait for
//! a level at which every server keeps numbers.

use std::collections::BTreeMap;

use ids::{SetId, SetName, VolumeId};
use serde::{Deserialize, Deserializer, Serialize};

use crate::{Set, State, Volume};

/// A set as users know it where nothing else names its volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NamedSet {
    /// The set.
    #[serde(flatten)]
    pub set: SetName,
    /// The name of its volume; empty: a program of before has not told it.
    #[serde(default)]
    pub volume: String,
}

impl std::fmt::Display for NamedSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.volume.as_str() {
            "" => write!(f, "set {}", self.set),
            volume => write!(f, "set {} of volume {volume}", self.set),
        }
    }
}

impl State {
    /// The set as users know it, with its volume.
    pub fn named_set(&self, set: &Set) -> NamedSet {
        let volume = self.volumes.get(&set.volume).map(|v| v.name.clone()).unwrap_or_default();
        NamedSet { set: set.name(), volume }
    }

    /// The same of an id. One that is not there, or not yet, stays an id.
    pub fn named(&self, id: SetId) -> NamedSet {
        let unknown = || NamedSet { set: id.into(), volume: String::new() };
        self.sets.get(&id).map_or_else(unknown, |set| self.named_set(set))
    }

    /// The number that the next set of the volume gets.
    pub(crate) fn next_number(&self, volume: &Volume) -> u32 {
        self.sets_of(volume).map(|s| s.number).fold(volume.numbered, u32::max) + 1
    }
}

/// Numbers the sets that have none yet.
fn give(sets: &mut [&mut Set]) {
    sets.sort_by_key(|s| s.id);
    let mut newest: BTreeMap<VolumeId, u32> = BTreeMap::new();
    for set in sets.iter() {
        let newest = newest.entry(set.volume).or_default();
        *newest = (*newest).max(set.number);
    }
    for set in sets.iter_mut().filter(|s| s.number == 0) {
        let newest = newest.entry(set.volume).or_default();
        *newest += 1;
        set.number = *newest;
    }
}

/// The sets of a record, each with its number.
pub(crate) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<SetId, Set>, D::Error> {
    let mut sets = BTreeMap::<SetId, Set>::deserialize(from)?;
    give(&mut sets.values_mut().collect::<Vec<_>>());
    Ok(sets)
}

/// The same of the sets of a volume that was deleted.
pub(crate) fn read_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Set>, D::Error> {
    let mut sets = Vec::<Set>::deserialize(from)?;
    give(&mut sets.iter_mut().collect::<Vec<_>>());
    Ok(sets)
}

#[cfg(test)]
#[path = "set_numbers_tests.rs"]
mod tests;
