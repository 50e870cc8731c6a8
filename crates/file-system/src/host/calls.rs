//! The system calls that have no safe wrapper: file handles, reads that must not wait, and the start of writing.
#![allow(unsafe_code, reason = "system calls that rustix lacks, each wrapped below")]

use crate::Handle;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use wire::Errno;

const RAW: usize = 128;

#[repr(C)]
struct RawHandle {
    len: u32,
    kind: c_int,
    bytes: [u8; RAW],
}

fn last_errno() -> Errno {
    std::io::Error::last_os_error().raw_os_error().map_or(Errno::EIO, Errno)
}

/// The handle of `name` in `dir`, or of `dir` itself if the name is empty. Links are not followed.
pub(super) fn handle_of(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Handle, Errno> {
    let mut path = [0u8; 256];
    path.get_mut(..name.len()).filter(|_| name.len() < 256).ok_or(Errno::ENAMETOOLONG)?.copy_from_slice(name);
    let mut raw = RawHandle { len: 128, kind: 0, bytes: [0; RAW] };
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
    let bytes = raw.bytes.get(..raw.len as usize).ok_or(Errno::EOPNOTSUPP)?;
    Handle::new(raw.kind, bytes).ok_or(Errno::EOPNOTSUPP)
}

/// Opens the object. `mount` is any descriptor on the same file system.
pub(super) fn open_handle(
    handle: &Handle,
    mount: BorrowedFd<'_>,
    flags: rustix::fs::OFlags,
) -> Result<OwnedFd, Errno> {
    let bytes = handle.bytes();
    let len = u32::try_from(bytes.len()).map_err(|_| Errno::EINVAL)?;
    let mut raw = RawHandle { len, kind: handle.kind(), bytes: [0; RAW] };
    raw.bytes.get_mut(..bytes.len()).ok_or(Errno::EINVAL)?.copy_from_slice(bytes);
    let flags = i32::try_from(flags.bits()).map_err(|_| Errno::EINVAL)? | libc::O_CLOEXEC;
    // SAFETY: raw is a whole handle; a descriptor that comes back is new and ours.
    let r = unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), &raw mut raw, flags) };
    let fd = i32::try_from(r).ok().filter(|&fd| fd >= 0).ok_or_else(last_errno)?;
    // SAFETY: the kernel just gave it to us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// See [`crate::File::read`].
pub(super) fn read(fd: BorrowedFd<'_>, offset: u64, len: usize, nowait: bool) -> Result<Vec<u8>, Errno> {
    let mut out = Vec::new();
    read_into(fd, offset, &mut out, len, nowait)?;
    Ok(out)
}

/// Likewise, into memory that is there: it must be empty.
pub(super) fn read_into(
    fd: BorrowedFd<'_>,
    offset: u64,
    out: &mut Vec<u8>,
    len: usize,
    nowait: bool,
) -> Result<(), Errno> {
    out.reserve_exact(len);
    let flags = if nowait { libc::RWF_NOWAIT } else { 0 };
    while out.len() < len {
        let at = i64::try_from(offset.saturating_add(out.len() as u64)).map_err(|_| Errno::EINVAL)?;
        let lacking = len - out.len();
        let spare = out.spare_capacity_mut();
        let room = spare.len().min(lacking);
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
    Ok(())
}

/// See [`crate::File::start_writing`].
pub(super) fn start_writing(fd: BorrowedFd<'_>) {
    // SAFETY: the descriptor is open; no memory is passed.
    let _ = unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// `fcntl` with a pointer to a number, as `F_GET_RW_HINT` and `F_SET_RW_HINT` are called; the number afterwards.
pub(super) fn control(fd: BorrowedFd<'_>, command: c_int, mut value: u64) -> Result<u64, Errno> {
    // SAFETY: both commands take a pointer to 64 bits, which lives until the call returns.
    let done = unsafe { libc::fcntl(fd.as_raw_fd(), command, &raw mut value) };
    if done < 0 { Err(last_errno()) } else { Ok(value) }
}
