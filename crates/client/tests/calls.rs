//! The client against servers that answer by script.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fake::{Act, Fake, map};
use client::wait::{self, Wake};
use client::{Client, ConnectError, NewEntry, Object, Options, Payload, Span};
use ids::{Epoch, Fid, Lsn, OpId, SetId, Time};
use wire::op::{Node, SetAttr};
use wire::{Attr, Body, Call, Errno, Fail, Name, Op, Reply};

fn fid(set: u32, lsn: u64) -> Fid {
    Fid { set: SetId(set), epoch: Epoch(1), lsn: Lsn(lsn) }
}

fn object(set: u32, lsn: u64) -> Object {
    Object { fid: fid(set, lsn), home: SetId(set) }
}

fn attr(fid: Fid) -> Attr {
    let t = Time::default();
    Attr {
        fid,
        home: fid.set,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size: 5,
        blocks: 8,
        atime: t,
        mtime: t,
        ctime: t,
    }
}

/// Answers like an ordinary server.
fn fine(call: &Call, payload: &[u8]) -> Act {
    Act::Answer(Reply(Ok(match &call.op {
        Op::GetAttr { fid } | Op::SetAttr { fid, .. } => Body::Attr { attr: attr(*fid) },
        Op::GetAttrs { fids } => Body::Attrs { attrs: fids.iter().map(|fid| attr(*fid)).collect() },
        Op::Lookup { .. } | Op::Create { .. } => Body::Attr { attr: attr(fid(call.set.0, 77)) },
        Op::Write { fid, .. } => Body::Written { len: payload.len() as u32, attr: attr(*fid) },
        Op::Read { len, .. } => return Act::Data(Reply(Ok(Body::Data)), vec![b'x'; *len as usize]),
        _ => Body::Done,
    })))
}

fn options() -> Options {
    Options { network_timeout: Duration::from_millis(300), ..Options::default() }
}

fn connect(server: &Fake) -> Client {
    Client::connect(std::slice::from_ref(&server.address), "vol", options()).unwrap()
}

fn one(script: impl Fn(&Call, &[u8]) -> Act + Send + Sync + 'static) -> (Fake, Client) {
    let s = Fake::start(1, script);
    s.push(&map(1, &[(1, 1, Some(1)), (2, 1, Some(1))], &[&s]));
    let c = connect(&s);
    (s, c)
}

fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn data_lands_in_the_callers_memory_and_errors_come_through() {
    let (s, c) = one(|call, payload| match &call.op {
        Op::Read { offset: 99, .. } => Act::Answer(Reply::errno(5)),
        Op::Read { offset: 7, .. } => Act::Data(Reply(Ok(Body::Data)), b"abc".to_vec()),
        Op::ReadDir { .. } => {
            let entry = |i: u64| wire::reply::DirEntry {
                name: Name::new(format!("entry-{i}").as_bytes()).unwrap(),
                fid: fid(1, i),
                home: SetId(1),
                kind: 0o100_000,
                cookie: i,
                attr: Some(attr(fid(1, i))),
            };
            Act::Answer(Reply(Ok(Body::Page { entries: (1..2000).map(entry).collect(), end: true })))
        }
        _ => fine(call, payload),
    });
    let mut buf = vec![0; 1 << 20];
    let mut into = Payload::lent(&mut buf);
    c.read(object(1, 5), 0, 1 << 20, &mut into).unwrap();
    assert!(into.len() == 1 << 20 && into.iter().all(|b| *b == b'x'));
    c.read(object(2, 5), 7, 100, &mut into).unwrap();
    assert_eq!(&*into, b"abc");
    assert_eq!(c.read(object(1, 5), 99, 10, &mut into), Err(Errno::EIO));
    let mut small = [0; 10];
    assert_eq!(c.read_dir(object(1, 1), 0, true).unwrap().entries.len(), 1999);
    let data = vec![3; 1 << 20];
    assert_eq!(c.write(object(1, 5), Span::default(), &data).unwrap().0, 1 << 20);
    assert_eq!(s.payloads().last().unwrap(), &data);
    c.read(object(1, 5), 0, 10, &mut Payload::lent(&mut small)).unwrap();
    assert_eq!(small, [b'x'; 10]);
    // One connection per shard, used again and again.
    assert!(s.connections() <= 3, "{}", s.connections());
    let stats = c.stats().snapshot();
    assert_eq!(stats.iter().find(|s| s.name == "read").map(|s| (s.count, s.errors)), Some((4, 1)));
}

