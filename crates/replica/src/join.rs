//! Joining: how a brick comes back into the set, on the joining brick and on the primary, as far as the order of changes is
//! concerned. The module [`crate::heal`] decides what is healed.

use crate::io::{ChangeBody, Message, Output, Proposal, Ticket};
use crate::limits::REPROPOSE;
use crate::peer_state::PeerState;
use crate::replica::{Out, Replica, Role};
use crate::results::Results;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn};
use wire::peer::Stamp;

/// Epochs that a brick tells of when it joins; older ones mean a full comparison.
const EPOCHS_TOLD: usize = 256;

/// Marks the ticket of the sync before a joining brick is let in; the rest of the ticket is the join id.
pub(crate) const ADMISSION: Ticket = 1 << 63;

impl<B: ChangeBody> Replica<B> {
    /// Tells what epochs the journal holds, each with its last position, before anything else is done.
    pub fn set_history(&mut self, history: BTreeMap<Epoch, Lsn>) {
        self.history = history;
    }

    /// The newest epochs of this brick's journal with their last positions, oldest first.
    pub fn history(&self) -> Vec<Stamp> {
        let mut told: Vec<Stamp> = self
            .history
            .iter()
            .rev()
            .take(EPOCHS_TOLD)
            .map(|(epoch, lsn)| Stamp { epoch: *epoch, lsn: *lsn })
            .collect();
        told.reverse();
        told
    }

    /// The last change that this brick's journal and that of another brick have in common, given that brick's history and
    /// up to where it can be trusted. One epoch's changes come from one primary: of an epoch that both hold, the shorter
    /// part is common.
    pub fn common_with(&self, consistent_to: Lsn, history: &[Stamp]) -> Stamp {
        let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
        let shared = |s: &&Stamp| self.history.contains_key(&s.epoch);
        let Some(last) = history.iter().rev().find(shared) else { return none };
        let ours = self.history.get(&last.epoch).copied().unwrap_or_default();
        let lsn = last.lsn.min(ours).min(consistent_to);
        match self.history.iter().find(|(_, end)| **end >= lsn) {
            Some((epoch, _)) if lsn > Lsn(0) => Stamp { epoch: *epoch, lsn },
            _ => none,
        }
    }

    /// On the joining brick: the primary has accepted its join.
    pub(crate) fn on_joined(&mut self, join_id: u64, start: Stamp, full: bool) {
        if !matches!(self.role, Role::Idle | Role::Healing) {
            return;
        }
        self.role = Role::Healing;
        self.join_id = join_id;
        self.uncertain = true;
        if full {
            // What it did on its own may never have been.
            self.results = Results::default();
            self.history.clear();
        }
        self.begin_at(start);
    }

    /// The journal ends here now, with everything before it applied.
    pub(crate) fn begin_at(&mut self, last: Stamp) {
        self.results.cut_after(last.lsn);
        self.history.retain(|_, end| *end < last.lsn);
        if last.lsn > Lsn(0) {
            self.history.insert(last.epoch, last.lsn);
        }
        (self.applied, self.commit) = (last.lsn, last.lsn);
        self.durable = self.durable.min(last.lsn);
        self.base = last.clone();
        self.last = last;
        self.gap.clear();
        self.drop_window();
        self.late_syncs.clear();
        self.peer_syncs.clear();
        self.proposed = None;
    }

    /// On the joining brick: it has everything.
    pub(crate) fn on_healed(&mut self, out: &mut Out<B>) {
        if let (Role::Healing, Some(primary)) = (self.role, self.view.primary) {
            self.uncertain = false;
            self.send(primary, Message::Healed { join_id: self.join_id, lsn: self.applied }, out);
            self.proposed = Some((self.view.epoch, Duration::ZERO));
        }
    }

    /// Says it again until a view names this brick.
    pub(crate) fn send_healed_again(&mut self, now: Duration, out: &mut Out<B>) {
        if let Some((_, at)) = self.proposed
            && now >= at + REPROPOSE
        {
            self.on_healed(out);
            self.proposed = Some((self.view.epoch, now));
        }
    }

    /// On the primary: a joining brick gets every change from here on.
    pub(crate) fn on_joiner_caught_up(&mut self, brick: BrickId) {
        if self.may_join(brick) {
            self.peers.remove(&brick);
            self.joiners.insert(brick, PeerState::default());
        }
    }

    /// On the primary: whether a brick may begin to join.
    pub fn may_join(&self, brick: BrickId) -> bool {
        self.role == Role::Primary
            && !self.view.in_sync.contains(&brick)
            && !self.pending_adds.contains(&brick)
    }

    /// On the primary: whether a brick is joining.
    pub fn is_joiner(&self, brick: BrickId) -> bool {
        self.joiners.contains_key(&brick)
    }

