//! Whoever reaches the port sends what he likes: servers live on, their memory and logs stay bounded, and a mount beside it
//! notices nothing. Attackers have an address of their own, as they would have, and most have got a client's key. Attacks on
//! the encryption itself are in [`crate::attacks_with_keys`].

use crate::frames::Frames;
use crate::harness::{Mounted, Pool, alone, eventually};
use crate::raw::{Raw, channel_of};
use ids::{OpId, ServerId, SessionId};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trust::{Channel, JoinToken, joining_config};
use wire::codec::Blob;
use wire::frame::{HEAD, VERSIONS, encode_head};
use wire::hello::{Hello, HelloReply, Purpose};
use wire::map::Watch;
use wire::{Call, Errno, Fail, Frame, Kind, Name, Op, Wire};

/// Where attackers come from.
const ATTACKER: &str = "127.66.6.6:0";
/// What a mount's call may take while others attack, on a machine where other tests run.
const PAUSE: Duration = Duration::from_secs(2);

/// A connection from the attacker's address.
fn reach(pool: &Pool) -> TcpStream {
    reach_from(pool, ATTACKER)
}

pub(crate) fn reach_from(pool: &Pool, from: &str) -> TcpStream {
    let to: SocketAddr = pool.servers[0].address.parse().unwrap();
    let from: SocketAddr = from.parse().unwrap();
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &from).unwrap();
    connect(&fd, &to).unwrap();
    let stream = TcpStream::from(fd);
    // Each answer would wait for the other side to acknowledge what was sent before.
    stream.set_nodelay(true).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

pub(crate) fn frame(kind: Kind, body: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut all = encode_head(kind, 1, body, payload).to_vec();
    all.extend_from_slice(body);
    all.extend_from_slice(payload);
    all
}

/// A handshake over a connection that is not encrypted, and what the server says to it.
fn shake(stream: &mut TcpStream, purpose: Purpose, session: u64) -> std::io::Result<HelloReply> {
    let hello = Hello {
        versions: Blob(VERSIONS.to_vec()),
        purpose,
        pool: [0; 16],
        from: ServerId(0),
        session: SessionId(session),
    };
    stream.write_all(&frame(Kind::Hello, &hello.to_bytes(), &[]))?;
    let mut head = [0; HEAD];
    stream.read_exact(&mut head)?;
    let mut reply = vec![0; wire::FrameHead::decode(&head).unwrap().body_len];
    stream.read_exact(&mut reply)?;
    Ok(HelloReply::from_bytes(&reply).unwrap())
}

/// A connection of somebody who has that key, after its handshake.
fn shaken(pool: &Pool, key: &Path, purpose: Purpose) -> Raw {
    let (raw, reply) = Raw::over(reach(pool), Some(channel_of(key)), purpose, 0).expect("an answer");
    assert_eq!(reply.refused.0, b"");
    raw
}

fn session(pool: &Pool, key: &Path, connection: u64) -> Raw {
    shaken(pool, key, Purpose::Session { shard: 1, connection, oldest: 0 })
}

/// Megabytes that a server has in memory.
pub(crate) fn resident(pool: &Pool) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", pool.servers[0].pid())).unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

pub(crate) fn descriptors(pool: &Pool) -> usize {
    fs::read_dir(format!("/proc/{}/fd", pool.servers[0].pid())).unwrap().count()
}

/// The mount works, and no call takes long.
pub(crate) fn works(m: &Mounted, what: &str) {
    for i in 0..20 {
        let begun = Instant::now();
        let file = m.path(&format!("f{i}"));
        fs::write(&file, what).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), what);
        fs::remove_file(&file).unwrap();
        assert!(begun.elapsed() < PAUSE, "{what}: {:?}", begun.elapsed());
    }
}

/// A pool with a mount, and a client's key that an attacker has got.
fn pool() -> (Pool, Mounted, PathBuf) {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let (m, key) = (pool.mount("v"), pool.client_key("evil", "v", ""));
    (pool, m, key)
}

/// Descriptors for this process, which plays many clients.
pub(crate) fn many_descriptors() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

