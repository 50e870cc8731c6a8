//! The housekeeper: sends releases of closed files in batches, tells new primaries of open files, closes idle connections.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ids::{Fid, SetId};
use wire::Op;

use crate::call::{Core, mark};
use crate::map::Generation;
use crate::sets::lock;
use crate::wait::Waiting;

/// Releases sent in one go.
const AT_ONCE: usize = 64;
/// After releases failed.
const RETRY: Duration = Duration::from_millis(200);

/// What the housekeeper has to do.
#[derive(Default)]
pub(crate) struct Keeper {
    closed: Mutex<Vec<(SetId, Fid)>>,
    bell: Condvar,
}

impl Keeper {
    /// A file was closed for the last time: the set hears of it a little later.
    pub(crate) fn closed(&self, set: SetId, fid: Fid) {
        let mut closed = lock(&self.closed);
        closed.push((set, fid));
        if closed.len() == 1 {
            self.bell.notify_one();
        }
    }

    pub(crate) fn wake(&self) {
        let _held = lock(&self.closed);
        self.bell.notify_one();
    }
}

impl Core {
    /// The housekeeper's life.
    pub(crate) fn keep(&self) {
        let tick = (self.options.idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(1));
        let mut swept = Instant::now();
        while !self.is_stopped() {
            let closed = lock(&self.keeper.closed);
            if closed.is_empty() {
                let wait = self.keeper.bell.wait_timeout(closed, tick);
                drop(wait.unwrap_or_else(PoisonError::into_inner));
            } else {
                drop(closed);
            }
            if swept.elapsed() >= tick {
                swept = Instant::now();
                let current = self.current();
                let open = current.sets().any(|route| route.state.open_files() > 0);
                current.peers().for_each(|p| p.close_older(self.options.idle, open));
            }
            self.restate();
            if lock(&self.keeper.closed).is_empty() || self.is_stopped() {
                continue;
            }
            std::thread::sleep(self.options.release_delay);
            self.release_closed();
        }
    }

    fn release_closed(&self) {
        let mut by_set: BTreeMap<SetId, Vec<Fid>> = BTreeMap::new();
        for (set, fid) in lock(&self.keeper.closed).drain(..) {
            by_set.entry(set).or_default().push(fid);
        }
        for (set, mut fids) in by_set {
            fids.sort_unstable();
            fids.dedup();
            for some in fids.chunks(AT_ONCE) {
                self.release(set, some);
            }
        }
    }

    fn release(&self, set: SetId, fids: &[Fid]) {
        let generation = self.current();
        let Some(state) = generation.route(set).map(|r| &r.state) else { return };
        let fids: Vec<Fid> = fids.iter().copied().filter(|fid| state.releasing(*fid)).collect();
        if fids.is_empty() {
            return;
        }
        if self.release_batch(&generation, set, &fids) {
            fids.iter().for_each(|fid| state.released(*fid));
            return;
        }
        // Later, then. Whether the set heard of some of them is not known.
        let open = fids.iter().filter(|fid| state.not_released(**fid));
        lock(&self.keeper.closed).extend(open.map(|fid| (set, *fid)));
        std::thread::sleep(RETRY);
    }

    fn release_batch(&self, generation: &Generation, set: SetId, fids: &[Fid]) -> bool {
        let Some(route) = generation.route(set) else { return false };
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
    fn restate(&self) {
        let generation = self.current();
        for route in generation.sets() {
            let Some(peer) = &route.peer else { continue };
            let current = mark(route.epoch, peer.era());
            if !route.state.needs_stating(current) || route.state.open_files() == 0 {
                continue;
            }
            // Calls wait for the outcome: no longer than there is hope.
            let still = || self.still(route.state.set, route.epoch, peer);
            let waiting = Waiting { until: Instant::now() + self.options.network_timeout, still: &still };
            let Ok(mut lent) = peer.lend(route.state.set, self.intent, &waiting) else { continue };
            match self.state_opens(&mut lent.conn, route, current, &waiting) {
                Ok(_) => peer.put_back(lent),
                Err(e) => {
                    tracing::debug!(set = %route.state.set, "open files not told: {e}");
                    peer.broke(lent);
                }
            }
        }
    }
}
