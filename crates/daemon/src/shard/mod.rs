//! Shards: threads, each with its own event loop, sets and connections.
//!
//! A set belongs to one shard, so its state is never locked: all that concerns it happens on one thread, one thing after
//! another. Only system calls that may wait for a disk (cold reads, syncs) run elsewhere. The sets of one shard are on one
//! disk ([`server_core::Threads`]): a disk that hangs holds up nobody else. The front shard has no sets, and takes the
//! connections that are for no set of this server, or for all.

mod ask;
mod connection;
mod links;
mod load;
mod opening;
mod redial;
mod report;
mod sessions;
mod set;
mod slow;
mod slow_calls;
mod slow_changes;
mod top;

use crate::clock;
use crate::guests::Guest;
use crate::pulse::Pulse;
use crate::shared::{ControlRequest, Shared, lock};
use cluster::State;
use connection::Asked;
use ids::{BrickId, Epoch, Fid, Lsn, ServerId, SessionId, SetId};
use links::Links;
use server_core::Limits;
use server_core::threads::FRONT;
use server_core::{Asker, OpenSets, Sessions};
pub(crate) use sessions::{ClientReport, Who};
use sessions::{Clients, Connection};
use set::SetHandle;
use set_core::Input;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, LocalSet};
pub(crate) use top::{TopObject, TopReport};
use transport::Detached;
use wire::{Errno, Frame, Op, User};

/// How often timers of sets are looked at.
const TICK: Duration = Duration::from_millis(50);
/// How often lazily kept attributes are written and room is measured.
const MAINTENANCE: Duration = Duration::from_secs(1);

/// What a shard is told.
#[derive(Debug)]
pub(crate) enum ShardMessage {
    /// A connection after its handshake of a client.
    Data {
        connection: Detached,
        session: SessionId,
        /// The client that the session belongs to, if it showed a key.
        owner: Option<String>,
        /// Who has it.
        who: Box<Who>,
        /// The session's number for it, and the lowest that it has not given up.
        numbers: (u64, u64),
        origin: Origin,
        /// The number by which it was asked for: that of the set.
        slot: u16,
        guest: Guest,
    },
    /// A connection after its handshake of another server.
    Peer {
        connection: Detached,
        from: ServerId,
        /// The number by which it was asked for: that of the set.
        slot: u16,
        guest: Guest,
    },
    /// A client's request for a set of this shard that came in on another.
    Call { asked: Box<Asked>, session: SessionId, origin: Origin },
    /// A peer's message for a set of this shard that came in on another.
    FromPeer { frame: Frame },
    /// The session has no connection to this server any more, for good.
    SessionEnded(SessionId),
    /// The pool changed.
    State(Arc<State>),
    /// How do the bricks do?
    Report(oneshot::Sender<Vec<BrickReport>>),
    /// Does the disk of this set's brick work? The report tells when it last did.
    LookAtDisk(SetId),
    /// Which sessions are there?
    Clients(oneshot::Sender<Vec<ClientReport>>),
    /// What of these sets is asked for most? It is counted from now on.
    Top(BTreeSet<SetId>, oneshot::Sender<Vec<(SetId, TopReport)>>),
    /// Which files of these sets are held open? So many at most are named.
    Opens(BTreeSet<SetId>, usize, oneshot::Sender<Vec<(SetId, OpenFiles)>>),
    /// Close everything cleanly.
    Stop(oneshot::Sender<()>),
}

/// Where requests of a client come from, and what they may be about. The default is another server, which may ask for all.
#[derive(Clone, Default, Debug)]
pub(crate) struct Origin {
    /// The address, unless it is another server.
    pub(crate) address: Option<IpAddr>,
    /// What its key is for.
    pub(crate) limits: Option<Limits>,
}

impl Origin {
    /// The user whose permissions count for an operation that names this one; `None`: nobody's.
    ///
    /// # Errors
    /// `EACCES`: whoever asks may not do so for him.
    pub(crate) fn user(&self, named: u32, op: &Op) -> Result<Option<User>, Errno> {
        self.limits.as_ref().map_or(Ok(None), |limits| limits.user(named, op))
    }

    /// The directory beneath which all has to lie that is asked for; `None`: anywhere.
    pub(crate) fn beneath(&self) -> Option<Fid> {
        self.limits.as_ref()?.beneath.map(|(fid, _)| fid)
    }
}

/// Files of a set that sessions hold open.
#[derive(Clone, Debug)]
pub(crate) struct OpenFiles {
    /// How many there are.
    pub(crate) many: usize,
    /// Some of them: each with its path, if that is known, and how many sessions hold it.
    pub(crate) some: Vec<(Fid, Option<String>, usize)>,
}

