//! The asking for the arbitration of a set: reads, asks and proposes what [`server_core::ArbitrationRun`] says.

use super::Control;
use super::protocol::{ClusterReply, ClusterRequest};
use super::status::join_all;
use crate::limits::ARBITRATION_WAIT;
use crate::shared::lock;
use cluster::arbitration::Evidence;
use cluster::{Command, State, ViewChange};
use config_store::ProposeError;
use ids::{BrickId, ServerId, SetId};
use server_core::arbitration_run::{Proposed, Source, Step};
use server_core::{ArbitrationRun, RecoveryVerdict};
use std::collections::BTreeMap;
use std::time::Duration;

/// A server that says nothing of its bricks for so long is counted as silent.
const LOOK: Duration = Duration::from_secs(2);

/// Goes on until it is over; what it waits for is shown with the brick.
pub(super) async fn arbitrate(
    control: &Control,
    set: SetId,
    brick: BrickId,
    mut arbitration_run: ArbitrationRun,
) -> Option<RecoveryVerdict> {
    let mut told: Option<String> = None;
    let mut step = arbitration_run.go_on();
    loop {
        if let Some(why) = arbitration_run.why().filter(|why| told.as_deref() != Some(why)) {
            tracing::warn!("{}: brick {brick}: {why}", control.state().named(set));
            lock(&control.shared.brick_errors).insert(brick, why.to_owned());
            told = Some(why.to_owned());
        }
        let me = control.shared.me();
        step = match step {
            Step::Done(verdict) => return verdict,
            Step::Pause(time) => {
                tokio::time::sleep(time).await;
                arbitration_run.go_on()
            }
            Step::Look => arbitration_run.on_state(Some(&control.state()), me),
            Step::Read => match control.store().linearizable_state(ARBITRATION_WAIT).await {
                Ok(state) => arbitration_run.on_state(Some(&state), me),
                Err(e) => {
                    tracing::debug!("{}: where brick {brick} stands: {e}", control.state().named(set));
                    arbitration_run.on_state(None, me)
                }
            },
            Step::Ask(wanted) => arbitration_run.on_evidence(gather(control, set, &wanted).await),
            Step::Propose(change) => arbitration_run.on_proposed(propose(control, change).await),
        };
    }
}

/// What is known of these bricks of a set, each from its own server.
pub(super) async fn gather(
    control: &Control,
    set: SetId,
    wanted: &[(BrickId, Source)],
) -> BTreeMap<BrickId, Evidence> {
    let state = control.state();
    let asked = wanted.iter().map(|(brick, source)| async {
        let evidence = match source {
            Source::Here => control.own_evidence(set, *brick).await,
            Source::Server(server) => theirs(control, &state, *server, set, *brick).await.unwrap_or_default(),
        };
        (*brick, evidence)
    });
    join_all(asked).await.into_iter().collect()
}

async fn theirs(
    control: &Control,
    state: &State,
    server: ServerId,
    set: SetId,
    brick: BrickId,
) -> Option<Evidence> {
    let address = &state.servers.get(&server)?.address;
    let request = ClusterRequest::Evidence { pool: state.pool.clone(), set, brick };
    match tokio::time::timeout(LOOK, control.ask_cluster(address, request)).await {
        Ok(Ok(ClusterReply::Evidence(evidence))) => Some(evidence),
        _ => None,
    }
}

async fn propose(control: &Control, change: ViewChange) -> Proposed {
    let set = control.state().named(change.set);
    tracing::info!("{set}: propose {:?}, led by {:?}: {}", change.in_sync, change.primary, change.reason);
    match control.store().propose_anywhere(Command::ChangeView(change), ARBITRATION_WAIT).await {
        Ok(_) => Proposed::Agreed,
        Err(ProposeError::Refused(e)) => {
            let stale = e.is_stale();
            if !stale {
                tracing::warn!("change the view of {set}: {e}");
            }
            Proposed::Refused { stale }
        }
        Err(e) => {
            tracing::warn!("change the view of {set}: {e}");
            Proposed::Unknown
        }
    }
}
