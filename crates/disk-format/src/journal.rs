//! A brick's journal: segments `.mortar/journal/<first lsn, 16 hex digits>.seg` of a head and records.
//!
//! Head:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `MRTJ` |
//! | 4 | 4 | version, 1 |
//! | 8 | 4 | brick |
//! | 12 | 4 | epoch of the change before the first record |
//! | 16 | 8 | lsn of the change before the first record |
//! | 24 | 8 | first lsn of the segment before this one, 0 if there was none |
//! | 32 | 8 | CRC-64/NVME of bytes 0 to 31 |
//!
//! Record:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | n: bytes that follow the checksum |
//! | 4 | 8 | CRC-64/NVME of bytes 0 to 3 and the n bytes |
//! | 12 | 4 | epoch |
//! | 16 | 8 | lsn |
//! | 24 | 8+8 | name of the operation: session, number |
//! | 40 | 8 | CRC-64/NVME of the data that came with the change, 0 without data |
//! | 48 | 1 or 17 | the object that the answer is about, if it is about one |
//! | | | the change, as on the wire |

use ids::{BrickId, Fid, Lsn, OpId};
use wire::peer::Stamp;
use wire::{Change, DecodeError, Reader, Wire};

/// The first bytes of a segment.
pub const MAGIC: [u8; 4] = *b"MRTJ";
/// The version written.
pub const VERSION: u32 = 1;
/// Bytes of a segment's head.
pub const HEAD: usize = 40;
/// Bytes of a record before what its length counts.
pub const RECORD_HEAD: usize = 12;
/// The longest record: an attribute's value of 64 KiB, or a path of 512 names, and room to spare.
pub const RECORD_MAX: usize = 1 << 20;
const RECORD_MIN: usize = 38;

/// What a segment says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHead {
    /// The brick.
    pub brick: BrickId,
    /// The last change before the segment.
    pub base: Stamp,
    /// The first lsn of the segment before it, 0 if it began a journal.
    pub previous: Lsn,
}

/// Why a segment's head cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HeadError {
    /// The file ends inside the head.
    #[error("it ends inside its head")]
    Short,
    /// Not a segment.
    #[error("it does not begin with MRTJ: not a journal of Mortar")]
    BadMagic,
    /// Written by a newer Mortar.
    #[error("it has format version {0}, this build knows 1: upgrade this server")]
    Newer(u32),
    /// Changed after it was written.
    #[error("the checksum of its head does not match")]
    Checksum,
}

impl SegmentHead {
    /// The head's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD);
        out.extend_from_slice(&MAGIC);
        VERSION.put(&mut out);
        self.brick.put(&mut out);
        self.base.put(&mut out);
        self.previous.put(&mut out);
        let crc = crate::crc64(&[&out]);
        crc.put(&mut out);
        out
    }

    /// Reads a head off the front of a segment.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHead, HeadError> {
        let (head, _) = bytes.split_at_checked(HEAD).ok_or(HeadError::Short)?;
        let mut r = Reader::new(head);
        let short = |_: DecodeError| HeadError::Short;
        if <[u8; 4]>::get(&mut r).map_err(short)? != MAGIC {
            return Err(HeadError::BadMagic);
        }
        let version = u32::get(&mut r).map_err(short)?;
        let out = SegmentHead {
            brick: Wire::get(&mut r).map_err(short)?,
            base: Wire::get(&mut r).map_err(short)?,
            previous: Wire::get(&mut r).map_err(short)?,
        };
        let crc = u64::get(&mut r).map_err(short)?;
        let (covered, _) = head.split_at_checked(HEAD - 8).ok_or(HeadError::Short)?;
        if version > VERSION {
            return Err(HeadError::Newer(version));
        }
        if crate::crc64(&[covered]) != crc {
            return Err(HeadError::Checksum);
        }
        Ok(out)
    }
}

