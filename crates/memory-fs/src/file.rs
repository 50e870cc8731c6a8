//! Open objects: the calls, with Linux' checks and errors.

use crate::disk::Disk;
use crate::image::{Node, ROOT};
use crate::op::{Ino, Op, PAGE, is_dir};
use file_system::{
    File, Handle, Object, Opening, Renaming, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Space, Stat, Times,
};
use ids::Time;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Errno;

const NAME_MAX: usize = 255;
/// The largest file, in bytes: ext4's bound with blocks of 4 KiB.
const FILE_MAX: u64 = (1 << 44) - PAGE;
/// The kind of our handles.
const HANDLE: i32 = 1;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const COLLAPSE: u32 = 8;
const ZERO_RANGE: u32 = 0x10;
const INSERT: u32 = 0x20;

/// An open object of a simulated disk.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    disk: Arc<Mutex<Disk>>,
    ino: Ino,
    kind: u32,
    life: u64,
    locker: u64,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if disk.life() == self.life {
            disk.unlock(self.ino, self.locker);
        }
        disk.closed(self.ino, self.life);
    }
}

fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EEXIST),
        n if n.contains(&b'/') || n.contains(&0) => Err(Errno::EINVAL),
        n if n.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        _ => Ok(()),
    }
}

impl MemoryFile {
    /// Opens an inode that exists.
    pub(crate) fn open(disk: &Arc<Mutex<Disk>>, ino: Ino, kind: u32) -> Result<File, Errno> {
        let mut d = disk.lock().unwrap_or_else(PoisonError::into_inner);
        let file = MemoryFile::open_in(disk, &mut d, ino, kind)?;
        drop(d);
        Ok(file)
    }

    fn open_in(disk: &Arc<Mutex<Disk>>, d: &mut Disk, ino: Ino, kind: u32) -> Result<File, Errno> {
        let node = d.cache().node(ino).ok_or(Errno::ENOENT)?;
        let found = node.mode & S_IFMT;
        match kind & S_IFMT {
            S_IFDIR if found != S_IFDIR => return Err(Errno::ENOTDIR),
            S_IFREG if found == S_IFDIR => return Err(Errno::EISDIR),
            S_IFREG if found == S_IFLNK => return Err(Errno::ELOOP),
            S_IFREG if found != S_IFREG => return Err(Errno::ENXIO),
            _ => {}
        }
        d.opened(ino);
        let (life, locker) = (d.life(), d.locker());
        Ok(File::other(Box::new(MemoryFile { disk: disk.clone(), ino, kind: found, life, locker })))
    }

    fn lock_disk(&self) -> Result<MutexGuard<'_, Disk>, Errno> {
        let d = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if d.life() == self.life { Ok(d) } else { Err(Errno::ESHUTDOWN) }
    }

    fn node<'a>(&self, d: &'a Disk) -> Result<&'a Node, Errno> {
        d.cache().node(self.ino).ok_or(Errno::ESTALE)
    }

    /// This directory's node.
    fn dir<'a>(&self, d: &'a Disk) -> Result<&'a Node, Errno> {
        let node = self.node(d)?;
        if node.is_dir() { Ok(node) } else { Err(Errno::ENOTDIR) }
    }

    fn child(&self, d: &Disk, name: &[u8]) -> Result<Ino, Errno> {
        let dir = self.dir(d)?;
        match name {
            b"." => Ok(self.ino),
            b".." => Ok(if self.ino == ROOT { ROOT } else { dir.parent }),
            n if n.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
            n => dir.entries.get(n).copied().ok_or(Errno::ENOENT),
        }
    }

    /// Before a new name is given in this directory.
    fn check_free(&self, d: &mut Disk, name: &[u8]) -> Result<(), Errno> {
        check_name(name)?;
        let dir = self.dir(d)?;
        if dir.entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        // A removed directory that is still open takes nothing.
        if dir.links() == 0 {
            return Err(Errno::ENOENT);
        }
        d.check_write()?;
        if d.room() == 0 { Err(Errno::ENOSPC) } else { Ok(()) }
    }

    fn make(&self, d: &mut Disk, name: &[u8], mode: u32, rdev: u32, target: &[u8]) -> Result<Ino, Errno> {
        self.check_free(d, name)?;
        let above = self.dir(d)?;
        let inherits = above.mode & 0o2000 != 0;
        let gid = if inherits { above.gid } else { 0 };
        let mode = if inherits && is_dir(mode) { mode | 0o2000 } else { mode };
        let (ino, time) = (d.number(), d.now);
        d.perform(Op::New { ino, mode, uid: 0, gid, rdev, target: target.to_vec(), time });
        d.perform(Op::Link { dir: self.ino, name: name.to_vec(), ino });
        self.touch(d, self.ino);
        Ok(ino)
    }

    /// The kernel notes when something was changed.
    fn touch(&self, d: &mut Disk, ino: Ino) {
        if d.cache().node(ino).is_some_and(|n| n.mtime != d.now) {
            let mtime = Some(d.now);
            d.perform(Op::Attr { ino, mode: None, uid: None, gid: None, mtime });
        }
    }

    fn regular<'a>(&self, d: &'a Disk) -> Result<&'a Node, Errno> {
        match self.kind {
            S_IFREG => self.node(d),
            S_IFDIR => Err(Errno::EISDIR),
            _ => Err(Errno::EBADF),
        }
    }

    fn value(node: &Node, name: &[u8], out: &mut [u8]) -> Result<Option<usize>, Errno> {
        let Some(value) = node.xattrs.get(name) else { return Ok(None) };
        out.get_mut(..value.len()).ok_or(Errno::ERANGE)?.copy_from_slice(value);
        Ok(Some(value.len()))
    }

    fn set_attr(&self, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        self.node(&d)?;
        d.check_write()?;
        d.perform(Op::Attr { ino: self.ino, mode, uid, gid, mtime: None });
        Ok(())
    }
}

