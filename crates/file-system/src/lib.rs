//! The calls that a brick makes to the file system which holds it, and the kernel's answers to them.
//!
//! Owns: the thin seam between a brick and its disk. A [`File`] is an open object; everything is reached from an open
//! directory, never by a path, except the brick's top directory, which [`FileSystem::open_dir`] opens.
//! There are two kinds of file systems behind the seam: the kernel's ([`Host`]) and the simulator's, which keeps everything
//! in memory and loses on demand what was not synced. The brick is the same code over both.
//!
//! What must always be true: the seam adds no meaning. A call does what its system call does and answers the kernel's error.

mod boot_id;
mod closing;
mod file;
mod handle;
mod host;
mod object;
mod read_memory;

pub use boot_id::{UNKNOWN_BOOT_ID, is_memory_lost};
pub use closing::{close_elsewhere, is_closing};
pub use file::File;
pub use handle::{HANDLE_MAX, Handle};
pub use host::{Host, init_process};
pub use object::{Object, Opening, Renaming, Space, Stat, Times};

use std::fmt::Debug;
use std::path::Path;
use wire::Errno;

/// Type bits of `st_mode`.
pub const S_IFMT: u32 = 0o170_000;
/// A regular file.
pub const S_IFREG: u32 = 0o100_000;
/// A directory.
pub const S_IFDIR: u32 = 0o040_000;
/// A symbolic link.
pub const S_IFLNK: u32 = 0o120_000;

/// Where bricks lie: finds their top directories by path.
pub trait FileSystem: Debug + Send + Sync {
    /// Opens a directory by its path.
    ///
    /// # Errors
    /// The kernel's.
    fn open_dir(&self, path: &Path) -> Result<File, Errno>;
}
