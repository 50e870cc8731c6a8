//! What a client keeps for one set as long as it lives: the numbers of its changes, files held open, what is unsynced.

use alloc::vec::Vec;

use ids::{Epoch, Fid};
use wire::{Errno, Op};

use crate::numbers::Numbers;
use crate::opens::Opens;
pub use crate::opens::{Opening, ReclaimMark};
pub use crate::unsynced::SyncMark;
use crate::unsynced::Unsynced;

/// The client's memory of one set.
#[derive(Debug, Default)]
pub struct SetState {
    numbers: Numbers,
    opens: Opens,
    unsynced: Unsynced,
}

/// Numbers of changes.
impl SetState {
    /// A number for a change, which counts as under way until [`SetState::end_change`].
    pub fn begin_change(&mut self) -> u64 {
        self.numbers.begin()
    }

    /// Nobody waits for the change any more: it was answered, or given up with its connection.
    pub fn end_change(&mut self, seq: u64) {
        self.numbers.end(seq);
    }

    /// The largest number up to which all changes are finished.
    pub fn finished(&self) -> u64 {
        self.numbers.finished()
    }
}

/// Open files. The methods that return `bool` say whether releases are due from now on that were not before.
impl SetState {
    /// Counts an open file before the set is told. After [`Opening::Tell`] comes [`SetState::opened`] or
    /// [`SetState::open_failed`].
    pub fn open(&mut self, fid: Fid) -> Opening {
        self.opens.open(fid)
    }

    /// The set knows of the open file.
    pub fn opened(&mut self, fid: Fid) {
        self.opens.opened(fid);
    }

    /// Counts a file that was opened as it was made.
    pub fn created(&mut self, fid: Fid) {
        self.opens.created(fid);
    }

    /// An open failed.
    pub fn open_failed(&mut self, fid: Fid, why: Errno) -> bool {
        self.opens.open_failed(fid, why)
    }

    /// Counts a close. The set hears of the last one.
    pub fn close(&mut self, fid: Fid) -> bool {
        self.opens.close(fid)
    }

    /// Files whose releases are to be sent now, `most` at a time; [`SetState::released`] or [`SetState::release_failed`]
    /// has to follow. None while the set is told of open files, as one of these opens could come in later.
    pub fn take_releases(&mut self, most: usize) -> Vec<Fid> {
        self.opens.take_releases(most)
    }

    /// These releases were answered.
    pub fn released(&mut self, fids: &[Fid]) {
        self.opens.released(fids);
    }

    /// These releases may or may not have been heard: they are due again, unless the file is opened before.
    pub fn release_failed(&mut self, fids: &[Fid]) {
        self.opens.release_failed(fids);
    }

    /// Whether files wait for their release.
    pub fn has_releases(&self) -> bool {
        self.opens.has_releases()
    }

    /// How many files are held open.
    pub fn open_files(&self) -> usize {
        self.opens.open_files()
    }
}

/// Reclaim: a set that may have forgotten which files are open (or never heard) is told before it is asked anything.
impl SetState {
    /// Whether the set has to be told.
    pub fn needs_reclaim(&self, mark: ReclaimMark) -> bool {
        self.opens.needs_reclaim(mark)
    }

    /// Whether the set has to be told even if nothing is asked of it: somebody may remove what is open.
    pub fn wants_reclaim(&self, mark: ReclaimMark) -> bool {
        self.opens.open_files() > 0 && self.opens.needs_reclaim(mark)
    }

    /// Claims the task of telling; the files to tell of. `None`: somebody else has it. [`SetState::end_reclaim`] follows.
    pub fn begin_reclaim(&mut self, mark: ReclaimMark) -> Option<Vec<Fid>> {
        self.opens.begin_reclaim(mark)
    }

    /// The set was told of all files, under these circumstances; `None`: that failed.
    pub fn end_reclaim(&mut self, told: Option<ReclaimMark>) {
        self.opens.end_reclaim(told);
    }
}

/// Files that move from one set to another while they are open.
impl SetState {
    /// A file goes on in another set: how many handles are open, and whether changes of it were lost before it moved; what
    /// was there when it did is on disk.
    pub fn leave(&mut self, fid: Fid, lost_before: Epoch) -> (u32, bool) {
        (self.opens.leave(fid), self.unsynced.leave(fid, lost_before))
    }

    /// A file with so many open handles came from another set: this one is told before it is asked anything.
    pub fn arrive(&mut self, fid: Fid, count: u32) {
        self.opens.arrive(fid, count);
    }
}

/// What was changed and not synced.
impl SetState {
    /// A change that was first sent in `epoch` was answered. Whether so much is noted that the set is to be synced now;
    /// nobody has to wait for that ([`SetState::synced_unasked`]).
    pub fn changed(&mut self, op: &Op, epoch: Epoch) -> bool {
        self.unsynced.changed(op, epoch)
    }

    /// A sync begins, of one object, or of everything; to be called before it is sent.
    pub fn begin_sync(&self, fid: Option<Fid>) -> SyncMark {
        self.unsynced.begin(fid)
    }

    /// A sync was answered; `lost_before` is what the map says by now.
    ///
    /// # Errors
    /// `EIO`: not all that was changed before can be there. Who syncs an object hears of it once; who syncs the set, once
    /// for each loss, and who syncs the objects hears of it as well.
    pub fn synced(&mut self, mark: SyncMark, lost_before: Epoch) -> Result<(), Errno> {
        self.unsynced.synced(mark, lost_before)
    }

    /// As [`SetState::synced`] for a sync of everything that nobody asked for: who asks later hears of losses.
    pub fn synced_unasked(&mut self, mark: SyncMark, lost_before: Epoch) {
        self.unsynced.forget(mark, lost_before);
    }
}

#[cfg(test)]
mod tests;
