//! What lies on this set's bricks beneath directories of other sets, at the path that those sets know: directories of this set
//! whose entry another set has (docs/design/0019), and folders of names (docs/design/0016).
//!
//! Nobody tells this set when a directory of another set is renamed: what hangs on its copy here has an old path then, and may
//! hold a name that something else has by now. The primary asks for the paths, and a change has what lies elsewhere moved
//! ([`wire::Change::Relocate`]). Each brick does that for itself, so bricks that differ come to be the same. A path may be old when
//! it comes: identity is the fid, so nothing is wrong by that but how the brick reads to people.

use crate::far_entry::kept_entry;
use crate::making::NewObject;
use crate::object::S_IFDIR;
use crate::open::Brick;
use crate::place::is_in_lost_found;
use crate::tree::At;
use disk_format::tag::Version;
use ids::{Fid, Time};
use namespace::TreeState;
use wire::op::{Ancestor, Node};
use wire::{Errno, Name};

/// Whether the error says that a place cannot be had: there is no room, or the path is none on this brick.
fn cannot_be_had(e: Errno) -> bool {
    let room = matches!(e, Errno::ENOSPC | Errno::EDQUOT | Errno::EMLINK);
    let taken = matches!(e, Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR | Errno::EISDIR);
    room || taken || matches!(e, Errno::EINVAL | Errno::EXDEV | Errno::ENAMETOOLONG)
}

impl Brick {
    /// [`wire::Change::Relocate`]. What cannot have its place serves as well where it is: only a disk that fails is an error.
    pub(crate) fn relocate(
        &mut self,
        fid: Fid,
        path: &[Ancestor],
        name: &Name,
        version: Version,
    ) -> Result<(), Errno> {
        let (dir, at) = (fid.without_names(), (version, self.load(fid)?.tag().ctime));
        let (path, home) = match path {
            // The set that answers for the directory is not the one that made it, and is told.
            [path @ .., told] if fid.is_names() && told.fid == dir => (path, told.home),
            path if fid.is_names() => (path, dir.set),
            path => (path, self.identity.set),
        };
        let last = Ancestor { fid: dir, home, name: name.clone() };
        let known = if dir == self.identity.root { Ok(true) } else { self.have_path(path, &last, at) };
        let done = match known {
            Ok(true) if fid.is_names() => self.settle_names(fid),
            other => other.map(drop),
        };
        match done {
            Err(e) if cannot_be_had(e) => {
                tracing::debug!(brick = %self.path.display(), %fid, error = %e, "not at its path");
                Ok(())
            }
            other => other,
        }
    }

    /// The directories of a path lie at it, from the root downwards, as far as that can be had. False if the last one is not here.
    fn have_path(&mut self, path: &[Ancestor], last: &Ancestor, at: (Version, Time)) -> Result<bool, Errno> {
        let mut above = None;
        for a in path.iter().chain([last]) {
            if !self.have_at(above, a, at)? {
                return Ok(false);
            }
            above = Some(a.fid);
        }
        Ok(true)
    }

    /// A directory is here, in the one above it if that can be had. `above`: `None` for the root.
    fn have_at(
        &mut self,
        above: Option<Fid>,
        a: &Ancestor,
        (version, time): (Version, Time),
    ) -> Result<bool, Errno> {
        let (parent, name) = (above.unwrap_or(self.identity.root), a.name.as_bytes());
        let hidden = above.is_none() && is_in_lost_found(a.fid, &a.name);
        if !self.is_known(a.fid)? {
            // A directory of this set may have gone since somebody told the path.
            if a.home == self.identity.set || !hidden && !self.make_way(parent, name)? {
                return Ok(false);
            }
            let (fid, home, node, mode, uid, gid, flags) = (a.fid, a.home, &Node::Dir, 0o755, 0, 0, 0);
            let what = NewObject { fid, home, node, mode, uid, gid, time, flags, version };
            let made = if hidden { self.make_in_lost_found(&what) } else { self.create(parent, name, &what) };
            return made.map(|()| true);
        }
        let from = self.location(a.fid)?;
        // What hangs on a directory of this set, or is to, is moved by that directory's own changes; what is marked, by its
        // transaction.
        let stays =
            hidden || self.is_entry_at(&from)? || self.is_own_dir(a.fid)? && self.is_pending(a.fid)?;
        if stays || self.is_there(&from, parent, name)? || !self.make_way(parent, name)? {
            return Ok(true);
        }
        if self.is_own_dir(a.fid)? {
            match self.location_of(a.fid) {
                Ok(at) => self.keep_owner(a.fid, (parent, &a.name), at.parent_home)?,
                // Nothing says whose its entry is.
                Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        self.keep_times_of(&[parent])?;
        self.keep_times_of(from.parent.as_slice())?;
        match self.move_copy(a.fid, parent, name) {
            // It would lie beneath itself: something above that is marked has not followed yet.
            Err(Errno::EINVAL) => Ok(true),
            other => other.map(|()| true),
        }
    }

    /// Frees a name in a copied directory for what belongs there. A directory of this set that has it is at an old path, and waits
    /// in lost+found until its own is asked for. False if the name cannot be had.
    fn make_way(&mut self, parent: Fid, name: &[u8]) -> Result<bool, Errno> {
        if self.make_room(parent, name)? {
            return Ok(true);
        }
        if self.is_own_dir(parent)? {
            return Ok(false);
        }
        match self.find(parent, name)? {
            At::Entry(e) if e.kind == S_IFDIR => self.displace_from(parent, name, e.fid),
            _ => Ok(false),
        }
    }

    /// Whether a directory, or all names of a folder, lie at that path, as far as this brick can tell: the path from the root down
    /// to the directory above, and the name there.
    pub fn is_at_path(&mut self, of: Fid, path: &[Ancestor], name: &Name) -> Result<bool, Errno> {
        if of.is_names() && self.names_wait(of)? {
            return Ok(false);
        }
        let (mut at, mut name, root) = (of.without_names(), name, self.identity.root);
        let above = path.iter().rev().map(|a| (a.fid, Some(&a.name))).chain([(root, None)]);
        for (parent, next) in above.filter(|_| of.without_names() != root) {
            let here = self.location(at)?;
            // A user gave it such a name: its copy lies there.
            if parent == root && is_in_lost_found(at, name) {
                return Ok(here.parent.is_none());
            }
            if self.is_entry_at(&here)? {
                return Ok(true);
            }
            if here.parent != Some(parent) || here.name != name.as_bytes() {
                return Ok(false);
            }
            (at, name) = (parent, next.unwrap_or(name));
        }
        Ok(true)
    }

    /// Whether it is a directory of this set whose entry another set has: nobody tells where it is to lie when what is above it
    /// there is renamed.
    pub(crate) fn has_entry_elsewhere(&mut self, dir: Fid) -> Result<bool, Errno> {
        if dir == self.identity.root || dir.is_names() || !self.is_own_dir(dir)? {
            return Ok(false);
        }
        let open = self.open_fid(dir)?;
        if !open.is_dir() {
            return Ok(false);
        }
        let own = self.identity.set;
        match self.location(dir)?.parent {
            Some(above) => Ok(!self.is_own_dir(above)?),
            None => Ok(kept_entry(&open, own)?.is_some_and(|(owner, _)| owner != own)),
        }
    }
}
