//! Coming back into the set: the joining brick's side. What the primary answers is in [`super::source`].
//!
//! The decisions are in `replica::heal`; here they meet the brick and the links.

use super::content::Content;
use super::serve::{ReplyTo, Waiter};
use super::set::{SetDriver, SetHandle};
use crate::clock;
use admin::{HealMode, HealProgress, HealState};
use brick::{Arriving, Sums};
use bytes::Bytes;
use ids::{BrickId, Epoch, Fid, Lsn, OpId};
use replica::healing::Patient as _;
use replica::{Entry, Input, Role};
use std::time::Duration;
use tokio::task::{spawn_blocking, spawn_local};
use wire::peer::{PeerBody, Stamp};
use wire::reply::Body;
use wire::{Change, Errno, Reply};

/// How often a brick that is not in sync asks to join.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A healing that hears nothing of what it waits for begins anew after this time.
const PATIENCE: Duration = Duration::from_secs(3);
/// Looks further apart than this: the brick's thread stood still.
const GAP: Duration = Duration::from_millis(500);

/// A healing under way on this brick.
pub(crate) struct Healing {
    pub(super) inner: brick::Healing,
    finishing: bool,
    /// The primary was told that all is healed.
    ended: bool,
    heard: Duration,
    /// When it was last looked at whether the primary is silent.
    looked: Duration,
    /// Checksums being worked out here.
    summing: u32,
    begun: Duration,
    /// When the rate was last worked out, and what was done by then.
    sampled: (Duration, u64, u64),
    /// Objects and bytes a second.
    rate: (u64, u64),
}

impl Healing {
    fn new(inner: brick::Healing) -> Healing {
        let now = clock::now();
        Healing {
            inner,
            finishing: false,
            ended: false,
            heard: now,
            looked: now,
            summing: 0,
            begun: now,
            sampled: (now, 0, 0),
            rate: (0, 0),
        }
    }

    /// Whether the mark of what is in doubt is gone: nothing more is healed in this one.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The primary sent what it waits for.
    pub(super) fn hear(&mut self) {
        self.heard = clock::now();
    }

    /// Whether the primary has been silent for too long, looked at every now and then. The time does not count in which this
    /// brick is busy itself: `syncing` for the primary, with its last sync or with checksums, or because its thread stood still.
    fn has_waited(&mut self, now: Duration, syncing: bool) -> bool {
        let stood_still = now > self.looked + GAP;
        self.looked = now;
        if syncing || stood_still || self.summing > 0 || (self.finishing && !self.ended) {
            self.heard = now;
        }
        now >= self.heard + PATIENCE
    }

    /// Once a second: how fast it is.
    pub(super) fn sample(&mut self) {
        let (now, p) = (clock::now(), self.inner.progress());
        let (at, done, bytes) = self.sampled;
        let ms = u64::try_from(now.saturating_sub(at).as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = |n: u64| n.saturating_mul(1000) / ms;
        self.rate = (rate(p.done.saturating_sub(done)), rate(p.bytes.saturating_sub(bytes)));
        self.sampled = (now, p.done, p.bytes);
    }

    pub(super) fn progress(&self) -> HealProgress {
        let p = self.inner.progress();
        let state = match (p.live, self.finishing) {
            (false, _) => HealState::Learning,
            (true, false) => HealState::Copying,
            (true, true) => HealState::Finishing,
        };
        HealProgress {
            done: p.done,
            total: p.done + p.left,
            bytes: p.bytes,
            same_bytes: p.same,
            mode: if p.full { HealMode::Full } else { HealMode::Journal },
            total_known: p.live && !p.full,
            state,
            seconds: clock::now().saturating_sub(self.begun).as_secs(),
            objects_per_second: self.rate.0,
            bytes_per_second: self.rate.1,
        }
    }
}

impl SetHandle {
    /// Timers of a brick that is not in sync.
    pub(super) fn tick_heal(&self, d: &mut SetDriver) {
        let now = clock::now();
        match d.replica.role() {
            Role::Primary => self.tell_doubts(d),
            Role::Secondary | Role::Reconciling => {}
            Role::Failed => {}
            Role::Idle => {
                d.healing = None;
                self.ask_to_join(d, now);
            }
            Role::Healing => {
                let busy = d.replica.is_syncing();
                if d.healing.as_mut().is_none_or(|h| h.has_waited(now, busy)) {
                    self.ask_to_join(d, now);
                }
            }
        }
    }

