//! The control plane of a server: start and stop, connections, membership, volumes, leases.

mod activity;
mod adopt;
mod answers;
mod arbitrate;
mod connection;
mod control_requests;
mod copies;
mod evidence;
mod fencing;
mod grow;
mod leases;
mod leftovers;
mod membership;
mod metrics;
mod peers;
mod promote;
pub(crate) mod protocol;
mod rebalance;
mod replace_brick;
mod replace_server;
pub(crate) mod state_folder;
mod status;
mod threads;
mod volumes;
mod watch;
mod watchdog;

use crate::adoption::Adoptions;
use crate::guests::{Guests, Knock};
use crate::limits::HANDSHAKE_WAIT;
use crate::metrics::Closed;
use crate::shard::ShardMessage;
use crate::shared::{Shared, lock};
use cluster::{NewServer, State};
use config_store::ConfigStore;
use grow::Making;
use ids::{BrickId, ServerId};
use peers::Peers;
use protocol::{ClusterReply, Incoming, Request, Response};
use server_core::threads::FRONT;
use state_folder::StateFolder;
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, HelloReply, Purpose};

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The state folder.
    pub state: PathBuf,
    /// `host:port` to listen on, and by which others reach this server.
    pub address: String,
    /// A second `host:port` for the command line only.
    pub admin: Option<String>,
    /// A `host:port` where Prometheus reads metrics.
    pub metrics: Option<String>,
}

/// Why a server does not start. One line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct StartError(String);

/// A running server.
pub struct Server {
    control: Arc<Control>,
    runtime: tokio::runtime::Runtime,
    signals: Signals,
}

/// What the control plane's tasks share.
pub(crate) struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) peers: Peers,
    pub(crate) folder: StateFolder,
    pub(crate) address: String,
    /// Who is connected.
    guests: Arc<Guests>,
    /// The pool store; another one after this server joined or left a pool.
    store: RwLock<ConfigStore>,
    /// Tasks that belong to the present store end when this changes.
    generation: tokio::sync::watch::Sender<u64>,
    pub(crate) leases: leases::Leases,
    /// What is being adopted on this server.
    pub(crate) adoptions: Adoptions,
    /// The threads of the shards; `None` once the server stops, and no more are started.
    threads: Mutex<Option<Vec<std::thread::JoinHandle<()>>>>,
    /// Bricks that are made for a command, with their directories, and since when.
    making: Mutex<BTreeMap<(BrickId, String), Duration>>,
    /// One change of membership or volumes at a time from this server.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

/// Requests to stop, watched for from the first moment on: also before the server serves one must not kill it.
struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn watch() -> std::io::Result<Signals> {
        Ok(Signals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }
}

impl Server {
    /// Starts the server. It listens when this returns.
    ///
    /// # Errors
    /// One line that names what is in the way: the state folder, the address, the pool store.
    pub fn start(options: &ServerOptions) -> Result<Server, StartError> {
        rustix::process::umask(rustix::fs::Mode::empty());
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(16)
            .thread_name("control")
            .enable_all()
            .build()
            .map_err(|e| StartError(format!("start threads: {e}")))?;
        let signals = runtime.block_on(async { Signals::watch() });
        let signals = signals.map_err(|e| StartError(format!("watch for signals: {e}")))?;
        let (control_requests, received_requests) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::new(control_requests, cores));
        let control =
            runtime.block_on(Control::start(options, shared, received_requests)).map_err(StartError)?;
        Ok(Server { control, runtime, signals })
    }

    /// The address that others reach this server by.
    pub fn address(&self) -> &str {
        &self.control.address
    }

    /// Waits until the process is asked to stop (SIGTERM, SIGINT), then closes everything cleanly.
    pub fn run(self) {
        let mut signals = self.signals;
        let mut threads = None;
        self.runtime.block_on(async {
            tokio::select! { _ = signals.term.recv() => {}, _ = signals.int.recv() => {} }
            tracing::info!("stopping");
            // Whoever is started by now is told.
            threads = lock(&self.control.threads).take();
            let mut stopped = Vec::new();
            for shard in self.control.shared.shards() {
                let (done, wait) = oneshot::channel();
                if shard.send(ShardMessage::Stop(done)).is_ok() {
                    stopped.push(wait);
                }
            }
            let all = async {
                for wait in stopped {
                    let _gone = wait.await;
                }
                self.control.store().shutdown().await;
            };
            if tokio::time::timeout(Duration::from_secs(20), all).await.is_err() {
                tracing::warn!("stopping takes too long: leaving without the rest");
                std::process::exit(1);
            }
        });
        for shard in threads.into_iter().flatten() {
            let _panicked = shard.join();
        }
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}

