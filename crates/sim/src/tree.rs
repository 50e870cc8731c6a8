//! The model of a brick's tree: objects in memory, changed by [`wire::Change`] as a real brick would be.
//!
//! Cloning is cheap (objects are shared until one of them changes): snapshots are taken freely. A file's data is one number,
//! the tag of its newest write.

use ids::{Epoch, Fid, Lsn, SetId, Time};
use namespace::{Entry, View};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::op::Node;
use wire::{Attr, Change, Errno, Name};

/// One object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Object {
    /// Its attributes.
    pub(crate) attr: Attr,
    /// A directory's entries.
    pub(crate) entries: BTreeMap<Name, Fid>,
    /// The newest write of a file; 0 for none.
    pub(crate) tag: u64,
    parent: Fid,
    xattrs: BTreeMap<Name, Vec<u8>>,
    pending: bool,
}

/// A whole set's tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    set: SetId,
    objects: BTreeMap<Fid, Rc<Object>>,
}

/// Directories that every tree is born with, besides the root.
pub(crate) const FIRST_DIRS: u64 = 2;

/// The fid of such a directory.
pub(crate) fn first_dir(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(0), lsn: Lsn(n) }
}

impl Tree {
    /// A tree with a root and [`FIRST_DIRS`] directories in it.
    pub(crate) fn new(set: SetId) -> Tree {
        let root = Fid::root(set);
        let mut tree = Tree { set, objects: BTreeMap::new() };
        tree.put(root, root, 0o040_755, 2);
        for n in 1..=FIRST_DIRS {
            let fid = first_dir(set, n);
            tree.put(root, fid, 0o040_755, 2);
            tree.enter(root, &name(&format!("d{n}")), fid, Time::default());
        }
        tree
    }

    /// The object, if it exists.
    pub(crate) fn get(&self, fid: Fid) -> Option<&Object> {
        self.objects.get(&fid).map(|o| &**o)
    }

    fn put(&mut self, parent: Fid, fid: Fid, mode: u32, nlink: u32) {
        let attr = Attr {
            fid,
            home: self.set,
            mode,
            uid: 0,
            gid: 0,
            nlink,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        };
        let object = Object {
            attr,
            entries: BTreeMap::new(),
            tag: 0,
            parent,
            xattrs: BTreeMap::new(),
            pending: false,
        };
        self.objects.insert(fid, Rc::new(object));
    }

    fn edit(&mut self, fid: Fid) -> Option<&mut Object> {
        self.objects.get_mut(&fid).map(Rc::make_mut)
    }

    fn enter(&mut self, dir: Fid, name: &Name, fid: Fid, time: Time) {
        let is_dir = self.get(fid).is_some_and(|o| o.attr.is_dir());
        if let Some(o) = self.edit(fid) {
            o.parent = dir;
            o.attr.ctime = time;
        }
        if let Some(d) = self.edit(dir) {
            d.entries.insert(name.clone(), fid);
            d.attr.nlink += u32::from(is_dir);
            (d.attr.mtime, d.attr.ctime) = (time, time);
        }
    }

    fn leave(&mut self, dir: Fid, name: &Name, time: Time) {
        let Some(d) = self.edit(dir) else { return };
        let gone = d.entries.remove(name);
        (d.attr.mtime, d.attr.ctime) = (time, time);
        let is_dir = gone.and_then(|f| self.get(f)).is_some_and(|o| o.attr.is_dir());
        if let Some(d) = self.edit(dir) {
            d.attr.nlink -= u32::from(is_dir);
        }
    }

    fn unref(&mut self, fid: Fid, orphan: bool, time: Time) {
        let Some(o) = self.edit(fid) else { return };
        o.attr.ctime = time;
        o.attr.nlink = o.attr.nlink.saturating_sub(1);
        if o.attr.is_dir() || (o.attr.nlink == 0 && !orphan) {
            self.objects.remove(&fid);
        }
    }

