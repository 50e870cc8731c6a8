//! A failover ends with all bricks that live and are reachable: none leaves because its journal ends elsewhere, as long as
//! what the others lack is in a process that got it.

use crate::world::{World, server_of};
use ids::{BrickId, Lsn};
use replica::{Proposal, Replica, Role};

impl World {
    /// A view without some brick is asked for.
    pub(crate) fn check_left_out(&mut self, set: usize, proposal: &Proposal) {
        *self.faults.counts.entry(proposal.reason).or_default() += 1;
        let view = &self.store.views[set];
        // One for an older view comes to nothing.
        if proposal.reason != "its journal ends elsewhere" || proposal.expect != view.epoch {
            return;
        }
        let members = &view.in_sync;
        let ends: Vec<(BrickId, Lsn, Lsn)> = members.iter().filter_map(|b| self.end_of(set, *b)).collect();
        let arbiters = &self.sets[set].arbiters;
        let (fewest, keep): (Vec<_>, Vec<_>) = ends.iter().map(|(_, last, keeps)| (*last, *keeps)).unzip();
        let fewest = fewest.into_iter().min().unwrap_or_default();
        let data = |(b, ..): &&(BrickId, Lsn, Lsn)| !arbiters.contains(b);
        let most = ends.iter().filter(data).map(|(_, last, _)| *last).max().unwrap_or_default();
        let kept = keep.into_iter().all(|k| k <= fewest);
        let arbiter_ahead = ends.iter().any(|(b, last, _)| arbiters.contains(b) && *last > most);
        if ends.len() == members.len() && kept && !arbiter_ahead {
            self.fail(|| format!("stay: set {set}: {proposal:?} leaves out a brick: {ends:?}"));
        }
    }

    /// Where a brick's journal ends, and after which change it has them with their data.
    fn end_of(&self, set: usize, brick: BrickId) -> Option<(BrickId, Lsn, Lsn)> {
        let b = self.servers.get(server_of(brick))?.bricks.get(&set)?;
        Some((brick, b.replica.as_ref()?.last().lsn, b.keeps_after))
    }

    /// Counts changes that are sent while a new primary reconciles.
    pub(crate) fn note_tail(&mut self, s: usize, set: usize) {
        let role = self.servers[s].bricks[&set].replica.as_ref().map(Replica::role);
        let what = match role {
            Some(Role::Reconciling) => "change sent to one that lacked it",
            Some(Role::Secondary) => "change sent to a new primary",
            _ => return,
        };
        *self.faults.counts.entry(what).or_default() += 1;
    }
}
