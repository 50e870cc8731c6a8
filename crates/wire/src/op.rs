//! File operations: what a client asks the primary of a set.
#![allow(missing_docs, reason = "the fields of the variants carry the names of the POSIX arguments")]

pub use crate::counted::COUNTED;
pub use crate::hand_over::{HandedDir, HandedEntry, TAKEN, Taken};

use crate::codec::{Blob, DecodeError, Wire};
use crate::name::Name;
use crate::rights::{Person, Right, Within};
use crate::stripes::Layout;
use crate::{wire_enum, wire_struct};
use ids::{Epoch, Fid, OpId, SessionId, SetId, Time};

wire_struct! {
    /// A request to the primary of a set. Data to write travels as the frame's payload.
    pub struct Call {
        /// The set that is meant.
        pub set: SetId,
        /// The epoch of the view the client routed by.
        pub epoch: Epoch,
        /// The operation's name, for recognising resends.
        pub id: OpId,
        /// All operations of the session up to and including this number are finished: their results may be forgotten.
        pub finished: u64,
        /// What to do.
        pub op: Op,
    }
}

impl Call {
    /// A request that gets its number, and the epoch of the view, when it is sent.
    pub fn unsent(set: SetId, op: Op) -> Call {
        Call { set, epoch: Epoch(0), id: OpId::default(), finished: 0, op }
    }
}

wire_enum! {
    /// What a new directory entry leads to.
    pub enum Node {
        1 File,
        2 Dir,
        3 Symlink { target: Blob },
        4 Fifo,
        5 Socket,
        6 Char { rdev: u32 },
        7 Block { rdev: u32 },
    }
}

impl Node {
    /// The type bits of `st_mode`.
    pub fn type_bits(&self) -> u32 {
        match self {
            Node::File => 0o100_000,
            Node::Dir => 0o040_000,
            Node::Symlink { .. } => 0o120_000,
            Node::Fifo => 0o010_000,
            Node::Socket => 0o140_000,
            Node::Char { .. } => 0o020_000,
            Node::Block { .. } => 0o060_000,
        }
    }
}

wire_enum! {
    /// A time to set.
    pub enum SetTime {
        /// The primary's present time.
        1 Now,
        /// This time.
        2 At { time: Time },
    }
}

wire_struct! {
    /// Attributes to change; `None` leaves one as it is.
    pub struct SetAttr {
        pub mode: Option<u32>,
        pub uid: Option<u32>,
        pub gid: Option<u32>,
        pub size: Option<u64>,
        pub atime: Option<SetTime>,
        pub mtime: Option<SetTime>,
        /// Clear setuid and setgid as a write by an unprivileged user does.
        pub kill_suid: bool,
    }
}

wire_struct! {
    /// One directory above a directory that is placed on another set than its parent.
    pub struct Ancestor {
        pub fid: Fid,
        /// The set that answers for it.
        pub home: SetId,
        pub name: Name,
    }
}

wire_struct! {
    /// A name in a directory.
    pub struct EntryName {
        pub dir: Fid,
        pub name: Name,
    }
}

wire_struct! {
    /// What a transaction of several sets means to do with the names of a file, as the file's home has agreed to it
    /// (docs/design/0016). Directories are those that the home keeps the names in; beside a stub, whose name is to go when the
    /// file has another one, the directory is that of the stub's set (docs/design/0019).
    pub struct Intent {
        /// The transaction; 0 and 0 if it is not told here.
        pub tx: OpId,
        /// The set whose entry decides: that of the name that is added, or else of the name that is dropped. Beside a stub it is
        /// the file's home.
        pub coordinator: SetId,
        pub drop: Option<EntryName>,
        pub add: Option<EntryName>,
    }
}

wire_struct! {
    /// What a name leads to when an exchange between two sets has come about (docs/design/0019).
    pub struct Successor {
        pub fid: Fid,
        /// The set that answers for it.
        pub home: SetId,
        /// Type bits of `st_mode`.
        pub kind: u32,
    }
}

impl Successor {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind & 0o170_000 == 0o040_000
    }
}

impl Intent {
    /// Whether it is kept beside a stub.
    pub fn is_of_stub(&self) -> bool {
        self.add.is_none() && self.drop.as_ref().is_some_and(|drop| !drop.dir.is_names())
    }

