//! What each object carries: the extended attribute `trusted.mortar.id`.
//!
//! 58 bytes, so that name and value just fit into the spare room of a 256-byte ext4 inode (96 bytes) and one call writes
//! all.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version: 1, and 2 for a stub |
//! | 1 | 1 | flags: 1 pending, 2 orphan; the upper four bits are those of a stub's kind, zero for all else; others zero |
//! | 2 | 16 | fid |
//! | 18 | 4 | home: the set that answers for it |
//! | 22 | 4 | epoch of the last change |
//! | 26 | 8 | lsn of the last change |
//! | 34 | 8 | ctime, seconds |
//! | 42 | 4 | ctime, nanoseconds |
//! | 46 | 8 | atime, seconds |
//! | 54 | 4 | atime, nanoseconds |
//!
//! The time of access is kept here because the file's own moves when anybody reads the brick, a backup for instance.

use ids::{Fid, SetId, Time};
use wire::op::{Intent, Successor};
use wire::peer::Stamp;
use wire::{DecodeError, Reader, Wire};

/// The attribute's name.
pub const XATTR: &str = "trusted.mortar.id";
/// All names that belong to Mortar begin so.
pub const PREFIX: &[u8] = b"trusted.mortar.";
/// The version written, but for stubs.
pub const VERSION: u8 = 1;
/// The version written for stubs: an older build must not take one for a file.
pub const STUB_VERSION: u8 = 2;
/// The attribute of a file whose names a transaction is about: [`wire::op::Intent`] behind a byte, 1. When the transaction has
/// ended the byte is 2, and the stamp of the change that ended it is between the two. Where the name that is dropped leads to
/// something else then, a [`wire::op::Successor`] is before the intent, and the byte is 3, or 4 when it has ended. Beside a
/// directory the set that has the entry to leave is before the intent, and the byte 5, if that is not the set that made the
/// directory which has the entry. With a successor, which comes behind that set, the byte is 6.
pub const INTENT: &str = "trusted.mortar.intent";
/// Bytes of the value.
pub const SIZE: usize = 58;

/// Flag: a directory that waits for its entry on another set to come or go, and takes no entries; a file whose names wait for
/// the end of a transaction.
pub const PENDING: u8 = 1;
/// Flag: it has no name any more and lives on only for those who hold it open.
pub const ORPHAN: u8 = 2;

/// Where the flags hold the kind of a stub.
const KIND_SHIFT: u32 = 4;
const KIND_BITS: u8 = 0xf0;

/// The flags of a stub for an object of this kind, type bits of `st_mode`.
pub fn stub_flags(kind: u32) -> u8 {
    u8::try_from(kind >> 12 & 0xf).unwrap_or(0) << KIND_SHIFT
}

/// What the attribute [`INTENT`] holds of a transaction that has not ended, and leaves nothing under the name that is dropped.
pub fn encode_intent(intent: &Intent) -> Vec<u8> {
    let mut out = vec![1];
    intent.put(&mut out);
    out
}

/// What the attribute [`INTENT`] says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meant {
    /// What the transaction does, or has done.
    pub intent: Intent,
    /// What the dropped name leads to when it has committed; `None`: to nothing.
    pub successor: Option<Successor>,
    /// The change that has ended it.
    pub ended: Option<Version>,
    /// The set that has the entry which a directory is to leave, if its fid does not say so, or another one takes its place. It has
    /// not ended then: the mark of a directory ends otherwise.
    pub from: Option<SetId>,
}

impl Meant {
    /// What the attribute holds.
    pub fn encode(&self) -> Vec<u8> {
        if let Some(from) = self.from {
            let mut out = vec![5 + u8::from(self.successor.is_some())];
            from.put(&mut out);
            self.successor.iter().for_each(|successor| successor.put(&mut out));
            self.intent.put(&mut out);
            return out;
        }
        let version = 1 + u8::from(self.ended.is_some()) + 2 * u8::from(self.successor.is_some());
        let mut out = vec![version];
        if let Some(at) = self.ended {
            at.epoch.put(&mut out);
            at.lsn.put(&mut out);
        }
        self.successor.iter().for_each(|successor| successor.put(&mut out));
        self.intent.put(&mut out);
        out
    }
}

/// Reads what the attribute [`INTENT`] holds.
///
/// # Errors
/// What is wrong with it.
pub fn decode_intent(bytes: &[u8]) -> Result<Meant, DecodeError> {
    let mut r = Reader::new(bytes);
    let version = u8::get(&mut r)?;
    if !(1..=6).contains(&version) {
        return Err(DecodeError::Unknown("version", version.into()));
    }
    let ended = match version {
        2 | 4 => Some(Version { epoch: Wire::get(&mut r)?, lsn: Wire::get(&mut r)? }),
        _ => None,
    };
    let from = if matches!(version, 5 | 6) { Some(Wire::get(&mut r)?) } else { None };
    let successor = if matches!(version, 3 | 4 | 6) { Some(Wire::get(&mut r)?) } else { None };
    let intent = Wire::get(&mut r)?;
    match r.remaining() {
        0 => Ok(Meant { intent, successor, ended, from }),
        n => Err(DecodeError::Trailing(n)),
    }
}

// Magic, entry head and name, value, end mark: ext4's sums for the room behind a 256-byte inode with 32 extra bytes.
const _: () = assert!(4 + 16 + 12 + SIZE.next_multiple_of(4) + 4 <= 96);

