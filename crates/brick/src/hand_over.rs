//! Directories that change the set which answers for them (docs/design/0018).
//!
//! The set that is to answer makes the directory its own, marked, with all that is in it. The other set makes its own a copy.
//! Nothing but tags says whose a directory is, so each of the two is on disk before anything follows from it: the mark before the
//! tag that makes a directory this set's, and the tag that makes it another one's before what only an own one has is removed.

use crate::far_entry::{intent, write_kept};
use crate::making::NewObject;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, tag_at};
use crate::open::Brick;
use crate::scan::names;
use crate::tree::At;
use disk_format::Tag;
use disk_format::tag::{INTENT, PENDING, Version, encode_intent};
use file_system::{Renaming, Times};
use ids::{Fid, SetId, Time};
use namespace::Entry;
use wire::op::{Ancestor, EntryName, HandedDir, HandedEntry, Node, TAKEN, Taken};
use wire::{Change, Errno, Name};

/// Removes those extended attributes that users see.
fn remove_xattrs(of: &OpenObject, goes: impl Fn(&[u8]) -> bool) -> Result<(), Errno> {
    for name in of.xattrs()?.iter().filter(|name| goes(name)) {
        match of.remove_xattr(name) {
            // A label that the host gives to everything, and takes from nothing.
            Err(Errno::EACCES | Errno::EPERM) if name.starts_with(b"security.") => {}
            other => other?,
        }
    }
    Ok(())
}

impl Brick {
    /// [`Change::TakeDir`].
    pub(crate) fn take_dir(&mut self, change: &Change, version: Version) -> Result<(), Errno> {
        let Change::TakeDir { fid, tx, from, path, name, dir } = change else { return Err(Errno::EINVAL) };
        let (fid, taken) = (*fid, Taken { tx: *tx, from: *from });
        self.have_copy_to_take(fid, taken.from, (path, name), dir, version)?;
        self.own_taken(fid, &taken, (path, name), dir)?;
        for entry in &dir.entries {
            self.take_handed(fid, entry, (version, dir.ctime))?;
        }
        self.drop_folder_of_names(fid.names())
    }

    /// There is a copy of the directory here, and in it only names of files that it is to have.
    fn have_copy_to_take(
        &mut self,
        fid: Fid,
        from: SetId,
        (path, name): (&[Ancestor], &Name),
        dir: &HandedDir,
        version: Version,
    ) -> Result<(), Errno> {
        let own = self.identity.set;
        if !self.is_known(fid)? {
            let (home, node, time, flags) = (from, &Node::Dir, dir.mtime, 0);
            let HandedDir { mode, uid, gid, .. } = *dir;
            return self.place(
                path,
                name,
                &NewObject { fid, home, node, mode, uid, gid, time, flags, version },
            );
        }
        if self.load(fid)?.tag().home == own {
            return Ok(());
        }
        let stays = |e: &Entry, name: &[u8]| {
            let same =
                |held: &HandedEntry| held.name.as_bytes() == name && held.fid == e.fid && held.home == own;
            e.home == own && dir.entries.iter().any(same)
        };
        for name in names(&*self.open_dir(fid)?)? {
            match self.find(fid, &name)? {
                At::Entry(e) if e.is_dir() => {
                    if !self.displace_from(fid, &name, e.fid)? {
                        return Err(Errno::ENOSPC);
                    }
                }
                At::Entry(e) if stays(&e, &name) => {}
                At::Entry(e) if e.home == own && self.give_way(fid, &name)? => {}
                At::Entry(_) | At::Unknown => self.quarantine(fid, &name)?,
                At::Free => {}
            }
        }
        Ok(())
    }

    /// The copy is this set's own directory from now on, marked.
    fn own_taken(
        &mut self,
        fid: Fid,
        taken: &Taken,
        (path, name): (&[Ancestor], &Name),
        dir: &HandedDir,
    ) -> Result<(), Errno> {
        let open = self.open_dir(fid)?;
        let above = path.last().map_or(self.identity.root, |above| above.fid);
        if !write_kept(&open, &encode_intent(&intent(taken.from, above, name)), (&self.path, fid))? {
            return Err(Errno::ENOSPC);
        }
        open.set_xattr(TAKEN.as_bytes(), &taken.encode())?;
        // Without it the mark would be that of a directory whose entry was just made, and the set with the entry would say so.
        self.synced(open.sync())?;
        open.chown(Some(dir.uid), Some(dir.gid))?;
        // What the directory had here in an earlier time may be gone since.
        remove_xattrs(&open, |there| !dir.xattrs.iter().any(|(name, _)| name.as_bytes() == there))?;
        for (name, value) in &dir.xattrs {
            open.set_xattr(name.as_bytes(), &value.0)?;
        }
        // An access list moves the mode.
        open.chmod(dir.mode)?;
        let (flags, home, ctime, atime) = (PENDING, self.identity.set, dir.ctime, dir.atime);
        // What the change does to times and version is noted at its end.
        let version = Version::default();
        open.set_times(Times { atime, mtime: dir.mtime })?;
        open.set_tag(&Tag { flags, fid, home, version, ctime, atime })?;
        self.synced(open.sync())?;
        self.forget_whose(fid);
        Ok(())
    }

