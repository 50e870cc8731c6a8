//! Carries out what the core of a set decides (crate `set-core`): sends, replies, runs what may wait for a disk, asks other
//! sets, keeps one timer. It decides nothing itself.

use super::load::Load;
use super::sessions::Connection;
use super::slow::SlowSteps;
use super::slow_calls::{About, SlowCalls, Spent};
use super::slow_changes::{Last, SlowChanges};
use super::top::{Top, TopReport};
use super::{BrickReport, ClientReport, OpenFiles, Origin, Shard, report};
use crate::clock;
use crate::metrics::{Outcome, SetCounters};
use crate::shared::{ControlRequest, Counters, lock};
use brick::{Brick, Work};
use bytes::Bytes;
use cluster::State;
use ids::{BrickId, Fid, OpId, ServerId, SessionId, SetId, VolumeId};
use namespace::placement::SetRoom;
use server_core::OpenedBrick;
use set_core::{Input, Moment, Outside, ReplyTo, Request, SetCore};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::{spawn_blocking, spawn_local, yield_now};
use transport::{FrameSender, Reserved};
use wire::op::COUNTED;
use wire::peer::PeerMessage;
use wire::{Call, Errno, Frame, Kind, Op, Reply, User, Wire};

type Output = set_core::Output<Work, Client>;

/// Where an answer goes: to a client, on its connection, by the request's number.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) sender: FrameSender,
    pub(super) id: u64,
    pub(super) connection: Connection,
    /// Memory that was reserved for the request and its answer.
    pub(super) held: Option<Reserved>,
    /// Which operation it is, and since when its set serves it.
    pub(super) served: Option<Served>,
}

/// Since when a request is served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Served {
    pub(super) op: usize,
    pub(super) since: Duration,
    /// What had gone on in its set until then.
    pub(super) spent: Spent,
    pub(super) about: About,
}

impl Client {
    /// Sends an answer without data.
    pub(super) fn answer(self, reply: &Reply) {
        self.sender.send_holding(Frame::new(Kind::Reply, self.id, reply.to_bytes()), self.held);
    }
}

impl ReplyTo for Client {
    fn is_given_up(&self) -> bool {
        self.connection.is_given_up()
    }
}

/// A set's surroundings.
struct Around<'a> {
    shard: &'a Shard,
    set: SetId,
}

impl Outside for Around<'_> {
    fn queued(&self, server: ServerId) -> usize {
        self.shard.links.queued(server, self.set)
    }

    fn last_call(&self) -> Duration {
        self.shard.shared.last_call()
    }

    fn room(&self, set: SetId) -> Option<SetRoom> {
        lock(&self.shard.shared.rooms).get(set)
    }

    fn next_id(&self) -> OpId {
        self.shard.asker.borrow_mut().next_id()
    }
}

impl Shard {
    fn moment(&self) -> Moment {
        Moment { now: clock::now(), wall: clock::wall(), lease: self.lease() }
    }
}

/// A shared handle to a set on its shard.
#[derive(Clone)]
pub(crate) struct SetHandle(Rc<Executor>);

struct Executor {
    set: SetId,
    /// What people know the set by: its number and its volume keep their names.
    name: String,
    shard: Weak<Shard>,
    /// Borrowed only between two awaits. `None`: the brick is closed, and another opening finds it free.
    core: RefCell<Option<SetCore<Brick, Client>>>,
    /// No input counts any more.
    closing: Cell<bool>,
    /// How much of its work runs on other threads, and who waits for its end.
    works: Cell<usize>,
    worked: Notify,
    /// Kept to be used again.
    outputs: Cell<Vec<Output>>,
    /// The time for which the core's next wake is set.
    armed: Cell<Option<Duration>>,
    /// Who may use the volume; nobody before that is known.
    access: RefCell<Option<cluster::Access>>,
    counters: Arc<Counters>,
    metrics: Arc<SetCounters>,
    /// What was answered in this step, kept to be used again.
    answered: Cell<Vec<(Served, Connection)>>,
    volume: VolumeId,
    /// Steps that held this thread up.
    slow: SlowSteps,
    /// Requests that took long.
    slow_calls: SlowCalls,
    /// What of its time it works.
    load: Load,
    /// What the primary wanted and took long here.
    slow_changes: SlowChanges,
    /// What is asked for most, while somebody looks.
    top: RefCell<Option<Top>>,
}

