//! Where the names lie that files of this set have in directories of other sets (docs/design/0016).
//!
//! A folder in lost+found stands for each such directory. The folder is the object: it has the tag and the times, is compared
//! and listed. Each of its names lies in the copy of the directory that this brick has at its path, if there is one and the
//! name is free there, and else in the folder itself. Which of the two is this brick's alone: whoever looks for a name looks
//! in both, so a path that is out of date, or a copy that is missing, is no error.

use crate::folders::hidden_name;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, tag_at, tag_of};
use crate::open::{Brick, Site};
use crate::tree::At;
use file_system::{File, Renaming, Times};
use ids::{Fid, SetId};
use std::collections::BTreeSet;
use std::sync::Arc;
use wire::Errno;
use wire::name::RESERVED;

/// Names that one change brings from a folder to its directory's copy, at most.
const AT_ONCE: usize = 256;
/// Folders of which it is known that more names wait, at most.
const UNPLACED: usize = 4096;
/// Folders whose names come to their copies after one sync, at most.
const AFTER_A_SYNC: usize = 16;

/// Folders of which names are still to come to the copies of their directories.
#[derive(Debug, Default)]
pub(crate) struct UnplacedNames {
    /// Some came, and more wait.
    more: BTreeSet<Fid>,
    /// They got names before those copies were on disk here.
    waiting: BTreeSet<Fid>,
}

impl UnplacedNames {
    /// Whether names of the folder came since this was asked last, and more wait.
    pub(crate) fn take_more(&mut self, folder: Fid) -> bool {
        self.more.remove(&folder)
    }
}

