//! The client, and the way of one call: find the primary, ask it, and go on until it answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use client_core::call::{Action, Ended, Known, PAUSE, RetryPolicy};
use client_core::exchange::{Exchange, Target};
use client_core::operation::{Class, Operation};
use client_core::routes::Offer;
use ids::{Epoch, OpId, SessionId, SetId};
use wire::map::VolumeMap;
use wire::{Body, Call, Errno, Fail, Op, Reply, User};

use crate::background::Background;
use crate::conn::{Broken, Intent};
use crate::directories::Directories;
use crate::error::ConnectError;
use crate::exchange::{Outcome, Running};
use crate::homes::{FOLLOWS, KnownHomes};
use crate::key::KeyReader;
use crate::layer::{Layer, Next, ReadOnly, Request};
use crate::map::Generation;
use crate::moved::MovedFiles;
use crate::names::Names;
use crate::options::{Options, is_on};
use crate::own_changes::OwnChanges;
use crate::page::SilentSets;
use crate::payload::Payload;
use crate::sets::{SharedSet, lock};
use crate::slow::Stages;
use crate::stats::{Counting, Stats};
use crate::stripes::SharedStripes;
use crate::wait::{self, Wake};
use crate::watch::{self, Watcher};

/// Between two lines of the log about calls that wait.
const QUIET: Duration = Duration::from_secs(10);
/// What all threads of a client share.
pub(crate) struct Core {
    pub options: Options,
    pub volume: String,
    pub intent: Intent,
    /// The users that the key is for: calls name one of them. `None`: for all.
    pub users: Option<Vec<u32>>,
    pub background: Background,
    pub watcher: Watcher,
    pub directories: Directories,
    pub moved: MovedFiles,
    pub homes: KnownHomes,
    pub names: Names,
    pub striped: SharedStripes,
    pub silent: SilentSets,
    pub own_changes: OwnChanges,
    current: RwLock<Arc<Generation>>,
    stopped: AtomicBool,
    /// Servers know no such volume any more, or not the key for it, and it was stopped before.
    deleted: AtomicBool,
    /// When the log last told of calls that wait.
    complained: Mutex<Option<Instant>>,
}

impl Core {
    /// Tells of calls that wait, but not of each.
    fn complain(&self, why: &str) {
        let mut last = lock(&self.complained);
        if last.is_none_or(|at| at.elapsed() >= QUIET) {
            *last = Some(Instant::now());
            if self.current().by_map.is_started() {
                tracing::warn!(volume = self.volume, "calls wait for a set to serve: {why}");
            } else {
                let volume = &self.volume;
                tracing::warn!(
                    volume,
                    "calls wait: the volume is stopped: start it with mortar volume start {volume}"
                );
            }
        }
    }

