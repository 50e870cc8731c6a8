//! Sets to which files go run full while files are copied there (gluster/glusterfs 3309, 4703, 879; 4148, 1625, 942): what does
//! not get there goes elsewhere, or stays as it was.

use crate::adopt::is_sound;
use crate::data_loss_reports::program;
use crate::drain::drain_set;
use crate::grow::words;
use crate::harness::{Disk, Mounted, Pool, TEST_TIMEOUT, eventually_ok_within, eventually_within, files};
use crate::moved_whole::{Whole, Xattrs, make_all, whole};
use rustix::fs::{FallocateFlags, FlockOperation, XattrFlags};
use rustix::io::Errno;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The set that is emptied, the one that runs full, and one with room.
const BRICKS: [(usize, &str); 3] = [(0, "disk/a"), (1, "disk/b"), (2, "disk/c")];
const KIB: usize = 1 << 10;
/// How fast files move beside other tests is not at issue.
const LONG: Duration = Duration::from_secs(120);

/// A volume of one set, on a disk, and disks for the others.
fn pool_of(sizes: &[u64]) -> Pool {
    let mut pool = Pool::new(sizes.len());
    pool.expect_errors(&["is not a brick", "no space left"]);
    for (server, mib) in sizes.iter().enumerate() {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4 -b 4096", &dir, *mib));
    }
    pool.volume("v", 1, &BRICKS[..1]);
    pool.ok("volume set v cluster.rebalance-throttle fast");
    pool
}

fn status(pool: &Pool) -> Value {
    drain_set(pool, &BRICKS[..1], "status")["moved"].clone()
}

/// Bytes of files beneath a brick, those whose names are all in directories of other sets included.
fn held(brick: &Path) -> usize {
    let trees = [brick.to_path_buf(), brick.join(".mortar/limbo")].map(|top| files::brick_tree(&top));
    trees.iter().flat_map(|t| t.values()).filter(|seen| seen.kind == 'f').map(|seen| seen.content.len()).sum()
}

/// The disk has no more room than so many bytes until this file is removed.
fn ballast(disk: &Disk, but: u64) -> PathBuf {
    let path = disk.dir.join("ballast");
    let file = File::create(&path).unwrap();
    for at in 0.. {
        let room = rustix::fs::statvfs(&disk.dir).unwrap();
        let taken = (room.f_bavail * room.f_frsize).saturating_sub(but);
        // Others take room meanwhile.
        let more = rustix::fs::fallocate(&file, FallocateFlags::empty(), at << 30, taken.max(1));
        if taken == 0 || more.is_ok() && but > 0 {
            break;
        }
    }
    path
}

/// The second set gets full but for so many bytes in the midst of copies, and stays so as long as that file is there. Where there is a
/// third set, it gets what the second one does not.
fn empty_until_a_target_is_full(pool: &Pool, but: u64) -> PathBuf {
    drain_set(pool, &BRICKS[..1], "start");
    let third = pool.paths(&BRICKS[2..pool.servers.len()]);
    eventually_ok_within(LONG, "some files get there", || {
        let now = status(pool);
        if now["files"].as_u64() > Some(5) { Ok(()) } else { Err(now.to_string()) }
    });
    let taken = ballast(&pool.disks[1], but);
    eventually_within(LONG, "some do not", || match third.first() {
        Some(third) => (held(third) > 100 * KIB).then_some(()),
        None => status(pool)["problem"].as_str().filter(|why| why.contains("ENOSPC")).map(drop),
    });
    taken
}

fn all_leave(pool: &Pool) {
    let from = pool.paths(&BRICKS[..1])[0].clone();
    eventually_ok_within(LONG, "all have left", || {
        let (held, moved) = (held(&from), status(pool));
        let done = held == 0 && moved["none_can_move"] == true;
        if done { Ok(()) } else { Err(format!("{held} bytes are left: {moved}")) }
    });
}

fn is_whole(mount: &Mounted, before: &Whole) {
    let shown = whole(&mount.dir);
    for (path, seen) in before {
        let now = shown.get(path).unwrap_or_else(|| panic!("{path:?} is gone"));
        let names = |(_, attributes): &(files::Seen, Xattrs)| {
            attributes.keys().map(|name| String::from_utf8_lossy(name).into_owned()).collect::<Vec<_>>()
        };
        assert!(now == seen, "{path:?}: {:?} {:?}, before {:?} {:?}", now.0, names(now), seen.0, names(seen));
    }
}

const DIRS: usize = 6;
/// Files of each directory that nobody changes, and those that are renamed, counted in and removed.
const FIXED: usize = 50;
const RENAMED: usize = 6;
const COUNTERS: usize = 4;
const REMOVED: usize = 12;

fn fixed(d: usize, f: usize) -> Vec<u8> {
    files::noise((d * FIXED + f) as u64, 60 * KIB + 7 * f)
}

/// What a name of each kind of files holds at first.
fn other(d: usize, name: &str) -> Vec<u8> {
    files::noise(name.bytes().fold(d as u64, |sum, b| 31 * sum + u64::from(b)), 40 * KIB)
}

