//! What healing does to the model of a tree, as the real brick does it: objects are taken over one by one, names put aside.

use crate::patient::sum;
use crate::tree::{Tree, blocks, bytes};
use ids::Fid;
use replica::healing::{Made, Sums};
use std::collections::BTreeSet;
use std::rc::Rc;
use wire::codec::Blob;
use wire::limits::SUM_BYTES;
use wire::peer::Object;
use wire::reply::DirEntry;
use wire::{Change, Errno, Name};

const ORPHAN: u8 = 2;
const PENDING: u8 = 1;
const KIND: u32 = 0o170_000;

/// The order of names in a directory.
pub(crate) fn order(name: &Name) -> u64 {
    let hash = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    (name.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, hash) >> 1).max(3)
}

impl Tree {
    /// Whether the tree is as the change expects it. A real brick finds that out and refuses.
    pub(crate) fn fits(&self, change: &Change) -> Result<(), Errno> {
        let at = |dir: &Fid, name: &Name| -> Result<Option<Fid>, Errno> {
            Ok(self.get(*dir).ok_or(Errno::ESTALE)?.entries.get(name).copied())
        };
        let is = |dir: &Fid, name: &Name, fid: Option<Fid>| match at(dir, name)? == fid {
            true => Ok(()),
            false => Err(Errno::EIO),
        };
        match change {
            Change::Create { parent, name, .. } => is(parent, name, None),
            Change::Unlink { parent, name, fid, .. } | Change::Rmdir { parent, name, fid, .. } => {
                is(parent, name, Some(*fid))
            }
            Change::Rename { parent, name, fid, to_parent, to_name, replaced, .. } => {
                is(parent, name, Some(*fid))?;
                is(to_parent, to_name, replaced.as_ref().map(|r| r.fid))?;
                self.check_loop(*fid, *to_parent)
            }
            Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, .. } => {
                is(parent, name, Some(*fid))?;
                is(to_parent, to_name, Some(*to_fid))?;
                self.check_loop(*fid, *to_parent)?;
                self.check_loop(*to_fid, *parent)
            }
            Change::Link { fid, parent, name, .. } => {
                self.get(*fid).ok_or(Errno::ESTALE)?;
                is(parent, name, None)
            }
            Change::CopyRange { from, to, .. } => {
                self.get(*from).and(self.get(*to)).map(drop).ok_or(Errno::ESTALE)
            }
            Change::Nop | Change::DropOrphan { .. } | Change::Touch { .. } | Change::Partial { .. } => Ok(()),
            other => match other.touched().into_iter().all(|f| self.get(f).is_some()) {
                true => Ok(()),
                false => Err(Errno::ESTALE),
            },
        }
    }

    /// No directory can come to lie beneath itself.
    fn check_loop(&self, dir: Fid, under: Fid) -> Result<(), Errno> {
        let mut at = under;
        for _ in 0..self.objects.len() {
            if at == dir {
                return Err(Errno::EINVAL);
            }
            match self.parent(at).filter(|_| !at.is_root()) {
                Some(up) => at = up,
                None => break,
            }
        }
        Ok(())
    }

    /// What an object is like, for another brick.
    pub(crate) fn object(&self, fid: Fid) -> Option<Object> {
        let o = self.get(fid)?;
        let flags = if o.orphan { ORPHAN } else { 0 } | if o.pending { PENDING } else { 0 };
        let xattrs = o.xattrs.iter().map(|(n, v)| (n.clone(), Blob(v.clone()))).collect();
        Some(Object { attr: o.attr.clone(), version: o.version.clone(), flags, xattrs, place: None })
    }

    /// At most `count` entries after a position, and where they end if they are not all.
    pub(crate) fn entries_after(
        &self,
        dir: Fid,
        after: u64,
        count: usize,
    ) -> Option<(Vec<DirEntry>, Option<u64>)> {
        let dir = self.get(dir).filter(|o| o.attr.is_dir())?;
        let mut all: Vec<(u64, &Name, Fid)> =
            dir.entries.iter().map(|(n, f)| (order(n), n, *f)).filter(|(at, ..)| *at > after).collect();
        all.sort_unstable();
        let upto = all.get(count).and(all.get(count - 1)).map(|(at, ..)| *at);
        let entry = |(cookie, name, fid): (u64, &Name, Fid)| {
            let attr = self.get(fid).map(|o| o.attr.clone());
            let kind = attr.as_ref().map_or(0, |a| a.mode & KIND);
            DirEntry { cookie, name: name.clone(), fid, home: self.set, kind, attr }
        };
        Some((all.into_iter().take(count).map(entry).collect(), upto))
    }

    /// Data of a file, and whether it ends there.
    pub(crate) fn data(&self, fid: Fid, offset: u64, len: u32) -> Option<(Vec<u64>, bool)> {
        let all = &self.get(fid).filter(|o| !o.attr.is_dir())?.data;
        let (start, n) = (blocks(offset).min(all.len()), blocks(u64::from(len)));
        let part = all.get(start..all.len().min(start + n)).unwrap_or_default().to_vec();
        let end = part.len() < n;
        Some((part, end))
    }

    /// Checksums of a file's pieces.
    pub(crate) fn sums(&self, fid: Fid, offset: u64, len: u32) -> Result<Sums, Errno> {
        let all = &self.get(fid).filter(|o| !o.attr.is_dir()).ok_or(Errno::ESTALE)?.data;
        let start = blocks(offset).min(all.len());
        let stop = all.len().min(start + blocks(u64::from(len)));
        let part = all.get(start..stop).unwrap_or_default();
        let sums = part.chunks(blocks(u64::from(SUM_BYTES))).map(sum).collect();
        let end = part.len() < blocks(u64::from(len));
        Ok(Sums { sums, len: u32::try_from(bytes(part.len())).unwrap_or(len), end })
    }

    /// Files without a name.
    pub(crate) fn orphans(&self) -> Vec<Fid> {
        self.objects.iter().filter(|(_, o)| o.orphan).map(|(f, _)| *f).collect()
    }

    /// See [`replica::healing::Patient::take_object`].
    pub(crate) fn take_object(&mut self, fid: Fid, object: &Object) -> bool {
        let orphan = object.flags & ORPHAN != 0;
        if orphan && !self.objects.contains_key(&fid) {
            self.put(Fid::default(), fid, object.attr.mode);
        }
        if orphan {
            self.aside.remove(&fid);
        }
        let Some(o) = self.edit(fid) else { return false };
        let nlink = o.attr.nlink;
        o.attr = object.attr.clone();
        o.attr.nlink = nlink;
        o.resize(blocks(object.attr.size));
        o.xattrs = object.xattrs.iter().map(|(n, v)| (n.clone(), v.0.clone())).collect();
        o.version = object.version.clone();
        o.orphan = orphan;
        o.pending = object.flags & PENDING != 0;
        true
    }

    /// See [`replica::healing::Patient::take_entries`].
    pub(crate) fn take_entries(
        &mut self,
        dir: Fid,
        after: u64,
        upto: Option<u64>,
        entries: &[DirEntry],
    ) -> Result<Vec<Made>, Errno> {
        let last = upto.unwrap_or(u64::MAX);
        let here = self.get(dir).ok_or(Errno::ESTALE)?.entries.clone();
        for (name, fid) in here {
            let at = order(&name);
            let wanted = entries.iter().any(|e| e.name == name && e.fid == fid);
            if at > after && at <= last && !wanted {
                self.put_aside(dir, &name, fid);
            }
        }
        let mut made = Vec::new();
        for e in entries {
            if !self.get(dir).ok_or(Errno::ESTALE)?.entries.contains_key(&e.name) {
                made.extend(self.take_entry(dir, e)?);
            }
        }
        self.recount();
        Ok(made)
    }

    fn put_aside(&mut self, dir: Fid, name: &Name, fid: Fid) {
        self.edit(dir).into_iter().for_each(|d| _ = d.entries.remove(name));
        self.recount();
        let keeps_a_name = self.get(fid).is_none_or(|o| !o.attr.is_dir() && o.attr.nlink > 0);
        let orphan = self.get(fid).is_some_and(|o| o.orphan);
        if !keeps_a_name && !orphan {
            self.aside.insert(fid);
            let root = Fid::root(self.set);
            self.edit(fid).into_iter().filter(|o| o.attr.is_dir()).for_each(|o| o.parent = root);
        }
    }

    fn take_entry(&mut self, dir: Fid, e: &DirEntry) -> Result<Option<Made>, Errno> {
        let is_dir = e.kind == 0o040_000;
        let known = self.objects.contains_key(&e.fid);
        let mut again = None;
        if !known {
            self.put(dir, e.fid, e.kind | 0o700);
        } else if is_dir {
            if self.check_loop(e.fid, dir).is_err() {
                // It cannot lie beneath itself: something above the directory it goes into is not where it belongs, or that
                // itself. Where it is now has to be compared again.
                again = self.get(dir).map(|o| Made { fid: o.parent, dir: true });
                self.leave_place(dir);
                self.aside.insert(dir);
            }
            self.leave_place(e.fid);
        }
        self.aside.remove(&e.fid);
        self.edit(dir).into_iter().for_each(|d| _ = d.entries.insert(e.name.clone(), e.fid));
        if is_dir {
            self.edit(e.fid).into_iter().for_each(|o| o.parent = dir);
        }
        Ok(if known { again } else { Some(Made { fid: e.fid, dir: is_dir }) })
    }

    /// Takes a directory out of the one it lies in.
    fn leave_place(&mut self, fid: Fid) {
        let from = self.get(fid).map(|o| o.parent);
        if let Some(d) = from.and_then(|p| self.edit(p)) {
            d.entries.retain(|_, f| *f != fid);
        }
        let root = Fid::root(self.set);
        self.edit(fid).into_iter().for_each(|o| o.parent = root);
    }

    /// See [`replica::healing::Patient::take_data`].
    pub(crate) fn take_data(&mut self, fid: Fid, offset: u64, data: &[u64]) -> Result<(), Errno> {
        let arbiter = self.arbiter;
        let o = self.edit(fid).ok_or(Errno::ESTALE)?;
        if !arbiter && !o.attr.is_dir() && !data.is_empty() {
            o.write(blocks(offset), data);
        }
        Ok(())
    }

    /// The healing is over: what was put aside goes, with all beneath it.
    pub(crate) fn empty_aside(&mut self) {
        self.aside.clear();
        let mut live: BTreeSet<Fid> = self.orphans().into_iter().collect();
        let mut todo = vec![Fid::root(self.set)];
        while let Some(fid) = todo.pop() {
            live.insert(fid);
            todo.extend(self.get(fid).iter().flat_map(|o| o.entries.values().copied()));
        }
        self.objects.retain(|f, _| live.contains(f));
        self.recount();
    }

    /// Numbers of links follow from the names.
    pub(crate) fn recount(&mut self) {
        let mut counts = std::collections::BTreeMap::<Fid, u32>::new();
        for (fid, o) in &self.objects {
            let dirs = o.entries.values().filter(|f| self.get(**f).is_some_and(|o| o.attr.is_dir())).count();
            if o.attr.is_dir() {
                counts.insert(*fid, 2 + u32::try_from(dirs).unwrap_or(0));
            }
            for f in o.entries.values().filter(|f| self.get(**f).is_some_and(|o| !o.attr.is_dir())) {
                *counts.entry(*f).or_default() += 1;
            }
        }
        for (fid, o) in &mut self.objects {
            let nlink = counts.get(fid).copied().unwrap_or(0);
            if o.attr.nlink != nlink {
                Rc::make_mut(o).attr.nlink = nlink;
            }
        }
    }

    /// Where another tree differs, in words.
    pub(crate) fn differences(&self, other: &Tree) -> String {
        let mut all: BTreeSet<Fid> = self.objects.keys().copied().collect();
        all.extend(other.objects.keys().copied());
        all.retain(|f| self.get(*f) != other.get(*f));
        let words = |f: &Fid| match (self.get(*f), other.get(*f)) {
            (Some(a), Some(b)) => format!("{f}: {}; ", a.differences(b)),
            (a, b) => format!("{f}: {a:?} here, {b:?} there; "),
        };
        let mut text: String = all.iter().take(3).map(words).collect();
        if self.aside != other.aside {
            text.push_str(&format!("aside {:?} here, {:?} there", self.aside, other.aside));
        }
        text
    }

    /// The tree without what an arbiter does not hold.
    pub(crate) fn bare(&self) -> Tree {
        let mut tree = self.clone();
        for o in tree.objects.values_mut() {
            if o.data.iter().any(|b| *b != 0) {
                Rc::make_mut(o).data.iter_mut().for_each(|b| *b = 0);
            }
        }
        tree.arbiter = true;
        tree
    }
}