#[test]
fn a_sync_tells_of_a_loss_once() {
    let (s, c) = one(fine);
    let [lost, kept] = [object(1, 5), object(1, 6)];
    c.write(lost, Span::default(), b"gone").unwrap();
    c.write(kept, Span::default(), b"there").unwrap();
    c.fsync(kept).unwrap();
    let mut after = map(2, &[(1, 4, Some(1)), (2, 1, Some(1))], &[&s]);
    after.sets[0].lost_before = Epoch(3);
    s.push(&after);
    wait_until("the map is known", || c.map().version == 2);
    assert_eq!(c.sync(), Err(Errno::EIO));
    assert_eq!(c.sync(), Ok(()));
    assert_eq!(c.fsync(kept), Ok(()));
    assert_eq!(c.fsync(lost), Err(Errno::EIO));
    assert_eq!(c.fsync(lost), Ok(()));
    c.write(lost, Span::default(), b"again").unwrap();
    assert_eq!(c.fsync(lost), Ok(()));
}

#[test]
fn a_broken_connection_is_no_error_and_the_change_keeps_its_name() {
    let broken = AtomicUsize::new(0);
    let (s, c) = one(move |call, payload| match &call.op {
        Op::SetAttr { .. } if broken.fetch_add(1, Ordering::SeqCst) < 3 => Act::Break,
        _ => fine(call, payload),
    });
    c.getattr(object(1, 3)).unwrap();
    let set = SetAttr {
        mode: Some(0o600),
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        kill_suid: false,
    };
    c.setattr(object(1, 3), set).unwrap();
    let ids: Vec<OpId> = s.calls().iter().filter(|c| c.op.changes()).map(|c| c.id).collect();
    assert_eq!(ids, vec![OpId { session: c.session(), seq: 1 }; 4]);
    assert_ne!(c.session().0, 0);
}

/// What was sent and not answered may still lie on its connection: the server hears first that it is given up.
#[test]
fn a_change_is_sent_again_on_a_connection_that_ends_the_older_ones() {
    let broken = AtomicUsize::new(0);
    let (s, c) = one(move |call, payload| match &call.op {
        Op::Unlink { .. } if broken.fetch_add(1, Ordering::SeqCst) < 2 => Act::Break,
        _ => fine(call, payload),
    });
    c.getattr(object(1, 3)).unwrap();
    c.getattr(object(2, 3)).unwrap();
    let before = s.hellos();
    c.unlink(c.root(), Name::new(b"a").unwrap()).unwrap();
    c.getattr(object(2, 3)).unwrap();
    let hellos = s.hellos();
    let (old, new) = hellos.split_at(before.len());
    let newest = old.iter().map(|(number, _)| *number).max().unwrap();
    assert!(new.len() >= 2 && new.iter().all(|(_, oldest)| *oldest > newest), "{hellos:?}");
    assert!(new[1].1 > new[0].0, "the second sending ends the connection of the first: {hellos:?}");
    let connections = s.connections();
    c.unlink(c.root(), Name::new(b"a").unwrap()).unwrap();
    assert_eq!(s.connections(), connections, "what is answered gives nothing up");
}

/// Nobody waits for an interrupted change any more: it must not be done at some later time.
#[test]
fn an_interrupted_change_gives_its_connection_up() {
    let (s, c) = one(|call, payload| match &call.op {
        Op::Unlink { .. } => Act::Freeze,
        _ => fine(call, payload),
    });
    c.getattr(object(1, 3)).unwrap();
    let result = wait::with_hook(
        |fd, timeout| match wait::plain(fd, timeout.map(|t| t.min(Duration::from_millis(50))))? {
            Wake::TimedOut => Ok(Wake::Interrupted),
            other => Ok(other),
        },
        || c.unlink(c.root(), Name::new(b"a").unwrap()),
    );
    assert_eq!(result, Err(Errno::EINTR));
    c.getattr(object(1, 3)).unwrap();
    let hellos = s.hellos();
    assert!(hellos.last().unwrap().1 > hellos[0].0, "{hellos:?}");
}

