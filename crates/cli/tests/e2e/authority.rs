//! Another authority takes the place of the pool's, which signs all keys.

use crate::harness::{Mounted, Output, Pool, eventually, mortar, run};
use crate::secured::{CONTROL, PEER, refusal};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

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
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let key = pool.client_key("web", "v", "");
    assert!(!pool.ok("client list").contains("AUTHORITY"), "there is but one");
    pool.ok("pool rotate-authority");
    let made = pool.client_key("new", "v", "");
    let working = pool.mount_key("v", &made);
    let list = pool.json("client list");
    let signed_by = |name: &str| {
        let key = list["keys"].as_array().unwrap().iter().find(|k| k["name"] == name);
        key.unwrap_or_else(|| panic!("{name}: {list}"))["authority"].as_str().unwrap().to_owned()
    };
    assert_eq!(["web", "new", &pool.servers[0].host].map(signed_by), ["old", "next", "old"]);
    let shown = pool.ok("client list");
    assert!(shown.lines().any(|l| l.contains("web") && l.trim_end().ends_with("old")), "{shown}");
    let said = pool.ok("pool rotate-authority --finish --force");
    assert!(said.contains("keys that ended: web") && said.trim_end().ends_with("once more): new"), "{said}");
    assert!(!pool.ok("client list").contains("AUTHORITY"));
    // Who mounted with a key that was made in between works on, also on a connection that is made anew.
    fs::write(working.path("g"), "x").unwrap();
    restart(&mut pool, 0);
    eventually("it works on", || fs::write(working.path("g"), "y").ok());
    working.end();
    let at = &pool.servers[0].address;
    assert_eq!(refusal(at, Some(&key), CONTROL, 0), "no word");
    assert_eq!(refusal(at, Some(&made), CONTROL, 0), "");
    let mounted = pool.mount_key("v", &made);
    fs::write(mounted.path("f"), "x").unwrap();
    mounted.end();
    let list = pool.json("client list");
    assert!(list["keys"].as_array().unwrap().iter().all(|k| k["name"] != "web"), "{list}");
}

/// All servers are let in by all with the keys that they have, and so is whoever has this key.
fn all_let_in(pool: &Pool, client: &Path) {
    for (i, server) in pool.servers.iter().enumerate() {
        for (n, at) in pool.servers.iter().enumerate().filter(|(n, _)| *n != i) {
            let number = u64::try_from(i + 1).unwrap();
            // A store that has not heard of the newest key yet says so.
            eventually(&format!("server {n} lets in server {i}"), || {
                refusal(&at.address, Some(&server.state().join("keys/server")), PEER, number)
                    .is_empty()
                    .then_some(())
            });
        }
        assert_eq!(refusal(&server.address, Some(client), CONTROL, 0), "", "the client at server {i}");
    }
}

/// Gives these commands to servers 0 and 1, at the same time.
fn at_once(pool: &Pool, lines: [&str; 2]) -> [Output; 2] {
    let commands = [0, 1].map(|i| {
        let mut command = mortar();
        command.arg("--server").arg(&pool.servers[i].address).args(lines[i].split(' '));
        command
    });
    commands.map(|command| thread::spawn(|| run(command))).map(|said| said.join().unwrap())
}

fn is_refusal(said: &Output) -> bool {
    said.code == Some(1) && said.stderr.lines().count() == 1
}

#[test]
fn servers_to_which_two_administrators_give_other_keys_at_once_have_one() {
    let pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let key = pool.client_key("web", "v", "");
    for round in 0..4 {
        let said = at_once(&pool, ["pool rotate-key"; 2]);
        assert!(said.iter().any(|s| s.code == Some(0)), "{round}: {said:?}");
        all_let_in(&pool, &key);
    }
    pool.ok("pool rotate-key");
    let list = pool.json("client list");
    let servers = list["keys"].as_array().unwrap().iter().filter(|k| k["role"] == "server").count();
    assert_eq!(servers, 3, "{list}");
}

