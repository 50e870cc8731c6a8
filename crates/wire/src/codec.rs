//! The codec: little-endian, written field by field in the order of declaration, no padding.
//!
//! Numbers as they are; `bool` one byte; bytes and lists a `u32` count and the elements; `Option` one byte 0 or 1 and
//! the value; an enum one byte of tag and its fields. Unknown tags are errors. Tags are never reused.

use core::fmt;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, ServerId, SessionId, SetId, Time, VolumeId};

/// Why bytes could not be read as a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// The input ends inside the value.
    Short,
    /// A tag, flag or version that this build does not know.
    Unknown(&'static str, u32),
    /// A value outside its bounds.
    Bounds(&'static str),
    /// Bytes are left over after the value.
    Trailing(usize),
    /// The checksum does not fit the bytes.
    Checksum,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Short => write!(f, "the message is cut short"),
            DecodeError::Unknown(what, n) => write!(f, "unknown {what} {n}"),
            DecodeError::Bounds(what) => write!(f, "{what} is out of bounds"),
            DecodeError::Trailing(n) => write!(f, "{n} bytes too many"),
            DecodeError::Checksum => write!(f, "the checksum does not match"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads values off the front of a slice.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(*head)
    }

    /// What is left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// A count followed by that many bytes, at most `max`.
    pub fn bytes(&mut self, max: usize, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let n = u32::get(self)? as usize;
        if n > max {
            return Err(DecodeError::Bounds(what));
        }
        self.take(n)
    }
}

/// A value that has bytes.
pub trait Wire: Sized {
    /// Appends the value's bytes.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads the value.
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError>;

    /// The value's bytes alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        self.put(&mut out);
        out
    }

    /// The value of exactly these bytes.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut r = Reader::new(bytes);
        let v = Self::get(&mut r)?;
        match r.remaining() {
            0 => Ok(v),
            n => Err(DecodeError::Trailing(n)),
        }
    }
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok(<$t>::from_le_bytes(r.array()?))
            }
        }
    )*};
}
number!(u8, u16, u32, u64, i32, i64);

macro_rules! newtype {
    ($($t:ident),*) => {$(
        impl Wire for $t {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
                Ok($t(Wire::get(r)?))
            }
        }
    )*};
}
newtype!(ServerId, VolumeId, SetId, BrickId, Epoch, Lsn, SessionId);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match u8::get(r)? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(DecodeError::Unknown("bool", n.into())),
        }
    }
}

impl Wire for Fid {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&Fid::to_bytes(*self));
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Fid::from_bytes(r.array()?))
    }
}

impl Wire for Time {
    fn put(&self, out: &mut Vec<u8>) {
        self.sec.put(out);
        self.nsec.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (sec, nsec) = (i64::get(r)?, u32::get(r)?);
        if nsec > 999_999_999 {
            return Err(DecodeError::Bounds("nanoseconds"));
        }
        Ok(Time { sec, nsec })
    }
}

impl Wire for OpId {
    fn put(&self, out: &mut Vec<u8>) {
        self.session.put(out);
        self.seq.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(OpId { session: Wire::get(r)?, seq: Wire::get(r)? })
    }
}

impl<const N: usize> Wire for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        r.array()
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(v) = self {
            v.put(out);
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::get(r)? { Some(T::get(r)?) } else { None })
    }
}

fn put_count(n: usize, out: &mut Vec<u8>) {
    u32::try_from(n).unwrap_or(u32::MAX).put(out);
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for v in self {
            v.put(out);
        }
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u32::get(r)? as usize;
        // Every element takes at least one byte: a count beyond that is a lie, found before any allocation.
        if n > r.remaining() {
            return Err(DecodeError::Short);
        }
        let mut v = Vec::with_capacity(n.min(4096));
        for _ in 0..n {
            v.push(T::get(r)?);
        }
        Ok(v)
    }
}

/// Plain bytes: a count and the bytes, without a call per byte.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Blob(pub Vec<u8>);

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

impl Wire for Blob {
    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.0.len(), out);
        out.extend_from_slice(&self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let n = u32::get(r)? as usize;
        Ok(Blob(r.take(n)?.to_vec()))
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok((A::get(r)?, B::get(r)?))
    }
}

