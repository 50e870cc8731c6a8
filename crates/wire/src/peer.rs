//! The talk between the bricks of a set.
#![allow(missing_docs, reason = "each variant's own words explain its fields")]

use crate::change::Change;
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
        1 Replicate { stamp: Stamp, commit: Lsn, op: OpId, about: Option<Fid>, change: Change },
        /// Everything up to `lsn` is applied here, up to `durable` on disk; `available` bytes of room are left.
        2 Ack { lsn: Lsn, durable: Lsn, available: u64 },
        /// The change could not be applied: the brick takes itself out.
        3 Failed { lsn: Lsn, errno: i32 },
        /// Bring `fid` (or everything) to disk, with all changes up to `lsn`.
        4 Sync { ticket: u64, lsn: Lsn, fid: Option<Fid> },
        5 Synced { ticket: u64, errno: i32 },
        /// A new primary asks where the others stand.
        6 WhereAreYou,
        /// The last change in the sender's journal.
        7 HereIAm { last: Stamp, durable: Lsn },
    }
}
