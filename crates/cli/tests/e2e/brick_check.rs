//! `mortar brick check [--repair]` on bricks that were damaged by hand, and how they come back into their set.

use crate::harness::{Output, Pool, alone, eventually, files, mortar, run};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const BRICKS: [(usize, &str); 3] = [(0, "b"), (1, "b"), (2, "b")];

fn check(brick: &Path, words: &[&str]) -> Output {
    let mut command = mortar();
    command.args(["brick", "check"]).arg(brick).args(words);
    run(command)
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// The check fails with a line about each of these places, and repairs all of them but `left`.
fn repair(brick: &Path, places: &[(&str, &str)], left: usize) -> Value {
    let found = check(brick, &[]);
    assert_eq!(found.code, Some(1), "{found:?}");
    for (path, text) in places {
        let line = found.stdout.lines().find(|l| l.starts_with(&format!("{path}: ")) && l.contains(text));
        println!("{}", line.unwrap_or_else(|| panic!("{path}: {text}: {}", found.stdout)));
    }
    let repaired = check(brick, &["--repair", "--json"]);
    assert_eq!(repaired.code, Some(i32::from(left > 0)), "{repaired:?}");
    let report = json(&repaired);
    let problems = report["problems"].as_array().unwrap();
    assert_eq!(problems.iter().filter(|p| p["repaired"] == false).count(), left, "{report}");
    assert!(problems.iter().all(|p| (p["remedy"] == "") == (p["repaired"] == true)), "{report}");
    report
}

fn segments(brick: &Path) -> Vec<PathBuf> {
    let journal = fs::read_dir(brick.join(".mortar/journal")).unwrap();
    let mut all: Vec<PathBuf> = journal.map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 0x40;
    fs::write(file, bytes).unwrap();
}

fn untag(path: &Path) {
    rustix::fs::lremovexattr(path, "trusted.mortar.id").unwrap();
}

/// All bricks are in sync and hold what the mount shows.
fn await_whole(pool: &Pool, dir: &Path) {
    eventually("all bricks are in sync", || {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array()?;
        bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
    });
    for brick in pool.paths(&BRICKS) {
        eventually("the brick holds what the mount shows", || {
            (files::brick_tree(&brick) == files::tree(dir)).then_some(())
        });
    }
}

fn filled() -> (Pool, crate::harness::Mounted) {
    let pool = Pool::new(3);
    pool.volume("v", 3, &BRICKS);
    let mount = pool.mount("v");
    fs::create_dir(mount.path("d")).unwrap();
    for i in 0..60 {
        fs::write(mount.path(&format!("d/f{i}")), files::noise(i, 3000)).unwrap();
    }
    fs::hard_link(mount.path("d/f1"), mount.path("again")).unwrap();
    (pool, mount)
}

/// Each kind of damage on its own: named, repaired, and healed from the set without loss.
#[test]
fn damaged_bricks_are_repaired_and_heal() {
    let (mut pool, mount) = filled();
    pool.expect_errors(&["cannot be read", "damaged", "open brick"]);
    let brick = pool.servers[2].path("b");
    let busy = check(&brick, &[]).refused();
    assert!(busy.contains("in use"), "{busy}");
    let sound = |brick: &Path| {
        let output = check(brick, &[]);
        assert_eq!(output.code, Some(0), "{output:?}");
    };
    for round in 0..6 {
        pool.stop(2);
        sound(&brick);
        let meta = brick.join(".mortar");
        match round {
            0 => {
                // Tags: lost, of a copy, and content that changed under a lost one.
                untag(&brick.join("d/f2"));
                fs::write(brick.join("d/f2"), "changed by hand").unwrap();
                untag(&brick.join("d"));
                let report = repair(&brick, &[("d", "it has no tag; by the index")], 0);
                assert!(report["to_heal"].as_u64().unwrap() >= 2, "{report}");
            }
            1 => {
                // A byte in the middle of the journal, while the set goes on.
                let first = segments(&brick).remove(0);
                flip(&first, usize::try_from(fs::metadata(&first).unwrap().len()).unwrap() / 2);
                // Content that nobody can know to be wrong any more.
                fs::write(brick.join("d/f3"), files::noise(99, 3000)).unwrap();
                let name = format!(".mortar/journal/{}", first.file_name().unwrap().to_str().unwrap());
                let report = repair(&brick, &[(&name, "damage at byte")], 0);
                assert_eq!(report["to_heal"], "everything", "{report}");
            }
            2 => {
                // The journal's only segment, and the index with it.
                for segment in segments(&brick) {
                    fs::write(segment, "rubbish").unwrap();
                }
                fs::write(meta.join("index.redb"), "rubbish").unwrap();
                let report = repair(&brick, &[(".mortar/index.redb", "not readable")], 0);
                assert_eq!(report["to_heal"], "everything", "{report}");
            }
            3 => {
                // What an administrator does: a file put in, a copy, a link out of the brick.
                fs::write(brick.join("d/put in"), "by hand").unwrap();
                let copied = std::process::Command::new("cp")
                    .arg("-a")
                    .arg(brick.join("d/f4"))
                    .arg(brick.join("d/copy"))
                    .status();
                assert!(copied.unwrap().success());
                let outside = pool.servers[2].path("outside");
                fs::hard_link(brick.join("d/f5"), &outside).unwrap();
                let places = [
                    ("d/put in", "it has no tag: it does not belong"),
                    ("d/copy", "the same fid"),
                    ("d/f5", "2 hard links, 1 of them"),
                ];
                repair(&brick, &places, 3);
                assert_eq!(fs::read(brick.join("d/put in")).unwrap(), b"by hand", "it is left");
                for path in [brick.join("d/put in"), brick.join("d/copy"), outside] {
                    fs::remove_file(path).unwrap();
                }
            }
            4 => {
                // The identity: only the server knows it, and writes it again.
                flip(&meta.join("identity"), 40);
                let output = check(&brick, &["--repair"]);
                assert_eq!(output.code, Some(1), "{output:?}");
                assert!(output.stdout.contains("the server writes it again"), "{output:?}");
            }
            _ => {
                // Nothing is left of it: it is filled again.
                fs::remove_dir_all(&brick).unwrap();
                fs::create_dir(&brick).unwrap();
                assert!(check(&brick, &[]).refused().contains("is not a brick"));
            }
        }
        if round < 4 {
            sound(&brick);
        }
        fs::write(mount.path(&format!("d/meanwhile{round}")), files::noise(round, 9000)).unwrap();
        fs::write(mount.path("d/f6"), files::noise(round + 70, 4000)).unwrap();
        pool.start(2);
        await_whole(&pool, &mount.dir);
        println!("round {round} healed");
    }
    // It serves what it healed: alone if need be.
    pool.ok("volume set v cluster.quorum-type none");
    pool.kill(0);
    assert_eq!(fs::read(mount.path("d/f3")).unwrap(), files::noise(3, 3000));
    fs::write(mount.path("last"), "x").unwrap();
    mount.end();
}

/// The brick that led the set is repaired while the volume is stopped: all views still count on it. It does not act before
/// it has healed, whatever the view says.
#[test]
fn a_repaired_brick_does_not_lead_before_it_has_healed() {
    let (mut pool, mount) = filled();
    pool.expect_errors(&["open brick"]);
    mount.end();
    for round in 0..3 {
        let status = pool.status("v");
        let primary = status["bricks"].as_array().unwrap().iter().find(|b| b["role"] == "primary").unwrap();
        let brick = PathBuf::from(primary["path"].as_str().unwrap());
        pool.ok("volume stop v --yes");
        // Right after the stop: the server still closes it.
        check(&brick, &[]).ok();
        let first = segments(&brick).remove(0);
        flip(&first, usize::try_from(fs::metadata(&first).unwrap().len()).unwrap() - 20);
        for i in 0..60 {
            fs::write(brick.join(format!("d/f{i}")), "wrong").unwrap();
        }
        check(&brick, &["--repair"]).ok();
        pool.ok("volume start v");
        let mount = pool.mount("v");
        for i in 0..60 {
            assert_eq!(
                fs::read(mount.path(&format!("d/f{i}"))).unwrap(),
                files::noise(i, 3000),
                "round {round}"
            );
        }
        fs::write(mount.path(&format!("new{round}")), "x").unwrap();
        await_whole(&pool, &mount.dir);
        mount.end();
    }
}

/// The only brick of its set: nobody can heal it, so what it holds counts, and no number is given twice.
#[test]
fn a_repaired_brick_without_others_serves() {
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    for i in 0..60 {
        fs::write(mount.path(&format!("f{i}")), files::noise(i, 3000)).unwrap();
    }
    mount.end();
    pool.stop(0);
    let brick = pool.servers[0].path("b");
    let first = segments(&brick).remove(0);
    flip(&first, usize::try_from(fs::metadata(&first).unwrap().len()).unwrap() / 2);
    check(&brick, &["--repair"]).ok();
    pool.start(0);
    let mount = pool.mount("v");
    fs::write(mount.path("new"), "x").unwrap();
    let new = fs::metadata(mount.path("new")).unwrap().ino();
    for i in 0..60 {
        let path = mount.path(&format!("f{i}"));
        assert_eq!(fs::read(&path).unwrap(), files::noise(i, 3000));
        assert_ne!(fs::metadata(&path).unwrap().ino(), new, "a number was given twice");
    }
    mount.end();
    pool.stop(0);
    check(&brick, &[]).ok();
    pool.start(0);
    assert_eq!(fs::read(pool.mount("v").path("new")).unwrap(), b"x");
}

/// Time and memory of a check.
#[test]
fn a_check_of_many_files_is_quick_and_small() {
    let _alone = alone();
    let count: usize = std::env::var("MORTAR_CHECK_FILES").ok().and_then(|n| n.parse().ok()).unwrap_or(5_000);
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    let made = Instant::now();
    for d in 0..count / 1000 {
        fs::create_dir(mount.path(&format!("d{d}"))).unwrap();
        for f in 0..1000 {
            fs::write(mount.path(&format!("d{d}/file{f}")), "").unwrap();
        }
    }
    println!("{count} files made in {:?}", made.elapsed());
    mount.end();
    pool.stop(0);
    let brick = pool.servers[0].path("b");
    for repair in [false, true] {
        if repair {
            fs::remove_file(brick.join(".mortar/index.redb")).unwrap();
        }
        let words: &[&str] = if repair { &["--repair", "--json"] } else { &["--json"] };
        let begun = Instant::now();
        let output = check(&brick, words);
        let took = begun.elapsed();
        assert_eq!(json(&output)["files"], count, "{output:?}");
        println!("check {words:?} of {count} files: {took:?}, {} KiB at most", peak(&brick));
        assert!(took.as_secs_f64() < 10.0 + count as f64 / 5_000.0, "{took:?}");
    }
}

/// The most memory that a check takes.
fn peak(brick: &Path) -> u64 {
    let mut command = mortar();
    command.args(["brick", "check"]).arg(brick).stdout(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
        let now = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
        most = most.max(now.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(most > 0 && most < 256 << 10, "{most} KiB");
    most
}

/// Somebody removes files, and a directory with all in it, from a brick that serves (gluster/glusterfs 1673, 3776): from a secondary,
/// then from the primary. The other bricks lose nothing by it, whatever is done meanwhile, and after a check with `--repair` the
/// brick has all of it again.
#[test]
fn what_is_removed_by_hand_from_a_brick_in_use_comes_back() {
    let (mut pool, mount) = filled();
    pool.expect_errors(&["ENOENT", "ESTALE", "left the common history", "the brick's tree is not as"]);
    fs::create_dir(mount.path("e")).unwrap();
    for i in 0..20 {
        fs::write(mount.path(&format!("e/f{i}")), files::noise(100 + i, 2000)).unwrap();
    }
    let role = |pool: &Pool, role: &str| {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array().unwrap();
        bricks.iter().position(|b| b["role"] == role).unwrap()
    };
    for of in ["secondary", "primary"] {
        let server = role(&pool, of);
        let brick = pool.servers[server].path("b");
        let others: Vec<PathBuf> = pool.paths(&BRICKS).into_iter().filter(|path| *path != brick).collect();
        let before: Vec<_> = others.iter().map(|brick| files::brick_tree(brick)).collect();
        fs::remove_file(brick.join("d/f7")).unwrap();
        fs::remove_dir_all(brick.join("e")).unwrap();
        // Errors are fine, wrong answers are not, and no change may take anything from the other bricks.
        for i in 0..20 {
            if let Ok(read) = fs::read(mount.path(&format!("e/f{i}"))) {
                assert!(read == files::noise(100 + i, 2000), "e/f{i}");
            }
        }
        let read = fs::read(mount.path("d/f7"));
        assert!(read.is_err() || read.is_ok_and(|read| read == files::noise(7, 3000)));
        fs::write(mount.path(&format!("d/{of}")), "written meanwhile").unwrap();
        eventually("the others have what was written meanwhile", || {
            others.iter().all(|brick| brick.join(format!("d/{of}")).exists()).then_some(())
        });
        for (brick, before) in others.iter().zip(&before) {
            let now = files::brick_tree(brick);
            let lost = before.keys().find(|path| !now.contains_key(*path));
            assert_eq!(lost, None, "{brick:?} has lost it too");
        }
        pool.stop(server);
        let found = check(&brick, &["--repair"]);
        assert!(found.code.is_some_and(|code| code < 2), "{found:?}");
        println!("{of}: {}", found.stdout);
        pool.start(server);
        await_whole(&pool, &mount.dir);
        assert!(fs::read(mount.path("d/f7")).unwrap() == files::noise(7, 3000));
        (0..20).for_each(|i| {
            assert!(
                fs::read(mount.path(&format!("e/f{i}"))).unwrap() == files::noise(100 + i, 2000),
                "e/f{i}"
            );
        });
    }
    mount.end();
}
