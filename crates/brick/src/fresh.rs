//! Objects that were made a short time ago and are not known to be on disk, and the directories that lead to them.
//!
//! A sync of a directory brings its entries to disk. An object gets its tag after it was made, so that a file system may
//! then keep the entry and lose the tag in a power cut, and without its tag the object is nobody's. A sync of a directory
//! therefore brings those of its objects to disk, too, that are fresh.
//! A sync of anything brings the entries to disk that lead to it. A directory above it may have been moved since, and the
//! file system need not take that along: every sync brings the directories to disk that were moved a short time ago.

use ids::{Fid, Lsn};
use std::collections::BTreeMap;

/// Objects that are remembered. If there are more, a sync of a directory is one of everything.
const MANY: usize = 4096;
/// Fresh objects of one directory that are synced one by one: each keeps a descriptor open meanwhile.
const TOGETHER: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    objects: BTreeMap<Fid, Made>,
    /// Directories that were moved, and the last change that did it.
    moved: BTreeMap<Fid, Lsn>,
    /// Objects that were made up to here may be fresh and unknown.
    unknown_to: Option<Lsn>,
}

#[derive(Debug)]
struct Made {
    lsn: Lsn,
    dirs: Vec<Fid>,
}

impl Fresh {
    /// Whatever was made up to `lsn` may be fresh: an earlier process made it.
    pub(crate) fn unknown(lsn: Lsn) -> Fresh {
        Fresh { unknown_to: Some(lsn), ..Fresh::default() }
    }

    /// Changes after `lsn` never were, and others get their numbers: whatever was made may be fresh.
    pub(crate) fn set_back(&mut self, lsn: Lsn) {
        *self = Fresh::unknown(lsn);
    }

    /// An object was made by the change at `lsn`.
    pub(crate) fn made(&mut self, fid: Fid, lsn: Lsn) {
        if self.objects.len() >= MANY {
            self.objects.clear();
            self.unknown_to = Some(lsn);
        }
        self.objects.insert(fid, Made { lsn, dirs: Vec::new() });
    }

    /// An entry of a directory leads to the object.
    pub(crate) fn entered(&mut self, dir: Fid, fid: Fid) {
        if let Some(made) = self.objects.get_mut(&fid)
            && !made.dirs.contains(&dir)
        {
            made.dirs.push(dir);
        }
    }

    /// The change at `lsn` moved a directory.
    pub(crate) fn moved(&mut self, dir: Fid, lsn: Lsn) {
        self.moved.insert(dir, lsn);
        if self.moved.len() > TOGETHER {
            self.moved.clear();
            self.unknown_to = Some(lsn);
        }
    }

    /// The directories that were moved and are not on disk where they are. `None`: too many, or not known which.
    pub(crate) fn moved_dirs(&self) -> Option<Vec<Fid>> {
        self.is_known().then(|| self.moved.keys().copied().collect())
    }

    /// Whether the object may not be on disk as it was made.
    pub(crate) fn may_be_fresh(&self, fid: Fid) -> bool {
        !self.is_known() || self.objects.contains_key(&fid)
    }

    fn is_known(&self) -> bool {
        self.unknown_to.is_none()
    }

    /// Everything up to `lsn` is on disk.
    pub(crate) fn synced_all(&mut self, lsn: Lsn) {
        self.unknown_to = self.unknown_to.filter(|to| *to > lsn);
        self.objects.retain(|_, made| made.lsn > lsn);
        self.moved.retain(|_, at| *at > lsn);
    }

    /// These objects are on disk as they were at `lsn`.
    pub(crate) fn synced(&mut self, objects: &[Fid], lsn: Lsn) {
        for fid in objects {
            if self.objects.get(fid).is_some_and(|made| made.lsn <= lsn) {
                self.objects.remove(fid);
            }
            if self.moved.get(fid).is_some_and(|at| *at <= lsn) {
                self.moved.remove(fid);
            }
        }
    }

