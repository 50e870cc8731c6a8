//! A server process: the product's decisions, carried out on simulated disks and connections.
//!
//! What the daemon does with threads, sockets and timers is done here with events; neither decides anything. All sets of a
//! process are served by one thread, as on a machine with one core: while it is at work, everything else waits.

mod closing;
mod connections;

use crate::control::Control;
use crate::machine::ToProcess;
use crate::network::{Packet, Way};
use crate::questions::Questions;
use crate::store::{Ask, server_id};
use crate::trace::Trace;
use crate::world::{Event, World};
use brick::{Brick, Work};
use cluster::State;
use core::cell::{Cell, RefCell};
use core::time::Duration;
use ids::{BrickId, OpId, ServerId, SessionId, SetId};
use namespace::placement::SetRoom;
use server_core::{Asker, OpenSets, Rooms, Sessions};
use set_core::{Input, Moment, Output, Outside, ReplyTo, SetCore};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use wire::{Frame, Kind, Wire};

/// How often timers of sets are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often lazily kept attributes are written and room is measured.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// A session's connection as those know it who serve what came on it.
#[derive(Clone, Debug)]
pub(crate) struct Established {
    connection: u64,
    session: SessionId,
    number: u64,
    given_up: Rc<Cell<bool>>,
}

/// Where an answer goes.
#[derive(Clone, Debug)]
pub(crate) enum To {
    /// To a client or another server, on its connection.
    There { on: Established, id: u64 },
    /// To a question of this process, and to which try of it.
    Here(u64, u64),
}

impl ReplyTo for To {
    fn is_given_up(&self) -> bool {
        match self {
            To::There { on, .. } => on.given_up.get(),
            To::Here(..) => false,
        }
    }
}

/// An open set.
pub(crate) struct Serving {
    pub(crate) set: SetId,
    pub(crate) brick: BrickId,
    pub(crate) core: SetCore<Brick, To>,
    /// The time for which the core's next wake is set.
    armed: Option<Duration>,
    /// Transactions whose change is ordered, as was last seen.
    commits: BTreeSet<OpId>,
}

impl Serving {
    pub(crate) fn new((set, brick): (SetId, BrickId), core: SetCore<Brick, To>) -> Serving {
        Serving { set, brick, core, armed: None, commits: BTreeSet::new() }
    }
}

/// The connection to another server's sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Dialing,
    Up(u64),
}

/// See the module.
pub(crate) struct Process {
    /// The pool as this process knows it.
    pub(crate) known: Arc<State>,
    pub(crate) sets: OpenSets<Rc<RefCell<Serving>>>,
    /// Bricks that are being closed.
    pub(crate) closing: BTreeMap<BrickId, Rc<RefCell<Serving>>>,
    works: BTreeMap<(SetId, u64), Work>,
    pub(crate) rooms: Rooms,
    sessions: Sessions<Established>,
    established: BTreeMap<u64, Established>,
    pub(crate) links: BTreeMap<ServerId, Link>,
    pub(crate) asker: RefCell<Asker>,
    pub(crate) questions: Questions,
    last_call: Duration,
    last_house: Duration,
    pub(crate) control: Control,
}

impl Process {
    /// A process that knows nothing yet. `session`: that of its own operations on other sets.
    pub(crate) fn new(session: SessionId, now: Duration) -> Process {
        Process {
            known: Arc::default(),
            sets: OpenSets::default(),
            closing: BTreeMap::new(),
            works: BTreeMap::new(),
            rooms: Rooms::default(),
            sessions: Sessions::default(),
            established: BTreeMap::new(),
            links: BTreeMap::new(),
            asker: RefCell::new(Asker::new(session)),
            questions: Questions::default(),
            last_call: Duration::ZERO,
            last_house: now,
            control: Control::default(),
        }
    }

    /// The open set of that number.
    pub(crate) fn serving(&self, set: SetId) -> Option<Rc<RefCell<Serving>>> {
        self.sets.get(set).cloned()
    }

    /// What the set began on its disk is not done any more.
    fn end_works(&mut self, set: SetId) {
        self.works.retain(|(s, _), _| *s != set);
    }

