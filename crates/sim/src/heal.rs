//! Coming back into the set, as the daemon drives it (its `shard::heal`): the joining brick's side, and the primary's.

use crate::Mutant;
use crate::brick::{Content, Heal, Record};
use crate::disk::Snapshot;
use crate::log::say;
use crate::patient::{encode, sum};
use crate::server::{PeerBody, PeerMessage, ToServer};
use crate::tree::bytes;
use crate::world::{Event, World};
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn, OpId};
use replica::healing::{Arriving, Healing, Patient, Sums, settle};
use replica::{Input, Role};
use wire::peer::{PeerBody as Wire, Sent, Stamp};
use wire::{Change, Errno};

/// How often a brick that is not in sync asks to join.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A healing that hears nothing for this long begins anew.
const PATIENCE: Duration = Duration::from_secs(3);

/// A message about healing, with the data that it carries.
#[derive(Clone, Debug)]
pub(crate) struct HealMessage {
    pub(crate) body: Wire,
    pub(crate) data: Vec<u64>,
}

/// What a joining brick missed, and is being told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Telling {
    pub(crate) set: usize,
    pub(crate) to: BrickId,
    pub(crate) epoch: Epoch,
    pub(crate) number: u64,
    pub(crate) next: Lsn,
    /// It compares everything.
    pub(crate) full: bool,
}

fn nothing(fid: Fid, at: Lsn) -> Wire {
    Wire::Object { fid, at, object: None, data: Sent::Nothing }
}

impl World {
    /// Timers of a brick that is not in sync, and of a primary that has something to tell.
    pub(crate) fn tick_heal(&mut self, s: usize, set: usize) {
        let now = self.servers[s].clock(self.now);
        let Some(brick) = self.brick(s, set) else { return };
        let Some(replica) = &brick.replica else { return };
        match replica.role() {
            Role::Primary => {
                brick.healing = None;
                self.tell_doubts(s, set);
            }
            Role::Secondary | Role::Reconciling => brick.healing = None,
            Role::Failed => {}
            Role::Idle => {
                brick.healing = None;
                self.ask_to_join(s, set, now);
            }
            Role::Healing => {
                let busy = replica.is_syncing();
                let waits = |h: &Heal| h.waits_since().filter(|_| !busy).is_some_and(|t| now >= t + PATIENCE);
                if brick.healing.as_ref().is_none_or(waits) {
                    self.ask_to_join(s, set, now);
                }
            }
        }
    }

    fn ask_to_join(&mut self, s: usize, set: usize, now: Duration) {
        let Some(brick) = self.brick(s, set) else { return };
        let Some(replica) = &brick.replica else { return };
        let Some(primary) = replica.view().primary.filter(|p| *p != brick.id) else { return };
        if now < brick.asked_to_join + ASK_AGAIN || !brick.queue.is_empty() {
            return;
        }
        let history = replica.history();
        brick.asked_to_join = now;
        let (sure, held) = (brick.disk.sure(), brick.disk.last().lsn);
        let number = u64::try_from(now.as_nanos()).unwrap_or(0);
        brick.attempts.ask(number);
        self.say_heal(s, set, primary, Wire::Join { number, sure, held, history }, Vec::new());
    }

    fn say_heal(&mut self, s: usize, set: usize, to: BrickId, body: Wire, data: Vec<u64>) {
        let (from, epoch) = (self.servers[s].bricks[&set].id, self.replica_epoch(s, set));
        say!(self, "set {set} {from} -> {to} (epoch {epoch}): {body:?} {data:?}");
        let body = PeerBody::Heal(HealMessage { body, data });
        self.send_peer(s, PeerMessage { set, from, to, epoch, body });
    }

