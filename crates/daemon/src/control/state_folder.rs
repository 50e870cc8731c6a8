//! The server's state folder: who this server is, and the pool store's file.
//!
//! Invariants: one process at a time, by a lock; what says who this server is, is checksummed and replaced as a whole; nobody
//! but its owner can read what is in it, whatever the umask.

use disk_format::sealed;
use rustix::fs::{FlockOperation, flock};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const KIND: sealed::Kind = *b"srvr";
const FENCED: sealed::Kind = *b"coff";
const VERSION: u32 = 1;
/// It is there if the pool is secured.
const SECURED: &str = "secured";
const LOST_IDENTITY: &str = "restore it from a backup, or move the state folder away, start with an empty one and run mortar \
                             peer replace HOST at another server of the pool";
/// All that there may be in a state folder.
const OURS: [&str; 11] = [
    "lock",
    "identity",
    "identity.new",
    "cut-off",
    "cut-off.new",
    "store",
    "keys",
    "secured",
    "socket",
    "events",
    "events.old",
];

/// An open state folder. The lock goes with it.
#[derive(Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    /// 32 hex digits, drawn when the folder was made: a folder that was lost, or lost its pool store, makes another server.
    /// The votes that the old one gave are forgotten with it, so nobody may count on them.
    pub(crate) identity: String,
    _lock: File,
}

impl StateFolder {
    /// Opens or makes the folder.
    pub(crate) fn open(path: &Path) -> Result<StateFolder, String> {
        let say =
            |what: &str, e: &dyn std::fmt::Display| format!("state folder {}: {what}: {e}", path.display());
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| say("make it", &e))?;
        let lock = private(&path.join("lock")).map_err(|e| say("open its lock", &e))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            format!(
                "state folder {}: another server uses it: stop that one or give --state another folder",
                path.display()
            )
        })?;
        close_to_others(path).map_err(|e| say("take the access of others away", &e))?;
        if let Ok(bytes) = fs::read(path.join("cut-off")) {
            // Whatever is left of it: it is there.
            let body =
                sealed::open(FENCED, VERSION, &bytes).map(|(_, b)| String::from_utf8_lossy(b).into_owned());
            let why = body.unwrap_or_else(|_| "the pool was recovered without this server".to_owned());
            return Err(format!("state folder {}: {why}", path.display()));
        }
        let file = path.join("identity");
        let identity = match fs::read(&file) {
            Ok(_) if !path.join("store/pool.redb").exists() => None,
            Ok(bytes) => Some(
                read_identity(&bytes).map_err(|why| format!("{}: {why}: {LOST_IDENTITY}", file.display()))?,
            ),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && path.join("store/pool.redb").exists() => {
                return Err(format!("{}: it is gone: {LOST_IDENTITY}", file.display()));
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(say("read the identity", &e)),
        };
        let identity = match identity {
            Some(identity) => identity,
            None => {
                let identity = cluster::hex::encode(rand::random());
                write_whole(&file, &sealed::seal(KIND, VERSION, identity.as_bytes()))
                    .map_err(|e| say("write the identity", &e))?;
                identity
            }
        };
        Ok(StateFolder { path: path.to_owned(), identity, _lock: lock })
    }

    /// The pool goes on without this server: the folder is not to be used again. Answers the line that says so.
    pub(crate) fn fence(&self, why: &str) -> String {
        let line = format!("state folder {}: {why}", self.path.display());
        if let Err(e) =
            write_whole(&self.path.join("cut-off"), &sealed::seal(FENCED, VERSION, why.as_bytes()))
        {
            tracing::error!("{line}; that could not be written down: {e}");
        }
        line
    }

    /// Where this server's keys are.
    pub(crate) fn keys(&self) -> PathBuf {
        self.path.join("keys")
    }

    /// Whether it was written down that the pool lets nobody in without a key.
    pub(crate) fn is_secured(&self) -> bool {
        self.path.join(SECURED).exists()
    }

    /// Writes down that the pool lets nobody in without a key: from the next start on that holds from the first moment.
    pub(crate) fn note_secured(&self) -> std::io::Result<()> {
        private(&self.path.join(SECURED))?.sync_all()?;
        File::open(&self.path)?.sync_all()
    }

    /// Makes the folder of keys: from now on a start knows that the pool here is to be secured.
    pub(crate) fn begin_keys(&self) -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(self.keys())?;
        File::open(&self.path)?.sync_all()
    }

    /// This server is out of its pool: the keys are of no use any more. Their folder stays, as of a first start that was
    /// interrupted: others are to be made.
    pub(crate) fn forget_keys(&self) -> std::io::Result<()> {
        let absent = |e: &std::io::Error| e.kind() == std::io::ErrorKind::NotFound;
        let present = |gone: std::io::Result<()>| gone.or_else(|e| if absent(&e) { Ok(()) } else { Err(e) });
        present(fs::remove_file(self.path.join(SECURED)))?;
        self.begin_keys()?;
        for key in fs::read_dir(self.keys())? {
            present(fs::remove_file(key?.path()))?;
        }
        File::open(self.keys())?.sync_all()?;
        File::open(&self.path)?.sync_all()
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
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

/// Opens a file to write it from the beginning. If it is new, it is its owner's alone.
fn private(file: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file)
}

