//! File systems of bricks that are full, and that fail like in a power cut.

use super::SILENT;
use super::verify::{Kept, all_in_sync, verify};
use super::writer::Writer;
use crate::harness::{Alone, Disk, Pool, eventually};
use rustix::io::Errno;
use std::fs;
use std::io::Write;

/// Of one set, each on a small file system of its own.
const SMALL: [(usize, &str); 2] = [(1, "disk/b"), (2, "disk/b")];
/// The same; one is the whole file system.
const WHOLE: [(usize, &str); 2] = [(1, "disk/b"), (2, "disk")];

const MIB: u64 = 320;

/// A pool whose bricks have small file systems.
fn small(kind: &str, bricks: &[(usize, &str)]) -> Pool {
    let mut pool = Pool::new(3);
    for (server, _) in bricks {
        let dir = pool.servers[*server].path("disk");
        pool.disks.push(Disk::new(kind, &dir, MIB));
    }
    pool.volume("v", 2, bricks);
    pool
}

/// Takes all the room of a file system but a little, from outside Mortar.
fn fill(disk: &Disk) -> std::path::PathBuf {
    let ballast = disk.dir.join("ballast");
    let room = rustix::fs::statvfs(&disk.dir).unwrap();
    let file = fs::File::create(&ballast).unwrap();
    let mut size = room.f_bavail * room.f_frsize;
    let step = 64 << 10;
    while size > step {
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, size) {
            Ok(()) => break,
            Err(_) => size -= step,
        }
    }
    ballast
}

fn filled(kind: &str) {
    let alone = Alone::after_set_up();
    let mut pool = small(kind, &SMALL);
    pool.expect_errors(&FAILS);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[Errno::NOSPC]);
    for disk in 0..2 {
        writer.longest();
        let ballast = fill(&pool.disks[disk]);
        let full = mount.path("probe");
        eventually("the application is told, or goes on", || {
            let _told = fs::write(&full, vec![1; 64 << 10]);
            Some(())
        });
        writer.went_on();
        std::thread::sleep(std::time::Duration::from_secs(3));
        writer.went_on();
        let pause = writer.longest();
        println!("{kind}, brick {disk} full: longest pause {:?} ({})", pause.took, pause.what);
        assert!(pause.took < SILENT, "{:?}", pause.took);
        fs::remove_file(ballast).unwrap();
        eventually("writing goes on by itself", || fs::write(&full, vec![1; 64 << 10]).ok());
        all_in_sync(&pool);
        writer.went_on();
    }
    let model = writer.stop();
    alone.measured();
    assert!(model.done > 100);
    verify(&pool, &SMALL, 2, &model, Kept::All);
}

#[test]
fn a_full_brick_ext4() {
    filled("ext4");
}

#[test]
fn a_full_brick_xfs() {
    filled("xfs");
}

/// Errors of the brick whose file system fails, and of its healing while changes go on.
pub(crate) const FAILS: [&str; 8] = [
    "ENOSPC",
    "EIO",
    "EROFS",
    "ESTALE",
    "left the common history",
    "the brick's tree is not as the change expects",
    "open brick",
    "os error",
];

/// One brick's file system fails: the set goes on with the other; mounted again, the brick heals.
fn one_shut_down(kind: &str) {
    let alone = Alone::after_set_up();
    let mut pool = small(kind, &WHOLE);
    pool.expect_errors(&FAILS);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    for disk in [1, 0] {
        writer.longest();
        pool.disks[disk].shut_down();
        writer.went_on();
        let pause = writer.longest();
        println!("{kind}, brick {disk} shut down: longest pause {:?} ({})", pause.took, pause.what);
        assert!(pause.took < SILENT, "{:?}", pause.took);
        let told = || pool.brick_error("v", disk);
        let failed = eventually("the status says what failed", told);
        pool.disks[disk].unmount();
        let missing = eventually("the server has looked again", || told().filter(|why| *why != failed));
        println!("shut down: {failed}; unmounted: {missing}");
        assert_eq!(
            fs::read_dir(&pool.disks[disk].dir).unwrap().count(),
            0,
            "a brick was made on the wrong disk"
        );
        pool.disks[disk].mount();
        all_in_sync(&pool);
        writer.went_on();
    }
    let model = writer.stop();
    alone.measured();
    verify(&pool, &WHOLE, 2, &model, Kept::All);
}

#[test]
fn one_file_system_shut_down_ext4() {
    one_shut_down("ext4");
}

#[test]
fn one_file_system_shut_down_xfs() {
    one_shut_down("xfs");
}

/// The disks of servers 1 and 2 fail at once, and those servers die; they come back.
pub(crate) fn cut_power(pool: &mut Pool, first: usize, between: impl FnOnce()) {
    for disk in [first, 1 - first] {
        pool.disks[disk].shut_down();
    }
    between();
    for server in [1, 2] {
        pool.kill(server);
    }
    for disk in 0..2 {
        pool.disks[disk].unmount();
        pool.disks[disk].mount();
    }
    let order = if first == 0 { [1, 2] } else { [2, 1] };
    for server in order {
        pool.start(server);
    }
}

#[test]
fn a_sync_after_a_power_cut_of_all_tells_what_is_lost() {
    let mut pool = small("ext4", &SMALL);
    pool.expect_errors(&FAILS);
    let mount = pool.mount("v");
    let [kept, lost] = ["kept", "lost"].map(|name| fs::File::create(mount.path(name)).unwrap());
    for mut file in [&kept, &lost] {
        file.write_all(b"synced").unwrap();
        file.sync_all().unwrap();
    }
    (&lost).write_all(b" and not").unwrap();
    cut_power(&mut pool, 0, || ());
    all_in_sync(&pool);
    assert_eq!(lost.sync_all().unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    lost.sync_all().unwrap();
    kept.sync_all().unwrap();
    assert_eq!(fs::read(mount.path("kept")).unwrap(), b"synced");
    assert!(fs::read(mount.path("lost")).unwrap().starts_with(b"synced"));
}

/// The power of all goes at once: everything synced is there, and the bricks agree.
fn all_shut_down(kind: &str) {
    let mut pool = small(kind, &SMALL);
    pool.expect_errors(&FAILS);
    let mount = pool.mount("v");
    let writer = Writer::start(&mount, &[Errno::IO, Errno::STALE, Errno::NOENT, Errno::EXIST]);
    for round in 0..2 {
        eventually("there is something to lose", || {
            std::thread::sleep(std::time::Duration::from_millis(1500));
            Some(())
        });
        cut_power(&mut pool, round, || {
            if round == 1 {
                writer.ask_to_stop();
            }
        });
        all_in_sync(&pool);
        if round == 0 {
            writer.forgive();
            writer.went_on();
        }
    }
    let model = writer.stop();
    verify(&pool, &SMALL, 2, &model, Kept::Synced);
}

#[test]
fn all_file_systems_shut_down_ext4() {
    all_shut_down("ext4");
}

#[test]
fn all_file_systems_shut_down_xfs() {
    all_shut_down("xfs");
}