    /// The directory has this entry.
    fn take_handed(&mut self, fid: Fid, entry: &HandedEntry, at: (Version, Time)) -> Result<(), Errno> {
        let name = entry.name.as_bytes();
        match self.find(fid, name)? {
            At::Entry(e) if e.fid == entry.fid => return Ok(()),
            At::Free => {}
            At::Unknown => self.quarantine(fid, name)?,
            other @ At::Entry(_) => return self.diverged(fid, name, other),
        }
        let (dir, known, folder) = (self.open_dir(fid)?, self.is_known(entry.fid)?, fid.names());
        let waiting = EntryName { dir: folder, name: entry.name.clone() };
        if entry.home != self.identity.set && !known {
            return self.make_stub(fid, name, (entry.fid, entry.home, entry.kind), at);
        }
        if entry.home == self.identity.set && self.is_known(folder)? && self.leads_to(&waiting, entry.fid)? {
            self.open_dir(folder)?.rename(name, &dir, name, Renaming::NoReplace)?;
            self.file_left(folder, name);
        } else if known && !self.is_orphan(entry.fid) {
            self.open_fid(entry.fid)?.link(&dir, name)?;
        } else {
            // A power cut has taken the file.
            return Ok(());
        }
        self.invalidate_attrs(entry.fid);
        self.entered(fid, name, Entry { fid: entry.fid, home: entry.home, kind: entry.kind });
        Ok(())
    }

    /// [`Change::GiveDir`]. Names of this set's files stay where they lie, and are names in another set's directory from now on.
    pub(crate) fn give_dir(&mut self, fid: Fid, to: SetId, at: (Version, Time)) -> Result<(), Errno> {
        if !self.is_known(fid)? {
            return self.diverged(fid, b"", At::Free);
        }
        let (open, own) = (self.open_dir(fid)?, self.identity.set);
        if self.load(fid)?.tag().home == own {
            self.progress.begins_later();
            self.have_folder_of_names(fid.names(), at)?;
            let tag = Tag { flags: 0, home: to, version: Version::default(), ..*self.load(fid)?.tag() };
            if let Err(e) = self.say_whose(fid, &open, &tag) {
                self.drop_folder_of_names(fid.names())?;
                return Err(e);
            }
            self.progress.begins();
        }
        open.remove_xattr(TAKEN.as_bytes())?;
        open.remove_xattr(INTENT.as_bytes())?;
        self.strip_given(fid)?;
        self.drop_folder_of_names(fid.names())
    }

    /// The tag of a directory says which set answers for it, on disk. If that fails it says what it said before, as this process
    /// does: else the next one would take the directory for given away.
    fn say_whose(&mut self, fid: Fid, open: &OpenObject, tag: &Tag) -> Result<(), Errno> {
        let before = open.tag()?.ok_or(Errno::EIO)?;
        let said = open.set_tag(tag).and_then(|()| self.synced(open.sync()));
        if said.is_err() && open.set_tag(&before).is_ok() {
            return said;
        }
        self.progress.begins();
        self.forget_whose(fid);
        said
    }

    /// What is in memory of a directory, and goes by whose it was.
    pub(crate) fn forget_whose(&mut self, fid: Fid) {
        self.nodes.remove(fid);
        self.names.clear();
        self.listings.forget(fid);
        self.listings.forget(fid.names());
    }

