//! What was reported of data that GlusterFS lost while files moved between bricks, as what programs do and see here. Reports are
//! those of github.com/gluster/glusterfs. Others of them are told where they are tested: hard links during remove-brick (1530,
//! 1540) and a server that is killed while a set is emptied (1815) in `drain`, a target that is full for a while and kills during a
//! rebalance in `rebalance`.

use crate::adopt::is_sound;
use crate::drain::{await_out, drain_set};
use crate::faults::all_in_sync;
use crate::faults::disks::FAILS;
use crate::grow::words;
use crate::harness::{Disk, Mounted, Pool, eventually, eventually_ok_within, files};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const MIB: usize = 1 << 20;

/// Something that a program does again and again, with the number of the round; how many there were is known at the end.
pub(crate) fn program(
    stop: &Arc<AtomicBool>,
    mut round: impl FnMut(usize) + Send + 'static,
) -> JoinHandle<usize> {
    let stop = stop.clone();
    thread::spawn(move || {
        let mut rounds = 0;
        while rounds < 20 || !stop.load(Ordering::Relaxed) {
            round(rounds);
            rounds += 1;
            thread::sleep(Duration::from_millis(5));
        }
        rounds
    })
}

/// Each name is there once, and what it leads to is the whole content that was written last.
fn holds(dir: &Path, name: &str, content: &[u8]) {
    assert_eq!(files::names(dir).iter().filter(|n| *n == name).count(), 1, "{name} in {dir:?}");
    assert!(fs::read(dir.join(name)).unwrap() == content, "{name} in {dir:?} is not what was written");
}

/// Files of each directory when the programs begin, and bytes of each.
const FILES: usize = 40;
const LEN: usize = 20_000;

/// Programs that rename files onto each other (2568: duplicates; 1265, 1811: renames that fail), write to them, through an open
/// file too (308: a copy takes the place of what was written; 963: two files for a while), and add new ones (885, 4148: files
/// that are gone afterwards). Another mount reads names whose files are replaced (900).
struct Programs {
    dirs: Vec<PathBuf>,
    stop: Arc<AtomicBool>,
    /// Logs put aside, files replaced, records, new files, writes through an open file, reads.
    running: [JoinHandle<usize>; 6],
}

impl Programs {
    fn start(dirs: Vec<PathBuf>, others: Vec<PathBuf>) -> Programs {
        for dir in &dirs {
            fs::create_dir(dir).unwrap();
            for f in 0..FILES {
                fs::write(dir.join(format!("old{f}")), files::noise(f as u64, LEN)).unwrap();
            }
            for log in ["log", "log.1"] {
                fs::write(dir.join(log), "0").unwrap();
            }
            fs::write(dir.join("all"), files::noise(0, 9000)).unwrap();
        }
        let shared: Vec<File> = dirs.iter().map(|dir| File::create(dir.join("shared")).unwrap()).collect();
        let stop = Arc::new(AtomicBool::new(false));
        let programs = |work: fn(&Path, usize)| {
            let dirs = dirs.clone();
            program(&stop, move |n| dirs.iter().for_each(|dir| work(dir, n)))
        };
        let with_open_file = dirs.clone();
        let running = [
            programs(put_log_aside),
            programs(replace_all),
            programs(add_record),
            programs(|dir, n| fs::write(dir.join(format!("new{n}")), files::noise(n as u64, 700)).unwrap()),
            program(&stop, move |n| {
                with_open_file.iter().zip(&shared).for_each(|(dir, shared)| write_shared(dir, shared, n));
            }),
            program(&stop, move |_| others.iter().for_each(|dir| read_all(dir))),
        ];
        Programs { dirs, stop, running }
    }

    /// All that they were told is there, and nothing else.
    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        let [logs, alls, records, news, rounds, _reads] = self.running.map(|program| program.join().unwrap());
        for dir in &self.dirs {
            holds(dir, "log", logs.to_string().as_bytes());
            holds(dir, "log.1", (logs - 1).to_string().as_bytes());
            holds(dir, "all", &files::noise(alls as u64 - 1, 9000));
            holds(dir, "shared", &(rounds - 1).to_le_bytes());
            for f in 0..FILES {
                let more = records / FILES + usize::from(f < records % FILES);
                let content = [files::noise(f as u64, LEN), vec![7; 100 * more]].concat();
                holds(dir, &format!("old{f}"), &content);
            }
            (0..news).for_each(|n| holds(dir, &format!("new{n}"), &files::noise(n as u64, 700)));
            assert_eq!(files::names(dir).len(), 4 + FILES + news, "nothing else is there");
        }
    }
}

fn path(brick: &Value) -> PathBuf {
    PathBuf::from(brick["path"].as_str().unwrap())
}

