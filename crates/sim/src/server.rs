//! A server's process: drives the replicas of its bricks as the daemon does.

use crate::Mutant;
use crate::answer::{Answer, Outcome, Place, work_out};
use crate::brick::{Brick, Content, Record};
use crate::client::{Reply, ToClient};
use crate::log::say;
use crate::rng::Prng;
use crate::store::{LEASE, Renewal, ToStore};
use crate::world::{Event, World, server_of, set_id};
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn, Time};
use replica::{Admission, Input, Message, Output, Role, SyncToken, Ticket, View};
use std::collections::{BTreeMap, VecDeque};
use wire::{Fail, Op};

/// What goes between bricks.
#[derive(Clone, Debug)]
pub(crate) struct PeerMessage {
    pub(crate) set: usize,
    pub(crate) from: BrickId,
    pub(crate) to: BrickId,
    pub(crate) epoch: Epoch,
    pub(crate) body: PeerBody,
}

#[derive(Clone, Debug)]
pub(crate) enum PeerBody {
    Replicate(Lsn, Record),
    Other(Message),
}

/// A client's request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) client: usize,
    pub(crate) conn: u64,
    /// The place in the history.
    pub(crate) record: usize,
    pub(crate) epoch: Epoch,
    pub(crate) finished: u64,
}

/// What happens to a process. A frozen one finds all of it when it wakes.
pub(crate) enum ToServer {
    Peer(PeerMessage),
    Link { set: usize, peer: BrickId, up: bool },
    Request(Request),
    Tick,
    Beat,
    SyncAll,
    Granted { views: Vec<(usize, View)>, lease: Duration },
    View(usize, View),
    Append { set: usize, life: u32 },
    Applied { set: usize, life: u32, lsn: Lsn },
    SyncDone { set: usize, life: u32, upto: usize, token: Option<SyncToken> },
    Reopen(usize),
}

impl ToServer {
    pub(crate) fn kind(&self) -> u64 {
        match self {
            ToServer::Peer(m) => 20 + matches!(m.body, PeerBody::Other(_)) as u64,
            ToServer::Link { .. } => 1,
            ToServer::Request(_) => 2,
            ToServer::Tick => 3,
            ToServer::Beat => 4,
            ToServer::SyncAll => 5,
            ToServer::Granted { .. } => 6,
            ToServer::View(..) => 7,
            ToServer::Append { .. } => 8,
            ToServer::Applied { .. } => 9,
            ToServer::SyncDone { .. } => 10,
            ToServer::Reopen(_) => 11,
        }
    }
}

/// Somebody who waits for an answer.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    pub(crate) request: Request,
    pub(crate) answer: Answer,
    /// The change that the answer vouches for.
    pub(crate) lsn: Option<Lsn>,
}

pub(crate) struct Server {
    pub(crate) alive: bool,
    /// Its port refuses connections (the process is gone, the machine is not).
    pub(crate) refuses: bool,
    pub(crate) inc: u32,
    pub(crate) frozen: bool,
    pub(crate) inbox: VecDeque<ToServer>,
    pub(crate) slow: Duration,
    /// Cut off from the pool store.
    pub(crate) cut: bool,
    /// Dies after so many more outputs.
    pub(crate) dies_in: Option<u32>,
    /// What the store granted, on this server's clock.
    pub(crate) lease: Duration,
    pub(crate) bricks: BTreeMap<usize, Brick>,
    waiters: BTreeMap<(usize, Ticket), Waiter>,
    tickets: Ticket,
    conns: BTreeMap<usize, u64>,
    ppm: i64,
    born: Duration,
}

