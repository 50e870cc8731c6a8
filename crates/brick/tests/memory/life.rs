//! A brick's life: changes, syncs, kills, power cuts, and healing from a brick that went on.

use super::common::partners::*;
use super::common::*;
use super::disk::Disk;
use super::synced::Synced;
use brick::Brick;
use ids::{Epoch, Fid, Lsn};
use memory_fs::CrashRule;
use wire::op::Node;
use wire::peer::Stamp;
use wire::{Change, Errno};

pub(crate) struct Life {
    rule: CrashRule,
    world: World,
    /// The brick that the power cuts hit, and its disk.
    disk: Disk,
    brick: Option<Brick>,
    /// The brick that has everything.
    other: Brick,
    other_disk: Disk,
    epoch: Epoch,
    synced: Synced,
    trace: Vec<String>,
}

/// Files without a name.
fn orphans(b: &Brick) -> Vec<Fid> {
    b.begin_orphans().unwrap().map(|job| job.run().unwrap()).unwrap_or_default()
}

impl Drop for Life {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for line in &self.trace {
                println!("{line}");
            }
        }
    }
}

impl Life {
    pub(crate) fn new(seed: u64, rule: CrashRule) -> Life {
        let (mut disk, mut other_disk) = (Disk::new(1, rule), Disk::new(2, rule));
        let brick = disk.open().unwrap();
        let other = other_disk.open().unwrap();
        let world = World { dirs: vec![ROOT], files: vec![], rng: Rng(seed) };
        let (epoch, synced) = (Epoch(1), Synced::default());
        Life { rule, world, disk, brick: Some(brick), other, other_disk, epoch, synced, trace: vec![] }
    }

    fn below(&mut self, n: u64) -> u64 {
        self.world.rng.below(n)
    }

    fn brick(&mut self) -> &mut Brick {
        self.brick.as_mut().unwrap()
    }

    pub(crate) fn run(mut self) -> Vec<String> {
        let first = create(ROOT, "first", Node::File, 0o644);
        let (stamp, change) = decided(&mut self.other, &[], self.epoch, &first, b"").unwrap();
        self.world.learn(&change);
        self.apply_to_both(&stamp, &change, b"").unwrap();
        for _ in 0..1 + self.below(4) {
            self.work();
            if self.rule == CrashRule::Hostile {
                // Tags that are lost while what they name stays are beyond what healing repairs: not done by file systems.
                self.crash();
                self.reopen();
                self.check_after_power_cut();
                break;
            }
            match self.below(6) {
                0 => self.kill(),
                _ => self.lose_power(),
            }
            self.compare_whole();
        }
        if self.rule == CrashRule::Ordered {
            self.brick.take().unwrap().close().unwrap();
            assert_eq!(self.disk.problems(), []);
        }
        std::mem::take(&mut self.trace)
    }

    fn say(&mut self, line: impl Into<String>) {
        self.trace.push(line.into());
    }

    fn apply_to_both(&mut self, stamp: &Stamp, change: &Change, data: &[u8]) -> Result<(), Errno> {
        self.synced.changed(stamp.lsn, change);
        self.say(format!("{}.{}: {change:?}", stamp.epoch, stamp.lsn));
        self.other.apply(stamp.clone(), OP, None, change, data).unwrap();
        self.brick().apply(stamp.clone(), OP, None, change, data)
    }

    /// Changes and syncs, until an error: then the power is going.
    fn work(&mut self) {
        let steps = 1 + self.below(60);
        if self.below(2) == 0 {
            let calls = self.below(steps * 8);
            self.disk.cut_power_after(calls);
        }
        for _ in 0..steps {
            self.disk.pass_time();
            self.other_disk.pass_time();
            if self.step().is_err() {
                return;
            }
        }
        if self.below(3) == 0 {
            self.change_alone();
        }
    }

