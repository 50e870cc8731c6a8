//! Objects of the kernel's file systems.

use super::{boot_id, calls, errno};
use crate::object::{Opening, Renaming, Space, Stat, Times};
use crate::read_memory::ReadMemory;
use crate::{File, Handle, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use bytes::Bytes;
use ids::Time;
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags, RawDir, RenameFlags, SeekFrom,
    Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::time::ClockId;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use wire::Errno;

/// The magic number of ext4 (and ext2, ext3).
const EXT4: i64 = 0xef53;
/// Most bytes that one `copy_file_range` is asked for.
const COPY: u64 = 1 << 30;

/// A descriptor, and what kind of object it stands for.
///
/// What is neither a regular file nor a directory is open only as a path (`O_PATH`), through which attributes are reached
/// by way of `/proc/self/fd`.
#[derive(Debug)]
pub(crate) struct HostFile {
    fd: OwnedFd,
    kind: u32,
}

/// How an object of this kind is opened.
fn open_flags(kind: u32) -> OFlags {
    let common = OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match kind {
        S_IFREG => common | OFlags::RDWR | OFlags::NOATIME,
        S_IFDIR => common | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME,
        _ => common | OFlags::PATH,
    }
}

/// `/proc/self/fd/N` or `/proc/self/fd/N/name`, built without a formatter: it is on the path of every lookup.
fn proc_path(fd: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
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

fn as_stat(st: &rustix::fs::Stat) -> Stat {
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
        dev: st.st_dev,
        atime: time(st.st_atime, st.st_atime_nsec),
        mtime: time(st.st_mtime, st.st_mtime_nsec),
        ctime: time(st.st_ctime, st.st_ctime_nsec),
    }
}

fn value(found: Result<usize, rustix::io::Errno>) -> Result<Option<usize>, Errno> {
    match found {
        Ok(n) => Ok(Some(n)),
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(e) => Err(errno(e)),
    }
}

fn timestamps(times: Times) -> Timestamps {
    let at = |t: Time| Timespec { tv_sec: t.sec, tv_nsec: t.nsec.into() };
    Timestamps { last_access: at(times.atime), last_modification: at(times.mtime) }
}

fn sought(found: Result<u64, rustix::io::Errno>) -> Result<Option<u64>, Errno> {
    match found {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(e) => Err(errno(e)),
    }
}

impl HostFile {
    pub(super) fn new(fd: OwnedFd, kind: u32) -> HostFile {
        HostFile { fd, kind }
    }

    fn is_path(&self) -> bool {
        self.kind != S_IFREG && self.kind != S_IFDIR
    }

    fn path(&self) -> Vec<u8> {
        proc_path(self.fd.as_fd(), b"")
    }

    pub(crate) fn open_at(&self, name: &[u8], kind: u32) -> Result<File, Errno> {
        let kind = kind & S_IFMT;
        let fd = rustix::fs::openat(&self.fd, name, open_flags(kind), Mode::empty()).map_err(errno)?;
        Ok(File::on_host(HostFile { fd, kind }))
    }

    pub(crate) fn open_own(&self, name: &[u8], how: Opening) -> Result<File, Errno> {
        let (mode, more) = match how {
            Opening::New(mode) => (mode, OFlags::CREATE | OFlags::EXCL),
            Opening::AtHand(mode) => (mode, OFlags::CREATE),
            Opening::Emptied(mode) => (mode, OFlags::CREATE | OFlags::TRUNC),
        };
        let flags = open_flags(S_IFREG) | more;
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let fd = rustix::fs::openat(&self.fd, name, flags, mode).map_err(errno)?;
        Ok(File::on_host(HostFile { fd, kind: S_IFREG }))
    }

    pub(crate) fn make_dir(&self, name: &[u8], mode: u32) -> Result<(), Errno> {
        rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(mode & 0o7777)).map_err(errno)
    }

    pub(crate) fn make_symlink(&self, name: &[u8], target: &[u8]) -> Result<(), Errno> {
        rustix::fs::symlinkat(target, &self.fd, name).map_err(errno)
    }

    pub(crate) fn make_node(&self, name: &[u8], mode: u32, rdev: u32) -> Result<(), Errno> {
        let kind = FileType::from_raw_mode(mode);
        let mode = Mode::from_raw_mode(mode & 0o7777);
        rustix::fs::mknodat(&self.fd, name, kind, mode, rdev.into()).map_err(errno)
    }

    pub(crate) fn link(&self, dir: &File, name: &[u8]) -> Result<(), Errno> {
        let dir = &dir.host()?.fd;
        rustix::fs::linkat(rustix::fs::CWD, self.path(), dir, name, AtFlags::SYMLINK_FOLLOW).map_err(errno)
    }

    pub(crate) fn unlink(&self, name: &[u8]) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()).map_err(errno)
    }

    pub(crate) fn remove_dir(&self, name: &[u8]) -> Result<(), Errno> {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR).map_err(errno)
    }

    pub(crate) fn rename(&self, name: &[u8], to: &File, to_name: &[u8], how: Renaming) -> Result<(), Errno> {
        let to = &to.host()?.fd;
        match how {
            Renaming::Replace => rustix::fs::renameat(&self.fd, name, to, to_name),
            Renaming::NoReplace => {
                rustix::fs::renameat_with(&self.fd, name, to, to_name, RenameFlags::NOREPLACE)
            }
            Renaming::Exchange => {
                rustix::fs::renameat_with(&self.fd, name, to, to_name, RenameFlags::EXCHANGE)
            }
        }
        .map_err(errno)
    }

    pub(crate) fn list(&self, each: &mut dyn FnMut(&[u8], u32, u64) -> bool) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME;
        let fd = rustix::fs::openat(&self.fd, ".", flags, Mode::empty()).map_err(errno)?;
        let mut buf = vec![MaybeUninit::<u8>::uninit(); 32 << 10];
        let mut raw = RawDir::new(&fd, &mut buf);
        while let Some(e) = raw.next() {
            let e = match e {
                Err(rustix::io::Errno::INTR) => continue,
                other => other.map_err(errno)?,
            };
            let kind = match e.file_type() {
                FileType::Unknown => 0,
                t => t.as_raw_mode(),
            };
            let name = e.file_name().to_bytes();
            if name != b"." && name != b".." && !each(name, kind, e.ino()) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        rustix::fs::fstat(&self.fd).map(|s| as_stat(&s)).map_err(errno)
    }

    pub(crate) fn stat_at(&self, name: &[u8]) -> Result<Stat, Errno> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map(|s| as_stat(&s)).map_err(errno)
    }

    pub(crate) fn xattr(&self, name: &[u8], out: &mut [u8]) -> Result<Option<usize>, Errno> {
        value(if self.is_path() {
            rustix::fs::getxattr(self.path(), name, out)
        } else {
            rustix::fs::fgetxattr(&self.fd, name, out)
        })
    }

    pub(crate) fn xattr_at(&self, entry: &[u8], name: &[u8], out: &mut [u8]) -> Result<Option<usize>, Errno> {
        value(rustix::fs::lgetxattr(proc_path(self.fd.as_fd(), entry), name, out))
    }

    pub(crate) fn xattrs(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut buf = vec![0u8; 1024];
        let n = loop {
            let listed = if self.is_path() {
                rustix::fs::listxattr(self.path(), &mut buf[..])
            } else {
                rustix::fs::flistxattr(&self.fd, &mut buf[..])
            };
            match listed {
                Ok(n) => break n,
                Err(rustix::io::Errno::RANGE) if buf.len() < 65536 => buf = vec![0; 65536],
                Err(e) => return Err(errno(e)),
            }
        };
        let names = buf.get(..n).unwrap_or_default().split(|&b| b == 0);
        Ok(names.filter(|n| !n.is_empty()).map(<[u8]>::to_vec).collect())
    }

    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        if self.is_path() {
            rustix::fs::setxattr(self.path(), name, value, XattrFlags::empty())
        } else {
            rustix::fs::fsetxattr(&self.fd, name, value, XattrFlags::empty())
        }
        .map_err(errno)
    }

    pub(crate) fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        if self.is_path() {
            rustix::fs::removexattr(self.path(), name)
        } else {
            rustix::fs::fremovexattr(&self.fd, name)
        }
        .map_err(errno)
    }

    pub(crate) fn set_times(&self, times: Times) -> Result<(), Errno> {
        if self.is_path() {
            rustix::fs::utimensat(rustix::fs::CWD, self.path(), &timestamps(times), AtFlags::empty())
        } else {
            rustix::fs::futimens(&self.fd, &timestamps(times))
        }
        .map_err(errno)
    }

    pub(crate) fn set_times_at(&self, name: &[u8], times: Times) -> Result<(), Errno> {
        rustix::fs::utimensat(&self.fd, name, &timestamps(times), AtFlags::SYMLINK_NOFOLLOW).map_err(errno)
    }

    pub(crate) fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(&self.fd, "", uid.map(Uid::from_raw), gid.map(Gid::from_raw), flags)
            .map_err(errno)
    }

    pub(crate) fn chmod(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match self.kind {
            S_IFLNK => Ok(()),
            S_IFREG | S_IFDIR => rustix::fs::fchmod(&self.fd, mode).map_err(errno),
            _ => rustix::fs::chmod(self.path(), mode).map_err(errno),
        }
    }

    pub(crate) fn read_link(&self) -> Result<Vec<u8>, Errno> {
        rustix::fs::readlinkat(&self.fd, "", Vec::new()).map(std::ffi::CString::into_bytes).map_err(errno)
    }

    pub(crate) fn read(&self, offset: u64, len: usize, nowait: bool) -> Result<Vec<u8>, Errno> {
        calls::read(self.fd.as_fd(), offset, len, nowait)
    }

    pub(crate) fn read_shared(&self, offset: u64, len: usize, nowait: bool) -> Result<Bytes, Errno> {
        let mut memory = ReadMemory::take(len);
        calls::read_into(self.fd.as_fd(), offset, memory.empty(), len, nowait)?;
        Ok(memory.share())
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        loop {
            match rustix::io::pwrite(&self.fd, data, offset) {
                Err(rustix::io::Errno::INTR) => {}
                other => return other.map_err(errno),
            }
        }
    }

    pub(crate) fn truncate(&self, size: u64) -> Result<(), Errno> {
        rustix::fs::ftruncate(&self.fd, size).map_err(errno)
    }

    pub(crate) fn check_size(&self, size: u64) -> Result<(), Errno> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|limit| size > limit) {
            return Err(Errno::EFBIG);
        }
        // Nobody uses the position of the descriptor; the kernel refuses one that no file of the file system can have.
        match rustix::fs::seek(&self.fd, SeekFrom::Start(size)) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::OVERFLOW) => Err(Errno::EFBIG),
            Err(e) => Err(errno(e)),
            Ok(_) => Ok(()),
        }
    }

    pub(crate) fn allocate(&self, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        let flags = FallocateFlags::from_bits(mode).ok_or(Errno::EOPNOTSUPP)?;
        rustix::fs::fallocate(&self.fd, flags, offset, len).map_err(errno)
    }

    pub(crate) fn copy_range(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Result<u64, Errno> {
        let to = &to.host()?.fd;
        let want = usize::try_from(len.min(COPY)).map_err(|_| Errno::EINVAL)?;
        loop {
            let (mut a, mut b) = (offset, to_offset);
            match rustix::fs::copy_file_range(&self.fd, Some(&mut a), to, Some(&mut b), want) {
                Ok(n) => return Ok(n as u64),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(errno(e)),
            }
        }
    }

    pub(crate) fn next_data(&self, offset: u64) -> Result<Option<u64>, Errno> {
        sought(rustix::fs::seek(&self.fd, SeekFrom::Data(offset)))
    }

    pub(crate) fn next_hole(&self, offset: u64) -> Result<Option<u64>, Errno> {
        sought(rustix::fs::seek(&self.fd, SeekFrom::Hole(offset)))
    }

    pub(crate) fn sync(&self) -> Result<(), Errno> {
        rustix::fs::fsync(&self.fd).map_err(errno)
    }

    pub(crate) fn sync_data(&self) -> Result<(), Errno> {
        rustix::fs::fdatasync(&self.fd).map_err(errno)
    }

    pub(crate) fn sync_all(&self) -> Result<(), Errno> {
        rustix::fs::syncfs(&self.fd).map_err(errno)
    }

    pub(crate) fn start_writing(&self) {
        calls::start_writing(self.fd.as_fd());
    }

    pub(crate) fn handle(&self) -> Result<Handle, Errno> {
        calls::handle_of(self.fd.as_fd(), b"")
    }

    pub(crate) fn handle_at(&self, name: &[u8]) -> Result<Handle, Errno> {
        calls::handle_of(self.fd.as_fd(), name)
    }

    pub(crate) fn open_handle(&self, handle: &Handle, kind: u32) -> Result<File, Errno> {
        let kind = kind & S_IFMT;
        let fd = calls::open_handle(handle, self.fd.as_fd(), open_flags(kind))?;
        Ok(File::on_host(HostFile { fd, kind }))
    }

    pub(crate) fn name_hint(&self) -> Option<Vec<u8>> {
        let path = self.path_hint()?;
        path.rsplit(|&b| b == b'/').next().filter(|n| !n.is_empty()).map(<[u8]>::to_vec)
    }

    pub(crate) fn path_hint(&self) -> Option<Vec<u8>> {
        rustix::fs::readlink(self.path(), Vec::new()).ok().map(std::ffi::CString::into_bytes)
    }

    pub(crate) fn space(&self) -> Result<Space, Errno> {
        let fs = rustix::fs::fstatfs(&self.fd).map_err(errno)?;
        let block = u64::try_from(fs.f_bsize).unwrap_or(4096);
        // Old file systems leave the size of a fragment out: it is that of a block then.
        let unit = u64::try_from(fs.f_frsize).ok().filter(|n| *n > 0).unwrap_or(block);
        Ok(Space {
            total: fs.f_blocks.saturating_mul(unit),
            free: fs.f_bfree.saturating_mul(unit),
            available: fs.f_bavail.saturating_mul(unit),
            files: fs.f_files,
            files_free: fs.f_ffree,
            block,
            attributes_in_one_block: fs.f_type == EXT4,
        })
    }

    pub(crate) fn boot_id(&self) -> [u8; 16] {
        boot_id::boot_id(&self.fd)
    }

    pub(crate) fn leave_witness(&self) {
        boot_id::leave_witness(&self.fd);
    }

    pub(crate) fn has_witness(&self) -> bool {
        boot_id::has_witness(&self.fd)
    }

    #[expect(clippy::unused_self, reason = "all calls are an object's: its file system answers")]
    pub(crate) fn now(&self) -> Time {
        let t = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        Time { sec: t.tv_sec, nsec: u32::try_from(t.tv_nsec).unwrap_or(0) }
    }

    pub(crate) fn lock(&self) -> Result<bool, Errno> {
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(errno(e)),
        }
    }

    pub(crate) fn unlock(&self) {
        // Nothing can go wrong that closing the descriptor would not repair.
        let _unlocked = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}