    /// The map that holds now.
    pub(crate) fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over a map if it is newer.
    pub(crate) fn publish(&self, map: VolumeMap) {
        let key = |map: &VolumeMap| (map.squash(), map.users(), map.beneath().map(|set| (map.root, set)));
        let of = |map: &VolumeMap| (map.pool, map.volume, key(map));
        let (before, now) = (of(&self.current().map), of(&map));
        if (before.0, before.1) == (now.0, now.1) && before.2 != now.2 {
            // Whoever used it was told that servers check permissions, or that they do not.
            tracing::error!(
                "the key is for other users or another directory than before: this ends, and has to be mounted anew"
            );
            return self.stop();
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        match current.by_map.consider(&map) {
            Offer::Take => {}
            Offer::Old => return,
            Offer::Foreign => {
                tracing::error!("another pool or volume answers under the old name: its map is ignored");
                return;
            }
        }
        match Generation::new(map, Some(&current)) {
            Ok(next) => {
                tracing::debug!(version = next.map.version, "new map");
                self.deleted.store(false, Ordering::Release);
                match (current.map.started, next.map.started) {
                    (true, false) => tracing::warn!(volume = self.volume, "the volume was stopped"),
                    (false, true) => tracing::info!(volume = self.volume, "the volume was started again"),
                    _ => {}
                }
                let before = std::mem::replace(&mut *current, Arc::new(next));
                before.end();
                self.background.wake();
            }
            Err(e) => tracing::error!("no descriptor for a new map: {e}"),
        }
    }

    /// The user that a call of this thread names.
    pub(crate) fn user(&self) -> u32 {
        if self.users.is_some() { crate::user::current() } else { 0 }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends all calls with `ESHUTDOWN`.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.current().end();
        self.watcher.wake();
        self.background.wake();
    }

    /// Waits; a newer map ends the pause.
    pub(crate) fn pause(&self, generation: &Generation, time: Duration) -> Result<(), Errno> {
        match wait::by_hook(generation.over(), time) {
            Ok(Wake::Interrupted) => Err(Errno::EINTR),
            Ok(Wake::Ready | Wake::TimedOut) if self.is_stopped() => Err(Errno::ESHUTDOWN),
            Ok(Wake::Ready | Wake::TimedOut) => Ok(()),
            Err(e) => {
                tracing::error!("cannot wait: {e}");
                Err(Errno::EIO)
            }
        }
    }

    /// Whether it makes sense to wait for an answer from there.
    pub(crate) fn still(&self, target: &Target) -> Result<(), Broken> {
        if self.is_stopped() {
            return Err(Broken::Stopped);
        }
        if target.has_moved(&self.current().by_map) { Err(Broken::Moved) } else { Ok(()) }
    }

    /// How patient calls are.
    pub(crate) fn retry_policy(&self) -> RetryPolicy {
        let Options { soft, network_timeout, quorum_wait, .. } = self.options;
        RetryPolicy { soft, network_timeout, quorum_wait, once: false }
    }

    /// Carries out a request at whoever is the primary of its set.
    pub(crate) fn route(&self, request: &mut Request<'_, '_>) -> Result<Body, Errno> {
        let (state, epoch) = self.find(request.call.set)?;
        let operation = Operation::begin(&request.call.op, epoch, self.retry_policy(), || state.state());
        if operation.class() != Class::Change {
            return self.to_the_end(operation, &state, request).0;
        }
        self.directories.begin(&request.call.op);
        let (result, sync_now) = self.to_the_end(operation, &state, request);
        let told: &[u8] = if result.is_ok() { request.into } else { &[] };
        self.directories.end(&request.call.op, told, crate::grant::until());
        if sync_now {
            self.sync_unasked(&state, epoch);
        }
        result
    }

    /// What is known of a set, and the epoch of its view.
    pub(crate) fn find(&self, set: SetId) -> Result<(Arc<SharedSet>, Epoch), Errno> {
        loop {
            let generation = self.current();
            match generation.route(set) {
                Some(route) => return Ok((Arc::clone(&route.state), route.epoch)),
                // A fid of a set that was added a moment ago, or of none.
                None if generation.map.started => self.await_set(set)?,
                None => return Err(Errno::ENOTCONN),
            }
        }
    }

    /// So much is unsynced that it is synced now. Nobody waits for the outcome.
    fn sync_unasked(&self, state: &SharedSet, epoch: Epoch) {
        let set = state.set;
        let call = Call::unsent(set, Op::SyncFs);
        let operation = Operation::begin_unasked_sync(epoch, self.retry_policy(), || state.state());
        let mut request = Request { call, payload: &[], into: &mut Payload::new() };
        if let (Err(e), _) = self.to_the_end(operation, state, &mut request) {
            tracing::debug!(%set, "sync: {e}");
        }
    }

    /// Its result, and whether so much is unsynced that the set should be synced.
    pub(crate) fn to_the_end(
        &self,
        mut operation: Operation,
        state: &SharedSet,
        request: &mut Request<'_, '_>,
    ) -> (Result<Body, Errno>, bool) {
        let result = self.try_until_done(&mut operation, state, request);
        let as_answered = result.as_ref().map(|_| ()).map_err(|e| *e);
        let lost_before = || self.current().by_map.lost_before(state.set);
        let finished = operation.finish(&request.call.op, as_answered, lost_before, || state.state());
        (finished.result.and(result), finished.sync_now)
    }

    fn try_until_done(
        &self,
        operation: &mut Operation,
        state: &SharedSet,
        request: &mut Request<'_, '_>,
    ) -> Result<Body, Errno> {
        let start = Instant::now();
        let waited = || start.elapsed();
        let mut stages = Stages::default();
        let result = loop {
            let generation = self.current();
            stages.limit = generation.slow;
            let mut tried = None;
            let mut action = operation.look(self.known(&generation, state.set), waited, || state.state());
            if let Action::Send(_) = action
                && let Some((route, peer)) = generation.primary(state.set)
            {
                request.call.id = OpId { session: self.intent.session, seq: operation.seq() };
                let exchange =
                    Exchange::call(route.target(peer), operation.retry_policy(), waited(), operation.binds());
                let outcome = Running::new(self, (route, peer), Some(request)).run(exchange, start);
                stages.tried(peer, waited());
                action = operation.ended(outcome.how, waited, || state.state());
                tried = Some(outcome);
            }
            match action {
                Action::Return | Action::Send(_) => break answer(tried),
                Action::Fail(errno) => break Err(errno),
                Action::Look => {}
                Action::Pause { time, alarm } => {
                    let why = why(tried);
                    if alarm {
                        self.watcher.wake();
                        self.complain(&why);
                    }
                    let paused = self.pause(&generation, time);
                    stages.waited(why, waited());
                    if let Err(errno) = paused {
                        break Err(errno);
                    }
                }
            }
        };
        stages.tell(request.call.op.name(), state.set, request.call.id);
        result
    }

    fn known(&self, generation: &Generation, set: SetId) -> Known {
        match generation.by_map.known(set) {
            _ if self.is_stopped() => Known::Stopped,
            Known::NotStarted if self.deleted.load(Ordering::Acquire) => Known::Deleted,
            known => known,
        }
    }

    /// A server knows no such volume, or not the key for it any more. Of one that was not stopped before that server is wrong, or
    /// behind.
    pub(crate) fn no_volume(&self, why: &str) {
        if !self.current().by_map.is_started() && !self.deleted.swap(true, Ordering::AcqRel) {
            tracing::warn!(volume = self.volume, "nobody serves the volume again: {why}: calls fail");
        }
    }

    /// Waits for a map with the set, a network timeout at most.
    fn await_set(&self, set: SetId) -> Result<(), Errno> {
        let until = Instant::now() + self.options.network_timeout;
        self.watcher.wake();
        while Instant::now() < until {
            let generation = self.current();
            if generation.route(set).is_some() {
                return Ok(());
            }
            self.pause(&generation, PAUSE.1)?;
        }
        Err(Errno::ESTALE)
    }
}

/// The result of a call whose last try was answered.
fn answer(tried: Option<Outcome>) -> Result<Body, Errno> {
    match tried.and_then(|outcome| outcome.last) {
        Some(Ok(Reply(Ok(body)))) => Ok(body),
        Some(Ok(Reply(Err(Fail::Errno { errno })))) => Err(Errno(errno)),
        _ => unreachable!("a call returns what it was answered"),
    }
}

/// Why a call has to wait, for the log.
fn why(tried: Option<Outcome>) -> String {
    match tried {
        None => "no brick of the set may serve".to_owned(),
        Some(Outcome { how: Ended::WrongView, .. }) => "another view holds".to_owned(),
        Some(Outcome { how: Ended::BelowQuorum, .. }) => "too few bricks in sync".to_owned(),
        Some(Outcome { last: Some(Err(e)), .. }) => e.to_string(),
        Some(_) => "busy".to_owned(),
    }
}

/// A volume that calls can be made to. Cheap to share; ends its threads when dropped.
pub struct Client {
    pub(crate) core: Arc<Core>,
    layers: Vec<Box<dyn Layer>>,
    stats: Arc<Stats>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Client {
    /// Connects to a volume through the first of `servers` (each `HOST[:PORT]`) that answers.
    ///
    /// # Errors
    /// One line that says why, with every server that was tried.
    pub fn connect(servers: &[String], volume: &str, options: Options) -> Result<Client, ConnectError> {
        let session = SessionId(rand::random_range(1..=u64::MAX));
        let key = options.key.clone().map(|key| Arc::new(KeyReader::new(key)));
        if let Some(key) = &key {
            key.settings().map_err(ConnectError::Key)?;
        }
        let who = (session, key.as_ref());
        let (conn, map, seeds) = watch::first(servers, volume, who, options.network_timeout)?;
        let intent = Intent { session, pool: map.pool, key };
        let stats = Arc::new(Stats::default());
        let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(Counting(Arc::clone(&stats)))];
        let read_only =
            |(k, v): &(wire::codec::Blob, wire::codec::Blob)| k.0 == b"features.read-only" && is_on(&v.0);
        if options.read_only || map.options.iter().any(read_only) {
            layers.push(Box::new(ReadOnly));
        }
        let core = Arc::new(Core {
            directories: Directories::default(),
            moved: MovedFiles::default(),
            homes: KnownHomes::default(),
            names: Names::new(map.beneath().is_some()),
            striped: SharedStripes::default(),
            silent: SilentSets::default(),
            own_changes: OwnChanges::default(),
            options,
            volume: volume.to_owned(),
            intent,
            users: map.users(),
            background: Background::default(),
            watcher: Watcher::new()?,
            current: RwLock::new(Arc::new(Generation::new(map, None)?)),
            stopped: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            complained: Mutex::default(),
        });
        let mut client = Client { core, layers, stats, threads: Vec::new() };
        let core = Arc::clone(&client.core);
        client.spawn("mortar-watch", move || watch::run(&core, conn, &seeds))?;
        let core = Arc::clone(&client.core);
        client.spawn("mortar-backgrnd", move || core.run_background())?;
        Ok(client)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let plain = move || wait::with_hook(wait::plain, work);
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(plain)?);
        Ok(())
    }

