//! For how long what the servers said may be kept.
//!
//! A server that knows of no other active client says so with each answer, for some time from when the question was sent;
//! until then it lets nobody else change anything. What one operation learnt from several answers holds as long as all do.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
    static ANSWERS: Cell<bool> = const { Cell::new(false) };
}

/// An operation begins on this thread.
pub fn begin() {
    UNTIL.set(None);
    ANSWERS.set(false);
}

/// An answer to a question sent at `sent` came with a grant of `ms` milliseconds.
pub(crate) fn note(sent: Instant, ms: u16) {
    note_until(sent + Duration::from_millis(ms.into()));
}

/// What was told holds until then.
pub(crate) fn note_until(until: Instant) {
    let before = UNTIL.get().filter(|_| ANSWERS.get());
    UNTIL.set(Some(before.map_or(until, |b| b.min(until))));
    ANSWERS.set(true);
}

/// Until when all answers of the operation hold; `None` if there were none.
pub fn until() -> Option<Instant> {
    UNTIL.get()
}
