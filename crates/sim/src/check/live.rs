//! After the faults everything comes to rest: every brick in sync, every operation answered.

use crate::world::{World, server_of};
use replica::Role;

impl World {
    /// Whether a brick is not in sync.
    pub(crate) fn heals(&self) -> bool {
        self.sets.iter().zip(&self.store.views).any(|(plan, view)| view.in_sync.len() < plan.servers.len())
    }

    /// What is not at rest yet.
    pub(crate) fn unrest(&self) -> Option<String> {
        if let Some(c) = self.clients.iter().find(|c| c.waits() > 0) {
            return Some(format!("{c:?}"));
        }
        for (set, plan) in self.sets.iter().enumerate() {
            let view = &self.store.views[set];
            if view.in_sync.len() < plan.servers.len() || view.primary.is_none() {
                return Some(format!("set {set}: not all are in sync: {view:?}"));
            }
            for b in &view.in_sync {
                let brick = &self.servers[server_of(*b)].bricks[&set];
                let Some(replica) = &brick.replica else { return Some(format!("{b} is closed")) };
                let role = if view.primary == Some(*b) { Role::Primary } else { Role::Secondary };
                if replica.role() != role || replica.view().epoch != view.epoch {
                    return Some(format!("set {set}: {b} is {:?} in {:?}", replica.role(), replica.view()));
                }
                if brick.disk.mark.is_some() {
                    return Some(format!("set {set}: {b} is still in doubt"));
                }
                let behind = !brick.queue.is_empty() || replica.last() != brick.disk.last();
                if behind || (role == Role::Primary && replica.commit() != replica.last().lsn) {
                    return Some(format!("set {set}: {b} still works"));
                }
            }
        }
        None
    }
}
