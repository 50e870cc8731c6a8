//! A machine's disk with the file system on it (crate `memory-fs`), what is wrong with it, and how long it takes.

use crate::rng::Prng;
use core::time::Duration;
use file_system::FileSystem;
use ids::Time;
use memory_fs::{CrashRule, Faults, MemoryFs};
use std::path::{Path, PathBuf};

/// Bytes of each disk: more than any run writes.
const CAPACITY: u64 = 1 << 30;

/// See the module.
pub(crate) struct Disk {
    fs: MemoryFs,
    path: PathBuf,
    faults: Faults,
    /// It answers nothing that has to wait for it.
    pub(crate) hangs: bool,
    /// How long a sync takes, at least and at most.
    sync: (Duration, Duration),
    /// How long other work takes, at most.
    pub(crate) work: Duration,
    openings: u64,
}

impl Disk {
    /// An empty disk.
    pub(crate) fn new(rng: &mut Prng, rule: CrashRule, slow_syncs: bool, path: &str) -> Disk {
        let work = rng.micros(20, 2000);
        let slow = (Duration::from_secs(4), Duration::from_secs(10));
        let sync = if slow_syncs { slow } else { (work, work * 8) };
        let path = PathBuf::from(path);
        let (faults, fs) = (Faults::default(), MemoryFs::new(CAPACITY));
        let disk = Disk { fs, path, faults, hangs: false, sync, work, openings: 0 };
        disk.prepare(rule);
        disk
    }

    fn prepare(&self, rule: CrashRule) {
        self.fs.set_rule(rule);
        assert_eq!(self.fs.make_dirs(&self.path), Ok(()), "an empty disk takes a directory");
    }

    pub(crate) fn fs(&self) -> &MemoryFs {
        &self.fs
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A number for the next opening's own random numbers.
    pub(crate) fn opening(&mut self) -> u64 {
        self.openings += 1;
        self.openings
    }

    pub(crate) fn set_time(&self, now: Time) {
        self.fs.set_time(now);
    }

    /// Changes what is wrong with the disk.
    pub(crate) fn fault(&mut self, change: impl FnOnce(&mut Faults)) {
        change(&mut self.faults);
        self.fs.set_faults(self.faults);
    }

    /// After so many more changes the power goes, in the middle of whatever is done.
    pub(crate) fn power_left(&mut self, calls: Option<u64>) {
        self.fault(|f| f.power_left = calls);
    }

    /// Whether the power went while something was done.
    pub(crate) fn is_off(&self) -> bool {
        self.fs.is_off()
    }

    /// The process that used it is gone.
    pub(crate) fn process_ended(&mut self) {
        self.faults.power_left = None;
        self.fs.set_faults(self.faults);
    }

    pub(crate) fn crash(&mut self, rule: CrashRule, rng: &mut Prng) {
        self.faults.power_left = None;
        self.fs.set_faults(self.faults);
        self.fs.crash(rule, &mut |n| rng.draw() % n.max(1));
    }

    /// Everything goes to disk.
    pub(crate) fn sync_all(&self) {
        let synced = self.fs.open_dir(Path::new("/")).and_then(|root| root.sync_all());
        assert_eq!(synced, Ok(()), "a new disk takes everything");
    }

    pub(crate) fn write_back(&mut self, rule: CrashRule, rng: &mut Prng) {
        self.fs.write_back(rule, &mut |n| rng.draw() % n.max(1));
    }

    /// It is replaced by an empty one, mounted at the same place.
    pub(crate) fn wipe(&mut self, rule: CrashRule) {
        self.fs = MemoryFs::new(CAPACITY);
        self.prepare(rule);
        self.fs.set_faults(self.faults);
    }

    /// How long a piece of work takes.
    pub(crate) fn takes(&self, rng: &mut Prng, work: &brick::Work) -> Duration {
        match work {
            brick::Work::Sync(_) | brick::Work::End(_) => rng.between(self.sync.0, self.sync.1),
            brick::Work::Read(_)
            | brick::Work::Sums(_)
            | brick::Work::List(_)
            | brick::Work::Page(_)
            | brick::Work::Hidden(_)
            | brick::Work::Walk(_) => rng.between(self.work / 8, self.work * 2),
        }
    }

    /// How long closing a brick takes: now and then longer than it is until the brick is wanted again.
    pub(crate) fn closing_takes(&self, rng: &mut Prng) -> Duration {
        if rng.chance(200) { rng.millis(1000, 8000) } else { rng.between(self.sync.0, self.sync.1) }
    }

    /// It is as it should be.
    pub(crate) fn heal(&mut self) {
        self.hangs = false;
        self.faults = Faults::default();
        self.fs.set_faults(self.faults);
    }
}
