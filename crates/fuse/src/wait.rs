//! Waiting inside a file system's method.
//!
//! The leader (the thread that reads `/dev/fuse`) waits for its own
//! descriptor and the device at once. If its own is ready first, no other
//! thread was involved; if a request comes first, another thread takes the
//! device over. Code that waits in another way (a condition variable, a
//! thread to join) first calls [`leave_leadership`], or every other request
//! waits as well. On threads that are not FUSE workers all of this is plain
//! `poll`.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::PollFd;
pub use rustix::event::PollFlags;
use rustix::time::Timespec;

use crate::pool::Pool;
use crate::worker::Worker;

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// A descriptor is ready, or in error.
    Ready,
    /// The time is over.
    TimedOut,
    /// The caller got a signal or the mount is gone; told once per request.
    /// Answer `EINTR`, or wait on if the operation must not be given up.
    Interrupted,
}

struct Context {
    pool: Arc<Pool>,
    me: Arc<Worker>,
}

thread_local! {
    static CONTEXT: RefCell<Option<Context>> = const { RefCell::new(None) };
}

pub(crate) fn enter(pool: &Arc<Pool>, me: &Arc<Worker>) {
    let context = Context { pool: Arc::clone(pool), me: Arc::clone(me) };
    CONTEXT.with(|slot| slot.replace(Some(context)));
}

pub(crate) fn leave() {
    CONTEXT.with(|slot| slot.replace(None));
}

/// A descriptor to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Fd<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// What to wait for.
    pub want: PollFlags,
    /// What it is ready for, or in error; empty if neither.
    pub ready: PollFlags,
}

impl<'a> Fd<'a> {
    /// Waits for `want` on `fd`.
    pub fn new(fd: BorrowedFd<'a>, want: PollFlags) -> Fd<'a> {
        Fd { fd, want, ready: PollFlags::empty() }
    }
}

/// Waits until `fd` can be read (or is closed by the peer).
pub fn readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
    poll(&mut [Fd::new(fd, PollFlags::IN)], timeout)
}

/// Waits until `fd` can be written.
pub fn writable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
    poll(&mut [Fd::new(fd, PollFlags::OUT)], timeout)
}

/// Waits until one of `fds` is ready; their `ready` then tells which. A ready
/// descriptor goes before an interrupt.
pub fn poll(fds: &mut [Fd<'_>], timeout: Option<Duration>) -> io::Result<Wake> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    CONTEXT.with(|slot| match &*slot.borrow() {
        Some(context) => context.poll(fds, deadline),
        None => poll_plain(fds, deadline),
    })
}

/// Gives the device to another thread now, as this one is about to block.
/// Does nothing on a thread that does not hold it. The thread goes on with
/// its request and returns to the pool afterwards.
pub fn leave_leadership() {
    CONTEXT.with(|slot| {
        if let Some(context) = &*slot.borrow()
            && context.me.leading()
        {
            context.pool.promote(&context.me);
        }
    });
}

/// Runs `block`, which may block in any way, without holding up other requests.
pub fn block_on<T>(block: impl FnOnce() -> T) -> T {
    leave_leadership();
    block()
}

/// Runs `block`, a wait through this module that may last for hours: the thread does not count among those that serve
/// requests meanwhile. `None`: too many wait so already.
pub fn aside<T>(block: impl FnOnce() -> T) -> Option<T> {
    let begun = CONTEXT.with(|slot| slot.borrow().as_ref().map(|c| c.pool.step_aside(&c.me)));
    if begun == Some(false) {
        return None;
    }
    let result = block();
    if begun == Some(true) {
        CONTEXT.with(|slot| slot.borrow().iter().for_each(|c| c.pool.step_back()));
    }
    Some(result)
}

/// What is left until `deadline`; none for ever.
fn left(deadline: Option<Instant>) -> Option<Timespec> {
    let left = deadline?.saturating_duration_since(Instant::now());
    Some(Timespec::try_from(left).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }))
}

