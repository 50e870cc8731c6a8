//! What a new view makes of a brick, and what came before the view did.

use crate::io::{ChangeBody, Input, Output};
use crate::limits::{EARLY, QUORUM_WAIT};
use crate::replica::{Out, Replica, Role};
use crate::view::View;
use core::time::Duration;
use ids::Epoch;

/// A message of an epoch whose view is not known here yet.
#[derive(Clone, Debug)]
pub(crate) struct Early<B> {
    pub(crate) epoch: Epoch,
    pub(crate) input: Input<B>,
}

impl<B: ChangeBody> Replica<B> {
    pub(crate) fn keep_early(&mut self, epoch: Epoch, input: Input<B>) {
        // What does not fit is sent again by the primary.
        if self.early.len() < EARLY {
            self.early.push_back(Early { epoch, input });
        }
    }

    pub(crate) fn on_view(&mut self, now: Duration, view: View, out: &mut Out<B>) {
        if view.epoch <= self.view.epoch {
            // The quorum rule is an option, and who is to leave an administrator's wish: both change without an epoch.
            if view.epoch == self.view.epoch {
                self.view.leaving.clone_from(&view.leaving);
                self.view.quorum = view.quorum;
                if self.role == Role::Idle {
                    // The epoch in which its process started: enough to know whom to ask for healing, or for a new view.
                    self.view = view;
                }
            }
            return;
        }
        let led = self.role == Role::Primary;
        let named = view.in_sync.contains(&self.me);
        let follows = view.primary.is_some() && view.primary == self.view.primary;
        let healing = self.role == Role::Healing && follows && !named;
        let reconciling = self.role == Role::Reconciling || core::mem::take(&mut self.asked);
        if reconciling && self.view.has_quorum() && !view.has_quorum() {
            self.quorum_until = now + QUORUM_WAIT;
        }
        self.view = view;
        // A brick that has healed reports it again, because the primary of this epoch has not received the report yet.
        self.proposed = (healing && !self.uncertain).then_some((self.view.epoch, Duration::ZERO));
        self.successor = None;
        self.pending_adds.clear();
        self.must_bump_epoch = false;
        if self.role == Role::Failed {
            return;
        }
        // A brick enters the view only after healing. A brick that is in the view although its content is uncertain
        // proposes its own removal first.
        let member = named && !self.uncertain;
        if member && self.view.primary == Some(self.me) {
            if led { self.stay_primary(now, out) } else { self.become_primary(now, out) }
        } else {
            if !healing {
                self.leave_lead(out);
            }
            self.role = match (member, healing) {
                (true, _) => Role::Secondary,
                (false, true) => Role::Healing,
                (false, false) => Role::Idle,
            };
            if self.role == Role::Idle {
                self.drop_window();
            }
        }
        self.take_early(now, out);
    }

    fn take_early(&mut self, now: Duration, out: &mut Out<B>) {
        let epoch = self.view.epoch;
        let (now_due, later) = core::mem::take(&mut self.early).into_iter().partition(|e| e.epoch <= epoch);
        self.early = later;
        for e in now_due {
            let e: Early<B> = e;
            self.step(now, e.input, out);
        }
    }

    /// Nobody is answered by this brick any more: clients ask the new primary.
    pub(crate) fn leave_lead(&mut self, out: &mut Out<B>) {
        for ticket in core::mem::take(&mut self.waiting).into_values().flatten() {
            out.push(Output::Redirect(ticket));
        }
        for ticket in core::mem::take(&mut self.held) {
            out.push(Output::Redirect(ticket));
        }
        self.synced.clear();
        for ticket in core::mem::take(&mut self.syncs).into_keys() {
            out.push(Output::Redirect(ticket));
        }
        self.pending.clear();
        self.peers.clear();
        self.joiners.clear();
        self.reports.clear();
        self.fetch = None;
        self.gap.clear();
        self.late_syncs.clear();
        self.peer_syncs.clear();
    }
}
