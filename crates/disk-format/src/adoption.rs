//! The attributes that say how far the adoption of an object has come (docs/design/0020): a byte 1, the version, then what
//! the structs here say.

use ids::{Fid, SetId, Time};
use wire::{DecodeError, Wire};

/// The attribute of a folder in `.mortar/foreign` that says where the object in it belongs: a [`Parent`].
pub const PLACE: &str = "trusted.mortar.place";
/// The attribute of an object that says what became of it: a [`Became`].
pub const ADOPTED: &str = "trusted.mortar.adopted";

const VERSION: u8 = 1;

wire::wire_struct! {
    /// A directory of the volume.
    pub struct Parent {
        /// The directory.
        pub dir: Fid,
        /// The set that answers for it.
        pub home: SetId,
    }
}

wire::wire_struct! {
    /// What an object became.
    #[derive(Copy)]
    pub struct Became {
        /// The new object.
        pub fid: Fid,
        /// The set that answers for it.
        pub home: SetId,
        /// When the old one was read last.
        pub atime: Time,
        /// When the old one was changed last.
        pub mtime: Time,
    }
}

impl Parent {
    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads the attribute's value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Parent, DecodeError> {
        decode(bytes)
    }
}

impl Became {
    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads the attribute's value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Became, DecodeError> {
        decode(bytes)
    }
}

fn encode(what: &impl Wire) -> Vec<u8> {
    let mut out = vec![VERSION];
    what.put(&mut out);
    out
}

fn decode<T: Wire>(bytes: &[u8]) -> Result<T, DecodeError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Wire::from_bytes(rest),
        Some((v, _)) => Err(DecodeError::Unknown("version", (*v).into())),
        None => Err(DecodeError::Short),
    }
}