#[test]
fn sizes_out_of_all_bounds_are_answered() {
    let _alone = alone();
    let (pool, m, key) = pool();
    fs::write(m.path("big"), vec![1; 3 << 20]).unwrap();
    let mut client = Frames::with_key(&pool, "v", 71, &key);
    let mut on = client.connect();
    let found = client.ask(&mut on, &client.call(0, client.lookup("big")), &[]).unwrap();
    let wire::Body::Attr { attr } = found else { panic!("{found:?}") };
    for len in [u32::MAX, 16 << 20, (2 << 20) + 1] {
        let read = client.call(0, Op::Read { fid: attr.fid, offset: 0, len });
        client.ask(&mut on, &read, &[]).expect("as much as one answer holds");
    }
    let name = Name::new(b"user.x").unwrap();
    let far = [
        (Op::Write { fid: attr.fid, offset: u64::MAX, append: false, kill_suid: false }, vec![1]),
        (Op::Write { fid: attr.fid, offset: i64::MAX as u64, append: false, kill_suid: false }, vec![1]),
        (Op::SetXattr { fid: attr.fid, name, flags: 0 }, vec![1; 70_000]),
        (Op::Fallocate { fid: attr.fid, mode: 0, offset: u64::MAX, len: u64::MAX }, Vec::new()),
    ];
    for (seq, (op, payload)) in (10..).zip(far) {
        let said = format!("{op:?}");
        let answer = client.ask(&mut on, &client.call(seq, op), &payload);
        assert!(
            matches!(answer, Err(Errno::EINVAL | Errno::EFBIG | Errno::ERANGE | Errno(7))),
            "{said}: {answer:?}"
        );
    }
    works(&m, "after sizes out of all bounds");
}

/// What the size of a frame may be depends on who sends it, and nothing waits for what never comes.
#[test]
fn frames_that_do_not_end_cost_little() {
    let _alone = alone();
    let (pool, m, key) = pool();
    let before = resident(&pool);
    let call = Call {
        set: ids::SetId(1),
        epoch: ids::Epoch(1),
        id: OpId { session: SessionId(4711), seq: 1 },
        finished: 0,
        op: Op::StatFs,
    };
    let mut long = call.to_bytes();
    long.resize(15 << 20, 0);
    let mut refused = session(&pool, &key, 1);
    let _broken = refused.write_all(&frame(Kind::Call, &long, &[]));
    assert_eq!(refused.read(&mut [0; 1]).map_err(|e| e.kind()).unwrap_or(0), 0, "the connection ends");
    // As many as one address may have in memory, and more, all but the last byte of each.
    let whole = frame(Kind::Call, &call.to_bytes(), &vec![0; 2 << 20]);
    let (part, _) = whole.split_at(whole.len() - 1);
    let mut all = Vec::new();
    for connection in 2..90 {
        let mut stream = session(&pool, &key, connection);
        stream.set_timeouts(Duration::from_secs(5), Duration::from_millis(50));
        let _waits = stream.write_all(part);
        all.push(stream);
    }
    works(&m, "beside frames that do not end");
    let grown = resident(&pool).saturating_sub(before);
    println!("88 unfinished frames of 2 MiB: {grown} MB");
    assert!(grown < 120, "{grown} MB for unfinished frames");
}

/// Requests whose answers nobody takes.
#[test]
fn who_never_reads_is_not_written_for() {
    let _alone = alone();
    let (pool, m, key) = pool();
    fs::write(m.path("big"), vec![1; 4 << 20]).unwrap();
    let mut client = Frames::with_key(&pool, "v", 71, &key);
    let mut on = client.connect();
    let found = client.ask(&mut on, &client.call(0, client.lookup("big")), &[]).unwrap();
    let wire::Body::Attr { attr } = found else { panic!("{found:?}") };
    let before = resident(&pool);
    let read = client.call(0, Op::Read { fid: attr.fid, offset: 0, len: 1 << 20 });
    let read = frame(Kind::Call, &read.to_bytes(), &[]);
    let mut all = Vec::new();
    for connection in 1..20 {
        let mut stream = session(&pool, &key, connection);
        stream.set_timeouts(Duration::from_secs(5), Duration::from_millis(100));
        for _ in 0..200 {
            if stream.write_all(&read).is_err() {
                break;
            }
        }
        all.push(stream);
    }
    works(&m, "beside answers that nobody takes");
    let grown = resident(&pool).saturating_sub(before);
    println!("3,800 answers of 1 MiB that nobody takes: {grown} MB");
    assert!(grown < 160, "{grown} MB for answers");
}

/// Refusals are answers, too.
#[test]
fn who_never_reads_is_not_refused_without_end() {
    let _alone = alone();
    let (pool, m, key) = pool();
    let before = resident(&pool);
    let mut stream = session(&pool, &key, 1);
    stream.set_timeouts(Duration::from_secs(5), Duration::from_secs(1));
    let many = frame(Kind::Call, &[0xff; 60], &[]).repeat(500);
    let taken = (0..6000).take_while(|_| stream.write_all(&many).is_ok()).count();
    assert!(taken < 6000, "3,000,000 bad requests were taken");
    works(&m, "beside refusals that nobody takes");
    let watch = frame(Kind::Watch, &Watch { volume: Blob(b"none".to_vec()) }.to_bytes(), &[]).repeat(500);
    let mut watching = shaken(&pool, &key, Purpose::Control);
    let taken = (0..6000).take_while(|_| watching.write_all(&watch).is_ok()).count();
    assert!(taken < 6000, "3,000,000 watches were taken");
    let grown = resident(&pool).saturating_sub(before);
    println!("refusals that nobody takes: {grown} MB");
    assert!(grown < 160, "{grown} MB for refusals");
}

