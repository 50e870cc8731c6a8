//! Parsing of requests: bytes from the kernel to an [`Operation`].
//!
//! Never panics: what is too short or malformed is `EINVAL`, a name that is
//! too long `ENAMETOOLONG`, an unknown opcode `ENOSYS`.

use std::ffi::OsStr;

use crate::abi::{Fields, IN_HEADER, op};
use crate::errno::Errno;
use crate::flags::Capabilities;
use crate::init::Kernel;
use crate::ops::*;
use crate::types::{Lock, LockKind, Timestamp};

/// What precedes every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    pub(crate) unique: u64,
    pub(crate) node: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
    /// Length of the extensions at the end, in units of 8 bytes.
    pub(crate) extensions: u16,
}

impl Header {
    /// Takes the header off the front of a request.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Header, Errno> {
        let mut f = Fields(bytes);
        let header = Header {
            len: f.u32()?,
            opcode: f.u32()?,
            unique: f.u64()?,
            node: f.u64()?,
            uid: f.u32()?,
            gid: f.u32()?,
            pid: f.u32()?,
            extensions: f.u16()?,
        };
        f.u16()?;
        Ok(header)
    }

    /// The part of the request after the header and before the extensions.
    pub(crate) fn body<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], Errno> {
        if usize::try_from(self.len) != Ok(bytes.len()) {
            return Err(Errno::EINVAL);
        }
        let end = bytes.len().checked_sub(usize::from(self.extensions) * 8);
        end.and_then(|end| bytes.get(IN_HEADER..end)).ok_or(Errno::EINVAL)
    }
}