/// How one brick does.
#[derive(Clone, Debug)]
pub(crate) struct BrickReport {
    pub(crate) brick: BrickId,
    pub(crate) role: replica::Role,
    pub(crate) epoch: Epoch,
    pub(crate) lsn: Lsn,
    pub(crate) durable: Lsn,
    /// When everything was last brought to disk.
    pub(crate) disk_answered: Option<Duration>,
    pub(crate) free: u64,
    pub(crate) total: u64,
    /// How far its healing is.
    pub(crate) heal: Option<admin::HealProgress>,
    /// What has moved from its set to others.
    pub(crate) moved: admin::MovedFiles,
    /// The epoch of its last change.
    pub(crate) last_epoch: Epoch,
    /// Something of what it holds is stale.
    pub(crate) uncertain: bool,
    /// Bytes of its journal.
    pub(crate) journal: u64,
    /// What waits in its set.
    pub(crate) queues: set_core::Queues,
    /// Bytes that wait for connections to its set's other bricks.
    pub(crate) queued: u64,
}

/// One shard, on its own thread.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    pub(crate) links: Rc<Links>,
    sets: RefCell<OpenSets<SetHandle>>,
    /// Openings of bricks: what is taken out is given up.
    openings: RefCell<HashMap<SetId, oneshot::Sender<()>>>,
    /// Bricks that are being closed.
    closings: RefCell<Vec<JoinHandle<()>>>,
    state: RefCell<Arc<State>>,
    sessions: RefCell<Sessions<Connection>>,
    /// Who has those sessions.
    clients: RefCell<Clients>,
    known: Cell<u64>,
    /// How its sets ask others.
    asker: RefCell<Asker>,
    /// The newest connection to each server for that.
    callers: RefCell<HashMap<ServerId, ask::Asked>>,
}

/// Starts a shard's thread. It ends after [`ShardMessage::Stop`].
pub(crate) fn start(
    index: usize,
    shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    inbox: mpsc::UnboundedReceiver<ShardMessage>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
        let built = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(32)
            .thread_name(format!("disk-{index}"))
            .thread_keep_alive(Duration::from_secs(10))
            .build();
        let runtime = match built {
            Ok(runtime) => runtime,
            Err(e) => {
                tracing::error!("start shard {index}: {e}");
                std::process::abort();
            }
        };
        LocalSet::new().block_on(&runtime, run(index, shared, pulse, inbox));
        runtime.shutdown_timeout(Duration::from_secs(5));
    })
}

async fn run(
    index: usize,
    shared: Arc<Shared>,
    pulse: Arc<Pulse>,
    mut inbox: mpsc::UnboundedReceiver<ShardMessage>,
) {
    let shard = Rc::new_cyclic(|weak| Shard {
        index,
        links: Rc::new(Links::new(shared.clone(), weak.clone())),
        sets: RefCell::default(),
        openings: RefCell::default(),
        closings: RefCell::default(),
        state: RefCell::default(),
        sessions: RefCell::default(),
        clients: RefCell::default(),
        known: Cell::new(0),
        // Random, for the life of the process.
        asker: RefCell::new(Asker::new(SessionId(rand::random()))),
        callers: RefCell::default(),
        pulse,
        shared,
    });
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut last_maintenance = clock::now();
    loop {
        tokio::select! {
            message = inbox.recv() => match message {
                Some(ShardMessage::Stop(done)) => {
                    shard.close().await;
                    let _gone = done.send(());
                    return;
                }
                Some(message) => shard.take(message),
                None => return,
            },
            _ = tick.tick() => {
                shard.tick();
                if clock::now() >= last_maintenance + MAINTENANCE {
                    last_maintenance = clock::now();
                    shard.maintain();
                }
            }
        }
    }
}

impl Shard {
    /// The open set of that number.
    pub(crate) fn set(&self, set: SetId) -> Option<SetHandle> {
        self.sets.borrow().get(set).cloned()
    }

    /// Whether a connection that was asked for by that number came here before its set had a shard. It ends: those after
    /// it go to that shard, and only that one knows then what its session has given up.
    fn is_misplaced(&self, slot: u16) -> bool {
        self.index == FRONT && self.elsewhere(SetId(slot.into())).is_some()
    }

    /// The shard that serves a set, if it is another one.
    fn elsewhere(&self, set: SetId) -> Option<&mpsc::UnboundedSender<ShardMessage>> {
        let index = self.shared.shard_index(set).filter(|n| *n != self.index)?;
        self.shared.shard(index)
    }

    fn open_sets(&self) -> Vec<SetHandle> {
        self.sets.borrow().all().map(|(_, handle)| handle.clone()).collect()
    }

    /// The version of the pool's state that this shard's sets know.
    pub(crate) fn version(&self) -> u64 {
        self.known.get()
    }

