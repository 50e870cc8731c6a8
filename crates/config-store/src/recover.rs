//! Going on from one server's copy when the majority is gone for good. Offline.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use cluster::{Command, State};
use ids::ServerId;
use openraft::{CommittedLeaderId, Membership};
use redb::Durability;

use crate::{
    ConfigStore, OpenError,
    db::{Batch, Db, StoredSnapshot},
    machine::Applying,
    types::{LogId, Node, SnapshotMeta, StoredMembership, Vote},
};

/// What a recovery did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The pool's state that it goes on with.
    pub state: Arc<State>,
    /// The servers that were cut off: wipe and probe them again, or detach them.
    pub lost: Vec<String>,
    /// What may be lost, for the administrator.
    pub notes: Vec<String>,
}

impl ConfigStore {
    /// Makes this server the only voter of the pool it has a copy of, while its store is not open.
    ///
    /// The others stay in the state, marked lost, and out of all views. Only for a majority that is gone for good:
    /// when it runs on elsewhere, there are two pools.
    pub fn recover_single(dir: &Path, me: ServerId) -> Result<Recovery, OpenError> {
        let db = Db::open(dir, Some(me))?;
        let mut applying = match db.snapshot().map_err(|e| db.corrupt(e))? {
            Some(stored) => Applying::from_snapshot(&stored).map_err(|e| db.corrupt(e))?,
            None => Applying::default(),
        };
        let after = applying.last.map_or(0, |id| id.index + 1);
        for entry in db.entries(after..).map_err(|e| db.corrupt(e))? {
            applying.apply(entry);
        }
        let mut state = (*applying.state).clone();
        let no_pool = || OpenError::NoPool { path: db.path().to_path_buf() };
        let address = state.servers.get(&me).map(|s| s.address.clone()).ok_or_else(no_pool)?;
        state.apply(&Command::RecoverPool { server: me }).map_err(|_| no_pool())?;

        let vote = db.vote().map_err(|e| db.corrupt(e))?.unwrap_or_default();
        let last = applying.last.map_or(0, |id| id.index);
        let term = vote.leader_id().term.max(applying.last.map_or(0, |id| id.leader_id.term)) + 1;
        let cut = LogId::new(CommittedLeaderId::new(term, me.0), last + 1);
        let nodes = BTreeMap::from([(me.0, Node::new(address))]);
        let members = Membership::new(vec![BTreeSet::from([me.0])], nodes);
        let meta = SnapshotMeta {
            last_log_id: Some(cut),
            last_membership: StoredMembership::new(Some(cut), members),
            snapshot_id: format!("recovered-{cut}"),
        };
        let text = serde_json::to_string(&state).map_err(|e| OpenError::Raft { reason: e.to_string() })?;
        let batch = Batch {
            drop_from: Some(0),
            vote: Some(Vote::new(term, me.0)),
            committed: Some(Some(cut)),
            purged: Some(cut),
            snapshot: Some(StoredSnapshot { meta, state: text }),
            ..Batch::default()
        };
        let io = |e: crate::db::DbError| OpenError::Io { path: db.path().to_path_buf(), reason: e.0 };
        db.write(&batch, Durability::Immediate).map_err(io)?;
        let lost: Vec<String> = state.servers.values().filter(|s| s.lost).map(|s| s.host.clone()).collect();
        let notes = notes(&state, &lost);
        Ok(Recovery { state: Arc::new(state), lost, notes })
    }
}

fn notes(state: &State, lost: &[String]) -> Vec<String> {
    let mut notes = vec![
        "commands that only the other servers had are lost; commands that were being agreed on may be done"
            .to_string(),
    ];
    if !lost.is_empty() {
        notes.push(format!(
            "cut off: {}; never start them with their old state folders while this pool runs: wipe those and probe the \
             servers again",
            lost.join(", ")
        ));
    }
    for set in state.sets.values().filter(|s| s.view.primary.is_none()) {
        let volume = state.volumes.get(&set.volume).map(|v| v.name.as_str()).unwrap_or_default();
        notes.push(format!(
            "set {} of volume '{volume}' is offline: no brick in sync is on this server",
            set.id
        ));
    }
    notes
}
