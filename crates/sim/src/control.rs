//! A server's control thread: its lease, the leader's record of everybody's, and the pool's state as it comes.

use crate::arbitration::Rounds;
use crate::machine::ToProcess;
use crate::network::Node;
use crate::process::Serving;
use crate::store::{Ask, server_id};
use crate::trace::say;
use crate::world::World;
use cluster::State;
use cluster::liveness::HEARTBEAT;
use core::cell::RefCell;
use core::time::Duration;
use ids::{BrickId, ServerId, SetId};
use namespace::placement::SetRoom;
use server_core::arbitration_run::Proposed;
use server_core::leases::{self, Grant, Heard, Leadership, Lease, LeaseGiver};
use server_core::suspicion::Suspicions;
use server_core::{OpenSet, OpenedBrick, Place, Unopened};
use set_core::{Input, SetCore};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(crate) struct Control {
    lease: Lease,
    renewed: bool,
    giver: LeaseGiver,
    term: u64,
    reads: BTreeMap<u64, Reading>,
    next_read: u64,
    pub(crate) suspicions: Suspicions,
    pub(crate) unopened: BTreeMap<BrickId, Unopened>,
    pub(crate) rounds: Rounds,
    /// Who is being declared down. Nobody else is looked for meanwhile.
    declaring: BTreeMap<u64, ServerId>,
}

/// What the state that was asked for is wanted for.
enum Reading {
    OwnLease { sent: Duration },
    Confirm { from: usize, life: u32, sent: Duration },
    Round(u64),
}

impl Control {
    /// Until when somebody who knows the pool's state of that version may answer; `None`: he knows too little.
    pub(crate) fn lease(&self, version: u64) -> Option<Duration> {
        self.lease.of(version)
    }

    fn renew(&mut self, lease: Lease) {
        let Lease { until, version } = self.lease;
        self.lease = Lease { until: until.max(lease.until), version: version.max(lease.version) };
        self.renewed = true;
    }
}

impl World {
    pub(crate) fn begin_control(&mut self, m: usize) {
        let state = self.store.state().clone();
        let shown = self.shown(m);
        if let Some(process) = self.process(m) {
            process.control.giver.begin(shown, &state);
        }
        let first = self.rng.between(Duration::ZERO, HEARTBEAT / 5);
        self.timer(m, first, ToProcess::BeatDue);
        self.timer(m, first, ToProcess::Judge);
    }

    pub(crate) fn on_control(&mut self, m: usize, what: ToProcess) {
        match what {
            ToProcess::BeatDue => self.beat(m),
            ToProcess::Judge => self.detect_failures(m),
            ToProcess::Beat { from, life, sent, rooms } => self.on_beat(m, (from, life), sent, rooms),
            ToProcess::Lease { sent, grant, rooms } => self.on_lease(m, sent, grant, rooms),
            ToProcess::Read(id, state) => self.on_read(m, id, &state),
            ToProcess::NoLeader(id) => self.on_no_leader(m, id),
            ToProcess::Agreed(id, outcome) => self.on_agreed(m, id, outcome),
            ToProcess::AskEvidence(question) => self.give_evidence(m, question),
            ToProcess::Evidence { round, number, brick, evidence } => {
                self.on_evidence(m, round, number, brick, evidence);
            }
            ToProcess::Round(id) => self.round_goes_on(m, id),
            ToProcess::RoundOver(id, number) => self.end_round(m, id, number),
            _ => {}
        }
    }

    fn read(&mut self, m: usize, what: Reading) {
        let Some(process) = self.process(m) else { return };
        let control = &mut process.control;
        control.next_read += 1;
        control.reads.insert(control.next_read, what);
        let id = control.next_read;
        self.ask_store(self.now, m, Ask::Read(id));
    }

    pub(crate) fn read_for_round(&mut self, m: usize, round: u64) {
        self.read(m, Reading::Round(round));
    }