impl Control {
    async fn start(
        options: &ServerOptions,
        shared: Arc<Shared>,
        received_requests: mpsc::UnboundedReceiver<crate::shared::ControlRequest>,
    ) -> Result<Arc<Control>, String> {
        let folder = StateFolder::open(&options.state)?;
        let listener = listen(&options.address).await?;
        let admin = match &options.admin {
            Some(address) => Some(listen(address).await?),
            None => None,
        };
        let metrics = match &options.metrics {
            Some(address) => Some(listen(address).await.map_err(|e| e.replace("--address", "--metrics"))?),
            None => None,
        };
        let peers = Peers::new(shared.clone());
        let store_path = folder.store();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&store_path);
        made.map_err(|e| format!("{}: {e}", store_path.display()))?;
        let stored = ConfigStore::stored_server(&store_path).map_err(|e| e.to_string())?;
        let me = stored.unwrap_or(ServerId(1));
        let store = open_store(&store_path, me, &peers).await?;
        if stored.is_some() {
            fencing::look_around(&folder, &store, &peers, me).await?;
        }
        let control = Arc::new(Control {
            leases: leases::Leases::default(),
            adoptions: Adoptions::default(),
            threads: Mutex::new(Some(Vec::new())),
            shared,
            peers,
            folder,
            address: options.address.clone(),
            guests: Guests::new(most_connections()),
            store: RwLock::new(store.clone()),
            generation: tokio::sync::watch::Sender::new(0),
            making: Mutex::default(),
            changing: tokio::sync::Mutex::new(()),
        });
        if stored.is_none() {
            control.make_pool(&store).await?;
        }
        threads::start(&control, FRONT)?;
        control.clone().follow(store, me);
        tokio::spawn(accept(control.clone(), listener, true));
        if let Some(admin) = admin {
            tokio::spawn(accept(control.clone(), admin, false));
        }
        if let Some(listener) = metrics {
            let asked = control.clone();
            tokio::spawn(crate::metrics::serve(listener, move || {
                let control = asked.clone();
                async move { control.metrics().await }
            }));
        }
        tokio::spawn(control_requests::run(control.clone(), received_requests));
        Ok(control)
    }

    /// A pool of this server alone.
    async fn make_pool(&self, store: &ConfigStore) -> Result<(), String> {
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(h, _)| h);
        let server = NewServer {
            identity: self.folder.identity.clone(),
            host: host.trim_matches(['[', ']']).to_owned(),
            address: self.address.clone(),
        };
        let pool = cluster::hex::encode(rand::random());
        store.init_pool(pool, server).await.map_err(|e| e.to_string())
    }

    /// The present pool store.
    pub(crate) fn store(&self) -> ConfigStore {
        self.store.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.store().state()
    }

    /// Makes `store` the present one and starts the tasks that belong to it.
    pub(crate) fn follow(self: Arc<Self>, store: ConfigStore, me: ServerId) {
        self.shared.drop_lease();
        self.shared.me.store(me.0, Ordering::Relaxed);
        *self.store.write().unwrap_or_else(PoisonError::into_inner) = store.clone();
        self.generation.send_modify(|g| *g += 1);
        tokio::spawn(until_next(self.generation.subscribe(), publish(self.clone(), store.clone())));
        tokio::spawn(until_next(self.generation.subscribe(), leases::renew(self.clone(), store.clone())));
        tokio::spawn(until_next(
            self.generation.subscribe(),
            leases::detect_failures(self.clone(), store.clone()),
        ));
        tokio::spawn(until_next(
            self.generation.subscribe(),
            fencing::fence_others(self.clone(), store.clone()),
        ));
        let announce = membership::announce_address(self.clone(), store);
        tokio::spawn(until_next(self.generation.subscribe(), announce));
    }

    async fn handle(self: &Arc<Self>, body: &[u8]) -> Vec<u8> {
        if body.first() == Some(&admin::TAG) {
            let answer = match admin::decode_request(body) {
                Ok(request) => self.admin(request).await,
                Err(e) => Err(e),
            };
            return admin::encode_answer(answer);
        }
        let request = match protocol::decode::<Request>(body) {
            Ok(Incoming::Raft(bytes)) => {
                return match self.store().handle(bytes.to_vec()).await {
                    Ok(answer) => protocol::encode_raft(&answer),
                    Err(e) => protocol::encode(&Response::Error(e.to_string())),
                };
            }
            Ok(Incoming::Json(request)) => request,
            Err(e) => {
                let line = format!("bad request: {e}: use programs of like age");
                return protocol::encode(&Response::Error(line));
            }
        };
        let response = match request {
            Request::Cluster(request) => Response::Cluster(match self.cluster(request).await {
                Ok(reply) => reply,
                Err(e) => ClusterReply::Error(e),
            }),
            Request::Beat(beat) => self.on_beat(beat).await,
            Request::Suspect { server } => {
                control_requests::suspect(self, server).await;
                Response::Done
            }
            Request::ReleaseBricks { volume } => match self.release_bricks(&volume).await {
                Ok(()) => Response::Done,
                Err(e) => Response::Error(e),
            },
            Request::NewBricks { volume, sets, bricks, make, adopt } => {
                let making = if make { Making::Make { adopt } } else { Making::TakeApart };
                match self.new_bricks(&volume, &sets, &bricks, making).await {
                    Ok(()) => Response::Done,
                    Err(e) => Response::Error(e),
                }
            }
        };
        protocol::encode(&response)
    }
}

