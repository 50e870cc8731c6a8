//! Carrying out a change.
//!
//! Each step first looks whether it is done already, so that the last record of the journal can be applied again after the
//! server was killed in the middle of it. What a change does to times and versions is said in one place, for applying and
//! for recovering alike (`effects`).

use crate::attrs::Node;
use crate::effects::effects;
use crate::index::Located;
use crate::object::{OpenObject, S_IFDIR, S_IFLNK, S_IFREG, Stat, open_at};
use crate::open::Brick;
use crate::tree::At;
use disk_format::tag::{PENDING, Tag, Version};
use file_system::{File, Renaming, Times};
use ids::{Fid, OpId, SetId, Time};
use namespace::Entry;
use wire::op::Node as Kind;
use wire::peer::Stamp;
use wire::{Change, Errno};

/// Changes of the index after which a sync is wanted, and is waited for: they are kept in memory until then.
const INDEX_MANY: usize = 1 << 17;
const INDEX_MAX: usize = 1 << 20;

/// The name of an object in `.mortar/orphans` and `.mortar/limbo`.
pub(crate) fn hidden_name(fid: Fid) -> String {
    format!("{:08x}{:08x}{:016x}", fid.set.0, fid.epoch.0, fid.lsn.0)
}

/// The reverse of [`hidden_name`].
pub(crate) fn hidden_fid(name: &[u8]) -> Option<Fid> {
    let text = std::str::from_utf8(name).ok().filter(|t| t.len() == 32)?;
    let part = |r: std::ops::Range<usize>| text.get(r).and_then(|s| u64::from_str_radix(s, 16).ok());
    Some(Fid {
        set: SetId(u32::try_from(part(0..8)?).ok()?),
        epoch: ids::Epoch(u32::try_from(part(8..16)?).ok()?),
        lsn: ids::Lsn(part(16..32)?),
    })
}

/// What is needed to make an object.
pub(crate) struct NewObject<'a> {
    pub(crate) fid: Fid,
    pub(crate) home: SetId,
    pub(crate) node: &'a Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) time: Time,
    pub(crate) flags: u8,
    pub(crate) version: Version,
}

impl Brick {
    /// Journals a change and carries it out. `stamp` must follow the last one.
    ///
    /// If it fails before anything was changed, its record is taken back and the change never was. Otherwise the change is
    /// left in part ([`Brick::is_partial`]): its record stays, and no other change is taken, until the caller has said what
    /// becomes of it, with [`Brick::record_partial`] or [`Brick::abandon_partial`]. What has to be done besides (to bound the
    /// journal and memory) never fails a change that was carried out.
    ///
    /// # Errors
    /// The file system's: `ENOSPC`, `EIO`, `EROFS` and the like; `EINVAL` if the payload does not fit the change; `EIO`
    /// if the stamp does not follow, or the tree is not as the change expects it.
    pub fn apply(
        &mut self,
        stamp: Stamp,
        op: OpId,
        result_fid: Option<Fid>,
        change: &Change,
        payload: &[u8],
    ) -> Result<(), Errno> {
        if self.partial.is_some() {
            tracing::error!(brick = %self.path.display(), lsn = %stamp.lsn, "the change before it is left in part");
            return Err(Errno::EIO);
        }
        let data_crc = match change {
            Change::Write { .. } if self.identity.arbiter => 0,
            Change::Write { len, .. } if *len as usize != payload.len() => return Err(Errno::EINVAL),
            Change::Write { .. } => disk_format::crc64(&[payload]),
            _ => 0,
        };
        let rolled = self.journal.append(&stamp, op, data_crc, result_fid, change)?;
        self.begun = true;
        if let Err(e) = self.perform(&stamp, change, Some(payload)) {
            tracing::error!(brick = %self.path.display(), lsn = %stamp.lsn, error = %e, ?change, "a change could not be applied");
            if self.begun {
                self.partial = Some(change.clone());
            } else if let Err(why) = self.journal.take_back() {
                tracing::error!(brick = %self.path.display(), lsn = %stamp.lsn, %why, "its record could not be taken back");
                self.partial = Some(change.clone());
            }
            return Err(e);
        }
        if rolled {
            self.bound_journal();
        }
        if self.index.dirty() > INDEX_MAX
            && let Err(e) = self.begin_sync(None).and_then(|job| job.run())
        {
            self.note_late(e);
        }
        Ok(())
    }

    /// Whether so much waits for a sync of everything that it should not wait for its time.
    pub fn wants_sync(&self) -> bool {
        self.index.dirty() > INDEX_MANY
    }

