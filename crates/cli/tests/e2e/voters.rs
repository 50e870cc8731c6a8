//! The pool store when servers are lost: voters, state folders, all but one server.

use crate::harness::{Output, Pool, eventually, files, mortar, run};
use serde_json::Value;
use std::fs;
use std::time::{Duration, Instant};

const THREE: [(usize, &str); 3] = [(0, "b"), (1, "b"), (2, "b")];

/// Polls longer than `eventually`: a voter is replaced half a minute after it was declared down.
fn within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + limit;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The hosts that vote, as a server sees it.
fn voters(pool: &Pool) -> Option<Vec<String>> {
    let output = pool.cli("peer status --json");
    let status: Value = serde_json::from_str(&output.stdout).ok()?;
    let voting = status["peers"].as_array()?.iter().filter(|p| p["role"] == "voter");
    let mut hosts: Vec<String> = voting.map(|p| p["host"].as_str().unwrap().to_owned()).collect();
    hosts.sort();
    Some(hosts)
}

fn hosts(pool: &Pool, servers: &[usize]) -> Vec<String> {
    let mut hosts: Vec<String> = servers.iter().map(|i| pool.servers[*i].host.clone()).collect();
    hosts.sort();
    hosts
}

fn await_voters(pool: &Pool, servers: &[usize]) {
    let wanted = hosts(pool, servers);
    within(Duration::from_secs(60), &format!("voters {servers:?}"), || {
        (voters(pool)? == wanted).then_some(())
    });
}

fn await_in_sync(pool: &Pool, volume: &str) {
    eventually("all bricks are in sync", || {
        let status = pool.status(volume);
        let bricks = status["bricks"].as_array()?;
        bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
    });
}

fn same_bricks(pool: &Pool, volume: &str, bricks: &[(usize, &str)]) {
    await_in_sync(pool, volume);
    let paths = pool.paths(bricks);
    eventually("the bricks are the same", || {
        let first = files::tree(&paths[0]);
        paths[1..].iter().all(|p| files::tree(p) == first).then_some(())
    });
}

fn recover(pool: &Pool, i: usize, words: &[&str]) -> Output {
    let mut command = mortar();
    command.args(["pool", "recover", "--state"]).arg(pool.servers[i].state()).args(words);
    run(command)
}

/// Any two of five voters may be lost: settings change and sets fail over all the same, and a server that does not vote
/// takes the place of one that stays away. Who comes back is a learner then.
#[test]
fn a_minority_of_the_voters_is_lost() {
    let mut pool = Pool::new(6);
    await_voters(&pool, &[0, 1, 2, 3, 4]);
    pool.volume("v", 3, &[(1, "b"), (2, "b"), (5, "b")]);
    let mount = pool.mount("v");
    fs::write(mount.path("before"), "x").unwrap();
    // The leader, most likely, and a server with a brick.
    pool.kill(0);
    pool.kill(1);
    pool.ok("volume set v user.note changed");
    fs::write(mount.path("after"), "y").unwrap();
    assert_eq!(fs::read(mount.path("before")).unwrap(), b"x");
    let status = pool.ok("peer status");
    let silent = format!("server {} does not answer", pool.servers[0].host);
    within(Duration::from_secs(10), "the status names the silent server", || {
        pool.ok("peer status").contains(&silent).then_some(())
    });
    assert!(status.contains("voter"), "{status}");
    // One newcomer for two that are gone: the number stays odd, a majority of it lives.
    let wanted = hosts(&pool, &[2, 3, 4, 5]);
    let now = within(Duration::from_secs(60), "another server votes", || {
        voters(&pool).filter(|v| v.contains(&pool.servers[5].host))
    });
    assert!(wanted.iter().all(|h| now.contains(h)) && now.len() == 5, "{now:?}");
    pool.start(0);
    pool.start(1);
    pool.wait_in_sync();
    await_voters_number(&pool, 5);
    await_in_sync(&pool, "v");
    pool.kill(2);
    pool.ok("volume set v user.note again");
    fs::write(mount.path("last"), "z").unwrap();
    pool.start(2);
    mount.end();
    same_bricks(&pool, "v", &[(1, "b"), (2, "b"), (5, "b")]);
}

fn await_voters_number(pool: &Pool, number: usize) {
    within(Duration::from_secs(60), "so many vote", || (voters(pool)?.len() == number).then_some(()));
}

