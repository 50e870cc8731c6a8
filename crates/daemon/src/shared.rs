//! What all threads of a server see.

use crate::clock::unix_now;
use crate::events::Events;
use crate::guests::{Guests, Visit, memory_of_all, most_connections};
use crate::keys::ServerKeys;
use crate::metrics::Metrics;
use crate::pulse::Pulse;
use crate::shard::ShardMessage;
use crate::speaker::Speaker;
use cluster::State;
use ids::{BrickId, ServerId, SetId, VolumeId};
use server_core::{Lease, RecoveryVerdict, Rooms, Threads, Unopened};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockWriteGuard};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use transport::{Established, TransportError};
use trust::ClientConfig;
use wire::op::COUNTED;

/// Locks, also after another thread panicked (release builds abort at a panic).
pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests of one volume that this server served, by operation.
#[derive(Debug)]
pub(crate) struct Counters([AtomicU64; COUNTED.len()]);

impl Default for Counters {
    fn default() -> Counters {
        Counters(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl Counters {
    pub(crate) fn count(&self, op: usize) {
        if let Some(c) = self.0.get(op) {
            c.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn snapshot(&self) -> BTreeMap<String, u64> {
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        COUNTED.iter().zip(&self.0).map(|(n, c)| ((*n).to_owned(), read(c))).filter(|(_, n)| *n > 0).collect()
    }
}

/// What a shard asks of the control plane.
#[derive(Debug)]
pub(crate) enum ControlRequest {
    /// A new view of a set.
    View(SetId, replica::Proposal, Vec<BrickId>),
    /// A server's port refuses connections, or it is silent.
    Suspect(ServerId),
    /// A brick may have lost changes: it asks where it stands before it does anything.
    Arbitrate(SetId, BrickId, oneshot::Sender<RecoveryVerdict>),
    /// A brick could not be opened: it leaves its view if another one is open.
    Refused(SetId, BrickId),
    /// A brick was found on the file system that is mounted there.
    Mounted(BrickId, String),
}

/// A shard as others see it.
#[derive(Debug, Default)]
struct ShardAt {
    /// Where messages for it go, once its thread was started.
    mailbox: OnceLock<mpsc::UnboundedSender<ShardMessage>>,
    /// What the watchdog sees of it.
    pulse: Arc<Pulse>,
}

/// Calls are noted so many nanoseconds apart.
const CALLS_APART: u64 = 1_000_000;

/// Shared by the control plane and all shards.
#[derive(Debug)]
pub(crate) struct Shared {
    /// This server's number; 0 until it is known.
    pub(crate) me: AtomicU64,
    /// The present pool.
    pub(crate) pool: RwLock<[u8; 16]>,
    /// This server's keys, if it has some.
    keys: RwLock<Option<Arc<ServerKeys>>>,
    /// Connections without keys are neither taken nor made.
    secured: AtomicBool,
    /// All open connections.
    pub(crate) guests: Arc<Guests>,
    /// Until when this server may answer, in nanoseconds of [`crate::clock::now`].
    lease: AtomicU64,
    /// When a client last asked for something, in nanoseconds of the same clock.
    last_call: AtomicU64,
    /// The version of the pool's state that whoever uses the lease must know.
    lease_version: AtomicU64,
    /// Room of the sets of the pool, as their primaries last said.
    pub(crate) rooms: Mutex<Rooms>,
    counters: Mutex<HashMap<VolumeId, Arc<Counters>>>,
    /// What is counted for whoever watches this server.
    pub(crate) metrics: Metrics,
    /// What happened here.
    pub(crate) events: Events,
    /// The shards that there can be, the front one first.
    shards: Vec<ShardAt>,
    /// Which of them serves which set.
    placed: RwLock<Threads>,
    pub(crate) control_requests: mpsc::UnboundedSender<ControlRequest>,
    /// The newest state of the pool known here.
    pub(crate) state: RwLock<Arc<State>>,
    /// Why bricks of this server are not served.
    pub(crate) brick_errors: Mutex<HashMap<BrickId, String>>,
    /// Bricks of this server that could not be opened, or wait for the arbitration.
    pub(crate) unopened: Mutex<HashMap<BrickId, Unopened>>,
}

impl Shared {
    pub(crate) fn new(
        control_requests: mpsc::UnboundedSender<ControlRequest>,
        cores: usize,
        client_memory: Option<usize>,
    ) -> Shared {
        Shared {
            me: AtomicU64::new(0),
            last_call: AtomicU64::new(0),
            pool: RwLock::new([0; 16]),
            keys: RwLock::default(),
            secured: AtomicBool::new(false),
            guests: Guests::new(most_connections(), client_memory.unwrap_or_else(memory_of_all)),
            lease: AtomicU64::new(0),
            lease_version: AtomicU64::new(0),
            rooms: Mutex::default(),
            counters: Mutex::default(),
            metrics: Metrics::default(),
            events: Events::default(),
            shards: (0..Threads::most()).map(|_| ShardAt::default()).collect(),
            placed: RwLock::new(Threads::new(cores)),
            control_requests,
            state: RwLock::new(Arc::default()),
            brick_errors: Mutex::default(),
            unopened: Mutex::default(),
        }
    }

    pub(crate) fn me(&self) -> ServerId {
        ServerId(self.me.load(Ordering::Relaxed))
    }

    pub(crate) fn pool(&self) -> [u8; 16] {
        *self.pool.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// This server's keys, if it has some.
    pub(crate) fn keys(&self) -> Option<Arc<ServerKeys>> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The server has other keys now, or none.
    pub(crate) fn set_keys(&self, keys: Option<ServerKeys>) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys.map(Arc::new);
    }

    /// Whether connections without keys are neither taken nor made.
    pub(crate) fn is_secured(&self) -> bool {
        self.secured.load(Ordering::Acquire)
    }

    pub(crate) fn set_secured(&self, secured: bool) {
        self.secured.store(secured, Ordering::Release);
    }

    /// What to make connections with.
    ///
    /// # Errors
    /// The pool is secured, and this server has no keys.
    pub(crate) fn dials(&self) -> Result<Option<Arc<ClientConfig>>, TransportError> {
        match self.keys() {
            _ if !self.is_secured() => Ok(None),
            Some(keys) => Ok(Some(keys.dials())),
            None => Err(TransportError::Closed),
        }
    }

    /// A connection was made to server `to` of the pool, or to whichever (0). It ends when its [`Visit`] says so.
    ///
    /// # Errors
    /// Whoever is there is not in the pool, whatever his key's signature says.
    pub(crate) fn visit(&self, established: &Established, to: ServerId) -> Result<Visit, TransportError> {
        let who = Speaker::on(&established.connection);
        let visit = self.guests.visit(to, &who);
        // In this order: whoever loses his right after it was looked at is ended.
        if who.may_stay(to, &self.state(), self.is_secured(), unix_now()) {
            return Ok(visit);
        }
        tracing::debug!("{} is at the other end, who is not in the pool", who.called(None));
        Err(TransportError::Closed)
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Until when somebody who knows the pool's state of that version may answer; `None`: he knows too little.
    pub(crate) fn lease(&self, version: u64) -> Option<Duration> {
        // In this order, and written in the other one: the version is not older than the lease.
        let until = Duration::from_nanos(self.lease.load(Ordering::Acquire));
        Lease { until, version: self.lease_version.load(Ordering::Acquire) }.of(version)
    }

    /// A client asks for something. Shards that are busy at the same time do not take turns at this word: it is a little late.
    pub(crate) fn note_call(&self, now: Duration) {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        if now > self.last_call.load(Ordering::Relaxed).saturating_add(CALLS_APART) {
            self.last_call.store(now, Ordering::Relaxed);
        }
    }

    /// When a client last asked any set of this server for something: its processors and disks serve them all.
    pub(crate) fn last_call(&self) -> Duration {
        Duration::from_nanos(self.last_call.load(Ordering::Relaxed))
    }

    /// This server belongs to another pool now: no lease of the old one counts.
    pub(crate) fn drop_lease(&self) {
        self.lease.store(0, Ordering::Release);
        self.lease_version.store(0, Ordering::Release);
    }

    /// The lease was renewed.
    pub(crate) fn renew_lease(&self, lease: Lease) {
        self.lease_version.fetch_max(lease.version, Ordering::AcqRel);
        self.lease.fetch_max(u64::try_from(lease.until.as_nanos()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    pub(crate) fn counters(&self, volume: VolumeId) -> Arc<Counters> {
        lock(&self.counters).entry(volume).or_default().clone()
    }

    /// Forgets what was counted of volumes and sets that are not in the pool any more.
    pub(crate) fn keep_counted(&self, state: &State) {
        lock(&self.counters).retain(|volume, _| state.volumes.contains_key(volume));
        self.metrics.keep(|set| state.sets.contains_key(&set), |volume| state.volumes.contains_key(&volume));
    }

    /// The number of the shard that serves a set, or will.
    pub(crate) fn shard_index(&self, set: SetId) -> Option<usize> {
        self.placed.read().unwrap_or_else(PoisonError::into_inner).of(set)
    }

    /// Which shard serves which set, to place more of them.
    pub(crate) fn placed(&self) -> RwLockWriteGuard<'_, Threads> {
        self.placed.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shards that were started.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &mpsc::UnboundedSender<ShardMessage>> {
        self.shards.iter().filter_map(|s| s.mailbox.get())
    }

    /// The mailbox of that shard, if it was started.
    pub(crate) fn shard(&self, index: usize) -> Option<&mpsc::UnboundedSender<ShardMessage>> {
        self.shards.get(index)?.mailbox.get()
    }

    /// The mailbox of the shard that serves a set.
    pub(crate) fn shard_of(&self, set: SetId) -> Option<&mpsc::UnboundedSender<ShardMessage>> {
        self.shard(self.shard_index(set)?)
    }

    /// A shard is being started: its pulse and its messages. `None`: it was before.
    pub(crate) fn start_shard(
        &self,
        index: usize,
    ) -> Option<(Arc<Pulse>, mpsc::UnboundedReceiver<ShardMessage>)> {
        let at = self.shards.get(index)?;
        let (sender, inbox) = mpsc::unbounded_channel();
        at.mailbox.set(sender).ok()?;
        Some((at.pulse.clone(), inbox))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_of_what_the_pool_has_no_more() {
        let (requests, _received) = mpsc::unbounded_channel();
        let (shared, volume, set) = (Shared::new(requests, 1, None), VolumeId(1), SetId(2));
        let _counters = (shared.counters(volume), shared.metrics.set(set));
        shared.metrics.profiles.start(Duration::ZERO, volume, BTreeMap::new());
        assert!(shared.metrics.counts(set).is_some());
        shared.keep_counted(&State::default());
        assert!(lock(&shared.counters).is_empty() && shared.metrics.counts(set).is_none());
        assert!(!shared.metrics.profiles.stop(volume));
    }
}
