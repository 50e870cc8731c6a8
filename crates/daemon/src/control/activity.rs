//! Who uses a volume and what waits in it: collected from every server that has one of its bricks.

use super::Control;
use super::protocol::{ClusterReply, ClusterRequest};
use super::volumes::volume;
use crate::shard::ShardMessage;
use admin::{
    AdminError, ClientReports, ClientStatus, OpenFile, OpenFileReports, QueueReports, QueueStatus,
    RestingMounts,
};
use cluster::{State, Volume};
use ids::{ServerId, SetId};
use std::collections::{BTreeMap, BTreeSet};

/// Open files of a set that are named.
const NAMED: usize = 100;

impl Control {
    /// Asks every server of a volume; what they answered, and a line for each that did not.
    pub(super) async fn ask_servers_of(
        &self,
        (state, volume): (&State, &Volume),
        request: &ClusterRequest,
    ) -> (Vec<ClusterReply>, Vec<String>) {
        let servers: BTreeSet<ServerId> =
            state.sets_of(volume).flat_map(|s| s.bricks.iter().map(|b| b.server)).collect();
        self.ask_servers(servers.iter().filter_map(|s| state.servers.get(s)), request).await
    }

    /// The clients of this server that use a volume.
    pub(super) async fn own_clients(&self, name: &str) -> Result<ClusterReply, AdminError> {
        let state = self.state();
        let sets: BTreeSet<SetId> = volume(&state, name)?.sets.iter().copied().collect();
        let mut clients: BTreeMap<String, ClientStatus> = BTreeMap::new();
        for c in self.client_reports().await.into_iter().filter(|c| sets.contains(&c.set)) {
            let Some(from) = c.from else { continue };
            let (key, name) = c.key.unzip();
            let one = ClientStatus {
                address: from.to_string(),
                name,
                key,
                session: format!("{:016x}", c.session.0),
                connections: c.connections as u64,
                requests: c.requests,
                read_bytes: c.read,
                written_bytes: c.written,
                open_files: c.open_files as u64,
                seconds: c.age.as_secs(),
                mounts: 0,
            };
            add(&mut clients, one);
        }
        let mounts = self.mounts.of(volume(&state, name)?.id).into_iter().map(|(from, mounts)| {
            ClientStatus { address: from.to_string(), mounts, ..ClientStatus::default() }
        });
        Ok(ClusterReply::Clients(clients.into_values().chain(mounts).collect()))
    }

    pub(super) async fn volume_clients(&self, name: String) -> Result<ClientReports, AdminError> {
        let state = self.linearizable().await?;
        volume(&state, &name)?;
        // A mount watches through any server.
        let (replies, notes) =
            self.ask_servers(state.servers.values(), &ClusterRequest::Clients { volume: name.clone() }).await;
        let (mut clients, mut mounts) = (BTreeMap::new(), BTreeMap::<String, u64>::new());
        for reply in replies {
            let ClusterReply::Clients(theirs) = reply else { continue };
            for c in theirs {
                if c.mounts == 0 {
                    add(&mut clients, c);
                } else {
                    let sum = mounts.entry(c.address).or_default();
                    *sum = sum.saturating_add(c.mounts);
                }
            }
        }
        let resting = resting(mounts, &clients);
        let mut clients: Vec<ClientStatus> = clients.into_values().collect();
        clients.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.session.cmp(&b.session)));
        Ok(ClientReports { name, clients, resting, notes })
    }

    /// The open files that this server's bricks of a volume lead.
    pub(super) async fn own_fds(&self, name: &str) -> Result<ClusterReply, AdminError> {
        let state = self.state();
        let sets: BTreeSet<SetId> = volume(&state, name)?.sets.iter().copied().collect();
        let (mut many, mut files) = (0, Vec::new());
        for (set, open) in self.ask_shards(|to| ShardMessage::Opens(sets.clone(), NAMED, to)).await {
            many += open.many as u64;
            files.extend(open.some.into_iter().map(|(fid, path, clients)| OpenFile {
                path: path.unwrap_or_else(|| format!("<{fid}>")),
                set: set.into(),
                clients: clients as u64,
            }));
        }
        Ok(ClusterReply::Fds(many, files))
    }

    pub(super) async fn volume_fds(&self, name: String) -> Result<OpenFileReports, AdminError> {
        let state = self.linearizable().await?;
        let of = (&*state, volume(&state, &name)?);
        let (replies, notes) = self.ask_servers_of(of, &ClusterRequest::Fds { volume: name.clone() }).await;
        let (mut total, mut files) = (0u64, Vec::new());
        for reply in replies {
            if let ClusterReply::Fds(many, theirs) = reply {
                total = total.saturating_add(many);
                files.extend(theirs);
            }
        }
        files.iter_mut().for_each(|f| f.set = state.named(f.set.id).set);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(OpenFileReports { name, total, files, notes })
    }

    /// What waits at this server's bricks of a volume.
    pub(super) async fn own_queues(&self, name: &str) -> Result<ClusterReply, AdminError> {
        let state = self.state();
        let (me, reports) = (self.shared.me(), self.reports().await);
        let mut bricks = Vec::new();
        for set in state.sets_of(volume(&state, name)?) {
            for b in set.bricks.iter().filter(|b| b.server == me) {
                let Some(r) = reports.get(&b.id) else { continue };
                bricks.push(QueueStatus {
                    set: set.name(),
                    brick: state.brick_name(b),
                    waiting: r.queues.waiting as u64,
                    disk: r.queues.disk as u64,
                    asked: r.queues.asked as u64,
                    queued_bytes: r.queued,
                    unsynced: r.lsn.0.saturating_sub(r.durable.0),
                    journal_bytes: r.journal,
                    long_steps: self.shared.metrics.counts(set.id).map_or(0, |c| c.long_steps),
                });
            }
        }
        Ok(ClusterReply::Queues(bricks))
    }

    pub(super) async fn volume_queues(&self, name: String) -> Result<QueueReports, AdminError> {
        let state = self.linearizable().await?;
        let of = (&*state, volume(&state, &name)?);
        let (replies, notes) =
            self.ask_servers_of(of, &ClusterRequest::Queues { volume: name.clone() }).await;
        let theirs = |reply| if let ClusterReply::Queues(bricks) = reply { bricks } else { vec![] };
        let mut bricks: Vec<QueueStatus> = replies.into_iter().flat_map(theirs).collect();
        bricks.iter_mut().for_each(|b| b.set = state.named(b.set.id).set);
        bricks.sort_by(|a, b| (a.set, &a.brick).cmp(&(b.set, &b.brick)));
        Ok(QueueReports { name, bricks, notes })
    }
}

