//! Servers that come and go.

use crate::harness::{Pool, eventually, files};
use std::fs;

const BRICKS: [(usize, &str); 3] = [(0, "b"), (1, "b"), (2, "b")];

fn filled(pool: &Pool) -> Vec<(String, Vec<u8>)> {
    let mount = pool.mount("v");
    let all: Vec<(String, Vec<u8>)> =
        (0..60).map(|i| (format!("f{i}"), files::noise(i, 997 * i as usize))).collect();
    for (name, bytes) in &all {
        fs::write(mount.path(name), bytes).unwrap();
    }
    fs::remove_file(mount.path("f3")).unwrap();
    fs::rename(mount.path("f4"), mount.path("f3")).unwrap();
    mount.end();
    all
}

fn check(pool: &Pool, all: &[(String, Vec<u8>)]) {
    let mount = pool.mount("v");
    assert_eq!(files::names(&mount.dir).len(), 59);
    for (i, (name, bytes)) in all.iter().enumerate() {
        let wanted = match i {
            3 => &all[4].1,
            4 => continue,
            _ => bytes,
        };
        assert!(fs::read(mount.path(name)).unwrap() == *wanted, "{name} has other bytes");
    }
    fs::write(mount.path("more"), "x").unwrap();
    fs::remove_file(mount.path("more")).unwrap();
    mount.end();
}

fn all_servers(end: fn(&mut Pool, usize)) {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &BRICKS);
    pool.ok("volume set v user.note kept");
    let all = filled(&pool);
    let config = pool.ok("config export");
    for _ in 0..2 {
        for i in 0..3 {
            end(&mut pool, i);
        }
        for i in 0..3 {
            pool.start(i);
        }
        pool.wait_in_sync();
        let strip =
            |text: &str| text.lines().filter(|l| !l.starts_with("version")).collect::<Vec<_>>().join("\n");
        assert_eq!(strip(&pool.ok("config export")), strip(&config));
        check(&pool, &all);
    }
}

#[test]
fn all_servers_stopped_in_order() {
    all_servers(Pool::stop);
}

#[test]
fn all_servers_killed() {
    all_servers(Pool::kill);
}

/// A mount that was there all the time sees a pause only.
#[test]
fn a_mount_outlives_a_restart() {
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    fs::write(mount.path("before"), "x").unwrap();
    let held = fs::File::open(mount.path("before")).unwrap();
    pool.stop(0);
    pool.start(0);
    fs::write(mount.path("after"), "y").unwrap();
    assert_eq!(fs::read(mount.path("before")).unwrap(), b"x");
    assert_eq!(std::io::read_to_string(held).unwrap(), "x");
    mount.end();
}

/// One of three servers is lost: its sets go on.
#[test]
fn one_server_killed_under_a_mount() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &BRICKS);
    let mount = pool.mount("v");
    for victim in [0, 1] {
        fs::write(mount.path(&format!("before{victim}")), "x").unwrap();
        if victim == 0 {
            pool.kill(victim);
        }
        let begun = std::time::Instant::now();
        fs::write(mount.path(&format!("after{victim}")), "y").unwrap();
        println!("first write after: {:?}", begun.elapsed());
        assert_eq!(fs::read(mount.path(&format!("before{victim}"))).unwrap(), b"x");
    }
    mount.end();
}

/// What was missed is healed, and the bricks are the same again.
#[test]
fn a_killed_server_comes_back() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &BRICKS);
    let mount = pool.mount("v");
    for i in 0..30 {
        fs::write(mount.path(&format!("f{i}")), files::noise(i, 5000)).unwrap();
    }
    for victim in [2, 0] {
        pool.kill(victim);
        for i in 0..20 {
            fs::write(mount.path(&format!("f{i}")), files::noise(i + 100, 7000)).unwrap();
            fs::write(mount.path(&format!("new{victim}.{i}")), "x").unwrap();
        }
        fs::remove_file(mount.path(&format!("f{}", 29 - victim))).unwrap();
        fs::create_dir(mount.path(&format!("d{victim}"))).unwrap();
        pool.start(victim);
        eventually("all bricks are in sync", || {
            let status = pool.status("v");
            let bricks = status["bricks"].as_array()?;
            bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
        });
    }
    for brick in pool.paths(&BRICKS) {
        eventually("the brick holds what the mount shows", || {
            (files::tree(&brick) == files::tree(&mount.dir)).then_some(())
        });
    }
}

#[test]
fn a_server_moves_to_another_address() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &BRICKS);
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
    pool.stop(2);
    let moved = pool.spare_address();
    pool.servers[2].address = moved.clone();
    pool.start(2);
    eventually("the pool knows the new address", || {
        let list = pool.cli("pool list --json");
        let list: serde_json::Value = serde_json::from_str(&list.stdout).ok()?;
        list.as_array()?
            .iter()
            .any(|p| p["address"] == moved.as_str() && p["connected"] == true)
            .then_some(())
    });
    pool.cli_at(&moved, "volume info v").ok();
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"x");
    fs::write(mount.path("g"), "y").unwrap();
    mount.end();
    // A pool of one moves too.
    let mut alone = Pool::new(1);
    alone.volume("v", 1, &[(0, "b")]);
    alone.stop(0);
    alone.servers[0].address = alone.spare_address();
    alone.start(0);
    let mount = alone.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
}

/// Whatever a server has begun when it is asked to stop, it ends: also a thread that it was about to start for a disk.
#[test]
fn a_server_that_is_stopped_as_soon_as_it_is_ready_ends() {
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    pool.stop(0);
    for _ in 0..60 {
        pool.start(0);
        pool.stop(0);
    }
    pool.start(0);
    assert_eq!(pool.ok("volume list"), "v\n");
}

/// A brick that is still being closed is opened as soon as it is closed: nothing fails, and nobody waits for a retry.
#[test]
fn a_volume_is_started_right_after_it_was_stopped() {
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    for round in 0..8 {
        fs::write(mount.path(&format!("f{round}")), files::noise(round, 3 << 20)).unwrap();
        pool.ok("volume stop v --yes");
        pool.ok("volume start v");
    }
    for round in 0..8 {
        assert!(fs::read(mount.path(&format!("f{round}"))).unwrap() == files::noise(round, 3 << 20));
    }
    mount.end();
    let log = pool.servers[0].log();
    assert!(!log.contains("is in use by another process"), "{log}");
    pool.stop(0);
}
