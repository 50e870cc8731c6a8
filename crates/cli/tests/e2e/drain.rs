//! Sets that are taken out of a volume while it is in use.

use crate::adopt::is_sound;
use crate::grow::{place, words};
use crate::harness::files::Seen;
use crate::harness::{Disk, Pool, TEST_TIMEOUT, eventually, eventually_within, files};
use crate::rebalance::bytes;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

const ALL: [(usize, &str); 6] = [(0, "a"), (1, "a"), (2, "a"), (3, "a"), (0, "b"), (1, "b")];

/// The set of these bricks is to leave volume v, or how far that is.
pub(crate) fn drain_set(pool: &Pool, bricks: &[(usize, &str)], action: &str) -> Value {
    pool.json(&format!("volume remove-brick v {} {action}", words(pool, bricks)))["sets"][0].clone()
}

fn drain(pool: &Pool, action: &str) -> Value {
    drain_set(pool, &ALL[..2], action)
}

/// What users see of files: the times of directories move with the names that come and go.
fn files_seen(top: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = files::tree(top);
    all.retain(|_, seen| !seen.is_dir());
    all
}

/// HOST:/PATH of all bricks that the volume has.
fn bricks(pool: &Pool) -> Vec<String> {
    let status = pool.status("v");
    let all = status["bricks"].as_array().unwrap().iter();
    all.map(place).collect()
}

/// Waits until the volume is without these bricks.
pub(crate) fn await_out(pool: &Pool, old: &[String]) {
    eventually("the old bricks are out of the volume", || {
        bricks(pool).iter().all(|b| !old.contains(b)).then_some(())
    });
}

/// Whether no file of a brick holds anything, those whose names are all in directories of other sets included.
fn holds_nothing(brick: &Path) -> bool {
    let trees = [brick.to_path_buf(), brick.join(".mortar/limbo")].map(|top| files::brick_tree(&top));
    trees.iter().flat_map(|tree| tree.values()).all(|seen| seen.is_dir() || seen.content.is_empty())
}

