//! Pools that let nobody in without a key: what each key is good for, and what happens to those without.

use crate::harness::{Pool, alone, eventually, eventually_ok};
use crate::raw::Raw;
use ids::{Epoch, Fid, OpId, SessionId, SetId};
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::codec::Blob;
use wire::hello::Purpose;
use wire::{Call, Errno, Fail, Frame, Kind, Op, Reply, Wire};

pub(crate) const CONTROL: Purpose = Purpose::Control;
pub(crate) const PEER: Purpose = Purpose::Peer { shard: 1 };

fn session() -> Purpose {
    Purpose::Session { shard: 1, connection: 1, oldest: 0 }
}

/// The words with which a hello is refused; empty: it is not.
pub(crate) fn refusal(address: &str, key: Option<&Path>, purpose: Purpose, from: u64) -> String {
    match Raw::hello(address, key, purpose, from) {
        None => "no word".to_owned(),
        Some((_, reply)) => String::from_utf8(reply.refused.0).unwrap(),
    }
}

/// Whether a frame of that kind and first byte is answered.
fn is_answered(address: &str, key: Option<&Path>, kind: Kind, body: &[u8]) -> bool {
    let (mut raw, reply) = Raw::hello(address, key, CONTROL, 0).expect("a hello is answered");
    assert_eq!(reply.refused.0, b"");
    raw.send(&Frame::new(kind, 2, body.to_vec()));
    raw.receive().is_some()
}

/// Each role's frames from each other role.
#[test]
fn nobody_gets_more_than_his_key_is_for() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    pool.volume("w", 1, &[(0, "w")]);
    let client = pool.client_key("web", "v", "");
    let admin = pool.dir.join("ann.key");
    pool.ok(&format!("pool key ann --out {}", admin.display()));
    let server = pool.servers[1].state().join("keys/server");
    let at = &pool.servers[0].address;
    let wrong_key = "this key is not for that";
    for (key, purpose, from, words) in [
        (None, CONTROL, 0, "encrypted connections only"),
        (None, session(), 0, "encrypted connections only"),
        (None, PEER, 2, "encrypted connections only"),
        (Some(&client), PEER, 0, wrong_key),
        (Some(&client), PEER, 2, wrong_key),
        (Some(&client), CONTROL, 2, wrong_key),
        (Some(&client), session(), 2, wrong_key),
        (Some(&admin), PEER, 2, wrong_key),
        (Some(&admin), session(), 0, wrong_key),
        (Some(&server), PEER, 1, wrong_key),
        (Some(&server), PEER, 0, wrong_key),
        (Some(&server), CONTROL, 1, wrong_key),
        (Some(&server), PEER, 2, ""),
        (Some(&client), session(), 0, ""),
        (Some(&admin), CONTROL, 0, ""),
    ] {
        let refused = refusal(at, key.map(|k| k.as_path()), purpose.clone(), from);
        let as_wanted = if words.is_empty() { refused.is_empty() } else { refused.contains(words) };
        assert!(as_wanted, "{key:?} {purpose:?} from {from}: {refused:?}");
    }
    let admin_frame = admin::encode_request(admin::Ask::into_request(admin::VolumeList {}));
    let server_frame = b"\0{\"cluster\":\"identify\"}".to_vec();
    let raft_frame = b"\x01{}".to_vec();
    let join_frame = b"\x03{}".to_vec();
    let mut watch = vec![];
    wire::map::Watch { volume: Blob(b"v".to_vec()) }.put(&mut watch);
    for (body, kind, of) in [
        (&admin_frame, Kind::Control, [false, true, false]),
        (&server_frame, Kind::Control, [false, false, true]),
        (&raft_frame, Kind::Control, [false, false, true]),
        (&join_frame, Kind::Control, [false, false, false]),
        (&watch, Kind::Watch, [true, true, true]),
    ] {
        let answered = [&client, &admin, &server].map(|key| is_answered(at, Some(key), kind, body));
        assert_eq!(answered, of, "client, admin, server: {kind:?} {:?}", body.first());
    }
    // A client watches its own volume only.
    let (mut raw, _) = Raw::hello(at, Some(&client), CONTROL, 0).unwrap();
    let mut other = vec![];
    wire::map::Watch { volume: Blob(b"w".to_vec()) }.put(&mut other);
    raw.send(&Frame::new(Kind::Watch, 1, other));
    let said = String::from_utf8_lossy(&raw.receive().unwrap()).into_owned();
    assert!(said.contains("it is for another volume"), "{said}");
    // Commands from elsewhere need an administrator's key.
    let elsewhere = |words: &str| {
        let mut command = crate::harness::mortar_elsewhere();
        command.args(["--server", at]).args(words.split(' '));
        crate::harness::run(command)
    };
    elsewhere(&format!("--key {} volume list", admin.display())).ok();
    elsewhere(&format!("--key {} volume set v network.ping-timeout 5s", admin.display())).ok();
    let events = pool.ok("events");
    assert!(events.contains(": ann at 127."), "{events}");
    assert!(!events.contains("BEGIN"), "a secret is told: {events}");
    elsewhere("volume list").refused_with(&["encrypted connections only"]);
    elsewhere(&format!("--key {} volume list", client.display()))
        .refused_with(&["it is the client web's, for mounts", "mortar pool key"]);
    elsewhere(&format!("--key {} pool secure --yes", admin.display()))
        .refused_with(&["run this there as root"]);
}

