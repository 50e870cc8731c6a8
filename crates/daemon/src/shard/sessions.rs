//! One connection of a session, as those know it who serve what came on it. Which ones are given up is decided by
//! [`server_core::Sessions`]. And who the clients of a shard are.

use crate::clock;
use crate::metrics::{self, ClientTimes};
use ids::{KeyId, SessionId, SetId, VolumeId};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::Notify;

/// Who has a connection of a session. The default is another server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Who {
    /// Where it connects from; `None`: it is another server.
    pub(crate) from: Option<IpAddr>,
    /// What it is called; likewise.
    pub(crate) client: Option<String>,
    /// Its key and the name of that, if it has shown one.
    pub(crate) key: Option<(KeyId, String)>,
}

/// One connection of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<Fate>);

#[derive(Debug, Default)]
struct Fate {
    given_up: AtomicBool,
    end: Notify,
    /// What its session has asked for.
    traffic: Arc<Traffic>,
    /// What its client is called; `None`: it is another server.
    client: Option<String>,
    /// How long requests took of the volume that it asked first.
    times: OnceLock<(VolumeId, Arc<ClientTimes>)>,
}

impl Connection {
    fn of(traffic: Arc<Traffic>, client: Option<String>) -> Connection {
        Connection(Arc::new(Fate { traffic, client, ..Fate::default() }))
    }

    /// Its session has given it up.
    pub(super) fn give_up(&self) {
        self.0.given_up.store(true, Ordering::Release);
        self.0.end.notify_one();
    }

    /// Whether its session has given it up: nothing that came on it may be begun.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.given_up.load(Ordering::Acquire)
    }

    /// Returns when its session has given it up.
    pub(super) async fn given_up(&self) {
        self.0.end.notified().await;
    }

    /// A request of that volume took so long. A client asks one volume on a connection: `all` is looked at once.
    pub(super) fn took(&self, all: &metrics::Clients, volume: VolumeId, took: Duration) {
        let Some(client) = &self.0.client else { return };
        let find = || all.of(clock::now(), volume, client);
        match self.0.times.get_or_init(|| (volume, find())) {
            (of, times) if *of == volume => times.note(took),
            _ => find().note(took),
        }
    }

    /// What its session asks for.
    pub(super) fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }
}

/// What a session has asked for on one shard.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    requests: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

impl Traffic {
    /// A request with that much data.
    pub(super) fn asked(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// An answer with that much data.
    pub(super) fn answered(&self, bytes: usize) {
        self.read.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// A session on one shard, as it is told.
#[derive(Clone, Debug)]
pub(crate) struct ClientReport {
    pub(crate) session: SessionId,
    /// Where it connects from; `None`: it is another server.
    pub(crate) from: Option<IpAddr>,
    /// The key that was shown last, and its name.
    pub(crate) key: Option<(KeyId, String)>,
    /// The set that its first connection was for.
    pub(crate) set: SetId,
    /// Since it came.
    pub(crate) age: Duration,
    pub(crate) connections: usize,
    pub(crate) requests: u64,
    /// Bytes of data that it got, and that it sent.
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Files that it holds open in the shard's sets.
    pub(crate) open_files: usize,
}

#[derive(Debug)]
struct Client {
    from: Option<IpAddr>,
    key: Option<(KeyId, String)>,
    set: SetId,
    since: Duration,
    connections: usize,
    traffic: Arc<Traffic>,
}

/// The sessions of a shard that are not gone.
#[derive(Debug, Default)]
pub(super) struct Clients(BTreeMap<SessionId, Client>);

impl Clients {
    /// A connection of a session.
    pub(super) fn connect(
        &mut self,
        session: SessionId,
        Who { from, client: name, key }: Who,
        slot: u16,
    ) -> Connection {
        let client = self.0.entry(session).or_insert_with(|| Client {
            from,
            key: None,
            set: SetId(slot.into()),
            since: clock::now(),
            connections: 0,
            traffic: Arc::default(),
        });
        client.connections += 1;
        client.key = key;
        Connection::of(client.traffic.clone(), name)
    }

    /// A connection of the session ended.
    pub(super) fn disconnect(&mut self, session: SessionId) {
        if let Some(client) = self.0.get_mut(&session) {
            client.connections = client.connections.saturating_sub(1);
        }
    }

    /// A connection came that was given up before: nothing is kept of a session that has no other.
    pub(super) fn refuse(&mut self, session: SessionId) {
        self.disconnect(session);
        if self.0.get(&session).is_some_and(|c| c.connections == 0) {
            self.0.remove(&session);
        }
    }

    /// The session is gone.
    pub(super) fn end(&mut self, session: SessionId) {
        self.0.remove(&session);
    }

    /// All of them, in the order of their sessions.
    pub(super) fn report(&self) -> Vec<ClientReport> {
        let (now, value) = (clock::now(), |n: &AtomicU64| n.load(Ordering::Relaxed));
        let told = |(session, c): (&SessionId, &Client)| ClientReport {
            session: *session,
            from: c.from,
            key: c.key.clone(),
            set: c.set,
            age: now.saturating_sub(c.since),
            connections: c.connections,
            requests: value(&c.traffic.requests),
            read: value(&c.traffic.read),
            written: value(&c.traffic.written),
            open_files: 0,
        };
        self.0.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_a_session_share_what_they_count() {
        let (mut clients, session) = (Clients::default(), SessionId(7));
        let with = |key| Who { key: Some((KeyId(key), "web".to_owned())), ..Who::default() };
        let one = clients.connect(session, with(7), 3);
        let two = clients.connect(session, with(9), 4);
        one.traffic().asked(10);
        two.traffic().asked(0);
        two.traffic().answered(5);
        clients.disconnect(session);
        let all = clients.report();
        assert_eq!(all.len(), 1);
        let c = &all[0];
        assert_eq!((c.set, c.connections, c.requests, c.read, c.written), (SetId(3), 1, 2, 5, 10));
        assert_eq!(c.key, Some((KeyId(9), "web".to_owned())), "it was rotated");
        clients.end(session);
        clients.connect(session, Who::default(), 3);
        clients.refuse(session);
        assert!(clients.report().is_empty());
    }

    #[test]
    fn what_a_connection_asks_counts_for_its_client_in_that_volume() {
        let (mut clients, all) = (Clients::default(), metrics::Clients::default());
        let took = Duration::from_millis(1);
        let connection =
            clients.connect(SessionId(7), Who { client: Some("web".to_owned()), ..Who::default() }, 3);
        for volume in [1, 2, 1] {
            connection.took(&all, VolumeId(volume), took);
        }
        clients.connect(SessionId(8), Who::default(), 3).took(&all, VolumeId(1), took);
        let told = all.read(Duration::ZERO);
        let told = told.into_iter().map(|(volume, all)| (volume.0, all.len(), all[0].1.count()));
        assert_eq!(told.collect::<Vec<_>>(), [(1, 1, 2), (2, 1, 1)], "servers are no clients");
    }
}
