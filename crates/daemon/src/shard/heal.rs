//! Coming back into the set: the joining brick's side, and what it asks the primary.
//!
//! The decisions are in `replica::heal`; here they meet the brick and the links.

use super::set::{SetDriver, SetHandle};
use crate::clock;
use brick::{Arriving, ReadOutcome};
use bytes::Bytes;
use ids::{BrickId, Epoch, Fid, Lsn};
use replica::{Entry, Input, Role};
use std::time::Duration;
use tokio::task::{spawn_blocking, spawn_local, yield_now};
use wire::Errno;
use wire::limits::DIR_PAGE;
use wire::peer::{PeerBody, Stamp};

use super::content::Content;

/// How often a brick that is not in sync asks to join.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A healing that hears nothing for this long begins anew.
const PATIENCE: Duration = Duration::from_secs(3);
/// Missed changes sent in one go.
const SLICE: usize = 2048;

/// A healing under way on this brick.
pub(crate) struct Healing {
    pub(super) inner: brick::Healing,
    finishing: bool,
    pub(super) heard: Duration,
}

impl SetHandle {
    /// Timers of a brick that is not in sync.
    pub(super) fn tick_heal(&self, d: &mut SetDriver) {
        let now = clock::now();
        match d.replica.role() {
            Role::Secondary | Role::Primary | Role::Reconciling => d.healing = None,
            Role::Failed => {}
            Role::Idle => {
                d.healing = None;
                self.ask_to_join(d, now);
            }
            Role::Healing => {
                if d.healing.as_ref().is_none_or(|h| now >= h.heard + PATIENCE) {
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
        let mut sure = d.brick.last().lsn;
        if d.brick.found().rebooted {
            sure = sure.min(d.brick.durable().lsn);
        }
        if let Some(doubt) = d.brick.doubt() {
            sure = sure.min(doubt.from);
        }
        let history = d.replica.history();
        self.say(d, primary, PeerBody::Join { sure, history }, Bytes::new());
    }

    fn say(&self, d: &SetDriver, to: BrickId, body: PeerBody, payload: Bytes) {
        if let Some(shard) = self.shard.upgrade() {
            d.send(&shard, to, d.replica.view().epoch, body, payload);
        }
    }

    /// A message about healing. False if it is none.
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
            PeerBody::Join { sure, history } => self.welcome(d, from, sure, &history),
            PeerBody::AskObject { fid } => match d.brick.object(fid) {
                Ok(object) => self.say(d, from, PeerBody::Object { fid, object }, Bytes::new()),
                Err(e) => tracing::warn!("set {}: read object {fid} for brick {from}: {e}", d.set),
            },
            PeerBody::AskEntries { fid, after } => self.tell_entries(d, from, fid, after),
            PeerBody::AskData { fid, offset, len } => self.tell_data(d, from, fid, offset, len, 0),
            other => self.on_answer(d, from, other, &payload),
        }
    }

    fn on_answer(&self, d: &mut SetDriver, from: BrickId, body: PeerBody, payload: &[u8]) {
        if d.replica.view().primary != Some(from) {
            return;
        }
        if let Some(h) = &mut d.healing {
            h.heard = clock::now();
        }
        let done = match body {
            PeerBody::Welcome { common, full } => self.on_welcome(d, common, full),
            PeerBody::Live { last, placed } => self.on_live(d, last, &placed),
            answer => match &mut d.healing {
                Some(h) => h.inner.take(&mut d.brick, &answer, payload),
                None => Ok(()),
            },
        };
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
    fn on_welcome(&self, d: &mut SetDriver, common: Stamp, full: bool) -> Result<(), Errno> {
        if !matches!(d.replica.role(), Role::Idle | Role::Healing) {
            return Ok(());
        }
        let inner = brick::Healing::begin(&mut d.brick, &common, full)?;
        tracing::info!("set {}: brick {} heals from {} on, full: {full}", d.set, d.me, common.lsn);
        d.healing = Some(Healing { inner, finishing: false, heard: clock::now() });
        if !full {
            self.step(d, Input::Joined { common });
        }
        Ok(())
    }

    fn on_live(&self, d: &mut SetDriver, last: Stamp, placed: &[Fid]) -> Result<(), Errno> {
        let Some(h) = &mut d.healing else { return Ok(()) };
        h.inner.go_live(&mut d.brick, &last, placed)?;
        if h.inner.is_full() {
            self.step(d, Input::Joined { common: last });
        }
        Ok(())
    }

    /// Asks for what is dirty, and ends the healing when nothing is.
    fn pump(&self, d: &mut SetDriver) {
        let Some(primary) = d.replica.view().primary else { return };
        while let Some(question) = d.healing.as_mut().and_then(|h| h.inner.ask()) {
            self.say(d, primary, question, Bytes::new());
        }
        if let Some(h) = &mut d.healing
            && h.inner.is_done()
            && !h.finishing
        {
            h.finishing = true;
            self.finish_heal(d);
        }
    }

    /// All is healed: on disk with it, then back into the set.
    fn finish_heal(&self, d: &mut SetDriver) {
        let job = d.brick.begin_sync(None);
        let this = self.clone();
        spawn_local(async move {
            let synced = match job {
                Ok(job) => spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO)),
                Err(e) => Err(e),
            };
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            if d.replica.role() != Role::Healing || !d.healing.as_ref().is_some_and(|h| h.finishing) {
                return;
            }
            match synced.and_then(|_| d.brick.end_heal()) {
                Ok(()) => {
                    let (done, _, bytes) = d.healing.as_ref().map(|h| h.inner.progress()).unwrap_or_default();
                    tracing::info!("set {}: brick {} has healed {done} objects, {bytes} bytes", d.set, d.me);
                    this.step(d, Input::Healed);
                }
                Err(e) => {
                    tracing::error!("set {}: end the healing of brick {}: {e}", d.set, d.me);
                    d.healing = None;
                }
            }
        });
    }

