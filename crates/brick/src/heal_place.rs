//! Where a healing puts a directory that hangs on another set's directory, or lies in lost+found: where the primary has it.
//!
//! A name that the primary gives to this directory belongs to nobody else there. Whoever holds it here is stale and waits
//! in lost+found: its own healing moves it to its place, or removes it.

use crate::folders::hidden_name;
use crate::making::NewObject;
use crate::open::Brick;
use crate::place::is_in_lost_found;
use crate::tree::At;
use ids::Fid;
use wire::op::{Ancestor, Node};
use wire::{Errno, Name};

impl Brick {
    /// Makes a directory at its place, or moves it there.
    pub(crate) fn take_place(
        &mut self,
        path: &[Ancestor],
        name: &Name,
        what: &NewObject<'_>,
    ) -> Result<(), Errno> {
        let known = self.is_known(what.fid)?;
        if path.is_empty() && is_in_lost_found(what.fid, name) {
            return if known { self.move_to_lost_found(what.fid) } else { self.make_in_lost_found(what) };
        }
        let parent = self.ancestors_as_there(path, what)?;
        if !known {
            self.claim(parent, name.as_bytes(), what.fid)?;
            self.create(parent, name.as_bytes(), what)?;
            return self.keep_owner_as_there(path, (parent, name), what.fid);
        }
        if self.move_as_there(what.fid, parent, name)? {
            return self.keep_owner_as_there(path, (parent, name), what.fid);
        }
        // It serves anywhere, but not as an entry that it has left: who compares that directory would remove it.
        if self.is_own_entry(what.fid)? {
            self.move_to_lost_found(what.fid)?;
            self.keep_path(path, name, what.fid)?;
        }
        Ok(())
    }

    /// The copy above it may be an older one here.
    fn keep_owner_as_there(&mut self, path: &[Ancestor], at: (Fid, &Name), fid: Fid) -> Result<(), Errno> {
        let owner = path.last().map_or(self.identity.root_home, |above| above.home);
        self.keep_owner(fid, at, owner)
    }

    /// Moves a directory to where the primary has it. False if it has to stay where it is.
    fn move_as_there(&mut self, fid: Fid, parent: Fid, name: &Name) -> Result<bool, Errno> {
        let from = self.location(fid)?;
        if self.is_there(&from, parent, name.as_bytes())? {
            return Ok(true);
        }
        self.keep_times_of(from.parent.as_slice())?;
        self.claim(parent, name.as_bytes(), fid)?;
        match self.move_copy(fid, parent, name.as_bytes()) {
            // Copies of other sets' directories lie here as they no longer do there.
            Err(Errno::EINVAL) => {
                tracing::warn!(brick = %self.path.display(), %fid, "a directory's path lies beneath itself: it cannot come there");
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// The last directory of the primary's path. Copies that are missing are made.
    fn ancestors_as_there(&mut self, path: &[Ancestor], what: &NewObject<'_>) -> Result<Fid, Errno> {
        let (mut at, own) = (self.identity.root, self.identity.set);
        for (n, a) in path.iter().enumerate() {
            if !self.is_known(a.fid)? {
                let (node, version, time) = (&Node::Dir, what.version, what.time);
                let (fid, home, mode, uid, gid, flags) = (a.fid, a.home, 0o755, 0, 0, 0);
                let copy = NewObject { fid, home, node, mode, uid, gid, time, flags, version };
                let hidden = n == 0 && is_in_lost_found(a.fid, &a.name);
                // The names of this set's own directories are healed with their entries, which move it there.
                if hidden || self.load(at)?.tag().home == own {
                    self.make_in_lost_found(&copy)?;
                } else {
                    self.claim(at, a.name.as_bytes(), a.fid)?;
                    self.create(at, a.name.as_bytes(), &copy)?;
                }
            } else if a.home != own {
                if self.is_own_dir(a.fid)? {
                    self.become_copy(a.fid, a.home)?;
                }
                self.take_copy_along(at, a, n == 0)?;
            }
            at = a.fid;
        }
        Ok(at)
    }

    /// A copy of another set's directory lies where the primary has it. What hangs on it comes along, as there.
    fn take_copy_along(&mut self, parent: Fid, copy: &Ancestor, first: bool) -> Result<(), Errno> {
        if first && is_in_lost_found(copy.fid, &copy.name) {
            return self.move_to_lost_found(copy.fid);
        }
        let from = self.location(copy.fid)?;
        // The names of this set's own directories are healed with their entries.
        if from.parent.is_some_and(|at| self.is_own_dir(at) != Ok(false)) || self.is_own_dir(parent)? {
            return Ok(());
        }
        self.move_as_there(copy.fid, parent, &copy.name).map(drop)
    }

    /// Frees a name for `fid`.
    fn claim(&mut self, parent: Fid, name: &[u8], fid: Fid) -> Result<(), Errno> {
        match self.find(parent, name)? {
            At::Free => Ok(()),
            At::Unknown => self.quarantine(parent, name),
            At::Entry(e) if e.fid == fid => Ok(()),
            At::Entry(e) if !e.is_dir() && !self.is_own_dir(parent)? && self.give_way(parent, name)? => {
                Ok(())
            }
            At::Entry(e) => {
                self.keep_times(parent)?;
                self.keep_entry(parent, name, e.fid)?;
                let dir = self.open_dir(parent)?;
                self.folders.lost_found().receive(&dir, name, e.fid)?;
                self.invalidate_attrs(e.fid);
                self.left(parent, name);
                Ok(())
            }
        }
    }

    /// The directory has no place in the primary's tree.
    fn move_to_lost_found(&mut self, fid: Fid) -> Result<(), Errno> {
        let from = self.location(fid)?;
        let Some(parent) = from.parent else { return self.leave_heal_trash(fid) };
        self.keep_times_of(&[parent])?;
        self.keep_entry(parent, &from.name, fid)?;
        self.folders.lost_found().receive(&from.dir, &from.name, fid)?;
        self.invalidate_attrs(fid);
        self.left(parent, &from.name);
        Ok(())
    }

    /// A healing that did not end moved the directory to the heal trash, when the primary had none such.
    fn leave_heal_trash(&mut self, fid: Fid) -> Result<(), Errno> {
        let lost_found = self.folders.lost_found();
        if lost_found.holds(fid)? || !self.folders.heal_trash().holds(fid)? {
            return Ok(());
        }
        self.folders.heal_trash().release(fid, lost_found, hidden_name(fid).as_bytes())?;
        self.invalidate_attrs(fid);
        Ok(())
    }
}
