//! Between the kernel's words and ours.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use client::Object;
use fuse::{Errno, Timestamp};
use ids::Time;
use wire::op::{self, SetTime};
use wire::{Attr, Name};

/// The size of I/O that programs are told to prefer.
const BLOCK: u32 = 128 << 10;

pub(crate) fn errno(e: wire::Errno) -> Errno {
    Errno::from_raw(e.0)
}

fn timestamp(t: Time) -> Timestamp {
    Timestamp { secs: t.sec, nanos: t.nsec }
}

pub(crate) fn attr(a: &Attr) -> fuse::Attr {
    fuse::Attr {
        ino: a.fid.ino(),
        size: a.size,
        blocks: a.blocks,
        atime: timestamp(a.atime),
        mtime: timestamp(a.mtime),
        ctime: timestamp(a.ctime),
        mode: a.mode,
        nlink: a.nlink,
        uid: a.uid,
        gid: a.gid,
        rdev: a.rdev,
        blksize: BLOCK,
    }
}

/// What is left to tell of an object that is gone: without a name.
pub(crate) fn gone(object: Object, kind: u32) -> Attr {
    let Object { fid, home } = object;
    let t = Time::default();
    let (uid, gid, nlink, rdev, size, blocks) = (0, 0, 0, 0, 0, 0);
    Attr { fid, home, mode: kind, uid, gid, nlink, rdev, size, blocks, atime: t, mtime: t, ctime: t }
}

/// A name in a directory.
pub(crate) fn name(name: &OsStr) -> Result<Name, Errno> {
    Name::new(name.as_bytes()).map_err(|_| match name.len() {
        0..=255 => Errno::EINVAL,
        _ => Errno::ENAMETOOLONG,
    })
}

fn set_time(t: fuse::TimeSet) -> SetTime {
    match t {
        fuse::TimeSet::Now => SetTime::Now,
        fuse::TimeSet::At(t) => SetTime::At { time: Time { sec: t.secs, nsec: t.nanos.min(999_999_999) } },
    }
}

/// With `HANDLE_KILLPRIV_V2` a change of owner takes set-uid bits away without being asked.
pub(crate) fn set_attr(s: &fuse::SetAttr) -> op::SetAttr {
    op::SetAttr {
        mode: s.mode,
        uid: s.uid,
        gid: s.gid,
        size: s.size,
        atime: s.atime.map(set_time),
        mtime: s.mtime.map(set_time),
        kill_suid: s.kill_suidgid || s.uid.is_some() || s.gid.is_some(),
    }
}

/// Only a new size.
pub(crate) fn truncate(kill_suid: bool) -> op::SetAttr {
    op::SetAttr { mode: None, uid: None, gid: None, size: Some(0), atime: None, mtime: None, kill_suid }
}
