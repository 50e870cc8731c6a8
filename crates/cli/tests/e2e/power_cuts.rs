//! The power of all servers goes while names change and files move, over several sets of one copy each: what a program was told
//! to be on disk is there, once (gluster/glusterfs 3983, 1815, 2350).

use crate::adopt::is_sound;
use crate::changing_shape::{PATHS, without_place};
use crate::drain::drain_set;
use crate::faults::all_in_sync;
use crate::faults::disks::{FAILS, cut_power};
use crate::grow::words;
use crate::harness::{Disk, Mounted, Pool, eventually, eventually_ok_within, files};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One set each, on a disk of its own.
const BRICKS: [(usize, &str); 2] = [(1, "disk/b"), (2, "disk/b")];

fn pool_of_disks() -> Pool {
    let mut pool = Pool::new(3);
    pool.expect_errors(&FAILS);
    pool.expect_errors(&["is not a brick"]);
    for (server, _) in BRICKS {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 256));
    }
    pool
}

fn end(mut pool: Pool, mount: Mounted) {
    // Who was renamed as the power went waits in lost+found for some seconds.
    let bricks = pool.status("v")["bricks"].as_array().unwrap().clone();
    let placed = || without_place(&bricks);
    eventually_ok_within(PATHS, "directories come to their places", placed);
    mount.end();
    (0..3).for_each(|s| pool.stop(s));
    pool.paths(&BRICKS).iter().for_each(|brick| is_sound(brick));
}

fn sync(path: &Path) {
    File::open(path).unwrap().sync_all().unwrap();
}

/// A file with this content, on disk but for its name.
fn write_synced(path: &Path, content: &[u8]) {
    fs::write(path, content).unwrap();
    sync(path);
}

/// Changes of names in two directories, each followed by a sync of the directories that it changed. What has to be there then,
/// with its content, and what may not be.
fn change_names(from: &Path, to: &Path, round: usize) -> (Vec<(PathBuf, String)>, Vec<PathBuf>) {
    let named = |dir: &Path, what: &str| dir.join(format!("{what}{round}"));
    let text = |what: &str| format!("{what} {round}");
    for what in ["moved", "gone", "within"] {
        write_synced(&named(from, what), text(what).as_bytes());
    }
    fs::create_dir(named(from, "tree")).unwrap();
    write_synced(&named(from, "tree").join("leaf"), text("leaf").as_bytes());
    sync(&named(from, "tree"));
    sync(from);

    write_synced(&named(from, "new"), text("new").as_bytes());
    sync(from);
    fs::hard_link(named(from, "new"), named(to, "linked")).unwrap();
    sync(to);
    fs::rename(named(from, "moved"), named(to, "moved")).unwrap();
    sync(to);
    sync(from);
    fs::rename(named(from, "within"), named(from, "renamed")).unwrap();
    sync(from);
    fs::rename(named(from, "tree"), named(to, "tree")).unwrap();
    sync(to);
    sync(from);
    fs::create_dir(named(to, "made")).unwrap();
    sync(to);
    fs::remove_file(named(from, "gone")).unwrap();
    sync(from);

    let there = [
        (named(from, "new"), text("new")),
        (named(to, "linked"), text("new")),
        (named(to, "moved"), text("moved")),
        (named(from, "renamed"), text("within")),
        (named(to, "tree").join("leaf"), text("leaf")),
    ];
    assert!(named(to, "made").is_dir());
    let gone = [named(from, "moved"), named(from, "within"), named(from, "tree"), named(from, "gone")];
    (there.into(), gone.into())
}