/// The set with the root goes: what can moves to the others, and the rest to places beside their bricks, over kills. A mount
/// at work sees no error, and nothing changes that users see.
#[test]
fn a_set_leaves_a_volume_in_use() {
    let mut pool = Pool::new(4);
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 2, &ALL);
    let mount = pool.mount("v");
    for d in 0..24 {
        let dir = mount.path(&format!("d{d}"));
        fs::create_dir_all(dir.join("deeper")).unwrap();
        for f in 0..10 {
            fs::write(dir.join(format!("f{f}")), files::noise(d * 10 + f, 5000)).unwrap();
            fs::write(dir.join(format!("deeper/g{f}")), files::noise(f, 100)).unwrap();
        }
        fs::hard_link(dir.join("f0"), dir.join("linked")).unwrap();
        symlink("f1", dir.join("link")).unwrap();
    }
    let open: Vec<File> = (0..24)
        .map(|d| OpenOptions::new().read(true).write(true).open(mount.path(&format!("d{d}/f2"))).unwrap())
        .collect();
    let before = files::tree(&mount.dir);

    let at_start = drain(&pool, "start");
    assert_eq!(at_start["drains"], true, "{at_start}");
    let line = format!("volume remove-brick v {} commit", words(&pool, &ALL[..2]));
    pool.cli(&line).refused_with(&["files can still leave"]);
    fs::create_dir(mount.path("new")).unwrap();
    pool.kill(2);
    eventually("files move", || (drain(&pool, "status")["moved"]["files"].as_u64()? >= 3).then_some(()));
    pool.start(2);
    let ready = eventually("nothing more can move", || {
        let now = drain(&pool, "status");
        (now["moved"]["none_can_move"] == true).then_some(now)
    });
    let paths = pool.paths(&ALL);
    assert!(
        paths[2].join("new").exists() || paths[4].join("new").exists(),
        "what is new is placed elsewhere"
    );
    assert!(ready["moved"]["left"].as_u64().unwrap() > 0, "open files stay: {ready}");

    pool.wait_in_sync();
    let moves_out = drain(&pool, "commit");
    let goes_to: Vec<&str> =
        moves_out["bricks"].as_array().unwrap().iter().filter_map(|b| b["goes_to"].as_str()).collect();
    assert!(goes_to.iter().all(|place| place.contains("/a-set1-")), "{moves_out}");
    let places: Vec<PathBuf> =
        goes_to.iter().filter_map(|place| Some(place.split_once(':')?.1.into())).collect();
    pool.kill(2);
    open[0].write_all_at(b"still here", 0).unwrap();
    pool.start(2);
    let old: Vec<String> = ALL[..2].iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    await_out(&pool, &old);
    pool.wait_in_sync();
    for path in &paths[..2] {
        fs::remove_dir_all(path).unwrap();
    }
    pool.kill(3);
    open[0].sync_all().unwrap();
    let mut back = vec![0; 10];
    open[0].read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, b"still here");
    open[0].write_all_at(&files::noise(2, 5000)[..10], 0).unwrap();
    let after = files::tree(&mount.dir);
    for (path, seen) in &before {
        // It was written to.
        if path != &PathBuf::from("d0/f2") {
            assert!(after.get(path) == Some(seen), "{path:?} is not what it was");
        }
    }
    assert_eq!(before.len() + 1, after.len(), "and the new directory");
    assert_eq!(fs::metadata(mount.path("d3/linked")).unwrap().nlink(), 2);
    pool.start(3);
    drop(open);
    fs::remove_dir_all(mount.path("d1")).unwrap();
    let info = pool.json("volume info v")[0].clone();
    assert_eq!(info["sets"].as_array().unwrap().len(), 3, "what is left of the set serves elsewhere");
    assert_eq!(pool.json("volume get v cluster.drain")[0]["value"], json!("1"));
    eventually("every brick is in sync", || {
        let status = pool.status("v");
        let all = status["bricks"].as_array()?;
        all.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
    });
    mount.end();
    (0..4).for_each(|s| pool.stop(s));
    for brick in &paths[2..] {
        is_sound(brick);
    }
    places.iter().for_each(|place| is_sound(place));
}

/// Files with several names leave a set with all of them, while programs go on to make and remove names: each stays one file,
/// with its content and the right number of links (GlusterFS: hard links during remove-brick).
#[test]
fn files_of_several_names_leave_a_set() {
    const FILES: usize = 40;
    let mut pool = Pool::new(4);
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 2, &ALL);
    let mount = pool.mount("v");
    // All of them in directories of one set each.
    let dirs: Vec<PathBuf> = (0..12).map(|d| mount.path(&format!("d{d}"))).collect();
    for dir in &dirs {
        fs::create_dir_all(dir.join("deeper")).unwrap();
    }
    let names = |dir: &PathBuf, f: usize| {
        let mut names = vec![dir.join(format!("f{f}")), dir.join(format!("same{f}"))];
        names.extend((0..f % 4).map(|n| dir.join(format!("deeper/f{f}-{n}"))));
        names
    };
    for (d, dir) in dirs.iter().enumerate() {
        for f in 0..FILES {
            let all = names(dir, f);
            fs::write(&all[0], files::noise((d * FILES + f) as u64, 3000)).unwrap();
            all[1..].iter().for_each(|name| fs::hard_link(&all[0], name).unwrap());
        }
    }
    let before = files_seen(&mount.dir);
    drain(&pool, "start");
    // Meanwhile names of some come and go.
    let worker = {
        let dirs = dirs.clone();
        std::thread::spawn(move || {
            for round in 0..20 {
                for dir in &dirs {
                    let (from, to) = (dir.join(format!("f{}", round % 5)), dir.join("deeper/new"));
                    fs::hard_link(&from, &to).unwrap();
                    let links = fs::metadata(&from).unwrap().nlink();
                    assert_eq!(fs::metadata(&to).unwrap().nlink(), links);
                    fs::remove_file(&to).unwrap();
                }
            }
        })
    };
    pool.kill(2);
    eventually("files move", || (drain(&pool, "status")["moved"]["files"].as_u64()? >= 3).then_some(()));
    pool.start(2);
    worker.join().unwrap();
    eventually("nothing more can move", || {
        (drain(&pool, "status")["moved"]["none_can_move"] == true).then_some(())
    });
    assert!(files_seen(&mount.dir) == before, "users see what they saw before");
    for (d, dir) in dirs.iter().enumerate() {
        for f in 0..FILES {
            let all = names(dir, f);
            let seen: Vec<_> = all.iter().map(|name| fs::metadata(name).unwrap()).collect();
            assert!(
                seen.iter().all(|m| m.ino() == seen[0].ino() && m.nlink() == all.len() as u64),
                "{all:?}"
            );
            assert!(fs::read(&all[1]).unwrap() == files::noise((d * FILES + f) as u64, 3000));
        }
    }
    // Nothing of them is left there, and a file is written under all of its names.
    pool.wait_in_sync();
    for brick in pool.paths(&ALL[..2]) {
        let left: usize =
            files::brick_tree(&brick).values().filter(|s| !s.is_dir()).map(|s| s.content.len()).sum();
        assert_eq!(left, 0, "bytes of files in {}", brick.display());
    }
    fs::write(&names(&dirs[0], 3)[0], "new").unwrap();
    names(&dirs[0], 3).iter().for_each(|name| assert_eq!(fs::read(name).unwrap(), b"new"));
    dirs.iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    mount.end();
    (0..4).for_each(|s| pool.stop(s));
    pool.paths(&ALL).iter().for_each(|brick| is_sound(brick));
}

