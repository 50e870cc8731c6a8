//! Magic in place of healing: a brick out of sync becomes its primary's copy between two steps, and the view that names it in
//! sync is agreed on in the same instant. Real healing replaces [`World::heal`], and nothing else.

use crate::log::say;
use crate::world::{Event, World, server_of};
use core::time::Duration;
use ids::BrickId;
use replica::{Input, Role, View};

impl World {
    pub(crate) fn heal_tick(&mut self) {
        let pause = if self.calm { 300 } else { 900 };
        self.after(Duration::from_millis(pause), Event::Heal);
        if self.store.down {
            return;
        }
        for set in 0..self.sets.len() {
            let out: Vec<BrickId> =
                self.servers.iter().filter_map(|s| s.bricks.get(&set)).map(|b| b.id).collect();
            let view = &self.store.views[set];
            let out = out.into_iter().find(|b| !view.in_sync.contains(b) && self.can_talk(*b));
            if let Some(brick) = out
                && (self.calm || self.rng.chance(self.faults.heals))
            {
                self.heal(set, brick);
            }
        }
    }

    fn can_talk(&self, brick: BrickId) -> bool {
        self.is_up(brick) && !self.servers[server_of(brick)].cut
    }

    /// Makes `brick` a copy of its set's primary and in sync.
    fn heal(&mut self, set: usize, brick: BrickId) {
        let view = self.store.views[set].clone();
        let Some(primary) = view.primary.filter(|p| self.can_talk(*p)) else { return };
        let source = &self.servers[server_of(primary)].bricks[&set];
        let leads = |r: &&replica::Replica<_>| r.role() == Role::Primary && r.view().epoch == view.epoch;
        if source.replica.as_ref().filter(leads).is_none() {
            return;
        }
        say!(self, "set {set}: {brick} becomes a copy of {primary}");
        let mut disk = source.disk.clone();
        for entry in &source.queue {
            disk.append(entry.clone());
        }
        disk.sync(disk.journal.len());
        let s = server_of(brick);
        if let Some(target) = self.brick(s, set) {
            target.disk = disk;
            target.torn = false;
            target.open(view.epoch, false);
        }
        self.store.healed(brick);
        // What a primary that was alone still has after a power cut is the truth.
        self.store.healed(primary);
        self.brick(server_of(primary), set).into_iter().for_each(|b| b.torn = false);
        let mut next = View { epoch: view.epoch.next(), ..view };
        next.in_sync.insert(brick);
        self.agree(set, next.clone(), "healed");
        let lease = self.servers[s].lease;
        self.step(s, set, Input::Lease(lease));
        self.step(s, set, Input::View(next.clone()));
        self.step(server_of(primary), set, Input::View(next));
    }
}
