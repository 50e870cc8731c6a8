//! Lazily kept attributes go to disk: in slices between the clients' requests, about once a second and before everything
//! is synced.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, Later, Purpose, SetCore};
use crate::io::ReplyTo;
use alloc::vec::Vec;
use core::time::Duration;
use replica::SyncToken;
use wire::Errno;

/// What follows when they are written.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Then {
    /// Nothing.
    House,
    /// The sync of now and then.
    Periodic,
    /// A round of syncs that were asked for.
    Round(Vec<SyncToken>),
    /// The end of this brick's healing of that number.
    EndHealing(u64),
    /// The end of the stale set, after this brick's healing of that number went to disk.
    EndHealed(u64),
    /// The end of the stale set of a brick that was alone, and before it, of what goes to disk for it.
    ClearStaleSet,
    /// See [`Then::ClearStaleSet`].
    StaleSetSynced,
}

/// The writing that is under way.
#[derive(Debug, Default)]
pub(crate) struct Flush {
    under_way: bool,
    /// What follows when it is over.
    then: Vec<Then>,
    /// What was asked for since it began, and so has to wait for the next one.
    next: Vec<Then>,
}

impl Flush {
    /// Something wants attributes written as they are now. True if the writing has to begin.
    fn ask(&mut self, then: Then) -> bool {
        if self.under_way {
            self.next.push(then);
            return false;
        }
        self.under_way = true;
        self.then.push(then);
        true
    }

    /// It is over: what follows, and whether another one has to begin.
    fn end(&mut self) -> (Vec<Then>, bool) {
        let then = core::mem::replace(&mut self.then, core::mem::take(&mut self.next));
        self.under_way = !self.then.is_empty();
        (then, self.under_way)
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Has attributes written, then does that.
    pub(crate) fn flush_then(&mut self, cx: &mut Cx<'_, B, R>, then: Then) {
        if self.flush.ask(then) {
            self.brick.begin_flush();
            self.later.push_back(Later::Flush(cx.at.now));
        }
    }

    /// A second has passed.
    pub(crate) fn flush_now_and_then(&mut self, cx: &mut Cx<'_, B, R>) {
        if !self.flush.under_way {
            self.flush_then(cx, Then::House);
        }
    }

    /// The next slice, in a turn that began then.
    pub(crate) fn flush_on(&mut self, cx: &mut Cx<'_, B, R>, begun: Duration) {
        if self.is_turn_over(cx, begun, Due::Flush) {
            return;
        }
        let result = match self.brick.flush_slice() {
            Ok(false) => return self.later.push_back(Later::Flush(begun)),
            Ok(true) => Ok(()),
            Err(e) => Err(e),
        };
        let (then, again) = self.flush.end();
        if again {
            self.brick.begin_flush();
            self.timers.set(cx.at.now, Due::Flush);
        }
        then.into_iter().for_each(|then| self.flushed(cx, then, result));
    }

    /// Whether what could not be written is to be taken for a failed sync: others go on then. On a full disk it is tried
    /// again, as there may be room by then; and so it is where nobody else has the data.
    fn is_disk_at_fault(&self, e: Errno) -> bool {
        !matches!(e, Errno::ENOSPC | Errno::EDQUOT) && !self.replica.is_only()
    }

    /// Attributes are written, as they were when that was asked for.
    pub(crate) fn flushed(&mut self, cx: &mut Cx<'_, B, R>, then: Then, result: Result<(), Errno>) {
        if let (Then::House | Then::Periodic, Err(e)) = (&then, result) {
            tracing::error!("{}: write attributes: {e}", self.settings.name);
            return match then {
                Then::Periodic if self.is_disk_at_fault(e) => self.end_periodic(cx, Err(e)),
                Then::Periodic => self.skip_periodic(),
                _ => {}
            };
        }
        let purpose = match then {
            Then::House => return,
            Then::Periodic => Purpose::Periodic,
            Then::Round(tokens) => Purpose::Round(tokens),
            Then::EndHealed(healing) => return self.end_healing(cx, healing, result),
            Then::StaleSetSynced => return self.end_stale_set(result),
            Then::ClearStaleSet => {
                let work = result.and_then(|()| self.brick.begin_end());
                return self.start(cx, Purpose::ClearStaleSet, work);
            }
            Then::EndHealing(healing) => {
                let work = result.and_then(|()| self.brick.begin_end());
                return self.start(cx, Purpose::EndHealing(healing), work);
            }
        };
        let work = result.map(|()| self.brick.begin_sync());
        self.start(cx, purpose, work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was asked for in the middle of a writing is not done with its end: attributes may have changed in between.
    #[test]
    fn who_comes_late_waits_for_the_next_one() {
        let mut flush = Flush::default();
        assert!(flush.ask(Then::House));
        assert!(!flush.ask(Then::Periodic) && !flush.ask(Then::EndHealing(1)));
        assert_eq!(flush.end(), ([Then::House].into(), true));
        assert!(!flush.ask(Then::House), "the next one is under way");
        assert_eq!(flush.end(), ([Then::Periodic, Then::EndHealing(1)].into(), true));
        assert_eq!(flush.end(), ([Then::House].into(), false));
        assert!(flush.ask(Then::House));
    }
}
