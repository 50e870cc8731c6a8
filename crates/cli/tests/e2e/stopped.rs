//! What a mount does while its volume is stopped.

use crate::harness::{Pool, eventually, is_mounted, run};
use rustix::fs::statvfs;
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const ENOTCONN: Option<i32> = Some(107);

#[test]
fn calls_wait_until_a_stopped_volume_is_started() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let (hard, soft) = (pool.mount("v"), pool.mount_with("v", &["-o", "soft=60"]));
    fs::write(hard.path("f"), "x").unwrap();
    pool.ok("volume stop v --yes");
    thread::scope(|scope| {
        let reads = scope.spawn(|| fs::read_to_string(hard.path("f")));
        let writes = scope.spawn(|| fs::write(hard.path("g"), "y"));
        eventually("the log says why calls wait", || {
            hard.log().contains("the volume is stopped: start it with mortar volume start v").then_some(())
        });
        let begun = Instant::now();
        assert_eq!(fs::write(soft.path("h"), "z").unwrap_err().raw_os_error(), ENOTCONN);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(!reads.is_finished() && !writes.is_finished());
        assert!(fs::metadata(hard.path("")).unwrap().is_dir(), "the root is there");
        assert!(statvfs(&hard.dir).is_ok(), "and so is its room");
        pool.ok("volume start v");
        assert_eq!(reads.join().unwrap().unwrap(), "x");
        writes.join().unwrap().unwrap();
    });
    assert_eq!(fs::read_to_string(soft.path("g")).unwrap(), "y");
    assert!(hard.log().contains("the volume was started again"), "{}", hard.log());
    hard.end();
    soft.end();
}

/// umount(8) looks at the directory first.
#[test]
fn a_mount_of_a_stopped_volume_is_unmounted() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    pool.ok("volume stop v --yes");
    // What the kernel keeps of the root has gone by then.
    thread::sleep(Duration::from_secs(1));
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "10", "umount"]).arg(&mount.dir);
    run(command).ok();
    assert!(!is_mounted(&mount.dir));
}

/// Nobody starts it again.
#[test]
fn calls_of_a_deleted_volume_fail() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    pool.ok("volume stop v --yes");
    thread::scope(|scope| {
        let waits = scope.spawn(|| fs::write(mount.path("f"), "x"));
        pool.ok("volume delete v --yes");
        assert_eq!(waits.join().unwrap().unwrap_err().raw_os_error(), ENOTCONN);
    });
    assert!(mount.log().contains("nobody serves the volume again"), "{}", mount.log());
    mount.end();
}
