//! Directories of this set that another set is to answer for (docs/design/0018).
//!
//! The other set gets the directory with all that is in it, marked, and on disk. Then a change of this set gives it away: that is
//! the outcome, which the other set hears, or asks for. Until then the directory takes no change here, which only this primary's
//! memory knows: whoever leads next knows nothing of it, and says that the directory is this set's.
//!
//! What goes is a directory without others in it, whose entry is this set's own.

use crate::answer::Answer;
use crate::brick::LocalBrick;
use crate::core::{Cx, Due, SetCore};
use crate::elsewhere::Asking;
use crate::grants::GRANT;
use crate::io::ReplyTo;
use crate::joint::is_gone;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Epoch, Fid, OpId, SetId};
use wire::codec::Blob;
use wire::op::{Ancestor, HandedDir, HandedEntry, Taken};
use wire::{Attr, Body, Change, Errno, Fail, Name, Op};

/// From this level of the pool on directories change their sets: `cluster::LEVEL`.
pub(crate) const HAND_OVER: u32 = 6;
/// About how many bytes of names a directory may have that goes.
pub(crate) const NAMES: usize = 16 << 10;
/// How many bytes of extended attributes: ext4 has 4 KiB for all, and the other set writes beside the directory where it comes from.
const XATTRS: usize = 2 << 10;
/// A directory whose new set has not got it by then stays.
const LONGEST: Duration = Duration::from_secs(5);

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// The other set gets it.
    Taking,
    /// Has it on disk.
    Syncing,
    /// And had it by then.
    Confirming,
    /// What clients may still keep of it runs out.
    Waiting,
    /// It is given away.
    Giving,
    /// That goes to disk.
    OnDisk,
}

/// A directory that is given to another set.
#[derive(Debug)]
struct Giving {
    fid: Fid,
    tx: OpId,
    to: SetId,
    /// The entry that leads to it.
    place: (Fid, Name),
    /// What the other set is asked.
    take: Op,
    epoch: Epoch,
    stage: Stage,
    begun: Duration,
    /// How long nothing was done but wait for what clients keep.
    waited: Duration,
    /// What was granted before has run out then; since then nobody is granted what shows it.
    kept_until: Duration,
}

/// The directory that is being given away, if one is, and those that are here.
#[derive(Debug, Default)]
pub(crate) struct HandOver {
    giving: Option<Giving>,
    /// The directories that this set is to answer for and of which this primary has seen that all of it is here, and the
    /// transactions.
    taken: BTreeMap<Fid, OpId>,
}

impl HandOver {
    /// A change was made.
    pub(crate) fn note(&mut self, change: &Change) {
        match change {
            Change::TakeDir { fid, tx, .. } => drop(self.taken.insert(*fid, *tx)),
            Change::EndTransaction { fid, .. } | Change::GiveDir { fid, .. } => drop(self.taken.remove(fid)),
            _ => {}
        }
    }

    /// Whether all of the directory is here, by this transaction.
    pub(crate) fn has_taken(&self, fid: Fid, tx: OpId) -> bool {
        self.taken.get(&fid) == Some(&tx)
    }

    /// Whether one is under way.
    pub(crate) fn is_under_way(&self) -> bool {
        self.giving.is_some()
    }

    /// Whether the directory is being given away: nothing is begun about what is in it.
    pub(crate) fn gives(&self, dir: Fid) -> bool {
        self.giving.as_ref().is_some_and(|giving| giving.fid == dir)
    }

    /// Whether it may be given away now.
    pub(crate) fn may_give(&self, epoch: Epoch, fid: Fid, tx: OpId, to: SetId) -> bool {
        let all = |g: &Giving| (g.epoch, g.fid, g.tx, g.to, g.stage) == (epoch, fid, tx, to, Stage::Giving);
        self.giving.as_ref().is_some_and(all)
    }