    /// Whether the last change was done only in part, so that its record does not say what is in the tree.
    pub fn is_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// No other brick has the last change: what this brick did of it is all that there is. In the journal it gives way to
    /// one that says so, and which the answer is: whoever heals from here takes the objects anew. Needs no room.
    ///
    /// # Errors
    /// The kernel's: nothing can be journaled any more.
    pub fn record_partial(&mut self) -> Result<Change, Errno> {
        let Some(change) = self.partial.clone() else { return Ok(Change::Nop) };
        let said = change.in_part();
        self.journal.replace_last(&said)?;
        self.partial = None;
        let stamp = self.journal.last();
        self.forget_names();
        for fid in said.touched() {
            self.invalidate_attrs(fid);
        }
        // The journal has it: what is left is to bring versions and times to disk.
        if let Err(e) = self.perform(&stamp, &said, None).and_then(|()| self.flush_attrs()) {
            self.note_late(e);
        }
        Ok(said)
    }

    /// Others may have the last change: this brick is to be healed. Its objects are marked stale, then its record
    /// goes. After an error the record is still there, and opening the brick anew deals with it as after a kill.
    ///
    /// # Errors
    /// The kernel's.
    pub fn abandon_partial(&mut self) -> Result<(), Errno> {
        let Some(change) = self.partial.clone() else { return Ok(()) };
        let before = ids::Lsn(self.journal.last().lsn.0.saturating_sub(1));
        self.begin_heal(before, &change.touched(), before)?;
        self.journal.take_back()?;
        self.partial = None;
        self.forget_names();
        for fid in change.touched() {
            self.invalidate_attrs(fid);
        }
        Ok(self.distrust(before)?)
    }

    /// What is kept in memory of names may not be as a change left them that failed.
    fn forget_names(&mut self) {
        while self.names.pop_oldest().is_some() {}
        self.listings = crate::listing::Listings::new(self.options.listing_names);
    }

    /// Something that no change depends on could not be brought to disk.
    pub(crate) fn note_late(&mut self, e: Errno) {
        if self.late.is_none() {
            tracing::error!(brick = %self.path.display(), error = %e, "what was applied could not be written");
        }
        self.late = Some(e);
    }

    /// What failed of the work that follows changes since this was last asked: a brick with others beside it has to leave.
    pub fn take_late_failure(&mut self) -> Option<Errno> {
        self.late.take()
    }

