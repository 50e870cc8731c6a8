//! The world: time, the queue of events, and who is in it.

use crate::Config;
use crate::administrator::Administrator;
use crate::client::{Client, ToClient};
use crate::clock::Clock;
use crate::coverage::Coverage;
use crate::disk::Disk;
use crate::faults::{Fault, Faults};
use crate::history::History;
use crate::interruptions::Steps;
use crate::keyed::Keyed;
use crate::ledger::Ledger;
use crate::machine::{Machine, ToProcess};
use crate::moves::Moves;
use crate::network::{Network, Node, Packet, Way};
use crate::rest::{Phase, Reader};
use crate::rng::Prng;
use crate::store::{Store, StoreEvent, machine_of};
use crate::stripes::Stripes;
use crate::succession::{Successions, Turn};
use crate::trace::{Trace, say};
use crate::workload::Workload;
use core::time::Duration;
use ids::{BrickId, SessionId, SetId};
use memory_fs::CrashRule;
use std::collections::BTreeMap;

/// What happens at a time.
pub(crate) enum Event {
    Process { machine: usize, life: u32, what: ToProcess },
    Resume { machine: usize, life: u32 },
    Packet { connection: u64, way: Way, packet: Packet },
    Client { client: usize, what: ToClient },
    Store(StoreEvent),
    Start(usize),
    WriteBack,
    Fault,
    Administer,
    Move,
    Blackout,
    Undo(Fault),
    PowerCut(usize),
    Succession(Turn),
    EndOfStorm,
    Rest,
}

/// How things go in this run.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) think: Duration,
    /// How bricks are run: small, so that what is kept in memory is often not there.
    pub(crate) options: brick::Options,
}

/// See the module.
pub(crate) struct World {
    pub(crate) now: Duration,
    count: u64,
    queue: BTreeMap<(Duration, u64), Event>,
    pub(crate) rng: Prng,
    pub(crate) config: Config,
    pub(crate) pace: Pace,
    pub(crate) rule: CrashRule,
    pub(crate) trace: Trace,
    pub(crate) network: Network,
    pub(crate) machines: Vec<Machine>,
    pub(crate) store: Store,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: Faults,
    pub(crate) successions: Successions,
    pub(crate) administrator: Administrator,
    pub(crate) moves: Moves,
    pub(crate) stripes: Stripes,
    pub(crate) keyed: Option<Keyed>,
    pub(crate) history: History,
    pub(crate) ledger: Ledger,
    pub(crate) coverage: Coverage,
    pub(crate) steps: Steps,
    /// By this steps are interrupted.
    pub(crate) interrupts: Option<Prng>,
    pub(crate) phase: Phase,
    pub(crate) reader: Reader,
    violation: Option<String>,
}

/// The session of a client, as it begins.
fn session_of(client: usize) -> SessionId {
    SessionId(1000 + client as u64)
}

