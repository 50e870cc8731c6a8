//! The key that a client shows, and what TLS is to do with it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use trust::{ClientConfig, KeyFile, client_config, read_private};

use crate::sets::lock;

/// Where a client has its key from.
#[derive(Clone, Debug)]
pub enum Key {
    /// A key file. It is read again when it has changed, at the next connection.
    File(PathBuf),
    /// What a server of the pool has already.
    Settings(Arc<ClientConfig>),
}

/// When a file was last changed, and what was in it.
type Known = Option<(SystemTime, Arc<ClientConfig>)>;

/// A key, read when it is needed.
#[derive(Debug)]
pub(crate) struct KeyReader {
    key: Key,
    known: Mutex<Known>,
}

impl KeyReader {
    pub(crate) fn new(key: Key) -> KeyReader {
        KeyReader { key, known: Mutex::default() }
    }

    /// What to make a connection with.
    pub(crate) fn settings(&self) -> io::Result<Arc<ClientConfig>> {
        let path = match &self.key {
            Key::Settings(settings) => return Ok(Arc::clone(settings)),
            Key::File(path) => path,
        };
        let say = |e: &dyn std::fmt::Display| io::Error::other(format!("key file {}: {e}", path.display()));
        let changed = std::fs::metadata(path).and_then(|m| m.modified()).map_err(|e| say(&e))?;
        let mut known = lock(&self.known);
        if let Some((at, settings)) = known.as_ref()
            && *at == changed
        {
            return Ok(Arc::clone(settings));
        }
        let bytes = read_private(path).map_err(|e| say(&e))?;
        let file = KeyFile::decode(&bytes).map_err(|e| say(&e))?;
        let settings = client_config(&file).map_err(|e| say(&e))?;
        *known = Some((changed, Arc::clone(&settings)));
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::KeyId;
    use trust::{Authority, Holder, Identity, KeyName, PrivateKey, write_private};

    #[test]
    fn a_key_file_is_read_again_when_it_was_replaced() {
        let dir = std::env::temp_dir().join(format!("mortar-client-key-{}", std::process::id()));
        let _old = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("key");
        let reader = KeyReader::new(Key::File(path.clone()));
        let absent = reader.settings().unwrap_err().to_string();
        assert!(absent.contains("key file") && absent.contains("No such file"), "{absent}");
        let authority = Authority::new([1; 16], PrivateKey::generate().unwrap()).unwrap();
        let write = |number| {
            let holder = Holder::Client(KeyName::new("web").unwrap());
            let identity = Identity { pool: [1; 16], key: KeyId(number), holder };
            write_private(&path, &KeyFile::issue(&authority, &identity, None).unwrap().encode()).unwrap();
        };
        write(2);
        let first = reader.settings().unwrap();
        assert!(Arc::ptr_eq(&first, &reader.settings().unwrap()), "it is not read each time");
        write(3);
        // Both may have been written within one tick of the file system's clock.
        let later = SystemTime::now() + std::time::Duration::from_secs(1);
        std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
        assert!(!Arc::ptr_eq(&first, &reader.settings().unwrap()));
        std::fs::write(&path, "nonsense").unwrap();
        assert!(reader.settings().is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
