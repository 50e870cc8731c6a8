//! A server's process: drives the replicas of its bricks as the daemon does.

use crate::Mutant;
use crate::answer::{Answer, Outcome, Place, work_out};
use crate::brick::{Brick, Content, Record};
use crate::client::{Reply, ToClient};
use crate::disk::Snapshot;
use crate::heal::{HealMessage, Telling};
use crate::log::say;
use crate::rng::Prng;
use crate::store::{LEASE, PATIENCE, Renewal, ToStore};
use crate::world::{Event, World, set_id};
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn, Time};
use replica::healing::{Patient, Sums};
use replica::{Admission, Input, Message, Output, Replica, Role, SyncToken, Ticket, View};
use std::collections::{BTreeMap, VecDeque};
use wire::{Change, Fail, Op};

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
    Missed(Record),
    Other(Message),
    Heal(HealMessage),
}

impl PeerBody {
    /// Healing rests on the order of what one connection carries.
    pub(crate) fn is_healing(&self) -> bool {
        matches!(self, PeerBody::Missed(_) | PeerBody::Heal(_))
    }
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
    Link {
        set: usize,
        peer: BrickId,
        up: bool,
    },
    Request(Request),
    Tick,
    Beat,
    SyncAll,
    Granted {
        views: Vec<(usize, View)>,
        lease: Duration,
    },
    View(usize, View),
    Append {
        set: usize,
        life: u32,
    },
    Applied {
        set: usize,
        life: u32,
        lsn: Lsn,
    },
    SyncDone {
        set: usize,
        life: u32,
        snapshot: Box<Snapshot>,
        token: Option<SyncToken>,
    },
    Reopen {
        set: usize,
        life: u32,
    },
    TellMissed(Telling),
    HealSynced {
        set: usize,
        life: u32,
        healing: u64,
        snapshot: Box<Snapshot>,
    },
    /// The primary's checksums are worked out.
    TellSums {
        set: usize,
        to: BrickId,
        epoch: Epoch,
        body: wire::peer::PeerBody,
    },
    /// The joining brick's are.
    Compare {
        set: usize,
        life: u32,
        healing: u64,
        fid: Fid,
        offset: u64,
        there: Sums,
        here: Result<Sums, wire::Errno>,
    },
    Doubtless {
        set: usize,
        life: u32,
        upto: Lsn,
    },
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
            ToServer::Reopen { .. } => 11,
            ToServer::TellMissed(_) => 12,
            ToServer::HealSynced { .. } => 13,
            ToServer::Doubtless { .. } => 14,
            ToServer::TellSums { .. } => 15,
            ToServer::Compare { .. } => 16,
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
    /// The newest views that its copy of the pool store has.
    pub(crate) known: BTreeMap<usize, View>,
    waiters: BTreeMap<(usize, Ticket), Waiter>,
    pub(crate) tickets: Ticket,
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
            known: BTreeMap::new(),
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
        self.frozen = false;
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
    /// A process starts. It knows the views that its copy of the store has, and its replicas act only in newer ones.
    pub(crate) fn restart(&mut self, s: usize) {
        if self.servers[s].alive {
            return;
        }
        say!(self, "server {s} starts");
        self.servers[s].alive = true;
        for set in self.sets_of(s) {
            self.open(s, set);
        }
        let server = &self.servers[s];
        let inc = server.inc;
        for (delay, what) in [
            (TICK, ToServer::Tick),
            (Duration::ZERO, ToServer::Beat),
            (self.pace.sync_every, ToServer::SyncAll),
        ] {
            self.after(delay, Event::Server { server: s, inc, what });
        }
    }