    fn open_sets(&self) -> Vec<SetId> {
        self.sets.all().map(|(set, _)| set).collect()
    }
}

/// What a core asks about the world.
struct Surroundings<'a> {
    process: &'a Process,
    queued: &'a BTreeMap<ServerId, usize>,
}

impl Outside for Surroundings<'_> {
    fn queued(&self, server: ServerId) -> usize {
        self.queued.get(&server).copied().unwrap_or(0)
    }

    fn last_call(&self) -> Duration {
        self.process.last_call
    }

    fn room(&self, set: SetId) -> Option<SetRoom> {
        self.process.rooms.get(set)
    }

    fn next_id(&self) -> OpId {
        self.process.asker.borrow_mut().next_id()
    }
}

impl World {
    /// The process of a machine, if one lives.
    pub(crate) fn process(&mut self, machine: usize) -> Option<&mut Process> {
        self.machines[machine].process.as_mut()
    }

    /// An event for the process that a machine has now.
    pub(crate) fn later(&mut self, at: Duration, machine: usize, what: ToProcess) {
        let life = self.machines[machine].life;
        self.at(at, Event::Process { machine, life, what });
    }

    /// An event after a time by the machine's own clock.
    pub(crate) fn timer(&mut self, machine: usize, shown: Duration, what: ToProcess) {
        let when = self.now + self.machines[machine].clock.lasts(shown);
        self.later(when, machine, what);
    }

    /// What the machine's clock shows.
    pub(crate) fn shown(&self, machine: usize) -> Duration {
        self.machines[machine].clock.now(self.now)
    }

    pub(crate) fn begin_process(&mut self, machine: usize, known: Arc<State>) {
        self.later(self.now, machine, ToProcess::State(known));
        let phase = self.rng.between(Duration::ZERO, TICK);
        self.timer(machine, phase, ToProcess::Tick);
        self.begin_control(machine);
    }

    pub(crate) fn on_process(&mut self, m: usize, what: ToProcess) {
        Trace::speaker("server", m);
        match what {
            ToProcess::Tick => self.on_tick(m),
            ToProcess::Wake(set) => self.on_wake(m, set),
            ToProcess::Work(set, id) => self.do_work(m, set, id),
            ToProcess::Worked(set, id, result) => self.step(m, set, Input::Worked(id, result)),
            ToProcess::Packet { connection, way, packet } => self.on_packet(m, connection, way, packet),
            ToProcess::Dial(server) => self.dial(m, server),
            ToProcess::AskAgain(id) => self.ask_again(m, id),
            ToProcess::AskTimedOut(id, connection) => self.ask_timed_out(m, id, connection),
            ToProcess::OwnAnswer(id, frame, reply) => self.own_answer(m, id, frame, reply),
            ToProcess::SessionEnds(session) => self.end_session(m, session),
            ToProcess::Open(set, brick) => self.open_brick(m, set, brick),
            ToProcess::Close(set, brick) => self.end_closing(m, set, brick),
            ToProcess::State(state) => self.on_state(m, state),
            other => self.on_control(m, other),
        }
    }

