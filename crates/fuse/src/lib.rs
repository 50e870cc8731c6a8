//! The kernel side of a mount: the FUSE protocol over `/dev/fuse`.
//!
//! Owns parsing of requests, encoding of replies, mounting and unmounting,
//! and the threads that serve requests. A [`Filesystem`] is a set of
//! synchronous methods; each request stays on one thread from the device to
//! its reply. One thread (the leader) reads `/dev/fuse`; a method that waits
//! for the network does so through [`wait`], which hands the device to another
//! thread only when a request arrives meanwhile.
//!
//! Always true: at most one thread waits for the device; bytes from the kernel
//! never make us panic. Deliberately absent: caching, paths, permissions,
//! io_uring, passthrough, splice. There is no unsafe code.

mod abi;
mod buffer;
mod data;
mod dispatch;
mod errno;
mod filesystem;
mod flags;
mod init;
mod mount;
mod notify;
mod ops;
mod pool;
mod reply;
mod request;
mod session;
mod types;
pub mod wait;
mod worker;

pub use data::{Data, DirPlusSink, DirSink};
pub use errno::Errno;
pub use filesystem::{Filesystem, Request};
pub use flags::{Capabilities, OpenFlags};
pub use init::{InitConfig, Kernel};
pub use mount::{Mount, MountError, MountFlags, MountOptions, Stopper, Unmount};
pub use notify::Notifier;
pub use ops::{
    CopyOp, CreateOp, FallocateOp, FlushOp, Forget, ForgetList, IoctlOp, LinkOp, LockOp, LseekOp, MkdirOp,
    MknodOp, OpenOp, PollOp, ReadOp, ReaddirOp, ReleaseOp, RenameOp, SetAttr, SetxattrOp, StatxOp, TimeSet,
    WriteOp,
};
pub use request::is_request;
pub use session::{Session, SessionConfig};
pub use types::{
    Attr, AttrReply, Entry, FileType, IoctlReply, Lock, LockKind, Opened, StatFs, Statx, Timestamp,
};

/// The node id of the root directory.
pub const ROOT: u64 = 1;
