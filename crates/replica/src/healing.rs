//! A heal session: carries out on a brick (any [`HealTarget`]) what the module [`crate::heal`] decides.

mod absent;
mod adopt;
mod entries;
mod missing;

use crate::heal::{Ask, DirtySet, StreamAction};
pub use crate::heal_target::{Arriving, HealTarget, Made, Sum, Sums};
use crate::placed::ToMeet;
pub use crate::progress::Progress;
use absent::Absent;
pub use adopt::adopt_history;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ids::{Fid, Lsn};
use missing::Missing;
use wire::Errno;
use wire::limits::{SMALL_FILE, SUM_BYTES};
use wire::peer::{Object, PeerBody, Sent, Stamp};

const DIR: u32 = 0o040_000;
/// The mark of an object without a name (see `docs/formats/brick.md`).
const ORPHAN: u8 = 2;

/// A brick's healing, from the primary's acceptance of the join until nothing is dirty.
#[derive(Clone, Debug)]
pub struct HealSession {
    dirty_set: DirtySet,
    full: bool,
    caught_up: bool,
    /// All that was missed is here, and this brick is not ready for more.
    held: bool,
    /// With a full comparison: what it does not meet from the root.
    to_meet: ToMeet,
    /// The last change that was missed: one may get lost on the way.
    catch_up_to: Lsn,
    /// With a full comparison: up to here versions say what is in objects.
    versions_valid_to: Lsn,
    /// Files whose data is still to come, with the version that they have then.
    incomplete: BTreeMap<Fid, Stamp>,
    /// The next question's number, which no other healing uses.
    next_ask: u64,
    /// Checksums asked for.
    asked: BTreeMap<Fid, u64>,
    /// Objects that the primary does not have: those with a name here may lose it only later.
    absent: Absent,
    missing: Missing,
}

/// Whether an answer stands for changes that did not come: they got lost with a connection. Taken all the same, it would
/// move here what only those changes explain.
fn is_ahead<P: HealTarget>(brick: &P, answer: &PeerBody) -> bool {
    match answer {
        PeerBody::Object { at, .. }
        | PeerBody::Entries { at, .. }
        | PeerBody::Data { at, .. }
        | PeerBody::Hole { at, .. } => *at > brick.newest(),
        _ => false,
    }
}

impl HealSession {
    /// Whether an acceptance still fits this brick's journal: it may have been cut for another one since the brick asked.
    ///
    /// # Errors
    /// The kernel's.
    pub fn fits<P: HealTarget>(brick: &P, start: &Stamp, full: bool) -> Result<bool, Errno> {
        if full {
            return Ok(true);
        }
        if start.lsn > brick.newest() {
            return Ok(false);
        }
        let here = brick.stamp_at(start.lsn)?;
        Ok(here == *start || here.lsn > start.lsn)
    }

