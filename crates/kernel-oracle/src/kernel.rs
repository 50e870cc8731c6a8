//! Objects by fid, each held by a descriptor, and which call an operation is.

use crate::answer::{Answer, Moment, Seen};
use crate::credentials::errno;
use crate::difference::Difference;
use ids::{Fid, Time};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Stat, fstat, openat};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsRawFd;
use std::path::Path;
use wire::{Errno, Op};

pub(crate) const S_IFMT: u32 = 0o170_000;
pub(crate) const S_IFDIR: u32 = 0o040_000;
pub(crate) const S_IFREG: u32 = 0o100_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;

/// An object that has a name, or is open.
#[derive(Debug)]
pub(crate) struct Object {
    /// Holds the object; opened without any right to its content.
    fd: OwnedFd,
    pub(crate) kind: u32,
    /// What its times were last set to.
    pub(crate) atime: Option<Time>,
    pub(crate) mtime: Option<Time>,
}

impl Object {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// A path that leads to the object, a symbolic link too.
    pub(crate) fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        fstat(&self.fd).map_err(errno)
    }

    /// Opens the content of a file or directory, without leaving a trace in its access time.
    pub(crate) fn open(&self, how: OFlags) -> Result<OwnedFd, Errno> {
        let how = how | OFlags::CLOEXEC | OFlags::NOATIME;
        openat(CWD, self.path(), how, Mode::empty()).map_err(errno)
    }

    pub(crate) fn seen(&self, fid: Option<Fid>) -> Result<Seen, Errno> {
        let stat = self.stat()?;
        let moment = |now: Time, set: Option<Time>| match set {
            Some(time) if time == now => Moment::At(time),
            set => Moment::Changed(set),
        };
        let time = |sec: i64, nsec: i64| Time { sec, nsec: u32::try_from(nsec).unwrap_or(u32::MAX) };
        let nsec = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Ok(Seen {
            fid,
            mode: stat.st_mode,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            rdev: encoded(stat.st_rdev),
            size: (self.kind != S_IFDIR).then(|| u64::try_from(stat.st_size).unwrap_or(0)),
            atime: moment(time(stat.st_atime, nsec(stat.st_atime_nsec)), self.atime),
            mtime: moment(time(stat.st_mtime, nsec(stat.st_mtime_nsec)), self.mtime),
        })
    }
}

