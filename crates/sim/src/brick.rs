//! A simulated brick: what its disk holds, and what its process holds in memory.
//!
//! A killed process leaves everything it wrote (the page cache lives on). A power cut leaves what was synced and some of what
//! came after.

use crate::rng::Prng;
use crate::tree::{FIRST_DIRS, Tree};
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn, SetId};
use replica::{Entry, Replica, Results};
use std::collections::VecDeque;
use std::rc::Rc;
use wire::Change;
use wire::peer::Stamp;

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
}

pub(crate) type Record = Entry<Content>;

/// What survives the process.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// From lsn `FIRST + 1` on.
    pub(crate) journal: Vec<Record>,
    pub(crate) tree: Tree,
    /// How many records a power cut leaves for certain, and the tree then.
    pub(crate) synced: usize,
    synced_tree: Tree,
}

/// Every journal begins after this.
pub(crate) const FIRST: Lsn = Lsn(FIRST_DIRS);

impl Disk {
    pub(crate) fn new(set: SetId) -> Disk {
        let tree = Tree::new(set);
        Disk { journal: Vec::new(), tree: tree.clone(), synced: 0, synced_tree: tree }
    }

    pub(crate) fn last(&self) -> Stamp {
        self.journal.last().map_or(Stamp { epoch: Epoch(0), lsn: FIRST }, |e| e.stamp.clone())
    }

    pub(crate) fn at(&self, lsn: Lsn) -> Option<&Record> {
        let i = usize::try_from(lsn.0.checked_sub(FIRST.0 + 1)?).ok()?;
        self.journal.get(i)
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(FIRST.0 + self.synced as u64)
    }

    pub(crate) fn append(&mut self, entry: Record) {
        assert!(entry.stamp.lsn == self.last().lsn.next(), "journals have no gaps");
        assert!(entry.stamp.epoch >= self.last().epoch, "epochs grow along a journal");
        self.tree.apply(entry.body.change(), entry.body.tag());
        self.journal.push(entry);
    }

    pub(crate) fn sync(&mut self, upto: usize) {
        let upto = upto.min(self.journal.len());
        for e in self.journal.get(self.synced..upto).unwrap_or_default() {
            self.synced_tree.apply(e.body.change(), e.body.tag());
        }
        self.synced = self.synced.max(upto);
    }

    /// The power fails: what was not synced is lost, up to some point. Returns whether anything is.
    pub(crate) fn cut(&mut self, rng: &mut Prng) -> bool {
        let keep = self.synced + rng.below(self.journal.len() - self.synced + 1);
        let lost = keep < self.journal.len();
        self.journal.truncate(keep);
        self.tree = self.synced_tree.clone();
        for e in self.journal.get(self.synced..).unwrap_or_default() {
            self.tree.apply(e.body.change(), e.body.tag());
        }
        lost
    }

    pub(crate) fn results(&self) -> Results {
        let mut results = Results::default();
        for e in &self.journal {
            results.record(e.op, e.stamp.lsn, e.about);
        }
        results
    }
}

/// One brick.
pub(crate) struct Brick {
    pub(crate) id: BrickId,
    pub(crate) disk: Disk,
    /// None while the process is down or not told its floor yet.
    pub(crate) replica: Option<Replica<Content>>,
    /// With everything decided, also what is still on its way to the disk.
    pub(crate) tree: Tree,
    /// Decided, not on disk.
    pub(crate) queue: VecDeque<Record>,
    /// Events of an earlier life of the brick are void.
    pub(crate) life: u32,
    /// When the last of what was asked of the disk will be done.
    pub(crate) busy: Duration,
    pub(crate) floor: Epoch,
    pub(crate) diverged: bool,
    /// The power was cut since it was last known to be whole.
    pub(crate) torn: bool,
    /// So many changes still apply until one fails.
    pub(crate) fails_in: Option<u32>,
    pub(crate) sync_fails: bool,
    /// Pages were dropped after a failed sync: later syncs succeed, and mean nothing.
    pub(crate) rotten: bool,
}

impl Brick {
    pub(crate) fn new(id: BrickId, set: SetId) -> Brick {
        let disk = Disk::new(set);
        Brick {
            id,
            tree: disk.tree.clone(),
            disk,
            replica: None,
            queue: VecDeque::new(),
            life: 0,
            busy: Duration::ZERO,
            floor: Epoch(0),
            diverged: false,
            torn: false,
            fails_in: None,
            sync_fails: false,
            rotten: false,
        }
    }

    /// The process is gone, or takes the brick up anew.
    pub(crate) fn close(&mut self) {
        self.replica = None;
        self.forget_queue();
        self.diverged = false;
    }

    /// What was not written never will be.
    pub(crate) fn forget_queue(&mut self) {
        self.queue.clear();
        self.tree = self.disk.tree.clone();
        self.life += 1;
    }

    pub(crate) fn open(&mut self, floor: Epoch, forget: bool) {
        self.close();
        self.rotten = false;
        let results = if forget { Results::default() } else { self.disk.results() };
        self.floor = floor;
        self.replica = Some(Replica::new(self.id, floor, self.disk.last(), self.disk.durable(), results));
    }
}
