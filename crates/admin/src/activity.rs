//! Who uses a volume and what waits in it, as answers.

use ids::{KeyId, SetName};
use serde::{Deserialize, Serialize};

/// The clients of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClientReports {
    /// The volume.
    pub name: String,
    /// Each mount that asks for something, or has in the last minute, those with the most requests first.
    pub clients: Vec<ClientStatus>,
    /// The others.
    #[serde(default)]
    pub resting: Vec<RestingMounts>,
    /// Servers that did not tell.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Mounts of one address that have asked for nothing for a minute or more.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RestingMounts {
    /// Where they connect from.
    pub address: String,
    /// How many there are.
    pub mounts: u64,
}

/// One mount, as all servers see it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ClientStatus {
    /// Where it connects from.
    pub address: String,
    /// The name of its key; none in a pool without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of the key with which it came last: each rotation gives another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<KeyId>,
    /// Its session: 16 hex digits, drawn when it was mounted.
    pub session: String,
    /// Its connections to servers; none: it was away for less than a minute.
    pub connections: u64,
    /// Its requests since it came to each server.
    pub requests: u64,
    /// Bytes of data that it got.
    pub read_bytes: u64,
    /// Bytes of data that it sent.
    pub written_bytes: u64,
    /// Files that it holds open.
    pub open_files: u64,
    /// Since it came.
    pub seconds: u64,
    /// Not 0 if this is no mount, but what one server tells of an address: how many mounts there watch the volume through it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub mounts: u64,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// The files of a volume that clients hold open.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OpenFileReports {
    /// The volume.
    pub name: String,
    /// How many there are.
    pub total: u64,
    /// Some of them: at most 100 of each set.
    pub files: Vec<OpenFile>,
    /// Servers that did not tell.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// An open file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpenFile {
    /// Its path in the volume; its identity in angle brackets if the path is not known, or it has none.
    pub path: String,
    /// The set that has it.
    #[serde(flatten)]
    pub set: SetName,
    /// How many clients hold it.
    pub clients: u64,
}

/// What waits in a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct QueueReports {
    /// The volume.
    pub name: String,
    /// Each brick, set by set.
    pub bricks: Vec<QueueStatus>,
    /// Servers that did not tell.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What waits at one brick.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct QueueStatus {
    /// Its set.
    #[serde(flatten)]
    pub set: SetName,
    /// The brick, as HOST:/PATH.
    pub brick: String,
    /// Requests that wait for their change to be on all bricks in sync.
    pub waiting: u64,
    /// Work that runs on threads for the disk.
    pub disk: u64,
    /// Questions to other sets.
    pub asked: u64,
    /// Bytes that wait for connections to the set's other bricks.
    pub queued_bytes: u64,
    /// Changes that are not known to be on its disk.
    pub unsynced: u64,
    /// Bytes of its journal.
    pub journal_bytes: u64,
    /// How often the set held its thread up for more than 10 ms.
    pub long_steps: u64,
}
