//! The control plane of a server: start and stop, connections, membership, volumes, leases.

mod activity;
mod adopt;
mod answers;
mod arbitrate;
mod authority;
mod brick_warnings;
mod config;
mod connection;
mod console;
mod control_requests;
mod copies;
mod doctor;
mod drain;
mod entrance;
mod events;
mod evidence;
mod fencing;
mod grow;
mod hosts;
mod import;
mod invitation;
mod join;
mod leases;
mod leftovers;
mod local_key;
mod looks;
mod membership;
mod metrics;
mod mounts;
mod own_keys;
mod pages;
mod peers;
mod profile;
mod promote;
pub(crate) mod protocol;
mod rebalance;
mod replace_brick;
mod replace_server;
mod rotation;
mod secure;
pub(crate) mod state_folder;
mod status;
mod subdir;
mod threads;
mod volumes;
mod watch;
mod watchdog;
mod webhook;

use crate::adoption::Adoptions;
use crate::attempts::Attempts;
use crate::clock;
use crate::limits::EXPIRY_LOOK;
use crate::shard::ShardMessage;
use crate::shared::{Shared, lock};
use crate::speaker::{INVITATION, JOIN, Speaker};
use admin::AdminRequest;
use cluster::State;
use config_store::ConfigStore;
use entrance::{accept, accept_locally, listen, listen_if_given};
use grow::Making;
use ids::{BrickId, ServerId};
use peers::Peers;
use protocol::{ClusterReply, Incoming, Request, Response};
use server_core::threads::FRONT;
use state_folder::StateFolder;
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

pub use join::Join;
pub use pages::PageKey;

/// How a server is started.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The state folder.
    pub state: PathBuf,
    /// `host:port` to listen on, and by which others reach this server.
    pub address: String,
    /// A second `host:port` for the command line only.
    pub admin: Option<String>,
    /// The pool to join, if the state folder belongs to none yet.
    pub join: Option<Join>,
    /// A `host:port` where Prometheus reads metrics.
    pub metrics: Option<String>,
    /// What metrics are encrypted with; `None`: they are not.
    pub metrics_key: Option<PageKey>,
    /// A `host:port` for the web console.
    pub console: Option<String>,
    /// A file with a key and certificates for the web console that browsers believe.
    pub console_key: Option<PathBuf>,
    /// While it is alone, whoever has its fingerprint confirmed may take it into a pool over the network.
    pub invite: bool,
    /// Bytes that requests of all clients may take together, and answers that they have not taken yet.
    pub client_memory: Option<usize>,
}

