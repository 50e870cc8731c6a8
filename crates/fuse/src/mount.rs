//! Mounting and unmounting.
//!
//! Root mounts directly; others, and root without the privilege, through
//! `fusermount3`. A [`Mount`] that is dropped leaves nothing mounted, and
//! nothing but our own mount is ever unmounted.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno as Os;
use rustix::mount::UnmountFlags;

mod error;
mod helper;
mod options;
mod table;

pub use error::MountError;
pub use options::{MountFlags, MountOptions};

/// How to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmount {
    /// Only if nothing uses it (`EBUSY` otherwise).
    Clean,
    /// Takes it out of the tree at once; open files are served until closed.
    Lazy,
    /// Gives up all requests, also those under way, then as `Lazy`.
    Force,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Via {
    Kernel,
    Helper,
}

#[derive(Debug)]
struct Mounted {
    path: PathBuf,
    /// Tells our mount from another one in the same place.
    id: Option<String>,
    via: Via,
    device: Arc<OwnedFd>,
}

/// A mounted file system, unmounted (lazily) when dropped.
#[derive(Debug)]
pub struct Mount {
    inner: Arc<Mounted>,
}

/// Unmounts from any thread; clones share the mount.
#[derive(Clone, Debug)]
pub struct Stopper {
    inner: Arc<Mounted>,
}

impl Mount {
    /// Mounts at a directory. Everything there waits until
    /// [`Session::run`](crate::Session::run) serves it.
    pub fn new(path: &Path, options: &MountOptions) -> Result<Mount, MountError> {
        options.check()?;
        let (path, mode) = mount_point(path)?;
        let fs_type = options.fs_type();
        if let Some(top) = table::top(&path).filter(|top| top.fs_type == fs_type) {
            return Err(MountError::AlreadyMounted { path, source_name: top.source });
        }
        let (device, via) = if rustix::process::geteuid().is_root() {
            match mount_directly(&path, mode, options) {
                Err(MountError::NoPermission { .. }) if helper::exists() => {
                    (helper::mount(&path, options)?, Via::Helper)
                }
                result => (result?, Via::Kernel),
            }
        } else {
            (helper::mount(&path, options)?, Via::Helper)
        };
        Ok(Mount::made(path, device, via))
    }

    /// What is mounted at a directory by a program of that subtype: its source.
    pub fn source_at(path: &Path, subtype: &str) -> Option<String> {
        listed_at(path, subtype).map(|top| top.source)
    }

    /// Gives what is mounted at a directory other flags: all that are not set are off afterwards, but where the kernel leaves
    /// permissions to the program that serves it, nobody becomes another user there. That program goes on.
    pub fn change_flags(path: &Path, subtype: &str, mut flags: MountFlags) -> Result<(), MountError> {
        let (path, _) = mount_point(path)?;
        let Some(listed) = listed_at(&path, subtype) else {
            return Err(MountError::NotMounted { path });
        };
        flags.nosuid |= !listed.options.split(',').any(|option| option == "default_permissions");
        rustix::mount::mount_remount(&path, flags.kernel(), c"").map_err(|e| match e {
            Os::PERM | Os::ACCESS => MountError::NoPermission { path },
            e => MountError::Io { action: "change the flags of", path, source: e.into() },
        })
    }

    fn made(path: PathBuf, device: OwnedFd, via: Via) -> Mount {
        let id = table::top(&path).map(|top| top.device);
        let inner = Mounted { path, id, via, device: Arc::new(device) };
        Mount { inner: Arc::new(inner) }
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Unmounts from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper { inner: Arc::clone(&self.inner) }
    }

    pub(crate) fn device(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.inner.device)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.inner.unmount(Unmount::Lazy) {
            tracing::error!(path = %self.inner.path.display(), %error, "unmount");
        }
    }
}

impl Stopper {
    /// Unmounts; success if it is not mounted any more. `Session::run` returns
    /// afterwards, with `Lazy` when the last file is closed.
    pub fn unmount(&self, how: Unmount) -> io::Result<()> {
        self.inner.unmount(how)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }
}

