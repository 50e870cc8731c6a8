//! Files that move from a set that is fuller than others.

use crate::adopt::is_sound;
use crate::harness::{Disk, Pool, eventually, files, is_long};
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

const BRICKS: [(usize, &str); 2] = [(0, "disk/b"), (1, "disk/b")];
const FILES: usize = 30;
const MIB: usize = 1 << 20;

/// Bytes of files that lie beneath a directory, hidden folders included.
pub(crate) fn bytes(dir: &Path) -> u64 {
    files::brick_tree(dir)
        .keys()
        .filter_map(|p| fs::symlink_metadata(dir.join(p)).ok())
        .map(|m| m.len())
        .sum::<u64>()
        + fs::read_dir(dir.join(".mortar/limbo")).map_or(0, |folders| {
            let folders = folders.filter_map(Result::ok).filter(|f| f.path().is_dir());
            folders
                .flat_map(|f| fs::read_dir(f.path()).into_iter().flatten().filter_map(Result::ok))
                .filter_map(|e| e.metadata().ok())
                .map(|m| m.len())
                .sum()
        })
}

/// All that users see of files stays as it was; what is open stays where it is.
#[test]
fn files_of_a_full_set_move_to_an_empty_one() {
    let mut pool = Pool::new(2);
    for (server, _) in BRICKS {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 128));
    }
    pool.volume("v", 1, &BRICKS);
    // All files of one directory are to lie on one set, large ones, too.
    pool.ok("volume set v cluster.large-file-size 0");
    let mount = pool.mount("v");
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..FILES {
        let path = dir.join(format!("f{n}"));
        fs::write(&path, files::noise(n as u64, 2 * MIB)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600 + n as u32)).unwrap();
    }
    rustix::fs::setxattr(dir.join("f3"), "user.color", b"green", rustix::fs::XattrFlags::empty()).unwrap();
    let sparse = File::create(dir.join("sparse")).unwrap();
    sparse.write_all_at(b"end", 5 * MIB as u64).unwrap();
    drop(sparse);
    fs::hard_link(dir.join("f0"), dir.join("linked")).unwrap();
    symlink("f1", dir.join("link")).unwrap();
    let open = OpenOptions::new().read(true).write(true).open(dir.join("f2")).unwrap();
    let before = files::tree(&mount.dir);
    let times = fs::metadata(&dir).unwrap();
    let paths = pool.paths(&BRICKS);
    let full = if bytes(&paths[0]) > bytes(&paths[1]) { 0 } else { 1 };
    assert!(bytes(&paths[1 - full]) < MIB as u64, "all of it lies on one set");
    pool.ok("volume set v cluster.rebalance on");
    eventually("both sets hold about as much", || {
        let (a, b) = (bytes(&paths[0]), bytes(&paths[1]));
        (a.abs_diff(b) < 20 * MIB as u64).then_some(())
    });
    open.write_all_at(b"still here", 0).unwrap();
    open.sync_all().unwrap();
    assert_eq!(open.metadata().unwrap().ino(), fs::metadata(dir.join("f2")).unwrap().ino());
    let mut back = vec![0; 10];
    open.read_exact_at(&mut back, 0).unwrap();
    assert_eq!(back, b"still here");
    open.write_all_at(&files::noise(2, 2 * MIB)[..10], 0).unwrap();
    let after = files::tree(&mount.dir);
    for (path, seen) in &before {
        // It was written to.
        if path != Path::new("d/f2") {
            assert!(after.get(path) == Some(seen), "{path:?} is not what it was");
        }
    }
    assert_eq!(before.len(), after.len());
    assert_eq!(fs::metadata(&dir).unwrap().mtime_nsec(), times.mtime_nsec());
    assert_eq!(fs::metadata(dir.join("f0")).unwrap().nlink(), 2);
    let blocks = fs::metadata(dir.join("sparse")).unwrap().blocks();
    assert!(blocks < 2048, "{blocks} blocks for a file of one");
    // Everything can be changed and removed as before.
    fs::write(dir.join("f5"), "new").unwrap();
    assert_eq!(fs::read(dir.join("f5")).unwrap(), b"new");
    drop(open);
    fs::remove_dir_all(&dir).unwrap();
    eventually("all room is free again", || (bytes(&paths[0]) + bytes(&paths[1]) < MIB as u64).then_some(()));
}