    /// Opens a brick.
    fn open(&mut self, s: usize, set: usize) {
        let (no_floor, forget) = (self.mutant(Mutant::NoFloor), self.mutant(Mutant::ForgetsResults));
        let trust = self.mutant(Mutant::TrustsAfterPowerCut);
        let view = self.servers[s].known[&set].clone();
        let floor = if no_floor { Epoch(view.epoch.0 - 1) } else { view.epoch };
        if let Some(brick) = self.brick(s, set) {
            brick.open(floor, forget, trust);
            if brick.replica.as_ref().is_some_and(replica::Replica::is_unsure) {
                *self.faults.counts.entry("unsure brick").or_default() += 1;
            }
        }
        self.step(s, set, Input::View(view));
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
                    PeerBody::Missed(entry) => {
                        let now = self.servers[s].clock(self.now);
                        if let Some(h) = self.brick(s, m.set).and_then(|b| b.healing.as_mut()) {
                            h.heard = now;
                        }
                        Input::Replicate { from, epoch, commit: Lsn(0), entry }
                    }
                    PeerBody::Other(message) => Input::Peer { from, epoch, message },
                    PeerBody::Heal(message) => {
                        return self.on_heal_message(s, m.set, from, epoch, message);
                    }
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
                    self.tick_heal(s, set);
                    self.drop_unclaimed(s, set);
                }
            }
            ToServer::Beat => self.beat(s),
            ToServer::SyncAll => {
                self.again(s, self.pace.sync_every, ToServer::SyncAll);
                for set in self.sets_of(s) {
                    self.begin_sync(s, set, None, None);
                }
            }
            ToServer::Granted { views, lease } => {
                // Views first: a lease that was granted after a view changed must not serve the old view.
                for (set, view) in views {
                    self.learn_view(s, set, view);
                }
                self.servers[s].lease = self.servers[s].lease.max(lease);
                let lease =
                    if self.mutant(Mutant::IgnoresLeases) { Duration::from_secs(1 << 40) } else { lease };
                for set in self.sets_of(s) {
                    self.step(s, set, Input::Lease(lease));
                }
            }
            ToServer::View(set, view) => self.learn_view(s, set, view),
            ToServer::Append { set, life } => self.append(s, set, life),
            ToServer::Applied { set, life, lsn } => {
                if self.servers[s].bricks[&set].life == life {
                    self.step(s, set, Input::Applied { lsn });
                }
            }
            ToServer::SyncDone { set, life, snapshot, token } => {
                self.sync_done(s, set, life, &snapshot, token);
            }
            ToServer::Reopen { set, life } => self.reopen(s, set, life),
            ToServer::TellMissed(telling) => self.tell_missed(s, telling),
            ToServer::HealSynced { set, life, healing, snapshot } => {
                self.heal_synced(s, set, life, healing, &snapshot);
            }
            ToServer::TellSums { set, to, epoch, body } => self.tell_sums(s, set, to, epoch, body),
            ToServer::Compare { set, life, healing, fid, offset, there, here } => {
                if self.servers[s].bricks[&set].life == life {
                    self.compare(s, set, healing, (fid, offset), &there, here);
                }
            }
            ToServer::Doubtless { set, life, upto } => self.doubtless(s, set, life, upto),
        }
    }

    fn learn_view(&mut self, s: usize, set: usize, view: View) {
        if let Some(known) = self.servers[s].known.get_mut(&set)
            && view.epoch > known.epoch
        {
            *known = view.clone();
        }
        self.step(s, set, Input::View(view));
    }

    /// A brick that could not go on is closed and opened anew.
    fn reopen(&mut self, s: usize, set: usize, life: u32) {
        if self.servers[s].bricks[&set].life != life {
            return;
        }
        self.waiters_of(s, set);
        if let Some(brick) = self.brick(s, set)
            && !brick.disk.sync_fails
        {
            let all = brick.disk.begin_sync(None);
            brick.disk.synced(&all);
        }
        self.open(s, set);
    }

    /// Files that lost their last name and that nobody has open go in the end.
    fn drop_unclaimed(&mut self, s: usize, set: usize) {
        let brick = &self.servers[s].bricks[&set];
        if brick.replica.as_ref().is_none_or(|r| r.role() != Role::Primary) {
            return;
        }
        let orphans = brick.tree.orphans();
        if let Some(fid) = self.rng.pick(&orphans).copied()
            && self.rng.chance(50)
        {
            self.order(s, set, Change::DropOrphan { fid });
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
        let renewal = Renewal { server: s, inc: server.inc, lease: sent + LEASE };
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
                self.role_changed(s, set, before);
            }
            for output in outputs {
                self.count_down(s);
                if self.servers[s].inc != inc || !self.servers[s].alive {
                    self.leave_half(s, set, output);
                    return;
                }
                self.perform(s, set, output, &mut inputs);
            }
        }
    }

    fn role_changed(&mut self, s: usize, set: usize, before: Role) {
        if let Some(brick) = self.brick(s, set)
            && before == Role::Healing
        {
            // What it healed went to the disk past the queue, which is empty.
            brick.healing = None;
            brick.forget_queue();
            brick.keeps_after = brick.disk.last().lsn;
        }
    }

    /// The process died while it carried out a change.
    fn leave_half(&mut self, s: usize, set: usize, output: Output<Content>) {
        let half = self.rng.chance(500);
        if let Output::Apply(entry, _) = output
            && half
            && let Some(brick) = self.brick(s, set)
            && brick.disk.mark.is_none()
            && brick.disk.incomplete.is_none()
            && entry.stamp.lsn == brick.disk.last().lsn.next()
            && brick.disk.tree.fits(entry.body.change()).is_ok()
        {
            let what = self.checks.stamps.ordered(set, &entry);
            let Some(brick) = self.brick(s, set) else { return };
            brick.disk.half(entry);
            *self.faults.counts.entry("half a change").or_default() += 1;
            what.into_iter().for_each(|w| self.fail(|| w));
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
            Output::Apply(entry, _) => self.apply(s, set, entry, inputs),
            Output::Replicate { to, epoch, commit, entry } => {
                self.note_tail(s, set);
                let body = PeerBody::Replicate(commit, entry);
                self.send_peer(s, PeerMessage { set, from, to, epoch, body });
            }
            Output::Send { to, epoch, mut message } => {
                if let Message::HereIAm { last, kept, .. } = &mut message
                    && self.mutant(Mutant::KeepsNothing)
                {
                    *kept = last.lsn;
                }
                say!(self, "set {set} {from} -> {to} (epoch {epoch}): {message:?}");
                self.send_peer(s, PeerMessage { set, from, to, epoch, body: PeerBody::Other(message) });
            }
            Output::Sync { token, fid } => self.begin_sync(s, set, fid, Some(token)),
            Output::Settle => inputs.extend(self.settle(s, set)),
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
                self.check_left_out(set, &proposal);
                let until = self.now + PATIENCE;
                self.send_store(s, ToStore::Propose { set, server: s, until, proposal });
            }
            Output::Diverged => {
                say!(self, "set {set} {from} has diverged");
                let delay = self.rng.millis(3000, 4000);
                let inc = self.servers[s].inc;
                if let Some(brick) = self.brick(s, set) {
                    brick.healing = None;
                    brick.forget_queue();
                    let life = brick.life;
                    self.after(delay, Event::Server { server: s, inc, what: ToServer::Reopen { set, life } });
                }
            }
        }
    }

    pub(crate) fn replica_epoch(&self, s: usize, set: usize) -> Epoch {
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
        if brick.healing.is_some() || brick.replica.as_ref().is_some_and(|r| r.role() == Role::Healing) {
            return inputs.push_back(self.apply_healing(s, set, &entry));
        }
        let lsn = entry.stamp.lsn;
        // Nothing is under way: what was written, but not told, comes first.
        let idle = |r: &Replica<Content>| r.view().in_sync.len() == 1 && r.applied().next() == lsn;
        let alone = brick.replica.as_ref().is_some_and(idle);
        brick.tree.apply(&entry.stamp, entry.body.change(), entry.body.tag());
        brick.queue.push_back(entry);
        if inline || (alone && brick.queue.len() == 1) {
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
        let half = self.rng.chance(500);
        let brick = self.brick(s, set)?;
        let entry = brick.queue.pop_front()?;
        let lsn = entry.stamp.lsn;
        // One before it could not be applied: a brick refuses what follows.
        let in_order = lsn == brick.disk.last().lsn.next();
        if in_order && let Err(e) = brick.disk.tree.fits(entry.body.change()) {
            let (id, change) = (brick.id, entry.body.change().clone());
            self.fail(|| format!("same: set {set}: {lsn} does not fit the tree of {id} ({e}): {change:?}"));
            return None;
        }
        let written = if in_order { brick.disk.try_write() } else { Err(wire::Errno::EIO) };
        let Err(e) = written else {
            brick.disk.append(entry);
            return Some(Input::Applied { lsn });
        };
        let others = !brick.replica.as_ref().is_some_and(Replica::is_only);
        // Nobody else was sent it: the position may be given again in this epoch.
        let alone = !others && brick.replica.as_ref().is_some_and(|r| r.role() == Role::Primary);
        if others {
            // Half of it may be there: these objects have to be healed, whatever becomes of the brick.
            if half && in_order {
                brick.disk.tree.apply(&entry.stamp, entry.body.change(), entry.body.tag());
            }
            let last = brick.disk.last().lsn;
            let fails = brick.disk.fails_in.take();
            let touched = entry.body.change().touched();
            let _marked = Patient::begin_heal(&mut brick.disk, last, &touched, last);
            brick.disk.fails_in = fails;
            brick.torn = true;
        }
        brick.tree = brick.disk.tree.clone();
        // With others this brick leaves, and does none of what follows.
        for e in brick.queue.iter().filter(|_| !others) {
            brick.tree.apply(&e.stamp, e.body.change(), e.body.tag());
        }
        say!(self, "set {set} server {s}: {lsn} cannot be applied: {e}");
        *self.faults.counts.entry("apply failure").or_default() += 1;
        if alone {
            self.checks.stamps.withdrawn(set, &entry);
        }
        self.excuse(set);
        Some(Input::ApplyFailed { lsn, errno: e.0 })
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

    fn begin_sync(&mut self, s: usize, set: usize, fid: Option<Fid>, token: Option<SyncToken>) {
        let delay = self.rng.between(self.pace.sync.0, self.pace.sync.1);
        let Some(brick) = self.brick(s, set) else { return };
        let (life, snapshot) = (brick.life, Box::new(brick.disk.begin_sync(fid)));
        self.again(s, delay, ToServer::SyncDone { set, life, snapshot, token });
    }

    fn sync_done(&mut self, s: usize, set: usize, life: u32, snapshot: &Snapshot, token: Option<SyncToken>) {
        let now = self.servers[s].clock(self.now);
        let Some(brick) = self.brick(s, set).filter(|b| b.life == life) else { return };
        let errno = if brick.disk.sync_fails { 5 } else { 0 };
        let whole = token.is_none();
        if errno == 0 {
            brick.disk.synced(snapshot);
            if let Some(h) = brick.healing.as_mut().filter(|_| token.is_some()) {
                h.heard = now;
            }
            let lsn = brick.disk.durable();
            if whole {
                self.step(s, set, Input::Durable { lsn, available: 1 << 30 });
            }
        } else {
            self.doubt_unsynced(s, set);
        }
        let token = token.or((errno != 0).then_some(SyncToken::Local(0)));
        if let Some(token) = token {
            self.step(s, set, Input::Synced { token, errno });
        }
    }

    /// A sync failed: what was written since the durable position may be lost, and no later sync will say so.
    pub(crate) fn doubt_unsynced(&mut self, s: usize, set: usize) {
        *self.faults.counts.entry("sync failure").or_default() += 1;
        let Some(brick) = self.brick(s, set) else { return };
        // A brick that is alone goes on all the same; what the kernel dropped of it is nowhere else.
        if brick.replica.as_ref().is_none_or(Replica::is_only) {
            return;
        }
        brick.disk.drop_pages();
        let (durable, fails) = (brick.disk.durable(), brick.disk.fails_in.take());
        let _marked = Patient::begin_heal(&mut brick.disk, durable, &[], Lsn(0));
        brick.disk.fails_in = fails;
        brick.torn = true;
        self.excuse(set);
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
        let admission = match op {
            Op::Fsync { .. } => replica.admit_sync(now, request.epoch),
            _ => replica.admit(now, request.epoch, id, request.finished),
        };
        let fail = match admission {
            Admission::Go => None,
            Admission::Done(replica::Outcome { lsn, about, .. }) => {
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
        self.servers[s].alive = false;
        self.servers[s].inc += 1;
        self.servers[s].refuses = self.rng.chance(700);
        for other in 0..self.servers.len() {
            if other != s {
                self.break_link(s, other);
                self.break_link(other, s);
            }
        }
        for set in self.sets_of(s) {
            let next = self.servers[s].bricks[&set].queue.front().cloned();
            next.into_iter().for_each(|entry| self.leave_half(s, set, Output::Apply(entry, None)));
        }
        self.servers[s].die();
        let delay = if self.rng.chance(500) { self.rng.millis(5, 600) } else { self.rng.millis(600, 9000) };
        self.after(delay, Event::Restart(s));
    }
}
