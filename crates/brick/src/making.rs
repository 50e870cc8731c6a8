//! Making objects: the bare object, then its owner, mode and times, and last its tag, which makes it ours.

use crate::index::Located;
use crate::nodes::Node;
use crate::object::{OpenObject, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Stat, open_at};
use crate::open::Brick;
use crate::tree::At;
use disk_format::tag::{Tag, Version};
use file_system::{File, Times};
use ids::{Fid, SetId, Time};
use namespace::Entry;
use wire::Errno;
use wire::op::Node as Kind;

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

impl NewObject<'_> {
    /// The tag that it gets.
    pub(crate) fn tag(&self) -> Tag {
        let NewObject { flags, fid, home, version, time, .. } = *self;
        Tag { flags, fid, home, version, ctime: time, atime: time }
    }
}

impl Brick {
    pub(crate) fn create(&mut self, parent: Fid, name: &[u8], what: &NewObject<'_>) -> Result<(), Errno> {
        match self.find(parent, name)? {
            At::Free => {}
            At::Entry(e) if e.fid == what.fid => {
                let dir = self.dir_of_name(parent, name)?;
                let open = open_at(&dir, name, e.kind)?;
                return self.finish(parent, name, what, open);
            }
            At::Entry(e) => return self.diverged(parent, name, At::Entry(e)),
            At::Unknown => {
                let dir = self.dir_of_name(parent, name)?;
                let kind = what.node.type_bits();
                let half = dir.stat_at(name)?;
                // A copy that there is already would have come here: nothing was begun.
                let is_new = what.home == self.identity.set || !self.is_known(what.fid)?;
                let replaying = self.progress.is_replaying();
                if replaying && is_new && half.mode & S_IFMT == kind && half.size <= 4096 {
                    let open = open_at(&dir, name, kind)?;
                    return self.finish(parent, name, what, open);
                }
                self.progress.begins();
                self.quarantine(parent, name)?;
            }
        }
        if what.home != self.identity.set && self.is_known(what.fid)? {
            // A copy of the directory exists, made for something beneath it: it belongs here.
            self.progress.begins();
            return self.bring_copy(what.fid, parent, name);
        }
        let dir = self.dir_of_name(parent, name)?;
        let made = make(&dir, name, what);
        if made.is_ok() || dir.stat_at(name).is_ok() {
            self.progress.begins();
        }
        let done = made.and_then(|open| self.finish(parent, name, what, open));
        if done.is_err() && self.progress.has_begun() {
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
        self.names.forget(parent, name);
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
        let tag = what.tag();
        open.set_tag(&tag)?;
        self.index.put(what.fid, Located { handle: open.handle()?, kind: open.kind });
        self.shared.fresh().made(what.fid, self.journal.last().lsn);
        let kind = tag.stub_kind().unwrap_or(open.kind);
        let entry = Entry { fid: what.fid, home: what.home, kind };
        self.fds.keep(what.fid, open);
        self.keep_node(Node::new(tag, stat))?;
        self.entered(parent, name, entry);
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
