//! What the client keeps for each set, shared by its threads.

use std::sync::{Mutex, MutexGuard, PoisonError};

use client_core::set::SetState;
use ids::SetId;

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
}
