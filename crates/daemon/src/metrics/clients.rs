//! How long requests of each client took: of some clients by name, of the others together.
//!
//! Always true: no more than [`MOST`] clients have times of their own, and one that left keeps them for [`KEPT`] at most.
//! The list is locked when a connection asks a volume for the first time and when somebody reads it, not for each request.

use super::histogram::{Histogram, Times};
use crate::shared::lock;
use ids::VolumeId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Clients of all volumes that have times of their own.
const MOST: usize = 64;
/// For how long times of a client without a connection are kept: somebody may read them late, and it may come back.
const KEPT: Duration = Duration::from_secs(600);
/// What clients beyond those are called together. No key can be called so, and no address is written so.
pub(crate) const OTHERS: &str = "_other";

/// How long requests of one client took in one volume.
#[derive(Debug, Default)]
pub(crate) struct ClientTimes(Histogram);

impl ClientTimes {
    /// One took that long.
    pub(crate) fn note(&self, took: Duration) {
        self.0.note(took);
    }
}

#[derive(Debug, Default)]
struct Entry {
    times: Arc<ClientTimes>,
    /// Since when nobody has a connection, as far as somebody looked.
    left: Option<Duration>,
}

impl Entry {
    /// Whether connections of the client hold its times.
    fn is_there(&self) -> bool {
        Arc::strong_count(&self.times) > 1
    }

    fn look(&mut self, now: Duration) {
        self.left = if self.is_there() { None } else { self.left.or(Some(now)) };
    }
}

/// The clients of a server.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    named: Mutex<BTreeMap<(VolumeId, String), Entry>>,
    others: Mutex<BTreeMap<VolumeId, Arc<ClientTimes>>>,
}

impl Clients {
    /// The times of a client; whoever holds them is there. Those of all others if there are too many, until it connects again.
    pub(crate) fn of(&self, now: Duration, volume: VolumeId, client: &str) -> Arc<ClientTimes> {
        let mut named = lock(&self.named);
        let key = (volume, client.to_owned());
        if !named.contains_key(&key) && named.len() >= MOST {
            named.values_mut().for_each(|entry| entry.look(now));
            // Whoever is there needs the place more than whoever left.
            let gone = named.iter().filter_map(|(key, entry)| Some((entry.left?, key)));
            let Some(longest) = gone.min().map(|(_, key)| key.clone()) else {
                return lock(&self.others).entry(volume).or_default().clone();
            };
            named.remove(&longest);
        }
        let entry = named.entry(key).or_default();
        entry.left = None;
        entry.times.clone()
    }

    /// What was counted of the clients of each volume until now.
    pub(crate) fn read(&self, now: Duration) -> BTreeMap<VolumeId, Vec<(String, Times)>> {
        let mut named = lock(&self.named);
        named.values_mut().for_each(|entry| entry.look(now));
        named.retain(|_, entry| entry.left.is_none_or(|left| now.saturating_sub(left) < KEPT));
        let mut all: BTreeMap<VolumeId, Vec<(String, Times)>> = BTreeMap::new();
        for ((volume, client), entry) in named.iter() {
            all.entry(*volume).or_default().push((client.clone(), entry.times.0.read()));
        }
        for (volume, times) in lock(&self.others).iter() {
            all.entry(*volume).or_default().push((OTHERS.to_owned(), times.0.read()));
        }
        all
    }

    /// Forgets the volumes that are gone.
    pub(crate) fn keep(&self, exists: impl Fn(VolumeId) -> bool) {
        lock(&self.named).retain(|(volume, _), _| exists(*volume));
        lock(&self.others).retain(|volume, _| exists(*volume));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V: VolumeId = VolumeId(1);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// The clients of a volume with their counts.
    fn told(clients: &Clients, now: u64) -> Vec<(String, u64)> {
        let all = clients.read(at(now)).remove(&V).unwrap_or_default();
        all.into_iter().map(|(name, times)| (name, times.count())).collect()
    }

    #[test]
    fn connections_of_a_client_share_its_times_by_volume() {
        let clients = Clients::default();
        let held = [(V, "web"), (V, "web"), (VolumeId(2), "web"), (V, "db")]
            .map(|(volume, name)| clients.of(at(1), volume, name));
        held.iter().for_each(|times| times.note(at(1)));
        assert_eq!(told(&clients, 1), [("db".to_owned(), 1), ("web".to_owned(), 2)]);
        assert_eq!(clients.read(at(1))[&VolumeId(2)].len(), 1);
        clients.keep(|volume| volume != V);
        assert!(told(&clients, 1).is_empty() && clients.read(at(1)).len() == 1);
    }

    #[test]
    fn who_left_is_kept_for_a_while() {
        let clients = Clients::default();
        let held = clients.of(at(1), V, "web");
        held.note(at(1));
        assert_eq!(told(&clients, 10_000).len(), 1, "it is there for as long as it is connected");
        drop(held);
        assert_eq!(told(&clients, 10_001), [("web".to_owned(), 1)]);
        let again = clients.of(at(10_300), V, "web");
        again.note(at(1));
        assert_eq!(told(&clients, 10_700), [("web".to_owned(), 2)], "it came back to its times");
        drop(again);
        assert_eq!(told(&clients, 10_701).len(), 1);
        assert_eq!(told(&clients, 11_300).len(), 1);
        assert!(told(&clients, 11_301).is_empty());
    }

    #[test]
    fn there_are_so_many_names_and_the_rest_is_counted_together() {
        let clients = Clients::default();
        let mut held: Vec<_> = (0..MOST).map(|n| clients.of(at(1), V, &format!("c{n}"))).collect();
        for n in 0..1000 {
            clients.of(at(2), V, &format!("d{n}")).note(at(1));
        }
        let all = told(&clients, 2);
        assert_eq!((all.len(), &all[0]), (MOST + 1, &("c0".to_owned(), 0)));
        assert!(all.contains(&(OTHERS.to_owned(), 1000)), "{all:?}");
        // Whoever left gives way, the one that left first.
        held.swap_remove(7).note(at(1));
        assert_eq!(told(&clients, 3).len(), MOST + 1);
        held.swap_remove(7);
        held.push(clients.of(at(4), V, "new"));
        let names: Vec<String> = told(&clients, 4).into_iter().map(|(name, _)| name).collect();
        assert!(names.contains(&"new".to_owned()) && !names.contains(&"c7".to_owned()), "{names:?}");
        assert!(names.contains(&format!("c{}", MOST - 1)) && names.len() == MOST + 1, "{names:?}");
    }
}