/// Whether a name in a copy of another set's directory is one that a file of this set has.
pub(crate) fn is_far_name(copy: &File, name: &[u8], own: SetId) -> Result<bool, Errno> {
    match tag_at(copy, name) {
        Ok(tag) => Ok(tag.is_some_and(|tag| tag.home == own) && !is_dir(copy, name)?),
        Err(Errno::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

fn is_dir(dir: &File, name: &[u8]) -> Result<bool, Errno> {
    Ok(dir.stat_at(name)?.mode & S_IFMT == S_IFDIR)
}

fn is_free(dir: &File, name: &[u8]) -> Result<bool, Errno> {
    match dir.stat_at(name) {
        Ok(_) => Ok(false),
        Err(Errno::ENOENT) => Ok(true),
        Err(e) => Err(e),
    }
}

/// Goes over what may be names of files in a copy, until `each` answers false.
pub(crate) fn each_candidate(
    copy: &File,
    root: bool,
    each: &mut dyn FnMut(&[u8], u32) -> bool,
) -> Result<(), Errno> {
    copy.list(&mut |name, kind, _| kind == S_IFDIR || (root && name == RESERVED) || each(name, kind))
}

/// The names that files of this set have in a copy.
pub(crate) fn far_names(copy: &File, root: bool, own: SetId) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    each_candidate(copy, root, &mut |name, _| {
        names.push(name.to_vec());
        true
    })?;
    let mut found = Vec::new();
    for name in names {
        if is_far_name(copy, &name, own)? {
            found.push(name);
        }
    }
    Ok(found)
}

/// Whether files of this set have names there.
fn holds_names(dir: &File, root: bool, own: SetId) -> Result<bool, Errno> {
    let mut found = Ok(false);
    each_candidate(dir, root, &mut |name, _| {
        found = is_far_name(dir, name, own);
        found == Ok(false)
    })?;
    found
}

/// Puts a name back from a copy into the folder of names. False if the folder has that name already, for another file.
fn put_back(copy: &File, name: &[u8], folder: &File) -> Result<bool, Errno> {
    match copy.rename(name, folder, name, Renaming::NoReplace) {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) if copy.handle_at(name)? == folder.handle_at(name)? => {
            copy.unlink(name).map(|()| true)
        }
        Err(Errno::EEXIST) => Ok(false),
        Err(e) => Err(e),
    }
}

/// What puts names back that lie in a copy which is about to go. Runs on any thread.
pub(crate) struct PutBack {
    pub(crate) own: SetId,
    pub(crate) lost_found: Arc<File>,
}

impl PutBack {
    /// The same of all copies beneath a directory.
    pub(crate) fn beneath(&self, dir: &File) -> Result<(), Errno> {
        if let Some(tag) = tag_of(dir)?.filter(|tag| tag.home != self.own) {
            self.all(dir, tag.fid)?;
        }
        for name in crate::scan::names(dir)? {
            if is_dir(dir, &name)? {
                self.beneath(&dir.open_at(&name, S_IFDIR)?)?;
            }
        }
        Ok(())
    }

    /// Puts all names in a copy back into their folder, if that is there: without it they are nobody's.
    pub(crate) fn all(&self, copy: &File, of: Fid) -> Result<(), Errno> {
        let names = far_names(copy, of.is_root(), self.own)?;
        if names.is_empty() {
            return Ok(());
        }
        let folder = match self.lost_found.open_at(hidden_name(of.names()).as_bytes(), S_IFDIR) {
            Err(Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        let before = folder.stat()?.mtime;
        names.iter().try_for_each(|name| put_back(copy, name, &folder).map(drop))?;
        folder.set_times(Times { atime: before, mtime: before })
    }
}

/// After a power cut: whether something of the folder of names for a directory of another set may be stale here. `changed`: the
/// copy of the directory has changed.
///
/// The folder and names in the copy do not get to disk together. Without the folder nobody would know of the names: it is made,
/// and its name says who it is.
pub(crate) fn may_be_stale(
    root: &File,
    copy: &File,
    (of, own): (Fid, SetId),
    changed: bool,
) -> Result<bool, Errno> {
    let lost_found = root.open_at(RESERVED, S_IFDIR)?.open_at(b"limbo", S_IFDIR)?;
    let folder = hidden_name(of.names());
    match lost_found.stat_at(folder.as_bytes()) {
        Ok(_) => Ok(changed),
        Err(Errno::ENOENT) if holds_names(copy, of.is_root(), own)? => {
            lost_found.make_dir(folder.as_bytes(), 0o700).map(|()| true)
        }
        Err(Errno::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Puts the names back that lie in a copy of another set's directory, beneath something that lost its tag: it is looked into
/// no more. Whether there were any. A folder that is gone with its tag is made: its name says who it is.
pub(crate) fn bring_names_out(at: &Site, copy: &File, (of, own): (Fid, SetId)) -> Result<bool, Errno> {
    let names = far_names(copy, of.is_root(), own)?;
    if names.is_empty() {
        return Ok(false);
    }
    let (lost_found, folder) = (at.meta.open_at(b"limbo", S_IFDIR)?, hidden_name(of.names()));
    match lost_found.make_dir(folder.as_bytes(), 0o700) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(e) => return Err(e),
    }
    PutBack { own, lost_found: Arc::new(lost_found) }.all(copy, of).map(|()| true)
}

impl Brick {
    /// The copy of the directory that a folder of names is for, if this brick has one.
    pub(crate) fn copy_of_folder(&mut self, folder: Fid) -> Result<Option<OpenObject>, Errno> {
        let dir = folder.without_names();
        if !folder.is_names() || !self.is_known(dir)? || self.is_own_dir(dir)? {
            return Ok(None);
        }
        self.open_dir(dir).map(Some)
    }

    /// Whether names may come into a copy: not before its tag is on disk. A power cut that took it would leave them in
    /// something of which nobody knows what it is.
    fn takes_names(&self, copy: Fid) -> bool {
        copy == self.identity.root || !self.shared.fresh().may_be_fresh(copy)
    }

    /// The directory in which a name lies, or is to come to lie.
    pub(crate) fn dir_of_name(&mut self, parent: Fid, name: &[u8]) -> Result<OpenObject, Errno> {
        let dir = self.open_dir(parent)?;
        let Some(copy) = self.copy_of_folder(parent)? else { return Ok(dir) };
        if is_far_name(&copy, name, self.identity.set)? {
            return Ok(copy);
        }
        let reserved = name == RESERVED && parent.without_names() == self.identity.root;
        if reserved || !is_free(&copy, name)? || !is_free(&dir, name)? {
            return Ok(dir);
        }
        if self.takes_names(parent.without_names()) {
            return Ok(copy);
        }
        if self.unplaced.waiting.len() < UNPLACED {
            self.unplaced.waiting.insert(parent);
        }
        Ok(dir)
    }

    /// After a sync: names come to the copies that are on disk now. Bricks sync at times of their own, so another brick, the
    /// primary too, may have had its copy on disk before and put the names there at once; nobody tells this brick then.
    ///
    /// What fails has the disk say so elsewhere, and is not tried again here.
    pub(crate) fn settle_waiting(&mut self) {
        let fresh = |fid: Fid| self.shared.fresh().may_be_fresh(fid.without_names());
        let waiting = self.unplaced.waiting.iter().copied();
        let ready: Vec<Fid> = waiting.filter(|fid| !fresh(*fid)).take(AFTER_A_SYNC).collect();
        for folder in ready {
            self.unplaced.waiting.remove(&folder);
            let placed = match self.is_known(folder) {
                Ok(true) => self.settle_names(folder),
                other => other.map(drop),
            };
            if let Err(e) = placed {
                tracing::debug!(brick = %self.path.display(), %folder, error = %e, "names stay in their folder");
            }
        }
    }

    /// Whether files of this set have names in the copy of the folder's directory.
    pub(crate) fn has_names_in_copy(&mut self, folder: Fid) -> Result<bool, Errno> {
        let Some(copy) = self.copy_of_folder(folder)? else { return Ok(false) };
        let root = folder.without_names() == self.identity.root;
        holds_names(&copy, root, self.identity.set)
    }

    /// A name of this set's file is in the way of something else in a copy: it goes back to its folder. False if there is no
    /// such folder.
    pub(crate) fn give_way(&mut self, copy: Fid, name: &[u8]) -> Result<bool, Errno> {
        if !self.is_known(copy.names())? {
            return Ok(false);
        }
        let (dir, folder) = (self.open_dir(copy)?, self.open_dir(copy.names())?);
        self.keep_times(copy.names())?;
        let gone = put_back(&dir, name, &folder)?;
        self.keep_times(copy.names())?;
        self.names.forget(copy, name);
        Ok(gone)
    }

    /// Names that wait in the folder come into the copy, some of them at a time.
    pub(crate) fn settle_names(&mut self, folder: Fid) -> Result<(), Errno> {
        let of = folder.without_names();
        let Some(copy) = self.copy_of_folder(folder)?.filter(|_| self.takes_names(of)) else { return Ok(()) };
        self.keep_times(folder)?;
        let (dir, own) = (self.open_dir(folder)?, self.identity.set);
        let mut moved = 0;
        for name in far_names(&dir, false, own)? {
            if moved >= AT_ONCE {
                if self.unplaced.more.len() < UNPLACED {
                    self.unplaced.more.insert(folder);
                }
                break;
            }
            let mut came = dir.rename(&name, &copy, &name, Renaming::NoReplace);
            if came == Err(Errno::EEXIST) && self.clear_of_copy(of, &name)? {
                came = dir.rename(&name, &copy, &name, Renaming::NoReplace);
            }
            match came {
                Ok(()) => moved += 1,
                Err(Errno::EEXIST | Errno::ENOSPC | Errno::EDQUOT) => {}
                Err(e) => return Err(e),
            }
            self.names.forget(of, &name);
        }
        self.keep_times(folder)
    }

    /// A name in a copy is a file's now. A directory that has it is at an old path, or its entry is lost: it waits in lost+found. So
    /// does what is nobody's, as half of a file that a kill has left. Whether the name is free then.
    fn clear_of_copy(&mut self, copy: Fid, name: &[u8]) -> Result<bool, Errno> {
        match self.find(copy, name)? {
            At::Entry(e) if e.is_dir() => self.displace_from(copy, name, e.fid),
            At::Unknown => self.quarantine(copy, name).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Whether names wait in a folder that are to lie in the copy of its directory, or that copy is missing.
    pub(crate) fn names_wait(&mut self, folder: Fid) -> Result<bool, Errno> {
        let dir = self.open_dir(folder)?;
        Ok(holds_names(&dir, false, self.identity.set)? || self.copy_of_folder(folder)?.is_none())
    }

    /// All names of a folder are in it.
    pub(crate) fn gather_names(&mut self, folder: Fid) -> Result<(), Errno> {
        let Some(copy) = self.copy_of_folder(folder)? else { return Ok(()) };
        let (own, of) = (self.identity.set, folder.without_names());
        let names = far_names(&copy, of.is_root(), own)?;
        if names.is_empty() || !self.is_known(folder)? {
            return Ok(());
        }
        self.keep_times(folder)?;
        let dir = self.open_dir(folder)?;
        for name in names {
            put_back(&copy, &name, &dir)?;
            self.names.forget(of, &name);
        }
        self.keep_times(folder)
    }

    /// A folder of names has gone: the copy of its directory goes, if nothing hangs on it. Those above it stay: whoever recovers
    /// from a kill knows only this one.
    pub(crate) fn drop_unused_copy(&mut self, folder: Fid) -> Result<(), Errno> {
        let copy = folder.without_names();
        if copy == self.identity.root || self.copy_of_folder(folder)?.is_none() {
            return Ok(());
        }
        let from = self.location(copy)?;
        // In a directory of this set it is an entry.
        if self.is_entry_at(&from)? {
            return Ok(());
        }
        match from.dir.remove_dir(&from.name) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => return Ok(()),
            other => other?,
        }
        self.forget(copy);
        if let Some(parent) = from.parent {
            self.left(parent, &from.name);
        }
        Ok(())
    }
}
