//! Files that move between sets (docs/design/0018): the copy that arrives without a name, and gets one, and the file that departs.

use crate::folders::hidden_name;
use crate::index::Located;
use crate::making::{NewObject, make};
use crate::nodes::Node as Known;
use crate::object::{OpenObject, S_IFMT, S_IFREG, open_at, tag_at};
use crate::open::Brick;
use crate::scan::Seen;
use crate::stubs::{STUB_MODE, Who, new_stub};
use crate::tree::At;
use disk_format::tag::{INTENT, ORPHAN, PENDING, Version, XATTR};
use file_system::{File, Times};
use ids::{Fid, Time};
use namespace::Entry;
use wire::op::{EntryName, Node};
use wire::{Change, Errno, Name};

impl Brick {
    /// What only files do that move.
    pub(crate) fn travel(&mut self, change: &Change, version: Version) -> Result<(), Errno> {
        match change {
            Change::Arrive { fid, time } => self.arrive(*fid, (version, *time)),
            Change::DepartAll { fid, to, copy, kind, names, time } => {
                self.depart_all(*fid, names, (*copy, *to, *kind), (version, *time))
            }
            Change::EndCopy { fid, names, time } => self.end_copy(*fid, names, (version, *time)),
            Change::ComeHome { parent, name, fid, copy, .. } => self.come_home((*parent, name), *fid, *copy),
            Change::Redirect { fid, to, copy, kind, names, time, dirs: _ } => {
                self.redirect(*fid, names, (*copy, *to, *kind), (version, *time))
            }
            change => self.depart(change, version),
        }
    }

