//! Healing on a brick: its beginning and its end, and objects that are made equal to another brick's. Directories' entries
//! are in `heal_entries`, places of directories in `heal_place`; what this brick tells another one is in `describe`.

use crate::folders::hidden_name;
use crate::making::NewObject;
use crate::marks::is_marked;
use crate::object::{OpenObject, S_IFLNK};
use crate::open::Brick;
use crate::stale::StaleSet;
use disk_format::tag::{INTENT, ORPHAN, PENDING, Tag, Version};
use file_system::{File, Times};
use ids::{Fid, Lsn, OpId};
use wire::op::Node as Kind;
use wire::peer::{Object, Stamp, TARGET};
use wire::{Change, Errno};

impl Brick {
    /// What a healing that was not finished left stale.
    pub fn stale_set(&self) -> Option<&StaleSet> {
        self.stale.set()
    }

    /// From now on changes may be journaled without being applied, and the journal may be cut: `objects` are those that the
    /// changes to be cut off touched, `versions_valid_to` is how far versions say what is in objects. Adds to what is stale
    /// already.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin_heal(&mut self, from: Lsn, objects: &[Fid], versions_valid_to: Lsn) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), %from, ?objects, %versions_valid_to, before = ?self.stale.set(), "stale");
        self.flush_attrs()?;
        self.read_pages.forget();
        self.stale.widen(from, objects, versions_valid_to)
    }

    /// Journals a change that is not applied: what it touches is healed.
    ///
    /// # Errors
    /// The kernel's; `EIO` if the stamp does not follow.
    pub fn note(
        &mut self,
        stamp: &Stamp,
        op: OpId,
        result_fid: Option<Fid>,
        change: &Change,
    ) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), lsn = %stamp.lsn, ?change, "left to healing");
        if self.journal.append(stamp, op, 0, result_fid, change)? {
            self.bound_journal();
        }
        Ok(())
    }

    /// Everything is healed and on disk: the mark goes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end_heal(&mut self) -> Result<(), Errno> {
        // No opening looks for them any more.
        self.store_new_marks()?;
        self.stale.remove()?;
        // What lay beneath a directory that was moved to the heal trash is gone too: nothing of it is to be found in
        // memory.
        self.flush_attrs()?;
        self.nodes.clear();
        self.fds.clear();
        Ok(())
    }

    /// Gives an object the attributes that another brick has, and all its data if that is given. As long as data is to
    /// follow it has no version: [`Brick::complete`] gives it one. False if there is no such object here.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_object(
        &mut self,
        fid: Fid,
        object: &Object,
        data: Option<&[u8]>,
        complete: bool,
    ) -> Result<bool, Errno> {
        tracing::debug!(%fid, size = object.attr.size, mtime = ?object.attr.mtime, version = ?object.version, complete, "an object is healed");
        if !self.have(fid, object)? {
            return Ok(false);
        }
        let (node, now) = self.fresh(fid)?;
        let before = node.tag().home;
        // What the file says itself: a mark that has ended is there until its end is on disk.
        let written = (!node.is_dirty()).then(|| (node.tag_on_disk(Lsn(0)), node.mtime()));
        let open = self.open_fid(fid)?;
        let attr = &object.attr;
        if open.is_dir() && before == self.identity.set && before != attr.home {
            // What was kept beside it means nothing beside a copy, which may be marked by now.
            open.remove_xattr(INTENT.as_bytes())?;
        }
        let resized = open.is_file() && now.size != attr.size;
        if resized {
            open.truncate(attr.size)?;
        }
        if let Some(data) = data {
            open.write_all(0, data)?;
        }
        let chown = (now.uid, now.gid) != (attr.uid, attr.gid);
        if chown {
            open.chown(Some(attr.uid), Some(attr.gid))?;
        }
        let other_xattrs = take_xattrs(&open, object)?;
        // An access list among the xattrs moves the mode.
        let moved = chown || !object.xattrs.is_empty() || (now.mode ^ attr.mode) & 0o7777 != 0;
        if open.kind != S_IFLNK && moved {
            open.chmod(attr.mode & 0o7777)?;
        }
        let version = if complete { Version::from(&object.version) } else { Version::default() };
        let tag =
            Tag { flags: object.flags, fid, home: attr.home, version, ctime: attr.ctime, atime: attr.atime };
        if is_marked(&tag) {
            self.marks.meet(fid);
        }
        // In a comparison most objects are right, and each write waits for the file system's journal.
        let touched = resized || data.is_some() || moved || other_xattrs;
        if open.is_dir() && before == attr.home && before != self.identity.set {
            // The change by which it left this set may have been done in part.
            self.strip_given(fid)?;
        }
        if !touched && written == Some((tag, attr.mtime)) {
            return Ok(true);
        }
        open.set_times(Times { atime: attr.atime, mtime: attr.mtime })?;
        open.set_tag(&tag)?;
        self.nodes.remove(fid);
        if open.is_dir() && before != attr.home {
            // The directory has changed its set.
            self.forget_whose(fid);
            if before == self.identity.set {
                self.leave_to_others(fid)?;
            }
        }
        Ok(true)
    }

    /// All data of an object is there that was to follow [`Brick::take_object`]: it has this version, or that of a later
    /// change.
    ///
    /// # Errors
    /// The kernel's.
    pub fn complete(&mut self, fid: Fid, version: &Stamp) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), %fid, version = %version.lsn, "all data of an object is here");
        let version = Version::from(version);
        let node = match self.load(fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        if node.tag().version < version {
            node.set_version(version);
            self.keep_times(fid)?;
        }
        Ok(())
    }

    /// The other brick has no mark on what is here of another set's directory: the transaction was over before this brick came back. The
    /// directory may have an entry of this set again by and by, and would lose that when the mark's end is asked for. So the mark goes,
    /// and is gone after a power cut.
    fn end_old_mark(&mut self, fid: Fid, tag: &Tag) -> Result<(), Errno> {
        if !is_marked(tag) {
            return Ok(());
        }
        let open = self.open_dir(fid)?;
        open.set_tag(&Tag { flags: tag.flags & !PENDING, ..*tag })?;
        self.synced(open.sync())?;
        self.forget_whose(fid);
        Ok(())
    }

    /// The other brick has no such object. What no directory's comparison clears away goes here: directories that hang on
    /// other sets' directories, and files without a name. Whether it is in its place still.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_nothing(&mut self, fid: Fid) -> Result<bool, Errno> {
        tracing::debug!(brick = %self.path.display(), %fid, "the primary has no such object");
        if fid.is_root() || !self.is_known(fid)? {
            return Ok(false);
        }
        let own = self.identity.set;
        let tag = *self.load(fid)?.tag();
        if tag.home != own {
            if !fid.is_names() && self.open_fid(fid)?.is_dir() {
                // A power cut may have brought back what it had when it was this set's.
                self.strip_given(fid)?;
                self.end_old_mark(fid, &tag)?;
            }
            return Ok(true);
        }
        if let Some(taken) = self.taken_by(fid)? {
            // The set was to answer for it, and does not: the primary has a copy at most.
            self.become_copy(fid, taken.from)?;
            self.drop_unused_copy(fid.names())?;
            return self.is_known(fid);
        }
        // After a power cut a file may have lost its name, and its tag not say so yet.
        let dir = self.open_fid(fid)?.is_dir();
        if !dir && self.folders.orphans().stat_at(hidden_name(fid).as_bytes()).is_ok() {
            self.hide(&self.folders.orphans().share(), hidden_name(fid).as_bytes(), fid)?;
            return Ok(false);
        }
        if !dir {
            return Ok(!self.folders.heal_trash().holds(fid)?);
        }
        let at = self.location(fid)?;
        match at.parent {
            None => self.hide(&at.dir, &at.name, fid)?,
            // It goes with the directory that it lies in, which was moved to the heal trash already.
            Some(parent) if !self.is_known(parent)? => return Ok(true),
            Some(parent) if self.load(parent)?.tag().home != own => {
                self.keep_times(parent)?;
                self.move_to_trash(parent, &at.name, fid)?;
            }
            Some(_) => return Ok(true),
        }
        Ok(false)
    }

    /// Moves something to the heal trash that is in one of Mortar's own folders.
    fn hide(&mut self, dir: &File, name: &[u8], fid: Fid) -> Result<(), Errno> {
        self.gather_names(fid)?;
        match self.folders.heal_trash().receive_again(dir, name, fid) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.forget(fid);
        if fid.is_names() {
            // A folder of names that is made again has the fid that it had, and not what was in it.
            self.names.clear();
            self.drop_unused_copy(fid)?;
        }
        Ok(())
    }

    /// Sees to it that the object exists here, as far as that needs no directory's comparison.
    fn have(&mut self, fid: Fid, object: &Object) -> Result<bool, Errno> {
        let known = self.is_known(fid)?;
        if object.flags & ORPHAN != 0 {
            return self.have_orphan(fid, known, object);
        }
        if !object.attr.is_dir() {
            return if known { self.leave_orphans(fid).map(|()| true) } else { Ok(false) };
        }
        let Some((path, name)) = &object.place else { return Ok(known) };
        let new_object = self.new_object(fid, object.attr.home, &Kind::Dir, object);
        self.take_place(path, name, &new_object)?;
        Ok(true)
    }

    pub(crate) fn new_object<'a>(
        &self,
        fid: Fid,
        home: ids::SetId,
        node: &'a Kind,
        object: &Object,
    ) -> NewObject<'a> {
        NewObject {
            fid,
            home,
            node,
            mode: object.attr.mode & 0o7777,
            uid: object.attr.uid,
            gid: object.attr.gid,
            time: object.attr.mtime,
            flags: object.flags,
            version: Version::default(),
        }
    }

    /// Takes over file data.
    ///
    /// # Errors
    /// `ESTALE` if there is no such file here; the kernel's.
    pub fn take_data(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), %fid, offset, len = data.len(), "takes data");
        // Looked at before the write moves the kernel's times, which must not show: ours are written again with the tag.
        let open = self.loaded(fid)?;
        if !open.is_file() || self.identity.arbiter {
            return Ok(());
        }
        open.keep_capability(|| open.write_all(offset, data))?;
        self.keep_times(fid)
    }
}

/// Gives an object the extended attributes that another brick has. Whether any was to be written.
fn take_xattrs(open: &OpenObject, object: &Object) -> Result<bool, Errno> {
    let mut written = false;
    for name in open.healed_xattrs()? {
        // What a directory's entry is never changes, and it may lie in lost+found on this brick alone.
        let stays = open.is_dir() && name == INTENT.as_bytes();
        if !stays && !object.xattrs.iter().any(|(n, _)| n.as_bytes() == name) {
            open.remove_xattr(&name)?;
            written = true;
        }
    }
    for (name, value) in object.xattrs.iter().filter(|(name, _)| name.as_bytes() != TARGET.as_bytes()) {
        if open.whole_xattr(name.as_bytes())?.as_ref() != Some(&value.0) {
            open.set_xattr(name.as_bytes(), &value.0)?;
            written = true;
        }
    }
    Ok(written)
}
