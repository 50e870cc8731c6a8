//! Changes: what a primary has decided, with every outcome fixed, so that each brick does just the same.
//!
//! A change is what the journal records and what secondaries receive. Data of [`Change::Write`] travels as payload and is
//! not in the journal.
#![allow(missing_docs, reason = "the fields of the variants carry the names of the operations' arguments")]

use crate::codec::Blob;
use crate::name::Name;
use crate::op::{Ancestor, EntryName, HandedDir, Intent, Node, Successor};
use crate::{wire_enum, wire_struct};
use ids::{Fid, OpId, SetId, Time};
use std::collections::BTreeSet;

wire_struct! {
    /// The object that a rename pushes out.
    pub struct Replaced {
        pub fid: Fid,
        pub dir: bool,
        /// It stays as an orphan: somebody has it open.
        pub orphan: bool,
    }
}

wire_struct! {
    /// A directory, and the times that it keeps.
    pub struct DirTimes {
        pub dir: Fid,
        pub mtime: Time,
        pub ctime: Time,
    }
}

wire_enum! {
    /// A decided change. `time` becomes the ctime (and mtime, where POSIX says so) of what it touches.
    pub enum Change {
        /// Changes nothing: marks a new epoch in the journal.
        1 Nop,
        /// `mode` has the permission bits, after umask. With `home` another set, the entry of a directory that lives there.
        2 Create { parent: Fid, name: Name, fid: Fid, home: SetId, node: Node, mode: u32, uid: u32, gid: u32, time: Time },
        /// With `orphan` the object keeps its data until [`Change::DropOrphan`].
        3 Unlink { parent: Fid, name: Name, fid: Fid, orphan: bool, time: Time },
        4 Rmdir { parent: Fid, name: Name, fid: Fid, time: Time },
        5 Rename { parent: Fid, name: Name, fid: Fid, to_parent: Fid, to_name: Name, replaced: Option<Replaced>, time: Time },
        6 Exchange { parent: Fid, name: Name, fid: Fid, to_parent: Fid, to_name: Name, to_fid: Fid, time: Time },
        7 Link { fid: Fid, parent: Fid, name: Name, time: Time },
        /// `time` is the ctime.
        8 SetAttr {
            fid: Fid,
            mode: Option<u32>,
            uid: Option<u32>,
            gid: Option<u32>,
            size: Option<u64>,
            atime: Option<Time>,
            mtime: Option<Time>,
            time: Time,
        },
        /// The payload at `offset`; `mode` if the write clears setuid or setgid.
        9 Write { fid: Fid, offset: u64, len: u32, mode: Option<u32>, time: Time },
        10 Fallocate { fid: Fid, mode: u32, offset: u64, len: u64, time: Time },
        11 SetXattr { fid: Fid, name: Name, value: Blob, time: Time },
        12 RemoveXattr { fid: Fid, name: Name, time: Time },
        13 CopyRange { from: Fid, from_offset: u64, to: Fid, to_offset: u64, len: u64, time: Time },
        14 DropOrphan { fid: Fid },
        /// Makes directory `fid` under copies of its ancestors, marked pending until [`Change::EndTransaction`].
        15 PrepareMkdir { path: Vec<Ancestor>, name: Name, fid: Fid, mode: u32, uid: u32, gid: u32, time: Time },
        /// Marks an empty directory pending: it takes no new entries.
        16 PrepareRmdir { fid: Fid },
        /// Clears the mark (`keep`) or removes the directory.
        17 EndTransaction { fid: Fid, keep: bool },
        18 Relocate { fid: Fid, path: Vec<Ancestor>, name: Name },
        /// Changes nothing: says that the object may not be what the journal made of it. Who missed this takes it anew.
        19 Touch { fid: Fid },
        /// Changes nothing: stands where a change stood that a brick alone in its set could do only in part. What that brick
        /// has of the objects is what they are. Who missed this takes them anew.
        20 Partial { objects: Vec<Fid> },
        /// Marks a file: its names wait for the end of a transaction with another set. A directory is marked so that is to move
        /// to a directory of another set (docs/design/0019).
        21 PrepareFile { fid: Fid, intent: Intent },
        /// Ends the mark. The file loses the name `drop` and gets the name `add`; neither if the transaction was given up.
        22 EndFile { fid: Fid, drop: Option<EntryName>, add: Option<EntryName>, orphan: bool, time: Time },
        /// Makes the entry of a file that lives on another set (a stub), or of a directory that has moved here from one; `kind`:
        /// type bits of `st_mode`.
        23 Enter { parent: Fid, name: Name, fid: Fid, home: SetId, kind: u32, replaced: Option<Replaced>, time: Time },
        /// Makes an empty file without a name: the copy of a file that moves here from another set.
        24 Arrive { fid: Fid, time: Time },
        /// The entry of a file leads to its copy on another set from now on, and the file goes. The directory has these times,
        /// as before.
        25 Depart { parent: Fid, name: Name, fid: Fid, to: SetId, copy: Fid, kind: u32, mtime: Time, ctime: Time },
        /// All entries of a file lead to its copy on another set from now on, and the file goes. `time`: the ctime of what is
        /// left here. The directories keep their times.
        26 DepartAll { fid: Fid, to: SetId, copy: Fid, kind: u32, names: Vec<EntryName>, time: Time },
        /// Ends the mark of a copy that has arrived: it gets all of its names.
        27 EndCopy { fid: Fid, names: Vec<EntryName>, time: Time },
        /// Marks a file that is to go with the name that it drops: until the end of the transaction nobody reads or changes it.
        28 PrepareLeave { fid: Fid, intent: Intent },
        /// The entry of file `fid` of another set leads to its copy from now on, which has arrived in this set and had no name;
        /// `time`: the ctime of the copy. The directory has these times, as before.
        29 ComeHome { parent: Fid, name: Name, fid: Fid, copy: Fid, mtime: Time, ctime: Time, time: Time },
        /// Marks a file that goes for good: nobody reads or changes it any more. `names`: all that it has, as its set keeps them.
        30 Leave { fid: Fid, tx: OpId, to: SetId, copy: Fid, names: Vec<EntryName> },
        /// These entries of file `fid` lead to its copy from now on, which may have arrived in this set; those in folders of
        /// names go. `time`: the ctime of the copy. The directories have these times, as before.
        31 Redirect { fid: Fid, to: SetId, copy: Fid, kind: u32, names: Vec<EntryName>, dirs: Vec<DirTimes>, time: Time },
        /// A directory that its mark means to move leaves its entry for one of set `to`, which has committed: it lies in lost+found
        /// until it is told its path, and stays marked until that is on disk. `tx`: the transaction that has marked it.
        32 MoveOut { parent: Fid, name: Name, fid: Fid, tx: OpId, to: SetId, to_dir: Fid, to_name: Name, time: Time },
        /// Likewise, of a directory whose entry was another set's: its entry is one of set `to` from now on.
        33 MoveOn { fid: Fid, tx: OpId, to: SetId, to_dir: Fid, to_name: Name, time: Time },
        /// As [`Change::PrepareFile`], of a file or a stub whose entry here leads to `successor` when the transaction has committed.
        34 PrepareExchange { fid: Fid, intent: Intent, successor: Successor },
        /// The set is to answer for this directory of set `from`, which has its entry, and has all that is in it. It is marked, and
        /// nobody is answered about it, until transaction `tx` ends (docs/design/0018).
        35 TakeDir { fid: Fid, tx: OpId, from: SetId, path: Vec<Ancestor>, name: Name, dir: HandedDir },
        /// Set `to` answers for the directory from now on, which is a copy of that set's here.
        36 GiveDir { fid: Fid, to: SetId, time: Time },
        /// As [`Change::PrepareFile`], of a directory whose entry to leave is one of set `from`, which is not the one that made the
        /// directory that the entry is in.
        37 PrepareMove { fid: Fid, intent: Intent, from: SetId },
        /// As [`Change::PrepareMove`], of a directory of the set that has its entry, `from`, which leads to `successor` when the
        /// transaction has committed (docs/design/0019).
        38 PrepareSwap { fid: Fid, intent: Intent, successor: Successor, from: SetId },
        /// An entry leads to `next` from now on and no longer to `out`, where one of the two is a directory. If `out` is the set's own
        /// it stays, without an entry, until the transaction `tx` has ended. `theirs`: the name that `next` has until then in a folder
        /// of names, if it is a file of the set.
        39 Swap { parent: Fid, name: Name, out: Replaced, next: Successor, theirs: Option<EntryName>, tx: OpId, time: Time },
    }
}

