//! The store as the daemon holds it: open, propose, read, watch.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use cluster::{Command, NewServer, Outcome, Proposal, Refusal, State};
use ids::ServerId;
use openraft::{RaftMetrics, ServerState};
use tokio::sync::watch;

use crate::{
    OpenError, Options, ProposeError, Transport, TransportError,
    db::{self, Db},
    elections::break_ties,
    log::Log,
    machine::Machine,
    members,
    network::Network,
    propose::stopped,
    rpc::{Reply, Request},
    types::{Node, Raft},
};

/// A handle on this server's copy of the pool's state. Clones are the same store.
#[derive(Clone)]
pub struct ConfigStore {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) me: ServerId,
    pub(crate) raft: Raft,
    pub(crate) machine: Machine,
    pub(crate) network: Network,
    pub(crate) options: Options,
    pub(crate) stopping: watch::Sender<bool>,
    leads: watch::Sender<Option<ServerId>>,
    down: Mutex<BTreeMap<ServerId, Instant>>,
}

/// How the store of this server does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metrics {
    /// The current term.
    pub term: u64,
    /// The last entry in the log.
    pub last_log: u64,
    /// The last entry that the state has seen.
    pub last_applied: u64,
    /// leader, follower, candidate, learner or shutdown.
    pub role: &'static str,
    /// Who leads, as far as this server knows.
    pub leader: Option<ServerId>,
    /// Who votes.
    pub voters: BTreeSet<ServerId>,
    /// Who has a copy without a vote.
    pub learners: BTreeSet<ServerId>,
    /// Why the store stopped, if it did: a failed disk, mostly.
    pub stopped: Option<String>,
}

impl ConfigStore {
    /// Opens (or makes) the store of server `me` in a folder and takes part in the agreement.
    ///
    /// An empty folder waits: for [`ConfigStore::init_pool`], or for a leader that took this server in.
    pub async fn open(
        dir: &Path,
        me: ServerId,
        transport: Arc<dyn Transport>,
        options: Options,
    ) -> Result<ConfigStore, OpenError> {
        let config = options.raft_config()?;
        let folder = dir.to_path_buf();
        let opened = tokio::task::spawn_blocking(move || Db::open(&folder, Some(me))).await;
        let db = Arc::new(opened.map_err(|e| OpenError::Raft { reason: e.to_string() })??);
        let machine = Machine::open(db.clone()).map_err(|e| db.corrupt(e))?;
        let network = Network { me, transport, machine: machine.clone(), heartbeat: options.heartbeat };
        let raft = Raft::new(me.0, config, network.clone(), Log { db: db.clone() }, machine.clone()).await;
        let raft = raft.map_err(|e| OpenError::Raft { reason: format!("{}: {e}", db.path().display()) })?;
        let (stopping, leads, down) = (watch::Sender::new(false), watch::Sender::new(None), Mutex::default());
        let inner = Arc::new(Inner { me, raft, machine, network, options, stopping, leads, down });
        tokio::spawn(members::manage(inner.clone()));
        tokio::spawn(follow_leader(inner.clone()));
        tokio::spawn(break_ties(inner.clone()));
        let store = ConfigStore { inner };
        store.hurry_if_alone().await;
        Ok(store)
    }

    /// The only voter need not wait for anybody.
    async fn hurry_if_alone(&self) {
        let members = self.inner.raft.metrics().borrow().membership_config.clone();
        if members.voter_ids().eq([self.inner.me.0])
            && let Err(e) = self.inner.raft.trigger().elect().await
        {
            tracing::warn!(error = %e, "the only voter of the pool store cannot elect itself");
        }
    }

    /// The server whose store is in this folder; `None`: there is no store.
    pub fn stored_server(dir: &Path) -> Result<Option<ServerId>, OpenError> {
        if !dir.join(db::FILE).exists() {
            return Ok(None);
        }
        let db = Db::open(dir, None)?;
        db.server().map_err(|e| db.corrupt(e))
    }