/// One change in a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Its position.
    pub stamp: Stamp,
    /// The operation that caused it.
    pub op: OpId,
    /// CRC-64/NVME of the data that came with it, 0 if none came.
    pub data_crc: u64,
    /// The object that the operation's answer is about.
    pub result_fid: Option<Fid>,
    /// What was done.
    pub change: Change,
}

/// Why bytes are not a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RecordError {
    /// The bytes end inside the record: a torn tail, if they are the last of the journal.
    #[error("it ends inside the record")]
    Short,
    /// The length is impossible.
    #[error("its length is impossible")]
    Length,
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// Whole, but of unknown content: written by a newer Mortar.
    #[error("its content is unknown here ({0}): upgrade this server")]
    Content(DecodeError),
}

impl Record {
    /// Appends the record's bytes. `change` is borrowed so that the hot path copies nothing.
    pub fn put(
        stamp: &Stamp,
        op: OpId,
        data_crc: u64,
        result_fid: Option<Fid>,
        change: &Change,
        out: &mut Vec<u8>,
    ) {
        let start = out.len();
        out.extend_from_slice(&[0; RECORD_HEAD]);
        stamp.put(out);
        op.put(out);
        data_crc.put(out);
        result_fid.put(out);
        change.put(out);
        let len = u32::try_from(out.len() - start - RECORD_HEAD).unwrap_or(u32::MAX).to_le_bytes();
        let Some((head, body)) = out.get_mut(start..).and_then(|b| b.split_at_mut_checked(RECORD_HEAD))
        else {
            return;
        };
        let crc = crate::crc64(&[&len, body]).to_le_bytes();
        for (to, from) in head.iter_mut().zip(len.iter().chain(crc.iter())) {
            *to = *from;
        }
    }

    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        Record::put(&self.stamp, self.op, self.data_crc, self.result_fid, &self.change, &mut out);
        out
    }

    /// Reads the record at the front of `bytes`; and how many bytes it takes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<(Record, usize), RecordError> {
        let body = checked_body(bytes)?;
        let mut r = Reader::new(body);
        let record = Record::fields(&mut r).map_err(RecordError::Content)?;
        match r.remaining() {
            0 => Ok((record, RECORD_HEAD + body.len())),
            n => Err(RecordError::Content(DecodeError::Trailing(n))),
        }
    }

    fn fields(r: &mut Reader<'_>) -> Result<Record, DecodeError> {
        Ok(Record {
            stamp: Wire::get(r)?,
            op: Wire::get(r)?,
            data_crc: Wire::get(r)?,
            result_fid: Wire::get(r)?,
            change: Wire::get(r)?,
        })
    }
}

fn checked_body(bytes: &[u8]) -> Result<&[u8], RecordError> {
    let mut r = Reader::new(bytes);
    let len = <[u8; 4]>::get(&mut r).map_err(|_| RecordError::Short)?;
    let crc = u64::get(&mut r).map_err(|_| RecordError::Short)?;
    let n = u32::from_le_bytes(len) as usize;
    if !(RECORD_MIN..=RECORD_MAX).contains(&n) {
        return Err(RecordError::Length);
    }
    let body = r.take(n).map_err(|_| RecordError::Short)?;
    if crate::crc64(&[&len, body]) != crc { Err(RecordError::Checksum) } else { Ok(body) }
}

/// What follows a place where no record can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing readable: a write that was under way when the machine or the server stopped.
    Torn,
    /// A whole record follows `skipped` bytes later: something in the middle was damaged.
    Damaged {
        /// Bytes up to the next whole record.
        skipped: usize,
    },
}

/// Tells a torn tail from damage in the middle: `rest` begins where the record after `last` should be.
pub fn classify(rest: &[u8], last: Lsn) -> Rest {
    let mut at = 1;
    while let Some(bytes) = rest.get(at..).filter(|b| b.len() > RECORD_HEAD + RECORD_MIN) {
        // A cheap look at length and lsn first; the checksum only where both are plausible.
        if plausible(bytes, last) && checked_body(bytes).is_ok() {
            return Rest::Damaged { skipped: at };
        }
        at += 1;
    }
    Rest::Torn
}