/// A parsed request.
pub(crate) enum Operation<'a> {
    Init(Kernel),
    Destroy,
    Interrupt(u64),
    /// An answer to a notification that we never send.
    NotifyReply,
    Forget(u64),
    BatchForget(ForgetList<'a>),
    Lookup(&'a OsStr),
    Getattr(Option<u64>),
    Setattr(SetAttr),
    Statx(StatxOp),
    Readlink,
    Symlink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    Mknod(MknodOp<'a>),
    Mkdir(MkdirOp<'a>),
    Unlink(&'a OsStr),
    Rmdir(&'a OsStr),
    Rename(RenameOp<'a>),
    Link(LinkOp<'a>),
    Open(OpenOp),
    Create(CreateOp<'a>),
    Tmpfile(CreateOp<'a>),
    Read(ReadOp),
    Write(WriteOp<'a>),
    Statfs,
    Flush(FlushOp),
    Release(ReleaseOp),
    Fsync {
        fh: u64,
        datasync: bool,
    },
    Syncfs,
    Setxattr(SetxattrOp<'a>),
    Getxattr {
        size: u32,
        name: &'a OsStr,
    },
    Listxattr {
        size: u32,
    },
    Removexattr(&'a OsStr),
    Opendir(OpenOp),
    Readdir {
        op: ReaddirOp,
        size: u32,
    },
    Readdirplus {
        op: ReaddirOp,
        size: u32,
    },
    Releasedir(ReleaseOp),
    Fsyncdir {
        fh: u64,
        datasync: bool,
    },
    Getlk(LockOp),
    Setlk(LockOp),
    Setlkw(LockOp),
    Access(u32),
    Fallocate(FallocateOp),
    Lseek(LseekOp),
    /// With the width of the answer.
    CopyFileRange {
        op: CopyOp,
        wide: bool,
    },
    Ioctl(IoctlOp<'a>),
    Poll(PollOp),
}

impl<'a> Operation<'a> {
    /// Parses the body of a request. `setxattr_ext` is what INIT agreed on.
    pub(crate) fn parse(header: &Header, body: &'a [u8], setxattr_ext: bool) -> Result<Operation<'a>, Errno> {
        use Operation as O;
        let (mut f, node) = (Fields(body), header.node);
        let f = &mut f;
        Ok(match header.opcode {
            op::INIT => O::Init(init(f)?),
            op::DESTROY => O::Destroy,
            op::INTERRUPT => O::Interrupt(f.u64()?),
            op::NOTIFY_REPLY => O::NotifyReply,
            op::FORGET => O::Forget(f.u64()?),
            op::BATCH_FORGET => O::BatchForget(batch_forget(f)?),
            op::LOOKUP => O::Lookup(f.component()?),
            op::GETATTR => O::Getattr(getattr(f)?),
            op::SETATTR => O::Setattr(setattr(f)?),
            op::STATX => O::Statx(statx(f)?),
            op::READLINK => O::Readlink,
            op::SYMLINK => O::Symlink { name: f.component()?, target: f.string()? },
            op::MKNOD => O::Mknod(mknod(f, node)?),
            op::MKDIR => O::Mkdir(mkdir(f, node)?),
            op::UNLINK => O::Unlink(f.component()?),
            op::RMDIR => O::Rmdir(f.component()?),
            op::RENAME => O::Rename(rename(f, node, false)?),
            op::RENAME2 => O::Rename(rename(f, node, true)?),
            op::LINK => O::Link(LinkOp { node: f.u64()?, new_parent: node, new_name: f.component()? }),
            op::OPEN => O::Open(open(f)?),
            op::OPENDIR => O::Opendir(open(f)?),
            op::CREATE => O::Create(create(f, node, Fields::component)?),
            op::TMPFILE => O::Tmpfile(create(f, node, Fields::string)?),
            op::READ => O::Read(read(f, node)?),
            op::READDIR => readdir(f).map(|(op, size)| O::Readdir { op, size })?,
            op::READDIRPLUS => readdir(f).map(|(op, size)| O::Readdirplus { op, size })?,
            op::WRITE => O::Write(write(f, node)?),
            op::STATFS => O::Statfs,
            op::FLUSH => O::Flush(flush(f)?),
            op::RELEASE => O::Release(release(f)?),
            op::RELEASEDIR => O::Releasedir(release(f)?),
            op::FSYNC => fsync(f).map(|(fh, datasync)| O::Fsync { fh, datasync })?,
            op::FSYNCDIR => fsync(f).map(|(fh, datasync)| O::Fsyncdir { fh, datasync })?,
            op::SYNCFS => O::Syncfs,
            op::SETXATTR => O::Setxattr(setxattr(f, setxattr_ext)?),
            op::GETXATTR => O::Getxattr { size: xattr_size(f)?, name: f.name()? },
            op::LISTXATTR => O::Listxattr { size: xattr_size(f)? },
            op::REMOVEXATTR => O::Removexattr(f.name()?),
            op::GETLK => O::Getlk(lock(f)?),
            op::SETLK => O::Setlk(lock(f)?),
            op::SETLKW => O::Setlkw(lock(f)?),
            op::ACCESS => O::Access(f.u32()?),
            op::FALLOCATE => O::Fallocate(fallocate(f)?),
            op::LSEEK => O::Lseek(LseekOp { fh: f.u64()?, offset: f.u64()?, whence: f.u32()? }),
            op::COPY_FILE_RANGE => O::CopyFileRange { op: copy(f, node)?, wide: false },
            op::COPY_FILE_RANGE_64 => O::CopyFileRange { op: copy(f, node)?, wide: true },
            op::IOCTL => O::Ioctl(ioctl(f)?),
            op::POLL => O::Poll(PollOp { fh: f.u64()?, kh: f.u64()?, flags: f.u32()?, events: f.u32()? }),
            _ => return Err(Errno::ENOSYS),
        })
    }
}

/// Whether these bytes are a request as the kernel sends it, whatever INIT agreed on; for tests that give any bytes.
pub fn is_request(bytes: &[u8]) -> bool {
    let Ok(header) = Header::parse(bytes) else { return false };
    let Ok(body) = header.body(bytes) else { return false };
    let reads = |setxattr_ext| match Operation::parse(&header, body, setxattr_ext) {
        // Each of them is read when it is forgotten.
        Ok(Operation::BatchForget(list)) => list.count() * 16 <= body.len(),
        read => read.is_ok(),
    };
    let (plain, extended) = (reads(false), reads(true));
    plain || extended
}

fn init(f: &mut Fields<'_>) -> Result<Kernel, Errno> {
    let (major, minor) = (f.u32()?, f.u32()?);
    if major != crate::abi::MAJOR {
        // Only the versions are certain to be there.
        return Ok(Kernel { major, minor, max_readahead: 0, capabilities: Capabilities::empty() });
    }
    let max_readahead = f.u32()?;
    let low = Capabilities(u64::from(f.u32()?));
    let high = if low.contains(Capabilities::INIT_EXT) { f.u32()? } else { 0 };
    let capabilities = Capabilities(low.0 | u64::from(high) << 32);
    Ok(Kernel { major, minor, max_readahead, capabilities })
}

fn batch_forget<'a>(f: &mut Fields<'a>) -> Result<ForgetList<'a>, Errno> {
    let left = f.u32()?;
    f.u32()?;
    let needed = usize::try_from(left).ok().and_then(|left| left.checked_mul(16));
    if needed.is_none_or(|needed| needed > f.0.len()) {
        return Err(Errno::EINVAL);
    }
    Ok(ForgetList { fields: *f, left })
}

fn getattr(f: &mut Fields<'_>) -> Result<Option<u64>, Errno> {
    const FH: u32 = 1 << 0;
    let flags = f.u32()?;
    f.u32()?;
    let fh = f.u64()?;
    Ok((flags & FH != 0).then_some(fh))
}

fn setattr(f: &mut Fields<'_>) -> Result<SetAttr, Errno> {
    let valid = f.u32()?;
    f.u32()?;
    let has = |bit: u32| valid & 1 << bit != 0;
    let (fh, size, lock_owner) = (f.u64()?, f.u64()?, f.u64()?);
    let secs = [f.u64()?.cast_signed(), f.u64()?.cast_signed(), f.u64()?.cast_signed()];
    let nanos = [f.u32()?, f.u32()?, f.u32()?];
    let mode = f.u32()?;
    f.u32()?;
    let (uid, gid) = (f.u32()?, f.u32()?);
    f.u32()?;
    let [atime, mtime, ctime] = [0, 1, 2].map(|i: usize| Timestamp { secs: secs[i], nanos: nanos[i] });
    let time = |set: bool, now: bool, at| match (set, now) {
        (_, true) => Some(TimeSet::Now),
        (true, false) => Some(TimeSet::At(at)),
        (false, false) => None,
    };
    Ok(SetAttr {
        mode: has(0).then_some(mode),
        uid: has(1).then_some(uid),
        gid: has(2).then_some(gid),
        size: has(3).then_some(size),
        atime: time(has(4), has(7), atime),
        mtime: time(has(5), has(8), mtime),
        fh: has(6).then_some(fh),
        lock_owner: has(9).then_some(lock_owner),
        ctime: has(10).then_some(ctime),
        kill_suidgid: has(11),
    })
}

fn statx(f: &mut Fields<'_>) -> Result<StatxOp, Errno> {
    let fh = getattr(f)?;
    Ok(StatxOp { fh, flags: f.u32()?, mask: f.u32()? })
}

fn mknod<'a>(f: &mut Fields<'a>, parent: u64) -> Result<MknodOp<'a>, Errno> {
    let (mode, rdev, umask) = (f.u32()?, f.u32()?, f.u32()?);
    f.u32()?;
    Ok(MknodOp { parent, name: f.component()?, mode, umask, rdev })
}

fn mkdir<'a>(f: &mut Fields<'a>, parent: u64) -> Result<MkdirOp<'a>, Errno> {
    let (mode, umask) = (f.u32()?, f.u32()?);
    Ok(MkdirOp { parent, name: f.component()?, mode, umask })
}

fn rename<'a>(f: &mut Fields<'a>, parent: u64, with_flags: bool) -> Result<RenameOp<'a>, Errno> {
    let new_parent = f.u64()?;
    let flags = if with_flags { f.u32()? } else { 0 };
    if with_flags {
        f.u32()?;
    }
    Ok(RenameOp { parent, name: f.component()?, new_parent, new_name: f.component()?, flags })
}

const OPEN_KILL_SUIDGID: u32 = 1 << 0;

fn open(f: &mut Fields<'_>) -> Result<OpenOp, Errno> {
    Ok(OpenOp { flags: f.u32()?, kill_suidgid: f.u32()? & OPEN_KILL_SUIDGID != 0 })
}

/// The kernel calls a file without a name `/`.
fn create<'a>(
    f: &mut Fields<'a>,
    parent: u64,
    name: impl FnOnce(&mut Fields<'a>) -> Result<&'a OsStr, Errno>,
) -> Result<CreateOp<'a>, Errno> {
    let (flags, mode, umask, open_flags) = (f.u32()?, f.u32()?, f.u32()?, f.u32()?);
    let kill_suidgid = open_flags & OPEN_KILL_SUIDGID != 0;
    Ok(CreateOp { parent, name: name(f)?, mode, umask, flags, kill_suidgid })
}

fn read(f: &mut Fields<'_>, node: u64) -> Result<ReadOp, Errno> {
    const LOCK_OWNER: u32 = 1 << 1;
    let (fh, offset, size, read_flags) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?);
    let (lock_owner, flags) = (f.u64()?, f.u32()?);
    f.u32()?;
    let lock_owner = (read_flags & LOCK_OWNER != 0).then_some(lock_owner);
    Ok(ReadOp { node, fh, offset, size, flags, lock_owner })
}

/// READDIR has the layout of READ.
fn readdir(f: &mut Fields<'_>) -> Result<(ReaddirOp, u32), Errno> {
    let read = read(f, 0)?;
    Ok((ReaddirOp { fh: read.fh, offset: read.offset }, read.size))
}

fn write<'a>(f: &mut Fields<'a>, node: u64) -> Result<WriteOp<'a>, Errno> {
    const CACHE: u32 = 1 << 0;
    const LOCK_OWNER: u32 = 1 << 1;
    const KILL_SUIDGID: u32 = 1 << 2;
    let (fh, offset, size, write_flags) = (f.u64()?, f.u64()?, f.u32()?, f.u32()?);
    let (lock_owner, flags) = (f.u64()?, f.u32()?);
    f.u32()?;
    let data = f.take(usize::try_from(size).map_err(|_| Errno::EINVAL)?)?;
    Ok(WriteOp {
        node,
        fh,
        offset,
        data,
        flags,
        lock_owner: (write_flags & LOCK_OWNER != 0).then_some(lock_owner),
        from_cache: write_flags & CACHE != 0,
        kill_suidgid: write_flags & KILL_SUIDGID != 0,
    })
}

fn flush(f: &mut Fields<'_>) -> Result<FlushOp, Errno> {
    let fh = f.u64()?;
    f.u64()?;
    Ok(FlushOp { fh, lock_owner: f.u64()? })
}

fn release(f: &mut Fields<'_>) -> Result<ReleaseOp, Errno> {
    const FLUSH: u32 = 1 << 0;
    const FLOCK_UNLOCK: u32 = 1 << 1;
    let (fh, flags, release_flags, lock_owner) = (f.u64()?, f.u32()?, f.u32()?, f.u64()?);
    let (flush, flock_unlock) = (release_flags & FLUSH != 0, release_flags & FLOCK_UNLOCK != 0);
    Ok(ReleaseOp { fh, flags, flush, flock_unlock, lock_owner })
}

fn fsync(f: &mut Fields<'_>) -> Result<(u64, bool), Errno> {
    const FDATASYNC: u32 = 1 << 0;
    let (fh, flags) = (f.u64()?, f.u32()?);
    f.u32()?;
    Ok((fh, flags & FDATASYNC != 0))
}

fn setxattr<'a>(f: &mut Fields<'a>, extended: bool) -> Result<SetxattrOp<'a>, Errno> {
    const ACL_KILL_SGID: u32 = 1 << 0;
    let (size, flags) = (f.u32()?, f.u32()?);
    let extra = if extended { f.u32()? } else { 0 };
    if extended {
        f.u32()?;
    }
    let name = f.name()?;
    let value = f.take(usize::try_from(size).map_err(|_| Errno::EINVAL)?)?;
    Ok(SetxattrOp { name, value, flags, kill_sgid: extra & ACL_KILL_SGID != 0 })
}