    /// Whether a change is about the directory that is being given away, or about what is in it.
    pub(crate) fn is_touched_by(&self, change: &Change) -> bool {
        let Some(Giving { fid, .. }) = self.giving else { return false };
        if let Change::GiveDir { fid: given, .. } = change {
            return *given != fid && change.touched().contains(&fid);
        }
        change.touched().contains(&fid) || directories_meant(change).any(|dir| dir.without_names() == fid)
    }

    /// Whether the answer may show the directory or what is in it.
    pub(crate) fn is_shown_by(&self, op: &Op) -> bool {
        let Some(Giving { fid, place: (parent, name), .. }) = &self.giving else { return false };
        match op {
            Op::Lookup { parent: dir, name: found } if dir == parent => found == name,
            Op::ReadDir { fid: dir, .. } if dir == parent => true,
            op => op.named().is_none_or(|all| all.contains(fid)),
        }
    }

    /// This brick leads no more.
    pub(crate) fn clear(&mut self) {
        *self = HandOver::default();
    }
}

/// The directories whose names a change marks.
fn directories_meant(change: &Change) -> impl Iterator<Item = Fid> + '_ {
    let (intent, names) = match change {
        Change::PrepareFile { intent, .. }
        | Change::PrepareMove { intent, .. }
        | Change::PrepareExchange { intent, .. }
        | Change::PrepareLeave { intent, .. } => (Some(intent), None),
        Change::Leave { names, .. } => (None, Some(names)),
        _ => (None, None),
    };
    let meant = intent.into_iter().flat_map(|intent| intent.drop.iter().chain(&intent.add));
    meant.chain(names.into_iter().flatten()).map(|place| place.dir)
}

/// How far the question is whether a directory has been given to this set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    First,
    /// What was found then is on disk.
    Sync,
    /// It is still so.
    Second,
}

/// A directory that this set is to answer for, about which the set that gives it is asked.
#[derive(Clone, Debug)]
pub(crate) struct TakenResolve {
    fid: Fid,
    taken: Taken,
    holder: Option<OpId>,
    asked: Asked,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins to give a directory to another set. Whether it may go.
    pub(crate) fn begin_giving(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, to: SetId) -> bool {
        let led = self.settings.sets.contains(&(to, true)) && to != self.set;
        let may = self.is_primary() && !self.settings.read_only && self.settings.level >= HAND_OVER && led;
        if !may || self.hand_over.is_under_way() {
            return false;
        }
        let Ok(Some((path, name, dir))) = self.handed(fid) else { return false };
        let (tx, parent) = (cx.outside.next_id(), path.last().map_or(self.brick.root().0, |above| above.fid));
        let predecessors = self.primary_since.map_or(Duration::ZERO, |since| since + GRANT);
        let kept_until = self.grants.outstanding().max(predecessors);
        let take = Op::TakeDir { fid, tx, from: self.set, path, name: name.clone(), dir };
        let (epoch, stage) = (self.replica.view().epoch, Stage::Taking);
        let (begun, waited) = (cx.at.now, Duration::ZERO);
        let place = (parent, name);
        let giving = Giving { fid, tx, to, place, take, epoch, stage, begun, waited, kept_until };
        tracing::debug!("{}: directory {fid} goes to set {to}", self.settings.name);
        self.ask(cx, Asking::HandedOver(tx), to, giving.take.clone(), Some(cx.outside.next_id()));
        self.hand_over.giving = Some(giving);
        true
    }

