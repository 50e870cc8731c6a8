//! Whether a change can be carried out, as far as only the file system knows: asked before it is journaled anywhere, so
//! that what a user asks for amiss is an error to the user and not a failure of the brick.

use crate::object::{Opened, S_IFDIR, S_IFREG};
use crate::open::Brick;
use ids::Fid;
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom};
use std::os::fd::AsFd;
use wire::{Change, Errno};

/// ext4's bound; all bricks keep to the smallest.
const LINK_MAX: u32 = 65000;
const EXT4: i64 = 0xef53;
/// With more room than this nobody looks closer.
const PLENTY: u64 = 1 << 30;
/// Room for what a change needs beside its data.
const BESIDE: u64 = 256 << 10;
/// The kinds of fallocate that make a file no longer than it is: `KEEP_SIZE` and `COLLAPSE_RANGE`.
const NOT_LONGER: u32 = 1 | 8;

impl Brick {
    /// Whether the file system would refuse the change for what it is (a malformed ACL, too many links, attributes that do
    /// not fit, data that there is no room for). The primary asks before it journals.
    ///
    /// # Errors
    /// The refusal.
    pub fn validate(&mut self, change: &Change) -> Result<(), Errno> {
        match change {
            Change::Link { fid, .. } if self.fresh(*fid)?.1.nlink >= LINK_MAX => Err(Errno::EMLINK),
            Change::SetXattr { fid, name, value, .. } => {
                let open = self.open_fid(*fid)?;
                if name.as_bytes().starts_with(b"system.") {
                    return self.probe(&open, name.as_bytes(), &value.0);
                }
                attributes_fit(&open, name.as_bytes(), value.0.len())
            }
            Change::Write { fid, offset, len, .. } => self.fits(*fid, *offset, (*len).into()),
            Change::CopyRange { to, to_offset, len, .. } => self.fits(*to, *to_offset, *len),
            Change::Fallocate { fid, mode, offset, len, .. } if mode & NOT_LONGER == 0 => {
                self.may_be_long(*fid, offset.saturating_add(*len))
            }
            Change::SetAttr { fid, size: Some(size), .. } => self.may_be_long(*fid, *size),
            _ => Ok(()),
        }
    }

    /// Whether the file system holds files of that length, and this process may write them.
    fn may_be_long(&mut self, fid: Fid, end: u64) -> Result<(), Errno> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| end > limit) {
            return Err(Errno::EFBIG);
        }
        let open = self.open_fid(fid)?;
        // Nobody uses the position of the descriptor; the kernel refuses one that no file of the file system can have.
        match rustix::fs::seek(&open.fd, SeekFrom::Start(end)) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OVERFLOW) => Err(Errno::EFBIG),
            Err(e) => Err(crate::error::errno(e)),
            Ok(_) => Ok(()),
        }
    }

    /// Whether this data can be written: a disk that is full after the first half of it leaves a file that is neither old
    /// nor new. What others write meanwhile may still take the room.
    fn fits(&mut self, fid: Fid, offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset.saturating_add(len);
        self.may_be_long(fid, end)?;
        if self.room()?.available > PLENTY.saturating_add(len) {
            return Ok(());
        }
        let s = rustix::fs::fstatvfs(&self.root.fd).map_err(crate::error::errno)?;
        if s.f_bavail.saturating_mul(s.f_frsize) > len.saturating_add(BESIDE) {
            return Ok(());
        }
        // Data that lies within the file, where it has no holes, takes no new room.
        let inside = end <= self.fresh(fid)?.1.size;
        let open = self.open_fid(fid)?;
        match rustix::fs::seek(&open.fd, SeekFrom::Hole(offset)) {
            Ok(hole) if inside && hole >= end => Ok(()),
            _ => Err(Errno::ENOSPC),
        }
    }

    /// Tries an attribute on a file or directory of our own.
    fn probe(&self, like: &Opened, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let at = "probe";
        let dir = self.limbo.as_fd();
        let open = if like.is_dir() {
            let _ = rustix::fs::mkdirat(dir, at, Mode::RWXU);
            crate::object::open_at(dir, at.as_bytes(), S_IFDIR)
        } else if like.kind == crate::object::S_IFLNK {
            return Err(Errno::EOPNOTSUPP);
        } else {
            let flags = crate::object::open_flags(S_IFREG) | OFlags::CREATE;
            rustix::fs::openat(dir, at, flags, Mode::RWXU)
                .map(|fd| Opened { fd: fd.into(), kind: S_IFREG })
                .map_err(crate::error::errno)
        };
        let tried = open.and_then(|o| o.set_xattr(name, value));
        let flags = if like.is_dir() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let _ = rustix::fs::unlinkat(dir, at, flags);
        tried
    }
}

/// ext4 keeps an object's attributes in one block.
fn attributes_fit(open: &Opened, name: &[u8], len: usize) -> Result<(), Errno> {
    let fs = rustix::fs::fstatfs(&open.fd).map_err(crate::error::errno)?;
    if fs.f_type != EXT4 {
        return Ok(());
    }
    let cost = |name: usize, value: usize| 16 + name.next_multiple_of(4) + value.next_multiple_of(4);
    let mut sum = 36 + cost(name.len(), len);
    for n in open.xattrs()?.iter().filter(|n| *n != name) {
        sum += cost(n.len(), open.xattr(n)?.map_or(0, |v| v.len()));
    }
    let block = usize::try_from(fs.f_bsize).unwrap_or(4096);
    if sum > block { Err(Errno::ENOSPC) } else { Ok(()) }
}
