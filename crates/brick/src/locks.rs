//! What threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The guard. A thread that panicked with it left nothing half done: each step under a lock of this crate is whole by itself.
pub(crate) fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