/// A log is put aside for a new one.
fn put_log_aside(dir: &Path, n: usize) {
    fs::rename(dir.join("log"), dir.join("log.1")).unwrap();
    fs::write(dir.join("log"), format!("{}", n + 1)).unwrap();
    assert_eq!(fs::read_to_string(dir.join("log.1")).unwrap(), n.to_string(), "{dir:?}");
}

/// Files that are written apart take the place of one.
fn replace_all(dir: &Path, n: usize) {
    let (new, all) = (dir.join(format!("all.{n}")), files::noise(n as u64, 9000));
    fs::write(&new, &all).unwrap();
    fs::rename(&new, dir.join("all")).unwrap();
    assert!(fs::read(dir.join("all")).unwrap() == all, "{dir:?}");
}

/// Whoever opens the name meanwhile finds one of the files, whole.
fn read_all(dir: &Path) {
    let all = fs::read(dir.join("all")).unwrap();
    assert_eq!(all.len(), 9000, "{dir:?}");
}

/// A record is added to a file now and then.
fn add_record(dir: &Path, n: usize) {
    let path = dir.join(format!("old{}", n % FILES));
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&[7; 100]).unwrap();
    let len = fs::metadata(&path).unwrap().len();
    assert_eq!(len as usize, LEN + 100 * (n / FILES + 1), "{path:?}");
}

/// What is written through an open file is read through another one.
fn write_shared(dir: &Path, shared: &File, n: usize) {
    shared.write_all_at(&n.to_le_bytes(), 0).unwrap();
    let other = File::open(dir.join("shared")).unwrap();
    let mut back = [0; 8];
    other.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(usize::from_le_bytes(back), n, "what was written through another open file");
}

/// Files of a set leave it while programs work on them, and go on over the end of it: what has not moved goes along with the brick.
#[test]
fn programs_rename_write_and_add_files_that_move() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick"]);
    let bricks = [(0, "a"), (1, "b"), (2, "c")];
    pool.volume("v", 1, &bricks);
    let (mount, other) = (pool.mount("v"), pool.mount("v"));
    let dirs = |mount: &Mounted| (0..9).map(|d| mount.path(&format!("d{d}"))).collect::<Vec<_>>();
    let programs = Programs::start(dirs(&mount), dirs(&other));
    pool.ok("volume set v cluster.rebalance-throttle fast");
    let gone = (0..3)
        .find(|s| (0..9).any(|d| pool.servers[*s].path(&format!("{}/d{d}/old0", bricks[*s].1)).exists()));
    let gone = bricks[gone.unwrap()];
    drain_set(&pool, &[gone], "start");
    eventually("many files move", || {
        (drain_set(&pool, &[gone], "status")["moved"]["files"].as_u64()? >= 2 * FILES as u64).then_some(())
    });
    drain_set(&pool, &[gone], "force");
    await_out(&pool, &[pool.servers[gone.0].brick(gone.1)]);
    fs::remove_dir_all(pool.servers[gone.0].path(gone.1)).unwrap();
    let bricks: Vec<PathBuf> = pool.status("v")["bricks"].as_array().unwrap().iter().map(path).collect();
    programs.end();
    dirs(&mount).iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    mount.end();
    other.end();
    (0..3).for_each(|s| pool.stop(s));
    bricks.iter().for_each(|brick| is_sound(brick));
}

/// A full set gets company, and files move there while programs work on them.
#[test]
fn programs_work_while_a_new_set_gets_its_share() {
    let mut pool = Pool::new(2);
    pool.expect_errors(&["is not a brick"]);
    let bricks = [(0, "disk/a"), (1, "disk/b")];
    for (server, _) in bricks {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 128));
    }
    pool.volume("v", 1, &bricks[..1]);
    let (mount, other) = (pool.mount("v"), pool.mount("v"));
    let dirs = |mount: &Mounted| (0..9).map(|d| mount.path(&format!("d{d}"))).collect::<Vec<_>>();
    let programs = Programs::start(dirs(&mount), dirs(&other));
    pool.ok("volume set v cluster.rebalance-throttle fast");
    pool.ok(&format!("volume add-brick v {}", words(&pool, &bricks[1..])));
    pool.ok("volume rebalance v start");
    let told = || pool.json("volume rebalance v status");
    eventually("no set is clearly fuller", || {
        let told = told();
        let moved = told["moved"]["files"].as_u64()?;
        (moved > FILES as u64 && told["plan"].as_array()?.is_empty()).then_some(())
    });
    println!("{}", told()["moved"]);
    programs.end();
    dirs(&other).iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    mount.end();
    other.end();
    (0..2).for_each(|s| pool.stop(s));
    pool.paths(&bricks).iter().for_each(|brick| is_sound(brick));
}

