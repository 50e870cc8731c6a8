//! After opening: how a brick enters a view in which it may act, or leaves a view in which it must not act.
//!
//! Proposals are repeated until the view changes, because one may get lost and the pool store may have no leader to receive
//! it.

use crate::io::{ChangeBody, Output, Proposal};
use crate::limits::REPROPOSE;
use crate::replica::{Out, Replica, Role};
use alloc::collections::BTreeSet;
use core::time::Duration;
use ids::BrickId;
use wire::peer::Stamp;

impl<B: ChangeBody> Replica<B> {
    /// The brick's tree may not be as its journal says (after a power cut, an unfinished healing, a change left by half).
    /// To be said before the first view.
    /// `lost`: acknowledged changes that were not synced may be missing.
    pub fn set_uncertain(&mut self, lost: bool) {
        self.uncertain = true;
        self.lost = lost;
    }

    /// Whether something of this brick is stale.
    pub fn is_uncertain(&self) -> bool {
        self.uncertain
    }

    /// A brick that the view names, and that does not act in it: it was opened in this epoch, or is not certain of what it
    /// has.
    pub(crate) fn seek_view(&mut self, now: Duration, out: &mut Out<B>) {
        if !self.view.in_sync.contains(&self.me) {
            return;
        }
        if self.abdicate(now, out) {
            return;
        }
        let rest: BTreeSet<BrickId> = self.view.in_sync.iter().copied().filter(|b| *b != self.me).collect();
        let data = rest.iter().copied().find(|b| !self.view.arbiters.contains(b));
        if !self.uncertain {
            let me = (!self.view.arbiters.contains(&self.me)).then_some(self.me);
            let primary = self.view.primary.or(me);
            self.propose(now, primary, self.view.in_sync.clone(), "a brick was opened", out);
        } else if data.is_some() {
            let primary = self.view.primary.filter(|p| *p != self.me).or(data);
            self.propose(now, primary, rest, "a brick lost changes", out);
        } else if self.lease_holds(now) {
            // What an earlier process of this brick asked for may still be agreed, and let others in: first an epoch of
            // this process's own. The view is the newest: a lease comes with it.
            // If something was lost, one in which the clients are told.
            let since = if self.lost { self.view.lost_before } else { self.view.epoch };
            if since > *self.adopts_after.get_or_insert(self.view.epoch) {
                out.push(Output::AdoptHistory);
            } else {
                self.offer(
                    now,
                    Proposal {
                        expect: self.view.epoch,
                        primary: Some(self.me),
                        // An arbiter in sync has to compare as well.
                        in_sync: BTreeSet::from([self.me]),
                        healed: None,
                        lost: self.lost,
                        reason: "the only brick lost changes",
                    },
                    out,
                );
            }
        }
    }

    /// The only brick with the set's data has cut off what is not certain.
    pub(crate) fn on_history_adopted(&mut self, last: Stamp) {
        if self.role == Role::Idle {
            self.uncertain = false;
            self.begin_at(last);
        }
    }

    /// A set whose bricks were all away has no primary: one that is back and has everything offers itself.
    pub(crate) fn offer_to_lead(&mut self, now: Duration, out: &mut Out<B>) {
        if self.view.primary.is_none() && !self.view.arbiters.contains(&self.me) {
            let in_sync = self.view.in_sync.clone();
            self.propose(now, Some(self.me), in_sync, "a brick with everything is back", out);
        }
    }

    pub(crate) fn propose(
        &mut self,
        now: Duration,
        primary: Option<BrickId>,
        in_sync: BTreeSet<BrickId>,
        reason: &'static str,
        out: &mut Out<B>,
    ) {
        let expect = self.view.epoch;
        self.offer(now, Proposal { expect, primary, in_sync, healed: None, lost: false, reason }, out);
    }

    /// Proposes a view, unless another one was proposed a moment ago.
    pub(crate) fn offer(&mut self, now: Duration, proposal: Proposal, out: &mut Out<B>) {
        let expect = self.view.epoch;
        if self.proposed.is_some_and(|(e, at)| e == expect && now < at + REPROPOSE) {
            return;
        }
        self.proposed = Some((expect, now));
        out.push(Output::Propose(proposal));
    }
}
