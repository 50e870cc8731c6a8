//! Open objects: one descriptor each, and what can be done through it whatever its kind.
//!
//! Regular files are open for reading and writing, directories for reading; everything else only as a path
//! (`O_PATH`), through which attributes are reached by way of `/proc/self/fd`.

use crate::error::errno;
use crate::handle::Handle;
use disk_format::{Tag, tag};
use ids::Time;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use wire::Errno;

pub(crate) const S_IFMT: u32 = 0o170_000;
pub(crate) const S_IFREG: u32 = 0o100_000;
pub(crate) const S_IFDIR: u32 = 0o040_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;

/// Attributes as the brick's file system has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stat {
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) rdev: u32,
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    pub(crate) ino: u64,
    pub(crate) mtime: Time,
}

impl Stat {
    fn from(st: &rustix::fs::Stat) -> Stat {
        let time = |sec: i64, nsec: u64| Time { sec, nsec: u32::try_from(nsec).unwrap_or(0) };
        Stat {
            mode: st.st_mode,
            uid: st.st_uid,
            gid: st.st_gid,
            nlink: u32::try_from(st.st_nlink).unwrap_or(u32::MAX),
            // Up to 12 bits of major and 20 of minor number the kernel's and FUSE's packings agree.
            rdev: u32::try_from(st.st_rdev).unwrap_or(0),
            size: u64::try_from(st.st_size).unwrap_or(0),
            blocks: u64::try_from(st.st_blocks).unwrap_or(0),
            ino: st.st_ino,
            mtime: time(st.st_mtime, st.st_mtime_nsec),
        }
    }
}

/// An open object.
#[derive(Clone, Debug)]
pub(crate) struct Opened {
    pub(crate) fd: Arc<OwnedFd>,
    /// Type bits of `st_mode`.
    pub(crate) kind: u32,
}

/// `/proc/self/fd/N` or `/proc/self/fd/N/name`, built without a formatter: it is on the path of every lookup.
pub(crate) fn proc_path(fd: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(28 + name.len());
    out.extend_from_slice(b"/proc/self/fd/");
    let mut digits = [0u8; 10];
    let mut n = u32::try_from(fd.as_raw_fd()).unwrap_or(0);
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(n % 10).unwrap_or(0);
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
    if !name.is_empty() {
        out.push(b'/');
        out.extend_from_slice(name);
    }
    out
}

/// How an object of this kind is opened.
pub(crate) fn open_flags(kind: u32) -> OFlags {
    let common = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match kind {
        S_IFREG => common | OFlags::RDWR | OFlags::NOATIME,
        S_IFDIR => common | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME,
        _ => common | OFlags::PATH,
    }
}

fn timespec(t: Time) -> Timespec {
    Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() }
}

fn as_tag(value: Result<usize, rustix::io::Errno>, buf: &[u8]) -> Result<Option<Tag>, Errno> {
    match value {
        Ok(n) => Tag::decode(buf.get(..n).unwrap_or_default()).map(Some).map_err(|e| {
            tracing::error!(error = %e, "an object's tag cannot be read");
            Errno::EIO
        }),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
        Err(rustix::io::Errno::RANGE) => Err(Errno::EIO),
        Err(e) => Err(errno(e)),
    }
}

/// The tag of `name` in `dir`; `None` if it has none.
pub(crate) fn tag_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Option<Tag>, Errno> {
    let mut buf = [0u8; 64];
    let r = rustix::fs::lgetxattr(proc_path(dir, name), tag::XATTR, &mut buf[..]);
    as_tag(r, &buf)
}

/// Attributes of `name` in `dir`.
pub(crate) fn stat_at(dir: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map(|s| Stat::from(&s)).map_err(errno)
}

/// Opens `name` in `dir` as its kind demands.
pub(crate) fn open_at(dir: BorrowedFd<'_>, name: &[u8], kind: u32) -> Result<Opened, Errno> {
    let fd = rustix::fs::openat(dir, name, open_flags(kind), Mode::empty()).map_err(errno)?;
    Ok(Opened { fd: Arc::new(fd), kind })
}

