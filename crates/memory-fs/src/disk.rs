//! The disk beneath: what the page cache says, what the platters say, and what is under way between them.

use crate::Draw;
use crate::image::{Image, Node, ROOT};
use crate::op::{Ino, Key, Op, PAGE};
use ids::Time;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::Errno;

/// What a crash may leave of what was not synced, and what a sync of one file takes along.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CrashRule {
    /// Like ext4 with an ordered journal: metadata survives as a prefix of its order, data that makes a file longer is there
    /// before the metadata that says so, and other data survives page by page. A sync of one file takes all metadata along.
    #[default]
    Ordered,
    /// Any part of the operations that makes sense survives; of those that change an inode itself the first ones. A sync of one file takes only that file along, and the names
    /// that lead to it, with the attributes of the directories on the way.
    Hostile,
}

/// What goes wrong on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Reads that need the disk fail so; what is in memory is read all the same.
    pub reads: Option<Errno>,
    /// Everything that changes something fails so.
    pub writes: Option<Errno>,
    /// Syncs fail so, and what they should have written is dropped, as Linux does: it stays in memory and is never written.
    pub syncs: Option<Errno>,
    /// Nothing more fits.
    pub full: bool,
    /// After so many more changes, each fails with `EIO`.
    pub writes_left: Option<u64>,
    /// After so many more changes and syncs the power is off: each fails with `EIO` and does nothing, until the crash.
    pub power_left: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    cache: Image,
    platters: Image,
    /// Operations with the times at which they were done.
    pending: VecDeque<(Op, Time)>,
    next: Ino,
    /// Open files by inode.
    open: BTreeMap<Ino, u32>,
    locks: BTreeMap<Ino, u64>,
    /// Inodes with a mark that is never on disk.
    witnesses: BTreeSet<Ino>,
    lockers: u64,
    /// Files whose data is not in memory since the last crash.
    cold: BTreeSet<Ino>,
    capacity: u64,
    /// Counts crashes: what was opened before the last crash is closed.
    boot_id: u64,
    pub(crate) now: Time,
    pub(crate) rule: CrashRule,
    pub(crate) faults: Faults,
}

/// A set of keys, in which the pages of a file and its data as a whole belong together.
#[derive(Default)]
struct Wanted {
    keys: BTreeSet<Key>,
    data: BTreeSet<Ino>,
    paged: BTreeSet<Ino>,
    /// Directories that go: each has to be empty first.
    emptied: BTreeSet<Ino>,
}

impl Wanted {
    fn touches(&self, keys: &[Key]) -> bool {
        keys.iter().any(|k| match k {
            Key::Page(ino, _) => self.data.contains(ino) || self.keys.contains(k),
            Key::Entry(dir, _) => self.emptied.contains(dir) || self.keys.contains(k),
            Key::Data(ino) => self.paged.contains(ino) || self.data.contains(ino),
            _ => self.keys.contains(k),
        })
    }

    fn add(&mut self, keys: Vec<Key>) {
        for k in keys {
            match k {
                Key::Data(ino) => drop(self.data.insert(ino)),
                Key::Page(ino, _) => drop(self.paged.insert(ino)),
                _ => {}
            }
            self.keys.insert(k);
        }
    }
}

impl Disk {
    pub(crate) fn new(capacity: u64) -> Disk {
        Disk { capacity, next: ROOT + 1, ..Disk::default() }
    }

    pub(crate) fn cache(&self) -> &Image {
        &self.cache
    }

    pub(crate) fn boot_id(&self) -> u64 {
        self.boot_id
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.pending.len()
    }

    /// A new inode's number.
    pub(crate) fn number(&mut self) -> Ino {
        self.next += 1;
        self.next - 1
    }

    /// Bytes that still fit.
    pub(crate) fn room(&self) -> u64 {
        if self.faults.full { 0 } else { self.capacity.saturating_sub(self.cache.pages() * PAGE) }
    }