impl Mounted {
    fn unmount(&self, how: Unmount) -> io::Result<()> {
        if !self.is_ours() {
            return Ok(());
        }
        if self.via == Via::Helper {
            return helper::unmount(&self.path, how != Unmount::Clean);
        }
        let flags = match how {
            Unmount::Clean => UnmountFlags::empty(),
            Unmount::Lazy => UnmountFlags::DETACH,
            Unmount::Force => {
                // This gives up the requests; that it then finds the mount busy is no matter.
                rustix::mount::unmount(&self.path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW).ok();
                if !self.is_listed() {
                    return Ok(());
                }
                UnmountFlags::DETACH
            }
        };
        match rustix::mount::unmount(&self.path, flags | UnmountFlags::NOFOLLOW) {
            // Somebody was faster.
            Err(Os::INVAL) if !self.is_listed() => Ok(()),
            result => Ok(result?),
        }
    }

    /// Whether our mount is there, alive or dead.
    fn is_ours(&self) -> bool {
        match self.id {
            Some(_) => self.is_listed(),
            None => self.is_connected(),
        }
    }

    fn is_listed(&self) -> bool {
        table::top(&self.path).is_some_and(|top| self.id.as_ref().is_none_or(|id| *id == top.device))
    }

    fn is_connected(&self) -> bool {
        let mut device = [PollFd::new(&*self.device, PollFlags::empty())];
        let polled =
            rustix::event::poll(&mut device, Some(&rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 }));
        let [device] = device;
        polled.is_ok() && !device.revents().contains(PollFlags::ERR)
    }
}

/// The path without symbolic links, and the directory's mode.
/// What is mounted at a directory by a program of that subtype.
fn listed_at(path: &Path, subtype: &str) -> Option<table::Listed> {
    let fs_type = format!("fuse.{subtype}");
    let at = |path: &Path| table::top(path).filter(|top| top.fs_type == fs_type);
    // By its name first: a mount that does not answer is not waited for.
    at(&std::path::absolute(path).ok()?).or_else(|| at(&path.canonicalize().ok()?))
}

fn mount_point(path: &Path) -> Result<(PathBuf, u32), MountError> {
    let looked = path.canonicalize().and_then(|path| path.metadata().map(|meta| (path, meta)));
    let named = || path.to_path_buf();
    let (path, meta) = looked.map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT) => MountError::MountPointMissing { path: named() },
        Some(libc::ENOTDIR) => MountError::NotADirectory { path: named() },
        Some(libc::ENOTCONN | libc::ECONNABORTED) => MountError::Stale { path: named() },
        Some(libc::EACCES) => MountError::NoPermission { path: named() },
        _ => MountError::Io { action: "look at mount point", path: named(), source },
    })?;
    if meta.is_dir() { Ok((path, meta.mode())) } else { Err(MountError::NotADirectory { path }) }
}

const DEVICE: &str = "/dev/fuse";

fn open_device() -> Result<OwnedFd, MountError> {
    let opened = File::options().read(true).write(true).open(DEVICE);
    opened.map(OwnedFd::from).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => MountError::DeviceMissing { path: DEVICE.into() },
        Some(libc::EACCES | libc::EPERM) => MountError::NoPermission { path: DEVICE.into() },
        _ => MountError::Io { action: "open", path: DEVICE.into(), source },
    })
}

fn mount_directly(path: &Path, mode: u32, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = open_device()?;
    let data = options.kernel_data(device.as_fd(), mode);
    match rustix::mount::mount(&*options.source, path, &*options.fs_type(), options.flags.kernel(), &*data) {
        Ok(()) => Ok(device),
        Err(Os::PERM | Os::ACCESS) => Err(MountError::NoPermission { path: path.into() }),
        Err(Os::NODEV) => Err(MountError::DeviceMissing { path: DEVICE.into() }),
        Err(error) => Err(MountError::Io { action: "mount on", path: path.into(), source: error.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The helper's way, also where only root may open the device.
    #[test]
    fn the_helper_hands_over_a_device_and_unmounts() {
        if open_device().is_err() || !helper::exists() {
            println!("skipped: /dev/fuse and fusermount3 are needed");
            return;
        }
        let path = std::env::temp_dir().join(format!("fuse-helper-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let options = MountOptions { allow_other: false, ..MountOptions::new("h,ost:/a b", "mortartest") };
        let mount = Mount::made(path.clone(), helper::mount(&path, &options).unwrap(), Via::Helper);
        assert!(mount.inner.is_connected());
        assert_eq!(table::top(&path).unwrap().source, "h,ost:/a b");
        drop(mount);
        assert_eq!(table::top(&path), None);
        std::fs::remove_dir(&path).unwrap();
        let missing = helper::mount(&path, &options).unwrap_err();
        assert!(matches!(missing, MountError::HelperFailed { .. }), "{missing}");
    }
}
