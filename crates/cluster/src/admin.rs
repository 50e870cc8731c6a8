//! The admin protocol: what the CLI asks a server, and what servers ask each other beside data. JSON.
//!
//! Fields may be added, with a default; none is renamed.

use std::collections::{BTreeMap, BTreeSet};

use ids::{BrickId, Epoch, Lsn, ServerId, SetId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{Command, Outcome, Refusal, Role, Status, arbitration::Evidence, options::OptionLine};

/// What the CLI asks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(
    missing_docs,
    reason = "each variant is the command of that name in the contract, with its words as fields"
)]
pub enum AdminRequest {
    PeerProbe {
        host: String,
        #[serde(default)]
        port: Option<u16>,
    },
    PeerDetach {
        host: String,
        #[serde(default)]
        force: bool,
    },
    PeerReplace {
        host: String,
        #[serde(default)]
        by: Option<String>,
    },
    PeerStatus,
    PoolList,
    VolumeCreate {
        name: String,
        #[serde(default)]
        replica: Option<u32>,
        #[serde(default)]
        arbiter: Option<u32>,
        bricks: Vec<String>,
        #[serde(default)]
        force: bool,
    },
    VolumeStart {
        name: String,
    },
    VolumeStop {
        name: String,
    },
    VolumeDelete {
        name: String,
    },
    VolumeInfo {
        #[serde(default)]
        name: Option<String>,
    },
    VolumeStatus {
        #[serde(default)]
        name: Option<String>,
    },
    VolumeList,
    VolumeSet {
        name: String,
        options: Vec<(String, String)>,
    },
    VolumeGet {
        name: String,
        #[serde(default)]
        key: Option<String>,
    },
    VolumeReset {
        name: String,
        #[serde(default)]
        key: Option<String>,
    },
    ConfigExport,
    ConfigApply {
        document: String,
        #[serde(default)]
        dry_run: bool,
    },
    VolumeHeal {
        name: String,
    },
    VolumeHealInfo {
        name: String,
    },
    VolumePromote {
        name: String,
        brick: String,
    },
}

/// What a server answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AdminReply {
    /// Done; one line that says what.
    Done(String),
    /// To peer status.
    PeerStatus(PeerStatus),
    /// To pool list.
    PoolList(Vec<Peer>),
    /// To volume info.
    VolumeInfo(Vec<VolumeInfo>),
    /// To volume status.
    VolumeStatus(Vec<VolumeStatus>),
    /// To volume list.
    VolumeList(Vec<String>),
    /// To volume get.
    Options(Vec<OptionLine>),
    /// To config export.
    Document(String),
    /// To config apply: what changed, or would.
    Changes(Vec<String>),
    /// To heal info.
    Heal(HealInfo),
    /// Refused or failed.
    Error(AdminError),
}

/// Why a request was refused or failed: one line that names the object, the reason and what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct AdminError {
    /// The line.
    pub message: String,
}

impl From<Refusal> for AdminError {
    fn from(refusal: Refusal) -> AdminError {
        AdminError { message: refusal.to_string() }
    }
}

/// The pool's servers, and what is weak about the pool.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The pool's id.
    pub pool: String,
    /// The server that answered.
    pub me: ServerId,
    /// Who leads the pool store now.
    #[serde(default)]
    pub leader: Option<ServerId>,
    /// All servers, the one that answered too.
    pub peers: Vec<Peer>,
    /// What to know and do.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// A server as others see it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Peer {
    /// Its number.
    pub id: ServerId,
    /// Its random identity.
    pub identity: String,
    /// The name it was probed by.
    pub host: String,
    /// "host:port".
    pub address: String,
    /// Its part in the pool store.
    pub role: Role,
    /// Whether it holds its lease; `None`: the one that answered does not know.
    #[serde(default)]
    pub connected: Option<bool>,
    /// Cut off by a recovery.
    #[serde(default)]
    pub lost: bool,
    /// A voter without bricks.
    #[serde(default)]
    pub witness: bool,
}

/// What a volume is made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Its number.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Whether it serves.
    pub status: Status,
    /// Bricks in each set.
    pub replica: u32,
    /// Arbiters among them.
    pub arbiter: u32,
    /// Seconds since 1970.
    #[serde(default)]
    pub created: u64,
    /// Its bricks by set.
    pub sets: Vec<SetInfo>,
    /// What was set.
    pub options: BTreeMap<String, String>,
}