/// A set of two copies is emptied while programs work, and a disk dies for good meanwhile (1815): one of its own, or one of the set
/// to which files go. Nobody sees that.
fn a_disk_dies(of_target: bool) {
    let mut pool = Pool::new(4);
    pool.expect_errors(&FAILS);
    pool.expect_errors(&["is not a brick"]);
    let bricks = [(0, "disk/a"), (1, "disk/b"), (2, "disk/c"), (3, "disk/d")];
    for (server, _) in bricks {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 256));
    }
    pool.volume("v", 2, &bricks);
    let (mount, other) = (pool.mount("v"), pool.mount("v"));
    let dirs = |mount: &Mounted| (0..9).map(|d| mount.path(&format!("d{d}"))).collect::<Vec<_>>();
    let programs = Programs::start(dirs(&mount), dirs(&other));
    pool.ok("volume set v cluster.rebalance-throttle fast");
    let holds_files =
        |s: usize| (0..9).any(|d| pool.servers[s].path(bricks[s].1).join(format!("d{d}/old0")).exists());
    let (gone, target) = if holds_files(0) { (0, 2) } else { (2, 0) };
    let moved = |wanted: usize| {
        let status = || drain_set(&pool, &bricks[gone..gone + 2], "status");
        // Programs rename and write the same files meanwhile, and other tests use the disks: how fast they move is not at issue.
        eventually_ok_within(Duration::from_secs(90), "files move", || {
            let told = status();
            let moved = told["moved"]["files"].as_u64().unwrap_or_default();
            if moved >= wanted as u64 { Ok(()) } else { Err(format!("{wanted} files are to move: {told}")) }
        });
    };
    drain_set(&pool, &bricks[gone..gone + 2], "start");
    moved(10);
    let dead = if of_target { target } else { gone };
    pool.disks[dead].shut_down();
    eventually("the status says what failed", || pool.brick_error("v", dead));
    moved(FILES);
    if of_target {
        // The set that is left would have one copy.
        programs.end();
        mount.end();
        other.end();
        pool.disks[dead].unmount();
        pool.disks[dead].mount();
        all_in_sync(&pool);
    } else {
        drain_set(&pool, &bricks[gone..gone + 2], "force");
        let old = [gone, gone + 1].map(|n| pool.servers[bricks[n].0].brick(bricks[n].1));
        await_out(&pool, &old);
        pool.disks[gone + 1].shut_down();
        programs.end();
        mount.end();
        other.end();
    }
    let left: Vec<PathBuf> = pool.status("v")["bricks"].as_array().unwrap().iter().map(path).collect();
    (0..4).for_each(|s| pool.stop(s));
    left.iter().for_each(|brick| is_sound(brick));
}

#[test]
fn a_disk_of_a_set_that_is_emptied_dies() {
    a_disk_dies(false);
}

#[test]
fn a_disk_of_a_set_to_which_files_go_dies() {
    a_disk_dies(true);
}

/// The set of two copies and an arbiter that is emptied loses one of its disks for good, and goes on with the other one and the
/// arbiter (2350, 1815). What cannot leave goes along with the bricks.
fn a_disk_beside_an_arbiter_dies(of_primary: bool) {
    let mut pool = Pool::new(6);
    pool.expect_errors(&FAILS);
    pool.expect_errors(&["is not a brick"]);
    let bricks = [(0, "disk/a"), (1, "disk/b"), (2, "arbiter"), (3, "c"), (4, "d"), (5, "second")];
    for (server, _) in &bricks[..2] {
        let dir = pool.servers[*server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 256));
    }
    pool.ok(&format!("volume create v replica 3 arbiter 1 {}", words(&pool, &bricks[..3])));
    pool.ok("volume start v");
    let (mount, other) = (pool.mount("v"), pool.mount("v"));
    let dirs = |mount: &Mounted| (0..9).map(|d| mount.path(&format!("d{d}"))).collect::<Vec<_>>();
    let programs = Programs::start(dirs(&mount), dirs(&other));
    pool.ok(&format!("volume add-brick v {}", words(&pool, &bricks[3..])));
    pool.ok("volume set v cluster.rebalance-throttle fast");
    all_in_sync(&pool);
    let moved = |wanted: usize| {
        eventually_ok_within(Duration::from_secs(90), "files move", || {
            let told = drain_set(&pool, &bricks[..3], "status");
            let moved = told["moved"]["files"].as_u64().unwrap_or_default();
            if moved >= wanted as u64 { Ok(()) } else { Err(format!("{wanted} files are to move: {told}")) }
        });
    };
    drain_set(&pool, &bricks[..3], "start");
    moved(10);
    let leads = |n: usize| pool.status("v")["bricks"][n]["role"] == "primary";
    let dead = if leads(0) == of_primary { 0 } else { 1 };
    pool.disks[dead].shut_down();
    eventually("the status says what failed", || pool.brick_error("v", dead));
    if !of_primary {
        // Another primary does not know for a minute what is open.
        moved(FILES);
    }
    drain_set(&pool, &bricks[..3], "force");
    await_out(&pool, &bricks[..3].iter().map(|(s, b)| pool.servers[*s].brick(b)).collect::<Vec<_>>());
    pool.disks[1 - dead].shut_down();
    programs.end();
    all_in_sync(&pool);
    let left: Vec<PathBuf> = pool.status("v")["bricks"].as_array().unwrap().iter().map(path).collect();
    assert_eq!(left.len(), 6, "two sets of two copies and an arbiter: {left:?}");
    mount.end();
    other.end();
    (0..6).for_each(|s| pool.stop(s));
    left.iter().for_each(|brick| is_sound(brick));
    for set in left.chunks(3) {
        let files = |brick: &PathBuf| {
            let all = files::tree(brick).into_iter();
            all.filter(|(_, seen)| seen.kind == 'f').map(|(path, seen)| (path, seen.content)).collect()
        };
        let [one, two, arbiter]: [BTreeMap<PathBuf, Vec<u8>>; 3] = [0, 1, 2].map(|n| files(&set[n]));
        assert!(one == two, "the copies differ");
        assert!(arbiter.values().flatten().all(|b| *b == 0), "an arbiter has no data");
        assert!(arbiter.keys().eq(one.keys()), "an arbiter has all names");
    }
}

