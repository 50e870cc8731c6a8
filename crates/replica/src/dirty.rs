//! What is stale about one object while a brick heals, and the question about it that is under way.

use crate::ranges::Ranges;
use ids::Fid;

/// What is wrong, or may be, with an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dirty {
    /// Attributes and extended attributes.
    pub(crate) meta: bool,
    /// Names of a directory, by their position in its order.
    pub(crate) entries: Ranges,
    /// Data.
    pub(crate) ranges: Ranges,
    /// Data that was compared and differs, or changed while it was compared: to be copied, not compared again.
    pub(crate) differs: Ranges,
    /// What changed since the checksums under way were asked for.
    pub(crate) stale: Ranges,
    /// It did not exist here: whatever is at its place is of no use.
    pub(crate) fresh: bool,
    /// The question under way about it.
    pub(crate) asked: Option<Ask>,
}

impl Dirty {
    pub(crate) fn is_clean(&self) -> bool {
        !self.meta && self.entries.is_empty() && self.ranges.is_empty()
    }

    pub(crate) fn wants_names(&self) -> bool {
        !self.entries.is_empty()
    }

    pub(crate) fn dirty_data(&mut self, start: u64, end: u64) {
        self.ranges.add(start, end);
        if matches!(self.asked, Some(Ask::Sums(..))) {
            self.stale.add(start, end);
        }
    }
}

/// A question to the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// Attributes and all that is small.
    Meta(Fid),
    /// Entries after this position.
    Entries(Fid, u64),
    /// Data.
    Data(Fid, u64, u32),
    /// Checksums of data, to be compared with those of what is here.
    Sums(Fid, u64, u32),
}

impl Ask {
    /// The object asked about.
    pub fn fid(self) -> Fid {
        match self {
            Ask::Meta(fid) | Ask::Entries(fid, _) | Ask::Data(fid, ..) | Ask::Sums(fid, ..) => fid,
        }
    }

    /// Its share of [`crate::heal::WINDOW_BYTES`]. Checksums are read on the primary's disk before the answer comes: so many at
    /// once that a slow disk is not taken for a silent primary.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Ask::Data(_, _, len) => len.into(),
            Ask::Sums(_, _, len) => u64::from(len) / 2,
            Ask::Meta(_) | Ask::Entries(..) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heal::{SUMS_MAX, WINDOW_BYTES};
    use ids::{Epoch, Lsn, SetId};

    /// A disk that reads 10 MB a second answers within 2 s; after 3 s of silence a healing begins anew.
    #[test]
    fn no_more_checksums_are_asked_for_at_once_than_a_slow_disk_reads_in_time() {
        let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let one = Ask::Sums(fid, 0, SUMS_MAX).bytes();
        assert!(WINDOW_BYTES.div_ceil(one) * u64::from(SUMS_MAX) <= 16 << 20);
    }
}
