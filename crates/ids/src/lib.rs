//! The words of Mortar as types: identities, positions and times. No I/O, no policy.
//!
//! Invariant: two different kinds of number can never be mixed up by the compiler's leave.
#![no_std]

extern crate alloc;

mod set_name;
mod text;
mod user;

pub use set_name::SetName;
pub use text::{Visible, bracketed, excerpt, visible};
pub use user::{KeyUser, NoKeyUser};

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", id!(@before $name), self.0)
            }
        }
    };
    (@before SetId) => { "#" };
    (@before $name:ident) => { "" };
}

id! {
    /// A server of the pool. Allotted by the pool store, never reused (openraft's rule for node ids).
    ServerId(u64)
}
id! {
    /// A volume. Allotted by the pool store, never reused.
    VolumeId(u32)
}
id! {
    /// A set of bricks that hold the same data. Unique in the pool, never reused, 20 bits at most ([`SetId::MAX`]).
    ///
    /// Written with a `#`, so that nobody takes it for the number that users know the set by ([`SetName`]).
    SetId(u32)
}
id! {
    /// A brick. Unique in the pool, never reused: a path that is made a brick again gets a new id.
    BrickId(u32)
}
id! {
    /// The version of a set's view. Messages of an older epoch are refused.
    Epoch(u32)
}
id! {
    /// A position in a set's order of changes. The first change is 1; 0 means "none yet".
    Lsn(u64)
}
id! {
    /// A mounted client as the servers know it: random, chosen by the client for the life of the mount.
    SessionId(u64)
}

id! {
    /// A key by which somebody proves who he is, or a token to join. Allotted by the pool store, never reused.
    KeyId(u64)
}

impl SetId {
    /// The largest set number: inode numbers keep 20 bits for it.
    pub const MAX: SetId = SetId((1 << 20) - 1);
}

impl Lsn {
    /// The position after this one.
    pub fn next(self) -> Lsn {
        Lsn(self.0 + 1)
    }
}

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// A client's name for one operation: a resend carries the same name and is answered, not redone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct OpId {
    /// Who asked.
    pub session: SessionId,
    /// Counts the session's changes from 1; 0 is an operation that changes nothing and needs no name.
    pub seq: u64,
}

/// The identity of a file or directory: where it was born, and which change of that set bore it.
///
/// (set, epoch, lsn) is unique for ever: a set gives an lsn at most once in an epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Fid {
    /// The set that made it. Requests for a fid go there unless its entry names another home.
    pub set: SetId,
    /// The epoch of the change that made it.
    pub epoch: Epoch,
    /// The lsn of the change that made it.
    pub lsn: Lsn,
}

impl Fid {
    /// Bytes of a fid on the wire and on disk.
    pub const SIZE: usize = 16;

    /// The root directory of a volume whose first set is `set`.
    pub fn root(set: SetId) -> Fid {
        Fid { set, epoch: Epoch(0), lsn: Lsn(0) }
    }

    /// Whether this is a volume's root directory.
    pub fn is_root(self) -> bool {
        self.epoch.0 == 0 && self.lsn.0 == 0
    }

    /// The folder in which a home keeps the names that its files have in this directory of another set
    /// (docs/design/0016). No change bears such a fid: lsns do not grow so high.
    pub fn names(self) -> Fid {
        Fid { lsn: Lsn(self.lsn.0 | Fid::NAMES), ..self }
    }

    /// The directory that a folder of names is for; the fid itself of all else.
    pub fn without_names(self) -> Fid {
        Fid { lsn: Lsn(self.lsn.0 & !Fid::NAMES), ..self }
    }

    /// Whether this is a folder of names.
    pub fn is_names(self) -> bool {
        self.lsn.0 & Fid::NAMES != 0
    }

    const NAMES: u64 = 1 << 63;

    /// The inode number that users see: 20 bits of set, 44 bits of lsn; the root is 1.
    ///
    /// Two committed changes of a set never share an lsn, so visible numbers are unique in a volume.
    pub fn ino(self) -> u64 {
        if self.is_root() {
            return 1;
        }
        (u64::from(self.set.0) << 44) | (self.lsn.0 & ((1 << 44) - 1))
    }

    /// The 16 bytes: set, epoch, lsn, little-endian.
    pub fn to_bytes(self) -> [u8; Fid::SIZE] {
        let mut b = [0; Fid::SIZE];
        b[..4].copy_from_slice(&self.set.0.to_le_bytes());
        b[4..8].copy_from_slice(&self.epoch.0.to_le_bytes());
        b[8..].copy_from_slice(&self.lsn.0.to_le_bytes());
        b
    }

    /// The reverse of [`Fid::to_bytes`].
    pub fn from_bytes(b: [u8; Fid::SIZE]) -> Fid {
        let [a0, a1, a2, a3, b0, b1, b2, b3, rest @ ..] = b;
        Fid {
            set: SetId(u32::from_le_bytes([a0, a1, a2, a3])),
            epoch: Epoch(u32::from_le_bytes([b0, b1, b2, b3])),
            lsn: Lsn(u64::from_le_bytes(rest)),
        }
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.set.0, self.epoch, self.lsn)
    }
}

impl fmt::Debug for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A point in time as files carry it: since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Whole seconds, may be negative.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

impl Time {
    /// The smallest time after this one.
    pub fn next(self) -> Time {
        if self.nsec >= 999_999_999 {
            Time { sec: self.sec.saturating_add(1), nsec: 0 }
        } else {
            Time { sec: self.sec, nsec: self.nsec + 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fid_round_trip() {
        let f = Fid { set: SetId(7), epoch: Epoch(3), lsn: Lsn(1 << 40) };
        assert_eq!(Fid::from_bytes(f.to_bytes()), f);
        assert_eq!(f.ino(), (7 << 44) | (1 << 40));
        assert_eq!(Fid::root(SetId(9)).ino(), 1);
    }
}
