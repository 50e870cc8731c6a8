//! The model of a brick's tree: objects in memory, changed by [`wire::Change`] as a real brick would be.
//!
//! Cloning is cheap (objects are shared until one of them changes): snapshots are taken freely. A file's data is one number
//! for each block, the tag of its newest write; all sizes are whole blocks.

use ids::{Epoch, Fid, Lsn, SetId, Time};
use namespace::{Entry, Lineage, View};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use wire::limits::IO_MAX;
use wire::peer::Stamp;
use wire::{Attr, Change, Errno, Name};

/// One object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Object {
    /// Its attributes.
    pub(crate) attr: Attr,
    /// A directory's entries.
    pub(crate) entries: BTreeMap<Name, Fid>,
    /// The newest write of each block of a file; 0 for none.
    pub(crate) data: Vec<u64>,
    /// The last change in it.
    pub(crate) version: Stamp,
    /// It has no name and is kept for those who have it open.
    pub(crate) orphan: bool,
    /// Where a directory hangs.
    pub(crate) parent: Fid,
    pub(crate) xattrs: BTreeMap<Name, Vec<u8>>,
    pub(crate) pending: bool,
}

/// A whole set's tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tree {
    pub(crate) set: SetId,
    pub(crate) objects: BTreeMap<Fid, Rc<Object>>,
    /// What a healing took out of its place.
    pub(crate) aside: BTreeSet<Fid>,
    /// Files have sizes and no data.
    pub(crate) arbiter: bool,
}

/// Bytes of a block: several make the most that healing asks for at once.
pub(crate) const BLOCK: u32 = IO_MAX / 2;

/// How many blocks so many bytes are.
pub(crate) fn blocks(bytes: u64) -> usize {
    usize::try_from(bytes / u64::from(BLOCK)).unwrap_or(0)
}

/// How many bytes so many blocks are.
pub(crate) fn bytes(blocks: usize) -> u64 {
    blocks as u64 * u64::from(BLOCK)
}

/// Directories that every tree is born with, besides the root.
pub(crate) const FIRST_DIRS: u64 = 2;

/// The fid of such a directory.
pub(crate) fn first_dir(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(0), lsn: Lsn(n) }
}

impl Object {
    /// Gives a file so many blocks.
    pub(crate) fn resize(&mut self, to: usize) {
        self.data.resize(to, 0);
        self.attr.size = bytes(to);
    }

    /// Gives a file other data without changing its size.
    pub(crate) fn set_data(&mut self, data: &[u64]) {
        let n = self.data.len();
        self.data = data.to_vec();
        self.resize(n);
    }

    /// Writes blocks.
    pub(crate) fn write(&mut self, at: usize, data: &[u64]) {
        self.resize(self.data.len().max(at + data.len()));
        self.data.splice(at..at + data.len(), data.iter().copied());
    }
}

impl Object {
    /// Which parts differ, in words.
    pub(crate) fn differences(&self, other: &Object) -> String {
        let parts = [
            ("attributes", format!("{:?}", self.attr), format!("{:?}", other.attr)),
            ("entries", format!("{:?}", self.entries), format!("{:?}", other.entries)),
            ("data", format!("{:?}", self.data), format!("{:?}", other.data)),
            ("version", format!("{:?}", self.version), format!("{:?}", other.version)),
            ("parent", format!("{:?}", self.parent), format!("{:?}", other.parent)),
            ("xattrs", format!("{:?}", self.xattrs), format!("{:?}", other.xattrs)),
            (
                "marks",
                format!("{} {}", self.orphan, self.pending),
                format!("{} {}", other.orphan, other.pending),
            ),
        ];
        let words = |(part, a, b): &(&str, String, String)| format!("{part} {a} here, {b} there ");
        parts.iter().filter(|(_, a, b)| a != b).map(words).collect()
    }
}

impl Tree {
    /// A tree with a root and [`FIRST_DIRS`] directories in it.
    pub(crate) fn new(set: SetId) -> Tree {
        let root = Fid::root(set);
        let mut tree = Tree { set, objects: BTreeMap::new(), aside: BTreeSet::new(), arbiter: false };
        tree.put(root, root, 0o040_755);
        for n in 1..=FIRST_DIRS {
            let fid = first_dir(set, n);
            tree.put(root, fid, 0o040_755);
            tree.enter(root, &name(&format!("d{n}")), fid, Time::default());
        }
        tree
    }

    /// The object, if it exists.
    pub(crate) fn get(&self, fid: Fid) -> Option<&Object> {
        self.objects.get(&fid).map(|o| &**o)
    }

