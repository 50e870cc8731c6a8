//! Why a command is refused: one line each that names the object, the reason and what to do.

use crate::NamedSet;
use ids::{BrickId, Epoch, KeyId, ServerId, SetId, SetName};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A command changed nothing, and why.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum Refusal {
    #[error("this server is in a pool already: detach it there first")]
    PoolExists,
    #[error("a pool is recovered on a server that is stopped: run mortar pool recover there")]
    OfflineOnly,
    #[error("there is no pool yet: start the first server with an empty state folder")]
    NoPool,
    #[error(
        "servers of a version before are in the pool, which do not stripe files: update all of them first"
    )]
    StripesTooEarly,
    #[error("'{value}' is not a 128-bit identity: 32 lower-case hex digits are expected")]
    Identity { value: String },
    #[error(transparent)]
    Keys(#[from] KeyRefusal),
    #[error("address '{address}' is not allowed: use HOST:PORT with a port from 1 to 65535")]
    Address { address: String },
    #[error("the webhook's address is not allowed: {why}")]
    Webhook { why: String },
    #[error("host name '{host}' is not allowed: use a name or address without spaces and slashes")]
    Host { host: String },
    #[error("server '{host}' is in the pool already as server {id}: nothing to do")]
    ServerExists { host: String, id: ServerId },
    #[error("address '{address}' belongs to server '{host}': give each server its own address")]
    AddressInUse { address: String, host: String },
    #[error("server '{host}' is not in the pool: probe it first (mortar peer probe {host})")]
    UnknownHost { host: String },
    #[error("server {id} is not in the pool: see mortar pool list")]
    UnknownServer { id: ServerId },
    #[error(
        "server '{host}' holds bricks of volume '{volume}': let its bricks move to others (mortar peer drain {host}), or \
         another server take its place (mortar peer replace {host} --by NEWHOST)"
    )]
    ServerHasBricks { host: String, volume: String },
    #[error("server '{host}' is the last one of the pool: it cannot be detached")]
    LastServer { host: String },
    #[error("the pool is full: it has {max} servers already")]
    TooManyServers { max: usize },
    #[error(
        "volume name '{name}' is not allowed: use 1 to 64 letters, digits, '-', '_' or '.', starting with a letter or \
         digit"
    )]
    VolumeName { name: String },
    #[error("volume '{name}' exists already: choose another name or delete it first")]
    VolumeExists { name: String },
    #[error(
        "there is no deleted volume '{name}': its bricks were released, or too many others were deleted since"
    )]
    NotDeleted { name: String },
    #[error("{set} has none of the bricks that hold its latest data: bring one of these back: {bricks}")]
    SetMissing {
        #[serde(flatten)]
        set: NamedSet,
        bricks: String,
    },
    #[error("there is no volume '{name}': see mortar volume list")]
    UnknownVolume { name: String },
    #[error("volume '{name}' is started: stop it first (mortar volume stop {name})")]
    VolumeStarted { name: String },
    #[error("volume '{name}' is started already: nothing to do")]
    AlreadyStarted { name: String },
    #[error("volume '{name}' is not started: nothing to stop")]
    NotStarted { name: String },
    #[error("the pool is full: it has {max} volumes already")]
    TooManyVolumes { max: usize },
    #[error("replica {replica} is not allowed: use 1 to {max}")]
    Replica { replica: u32, max: u32 },
    #[error("arbiter {arbiter} with replica {replica} is not allowed: use replica 3 arbiter 1")]
    Arbiter { replica: u32, arbiter: u32 },
    #[error("{count} bricks cannot be sets of {replica}: give a multiple of {replica}")]
    BrickCount { count: usize, replica: u32 },
    #[error("volume '{name}' has no bricks: give at least one HOST:/PATH")]
    NoBricks { name: String },
    #[error("{count} bricks are too many for one volume: give at most {max}")]
    TooManyBricks { count: usize, max: usize },
    #[error("brick '{brick}' is not allowed: write HOST:/PATH")]
    BrickSyntax { brick: String },
    #[error(
        "brick path '{}' is not allowed: it must be absolute, not '/', without '..', '.mortar' and control characters",
        .path.escape_debug()
    )]
    BrickPath { path: String },
    #[error("brick {brick} is given twice: name each directory once")]
    DuplicateBrick { brick: String },
    #[error("brick {brick} is in use by volume '{volume}': choose another directory")]
    BrickInUse { brick: String, volume: String },
    #[error("brick {brick} lies inside or around brick {other}: choose a directory apart from it")]
    NestedBrick { brick: String, other: String },
    #[error(
        "bricks {brick} and {other} of one set are on one server, which loses both at once: use different servers, or \
         add --force"
    )]
    SameServer { brick: String, other: String },
    #[error(
        "other bricks were made in the pool meanwhile, brick {expected} is one of them: run the command again"
    )]
    BrickIdTaken { expected: BrickId },
    #[error("no numbers are left for new sets in this pool: make a new pool")]
    OutOfIds,
    #[error("option '{}' is unknown{}: see mortar volume get VOL", ids::excerpt(.key), did_you_mean(.nearest))]
    UnknownOption { key: String, nearest: Option<String> },
    #[error("option {key} of volume '{volume}' cannot be '{}': use {expected}", ids::excerpt(.value))]
    OptionValue { volume: String, key: String, value: String, expected: String },
    #[error("the options of volume '{volume}' would have more than {max} bytes: shorten or reset some")]
    OptionsTooLong { volume: String, max: usize },
    #[error("{count} changes are too many for one command: give at most {max}")]
    TooManyChanges { count: usize, max: usize },
    #[error("volume '{name}' is described twice: name each volume once")]
    DescribedTwice { name: String },
    #[error(
        "volume '{name}' has other bricks or another replica count than the document: apply adds whole sets after those \
         that are there, and changes no others; list the volume's bricks first (mortar config export), or change them with \
         mortar volume add-brick, remove-brick and replace-brick"
    )]
    BricksDiffer { name: String },
    #[error("there is no set {set}: it was deleted")]
    UnknownSet { set: SetId },
    #[error("there is no brick {brick}: it was deleted")]
    UnknownBrick { brick: BrickId },
    #[error("the view of {set} is at epoch {actual}, not {expected}: read it again")]
    StaleEpoch {
        #[serde(flatten)]
        set: NamedSet,
        expected: Epoch,
        actual: Epoch,
    },
    #[error("brick {brick} is not a member of {set}: read the view again")]
    NotMember {
        #[serde(flatten)]
        set: NamedSet,
        brick: BrickId,
    },
    #[error("brick {brick} cannot lead {set}: a primary is in sync and no arbiter")]
    BadPrimary {
        #[serde(flatten)]
        set: NamedSet,
        brick: BrickId,
    },
    #[error("brick {brick} cannot come into sync in {set}: nobody said it is healed")]
    NotHealed {
        #[serde(flatten)]
        set: NamedSet,
        brick: BrickId,
    },
    #[error("brick {brick} is being replaced by {by} already: see mortar volume heal VOL info")]
    BeingReplaced { brick: String, by: String },
    #[error("brick {brick} is on the server of {other}, a brick of the same set: use another server")]
    ServerHasBrickOfSet { brick: String, other: String },
    #[error(
        "brick {brick} is in sync, and its server cannot serve the new one beside it: the set would have a copy less until \
         that one is healed; use a brick on another server, or add --force"
    )]
    CopyLess { brick: String },
    #[error(
        "brick {brick} alone holds the data of its set: replace it by a brick on another server, which is filled first"
    )]
    OnlyCopy { brick: String },
    #[error("{set} is offline, so no new brick could be filled: see mortar volume status")]
    SetOffline {
        #[serde(flatten)]
        set: NamedSet,
    },
    #[error("brick {brick} leaves its set already: see mortar volume status")]
    BrickLeaves { brick: String },
    #[error("volume '{name}' has replica {has}: give a higher one to add copies, or none to add sets")]
    NotMoreCopies { name: String, has: u32 },
    #[error("volume '{name}' has replica {has}: give a lower one to remove copies")]
    NotFewerCopies { name: String, has: u32 },
    #[error(
        "volume '{name}' has {sets} sets, and {count} bricks are not {each} for each of them: give {each} for the first \
         set, then {each} for the next"
    )]
    CopiesCount { name: String, count: usize, sets: usize, each: u32 },
    #[error("{brick} is no brick of volume '{name}': see mortar volume info {name}")]
    NoBrickOf { brick: String, name: String },
    #[error(
        "of set {set} {count} bricks are given, and each set of volume '{name}' is to lose {each}: name as many"
    )]
    UnevenCopies {
        #[serde(flatten)]
        set: SetName,
        name: String,
        count: usize,
        each: u32,
    },
    #[error("brick {brick} is the arbiter of its set, which needs replica 3: remove it as well")]
    ArbiterStays { brick: String },
    #[error(
        "brick {brick} is not in sync, and would be a copy that is left: wait until it is healed (mortar volume heal \
         {name} info), or use force instead of commit"
    )]
    CopyNotInSync { brick: String, name: String },
    #[error(
        "bricks that are left of set {set} do not hold its latest data, only {brick} does: wait until another one is in \
         sync (mortar volume heal {name} info), or remove another one"
    )]
    LastCopy {
        #[serde(flatten)]
        set: SetName,
        brick: String,
        name: String,
    },
    #[error(
        "set {set} is offline, and any of its bricks may be needed to go on: see mortar volume status {name}"
    )]
    OfflineKeeps {
        #[serde(flatten)]
        set: SetName,
        name: String,
    },
    #[error("brick {brick} was never in sync in {set}: name another one")]
    NeverInSync {
        #[serde(flatten)]
        set: NamedSet,
        brick: BrickId,
    },
    #[error("{set} would lose its data: a brick that holds it must stay in sync")]
    DataWouldBeLost {
        #[serde(flatten)]
        set: NamedSet,
    },
    #[error("a pool needs a voter: name at least one server")]
    NoVoters,
    #[error("the pool's record has format {format}, this program knows up to {max}: update it")]
    NewerFormat { format: u32, max: u32 },
}

