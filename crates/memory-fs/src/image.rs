//! A tree of inodes: as the page cache has it, or as the disk does.

use crate::op::{Ino, Op, PAGE, is_dir};
use file_system::{S_IFDIR, Stat};
use ids::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The root's inode number.
pub(crate) const ROOT: Ino = 2;

/// A page as a file has it: always whole.
type Page = Arc<[u8]>;

/// An inode.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u32,
    pub(crate) mtime: Time,
    /// When anything of it was last changed. It reaches the disk with that change: a kernel may write data that replaces
    /// other data in place a little earlier, which is not modelled.
    pub(crate) ctime: Time,
    pub(crate) size: u64,
    pub(crate) target: Vec<u8>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) pages: BTreeMap<u64, Page>,
    pub(crate) entries: BTreeMap<Vec<u8>, Ino>,
    /// Names that lead to it (of a directory: 1 while it has a name).
    names: u32,
    /// Directories in it.
    dirs: u32,
    /// The directory above, of a directory.
    pub(crate) parent: Ino,
}

impl Node {
    pub(crate) fn is_dir(&self) -> bool {
        is_dir(self.mode)
    }

    /// Names that lead to it, as `stat` counts them.
    pub(crate) fn links(&self) -> u32 {
        match (self.is_dir(), self.names) {
            (true, 0) => 0,
            (true, _) => 2 + self.dirs,
            (false, n) => n,
        }
    }

    /// Bytes at an offset: zeros where there is a hole. Short at the end.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out = Vec::new();
        let mut at = offset;
        while at < end {
            let (index, from) = (at / PAGE, at % PAGE);
            let n = (PAGE - from).min(end - at);
            let range = usize::try_from(from).unwrap_or(0)..usize::try_from(from + n).unwrap_or(0);
            match self.pages.get(&index) {
                Some(page) => out.extend_from_slice(page.get(range).unwrap_or_default()),
                None => out.resize(out.len() + range.len(), 0),
            }
            at += n;
        }
        out
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let from = usize::try_from(offset % PAGE).unwrap_or(0);
        let page = self.pages.entry(offset / PAGE).or_insert_with(|| zeros().into());
        let mut bytes = page.to_vec();
        if let Some(part) = bytes.get_mut(from..from + data.len()) {
            part.copy_from_slice(data);
        }
        *page = bytes.into();
        self.size = self.size.max(offset + data.len() as u64);
    }

    fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.pages.split_off(&size.div_ceil(PAGE));
            self.clear(size, size.next_multiple_of(PAGE) - size);
        }
        self.size = size;
    }

    fn clear(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        let gone: Vec<u64> =
            self.pages.range(whole.start..whole.end.max(whole.start)).map(|(n, _)| *n).collect();
        for n in gone {
            self.pages.remove(&n);
        }
        for (from, to) in
            [(offset, end.min(offset.next_multiple_of(PAGE))), (offset.max(end - end % PAGE), end)]
        {
            if from < to
                && from / PAGE == (to - 1) / PAGE
                && let Some(page) = self.pages.get_mut(&(from / PAGE))
            {
                let start = usize::try_from(from % PAGE).unwrap_or(0);
                let len = usize::try_from(to - from).unwrap_or(0);
                let mut bytes = page.to_vec();
                if let Some(part) = bytes.get_mut(start..start + len) {
                    part.fill(0);
                }
                *page = bytes.into();
            }
        }
    }

    fn shift(&mut self, from: u64, by: i64) {
        let moved = self.pages.split_off(&from);
        self.pages.extend(moved.into_iter().filter_map(|(n, p)| Some((n.checked_add_signed(by)?, p))));
    }
}

fn zeros() -> Vec<u8> {
    vec![0; usize::try_from(PAGE).unwrap_or(4096)]
}

/// Inodes by number, the root among them.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    nodes: BTreeMap<Ino, Node>,
}

impl Default for Image {
    fn default() -> Image {
        let root = Node { mode: S_IFDIR | 0o755, names: 1, parent: ROOT, ..Node::default() };
        Image { nodes: BTreeMap::from([(ROOT, root)]) }
    }
}

impl Image {
    pub(crate) fn node(&self, ino: Ino) -> Option<&Node> {
        self.nodes.get(&ino)
    }

    pub(crate) fn entry(&self, dir: Ino, name: &[u8]) -> Option<Ino> {
        self.nodes.get(&dir)?.entries.get(name).copied()
    }

