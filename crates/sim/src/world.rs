//! The world: time, the queue of events, and who is in it.

use crate::brick::{Brick, Content};
use crate::check::Checks;
use crate::client::{Client, ToClient};
use crate::disk::Disk;
use crate::faults::{Fault, Faults};
use crate::log::Log;
use crate::net::Link;
use crate::rng::Prng;
use crate::server::{Server, ToServer};
use crate::store::{Store, ToStore};
use crate::{Config, Mutant, Stats};
use core::time::Duration;
use ids::{BrickId, Epoch, SetId};
use replica::View;
use std::collections::{BTreeMap, BTreeSet};

/// Who is where: indices of servers and sets, and the brick of a server in a set.
#[derive(Clone, Debug)]
pub(crate) struct SetPlan {
    pub(crate) servers: Vec<usize>,
    pub(crate) arbiters: BTreeSet<BrickId>,
    pub(crate) quorum: usize,
}

pub(crate) enum Event {
    Server { server: usize, inc: u32, what: ToServer },
    Store(ToStore),
    StoreTick,
    Client { client: usize, what: ToClient },
    Reconnect { from: usize, to: usize },
    Fault,
    Undo(Fault),
    Restart(usize),
    Rest,
}

/// How fast things go in this run.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) net: Duration,
    pub(crate) disk: Duration,
    /// How long a sync takes, at least and at most.
    pub(crate) sync: (Duration, Duration),
    pub(crate) think: Duration,
    pub(crate) sync_every: Duration,
    /// The driver applies within the step that asks for it, as the daemon does.
    pub(crate) inline: bool,
    /// Messages of one connection may overtake each other.
    pub(crate) reorder: bool,
    /// Drops per thousand messages between servers.
    pub(crate) drops: usize,
    /// Entries of a directory that a healing brick is told at once.
    pub(crate) page: usize,
    /// Requests per thousand that lie in a buffer until long after their client gave up the connection.
    pub(crate) late: usize,
}

pub(crate) struct World {
    pub(crate) now: Duration,
    count: u64,
    queue: BTreeMap<(Duration, u64), Event>,
    pub(crate) rng: Prng,
    pub(crate) config: Config,
    pub(crate) pace: Pace,
    pub(crate) log: Log,
    pub(crate) sets: Vec<SetPlan>,
    pub(crate) servers: Vec<Server>,
    pub(crate) links: Vec<Vec<Link>>,
    pub(crate) store: Store,
    pub(crate) clients: Vec<Client>,
    pub(crate) faults: Faults,
    pub(crate) checks: Checks,
    pub(crate) violation: Option<String>,
    pub(crate) calm: bool,
    /// Clients go on in the calm until all bricks are in sync: a healing must end under load too.
    pub(crate) busy: bool,
    pub(crate) done: bool,
}

const PER_SET: u32 = 16;

/// The id of the brick of `server` in `set`.
pub(crate) fn brick_id(set: usize, server: usize) -> BrickId {
    BrickId(u32::try_from(set).unwrap_or(0) * PER_SET + u32::try_from(server).unwrap_or(0) + 1)
}

/// The server of a brick.
pub(crate) fn server_of(brick: BrickId) -> usize {
    ((brick.0 - 1) % PER_SET) as usize
}

/// The set's name outside.
pub(crate) fn set_id(set: usize) -> SetId {
    SetId(u32::try_from(set).unwrap_or(0) + 1)
}

impl World {
    pub(crate) fn new(seed: u64, config: Config) -> World {
        let mut rng = Prng::new(seed);
        let servers = if rng.chance(850) { 3 + rng.below(5) } else { 1 + rng.below(2) };
        let sets = plan(&mut rng, servers);
        let (net, disk) = (rng.micros(50, 3000), rng.micros(20, 3000));
        let slow = (Duration::from_secs(4), Duration::from_secs(10));
        let pace = Pace {
            net,
            disk,
            sync: if config.slow_syncs { slow } else { (disk, disk * 8) },
            think: rng.millis(5, 60),
            sync_every: rng.millis(300, 5000),
            inline: rng.chance(500),
            reorder: rng.chance(300),
            drops: if rng.chance(500) { rng.below(20) } else { 0 },
            page: 1 + rng.below(6),
            late: if rng.chance(300) { rng.below(200) } else { 5 },
        };
        let views: Vec<View> = sets.iter().enumerate().map(|(i, s)| first_view(i, s)).collect();
        let mut world = World {
            now: Duration::ZERO,
            count: 0,
            queue: BTreeMap::new(),
            pace,
            log: Log { words: config.trace, ..Log::default() },
            servers: Vec::new(),
            links: (0..servers).map(|_| (0..servers).map(|_| Link::default()).collect()).collect(),
            store: Store::new(&sets, views, servers, &config),
            clients: Vec::new(),
            faults: Faults::draw(&mut rng, &config),
            checks: Checks::default(),
            violation: None,
            calm: false,
            busy: false,
            done: false,
            rng,
            config,
            sets,
        };
        world.populate(servers);
        world
    }

