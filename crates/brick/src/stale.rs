//! What is stale: the mark in `.mortar/heal`.
//!
//! While a brick heals its journal runs ahead of its tree: changes to objects that are not healed yet are journaled only.
//! The stale set says up to which position the tree agrees with the journal (`from`). It is written before the first such
//! change and removed when all is healed and on disk.

use crate::identity::{read_small, write_durably};
use disk_format::sealed;
use file_system::File;
use ids::{Fid, Lsn};
use std::sync::Arc;
use wire::{Errno, Wire};

const KIND: sealed::Kind = *b"heal";
const VERSION: u32 = 2;
/// Objects in a stale set; beyond that everything is stale.
const MAX_STALE: usize = 1 << 20;

/// The mark's name in `.mortar`.
const MARK: &[u8] = b"heal";

wire::wire_struct! {
    /// What an unfinished healing leaves stale.
    pub struct StaleSet {
        /// The tree is as the journal says up to here only.
        pub from: Lsn,
        /// Objects that changes touched which are cut off the journal since.
        pub objects: Vec<Fid>,
        /// The version in an object's tag says what is in it if it is not beyond this.
        pub versions_valid_to: Lsn,
    }
}

impl StaleSet {
    /// Everything, and no version says anything.
    pub(crate) fn all() -> StaleSet {
        StaleSet { from: Lsn(0), objects: vec![], versions_valid_to: Lsn(0) }
    }
}

/// The mark of a brick that is in use: what it says, and its file.
pub(crate) struct StaleMark {
    /// The folder `.mortar`.
    meta: Arc<File>,
    /// `None`: nothing is stale.
    set: Option<StaleSet>,
}

impl StaleMark {
    /// The mark in this `.mortar`, which says this.
    pub(crate) fn new(meta: Arc<File>, set: Option<StaleSet>) -> StaleMark {
        StaleMark { meta, set }
    }

    /// What is stale.
    pub(crate) fn set(&self) -> Option<&StaleSet> {
        self.set.as_ref()
    }

    /// What a power cut left stale.
    pub(crate) fn unversioned(&self) -> Option<StaleSet> {
        self.set.clone().filter(|s| s.versions_valid_to == Lsn(0))
    }

    /// Whether anything is stale: a healing is not finished.
    pub(crate) fn is_set(&self) -> bool {
        self.set.is_some()
    }

    /// The opening has written down that this is stale.
    pub(crate) fn learn(&mut self, set: StaleSet) {
        self.set = Some(set);
    }

    /// Adds to what is stale of a brick that is being opened: see [`add_stale`].
    pub(crate) fn add(&mut self, more: StaleSet) -> Result<(), Errno> {
        add_stale(&self.meta, more)?;
        self.set = read_stale_set(&self.meta)?;
        Ok(())
    }

    /// What agreed with the journal beyond `from` does no more, and these objects do not; versions beyond
    /// `versions_valid_to` say nothing.
    pub(crate) fn widen(&mut self, from: Lsn, objects: &[Fid], versions_valid_to: Lsn) -> Result<(), Errno> {
        let mut stale_set = self.set.clone().unwrap_or(StaleSet { from, objects: vec![], versions_valid_to });
        stale_set.from = stale_set.from.min(from);
        stale_set.versions_valid_to = stale_set.versions_valid_to.min(versions_valid_to);
        stale_set.objects.extend_from_slice(objects);
        self.write(normalized(stale_set))
    }

    /// All is stale.
    pub(crate) fn widen_to_all(&mut self) -> Result<(), Errno> {
        self.write(StaleSet::all())
    }

    fn write(&mut self, stale_set: StaleSet) -> Result<(), Errno> {
        if self.set.as_ref() != Some(&stale_set) {
            store_stale_set(&self.meta, &stale_set)?;
            self.set = Some(stale_set);
        }
        Ok(())
    }

    /// All is healed and on disk.
    pub(crate) fn remove(&mut self) -> Result<(), Errno> {
        match self.meta.unlink(MARK) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.set = None;
        Ok(())
    }
}

/// What is stale, if a healing was not finished. `meta`: the brick's `.mortar`.
pub(crate) fn read_stale_set(meta: &File) -> Result<Option<StaleSet>, Errno> {
    match read_small(meta, MARK) {
        Ok(Some(bytes)) => {
            // A damaged mark, or one of an older kind, means the same as one from the very beginning.
            Ok(Some(match sealed::open(KIND, VERSION, &bytes) {
                Ok((VERSION, body)) => StaleSet::from_bytes(body).unwrap_or_else(|_| StaleSet::all()),
                Ok(_) | Err(_) => StaleSet::all(),
            }))
        }
        Ok(None) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Adds to what is stale of a brick that is not in use.
///
/// A stale set that names no objects is about all that may have changed since a position, and a record of it may be lost:
/// data may be on disk whose version and record are not, so that no version says what is in its object.
pub(crate) fn add_stale(meta: &File, mut more: StaleSet) -> Result<(), Errno> {
    if more.objects.is_empty() {
        more.versions_valid_to = Lsn(0);
    }
    let mut stale_set = read_stale_set(meta)?.unwrap_or(StaleSet { objects: vec![], ..more });
    stale_set.from = stale_set.from.min(more.from);
    stale_set.versions_valid_to = stale_set.versions_valid_to.min(more.versions_valid_to);
    stale_set.objects.extend(more.objects);
    store_stale_set(meta, &normalized(stale_set))
}

/// In order, and bounded.
fn normalized(mut stale_set: StaleSet) -> StaleSet {
    stale_set.objects.sort();
    stale_set.objects.dedup();
    if stale_set.objects.len() > MAX_STALE { StaleSet::all() } else { stale_set }
}

fn store_stale_set(meta: &File, stale_set: &StaleSet) -> Result<(), Errno> {
    write_durably(meta, MARK, &sealed::seal(KIND, VERSION, &stale_set.to_bytes()))
}
