//! The status of volumes: collected from every server that has one of their bricks.

use super::Control;
use super::answers::{not_found, unreachable, volume_state};
use super::protocol::{ClusterReply, ClusterRequest};
use super::volumes::{chosen, volume};
use crate::findings::server_named;
use crate::limits::STATUS_WAIT;
use crate::shard::{BrickReport, ClientReport, ShardMessage};
use crate::shared::lock;
use admin::{AdminError, BrickRole, BrickStatus, HealInfo, ServerCounters, VolumeReport, VolumeReports};
use cluster::{Brick, Server, Set, State, Status, Volume};
use ids::{BrickId, Lsn, ServerId};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;
use tokio::sync::oneshot;

/// A shard that does not report within this time hangs: whoever asked this server gets the rest in time.
const LOOK: Duration = Duration::from_secs(1);

impl Control {
    /// Asks all shards; what those answered that answer in time.
    pub(super) async fn ask_shards<T>(
        &self,
        message: impl Fn(oneshot::Sender<Vec<T>>) -> ShardMessage,
    ) -> Vec<T> {
        let asked = self.shared.shards().map(|shard| async {
            let (to, from) = oneshot::channel();
            shard.send(message(to)).ok()?;
            tokio::time::timeout(LOOK, from).await.ok()?.ok()
        });
        join_all(asked).await.into_iter().flatten().flatten().collect()
    }

    pub(super) async fn reports(&self) -> HashMap<BrickId, BrickReport> {
        self.ask_shards(ShardMessage::Report).await.into_iter().map(|r| (r.brick, r)).collect()
    }

    /// The sessions of all shards.
    pub(super) async fn client_reports(&self) -> Vec<ClientReport> {
        self.ask_shards(ShardMessage::Clients).await
    }

    /// Asks servers; what they answered, and a line for each that did not.
    pub(super) async fn ask_servers(
        &self,
        servers: impl Iterator<Item = &Server>,
        request: &ClusterRequest,
    ) -> (Vec<ClusterReply>, Vec<String>) {
        let asked = servers.map(|server| async {
            let wait = tokio::time::timeout(STATUS_WAIT, self.ask_cluster(&server.address, request.clone()));
            match wait.await {
                Ok(Ok(reply)) => Ok(reply),
                Ok(Err(e)) => Err(format!("{} did not tell: {e}", server_named(&server.host))),
                Err(_) => Err(format!("{} did not answer in time", server_named(&server.host))),
            }
        });
        let (mut replies, mut notes) = (Vec::new(), Vec::new());
        for answer in join_all(asked).await {
            match answer {
                Ok(reply) => replies.push(reply),
                Err(note) => notes.push(note),
            }
        }
        (replies, notes)
    }

    /// How many sessions there are.
    pub(super) async fn sessions(&self) -> usize {
        let all = self.client_reports().await;
        all.iter().filter(|c| c.connections > 0).map(|c| c.session).collect::<BTreeSet<_>>().len()
    }

    /// How this server's bricks of a volume do.
    pub(super) async fn own_status(&self, name: &str) -> Result<ClusterReply, AdminError> {
        let state = self.state();
        let unknown =
            || not_found(format!("its server does not know volume {name} yet: it reads the pool's store"));
        let volume = state.volume(name).ok_or_else(unknown)?;
        let me = self.shared.me();
        let host = state.servers.get(&me).map_or_else(String::new, |s| s.host.clone());
        let reports = self.reports().await;
        let errors = lock(&self.shared.brick_errors).clone();
        let mut bricks = Vec::new();
        for set in state.sets_of(volume) {
            for b in set.bricks.iter().filter(|b| b.server == me) {
                bricks.push(brick_status(&state, set, b, reports.get(&b.id), errors.get(&b.id).cloned()));
            }
        }
        let counters = ServerCounters { server: host, ops: self.shared.counters(volume.id).snapshot() };
        Ok(ClusterReply::Status { bricks, counters })
    }

    pub(super) async fn volume_status(&self, name: Option<&str>) -> Result<VolumeReports, AdminError> {
        let state = self.linearizable().await?;
        let mut all = Vec::new();
        for volume in chosen(&state, name)? {
            all.push(self.status_of(&state, volume).await);
        }
        Ok(VolumeReports { volumes: all })
    }

