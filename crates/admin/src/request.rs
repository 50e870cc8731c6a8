//! The requests, one struct each, and the table that ties each of them to its answer.

use crate::{
    AdoptReport, AuthorityRotated, BrickReplaced, BricksAdded, BricksRemoved, Changes, ClientAdd, ClientList,
    ClientReports, ClientRevoke, ClientRotate, DoctorReport, Document, DrainReport, EventReports,
    EventsWebhook, GetEvents, GetLocalKey, GetPoolToken, HealInfo, KeyList, KeyMade, KeysRevoked,
    KeysRotated, LocalKey, OpenFileReports, OptionLines, OptionsReset, OptionsSet, PeerDetached, PeerDrained,
    PeerProbed, PeerReplaced, PeerStatus, Peers, PoolKey, PoolRotateAuthority, PoolRotateKey, PoolSecure,
    PoolSecured, PoolToken, ProfileReport, QueueReports, RebalanceReport, TopReport, VolumeCreated,
    VolumeDeleted, VolumeDescriptions, VolumeImported, VolumeNames, VolumePromoted, VolumeReports,
    VolumeStarted, VolumeStopped, WebhookReport,
};
use serde::{Deserialize, Serialize};

/// A request that knows the type of its answer.
pub trait Ask {
    /// The answer.
    type Answer;

    /// The request as one of all.
    fn into_request(self) -> AdminRequest;

    /// The answer, if `answer` is one to this request.
    fn take(answer: AdminAnswer) -> Option<Self::Answer>;
}

macro_rules! requests {
    ($($variant:ident, $request:ident, $json:literal -> $answer:ident;)*) => {
        /// What the command line asks. Each variant is the command of that name.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum AdminRequest {
            $(
                #[doc = concat!("`", $json, "`")]
                #[serde(rename = $json)]
                $variant($request),
            )*
        }

        /// What a server answers, by the request's name.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        pub enum AdminAnswer {
            $(
                #[doc = concat!("to `", $json, "`")]
                #[serde(rename = $json)]
                $variant($answer),
            )*
        }

        /// The names of all requests in JSON.
        pub const REQUESTS: &[&str] = &[$($json),*];

        $(
            impl Ask for $request {
                type Answer = $answer;

                fn into_request(self) -> AdminRequest {
                    AdminRequest::$variant(self)
                }

                fn take(answer: AdminAnswer) -> Option<$answer> {
                    match answer {
                        AdminAnswer::$variant(answer) => Some(answer),
                        _ => None,
                    }
                }
            }
        )*
    };
}

requests! {
    PeerProbe, PeerProbe, "peer-probe" -> PeerProbed;
    PeerDetach, PeerDetach, "peer-detach" -> PeerDetached;
    PeerReplace, PeerReplace, "peer-replace" -> PeerReplaced;
    PeerDrain, PeerDrain, "peer-drain" -> PeerDrained;
    PeerStatus, GetPeerStatus, "peer-status" -> PeerStatus;
    PoolList, PoolList, "pool-list" -> Peers;
    PoolSecure, PoolSecure, "pool-secure" -> PoolSecured;
    PoolToken, GetPoolToken, "pool-token" -> PoolToken;
    PoolKey, PoolKey, "pool-key" -> KeyMade;
    PoolRotateKey, PoolRotateKey, "pool-rotate-key" -> KeysRotated;
    PoolRotateAuthority, PoolRotateAuthority, "pool-rotate-authority" -> AuthorityRotated;
    LocalKey, GetLocalKey, "local-key" -> LocalKey;
    ClientAdd, ClientAdd, "client-add" -> KeyMade;
    ClientList, ClientList, "client-list" -> KeyList;
    ClientRevoke, ClientRevoke, "client-revoke" -> KeysRevoked;
    ClientRotate, ClientRotate, "client-rotate" -> KeyMade;
    VolumeCreate, VolumeCreate, "volume-create" -> VolumeCreated;
    VolumeAddBrick, VolumeAddBrick, "volume-add-brick" -> BricksAdded;
    VolumeReplaceBrick, VolumeReplaceBrick, "volume-replace-brick" -> BrickReplaced;
    VolumeRemoveBrick, VolumeRemoveBrick, "volume-remove-brick" -> BricksRemoved;
    VolumeStart, VolumeStart, "volume-start" -> VolumeStarted;
    VolumeStop, VolumeStop, "volume-stop" -> VolumeStopped;
    VolumeDelete, VolumeDelete, "volume-delete" -> VolumeDeleted;
    VolumeImport, VolumeImport, "volume-import" -> VolumeImported;
    VolumeInfo, VolumeInfo, "volume-info" -> VolumeDescriptions;
    VolumeStatus, VolumeStatus, "volume-status" -> VolumeReports;
    VolumeClients, VolumeClients, "volume-clients" -> ClientReports;
    VolumeFds, VolumeFds, "volume-fds" -> OpenFileReports;
    VolumeQueues, VolumeQueues, "volume-queues" -> QueueReports;
    VolumeProfile, VolumeProfile, "volume-profile" -> ProfileReport;
    VolumeTop, VolumeTop, "volume-top" -> TopReport;
    VolumeList, VolumeList, "volume-list" -> VolumeNames;
    VolumeSet, VolumeSet, "volume-set" -> OptionsSet;
    VolumeGet, VolumeGet, "volume-get" -> OptionLines;
    VolumeReset, VolumeReset, "volume-reset" -> OptionsReset;
    Doctor, GetDoctor, "doctor" -> DoctorReport;
    Events, GetEvents, "events" -> EventReports;
    EventsWebhook, EventsWebhook, "events-webhook" -> WebhookReport;
    ConfigExport, ConfigExport, "config-export" -> Document;
    ConfigDiff, ConfigDiff, "config-diff" -> Changes;
    ConfigApply, ConfigApply, "config-apply" -> Changes;
    VolumeHeal, VolumeHeal, "volume-heal" -> HealInfo;
    VolumeHealInfo, VolumeHealInfo, "volume-heal-info" -> HealInfo;
    VolumePromote, VolumePromote, "volume-promote" -> VolumePromoted;
    VolumeAdopt, VolumeAdopt, "volume-adopt" -> AdoptReport;
    VolumeRebalance, VolumeRebalance, "volume-rebalance" -> RebalanceReport;
    VolumeDrain, VolumeDrain, "volume-drain" -> DrainReport;
}

