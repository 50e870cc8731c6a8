//! The end of a journal after a power cut.
//!
//! The kernel writes the pages of different segments in any order. What was not synced may so be missing in an older
//! segment and be there in a newer one. Beyond the durable position that is no damage: the journal ends where the first
//! record is missing, and what lies behind serves only to name objects whose content is stale.
//!
//! Of segments that were removed a power cut may leave any. What lies before a gap is such a remnant: a journal may lose its
//! beginning at any time.

use super::{Journal, name};
use crate::error::JournalError;
use disk_format::journal::{HEAD, HeadError};
use disk_format::{Record, RecordError, SegmentHead};
use ids::{Fid, Lsn};
use wire::peer::Stamp;

/// Where a journal ends although files go on.
pub(super) struct Tear {
    /// The segment in which the first record is missing.
    segment: Lsn,
    /// Where in it; before the end of its head nothing of the segment counts.
    at: usize,
    /// Objects that the records behind name.
    pub(super) touched: Vec<Fid>,
    /// Bytes behind.
    pub(super) bytes: u64,
}

/// How far a segment can be read.
struct Readable {
    last: Stamp,
    /// The first byte that is no record; `None`: all are.
    ends: Option<usize>,
}

impl Journal {
    /// Looks for the first record that is missing. All up to `durable` must be there: where it is not, that is damage, which
    /// is left to those who read the journal next.
    pub(super) fn find_tear(&self, durable: &Stamp) -> Result<Option<Tear>, JournalError> {
        let start = self.segments.range(..=durable.lsn).next_back().map_or(Lsn(0), |(first, _)| *first);
        let mut before: Option<(Lsn, Stamp)> = None;
        for &first in self.segments.range(start..).map(|(first, _)| first) {
            let bytes = self.load(first)?;
            let follows = |h: &SegmentHead| {
                before.as_ref().is_none_or(|(segment, last)| h.previous == *segment && h.base == *last)
            };
            let head = match SegmentHead::decode(&bytes) {
                Ok(h) if h.brick != self.brick => return Ok(None),
                Err(HeadError::Newer(_)) => return Ok(None),
                Ok(h) if h.base.lsn.next() == first => Some(h),
                Ok(_) | Err(_) => None,
            };
            let is_whole = head.is_some();
            let Some(head) = head.filter(follows) else {
                // Older segments may have been dropped. What this one begins with is named by its file.
                let named = Lsn(first.0.saturating_sub(1));
                let whole = before.as_ref().map_or(named, |(_, last)| last.lsn);
                if whole >= durable.lsn {
                    return self.tear(first, 0).map(Some);
                }
                // The journal was being begun anew there, and of the one before something is left that ends earlier.
                let anew = !is_whole && whole < named && named >= durable.lsn;
                let oldest = self.segments.keys().next().copied().unwrap_or(first);
                return if anew { self.tear(oldest, 0).map(Some) } else { Ok(None) };
            };
            let Some(read) = readable(&bytes, head.base) else { return Ok(None) };
            if let Some(at) = read.ends {
                return if read.last.lsn < durable.lsn { Ok(None) } else { self.tear(first, at).map(Some) };
            }
            before = Some((first, read.last));
        }
        Ok(None)
    }

    /// Each segment names the one before it: a missing one is noticed without reading them all. After a power cut
    /// (`remnants`) the journal begins behind the last gap, and always with a segment that was begun anew. Answers the
    /// segments before it.
    pub(super) fn check_chain(&mut self, remnants: bool) -> Result<Vec<Lsn>, JournalError> {
        let mut after: Option<(Lsn, Lsn)> = None;
        for &first in self.segments.keys().rev() {
            if let Some((next, _)) = after.filter(|(_, previous)| *previous != first) {
                let anew = after.is_some_and(|(_, previous)| previous == Lsn(0));
                if !remnants && !anew {
                    return Err(JournalError::Missing { dir: self.path.clone(), next: name(next) });
                }
                let kept = self.segments.split_off(&next);
                return Ok(core::mem::replace(&mut self.segments, kept).into_keys().collect());
            }
            let bytes = self.open_file(first)?.read(0, HEAD, false).map_err(|e| self.io(first, e))?;
            after = Some((first, self.head(first, &bytes)?.previous));
        }
        Ok(Vec::new())
    }

    /// Removes what [`super::OpenedJournal`] found before the journal's beginning. It has to be known for good by then that
    /// nothing of it says what is stale.
    pub(crate) fn remove_leftovers(&mut self, leftovers: &[Lsn]) -> Result<(), JournalError> {
        leftovers.iter().try_for_each(|first| self.remove(*first))
    }

    fn tear(&self, segment: Lsn, at: usize) -> Result<Tear, JournalError> {
        let mut tear = Tear { segment, at, touched: vec![], bytes: 0 };
        for (&first, &len) in self.segments.range(segment..) {
            let bytes = self.load(first)?;
            let mut at = if first == segment { at } else { 0 };
            tear.bytes += len.saturating_sub(at as u64);
            at = at.max(HEAD);
            while let Some(rest) = bytes.get(at..).filter(|r| !r.is_empty()) {
                let Ok((record, n)) = Record::decode(rest) else { break };
                tear.touched.extend(record.change.touched());
                at += n;
            }
        }
        tear.touched.sort_unstable();
        tear.touched.dedup();
        Ok(tear)
    }

    /// Ends the journal at the tear. The newest segment goes first: what is left after another power cut is torn again, or
    /// whole.
    pub(super) fn cut_tear(&mut self, tear: &Tear) -> Result<(), JournalError> {
        let keep = tear.at >= HEAD;
        let gone: Vec<Lsn> = self
            .segments
            .range(tear.segment..)
            .map(|(first, _)| *first)
            .filter(|first| !keep || *first > tear.segment)
            .collect();
        for first in gone.into_iter().rev() {
            self.remove(first)?;
        }
        if keep {
            let file = self.open_file(tear.segment)?;
            file.truncate(tear.at as u64).map_err(|e| self.io(tear.segment, e))?;
            self.segments.insert(tear.segment, tear.at as u64);
        }
        tracing::warn!(
            file = %self.path.join(name(tear.segment)).display(), offset = tear.at, cut = tear.bytes,
            objects = tear.touched.len(), "a power cut tore the journal: it ends here"
        );
        Ok(())
    }
}

/// How far the records go; `None` if a newer build wrote one of them.
fn readable(bytes: &[u8], base: Stamp) -> Option<Readable> {
    let (mut last, mut at) = (base, HEAD);
    while let Some(rest) = bytes.get(at..).filter(|r| !r.is_empty()) {
        match Record::decode(rest) {
            Ok((r, n)) if r.stamp.lsn == last.lsn.next() => {
                last = r.stamp;
                at += n;
            }
            Err(RecordError::Content(_)) => return None,
            Ok(_) | Err(_) => return Some(Readable { last, ends: Some(at) }),
        }
    }
    Some(Readable { last, ends: None })
}