    /// Gives a set's core an input, and does what it says.
    pub(crate) fn step(&mut self, m: usize, set: SetId, input: Input<To>) {
        let queued = self.queued(m);
        let Some(served) = self.process(m).and_then(|p| p.serving(set)) else { return };
        // Nobody else sees the set while it is at work.
        let mut serving = served.borrow_mut();
        let brick = serving.brick;
        let (mut out, mut at, mut input) = (Vec::new(), self.now, Some(input));
        loop {
            let machine = &self.machines[m];
            let (Some(process), Some(disk)) = (machine.process.as_ref(), machine.disks.get(&brick)) else {
                return;
            };
            let moment = Moment {
                now: machine.clock.now(at),
                wall: machine.clock.wall(at),
                lease: process.control.lease(process.known.version),
            };
            disk.set_time(moment.wall);
            let outside = Surroundings { process, queued: &queued };
            match input.take() {
                Some(input) => serving.core.step(moment, input, &outside, &mut out),
                None => serving.core.go_on(moment, &outside, &mut out),
            }
            if disk.is_off() || self.dies_now(m) {
                // What would follow the last change to the disk does not happen.
                drop(serving);
                drop(served);
                return self.die(m);
            }
            let Serving { core, commits, .. } = &mut *serving;
            self.note_commits((m, set), core.commits(), commits);
            let takes = self.machines[m].disks.get(&brick).map_or(Duration::ZERO, |d| d.work);
            for output in out.drain(..) {
                if let Output::Ask { id, set: asked, op, .. } = &output {
                    self.note_step(m, serving.core.step_of(*id), *asked);
                    self.note_stripes(m, &mut serving.core, op);
                }
                self.perform(at, m, set, output);
            }
            if !serving.core.is_busy() {
                break;
            }
            if self.dies_between(m, set) {
                drop(serving);
                drop(served);
                return self.die_before_the_rest(m);
            }
            at += self.rng.between(Duration::ZERO, takes / 4);
        }
        if serving.core.has_failed() {
            // It is closed a while later, by whatever ends it.
            self.ledger.failed_at_work(self.now, serving.brick);
        }
        let wake = serving.core.next_wake();
        drop(serving);
        let machine = &mut self.machines[m];
        machine.busy_until = machine.busy_until.max(at);
        self.arm(m, set, wake);
    }

    /// Bytes that wait for the connections to other servers.
    fn queued(&self, m: usize) -> BTreeMap<ServerId, usize> {
        let Some(process) = self.machines[m].process.as_ref() else { return BTreeMap::new() };
        let up = process.links.iter().filter_map(|(server, link)| match link {
            Link::Up(connection) => Some((*server, self.network.queued(*connection))),
            Link::Dialing => None,
        });
        up.collect()
    }

    /// Whether the process is to be killed in the middle of what it does.
    fn dies_now(&mut self, m: usize) -> bool {
        match &mut self.machines[m].dies_in {
            Some(0) => true,
            Some(n) => {
                *n -= 1;
                false
            }
            None => false,
        }
    }

    /// The process ends in the middle of what it does, alone or with its machine.
    pub(crate) fn die(&mut self, m: usize) {
        if self.machines[m].disks.values().any(|d| d.is_off()) && self.machines[m].dies_with_power {
            self.cut_power(m);
        } else {
            for brick in self.machines[m].disks.keys().copied().collect::<Vec<_>>() {
                self.ledger.cut_short(self.now, brick);
            }
            self.kill(m, "killed at work");
        }
    }

    fn perform(&mut self, at: Duration, m: usize, set: SetId, output: Output<Work, To>) {
        match output {
            Output::Reply { to: To::There { on, id }, reply, payload, grant } => {
                let frame = Frame::with_payload(Kind::Reply, id, reply.to_bytes(), payload);
                self.send(at, on.connection, Way::Back, Packet::of(Frame { grant, ..frame }));
            }
            Output::Reply { to: To::Here(id, frame), reply, .. } => {
                self.later(at, m, ToProcess::OwnAnswer(id, frame, reply))
            }
            Output::Send { server, message, payload } => self.send_peer(at, m, server, &message, payload),
            Output::Start { id, work } => {
                let Some(brick) = self.brick_of(m, set) else { return };
                let World { machines, rng, .. } = self;
                let Some(disk) = machines[m].disks.get(&brick) else { return };
                let takes = disk.takes(rng, &work);
                if let Some(process) = machines[m].process.as_mut() {
                    process.works.insert((set, id), work);
                }
                self.later(at + takes, m, ToProcess::Work(set, id));
            }
            Output::Ask { id, set: other, op, name, payload } => {
                self.moves.note(&op);
                self.ask_set(m, (set, id), other, (op, payload), name)
            }
            Output::Propose(proposal) => {
                let command = cluster::Command::ChangeView(cluster::ViewChange {
                    set,
                    expect_epoch: proposal.expect,
                    primary: proposal.primary,
                    in_sync: proposal.in_sync,
                    healed: proposal.healed.into_iter().collect(),
                    lost: proposal.lost,
                    reason: proposal.reason.to_owned(),
                });
                self.ask_store(at, m, Ask::Propose(command, None));
            }
            Output::Room(room) => {
                if let Some(process) = self.process(m) {
                    process.rooms.set(set, room);
                }
            }
            Output::Promised(to) => {
                self.process(m).into_iter().for_each(|p| p.rooms.promise(to));
            }
        }
    }

