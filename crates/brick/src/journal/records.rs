//! The journal read from a position to its end.

use super::{Journal, name};
use crate::error::JournalError;
use disk_format::Record;
use disk_format::journal::HEAD;
use ids::Lsn;

impl Journal {
    /// The records from `from` on, which must be within reach.
    pub(crate) fn iterate(&self, from: Lsn) -> Records<'_> {
        let start = self.segments.range(..=from).next_back().map(|(l, _)| *l);
        let failed = (from < self.first()).then_some(JournalError::OutOfReach(from));
        let pending: Vec<Lsn> =
            start.map(|s| self.segments.range(s..).map(|(l, _)| *l).rev().collect()).unwrap_or_default();
        Records {
            journal: self,
            from,
            pending,
            bytes: Vec::new(),
            at: 0,
            first: Lsn(0),
            expected: Lsn(0),
            failed,
        }
    }
}

/// Reads a journal record by record.
pub struct Records<'a> {
    journal: &'a Journal,
    from: Lsn,
    /// Segments to come, the next one last.
    pending: Vec<Lsn>,
    bytes: Vec<u8>,
    at: usize,
    first: Lsn,
    expected: Lsn,
    failed: Option<JournalError>,
}

impl Records<'_> {
    fn advance(&mut self) -> Result<Option<Record>, JournalError> {
        if let Some(e) = self.failed.take() {
            self.pending.clear();
            return Err(e);
        }
        loop {
            if self.at >= self.bytes.len() {
                let Some(first) = self.pending.pop() else { return Ok(None) };
                if self.expected != Lsn(0) && self.expected != first {
                    return Err(JournalError::Missing { dir: self.journal.path.clone(), next: name(first) });
                }
                self.bytes = self.journal.load(first)?;
                self.journal.head(first, &self.bytes)?;
                self.at = HEAD;
                self.first = first;
                self.expected = first;
                continue;
            }
            let (r, n) = self.journal.next_record(self.first, &self.bytes, self.at)?;
            if r.stamp.lsn != self.expected {
                return Err(JournalError::Damaged {
                    file: self.journal.file(self.first),
                    offset: self.at as u64,
                    why: format!("change {} follows where {} should", r.stamp.lsn, self.expected),
                });
            }
            self.at += n;
            self.expected = r.stamp.lsn.next();
            if r.stamp.lsn >= self.from {
                return Ok(Some(r));
            }
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        let r = self.advance();
        if r.is_err() {
            self.pending.clear();
            self.at = self.bytes.len();
        }
        r.transpose()
    }
}
