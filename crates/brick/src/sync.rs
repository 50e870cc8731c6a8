//! Bringing changes to disk, on other threads than the brick's own.

use crate::identity::own;
use crate::index::{Located, Store};
use crate::journal::Unsynced;
use crate::open::Brick;
use crate::state_file::Shared;
use file_system::File;
use ids::{Fid, Lsn, Time};
use std::sync::Arc;
use wire::Errno;
use wire::peer::Stamp;

enum Target {
    Objects(Vec<(Fid, Arc<File>)>),
    /// Everything; the index up to its change `sealed`.
    Tree {
        root: Arc<File>,
        index: Arc<Store>,
        sealed: Lsn,
    },
}

/// Work that brings changes to disk. Runs on any thread; a failure means that the brick cannot be trusted any more.
#[must_use = "nothing is on disk before it has run"]
pub struct SyncJob {
    shared: Arc<Shared>,
    journal: Arc<Unsynced>,
    current: Arc<File>,
    target: Target,
    stamp: Stamp,
    began: Time,
    /// After how many failed syncs the journal had been written again.
    whole: u64,
}

impl SyncJob {
    /// The position that the job makes durable.
    pub fn lsn(&self) -> Lsn {
        self.stamp.lsn
    }

    /// Does the work, which may take long. Answers the position up to which the journal, and the object or everything, is
    /// on disk.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self) -> Result<Lsn, Errno> {
        if let Err(e) = self.write() {
            self.shared.fail();
            return Err(e);
        }
        match &self.target {
            Target::Tree { sealed, .. } => {
                self.shared.indexed(*sealed);
                self.shared.durable(self.stamp.clone(), self.began, self.whole)?;
                self.shared.fresh().synced_all(self.stamp.lsn);
            }
            // The sync that failed may have dropped what this one was asked for.
            Target::Objects(_) if self.shared.failed() != self.whole => return Err(Errno::EIO),
            Target::Objects(files) => {
                let synced: Vec<Fid> = files.iter().map(|(fid, _)| *fid).collect();
                self.shared.fresh().synced(&synced, self.stamp.lsn);
            }
        }
        Ok(self.stamp.lsn)
    }

    /// The index forgets what was removed of the tree since the job was begun, with what it knows on disk by this job.
    pub(crate) fn forget(&self, removed: Vec<(Fid, Located)>) {
        if let Target::Tree { index, sealed, .. } = &self.target {
            index.forget(removed, *sealed);
        }
    }

    /// Brings it to disk, which nobody is told yet.
    pub(crate) fn write(&self) -> Result<(), Errno> {
        match &self.target {
            Target::Objects(files) => {
                // Written out side by side first: the commit that one of them waits for then covers the others.
                files.iter().map(|(_, f)| f).chain([&self.current]).for_each(|f| f.start_writing());
                files.iter().try_for_each(|(_, f)| f.sync())?;
                self.journal.sync(&self.current)?;
            }
            Target::Tree { root, index, sealed } => {
                // The records first: what they describe then never gets to disk before them by this sync. Some file
                // systems tell write errors only to those who sync the file itself.
                self.journal.sync(&self.current)?;
                root.sync_all()?;
                index.commit(*sealed)?;
            }
        }
        Ok(())
    }
}

impl Brick {
    /// Begins to bring to disk what was applied so far: of one object (and the whole journal), or everything.
    ///
    /// # Errors
    /// `ESTALE` for an unknown object; the kernel's while waiting times and versions are written.
    pub fn begin_sync(&mut self, fid: Option<Fid>) -> Result<SyncJob, Errno> {
        if let Some(fid) = fid {
            self.load(fid)?;
            return self.begin_sync_of(&[fid]);
        }
        self.flush_attrs()?;
        let target = self.tree_target();
        Ok(self.sync_job(target))
    }

    /// Begins to bring everything to disk up to where [`Brick::begin_flush`] was called last, and its slices are over.
    pub fn begin_sync_of_flushed(&mut self) -> SyncJob {
        let target = self.tree_target();
        let (flushed, began) = self.flushing.covers();
        let job = self.sync_job(target);
        let stamp = if flushed.lsn < job.stamp.lsn { flushed } else { job.stamp.clone() };
        SyncJob { stamp, began, ..job }
    }

    fn tree_target(&mut self) -> Target {
        // A change that was done in part is not in the index: whoever opens the brick next has to learn of it.
        let sealed = self.last_done().lsn;
        Target::Tree { root: self.root.share(), index: self.index.seal(sealed), sealed }
    }

