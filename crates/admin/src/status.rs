//! How volumes, their bricks and their healing do, as answers.

use crate::{MovedFiles, VolumeState};
use ids::{BrickId, Epoch, Lsn, SetName};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Volumes in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeReports {
    /// Each of them.
    pub volumes: Vec<VolumeReport>,
}

/// How a volume does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// Whether it serves.
    pub status: VolumeState,
    /// All its bricks.
    pub bricks: Vec<BrickStatus>,
    /// What its servers counted.
    #[serde(default)]
    pub servers: Vec<ServerCounters>,
    /// Why a set is read-only or offline, and what to do.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What a brick is in its set just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BrickRole {
    /// Orders the changes.
    Primary,
    /// Follows.
    Secondary,
    /// Follows without file data.
    Arbiter,
    /// Is not in sync yet.
    Healing,
    /// Does not answer.
    Offline,
}

/// How a brick does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrickStatus {
    /// Its set.
    #[serde(flatten)]
    pub set: SetName,
    /// Its number.
    pub brick: BrickId,
    /// Its server's host.
    pub server: String,
    /// Its directory.
    pub path: String,
    /// Whether its server answers and serves it.
    pub online: bool,
    /// Whether it holds every acknowledged change.
    pub in_sync: bool,
    /// Its part.
    pub role: BrickRole,
    /// The view's epoch it knows.
    pub epoch: Epoch,
    /// Its last change.
    #[serde(default)]
    pub lsn: Lsn,
    /// Its last change known to be on disk.
    #[serde(default)]
    pub durable_lsn: Lsn,
    /// Room left.
    #[serde(default)]
    pub free_bytes: u64,
    /// Room in all.
    #[serde(default)]
    pub total_bytes: u64,
    /// How far its healing is, if it heals.
    #[serde(default)]
    pub heal: Option<HealProgress>,
    /// What has moved from its set to others, if it leads the set.
    #[serde(default)]
    pub moved: Option<MovedFiles>,
    /// Why it is not online, if known.
    #[serde(default)]
    pub error: Option<String>,
}

/// How far a healing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HealProgress {
    /// Objects done.
    pub done: u64,
    /// Objects known to need it.
    pub total: u64,
    /// Bytes copied.
    #[serde(default)]
    pub bytes: u64,
    /// Bytes compared and found right.
    #[serde(default)]
    pub same_bytes: u64,
    /// How it knows what to heal.
    #[serde(default)]
    pub mode: HealMode,
    /// Whether `total` is all: a full comparison meets more as it goes.
    #[serde(default)]
    pub total_known: bool,
    /// What it does now.
    #[serde(default)]
    pub state: HealState,
    /// Since it began.
    #[serde(default)]
    pub seconds: u64,
    /// Objects healed in the last second.
    #[serde(default)]
    pub objects_per_second: u64,
    /// Bytes copied in the last second.
    #[serde(default)]
    pub bytes_per_second: u64,
}

/// How a healing knows what to heal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealMode {
    /// The primary's journal says what was missed.
    #[default]
    Journal,
    /// The journal does not reach back: everything is compared.
    Full,
}

/// What a healing does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HealState {
    /// Gets the list of what was missed.
    #[default]
    Learning,
    /// Compares and copies.
    Copying,
    /// All is there and goes to disk.
    Finishing,
}

/// What a server counted since it started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ServerCounters {
    /// Its host.
    pub server: String,
    /// Requests by kind.
    pub ops: BTreeMap<String, u64>,
}

/// What is to be healed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct HealInfo {
    /// The volume.
    pub name: String,
    /// Bricks that are not in sync.
    pub bricks: Vec<BrickStatus>,
    /// What to know and do.
    #[serde(default)]
    pub notes: Vec<String>,
}
