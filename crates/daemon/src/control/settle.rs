//! After a power cut: where does a brick stand that may have lost changes?
//!
//! If another brick in sync holds the data, this one leaves the view and is healed. If there is none, it goes on with what
//! it has: all that was synced is on every brick that was in sync. After a power cut of all bricks of a set they leave one
//! after the other, and the last one goes on; the pool's store orders them, and says from which epoch on nothing is missing:
//! a client that wrote before and syncs after is told.
//! Always true: nobody leaves in favour of a server that does not answer, and nobody leaves the set without data.

use super::Control;
use super::protocol::ClusterRequest;
use crate::shared::Standing;
use cluster::{Command, Set, State, ViewChange};
use config_store::ProposeError;
use ids::{BrickId, Epoch, ServerId, SetId};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_secs(1);

/// Answers when the pool has agreed on it. `None`: there is no such set any more.
pub(super) async fn settle(control: &Arc<Control>, set: SetId, brick: BrickId) -> Option<Standing> {
    let mut told = false;
    loop {
        match control.store().linearizable_state(PATIENCE).await {
            Ok(state) => {
                let known = state.sets.get(&set)?;
                let epoch = known.view.epoch;
                if !known.view.in_sync.contains(&brick) {
                    return Some(Standing { epoch, last: false });
                }
                let others = others(known, brick);
                let change = if others.is_empty() {
                    Some(goes_on(known, brick))
                } else {
                    heir(control, &state, &others).await.map(|heir| leaves(known, brick, heir))
                };
                if let Some(change) = change {
                    let lost = change.lost;
                    match agree(control, change).await {
                        Some(epoch) if lost => return Some(Standing { epoch, last: true }),
                        _ => continue,
                    }
                }
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        "set {set}: brick {brick} lost changes and waits for another one: {others:?}"
                    );
                }
            }
            Err(e) => tracing::debug!("set {set}: where brick {brick} stands: {e}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The other bricks that hold the data, with their servers; who leads comes first.
fn others(set: &Set, brick: BrickId) -> Vec<(BrickId, ServerId)> {
    let fit = |b: &&cluster::Brick| b.id != brick && !b.arbiter && set.view.in_sync.contains(&b.id);
    let mut others: Vec<_> = set.bricks.iter().filter(fit).map(|b| (b.id, b.server)).collect();
    others.sort_by_key(|(id, _)| set.view.primary != Some(*id));
    others
}

/// The first one whose server answers.
async fn heir(control: &Control, state: &State, others: &[(BrickId, ServerId)]) -> Option<BrickId> {
    for (id, server) in others {
        let Some(server) = state.servers.get(server) else { continue };
        let asked = control.ask_cluster(&server.address, ClusterRequest::Identify);
        if let Ok(Ok(_)) = tokio::time::timeout(LOOK, asked).await {
            return Some(*id);
        }
    }
    None
}

/// The brick leaves, and another one leads.
fn leaves(set: &Set, brick: BrickId, heir: BrickId) -> ViewChange {
    let in_sync: BTreeSet<BrickId> = set.view.in_sync.iter().copied().filter(|b| *b != brick).collect();
    tracing::info!("set {}: brick {brick} lost changes: it leaves, {heir} leads", set.id);
    ViewChange {
        set: set.id,
        expect_epoch: set.view.epoch,
        primary: Some(heir),
        in_sync,
        healed: BTreeSet::new(),
        lost: false,
        reason: "a brick lost changes".to_owned(),
    }
}

/// The last one goes on with what it has; an arbiter has to compare itself with it.
fn goes_on(set: &Set, brick: BrickId) -> ViewChange {
    ViewChange {
        set: set.id,
        expect_epoch: set.view.epoch,
        primary: set.view.primary,
        in_sync: BTreeSet::from([brick]),
        healed: BTreeSet::new(),
        lost: true,
        reason: "the only brick lost changes".to_owned(),
    }
}

/// The epoch of the new view, if it was agreed on.
async fn agree(control: &Control, change: ViewChange) -> Option<Epoch> {
    let (set, epoch) = (change.set, change.expect_epoch.next());
    match control.store().propose_anywhere(Command::ChangeView(change), PATIENCE).await {
        Ok(_) => return Some(epoch),
        Err(ProposeError::Refused(e)) if e.is_stale() => {}
        Err(e) => {
            tracing::warn!("change the view of set {set}: {e}");
            tokio::time::sleep(AGAIN).await;
        }
    }
    None
}
