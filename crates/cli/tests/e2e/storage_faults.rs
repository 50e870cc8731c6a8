//! Damaged files: state folders, pool stores, journals.

use crate::harness::{Pool, eventually};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 0x40;
    fs::write(file, bytes).unwrap();
}

/// The segments of a brick's journal, in order.
fn segments(brick: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> =
        fs::read_dir(brick.join(".mortar/journal")).unwrap().map(|e| e.unwrap().path()).collect();
    all.sort();
    all
}

#[test]
fn a_damaged_state_folder_is_refused() {
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    pool.stop(0);
    let (identity, store) =
        (pool.servers[0].state().join("identity"), pool.servers[0].state().join("store/pool.redb"));
    let (good_identity, good_store) = (fs::read(&identity).unwrap(), fs::read(&store).unwrap());
    for at in [0, 30, good_identity.len() - 1] {
        flip(&identity, at);
        let why = pool.try_start(0).unwrap_err();
        assert!(why.contains(identity.to_str().unwrap()), "{why}");
        fs::write(&identity, &good_identity).unwrap();
    }
    // The pages of the store that are in use: a byte flipped in any of the words of the pool.
    let text = b"replica";
    let places: Vec<usize> =
        (0..good_store.len() - text.len()).filter(|i| &good_store[*i..*i + text.len()] == text).collect();
    assert!(!places.is_empty(), "the pool's state is not found in the store");
    let mut refused = 0;
    for at in places {
        flip(&store, at);
        // Copies that are not in use any more may well be damaged.
        match pool.try_start(0) {
            Ok(()) => pool.stop(0),
            Err(why) => {
                assert!(why.contains("damaged") && why.contains("pool.redb"), "{why}");
                refused += 1;
            }
        }
        fs::write(&store, &good_store).unwrap();
    }
    assert!(refused > 0, "damage in the store is never seen");
    File::options().write(true).open(&store).unwrap().set_len(good_store.len() as u64 / 2).unwrap();
    let why = pool.try_start(0).unwrap_err();
    assert!(why.contains("pool.redb"), "{why}");
    fs::write(&store, &good_store).unwrap();
    pool.start(0);
    assert_eq!(pool.ok("volume list"), "v\n");
}

/// A last record that was cut off by a crash: the brick starts and serves.
#[test]
fn a_cut_journal_is_repaired() {
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    for i in 0..100 {
        fs::write(mount.path(&format!("f{i}")), "x").unwrap();
    }
    mount.end();
    pool.kill(0);
    let last = segments(&pool.servers[0].path("b")).pop().unwrap();
    let length = fs::metadata(&last).unwrap().len();
    File::options().write(true).open(&last).unwrap().set_len(length - 5).unwrap();
    pool.start(0);
    let mount = pool.mount("v");
    for i in 0..99 {
        assert_eq!(fs::read(mount.path(&format!("f{i}"))).unwrap(), b"x");
    }
    fs::write(mount.path("after"), "y").unwrap();
    assert_eq!(fs::read(mount.path("after")).unwrap(), b"y");
}

/// Damage in the middle: the brick is not served, and status and log say why; the server serves the others.
#[test]
fn a_damaged_journal_is_refused() {
    let mut pool = Pool::new(1);
    pool.expect_errors(&["journal"]);
    pool.volume("v", 1, &[(0, "b")]);
    pool.volume("w", 1, &[(0, "c")]);
    let mount = pool.mount("v");
    for i in 0..100 {
        fs::write(mount.path(&format!("f{i}")), "x").unwrap();
    }
    mount.end();
    pool.stop(0);
    let first = segments(&pool.servers[0].path("b")).remove(0);
    let middle = usize::try_from(fs::metadata(&first).unwrap().len()).unwrap() / 2;
    let good = fs::read(&first).unwrap();
    flip(&first, middle);
    pool.start(0);
    let error = eventually("the status says what is wrong", || {
        let status = pool.status("v");
        assert_eq!(status["bricks"][0]["online"], false, "{status}");
        status["bricks"][0]["error"].as_str().map(str::to_owned)
    });
    println!("status: {error}");
    assert!(error.contains("journal"), "{error}");
    assert!(pool.servers[0].log().contains(&error), "the log does not say: {error}");
    let other = pool.mount("w");
    fs::write(other.path("f"), "x").unwrap();
    other.end();
    let mut check = crate::harness::mortar();
    check.args(["brick", "check"]).arg(pool.servers[0].path("b"));
    let output = crate::harness::run(check);
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stdout.contains("damage at byte"), "{output:?}");
    pool.stop(0);
    fs::write(&first, good).unwrap();
    pool.start(0);
    let mount = pool.mount("v");
    assert_eq!(fs::read(mount.path("f99")).unwrap(), b"x");
}
