//! Bricks that come back: how fast, what is copied, what is shown meanwhile.

use crate::harness::{Mounted, Pool, eventually, files};
use rustix::fs::XattrFlags;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::time::{Duration, Instant};

const BRICKS: [(usize, &str); 2] = [(0, "b"), (1, "b")];
const MIB: u64 = 1 << 20;

/// Two bricks and a witness.
fn pool(options: &[&str]) -> (Pool, Mounted) {
    let pool = Pool::new(3);
    let words: Vec<String> = BRICKS.iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    pool.ok(&format!("volume create v replica 2 {}", words.join(" ")));
    for option in options {
        pool.ok(&format!("volume set v {option}"));
    }
    pool.ok("volume start v");
    let mount = pool.mount("v");
    (pool, mount)
}

fn bricks(pool: &Pool) -> Vec<Value> {
    pool.status("v")["bricks"].as_array().unwrap().clone()
}

fn out_of_sync(pool: &Pool) {
    eventually("the set goes on without it", || {
        bricks(pool).iter().any(|b| b["in_sync"] == false).then_some(())
    });
}

/// Waits until all are in sync; what the healing was like whenever it was looked at.
fn healed(pool: &Pool) -> Vec<Value> {
    let mut seen = Vec::new();
    eventually("all bricks are in sync", || {
        let bricks = bricks(pool);
        seen.extend(bricks.iter().filter(|b| !b["heal"].is_null()).map(|b| b["heal"].clone()));
        bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
    });
    seen
}

