//! The primary's side of a healing: what the joining brick missed, and what objects are like.
//!
//! Questions wait in a queue and are answered in short turns between the clients' requests: while clients are active, turns
//! take at most a quarter of the shard's time. What is under way is bounded by what the joining brick may ask for at once
//! (`replica::heal::WINDOW_BYTES`).

use super::set::{SetDriver, SetHandle};
use crate::clock;
use brick::{Brick, ReadOutcome};
use bytes::Bytes;
use ids::{BrickId, Epoch, Fid, Lsn};
use replica::{Input, Role};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::task::{spawn_blocking, spawn_local, yield_now};
use wire::Errno;
use wire::limits::{DIR_PAGE, SMALL_FILE, SUM_BYTES};
use wire::peer::{Object, PeerBody, Sent, Stamp};

/// How long one turn is, about.
const TURN: Duration = Duration::from_micros(500);
/// While clients are active, so many times a turn's length passes before the next one.
const REST: u32 = 3;
/// Clients are active if one asked something within this time.
const ACTIVE: Duration = Duration::from_millis(20);
/// Missed changes sent in one turn.
const SLICE: usize = 2048;
/// Changes of the journal that a brick gets which has to compare everything: more than any client waits for.
const TAIL: u64 = 1 << 18;
/// Bytes for a joining brick that may wait for its connection: beyond it, it gets no more missed changes for a while.
const QUEUE: usize = 4 << 20;
/// Bytes of new changes that may wait for a joining brick's connection: beyond it clients wait for it.
const LAG: usize = 32 << 20;
/// A joining brick whose queue is full and does not shrink for this long is given up: it asks to join anew.
const STUCK: Duration = Duration::from_secs(2);
/// Reads of data that was not in memory, before it is waited for.
const TRIES: u32 = 3;

/// Questions of joining bricks.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: VecDeque<(BrickId, Epoch, PeerBody)>,
    answering: bool,
}

impl SetHandle {
    /// Lets clients go first after `spent` was spent on healing.
    async fn rest(&self, spent: Duration) {
        let active = self.shard.upgrade().is_some_and(|s| clock::now() < s.last_call() + ACTIVE);
        if active {
            tokio::time::sleep((spent * REST).max(Duration::from_millis(1))).await;
        } else {
            yield_now().await;
        }
    }

    /// Another brick wants to join.
    pub(super) fn welcome(
        &self,
        d: &mut SetDriver,
        to: BrickId,
        number: u64,
        (sure, held): (Lsn, Lsn),
        history: &[Stamp],
    ) {
        self.step(d, Input::Joining { brick: to, number });
        if !d.replica.may_join(to) || d.brick.doubt().is_some() {
            return;
        }
        d.welcomes.insert(to, number);
        d.questions.waiting.retain(|(from, ..)| *from != to);
        let common = d.replica.common_with(sure, history);
        let agree = d.replica.common_with(held, history);
        let reaches = d.brick.journal_start() <= common.lsn.next();
        self.tell_all_missed(d, (to, number), common, agree, !reaches);
    }

    /// Tells what was missed. If the journal does not reach back to where the other brick was (`full`), everything is
    /// compared; the newest part of the journal goes to it nevertheless, so that it knows resends when it leads.
    fn tell_all_missed(
        &self,
        d: &mut SetDriver,
        (to, number): (BrickId, u64),
        common: Stamp,
        agree: Stamp,
        full: bool,
    ) {
        // What both journals hold is not sent again.
        let start = if full { self.tail(d) } else { Some(agree.clone()) };
        let Some(start) = start else { return };
        let mut next = start.lsn.next();
        let (this, epoch) = (self.clone(), d.replica.view().epoch);
        let welcome = PeerBody::Welcome { number, common: common.clone(), agree: agree.lsn, start, full };
        self.say(d, to, welcome, Bytes::new());
        spawn_local(async move {
            loop {
                let begun = clock::now();
                {
                    let mut guard = this.driver.borrow_mut();
                    let d = &mut *guard;
                    if d.replica.role() != Role::Primary || d.replica.view().epoch != epoch {
                        return;
                    }
                    if d.welcomes.get(&to) != Some(&number) {
                        return;
                    }
                    if this.queued(d, to) < QUEUE {
                        match this.tell_missed(d, to, next) {
                            Some(after) if after > d.replica.last().lsn => {
                                return this.go_live(d, to, number, full);
                            }
                            Some(after) => next = after,
                            // The journal lost its beginning meanwhile.
                            None => return this.tell_all_missed(d, (to, number), common, agree, true),
                        }
                    }
                }
                this.rest(clock::now().saturating_sub(begun)).await;
                yield_now().await;
            }
        });
    }

