//! Work that may not wait for too long.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// What the work answers; `None` if it has waited for longer than `time`.
///
/// Nearly all frames are there whole and go out at once, and a timer costs a server more than the rest of that: it is set
/// only for what has to wait.
pub(crate) async fn within<F: Future>(time: Duration, work: F) -> Option<F::Output> {
    let mut work = pin!(work);
    match poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await {
        Poll::Ready(done) => Some(done),
        Poll::Pending => tokio::time::timeout(time, work).await.ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_too_long_is_given_up() {
        let (time, begun) = (Duration::from_secs(5), Instant::now());
        assert_eq!(within(time, sleep(time / 2)).await, Some(()));
        assert_eq!(within(time, sleep(time * 2)).await, None);
        assert_eq!(begun.elapsed().as_secs(), 7);
    }

    /// There is no clock at all here: a timer would panic.
    #[test]
    fn what_is_done_at_once_sets_no_timer() {
        let mut work = pin!(within(Duration::from_secs(5), async { 7 }));
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        assert_eq!(work.as_mut().poll(cx), Poll::Ready(Some(7)));
    }
}
