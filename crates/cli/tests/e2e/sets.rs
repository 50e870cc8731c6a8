//! Volumes of many sets: directories spread, one set an operation, sets that stop.

use crate::harness::{Mounted, Pool, alone, eventually, files};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

const BRICKS: [(usize, &str); 8] =
    [(0, "b1"), (1, "b1"), (2, "b2"), (3, "b2"), (0, "b3"), (1, "b3"), (2, "b4"), (3, "b4")];

/// The directories of each set.
pub(crate) fn sets(pool: &Pool, bricks: &[(usize, &str)]) -> Vec<Vec<PathBuf>> {
    pool.paths(bricks).chunks(2).map(<[PathBuf]>::to_vec).collect()
}

/// Which set a directory of the top lives on: the one whose bricks take the files in it.
pub(crate) fn home(sets: &[Vec<PathBuf>], mount: &Mounted, dir: &str) -> usize {
    let probe = mount.path(dir).join("probe");
    fs::write(&probe, "x").unwrap();
    let on = |set: &Vec<PathBuf>| set.iter().all(|b| b.join(dir).join("probe").exists());
    let found: Vec<usize> = (0..sets.len()).filter(|i| on(&sets[*i])).collect();
    assert_eq!(found.len(), 1, "{dir} is on sets {found:?}");
    fs::remove_file(probe).unwrap();
    found[0]
}

/// The pool knows that so many servers are down.
fn are_down(pool: &Pool, wanted: usize) {
    eventually("the pool knows who is down", || {
        let peers = pool.json("pool list");
        let down = peers.as_array()?.iter().filter(|p| p["connected"] == false).count();
        (down == wanted).then_some(())
    });
}

/// Makes directories until each set has some; tells the set of each.
pub(crate) fn spread(sets: &[Vec<PathBuf>], mount: &Mounted) -> BTreeMap<String, usize> {
    let mut homes = BTreeMap::new();
    eventually("directories are spread over all sets", || {
        let dir = format!("dir{}", homes.len());
        fs::create_dir(mount.path(&dir)).unwrap();
        let on = home(sets, mount, &dir);
        homes.insert(dir, on);
        (homes.values().collect::<BTreeSet<_>>().len() == sets.len()).then_some(())
    });
    homes
}

/// Requests by server and operation.
fn counters(pool: &Pool) -> BTreeMap<String, BTreeMap<String, u64>> {
    let status = pool.status("v");
    let servers = status["servers"].as_array().unwrap();
    let ops = |s: &serde_json::Value| serde_json::from_value(s["ops"].clone()).unwrap();
    servers.iter().map(|s| (s["server"].as_str().unwrap().to_owned(), ops(s))).collect()
}

/// What was counted since, without the bookkeeping of open files, and what sets ask each other of where directories lie.
fn since(
    pool: &Pool,
    before: &BTreeMap<String, BTreeMap<String, u64>>,
) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut now = counters(pool);
    for (server, ops) in &mut now {
        for (op, n) in ops.iter_mut() {
            *n -= before.get(server).and_then(|b| b.get(op)).copied().unwrap_or(0);
        }
        ops.retain(|op, n| *n > 0 && !["release", "lineage"].contains(&op.as_str()));
    }
    now.retain(|_, ops| !ops.is_empty());
    now
}

fn work_in(dir: &OwnedFd, count: usize) {
    for i in 0..count {
        let name = format!("f{i}");
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let file = openat(dir, &name, flags, Mode::from_raw_mode(0o644)).unwrap();
        rustix::io::write(&file, b"some bytes").unwrap();
        drop(file);
        statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        rustix::fs::renameat(dir, &name, dir, format!("g{i}")).unwrap();
        rustix::fs::unlinkat(dir, format!("g{i}"), AtFlags::empty()).unwrap();
    }
}