impl World {
    pub(crate) fn new(seed: u64, config: Config) -> World {
        let mut rng = Prng::new(seed);
        let trace = Trace::new(config.trace);
        let rule = if rng.chance(250) && config.hostile { CrashRule::Hostile } else { CrashRule::Ordered };
        let count = if config.successions || rng.chance(850) { 3 + rng.below(3) } else { 1 + rng.below(2) };
        let mut state = crate::pool::draw(&mut rng, count, &config);
        let moves = Moves::draw(seed, &config);
        crate::pool::set_large(&mut state, moves.large());
        let stripes = Stripes::draw(seed, &config);
        if let Some(settings) = stripes.settings() {
            crate::pool::set_stripes(&mut state, settings);
        }
        let mut machines: Vec<Machine> = (0..count).map(|_| Machine::new(Clock::draw(&mut rng))).collect();
        for (set, brick) in state.bricks() {
            let disk = Disk::new(&mut rng, rule, config.slow_syncs, &brick.path);
            crate::pool::format(&state, set, brick, &disk);
            machines[machine_of(brick.server)].disks.insert(brick.id, disk);
        }
        let pace = Pace { think: rng.millis(5, 60), options: options(&mut rng) };
        let root = crate::pool::root(&state);
        let clients = 1 + rng.below(4);
        let clients: Vec<Client> = (0..clients)
            .map(|c| {
                let (clock, timeout) = (Clock::draw(&mut rng), rng.millis(500, 4000));
                let work = Workload::new(&mut rng, root, stripes.settings().is_some());
                Client::new(clock, session_of(c), timeout, work)
            })
            .collect();
        // What only trusted clients do: files with parts.
        let sessions: Vec<SessionId> = (0..clients.len()).map(session_of).collect();
        let keyed = Keyed::draw(seed, &sessions).filter(|_| stripes.settings().is_none());
        let interrupts = config.interrupts.then(|| Prng::new(seed ^ 0x69_6e_74_65_72));
        let faults = Faults::draw(&mut rng, &config);
        let network = Network::draw(&mut rng);
        let administrator = Administrator::draw(seed, &config);
        let mut world = World {
            now: Duration::ZERO,
            count: 0,
            queue: BTreeMap::new(),
            history: History::new(root),
            ledger: Ledger::new(&state),
            store: Store::new(state),
            rng,
            config,
            pace,
            rule,
            trace,
            network,
            machines,
            clients,
            faults,
            successions: Successions::default(),
            administrator,
            moves,
            stripes,
            keyed,
            coverage: Coverage::default(),
            steps: Steps::default(),
            interrupts,
            phase: Phase::Storm,
            reader: Reader::default(),
            violation: None,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        say!(self, "{} servers, {} clients, {:?}", self.machines.len(), self.clients.len(), self.rule);
        for set in self.store.state().sets.values() {
            say!(self, "set {}: {:?}", set.id, set.bricks);
        }
        for m in 0..self.machines.len() {
            let delay = self.rng.millis(0, 50);
            self.at(delay, Event::Start(m));
        }
        self.at(Duration::ZERO, Event::Store(StoreEvent::Look));
        self.publish_to_clients();
        for c in 0..self.clients.len() {
            let delay = self.rng.millis(50, 300);
            self.tell_client(delay, c, ToClient::Think);
            self.tell_client(delay, c, ToClient::Keep);
        }
        let first = self.rng.millis(300, 2500);
        self.at(first, Event::Fault);
        let write_back = self.rng.millis(200, 3000);
        self.at(write_back, Event::WriteBack);
        if let Some(first) = self.administrator.next() {
            self.at(first, Event::Administer);
        }
        if let Some(first) = self.moves.next() {
            self.at(first, Event::Move);
        }
        if let Some(at) = self.faults.blackout_at() {
            self.at(at, Event::Blackout);
        }
        if self.config.successions {
            self.begin_successions();
        }
        self.at(self.config.storm, Event::EndOfStorm);
    }

    /// Something happens at that time.
    pub(crate) fn at(&mut self, when: Duration, event: Event) {
        self.count += 1;
        self.queue.insert((when.max(self.now), self.count), event);
    }

    /// A property does not hold: the run ends.
    pub(crate) fn fail(&mut self, what: String) {
        say!(self, "VIOLATION: {what}");
        self.violation.get_or_insert(what);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.violation.is_some()
    }

    /// Something worth counting happened.
    pub(crate) fn count(&mut self, what: &'static str) {
        self.coverage.count(what);
    }

    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Result<(), String> {
        while let Some(((now, _), event)) = self.queue.pop_first() {
            self.now = now;
            let (kind, result_fid) = kind(&event);
            self.trace.event(now, kind, result_fid);
            self.happen(event);
            if let Some(violation) = self.violation.take() {
                return Err(violation);
            }
            if self.phase == Phase::Over {
                return Ok(());
            }
        }
        Err("nothing happens any more".to_owned())
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Process { machine, life, what } => self.give_process(machine, life, what),
            Event::Resume { machine, life } => self.resume(machine, life),
            Event::Packet { connection, way, packet } => self.arrive(connection, way, packet),
            Event::Client { client, what } => self.on_client(client, what),
            Event::Store(event) => self.on_store(event),
            Event::Start(machine) => {
                if !self.machines[machine].lives() {
                    self.start(machine);
                }
            }
            Event::WriteBack => self.write_back(),
            Event::Fault => self.fault(),
            Event::Administer => self.administer(),
            Event::Move => self.move_file(),
            Event::Blackout => self.blackout(),
            Event::Undo(fault) => self.undo(fault),
            Event::PowerCut(machine) if self.machines[machine].lives() => self.cut_power(machine),
            Event::PowerCut(_) => {}
            Event::Succession(turn) => self.take_turn(turn),
            Event::EndOfStorm => self.end_storm(),
            Event::Rest => self.look_for_rest(),
        }
    }

