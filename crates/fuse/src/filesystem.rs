//! The trait a file system implements: one synchronous method per request.
//!
//! A method's error is the caller's errno. `ENOSYS` is passed on: for OPEN,
//! OPENDIR, FLUSH, FSYNC, ACCESS, xattrs, locks, STATX and the like the kernel
//! then stops asking and uses its own fall-back.

use std::ffi::OsStr;
use std::time::Duration;

use crate::data::{Data, DirPlusSink, DirSink};
use crate::errno::Errno;
use crate::init::{InitConfig, Kernel};
use crate::ops::{
    CopyOp, CreateOp, FallocateOp, FlushOp, ForgetList, IoctlOp, LinkOp, LockOp, LseekOp, MkdirOp, MknodOp,
    OpenOp, PollOp, ReadOp, ReaddirOp, ReleaseOp, RenameOp, SetAttr, SetxattrOp, StatxOp, WriteOp,
};
use crate::types::{AttrReply, Entry, IoctlReply, Lock, Opened, StatFs, Statx};
use crate::worker::Worker;

/// Who asks, and whether they still want the answer.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The kernel's number of this request.
    pub unique: u64,
    /// User id of the caller.
    pub uid: u32,
    /// Group id of the caller.
    pub gid: u32,
    /// Process id of the caller; 0 if there is none or it is in another namespace.
    pub pid: u32,
    pub(crate) worker: &'a Worker,
}

impl Request<'_> {
    /// Whether the caller got a signal (or the mount is gone): it would
    /// rather have `EINTR` now than wait on. Ignoring it is allowed.
    pub fn interrupted(&self) -> bool {
        self.worker.is_interrupted(self.unique)
    }
}

type Reply<T> = Result<T, Errno>;