#[test]
fn every_operation_goes_to_one_set() {
    let pool = Pool::new(4);
    pool.volume("v", 2, &BRICKS);
    let mount = pool.mount("v");
    let sets = sets(&pool, &BRICKS);
    let homes = spread(&sets, &mount);
    println!("directories by set: {homes:?}");
    for set in 0..sets.len() {
        let dir = homes.iter().find(|(_, s)| **s == set).unwrap().0;
        let fd = openat(CWD, mount.path(dir), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
        // Files that were closed before may still be released.
        let before = eventually("the counters rest", || {
            let first = counters(&pool);
            (counters(&pool) == first).then_some(first)
        });
        work_in(&fd, 50);
        let counted = since(&pool, &before);
        println!("50 files in {dir} on set {}: {counted:?}", set + 1);
        assert_eq!(counted.len(), 1, "more than one server was asked: {counted:?}");
        let (server, ops) = counted.iter().next().unwrap();
        for op in ["create", "rename", "unlink", "write"] {
            assert_eq!(ops.get(op), Some(&50), "{op} at {server}: {ops:?}");
        }
        let status = pool.status("v");
        let primary = status["bricks"].as_array().unwrap()[set * 2..set * 2 + 2]
            .iter()
            .find(|b| b["role"] == "primary")
            .unwrap_or_else(|| panic!("set {} has no primary: {status}", set + 1));
        assert_eq!(primary["server"], server.as_str(), "another than the primary was asked");
    }
}

/// On two and three servers.
#[test]
fn four_sets_on_fewer_servers() {
    for servers in [2, 3] {
        let pool = Pool::new(servers);
        let names = ["b1", "b2", "b3", "b4"];
        let bricks: Vec<(usize, &str)> = (0..8).map(|i| (i % servers, names[i / 2])).collect();
        pool.volume("v", 2, &bricks);
        let mount = pool.mount("v");
        let homes = spread(&sets(&pool, &bricks), &mount);
        for dir in homes.keys() {
            fs::create_dir_all(mount.path(dir).join("deep/er")).unwrap();
            fs::write(mount.path(dir).join("deep/er/file"), dir).unwrap();
        }
        for dir in homes.keys() {
            assert_eq!(fs::read_to_string(mount.path(dir).join("deep/er/file")).unwrap(), *dir);
            fs::remove_dir_all(mount.path(dir)).unwrap();
        }
        assert_eq!(files::names(&mount.dir), Vec::<String>::new());
        for brick in pool.paths(&bricks) {
            eventually("nothing is left on the bricks", || {
                (files::names(&brick) == [".mortar"]).then_some(())
            });
        }
    }
}

#[test]
fn a_stopped_set_does_not_disturb_the_others() {
    let _alone = alone();
    let mut pool = Pool::new(4);
    pool.volume("v", 2, &BRICKS);
    let mount = pool.mount("v");
    let sets = sets(&pool, &BRICKS);
    let homes = spread(&sets, &mount);
    for dir in homes.keys() {
        fs::write(mount.path(dir).join("file"), dir).unwrap();
    }
    // Servers 3 and 4 hold sets 2 and 4; the pool keeps its majority (three of four vote).
    pool.kill(3);
    pool.kill(2);
    let begun = std::time::Instant::now();
    for (dir, _) in homes.iter().filter(|(_, set)| **set % 2 == 0) {
        assert_eq!(fs::read_to_string(mount.path(dir).join("file")).unwrap(), *dir);
        for i in 0..20 {
            fs::write(mount.path(dir).join(format!("new{i}")), "x").unwrap();
        }
        assert_eq!(files::names(&mount.path(dir)).len(), 21);
    }
    // New directories go to sets that serve.
    for i in 0..8 {
        fs::create_dir(mount.path(&format!("beside{i}"))).unwrap();
    }
    println!("130 operations beside two dead sets: {:?}", begun.elapsed());
    assert!(begun.elapsed().as_secs() < 15, "the dead sets were felt: {:?}", begun.elapsed());
    let status = pool.status("v");
    assert!(!status["notes"].as_array().unwrap().is_empty(), "nobody says what is wrong: {status}");
}

/// All bricks of a set are away for longer than a lease; when they return, so does the set, under the same mount.
#[test]
fn a_set_that_was_away_comes_back() {
    let mut pool = Pool::new(4);
    pool.volume("v", 2, &BRICKS);
    let mount = pool.mount("v");
    let homes = spread(&sets(&pool, &BRICKS), &mount);
    for dir in homes.keys() {
        fs::write(mount.path(dir).join("file"), dir).unwrap();
    }
    pool.kill(3);
    pool.kill(2);
    are_down(&pool, 2);
    eventually("the status says it", || (!pool.status("v")["notes"].as_array()?.is_empty()).then_some(()));
    pool.start(2);
    pool.start(3);
    eventually("all sets are led", || {
        let status = pool.status("v");
        let led = status["bricks"].as_array()?.iter().filter(|b| b["role"] == "primary").count();
        (led == 4).then_some(())
    });
    for dir in homes.keys() {
        assert_eq!(fs::read_to_string(mount.path(dir).join("file")).unwrap(), *dir);
    }
}

/// A project in one directory of the top is not on one set alone; a small tree is.
#[test]
fn a_directory_with_many_subdirectories_is_on_all_sets() {
    let pool = Pool::new(2);
    let bricks = [(0, "b"), (1, "b")];
    pool.volume("v", 1, &bricks);
    let mount = pool.mount("v");
    for i in 0..40 {
        let dir = mount.path("project").join(format!("part{i}"));
        fs::create_dir_all(dir.join("small/tree")).unwrap();
        fs::write(dir.join("file"), "x").unwrap();
        fs::write(dir.join("small/tree/file"), "y").unwrap();
    }
    let paths = pool.paths(&bricks);
    let on =
        |file: &str| -> Vec<bool> { paths.iter().map(|b| b.join("project").join(file).exists()).collect() };
    let homes: Vec<Vec<bool>> = (0..40).map(|i| on(&format!("part{i}/file"))).collect();
    let first = homes.iter().filter(|home| home[0]).count();
    println!("40 directories in one: {first} and {}", 40 - first);
    assert!((8..=32).contains(&first), "{first} of 40 are on the first set");
    assert!(
        homes[..8].iter().all(|home| *home == homes[0]),
        "the first ones stay with their parent: {homes:?}"
    );
    for (i, home) in homes.iter().enumerate() {
        assert_eq!(home.iter().filter(|there| **there).count(), 1, "a file is on one set");
        assert_eq!(on(&format!("part{i}/small/tree/file")), *home, "what is small stays together");
    }
    fs::remove_dir_all(mount.path("project")).unwrap();
    assert_eq!(files::names(&mount.dir), Vec::<String>::new());
}

/// All names beneath a directory, each looked at.
fn names_beneath(dir: &Path) -> std::io::Result<BTreeSet<PathBuf>> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if fs::symlink_metadata(&path)?.is_dir() {
            all.extend(names_beneath(&path)?);
        }
        all.insert(path);
    }
    Ok(all)
}