/// Names that were made, changed and removed, and whose directories were synced after that, are so after a power cut (3983).
#[test]
fn names_whose_directories_were_synced_are_as_they_were() {
    let mut pool = pool_of_disks();
    pool.volume("v", 1, &BRICKS);
    let mount = pool.mount("v");
    let dirs: Vec<PathBuf> = (0..4).map(|d| mount.path(&format!("d{d}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    sync(&mount.dir);
    let on = |s: usize| (0..4).filter(|d| pool.servers[s].path(&format!("disk/b/d{d}")).is_dir()).count();
    assert!(on(1) + on(2) >= 4, "the directories are somewhere");
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for round in 0..3 {
        for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
            let (more, less) = change_names(&dirs[from], &dirs[to], 10 * round + from);
            there.extend(more);
            gone.extend(less);
        }
        cut_power(&mut pool, round % 2, || ());
        all_in_sync(&pool);
        for (path, content) in &there {
            assert_eq!(fs::read_to_string(path).unwrap(), *content, "{path:?}");
        }
        for path in &gone {
            let found = path.symlink_metadata();
            assert!(found.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound), "{path:?} is back");
        }
        for (n, dir) in dirs.iter().enumerate() {
            let before = (n + 3) % 4;
            // Of this round and those before: two names stay, and four come from the directory before.
            let names = files::names(dir);
            assert_eq!(names.len(), 6 * (round + 1), "{dir:?} after that of {before}: {names:?}");
        }
    }
    end(pool, mount);
}

const FILES: usize = 300;

fn content(f: usize) -> Vec<u8> {
    files::noise(f as u64, 250_000 + 1700 * (f % 90))
}

/// Files on the first set, all of them on disk, with some of two names; then a second set, to which they are about to go.
fn files_about_to_move(pool: &Pool) -> (Mounted, PathBuf) {
    pool.volume("v", 1, &BRICKS[..1]);
    let mount = pool.mount("v");
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    for f in 0..FILES {
        fs::write(dir.join(format!("f{f}")), content(f)).unwrap();
        if f % 10 == 0 {
            fs::hard_link(dir.join(format!("f{f}")), dir.join(format!("l{f}"))).unwrap();
        }
    }
    rustix::fs::syncfs(File::open(&dir).unwrap()).unwrap();
    pool.ok(&format!("volume add-brick v {}", words(pool, &BRICKS[1..])));
    pool.ok("volume set v cluster.rebalance-throttle fast");
    drain_set(pool, &BRICKS[..1], "start");
    (mount, dir)
}

fn moved(pool: &Pool) -> u64 {
    drain_set(pool, &BRICKS[..1], "status")["moved"]["files"].as_u64().unwrap_or_default()
}

/// All of the files are there, each name once.
fn all_are_there(dir: &Path) {
    assert_eq!(files::names(dir).len(), FILES + FILES / 10);
    for f in 0..FILES {
        assert!(fs::read(dir.join(format!("f{f}"))).unwrap() == content(f), "f{f}");
        if f % 10 == 0 {
            assert!(fs::read(dir.join(format!("l{f}"))).unwrap() == content(f), "l{f}");
        }
    }
}

/// No byte of data is left on the first set, which is told as ready to go. For a minute after a start it does not know which files
/// are open, and moves none.
fn all_move(pool: &Pool) {
    eventually_ok_within(Duration::from_secs(150), "all have left", || {
        let status = drain_set(pool, &BRICKS[..1], "status");
        let left = fs::read_dir(pool.servers[1].path("disk/b/d")).unwrap().filter_map(Result::ok);
        let left: u64 = left.filter_map(|e| e.metadata().ok()).map(|m| m.len()).sum();
        let done = left == 0 && status["moved"]["none_can_move"] == true;
        if done { Ok(()) } else { Err(format!("{left} bytes are left: {status}")) }
    });
}

/// The power of all goes while files leave a set (1815).
#[test]
fn files_that_move_are_there_once_after_a_power_cut() {
    let mut pool = pool_of_disks();
    let (mount, dir) = files_about_to_move(&pool);
    eventually("files move", || (moved(&pool) >= 20).then_some(()));
    cut_power(&mut pool, 0, || ());
    all_in_sync(&pool);
    all_are_there(&dir);
    all_move(&pool);
    all_are_there(&dir);
    end(pool, mount);
}

/// The only copy of a set that is emptied fails (2350): the status says so, nothing that has moved is lost, and all goes on when the
/// disk is back.
#[test]
fn a_set_of_one_copy_that_is_emptied_loses_its_disk_for_a_while() {
    let mut pool = pool_of_disks();
    let (mount, dir) = files_about_to_move(&pool);
    eventually("files move", || (moved(&pool) >= 20).then_some(()));
    pool.disks[0].shut_down();
    eventually("the status says why nothing moves", || {
        let status = drain_set(&pool, &BRICKS[..1], "status");
        let problem = status["moved"]["problem"].as_str().unwrap_or_default();
        // The disk may have failed a change of the brick itself, which is closed then.
        let said =
            pool.brick_error("v", 0).is_some() || problem.starts_with("/d/") && problem.contains("EIO");
        said.then_some(())
    });
    pool.kill(1);
    pool.disks[0].unmount();
    pool.disks[0].mount();
    pool.start(1);
    all_in_sync(&pool);
    all_are_there(&dir);
    all_move(&pool);
    all_are_there(&dir);
    end(pool, mount);
}