    /// The entry that decides, and whether it leads to the file if the transaction has committed. Of a stub it is the name that
    /// the home keeps in its folder of names.
    pub fn decider(&self) -> Option<(EntryName, bool)> {
        let (place, there) = match (&self.add, &self.drop) {
            (Some(add), _) => (add, true),
            (None, Some(drop)) if !drop.dir.is_names() => {
                return Some((EntryName { dir: drop.dir.names(), name: drop.name.clone() }, false));
            }
            (None, Some(drop)) => (drop, false),
            (None, None) => return None,
        };
        Some((EntryName { dir: place.dir.without_names(), name: place.name.clone() }, there))
    }
}

/// The extended attribute of a copy that arrives which says what names it is to get, as [`encode_names`] writes it. Beside a
/// file that is marked to leave under them it says that.
pub const COPY_NAMES: &str = "trusted.mortar.names";

/// What [`COPY_NAMES`] holds: a version, 1, and the names.
pub fn encode_names(names: &[EntryName]) -> Vec<u8> {
    let mut out = vec![1];
    names.to_vec().put(&mut out);
    out
}

/// Reads what [`COPY_NAMES`] holds.
///
/// # Errors
/// What is wrong with it.
pub fn decode_names(bytes: &[u8]) -> Result<Vec<EntryName>, DecodeError> {
    match bytes.split_first() {
        Some((1, rest)) => Wire::from_bytes(rest),
        Some((v, _)) => Err(DecodeError::Unknown("version", (*v).into())),
        None => Err(DecodeError::Short),
    }
}

wire_struct! {
    /// Where a file goes that leaves its set for good, though names in directories of other sets may lead to it still.
    pub struct Leaving {
        pub to: SetId,
        pub copy: Fid,
        /// All of its names, as its set keeps them: those in directories of other sets are in folders of names.
        pub names: Vec<EntryName>,
    }
}

impl Leaving {
    /// What [`COPY_NAMES`] holds beside such a file: a version, 2, and this.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![2];
        self.clone().put(&mut out);
        out
    }

    /// Reads what [`COPY_NAMES`] holds; `None` if it holds names only.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Option<Leaving>, DecodeError> {
        match bytes.split_first() {
            Some((2, rest)) => Wire::from_bytes(rest).map(Some),
            _ => decode_names(bytes).map(|_| None),
        }
    }
}

/// Flags of [`Op::Rename`], as in renameat2(2).
pub mod rename_flags {
    /// Fail with EEXIST if the target exists.
    pub const NOREPLACE: u32 = 1;
    /// Exchange the two entries.
    pub const EXCHANGE: u32 = 2;
}

wire_enum! {
    /// What a session says of the right to grant locks when it asks for it.
    pub enum LockClaim {
        /// It does not have it.
        1 New,
        /// It has it, and its time is not over.
        2 Held,
        /// It had it, and its time ran out.
        3 Expired,
    }
}