    fn ask_to_join(&self, d: &mut SetDriver, now: Duration) {
        let Some(primary) = d.replica.view().primary.filter(|p| *p != d.me) else { return };
        if now < d.asked_to_join + ASK_AGAIN {
            return;
        }
        d.asked_to_join = now;
        let mut held = d.brick.last().lsn;
        if d.brick.found().rebooted {
            held = held.min(d.brick.durable().lsn);
        }
        let sure = d.brick.sure().min(held);
        let history = d.replica.history();
        let number = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        d.attempts.ask(number);
        self.say(d, primary, PeerBody::Join { number, sure, held, history }, Bytes::new());
    }

    /// A primary that was alone after a power cut says which objects may not be what the journal made of them; when that is
    /// on disk nothing is in doubt any more.
    fn tell_doubts(&self, d: &mut SetDriver) {
        let Some(doubt) = d.brick.doubt().filter(|_| !d.told) else { return };
        let objects = doubt.objects.clone();
        d.told = true;
        let told = d.replica.last().lsn.0 + objects.len() as u64;
        for fid in objects {
            if d.replica.role() != Role::Primary {
                return;
            }
            let body = Content::new(Change::Touch { fid }, Bytes::new());
            let ticket = d.ticket(Waiter::new(ReplyTo::Nobody, Reply(Ok(Body::Done)), Bytes::new()));
            d.deciding = None;
            self.step(d, Input::Decided { ticket, op: OpId::default(), about: None, body });
        }
        if d.replica.last().lsn.0 < told {
            // Not all could be journaled: once more.
            d.told = false;
            return;
        }
        let job = d.brick.begin_end();
        let this = self.clone();
        spawn_local(async move {
            let synced = match job {
                Ok(job) => spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO)),
                Err(e) => Err(e),
            };
            let mut d = this.driver.borrow_mut();
            if let Err(e) = synced {
                d.doubt_unsynced();
                this.step(&mut d, Input::Synced { token: replica::SyncToken::Local(0), errno: e.0 });
            }
            if d.replica.role() != Role::Primary {
                d.told = false;
            } else if let Err(e) = synced.and_then(|()| d.brick.end_heal()) {
                tracing::error!("set {}: end the doubt of brick {}: {e}", d.set, d.me);
                d.told = false;
            }
        });
    }

    pub(super) fn say(&self, d: &SetDriver, to: BrickId, body: PeerBody, payload: Bytes) {
        if let Some(shard) = self.shard.upgrade() {
            d.send(&shard, to, d.replica.view().epoch, body, payload);
        }
    }

    /// A message about healing.
    pub(super) fn on_heal_message(
        &self,
        d: &mut SetDriver,
        from: BrickId,
        epoch: Epoch,
        body: PeerBody,
        payload: Bytes,
    ) {
        if epoch != d.replica.view().epoch {
            return;
        }
        match body {
            PeerBody::Join { number, sure, held, history } => {
                self.welcome(d, from, number, (sure, held), &history);
            }
            PeerBody::AskObject { .. }
            | PeerBody::AskEntries { .. }
            | PeerBody::AskData { .. }
            | PeerBody::AskSums { .. } => self.on_question(d, from, body),
            other => self.on_answer(d, from, other, &payload),
        }
    }

    fn on_answer(&self, d: &mut SetDriver, from: BrickId, body: PeerBody, payload: &[u8]) {
        if d.replica.view().primary != Some(from) {
            return;
        }
        if let Some(h) = &mut d.healing {
            h.hear();
        }
        let done = match body {
            PeerBody::Welcome { number, .. } | PeerBody::Live { number, .. }
                if !d.attempts.answered(number) =>
            {
                Ok(())
            }
            PeerBody::Welcome { common, agree, start, full, .. } => {
                self.on_welcome(d, (&common, start), agree, full)
            }
            PeerBody::Live { last, placed, .. } => match &mut d.healing {
                Some(h) => h.inner.go_live(&mut d.brick, &last, &placed),
                None => Ok(()),
            },
            PeerBody::Sums { fid, offset, len, ask, end, sums } => {
                if d.healing.as_ref().is_some_and(|h| h.inner.awaits(fid, ask)) {
                    self.on_sums(d, fid, offset, Sums { sums, len, end });
                }
                Ok(())
            }
            answer => match &mut d.healing {
                Some(h) => h.inner.take(&mut d.brick, &answer, payload),
                None => Ok(()),
            },
        };
        self.go_on(d, done);
    }

    fn go_on(&self, d: &mut SetDriver, done: Result<(), Errno>) {
        match done {
            Ok(()) => self.pump(d),
            Err(e) => {
                tracing::error!("set {}: healing brick {}: {e}", d.set, d.me);
                let lsn = d.replica.last().lsn;
                self.step(d, Input::ApplyFailed { lsn, errno: e.0 });
            }
        }
    }

    /// The primary says where the journals part: what this brick has beyond is in doubt, and goes.
    fn on_welcome(
        &self,
        d: &mut SetDriver,
        (common, start): (&Stamp, Stamp),
        agree: Lsn,
        full: bool,
    ) -> Result<(), Errno> {
        if !matches!(d.replica.role(), Role::Idle | Role::Healing)
            || !brick::Healing::fits(&d.brick, &start, full)?
        {
            return Ok(());
        }
        let resumed = d.brick.doubt().is_some();
        let inner = brick::Healing::begin(&mut d.brick, (common, &start), agree, full)?;
        tracing::info!(
            "set {}: brick {} heals from {} on, full: {full}, after an unfinished healing: {resumed}",
            d.set,
            d.me,
            common.lsn
        );
        d.healings += 1;
        d.healing = Some(Healing::new(inner));
        self.step(d, Input::Joined { number: d.attempts.current(), start, full });
        Ok(())
    }

    /// The primary's checksums are here: ours are worked out on another thread and compared.
    fn on_sums(&self, d: &mut SetDriver, fid: Fid, offset: u64, there: Sums) {
        let healing = d.healings;
        let job = d.brick.sums(fid, offset, there.len);
        if let Some(h) = &mut d.healing {
            h.summing += 1;
        }
        let this = self.clone();
        spawn_local(async move {
            let here = match job {
                Ok(job) => spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO)),
                Err(e) => Err(e),
            };
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            if d.healings != healing || d.replica.role() != Role::Healing {
                return;
            }
            let Some(h) = &mut d.healing else { return };
            h.summing -= 1;
            h.hear();
            let done = h.inner.compare(&mut d.brick, (fid, offset), &there, here);
            this.go_on(d, done);
        });
    }

    /// Asks for what is dirty, and ends the healing when nothing is.
    fn pump(&self, d: &mut SetDriver) {
        let Some(primary) = d.replica.view().primary else { return };
        while let Some(h) = &mut d.healing
            && let Some(question) = h.inner.ask(&mut d.brick)
        {
            self.say(d, primary, question, Bytes::new());
        }
        if let Some(h) = &mut d.healing
            && h.inner.is_done(&d.brick)
            && !h.finishing
        {
            h.finishing = true;
            self.finish_heal(d);
        }
    }

    /// All is healed: on disk with it, then back into the set.
    fn finish_heal(&self, d: &mut SetDriver) {
        let healing = d.healings;
        let job = d.brick.begin_end();
        let this = self.clone();
        spawn_local(async move {
            let synced = match job {
                Ok(job) => spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO)),
                Err(e) => Err(e),
            };
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            if synced.is_err() {
                d.doubt_unsynced();
            }
            if d.healings != healing || d.replica.role() != Role::Healing {
                return;
            }
            let Some(h) = &mut d.healing else { return };
            h.hear();
            if !h.inner.is_done(&d.brick) {
                // A change of the meantime could not be applied.
                h.finishing = false;
                return this.pump(d);
            }
            let p = h.inner.progress();
            let begun = h.begun;
            match synced.and_then(|()| d.brick.end_heal()) {
                Ok(()) => {
                    if let Some(h) = &mut d.healing {
                        h.ended = true;
                    }
                    tracing::info!(
                        "set {}: brick {} has healed {} objects, {} bytes copied, {} found right, in {:?}",
                        d.set,
                        d.me,
                        p.done,
                        p.bytes,
                        p.same,
                        clock::now().saturating_sub(begun)
                    );
                    this.step(d, Input::Healed);
                }
                Err(e) => {
                    tracing::error!("set {}: end the healing of brick {}: {e}", d.set, d.me);
                    d.healing = None;
                }
            }
        });
    }
}

impl SetDriver {
    /// A change of the stream while this brick heals.
    pub(super) fn apply_healing(&mut self, entry: &Entry<Content>) -> Result<(), Errno> {
        let Some(h) = &mut self.healing else { return self.apply_now(entry) };
        if !h.inner.awaits_primary() {
            h.hear();
        }
        let arriving = Arriving {
            stamp: &entry.stamp,
            op: entry.op,
            about: entry.about,
            change: &entry.body.change,
            payload: &entry.body.payload,
        };
        h.inner.apply(&mut self.brick, arriving)
    }
}