fn expired(deadline: Option<Instant>) -> bool {
    deadline.is_some_and(|deadline| Instant::now() >= deadline)
}

fn polled<'a>(fd: &Fd<'a>) -> PollFd<'a> {
    PollFd::from_borrowed_fd(fd.fd, fd.want)
}

fn other<'a>(fd: &BorrowedFd<'a>) -> PollFd<'a> {
    PollFd::from_borrowed_fd(*fd, PollFlags::IN)
}

/// Polls `fds` and up to two more, once; a signal ends it early. Tells
/// whether one of `fds` is ready, and which of the others are.
fn poll_once(
    fds: &mut [Fd<'_>],
    more: &[BorrowedFd<'_>],
    deadline: Option<Instant>,
) -> io::Result<(bool, [bool; 2])> {
    const FEW: usize = 6;
    let Some(any) = fds.first().map(polled).or_else(|| more.first().map(other)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let (mut few, mut many);
    let all = fds.iter().map(polled).chain(more.iter().map(other));
    let count = fds.len() + more.len();
    let set = if count <= FEW {
        few = std::array::from_fn::<_, FEW, _>(|_| any.clone());
        few.iter_mut().zip(all).for_each(|(slot, fd)| *slot = fd);
        few.get_mut(..count).unwrap_or_default()
    } else {
        many = all.collect::<Vec<_>>();
        &mut many
    };
    match rustix::event::poll(set, left(deadline).as_ref()) {
        Ok(_) => {}
        Err(rustix::io::Errno::INTR) => set.iter_mut().for_each(PollFd::clear_revents),
        Err(error) => return Err(error.into()),
    }
    let (mine, others) = set.split_at(fds.len());
    for (fd, polled) in fds.iter_mut().zip(mine) {
        fd.ready = polled.revents();
    }
    let rung = |at: usize| others.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok((fds.iter().any(|fd| !fd.ready.is_empty()), [rung(0), rung(1)]))
}

fn poll_plain(fds: &mut [Fd<'_>], deadline: Option<Instant>) -> io::Result<Wake> {
    loop {
        if poll_once(fds, &[], deadline)?.0 {
            return Ok(Wake::Ready);
        }
        if expired(deadline) {
            return Ok(Wake::TimedOut);
        }
    }
}

impl Context {
    fn poll(&self, fds: &mut [Fd<'_>], deadline: Option<Instant>) -> io::Result<Wake> {
        loop {
            let leading = self.me.leading();
            let more = [self.me.bell(), self.pool.device().as_fd()];
            let more = if leading { &more[..] } else { &more[..1] };
            let (ready, [rung, requests]) = poll_once(fds, more, deadline)?;
            if ready {
                return Ok(Wake::Ready);
            }
            if rung {
                self.me.silence_bell();
            }
            if self.me.take_interrupt() {
                return Ok(Wake::Interrupted);
            }
            if requests {
                self.pool.promote(&self.me);
            }
            if expired(deadline) {
                return Ok(Wake::TimedOut);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_ready_one_of_many_is_told() {
        for count in [1, 5, 6, 7, 40] {
            let pairs: Vec<_> = (0..count).map(|_| UnixStream::pair().unwrap()).collect();
            let mut fds: Vec<_> =
                pairs.iter().map(|(ours, _)| Fd::new(ours.as_fd(), PollFlags::IN)).collect();
            assert_eq!(poll(&mut fds, Some(Duration::ZERO)).unwrap(), Wake::TimedOut);
            (&pairs[count - 1].1).write_all(b"x").unwrap();
            assert_eq!(poll(&mut fds, None).unwrap(), Wake::Ready);
            let ready: Vec<_> = fds.iter().map(|fd| !fd.ready.is_empty()).collect();
            assert_eq!(ready.iter().position(|ready| *ready), Some(count - 1));
        }
        assert!(poll(&mut [], None).is_err());
        assert_eq!(writable(UnixStream::pair().unwrap().0.as_fd(), None).unwrap(), Wake::Ready);
    }
}
