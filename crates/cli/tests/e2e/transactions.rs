//! Directories that two mounts move or remove at the same time, on volumes of one set and of two.
//!
//! The kernels of two mounts do not share the lock that keeps renames of directories apart on one machine.

use crate::harness::{Disk, Mounted, Pool, eventually, files};
use rustix::fs::{CWD, Mode, OFlags, openat, renameat};
use std::fs;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::{Duration, Instant};

const TWO_SETS: [(usize, &str); 4] = [(0, "b1"), (1, "b1"), (0, "b2"), (1, "b2")];

/// Runs both at the same time.
pub(crate) fn race<A: Send, B: Send>(
    one: impl FnOnce() -> A + Send,
    two: impl FnOnce() -> B + Send,
) -> (A, B) {
    let gate = Barrier::new(2);
    std::thread::scope(|s| {
        let first = s.spawn(|| {
            gate.wait();
            one()
        });
        gate.wait();
        let second = two();
        (first.join().unwrap(), second)
    })
}

/// How many directories can be reached from `top`, which is not counted.
fn reachable(top: &Path) -> usize {
    let dirs = files::names(top).into_iter().map(|n| top.join(n)).filter(|p| p.is_dir());
    dirs.map(|d| 1 + reachable(&d)).sum()
}

/// Two mounts move two directories into each other, and one to and fro.
fn rename_race(one: &Mounted, two: &Mounted, seen: &Mounted, top: &str) {
    // The lock on the tree's shape is given once what an earlier primary may have given has run out.
    let first = |rest: &str| one.path(&format!("{top}first/{rest}"));
    fs::create_dir_all(first("a")).unwrap();
    fs::create_dir(first("b")).unwrap();
    fs::rename(first("a"), first("b/a")).unwrap();
    fs::remove_dir_all(first("")).unwrap();
    let begun = Instant::now();
    let (mut rounds, mut moved) = (0u32, 0u32);
    while begun.elapsed() < Duration::from_secs(4) {
        let at = |m: &Mounted, rest: &str| m.path(&format!("{top}r{rounds}/{rest}"));
        fs::create_dir(at(one, "")).unwrap();
        for dir in ["a", "b", "a/in", "b/in"] {
            fs::create_dir(at(one, dir)).unwrap();
        }
        let (first, second) = race(
            || fs::rename(at(one, "a"), at(one, "b/in/x")),
            || fs::rename(at(two, "b"), at(two, "a/in/y")),
        );
        assert!(first.is_ok() || second.is_ok(), "round {rounds}: nobody moved: {first:?}, {second:?}");
        assert!(first.is_err() || second.is_err(), "round {rounds}: each is in the other");
        assert_eq!(reachable(&at(seen, "")), 4, "round {rounds}: {first:?}, {second:?}");
        moved += u32::from(first.is_ok());
        fs::remove_dir_all(at(seen, "")).unwrap();
        rounds += 1;
    }
    println!("{rounds} rounds in {top:?}: the first won {moved}");
    assert!(rounds > 10, "only {rounds} rounds");
}

#[test]
fn renames_that_race_make_no_loop_in_one_set() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let (one, two, seen) = (pool.mount("v"), pool.mount("v"), pool.mount("v"));
    rename_race(&one, &two, &seen, "");
}

#[test]
fn renames_that_race_make_no_loop_in_two_sets() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &TWO_SETS);
    let (one, two, seen) = (pool.mount("v"), pool.mount("v"), pool.mount("v"));
    // One of each set.
    for top in ["p/", "q/"] {
        fs::create_dir(one.path(top)).unwrap();
        rename_race(&one, &two, &seen, top);
    }
}

/// What is in the bricks' trees.
fn left(bricks: &[PathBuf]) -> usize {
    bricks.iter().map(|b| files::brick_tree(b).len()).sum()
}

