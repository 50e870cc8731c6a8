//! The sealed file: a head, a checksum of head and body, and a body of any bytes.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `MRTF` |
//! | 4 | 4 | kind: four letters that say what the file is |
//! | 8 | 4 | version of the body's format |
//! | 12 | 8 | length of the body |
//! | 20 | 8 | CRC-64/NVME of bytes 0 to 19 and the body |
//! | 28 | | body |

use wire::{Reader, Wire};

/// The first four bytes of every sealed file.
pub const MAGIC: [u8; 4] = *b"MRTF";
/// Bytes before the body.
pub const HEAD: usize = 28;
/// A file's kind, in four letters.
pub type Kind = [u8; 4];

/// Why a sealed file cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealError {
    /// The file ends early.
    #[error("it is cut short: {have} bytes where {need} are needed")]
    TooShort {
        /// Bytes there are.
        have: usize,
        /// Bytes there should be.
        need: usize,
    },
    /// Not one of our files.
    #[error("it does not begin with MRTF: not a file of Mortar")]
    BadMagic,
    /// One of our files, but another than expected.
    #[error("it is a file of another kind ({})", .found.escape_ascii())]
    WrongKind {
        /// What it says it is.
        found: Kind,
    },
    /// Written by a newer Mortar.
    #[error("it has format version {found}, this build knows up to {newest}: upgrade this server")]
    Newer {
        /// The version in the file.
        found: u32,
        /// The newest version known here.
        newest: u32,
    },
    /// More bytes than the head says.
    #[error("{0} bytes follow its end")]
    Trailing(usize),
    /// The bytes were changed after they were written.
    #[error("its checksum does not match: the file is damaged")]
    Checksum,
    /// Whole, but the body makes no sense.
    #[error("its content is not valid: {0}")]
    Content(wire::DecodeError),
}

/// The bytes of a sealed file.
pub fn seal(kind: Kind, version: u32, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEAD + body.len());
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&kind);
    version.put(&mut out);
    (body.len() as u64).put(&mut out);
    let crc = crate::crc64(&[&out, body]);
    crc.put(&mut out);
    out.extend_from_slice(body);
    out
}

/// The version and body of a sealed file of this kind, at most of version `newest`.
///
/// # Errors
/// What is wrong with it.
pub fn open(kind: Kind, newest: u32, bytes: &[u8]) -> Result<(u32, &[u8]), SealError> {
    let short = |need| SealError::TooShort { have: bytes.len(), need };
    let (head, body) = bytes.split_at_checked(HEAD).ok_or(short(HEAD))?;
    let mut r = Reader::new(head);
    let bad = SealError::Content;
    if <[u8; 4]>::get(&mut r).map_err(bad)? != MAGIC {
        return Err(SealError::BadMagic);
    }
    let found = <[u8; 4]>::get(&mut r).map_err(bad)?;
    let version = u32::get(&mut r).map_err(bad)?;
    let len = u64::get(&mut r).map_err(bad)?;
    let crc = u64::get(&mut r).map_err(bad)?;
    if found != kind {
        return Err(SealError::WrongKind { found });
    }
    if version > newest {
        return Err(SealError::Newer { found: version, newest });
    }
    let len = usize::try_from(len).map_err(|_| SealError::Checksum)?;
    if body.len() < len {
        return Err(short(HEAD.saturating_add(len)));
    }
    if body.len() > len {
        return Err(SealError::Trailing(body.len() - len));
    }
    let (covered, _) = head.split_at_checked(HEAD - 8).ok_or(short(HEAD))?;
    if crate::crc64(&[covered, body]) != crc {
        return Err(SealError::Checksum);
    }
    Ok((version, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frozen_bytes() {
        let s = seal(*b"test", 3, b"body");
        assert_eq!(
            s,
            b"MRTFtest\x03\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x2f\xc5\x37\x25\xd8\x60\x54\x19body"
        );
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let s = seal(*b"test", 3, b"body");
        assert_eq!(open(*b"test", 3, &s), Ok((3, &b"body"[..])));
        assert_eq!(open(*b"test", 2, &s), Err(SealError::Newer { found: 3, newest: 2 }));
        assert_eq!(open(*b"else", 3, &s), Err(SealError::WrongKind { found: *b"test" }));
        assert_eq!(open(*b"test", 3, &s[..5]), Err(SealError::TooShort { have: 5, need: HEAD }));
        assert_eq!(open(*b"test", 3, &s[..30]), Err(SealError::TooShort { have: 30, need: 32 }));
        let mut bad = s.clone();
        bad[30] ^= 1;
        assert_eq!(open(*b"test", 3, &bad), Err(SealError::Checksum));
        bad = s.clone();
        bad[0] = 0;
        assert_eq!(open(*b"test", 3, &bad), Err(SealError::BadMagic));
        bad = s;
        bad.push(0);
        assert_eq!(open(*b"test", 3, &bad), Err(SealError::Trailing(1)));
    }

    proptest! {
        #[test]
        fn round_trip(kind: [u8; 4], version: u32, body: Vec<u8>) {
            let sealed = seal(kind, version, &body);
            prop_assert_eq!(open(kind, version, &sealed), Ok((version, &body[..])));
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = open(*b"test", 1, &bytes);
            let mut led = MAGIC.to_vec();
            led.extend_from_slice(b"test");
            led.extend_from_slice(&bytes);
            let _ = open(*b"test", 1, &led);
        }
    }
}