    /// A directory has become a copy: it has no stubs, and no name of this set's file that its folder of names has as well. Nor has
    /// it extended attributes: what is made in a directory inherits its access list.
    pub(crate) fn strip_given(&mut self, fid: Fid) -> Result<(), Errno> {
        let (dir, own, folder) = (self.open_dir(fid)?, self.identity.set, fid.names());
        if !fid.is_root() {
            remove_xattrs(&dir, |_| true)?;
        }
        let folder = if self.is_known(folder)? { Some(self.open_dir(folder)?) } else { None };
        for name in names(&dir)? {
            let tag = match tag_at(&dir, &name) {
                Err(Errno::ENOENT) => None,
                other => other?,
            };
            let Some(tag) = tag.filter(|_| dir.stat_at(&name).is_ok_and(|s| s.mode & S_IFMT != S_IFDIR))
            else {
                continue;
            };
            if tag.stub_kind().is_some() && tag.home != own {
                dir.unlink(&name)?;
                self.forget_if_gone(tag.fid)?;
                self.names.forget(fid, &name);
            } else if let Some(folder) = &folder
                && folder.handle_at(&name).is_ok_and(|there| dir.handle_at(&name) == Ok(there))
            {
                dir.unlink(&name)?;
                self.invalidate_attrs(tag.fid);
            }
        }
        Ok(())
    }

    /// After a power cut: what these copies had when they were this set's goes. Some of it may have come back.
    pub(crate) fn strip_copies(&mut self, copies: &[Fid]) -> Result<(), Errno> {
        for fid in copies {
            let own = self.identity.set;
            if self.is_known(*fid)? && self.load(*fid)?.tag().home != own {
                self.strip_given(*fid)?;
            }
        }
        Ok(())
    }

    /// A healing finds that a directory that is this set's here, or was to be, is a copy of that set's where the primary is.
    pub(crate) fn become_copy(&mut self, fid: Fid, home: SetId) -> Result<(), Errno> {
        let tag = Tag { flags: 0, home, version: Version::default(), ..*self.load(fid)?.tag() };
        let open = self.open_dir(fid)?;
        open.set_tag(&tag)?;
        open.remove_xattr(INTENT.as_bytes())?;
        self.forget_whose(fid);
        self.leave_to_others(fid)
    }

    /// A healing has made a directory of this set a copy of another set's. Names of this set's files come into it again with the
    /// comparison of its folder of names, those that the other brick has. Directories come where that brick has them with their own
    /// healing: nobody compares what is in a copy, so those that it does not have would stay.
    pub(crate) fn leave_to_others(&mut self, fid: Fid) -> Result<(), Errno> {
        let open = self.open_dir(fid)?;
        open.remove_xattr(TAKEN.as_bytes())?;
        self.strip_given(fid)?;
        for name in names(&open)? {
            if let At::Entry(e) = self.find(fid, &name)? {
                self.move_to_trash(fid, &name, e.fid)?;
            }
        }
        Ok(())
    }

    /// [`Change::EndTransaction`] of what stays: a directory that was marked to be this set's is that.
    pub(crate) fn end_taken(&mut self, fid: Fid) -> Result<(), Errno> {
        let open = self.loaded(fid)?;
        if open.is_dir() { open.remove_xattr(TAKEN.as_bytes()) } else { Ok(()) }
    }

    /// A directory of this set comes beneath a copy that says which set had it when the copy was made. If that is not the one that
    /// has the entry of the directory, what is beside it says so.
    pub(crate) fn keep_owner(
        &mut self,
        fid: Fid,
        (parent, name): (Fid, &Name),
        owner: SetId,
    ) -> Result<(), Errno> {
        let own = self.identity.set;
        let above = if parent == self.identity.root {
            self.identity.root_home
        } else {
            self.load(parent)?.tag().home
        };
        let is_told = above == owner || above == own || self.kept_elsewhere(fid, above)?.is_some();
        if is_told || self.load(fid)?.tag().home != own || !self.open_fid(fid)?.is_dir() {
            return Ok(());
        }
        let kept = encode_intent(&intent(owner, parent, name));
        let open = self.open_fid(fid)?;
        if write_kept(&open, &kept, (&self.path, fid))? {
            self.synced(open.sync())
        } else {
            Err(Errno::ENOSPC)
        }
    }

    /// By what a directory of this set is marked that is not certain to be.
    pub(crate) fn taken_by(&mut self, fid: Fid) -> Result<Option<Taken>, Errno> {
        let tag = *self.load(fid)?.tag();
        if tag.flags & PENDING == 0 || tag.home != self.identity.set {
            return Ok(None);
        }
        let open = self.open_fid(fid)?;
        if open.is_dir() { open.taken() } else { Ok(None) }
    }
}
