//! Another authority takes the place of the pool's, which signs all keys.

use crate::harness::{Mounted, Pool, alone, eventually};
use crate::secured::{CONTROL, PEER, refusal};
use std::fs;
use std::path::PathBuf;

fn fingerprint(said: &str) -> String {
    let digits = said.split([' ', ',']).find(|word| word.len() == 64);
    digits.unwrap_or_else(|| panic!("no fingerprint: {said}")).to_owned()
}

/// What one mount writes the other one reads.
fn work(mounts: [&Mounted; 2], name: &str) {
    for (n, [at, other]) in [mounts, [mounts[1], mounts[0]]].into_iter().enumerate() {
        let (name, text) = (format!("{name}{n}"), n.to_string());
        eventually("a write is done", || fs::write(at.path(&name), &text).ok());
        eventually("it is read", || (fs::read_to_string(other.path(&name)).ok()? == text).then_some(()));
    }
}

fn keys_of(pool: &Pool, i: usize) -> PathBuf {
    pool.servers[i].state().join("keys")
}

fn restart(pool: &mut Pool, i: usize) {
    pool.stop(i);
    pool.start(i);
    pool.wait_in_sync();
}

/// Mounts work on all the while, and afterwards nobody believes what the old authority has signed.
#[test]
fn another_authority_takes_the_place_of_the_pools() {
    let _alone = alone();
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let key = pool.client_key("web", "v", "");
    let ann = pool.dir.join("ann.key");
    pool.ok(&format!("pool key ann --out {}", ann.display()));
    let (of_root, of_web) = (pool.mount("v"), pool.mount_key("v", &key));
    work([&of_root, &of_web], "before");
    let [old_server, old_client] = ["old.server", "old.client"].map(|name| pool.dir.join(name));
    fs::copy(keys_of(&pool, 1).join("server"), &old_server).unwrap();
    fs::copy(&key, &old_client).unwrap();
    let old_authority = fs::read(keys_of(&pool, 0).join("authority")).unwrap();
    let old_token = pool.ok("pool token");
    let finish = "pool rotate-authority --finish";
    pool.cli(finish).refused_with(&["not being replaced", "mortar pool rotate-authority"]);

    // One that is away is named, and nothing has begun.
    pool.stop(2);
    pool.cli("pool rotate-authority").refused_with(&[&pool.servers[2].host, "do it again"]);
    pool.cli(finish).refused_with(&["not being replaced"]);
    pool.start(2);
    pool.wait_in_sync();
    let begun = pool.ok("pool rotate-authority");
    assert!(begun.contains("ann, web"), "{begun}");
    assert_eq!(fingerprint(&pool.ok("pool rotate-authority")), fingerprint(&begun), "it goes on");
    pool.cli("pool token").refused_with(&["rotate-authority --finish"]);

    // Both are believed, over a start too, and keys that are made are the new one's.
    restart(&mut pool, 1);
    work([&of_root, &of_web], "both");
    pool.cli(finish).refused_with(&["ann, web", "mortar client rotate"]);
    pool.ok(&format!("client rotate web --after 1s --out {}", key.display()));
    pool.ok(&format!("client rotate ann --after 1s --out {}", ann.display()));
    let left = "keys of the old authority have ended";
    eventually(left, || {
        (pool.json("client list")["keys"].as_array()?.iter().filter(|k| k["name"] == "web").count() == 1)
            .then_some(())
    });
    work([&of_root, &of_web], "anew");
    let ended = eventually(left, || {
        let said = pool.cli(finish);
        (said.code == Some(0)).then_some(said.stdout)
    });
    assert_eq!(fingerprint(ended.trim()), fingerprint(&begun));
    work([&of_root, &of_web], "after");

    for i in 0..3 {
        let (keys, at) = (keys_of(&pool, i), &pool.servers[i].address);
        assert_ne!(fs::read(keys.join("authority")).unwrap(), old_authority);
        assert!(!keys.join("authority.next").exists());
        assert_eq!(refusal(at, Some(&old_server), PEER, 2), "no word");
        assert_eq!(refusal(at, Some(&old_client), CONTROL, 0), "no word");
        assert_eq!(refusal(at, Some(&keys_of(&pool, 1).join("server")), PEER, 2), "");
        assert_eq!(refusal(at, Some(&key), CONTROL, 0), "");
    }
    pool.cli(finish).refused_with(&["not being replaced"]);
    // They start with it, and the pool grows.
    (0..3).for_each(|i| restart(&mut pool, i));
    work([&of_root, &of_web], "started");
    let fourth = pool.one_more();
    pool.try_start_with(fourth, &["--join", old_token.trim()]).unwrap_err();
    let token = pool.ok("pool token");
    pool.try_start_with(fourth, &["--join", token.trim()]).unwrap();
    of_web.end();
    of_root.end();
}

/// Keys that nobody made anew end if an administrator says so.
#[test]
fn keys_of_the_old_authority_can_be_ended() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let key = pool.client_key("web", "v", "");
    pool.ok("pool rotate-authority");
    let made = pool.client_key("new", "v", "");
    let said = pool.ok("pool rotate-authority --finish --force");
    assert!(said.contains("keys that ended: web"), "{said}");
    let at = &pool.servers[0].address;
    assert_eq!(refusal(at, Some(&key), CONTROL, 0), "no word");
    assert_eq!(refusal(at, Some(&made), CONTROL, 0), "");
    let mounted = pool.mount_key("v", &made);
    fs::write(mounted.path("f"), "x").unwrap();
    mounted.end();
    let list = pool.json("client list");
    assert!(list["keys"].as_array().unwrap().iter().all(|k| k["name"] != "web"), "{list}");
}
