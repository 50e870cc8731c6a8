//! The server's state folder: who this server is, and the pool store's file.
//!
//! Invariant: one process at a time, by a lock; every file in it is checksummed and replaced as a whole.

use disk_format::sealed;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

const KIND: sealed::Kind = *b"srvr";
const VERSION: u32 = 1;

/// An open state folder. The lock goes with it.
#[derive(Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    /// 32 hex digits, drawn when the folder was made: a folder that was lost makes another server.
    pub(crate) identity: String,
    _lock: File,
}

impl StateFolder {
    /// Opens or makes the folder.
    pub(crate) fn open(path: &Path) -> Result<StateFolder, String> {
        let say =
            |what: &str, e: &dyn std::fmt::Display| format!("state folder {}: {what}: {e}", path.display());
        fs::create_dir_all(path).map_err(|e| say("make it", &e))?;
        let lock = File::create(path.join("lock")).map_err(|e| say("open its lock", &e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            format!(
                "state folder {}: another server uses it: stop that one or give --state another folder",
                path.display()
            )
        })?;
        let file = path.join("identity");
        let identity = match fs::read(&file) {
            Ok(bytes) => read_identity(&bytes).map_err(|why| {
                format!(
                    "{}: {why}: restore it from a backup, or move the state folder away, start with an empty one and \
                     probe this server again",
                    file.display()
                )
            })?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let identity = cluster::hex::encode(rand::random());
                write_whole(&file, &sealed::seal(KIND, VERSION, identity.as_bytes()))
                    .map_err(|e| say("write the identity", &e))?;
                identity
            }
            Err(e) => return Err(say("read the identity", &e)),
        };
        Ok(StateFolder { path: path.to_owned(), identity, _lock: lock })
    }

    /// Where the pool store's file is.
    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }
}

fn read_identity(bytes: &[u8]) -> Result<String, String> {
    let (_, body) = sealed::open(KIND, VERSION, bytes).map_err(|e| e.to_string())?;
    let text = String::from_utf8(body.to_vec()).map_err(|_| "its content is not valid".to_owned())?;
    cluster::hex::decode(&text).map(|_| text).ok_or_else(|| "its content is not valid".to_owned())
}

/// Replaces a file as a whole: after a crash there is the old one or the new one.
fn write_whole(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = file.with_extension("new");
    let mut f = File::create(&temporary)?;
    f.write_all(bytes)?;
    f.sync_all()?;
    fs::rename(&temporary, file)?;
    match file.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_stays_and_damage_is_told() {
        let dir = std::env::temp_dir().join(format!("mortar-state-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        let first = StateFolder::open(&dir).unwrap();
        let busy = StateFolder::open(&dir).unwrap_err();
        assert!(busy.contains("another server uses it"), "{busy}");
        let identity = first.identity.clone();
        drop(first);
        assert_eq!(StateFolder::open(&dir).unwrap().identity, identity);
        let mut bytes = fs::read(dir.join("identity")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(dir.join("identity"), &bytes).unwrap();
        let damaged = StateFolder::open(&dir).unwrap_err();
        assert!(damaged.contains("checksum"), "{damaged}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
