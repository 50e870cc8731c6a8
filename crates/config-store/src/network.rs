//! From openraft to the daemon's connections.

use std::{future::Future, io, pin::Pin, sync::Arc, time::Duration};

use ids::ServerId;
use openraft::{
    RaftNetwork, RaftNetworkFactory, Snapshot,
    error::{
        Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, ReplicationClosed, StreamingError,
        Unreachable,
    },
    network::{Backoff, RPCOption},
    raft::{
        AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
        SnapshotResponse, VoteRequest, VoteResponse,
    },
};

use crate::{
    db::StoredSnapshot,
    machine::Machine,
    rpc::{Body, FORMAT, Reply, Request},
    types::{Node, TypeConfig, Vote},
};

/// A future of the daemon.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A server could not be asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TransportError(pub String);

/// How bytes get to another server's [`crate::ConfigStore::handle`] and its answer back.
pub trait Transport: Send + Sync {
    /// Sends a request to the server at that address. May be dropped at any time: every call has a time-out.
    fn send(
        &self,
        to: ServerId,
        address: String,
        request: Vec<u8>,
    ) -> BoxFuture<Result<Vec<u8>, TransportError>>;
}

/// The way to all servers.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) me: ServerId,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) machine: Machine,
    pub(crate) heartbeat: Duration,
}

impl Network {
    /// Asks `to`, at the address that the pool's state gives now, else at `fallback`.
    pub(crate) async fn ask(
        &self,
        to: ServerId,
        fallback: &str,
        body: Body,
        timeout: Duration,
    ) -> Result<Reply, TransportError> {
        let failed = |e: serde_json::Error| TransportError(e.to_string());
        let state = self.machine.state();
        let address = state.servers.get(&to).map_or_else(|| fallback.to_string(), |s| s.address.clone());
        let request = Request { format: FORMAT, pool: state.pool.clone(), from: self.me, to, body };
        let bytes = serde_json::to_vec(&request).map_err(failed)?;
        let answer = tokio::time::timeout(timeout, self.transport.send(to, address, bytes)).await;
        let bytes = answer.map_err(|_| TransportError(format!("server {to} did not answer in time")))??;
        serde_json::from_slice(&bytes).map_err(failed)
    }
}

impl RaftNetworkFactory<TypeConfig> for Network {
    type Network = RaftLink;

    async fn new_client(&mut self, target: u64, node: &Node) -> RaftLink {
        RaftLink { network: self.clone(), to: ServerId(target), fallback: node.addr.clone() }
    }
}

/// The way to one server.
pub(crate) struct RaftLink {
    network: Network,
    to: ServerId,
    fallback: String,
}

type Rpc<T, E = openraft::error::Infallible> = Result<T, RPCError<u64, Node, RaftError<u64, E>>>;

fn unreachable(e: &TransportError) -> Unreachable {
    Unreachable::new(e)
}

fn unexpected_reply(reply: Reply) -> TransportError {
    match reply {
        Reply::Failed(reason) => TransportError(reason),
        other => TransportError(format!("an answer to another question: {other:?}")),
    }
}

impl RaftLink {
    async fn ask(&self, body: Body, option: &RPCOption) -> Result<Reply, TransportError> {
        self.network.ask(self.to, &self.fallback, body, option.hard_ttl()).await
    }
}

impl RaftNetwork<TypeConfig> for RaftLink {
    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<TypeConfig>,
        option: RPCOption,
    ) -> Rpc<AppendEntriesResponse<u64>> {
        match self.ask(Body::Append(rpc), &option).await {
            Ok(Reply::Append(answer)) => Ok(answer),
            Ok(other) => Err(unreachable(&unexpected_reply(other)).into()),
            Err(e) => Err(unreachable(&e).into()),
        }
    }

    async fn vote(&mut self, rpc: VoteRequest<u64>, option: RPCOption) -> Rpc<VoteResponse<u64>> {
        match self.ask(Body::Vote(rpc), &option).await {
            Ok(Reply::Vote(answer)) => Ok(answer),
            Ok(other) => Err(unreachable(&unexpected_reply(other)).into()),
            Err(e) => Err(unreachable(&e).into()),
        }
    }

    /// Never used: snapshots go whole, see `full_snapshot`.
    async fn install_snapshot(
        &mut self,
        _rpc: InstallSnapshotRequest<TypeConfig>,
        _option: RPCOption,
    ) -> Rpc<InstallSnapshotResponse<u64>, InstallSnapshotError> {
        let e = io::Error::from(io::ErrorKind::Unsupported);
        Err(RPCError::Network(NetworkError::new(&e)))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<TypeConfig>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<TypeConfig, Fatal<u64>>> {
        let state = String::from_utf8(snapshot.snapshot.into_inner());
        let state = state.map_err(|e| unreachable(&TransportError(e.to_string())))?;
        let snapshot = StoredSnapshot { meta: snapshot.meta, state };
        let body = Body::Snapshot { vote, snapshot };
        tokio::select! {
            closed = cancel => Err(closed.into()),
            answer = self.ask(body, &option) => match answer {
                Ok(Reply::Snapshot(answer)) => Ok(answer),
                Ok(other) => Err(unreachable(&unexpected_reply(other)).into()),
                Err(e) => Err(unreachable(&e).into()),
            },
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(self.network.heartbeat))
    }
}
