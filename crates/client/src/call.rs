//! The client, and the way of one call: find the primary, ask it, and go on until it answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use client_core::call::{Action, CallMachine, Ended, Fate, Known, Number, PAUSE, Patience};
use client_core::operation::Class;
use client_core::routes::Offer;
use client_core::set::ReclaimMark;
use ids::{Epoch, Fid, OpId, SessionId, SetId};
use wire::map::VolumeMap;
use wire::{Body, Call, DecodeError, Errno, Fail, Kind, Op, Reply, Wire};

use crate::conn::{Broken, Conn, Expect, Intent};
use crate::directories::Directories;
use crate::error::ConnectError;
use crate::keeper::Keeper;
use crate::layer::{Layer, Next, ReadOnly, Request};
use crate::map::{Generation, Route};
use crate::options::{Options, is_on};
use crate::payload::Payload;
use crate::peer::{Lent, Peer};
use crate::sets::{SharedSet, Ticket, lock};
use crate::stats::{Counting, Stats};
use crate::wait::{self, Waiting, Wake};
use crate::watch::{self, Watcher};

/// A server that greets may take this many network timeouts for one answer.
const SLOW: u32 = 15;
/// A server that does not answer for so long may not be the right one any more: the watch asks another server for the map.
const DOUBT: Duration = Duration::from_secs(1);
/// Between two lines of the log about calls that wait.
const QUIET: Duration = Duration::from_secs(10);
/// Files told of in one go when a set has to hear again what is open.
const TOLD_AT_ONCE: usize = 64;

/// What all threads of a client share.
pub(crate) struct Core {
    pub options: Options,
    pub volume: String,
    pub intent: Intent,
    pub keeper: Keeper,
    pub watcher: Watcher,
    pub directories: Directories,
    current: RwLock<Arc<Generation>>,
    stopped: AtomicBool,
    /// When the log last told of calls that wait.
    complained: Mutex<Option<Instant>>,
}

impl Core {
    /// Tells of calls that wait, but not of each.
    fn complain(&self, why: &str) {
        let mut last = lock(&self.complained);
        if last.is_none_or(|at| at.elapsed() >= QUIET) {
            *last = Some(Instant::now());
            tracing::warn!(volume = self.volume, "calls wait for a set to serve: {why}");
        }
    }

