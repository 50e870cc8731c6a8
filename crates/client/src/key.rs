//! The key that a client shows, and what TLS is to do with it.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use trust::{ClientConfig, Holder, KeyFile, client_config, read_private};

use crate::sets::lock;

/// Between two times that another key is asked for.
const AGAIN: Duration = Duration::from_secs(1);

/// Where a client has its key from.
#[derive(Clone, Debug)]
pub enum Key {
    /// A key file. It is read again when it has changed, at the next connection.
    File(PathBuf),
    /// What a server of the pool has already.
    Settings(Arc<ClientConfig>),
    /// One that somebody gave, who is asked for another one when servers refuse it.
    Given(GivenKey),
}

/// How another key for a pool is asked for; `None`: nobody gives one now.
type AskKey = dyn Fn([u8; 16]) -> Option<Arc<ClientConfig>> + Send + Sync;

/// A key that somebody gave, and how to get another one.
#[derive(Clone)]
pub struct GivenKey {
    first: Arc<ClientConfig>,
    ask: Arc<AskKey>,
}

impl GivenKey {
    /// A key, and what gives another one for the pool of that number. It is called by a thread that may wait for a while.
    pub fn new(
        first: Arc<ClientConfig>,
        ask: impl Fn([u8; 16]) -> Option<Arc<ClientConfig>> + Send + Sync + 'static,
    ) -> GivenKey {
        GivenKey { first, ask: Arc::new(ask) }
    }
}

impl std::fmt::Debug for GivenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GivenKey(..)")
    }
}

/// When a file was last changed, and what was in it.
type Known = Option<(SystemTime, Arc<ClientConfig>)>;

/// A key, read when it is needed.
#[derive(Debug)]
pub(crate) struct KeyReader {
    key: Key,
    known: Mutex<Known>,
    /// The key that was given last, if not the first one, and when it was asked for.
    given: Mutex<(Option<Arc<ClientConfig>>, Option<Instant>)>,
}

impl KeyReader {
    pub(crate) fn new(key: Key) -> KeyReader {
        KeyReader { key, known: Mutex::default(), given: Mutex::default() }
    }

    /// A server of that pool refused the key: another one is asked for, but not again and again.
    pub(crate) fn refused(&self, pool: [u8; 16]) {
        let Key::Given(GivenKey { ask, .. }) = &self.key else { return };
        {
            let mut given = lock(&self.given);
            if given.1.is_some_and(|at| at.elapsed() < AGAIN) {
                return;
            }
            given.1 = Some(Instant::now());
        }
        // Connections that are made meanwhile show the key of before.
        if let Some(another) = ask(pool) {
            tracing::info!("the key is refused: another one was given");
            lock(&self.given).0 = Some(another);
        }
    }

    /// What to make a connection with.
    pub(crate) fn settings(&self) -> io::Result<Arc<ClientConfig>> {
        let path = match &self.key {
            Key::Settings(settings) => return Ok(Arc::clone(settings)),
            Key::Given(GivenKey { first, .. }) => {
                return Ok(Arc::clone(lock(&self.given).0.as_ref().unwrap_or(first)));
            }
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
        if let Holder::Admin(name) = &file.identity().holder {
            return Err(say(&format!(
                "it is the administrator {name}'s, for commands: mounts need a client's (mortar client add)"
            )));
        }
        let settings = client_config(&file).map_err(|e| say(&e))?;
        *known = Some((changed, Arc::clone(&settings)));
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::KeyId;
    use std::sync::atomic::{AtomicU32, Ordering};
    use trust::{Authority, Identity, KeyName, PrivateKey, write_private};

    fn key(authority: &Authority, number: u64) -> KeyFile {
        key_of(authority, number, Holder::Client(KeyName::new("web").unwrap()))
    }

    fn key_of(authority: &Authority, number: u64, holder: Holder) -> KeyFile {
        let identity = Identity { pool: [1; 16], key: KeyId(number), holder };
        KeyFile::issue(authority, &identity, None).unwrap()
    }

    #[test]
    fn a_key_that_was_given_and_refused_is_asked_for_again_but_not_at_once() {
        let authority = Authority::new([1; 16], PrivateKey::generate().unwrap()).unwrap();
        let settings = |number| client_config(&key(&authority, number)).unwrap();
        let (first, second, asked) = (settings(2), settings(3), Arc::new(AtomicU32::new(0)));
        let (other, count) = (Arc::clone(&second), Arc::clone(&asked));
        let ask = move |pool| {
            assert_eq!(pool, [7; 16]);
            // Nobody has one at first.
            (count.fetch_add(1, Ordering::Relaxed) > 0).then(|| Arc::clone(&other))
        };
        let reader = KeyReader::new(Key::Given(GivenKey::new(Arc::clone(&first), ask)));
        let shows = |key: &Arc<ClientConfig>| Arc::ptr_eq(&reader.settings().unwrap(), key);
        assert!(shows(&first));
        reader.refused([7; 16]);
        assert!(shows(&first) && asked.load(Ordering::Relaxed) == 1);
        reader.refused([7; 16]);
        assert_eq!(asked.load(Ordering::Relaxed), 1, "not at once");
        lock(&reader.given).1 = None;
        reader.refused([7; 16]);
        assert!(shows(&second) && asked.load(Ordering::Relaxed) == 2);
    }

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
            write_private(&path, &key(&authority, number).encode()).unwrap();
        };
        write(2);
        let first = reader.settings().unwrap();
        assert!(Arc::ptr_eq(&first, &reader.settings().unwrap()), "it is not read each time");
        write(3);
        // Both may have been written within one tick of the file system's clock.
        let later = SystemTime::now() + std::time::Duration::from_secs(1);
        std::fs::File::open(&path).unwrap().set_modified(later).unwrap();
        assert!(!Arc::ptr_eq(&first, &reader.settings().unwrap()));
        let admin = key_of(&authority, 4, Holder::Admin(KeyName::new("ann").unwrap()));
        write_private(&path, &admin.encode()).unwrap();
        std::fs::File::open(&path).unwrap().set_modified(later + std::time::Duration::from_secs(1)).unwrap();
        let refused = reader.settings().unwrap_err().to_string();
        assert!(refused.contains("the administrator ann's"), "{refused}");
        std::fs::write(&path, "nonsense").unwrap();
        assert!(reader.settings().is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