    /// Where the newest part of the journal begins, far enough from its beginning, which may be dropped any time.
    fn tail(&self, d: &SetDriver) -> Option<Stamp> {
        let (first, last) = (d.brick.journal_start(), d.brick.last().lsn);
        let quarter = last.0.saturating_sub(first.0) / 4;
        let from = (first.0.saturating_sub(1) + quarter).max(last.0.saturating_sub(TAIL));
        match d.brick.stamp_at(Lsn(from.min(last.0))) {
            Ok(stamp) => stamp,
            Err(e) => {
                tracing::error!("set {}: read the journal: {e}", d.set);
                None
            }
        }
    }

    fn queued(&self, d: &SetDriver, to: BrickId) -> usize {
        self.shard.upgrade().map_or(0, |s| d.queued(&s, to))
    }

    /// Whether a joining brick has to catch up before more changes are made.
    pub(super) fn joiner_lags(&self, d: &SetDriver) -> bool {
        d.joiners().any(|brick| self.queued(d, brick) > LAG)
    }

    /// A joining brick that takes nothing in any more does not hold up the clients.
    pub(super) fn watch_joiners(&self, d: &mut SetDriver) {
        let now = clock::now();
        let joiners: Vec<BrickId> = d.joiners().collect();
        let full: Vec<(BrickId, usize)> =
            joiners.into_iter().map(|b| (b, self.queued(d, b))).filter(|(_, n)| *n > LAG).collect();
        let Some((brick, queued)) = full.into_iter().max_by_key(|(_, n)| *n) else {
            d.lagging = None;
            return;
        };
        match d.lagging {
            Some((since, least)) if queued >= least => {
                if now >= since + STUCK {
                    tracing::warn!("set {}: brick {brick} takes no changes in: it has to join anew", d.set);
                    d.lagging = None;
                    self.step(d, Input::LinkUp(brick));
                }
            }
            _ => d.lagging = Some((now, queued)),
        }
    }

    fn go_live(&self, d: &mut SetDriver, to: BrickId, number: u64, full: bool) {
        let placed = if full { d.brick.placed() } else { Ok(vec![]) };
        match placed {
            Ok(placed) => {
                let last = d.replica.last();
                self.say(d, to, PeerBody::Live { number, last, placed }, Bytes::new());
                self.step(d, Input::JoinerLive(to));
            }
            Err(e) => tracing::error!("set {}: look for placed directories: {e}", d.set),
        }
    }

    /// Sends a slice of the journal; where the next begins. `None` if the journal does not hold it any more.
    fn tell_missed(&self, d: &SetDriver, to: BrickId, from: Lsn) -> Option<Lsn> {
        let mut next = from;
        if from < d.brick.journal_start() {
            return None;
        }
        if from <= d.brick.last().lsn {
            for record in d.brick.iterate(from).take(SLICE) {
                let r = match record {
                    Ok(r) if r.stamp.lsn == next => r,
                    Ok(_) => return None,
                    Err(e) => {
                        tracing::error!("set {}: read the journal for brick {to}: {e}", d.set);
                        return None;
                    }
                };
                next = r.stamp.lsn.next();
                let body = PeerBody::Missed { stamp: r.stamp, op: r.op, about: r.about, change: r.change };
                self.say(d, to, body, Bytes::new());
            }
        }
        Some(next)
    }

