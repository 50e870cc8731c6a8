//! The background thread: sends releases of closed files in batches, tells new primaries of open files, closes idle
//! connections.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use client_core::call::Ended;
use client_core::exchange::Exchange;
use client_core::set::ReclaimMark;
use ids::Fid;
use wire::Errno;

use crate::call::Core;
use crate::exchange::Running;
use crate::map::Route;
use crate::sets::lock;

/// Releases sent in one go.
const AT_ONCE: usize = 64;
/// After releases failed.
const RETRY: Duration = Duration::from_millis(200);

/// How the background thread hears that there is work.
#[derive(Default)]
pub(crate) struct Background {
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Background {
    pub(crate) fn wake(&self) {
        *lock(&self.woken) = true;
        self.bell.notify_one();
    }

    /// Waits until it is woken, or for so long.
    fn wait(&self, time: Duration) {
        let woken = lock(&self.woken);
        let waited = self.bell.wait_timeout_while(woken, time, |woken| !*woken);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }
}

impl Core {
    /// Counts a close. The set hears of the last one a little later.
    pub(crate) fn close(&self, route: &Route, fid: Fid) {
        if route.state.state().close(fid) {
            self.background.wake();
        }
    }

    /// An open failed.
    pub(crate) fn open_failed(&self, route: &Route, fid: Fid, why: Errno) {
        if route.state.state().open_failed(fid, why) {
            self.background.wake();
        }
    }

    /// The loop of the background thread.
    pub(crate) fn run_background(&self) {
        let tick = (self.options.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut swept = Instant::now();
        while !self.is_stopped() {
            if !self.has_releases() {
                self.background.wait(tick);
            }
            if swept.elapsed() >= tick {
                swept = Instant::now();
                let current = self.current();
                let open = current.sets().any(|route| route.state.state().open_files() > 0);
                current.peers().for_each(|p| p.close_older(self.options.idle, open));
            }
            self.reclaim();
            if !self.has_releases() || self.is_stopped() {
                continue;
            }
            std::thread::sleep(self.options.release_delay);
            self.release_closed();
        }
    }

    fn has_releases(&self) -> bool {
        self.current().primaries().any(|(route, _)| route.state.state().has_releases())
    }

    fn release_closed(&self) {
        let generation = self.current();
        for (route, peer) in generation.primaries() {
            loop {
                let fids = route.state.state().take_releases(AT_ONCE);
                if fids.is_empty() {
                    break;
                }
                let exchange =
                    Exchange::release(route.target(peer), self.retry_policy(), Duration::ZERO, fids);
                let outcome = Running::new(self, (route, peer), None).run(exchange, Instant::now());
                if outcome.how != Ended::Answered {
                    // Later, then.
                    std::thread::sleep(RETRY);
                    break;
                }
            }
        }
    }

    /// Tells primaries that are new, or came back, which files are open, before anybody removes such a file.
    fn reclaim(&self) {
        let generation = self.current();
        for (route, peer) in generation.primaries() {
            let mark = ReclaimMark { epoch: route.epoch, server: peer.server, era: peer.era() };
            if route.state.state().wants_reclaim(mark) {
                // Calls wait for the outcome: no longer than there is hope.
                let exchange = Exchange::reclaim(route.target(peer), self.retry_policy(), Duration::ZERO);
                Running::new(self, (route, peer), None).run(exchange, Instant::now());
            }
        }
    }
}
