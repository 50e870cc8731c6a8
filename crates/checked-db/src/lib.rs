//! Opens redb files so that no page of theirs is believed before its checksum was compared.
//!
//! A redb file is a tree of pages in which each parent carries the checksums of its children, up to the commit slots
//! in the file's head. redb compares them only when it repairs a file that was not closed in order; any other file it
//! reads as it is, and a damaged page then ends the process in a panic. Here every file looks to redb as if it had not
//! been closed in order, so that each opening compares all checksums from the root downwards.
//!
//! Always true: a database that [`open`] returns consists of pages whose checksums fit, and it is the last commit
//! whenever the file says that this commit was on disk before the head named it (redb's two-phase commit).
//! Not done here: pages are not compared again when they are read later on.

mod head;

use head::Unproven;
use redb::{Builder, Database, DatabaseError, StorageBackend, StorageError, backends::FileBackend};
use std::fs::{OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// redb's report of progress once the last commit has failed its checksums: it would go on with the one before.
const LAST_COMMIT_FAILED: f64 = 0.3;

/// Opens or makes the database in the file at `path`, which is its owner's alone; `cache` bytes of it are kept in memory.
///
/// # Errors
/// redb's; [`StorageError::Corrupted`] for a file that is damaged.
pub fn open_file(path: &Path, cache: usize) -> Result<Database, DatabaseError> {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    open(FileBackend::new(file)?, cache)
}

/// Opens or makes the database in `backend`; `cache` bytes of it are kept in memory.
///
/// # Errors
/// redb's; [`StorageError::Corrupted`] for a file that is damaged.
pub fn open(backend: impl StorageBackend, cache: usize) -> Result<Database, DatabaseError> {
    let last_or_none = Arc::new(AtomicBool::new(false));
    let backend = Unproven::new(backend, last_or_none.clone());
    let opened = Builder::new()
        .set_cache_size(cache)
        .set_repair_callback(move |repair| {
            let failed = (repair.progress() - LAST_COMMIT_FAILED).abs() < 0.01;
            if failed && last_or_none.load(Relaxed) {
                repair.abort();
            }
        })
        .create_with_backend(backend);
    opened.map_err(|e| match e {
        DatabaseError::RepairAborted => {
            StorageError::Corrupted("a page of its last commit is damaged".to_owned()).into()
        }
        e => e,
    })
}
