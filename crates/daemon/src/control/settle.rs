//! The asking for the arbitration of a set (see [`cluster::arbitration`], which decides).
//!
//! A brick that cannot vouch for what it holds, after a power cut or with objects in doubt, waits here until the pool has
//! said where it stands. A brick that cannot be opened leaves its view here, once another one is open.
//! The pool's store orders what comes out of it, and says from which epoch on nothing is missing: a client that wrote
//! before and syncs after is told.

use super::Control;
use super::protocol::{ClusterReply, ClusterRequest};
use crate::shared::lock;
use cluster::arbitration::{Evidence, Verdict, decide};
use cluster::{Command, Set, State, ViewChange};
use config_store::ProposeError;
use ids::{BrickId, Epoch, SetId};
use server_core::Standing;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_secs(2);

/// Answers when the pool has agreed on it. `None`: there is no such set any more.
pub(super) async fn settle(control: &Arc<Control>, set: SetId, brick: BrickId) -> Option<Standing> {
    let mut told = String::new();
    loop {
        match control.store().linearizable_state(PATIENCE).await {
            Ok(state) => {
                let known = state.sets.get(&set)?;
                let epoch = known.view.epoch;
                let here = Some(Standing { epoch, last: false });
                if !known.view.in_sync.contains(&brick) {
                    return here;
                }
                match decide(known, brick, &in_sync_evidence(control, &state, known).await) {
                    Verdict::Stand => return here,
                    Verdict::Propose(change) => {
                        let lost = change.lost;
                        match agree(control, change).await {
                            Some(epoch) if lost => return Some(Standing { epoch, last: true }),
                            _ => continue,
                        }
                    }
                    Verdict::Wait(others) => {
                        let why = waits_for(&state, known, &others);
                        if told != why {
                            tracing::warn!("set {set}: brick {brick}: {why}");
                            lock(&control.shared.brick_errors).insert(brick, why.clone());
                            told = why;
                        }
                    }
                }
            }
            Err(e) => {
                let why = "it waits for the pool to say where it stands: most of the voters do not answer";
                lock(&control.shared.brick_errors).insert(brick, why.to_owned());
                tracing::debug!("set {set}: where brick {brick} stands: {e}");
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// A brick could not be opened: it leaves its view if another one is open. Asked again after each attempt to open it.
pub(super) async fn refused(control: &Arc<Control>, set: SetId, brick: BrickId) {
    let Ok(state) = control.store().linearizable_state(PATIENCE).await else { return };
    let Some(known) = state.sets.get(&set).filter(|s| s.view.in_sync.contains(&brick)) else { return };
    if let Verdict::Propose(change) = decide(known, brick, &in_sync_evidence(control, &state, known).await) {
        agree(control, change).await;
    }
}

fn waits_for(state: &State, set: &Set, others: &[BrickId]) -> String {
    let names = others.iter().filter_map(|b| set.brick(*b)).map(|b| state.brick_name(b));
    format!(
        "it may have lost changes that were not synced, and waits for bricks that may have kept them: {}",
        names.collect::<Vec<_>>().join(", ")
    )
}

async fn in_sync_evidence(control: &Control, state: &State, set: &Set) -> BTreeMap<BrickId, Evidence> {
    gather(control, state, set, &set.view.in_sync).await
}

/// What is known of these bricks of a set, each from its own server.
pub(super) async fn gather(
    control: &Control,
    state: &State,
    set: &Set,
    wanted: &BTreeSet<BrickId>,
) -> BTreeMap<BrickId, Evidence> {
    let asked = set.bricks.iter().filter(|b| wanted.contains(&b.id)).map(|b| async {
        if b.server == control.shared.me() {
            return (b.id, control.own_evidence(set.id, b.id).await);
        }
        let server = state.servers.get(&b.server).filter(|s| !s.lost);
        let Some(server) = server else { return (b.id, Evidence::Silent) };
        let request = ClusterRequest::Evidence { pool: state.pool.clone(), set: set.id, brick: b.id };
        let answer = tokio::time::timeout(LOOK, control.ask_cluster(&server.address, request)).await;
        match answer {
            Ok(Ok(ClusterReply::Evidence(evidence))) => (b.id, evidence),
            _ => (b.id, Evidence::Silent),
        }
    });
    super::status::join_all(asked).await.into_iter().collect()
}

/// The epoch of the new view, if it was agreed on.
async fn agree(control: &Control, change: ViewChange) -> Option<Epoch> {
    let (set, epoch) = (change.set, change.expect_epoch.next());
    tracing::info!("set {set}: propose {:?}, led by {:?}: {}", change.in_sync, change.primary, change.reason);
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
