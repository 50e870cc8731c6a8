//! What a simulated brick's disk holds, and what a crash leaves of it.
//!
//! A killed process leaves everything it wrote (the page cache lives on), the last change perhaps by half. A power cut
//! leaves what was synced, and of what came after the names as they were at some moment since, and any of the data up to
//! there; nothing that the journal has lost.

use crate::brick::Record;
use crate::rng::Prng;
use crate::tree::{Object, Tree};
use ids::{Epoch, Fid, Lsn, SetId};
use replica::{Outcome, Results};
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Errno;
use wire::peer::Stamp;

/// Every journal begins after this.
pub(crate) const FIRST: Lsn = Lsn(0);
/// Moments since the last sync to which a power cut may bring the names back.
const MOMENTS: usize = 6;

/// The mark that something may not be as the journal says, see [`replica::healing::Patient::begin_heal`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doubt {
    pub(crate) from: Lsn,
    pub(crate) objects: Vec<Fid>,
    /// Versions beyond it do not say what is in objects.
    pub(crate) trust: Lsn,
}

/// What is on its way to the disk when a sync begins.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    cut: u32,
    /// Syncs end in any order: what is on disk is the newest of each.
    number: u64,
    records: usize,
    tree: Tree,
    fid: Option<Fid>,
}

/// Pages that the kernel dropped: what the disk holds, and what memory shows until it is written anew.
type Dropped = (Vec<u64>, Rc<Object>);

/// What survives the process.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    /// From lsn `FIRST + 1` on, also what the brick has dropped: for the checkers.
    pub(crate) journal: Vec<Record>,
    /// The records that the brick has dropped.
    pub(crate) start: usize,
    pub(crate) tree: Tree,
    pub(crate) mark: Option<Doubt>,
    /// The mark was taken away, which a power cut may undo.
    old_mark: Option<Doubt>,
    /// As the brick's state file says.
    pub(crate) durable: usize,
    /// Records that a power cut leaves for certain.
    synced: usize,
    synced_tree: Tree,
    /// The syncs that brought the names there, and each file's data.
    syncs: u64,
    names_by: u64,
    data_by: BTreeMap<Fid, u64>,
    moments: Vec<(usize, Tree)>,
    dropped: BTreeMap<Fid, Dropped>,
    /// The power was cut since the brick was last opened.
    pub(crate) rebooted: bool,
    /// The file of the last record, if that was written by half.
    pub(crate) incomplete: Option<Fid>,
    /// So many writes still succeed until one fails.
    pub(crate) fails_in: Option<u32>,
    /// The numbers of the last healing's questions.
    pub(crate) asks: u64,
    /// Syncs fail.
    pub(crate) sync_fails: bool,
    /// Records kept; more are dropped from the beginning.
    keep: usize,
    /// Cuts of the journal: a sync that began before one does not count beyond it.
    cuts: u32,
}

impl Disk {
    pub(crate) fn new(set: SetId, arbiter: bool, keep: usize) -> Disk {
        let mut tree = Tree::new(set);
        tree.arbiter = arbiter;
        Disk {
            journal: Vec::new(),
            start: 0,
            tree: tree.clone(),
            mark: None,
            old_mark: None,
            durable: 0,
            synced: 0,
            synced_tree: tree,
            syncs: 0,
            names_by: 0,
            data_by: BTreeMap::new(),
            moments: Vec::new(),
            dropped: BTreeMap::new(),
            rebooted: false,
            incomplete: None,
            fails_in: None,
            asks: 0,
            sync_fails: false,
            keep,
            cuts: 0,
        }
    }

    pub(crate) fn last(&self) -> Stamp {
        self.stamp(self.journal.len())
    }

    /// The stamp after so many records.
    pub(crate) fn stamp(&self, records: usize) -> Stamp {
        let last = records.checked_sub(1).and_then(|i| self.journal.get(i));
        last.map_or(Stamp { epoch: Epoch(0), lsn: FIRST }, |e| e.stamp.clone())
    }

    pub(crate) fn at(&self, lsn: Lsn) -> Option<&Record> {
        self.journal.get(index(lsn.0.checked_sub(FIRST.0 + 1)?))
    }

    /// A power cut leaves everything up to here.
    pub(crate) fn safe(&self) -> Lsn {
        Lsn(FIRST.0 + self.synced as u64)
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn(FIRST.0 + self.durable as u64)
    }