impl SetHandle {
    pub(crate) fn new(shard: &Rc<Shard>, opened: OpenedBrick) -> SetHandle {
        let counters = shard.shared.counters(opened.volume());
        let volume = opened.volume();
        let start = opened.start();
        let metrics = shard.shared.metrics.set(start.set);
        SetHandle(Rc::new(Executor {
            set: start.set,
            name: shard.shared.state().named(start.set).to_string(),
            shard: Rc::downgrade(shard),
            core: RefCell::new(Some(SetCore::new(start, clock::now()))),
            closing: Cell::default(),
            works: Cell::default(),
            worked: Notify::new(),
            outputs: Cell::default(),
            armed: Cell::default(),
            access: RefCell::default(),
            counters,
            metrics,
            answered: Cell::default(),
            volume,
            slow: SlowSteps::default(),
            slow_calls: SlowCalls::default(),
            load: Load::default(),
            slow_changes: SlowChanges::default(),
            top: RefCell::default(),
        }))
    }

    /// Gives the core an input and does what it says.
    pub(super) fn step(&self, input: Input<Client>) {
        if let Some(shard) = self.0.shard.upgrade() {
            self.step_at(&shard, shard.moment(), input);
        }
    }

    fn step_at(&self, shard: &Rc<Shard>, mut at: Moment, input: Input<Client>) {
        if self.0.closing.get() {
            return;
        }
        let mut core = self.0.core.borrow_mut();
        let Some(core) = core.as_mut() else { return };
        let mut out = self.0.outputs.take();
        let around = Around { shard, set: self.0.set };
        let mut name = core.name(&input);
        let last = Last::of(&input);
        self.0.slow_changes.received(&input, at.now, &self.0.slow_calls);
        core.step(at, input, &around, &mut out);
        loop {
            out.drain(..).for_each(|output| self.perform(shard, output));
            let now = clock::now();
            let worked = now.saturating_sub(at.now);
            self.0.slow_calls.worked(worked);
            if self.0.slow.note(name, worked) {
                self.0.metrics.long_step();
            }
            self.note_answered(shard, (now, last), core);
            let Some(next) = core.next_name() else { break };
            // The time for files may be that of the input: reading clocks is a good part of a short step.
            (at, name) = (Moment { now, lease: shard.lease(), ..at }, next);
            core.go_on(at, &around, &mut out);
        }
        self.0.outputs.set(out);
        self.arm(core.next_wake());
    }

    fn perform(&self, shard: &Rc<Shard>, output: Output) {
        match output {
            Output::Reply { to, reply, payload, grant } => {
                to.connection.traffic().answered(payload.len());
                let (outcome, bytes) = (Outcome::of(&reply), payload.len());
                let frame = Frame::with_payload(Kind::Reply, to.id, reply.to_bytes(), payload);
                to.sender.send_holding(Frame { grant, ..frame }, to.held);
                self.answered(to.served, to.connection, outcome, bytes);
            }
            Output::Send { server, message, payload } => {
                self.0.slow_changes.sent(&message.body);
                let frame = Frame::with_payload(Kind::Peer, 0, message.to_bytes(), payload);
                shard.links.send(server, self.0.set, frame);
            }
            Output::Start { id, work } => {
                let this = self.clone();
                self.0.slow_calls.disk.begin(clock::now());
                self.0.works.update(|n| n + 1);
                spawn_local(async move {
                    let job = spawn_blocking(move || <Brick as set_core::LocalBrick>::run(work));
                    let result = job.await.unwrap_or(Err(Errno::EIO));
                    this.0.slow_calls.disk.end(clock::now());
                    this.0.works.update(|n| n - 1);
                    this.0.worked.notify_waiters();
                    this.step(Input::Worked(id, result));
                });
            }
            Output::Ask { id, set, op, name, payload } => self.ask(shard, id, set, (op, payload), name),
            Output::Propose(proposal) => {
                let healed = proposal.healed.into_iter().collect();
                let _gone =
                    shard.shared.control_requests.send(ControlRequest::View(self.0.set, proposal, healed));
            }
            Output::Room(room) => {
                let now = clock::now();
                let busy = self.0.load.measure(now, self.0.slow_calls.spent(now));
                lock(&shard.shared.rooms).set(self.0.set, SetRoom { busy, ..room });
            }
            Output::Promised(set) => lock(&shard.shared.rooms).promise(set),
        }
    }

    /// An answer leaves. How long it took is known at the end of the step: clocks are read no more often for it.
    fn answered(&self, served: Option<Served>, from: Connection, outcome: Outcome, bytes: usize) {
        let Some(served) = served else { return };
        self.0.metrics.answered(outcome, bytes);
        let mut answered = self.0.answered.take();
        answered.push((served, from));
        self.0.answered.set(answered);
    }

