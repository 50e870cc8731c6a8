//! What users see of a set: its number in its volume, from 1 on, wherever it is named.

use crate::drain::{await_out, drain_set};
use crate::grow::words;
use crate::harness::web::free_address;
use crate::harness::{Pool, eventually};
use crate::metrics::{metrics, value};
use serde_json::json;
use std::fs;

/// The first set of v, the second of it, and the third.
const SETS: [[(usize, &str); 2]; 3] = [[(0, "v"), (1, "v")], [(2, "v"), (3, "v")], [(2, "w"), (3, "w")]];

/// The texts of all events so far.
fn events(pool: &Pool) -> String {
    pool.ok("events")
}

/// Two volumes, of which v has the third set of the pool; where server 0 tells metrics.
fn two_volumes() -> (Pool, String) {
    let mut pool = Pool::new(4);
    pool.expect_errors(&["is not a brick"]);
    let at = free_address(&pool.servers[0].host);
    pool.stop(0);
    pool.servers[0].words = vec!["--metrics".to_owned(), at.clone()];
    pool.start(0);
    pool.wait_in_sync();
    pool.volume("other", 2, &[(0, "a"), (1, "a"), (2, "a"), (3, "a")]);
    pool.volume("v", 2, &SETS[0]);
    (pool, at)
}

/// The number and the id of each set of a volume.
fn sets(pool: &Pool, volume: &str) -> Vec<(u64, u64)> {
    let info = pool.json(&format!("volume info {volume}"))[0].clone();
    let sets = info["sets"].as_array().unwrap().iter();
    sets.map(|s| (s["number"].as_u64().unwrap(), s["id"].as_u64().unwrap())).collect()
}

#[test]
fn sets_are_counted_from_one_in_each_volume() {
    let (mut pool, at) = two_volumes();
    assert_eq!((sets(&pool, "other"), sets(&pool, "v")), (vec![(1, 1), (2, 2)], vec![(1, 3)]));
    let brick = pool.status("v")["bricks"][0].clone();
    assert_eq!((&brick["set"], &brick["set_number"]), (&json!(3), &json!(1)), "{brick}");
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
    // The second volume's first set is set 1, whoever tells of it.
    for line in ["volume status v", "volume info v", "volume status v queues"] {
        let text = pool.ok(line);
        let row = text.lines().nth(2).unwrap();
        assert!(row.trim_start().starts_with("1 "), "{line}: {text}");
        assert!(!text.contains('#'), "{line}: {text}");
    }
    for line in ["volume status v -o wide", "volume info v -o wide"] {
        let text = pool.ok(line);
        assert!(text.contains("SET ID") && text.contains(" #3"), "{line}: {text}");
    }
    let text = metrics(&at);
    assert_eq!(value(&text, "mortar_set_bricks", &["volume=\"v\"", "set=\"1\""]), 2.0);
    assert!(!text.contains("volume=\"v\",set=\"3\""), "{text}");
    let one = words(&pool, &SETS[0][..1]);
    let of_one = format!("volume remove-brick v {one} start");
    pool.cli(&of_one).refused_with(&["set 1 of volume v has other bricks too"]);

    pool.kill(1);
    fs::write(mount.path("g"), "x").unwrap();
    let doctor = eventually("the doctor finds it", || {
        let text = pool.cli("doctor").stdout;
        text.contains("set 1 of volume v").then_some(text)
    });
    assert!(!doctor.contains("set 3"), "{doctor}");
    assert!(pool.ok("volume status v").contains("note: set 1 "), "{}", pool.ok("volume status v"));
    let happened = events(&pool);
    assert!(happened.contains("volume v set 1: ") && !happened.contains("set 3"), "{happened}");
    pool.start(1);
    pool.wait_in_sync();
    let log = pool.servers[1].log();
    assert!(log.contains("set 1 of volume v: propose") && !log.contains("set 3"), "{log}");
    mount.end();
}

/// A set whose bricks were taken out keeps its number, and the next one gets another.
#[test]
fn a_volume_gives_a_number_once() {
    let (pool, _) = two_volumes();
    let add = |set: &[(usize, &str)]| pool.ok(&format!("volume add-brick v {}", words(&pool, set)));
    let added = pool.json(&format!("volume add-brick v {}", words(&pool, &SETS[1])));
    assert_eq!((&added["sets"], &added["numbers"]), (&json!([4]), &json!([2])), "{added}");
    pool.wait_in_sync();
    drain_set(&pool, &SETS[1], "start");
    assert!(pool.ok("volume info v").contains("cluster.drain = 4 (ids of set 2)"));
    eventually("nothing more can move", || {
        let now = drain_set(&pool, &SETS[1], "status");
        assert_eq!((&now["set"], &now["set_number"]), (&json!(4), &json!(2)), "{now}");
        (now["moved"]["none_can_move"] == true).then_some(())
    });
    let out = drain_set(&pool, &SETS[1], "commit");
    let goes_to = out["bricks"][0]["goes_to"].as_str().unwrap();
    assert!(goes_to.contains("/v-set2-"), "{goes_to}");
    let old: Vec<String> = SETS[1].iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    await_out(&pool, &old);
    let text = add(&SETS[2]);
    assert!(text.contains("volume v has the new set 3"), "{text}");
    assert_eq!(sets(&pool, "v"), [(1, 3), (2, 4), (3, 5)]);
    let happened = events(&pool);
    for told in ["volume v got set 2", "volume v: cluster.drain is set 2 now", "volume v got set 3"] {
        assert!(happened.contains(told), "{told}: {happened}");
    }
    assert!(!happened.contains("set 4") && !happened.contains("set 5"), "{happened}");
    // After all servers were started anew, too.
    let (mut pool, before) = (pool, ["other", "v"]);
    let known = before.map(|v| sets(&pool, v));
    (0..4).for_each(|s| pool.stop(s));
    (0..4).for_each(|s| pool.start(s));
    assert_eq!(before.map(|v| sets(&pool, v)), known);
}
