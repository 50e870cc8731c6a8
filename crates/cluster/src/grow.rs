//! Giving a volume that exists more bricks: further sets of its own shape.
//!
//! Always true: a brick's directory is made before the command that adds it, with the number that it gets, so that a set
//! that clients are told of can be served at once.

use std::collections::BTreeMap;

use ids::BrickId;

use crate::{Brick, NewBricks, NewVolume, Outcome, Refusal, State, Volume, create, limits};

impl State {
    pub(crate) fn add_bricks(&mut self, new: &NewBricks) -> Result<Outcome, Refusal> {
        let volume = self.known_volume(&new.volume)?.clone();
        self.check_next_brick(new.expect_brick)?;
        if new.bricks.is_empty() {
            return Err(Refusal::NoBricks { name: new.volume.clone() });
        }
        let has = self.bricks_of_volume(&volume);
        let has = has.map(Brick::spec);
        let wanted = NewVolume {
            name: volume.name.clone(),
            replica: volume.replica,
            arbiter: volume.arbiter,
            bricks: has.chain(new.bricks.iter().cloned()).collect(),
            force: new.force,
            created: volume.created,
            expect_brick: None,
            options: BTreeMap::new(),
        };
        self.add_sets(&volume, &wanted)?;
        Ok(Outcome::Done)
    }

    /// Whether these are all bricks of the volume and more.
    pub(crate) fn grows(&self, volume: &Volume, wanted: &NewVolume) -> bool {
        let has = self.bricks_of_volume(volume).count();
        wanted.bricks.len() > has && self.begins_with(volume, wanted)
    }

    /// Refuses a command that was prepared for other numbers than its bricks would get.
    pub(crate) fn check_next_brick(&self, expected: BrickId) -> Result<(), Refusal> {
        if expected == self.next_brick { Ok(()) } else { Err(Refusal::BrickIdTaken { expected }) }
    }

    /// Makes sets of what `wanted` has after the volume's own bricks.
    pub(crate) fn add_sets(&mut self, volume: &Volume, wanted: &NewVolume) -> Result<(), Refusal> {
        let has = self.bricks_of_volume(volume).count();
        let added = wanted.bricks.get(has..).unwrap_or_default();
        if !added.len().is_multiple_of(volume.replica as usize) {
            return Err(Refusal::BrickCount { count: added.len(), replica: volume.replica });
        }
        if wanted.bricks.len() > limits::VOLUME_BRICKS {
            return Err(Refusal::TooManyBricks { count: wanted.bricks.len(), max: limits::VOLUME_BRICKS });
        }
        let added = NewVolume { bricks: added.to_vec(), ..wanted.clone() };
        create::check_shape(&added)?;
        let bricks = self.check_bricks(&added)?;
        self.check_ids_left(bricks.len() as u32, volume.replica)?;
        let mut grown = volume.clone();
        for of_set in bricks.chunks(volume.replica as usize) {
            self.add_set(&mut grown, of_set, volume.arbiter);
        }
        self.volumes.insert(volume.id, grown);
        Ok(())
    }
}

#[cfg(test)]
#[path = "grow_tests.rs"]
mod tests;