/// Earlier versions left the folder open to everybody. If it holds other things too, it is not ours to close, but what is
/// ours in it is.
fn close_to_others(folder: &Path) -> std::io::Result<()> {
    let mut only_ours = true;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if OURS.iter().any(|name| entry.file_name() == *name) {
            let mode = if entry.file_type()?.is_dir() { 0o700 } else { 0o600 };
            fs::set_permissions(entry.path(), Permissions::from_mode(mode))?;
        } else {
            only_ours = false;
        }
    }
    if only_ours {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Replaces a file as a whole: after a crash there is the old one or the new one.
fn write_whole(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let temporary = file.with_extension("new");
    let mut f = private(&temporary)?;
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

    fn modes(dir: &Path, names: &[&str]) -> Vec<u32> {
        names.iter().map(|n| fs::metadata(dir.join(n)).unwrap().permissions().mode() & 0o777).collect()
    }

    #[test]
    fn nobody_else_reads_a_state_folder() {
        let dir = std::env::temp_dir().join(format!("mortar-modes-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        drop(StateFolder::open(&dir).unwrap());
        assert_eq!(modes(&dir, &["", "lock", "identity"]), [0o700, 0o600, 0o600]);
        // As an earlier version, or an umask of 0, left it.
        fs::create_dir(dir.join("store")).unwrap();
        fs::write(dir.join("cut-off.new"), "").unwrap();
        for (name, mode) in [("", 0o777), ("lock", 0o666), ("identity", 0o644), ("store", 0o755)] {
            fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
        }
        drop(StateFolder::open(&dir).unwrap());
        let all = ["", "lock", "identity", "store", "cut-off.new"];
        assert_eq!(modes(&dir, &all), [0o700, 0o600, 0o600, 0o700, 0o600]);
        // What others keep there stays theirs.
        fs::write(dir.join("other"), "").unwrap();
        for name in ["", "identity", "other"] {
            fs::set_permissions(dir.join(name), Permissions::from_mode(0o755)).unwrap();
        }
        drop(StateFolder::open(&dir).unwrap());
        assert_eq!(modes(&dir, &["", "identity", "other"]), [0o755, 0o600, 0o755]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn identity_stays_and_damage_is_told() {
        let dir = std::env::temp_dir().join(format!("mortar-state-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        let first = StateFolder::open(&dir).unwrap();
        let busy = StateFolder::open(&dir).unwrap_err();
        assert!(busy.contains("another server uses it"), "{busy}");
        let lost = first.identity.clone();
        drop(first);
        let first = StateFolder::open(&dir).unwrap();
        assert_ne!(first.identity, lost, "without its store it is another server");
        fs::create_dir(first.store()).unwrap();
        fs::write(first.store().join("pool.redb"), "").unwrap();
        let identity = first.identity.clone();
        drop(first);
        assert_eq!(StateFolder::open(&dir).unwrap().identity, identity);
        let mut bytes = fs::read(dir.join("identity")).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(dir.join("identity"), &bytes).unwrap();
        let damaged = StateFolder::open(&dir).unwrap_err();
        assert!(damaged.contains("checksum"), "{damaged}");
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(dir.join("identity"), &bytes).unwrap();
        // The pool knows the store by it.
        fs::remove_file(dir.join("identity")).unwrap();
        let gone = StateFolder::open(&dir).unwrap_err();
        assert!(
            gone.contains("identity: it is gone: restore it") && !dir.join("identity").exists(),
            "{gone}"
        );
        fs::write(dir.join("identity"), &bytes).unwrap();
        let line = StateFolder::open(&dir).unwrap().fence("it went on");
        assert_eq!(StateFolder::open(&dir).unwrap_err(), line);
        fs::remove_dir_all(&dir).unwrap();
    }
}