fn did_you_mean(nearest: &Option<String>) -> String {
    nearest.as_ref().map(|n| format!(", did you mean '{n}'?")).unwrap_or_default()
}

impl Refusal {
    /// Whether the proposer acted on an old view and may read the state and try again.
    pub fn is_stale(&self) -> bool {
        matches!(self, Refusal::StaleEpoch { .. } | Refusal::BrickIdTaken { .. })
    }
}

/// The same about keys and tokens.
#[derive(Clone, PartialEq, Eq, Debug, Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum KeyRefusal {
    #[error(
        "key name '{name}' is not allowed: use 1 to 64 letters, digits, '-', '_' or '.', starting with a letter or digit"
    )]
    Name { name: String },
    #[error("there is a key '{name}' already: choose another name, revoke it, or rotate it")]
    Exists { name: String },
    #[error(
        "nobody can be squashed to {uid}:{gid}: name a user from 1 to 4294967294, whom permissions bind, and a group of his"
    )]
    Squash { uid: u32, gid: u32 },
    #[error("a key is either for some users or makes all one: leave out --squash or --users")]
    SquashOfUsers,
    #[error("a key cannot be for directory {path}: name one beneath the volume's own, of at most 4096 bytes")]
    Subdir { path: String },
    #[error(
        "user {uid} cannot be on a key's list: name each once, from 1 to 4294967294, whom permissions bind, and his groups"
    )]
    User { uid: u32 },
    #[error("a key is for {users} users at most, with {groups} further groups in all")]
    ManyUsers { users: usize, groups: usize },
    #[error(
        "a key that is made anew is for the same users as the old one: make another key for others (mortar client add)"
    )]
    OtherUsers,
    #[error("there is no key {key}: see mortar client list")]
    Unknown { key: KeyId },
    #[error("there are {max} already: revoke some first")]
    TooMany { max: usize },
    #[error("a hash or a public key is not written as 64 lower-case hex digits: use programs of like age")]
    Hash,
    #[error("the pool is secured already: nothing to do")]
    Secured,
    #[error("the pool has no keys yet: run mortar pool secure first")]
    NotSecured,
    #[error("servers came or went meanwhile: run mortar pool secure again")]
    ServersWithout,
    #[error(
        "another authority is taking the place of the pool's: end that first (mortar pool rotate-authority --finish)"
    )]
    AuthorityChanges,
    #[error(
        "another administrator replaces the pool's authority, too: run mortar pool rotate-authority again"
    )]
    AnotherAuthority,
    #[error("the pool's authority is not being replaced: begin with mortar pool rotate-authority")]
    AuthorityStays,
    #[error("keys of the old authority came meanwhile: run mortar pool rotate-authority --finish again")]
    OldKeys,
    #[error("the token is unknown, spent or expired: make another one with mortar pool token")]
    BadToken,
}
