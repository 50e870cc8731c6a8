//! A file system in memory that loses, when the power fails, what was not synced.
//!
//! Owns: the simulator's disks. A [`MemoryFs`] answers the calls of [`file_system`] as Linux does; beside what the calls
//! see (the page cache) it keeps what is on the platters and the operations in between. [`MemoryFs::crash`] decides by a
//! [`CrashRule`] which of these operations survived. Disks can be full, and reads, writes and syncs can fail.
//!
//! What must always be true: equal calls and equal random numbers give equal answers; what was synced survives every crash;
//! a surviving tree is one that a file system check would pass.
//! Two kinds of trees are possible after a crash because file systems differ: a journaling one keeps the order of its
//! metadata, a hostile one keeps any part that makes sense (after the crash models of Pillai et al., "All File Systems Are
//! Not Created Equal", OSDI 2014).

mod data;
mod disk;
mod file;
mod image;
mod names;
mod op;

pub use disk::{CrashRule, Faults};

use disk::Disk;
use file::MemoryFile;
use file_system::{File, FileSystem, S_IFDIR};
use ids::Time;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wire::Errno;

/// Random numbers for crashes: a number below the given bound, which is not 0.
pub type Draw<'a> = &'a mut dyn FnMut(u64) -> u64;

/// One simulated disk with its file system. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct MemoryFs(Arc<Mutex<Disk>>);

impl MemoryFs {
    /// An empty file system. `capacity`: bytes of data that fit.
    pub fn new(capacity: u64) -> MemoryFs {
        MemoryFs(Arc::new(Mutex::new(Disk::new(capacity))))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The power fails: the page cache is gone, and of what was not synced only a part, drawn by the rule, is on the disk.
    /// Files that are still open answer `ESHUTDOWN` from now on. Faults stay, except that the power is back.
    pub fn crash(&self, rule: CrashRule, draw: Draw<'_>) {
        self.disk().crash(rule, draw);
    }

    /// The kernel writes back some of what was not synced, as it does at its leisure.
    pub fn write_back(&self, rule: CrashRule, draw: Draw<'_>) {
        self.disk().write_back(rule, draw);
    }

    /// How the rule of syncing is: what a sync of one file takes along.
    pub fn set_rule(&self, rule: CrashRule) {
        self.disk().rule = rule;
    }

    /// What goes wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.disk().faults = faults;
    }

    /// Whether the power is off: what was to be done after the last change that [`Faults::power_left`] allowed is not done.
    pub fn is_off(&self) -> bool {
        self.disk().faults.power_left == Some(0)
    }

    /// The time that the kernel gives to what is changed from now on.
    pub fn set_time(&self, now: Time) {
        self.disk().now = now;
    }

    /// Operations that a crash might take.
    pub fn unsynced(&self) -> usize {
        self.disk().unsynced()
    }

    /// Makes a directory, and those above it as needed.
    ///
    /// # Errors
    /// The file system's.
    pub fn make_dirs(&self, path: &Path) -> Result<(), Errno> {
        let mut at = self.open_dir(Path::new("/"))?;
        for c in path.components() {
            let Component::Normal(name) = c else { continue };
            match at.make_dir(name.as_bytes(), 0o755) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => return Err(e),
            }
            at = at.open_at(name.as_bytes(), S_IFDIR)?;
        }
        Ok(())
    }
}

impl FileSystem for MemoryFs {
    fn open_dir(&self, path: &Path) -> Result<File, Errno> {
        let mut at = MemoryFile::open(&self.0, image::ROOT, S_IFDIR)?;
        for c in path.components() {
            if let Component::Normal(name) = c {
                at = at.open_at(name.as_bytes(), S_IFDIR)?;
            }
        }
        Ok(at)
    }
}