    /// Before anything is changed: whether that works.
    pub(crate) fn check_write(&mut self) -> Result<(), Errno> {
        self.check_power()?;
        if let Some(left) = &mut self.faults.writes_left {
            *left = left.checked_sub(1).ok_or(Errno::EIO)?;
        }
        self.faults.writes.map_or(Ok(()), Err)
    }

    fn check_power(&mut self) -> Result<(), Errno> {
        if let Some(left) = &mut self.faults.power_left {
            *left = left.checked_sub(1).ok_or(Errno::EIO)?;
        }
        Ok(())
    }

    /// Carries an operation out in memory.
    pub(crate) fn perform(&mut self, op: Op) {
        assert!(self.cache.fits(&op), "a call only does what it has checked: {op:?}");
        self.cache.apply(&op, self.now);
        let gone = op.unlinked();
        self.pending.push_back((op, self.now));
        gone.into_iter().for_each(|ino| self.free(ino));
    }

    /// An inode that nothing leads to any more goes.
    fn free(&mut self, ino: Ino) {
        if self.cache.node(ino).is_some_and(|n| n.links() == 0) && !self.open.contains_key(&ino) {
            self.perform(Op::Free { ino });
        }
    }

    pub(crate) fn opened(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
    }

    pub(crate) fn closed(&mut self, ino: Ino, boot_id: u64) {
        if boot_id != self.boot_id {
            return;
        }
        if let Some(n) = self.open.get_mut(&ino) {
            *n -= 1;
            if *n == 0 {
                self.open.remove(&ino);
                self.free(ino);
            }
        }
    }

    /// A name for somebody who locks files.
    pub(crate) fn locker(&mut self) -> u64 {
        self.lockers += 1;
        self.lockers
    }

    pub(crate) fn lock(&mut self, ino: Ino, who: u64) -> bool {
        *self.locks.entry(ino).or_insert(who) == who
    }

    pub(crate) fn unlock(&mut self, ino: Ino, who: u64) {
        if self.locks.get(&ino) == Some(&who) {
            self.locks.remove(&ino);
        }
    }

    pub(crate) fn leave_witness(&mut self, ino: Ino) {
        self.witnesses.insert(ino);
    }

    pub(crate) fn has_witness(&self, ino: Ino) -> bool {
        self.witnesses.contains(&ino)
    }

    /// Before a file's data is read: is it in memory, and if not, can the disk be read?
    pub(crate) fn check_read(&mut self, ino: Ino, nowait: bool) -> Result<(), Errno> {
        if !self.cold.contains(&ino) {
            return Ok(());
        }
        if nowait {
            return Err(Errno::EAGAIN);
        }
        self.faults.reads.map_or(Ok(()), Err)?;
        self.cold.remove(&ino);
        Ok(())
    }

    /// Everything goes to disk.
    pub(crate) fn sync_all(&mut self) -> Result<(), Errno> {
        self.check_power()?;
        let all = vec![true; self.pending.len()];
        self.write_out(&all)
    }

    /// One file goes to disk, and whatever the rule takes along.
    pub(crate) fn sync(&mut self, ino: Ino) -> Result<(), Errno> {
        self.check_power()?;
        let along = self.cache.with_above(ino);
        let own = |op: &Op| op.inode().is_some_and(|i| along.contains(&i)) || op.is_name_of(ino);
        let ordered = self.rule == CrashRule::Ordered;
        let wanted: Vec<bool> =
            self.pending.iter().map(|(op, _)| own(op) || ordered && !op.is_data()).collect();
        let closed = self.with_causes(wanted);
        self.write_out(&closed)
    }

