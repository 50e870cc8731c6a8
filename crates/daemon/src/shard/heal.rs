//! Coming back into the set: the joining brick's side, and what it asks the primary.
//!
//! The decisions are in `replica::heal`; here they meet the brick and the links.

use super::set::{SetDriver, SetHandle};
use crate::clock;
use brick::ReadOutcome;
use bytes::Bytes;
use ids::{BrickId, Epoch, Fid, Lsn};
use replica::heal::{Ask, Healer, Live};
use replica::{Entry, Input, Role};
use std::time::Duration;
use tokio::task::{spawn_blocking, spawn_local, yield_now};
use wire::Errno;
use wire::codec::Blob;
use wire::limits::DIR_PAGE;
use wire::peer::{Object, PeerBody, Stamp};
use wire::reply::DirEntry;

use super::content::Content;

/// How often a brick that is not in sync asks to join.
const ASK_AGAIN: Duration = Duration::from_millis(500);
/// A healing that hears nothing for this long begins anew.
const PATIENCE: Duration = Duration::from_secs(3);
/// Missed changes sent in one go.
const SLICE: usize = 2048;

/// A healing under way on this brick.
pub(crate) struct Healing {
    healer: Healer,
    full: bool,
    /// The primary has sent all that was missed: its present state is asked for.
    live: bool,
    finishing: bool,
    heard: Duration,
}

impl Healing {
    /// Objects healed, objects known to need it, bytes copied.
    pub(crate) fn progress(&self) -> (u64, u64, u64) {
        (self.healer.done, self.healer.done + self.healer.left(), self.healer.bytes)
    }
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
            PeerBody::Object { fid, object } => d.take_object(fid, object.as_ref()),
            PeerBody::Entries { fid, after, upto, entries, targets } => {
                d.take_entries(fid, (after, upto), &entries, &targets)
            }
            PeerBody::Data { fid, offset, len, end } => d.take_data(fid, (offset, len, end), payload),
            _ => Ok(()),
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
        let mut healer = Healer::new(brick::name_order);
        let mut cut: Vec<Fid> = Vec::new();
        if !full {
            for record in d.brick.iterate(common.lsn.next()) {
                let change = record?.change;
                cut.extend(change.touched());
                healer.mark(&change);
            }
        }
        let from = if full { Lsn(0) } else { common.lsn };
        d.brick.begin_heal(from, &cut)?;
        for fid in d.brick.doubt().map(|b| b.objects.clone()).unwrap_or_default() {
            healer.mark_unknown(fid);
        }
        if let Some(fid) = d.brick.found().incomplete {
            healer.mark_file(fid, false);
        }
        tracing::info!("set {}: brick {} heals from {} on, full: {full}", d.set, d.me, from);
        d.healing = Some(Healing { healer, full, live: false, finishing: false, heard: clock::now() });
        if !full {
            d.brick.truncate_after(common.lsn)?;
            self.step(d, Input::Joined { common });
        }
        Ok(())
    }

    fn on_live(&self, d: &mut SetDriver, last: Stamp, placed: &[Fid]) -> Result<(), Errno> {
        let Some(h) = &mut d.healing else { return Ok(()) };
        if h.full {
            let identity = d.brick.identity();
            if identity.root_home == identity.set {
                h.healer.mark_dir(identity.root);
            }
            for fid in placed {
                h.healer.mark_dir(*fid);
            }
            d.brick.reset_journal(last.clone())?;
            h.live = true;
            self.step(d, Input::Joined { common: last });
        } else {
            h.live = true;
        }
        Ok(())
    }

    /// Asks for what is dirty, and ends the healing when nothing is.
    fn pump(&self, d: &mut SetDriver) {
        let Some(primary) = d.replica.view().primary else { return };
        while let Some(ask) = d.healing.as_mut().filter(|h| h.live).and_then(|h| h.healer.ask()) {
            let body = match ask {
                Ask::Meta(fid) => PeerBody::AskObject { fid },
                Ask::Entries(fid, after) => PeerBody::AskEntries { fid, after },
                Ask::Data(fid, offset, len) => PeerBody::AskData { fid, offset, len },
            };
            self.say(d, primary, body, Bytes::new());
        }
        if let Some(h) = &mut d.healing
            && h.live
            && h.healer.is_done()
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
                    let (done, _, bytes) = d.healing.as_ref().map(Healing::progress).unwrap_or_default();
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
    /// A change of the stream while this brick heals: journaled, and applied if what it touches is clean.
    pub(super) fn apply_healing(&mut self, entry: &Entry<Content>) -> Result<(), Errno> {
        let Some(h) = &mut self.healing else { return self.apply_now(entry) };
        h.heard = clock::now();
        let change = &entry.body.change;
        let apply = if h.live { h.healer.live(change) == Live::Apply } else { false };
        if apply {
            match self.apply_now(entry) {
                Ok(()) => return Ok(()),
                Err(e @ (Errno::ENOSPC | Errno::EROFS)) => return Err(e),
                // What it touches is not as it should be after all.
                Err(e) => tracing::warn!("set {}: while healing, {e}: compared anew", self.set),
            }
        }
        if let Some(h) = &mut self.healing
            && (!h.live || apply)
        {
            h.healer.mark(change);
        }
        self.brick.note(&entry.stamp, entry.op, entry.about, change)
    }

    fn take_object(&mut self, fid: Fid, object: Option<&Object>) -> Result<(), Errno> {
        let Some(h) = &mut self.healing else { return Ok(()) };
        let Some(object) = object else {
            h.healer.got_nothing(fid);
            return Ok(());
        };
        let same = h.full && !self.brick.found().rebooted && !h.healer.is_fresh(fid);
        let same =
            same && object.version.lsn > Lsn(0) && self.brick.version(fid) == Some(object.version.clone());
        let regular = object.attr.mode & 0o170_000 == 0o100_000;
        if !self.brick.take_object(fid, object)? {
            h.healer.got_nothing(fid);
            return Ok(());
        }
        let data = regular && !same && !self.brick.identity().arbiter;
        h.healer.got_meta(fid, if data { object.attr.size } else { 0 }, object.attr.is_dir());
        Ok(())
    }

    fn take_entries(
        &mut self,
        fid: Fid,
        (after, upto): (u64, Option<u64>),
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<(), Errno> {
        let Some(h) = &mut self.healing else { return Ok(()) };
        let made = match self.brick.take_entries(fid, after, upto, entries, targets) {
            Err(Errno::ESTALE | Errno::ENOENT) => {
                h.healer.got_nothing(fid);
                return Ok(());
            }
            other => other?,
        };
        if h.full {
            let own = self.brick.identity().set;
            for e in entries.iter().filter(|e| e.home == own) {
                if e.kind == 0o040_000 { h.healer.mark_dir(e.fid) } else { h.healer.mark_file(e.fid, false) }
            }
        }
        for m in made {
            if m.dir { h.healer.mark_dir(m.fid) } else { h.healer.mark_file(m.fid, true) }
        }
        h.healer.got_entries(fid, upto);
        Ok(())
    }

    fn take_data(
        &mut self,
        fid: Fid,
        (offset, len, end): (u64, u32, bool),
        data: &[u8],
    ) -> Result<(), Errno> {
        let Some(h) = &mut self.healing else { return Ok(()) };
        match self.brick.take_data(fid, offset, data) {
            Err(Errno::ESTALE | Errno::ENOENT) => h.healer.got_nothing(fid),
            other => {
                other?;
                h.healer.got_data(fid, offset, len, end);
            }
        }
        Ok(())
    }
}