fn make(mount: &Mounted) -> Vec<PathBuf> {
    let dirs: Vec<PathBuf> = (0..DIRS).map(|d| mount.path(&format!("d{d}"))).collect();
    for (d, dir) in dirs.iter().enumerate() {
        fs::create_dir(dir).unwrap();
        for f in 0..FIXED {
            let path = dir.join(format!("f{f}"));
            fs::write(&path, fixed(d, f)).unwrap();
            std::os::unix::fs::chown(&path, Some(1000 + f as u32), Some(7)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o4700 + f as u32)).unwrap();
            rustix::fs::setxattr(&path, "user.n", &f.to_le_bytes(), XattrFlags::empty()).unwrap();
        }
        for (kind, many) in [("r", RENAMED), ("x", REMOVED)] {
            for name in (0..many).map(|n| format!("{kind}{n}")) {
                fs::write(dir.join(&name), other(d, &name)).unwrap();
            }
        }
        for n in 0..COUNTERS {
            fs::write(dir.join(format!("c{n}")), [0; 8]).unwrap();
        }
        // Half of the directories go with all that is in them.
        if d % 2 == 0 {
            fs::create_dir(dir.join("deeper")).unwrap();
        }
    }
    dirs
}

/// No call may take longer than what a loaded machine explains: one that waits for a lock which nobody gives back does.
fn timed<T>(what: &str, call: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = call();
    assert!(begun.elapsed() < TEST_TIMEOUT, "{what} took {:?}", begun.elapsed());
    done
}

/// Whether it was done. A set that is full says so.
fn is_done(result: io::Result<()>, what: &str) -> bool {
    let full = Err(Some(Errno::NOSPC.raw_os_error()));
    let told = result.map_err(|e| e.raw_os_error());
    assert!(told == Ok(()) || told == full, "{what}: {told:?}");
    told.is_ok()
}

/// A name of another mount leads to what was there under the old one, and the old one is gone; all the time to one of both.
fn rename(dir: &Path, d: usize, n: usize) {
    for r in 0..RENAMED {
        let names = [format!("r{r}"), format!("s{r}")];
        let [r, s] = names.each_ref().map(|name| dir.join(name));
        let (from, to) = if n.is_multiple_of(2) { (&r, &s) } else { (&s, &r) };
        // It was refused before.
        if !from.exists() {
            continue;
        }
        if timed("rename", || is_done(fs::rename(from, to), "rename")) {
            assert!(!from.exists(), "{from:?} is there still");
            assert!(fs::read(to).unwrap() == other(d, &names[0]), "{to:?}");
        } else {
            assert!(fs::read(from).unwrap() == other(d, &names[0]), "{from:?}");
        }
    }
}

/// Counts under a lock; how often that was done.
fn count(dir: &Path) -> usize {
    let add_one = |n: usize| {
        let path = dir.join(format!("c{n}"));
        let file = timed("open", || OpenOptions::new().read(true).write(true).open(&path)).unwrap();
        timed("lock", || rustix::fs::flock(&file, FlockOperation::LockExclusive)).unwrap();
        let mut now = [0; 8];
        file.read_exact_at(&mut now, 0).unwrap();
        let more = u64::from_le_bytes(now) + 1;
        timed("write", || is_done(file.write_all_at(&more.to_le_bytes(), 0), "write"))
    };
    (0..COUNTERS).filter(|n| add_one(*n)).count()
}

/// Each file that nobody changes is there once, and whole.
fn look(dir: &Path, d: usize, n: usize) {
    let names = timed("list", || files::names(dir));
    for f in 0..FIXED {
        let name = format!("f{f}");
        assert_eq!(names.iter().filter(|n| **n == name).count(), 1, "{name} in {dir:?}");
    }
    let f = n % FIXED;
    assert!(timed("read", || fs::read(dir.join(format!("f{f}")))).unwrap() == fixed(d, f), "f{f} of {dir:?}");
}

/// Programs of two mounts.
struct Programs {
    stop: Arc<AtomicBool>,
    running: Vec<JoinHandle<usize>>,
    counted: Arc<std::sync::Mutex<Vec<usize>>>,
}

impl Programs {
    fn start(one: Vec<PathBuf>, two: Vec<PathBuf>) -> Programs {
        let stop = Arc::new(AtomicBool::new(false));
        let counted = Arc::new(std::sync::Mutex::new(vec![0; DIRS]));
        let each = |dirs: &[PathBuf], work: fn(&Path, usize, usize)| {
            let dirs = dirs.to_vec();
            program(&stop, move |n| dirs.iter().enumerate().for_each(|(d, dir)| work(dir, d, n)))
        };
        let counts = || {
            let (dirs, counted) = (one.clone(), counted.clone());
            program(&stop, move |n| {
                let d = n % DIRS;
                let done = count(&dirs[d]);
                counted.lock().unwrap()[d] += done;
            })
        };
        let remove = |dir: &Path, _: usize, n: usize| {
            if n < REMOVED {
                let path = dir.join(format!("x{n}"));
                timed("remove", || fs::remove_file(&path)).unwrap();
                assert!(!path.exists(), "{path:?} is there still");
            }
        };
        let running = vec![each(&two, rename), each(&two, remove), each(&two, look), counts(), counts()];
        Programs { stop, running, counted }
    }

