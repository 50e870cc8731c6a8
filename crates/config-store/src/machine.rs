//! The state machine as openraft wants it: [`cluster::State`] in memory, snapshots in the file.
//!
//! Always true: the state in memory is the snapshot in the file plus the applied entries after it.

use std::{
    io::Cursor,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use cluster::State;
use openraft::{
    AnyError, EntryPayload, OptionalSend, RaftSnapshotBuilder, Snapshot, StorageIOError,
    storage::RaftStateMachine,
};
use redb::Durability;
use tokio::sync::watch;

use crate::{
    db::{Batch, Db, DbError, StoredSnapshot},
    types::{Applied, Entry, LogId, Node, SnapshotMeta, StorageError, StoredMembership, TypeConfig},
};

#[derive(Default)]
pub(crate) struct Applying {
    pub(crate) state: Arc<State>,
    pub(crate) last: Option<LogId>,
    pub(crate) members: StoredMembership,
}

/// A handle on the state.
#[derive(Clone)]
pub(crate) struct Machine {
    db: Arc<Db>,
    applying: Arc<Mutex<Applying>>,
    publish: Arc<watch::Sender<Arc<State>>>,
}

impl Applying {
    pub(crate) fn from_snapshot(stored: &StoredSnapshot) -> Result<Applying, DbError> {
        let state: State = serde_json::from_str(&stored.state).map_err(|e| DbError(e.to_string()))?;
        state.check_format().map_err(|e| DbError(e.to_string()))?;
        let (last, members) = (stored.meta.last_log_id, stored.meta.last_membership.clone());
        Ok(Applying { state: Arc::new(state), last, members })
    }

    pub(crate) fn apply(&mut self, entry: Entry) -> Applied {
        self.last = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => Applied(None),
            EntryPayload::Membership(members) => {
                self.members = StoredMembership::new(Some(entry.log_id), members);
                Applied(None)
            }
            EntryPayload::Normal(proposal) => {
                Applied(Some(Arc::make_mut(&mut self.state).apply_proposal(&proposal)))
            }
        }
    }

    fn to_snapshot(&self) -> Result<StoredSnapshot, DbError> {
        let state = serde_json::to_string(&*self.state).map_err(|e| DbError(e.to_string()))?;
        let id = self.last.map_or_else(|| "empty".to_string(), |last| format!("{last}"));
        let meta =
            SnapshotMeta { last_log_id: self.last, last_membership: self.members.clone(), snapshot_id: id };
        Ok(StoredSnapshot { meta, state })
    }
}

fn any(e: &DbError) -> AnyError {
    AnyError::error(e.to_string())
}

fn write_failed(e: DbError) -> StorageError {
    StorageIOError::write_snapshot(None, any(&e)).into()
}

fn to_raft(stored: StoredSnapshot) -> Snapshot<TypeConfig> {
    Snapshot { meta: stored.meta, snapshot: Box::new(Cursor::new(stored.state.into_bytes())) }
}

impl Machine {
    pub(crate) fn open(db: Arc<Db>) -> Result<Machine, DbError> {
        let applying = match db.snapshot()? {
            Some(stored) => Applying::from_snapshot(&stored)?,
            None => Applying::default(),
        };
        let publish = Arc::new(watch::Sender::new(applying.state.clone()));
        Ok(Machine { db, applying: Arc::new(Mutex::new(applying)), publish })
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Arc<State>> {
        self.publish.subscribe()
    }

    pub(crate) fn state(&self) -> Arc<State> {
        self.lock().state.clone()
    }

    /// Lets go of the file.
    pub(crate) fn close(&self) {
        self.db.close();
    }

    fn lock(&self) -> MutexGuard<'_, Applying> {
        self.applying.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn store(&self, stored: StoredSnapshot) -> Result<(), DbError> {
        let db = self.db.clone();
        let batch = Batch { snapshot: Some(stored), ..Batch::default() };
        let done = tokio::task::spawn_blocking(move || db.write(&batch, Durability::Immediate)).await;
        done.unwrap_or_else(|e| Err(DbError(e.to_string())))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<TypeConfig>, StorageError> {
        let stored = self.lock().to_snapshot().map_err(write_failed)?;
        self.store(stored.clone()).await.map_err(write_failed)?;
        Ok(to_raft(stored))
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotBuilder = Machine;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), StorageError> {
        let applying = self.lock();
        Ok((applying.last, applying.members.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Applied>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (answers, state) = {
            let mut applying = self.lock();
            let answers = entries.into_iter().map(|e| applying.apply(e)).collect();
            (answers, applying.state.clone())
        };
        self.publish.send_if_modified(|seen| {
            let changed = !Arc::ptr_eq(seen, &state) && seen.version != state.version;
            *seen = state;
            changed
        });
        Ok(answers)
    }

    async fn get_snapshot_builder(&mut self) -> Machine {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::new(Cursor::new(Vec::new())))
    }

    async fn install_snapshot(
        &mut self,
        meta: &openraft::SnapshotMeta<u64, Node>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let text =
            String::from_utf8(snapshot.into_inner()).map_err(|e| write_failed(DbError(e.to_string())))?;
        let stored = StoredSnapshot { meta: meta.clone(), state: text };
        let applying = Applying::from_snapshot(&stored).map_err(write_failed)?;
        self.store(stored).await.map_err(write_failed)?;
        let state = applying.state.clone();
        *self.lock() = applying;
        self.publish.send_replace(state);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<TypeConfig>>, StorageError> {
        let stored = self.db.snapshot().map_err(|e| StorageIOError::read_snapshot(None, any(&e)))?;
        Ok(stored.map(to_raft))
    }
}
