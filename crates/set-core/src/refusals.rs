//! Errors with which requests of several sets ended, for clients that ask again.
//!
//! Such a request waits for disks of other sets, perhaps for longer than its client waits for an answer. The journal has the outcome
//! of one that was done, and of an error nothing: without this the client would ask again, and begin anew, as long as disks are slow.

use alloc::collections::VecDeque;
use ids::OpId;
use wire::{Errno, Fail};

/// How many are remembered.
const MOST: usize = 256;

/// The last errors.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    last: VecDeque<(OpId, Errno)>,
}

impl Refusals {
    /// A request ended so. One that is to be asked again is not remembered.
    pub(crate) fn note(&mut self, id: OpId, errno: Errno) {
        if errno == Errno::EAGAIN {
            return;
        }
        if self.last.len() == MOST {
            self.last.pop_front();
        }
        self.last.push_back((id, errno));
    }

    /// Likewise, if that is an error.
    pub(crate) fn note_fail(&mut self, id: OpId, fail: &Fail) {
        if let Fail::Errno { errno } = fail {
            self.note(id, Errno(*errno));
        }
    }

    /// How the request ended.
    pub(crate) fn of(&self, id: OpId) -> Option<Errno> {
        self.last.iter().find(|(of, _)| *of == id).map(|(_, errno)| *errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::SessionId;

    #[test]
    fn the_last_errors_are_remembered() {
        let id = |seq| OpId { session: SessionId(1), seq };
        let mut refusals = Refusals::default();
        refusals.note(id(0), Errno::EAGAIN);
        refusals.note_fail(id(0), &Fail::Busy);
        assert_eq!(refusals.of(id(0)), None);
        (1..=300).for_each(|seq| refusals.note(id(seq), Errno::ENOTDIR));
        assert_eq!((refusals.of(id(44)), refusals.of(id(45))), (None, Some(Errno::ENOTDIR)));
        assert_eq!(refusals.last.len(), MOST);
    }
}
