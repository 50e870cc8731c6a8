//! What methods of a file system are given: one struct per request with more
//! than a few fields. Field names follow the system calls.

use std::ffi::OsStr;

use crate::abi::Fields;
use crate::types::{Lock, Timestamp};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSet {
    /// The current time.
    Now,
    /// This time.
    At(Timestamp),
}

/// The attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// The open file it came through (`ftruncate`, `fchmod` ...).
    pub fh: Option<u64>,
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncate or extend.
    pub size: Option<u64>,
    /// Last read.
    pub atime: Option<TimeSet>,
    /// Last change of data.
    pub mtime: Option<TimeSet>,
    /// Last change of attributes.
    pub ctime: Option<Timestamp>,
    /// Who holds locks.
    pub lock_owner: Option<u64>,
    /// Clear set-uid and set-gid (with `HANDLE_KILLPRIV_V2`).
    pub kill_suidgid: bool,
}

/// Making a file of any type but directory.
#[derive(Clone, Copy, Debug)]
pub struct MknodOp<'a> {
    /// Directory.
    pub parent: u64,
    /// New name.
    pub name: &'a OsStr,
    /// Type and permissions.
    pub mode: u32,
    /// The caller's umask, not yet applied if `DONT_MASK` was chosen.
    pub umask: u32,
    /// Device number of a special file.
    pub rdev: u32,
}

/// Making a directory.
#[derive(Clone, Copy, Debug)]
pub struct MkdirOp<'a> {
    /// Directory.
    pub parent: u64,
    /// New name.
    pub name: &'a OsStr,
    /// Permissions.
    pub mode: u32,
    /// The caller's umask, not yet applied if `DONT_MASK` was chosen.
    pub umask: u32,
}

/// Moving a name.
#[derive(Clone, Copy, Debug)]
pub struct RenameOp<'a> {
    /// Directory of the old name.
    pub parent: u64,
    /// Old name.
    pub name: &'a OsStr,
    /// Directory of the new name.
    pub new_parent: u64,
    /// New name.
    pub new_name: &'a OsStr,
    /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT`.
    pub flags: u32,
}

/// Giving a node another name.
#[derive(Clone, Copy, Debug)]
pub struct LinkOp<'a> {
    /// The node.
    pub node: u64,
    /// Directory of the new name.
    pub new_parent: u64,
    /// New name.
    pub new_name: &'a OsStr,
}

/// Opening a file or directory.
#[derive(Clone, Copy, Debug)]
pub struct OpenOp {
    /// `O_*` flags.
    pub flags: u32,
    /// Clear set-uid and set-gid on `O_TRUNC` (with `HANDLE_KILLPRIV_V2`).
    pub kill_suidgid: bool,
}

/// Making and opening a file (CREATE), or an unnamed one (TMPFILE).
#[derive(Clone, Copy, Debug)]
pub struct CreateOp<'a> {
    /// Directory.
    pub parent: u64,
    /// New name; for TMPFILE what the kernel calls it, of no meaning.
    pub name: &'a OsStr,
    /// Type and permissions.
    pub mode: u32,
    /// The caller's umask, not yet applied if `DONT_MASK` was chosen.
    pub umask: u32,
    /// `O_*` flags.
    pub flags: u32,
    /// Clear set-uid and set-gid on `O_TRUNC` (with `HANDLE_KILLPRIV_V2`).
    pub kill_suidgid: bool,
}

/// Reading a file.
#[derive(Clone, Copy, Debug)]
pub struct ReadOp {
    /// The node.
    pub node: u64,
    /// Its open handle.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; fewer means end of file.
    pub size: u32,
    /// `O_*` flags of the open file.
    pub flags: u32,
    /// Who holds locks.
    pub lock_owner: Option<u64>,
}

/// Writing a file.
#[derive(Clone, Copy, Debug)]
pub struct WriteOp<'a> {
    /// The node.
    pub node: u64,
    /// Its open handle.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// The bytes, borrowed from the reading thread's buffer.
    pub data: &'a [u8],
    /// `O_*` flags of the open file.
    pub flags: u32,
    /// Who holds locks.
    pub lock_owner: Option<u64>,
    /// Written back from the page cache: `fh` and caller are guesses.
    pub from_cache: bool,
    /// Clear set-uid and set-gid (with `HANDLE_KILLPRIV_V2`).
    pub kill_suidgid: bool,
}

/// The last close of an open file or directory.
#[derive(Clone, Copy, Debug)]
pub struct ReleaseOp {
    /// The open handle.
    pub fh: u64,
    /// `O_*` flags of the open file.
    pub flags: u32,
    /// Flush as well.
    pub flush: bool,
    /// Drop the `flock` locks of `lock_owner`.
    pub flock_unlock: bool,
    /// Who holds locks.
    pub lock_owner: u64,
}

/// One close of a descriptor; `fcntl` locks of the owner are to be dropped.
#[derive(Clone, Copy, Debug)]
pub struct FlushOp {
    /// The open handle.
    pub fh: u64,
    /// Who holds locks.
    pub lock_owner: u64,
}

/// Setting an extended attribute.
#[derive(Clone, Copy, Debug)]
pub struct SetxattrOp<'a> {
    /// Its name.
    pub name: &'a OsStr,
    /// Its value.
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE`.
    pub flags: u32,
    /// Clear set-gid as the ACL's setter is not in the group (`SETXATTR_EXT`).
    pub kill_sgid: bool,
}