/// One set of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SetInfo {
    /// Its number.
    pub id: SetId,
    /// HOST:/PATH, arbiters marked.
    pub bricks: Vec<BrickInfo>,
}

/// One brick of a set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrickInfo {
    /// Its number.
    pub id: BrickId,
    /// HOST:/PATH.
    pub name: String,
    /// Holds no file data.
    #[serde(default)]
    pub arbiter: bool,
}

/// How a volume does.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Whether it serves.
    pub status: Status,
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
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BrickStatus {
    /// Its set.
    pub set: SetId,
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
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct HealInfo {
    /// The volume.
    pub name: String,
    /// Bricks that are not in sync.
    pub bricks: Vec<BrickStatus>,
    /// What to know and do.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// What servers ask each other.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterRequest {
    /// Bytes of the pool store's own protocol, for `ConfigStore::handle`.
    Raft(serde_json::Value),
    /// A command for the leader.
    Forward(Command),
    /// A server renews its lease with the leader.
    Heartbeat {
        /// Who.
        server: ServerId,
        /// Its identity: a wiped server is refused.
        identity: String,
        /// The state's version it has.
        #[serde(default)]
        version: u64,
        /// Whom it cannot reach.
        #[serde(default)]
        suspects: BTreeSet<ServerId>,
    },
    /// Whoever is at this address: who are you?
    Identify,
    /// Become a server of this pool; refused by one that has volumes or peers.
    JoinInvite {
        /// The pool's id.
        pool: String,
        /// The id you get.
        server: ServerId,
        /// The identity this is meant for.
        identity: String,
        /// The name you were probed by.
        host: String,
        /// Whom to ask for the pool: id and address.
        members: BTreeMap<ServerId, String>,
    },
    /// You are out of the pool: become a pool of one again.
    Detached {
        /// The pool's id.
        pool: String,
        /// The id you had.
        server: ServerId,
    },
    /// The pool was recovered without you: stop acting as its server.
    CutOff {
        /// The pool's id.
        pool: String,
        /// The identity this is meant for.
        identity: String,
        /// How often the pool was recovered.
        recoveries: u32,
        /// The server that it goes on from.
        host: String,
    },
    /// Can this directory become a brick? Make it if it is not there.
    BrickPrepare {
        /// The directory.
        path: String,
        /// Also if it is not empty.
        #[serde(default)]
        force: bool,
    },
    /// How do your bricks of this volume do?
    Status {
        /// Its name.
        volume: String,
    },
    /// Is your brick open, and what does it hold?
    Evidence {
        /// The pool's id: another pool may have given the same numbers.
        pool: String,
        /// Its set.
        set: SetId,
        /// Which.
        brick: BrickId,
    },
}

/// The answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterReply {
    /// Done.
    Done,
    /// Bytes of the pool store's own protocol.
    Raft(serde_json::Value),
    /// To Forward.
    Outcome(Result<Outcome, Refusal>),
    /// To Heartbeat.
    Lease {
        /// Whether it was renewed.
        renewed: bool,
        /// For how long, in milliseconds, counted from the heartbeat's sending.
        lease_ms: u64,
        /// Whose leases ran out.
        #[serde(default)]
        down: BTreeSet<ServerId>,
    },
    /// To a request only the leader answers: who leads, if known.
    NotLeader {
        /// Id and address.
        leader: Option<(ServerId, String)>,
    },
    /// To Identify.
    Identity {
        /// The server's identity.
        identity: String,
        /// Its pool.
        pool: String,
        /// Its id there.
        server: ServerId,
        /// Servers in its pool.
        servers: u32,
        /// Volumes in its pool.
        volumes: u32,
        /// How often its pool was recovered from one server.
        #[serde(default)]
        recoveries: u32,
        /// The program's version.
        #[serde(default)]
        program: String,
    },
    /// To Status.
    Status {
        /// Its bricks.
        bricks: Vec<BrickStatus>,
        /// Its counts.
        counters: ServerCounters,
    },
    /// Refused or failed.
    Error(AdminError),
    /// To Evidence.
    Evidence(Evidence),
}

#[cfg(test)]
#[path = "admin_tests.rs"]
mod tests;
