//! What a full comparison does not meet from the root: both bricks look for it on another thread before the joining brick
//! begins to compare.
//!
//! The primary's tree changes meanwhile: what changes place from the beginning of its walk to the end of the catching up
//! is noted and told as well. The joining brick leaves its tree alone until its own walk has ended.

use crate::brick::LocalBrick;
use crate::core::{Cx, Purpose, SetCore};
use crate::io::{Done, ReplyTo};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Epoch, Fid};
use wire::change::{Replaced, directories};
use wire::peer::Stamp;
use wire::{Change, Errno};

/// A walk of a brick that has not joined for this long is forgotten.
const UNUSED: Duration = Duration::from_secs(60);

/// Objects that are told in one message.
pub(crate) const PLACED: usize = 4096;

/// A join that waits for the walk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Waiting {
    pub(crate) join_id: u64,
    pub(crate) common: Stamp,
    pub(crate) agree: Stamp,
}

/// The primary's walk for one joining brick.
#[derive(Debug)]
struct Walk {
    number: u64,
    epoch: Epoch,
    used: Duration,
    waiting: Option<Waiting>,
    /// What was found; `None` while the walk is under way.
    found: Option<Vec<Fid>>,
    /// What changes have placed since.
    noted: BTreeSet<Fid>,
}

impl Walk {
    /// A change was made.
    fn note(&mut self, change: &Change) {
        match change {
            Change::Unlink { fid, orphan: true, .. }
            | Change::PrepareMkdir { fid, .. }
            | Change::TakeDir { fid, .. }
            | Change::EndTransaction { fid, keep: true }
            | Change::Relocate { fid, .. }
            | Change::MoveOut { fid, .. }
            | Change::MoveOn { fid, .. }
            | Change::Swap { out: Replaced { fid, .. }, .. }
            | Change::Touch { fid } => drop(self.noted.insert(*fid)),
            Change::Partial { objects } => self.noted.extend(objects),
            Change::Rename { replaced: Some(gone), .. } | Change::Enter { replaced: Some(gone), .. }
                if gone.orphan =>
            {
                self.noted.insert(gone.fid);
            }
            Change::EndFile { fid, orphan: true, .. } | Change::Arrive { fid, .. } => {
                self.noted.insert(*fid);
            }
            // The folder of names may be new.
            Change::GiveDir { fid, .. } => drop(self.noted.insert(fid.names())),
            Change::EndFile { add: Some(add), .. } => drop(self.noted.insert(add.dir)),
            Change::EndCopy { names, .. } => self.noted.extend(directories(names)),
            Change::DropOrphan { fid }
            | Change::Rmdir { fid, .. }
            | Change::EndTransaction { fid, keep: false } => drop(self.noted.remove(fid)),
            _ => {}
        }
    }
}

/// The walks of a primary.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    by_brick: BTreeMap<BrickId, Walk>,
    begun: u64,
}

impl Walks {
    /// The brick is being sent what it missed: its walk is wanted.
    pub(crate) fn keep(&mut self, brick: BrickId, now: Duration) {
        self.by_brick.entry(brick).and_modify(|w| w.used = now);
    }

    /// Forgets walks that nobody wants any more.
    pub(crate) fn clear_unused(&mut self, now: Duration, epoch: Option<Epoch>) {
        self.by_brick.retain(|_, w| Some(w.epoch) == epoch && now < w.used + UNUSED);
    }

    /// Some of those that the walk found, after the first `told`.
    pub(crate) fn some_found(&self, brick: BrickId, told: usize) -> Vec<Fid> {
        let found = self.by_brick.get(&brick).and_then(|w| w.found.as_ref());
        let left = found.and_then(|found| found.get(told..)).unwrap_or_default();
        left.iter().take(PLACED).copied().collect()
    }

