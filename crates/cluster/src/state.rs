//! What the pool agreed on: servers, volumes, sets of bricks and the view of each set.
//!
//! Always true (see [`State::check`]): ids are never reused, every reference resolves, a view's primary is an
//! in-sync data brick of its own set, and no two bricks share a path or lie inside each other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ids::{BrickId, Epoch, ServerId, SetId, SetName, VolumeId};
use serde::{Deserialize, Serialize};

use crate::liveness::LEASE;
use crate::{BrickSpec, Keys, Outcome, Retired, limits, names, options::QuorumType, set_numbers};

/// The whole pool.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct State {
    /// The format of this record: [`limits::STATE_FORMAT`].
    pub format: u32,
    /// The pool's name: 32 hex digits, drawn once by the first server; empty before there is a pool.
    pub pool: String,
    /// Counts the commands that were applied (not those refused).
    pub version: u64,
    /// The id the next server gets; likewise below. They only grow.
    pub next_server: ServerId,
    /// See `next_server`.
    pub next_volume: VolumeId,
    /// See `next_server`.
    pub next_set: SetId,
    /// See `next_server`.
    pub next_brick: BrickId,
    /// The servers that trust each other.
    pub servers: BTreeMap<ServerId, Server>,
    /// What can be mounted.
    pub volumes: BTreeMap<VolumeId, Volume>,
    /// The sets of all volumes.
    #[serde(deserialize_with = "set_numbers::read")]
    pub sets: BTreeMap<SetId, Set>,
    /// How often the pool was recovered from one server: who knows of an older generation was fenced off.
    #[serde(default)]
    #[serde(rename = "recoveries")]
    pub generation: u32,
    /// The longest lease there was before network.ping-timeout was lowered, in milliseconds: a process that starts anew
    /// cannot know when that was, and counts with such leases for as long as they may last.
    #[serde(default)]
    pub longest_lease_ms: u64,
    /// No server's program goes less far ([`crate::LEVEL`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub level: u32,
    /// Volumes that were deleted and may come back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub retired: BTreeMap<VolumeId, Retired>,
    /// The keys that are let in.
    #[serde(default, skip_serializing_if = "Keys::is_unused")]
    pub keys: Keys,
    /// Where events are sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
    /// From when on; absent with an address that a program of before has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_since: Option<crate::WebhookSince>,
    /// The addresses of hosts that options name, as they were last looked up.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: crate::Hosts,
    /// Answers to the latest commands, oldest first: a command that arrives twice is answered, not redone.
    #[serde(default)]
    pub recent: Vec<Recent>,
}

/// One remembered answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recent {
    /// The command's id, drawn at random by its proposer.
    #[serde(with = "crate::hex")]
    pub id: u128,
    /// What it did.
    pub outcome: Outcome,
}

/// A machine that runs the daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Server {
    /// Its number, never reused; also its Raft node id.
    pub id: ServerId,
    /// 32 hex digits drawn by the server and kept in its state folder: tells a wiped server from the one it was.
    pub identity: String,
    /// The name it was probed by; bricks are written HOST:/PATH with it.
    pub host: String,
    /// Where it listens, "host:port".
    pub address: String,
    /// Its part in the pool store.
    #[serde(default)]
    pub role: Role,
    /// Fenced off by a recovery of the pool from one server; it has to be replaced or detached.
    #[serde(default)]
    pub lost: bool,
}

/// A server's part in the agreement on the pool's state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Has a vote.
    Voter,
    /// Has a copy, no vote.
    #[default]
    Learner,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// Its number, never reused.
    pub id: VolumeId,
    /// Its name, unique in the pool.
    pub name: String,
    /// Whether it serves.
    pub status: Status,
    /// Bricks in each set, arbiters included.
    pub replica: u32,
    /// How many of them (the last ones) are arbiters.
    pub arbiter: u32,
    /// Its sets in the order of the bricks given at its creation. The first holds the root.
    pub sets: Vec<SetId>,
    /// Options that were set; the rest have their defaults.
    pub options: BTreeMap<String, String>,
    /// Seconds since 1970 by the clock of whoever created it: the times that its root directory begins with.
    #[serde(default)]
    pub created: u64,
    /// The number of its newest set, which may be gone by now: the next one gets the number after it. Of a record of before
    /// it is 0, and the sets that are there say it ([`State::next_number`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub numbered: u32,
}

