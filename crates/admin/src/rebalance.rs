//! How files that move between sets do, as an answer.

use ids::{SetId, SetName};
use serde::{Deserialize, Serialize};

/// Whether files move from fuller sets to emptier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceState {
    /// They stay.
    #[default]
    Off,
    /// They move.
    On,
    /// They stay for now; what has moved is counted on.
    Paused,
}

/// How far a volume's files have moved to emptier sets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RebalanceReport {
    /// The volume.
    pub name: String,
    /// Whether they move.
    pub state: RebalanceState,
    /// How eagerly files move: gentle, normal or fast.
    #[serde(default)]
    pub throttle: String,
    /// Nothing was changed: it was only asked.
    #[serde(default)]
    pub dry_run: bool,
    /// What has moved, all sets together.
    #[serde(default)]
    pub moved: MovedFiles,
    /// Bytes that would still have to move, if all files could.
    #[serde(default)]
    pub remaining_bytes: u64,
    /// How long that takes as fast as it is now; `None` if nothing moves now.
    #[serde(default)]
    pub remaining_seconds: Option<u64>,
    /// Where they would move.
    #[serde(default)]
    pub plan: Vec<PlannedMove>,
    /// Each set.
    #[serde(default)]
    pub sets: Vec<SetMoves>,
    /// Sets of which not all is known, and why.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Files and directories that have moved to other sets since the server of their set leads it, or since it was started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MovedFiles {
    /// How many.
    #[serde(default)]
    pub files: u64,
    /// Their lengths.
    #[serde(default)]
    pub bytes: u64,
    /// How often a file stayed: it was in use, changed meanwhile, or had names in directories of other sets.
    #[serde(default)]
    pub left: u64,
    /// Files in one second.
    #[serde(default)]
    pub files_per_second: u64,
    /// Bytes in one second.
    #[serde(default)]
    pub bytes_per_second: u64,
    /// When all files were gone through the last time, none could move.
    #[serde(default)]
    pub none_can_move: bool,
    /// Where the last file lies that could not move though nobody used it, and why; `None` if one has moved since.
    #[serde(default)]
    pub problem: Option<String>,
    /// Directories that other sets answer for by now.
    #[serde(default)]
    pub directories: u64,
}

/// Bytes that would move from one set to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedMove {
    /// The fuller set.
    pub from: SetId,
    /// Its number in the volume; 0: a program of before has not told it.
    #[serde(default)]
    pub from_number: u32,
    /// The emptier one.
    pub to: SetId,
    /// The number of that, likewise.
    #[serde(default)]
    pub to_number: u32,
    /// About how many.
    pub bytes: u64,
}

impl PlannedMove {
    /// The sets as users know them.
    pub fn names(&self) -> (SetName, SetName) {
        let name = |id, number| SetName { id, number };
        (name(self.from, self.from_number), name(self.to, self.to_number))
    }
}

/// The room of a set, and what has moved from there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetMoves {
    /// Which.
    #[serde(flatten)]
    pub set: SetName,
    /// Room left on its fullest brick.
    #[serde(default)]
    pub free_bytes: u64,
    /// Room in all there.
    #[serde(default)]
    pub total_bytes: u64,
    /// What has moved from there.
    #[serde(default)]
    pub moved: MovedFiles,
}
