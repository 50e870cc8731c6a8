//! A brick that lost everything is filled again by itself; one whose disk is not mounted is not.

use super::verify::{Kept, all_in_sync, verify};
use super::writer::Writer;
use crate::harness::{Pool, eventually};
use std::fs;
use std::path::Path;

const BRICKS: [(usize, &str); 2] = [(1, "b"), (2, "b")];

pub(crate) fn empty(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}

/// Of the primary and of a secondary, while the other goes on and while it is down too.
#[test]
fn a_wiped_brick_is_filled_again() {
    let mut pool = Pool::new(3);
    // A change that meets an object which is still to be filled is left out, and said.
    pool.expect_errors(&["open brick", "could not be applied", "is not as the change expects"]);
    pool.volume("v", 2, &BRICKS);
    let mount = pool.mount("v");
    let writer = Writer::start(&mount, &[]);
    for victim in [2, 1] {
        pool.kill(victim);
        empty(&pool.servers[victim].path("b"));
        writer.went_on();
        pool.start(victim);
        writer.went_on();
        all_in_sync(&pool);
    }
    // All servers are away, so the wiped brick still counts as in sync when it comes back first.
    for server in [0, 1, 2] {
        pool.kill(server);
    }
    empty(&pool.servers[2].path("b"));
    for server in [2, 0, 1] {
        pool.start(server);
    }
    all_in_sync(&pool);
    writer.went_on();
    let model = writer.stop();
    verify(&pool, &BRICKS, 2, &model, Kept::All);
}

/// The directory is gone, and what is there may be the wrong disk: it is said, and nothing is made.
#[test]
fn a_missing_directory_is_not_made_again() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["open brick"]);
    pool.volume("v", 2, &BRICKS);
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
    pool.kill(2);
    let brick = pool.servers[2].path("b");
    let away = pool.servers[2].path("away");
    fs::rename(&brick, &away).unwrap();
    pool.start(2);
    let why = eventually("the status says what is missing", || pool.brick_error("v", 1));
    println!("status: {why}");
    assert!(why.contains(brick.to_str().unwrap()), "{why}");
    fs::write(mount.path("g"), "y").unwrap();
    assert!(!brick.exists());
    fs::rename(&away, &brick).unwrap();
    all_in_sync(&pool);
    assert_eq!(fs::read(brick.join("g")).unwrap(), b"y");
}
