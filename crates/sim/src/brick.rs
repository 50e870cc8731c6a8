//! A simulated brick: its disk, and what its process holds in memory.

use crate::disk::{Disk, Doubt};
use crate::tree::Tree;
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn};
use replica::healing::Healing;
use replica::{Attempts, Entry, Replica, Results};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use wire::Change;

/// A change with its data.
#[derive(Clone, Debug)]
pub(crate) struct Content(pub(crate) Rc<(Change, u64)>);

impl Content {
    pub(crate) fn new(change: Change, tag: u64) -> Content {
        Content(Rc::new((change, tag)))
    }

    pub(crate) fn change(&self) -> &Change {
        &self.0.0
    }

    pub(crate) fn tag(&self) -> u64 {
        self.0.1
    }
}

impl replica::Body for Content {
    fn touched(&self) -> Vec<Fid> {
        self.change().touched()
    }

    fn size(&self) -> usize {
        64
    }

    fn amount(&self) -> u64 {
        self.change().amount()
    }
}

pub(crate) type Record = Entry<Content>;

/// A healing under way.
pub(crate) struct Heal {
    pub(crate) inner: Healing,
    pub(crate) finishing: bool,
    /// The primary was told that all is healed.
    pub(crate) ended: bool,
    /// When the primary was last heard, on the server's clock.
    pub(crate) heard: Duration,
}

impl Heal {
    /// Since when it hears nothing from the primary that it waits for; not while it brings what it healed to disk.
    pub(crate) fn waits_since(&self) -> Option<Duration> {
        (!self.finishing || self.ended).then_some(self.heard)
    }
}

/// One brick.
pub(crate) struct Brick {
    pub(crate) id: BrickId,
    pub(crate) disk: Disk,
    /// None while the process is down.
    pub(crate) replica: Option<Replica<Content>>,
    /// With everything decided, also what is still on its way to the disk.
    pub(crate) tree: Tree,
    /// Decided, not on disk.
    pub(crate) queue: VecDeque<Record>,
    /// Events of an earlier life of the brick are void.
    pub(crate) life: u32,
    /// When the last of what was asked of the disk will be done.
    pub(crate) busy: Duration,
    /// Known to nobody but the checkers: its power was cut or its disk failed since it was last healed.
    pub(crate) torn: bool,
    pub(crate) healing: Option<Heal>,
    pub(crate) asked_to_join: Duration,
    /// Its attempts to join.
    pub(crate) attempts: Attempts,
    /// On the primary: each joining brick's attempt that was welcomed last.
    pub(crate) welcomes: BTreeMap<BrickId, u64>,
    /// Healings begun.
    pub(crate) healings: u64,
    /// The objects in doubt were told.
    pub(crate) told: bool,
    /// Known to nobody but the checkers: it can send the changes that it got after this one.
    pub(crate) keeps_after: Lsn,
}

impl Brick {
    pub(crate) fn new(id: BrickId, disk: Disk) -> Brick {
        Brick {
            id,
            tree: disk.tree.clone(),
            disk,
            replica: None,
            queue: VecDeque::new(),
            life: 0,
            busy: Duration::ZERO,
            torn: false,
            healing: None,
            asked_to_join: Duration::ZERO,
            attempts: Attempts::default(),
            welcomes: BTreeMap::new(),
            healings: 0,
            told: false,
            keeps_after: Lsn(0),
        }
    }

    /// The process is gone, or takes the brick up anew.
    pub(crate) fn close(&mut self) {
        self.replica = None;
        self.healing = None;
        self.asked_to_join = Duration::ZERO;
        self.attempts = Attempts::default();
        self.welcomes.clear();
        self.told = false;
        self.forget_queue();
    }

    /// What was not written never will be.
    pub(crate) fn forget_queue(&mut self) {
        self.queue.clear();
        self.tree = self.disk.tree.clone();
        self.life += 1;
    }

    /// What was decided goes to disk at once.
    pub(crate) fn write_queue(&mut self) {
        for entry in core::mem::take(&mut self.queue) {
            self.disk.append(entry);
        }
        self.forget_queue();
    }

    /// Opens the brick as the daemon does. `forget` and `trust` are for mutants.
    pub(crate) fn open(&mut self, floor: Epoch, forget: bool, trust: bool) {
        self.close();
        if core::mem::take(&mut self.disk.rebooted) && !trust {
            // Of what came later nothing is sure, and this is the only time that it shows.
            let objects = self.disk.mark.take().map(|m| (m.from, m.objects));
            let from = self.disk.durable();
            let (from, objects) = objects.map_or((from, Vec::new()), |(f, o)| (f.min(from), o));
            self.disk.put_mark(Some(Doubt { from, objects, trust: Lsn(0) }));
        }
        if trust {
            self.disk.put_mark(None);
        }
        self.keeps_after = self.disk.last().lsn;
        let results = if forget { Results::default() } else { self.disk.results() };
        let mut replica = Replica::new(self.id, floor, self.disk.last(), self.disk.durable(), results);
        replica.set_history(self.disk.history());
        if self.disk.mark.is_some() || self.disk.incomplete.is_some() {
            replica.set_unsure(self.disk.mark.is_some());
        }
        self.replica = Some(replica);
    }
}
