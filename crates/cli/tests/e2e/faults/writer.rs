//! The writer: threads that change files of their own in many directories, remember every change that was acknowledged,
//! and measure how long each call took.

use crate::harness::{Mounted, TEST_TIMEOUT, files};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const THREADS: usize = 4;
/// Directories of each thread; they lie on all sets.
const DIRS: usize = 6;
/// Between two operations.
const PACE: Duration = Duration::from_millis(3);

/// A file that exists, by all that was acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Known {
    seed: u64,
    len: usize,
    mode: u32,
    note: Option<u64>,
    /// `fsync` succeeded, and nothing was changed since.
    pub(super) synced: bool,
}

/// What the acknowledged operations amount to. Paths begin at the mount.
#[derive(Default, Debug)]
pub(super) struct Model {
    pub(super) files: BTreeMap<PathBuf, Known>,
    pub(super) gone: BTreeSet<PathBuf>,
    /// What an operation that failed may have done or not.
    pub(super) uncertain: BTreeSet<PathBuf>,
    pub(super) done: u64,
}

/// The call that took longest.
#[derive(Clone, Debug, Default)]
pub(super) struct Pause {
    pub(super) took: Duration,
    pub(super) what: String,
}

struct Shared {
    top: PathBuf,
    stop: AtomicBool,
    /// Begun and ended calls of each thread.
    begun: Vec<AtomicU64>,
    ended: Vec<AtomicU64>,
    longest: Mutex<Pause>,
    failed: Mutex<Vec<String>>,
    allowed: Vec<Errno>,
    /// Power cuts so far.
    cuts: AtomicU64,
}

/// The writer, until it is stopped.
pub(super) struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Model>>,
}

impl Known {
    pub(super) fn content(&self) -> Vec<u8> {
        files::noise(self.seed, self.len)
    }

    /// What is wrong with the file there.
    pub(super) fn differs(&self, path: &Path) -> Option<String> {
        let shown = path.display();
        let seen = match files::Seen::of(path) {
            Ok(seen) => seen,
            Err(e) => return Some(format!("{shown}: {e}")),
        };
        if seen.content != self.content() {
            return Some(format!("{shown}: other content than acknowledged: {seen:?}, wanted {self:?}"));
        }
        if seen.mode != self.mode {
            return Some(format!("{shown}: mode {:o}, wanted {:o}", seen.mode, self.mode));
        }
        let mut value = [0; 8];
        let note = match rustix::fs::lgetxattr(path, "user.note", &mut value) {
            Ok(8) => Some(u64::from_le_bytes(value)),
            Err(Errno::NODATA) => None,
            other => return Some(format!("{shown}: user.note: {other:?}")),
        };
        (note != self.note).then(|| format!("{shown}: user.note is {note:?}, wanted {:?}", self.note))
    }
}

impl Writer {
    /// Begins. An operation may fail with the errors in `allowed` only.
    pub(super) fn start(mount: &Mounted, allowed: &[Errno]) -> Writer {
        let dirs = dirs();
        for dir in dirs.iter().flatten() {
            fs::create_dir(mount.dir.join(dir)).unwrap();
        }
        rustix::fs::syncfs(File::open(&mount.dir).unwrap()).unwrap();
        let counters = || (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared {
            top: mount.dir.clone(),
            stop: AtomicBool::new(false),
            begun: counters(),
            ended: counters(),
            longest: Mutex::default(),
            failed: Mutex::default(),
            allowed: allowed.to_vec(),
            cuts: AtomicU64::new(0),
        });
        let thread = |(i, dirs)| {
            let hand = Hand {
                i,
                shared: shared.clone(),
                dirs,
                dice: i as u64 + 7,
                n: 0,
                cuts: 0,
                model: Model::default(),
            };
            std::thread::spawn(move || hand.work())
        };
        let threads = dirs.into_iter().enumerate().map(thread).collect();
        let writer = Writer { shared, threads };
        writer.went_on();
        writer.longest();
        writer
    }