/// Take a server into the pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerProbe {
    /// The server. Bricks are written with this name from now on.
    pub host: String,
    /// Its port, if it is not the usual one.
    #[serde(default)]
    pub port: Option<u16>,
    /// The fingerprint of its authority, as it wrote it into its log: somebody has compared them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Let the bricks of a server leave it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerDrain {
    /// The server, as it was probed.
    pub host: String,
}

/// Let a server without bricks go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerDetach {
    /// The server, as it was probed.
    pub host: String,
    /// Also if it does not answer.
    #[serde(default)]
    pub force: bool,
}

/// Give the bricks of a server that is gone to another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerReplace {
    /// The server that is gone, as it was probed.
    pub host: String,
    /// The server that takes over (HOST or HOST:PORT), if it has another address.
    #[serde(default)]
    pub by: Option<String>,
}

/// How do the servers do?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GetPeerStatus {}

/// Which servers are in the pool?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PoolList {}

/// Make a volume of directories.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeCreate {
    /// Its name.
    pub name: String,
    /// Bricks in each set; 1 unless given.
    #[serde(default)]
    pub replica: Option<u32>,
    /// Arbiters among them; 0 unless given.
    #[serde(default)]
    pub arbiter: Option<u32>,
    /// Sets that share a large file's data; 1 unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stripe: Option<u32>,
    /// HOST:/PATH each, set by set.
    pub bricks: Vec<String>,
    /// Allow two bricks of one set on one server.
    #[serde(default)]
    pub force: bool,
    /// The first brick is a directory with data, which becomes the volume's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
}

/// Give a volume more sets, or each of its sets more bricks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeAddBrick {
    /// The volume.
    pub name: String,
    /// How many bricks each set is to have; the volume gets no more sets then.
    #[serde(default)]
    pub replica: Option<u32>,
    /// How many of them are arbiters; as many as now unless given.
    #[serde(default)]
    pub arbiter: Option<u32>,
    /// HOST:/PATH each, set by set.
    pub bricks: Vec<String>,
    /// Allow two bricks of one set on one server.
    #[serde(default)]
    pub force: bool,
}

/// Give a brick's place in its set to another one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeReplaceBrick {
    /// The volume.
    pub name: String,
    /// The brick that goes, as HOST:/PATH.
    pub old: String,
    /// The one that takes its place, as HOST:/PATH.
    pub new: String,
    /// Also if the set has a copy less until the new one is healed.
    #[serde(default)]
    pub force: bool,
}

/// Take bricks out of each set of a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRemoveBrick {
    /// The volume.
    pub name: String,
    /// How many bricks each set is to have.
    pub replica: u32,
    /// Those that go, as HOST:/PATH.
    pub bricks: Vec<String>,
    /// Also if bricks that stay are not in sync.
    #[serde(default)]
    pub force: bool,
}

/// Let a volume serve.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeStart {
    /// The volume.
    pub name: String,
}