    fn note_answered(&self, shard: &Shard, (now, last): (Duration, Last), core: &mut SetCore<Brick, Client>) {
        let mut answered = self.0.answered.take();
        for (served, from) in answered.drain(..) {
            let took = now.saturating_sub(served.since);
            self.0.metrics.took(served.op, took);
            from.took(&shard.shared.metrics.clients, self.0.volume, took);
            if self.0.slow_calls.is_told(took) {
                let name = COUNTED.get(served.op).copied().unwrap_or("request");
                let path = served.about.fid.and_then(|fid| core.brick_mut().path_hint(fid));
                let line = self.0.slow_calls.line(&served, name, path, now);
                let end = last.words(|brick| self.brick_name(brick));
                tracing::warn!("{}: {line}{end}", self.0.name);
            }
        }
        self.0.answered.set(answered);
        for line in self.0.slow_changes.lines(now, &self.0.slow_calls) {
            tracing::warn!("{}: {line}", self.0.name);
        }
    }

    fn brick_name(&self, brick: BrickId) -> Option<String> {
        let state = self.0.shard.upgrade()?.shared.state();
        let (_, brick) = state.brick(brick)?;
        Some(state.brick_name(brick))
    }

    fn ask(&self, shard: &Rc<Shard>, id: u64, set: SetId, (op, payload): (Op, Bytes), name: Option<OpId>) {
        let (this, shard) = (self.clone(), shard.clone());
        self.0.slow_calls.asked.begin(clock::now());
        spawn_local(async move {
            let answer = shard.ask((this.0.set, set), (op, payload), name).await;
            this.0.slow_calls.asked.end(clock::now());
            this.step(Input::Answered(id, answer));
        });
    }

    /// Sees to it that the core is woken when it wants to be.
    fn arm(&self, wake: Option<Duration>) {
        let Some(at) = wake.filter(|at| self.0.armed.get().is_none_or(|armed| *at < armed)) else { return };
        self.0.armed.set(Some(at));
        let this = self.clone();
        spawn_local(async move {
            match at.saturating_sub(clock::now()) {
                // Others on this thread come first.
                Duration::ZERO => yield_now().await,
                rest => tokio::time::sleep(rest).await,
            }
            if this.0.armed.get() == Some(at) {
                this.0.armed.set(None);
                this.step(Input::Wake);
            }
        });
    }

    /// Takes one request, of somebody whose permissions count if `user` is given, and who may ask for what lies beneath a
    /// directory only if that is. The answer leaves later, through `to`.
    pub(crate) fn serve(
        &self,
        call: Call,
        payload: Bytes,
        mut to: Client,
        (session, user, beneath): (SessionId, Option<User>, Option<Fid>),
    ) {
        let Some(shard) = self.0.shard.upgrade() else { return };
        let (op, at) = (call.op.index(), shard.moment());
        self.0.counters.count(op);
        self.0.metrics.asked(payload.len());
        if let Some(top) = self.0.top.borrow_mut().as_mut() {
            top.note(&call.op, payload.len());
        }
        let spent = self.0.slow_calls.spent(at.now);
        to.served = Some(Served { op, since: at.now, spent, about: About::of(&call, session) });
        self.step_at(&shard, at, Input::Request(Request { call, payload, to, session, user, beneath }));
    }

    /// A message from another brick of the set.
    pub(crate) fn on_peer(&self, m: PeerMessage, payload: Bytes) {
        self.step(Input::Peer(m, payload));
    }

    /// The pool changed: the set's view, members and options may have.
    pub(crate) fn on_state(&self, state: &State) {
        let Some(set) = state.sets.get(&self.0.set) else { return };
        let Some(volume) = state.volumes.get(&set.volume) else { return };
        self.0.access.replace(Some(cluster::Access::of(state, volume)));
        self.0.slow_calls.set_limit(volume.typed_options().slow_operation);
        if let Some(settings) = server_core::settings(state, self.0.set) {
            self.step(Input::Settings(settings));
        }
    }

    /// A link to a server came up, or its port refuses connections.
    pub(crate) fn link_changed(&self, server: ServerId, up: bool) {
        self.step(Input::Link(server, up));
    }

    /// Once a second.
    pub(crate) fn maintain(&self) {
        self.step(Input::Maintenance);
        self.0.slow.tell(&self.0.name);
        self.0.slow_calls.tell(&self.0.name);
        self.0.top.borrow_mut().take_if(|top| top.is_over(clock::now()));
    }