#[test]
fn the_primarys_disk_of_an_emptied_set_with_an_arbiter_dies() {
    a_disk_beside_an_arbiter_dies(true);
}

#[test]
fn the_secondarys_disk_of_an_emptied_set_with_an_arbiter_dies() {
    a_disk_beside_an_arbiter_dies(false);
}

/// A set is emptied into one that has no room for all of it (879: files that are hidden, 1188: sparse files that take all room,
/// 2350, 4122: files of length 0 are left): what does not fit stays where it is and can be used, and goes when there is room.
#[test]
fn a_set_is_emptied_into_one_that_is_too_small() {
    const FILES: usize = 60;
    let mut pool = Pool::new(2);
    pool.expect_errors(&["is not a brick", "no space left"]);
    let bricks = [(0, "disk/a"), (1, "disk/b")];
    for ((server, _), size) in bricks.into_iter().zip([200, 200]) {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, size));
    }
    pool.volume("v", 1, &bricks[..1]);
    let mount = pool.mount("v");
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    for f in 0..FILES {
        fs::write(dir.join(format!("f{f}")), files::noise(f as u64, MIB)).unwrap();
    }
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 1 << 30).unwrap();
    drop(sparse);
    pool.ok(&format!("volume add-brick v {}", words(&pool, &bricks[1..])));
    let filler = pool.servers[1].path("disk/filler");
    let took = File::create(&filler).unwrap();
    rustix::fs::fallocate(&took, rustix::fs::FallocateFlags::empty(), 0, 130 << 20).unwrap();
    let hash = |f: usize| files::noise(f as u64, MIB);
    pool.ok("volume set v cluster.rebalance-throttle fast");
    drain_set(&pool, &bricks[..1], "start");
    eventually("some files have moved", || {
        (drain_set(&pool, &bricks[..1], "status")["moved"]["files"].as_u64()? >= 3).then_some(())
    });
    // All of it can be read and changed, wherever it is.
    for f in 0..FILES {
        assert!(fs::read(dir.join(format!("f{f}"))).unwrap() == hash(f), "f{f}");
    }
    OpenOptions::new().write(true).open(dir.join("f7")).unwrap().write_all_at(&hash(8)[..10], 0).unwrap();
    let line = format!("volume remove-brick v {} commit", words(&pool, &bricks[..1]));
    pool.cli(&line).refused_with(&["files can still leave"]);
    fs::remove_file(&filler).unwrap();
    drop(took);
    eventually("all has left", || {
        let left = fs::read_dir(pool.servers[0].path("disk/a/d")).ok()?.filter_map(Result::ok);
        let left: u64 = left.filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum();
        (left == 0).then_some(())
    });
    for f in 0..FILES {
        let mut content = hash(f);
        if f == 7 {
            content[..10].copy_from_slice(&hash(8)[..10]);
        }
        holds(&dir, &format!("f{f}"), &content);
    }
    let sparse = fs::metadata(dir.join("sparse")).unwrap();
    assert!(sparse.len() == (1 << 30) + 3 && sparse.blocks() < 2048, "{} blocks", sparse.blocks());
    mount.end();
    (0..2).for_each(|s| pool.stop(s));
    pool.paths(&bricks).iter().for_each(|brick| is_sound(brick));
}
