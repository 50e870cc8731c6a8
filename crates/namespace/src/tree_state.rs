//! What the rules need to know of a brick.

use alloc::vec::Vec;
use ids::{Fid, SetId};
use wire::op::{EntryName, Intent, Leaving, Successor, Taken};
use wire::stripes::{PieceOf, Stripes};
use wire::{Attr, Errno, Name};

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The object.
    pub fid: Fid,
    /// The set that answers for it; another than this one for directories placed there and for stubs.
    pub home: SetId,
    /// Type bits of `st_mode`.
    pub kind: u32,
}

impl Entry {
    /// Whether it leads to a directory.
    pub fn is_dir(self) -> bool {
        self.kind & 0o170_000 == 0o040_000
    }
}

/// What lies above a directory, as far as this set knows for certain.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Lineage {
    /// The directory and those above it that this set answers for, without a gap.
    pub own: Vec<Fid>,
    /// The last of them if its entry is another set's, and that set: it knows what lies above; `None` if the root is next,
    /// which never moves.
    pub other: Option<(Fid, SetId)>,
}

/// A brick's tree as the rules see it: every change decided before this moment is in it.
///
/// Errors: `ESTALE` for a fid that this set does not answer for (a copy of another set's directory counts as such),
/// `ENOTDIR` where a directory is needed, others as the brick's file system gives them.
pub trait TreeState {
    /// Attributes of an object of this set.
    fn attr(&mut self, fid: Fid) -> Result<Attr, Errno>;
    /// Where `name` in `parent` leads.
    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno>;
    /// Whether the directory has no entries.
    fn is_empty(&mut self, dir: Fid) -> Result<bool, Errno>;
    /// Whether the object is marked by [`wire::Change::PrepareMkdir`], [`wire::Change::PrepareRmdir`] or
    /// [`wire::Change::PrepareFile`].
    fn is_pending(&mut self, dir: Fid) -> Result<bool, Errno>;
    /// What the transaction that has marked a file of this set means to do with its names. Of a directory: where it is to move
    /// that is marked for that, and still lies where it was, or does again: then a late end of its transaction frees nothing.
    fn intent(&mut self, fid: Fid) -> Result<Option<Intent>, Errno>;
    /// What the name leads to that a marked file, stub, directory or copy is to lose, when its transaction has committed; `None`: to
    /// nothing.
    fn successor(&mut self, fid: Fid) -> Result<Option<Successor>, Errno>;
    /// The names that a copy is to get which has arrived; none if it has got them, or is none.
    fn names_of_copy(&mut self, fid: Fid) -> Result<Vec<EntryName>, Errno>;
    /// Where a file of this set goes that is marked by [`wire::Change::Leave`].
    fn leaving(&mut self, fid: Fid) -> Result<Option<Leaving>, Errno>;
    /// By what a directory is marked that this set is to answer for, as long as it is not certain that it does: until then all else
    /// answers `EAGAIN` about it. `None` of any other, also of a copy.
    fn taken(&mut self, fid: Fid) -> Result<Option<Taken>, Errno>;
    /// Where the data of a striped file of this set lies; `None` of any other.
    fn stripes(&mut self, fid: Fid) -> Result<Option<Stripes>, Errno>;
    /// Whose piece a nameless object of this set is; `None` of any other.
    fn piece_of(&mut self, fid: Fid) -> Result<Option<PieceOf>, Errno>;
    /// Whether new entries of the directory inherit an ACL (the umask does not count then).
    fn has_default_acl(&mut self, dir: Fid) -> Result<bool, Errno>;
    /// The value of an extended attribute.
    fn xattr(&mut self, fid: Fid, name: &Name) -> Result<Option<Vec<u8>>, Errno>;
    /// What lies above `dir`, a directory of this set or one whose entry this set has. Where a directory hangs is certain on
    /// the set that has its entry; on its own set it is certain only which set that is. `ESTALE` if it is neither.
    fn lineage(&mut self, dir: Fid) -> Result<Lineage, Errno>;
}