    /// [`wire::Change::Arrive`].
    fn arrive(&mut self, fid: Fid, (version, time): (Version, Time)) -> Result<(), Errno> {
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
    fn depart(&mut self, change: &Change, version: Version) -> Result<(), Errno> {
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

    /// [`wire::Change::DepartAll`].
    ///
    /// The file becomes the stub, under all of its names: what its names lead to is told by one attribute, so that also after
    /// a power cut all of them lead to one of the two.
    fn depart_all(
        &mut self,
        fid: Fid,
        names: &[EntryName],
        who: Who,
        at: (Version, Time),
    ) -> Result<(), Errno> {
        self.progress.begins_later();
        let mut file = None;
        for place in names {
            match self.find(place.dir, place.name.as_bytes())? {
                At::Entry(e) if e.fid == fid => file = Some(self.open_fid(fid)?),
                At::Entry(e) if e.fid == who.0 && self.progress.is_replaying() => {}
                other => return self.diverged(place.dir, place.name.as_bytes(), other),
            }
        }
        let open = match file {
            Some(open) => {
                self.load(fid)?;
                open.set_tag(&new_stub(who, at).tag())?;
                self.progress.begins();
                // What it holds goes only when it is certain that it is a stub.
                self.synced(open.sync())?;
                open
            }
            None => self.open_fid(who.0)?,
        };
        strip_stub(&open, false)?;
        open.set_times(Times { atime: at.1, mtime: at.1 })?;
        let stat = open.stat()?;
        self.forget(fid);
        self.index.put(who.0, Located { handle: open.handle()?, kind: S_IFREG });
        self.keep_node(Known::new(new_stub(who, at).tag(), stat))?;
        for place in names {
            let (dir, name) = (place.dir, place.name.as_bytes());
            // A healing that was interrupted may have made the file twice: this name is of the other one.
            if tag_at(&*self.open_dir(dir)?, name)?.is_some_and(|tag| tag.fid == fid) {
                self.keep_times(dir)?;
                self.put_stub_over((dir, name), who, (fid, false), at)?;
                continue;
            }
            self.file_left(dir, name);
            self.entered(dir, name, Entry { fid: who.0, home: who.1, kind: who.2 });
        }
        Ok(())
    }

    /// [`wire::Change::EndCopy`].
    fn end_copy(&mut self, fid: Fid, names: &[EntryName], at: (Version, Time)) -> Result<(), Errno> {
        for place in names {
            self.have_folder_of_names(place.dir, at)?;
            if self.lies_among_orphans(fid)? {
                self.name_arrived(fid, place)?;
            } else {
                self.link(fid, place.dir, place.name.as_bytes())?;
            }
        }
        self.keep_arrived(fid)?;
        self.end_intent(fid, at.0)
    }

    /// [`wire::Change::ComeHome`]. The copy takes the place of the stub in one go.
    fn come_home(&mut self, (parent, name): (Fid, &Name), fid: Fid, copy: Fid) -> Result<(), Errno> {
        let bytes = name.as_bytes();
        match self.find(parent, bytes)? {
            At::Entry(e) if e.fid == fid => {}
            At::Entry(e) if e.fid == copy && self.progress.is_replaying() => {
                return self.leave_orphanage(copy);
            }
            other => return self.diverged(parent, bytes, other),
        }
        self.progress.begins_later();
        self.put_over((parent, bytes), fid, copy)?;
        self.progress.begins();
        Ok(())
    }

    /// [`wire::Change::Redirect`]. Each name for itself: what a power cut takes of them is asked for again.
    fn redirect(
        &mut self,
        fid: Fid,
        names: &[EntryName],
        who: Who,
        at: (Version, Time),
    ) -> Result<(), Errno> {
        let own = who.1 == self.identity.set;
        self.progress.begins_later();
        for place in names {
            let (dir, name) = (place.dir, place.name.as_bytes());
            match self.find(dir, name) {
                Ok(At::Entry(e)) if e.fid == fid => {}
                // The folder of names has gone with it.
                Err(Errno::ESTALE | Errno::ENOENT) if self.progress.is_replaying() => continue,
                other => {
                    self.diverged(dir, name, other?)?;
                    continue;
                }
            }
            self.keep_times(dir)?;
            if dir.is_names() {
                self.drop_name(fid, place, false)?;
                self.drop_folder_of_names(dir)?;
            } else if own {
                if !self.lies_among_orphans(who.0)? {
                    self.prepare_orphan(who.0)?;
                }
                self.put_over((dir, name), fid, who.0)?;
            } else {
                self.put_stub_over((dir, name), who, (fid, false), at)?;
            }
            self.progress.begins();
        }
        if own && self.is_orphan_with_name(who.0)? {
            self.leave_orphanage(who.0)?;
        }
        Ok(())
    }

    /// What lies among the orphans takes the place of a file, or of a stub, in one go.
    fn put_over(&mut self, (parent, bytes): (Fid, &[u8]), fid: Fid, copy: Fid) -> Result<(), Errno> {
        let dir = self.open_dir(parent)?;
        let last = self.last_name(fid)?;
        self.folders.orphans().release(copy, &dir, bytes)?;
        if last.is_some() {
            self.forget(fid);
        } else {
            self.invalidate_attrs(fid);
        }
        self.left(parent, bytes);
        self.invalidate_attrs(copy);
        self.entered(parent, bytes, Entry { fid: copy, home: self.identity.set, kind: S_IFREG });
        self.load(copy)?.set_orphan(false);
        Ok(())
    }

    /// The transaction that was to give a file its first name ends, and nothing is to be done: a power cut may have left it
    /// the name, and the tag that says that it has none.
    pub(crate) fn keep_arrived(&mut self, fid: Fid) -> Result<(), Errno> {
        if self.is_orphan(fid) && (!self.lies_among_orphans(fid)? || self.has_a_name_that_was_meant(fid)?) {
            self.leave_orphanage(fid)?;
        }
        Ok(())
    }

    /// Whether one of the names that a transaction is about leads to the file. The number of its links does not say so: a
    /// healing may have moved a name, or the directory that had it, to the heal trash.
    fn has_a_name_that_was_meant(&mut self, fid: Fid) -> Result<bool, Errno> {
        if self.fresh(fid)?.1.nlink < 2 {
            return Ok(false);
        }
        let open = self.open_fid(fid)?;
        let intent = open.meant()?.map(|meant| meant.intent);
        let mut names = open.names_of_copy()?;
        names.extend(intent.into_iter().flat_map(|intent| intent.drop.into_iter().chain(intent.add)));
        for name in names {
            for dir in [name.dir.without_names(), name.dir.names()] {
                let place = EntryName { dir, name: name.name.clone() };
                match self.leads_to(&place, fid) {
                    Ok(true) => return Ok(true),
                    Ok(false) | Err(Errno::ESTALE | Errno::ENOENT) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(false)
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
        let kind = self.open_fid(fid)?.kind;
        let dir = self.dir_of_name(add.dir, name)?;
        self.folders.orphans().release(fid, &dir, name)?;
        self.invalidate_attrs(fid);
        self.entered(add.dir, name, Entry { fid, home: self.identity.set, kind });
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

/// Takes away what a stub does not have: data, an owner, and attributes. A crash may have left them, where a file became one.
/// `marked`: it has an intent.
fn strip_stub(open: &OpenObject, marked: bool) -> Result<(), Errno> {
    let file: &File = open;
    let stat = file.stat()?;
    let stays = |name: &[u8]| name == XATTR.as_bytes() || marked && name == INTENT.as_bytes();
    for name in file.xattrs()?.iter().filter(|name| !stays(name)) {
        match open.remove_xattr(name) {
            // A label of the kernel's (SELinux) stays with the inode.
            Err(Errno::EACCES | Errno::EPERM | Errno::EOPNOTSUPP) => {}
            other => other?,
        }
    }
    if stat.size > 0 {
        open.truncate(0)?;
    }
    if (stat.uid, stat.gid) != (0, 0) {
        open.chown(Some(0), Some(0))?;
    }
    if stat.mode & 0o7777 != STUB_MODE {
        open.chmod(STUB_MODE)?;
    }
    Ok(())
}

/// The same of one that was met. Its times are not of interest, and what cannot be taken away is in nobody's way.
pub(crate) fn strip_left(seen: &Seen<'_>) {
    if !seen.is_entry() || seen.stat.mode & S_IFMT != S_IFREG {
        return;
    }
    let marked = matches!(&seen.tag, Ok(Some(tag)) if tag.flags & PENDING != 0);
    if let Err(e) = open_at(seen.dir, seen.name, S_IFREG).and_then(|open| strip_stub(&open, marked)) {
        tracing::warn!(stub = %seen.path.display(), error = %e, "a stub keeps what it was");
    }
}