/// Files leave a set whose names are in directories of several sets, while programs read them and make and remove names, over a
/// kill of a server with entries of theirs: each stays one file, with all of its names (GlusterFS: hard links during
/// remove-brick).
#[test]
fn files_with_names_in_several_sets_leave_a_set() {
    const FILES: usize = 5;
    let mut pool = Pool::new(4);
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 2, &ALL);
    let mount = pool.mount("v");
    let dirs: Vec<PathBuf> = (0..12).map(|d| mount.path(&format!("d{d}"))).collect();
    dirs.iter().for_each(|dir| fs::create_dir(dir).unwrap());
    // Some in two directories, some in three, of whichever sets.
    let names = |d: usize, f: usize| -> Vec<PathBuf> {
        let others = (1..=1 + f % 2).map(|n| dirs[(d + 4 * n - n / 2) % 12].join(format!("of{d}-{f}-{n}")));
        [dirs[d].join(format!("f{f}"))].into_iter().chain(others).collect()
    };
    let all: Vec<(Vec<PathBuf>, Vec<u8>)> =
        (0..12 * FILES).map(|n| (names(n / FILES, n % FILES), files::noise(n as u64, 3000))).collect();
    for (names, content) in &all {
        fs::write(&names[0], content).unwrap();
        names[1..].iter().for_each(|name| fs::hard_link(&names[0], name).unwrap());
    }
    let before = files_seen(&mount.dir);
    drain(&pool, "start");
    let worker = {
        let all = all.clone();
        std::thread::spawn(move || {
            for (n, (names, content)) in all.iter().enumerate() {
                let (last, more) = (names.last().unwrap(), names[0].with_file_name("more"));
                assert!(fs::read(last).unwrap() == *content, "{last:?}");
                if n % 4 == 0 {
                    fs::hard_link(last, &more).unwrap();
                    assert_eq!(fs::metadata(&more).unwrap().nlink(), names.len() as u64 + 1);
                    fs::remove_file(&more).unwrap();
                }
            }
        })
    };
    eventually("files move", || (drain(&pool, "status")["moved"]["files"].as_u64()? >= 3).then_some(()));
    pool.kill(2);
    pool.start(2);
    worker.join().unwrap();
    // The pass before the kill may have met what waited for that server.
    let emptied = || {
        let idle = drain(&pool, "status")["moved"]["none_can_move"] == true;
        (idle && pool.paths(&ALL[..2]).iter().all(|brick| holds_nothing(brick))).then_some(())
    };
    eventually("nothing is left", emptied);
    assert!(files_seen(&mount.dir) == before, "users see what they saw before");
    for (names, content) in &all {
        let seen: Vec<_> = names.iter().map(|name| fs::metadata(name).unwrap()).collect();
        let one = |m: &fs::Metadata| m.ino() == seen[0].ino() && m.nlink() == names.len() as u64;
        assert!(seen.iter().all(one), "{names:?}");
        assert!(fs::read(names.last().unwrap()).unwrap() == *content, "{names:?}");
    }
    fs::write(&all[0].0[0], "new").unwrap();
    all[0].0.iter().for_each(|name| assert_eq!(fs::read(name).unwrap(), b"new"));
    dirs.iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    mount.end();
    (0..4).for_each(|s| pool.stop(s));
    pool.paths(&ALL).iter().for_each(|brick| is_sound(brick));
}

