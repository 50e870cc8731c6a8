//! Open objects: the calls, with Linux' checks and errors.

use crate::disk::Disk;
use crate::image::{Node, ROOT};
use crate::names::check_xattr;
use crate::op::{Ino, Op, PAGE, is_dir};
use file_system::{
    File, Handle, Object, Opening, Renaming, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Space, Stat, Times,
};
use ids::Time;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Errno;

const NAME_MAX: usize = 255;
/// The largest file, in bytes: ext4's bound with blocks of 4 KiB.
pub(crate) const FILE_MAX: u64 = (1 << 44) - PAGE;
/// The kind of our handles.
const HANDLE: i32 = 1;

/// An open object of a simulated disk.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    pub(crate) disk: Arc<Mutex<Disk>>,
    pub(crate) ino: Ino,
    kind: u32,
    boot_id: u64,
    locker: u64,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if disk.boot_id() == self.boot_id {
            disk.unlock(self.ino, self.locker);
        }
        disk.closed(self.ino, self.boot_id);
    }
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), Errno> {
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
        let (boot_id, locker) = (d.boot_id(), d.locker());
        Ok(File::other(Box::new(MemoryFile { disk: disk.clone(), ino, kind: found, boot_id, locker })))
    }

    pub(crate) fn lock_disk(&self) -> Result<MutexGuard<'_, Disk>, Errno> {
        let d = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if d.boot_id() == self.boot_id { Ok(d) } else { Err(Errno::ESHUTDOWN) }
    }

    pub(crate) fn node<'a>(&self, d: &'a Disk) -> Result<&'a Node, Errno> {
        d.cache().node(self.ino).ok_or(Errno::ESTALE)
    }

    /// This directory's node.
    pub(crate) fn dir<'a>(&self, d: &'a Disk) -> Result<&'a Node, Errno> {
        let node = self.node(d)?;
        if node.is_dir() { Ok(node) } else { Err(Errno::ENOTDIR) }
    }

    pub(crate) fn child(&self, d: &Disk, name: &[u8]) -> Result<Ino, Errno> {
        let dir = self.dir(d)?;
        match name {
            b"." => Ok(self.ino),
            b".." => Ok(if self.ino == ROOT { ROOT } else { dir.parent }),
            n if n.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
            n => dir.entries.get(n).copied().ok_or(Errno::ENOENT),
        }
    }

    /// Before a new name is given in this directory.
    pub(crate) fn check_free(&self, d: &mut Disk, name: &[u8]) -> Result<(), Errno> {
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
    pub(crate) fn touch(&self, d: &mut Disk, ino: Ino) {
        if d.cache().node(ino).is_some_and(|n| n.mtime != d.now) {
            let mtime = Some(d.now);
            d.perform(Op::Attr { ino, mode: None, uid: None, gid: None, mtime });
        }
    }

    /// The kernel takes it away with each change of what a file holds, whoever makes it.
    fn drop_capability(&self) -> Result<(), Errno> {
        let (mut d, name) = (self.lock_disk()?, b"security.capability".to_vec());
        if self.node(&d)?.xattrs.contains_key(&name) {
            d.perform(Op::Xattr { ino: self.ino, name, value: None });
        }
        Ok(())
    }

    pub(crate) fn regular<'a>(&self, d: &'a Disk) -> Result<&'a Node, Errno> {
        match self.kind {
            S_IFREG => self.node(d),
            S_IFDIR => Err(Errno::EISDIR),
            _ => Err(Errno::EBADF),
        }
    }

    fn value(node: &Node, name: &[u8], out: &mut [u8]) -> Result<Option<usize>, Errno> {
        if !matches!(node.mode & S_IFMT, S_IFREG | S_IFDIR) && name.starts_with(b"user.") {
            return Ok(None);
        }
        check_xattr(name)?;
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
        self.give_name(dir, name)
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
        self.give_other_name(name, to, to_name, how)
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
        check_xattr(name)?;
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
        check_xattr(name)?;
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
        let written = self.put(offset, data)?;
        self.drop_capability()?;
        Ok(written)
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
        self.shape(mode, offset, len)?;
        self.drop_capability()
    }

    fn copy_range(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Result<u64, Errno> {
        self.copy_to(offset, to, to_offset, len)
    }

    fn next_data(&self, offset: u64) -> Result<Option<u64>, Errno> {
        self.data_from(offset)
    }

    fn next_hole(&self, offset: u64) -> Result<Option<u64>, Errno> {
        self.hole_from(offset)
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

    fn path_hint(&self) -> Option<Vec<u8>> {
        None
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

    fn boot_id(&self) -> [u8; 16] {
        let mut boot_id = [1; 16];
        let (count, _) = boot_id.split_at_mut(8);
        count.copy_from_slice(&self.boot_id.to_le_bytes());
        boot_id
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