    /// The fresh objects to which entries of the directory lead, or led. `None`: too many, or not known which.
    pub(crate) fn within(&self, dir: Fid) -> Option<Vec<Fid>> {
        let leads = |made: &Made| made.dirs.contains(&dir);
        let found: Vec<Fid> = self.objects.iter().filter(|(_, m)| leads(m)).map(|(fid, _)| *fid).collect();
        (self.is_known() && found.len() <= TOGETHER).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, SetId};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    #[test]
    fn an_object_is_fresh_in_all_its_directories_until_it_is_synced() {
        let mut fresh = Fresh::default();
        fresh.made(fid(3), Lsn(3));
        fresh.entered(fid(1), fid(3));
        fresh.entered(fid(2), fid(3));
        fresh.entered(fid(2), fid(3));
        fresh.entered(fid(1), fid(9));
        assert_eq!(fresh.within(fid(1)), Some(vec![fid(3)]), "an old object is not fresh");
        assert_eq!(fresh.within(fid(2)), Some(vec![fid(3)]));
        fresh.synced(&[fid(3)], Lsn(2));
        assert_eq!(fresh.within(fid(2)), Some(vec![fid(3)]), "the sync was before it was made");
        fresh.synced(&[fid(3)], Lsn(3));
        assert_eq!(fresh.within(fid(2)), Some(vec![]));
    }

    #[test]
    fn a_sync_of_everything_covers_what_was_made_before_it() {
        let mut fresh = Fresh::default();
        for n in 3..=4 {
            fresh.made(fid(n), Lsn(n));
            fresh.entered(fid(1), fid(n));
        }
        fresh.synced_all(Lsn(3));
        assert_eq!(fresh.within(fid(1)), Some(vec![fid(4)]));
    }

    #[test]
    fn a_directory_that_was_moved_is_told_until_it_is_synced() {
        let mut fresh = Fresh::default();
        fresh.moved(fid(1), Lsn(5));
        fresh.moved(fid(2), Lsn(6));
        fresh.synced(&[fid(1), fid(2)], Lsn(5));
        assert_eq!(fresh.moved_dirs(), Some(vec![fid(2)]));
        fresh.synced_all(Lsn(6));
        assert_eq!(fresh.moved_dirs(), Some(vec![]));
        (1..=1 + TOGETHER as u64).for_each(|n| fresh.moved(fid(n), Lsn(10 + n)));
        assert_eq!((fresh.moved_dirs(), fresh.within(fid(1))), (None, None), "too many");
        assert_eq!(Fresh::unknown(Lsn(3)).moved_dirs(), None, "an earlier process");
    }

    /// The positions of a history that was given up say nothing of those of the one that goes on.
    #[test]
    fn after_a_step_back_the_next_sync_of_everything_counts() {
        let mut fresh = Fresh::unknown(Lsn(100));
        fresh.made(fid(101), Lsn(101));
        fresh.set_back(Lsn(3));
        assert_eq!((fresh.within(fid(1)), fresh.may_be_fresh(fid(101))), (None, true));
        fresh.synced_all(Lsn(4));
        assert_eq!((fresh.within(fid(1)), fresh.may_be_fresh(fid(101))), (Some(vec![]), false));
    }

    #[test]
    fn what_is_not_known_is_synced_with_everything() {
        let mut fresh = Fresh::unknown(Lsn(5));
        assert_eq!(fresh.within(fid(1)), None, "an earlier process");
        fresh.synced_all(Lsn(4));
        assert_eq!(fresh.within(fid(1)), None);
        fresh.synced_all(Lsn(5));
        assert_eq!(fresh.within(fid(1)), Some(vec![]));
        for n in 6..=6 + TOGETHER as u64 {
            fresh.made(fid(n), Lsn(n));
            fresh.entered(fid(1), fid(n));
        }
        assert_eq!((fresh.within(fid(1)), fresh.within(fid(2))), (None, Some(vec![])), "too many in one");
        for n in 1000..1000 + MANY as u64 {
            fresh.made(fid(n), Lsn(n));
        }
        assert!(fresh.objects.len() <= MANY && fresh.within(fid(2)).is_none(), "too many in all");
    }
}