wire_enum! {
    /// A file operation.
    pub enum Op {
        1 Lookup { parent: Fid, name: Name },
        2 GetAttr { fid: Fid },
        3 SetAttr { fid: Fid, set: SetAttr },
        /// Makes an entry and what it leads to. With `open` the file counts as opened by the session.
        4 Create { parent: Fid, name: Name, node: Node, mode: u32, umask: u32, uid: u32, gid: u32, open: bool },
        5 Unlink { parent: Fid, name: Name },
        6 Rmdir { parent: Fid, name: Name },
        7 Rename { parent: Fid, name: Name, to_parent: Fid, to_name: Name, flags: u32 },
        8 Link { fid: Fid, parent: Fid, name: Name },
        9 ReadLink { fid: Fid },
        /// The session holds the file open from now on: it outlives its last name.
        10 Open { fid: Fid },
        11 Release { fid: Fid },
        12 Read { fid: Fid, offset: u64, len: u32 },
        /// Writes the frame's payload at `offset`, or at the end with `append`.
        13 Write { fid: Fid, offset: u64, append: bool, kill_suid: bool },
        /// Done when everything acknowledged about the file or directory is on disk on all in-sync bricks.
        14 Fsync { fid: Fid },
        /// Entries after `cookie` (0 = from the start), with attributes if `plus`.
        15 ReadDir { fid: Fid, cookie: u64, plus: bool },
        16 StatFs,
        17 GetXattr { fid: Fid, name: Name },
        18 ListXattr { fid: Fid },
        /// The value is the frame's payload. Flags as in setxattr(2).
        19 SetXattr { fid: Fid, name: Name, flags: u32 },
        20 RemoveXattr { fid: Fid, name: Name },
        /// Mode as in fallocate(2).
        21 Fallocate { fid: Fid, mode: u32, offset: u64, len: u64 },
        /// SEEK_DATA or SEEK_HOLE.
        22 Lseek { fid: Fid, offset: u64, whence: u32 },
        23 CopyRange { from: Fid, from_offset: u64, to: Fid, to_offset: u64, len: u64 },
        /// Everything acknowledged so far in the set is on disk on all in-sync bricks when this is answered.
        24 SyncFs,
        /// To the set of the root: the session alone grants locks on files of the volume from now on, for some time
        /// (docs/design/0024), in this one of its terms.
        25 HoldLocks { term: u64, claim: LockClaim },
        /// This term of the session is over: others may grant locks.
        26 DropLocks { term: u64 },
        /// Attributes of several objects of the set, [`GETATTRS_MAX`](crate::limits::GETATTRS_MAX) at most, as for a page of a
        /// directory of another set. What is gone, moves, or is about to get or lose a name, is left out, and so is what comes
        /// after much that had to be read from the disk.
        27 GetAttrs { fids: Vec<Fid> },

        // Between the primaries of two sets, for operations that touch both (design section 7).
        /// Makes the directory that an entry of another set will lead to; it lives if that entry comes to be.
        40 PrepareMkdir { path: Vec<Ancestor>, name: Name, mode: u32, uid: u32, gid: u32 },
        /// Marks an empty directory as about to lose its entry in another set.
        /// `by`: the session that removes it.
        41 PrepareRmdir { fid: Fid, by: SessionId },
        /// The directory has another path now, which its set asks for ([`Op::PathOf`]). That of the sender may be old, and is not used.
        43 Relocate { fid: Fid, path: Vec<Ancestor>, name: Name },
        /// Does this entry exist, with no transaction about it under way? Then the directory it leads to stays.
        44 CheckEntry { parent: Fid, name: Name, fid: Fid },
        /// Ends transaction `tx` about a marked directory: it stays (its entry exists) or goes. Another transaction's mark
        /// stays. `tx` is the name of the `PrepareMkdir` or `PrepareRmdir`; `None` if the directory's set no longer knows
        /// it.
        45 EndTransaction { fid: Fid, tx: Option<OpId>, keep: bool },
        /// Nobody else moves directories beneath those of other sets, until this is released or has run out.
        46 LockTree { tx: OpId },
        /// The holder needs the lock no more.
        47 UnlockTree { tx: OpId },
        /// Which directories lie above this one, up to the first that another set answers for?
        48 Lineage { fid: Fid },
        /// The home of a file agrees that it loses the name `drop` and gets the name `add`, and changes its names for nobody
        /// else until transaction `tx` ends. Without `fid` the file is the one that `drop` leads to, in a directory of the
        /// home itself; otherwise both names are in directories of the coordinator. `by`: the session that asked for it.
        49 PrepareFile { tx: OpId, coordinator: SetId, fid: Option<Fid>, drop: Option<EntryName>, add: Option<EntryName>, by: SessionId },
        /// Ends transaction `tx` about a file's names: they change as prepared, or stay. Another transaction's end does
        /// nothing. `by`: the session that asked for the transaction; 0 if it is not known.
        50 EndFile { fid: Fid, tx: OpId, commit: bool, by: SessionId },

        // Of clients, to the set of the directory that gets the name.
        /// A rename from a directory of set `from`.
        51 MoveIn { from: SetId, parent: Fid, name: Name, to_parent: Fid, to_name: Name, flags: u32 },
        /// A link to a file of set `home`.
        52 LinkIn { fid: Fid, home: SetId, parent: Fid, name: Name },

        // Of a set's primary that moves a file to another set (docs/design/0018).
        /// Makes an empty file without a name, for the copy of a file that moves here. It goes if it is not written to for a
        /// while and gets no name.
        53 Arrive,
        /// The copy gets the attributes and the length of what it is a copy of.
        54 Land { fid: Fid, mode: u32, uid: u32, gid: u32, size: u64, atime: Time, mtime: Time, ctime: Time },
        /// To the own set: the entry leads to the copy on set `to` from now on, and the file goes, if it is still as it was
        /// copied and nobody has it open.
        55 Depart { parent: Fid, name: Name, fid: Fid, to: SetId, copy: Fid },
        /// Likewise of a file with several names, all of them in directories of the set, or in folders of names.
        56 DepartAll { fid: Fid, to: SetId, copy: Fid, names: Vec<EntryName> },
        /// To the set of the directory in which the file of set `home` has its only name: the entry leads to the copy on set
        /// `to` from now on, which may be the directory's own set.
        57 Retarget { parent: Fid, name: Name, fid: Fid, home: SetId, to: SetId, copy: Fid },
        /// The home of a file agrees that it goes with its only name, `drop`, if it is still as it was copied and nobody has it
        /// open. Nobody reads, opens or changes it until transaction `tx` ends. `by` as for `PrepareFile`.
        58 PrepareLeave { tx: OpId, coordinator: SetId, fid: Fid, copy: Fid, drop: EntryName, by: SessionId },
        /// The file of set `home` has left it: those of these entries of the set's that lead to the file lead to the copy on set
        /// `to` from now on. To the home itself, at the end: its own entries, and its folders of names lose theirs.
        59 Redirect { fid: Fid, home: SetId, to: SetId, copy: Fid, names: Vec<EntryName> },
        /// Of the set of a stub, to the file's home: is the file marked by transaction `tx`?
        60 CheckMark { fid: Fid, tx: OpId },

        // Of clients whose key is for what lies beneath a directory (docs/design/0027).
        /// The file is what `name` leads to in directory `dir` of set `home`. With `open` the session holds it open from now on.
        61 Show { fid: Fid, dir: Fid, name: Name, home: SetId, open: bool },

        // Between the primaries of two sets.
        /// Which entries lead to this directory, from its own upwards, up to the first that is another set's?
        62 PathOf { fid: Fid },
        /// As `PrepareFile`, of the set that has the entry `drop` and does not decide the exchange: it leads to `successor` when the
        /// transaction has committed. Without `fid` the file is one of the set itself, and `add` its new name; otherwise `fid` is
        /// what a stub of the set stands for, and `coordinator` its home.
        63 PrepareExchange { tx: OpId, coordinator: SetId, fid: Option<Fid>, drop: EntryName, add: Option<EntryName>, successor: Successor, by: SessionId },
        /// Has a client the right to this set's part of a rename or of a link? As that user, if one is named; and does it lie
        /// beneath that directory, as the session knows it?
        64 CheckRight { right: Right, user: Option<Person>, within: Option<Within> },
        /// As `CheckEntry`, of a file that transaction `tx` has marked. An entry that is marked to lead to the file when another
        /// transaction has committed is what it is.
        65 CheckOutcome { parent: Fid, name: Name, fid: Fid, tx: OpId },

        // Between the primaries of two sets, for a directory that changes its set (docs/design/0018).
        /// The set is to answer for this directory from the end of transaction `tx` on, which set `from` decides: it has what is in
        /// it. `path` and `name` as for `PrepareMkdir`.
        66 TakeDir { fid: Fid, tx: OpId, from: SetId, path: Vec<Ancestor>, name: Name, dir: HandedDir },
        /// To the own set: set `to` answers for the directory from now on.
        67 GiveDir { fid: Fid, tx: OpId, to: SetId },
        /// Ends that transaction at the set that was to answer for the directory: it does, or does not.
        68 EndTaking { fid: Fid, tx: OpId, keep: bool },
        /// Has the directory been given to set `to`?
        69 CheckGiven { fid: Fid, tx: OpId, to: SetId },

        // Of clients, about striped files (docs/design/0029). `fid`: a piece; of what lies before the layout's base the file itself.
        // `ESTALE`: the layout is another one by now.
        /// Where does the data of this file lie?
        70 Stripes { fid: Fid },
        71 ReadPiece { fid: Fid, generation: u64, offset: u64, len: u32 },
        /// Writes the frame's payload at `offset`.
        72 WritePiece { fid: Fid, generation: u64, offset: u64 },
        /// As `Fallocate`; the length of a piece means nothing.
        73 AllocatePiece { fid: Fid, generation: u64, mode: u32, offset: u64, len: u64 },
        /// To the file's set: all pieces have what was written. The file is at least `end` bytes long from now on. `append`: the
        /// ticket of the [`Op::Append`] that this ends, or 0.
        74 Extend { fid: Fid, generation: u64, end: u64, append: u64, kill_suid: bool },
        /// To the file's set: nobody else appends until the [`Op::Extend`] with this ticket.
        75 Append { fid: Fid, ticket: u64 },

        // Between the primaries of two sets, about striped files.
        /// The piece is read and written by the layout of this generation from now on, which is not older than the one it has.
        76 FencePiece { fid: Fid, generation: u64 },
        /// The piece loses what it has from `end` on, if it has this generation.
        77 TrimPiece { fid: Fid, generation: u64, end: u64 },
        /// Has the piece this generation, and nothing from `end` on?
        78 CheckCut { fid: Fid, generation: u64, end: u64 },
        /// Of a piece's set, to the file's: is the piece one of the file's?
        79 CheckPiece { file: Fid, piece: Fid },
        /// To the own set: the file has this layout from now on.
        80 Stripe { fid: Fid, layout: Layout },

        // Of clients, about striped files.
        /// The attributes of a piece, whose times and size are others whenever its data is.
        81 PieceAttr { fid: Fid, generation: u64 },

        // Between the primaries of two sets.
        /// Of the set that has the entry of a directory, to the directory's: is the entry that of set `set`?
        82 CheckOwner { fid: Fid, set: SetId },
        /// As `CheckOutcome`, of a file. The directory may have changed its set since: the set that is asked asks that one.
        83 CheckName { parent: Fid, name: Name, fid: Fid, tx: OpId },
    }
}

