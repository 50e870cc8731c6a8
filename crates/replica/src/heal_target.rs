//! What healing asks of a brick, and what passes between the two.

use crate::heal::Order;
use alloc::vec::Vec;
use ids::{Fid, Lsn, OpId, SetId};
use wire::codec::Blob;
use wire::peer::{Object, Stamp};
use wire::reply::DirEntry;
use wire::{Change, Errno};

/// A brick, as far as healing needs it: the real one, or a test's.
///
/// Errors are the kernel's. `ESTALE` and `ENOENT` say that there is no such object here; after any other the brick cannot
/// go on.
#[allow(clippy::missing_errors_doc, reason = "said once for all")]
pub trait HealTarget {
    /// The order of names in a directory, the same on every brick.
    const ORDER: Order;

    /// Its set.
    fn set(&self) -> SetId;
    /// The volume's root, if this set answers for it.
    fn own_root(&self) -> Option<Fid>;
    /// Whether it holds no file data.
    fn is_arbiter(&self) -> bool;
    /// Stale objects beside what the journal says; `None` if nothing is stale.
    fn stale_objects(&self) -> Option<Vec<Fid>>;
    /// Whether more is stale than the journal and [`HealTarget::stale_objects`] name.
    fn is_stale_beyond_names(&self) -> bool {
        false
    }
    /// Whether anything is.
    fn is_stale(&self) -> bool {
        self.stale_objects().is_some()
    }
    /// The file to which the last change may have been done by half.
    fn incomplete(&self) -> Option<Fid>;
    /// Up to which position an unfinished healing left versions that say what is in objects.
    fn versions_valid_to(&self) -> Lsn {
        Lsn(0)
    }
    /// Whether what is newer than its durable position may be lost or half there.
    fn is_uncertain(&self) -> bool {
        false
    }
    /// A number that no other healing has, of any process.
    fn nonce(&self) -> u64 {
        0
    }
    /// The newest change in its journal.
    fn newest(&self) -> Lsn;
    /// Up to where the tree is as the journal says. A change that may be there by half is not.
    fn consistent_to(&self) -> Lsn;
    /// The stamp at a position, or where the journal begins if that is later.
    fn stamp_at(&self, lsn: Lsn) -> Result<Stamp, Errno>;
    /// Shows the journal's changes after a position, as far as it reaches back.
    fn changes_after(&mut self, lsn: Lsn, each: &mut dyn FnMut(&Change)) -> Result<(), Errno>;
    /// From now on the tree may not be as the journal says from that position on, nor these objects, and versions beyond
    /// `versions_valid_to` do not say what is in objects. Known after any crash.
    fn begin_heal(&mut self, from: Lsn, objects: &[Fid], versions_valid_to: Lsn) -> Result<(), Errno>;
    /// Cuts the journal's end off, what comes after `common`.
    fn cut_journal(&mut self, common: &Stamp) -> Result<(), Errno>;
    /// Begins the journal anew after this position.
    fn reset_journal(&mut self, last: &Stamp) -> Result<(), Errno>;
    /// Journals a change.
    fn note(&mut self, change: Arriving<'_>) -> Result<(), Errno>;
    /// Journals a change and carries it out.
    fn apply(&mut self, change: Arriving<'_>) -> Result<(), Errno>;
    /// The last change in an object.
    fn version(&mut self, fid: Fid) -> Option<Stamp>;
    /// Whether there is such an object here.
    fn is_known(&mut self, fid: Fid) -> Result<bool, Errno>;
    /// The checksum of a small file's data, if it is to be had at once.
    fn small_sum(&mut self, _: Fid) -> Option<Sum> {
        None
    }
    /// Gives an object these attributes, and all its data if that is given. As long as data is to follow (not `complete`) it
    /// has no version. False if there is no such object here.
    fn take_object(
        &mut self,
        fid: Fid,
        object: &Object,
        data: Option<&[u8]>,
        complete: bool,
    ) -> Result<bool, Errno>;
    /// All data is there that was to follow: the object has this version, or that of a later change.
    fn complete(&mut self, fid: Fid, version: &Stamp) -> Result<(), Errno>;
    /// The primary has no such object: what no directory's comparison clears away goes. Whether it is in its place still,
    /// so that it has to be looked at again when directories were compared.
    fn take_nothing(&mut self, fid: Fid) -> Result<bool, Errno>;
    /// Makes the entries of a directory after `after` and up to `upto` (to the end if `None`) those given. What is there
    /// beside them is moved to the heal trash. Answers what was missing and is made now, still empty, and directories that
    /// have to be compared (again).
    fn take_entries(
        &mut self,
        dir: Fid,
        after: u64,
        upto: Option<u64>,
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno>;
    /// Takes over file data.
    fn take_data(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), Errno>;
    /// Takes data out of a file.
    fn take_hole(&mut self, fid: Fid, offset: u64, len: u64) -> Result<(), Errno>;
}

/// XXH3-128 of data, in halves; (0, 0) where there is none.
pub type Sum = (u64, u64);

/// Checksums of a file's pieces of [`SUM_BYTES`], as many as asked for or as there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sums {
    /// One for each piece.
    pub sums: Vec<Sum>,
    /// Bytes that they stand for.
    pub len: u32,
    /// The file ends there.
    pub end: bool,
}

/// An object that a directory's comparison found missing here, and made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The object.
    pub fid: Fid,
    /// Whether it is a directory.
    pub dir: bool,
}

/// A change of the primary's stream.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// Its place in the order.
    pub stamp: &'a Stamp,
    /// The operation it came from.
    pub op: OpId,
    /// The object that its answer is about.
    pub result_fid: Option<Fid>,
    /// What changes.
    pub change: &'a Change,
    /// Its data.
    pub payload: &'a [u8],
}