fn plausible(bytes: &[u8], last: Lsn) -> bool {
    let number = |range: core::ops::Range<usize>| {
        let b = bytes.get(range).unwrap_or_default();
        b.iter().rev().fold(0u64, |n, &b| n << 8 | u64::from(b))
    };
    let (len, lsn) = (number(0..4), number(16..24));
    (RECORD_MIN as u64..=RECORD_MAX as u64).contains(&len)
        && lsn > last.0
        && lsn < last.0.saturating_add(1 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, SessionId, SetId, Time};
    use proptest::prelude::*;

    fn sample(lsn: u64) -> Record {
        Record {
            stamp: Stamp { epoch: Epoch(2), lsn: Lsn(lsn) },
            op: OpId { session: SessionId(5), seq: 6 },
            data_crc: 0,
            result_fid: Some(Fid { set: SetId(1), epoch: Epoch(2), lsn: Lsn(lsn) }),
            change: Change::Fallocate {
                fid: Fid { set: SetId(1), epoch: Epoch(2), lsn: Lsn(lsn) },
                mode: 1,
                offset: 2,
                len: 3,
                time: Time { sec: 4, nsec: 5 },
            },
        }
    }

    #[test]
    fn frozen_bytes() {
        let head =
            SegmentHead { brick: BrickId(3), base: Stamp { epoch: Epoch(1), lsn: Lsn(8) }, previous: Lsn(1) };
        let mut bytes = head.encode();
        bytes.extend(sample(9).encode());
        let frozen = include_bytes!("../testdata/segment.v1.bin");
        assert_eq!(bytes, frozen);
        assert_eq!(SegmentHead::decode(frozen), Ok(head));
        assert_eq!(Record::decode(&frozen[HEAD..]), Ok((sample(9), frozen.len() - HEAD)));
    }

    #[test]
    fn torn_and_damaged_are_told_apart() {
        let mut three: Vec<u8> = (1..=3).flat_map(|n| sample(n).encode()).collect();
        let one = sample(1).encode().len();
        assert_eq!(classify(&three[..one - 1], Lsn(0)), Rest::Torn);
        assert_eq!(classify(&[0; 4096], Lsn(0)), Rest::Torn);
        three[20] ^= 1;
        assert_eq!(Record::decode(&three), Err(RecordError::Checksum));
        assert_eq!(classify(&three, Lsn(0)), Rest::Damaged { skipped: one });
        // A length that was damaged hides nothing either.
        three[0] ^= 0xff;
        assert_eq!(classify(&three, Lsn(0)), Rest::Damaged { skipped: one });
        assert_eq!(classify(&three[..one], Lsn(0)), Rest::Torn);
    }

    proptest! {
        #[test]
        fn round_trip(e: u32, l: u64, s: u64, n: u64, data_crc: u64, result_fid: Option<[u8; 16]>, cut in 0usize..40) {
            let mut r = sample(l);
            r.stamp.epoch = Epoch(e);
            r.op = OpId { session: SessionId(s), seq: n };
            r.data_crc = data_crc;
            r.result_fid = result_fid.map(Fid::from_bytes);
            let bytes = r.encode();
            prop_assert_eq!(Record::decode(&bytes), Ok((r, bytes.len())));
            prop_assert_eq!(Record::decode(&bytes[..bytes.len() - 1 - cut]).err(), Some(RecordError::Short));
            let h = SegmentHead { brick: BrickId(e), base: Stamp { epoch: Epoch(e), lsn: Lsn(l) }, previous: Lsn(n) };
            prop_assert_eq!(SegmentHead::decode(&h.encode()), Ok(h));
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>, at in 0usize..90, flip: u8) {
            let _ = Record::decode(&bytes);
            let _ = SegmentHead::decode(&bytes);
            let _ = classify(&bytes, Lsn(0));
            let mut r = sample(1).encode();
            let at = at.min(r.len() - 1);
            r[at] ^= flip;
            prop_assert_eq!(Record::decode(&r).is_ok(), flip == 0);
        }
    }
}