    /// What they left is there through any mount, and nothing else.
    fn end(self, mounts: &[&Mounted]) {
        self.stop.store(true, Ordering::Relaxed);
        let rounds: Vec<usize> = self.running.into_iter().map(|program| program.join().unwrap()).collect();
        let counted = self.counted.lock().unwrap().clone();
        println!("rounds of programs: {rounds:?}, counted {counted:?}");
        for mount in mounts {
            for (d, counted) in counted.iter().enumerate() {
                let dir = mount.path(&format!("d{d}"));
                let names = files::names(&dir);
                let without = names.iter().filter(|name| !name.starts_with('x')).count();
                assert_eq!(names.len(), without, "what was removed is back: {names:?}");
                assert_eq!(names.len(), FIXED + RENAMED + COUNTERS + usize::from(d % 2 == 0), "{names:?}");
                for r in 0..RENAMED {
                    let found = [format!("r{r}"), format!("s{r}")].map(|name| fs::read(dir.join(name)).ok());
                    let there: Vec<Vec<u8>> = found.into_iter().flatten().collect();
                    assert!(there == [other(d, &format!("r{r}"))], "r{r} of {dir:?} is there once");
                }
                let now = (0..COUNTERS).map(|n| fs::read(dir.join(format!("c{n}"))).unwrap());
                let sum: u64 = now.map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap())).sum();
                assert_eq!(sum, *counted as u64, "what was counted in {dir:?}");
            }
        }
    }
}

/// A set is emptied into two others, of which the roomier one runs full, while programs rename, lock, remove, list and
/// read what moves: all of it leaves, and is there once.
#[test]
fn one_of_two_targets_runs_full() {
    let mut pool = pool_of(&[200, 360, 200]);
    // Mortar itself takes no room of a disk that has less.
    pool.ok("volume set v cluster.min-free-disk 10%");
    let (one, two) = (pool.mount("v"), pool.mount("v"));
    let dirs = make(&one);
    let before: Whole =
        whole(&one.dir).into_iter().filter(|(path, _)| path.to_str().unwrap().contains("/f")).collect();
    assert_eq!(before.len(), DIRS * FIXED);
    pool.ok(&format!("volume add-brick v {}", words(&pool, &BRICKS[1..])));
    let programs = Programs::start(dirs, (0..DIRS).map(|d| two.path(&format!("d{d}"))).collect());
    let taken = empty_until_a_target_is_full(&pool, 28 << 20);
    programs.end(&[&one, &two]);
    all_leave(&pool);
    let there = pool.paths(&BRICKS).iter().map(|brick| held(brick)).collect::<Vec<_>>();
    println!("bytes of files on each set: {there:?}");
    assert!(there[1..].iter().all(|held| *held > 100 * KIB), "either set got some: {there:?}");
    fs::remove_file(taken).unwrap();
    let new = pool.mount("v");
    [&one, &two, &new].into_iter().for_each(|mount| is_whole(mount, &before));
    (0..DIRS).for_each(|d| fs::remove_dir_all(new.path(&format!("d{d}"))).unwrap());
    [one, two, new].into_iter().for_each(Mounted::end);
    (0..3).for_each(|s| pool.stop(s));
    pool.paths(&BRICKS).iter().for_each(|brick| is_sound(brick));
}

/// The only set to which files could go runs full, to the last byte, and the drain is given up: those that stay are as they were, as
/// are those that went. So are all when they have left.
#[test]
fn attributes_stay_when_moves_fail_for_want_of_room() {
    let mut pool = pool_of(&[120, 120]);
    pool.expect_errors(&["ENOSPC", "could not be applied"]);
    let mount = pool.mount("v");
    for top in (0..8).map(|n| mount.path(&format!("t{n}"))) {
        fs::create_dir(&top).unwrap();
        make_all(&top);
    }
    let before = whole(&mount.dir);
    pool.ok(&format!("volume add-brick v {}", words(&pool, &BRICKS[1..2])));
    let taken = empty_until_a_target_is_full(&pool, 0);
    drain_set(&pool, &BRICKS[..1], "stop");
    // Copies that wait for their names need some room.
    fs::remove_file(taken).unwrap();
    let new = pool.mount("v");
    [&mount, &new].into_iter().for_each(|mount| is_whole(mount, &before));
    assert!(held(&pool.paths(&BRICKS[..1])[0]) > 0, "not all have left");
    drain_set(&pool, &BRICKS[..1], "start");
    all_leave(&pool);
    for mount in [&mount, &new] {
        is_whole(mount, &before);
        assert_eq!(whole(&mount.dir).len(), before.len());
    }
    [mount, new].into_iter().for_each(Mounted::end);
    (0..2).for_each(|s| pool.stop(s));
    pool.paths(&BRICKS[..2]).iter().for_each(|brick| is_sound(brick));
}