/// A file system. Methods are called from several threads at once; waiting
/// inside a method goes through [`crate::wait`].
#[allow(
    unused_variables,
    reason = "default methods take their arguments only to name them in the documentation"
)]
pub trait Filesystem: Send + Sync + 'static {
    /// The first call: chooses from what the kernel offers. Must not wait for
    /// a request of its own mount.
    fn init(&self, kernel: &Kernel, config: &mut InitConfig) -> Reply<()> {
        Ok(())
    }

    /// The last call, once, after every worker thread has ended.
    fn destroy(&self) {}

    /// For so long, until now, all threads allowed were at requests: others may have waited in the kernel, at most as long, and
    /// no method knows of that.
    fn was_crowded(&self, lasted: Duration, threads: usize) {}

    /// Finds a name; each success counts as one reference until forgotten.
    fn lookup(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// The kernel gives back `count` references. There is no reply.
    fn forget(&self, node: u64, count: u64) {}

    /// Many forgets at once.
    fn batch_forget(&self, list: ForgetList<'_>) {
        for forget in list {
            self.forget(forget.node, forget.count);
        }
    }

    /// Attributes.
    fn getattr(&self, req: &Request<'_>, node: u64, fh: Option<u64>) -> Reply<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Changes attributes and returns all of them.
    fn setattr(&self, req: &Request<'_>, node: u64, op: &SetAttr) -> Reply<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Attributes in the manner of `statx`; `ENOSYS` makes the kernel use getattr.
    fn statx(&self, req: &Request<'_>, node: u64, op: &StatxOp) -> Reply<Statx> {
        Err(Errno::ENOSYS)
    }

    /// The target of a symbolic link.
    fn readlink(&self, req: &Request<'_>, node: u64) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symbolic link.
    fn symlink(&self, req: &Request<'_>, parent: u64, name: &OsStr, target: &OsStr) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file of any type but directory.
    fn mknod(&self, req: &Request<'_>, op: &MknodOp<'_>) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory.
    fn mkdir(&self, req: &Request<'_>, op: &MkdirOp<'_>) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name of anything but a directory.
    fn unlink(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Moves a name.
    fn rename(&self, req: &Request<'_>, op: &RenameOp<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Gives a node another name.
    fn link(&self, req: &Request<'_>, op: &LinkOp<'_>) -> Reply<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file; `ENOSYS` means "always possible, no handle" from then on.
    fn open(&self, req: &Request<'_>, node: u64, op: &OpenOp) -> Reply<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file; `ENOSYS` makes the kernel use mknod and open.
    fn create(&self, req: &Request<'_>, op: &CreateOp<'_>) -> Reply<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Makes and opens a file without a name (`O_TMPFILE`).
    fn tmpfile(&self, req: &Request<'_>, op: &CreateOp<'_>) -> Reply<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Reads. Either fill `buf` (it has `op.size` bytes, with stale contents)
    /// and return `Data::Filled(n)`, or return memory of your own; neither is
    /// copied before the kernel copies it.
    fn read(&self, req: &Request<'_>, op: &ReadOp, buf: &mut [u8]) -> Reply<Data> {
        Err(Errno::ENOSYS)
    }

    /// Writes and returns how many bytes.
    fn write(&self, req: &Request<'_>, op: &WriteOp<'_>) -> Reply<u32> {
        Err(Errno::ENOSYS)
    }

    /// Numbers about the whole file system.
    fn statfs(&self, req: &Request<'_>, node: u64) -> Reply<StatFs> {
        Ok(StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() })
    }

    /// One close of a descriptor.
    fn flush(&self, req: &Request<'_>, node: u64, op: &FlushOp) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// The last close. The caller does not wait for it and sees no error.
    fn release(&self, req: &Request<'_>, node: u64, op: &ReleaseOp) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file durable.
    fn fsync(&self, req: &Request<'_>, node: u64, fh: u64, datasync: bool) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes everything durable.
    fn syncfs(&self, req: &Request<'_>, node: u64) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Sets an extended attribute.
    fn setxattr(&self, req: &Request<'_>, node: u64, op: &SetxattrOp<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// An extended attribute's value. Return it whole: asking for the size
    /// only, and `ERANGE`, are handled here (`size` is 0 for the former).
    fn getxattr(&self, req: &Request<'_>, node: u64, name: &OsStr, size: u32) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// The names of extended attributes, each followed by a NUL; as getxattr.
    fn listxattr(&self, req: &Request<'_>, node: u64, size: u32) -> Reply<Vec<u8>> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, req: &Request<'_>, node: u64, name: &OsStr) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory; `ENOSYS` means "always possible, no handle, cached".
    fn opendir(&self, req: &Request<'_>, node: u64, op: &OpenOp) -> Reply<Opened> {
        Err(Errno::ENOSYS)
    }

    /// Pushes entries until the sink is full or there are no more.
    fn readdir(&self, req: &Request<'_>, node: u64, op: &ReaddirOp, sink: &mut DirSink<'_>) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// As readdir, with attributes; each pushed entry with a node other than 0
    /// counts as a lookup, except "." and "..".
    fn readdirplus(
        &self,
        req: &Request<'_>,
        node: u64,
        op: &ReaddirOp,
        sink: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// The last close of a directory.
    fn releasedir(&self, req: &Request<'_>, node: u64, op: &ReleaseOp) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory durable.
    fn fsyncdir(&self, req: &Request<'_>, node: u64, fh: u64, datasync: bool) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// The lock that is in the way of this one (kind `Unlock` if none is).
    fn getlk(&self, req: &Request<'_>, node: u64, op: &LockOp) -> Reply<Lock> {
        Err(Errno::ENOSYS)
    }

    /// Sets or drops a lock at once, or `EAGAIN`.
    fn setlk(&self, req: &Request<'_>, node: u64, op: &LockOp) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Sets a lock, waiting for it; answer `EINTR` when interrupted.
    fn setlkw(&self, req: &Request<'_>, node: u64, op: &LockOp) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Checks permissions (not asked with `default_permissions`).
    fn access(&self, req: &Request<'_>, node: u64, mask: u32) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Reserves or punches space.
    fn fallocate(&self, req: &Request<'_>, node: u64, op: &FallocateOp) -> Reply<()> {
        Err(Errno::ENOSYS)
    }

    /// Finds data or a hole (`SEEK_DATA`, `SEEK_HOLE`).
    fn lseek(&self, req: &Request<'_>, node: u64, op: &LseekOp) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copies between two files and returns how many bytes.
    fn copy_file_range(&self, req: &Request<'_>, op: &CopyOp) -> Reply<u64> {
        Err(Errno::ENOSYS)
    }

    /// An ioctl.
    fn ioctl(&self, req: &Request<'_>, node: u64, op: &IoctlOp<'_>) -> Reply<IoctlReply> {
        Err(Errno::ENOTTY)
    }

    /// Which of the events asked for are ready.
    fn poll(&self, req: &Request<'_>, node: u64, op: &PollOp) -> Reply<u32> {
        Err(Errno::ENOSYS)
    }
}