    /// Asks for the lease to be renewed.
    fn beat(&mut self, m: usize) {
        let sent = self.shown(m);
        let Some(process) = self.process(m) else { return };
        let renewed = core::mem::take(&mut process.control.renewed);
        let rooms = process.rooms.all().collect();
        self.timer(m, leases::next_beat(renewed), ToProcess::BeatDue);
        if self.store.leader() == Some(m) {
            self.read(m, Reading::OwnLease { sent });
        } else {
            self.ask_store(self.now, m, Ask::Beat { sent, rooms });
        }
    }

    /// Another server's heartbeat comes to this one, which leads or led.
    fn on_beat(&mut self, m: usize, (from, life): (usize, u32), sent: Duration, rooms: Vec<SetRoom>) {
        let shown = self.shown(m);
        let Some(process) = self.process(m) else { return };
        let state = process.known.clone();
        process.rooms.learn(&state, server_id(m), Some(server_id(from)), rooms.into_iter());
        let identity = crate::pool::identity(from);
        if process.control.giver.on_beat(shown, server_id(from), &identity, &state) == Heard::Confirm {
            self.read(m, Reading::Confirm { from, life, sent });
        }
    }

    fn on_read(&mut self, m: usize, id: u64, state: &Arc<State>) {
        let leads = self.store.leader() == Some(m);
        let Some(process) = self.process(m) else { return };
        let granted = leases::grant(leads.then_some(state.version), state);
        match process.control.reads.remove(&id) {
            Some(Reading::OwnLease { sent }) => {
                // The sets learn the state before they use the lease.
                if let Some(lease) = granted.lease(sent, state.version) {
                    process.control.renew(lease);
                }
            }
            Some(Reading::Confirm { from, life, sent }) => {
                let rooms: Vec<SetRoom> = process.rooms.all().collect();
                if self.machines[from].life == life
                    && self.network.reaches(Node::Server(m), Node::Server(from))
                {
                    self.tell(from, ToProcess::Lease { sent, grant: granted, rooms });
                }
            }
            Some(Reading::Round(round)) => self.round_has_state(m, round, Some(state)),
            None => {}
        }
    }

    fn on_no_leader(&mut self, m: usize, id: u64) {
        let Some(process) = self.process(m) else { return };
        if process.control.declaring.remove(&id).is_some() {
            return;
        }
        match process.control.reads.remove(&id) {
            Some(Reading::Round(round)) => self.round_has_state(m, round, None),
            Some(_) => {}
            None => self.on_agreed(m, id, Proposed::Unknown),
        }
    }

    fn on_lease(&mut self, m: usize, sent: Duration, grant: Grant, rooms: Vec<SetRoom>) {
        let Some(process) = self.process(m) else { return };
        let known = process.known.clone();
        process.rooms.learn(&known, server_id(m), None, rooms.into_iter());
        if let Some(lease) = grant.lease(sent, known.version) {
            process.control.renew(lease);
        }
    }

    /// The leader looks for servers whose leases ran out.
    fn detect_failures(&mut self, m: usize) {
        self.timer(m, leases::next_judging(), ToProcess::Judge);
        let shown = self.shown(m);
        let (leads, term) = (self.store.leader() == Some(m), self.store.term());
        let state = self.store.state().clone();
        let Some(process) = self.process(m) else { return };
        let control = &mut process.control;
        if !control.declaring.is_empty() {
            return;
        }
        let changed = control.term != term;
        control.term = term;
        let judged =
            control.giver.detect_failures(shown, Leadership { me: server_id(m), leads, changed }, &state);
        for server in judged.down {
            self.count("lease ran out");
            say!(self, "server {m}: declares server {server} down");
            let Some(process) = self.process(m) else { return };
            process.control.next_read += 1;
            let id = process.control.next_read;
            process.control.declaring.insert(id, server);
            self.ask_store(self.now, m, Ask::Declare { server, term, id });
        }
    }

    /// Whether what was agreed on or refused is that a server is down.
    pub(crate) fn ends_declaring(&mut self, m: usize, id: u64) -> bool {
        let Some(process) = self.process(m) else { return false };
        let Some(server) = process.control.declaring.remove(&id) else { return false };
        process.control.giver.decided(server);
        true
    }

    /// The pool's state comes in.
    pub(crate) fn on_state(&mut self, m: usize, state: Arc<State>) {
        let Some(process) = self.process(m) else { return };
        if state.version < process.known.version {
            return;
        }
        process.known = state.clone();
        self.adopt(m, &state);
    }

