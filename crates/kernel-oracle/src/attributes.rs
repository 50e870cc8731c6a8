//! Attributes: owners, permissions, times, extended ones.

use crate::answer::Answer;
use crate::credentials::{errno, unprivileged};
use crate::kernel::{Kernel, Object, S_IFDIR, S_IFLNK};
use ids::{Fid, Time};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use std::collections::BTreeSet;
use wire::op::{SetAttr, SetTime};
use wire::{Errno, Name};

const S_ISGID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o010;
const SPECIAL: u32 = 0o6000;

fn chmod(object: &Object, mode: u32) -> Result<(), Errno> {
    rustix::fs::chmod(object.path(), Mode::from_raw_mode(mode & 0o7777)).map_err(errno)
}

fn timespec(time: Option<&SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::At { time }) => Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() },
    }
}

/// What a change of content clears of setuid and setgid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Clearing {
    Nothing,
    /// All that somebody outside the file's group clears.
    All,
    /// Not setgid without the group's right to execute ([`crate::Difference::SetgidKept`]).
    AsFuse,
}

/// Runs a change of content as somebody whose changes clear setuid and setgid.
pub(crate) fn clearing<T>(
    object: &Object,
    how: Clearing,
    act: impl FnOnce() -> Result<T, Errno>,
) -> Result<T, Errno> {
    if how == Clearing::Nothing {
        return act();
    }
    let before = object.stat()?.st_mode;
    let done = unprivileged(act)??;
    let after = object.stat()?.st_mode;
    let was = how == Clearing::AsFuse && before & S_ISGID != 0;
    if was && before & GROUP_EXEC == 0 && after & S_ISGID == 0 {
        chmod(object, after | S_ISGID)?;
    }
    Ok(done)
}

fn cut(object: &Object, size: u64, how: Clearing) -> Result<(), Errno> {
    match object.kind {
        S_IFDIR => return Err(Errno::EISDIR),
        kind if kind != crate::kernel::S_IFREG => return Err(Errno::EINVAL),
        _ => {}
    }
    let fd = object.open(OFlags::WRONLY)?;
    clearing(object, how, || rustix::fs::ftruncate(&fd, size).map_err(errno))
}

fn chown(object: &Object, set: &SetAttr, before: &Stat) -> Result<(), Errno> {
    let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
    rustix::fs::chownat(object.fd(), "", uid, gid, AtFlags::EMPTY_PATH).map_err(errno)?;
    let had = before.st_mode & SPECIAL != 0 && !matches!(object.kind, S_IFDIR | S_IFLNK);
    if had && !set.kill_suid {
        // The kernel that mounts has decided that they stay.
        return chmod(object, before.st_mode);
    }
    Ok(())
}

impl Kernel {
    /// What a change clears, if it does.
    pub(crate) fn clearing(&self, clears: bool) -> Clearing {
        match (clears, self.differs) {
            (false, _) => Clearing::Nothing,
            (true, false) => Clearing::All,
            (true, true) => Clearing::AsFuse,
        }
    }

    /// Whether the kernel would take an attribute of that name, whatever its length.
    pub(crate) fn may_set_xattr(&self, fid: Fid, name: &Name, flags: u32) -> bool {
        let Ok(object) = self.object(fid) else { return false };
        let there = xattrs(object).is_ok_and(|all| all.contains(name));
        let (prefix, rest) = match name.as_bytes().iter().position(|b| *b == b'.') {
            Some(dot) => name.as_bytes().split_at(dot + 1),
            None => return false,
        };
        let fits = match prefix {
            b"user." => matches!(object.kind, crate::kernel::S_IFREG | S_IFDIR),
            b"trusted." | b"security." => true,
            _ => false,
        };
        fits && !rest.is_empty() && matches!((flags, there), (0, _) | (1, false) | (2, true))
    }

    pub(crate) fn set_attr(&mut self, fid: Fid, set: &SetAttr) -> Result<Answer, Errno> {
        let object = self.object(fid)?;
        let before = object.stat()?;
        if let Some(size) = set.size {
            cut(object, size, self.clearing(set.kill_suid))?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            chown(object, set, &before)?;
        }
        if let Some(mode) = set.mode {
            chmod(object, mode)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(set.atime.as_ref()),
                last_modification: timespec(set.mtime.as_ref()),
            };
            rustix::fs::utimensat(CWD, object.path(), &times, AtFlags::empty()).map_err(errno)?;
        }
        let object = self.object_mut(fid)?;
        let told = |before: Option<Time>, now: Option<&SetTime>| match now {
            Some(SetTime::At { time }) => Some(*time),
            Some(SetTime::Now) => None,
            None => before,
        };
        object.atime = told(object.atime, set.atime.as_ref());
        object.mtime = told(object.mtime, set.mtime.as_ref());
        self.see(fid)
    }

    pub(crate) fn read_link(&self, fid: Fid) -> Result<Answer, Errno> {
        let object = self.object(fid)?;
        if object.kind != S_IFLNK {
            return Err(Errno::EINVAL);
        }
        let target = rustix::fs::readlinkat(object.fd(), "", Vec::new()).map_err(errno)?;
        Ok(Answer::Data(target.into_bytes()))
    }

    pub(crate) fn get_xattr(&self, fid: Fid, name: &Name) -> Result<Answer, Errno> {
        let mut value = vec![0; wire::limits::XATTR_VALUE_MAX];
        let n = rustix::fs::getxattr(self.object(fid)?.path(), name.as_bytes(), value.as_mut_slice());
        value.truncate(n.map_err(errno)?);
        Ok(Answer::Data(value))
    }

    pub(crate) fn list_xattr(&self, fid: Fid) -> Result<Answer, Errno> {
        xattrs(self.object(fid)?).map(Answer::Names)
    }

    pub(crate) fn set_xattr(&self, fid: Fid, name: &Name, value: &[u8], flags: u32) -> Result<Answer, Errno> {
        let flags = XattrFlags::from_bits_retain(flags);
        let set = rustix::fs::setxattr(self.object(fid)?.path(), name.as_bytes(), value, flags);
        set.map(|()| Answer::Done).map_err(errno)
    }

    pub(crate) fn remove_xattr(&self, fid: Fid, name: &Name) -> Result<Answer, Errno> {
        let removed = rustix::fs::removexattr(self.object(fid)?.path(), name.as_bytes());
        removed.map(|()| Answer::Done).map_err(errno)
    }
}

/// Names of the object's extended attributes, without those of the machine's security modules.
pub(crate) fn xattrs(object: &Object) -> Result<BTreeSet<Name>, Errno> {
    let mut list = vec![0; 64 << 10];
    let n = rustix::fs::listxattr(object.path(), list.as_mut_slice()).map_err(errno)?;
    list.truncate(n);
    let names = list.split(|b| *b == 0).filter_map(|n| Name::new(n).ok());
    Ok(names.filter(|n| n.as_bytes() != b"security.selinux").collect())
}

/// The length of an extended attribute's value.
pub(crate) fn xattr_len(object: &Object, name: &Name) -> usize {
    rustix::fs::getxattr_query(object.path(), name.as_bytes()).unwrap_or(0)
}
