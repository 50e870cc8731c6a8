//! Copies of other sets' directories, and what lies beneath them.
//!
//! A directory that lives on another set than its parent is stored at its own path, beneath copies of its ancestors.
//! Identity is the fid: an ancestor that is known is used wherever it lies. A name that is taken by another fid is freed
//! if its holder is only a copy, or marked by a transaction that has not ended; otherwise the newcomer waits in `.mortar/limbo/`, where it serves as well as anywhere.

use crate::folders::hidden_name;
use crate::making::NewObject;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, open_at};
use crate::open::Brick;
use crate::tree::{At, is_remains};
use disk_format::tag::{PENDING, Version};
use file_system::{File, Renaming, Times};
use ids::{Fid, Lsn, Time};
use namespace::Entry;
use std::sync::Arc;
use wire::op::{Ancestor, Node};
use wire::{Errno, Name};

/// The name in a path of a directory that lies in lost+found itself: a path that begins with it begins there, not at the
/// root.
pub(crate) fn lost_found_name(fid: Fid) -> Result<Name, Errno> {
    Name::new(hidden_name(fid).as_bytes()).map_err(|_| Errno::EIO)
}

/// Whether a directory with this name at the beginning of a path lies in lost+found. A user may give a directory such a
/// name: its copy lies in lost+found then, where it serves as well.
pub(crate) fn is_in_lost_found(fid: Fid, name: &Name) -> bool {
    name.as_bytes() == hidden_name(fid).as_bytes()
}

/// Where a directory hangs now.
pub(crate) struct Location {
    pub(crate) dir: Arc<File>,
    /// The directory's fid; `None` for lost+found.
    pub(crate) parent: Option<Fid>,
    pub(crate) name: Vec<u8>,
}