    pub(crate) fn on_heal_message(
        &mut self,
        s: usize,
        set: usize,
        from: BrickId,
        epoch: Epoch,
        m: HealMessage,
    ) {
        if epoch != self.replica_epoch(s, set) {
            return;
        }
        if self.is_behind(s, set) {
            let body = PeerBody::Heal(m);
            let to = self.servers[s].bricks[&set].id;
            return self.later(s, ToServer::Peer(PeerMessage { set, from, to, epoch, body }));
        }
        let page = self.pace.page;
        let Some(brick) = self.brick(s, set) else { return };
        let Some(replica) = &brick.replica else { return };
        let (at, leads) = (replica.last().lsn, replica.role() == Role::Primary);
        match m.body {
            Wire::AskObject { .. }
            | Wire::AskEntries { .. }
            | Wire::AskData { .. }
            | Wire::AskSums { .. }
                if !leads => {}
            Wire::Join { number, sure, held, history } => {
                self.welcome(s, set, from, number, (sure, held), &history);
            }
            Wire::AskObject { fid, data, have } => {
                let object = brick.tree.object(fid);
                let small = object.as_ref().is_some_and(|o| !o.attr.is_dir() && o.attr.size <= bytes(1));
                let all = brick.tree.get(fid).map(|o| o.data.clone()).unwrap_or_default();
                let (sent, data) = match data && small {
                    true if have == Some(sum(&all)) => (Sent::Same, Vec::new()),
                    true => (Sent::Payload, all),
                    false => (Sent::Nothing, Vec::new()),
                };
                self.say_heal(s, set, from, Wire::Object { fid, at, object, data: sent }, data);
            }
            Wire::AskSums { fid, offset, len, ask } => match brick.tree.sums(fid, offset, len) {
                Ok(sums) if sums.sums.iter().all(|s| *s == (0, 0)) && sums.len > 0 => {
                    let (len, end) = (u64::from(sums.len), sums.end);
                    self.say_heal(s, set, from, Wire::Hole { fid, at, offset, len, end }, Vec::new());
                }
                Ok(sums) => {
                    // Worked out now, told in a while.
                    let body = Wire::Sums { fid, offset, len: sums.len, ask, end: sums.end, sums: sums.sums };
                    let inc = self.servers[s].inc;
                    let delay = self.rng.between(Duration::ZERO, self.pace.disk * 8);
                    let what = ToServer::TellSums { set, to: from, epoch, body };
                    self.after(delay, Event::Server { server: s, inc, what });
                }
                Err(_) => self.say_heal(s, set, from, nothing(fid, at), Vec::new()),
            },
            Wire::AskEntries { fid, after } => {
                let answer = match brick.tree.entries_after(fid, after, page) {
                    Some((entries, upto)) => Wire::Entries { fid, at, after, upto, entries, targets: vec![] },
                    None => nothing(fid, at),
                };
                self.say_heal(s, set, from, answer, Vec::new());
            }
            Wire::AskData { fid, offset, len } => match brick.tree.data(fid, offset, len) {
                Some((data, end)) => {
                    let len = u32::try_from(crate::tree::bytes(data.len())).unwrap_or(len);
                    self.say_heal(s, set, from, Wire::Data { fid, at, offset, len, end }, data);
                }
                None => self.say_heal(s, set, from, nothing(fid, at), Vec::new()),
            },
            _ => self.on_answer(s, set, from, m),
        }
    }

    /// Whether this is a primary that has ordered what it has not done: the daemon does both in one step, and answers only
    /// in between.
    fn is_behind(&self, s: usize, set: usize) -> bool {
        let replica = self.servers[s].bricks[&set].replica.as_ref();
        replica.is_some_and(|r| r.role() == Role::Primary && r.applied() < r.last().lsn)
    }

    fn later(&mut self, s: usize, what: ToServer) {
        let inc = self.servers[s].inc;
        self.after(self.pace.disk / 4, Event::Server { server: s, inc, what });
    }

    fn on_answer(&mut self, s: usize, set: usize, from: BrickId, m: HealMessage) {
        let now = self.servers[s].clock(self.now);
        let Some(brick) = self.brick(s, set) else { return };
        if brick.replica.as_ref().is_none_or(|r| r.view().primary != Some(from)) {
            return;
        }
        if let Some(h) = &mut brick.healing {
            h.heard = now;
        }
        let done = match &m.body {
            Wire::Welcome { number, .. } | Wire::Live { number, .. } if !brick.attempts.answered(*number) => {
                Ok(())
            }
            Wire::Welcome { common, agree, start, full, .. } => {
                self.on_welcome(s, set, (common, start.clone()), *agree, *full)
            }
            Wire::Live { last, placed, .. } => match &mut brick.healing {
                Some(h) => h.inner.go_live(&mut brick.disk, last, placed),
                None => Ok(()),
            },
            Wire::Sums { fid, offset, len, ask, end, sums } => {
                let there = Sums { sums: sums.clone(), len: *len, end: *end };
                self.on_sums(s, set, (*fid, *offset), *ask, there);
                Ok(())
            }
            answer => match &mut brick.healing {
                Some(h) => h.inner.take(&mut brick.disk, answer, &encode(&m.data)),
                None => Ok(()),
            },
        };
        self.heal_on(s, set, done);
    }

    fn heal_on(&mut self, s: usize, set: usize, done: Result<(), Errno>) {
        match done {
            Ok(()) => self.pump(s, set),
            Err(e) => {
                say!(self, "set {set} server {s}: healing fails: {e}");
                let replica = self.servers[s].bricks[&set].replica.as_ref();
                let lsn = replica.map_or(Lsn(0), |r| r.last().lsn);
                self.step(s, set, Input::ApplyFailed { lsn, errno: e.0 });
            }
        }
    }