    fn populate(&mut self, servers: usize) {
        for s in 0..servers {
            let mut server = Server::new(&mut self.rng);
            for (i, set) in self.sets.iter().enumerate().filter(|(_, p)| p.servers.contains(&s)) {
                let id = brick_id(i, s);
                let keep = if self.rng.chance(400) { 150 + self.rng.below(150) } else { usize::MAX };
                let disk = Disk::new(set_id(i), set.arbiters.contains(&id), keep);
                server.bricks.insert(i, Brick::new(id, disk));
                server.known.insert(i, self.store.views[i].clone());
            }
            self.servers.push(server);
            self.after(Duration::ZERO, Event::Restart(s));
        }
        for c in 0..1 + self.rng.below(5) {
            let mut client = Client::new(c, &mut self.rng, &self.store.views);
            if self.config.slow_syncs {
                // A server that lives is waited for.
                client.timeout = Duration::from_secs(30);
            }
            self.clients.push(client);
            self.after(Duration::from_millis(1), Event::Client { client: c, what: ToClient::Think });
        }
        self.after(Duration::from_millis(100), Event::StoreTick);
        self.after(Duration::from_millis(500), Event::Fault);
        self.after(self.config.storm, Event::Rest);
    }

    pub(crate) fn at(&mut self, when: Duration, event: Event) {
        self.count += 1;
        self.queue.insert((when.max(self.now), self.count), event);
    }

    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(crate) fn fail(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    pub(crate) fn brick(&mut self, server: usize, set: usize) -> Option<&mut Brick> {
        self.servers.get_mut(server)?.bricks.get_mut(&set)
    }

    pub(crate) fn mutant(&self, m: Mutant) -> bool {
        self.config.mutant == m
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        while !self.done {
            let Some(((when, n), event)) = self.queue.pop_first() else {
                return Err("nothing happens any more".to_owned());
            };
            self.now = when;
            self.log.note(when, n, kind(&event));
            self.dispatch(event);
            if let Some(what) = self.violation.take() {
                return Err(what);
            }
        }
        self.check_end()
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Server { server, inc, what } => self.on_server(server, inc, what),
            Event::Store(what) => self.on_store(what),
            Event::StoreTick => self.store_tick(),
            Event::Client { client, what } => self.on_client(client, what),
            Event::Reconnect { from, to } => self.reconnect(from, to),
            Event::Fault => self.fault(),
            Event::Undo(fault) => self.undo(fault),
            Event::Restart(server) => self.restart(server),
            Event::Rest => self.rest(),
        }
    }

    /// The storm is over, or: is everything at rest by now?
    fn rest(&mut self) {
        if !self.calm {
            self.calm = true;
            self.busy = self.rng.chance(500);
            self.end_faults();
            self.last_wishes();
        } else if let Some(unrest) = self.unrest() {
            if self.now > self.config.storm + self.config.calm {
                self.fail(|| format!("liveness: {unrest}"));
            }
        } else {
            self.done = true;
        }
        self.after(Duration::from_millis(500), Event::Rest);
    }

    pub(crate) fn stats(&self) -> Stats {
        Stats {
            events: self.log.events,
            ops: self.checks.history.iter().filter(|r| r.answer.is_some()).count() as u64,
            changes: (0..self.sets.len()).map(|s| self.final_journal(s).len() as u64).sum(),
            views: self.store.views.iter().map(|v| u64::from(v.epoch.0)).sum(),
            faults: self.faults.counts.clone(),
            hash: self.log.hash,
        }
    }

    /// The journal of the set's first in-sync brick with data.
    pub(crate) fn final_journal(&self, set: usize) -> &[replica::Entry<Content>] {
        let Some(view) = self.store.views.get(set) else { return &[] };
        let brick = view.primary.or_else(|| view.in_sync.first().copied());
        let brick = brick.and_then(|b| self.servers.get(server_of(b))?.bricks.get(&set));
        brick.map_or(&[], |b| &b.disk.journal)
    }
}

fn kind(event: &Event) -> u64 {
    match event {
        Event::Server { server, what, .. } => 100 + (*server as u64) * 32 + what.kind(),
        Event::Store(_) => 1,
        Event::StoreTick => 2,
        Event::Client { client, .. } => 50 + *client as u64,
        Event::Reconnect { .. } => 3,
        Event::Fault => 4,
        Event::Undo(_) => 5,
        Event::Restart(_) => 6,
        Event::Rest => 8,
    }
}

fn plan(rng: &mut Prng, servers: usize) -> Vec<SetPlan> {
    let mut sets = Vec::new();
    for set in 0..1 + rng.below(3) {
        let bricks = 1 + rng.below(servers);
        let first = rng.below(servers);
        let chosen: Vec<usize> = (0..bricks).map(|i| (first + i) % servers).collect();
        let mut arbiters = BTreeSet::new();
        if bricks >= 3 && rng.chance(300) {
            arbiters.extend(chosen.last().map(|s| brick_id(set, *s)));
        }
        let quorum = match (rng.below(3), bricks) {
            (0, _) | (_, 2) => 1,
            (1, n) => 1 + rng.below(n),
            (_, n) => n / 2 + 1,
        };
        sets.push(SetPlan { servers: chosen, arbiters, quorum });
    }
    sets
}

fn first_view(set: usize, plan: &SetPlan) -> View {
    let in_sync: BTreeSet<BrickId> = plan.servers.iter().map(|s| brick_id(set, *s)).collect();
    let primary = in_sync.iter().copied().find(|b| !plan.arbiters.contains(b));
    View {
        epoch: Epoch(1),
        primary,
        in_sync,
        arbiters: plan.arbiters.clone(),
        quorum: plan.quorum,
        lost_before: Epoch(0),
    }
}