    /// A question of a joining brick.
    pub(super) fn on_question(&self, d: &mut SetDriver, from: BrickId, question: PeerBody) {
        let epoch = d.replica.view().epoch;
        d.questions.waiting.push_back((from, epoch, question));
        if d.questions.answering {
            return;
        }
        d.questions.answering = true;
        let this = self.clone();
        spawn_local(async move {
            while let Some(spent) = this.answer_some() {
                this.rest(spent).await;
            }
        });
    }

    /// One turn; how long it took, or nothing if no question is left.
    fn answer_some(&self) -> Option<Duration> {
        let begun = clock::now();
        let mut guard = self.driver.borrow_mut();
        let d = &mut *guard;
        loop {
            let Some((from, epoch, question)) = d.questions.waiting.pop_front() else {
                d.questions.answering = false;
                return None;
            };
            if d.replica.role() == Role::Primary && epoch == d.replica.view().epoch {
                self.answer(d, from, question);
            }
            let spent = clock::now().saturating_sub(begun);
            if spent >= TURN {
                return Some(spent);
            }
        }
    }

    fn answer(&self, d: &mut SetDriver, to: BrickId, question: PeerBody) {
        match question {
            PeerBody::AskObject { fid, data, have } => self.tell_object(d, to, fid, (data, have), 0),
            PeerBody::AskEntries { fid, after } => self.tell_entries(d, to, fid, after),
            PeerBody::AskData { fid, offset, len } => self.tell_data(d, to, fid, offset, len, 0),
            PeerBody::AskSums { fid, offset, len, ask } => self.tell_sums(d, to, fid, (offset, len), ask),
            _ => {}
        }
    }

    fn tell_nothing(&self, d: &SetDriver, to: BrickId, fid: Fid) {
        self.say(
            d,
            to,
            PeerBody::Object { fid, at: d.replica.last().lsn, object: None, data: Sent::Nothing },
            Bytes::new(),
        );
    }

    /// What an object is like, and the data of a small file with it.
    fn tell_object(
        &self,
        d: &mut SetDriver,
        to: BrickId,
        fid: Fid,
        (wanted, have): (bool, Option<brick::Sum>),
        tries: u32,
    ) {
        let object = match d.brick.object(fid) {
            Ok(object) => object,
            Err(e) => return tracing::warn!("set {}: read object {fid} for brick {to}: {e}", d.set),
        };
        let mut sent = (Sent::Nothing, Bytes::new());
        if wanted && object.as_ref().is_some_and(is_small) {
            match d.brick.read(fid, 0, SMALL_FILE) {
                Ok(ReadOutcome::Data(data)) if have == Some(brick::sum(&data)) => sent.0 = Sent::Same,
                Ok(ReadOutcome::Data(data)) => sent = (Sent::Payload, Bytes::from(data)),
                Ok(ReadOutcome::NeedsBlocking(job)) if tries < TRIES => {
                    let this = self.clone();
                    spawn_local(async move {
                        let _warmed = spawn_blocking(move || job.run()).await;
                        let mut d = this.driver.borrow_mut();
                        this.tell_object(&mut d, to, fid, (wanted, have), tries + 1);
                    });
                    return;
                }
                // It is asked for by itself.
                Ok(ReadOutcome::NeedsBlocking(_)) | Err(_) => {}
            }
        }
        let (data, payload) = sent;
        self.say(d, to, PeerBody::Object { fid, at: d.replica.last().lsn, object, data }, payload);
    }

