//! Healing of what is easily missed: directories in lost+found, bricks whose disks are slow.

use crate::harness::{Disk, Mounted, Pool, eventually, eventually_ok, files};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

fn in_sync(pool: &Pool) {
    eventually_ok("all bricks are in sync", || {
        let status = pool.cli("volume status v --json");
        let status: serde_json::Value =
            serde_json::from_str(&status.stdout).map_err(|e| format!("{e}: {status:?}"))?;
        let bricks = status[0]["bricks"].as_array().ok_or("no bricks")?;
        let fine = bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true);
        if fine { Ok(()) } else { Err(status.to_string()) }
    });
}

fn out_of_sync(pool: &Pool) {
    eventually("the set goes on without it", || {
        let status = pool.status("v");
        status["bricks"].as_array()?.iter().any(|b| b["in_sync"] == false).then_some(())
    });
}

const TWO_SETS: [(usize, &str); 4] = [(0, "one/b"), (1, "one/b"), (0, "two/b"), (1, "two/b")];

/// Two sets, each brick on a small file system of its own.
fn two_sets() -> Pool {
    let mut pool = Pool::new(3);
    for (server, brick) in TWO_SETS {
        let dir = pool.servers[server].path(brick.split('/').next().unwrap());
        pool.disks.push(Disk::new("ext4", &dir, 200));
    }
    pool.volume("v", 2, &TWO_SETS);
    pool
}

/// The set that takes the files of a directory.
fn home(pool: &Pool, mount: &Mounted, dir: &str) -> usize {
    let probe = mount.path(dir).join("probe");
    fs::write(&probe, "x").unwrap();
    let on =
        |set: usize| pool.paths(&TWO_SETS[set * 2..][..2]).iter().all(|b| b.join(dir).join("probe").exists());
    let found = (0..2).find(|set| on(*set)).expect("the file is on a set");
    fs::remove_file(probe).unwrap();
    found
}

/// The files beneath a brick's lost+found, and what is in them.
fn in_lost_found(brick: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let all = files::tree(&brick.join(".mortar/limbo"));
    all.into_iter().map(|(path, seen)| (path, seen.content)).collect()
}

