//! Where each object is: fid to file handle. A cache over the tree, rebuilt by a scan when it is lost.
//!
//! Changes are kept in memory and committed by the full [`crate::SyncJob`], after the tree itself is on disk: what the
//! index says is then never newer than the tree.
//!
//! redb refuses everything after the first error of the file below it, a full disk among them. The file is then opened
//! anew: what it lacks of the last commits is still in memory.

use crate::error::io_errno;
use crate::index_file::IndexFile;
use crate::locks::locked;
use file_system::{File, Handle};
use ids::{BrickId, Epoch, Fid, Lsn, SetId};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use wire::Errno;

const OBJECTS: TableDefinition<'_, (u32, u32, u64), &[u8]> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const VERSION: u64 = 1;

/// An object's place: how to open it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Located {
    pub(crate) handle: Handle,
    /// Type bits of `st_mode`.
    pub(crate) kind: u32,
}

impl Located {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        out.push(u8::try_from(self.kind >> 12).unwrap_or(0));
        self.handle.encode(&mut out);
        out
    }

    fn decode(bytes: &[u8]) -> Option<Located> {
        let (kind, rest) = bytes.split_first()?;
        Some(Located { kind: u32::from(*kind) << 12, handle: Handle::decode(rest)? })
    }
}

type Changes = HashMap<Fid, Option<Located>>;

#[derive(Clone)]
struct Batch {
    changes: Arc<Changes>,
    /// The position that the index has with it.
    lsn: Lsn,
}

/// The part of the index that other threads commit.
pub(crate) struct Store {
    file: IndexFile,
    brick: BrickId,
    /// `None` after an error, until it could be opened anew.
    db: RwLock<Option<Database>>,
    /// It could not be opened anew: said once.
    unusable: AtomicBool,
    batches: Mutex<VecDeque<Batch>>,
    committing: Mutex<()>,
    /// How far the database has come at least. `None`: it was begun, and never committed.
    committed: Mutex<Option<Lsn>>,
}

pub(crate) struct Index {
    store: Arc<Store>,
    dirty: Changes,
}

fn key(f: Fid) -> (u32, u32, u64) {
    (f.set.0, f.epoch.0, f.lsn.0)
}

impl Index {
    /// Opens the index; `None` for the position if it is new (or another brick's) and has to be filled by a scan.
    pub(crate) fn open(file: IndexFile, brick: BrickId) -> Result<(Index, Option<Lsn>), String> {
        let open = || file.create();
        let (db, lsn) = match open().map_err(|e| e.to_string()).and_then(|db| {
            let lsn = position(&db, brick)?;
            Ok((db, lsn))
        }) {
            Ok(found) => found,
            Err(why) => {
                tracing::warn!(path = %file.path().display(), why, "the index cannot be read: it is made anew");
                file.remove().map_err(|e| e.to_string())?;
                (open().map_err(|e| e.to_string())?, None)
            }
        };
        if lsn.is_none() {
            begin(&db, brick).map_err(|e| e.to_string())?;
        }
        let store = Store {
            file,
            brick,
            db: RwLock::new(Some(db)),
            unusable: AtomicBool::new(false),
            batches: Mutex::default(),
            committing: Mutex::default(),
            committed: Mutex::new(lsn),
        };
        Ok((Index { store: Arc::new(store), dirty: HashMap::new() }, lsn))
    }

    /// Whether nothing was ever committed: what it lacks says nothing.
    pub(crate) fn is_new(&self) -> bool {
        locked(&self.store.committed).is_none()
    }

    pub(crate) fn get(&self, fid: Fid) -> Result<Option<Located>, Errno> {
        if let Some(v) = self.dirty.get(&fid) {
            return Ok(*v);
        }
        self.store.get(fid)
    }

    /// What other threads may look into: all but the newest changes.
    pub(crate) fn share(&self) -> Arc<Store> {
        self.store.clone()
    }

    pub(crate) fn put(&mut self, fid: Fid, at: Located) {
        self.dirty.insert(fid, Some(at));
    }

