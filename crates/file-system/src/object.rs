//! What can be asked of an open object, whatever file system it lies on.

use crate::{File, Handle};
use ids::Time;
use std::any::Any;
use std::fmt::Debug;
use wire::Errno;

/// Attributes as the file system has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead to it.
    pub nlink: u32,
    /// Device number of a device file.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// Inode number.
    pub ino: u64,
    /// The device that its file system lies on.
    pub dev: u64,
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
    /// Last change of anything, by the file system's own clock: nobody can set it.
    pub ctime: Time,
}

/// Last access and last modification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Last access.
    pub atime: Time,
    /// Last modification.
    pub mtime: Time,
}

/// How a file of the brick's own bookkeeping is opened, for reading and writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// It must not exist: it is created with these permission bits.
    New(u32),
    /// It is created, with these permission bits, if it does not exist.
    AtHand(u32),
    /// Like `AtHand`, and whatever it held is dropped.
    Emptied(u32),
}

/// What a rename does with an object that has the new name already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renaming {
    /// It is replaced.
    Replace,
    /// The call is refused with `EEXIST`.
    NoReplace,
    /// The two change places.
    Exchange,
}

/// Room of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Space {
    /// Bytes.
    pub total: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes that are free and not reserved for root.
    pub available: u64,
    /// Inodes.
    pub files: u64,
    /// Inodes that are free.
    pub files_free: u64,
    /// Bytes of a block.
    pub block: u64,
    /// The file system keeps all extended attributes of an object in one block (ext4).
    pub attributes_in_one_block: bool,
}

/// An open object of a file system that is not the kernel's. [`File`] has the same calls for both and explains them.
#[expect(missing_docs, reason = "each call is explained at `File`, which passes it on")]
pub trait Object: Any + Debug + Send + Sync {
    fn open_at(&self, name: &[u8], kind: u32) -> Result<File, Errno>;
    fn open_own(&self, name: &[u8], how: Opening) -> Result<File, Errno>;
    fn make_dir(&self, name: &[u8], mode: u32) -> Result<(), Errno>;
    fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<(), Errno>;
    fn make_node(&self, name: &[u8], mode: u32, rdev: u32) -> Result<(), Errno>;
    fn link(&self, dir: &File, name: &[u8]) -> Result<(), Errno>;
    fn unlink(&self, name: &[u8]) -> Result<(), Errno>;
    fn remove_dir(&self, name: &[u8]) -> Result<(), Errno>;
    fn rename(&self, name: &[u8], to: &File, to_name: &[u8], how: Renaming) -> Result<(), Errno>;
    fn list(&self, each: &mut dyn FnMut(&[u8], u32, u64) -> bool) -> Result<(), Errno>;
    fn stat(&self) -> Result<Stat, Errno>;
    fn stat_at(&self, name: &[u8]) -> Result<Stat, Errno>;
    fn xattr(&self, name: &[u8], value: &mut [u8]) -> Result<Option<usize>, Errno>;
    fn xattr_at(&self, entry: &[u8], name: &[u8], value: &mut [u8]) -> Result<Option<usize>, Errno>;
    fn xattrs(&self) -> Result<Vec<Vec<u8>>, Errno>;
    fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno>;
    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno>;
    fn set_times(&self, times: Times) -> Result<(), Errno>;
    fn set_times_at(&self, name: &[u8], times: Times) -> Result<(), Errno>;
    fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno>;
    fn chmod(&self, mode: u32) -> Result<(), Errno>;
    fn read_link(&self) -> Result<Vec<u8>, Errno>;
    fn read(&self, offset: u64, len: usize, nowait: bool) -> Result<Vec<u8>, Errno>;
    fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Errno>;
    fn truncate(&self, size: u64) -> Result<(), Errno>;
    fn check_size(&self, size: u64) -> Result<(), Errno>;
    fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<(), Errno>;
    fn copy_range(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Result<u64, Errno>;
    fn next_data(&self, offset: u64) -> Result<Option<u64>, Errno>;
    fn next_hole(&self, offset: u64) -> Result<Option<u64>, Errno>;
    fn sync(&self) -> Result<(), Errno>;
    fn sync_data(&self) -> Result<(), Errno>;
    fn sync_all(&self) -> Result<(), Errno>;
    fn start_writing(&self);
    fn handle(&self) -> Result<Handle, Errno>;
    fn handle_at(&self, name: &[u8]) -> Result<Handle, Errno>;
    fn open_handle(&self, handle: &Handle, kind: u32) -> Result<File, Errno>;
    fn name_hint(&self) -> Option<Vec<u8>>;
    fn path_hint(&self) -> Option<Vec<u8>>;
    fn space(&self) -> Result<Space, Errno>;
    fn boot_id(&self) -> [u8; 16];
    fn leave_witness(&self);
    fn has_witness(&self) -> bool;
    fn now(&self) -> Time;
    fn lock(&self) -> Result<bool, Errno>;
    fn unlock(&self);
}