/// A server that comes back with an empty state folder is not the one it was. One command gives it its place again, and
/// its brick, which is still there, heals.
#[test]
fn an_emptied_state_folder_makes_another_server() {
    let mut pool = Pool::new(3);
    await_voters(&pool, &[0, 1, 2]);
    pool.volume("v", 3, &THREE);
    let mount = pool.mount("v");
    for i in 0..20 {
        fs::write(mount.path(&format!("f{i}")), files::noise(i, 5000)).unwrap();
    }
    let host = pool.servers[2].host.clone();
    pool.kill(2);
    fs::write(mount.path("meanwhile"), "x").unwrap();
    fs::remove_dir_all(pool.servers[2].state()).unwrap();
    pool.start(2);
    // It is a pool of its own, and serves nothing of the old one.
    assert_eq!(pool.cli_at(&pool.servers[2].address, "volume list").ok(), "");
    let note = format!("server {host} is not the one that answers");
    within(Duration::from_secs(10), "the status says so", || {
        pool.ok("peer status").lines().find(|l| l.contains(&note)).map(|l| println!("{l}"))
    });
    let bricks = pool.status("v")["bricks"].clone();
    assert!(bricks.as_array().unwrap().iter().all(|b| b["server"] != host.as_str() || b["in_sync"] == false));
    let probe = format!("peer probe {host}:{}", pool.port);
    pool.cli(&probe).refused_with(&["lost its state folder", "mortar peer replace"]);
    pool.cli(&format!("peer detach {host} --force --yes"))
        .refused_with(&["holds bricks of volume 'v'", "peer replace"]);
    // A server that runs is not replaced.
    let runs = format!("peer replace {}", pool.servers[1].host);
    pool.cli(&runs).refused_with(&["is server 2 of this pool"]);
    let done = pool.ok(&format!("peer replace {host}"));
    println!("{done}");
    assert!(done.contains("in the place of server 3") && done.contains("1 brick"), "{done}");
    pool.wait_in_sync();
    same_bricks(&pool, "v", &THREE);
    await_voters(&pool, &[0, 1, 2]);
    assert_eq!(fs::read(pool.servers[2].path("b/meanwhile")).unwrap(), b"x");
    // It votes again: another one may go.
    pool.kill(1);
    pool.ok("volume set v user.note changed");
    fs::write(mount.path("last"), "y").unwrap();
    pool.start(1);
    mount.end();
    same_bricks(&pool, "v", &THREE);
}

/// The whole machine is gone, disks included: a new one at another address takes its place, and its brick is filled.
#[test]
fn a_lost_machine_is_replaced_by_a_new_one() {
    let mut pool = Pool::new(3);
    // Until the newcomer knows for certain that others hold the brick's data.
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 3, &THREE);
    let mount = pool.mount("v");
    for i in 0..20 {
        fs::write(mount.path(&format!("f{i}")), files::noise(i, 5000)).unwrap();
    }
    let host = pool.servers[0].host.clone();
    pool.kill(0);
    for lost in ["state", "b"] {
        fs::remove_dir_all(pool.servers[0].path(lost)).unwrap();
    }
    pool.servers[0].address = pool.spare_address();
    pool.start(0);
    let new = pool.servers[0].address.clone();
    // Asked at a server that is in the pool.
    let at = pool.servers[1].address.clone();
    pool.cli_at(&at, &format!("peer replace {host}")).refused_with(&["connection refused", "--by"]);
    println!("{}", pool.cli_at(&at, &format!("peer replace {host} --by {new}")).ok());
    pool.servers[0].host = new.rsplit_once(':').unwrap().0.to_owned();
    // The volume is there at once, with the new server in the place of the old one.
    let shown = pool.cli_at(&at, "volume status v").ok();
    assert!(shown.contains(&pool.servers[0].brick("b")) && !shown.contains(&format!("{host}:")), "{shown}");
    pool.wait_in_sync();
    fs::write(mount.path("more"), "x").unwrap();
    mount.end();
    same_bricks(&pool, "v", &THREE);
    await_voters(&pool, &[0, 1, 2]);
}

