//! Changes on the brick: carried out in their order, and what becomes of one that cannot be.

use crate::brick::Brick;
use crate::content::Content;
use crate::core::{Cx, Next, SetCore};
use crate::io::ReplyTo;
use bytes::Bytes;
use ids::Lsn;
use replica::{Entry, Input, Ticket};
use wire::{Change, Errno};

impl<B: Brick, R: ReplyTo> SetCore<B, R> {
    /// Carries out a change. `ticket`: who waits for its answer, which is completed from the state after it.
    pub(crate) fn apply(&mut self, cx: &mut Cx<'_, B, R>, entry: Entry<Content>, ticket: Option<Ticket>) {
        let lsn = entry.stamp.lsn;
        let applied = match &self.target.healing {
            Some(h) if !h.has_ended() => self.apply_healing(cx.at.now, &entry),
            // What the primary has of the objects is only to be had by healing.
            _ if entry.body.change.is_doubt() && !self.leads() => self.must_heal(&entry.body.change),
            Some(_) => self.apply_healing(cx.at.now, &entry),
            None => self.apply_now(&entry),
        };
        let told = match applied {
            Ok(()) => {
                self.pending.note(cx.at.now, entry.op, &entry.body.change);
                self.tree.note_move(&entry.body.change);
                if let Some(ticket) = ticket {
                    self.complete_answer(ticket, entry.about);
                    self.add_directories(ticket, &entry.body.change);
                }
                Input::Applied { lsn }
            }
            Err(e) => self.not_applied(lsn, e),
        };
        self.next.push_back(Next::Feed(told));
    }

    pub(crate) fn apply_now(&mut self, entry: &Entry<Content>) -> Result<(), Errno> {
        let c = &entry.body;
        self.brick.carry_out(&entry.stamp, entry.op, entry.about, &c.change, &c.payload)
    }

    fn not_applied(&mut self, lsn: Lsn, e: Errno) -> Input<Content> {
        tracing::error!("set {}: change {lsn} could not be applied: {e}", self.set);
        if self.brick.is_partial() {
            return self.end_partial(lsn, e);
        }
        // It may have been a sync within.
        if e == Errno::EIO {
            self.doubt_unsynced();
        }
        Input::ApplyFailed { lsn, errno: e.0 }
    }

    /// A change was done only in part. Whoever alone has it goes on with what is there of it; with others it is theirs, and
    /// this brick has to be healed.
    fn end_partial(&mut self, lsn: Lsn, error: Errno) -> Input<Content> {
        if self.replica.alone_has(lsn) {
            return match self.brick.record_partial() {
                Ok(change) => {
                    let body = Content::new(change, Bytes::new());
                    Input::AppliedInPart { lsn, errno: error.0, body }
                }
                Err(e) => {
                    tracing::error!("set {}: note that change {lsn} was done in part: {e}", self.set);
                    Input::Broken
                }
            };
        }
        if let Err(e) = self.brick.abandon_partial() {
            tracing::error!("set {}: note what is in doubt: {e}", self.set);
        }
        // It may have been a sync within.
        if error == Errno::EIO {
            self.doubt_unsynced();
        }
        Input::ApplyFailed { lsn, errno: error.0 }
    }

    fn must_heal(&mut self, change: &Change) -> Result<(), Errno> {
        let last = self.brick.last().lsn;
        self.brick.begin_heal(last, &change.touched(), last)?;
        Err(Errno::ESTALE)
    }

    /// A sync failed: what the kernel could not write it has dropped, and no later sync says so.
    pub(crate) fn doubt_unsynced(&mut self) {
        if !self.replica.is_only()
            && let Err(e) = self.brick.doubt_unsynced()
        {
            tracing::error!("set {}: note what is in doubt: {e}", self.set);
        }
    }

    /// Nobody else has the set's data: this brick's journal ends where it is sure of it, and that is the set's history.
    pub(crate) fn adopt_history(&mut self) {
        match replica::healing::settle(&mut self.brick) {
            Ok(last) => {
                tracing::warn!("set {}: brick {} goes on alone from {}", self.set, self.me, last.lsn);
                self.next.push_back(Next::Feed(Input::Settled { last }));
            }
            Err(e) => tracing::error!("set {}: brick {} cannot go on alone: {e}", self.set, self.me),
        }
    }
}