    /// Makes one call, wherever what it is about has gone: see [`Client::call`].
    pub(crate) fn call_one(
        &self,
        set: SetId,
        op: Op,
        payload: &[u8],
        into: &mut Payload<'_>,
    ) -> Result<Body, Errno> {
        let call = Call::unsent(set, op);
        let mut request = Request { call, payload, into };
        self.core.redirect(&mut request.call);
        self.core.homes.redirect(&mut request.call);
        let (mut shown, mut followed) = (false, 0);
        loop {
            let next = Next { layers: &self.layers, core: &self.core };
            match next.run(&mut request) {
                Ok(Body::Moved { fid }) => self.core.file_moved(&mut request.call, fid)?,
                Ok(Body::Elsewhere { fid, home, .. }) if matches!(request.call.op, Op::GetAttr { .. }) => {
                    followed += 1;
                    if followed > FOLLOWS || !self.core.go_there(&mut request.call, (fid, home)) {
                        return Err(Errno::ESTALE);
                    }
                }
                // It moved while it was asked for.
                Err(Errno::ESTALE) if self.core.redirect(&mut request.call) => {}
                // It was not shown there yet.
                Err(Errno::ESTALE) if !shown && self.show(&request.call) => shown = true,
                Err(Errno::ESTALE) if followed < FOLLOWS && self.follow(&mut request.call) => followed += 1,
                answer => return answer.map(|body| self.core.restore(body)),
            }
        }
    }