    pub(crate) fn remove(&mut self, fid: Fid) {
        self.dirty.insert(fid, None);
    }

    /// Forgets what is not on the file system of `root` any more, or is one of these now. It opens each object.
    pub(crate) fn forget_gone(&mut self, root: &File, others: &[(Fid, Handle)]) -> Result<(), Errno> {
        let others: BTreeMap<&[u8], Fid> = others.iter().map(|(fid, at)| (at.bytes(), *fid)).collect();
        let mut gone = Vec::new();
        self.each(&mut |fid, at| {
            let other = at.as_ref().and_then(|at| others.get(at.handle.bytes()));
            if other.is_some_and(|other| *other != fid) {
                return gone.push((fid, at));
            }
            let opened = at.map(|at| root.open_handle(&at.handle, at.kind));
            if let Some(Err(Errno::ESTALE | Errno::ENOENT)) = opened {
                gone.push((fid, at));
            }
        })?;
        for (fid, at) in gone {
            // It may have been found elsewhere since.
            if self.get(fid)? == at {
                self.remove(fid);
            }
        }
        Ok(())
    }

    pub(crate) fn dirty(&self) -> usize {
        self.dirty.len()
    }

    /// Hands what changed over to be committed, as of `lsn`.
    pub(crate) fn seal(&mut self, lsn: Lsn) -> Arc<Store> {
        let changes = std::mem::take(&mut self.dirty);
        let mut batches = locked(&self.store.batches);
        batches.push_back(Batch { changes: Arc::new(changes), lsn });
        self.store.clone()
    }

    /// The journal goes on after `lsn`, and what follows may come to be committed as of an earlier position than what waits
    /// already: that waits for nothing later.
    pub(crate) fn set_back(&self, lsn: Lsn) {
        for batch in locked(&self.store.batches).iter_mut() {
            batch.lsn = batch.lsn.min(lsn);
        }
    }

    /// All objects the index knows on disk, one after the other; from the beginning again after an error that passed.
    pub(crate) fn each(&self, look: &mut dyn FnMut(Fid, Option<Located>)) -> Result<(), Errno> {
        self.store.read(|db| {
            let read = db.begin_read()?;
            let table = read.open_table(OBJECTS)?;
            for row in table.iter()? {
                let (k, v) = row?;
                let (set, epoch, lsn) = k.value();
                let fid = Fid { set: SetId(set), epoch: Epoch(epoch), lsn: Lsn(lsn) };
                look(fid, Located::decode(v.value()));
            }
            Ok(())
        })
    }
}

impl Store {
    pub(crate) fn get(&self, fid: Fid) -> Result<Option<Located>, Errno> {
        {
            let batches = locked(&self.batches);
            if let Some(v) = batches.iter().rev().find_map(|b| b.changes.get(&fid)) {
                return Ok(*v);
            }
        }
        self.read(|db| {
            let read = db.begin_read()?;
            let table = read.open_table(OBJECTS)?;
            let v = table.get(key(fid))?;
            Ok(v.and_then(|v| Located::decode(v.value())))
        })
    }

    /// Which of these objects it knows, on disk at least: asked for at once, which costs less than one by one.
    pub(crate) fn knows(&self, fids: &[Fid]) -> Result<Vec<bool>, Errno> {
        self.read(|db| {
            let table = db.begin_read()?.open_table(OBJECTS)?;
            fids.iter().map(|fid| Ok(table.get(key(*fid))?.is_some())).collect()
        })
    }

    /// Objects that were removed are not known any more, unless they were found elsewhere: `lsn` as in [`Index::seal`]. On any
    /// thread.
    pub(crate) fn forget(&self, removed: Vec<(Fid, Located)>, lsn: Lsn) {
        let is_known = |(fid, at): &(Fid, Located)| self.get(*fid).is_ok_and(|known| known == Some(*at));
        let changes: Changes = removed.into_iter().filter(is_known).map(|(fid, _)| (fid, None)).collect();
        if !changes.is_empty() {
            locked(&self.batches).push_back(Batch { changes: Arc::new(changes), lsn });
        }
    }