/// Two of three servers are gone for good: the third goes on alone when it is told to. When the others come back after
/// all, with votes enough for a pool of their own, they are turned away.
#[test]
fn one_survivor_goes_on_when_told_to() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["the pool was recovered on server"]);
    await_voters(&pool, &[0, 1, 2]);
    pool.volume("v", 3, &THREE);
    let mount = pool.mount("v");
    for i in 0..20 {
        fs::write(mount.path(&format!("f{i}")), files::noise(i, 5000)).unwrap();
    }
    mount.end();
    let why = recover(&pool, 1, &["--yes"]).refused();
    assert!(why.contains("another server uses it"), "{why}");
    for i in 0..3 {
        pool.kill(i);
    }
    let asked = recover(&pool, 1, &[]);
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(asked.stderr.contains("nothing was done") && asked.stderr.contains("--yes"), "{asked:?}");
    for word in ["is lost", "set 1 of volume v goes on with", &pool.servers[0].host, &pool.servers[2].host] {
        assert!(asked.stdout.contains(word), "{word:?} was expected in {}", asked.stdout);
    }
    println!("{}", recover(&pool, 1, &["--yes"]).ok());
    pool.start(1);
    let status = pool.status("v");
    assert!(status["notes"].to_string().contains("read-only"), "one of three is no quorum: {status}");
    pool.ok("volume set v cluster.quorum-type none");
    let mount = pool.mount("v");
    eventually("it serves", || fs::read(mount.path("f1")).ok());
    eventually("it takes changes", || fs::write(mount.path("alone"), "x").ok());
    // The others come back together. Either they find out when they start, or they are told.
    let mut turned_away = Vec::new();
    for i in [0, 2] {
        if let Err(why) = pool.try_start(i) {
            println!("refused: {why}");
            turned_away.push(i);
        }
    }
    for i in [0, 2] {
        if !turned_away.contains(&i) {
            pool.await_end(i);
        }
        let why = pool.try_start(i).unwrap_err();
        assert!(
            why.contains("the pool was recovered on server") && why.contains("empty this folder"),
            "{why}"
        );
    }
    let lost = pool.ok("peer status");
    assert!(lost.contains("lost") && lost.contains("mortar peer replace"), "{lost}");
    for i in [0, 2] {
        fs::remove_dir_all(pool.servers[i].state()).unwrap();
        pool.start(i);
        let host = pool.servers[i].host.clone();
        pool.cli_at(&pool.servers[1].address, &format!("peer replace {host}")).ok();
    }
    pool.wait_in_sync();
    pool.ok("volume reset v cluster.quorum-type");
    same_bricks(&pool, "v", &THREE);
    await_voters(&pool, &[0, 1, 2]);
    fs::write(mount.path("together"), "y").unwrap();
    assert_eq!(fs::read(mount.path("alone")).unwrap(), b"x");
    mount.end();
}

/// The old majority has gone on without the survivor, and only then the survivor is recovered, unable to reach anybody:
/// what the others have more is undone when they come back, and nothing is mixed.
#[test]
fn a_newer_history_does_not_mix_with_the_recovered_one() {
    let mut pool = Pool::new(3);
    pool.expect_errors(&["the pool was recovered on server"]);
    pool.volume("v", 3, &THREE);
    let mount = pool.mount("v");
    fs::write(mount.path("common"), "x").unwrap();
    pool.kill(2);
    for i in 0..30 {
        fs::write(mount.path(&format!("lost{i}")), files::noise(i, 3000)).unwrap();
    }
    fs::write(mount.path("common"), "newer").unwrap();
    mount.end();
    pool.kill(0);
    pool.kill(1);
    let done = recover(&pool, 2, &["--yes"]).ok();
    assert!(done.contains("is lost"), "{done}");
    // The old majority is back first, and goes on as ever until it hears of the recovered server.
    pool.start(0);
    pool.start(1);
    let old = pool.servers[0].address.clone();
    eventually("the old pool is up", || {
        (pool.cli_at(&old, "volume set v user.note old").code == Some(0)).then_some(())
    });
    pool.start(2);
    pool.await_end(0);
    pool.await_end(1);
    assert!(!pool.ok("config export").contains("user.note"), "what the old pool agreed on is gone");
    pool.ok("volume set v cluster.quorum-type none");
    let mount = pool.mount("v");
    eventually("it takes changes", || fs::write(mount.path("recovered"), "r").ok());
    for i in 0..10 {
        fs::write(mount.path(&format!("new{i}")), files::noise(i + 50, 3000)).unwrap();
    }
    for i in [0, 1] {
        let why = pool.try_start(i).unwrap_err();
        assert!(why.contains("empty this folder"), "{why}");
        fs::remove_dir_all(pool.servers[i].state()).unwrap();
        pool.start(i);
        let host = pool.servers[i].host.clone();
        pool.cli_at(&pool.servers[2].address, &format!("peer replace {host}")).ok();
    }
    pool.wait_in_sync();
    same_bricks(&pool, "v", &THREE);
    let names = files::names(&mount.dir);
    assert_eq!(names.len(), 12, "{names:?}");
    assert_eq!(fs::read(mount.path("common")).unwrap(), b"x");
    mount.end();
}