fn empty(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// The name that a directory has in lost+found.
fn hidden_name(dir: &Path) -> String {
    let mut value = [0; 256];
    let len = rustix::fs::lgetxattr(dir, "trusted.mortar.id", &mut value[..]).unwrap();
    let fid = disk_format::tag::Tag::decode(&value[..len]).unwrap().fid;
    format!("{:08x}{:08x}{:016x}", fid.set.0, fid.epoch.0, fid.lsn.0)
}

/// A directory lies on another set than its parent; the parent is renamed and its name given to another one, so that the
/// copy of the path on the other set's bricks has to make room. It stays in lost+found, as a user gave it the name that it has
/// there. Bricks of that set are healed, the one that was away as well as the one that lost everything, and what was healed is
/// shown by the mount.
#[test]
fn what_lies_in_lost_found_is_healed() {
    let mut pool = two_sets();
    pool.expect_errors(&["open brick"]);
    let mount = pool.mount("v");
    let root = home(&pool, &mount, "");
    let mut tries = 0;
    let top = eventually("a directory lives on the root's set", || {
        let dir = format!("dir{tries}");
        tries += 1;
        fs::create_dir(mount.path(&dir)).unwrap();
        (home(&pool, &mount, &dir) == root).then_some(dir)
    });
    // The root's set is much fuller from here on, so that deep directories go to the other one, too.
    for (disk, (_, brick)) in pool.disks.iter().zip(TWO_SETS) {
        if brick == TWO_SETS[root * 2].1 {
            let ballast = fs::File::create(disk.dir.join("ballast")).unwrap();
            rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, 110 << 20).unwrap();
        }
    }
    let mut tries = 0;
    let deep = eventually("a directory is placed on the other set", || {
        let deep = format!("deep{tries}");
        tries += 1;
        fs::create_dir(mount.path(&top).join(&deep)).unwrap();
        (home(&pool, &mount, &format!("{top}/{deep}")) != root).then_some(deep)
    });
    let old = hidden_name(&pool.paths(&TWO_SETS[root * 2..][..1])[0].join(&top));
    let at = |name: &str| mount.path(&old).join(&deep).join(name);
    fs::rename(mount.path(&top), mount.path(&old)).unwrap();
    fs::create_dir_all(at("sub/dir")).unwrap();
    fs::write(at("before"), files::noise(1, 100_000)).unwrap();
    fs::write(at("sub/dir/file"), "deep down").unwrap();
    eventually("the name is given to a directory of the other set", || {
        fs::create_dir(mount.path(&top)).unwrap();
        if home(&pool, &mount, &top) != root {
            return Some(());
        }
        fs::remove_dir(mount.path(&top)).unwrap();
        None
    });
    fs::write(mount.path(&top).join("file"), "beside").unwrap();
    let other = pool.paths(&TWO_SETS[(1 - root) * 2..][..2]);
    for brick in &other {
        eventually("the directory lies in lost+found", || {
            in_lost_found(brick).iter().any(|(path, _)| path.ends_with("sub/dir/file")).then_some(())
        });
    }
    for wiped in [false, true] {
        pool.kill(1);
        if wiped {
            empty(&other[1]);
        }
        fs::write(at(&format!("missed {wiped}")), files::noise(2, 50_000)).unwrap();
        fs::create_dir(at(&format!("sub/missed {wiped}"))).unwrap();
        fs::write(at("before"), files::noise(3, 90_000)).unwrap();
        out_of_sync(&pool);
        pool.start(1);
        in_sync(&pool);
        let (here, there) = (in_lost_found(&other[0]), in_lost_found(&other[1]));
        assert!(here == there, "wiped: {wiped}: the lost+founds of both bricks differ");
    }
    let (shown, full) = (files::tree(&mount.path(&old)), files::tree(&mount.path(&top)));
    assert!(shown.len() >= 8, "{shown:?}");
    // The healed bricks serve alone.
    pool.kill(0);
    let again = pool.mount("v");
    assert_eq!(files::tree(&again.path(&old)), shown);
    assert_eq!(files::tree(&again.path(&top)), full);
}

/// Makes every `syncfs` of a server take long, until dropped.
struct SlowSyncs(Child);

impl SlowSyncs {
    fn of(pool: &Pool, server: usize, secs: u32) -> SlowSyncs {
        let mut command = Command::new("strace");
        command.args(["-f", "-q", "-e", "trace=syncfs", "-e"]);
        command.arg(format!("inject=syncfs:delay_exit={secs}s"));
        command.args(["-o", "/dev/null", "-p"]).arg(pool.servers[server].pid().to_string());
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let status = format!("/proc/{}/status", pool.servers[server].pid());
        let tracer = format!("TracerPid:\t{}\n", child.id());
        eventually("the server is traced", || {
            fs::read_to_string(&status).ok()?.contains(&tracer).then_some(())
        });
        SlowSyncs(child)
    }
}

impl Drop for SlowSyncs {
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        let _ended = kill_process(pid, Signal::TERM);
        let _waited = self.0.wait();
    }
}

/// A sync takes longer than any healing waits for an answer: the brick is in sync in the end, after one healing, and a
/// client's fsync is answered.
#[test]
fn a_brick_with_slow_syncs_gets_in_sync() {
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mount = pool.mount("v");
    fs::write(mount.path("before"), "x").unwrap();
    let slow = SlowSyncs::of(&pool, 1, 5);
    pool.freeze(1);
    fs::write(mount.path("missed"), files::noise(1, 100_000)).unwrap();
    out_of_sync(&pool);
    pool.thaw(1);
    let begun = Instant::now();
    in_sync(&pool);
    let took = begun.elapsed();
    let healed = pool.servers[1].log().lines().filter(|l| l.contains("has healed")).count();
    println!("in sync after {took:?}, {healed} healings");
    assert_eq!(healed, 1, "the healing began anew");
    let file = fs::File::create(mount.path("synced")).unwrap();
    file.sync_all().unwrap();
    rustix::fs::syncfs(&file).unwrap();
    let status = pool.status("v");
    assert!(status["bricks"].as_array().unwrap().iter().all(|b| b["in_sync"] == true), "{status}");
    drop(slow);
}