    /// Carries a change out; without payload where the data is there already.
    pub(crate) fn perform(
        &mut self,
        stamp: &Stamp,
        change: &Change,
        payload: Option<&[u8]>,
    ) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), lsn = %stamp.lsn, ?change, "applies");
        let version = Version::from(stamp);
        self.act(version, change, payload)?;
        for (fid, e) in effects(change) {
            self.touch(fid, version, e)?;
        }
        Ok(())
    }

    fn act(&mut self, version: Version, change: &Change, payload: Option<&[u8]>) -> Result<(), Errno> {
        match change {
            Change::Nop => Ok(()),
            Change::Create { parent, name, fid, home, node, mode, uid, gid, time } => {
                let what = NewObject {
                    fid: *fid,
                    home: *home,
                    node,
                    mode: *mode,
                    uid: *uid,
                    gid: *gid,
                    time: *time,
                    flags: 0,
                    version,
                };
                self.begun = false;
                self.create(*parent, name.as_bytes(), &what)
            }
            Change::Unlink { parent, name, fid, orphan, .. } => {
                self.unlink(*parent, name.as_bytes(), *fid, *orphan)
            }
            Change::Rmdir { parent, name, fid, .. } => self.rmdir(*parent, name.as_bytes(), *fid),
            Change::Rename { parent, name, fid, to_parent, to_name, replaced, .. } => {
                let out = replaced.as_ref().map(|r| (r.fid, r.orphan));
                self.rename((*parent, name), *fid, (*to_parent, to_name), out)
            }
            Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, .. } => {
                self.exchange((*parent, name, *fid), (*to_parent, to_name, *to_fid))
            }
            Change::Link { fid, parent, name, .. } => self.link(*fid, *parent, name.as_bytes()),
            Change::SetAttr { fid, mode, uid, gid, size, .. } => {
                self.set_attr(*fid, *mode, (*uid, *gid), *size)
            }
            Change::Write { fid, offset, len, mode, .. } => {
                self.begun = false;
                if let Some(p) = payload {
                    self.write(*fid, *offset, *len, p)?;
                }
                self.begun = true;
                mode.map_or(Ok(()), |m| self.open_fid(*fid)?.chmod(m))
            }
            Change::Fallocate { fid, mode, offset, len, .. } => self.fallocate(*fid, *mode, *offset, *len),
            Change::SetXattr { fid, name, value, .. } => {
                self.load(*fid)?;
                self.open_fid(*fid)?.set_xattr(name.as_bytes(), &value.0)
            }
            Change::RemoveXattr { fid, name, .. } => {
                self.load(*fid)?;
                self.open_fid(*fid)?.remove_xattr(name.as_bytes())
            }
            Change::CopyRange { from, from_offset, to, to_offset, len, .. } => {
                self.copy_range((*from, *from_offset), (*to, *to_offset), *len)
            }
            Change::DropOrphan { fid } => {
                match self.orphans.unlink(hidden_name(*fid).as_bytes()) {
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(e) => return Err(e),
                }
                self.forget(*fid);
                Ok(())
            }
            Change::PrepareMkdir { path, name, fid, mode, uid, gid, time } => {
                let what = NewObject {
                    fid: *fid,
                    home: self.identity.set,
                    node: &Kind::Dir,
                    mode: *mode,
                    uid: *uid,
                    gid: *gid,
                    time: *time,
                    flags: PENDING,
                    version,
                };
                self.place(path, name, &what)
            }
            Change::PrepareRmdir { fid } => self.load(*fid).map(|_| ()),
            Change::EndTransaction { keep: true, fid } => self.load(*fid).map(|_| ()),
            Change::EndTransaction { keep: false, fid } => self.remove_prepared(*fid),
            Change::Relocate { fid, path, name } => self.relocate(*fid, path, name, version),
            Change::Touch { .. } | Change::Partial { .. } => {
                for fid in change.touched() {
                    match self.keep_times(fid) {
                        Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
                        Err(e) => return Err(e),
                    }
                }
                Ok(())
            }
        }
    }

    /// The tree is not as the change expects. After a kill that only means "done already".
    pub(crate) fn diverged(&self, parent: Fid, name: &[u8], found: At) -> Result<(), Errno> {
        if self.replaying {
            return Ok(());
        }
        let name = String::from_utf8_lossy(name);
        tracing::error!(brick = %self.path.display(), dir = %parent, %name, ?found, "the brick's tree is not as the change expects");
        Err(Errno::EIO)
    }

    pub(crate) fn create(&mut self, parent: Fid, name: &[u8], what: &NewObject<'_>) -> Result<(), Errno> {
        match self.find(parent, name)? {
            At::Free => {}
            At::Entry(e) if e.fid == what.fid => {
                let dir = self.open_dir(parent)?;
                let open = open_at(&dir, name, e.kind)?;
                return self.finish(parent, name, what, open);
            }
            At::Entry(e) => return self.diverged(parent, name, At::Entry(e)),
            At::Unknown => {
                let dir = self.open_dir(parent)?;
                let kind = what.node.type_bits();
                let half = dir.stat_at(name)?;
                if self.replaying && half.mode & crate::object::S_IFMT == kind && half.size <= 4096 {
                    let open = open_at(&dir, name, kind)?;
                    return self.finish(parent, name, what, open);
                }
                self.begun = true;
                self.quarantine(parent, name)?;
            }
        }
        if what.home != self.identity.set && self.index.get(what.fid)?.is_some() {
            // A copy of the directory exists, made for something beneath it: it belongs here.
            self.begun = true;
            return self.move_copy(what.fid, parent, name);
        }
        let dir = self.open_dir(parent)?;
        let made = make(&dir, name, what);
        self.begun |= made.is_ok() || dir.stat_at(name).is_ok();
        let done = made.and_then(|open| self.finish(parent, name, what, open));
        if done.is_err() && self.begun {
            self.unmake(&dir, parent, name, what);
        }
        done
    }

    /// Takes away a fresh object that could not be given its tag, on a full disk, say: without it nobody knows of it.
    fn unmake(&mut self, dir: &OpenObject, parent: Fid, name: &[u8], what: &NewObject<'_>) {
        let is_dir = what.node.type_bits() == S_IFDIR;
        // What cannot be removed is moved to lost+found when its name is wanted.
        let _ = if is_dir { dir.remove_dir(name) } else { dir.unlink(name) };
        self.forget(what.fid);
        self.invalidate_name(parent, name);
        self.listings.removed(parent, name);
    }

    /// Gives a fresh object its owner, mode, times and tag, and makes it known.
    fn finish(
        &mut self,
        parent: Fid,
        name: &[u8],
        what: &NewObject<'_>,
        open: OpenObject,
    ) -> Result<(), Errno> {
        let mut stat: Stat = open.stat()?;
        let uid = (stat.uid != what.uid).then_some(what.uid);
        let gid = (stat.gid != what.gid).then_some(what.gid);
        let chowned = uid.is_some() || gid.is_some();
        if chowned {
            open.chown(uid, gid)?;
            (stat.uid, stat.gid) = (what.uid, what.gid);
        }
        let special = what.mode & 0o7000;
        if open.kind != S_IFLNK && (stat.mode & 0o7000 != special || (chowned && special != 0)) {
            // The lower bits stay as the file system gave them: an inherited ACL may have cut them.
            stat.mode = stat.mode & !0o7000 | special;
            open.chmod(stat.mode)?;
        }
        open.set_times(Times { atime: what.time, mtime: what.time })?;
        stat.mtime = what.time;
        let tag = Tag {
            flags: what.flags,
            fid: what.fid,
            home: what.home,
            version: what.version,
            ctime: what.time,
            atime: what.time,
        };
        open.set_tag(&tag)?;
        self.index.put(what.fid, Located { handle: open.handle()?, kind: open.kind });
        self.shared.fresh().made(what.fid, self.journal.last().lsn);
        let entry = Entry { fid: what.fid, home: what.home, kind: open.kind };
        self.keep_fd(what.fid, open);
        self.keep_node(Node::new(tag, stat))?;
        self.entered(parent, name, entry);
        Ok(())
    }

    /// The object's attributes have to be asked for again.
    pub(crate) fn invalidate_attrs(&mut self, fid: Fid) {
        if let Some(n) = self.nodes.peek(&fid) {
            n.stat = None;
        }
    }

    fn unlink(&mut self, parent: Fid, name: &[u8], fid: Fid, orphan: bool) -> Result<(), Errno> {
        match self.find(parent, name)? {
            At::Entry(e) if e.fid == fid => {}
            other => return self.diverged(parent, name, other),
        }
        let dir = self.open_dir(parent)?;
        self.push_out(&dir, name, fid, orphan)?;
        self.left(parent, name);
        Ok(())
    }

    /// Takes a file's name away; the file too, if it was the last and nobody has it open.
    pub(crate) fn push_out(
        &mut self,
        dir: &OpenObject,
        name: &[u8],
        fid: Fid,
        orphan: bool,
    ) -> Result<(), Errno> {
        if orphan {
            dir.rename(name, &self.orphans, hidden_name(fid).as_bytes(), Renaming::Replace)?;
            self.invalidate_attrs(fid);
            return Ok(());
        }
        let last = self.fresh(fid)?.1.nlink <= 1;
        dir.unlink(name)?;
        if last {
            self.forget(fid)
        } else {
            self.invalidate_attrs(fid)
        }
        Ok(())
    }

    fn rmdir(&mut self, parent: Fid, name: &[u8], fid: Fid) -> Result<(), Errno> {
        match self.find(parent, name)? {
            At::Entry(e) if e.fid == fid => {}
            other => return self.diverged(parent, name, other),
        }
        self.remove_dir(parent, name, fid)
    }

    /// Removes a directory; one that is not empty (copies of other sets' directories, things that are not ours) goes to
    /// lost+found.
    pub(crate) fn remove_dir(&mut self, parent: Fid, name: &[u8], fid: Fid) -> Result<(), Errno> {
        let dir = self.open_to_move(parent, &[fid])?;
        let mut removed = dir.remove_dir(name);
        if matches!(removed, Err(Errno::ENOTEMPTY | Errno::EEXIST)) {
            self.quarantine_remains(fid)?;
            removed = dir.remove_dir(name);
        }
        match removed {
            Ok(()) => self.forget(fid),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                dir.rename(name, &self.lost_found, hidden_name(fid).as_bytes(), Renaming::Replace)?;
                tracing::info!(brick = %self.path.display(), %fid, "a removed directory still holds something: kept in lost+found");
            }
            Err(e) => return Err(e),
        }
        self.left(parent, name);
        Ok(())
    }

    fn link(&mut self, fid: Fid, parent: Fid, name: &[u8]) -> Result<(), Errno> {
        let open = self.open_fid(fid)?;
        let home = self.load(fid)?.tag.home;
        match self.find(parent, name)? {
            At::Free => {}
            At::Unknown => self.quarantine(parent, name)?,
            At::Entry(e) if e.fid == fid && self.replaying => return Ok(()),
            other => return self.diverged(parent, name, other),
        }
        let dir = self.open_dir(parent)?;
        open.link(&dir, name)?;
        self.invalidate_attrs(fid);
        self.entered(parent, name, Entry { fid, home, kind: open.kind });
        Ok(())
    }

    fn set_attr(
        &mut self,
        fid: Fid,
        mode: Option<u32>,
        owner: (Option<u32>, Option<u32>),
        size: Option<u64>,
    ) -> Result<(), Errno> {
        let before = self.fresh(fid)?.1;
        let open = self.open_fid(fid)?;
        if let Some(size) = size {
            open.truncate(size)?;
        }
        let mut mode = mode;
        if owner != (None, None) {
            open.chown(owner.0, owner.1)?;
            // The kernel drops setuid and setgid; whether they go is the change's to say.
            if !open.is_dir() && before.mode & 0o6000 != 0 {
                mode = mode.or(Some(before.mode));
            }
        }
        mode.map_or(Ok(()), |m| open.chmod(m))
    }

    pub(crate) fn file(&mut self, fid: Fid) -> Result<OpenObject, Errno> {
        self.load(fid)?;
        let open = self.open_fid(fid)?;
        if open.is_file() { Ok(open) } else { Err(Errno::EINVAL) }
    }

    fn write(&mut self, fid: Fid, offset: u64, len: u32, mut data: &[u8]) -> Result<(), Errno> {
        let open = self.file(fid)?;
        if self.identity.arbiter {
            self.begun = true;
            return if len == 0 { Ok(()) } else { self.grow(fid, &open, offset.saturating_add(len.into())) };
        }
        let mut at = offset;
        while !data.is_empty() {
            match open.write(at, data)? {
                0 => return Err(Errno::ENOSPC),
                n => {
                    self.begun = true;
                    data = data.get(n..).unwrap_or_default();
                    at += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Makes the file at least `size` bytes long.
    fn grow(&mut self, fid: Fid, open: &OpenObject, size: u64) -> Result<(), Errno> {
        if self.fresh(fid)?.1.size < size {
            open.truncate(size)?;
        }
        Ok(())
    }

    fn fallocate(&mut self, fid: Fid, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        const KEEP_SIZE: u32 = 1;
        const COLLAPSE: u32 = 8;
        const INSERT: u32 = 0x20;
        let open = self.file(fid)?;
        if !self.identity.arbiter {
            return open.allocate(mode, offset, len);
        }
        let size = self.fresh(fid)?.1.size;
        let to = match mode {
            COLLAPSE => size.saturating_sub(len),
            INSERT => size.saturating_add(len),
            m if m & KEEP_SIZE != 0 => size,
            _ => size.max(offset.saturating_add(len)),
        };
        if to == size { Ok(()) } else { open.truncate(to) }
    }

    fn copy_range(&mut self, from: (Fid, u64), to: (Fid, u64), len: u64) -> Result<(), Errno> {
        let source = self.file(from.0)?;
        let target = self.file(to.0)?;
        if self.identity.arbiter {
            return self.grow(to.0, &target, to.1.saturating_add(len));
        }
        let (mut at, mut to_at, mut left) = (from.1, to.1, len);
        while left > 0 {
            let n = match source.copy_range(at, &target, to_at, left) {
                Ok(n) => n,
                Err(Errno::EXDEV | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                    let some = usize::try_from(left.min(1 << 20)).unwrap_or(1 << 20);
                    let data = source.read(at, some, false)?;
                    self.write(to.0, to_at, 0, &data)?;
                    data.len() as u64
                }
                Err(e) => return Err(e),
            };
            if n == 0 {
                break;
            }
            at += n;
            to_at += n;
            left -= n;
        }
        Ok(())
    }
}

/// Makes the bare object and opens it.
pub(crate) fn make(dir: &File, name: &[u8], what: &NewObject<'_>) -> Result<OpenObject, Errno> {
    let (mode, kind) = (what.mode & 0o7777, what.node.type_bits());
    match what.node {
        Kind::File => return Ok(OpenObject::new(dir.make_file(name, mode)?, S_IFREG)),
        Kind::Dir => dir.make_dir(name, mode)?,
        Kind::Symlink { target } => dir.make_symlink(name, &target.0)?,
        Kind::Fifo | Kind::Socket => dir.make_node(name, kind | mode, 0)?,
        Kind::Char { rdev } | Kind::Block { rdev } => dir.make_node(name, kind | mode, *rdev)?,
    }
    open_at(dir, name, kind)
}
