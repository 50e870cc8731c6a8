//! Requests of the shards to the control plane: new views, arbitration, and a check of servers that seem dead.

use super::protocol::Request;
use super::{Control, arbitrate};
use crate::clock;
use crate::limits::PROPOSE_WAIT;
use crate::shared::ControlRequest;
use cluster::{Command, ViewChange};
use config_store::ProposeError;
use ids::ServerId;
use server_core::ArbitrationRun;
use server_core::suspicion::{self, Suspect, Suspicions};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

pub(super) async fn run(
    control: Arc<Control>,
    mut received_requests: mpsc::UnboundedReceiver<ControlRequest>,
) {
    let mut suspicions = Suspicions::default();
    while let Some(control_request) = received_requests.recv().await {
        let control = control.clone();
        match control_request {
            ControlRequest::View(set, proposal, healed) => {
                let change = ViewChange {
                    set,
                    expect_epoch: proposal.expect,
                    primary: proposal.primary,
                    in_sync: proposal.in_sync,
                    healed: healed.into_iter().collect(),
                    lost: proposal.lost,
                    reason: proposal.reason.to_owned(),
                };
                tokio::spawn(async move {
                    let result =
                        control.store().propose_anywhere(Command::ChangeView(change), PROPOSE_WAIT).await;
                    match result {
                        Ok(_) => {}
                        Err(ProposeError::Refused(e)) if e.is_stale() => {}
                        Err(e) => tracing::warn!("change the view of {}: {e}", control.state().named(set)),
                    }
                });
            }
            ControlRequest::Arbitrate(set, brick, answer) => {
                tokio::spawn(async move {
                    let arbitration_run = ArbitrationRun::of_uncertain(set, brick);
                    if let Some(verdict) = arbitrate::arbitrate(&control, set, brick, arbitration_run).await {
                        let _closed = answer.send(verdict);
                    }
                });
            }
            ControlRequest::Refused(set, brick) => {
                tokio::spawn(async move {
                    arbitrate::arbitrate(&control, set, brick, ArbitrationRun::of_refusal(set, brick)).await;
                });
            }
            ControlRequest::Mounted(brick, mount) => {
                tokio::spawn(async move {
                    let command = Command::BrickMounted { brick, mount };
                    if let Err(e) = control.store().propose_anywhere(command, PROPOSE_WAIT).await {
                        tracing::warn!("note where brick {brick} is mounted: {e}");
                    }
                });
            }
            ControlRequest::Suspect(server) => {
                if suspicions.note(clock::now(), server) {
                    tokio::spawn(async move { suspect(&control, server).await });
                }
            }
        }
    }
}

/// Somebody could not reach a server's port: does what [`server_core::suspicion`] says.
pub(super) async fn suspect(control: &Arc<Control>, server: ServerId) {
    let store = control.store();
    let mut replaced = false;
    loop {
        let (state, leader, me) = (store.state(), store.leader(), control.shared.me());
        let Some(address) = state.servers.get(&server).map(|s| s.address.clone()) else { return };
        let leads = if store.is_leader() { Some(me) } else { leader.as_ref().map(|(id, _)| *id) };
        match suspicion::suspect(&state, server, leads, me, replaced) {
            Suspect::Nothing => return,
            Suspect::ReplaceLeader => {
                if !control.peers.is_gone(&address).await {
                    return;
                }
                store.replace_leader(server).await;
                replaced = true;
            }
            Suspect::DeclareDown => {
                if control.peers.is_gone(&address).await {
                    tracing::warn!("server {server} at {address} does not run: its bricks leave the views");
                    control.note_silent(server, &state);
                    if let Err(e) = store.propose(Command::ServerDown { server }).await {
                        tracing::warn!("declare server {server} down: {e}");
                    }
                    store.report_down(server);
                }
                return;
            }
            Suspect::Tell(_) => {
                let Some((_, at)) = leader else { return };
                let told = control.peers.ask(&at, &Request::Suspect { server }, Duration::from_secs(3)).await;
                if let Err(e) = told {
                    tracing::debug!("tell the leader of server {server}: {e}");
                }
                return;
            }
        }
    }
}
