//! Machines: a clock, disks that outlive processes, and at most one server process.

use crate::clock::Clock;
use crate::disk::Disk;
use crate::interruptions::Cause;
use crate::network::Node;
use crate::process::Process;
use crate::store::StoreEvent;
use crate::trace::say;
use crate::world::{Event, World};
use cluster::State;
use cluster::arbitration::Evidence;
use core::time::Duration;
use ids::{BrickId, ServerId, SetId};
use server_core::arbitration_run::Proposed;
use server_core::leases::Grant;
use set_core::Done;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use wire::Errno;

/// A machine.
pub(crate) struct Machine {
    pub(crate) clock: Clock,
    pub(crate) disks: BTreeMap<BrickId, Disk>,
    pub(crate) process: Option<Process>,
    /// Counts processes: what is for an earlier one is void.
    pub(crate) life: u32,
    pub(crate) powered: bool,
    frozen: bool,
    /// The thread that serves the sets is at work until then.
    pub(crate) busy_until: Duration,
    /// What happened while the process was frozen or at work.
    deferred: VecDeque<ToProcess>,
    /// The process is killed after so many more steps of its sets.
    pub(crate) dies_in: Option<u32>,
    /// The process is killed after so many more times at which this set has said something and has not done what follows.
    pub(crate) dies_between: Option<(SetId, u32)>,
    /// If it dies in the middle of what it does, its machine loses power, too.
    pub(crate) dies_with_power: bool,
}

/// What a process is told.
pub(crate) enum ToProcess {
    /// Short times have passed.
    Tick,
    /// The wake of a set's core is due.
    Wake(SetId),
    /// A brick is to be opened now.
    Open(SetId, BrickId),
    /// A brick that is being closed is closed now.
    Close(SetId, BrickId),
    /// Work on a brick is done now, and its outcome told.
    Work(SetId, u64),
    /// The outcome of work.
    Worked(SetId, u64, Result<Done, Errno>),
    /// A packet on a connection arrived.
    Packet { connection: u64, way: crate::network::Way, packet: crate::network::Packet },
    /// A connection to another server is tried.
    Dial(ServerId),
    /// A question to another set goes on.
    AskAgain(u64),
    /// A try of such a question took too long: the question, and which try.
    AskTimedOut(u64, u64),
    /// The answer to such a question by a set of this process.
    OwnAnswer(u64, u64, wire::Reply),
    /// A session may be gone for good.
    SessionEnds(ids::SessionId),
    /// The pool's state.
    State(Arc<State>),
    /// A heartbeat is due.
    BeatDue,
    /// The leader's record is looked at.
    Judge,
    /// Another server's heartbeat, at the leader.
    Beat { from: usize, life: u32, sent: Duration, rooms: Vec<namespace::placement::SetRoom> },
    /// The leader's answer to a heartbeat.
    Lease { sent: Duration, grant: Grant, rooms: Vec<namespace::placement::SetRoom> },
    /// The outcome of a proposal.
    Agreed(u64, Proposed),
    /// The state that was asked for.
    Read(u64, Arc<State>),
    /// The leader could not be asked.
    NoLeader(u64),
    /// Another server asks what is known of a brick here.
    AskEvidence(Question),
    /// What another server says of its brick.
    Evidence { round: u64, number: u64, brick: BrickId, evidence: Evidence },
    /// An arbitration goes on.
    Round(u64),
    /// Who has not answered by now is silent: an arbitration, and which attempt of it.
    RoundOver(u64, u64),
}

/// A question for what is known of a brick: who asks, for which attempt of which arbitration of its.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) by: usize,
    pub(crate) life: u32,
    pub(crate) round: u64,
    pub(crate) number: u64,
    pub(crate) set: SetId,
    pub(crate) brick: BrickId,
    /// When it came, by the clock of who is asked; `None`: it is on its way.
    pub(crate) asked: Option<Duration>,
}

impl Machine {
    pub(crate) fn new(clock: Clock) -> Machine {
        Machine {
            clock,
            disks: BTreeMap::new(),
            process: None,
            life: 0,
            powered: true,
            frozen: false,
            busy_until: Duration::ZERO,
            deferred: VecDeque::new(),
            dies_in: None,
            dies_between: None,
            dies_with_power: false,
        }
    }

    /// Whether a process runs.
    pub(crate) fn lives(&self) -> bool {
        self.process.is_some()
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen
    }

    /// Whether the process knows the pool's state of that version.
    pub(crate) fn knows(&self, version: u64) -> bool {
        self.process.as_ref().is_some_and(|p| p.known.version >= version)
    }
}