fn xattr_size(f: &mut Fields<'_>) -> Result<u32, Errno> {
    let size = f.u32()?;
    f.u32()?;
    Ok(size)
}

fn lock(f: &mut Fields<'_>) -> Result<LockOp, Errno> {
    const FLOCK: u32 = 1 << 0;
    let (fh, owner, start, end) = (f.u64()?, f.u64()?, f.u64()?, f.u64()?);
    let kind = LockKind::from_raw(f.u32()?).ok_or(Errno::EINVAL)?;
    let (pid, flags) = (f.u32()?, f.u32()?);
    f.u32()?;
    Ok(LockOp { fh, owner, lock: Lock { start, end, kind, pid }, flock: flags & FLOCK != 0 })
}

fn fallocate(f: &mut Fields<'_>) -> Result<FallocateOp, Errno> {
    Ok(FallocateOp { fh: f.u64()?, offset: f.u64()?, length: f.u64()?, mode: f.u32()? })
}

fn copy(f: &mut Fields<'_>, node_in: u64) -> Result<CopyOp, Errno> {
    Ok(CopyOp {
        node_in,
        fh_in: f.u64()?,
        offset_in: f.u64()?,
        node_out: f.u64()?,
        fh_out: f.u64()?,
        offset_out: f.u64()?,
        len: f.u64()?,
        flags: f.u64()?,
    })
}

fn ioctl<'a>(f: &mut Fields<'a>) -> Result<IoctlOp<'a>, Errno> {
    let (fh, flags, cmd, arg, in_size, out_size) =
        (f.u64()?, f.u32()?, f.u32()?, f.u64()?, f.u32()?, f.u32()?);
    let data = f.take(usize::try_from(in_size).map_err(|_| Errno::EINVAL)?)?;
    Ok(IoctlOp { fh, flags, cmd, arg, data, out_size })
}

#[cfg(test)]
mod tests;
