//! Which tests run beside others: those that look at the clock run alone.
//!
//! A test that starts servers takes a share of [`TURN`] with its first pool and keeps it until its thread ends. One
//! that measures how long something takes calls [`alone`] before that, and has all of it.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

static TURN: RwLock<()> = RwLock::new(());

/// What a test's thread has of [`TURN`].
#[derive(Default)]
enum Share {
    #[default]
    Nothing,
    Part(#[expect(dead_code, reason = "held until the thread ends")] RwLockReadGuard<'static, ()>),
    All,
}

thread_local! {
    static SHARE: RefCell<Share> = const { RefCell::new(Share::Nothing) };
}

/// Nothing of another test's runs until this is dropped.
pub(crate) struct Alone(
    #[expect(dead_code, reason = "held until it is dropped")] RwLockWriteGuard<'static, ()>,
);

impl Drop for Alone {
    fn drop(&mut self) {
        SHARE.set(Share::Nothing);
    }
}

/// Waits until all other tests with servers have ended; they wait then. To be called before the test's first pool.
pub(crate) fn alone() -> Alone {
    // With one test thread all tests run on it: what the last one had is still here.
    SHARE.set(Share::Nothing);
    let all = TURN.write().unwrap_or_else(PoisonError::into_inner);
    SHARE.set(Share::All);
    Alone(all)
}

/// Waits while a test is alone, unless it is this one.
pub(super) fn beside_others() {
    if SHARE.with_borrow(|s| matches!(s, Share::Nothing)) {
        let part = TURN.read().unwrap_or_else(PoisonError::into_inner);
        SHARE.set(Share::Part(part));
    }
}