/// Mounts that have no session: of each address those beyond its sessions.
fn resting(
    mut mounts: BTreeMap<String, u64>,
    clients: &BTreeMap<String, ClientStatus>,
) -> Vec<RestingMounts> {
    for c in clients.values() {
        if let Some(mounts) = mounts.get_mut(&c.address) {
            *mounts = mounts.saturating_sub(1);
        }
    }
    let rest = mounts.into_iter().filter(|(_, mounts)| *mounts > 0);
    rest.map(|(address, mounts)| RestingMounts { address, mounts }).collect()
}

/// A client may have connections to several threads and servers.
fn add(to: &mut BTreeMap<String, ClientStatus>, c: ClientStatus) {
    let Some(known) = to.get_mut(&c.session) else {
        to.insert(c.session.clone(), c);
        return;
    };
    if c.key > known.key {
        (known.key, known.name) = (c.key, c.name);
    }
    known.connections = known.connections.saturating_add(c.connections);
    known.requests = known.requests.saturating_add(c.requests);
    known.read_bytes = known.read_bytes.saturating_add(c.read_bytes);
    known.written_bytes = known.written_bytes.saturating_add(c.written_bytes);
    known.open_files = known.open_files.saturating_add(c.open_files);
    known.seconds = known.seconds.max(c.seconds);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::KeyId;

    #[test]
    fn mounts_beyond_the_sessions_of_their_address_rest() {
        let one = |session: &str| {
            let client = ClientStatus { address: "192.0.2.7".to_owned(), ..ClientStatus::default() };
            (session.to_owned(), ClientStatus { session: session.to_owned(), ..client })
        };
        let mounts = |n| BTreeMap::from([("192.0.2.7".to_owned(), n), ("192.0.2.8".to_owned(), 1)]);
        let told = |n: u64, clients: &[&str]| -> Vec<(String, u64)> {
            let clients = clients.iter().map(|session| one(session)).collect();
            resting(mounts(n), &clients).into_iter().map(|r| (r.address, r.mounts)).collect()
        };
        let other = ("192.0.2.8".to_owned(), 1);
        assert_eq!(told(3, &["a"]), [("192.0.2.7".to_owned(), 2), other.clone()]);
        // A session is there a little longer than its mount.
        assert_eq!(told(1, &["a", "b"]), [other]);
    }

    #[test]
    fn what_servers_tell_of_one_client_adds_up() {
        let one = |session: &str, requests, seconds| ClientStatus {
            session: session.to_owned(),
            key: Some(KeyId(requests)),
            requests,
            seconds,
            open_files: 1,
            ..ClientStatus::default()
        };
        let mut all = BTreeMap::new();
        [one("a", 3, 9), one("b", 1, 1), one("a", 4, 7)].into_iter().for_each(|c| add(&mut all, c));
        let told: Vec<_> = all.values().map(|c| (c.requests, c.seconds, c.open_files)).collect();
        assert_eq!(told, [(7, 9, 2), (1, 1, 1)]);
        assert_eq!(all["a"].key, Some(KeyId(4)), "the newest of its keys");
    }
}
