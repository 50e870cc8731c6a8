//! Leases: each server's right to answer, renewed by heartbeats to the pool store's leader.

use super::Control;
use super::protocol::{Beat, Request, Response, Room};
use crate::clock;
use crate::shared::lock;
use cluster::Command;
use cluster::liveness::{HEARTBEAT, Input, Liveness, Output};
use config_store::ConfigStore;
use ids::ServerId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The leader's record, and what this server last heard of it.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    liveness: Mutex<Liveness>,
    down: Mutex<BTreeSet<ServerId>>,
    heard: AtomicBool,
}

impl Leases {
    /// Servers whose leases ran out, as the leader last said.
    pub(super) fn down(&self) -> BTreeSet<ServerId> {
        lock(&self.down).clone()
    }

    /// Whether the leader answered the last heartbeat.
    pub(super) fn heard_of_leader(&self) -> bool {
        self.heard.load(Ordering::Relaxed)
    }
}

/// The shortest ping-timeout of any volume: leases are for whole servers.
fn lease_length(store: &ConfigStore) -> Duration {
    let state = store.state();
    let all = state.volumes.values().map(|v| v.typed_options().ping_timeout);
    all.min().filter(|d| !d.is_zero()).unwrap_or(cluster::liveness::LEASE)
}

/// Renews this server's lease, for ever.
pub(super) async fn renew(control: Arc<Control>, store: ConfigStore) {
    let mut leader = store.watch_leader();
    loop {
        let sent = clock::now();
        let renewed = if store.is_leader() {
            let lease = lease_length(&store);
            if let Some(version) = leads_at(&store).await {
                control.shared.renew_lease(sent + lease, version);
                *lock(&control.leases.down) = lock(&control.leases.liveness).down();
                true
            } else {
                false
            }
        } else {
            beat(&control, &store, sent).await
        };
        control.leases.heard.store(renewed, Ordering::Relaxed);
        let pause = if renewed { HEARTBEAT } else { HEARTBEAT / 5 };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = leader.changed() => {}
        }
    }
}

async fn beat(control: &Control, store: &ConfigStore, sent: Duration) -> bool {
    let Some((_, address)) = store.leader() else { return false };
    let rooms = lock(&control.shared.rooms).values().map(|r| Room::from(*r)).collect();
    let beat = Beat { server: control.shared.me(), identity: control.folder.identity.clone(), rooms };
    match control.peers.ask(&address, &Request::Beat(beat), HEARTBEAT * 2).await {
        Ok(Response::Lease { renewed, lease_ms, down, version, rooms }) => {
            *lock(&control.leases.down) = down;
            control.learn_rooms(&rooms);
            // A server that does not know the pool's newest state might act in a view that is over.
            if renewed && store.state().version >= version {
                control.shared.renew_lease(sent + Duration::from_millis(lease_ms), version);
                return true;
            }
            false
        }
        Ok(Response::Error(e)) => {
            tracing::warn!("lease refused: {e}");
            false
        }
        Ok(_) => false,
        Err(e) => {
            tracing::debug!("heartbeat: {e}");
            false
        }
    }
}

impl Control {
    /// Takes over what others say of their sets' room; this server knows better of the sets that it leads.
    fn learn_rooms(&self, rooms: &[Room]) {
        let state = self.state();
        let me = self.shared.me();
        let mine = |set| {
            let set: Option<&cluster::Set> = state.sets.get(&set);
            set.and_then(|s| s.brick(s.view.primary?)).is_some_and(|b| b.server == me)
        };
        let mut known = lock(&self.shared.rooms);
        known.retain(|set, _| state.sets.contains_key(set));
        for room in rooms.iter().filter(|r| state.sets.contains_key(&r.set) && !mine(r.set)) {
            known.insert(room.set, (*room).into());
        }
    }

    pub(super) async fn on_beat(&self, beat: Beat) -> Response {
        let store = self.store();
        if !store.is_leader() {
            return Response::NotLeader;
        }
        if let Err(e) = store.check_identity(beat.server, &beat.identity) {
            return Response::Error(format!(
                "server {} is not the one that the pool knows by that number ({e}): start it with its own state folder, \
                 or with an empty one and run mortar peer replace HOST at another server",
                beat.server
            ));
        }
        let state = store.state();
        let led: Vec<Room> = beat
            .rooms
            .into_iter()
            .filter(|r| {
                let set = state.sets.get(&r.set);
                set.and_then(|s| s.brick(s.view.primary?)).is_some_and(|b| b.server == beat.server)
            })
            .collect();
        self.learn_rooms(&led);
        let mut out = Vec::new();
        lock(&self.leases.liveness).step(clock::now(), Input::Heartbeat(beat.server), &mut out);
        let mut renewed = out.contains(&Output::Renew(beat.server));
        if renewed {
            // Also one that was declared down by its port before its lease ran out.
            store.report_up(beat.server);
        }
        let mut version = 0;
        if renewed {
            // Only a leader that is one for certain may promise anything, and only to who knows all that was agreed.
            match leads_at(&store).await {
                Some(v) => version = v,
                None => renewed = false,
            }
        }
        let lease = lease_length(&store);
        Response::Lease {
            renewed,
            lease_ms: u64::try_from(lease.as_millis()).unwrap_or(0),
            down: lock(&self.leases.liveness).down(),
            version,
            rooms: lock(&self.shared.rooms).values().map(|r| Room::from(*r)).collect(),
        }
    }
}

/// If this server leads for certain: the version of the state with everything that was agreed until now.
async fn leads_at(store: &ConfigStore) -> Option<u64> {
    if !store.confirm_leader().await {
        return None;
    }
    store.linearizable_state(HEARTBEAT).await.ok().map(|state| state.version)
}

/// While this server leads: declares servers down whose leases ran out.
pub(super) async fn judge(control: Arc<Control>, store: ConfigStore) {
    let mut led = false;
    // What an earlier store of this process made of it does not count.
    lock(&control.leases.liveness).step(clock::now(), Input::LostLeadership, &mut Vec::new());
    loop {
        let now = clock::now();
        let leads = store.is_leader();
        let mut out = Vec::new();
        {
            let me = control.shared.me();
            let others = store.state().servers.keys().copied().filter(|s| *s != me).collect();
            let mut liveness = lock(&control.leases.liveness);
            liveness.step(now, Input::Servers(others), &mut out);
            liveness.step(now, Input::Lease(lease_length(&store)), &mut out);
            if leads != led {
                liveness.step(now, if leads { Input::BecameLeader } else { Input::LostLeadership }, &mut out);
                led = leads;
                store.forget_reports();
            }
            liveness.step(now, Input::Tick, &mut out);
        }
        for output in out {
            if let Output::Down(server) = output {
                tracing::warn!("server {server} is silent: its lease ran out");
                store.report_down(server);
                if let Err(e) = store.propose(Command::ServerDown { server }).await {
                    tracing::warn!("declare server {server} down: {e}");
                }
            }
        }
        tokio::time::sleep(HEARTBEAT / 5).await;
    }
}