/// Bytes copied and bytes found right in the last healing of a server's brick, as it logged them.
fn copied(pool: &Pool, server: usize) -> (u64, u64) {
    let log = pool.servers[server].log();
    let line = log.lines().rfind(|l| l.contains("has healed")).expect("it has healed");
    let before = |words: &str| -> u64 {
        let text = line.split(words).next().unwrap();
        text.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (before(" bytes copied"), before(" found right"))
}

fn same(pool: &Pool, mount: &Mounted) {
    let shown = files::tree(&mount.dir);
    for brick in pool.paths(&BRICKS) {
        eventually("the brick holds what the mount shows", || (files::tree(&brick) == shown).then_some(()));
    }
}

fn side_by_side(count: usize, make: impl Fn(usize) + Sync) {
    std::thread::scope(|scope| {
        for part in 0..4 {
            let make = &make;
            scope.spawn(move || (part..count).step_by(4).for_each(make));
        }
    });
}

#[test]
fn ten_thousand_changed_files_heal_soon() {
    let (mut pool, mount) = pool(&[]);
    let at = |i: usize, name: &str| mount.path(&format!("d{}/{name}{i}", i % 20));
    (0..20).for_each(|d| fs::create_dir(mount.path(&format!("d{d}"))).unwrap());
    side_by_side(1500, |i| fs::write(at(i, "old"), files::noise(i as u64, 1000 + i)).unwrap());
    pool.kill(1);
    side_by_side(8500, |i| fs::write(at(i, "new"), files::noise(i as u64, 1024 + i % 3072)).unwrap());
    for i in 0..500 {
        fs::rename(at(i, "old"), at(i + 1, "moved")).unwrap();
        fs::remove_file(at(i + 500, "old")).unwrap();
        fs::set_permissions(at(i + 1000, "old"), fs::Permissions::from_mode(0o600)).unwrap();
    }
    out_of_sync(&pool);
    let text = pool.ok("volume heal v info");
    assert!(text.contains("offline: it is healed when its server is back"), "{text}");
    let begun = Instant::now();
    pool.start(1);
    let mut shown = String::new();
    let healed = eventually("all bricks are in sync", || {
        let info = pool.json("volume heal v info");
        let list = info["bricks"].as_array()?;
        if list.iter().any(|b| b["heal"]["done"].as_u64() > Some(100)) {
            shown = pool.ok("volume heal v info");
        }
        list.is_empty().then(|| begun.elapsed())
    });
    println!(
        "10,000 changed files healed in {healed:?}, of which {:?}; shown meanwhile:\n{shown}",
        copied(&pool, 1)
    );
    assert!(healed < Duration::from_secs(20), "{healed:?}");
    assert_eq!(pool.ok("volume heal v info").lines().next().unwrap(), "volume v: every brick is in sync");
    same(&pool, &mount);
}

#[test]
fn an_interrupted_healing_goes_on_and_shows_how_far_it_is() {
    let (mut pool, mount) = pool(&[]);
    pool.kill(1);
    side_by_side(1500, |i| fs::write(mount.path(&format!("f{i}")), files::noise(i as u64, 2000)).unwrap());
    let big = files::noise(7, 4 << 20);
    let file = File::create(mount.path("big")).unwrap();
    (0..40).for_each(|i| file.write_all_at(&big, i * 4 * MIB).unwrap());
    drop(file);
    out_of_sync(&pool);
    let mut first = 0;
    // The joining brick's server, then the primary's.
    for victim in [1, 0] {
        if victim == 1 {
            pool.start(1);
        }
        let heal = eventually("the healing is under way", || {
            let heal = bricks(&pool).iter().map(|b| b["heal"].clone()).find(|h| !h.is_null())?;
            (heal["done"].as_u64()? > 1000 || heal["bytes"].as_u64()? > 20 * MIB).then_some(heal)
        });
        println!("server {victim} is killed at {heal}");
        for (key, value) in [("mode", "journal"), ("state", "copying")] {
            assert_eq!(heal[key], value);
        }
        assert_eq!(heal["total_known"], true);
        assert!(heal["total"].as_u64().unwrap() >= 1500);
        first = heal["bytes"].as_u64().unwrap();
        pool.kill(victim);
        pool.start(victim);
    }
    healed(&pool);
    let (copied, right) = copied(&pool, 1);
    println!("{first} bytes in the second try, then {copied} copied and {right} found right");
    assert!(right > 2_000_000, "what was there is not copied again");
    same(&pool, &mount);
}

/// A large dense file and a sparse one.
fn make_large(mount: &Mounted) {
    let dense = File::create(mount.path("dense")).unwrap();
    let noise = files::noise(1, 4 << 20);
    (0..24).for_each(|i| dense.write_all_at(&noise, i * 4 * MIB).unwrap());
    let sparse = File::create(mount.path("sparse")).unwrap();
    sparse.set_len(400 * MIB).unwrap();
    sparse.write_all_at(b"here", 300 * MIB).unwrap();
    dense.sync_all().unwrap();
    sparse.sync_all().unwrap();
}

fn change_large(mount: &Mounted) {
    let open = |name: &str| File::options().write(true).open(mount.path(name)).unwrap();
    open("dense").write_all_at(&files::noise(2, MIB as usize), 33 * MIB).unwrap();
    open("sparse").write_all_at(b"and there", 200 * MIB).unwrap();
}

fn is_sparse(pool: &Pool) {
    for brick in pool.paths(&BRICKS) {
        let meta = fs::metadata(brick.join("sparse")).unwrap();
        assert!(meta.blocks() * 512 < MIB, "{} takes {} blocks", brick.display(), meta.blocks());
    }
}

#[test]
fn of_large_files_what_changed_is_copied() {
    let (mut pool, mount) = pool(&[]);
    make_large(&mount);
    pool.kill(1);
    change_large(&mount);
    out_of_sync(&pool);
    pool.start(1);
    healed(&pool);
    let (copied, _) = copied(&pool, 1);
    println!("{copied} bytes copied");
    assert!(copied <= MIB + 1024, "{copied} bytes were copied where 1 MiB changed");
    is_sparse(&pool);
    same(&pool, &mount);
}

/// The journal has lost what was missed: everything is compared, and still only what differs is copied.
#[test]
fn a_full_comparison_copies_what_differs() {
    let (mut pool, mount) = pool(&["storage.journal-size 1MB", "storage.sync-interval 1s"]);
    make_large(&mount);
    let many: Vec<_> = (0..100).map(|i| mount.path(&format!("untouched{i}"))).collect();
    many.iter().for_each(|f| fs::write(f, files::noise(3, 50_000)).unwrap());
    pool.kill(1);
    change_large(&mount);
    fs::write(mount.path("x"), "x").unwrap();
    let journal = pool.servers[0].path("b/.mortar/journal");
    let oldest = || files::names(&journal)[0].clone();
    let before = oldest();
    let mut round = 0u32;
    eventually("the journal loses its beginning", || {
        for _ in 0..500 {
            round += 1;
            let mut value = vec![b'v'; 3000];
            value[..4].copy_from_slice(&round.to_le_bytes());
            rustix::fs::setxattr(mount.path("x"), "user.x", &value, XattrFlags::empty()).unwrap();
        }
        (oldest() != before).then_some(())
    });
    pool.start(1);
    let seen = healed(&pool);
    let (copied, right) = copied(&pool, 1);
    println!("after {round} changes: {copied} bytes copied, {right} found right");
    assert!(seen.iter().all(|h| h["mode"] == "full"), "{seen:?}");
    assert!(pool.servers[1].log().contains("full: true"));
    assert!(copied <= 3 * MIB && right >= 90 * MIB);
    is_sparse(&pool);
    same(&pool, &mount);
}

/// The durable position follows the last change within the sync interval, without anybody's fsync.
#[test]
fn the_durable_position_moves_by_itself() {
    let (pool, mount) = pool(&["storage.sync-interval 1s"]);
    fs::write(mount.path("f"), "x").unwrap();
    let begun = Instant::now();
    eventually("all is durable", || {
        let all = bricks(&pool);
        all.iter().all(|b| b["lsn"].as_u64() > Some(0) && b["lsn"] == b["durable_lsn"]).then_some(())
    });
    println!("durable after {:?}", begun.elapsed());
}