impl World {
    /// Something happens to a process, or waits until it can.
    pub(crate) fn give_process(&mut self, machine: usize, life: u32, what: ToProcess) {
        let m = &mut self.machines[machine];
        if m.life != life || m.process.is_none() {
            return;
        }
        if m.frozen || m.busy_until > self.now || !m.deferred.is_empty() {
            m.deferred.push_back(what);
            if !m.frozen && m.deferred.len() == 1 {
                let when = m.busy_until;
                self.at(when, Event::Resume { machine, life });
            }
            return;
        }
        self.on_process(machine, what);
    }

    /// The process goes on with what has waited.
    pub(crate) fn resume(&mut self, machine: usize, life: u32) {
        loop {
            let m = &mut self.machines[machine];
            if m.life != life || m.process.is_none() || m.frozen {
                return;
            }
            if m.busy_until > self.now {
                let when = m.busy_until;
                self.at(when, Event::Resume { machine, life });
                return;
            }
            let Some(what) = m.deferred.pop_front() else { return };
            self.on_process(machine, what);
        }
    }

    /// A process of this machine starts.
    pub(crate) fn start(&mut self, machine: usize) {
        let m = &mut self.machines[machine];
        assert!(m.process.is_none(), "one process a machine");
        m.life += 1;
        (m.powered, m.frozen, m.busy_until) = (true, false, Duration::ZERO);
        m.deferred.clear();
        let (life, now) = (m.life, m.clock.now(self.now));
        let session = ids::SessionId(self.rng.draw() | 1);
        let state = self.store.state().clone();
        // What a server has on its own disk of the pool's state may be old: it begins with nothing and is told.
        let known = if self.rng.chance(500) { state } else { Arc::new(State::default()) };
        self.machines[machine].process = Some(Process::new(session, now));
        say!(self, "server {machine} starts, life {life}");
        self.begin_process(machine, known);
        self.at(self.now, Event::Store(StoreEvent::Publish { to: machine }));
    }

    /// The process ends at once. Its disks stay as they are: what was written lies in the page cache.
    pub(crate) fn kill(&mut self, machine: usize, why: &'static str) {
        if self.end_life(machine, why) {
            let short = self.rng.chance(600);
            let away = if short { self.rng.millis(5, 1500) } else { self.rng.millis(1500, 9000) };
            self.at(self.now + away, Event::Start(machine));
        }
    }

    /// As [`World::kill`]; another process starts after that time.
    pub(crate) fn kill_for(&mut self, machine: usize, why: &'static str, away: Duration) {
        if self.end_life(machine, why) {
            self.at(self.now + away, Event::Start(machine));
        }
    }

    fn end_life(&mut self, machine: usize, why: &'static str) -> bool {
        if !self.machines[machine].lives() {
            return false;
        }
        say!(self, "server {machine}: {why}");
        self.count(why);
        self.end_process(machine, false);
        true
    }

    /// The power of a machine fails: of what was not synced its disks lose a part.
    pub(crate) fn cut_power(&mut self, machine: usize) {
        if self.lose_power(machine) {
            let away = self.rng.millis(50, 6000);
            self.at(self.now + away, Event::Start(machine));
        }
    }

    /// As [`World::cut_power`]; it is back after that time.
    pub(crate) fn cut_power_for(&mut self, machine: usize, away: Duration) {
        if self.lose_power(machine) {
            self.at(self.now + away, Event::Start(machine));
        }
    }

    /// True if it had power.
    fn lose_power(&mut self, machine: usize) -> bool {
        say!(self, "server {machine}: power cut");
        self.count("power cut");
        let was = self.machines[machine].powered;
        self.end_process(machine, true);
        let World { machines, rng, rule, .. } = self;
        for disk in machines[machine].disks.values_mut() {
            disk.crash(*rule, rng);
        }
        for brick in self.machines[machine].disks.keys().copied().collect::<Vec<_>>() {
            self.ledger.power_failed(self.now, brick);
        }
        was
    }

    fn end_process(&mut self, machine: usize, power: bool) {
        self.note_interruptions(machine, if power { Cause::PowerCut } else { Cause::Killed });
        let m = &mut self.machines[machine];
        let life = m.life;
        m.process = None;
        m.life += 1;
        m.frozen = false;
        (m.dies_in, m.dies_between) = (None, None);
        m.deferred.clear();
        if power {
            m.powered = false;
        }
        for disk in m.disks.values_mut() {
            disk.process_ended();
        }
        self.close_all(Node::Server(machine), life, power);
    }

    pub(crate) fn freeze(&mut self, machine: usize) {
        self.machines[machine].frozen = true;
    }

    pub(crate) fn thaw(&mut self, machine: usize) {
        let m = &mut self.machines[machine];
        if m.frozen {
            m.frozen = false;
            let life = m.life;
            say!(self, "server {machine} thaws");
            self.at(self.now, Event::Resume { machine, life });
        }
    }
}