/// Whatever two administrators begin and end at the same time: the pool serves, and one of them gets his authority.
#[test]
fn two_administrators_change_the_authority_at_once() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let (begin, finish) = ("pool rotate-authority", "pool rotate-authority --finish --force");
    let mut key = pool.client_key("web", "v", "");
    for round in 0..3 {
        let said = at_once(&pool, [begin; 2]);
        let begun: BTreeSet<String> =
            said.iter().filter(|s| s.code == Some(0)).map(|s| fingerprint(&s.stdout)).collect();
        assert_eq!(begun.len(), 1, "{round}: {said:?}");
        assert!(said.iter().all(|s| s.code == Some(0) || is_refusal(s)), "{said:?}");
        // Whichever server signs, all believe it.
        for i in 0..3 {
            let new = pool.dir.join(format!("new{round}{i}"));
            let at = &pool.servers[i].address;
            pool.cli_at(at, &format!("client add new{round}{i} --volume v --out {}", new.display())).ok();
            all_let_in(&pool, &new);
            key = new;
        }
        let lines = [[begin, finish], [finish, begin], [finish, finish]][round];
        let said = at_once(&pool, lines);
        assert!(said.iter().all(|s| s.code == Some(0) || is_refusal(s)), "{said:?}");
        all_let_in(&pool, &key);
        eventually("it is ended", || {
            let said = pool.cli(finish);
            (said.code == Some(0) || said.stderr.contains("not being replaced")).then_some(())
        });
        let authorities: BTreeSet<Vec<u8>> =
            (0..3).map(|i| fs::read(keys_of(&pool, i).join("authority")).unwrap()).collect();
        assert_eq!(authorities.len(), 1);
        assert!((0..3).all(|i| !keys_of(&pool, i).join("authority.next").exists()));
        all_let_in(&pool, &key);
    }
    (0..3).for_each(|i| restart(&mut pool, i));
    let mounted = pool.mount_key("v", &key);
    fs::write(mounted.path("f"), "x").unwrap();
    mounted.end();
}

/// One has begun and waits for a server that does not answer; then another one begins, too: he goes on, and not the first.
#[test]
fn of_two_who_begin_to_change_the_authority_the_later_one_goes_on() {
    let mut pool = Pool::new(3);
    pool.volume("v", 1, &[(0, "b")]);
    let next = keys_of(&pool, 1).join("authority.next");
    let begin = |pool: &Pool, i: usize| {
        let mut command = mortar();
        command.arg("--server").arg(&pool.servers[i].address).args(["pool", "rotate-authority"]);
        thread::spawn(|| run(command))
    };
    pool.freeze(2);
    let first = begin(&pool, 0);
    let given = eventually("the first one's is given", || fs::read(&next).ok());
    let second = begin(&pool, 1);
    eventually("the second one's is given", || (fs::read(&next).ok()? != given).then_some(()));
    pool.thaw(2);
    first.join().unwrap().refused_with(&["another administrator"]);
    let begun = second.join().unwrap().ok();
    let now = fs::read(&next).unwrap();
    assert!((0..3).all(|i| fs::read(keys_of(&pool, i).join("authority.next")).unwrap() == now));
    assert_eq!(fingerprint(&pool.ok("pool rotate-authority")), fingerprint(&begun));
    let key = pool.client_key("web", "v", "");
    all_let_in(&pool, &key);
    pool.ok("pool rotate-authority --finish");
    all_let_in(&pool, &key);
}

/// Some servers believe an authority that was never begun with: it signs nothing, no key file names it, and the next
/// beginning, by whomever, puts another one in its place.
#[test]
fn a_beginning_that_failed_half_way_harms_nobody() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    pool.stop(2);
    pool.cli("pool rotate-authority").refused_with(&[&pool.servers[2].host, "do it again"]);
    let given_up = [0, 1].map(|i| fs::read(keys_of(&pool, i).join("authority.next")).unwrap());
    assert_eq!(given_up[0], given_up[1]);
    assert!(!keys_of(&pool, 2).join("authority.next").exists());
    let key = pool.client_key("web", "v", "");
    assert_eq!(
        fs::read_to_string(&key).unwrap().matches("BEGIN CERTIFICATE").count(),
        2,
        "of the pool's alone"
    );
    pool.cli("pool rotate-authority --finish").refused_with(&["not being replaced"]);
    // Servers start with it, and the pool gives out tokens and keys as before.
    restart_with_one_away(&mut pool);
    all_let_in(&pool, &key);
    let token = pool.ok("pool token");
    let fourth = pool.one_more();
    pool.try_start_with(fourth, &["--join", token.trim()]).unwrap();
    pool.wait_in_sync();
    assert!(!keys_of(&pool, fourth).join("authority.next").exists());
    // Another administrator, at a server that has the one that was given up.
    let begun = pool.cli_at(&pool.servers[1].address, "pool rotate-authority").ok();
    for i in 0..4 {
        assert_ne!(fs::read(keys_of(&pool, i).join("authority.next")).unwrap(), given_up[0], "server {i}");
    }
    let mounted = pool.mount("v");
    fs::write(mounted.path("f"), "x").unwrap();
    pool.ok(&format!("client rotate web --after 0s --out {}", key.display()));
    let said = eventually("the old key has ended", || {
        let said = pool.cli("pool rotate-authority --finish");
        (said.code == Some(0)).then_some(said.stdout)
    });
    assert_eq!(fingerprint(said.trim()), fingerprint(&begun));
    all_let_in(&pool, &key);
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x");
    mounted.end();
}

fn restart_with_one_away(pool: &mut Pool) {
    pool.stop(1);
    pool.start(2);
    pool.start(1);
    pool.wait_in_sync();
}
