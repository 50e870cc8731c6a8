//! Volumes that get more or fewer copies of what they hold while they are in use.

use crate::grow::{in_sync, words};
use crate::harness::{Mounted, Pool, eventually, files};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Files in a directory of the mount, from one number to another.
fn write(mount: &Mounted, numbers: std::ops::Range<u64>) {
    for i in numbers {
        fs::write(mount.path(&format!("d/f{i}")), files::noise(i, 3000)).unwrap();
    }
}

fn read(mount: &Mounted, numbers: std::ops::Range<u64>) {
    for i in numbers {
        assert_eq!(fs::read(mount.path(&format!("d/f{i}"))).unwrap(), files::noise(i, 3000), "f{i}");
    }
}

/// Who leads the volume's only set: a server by its number.
fn primary(pool: &Pool, volume: &str) -> usize {
    let host = eventually("the set is led", || {
        let status = pool.status(volume);
        let leads = |b: &&serde_json::Value| b["role"] == "primary";
        let brick = status["bricks"].as_array()?.iter().find(leads)?.clone();
        Some(brick["server"].as_str()?.to_owned())
    });
    pool.servers.iter().position(|s| s.host == host).unwrap()
}

/// From one copy to three and back to two: the mount is at work all the time and sees no error. The brick that led is the
/// one that goes; its directory keeps its files.
#[test]
fn copies_come_and_go_while_the_volume_is_in_use() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 1, &[(0, "a")]);
    let mount = pool.mount("v");
    fs::create_dir(mount.path("d")).unwrap();
    write(&mount, 0..100);
    let over = AtomicBool::new(false);
    let all = [(0, "a"), (1, "b"), (2, "c")];
    let written = std::thread::scope(|s| {
        let writer = s.spawn(|| {
            let mut n = 100;
            while !over.load(Ordering::Relaxed) && n < 5000 {
                write(&mount, n..n + 1);
                n += 1;
                std::thread::sleep(Duration::from_millis(2));
            }
            n
        });
        let added = pool.json(&format!("volume add-brick v replica 2 {}", words(&pool, &all[1..2])));
        assert_eq!((&added["replica"], &added["sets"]), (&2.into(), &serde_json::json!([1])));
        in_sync(&pool, "v", &all[..2]);
        pool.ok(&format!("volume add-brick v replica 3 {}", words(&pool, &all[2..])));
        in_sync(&pool, "v", &all);
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    assert_eq!(pool.json("volume info v")[0]["replica"], 3);
    // Any of the three will do.
    let led = primary(&pool, "v");
    pool.kill(led);
    read(&mount, 0..written);
    pool.start(led);
    in_sync(&pool, "v", &all);
    let led = primary(&pool, "v");
    let gone = words(&pool, &all[led..=led]);
    let removed = pool.json(&format!("volume remove-brick v replica 2 {gone} commit"));
    assert_eq!(removed["leaving"], serde_json::json!([]), "it has handed over");
    write(&mount, written..written + 20);
    let left: Vec<_> = all.iter().enumerate().filter(|(i, _)| *i != led).map(|(_, b)| *b).collect();
    in_sync(&pool, "v", &left);
    read(&mount, 0..written + 20);
    let old = pool.servers[led].path(all[led].1);
    assert_eq!(fs::read(old.join("d/f7")).unwrap(), files::noise(7, 3000));
    assert!(!old.join(format!("d/f{written}")).exists(), "it is served no more");
    // Nothing is asked of its server any more.
    pool.kill(led);
    read(&mount, 0..written + 20);
    write(&mount, 0..1);
    mount.end();
    let paths = pool.paths(&left);
    eventually("the bricks are the same", || {
        (files::tree(&paths[0]) == files::tree(&paths[1])).then_some(())
    });
}

/// An arbiter comes to two copies: the set has a majority without either of them. It goes again.
#[test]
fn two_copies_get_an_arbiter() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick"]);
    let all = [(0, "a"), (1, "a"), (2, "a")];
    pool.volume("v", 2, &all[..2]);
    let mount = pool.mount("v");
    fs::create_dir(mount.path("d")).unwrap();
    write(&mount, 0..30);
    pool.ok(&format!("volume add-brick v replica 3 arbiter 1 {}", words(&pool, &all[2..])));
    in_sync(&pool, "v", &all);
    let info = pool.json("volume info v")[0].clone();
    assert_eq!((&info["replica"], &info["arbiter"]), (&3.into(), &1.into()));
    assert_eq!(info["sets"][0]["bricks"][2]["arbiter"], true);
    let (data, arbiter) = (pool.servers[0].path("a/d/f7"), pool.servers[2].path("a/d/f7"));
    assert_eq!(fs::metadata(&arbiter).unwrap().len(), fs::metadata(&data).unwrap().len());
    assert!(fs::read(&arbiter).unwrap().iter().all(|b| *b == 0), "an arbiter holds no data");
    pool.kill(1);
    write(&mount, 30..40);
    pool.start(1);
    in_sync(&pool, "v", &all);
    let remove = |which: usize| {
        format!("volume remove-brick v replica 2 {} commit", words(&pool, &all[which..=which]))
    };
    pool.cli(&remove(1)).refused_with(&["is the arbiter of its set", "remove it as well"]);
    pool.ok(&remove(2));
    in_sync(&pool, "v", &all[..2]);
    write(&mount, 40..50);
    read(&mount, 0..50);
    mount.end();
}

/// What would lose data, or cannot be, is refused with what is in the way and what to do; nothing changes.
#[test]
fn copies_that_cannot_come_or_go_are_refused() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick"]);
    let both = [(0, "a"), (1, "a")];
    pool.volume("v", 2, &both);
    let mount = pool.mount("v");
    let run = |pool: &Pool, command: &str, bricks: &[(usize, &str)], how: &str| {
        pool.cli(&format!("volume {command} {}{how}", words(pool, bricks)))
    };
    run(&pool, "add-brick v replica 2", &[(2, "n")], "").refused_with(&["has replica 2", "higher"]);
    run(&pool, "add-brick v replica 3", &[(1, "n")], "")
        .refused_with(&["on the server of", "another server"]);
    run(&pool, "add-brick v replica 4", &[(2, "n")], "")
        .refused_with(&["1 sets", "give 2 for the first set"]);
    run(&pool, "remove-brick v replica 1", &[(2, "n")], " commit").refused_with(&["no brick of volume 'v'"]);
    run(&pool, "remove-brick v", &[(1, "a")], " commit").refused_with(&["begin with start"]);
    run(&pool, "remove-brick v", &[(1, "a")], " start").refused_with(&["name all of them"]);
    run(&pool, "remove-brick v", &both, " start").refused_with(&["no set of volume v would stay"]);
    assert_eq!(run(&pool, "remove-brick v replica 1", &[(1, "a")], "").code, Some(2));
    assert!(!pool.servers[2].path("n").exists(), "a refused command left something");
    pool.kill(1);
    fs::write(mount.path("late"), "x").unwrap();
    run(&pool, "remove-brick v replica 1", &[(0, "a")], " force").refused_with(&[
        "do not hold its latest data",
        &words(&pool, &both[..1]),
        "heal v info",
    ]);
    // The one that is away can go, also with its name written otherwise.
    let other = words(&pool, &both[1..]).replace("/a", "//a/");
    pool.ok(&format!("volume remove-brick v replica 1 {other} commit"));
    in_sync(&pool, "v", &both[..1]);
    assert_eq!(fs::read_to_string(mount.path("late")).unwrap(), "x");
    mount.end();
}
