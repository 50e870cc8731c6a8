//! The state file, `.mortar/state`: how far all is on disk, and how the brick was left. The brick's thread and its jobs
//! share it.

use crate::error::OpenError;
use crate::fresh::Fresh;
use crate::identity::own;
use crate::locks::locked;
use crate::lost::SyncedAt;
use disk_format::State;
use file_system::{File, Opening, UNKNOWN_BOOT_ID};
use ids::{Lsn, Time};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use wire::Errno;
use wire::peer::Stamp;

/// What the file is to say.
struct Kept {
    state: State,
    /// It does: the last write of it did not fail.
    written: bool,
}

/// What the brick's thread and the jobs share: the state file.
pub(crate) struct Shared {
    file: File,
    state: Mutex<Kept>,
    /// The boot of the machine.
    boot: [u8; 16],
    /// The index is committed up to here.
    indexed: AtomicU64,
    /// How many syncs have failed.
    failed: AtomicU64,
    /// After how many of them the journal was written again.
    rewritten: AtomicU64,
    synced: SyncedAt,
    fresh: Mutex<Fresh>,
}

impl Shared {
    /// Opens the state file and brings to disk what it says from now on. So whoever opens the brick after a power cut knows
    /// that it was in use, however soon after the opening the power failed.
    pub(crate) fn open(
        (path, meta): (&Path, &File),
        state: State,
        indexed: Lsn,
        synced: SyncedAt,
        fresh: Fresh,
    ) -> Result<Shared, OpenError> {
        let io = |e| OpenError::Io { path: own(path).join("state"), doing: "open", errno: e };
        let shared = Shared {
            file: meta.open_own(b"state", Opening::AtHand(0o600)).map_err(io)?,
            boot: state.boot,
            state: Mutex::new(Kept { state, written: false }),
            indexed: AtomicU64::new(indexed.0),
            failed: AtomicU64::new(0),
            rewritten: AtomicU64::new(0),
            synced,
            fresh: Mutex::new(fresh),
        };
        shared.change(|_| {}).map_err(io)?;
        shared.file.sync_data().map_err(io)?;
        // The file and the folders beside it may be new. If they are not, this writes nothing.
        meta.sync().map_err(io)?;
        shared.file.leave_witness();
        Ok(shared)
    }

    /// One small write of fixed size in place: it is there or not, and damage only means that nothing is certain.
    fn change(&self, f: impl FnOnce(&mut State)) -> Result<(), Errno> {
        let mut kept = locked(&self.state);
        f(&mut kept.state);
        kept.written = false;
        self.file.write_all(0, &kept.state.encode())?;
        kept.written = true;
        Ok(())
    }

    fn state(&self) -> State {
        locked(&self.state).state.clone()
    }

    /// Whether the file says so already. What could not be written of it is in memory only, and is written again.
    fn says(&self, so: impl FnOnce(&State) -> bool) -> bool {
        let kept = locked(&self.state);
        kept.written && so(&kept.state)
    }

    /// What was made and is not known to be on disk.
    pub(crate) fn fresh(&self) -> MutexGuard<'_, Fresh> {
        locked(&self.fresh)
    }

    /// Up to here, recovering needs no record.
    pub(crate) fn recovered_to(&self) -> Lsn {
        Lsn(self.indexed.load(Ordering::Acquire)).min(self.state().flushed)
    }

    /// Everything up to there is on disk.
    pub(crate) fn durable_stamp(&self) -> Stamp {
        self.state().durable
    }

    pub(crate) fn flushed(&self, lsn: Lsn) -> Result<(), Errno> {
        if self.says(|s| s.flushed == lsn) { Ok(()) } else { self.change(|s| s.flushed = lsn) }
    }

    /// Times of changes after `lsn` may have to be written again.
    pub(crate) fn unflush(&self, lsn: Lsn) -> Result<(), Errno> {
        if self.says(|s| s.flushed <= lsn) { Ok(()) } else { self.change(|s| s.flushed = s.flushed.min(lsn)) }
    }

    /// A sync failed: the kernel may have dropped what it could not write.
    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::AcqRel);
    }

    /// How many syncs have failed so far.
    pub(crate) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Acquire)
    }

    /// The journal was written again after so many failed syncs.
    pub(crate) fn rewrote(&self, failed: u64) {
        self.rewritten.store(failed, Ordering::Release);
    }

    /// After how many failed syncs the journal was written again.
    pub(crate) fn rewritten(&self) -> u64 {
        self.rewritten.load(Ordering::Acquire)
    }

    /// The index is committed up to `lsn`.
    pub(crate) fn indexed(&self, lsn: Lsn) {
        self.indexed.fetch_max(lsn.0, Ordering::AcqRel);
    }

    /// Nothing beyond `lsn` counts as written or durable any more; `last` is where the journal ends.
    pub(crate) fn distrust(&self, lsn: Lsn, last: Stamp) -> Result<(), Errno> {
        self.indexed.fetch_min(lsn.0, Ordering::AcqRel);
        self.change(|s| {
            s.flushed = s.flushed.min(lsn);
            if s.durable.lsn > lsn {
                s.durable = last;
            }
        })
    }

    /// Brings to disk what it says.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.file.sync_data()
    }

    /// Everything up to `stamp` is on disk: all that was done before `began`, by a sync that began when the journal had been
    /// written again after `whole` failed ones.
    pub(crate) fn durable(&self, stamp: Stamp, began: Time, whole: u64) -> Result<(), Errno> {
        if self.is_lost() || self.failed() != whole {
            // A sync that comes after one that failed says nothing of what the kernel dropped then.
            return Err(Errno::EIO);
        }
        if self.says(|s| s.durable.lsn >= stamp.lsn) {
            return Ok(());
        }
        self.change(|s| {
            if s.durable.lsn < stamp.lsn {
                s.durable = stamp;
            }
        })?;
        self.synced.set(began)
    }

    /// The mark of what is stale says what the state had to say: memory counts as kept again.
    pub(crate) fn regain(&self) -> Result<(), Errno> {
        if self.says(|s| s.boot == self.boot) { Ok(()) } else { self.change(|s| s.boot = self.boot) }
    }

    /// From now on the state says that what was not synced is lost.
    pub(crate) fn lose(&self) -> Result<(), Errno> {
        self.change(|s| s.boot = UNKNOWN_BOOT_ID)
    }

    fn is_lost(&self) -> bool {
        self.state().boot == UNKNOWN_BOOT_ID
    }

    /// # Errors
    /// The kernel's; `EIO` after [`Shared::lose`]: there is no order in which the brick could be closed.
    pub(crate) fn close(&self) -> Result<(), Errno> {
        if self.is_lost() {
            return Err(Errno::EIO);
        }
        self.change(|s| s.clean = true)?;
        self.file.sync_data()
    }
}