/// Stop serving a volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeStop {
    /// The volume.
    pub name: String,
}

/// Forget a stopped volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeDelete {
    /// The volume.
    pub name: String,
    /// Take its bricks apart, too: it cannot be imported any more. Also of a volume that was deleted before.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub release: bool,
}

/// Make a deleted volume again of its bricks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeImport {
    /// The volume; empty if its bricks say which.
    #[serde(default)]
    pub name: String,
    /// Some of its bricks, or all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bricks: Vec<String>,
    /// Also if bricks are missing.
    #[serde(default)]
    pub force: bool,
}

/// What is a volume made of?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// The volume; all if none is given.
    #[serde(default)]
    pub name: Option<String>,
}

/// How does a volume do?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// The volume; all if none is given.
    #[serde(default)]
    pub name: Option<String>,
}

/// Who uses a volume?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeClients {
    /// The volume.
    pub name: String,
}

/// Which files of a volume are open?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeFds {
    /// The volume.
    pub name: String,
}

/// What waits in a volume?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeQueues {
    /// The volume.
    pub name: String,
}

/// How long do the requests of a volume take?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeProfile {
    /// The volume.
    pub name: String,
    /// Begin, end, or tell.
    #[serde(default)]
    pub action: ProfileAction,
}

/// What is done with a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProfileAction {
    /// It begins, or begins anew.
    Start,
    /// Nothing: only tell.
    #[default]
    Info,
    /// It ends.
    Stop,
}

/// What of a volume is asked for most? It is counted from the first such request on, until nobody asks for half a minute.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeTop {
    /// The volume.
    pub name: String,
}

/// What is wrong?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GetDoctor {}

/// Which volumes are there?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct VolumeList {}

/// Set options, all or none of those given.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeSet {
    /// The volume.
    pub name: String,
    /// Keys and values.
    pub options: Vec<(String, String)>,
}

/// Which options does a volume have?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeGet {
    /// The volume.
    pub name: String,
    /// The option; all if none is given.
    #[serde(default)]
    pub key: Option<String>,
}

/// Give an option its default again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeReset {
    /// The volume.
    pub name: String,
    /// The option; all if none is given.
    #[serde(default)]
    pub key: Option<String>,
}

/// The configuration of the pool as one document, please.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConfigExport {}

/// Bring the pool to what a document says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigApply {
    /// The document, in TOML.
    pub document: String,
    /// Only tell what would change.
    #[serde(default)]
    pub dry_run: bool,
    /// The changes that somebody agreed to: it is refused if they are others by now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Vec<String>>,
}

/// What does a document say otherwise than the pool is?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigDiff {
    /// The document, in TOML.
    pub document: String,
}

/// Look again now for bricks to heal, and tell what is not in sync.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeHeal {
    /// The volume.
    pub name: String,
}

/// What is not in sync?
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeHealInfo {
    /// The volume.
    pub name: String,
}

/// Let a set go on with one brick when those with its latest data are gone for good.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumePromote {
    /// The volume.
    pub name: String,
    /// The brick, as HOST:/PATH.
    pub brick: String,
}

/// Take files that were put into bricks into the volume, or tell how far that has come.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeAdopt {
    /// The volume.
    pub name: String,
    /// Only what is beneath this path in the volume.
    #[serde(default)]
    pub path: Option<String>,
    /// Begin, where it is not at work.
    #[serde(default)]
    pub begin: bool,
}

/// Move files of fuller sets to emptier ones, end that, or tell how far it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeRebalance {
    /// The volume.
    pub name: String,
    /// What to do.
    #[serde(default)]
    pub action: RebalanceAction,
    /// Only tell what would move.
    #[serde(default)]
    pub dry_run: bool,
}

/// What to do about files that move to emptier sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RebalanceAction {
    /// Move them.
    Start,
    /// Only tell.
    #[default]
    Status,
    /// Move no more.
    Stop,
    /// Move no more for now; what has moved is counted on.
    Pause,
}

/// Empty whole sets of a volume, so that their bricks can go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VolumeDrain {
    /// The volume.
    pub name: String,
    /// Bricks of the sets, as HOST:/PATH.
    pub bricks: Vec<String>,
    /// What to do.
    #[serde(default)]
    pub action: DrainAction,
}

/// What to do about sets that are to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DrainAction {
    /// Files leave them, and nothing new is placed there.
    Start,
    /// Only tell.
    #[default]
    Status,
    /// They are used as before.
    Stop,
    /// The bricks go: what could not leave moves to places beside bricks that stay. Refused while files can leave.
    Commit,
    /// The same, also while files can leave, and if a set has a copy less meanwhile.
    Force,
}
