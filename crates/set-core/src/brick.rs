//! The brick as the core sees it: methods that return at once, and work that the executor runs on another thread.

use crate::io::Done;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, Lsn, OpId, SetId};
use replica::LogEntry;
use replica::healing::Sum;
use wire::codec::Blob;
use wire::op::Ancestor;
use wire::peer::{Object, Stamp};
use wire::reply::{DirEntry, Room};
use wire::{Attr, Change, Errno, Name};

/// Data of a file.
pub enum Read<W> {
    /// It was in memory; shorter than asked only at the end of the file.
    Data(Bytes),
    /// It has to come from the disk: this work answers [`Done::Data`].
    Work(W),
}

/// Where a directory hangs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirLocation {
    /// The set that answers for the directory.
    pub home: SetId,
    /// The directory above.
    pub parent: Fid,
    /// The set that answers for the directory above.
    pub parent_home: SetId,
    /// Its name there.
    pub name: Name,
}

/// Where a journal is being read: a hint, of no meaning to others than the brick.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JournalPlace {
    /// The change that lies there.
    pub next: Lsn,
    /// The first change of its segment.
    pub segment: Lsn,
    /// Bytes before it in the segment.
    pub at: u64,
}

/// A page of a directory for another brick: its entries, targets of symbolic links, and up to which position it reaches.
pub type Entries = (Vec<DirEntry>, Vec<(Fid, Blob)>, Option<u64>);

/// A page of a directory for a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirPage {
    /// The entries.
    pub entries: Vec<DirEntry>,
    /// Whether it is the last page.
    pub end: bool,
    /// Whether a transaction has marked one of the files whose attributes are told.
    pub marked: bool,
}

/// One replica of the set.
///
/// All methods but [`LocalBrick::run`] return without waiting for a disk, as far as the kernel lets them. Errors are the
/// kernel's; `ESTALE` says that this set does not answer for the object.
#[allow(clippy::missing_errors_doc, reason = "said once for all")]
pub trait LocalBrick: namespace::TreeState + replica::healing::HealTarget {
    /// Work that may wait for a disk.
    type Work;

    /// Bytes without data that are told as a hole when data is asked for.
    const HOLE: u64;

    /// Does work, on any thread.
    fn run(work: Self::Work) -> Result<Done, Errno>;
    /// The checksum of data.
    fn sum(data: &[u8]) -> Sum;

    /// The volume's root, and the set that answers for it.
    fn root(&self) -> (Fid, SetId);
    /// The newest change in the journal.
    fn last(&self) -> Stamp;
    /// Everything up to here is on disk.
    fn durable(&self) -> Lsn;
    /// The oldest change that the journal holds.
    fn journal_start(&self) -> Lsn;
    /// Some of the journal's changes from a position on, without their data: as many as may be read without a break, and one
    /// at least if there is one. `near` is what this call made of it when it gave those before, and a new one at first.
    fn some_records(&self, from: Lsn, near: &mut JournalPlace) -> Result<Vec<LogEntry<Change>>, Errno>;
    /// Room on its file system.
    fn room(&mut self) -> Result<Room, Errno>;

    /// Where a name leads, for lookups by users.
    fn lookup(&mut self, parent: Fid, name: &Name) -> Result<Option<namespace::Entry>, Errno>;
    /// The attributes of any object here, copies of other sets' directories included.
    fn attr_of_any(&mut self, fid: Fid) -> Result<Attr, Errno>;
    /// Whether the attributes of an object are in memory.
    fn is_loaded(&mut self, fid: Fid) -> bool;
    /// A symbolic link's target.
    fn readlink(&mut self, fid: Fid) -> Result<Vec<u8>, Errno>;
    /// A page of a directory after `cookie`, about `bytes` long, with attributes (`plus`) or without.
    fn readdir(&mut self, dir: Fid, cookie: u64, plus: bool, bytes: usize) -> Result<DirPage, Errno>;
    /// The same, unless more than a few of what the entries lead to are not in memory: then `None`. The directory's names
    /// are at hand.
    fn readdir_known(
        &mut self,
        dir: Fid,
        cookie: u64,
        plus: bool,
        bytes: usize,
    ) -> Result<Option<DirPage>, Errno>;
    /// Work that brings a directory's names into memory, if they are many and are not there: [`Done::Listed`], whatever
    /// becomes of it. Without it, asking for them may take long.
    fn begin_list(&mut self, dir: Fid) -> Option<Self::Work>;
    /// Work that brings into memory what about `bytes` of a directory's entries after `after`, with attributes (`plus`) or
    /// without, lead to, if they are more than a few that are not: [`Done::Listed`], whatever becomes of it. Without it, each
    /// of them may have to be read from the disk. The directory's names are at hand.
    fn begin_page(&mut self, dir: Fid, after: u64, plus: bool, bytes: usize) -> Option<Self::Work>;
    /// The names of an object's extended attributes.
    fn listxattr(&mut self, fid: Fid) -> Result<Vec<Name>, Errno>;
    /// Where data or a hole begins.
    fn lseek(&mut self, fid: Fid, offset: u64, whence: u32) -> Result<u64, Errno>;
    /// Data of a file.
    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> Result<Read<Self::Work>, Errno>;
    /// Where a directory hangs; a copy of another set's directory will do. One of this set that lies in lost+found is where
    /// its entry is.
    fn location_of(&mut self, fid: Fid) -> Result<DirLocation, Errno>;
    /// The directory of this set at that place, if a transaction has marked it.
    fn marked_at(&mut self, path: &[Ancestor], name: &Name) -> Result<Option<Fid>, Errno>;
    /// Whether the object has no name and is kept only for those who hold it open.
    fn is_orphan(&mut self, fid: Fid) -> bool;
    /// Files whose names may wait for the end of a transaction, though the journal may not say so.
    fn marked_files(&self) -> Vec<Fid>;
    /// Lists the objects without a name, if there are any: [`Done::Hidden`].
    fn begin_orphans(&mut self) -> Result<Option<Self::Work>, Errno>;