impl Object for MemoryFile {
    fn open_at(&self, name: &[u8], kind: u32) -> Result<File, Errno> {
        let mut d = self.lock_disk()?;
        let ino = self.child(&d, name)?;
        MemoryFile::open_in(&self.disk, &mut d, ino, kind)
    }

    fn open_own(&self, name: &[u8], how: Opening) -> Result<File, Errno> {
        let mut d = self.lock_disk()?;
        let (mode, new, emptied) = match how {
            Opening::New(mode) => (mode, true, false),
            Opening::AtHand(mode) => (mode, false, false),
            Opening::Emptied(mode) => (mode, false, true),
        };
        let ino = match self.child(&d, name) {
            Ok(_) if new => return Err(Errno::EEXIST),
            Ok(ino) => ino,
            Err(Errno::ENOENT) => self.make(&mut d, name, S_IFREG | mode & 0o7777, 0, b"")?,
            Err(e) => return Err(e),
        };
        if emptied && d.cache().node(ino).is_some_and(|n| n.mode & S_IFMT == S_IFREG && n.size > 0) {
            d.check_write()?;
            d.perform(Op::Size { ino, size: 0 });
        }
        MemoryFile::open_in(&self.disk, &mut d, ino, S_IFREG)
    }

    fn make_dir(&self, name: &[u8], mode: u32) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        self.make(&mut d, name, S_IFDIR | mode & 0o7777, 0, b"").map(drop)
    }

    fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        match target.len() {
            0 => Err(Errno::ENOENT),
            n if n as u64 >= PAGE => Err(Errno::ENAMETOOLONG),
            _ => self.make(&mut d, name, S_IFLNK | 0o777, 0, target).map(drop),
        }
    }

    fn make_node(&self, name: &[u8], mode: u32, rdev: u32) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        self.make(&mut d, name, mode, rdev, b"").map(drop)
    }

    fn link(&self, dir: &File, name: &[u8]) -> Result<(), Errno> {
        let dir: &MemoryFile = dir.as_other()?;
        let mut d = self.lock_disk()?;
        if !Arc::ptr_eq(&self.disk, &dir.disk) {
            return Err(Errno::EXDEV);
        }
        dir.check_free(&mut d, name)?;
        match self.node(&d)? {
            n if n.is_dir() => return Err(Errno::EPERM),
            n if n.links() == 0 => return Err(Errno::ENOENT),
            _ => {}
        }
        d.perform(Op::Link { dir: dir.ino, name: name.to_vec(), ino: self.ino });
        self.touch(&mut d, dir.ino);
        Ok(())
    }

    fn unlink(&self, name: &[u8]) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        let ino = self.child(&d, name)?;
        if d.cache().node(ino).is_some_and(Node::is_dir) {
            return Err(Errno::EISDIR);
        }
        d.check_write()?;
        d.perform(Op::Unlink { dir: self.ino, name: name.to_vec(), ino });
        self.touch(&mut d, self.ino);
        Ok(())
    }

    fn remove_dir(&self, name: &[u8]) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        match name {
            b"." => return Err(Errno::EINVAL),
            b".." => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        let ino = self.child(&d, name)?;
        match d.cache().node(ino) {
            Some(n) if !n.is_dir() => return Err(Errno::ENOTDIR),
            Some(n) if !n.entries.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => {}
        }
        d.check_write()?;
        d.perform(Op::Unlink { dir: self.ino, name: name.to_vec(), ino });
        self.touch(&mut d, self.ino);
        Ok(())
    }

    fn rename(&self, name: &[u8], to: &File, to_name: &[u8], how: Renaming) -> Result<(), Errno> {
        let to: &MemoryFile = to.as_other()?;
        let mut d = self.lock_disk()?;
        if !Arc::ptr_eq(&self.disk, &to.disk) {
            return Err(Errno::EXDEV);
        }
        if [name, to_name].iter().any(|n| matches!(*n, b"." | b"..")) {
            return Err(Errno::EBUSY);
        }
        check_name(to_name)?;
        to.dir(&d)?;
        let ino = self.child(&d, name)?;
        let there = to.dir(&d)?.entries.get(to_name).copied();
        let moves_dir = d.cache().node(ino).is_some_and(Node::is_dir);
        let inside = moves_dir && d.cache().is_beneath(to.ino, ino);
        match (how, there) {
            (Renaming::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (Renaming::Exchange, None) => return Err(Errno::ENOENT),
            (Renaming::Exchange, Some(other)) => {
                let other_dir = d.cache().node(other).is_some_and(Node::is_dir);
                if inside || other_dir && d.cache().is_beneath(self.ino, other) {
                    return Err(Errno::EINVAL);
                }
                d.check_write()?;
                if ino != other {
                    let (name, to_name) = (name.to_vec(), to_name.to_vec());
                    d.perform(Op::Exchange { dir: self.ino, name, to: to.ino, to_name, ino, other });
                }
            }
            (_, there) => {
                if inside {
                    return Err(Errno::EINVAL);
                }
                if there == Some(ino) {
                    return Ok(());
                }
                if there.is_some_and(|above| d.cache().is_beneath(self.ino, above)) {
                    return Err(Errno::ENOTEMPTY);
                }
                if let Some(old) = there.and_then(|t| d.cache().node(t)) {
                    match (moves_dir, old.is_dir()) {
                        (true, false) => return Err(Errno::ENOTDIR),
                        (false, true) => return Err(Errno::EISDIR),
                        (true, true) if !old.entries.is_empty() => return Err(Errno::ENOTEMPTY),
                        _ => {}
                    }
                }
                if there.is_none() {
                    to.check_free(&mut d, to_name)?;
                } else {
                    d.check_write()?;
                }
                let (name, to_name) = (name.to_vec(), to_name.to_vec());
                d.perform(Op::Rename { dir: self.ino, name, to: to.ino, to_name, ino, replaced: there });
            }
        }
        self.touch(&mut d, self.ino);
        self.touch(&mut d, to.ino);
        Ok(())
    }

    fn list(&self, each: &mut dyn FnMut(&[u8], u32, u64) -> bool) -> Result<(), Errno> {
        let listed: Vec<(Vec<u8>, u32, u64)> = {
            let d = self.lock_disk()?;
            let kind = |ino: &Ino| d.cache().node(*ino).map_or(0, |n| n.mode & S_IFMT);
            self.dir(&d)?.entries.iter().map(|(n, ino)| (n.clone(), kind(ino), *ino)).collect()
        };
        for (name, kind, ino) in listed {
            if !each(&name, kind, ino) {
                break;
            }
        }
        Ok(())
    }

    fn stat(&self) -> Result<Stat, Errno> {
        self.lock_disk()?.cache().stat(self.ino).ok_or(Errno::ESTALE)
    }

    fn stat_at(&self, name: &[u8]) -> Result<Stat, Errno> {
        let d = self.lock_disk()?;
        let ino = self.child(&d, name)?;
        d.cache().stat(ino).ok_or(Errno::ENOENT)
    }

    fn xattr(&self, name: &[u8], value: &mut [u8]) -> Result<Option<usize>, Errno> {
        let d = self.lock_disk()?;
        MemoryFile::value(self.node(&d)?, name, value)
    }

    fn xattr_at(&self, entry: &[u8], name: &[u8], value: &mut [u8]) -> Result<Option<usize>, Errno> {
        let d = self.lock_disk()?;
        let ino = self.child(&d, entry)?;
        MemoryFile::value(d.cache().node(ino).ok_or(Errno::ENOENT)?, name, value)
    }

    fn xattrs(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let d = self.lock_disk()?;
        Ok(self.node(&d)?.xattrs.keys().cloned().collect())
    }

    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        let node = self.node(&d)?;
        let others = node.xattrs.iter().filter(|(n, _)| n.as_slice() != name);
        let cost = |n: usize, v: usize| 16 + n.next_multiple_of(4) + v.next_multiple_of(4);
        let sum: usize = others.map(|(n, v)| cost(n.len(), v.len())).sum();
        if (36 + sum + cost(name.len(), value.len())) as u64 > PAGE {
            return Err(Errno::ENOSPC);
        }
        d.check_write()?;
        let value = Some(value.to_vec());
        d.perform(Op::Xattr { ino: self.ino, name: name.to_vec(), value });
        Ok(())
    }

    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        if !self.node(&d)?.xattrs.contains_key(name) {
            return Err(Errno::ENODATA);
        }
        d.check_write()?;
        d.perform(Op::Xattr { ino: self.ino, name: name.to_vec(), value: None });
        Ok(())
    }

    fn set_times(&self, times: Times) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        self.node(&d)?;
        d.check_write()?;
        let mtime = Some(times.mtime);
        d.perform(Op::Attr { ino: self.ino, mode: None, uid: None, gid: None, mtime });
        Ok(())
    }

    fn set_times_at(&self, name: &[u8], times: Times) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        let ino = self.child(&d, name)?;
        d.check_write()?;
        d.perform(Op::Attr { ino, mode: None, uid: None, gid: None, mtime: Some(times.mtime) });
        Ok(())
    }

    fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let mode = {
            let d = self.lock_disk()?;
            let node = self.node(&d)?;
            // The kernel drops setuid, and setgid of what the group may execute.
            let dropped = if node.mode & 0o010 == 0 { 0o4000 } else { 0o6000 };
            (!node.is_dir() && node.mode & dropped != 0).then_some(node.mode & !dropped)
        };
        self.set_attr(mode, uid, gid)
    }

    fn chmod(&self, mode: u32) -> Result<(), Errno> {
        if self.kind == S_IFLNK { Ok(()) } else { self.set_attr(Some(mode), None, None) }
    }

    fn read_link(&self) -> Result<Vec<u8>, Errno> {
        let d = self.lock_disk()?;
        if self.kind == S_IFLNK { Ok(self.node(&d)?.target.clone()) } else { Err(Errno::EINVAL) }
    }

    fn read(&self, offset: u64, len: usize, nowait: bool) -> Result<Vec<u8>, Errno> {
        let mut d = self.lock_disk()?;
        self.regular(&d)?;
        d.check_read(self.ino, nowait)?;
        Ok(self.node(&d)?.read(offset, len as u64))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let mut d = self.lock_disk()?;
        self.regular(&d)?;
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= FILE_MAX {
            return Err(Errno::EFBIG);
        }
        d.check_write()?;
        let len = (data.len() as u64).min(FILE_MAX - offset);
        let mut room = d.room() / PAGE;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let n = (PAGE - at % PAGE).min(end - at);
            let node = self.node(&d)?;
            if !node.pages.contains_key(&(at / PAGE)) {
                if room == 0 {
                    break;
                }
                room -= 1;
            }
            let extends = at + n > node.size;
            let from = usize::try_from(at - offset).unwrap_or(0);
            let part = data.get(from..from + usize::try_from(n).unwrap_or(0)).unwrap_or_default();
            d.perform(Op::Write { ino: self.ino, offset: at, data: part.to_vec(), extends });
            at += n;
        }
        if at == offset {
            return Err(Errno::ENOSPC);
        }
        self.touch(&mut d, self.ino);
        Ok(usize::try_from(at - offset).unwrap_or(0))
    }

    fn truncate(&self, size: u64) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        self.regular(&d)?;
        if size > FILE_MAX {
            return Err(Errno::EFBIG);
        }
        d.check_write()?;
        d.perform(Op::Size { ino: self.ino, size });
        self.touch(&mut d, self.ino);
        Ok(())
    }

    fn check_size(&self, size: u64) -> Result<(), Errno> {
        if size > FILE_MAX { Err(Errno::EFBIG) } else { Ok(()) }
    }

    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        let size = self.regular(&d)?.size;
        let ino = self.ino;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).filter(|e| *e <= FILE_MAX).ok_or(Errno::EFBIG)?;
        let whole = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let op = match mode {
            0 | KEEP_SIZE => None,
            m if m == PUNCH_HOLE | KEEP_SIZE => {
                Some(Op::Punch { ino, offset, len: end.min(size).saturating_sub(offset) })
            }
            ZERO_RANGE => Some(Op::Punch { ino, offset, len }),
            m if m == ZERO_RANGE | KEEP_SIZE => {
                Some(Op::Punch { ino, offset, len: end.min(size).saturating_sub(offset) })
            }
            COLLAPSE if whole && end < size => Some(Op::Collapse { ino, offset, len }),
            INSERT if whole && offset < size => Some(Op::Insert { ino, offset, len }),
            COLLAPSE | INSERT => return Err(Errno::EINVAL),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        d.check_write()?;
        if mode & (PUNCH_HOLE | COLLAPSE | INSERT) == 0 && len > d.room() {
            return Err(Errno::ENOSPC);
        }
        op.into_iter().for_each(|op| d.perform(op));
        if matches!(mode, 0 | ZERO_RANGE) && end > size {
            d.perform(Op::Size { ino, size: end });
        }
        self.touch(&mut d, ino);
        Ok(())
    }

    fn copy_range(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Result<u64, Errno> {
        let other: &MemoryFile = to.as_other()?;
        let overlaps = other.ino == self.ino
            && offset < to_offset.saturating_add(len)
            && to_offset < offset.saturating_add(len);
        if overlaps {
            return Err(Errno::EINVAL);
        }
        let data = self.read(offset, usize::try_from(len).map_err(|_| Errno::EINVAL)?, false)?;
        other.write(to_offset, &data).map(|n| n as u64)
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, Errno> {
        let d = self.lock_disk()?;
        let node = self.regular(&d)?;
        let page = node.pages.range(offset / PAGE..).next().map(|(n, _)| (n * PAGE).max(offset));
        Ok(page.filter(|at| *at < node.size))
    }

    fn next_hole(&self, offset: u64) -> Result<Option<u64>, Errno> {
        let d = self.lock_disk()?;
        let node = self.regular(&d)?;
        if offset >= node.size {
            return Ok(None);
        }
        let mut page = offset / PAGE;
        while node.pages.contains_key(&page) {
            page += 1;
        }
        Ok(Some((page * PAGE).max(offset).min(node.size)))
    }

    fn sync(&self) -> Result<(), Errno> {
        self.lock_disk()?.sync(self.ino)
    }

    fn sync_data(&self) -> Result<(), Errno> {
        self.sync()
    }

    fn sync_all(&self) -> Result<(), Errno> {
        self.lock_disk()?.sync_all()
    }

    fn start_writing(&self) {}

    fn handle(&self) -> Result<Handle, Errno> {
        self.stat()?;
        Handle::new(HANDLE, &self.ino.to_le_bytes()).ok_or(Errno::EOPNOTSUPP)
    }

    fn handle_at(&self, name: &[u8]) -> Result<Handle, Errno> {
        let d = self.lock_disk()?;
        let ino = self.child(&d, name)?;
        Handle::new(HANDLE, &ino.to_le_bytes()).ok_or(Errno::EOPNOTSUPP)
    }

    fn open_handle(&self, handle: &Handle, kind: u32) -> Result<File, Errno> {
        let bytes = <[u8; 8]>::try_from(handle.bytes()).map_err(|_| Errno::ESTALE)?;
        let mut d = self.lock_disk()?;
        match MemoryFile::open_in(&self.disk, &mut d, Ino::from_le_bytes(bytes), kind) {
            Err(Errno::ENOENT) => Err(Errno::ESTALE),
            other => other,
        }
    }

    fn name_hint(&self) -> Option<Vec<u8>> {
        let d = self.lock_disk().ok()?;
        let above = d.cache().node(self.node(&d).ok()?.parent)?;
        above.entries.iter().find(|(_, ino)| **ino == self.ino).map(|(n, _)| n.clone())
    }

    fn space(&self) -> Result<Space, Errno> {
        let d = self.lock_disk()?;
        let (total, room) = (d.capacity(), d.room());
        let files = d.cache().inodes() + (1 << 20);
        Ok(Space {
            total,
            free: room,
            available: room,
            files,
            files_free: 1 << 20,
            block: PAGE,
            attributes_in_one_block: true,
        })
    }

    fn life(&self) -> [u8; 16] {
        let mut life = [1; 16];
        let (count, _) = life.split_at_mut(8);
        count.copy_from_slice(&self.life.to_le_bytes());
        life
    }

    fn leave_witness(&self) {
        if let Ok(mut d) = self.lock_disk() {
            d.leave_witness(self.ino);
        }
    }

    fn has_witness(&self) -> bool {
        self.lock_disk().is_ok_and(|d| d.has_witness(self.ino))
    }

    fn now(&self) -> Time {
        self.lock_disk().map(|d| d.now).unwrap_or_default()
    }

    fn lock(&self) -> Result<bool, Errno> {
        Ok(self.lock_disk()?.lock(self.ino, self.locker))
    }

    fn unlock(&self) {
        if let Ok(mut d) = self.lock_disk() {
            d.unlock(self.ino, self.locker);
        }
    }
}