    /// The oldest change that the brick's journal holds.
    pub(crate) fn first(&self) -> Lsn {
        Lsn(FIRST.0 + 1 + self.start as u64)
    }

    /// The brick's records from a position on.
    pub(crate) fn from(&self, lsn: Lsn) -> &[Record] {
        let i = index(lsn.0.saturating_sub(FIRST.0 + 1));
        self.journal.get(i.max(self.start)..).unwrap_or_default()
    }

    /// Records from a position on, also what the brick has dropped.
    pub(crate) fn all_from(&self, lsn: Lsn) -> &[Record] {
        self.journal.get(index(lsn.0.saturating_sub(FIRST.0 + 1))..).unwrap_or_default()
    }

    /// A write begins, and fails if this is its turn.
    pub(crate) fn try_write(&mut self) -> Result<(), Errno> {
        match &mut self.fails_in {
            Some(0) => Err(if self.journal.len().is_multiple_of(2) { Errno::ENOSPC } else { Errno::EIO }),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Journals a change.
    pub(crate) fn note(&mut self, entry: Record) {
        assert!(entry.stamp.lsn == self.last().lsn.next(), "journals have no gaps");
        assert!(entry.stamp.epoch >= self.last().epoch, "epochs grow along a journal");
        self.incomplete = None;
        self.journal.push(entry);
        let old = self.journal.len().saturating_sub(self.keep);
        // Recovery needs what is not durable, and a healing what is in doubt.
        if self.mark.is_none() {
            self.start = self.start.max(old.min(self.durable));
        }
    }

    /// Journals a change and carries it out.
    pub(crate) fn append(&mut self, entry: Record) {
        self.tree.apply(&entry.stamp, entry.body.change(), entry.body.tag());
        self.note(entry);
        self.moment();
    }

    /// The tree changed.
    pub(crate) fn moment(&mut self) {
        if self.moments.len() < MOMENTS {
            self.moments.push((self.journal.len(), self.tree.clone()));
        } else if let Some(m) = self.moments.get_mut(self.journal.len() % MOMENTS) {
            *m = (self.journal.len(), self.tree.clone());
        }
    }

    /// Cuts off what comes after so many records.
    pub(crate) fn truncate(&mut self, records: usize) {
        self.journal.truncate(records);
        self.start = self.start.min(records);
        self.synced = self.synced.min(records);
        self.durable = self.durable.min(records);
        self.moments.retain_mut(|m| {
            m.0 = m.0.min(records);
            true
        });
        self.cuts += 1;
    }

    /// A sync begins: of everything, or of one object (which takes all names with it).
    pub(crate) fn begin_sync(&mut self, fid: Option<Fid>) -> Snapshot {
        self.syncs += 1;
        Snapshot {
            number: self.syncs,
            cut: self.cuts,
            records: self.journal.len(),
            tree: self.tree.clone(),
            fid,
        }
    }

    /// A sync has ended. The position that the brick takes for durable moves only with all of it.
    pub(crate) fn synced(&mut self, s: &Snapshot) {
        if s.cut != self.cuts {
            return;
        }
        let mut tree = if s.number > self.names_by { s.tree.clone() } else { self.synced_tree.clone() };
        self.names_by = self.names_by.max(s.number);
        for (f, o) in &mut tree.objects {
            let by = self.data_by.entry(*f).or_default();
            let newer = s.fid.is_none_or(|fid| fid == *f) && s.number > *by;
            // Other files' data stays where it was.
            let from = if newer { &s.tree } else { &self.synced_tree };
            let data = from.objects.get(f).map(|o| o.data.clone()).unwrap_or_default();
            if newer {
                *by = s.number;
            }
            if o.data != data {
                Rc::make_mut(o).set_data(&data);
            }
        }
        self.dropped.retain(|fid, (old, seen)| {
            // Not written again since the kernel dropped it: it is not on disk, whatever the sync said.
            let same = s.tree.objects.get(fid).is_some_and(|o| Rc::ptr_eq(o, seen));
            if same && let Some(o) = tree.objects.get_mut(fid) {
                Rc::make_mut(o).set_data(old);
            }
            same
        });
        self.synced = self.synced.max(s.records);
        self.synced_tree = tree;
        self.moments.clear();
        self.moment();
        if s.fid.is_none() {
            self.old_mark = None;
            self.durable = self.durable.max(s.records);
        }
    }

    /// A sync failed: the kernel drops what it could not write, and says so only once.
    pub(crate) fn drop_pages(&mut self) {
        for (fid, o) in &self.tree.objects {
            let old = self.synced_tree.objects.get(fid);
            let old = old.map(|o| o.data.clone()).unwrap_or_default();
            if old != o.data {
                self.dropped.entry(*fid).or_insert((old, o.clone())).1 = o.clone();
            }
        }
    }

    pub(crate) fn put_mark(&mut self, mark: Option<Doubt>) {
        self.old_mark = if mark.is_some() { None } else { self.mark.take() };
        self.mark = mark;
    }

    /// The process was killed while it carried out `entry`: it is in the journal, its data perhaps not all in the file.
    pub(crate) fn half(&mut self, entry: Record) {
        let file = match entry.body.change() {
            wire::Change::Write { fid, .. } if !self.tree.arbiter => Some(*fid),
            _ => None,
        };
        match file.and_then(|f| self.tree.edit(f)) {
            Some(o) => {
                if let Some(b) = o.data.first_mut() {
                    *b = entry.body.tag();
                }
                self.note(entry);
                self.incomplete = file;
            }
            // Opening does the rest of it.
            None => self.append(entry),
        }
    }

    /// The power fails: what was not synced is lost, up to some point. Returns whether anything is.
    pub(crate) fn cut(&mut self, rng: &mut Prng) -> bool {
        let had = self.journal.len();
        let keep = self.synced + rng.below(self.journal.len() - self.synced + 1);
        self.journal.truncate(keep);
        self.start = self.start.min(keep);
        let now = core::mem::replace(&mut self.tree, self.synced_tree.clone());
        let moments: Vec<Tree> =
            self.moments.iter().filter(|(at, _)| *at <= keep).map(|(_, t)| t.clone()).collect();
        if let Some(tree) = rng.pick(&moments).filter(|_| rng.clone().chance(700)) {
            self.tree = tree.clone();
        }
        // Data is not ahead of the journal: a change that is in a file and in no journal would be known to nobody.
        let newest = self.moments.iter().filter(|(at, _)| *at <= keep).max_by_key(|(at, _)| *at);
        let newest = newest.map_or(&self.synced_tree, |(_, t)| t);
        for (fid, o) in &mut self.tree.objects {
            let old = self.synced_tree.objects.get(fid).map(|o| o.data.clone()).unwrap_or_default();
            let new = newest.objects.get(fid).map(|o| o.data.clone()).unwrap_or_default();
            if old != new {
                let o = Rc::make_mut(o);
                for (i, b) in o.data.iter_mut().enumerate() {
                    let from = if rng.chance(500) { &old } else { &new };
                    *b = from.get(i).copied().unwrap_or(0);
                }
            }
        }
        for (fid, (old, seen)) in &self.dropped {
            if let Some(o) = self.tree.objects.get_mut(fid)
                && now.objects.get(fid).is_some_and(|o| Rc::ptr_eq(o, seen))
            {
                Rc::make_mut(o).set_data(old);
            }
        }
        self.dropped.clear();
        if let Some(old) = self.old_mark.take().filter(|_| rng.chance(500)) {
            self.mark.get_or_insert(old);
        }
        // The state file says what it said at some time before.
        self.durable = self.durable.min(keep);
        (self.synced, self.synced_tree) = (keep, self.tree.clone());
        self.moments.clear();
        if keep < had {
            self.incomplete = None;
        }
        self.rebooted = true;
        self.cuts += 1;
        keep < had
    }

    /// What the brick's journal says of operations.
    pub(crate) fn results(&self) -> Results {
        let mut results = Results::default();
        // Also of what was dropped: real journals reach back much longer than any client waits.
        for e in &self.journal {
            let (lsn, about, amount) = (e.stamp.lsn, e.about, e.body.change().amount());
            results.record(e.op, Outcome { lsn, about, amount });
        }
        results
    }

    /// The last position of each epoch in the brick's journal.
    pub(crate) fn history(&self) -> BTreeMap<Epoch, Lsn> {
        let mut history = BTreeMap::new();
        let last = self.last();
        if last.lsn > Lsn(0) {
            history.insert(last.epoch, last.lsn);
        }
        for e in self.from(self.first()) {
            history.insert(e.stamp.epoch, e.stamp.lsn);
        }
        history
    }
}

/// A position as an index.
pub(crate) fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