/// Whether a volume serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Never started yet.
    Created,
    /// Serves.
    Started,
    /// Was started once, does not serve now.
    Stopped,
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Status::Created => "created",
            Status::Started => "started",
            Status::Stopped => "stopped",
        })
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Role::Voter => "voter",
            Role::Learner => "learner",
        })
    }
}

/// The bricks that hold the same data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Set {
    /// Its number, never reused.
    pub id: SetId,
    /// Whose it is.
    pub volume: VolumeId,
    /// What users know it by: 1, 2, 3 in the order in which its volume got its sets; never given again there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u32,
    /// In the order they were given; arbiters last.
    pub bricks: Vec<Brick>,
    /// Who serves.
    pub view: View,
    /// A power cut took all bricks: what was acknowledged in earlier epochs than this one is there only if it was synced.
    #[serde(default)]
    pub lost_before: Epoch,
}

/// A directory on a server that a volume owns.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Brick {
    /// Its number, never reused.
    pub id: BrickId,
    /// Where it is.
    pub server: ServerId,
    /// The directory, absolute and normal (see [`crate::normal_path`]).
    pub path: String,
    /// Holds names and attributes but no file data, and never leads.
    #[serde(default)]
    pub arbiter: bool,
    /// Where its file system was mounted when it was last opened; empty: not known. An empty directory on another one is
    /// not the brick without its files, but the place where its disk is missing.
    #[serde(default)]
    pub mount: String,
    /// It takes the place of this brick of its set as soon as it is in sync.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<BrickId>,
    /// A further copy, which counts for its set's write quorum as soon as it is in sync.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub joining: bool,
    /// It is to leave its set. It is a member only until the view is without it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub leaving: bool,
}

/// Who of a set serves, agreed in the pool's store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct View {
    /// Grows by one with every change of this view.
    pub epoch: Epoch,
    /// Who orders the changes; `None`: nobody may serve until the last in-sync brick is back.
    pub primary: Option<BrickId>,
    /// Who holds every acknowledged change.
    pub in_sync: BTreeSet<BrickId>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(level: &u32) -> bool {
    *level == 0
}

impl Default for State {
    fn default() -> State {
        State {
            format: limits::STATE_FORMAT,
            pool: String::new(),
            version: 0,
            next_server: ServerId(1),
            next_volume: VolumeId(1),
            next_set: SetId(1),
            next_brick: BrickId(1),
            servers: BTreeMap::new(),
            volumes: BTreeMap::new(),
            sets: BTreeMap::new(),
            generation: 0,
            longest_lease_ms: 0,
            level: 0,
            retired: BTreeMap::new(),
            keys: Keys::default(),
            webhook: None,
            webhook_since: None,
            hosts: crate::Hosts::new(),
            recent: Vec::new(),
        }
    }
}

impl State {
    /// How long leases are: the shortest ping-timeout of any volume, as leases are for whole servers.
    pub fn lease_length(&self) -> Duration {
        let all = self.volumes.values().map(Volume::ping_timeout);
        all.min().filter(|d| !d.is_zero()).unwrap_or(LEASE)
    }

    /// The longest lease that may still be held when nothing is known of the past.
    pub fn longest_lease(&self) -> Duration {
        self.lease_length().max(Duration::from_millis(self.longest_lease_ms))
    }

