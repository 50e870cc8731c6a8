//! Servers in one process: a network in memory that can be cut, and stores that can be killed and reopened.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use cluster::{BrickSpec, Command, NewServer, NewVolume, OptionChange, hex};
use ids::ServerId;

use crate::{BoxFuture, ConfigStore, Options, Transport, TransportError};

/// A folder that goes with its value.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
        let path = base.join(format!("mortar-config-store-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[derive(Default)]
struct Wires {
    at: BTreeMap<String, ConfigStore>,
    cut: BTreeSet<ServerId>,
}

/// All wires.
#[derive(Clone, Default)]
pub(crate) struct Hub(Arc<Mutex<Wires>>);

/// One server's end of them.
pub(crate) struct End {
    hub: Hub,
    me: ServerId,
}

impl Hub {
    pub(crate) fn end(&self, me: ServerId) -> Arc<dyn Transport> {
        Arc::new(End { hub: self.clone(), me })
    }

    pub(crate) fn plug(&self, address: &str, store: &ConfigStore) {
        self.0.lock().unwrap().at.insert(address.to_string(), store.clone());
    }

    pub(crate) fn unplug(&self, address: &str) {
        self.0.lock().unwrap().at.remove(address);
    }

    /// Cuts these servers off from everybody.
    pub(crate) fn cut(&self, ids: &[ServerId]) {
        self.0.lock().unwrap().cut = ids.iter().copied().collect();
    }
}

impl Transport for End {
    fn send(
        &self,
        to: ServerId,
        address: String,
        request: Vec<u8>,
    ) -> BoxFuture<Result<Vec<u8>, TransportError>> {
        let (hub, me) = (self.hub.clone(), self.me);
        Box::pin(async move {
            let store = {
                let wires = hub.0.lock().unwrap();
                let whole = !wires.cut.contains(&me) && !wires.cut.contains(&to);
                wires.at.get(&address).filter(|_| whole).cloned()
            };
            match store {
                Some(store) => store.handle(request).await,
                None => Err(TransportError(format!("nobody at {address}"))),
            }
        })
    }
}

/// Short times, yet long enough for a machine that does much else.
pub(crate) fn options() -> Options {
    Options {
        heartbeat: Duration::from_millis(80),
        election_min: Duration::from_millis(300),
        election_max: Duration::from_millis(600),
        snapshot_after: 50,
        replace_voter_after: Duration::ZERO,
        command_timeout: Duration::from_secs(5),
    }
}

pub(crate) fn server(n: u64) -> NewServer {
    NewServer { identity: hex::encode(u128::from(n) + 1), host: format!("h{n}"), address: format!("h{n}:1") }
}

/// A pool of servers.
pub(crate) struct Pool {
    pub(crate) hub: Hub,
    folders: BTreeMap<u64, Folder>,
    pub(crate) stores: BTreeMap<u64, ConfigStore>,
}

impl Pool {
    pub(crate) async fn new(servers: u64) -> Pool {
        let mut pool = Pool { hub: Hub::default(), folders: BTreeMap::new(), stores: BTreeMap::new() };
        pool.start(1).await;
        pool.stores[&1].init_pool(hex::encode(99), server(1)).await.unwrap();
        pool.stores[&1].propose(volume()).await.unwrap();
        for n in 2..=servers {
            pool.grow(n).await;
        }
        pool
    }

    /// Probes server `n`.
    pub(crate) async fn grow(&mut self, n: u64) {
        let any = self.stores.values().next().unwrap().clone();
        let id = any.add_server(server(n)).await.unwrap();
        assert_eq!(id, ServerId(n));
        self.start(n).await;
        self.wait_until(|p| p.stores[&n].state().servers.contains_key(&id), "the new server has the state")
            .await;
    }

    pub(crate) async fn start(&mut self, n: u64) {
        let address = self.stores.values().next().and_then(|s| s.state().servers.get(&ServerId(n)).cloned());
        let address = address.map_or(format!("h{n}:1"), |s| s.address);
        self.start_at(n, &address).await;
    }

    pub(crate) async fn start_at(&mut self, n: u64, address: &str) {
        let folder = self.folders.entry(n).or_insert_with(Folder::new);
        let end = self.hub.end(ServerId(n));
        let store = ConfigStore::open(&folder.0, ServerId(n), end, options()).await.unwrap();
        self.hub.plug(address, &store);
        self.stores.insert(n, store);
    }

    pub(crate) async fn kill(&mut self, n: u64) {
        let store = self.stores.remove(&n).unwrap();
        let address =
            store.state().servers.get(&ServerId(n)).map_or(format!("h{n}:1"), |s| s.address.clone());
        self.hub.unplug(&address);
        store.shutdown().await;
    }

    pub(crate) fn folder(&self, n: u64) -> &Path {
        &self.folders[&n].0
    }

    pub(crate) async fn wait_until(&self, done: impl Fn(&Pool) -> bool, what: &str) {
        let started = Instant::now();
        while !done(self) {
            let m: Vec<_> = self.stores.values().map(ConfigStore::metrics).collect();
            assert!(started.elapsed() < LIMIT, "{what}: {m:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn adjust_voters(&self, voters: &[u64]) {
        let wanted: BTreeSet<ServerId> = voters.iter().map(|n| ServerId(*n)).collect();
        let is = |s: &ConfigStore| s.metrics().voters == wanted && s.is_settled();
        self.wait_until(|p| p.stores.values().all(is), &format!("voters {voters:?}")).await;
    }

    pub(crate) fn leader(&self) -> Option<u64> {
        self.stores.iter().find(|(_, s)| s.is_leader()).map(|(n, _)| *n)
    }

    /// Changes something that can be told apart, through the first store that runs.
    pub(crate) async fn mark(&self, mark: &str) {
        self.stores.values().next().unwrap().propose_anywhere(mark_command(mark), LIMIT).await.unwrap();
    }

    pub(crate) fn is_marked(&self, n: u64, mark: &str) -> bool {
        self.stores[&n]
            .state()
            .volume("v")
            .is_some_and(|v| v.options.get("user.mark").is_some_and(|m| m == mark))
    }

    pub(crate) async fn wait_marked(&self, mark: &str) {
        self.wait_until(|p| p.stores.keys().all(|n| p.is_marked(*n, mark)), &format!("all have {mark}"))
            .await;
    }
}

pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn mark_command(mark: &str) -> Command {
    let change = OptionChange { volume: "v".into(), key: "user.mark".into(), value: Some(mark.into()) };
    Command::SetOptions { changes: vec![change] }
}

fn volume() -> Command {
    let bricks = vec![BrickSpec { server: ServerId(1), path: "/b".into() }];
    Command::CreateVolume(NewVolume {
        name: "v".into(),
        replica: 1,
        arbiter: 0,
        bricks,
        force: false,
        created: 0,
        expect_brick: None,
        options: BTreeMap::new(),
    })
}
