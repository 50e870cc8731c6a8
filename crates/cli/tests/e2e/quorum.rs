//! Write quorum: a set with too few bricks in sync is read-only, says so, and takes changes again by itself.

use crate::harness::{Pool, eventually, files};
use std::fs;
use std::io::ErrorKind;

const BRICKS: [(usize, &str); 3] = [(0, "b"), (1, "b"), (2, "b")];

/// Five servers, so that the pool goes on when two are away.
fn pool() -> Pool {
    let pool = Pool::new(5);
    pool.volume("v", 3, &BRICKS);
    pool
}

fn note(pool: &Pool) -> String {
    pool.status("v")["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

fn await_note(pool: &Pool, words: &[&str]) {
    eventually(&format!("the status says {words:?}"), || {
        let note = note(pool);
        words.iter().all(|w| note.contains(w)).then(|| println!("note: {note}"))
    });
}

fn await_read_only(pool: &Pool, dir: &std::path::Path, words: &[&str]) {
    await_note(pool, words);
    eventually("changes are refused", || {
        let refused = fs::write(dir.join("refused"), "x").err()?;
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem, "{refused}");
        Some(())
    });
    assert!(fs::create_dir(dir.join("dir")).is_err() && fs::remove_file(dir.join("f")).is_err());
    assert_eq!(fs::read(dir.join("f")).unwrap(), b"x", "it is read all the same");
}

fn await_writable(dir: &std::path::Path, name: &str) {
    eventually("changes are taken again", || fs::write(dir.join(name), name).ok());
}

fn finish(pool: &Pool, dir: &std::path::Path) {
    eventually("all bricks hold what the mount shows", || {
        let status = pool.status("v");
        let in_sync = status["bricks"].as_array()?.iter().all(|b| b["in_sync"] == true);
        let tree = files::tree(dir);
        (in_sync && pool.paths(&BRICKS).iter().all(|b| files::brick_tree(b) == tree)).then_some(())
    });
    assert_eq!(note(pool), "");
}

#[test]
fn auto_needs_a_majority_of_the_bricks() {
    let mut pool = pool();
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
    pool.kill(0);
    fs::write(mount.path("two are enough"), "x").unwrap();
    pool.kill(1);
    let missing = pool.servers[0].brick("b");
    let words =
        ["read-only: 1 of 3 bricks in sync, 2 needed (cluster.quorum-type auto)", "bring back", &missing];
    await_read_only(&pool, &mount.dir, &words);
    pool.start(1);
    await_writable(&mount.dir, "again");
    pool.start(0);
    finish(&pool, &mount.dir);
    mount.end();
}

#[test]
fn fixed_needs_so_many_and_none_needs_one() {
    let mut pool = pool();
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
    pool.ok("volume set v cluster.quorum-type fixed cluster.quorum-count 3");
    pool.cli("volume set v cluster.quorum-count 4").refused_with(&["at most 3"]);
    fs::write(mount.path("all are there"), "x").unwrap();
    pool.kill(2);
    await_read_only(&pool, &mount.dir, &["2 of 3 bricks in sync, 3 needed (cluster.quorum-type fixed)"]);
    pool.ok("volume set v cluster.quorum-count 2");
    await_writable(&mount.dir, "two");
    pool.kill(1);
    await_read_only(&pool, &mount.dir, &["1 of 3 bricks in sync, 2 needed"]);
    pool.ok("volume set v cluster.quorum-type none");
    await_writable(&mount.dir, "one");
    pool.ok("volume reset v");
    await_read_only(&pool, &mount.dir, &["2 needed (cluster.quorum-type auto)"]);
    pool.start(1);
    await_writable(&mount.dir, "again");
    pool.start(2);
    finish(&pool, &mount.dir);
    mount.end();
}