/// What is done under the name of another session's request would count as done for that one, which is never done then.
#[test]
fn a_client_names_its_changes_after_its_own_session() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let (key, at) = (pool.client_key("web", "v", ""), &pool.servers[0].address);
    let mut raw = Raw::hello(at, Some(&key), session(), 0).unwrap().0;
    let mut ask = |session: u64, op: Op| {
        let id = OpId { session: SessionId(session), seq: 1 };
        // No epoch is that one: nothing is done in any case.
        let call = Call { set: SetId(1), epoch: Epoch(u32::MAX), id, finished: 0, op };
        raw.send(&Frame::new(Kind::Call, 2, call.to_bytes()));
        Reply::from_bytes(&raw.receive().unwrap()).unwrap().0
    };
    let fid = Fid::root(SetId(1));
    let unlink = Op::Unlink { parent: fid, name: wire::Name::new(b"f").unwrap() };
    let refused = Err(Fail::from(Errno::EPERM));
    assert_ne!(ask(4711, unlink.clone()), refused);
    assert_eq!(ask(4712, unlink), refused);
    assert_ne!(ask(4712, Op::GetAttr { fid }), refused, "what changes nothing has no name");
}

/// A key of another pool, and one that was made by nobody.
#[test]
fn foreign_keys_do_not_get_through_the_handshake() {
    let pool = Pool::new(1);
    let other = Pool::new(1);
    for p in [&pool, &other] {
        p.volume("v", 1, &[(0, "b")]);
    }
    let foreign = other.client_key("web", "v", "");
    let at = &pool.servers[0].address;
    assert_eq!(refusal(at, Some(&foreign), CONTROL, 0), "no word");
    assert_eq!(refusal(at, Some(&other.servers[0].state().join("keys/server")), PEER, 1), "no word");
    // Half a handshake, and what is no handshake at all.
    for bytes in [&b"\x16\x03\x01"[..], b"\x16", &[0x16; 5000], b"GET / HTTP/1.0\r\n\r\n"] {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(bytes).unwrap();
        drop(stream);
    }
    pool.mount("v").end();
}