    fn step(&mut self) -> Result<(), Errno> {
        match self.below(20) {
            0 => self.brick().flush_attrs(),
            1 => self.brick().flush_some(2).map(drop),
            2 => {
                let fid = self.any_object();
                self.sync_object(fid)
            }
            3 => {
                let job = self.brick().begin_sync(None)?;
                let upto = job.run()?;
                self.synced.synced_all(upto);
                self.say(format!("synced all up to {upto}"));
                Ok(())
            }
            4 => {
                let rng = &mut self.world.rng;
                self.disk.write_back(self.rule, &mut |n| rng.below(n));
                Ok(())
            }
            5 => match orphans(&self.other).first().copied() {
                Some(fid) => {
                    let stamp = Stamp { epoch: self.epoch, lsn: self.other.last().lsn.next() };
                    self.apply_to_both(&stamp, &Change::DropOrphan { fid }, b"")
                }
                None => Ok(()),
            },
            _ => {
                let (op, data) = self.world.op();
                let files = self.world.files.clone();
                let Some((s, c)) = decided(&mut self.other, &files, self.epoch, &op, &data) else {
                    return Ok(());
                };
                self.world.learn(&c);
                self.apply_to_both(&s, &c, &data)
            }
        }
    }

    fn any_object(&mut self) -> Fid {
        let dirs = self.below(3) == 0;
        self.world.pick(dirs)
    }

    fn sync_object(&mut self, fid: Fid) -> Result<(), Errno> {
        let job = self.brick().begin_sync_of(&[fid])?;
        let upto = job.run()?;
        // The sync of what is gone brings only the record of its end to disk.
        let there = self.brick().version(fid).is_some();
        self.synced.synced_object(fid, upto, there);
        self.say(format!("synced {fid} up to {upto}"));
        Ok(())
    }

    /// Changes that no other brick has.
    fn change_alone(&mut self) {
        for _ in 0..1 + self.below(3) {
            self.disk.pass_time();
            let (op, data) = self.world.op();
            let (files, epoch) = (self.world.files.clone(), self.epoch);
            let Some((s, c)) = decided(self.brick(), &files, epoch, &op, &data) else { continue };
            self.synced.changed(s.lsn, &c);
            self.say(format!("alone {}.{}: {c:?}", s.epoch, s.lsn));
            if self.brick().apply(s, OP, None, &c, &data).is_err() {
                return;
            }
            let rng = &mut self.world.rng;
            if rng.below(3) == 0 {
                self.disk.write_back(self.rule, &mut |n| rng.below(n));
            }
        }
    }

    fn crash(&mut self) {
        self.say("crash");
        let rng = &mut self.world.rng;
        self.disk.crash(self.rule, &mut |n| rng.below(n));
        drop(self.brick.take());
    }

    fn kill(&mut self) {
        self.say("kill");
        self.disk.cut_power_after(u64::MAX);
        drop(self.brick.take());
        let opened = self.disk.open().unwrap_or_else(|e| panic!("after a kill: {e}"));
        assert!(!opened.found().rebooted);
        self.say(format!("found {:?}", opened.found()));
        self.brick = Some(opened);
        let stamp = self.next_epoch();
        self.other.apply(stamp, OP, None, &Change::Nop, b"").unwrap();
        self.heal_to_the_end();
    }

    fn lose_power(&mut self) {
        self.crash();
        self.reopen();
        self.check_after_power_cut();
        let stamp = self.next_epoch();
        self.other.apply(stamp, OP, None, &Change::Nop, b"").unwrap();
        for _ in 0..self.below(10) {
            self.other_disk.pass_time();
            let (op, data) = self.world.op();
            let files = self.world.files.clone();
            if let Some((s, c)) = decided(&mut self.other, &files, self.epoch, &op, &data) {
                self.world.learn(&c);
                self.synced.changed(s.lsn, &c);
                self.say(format!("there {}.{}: {c:?}", s.epoch, s.lsn));
                self.other.apply(s, OP, None, &c, &data).unwrap();
            }
        }
        self.heal_to_the_end();
    }