    /// Likewise, of that set alone, and as it is told: what it does not have is shown to nobody and looked for nowhere else.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub fn call_alone(&self, set: SetId, op: Op) -> Result<Body, Errno> {
        let call = Call::unsent(set, op);
        let mut request = Request { call, payload: &[], into: &mut Payload::new() };
        Next { layers: &self.layers, core: &self.core }.run(&mut request)
    }

    /// Adds a layer above those that are there.
    pub fn push_layer(&mut self, layer: Box<dyn Layer>) {
        tracing::debug!(layer = layer.name(), "layer added");
        self.layers.insert(0, layer);
    }

    /// Counts and latencies of the calls so far.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The volume's name.
    pub fn volume(&self) -> &str {
        &self.core.volume
    }

    /// The session's id.
    pub fn session(&self) -> SessionId {
        self.core.intent.session
    }

    /// The map that holds now.
    pub fn map(&self) -> VolumeMap {
        self.core.current().map.clone()
    }

    /// Whether the volume is stopped.
    pub fn is_volume_stopped(&self) -> bool {
        !self.core.current().by_map.is_started()
    }

    /// A volume option that differs from its default.
    pub fn option(&self, key: &str) -> Option<String> {
        let generation = self.core.current();
        generation.map.option(key).map(|v| String::from_utf8_lossy(v).into_owned())
    }

    /// The user as whom servers take all requests, and whose permissions they check. It stays the same: a client whose key
    /// says something else one day ends.
    pub fn squash(&self) -> Option<User> {
        self.core.current().map.squash()
    }

    /// The users that the key is for; `None`: for all. Servers do what this thread's user may ([`crate::user::act_as`]), who has
    /// to be one of them. They stay the same, too.
    pub fn users(&self) -> Option<&[u32]> {
        self.core.users.as_deref()
    }

    /// Waits as calls do between tries: other work of this thread's owner goes on.
    ///
    /// # Errors
    /// `EINTR`, `ESHUTDOWN`.
    pub fn pause(&self, time: Duration) -> Result<(), Errno> {
        self.core.pause(&self.core.current(), time)
    }

    /// Ends all calls, present and future, with `ESHUTDOWN`.
    pub fn stop(&self) {
        self.core.stop();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.core.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the client panicked");
            }
        }
    }
}
