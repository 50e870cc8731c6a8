//! `volume promote`: when the bricks with a set's latest data are gone for good, an administrator names another brick with
//! which the set continues.

use super::Control;
use super::answers::conflict;
use super::arbitrate::gather;
use super::copies::brick_of;
use super::volumes::volume;
use admin::{AdminError, VolumePromote, VolumePromoted};
use cluster::Command;
use cluster::arbitration::Evidence;
use server_core::arbitration_run::sources;

impl Control {
    /// Refused while a brick in sync is open, or its server may still be serving.
    pub(super) async fn volume_promote(&self, request: VolumePromote) -> Result<VolumePromoted, AdminError> {
        let VolumePromote { name, brick: wanted } = request;
        let state = self.linearizable().await?;
        let volume = volume(&state, &name)?;
        let (set, brick) = brick_of(&state, volume, &wanted)?;
        let named = state.named_set(set);
        if brick.arbiter {
            return Err(conflict(format!(
                "{wanted} is an arbiter and holds no file data: name another brick of {named}"
            )));
        }
        let evidence = gather(self, set.id, &sources(&state, set, self.shared.me())).await;
        let says = |b: &cluster::Brick| evidence.get(&b.id).copied().unwrap_or_default();
        for holder in
            set.bricks.iter().filter(|b| set.view.in_sync.contains(&b.id) && !b.arbiter && b.id != brick.id)
        {
            let shown = state.brick_name(holder);
            match says(holder) {
                Evidence::Refused { .. } => {}
                Evidence::Silent => {
                    let lost = state.servers.get(&holder.server).is_none_or(|s| s.lost);
                    if !lost && !self.leases.down().contains(&holder.server) {
                        return Err(conflict(format!(
                            "{shown} holds the latest data of {named} and its server may still serve it: stop that server, \
                             or wait until mortar peer status shows it as disconnected"
                        )));
                    }
                }
                Evidence::LostMemory(_) | Evidence::Uncertain(_) | Evidence::Whole(_) => {
                    return Err(conflict(format!(
                        "{shown} holds the latest data of {named} and is open: the set goes on with it by itself"
                    )));
                }
            }
        }
        match says(brick) {
            Evidence::Silent | Evidence::Refused { .. } => {
                return Err(conflict(format!("{wanted} is not open: see mortar volume status {name}")));
            }
            Evidence::Whole(_) if set.view.in_sync.contains(&brick.id) => {
                return Err(conflict(format!(
                    "{wanted} is in sync and open: {named} goes on with it by itself"
                )));
            }
            Evidence::LostMemory(_) | Evidence::Uncertain(_) | Evidence::Whole(_) => {}
        }
        let command = Command::Promote { set: set.id, expect_epoch: set.view.epoch, brick: brick.id };
        self.propose(command).await?;
        tracing::warn!("{named}: told to go on with {wanted}");
        Ok(VolumePromoted { name, brick: wanted, set: set.name() })
    }
}
