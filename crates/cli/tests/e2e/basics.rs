//! From one server to replicas: mount, write, read.

use crate::harness::{Pool, eventually, files, run, tool};
use std::fs;

#[test]
fn one_server_one_brick() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    assert_eq!(pool.ok("volume list"), "v\n");
    let mount = pool.mount("v");
    fs::write(mount.path("hello"), "world").unwrap();
    assert_eq!(fs::read(mount.path("hello")).unwrap(), b"world");
    assert_eq!(fs::read(pool.servers[0].path("b/hello")).unwrap(), b"world");
    fs::create_dir_all(mount.path("a/b/c")).unwrap();
    fs::rename(mount.path("hello"), mount.path("a/b/c/moved")).unwrap();
    assert_eq!(files::names(&mount.path("a/b/c")), ["moved"]);
    let large = files::noise(1, 5 << 20);
    fs::write(mount.path("large"), &large).unwrap();
    assert!(fs::read(mount.path("large")).unwrap() == large, "other bytes came back");
    fs::remove_file(mount.path("a/b/c/moved")).unwrap();
    fs::remove_dir_all(mount.path("a")).unwrap();
    assert_eq!(files::names(&mount.dir), ["large"]);
    let df = tool(&format!("df -P {}", mount.dir.display()));
    assert!(df.contains(&pool.source("v")), "{df}");
    mount.end();
    pool.ok("volume stop v --yes");
    pool.ok("volume delete v --release --yes");
    assert!(pool.servers[0].path("b/large").exists() && !pool.servers[0].path("b/.mortar").exists());
    assert_eq!(pool.ok("volume list"), "");
}

fn replicated(replica: usize) {
    let pool = Pool::new(replica);
    let bricks: Vec<(usize, &str)> = (0..replica).map(|i| (i, "b")).collect();
    pool.volume("v", replica, &bricks);
    let mount = pool.mount("v");
    fs::create_dir(mount.path("d")).unwrap();
    for i in 0..50 {
        fs::write(mount.path(&format!("d/f{i}")), files::noise(i, 3000 * i as usize)).unwrap();
    }
    fs::remove_file(mount.path("d/f7")).unwrap();
    for path in pool.paths(&bricks) {
        eventually("the brick holds what the mount shows", || {
            (files::tree(&path) == files::tree(&mount.dir)).then_some(())
        });
    }
    let status = pool.status("v");
    let all = status["bricks"].as_array().unwrap();
    assert_eq!(all.iter().filter(|b| b["role"] == "primary").count(), 1, "{status}");
    assert!(all.iter().all(|b| b["in_sync"] == true && b["online"] == true), "{status}");
    mount.end();
}

#[test]
fn replica_2() {
    replicated(2);
}

#[test]
fn replica_3() {
    replicated(3);
}

/// Every server answers the command line alike, as tables and as JSON.
#[test]
fn the_command_line() {
    let pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    for server in &pool.servers {
        let list = pool.cli_at(&server.address, "pool list").ok();
        assert_eq!(list.lines().count(), 4, "{list}");
        let info = pool.cli_at(&server.address, "volume info v").ok();
        assert!(info.starts_with("volume v: started, replica 3, 1 set\n"), "{info}");
        for word in ["peer status", "volume status", "config export", "volume heal v info"] {
            assert!(!pool.cli_at(&server.address, word).ok().is_empty());
            let json = pool.cli_at(&server.address, &format!("{word} --json")).ok();
            serde_json::from_str::<serde_json::Value>(&json).unwrap();
        }
    }
    let told = pool.ok("volume set v network.ping-timeout 5s features.read-only on");
    assert!(told.contains("network.ping-timeout is 5s now, and was 3s"), "{told}");
    let again = pool.json("volume set v network.ping-timeout 5s");
    assert_eq!(again["changes"], serde_json::json!([]), "{again}");
    assert_eq!(again["done"], "volume v: network.ping-timeout is 5s already");
    let get = pool.json("volume get v network.ping-timeout");
    assert_eq!((&get[0]["value"], &get[0]["default"]), (&"5s".into(), &"3s".into()));
    assert!(!get[0]["help"].as_str().unwrap().is_empty());
    let reset = pool.json("volume reset v network.ping-timeout");
    let change = serde_json::json!({ "option": "network.ping-timeout", "from": "5s", "to": "3s" });
    assert_eq!(reset["changes"], serde_json::json!([change]));
    assert_eq!(pool.json("volume get v network.ping-timeout")[0]["value"], "3s");
    pool.ok("volume reset v");
    assert_eq!(pool.json("volume get v features.read-only")[0]["is_set"], false);
    let usage = pool.cli("volume set v key");
    assert_eq!((usage.code, usage.stdout.as_str()), (Some(2), ""));
    let words = pool.cli("--json volume sett v");
    let error = &serde_json::from_str::<serde_json::Value>(&words.stderr).unwrap()["error"];
    assert_eq!((words.code, &error["code"]), (Some(2), &"usage".into()), "{error}");
    for word in ["client list", "doctor"] {
        assert!(pool.ok(&format!("{word} -o yaml")).contains(": "), "{word}");
    }
}

/// `mount -t mortar`, as the system calls it, and `umount`.
#[test]
fn the_mount_helper() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let (dir, helper) = (pool.dir.join("mnt"), pool.dir.join("mount.mortar"));
    fs::create_dir(&dir).unwrap();
    std::os::unix::fs::symlink(crate::harness::mortar().get_program(), &helper).unwrap();
    let mut command = std::process::Command::new(&helper);
    command.arg(pool.source("v")).arg(&dir).args(["-n", "-o", "rw,noatime"]);
    run(command).ok();
    fs::write(dir.join("f"), "x").unwrap();
    assert_eq!(fs::read(pool.servers[0].path("b/f")).unwrap(), b"x");
    tool(&format!("umount {}", dir.display()));
    eventually("the process ends", || {
        let shown = dir.to_str().unwrap();
        crate::harness::files::processes_with(shown).is_empty().then_some(())
    });
    let mut missing = crate::harness::mortar();
    missing.args(["mount", &pool.source("absent")]).arg(&dir);
    run(missing).refused_with(&["volume absent", "no such volume"]);
}
