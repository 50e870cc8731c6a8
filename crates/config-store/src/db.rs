//! The one file: tables, transactions, and what is verified when it is opened.
//!
//! Always true: a durable write is on disk when it returns. `docs/formats/pool-store.md` describes the file.

use std::{
    io::ErrorKind,
    ops::RangeBounds,
    path::{Path, PathBuf},
    sync::{PoisonError, RwLock},
    time::{Duration, Instant},
};

use ids::ServerId;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    OpenError, record,
    types::{Entry, LogId, SnapshotMeta, Vote},
};

/// The file in the state folder.
pub(crate) const FILE: &str = "pool.redb";
/// The format this program writes, and the newest it reads.
pub(crate) const FORMAT: u32 = 1;
/// Bytes of the file that are kept in memory.
const CACHE: usize = 16 << 20;
/// How long to wait for a process that is just leaving the file.
const LOCK_WAIT: Duration = Duration::from_secs(3);

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("log");

/// A state and where in the log it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StoredSnapshot {
    pub(crate) meta: SnapshotMeta,
    /// [`cluster::State`] as JSON text.
    pub(crate) state: String,
}

/// Any trouble with the file while it is in use, as text: openraft only passes it on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct DbError(pub(crate) String);

impl<E: Into<redb::Error>> From<E> for DbError {
    fn from(e: E) -> DbError {
        DbError(e.into().to_string())
    }
}

pub(crate) struct Db {
    /// `None`: closed.
    db: RwLock<Option<Database>>,
    path: PathBuf,
}

/// One transaction's changes.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) append: Vec<Entry>,
    /// Drops entries with these indexes.
    pub(crate) drop_from: Option<u64>,
    pub(crate) drop_to: Option<u64>,
    pub(crate) vote: Option<Vote>,
    pub(crate) committed: Option<Option<LogId>>,
    pub(crate) purged: Option<LogId>,
    pub(crate) snapshot: Option<StoredSnapshot>,
    pub(crate) server: Option<ServerId>,
    pub(crate) format: Option<u32>,
}

impl Db {
    /// Opens or makes the file and verifies every value in it.
    pub(crate) fn open(dir: &Path, me: Option<ServerId>) -> Result<Db, OpenError> {
        let path = dir.join(FILE);
        let io = |reason: String| OpenError::Io { path: path.clone(), reason };
        std::fs::create_dir_all(dir).map_err(|e| io(e.to_string()))?;
        let is_new = !path.exists();
        let db = Db { db: RwLock::new(Some(open_file(&path)?)), path: path.clone() };
        if is_new {
            sync_dir(dir).map_err(|e| io(e.to_string()))?;
        }
        let format: Option<u32> = db.get("format").map_err(|e| db.corrupt(e))?;
        match format {
            None => {
                let batch = Batch { format: Some(FORMAT), server: me, ..Batch::default() };
                db.write(&batch, Durability::Immediate).map_err(|e| io(e.to_string()))?;
            }
            Some(format) if format > FORMAT => return Err(OpenError::Newer { path, format, max: FORMAT }),
            Some(_) => {}
        }
        db.verify().map_err(|e| db.corrupt(e))?;
        if let (Some(me), Some(stored)) = (me, db.server().map_err(|e| db.corrupt(e))?)
            && me != stored
        {
            return Err(OpenError::OtherServer { path, stored, me });
        }
        Ok(db)
    }

