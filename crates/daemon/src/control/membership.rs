//! Taking servers into the pool and letting them go.

use super::answers::{conflict, failed, not_agreed, not_found, role, unreachable};
use super::invitation::{Found, local_server};
use super::protocol::{ClusterReply, ClusterRequest, Request, Response};
use super::{Control, open_store};
use crate::limits::{LOCAL_WAIT, MEMBERSHIP_WAIT};
use admin::{AdminError, Peer, PeerDetached, PeerProbe, PeerProbed, PeerStatus};
use cluster::membership::{Admission, Candidate};
use cluster::{Command, NewServer, Server, State};
use config_store::ConfigStore;
use ids::ServerId;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// For an answer to be on its way.
const ANSWERED: Duration = Duration::from_millis(200);

impl Control {
    pub(super) async fn peer_probe(self: &Arc<Self>, request: PeerProbe) -> Result<PeerProbed, AdminError> {
        let (name, address) = name_and_address(&request);
        if self.shared.is_secured() {
            let probed = self.probe_with_token(name, &address, request.fingerprint.as_deref()).await;
            return probed.map_err(|e| e.before("probe "));
        }
        let _one = self.changing.lock().await;
        let candidate = self.plain_newcomer_at(&address).await.map_err(|e| e.before("probe "))?;
        let state = self.linearizable().await?;
        let admitted = state.admit(&name, &address, &candidate);
        let id = match admitted.map_err(|e| conflict(format!("probe {}: {e}", ids::bracketed(&name))))? {
            Admission::Member(id) => {
                let host = state.servers.get(&id).map_or(name, |s| s.host.clone());
                return Ok(PeerProbed { host, server: id, already: true, confirm: None });
            }
            Admission::Invite(id) => id,
            Admission::Add => {
                let identity = candidate.identity.clone();
                let new = NewServer { identity, host: name.clone(), address: address.clone() };
                self.store().add_server(new).await.map_err(|e| not_agreed(&e))?
            }
        };
        if let Err(e) = self.invite(&state, id, &candidate.identity, &name, &address).await {
            let undone = self.store().remove_server(id, true).await;
            if let Err(e) = undone {
                tracing::warn!("take server {id} out again: {e}");
            }
            return Err(e.before("probe "));
        }
        self.await_member(&address, &state.pool).await?;
        Ok(PeerProbed { host: name, server: id, already: false, confirm: None })
    }

    /// Whether a server can be taken in, as far as can be told without doing it.
    pub(super) async fn check_probe(&self, state: &State, request: &PeerProbe) -> Result<(), AdminError> {
        let (name, address) = name_and_address(request);
        let found = self.newcomer_at(&address, request.fingerprint.as_deref()).await;
        // One that has to be confirmed first says nothing of itself.
        let Some(candidate) = found.map_err(|e| e.before("probe "))? else { return Ok(()) };
        state
            .admit(&name, &address, &candidate)
            .map_err(|e| conflict(format!("probe {}: {e}", ids::bracketed(&name))))?;
        Ok(())
    }

    async fn newcomer_at(
        &self,
        address: &str,
        confirmed: Option<&str>,
    ) -> Result<Option<Candidate>, AdminError> {
        if !self.shared.is_secured() {
            return self.plain_newcomer_at(address).await.map(Some);
        }
        match self.find_newcomer(address, confirmed).await? {
            Found::Newcomer(newcomer) => newcomer.candidate().await.map(Some),
            Found::Unconfirmed(_) => Ok(None),
        }
    }

    /// The same, of a server for a pool without keys.
    async fn plain_newcomer_at(&self, address: &str) -> Result<Candidate, AdminError> {
        match self.ask_cluster(address, ClusterRequest::Identify).await {
            Ok(answer) => answer.candidate().ok_or_else(|| unexpected(address)),
            Err(e) => Err(self.why_not_asked(address, e).await),
        }
    }

    /// A pool without keys does not reach a server that has some.
    pub(super) async fn why_not_asked(&self, address: &str, e: AdminError) -> AdminError {
        let there = transport::handshake_reply(address, LOCAL_WAIT).await;
        if there.is_ok_and(|reply| !reply.refused.0.is_empty()) {
            return conflict(format!(
                "{address}: it lets nobody in without a key, and this pool has none: secure it first (mortar pool secure)"
            ));
        }
        e
    }

