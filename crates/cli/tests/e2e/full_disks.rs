//! Disks that run full under a brick that is alone in its set.

use crate::harness::{Disk, Pool, eventually, files};
use rustix::fs::FallocateFlags;
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
                    .unwrap_or_else(|e| assert_eq!(e, rustix::io::Errno::NOSPC));
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
