//! A volume whose shape changes under work: sets are added and taken out, bricks replaced, files moved, servers killed and
//! frozen, all at random, while three mounts change and read files and know what has to be there.
//!
//! `FAULTS_LONG=1` goes on for ten minutes instead of half a minute. The seed is drawn anew each time and printed;
//! `SHAPE_SEED=N` gives one.

mod worker;

use crate::adopt::is_sound;
use crate::faults::all_in_sync;
use crate::grow::place;
use crate::harness::files::Seen;
use crate::harness::{
    Mounted, Output, Pool, eventually, eventually_ok, eventually_ok_within, files, is_long,
};
use disk_format::tag::{Tag, XATTR};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::io::Errno;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use worker::{Known, Worker};

const SERVERS: usize = 4;
/// Not more sets than this at once.
const SETS: usize = 4;

/// What stays of a set needs places beside others. Where a brick of the set was before, and was replaced, is none yet.
const NO_PLACE: [&str; 3] = ["there is no place for", "is already brick", "no set of volume v would stay"];

/// Who changes the volume.
struct Administrator<'a> {
    pool: &'a mut Pool,
    rng: StdRng,
    /// Bricks that were ever named: each has a name of its own.
    made: usize,
    /// What was done, and how often.
    done: BTreeMap<&'static str, u32>,
}

fn is_without_place(output: &Output) -> bool {
    NO_PLACE.iter().any(|words| output.stderr.contains(words))
}

impl Administrator<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    /// The bricks, set by set.
    fn sets(&self) -> Vec<Vec<Value>> {
        let status = self.pool.status("v");
        status["bricks"].as_array().unwrap().chunks(2).map(<[Value]>::to_vec).collect()
    }

    fn all_in_sync(&self) {
        all_in_sync(self.pool);
        eventually("each set has two bricks", || {
            (self.sets().iter().all(|set| set.len() == 2)).then_some(())
        });
        self.pool.wait_in_sync();
    }

    fn new_place(&mut self, server: usize) -> String {
        self.made += 1;
        self.pool.servers[server].brick(&format!("n{}", self.made))
    }

    fn add_set(&mut self) {
        if self.sets().len() >= SETS {
            return self.replace_brick();
        }
        let first = self.below(SERVERS);
        let places = [self.new_place(first), self.new_place((first + 1) % SERVERS)];
        self.pool.ok(&format!("volume add-brick v {}", places.join(" ")));
        self.count("set added");
    }

    fn replace_brick(&mut self) {
        let sets = self.sets();
        let n = self.below(sets.len());
        let (set, which) = (&sets[n], self.below(2));
        let taken: Vec<&str> = set.iter().filter_map(|b| b["server"].as_str()).collect();
        let free: Vec<usize> =
            (0..SERVERS).filter(|s| !taken.contains(&self.pool.servers[*s].host.as_str())).collect();
        let server = free[self.below(free.len())];
        let (old, new) = (place(&set[which]), self.new_place(server));
        self.pool.ok(&format!("volume replace-brick v {old} {new}"));
        self.fault_or_none();
        eventually_ok("the new brick has taken the place", || {
            let now: Vec<String> = self.sets().iter().flatten().map(place).collect();
            if now.contains(&new) && !now.contains(&old) {
                Ok(())
            } else {
                Err(format!("{old} to {new}: {now:?}"))
            }
        });
        self.count("brick replaced");
    }

    /// Begins, and ends it when nothing more can leave, or gives it up.
    fn take_set_out(&mut self) {
        let sets = self.sets();
        if sets.len() < 2 {
            return self.add_set();
        }
        let n = self.below(sets.len());
        let words = sets[n].iter().map(place).collect::<Vec<_>>().join(" ");
        let started = self.pool.cli(&format!("volume remove-brick v {words} start"));
        if is_without_place(&started) {
            return self.add_set();
        }
        started.ok();
        self.fault_or_none();
        let until = Instant::now() + Duration::from_secs(8);
        while Instant::now() < until {
            self.all_in_sync();
            let output = self.pool.cli(&format!("volume remove-brick v {words} commit"));
            if output.code == Some(0) {
                self.fault_or_none();
                eventually_ok("the bricks are out of the volume", || {
                    let now: Vec<String> = self.sets().iter().flatten().map(place).collect();
                    let left: Vec<&String> =
                        now.iter().filter(|b| words.split(' ').any(|w| w == b.as_str())).collect();
                    if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
                });
                return self.count("set taken out");
            }
            if is_without_place(&output) {
                break;
            }
            let later = ["can still leave", "is not led by anybody"];
            assert!(later.iter().any(|why| output.stderr.contains(why)), "{output:?}");
            std::thread::sleep(Duration::from_millis(500));
        }
        self.pool.ok(&format!("volume remove-brick v {words} stop"));
        self.count("set stays");
    }

    fn rebalance(&mut self) {
        let word = ["start", "pause", "stop"][self.below(3)];
        self.pool.cli(&format!("volume rebalance v {word}"));
        self.count("rebalance told");
    }

    fn kill(&mut self) {
        let server = self.below(SERVERS);
        self.pool.kill(server);
        if self.below(2) == 0 {
            std::thread::sleep(Duration::from_millis(self.rng.random_range(0..3000)));
        }
        self.pool.start(server);
        self.count("server killed");
    }

    fn freeze(&mut self) {
        let server = self.below(SERVERS);
        self.pool.freeze(server);
        std::thread::sleep(Duration::from_millis(self.rng.random_range(100..5000)));
        self.pool.thaw(server);
        self.count("server frozen");
    }

    fn fault_or_none(&mut self) {
        match self.below(4) {
            0 => self.kill(),
            1 => self.freeze(),
            _ => {}
        }
    }

    fn act(&mut self) {
        match self.below(6) {
            0 => self.add_set(),
            1 => self.take_set_out(),
            2 => self.replace_brick(),
            3 => self.rebalance(),
            _ => self.fault_or_none(),
        }
        // One copy at a time is away: nothing acknowledged may be lost, and no call may fail.
        self.all_in_sync();
    }

    fn count(&mut self, what: &'static str) {
        *self.done.entry(what).or_default() += 1;
    }
}

