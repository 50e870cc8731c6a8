//! Answers to file operations.
#![allow(missing_docs, reason = "the fields carry the names of struct stat and struct statvfs")]

use crate::codec::{Blob, DecodeError, Reader, Wire};
use crate::name::Name;
use crate::op::Ancestor;
use crate::stripes::Layout;
use crate::{wire_enum, wire_struct};
use ids::{Epoch, Fid, SetId, Time};

wire_struct! {
    /// Attributes of a file or directory.
    pub struct Attr {
        pub fid: Fid,
        /// The set that answers for it.
        pub home: SetId,
        /// Type and permission bits, as `st_mode`.
        pub mode: u32,
        pub uid: u32,
        pub gid: u32,
        pub nlink: u32,
        pub rdev: u32,
        pub size: u64,
        /// In units of 512 bytes.
        pub blocks: u64,
        pub atime: Time,
        pub mtime: Time,
        pub ctime: Time,
    }
}

impl Attr {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

wire_struct! {
    /// One entry of a directory page.
    pub struct DirEntry {
        pub name: Name,
        pub fid: Fid,
        pub home: SetId,
        /// Type bits of `st_mode`.
        pub kind: u32,
        /// Continue after this entry with this cookie.
        pub cookie: u64,
        /// Attributes, if they were asked for and this set answers for the object.
        pub attr: Option<Attr>,
    }
}

wire_struct! {
    /// Room and objects of a set, in bytes and counts, of the in-sync brick with the least.
    pub struct Room {
        pub total: u64,
        pub free: u64,
        pub available: u64,
        pub files: u64,
        pub files_free: u64,
    }
}

wire_enum! {
    /// What a successful operation answers. Bulk data travels as the frame's payload.
    pub enum Body {
        1 Done,
        2 Attr { attr: Attr },
        /// The entry leads to an object that another set answers for: ask it for the attributes.
        3 Elsewhere { fid: Fid, home: SetId, kind: u32 },
        /// The frame's payload: file data, a link's target or an attribute's value.
        4 Data,
        5 Page { entries: Vec<DirEntry>, end: bool },
        6 Room { room: Room },
        7 Names { names: Vec<Name> },
        8 Offset { offset: u64 },
        /// A write's size, and the attributes after it.
        9 Written { len: u32, attr: Attr },
        10 Text { text: Blob },
        /// Directories from the one asked about upwards, and the next one if another set answers for it.
        11 Lineage { own: Vec<Fid>, other: Option<(Fid, SetId)> },
        /// Nothing was done: the file, which the session may hold open, lives on from now on as this one, on the set that
        /// gave the fid. It is asked there.
        12 Moved { fid: Fid },
        /// Attributes of those that are told, in the order in which they were asked for.
        13 Attrs { attrs: Vec<Attr> },
        /// Directories and the names of their entries, from the one asked about upwards, as far as the entries are the set's;
        /// and the next one if another set has its entry.
        14 Path { path: Vec<Ancestor>, other: Option<(Fid, SetId)> },
        /// Where the data of a striped file lies, and its attributes.
        40 Stripes { layout: Layout, attr: Attr },
    }
}

wire_enum! {
    /// Why an operation was not done.
    pub enum Fail {
        /// The answer of the file system, as an errno value.
        1 Errno { errno: i32 },
        /// This server does not serve the set in that epoch: learn the view that holds since `epoch` and ask again.
        2 WrongView { epoch: Epoch },
        /// Not now: a transaction or a change of view is under way. Ask again soon.
        3 Busy,
        /// The set has too few bricks in sync to accept changes.
        4 BelowQuorum,
    }
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply(pub Result<Body, Fail>);

impl Reply {
    /// An answer that is an errno.
    pub fn errno(errno: i32) -> Reply {
        Reply(Err(Fail::Errno { errno }))
    }
}

impl Wire for Reply {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.is_ok().put(out);
        match &self.0 {
            Ok(b) => b.put(out),
            Err(e) => e.put(out),
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Reply(if bool::get(r)? { Ok(Body::get(r)?) } else { Err(Fail::get(r)?) }))
    }
}

impl From<crate::Errno> for Fail {
    fn from(e: crate::Errno) -> Fail {
        Fail::Errno { errno: e.0 }
    }
}