/// Two mounts remove one directory that lives on another set than its entry, and a third one makes a file in it.
#[test]
fn removals_that_race_leave_no_directory_without_an_entry() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &TWO_SETS);
    let (one, two, three) = (pool.mount("v"), pool.mount("v"), pool.mount("v"));
    let bricks = pool.paths(&TWO_SETS);
    let begun = Instant::now();
    let (mut rounds, mut filled) = (0, 0);
    while begun.elapsed() < Duration::from_secs(10) {
        // Every other one lives on the other set.
        let dir = format!("d{rounds}");
        fs::create_dir(one.path(&dir)).unwrap();
        let file = format!("{dir}/file");
        let ((first, second), made) = race(
            || race(|| fs::remove_dir(one.path(&dir)), || fs::remove_dir(two.path(&dir))),
            || (0..20).map(|_| fs::write(three.path(&file), "x")).find(Result::is_ok),
        );
        let removed = [&first, &second].iter().filter(|r| r.is_ok()).count();
        assert!(removed <= 1, "round {rounds}: removed twice");
        assert!(
            removed == 0 || made.is_none(),
            "round {rounds}: a file was made in a directory that was removed: {first:?}, {second:?}"
        );
        if made.is_some() {
            filled += 1;
            assert_eq!(fs::read_to_string(two.path(&file)).unwrap(), "x");
            fs::remove_file(one.path(&file)).unwrap();
            fs::remove_dir(two.path(&dir)).unwrap();
        }
        assert_eq!(fs::metadata(one.path(&dir)).unwrap_err().kind(), ErrorKind::NotFound);
        rounds += 1;
    }
    println!("{rounds} rounds, in {filled} of them the file came first");
    eventually("nothing is left on the bricks", || (left(&bricks) == 0).then_some(()));
}

const DISK_MIB: u64 = 256;

/// Makes `path` and things like it until one lives on the file system `on`, while the other one is much fuller.
fn make_on(mount: &Mounted, on: &Disk, other: &Disk, path: &str) {
    let ballast = other.dir.join("ballast");
    let file = fs::File::create(&ballast).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, (DISK_MIB / 2) << 20).unwrap();
    eventually("a directory is made on the emptier set", || {
        fs::create_dir(mount.path(path)).unwrap();
        let probe = format!("{path}/probe");
        fs::write(mount.path(&probe), "x").unwrap();
        let there = on.dir.join("brick").join(&probe).exists();
        fs::remove_file(mount.path(&probe)).unwrap();
        if !there {
            fs::remove_dir(mount.path(path)).unwrap();
        }
        there.then_some(())
    });
    fs::remove_file(ballast).unwrap();
}

fn folder(mount: &Mounted, path: &str) -> OwnedFd {
    openat(CWD, mount.path(path), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap()
}

/// Directories of two sets above and beneath each other. Each set alone sees nothing wrong with moving the upper one of
/// its two beneath the lower one; done by both it is a loop.
#[test]
fn renames_that_race_make_no_loop_across_sets() {
    let mut pool = Pool::new(1);
    for name in ["disk1", "disk2"] {
        let dir = pool.servers[0].path(name);
        pool.disks.push(Disk::new("ext4", &dir, DISK_MIB));
    }
    let bricks = [(0, "disk1/brick"), (0, "disk2/brick")];
    pool.volume("v", 1, &bricks);
    let (one, two, seen) = (pool.mount("v"), pool.mount("v"), pool.mount("v"));
    let (first, second) = (&pool.disks[0], &pool.disks[1]);
    // up (set 1) / in (set 2), and top (set 2) / mid (set 2) / low (set 1).
    make_on(&one, first, second, "up");
    make_on(&one, second, first, "top");
    make_on(&one, second, first, "up/in");
    make_on(&one, second, first, "top/mid");
    make_on(&one, first, second, "top/mid/low");
    let (root, low) = (folder(&one, ""), folder(&one, "top/mid/low"));
    let (top, inner) = (folder(&two, "top"), folder(&two, "up/in"));
    let move_up = || renameat(&root, "up", &low, "up");
    let move_mid = || renameat(&top, "mid", &inner, "mid");

    // One after the other, by a mount that does not know of the first.
    let begun = Instant::now();
    move_up().unwrap();
    println!("one rename under the lock: {:?}", begun.elapsed());
    assert_eq!(move_mid(), Err(rustix::io::Errno::INVAL));
    assert_eq!(reachable(&seen.dir), 5);
    renameat(&low, "up", &root, "up").unwrap();
    let begun = Instant::now();
    let mut won = [0, 0];
    while begun.elapsed() < Duration::from_secs(6) {
        let (up, mid) = race(move_up, move_mid);
        assert_eq!(reachable(&seen.dir), 5, "{up:?}, {mid:?}");
        assert!(up.is_ok() != mid.is_ok(), "{up:?}, {mid:?}");
        if up.is_ok() {
            renameat(&low, "up", &root, "up").unwrap();
        } else {
            renameat(&inner, "mid", &top, "mid").unwrap();
        }
        won[usize::from(mid.is_ok())] += 1;
    }
    println!("moved: up {}, mid {}", won[0], won[1]);
    assert!(won[0] + won[1] > 5, "only {won:?}");
}