/// Moves what is nobody's to lost+found; the name that it has there. `number`: the first to try, then one past that taken.
pub(crate) fn move_to_lost_found(
    dir: &File,
    name: &[u8],
    lost_found: &File,
    (after, number): (Lsn, &mut u32),
) -> Result<String, Errno> {
    while *number < u32::MAX {
        let to = format!("unknown-{after}-{number}");
        *number += 1;
        match dir.rename(name, lost_found, to.as_bytes(), Renaming::NoReplace) {
            Ok(()) => return Ok(to),
            Err(Errno::EEXIST) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::EEXIST)
}

impl Brick {
    /// Moves something that is not ours out of the way, into lost+found.
    pub(crate) fn quarantine(&mut self, parent: Fid, name: &[u8]) -> Result<(), Errno> {
        let dir = self.open_dir(parent)?;
        let to =
            move_to_lost_found(&dir, name, self.folders.lost_found(), (self.journal.last().lsn, &mut 0))?;
        let text = String::from_utf8_lossy(name);
        tracing::warn!(brick = %self.path.display(), dir = %parent, name = %text, to, "moved a file that does not belong to the volume to .mortar/limbo");
        self.listings.removed(parent, name);
        self.names.forget(parent, name);
        self.invalidate_attrs(parent);
        Ok(())
    }

    /// Moves what interrupted changes left in a directory out of it.
    pub(crate) fn quarantine_remains(&mut self, dir: Fid) -> Result<(), Errno> {
        let open = match self.open_dir(dir) {
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        let mut remains = Vec::new();
        let mut failed = Ok(());
        self.scan_dir(dir, &mut |name, _| match is_remains(&open, name) {
            Ok(true) => {
                remains.push(name.to_vec());
                false
            }
            Ok(false) => true,
            Err(e) => {
                failed = Err(e);
                true
            }
        })?;
        failed?;
        remains.iter().try_for_each(|name| self.quarantine(dir, name))
    }

    pub(crate) fn is_known(&mut self, fid: Fid) -> Result<bool, Errno> {
        match self.load(fid) {
            Ok(_) => Ok(true),
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The last directory of the path, its copies made as needed; `None` if there is no place for one.
    fn ancestors(&mut self, path: &[Ancestor], version: Version, time: Time) -> Result<Option<Fid>, Errno> {
        let mut at = self.identity.root;
        for (n, a) in path.iter().enumerate() {
            if !self.is_known(a.fid)? {
                let hidden = n == 0 && is_in_lost_found(a.fid, &a.name);
                if !hidden && !self.make_room(at, a.name.as_bytes())? {
                    return Ok(None);
                }
                let what = NewObject {
                    fid: a.fid,
                    home: a.home,
                    node: &Node::Dir,
                    mode: 0o755,
                    uid: 0,
                    gid: 0,
                    time,
                    flags: 0,
                    version,
                };
                if hidden {
                    self.make_in_lost_found(&what)?;
                } else {
                    self.create(at, a.name.as_bytes(), &what)?;
                }
            }
            at = a.fid;
        }
        Ok(Some(at))
    }

    /// Frees a name in a copied directory. False if the name cannot be had: the directory is this set's own (its entries
    /// come by their own changes only), or the name's holder is.
    pub(crate) fn make_room(&mut self, parent: Fid, name: &[u8]) -> Result<bool, Errno> {
        let own = self.identity.set;
        if self.load(parent)?.tag().home == own {
            return Ok(false);
        }
        match self.find(parent, name)? {
            At::Free => Ok(true),
            At::Unknown => self.quarantine(parent, name).map(|()| true),
            At::Entry(e) if e.home != self.identity.set => self.displace_from(parent, name, e.fid),
            // Two transactions about one name, of which at most one commits: which one is not known here. Both directories
            // stay until their transactions end, and the entry that decides it is kept.
            At::Entry(e) if e.is_dir() && self.load(e.fid)?.tag().flags & PENDING != 0 => {
                self.displace_from(parent, name, e.fid)
            }
            At::Entry(e) if !e.is_dir() => self.give_way(parent, name),
            At::Entry(_) => Ok(false),
        }
    }

    /// A directory that has a name in a copy waits in lost+found, also an empty copy: no change names it, so after a kill nobody
    /// would take a removed one out of the index. False if it is this set's, and there is no room beside it for the entry that leads
    /// to it: it stays.
    pub(crate) fn displace_from(&mut self, parent: Fid, name: &[u8], fid: Fid) -> Result<bool, Errno> {
        if !self.keep_entry(parent, name, fid)? {
            return Ok(false);
        }
        let dir = self.open_to_move(parent, &[fid])?;
        self.wait_in_lost_found((&dir, parent, name), fid)?;
        Ok(true)
    }

    /// [`wire::Change::PrepareMkdir`].
    pub(crate) fn place(
        &mut self,
        path: &[Ancestor],
        name: &Name,
        what: &NewObject<'_>,
    ) -> Result<(), Errno> {
        if self.is_known(what.fid)? {
            // It may have been made in lost+found, and a power cut have taken what was kept beside it.
            let hidden = self.location(what.fid).is_ok_and(|at| at.parent.is_none());
            return if hidden { self.keep_path(path, name, what.fid) } else { Ok(()) };
        }
        let hidden = path.is_empty() && is_in_lost_found(what.fid, name);
        if !hidden && let Some(parent) = self.ancestors(path, what.version, what.time)? {
            let held = matches!(self.find(parent, name.as_bytes())?, At::Entry(e) if e.fid == what.fid);
            if held || self.make_room(parent, name.as_bytes())? {
                self.create(parent, name.as_bytes(), what)?;
                let owner = path.last().map_or(self.identity.root_home, |above| above.home);
                self.keep_owner(what.fid, (parent, name), owner)?;
                return self.note_copy(parent, what);
            }
        }
        if !hidden {
            tracing::warn!(brick = %self.path.display(), fid = %what.fid, "a placed directory's path is taken: it lives in .mortar/limbo until it is moved");
        }
        self.make_in_lost_found(what)?;
        self.keep_path(path, name, what.fid)
    }

    fn note_copy(&mut self, parent: Fid, what: &NewObject<'_>) -> Result<(), Errno> {
        let e = crate::nodes::Effect { mtime: Some(what.time), ..Default::default() };
        self.touch(parent, what.version, e)
    }

    /// Makes a directory that has no place in the tree: it lives in lost+found, found by its fid.
    pub(crate) fn make_in_lost_found(&mut self, what: &NewObject<'_>) -> Result<(), Errno> {
        let name = hidden_name(what.fid);
        match self.folders.lost_found().make_dir(name.as_bytes(), what.mode) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(e) => return Err(e),
        }
        let open = open_at(self.folders.lost_found(), name.as_bytes(), S_IFDIR)?;
        self.finish_hidden(what, &open)
    }

    pub(crate) fn finish_hidden(&mut self, what: &NewObject<'_>, open: &OpenObject) -> Result<(), Errno> {
        open.chown(Some(what.uid), Some(what.gid))?;
        open.chmod(what.mode)?;
        open.set_times(Times { atime: what.time, mtime: what.time })?;
        open.set_tag(&what.tag())?;
        self.shared.fresh().made(what.fid, self.journal.last().lsn);
        self.index.put(what.fid, crate::index::Located { handle: open.handle()?, kind: open.kind });
        self.load(what.fid).map(|_| ())
    }

    /// The directory of this set at that place, if a transaction has marked it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn marked_at(&mut self, path: &[Ancestor], name: &Name) -> Result<Option<Fid>, Errno> {
        let parent = path.last().map_or(self.identity.root, |a| a.fid);
        if !self.is_known(parent)? {
            return Ok(None);
        }
        let At::Entry(e) = self.find(parent, name.as_bytes())? else { return Ok(None) };
        let marked =
            e.home == self.identity.set && e.is_dir() && self.load(e.fid)?.tag().flags & PENDING != 0;
        Ok(marked.then_some(e.fid))
    }

    /// Where a directory hangs, by its `..` and its inode number.
    pub(crate) fn location(&mut self, fid: Fid) -> Result<Location, Errno> {
        let open = self.open_dir(fid)?;
        let up = open_at(&open, b"..", S_IFDIR)?;
        let ino = open.stat()?.ino;
        let parent = up.tag()?.map(|t| t.fid);
        let fits = |n: &[u8]| up.stat_at(n).is_ok_and(|s| s.ino == ino && s.mode & S_IFMT == S_IFDIR);
        let mut name = open.name_hint().filter(|n| fits(n));
        if name.is_none() {
            up.list(&mut |n, _, i| {
                if i == ino {
                    name = Some(n.to_vec());
                }
                name.is_none()
            })?;
        }
        Ok(Location { dir: up.share(), parent, name: name.ok_or(Errno::ESTALE)? })
    }

    /// Whether a directory has that entry. A power cut may have kept a copy above it from the index, and the copy is made
    /// again: what hangs on the old one is not in the new one.
    pub(crate) fn is_there(&mut self, at: &Location, parent: Fid, name: &[u8]) -> Result<bool, Errno> {
        if at.parent != Some(parent) || at.name != name {
            return Ok(false);
        }
        Ok(at.dir.stat()?.ino == self.open_dir(parent)?.stat()?.ino)
    }

    /// Moves a directory that exists somewhere to its entry.
    pub(crate) fn move_copy(&mut self, fid: Fid, parent: Fid, name: &[u8]) -> Result<(), Errno> {
        let from = self.location(fid)?;
        if self.is_there(&from, parent, name)? {
            return Ok(());
        }
        let to = self.open_to_move(parent, &[fid])?;
        from.dir.rename(&from.name, &to, name, Renaming::Replace)?;
        if let Some(p) = from.parent {
            self.left(p, &from.name);
        }
        let home = self.load(fid)?.tag().home;
        self.invalidate_attrs(fid);
        self.moved_to(parent, name, Entry { fid, home, kind: S_IFDIR });
        Ok(())
    }

    /// A copy comes to its entry, which may lie in a directory that hangs beneath the copy and does not belong there.
    pub(crate) fn bring_copy(&mut self, fid: Fid, parent: Fid, name: &[u8]) -> Result<(), Errno> {
        match self.move_copy(fid, parent, name) {
            Err(Errno::EINVAL) if self.disentangle(parent, fid)? => self.move_copy(fid, parent, name),
            other => other,
        }
    }

    /// [`wire::Change::EndTransaction`] of a directory that shall not be.
    pub(crate) fn remove_prepared(&mut self, fid: Fid) -> Result<(), Errno> {
        if !self.is_known(fid)? {
            return Ok(());
        }
        let at = self.location(fid)?;
        match at.parent {
            Some(parent) => self.remove_dir(parent, &at.name, fid),
            None => {
                at.dir.remove_dir(&at.name)?;
                self.forget(fid);
                Ok(())
            }
        }
    }

    /// Whether a directory lies in one of this set's own, and not on a copy or in lost+found.
    pub(crate) fn is_own_entry(&mut self, fid: Fid) -> Result<bool, Errno> {
        let at = self.location(fid)?;
        self.is_entry_at(&at)
    }

    /// Whether what lies there is an entry of this set.
    pub(crate) fn is_entry_at(&mut self, at: &Location) -> Result<bool, Errno> {
        at.parent.map_or(Ok(false), |above| self.is_own_dir(above))
    }

    /// Whether this set answers for the directory's entries.
    pub(crate) fn is_own_dir(&mut self, dir: Fid) -> Result<bool, Errno> {
        let (own, root) = (self.identity.set, self.identity.root);
        let home = if dir == root { self.identity.root_home } else { self.load(dir)?.tag().home };
        Ok(home == own)
    }
}
