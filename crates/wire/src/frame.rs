//! The frame: a fixed head of 32 bytes, a body, and a payload apart from it (so that data is never copied to be framed).
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `MRT1` |
//! | 4 | 1 | kind |
//! | 5 | 1 | version of the protocol, from the hello |
//! | 6 | 2 | in a reply: for how many milliseconds the asker may keep what it was told (see `grant`); else zero |
//! | 8 | 8 | id: a reply carries its request's |
//! | 16 | 4 | body length |
//! | 20 | 4 | payload length |
//! | 24 | 4 | reserved, zero |
//! | 28 | 4 | CRC-32C of bytes 0 to 27, the body and the payload |

use crate::codec::{DecodeError, Reader, Wire};
use crate::limits::{BODY_MAX, PAYLOAD_MAX};
use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of a head.
pub const HEAD: usize = 32;
const MAGIC: [u8; 4] = *b"MRT1";

/// The protocol versions this build speaks, newest first.
pub const VERSIONS: &[u8] = &[2];

/// What a frame carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// [`crate::hello::Hello`]: the first frame of a connection.
    Hello = 1,
    /// [`crate::hello::HelloReply`].
    HelloReply = 2,
    /// [`crate::op::Call`] of a client to a set's primary.
    Call = 3,
    /// [`crate::reply::Reply`].
    Reply = 4,
    /// [`crate::peer::PeerMessage`] between the bricks of a set.
    Peer = 5,
    /// A JSON request of the control plane (CLI, servers among themselves, clients watching the pool).
    Control = 6,
    /// The JSON answer.
    ControlReply = 7,
    /// [`crate::map::WatchEvent`], pushed to a watcher; carries the watch's id.
    Event = 8,
    /// [`crate::map::Watch`] of a client, answered by events.
    Watch = 9,
}

impl Kind {
    fn from_u8(n: u8) -> Result<Kind, DecodeError> {
        Ok(match n {
            1 => Kind::Hello,
            2 => Kind::HelloReply,
            3 => Kind::Call,
            4 => Kind::Reply,
            5 => Kind::Peer,
            6 => Kind::Control,
            7 => Kind::ControlReply,
            8 => Kind::Event,
            9 => Kind::Watch,
            n => return Err(DecodeError::Unknown("frame kind", n.into())),
        })
    }
}

/// A whole frame in memory.
#[derive(Clone, Debug)]
pub struct Frame {
    /// What it carries.
    pub kind: Kind,
    /// Pairs a reply with its request.
    pub id: u64,
    /// The encoded message.
    pub body: Bytes,
    /// Data that belongs to the message; empty for most.
    pub payload: Bytes,
    /// In a reply: for how many milliseconds, counted from when the request was sent, nobody else changes anything in the
    /// set, so that attributes and entries may be kept. 0: not at all.
    pub grant: u16,
    /// In a call: the user who asks, if the client's key is for some users. 0: nobody is named.
    pub user: u32,
}

impl Frame {
    /// A frame with an encoded message and no payload.
    pub fn new(kind: Kind, id: u64, body: Vec<u8>) -> Frame {
        Frame { kind, id, body: body.into(), payload: Bytes::new(), grant: 0, user: 0 }
    }

    /// A frame with an encoded message and a payload.
    pub fn with_payload(kind: Kind, id: u64, body: Vec<u8>, payload: Bytes) -> Frame {
        Frame { kind, id, body: body.into(), payload, grant: 0, user: 0 }
    }

    /// The head's bytes, checksum included.
    pub fn head(&self) -> [u8; HEAD] {
        head(self.kind, self.id, (self.grant, self.user), &self.body, &self.payload)
    }

