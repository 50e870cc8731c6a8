//! What the shards ask for: new views, and a look at servers that seem dead.

use super::protocol::Request;
use super::{Control, settle};
use crate::shared::Wish;
use cluster::{Command, ViewChange};
use config_store::ProposeError;
use ids::ServerId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(10);
/// A suspicion is not passed on again within this time.
const AGAIN: Duration = Duration::from_millis(400);

pub(super) async fn run(control: Arc<Control>, mut wished: mpsc::UnboundedReceiver<Wish>) {
    let mut suspected: HashMap<ServerId, Instant> = HashMap::new();
    while let Some(wish) = wished.recv().await {
        let control = control.clone();
        match wish {
            Wish::View(set, proposal, healed) => {
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
                        control.store().propose_anywhere(Command::ChangeView(change), PATIENCE).await;
                    match result {
                        Ok(_) => {}
                        Err(ProposeError::Refused(e)) if e.is_stale() => {}
                        Err(e) => tracing::warn!("change the view of set {set}: {e}"),
                    }
                });
            }
            Wish::Settle(set, brick, answer) => {
                tokio::spawn(async move {
                    if let Some(standing) = settle::settle(&control, set, brick).await {
                        let _closed = answer.send(standing);
                    }
                });
            }
            Wish::Refused(set, brick) => {
                tokio::spawn(async move { settle::refused(&control, set, brick).await });
            }
            Wish::Mounted(brick, mount) => {
                tokio::spawn(async move {
                    let command = Command::BrickMounted { brick, mount };
                    if let Err(e) = control.store().propose_anywhere(command, PATIENCE).await {
                        tracing::warn!("note where brick {brick} is mounted: {e}");
                    }
                });
            }
            Wish::Suspect(server) => {
                let now = Instant::now();
                if suspected.get(&server).is_some_and(|at| now < *at + AGAIN) {
                    continue;
                }
                suspected.insert(server, now);
                tokio::spawn(async move { suspect(&control, server).await });
            }
        }
    }
}

/// Somebody could not reach a server's port. The leader looks for itself; a port that refuses has no server behind it,
/// and a server that does not run cannot act, so it is declared down without waiting for its lease.
///
/// A process holds its port until the kernel has ended all its threads, and closes it before anything else when it stops in
/// order, after its sets. So a refusal means that nobody answers clients there any more; two servers have seen it by then.
/// (A firewall that refuses in a server's name to other servers, and only to them, is the one way to be wrong: clients
/// might read what was true up to a lease ago. Rules that drop are safe.) A process that starts anew, there or elsewhere,
/// begins without a lease.
pub(super) async fn suspect(control: &Arc<Control>, server: ServerId) {
    let store = control.store();
    let state = store.state();
    let Some(address) = state.servers.get(&server).map(|s| s.address.clone()) else { return };
    if store.leader().is_some_and(|(leader, _)| leader == server) {
        if !control.peers.is_gone(&address).await {
            return;
        }
        store.replace_leader(server).await;
    }
    if store.is_leader() {
        let serves = state.bricks_of(server).any(|(set, b)| {
            set.view.in_sync.contains(&b.id) && (set.view.in_sync.len() > 1 || set.view.primary == Some(b.id))
        });
        if !serves || !control.peers.is_gone(&address).await {
            return;
        }
        tracing::warn!("server {server} at {address} does not run: its bricks leave the views");
        if let Err(e) = store.propose(Command::ServerDown { server }).await {
            tracing::warn!("declare server {server} down: {e}");
        }
        store.report_down(server);
    } else if let Some((leader, at)) = store.leader()
        && leader != server
        && let Err(e) = control.peers.ask(&at, &Request::Suspect { server }, Duration::from_secs(3)).await
    {
        tracing::debug!("tell the leader of server {server}: {e}");
    }
}
