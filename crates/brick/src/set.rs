//! The brick as the core of a set sees it (crate `set-core`).

use crate::compare::SumsJob;
use crate::folders::HiddenJob;
use crate::heal_trash::EndJob;
use crate::listing::ListJob;
use crate::open::Brick;
use crate::page::{FEW, PageJob};
use crate::placed::WalkJob;
use crate::read::{ReadJob, ReadOutcome};
use crate::sync::SyncJob;
use ids::{Fid, Lsn, OpId, SetId};
use replica::LogEntry;
use replica::healing::Sum;
use set_core::{DirLocation, DirPage, Done, JournalPlace, Read};
use wire::peer::{Object, Stamp};
use wire::reply::Room;
use wire::{Attr, Change, Errno, Name};

/// Work that may wait for a disk.
pub enum Work {
    /// Bringing changes to disk.
    Sync(SyncJob),
    /// Reading data.
    Read(ReadJob),
    /// Working out checksums.
    Sums(SumsJob),
    /// Bringing what was healed to disk.
    End(EndJob),
    /// Reading the names of a directory.
    List(ListJob),
    /// Reading what a page of a directory leads to.
    Page(PageJob),
    /// Listing one of Mortar's own folders.
    Hidden(HiddenJob),
    /// Looking for what a comparison from the root does not meet.
    Walk(WalkJob),
}

impl set_core::LocalBrick for Brick {
    type Work = Work;

    const HOLE: u64 = Brick::HOLE;

    fn run(work: Work) -> Result<Done, Errno> {
        match work {
            Work::Sync(job) => job.run().map(Done::Synced),
            Work::Read(job) => job.run().map(Done::Data),
            Work::Sums(job) => job.run().map(Done::Sums),
            Work::End(job) => job.run().map(|()| Done::Ended),
            Work::List(job) => {
                job.run();
                Ok(Done::Listed)
            }
            Work::Page(job) => {
                job.run();
                Ok(Done::Listed)
            }
            Work::Hidden(job) => job.run().map(Done::Hidden),
            Work::Walk(job) => job.run().map(Done::Placed),
        }
    }

    fn sum(data: &[u8]) -> Sum {
        crate::compare::sum(data)
    }

    fn root(&self) -> (Fid, SetId) {
        (self.identity.root, self.identity.root_home)
    }

    fn last(&self) -> Stamp {
        Brick::last(self)
    }

    fn durable(&self) -> Lsn {
        Brick::durable(self).lsn
    }

    fn journal_start(&self) -> Lsn {
        Brick::journal_start(self)
    }

    fn some_records(&self, from: Lsn, near: &mut JournalPlace) -> Result<Vec<LogEntry<Change>>, Errno> {
        let records = Brick::some_records(self, from, near)?;
        let entry = |r: disk_format::Record| LogEntry {
            stamp: r.stamp,
            op: r.op,
            result_fid: r.result_fid,
            body: r.change,
        };
        Ok(records.into_iter().map(entry).collect())
    }

    fn room(&mut self) -> Result<Room, Errno> {
        Brick::room(self)
    }

    fn lookup(&mut self, parent: Fid, name: &Name) -> Result<Option<namespace::Entry>, Errno> {
        Brick::lookup(self, parent, name)
    }

    fn attr_of_any(&mut self, fid: Fid) -> Result<Attr, Errno> {
        Brick::attr_of_any(self, fid)
    }

    fn readlink(&mut self, fid: Fid) -> Result<Vec<u8>, Errno> {
        Brick::readlink(self, fid)
    }

    fn is_loaded(&mut self, fid: Fid) -> bool {
        Brick::is_loaded(self, fid)
    }

    fn readdir(&mut self, dir: Fid, cookie: u64, plus: bool, bytes: usize) -> Result<DirPage, Errno> {
        self.page(dir, cookie, plus, bytes, usize::MAX)?.ok_or(Errno::EIO)
    }

    fn readdir_known(
        &mut self,
        dir: Fid,
        cookie: u64,
        plus: bool,
        bytes: usize,
    ) -> Result<Option<DirPage>, Errno> {
        self.page(dir, cookie, plus, bytes, FEW)
    }

    fn begin_list(&mut self, dir: Fid) -> Option<Work> {
        Brick::begin_list(self, dir).map(Work::List)
    }

    fn begin_page(&mut self, dir: Fid, after: u64, plus: bool, bytes: usize) -> Option<Work> {
        Brick::begin_page(self, dir, after, plus, bytes).map(Work::Page)
    }

    fn listxattr(&mut self, fid: Fid) -> Result<Vec<Name>, Errno> {
        self.ours(fid)?;
        Brick::listxattr(self, fid)
    }

    fn lseek(&mut self, fid: Fid, offset: u64, whence: u32) -> Result<u64, Errno> {
        Brick::lseek(self, fid, offset, whence)
    }

    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> Result<Read<Work>, Errno> {
        Ok(match Brick::read(self, fid, offset, len)? {
            ReadOutcome::Data(data) => Read::Data(data),
            ReadOutcome::NeedsBlocking(job) => Read::Work(Work::Read(job)),
        })
    }