/// In a pool without keys, as those of before are, where a connection costs less: the same of one with keys is
/// [`crate::attacks_with_keys`]'s.
#[test]
fn thousands_of_idle_connections_are_refused_in_time() {
    let _alone = alone();
    many_descriptors();
    let pool = Pool::plain(1);
    pool.volume("v", 1, &[(0, "b")]);
    let m = pool.mount("v");
    let before = resident(&pool);
    let half_open: Vec<TcpStream> = (0..500).map(|_| reach(&pool)).collect();
    works(&m, "beside half-open connections");
    drop(half_open);
    let mut idle = Vec::new();
    let mut refused = 0;
    for connection in 1..5000 {
        let mut stream = reach(&pool);
        let purpose = Purpose::Session { shard: 1, connection, oldest: 0 };
        let Ok(reply) = shake(&mut stream, purpose, 666) else {
            refused += 1;
            continue;
        };
        if reply.refused.0.is_empty() {
            idle.push(stream);
        } else {
            let why = String::from_utf8_lossy(&reply.refused.0).into_owned();
            assert!(why.contains("127.66.6.6 has 2048 connections"), "{why}");
            refused += 1;
        }
    }
    works(&m, "beside idle connections");
    let grown = resident(&pool).saturating_sub(before);
    println!("{} idle connections, {refused} refused: {grown} MB", idle.len());
    assert!(idle.len() <= 2048 && refused > 2000, "{} connections", idle.len());
    assert!(grown < 250, "{grown} MB for idle connections");
    drop(idle);
    eventually("its connections are forgotten", || (descriptors(&pool) < 200).then_some(()));
}

/// Those who have shown no key: a pool that has keys lets them say hello, for tokens to join.
#[test]
fn without_a_key_there_is_little_room_time_and_few_tries() {
    let _alone = alone();
    many_descriptors();
    let mut pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let m = pool.mount("v");
    let token = pool.ok("pool token").trim().to_owned();
    let fingerprint = JoinToken::parse(token.split('@').next().unwrap(), 0).unwrap().authority();
    let hello = |from: &str| -> (Raw, String) {
        let channel = Channel::client(joining_config(fingerprint).unwrap()).unwrap();
        let stream = reach_from(&pool, from);
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let (raw, reply) = Raw::over(stream, Some(channel), Purpose::Control, 0).expect("an answer");
        (raw, String::from_utf8(reply.refused.0).unwrap())
    };
    let before = (resident(&pool), descriptors(&pool));
    // One address.
    let mut own: Vec<Raw> = (0..16)
        .map(|_| hello(ATTACKER))
        .map(|(raw, refused)| {
            assert_eq!(refused, "");
            raw
        })
        .collect();
    let (_, refused) = hello(ATTACKER);
    assert!(refused.contains("127.66.6.6 has 16 connections without a key"), "{refused}");
    let begun = Instant::now();
    // Many.
    let others: Vec<Raw> =
        (1..60).flat_map(|n| [(); 8].map(|()| hello(&format!("127.66.7.{n}:0")).0)).collect();
    let open = descriptors(&pool) - before.1;
    assert!(open < 160, "{open} connections of {}", others.len());
    assert!(own[0].receive().is_none(), "the oldest gave way");
    works(&m, "beside many without a key");
    let grown = resident(&pool).saturating_sub(before.0);
    println!("{} connections without a key: {grown} MB", others.len() + own.len());
    assert!(grown < 60, "{grown} MB");
    drop(others);
    // Who asks for nothing is ended.
    let (mut idle, _) = hello("127.66.8.8:0");
    let since = Instant::now();
    assert!(idle.receive().is_none());
    assert!((8..15).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
    assert!(own.iter_mut().all(|raw| raw.receive().is_none()), "after {:?}", begun.elapsed());
    // Guesses.
    let guess = format!(
        "\x03{{\"token\":2,\"secret\":\"{}\",\"public\":\"{}\",\"server\":{{\"identity\":\"{}\",\
         \"host\":\"h\",\"address\":\"h:1\"}}}}",
        "0".repeat(32),
        "0".repeat(64),
        "0".repeat(32)
    );
    let answers: Vec<String> = (0..4)
        .flat_map(|_| {
            let (mut raw, _) = hello(ATTACKER);
            [(); 10].map(|()| {
                raw.send(&Frame::new(Kind::Control, 2, guess.clone().into_bytes()));
                String::from_utf8(raw.receive().expect("an answer")).unwrap()
            })
        })
        .collect();
    let looked_at = answers.iter().filter(|a| a.contains("unknown, spent or expired")).count();
    let refused = answers.iter().filter(|a| a.contains("too many tries to join from 127.66.6.6")).count();
    assert!((10..14).contains(&looked_at) && looked_at + refused == 40, "{answers:?}");
    // Somebody else joins meanwhile.
    let second = pool.one_more();
    pool.try_start_with(second, &["--join", &token]).unwrap();
    pool.wait_in_sync();
    works(&m, "after guesses");
}

#[test]
fn watches_end_with_their_connection() {
    let _alone = alone();
    let (pool, m, key) = pool();
    let before = descriptors(&pool);
    for _ in 0..50 {
        let mut stream = shaken(&pool, &key, Purpose::Control);
        for volume in [&b"v"[..], b"none", &[b'\n'; 60_000]] {
            let watch = Watch { volume: Blob(volume.to_vec()) };
            stream.write_all(&frame(Kind::Watch, &watch.to_bytes(), &[])).unwrap();
        }
        let mut head = [0; HEAD];
        stream.read_exact(&mut head).expect("the map");
        // A frame that is none ends the connection at once.
        stream.write_all(&[7; HEAD]).unwrap();
    }
    eventually("its descriptors are closed", || (descriptors(&pool) < before + 10).then_some(()));
    works(&m, "after watches");
}

/// A volume's name of 16 MiB came back in an error that was no frame any more.
#[test]
fn an_answer_is_never_longer_than_a_frame() {
    let _alone = alone();
    let (pool, m, _) = pool();
    // An administrator may ask for more than a client.
    let key = pool.dir.join("ann.key");
    pool.ok(&format!("pool key ann --out {}", key.display()));
    let mut stream = shaken(&pool, &key, Purpose::Control);
    let mut watch = Watch { volume: Blob(vec![b'v'; (16 << 20) - 4]) }.to_bytes();
    watch.truncate(16 << 20);
    stream.write_all(&frame(Kind::Watch, &watch, &[])).unwrap();
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).unwrap();
    assert!(wire::FrameHead::decode(&head).unwrap().body_len < 1000);
    let mut body = vec![admin::TAG];
    body.resize(16 << 20, b'[');
    stream.read_exact(&mut vec![0; wire::FrameHead::decode(&head).unwrap().body_len]).unwrap();
    stream.write_all(&frame(Kind::Control, &body, &[])).unwrap();
    stream.read_exact(&mut head).unwrap();
    works(&m, "after a volume's name of 16 MiB");
}