    /// Lists the folders of names, and what else lies in lost+found, if there is anything: [`Done::Hidden`].
    fn begin_folders(&mut self) -> Result<Option<Self::Work>, Errno>;
    /// Whether a directory, or all names of a folder, lie at that path, as far as the brick can tell: from the root down to the
    /// directory above, and the directory's name there.
    fn is_at_path(&mut self, of: Fid, path: &[Ancestor], name: &Name) -> Result<bool, Errno>;
    /// Whether it is a directory of this set whose entry another set has.
    fn has_entry_elsewhere(&mut self, dir: Fid) -> bool;
    /// After a sync of everything: names that waited for copies of other sets' directories to be on disk come into them. Where a
    /// name lies is this brick's alone.
    fn settle_waiting(&mut self);
    /// Whether names of this folder have come to the copy of its directory since this was asked last, and more wait.
    fn take_unsettled(&mut self, folder: Fid) -> bool;

    /// Whether the change fits the tree and the file system's limits.
    fn validate(&mut self, change: &Change) -> Result<(), Errno>;
    /// Journals a change and carries it out.
    fn carry_out(
        &mut self,
        stamp: &Stamp,
        op: OpId,
        result_fid: Option<Fid>,
        change: &Change,
        payload: &[u8],
    ) -> Result<(), Errno>;
    /// Whether the last change was done only in part.
    fn is_partial(&self) -> bool;
    /// Puts what was done of the last change in its place in the journal, and answers it.
    fn record_partial(&mut self) -> Result<Change, Errno>;
    /// Notes that the last change's objects are stale, and takes it out of the journal.
    fn abandon_partial(&mut self) -> Result<(), Errno>;
    /// What was not synced is stale.
    fn mark_unsynced_stale(&mut self) -> Result<(), Errno>;
    /// Whether every sync fails until what one may have dropped is written again.
    fn syncs_fail(&self) -> bool;
    /// What was not synced is to be written again: nobody else has it.
    fn begin_write_again(&mut self);
    /// Writes some of it; true if all is written.
    fn write_again_slice(&mut self) -> Result<bool, Errno>;
    /// What failed of the work that follows changes since this was last asked.
    fn take_late_failure(&mut self) -> Option<Errno>;
    /// Lazily kept attributes are to be written, as they are now.
    fn begin_flush(&mut self);
    /// Writes a few of them; true if all are.
    fn flush_slice(&mut self) -> Result<bool, Errno>;

    /// What an object is like, for another brick; `None` if there is none such here.
    fn object(&mut self, fid: Fid) -> Result<Option<Object>, Errno>;
    /// A page of a directory, for another brick.
    fn entries(&mut self, dir: Fid, after: u64, bytes: usize) -> Result<Entries, Errno>;
    /// How many bytes from `offset` on hold no data, if they are many or all, and whether they are all.
    fn hole(&mut self, fid: Fid, offset: u64, many: u64) -> Result<Option<(u64, bool)>, Errno>;
    /// How much of `len` bytes is worth copying in one go.
    fn data_before_hole(&mut self, fid: Fid, offset: u64, len: u32) -> Result<u32, Errno>;

    /// Whether so much waits for a sync of everything that it should not wait for its time.
    fn wants_sync(&self) -> bool;
    /// Brings everything to disk up to where attributes were written last, in all their slices: [`Done::Synced`].
    fn begin_sync(&mut self) -> Self::Work;
    /// Brings some objects to disk: [`Done::Synced`].
    fn begin_sync_of(&mut self, objects: &[Fid]) -> Result<Self::Work, Errno>;
    /// Works out checksums: [`Done::Sums`].
    fn begin_sums(&mut self, fid: Fid, offset: u64, len: u32) -> Result<Self::Work, Errno>;
    /// Looks for what a comparison from the root does not meet: [`Done::Placed`], all that is there from now until it
    /// ends. The tree may change meanwhile.
    fn begin_placed(&mut self) -> Self::Work;
    /// The same without files that have no name: directories that hang on other sets' directories or lie in lost+found, and
    /// folders of names.
    fn begin_placed_directories(&mut self) -> Self::Work;
    /// Lists the heal trash, if there is anything in it: [`Done::Hidden`]. Each of it is to be forgotten.
    fn begin_trash(&mut self) -> Result<Option<Self::Work>, Errno>;
    /// Forgets an object of the heal trash.
    fn forget_trashed(&mut self, fid: Fid) -> Result<(), Errno>;
    /// Removes what was forgotten, and brings what was healed to disk: [`Done::Ended`]. [`LocalBrick::end_heal`] follows.
    fn begin_end(&mut self) -> Result<Self::Work, Errno>;
    /// Nothing is stale any more.
    fn end_heal(&mut self) -> Result<(), Errno>;
}
