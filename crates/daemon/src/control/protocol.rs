//! The control plane's messages: what travels in [`wire::Kind::Control`] frames.
//!
//! The first byte of a body says what follows: 0 JSON of [`Request`] or [`Response`] between servers, 1 bytes of the pool
//! store, 2 the admin protocol ([`admin::TAG`]), 3 JSON of a server that joins ([`JOIN`]), 4 JSON of an [`Invitation`].

mod servers;

use super::invitation::Invitation;
use super::join::JoinRequest;
use crate::speaker::{INVITATION, JOIN};
use cluster::{Retired, Set, Volume};
use ids::{BrickId, ServerId, SetId};
use namespace::placement::SetRoom;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) use servers::{ClusterReply, ClusterRequest, NewKeys, NextAuthority};

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    /// Of another server.
    Cluster(ClusterRequest),
    /// Of another server: renew my lease.
    Beat(Beat),
    /// Of another server: I cannot reach that one.
    Suspect {
        /// Whom.
        server: ServerId,
    },
    /// Of another server: take your bricks of this volume apart.
    ReleaseBricks {
        /// The volume's name.
        volume: String,
    },
    /// Of another server: which of your bricks of this volume, which was deleted, are not there?
    LookForBricks {
        /// The volume, as it was.
        volume: Box<Retired>,
    },
    /// Of another server: make these bricks, which the pool is about to take, or take them apart again.
    NewBricks {
        /// The volume, as it will be.
        volume: Box<Volume>,
        /// Its sets with the new bricks.
        sets: Vec<Set>,
        /// Which bricks are new.
        bricks: BTreeSet<BrickId>,
        /// Make or release.
        make: bool,
        /// This one of them is to be made of the data that lies there.
        #[serde(default)]
        adopt: Option<BrickId>,
    },
}

/// A heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Beat {
    /// Who.
    pub(crate) server: ServerId,
    /// Its identity: a wiped server is refused.
    pub(crate) identity: String,
    /// Room of the sets it leads.
    #[serde(default)]
    pub(crate) rooms: Vec<Room>,
    /// How far its program goes; 0: it is one of before levels.
    #[serde(default)]
    pub(crate) level: u32,
}

/// [`SetRoom`] as JSON.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Room {
    /// The set.
    pub(crate) set: SetId,
    /// Bytes free.
    pub(crate) available: u64,
    /// Bytes in all.
    pub(crate) total: u64,
    /// Whether it takes changes.
    pub(crate) writable: bool,
    /// Percent of the last seconds for which it worked. Servers of before do not tell it.
    #[serde(default)]
    pub(crate) busy: u8,
    /// Whether clients ask that server for something. Servers of before do not tell it.
    #[serde(default)]
    pub(crate) asked: bool,
    /// Another number after each rename of a directory there. Servers of before do not tell it.
    #[serde(default)]
    pub(crate) renames: u64,
}

impl From<SetRoom> for Room {
    fn from(r: SetRoom) -> Room {
        let SetRoom { set, available, total, busy, asked, writable, renames, promised: _ } = r;
        Room { set, available, total, writable, busy, asked, renames }
    }
}

impl From<Room> for SetRoom {
    fn from(r: Room) -> SetRoom {
        let Room { set, available, total, writable, busy, asked, renames } = r;
        SetRoom { busy, asked, writable, renames, ..SetRoom::new(set, available, total) }
    }
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Response {
    /// To a server.
    Cluster(ClusterReply),
    /// To a beat.
    Lease {
        /// Whether it was renewed.
        renewed: bool,
        /// For how long from its sending, in milliseconds.
        lease_ms: u64,
        /// Who is down.
        #[serde(default)]
        down: BTreeSet<ServerId>,
        /// The version of the pool's state that a server must know before the lease counts.
        version: u64,
        /// Room of all sets.
        #[serde(default)]
        rooms: Vec<Room>,
    },
    /// Not the leader.
    NotLeader,
    /// Done.
    Done,
    /// To a server that joins.
    Joined(super::join::Joined),
    /// Bricks that are not there, and why.
    MissingBricks(BTreeMap<BrickId, String>),
    /// Refused or failed.
    Error(String),
}

const JSON: u8 = 0;
const RAFT: u8 = 1;

/// A body of JSON.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    let mut body = vec![JSON];
    if let Err(e) = serde_json::to_writer(&mut body, message) {
        tracing::error!("encode a control message: {e}");
    }
    body
}

fn encode_as<T: Serialize>(tag: u8, message: &T) -> Vec<u8> {
    let mut body = encode(message);
    if let Some(first) = body.first_mut() {
        *first = tag;
    }
    body
}

fn decode_as<T: for<'a> Deserialize<'a>>(tag: u8, body: &[u8]) -> Result<T, String> {
    match body.split_first() {
        Some((first, rest)) if *first == tag => serde_json::from_slice(rest).map_err(|e| e.to_string()),
        _ => Err("another kind of message".to_owned()),
    }
}

/// A body of a server that joins.
pub(crate) fn encode_join(request: &JoinRequest) -> Vec<u8> {
    encode_as(JOIN, request)
}

/// Reads what [`encode_join`] wrote.
///
/// # Errors
/// A line that says what is wrong with it.
pub(crate) fn decode_join(body: &[u8]) -> Result<JoinRequest, String> {
    decode_as(JOIN, body)
}

/// A body of an invitation.
pub(crate) fn encode_invitation(invitation: &Invitation) -> Vec<u8> {
    encode_as(INVITATION, invitation)
}

/// Reads what [`encode_invitation`] wrote.
///
/// # Errors
/// A line that says what is wrong with it.
pub(crate) fn decode_invitation(body: &[u8]) -> Result<Invitation, String> {
    decode_as(INVITATION, body)
}

/// A body of pool store bytes.
pub(crate) fn encode_raft(bytes: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(bytes.len() + 1);
    body.push(RAFT);
    body.extend_from_slice(bytes);
    body
}

/// A body, told apart.
pub(crate) enum Incoming<'a, T> {
    Json(T),
    Raft(&'a [u8]),
}

/// Reads a body.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(body: &[u8]) -> Result<Incoming<'_, T>, String> {
    match body.split_first() {
        Some((&JSON, rest)) => serde_json::from_slice(rest).map(Incoming::Json).map_err(|e| e.to_string()),
        Some((&RAFT, rest)) => Ok(Incoming::Raft(rest)),
        _ => Err("not a control message".to_owned()),
    }
}

/// Reads an answer of another server.
///
/// # Errors
/// A line that says what is wrong with it.
pub(crate) fn decode_response(body: &[u8]) -> Result<Response, String> {
    match decode(body)? {
        Incoming::Json(response) => Ok(response),
        Incoming::Raft(_) => Err("an answer of the pool store came instead".to_owned()),
    }
}