    /// The map that holds now.
    pub(crate) fn current(&self) -> Arc<Generation> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over a map if it is newer.
    pub(crate) fn publish(&self, map: VolumeMap) {
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
                let before = std::mem::replace(&mut *current, Arc::new(next));
                before.end();
                self.keeper.wake();
            }
            Err(e) => tracing::error!("no descriptor for a new map: {e}"),
        }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends all calls with `ESHUTDOWN`.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.current().end();
        self.watcher.nudge();
        self.keeper.wake();
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

    /// Whether it makes sense to wait for `peer` to answer for `set`.
    pub(crate) fn still(&self, set: SetId, epoch: Epoch, peer: &Arc<Peer>) -> Result<(), Broken> {
        if self.is_stopped() {
            return Err(Broken::Stopped);
        }
        let moved = self.current().by_map.has_moved(set, epoch, peer.server);
        if moved { Err(Broken::Moved) } else { Ok(()) }
    }

    /// Carries out a request at whoever is the primary of its set.
    pub(crate) fn route(&self, request: &mut Request<'_, '_>) -> Result<Body, Errno> {
        let set = request.call.set;
        let (state, epoch) = self.find(set)?;
        match Class::of(&request.call.op) {
            Class::Sync(fid) => self.sync(&state, epoch, request, fid),
            Class::Read => self.try_until_done(&state, request),
            Class::Change => {
                self.directories.begin(&request.call.op);
                let result = self.try_until_done(&state, request);
                let told: &[u8] = if result.is_ok() { request.into } else { &[] };
                self.directories.end(&request.call.op, told, crate::grant::until());
                if result.is_ok() && state.state().changed(&request.call.op, epoch) {
                    self.sync_all(&state, epoch);
                }
                result
            }
        }
    }

    /// What is known of a set, and the epoch of its view.
    fn find(&self, set: SetId) -> Result<(Arc<SharedSet>, Epoch), Errno> {
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

    /// Syncs one object, or all; fails if something was lost before that.
    fn sync(
        &self,
        state: &SharedSet,
        epoch: Epoch,
        request: &mut Request<'_, '_>,
        fid: Option<Fid>,
    ) -> Result<Body, Errno> {
        let mark = state.state().begin_sync(fid, epoch);
        let body = self.try_until_done(state, request)?;
        let lost_before = self.current().by_map.lost_before(state.set);
        state.state().synced(mark, lost_before)?;
        Ok(body)
    }

    /// So much is noted that it is synced now. Nobody waits for the outcome.
    fn sync_all(&self, state: &SharedSet, epoch: Epoch) {
        let set = state.set;
        let call = Call { set, epoch: Epoch(0), id: OpId::default(), finished: 0, op: Op::SyncFs };
        let mark = state.state().begin_sync(None, epoch);
        match self.try_until_done(state, &mut Request { call, payload: &[], into: &mut Payload::new() }) {
            Ok(_) => {
                let lost_before = self.current().by_map.lost_before(set);
                state.state().synced_unasked(mark, lost_before);
            }
            Err(e) => tracing::debug!(%set, "sync: {e}"),
        }
    }

    fn try_until_done(&self, state: &SharedSet, request: &mut Request<'_, '_>) -> Result<Body, Errno> {
        let start = Instant::now();
        let waited = || start.elapsed();
        let patience = Patience { soft: self.options.soft, quorum_wait: self.options.quorum_wait };
        let mut machine = CallMachine::new(patience, request.call.op.changes());
        let mut ticket: Option<Ticket<'_>> = None;
        loop {
            let generation = self.current();
            let route = generation.route(state.set);
            let mut tried = None;
            let mut action = machine.look(self.known(&generation, state.set), waited);
            if let Action::Send(number) = action
                && let Some((route, peer)) = route.and_then(|r| Some((r, r.peer.as_ref()?)))
            {
                if number == Number::New {
                    ticket = Some(state.begin_change());
                }
                let seq = ticket.as_ref().map_or(0, |t| t.seq);
                request.call.id = OpId { session: self.intent.session, seq };
                let (ended, result) = self.attempt((route, peer), request, &machine, start);
                action = machine.ended(ended, waited);
                if !machine.is_numbered() {
                    ticket = None;
                }
                tried = Some(result);
            }
            match action {
                Action::Return | Action::Send(_) => return answer(tried),
                Action::Fail(errno) => return Err(errno),
                Action::Look => {}
                Action::Pause { time, alarm } => {
                    if alarm {
                        self.watcher.nudge();
                        self.complain(&why(tried));
                    }
                    self.pause(&generation, time)?;
                }
            }
        }
    }

    fn known(&self, generation: &Generation, set: SetId) -> Known {
        if self.is_stopped() { Known::Stopped } else { generation.by_map.known(set) }
    }

    /// Waits for a map with the set, a network timeout at most.
    fn await_set(&self, set: SetId) -> Result<(), Errno> {
        let until = Instant::now() + self.options.network_timeout;
        self.watcher.nudge();
        while Instant::now() < until {
            let generation = self.current();
            if generation.route(set).is_some() {
                return Ok(());
            }
            self.pause(&generation, PAUSE.1)?;
        }
        Err(Errno::ESTALE)
    }

    /// One try on one connection of a call that began at `start`.
    fn attempt(
        &self,
        (route, peer): (&Route, &Arc<Peer>),
        request: &mut Request<'_, '_>,
        machine: &CallMachine,
        start: Instant,
    ) -> (Ended, Result<Reply, Broken>) {
        let set = route.state.set;
        let begun = Instant::now();
        let still = || {
            // The server may be cut off, and the watched one with it: it may be the same.
            if begun.elapsed() >= DOUBT {
                self.watcher.nudge();
            }
            self.still(set, route.epoch, peer)
        };
        let until = begun + self.options.network_timeout;
        let until = self.options.soft.map_or(until, |soft| until.min(start + soft));
        let mut waiting = Waiting { until, still: &still };
        let mut lent = match peer.lend(set, self.intent, &waiting) {
            Ok(lent) => lent,
            Err(e) => return (ended(&Err(&e), false), Err(e)),
        };
        let result = self.exchange(&mut lent, (route, peer), request, &mut waiting);
        let ended = ended(&result.as_ref(), lent.used);
        match machine.fate(ended, matches!(request.call.op, Op::Open { .. })) {
            Fate::PutBack => peer.put_back(lent),
            Fate::GiveUp => peer.give_up(lent),
            Fate::Broke => peer.broke(lent),
            Fate::Close => drop(lent),
        }
        if let Err(e) = &result {
            tracing::debug!(%set, server = peer.address, "{}: {e}", request.call.op.name());
        }
        (ended, result)
    }

    fn exchange(
        &self,
        lent: &mut Lent,
        (route, peer): (&Route, &Arc<Peer>),
        request: &mut Request<'_, '_>,
        waiting: &mut Waiting<'_>,
    ) -> Result<Reply, Broken> {
        let mark = ReclaimMark { epoch: route.epoch, server: peer.server, era: lent.era };
        let conn = &mut lent.conn;
        let finished_if_told = {
            let state = route.state.state();
            (!state.needs_reclaim(mark)).then(|| state.finished())
        };
        request.call.epoch = route.epoch;
        request.call.finished = match finished_if_told {
            Some(finished) => finished,
            None => {
                if let Some(fail) = self.tell_opens(conn, route, mark, waiting)? {
                    return Ok(Reply(Err(fail)));
                }
                route.state.state().finished()
            }
        };
        let sent = Instant::now();
        let id = conn.send(Kind::Call, &request.call, request.payload, waiting)?;
        let expect = match request.call.op {
            Op::Read { .. } | Op::ReadLink { .. } | Op::GetXattr { .. } => Expect::Data,
            _ => Expect::Message,
        };
        self.await_answer(conn, (route, peer), waiting)?;
        let head = conn.receive(expect, request.into, waiting)?;
        if head.kind != Kind::Reply || head.id != id {
            return Err(DecodeError::Bounds("answer").into());
        }
        crate::grant::note(sent, head.grant);
        Ok(Reply::from_bytes(conn.body())?)
    }

    /// Waits for the first byte of an answer. A server that is slow, but greets, gets more time.
    fn await_answer(
        &self,
        conn: &Conn,
        (route, peer): (&Route, &Arc<Peer>),
        waiting: &mut Waiting<'_>,
    ) -> Result<(), Broken> {
        let timeout = self.options.network_timeout;
        for _ in 0..SLOW {
            match waiting.readable(conn.fd()) {
                Err(Broken::TimedOut) if self.options.soft.is_none() => {}
                other => return other,
            }
            self.watcher.nudge();
            let probe = Waiting { until: Instant::now() + timeout / 2, still: waiting.still };
            peer.greets(route.state.set, self.intent, &probe)?;
            waiting.until = Instant::now() + timeout;
        }
        Err(Broken::TimedOut)
    }

    /// Tells the set which of its files this client holds open; `Some` if it does not want to know now.
    pub(crate) fn tell_opens(
        &self,
        conn: &mut Conn,
        route: &Route,
        mark: ReclaimMark,
        waiting: &Waiting<'_>,
    ) -> Result<Option<Fail>, Broken> {
        let Some(reclaim) = route.state.begin_reclaim() else { return Ok(Some(Fail::Busy)) };
        let files = reclaim.files.len();
        for some in reclaim.files.chunks(TOLD_AT_ONCE) {
            let ops = some.iter().map(|fid| Op::Open { fid: *fid });
            if let Some(fail) = self.batch(conn, route, ops, waiting)? {
                return Ok(Some(fail));
            }
        }
        reclaim.done(mark);
        if files > 0 {
            tracing::info!(set = %route.state.set, files, "told the set's primary what is open");
        }
        Ok(None)
    }

    /// Sends several requests that change nothing at once; `Some` if the set does not serve. Errnos do not matter.
    pub(crate) fn batch(
        &self,
        conn: &mut Conn,
        route: &Route,
        ops: impl Iterator<Item = Op>,
        waiting: &Waiting<'_>,
    ) -> Result<Option<Fail>, Broken> {
        let finished = route.state.state().finished();
        let mut ids = Vec::with_capacity(TOLD_AT_ONCE);
        for op in ops {
            let call = Call {
                set: route.state.set,
                epoch: route.epoch,
                id: OpId { session: self.intent.session, seq: 0 },
                finished,
                op,
            };
            ids.push(conn.queue(Kind::Call, &call, &[]));
        }
        conn.flush(&[], waiting)?;
        let mut failed = None;
        while !ids.is_empty() {
            let head = conn.receive(Expect::Stream, &mut Payload::new(), waiting)?;
            let at = ids.iter().position(|id| *id == head.id).ok_or(DecodeError::Bounds("answer"))?;
            ids.swap_remove(at);
            match Reply::from_bytes(conn.body())?.0 {
                Ok(_) | Err(Fail::Errno { .. }) => {}
                Err(fail) => failed = Some(fail),
            }
        }
        Ok(failed)
    }
}

