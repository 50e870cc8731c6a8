//! Leases: sends heartbeats and answers them. What they are worth is decided by [`server_core::leases`].

use super::Control;
use super::protocol::{Beat, Request, Response, Room};
use crate::clock;
use crate::shared::lock;
use cluster::liveness::HEARTBEAT;
use cluster::{Command, LEVEL};
use config_store::{ConfigStore, ProposeError};
use ids::ServerId;
use server_core::leases::{Grant, Heard, Leadership, LeaseGiver, grant, next_beat, next_judging};
use server_core::levels::Levels;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Why no lease is given is told when that is new, and once in so long.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// The last refusal that was told, and when.
#[derive(Debug, Default)]
struct Refusals(Option<(String, Duration)>);

impl Refusals {
    /// Whether a refusal is to be told at `now`.
    fn is_news(&mut self, why: &str, now: Duration) -> bool {
        let told =
            self.0.as_ref().is_some_and(|(last, at)| last == why && now.saturating_sub(*at) < TOLD_AGAIN);
        if !told {
            self.0 = Some((why.to_owned(), now));
        }
        !told
    }
}

/// The leader's record, and what this server last heard of it.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    giver: Mutex<LeaseGiver>,
    levels: Mutex<Levels>,
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

/// Renews this server's lease, for ever.
pub(super) async fn renew(control: Arc<Control>, store: ConfigStore) {
    let mut leader = store.watch_leader();
    let mut refusals = Refusals::default();
    loop {
        let sent = clock::now();
        let granted = if store.is_leader() {
            let granted = grant(leads_at(&store).await, &store.state());
            if granted.renewed {
                *lock(&control.leases.down) = lock(&control.leases.giver).down();
            }
            Some(granted)
        } else {
            beat(&control, &store, &mut refusals).await
        };
        let lease = granted.and_then(|g| g.lease(sent, store.state().version));
        lease.into_iter().for_each(|lease| control.shared.renew_lease(lease));
        control.leases.heard.store(lease.is_some(), Ordering::Relaxed);
        tokio::select! {
            () = tokio::time::sleep(next_beat(lease.is_some())) => {}
            _ = leader.changed() => {}
        }
    }
}

/// Sends a heartbeat. `None`: no answer of a leader.
async fn beat(control: &Control, store: &ConfigStore, refusals: &mut Refusals) -> Option<Grant> {
    let (_, address) = store.leader()?;
    let rooms = lock(&control.shared.rooms).all().map(Room::from).collect();
    let (server, identity) = (control.shared.me(), control.folder.identity.clone());
    let beat = Beat { server, identity, rooms, level: LEVEL };
    match control.peers.ask(&address, &Request::Beat(beat), HEARTBEAT * 2).await {
        Ok(Response::Lease { renewed, lease_ms, down, version, rooms }) => {
            *lock(&control.leases.down) = down;
            control.learn_rooms(None, rooms);
            refusals.0 = None;
            return Some(Grant { renewed, length: Duration::from_millis(lease_ms), version });
        }
        Ok(Response::Error(e)) => {
            let why = e.to_string();
            if refusals.is_news(&why, clock::now()) {
                tracing::warn!("lease refused: {why}");
            }
        }
        Ok(_) => {}
        Err(e) => tracing::debug!("heartbeat: {e}"),
    }
    None
}

impl Control {
    fn learn_rooms(&self, by: Option<ServerId>, rooms: Vec<Room>) {
        let (state, me) = (self.state(), self.shared.me());
        lock(&self.shared.rooms).learn(&state, me, by, rooms.into_iter().map(Room::into));
    }

    pub(super) async fn on_beat(&self, beat: Beat) -> Response {
        let store = self.store();
        if !store.is_leader() {
            return Response::NotLeader;
        }
        let Beat { server, identity, rooms, level } = beat;
        let state = store.state();
        // Whoever gets no lease is not heard, so that it is soon taken for down.
        if state.is_server(server, &identity) && !lock(&self.leases.levels).heard(server, level, &state) {
            return Response::Error(format!(
                "server {server} runs a program that is older than what the pool counts on (level {level}, not {}): install the \
                 program of the other servers",
                state.level
            ));
        }
        let heard = lock(&self.leases.giver).on_beat(clock::now(), server, &identity, &store.state());
        if heard == Heard::Stranger {
            return Response::Error(format!(
                "server {server} is not the one that the pool knows by that number: start it with its own state folder, \
                 or with an empty one and run mortar peer replace HOST at another server"
            ));
        }
        self.learn_rooms(Some(server), rooms);
        let mut confirmed = None;
        if heard == Heard::Confirm {
            store.report_up(server);
            confirmed = leads_at(&store).await;
        }
        let Grant { renewed, length, version } = grant(confirmed, &store.state());
        Response::Lease {
            renewed,
            lease_ms: u64::try_from(length.as_millis()).unwrap_or(0),
            down: lock(&self.leases.giver).down(),
            version,
            rooms: lock(&self.shared.rooms).all().map(Room::from).collect(),
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

/// Says so when no server is of a lower level any more.
async fn raise_level(control: &Control, store: &ConfigStore) {
    let me = (control.shared.me(), LEVEL);
    let Some(level) = lock(&control.leases.levels).next(me, &store.state()) else { return };
    match store.propose(Command::RaiseLevel { level }).await {
        Ok(_) => tracing::info!("all servers are of level {level}"),
        Err(e) => tracing::warn!("say that all servers are of level {level}: {e}"),
    }
}

/// While this server leads: declares servers down whose leases ran out.
pub(super) async fn detect_failures(control: Arc<Control>, store: ConfigStore) {
    lock(&control.leases.giver).begin(clock::now(), &store.state());
    let mut leader = store.watch_leader();
    leader.mark_unchanged();
    loop {
        let (now, leads) = (clock::now(), store.is_leader());
        let changed = leader.has_changed().unwrap_or(false);
        leader.mark_unchanged();
        let who = Leadership { me: control.shared.me(), leads, changed };
        let judged = lock(&control.leases.giver).detect_failures(now, who, &store.state());
        if judged.forget_reports {
            store.forget_reports();
            lock(&control.leases.levels).forget();
        }
        if leads {
            raise_level(&control, &store).await;
        }
        for server in judged.down {
            tracing::warn!("server {server} is silent: its lease ran out");
            control.note_silent(server, &store.state());
            store.report_down(server);
            match store.propose(Command::ServerDown { server }).await {
                Ok(_) | Err(ProposeError::Refused(_)) => lock(&control.leases.giver).decided(server),
                Err(e) => tracing::warn!("declare server {server} down: {e}"),
            }
        }
        tokio::time::sleep(next_judging()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusals, TOLD_AGAIN};
    use std::time::Duration;

    #[test]
    fn a_refusal_at_each_heartbeat_is_told_once_a_minute() {
        let (mut refusals, beat) = (Refusals::default(), Duration::from_millis(100));
        let told = |refusals: &mut Refusals, why, from: Duration| {
            (0..100).filter(|n| refusals.is_news(why, from + beat * *n)).count()
        };
        assert_eq!(told(&mut refusals, "not the one", Duration::ZERO), 1);
        assert_eq!(told(&mut refusals, "not the one", TOLD_AGAIN / 2), 0);
        assert_eq!(told(&mut refusals, "not the one", TOLD_AGAIN), 1);
        assert_eq!(told(&mut refusals, "of a lower level", TOLD_AGAIN), 1);
    }
}