/// The number of the one object that an operation reads or changes.
macro_rules! object {
    ($op:expr) => {
        match $op {
            Op::GetAttr { fid }
            | Op::SetAttr { fid, .. }
            | Op::ReadLink { fid }
            | Op::Open { fid }
            | Op::Show { fid, .. }
            | Op::Release { fid }
            | Op::Read { fid, .. }
            | Op::Write { fid, .. }
            | Op::GetXattr { fid, .. }
            | Op::ListXattr { fid }
            | Op::SetXattr { fid, .. }
            | Op::RemoveXattr { fid, .. }
            | Op::Fallocate { fid, .. }
            | Op::Lseek { fid, .. }
            | Op::Stripes { fid }
            | Op::ReadPiece { fid, .. }
            | Op::PieceAttr { fid, .. }
            | Op::WritePiece { fid, .. }
            | Op::AllocatePiece { fid, .. }
            | Op::Extend { fid, .. }
            | Op::Append { fid, .. } => Some(fid),
            _ => None,
        }
    };
}

impl Op {
    /// The object that a client's operation reads or changes, if that is one object by its number alone. What is about
    /// names or about several objects, and what brings something to disk, has none.
    pub fn object(&self) -> Option<Fid> {
        object!(self).copied()
    }

    /// [`Op::object`], to be changed.
    pub fn object_mut(&mut self) -> Option<&mut Fid> {
        object!(self)
    }