/// How a try ended, in the words of the call's machine. `used`: the connection had been used before.
fn ended(result: &Result<&Reply, &Broken>, used: bool) -> Ended {
    match result {
        Ok(Reply(Ok(_))) => Ended::Answered,
        Ok(Reply(Err(Fail::Errno { errno }))) if Errno(*errno) == Errno::EAGAIN => Ended::Held,
        Ok(Reply(Err(Fail::Errno { .. }))) => Ended::Answered,
        Ok(Reply(Err(Fail::WrongView { .. }))) => Ended::WrongView,
        Ok(Reply(Err(Fail::Busy))) => Ended::Busy,
        Ok(Reply(Err(Fail::BelowQuorum))) => Ended::BelowQuorum,
        Err(Broken::Moved) => Ended::Moved,
        Err(Broken::Interrupted) => Ended::Interrupted,
        Err(Broken::Stopped) => Ended::Stopped,
        Err(Broken::Io(_)) if used => Ended::OldBroke,
        Err(Broken::Io(_) | Broken::Protocol(_) | Broken::Refused(_) | Broken::TimedOut) => Ended::Lost,
    }
}

/// The result of a call whose last try was answered.
fn answer(tried: Option<Result<Reply, Broken>>) -> Result<Body, Errno> {
    match tried {
        Some(Ok(Reply(Ok(body)))) => Ok(body),
        Some(Ok(Reply(Err(Fail::Errno { errno })))) => Err(Errno(errno)),
        _ => unreachable!("a call returns what it was answered"),
    }
}