    /// Commits everything sealed up to `upto`, oldest first. On any thread.
    pub(crate) fn commit(&self, upto: Lsn) -> Result<(), Errno> {
        let _one = locked(&self.committing);
        loop {
            let front = locked(&self.batches).front().cloned();
            let Some(batch) = front.filter(|b| b.lsn <= upto) else { return Ok(()) };
            self.with(|db| write(db, &batch))?;
            *locked(&self.committed) = Some(batch.lsn);
            locked(&self.batches).pop_front();
        }
    }

    /// Reads; once more after an error.
    fn read<T>(&self, mut read: impl FnMut(&Database) -> Result<T, redb::Error>) -> Result<T, Errno> {
        self.with(&mut read).or_else(|_| self.with(read))
    }

    /// Does it with the database, which is opened anew first if it is closed. An error closes it.
    fn with<T>(&self, act: impl FnOnce(&Database) -> Result<T, redb::Error>) -> Result<T, Errno> {
        loop {
            let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(open) = &*db {
                let done = act(open);
                drop(db);
                return done.map_err(|e| self.failed(&e));
            }
            drop(db);
            self.reopen()?;
        }
    }

    fn failed(&self, error: &redb::Error) -> Errno {
        tracing::warn!(path = %self.file.path().display(), %error, "the index failed: it is opened anew");
        *self.db.write().unwrap_or_else(PoisonError::into_inner) = None;
        self.unusable.store(false, Ordering::Relaxed);
        match error {
            redb::Error::Io(e) => io_errno(e),
            _ => Errno::EIO,
        }
    }

    fn reopen(&self) -> Result<(), Errno> {
        let mut db = self.db.write().unwrap_or_else(PoisonError::into_inner);
        if db.is_some() {
            return Ok(());
        }
        let committed = *locked(&self.committed);
        let opened = self.file.create().map_err(|e| e.to_string()).and_then(|new| {
            // A commit that failed may be there all the same.
            if position(&new, self.brick)? < committed {
                return Err(format!("it has lost commits that were on disk: up to {committed:?}"));
            }
            Ok(new)
        });
        *db = Some(opened.map_err(|why| {
            if !self.unusable.swap(true, Ordering::Relaxed) {
                tracing::error!(path = %self.file.path().display(), why, "the index cannot be opened");
            }
            Errno::EIO
        })?);
        Ok(())
    }
}

fn write(db: &Database, batch: &Batch) -> Result<(), redb::Error> {
    let mut txn = db.begin_write()?;
    // Damage to the last commit is then told from a commit that a power cut interrupted.
    txn.set_two_phase_commit(true);
    {
        let mut table = txn.open_table(OBJECTS)?;
        let mut sorted: Vec<_> = batch.changes.iter().collect();
        sorted.sort_unstable_by_key(|(f, _)| **f);
        for (fid, at) in sorted {
            match at {
                Some(at) => table.insert(key(*fid), at.encode().as_slice())?,
                None => table.remove(key(*fid))?,
            };
        }
        txn.open_table(META)?.insert("lsn", batch.lsn.0)?;
    }
    txn.commit()?;
    Ok(())
}

fn position(db: &Database, brick: BrickId) -> Result<Option<Lsn>, String> {
    let read = db.begin_read().map_err(|e| e.to_string())?;
    let table = match read.open_table(META) {
        Ok(t) => t,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(e) => return Err(e.to_string()),
    };
    let get = |k: &str| table.get(k).map(|v| v.map(|v| v.value())).map_err(|e| e.to_string());
    if get("version")? != Some(VERSION) || get("brick")? != Some(brick.0.into()) {
        return Err("it is of another version or brick".into());
    }
    Ok(get("lsn")?.map(Lsn))
}

fn begin(db: &Database, brick: BrickId) -> Result<(), redb::Error> {
    let txn = db.begin_write()?;
    {
        let mut meta = txn.open_table(META)?;
        meta.insert("version", VERSION)?;
        meta.insert("brick", u64::from(brick.0))?;
        txn.open_table(OBJECTS)?;
    }
    txn.commit()?;
    Ok(())
}