#[test]
fn a_mount_with_a_key_does_what_the_key_says() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mounted = pool.mount("v");
    fs::write(mounted.path("f"), vec![7; 3 << 20]).unwrap();
    assert_eq!(fs::read(mounted.path("f")).unwrap(), vec![7; 3 << 20]);
    // What the client itself does not refuse the server does.
    let key = pool.client_key("reader", "v", "--read-only");
    let reader = pool.mount_key("v", &key);
    assert_eq!(fs::read(reader.path("f")).unwrap().len(), 3 << 20);
    let refused = fs::write(reader.path("g"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(30), "{refused}");
    assert_eq!(fs::remove_file(reader.path("f")).unwrap_err().raw_os_error(), Some(30));
    let list = pool.json("client list");
    let line = list["keys"].as_array().unwrap().iter().find(|k| k["name"] == "reader").unwrap().clone();
    assert_eq!((&line["volume"], &line["read_only"]), (&"v".into(), &true.into()));
    reader.end();
    // Another volume is not to be had with it.
    pool.volume("w", 1, &[(0, "w")]);
    let dir = pool.dir.join("no");
    fs::create_dir(&dir).unwrap();
    let mut command = crate::harness::mortar();
    command.args(["mount", &pool.source("w")]).arg(&dir).arg("-o").arg(format!("key={}", key.display()));
    crate::harness::run(command).refused_with(&["it is for another volume"]);
    mounted.end();
}

#[test]
fn a_revoked_key_is_of_no_use_a_second_later() {
    let _alone = alone();
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let staying = pool.mount("v");
    let key = pool.client_key("web", "v", "");
    let mounted = pool.mount_with_key("v", &key, &["-o", "soft=1"]);
    fs::write(mounted.path("f"), "x").unwrap();
    let open = |key: &Path| -> Vec<Raw> {
        let purposes = [CONTROL, session()];
        let all = pool.servers.iter().flat_map(|s| purposes.clone().map(|p| (s, p)));
        all.map(|(s, purpose)| Raw::hello(&s.address, Some(key), purpose, 0).unwrap().0).collect()
    };
    let idle = open(&key);
    pool.ok("client revoke web --yes");
    let since = Instant::now();
    assert!(idle.into_iter().all(|mut raw| raw.receive().is_none()));
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    eventually("the mount is of no use", || {
        fs::metadata(mounted.path(&format!("n{}", since.elapsed().as_nanos())))
            .err()
            .filter(|e| e.kind() != ErrorKind::NotFound)
    });
    // It waits for a second by itself, as it was mounted so.
    assert!(since.elapsed() < Duration::from_millis(2500), "{:?}", since.elapsed());
    for server in &pool.servers {
        let refused = refusal(&server.address, Some(&key), session(), 0);
        assert!(refused.contains("revoked or expired"), "{refused}");
    }
    fs::write(staying.path("g"), "y").unwrap();
    pool.cli("client revoke web --yes").refused_with(&["there is no key"]);
    // One that expires.
    let made = Instant::now();
    let short = pool.client_key("short", "v", "--expires 2s");
    let idle = open(&short);
    assert!(made.elapsed() < Duration::from_secs(2), "too slow a machine: {:?}", made.elapsed());
    assert!(idle.into_iter().all(|mut raw| raw.receive().is_none()));
    // It is good until the end of the last second.
    assert!(made.elapsed() < Duration::from_secs(4), "{:?}", made.elapsed());
    let short = pool.client_key("shorter", "v", "--expires 3s");
    let expiring = pool.mount_with_key("v", &short, &["-o", "soft=1"]);
    eventually("it ends", || {
        fs::metadata(expiring.path(&format!("n{}", since.elapsed().as_nanos())))
            .err()
            .filter(|e| e.kind() != ErrorKind::NotFound)
    });
    staying.end();
}

/// How many TCP connections of a process lead to one of another. Of one that ended its side there is nothing any more.
fn connections(from: u32, to: u32) -> usize {
    let rows = fs::read_to_string(format!("/proc/{from}/net/tcp")).unwrap();
    let inodes = |process: u32| -> Vec<String> {
        let folder = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
        let names = folder.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
        let names = names.map(|name| name.to_string_lossy().into_owned());
        names.filter_map(|n| Some(n.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())).collect()
    };
    let ends = |process| -> Vec<(String, String)> {
        let own = inodes(process);
        let rows = rows.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        let rows = rows.filter(|row| own.iter().any(|inode| inode == row[9]));
        rows.map(|row| (row[1].to_owned(), row[2].to_owned())).collect()
    };
    let there = ends(to);
    ends(from).into_iter().filter(|(local, remote)| there.contains(&(remote.clone(), local.clone()))).count()
}