/// Declares a struct and its bytes: its fields in order.
#[macro_export]
macro_rules! wire_struct {
    ($(#[$m:meta])* pub struct $name:ident { $($(#[$fm:meta])* pub $f:ident: $t:ty,)* }) => {
        $(#[$m])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct $name { $($(#[$fm])* pub $f: $t,)* }

        impl $crate::codec::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::Wire::put(&self.$f, out);)*
                let _ = out;
            }
            fn get(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                $(let $f = $crate::codec::Wire::get(r)?;)*
                let _ = r;
                Ok($name { $($f),* })
            }
        }
    };
}

/// Declares an enum and its bytes: a tag of one byte and the variant's fields in order.
#[macro_export]
macro_rules! wire_enum {
    ($(#[$m:meta])* pub enum $name:ident {
        $($(#[$vm:meta])* $tag:literal $v:ident $({ $($(#[$fm:meta])* $f:ident: $t:ty),* $(,)? })?,)*
    }) => {
        $(#[$m])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "the variant's own words explain its fields")]
        pub enum $name { $($(#[$vm])* $v $({ $($(#[$fm])* $f: $t),* })?,)* }

        impl $name {
            /// The variant's name, for logs.
            pub fn variant(&self) -> &'static str {
                match self {
                    $($name::$v $({ $($f: _),* })? => stringify!($v),)*
                }
            }
        }

        impl $crate::codec::Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$v $({ $($f),* })? => {
                        out.push($tag);
                        $($($crate::codec::Wire::put($f, out);)*)?
                    })*
                }
            }
            fn get(r: &mut $crate::codec::Reader<'_>) -> Result<Self, $crate::codec::DecodeError> {
                match <u8 as $crate::codec::Wire>::get(r)? {
                    $($tag => Ok($name::$v $({ $($f: $crate::codec::Wire::get(r)?),* })?),)*
                    n => Err($crate::codec::DecodeError::Unknown(stringify!($name), n.into())),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Change;
    use crate::name::Name;
    use crate::op::{Call, Op};
    use crate::peer::{PeerBody, PeerMessage, Stamp};
    use proptest::prelude::*;

    fn fid() -> impl Strategy<Value = Fid> {
        (any::<u32>(), any::<u32>(), any::<u64>()).prop_map(|(s, e, l)| Fid {
            set: SetId(s),
            epoch: Epoch(e),
            lsn: Lsn(l),
        })
    }

    fn name() -> impl Strategy<Value = Name> {
        proptest::collection::vec(1u8..=255, 1..=255).prop_filter_map("a name", |b| Name::new(&b).ok())
    }

    proptest! {
        #[test]
        fn calls_come_back(parent in fid(), name in name(), seq in any::<u64>(), offset in any::<u64>()) {
            let ops = [
                Op::Lookup { parent, name: name.clone() },
                Op::Write { fid: parent, offset, append: true, kill_suid: false },
                Op::Unlink { parent, name },
            ];
            for op in ops {
                let id = OpId { session: SessionId(seq), seq };
                let call = Call { set: SetId(1), epoch: Epoch(2), id, finished: seq / 2, op };
                prop_assert_eq!(Call::from_bytes(&call.to_bytes()), Ok(call));
            }
        }

        #[test]
        fn changes_come_back(fid in fid(), name in name(), sec in any::<i64>(), nsec in 0u32..1_000_000_000) {
            let time = Time { sec, nsec };
            let change = Change::SetXattr { fid, name, value: Blob(vec![1, 2, 3]), time };
            let stamp = Stamp { epoch: Epoch(1), lsn: Lsn(9) };
            let body = PeerBody::Replicate { stamp, commit: Lsn(8), op: OpId::default(), result_fid: Some(fid), change };
            let message = PeerMessage { set: SetId(1), from: BrickId(1), to: BrickId(2), epoch: Epoch(1), body };
            prop_assert_eq!(PeerMessage::from_bytes(&message.to_bytes()), Ok(message));
        }

        #[test]
        fn any_bytes_are_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Call::from_bytes(&bytes);
            let _ = PeerMessage::from_bytes(&bytes);
            let _ = crate::Reply::from_bytes(&bytes);
            let _ = crate::map::WatchEvent::from_bytes(&bytes);
            let _ = crate::hello::Hello::from_bytes(&bytes);
        }
    }
}
