//! Existing data becomes a volume's, and files that were put into bricks.

use crate::grow::{in_sync, words};
use crate::harness::{Pool, eventually, files, mortar, run};
use rustix::fs::{CWD, FileType, XattrFlags, mknodat};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

/// A directory with all kinds of objects, and many files.
fn data(dir: &Path, count: u64) {
    fs::create_dir_all(dir.join("docs/deep/er")).unwrap();
    for i in 0..count {
        fs::create_dir_all(dir.join(format!("many/{}", i % 50))).unwrap();
        fs::write(dir.join(format!("many/{}/f{i}", i % 50)), files::noise(i, 700)).unwrap();
    }
    fs::write(dir.join("docs/big"), files::noise(7, 3 << 20)).unwrap();
    fs::hard_link(dir.join("docs/big"), dir.join("docs/deep/linked")).unwrap();
    symlink("docs/big", dir.join("link")).unwrap();
    symlink("docs/big", dir.join("docs/again")).unwrap();
    mknodat(CWD, dir.join("pipe"), FileType::Fifo, 0o620.into(), 0).unwrap();
    mknodat(CWD, dir.join("null"), FileType::CharacterDevice, 0o666.into(), rustix::fs::makedev(1, 3))
        .unwrap();
    let hole = fs::File::create(dir.join("hole")).unwrap();
    hole.set_len(5 << 20).unwrap();
    rustix::fs::lsetxattr(dir.join("docs/big"), "user.colour", b"red", XattrFlags::empty()).unwrap();
    rustix::fs::lsetxattr(dir.join("docs"), "user.kind", b"text", XattrFlags::empty()).unwrap();
    fs::set_permissions(dir.join("docs/big"), fs::Permissions::from_mode(0o4751)).unwrap();
    chown(dir.join("docs"), Some(1000), Some(1001)).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o750)).unwrap();
}

fn xattr(path: &Path, name: &str) -> Vec<u8> {
    let mut value = vec![0; 100];
    let n =
        rustix::fs::lgetxattr(path, name, &mut value).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    value.truncate(n);
    value
}

