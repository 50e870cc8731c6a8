//! The same attacks on a pool that has keys, by somebody who has one, or had one, or has watched somebody who has.

use crate::attacks::{descriptors, frame, many_descriptors, reach_from, resident, works};
use crate::harness::{Mounted, Pool, alone, eventually};
use crate::raw::{Raw, channel_of};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trust::Channel;
use wire::Kind;
use wire::hello::{HelloReply, Purpose};

/// A pool with a mount, and a key that an attacker has got.
fn pool(words: &[&str]) -> (Pool, Mounted, PathBuf) {
    let mut pool = Pool::new(1);
    if !words.is_empty() {
        pool.stop(0);
        pool.try_start_with(0, words).unwrap();
    }
    pool.volume("v", 1, &[(0, "b")]);
    let (mounted, key) = (pool.mount("v"), pool.client_key("web", "v", ""));
    (pool, mounted, key)
}

fn session(pool: &Pool, from: &str, key: &Path, connection: u64) -> Option<(Raw, HelloReply)> {
    let stream = reach_from(pool, from);
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    Raw::over(stream, Some(channel_of(key)), Purpose::Session { shard: 1, connection, oldest: 0 }, 0)
}

/// Each address has its share, and all together have a bound, beside which whoever comes then is served.
#[test]
fn memory_of_all_clients_together_is_bounded() {
    const ALLOWED: u64 = 256;
    let _alone = alone();
    let (pool, m, key) = pool(&["--client-memory", "256MiB"]);
    let before = resident(&pool);
    let whole = frame(Kind::Call, &[0; 60], &vec![0; 2 << 20]);
    let (part, _) = whole.split_at(whole.len() - 1);
    let mut all = Vec::new();
    for connection in 0..198 {
        let from = format!("127.66.6.{}:0", 10 + connection / 33);
        let (mut raw, _) = session(&pool, &from, &key, connection + 1).expect("an answer");
        let taken = raw.put(part);
        all.push((raw, taken));
    }
    works(&m, "beside unfinished frames of many addresses");
    let (grown, taken) = (resident(&pool).saturating_sub(before), all.iter().filter(|(_, t)| *t).count());
    println!("198 unfinished frames of 2 MiB from 6 addresses: {taken} taken, {grown} MB");
    assert!(taken > 60, "{taken} frames were taken: it was no attack");
    assert!(grown < ALLOWED + 100, "{grown} MB for unfinished frames");
}

#[test]
fn five_thousand_idle_connections_with_a_key() {
    let _alone = alone();
    many_descriptors();
    let (pool, m, key) = pool(&[]);
    let before = resident(&pool);
    let half_open: Vec<TcpStream> = (0..500).map(|_| reach_from(&pool, "127.66.6.6:0")).collect();
    works(&m, "beside half-open connections");
    drop(half_open);
    let (mut idle, mut refused) = (Vec::new(), 0);
    for connection in 1..=5000 {
        match session(&pool, "127.66.6.6:0", &key, connection) {
            Some((raw, reply)) if reply.refused.0.is_empty() => idle.push(raw),
            Some((_, reply)) => {
                let why = String::from_utf8_lossy(&reply.refused.0).into_owned();
                assert!(why.contains("127.66.6.6 has 2048 connections"), "{why}");
                refused += 1;
            }
            None => refused += 1,
        }
    }
    works(&m, "beside idle connections");
    let grown = resident(&pool).saturating_sub(before);
    println!("{} idle connections with a key, {refused} refused: {grown} MB", idle.len());
    assert!(idle.len() <= 2048 && refused >= 2952, "{} connections", idle.len());
    assert!(grown < 400, "{grown} MB for idle connections");
    drop(idle);
    eventually("its connections are forgotten", || (descriptors(&pool) < 200).then_some(()));
}

/// All that a client says in its handshake and after it, as somebody between the two sees it.
fn watched(pool: &Pool, key: &Path) -> Vec<u8> {
    let (mut stream, mut channel) = (reach_from(pool, "127.66.6.6:0"), channel_of(key));
    let mut said = Vec::new();
    let mut send = |channel: &mut Channel, stream: &mut TcpStream| {
        channel
            .send(|parts| {
                let n = stream.write_vectored(parts)?;
                let all: Vec<u8> = parts.iter().flat_map(|p| p.iter().copied()).collect();
                said.extend_from_slice(&all[..n]);
                Ok(n)
            })
            .unwrap();
    };
    while channel.is_shaking_hands() {
        send(&mut channel, &mut stream);
        let n = stream.read(channel.room()).unwrap();
        channel.received(n);
        while channel.is_shaking_hands() && channel.process().unwrap() {}
    }
    send(&mut channel, &mut stream);
    said
}

/// What somebody said once is worth nothing when it is said again, nor is a part of it, nor what comes a byte at a time.
#[test]
fn replayed_cut_and_slow_handshakes_lead_nowhere() {
    let _alone = alone();
    let (pool, m, key) = pool(&[]);
    let said = watched(&pool, &key);
    assert!(said.len() > 500, "{} bytes of a handshake with a certificate", said.len());
    let ended = |mut stream: TcpStream| {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let since = Instant::now();
        let mut answer = Vec::new();
        // Also a connection that is reset has ended.
        let _reset = stream.read_to_end(&mut answer);
        since.elapsed()
    };
    let mut replayed = reach_from(&pool, "127.66.6.6:0");
    replayed.write_all(&said).unwrap();
    let took = ended(replayed);
    assert!(took < Duration::from_secs(5), "a replayed handshake ends at once: {took:?}");
    let cut: Vec<TcpStream> = (1..32)
        .map(|n| {
            let mut stream = reach_from(&pool, "127.66.6.6:0");
            stream.write_all(&said[..said.len() * n / 32]).unwrap();
            stream
        })
        .collect();
    let slow = reach_from(&pool, "127.66.6.7:0");
    let mut drips = slow.try_clone().unwrap();
    let bytes = said.clone();
    let dripping = std::thread::spawn(move || {
        bytes.iter().take_while(|b| drips.write_all(&[**b]).is_ok()).for_each(|_| {
            std::thread::sleep(Duration::from_millis(50));
        });
    });
    works(&m, "beside handshakes that do not end");
    let took = ended(slow);
    assert!((5..15).contains(&took.as_secs()), "a handshake of a byte at a time has 10 s: {took:?}");
    dripping.join().unwrap();
    assert!(cut.into_iter().all(|stream| ended(stream) < Duration::from_secs(15)));
    works(&m, "after handshakes that did not end");
}