    /// What another set has to know of a directory to answer for it; `None` if it has to stay.
    #[allow(clippy::type_complexity, reason = "it is one message's content")]
    fn handed(&mut self, fid: Fid) -> Result<Option<(Vec<Ancestor>, Name, HandedDir)>, Errno> {
        let attr = self.brick.attr(fid)?;
        if !attr.is_dir() || fid.is_root() || fid.is_names() || self.brick.is_pending(fid)? {
            return Ok(None);
        }
        let at = self.brick.location_of(fid)?;
        let (epoch, parent) = (self.replica.view().epoch, at.parent);
        let is_entry = self.brick.attr(parent).is_ok()
            && self.brick.lookup(parent, &at.name)?.is_some_and(|e| e.fid == fid && e.home == self.set);
        let is_meant =
            self.transactions.is_in(epoch, fid) || self.transactions.is_about(epoch, parent, &at.name);
        let waits = is_meant || self.pending.holds_names(fid) || self.departures.are_in(fid);
        if !is_entry || waits {
            return Ok(None);
        }
        let path = self.path_of(parent)?;
        let page = self.brick.readdir(fid, 0, true, NAMES)?;
        let mut entries = Vec::new();
        for e in page.entries {
            if e.kind == 0o040_000 || self.brick.is_pending(e.fid)? {
                return Ok(None);
            }
            entries.push(HandedEntry { name: e.name, fid: e.fid, home: e.home, kind: e.kind });
        }
        let mut xattrs = Vec::new();
        for name in self.brick.listxattr(fid)? {
            let value = self.brick.xattr(fid, &name)?.unwrap_or_default();
            xattrs.push((name, Blob(value)));
        }
        let many = xattrs.iter().map(|(name, value)| name.as_bytes().len() + value.0.len()).sum::<usize>();
        if !page.end || page.marked || many > XATTRS {
            return Ok(None);
        }
        let Attr { mode, uid, gid, atime, mtime, ctime, .. } = attr;
        let dir = HandedDir { mode: mode & 0o7777, uid, gid, atime, mtime, ctime, xattrs, entries };
        Ok(Some((path, at.name, dir)))
    }

    /// The other set, or this one, has done the next step, or not.
    pub(crate) fn on_handed_over(&mut self, cx: &mut Cx<'_, B, R>, tx: OpId, answer: Result<Body, Fail>) {
        let epoch = self.replica.view().epoch;
        let Some(giving) = self.hand_over.giving.as_ref().filter(|giving| giving.tx == tx) else { return };
        let (fid, to, stage, begun_in) = (giving.fid, giving.to, giving.stage, giving.epoch);
        let given = stage >= Stage::Giving && self.brick.attr(fid) == Err(Errno::ESTALE);
        match answer {
            // That set asks, as it is not told.
            Err(_) if given => return self.end_giving(cx, None),
            Err(fail) => return self.keep_dir(cx, &fail),
            Ok(_) if epoch != begun_in && !given => return self.keep_dir(cx, &Fail::Busy),
            Ok(_) => {}
        }
        let Some(giving) = self.hand_over.giving.as_mut() else { return };
        match stage {
            Stage::Taking => {
                giving.stage = Stage::Syncing;
                self.ask(cx, Asking::HandedOver(tx), to, Op::SyncFs, None);
            }
            Stage::Syncing => {
                giving.stage = Stage::Confirming;
                let take = giving.take.clone();
                self.ask(cx, Asking::HandedOver(tx), to, take, Some(cx.outside.next_id()));
            }
            Stage::Confirming => {
                giving.stage = Stage::Waiting;
                let until = giving.kept_until;
                giving.waited = until.saturating_sub(cx.at.now);
                if cx.at.now < until { self.timers.set(until, Due::HandOver) } else { self.go_on_giving(cx) }
            }
            Stage::Waiting => {}
            Stage::Giving => {
                giving.stage = Stage::OnDisk;
                self.ask(cx, Asking::HandedOver(tx), self.set, Op::SyncFs, None);
            }
            Stage::OnDisk => {
                self.departures.departed.directories += 1;
                self.end_giving(cx, Some(true));
            }
        }
    }

    /// What clients may have kept has run out: it is given away.
    pub(crate) fn go_on_giving(&mut self, cx: &mut Cx<'_, B, R>) {
        // The time may have been that of another one, which was given up.
        let waits = |g: &&mut Giving| g.stage == Stage::Waiting && cx.at.now >= g.kept_until;
        let Some(giving) = self.hand_over.giving.as_mut().filter(waits) else {
            return;
        };
        giving.stage = Stage::Giving;
        let (fid, tx, to) = (giving.fid, giving.tx, giving.to);
        let name = cx.outside.next_id();
        self.ask(cx, Asking::HandedOver(tx), self.set, Op::GiveDir { fid, tx, to }, Some(name));
    }