/// Whether it has heard of it or not.
#[test]
fn connections_to_and_from_a_detached_server_end() {
    let _alone = alone();
    let mut pool = Pool::new(4);
    pool.volume("v", 2, &[(0, "b"), (2, "b")]);
    pool.volume("w", 2, &[(0, "c"), (3, "c")]);
    let (v, w) = (pool.mount("v"), pool.mount("w"));
    fs::write(v.path("f"), "x").unwrap();
    fs::write(w.path("f"), "x").unwrap();
    for (volume, brick, from) in [("v", "b", 2), ("w", "c", 3)] {
        let [from, to] = [from, 1].map(|i| pool.servers[i].brick(brick));
        pool.ok(&format!("volume replace-brick {volume} {from} {to}"));
        eventually("the new brick is healed", || {
            let status = pool.status(volume);
            status["bricks"].as_array().unwrap().iter().all(|b| b["in_sync"] == true).then_some(())
        });
    }
    v.end();
    w.end();
    let pids: Vec<u32> = pool.servers.iter().map(crate::harness::Server::pid).collect();
    let between = |gone: usize| -> usize {
        let stay = || pids.iter().take(2);
        stay().map(|pid| connections(*pid, pids[gone])).sum::<usize>()
    };
    assert!(between(2) > 0 && between(3) > 0);
    let key = pool.client_key("web", "v", "");
    let mut of_client = Raw::hello(&pool.servers[2].address, Some(&key), session(), 0).unwrap().0;
    let ended = |gone: usize| {
        let since = Instant::now();
        eventually("all connections end", || (between(gone) == 0).then_some(()));
        assert!(since.elapsed() < Duration::from_secs(1), "server {gone}: {:?}", since.elapsed());
    };
    pool.ok(&format!("peer detach {} --yes", pool.servers[2].host));
    ended(2);
    assert!(of_client.receive().is_none(), "a client of the pool that the server has left");
    // This one hears nothing.
    pool.freeze(3);
    pool.ok(&format!("peer detach {} --yes --force", pool.servers[3].host));
    ended(3);
    pool.thaw(3);
    pool.kill(3);
}

#[test]
fn a_rotated_key_is_read_without_mounting_anew() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let key = pool.client_key("web", "v", "");
    let mounted = pool.mount_key("v", &key);
    fs::write(mounted.path("f"), "x").unwrap();
    pool.ok(&format!("client rotate web --after 1s --out {}", key.display()));
    let keys = || {
        let list = pool.json("client list");
        list["keys"].as_array().unwrap().iter().filter(|k| k["name"] == "web").count()
    };
    assert_eq!(keys(), 2);
    eventually("the old one ends", || (keys() == 1).then_some(()));
    for i in 0..10 {
        fs::write(mounted.path(&format!("f{i}")), "x").unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    mounted.end();
}

