//! `volume replace-brick`: another directory takes the place of a brick, while its set serves.
//!
//! The new directory is empty. Its server makes it a brick when it opens it, as after `peer replace`, and it is filled from
//! the set. Which of the two bricks is in the set when is decided in `cluster`.

use super::Control;
use super::answers::refused;
use super::copies::brick_of;
use super::grow::anew_if_stale;
use super::volumes::volume;
use admin::{AdminError, BrickReplaced, VolumeReplaceBrick};
use cluster::{Command, NewBrick};

impl Control {
    pub(super) async fn volume_replace_brick(
        &self,
        request: VolumeReplaceBrick,
    ) -> Result<BrickReplaced, AdminError> {
        let _one = self.changing.lock().await;
        // A brick may leave the view meanwhile, or come back: often the one that is to be replaced.
        anew_if_stale(|| self.try_to_replace(request.clone())).await
    }

    async fn try_to_replace(&self, request: VolumeReplaceBrick) -> Result<BrickReplaced, AdminError> {
        let VolumeReplaceBrick { name, old, new, force } = request;
        let state = self.linearizable().await?;
        let volume = volume(&state, &name)?;
        let (set, brick) = brick_of(&state, volume, &old)?;
        let (named, expect_epoch, old_id) = (set.name(), set.view.epoch, brick.id);
        let spec = state.resolve_brick(&new).map_err(|e| refused(&e))?;
        let command = Command::ReplaceBrick(NewBrick {
            set: named.id,
            expect_epoch,
            old: old_id,
            new: spec.clone(),
            force,
        });
        let mut copy = (*state).clone();
        copy.apply(&command).map_err(|e| refused(&e))?;
        self.prepare(&state, &[spec], (force, None)).await?;
        self.propose(command).await?;
        Ok(BrickReplaced { name, old, new, set: named, at_once: copy.brick(old_id).is_none() })
    }
}
