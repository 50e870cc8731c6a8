//! One worker thread as the others see it: which request it serves, and how
//! to interrupt or wake it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;

use rustix::event::{EventfdFlags, eventfd};

/// No request has this number.
const NONE: u64 = 0;

pub(crate) struct Worker {
    /// The request being served.
    current: AtomicU64,
    /// The last request that was interrupted.
    interrupted: AtomicU64,
    /// The last request whose interruption its wait has reported.
    reported: AtomicU64,
    /// Readable when `interrupted` was set.
    bell: OwnedFd,
    /// Whether this thread is the one that reads the device; set by itself only.
    leading: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Worker {
    pub(crate) fn new() -> rustix::io::Result<Worker> {
        Ok(Worker {
            current: AtomicU64::new(NONE),
            interrupted: AtomicU64::new(NONE),
            reported: AtomicU64::new(NONE),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            leading: AtomicBool::new(false),
            thread: OnceLock::new(),
        })
    }

    /// Called once by the thread itself, before anything else.
    pub(crate) fn enter(&self) {
        self.thread.get_or_init(std::thread::current);
    }

    pub(crate) fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn leading(&self) -> bool {
        self.leading.load(Ordering::Relaxed)
    }

    pub(crate) fn set_leading(&self, leading: bool) {
        self.leading.store(leading, Ordering::Relaxed);
    }

    /// A request begins. It is known here before anybody else may read the
    /// device, so its interrupt always finds it.
    pub(crate) fn begin(&self, unique: u64) {
        self.current.store(unique, Ordering::SeqCst);
    }

    pub(crate) fn finish(&self) {
        self.current.store(NONE, Ordering::SeqCst);
    }

    /// Interrupts the request if it is the one being served.
    pub(crate) fn interrupt(&self, unique: u64) -> bool {
        if unique == NONE || self.current.load(Ordering::SeqCst) != unique {
            return false;
        }
        self.interrupted.store(unique, Ordering::SeqCst);
        // Not zero in either byte order. A full counter is as readable as can be.
        rustix::io::write(&self.bell, &[1, 0, 0, 0, 0, 0, 0, 1]).ok();
        true
    }

    /// Interrupts whatever is being served.
    pub(crate) fn interrupt_any(&self) {
        self.interrupt(self.current.load(Ordering::SeqCst));
    }

    pub(crate) fn is_interrupted(&self, unique: u64) -> bool {
        self.interrupted.load(Ordering::SeqCst) == unique
    }

    /// Whether the current request was interrupted, told once per request.
    pub(crate) fn take_interrupt(&self) -> bool {
        let current = self.current.load(Ordering::SeqCst);
        current != NONE
            && self.is_interrupted(current)
            && self.reported.swap(current, Ordering::SeqCst) != current
    }

    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    pub(crate) fn silence_bell(&self) {
        // Not ringing is as good as silenced.
        rustix::io::read(&self.bell, &mut [0_u8; 8]).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_is_reported_once_and_for_its_request_only() {
        let worker = Worker::new().unwrap();
        assert!(!worker.interrupt(0));
        assert!(!worker.interrupt(4));
        worker.begin(4);
        assert!(worker.interrupt(4));
        assert!(worker.take_interrupt());
        assert!(!worker.take_interrupt());
        assert!(worker.is_interrupted(4));
        worker.begin(6);
        assert!(!worker.take_interrupt());
        assert!(!worker.is_interrupted(6));
    }
}