    /// The volume of that name.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.values().find(|v| v.name == name)
    }

    /// The server that was probed by that name, or whose address it is.
    pub fn server_by_host(&self, host: &str) -> Option<&Server> {
        let bare = names::bare_host(host);
        let named = self.servers.values().find(|s| s.host == bare);
        named.or_else(|| self.servers.values().find(|s| s.address == host))
    }

    /// The server with that identity.
    pub fn server_by_identity(&self, identity: &str) -> Option<&Server> {
        self.servers.values().find(|s| s.identity == identity)
    }

    /// Whether whoever states this id and identity is the server the pool knows by that id.
    ///
    /// `false` for a server that lost its state folder, or was fenced off by a recovery: it must not act as its old self.
    pub fn is_server(&self, id: ServerId, identity: &str) -> bool {
        self.servers.get(&id).is_some_and(|s| s.identity == identity && !s.lost)
    }

    /// A brick with the set it belongs to.
    pub fn brick(&self, id: BrickId) -> Option<(&Set, &Brick)> {
        self.bricks().find(|(_, b)| b.id == id)
    }

    /// All bricks of the pool, set by set.
    pub fn bricks(&self) -> impl Iterator<Item = (&Set, &Brick)> {
        self.sets.values().flat_map(|s| s.bricks.iter().map(move |b| (s, b)))
    }

    /// The bricks of one server.
    pub fn bricks_of(&self, server: ServerId) -> impl Iterator<Item = (&Set, &Brick)> {
        self.bricks().filter(move |(_, b)| b.server == server)
    }

    /// The sets of a volume in their order.
    pub fn sets_of<'a>(&'a self, volume: &'a Volume) -> impl Iterator<Item = &'a Set> {
        volume.sets.iter().filter_map(|id| self.sets.get(id))
    }

    /// The bricks of a volume, without those that are still to take the place of others, and without those that leave.
    pub fn bricks_of_volume<'a>(&'a self, volume: &'a Volume) -> impl Iterator<Item = &'a Brick> {
        self.sets_of(volume).flat_map(|s| &s.bricks).filter(|b| b.replaces.is_none() && !b.leaving)
    }

    /// A brick as users write it: HOST:/PATH.
    pub fn brick_name(&self, brick: &Brick) -> String {
        match self.servers.get(&brick.server) {
            Some(server) => names::brick_name(&server.host, &brick.path),
            None => format!("server-{}:{}", brick.server, brick.path),
        }
    }

    /// How many sets each server is the primary of; servers with none are there with 0.
    pub fn primaries(&self) -> BTreeMap<ServerId, usize> {
        let mut count: BTreeMap<ServerId, usize> = self.servers.keys().map(|id| (*id, 0)).collect();
        for set in self.sets.values() {
            if let Some(brick) = set.view.primary.and_then(|id| set.brick(id)) {
                *count.entry(brick.server).or_default() += 1;
            }
        }
        count
    }

    /// Asserts what must hold between any two commands.
    pub fn check(&self) {
        assert!(self.format <= limits::STATE_FORMAT, "a newer format is refused before it gets here");
        assert!(self.recent.len() <= limits::RECENT, "remembered answers are bounded");
        self.check_servers();
        self.check_volumes();
        self.keys.check(self);
        assert!(self.retired.len() <= limits::RETIRED, "deleted volumes are bounded");
        for retired in self.retired.values() {
            let clash = self.volumes.contains_key(&retired.volume.id);
            assert!(!clash, "a deleted volume's numbers are nobody else's");
        }
        let mut bricks = BTreeMap::new();
        for set in self.sets.values() {
            self.check_set(set);
            for brick in &set.bricks {
                assert!(bricks.insert(brick.id, brick).is_none(), "a brick belongs to one set");
            }
        }
        let mut places: Vec<_> = bricks.values().map(|b| (b.server, b.path.as_str())).collect();
        places.sort_by(|a, b| names::path_order(*a, *b));
        for pair in places.windows(2) {
            let clash = pair[0].0 == pair[1].0 && names::overlap(pair[0].1, pair[1].1);
            assert!(!clash, "no two bricks share a directory: {pair:?}");
        }
    }

    fn check_servers(&self) {
        for (id, server) in &self.servers {
            assert_eq!(*id, server.id, "a server is kept under its id");
            assert!(*id < self.next_server, "server ids are never reused");
        }
        let hosts: BTreeSet<_> = self.servers.values().map(|s| &s.host).collect();
        assert_eq!(hosts.len(), self.servers.len(), "a host is one server");
        let identities: BTreeSet<_> = self.servers.values().map(|s| &s.identity).collect();
        assert_eq!(identities.len(), self.servers.len(), "an identity is one server");
    }

    fn check_volumes(&self) {
        let mut sets = BTreeSet::new();
        for (id, volume) in &self.volumes {
            assert_eq!(*id, volume.id, "a volume is kept under its id");
            assert!(*id < self.next_volume, "volume ids are never reused");
            assert!(!volume.sets.is_empty(), "a volume has a set");
            for set in &volume.sets {
                assert!(sets.insert(*set), "a set belongs to one volume");
                assert_eq!(self.sets.get(set).map(|s| s.volume), Some(*id), "volume and set name each other");
            }
            let numbers: BTreeSet<u32> = self.sets_of(volume).map(|s| s.number).collect();
            assert_eq!(numbers.len(), volume.sets.len(), "a number is one set of the volume");
            assert!(!numbers.contains(&0), "every set has a number");
        }
        assert_eq!(sets.len(), self.sets.len(), "no set is an orphan");
        let names: BTreeSet<_> = self.volumes.values().map(|v| &v.name).collect();
        assert_eq!(names.len(), self.volumes.len(), "a name is one volume");
    }

    fn check_set(&self, set: &Set) {
        assert!(set.id < self.next_set, "set ids are never reused");
        assert!(set.id <= SetId::MAX, "set ids fit into inode numbers");
        assert!(set.view.epoch >= Epoch(1), "epochs start at 1");
        for brick in &set.bricks {
            assert!(brick.id < self.next_brick, "brick ids are never reused");
            assert!(self.servers.contains_key(&brick.server), "a brick's server is in the pool");
        }
        let members: BTreeSet<_> = set.bricks.iter().map(|b| b.id).collect();
        assert!(set.view.in_sync.is_subset(&members), "only members are in sync");
        assert!(set.has_data(&set.view.in_sync), "somebody in sync holds the data");
        assert!(set.copies() > 0, "a set is to have a brick");
        for brick in &set.bricks {
            let in_sync = set.view.in_sync.contains(&brick.id);
            assert!(!(brick.joining && in_sync), "a copy in sync counts");
            assert!(!brick.leaving || in_sync, "a brick that leaves stays only for the view");
        }
        if let Some(primary) = set.view.primary {
            assert!(set.view.in_sync.contains(&primary), "a primary is in sync");
            assert!(set.brick(primary).is_some_and(|b| !b.arbiter), "an arbiter never leads");
        }
    }
}