/// Nobody who works on the volume notices that all servers get other keys, some times over.
#[test]
fn servers_get_other_keys_while_a_mount_works() {
    let _alone = alone();
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let mounted = pool.mount("v");
    let old: Vec<PathBuf> = (0..3)
        .map(|i| {
            let copy = pool.dir.join(format!("old{i}"));
            fs::copy(pool.servers[i].state().join("keys/server"), &copy).unwrap();
            copy
        })
        .collect();
    let ends = AtomicBool::new(false);
    let (calls, longest) = std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let (mut calls, mut longest) = (0_u32, Duration::ZERO);
            while !ends.load(Ordering::Relaxed) {
                let (begun, file) = (Instant::now(), mounted.path(&format!("f{}", calls % 10)));
                let text = vec![b'x'; 100_000 + calls as usize];
                fs::write(&file, &text).unwrap();
                fs::File::open(&file).unwrap().sync_all().unwrap();
                assert_eq!(fs::read(&file).unwrap(), text);
                fs::rename(&file, mounted.path("there")).unwrap();
                calls += 1;
                longest = longest.max(begun.elapsed());
            }
            (calls, longest)
        });
        let mut said = vec![pool.cli(&format!("pool rotate-key {}", pool.servers[2].host))];
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(700));
            said.push(pool.cli("pool rotate-key"));
        }
        std::thread::sleep(Duration::from_secs(1));
        ends.store(true, Ordering::Relaxed);
        for (said, servers) in said.into_iter().zip([1, 3, 3, 3]) {
            let said = said.ok();
            assert_eq!(said.matches("has another key, number ").count(), servers, "{said}");
        }
        work.join().unwrap()
    });
    println!("{calls} rounds of five calls, the longest {longest:?}");
    assert!(calls > 20 && longest < Duration::from_secs(3), "{calls} rounds, the longest {longest:?}");
    for (i, old) in old.iter().enumerate() {
        let number = u64::try_from(i + 1).unwrap();
        for server in &pool.servers {
            let refused = refusal(&server.address, Some(old), PEER, number);
            assert!(refused.contains("revoked or expired"), "{refused}");
            let new = pool.servers[i].state().join("keys/server");
            assert_eq!(refusal(&server.address, Some(&new), PEER, number), "");
        }
    }
    let list = pool.json("client list");
    let of_servers = list["keys"].as_array().unwrap().iter().filter(|k| k["role"] == "server").count();
    assert_eq!(of_servers, 3, "{list}");
    // They start with them, and one that is away is named.
    pool.stop(1);
    let host = pool.servers[1].host.clone();
    pool.cli("pool rotate-key").refused_with(&[&host]);
    pool.start(1);
    pool.wait_in_sync();
    fs::write(mounted.path("after"), "x").unwrap();
    mounted.end();
}