    /// The bytes of the head and of the message: all but the payload.
    pub fn head_and_body(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.body.len());
        bytes.extend_from_slice(&self.head());
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// The bytes of the head of a frame with this body and payload.
pub fn encode_head(kind: Kind, id: u64, body: &[u8], payload: &[u8]) -> [u8; HEAD] {
    head(kind, id, (0, 0), body, payload)
}

/// The same of one that names a user (see [`Frame::user`]).
pub fn encode_head_of_user(kind: Kind, id: u64, user: u32, body: &[u8], payload: &[u8]) -> [u8; HEAD] {
    head(kind, id, (0, user), body, payload)
}

fn head(kind: Kind, id: u64, (grant, user): (u16, u32), body: &[u8], payload: &[u8]) -> [u8; HEAD] {
    assert!(body.len() <= BODY_MAX as usize, "a message is within its bound");
    assert!(payload.len() <= PAYLOAD_MAX as usize, "a payload is within its bound");
    let mut out = Vec::with_capacity(HEAD);
    out.extend_from_slice(&MAGIC);
    out.push(kind as u8);
    out.push(VERSIONS.first().copied().unwrap_or(2));
    grant.put(&mut out);
    id.put(&mut out);
    u32::try_from(body.len()).unwrap_or(0).put(&mut out);
    u32::try_from(payload.len()).unwrap_or(0).put(&mut out);
    user.put(&mut out);
    let crc = checksum(&out, body, payload);
    crc.put(&mut out);
    let mut head = [0; HEAD];
    head.copy_from_slice(&out);
    head
}

fn checksum(head: &[u8], body: &[u8], payload: &[u8]) -> u32 {
    let mut d = Digest::new(CrcAlgorithm::Crc32Iscsi);
    d.update(head);
    d.update(body);
    d.update(payload);
    u32::try_from(d.finalize() & 0xffff_ffff).unwrap_or(0)
}

/// A decoded head: how much follows, and what it must add up to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHead {
    /// What the frame carries.
    pub kind: Kind,
    /// Pairs a reply with its request.
    pub id: u64,
    /// Bytes of body that follow the head.
    pub body_len: usize,
    /// Bytes of payload that follow the body.
    pub payload_len: usize,
    /// See [`Frame::grant`].
    pub grant: u16,
    /// See [`Frame::user`].
    pub user: u32,
    raw: [u8; HEAD - 4],
    crc: u32,
}

impl FrameHead {
    /// Reads a head. Refuses unknown kinds, other protocols and lengths beyond the limits.
    pub fn decode(bytes: &[u8; HEAD]) -> Result<FrameHead, DecodeError> {
        let mut r = Reader::new(bytes);
        if <[u8; 4]>::get(&mut r)? != MAGIC {
            return Err(DecodeError::Bounds("frame magic (not a Mortar connection?)"));
        }
        let kind = Kind::from_u8(u8::get(&mut r)?)?;
        let version = u8::get(&mut r)?;
        if !VERSIONS.contains(&version) {
            return Err(DecodeError::Unknown("protocol version", version.into()));
        }
        let grant = u16::get(&mut r)?;
        if grant != 0 && kind != Kind::Reply {
            return Err(DecodeError::Bounds("grant outside a reply"));
        }
        let id = u64::get(&mut r)?;
        let (body, payload) = (u32::get(&mut r)?, u32::get(&mut r)?);
        let user = u32::get(&mut r)?;
        if user != 0 && kind != Kind::Call {
            return Err(DecodeError::Bounds("user outside a call"));
        }
        if body > BODY_MAX || payload > PAYLOAD_MAX {
            return Err(DecodeError::Bounds("frame length"));
        }
        let crc = u32::get(&mut r)?;
        let (raw, _) = bytes.split_first_chunk().ok_or(DecodeError::Short)?;
        Ok(FrameHead {
            kind,
            id,
            body_len: body as usize,
            payload_len: payload as usize,
            grant,
            user,
            raw: *raw,
            crc,
        })
    }

    /// Checks the body and payload that followed against the head's checksum.
    pub fn verify(&self, body: &[u8], payload: &[u8]) -> Result<(), DecodeError> {
        if checksum(&self.raw, body, payload) == self.crc { Ok(()) } else { Err(DecodeError::Checksum) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_round_trip_and_damage() {
        let f = Frame::with_payload(Kind::Call, 42, b"body".to_vec(), Bytes::from_static(b"payload"));
        let head = f.head();
        let h = FrameHead::decode(&head).unwrap();
        assert_eq!((h.kind, h.id, h.body_len, h.payload_len), (Kind::Call, 42, 4, 7));
        h.verify(&f.body, &f.payload).unwrap();
        assert_eq!(h.verify(b"bodY", &f.payload), Err(DecodeError::Checksum));
        let mut bad = head;
        bad[19] = 0xff;
        assert_eq!(FrameHead::decode(&bad), Err(DecodeError::Bounds("frame length")));
        bad = head;
        bad[0] = b'X';
        assert!(FrameHead::decode(&bad).is_err());
    }

    #[test]
    fn only_a_call_names_a_user() {
        for (kind, may) in
            [(Kind::Call, true), (Kind::Reply, false), (Kind::Peer, false), (Kind::Hello, false)]
        {
            let head = Frame { user: 1000, ..Frame::new(kind, 1, vec![]) }.head();
            assert_eq!(FrameHead::decode(&head).map(|head| head.user).ok(), may.then_some(1000), "{kind:?}");
        }
    }
}
