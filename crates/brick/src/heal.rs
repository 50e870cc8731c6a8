//! Healing on a brick: makes this brick's objects equal to another brick's, and describes this brick's objects to another
//! brick.

use crate::folders::hidden_name;
use crate::listing;
use crate::making::NewObject;
use crate::object::{OpenObject, S_IFDIR, S_IFLNK, S_IFMT};
use crate::open::Brick;
use crate::place::lost_found_name;
use crate::stale::StaleSet;
use crate::tree::At;
use disk_format::tag::{ORPHAN, Tag, Version};
use file_system::{File, Times};
use ids::{Fid, Lsn, OpId};
use namespace::TreeState;
use replica::healing::Made;
use std::sync::Arc;
use wire::codec::Blob;
use wire::op::{Ancestor, Node as Kind};
use wire::peer::{Object, Stamp};
use wire::reply::DirEntry;
use wire::{Change, Errno, Name};

const MAX_DEPTH: usize = wire::limits::DEPTH_MAX;

/// The position in its directory's order that a name has on every brick.
pub fn name_order(name: &Name) -> u64 {
    listing::cookie(name.as_bytes())
}

/// The last work of a healing: what was moved to the heal trash goes, and everything goes to disk. Runs on any thread.
#[must_use = "nothing is on disk before it has run"]
pub struct EndJob {
    heal_trash: Arc<File>,
    sync: crate::SyncJob,
}