#[test]
fn a_server_joins_with_a_token_and_takes_anothers_place() {
    let mut pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mounted = pool.mount("v");
    fs::write(mounted.path("f"), "before").unwrap();
    let token = pool.ok("pool token");
    let token = token.trim().to_owned();
    let third = pool.one_more();
    let (secret, at) = token.split_once('@').unwrap();
    let (rest, last) = secret.split_at(secret.len() - 1);
    let wrong = format!("{rest}{}@{at}", if last == "0" { "1" } else { "0" });
    let refused = pool.try_start_with(third, &["--join", &wrong]).unwrap_err();
    assert!(refused.contains("the token"), "{refused}");
    pool.try_start_with(third, &["--join", &token]).unwrap();
    pool.wait_in_sync();
    // It is good once.
    let fourth = pool.one_more();
    let refused = pool.try_start_with(fourth, &["--join", &token]).unwrap_err();
    assert!(refused.contains("unknown, spent or expired"), "{refused}");
    pool.servers.pop();
    // Started anew as it was started first.
    pool.stop(third);
    pool.try_start_with(third, &["--join", &token]).unwrap();
    pool.wait_in_sync();
    // A server that lost all it had.
    pool.kill(1);
    fs::write(mounted.path("g"), "while it was away").unwrap();
    fs::remove_dir_all(pool.servers[1].state()).unwrap();
    let old = pool.servers[1].host.clone();
    pool.cli(&format!("peer replace {old}")).refused_with(&["start a server with an empty state folder"]);
    let token = pool.ok(&format!("pool token --replace {old}"));
    pool.try_start_with(1, &["--join", token.trim()]).unwrap();
    pool.wait_in_sync();
    eventually_ok("its brick is healed", || {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array().unwrap();
        if bricks.iter().all(|b| b["in_sync"] == true) { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(fs::read(pool.servers[1].path("b").join("g")).unwrap(), b"while it was away");
    mounted.end();
}

#[test]
fn a_secured_pool_stays_secured() {
    let mut pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mounted = pool.mount("v");
    for i in [0, 1] {
        pool.stop(i);
        pool.start(i);
        pool.wait_in_sync();
        let refused = refusal(&pool.servers[i].address, None, CONTROL, 0);
        assert!(refused.contains("encrypted connections only"), "{refused}");
    }
    fs::write(mounted.path("f"), "x").unwrap();
    pool.cli("pool secure").refused_with(&["--yes"]);
    assert_eq!(pool.ok("pool secure --yes"), "the pool is secured already: nothing to do\n");
    let doctor = pool.cli("doctor");
    assert!(!doctor.stdout.contains("not answer"), "{}{}", doctor.stdout, doctor.stderr);
    // Without its keys a server does not start, instead of letting anybody in.
    pool.stop(1);
    let keys = pool.servers[1].state().join("keys");
    fs::rename(&keys, pool.servers[1].state().join("gone")).unwrap();
    let refused = pool.try_start(1).unwrap_err();
    assert!(refused.contains("restore the folder from a backup"), "{refused}");
    fs::rename(pool.servers[1].state().join("gone"), &keys).unwrap();
    pool.start(1);
    pool.wait_in_sync();
    for (name, mode) in [("keys", 0o700), ("keys/server", 0o600), ("keys/authority", 0o600)] {
        let about = fs::metadata(pool.servers[1].state().join(name)).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o777, mode, "{name}");
    }
    // Failover. Of two servers the first one votes.
    pool.kill(1);
    fs::write(mounted.path("g"), "y").unwrap();
    pool.start(1);
    pool.wait_in_sync();
    mounted.end();
}

/// Root of this machine needs neither a token nor a fingerprint: the new server's local socket is proof enough.
#[test]
fn servers_of_this_machine_are_probed_without_a_token() {
    let mut pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mounted = pool.mount("v");
    fs::write(mounted.path("f"), "before").unwrap();
    let third = pool.one_more();
    pool.start(third);
    let probe = format!("peer probe {}", pool.servers[third].address);
    assert!(pool.ok(&probe).contains("is in the pool now, as server 3"));
    assert!(pool.ok(&probe).contains("is in the pool already, as server 3"));
    pool.wait_in_sync();
    let log = pool.servers[third].log();
    assert!(log.contains("followed an invitation") && !log.contains(" WARN "), "nothing was wrong: {log}");
    pool.stop(third);
    pool.start(third);
    pool.wait_in_sync();
    assert!(refusal(&pool.servers[third].address, None, CONTROL, 0).contains("encrypted connections only"));
    // It leaves, and comes again.
    pool.ok(&format!("peer detach {} --yes", pool.servers[third].host));
    assert!(pool.ok(&probe).contains("is in the pool now, as server 4"));
    pool.wait_in_sync();
    // A server that lost all it had.
    pool.kill(1);
    fs::write(mounted.path("g"), "while it was away").unwrap();
    fs::remove_dir_all(pool.servers[1].state()).unwrap();
    pool.start(1);
    eventually("it is another one", || {
        pool.ok("peer status").contains("is not the one that answers").then_some(())
    });
    let of_another = format!("peer probe {}", pool.servers[1].address);
    pool.cli(&of_another).refused_with(&["lost its state folder", "peer replace"]);
    pool.ok(&format!("peer replace {}", pool.servers[1].host));
    pool.wait_in_sync();
    eventually_ok("its brick is healed", || {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array().unwrap();
        if bricks.iter().all(|b| b["in_sync"] == true) { Ok(()) } else { Err(status.to_string()) }
    });
    assert_eq!(fs::read(pool.servers[1].path("b").join("g")).unwrap(), b"while it was away");
    mounted.end();
}

/// From another machine the fingerprint has to be confirmed, and the server has to wait for it.
#[test]
fn a_server_of_another_machine_is_probed_with_its_fingerprint() {
    let mut pool = Pool::new(1);
    let other = pool.one_more();
    pool.servers[other].elsewhere = true;
    pool.start(other);
    let log = pool.servers[other].log();
    let fingerprint = log.split("fingerprint ").nth(1).unwrap().split_whitespace().next().unwrap();
    let probe = format!("peer probe {}", pool.servers[other].address);
    pool.cli(&probe).refused_with(&["shows fingerprint", fingerprint, "--fingerprint"]);
    pool.cli(&format!("{probe} --yes")).refused_with(&["shows fingerprint"]);
    let confirmed = format!("{probe} --fingerprint {fingerprint}");
    pool.cli(&confirmed).refused_with(&["no invitation over the network", "--invite"]);
    pool.stop(other);
    pool.try_start_with(other, &["--invite"]).unwrap();
    let wrong = format!("{probe} --fingerprint {}", "0".repeat(64));
    pool.cli(&wrong).refused_with(&["does not have the fingerprint"]);
    pool.cli(&format!("{probe} --fingerprint abc")).refused_with(&["64 hex digits"]);
    pool.ok(&confirmed);
    pool.wait_in_sync();
    // It is not alone any more.
    assert!(pool.ok(&probe).contains("already"));
    let taken = pool.one_more();
    pool.start(taken);
    let thief = pool.servers[taken].address.clone();
    pool.cli_at(&thief, &confirmed).refused_with(&["does not have the fingerprint"]);
    pool.stop(taken);
    pool.servers.pop();
    pool.wait_in_sync();
}

/// A command in the test's own network, without a key.
fn bare(server: &str, line: &str) -> crate::harness::Output {
    let mut command = crate::harness::mortar();
    command.args(["--server", server]).args(line.split(' '));
    crate::harness::run(command)
}

#[test]
fn root_on_the_machine_of_a_server_needs_no_key() {
    let mut pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mounted = pool.mount("v");
    fs::write(mounted.path("f"), "x").unwrap();
    let again = pool.mount("v");
    assert_eq!(fs::read(again.path("f")).unwrap(), b"x");
    let roots = || {
        let list = pool.json("client list");
        let all = list["keys"].as_array().unwrap().clone();
        let names = all.iter().map(|k| k["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("root.")).collect::<Vec<_>>()
    };
    assert_eq!(roots(), ["root.server1.volume1"], "two mounts share one");
    again.end();
    bare(&pool.servers[1].address, "volume list").ok();
    assert_eq!(roots().len(), 1, "a local socket needs none");
    // As on another machine.
    let dir = pool.dir.join("no");
    fs::create_dir(&dir).unwrap();
    let mut command = crate::harness::mortar_elsewhere();
    command.args(["mount", &pool.source("v")]).arg(&dir);
    crate::harness::run(command).refused_with(&["encrypted connections only"]);
    let mut command = crate::harness::mortar();
    command.args(["mount", &pool.source("w")]).arg(&dir);
    crate::harness::run(command).refused_with(&["w"]);
    // One server of the pool runs on this machine, and another one is meant.
    pool.stop(1);
    pool.servers[1].elsewhere = true;
    pool.start(1);
    pool.wait_in_sync();
    let there = pool.servers[1].address.clone();
    let status: serde_json::Value = serde_json::from_str(&bare(&there, "peer status --json").ok()).unwrap();
    assert_eq!(status["me"], 2);
    let by_other = pool.mount_from(&format!("{there}:/v"));
    assert_eq!(fs::read(by_other.path("f")).unwrap(), b"x");
    by_other.end();
    mounted.end();
    // It can be taken away like others, and is given again to whoever is root.
    pool.ok("client revoke root.server1.volume1 --yes");
    let anew = pool.mount("v");
    assert_eq!(fs::read(anew.path("f")).unwrap(), b"x");
    anew.end();
}

/// The key of a mount that brought none is one server's: it may be revoked, and the server may leave the pool.
#[test]
fn a_mount_of_root_goes_on_when_its_key_is_refused() {
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &[(1, "b"), (2, "b")]);
    let mounted = pool.mount("v");
    let mut file = fs::File::create(mounted.path("f")).unwrap();
    file.write_all(b"a").unwrap();
    let keys = |pool: &Pool| {
        let all = pool.json("client list")["keys"].as_array().unwrap().clone();
        let names = all.iter().map(|k| k["name"].as_str().unwrap().to_owned());
        names.filter(|name| name.starts_with("root.") && name.contains("volume")).collect::<Vec<_>>()
    };
    assert_eq!(keys(&pool), ["root.server1.volume1"]);
    pool.ok("client revoke root.server1.volume1 --yes");
    // The file that is open stays so.
    file.write_all(b"b").unwrap();
    let (host, other) = (pool.servers[0].host.clone(), pool.servers[1].address.clone());
    pool.cli_at(&other, &format!("peer detach {host} --yes")).ok();
    file.write_all(b"c").unwrap();
    drop(file);
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"abc");
    // A first mount asks the servers that it names, until one of them knows the volume.
    let again = pool.mount("v");
    assert_eq!(fs::read(again.path("f")).unwrap(), b"abc");
    again.end();
    mounted.end();
    pool.stop(0);
    pool.servers.remove(0);
    let names = keys(&pool);
    assert!(names.iter().all(|name| name != "root.server1.volume1") && !names.is_empty(), "{names:?}");
    pool.cli("client add root.server9 --volume v").refused_with(&["root.server9", "servers give such names"]);
}

#[test]
fn network_namespaces_of_a_machine_share_the_sockets() {
    let pool = Pool::in_network(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mounted = pool.mount("v");
    fs::write(mounted.path("f"), "x").unwrap();
    mounted.end();
    pool.network.as_ref().unwrap().isolate(0);
    bare(&pool.servers[0].address, "pool list").ok();
    pool.cli_on(1, &format!("--server {} pool list", pool.servers[0].address)).ok();
    pool.network.as_ref().unwrap().repair();
}

/// A pool of a version that made no keys goes on as it is, and is secured when somebody wants it.
#[test]
fn a_pool_of_before_has_no_keys_until_it_is_secured() {
    let mut pool = Pool::plain(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mounted = pool.mount("v");
    fs::write(mounted.path("f"), "x").unwrap();
    mounted.end();
    assert_eq!(refusal(&pool.servers[0].address, None, CONTROL, 0), "");
    pool.stop(1);
    pool.start(1);
    pool.wait_in_sync();
    assert_eq!(refusal(&pool.servers[1].address, None, CONTROL, 0), "");
    let third = pool.one_more();
    pool.start(third);
    let probe = format!("peer probe {}", pool.servers[third].address);
    pool.cli(&probe).refused_with(&["this pool has none", "pool secure"]);
    pool.cli("pool secure").refused_with(&["--yes"]);
    assert!(pool.ok("pool secure --yes").contains("fingerprint"));
    pool.ok(&probe);
    pool.wait_in_sync();
    for server in &pool.servers {
        assert!(refusal(&server.address, None, CONTROL, 0).contains("encrypted connections only"));
    }
    let events = pool.ok("events");
    assert!(events.contains("pool-secure"), "{events}");
    let mounted = pool.mount("v");
    assert_eq!(fs::read(mounted.path("f")).unwrap(), b"x");
    mounted.end();
}

/// A server that leaves a pool without keys is a pool of its own that has some.
#[test]
fn who_leaves_a_pool_without_keys_has_some() {
    let pool = Pool::plain(2);
    pool.ok(&format!("peer detach {} --yes", pool.servers[1].host));
    let at = &pool.servers[1].address;
    eventually("it is secured", || {
        refusal(at, None, CONTROL, 0).contains("encrypted connections only").then_some(())
    });
    assert_eq!(refusal(&pool.servers[0].address, None, CONTROL, 0), "");
}

/// A first start that was interrupted at any moment ends with keys, too.
#[test]
fn a_first_start_that_was_interrupted_is_ended() {
    let mut pool = Pool::new(1);
    pool.stop(0);
    let state = pool.servers[0].state();
    for gone in ["secured", "store/pool.redb"] {
        fs::remove_file(state.join("secured")).unwrap();
        let _lost = fs::remove_file(state.join(gone));
        pool.start(0);
        assert!(refusal(&pool.servers[0].address, None, CONTROL, 0).contains("encrypted connections only"));
        pool.volume("v", 1, &[(0, gone.split('/').next().unwrap())]);
        pool.mount("v").end();
        pool.ok("volume stop v --yes");
        pool.ok("volume delete v --yes");
        pool.stop(0);
    }
}
