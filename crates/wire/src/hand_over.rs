//! Directories that another set is to answer for, as sets tell each other of them and as bricks keep it.

use crate::codec::{Blob, DecodeError, Wire};
use crate::name::Name;
use crate::wire_struct;
use ids::{Fid, OpId, SetId, Time};

wire_struct! {
    /// An entry of a directory that another set is to answer for.
    pub struct HandedEntry {
        /// Its name.
        pub name: Name,
        /// What it leads to.
        pub fid: Fid,
        /// The set that answers for that.
        pub home: SetId,
        /// Type bits of `st_mode`.
        pub kind: u32,
    }
}

wire_struct! {
    /// A directory that another set is to answer for, with all that is in it (docs/design/0018).
    pub struct HandedDir {
        /// Permission bits.
        pub mode: u32,
        /// Its owner.
        pub uid: u32,
        /// Its group.
        pub gid: u32,
        /// When it was read last.
        pub atime: Time,
        /// When its entries changed last.
        pub mtime: Time,
        /// When anything of it changed last.
        pub ctime: Time,
        /// Its extended attributes, access lists among them.
        pub xattrs: Vec<(Name, Blob)>,
        /// Its entries.
        pub entries: Vec<HandedEntry>,
    }
}

wire_struct! {
    /// What is kept beside a directory as long as it is not certain that its new set answers for it.
    pub struct Taken {
        /// The transaction.
        pub tx: OpId,
        /// The set that answers for it otherwise. It has the directory's entry.
        pub from: SetId,
    }
}

/// The extended attribute of a directory that says so: a version, 1, and [`Taken`].
pub const TAKEN: &str = "trusted.mortar.taken";

impl Taken {
    /// What [`TAKEN`] holds.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![1];
        self.put(&mut out);
        out
    }

    /// Reads what [`TAKEN`] holds.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Taken, DecodeError> {
        match bytes.split_first() {
            Some((1, rest)) => Wire::from_bytes(rest),
            Some((v, _)) => Err(DecodeError::Unknown("version", (*v).into())),
            None => Err(DecodeError::Short),
        }
    }
}