    /// Waits until every thread got answers to calls begun after now.
    pub(super) fn went_on(&self) {
        let before: Vec<u64> = self.shared.begun.iter().map(|n| n.load(Ordering::SeqCst)).collect();
        let until = Instant::now() + TEST_TIMEOUT + super::a_while();
        let ended = |i: usize| self.shared.ended[i].load(Ordering::SeqCst);
        while (0..THREADS).any(|i| ended(i) < before[i] + 3) {
            self.fails_not();
            assert!(Instant::now() < until, "the writer does not go on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn fails_not(&self) {
        let failed = self.shared.failed.lock().unwrap();
        assert!(failed.is_empty(), "the writer met what must not be:\n{}", failed.join("\n"));
    }

    /// The longest call since this was last asked.
    pub(super) fn longest(&self) -> Pause {
        std::mem::take(&mut self.shared.longest.lock().unwrap())
    }

    /// After a power cut: what was not synced may be gone.
    pub(super) fn forgive(&self) {
        self.shared.cuts.fetch_add(1, Ordering::SeqCst);
    }

    /// Lets every thread end after its present call.
    pub(super) fn ask_to_stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }

    /// Ends; what is known now.
    pub(super) fn stop(mut self) -> Model {
        self.ask_to_stop();
        let mut all = Model::default();
        for thread in std::mem::take(&mut self.threads) {
            let model = thread.join().expect("a thread of the writer panicked");
            all.files.extend(model.files);
            all.gone.extend(model.gone);
            all.uncertain.extend(model.uncertain);
            all.done += model.done;
        }
        self.fails_not();
        all
    }
}

impl Drop for Writer {
    /// Not joined: a call may hang until the mount goes, which goes later.
    fn drop(&mut self) {
        self.ask_to_stop();
    }
}

/// Directories, thread by thread, in an order that spreads each thread's over the sets.
fn dirs() -> Vec<Vec<PathBuf>> {
    (0..THREADS).map(|t| (0..DIRS).map(|d| PathBuf::from(format!("t{t}d{d}"))).collect()).collect()
}

/// One thread.
struct Hand {
    i: usize,
    shared: Arc<Shared>,
    dirs: Vec<PathBuf>,
    dice: u64,
    n: u64,
    cuts: u64,
    model: Model,
}

impl Hand {
    fn work(mut self) -> Model {
        while !self.shared.stop.load(Ordering::SeqCst) {
            self.once();
            std::thread::sleep(PACE);
        }
        self.model
    }

    fn draw(&mut self, below: usize) -> usize {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        usize::try_from((self.dice >> 16) % below as u64).unwrap()
    }

    /// Makes a call and measures it. `None`: it failed as it may.
    fn call<T>(
        &mut self,
        what: &str,
        path: &Path,
        call: impl FnOnce(&Path) -> std::io::Result<T>,
    ) -> Option<T> {
        let full = self.shared.top.join(path);
        self.shared.begun[self.i].fetch_add(1, Ordering::SeqCst);
        let begun = Instant::now();
        let result = call(&full);
        let took = begun.elapsed();
        self.shared.ended[self.i].fetch_add(1, Ordering::SeqCst);
        let mut longest = self.shared.longest.lock().unwrap();
        if took > longest.took {
            *longest = Pause { took, what: format!("{what} {}", path.display()) };
        }
        drop(longest);
        match result {
            Ok(value) => {
                self.model.done += 1;
                Some(value)
            }
            Err(e) => {
                let known = Errno::from_io_error(&e).is_some_and(|e| self.shared.allowed.contains(&e));
                if !known {
                    self.complain(format!("{what} {}: {e} (after {took:?})", path.display()));
                }
                self.model.uncertain.insert(path.to_path_buf());
                None
            }
        }
    }

    fn complain(&self, line: String) {
        self.shared.failed.lock().unwrap().push(line);
        self.shared.stop.store(true, Ordering::SeqCst);
    }

    fn once(&mut self) {
        let cuts = self.shared.cuts.load(Ordering::SeqCst);
        if cuts > self.cuts {
            self.cuts = cuts;
            let (kept, lost) = std::mem::take(&mut self.model.files).into_iter().partition(|(_, k)| k.synced);
            self.model.files = kept;
            let lost: BTreeMap<PathBuf, Known> = lost;
            self.model.uncertain.extend(lost.into_keys());
            self.model.uncertain.append(&mut self.model.gone);
        }
        match self.draw(16) {
            0..5 => self.create(),
            5..8 => self.overwrite(),
            8..10 => self.rename(),
            10 => self.unlink(),
            11 => self.change_mode(),
            12 => self.set_note(),
            _ => self.look(),
        }
    }

    fn new_name(&mut self) -> PathBuf {
        self.n += 1;
        let at = self.draw(self.dirs.len());
        self.dirs[at].join(format!("f{}", self.n))
    }

    fn pick(&mut self) -> Option<(PathBuf, Known)> {
        let count = self.model.files.len();
        if count == 0 {
            return None;
        }
        let at = self.draw(count);
        self.model.files.iter().nth(at).map(|(p, k)| (p.clone(), k.clone()))
    }