/// All bricks of a server find places on others; then it can be detached.
/// One of a set's two bricks has a place and the other none: neither goes.
#[test]
fn a_set_goes_as_a_whole_or_stays() {
    let pool = Pool::new(4);
    let out = [(2, "b"), (3, "b")];
    pool.volume("v", 2, &[(3, "a"), (1, "a"), out[0], out[1]]);
    drain_set(&pool, &out, "start");
    let before = bricks(&pool);
    let line = format!("volume remove-brick v {} commit", words(&pool, &out));
    eventually("all has left the set", || {
        let said = pool.cli(&line);
        assert_eq!(said.code, Some(1), "{said:?}");
        said.stderr.contains("there is no place for").then_some(())
    });
    assert_eq!(bricks(&pool), before, "nothing is replaced");
    pool.ok(&format!("volume remove-brick v {} force", words(&pool, &out)));
    await_out(&pool, &before[2..]);
}

#[test]
fn a_server_is_drained_and_detached() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 2, &[(0, "a"), (1, "a")]);
    pool.volume("w", 1, &[(0, "w"), (2, "w")]);
    let mounts = [pool.mount("v"), pool.mount("w")];
    for m in &mounts {
        for d in 0..6 {
            fs::create_dir(m.path(&format!("d{d}"))).unwrap();
            fs::write(m.path(&format!("d{d}/f")), files::noise(d, 9000)).unwrap();
        }
    }
    let before: Vec<_> = mounts.iter().map(|m| files::tree(&m.dir)).collect();
    let host = pool.servers[0].host.clone();
    let drain = |pool: &Pool| pool.json(&format!("peer drain {host}"));
    let stuck = drain(&pool);
    let note = stuck["notes"][0].as_str().unwrap();
    assert!(note.contains("of volume v stays"), "no other server has none of its set: {stuck}");
    assert!(
        note.contains("volume replace-brick v") && !note.contains("force"),
        "nothing can be forced: {note}"
    );
    pool.ok(&format!("volume replace-brick v {}", words(&pool, &[(0, "a"), (2, "a")])));
    eventually("the server has no bricks", || drain(&pool)["bricks"].as_array()?.is_empty().then_some(()));
    assert!(pool.ok(&format!("peer drain {host}")).contains("mortar peer detach"));
    for (m, before) in mounts.iter().zip(&before) {
        assert!(files::tree(&m.dir) == *before, "what users see has changed");
    }
    mounts.into_iter().for_each(|m| m.end());
    (0..3).for_each(|s| pool.stop(s));
    is_sound(&pool.servers[2].path("a"));
}

