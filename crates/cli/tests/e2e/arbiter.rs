//! `replica 3 arbiter 1`: the third brick votes and knows all names, and holds no file data.

use crate::harness::{Pool, eventually, files};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const DATA: [(usize, &str); 2] = [(0, "b"), (1, "b")];
const ARBITER: usize = 2;

fn pool() -> Pool {
    let pool = Pool::new(3);
    let bricks: Vec<String> = (0..3).map(|i| pool.servers[i].brick("b")).collect();
    pool.ok(&format!("volume create v replica 3 arbiter 1 {}", bricks.join(" ")));
    pool.ok("volume start v");
    pool
}

fn brick<'a>(status: &'a Value, pool: &Pool, i: usize) -> &'a Value {
    let of = |b: &&Value| b["server"] == pool.servers[i].host.as_str();
    status["bricks"].as_array().unwrap().iter().find(of).unwrap()
}

fn await_in_sync(pool: &Pool) {
    eventually("all bricks are in sync", || {
        let status = pool.status("v");
        assert_ne!(brick(&status, pool, ARBITER)["role"], "primary", "{status}");
        let bricks = status["bricks"].as_array()?;
        bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
    });
}

/// What the arbiter shares with a brick that holds data: names, kinds, owners, modes, sizes.
fn shape(top: &Path) -> BTreeMap<PathBuf, files::Seen> {
    let size = |s: files::Seen| files::Seen { content: s.content.len().to_le_bytes().to_vec(), ..s };
    files::brick_tree(top).into_iter().map(|(path, s)| (path, size(s))).collect()
}

/// Names and sizes are those of the data bricks, and no block of data is there.
fn check_arbiter(pool: &Pool) {
    let (data, arbiter) = (pool.servers[0].path("b"), pool.servers[ARBITER].path("b"));
    eventually("the arbiter has all names", || (shape(&data) == shape(&arbiter)).then_some(()));
    for (path, seen) in files::tree(&arbiter).into_iter().filter(|(_, s)| s.kind == 'f') {
        assert_eq!(fs::metadata(arbiter.join(&path)).unwrap().blocks(), 0, "{}", path.display());
        assert!(seen.content.iter().all(|b| *b == 0));
    }
}

fn check(pool: &Pool) {
    await_in_sync(pool);
    let paths = pool.paths(&DATA);
    eventually("the data bricks are the same", || {
        (files::brick_tree(&paths[0]) == files::brick_tree(&paths[1])).then_some(())
    });
    check_arbiter(pool);
}

#[test]
fn an_arbiter_holds_no_data_and_heals_without_any() {
    let mut pool = pool();
    let mount = pool.mount("v");
    files::source_tree(&mount.path("src"), 200);
    fs::write(mount.path("large"), files::noise(1, 4 << 20)).unwrap();
    check(&pool);
    let status = pool.status("v");
    assert_eq!(brick(&status, &pool, ARBITER)["role"], "arbiter", "{status}");
    pool.kill(ARBITER);
    fs::write(mount.path("large"), files::noise(2, 6 << 20)).unwrap();
    fs::rename(mount.path("src"), mount.path("moved")).unwrap();
    for i in 0..20 {
        fs::write(mount.path(&format!("new{i}")), files::noise(i, 30_000)).unwrap();
    }
    pool.start(ARBITER);
    mount.end();
    check(&pool);
    let healed = pool.servers[ARBITER].log();
    let line = healed.lines().rfind(|l| l.contains("has healed")).expect("it healed");
    assert!(line.contains(", 0 bytes copied"), "an arbiter copies no data: {line}");
}

/// One data brick and the arbiter go on; the arbiter alone does not, nor does a brick that missed something.
#[test]
fn an_arbiter_never_serves_alone() {
    let mut pool = pool();
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "first").unwrap();
    for (gone, back) in [(0, 1), (1, 0)] {
        pool.kill(gone);
        fs::write(mount.path("f"), format!("without {gone}")).unwrap();
        fs::write(mount.path(&format!("only{back}")), files::noise(5, 100_000)).unwrap();
        pool.kill(back);
        let address = pool.servers[ARBITER].address.clone();
        // Alone the arbiter is no majority of the pool either: the one that missed the changes comes back.
        pool.start(gone);
        let names = format!("latest data: {}", pool.servers[back].brick("b"));
        eventually("the status says who is needed", || {
            let output = pool.cli_at(&address, "volume status v --json");
            let status: Value = serde_json::from_str(&output.stdout).ok()?;
            let bricks = status[0]["bricks"].as_array()?;
            assert!(
                bricks
                    .iter()
                    .all(|b| b["role"] != "primary" || b["server"] == pool.servers[back].host.as_str())
            );
            status[0]["notes"].to_string().contains(&names).then_some(())
        });
        let reader = {
            let file = mount.path("f");
            std::thread::spawn(move || fs::read_to_string(file).unwrap())
        };
        pool.start(back);
        assert_eq!(reader.join().unwrap(), format!("without {gone}"), "nobody answers with what is old");
        check(&pool);
    }
    mount.end();
}