/// Sets are away whose directories are listed (gluster/glusterfs 1729: their files were just not there, and programs that
/// synchronize deleted them elsewhere): whoever asks waits, and is told all at last.
#[test]
fn a_listing_never_lacks_what_is_on_a_set_that_is_away() {
    let mut pool = Pool::new(5);
    let bricks = [(0, "b"), (1, "b"), (2, "b"), (3, "b"), (4, "b")];
    pool.volume("v", 1, &bricks);
    let mount = pool.mount("v");
    let sets: Vec<Vec<PathBuf>> = pool.paths(&bricks).into_iter().map(|brick| vec![brick]).collect();
    let homes = spread(&sets, &mount);
    for dir in homes.keys() {
        fs::create_dir(mount.path(dir).join("in")).unwrap();
        (0..10).for_each(|f| fs::write(mount.path(dir).join(format!("in/f{f}")), "x").unwrap());
    }
    fs::write(mount.path("top"), "x").unwrap();
    let root = (0..5).find(|s| sets[*s][0].join("top").exists()).unwrap();
    let away = [(root + 1) % 5, (root + 2) % 5];
    away.iter().for_each(|server| pool.kill(*server));
    are_down(&pool, 2);
    let fresh = pool.mount("v");
    let (told, answers) = std::sync::mpsc::channel();
    let asks: Vec<_> = [&mount, &fresh]
        .into_iter()
        .flat_map(|m| homes.keys().map(|dir| m.path(dir)).chain([m.dir.clone()]))
        .map(|dir| {
            let told = told.clone();
            std::thread::spawn(move || {
                let names = names_beneath(&dir);
                told.send((dir, names)).unwrap();
            })
        })
        .collect();
    drop(told);
    let is_away = |dir: &Path| {
        let home = homes.get(dir.file_name().unwrap().to_str().unwrap());
        home.is_none_or(|home| away.contains(home))
    };
    let complete = |(dir, names): (PathBuf, std::io::Result<BTreeSet<PathBuf>>)| {
        // The root, or a directory with ten files in another one.
        let wanted = if homes.contains_key(dir.file_name().unwrap().to_str().unwrap()) {
            11
        } else {
            1 + 12 * homes.len()
        };
        let names = names.unwrap_or_else(|e| panic!("{dir:?}: {e}"));
        assert_eq!(names.len(), wanted, "{dir:?}: {names:?}");
        dir
    };
    let here = 2 * homes.values().filter(|home| !away.contains(home)).count();
    for _ in 0..here {
        let dir = complete(answers.recv_timeout(Duration::from_secs(20)).unwrap());
        assert!(!is_away(&dir), "{dir:?} was listed without its set");
    }
    let early = answers.recv_timeout(Duration::from_secs(2));
    assert!(early.is_err(), "sets that are away were listed: {early:?}");
    away.iter().for_each(|server| pool.start(*server));
    for _ in here..asks.len() {
        complete(answers.recv_timeout(Duration::from_secs(30)).unwrap());
    }
    asks.into_iter().for_each(|ask| ask.join().unwrap());
    mount.end();
    fresh.end();
}
