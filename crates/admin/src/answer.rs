//! The answers to requests that change something, and the configuration document.

use crate::keys::ClientAdd;
use crate::request::PeerProbe;
use ids::{ServerId, SetId, SetName};
use serde::{Deserialize, Serialize};

/// A server is in the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerProbed {
    /// The name it has in the pool.
    pub host: String,
    /// Its number in the pool.
    pub server: ServerId,
    /// It was in the pool before: nothing changed.
    #[serde(default)]
    pub already: bool,
    /// It is not in the pool yet, and has no number: somebody has to confirm that this is the fingerprint of its authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirm: Option<String>,
}

/// A server is out of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerDetached {
    /// The server, as it was named in the request.
    pub host: String,
    /// Whether the server was told; with `force` it may be lost.
    #[serde(default)]
    pub told: bool,
}

/// A server took another one's place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerReplaced {
    /// The new server's name in the pool.
    pub host: String,
    /// The new server's number.
    pub server: ServerId,
    /// The number of the server that is gone.
    pub replaced: ServerId,
    /// How many bricks the new server has taken over.
    pub bricks: u32,
    /// One line, for people, for each of its sets that cannot serve: what holds its latest data, and what to do.
    #[serde(default)]
    pub offline: Vec<String>,
}

/// A volume is created.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeCreated {
    /// Its name.
    pub name: String,
    /// What speaks against its bricks all the same, for people.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A volume has more bricks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BricksAdded {
    /// Its name.
    pub name: String,
    /// The sets that it got, or that got more bricks.
    #[serde(default)]
    pub sets: Vec<SetId>,
    /// Their numbers in the volume, in the same order; none: a program of before has not told them.
    #[serde(default)]
    pub numbers: Vec<u32>,
    /// Each set is to have so many bricks: the new ones are filled now.
    #[serde(default)]
    pub replica: Option<u32>,
    /// Whether every set had a primary before the answer, or the volume is not started.
    #[serde(default)]
    pub serving: bool,
}

impl BricksAdded {
    /// The sets as users know them.
    pub fn names(&self) -> impl Iterator<Item = SetName> {
        let numbers = self.numbers.iter().copied().chain(std::iter::repeat(0));
        self.sets.iter().zip(numbers).map(|(id, number)| SetName { id: *id, number })
    }
}

/// A brick has another one's place, or gets it when it is in sync.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrickReplaced {
    /// The volume.
    pub name: String,
    /// The brick that goes, as it was named in the request.
    pub old: String,
    /// The new one, likewise.
    pub new: String,
    /// Their set.
    #[serde(flatten)]
    pub set: SetName,
    /// The old one is out of the set. If not, it leaves when the new one is in sync.
    #[serde(default)]
    pub at_once: bool,
}

/// A volume has fewer bricks in each set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BricksRemoved {
    /// The volume.
    pub name: String,
    /// How many bricks each set is to have.
    pub replica: u32,
    /// Bricks that are still in their sets, HOST:/PATH: they leave as soon as another one can lead.
    #[serde(default)]
    pub leaving: Vec<String>,
}

/// A volume is started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeStarted {
    /// Its name.
    pub name: String,
    /// Whether every set had a primary before the answer. If not, `volume status` says what is missing.
    #[serde(default)]
    pub serving: bool,
    /// It was started before: there was nothing to do.
    #[serde(default)]
    pub already: bool,
}

/// A volume is stopped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeStopped {
    /// Its name.
    pub name: String,
    /// It was not started before: there was nothing to do.
    #[serde(default)]
    pub already: bool,
}

/// A volume is deleted. Its files stay.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeDeleted {
    /// Its name.
    pub name: String,
    /// Why `.mortar` of a brick is still there, if one is.
    #[serde(default)]
    pub not_released: Option<String>,
}

/// A deleted volume is there again, stopped.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeImported {
    /// Its name.
    pub name: String,
    /// Its bricks that are missing, each with the reason.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// A set goes on with a brick that was not in sync.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumePromoted {
    /// The volume.
    pub name: String,
    /// The brick, as it was named in the request.
    pub brick: String,
    /// The brick's set.
    #[serde(flatten)]
    pub set: SetName,
}

/// Options are set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OptionsSet {
    /// The volume.
    pub name: String,
    /// How many.
    pub options: u32,
}

/// Options have their defaults again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OptionsReset {
    /// The volume.
    pub name: String,
    /// How many.
    pub options: u32,
}

/// The configuration of the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Document {
    /// In TOML.
    pub document: String,
}

/// What a document changed, or would.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Changes {
    /// One line for each, for people.
    pub changes: Vec<String>,
    /// Nothing was changed: it was only asked.
    #[serde(default)]
    pub dry_run: bool,
    /// The volumes that are stopped by it: their mounts do not answer then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
    /// Servers that are to be taken in before the document is applied: the first of the changes, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<PeerProbe>,
    /// Keys that are to be made after it was applied, as whoever makes one gets its file: the last of the changes, in this
    /// order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<ClientAdd>,
}

/// How far files that were put into bricks have come into the volume.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AdoptReport {
    /// The volume.
    pub name: String,
    /// It goes on.
    #[serde(default)]
    pub running: bool,
    /// Files, links and devices that the volume has now.
    #[serde(default)]
    pub files: u64,
    /// Directories that the volume has now.
    #[serde(default)]
    pub directories: u64,
    /// Bytes that were copied.
    #[serde(default)]
    pub bytes: u64,
    /// How many were left where they are.
    #[serde(default)]
    pub left: u64,
    /// The first of these.
    #[serde(default)]
    pub named: Vec<NotAdopted>,
    /// What one server tells another one: none of its bricks has the path. A command is refused if that is so of all of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
}

/// Something that did not join the volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NotAdopted {
    /// Where it is, with its server.
    pub path: String,
    /// Why, and what to do.
    pub why: String,
}
