//! The system calls that have no safe wrapper: file handles, and reads that must not wait.
//!
//! A handle names an inode for ever, whatever its path; the file system answers ESTALE when the inode is gone.
#![allow(unsafe_code, reason = "system calls that rustix lacks, each wrapped below")]

use crate::error::last_errno;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use wire::Errno;

/// The longest handle kept; ext4 needs 8 bytes, XFS 12, btrfs 20.
pub(crate) const HANDLE_MAX: usize = 40;

/// A file handle as the kernel gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    kind: i32,
    len: u8,
    bytes: [u8; HANDLE_MAX],
}

#[repr(C)]
struct RawHandle {
    len: u32,
    kind: c_int,
    bytes: [u8; 128],
}

impl Handle {
    /// The handle's bytes for the index: kind and what the kernel gave.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.bytes[..usize::from(self.len)]);
    }

    /// The reverse of [`Handle::encode`].
    pub(crate) fn decode(bytes: &[u8]) -> Option<Handle> {
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        let mut h = Handle {
            kind: i32::from_le_bytes(*kind),
            len: u8::try_from(rest.len()).ok()?,
            bytes: [0; HANDLE_MAX],
        };
        h.bytes.get_mut(..rest.len())?.copy_from_slice(rest);
        Some(h)
    }

    /// The handle of `name` in `dir`, or of `dir` itself if the name is empty. Links are not followed.
    pub(crate) fn of(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
        let mut path = [0u8; 256];
        path.get_mut(..name.len())
            .filter(|_| name.len() < 256)
            .ok_or(Errno::ENAMETOOLONG)?
            .copy_from_slice(name);
        let mut raw = RawHandle { len: 128, kind: 0, bytes: [0; 128] };
        let mut mount: c_int = 0;
        let flags = if name.is_empty() { libc::AT_EMPTY_PATH } else { 0 };
        // SAFETY: path ends in a NUL (it is longer than the name), raw has the room that its len says, mount is an int.
        let r = unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                dir.as_raw_fd(),
                path.as_ptr(),
                &raw mut raw,
                &raw mut mount,
                flags,
            )
        };
        if r != 0 {
            return Err(last_errno());
        }
        let len = raw.len as usize;
        let from = raw.bytes.get(..len).filter(|b| b.len() <= HANDLE_MAX).ok_or(Errno::EOPNOTSUPP)?;
        let mut h = Handle { kind: raw.kind, len: u8::try_from(len).unwrap_or(0), bytes: [0; HANDLE_MAX] };
        h.bytes[..len].copy_from_slice(from);
        Ok(h)
    }

    /// Opens the object, whatever it is called now. `mount` is any descriptor on the same file system.
    pub(crate) fn open(&self, mount: BorrowedFd<'_>, flags: rustix::fs::OFlags) -> Result<OwnedFd, Errno> {
        let mut raw = RawHandle { len: u32::from(self.len), kind: self.kind, bytes: [0; 128] };
        raw.bytes[..HANDLE_MAX].copy_from_slice(&self.bytes);
        let flags = i32::try_from(flags.bits()).map_err(|_| Errno::EINVAL)? | libc::O_CLOEXEC;
        // SAFETY: raw is a whole handle; a descriptor that comes back is new and ours.
        let r = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut raw, flags) };
        let fd = i32::try_from(r).ok().filter(|&fd| fd >= 0).ok_or_else(last_errno)?;
        // SAFETY: the kernel just gave it to us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// Reads up to `len` bytes; with `nowait` only what is in memory (EAGAIN if nothing is). Stops short only at the end of
/// the file, or with `nowait` where memory ends.
pub(crate) fn read_at(fd: BorrowedFd<'_>, offset: u64, len: usize, nowait: bool) -> Result<Vec<u8>, Errno> {
    let mut out: Vec<u8> = Vec::with_capacity(len);
    let flags = if nowait { libc::RWF_NOWAIT } else { 0 };
    while out.len() < len {
        let at = i64::try_from(offset.saturating_add(out.len() as u64)).map_err(|_| Errno::EINVAL)?;
        let spare = out.spare_capacity_mut();
        let room = spare.len().min(len);
        let iov = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: room };
        // SAFETY: iov is the spare room of `out`, which nobody else sees.
        let n = unsafe { libc::preadv2(fd.as_raw_fd(), &raw const iov, 1, at, flags) };
        match usize::try_from(n) {
            Ok(0) => break,
            // SAFETY: the kernel has written n bytes, at most the spare room.
            Ok(n) => unsafe { out.set_len(out.len() + n) },
            Err(_) => match last_errno() {
                Errno::EINTR => {}
                e => return Err(e),
            },
        }
    }
    out.truncate(len);
    Ok(out)
}