    /// On the primary: a brick begins to join. If it was to be let in already, that has to be taken back first.
    pub(crate) fn on_joining(&mut self, now: Duration, brick: BrickId, join_id: u64, out: &mut Out<B>) {
        if self.role == Role::Primary {
            self.join_ids.insert(brick, join_id);
            self.drop_joiner(now, brick, out);
        }
    }

    /// On the primary: changes may have been lost on the way to a joining brick. It will ask anew.
    pub(crate) fn drop_joiner(&mut self, now: Duration, brick: BrickId, out: &mut Out<B>) {
        self.joiners.remove(&brick);
        if self.view.in_sync.contains(&brick) {
            return;
        }
        if self.pending_adds.contains(&brick) {
            self.must_bump_epoch = true;
            self.bump_epoch(now, out);
        } else if self.peers.remove(&brick).is_some() {
            self.syncs.values_mut().for_each(|s| _ = s.missing.remove(&brick));
            self.find_complete_syncs();
            self.advance(now, out);
        }
    }

    /// Asks for a new epoch with the same bricks in sync: no older proposal counts in it.
    pub(crate) fn bump_epoch(&mut self, now: Duration, out: &mut Out<B>) {
        if self.must_bump_epoch {
            let (me, in_sync) = (Some(self.me), self.view.in_sync.clone());
            self.propose(now, me, in_sync, "a brick that had healed is gone", out);
        }
    }

    /// On the primary: a joining brick has everything. From now on answers wait for it too, so that it still has
    /// everything when the view that names it is agreed; that is asked for when it has all that was answered before.
    pub(crate) fn on_joiner_healed(
        &mut self,
        now: Duration,
        brick: BrickId,
        join_id: u64,
        lsn: Lsn,
        out: &mut Out<B>,
    ) {
        if self.role != Role::Primary || lsn > self.last.lsn {
            return;
        }
        if self.join_ids.get(&brick) != Some(&join_id) {
            // Its join was accepted again since, and has begun anew or never heard of it: without changes it asks again.
            return self.drop_joiner(now, brick, out);
        }
        let Some(joiner) = self.joiners.get_mut(&brick) else { return };
        joiner.acked = joiner.acked.max(lsn);
        let acked = joiner.acked;
        let peer = PeerState { waits_since: (acked < self.last.lsn).then_some(now), ..joiner.clone() };
        let (epoch, last) = (self.view.epoch, self.last.lsn);
        let synced_for_admission = self.peers.entry(brick).or_insert(peer).synced_for_admission;
        if synced_for_admission {
            return self.admit_joiner(now, brick, out);
        }
        // It went to disk when it had healed: what was answered as synced since then has to go there too.
        let message = Message::Sync { ticket: join_id | ADMISSION, lsn: last, fid: None };
        out.push(Output::Send { to: brick, epoch, message });
    }

    /// On the primary: a joining brick has on disk what was answered before answers waited for it.
    pub(crate) fn on_admission(&mut self, now: Duration, brick: BrickId, ticket: Ticket, out: &mut Out<B>) {
        let is_of_now = self.join_ids.get(&brick) == Some(&(ticket & !ADMISSION));
        if is_of_now
            && self.role == Role::Primary
            && self.joiners.contains_key(&brick)
            && let Some(peer) = self.peers.get_mut(&brick)
        {
            peer.synced_for_admission = true;
            self.admit_joiner(now, brick, out);
        }
    }

    fn admit_joiner(&mut self, now: Duration, brick: BrickId, out: &mut Out<B>) {
        let acked = self.peers.get(&brick).map_or(Lsn(0), |p| p.acked);
        let busy = self.proposed.is_some_and(|(e, at)| e == self.view.epoch && now < at + REPROPOSE);
        if acked < self.commit || busy || self.must_bump_epoch {
            return;
        }
        self.proposed = Some((self.view.epoch, now));
        self.pending_adds.insert(brick);
        let mut in_sync = self.view.in_sync.clone();
        in_sync.insert(brick);
        out.push(Output::Propose(Proposal {
            expect: self.view.epoch,
            primary: Some(self.me),
            in_sync,
            healed: Some(brick),
            lost: false,
            reason: "it has healed",
        }));
    }

    /// Sends a change to the joining bricks: when it is ordered, but by a primary that is alone only when it is done here.
    /// One that fails there never was, and they could not tell it from the next with the same stamp.
    pub(crate) fn feed_joiners(&mut self, lsn: Lsn, out: &mut Out<B>) {
        if lsn != self.streamed_to.next() || (self.others().is_empty() && lsn > self.applied) {
            return;
        }
        self.streamed_to = lsn;
        if let Some(entry) = self.window.iter().find(|e| e.stamp.lsn == lsn) {
            for to in self.joiners.keys().copied() {
                let (epoch, commit, entry) = (self.view.epoch, self.commit, entry.clone());
                out.push(Output::Replicate { to, epoch, commit, entry });
            }
        }
    }
}