    pub(crate) fn stat(&self, ino: Ino) -> Option<Stat> {
        let n = self.nodes.get(&ino)?;
        let size = if n.is_dir() { PAGE } else { n.size.max(n.target.len() as u64) };
        Some(Stat {
            mode: n.mode,
            uid: n.uid,
            gid: n.gid,
            nlink: n.links(),
            rdev: n.rdev,
            size,
            blocks: n.pages.len() as u64 * (PAGE / 512),
            ino,
            dev: 1,
            // Nobody reads it there.
            atime: n.mtime,
            mtime: n.mtime,
            ctime: n.ctime,
        })
    }

    /// Pages of data in all files.
    pub(crate) fn pages(&self) -> u64 {
        self.nodes.values().map(|n| n.pages.len() as u64).sum()
    }

    /// Inodes.
    pub(crate) fn inodes(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// All inodes with data.
    pub(crate) fn files(&self) -> BTreeSet<Ino> {
        self.nodes.iter().filter(|(_, n)| !n.pages.is_empty()).map(|(ino, _)| *ino).collect()
    }

    /// Whether `dir` is `above` or lies beneath it.
    pub(crate) fn is_beneath(&self, dir: Ino, above: Ino) -> bool {
        let mut at = dir;
        for _ in 0..=self.nodes.len() {
            if at == above {
                return true;
            }
            match self.nodes.get(&at) {
                Some(n) if at != ROOT => at = n.parent,
                _ => return false,
            }
        }
        true
    }

    /// The inode and all directories on the ways to it.
    pub(crate) fn with_above(&self, ino: Ino) -> BTreeSet<Ino> {
        let holds = |n: &Node| n.entries.values().any(|e| *e == ino);
        let mut todo: Vec<Ino> = self.nodes.iter().filter(|(_, n)| holds(n)).map(|(dir, _)| *dir).collect();
        let mut found = BTreeSet::from([ino]);
        while let Some(dir) = todo.pop() {
            if found.insert(dir) {
                todo.extend(self.nodes.get(&dir).map(|n| n.parent));
            }
        }
        found
    }

    /// Whether the operation makes sense here: for a crash that takes some operations and leaves others.
    pub(crate) fn fits(&self, op: &Op) -> bool {
        let is = |dir: &Ino, name: &Vec<u8>, ino: &Ino| self.entry(*dir, name) == Some(*ino);
        let free = |dir: &Ino, name: &Vec<u8>| {
            self.nodes.get(dir).is_some_and(Node::is_dir) && self.entry(*dir, name).is_none()
        };
        let empty = |ino: &Ino| self.nodes.get(ino).is_some_and(|n| n.entries.is_empty());
        match op {
            Op::New { ino, .. } => !self.nodes.contains_key(ino),
            Op::Link { dir, name, ino } => {
                let one = self.nodes.get(ino).is_some_and(|n| !n.is_dir() || n.names == 0);
                one && free(dir, name) && !(self.is_dir(*ino) && self.is_beneath(*dir, *ino))
            }
            Op::Unlink { dir, name, ino } => is(dir, name, ino) && empty(ino),
            Op::Rename { dir, name, to, to_name, ino, replaced } => {
                let room = match replaced {
                    Some(out) => is(to, to_name, out) && empty(out),
                    None => free(to, to_name),
                };
                room && is(dir, name, ino)
                    && !(self.is_dir(*ino) && self.is_beneath(*to, *ino))
                    && (self.is_named(*to) || !self.is_named(*dir))
            }
            Op::Exchange { dir, name, to, to_name, ino, other } => {
                let loops = |moved: &Ino, into: &Ino| self.is_dir(*moved) && self.is_beneath(*into, *moved);
                is(dir, name, ino)
                    && is(to, to_name, other)
                    && !loops(ino, to)
                    && !loops(other, dir)
                    && self.is_named(*dir) == self.is_named(*to)
            }
            Op::Attr { ino, .. }
            | Op::Xattr { ino, .. }
            | Op::Size { ino, .. }
            | Op::Write { ino, .. }
            | Op::Punch { ino, .. }
            | Op::Collapse { ino, .. }
            | Op::Insert { ino, .. } => self.nodes.contains_key(ino),
            Op::Free { ino } => self.nodes.get(ino).is_some_and(|n| n.names == 0),
        }
    }

    /// Whether names lead from the root to this directory. What lies in another one is gone after a check, and no file system
    /// moves there what has a name: it writes a new directory's name before the move.
    fn is_named(&self, dir: Ino) -> bool {
        let mut at = dir;
        for _ in 0..=self.nodes.len() {
            match self.nodes.get(&at) {
                Some(_) if at == ROOT => return true,
                Some(n) if n.names > 0 => at = n.parent,
                _ => return false,
            }
        }
        false
    }

    fn is_dir(&self, ino: Ino) -> bool {
        self.nodes.get(&ino).is_some_and(Node::is_dir)
    }

    /// Carries out an operation that fits, and that was done at `time`.
    pub(crate) fn apply(&mut self, op: &Op, time: Time) {
        self.carry_out(op);
        for ino in op.inodes() {
            if let Some(node) = self.nodes.get_mut(&ino) {
                node.ctime = time;
            }
        }
    }

    fn carry_out(&mut self, op: &Op) {
        match op {
            Op::New { ino, mode, uid, gid, rdev, target, time } => {
                let (mode, uid, gid, rdev) = (*mode, *uid, *gid, *rdev);
                let node =
                    Node { mode, uid, gid, rdev, target: target.clone(), mtime: *time, ..Node::default() };
                self.nodes.insert(*ino, node);
            }
            Op::Link { dir, name, ino } => self.enter(*dir, name, *ino),
            Op::Unlink { dir, name, .. } => self.leave(*dir, name),
            Op::Rename { dir, name, to, to_name, ino, .. } => {
                self.leave(*to, to_name);
                self.leave(*dir, name);
                self.enter(*to, to_name, *ino);
            }
            Op::Exchange { dir, name, to, to_name, ino, other } => {
                self.leave(*dir, name);
                self.leave(*to, to_name);
                self.enter(*dir, name, *other);
                self.enter(*to, to_name, *ino);
            }
            Op::Free { ino } => drop(self.nodes.remove(ino)),
            Op::Attr { ino, .. }
            | Op::Xattr { ino, .. }
            | Op::Size { ino, .. }
            | Op::Write { ino, .. }
            | Op::Punch { ino, .. }
            | Op::Collapse { ino, .. }
            | Op::Insert { ino, .. } => {
                if let Some(node) = self.nodes.get_mut(ino) {
                    change(node, op);
                }
            }
        }
    }

    fn enter(&mut self, dir: Ino, name: &[u8], ino: Ino) {
        let mut is_dir = false;
        if let Some(n) = self.nodes.get_mut(&ino) {
            n.names += 1;
            is_dir = n.is_dir();
            if is_dir {
                n.parent = dir;
            }
        }
        if let Some(d) = self.nodes.get_mut(&dir) {
            d.entries.insert(name.to_vec(), ino);
            d.dirs += u32::from(is_dir);
        }
    }

    fn leave(&mut self, dir: Ino, name: &[u8]) {
        let Some(ino) = self.nodes.get_mut(&dir).and_then(|d| d.entries.remove(name)) else { return };
        let mut is_dir = false;
        if let Some(n) = self.nodes.get_mut(&ino) {
            n.names = n.names.saturating_sub(1);
            is_dir = n.is_dir();
        }
        if let Some(d) = self.nodes.get_mut(&dir) {
            d.dirs -= u32::from(is_dir);
        }
    }

    /// What a file system check does: inodes that no name leads to go, and links are counted.
    pub(crate) fn repair(&mut self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut todo = vec![ROOT];
        while let Some(at) = todo.pop() {
            let count = names.entry(at).or_default();
            *count += 1;
            if *count == 1
                && let Some(n) = self.nodes.get(&at)
            {
                todo.extend(n.entries.values());
            }
        }
        self.nodes.retain(|ino, _| names.contains_key(ino));
        for (ino, count) in names {
            if let Some(n) = self.nodes.get_mut(&ino) {
                n.names = count;
            }
        }
    }
}

fn change(node: &mut Node, op: &Op) {
    match op {
        Op::Attr { mode, uid, gid, mtime, .. } => {
            if let Some(mode) = mode {
                node.mode = node.mode & !0o7777 | mode & 0o7777;
            }
            node.uid = uid.unwrap_or(node.uid);
            node.gid = gid.unwrap_or(node.gid);
            node.mtime = mtime.unwrap_or(node.mtime);
        }
        Op::Xattr { name, value, .. } => {
            match value {
                Some(v) => node.xattrs.insert(name.clone(), v.clone()),
                None => node.xattrs.remove(name),
            };
        }
        Op::Size { size, .. } => node.set_size(*size),
        Op::Write { offset, data, .. } => node.write(*offset, data),
        Op::Punch { offset, len, .. } => node.clear(*offset, *len),
        Op::Collapse { offset, len, .. } => {
            node.clear(*offset, *len);
            node.shift((offset + len) / PAGE, -i64::try_from(len / PAGE).unwrap_or(0));
            node.size = node.size.saturating_sub(*len);
        }
        Op::Insert { offset, len, .. } => {
            node.shift(offset / PAGE, i64::try_from(len / PAGE).unwrap_or(0));
            node.size += len;
        }
        _ => {}
    }
}