    /// What the server at an address says of itself, if it has a key of this pool and is in it.
    pub(super) async fn member_at(&self, address: &str, state: &State) -> Option<Candidate> {
        let reply = self.ask_cluster(address, ClusterRequest::Identify).await.ok()?;
        reply.candidate().filter(|candidate| candidate.pool == state.pool)
    }

    /// Takes a server into a secured pool: it joins with a token.
    async fn probe_with_token(
        &self,
        name: String,
        address: &str,
        confirmed: Option<&str>,
    ) -> Result<PeerProbed, AdminError> {
        let state = self.linearizable().await?;
        // One of this machine says by its socket who it is. It would refuse this pool's key, and warn of that.
        let known = match local_server(address).await {
            Some(local) => Some((local.candidate().await?, Some(local))),
            None => self.member_at(address, &state).await.map(|member| (member, None)),
        };
        let (candidate, newcomer) = match known {
            Some(known) => known,
            None => match self.find_newcomer(address, confirmed).await? {
                Found::Newcomer(newcomer) => (newcomer.candidate().await?, Some(newcomer)),
                Found::Unconfirmed(shown) => {
                    let confirm = Some(shown.to_string());
                    return Ok(PeerProbed { host: name, server: ServerId(0), already: false, confirm });
                }
            },
        };
        let admitted = state.admit(&name, address, &candidate);
        match admitted.map_err(|e| conflict(format!("{}: {e}", ids::bracketed(&name))))? {
            Admission::Member(id) => {
                let host = state.servers.get(&id).map_or(name, |s| s.host.clone());
                return Ok(PeerProbed { host, server: id, already: true, confirm: None });
            }
            // Its key got lost on the way, and nobody else can use it.
            Admission::Invite(id) => {
                self.store().remove_server(id, true).await.map_err(|e| not_agreed(&e))?
            }
            Admission::Add => {}
        }
        let newcomer = newcomer.ok_or_else(|| unexpected(address))?;
        let server = self.take_in(&newcomer, (&candidate.identity, &name), None).await?;
        Ok(PeerProbed { host: name, server, already: false, confirm: None })
    }

    /// Has the server at `address` open a store as server `id`.
    pub(super) async fn invite(
        &self,
        state: &cluster::State,
        id: ServerId,
        identity: &str,
        host: &str,
        address: &str,
    ) -> Result<(), AdminError> {
        let members = state.servers.values().map(|s| (s.id, s.address.clone())).collect();
        let invite = ClusterRequest::JoinInvite {
            pool: state.pool.clone(),
            server: id,
            identity: identity.to_owned(),
            host: host.to_owned(),
            members,
        };
        self.ask_cluster(address, invite).await.map(drop)
    }