/// A set that a rebalance has filled is emptied again: all files whose names are in other sets' directories leave it, most of
/// them for home, while a program reads and writes, over a kill of the server that they leave.
#[test]
fn files_come_home_from_a_set_that_is_emptied() {
    const FILES: usize = 25;
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick", "no space left"]);
    // What an emptied set gets: the files of a directory that is full, beside another one.
    let bricks = [(0, "disk/a"), (1, "disk/b")];
    for (server, _) in bricks {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 160));
    }
    pool.disks.push(Disk::new("ext4", &pool.servers[2].path("disk"), 160));
    pool.volume("v", 1, &bricks[..1]);
    let mount = pool.mount("v");
    let dirs: Vec<PathBuf> = (0..2).map(|d| mount.path(&format!("d{d}"))).collect();
    for (d, dir) in dirs.iter().enumerate() {
        fs::create_dir(dir).unwrap();
        for f in 0..FILES {
            fs::write(dir.join(format!("f{f}")), files::noise((d * FILES + f) as u64, 1 << 20)).unwrap();
        }
    }
    rustix::fs::setxattr(dirs[0].join("f3"), "user.color", b"green", rustix::fs::XattrFlags::empty())
        .unwrap();
    pool.ok(&format!("volume add-brick v {}", words(&pool, &bricks[1..])));
    pool.ok("volume set v cluster.rebalance-throttle fast");
    pool.ok("volume rebalance v start");
    let new = pool.paths(&bricks[1..])[0].clone();
    eventually("the new set is filled", || (bytes(&new) > 15 << 20).then_some(()));
    pool.ok("volume rebalance v stop");
    pool.ok(&format!("volume add-brick v {}", words(&pool, &[(2, "disk/c")])));
    for n in 0..9 {
        let _ = fs::create_dir(mount.path(&format!("later{n}")));
    }
    let times: Vec<_> = dirs.iter().map(|dir| fs::metadata(dir).unwrap()).collect();
    let before = files::tree(&mount.dir);
    let drain = |pool: &Pool, action: &str| drain_set(pool, &bricks[1..], action);
    drain(&pool, "start");
    // A program reads and writes meanwhile.
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let worker = {
        let (dir, stop) = (dirs[1].clone(), stop.clone());
        std::thread::spawn(move || {
            let mut rounds = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) || rounds == 0 {
                for f in 0..FILES {
                    let file =
                        OpenOptions::new().read(true).write(true).open(dir.join(format!("f{f}"))).unwrap();
                    let mut back = vec![0; 100];
                    file.read_exact_at(&mut back, 5000).unwrap();
                    assert!(
                        back == files::noise((FILES + f) as u64, 1 << 20)[5000..5100],
                        "f{f} is another file"
                    );
                    file.write_all_at(&back, 5000).unwrap();
                }
                rounds += 1;
                std::thread::sleep(Duration::from_millis(300));
            }
            rounds
        })
    };
    // Whoever held one open when it came there has a minute to say so, and it stays that long.
    let limit = TEST_TIMEOUT + Duration::from_secs(60);
    eventually_within(limit, "files leave", || {
        (drain(&pool, "status")["moved"]["files"].as_u64()? >= 3).then_some(())
    });
    pool.kill(1);
    pool.start(1);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(worker.join().unwrap() > 0);
    // The next process does not know either who has what open.
    eventually_within(limit, "nothing is left there", || (bytes(&new) < 1 << 20).then_some(()));
    eventually("nothing more can move", || {
        (drain(&pool, "status")["moved"]["none_can_move"] == true).then_some(())
    });
    let after = files::tree(&mount.dir);
    assert_eq!(before.len(), after.len());
    for (path, seen) in &before {
        // Those were written to.
        if !path.starts_with("d1") {
            assert!(after.get(path) == Some(seen), "{path:?} is not what it was");
        }
    }
    for f in 0..FILES {
        let content = fs::read(dirs[1].join(format!("f{f}"))).unwrap();
        assert!(content == files::noise((FILES + f) as u64, 1 << 20), "d1/f{f}");
    }
    for (dir, times) in dirs.iter().zip(times) {
        assert_eq!(fs::metadata(dir).unwrap().mtime_nsec(), times.mtime_nsec());
    }
    fs::write(dirs[0].join("f5"), "new").unwrap();
    assert_eq!(fs::read(dirs[0].join("f5")).unwrap(), b"new");
    dirs.iter().for_each(|dir| fs::remove_dir_all(dir).unwrap());
    mount.end();
    (0..3).for_each(|s| pool.stop(s));
    pool.paths(&[(0, "disk/a"), (1, "disk/b"), (2, "disk/c")]).iter().for_each(|brick| is_sound(brick));
}
