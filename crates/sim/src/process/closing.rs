//! Closing bricks. It takes a while, in which they are nobody else's; the daemon's shards do the same.

use crate::machine::ToProcess;
use crate::process::Serving;
use crate::trace::say;
use crate::world::World;
use core::cell::RefCell;
use core::time::Duration;
use ids::{BrickId, SetId};
use std::rc::Rc;

impl World {
    /// Ends service of a set at once. Everything goes to disk a while later.
    pub(crate) fn close_set(&mut self, m: usize, set: SetId, served: Rc<RefCell<Serving>>) {
        self.end_service(m, set, &served);
        self.close_brick(m, set, served);
    }

    /// Closes a brick that serves nobody: its opening was given up. The set may be served by another one by now, whose work
    /// goes on.
    pub(crate) fn close_brick(&mut self, m: usize, set: SetId, served: Rc<RefCell<Serving>>) {
        let brick = served.borrow().brick;
        let World { machines, rng, .. } = self;
        let Some(disk) = machines[m].disks.get(&brick) else { return };
        let takes = disk.closing_takes(rng);
        let Some(process) = self.process(m) else { return };
        process.closing.insert(brick, served);
        self.later(self.now + takes, m, ToProcess::Close(set, brick));
    }

    fn end_service(&mut self, m: usize, set: SetId, served: &RefCell<Serving>) {
        let mut out = Vec::new();
        served.borrow_mut().core.close(&mut out);
        for output in out {
            self.perform(self.now, m, set, output);
        }
        if let Some(process) = self.process(m) {
            process.end_works(set);
        }
    }

    /// The disk has taken everything, or cannot.
    pub(crate) fn end_closing(&mut self, m: usize, set: SetId, brick: BrickId) {
        if self.machines[m].disks.get(&brick).is_some_and(|d| d.hangs) {
            let again = self.now + Duration::from_millis(50);
            return self.later(again, m, ToProcess::Close(set, brick));
        }
        let Some(served) = self.process(m).and_then(|p| p.closing.remove(&brick)) else { return };
        let life = self.machines[m].life;
        self.shut(m, set, served);
        if self.machines[m].life == life {
            self.brick_closed(m, brick);
        }
    }

    fn shut(&mut self, m: usize, set: SetId, served: Rc<RefCell<Serving>>) {
        let mut serving = served.borrow_mut();
        let wall = self.machines[m].clock.wall(self.now);
        if let Some(disk) = self.machines[m].disks.get(&serving.brick) {
            disk.set_time(wall);
        }
        if let Err(e) = serving.core.brick_mut().shut() {
            say!(self, "server {m}: close the brick of set {set}: {e}");
        }
        let is_off = self.machines[m].disks.get(&serving.brick).is_some_and(|d| d.is_off());
        drop(serving);
        drop(served);
        if is_off {
            self.die(m);
        }
    }

    /// The brick is free for another opening, which follows if it is wanted again.
    pub(crate) fn brick_closed(&mut self, m: usize, brick: BrickId) {
        let Some(process) = self.process(m) else { return };
        if process.sets.closed(brick) {
            let known = process.known.clone();
            self.count("opened after it was closed");
            self.adopt(m, &known);
        }
    }

    /// An orderly stop: every set is closed, then the process ends.
    pub(crate) fn stop(&mut self, m: usize) {
        let Some(process) = self.process(m) else { return };
        let closing = core::mem::take(&mut process.closing);
        let sets = process.sets.stop();
        let life_before = self.machines[m].life;
        for (set, served) in sets {
            if let Some(served) = served {
                self.end_service(m, set, &served);
                self.shut(m, set, served);
                if self.machines[m].life != life_before {
                    return;
                }
            }
        }
        for served in closing.into_values() {
            let set = served.borrow().set;
            self.shut(m, set, served);
            if self.machines[m].life != life_before {
                return;
            }
        }
        self.kill(m, "stopped in order");
    }
}
