//! Bytes through both sides of an encrypted connection, without a socket.
#![allow(
    clippy::unwrap_used,
    clippy::big_endian_bytes,
    reason = "a test that fails says where; TLS has its numbers so"
)]

use crate::handshakes::{authority, client, issue, server};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::{ClientConnection, ConnectionTrafficSecrets};
use std::io::{self, ErrorKind, IoSlice};
use trust::{Channel, client_config, server_config, server_name};

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

/// What one side has for its socket, at most so much.
fn sent(from: &mut Channel, mut most: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let taken = from.send(|parts| {
        let all: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(most).collect();
        most -= all.len();
        bytes.extend_from_slice(&all);
        if all.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { Ok(all.len()) }
    });
    assert!(taken.is_ok() || most == 0);
    bytes
}

/// Gives one side as much as it has room for; what is left.
fn put<'a>(to: &mut Channel, bytes: &'a [u8]) -> &'a [u8] {
    let room = to.room();
    let n = bytes.len().min(room.len());
    assert!(n > 0, "there is room for what may come");
    room[..n].copy_from_slice(&bytes[..n]);
    to.received(n);
    &bytes[n..]
}

fn arrives(to: &mut Channel, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        bytes = put(to, bytes);
        while to.is_shaking_hands() && to.process()? {}
        if !bytes.is_empty() {
            // All that came is opened before there is more room.
            to.has_opened()?;
        }
    }
    Ok(())
}

fn shaken_hands() -> (Channel, Channel) {
    let authority = authority([7; 16]);
    let mut a = Channel::client(client_config(&issue(&authority, client())).unwrap()).unwrap();
    let mut b = Channel::server(server_config(&issue(&authority, server())).unwrap()).unwrap();
    while a.is_shaking_hands() || b.is_shaking_hands() || a.has_unsent() || b.has_unsent() {
        let there = sent(&mut a, usize::MAX);
        arrives(&mut b, &there).unwrap();
        let back = sent(&mut b, usize::MAX);
        arrives(&mut a, &back).unwrap();
    }
    (a, b)
}

/// One direction: what was given to it, and what came out.
#[derive(Default)]
struct Stream {
    sealed: Vec<u8>,
    wire: Vec<u8>,
    opened: Vec<u8>,
}

#[test]
fn all_bytes_come_in_order_whatever_their_pieces() {
    let mut random = Random(1);
    for round in 0..40 {
        let (mut a, mut b) = shaken_hands();
        let (mut there, mut back) = (Stream::default(), Stream::default());
        let large = [10, 5_000, 400_000][round % 3];
        for step in 0..300 {
            let more = step < 200;
            for turn in 0..2 {
                let (from, to, stream) =
                    if turn == 0 { (&mut a, &mut b, &mut there) } else { (&mut b, &mut a, &mut back) };
                if more && random.below(3) == 0 {
                    let parts: Vec<Vec<u8>> = (0..=random.below(4))
                        .map(|_| (0..random.below(large)).map(|n| (n * 7 + step) as u8).collect())
                        .collect();
                    let all = parts.concat();
                    let slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
                    let taken = if all.is_empty() { 0 } else { from.seal(&slices).unwrap() };
                    stream.sealed.extend_from_slice(&all[..taken]);
                }
                let most = if more { random.below(2 * large) } else { usize::MAX };
                stream.wire.extend(sent(from, most));
                let carried = if more { random.below(stream.wire.len() + 1) } else { stream.wire.len() };
                for piece in stream.wire.drain(..carried).collect::<Vec<u8>>().chunks(60_000) {
                    arrives_and_opened(to, piece, &mut stream.opened, &mut random);
                }
            }
        }
        assert_eq!(there.sealed.len(), there.opened.len(), "round {round}");
        assert!(there.sealed == there.opened && back.sealed == back.opened, "round {round}");
        assert!(large == 10 || there.opened.len() > 50_000, "round {round}: much has come");
        a.close();
        let end = sent(&mut a, usize::MAX);
        arrives(&mut b, &end).unwrap();
        assert!(b.has_opened().unwrap() && b.is_ended());
    }
}

fn arrives_and_opened(to: &mut Channel, mut bytes: &[u8], opened: &mut Vec<u8>, random: &mut Random) {
    while !bytes.is_empty() {
        bytes = put(to, bytes);
        loop {
            let most = 1 + random.below(50_000);
            let before = opened.len();
            let n = to.open(most, |bytes| opened.extend_from_slice(bytes)).unwrap();
            assert!(n <= most && opened.len() == before + n);
            if n == 0 {
                assert!(!to.has_opened().unwrap());
                break;
            }
        }
    }
}