    /// On the primary: another brick wants to join.
    fn welcome(&self, d: &mut SetDriver, to: BrickId, sure: Lsn, history: &[Stamp]) {
        if d.replica.role() != Role::Primary || d.replica.view().in_sync.contains(&to) {
            return;
        }
        let common = d.replica.common_with(sure, history);
        let full = d.brick.journal_start() > common.lsn.next();
        self.say(d, to, PeerBody::Welcome { common: common.clone(), full }, Bytes::new());
        if full {
            return self.go_live(d, to, true);
        }
        let this = self.clone();
        let epoch = d.replica.view().epoch;
        spawn_local(async move {
            let mut next = common.lsn.next();
            loop {
                {
                    let mut guard = this.driver.borrow_mut();
                    let d = &mut *guard;
                    if d.replica.role() != Role::Primary || d.replica.view().epoch != epoch {
                        return;
                    }
                    match this.tell_missed(d, to, next) {
                        Some(after) if after > d.replica.last().lsn => return this.go_live(d, to, false),
                        Some(after) => next = after,
                        None => return,
                    }
                }
                yield_now().await;
            }
        });
    }

    fn go_live(&self, d: &mut SetDriver, to: BrickId, full: bool) {
        let placed = if full { d.brick.placed() } else { Ok(vec![]) };
        match placed {
            Ok(placed) => {
                let last = d.replica.last();
                self.say(d, to, PeerBody::Live { last, placed }, Bytes::new());
                self.step(d, Input::JoinerLive(to));
            }
            Err(e) => tracing::error!("set {}: look for placed directories: {e}", d.set),
        }
    }

    /// Sends a slice of the journal; where the next begins.
    fn tell_missed(&self, d: &SetDriver, to: BrickId, from: Lsn) -> Option<Lsn> {
        let mut next = from;
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

    fn tell_entries(&self, d: &mut SetDriver, to: BrickId, fid: Fid, after: u64) {
        match d.brick.entries(fid, after, DIR_PAGE as usize) {
            Ok((entries, targets, upto)) => {
                self.say(d, to, PeerBody::Entries { fid, after, upto, entries, targets }, Bytes::new());
            }
            Err(Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR) => {
                self.say(d, to, PeerBody::Object { fid, object: None }, Bytes::new());
            }
            Err(e) => tracing::warn!("set {}: list {fid} for brick {to}: {e}", d.set),
        }
    }

    /// Data as it is at this point of the stream: what has to come from the disk is read once before, to be in memory.
    fn tell_data(&self, d: &mut SetDriver, to: BrickId, fid: Fid, offset: u64, len: u32, tries: u32) {
        let data = match d.brick.read(fid, offset, len) {
            Ok(ReadOutcome::Data(data)) => data,
            Ok(ReadOutcome::NeedsBlocking(job)) if tries < 3 => {
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
            Err(_) => {
                return self.say(d, to, PeerBody::Object { fid, object: None }, Bytes::new());
            }
        };
        let end = data.len() < len as usize;
        let len = u32::try_from(data.len()).unwrap_or(len);
        self.say(d, to, PeerBody::Data { fid, offset, len, end }, Bytes::from(data));
    }
}

impl SetDriver {
    /// A change of the stream while this brick heals.
    pub(super) fn apply_healing(&mut self, entry: &Entry<Content>) -> Result<(), Errno> {
        let Some(h) = &mut self.healing else { return self.apply_now(entry) };
        h.heard = clock::now();
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