/// Why a call has to wait, for the log.
fn why(tried: Option<Result<Reply, Broken>>) -> String {
    match tried {
        None => "no brick of the set may serve".to_owned(),
        Some(Ok(Reply(Err(Fail::WrongView { .. })))) => "another view holds".to_owned(),
        Some(Ok(Reply(Err(Fail::BelowQuorum)))) => "too few bricks in sync".to_owned(),
        Some(Ok(_)) => "busy".to_owned(),
        Some(Err(e)) => e.to_string(),
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
        let (conn, map, seeds) = watch::first(servers, volume, session, options.network_timeout)?;
        let intent = Intent { session, pool: map.pool };
        let stats = Arc::new(Stats::default());
        let mut layers: Vec<Box<dyn Layer>> = vec![Box::new(Counting(Arc::clone(&stats)))];
        let read_only =
            |(k, v): &(wire::codec::Blob, wire::codec::Blob)| k.0 == b"features.read-only" && is_on(&v.0);
        if options.read_only || map.options.iter().any(read_only) {
            layers.push(Box::new(ReadOnly));
        }
        let core = Arc::new(Core {
            directories: Directories::default(),
            options,
            volume: volume.to_owned(),
            intent,
            keeper: Keeper::default(),
            watcher: Watcher::new()?,
            current: RwLock::new(Arc::new(Generation::new(map, None)?)),
            stopped: AtomicBool::new(false),
            complained: Mutex::default(),
        });
        let mut client = Client { core, layers, stats, threads: Vec::new() };
        let core = Arc::clone(&client.core);
        client.spawn("mortar-watch", move || watch::run(&core, conn, &seeds))?;
        let core = Arc::clone(&client.core);
        client.spawn("mortar-keeper", move || core.keep())?;
        Ok(client)
    }

    fn spawn(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let plain = move || wait::with_hook(wait::plain, work);
        self.threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(plain)?);
        Ok(())
    }

    /// Makes one call of a set; the answer's data goes to `into`.
    ///
    /// # Errors
    /// What the file system says; `EINTR`, `ETIMEDOUT` (soft mounts), `EROFS` (no quorum), `ENOTCONN` (the volume is
    /// stopped), `ESHUTDOWN` (the client ends).
    pub fn call(&self, set: SetId, op: Op, payload: &[u8], into: &mut Payload<'_>) -> Result<Body, Errno> {
        let call = Call { set, epoch: Epoch(0), id: OpId::default(), finished: 0, op };
        Next { layers: &self.layers, core: &self.core }.run(&mut Request { call, payload, into })
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

    /// A volume option that differs from its default.
    pub fn option(&self, key: &str) -> Option<String> {
        let generation = self.core.current();
        let found = generation.map.options.iter().find(|(k, _)| k.0 == key.as_bytes());
        found.map(|(_, v)| String::from_utf8_lossy(&v.0).into_owned())
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