/// How long the records are of which this consists.
fn records(mut wire: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    while let Some((head, rest)) = wire.split_at_checked(5) {
        let len = usize::from(u16::from_be_bytes([head[3], head[4]]));
        found.push(len);
        wire = &rest[len..];
    }
    assert!(wire.is_empty());
    found
}

#[test]
fn small_parts_share_a_record_and_large_ones_have_whole_ones() {
    const AROUND: usize = 17;
    const WHOLE: usize = (16 << 10) + AROUND;
    let (mut a, _b) = shaken_hands();
    let mut of = |sizes: &[usize]| {
        let parts: Vec<Vec<u8>> = sizes.iter().map(|size| vec![5; *size]).collect();
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|p| IoSlice::new(p)).collect();
        let taken = a.seal(&slices).unwrap();
        (taken, records(&sent(&mut a, usize::MAX)))
    };
    assert_eq!(of(&[40, 100, 0, 4096]), (4236, vec![4236 + AROUND]));
    assert_eq!(of(&[16 << 10]), (16 << 10, vec![WHOLE]));
    assert_eq!(of(&[1000; 20]), (20_000, vec![WHOLE, 20_000 - (16 << 10) + AROUND]));
    assert_eq!(of(&[140, 1 << 20]), (64 << 10, vec![WHOLE; 4]), "so much is taken at once");
}

/// Whoever has a key may send any record. The first bytes of a message of TLS whose rest does not come: meanwhile this side sends.
#[test]
fn a_message_in_pieces_disturbs_nobody() {
    let authority = authority([7; 16]);
    let mut config = (*client_config(&issue(&authority, client())).unwrap()).clone();
    config.enable_secret_extraction = true;
    let mut evil = ClientConnection::new(config.into(), server_name()).unwrap();
    let mut b = Channel::server(server_config(&issue(&authority, server())).unwrap()).unwrap();
    while evil.is_handshaking() || b.is_shaking_hands() {
        let mut there = Vec::new();
        while evil.wants_write() {
            evil.write_tls(&mut there).unwrap();
        }
        arrives(&mut b, &there).unwrap();
        let back = sent(&mut b, usize::MAX);
        let mut back = &back[..];
        while !back.is_empty() {
            evil.read_tls(&mut back).unwrap();
            evil.process_new_packets().unwrap();
        }
    }
    let (mut seq, secrets) = evil.dangerous_extract_secrets().unwrap().tx;
    let ConnectionTrafficSecrets::Aes128Gcm { key, iv } = secrets else { panic!("another cipher") };
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key.as_ref()).unwrap());
    let mut record = |kind: u8, bytes: &[u8]| {
        let mut nonce: [u8; 12] = iv.as_ref().try_into().unwrap();
        for (at, byte) in seq.to_be_bytes().into_iter().enumerate() {
            nonce[4 + at] ^= byte;
        }
        seq += 1;
        let mut inner = [bytes, &[kind]].concat();
        let len = u16::try_from(inner.len() + 16).unwrap().to_be_bytes();
        let head = [23, 3, 3, len[0], len[1]];
        key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(head), &mut inner)
            .unwrap();
        [&head[..], &inner].concat()
    };
    let (data, handshake) = (23, 22);
    arrives(&mut b, &record(data, b"first")).unwrap();
    let mut opened = Vec::new();
    // An update of keys, in three pieces.
    for piece in [&[24][..], &[0, 0], &[1, 0]] {
        arrives(&mut b, &record(handshake, piece)).unwrap();
        b.open(100, |bytes| opened.extend_from_slice(bytes)).unwrap();
        assert_eq!(b.seal(&[IoSlice::new(b"answer")]).unwrap(), 6);
        assert!(!sent(&mut b, usize::MAX).is_empty());
    }
    assert_eq!(opened, b"first");
    // The keys are other ones now: what follows with the old ones is refused.
    arrives(&mut b, &record(data, b"with the old key")).unwrap();
    assert!(b.has_opened().is_err());
    assert!(!sent(&mut b, usize::MAX).is_empty(), "the other side hears why");
    assert!(b.seal(&[IoSlice::new(b"answer")]).is_err());
    arrives(&mut b, &record(data, b"later")).unwrap();
    assert!(b.has_opened().is_err());
    assert!(sent(&mut b, usize::MAX).is_empty(), "once");
}
