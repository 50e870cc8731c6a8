//! What lies on the disks of a server, as bytes: sealed files, brick identities, tags and notes of objects, journals.
//!
//! Owns: the layouts. Byte tables: `docs/formats/brick.md`.
//! Invariant: decoding any bytes gives a value or an error which names what is wrong, never a panic, and never allocates
//! more than the input's own length allows. No I/O here: who reads and writes files is decided above.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::cast_possible_truncation))]

pub mod adoption;
pub mod identity;
pub mod journal;
pub mod marks;
pub mod sealed;
pub mod state;
pub mod tag;
pub mod top;

pub use identity::Identity;
pub use journal::{Record, RecordError, SegmentHead};
pub use marks::Marks;
pub use sealed::SealError;
pub use state::State;
pub use tag::{Tag, TagError};
pub use top::Top;

/// CRC-64/NVME of the parts, one after the other.
pub fn crc64(parts: &[&[u8]]) -> u64 {
    let mut d = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme);
    for p in parts {
        d.update(p);
    }
    d.finalize()
}