    /// It stays.
    fn keep_dir(&mut self, cx: &mut Cx<'_, B, R>, why: &Fail) {
        if let Some(giving) = &self.hand_over.giving {
            tracing::debug!("{}: directory {} stays: {why:?}", self.settings.name, giving.fid);
            self.departures.rebalance.note_stays(giving.fid);
        }
        self.end_giving(cx, Some(false));
    }

    /// Nothing more is done about it here. The other set is told what came of it, if that is certain.
    fn end_giving(&mut self, cx: &mut Cx<'_, B, R>, outcome: Option<bool>) {
        let Some(Giving { fid, tx, to, begun, waited, .. }) = self.hand_over.giving.take() else { return };
        if let Some(keep) = outcome {
            self.ask(cx, Asking::TakingEnded(to, fid), to, Op::EndTaking { fid, tx, keep }, None);
        }
        self.begin_next_later(cx, (to, cx.at.now.saturating_sub(begun + waited)));
    }

    /// Once a second: one that takes too long is given up.
    pub(crate) fn look_at_giving(&mut self, cx: &mut Cx<'_, B, R>) {
        let late = |g: &Giving| cx.at.now >= g.begun + LONGEST && g.stage < Stage::Giving;
        if self.hand_over.giving.as_ref().is_some_and(late) {
            self.keep_dir(cx, &Fail::Busy);
        }
    }

    /// Whether a directory was given to that set. `EAGAIN`: it may still be.
    pub(crate) fn check_given(&mut self, fid: Fid, tx: OpId, to: SetId) -> Answer {
        if self.hand_over.giving.as_ref().is_some_and(|giving| giving.tx == tx) {
            return Err(Errno::EAGAIN);
        }
        let copy = self.brick.attr_of_any(fid)?;
        if copy.home == to && to != self.set { Ok((Body::Done, Bytes::new())) } else { Err(Errno::ENOENT) }
    }

    /// Asks whether a directory that this set is to answer for was given to it; false if it is none.
    pub(crate) fn ask_if_given(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, holder: Option<OpId>) -> bool {
        let Ok(Some(taken)) = self.brick.taken(fid) else { return false };
        self.ask_given(cx, TakenResolve { fid, taken, holder, asked: Asked::First });
        true
    }

    fn ask_given(&mut self, cx: &mut Cx<'_, B, R>, resolve: TakenResolve) {
        let (fid, tx, from) = (resolve.fid, resolve.taken.tx, resolve.taken.from);
        let op = match resolve.asked {
            Asked::First | Asked::Second => Op::CheckGiven { fid, tx, to: self.set },
            Asked::Sync => Op::SyncFs,
        };
        self.ask(cx, Asking::GivenChecked(resolve), from, op, None);
    }

    pub(crate) fn on_given_checked(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        resolve: TakenResolve,
        answer: Result<Body, Fail>,
    ) {
        let TakenResolve { fid, holder, asked, .. } = resolve;
        let tx = resolve.taken.tx;
        let keep = match (asked, answer) {
            (Asked::First, Ok(_)) => {
                return self.ask_given(cx, TakenResolve { asked: Asked::Sync, ..resolve });
            }
            (Asked::Sync, Ok(_)) => {
                return self.ask_given(cx, TakenResolve { asked: Asked::Second, ..resolve });
            }
            (Asked::Second, Ok(_)) => true,
            (Asked::First | Asked::Second, Err(Fail::Errno { errno })) if is_gone(errno) => false,
            (_, Err(fail)) => {
                tracing::debug!("ask whether {fid} was given to set {}: {fail:?}", self.set);
                return self.pending.asked(fid, holder);
            }
        };
        self.pending.asked(fid, holder);
        self.ask(cx, Asking::TakingEnded(self.set, fid), self.set, Op::EndTaking { fid, tx, keep }, None);
    }
}