/// Listing a directory.
#[derive(Clone, Copy, Debug)]
pub struct ReaddirOp {
    /// The open handle.
    pub fh: u64,
    /// Where to go on: 0, or the `offset` pushed with the last entry seen.
    pub offset: u64,
}

/// Testing, setting or dropping a lock.
#[derive(Clone, Copy, Debug)]
pub struct LockOp {
    /// The open handle.
    pub fh: u64,
    /// Who holds it.
    pub owner: u64,
    /// The range and kind.
    pub lock: Lock,
    /// A `flock` lock, not one of `fcntl`: apart from those, whole file.
    pub flock: bool,
}

/// Reserving or punching space.
#[derive(Clone, Copy, Debug)]
pub struct FallocateOp {
    /// The open handle.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// `FALLOC_FL_*`.
    pub mode: u32,
}

/// Copying between two open files.
#[derive(Clone, Copy, Debug)]
pub struct CopyOp {
    /// Source node.
    pub node_in: u64,
    /// Its open handle.
    pub fh_in: u64,
    /// First byte of the source.
    pub offset_in: u64,
    /// Target node.
    pub node_out: u64,
    /// Its open handle.
    pub fh_out: u64,
    /// First byte of the target.
    pub offset_out: u64,
    /// Number of bytes.
    pub len: u64,
    /// None is defined yet.
    pub flags: u64,
}

/// An ioctl.
#[derive(Clone, Copy, Debug)]
pub struct IoctlOp<'a> {
    /// The open handle.
    pub fh: u64,
    /// `FUSE_IOCTL_*`.
    pub flags: u32,
    /// The command.
    pub cmd: u32,
    /// The caller's argument.
    pub arg: u64,
    /// What was copied from the caller's memory.
    pub data: &'a [u8],
    /// The most that may be copied back.
    pub out_size: u32,
}

/// Asking whether I/O would block.
#[derive(Clone, Copy, Debug)]
pub struct PollOp {
    /// The open handle.
    pub fh: u64,
    /// The kernel's handle for a wake-up.
    pub kh: u64,
    /// `FUSE_POLL_*`.
    pub flags: u32,
    /// `POLL*` bits asked for.
    pub events: u32,
}

/// Attributes in the manner of `statx`.
#[derive(Clone, Copy, Debug)]
pub struct StatxOp {
    /// The open handle, if it came through one.
    pub fh: Option<u64>,
    /// `AT_STATX_*`.
    pub flags: u32,
    /// `STATX_*` fields asked for.
    pub mask: u32,
}

/// References to a node that the kernel gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget {
    /// The node.
    pub node: u64,
    /// How many references.
    pub count: u64,
}

/// Many [`Forget`]s of one request.
#[derive(Clone)]
pub struct ForgetList<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) left: u32,
}

impl Iterator for ForgetList<'_> {
    type Item = Forget;

    fn next(&mut self) -> Option<Forget> {
        self.left = self.left.checked_sub(1)?;
        let node = self.fields.u64().ok()?;
        let count = self.fields.u64().ok()?;
        Some(Forget { node, count })
    }
}

/// Finding data or a hole.
#[derive(Clone, Copy, Debug)]
pub struct LseekOp {
    /// The open handle.
    pub fh: u64,
    /// Where to start.
    pub offset: u64,
    /// `SEEK_DATA` or `SEEK_HOLE`.
    pub whence: u32,
}
