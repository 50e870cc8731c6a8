//! The user for whom a thread makes calls, where the client's key is for some users: as a thread's fsuid is on Linux.

use std::cell::Cell;

thread_local! {
    static USER: Cell<u32> = const { Cell::new(0) };
}

/// The thread works for this user from now on; 0: for nobody. It counts only with a key that is for some users.
pub fn act_as(uid: u32) {
    USER.set(uid);
}

/// The user for whom the thread works.
pub(crate) fn current() -> u32 {
    USER.get()
}
