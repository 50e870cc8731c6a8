//! What methods of a file system return: attributes, entries, open files.

use std::time::Duration;

use crate::flags::OpenFlags;

/// A point in time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Whole seconds, negative before 1970.
    pub secs: i64,
    /// Nanoseconds, below 1_000_000_000.
    pub nanos: u32,
}

/// A file's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Inode number as `stat` shows it.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// File type and permissions, as `st_mode`.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a special file, in the kernel's 32-bit encoding.
    pub rdev: u32,
    /// Preferred size of I/O; 0 means the kernel's default.
    pub blksize: u32,
}

/// Attributes with the time the kernel may keep them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long they may be cached.
    pub timeout: Duration,
}

/// The answer to a lookup or a creation: one reference to a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The node's id; 0 says "no such name", to be cached for `entry_timeout`.
    pub node: u64,
    /// Distinguishes uses of one id over the life of the file system.
    pub generation: u64,
    /// The node's attributes.
    pub attr: Attr,
    /// How long the name may be cached.
    pub entry_timeout: Duration,
    /// How long the attributes may be cached.
    pub attr_timeout: Duration,
}

impl Entry {
    /// "No such name", which the kernel remembers for `timeout`.
    pub fn negative(timeout: Duration) -> Entry {
        Entry { entry_timeout: timeout, ..Entry::default() }
    }
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The file system's own handle, given back with every request on it.
    pub fh: u64,
    /// How the kernel treats it.
    pub flags: OpenFlags,
}

/// Numbers about the whole file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Size, in units of `frsize`.
    pub blocks: u64,
    /// Free space, in units of `frsize`.
    pub bfree: u64,
    /// Free space for ordinary users, in units of `frsize`.
    pub bavail: u64,
    /// Number of inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Preferred size of I/O.
    pub bsize: u32,
    /// Longest name.
    pub namelen: u32,
    /// The unit of the sizes above.
    pub frsize: u32,
}

/// What a lock does to a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// Released, or "nothing in the way".
    Unlock,
}

impl LockKind {
    pub(crate) fn from_raw(raw: u32) -> Option<LockKind> {
        let all = [LockKind::Read, LockKind::Write, LockKind::Unlock];
        all.into_iter().find(|kind| kind.raw() == raw)
    }

    /// The number the kernel uses (the same on every architecture we run on).
    pub(crate) fn raw(self) -> u32 {
        match self {
            LockKind::Read => 0,
            LockKind::Write => 1,
            LockKind::Unlock => 2,
        }
    }
}

/// A lock on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `i64::MAX as u64` reaches to the end.
    pub end: u64,
    /// Shared, exclusive or none.
    pub kind: LockKind,
    /// The holder's process id.
    pub pid: u32,
}

/// The answer to STATX.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statx {
    /// The basic attributes.
    pub attr: Attr,
    /// How long they may be cached.
    pub timeout: Duration,
    /// When the file was made, if known.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_*` bits set.
    pub attributes: u64,
    /// `STATX_ATTR_*` bits known.
    pub attributes_mask: u64,
}

/// The answer to an ioctl.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IoctlReply {
    /// What `ioctl` returns.
    pub result: i32,
    /// What is copied to the caller's memory.
    pub data: Vec<u8>,
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileType {
    /// Not known without a look at the inode.
    Unknown,
    /// Pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl FileType {
    /// The type in the upper bits of `st_mode`.
    pub fn from_mode(mode: u32) -> FileType {
        match mode & libc::S_IFMT {
            libc::S_IFIFO => FileType::Fifo,
            libc::S_IFCHR => FileType::CharDevice,
            libc::S_IFDIR => FileType::Directory,
            libc::S_IFBLK => FileType::BlockDevice,
            libc::S_IFREG => FileType::Regular,
            libc::S_IFLNK => FileType::Symlink,
            libc::S_IFSOCK => FileType::Socket,
            _ => FileType::Unknown,
        }
    }

    pub(crate) fn dirent(self) -> u32 {
        u32::from(match self {
            FileType::Unknown => libc::DT_UNKNOWN,
            FileType::Fifo => libc::DT_FIFO,
            FileType::CharDevice => libc::DT_CHR,
            FileType::Directory => libc::DT_DIR,
            FileType::BlockDevice => libc::DT_BLK,
            FileType::Regular => libc::DT_REG,
            FileType::Symlink => libc::DT_LNK,
            FileType::Socket => libc::DT_SOCK,
        })
    }
}
