//! Who goes on after a power cut of all servers when not every disk comes back.

use crate::harness::{Disk, Pool, eventually, eventually_ok};
use std::fs;
use std::io::Write;

/// Many sets over two disks: what depends on who is first shows in one of them.
const SETS: usize = 8;
const DIRS: usize = 3 * SETS;

/// Complaints of servers whose brick is not there, and of bricks that lost changes.
const DEAD: [&str; 4] = ["open brick", "os error", "EIO", "left the common history"];

/// A witness, and two servers whose bricks lie on one small disk each.
fn pool_on_disks() -> Pool {
    let mut pool = Pool::new(3);
    pool.expect_errors(&DEAD);
    for server in [1, 2] {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 640));
    }
    let names: Vec<String> = (0..SETS).map(|i| format!("disk/b{i}")).collect();
    let bricks: Vec<(usize, &str)> = names.iter().flat_map(|n| [(1, n.as_str()), (2, n.as_str())]).collect();
    pool.volume("v", 2, &bricks);
    pool
}

/// Directories spread over the sets; each has a file that was synced.
fn write_synced(pool: &Pool) {
    let mount = pool.mount("v");
    for i in 0..DIRS {
        let dir = mount.path(&format!("d{i}"));
        fs::create_dir(&dir).unwrap();
        let mut file = fs::File::create(dir.join("kept")).unwrap();
        file.write_all(format!("synced {i}").as_bytes()).unwrap();
        file.sync_all().unwrap();
        fs::File::open(&dir).unwrap().sync_all().unwrap();
    }
    fs::File::open(&mount.dir).unwrap().sync_all().unwrap();
    mount.end();
}

/// Each set has a brick that leads it.
fn await_service(pool: &Pool) {
    eventually_ok("each set is led", || {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array().ok_or("no bricks")?;
        let led = bricks.iter().filter(|b| b["role"] == "primary").count();
        if led == SETS { Ok(()) } else { Err(format!("{led} of {SETS} sets: {status}")) }
    });
}

fn read_synced(pool: &Pool) {
    await_service(pool);
    let mount = pool.mount("v");
    for i in 0..DIRS {
        let file = mount.path(&format!("d{i}/kept"));
        let found = eventually("what was synced can be read", || fs::read(&file).ok());
        assert_eq!(found, format!("synced {i}").as_bytes());
    }
    for i in 0..DIRS {
        fs::write(mount.path(&format!("d{i}/new")), "n").unwrap();
    }
    mount.end();
}

/// All machines lose their power at the same moment: nobody sees the others go. The disks are left unmounted.
fn cut_power_of_all(pool: &mut Pool) {
    for server in 0..3 {
        pool.freeze(server);
    }
    for disk in &pool.disks {
        disk.shut_down();
    }
    for server in 0..3 {
        pool.kill(server);
    }
    for disk in &pool.disks {
        disk.unmount();
    }
}

fn await_all_in_sync(pool: &Pool) {
    eventually_ok("all bricks are in sync", || {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array().ok_or("no bricks")?;
        let fine = bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true);
        if fine { Ok(()) } else { Err(status.to_string()) }
    });
}

/// One disk stays dead while its server answers: the bricks on the other disk go on, whoever comes back first.
fn one_disk_stays_dead(dead: usize, dead_first: bool) {
    let mut pool = pool_on_disks();
    write_synced(&pool);
    cut_power_of_all(&mut pool);
    let survivor = 1 - dead;
    pool.disks[survivor].mount();
    pool.start(0);
    for disk in if dead_first { [dead, survivor] } else { [survivor, dead] } {
        pool.start(disk + 1);
    }
    read_synced(&pool);
    let errors = pool.status("v")["bricks"].to_string();
    assert!(errors.contains("disk/b0"), "the dead bricks are named: {errors}");
    pool.disks[dead].mount();
    await_all_in_sync(&pool);
    read_synced(&pool);
}

#[test]
fn a_brick_does_not_abdicate_to_a_dead_disk() {
    one_disk_stays_dead(0, false);
}

#[test]
fn a_dead_disk_that_answers_first_gets_no_lead() {
    one_disk_stays_dead(1, true);
}

/// One server loses its power. The other one was paused meanwhile, and its disk has died: its memory still says that its
/// bricks are whole.
#[test]
fn a_brick_does_not_abdicate_to_a_disk_that_died_unnoticed() {
    let mut pool = pool_on_disks();
    write_synced(&pool);
    await_all_in_sync(&pool);
    (0..3).for_each(|server| pool.freeze(server));
    pool.disks.iter().for_each(Disk::shut_down);
    pool.kill(1);
    pool.disks[0].unmount();
    pool.disks[0].mount();
    pool.start(1);
    pool.thaw(0);
    pool.thaw(2);
    read_synced(&pool);
    pool.kill(2);
    pool.disks[1].unmount();
    pool.disks[1].mount();
    pool.start(2);
    await_all_in_sync(&pool);
}

/// The disk with the latest data is dead for good. The status names the way out; the set goes on with the older brick, and
/// an empty disk in the place of the dead one is filled.
#[test]
fn an_administrator_gives_up_a_dead_disk() {
    let mut pool = pool_on_disks();
    write_synced(&pool);
    await_all_in_sync(&pool);
    pool.kill(2);
    await_service(&pool);
    let mount = pool.mount("v");
    for i in 0..DIRS {
        fs::write(mount.path(&format!("d{i}/late")), "l").unwrap();
    }
    mount.end();
    pool.kill(1);
    pool.disks[0].unmount();
    pool.start(1);
    pool.start(2);
    pool.wait_in_sync();
    eventually("the status says what to do", || {
        let notes = pool.status("v")["notes"].to_string();
        (notes.matches("mortar volume promote v").count() == SETS).then_some(())
    });
    pool.cli(&format!("volume promote v {} --yes", pool.servers[1].brick("disk/b0")))
        .refused_with(&["is not open"]);
    pool.cli("volume promote v nobody:/b --yes").refused_with(&["nobody", "not in the pool"]);
    for i in 0..SETS {
        let brick = pool.servers[2].brick(&format!("disk/b{i}"));
        eventually_ok("the set is told to go on", || {
            let output = pool.cli(&format!("volume promote v {brick} --yes"));
            if output.code == Some(0) { Ok(()) } else { Err(output.stderr) }
        });
    }
    read_synced(&pool);
    pool.cli(&format!("volume promote v {} --yes", pool.servers[1].brick("disk/b0"))).refused();
    pool.disks[0].mount();
    await_all_in_sync(&pool);
    read_synced(&pool);
}
