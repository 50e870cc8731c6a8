//! How long requests take and what is asked for most, as answers.

use crate::ClientStatus;
use ids::SetName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a volume did since a profile of it began.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProfileReport {
    /// The volume.
    pub name: String,
    /// Whether a profile is under way.
    pub running: bool,
    /// Since it began.
    #[serde(default)]
    pub total: ProfileSpan,
    /// Since it was last looked at.
    #[serde(default)]
    pub interval: ProfileSpan,
    /// Servers that did not tell, or do not profile.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What a volume did in a span of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProfileSpan {
    /// How long the span was.
    pub milliseconds: u64,
    /// Each set that was asked for something.
    pub sets: Vec<SetProfile>,
}

/// What a set did in a span of time.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SetProfile {
    /// The set.
    #[serde(flatten)]
    pub set: SetName,
    /// Bytes of data that clients got.
    pub read_bytes: u64,
    /// Bytes of data that clients sent.
    pub written_bytes: u64,
    /// Requests that were answered with an error, by reason.
    #[serde(default)]
    pub failures: BTreeMap<String, u64>,
    /// Each kind of request that there was, those that took most time first.
    pub operations: Vec<OperationProfile>,
}

/// How long requests of one kind took.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OperationProfile {
    /// The kind.
    pub operation: String,
    /// How many there were.
    pub calls: u64,
    /// How long they took together.
    pub total_us: u64,
    /// Half of them took at most this long; null: longer than the last class.
    #[serde(default)]
    pub p50_us: Option<u64>,
    /// The same for 99 of 100.
    #[serde(default)]
    pub p99_us: Option<u64>,
    /// How many took how long.
    pub classes: Vec<LatencyClass>,
}

/// Requests that took about as long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LatencyClass {
    /// At most this long, and longer than the class before; null in the last class.
    pub at_most_us: Option<u64>,
    /// How many.
    pub calls: u64,
}

/// What of a volume is asked for most, since somebody began to look.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TopReport {
    /// The volume.
    pub name: String,
    /// Files by requests.
    pub files: Vec<TopLine>,
    /// Files by bytes read and written.
    pub bytes: Vec<TopLine>,
    /// Directories by requests.
    pub directories: Vec<TopLine>,
    /// Clients by requests, since they came.
    pub clients: Vec<ClientStatus>,
    /// Servers that did not tell.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// One file or directory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TopLine {
    /// Its path in the volume; its identity in angle brackets if the path is not known.
    pub path: String,
    /// The set that has it.
    #[serde(flatten)]
    pub set: SetName,
    /// Requests or bytes.
    pub count: u64,
    /// By how much the count may be too large: where very many files are used, those that are less so share counters.
    pub error: u64,
}