    /// Sees to it that the sets of this server are open, and know the state.
    pub(crate) fn adopt(&mut self, m: usize, state: &Arc<State>) {
        let Some(process) = self.process(m) else { return };
        let todo = process.sets.adopt(&server_core::bricks_to_open(state, server_id(m)));
        for (set, brick, served) in todo.close {
            if let Some(served) = served {
                self.close_set(m, set, served);
            }
            if let Some(process) = self.process(m) {
                process.control.unopened.remove(&brick);
            }
        }
        for (set, _) in todo.tell {
            if let Some(settings) = server_core::settings(state, set) {
                self.step(m, set, Input::Settings(settings));
            }
        }
        for (set, brick) in todo.open {
            let takes = self.rng.micros(100, 40_000);
            self.later(self.now + takes, m, ToProcess::Open(set, brick));
        }
    }

    /// Opens a brick.
    pub(crate) fn open_brick(&mut self, m: usize, set: SetId, brick: BrickId) {
        let shown = self.shown(m);
        let wall = self.machines[m].clock.wall(self.now);
        let Some(process) = self.machines[m].process.as_ref() else { return };
        let known = process.known.clone();
        let knows_all = process.control.lease(known.version).is_some_and(|until| shown < until);
        let Some(disk) = self.machines[m].disks.get_mut(&brick) else { return };
        if disk.hangs {
            let again = self.now + Duration::from_millis(50);
            return self.later(again, m, ToProcess::Open(set, brick));
        }
        disk.set_time(wall);
        let options = brick::Options { seed: Some(disk.opening()), ..self.pace.options.clone() };
        let Some(open) = OpenSet::new(set, brick, &known, &options, knows_all) else {
            return self.not_opened(m, set, brick, "the pool knows no such brick");
        };
        let mount_point = |_: &Path| Ok(PathBuf::from("/"));
        let place = Place { fs: disk.fs(), mount_point: &mount_point, adopted: &|_| () };
        let opened = open.run(place, shown);
        if disk.is_off() {
            drop(opened);
            return self.die(m);
        }
        match opened {
            Ok(opened) => match opened.uncertainty() {
                None => self.begin_set(m, set, brick, opened),
                Some(evidence) => self.begin_arbitration(m, set, brick, opened, evidence),
            },
            Err(why) => self.not_opened(m, set, brick, &why),
        }
    }

    /// A brick is open and may take part.
    pub(crate) fn begin_set(&mut self, m: usize, set: SetId, brick: BrickId, opened: OpenedBrick) {
        let shown = self.shown(m);
        say!(self, "server {m}: brick {brick} of set {set} is open: {opened:?}");
        self.ledger.opened(self.now, brick);
        self.store.opened(brick);
        let Some(process) = self.process(m) else { return };
        process.control.unopened.remove(&brick);
        let core = SetCore::new(opened.start(), shown);
        let serving = Rc::new(RefCell::new(Serving::new((set, brick), core)));
        if let Err(unwanted) = process.sets.opened(set, brick, serving) {
            return self.close_brick(m, set, unwanted);
        }
        let state = process.known.clone();
        if let Some(settings) = server_core::settings(&state, set) {
            self.step(m, set, Input::Settings(settings));
        }
        self.step(m, set, Input::Tick);
    }

    /// A brick cannot be opened: tried again after a while, and it leaves its view if another one is open.
    pub(crate) fn not_opened(&mut self, m: usize, set: SetId, brick: BrickId, why: &str) {
        let shown = self.shown(m);
        say!(self, "server {m}: brick {brick} of set {set} is not opened: {why}");
        let Some(process) = self.process(m) else { return };
        if !process.sets.not_opened(set, brick, shown) {
            process.control.unopened.remove(&brick);
            return self.brick_closed(m, brick);
        }
        self.count("brick refused");
        let Some(process) = self.process(m) else { return };
        let before = process.control.unopened.get(&brick).copied();
        process.control.unopened.insert(brick, Unopened::refused(before, shown));
        self.begin_refusal(m, set, brick);
    }
}
