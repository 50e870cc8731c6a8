//! Answers to the stores of other servers.

use openraft::Snapshot;

use crate::{
    ProposeError,
    rpc::{Body, FORMAT, Forwarded, Reply, Request},
    store::Inner,
    types::LogId,
};

/// How far the term of another server may be ahead: it would have called for an election each second for days.
const TERMS_AHEAD: u64 = 1 << 20;
/// How far the log of another server may be ahead: more entries than a pool ever has.
const ENTRIES_AHEAD: u64 = 1 << 32;

/// The highest term and the highest index that a message names. openraft counts on from both without looking.
fn highest(body: &Body) -> (u64, u64) {
    let of = |term: u64, ids: &mut dyn Iterator<Item = LogId>| {
        ids.fold((term, 0), |(term, index), id| (term.max(id.leader_id.term), index.max(id.index)))
    };
    match body {
        Body::Append(rpc) => {
            let entries = rpc.entries.iter().map(|entry| entry.log_id);
            of(
                rpc.vote.leader_id().term,
                &mut rpc.prev_log_id.into_iter().chain(rpc.leader_commit).chain(entries),
            )
        }
        Body::Vote(rpc) => of(rpc.vote.leader_id().term, &mut rpc.last_log_id.into_iter()),
        Body::Snapshot { vote, snapshot } => {
            let members = *snapshot.meta.last_membership.log_id();
            of(vote.leader_id().term, &mut snapshot.meta.last_log_id.into_iter().chain(members))
        }
        Body::Forward(_) | Body::ReadIndex => (0, 0),
    }
}

impl Inner {
    /// Why a message cannot be a server's that is in its senses.
    fn absurd(&self, body: &Body) -> Option<String> {
        let (term, index) = highest(body);
        let (own_term, own_index) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow();
            (metrics.current_term, metrics.last_log_index.unwrap_or(0))
        };
        let beyond =
            term > own_term.saturating_add(TERMS_AHEAD) || index > own_index.saturating_add(ENTRIES_AHEAD);
        beyond.then(|| format!("term {term} and entry {index} are far beyond {own_term} and {own_index}"))
    }

    /// Why a request is none for this server.
    pub(crate) fn stranger(&self, request: &Request) -> Option<String> {
        let state = self.machine.state();
        let (me, from) = (self.me, request.from);
        if request.format > FORMAT {
            return Some(format!(
                "server {me} does not know format {} of the pool store: update it",
                request.format
            ));
        }
        if request.to != me {
            return Some(format!("this is server {me}, not {}", request.to));
        }
        if !request.pool.is_empty() && !state.pool.is_empty() && request.pool != state.pool {
            return Some(format!("server {me} belongs to pool {}, not {}", state.pool, request.pool));
        }
        if state.servers.get(&from).is_some_and(|s| s.lost) {
            return Some(format!(
                "server {from} was fenced off when this pool was recovered: empty its state folder, start it and run mortar peer \
                 replace here"
            ));
        }
        None
    }

    pub(crate) async fn answer(&self, body: Body) -> Reply {
        if let Some(why) = self.absurd(&body) {
            return Reply::Failed(why);
        }
        match body {
            Body::Append(rpc) => {
                self.raft.append_entries(rpc).await.map_or_else(|e| failed(&e), Reply::Append)
            }
            Body::Vote(rpc) => self.raft.vote(rpc).await.map_or_else(|e| failed(&e), Reply::Vote),
            Body::Snapshot { vote, snapshot } => {
                let data = Box::new(std::io::Cursor::new(snapshot.state.into_bytes()));
                let snapshot = Snapshot { meta: snapshot.meta, snapshot: data };
                let installed = self.raft.install_full_snapshot(vote, snapshot).await;
                installed.map_or_else(|e| failed(&e), Reply::Snapshot)
            }
            Body::Forward(proposal) => match self.propose_here(&proposal).await {
                Ok(outcome) => Reply::Forward(Forwarded::Done(outcome)),
                Err(ProposeError::Refused(refusal)) => Reply::Forward(Forwarded::Refused(refusal)),
                Err(ProposeError::NotLeader { leader }) => Reply::NotLeader(leader),
                Err(e) => failed(&e),
            },
            Body::ReadIndex => match self.read_index_here().await {
                Ok(index) => Reply::ReadIndex(Some(index)),
                Err(ProposeError::NotLeader { leader }) => Reply::NotLeader(leader),
                Err(e) => failed(&e),
            },
        }
    }
}

fn failed(e: &impl std::fmt::Display) -> Reply {
    Reply::Failed(e.to_string())
}