/// Some passes over all directories, with the rests between them.
pub(crate) const PATHS: Duration = Duration::from_secs(150);

/// What users see is what is known, and nothing else.
fn verify(mount: &Mounted, all: &[Known]) {
    let shown = files::tree(&mount.dir);
    let mut count = 0;
    for known in all {
        for dir in known.dirs() {
            assert!(shown.get(dir).is_some_and(Seen::is_dir), "{dir:?} is gone");
            count += 1;
        }
        for (path, content, links) in known.files() {
            let seen = shown.get(path).unwrap_or_else(|| panic!("{path:?} is gone"));
            assert!(
                seen.content == content && seen.links == links as u64,
                "{path:?}: {links} links, {seen:?}"
            );
            count += 1;
        }
    }
    assert_eq!(count, shown.len(), "and nothing else");
}

/// It leads to a file of another set. Nobody sees its times.
fn is_stub(seen: &Seen) -> bool {
    seen.kind == 'f' && seen.mode == 0o1000
}

/// The trees of all bricks without stubs, one brick of each set, are what is known; the bricks of a set are the same.
fn bricks_show(sets: &[Vec<PathBuf>], all: &[Known]) -> Result<(), String> {
    let files = all.iter().flat_map(Known::files);
    let mut missing: BTreeMap<&Path, &[u8]> = files.map(|(path, content, _)| (path, content)).collect();
    // What else has that path, by brick: it is in the way.
    let mut others: BTreeMap<&Path, Vec<(&PathBuf, char)>> = BTreeMap::new();
    for set in sets {
        let trees: Vec<BTreeMap<PathBuf, Seen>> = set.iter().map(|b| files::brick_tree(b)).collect();
        for (tree, brick) in trees.iter().zip(set) {
            for path in missing.keys() {
                let held = tree.get(*path).filter(|seen| seen.is_dir() || is_stub(seen));
                held.into_iter().for_each(|seen| others.entry(*path).or_default().push((brick, seen.kind)));
            }
        }
        // What directories are like only the bricks of their own set know.
        for (path, seen) in trees.iter().flatten().filter(|(_, seen)| !seen.is_dir()) {
            let others: Vec<Option<&Seen>> = trees.iter().map(|t| t.get(path)).collect();
            let same = |o: &Seen| o == seen || is_stub(o) && is_stub(seen);
            if !others.iter().all(|o| o.is_some_and(same)) {
                return Err(format!("{path:?} differs on {set:?}: {others:?}"));
            }
        }
        for (path, seen) in trees[0].iter().filter(|(_, seen)| seen.kind == 'f' && !is_stub(seen)) {
            if missing.remove(path.as_path()) != Some(&seen.content) {
                return Err(format!("{path:?} on {set:?} is nobody's, or lies at an old path"));
            }
        }
    }
    others.retain(|path, _| missing.contains_key(path));
    let paths = missing.keys();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(format!("not on bricks: {paths:?}, where there is {others:?}"))
    }
}