pub(crate) async fn open_store(
    path: &std::path::Path,
    me: ServerId,
    peers: &Peers,
) -> Result<ConfigStore, String> {
    let options = config_store::Options::default();
    ConfigStore::open(path, me, Arc::new(peers.clone()), options).await.map_err(|e| e.to_string())
}

async fn until_next(mut generation: tokio::sync::watch::Receiver<u64>, task: impl Future<Output = ()>) {
    generation.mark_unchanged();
    tokio::select! { () = task => {}, _ = generation.changed() => {} }
}

/// Hands every new state of the pool to the shards.
async fn publish(control: Arc<Control>, store: ConfigStore) {
    let mut states = store.watch();
    loop {
        let state = states.borrow_and_update().clone();
        threads::place(&control, &state).await;
        *control.shared.pool.write().unwrap_or_else(PoisonError::into_inner) =
            server_core::pool_bytes(&state);
        *control.shared.state.write().unwrap_or_else(PoisonError::into_inner) = state.clone();
        for shard in control.shared.shards() {
            let _gone = shard.send(ShardMessage::State(state.clone()));
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

async fn listen(address: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!(
                "{address}: the port is in use: stop whatever listens there, or give --address another port"
            )
        }
        std::io::ErrorKind::AddrNotAvailable => {
            format!("{address}: this machine does not have that address: give --address one that it has")
        }
        _ => format!("{address}: {e}"),
    })
}

/// Connections of all clients and servers together: half of the descriptors that this process may have.
fn most_connections() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    usize::try_from(limit.unwrap_or(u64::MAX) / 2).unwrap_or(usize::MAX)
}

async fn accept(control: Arc<Control>, listener: TcpListener, data: bool) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(knock) = control.guests.knock(from.ip()) else {
                    control.shared.metrics.closed(Closed::TooMany);
                    tracing::warn!("a connection from {} is closed: there are too many", from.ip());
                    continue;
                };
                let control = control.clone();
                tokio::spawn(async move {
                    if let Err(e) = handshake(control, stream, knock, data).await {
                        tracing::debug!("connection: {e}");
                    }
                });
            }
            Err(e) => {
                // Out of descriptors, mostly: others will be closed.
                tracing::warn!("accept a connection: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn handshake(
    control: Arc<Control>,
    mut stream: TcpStream,
    knock: Knock,
    data: bool,
) -> Result<(), transport::TransportError> {
    let accepted = tokio::time::timeout(HANDSHAKE_WAIT, transport::accept(&mut stream))
        .await
        .unwrap_or(Err(transport::TransportError::Closed));
    let (hello, id) = accepted.inspect_err(|_| control.shared.metrics.closed(Closed::Handshake))?;
    drop(knock);
    let address = stream.peer_addr()?.ip();
    let (guest, refused) = match control.guests.enter(address, hello.from) {
        Ok(guest) => (Some(guest), control.refusal(&hello, data)),
        Err(why) => (None, Some(why)),
    };
    if refused.is_some() {
        control.shared.metrics.closed(Closed::Refused);
    }
    let reply = HelloReply {
        refused: Blob(refused.clone().unwrap_or_default().into_bytes()),
        version: VERSIONS.first().copied().unwrap_or(2),
        pool: control.shared.pool(),
        server: control.shared.me(),
        shards: threads::SLOTS,
    };
    tokio::time::timeout(HANDSHAKE_WAIT, transport::answer(&mut stream, id, &reply))
        .await
        .map_err(|_| transport::TransportError::Closed)??;
    let Some(guest) = guest.filter(|_| refused.is_none()) else { return Ok(()) };
    let message = match hello.purpose {
        Purpose::Control => return connection::serve(control, stream, guest).await,
        Purpose::Session { shard, connection, oldest } => {
            let from = (hello.from == ServerId(0)).then_some(address);
            let (stream, session) = (stream.into_std()?, hello.session);
            (shard, ShardMessage::Data { stream, session, connection, oldest, from, slot: shard, guest })
        }
        Purpose::Peer { shard } => {
            let (stream, from) = (stream.into_std()?, hello.from);
            (shard, ShardMessage::Peer { stream, from, slot: shard, guest })
        }
    };
    let index = threads::of_slot(&control, message.0).await;
    if let Some(shard) = control.shared.shard(index).or_else(|| control.shared.shard(FRONT)) {
        let _stopping = shard.send(message.1);
    }
    Ok(())
}

impl Control {
    fn refusal(&self, hello: &Hello, data: bool) -> Option<String> {
        if !hello.versions.0.iter().any(|v| VERSIONS.contains(v)) {
            return Some(format!("speaks protocol versions {VERSIONS:?}: use programs of like age"));
        }
        if !data && hello.purpose != Purpose::Control {
            return Some("this address is for administration only: use the server's --address".to_owned());
        }
        let own = self.shared.pool();
        (hello.pool != [0; 16] && hello.pool != own).then(|| "this server belongs to another pool".to_owned())
    }
}