    fn on_welcome(
        &mut self,
        s: usize,
        set: usize,
        (common, start): (&Stamp, Stamp),
        agree: Lsn,
        full: bool,
    ) -> Result<(), Errno> {
        let now = self.servers[s].clock(self.now);
        let forgets = self.mutant(Mutant::ForgetsDoubt);
        let Some(brick) = self.brick(s, set) else { return Ok(()) };
        let role = brick.replica.as_ref().map(replica::Replica::role);
        if !matches!(role, Some(Role::Idle | Role::Healing)) {
            return Ok(());
        }
        brick.write_queue();
        if !Healing::fits(&brick.disk, &start, full)? {
            return Ok(());
        }
        let inner = Healing::begin(&mut brick.disk, (common, &start), agree, full)?;
        if forgets {
            brick.disk.put_mark(None);
        }
        brick.healings += 1;
        brick.healing = Some(Heal { inner, finishing: false, ended: false, heard: now });
        let number = brick.attempts.current();
        *self.faults.counts.entry(if full { "full healing" } else { "healing" }).or_default() += 1;
        self.step(s, set, Input::Joined { number, start, full });
        Ok(())
    }

    /// The primary's checksums are here: ours are worked out meanwhile.
    fn on_sums(&mut self, s: usize, set: usize, (fid, offset): (Fid, u64), ask: u64, there: Sums) {
        let Some(brick) = self.brick(s, set) else { return };
        if brick.healing.as_ref().is_none_or(|h| !h.inner.awaits(fid, ask)) {
            return;
        }
        let here = brick.disk.tree.sums(fid, offset, there.len);
        let (life, healing) = (brick.life, brick.healings);
        let what = ToServer::Compare { set, life, healing, fid, offset, there, here };
        let (delay, inc) = (self.rng.between(Duration::ZERO, self.pace.disk * 8), self.servers[s].inc);
        self.after(delay, Event::Server { server: s, inc, what });
    }

    pub(crate) fn compare(
        &mut self,
        s: usize,
        set: usize,
        healing: u64,
        at: (Fid, u64),
        there: &Sums,
        here: Result<Sums, Errno>,
    ) {
        let now = self.servers[s].clock(self.now);
        let Some(brick) = self.brick(s, set) else { return };
        let role = brick.replica.as_ref().map(replica::Replica::role);
        if brick.healings != healing || role != Some(Role::Healing) {
            return;
        }
        let Some(h) = &mut brick.healing else { return };
        h.heard = now;
        let done = h.inner.compare(&mut brick.disk, at, there, here);
        self.heal_on(s, set, done);
    }

    pub(crate) fn tell_sums(&mut self, s: usize, set: usize, to: BrickId, epoch: Epoch, body: Wire) {
        let replica = self.servers[s].bricks[&set].replica.as_ref();
        if replica.is_some_and(|r| r.role() == Role::Primary && r.view().epoch == epoch) {
            self.say_heal(s, set, to, body, Vec::new());
        }
    }

    /// Asks for what is dirty, and ends the healing when nothing is.
    pub(crate) fn pump(&mut self, s: usize, set: usize) {
        let primary = self.servers[s].bricks[&set].replica.as_ref().and_then(|r| r.view().primary);
        let Some(primary) = primary else { return };
        while let Some(question) = {
            let brick = self.servers[s].bricks.get_mut(&set).expect("it is there");
            brick.healing.as_mut().and_then(|h| h.inner.ask(&mut brick.disk))
        } {
            self.say_heal(s, set, primary, question, Vec::new());
        }
        let hasty = self.mutant(Mutant::HealsHastily);
        let Some(brick) = self.brick(s, set) else { return };
        if let Some(h) = &mut brick.healing
            && (h.inner.is_done(&brick.disk) || hasty)
            && !h.finishing
        {
            h.finishing = true;
            let (life, snapshot) = (brick.life, Box::new(brick.disk.begin_sync(None)));
            let brick_healings = brick.healings;
            let delay = self.rng.between(self.pace.sync.0, self.pace.sync.1);
            let inc = self.servers[s].inc;
            let healing = brick_healings;
            let what = ToServer::HealSynced { set, life, healing, snapshot };
            self.after(delay, Event::Server { server: s, inc, what });
        }
    }

