//! How sets do that are to be emptied, as an answer.

use crate::rebalance::MovedFiles;
use ids::SetName;
use serde::{Deserialize, Serialize};

/// How far sets are whose bricks are to go.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DrainReport {
    /// The volume.
    pub name: String,
    /// Each of them.
    #[serde(default)]
    pub sets: Vec<DrainedSet>,
    /// What is in the way.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A set that is to be emptied.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DrainedSet {
    /// Which.
    #[serde(flatten)]
    pub set: SetName,
    /// Files leave it.
    #[serde(default)]
    pub drains: bool,
    /// What has left.
    #[serde(default)]
    pub moved: MovedFiles,
    /// Its bricks.
    #[serde(default)]
    pub bricks: Vec<DrainedBrick>,
}

/// A brick of such a set.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DrainedBrick {
    /// HOST:/PATH.
    pub brick: String,
    /// Where what it holds goes, HOST:/PATH; the brick goes when that is in sync.
    #[serde(default)]
    pub goes_to: Option<String>,
}

/// A server whose bricks leave it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerDrained {
    /// The server.
    pub host: String,
    /// Its bricks that are left. None: it can be detached.
    #[serde(default)]
    pub bricks: Vec<DrainedBrick>,
    /// What is in the way.
    #[serde(default)]
    pub notes: Vec<String>,
}
