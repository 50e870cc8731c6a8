//! Which tests run beside others: those that look at the clock run alone, and last.
//!
//! A test that starts servers takes a place beside others with its first pool and keeps it until its thread ends; there are
//! three for each core, as tests mostly wait for servers. One that measures how long something takes calls [`alone`] before that.
//! It waits until nobody is or wants to be beside others, so that nobody stands idle because of it. The test program needs more
//! threads than there are such tests, then.
//!
//! What such a test does before and after it looks at the clock disturbs nobody who does the same: with [`Alone::after_set_up`] a
//! test makes its pool while the one before looks at what is left, and measures when that has ended.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Who runs, and who waits to run beside others.
struct Turn {
    beside: usize,
    waiting: usize,
    /// Tests that look at the clock: one that does or will, and one that has.
    alone: usize,
    /// None of those looks at the clock any more.
    measured: bool,
}

static TURN: Mutex<Turn> = Mutex::new(Turn { beside: 0, waiting: 0, alone: 0, measured: true });
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

/// A test that looks at the clock: between [`Alone::measures`] and [`Alone::measured`], or the end of this, nothing of another
/// test's runs.
pub(crate) struct Alone(());

impl Drop for Alone {
    fn drop(&mut self) {
        SHARE.set(Share::Nothing);
        let mut turn = turn();
        turn.alone -= 1;
        turn.measured |= turn.alone == 0;
        CHANGED.notify_all();
    }
}

/// Waits until all other tests with servers have ended; they wait then. To be called before the test's first pool.
pub(crate) fn alone() -> Alone {
    let alone = Alone::after_set_up();
    alone.measures();
    alone
}

impl Alone {
    /// Likewise, of a test that does not look at the clock before it calls [`Alone::measures`].
    pub(crate) fn after_set_up() -> Alone {
        // With one test thread all tests run on it: what the last one had is still here.
        SHARE.set(Share::Nothing);
        let mut turn = turn();
        while turn.alone > 1 || !turn.measured || turn.beside > 0 || turn.waiting > 0 {
            turn = wait(turn);
        }
        turn.alone += 1;
        turn.measured = false;
        SHARE.set(Share::All);
        Alone(())
    }

    /// Waits until nothing of another test's runs.
    pub(crate) fn measures(&self) {
        let mut turn = turn();
        while turn.alone > 1 {
            turn = wait(turn);
        }
    }

    /// The test does not look at the clock any more.
    pub(crate) fn measured(&self) {
        turn().measured = true;
        CHANGED.notify_all();
    }
}

/// Waits for a place, and while a test is alone, unless it is this one.
pub(super) fn beside_others() {
    if !SHARE.with_borrow(|s| matches!(s, Share::Nothing)) {
        return;
    }
    let places = 3 * std::thread::available_parallelism().map_or(1, usize::from);
    let mut turn = turn();
    turn.waiting += 1;
    while turn.alone > 0 || turn.beside >= places {
        turn = wait(turn);
    }
    turn.waiting -= 1;
    turn.beside += 1;
    SHARE.set(Share::Part(Place));
}