/// The directories of names, each of them once.
pub fn directories(names: &[EntryName]) -> BTreeSet<Fid> {
    names.iter().map(|place| place.dir).collect()
}

impl Change {
    /// How much is done, for a change whose answer is that number.
    pub fn amount(&self) -> u64 {
        if let Change::CopyRange { len, .. } = self { *len } else { 0 }
    }

    /// The objects that get another name, beside one that they have or instead of it.
    pub fn named(&self) -> Vec<Fid> {
        match self {
            Change::Link { fid, .. } | Change::Rename { fid, .. } => vec![*fid],
            Change::Exchange { fid, to_fid, .. } => vec![*fid, *to_fid],
            Change::EndFile { fid, add: Some(_), .. } | Change::EndCopy { fid, .. } => vec![*fid],
            Change::ComeHome { copy, .. } | Change::Redirect { copy, .. } => vec![*copy],
            Change::Swap { next, theirs: Some(_), .. } => vec![next.fid],
            _ => vec![],
        }
    }

    /// The objects that the change touches: those whose version becomes its lsn.
    pub fn touched(&self) -> Vec<Fid> {
        match self {
            Change::Nop => vec![],
            Change::Create { parent, fid, .. } => vec![*parent, *fid],
            Change::Unlink { parent, fid, .. }
            | Change::Rmdir { parent, fid, .. }
            | Change::MoveOut { parent, fid, .. }
            | Change::Link { parent, fid, .. } => {
                vec![*parent, *fid]
            }
            Change::Rename { parent, fid, to_parent, replaced, .. } => {
                let mut v = vec![*parent, *to_parent, *fid];
                v.extend(replaced.as_ref().map(|r| r.fid));
                v
            }
            Change::Exchange { parent, fid, to_parent, to_fid, .. } => {
                vec![*parent, *to_parent, *fid, *to_fid]
            }
            Change::SetAttr { fid, .. }
            | Change::Write { fid, .. }
            | Change::Fallocate { fid, .. }
            | Change::SetXattr { fid, .. }
            | Change::RemoveXattr { fid, .. }
            | Change::DropOrphan { fid }
            | Change::Arrive { fid, .. }
            | Change::PrepareMkdir { fid, .. }
            | Change::PrepareRmdir { fid }
            | Change::EndTransaction { fid, .. }
            | Change::MoveOn { fid, .. }
            | Change::Relocate { fid, .. }
            | Change::GiveDir { fid, .. }
            | Change::Touch { fid } => vec![*fid],
            Change::TakeDir { fid, dir, .. } => {
                let held = dir.entries.iter().map(|entry| entry.fid);
                [*fid, fid.names()].into_iter().chain(held).collect()
            }
            Change::PrepareFile { fid, .. }
            | Change::PrepareMove { fid, .. }
            | Change::PrepareExchange { fid, .. }
            | Change::PrepareSwap { fid, .. }
            | Change::PrepareLeave { fid, .. }
            | Change::Leave { fid, .. } => vec![*fid],
            Change::Swap { parent, out, next, theirs, .. } => {
                let dirs = [*parent].into_iter().chain(theirs.as_ref().map(|at| at.dir));
                dirs.chain([out.fid, next.fid]).collect()
            }
            Change::EndFile { fid, drop, add, .. } => {
                let dirs = drop.iter().chain(add).map(|place| place.dir);
                dirs.chain([*fid]).collect()
            }
            Change::Enter { parent, fid, replaced, .. } => {
                [*parent, *fid].into_iter().chain(replaced.as_ref().map(|r| r.fid)).collect()
            }
            Change::Depart { parent, fid, copy, .. } | Change::ComeHome { parent, fid, copy, .. } => {
                vec![*parent, *copy, *fid]
            }
            Change::DepartAll { fid, copy, names, .. } | Change::Redirect { fid, copy, names, .. } => {
                directories(names).into_iter().chain([*copy, *fid]).collect()
            }
            Change::EndCopy { fid, names, .. } => directories(names).into_iter().chain([*fid]).collect(),
            Change::CopyRange { to, .. } => vec![*to],
            Change::Partial { objects } => objects.clone(),
        }
    }

    /// What stands in the journal in place of this change if it was done only in part. Its record is never longer than the
    /// change's own, so that a full disk has room for it.
    pub fn in_part(&self) -> Change {
        match self.touched()[..] {
            [fid] => Change::Touch { fid },
            ref objects => Change::Partial { objects: objects.to_vec() },
        }
    }

    /// Whether the change only says that objects may not be what the journal made of them.
    pub fn is_invalidation(&self) -> bool {
        matches!(self, Change::Touch { .. } | Change::Partial { .. })
    }
}