impl Server {
    pub(crate) fn new(rng: &mut Prng) -> Server {
        Server {
            alive: false,
            refuses: false,
            inc: 0,
            frozen: false,
            inbox: VecDeque::new(),
            slow: Duration::ZERO,
            cut: false,
            dies_in: None,
            lease: Duration::ZERO,
            bricks: BTreeMap::new(),
            waiters: BTreeMap::new(),
            tickets: 0,
            conns: BTreeMap::new(),
            ppm: i64::try_from(rng.below(2001)).unwrap_or(0) - 1000,
            born: rng.millis(1, 100_000),
        }
    }

    /// This server's clock: starts anywhere, runs up to a thousandth too fast or slow.
    pub(crate) fn clock(&self, now: Duration) -> Duration {
        let nanos = i128::try_from(now.as_nanos()).unwrap_or(0);
        let drift = nanos * i128::from(self.ppm) / 1_000_000;
        self.born + Duration::from_nanos(u64::try_from(nanos + drift).unwrap_or(0))
    }

    pub(crate) fn die(&mut self) {
        self.alive = false;
        self.frozen = false;
        self.inc += 1;
        self.inbox.clear();
        self.waiters.clear();
        self.conns.clear();
        self.tickets = 0;
        self.dies_in = None;
        self.lease = Duration::ZERO;
        self.bricks.values_mut().for_each(Brick::close);
    }
}

const TICK: Duration = Duration::from_millis(100);
const BEAT: Duration = Duration::from_millis(500);

impl World {
    /// A process starts. It learns the present views, and its replicas act only in newer ones.
    pub(crate) fn restart(&mut self, s: usize) {
        if self.servers[s].alive {
            return;
        }
        if self.servers[s].cut || self.store.down {
            return self.after(Duration::from_millis(200), Event::Restart(s));
        }
        say!(self, "server {s} starts");
        let no_floor = self.mutant(Mutant::NoFloor);
        let forget = self.mutant(Mutant::ForgetsResults);
        let server = &mut self.servers[s];
        server.alive = true;
        for (set, brick) in &mut server.bricks {
            let epoch = self.store.views[*set].epoch;
            brick.open(if no_floor { Epoch(epoch.0 - 1) } else { epoch }, forget);
        }
        let inc = server.inc;
        for (delay, what) in [
            (TICK, ToServer::Tick),
            (Duration::ZERO, ToServer::Beat),
            (self.pace.sync_every, ToServer::SyncAll),
        ] {
            self.after(delay, Event::Server { server: s, inc, what });
        }
    }

    pub(crate) fn on_server(&mut self, s: usize, inc: u32, what: ToServer) {
        let server = &mut self.servers[s];
        if !server.alive || server.inc != inc {
            return;
        }
        if server.frozen {
            server.inbox.push_back(what);
            return;
        }
        self.handle(s, what);
    }

    /// A frozen process goes on: all that waited happens now.
    pub(crate) fn wake(&mut self, s: usize) {
        self.servers[s].frozen = false;
        let inc = self.servers[s].inc;
        for what in core::mem::take(&mut self.servers[s].inbox) {
            self.on_server(s, inc, what);
        }
    }

    fn again(&mut self, s: usize, delay: Duration, what: ToServer) {
        let inc = self.servers[s].inc;
        self.after(delay, Event::Server { server: s, inc, what });
    }

