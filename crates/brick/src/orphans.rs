//! Files without a name, in `.mortar/orphans`: what says that a file is one, after power cuts and in healings.

use crate::folders::hidden_name;
use crate::heal_entries::node;
use crate::making::make;
use crate::object::{S_IFMT, tag_at};
use crate::open::Brick;
use disk_format::tag::ORPHAN;
use ids::{Fid, Lsn};
use wire::Errno;
use wire::op::Node as Kind;
use wire::peer::{Object, TARGET};

impl Brick {
    /// A power cut, or a failed write, may have kept a tag from the disk whose file has its place among the orphans already.
    /// The place says what it is. Without any tag nobody can know of the file, and it goes.
    ///
    /// A file may lie here and have a name: a rename over it was not finished, or a power cut took the removals of some of
    /// its names and left the last one. It keeps the name. A healing that goes on looks after that itself.
    pub(crate) fn adopt_orphan(&mut self, name: &[u8], fid: Fid) -> Result<(), Errno> {
        let heals = self.stale.set().is_some_and(|s| s.versions_valid_to != Lsn(0));
        if !heals && self.folders.orphans().stat_at(name)?.nlink > 1 {
            self.folders.orphans().unlink(name)?;
            self.invalidate_attrs(fid);
            return self.keep_named(&[fid]);
        }
        match tag_at(self.folders.orphans(), name)? {
            Some(tag) if tag.fid == fid && tag.flags & ORPHAN == 0 => {
                self.keep_times(fid)?;
                self.load(fid)?.set_orphan(true);
                Ok(())
            }
            Some(_) => Ok(()),
            None => {
                self.forget(fid);
                self.folders.orphans().unlink(name)
            }
        }
    }

    /// What is told of a file that is said to have no name: see [`Brick::keep_named`].
    pub(crate) fn check_orphan(&mut self, fid: Fid) -> Result<(), Errno> {
        if self.stale.is_set() || !self.is_orphan(fid) { Ok(()) } else { self.keep_named(&[fid]) }
    }

    /// Whether the file's place is among the orphans.
    pub(crate) fn lies_among_orphans(&self, fid: Fid) -> Result<bool, Errno> {
        self.folders.orphans().holds(fid)
    }

    /// Whether the file has a place among the orphans, and another name.
    pub(crate) fn is_orphan_with_name(&mut self, fid: Fid) -> Result<bool, Errno> {
        Ok(self.lies_among_orphans(fid)? && self.fresh(fid)?.1.nlink > 1)
    }

    /// Nobody holds it open any more: it goes. A healing may not have come by the name that it still has here: without that
    /// place it is like any other file that the primary does not have.
    pub(crate) fn drop_orphan(&mut self, fid: Fid) -> Result<(), Errno> {
        if self.stale.is_set() && self.is_orphan_with_name(fid)? {
            self.keep_times(fid)?;
            self.load(fid)?.set_orphan(false);
            self.folders.orphans().remove(fid)?;
            self.invalidate_attrs(fid);
            return Ok(());
        }
        // Of one that is not there nothing is freed.
        let _last = self.last_name(fid);
        match self.folders.orphans().remove(fid) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.forget(fid);
        Ok(())
    }

    /// A tag may have reached the disk in a power cut without the move of its file: one that is not among the orphans has
    /// its name still.
    pub(crate) fn keep_named(&mut self, files: &[Fid]) -> Result<(), Errno> {
        for fid in files.iter().copied() {
            if self.lies_among_orphans(fid)? {
                continue;
            }
            match self.keep_times(fid).and_then(|()| self.load(fid).map(|n| n.set_orphan(false))) {
                Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Like [`Brick::keep_named`]; the next process, which may find nothing strange about them, knows it too.
    pub(crate) fn keep_named_for_good(&mut self, files: &[Fid]) -> Result<(), Errno> {
        if files.is_empty() {
            return Ok(());
        }
        self.keep_named(files)?;
        self.flush_attrs()
    }

    pub(crate) fn have_orphan(&mut self, fid: Fid, known: bool, object: &Object) -> Result<bool, Errno> {
        let name = hidden_name(fid);
        let target = object.xattrs.iter().find(|(name, _)| name.as_bytes() == TARGET.as_bytes());
        let kind = object.attr.mode & S_IFMT;
        let node = node(kind, object.attr.rdev, target.map(|(_, target)| target));
        let Some(node) = node.filter(|node| *node != Kind::Dir) else { return Ok(false) };
        if !known {
            let new_object = self.new_object(fid, object.attr.home, &node, object);
            let open = match make(self.folders.orphans(), name.as_bytes(), &new_object) {
                // Left by a healing that was interrupted before the file had its tag.
                Err(Errno::EEXIST) => {
                    self.folders.orphans().remove(fid)?;
                    self.forget(fid);
                    make(self.folders.orphans(), name.as_bytes(), &new_object)?
                }
                made => made?,
            };
            self.finish_hidden(&new_object, &open)?;
            return Ok(true);
        }
        // Its last name was moved to the heal trash here.
        match self.folders.heal_trash().release(fid, self.folders.orphans(), name.as_bytes()) {
            Err(Errno::ENOENT) => self.link_orphan(fid)?,
            renamed => renamed?,
        }
        Ok(true)
    }

    /// A file that is about to lose its last name to another one has its place among the orphans before: so the name leads
    /// to one of the two at any time.
    pub(crate) fn prepare_orphan(&mut self, fid: Fid) -> Result<(), Errno> {
        let open = self.open_fid(fid)?;
        match self.folders.orphans().link_here(&open, fid) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e),
        }
        self.invalidate_attrs(fid);
        Ok(())
    }

    /// The other brick has a name for a file, of which an earlier healing of this brick made an orphan while it still had its
    /// name here: a power cut since gave it back its name there. Where the orphan is all that is left of it, it gets its name
    /// from the comparison of its directory.
    pub(crate) fn leave_orphans(&mut self, fid: Fid) -> Result<(), Errno> {
        if self.fresh(fid)?.1.nlink > 1 && self.lies_among_orphans(fid)? {
            self.folders.orphans().remove(fid)?;
            self.invalidate_attrs(fid);
        }
        Ok(())
    }

    /// A file keeps its name after all. What cannot be taken back now is by the next opening.
    pub(crate) fn give_up_orphan(&mut self, fid: Fid) {
        let _ = self.folders.orphans().remove(fid);
        self.invalidate_attrs(fid);
    }

    /// A file that the other brick keeps without a name has a place among the orphans, whatever becomes of the name that it
    /// still has here: that may lie in a directory that was moved to the heal trash, and goes with it.
    fn link_orphan(&mut self, fid: Fid) -> Result<(), Errno> {
        if self.lies_among_orphans(fid)? || self.open_fid(fid)?.is_dir() {
            return Ok(());
        }
        self.prepare_orphan(fid)
    }
}