/// What the command line tells of it.
fn told(pool: &Pool, words: &str) -> Value {
    pool.json(&format!("volume rebalance v {words}"))
}

fn moved(pool: &Pool) -> u64 {
    told(pool, "status")["moved"]["files"].as_u64().unwrap()
}

/// Both sets are led, and neither is clearly fuller.
fn is_even(pool: &Pool) -> bool {
    let now = told(pool, "status");
    now["plan"].as_array().is_some_and(Vec::is_empty) && now["sets"].as_array().unwrap().len() == 2
}

/// Files move until no set is clearly fuller, over kills of both servers and a target that is full for a while.
#[test]
fn a_rebalance_is_begun_and_paused_and_outlives_kills() {
    let mut pool = Pool::new(2);
    // Of syncs while the target is full.
    pool.expect_errors(&["no space left"]);
    for (server, _) in BRICKS {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 160));
    }
    pool.volume("v", 1, &BRICKS);
    // All files of one directory are to lie on one set, large ones, too.
    pool.ok("volume set v cluster.large-file-size 0");
    let mount = pool.mount("v");
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    for n in 0..100 {
        fs::write(dir.join(format!("f{n}")), files::noise(n, MIB)).unwrap();
    }
    fs::hard_link(dir.join("f0"), dir.join("linked")).unwrap();
    let before = files::tree(&mount.dir);
    let paths = pool.paths(&BRICKS);
    let full = if bytes(&paths[0]) > bytes(&paths[1]) { 0 } else { 1 };

    // Room counts when the kernel has written the data out.
    let plan = eventually("about half of it is to move", || {
        let plan = told(&pool, "start --dry-run");
        let planned = plan["remaining_bytes"].as_u64()? / MIB as u64;
        (30..60).contains(&planned).then_some(plan)
    });
    assert_eq!((&plan["state"], &plan["moved"]["files"]), (&json!("off"), &json!(0)), "{plan}");
    assert_eq!(told(&pool, "start")["state"], "on");
    eventually("some files have moved", || (moved(&pool) >= 4).then_some(()));
    assert_eq!(told(&pool, "pause")["state"], "paused");
    // What was about to get its entry gets it.
    let paused = eventually("nothing moves for a second, and what has moved is known", || {
        let before = moved(&pool);
        std::thread::sleep(Duration::from_secs(1));
        (moved(&pool) == before).then_some(before)
    });
    assert!(!is_even(&pool), "it is the pause that nothing moves for");
    told(&pool, "start");
    eventually("more files have moved", || (moved(&pool) > paused).then_some(()));

    pool.kill(1 - full);
    pool.start(1 - full);
    let before_it = moved(&pool);
    eventually("files move again", || (moved(&pool) > before_it + 4 || is_even(&pool)).then_some(()));
    let filler = pool.servers[1 - full].path("disk/filler");
    // As much as there is room for.
    let _full = fs::write(&filler, files::noise(1, 100 * MIB));
    std::thread::sleep(Duration::from_secs(1));
    fs::remove_file(&filler).unwrap();
    let before_it = moved(&pool);
    let goes_on = || (moved(&pool) > before_it || is_even(&pool)).then_some(());
    eventually("there is room again", goes_on);
    pool.kill(full);
    pool.start(full);
    // A new primary moves nothing for a minute.
    if is_long() {
        assert!((0..180).any(|_| {
            std::thread::sleep(Duration::from_secs(1));
            is_even(&pool)
        }));
        let text = pool.ok("volume rebalance v status");
        assert!(text.contains("is on (gentle)") && text.contains("no set is clearly fuller"), "{text}");
    }
    assert_eq!(told(&pool, "stop")["state"], "off");
    assert!(files::tree(&mount.dir) == before, "users see what they saw before");
    assert!(pool.ok("volume rebalance v status").contains("rebalance is off"));
    mount.end();
    for (server, path) in paths.iter().enumerate() {
        pool.stop(server);
        is_sound(path);
    }
}