    /// What is asked for most, if this brick leads; it is counted from now on.
    pub(crate) fn top(&self) -> Option<TopReport> {
        let (mut core, mut top) = (self.0.core.borrow_mut(), self.0.top.borrow_mut());
        let core = core.as_mut().filter(|core| core.is_leading())?;
        let now = clock::now();
        Some(top.get_or_insert_with(|| Top::new(now)).report(now, |fid| core.brick_mut().path_hint(fid)))
    }

    /// The files that sessions hold open, if this brick leads; so many at most are named.
    pub(crate) fn open_files(&self, most: usize) -> Option<OpenFiles> {
        let mut core = self.0.core.borrow_mut();
        let core = core.as_mut().filter(|core| core.is_leading())?;
        let all: Vec<_> = core.opens().take(most).collect();
        let many = core.opens().count();
        let named = |(fid, sessions): (ids::Fid, usize)| (fid, core.brick_mut().path_hint(fid), sessions);
        Some(OpenFiles { many, some: all.into_iter().map(named).collect() })
    }

    /// The set's number.
    pub(crate) fn number(&self) -> SetId {
        self.0.set
    }

    /// A session is gone for good: what it held open is free.
    pub(crate) fn session_ended(&self, session: SessionId) {
        self.step(Input::SessionEnded(session));
    }

    /// Whether the volume may be used from there, for that, in that session; other servers may do all.
    ///
    /// # Errors
    /// What to answer.
    pub(crate) fn permits(&self, origin: &Origin, session: SessionId, call: &Call) -> Result<(), Errno> {
        let Origin { address, limits } = origin;
        let access = self.0.access.borrow();
        if address.is_some_and(|address| !access.as_ref().is_some_and(|a| a.permits(address))) {
            return Err(Errno::EACCES);
        }
        let Some(limits) = limits else { return Ok(()) };
        limits.permit(self.0.volume, session, call)
    }

    /// Whether the brick could not go on and has to be opened anew.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.core.borrow().as_ref().is_some_and(SetCore::has_failed)
    }

    /// How its brick does, if it is open.
    pub(crate) fn report(&self) -> Option<BrickReport> {
        let mut core = self.0.core.borrow_mut();
        let core = core.as_mut()?;
        let r = core.report(clock::now());
        let (free, total) = r.room.unwrap_or((0, 0));
        let hint = r.problem.as_ref().and_then(|(fid, _)| core.brick_mut().path_hint(*fid));
        Some(BrickReport {
            brick: r.brick,
            role: r.role,
            epoch: r.epoch,
            lsn: r.lsn,
            durable: r.durable,
            disk_answered: r.disk_answered,
            free,
            total,
            heal: r.heal.map(report::progress),
            moved: report::moved(&r, hint),
            last_epoch: r.last_epoch,
            uncertain: r.uncertain,
            journal: core.brick_mut().journal_bytes(),
            queues: r.queues,
            queued: self.0.shard.upgrade().map_or(0, |s| s.links.queued_of(self.0.set)),
        })
    }

    /// Counts the files that sessions hold open.
    pub(crate) fn count_open(&self, clients: &mut [ClientReport]) {
        let core = self.0.core.borrow();
        for (session, files) in core.iter().flat_map(SetCore::open_files) {
            // They are in the order of their sessions.
            if let Ok(at) = clients.binary_search_by_key(&session, |c| c.session)
                && let Some(client) = clients.get_mut(at)
            {
                client.open_files += files;
            }
        }
    }

    /// Ends service: nobody is answered, everything goes to disk. Afterwards the brick is free for another opening, whoever
    /// still has a handle.
    pub(crate) async fn close(&self) {
        self.0.closing.set(true);
        let mut out = Vec::new();
        if let Some(core) = self.0.core.borrow_mut().as_mut() {
            core.close(&mut out);
        }
        if let Some(shard) = self.0.shard.upgrade() {
            out.into_iter().for_each(|output| self.perform(&shard, output));
        }
        // What runs on other threads has the brick's files open, and may write to them.
        while self.0.works.get() > 0 {
            self.0.worked.notified().await;
        }
        let job = self.0.core.borrow_mut().as_mut().map(|core| core.brick_mut().begin_sync(None));
        let synced = match job {
            // Most of the work, where it holds nobody up.
            Some(Ok(job)) => spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO)).map(drop),
            Some(Err(e)) => Err(e),
            None => return,
        };
        let Some(mut core) = self.0.core.take() else { return };
        if let Err(e) = synced.and_then(|()| core.brick_mut().shut()) {
            tracing::error!("close the brick of {}: {e}", self.0.name);
        }
    }
}