    /// Forgets the store in a folder: this server joins another pool, or left its pool. Only when it is not open.
    pub fn wipe(dir: &Path) -> std::io::Result<()> {
        match std::fs::remove_file(dir.join(db::FILE)) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e),
            _ => std::fs::File::open(dir)?.sync_all(),
        }
    }

    /// Makes a pool of this one server. `me` must be server 1. Doing it again after a crash half-way is fine.
    pub async fn init_pool(&self, pool: String, server: NewServer) -> Result<(), ProposeError> {
        let node = Node::new(server.address.clone());
        if !self.inner.raft.is_initialized().await.map_err(|e| stopped(&e))? {
            let members = BTreeMap::from([(self.inner.me.0, node)]);
            self.inner.raft.initialize(members).await.map_err(|e| stopped(&e))?;
        }
        if !self.state().pool.is_empty() {
            return Ok(());
        }
        let within = self.inner.options.command_timeout;
        match self.propose_anywhere(Command::InitPool { pool, server }, within).await {
            Ok(Outcome::Server(id)) if id == self.inner.me => self.raise_level(within).await,
            Ok(_) => {
                Err(ProposeError::Stopped { reason: format!("the first server is 1, not {}", self.inner.me) })
            }
            Err(e) => Err(e),
        }
    }

    /// The only server of a new pool says how far it goes, so that whatever is asked of the pool is asked of that level. If it
    /// ends before, its first term does that.
    async fn raise_level(&self, within: Duration) -> Result<(), ProposeError> {
        self.propose_anywhere(Command::RaiseLevel { level: cluster::LEVEL }, within).await.map(drop)
    }

    /// Takes a server into the pool and returns its id. The leader makes it a learner, later perhaps a voter, by
    /// itself; the server has to open a store under that id.
    pub async fn add_server(&self, server: NewServer) -> Result<ServerId, ProposeError> {
        match self.propose_anywhere(Command::AddServer(server), self.inner.options.command_timeout).await? {
            Outcome::Server(id) => Ok(id),
            other => {
                Err(ProposeError::Stopped { reason: format!("an answer to another command: {other:?}") })
            }
        }
    }

    /// Lets a server without bricks go; the leader takes its vote by itself.
    pub async fn remove_server(&self, server: ServerId, force: bool) -> Result<(), ProposeError> {
        let command = Command::RemoveServer { server, force };
        self.propose_anywhere(command, self.inner.options.command_timeout).await.map(drop)
    }

    /// Applies a command if this server leads.
    pub async fn propose(&self, command: Command) -> Result<Outcome, ProposeError> {
        self.inner.propose_here(&self.inner.name(command)).await
    }

    /// Applies a command wherever the leader is, once, trying again over changes of the leader until `within` is over.
    pub async fn propose_anywhere(
        &self,
        command: Command,
        within: Duration,
    ) -> Result<Outcome, ProposeError> {
        self.propose_named(self.inner.name(command), within).await
    }

    /// The same for a caller that keeps the command's id, to send it again after a time-out.
    pub async fn propose_named(&self, proposal: Proposal, within: Duration) -> Result<Outcome, ProposeError> {
        let tries = self.inner.retry(|| self.inner.propose_once(&proposal));
        tokio::time::timeout(within, tries).await.unwrap_or_else(|_| Err(self.inner.no_leader()))
    }

    /// The pool's state as this server knows it; may lag behind.
    pub fn state(&self) -> Arc<State> {
        self.inner.machine.state()
    }

    /// The state and its changes.
    pub fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.inner.machine.watch()
    }

    /// The state with every command whose answer anybody has seen before this call.
    pub async fn linearizable_state(&self, within: Duration) -> Result<Arc<State>, ProposeError> {
        let read = async {
            let index = self.inner.retry(|| self.inner.read_index()).await?;
            let wait = self.inner.raft.wait(Some(within));
            wait.applied_index_at_least(Some(index), "linearizable read").await.map_err(|e| stopped(&e))?;
            Ok(self.state())
        };
        tokio::time::timeout(within, read).await.unwrap_or_else(|_| Err(self.inner.no_leader()))
    }

    /// Whether this server leads for certain: a majority confirmed it after this call began.
    ///
    /// A leader asks before it renews the leases of servers (see `cluster::liveness`).
    pub async fn confirm_leader(&self) -> bool {
        let asked =
            tokio::time::timeout(self.inner.options.election_max, self.inner.raft.get_read_log_id()).await;
        matches!(asked, Ok(Ok(_)))
    }

    /// Whether this server believes that it leads.
    pub fn is_leader(&self) -> bool {
        self.inner.is_leader()
    }

    /// Who leads, with the address, as far as this server knows.
    pub fn leader(&self) -> Option<(ServerId, String)> {
        self.inner.leader()
    }

    /// Who leads, and each change of it.
    pub fn watch_leader(&self) -> watch::Receiver<Option<ServerId>> {
        self.inner.leads.subscribe()
    }

    /// The leader's process is known to be dead: this server stands for election as soon as nobody counts on that leader's
    /// lease any more, without the time-out that a silent one gets. Returns when somebody else leads, or soon after an
    /// election that nobody won.
    pub async fn replace_leader(&self, dead: ServerId) {
        let mut metrics = self.inner.raft.metrics();
        let led_by = |m: &RaftMetrics<u64, Node>| m.current_leader == Some(dead.0);
        // One after the other, so that they do not split the vote.
        let rank = {
            let now = metrics.borrow();
            let others = now.membership_config.voter_ids().filter(|v| *v != dead.0);
            let rank = others.filter(|v| *v < self.inner.me.0).count();
            if !led_by(&now) || !now.membership_config.voter_ids().any(|v| v == self.inner.me.0) {
                return;
            }
            u32::try_from(rank).unwrap_or(0)
        };
        let options = &self.inner.options;
        let pause = options.election_max + options.heartbeat / 5 + options.heartbeat * rank;
        let over = metrics.wait_for(|m| !led_by(m));
        if tokio::time::timeout(pause, over).await.is_ok() {
            return;
        }
        tracing::info!(server = %dead, "the leader of the pool store is dead: standing for election");
        if self.inner.raft.trigger().elect().await.is_ok() {
            let other = metrics.wait_for(|m| m.current_leader.is_some_and(|l| l != dead.0));
            drop(tokio::time::timeout(options.election_max, other).await);
        }
    }

    /// Whether the voters are those of one step: not between two, when majorities of both have to agree.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.inner.raft.metrics().borrow().membership_config.membership().get_joint_config().len() == 1
    }

    /// How the store does.
    pub fn metrics(&self) -> Metrics {
        let m = self.inner.raft.metrics().borrow().clone();
        let voters: BTreeSet<ServerId> = m.membership_config.voter_ids().map(ServerId).collect();
        let all = m.membership_config.nodes().map(|(id, _)| ServerId(*id));
        Metrics {
            term: m.current_term,
            last_log: m.last_log_index.unwrap_or_default(),
            last_applied: m.last_applied.map_or(0, |id| id.index),
            role: match m.state {
                ServerState::Learner => "learner",
                ServerState::Follower => "follower",
                ServerState::Candidate => "candidate",
                ServerState::Leader => "leader",
                ServerState::Shutdown => "shutdown",
            },
            leader: m.current_leader.map(ServerId),
            learners: all.filter(|id| !voters.contains(id)).collect(),
            voters,
            stopped: m.running_state.err().map(|e| e.to_string()),
        }
    }

    /// The daemon's word that a server's lease ran out; if that lasts, another one votes in its place.
    pub fn report_down(&self, server: ServerId) {
        self.inner.down().entry(server).or_insert_with(Instant::now);
    }

    /// It is back.
    pub fn report_up(&self, server: ServerId) {
        self.inner.down().remove(&server);
    }

    /// Somebody else led meanwhile: what was reported before says nothing any more.
    pub fn forget_reports(&self) {
        self.inner.down().clear();
    }

    /// Answers another server's store. The daemon passes in what came from that server's [`Transport`].
    pub async fn handle(&self, bytes: Vec<u8>) -> Result<Vec<u8>, TransportError> {
        let failed = |e: serde_json::Error| TransportError(format!("pool store: {e}"));
        let request: Request = serde_json::from_slice(&bytes).map_err(failed)?;
        let reply = match self.inner.stranger(&request) {
            Some(reason) => Reply::Failed(reason),
            None => self.inner.answer(request.body).await,
        };
        serde_json::to_vec(&reply).map_err(failed)
    }

    #[cfg(test)]
    pub(crate) fn inner_purged(&self) -> u64 {
        self.inner.raft.metrics().borrow().purged.map_or(0, |id| id.index)
    }

    /// Refuses a server that lost its state folder and came back as its old self (see [`State::is_server`]).
    pub fn check_identity(&self, server: ServerId, identity: &str) -> Result<(), Refusal> {
        if self.state().is_server(server, identity) {
            Ok(())
        } else {
            Err(Refusal::UnknownServer { id: server })
        }
    }

    /// Leaves the agreement and closes the file.
    pub async fn shutdown(&self) {
        self.inner.stopping.send_replace(true);
        if let Err(e) = self.inner.raft.shutdown().await {
            tracing::error!(error = %e, "the pool store did not stop cleanly");
        }
        self.inner.machine.close();
    }
}