    /// What changes have placed since, when the catching up has ended.
    pub(crate) fn take(&mut self, brick: BrickId) -> Option<Vec<Fid>> {
        let walk = self.by_brick.remove(&brick)?;
        walk.found?;
        Some(walk.noted.into_iter().collect())
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A brick has to compare everything: whether its walk has ended. If not the join waits for it.
    pub(crate) fn has_walked(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, waiting: Waiting) -> bool {
        let (now, epoch) = (cx.at.now, self.replica.view().epoch);
        if let Some(walk) = self.walks.by_brick.get_mut(&to).filter(|w| w.epoch == epoch) {
            walk.used = now;
            if walk.found.is_some() {
                return true;
            }
            walk.waiting = Some(waiting);
            return false;
        }
        self.walks.begun += 1;
        let number = self.walks.begun;
        let walk =
            Walk { number, epoch, used: now, waiting: Some(waiting), found: None, noted: BTreeSet::new() };
        self.walks.by_brick.insert(to, walk);
        let work = self.brick.begin_placed();
        self.start(cx, Purpose::Walk(to, number), Ok(work));
        false
    }

    /// The walk has ended.
    pub(crate) fn on_walked(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        number: u64,
        result: Result<Done, Errno>,
    ) {
        let Some(walk) = self.walks.by_brick.get_mut(&to).filter(|w| w.number == number) else { return };
        let found = match result {
            Ok(Done::Placed(found)) if self.replica.view().epoch == walk.epoch => found,
            Ok(_) => return drop(self.walks.by_brick.remove(&to)),
            Err(e) => {
                tracing::error!("{}: look for placed directories: {e}", self.settings.name);
                self.walks.by_brick.remove(&to);
                return;
            }
        };
        walk.found = Some(found);
        if let Some(Waiting { join_id, common, agree }) = walk.waiting.take()
            && self.is_primary()
            && self.replica.may_join(to)
        {
            self.begin_catch_up(cx, (to, join_id), common, agree, true);
        }
    }

    /// A change was made while walks may be under way.
    pub(crate) fn note_placed(&mut self, change: &Change) {
        self.walks.by_brick.values_mut().for_each(|walk| walk.note(change));
    }
}

/// The joining brick's side: it begins to compare when both have walked.
#[derive(Debug, Default)]
pub(crate) struct BothWalks {
    here: Option<Vec<Fid>>,
    /// What the primary found, as far as it has come.
    there: Vec<Fid>,
    /// The last change up to which the primary has sent all.
    last: Option<Stamp>,
}

impl BothWalks {
    /// Without a full comparison nothing has to be looked for here.
    pub(crate) fn new(full: bool) -> BothWalks {
        BothWalks { here: (!full).then(Vec::new), ..BothWalks::default() }
    }

    /// Some of what the primary found.
    pub(crate) fn add(&mut self, placed: Vec<Fid>) {
        self.there.extend(placed);
    }

    /// Both, when both are there.
    fn take(&mut self) -> Option<(Stamp, Vec<Fid>)> {
        self.here.as_ref()?;
        let last = self.last.take()?;
        let mut placed = core::mem::take(&mut self.there);
        placed.extend(self.here.iter().flatten());
        Some((last, placed))
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The primary has sent all that was missed.
    pub(crate) fn on_caught_up(&mut self, last: Stamp, placed: Vec<Fid>) -> Result<(), Errno> {
        let Some(h) = &mut self.target.healing else { return Ok(()) };
        h.inner.hold();
        h.walks.add(placed);
        h.walks.last = Some(last);
        self.begin_to_compare()
    }

    /// This brick has walked over its own tree.
    pub(crate) fn on_own_walk(&mut self, now: Duration, walked: Result<Done, Errno>) -> Result<(), Errno> {
        let Some(h) = &mut self.target.healing else { return Ok(()) };
        h.end_work(now);
        let Done::Placed(found) = walked? else { return Err(Errno::EIO) };
        h.walks.here = Some(found);
        self.begin_to_compare()
    }

    fn begin_to_compare(&mut self) -> Result<(), Errno> {
        let Some(h) = &mut self.target.healing else { return Ok(()) };
        match h.walks.take() {
            Some((last, placed)) => h.inner.on_caught_up(&mut self.brick, &last, placed),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Lsn, SetId, Time};
    use wire::Name;

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn walk() -> Walk {
        Walk {
            number: 1,
            epoch: Epoch(1),
            used: Duration::ZERO,
            waiting: None,
            found: None,
            noted: BTreeSet::new(),
        }
    }

    fn name() -> Name {
        Name::new(b"n").unwrap()
    }

    #[test]
    fn what_changes_place_is_told_with_what_was_found() {
        let mut walk = walk();
        let (path, name) = (Vec::new(), name());
        let (mode, uid, gid, time) = (0, 0, 0, Time::default());
        let made = Change::PrepareMkdir { path, name: name.clone(), fid: fid(1), mode, uid, gid, time };
        let unlink =
            |n, orphan| Change::Unlink { parent: fid(9), name: name.clone(), fid: fid(n), orphan, time };
        for change in
            [made, unlink(2, true), unlink(3, false), unlink(4, true), Change::DropOrphan { fid: fid(4) }]
        {
            walk.note(&change);
        }
        walk.found = Some([fid(7), fid(1)].into());
        let mut walks = Walks::default();
        walks.by_brick.insert(BrickId(2), walk);
        assert_eq!(walks.some_found(BrickId(2), 0), [fid(7), fid(1)]);
        assert_eq!(walks.some_found(BrickId(2), 1), [fid(1)]);
        assert_eq!(walks.take(BrickId(2)), Some([fid(1), fid(2)].into()));
        assert_eq!(walks.take(BrickId(2)), None);
    }

    #[test]
    fn a_walk_that_nobody_wants_is_forgotten() {
        let mut walks = Walks::default();
        walks.by_brick.insert(BrickId(2), walk());
        walks.keep(BrickId(2), UNUSED);
        walks.clear_unused(UNUSED * 2 - Duration::from_secs(1), Some(Epoch(1)));
        assert_eq!(walks.by_brick.len(), 1);
        walks.clear_unused(UNUSED * 2, Some(Epoch(1)));
        assert!(walks.by_brick.is_empty());
    }
}