impl Opened {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == S_IFDIR
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == S_IFREG
    }

    /// Whether only its path is open.
    pub(crate) fn is_path(&self) -> bool {
        !self.is_dir() && !self.is_file()
    }

    fn path(&self) -> Vec<u8> {
        proc_path(self.fd.as_fd(), b"")
    }

    pub(crate) fn handle(&self) -> Result<Handle, Errno> {
        Handle::of(self.fd.as_fd(), b"")
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(&self.fd).map(|s| Stat::from(&s)).map_err(errno)
    }

    pub(crate) fn tag(&self) -> Result<Option<Tag>, Errno> {
        let mut buf = [0u8; 64];
        let r = if self.is_path() {
            rustix::fs::getxattr(self.path(), tag::XATTR, &mut buf[..])
        } else {
            rustix::fs::fgetxattr(&self.fd, tag::XATTR, &mut buf[..])
        };
        as_tag(r, &buf)
    }

    pub(crate) fn set_tag(&self, t: &Tag) -> Result<(), Errno> {
        self.set_xattr(tag::XATTR.as_bytes(), &t.encode())
    }

    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let r = if self.is_path() {
            rustix::fs::setxattr(self.path(), name, value, XattrFlags::empty())
        } else {
            rustix::fs::fsetxattr(&self.fd, name, value, XattrFlags::empty())
        };
        r.map_err(errno)
    }

    pub(crate) fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        let r = if self.is_path() {
            rustix::fs::removexattr(self.path(), name)
        } else {
            rustix::fs::fremovexattr(&self.fd, name)
        };
        match r {
            Err(rustix::io::Errno::NODATA) => Ok(()),
            r => r.map_err(errno),
        }
    }

    /// The value of an extended attribute, `None` without it.
    pub(crate) fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let mut buf = vec![0u8; 256];
        loop {
            let r = if self.is_path() {
                rustix::fs::getxattr(self.path(), name, &mut buf[..])
            } else {
                rustix::fs::fgetxattr(&self.fd, name, &mut buf[..])
            };
            match r {
                Ok(n) => {
                    buf.truncate(n);
                    return Ok(Some(buf));
                }
                Err(rustix::io::Errno::RANGE) if buf.len() < 65536 => buf = vec![0; 65536],
                Err(rustix::io::Errno::NODATA) => return Ok(None),
                Err(e) => return Err(errno(e)),
            }
        }
    }

    /// Names of the extended attributes, without ours.
    pub(crate) fn xattrs(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut buf = vec![0u8; 1024];
        let n = loop {
            let r = if self.is_path() {
                rustix::fs::listxattr(self.path(), &mut buf[..])
            } else {
                rustix::fs::flistxattr(&self.fd, &mut buf[..])
            };
            match r {
                Ok(n) => break n,
                Err(rustix::io::Errno::RANGE) if buf.len() < 65536 => buf = vec![0; 65536],
                Err(e) => return Err(errno(e)),
            }
        };
        let names = buf.get(..n).unwrap_or_default().split(|&b| b == 0);
        Ok(names.filter(|n| !n.is_empty() && !n.starts_with(tag::PREFIX)).map(<[u8]>::to_vec).collect())
    }

    pub(crate) fn set_times(&self, atime: Time, mtime: Time) -> Result<(), Errno> {
        let times = Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        let r = if self.is_path() {
            rustix::fs::utimensat(rustix::fs::CWD, self.path(), &times, AtFlags::empty())
        } else {
            rustix::fs::futimens(&self.fd, &times)
        };
        r.map_err(errno)
    }

    pub(crate) fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        rustix::fs::chownat(
            &self.fd,
            "",
            uid.map(Uid::from_raw),
            gid.map(Gid::from_raw),
            AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW,
        )
        .map_err(errno)
    }

    /// Sets permission bits; symbolic links have none of their own.
    pub(crate) fn chmod(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let r = match self.kind {
            S_IFLNK => return Ok(()),
            S_IFREG | S_IFDIR => rustix::fs::fchmod(&self.fd, mode),
            _ => rustix::fs::chmod(self.path(), mode),
        };
        r.map_err(errno)
    }
}
