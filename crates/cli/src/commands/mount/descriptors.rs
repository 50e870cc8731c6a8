//! What a process that goes on by itself takes along of the one that started it: nothing.
#![allow(unsafe_code, reason = "a system call that rustix lacks")]

/// Marks all descriptors but stdin, stdout and stderr, so that a program that is started has none of them. Somebody's lock
/// or pipe would stay open for as long as it runs.
pub(super) fn keep_from_children() -> std::io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // SAFETY: the call takes three numbers and touches no memory. No descriptor is closed in this process.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
