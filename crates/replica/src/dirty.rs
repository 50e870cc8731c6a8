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

    pub(crate) fn bytes(self) -> u64 {
        if let Ask::Data(_, _, len) = self { u64::from(len) } else { 0 }
    }
}