#[test]
fn wrong_view_waits_for_the_next_map_and_numbers_are_finished() {
    let second = Fake::start(2, fine);
    let first = Fake::start(1, |call, payload| match &call.op {
        Op::Create { .. } => Act::Answer(Reply(Err(Fail::WrongView { epoch: Epoch(2) }))),
        _ => fine(call, payload),
    });
    let before = map(1, &[(1, 1, Some(1))], &[&first, &second]);
    first.push(&before);
    second.push(&before);
    let c = Arc::new(connect(&first));
    c.write(object(1, 2), Span::default(), b"1").unwrap();
    let new =
        NewEntry { name: Name::new(b"a").unwrap(), node: Node::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let caller = Arc::clone(&c);
    let call = std::thread::spawn(move || caller.create(caller.root(), new));
    wait_until("refused several times", || first.calls().len() > 3);
    first.push(&map(2, &[(1, 2, Some(2))], &[&first, &second]));
    call.join().unwrap().unwrap();
    c.write(object(1, 2), Span::default(), b"2").unwrap();
    let seen: Vec<_> = second.calls().iter().map(|c| (c.id.seq, c.finished, c.epoch.0)).collect();
    assert_eq!(seen, [(2, 1, 2), (3, 2, 2)]);
    assert!(first.calls().iter().skip(1).all(|c| (c.id.seq, c.finished) == (2, 1)));
}

#[test]
fn a_frozen_server_is_left_when_the_map_says_so() {
    let second = Fake::start(2, fine);
    let first = Fake::start(1, |_, _| Act::Freeze);
    let maps = Fake::start(3, fine);
    let all = [&first, &second, &maps];
    maps.push(&map(1, &[(1, 1, Some(1))], &all));
    let patient = Options { network_timeout: Duration::from_secs(60), ..options() };
    let c = Arc::new(Client::connect(std::slice::from_ref(&maps.address), "vol", patient).unwrap());
    let caller = Arc::clone(&c);
    let call = std::thread::spawn(move || caller.getattr(object(1, 2)));
    wait_until("asked", || first.calls().len() == 1 || first.connections() > 1);
    maps.push(&map(2, &[(1, 2, Some(2))], &all));
    call.join().unwrap().unwrap();
}

#[test]
fn a_frozen_server_is_asked_again_after_the_timeout() {
    let (s, c) = one(fine);
    c.getattr(object(1, 2)).unwrap();
    s.freeze();
    let second = Fake::start(2, fine);
    let caller = std::thread::spawn(move || {
        c.getattr(object(1, 2)).unwrap();
        c
    });
    std::thread::sleep(Duration::from_millis(700));
    s.push(&map(2, &[(1, 2, Some(2)), (2, 2, Some(2))], &[&s, &second]));
    caller.join().unwrap();
    assert_eq!(second.calls().len(), 1);
}

#[test]
fn a_slow_server_that_answers_handshakes_is_not_given_up() {
    let (s, c) = one(|call, payload| {
        if matches!(call.op, Op::Fsync { .. }) {
            std::thread::sleep(Duration::from_millis(900));
        }
        fine(call, payload)
    });
    c.fsync(object(1, 2)).unwrap();
    assert_eq!(s.calls().len(), 1, "sent once");
}

#[test]
fn the_watch_moves_to_another_server() {
    let first = Fake::start(1, fine);
    let second = Fake::start(2, fine);
    let all = [&first, &second];
    first.push(&map(1, &[(1, 1, None)], &all));
    second.push(&map(2, &[(1, 1, Some(2))], &all));
    let c = connect(&first);
    first.freeze();
    first.break_all();
    c.getattr(object(1, 2)).unwrap();
    assert_eq!(c.map().version, 2);
}

#[test]
fn no_primary_is_a_pause_soft_mounts_give_up_and_stop_ends_all() {
    let s = Fake::start(1, fine);
    s.push(&map(1, &[(1, 1, None)], &[&s]));
    let soft = Options { soft: Some(Duration::from_millis(50)), ..options() };
    let c = Client::connect(std::slice::from_ref(&s.address), "vol", soft).unwrap();
    assert_eq!(c.getattr(object(1, 2)), Err(Errno::ETIMEDOUT));
    let c = Arc::new(connect(&s));
    let caller = Arc::clone(&c);
    let call = std::thread::spawn(move || caller.getattr(object(1, 2)));
    std::thread::sleep(Duration::from_millis(50));
    c.stop();
    assert_eq!(call.join().unwrap(), Err(Errno::ESHUTDOWN));
}

#[test]
fn an_interrupt_ends_a_call_that_waits() {
    let (_s, c) = one(|_, _| Act::Freeze);
    let result = wait::with_hook(
        |fd, timeout| match wait::plain(fd, timeout.map(|t| t.min(Duration::from_millis(50))))? {
            Wake::TimedOut => Ok(Wake::Interrupted),
            other => Ok(other),
        },
        || c.getattr(object(1, 2)),
    );
    assert_eq!(result, Err(Errno::EINTR));
}

/// The server may hold the file open for the session, and nobody knows of it any more.
#[test]
fn an_open_that_was_interrupted_is_released() {
    let (s, c) = one(|call, payload| match &call.op {
        Op::Open { .. } => Act::Freeze,
        _ => fine(call, payload),
    });
    let result = wait::with_hook(
        |fd, timeout| match wait::plain(fd, timeout.map(|t| t.min(Duration::from_millis(50))))? {
            Wake::TimedOut => Ok(Wake::Interrupted),
            other => Ok(other),
        },
        || c.open(object(1, 2)),
    );
    assert_eq!(result, Err(Errno::EINTR));
    let released = |call: &Call| call.op == Op::Release { fid: fid(1, 2) };
    wait_until("the file is released", || s.calls().iter().any(released));
    let hellos = s.hellos();
    assert!(hellos.last().unwrap().1 > hellos[0].0, "and no late open comes after that: {hellos:?}");
}

#[test]
fn below_quorum_is_read_only_for_changes() {
    let (_s, c) = one(|call, payload| match call.op.changes() {
        true => Act::Answer(Reply(Err(Fail::BelowQuorum))),
        false => fine(call, payload),
    });
    assert_eq!(c.unlink(c.root(), Name::new(b"a").unwrap()), Err(Errno::EROFS));
    c.getattr(c.root()).unwrap();
}

#[test]
fn busy_is_tried_again_under_the_same_name_eagain_under_a_new_one() {
    let n = AtomicUsize::new(0);
    let (s, c) = one(move |call, payload| match n.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Act::Answer(Reply(Err(Fail::Busy))),
        2 => Act::Answer(Reply::errno(11)),
        _ => fine(call, payload),
    });
    c.unlink(c.root(), Name::new(b"a").unwrap()).unwrap();
    let seqs: Vec<_> = s.calls().iter().map(|c| c.id.seq).collect();
    assert_eq!(seqs, [1, 1, 1, 2]);
}

