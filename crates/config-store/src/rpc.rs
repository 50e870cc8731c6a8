//! What the stores of two servers say to each other: one JSON document each way.

use cluster::{Outcome, Proposal, Refusal};
use ids::ServerId;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize};

use crate::{
    db::StoredSnapshot,
    types::{TypeConfig, Vote},
};

/// The protocol's version.
pub(crate) const FORMAT: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) format: u32,
    /// The sender's pool; empty: it has none yet. Servers of different pools never mix.
    pub(crate) pool: String,
    pub(crate) from: ServerId,
    pub(crate) to: ServerId,
    pub(crate) body: Body,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant, reason = "lives only while one message is handled")]
pub(crate) enum Body {
    Append(AppendEntriesRequest<TypeConfig>),
    Vote(VoteRequest<u64>),
    Snapshot {
        vote: Vote,
        snapshot: StoredSnapshot,
    },
    Forward(Proposal),
    /// Which entry must a reader have applied to have read the latest?
    ReadIndex,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Reply {
    Append(AppendEntriesResponse<u64>),
    Vote(VoteResponse<u64>),
    Snapshot(SnapshotResponse<u64>),
    Forward(Forwarded),
    ReadIndex(Option<u64>),
    NotLeader(Option<(ServerId, String)>),
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Forwarded {
    Done(Outcome),
    Refused(Refusal),
}