/// Directories of their bricks' own sets that lie in lost+found, as nobody told where they belong. Copies of other sets'
/// directories may lie there, also of such as this set has made and given away, and so do folders of names, whose number
/// begins with a bit that others do not have.
pub(crate) fn without_place(bricks: &[Value]) -> Result<(), String> {
    for brick in bricks {
        let lost_found = Path::new(brick["path"].as_str().unwrap()).join(".mortar/limbo");
        let own = u32::try_from(brick["set"].as_u64().unwrap()).unwrap();
        let names =
            std::fs::read_dir(&lost_found).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let is_lost = |name: &String| name.as_bytes()[16] < b'8' && is_of(&lost_found.join(name), own);
        let lost: Vec<String> = names.filter(is_lost).collect();
        if !lost.is_empty() {
            return Err(format!("{lost:?} in {lost_found:?}"));
        }
    }
    Ok(())
}

/// Whether that set answers for the directory. One that has just gone is nobody's.
fn is_of(dir: &Path, set: u32) -> bool {
    let mut value = [0; 256];
    let tag = match rustix::fs::lgetxattr(dir, XATTR, &mut value[..]) {
        Ok(len) => Tag::decode(&value[..len]).unwrap(),
        Err(Errno::NOENT) => return false,
        Err(e) => panic!("{dir:?}: {e}"),
    };
    tag.home.0 == set
}

#[test]
fn a_volume_changes_its_shape_under_work() {
    let seed: u64 =
        std::env::var("SHAPE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or_else(rand::random);
    println!("SHAPE_SEED={seed}");
    let mut pool = Pool::new(SERVERS);
    pool.expect_errors(&["is not a brick", "in use by another process"]);
    pool.volume("v", 2, &[(0, "a"), (1, "a"), (2, "b"), (3, "b")]);
    pool.ok("volume set v cluster.rebalance-throttle fast");
    let mounts = [pool.mount("v"), pool.mount("v"), pool.mount("v")];
    let dirs: Vec<PathBuf> = mounts.iter().map(|m| m.dir.clone()).collect();
    let over = AtomicBool::new(false);
    let until = Instant::now() + Duration::from_secs(if is_long() { 600 } else { 30 });
    let (known, done) = std::thread::scope(|s| {
        let work = |n: u64| {
            let (dirs, over) = (dirs.clone(), &over);
            s.spawn(move || {
                let mut worker = Worker::new(&format!("w{n}"), dirs, seed.wrapping_add(n));
                while !over.load(Ordering::Relaxed) {
                    worker.step();
                }
                worker.end()
            })
        };
        let workers: Vec<_> = (0..3).map(work).collect();
        let rng = StdRng::seed_from_u64(seed);
        let mut administrator = Administrator { pool: &mut pool, rng, made: 0, done: BTreeMap::new() };
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while Instant::now() < until && !workers.iter().any(std::thread::ScopedJoinHandle::is_finished) {
                administrator.act();
            }
        }));
        over.store(true, Ordering::Relaxed);
        let known: Vec<Known> = workers.into_iter().map(|w| w.join().unwrap()).collect();
        changed.unwrap();
        (known, administrator.done)
    });
    let steps: u64 = known.iter().map(|k| k.done).sum();
    println!("{steps} steps of three workers; {done:?}");
    assert!(steps > 1000, "{steps} steps only");
    mounts.iter().for_each(|m| verify(m, &known));
    let bricks = pool.status("v")["bricks"].as_array().unwrap().clone();
    mounts.into_iter().for_each(Mounted::end);
    let paths: Vec<PathBuf> = bricks.iter().map(|b| PathBuf::from(b["path"].as_str().unwrap())).collect();
    let sets: Vec<Vec<PathBuf>> = paths.chunks(2).map(<[PathBuf]>::to_vec).collect();
    let begun = Instant::now();
    eventually_ok_within(PATHS, "no directory waits in lost+found", || without_place(&bricks));
    println!("no directory waited in lost+found after {:?}", begun.elapsed());
    eventually_ok_within(PATHS, "all lies at its path", || bricks_show(&sets, &known));
    println!("all lay at its path after {:?}", begun.elapsed());
    (0..SERVERS).for_each(|s| pool.stop(s));
    paths.iter().for_each(|brick| is_sound(brick));
    bricks_show(&sets, &known).unwrap();
}
