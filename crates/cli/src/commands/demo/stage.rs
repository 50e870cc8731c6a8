//! What the demo put up, and taking it down: on a normal end, an error, a signal and a panic alike.
//!
//! Invariant: nothing is ended but children of this process, nothing unmounted but the demo's own directory. When this
//! process is killed its children get SIGTERM from the kernel (`--die-with`) and unmount and stop by themselves.

use crate::limits::CHILD_END_WAIT;
use anyhow::{Context, bail};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
struct Inner {
    servers: Vec<Child>,
    mount: Option<(Child, PathBuf)>,
    /// Removed at the end.
    ours: Option<PathBuf>,
}

/// The stage; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    inner: Arc<Mutex<Inner>>,
}

impl Stage {
    /// An empty stage in `folder`; it is taken down when this process panics.
    pub(super) fn new(folder: &Path, ours: bool) -> Stage {
        let inner = Inner { ours: ours.then(|| folder.to_owned()), ..Inner::default() };
        let stage = Stage { inner: Arc::new(Mutex::new(inner)) };
        let (for_panic, before) = (stage.clone(), std::panic::take_hook());
        // Release builds abort at a panic: no destructor runs, this hook does.
        std::panic::set_hook(Box::new(move |info| {
            before(info);
            if for_panic.end().is_err() {
                crate::output::complain("demo: not everything could be taken down");
            }
        }));
        stage
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_server(&self, child: Child) {
        self.lock().servers.push(child);
    }

    pub(super) fn set_mount(&self, child: Child, dir: PathBuf) {
        self.lock().mount = Some((child, dir));
    }

    /// Takes everything down. Does nothing a second time.
    ///
    /// # Errors
    /// What could not be taken down, and is to be looked at by hand.
    pub(super) fn end(&self) -> anyhow::Result<()> {
        let mut inner = self.lock();
        let mut unmounted = Ok(());
        if let Some((child, dir)) = inner.mount.take() {
            stop(vec![child]);
            unmounted = unmount(&dir);
        }
        stop(std::mem::take(&mut inner.servers));
        unmounted?;
        if let Some(folder) = inner.ours.take() {
            std::fs::remove_dir_all(&folder).with_context(|| format!("remove {}", folder.display()))?;
        }
        Ok(())
    }
}

/// Ends children: in order first, then by force.
fn stop(mut children: Vec<Child>) {
    for child in &children {
        tell(child, Signal::TERM);
    }
    let until = Instant::now() + CHILD_END_WAIT;
    for child in &mut children {
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                tell(child, Signal::KILL);
                let _gone = child.wait();
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn tell(child: &Child, signal: Signal) {
    // Its number cannot belong to another process before we waited for it.
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, signal);
    }
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let wanted = dir.to_string_lossy().replace(' ', "\\040");
    mounts.lines().any(|l| l.split(' ').nth(1) == Some(wanted.as_str()))
}

fn unmount(dir: &Path) -> anyhow::Result<()> {
    if !is_mounted(dir) {
        return Ok(());
    }
    let unmounted = rustix::mount::unmount(dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    if is_mounted(dir) {
        bail!("unmount {}: {unmounted:?}: run umount -l {}", dir.display(), dir.display());
    }
    Ok(())
}