impl ServerOptions {
    /// Whether a server with this state folder has a pool: it joins none.
    pub fn has_pool(state: &Path) -> bool {
        // A store that cannot be read is one, and the start says what is wrong with it.
        !matches!(ConfigStore::stored_server(&state.join("store")), Ok(None))
    }
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
    /// How often somebody without a key tries to come in.
    attempts: Attempts,
    /// How often the log told of whom this server refused.
    told_refusals: Attempts,
    /// This server is on its way into another pool, whose servers are refused until it is there.
    comes_in: AtomicBool,
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
    /// Looks at directories of bricks that are under way.
    looks: looks::Looks,
    /// Whether it follows invitations that come over the network.
    takes_invitations: bool,
    /// Where its socket for this machine is, to be removed at the end.
    machine_socket: Option<PathBuf>,
    /// One change of membership or volumes at a time from this server.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// How sending events to the webhook does.
    webhook: webhook::Webhook,
    /// Mounts that watch through this server.
    mounts: mounts::Mounts,
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
        let shared = Arc::new(Shared::new(control_requests, cores, options.client_memory));
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
        if let Some(path) = &self.control.machine_socket {
            // Another server's start removes what is left.
            let _gone = std::fs::remove_file(path);
        }
        events::end(&self.control);
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
        let admin = listen_if_given(options.admin.as_deref(), "--admin").await?;
        let ports = pages::Ports::listen(options).await?;
        let (local, machine_socket) = entrance::local_sockets(options, &folder.identity);
        let peers = Peers::new(shared.clone());
        let store_path = folder.store();
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&store_path);
        made.map_err(|e| format!("{}: {e}", store_path.display()))?;
        let stored = ConfigStore::stored_server(&store_path).map_err(|e| e.to_string())?;
        let me = match (stored, &options.join) {
            (Some(me), _) => me,
            (None, Some(join)) => join::join(&folder, join, &options.address).await?,
            (None, None) if folder.is_secured() => return Err(join::has_lost_its_store(&options.state)),
            (None, None) => ServerId(1),
        };
        let keys = own_keys::read(&folder)?;
        let me =
            own_keys::number_by_keys(me, keys.as_ref().filter(|_| stored.is_some()), &store_path, &peers)
                .await?;
        shared.set_keys(keys);
        shared.set_secured(folder.is_secured());
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
            attempts: Attempts::to_join(),
            told_refusals: Attempts::refused(),
            comes_in: AtomicBool::new(false),
            store: RwLock::new(store.clone()),
            generation: tokio::sync::watch::Sender::new(0),
            making: Mutex::default(),
            looks: looks::Looks::default(),
            takes_invitations: options.invite,
            machine_socket,
            changing: tokio::sync::Mutex::new(()),
            webhook: webhook::Webhook::default(),
            mounts: mounts::Mounts::default(),
        });
        control.begin_pool(&store, me, stored.is_none() && options.join.is_none()).await?;
        let pages = ports.begin(&control, options)?;
        threads::start(&control, FRONT)?;
        control.clone().follow(store, me);
        tokio::spawn(accept(control.clone(), listener, true));
        control.listen_besides(admin, local);
        pages.serve();
        begin_watching(&control);
        tokio::spawn(control_requests::run(control.clone(), received_requests));
        if stored.is_none() && options.join.is_some() {
            join::await_pool(&control).await;
        }
        Ok(control)
    }

    /// Takes connections where others than servers and mounts come in.
    fn listen_besides(self: &Arc<Self>, admin: Option<TcpListener>, local: Vec<UnixListener>) {
        if let Some(admin) = admin {
            tokio::spawn(accept(self.clone(), admin, false));
        }
        for local in local {
            tokio::spawn(accept_locally(self.clone(), local));
        }
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

    async fn handle(self: &Arc<Self>, body: &[u8], speaker: &Speaker, who: String) -> Vec<u8> {
        if body.first() == Some(&JOIN) {
            return protocol::encode(&self.on_join(body).await);
        }
        if body.first() == Some(&INVITATION) {
            return protocol::encode(&self.on_invitation(body, speaker).await);
        }
        if body.first() == Some(&admin::TAG) {
            let answer = match admin::decode_request(body) {
                Ok(AdminRequest::PoolSecure(_)) if *speaker != Speaker::Root => Err(answers::conflict(
                    "the pool is secured on one of its servers: run this there as root, without --server"
                        .to_owned(),
                )),
                Ok(AdminRequest::LocalKey(_)) if *speaker != Speaker::Root => Err(answers::conflict(
                    "only root of a server's machine gets this key, by the local socket: make one with mortar client add"
                        .to_owned(),
                )),
                Ok(request) => self.audited_admin(request, who).await,
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
            Request::LookForBricks { volume } => match self.look_for_bricks(*volume).await {
                Ok(missing) => Response::MissingBricks(missing),
                Err(e) => Response::Error(e.message),
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
        control.note_state(&state);
        control.shared.keep_counted(&state);
        *control.shared.state.write().unwrap_or_else(PoisonError::into_inner) = state.clone();
        if state.keys.secured && !control.shared.is_secured() {
            control.shared.set_secured(true);
            control.peers.forget();
            if let Err(e) = control.folder.note_secured() {
                tracing::error!("write down that the pool is secured: {e}");
            }
        }
        control.review_guests(&state);
        for shard in control.shared.shards() {
            let _gone = shard.send(ShardMessage::State(state.clone()));
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

/// Begins what goes on beside requests as long as the server runs.
fn begin_watching(control: &Arc<Control>) {
    tokio::spawn(end_expired(control.clone()));
    events::begin(control);
    tokio::spawn(webhook::run(control.clone()));
    tokio::spawn(hosts::run(control.clone()));
}

/// Ends connections whose keys have expired.
async fn end_expired(control: Arc<Control>) {
    loop {
        tokio::time::sleep(EXPIRY_LOOK).await;
        control.review_guests(&control.state());
    }
}

impl Control {
    /// Ends connections of those who are not let in any more.
    fn review_guests(&self, state: &State) {
        let (secured, now) = (self.shared.is_secured(), clock::unix_now());
        self.shared.guests.review(|who, server| who.may_stay(server, state, secured, now));
    }
}