    fn fresh(&mut self) -> Known {
        let len = match self.draw(4) {
            0 => self.draw(100),
            1..3 => self.draw(9000),
            _ => self.draw(200_000),
        };
        Known {
            seed: (self.i as u64) << 40 | self.n << 8 | self.draw(256) as u64,
            len,
            mode: 0o644,
            note: None,
            synced: false,
        }
    }

    /// Opened and written in calls of their own, so that each is measured; then perhaps synced.
    fn fill(
        &mut self,
        path: &Path,
        mut known: Known,
        open: impl FnOnce(&Path) -> std::io::Result<File>,
    ) -> Option<Known> {
        let mut file = self.call("open", path, open)?;
        let content = known.content();
        self.call("write", path, |_| file.write_all(&content))?;
        if self.draw(2) == 0 {
            self.call("fsync", path, |_| file.sync_all())?;
            known.synced = true;
        }
        Some(known)
    }

    fn create(&mut self) {
        if self.model.files.len() > 400 {
            return self.unlink();
        }
        let path = self.new_name();
        let known = self.fresh();
        if let Some(known) = self.fill(&path, known, |p| File::options().write(true).create_new(true).open(p))
        {
            self.model.files.insert(path, known);
        }
    }

    fn overwrite(&mut self) {
        let Some((path, old)) = self.pick() else { return };
        let known = Known { mode: old.mode, note: old.note, ..self.fresh() };
        self.model.files.remove(&path);
        if let Some(known) = self.fill(&path, known, |p| File::options().write(true).truncate(true).open(p)) {
            self.model.files.insert(path, known);
        }
    }

    fn rename(&mut self) {
        let Some((path, known)) = self.pick() else { return };
        // Half of the time over another file, within the directory: others may be on other sets.
        let dir = path.parent().unwrap().to_path_buf();
        let over = self.model.files.keys().find(|p| p.parent() == Some(&dir) && **p != path).cloned();
        self.n += 1;
        let to =
            over.filter(|_| self.n.is_multiple_of(2)).unwrap_or_else(|| dir.join(format!("r{}", self.n)));
        let top = self.shared.top.clone();
        self.model.files.remove(&path);
        self.model.files.remove(&to);
        if self.call("rename", &path, |from| fs::rename(from, top.join(&to))).is_none() {
            self.model.uncertain.insert(to);
            return;
        }
        self.model.gone.remove(&to);
        self.model.gone.insert(path);
        self.model.files.insert(to, Known { synced: false, ..known });
    }

    fn unlink(&mut self) {
        let Some((path, _)) = self.pick() else { return };
        self.model.files.remove(&path);
        if self.call("unlink", &path, |p| fs::remove_file(p)).is_some() {
            self.model.gone.insert(path);
        }
    }

    fn change_mode(&mut self) {
        let Some((path, known)) = self.pick() else { return };
        let mode = if known.mode == 0o644 { 0o600 } else { 0o644 };
        self.model.files.remove(&path);
        if self.call("chmod", &path, |p| fs::set_permissions(p, Permissions::from_mode(mode))).is_some() {
            self.model.files.insert(path, Known { mode, synced: false, ..known });
        }
    }

    fn set_note(&mut self) {
        let Some((path, known)) = self.pick() else { return };
        self.n += 1;
        let note = self.n;
        self.model.files.remove(&path);
        let set = |p: &Path| {
            rustix::fs::setxattr(p, "user.note", &note.to_le_bytes(), XattrFlags::empty()).map_err(Into::into)
        };
        if self.call("setxattr", &path, set).is_some() {
            self.model.files.insert(path, Known { note: Some(note), synced: false, ..known });
        }
    }

    /// What was acknowledged is seen at once.
    fn look(&mut self) {
        let Some((path, known)) = self.pick() else { return };
        let wrong = self.call("read", &path, |p| match known.differs(p) {
            // The allowed errors of a read say nothing of the file.
            Some(why) => fs::metadata(p).map(|_| Some(why)),
            None => Ok(None),
        });
        match wrong {
            Some(Some(why)) if self.shared.allowed.is_empty() => self.complain(why),
            Some(None) => {}
            // It may have been an error in passing; the last look at everything will show.
            Some(Some(_)) if known.synced => {}
            Some(Some(_)) | None => {
                self.model.files.remove(&path);
                self.model.uncertain.insert(path);
            }
        }
    }
}
