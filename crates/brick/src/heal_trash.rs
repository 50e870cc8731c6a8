//! The end of a healing: what was moved to the heal trash goes, which may be very much. It is forgotten before, so that
//! nothing in memory leads to it, and only what was forgotten is removed.
//!
//! What lies beneath a directory in the heal trash leaves the index as it is removed: the index then knows nothing that is
//! gone. A kill in between is repaired when the brick is opened.

use crate::far_names::PutBack;
use crate::folders::{HiddenJob, hidden_name};
use crate::index::Located;
use crate::marks::MarksJob;
use crate::object::{S_IFDIR, S_IFMT, Stat, tag_at};
use crate::open::Brick;
use file_system::File;
use ids::Fid;
use std::sync::Arc;
use wire::Errno;

/// How many removed objects the index may have to forget before that goes to disk: they are in memory until then.
const MAX_REMOVED: usize = 50_000;

/// The last work of a healing: what was moved to the heal trash goes, and everything goes to disk, also which files wait for
/// the end of a transaction. Runs on any thread.
#[must_use = "nothing is on disk before it has run"]
pub struct EndJob {
    heal_trash: Arc<File>,
    gone: Vec<Fid>,
    names: PutBack,
    marks: Option<MarksJob>,
    sync: crate::SyncJob,
}

/// Whether what lies in the heal trash goes with its name there: a file that has other names stays under those.
fn goes(stat: &Stat) -> bool {
    stat.mode & S_IFMT == S_IFDIR || stat.nlink == 1
}

impl EndJob {
    /// Does it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self) -> Result<(), Errno> {
        let mut removed = Vec::new();
        let all = self.gone.iter().try_for_each(|fid| {
            match self.remove(&self.heal_trash, hidden_name(*fid).as_bytes(), &mut removed) {
                Err(Errno::ENOENT) => Ok(()),
                other => other,
            }
        });
        self.sync.forget(removed);
        all?;
        self.marks.map_or(Ok(()), MarksJob::run)?;
        self.sync.run().map(drop)
    }

    /// Removes what a name leads to, with all that it holds. `removed`: what the index has to forget.
    fn remove(&self, dir: &File, name: &[u8], removed: &mut Vec<(Fid, Located)>) -> Result<(), Errno> {
        let stat = dir.stat_at(name)?;
        let kind = stat.mode & S_IFMT;
        let tag = if goes(&stat) { tag_at(dir, name).ok().flatten() } else { None };
        let known = match tag {
            Some(tag) => Some((tag.fid, Located { handle: dir.handle_at(name)?, kind })),
            None => None,
        };
        if kind == S_IFDIR {
            let open = dir.open_at(name, S_IFDIR)?;
            if let Some(tag) = tag.filter(|tag| tag.home != self.names.own) {
                self.names.all(&open, tag.fid)?;
            }
            crate::scan::names(&open)?.iter().try_for_each(|held| self.remove(&open, held, removed))?;
            dir.remove_dir(name)?;
        } else {
            dir.unlink(name)?;
        }
        removed.extend(known);
        if removed.len() >= MAX_REMOVED {
            self.sync.forget(std::mem::take(removed));
            self.sync.write()?;
        }
        Ok(())
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
        let (trash, name) = (self.folders.heal_trash().share(), hidden_name(fid));
        let stat = match trash.stat_at(name.as_bytes()) {
            // It was taken out again since it was listed.
            Err(Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        if !goes(&stat) {
            self.invalidate_attrs(fid);
        } else if !self.is_double(&trash, name.as_bytes(), fid)? {
            if stat.mode & S_IFMT == S_IFDIR {
                // Nothing is found in it from now on.
                self.gather_names(fid.names())?;
            }
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
        let names = PutBack { own: self.identity.set, lost_found: self.folders.lost_found().share() };
        Ok(EndJob { heal_trash, gone, names, marks, sync: self.begin_sync(None)? })
    }
}