    pub(crate) fn brick_of(&self, m: usize, set: SetId) -> Option<BrickId> {
        // As this server knows it: another brick may have taken its place meanwhile.
        let known = self.machines[m].process.as_ref()?.known.sets.get(&set)?;
        known.bricks.iter().find(|b| b.server == server_id(m)).map(|b| b.id)
    }

    /// Sees to it that the core is woken when it wants to be.
    pub(crate) fn arm(&mut self, m: usize, set: SetId, wake: Option<Duration>) {
        let shown = self.shown(m);
        let Some(serving) = self.process(m).and_then(|p| p.serving(set)) else { return };
        let armed = serving.borrow().armed;
        let Some(at) = wake.filter(|at| armed.is_none_or(|armed| *at < armed)) else { return };
        serving.borrow_mut().armed = Some(at);
        let busy = self.machines[m].busy_until.max(self.now);
        let when = busy.max(self.now + self.machines[m].clock.lasts(at.saturating_sub(shown)));
        self.later(when, m, ToProcess::Wake(set));
    }

    fn on_wake(&mut self, m: usize, set: SetId) {
        let shown = self.shown(m);
        let Some(serving) = self.process(m).and_then(|p| p.serving(set)) else { return };
        let armed = serving.borrow_mut().armed.take();
        match armed {
            // An earlier wake of the same time has taken its place.
            None => {}
            Some(at) if at > shown => self.arm(m, set, Some(at)),
            Some(_) => self.step(m, set, Input::Wake),
        }
    }

    /// Work that may wait for a disk is done at the end of its time.
    fn do_work(&mut self, m: usize, set: SetId, id: u64) {
        let Some(brick) = self.brick_of(m, set) else { return };
        let Some(disk) = self.machines[m].disks.get(&brick) else { return };
        if disk.hangs {
            let again = self.now + self.rng.millis(20, 60);
            return self.later(again, m, ToProcess::Work(set, id));
        }
        let Some(work) = self.process(m).and_then(|p| p.works.remove(&(set, id))) else { return };
        let result = <Brick as set_core::LocalBrick>::run(work);
        if self.machines[m].disks.get(&brick).is_some_and(|d| d.is_off()) {
            return self.die(m);
        }
        let told = self.now + self.rng.micros(1, 300);
        self.later(told, m, ToProcess::Worked(set, id, result));
    }

    fn on_tick(&mut self, m: usize) {
        self.timer(m, TICK, ToProcess::Tick);
        let shown = self.shown(m);
        let Some(process) = self.process(m) else { return };
        let house = shown >= process.last_house + HOUSEKEEPING;
        if house {
            process.last_house = shown;
        }
        for set in process.open_sets() {
            self.step(m, set, Input::Tick);
            if house {
                self.step(m, set, Input::Maintenance);
            }
        }
        if house {
            self.retry_failed(m);
        }
    }

    /// Bricks that failed are closed, and opened anew after a while.
    fn retry_failed(&mut self, m: usize) {
        let shown = self.shown(m);
        let Some(process) = self.process(m) else { return };
        let failed = process.sets.close_failed(shown, |served| served.borrow().core.has_failed());
        let due = process.sets.is_due(shown);
        let known = process.known.clone();
        for (set, _, serving) in failed {
            self.count("brick failed");
            self.close_set(m, set, serving);
        }
        if due {
            self.adopt(m, &known);
        }
    }

    pub(crate) fn process_sets(&mut self, m: usize) -> Vec<SetId> {
        self.process(m).map_or_else(Vec::new, |p| p.open_sets())
    }
}