    /// Lets go of the file, whoever still holds a handle.
    pub(crate) fn close(&self) {
        self.db.write().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn read(&self) -> Result<redb::ReadTransaction, DbError> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        Ok(db.as_ref().ok_or_else(closed)?.begin_read()?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn corrupt(&self, e: DbError) -> OpenError {
        OpenError::Corrupt { path: self.path.clone(), reason: e.0 }
    }

    /// Reads everything once, so that openraft never meets a damaged value at its start.
    fn verify(&self) -> Result<(), DbError> {
        let mut last: Option<u64> = self.purged()?.map(|id| id.index);
        for entry in self.entries(..)? {
            let index = entry.log_id.index;
            if last.is_some_and(|last| index != last + 1) {
                return Err(DbError(format!("entry {index} of the log does not follow the one before")));
            }
            last = Some(index);
        }
        self.vote()?;
        self.committed()?;
        if let Some(snapshot) = self.snapshot()? {
            let state: cluster::State = serde_json::from_str(&snapshot.state)
                .map_err(|e| DbError(format!("the state is not understood: {e}")))?;
            state.check_format().map_err(|e| DbError(e.to_string()))?;
        }
        Ok(())
    }

    fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, DbError> {
        let tx = self.read()?;
        let table = match tx.open_table(META) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let Some(value) = table.get(key)? else { return Ok(None) };
        record::open(key.as_bytes(), value.value()).map(Some).map_err(DbError)
    }

    pub(crate) fn vote(&self) -> Result<Option<Vote>, DbError> {
        self.get("vote")
    }

    pub(crate) fn committed(&self) -> Result<Option<LogId>, DbError> {
        self.get::<Option<LogId>>("committed").map(Option::flatten)
    }

    pub(crate) fn purged(&self) -> Result<Option<LogId>, DbError> {
        self.get("purged")
    }

    pub(crate) fn snapshot(&self) -> Result<Option<StoredSnapshot>, DbError> {
        self.get("snapshot")
    }

    pub(crate) fn server(&self) -> Result<Option<ServerId>, DbError> {
        self.get("server")
    }

    pub(crate) fn entries(&self, range: impl RangeBounds<u64>) -> Result<Vec<Entry>, DbError> {
        let tx = self.read()?;
        let table = match tx.open_table(LOG) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        };
        let mut entries = Vec::new();
        for item in table.range(range)? {
            let (key, value) = item?;
            entries.push(record::open(&key.value().to_le_bytes(), value.value()).map_err(DbError)?);
        }
        Ok(entries)
    }

    pub(crate) fn last_entry(&self) -> Result<Option<LogId>, DbError> {
        let tx = self.read()?;
        let table = tx.open_table(LOG)?;
        let Some((key, value)) = table.last()? else { return Ok(None) };
        let entry: Entry = record::open(&key.value().to_le_bytes(), value.value()).map_err(DbError)?;
        Ok(Some(entry.log_id))
    }

    /// One transaction; with [`Durability::Immediate`] two fsyncs, by which damage to the last commit is told from a
    /// commit that a power cut interrupted.
    pub(crate) fn write(&self, batch: &Batch, durability: Durability) -> Result<(), DbError> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let mut tx = db.as_ref().ok_or_else(closed)?.begin_write()?;
        tx.set_two_phase_commit(matches!(durability, Durability::Immediate));
        tx.set_durability(durability).map_err(|e| DbError(e.to_string()))?;
        {
            let mut log = tx.open_table(LOG)?;
            if let Some(from) = batch.drop_from {
                log.retain_in(from.., |_, _| false)?;
            }
            if let Some(to) = batch.drop_to {
                log.retain_in(..=to, |_, _| false)?;
            }
            for entry in &batch.append {
                let index = entry.log_id.index;
                let value = record::seal(&index.to_le_bytes(), entry).map_err(DbError)?;
                log.insert(index, value.as_slice())?;
            }
            let mut meta = tx.open_table(META)?;
            put(&mut meta, "format", batch.format.as_ref())?;
            put(&mut meta, "server", batch.server.as_ref())?;
            put(&mut meta, "vote", batch.vote.as_ref())?;
            put(&mut meta, "committed", batch.committed.as_ref())?;
            put(&mut meta, "purged", batch.purged.as_ref())?;
            put(&mut meta, "snapshot", batch.snapshot.as_ref())?;
        }
        tx.commit()?;
        Ok(())
    }
}

fn closed() -> DbError {
    DbError("the pool store was closed".to_string())
}

fn put<T: Serialize>(
    table: &mut redb::Table<'_, &str, &[u8]>,
    key: &str,
    value: Option<&T>,
) -> Result<(), DbError> {
    if let Some(value) = value {
        let sealed = record::seal(key.as_bytes(), value).map_err(DbError)?;
        table.insert(key, sealed.as_slice())?;
    }
    Ok(())
}

fn open_file(path: &Path) -> Result<Database, OpenError> {
    let started = Instant::now();
    loop {
        let failed = match checked_db::open_file(path, CACHE) {
            Ok(db) => return Ok(db),
            Err(failed) => failed,
        };
        let path = path.to_path_buf();
        match failed {
            DatabaseError::DatabaseAlreadyOpen if started.elapsed() < LOCK_WAIT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            DatabaseError::DatabaseAlreadyOpen => return Err(OpenError::InUse { path }),
            DatabaseError::Storage(redb::StorageError::Io(e))
                if !matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
            {
                return Err(OpenError::Io { path, reason: e.to_string() });
            }
            other => return Err(OpenError::Corrupt { path, reason: other.to_string() }),
        }
    }
}

fn sync_dir(dir: &Path) -> std::io::Result<()> {
    std::fs::File::open(dir)?.sync_all()
}
