//! What volumes are made of, and their options, as answers.

use ids::{BrickId, SetId, SetName, VolumeId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Whether a volume serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Never started yet.
    Created,
    /// Serves.
    Started,
    /// Was started once, does not serve now.
    Stopped,
}

impl std::fmt::Display for VolumeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            VolumeState::Created => "created",
            VolumeState::Started => "started",
            VolumeState::Stopped => "stopped",
        })
    }
}

/// Volumes in the order of their numbers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeDescriptions {
    /// Each of them.
    pub volumes: Vec<VolumeDescription>,
}

/// What a volume is made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeDescription {
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Whether it serves.
    pub status: VolumeState,
    /// Bricks in each set.
    pub replica: u32,
    /// Arbiters among them.
    pub arbiter: u32,
    /// Seconds since 1970.
    #[serde(default)]
    pub created: u64,
    /// Its bricks by set.
    pub sets: Vec<SetDescription>,
    /// What was set.
    pub options: BTreeMap<String, String>,
}

/// One set of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetDescription {
    /// What is its own in the whole pool.
    pub id: SetId,
    /// Its number in the volume; 0: a program of before has not told it.
    #[serde(default)]
    pub number: u32,
    /// HOST:/PATH, arbiters marked.
    pub bricks: Vec<BrickDescription>,
}

impl SetDescription {
    /// The set as users know it.
    pub fn name(&self) -> SetName {
        SetName { id: self.id, number: self.number }
    }
}

/// One brick of a set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrickDescription {
    /// Its number.
    pub id: BrickId,
    /// HOST:/PATH.
    pub name: String,
    /// Holds no file data.
    #[serde(default)]
    pub arbiter: bool,
}

/// The names of all volumes, sorted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VolumeNames {
    /// Each of them.
    pub names: Vec<String>,
}

/// Options of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OptionLines {
    /// In the order of their keys, the user's own last.
    pub options: Vec<OptionLine>,
}

/// One option of a volume. Values are text here, as they are in `volume set`: each option has a type of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OptionLine {
    /// The option.
    pub key: String,
    /// Its value in this volume.
    pub value: String,
    /// What it is when nobody set it.
    pub default: String,
    /// Whether somebody set it.
    pub is_set: bool,
    /// What it does.
    pub help: String,
}