    pub(super) async fn status_of(&self, state: &State, volume: &Volume) -> VolumeReport {
        let servers: BTreeSet<ServerId> =
            state.sets_of(volume).flat_map(|s| s.bricks.iter().map(|b| b.server)).collect();
        let asked = servers.iter().filter_map(|s| state.servers.get(s)).map(|server| async {
            let request = ClusterRequest::Status { volume: volume.name.clone() };
            let wait = tokio::time::timeout(STATUS_WAIT, self.ask_cluster(&server.address, request));
            let answer =
                wait.await.unwrap_or_else(|_| Err(unreachable(format!("{}: no answer", server.address))));
            (server.id, answer)
        });
        let mut bricks: BTreeMap<BrickId, BrickStatus> = BTreeMap::new();
        let (mut counters, mut down) = (Vec::new(), BTreeSet::new());
        for (server, answer) in join_all(asked).await {
            match answer {
                Ok(ClusterReply::Status { bricks: theirs, counters: c }) => {
                    // A server that has just come back may not know yet that it is out of the view.
                    bricks.extend(theirs.into_iter().map(|b| (b.brick, as_agreed(state, b))));
                    counters.push(c);
                }
                Ok(_) => {}
                Err(why) => {
                    down.insert(server);
                    for set in state.sets_of(volume) {
                        for b in set.bricks.iter().filter(|b| b.server == server) {
                            bricks.insert(b.id, brick_status(state, set, b, None, Some(why.message.clone())));
                        }
                    }
                }
            }
        }
        let mut notes =
            if volume.status == Status::Started { state.volume_notes(volume, &down) } else { vec![] };
        // A view may name a primary that cannot be opened.
        let unserved = |set: &&Set| {
            let closed = |b: &&Brick| bricks.get(&b.id).is_none_or(|s| !s.online);
            let mut holders = set.bricks.iter().filter(|b| !b.arbiter && set.view.in_sync.contains(&b.id));
            set.view.primary.is_some() && holders.all(|b| closed(&b))
        };
        if volume.status == Status::Started {
            notes.extend(state.sets_of(volume).filter(unserved).map(|set| state.offline_note(volume, set)));
        }
        let order = state.sets_of(volume).flat_map(|s| s.bricks.iter().map(|b| b.id));
        VolumeReport {
            name: volume.name.clone(),
            status: volume_state(volume.status),
            bricks: order.filter_map(|b| bricks.remove(&b)).collect(),
            servers: counters,
            notes,
        }
    }

    pub(super) async fn heal_info(&self, name: &str) -> Result<HealInfo, AdminError> {
        let state = self.linearizable().await?;
        let status = self.status_of(&state, volume(&state, name)?).await;
        let bricks = status.bricks.into_iter().filter(|b| !b.in_sync).collect();
        Ok(HealInfo { name: name.to_owned(), bricks, notes: status.notes })
    }
}

/// Awaits all at once: each has its own time limit.
pub(super) async fn join_all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut pinned: Vec<_> = futures.map(|f| (Box::pin(f), None)).collect();
    std::future::poll_fn(|cx| {
        let mut waiting = false;
        for (future, output) in &mut pinned {
            if output.is_none() {
                match future.as_mut().poll(cx) {
                    std::task::Poll::Ready(o) => *output = Some(o),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    pinned.into_iter().filter_map(|(_, o)| o).collect()
}

/// What a server says of its brick, with what the pool agreed on about it.
fn as_agreed(state: &State, b: BrickStatus) -> BrickStatus {
    let set = state.sets.get(&b.set.id);
    let in_sync = set.is_some_and(|s| s.view.in_sync.contains(&b.brick));
    let role = if in_sync || b.role == BrickRole::Offline { b.role } else { BrickRole::Healing };
    BrickStatus { set: state.named(b.set.id).set, in_sync, role, ..b }
}

fn brick_status(
    state: &State,
    set: &Set,
    b: &Brick,
    report: Option<&BrickReport>,
    error: Option<String>,
) -> BrickStatus {
    let in_sync = set.view.in_sync.contains(&b.id);
    let role = match report {
        None => BrickRole::Offline,
        Some(_) if !in_sync => BrickRole::Healing,
        Some(r) if r.role == replica::Role::Failed => BrickRole::Offline,
        Some(r) if matches!(r.role, replica::Role::Primary) => BrickRole::Primary,
        Some(_) if b.arbiter => BrickRole::Arbiter,
        Some(_) => BrickRole::Secondary,
    };
    BrickStatus {
        set: set.name(),
        brick: b.id,
        server: state.servers.get(&b.server).map_or_else(String::new, |s| s.host.clone()),
        path: b.path.clone(),
        online: role != BrickRole::Offline,
        in_sync,
        role,
        epoch: report.map_or(set.view.epoch, |r| r.epoch),
        lsn: report.map_or(Lsn(0), |r| r.lsn),
        durable_lsn: report.map_or(Lsn(0), |r| r.durable),
        free_bytes: report.map_or(0, |r| r.free),
        total_bytes: report.map_or(0, |r| r.total),
        heal: report.and_then(|r| r.heal),
        moved: report.filter(|_| role == BrickRole::Primary).map(|r| r.moved.clone()),
        error,
    }
}