    fn handle(&mut self, s: usize, what: ToServer) {
        match what {
            ToServer::Peer(m) => {
                let (from, epoch) = (m.from, m.epoch);
                let input = match m.body {
                    PeerBody::Replicate(commit, entry) => Input::Replicate { from, epoch, commit, entry },
                    PeerBody::Other(message) => Input::Peer { from, epoch, message },
                };
                self.step(s, m.set, input);
            }
            ToServer::Link { set, peer, up } => {
                self.step(s, set, if up { Input::LinkUp(peer) } else { Input::LinkDead(peer) });
            }
            ToServer::Request(request) => self.serve(s, request),
            ToServer::Tick => {
                self.again(s, TICK, ToServer::Tick);
                for set in self.sets_of(s) {
                    self.step(s, set, Input::Tick);
                }
            }
            ToServer::Beat => self.beat(s),
            ToServer::SyncAll => {
                self.again(s, self.pace.sync_every, ToServer::SyncAll);
                for set in self.sets_of(s) {
                    self.begin_sync(s, set, None);
                }
            }
            ToServer::Granted { views, lease } => {
                // Views first: a lease that was granted after a view changed must not serve the old view.
                for (set, view) in views {
                    self.step(s, set, Input::View(view));
                }
                self.servers[s].lease = self.servers[s].lease.max(lease);
                let lease =
                    if self.mutant(Mutant::IgnoresLeases) { Duration::from_secs(1 << 40) } else { lease };
                for set in self.sets_of(s) {
                    self.step(s, set, Input::Lease(lease));
                }
            }
            ToServer::View(set, view) => self.step(s, set, Input::View(view)),
            ToServer::Append { set, life } => self.append(s, set, life),
            ToServer::Applied { set, life, lsn } => {
                if self.servers[s].bricks[&set].life == life {
                    self.step(s, set, Input::Applied { lsn });
                }
            }
            ToServer::SyncDone { set, life, upto, token } => self.sync_done(s, set, life, upto, token),
            ToServer::Reopen(set) => {
                let epoch = self.store.views[set].epoch;
                self.waiters_of(s, set);
                if let Some(brick) = self.brick(s, set) {
                    brick.open(epoch, false);
                }
                self.beat(s);
            }
        }
    }

    fn sets_of(&self, s: usize) -> Vec<usize> {
        self.servers[s].bricks.keys().copied().collect()
    }

    /// Nobody who waits at this brick is answered.
    fn waiters_of(&mut self, s: usize, set: usize) {
        self.servers[s].waiters.retain(|(at, _), _| *at != set);
    }

    /// Renews the lease, and says what the store must know of the bricks.
    fn beat(&mut self, s: usize) {
        let server = &self.servers[s];
        let sent = server.clock(self.now);
        let bricks = server.bricks.iter();
        let renewal = Renewal {
            server: s,
            inc: server.inc,
            lease: sent + LEASE,
            floors: bricks.clone().map(|(set, b)| (*set, b.floor)).collect(),
            leaving: bricks
                .clone()
                .filter(|(_, b)| b.diverged)
                .map(|(set, _)| (*set, self.replica_epoch(s, *set)))
                .collect(),
            torn: bricks.filter(|(_, b)| b.torn).map(|(set, b)| (*set, b.disk.last())).collect(),
        };
        self.send_store(s, ToStore::Renew(renewal));
        self.again(s, BEAT, ToServer::Beat);
    }

