//! What several sets are asked at the same time, for one operation.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use wire::Errno;

use crate::wait::Wake;
use crate::{grant, user, wait};

/// Between two looks whether whoever waits has given up.
const SLICE: Duration = Duration::from_millis(100);

/// What came of a part on a thread of its own, and until when its answers hold.
pub(crate) type Other<T> = (T, Option<Instant>);

/// Tells the thread that waits that a part is over, also when it panics.
struct Ends<'a> {
    left: &'a AtomicUsize,
    ended: &'a std::os::fd::OwnedFd,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.left.fetch_sub(1, Ordering::AcqRel);
        // Whoever waits looks now and then anyway.
        let _woken = rustix::io::write(self.ended, &1_u64.to_le_bytes());
    }
}

/// Does each part of an operation on a thread of its own, the first one on this thread, for the same user. When this thread is
/// interrupted the calls of all parts end with `EINTR`. What the others were granted is not noted on this thread.
///
/// # Errors
/// Of the kernel, if there is no descriptor for it.
pub(crate) fn together<P: Send, T: Send>(
    own: P,
    others: Vec<P>,
    work: &(impl Fn(P) -> T + Sync),
) -> Result<(T, Vec<Other<T>>), Errno> {
    if others.is_empty() {
        return Ok((work(own), Vec::new()));
    }
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let ended = eventfd(0, flags).map_err(|e| Errno(e.raw_os_error()))?;
    let (left, given_up) = (AtomicUsize::new(others.len()), Arc::new(AtomicBool::new(false)));
    let user = user::current();
    std::thread::scope(|scope| {
        let begin = |part| {
            let (ends, given_up) = (Ends { left: &left, ended: &ended }, Arc::clone(&given_up));
            scope.spawn(move || {
                let _ends = ends;
                user::act_as(user);
                (wait::until_given_up(given_up, || work(part)), grant::until())
            })
        };
        let threads: Vec<_> = others.into_iter().map(begin).collect();
        let own = work(own);
        // The kernel is read by this thread while it waits.
        while left.load(Ordering::Acquire) > 0 {
            match wait::by_hook(ended.as_fd(), SLICE) {
                Ok(Wake::Ready) => drop(rustix::io::read(&ended, &mut [0; 8])),
                Ok(Wake::TimedOut) => {}
                Ok(Wake::Interrupted) | Err(_) => given_up.store(true, Ordering::Release),
            }
        }
        let others = threads.into_iter().map(|t| t.join().map_err(|_| Errno::EIO));
        Ok((own, others.collect::<Result<_, _>>()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    /// They are under way at the same time, for the user of the thread that waits; what each was granted is told with its result.
    #[test]
    fn parts_are_done_at_the_same_time_for_one_user() {
        let (all, at) = (Barrier::new(3), Instant::now());
        user::act_as(7);
        grant::begin();
        let work = |part: u16| {
            all.wait();
            grant::note(at, part);
            (part, user::current())
        };
        let (own, others) = together(1, vec![2, 3], &work).unwrap();
        user::act_as(0);
        assert_eq!(own, (1, 7));
        let granted = |ms| Some(at + Duration::from_millis(ms));
        assert_eq!(others, [((2, 7), granted(2)), ((3, 7), granted(3))]);
        assert_eq!(grant::until(), granted(1), "of the own part only");
    }

    /// When whoever waits gives up so do all.
    #[test]
    fn parts_are_interrupted_with_the_thread_that_waits() {
        let part = |own: bool| {
            let (silent, _other) = std::os::unix::net::UnixStream::pair().unwrap();
            let still = || Ok(());
            let waiting = wait::Waiting { until: Instant::now() + Duration::from_secs(60), still: &still };
            own || matches!(waiting.readable(silent.as_fd()), Err(crate::conn::Broken::Interrupted))
        };
        let begun = Instant::now();
        let all = wait::with_hook(|_, _| Ok(Wake::Interrupted), || together(true, vec![false, false], &part));
        assert_eq!(all.unwrap(), (true, vec![(true, None), (true, None)]));
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    /// A part that panics is an error, and nobody waits for it.
    #[test]
    fn a_part_that_panics_is_an_error() {
        let failed = together(0, vec![1], &|part| assert_eq!(part, 0, "the part fails"));
        assert_eq!(failed, Err(Errno::EIO));
    }
}