    /// What has to be on disk before the chosen operations, too.
    fn with_causes(&self, mut chosen: Vec<bool>) -> Vec<bool> {
        let mut wanted = Wanted::default();
        let mut moves = false;
        for ((op, _), take) in self.pending.iter().zip(chosen.iter_mut()).rev() {
            let keys = op.keys();
            let moves_dir = op.moved().iter().any(|ino| self.may_be_dir(*ino));
            if *take || wanted.touches(&keys) || moves && moves_dir {
                *take = true;
                // Where a directory goes may have been beneath it before: those moves are on disk in their order.
                moves |= moves_dir;
                wanted.add(keys);
                wanted.add(op.needs());
                wanted.emptied.extend(op.unlinked());
            }
        }
        chosen
    }

    fn may_be_dir(&self, ino: Ino) -> bool {
        self.cache.node(ino).or_else(|| self.platters.node(ino)).is_none_or(Node::is_dir)
    }

    fn write_out(&mut self, chosen: &[bool]) -> Result<(), Errno> {
        let failed = self.faults.syncs;
        let mut left = VecDeque::new();
        for ((op, time), take) in std::mem::take(&mut self.pending).into_iter().zip(chosen) {
            if !take {
                left.push_back((op, time));
            } else if failed.is_none() || !op.is_data() {
                self.reach_platters(&op, time);
            }
        }
        self.pending = left;
        failed.map_or(Ok(()), Err)
    }

    /// An operation reaches the platters, unless what it is about did not.
    fn reach_platters(&mut self, op: &Op, time: Time) {
        if self.platters.fits(op) {
            self.platters.apply(op, time);
        }
    }

    /// Which operations are on disk if the power fails now.
    fn survivors(&self, rule: CrashRule, draw: Draw<'_>) -> Vec<bool> {
        match rule {
            CrashRule::Hostile => {
                let share = draw(5);
                let drawn = self.pending.iter().map(|_| draw(4) < share).collect();
                self.with_inodes(drawn)
            }
            CrashRule::Ordered => {
                let metadata = usize::try_from(draw(self.pending.len() as u64 + 1)).unwrap_or(0);
                let share = draw(5);
                // Files whose growth has stopped.
                let mut stopped: BTreeSet<Ino> = BTreeSet::new();
                let alive = |(at, (op, _)): (usize, &(Op, Time))| match op {
                    Op::Write { ino, extends: true, .. } => {
                        if at >= metadata || draw(4) >= share {
                            stopped.insert(*ino);
                        }
                        !stopped.contains(ino)
                    }
                    Op::Write { .. } => draw(4) < share,
                    _ => at < metadata,
                };
                self.pending.iter().enumerate().map(alive).collect()
            }
        }
    }

    /// What changed an inode itself is there if something later is.
    fn with_inodes(&self, mut chosen: Vec<bool>) -> Vec<bool> {
        let mut there: BTreeSet<Ino> = BTreeSet::new();
        for ((op, _), take) in self.pending.iter().zip(chosen.iter_mut()).rev() {
            let Some(ino) = op.in_inode() else { continue };
            *take |= there.contains(&ino);
            if *take {
                there.insert(ino);
            }
        }
        chosen
    }

    pub(crate) fn write_back(&mut self, rule: CrashRule, draw: Draw<'_>) {
        let chosen = self.survivors(rule, draw);
        let chosen = self.with_causes(chosen);
        if self.faults.syncs.is_none() {
            let written = self.write_out(&chosen);
            assert!(written.is_ok(), "nothing fails");
        }
    }

    pub(crate) fn crash(&mut self, rule: CrashRule, draw: Draw<'_>) {
        let chosen = self.survivors(rule, draw);
        for ((op, time), take) in std::mem::take(&mut self.pending).into_iter().zip(chosen) {
            if take {
                self.reach_platters(&op, time);
            }
        }
        self.platters.repair();
        self.cache = self.platters.clone();
        self.cold = self.cache.files();
        self.open.clear();
        self.locks.clear();
        self.witnesses.clear();
        self.boot_id += 1;
        self.faults.power_left = None;
    }
}
