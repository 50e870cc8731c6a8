//! Opening and closing bricks: what waits for a disk runs elsewhere, and what it leads to is said here.

use super::Shard;
use super::set::SetHandle;
use crate::clock;
use crate::shared::{ControlRequest, lock};
use admin::Event;
use cluster::State;
use file_system::Host;
use ids::{BrickId, SetId};
use server_core::{OpenSet, OpenedBrick, Place, Unopened};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::{spawn_blocking, spawn_local};

/// Why a brick is not opened whose opening was given up: nobody is told.
const GIVEN_UP: &str = "its opening was given up";

impl Shard {
    pub(super) fn open(self: &Rc<Self>, set: SetId, brick: BrickId, state: &Arc<State>) {
        let knows_all = self.shared.lease(state.version).is_some_and(|until| clock::now() < until);
        let Some(open) = OpenSet::new(set, brick, state, &brick::Options::default(), knows_all) else {
            return;
        };
        let (kept, given_up) = oneshot::channel();
        self.openings.borrow_mut().insert(set, kept);
        let shard = self.clone();
        spawn_local(async move {
            match shard.opened(set, brick, open, given_up).await {
                Ok(opened) => shard.begin(set, brick, opened),
                Err(why) => shard.not_opened(set, brick, why),
            }
        });
    }

    async fn opened(
        &self,
        set: SetId,
        brick: BrickId,
        open: OpenSet,
        given_up: oneshot::Receiver<()>,
    ) -> Result<OpenedBrick, String> {
        let path = open.path().to_owned();
        let shared = self.shared.clone();
        let run = move || {
            let adopted = |objects| {
                let text = format!("its data is being adopted: {objects} objects so far");
                lock(&shared.brick_errors).insert(brick, text);
            };
            let place = Place { fs: &Host, mount_point: &brick::mount_point, adopted: &adopted };
            open.run(place, clock::now())
        };
        let opened = spawn_blocking(run).await.unwrap_or_else(|e| Err(format!("{path}: {e}")))?;
        self.arbitrated(set, brick, opened, given_up).await
    }

    /// A brick that cannot be certain of what it holds does nothing before the pool has said where it stands.
    async fn arbitrated(
        &self,
        set: SetId,
        brick: BrickId,
        opened: OpenedBrick,
        given_up: oneshot::Receiver<()>,
    ) -> Result<OpenedBrick, String> {
        let Some(evidence) = opened.uncertainty() else { return Ok(opened) };
        lock(&self.shared.unopened).insert(brick, Unopened::Waits(evidence));
        let (answer, verdict) = oneshot::channel();
        let _gone = self.shared.control_requests.send(ControlRequest::Arbitrate(set, brick, answer));
        let verdict = tokio::select! {
            biased;
            _ = given_up => Err(GIVEN_UP.to_owned()),
            verdict = verdict => verdict.map_err(|_| "its set is gone".to_owned()),
        };
        let after = spawn_blocking(move || opened.apply_verdict(verdict?)).await;
        after.unwrap_or_else(|e| Err(e.to_string()))
    }

    /// A brick is open and may take part.
    fn begin(self: &Rc<Self>, set: SetId, brick: BrickId, opened: OpenedBrick) {
        let mount = opened.moved().map(str::to_owned);
        let handle = SetHandle::new(self, opened);
        let kept = self.sets.borrow_mut().opened(set, brick, handle.clone());
        if let Err(unwanted) = kept {
            lock(&self.shared.unopened).remove(&brick);
            return self.close_set(brick, unwanted);
        }
        lock(&self.shared.brick_errors).remove(&brick);
        lock(&self.shared.unopened).remove(&brick);
        if let Some(mount) = mount {
            let _gone = self.shared.control_requests.send(ControlRequest::Mounted(brick, mount));
        }
        handle.on_state(&self.state());
        handle.step(set_core::Input::Tick);
    }

    fn not_opened(self: &Rc<Self>, set: SetId, brick: BrickId, why: String) {
        let wanted = self.sets.borrow_mut().not_opened(set, brick, clock::now());
        if !wanted {
            lock(&self.shared.unopened).remove(&brick);
            return self.on_closed(brick);
        }
        let known = lock(&self.shared.brick_errors).insert(brick, why.clone());
        if known.is_none_or(|k| k != why) {
            tracing::error!("open brick {brick} of {}: {why}", self.state().named(set));
            self.note_not_served(brick, &why);
        }
        let mut unopened = lock(&self.shared.unopened);
        let refused = Unopened::refused(unopened.get(&brick).copied(), clock::now());
        unopened.insert(brick, refused);
        let _gone = self.shared.control_requests.send(ControlRequest::Refused(set, brick));
    }

    fn note_not_served(&self, brick: BrickId, why: &str) {
        let state = self.state();
        let Some((set, known)) = state.brick(brick) else { return };
        let host = state.servers.get(&known.server).map_or_else(String::new, |s| s.host.clone());
        self.shared.events.add(Event {
            server: host,
            kind: "brick".to_owned(),
            text: format!("{} is not served: {why}", state.brick_name(known)),
            volume: state.volumes.get(&set.volume).map(|v| v.name.clone()),
            ..Event::default()
        });
    }

    /// Closes a brick, and has it opened again if it is wanted by then.
    pub(super) fn close_set(self: &Rc<Self>, brick: BrickId, handle: SetHandle) {
        let shard = self.clone();
        let closing = spawn_local(async move {
            handle.close().await;
            drop(handle);
            shard.on_closed(brick);
        });
        let mut closings = self.closings.borrow_mut();
        closings.retain(|c| !c.is_finished());
        closings.push(closing);
    }

    fn on_closed(self: &Rc<Self>, brick: BrickId) {
        let wanted = self.sets.borrow_mut().closed(brick);
        if wanted {
            self.on_state(self.state());
        }
    }

    /// The server stops: everything is closed.
    pub(super) async fn close(&self) {
        self.openings.borrow_mut().clear();
        let all = self.sets.borrow_mut().stop();
        for handle in all.into_iter().filter_map(|(_, handle)| handle) {
            handle.close().await;
        }
        let closings = self.closings.take();
        for closing in closings {
            let _ended = closing.await;
        }
    }
}
