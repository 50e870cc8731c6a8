//! How a thread waits for a descriptor: replaceable, so that a FUSE worker can watch its device too.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::conn::Broken;

/// Why a wait ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    /// The descriptor is readable, or broken.
    Ready,
    /// The time is over.
    TimedOut,
    /// Whoever the thread works for gave up: the call ends with `EINTR`.
    Interrupted,
}

/// Waits until a descriptor is readable, at most for the time given.
pub type Hook = fn(BorrowedFd<'_>, Option<Duration>) -> io::Result<Wake>;

static HOOK: OnceLock<Hook> = OnceLock::new();

thread_local! {
    static OWN: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// The longest wait before the world is looked at again (a newer map, the end of the mount).
const SLICE: Duration = Duration::from_millis(100);

/// Makes all threads wait by `hook` from now on. The first one given stays.
pub fn set_hook(hook: Hook) {
    if HOOK.set(hook).is_err() {
        tracing::debug!("the hook for waiting was set before");
    }
}

/// Runs `work` with a hook for this thread alone.
pub fn with_hook<R>(hook: Hook, work: impl FnOnce() -> R) -> R {
    let _before = Before(OWN.replace(Some(hook)));
    work()
}

/// The hook that a thread had before, and has again however its work ends.
struct Before(Option<Hook>);

impl Drop for Before {
    fn drop(&mut self) {
        OWN.set(self.0);
    }
}

/// How long a thread may wait, and by which hook.
#[derive(Clone, Copy)]
struct Limit {
    until: Instant,
    hook: Hook,
}

thread_local! {
    static LIMIT: Cell<Option<Limit>> = const { Cell::new(None) };
}

/// The limit that a thread had before, and has again however its work ends.
struct LimitBefore(Option<Limit>);

impl Drop for LimitBefore {
    fn drop(&mut self) {
        LIMIT.set(self.0);
    }
}

/// Runs `work`, in which calls that are not answered when the time is over end with `EINTR`. A call that may have changed
/// something should not be made so: nobody learns whether it did.
pub fn at_most<R>(time: Duration, work: impl FnOnce() -> R) -> R {
    let until = Instant::now() + time;
    let limit = match LIMIT.get() {
        Some(outer) => Limit { until: until.min(outer.until), ..outer },
        None => Limit { until, hook: current() },
    };
    let _before = LimitBefore(LIMIT.replace(Some(limit)));
    with_hook(limited, work)
}

/// The hook of a thread that has little time: the one that it had before, until then.
fn limited(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
    let Some(Limit { until, hook }) = LIMIT.get() else { return plain(fd, timeout) };
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Ok(Wake::Interrupted) } else { hook(fd, Some(timeout.map_or(left, |t| t.min(left)))) }
}

thread_local! {
    static GIVEN_UP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs `work`, a part of what another thread does, on this thread; calls in it end with `EINTR` once `given_up` says so.
pub(crate) fn until_given_up<R>(given_up: Arc<AtomicBool>, work: impl FnOnce() -> R) -> R {
    GIVEN_UP.set(Some(given_up));
    with_hook(part, work)
}

/// The hook of a thread that does a part of another one's work.
fn part(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
    let is_over = || GIVEN_UP.with_borrow(|flag| flag.as_ref().is_some_and(|f| f.load(Ordering::Acquire)));
    if is_over() {
        return Ok(Wake::Interrupted);
    }
    plain(fd, timeout)
}

/// The plain hook: poll(2).
pub fn plain(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> io::Result<Wake> {
    poll_for(fd, PollFlags::IN, timeout)
}

fn poll_for(fd: BorrowedFd<'_>, flags: PollFlags, timeout: Option<Duration>) -> io::Result<Wake> {
    let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], timeout.as_ref()) {
        Ok(0) | Err(rustix::io::Errno::INTR) => Ok(Wake::TimedOut),
        Ok(_) => Ok(Wake::Ready),
        Err(e) => Err(e.into()),
    }
}

/// Waits by the hook that holds for this thread.
pub(crate) fn by_hook(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<Wake> {
    current()(fd, Some(timeout))
}

/// The hook that holds for this thread.
fn current() -> Hook {
    OWN.get().or_else(|| HOOK.get().copied()).unwrap_or(plain)
}

/// How long a step may take, and what else may end it.
pub(crate) struct Waiting<'a> {
    /// When it counts as failed.
    pub until: Instant,
    /// Asked now and then: whether there is still a point in waiting.
    pub still: &'a dyn Fn() -> Result<(), Broken>,
}

impl Waiting<'_> {
    /// Until `fd` is readable.
    pub(crate) fn readable(&self, fd: BorrowedFd<'_>) -> Result<(), Broken> {
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Broken::TimedOut);
            }
            match by_hook(fd, left.min(SLICE))? {
                Wake::Ready => return Ok(()),
                Wake::TimedOut => (self.still)()?,
                Wake::Interrupted => return Err(Broken::Interrupted),
            }
        }
    }

    /// Until `fd` is writable.
    ///
    /// Mostly soon: the receiver is reading. If not, an epoll descriptor, itself readable when `fd` is writable, makes
    /// it a wait by the hook.
    pub(crate) fn writable(&self, fd: BorrowedFd<'_>) -> Result<(), Broken> {
        if poll_for(fd, PollFlags::OUT, Some(Duration::from_millis(1)))? == Wake::Ready {
            return Ok(());
        }
        let watcher = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&watcher, fd, epoll::EventData::new_u64(0), epoll::EventFlags::OUT)?;
        self.readable(watcher.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    /// However the work ends the thread waits as before.
    #[test]
    fn a_thread_that_has_little_time_is_interrupted_when_it_is_over() {
        let (a, _b) = UnixStream::pair().unwrap();
        let start = Instant::now();
        let ends = at_most(Duration::from_millis(30), || {
            [by_hook(a.as_fd(), Duration::from_secs(9)).unwrap(), by_hook(a.as_fd(), Duration::ZERO).unwrap()]
        });
        assert_eq!(ends, [Wake::TimedOut, Wake::Interrupted]);
        let inner =
            || at_most(Duration::from_secs(9), || by_hook(a.as_fd(), Duration::from_secs(9)).unwrap());
        let outer = at_most(Duration::from_millis(30), || [inner(), inner()]);
        assert_eq!(outer, [Wake::TimedOut, Wake::Interrupted], "the shorter time counts");
        assert!(start.elapsed() < Duration::from_secs(5));
        std::panic::catch_unwind(|| at_most(Duration::ZERO, || panic!("in the work"))).unwrap_err();
        assert_eq!(by_hook(a.as_fd(), Duration::from_millis(1)).unwrap(), Wake::TimedOut);
    }

    #[test]
    fn writable_waits_by_the_hook_and_ends() {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        while rustix::io::write(&a, &[0; 4096]).is_ok() {}
        let still = || Ok(());
        let soon = Waiting { until: Instant::now() + Duration::from_millis(20), still: &still };
        assert!(matches!(soon.writable(a.as_fd()), Err(Broken::TimedOut)));
        with_hook(
            |_, _| Ok(Wake::Interrupted),
            || {
                let long = Waiting { until: Instant::now() + Duration::from_secs(5), still: &still };
                assert!(matches!(long.writable(a.as_fd()), Err(Broken::Interrupted)));
            },
        );
        drop(b);
        let long = Waiting { until: Instant::now() + Duration::from_secs(5), still: &still };
        assert!(long.writable(a.as_fd()).is_ok(), "broken counts as ready");
    }
}