    /// Until when its sets may answer; `None`: what it knows of the pool is too old.
    pub(crate) fn lease(&self) -> Option<Duration> {
        self.pulse.lease(&self.shared, self.version())
    }

    /// A client asks for something.
    pub(crate) fn note_call(&self) {
        self.shared.note_call(clock::now());
    }

    /// The pool as this shard knows it.
    pub(crate) fn state(&self) -> Arc<State> {
        self.state.borrow().clone()
    }

    fn take(self: &Rc<Self>, message: ShardMessage) {
        match message {
            ShardMessage::Data { connection: stream, session, owner, who, numbers, origin, slot, guest } => {
                let number = numbers.0;
                let connection = self.clients.borrow_mut().connect(session, *who, slot);
                let known = self.sessions.borrow_mut().connect((session, owner), numbers, connection.clone());
                known.given_up.iter().for_each(Connection::give_up);
                if known.accepted {
                    let caller = connection::Caller { session, connection, origin };
                    connection::serve_client(self.clone(), stream, (number, slot), caller, guest);
                } else {
                    self.clients.borrow_mut().refuse(session);
                }
            }
            ShardMessage::Peer { connection, from, slot, guest } => {
                connection::serve_peer(self.clone(), connection, (from, slot), guest);
            }
            ShardMessage::Call { asked, session, origin } => {
                connection::on_call(self, *asked, session, origin);
            }
            ShardMessage::FromPeer { frame } => connection::on_peer(self, frame),
            ShardMessage::SessionEnded(session) => {
                for set in self.open_sets() {
                    set.session_ended(session);
                }
            }
            ShardMessage::State(state) => self.on_state(state),
            ShardMessage::Report(to) => {
                let reports = self.open_sets().iter().filter_map(SetHandle::report).collect();
                let _gone = to.send(reports);
            }
            ShardMessage::LookAtDisk(set) => {
                if let Some(set) = self.set(set) {
                    set.step(Input::LookAtDisk);
                }
            }
            ShardMessage::Clients(to) => {
                let mut clients = self.clients.borrow().report();
                self.open_sets().iter().for_each(|set| set.count_open(&mut clients));
                let _gone = to.send(clients);
            }
            ShardMessage::Top(sets, to) => {
                let wanted = self.open_sets().into_iter().filter(|s| sets.contains(&s.number()));
                let _gone = to.send(wanted.filter_map(|s| Some((s.number(), s.top()?))).collect());
            }
            ShardMessage::Opens(sets, most, to) => {
                let wanted = self.open_sets().into_iter().filter(|s| sets.contains(&s.number()));
                let _gone = to.send(wanted.filter_map(|s| Some((s.number(), s.open_files(most)?))).collect());
            }
            ShardMessage::Stop(_) => {}
        }
    }

    fn tick(&self) {
        self.pulse.beat();
        for set in self.open_sets() {
            set.step(Input::Tick);
        }
    }

    fn maintain(self: &Rc<Self>) {
        for set in self.open_sets() {
            set.maintain();
        }
        self.retry_failed();
    }

    /// Bricks that failed are closed, and opened anew after a while: what failed them may be over.
    fn retry_failed(self: &Rc<Self>) {
        let now = clock::now();
        let closing = self.sets.borrow_mut().close_failed(now, SetHandle::has_failed);
        for (_, brick, handle) in closing {
            self.close_set(brick, handle);
        }
        let due = self.sets.borrow_mut().is_due(now);
        if due {
            self.on_state(self.state());
        }
    }

    /// A set's link to a server came up, or the server's port refuses connections.
    pub(crate) fn link_changed(&self, server: ServerId, set: SetId, up: bool) {
        if let Some(set) = self.set(set) {
            set.link_changed(server, up);
        }
        if !up {
            let _gone = self.shared.control_requests.send(ControlRequest::Suspect(server));
        }
    }

    fn on_state(self: &Rc<Self>, state: Arc<State>) {
        let known = self.state();
        if state.pool == known.pool && state.version < known.version {
            return;
        }
        *self.state.borrow_mut() = state.clone();
        let mut wanted = server_core::bricks_to_open(&state, self.shared.me());
        wanted.retain(|set, _| self.shared.shard_index(*set) == Some(self.index));
        let todo = self.sets.borrow_mut().adopt(&wanted);
        for (set, brick, handle) in todo.close {
            self.openings.borrow_mut().remove(&set);
            if let Some(handle) = handle {
                self.close_set(brick, handle);
            }
            lock(&self.shared.unopened).remove(&brick);
            self.links.end(set);
        }
        for (_, handle) in todo.tell {
            handle.on_state(&state);
        }
        for (set, brick) in todo.open {
            self.open(set, brick, &state);
        }
        self.known.set(state.version);
    }
}
