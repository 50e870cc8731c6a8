//! A mount being served: from the first request to the last thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::Handler;
use crate::filesystem::Filesystem;
use crate::mount::{Mount, Stopper};
use crate::notify::Notifier;
use crate::pool::Pool;

/// How many threads serve.
#[derive(Clone, Copy, Debug)]
pub struct SessionConfig {
    /// The most there may be.
    pub max_threads: usize,
    /// So many idle ones stay for good.
    pub keep_idle: usize,
    /// Others end after idling so long.
    pub idle_after: Duration,
}

impl Default for SessionConfig {
    fn default() -> SessionConfig {
        SessionConfig { max_threads: 64, keep_idle: 4, idle_after: Duration::from_secs(10) }
    }
}

/// A file system and its mount.
pub struct Session {
    pool: Arc<Pool>,
    mount: Mount,
}

impl Session {
    /// Nothing is served before [`run`](Session::run): until then every access
    /// to the mount point waits.
    pub fn new(fs: Arc<dyn Filesystem>, mount: Mount, config: SessionConfig) -> Session {
        let pool = Pool::new(mount.device(), Handler::new(fs), config);
        Session { pool, mount }
    }

    /// Sends notifications to the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(self.mount.device())
    }

    /// Unmounts from another thread.
    pub fn stopper(&self) -> Stopper {
        self.mount.stopper()
    }

    /// Serves until the file system is unmounted, by whomever, and the last
    /// thread has ended. Calls `destroy` last. An error means that the kernel
    /// refused us or `init` failed; the mount is gone then as well.
    pub fn run(self) -> io::Result<()> {
        let result = self.pool.run();
        drop(self.mount);
        self.pool.destroy();
        result
    }
}
