//! Which tests run beside others: those that look at the clock run alone, and last.
//!
//! A test that starts servers takes a place beside others with its first pool and keeps it until its thread ends; there are
//! two for each core, as tests mostly wait for servers. One that measures how long something takes calls [`alone`] before that.
//! It waits until nobody is or wants to be beside others, so that nobody stands idle because of it. The test program needs more
//! threads than there are such tests, then.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Who runs, and who waits to run beside others.
struct Turn {
    beside: usize,
    waiting: usize,
    alone: bool,
}

static TURN: Mutex<Turn> = Mutex::new(Turn { beside: 0, waiting: 0, alone: false });
static CHANGED: Condvar = Condvar::new();

fn turn() -> MutexGuard<'static, Turn> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait(turn: MutexGuard<'static, Turn>) -> MutexGuard<'static, Turn> {
    CHANGED.wait(turn).unwrap_or_else(PoisonError::into_inner)
}

/// A place beside others.
struct Place;

impl Drop for Place {
    fn drop(&mut self) {
        turn().beside -= 1;
        CHANGED.notify_all();
    }
}

/// What a test's thread has.
#[derive(Default)]
enum Share {
    #[default]
    Nothing,
    Part(Place),
    All,
}

thread_local! {
    static SHARE: RefCell<Share> = const { RefCell::new(Share::Nothing) };
}

/// Nothing of another test's runs until this is dropped.
pub(crate) struct Alone(());

impl Drop for Alone {
    fn drop(&mut self) {
        SHARE.set(Share::Nothing);
        turn().alone = false;
        CHANGED.notify_all();
    }
}

/// Waits until all other tests with servers have ended; they wait then. To be called before the test's first pool.
pub(crate) fn alone() -> Alone {
    // With one test thread all tests run on it: what the last one had is still here.
    SHARE.set(Share::Nothing);
    let mut turn = turn();
    while turn.alone || turn.beside > 0 || turn.waiting > 0 {
        turn = wait(turn);
    }
    turn.alone = true;
    SHARE.set(Share::All);
    Alone(())
}

/// Waits for a place, and while a test is alone, unless it is this one.
pub(super) fn beside_others() {
    if !SHARE.with_borrow(|s| matches!(s, Share::Nothing)) {
        return;
    }
    let places = 2 * std::thread::available_parallelism().map_or(1, usize::from);
    let mut turn = turn();
    turn.waiting += 1;
    while turn.alone || turn.beside >= places {
        turn = wait(turn);
    }
    turn.waiting -= 1;
    turn.beside += 1;
    SHARE.set(Share::Part(Place));
}
