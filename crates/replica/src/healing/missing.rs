//! Objects that were not found, here or at the primary: where a name turns out to lead to one it is healed.

use super::HealSession;
use alloc::collections::BTreeMap;
use ids::Fid;
use wire::Change;

/// Those objects; true for one that the primary said it has.
#[derive(Clone, Debug, Default)]
pub(super) struct Missing(BTreeMap<Fid, bool>);

impl Missing {
    /// The last answer counts: the object may have been removed since the one before.
    pub(super) fn add(&mut self, fid: Fid, owed: bool) {
        self.0.insert(fid, owed);
    }

    /// A name leads to it. True if it was missing.
    pub(super) fn remove(&mut self, fid: Fid) -> bool {
        self.0.remove(&fid).is_some()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn holds_any(&self, change: &Change) -> bool {
        !self.0.is_empty() && change.touched().iter().any(|fid| self.0.contains_key(fid))
    }
}

impl HealSession {
    /// Whether the healing ends without an object that the primary has: no name that was compared leads to it. The
    /// index of this brick has lost it, and what is known of the changes that were missed does not bring it back.
    pub fn lacks(&self) -> Option<Fid> {
        self.missing.0.iter().find(|(_, owed)| **owed).map(|(fid, _)| *fid)
    }
}