/// Each bad request is a line of the log.
#[test]
fn complaints_do_not_fill_the_log() {
    let _alone = alone();
    let (pool, m, key) = pool();
    let before = pool.servers[0].log().len();
    let mut stream = session(&pool, &key, 1);
    let mut bad = frame(Kind::Call, &[0xff; 60], &[]);
    bad.truncate(HEAD + 60);
    let many: Vec<u8> = bad.iter().copied().cycle().take(bad.len() * 500).collect();
    let mut answer = vec![0; 1 << 16];
    stream.set_timeouts(Duration::from_millis(1), Duration::from_secs(5));
    for _ in 0..40 {
        stream.write_all(&many).unwrap();
        loop {
            match stream.read(&mut answer) {
                Ok(0) => panic!("the connection ended"),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
                Err(e) => panic!("{e}"),
            }
        }
    }
    works(&m, "after bad requests");
    let grown = pool.servers[0].log().len() - before;
    println!("20,000 bad requests: {grown} bytes of log");
    assert!(grown < 200_000, "{grown} bytes of log");
    assert!(pool.servers[0].log().contains("request of session"));
}

/// Requests that say they are another set's, from somebody who is none.
#[test]
fn paths_of_any_depth_are_refused() {
    let _alone = alone();
    let (pool, m, key) = pool();
    let mut client = Frames::with_key(&pool, "v", 71, &key);
    let mut on = client.connect();
    let ancestor = wire::op::Ancestor {
        fid: client.root(),
        home: ids::SetId(1),
        name: Name::new(&[b'n'; 255]).unwrap(),
    };
    let name = Name::new(b"deep").unwrap();
    let path = vec![ancestor; 800];
    let call = client.call(9, Op::PrepareMkdir { path, name, mode: 0o755, uid: 0, gid: 0 });
    let answer = if on.request(&call, &[]) { on.answer() } else { None };
    assert!(matches!(answer, None | Some(Err(Fail::Errno { .. }))), "{answer:?}");
    works(&m, "after a path of 800 directories");
}