impl EndJob {
    /// Does it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self) -> Result<(), Errno> {
        crate::scan::clear(&self.heal_trash)?;
        self.sync.run().map(drop)
    }
}

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
        self.stale.widen(from, objects, versions_valid_to)
    }

    /// A sync failed: what the kernel could not write it has dropped, and no later sync says so. All beyond the durable
    /// position is stale from now on, for the next process too, and the journal beyond it is written again. Where the mark
    /// cannot be written the state says that memory was lost, which comes to the same: a small write in place, to the page
    /// cache.
    ///
    /// # Errors
    /// The kernel's: neither could be written. The brick is not closed in order.
    pub fn mark_unsynced_stale(&mut self) -> Result<(), Errno> {
        let durable = self.durable().lsn;
        self.write_journal_again(durable);
        self.begin_heal(durable, &[], Lsn(0)).or_else(|e| {
            tracing::error!(brick = %self.path.display(), error = %e, "the stale set could not be written");
            self.shared.lose()
        })
    }

    /// As long as this fails no sync makes anything durable.
    pub(crate) fn write_journal_again(&self, durable: Lsn) {
        let failed = self.shared.failed();
        match self.journal.write_again(durable) {
            Ok(()) => self.shared.rewrote(failed),
            Err(e) => {
                tracing::error!(brick = %self.path.display(), error = %e, "the journal could not be written again")
            }
        }
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

    /// Everything is healed: what brings it to disk, for a thread that may wait, before [`Brick::end_heal`].
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin_end(&mut self) -> Result<EndJob, Errno> {
        let mut gone = Vec::new();
        self.folders.heal_trash().each(&mut |fid| {
            gone.push(fid);
            true
        })?;
        for fid in gone {
            if !self.is_double(&self.folders.heal_trash().share(), hidden_name(fid).as_bytes(), fid)? {
                self.forget(fid);
            }
        }
        Ok(EndJob { heal_trash: self.folders.heal_trash().share(), sync: self.begin_sync(None)? })
    }

    /// Everything is healed and on disk: the mark goes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn end_heal(&mut self) -> Result<(), Errno> {
        self.stale.remove()?;
        // What lay beneath a directory that was moved to the heal trash is gone too: nothing of it is to be found in
        // memory.
        self.flush_attrs()?;
        while self.nodes.pop_oldest().is_some() {}
        while self.fds.pop_oldest().is_some() {}
        Ok(())
    }

    /// What an object of this set is like; `None` if there is none such here.
    ///
    /// # Errors
    /// The kernel's.
    pub fn object(&mut self, fid: Fid) -> Result<Option<Object>, Errno> {
        let set = self.identity.set;
        self.check_orphan(fid)?;
        let (attr, version, flags) = match self.fresh(fid) {
            Ok((node, stat)) => (node.attr(&stat), Stamp::from(node.tag.version), node.tag.flags),
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        if attr.home != set {
            return Ok(None);
        }
        let mut xattrs = Vec::new();
        for name in self.listxattr(fid)? {
            if let Some(value) = self.getxattr(fid, &name)? {
                xattrs.push((name, Blob(value)));
            }
        }
        let place = if attr.is_dir() { self.foreign_place(fid)? } else { None };
        Ok(Some(Object { attr, version, flags, xattrs, place }))
    }

    /// The path of a directory whose parent lives on another set, or that lies in lost+found: from the root down, or from
    /// lost+found if the first name says so (see [`crate::place::is_in_lost_found`]).
    fn foreign_place(&mut self, fid: Fid) -> Result<Option<(Vec<Ancestor>, Name)>, Errno> {
        if fid.is_root() {
            return Ok(None);
        }
        let Some((parent, name)) = self.parent_and_name(fid)? else {
            return Ok(Some((Vec::new(), lost_found_name(fid)?)));
        };
        let set = self.identity.set;
        if self.load(parent)?.tag.home == set {
            return Ok(None);
        }
        let mut path = Vec::new();
        let mut up = Some(parent);
        while let Some(at) = up.filter(|at| !at.is_root()) {
            if path.len() >= MAX_DEPTH {
                return Err(Errno::ELOOP);
            }
            let home = self.load(at)?.tag.home;
            let (above, name) = match self.parent_and_name(at)? {
                Some((above, name)) => (Some(above), name),
                None => (None, lost_found_name(at)?),
            };
            path.push(Ancestor { fid: at, home, name });
            up = above;
        }
        path.reverse();
        Ok(Some((path, name)))
    }

    /// The directory above and the name there; `None` for what lies in lost+found itself.
    fn parent_and_name(&mut self, fid: Fid) -> Result<Option<(Fid, Name)>, Errno> {
        let at = self.location(fid)?;
        let Some(parent) = at.parent else { return Ok(None) };
        Ok(Some((parent, Name::new(&at.name).map_err(|_| Errno::EIO)?)))
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
        let now = self.fresh(fid)?.1;
        let open = self.open_fid(fid)?;
        let attr = &object.attr;
        if open.is_file() && now.size != attr.size {
            open.truncate(attr.size)?;
        }
        if let Some(data) = data {
            open.write_all(0, data)?;
        }
        let chown = (now.uid, now.gid) != (attr.uid, attr.gid);
        if chown {
            open.chown(Some(attr.uid), Some(attr.gid))?;
        }
        self.take_xattrs(fid, &open, object)?;
        // An access list among the xattrs moves the mode.
        let moved = chown || !object.xattrs.is_empty() || (now.mode ^ attr.mode) & 0o7777 != 0;
        if open.kind != S_IFLNK && moved {
            open.chmod(attr.mode & 0o7777)?;
        }
        open.set_times(Times { atime: attr.atime, mtime: attr.mtime })?;
        let version = if complete { Version::from(&object.version) } else { Version::default() };
        let tag =
            Tag { flags: object.flags, fid, home: attr.home, version, ctime: attr.ctime, atime: attr.atime };
        open.set_tag(&tag)?;
        self.nodes.remove(&fid);
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
        if node.tag.version < version {
            node.tag.version = version;
            self.keep_times(fid)?;
        }
        Ok(())
    }

    /// The other brick has no such object. What no directory's comparison clears away goes here: directories that hang on
    /// other sets' directories, and files without a name.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_nothing(&mut self, fid: Fid) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), %fid, "the primary has no such object");
        if fid.is_root() || !self.is_known(fid)? {
            return Ok(());
        }
        let own = self.identity.set;
        let tag = self.load(fid)?.tag;
        if tag.home != own {
            return Ok(());
        }
        // After a power cut a file may have lost its name, and its tag not say so yet.
        let dir = self.open_fid(fid)?.is_dir();
        if !dir && self.folders.orphans().stat_at(hidden_name(fid).as_bytes()).is_ok() {
            return self.hide(&self.folders.orphans().share(), hidden_name(fid).as_bytes(), fid);
        }
        if dir {
            let at = self.location(fid)?;
            match at.parent {
                None => self.hide(&at.dir, &at.name, fid)?,
                // It goes with the directory that it lies in, which was moved to the heal trash already.
                Some(parent) if !self.is_known(parent)? => {}
                Some(parent) if self.load(parent)?.tag.home != own => {
                    self.keep_times(parent)?;
                    self.move_to_trash(parent, &at.name, fid)?;
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Moves a directory to the heal trash until its own entry is compared.
    fn displace(&mut self, dir: Fid) -> Result<(), Errno> {
        let at = self.location(dir)?;
        if let Some(parent) = at.parent {
            self.keep_times(parent)?;
        }
        self.folders.heal_trash().receive(&at.dir, &at.name, dir)?;
        if let Some(parent) = at.parent {
            self.left(parent, &at.name);
        }
        self.invalidate_attrs(dir);
        Ok(())
    }

    /// Moves something to the heal trash that is in one of Mortar's own folders.
    fn hide(&mut self, dir: &File, name: &[u8], fid: Fid) -> Result<(), Errno> {
        match self.folders.heal_trash().receive(dir, name, fid) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.forget(fid);
        Ok(())
    }

    /// Sees to it that the object exists here, as far as that needs no directory's comparison.
    fn have(&mut self, fid: Fid, object: &Object) -> Result<bool, Errno> {
        let known = self.is_known(fid)?;
        if object.flags & ORPHAN != 0 {
            return self.have_orphan(fid, known, object);
        }
        if !object.attr.is_dir() {
            return Ok(known);
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

    fn take_xattrs(&mut self, fid: Fid, open: &OpenObject, object: &Object) -> Result<(), Errno> {
        for name in self.listxattr(fid)? {
            if !object.xattrs.iter().any(|(n, _)| *n == name) {
                open.remove_xattr(name.as_bytes())?;
            }
        }
        for (name, value) in &object.xattrs {
            if open.whole_xattr(name.as_bytes())?.as_ref() != Some(&value.0) {
                open.set_xattr(name.as_bytes(), &value.0)?;
            }
        }
        Ok(())
    }

    /// The entries of a directory after `after`, for another brick: up to which position, and symbolic links' targets.
    ///
    /// # Errors
    /// `ESTALE` if this set does not answer for it; the kernel's.
    #[allow(clippy::type_complexity, reason = "it is one message's content")]
    pub fn entries(
        &mut self,
        dir: Fid,
        after: u64,
        bytes: usize,
    ) -> Result<(Vec<DirEntry>, Vec<(Fid, Blob)>, Option<u64>), Errno> {
        let own = self.identity.set;
        if self.load(dir)?.tag.home != own {
            return Err(Errno::ESTALE);
        }
        let (entries, end) = self.readdir(dir, after, true, bytes)?;
        let mut targets = Vec::new();
        for e in entries.iter().filter(|e| e.kind == S_IFLNK) {
            targets.push((e.fid, Blob(self.readlink(e.fid)?)));
        }
        let upto = if end { None } else { entries.last().map(|e| e.cookie) };
        Ok((entries, targets, upto))
    }

    /// Makes the entries of a directory after `after` and up to `upto` (to the end if `None`) those given. What is there
    /// beside them is moved to the heal trash. Answers what was missing and is made now, still empty.
    ///
    /// # Errors
    /// `ESTALE` if there is no such directory here; the kernel's.
    pub fn take_entries(
        &mut self,
        dir: Fid,
        after: u64,
        upto: Option<u64>,
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno> {
        tracing::debug!(brick = %self.path.display(), %dir, after, ?upto, names = ?entries.iter().map(|e| (&e.name, e.fid)).collect::<Vec<_>>(), "takes entries");
        let mtime = self.load(dir)?.mtime;
        self.keep_times(dir)?;
        let here = self.listing(dir)?.between(after, upto.unwrap_or(u64::MAX));
        let there: std::collections::HashMap<&[u8], &DirEntry> =
            entries.iter().map(|e| (e.name.as_bytes(), e)).collect();
        for name in here {
            let wanted = there.get(&name[..]);
            match self.find(dir, &name)? {
                At::Entry(e) if wanted.is_some_and(|w| w.fid == e.fid) => {
                    if let Some(w) = wanted {
                        self.unite(dir, w)?;
                    }
                }
                At::Entry(e) => self.move_to_trash(dir, &name, e.fid)?,
                At::Unknown => self.quarantine(dir, &name)?,
                At::Free => {}
            }
        }
        let mut made = Vec::new();
        for e in entries {
            if self.find(dir, e.name.as_bytes())? == At::Free {
                made.extend(self.take_entry(dir, e, targets)?);
            }
        }
        self.keep_times(dir)?;
        // So many others may have been loaded that it left the memory in between.
        self.load(dir)?.mtime = mtime;
        Ok(made)
    }

    /// The kernel is about to move the object's times, or has: ours, in memory by then, are written again.
    pub(crate) fn keep_times(&mut self, fid: Fid) -> Result<(), Errno> {
        let node = self.load(fid)?;
        let was = node.tag_dirty || node.times_dirty;
        node.stat = None;
        (node.times_dirty, node.tag_dirty) = (true, true);
        if !was {
            self.dirty.push_back(fid);
        }
        Ok(())
    }

    /// Takes a name away that the other brick does not have. The object may have another name there: it is kept.
    fn move_to_trash(&mut self, dir: Fid, name: &[u8], fid: Fid) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), %dir, name = %String::from_utf8_lossy(name), %fid, "moves to the heal trash");
        let parent = self.open_dir(dir)?;
        let stat = parent.stat_at(name)?;
        let dir_kind = stat.mode & S_IFMT == S_IFDIR;
        if !dir_kind && (stat.nlink > 1 || self.is_double(&parent, name, fid)?) {
            parent.unlink(name)?;
        } else {
            // What the other brick keeps without a name stays here as well.
            let orphan = self.load(fid).is_ok_and(|n| n.tag.flags & ORPHAN != 0);
            let to = if orphan { self.folders.orphans() } else { self.folders.heal_trash() };
            to.receive(&parent, name, fid)?;
        }
        self.invalidate_attrs(fid);
        self.left(dir, name);
        Ok(())
    }

    fn take_entry(&mut self, dir: Fid, e: &DirEntry, targets: &[(Fid, Blob)]) -> Result<Option<Made>, Errno> {
        let name = e.name.as_bytes();
        let known = self.is_known(e.fid)?;
        tracing::debug!(%dir, name = %e.name, fid = %e.fid, known, "a name is taken over");
        if known {
            let mut again = None;
            if e.kind == S_IFDIR {
                again = self.untangle(dir, e.fid)?;
                if let Some(parent) = self.location(e.fid)?.parent {
                    self.keep_times(parent)?;
                }
                match self.move_copy(e.fid, dir, name) {
                    // It cannot lie beneath itself: the directory that it goes into is not where it belongs either.
                    Err(Errno::EINVAL) => {
                        self.displace(dir)?;
                        self.move_copy(e.fid, dir, name)?;
                    }
                    other => other?,
                }
            } else {
                self.link_again(e, dir)?;
            }
            return Ok(again);
        }
        let rdev = e.attr.as_ref().map_or(0, |a| a.rdev);
        let node = match e.kind {
            0o040_000 => Kind::Dir,
            0o120_000 => match targets.iter().find(|(f, _)| *f == e.fid) {
                Some((_, target)) => Kind::Symlink { target: target.clone() },
                None => return Ok(None),
            },
            0o010_000 => Kind::Fifo,
            0o140_000 => Kind::Socket,
            0o020_000 => Kind::Char { rdev },
            0o060_000 => Kind::Block { rdev },
            _ => Kind::File,
        };
        let own = e.home == self.identity.set;
        let attr = e.attr.as_ref();
        let new_object = NewObject {
            fid: e.fid,
            home: e.home,
            node: &node,
            mode: attr.map_or(0o700, |a| a.mode & 0o7777),
            uid: attr.map_or(0, |a| a.uid),
            gid: attr.map_or(0, |a| a.gid),
            time: attr.map_or(ids::Time::default(), |a| a.mtime),
            flags: 0,
            version: Version::default(),
        };
        self.create(dir, name, &new_object)?;
        Ok(own.then_some(Made { fid: e.fid, dir: e.kind == S_IFDIR }))
    }

    /// Directory `fid` is to come into `dir`, which may lie beneath it here: then `dir` is moved to the heal trash until
    /// its own parent is compared, and its present one, which is answered, has to be compared (again).
    fn untangle(&mut self, dir: Fid, fid: Fid) -> Result<Option<Made>, Errno> {
        if !self.is_beneath(dir, fid)? {
            return Ok(None);
        }
        let at = self.location(dir)?;
        let Some(parent) = at.parent else { return Ok(None) };
        self.keep_times(parent)?;
        self.move_to_trash(parent, &at.name, dir)?;
        Ok(Some(Made { fid: parent, dir: true }))
    }

    /// Gives a file that is here under another name, or without one, this name.
    pub(crate) fn link_again(&mut self, e: &DirEntry, dir: Fid) -> Result<(), Errno> {
        let to = self.open_dir(dir)?;
        let mut moved = false;
        for folder in [self.folders.heal_trash(), self.folders.orphans()] {
            match folder.release(e.fid, &to, e.name.as_bytes()) {
                Ok(()) => moved = true,
                Err(Errno::ENOENT) => {}
                Err(err) => return Err(err),
            }
            if moved {
                break;
            }
        }
        if !moved {
            self.open_fid(e.fid)?.link(&to, e.name.as_bytes())?;
        }
        let entry = namespace::Entry { fid: e.fid, home: e.home, kind: e.kind };
        self.invalidate_attrs(e.fid);
        self.entered(dir, e.name.as_bytes(), entry);
        Ok(())
    }

    /// Takes over file data.
    ///
    /// # Errors
    /// `ESTALE` if there is no such file here; the kernel's.
    pub fn take_data(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), %fid, offset, len = data.len(), "takes data");
        // Looked at before the write moves the kernel's times, which must not show: ours are written again with the tag.
        self.load(fid)?;
        let open = self.open_fid(fid)?;
        if !open.is_file() || self.identity.arbiter {
            return Ok(());
        }
        open.write_all(offset, data)?;
        self.keep_times(fid)
    }
}
