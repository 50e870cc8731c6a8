//! The file of the index, on the kernel's file systems or on another one.
//!
//! On the host redb opens it by its path, in its own way; elsewhere it reaches it through the seam.

use crate::identity::own;
use file_system::{File, Opening};
use redb::{Database, StorageBackend};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Errno;

const NAME: &[u8] = b"index.redb";
/// Bytes of the database that are kept in memory.
const CACHE: usize = 1 << 20;

/// Where the index lies.
#[derive(Clone)]
pub(crate) struct IndexFile {
    path: PathBuf,
    meta: Arc<File>,
}

impl IndexFile {
    /// Of the brick at `path`, whose `.mortar` is `meta`.
    pub(crate) fn new(path: &Path, meta: Arc<File>) -> IndexFile {
        IndexFile { path: own(path).join("index.redb"), meta }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there is one.
    pub(crate) fn exists(&self) -> bool {
        self.meta.stat_at(NAME).is_ok()
    }

    /// Opens the database, or makes it; no damaged page of it is believed.
    pub(crate) fn create(&self) -> Result<Database, redb::Error> {
        if self.meta.is_on_host() {
            return Ok(checked_db::open_file(&self.path, CACHE)?);
        }
        let file =
            self.meta.open_own(NAME, Opening::AtHand(0o600)).map_err(|e| redb::Error::Io(failed(e)))?;
        Ok(checked_db::open(Backend(file), CACHE)?)
    }

    pub(crate) fn remove(&self) -> Result<(), Errno> {
        self.meta.unlink(NAME)
    }
}

/// The seam as redb wants it.
#[derive(Debug)]
struct Backend(File);

fn failed(e: Errno) -> io::Error {
    io::Error::from_raw_os_error(e.0)
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.stat().map(|s| s.size).map_err(failed)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let data = self.0.read(offset, out.len(), false).map_err(failed)?;
        if data.len() != out.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        out.copy_from_slice(&data);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.truncate(len).map_err(failed)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data().map_err(failed)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all(offset, data).map_err(failed)
    }
}
