//! `volume add-brick VOL replica N` and `volume remove-brick VOL replica N`: more or fewer copies of all that a volume holds.
//!
//! A new brick's server makes it of an empty directory when it opens it, as after `volume replace-brick`, and it is filled
//! from its set. Which brick counts when is decided in `cluster`.

use super::Control;
use super::answers::refused;
use super::volumes::{resolve, volume};
use admin::{AdminError, BricksRemoved, VolumeAddBrick, VolumeRemoveBrick};
use cluster::{Brick, BrickSpec, Command, FewerCopies, MoreCopies, Set, State, Volume};
use ids::{BrickId, SetId};
use std::time::Duration;

/// So long is a brick waited for that leads its set and is to leave it.
const HAND_OVER: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

impl Control {
    /// Tells which sets got bricks.
    pub(super) async fn add_copies(
        &self,
        request: VolumeAddBrick,
        replica: u32,
    ) -> Result<Vec<SetId>, AdminError> {
        let VolumeAddBrick { name, arbiter, bricks, force, .. } = request;
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let volume = volume(&state, &name)?;
        let bricks = resolve(&state, &bricks)?;
        let arbiter = arbiter.unwrap_or(volume.arbiter);
        let command =
            Command::AddCopies(MoreCopies { volume: name, replica, arbiter, bricks: bricks.clone() });
        (*state).clone().apply(&command).map_err(|e| refused(&e))?;
        self.prepare(&state, &bricks, (force, None)).await?;
        self.propose(command).await?;
        Ok(volume.sets.clone())
    }

    pub(super) async fn volume_remove_brick(
        &self,
        request: VolumeRemoveBrick,
    ) -> Result<BricksRemoved, AdminError> {
        let VolumeRemoveBrick { name, replica, bricks: given, force } = request;
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let volume = volume(&state, &name)?;
        let found: Result<Vec<&Brick>, AdminError> =
            given.iter().map(|text| Ok(brick_of(&state, volume, text)?.1)).collect();
        let (gone, bricks): (Vec<BrickId>, Vec<BrickSpec>) =
            found?.into_iter().map(|b| (b.id, b.spec())).unzip();
        self.propose(Command::RemoveCopies(FewerCopies { volume: name.clone(), replica, bricks, force }))
            .await?;
        let leaving = self.await_departure(&gone).await?;
        Ok(BricksRemoved { name, replica, leaving })
    }

    /// Waits until these bricks are out of their sets. Tells who is not.
    async fn await_departure(&self, gone: &[BrickId]) -> Result<Vec<String>, AdminError> {
        let left = |state: &State| -> Vec<String> {
            gone.iter().filter_map(|b| state.brick(*b)).map(|(_, b)| state.brick_name(b)).collect()
        };
        let wait = async {
            while !left(&self.state()).is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let _late = tokio::time::timeout(HAND_OVER, wait).await;
        Ok(left(&*self.linearizable().await?))
    }
}

/// The volume's brick that an administrator wrote as HOST:/PATH.
pub(super) fn brick_of<'a>(
    state: &'a State,
    volume: &Volume,
    text: &str,
) -> Result<(&'a Set, &'a Brick), AdminError> {
    let spec = state.resolve_brick(text).map_err(|e| refused(&e))?;
    state.brick_at(volume, &spec).map_err(|e| refused(&e))
}