    /// Whether it asks for something to be brought to disk.
    pub fn is_sync(&self) -> bool {
        matches!(self, Op::Fsync { .. } | Op::SyncFs)
    }

    /// Whether the operation changes the set and so needs an [`OpId`] with a number.
    pub fn changes(&self) -> bool {
        !matches!(
            self,
            Op::Lookup { .. }
                | Op::GetAttr { .. }
                | Op::GetAttrs { .. }
                | Op::ReadLink { .. }
                | Op::Open { .. }
                | Op::Show { .. }
                | Op::Release { .. }
                | Op::Read { .. }
                | Op::Fsync { .. }
                | Op::ReadDir { .. }
                | Op::StatFs
                | Op::GetXattr { .. }
                | Op::ListXattr { .. }
                | Op::Lseek { .. }
                | Op::SyncFs
                | Op::CheckEntry { .. }
                | Op::CheckOutcome { .. }
                | Op::CheckMark { .. }
                | Op::CheckRight { .. }
                | Op::CheckGiven { .. }
                | Op::CheckOwner { .. }
                | Op::CheckName { .. }
                | Op::LockTree { .. }
                | Op::UnlockTree { .. }
                | Op::Lineage { .. }
                | Op::PathOf { .. }
                | Op::HoldLocks { .. }
                | Op::DropLocks { .. }
                | Op::Stripes { .. }
                | Op::ReadPiece { .. }
                | Op::PieceAttr { .. }
                | Op::CheckCut { .. }
                | Op::CheckPiece { .. }
        )
    }
}
