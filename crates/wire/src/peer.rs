//! The talk between the bricks of a set.
#![allow(missing_docs, reason = "each variant's own words explain its fields")]

use crate::change::Change;
use crate::codec::Blob;
use crate::name::Name;
use crate::op::Ancestor;
use crate::reply::{Attr, DirEntry};
use crate::{wire_enum, wire_struct};
use ids::{BrickId, Epoch, Fid, Lsn, OpId, SetId};

wire_struct! {
    /// A message between two bricks of a set.
    pub struct PeerMessage {
        pub set: SetId,
        pub from: BrickId,
        pub to: BrickId,
        /// The sender's epoch: messages of older ones are refused, of newer ones wait for the view.
        pub epoch: Epoch,
        pub body: PeerBody,
    }
}

wire_struct! {
    /// A position with the epoch that gave it: two bricks agree up to a position iff they hold the same stamp there.
    pub struct Stamp {
        pub epoch: Epoch,
        pub lsn: Lsn,
    }
}

wire_enum! {
    /// What is said.
    pub enum PeerBody {
        /// Apply this change (data as payload). `commit`: all in-sync bricks have everything up to there.
        1 Replicate { stamp: Stamp, commit: Lsn, op: OpId, result_fid: Option<Fid>, change: Change },
        /// Everything up to `lsn` is applied here, up to `durable` on disk; `available` bytes of room are left.
        2 Ack { lsn: Lsn, durable: Lsn, available: u64 },
        /// The change could not be applied: the brick takes itself out.
        3 Failed { lsn: Lsn, errno: i32 },
        /// Bring `fid` (or everything) to disk, with all changes up to `lsn`.
        4 Sync { ticket: u64, lsn: Lsn, fid: Option<Fid> },
        5 Synced { ticket: u64, errno: i32 },
        /// A new primary asks where the others stand.
        6 StateQuery,
        /// The last change in the sender's journal. It can send those after `kept` with their data.
        7 StateReport { last: Stamp, durable: Lsn, kept: Lsn },
        /// The new primary lacks the changes after this one: they come as [`PeerBody::Replicate`], with their own stamps.
        8 SendTail { after: Stamp },
        /// All in-sync bricks have everything up to there, and no newer change has said so.
        9 Committed { lsn: Lsn },

        // Healing (see crate `replica`, module `heal`).
        /// A brick that is not in sync wants to be: its tree is consistent up to `consistent_to`, its journal up to `held`,
        /// and that holds these epochs, each to the position given. All messages of this join carry its id.
        20 Join { join_id: u64, consistent_to: Lsn, held: Lsn, history: Vec<Stamp> },
        /// Up to `common` both have the same, and their journals agree up to `agree`; the sender's changes after `start`
        /// follow, as [`PeerBody::CatchUp`]. `start` is where the journals part. With `full` the sender's journal does not
        /// reach back to `common`, so everything has to be compared, and the joining brick's journal begins anew at `start`.
        21 JoinAccepted { join_id: u64, common: Stamp, agree: Lsn, start: Stamp, full: bool },
        /// A change that the joining brick missed.
        22 CatchUp { stamp: Stamp, op: OpId, result_fid: Option<Fid>, change: Change },
        /// From here on come the new changes, after this one; questions are answered. `placed` is the last part of what
        /// [`PeerBody::Placed`] tells.
        23 CaughtUp { join_id: u64, last: Stamp, placed: Vec<Fid> },
        /// What is this object like? With `data`, the data of a small file is to come with the answer, unless it is what the
        /// sender has: the XXH3-128 of that is `have`.
        24 AskObject { fid: Fid, data: bool, have: Option<(u64, u64)> },
        /// `at`, in all answers: they stand for what is after this change.
        25 Object { fid: Fid, at: Lsn, object: Option<Object>, data: Sent },
        /// What is in this directory after this position?
        26 AskEntries { fid: Fid, after: u64 },
        /// Entries up to `upto` (to the end if `None`), with the targets of symbolic links.
        27 Entries { fid: Fid, at: Lsn, after: u64, upto: Option<u64>, entries: Vec<DirEntry>, targets: Vec<(Fid, Blob)> },
        /// What is in this file here?
        28 AskData { fid: Fid, offset: u64, len: u32 },
        /// The payload; `end`: the file ends with it or before it.
        29 Data { fid: Fid, at: Lsn, offset: u64, len: u32, end: bool },
        /// Nothing is missing any more.
        30 Healed { join_id: u64, lsn: Lsn },
        /// The file has no data from `offset` on for so many bytes, an answer to questions 28 and 32; `end`: and none after.
        31 Hole { fid: Fid, at: Lsn, offset: u64, len: u64, end: bool },
        /// What are the checksums of this file's data? `ask` comes back with the answer.
        32 AskSums { fid: Fid, offset: u64, len: u32, ask: u64 },
        /// XXH3-128 of the data in pieces of 1 MiB from `offset` on, the last one to the end of the file or of `len`; (0, 0)
        /// for a piece without data. It may be older than this point of the stream by the time since the question.
        33 Sums { fid: Fid, offset: u64, len: u32, ask: u64, end: bool, sums: Vec<(u64, u64)> },
        /// With a full comparison, some of the directories that hang on other sets' directories or lie in lost+found, and of
        /// the files without a name. Some may be told twice, or be gone.
        34 Placed { join_id: u64, placed: Vec<Fid> },
    }
}

wire_enum! {
    /// What came of a small file's data.
    pub enum Sent {
        /// It does not come with this answer.
        0 Nothing,
        /// It is the payload, all of it.
        1 Payload,
        /// The asker has it.
        2 Same,
    }
}

/// Among the attributes of an [`Object`] that is a symbolic link without a name: where it leads.
pub const TARGET: &str = "trusted.mortar.target";

wire_struct! {
    /// An object as a brick has it, but for entries and data.
    pub struct Object {
        pub attr: Attr,
        /// The last change in it.
        pub version: Stamp,
        /// Marks of its tag (see `docs/formats/brick.md`).
        pub flags: u8,
        pub xattrs: Vec<(Name, Blob)>,
        /// Where a directory hangs whose parent lives on another set, or that lies in lost+found: the directories above,
        /// and its name. The path begins in lost+found if the first name is the name of its directory there (see
        /// `docs/formats/brick.md`).
        pub place: Option<(Vec<Ancestor>, Name)>,
    }
}