#[test]
fn opens_are_told_once_and_again_to_a_new_primary() {
    let second = Fake::start(2, fine);
    let first = Fake::start(1, fine);
    let all = [&first, &second];
    first.push(&map(1, &[(1, 1, Some(1))], &all));
    let c = connect(&first);
    let (a, b) = (object(1, 10), object(1, 11));
    for _ in 0..3 {
        c.open(a).unwrap();
    }
    c.open(b).unwrap();
    c.release(a);
    let opens = |s: &Fake| {
        let calls = s.calls();
        calls
            .iter()
            .filter_map(|c| match c.op {
                Op::Open { fid } => Some((true, fid)),
                Op::Release { fid } => Some((false, fid)),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let once: HashSet<_> = opens(&first).into_iter().collect();
    assert_eq!(once, HashSet::from([(true, a.fid), (true, b.fid)]));
    c.release(b);
    wait_until("b is released", || opens(&first).contains(&(false, b.fid)));
    let new =
        NewEntry { name: Name::new(b"a").unwrap(), node: Node::File, mode: 0o644, umask: 0, uid: 0, gid: 0 };
    let made = c.create_open(c.root(), new).unwrap();
    first.push(&map(2, &[(1, 2, Some(2))], &all));
    wait_until("the new primary hears of it", || opens(&second).len() == 2);
    let told: HashSet<_> = opens(&second).into_iter().collect();
    assert_eq!(told, HashSet::from([(true, a.fid), (true, made.fid)]));
    c.release(a);
    c.release(a);
    wait_until("a is released there", || opens(&second).contains(&(false, a.fid)));
    c.open(a).unwrap();
    assert_eq!(opens(&second).last(), Some(&(true, a.fid)));
}

#[test]
fn an_entry_of_another_set_is_followed() {
    let early = Mutex::new(0);
    let (_s, c) = one(move |call, payload| match &call.op {
        Op::Lookup { name, .. } if name.as_bytes() == b"gone" => {
            Act::Answer(Reply(Ok(Body::Elsewhere { fid: fid(2, 1), home: SetId(2), kind: 0o040_000 })))
        }
        Op::Lookup { .. } => {
            Act::Answer(Reply(Ok(Body::Elsewhere { fid: fid(2, 9), home: SetId(2), kind: 0o040_000 })))
        }
        Op::GetAttr { fid } if fid.lsn.0 == 1 => Act::Answer(Reply::errno(116)),
        Op::GetAttr { .. } => {
            let mut early = early.lock().unwrap();
            *early += 1;
            if *early < 3 { Act::Answer(Reply::errno(116)) } else { fine(call, payload) }
        }
        _ => fine(call, payload),
    });
    assert_eq!(c.lookup(c.root(), &Name::new(b"d").unwrap()).unwrap().fid, fid(2, 9));
    assert_eq!(c.lookup(c.root(), &Name::new(b"gone").unwrap()), Err(Errno::ENOENT));
}

#[test]
fn read_only_by_option_of_the_volume() {
    let s = Fake::start(1, fine);
    let mut m = map(1, &[(1, 1, Some(1))], &[&s]);
    m.options.push((wire::codec::Blob(b"features.read-only".to_vec()), wire::codec::Blob(b"on".to_vec())));
    s.push(&m);
    let c = connect(&s);
    assert_eq!(c.option("features.read-only").as_deref(), Some("on"));
    assert_eq!(c.unlink(c.root(), Name::new(b"a").unwrap()), Err(Errno::EROFS));
}

#[test]
fn calls_wait_for_a_volume_that_is_stopped() {
    let (s, c) = one(fine);
    let stop = |version| {
        let mut m = map(version, &[(1, 1, Some(1))], &[&s]);
        m.started = false;
        s.push(&m);
    };
    stop(2);
    wait_until("the map is there", || c.map().version == 2);
    assert!(c.is_volume_stopped());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| c.getattr(object(1, 2)));
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waits.is_finished(), "it waits");
        s.push(&map(3, &[(1, 1, Some(1))], &[&s]));
        waits.join().unwrap().unwrap();
    });
    assert!(!c.is_volume_stopped());
    let soft = Client::connect(
        std::slice::from_ref(&s.address),
        "vol",
        Options { soft: Some(Duration::from_secs(60)), ..options() },
    );
    let soft = soft.unwrap();
    stop(4);
    wait_until("the map is there", || soft.map().version == 4);
    assert_eq!(soft.getattr(object(1, 2)), Err(Errno::ENOTCONN), "at once");
}

#[test]
fn failures_to_connect_say_why() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let fail = |servers: &[String], volume: &str| match Client::connect(servers, volume, options()) {
        Ok(_) => panic!("connected"),
        Err(e) => e,
    };
    let e = fail(std::slice::from_ref(&nobody), "vol");
    assert!(matches!(e, ConnectError::Unreachable(_)) && e.to_string().contains(&nobody), "{e}");
    assert!(e.to_string().contains("refused"), "{e}");
    let s = Fake::start(1, fine);
    let mut m = map(1, &[(1, 1, Some(1))], &[&s]);
    m.started = false;
    s.push(&m);
    let both = [nobody, s.address.clone()];
    assert_eq!(fail(&both, "vol").to_string(), "volume vol is not started: run `mortar volume start vol`");
    assert!(fail(&both, "other").to_string().starts_with("volume other: no such volume"));
    assert_eq!(
        fail(&both, "secret").to_string(),
        format!("server {} says: here are no volumes for you", s.address)
    );
    assert!(matches!(fail(&["a b".to_owned()], "vol"), ConnectError::BadServer(_)));
    assert!(matches!(fail(&[], "vol"), ConnectError::NoServers));
}