/// Passes on who leads until the store stops.
async fn follow_leader(inner: Arc<Inner>) {
    let (mut metrics, mut stopped) = (inner.raft.metrics(), inner.stopping.subscribe());
    loop {
        let leader = metrics.borrow_and_update().current_leader.map(ServerId);
        inner.leads.send_if_modified(|known| std::mem::replace(known, leader) != leader);
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            changed = metrics.changed() => if changed.is_err() { return },
        }
    }
}

impl Inner {
    pub(crate) fn is_leader(&self) -> bool {
        self.raft.metrics().borrow().state == ServerState::Leader
    }

    pub(crate) fn leader(&self) -> Option<(ServerId, String)> {
        let metrics = self.raft.metrics();
        let metrics = metrics.borrow();
        let id = metrics.current_leader?;
        let node = metrics.membership_config.membership().get_node(&id);
        Some((ServerId(id), self.address(ServerId(id), node.map(|n| n.addr.as_str()))))
    }

    /// What the pool's state says, else the agreement's membership.
    pub(crate) fn address(&self, id: ServerId, fallback: Option<&str>) -> String {
        let state = self.machine.state();
        let known = state.servers.get(&id).map(|s| s.address.as_str());
        known.or(fallback).unwrap_or_default().to_string()
    }

    /// Gives a command an id that nobody else will draw.
    pub(crate) fn name(&self, command: Command) -> Proposal {
        Proposal { id: rand::random::<u128>() | 1, command }
    }

    fn down(&self) -> std::sync::MutexGuard<'_, BTreeMap<ServerId, Instant>> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn down_for(&self, time: Duration) -> BTreeSet<ServerId> {
        self.down().iter().filter(|(_, since)| since.elapsed() >= time).map(|(id, _)| *id).collect()
    }
}
