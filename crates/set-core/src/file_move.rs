//! A file that is to move, under all of its names.

use alloc::vec::Vec;
use ids::{Fid, SetId};
use wire::limits::COPY_NAMES_BYTES;
use wire::op::{EntryName, encode_names};
use wire::{Change, Name};

/// A file of this set that is to live on another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileMove {
    /// The directory, of this set; or the folder of its names in a directory of another one.
    pub parent: Fid,
    /// Its name there.
    pub name: Name,
    /// Its other names, likewise. If they are not all of those, it stays.
    pub also: Vec<EntryName>,
    /// The other set.
    pub to: SetId,
}

impl FileMove {
    /// All of its names.
    pub(crate) fn names(&self) -> Vec<EntryName> {
        let first = EntryName { dir: self.parent, name: self.name.clone() };
        core::iter::once(first).chain(self.also.iter().cloned()).collect()
    }

    /// The same, each with its directory.
    pub(crate) fn entries(&self) -> Vec<EntryName> {
        let with_dir = |EntryName { dir, name }| EntryName { dir: dir.without_names(), name };
        self.names().into_iter().map(with_dir).collect()
    }

    /// Whether it has several names of which one is in another set's directory.
    pub(crate) fn is_scattered(&self) -> bool {
        let mut also = self.also.iter().map(|place| place.dir);
        !self.also.is_empty() && (self.parent.is_names() || also.any(Fid::is_names))
    }

    /// Whether the copy can keep the file's names until it has them.
    pub(crate) fn fits_beside_a_copy(&self) -> bool {
        self.also.is_empty() || encode_names(&self.names()).len() <= COPY_NAMES_BYTES
    }
}

/// Whether it changes what a file holds and is like, and none of its names.
pub(crate) fn is_of_content(change: &Change) -> bool {
    matches!(
        change,
        Change::SetAttr { .. }
            | Change::Write { .. }
            | Change::Fallocate { .. }
            | Change::SetXattr { .. }
            | Change::RemoveXattr { .. }
            | Change::CopyRange { .. }
    )
}
