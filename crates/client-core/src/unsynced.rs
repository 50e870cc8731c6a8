//! What was changed and not synced yet, for one set: a power cut of all its bricks may take that, and who syncs is told.
//!
//! A set that comes back from such a power cut serves on, and what was open stays open: without this, the sync of a file
//! whose data is gone would succeed. The pool says before which epoch changes may be missing (`lost_before`). An object that
//! was changed earlier and not synced since fails its next sync with `EIO`, once, as Linux does it after an error of writing
//! back (`errseq_t`); NFS has its write verifier for this (RFC 8881, 18.32).
//! Always true: of an object that is not noted, every change of this client that was answered is synced.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use ids::{Epoch, Fid};
use wire::{Errno, Op};

/// Objects noted at a time; then the set is synced.
const MAX: usize = 65_536;
/// After a sync in vain.
const MORE: usize = MAX / 8;

/// Changes of one object that were first sent in one epoch.
#[derive(Debug)]
struct Noted {
    /// The number of the newest.
    last: u64,
    /// A sync of the whole set came after them and told that they may be lost. It brought to disk what is left of them, so
    /// no later loss takes that; only who syncs the object is still to be told.
    told: bool,
}

/// The objects that were changed.
#[derive(Debug)]
pub(crate) struct Unsynced {
    noted: BTreeMap<(Fid, Epoch), Noted>,
    changes: u64,
    limit: usize,
}

/// What a sync comes after.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncMark {
    /// The object that is synced; `None`: the whole set.
    fid: Option<Fid>,
    change: u64,
    /// The epoch of the oldest change of its one object.
    since: Option<Epoch>,
}

impl Default for Unsynced {
    fn default() -> Unsynced {
        Unsynced { noted: BTreeMap::new(), changes: 0, limit: MAX }
    }
}

/// The keys of all changes of an object.
fn all_of(fid: Fid) -> RangeInclusive<(Fid, Epoch)> {
    (fid, Epoch(0))..=(fid, Epoch(u32::MAX))
}

impl Unsynced {
    /// A change that was first sent in `epoch` was answered. Whether the set is to be synced now: too much is noted.
    pub(crate) fn changed(&mut self, op: &Op, epoch: Epoch) -> bool {
        for fid in changed_by(op).into_iter().flatten() {
            self.changes += 1;
            self.noted.insert((fid, epoch), Noted { last: self.changes, told: false });
        }
        let full = self.noted.len() >= self.limit;
        if full {
            self.limit = self.noted.len() + MORE;
        }
        full
    }

    /// A sync begins; of one object, or of everything.
    pub(crate) fn begin(&self, fid: Option<Fid>) -> SyncMark {
        let since = fid.and_then(|fid| self.noted.range(all_of(fid)).next()).map(|((_, since), _)| *since);
        SyncMark { fid, change: self.changes, since }
    }

    /// What the mark was made for was synced.
    ///
    /// # Errors
    /// `EIO`: not all that was changed before can be there. Who syncs a set hears of each loss once; the objects that lost
    /// something stay noted, so that who syncs them hears of it as well.
    pub(crate) fn synced(&mut self, mark: SyncMark, lost_before: Epoch) -> Result<(), Errno> {
        let lost = match mark.fid {
            Some(fid) => {
                self.forget_one(fid, mark);
                mark.since.is_some_and(|since| since < lost_before)
            }
            None => {
                let lost = self.noted.iter().any(|((_, since), n)| !n.told && *since < lost_before);
                self.forget(mark, lost_before);
                self.noted.iter_mut().for_each(|(_, n)| n.told |= n.last <= mark.change);
                lost
            }
        };
        if lost { Err(Errno::EIO) } else { Ok(()) }
    }

    /// What is there of an object is on disk, on another set. Whether some of its changes were lost.
    pub(crate) fn leave(&mut self, fid: Fid, lost_before: Epoch) -> bool {
        let mark = self.begin(Some(fid));
        self.forget_one(fid, mark);
        mark.since.is_some_and(|since| since < lost_before)
    }

    fn forget_one(&mut self, fid: Fid, mark: SyncMark) {
        let over = |n: &Noted| n.last <= mark.change;
        let keys = self.noted.range(all_of(fid)).filter(|(_, n)| over(n)).map(|(k, _)| *k);
        for key in keys.collect::<Vec<_>>() {
            self.noted.remove(&key);
        }
    }

    /// The set was synced, and nobody is to be told now.
    pub(crate) fn forget(&mut self, mark: SyncMark, lost_before: Epoch) {
        assert!(mark.fid.is_none(), "all of the set was synced");
        let mut lost = 0;
        self.noted.retain(|(_, since), n| {
            let loses = *since < lost_before;
            lost += usize::from(loses);
            loses && lost <= MAX / 2 || n.last > mark.change
        });
        self.limit = MAX.max(self.noted.len() + MORE);
    }
}

