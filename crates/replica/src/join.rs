//! Coming back into the set: both sides of it, as far as the order of changes goes. What is healed is in [`crate::heal`].

use crate::io::{Body, Message, Output, Proposal};
use crate::limits::REPROPOSE;
use crate::replica::{Out, Peer, Replica, Role};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn};
use wire::peer::Stamp;

/// Epochs that a brick tells of when it joins; older ones mean a full comparison.
const EPOCHS_TOLD: usize = 256;

impl<B: Body> Replica<B> {
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
    pub fn common_with(&self, sure: Lsn, history: &[Stamp]) -> Stamp {
        let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
        let shared = |s: &&Stamp| self.history.contains_key(&s.epoch);
        let Some(last) = history.iter().rev().find(shared) else { return none };
        let ours = self.history.get(&last.epoch).copied().unwrap_or_default();
        let lsn = last.lsn.min(ours).min(sure);
        match self.history.iter().find(|(_, end)| **end >= lsn) {
            Some((epoch, _)) if lsn > Lsn(0) => Stamp { epoch: *epoch, lsn },
            _ => none,
        }
    }

    /// On the joining brick: the primary has welcomed it.
    pub(crate) fn on_joined(&mut self, common: Stamp) {
        if !matches!(self.role, Role::Idle | Role::Healing) {
            return;
        }
        self.role = Role::Healing;
        self.results.cut_after(common.lsn);
        self.history.retain(|_, end| *end < common.lsn);
        if common.lsn > Lsn(0) {
            self.history.insert(common.epoch, common.lsn);
        }
        (self.applied, self.commit) = (common.lsn, common.lsn);
        self.durable = self.durable.min(common.lsn);
        self.base = common.clone();
        self.last = common;
        self.gap.clear();
        self.late_syncs.clear();
        self.proposed = None;
    }

    /// On the joining brick: it has everything.
    pub(crate) fn on_healed(&mut self, out: &mut Out<B>) {
        if let (Role::Healing, Some(primary)) = (self.role, self.view.primary) {
            self.send(primary, Message::Healed { lsn: self.applied }, out);
            self.proposed = Some((self.view.epoch, Duration::ZERO));
        }
    }

    /// Says it again until a view names this brick.
    pub(crate) fn tell_healed_again(&mut self, now: Duration, out: &mut Out<B>) {
        if let Some((_, at)) = self.proposed
            && now >= at + REPROPOSE
        {
            self.on_healed(out);
            self.proposed = Some((self.view.epoch, now));
        }
    }

    /// On the primary: a joining brick gets every change from here on.
    pub(crate) fn on_joiner_live(&mut self, brick: BrickId) {
        if self.role == Role::Primary && !self.view.in_sync.contains(&brick) {
            self.peers.remove(&brick);
            self.joiners.insert(brick, Peer::default());
        }
    }

    /// On the primary: whether a brick is joining.
    pub fn is_joiner(&self, brick: BrickId) -> bool {
        self.joiners.contains_key(&brick)
    }

    /// On the primary: changes may have been lost on the way to a joining brick. It will ask anew.
    pub(crate) fn drop_joiner(&mut self, now: Duration, brick: BrickId, out: &mut Out<B>) {
        if self.joiners.remove(&brick).is_some() && !self.view.in_sync.contains(&brick) {
            self.peers.remove(&brick);
            self.advance(now, out);
        }
    }

    /// On the primary: a joining brick has everything. From now on answers wait for it too, so that it still has
    /// everything when the view that names it is agreed.
    pub(crate) fn on_joiner_healed(&mut self, now: Duration, brick: BrickId, lsn: Lsn, out: &mut Out<B>) {
        let Some(joiner) = self.joiners.get_mut(&brick) else { return };
        if self.role != Role::Primary || lsn > self.last.lsn {
            return;
        }
        joiner.acked = joiner.acked.max(lsn);
        let peer = Peer { waits_since: (joiner.acked < self.last.lsn).then_some(now), ..joiner.clone() };
        self.peers.entry(brick).or_insert(peer);
        if self.proposed.is_some_and(|(e, at)| e == self.view.epoch && now < at + REPROPOSE) {
            return;
        }
        self.proposed = Some((self.view.epoch, now));
        let mut in_sync = self.view.in_sync.clone();
        in_sync.insert(brick);
        out.push(Output::Propose(Proposal {
            expect: self.view.epoch,
            primary: Some(self.me),
            in_sync,
            healed: Some(brick),
            reason: "it has healed",
        }));
    }
}
