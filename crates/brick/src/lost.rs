//! Objects that a power cut may have left with changes of which no record is left.
//!
//! The kernel brings file data, directories and the journal to disk in any order. A change may so be in the tree while its
//! record is lost, and if it had not reached another brick yet then nothing names the object. But whatever changes an
//! object moves its change time, which nobody can set. `.mortar/synced` keeps the time at which the last sync of everything
//! began: as its own modification time, which the kernel writes in one piece. All that is newer is in doubt.
//!
//! Not covered: data written over other data in place, if the kernel writes it out before it logs the change time (within
//! some seconds, when memory is short); and a clock that was set back between that sync and the power cut.

use crate::error::errno;
use crate::identity::own;
use crate::object::{Opened, stat_at};
use disk_format::Tag;
use ids::{Fid, SetId, Time};
use rustix::fs::{AtFlags, Mode, OFlags, Timespec, Timestamps};
use rustix::time::ClockId;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::Errno;

/// File systems with small inodes keep whole seconds.
const GRAIN: i64 = 1;

/// The file whose modification time says since when objects may have changed without a record.
pub(crate) struct SyncedAt {
    file: PathBuf,
}

impl SyncedAt {
    /// Makes the file if it is missing. A new one says that everything may have changed.
    pub(crate) fn open(path: &Path) -> Result<SyncedAt, Errno> {
        let at = SyncedAt { file: own(path).join("synced") };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        match rustix::fs::open(&at.file, flags, Mode::RUSR | Mode::WUSR) {
            Ok(made) => {
                at.set(Time::default())?;
                rustix::fs::fsync(&made).map_err(errno)?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(errno(e)),
        }
        Ok(at)
    }

    /// The time; 0 if none was noted.
    pub(crate) fn get(&self) -> Result<Time, Errno> {
        stat_at(rustix::fs::CWD, self.file.as_os_str().as_bytes()).map(|s| s.mtime)
    }

    /// Everything that changed before `time` is on disk, with its record. A file that is gone (the brick was released) is
    /// left so: without it everything may have changed.
    pub(crate) fn set(&self, time: Time) -> Result<(), Errno> {
        let at = Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
        let times = Timestamps { last_access: at, last_modification: at };
        let none = AtFlags::SYMLINK_NOFOLLOW;
        match rustix::fs::utimensat(rustix::fs::CWD, &self.file, &times, none) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(e) => Err(errno(e)),
        }
    }
}

/// The time that the kernel would give a change now.
pub(crate) fn now() -> Time {
    let t = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
    Time { sec: t.tv_sec, nsec: u32::try_from(t.tv_nsec).unwrap_or(0) }
}

/// The set's objects that changed since `time`, by a walk over the whole tree.
pub(crate) fn changed_since(root: &Opened, set: SetId, time: Time) -> Result<Vec<Fid>, Errno> {
    let from = time.sec.saturating_sub(GRAIN);
    let mut found = Vec::new();
    let mut look = |tag: &Tag, stat: rustix::io::Result<rustix::fs::Stat>| match stat {
        Ok(s) if tag.home == set && s.st_ctime >= from => {
            found.push(tag.fid);
            Ok(())
        }
        Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(e) => Err(errno(e)),
    };
    if let Some(tag) = root.tag()? {
        look(&tag, rustix::fs::fstat(&root.fd))?;
    }
    crate::scan::walk(&root.fd, &mut |seen| match &seen.tag {
        Ok(Some(tag)) => look(tag, rustix::fs::statat(seen.dir, seen.name, AtFlags::SYMLINK_NOFOLLOW)),
        Ok(None) | Err(_) => Ok(()),
    })?;
    Ok(found)
}
