//! The journal written again where a sync that failed may have dropped what the kernel had to write.

use super::Journal;
use crate::error::JournalError;
use ids::Lsn;

/// Bytes of the journal that are written again at a time.
const REWRITTEN: usize = 256 << 10;

impl Journal {
    /// Writes again what lies beyond the durable position, and the head of a segment none of whose records is durable. A sync
    /// that failed, also of a process before, may have dropped it from what the kernel has to write: no later one says so.
    pub(crate) fn write_again(&self, durable: Lsn) -> Result<(), JournalError> {
        let mut at = self.begin_write_again(durable);
        while let Some(some) = at {
            at = self.write_some_again(some)?;
        }
        self.end_write_again(durable)
    }

    /// Where what is to be written again begins; `None` if nothing is.
    pub(crate) fn begin_write_again(&self, durable: Lsn) -> Option<(Lsn, u64)> {
        if self.last.lsn <= durable && self.base.lsn < durable {
            return None;
        }
        Some((self.segments.range(..=durable.next()).next_back().map_or(Lsn(0), |(first, _)| *first), 0))
    }

    /// Writes a part of it again, from there on; where the next part begins. Segments may come and go meanwhile.
    pub(crate) fn write_some_again(&self, from: (Lsn, u64)) -> Result<Option<(Lsn, u64)>, JournalError> {
        let Some((&first, &len)) = self.segments.range(from.0..).next() else { return Ok(None) };
        let at = if first == from.0 { from.1 } else { 0 };
        let some = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX).min(REWRITTEN);
        if some == 0 {
            return Ok(Some((first.next(), 0)));
        }
        let file = self.open_file(first)?;
        let bytes = file.read(at, some, false).map_err(|e| self.io(first, e))?;
        file.write_all(at, &bytes).map_err(|e| self.io(first, e))?;
        Ok(Some((first, at + some as u64)))
    }

    /// All of it is written again, and to be synced.
    pub(crate) fn end_write_again(&self, durable: Lsn) -> Result<(), JournalError> {
        if self.begin_write_again(durable).is_some() {
            self.note_unsynced(durable)?;
            self.unsynced.folder_changed();
        }
        Ok(())
    }
}