    fn tell_entries(&self, d: &mut SetDriver, to: BrickId, fid: Fid, after: u64) {
        match d.brick.entries(fid, after, DIR_PAGE as usize) {
            Ok((entries, targets, upto)) => {
                self.say(
                    d,
                    to,
                    PeerBody::Entries { fid, at: d.replica.last().lsn, after, upto, entries, targets },
                    Bytes::new(),
                );
            }
            Err(Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR) => self.tell_nothing(d, to, fid),
            Err(e) => tracing::warn!("set {}: list {fid} for brick {to}: {e}", d.set),
        }
    }

    /// A hole where data is asked about; true if it was told.
    fn tell_hole(&self, d: &mut SetDriver, to: BrickId, fid: Fid, offset: u64, many: u64) -> bool {
        match d.brick.hole(fid, offset, many) {
            Ok(Some((len, end))) => {
                self.say(
                    d,
                    to,
                    PeerBody::Hole { fid, at: d.replica.last().lsn, offset, len, end },
                    Bytes::new(),
                );
                true
            }
            Ok(None) => false,
            Err(_) => {
                self.tell_nothing(d, to, fid);
                true
            }
        }
    }

    /// Data as it is at this point of the stream: what has to come from the disk is read once before, to be in memory.
    fn tell_data(&self, d: &mut SetDriver, to: BrickId, fid: Fid, offset: u64, len: u32, tries: u32) {
        if self.tell_hole(d, to, fid, offset, Brick::HOLE) {
            return;
        }
        let wanted = d.brick.data_before_hole(fid, offset, len).unwrap_or(len);
        let data = match d.brick.read(fid, offset, wanted) {
            Ok(ReadOutcome::Data(data)) => data,
            Ok(ReadOutcome::NeedsBlocking(job)) if tries < TRIES => {
                let this = self.clone();
                spawn_local(async move {
                    let _warmed = spawn_blocking(move || job.run()).await;
                    let mut d = this.driver.borrow_mut();
                    this.tell_data(&mut d, to, fid, offset, len, tries + 1);
                });
                return;
            }
            Ok(ReadOutcome::NeedsBlocking(job)) => match job.run() {
                Ok(data) => data,
                Err(e) => return tracing::warn!("set {}: read {fid} for brick {to}: {e}", d.set),
            },
            Err(_) => return self.tell_nothing(d, to, fid),
        };
        let end = data.len() < wanted as usize;
        let len = u32::try_from(data.len()).unwrap_or(wanted);
        self.say(
            d,
            to,
            PeerBody::Data { fid, at: d.replica.last().lsn, offset, len, end },
            Bytes::from(data),
        );
    }

    /// Checksums are worked out on another thread, and may be older than the point of the stream where they are told: the
    /// joining brick knows what changed since it asked.
    fn tell_sums(&self, d: &mut SetDriver, to: BrickId, fid: Fid, (offset, len): (u64, u32), ask: u64) {
        if self.tell_hole(d, to, fid, offset, SUM_BYTES.into()) {
            return;
        }
        let Ok(job) = d.brick.sums(fid, offset, len) else { return self.tell_nothing(d, to, fid) };
        let (this, epoch) = (self.clone(), d.replica.view().epoch);
        spawn_local(async move {
            let begun = clock::now();
            let sums = spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO));
            this.rest(clock::now().saturating_sub(begun)).await;
            let d = this.driver.borrow_mut();
            if d.replica.role() != Role::Primary || d.replica.view().epoch != epoch {
                return;
            }
            match sums {
                Ok(s) => {
                    let body = PeerBody::Sums { fid, offset, len: s.len, ask, end: s.end, sums: s.sums };
                    this.say(&d, to, body, Bytes::new());
                }
                Err(e) => tracing::warn!("set {}: read {fid} for brick {to}: {e}", d.set),
            }
        });
    }
}

/// Whether a file's data may come with its attributes: a sparse one's comes by ranges.
fn is_small(object: &Object) -> bool {
    let attr = &object.attr;
    attr.mode & 0o170_000 == 0o100_000
        && attr.size <= u64::from(SMALL_FILE)
        && attr.blocks.saturating_mul(512) >= attr.size
}
