//! The commands that change the pool's state, and what each one did.
//!
//! Fields may be added (old records then lack them); they are never renamed or given another meaning.

use std::collections::{BTreeMap, BTreeSet};

use ids::{BrickId, Epoch, KeyId, KeyUser, ServerId, SetId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::{Hosts, Joining, Key, Status, Token};

/// A command under the name its proposer gave it, so that sending it twice applies it once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Proposal {
    /// Drawn at random by the proposer; 0 means "has no name, never compared".
    #[serde(with = "crate::hex")]
    pub id: u128,
    /// What to do.
    pub command: Command,
}

/// A change of the pool's state.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// The first server makes the pool; it becomes server 1.
    InitPool {
        /// 32 hex digits drawn by the first server.
        pool: String,
        /// The first server.
        server: NewServer,
    },
    /// Takes a server into the pool and allots its id.
    AddServer(NewServer),
    /// Lets a server go. Its bricks must be gone.
    RemoveServer {
        /// Which.
        server: ServerId,
        /// Also when it cannot be reached. Checked by whoever proposes; bricks are refused either way.
        #[serde(default)]
        force: bool,
    },
    /// A server that was lost, or lost its state folder, is another one from now on: that takes over its bricks.
    ReplaceServer {
        /// Which is gone.
        server: ServerId,
        /// Who comes in its place, under a new id.
        new: NewServer,
    },
    /// The server listens elsewhere now.
    SetServerAddress {
        /// Which.
        server: ServerId,
        /// "host:port".
        address: String,
    },
    /// Makes a volume of free bricks.
    CreateVolume(NewVolume),
    /// Like [`Command::CreateVolume`], but the first brick of the first set holds data already: it alone is in sync, and the
    /// other bricks of that set are filled from it.
    AdoptVolume(NewVolume),
    /// Gives a volume more sets, of its own shape.
    AddBricks(NewBricks),
    /// Gives a brick's place in its set to another one.
    ReplaceBrick(NewBrick),
    /// Gives each set of a volume further bricks.
    AddCopies(MoreCopies),
    /// Takes bricks out of each set of a volume.
    RemoveCopies(FewerCopies),
    /// Lets it be mounted.
    StartVolume {
        /// Its name.
        name: String,
    },
    /// Ends its service; nothing is lost.
    StopVolume {
        /// Its name.
        name: String,
    },
    /// Forgets the volume and frees its bricks; what they hold stays where it is.
    DeleteVolume {
        /// Its name.
        name: String,
    },
    /// Forgets the volume as far as anybody is served, and remembers what it was made of; its bricks stay whole.
    RetireVolume {
        /// Its name.
        name: String,
    },
    /// Makes a volume that was retired again.
    ImportVolume {
        /// Its number.
        volume: VolumeId,
        /// Its bricks that are there.
        present: BTreeSet<BrickId>,
    },
    /// A volume that was retired cannot come back.
    ForgetRetired {
        /// Its number.
        volume: VolumeId,
    },
    /// Sets and resets options, all or none.
    SetOptions {
        /// In this order.
        changes: Vec<OptionChange>,
    },
    /// Brings volumes to what a configuration document says, all or none.
    ApplyConfig {
        /// The volumes it speaks of; others stay as they are.
        volumes: Vec<ConfigVolume>,
        /// As in [`NewBricks`], for volumes that are new or get more bricks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expect_brick: Option<BrickId>,
    },
    /// Compare-and-set of one set's view.
    ChangeView(ViewChange),
    /// A server's lease ran out: it leaves all views.
    ServerDown {
        /// Which.
        server: ServerId,
    },
    /// A brick failed on a server that lives.
    BrickFailed {
        /// Which.
        brick: BrickId,
        /// For the log and the status.
        #[serde(default)]
        reason: String,
    },
    /// A brick was opened; its file system is mounted there.
    BrickMounted {
        /// Which.
        brick: BrickId,
        /// The highest directory of its file system.
        mount: String,
    },
    /// Records who votes now. The agreement itself changes in the store.
    SetVoters {
        /// All voters; everybody else is a learner.
        voters: BTreeSet<ServerId>,
    },
    /// The pool goes on from one server's copy: all others are marked lost, and numbers go on where the others cannot
    /// have come to.
    RecoverPool {
        /// Who goes on.
        server: ServerId,
    },
    /// Lets a key in.
    AddKey(Key),
    /// Lets a key in no more.
    RevokeKey {
        /// Which.
        key: KeyId,
    },
    /// Another key for the same holder, with the same limits.
    RotateKey {
        /// The old one.
        key: KeyId,
        /// When the new one was made, as in [`Key`].
        created: u64,
        /// When the old one ends, in seconds since 1970.
        end: u64,
        /// The users of the new one, the same whose groups were looked up again; empty: they and their groups are the old one's.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        users: Vec<KeyUser>,
    },
    /// Connections without a key are refused from now on.
    SecurePool {
        /// The key of each server.
        keys: BTreeMap<ServerId, KeyId>,
    },
    /// Servers are going to believe this authority, too, and no other one that was announced before and signs nothing yet.
    AnnounceAuthority {
        /// Its fingerprint, 64 hex digits.
        next: String,
    },
    /// All servers believe another authority, too, which was announced: it signs keys from now on.
    BeginAuthority {
        /// Its fingerprint, 64 hex digits.
        next: String,
    },
    /// It is the only one, and no server believes the one before any more.
    EndAuthority {
        /// Its fingerprint.
        next: String,
    },
    /// Makes a token with which a server joins.
    AddToken {
        /// The token.
        token: Token,
        /// The time by the clock of the proposer, in seconds since 1970.
        now: u64,
    },
    /// A server joins with a token.
    JoinServer(Joining),
    /// Events are sent there from now on.
    SetWebhook {
        /// `http://` or `https://`, host and path; `None`: nowhere.
        url: Option<String>,
        /// The time by the clock of the proposer, in milliseconds since 1970; programs of before say none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_ms: Option<u64>,
    },
    /// Hosts that options name have been looked up.
    NoteHosts {
        /// The addresses of those that are new or have others than before.
        hosts: Hosts,
    },
    /// No server is of a lower level: all have said so.
    RaiseLevel {
        /// See [`crate::LEVEL`].
        level: u32,
    },
    /// An administrator gives up what only other bricks hold: the set goes on with this one alone.
    Promote {
        /// Which set.
        set: SetId,
        /// The epoch the administrator's command was checked in; any other refuses it.
        expect_epoch: Epoch,
        /// Who goes on.
        brick: BrickId,
    },
}

