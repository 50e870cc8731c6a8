//! Volumes that get more bricks while they are in use.

use crate::harness::{Mounted, Pool, alone, eventually, files};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

const TWO: [(usize, &str); 2] = [(0, "a"), (1, "a")];

/// The bricks as the command line takes them.
pub(crate) fn words(pool: &Pool, bricks: &[(usize, &str)]) -> String {
    let words: Vec<String> = bricks.iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    words.join(" ")
}

/// The directory of the top with a file of this name in it, on a brick.
fn has(brick: &Path, dir: &str) -> bool {
    brick.join(dir).join("file").exists()
}

/// Makes directories until one lives on these bricks; tells how long the first of them took to get there.
fn use_bricks(mount: &Mounted, bricks: &[PathBuf]) -> Duration {
    let begun = Instant::now();
    eventually("a new directory lives on the new bricks", || {
        let dir = format!("later{}", files::names(&mount.dir).len());
        fs::create_dir(mount.path(&dir)).unwrap();
        fs::write(mount.path(&dir).join("file"), "x").unwrap();
        bricks.iter().all(|b| has(b, &dir)).then_some(())
    });
    begun.elapsed()
}

/// A mount that is at work sees no error and uses the new room within a second, without a remount. A volume that is not
/// started grows as well.
#[test]
fn a_volume_in_use_gets_more_sets() {
    let _alone = alone();
    let mut pool = Pool::new(2);
    pool.volume("v", 2, &TWO);
    let mount = pool.mount("v");
    let work = mount.path("work");
    fs::create_dir(&work).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut n = 0u32;
            while !over.load(Ordering::Relaxed) && n < 5000 {
                fs::write(work.join(format!("f{n}")), n.to_string()).unwrap();
                n += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            n
        });
        let new = [(0, "b"), (1, "b"), (1, "c"), (0, "c")];
        let added = pool.json(&format!("volume add-brick v {}", words(&pool, &new)));
        assert_eq!(added["sets"], serde_json::json!([2, 3]));
        assert_eq!(added["serving"], true);
        let paths = pool.paths(&new);
        for set in paths.chunks(2) {
            let took = use_bricks(&mount, set);
            println!("a new set was used after {took:?}");
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
        over.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap();
        assert!(written > 0);
        for n in 0..written {
            assert_eq!(fs::read_to_string(work.join(format!("f{n}"))).unwrap(), n.to_string());
        }
    });
    assert_eq!(pool.json("volume info v")[0]["sets"].as_array().unwrap().len(), 3);
    // All of it is there after every server was down.
    let before = files::tree(&mount.dir);
    pool.stop(0);
    pool.stop(1);
    pool.start(0);
    pool.start(1);
    assert_eq!(files::tree(&mount.dir), before);
    mount.end();
    pool.ok("volume stop v --yes");
    pool.ok(&format!("volume add-brick v {}", words(&pool, &[(0, "d"), (1, "d")])));
    pool.ok("volume start v");
    let mount = pool.mount("v");
    use_bricks(&mount, &pool.paths(&[(0, "d"), (1, "d")]));
}

/// What cannot be added is refused with its name, and nothing of it stays: the same directories can be given again.
#[test]
fn bricks_that_cannot_be_added_are_refused() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &TWO);
    let add = |bricks: &[(usize, &str)]| pool.cli(&format!("volume add-brick v {}", words(&pool, bricks)));
    add(&[(0, "n")]).refused_with(&["1 bricks cannot be sets of 2", "give a multiple"]);
    add(&[(0, "a"), (1, "n")]).refused_with(&["in use by volume 'v'"]);
    add(&[(0, "n"), (0, "m")]).refused_with(&["of one set are on one server", "--force"]);
    pool.cli("volume add-brick w h:/x").refused_with(&["h"]);
    fs::create_dir(pool.servers[1].path("full")).unwrap();
    fs::write(pool.servers[1].path("full/file"), "x").unwrap();
    add(&[(0, "n"), (1, "full")]).refused_with(&["full", "not empty"]);
    assert!(!pool.servers[0].path("n").exists(), "the trial left something");
    assert_eq!(pool.cli("volume add-brick v").code, Some(2));
    add(&[(0, "n"), (1, "n")]).ok();
    assert_eq!(pool.json("volume info v")[0]["sets"].as_array().unwrap().len(), 2);
}

