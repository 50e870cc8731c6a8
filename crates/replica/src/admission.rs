//! Which requests of clients may come in.

use crate::io::{Admission, ChangeBody};
use crate::limits::{WINDOW, WINDOW_BYTES};
use crate::replica::{Replica, Role};
use core::time::Duration;
use ids::{Epoch, OpId};

impl<B: ChangeBody> Replica<B> {
    /// May a request of this epoch come in? `op.seq` is 0 for requests that change nothing.
    ///
    /// Within an epoch the driver sees to it that a session's newer connection ends those that the session has given up:
    /// what still lies there must not come in after what was sent again.
    pub fn admit(&mut self, now: Duration, epoch: Epoch, op: OpId, finished: u64) -> Admission {
        match self.role {
            Role::Primary => {}
            Role::Reconciling => return Admission::Busy,
            Role::Idle | Role::Secondary | Role::Healing | Role::Failed => {
                // A client that knows a newer view than this brick: the view is on its way.
                return if epoch > self.view.epoch {
                    Admission::Busy
                } else {
                    Admission::WrongView(self.view.epoch)
                };
            }
        }
        if epoch > self.view.epoch || !self.lease_holds(now) {
            return Admission::Busy;
        }
        if op.seq == 0 {
            return Admission::Go;
        }
        if let Some(outcome) = self.results.get(op) {
            return Admission::Done(outcome);
        }
        // It may have lain somewhere while its resend was refused by a later primary, and its client went on: done now, it
        // would be done after its end.
        if epoch < self.view.epoch {
            return Admission::WrongView(self.view.epoch);
        }
        if self.results.is_finished(op) {
            // A late copy of a request that nobody waits for any more: it must not be done again.
            return Admission::Busy;
        }
        self.results.finish(op.session, finished);
        if !self.view.has_quorum() {
            return if now < self.quorum_until { Admission::Busy } else { Admission::BelowQuorum };
        }
        if self.window.len() >= WINDOW || self.window_bytes >= WINDOW_BYTES {
            return Admission::Busy;
        }
        Admission::Go
    }

    /// Whether the client has said that it waits for this operation no more: under its name it is not done any more.
    pub fn is_finished(&self, op: OpId) -> bool {
        self.results.is_finished(op)
    }

    /// May a request come in that changes nothing and belongs to its epoch? A sync does: a client with an older view does
    /// not know yet whether anything was lost since it wrote. So do words of what a session holds open: late ones would
    /// undo newer ones.
    pub fn admit_sync(&mut self, now: Duration, epoch: Epoch) -> Admission {
        match self.admit(now, epoch, OpId::default(), 0) {
            Admission::Go if epoch < self.view.epoch => Admission::WrongView(self.view.epoch),
            other => other,
        }
    }
}