    /// Carries out a change; `tag` is the data of a write.
    pub(crate) fn apply(&mut self, change: &Change, tag: u64) {
        match change {
            Change::Create { parent, name, fid, node, mode, uid, gid, time, .. } => {
                let nlink = if matches!(node, Node::Dir) { 2 } else { 1 };
                self.put(*parent, *fid, node.type_bits() | mode, nlink);
                if let Some(o) = self.edit(*fid) {
                    (o.attr.uid, o.attr.gid) = (*uid, *gid);
                    (o.attr.atime, o.attr.mtime) = (*time, *time);
                }
                self.enter(*parent, name, *fid, *time);
            }
            Change::Unlink { parent, name, fid, orphan, time } => {
                self.leave(*parent, name, *time);
                self.unref(*fid, *orphan, *time);
            }
            Change::Rmdir { parent, name, fid, time } => {
                self.leave(*parent, name, *time);
                self.unref(*fid, false, *time);
            }
            Change::Rename { parent, name, fid, to_parent, to_name, replaced, time } => {
                if let Some(r) = replaced {
                    self.leave(*to_parent, to_name, *time);
                    self.unref(r.fid, r.orphan, *time);
                }
                self.leave(*parent, name, *time);
                self.enter(*to_parent, to_name, *fid, *time);
            }
            Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, time } => {
                self.leave(*parent, name, *time);
                self.leave(*to_parent, to_name, *time);
                self.enter(*parent, name, *to_fid, *time);
                self.enter(*to_parent, to_name, *fid, *time);
            }
            Change::Link { fid, parent, name, time } => {
                self.enter(*parent, name, *fid, *time);
                if let Some(o) = self.edit(*fid) {
                    o.attr.nlink += 1;
                }
            }
            other => self.apply_to_object(other, tag),
        }
    }

    fn apply_to_object(&mut self, change: &Change, tag: u64) {
        let Some(o) = change.touched().first().and_then(|f| self.edit(*f)) else { return };
        match change {
            Change::SetAttr { mode, uid, gid, size, atime, mtime, time, .. } => {
                let a = &mut o.attr;
                a.mode = mode.map_or(a.mode, |m| a.mode & 0o170_000 | m);
                (a.uid, a.gid) = (uid.unwrap_or(a.uid), gid.unwrap_or(a.gid));
                (a.atime, a.mtime) = (atime.unwrap_or(a.atime), mtime.unwrap_or(a.mtime));
                a.ctime = *time;
                if let Some(size) = size {
                    a.size = *size;
                    o.tag = if *size == 0 { 0 } else { o.tag };
                }
            }
            Change::Write { offset, len, mode, time, .. } => {
                o.tag = tag;
                o.attr.size = o.attr.size.max(offset + u64::from(*len));
                o.attr.mode = mode.map_or(o.attr.mode, |m| o.attr.mode & 0o170_000 | m);
                (o.attr.mtime, o.attr.ctime) = (*time, *time);
            }
            Change::Fallocate { mode, offset, len, time, .. } => {
                if *mode == 0 {
                    o.attr.size = o.attr.size.max(offset + len);
                }
                (o.attr.mtime, o.attr.ctime) = (*time, *time);
            }
            Change::SetXattr { name, value, time, .. } => {
                o.xattrs.insert(name.clone(), value.0.clone());
                o.attr.ctime = *time;
            }
            Change::RemoveXattr { name, time, .. } => {
                o.xattrs.remove(name);
                o.attr.ctime = *time;
            }
            Change::CopyRange { to_offset, len, time, .. } => {
                o.attr.size = o.attr.size.max(to_offset + len);
                (o.attr.mtime, o.attr.ctime) = (*time, *time);
            }
            Change::Condemn { .. } => o.pending = true,
            Change::Settle { .. } => o.pending = false,
            Change::DropOrphan { fid } => {
                self.objects.remove(fid);
            }
            // Between sets: the simulator's sets do not talk to each other yet.
            _ => {}
        }
    }

    /// The parent of an object.
    pub(crate) fn parent(&self, fid: Fid) -> Option<Fid> {
        self.get(fid).map(|o| o.parent)
    }
}

/// A name from words of this crate's own.
pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).expect("the simulator's names are valid")
}

impl View for Tree {
    fn attr(&mut self, fid: Fid) -> Result<Attr, Errno> {
        self.get(fid).map(|o| o.attr.clone()).ok_or(Errno::ESTALE)
    }

    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno> {
        let dir = self.get(parent).ok_or(Errno::ESTALE)?;
        if !dir.attr.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let Some(fid) = dir.entries.get(name).copied() else { return Ok(None) };
        let kind = self.get(fid).map_or(0, |o| o.attr.mode & 0o170_000);
        Ok(Some(Entry { fid, home: self.set, kind }))
    }

    fn is_empty(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(self.get(dir).ok_or(Errno::ESTALE)?.entries.is_empty())
    }

    fn is_pending(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(self.get(dir).ok_or(Errno::ESTALE)?.pending)
    }

    fn has_default_acl(&mut self, _dir: Fid) -> Result<bool, Errno> {
        Ok(false)
    }

    fn xattr(&mut self, fid: Fid, name: &Name) -> Result<Option<Vec<u8>>, Errno> {
        Ok(self.get(fid).ok_or(Errno::ESTALE)?.xattrs.get(name).cloned())
    }

    fn is_beneath(&mut self, dir: Fid, above: Fid) -> Result<bool, Errno> {
        let mut at = dir;
        loop {
            if at == above {
                return Ok(true);
            }
            if at.is_root() {
                return Ok(false);
            }
            at = self.parent(at).ok_or(Errno::ESTALE)?;
        }
    }
}