/// An object's identity, and how far it has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// [`PENDING`] and [`ORPHAN`], and the kind of a stub.
    pub flags: u8,
    /// Who it is.
    pub fid: Fid,
    /// The set that answers for it; on another set's brick it is a copy of a directory there.
    pub home: SetId,
    /// The last change that is in it.
    pub version: Version,
    /// When it last changed, as the set's primary saw it.
    pub ctime: Time,
    /// The time of access, as it was last set.
    pub atime: Time,
}

/// A [`Stamp`] that can be copied and compared: later changes are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Version {
    /// The epoch.
    pub epoch: ids::Epoch,
    /// The position.
    pub lsn: ids::Lsn,
}

impl From<&Stamp> for Version {
    fn from(s: &Stamp) -> Version {
        Version { epoch: s.epoch, lsn: s.lsn }
    }
}

impl From<Version> for Stamp {
    fn from(s: Version) -> Stamp {
        Stamp { epoch: s.epoch, lsn: s.lsn }
    }
}

/// Why a tag cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TagError {
    /// Written by a newer Mortar.
    #[error("the tag has version {0}, this build knows 1 and 2: upgrade this server")]
    Newer(u8),
    /// Not a tag.
    #[error("the tag is damaged: {0}")]
    Damaged(DecodeError),
}

impl Tag {
    /// If it is the tag of a stub, the type bits of the object that it stands for.
    pub fn stub_kind(&self) -> Option<u32> {
        let kind = u32::from(self.flags >> KIND_SHIFT) << 12;
        (kind != 0).then_some(kind)
    }

    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SIZE);
        let version = if self.stub_kind().is_some() { STUB_VERSION } else { VERSION };
        version.put(&mut out);
        self.flags.put(&mut out);
        self.fid.put(&mut out);
        self.home.put(&mut out);
        self.version.epoch.put(&mut out);
        self.version.lsn.put(&mut out);
        self.ctime.put(&mut out);
        self.atime.put(&mut out);
        out
    }

    /// Reads the attribute's value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Tag, TagError> {
        match bytes.first() {
            Some(&(VERSION | STUB_VERSION)) => {}
            Some(&v) if v > STUB_VERSION => return Err(TagError::Newer(v)),
            _ => return Err(TagError::Damaged(DecodeError::Short)),
        }
        Tag::fields(bytes).map_err(TagError::Damaged)
    }

    fn fields(bytes: &[u8]) -> Result<Tag, DecodeError> {
        let mut r = Reader::new(bytes);
        let version = u8::get(&mut r)?;
        let flags = u8::get(&mut r)?;
        let stub = flags & KIND_BITS != 0;
        if flags & !(PENDING | ORPHAN | KIND_BITS) != 0 || stub != (version == STUB_VERSION) {
            return Err(DecodeError::Unknown("flag", flags.into()));
        }
        let tag = Tag {
            flags,
            fid: Wire::get(&mut r)?,
            home: Wire::get(&mut r)?,
            version: Version { epoch: Wire::get(&mut r)?, lsn: Wire::get(&mut r)? },
            ctime: Wire::get(&mut r)?,
            atime: Wire::get(&mut r)?,
        };
        match r.remaining() {
            0 => Ok(tag),
            n => Err(DecodeError::Trailing(n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};
    use proptest::prelude::*;

    #[test]
    fn frozen_bytes() {
        let t = Tag {
            flags: PENDING,
            fid: Fid { set: SetId(1), epoch: Epoch(2), lsn: Lsn(3) },
            home: SetId(4),
            version: Version { epoch: Epoch(5), lsn: Lsn(6) },
            ctime: Time { sec: -7, nsec: 8 },
            atime: Time { sec: 9, nsec: 10 },
        };
        let frozen =
            b"\x01\x01\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\
            \x05\x00\x00\x00\x06\x00\x00\x00\x00\x00\x00\x00\xf9\xff\xff\xff\xff\xff\xff\xff\x08\x00\x00\x00\
            \x09\x00\x00\x00\x00\x00\x00\x00\x0a\x00\x00\x00";
        assert_eq!(t.encode(), frozen);
        assert_eq!(frozen.len(), SIZE);
        assert_eq!(Tag::decode(frozen), Ok(t));
        assert_eq!(Tag::decode(b"\x03"), Err(TagError::Newer(3)));
        let stub = Tag { flags: stub_flags(0o120_000), ..t };
        assert_eq!((stub.stub_kind(), stub.encode().first().copied()), (Some(0o120_000), Some(2)));
        assert_eq!(t.stub_kind(), None);
        let mut mixed = stub.encode();
        mixed[0] = 1;
        assert!(Tag::decode(&mixed).is_err(), "an older version has no stubs");
    }

    proptest! {
        #[test]
        fn round_trip(flags in 0u8..4, kind in 0u32..16, fid: [u8; 16], home: u32, e: u32, l: u64, sec: i64, nsec in 0u32..1_000_000_000) {
            let t = Tag {
                flags: flags | stub_flags(kind << 12), fid: Fid::from_bytes(fid), home: SetId(home),
                version: Version { epoch: Epoch(e), lsn: Lsn(l) }, ctime: Time { sec, nsec }, atime: Time { sec: nsec.into(), nsec },
            };
            prop_assert_eq!(Tag::decode(&t.encode()), Ok(t));
        }

        #[test]
        fn any_bytes(mut bytes: Vec<u8>) {
            let _ = Tag::decode(&bytes);
            bytes.insert(0, 1);
            let _ = Tag::decode(&bytes);
        }
    }
}