    /// Begins to bring these objects, and the whole journal, to disk, the entries that lead to them, and of a directory also
    /// what was made in it a short time ago. One that is gone needs nothing: what removed it is in the journal.
    ///
    /// # Errors
    /// The kernel's while waiting times and versions are written.
    pub fn begin_sync_of(&mut self, objects: &[Fid]) -> Result<SyncJob, Errno> {
        let mut files = Vec::with_capacity(objects.len());
        let Some(moved) = self.shared.fresh().moved_dirs() else { return self.begin_sync(None) };
        let mut wanted: Vec<Fid> = moved.into_iter().filter(|f| !objects.contains(f)).collect();
        wanted.extend(objects);
        // Names of a folder lie in the copy of its directory as well.
        wanted.extend(objects.iter().filter(|fid| fid.is_names()).map(|fid| fid.without_names()));
        while let Some(fid) = wanted.pop() {
            let open = self.load(fid).map(drop).and_then(|()| self.flush_node(fid));
            match open.and_then(|()| self.open_fid(fid)) {
                Ok(open) if open.is_path() => return self.begin_sync(None),
                Ok(open) => {
                    if objects.contains(&fid) && open.is_dir() {
                        let Some(fresh) = self.shared.fresh().within(fid) else {
                            return self.begin_sync(None);
                        };
                        wanted.extend(fresh.into_iter().filter(|f| !objects.contains(f)));
                    }
                    files.push((fid, open.share()));
                }
                Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(self.sync_job(Target::Objects(files)))
    }

    /// The last change, or the one before if it was done in part: its record alone makes nothing durable.
    pub(crate) fn last_done(&self) -> Stamp {
        let last = self.journal.last();
        if !self.is_partial() {
            return last;
        }
        let before = self.journal.stamp_at(Lsn(last.lsn.0.saturating_sub(1)));
        before.ok().flatten().unwrap_or_else(|| self.durable())
    }

    fn sync_job(&self, target: Target) -> SyncJob {
        let (stamp, began) = (self.last_done(), self.root.now());
        SyncJob {
            shared: self.shared.clone(),
            journal: self.journal.unsynced(),
            current: self.journal.current(),
            target,
            stamp,
            began,
            whole: self.shared.rewritten(),
        }
    }

    /// The position up to which everything is known to be on disk.
    pub fn durable(&self) -> Stamp {
        self.shared.durable_stamp()
    }

    /// The last change.
    pub fn last(&self) -> Stamp {
        self.journal.last()
    }

    /// The oldest change that the journal holds; one past the last if it holds none.
    pub fn journal_start(&self) -> Lsn {
        self.journal.first()
    }

    /// The stamp at a position, `None` if the journal does not reach there.
    ///
    /// # Errors
    /// What is wrong with the journal.
    pub fn stamp_at(&self, lsn: Lsn) -> Result<Option<Stamp>, crate::JournalError> {
        self.journal.stamp_at(lsn)
    }

    /// The records from `from` on: for resending, for undoing, and for the recent operations' names and results.
    pub fn iterate(&self, from: Lsn) -> crate::Records<'_> {
        self.journal.iterate(from)
    }

    /// Some records from `from` on, at least one if there is one: for somebody who comes back for more.
    ///
    /// # Errors
    /// What is wrong with the journal, or that it does not reach back to `from`.
    pub fn some_records(
        &self,
        from: Lsn,
        near: &mut set_core::JournalPlace,
    ) -> Result<Vec<disk_format::Record>, crate::JournalError> {
        self.journal.part(from, near)
    }

    /// Cuts the journal's tail off. What the cut changes did to the tree stays: the caller heals those objects.
    ///
    /// # Errors
    /// What is wrong with the journal, or that it does not reach back to `lsn`.
    pub fn truncate_after(&mut self, lsn: Lsn) -> Result<(), crate::JournalError> {
        if lsn >= self.journal.last().lsn {
            return self.distrust(lsn);
        }
        let last = self.journal.stamp_at(lsn)?.ok_or(crate::JournalError::OutOfReach(lsn))?;
        self.distrust_for_good(last)?;
        self.shared.fresh().set_back(lsn);
        self.index.set_back(lsn);
        self.journal.truncate_after(lsn)
    }

    /// Begins the journal anew after `stamp`: the brick was brought to that position by other means.
    ///
    /// # Errors
    /// The kernel's.
    pub fn reset_journal(&mut self, stamp: Stamp) -> Result<(), crate::JournalError> {
        self.distrust_for_good(stamp.clone())?;
        self.shared.fresh().set_back(stamp.lsn);
        self.index.set_back(stamp.lsn);
        self.journal.reset(stamp)
    }

    /// Before records are cut off that may be durable: a power cut must find nothing on disk that says that they are.
    fn distrust_for_good(&self, last: Stamp) -> Result<(), crate::JournalError> {
        let known = self.shared.distrust(last.lsn, last).and_then(|()| self.shared.sync());
        known.map_err(|errno| crate::JournalError::Io { file: own(&self.path).join("state"), errno })
    }

    /// Nothing beyond `lsn` counts as written or durable any more.
    pub(crate) fn distrust(&mut self, lsn: Lsn) -> Result<(), crate::JournalError> {
        let last = self.journal.last();
        self.shared
            .distrust(lsn, last)
            .map_err(|errno| crate::JournalError::Io { file: own(&self.path).join("state"), errno })
    }
}
