//! The housekeeper: sends releases of closed files in batches, tells new primaries of open files, closes idle connections.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use client_core::set::ReclaimMark;
use ids::Fid;
use wire::{Errno, Op};

use crate::call::Core;
use crate::map::Route;
use crate::sets::lock;
use crate::wait::Waiting;

/// Releases sent in one go.
const AT_ONCE: usize = 64;
/// After releases failed.
const RETRY: Duration = Duration::from_millis(200);

/// How the housekeeper hears that there is work.
#[derive(Default)]
pub(crate) struct Keeper {
    woken: Mutex<bool>,
    bell: Condvar,
}

impl Keeper {
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
            self.keeper.wake();
        }
    }

    /// An open failed.
    pub(crate) fn open_failed(&self, route: &Route, fid: Fid, why: Errno) {
        if route.state.state().open_failed(fid, why) {
            self.keeper.wake();
        }
    }

    /// The housekeeper's life.
    pub(crate) fn keep(&self) {
        let tick = (self.options.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut swept = Instant::now();
        while !self.is_stopped() {
            if !self.has_releases() {
                self.keeper.wait(tick);
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
        self.current().sets().any(|route| route.state.state().has_releases())
    }

    fn release_closed(&self) {
        let generation = self.current();
        for route in generation.sets() {
            loop {
                let fids = route.state.state().take_releases(AT_ONCE);
                if fids.is_empty() {
                    break;
                }
                if self.release_batch(route, &fids) {
                    route.state.state().released(&fids);
                    continue;
                }
                // Later, then. Whether the set heard of some of them is not known.
                route.state.state().release_failed(&fids);
                std::thread::sleep(RETRY);
                break;
            }
        }
    }

    fn release_batch(&self, route: &Route, fids: &[Fid]) -> bool {
        let set = route.state.set;
        let Some(peer) = &route.peer else { return false };
        let still = || self.still(set, route.epoch, peer);
        let waiting = Waiting { until: Instant::now() + self.options.network_timeout, still: &still };
        let Ok(mut lent) = peer.lend(set, self.intent, &waiting) else { return false };
        let ops = fids.iter().map(|fid| Op::Release { fid: *fid });
        match self.batch(&mut lent.conn, route, ops, &waiting) {
            Ok(failed) => {
                peer.put_back(lent);
                failed.is_none()
            }
            Err(e) => {
                tracing::debug!(%set, "release: {e}");
                // A late release must not end what is opened anew.
                peer.broke(lent);
                false
            }
        }
    }

    /// Tells primaries that are new, or came back, which files are open, before anybody removes such a file.
    fn reclaim(&self) {
        let generation = self.current();
        for route in generation.sets() {
            let Some(peer) = &route.peer else { continue };
            let mark = ReclaimMark { epoch: route.epoch, server: peer.server, era: peer.era() };
            if !self.should_reclaim(route, mark) {
                continue;
            }
            // Calls wait for the outcome: no longer than there is hope.
            let still = || self.still(route.state.set, route.epoch, peer);
            let waiting = Waiting { until: Instant::now() + self.options.network_timeout, still: &still };
            let Ok(mut lent) = peer.lend(route.state.set, self.intent, &waiting) else { continue };
            match self.tell_opens(&mut lent.conn, route, mark, &waiting) {
                Ok(_) => peer.put_back(lent),
                Err(e) => {
                    tracing::debug!(set = %route.state.set, "open files not told: {e}");
                    peer.broke(lent);
                }
            }
        }
    }

    fn should_reclaim(&self, route: &Route, mark: ReclaimMark) -> bool {
        let state = route.state.state();
        state.open_files() > 0 && state.needs_reclaim(mark)
    }
}
