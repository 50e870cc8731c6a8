//! What becomes of a brick whose disk fails it: it leaves the set.

use crate::io::{ChangeBody, Message, Output};
use crate::replica::{Out, Replica, Role};
use alloc::collections::BTreeSet;
use core::time::Duration;
use ids::{BrickId, Lsn};

impl<B: ChangeBody> Replica<B> {
    pub(crate) fn on_broken(&mut self, now: Duration, out: &mut Out<B>) {
        if self.role == Role::Failed {
            return;
        }
        match (self.leads(), self.view.primary) {
            (true, _) => self.propose_removal(now, &[self.me], "its disk takes no changes", out),
            (false, Some(primary)) => self.send(primary, Message::Failed { errno: 0 }, out),
            (false, None) => {}
        }
        self.fail(out);
    }

    pub(crate) fn on_apply_failed(&mut self, now: Duration, lsn: Lsn, errno: i32, out: &mut Out<B>) {
        match self.role {
            Role::Primary => self.on_own_failure(now, lsn, errno, out),
            Role::Secondary | Role::Healing => {
                if let Some(primary) = self.view.primary {
                    self.send(primary, Message::Failed { errno }, out);
                }
                self.fail(out);
            }
            Role::Reconciling => {
                self.propose_removal(now, &[self.me], "it could not apply a change", out);
                self.fail(out);
            }
            Role::Idle | Role::Failed => self.fail(out),
        }
    }

    pub(crate) fn fail(&mut self, out: &mut Out<B>) {
        self.leave_lead(out);
        self.drop_window();
        self.role = Role::Failed;
        out.push(Output::Diverged);
    }

    /// Whoever asked for it: what the kernel could not write it has dropped, and says so only once.
    pub(crate) fn on_own_sync_failure(&mut self, now: Duration, errno: i32, out: &mut Out<B>) {
        match (self.leads(), self.view.primary) {
            (true, _) => self.propose_removal(now, &[self.me], "its file system could not sync", out),
            (false, Some(primary)) => self.send(primary, Message::Failed { errno }, out),
            (false, None) => {}
        }
        self.fail(out);
    }

    /// Proposes the view without `gone`, unless it was just proposed.
    pub(crate) fn propose_removal(
        &mut self,
        now: Duration,
        gone: &[BrickId],
        reason: &'static str,
        out: &mut Out<B>,
    ) {
        let in_sync: BTreeSet<BrickId> =
            self.view.in_sync.iter().copied().filter(|b| !gone.contains(b)).collect();
        let primary = if gone.contains(&self.me) { self.view.successor(self.me) } else { Some(self.me) };
        if in_sync.is_empty() || primary.is_none() {
            return;
        }
        self.propose(now, primary, in_sync, reason, out);
    }
}
