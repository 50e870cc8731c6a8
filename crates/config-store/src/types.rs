//! openraft's types, with ours filled in.

use std::io::Cursor;

use cluster::{Outcome, Proposal, Refusal};
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// Our agreement: proposals in, outcomes out.
    pub(crate) TypeConfig:
        D = Proposal,
        R = Applied,
);

/// What applying an entry gave; `None`: the entry was openraft's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Applied(pub(crate) Option<Result<Outcome, Refusal>>);

pub(crate) type Raft = openraft::Raft<TypeConfig>;
pub(crate) type Entry = openraft::Entry<TypeConfig>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Node = openraft::BasicNode;
pub(crate) type StoredMembership = openraft::StoredMembership<u64, Node>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, Node>;
pub(crate) type StorageError = openraft::StorageError<u64>;
