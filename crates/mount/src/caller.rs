//! The process that a thread works for: whether it was killed while it waits.
//!
//! Any signal interrupts a request, also those that a program handles by the thousand (SIGALRM, Go's SIGURG). A call
//! goes on then, as on a local disk; only a process that is about to die gets `EINTR`.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use client::wait::Wake;

thread_local! {
    static PID: Cell<u32> = const { Cell::new(0) };
    static SIGNALLED: Cell<bool> = const { Cell::new(false) };
}

/// The thread works for this process from now on.
pub(crate) fn enter(pid: u32) {
    client::grant::begin();
    PID.set(pid);
    SIGNALLED.set(false);
}

/// How the client's threads wait under FUSE.
pub(crate) fn hook(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
    let wake = fuse::wait::readable(fd, timeout)?;
    if wake == fuse::wait::Wake::Interrupted {
        // Told once only: look again whenever a wait ends in vain.
        SIGNALLED.set(true);
    }
    Ok(match wake {
        fuse::wait::Wake::Ready => Wake::Ready,
        _ if SIGNALLED.get() && is_killed(PID.get()) => Wake::Interrupted,
        fuse::wait::Wake::TimedOut | fuse::wait::Wake::Interrupted => Wake::TimedOut,
    })
}

/// Whether the thread has SIGKILL pending: the kernel gives it to every thread of a process that a signal ends. A
/// process that we cannot see counts as killed.
fn is_killed(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => has_kill_pending(&status),
        Err(_) => true,
    }
}

fn has_kill_pending(status: &str) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let masks =
        status.lines().filter_map(|l| l.strip_prefix("SigPnd:").or_else(|| l.strip_prefix("ShdPnd:")));
    masks.filter_map(|m| u64::from_str_radix(m.trim(), 16).ok()).any(|m| m & KILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_dying_count() {
        assert!(has_kill_pending("Name:\tx\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(!has_kill_pending("SigPnd:\t0000000000000001\nShdPnd:\t0000000000400000\nSigBlk:\t100\n"));
        assert!(!is_killed(std::process::id()));
        assert!(is_killed(u32::MAX));
    }
}
