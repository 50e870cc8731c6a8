//! Answers to the stores of other servers.

use openraft::Snapshot;

use crate::{
    ProposeError,
    rpc::{Body, FORMAT, Forwarded, Reply, Request},
    store::Inner,
};

impl Inner {
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