/// A server as it comes in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewServer {
    /// 32 hex digits from its state folder.
    pub identity: String,
    /// The name it was probed by.
    pub host: String,
    /// "host:port".
    pub address: String,
}

/// A volume to be made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewVolume {
    /// Its name.
    pub name: String,
    /// Bricks in each set.
    pub replica: u32,
    /// 0 or 1: the last brick of each set is an arbiter.
    #[serde(default)]
    pub arbiter: u32,
    /// Set after set.
    pub bricks: Vec<BrickSpec>,
    /// Allows two bricks of one set on one server.
    #[serde(default)]
    pub force: bool,
    /// Seconds since 1970: the times that its root directory begins with.
    #[serde(default)]
    pub created: u64,
    /// As in [`NewBricks`]; `None`: its directories are not bricks yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_brick: Option<BrickId>,
    /// The options that it begins with. A program of a level below [`crate::NEW_VOLUMES_HAVE_OPTIONS`] leaves them out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, String>,
}

/// Bricks for a volume that exists.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewBricks {
    /// The volume's name.
    pub volume: String,
    /// Set after set.
    pub bricks: Vec<BrickSpec>,
    /// Allows two bricks of one set on one server.
    #[serde(default)]
    pub force: bool,
    /// The number that the first of them gets: their directories were made bricks with these numbers. If it was given to
    /// another brick meanwhile the command is refused.
    pub expect_brick: BrickId,
}

/// A brick that is to take another one's place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NewBrick {
    /// Of which set.
    pub set: SetId,
    /// The epoch the administrator's command was checked in; any other refuses it.
    pub expect_epoch: Epoch,
    /// Which brick goes.
    pub old: BrickId,
    /// Where the new one is to be.
    pub new: BrickSpec,
    /// Also if the set has a copy less until the new one is healed.
    #[serde(default)]
    pub force: bool,
}

/// Further copies of all that a volume holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MoreCopies {
    /// The volume's name.
    pub volume: String,
    /// How many bricks each set is to have, more than now.
    pub replica: u32,
    /// How many of them are arbiters.
    #[serde(default)]
    pub arbiter: u32,
    /// Those of the first set, then those of the next; an arbiter comes last.
    pub bricks: Vec<BrickSpec>,
}

/// Fewer copies of all that a volume holds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FewerCopies {
    /// The volume's name.
    pub volume: String,
    /// How many bricks each set is to have, fewer than now.
    pub replica: u32,
    /// Those that go, from each set as many.
    pub bricks: Vec<BrickSpec>,
    /// Also if bricks that stay are not in sync.
    #[serde(default)]
    pub force: bool,
}

/// Where a brick is to be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BrickSpec {
    /// On which server.
    pub server: ServerId,
    /// The directory.
    pub path: String,
}

/// One option of one volume.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OptionChange {
    /// The volume's name.
    pub volume: String,
    /// The option.
    pub key: String,
    /// The new value; `None` takes it back to its default.
    #[serde(default)]
    pub value: Option<String>,
}

/// What a configuration document says of one volume, its hosts resolved to servers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConfigVolume {
    /// The volume, as it is to be made if the pool has none of that name.
    pub volume: NewVolume,
    /// `Started` or not; `None` leaves that as it is.
    #[serde(default)]
    pub status: Option<Status>,
    /// All options that differ from their defaults: what is not here is reset.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
}

/// A proposed view.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ViewChange {
    /// Of which set.
    pub set: SetId,
    /// The epoch the proposer acts on; any other refuses the change.
    pub expect_epoch: Epoch,
    /// Who is to lead.
    pub primary: Option<BrickId>,
    /// Who is to be in sync.
    pub in_sync: BTreeSet<BrickId>,
    /// The proposer's word that these hold everything now. Only they may come in.
    #[serde(default)]
    pub healed: BTreeSet<BrickId>,
    /// Who stays may have lost what was not synced: no brick came through whole.
    #[serde(default)]
    pub lost: bool,
    /// For the log.
    #[serde(default)]
    pub reason: String,
}

/// What a command did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It is done, and there is no more to say.
    Done,
    /// The server's id.
    Server(ServerId),
    /// The volume's id.
    Volume(VolumeId),
    /// The number of the key or token.
    Key(KeyId),
    /// A server joined.
    Joined {
        /// Its number.
        server: ServerId,
        /// Its key's.
        key: KeyId,
    },
    /// The sets whose views changed, with their new epochs.
    Views(Vec<(SetId, Epoch)>),
}