/// A command that is interrupted leaves directories that it had made bricks: the next one may use them. One that served, or
/// holds anything, or that another volume has, by whatever path and server, is refused as ever.
#[test]
fn what_an_interrupted_command_left_is_taken_over() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &TWO);
    let copy = |from: (usize, &str), to: &str| {
        let (from, to) = (pool.servers[from.0].path(from.1), pool.servers[from.0].path(to));
        assert!(std::process::Command::new("cp").arg("-a").args([&from, &to]).status().unwrap().success());
    };
    pool.ok(&format!("volume create w {}", words(&pool, &[(0, "w")])));
    // Bricks that were never opened, with numbers that were given to others.
    copy((0, "w"), "n");
    copy((0, "w"), "m");
    pool.ok(&format!("volume add-brick v {}", words(&pool, &[(0, "n"), (1, "n")])));
    pool.ok(&format!("volume create u {}", words(&pool, &[(0, "m")])));
    copy((0, "w"), "copies");
    copy((0, "w"), "another");
    pool.ok(&format!("volume create y {}", words(&pool, &[(1, "y")])));
    pool.ok(&format!("volume add-brick y replica 2 {}", words(&pool, &[(0, "copies")])));
    let document = format!("[volume.z]\nbricks = [\"{}\"]\n", pool.servers[0].brick("another"));
    let file = pool.dir.join("pool.toml");
    fs::write(&file, document).unwrap();
    pool.ok(&format!("config apply {}", file.display()));
    let refused = |brick: &str, why: &str| {
        pool.cli(&format!("volume create t {brick}")).refused_with(&[why]);
    };
    refused(&pool.servers[0].brick("w"), "in use by volume 'w'");
    std::os::unix::fs::symlink(pool.servers[0].path("."), pool.servers[0].path("link")).unwrap();
    refused(&pool.servers[0].brick("link/w"), "is already brick");
    let as_theirs = pool.servers[0].path("w").display().to_string();
    refused(&format!("{}:{as_theirs}", pool.servers[1].host), "is already brick");
    copy((0, "a"), "served");
    refused(&pool.servers[0].brick("served"), "is already brick");
    copy((0, "w"), "filled");
    fs::write(pool.servers[0].path("filled/file"), "x").unwrap();
    refused(&pool.servers[0].brick("filled"), "is already brick");
    assert_eq!(fs::read(pool.servers[0].path("filled/file")).unwrap(), b"x");
    pool.ok("volume start w");
    pool.mount("w").end();
    pool.ok("volume start u");
    let mount = pool.mount("u");
    fs::write(mount.path("file"), "x").unwrap();
    mount.end();
}

/// A document with more bricks adds them.
#[test]
fn a_document_with_more_bricks_is_applied() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &TWO);
    let mount = pool.mount("v");
    let text = pool.ok("config export");
    let last = format!("\"{}\"", pool.servers[1].brick("a"));
    assert!(text.contains(&last), "{text}");
    let new = [(0, "b"), (1, "b")];
    let added: Vec<String> = new.iter().map(|(s, b)| format!("\"{}\"", pool.servers[*s].brick(b))).collect();
    let file = pool.dir.join("pool.toml");
    fs::write(&file, text.replace(&last, &format!("{last}, {}", added.join(", ")))).unwrap();
    let apply = format!("config apply {}", file.display());
    assert!(pool.ok(&format!("{apply} --dry-run")).contains("add 2 bricks to volume v"));
    assert_eq!(pool.json("volume info v")[0]["sets"].as_array().unwrap().len(), 1);
    pool.ok(&apply);
    use_bricks(&mount, &pool.paths(&new));
    assert!(pool.ok(&apply).contains("nothing to change"));
}

/// HOST:/PATH of a brick, as status tells it.
pub(crate) fn place(brick: &serde_json::Value) -> String {
    format!("{}:{}", brick["server"].as_str().unwrap(), brick["path"].as_str().unwrap())
}

/// The bricks of a volume, once they are in sync.
pub(crate) fn in_sync(pool: &Pool, volume: &str, bricks: &[(usize, &str)]) {
    let wanted: Vec<String> = bricks.iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    eventually("these bricks are in sync", || {
        let status = pool.status(volume);
        let all = status["bricks"].as_array()?;
        let named = all.iter().map(place).collect::<Vec<_>>() == wanted;
        (named && all.iter().all(|b| b["in_sync"] == true && b["online"] == true)).then_some(())
    });
}

