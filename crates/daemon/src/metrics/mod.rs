//! What a server counts while it serves, and how Prometheus reads it.
//!
//! Owns the counters of sets, the table of all metrics ([`FAMILIES`]), their text, and what is given out over HTTP.
//! A set's counters are written by the thread that serves the set, so nobody waits for them; the rest is looked up when
//! somebody asks.

mod clients;
mod counters;
mod families;
mod heavy;
mod histogram;
mod process;
mod profile;
mod site;
mod text;

pub(crate) use clients::{ClientTimes, Clients};
pub(crate) use counters::{Outcome, SetCounters, SetCounts};
pub(crate) use families::Metric;
pub(crate) use heavy::{Counted, Heavy};
pub(crate) use histogram::{BOUNDS, Times};
pub(crate) use process::add as add_process;
pub(crate) use profile::{Profiles, Span};
pub(crate) use site::MetricsSite;
pub(crate) use text::Exposition;

use crate::shared::lock;
use ids::{SetId, VolumeId};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Why a connection is not let in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closed {
    /// There are too many handshakes of its address, or connections in all.
    TooMany,
    /// Its handshake failed, or took too long.
    Handshake,
    /// Its hello was refused.
    Refused,
}

impl Closed {
    const ALL: [(Closed, &str); 3] =
        [(Closed::TooMany, "too_many"), (Closed::Handshake, "handshake"), (Closed::Refused, "refused")];
}

/// What a server counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    sets: Mutex<BTreeMap<SetId, Arc<SetCounters>>>,
    closed: [AtomicU64; Closed::ALL.len()],
    /// How long requests of each client took.
    pub(crate) clients: Clients,
    /// Profiles of volumes that are under way.
    pub(crate) profiles: Profiles,
}

impl Metrics {
    /// The counters of a set; they go on when its brick is opened again.
    pub(crate) fn set(&self, set: SetId) -> Arc<SetCounters> {
        lock(&self.sets).entry(set).or_default().clone()
    }

    /// What was counted of a set, if it was ever served here.
    pub(crate) fn counts(&self, set: SetId) -> Option<SetCounts> {
        let counters = lock(&self.sets).get(&set).cloned();
        counters.map(|c| c.read())
    }

    /// Forgets the sets and volumes that are gone.
    pub(crate) fn keep(&self, set_exists: impl Fn(SetId) -> bool, volume_exists: impl Fn(VolumeId) -> bool) {
        lock(&self.sets).retain(|set, _| set_exists(*set));
        self.clients.keep(&volume_exists);
        self.profiles.keep(volume_exists);
    }

    /// A connection is not let in.
    pub(crate) fn closed(&self, why: Closed) {
        if let Some(n) = self.closed.get(why as usize) {
            n.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were not let in, by reason.
    pub(crate) fn all_closed(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Closed::ALL.iter().zip(&self.closed).map(move |((_, name), n)| (*name, read(n)))
    }
}
