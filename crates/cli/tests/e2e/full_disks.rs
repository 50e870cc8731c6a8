//! Disks that run full: under a brick that is alone in its set, and under all bricks of one.

use crate::harness::{Disk, Pool, eventually, files};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

const BRICKS: [(usize, &str); 2] = [(1, "disk/b"), (2, "disk/b")];
const MIB: u64 = 1 << 20;
/// Writes refused, of which some were begun, as another program takes and gives back all room meanwhile.
const REFUSED: usize = 12;

/// Takes all room of a file system and gives it back, again and again.
fn come_and_go(dir: &Path, stop: &AtomicBool) {
    let file = File::create(dir.join("ballast")).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let room = rustix::fs::statvfs(dir).unwrap();
        let _full = rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, room.f_bavail * room.f_frsize);
        file.set_len(0).unwrap();
    }
    fs::remove_file(dir.join("ballast")).unwrap();
}

/// A brick that is alone refuses writes in their midst: the other one is made like it when it comes back, and a failover
/// changes nothing.
#[test]
fn writes_refused_in_their_midst_are_the_same_on_both_bricks() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["ENOSPC", "could not be applied"]);
    for (server, _) in BRICKS {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 96));
    }
    let words: Vec<String> = BRICKS.iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    pool.ok(&format!("volume create v replica 2 {}", words.join(" ")));
    pool.ok("volume set v cluster.min-free-disk 0");
    pool.ok("volume start v");
    let mount = pool.mount("v");
    let file = File::create(mount.path("f")).unwrap();
    file.write_all_at(&vec![1; 4 << 20], 0).unwrap();
    file.sync_all().unwrap();
    pool.kill(2);
    eventually("the set goes on without it", || {
        let status = pool.status("v");
        status["bricks"].as_array().unwrap().iter().any(|b| b["in_sync"] == false).then_some(())
    });
    let stop = AtomicBool::new(false);
    let (disk, mut refused) = (pool.disks[0].dir.clone(), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| come_and_go(&disk, &stop));
        // Each goes where nothing was written yet: no other change says that this part of the file is another one.
        for n in 0..700u64 {
            let at = 4 * MIB + n * (MIB + 4096);
            if let Err(e) = file.write_at(&vec![2 + (n % 200) as u8; MIB as usize], at) {
                assert_eq!(e.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{e}");
                refused += 1;
            } else {
                // The room is for others again.
                rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, MIB)
                    .unwrap_or_else(|e| assert_eq!(e, Errno::NOSPC));
            }
            if refused >= REFUSED {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    let begun = pool.servers[1].log().matches("a change could not be applied").count();
    println!("{refused} writes refused, {begun} of them after they were journaled");
    drop(file);
    pool.start(2);
    eventually("both bricks are in sync", || {
        let status = pool.status("v");
        status["bricks"].as_array().unwrap().iter().all(|b| b["in_sync"] == true).then_some(())
    });
    let shown = files::tree(&mount.dir);
    for brick in pool.paths(&BRICKS) {
        eventually("the brick holds what the mount shows", || (files::tree(&brick) == shown).then_some(()));
    }
    pool.kill(1);
    let again = eventually("the other brick serves", || {
        fs::metadata(mount.path("f")).ok().map(|_| files::tree(&mount.dir))
    });
    assert!(again == shown, "a failover changed what is there");
}

/// A volume of two copies on disks of that kind, with a third server for the majority. A brick that fails would show in a log.
fn on_disks(kind: &str, mib: u64) -> Pool {
    let mut pool = Pool::new(3);
    for (server, _) in BRICKS {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new(kind, &dir, mib));
    }
    let words: Vec<String> = BRICKS.iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    pool.ok(&format!("volume create v replica 2 {}", words.join(" ")));
    pool.ok("volume start v");
    pool
}

fn expect_in_sync(pool: &Pool) {
    let status = pool.status("v");
    assert!(status["bricks"].as_array().unwrap().iter().all(|b| b["in_sync"] == true), "{status}");
}

/// The brick that the mount's disk lies on has no more room than this.
fn fill(dir: &Path, but: u64) {
    let room = rustix::fs::statvfs(dir).unwrap();
    let file = File::create(dir.join("ballast")).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, room.f_bavail * room.f_frsize - but).unwrap();
}

/// A user who asks for more room than there is hears so, and no brick leaves its set for it.
#[test]
fn room_that_is_not_there_is_refused_before_bricks_fail() {
    let pool = on_disks("ext4", 96);
    let mount = pool.mount("v");
    let file = File::create(mount.path("f")).unwrap();
    let ask = |how, at, len| rustix::fs::fallocate(&file, how, at, len);
    let (plain, keep, zero) =
        (FallocateFlags::empty(), FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE);
    for how in [plain, keep, zero, zero | keep] {
        assert_eq!(ask(how, 0, 1 << 30), Err(Errno::NOSPC), "{how:?}");
        expect_in_sync(&pool);
    }
    assert_eq!(file.metadata().unwrap().len(), 0);
    ask(plain, 0, 40 * MIB).unwrap();
    for (server, _) in BRICKS {
        fill(&pool.servers[server].path("disk"), 8 * MIB);
    }
    eventually("the new room is known", || {
        let room = rustix::fs::statvfs(&mount.dir).unwrap();
        (room.f_bavail * room.f_frsize < 16 * MIB).then_some(())
    });
    ask(plain, 0, 40 * MIB).expect("the file has all that room");
    assert_eq!(ask(plain, 40 * MIB, 40 * MIB + 16 * MIB), Err(Errno::NOSPC));
    // The file has as much, though not there: what the bricks cannot set aside becomes a hole.
    file.write_all_at(&[7; 4096], 4096).unwrap();
    for how in [plain, zero] {
        ask(how, 50 * MIB, 40 * MIB).unwrap();
    }
    assert_eq!(file.metadata().unwrap().len(), 90 * MIB);
    ask(zero, 0, 90 * MIB).unwrap_or_else(|e| assert_eq!(e, Errno::NOSPC));
    file.write_all_at(b"x", 0).unwrap();
    file.sync_all().unwrap();
    expect_in_sync(&pool);
    let shown = fs::read(mount.path("f")).unwrap();
    for brick in pool.paths(&BRICKS) {
        assert!(fs::read(brick.join("f")).unwrap() == shown, "bricks differ");
    }
}

/// Bricks hold so many files and no more: who makes another one hears so, and no brick leaves its set for it.
#[test]
fn files_that_have_no_place_are_refused_before_bricks_fail() {
    let pool = on_disks("ext4 -N 1024", 32);
    let mount = pool.mount("v");
    let made = (0..2048)
        .find(|n| match File::create_new(mount.path(&format!("f{n}"))) {
            Ok(_) => false,
            Err(e) => {
                assert_eq!(e.kind(), std::io::ErrorKind::StorageFull);
                true
            }
        })
        .expect("more files than the disks hold");
    println!("{made} files on disks of 1024");
    assert!(made > 900, "a good part of the disks is left empty");
    let no_place =
        |made: std::io::Result<()>| assert_eq!(made.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    no_place(fs::create_dir(mount.path("dir")));
    no_place(std::os::unix::fs::symlink("to", mount.path("symlink")));
    expect_in_sync(&pool);
    fs::write(mount.path("f0"), "a file that is there").unwrap();
    fs::hard_link(mount.path("f0"), mount.path("another name")).unwrap();
    for n in 1..40 {
        fs::remove_file(mount.path(&format!("f{n}"))).unwrap();
    }
    eventually("there is a place again", || fs::create_dir(mount.path("dir")).ok());
    expect_in_sync(&pool);
}