    /// The primary says up to where both have the same, and up to where the journals agree (farther, after a healing that
    /// was not finished): what only this brick has beyond is stale. What follows `start` leaves the journal, with
    /// `full` all does: what the primary still knows after `start` is sent, so that resends are recognised by this brick too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin<P: HealTarget>(
        brick: &mut P,
        (common, start): (&Stamp, &Stamp),
        agree: Lsn,
        full: bool,
    ) -> Result<HealSession, Errno> {
        let mut dirty_set = DirtySet::new(P::ORDER, full);
        let resumed = brick.is_stale();
        if resumed {
            dirty_set.compare_first();
        }
        // Versions of both bricks say the same only within one history. A primary that lost what was not synced goes on in an
        // epoch that no other journal holds: its versions may be on disk without their data.
        let kin = !full || common.lsn > Lsn(0) || agree > Lsn(0);
        let mut cut: Vec<Fid> = Vec::new();
        if kin {
            brick.changes_after(common.lsn.max(agree), &mut |change| cut.extend(change.touched()))?;
            if !full {
                brick.changes_after(common.lsn, &mut |change| dirty_set.mark(change))?;
            }
        }
        // What a change left by half is stale even after it was cut off, or this process has ended.
        cut.extend(brick.incomplete());
        let versions_valid_to = match (kin && !brick.is_uncertain(), full) {
            (false, _) => Lsn(0),
            (true, true) => brick.newest(),
            (true, false) => common.lsn,
        };
        let versions_valid_to =
            if resumed { versions_valid_to.min(brick.versions_valid_to()) } else { versions_valid_to };
        brick.begin_heal(if full { Lsn(0) } else { common.lsn }, &cut, versions_valid_to)?;
        for fid in brick.stale_objects().unwrap_or_default() {
            dirty_set.mark_unknown(fid);
            dirty_set.invalidate_version(fid);
        }
        if full {
            brick.reset_journal(start)?;
        } else {
            brick.cut_journal(start)?;
        }
        Ok(HealSession {
            dirty_set,
            full,
            caught_up: false,
            held: false,
            to_meet: ToMeet::default(),
            catch_up_to: Lsn(0),
            versions_valid_to,
            incomplete: BTreeMap::new(),
            next_ask: brick.nonce(),
            asked: BTreeMap::new(),
            absent: Absent::default(),
            missing: Missing::default(),
        })
    }

    /// The primary sent all that was missed, and this brick does not know yet what its own tree holds: changes that come
    /// before [`HealSession::on_caught_up`] count as missed.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// The primary sent all that was missed up to `last`; `placed` is what a comparison from the root does not meet on
    /// either brick. What only this brick has is asked about too: the answer is that there is no such object.
    ///
    /// # Errors
    /// The kernel's.
    pub fn on_caught_up<P: HealTarget>(
        &mut self,
        brick: &mut P,
        last: &Stamp,
        placed: Vec<Fid>,
    ) -> Result<(), Errno> {
        self.caught_up = true;
        self.catch_up_to = last.lsn;
        if self.full {
            // From here on changes give objects versions whatever is in them.
            brick.begin_heal(Lsn(0), &[], last.lsn)?;
            self.versions_valid_to = self.versions_valid_to.min(last.lsn);
            if let Some(root) = brick.own_root() {
                self.dirty_set.mark_dir(root);
            }
            self.to_meet = ToMeet::new(placed);
            self.to_meet.meet(&mut self.dirty_set);
        }
        Ok(())
    }

    /// Whether everything is compared, because the primary's journal does not reach back.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether the primary has sent all that was missed, so that new changes come now.
    pub fn is_caught_up(&self) -> bool {
        self.caught_up
    }

    /// Whether nothing is dirty any more.
    pub fn is_done<P: HealTarget>(&self, brick: &P) -> bool {
        brick.newest() >= self.catch_up_to && self.has_compared() && !self.absent.is_due()
    }

    fn has_compared(&self) -> bool {
        self.caught_up && self.to_meet.left() == 0 && self.dirty_set.is_done()
    }

    /// Whether the primary owes something besides new changes: what was missed, or answers. If that got lost only the
    /// silence tells, as changes may arrive all the time.
    pub fn awaits_primary(&self) -> bool {
        !self.caught_up || self.dirty_set.is_asking()
    }

    /// Whether all that was missed is here.
    pub fn has_caught_up(&self) -> bool {
        self.caught_up
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        let h = &self.dirty_set;
        let (full, caught_up) = (self.full, self.caught_up);
        let left = h.left() + self.to_meet.left() as u64;
        Progress { done: h.done, left, bytes: h.bytes, same: h.same, full, caught_up }
    }

    /// The next question to the primary, if one may go out now.
    pub fn ask<P: HealTarget>(&mut self, brick: &mut P) -> Option<PeerBody> {
        if !self.caught_up {
            return None;
        }
        self.to_meet.meet(&mut self.dirty_set);
        Some(match self.dirty_set.ask()? {
            Ask::Meta(fid) => {
                // The version tells first, where it can be trusted.
                let data = self.dirty_set.wants_all(fid)
                    && !brick.is_arbiter()
                    && !self.is_version_valid(brick, fid);
                let have = if data && self.dirty_set.compares(fid) { brick.small_sum(fid) } else { None };
                PeerBody::AskObject { fid, data, have }
            }
            Ask::Entries(fid, after) => PeerBody::AskEntries { fid, after },
            Ask::Data(fid, offset, len) => PeerBody::AskData { fid, offset, len },
            Ask::Sums(fid, offset, len) => {
                self.next_ask = self.next_ask.wrapping_add(1);
                self.asked.insert(fid, self.next_ask);
                PeerBody::AskSums { fid, offset, len, ask: self.next_ask }
            }
        })
    }

    /// A change of the stream: journaled, and applied if all it needs is clean.
    ///
    /// # Errors
    /// The kernel's: the brick cannot go on.
    pub fn apply<P: HealTarget>(&mut self, brick: &mut P, a: Arriving<'_>) -> Result<(), Errno> {
        if !self.caught_up {
            if !self.full || self.held {
                self.dirty_set.mark(a.change);
            }
            return brick.note(a);
        }
        if self.dirty_set.on_streamed(a.change) == StreamAction::Skip {
            return brick.note(a);
        }
        if self.dirty_set.is_done() && self.to_meet.left() == 0 {
            // Of what is not here then only a change tells.
            self.missing.clear();
        }
        if self.missing.holds_any(a.change) {
            // It is not here until its name is.
            self.dirty_set.mark(a.change);
            return brick.note(a);
        }
        if self.full {
            // A new name or the loss of one gives an object the version of that change, whatever is in it.
            a.change.touched().into_iter().for_each(|fid| self.dirty_set.invalidate_version(fid));
        }
        match brick.apply(a) {
            // The tree here is not as it should be: compared anew.
            Err(e) if !matches!(e, Errno::ENOSPC | Errno::EROFS) => {
                self.dirty_set.mark(a.change);
                brick.note(a)
            }
            other => other,
        }
    }

    /// The primary's answer to a question, but for checksums ([`HealSession::compare`]).
    ///
    /// # Errors
    /// The kernel's: the brick cannot go on.
    pub fn take<P: HealTarget>(
        &mut self,
        brick: &mut P,
        answer: &PeerBody,
        payload: &[u8],
    ) -> Result<(), Errno> {
        if !self.caught_up || !self.is_wanted(answer) || is_ahead(brick, answer) {
            return Ok(());
        }
        match answer {
            PeerBody::Object { fid, object: None, .. } => {
                if brick.take_nothing(*fid)? {
                    self.absent.keep(*fid);
                }
                self.misses(*fid, false);
                Ok(())
            }
            PeerBody::Object { fid, object: Some(object), data, .. } => {
                self.take_object(brick, *fid, object, data, payload)
            }
            PeerBody::Entries { fid, after, upto, entries, targets, .. } => {
                self.take_entries(brick, *fid, (*after, *upto), entries, targets)
            }
            PeerBody::Data { fid, offset, len, end, .. } => {
                let rest = offset.saturating_add(u64::from(*len));
                let mut taken = brick.take_data(*fid, *offset, payload);
                if *end {
                    taken = taken.and_then(|()| brick.take_hole(*fid, rest, u64::MAX));
                }
                if self.found(*fid, taken)?.is_some() {
                    self.dirty_set.got_data(*fid, *offset, *len, *end);
                    self.complete(brick, *fid)?;
                }
                Ok(())
            }
            PeerBody::Hole { fid, offset, len, end, .. } => {
                let len_here = if *end { u64::MAX } else { *len };
                if self.found(*fid, brick.take_hole(*fid, *offset, len_here))?.is_some() {
                    self.asked.remove(fid);
                    self.dirty_set.got_hole(*fid, *offset, *len, *end);
                    self.complete(brick, *fid)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Whether this answers the question that is under way. Another healing of this brick may have asked as well: its
    /// answers, taken for later ones, would pass over what changed in between.
    fn is_wanted(&self, answer: &PeerBody) -> bool {
        match answer {
            PeerBody::Object { fid, object: Some(_), .. } => {
                self.dirty_set.asked(*fid) == Some(Ask::Meta(*fid))
            }
            PeerBody::Entries { fid, after, .. } => {
                self.dirty_set.asked(*fid) == Some(Ask::Entries(*fid, *after))
            }
            PeerBody::Data { fid, offset, .. } | PeerBody::Hole { fid, offset, .. } => {
                match self.dirty_set.asked(*fid) {
                    Some(Ask::Data(_, at, _) | Ask::Sums(_, at, _)) => at == *offset,
                    _ => false,
                }
            }
            _ => true,
        }
    }

    /// Whether checksums that arrive answer a question of this healing: others may be too old.
    pub fn awaits(&self, fid: Fid, ask: u64) -> bool {
        self.asked.get(&fid) == Some(&ask)
    }

    /// The primary's checksums of a file from `offset` on, and this brick's own, worked out since the question.
    ///
    /// # Errors
    /// The kernel's: the brick cannot go on.
    pub fn compare<P: HealTarget>(
        &mut self,
        brick: &mut P,
        (fid, offset): (Fid, u64),
        there: &Sums,
        here: Result<Sums, Errno>,
    ) -> Result<(), Errno> {
        self.asked.remove(&fid);
        let Some(here) = self.found(fid, here)? else { return Ok(()) };
        let stop = offset.saturating_add(there.len.into());
        let mut differ: Vec<(u64, u64)> = Vec::new();
        let mut from = offset;
        for (i, theirs) in there.sums.iter().enumerate() {
            let to = from.saturating_add(SUM_BYTES.into()).min(stop);
            if here.sums.get(i) != Some(theirs) || (to == stop && here.len < there.len) {
                differ.push((from, to));
            }
            from = to;
        }
        self.dirty_set.got_sums(fid, (offset, stop), there.end, &differ);
        self.complete(brick, fid)
    }

    /// With a full comparison: whether the object's version here says what is in it.
    fn is_version_valid<P: HealTarget>(&self, brick: &mut P, fid: Fid) -> bool {
        self.full
            && !self.dirty_set.is_fresh(fid)
            && self.dirty_set.may_be_valid(fid)
            && brick.version(fid).is_some_and(|v| v.lsn > Lsn(0) && v.lsn <= self.versions_valid_to)
    }

    fn got_nothing(&mut self, fid: Fid) {
        self.incomplete.remove(&fid);
        self.asked.remove(&fid);
        self.dirty_set.got_nothing(fid);
    }

    /// One of the bricks does not have the object, as far as it knows: its index may have lost it in a power cut.
    fn misses(&mut self, fid: Fid, owed: bool) {
        self.missing.add(fid, owed);
        self.got_nothing(fid);
    }

    /// What was done to an object, or read of it; nothing if it is missing.
    fn found<T>(&mut self, fid: Fid, done: Result<T, Errno>) -> Result<Option<T>, Errno> {
        match done {
            Err(Errno::ESTALE | Errno::ENOENT) => {
                self.misses(fid, false);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Gives a file its version when all its data is here.
    fn complete<P: HealTarget>(&mut self, brick: &mut P, fid: Fid) -> Result<(), Errno> {
        if self.dirty_set.wants_data(fid) {
            return Ok(());
        }
        match self.incomplete.remove(&fid) {
            Some(version) => brick.complete(fid, &version),
            None => Ok(()),
        }
    }

    fn take_object<P: HealTarget>(
        &mut self,
        brick: &mut P,
        fid: Fid,
        object: &Object,
        sent: &Sent,
        payload: &[u8],
    ) -> Result<(), Errno> {
        let same = self.is_version_valid(brick, fid) && brick.version(fid).as_ref() == Some(&object.version);
        self.dirty_set.invalidate_version(fid);
        if object.flags & ORPHAN != 0 && !brick.is_known(fid)? {
            // It lost its last name before it came here: nothing of it is.
            self.dirty_set.mark_file(fid, true);
        }
        let regular = object.attr.mode & 0o170_000 == 0o100_000;
        let wants = regular && !same && !brick.is_arbiter() && self.dirty_set.wants_data(fid);
        let size = object.attr.size;
        let here = *sent != Sent::Nothing && self.dirty_set.wants_all(fid);
        let data = (wants && here && *sent == Sent::Payload).then_some(payload);
        let complete = !wants || here || size == 0;
        if !brick.take_object(fid, object, data, complete)? {
            self.misses(fid, true);
            return Ok(());
        }
        // What is in a directory of another set is not this set's.
        let dir = object.attr.is_dir() && object.attr.home == brick.set();
        self.dirty_set.got_meta(fid, if wants { size } else { 0 }, dir);
        if wants && here {
            match sent {
                Sent::Payload => {
                    self.dirty_set.got_data(fid, 0, u32::try_from(size).unwrap_or(SMALL_FILE), true)
                }
                _ => self.dirty_set.got_same(fid, size),
            }
        } else if !complete {
            self.incomplete.insert(fid, object.version.clone());
            return self.complete(brick, fid);
        }
        Ok(())
    }
}
