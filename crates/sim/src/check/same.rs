//! At rest the bricks in sync are identical: trees and stamps.

use crate::world::{World, server_of};

impl World {
    pub(crate) fn check_same(&self, set: usize) -> Result<(), String> {
        let journal = self.final_journal(set);
        let view = &self.store.views[set];
        let Some(primary) = view.primary else { return Err(format!("same: set {set} has no primary")) };
        let tree = &self.servers[server_of(primary)].bricks[&set].disk.tree;
        for brick in &view.in_sync {
            let other = &self.servers[server_of(*brick)].bricks[&set].disk;
            let stamps = |j: &[crate::brick::Record]| j.iter().map(|e| e.stamp.clone()).collect::<Vec<_>>();
            if stamps(journal) != stamps(&other.journal) {
                return Err(format!("same: set {set}: the journals of {primary} and {brick} differ"));
            }
            let mut counted = other.tree.clone();
            counted.recount();
            if counted != other.tree {
                let differ = counted.differences(&other.tree);
                return Err(format!("same: set {set}: the links of {brick} are miscounted: {differ}"));
            }
            let wanted = if other.tree.arbiter { tree.bare() } else { tree.clone() };
            if wanted != other.tree {
                let differ = wanted.differences(&other.tree);
                return Err(format!("same: set {set}: the trees of {primary} and {brick} differ: {differ}"));
            }
        }
        Ok(())
    }
}