    fn location_of(&mut self, fid: Fid) -> Result<DirLocation, Errno> {
        let at = Brick::location_of(self, fid)?;
        Ok(DirLocation { home: at.home, parent: at.parent, parent_home: at.parent_home, name: at.name })
    }

    fn marked_at(&mut self, path: &[wire::op::Ancestor], name: &Name) -> Result<Option<Fid>, Errno> {
        Brick::marked_at(self, path, name)
    }

    fn is_orphan(&mut self, fid: Fid) -> bool {
        Brick::is_orphan(self, fid)
    }

    fn marked_files(&self) -> Vec<Fid> {
        Brick::marked_files(self)
    }

    fn begin_orphans(&mut self) -> Result<Option<Work>, Errno> {
        Ok(Brick::begin_orphans(self)?.map(Work::Hidden))
    }

    fn begin_folders(&mut self) -> Result<Option<Work>, Errno> {
        Ok(self.folders.lost_found().begin_list()?.map(Work::Hidden))
    }

    fn is_at_path(&mut self, of: Fid, path: &[wire::op::Ancestor], name: &Name) -> Result<bool, Errno> {
        Brick::is_at_path(self, of, path, name)
    }

    fn has_entry_elsewhere(&mut self, dir: Fid) -> bool {
        Brick::has_entry_elsewhere(self, dir).unwrap_or(false)
    }

    fn settle_waiting(&mut self) {
        Brick::settle_waiting(self);
    }

    fn take_unsettled(&mut self, folder: Fid) -> bool {
        self.unplaced.take_more(folder)
    }

    fn validate(&mut self, change: &Change) -> Result<(), Errno> {
        Brick::validate(self, change)
    }

    fn carry_out(
        &mut self,
        stamp: &Stamp,
        op: OpId,
        result_fid: Option<Fid>,
        change: &Change,
        payload: &[u8],
    ) -> Result<(), Errno> {
        Brick::apply(self, stamp.clone(), op, result_fid, change, payload)
    }

    fn is_partial(&self) -> bool {
        Brick::is_partial(self)
    }

    fn record_partial(&mut self) -> Result<Change, Errno> {
        Brick::record_partial(self)
    }

    fn abandon_partial(&mut self) -> Result<(), Errno> {
        Brick::abandon_partial(self)
    }

    fn mark_unsynced_stale(&mut self) -> Result<(), Errno> {
        Brick::mark_unsynced_stale(self)
    }

    fn syncs_fail(&self) -> bool {
        Brick::syncs_fail(self)
    }

    fn begin_write_again(&mut self) {
        Brick::begin_write_again(self);
    }

    fn write_again_slice(&mut self) -> Result<bool, Errno> {
        Brick::write_again_slice(self)
    }

    fn take_late_failure(&mut self) -> Option<Errno> {
        Brick::take_late_failure(self)
    }

    fn begin_flush(&mut self) {
        Brick::begin_flush(self);
    }

    fn flush_slice(&mut self) -> Result<bool, Errno> {
        Brick::flush_slice(self)
    }

    fn object(&mut self, fid: Fid) -> Result<Option<Object>, Errno> {
        Brick::object(self, fid)
    }

    fn entries(&mut self, dir: Fid, after: u64, bytes: usize) -> Result<set_core::Entries, Errno> {
        Brick::entries(self, dir, after, bytes)
    }

    fn hole(&mut self, fid: Fid, offset: u64, many: u64) -> Result<Option<(u64, bool)>, Errno> {
        Brick::hole(self, fid, offset, many)
    }

    fn data_before_hole(&mut self, fid: Fid, offset: u64, len: u32) -> Result<u32, Errno> {
        Brick::data_before_hole(self, fid, offset, len)
    }

    fn wants_sync(&self) -> bool {
        Brick::wants_sync(self)
    }

    fn begin_sync(&mut self) -> Work {
        Work::Sync(self.begin_sync_of_flushed())
    }

    fn begin_sync_of(&mut self, objects: &[Fid]) -> Result<Work, Errno> {
        Brick::begin_sync_of(self, objects).map(Work::Sync)
    }

    fn begin_sums(&mut self, fid: Fid, offset: u64, len: u32) -> Result<Work, Errno> {
        Brick::sums(self, fid, offset, len).map(Work::Sums)
    }

    fn begin_placed(&mut self) -> Work {
        Work::Walk(Brick::begin_placed(self))
    }

    fn begin_placed_directories(&mut self) -> Work {
        Work::Walk(Brick::begin_placed_directories(self))
    }

    fn begin_trash(&mut self) -> Result<Option<Work>, Errno> {
        Ok(Brick::begin_trash(self)?.map(Work::Hidden))
    }

    fn forget_trashed(&mut self, fid: Fid) -> Result<(), Errno> {
        Brick::forget_trashed(self, fid)
    }

    fn begin_end(&mut self) -> Result<Work, Errno> {
        Brick::begin_end(self).map(Work::End)
    }

    fn end_heal(&mut self) -> Result<(), Errno> {
        Brick::end_heal(self)
    }
}