    /// All is healed: on disk with it, then back into the set.
    pub(crate) fn heal_synced(&mut self, s: usize, set: usize, life: u32, healing: u64, snapshot: &Snapshot) {
        let (hasty, now) = (self.mutant(Mutant::HealsHastily), self.servers[s].clock(self.now));
        let Some(brick) = self.brick(s, set).filter(|b| b.life == life && b.healings == healing) else {
            return;
        };
        if brick.replica.as_ref().is_none_or(|r| r.role() != Role::Healing) {
            return;
        }
        let Some(h) = brick.healing.as_mut().filter(|h| h.finishing) else { return };
        if brick.disk.sync_fails || brick.disk.try_write().is_err() {
            brick.healing = None;
            return self.doubt_unsynced(s, set);
        }
        if !h.inner.is_done(&brick.disk) && !hasty {
            // Something that arrived meanwhile could not be applied.
            h.finishing = false;
            return self.pump(s, set);
        }
        h.ended = true;
        h.heard = now;
        brick.disk.synced(snapshot);
        brick.disk.end_heal();
        brick.torn = false;
        self.step(s, set, Input::Healed);
    }

    /// On the primary: another brick wants to join.
    fn welcome(
        &mut self,
        s: usize,
        set: usize,
        to: BrickId,
        number: u64,
        (sure, held): (Lsn, Lsn),
        history: &[Stamp],
    ) {
        self.step(s, set, Input::Joining { brick: to, number });
        let Some(brick) = self.brick(s, set) else { return };
        let Some(replica) = brick.replica.as_ref().filter(|r| r.may_join(to)) else { return };
        if brick.disk.mark.is_some() {
            return;
        }
        let common = replica.common_with(sure, history);
        let agree = replica.common_with(held, history);
        let full = brick.disk.first() > common.lsn.next();
        brick.welcomes.insert(to, number);
        self.tell_all_missed(s, set, (to, number), common, agree, full);
    }

    /// Tells what was missed, or, if the journal does not reach back, all that it would hold if it were as long as real ones.
    fn tell_all_missed(
        &mut self,
        s: usize,
        set: usize,
        (to, number): (BrickId, u64),
        common: Stamp,
        agree: Stamp,
        full: bool,
    ) {
        let start = if full { self.servers[s].bricks[&set].disk.stamp(0) } else { agree.clone() };
        let (next, epoch) = (start.lsn.next(), self.replica_epoch(s, set));
        let body = Wire::Welcome { number, common, agree: agree.lsn, start, full };
        self.say_heal(s, set, to, body, Vec::new());
        self.tell_missed(s, Telling { set, to, epoch, number, next, full });
    }

    fn go_live(&mut self, s: usize, set: usize, to: BrickId, number: u64, full: bool) {
        let brick = &self.servers[s].bricks[&set];
        let placed = if full { brick.tree.orphans() } else { vec![] };
        let last = brick.replica.as_ref().map_or(brick.disk.last(), replica::Replica::last);
        let body = Wire::Live { number, last, placed };
        self.say_heal(s, set, to, body, Vec::new());
        self.step(s, set, Input::JoinerLive(to));
    }

    /// Sends a slice of the journal, and goes on in a while or says that this was all.
    pub(crate) fn tell_missed(&mut self, s: usize, t: Telling) {
        let (set, inc) = (t.set, self.servers[s].inc);
        if self.is_behind(s, set) {
            return self.later(s, ToServer::TellMissed(t));
        }
        let slice = 1 + self.rng.below(12);
        let Some(brick) = self.brick(s, set) else { return };
        let Some(replica) = &brick.replica else { return };
        let void = brick.welcomes.get(&t.to) != Some(&t.number);
        if replica.role() != Role::Primary || replica.view().epoch != t.epoch || void {
            return;
        }
        if !t.full && brick.disk.first() > t.next {
            // The journal lost its beginning meanwhile.
            let nothing = brick.disk.stamp(0);
            return self.tell_all_missed(s, set, (t.to, t.number), nothing.clone(), nothing, true);
        }
        let told = if t.full { brick.disk.all_from(t.next) } else { brick.disk.from(t.next) };
        let records: Vec<Record> = told.iter().chain(&brick.queue).take(slice).cloned().collect();
        let next = Lsn(t.next.0 + records.len() as u64);
        let (from, last) = (brick.id, replica.last());
        for entry in records {
            let body = PeerBody::Missed(entry);
            self.send_peer(s, PeerMessage { set, from, to: t.to, epoch: t.epoch, body });
        }
        if next <= last.lsn {
            let delay = self.rng.between(Duration::ZERO, self.pace.disk);
            let what = ToServer::TellMissed(Telling { next, ..t });
            return self.after(delay, Event::Server { server: s, inc, what });
        }
        self.go_live(s, set, t.to, t.number, t.full);
    }

