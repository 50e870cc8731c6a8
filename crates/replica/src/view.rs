//! The view of a set: its epoch, its primary and its in-sync bricks.

use alloc::collections::BTreeSet;
use ids::{BrickId, Epoch};

/// A set's view as the pool store agreed on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// Grows with every change of the view.
    pub epoch: Epoch,
    /// The brick that orders changes; none while no brick may serve.
    pub primary: Option<BrickId>,
    /// The bricks that hold every acknowledged change, the primary among them.
    pub in_sync: BTreeSet<BrickId>,
    /// Those members that hold no file data and never become primary.
    pub arbiters: BTreeSet<BrickId>,
    /// Those members that are to leave the set: none of them leads if another one can.
    pub leaving: BTreeSet<BrickId>,
    /// What was acknowledged in earlier epochs is there only if it was synced: no brick came through a power cut whole.
    pub lost_before: Epoch,
    /// How many bricks must be in sync for changes to be accepted.
    pub quorum: usize,
}

impl View {
    /// Whether enough bricks are in sync to accept changes.
    pub fn has_quorum(&self) -> bool {
        self.in_sync.len() >= self.quorum.max(1)
    }

    /// The brick to follow `gone` as primary: the lowest other in-sync brick with data, one that stays if there is one.
    pub fn successor(&self, gone: BrickId) -> Option<BrickId> {
        let others = || self.in_sync.iter().copied().filter(|b| *b != gone && !self.arbiters.contains(b));
        others().find(|b| !self.leaving.contains(b)).or_else(|| others().next())
    }

    /// Whether a member holds data and is not to leave.
    pub(crate) fn stays_with_data(&self, brick: BrickId) -> bool {
        !self.arbiters.contains(&brick) && !self.leaving.contains(&brick)
    }
}