impl Set {
    /// A member.
    pub fn brick(&self, id: BrickId) -> Option<&Brick> {
        self.bricks.iter().find(|b| b.id == id)
    }

    /// What users know it by, where its volume is named beside it. Elsewhere it is [`State::named_set`].
    pub fn name(&self) -> SetName {
        SetName { id: self.id, number: self.number }
    }

    /// How many bricks count for the write quorum: those that the set is to have and that were in sync before.
    pub fn copies(&self) -> u32 {
        let counts = |b: &&Brick| !b.joining && !b.leaving && b.replaces.is_none();
        self.bricks.iter().filter(counts).count() as u32
    }

    /// Whether any of these is a member that holds data.
    pub fn has_data(&self, of: &BTreeSet<BrickId>) -> bool {
        self.bricks.iter().any(|b| !b.arbiter && of.contains(&b.id))
    }
}

impl Brick {
    /// Where it is.
    pub fn spec(&self) -> BrickSpec {
        BrickSpec { server: self.server, path: self.path.clone() }
    }
}

impl Volume {
    /// How many in-sync bricks a set of so many copies ([`Set::copies`]) needs before it takes writes (design, 5.8).
    pub fn write_quorum(&self, copies: u32) -> u32 {
        let options = self.typed_options();
        match options.quorum_type {
            QuorumType::None => 1,
            QuorumType::Fixed => options.quorum_count.clamp(1, u64::from(copies.max(1))) as u32,
            QuorumType::Auto if copies <= 2 => 1,
            QuorumType::Auto => copies / 2 + 1,
        }
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
