//! Files and directories whose names wait for the end of a transaction with another set, and of which the journal may not tell.
//!
//! The mark is in the file's tag, and nobody may come by. The journal had its record, but after a loss it begins anew, and
//! that of a brick that has healed begins somewhere in the primary's. So a walk over the tree and a healing note which marked
//! files they meet. While something is stale each opening walks; before the stale set goes what was met is written to
//! `.mortar/marks`, which later openings read. What is noted may have ended since. It is written by the last work of a healing,
//! on another thread than the brick's own: only what was met since then is written by that.

use crate::error::OpenError;
use crate::identity::{read_small, write_durably};
use crate::locks::locked;
use crate::open::{Brick, Site};
use disk_format::tag::PENDING;
use disk_format::{Marks as Noted, Tag};
use file_system::File;
use ids::Fid;
use namespace::TreeState as _;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use wire::Errno;

/// Its name in `.mortar`.
const FILE: &[u8] = b"marks";

/// What was met, and what of it is written down.
pub(crate) struct Marks {
    /// The folder `.mortar`.
    meta: Arc<File>,
    met: BTreeSet<Fid>,
    written: Arc<Written>,
}

/// What the file says.
struct Written {
    /// Held by whoever writes the file.
    writing: Mutex<()>,
    list: Mutex<BTreeSet<Fid>>,
}

/// Work that writes down what was met, and brings it to disk. Runs on any thread.
#[must_use = "nothing is written before it has run"]
pub(crate) struct MarksJob {
    meta: Arc<File>,
    met: BTreeSet<Fid>,
    written: Arc<Written>,
}

impl MarksJob {
    /// Does it.
    pub(crate) fn run(self) -> Result<(), Errno> {
        let _writing = locked(&self.written.writing);
        let noted = Noted { files: self.met.iter().copied().collect() };
        write_durably(&self.meta, FILE, &noted.encode())?;
        *locked(&self.written.list) = self.met;
        Ok(())
    }
}

impl Marks {
    /// What is written in the brick's `.mortar`, and what a walk has met.
    pub(crate) fn open(at: &Site, met: &[Fid]) -> Result<Marks, OpenError> {
        let meta = at.meta.clone();
        let bytes = read_small(&meta, FILE).map_err(|e| at.io("read .mortar/marks of", e))?;
        let written: BTreeSet<Fid> = match bytes {
            None => BTreeSet::new(),
            Some(bytes) => match Noted::decode(&bytes) {
                Ok(noted) => noted.files.into_iter().collect(),
                Err(e) => {
                    tracing::warn!(error = %e, "which files wait for transactions is not known from .mortar/marks");
                    BTreeSet::new()
                }
            },
        };
        let met = written.iter().chain(met).copied().collect();
        let written = Arc::new(Written { writing: Mutex::new(()), list: Mutex::new(written) });
        Ok(Marks { meta, met, written })
    }

    /// Notes a file.
    pub(crate) fn meet(&mut self, fid: Fid) {
        self.met.insert(fid);
    }
}

/// Whether a tag says that it is of something whose names wait: a file of this set, a stub, or a directory. Those of directories
/// that are being made or removed are met as well; what they wait for is known by who runs into them.
pub(crate) fn is_marked(tag: &Tag) -> bool {
    tag.flags & PENDING != 0
}

impl Brick {
    /// Files whose names may wait for the end of a transaction, though the journal may not say so.
    pub fn marked_files(&self) -> Vec<Fid> {
        self.marks.met.iter().copied().collect()
    }

    /// Before nothing is stale any more, or the brick is closed: what writes down which files are marked. `None`: the file
    /// says so.
    pub(crate) fn begin_marks(&mut self) -> Option<MarksJob> {
        let met = std::mem::take(&mut self.marks.met);
        let gone = |r: Result<bool, Errno>| matches!(r, Ok(false) | Err(Errno::ESTALE | Errno::ENOENT));
        let met: BTreeSet<Fid> = met.into_iter().filter(|fid| !gone(self.is_pending(*fid))).collect();
        self.marks.met.clone_from(&met);
        let (meta, written) = (self.marks.meta.clone(), self.marks.written.clone());
        let says_so = *locked(&written.list) == met;
        (!says_so).then_some(MarksJob { meta, met, written })
    }

    /// Writes down what was met since a [`MarksJob`] ran, if anything was.
    pub(crate) fn store_new_marks(&mut self) -> Result<(), Errno> {
        if self.marks.met.is_subset(&locked(&self.marks.written.list)) {
            return Ok(());
        }
        self.begin_marks().map_or(Ok(()), MarksJob::run)
    }
}
