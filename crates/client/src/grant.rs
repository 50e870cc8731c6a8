//! For how long what the servers said may be kept.
//!
//! A server that knows of no other active client says so with each answer, for some time from when the question was sent;
//! until then it lets nobody else change anything. What one operation learnt from several answers holds as long as all do.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static UNTIL: Cell<Option<Instant>> = const { Cell::new(None) };
    static ANSWERS: Cell<bool> = const { Cell::new(false) };
    static ASKED: Cell<u32> = const { Cell::new(0) };
}

/// An operation begins on this thread.
pub fn begin() {
    UNTIL.set(None);
    ANSWERS.set(false);
    ASKED.set(0);
}

/// A question is sent, for the first time or again.
pub(crate) fn ask() {
    ASKED.set(ASKED.get().saturating_add(1));
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

/// What was told since `until` was that is not used.
pub(crate) fn restore(until: Option<Instant>) {
    UNTIL.set(until);
}

/// Until when all answers of the operation hold; `None` if there were none.
pub fn until() -> Option<Instant> {
    UNTIL.get()
}

/// Until when this client alone changes what the operation just made. `None` if others may have changed it meanwhile: there
/// is no grant, or more than one question was sent, and an earlier one may have made it long ago.
pub fn until_if_made_now() -> Option<Instant> {
    until().filter(|_| ASKED.get() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_resent_request_made_may_be_older_than_the_grant() {
        let at = Instant::now();
        begin();
        ask();
        note(at, 250);
        assert_eq!(until_if_made_now(), Some(at + Duration::from_millis(250)));
        begin();
        assert_eq!(until_if_made_now(), None);
        ask();
        ask();
        note(at, 250);
        assert_eq!((until_if_made_now(), until().is_some()), (None, true));
    }
}