/// Objects whose data, attributes or entries the operation changes.
fn changed_by(op: &Op) -> [Option<Fid>; 2] {
    match op {
        Op::SetAttr { fid, .. }
        | Op::Write { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. }
        | Op::Fallocate { fid, .. }
        | Op::WritePiece { fid, .. }
        | Op::AllocatePiece { fid, .. }
        | Op::Extend { fid, .. }
        | Op::CopyRange { to: fid, .. }
        | Op::Create { parent: fid, .. }
        | Op::Unlink { parent: fid, .. }
        | Op::Rmdir { parent: fid, .. } => [Some(*fid), None],
        Op::Rename { parent, to_parent, .. } => [Some(*parent), Some(*to_parent)],
        Op::Link { fid, parent, .. } => [Some(*fid), Some(*parent)],
        // The other set, which counts epochs of its own, has it on disk.
        Op::MoveIn { to_parent: parent, .. } | Op::LinkIn { parent, .. } => [Some(*parent), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Lsn, SetId};

    fn file(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn write(n: u64) -> Op {
        Op::Write { fid: file(n), offset: 0, append: false, kill_suid: false }
    }

    fn sync(unsynced: &mut Unsynced, n: u64, lost_before: u32) -> Result<(), Errno> {
        let mark = unsynced.begin(Some(file(n)));
        unsynced.synced(mark, Epoch(lost_before))
    }

    #[test]
    fn a_loss_between_a_write_and_its_sync_is_told_once() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(&write(1), Epoch(3));
        unsynced.changed(&write(2), Epoch(3));
        assert_eq!(sync(&mut unsynced, 2, 0), Ok(()));
        assert_eq!(sync(&mut unsynced, 1, 4), Err(Errno::EIO));
        assert_eq!(sync(&mut unsynced, 1, 4), Ok(()));
        assert_eq!(sync(&mut unsynced, 2, 4), Ok(()), "it was synced before");
        unsynced.changed(&write(1), Epoch(5));
        assert_eq!(sync(&mut unsynced, 1, 4), Ok(()), "written after the loss");
    }

    #[test]
    fn two_syncs_at_once_are_both_told() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(&write(1), Epoch(3));
        let marks = [(); 2].map(|()| unsynced.begin(Some(file(1))));
        assert_eq!(marks.map(|m| unsynced.synced(m, Epoch(4))), [Err(Errno::EIO); 2]);
    }

    #[test]
    fn a_write_during_a_sync_is_not_synced_by_it() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(&write(1), Epoch(3));
        let mark = unsynced.begin(Some(file(1)));
        unsynced.changed(&write(1), Epoch(3));
        assert_eq!(unsynced.synced(mark, Epoch(0)), Ok(()));
        assert_eq!(sync(&mut unsynced, 1, 4), Err(Errno::EIO));
    }

    #[test]
    fn a_write_after_the_loss_is_not_lost_because_of_one_before_it() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(&write(1), Epoch(3));
        let mark = unsynced.begin(Some(file(1)));
        unsynced.changed(&write(1), Epoch(5));
        assert_eq!(unsynced.synced(mark, Epoch(4)), Err(Errno::EIO));
        assert_eq!(sync(&mut unsynced, 1, 4), Ok(()));
    }

    #[test]
    fn a_write_of_before_the_loss_that_is_answered_during_a_sync_is_told_by_the_next() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(&write(1), Epoch(3));
        let marks = [Some(file(1)), None].map(|of| unsynced.begin(of));
        unsynced.changed(&write(1), Epoch(3));
        assert_eq!(marks.map(|m| unsynced.synced(m, Epoch(4))), [Err(Errno::EIO); 2]);
        let mark = unsynced.begin(None);
        assert_eq!([(); 2].map(|()| unsynced.synced(mark, Epoch(4))), [Err(Errno::EIO), Ok(())]);
        assert_eq!(sync(&mut unsynced, 1, 4), Err(Errno::EIO));
    }

    #[test]
    fn what_a_sync_of_all_told_of_is_synced_by_it() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(&write(1), Epoch(3));
        let mark = unsynced.begin(None);
        assert_eq!(unsynced.synced(mark, Epoch(4)), Err(Errno::EIO));
        let mark = unsynced.begin(None);
        assert_eq!(unsynced.synced(mark, Epoch(6)), Ok(()), "the second loss takes nothing of it");
        assert_eq!(sync(&mut unsynced, 1, 6), Err(Errno::EIO), "the first one did");
    }

    #[test]
    fn a_sync_of_all_tells_once_and_leaves_the_files_to_tell() {
        let mut unsynced = Unsynced::default();
        unsynced.changed(&write(1), Epoch(3));
        let mark = unsynced.begin(None);
        assert_eq!(unsynced.synced(mark, Epoch(4)), Err(Errno::EIO));
        assert_eq!(unsynced.synced(mark, Epoch(4)), Ok(()));
        assert_eq!(sync(&mut unsynced, 1, 4), Err(Errno::EIO));
    }

    #[test]
    fn what_is_noted_is_bounded() {
        let mut unsynced = Unsynced::default();
        let mut asked = 0;
        for n in 0..4 * MAX as u64 {
            if unsynced.changed(&write(n), Epoch(3)) {
                asked += 1;
                let mark = unsynced.begin(None);
                let lost_before = if n > 2 * MAX as u64 { Epoch(4) } else { Epoch(0) };
                unsynced.forget(mark, lost_before);
            }
            assert!(unsynced.noted.len() <= MAX + MORE);
        }
        assert!(asked >= 3);
    }
}