/// A brick in sync stays until the new one is, a dead one goes at once; the mount notices neither.
#[test]
fn bricks_are_replaced_while_the_volume_is_in_use() {
    let mut pool = Pool::new(4);
    // Until the newcomer knows for certain that others hold the brick's data.
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 2, &TWO);
    pool.volume("w", 1, &[(0, "w")]);
    let (mount, alone) = (pool.mount("v"), pool.mount("w"));
    for m in [&mount, &alone] {
        fs::create_dir(m.path("d")).unwrap();
        for i in 0..100 {
            fs::write(m.path(&format!("d/f{i}")), files::noise(i, 3000)).unwrap();
        }
    }
    let replace = |pool: &Pool, v: &str, old: (usize, &str), new: (usize, &str)| {
        pool.json(&format!("volume replace-brick {v} {}", words(pool, &[old, new])))
    };
    assert_eq!(replace(&pool, "v", (0, "a"), (2, "n"))["at_once"], false);
    for i in 100..150 {
        fs::write(mount.path(&format!("d/f{i}")), files::noise(i, 3000)).unwrap();
    }
    in_sync(&pool, "v", &[(2, "n"), (1, "a")]);
    // The only copy moves to another server.
    replace(&pool, "w", (0, "w"), (1, "w"));
    in_sync(&pool, "w", &[(1, "w")]);
    let brick_path = pool.servers[1].path("a").display().to_string();
    pool.kill(1);
    eventually("the killed server's brick is out of the view", || {
        let status = pool.status("v");
        let brick = status["bricks"].as_array()?.iter().find(|b| b["path"] == brick_path.as_str())?.clone();
        (brick["in_sync"] == false).then_some(())
    });
    assert_eq!(replace(&pool, "v", (1, "a"), (3, "n"))["at_once"], true);
    fs::write(mount.path("d/last"), "x").unwrap();
    in_sync(&pool, "v", &[(2, "n"), (3, "n")]);
    pool.start(1);
    pool.kill(0);
    for i in 0..150 {
        assert_eq!(fs::read(mount.path(&format!("d/f{i}"))).unwrap(), files::noise(i, 3000));
    }
    for i in 0..100 {
        assert_eq!(fs::read(alone.path(&format!("d/f{i}"))).unwrap(), files::noise(i, 3000));
    }
    mount.end();
    alone.end();
    let paths = pool.paths(&[(2, "n"), (3, "n")]);
    eventually("the bricks are the same", || {
        (files::brick_tree(&paths[0]) == files::brick_tree(&paths[1])).then_some(())
    });
}

/// A root directory that nobody has changed is as old as its volume, whichever brick tells, one that came in later too.
#[test]
fn a_new_root_has_the_times_of_its_making() {
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let (mut pool, begun) = (Pool::new(3), i64::try_from(now()).unwrap());
    pool.volume("v", 2, &TWO);
    let times = |pool: &Pool| {
        let mount = pool.mount("v");
        let root = fs::metadata(&mount.dir).unwrap();
        mount.end();
        [
            (root.atime(), root.atime_nsec()),
            (root.mtime(), root.mtime_nsec()),
            (root.ctime(), root.ctime_nsec()),
        ]
    };
    let made = times(&pool);
    let lately = begun..=i64::try_from(now()).unwrap();
    assert!(made.iter().all(|(seconds, _)| lately.contains(seconds)), "{made:?}, made in {lately:?}");
    pool.ok(&format!("volume replace-brick v {}", words(&pool, &[(1, "a"), (2, "n")])));
    in_sync(&pool, "v", &[(0, "a"), (2, "n")]);
    let brick = |path: &PathBuf| fs::metadata(path).unwrap().mtime();
    let on_bricks: Vec<i64> = pool.paths(&[(0, "a"), (2, "n")]).iter().map(brick).collect();
    assert_eq!(on_bricks, [made[1].0; 2]);
    pool.kill(0);
    assert_eq!(times(&pool), made, "as the other brick tells");
}

/// A disk is replaced by another one of the same server: with a copy less meanwhile, which has to be said.
#[test]
fn a_brick_is_replaced_on_its_own_server() {
    let mut pool = Pool::new(2);
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 2, &TWO);
    let mount = pool.mount("v");
    fs::write(mount.path("file"), "x").unwrap();
    let line = |old: (usize, &str), new: (usize, &str)| {
        format!("volume replace-brick v {}", words(&pool, &[old, new]))
    };
    pool.cli(&line((0, "a"), (0, "n"))).refused_with(&["a copy less", "--force"]);
    pool.cli(&line((0, "a"), (1, "n"))).refused_with(&["a brick of the same set"]);
    pool.cli(&line((0, "x"), (0, "n"))).refused_with(&["is no brick of volume 'v'"]);
    pool.ok(&format!("{} --force", line((0, "a"), (0, "n"))));
    fs::write(mount.path("more"), "y").unwrap();
    in_sync(&pool, "v", &[(0, "n"), (1, "a")]);
    assert_eq!(fs::read(pool.servers[0].path("n/file")).unwrap(), b"x");
    assert_eq!(fs::read_to_string(mount.path("more")).unwrap(), "y");
}