    fn next_epoch(&mut self) -> Stamp {
        self.epoch = Epoch(self.epoch.0 + 1);
        Stamp { epoch: self.epoch, lsn: self.other.last().lsn.next() }
    }

    /// Opens the brick after a power cut; the power may fail again at once.
    fn reopen(&mut self) {
        for _ in 0..self.below(3) {
            let calls = self.below(30);
            self.disk.pass_time();
            self.disk.cut_power_after(calls);
            if let Ok(opened) = self.disk.open() {
                self.brick = Some(opened);
            }
            self.crash();
        }
        self.disk.pass_time();
        let opened = self.disk.open().unwrap_or_else(|e| panic!("after a power cut: {e}"));
        self.brick = Some(opened);
    }

    fn check_after_power_cut(&mut self) {
        let Life { brick, other, synced, trace, .. } = self;
        let brick = brick.as_mut().unwrap();
        assert!(brick.found().rebooted && brick.stale_set().is_some());
        let last = brick.last();
        assert!(last.lsn >= synced.journal, "the journal ends at {}, {} is synced", last.lsn, synced.journal);
        let mut at = brick.journal_start();
        for record in brick.iterate(at).collect::<Vec<_>>() {
            assert_eq!(record.unwrap().stamp.lsn, at);
            at = at.next();
        }
        assert_eq!(at, last.lsn.next());
        let count = synced.check(other, brick);
        trace.push(format!("last {last:?}, {count} objects as synced, stale set {:?}", brick.stale_set()));
    }

    /// Heals from the other brick, with power cuts in between.
    fn heal_to_the_end(&mut self) {
        let mut cuts = self.below(3);
        loop {
            if cuts > 0 {
                let calls = self.below(200);
                self.disk.cut_power_after(calls);
            } else {
                self.disk.cut_power_after(u64::MAX);
            }
            match self.heal() {
                Ok(()) => break,
                Err(e) => {
                    assert!(cuts > 0, "healing failed: {e}");
                    cuts -= 1;
                    self.crash();
                    self.reopen();
                }
            }
        }
        self.disk.cut_power_after(u64::MAX);
        let upto = self.brick().last().lsn;
        self.synced = std::mem::take(&mut self.synced);
        self.synced.synced_all(upto);
    }

    fn heal(&mut self) -> Result<(), Errno> {
        self.disk.pass_time();
        let Life { brick, other, trace, .. } = self;
        let brick = brick.as_mut().unwrap();
        let from = brick.stale_set().map_or(Lsn(u64::MAX), |d| d.from);
        let agree = agreed(other, brick);
        let consistent_to = from.min(agree);
        let full = consistent_to.next() < other.journal_start();
        let consistent_to = if full { Lsn(0) } else { consistent_to };
        let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
        let common = if full { none } else { other.stamp_at(consistent_to).unwrap().unwrap_or(none) };
        trace.push(format!(
            "heal: stale set {:?}, agree {agree}, common {common:?}, last {:?}",
            brick.stale_set(),
            brick.last()
        ));
        let mut healing = try_accept_join(other, brick, &common, full)?;
        while let Some(question) = healing.ask(brick) {
            let (body, data) = answer(other, &question);
            let taken = try_take(&mut healing, brick, &body, &data);
            taken.inspect_err(|e| trace.push(format!("{e}: {body:?}")))?;
        }
        while healing.look_at_absent(brick)? {}
        assert!(healing.is_done(brick));
        brick.begin_end()?.run()?;
        brick.end_heal()
    }

    /// Both bricks are the same now, to those who ask and to those who look.
    fn compare_whole(&mut self) {
        self.brick().flush_attrs().unwrap();
        self.other.flush_attrs().unwrap();
        assert_eq!(self.brick().last(), self.other.last());
        let (here, there) = (self.disk.tree(), self.other_disk.tree());
        for path in here.keys().chain(there.keys()) {
            assert_eq!(here.get(path), there.get(path), "{path}: here, and there");
        }
        self.trace.push(format!("{} objects, {} unsynced", here.len(), self.disk.unsynced()));
    }
}
