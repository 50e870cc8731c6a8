//! What the client keeps for each set, shared by its threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use client_core::set::{ReclaimMark, SetState};
use ids::{Fid, SetId};

/// Locks, whatever a thread that panicked left: the data here is valid between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The client's memory of one set; lives as long as the client.
pub(crate) struct SharedSet {
    /// The set.
    pub set: SetId,
    state: Mutex<SetState>,
}

impl SharedSet {
    pub(crate) fn new(set: SetId) -> SharedSet {
        SharedSet { set, state: Mutex::default() }
    }

    /// The memory, for a moment.
    pub(crate) fn state(&self) -> MutexGuard<'_, SetState> {
        lock(&self.state)
    }

    /// A number for a change; it counts as under way until the ticket is dropped.
    pub(crate) fn begin_change(&self) -> Ticket<'_> {
        Ticket { set: self, seq: self.state().begin_change() }
    }

    /// Claims the task of telling the set which files are open; `None` if another thread has it.
    pub(crate) fn begin_reclaim(&self) -> Option<Reclaim<'_>> {
        let files = self.state().begin_reclaim()?;
        Some(Reclaim { set: self, files, told: None })
    }
}

/// A change under way.
pub(crate) struct Ticket<'a> {
    set: &'a SharedSet,
    pub seq: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.set.state().end_change(self.seq);
    }
}

/// The task of telling a set which files are open; it has failed if it is dropped before [`Reclaim::done`].
pub(crate) struct Reclaim<'a> {
    set: &'a SharedSet,
    /// The files to tell of.
    pub files: Vec<Fid>,
    told: Option<ReclaimMark>,
}

impl Reclaim<'_> {
    /// All were told.
    pub(crate) fn done(mut self, mark: ReclaimMark) {
        self.told = Some(mark);
    }
}

impl Drop for Reclaim<'_> {
    fn drop(&mut self) {
        self.set.state().end_reclaim(self.told);
    }
}
