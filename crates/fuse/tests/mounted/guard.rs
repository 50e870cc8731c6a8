//! A mount for one test, gone at its end however it ends.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use fuse::{Mount, MountOptions, Notifier, Session, SessionConfig, Stopper, Unmount};

use crate::memfs::MemFs;

pub(crate) struct Mounted {
    pub(crate) fs: Arc<MemFs>,
    pub(crate) path: PathBuf,
    pub(crate) notifier: Notifier,
    pub(crate) stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

pub(crate) fn temp_dir() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("fuse-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
    let path = std::env::temp_dir().join(name);
    std::fs::create_dir(&path).unwrap();
    path.canonicalize().unwrap()
}

pub(crate) fn is_mounted(path: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == path.to_str())
}

/// None, with a message, where FUSE cannot be used at all.
pub(crate) fn mount_with(ttl: Duration, config: SessionConfig) -> Option<Mounted> {
    mount_as(&MountOptions::new("127.0.0.1:/vol", "mortartest"), ttl, config)
}

pub(crate) fn mount_as(options: &MountOptions, ttl: Duration, config: SessionConfig) -> Option<Mounted> {
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/fuse") {
        println!("skipped: /dev/fuse: {error}");
        return None;
    }
    let path = temp_dir();
    let fs = Arc::new(MemFs::new(ttl));
    let mount = Mount::new(&path, options).unwrap();
    let session = Session::new(fs.clone(), mount, config);
    let (notifier, stopper) = (session.notifier(), session.stopper());
    let thread = Some(std::thread::spawn(move || session.run()));
    Some(Mounted { fs, path, notifier, stopper, thread })
}

pub(crate) fn mount() -> Option<Mounted> {
    mount_with(Duration::ZERO, SessionConfig::default())
}

impl Mounted {
    /// Waits for `Session::run` to return.
    pub(crate) fn join(&mut self) -> io::Result<()> {
        self.thread.take().unwrap().join().unwrap()
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // Without that the session goes on for ever.
            if self.stopper.unmount(Unmount::Force).is_ok() {
                thread.join().ok();
            }
        }
        std::fs::remove_dir(&self.path).ok();
    }
}
