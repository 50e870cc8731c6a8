//! The end of a healing: what was moved to the heal trash goes, which may be very much. It is forgotten before, so that
//! nothing in memory leads to it, and only what was forgotten is removed.

use crate::folders::{HiddenJob, hidden_name};
use crate::marks::MarksJob;
use crate::open::Brick;
use file_system::File;
use ids::Fid;
use std::sync::Arc;
use wire::Errno;

/// The last work of a healing: what was moved to the heal trash goes, and everything goes to disk, also which files wait for
/// the end of a transaction. Runs on any thread.
#[must_use = "nothing is on disk before it has run"]
pub struct EndJob {
    heal_trash: Arc<File>,
    gone: Vec<Fid>,
    marks: Option<MarksJob>,
    sync: crate::SyncJob,
}

impl EndJob {
    /// Does it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self) -> Result<(), Errno> {
        for fid in self.gone {
            match crate::scan::remove(&self.heal_trash, hidden_name(fid).as_bytes(), 0) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        self.marks.map_or(Ok(()), MarksJob::run)?;
        self.sync.run().map(drop)
    }
}

impl Brick {
    /// What lists the heal trash, `None` if it is empty. Each of what it finds is for [`Brick::forget_trashed`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin_trash(&mut self) -> Result<Option<HiddenJob>, Errno> {
        *self.folders.forgotten() = Some(Vec::new());
        self.folders.heal_trash().begin_list()
    }

    /// Forgets an object that lies in the heal trash: [`Brick::begin_end`] removes it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn forget_trashed(&mut self, fid: Fid) -> Result<(), Errno> {
        // It was taken out again since it was listed.
        if !self.folders.heal_trash().holds(fid)? {
            return Ok(());
        }
        if !self.is_double(&self.folders.heal_trash().share(), hidden_name(fid).as_bytes(), fid)? {
            self.forget(fid);
        }
        self.folders.forgotten().get_or_insert_default().push(fid);
        Ok(())
    }

    /// Everything is healed: what brings it to disk, for a thread that may wait, before [`Brick::end_heal`]. What lies in the
    /// heal trash is forgotten here and now, in one go, unless [`Brick::begin_trash`] has seen to it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin_end(&mut self) -> Result<EndJob, Errno> {
        if self.folders.forgotten().is_none()
            && let Some(job) = self.begin_trash()?
        {
            job.run()?.into_iter().try_for_each(|fid| self.forget_trashed(fid))?;
        }
        let gone = self.folders.forgotten().take().unwrap_or_default();
        let (heal_trash, marks) = (self.folders.heal_trash().share(), self.begin_marks());
        Ok(EndJob { heal_trash, gone, marks, sync: self.begin_sync(None)? })
    }
}
