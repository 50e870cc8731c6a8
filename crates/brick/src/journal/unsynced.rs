//! Which files of the journal are not on disk yet.

use crate::locks::locked;
use file_system::File;
use std::sync::{Arc, Mutex};
use wire::Errno;

/// The part of the journal that only the page cache may have, shared with the jobs that bring it to disk.
///
/// The segment that records are appended to is not listed: each job syncs it anyway. A segment is listed from the moment on
/// in which nothing is appended to it any more. So a sync that began before a segment's last record can never take that
/// segment off the list.
pub(crate) struct Unsynced {
    folder: Arc<File>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Complete segments, oldest first.
    complete: Vec<Arc<File>>,
    /// How often a segment was begun or removed, and how many of those changes of the folder are on disk.
    changes: u64,
    synced: u64,
}

impl Unsynced {
    pub(super) fn new(folder: Arc<File>) -> Unsynced {
        Unsynced { folder, state: Mutex::default() }
    }

    /// Nothing is appended to this segment any more.
    pub(super) fn add(&self, segment: Arc<File>) {
        self.with(|s| s.complete.push(segment));
    }

    /// A segment was begun or removed.
    pub(super) fn folder_changed(&self) {
        self.with(|s| s.changes += 1);
    }

    /// Brings the whole journal to disk: complete segments first, then the one that was current when the job began, then
    /// the names of all. A record is so never on disk for certain without those before it.
    pub(crate) fn sync(&self, current: &File) -> Result<(), Errno> {
        let (complete, changes, synced) = self.with(|s| (s.complete.clone(), s.changes, s.synced));
        for file in complete.iter().map(AsRef::as_ref).chain([current]) {
            file.sync_data()?;
        }
        if changes > synced {
            self.folder.sync()?;
        }
        self.with(|s| {
            s.complete.retain(|f| !complete.iter().any(|done| Arc::ptr_eq(f, done)));
            s.synced = s.synced.max(changes);
        });
        Ok(())
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut locked(&self.state))
    }
}