    /// Gives a replica an input and does what it says.
    pub(crate) fn step(&mut self, s: usize, set: usize, input: Input<Content>) {
        let inc = self.servers[s].inc;
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let now = self.servers[s].clock(self.now);
            let Some(replica) = self.brick(s, set).and_then(|b| b.replica.as_mut()) else { return };
            let mut outputs = Vec::new();
            let before = replica.role();
            replica.step(now, input, &mut outputs);
            let (role, epoch) = (replica.role(), replica.view().epoch);
            if role != before {
                say!(self, "set {set} server {s}: {before:?} -> {role:?} in epoch {epoch}");
            }
            for output in outputs {
                self.count_down(s);
                if self.servers[s].inc != inc || !self.servers[s].alive {
                    return;
                }
                self.perform(s, set, output, &mut inputs);
            }
        }
    }

    fn count_down(&mut self, s: usize) {
        if let Some(n) = &mut self.servers[s].dies_in {
            if *n == 0 {
                self.kill(s, "kill between outputs");
            } else {
                *n -= 1;
            }
        }
    }

    fn perform(
        &mut self,
        s: usize,
        set: usize,
        output: Output<Content>,
        inputs: &mut VecDeque<Input<Content>>,
    ) {
        let from = self.servers[s].bricks[&set].id;
        match output {
            Output::Apply(entry) => self.apply(s, set, entry, inputs),
            Output::Replicate { to, epoch, commit, entry } => {
                let body = PeerBody::Replicate(commit, entry);
                self.send_peer(s, PeerMessage { set, from, to, epoch, body });
            }
            Output::Send { to, epoch, message } => {
                say!(self, "set {set} {from} -> {to} (epoch {epoch}): {message:?}");
                self.send_peer(s, PeerMessage { set, from, to, epoch, body: PeerBody::Other(message) });
            }
            Output::Sync { token, .. } => self.begin_sync(s, set, Some(token)),
            Output::Release(ticket) => {
                if let Some(w) = self.servers[s].waiters.remove(&(set, ticket)) {
                    self.answer(s, set, w);
                }
            }
            Output::Refuse(ticket, errno) => {
                if let Some(w) = self.servers[s].waiters.remove(&(set, ticket)) {
                    self.reply(s, &w.request, Ok(Answer::Errno(errno)));
                }
            }
            Output::Forget(ticket) => {
                let epoch = self.replica_epoch(s, set);
                if let Some(w) = self.servers[s].waiters.remove(&(set, ticket)) {
                    self.reply(s, &w.request, Err(Fail::WrongView { epoch }));
                }
            }
            Output::Propose(proposal) => {
                say!(self, "set {set} {from} proposes {proposal:?}");
                let inc = self.servers[s].inc;
                self.send_store(s, ToStore::Propose { set, server: s, inc, proposal });
            }
            Output::Diverged => {
                say!(self, "set {set} {from} has diverged");
                if let Some(brick) = self.brick(s, set) {
                    brick.diverged = true;
                    brick.forget_queue();
                }
            }
        }
    }

    fn replica_epoch(&self, s: usize, set: usize) -> Epoch {
        let replica = self.servers[s].bricks.get(&set).and_then(|b| b.replica.as_ref());
        replica.map_or(Epoch(0), |r| r.view().epoch)
    }

    fn apply(&mut self, s: usize, set: usize, entry: Record, inputs: &mut VecDeque<Input<Content>>) {
        let from = self.servers[s].bricks[&set].id;
        say!(self, "set {set} {from} orders {:?} {:?} {:?}", entry.stamp, entry.op, entry.body.change());
        if let Some(what) = self.checks.stamps.ordered(set, &entry) {
            self.fail(|| what);
        }
        let delay = self.rng.between(Duration::ZERO, self.pace.disk * 2);
        let (now, inline) = (self.now, self.pace.inline);
        let acks_early = self.mutant(Mutant::AcksEarly);
        let Some(brick) = self.brick(s, set) else { return };
        let lsn = entry.stamp.lsn;
        brick.tree.apply(entry.body.change(), entry.body.tag());
        brick.queue.push_back(entry);
        if inline {
            inputs.extend(self.write_next(s, set));
            return;
        }
        brick.busy = brick.busy.max(now) + delay;
        let (when, life) = (brick.busy, brick.life);
        let inc = self.servers[s].inc;
        self.at(when, Event::Server { server: s, inc, what: ToServer::Append { set, life } });
        if acks_early {
            inputs.push_back(Input::Applied { lsn });
        }
    }

    /// The next decided change goes to the journal and the tree, or fails to.
    fn write_next(&mut self, s: usize, set: usize) -> Option<Input<Content>> {
        let brick = self.brick(s, set)?;
        let entry = brick.queue.pop_front()?;
        let lsn = entry.stamp.lsn;
        let fails = match &mut brick.fails_in {
            Some(0) => true,
            Some(n) => {
                *n -= 1;
                false
            }
            None => false,
        };
        if !fails {
            brick.disk.append(entry);
            return Some(Input::Applied { lsn });
        }
        // Nobody else was sent it: the position may be given again in this epoch.
        let alone =
            brick.replica.as_ref().is_some_and(|r| r.role() == Role::Primary && r.view().in_sync.len() == 1);
        brick.tree = brick.disk.tree.clone();
        for e in &brick.queue {
            brick.tree.apply(e.body.change(), e.body.tag());
        }
        let errno = if self.rng.chance(500) { 28 } else { 5 };
        say!(self, "set {set} server {s}: {lsn} cannot be applied: {errno}");
        *self.faults.counts.entry("apply failure").or_default() += 1;
        if alone {
            self.checks.stamps.withdrawn(set, &entry);
        }
        Some(Input::ApplyFailed { lsn, errno })
    }

    fn append(&mut self, s: usize, set: usize, life: u32) {
        if self.servers[s].bricks[&set].life != life {
            return;
        }
        match self.write_next(s, set) {
            Some(Input::Applied { lsn }) => {
                let inc = self.servers[s].inc;
                // A fixed time: applied changes are told in order.
                let when = self.now + self.pace.disk / 8;
                self.at(when, Event::Server { server: s, inc, what: ToServer::Applied { set, life, lsn } });
                self.answer_early(s, set, lsn);
            }
            Some(input) => self.step(s, set, input),
            None => {}
        }
    }

    fn begin_sync(&mut self, s: usize, set: usize, token: Option<SyncToken>) {
        let delay = self.rng.between(self.pace.disk, self.pace.disk * 8);
        let brick = &self.servers[s].bricks[&set];
        let (life, upto) = (brick.life, brick.disk.journal.len());
        self.again(s, delay, ToServer::SyncDone { set, life, upto, token });
    }

    fn sync_done(&mut self, s: usize, set: usize, life: u32, upto: usize, token: Option<SyncToken>) {
        let Some(brick) = self.brick(s, set).filter(|b| b.life == life) else { return };
        let errno = if brick.sync_fails { 5 } else { 0 };
        let alone = brick.replica.as_ref().is_none_or(|r| r.view().in_sync.len() <= 1);
        brick.rotten |= errno != 0 && !alone;
        if errno == 0 {
            if !brick.rotten {
                brick.disk.sync(upto);
            }
            let lsn = brick.disk.durable();
            self.step(s, set, Input::Durable { lsn, available: 1 << 30 });
        } else {
            *self.faults.counts.entry("sync failure").or_default() += 1;
        }
        let token = token.or((errno != 0).then_some(SyncToken::Local(0)));
        if let Some(token) = token {
            self.step(s, set, Input::Synced { token, errno });
        }
    }

    /// Takes one request of a client.
    fn serve(&mut self, s: usize, request: Request) {
        // A session's newer connection ends its older ones.
        let conn = self.servers[s].conns.entry(request.client).or_default();
        if request.conn < *conn {
            return;
        }
        *conn = request.conn;
        let record = &self.checks.history[request.record];
        let (set, op, tag, id) = (record.set, record.op.clone(), record.tag, record.id);
        let now = self.servers[s].clock(self.now);
        let Some(replica) = self.brick(s, set).and_then(|b| b.replica.as_mut()) else {
            return self.reply(s, &request, Err(Fail::Busy));
        };
        let fail = match replica.admit(now, request.epoch, id, request.finished) {
            Admission::Go => None,
            Admission::Done(lsn, about) => {
                *self.faults.counts.entry("resend recognised").or_default() += 1;
                let ticket = self.ticket(s, set, request, Answer::Done(about), Some(lsn));
                return self.step(s, set, Input::Await { ticket, lsn });
            }
            Admission::WrongView(epoch) => Some(Fail::WrongView { epoch }),
            Admission::Busy => Some(Fail::Busy),
            Admission::BelowQuorum => Some(Fail::BelowQuorum),
        };
        match fail {
            Some(fail) => self.reply(s, &request, Err(fail)),
            None => self.carry_out(s, set, request, &op, tag),
        }
    }

    fn carry_out(&mut self, s: usize, set: usize, request: Request, op: &Op, tag: u64) {
        let clock = self.servers[s].clock(self.now);
        let now = Time { sec: i64::try_from(clock.as_secs()).unwrap_or(0), nsec: clock.subsec_nanos() };
        let id = self.checks.history[request.record].id;
        let Some(brick) = self.brick(s, set) else { return };
        let Some(replica) = &brick.replica else { return };
        let next = replica.next();
        let place = Place { set: set_id(set), epoch: next.epoch, lsn: next.lsn, now };
        let (outcome, objects) = work_out(&mut brick.tree, op, tag, place);
        match outcome {
            Outcome::Change(change, about) => {
                let body = Content::new(change, tag);
                let ticket = self.ticket(s, set, request, Answer::Done(about), Some(next.lsn));
                self.step(s, set, Input::Decided { ticket, op: id, about, body });
            }
            Outcome::Answer(Answer::Done(None)) if matches!(op, Op::Fsync { .. }) => {
                let ticket = self.ticket(s, set, request, Answer::Done(None), None);
                self.step(s, set, Input::Sync { ticket, fid: objects.first().copied() });
            }
            Outcome::Answer(answer) => {
                let ticket = self.ticket(s, set, request, answer, None);
                let objects = if self.mutant(Mutant::ShowsPending) { Vec::new() } else { objects };
                self.step(s, set, Input::Shown { ticket, objects });
            }
        }
    }

    fn ticket(&mut self, s: usize, set: usize, request: Request, answer: Answer, lsn: Option<Lsn>) -> Ticket {
        let server = &mut self.servers[s];
        server.tickets += 1;
        server.waiters.insert((set, server.tickets), Waiter { request, answer, lsn });
        server.tickets
    }

    /// The mutant that does not wait for the others.
    fn answer_early(&mut self, s: usize, set: usize, lsn: Lsn) {
        if !self.mutant(Mutant::AnswersEarly) {
            return;
        }
        let due = |w: &Waiter| w.lsn == Some(lsn);
        let found = self.servers[s].waiters.iter().find(|((at, _), w)| *at == set && due(w)).map(|(k, _)| *k);
        let leads = self.servers[s].bricks[&set].replica.as_ref().is_some_and(|r| r.role() == Role::Primary);
        if let Some(w) = found.filter(|_| leads).and_then(|k| self.servers[s].waiters.remove(&k)) {
            self.answer(s, set, w);
        }
    }

    fn answer(&mut self, s: usize, set: usize, waiter: Waiter) {
        self.check_release(s, set, &waiter);
        self.reply(s, &waiter.request, Ok(waiter.answer));
    }

    fn reply(&mut self, s: usize, request: &Request, result: Result<Answer, Fail>) {
        let client = request.client;
        if self.clients[client].cut == Some(s) {
            return;
        }
        let delay = self.net_delay(Some(s), None);
        let reply = Reply { server: s, conn: request.conn, record: request.record, result };
        self.after(delay, Event::Client { client, what: ToClient::Reply(reply) });
    }

    pub(crate) fn kill(&mut self, s: usize, why: &'static str) {
        say!(self, "server {s}: {why}");
        *self.faults.counts.entry(why).or_default() += 1;
        self.servers[s].die();
        self.servers[s].refuses = self.rng.chance(700);
        for other in 0..self.servers.len() {
            if other != s {
                self.break_link(s, other);
                self.break_link(other, s);
            }
        }
        let delay = if self.rng.chance(500) { self.rng.millis(5, 600) } else { self.rng.millis(600, 9000) };
        self.after(delay, Event::Restart(s));
    }

    /// Whether the server of the brick answers right now.
    pub(crate) fn is_up(&self, brick: BrickId) -> bool {
        let server = &self.servers[server_of(brick)];
        server.alive && !server.frozen
    }
}