    /// Makes an object without a name.
    pub(crate) fn put(&mut self, parent: Fid, fid: Fid, mode: u32) {
        let is_dir = mode & 0o170_000 == 0o040_000;
        let nlink = if is_dir { 2 } else { 0 };
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
            data: Vec::new(),
            version: Stamp { epoch: Epoch(0), lsn: Lsn(0) },
            orphan: false,
            parent: if is_dir { parent } else { Fid::default() },
            xattrs: BTreeMap::new(),
            pending: false,
        };
        self.objects.insert(fid, Rc::new(object));
    }

    pub(crate) fn edit(&mut self, fid: Fid) -> Option<&mut Object> {
        self.objects.get_mut(&fid).map(Rc::make_mut)
    }

    fn enter(&mut self, dir: Fid, name: &Name, fid: Fid, time: Time) {
        let is_dir = self.get(fid).is_some_and(|o| o.attr.is_dir());
        let Some(d) = self.edit(dir) else { return };
        // An exchange of a name with itself enters it twice.
        let fresh = u32::from(d.entries.insert(name.clone(), fid).is_none());
        d.attr.nlink += if is_dir { fresh } else { 0 };
        (d.attr.mtime, d.attr.ctime) = (time, time);
        if let Some(o) = self.edit(fid) {
            if is_dir {
                o.parent = dir;
            } else {
                o.attr.nlink += fresh;
            }
            o.attr.ctime = time;
        }
    }

    fn leave(&mut self, dir: Fid, name: &Name, time: Time) {
        let Some(d) = self.edit(dir) else { return };
        let gone = d.entries.remove(name);
        (d.attr.mtime, d.attr.ctime) = (time, time);
        let Some(fid) = gone else { return };
        if self.get(fid).is_some_and(|o| o.attr.is_dir()) {
            self.edit(dir).into_iter().for_each(|d| d.attr.nlink -= 1);
        } else if let Some(o) = self.edit(fid) {
            o.attr.nlink -= 1;
        }
    }

    fn unref(&mut self, fid: Fid, orphan: bool, time: Time) {
        let Some(o) = self.edit(fid) else { return };
        o.attr.ctime = time;
        o.orphan |= orphan;
        if o.attr.is_dir() || (o.attr.nlink == 0 && !orphan) {
            self.objects.remove(&fid);
        }
    }

    /// Carries out a change; `tag` is the data of a write.
    pub(crate) fn apply(&mut self, stamp: &Stamp, change: &Change, tag: u64) {
        self.act(change, if self.arbiter { 0 } else { tag });
        for fid in change.touched() {
            if let Some(o) = self.edit(fid) {
                o.version = stamp.clone();
            }
        }
    }

    fn act(&mut self, change: &Change, tag: u64) {
        match change {
            Change::Create { parent, name, fid, node, mode, uid, gid, time, .. } => {
                self.put(*parent, *fid, node.type_bits() | mode);
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
            Change::Link { fid, parent, name, time } => self.enter(*parent, name, *fid, *time),
            Change::CopyRange { from, from_offset, to, to_offset, len, .. } => {
                let start = blocks(*from_offset);
                let source = self.get(*from).map(|o| o.data.clone()).unwrap_or_default();
                let end = source.len().min(start + blocks(*len));
                let data = source.get(start..end).unwrap_or_default();
                if let Some(o) = self.edit(*to) {
                    o.write(blocks(*to_offset), data);
                }
                self.apply_to_object(change, tag);
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
                    o.resize(blocks(*size));
                }
            }
            Change::Write { offset, len, mode, time, .. } => {
                o.write(blocks(*offset), &vec![tag; blocks(u64::from(*len))]);
                o.attr.mode = mode.map_or(o.attr.mode, |m| o.attr.mode & 0o170_000 | m);
                (o.attr.mtime, o.attr.ctime) = (*time, *time);
            }
            Change::Fallocate { mode, offset, len, time, .. } => {
                let (at, n) = (blocks(*offset), blocks(*len));
                match mode {
                    0 => o.resize(o.data.len().max(at + n)),
                    8 => drop(o.data.drain(at.min(o.data.len())..(at + n).min(o.data.len()))),
                    0x20 => drop(o.data.splice(at.min(o.data.len())..at.min(o.data.len()), vec![0; n])),
                    _ => o.data.iter_mut().skip(at).take(n).for_each(|b| *b = 0),
                }
                o.resize(o.data.len());
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
            Change::CopyRange { time, .. } => {
                (o.attr.mtime, o.attr.ctime) = (*time, *time);
            }
            Change::Condemn { .. } => o.pending = true,
            Change::Settle { .. } => o.pending = false,
            Change::DropOrphan { fid } => drop(self.objects.remove(fid)),
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

    fn lineage(&mut self, dir: Fid) -> Result<Lineage, Errno> {
        let mut lineage = Lineage::default();
        let mut at = dir;
        while !at.is_root() {
            lineage.own.push(at);
            at = self.parent(at).ok_or(Errno::ESTALE)?;
        }
        Ok(lineage)
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
