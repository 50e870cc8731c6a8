//! The numbers of the kernel's protocol, and reading and writing its integers.
//!
//! Layouts are not structs here: parsers and encoders take the fields in
//! order, so that no bytes are ever reinterpreted.
#![allow(clippy::host_endian_bytes, reason = "the kernel's protocol is in the host's byte order")]

use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;

use crate::errno::Errno;

/// Major version of the protocol.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version we know.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version we serve.
pub(crate) const MIN_MINOR: u32 = 31;
/// Size of the header before every request.
pub(crate) const IN_HEADER: usize = 40;
/// Size of the header before every reply.
pub(crate) const OUT_HEADER: usize = 16;
/// Size of what precedes the payload of WRITE, after the header.
pub(crate) const WRITE_IN: usize = 40;
/// The page size by which request sizes are counted.
pub(crate) const PAGE: usize = 4096;
/// The longest name we accept in a request.
pub(crate) const NAME_MAX: usize = 255;
/// The longest name the kernel accepts in a directory listing.
pub(crate) const DIRENT_NAME_MAX: usize = 1024;

const _: () = assert!(MIN_MINOR <= MINOR);

/// What a request asks for.
pub(crate) mod op {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const READLINK: u32 = 5;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MKNOD: u32 = 8;
    pub(crate) const MKDIR: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const RMDIR: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const SETXATTR: u32 = 21;
    pub(crate) const GETXATTR: u32 = 22;
    pub(crate) const LISTXATTR: u32 = 23;
    pub(crate) const REMOVEXATTR: u32 = 24;
    pub(crate) const FLUSH: u32 = 25;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const OPENDIR: u32 = 27;
    pub(crate) const READDIR: u32 = 28;
    pub(crate) const RELEASEDIR: u32 = 29;
    pub(crate) const FSYNCDIR: u32 = 30;
    pub(crate) const GETLK: u32 = 31;
    pub(crate) const SETLK: u32 = 32;
    pub(crate) const SETLKW: u32 = 33;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const INTERRUPT: u32 = 36;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const IOCTL: u32 = 39;
    pub(crate) const POLL: u32 = 40;
    pub(crate) const NOTIFY_REPLY: u32 = 41;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const READDIRPLUS: u32 = 44;
    pub(crate) const RENAME2: u32 = 45;
    pub(crate) const LSEEK: u32 = 46;
    pub(crate) const COPY_FILE_RANGE: u32 = 47;
    pub(crate) const SYNCFS: u32 = 50;
    pub(crate) const TMPFILE: u32 = 51;
    pub(crate) const STATX: u32 = 52;
    pub(crate) const COPY_FILE_RANGE_64: u32 = 53;
}

/// What a notification tells.
pub(crate) mod notice {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const DELETE: i32 = 6;
}

/// Takes fields off the front of a request; every shortage is an error.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Errno> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Errno> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Errno::EINVAL)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Errno> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Errno> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Errno> {
        self.array().map(u64::from_ne_bytes)
    }

    /// A string up to its NUL, which must be there.
    pub(crate) fn string(&mut self) -> Result<&'a OsStr, Errno> {
        let end = self.0.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
        let text = self.take(end)?;
        self.take(1)?;
        Ok(OsStr::from_bytes(text))
    }

    /// A string that names a directory entry or an extended attribute.
    pub(crate) fn name(&mut self) -> Result<&'a OsStr, Errno> {
        let name = self.string()?;
        match name.len() {
            0 => Err(Errno::EINVAL),
            1..=NAME_MAX => Ok(name),
            _ => Err(Errno::ENAMETOOLONG),
        }
    }

    /// A name in a directory: one path component.
    pub(crate) fn component(&mut self) -> Result<&'a OsStr, Errno> {
        let name = self.name()?;
        if name.as_bytes().contains(&b'/') { Err(Errno::EINVAL) } else { Ok(name) }
    }
}

/// Appends the protocol's integers.
pub(crate) trait Put {
    fn bytes(&mut self, bytes: &[u8]);

    fn u16(&mut self, value: u16) {
        self.bytes(&value.to_ne_bytes());
    }
    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_ne_bytes());
    }
    fn i32(&mut self, value: i32) {
        self.bytes(&value.to_ne_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_ne_bytes());
    }
    fn i64(&mut self, value: i64) {
        self.bytes(&value.to_ne_bytes());
    }
}

impl Put for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The header of a reply or notification whose body has `body` bytes.
pub(crate) fn out_header(body: usize, error: i32, unique: u64) -> [u8; OUT_HEADER] {
    let len = u32::try_from(OUT_HEADER + body).unwrap_or(u32::MAX);
    let mut header = [0; OUT_HEADER];
    let (head, tail) = header.split_at_mut(8);
    tail.copy_from_slice(&unique.to_ne_bytes());
    let (first, second) = head.split_at_mut(4);
    first.copy_from_slice(&len.to_ne_bytes());
    second.copy_from_slice(&error.to_ne_bytes());
    header
}

/// Writes a header and what follows it in one system call, again if a signal
/// came first.
pub(crate) fn write_parts(device: BorrowedFd<'_>, header: &[u8], parts: &[&[u8]]) -> rustix::io::Result<()> {
    let write = |slices: &[IoSlice<'_>]| rustix::io::retry_on_intr(|| rustix::io::writev(device, slices));
    match parts {
        [] => write(&[IoSlice::new(header)]),
        [one] => write(&[IoSlice::new(header), IoSlice::new(one)]),
        many => {
            let all = std::iter::once(header).chain(many.iter().copied());
            write(&all.map(IoSlice::new).collect::<Vec<_>>())
        }
    }
    .map(|_written| ())
}
