//! The log and the vote as openraft wants them.

use std::{fmt::Debug, ops::RangeBounds, sync::Arc};

use openraft::{
    AnyError, LogState, OptionalSend, RaftLogReader, StorageIOError,
    storage::{LogFlushed, RaftLogStorage},
};
use redb::Durability;

use crate::{
    db::{Batch, Db, DbError},
    types::{Entry, LogId, StorageError, TypeConfig, Vote},
};

/// A handle on the log in the file.
#[derive(Clone)]
pub(crate) struct Log {
    pub(crate) db: Arc<Db>,
}

fn any(e: &DbError) -> AnyError {
    AnyError::error(e.to_string())
}

#[allow(clippy::result_large_err, reason = "openraft's type")]
fn read<T>(result: Result<T, DbError>) -> Result<T, StorageError> {
    result.map_err(|e| StorageIOError::read_logs(any(&e)).into())
}

impl Log {
    /// Writes on a thread where waiting for the disk hurts nobody.
    async fn write(&self, batch: Batch, durability: Durability) -> Result<(), DbError> {
        let db = self.db.clone();
        let done = tokio::task::spawn_blocking(move || db.write(&batch, durability)).await;
        done.unwrap_or_else(|e| Err(DbError(e.to_string())))
    }

    async fn write_logs(&self, batch: Batch) -> Result<(), StorageError> {
        let done = self.write(batch, Durability::Immediate).await;
        done.map_err(|e| StorageIOError::write_logs(any(&e)).into())
    }
}

impl RaftLogReader<TypeConfig> for Log {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<Entry>, StorageError> {
        read(self.db.entries(range))
    }
}

impl RaftLogStorage<TypeConfig> for Log {
    type LogReader = Log;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, StorageError> {
        let purged = read(self.db.purged())?;
        let last = read(self.db.last_entry())?;
        Ok(LogState { last_purged_log_id: purged, last_log_id: last.or(purged) })
    }

    async fn get_log_reader(&mut self) -> Log {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), StorageError> {
        let batch = Batch { vote: Some(*vote), ..Batch::default() };
        let done = self.write(batch, Durability::Immediate).await;
        done.map_err(|e| StorageIOError::write_vote(any(&e)).into())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, StorageError> {
        self.db.vote().map_err(|e| StorageIOError::read_vote(any(&e)).into())
    }

    /// Only a hint where to start after a restart: no fsync of its own.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), StorageError> {
        let batch = Batch { committed: Some(committed), ..Batch::default() };
        self.db.write(&batch, Durability::None).map_err(|e| StorageIOError::write_logs(any(&e)).into())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, StorageError> {
        read(self.db.committed())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<TypeConfig>) -> Result<(), StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let batch = Batch { append: entries.into_iter().collect(), ..Batch::default() };
        match self.write(batch, Durability::Immediate).await {
            Ok(()) => {
                callback.log_io_completed(Ok(()));
                Ok(())
            }
            Err(e) => {
                callback.log_io_completed(Err(std::io::Error::other(e.to_string())));
                Err(StorageIOError::write_logs(any(&e)).into())
            }
        }
    }

    async fn truncate(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.write_logs(Batch { drop_from: Some(log_id.index), ..Batch::default() }).await
    }

    async fn purge(&mut self, log_id: LogId) -> Result<(), StorageError> {
        self.write_logs(Batch { drop_to: Some(log_id.index), purged: Some(log_id), ..Batch::default() }).await
    }
}