    /// A change of the stream while this brick heals.
    pub(crate) fn apply_healing(&mut self, s: usize, set: usize, entry: &Record) -> Input<Content> {
        let now = self.servers[s].clock(self.now);
        let skips = self.mutant(Mutant::HealsWithoutLive);
        let patient = self.mutant(Mutant::HealsPatiently);
        let lsn = entry.stamp.lsn;
        let Some(brick) = self.brick(s, set) else { return Input::Applied { lsn } };
        let payload = encode(&[entry.body.tag()]);
        let c = Arriving {
            stamp: &entry.stamp,
            op: entry.op,
            about: entry.about,
            change: entry.body.change(),
            payload: &payload,
        };
        let ended = brick.healing.as_ref().is_none_or(|h| h.ended);
        let done = match &mut brick.healing {
            // What the primary has of the objects is only to be had by healing.
            _ if ended && c.change.is_doubt() => {
                let last = brick.disk.last().lsn;
                let marked = Patient::begin_heal(&mut brick.disk, last, &c.change.touched(), last);
                marked.and(Err(wire::Errno::ESTALE))
            }
            Some(h) => {
                if patient || !h.inner.awaits_primary() {
                    h.heard = now;
                }
                if skips && h.inner.is_live() {
                    Patient::note(&mut brick.disk, c)
                } else {
                    h.inner.apply(&mut brick.disk, c)
                }
            }
            None => Patient::apply(&mut brick.disk, c),
        };
        match done {
            Ok(()) => Input::Applied { lsn },
            Err(e) => {
                say!(self, "set {set} server {s}: {lsn} cannot be applied while healing: {e}");
                Input::ApplyFailed { lsn, errno: e.0 }
            }
        }
    }

    /// The only brick with the set's data is not sure of all.
    pub(crate) fn settle(&mut self, s: usize, set: usize) -> Option<Input<Content>> {
        let brick = self.brick(s, set)?;
        brick.write_queue();
        let half = brick.disk.incomplete.is_some();
        let known = half || brick.torn;
        brick.torn = true;
        let last = settle(&mut brick.disk).ok()?;
        brick.forget_queue();
        if half {
            // A change that nobody was told of is there by half, and no other brick can mend it.
            self.checks.excused.insert(set);
        }
        if !known {
            self.fail(|| format!("kept: set {set}: a brick that was healing is the only copy"));
        }
        *self.faults.counts.entry("settled").or_default() += 1;
        Some(Input::Settled { last })
    }

    /// A primary that was alone after a power cut says which objects may not be what the journal made of them.
    fn tell_doubts(&mut self, s: usize, set: usize) {
        let Some(brick) = self.brick(s, set) else { return };
        let Some(mark) = brick.disk.mark.clone().filter(|_| !brick.told) else { return };
        brick.told = true;
        let last = brick.replica.as_ref().map_or(0, |r| r.last().lsn.0);
        let told = Lsn(last + mark.objects.len() as u64);
        for fid in mark.objects {
            self.order(s, set, Change::Touch { fid });
        }
        let Some(brick) = self.brick(s, set) else { return };
        let (life, upto) = (brick.life, brick.replica.as_ref().map_or(Lsn(0), |r| r.last().lsn));
        if upto < told {
            // Not all could be journaled: once more.
            brick.told = false;
            return;
        }
        let inc = self.servers[s].inc;
        let what = ToServer::Doubtless { set, life, upto };
        let delay = (self.pace.disk * 4).max(self.pace.sync.0);
        self.after(delay, Event::Server { server: s, inc, what });
    }

    /// What was in doubt is told: when that is on disk, the mark goes.
    pub(crate) fn doubtless(&mut self, s: usize, set: usize, life: u32, upto: Lsn) {
        let Some(brick) = self.brick(s, set).filter(|b| b.life == life) else { return };
        if brick.replica.as_ref().is_none_or(|r| r.role() != Role::Primary) {
            brick.told = false;
        } else if brick.disk.last().lsn < upto || brick.disk.sync_fails {
            let inc = self.servers[s].inc;
            let what = ToServer::Doubtless { set, life, upto };
            self.after(self.pace.disk * 4, Event::Server { server: s, inc, what });
        } else {
            brick.disk.end_heal();
            brick.tree.empty_aside();
        }
    }

    /// Orders a change of the primary's own.
    pub(crate) fn order(&mut self, s: usize, set: usize, change: Change) {
        self.servers[s].tickets += 1;
        let (ticket, body) = (self.servers[s].tickets, Content::new(change, 0));
        self.step(s, set, Input::Decided { ticket, op: OpId::default(), about: None, body });
    }
}
