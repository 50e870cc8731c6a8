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
    /// The servers that were fenced off: to be replaced or detached.
    pub lost: Vec<String>,
    /// What may be lost, for the administrator.
    pub notes: Vec<String>,
}

impl ConfigStore {
    /// What [`ConfigStore::recover_single`] would do in this folder. Changes nothing.
    pub fn plan_recovery(dir: &Path) -> Result<Recovery, OpenError> {
        let db = Db::open(dir, None)?;
        let no_pool = || OpenError::NoPool { path: db.path().to_path_buf() };
        let me = db.server().map_err(|e| db.corrupt(e))?.ok_or_else(no_pool)?;
        let (state, _) = recovered(&db, me)?;
        Ok(describe(state, me))
    }

    /// Makes this server the only voter of the pool it has a copy of, while its store is not open.
    ///
    /// The others stay in the state, marked lost, and out of all views. Only for a majority that is gone for good:
    /// while it runs on elsewhere, there are two pools. Whoever of them can be reached is told to stop by the daemon.
    pub fn recover_single(dir: &Path, me: ServerId) -> Result<Recovery, OpenError> {
        let db = Db::open(dir, Some(me))?;
        let (state, applied) = recovered(&db, me)?;
        let address = state.servers.get(&me).map(|s| s.address.clone()).unwrap_or_default();

        let vote = db.vote().map_err(|e| db.corrupt(e))?.unwrap_or_default();
        let last = applied.map_or(0, |id| id.index);
        let term = vote.leader_id().term.max(applied.map_or(0, |id| id.leader_id.term)) + 1;
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
        Ok(describe(state, me))
    }
}

/// The state after a recovery, and the last entry of the log that is in it.
fn recovered(db: &Db, me: ServerId) -> Result<(State, Option<LogId>), OpenError> {
    let mut applying = match db.snapshot().map_err(|e| db.corrupt(e))? {
        Some(stored) => Applying::from_snapshot(&stored).map_err(|e| db.corrupt(e))?,
        None => Applying::default(),
    };
    let after = applying.last.map_or(0, |id| id.index + 1);
    for entry in db.entries(after..).map_err(|e| db.corrupt(e))? {
        applying.apply(entry);
    }
    let mut state = (*applying.state).clone();
    let recover = Command::RecoverPool { server: me };
    state.apply(&recover).map_err(|_| OpenError::NoPool { path: db.path().to_path_buf() })?;
    Ok((state, applying.last))
}

fn describe(state: State, me: ServerId) -> Recovery {
    let lost: Vec<String> = state.servers.values().filter(|s| s.lost).map(|s| s.host.clone()).collect();
    let notes = notes(&state, &lost, me);
    Recovery { state: Arc::new(state), lost, notes }
}

fn notes(state: &State, lost: &[String], me: ServerId) -> Vec<String> {
    let mut notes = vec![
        "the pool: commands that only the other servers had are lost; commands that were being agreed on may be done"
            .to_string(),
    ];
    for set in state.sets.values() {
        let volume = state.volumes.get(&set.volume).map(|v| v.name.as_str()).unwrap_or_default();
        let primary = set.view.primary.and_then(|id| set.brick(id)).filter(|b| b.server == me);
        notes.push(match primary {
            Some(brick) if set.bricks.len() > 1 => format!(
                "{} goes on with {}: what the other bricks were told to be done after this \
                 server last heard from them is lost",
                state.named_set(set),
                state.brick_name(brick)
            ),
            Some(_) => continue,
            None => {
                let holders = set.bricks.iter().filter(|b| set.view.in_sync.contains(&b.id));
                let names: Vec<String> = holders.map(|b| state.brick_name(b)).collect();
                format!(
                    "{} is offline: no brick in sync is on this server; it serves again when {} \
                     is back (mortar peer replace), or without what only they hold after mortar volume promote {volume} \
                     HOST:/PATH",
                    state.named_set(set),
                    names.join(" or ")
                )
            }
        });
    }
    if !lost.is_empty() {
        notes.push(format!(
            "fenced off: {}; while they run with their old state folders without being able to reach this server there are \
             two pools: stop them, empty their state folders, start them and run mortar peer replace HOST for each",
            lost.join(", ")
        ));
    }
    notes
}
