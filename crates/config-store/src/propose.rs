//! Proposals and reads: here, else at the leader, until they are done or refused.

use cluster::{Command, Outcome, Proposal, Refusal};
use ids::ServerId;
use openraft::error::{CheckIsLeaderError, ClientWriteError, ForwardToLeader, RaftError};

use crate::{
    ProposeError,
    rpc::{Body, Forwarded, Reply},
    store::Inner,
    types::Node,
};

pub(crate) fn stopped(e: &impl std::fmt::Display) -> ProposeError {
    ProposeError::Stopped { reason: e.to_string() }
}

impl Inner {
    pub(crate) fn no_leader(&self) -> ProposeError {
        let reason = match self.leader() {
            Some((id, address)) => {
                format!("server {id} at {address} leads, as far as server {} knows", self.me)
            }
            None => "there is no leader".to_string(),
        };
        ProposeError::Unavailable { reason }
    }

    pub(crate) async fn propose_here(&self, proposal: &Proposal) -> Result<Outcome, ProposeError> {
        if matches!(proposal.command, Command::RecoverPool { .. }) {
            return Err(Refusal::OfflineOnly.into());
        }
        let write = self.raft.client_write(proposal.clone());
        let written = match tokio::time::timeout(self.options.command_timeout, write).await {
            Ok(written) => written,
            Err(_) => {
                return Err(ProposeError::Unavailable { reason: "the voters do not answer".to_string() });
            }
        };
        match written {
            Ok(answer) => match answer.data.0 {
                Some(done) => done.map_err(ProposeError::Refused),
                None => Err(ProposeError::Stopped { reason: "a command without an answer".to_string() }),
            },
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(forward))) => {
                Err(ProposeError::NotLeader { leader: self.to_leader(&forward) })
            }
            Err(e) => Err(stopped(&e)),
        }
    }

    /// One try: here, else at the leader.
    pub(crate) async fn propose_once(&self, proposal: &Proposal) -> Result<Outcome, ProposeError> {
        let leader = match self.propose_here(proposal).await {
            Err(ProposeError::NotLeader { leader: Some(leader) }) if leader.0 != self.me => leader,
            other => return other,
        };
        match self.ask_leader(&leader, Body::Forward(proposal.clone())).await? {
            Reply::Forward(Forwarded::Done(outcome)) => Ok(outcome),
            Reply::Forward(Forwarded::Refused(refusal)) => Err(refusal.into()),
            Reply::NotLeader(leader) => Err(ProposeError::NotLeader { leader }),
            other => Err(ProposeError::Unavailable { reason: format!("{other:?}") }),
        }
    }

    async fn ask_leader(&self, leader: &(ServerId, String), body: Body) -> Result<Reply, ProposeError> {
        // A leader that died is known only by its silence: do not wait for it longer than an election takes.
        let timeout = self.options.election_max + self.options.election_max;
        let asked = self.network.ask(leader.0, &leader.1, body, timeout).await;
        asked.map_err(|e| ProposeError::Unavailable { reason: e.to_string() })
    }

    /// Tries until it is done or refused. The caller bounds the time.
    pub(crate) async fn retry<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, ProposeError>
    where
        F: Future<Output = Result<T, ProposeError>>,
    {
        let mut metrics = self.raft.metrics();
        loop {
            match attempt().await {
                Err(ProposeError::NotLeader { .. } | ProposeError::Unavailable { .. }) => {}
                other => return other,
            }
            // Until the leader changes, or for a heartbeat: it may have changed elsewhere.
            let leader = metrics.borrow().current_leader;
            let other = metrics.wait_for(|m| m.current_leader != leader);
            let _ = tokio::time::timeout(self.options.heartbeat, other).await;
        }
    }

    /// The index that a reader has to have applied.
    pub(crate) async fn read_index(&self) -> Result<u64, ProposeError> {
        let leader = match self.read_index_here().await {
            Err(ProposeError::NotLeader { leader: Some(leader) }) if leader.0 != self.me => leader,
            other => return other,
        };
        match self.ask_leader(&leader, Body::ReadIndex).await? {
            Reply::ReadIndex(index) => Ok(index.unwrap_or_default()),
            Reply::NotLeader(leader) => Err(ProposeError::NotLeader { leader }),
            other => Err(ProposeError::Unavailable { reason: format!("{other:?}") }),
        }
    }

    pub(crate) async fn read_index_here(&self) -> Result<u64, ProposeError> {
        match self.raft.get_read_log_id().await {
            // A leader that was restarted in its own term leads on without an entry of its own: openraft then names what
            // was last known to be agreed on, which is a lazy hint. All that is in the log may have been answered for.
            Ok((read, _)) => {
                let last = self.raft.metrics().borrow().last_log_index;
                Ok(read.map_or(0, |id| id.index).max(last.unwrap_or(0)))
            }
            Err(RaftError::APIError(CheckIsLeaderError::ForwardToLeader(forward))) => {
                Err(ProposeError::NotLeader { leader: self.to_leader(&forward) })
            }
            Err(RaftError::APIError(CheckIsLeaderError::QuorumNotEnough(e))) => {
                Err(ProposeError::Unavailable { reason: e.to_string() })
            }
            Err(e) => Err(stopped(&e)),
        }
    }

    fn to_leader(&self, forward: &ForwardToLeader<u64, Node>) -> Option<(ServerId, String)> {
        let id = forward.leader_id?;
        Some((
            ServerId(id),
            self.address(ServerId(id), forward.leader_node.as_ref().map(|n| n.addr.as_str())),
        ))
    }
}
