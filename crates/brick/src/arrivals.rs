//! Files that move between sets (docs/design/0018): the copy that arrives without a name, and gets one, and the file that departs.

use crate::folders::hidden_name;
use crate::making::{NewObject, make};
use crate::object::S_IFREG;
use crate::open::Brick;
use crate::tree::At;
use disk_format::tag::{ORPHAN, Version};
use ids::{Fid, Time};
use namespace::Entry;
use wire::op::{EntryName, Node};
use wire::{Change, Errno};

impl Brick {
    /// [`wire::Change::Arrive`].
    pub(crate) fn arrive(&mut self, fid: Fid, (version, time): (Version, Time)) -> Result<(), Errno> {
        if self.progress.is_replaying() && self.is_known(fid)? {
            return Ok(());
        }
        let (home, flags) = (self.identity.set, ORPHAN);
        let what =
            NewObject { fid, home, node: &Node::File, mode: 0o600, uid: 0, gid: 0, time, flags, version };
        let name = hidden_name(fid);
        self.progress.begins_later();
        let open = match make(self.folders.orphans(), name.as_bytes(), &what) {
            // Left without its tag by a process that was killed.
            Err(Errno::EEXIST) => {
                self.folders.orphans().remove(fid)?;
                make(self.folders.orphans(), name.as_bytes(), &what)?
            }
            made => made?,
        };
        self.progress.begins();
        self.finish_hidden(&what, &open)
    }

    /// [`wire::Change::Depart`].
    pub(crate) fn depart(&mut self, change: &Change, version: Version) -> Result<(), Errno> {
        let Change::Depart { parent, name, fid, to, copy, kind, ctime, .. } = change else {
            return Err(Errno::EINVAL);
        };
        let who = (*copy, *to, *kind);
        // Without room for the stub all is as it was.
        self.progress.begins_later();
        self.enter_stub((*parent, name), who, Some((*fid, false)), (version, *ctime))?;
        self.progress.begins();
        Ok(())
    }

    /// The transaction that was to give a file its first name ends, and nothing is to be done: a power cut may have left it
    /// the name, and the tag that says that it has none.
    pub(crate) fn keep_arrived(&mut self, fid: Fid) -> Result<(), Errno> {
        if self.is_orphan(fid) && (self.fresh(fid)?.1.nlink > 1 || !self.lies_among_orphans(fid)?) {
            self.leave_orphanage(fid)?;
        }
        Ok(())
    }

    /// A file without a name gets its first one. In one go: a power cut may take one half of two.
    pub(crate) fn name_arrived(&mut self, fid: Fid, add: &EntryName) -> Result<(), Errno> {
        let name = add.name.as_bytes();
        match self.find(add.dir, name)? {
            At::Free => {}
            At::Unknown => self.quarantine(add.dir, name)?,
            At::Entry(e) if e.fid == fid && self.progress.is_replaying() => return self.leave_orphanage(fid),
            other => return self.diverged(add.dir, name, other),
        }
        let dir = self.open_dir(add.dir)?;
        self.folders.orphans().release(fid, &dir, name)?;
        self.invalidate_attrs(fid);
        self.entered(add.dir, name, Entry { fid, home: self.identity.set, kind: S_IFREG });
        self.load(fid)?.set_orphan(false);
        Ok(())
    }

    /// A file that has a name is none without a name.
    fn leave_orphanage(&mut self, fid: Fid) -> Result<(), Errno> {
        match self.folders.orphans().remove(fid) {
            Ok(()) => self.invalidate_attrs(fid),
            Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.load(fid)?.set_orphan(false);
        Ok(())
    }
}
