//! `volume replace-brick`: another directory takes the place of a brick, while its set serves.
//!
//! The new directory is empty. Its server makes it a brick when it opens it, as after `peer replace`, and it is filled from
//! the set. Which of the two bricks is in the set when is decided in `cluster`.

use super::Control;
use super::answers::{not_found, refused};
use super::volumes::volume;
use admin::{AdminError, BrickReplaced, VolumeReplaceBrick};
use cluster::{Command, NewBrick};

impl Control {
    pub(super) async fn volume_replace_brick(
        &self,
        request: VolumeReplaceBrick,
    ) -> Result<BrickReplaced, AdminError> {
        let VolumeReplaceBrick { name, old, new, force } = request;
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let volume = volume(&state, &name)?;
        let spec = state.resolve_brick(&old).map_err(|e| refused(&e))?;
        let mut on_server = state.bricks_of(spec.server);
        let found = on_server.find(|(set, b)| set.volume == volume.id && b.path == spec.path);
        let Some((set, brick)) = found else {
            let line = format!("{old} is no brick of volume {name}: see mortar volume info {name}");
            return Err(not_found(line));
        };
        let (set, expect_epoch, old_id) = (set.id, set.view.epoch, brick.id);
        let spec = state.resolve_brick(&new).map_err(|e| refused(&e))?;
        let command =
            Command::ReplaceBrick(NewBrick { set, expect_epoch, old: old_id, new: spec.clone(), force });
        let mut copy = (*state).clone();
        copy.apply(&command).map_err(|e| refused(&e))?;
        self.prepare(&state, &[spec], force).await?;
        self.propose(command).await?;
        Ok(BrickReplaced { name, old, new, set, at_once: copy.brick(old_id).is_none() })
    }
}