    /// A packet is at its receiver's.
    pub(crate) fn receive(&mut self, connection: u64, way: Way, packet: Packet) {
        let Some(c) = self.network.get(connection) else { return };
        let (node, life) = match way {
            Way::There => (Node::Server(c.to), c.to_life),
            Way::Back => (c.from, c.from_life),
        };
        match node {
            Node::Server(m) => self.give_process(m, life, ToProcess::Packet { connection, way, packet }),
            Node::Client(c) => self.on_client(c, ToClient::Packet { connection, packet }),
        }
    }

    /// The kernels write some of what was not synced, as they do at their leisure.
    fn write_back(&mut self) {
        let next = self.rng.millis(200, 4000);
        self.at(self.now + next, Event::WriteBack);
        let World { machines, rng, rule, .. } = self;
        let m = rng.below(machines.len());
        for disk in machines[m].disks.values_mut() {
            disk.write_back(*rule, rng);
        }
    }

    /// The pool's map goes to all clients, a little later and not always in its order.
    pub(crate) fn publish_to_clients(&mut self) {
        let Some(map) = crate::pool::map(self.store.state()) else { return };
        for c in 0..self.clients.len() {
            let mut delay = self.rng.millis(1, 100);
            if self.rng.chance(20) {
                delay += self.rng.millis(100, 3000);
            }
            delay += self.successions.lag(c);
            self.tell_client(self.now + delay, c, ToClient::Map(Box::new(map.clone())));
        }
    }

    /// A set goes on after a loss that no brick in sync was spared.
    pub(crate) fn lost(&mut self, set: SetId, in_sync: &std::collections::BTreeSet<BrickId>) {
        self.count("loss of unsynced changes");
        if let Err(why) = self.ledger.lost(self.now, set, in_sync) {
            self.fail(why);
        }
    }

    /// What came of the run.
    pub(crate) fn stats(&self) -> crate::Stats {
        crate::Stats {
            runs: 1,
            events: self.trace.events(),
            calls: self.history.len() as u64,
            counts: self.coverage.counts(),
            steps: self.steps.clone(),
            said: Trace::said(),
            hash: self.trace.hash(),
        }
    }

    /// Sets and the machines that have their bricks.
    pub(crate) fn places(&self) -> BTreeMap<SetId, Vec<(usize, BrickId)>> {
        let place = |s: &cluster::Set| s.bricks.iter().map(|b| (machine_of(b.server), b.id)).collect();
        self.store.state().sets.values().map(|s| (s.id, place(s))).collect()
    }
}

fn options(rng: &mut Prng) -> brick::Options {
    let small = rng.chance(500);
    let (fd_limit, nodes, names) = if small { (6, 8, 10) } else { (64, 256, 512) };
    brick::Options {
        fd_limit,
        nodes,
        names,
        dirty: if small { 5 } else { 64 },
        listing_names: if small { 6 } else { 512 },
        segment_size: 1000 + rng.below(60_000) as u64,
        ..brick::Options::default()
    }
}

fn kind(event: &Event) -> (u64, u64) {
    match event {
        Event::Process { machine, life, .. } => (1, (*machine as u64) << 32 | u64::from(*life)),
        Event::Resume { machine, .. } => (2, *machine as u64),
        Event::Packet { connection, way, .. } => (3, connection * 2 + u64::from(*way == Way::Back)),
        Event::Client { client, .. } => (4, *client as u64),
        Event::Store(_) => (5, 0),
        Event::Start(machine) => (6, *machine as u64),
        Event::WriteBack => (7, 0),
        Event::Fault => (8, 0),
        Event::Undo(_) => (9, 0),
        Event::Blackout => (12, 0),
        Event::Succession(_) => (13, 0),
        Event::EndOfStorm => (10, 0),
        Event::Rest => (11, 0),
        Event::Administer => (14, 0),
        Event::Move => (15, 0),
        Event::PowerCut(machine) => (16, *machine as u64),
    }
}
