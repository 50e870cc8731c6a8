//! A deleted volume is made again of its bricks.

use crate::harness::{Pool, eventually, files};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

const BRICKS: [(usize, &str); 4] = [(0, "a"), (1, "a"), (1, "b"), (2, "b")];

type Content = BTreeMap<PathBuf, files::Seen>;

/// Two sets of two, with files, stopped and deleted; what it held.
fn deleted(pool: &Pool) -> Content {
    pool.volume("v", 2, &BRICKS);
    pool.ok("volume set v user.note hello");
    let mount = pool.mount("v");
    for d in 0..6 {
        fs::create_dir(mount.path(&format!("d{d}"))).unwrap();
        for f in 0..5 {
            fs::write(mount.path(&format!("d{d}/f{f}")), files::noise(d * 10 + f, 5000)).unwrap();
        }
    }
    let held = files::tree(&mount.dir);
    mount.end();
    pool.ok("volume stop v --yes");
    let said = pool.ok("volume delete v --yes");
    assert!(said.contains("mortar volume import v makes it again"), "{said}");
    assert_eq!(pool.ok("volume list"), "");
    held
}

fn holds(pool: &Pool, held: &Content) {
    pool.ok("volume start v");
    let mount = pool.mount("v");
    assert_eq!(files::tree(&mount.dir), *held);
    fs::write(mount.path("d0/new"), "x").unwrap();
    fs::remove_file(mount.path("d0/new")).unwrap();
    mount.end();
}

fn all_in_sync(pool: &Pool) {
    eventually("all bricks are in sync", || {
        let status = pool.status("v");
        status["bricks"].as_array()?.iter().all(|b| b["in_sync"] == true).then_some(())
    });
}

#[test]
fn a_deleted_volume_is_there_again_with_all_that_it_held() {
    let pool = Pool::new(3);
    let held = deleted(&pool);
    let brick = pool.servers[0].brick("a");
    for words in ["", " --adopt"] {
        let refused = pool.cli(&format!("volume create w {brick}{words}")).refused();
        assert!(refused.contains("mortar volume import v"), "{refused}");
    }
    pool.cli("volume import w").refused_with(&["no deleted volume w", "can be imported: v"]);
    let said = pool.ok("volume import v");
    assert!(said.contains("start it with mortar volume start v"), "{said}");
    assert!(pool.ok("volume get v user.note --json").contains("hello"));
    pool.cli("volume import v").refused_with(&["no deleted volume v", "the volume exists"]);
    holds(&pool, &held);
    all_in_sync(&pool);
    // Once more; then it is gone for good.
    pool.ok("volume stop v --yes");
    pool.ok("volume delete v --yes");
    pool.ok("volume delete v --release --yes");
    assert!(!pool.servers[0].path("a/.mortar").exists() && pool.servers[0].path("a").exists());
    pool.cli("volume import v").refused_with(&["no deleted volume v"]);
    pool.ok(&format!("volume create w {brick} --adopt"));
}

#[test]
fn a_volume_with_a_brick_missing_is_there_again_and_healed() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["open brick"]);
    let held = deleted(&pool);
    let (place, away) = (pool.servers[1].path("a"), pool.servers[1].path("away"));
    fs::rename(&place, &away).unwrap();
    let missing = pool.servers[1].brick("a");
    pool.cli("volume import v").refused_with(&["is not complete", &missing, "no such directory", "--force"]);
    let said = pool.ok("volume import v --force");
    assert!(said.contains(&format!("note: brick {missing}")), "{said}");
    holds(&pool, &held);
    pool.stop(1);
    fs::rename(&away, &place).unwrap();
    pool.start(1);
    pool.wait_in_sync();
    all_in_sync(&pool);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut pool = Pool::new(3);
    let held = deleted(&pool);
    let (a, b) = (pool.servers[1].path("a"), pool.servers[1].path("b"));
    let away = pool.servers[1].path("away");
    // Two bricks of one volume have changed places.
    for (from, to) in [(&a, &away), (&b, &a), (&away, &b)] {
        fs::rename(from, to).unwrap();
    }
    pool.cli("volume import v").refused_with(&["it is brick", "of volume v", "bring the right directory"]);
    for (from, to) in [(&b, &away), (&a, &b), (&away, &a)] {
        fs::rename(from, to).unwrap();
    }
    // Another pool's.
    let other = Pool::new(1);
    other.volume("o", 1, &[(0, "o")]);
    other.ok("volume stop o --yes");
    other.ok("volume delete o --yes");
    fs::rename(&a, &away).unwrap();
    fs::rename(other.servers[0].path("o"), &a).unwrap();
    pool.cli("volume import v").refused_with(&["of another pool"]);
    fs::rename(&a, other.servers[0].path("o")).unwrap();
    // An empty directory where the disk was.
    fs::create_dir(&a).unwrap();
    pool.cli("volume import v").refused_with(&["it is no brick"]);
    fs::remove_dir(&a).unwrap();
    // A set without any of its bricks cannot be left out.
    let first = pool.servers[0].path("a");
    fs::rename(&first, pool.servers[0].path("away")).unwrap();
    pool.cli("volume import v --force").refused_with(&["none of the bricks that hold its latest data"]);
    fs::rename(pool.servers[0].path("away"), &first).unwrap();
    fs::rename(&away, &a).unwrap();
    // A server that does not answer.
    pool.stop(2);
    let brick = pool.servers[2].brick("b");
    pool.cli("volume import v").refused_with(&["is not complete", &brick]);
    pool.start(2);
    pool.wait_in_sync();
    // By its bricks, of which not all have to be told.
    let named = |i: usize| pool.servers[BRICKS[i].0].brick(BRICKS[i].1);
    let never = pool.servers[0].brick("never");
    pool.cli(&format!("volume import {} {never}", named(0))).refused_with(&[&never, "can be imported: v"]);
    pool.ok(&format!("volume import {} {}", named(0), named(2)));
    holds(&pool, &held);
}
