//! Why a mount failed, in words for the user.

use std::io;
use std::path::PathBuf;

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// There is no such directory.
    #[error("mount point {} does not exist", path.display())]
    MountPointMissing {
        /// The mount point.
        path: PathBuf,
    },
    /// The mount point is a file.
    #[error("mount point {} is not a directory", path.display())]
    NotADirectory {
        /// The mount point.
        path: PathBuf,
    },
    /// The process that served what is mounted there has died.
    #[error("mount point {0} holds a dead mount; unmount it first (umount -l {0})", path.display())]
    Stale {
        /// The mount point.
        path: PathBuf,
    },
    /// The same type of file system is mounted there.
    #[error("{source_name} is already mounted on {}", path.display())]
    AlreadyMounted {
        /// The mount point.
        path: PathBuf,
        /// The source of what is mounted.
        source_name: String,
    },
    /// Nothing of ours is mounted there.
    #[error("nothing of Mortar is mounted on {}: mount it first", path.display())]
    NotMounted {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel has no FUSE.
    #[error("{} is missing; load the kernel module (modprobe fuse)", path.display())]
    DeviceMissing {
        /// The device.
        path: PathBuf,
    },
    /// The kernel refused this user.
    #[error("no permission to use or mount on {}; root or fusermount3 is needed", path.display())]
    NoPermission {
        /// The mount point or device.
        path: PathBuf,
    },
    /// Not root, and the helper is not installed.
    #[error("fusermount3 is not installed; without it only root can mount on {}", path.display())]
    HelperMissing {
        /// The mount point.
        path: PathBuf,
    },
    /// The helper refused.
    #[error("fusermount3 could not mount on {}: {message}", path.display())]
    HelperFailed {
        /// The mount point.
        path: PathBuf,
        /// What it wrote.
        message: String,
    },
    /// An option that cannot be passed on.
    #[error("mount option {option:?} is not usable: {reason}")]
    BadOption {
        /// The option.
        option: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Any other failure.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What failed.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
