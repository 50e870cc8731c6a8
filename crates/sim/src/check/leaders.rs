//! At most one brick answers in an epoch, and none after its successor may have begun.

use crate::world::World;
use ids::{BrickId, Epoch};
use replica::View;
use std::collections::BTreeMap;

/// Who answered in which epoch of which set.
#[derive(Default)]
pub(crate) struct Leaders(BTreeMap<(usize, Epoch), BrickId>);

/// The rules of views.
#[derive(Default)]
pub(crate) struct Views;

impl Views {
    /// Whether a view may follow another.
    pub(crate) fn agreed(&self, old: &View, new: &View) -> Option<String> {
        let data = |b: &BrickId| !new.arbiters.contains(b);
        let ok = new.epoch == old.epoch.next()
            && new.in_sync.iter().any(data)
            && new.primary.is_none_or(|p| new.in_sync.contains(&p) && data(&p));
        (!ok).then(|| format!("views: {new:?} cannot follow {old:?}"))
    }
}

impl World {
    pub(crate) fn check_leader(&mut self, s: usize, set: usize) {
        let server = &self.servers[s];
        let lease_holds = server.clock(self.now) < server.lease;
        let Some(replica) = server.bricks.get(&set).and_then(|b| b.replica.as_ref()) else { return };
        let (me, epoch) = (server.bricks[&set].id, replica.view().epoch);
        let first = *self.checks.leaders.0.entry((set, epoch)).or_insert(me);
        if first != me {
            self.fail(|| format!("leaders: set {set}: {first} and {me} both answer in epoch {epoch}"));
        }
        // The store names another primary only when this one's lease is over or it has given up itself.
        let now = &self.store.views[set];
        let other = now.primary.filter(|p| *p != me);
        if now.epoch > epoch && (other.is_some() || !lease_holds) {
            self.fail(|| format!("leaders: set {set}: {me} answers in epoch {epoch}, replaced by {other:?}"));
        }
    }
}