/// A device's number in 32 bits, as the kernel sends it to file systems.
fn encoded(rdev: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The reverse of [`encoded`].
pub(crate) fn decoded(rdev: u32) -> u64 {
    rustix::fs::makedev((rdev & 0x000f_ff00) >> 8, (rdev & 0xff) | ((rdev >> 12) & 0x000f_ff00))
}

/// The volume as the kernel has it.
pub(crate) struct Kernel {
    pub(crate) root: Fid,
    objects: BTreeMap<Fid, Object>,
    by_ino: BTreeMap<u64, Fid>,
    /// What the session holds open.
    opens: BTreeSet<Fid>,
    /// Whether Mortar's differences are known.
    pub(crate) differs: bool,
}

impl Kernel {
    pub(crate) fn new(top: &Path, root: Fid, differs: bool) -> Result<Kernel, Errno> {
        let at = top.join("root");
        rustix::fs::mkdir(&at, Mode::from_raw_mode(0o755)).map_err(errno)?;
        let (objects, by_ino, opens) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let mut kernel = Kernel { root, objects, by_ino, opens, differs };
        let dir = openat(CWD, &at, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(errno)?;
        kernel.adopt(root, dir)?;
        Ok(kernel)
    }

    /// Holds a new object under its fid.
    pub(crate) fn adopt(&mut self, fid: Fid, fd: OwnedFd) -> Result<(), Errno> {
        let stat = fstat(&fd).map_err(errno)?;
        self.by_ino.insert(stat.st_ino, fid);
        let kind = stat.st_mode & S_IFMT;
        self.objects.insert(fid, Object { fd, kind, atime: None, mtime: None });
        Ok(())
    }

    pub(crate) fn object(&self, fid: Fid) -> Result<&Object, Errno> {
        self.objects.get(&fid).ok_or(Errno::ESTALE)
    }

    pub(crate) fn object_mut(&mut self, fid: Fid) -> Result<&mut Object, Errno> {
        self.objects.get_mut(&fid).ok_or(Errno::ESTALE)
    }

    pub(crate) fn is_here(&self, fid: Fid) -> bool {
        self.objects.contains_key(&fid)
    }

    /// What a name leads to.
    pub(crate) fn entry(&self, parent: Fid, name: &[u8]) -> Result<Option<Fid>, Errno> {
        let dir = self.object(parent)?;
        match rustix::fs::statat(dir.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(self.by_ino.get(&stat.st_ino).copied()),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(e) => Err(errno(e)),
        }
    }

    /// The session has it open, or nothing any more.
    fn set_open(&mut self, fid: Fid, open: bool) -> Result<(), Errno> {
        if open {
            self.object(fid)?;
            self.opens.insert(fid);
            return Ok(());
        }
        self.opens.remove(&fid);
        if self.is_here(fid) { self.let_go(fid) } else { Ok(()) }
    }

    /// Forgets an object that has no name and is not open.
    pub(crate) fn let_go(&mut self, fid: Fid) -> Result<(), Errno> {
        let object = self.object(fid)?;
        let stat = object.stat()?;
        // Mortar lets go of directories that are open ([`Difference::RemovedDirectory`]).
        let held = (object.kind == S_IFREG || !self.differs) && self.opens.contains(&fid);
        if stat.st_nlink == 0 && !held {
            self.objects.remove(&fid);
            self.by_ino.remove(&stat.st_ino);
            self.opens.remove(&fid);
        }
        Ok(())
    }

    pub(crate) fn see(&self, fid: Fid) -> Result<Answer, Errno> {
        Ok(Answer::Attr(self.object(fid)?.seen(Some(fid))?))
    }

    pub(crate) fn apply(&mut self, op: &Op, payload: &[u8], made: Option<Fid>) -> Result<Answer, Errno> {
        if self.differs
            && let Some((_, answer)) = Difference::of(self, op, payload)
        {
            return answer;
        }
        match op {
            Op::Lookup { parent, name } => self.lookup(*parent, name),
            Op::GetAttr { fid } => self.see(*fid),
            Op::GetAttrs { fids } => {
                let there = fids.iter().filter_map(|fid| self.object(*fid).ok()?.seen(Some(*fid)).ok());
                Ok(Answer::Attrs(there.collect()))
            }
            Op::SetAttr { fid, set } => self.set_attr(*fid, set),
            Op::Create { open, .. } => {
                let answer = self.create(op, made)?;
                if let (true, Some(fid)) = (*open, made)
                    && self.object(fid)?.kind == S_IFREG
                {
                    self.set_open(fid, true)?;
                }
                Ok(answer)
            }
            Op::Unlink { parent, name } => self.unlink(*parent, name, AtFlags::empty()),
            Op::Rmdir { parent, name } => self.unlink(*parent, name, AtFlags::REMOVEDIR),
            Op::Rename { parent, name, to_parent, to_name, flags }
            | Op::MoveIn { parent, name, to_parent, to_name, flags, .. } => {
                self.rename((*parent, name), (*to_parent, to_name), *flags)
            }
            Op::Link { fid, parent, name } | Op::LinkIn { fid, parent, name, .. } => {
                self.link(*fid, *parent, name)
            }
            Op::ReadLink { fid } => self.read_link(*fid),
            Op::Open { fid } => {
                self.set_open(*fid, true)?;
                self.see(*fid)
            }
            Op::Release { fid } => self.set_open(*fid, false).map(|()| Answer::Done),
            Op::Read { fid, offset, len } => self.read(*fid, *offset, *len),
            Op::Write { fid, offset, append, kill_suid } => {
                self.write(*fid, (!append).then_some(*offset), payload, *kill_suid)
            }
            Op::Fsync { fid } => self.object(*fid).map(|_| Answer::Done),
            Op::ReadDir { fid, .. } => self.list(*fid),
            Op::StatFs => Ok(Answer::Room),
            Op::GetXattr { fid, name } => self.get_xattr(*fid, name),
            Op::ListXattr { fid } => self.list_xattr(*fid),
            Op::SetXattr { fid, name, flags } => self.set_xattr(*fid, name, payload, *flags),
            Op::RemoveXattr { fid, name } => self.remove_xattr(*fid, name),
            Op::Fallocate { fid, mode, offset, len } => self.allocate(*fid, *mode, *offset, *len),
            Op::Lseek { fid, offset, whence } => self.seek(*fid, *offset, *whence),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy((*from, *from_offset), (*to, *to_offset), *len)
            }
            Op::SyncFs => Ok(Answer::Done),
            // Between the primaries of two sets, and of locks: no system calls on the tree.
            _ => Err(Errno::ENOSYS),
        }
    }
}