    /// Waits until the new server knows the pool.
    pub(super) async fn await_member(&self, address: &str, wanted: &str) -> Result<(), AdminError> {
        let wait = async {
            loop {
                if let Ok(ClusterReply::Identity { pool, .. }) =
                    self.ask_cluster(address, ClusterRequest::Identify).await
                    && pool == wanted
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(MEMBERSHIP_WAIT, wait).await.map_err(|_| {
            unreachable(format!(
                "{address}: it was taken in but does not know the pool yet: see mortar peer status"
            ))
        })
    }

    pub(super) async fn peer_detach(&self, host: &str, force: bool) -> Result<PeerDetached, AdminError> {
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let server = find(&state, host)?.clone();
        let detached = state.check_detach(&server, self.shared.me());
        let shown = ids::bracketed(&server.host);
        detached.map_err(|e| conflict(format!("detach {shown}: {e}")))?;
        let reachable = self.ask_cluster(&server.address, ClusterRequest::Identify).await;
        if let (Err(e), false) = (reachable, force) {
            let e = e.before(&format!("detach {shown}: "));
            return Err(e.after("; start it, or use --force if it is lost for good"));
        }
        self.store().remove_server(server.id, force).await.map_err(|e| not_agreed(&e))?;
        self.revoke_local_keys(server.id).await;
        let goodbye = ClusterRequest::Detached { pool: state.pool.clone(), server: server.id };
        let goodbye = Request::Cluster(goodbye);
        let told = self.peers.ask_departed(&server.address, &goodbye, MEMBERSHIP_WAIT).await;
        match told.map_err(AdminError::from).and_then(|answer| cluster_reply(answer, &server.address)) {
            Err(e) if !force => Err(e.before(&format!("{shown} is out of the pool but was not told: "))),
            told => Ok(PeerDetached { host: host.to_owned(), told: told.is_ok() }),
        }
    }

    pub(super) fn peers(&self) -> Vec<Peer> {
        let state = self.state();
        let down = self.leases.down();
        let leads = self.store().is_leader();
        let peer = |s: &Server| Peer {
            id: s.id,
            identity: s.identity.clone(),
            host: s.host.clone(),
            address: s.address.clone(),
            role: role(s.role),
            connected: Some(s.id == self.shared.me() || !down.contains(&s.id))
                .filter(|_| leads || self.leases.heard_of_leader()),
            lost: s.lost,
            witness: state.is_witness(s.id),
        };
        state.servers.values().map(peer).collect()
    }

    pub(super) async fn peer_status(&self) -> PeerStatus {
        let state = self.state();
        let mut notes = state.pool_notes();
        notes.extend(self.notes_of_silent_servers(&state).await);
        PeerStatus {
            pool: state.pool.clone(),
            me: self.shared.me(),
            leader: self.store().leader().map(|(id, _)| id),
            level: state.level,
            peers: self.peers(),
            notes,
        }
    }

    pub(super) async fn cluster(
        self: &Arc<Self>,
        request: ClusterRequest,
    ) -> Result<ClusterReply, AdminError> {
        match request {
            ClusterRequest::Identify => Ok(self.own_identity()),
            ClusterRequest::JoinInvite { server, identity, members, .. } => {
                self.join(server, &identity, members).await
            }
            ClusterRequest::TakeKeys(keys) => self.take_keys(&keys),
            ClusterRequest::RotateKey => self.take_another_key().await.map(ClusterReply::KeyRotated),
            ClusterRequest::BelieveAuthority(given) => self.believe_authority(&given.0).await,
            ClusterRequest::ReplaceAuthority { next } => self.replace_authority(&next).await,
            ClusterRequest::Detached { pool, server } => self.leave(&pool, server).await,
            ClusterRequest::Fence { pool, identity, generation, host } => {
                self.fence(&pool, &identity, generation, &host)
            }
            ClusterRequest::BrickPrepare { path, force: _, adopt } => {
                self.check_brick(&path, adopt).await.map(|warnings| ClusterReply::BrickPrepared { warnings })
            }
            ClusterRequest::Status { volume } => self.own_status(&volume).await,
            ClusterRequest::Clients { volume } => self.own_clients(&volume).await,
            ClusterRequest::Fds { volume } => self.own_fds(&volume).await,
            ClusterRequest::Queues { volume } => self.own_queues(&volume).await,
            ClusterRequest::Profile { volume, action } => self.own_profile(&volume, action),
            ClusterRequest::Top { volume } => self.own_top(&volume).await,
            ClusterRequest::Health => Ok(ClusterReply::Health(self.own_health().await)),
            ClusterRequest::Events { since_ms, most } => Ok(self.own_events(since_ms, most)),
            ClusterRequest::Webhook => Ok(self.own_webhook()),
            ClusterRequest::Adopt { volume, below, begin } => {
                self.own_adoption(&volume, &below, begin).map(ClusterReply::Adopt)
            }
            ClusterRequest::Evidence { pool, set, brick } => {
                if self.state().pool != pool {
                    return Err(conflict(format!("{}: it belongs to another pool", self.address)));
                }
                Ok(ClusterReply::Evidence(self.own_evidence(set, brick).await))
            }
        }
    }

    /// What this server says of itself.
    pub(super) fn own_identity(&self) -> ClusterReply {
        let state = self.state();
        ClusterReply::Identity {
            identity: self.folder.identity.clone(),
            pool: state.pool.clone(),
            server: self.shared.me(),
            servers: u32::try_from(state.servers.len()).unwrap_or(u32::MAX),
            volumes: u32::try_from(state.volumes.len()).unwrap_or(u32::MAX),
            generation: state.generation,
            program: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Becomes a server of another pool. Only one that has no pool worth the name may.
    async fn join(
        self: &Arc<Self>,
        server: ServerId,
        identity: &str,
        _members: BTreeMap<ServerId, String>,
    ) -> Result<ClusterReply, AdminError> {
        let _one = self.changing.lock().await;
        let state = self.state();
        let joins = state.check_join(&self.folder.identity, identity);
        joins.map_err(|e| conflict(format!("{}: {e}", self.address)))?;
        self.change_store(server).await?;
        Ok(ClusterReply::Done)
    }

    /// The pool let this server go: it is a pool of its own again.
    async fn leave(self: &Arc<Self>, pool: &str, server: ServerId) -> Result<ClusterReply, AdminError> {
        let _one = self.changing.lock().await;
        if self.state().pool != pool || self.shared.me() != server {
            return Err(conflict(format!("{}: it is not that server of that pool", self.address)));
        }
        let had_keys = self.shared.is_secured();
        let store = self.change_store(ServerId(1)).await?;
        self.folder.forget_keys().map_err(|e| failed(format!("{}: {e}", self.folder.keys().display())))?;
        self.shared.set_keys(None);
        if had_keys {
            // Nobody is let in until the pool of this server alone is secured.
            self.make_pool(&store).await.map_err(failed)?;
            self.log_fingerprint();
            return Ok(ClusterReply::Done);
        }
        self.shared.set_secured(false);
        // Whoever told it is not let in any more once the pool here is secured: it hears the answer first.
        let control = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ANSWERED).await;
            let _one = control.changing.lock().await;
            if control.shared.me() == ServerId(1) && !control.shared.is_secured() {
                match control.make_pool(&store).await {
                    Ok(()) => control.log_fingerprint(),
                    Err(e) => tracing::error!("make a pool of this server alone: {e}"),
                }
            }
        });
        Ok(ClusterReply::Done)
    }

    pub(super) async fn change_store(self: &Arc<Self>, me: ServerId) -> Result<ConfigStore, AdminError> {
        self.store().shutdown().await;
        let path = self.folder.store();
        ConfigStore::wipe(&path).map_err(|e| failed(format!("{}: {e}", path.display())))?;
        let store = open_store(&path, me, &self.peers).await.map_err(failed)?;
        self.clone().follow(store.clone(), me);
        Ok(store)
    }

    pub(super) async fn ask_cluster(
        &self,
        address: &str,
        request: ClusterRequest,
    ) -> Result<ClusterReply, AdminError> {
        let asked = self.peers.ask(address, &Request::Cluster(request), MEMBERSHIP_WAIT).await;
        cluster_reply(asked?, address)
    }
}

/// What a server is to be called, and where it listens.
fn name_and_address(PeerProbe { host, port, .. }: &PeerProbe) -> (String, String) {
    let address = match port {
        Some(port) => format!("{host}:{port}"),
        None => transport::with_port(host),
    };
    let name = address.rsplit_once(':').map_or(&**host, |(h, _)| h).trim_matches(['[', ']']).to_owned();
    (name, address)
}

fn cluster_reply(answer: Response, address: &str) -> Result<ClusterReply, AdminError> {
    match answer {
        Response::Cluster(ClusterReply::Error(e)) => Err(e),
        Response::Cluster(reply) => Ok(reply),
        Response::Error(e) => Err(failed(format!("{address}: {e}"))),
        _ => Err(unexpected(address)),
    }
}

impl ClusterReply {
    /// What a server said of itself; `None`: it said something else.
    pub(super) fn candidate(&self) -> Option<Candidate> {
        let ClusterReply::Identity { identity, pool, servers, volumes, .. } = self else { return None };
        let (identity, pool) = (identity.clone(), pool.clone());
        Some(Candidate { identity, pool, servers: *servers, volumes: *volumes })
    }
}

pub(super) fn unexpected(address: &str) -> AdminError {
    failed(format!("{address}: it gave an unexpected answer"))
}

pub(super) fn find<'a>(state: &'a cluster::State, host: &str) -> Result<&'a Server, AdminError> {
    let by_address = || state.server_by_host(&transport::with_port(host));
    state
        .server_by_host(host)
        .or_else(by_address)
        .ok_or_else(|| not_found(format!("server {host} is not in the pool: see mortar pool list")))
}

/// Tells the pool when this server listens elsewhere than before.
pub(super) async fn announce_address(control: Arc<Control>, store: ConfigStore) {
    let mut states = store.watch();
    loop {
        let state = states.borrow_and_update().clone();
        let me = control.shared.me();
        if let Some(server) = state.servers.get(&me).filter(|s| s.identity == control.folder.identity) {
            if server.address == control.address {
                return;
            }
            let command = Command::SetServerAddress { server: me, address: control.address.clone() };
            match store.propose_anywhere(command, MEMBERSHIP_WAIT).await {
                Ok(_) => tracing::info!("the pool knows the new address {}", control.address),
                Err(e) => tracing::warn!("announce the address {}: {e}", control.address),
            }
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}