pub(crate) fn is_sound(brick: &Path) {
    let mut command = mortar();
    command.args(["brick", "check"]).arg(brick);
    let output = run(command);
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// A tree becomes a volume of two copies. Its server is killed again and again meanwhile; then clients work, and the other
/// brick leads.
#[test]
fn a_directory_of_data_becomes_a_volume() {
    // Two servers alone could not agree that one of them is gone.
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick", "cannot be adopted"]);
    let bricks = [(0, "data"), (1, "copy")];
    let dir = pool.servers[0].path("data");
    data(&dir, 3000);
    let before = files::tree(&dir);

    let outside = pool.servers[0].path("outside");
    fs::hard_link(dir.join("docs/big"), &outside).unwrap();
    let create = format!("volume create v replica 2 {} --adopt", words(&pool, &bricks));
    let refused = pool.cli(&create).refused();
    assert!(
        refused.contains("docs/big: it has 3 hard links") || refused.contains("linked: it has 3"),
        "{refused}"
    );
    fs::remove_file(&outside).unwrap();
    let refused = pool.cli(&format!("volume create v {}", words(&pool, &bricks[..1]))).refused();
    assert!(refused.contains("not empty"), "{refused}");
    pool.ok(&create);
    assert_eq!(pool.json("volume info v")[0]["replica"], 2);
    assert!(!dir.join(".mortar/identity").exists(), "it becomes a brick when the volume is started");
    pool.ok("volume start v");
    for _ in 0..3 {
        pool.kill(0);
        pool.start(0);
    }
    in_sync(&pool, "v", &bricks);
    let mount = pool.mount("v");
    assert_eq!(files::tree(&mount.path("")), before, "all as it was");
    assert_eq!(fs::metadata(mount.path("")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(
        (xattr(&mount.path("docs/big"), "user.colour"), xattr(&mount.path("docs"), "user.kind")),
        (b"red".to_vec(), b"text".to_vec())
    );

    fs::write(mount.path("docs/deep/new"), b"new").unwrap();
    fs::write(mount.path("docs/deep/linked"), b"other").unwrap();
    fs::rename(mount.path("many/7"), mount.path("docs/seven")).unwrap();
    fs::remove_file(mount.path("many/8/f8")).unwrap();
    pool.kill(0);
    assert_eq!(fs::read(mount.path("docs/big")).unwrap(), b"other", "the copy serves");
    fs::write(mount.path("docs/late"), b"late").unwrap();
    assert_eq!(fs::read(mount.path("docs/seven/f7")).unwrap(), files::noise(7, 700));
    pool.start(0);
    in_sync(&pool, "v", &bricks);
    let after = files::tree(&mount.path(""));
    mount.end();
    for brick in pool.paths(&bricks) {
        eventually("the brick holds what the mount shows", || (files::tree(&brick) == after).then_some(()));
        assert_eq!(xattr(&brick.join("docs"), "user.kind"), b"text");
    }
    pool.stop(0);
    pool.stop(1);
    pool.paths(&bricks).iter().for_each(|brick| is_sound(brick));
}

/// A volume that is deleted before its data was taken over leaves the data as it was.
#[test]
fn an_adoption_can_be_given_up_and_begun_again() {
    let mut pool = Pool::new(1);
    pool.expect_errors(&["is not a brick", "cannot be adopted"]);
    let dir = pool.servers[0].path("data");
    data(&dir, 20);
    let before = files::tree(&dir);
    let brick = pool.servers[0].brick("data");
    pool.ok(&format!("volume create v {brick} --adopt"));
    let refused = pool.cli(&format!("volume create w {brick} --adopt")).refused();
    assert!(refused.contains("in use by volume"), "{refused}");
    // It changed since it was looked at.
    fs::hard_link(dir.join("docs/big"), pool.servers[0].path("outside")).unwrap();
    pool.ok("volume start v");
    eventually("the status says why", || {
        let status = pool.status("v");
        status["bricks"][0]["error"].as_str()?.contains("3 hard links").then_some(())
    });
    pool.ok("volume stop v --yes");
    pool.ok("volume delete v --release --yes");
    assert!(!dir.join(".mortar").exists());
    assert!(fs::remove_file(pool.servers[0].path("outside")).is_ok());
    assert_eq!(files::tree(&dir), before);
    pool.ok(&format!("volume create w {brick} --adopt"));
    pool.ok("volume start w");
    let mount = pool.mount("w");
    assert_eq!(files::tree(&mount.path("")), before);
    mount.end();
    pool.stop(0);
    is_sound(&dir);
}

/// Runs the command to its end; what it says.
fn adopt(pool: &Pool, words: &str) -> (Option<i32>, serde_json::Value) {
    let output = pool.cli(format!("volume adopt v --json {words}").trim_end());
    let report = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    (output.code, report)
}

/// Files are copied into the brick that leads, and one into the other, while a client works. The server is killed in the
/// midst of taking them in.
#[test]
fn files_put_into_a_brick_join_the_volume() {
    let mut pool = Pool::new(3);
    let bricks = [(0, "a"), (1, "b")];
    pool.volume("v", 2, &bricks);
    let mount = pool.mount("v");
    fs::create_dir(mount.path("docs")).unwrap();
    fs::write(mount.path("docs/own"), b"own").unwrap();
    let paths = pool.paths(&bricks);
    let status = pool.status("v");
    let led = status["bricks"].as_array().unwrap().iter().position(|b| b["role"] == "primary").unwrap();
    let (leader, other) = (&paths[led], &paths[1 - led]);
    let source = pool.dir.join("source");
    data(&source, 300);
    let before = files::tree(&source);
    let copied =
        std::process::Command::new("cp").arg("-a").arg(&source).arg(leader.join("docs/put")).status();
    assert!(copied.unwrap().success());
    fs::write(other.join("stray"), b"stray").unwrap();
    assert!(!mount.path("docs/put").exists());
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        let worker = s.spawn(|| {
            let mut n = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                fs::write(mount.path(&format!("docs/w{n}")), files::noise(n, 100)).unwrap();
                n += 1;
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            n
        });
        let pool = &mut pool;
        let mut command = mortar();
        command.args(["--server", &pool.servers[2].address, "volume", "adopt", "v", "/docs"]);
        let mut begun = command.spawn().unwrap();
        eventually("some are there", || mount.path("docs/put/many").exists().then_some(()));
        pool.kill(bricks[led].0);
        begun.kill().unwrap();
        begun.wait().unwrap();
        pool.start(bricks[led].0);
        in_sync(pool, "v", &bricks);
        eventually("all are there", || (adopt(pool, "/docs").0 == Some(0)).then_some(()));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        for i in 0..worker.join().unwrap() {
            assert_eq!(fs::read(mount.path(&format!("docs/w{i}"))).unwrap(), files::noise(i, 100));
        }
    });
    // A directory that was being emptied when the server was killed has the time of then.
    let but_times_of_directories = |mut tree: std::collections::BTreeMap<_, files::Seen>| {
        tree.values_mut().filter(|seen| seen.is_dir()).for_each(|seen| seen.mtime = (0, 0));
        tree
    };
    let taken = but_times_of_directories(files::tree(&mount.path("docs/put")));
    assert_eq!(taken, but_times_of_directories(before));
    assert_eq!(xattr(&mount.path("docs/put/docs/big"), "user.colour"), b"red");
    let (code, report) = adopt(&pool, "");
    assert_eq!((code, &report["left"], &report["files"]), (Some(1), &1.into(), &0.into()), "{report}");
    let named = report["named"][0].to_string();
    assert!(named.contains("stray") && named.contains("does not lead its set"), "{named}");
    fs::remove_file(other.join("stray")).unwrap();
    assert_eq!(adopt(&pool, "").0, Some(0));
    let refused = pool.cli("volume adopt v /docs/no-such-path").refused();
    assert!(refused.contains("no brick of volume v has /docs/no-such-path"), "{refused}");
    assert_eq!(adopt(&pool, "/docs").0, Some(0), "one that is there, with nothing in it that is new");
    let after = files::tree(&mount.path(""));
    mount.end();
    for brick in &paths {
        eventually("the brick holds what the mount shows", || (files::tree(brick) == after).then_some(()));
    }
    pool.stop(0);
    pool.stop(1);
    paths.iter().for_each(|brick| is_sound(brick));
}
