//! After a failed sync: what the kernel dropped is stale, or is written again if nobody can heal it.
//!
//! Linux keeps what it could not write in memory, takes it for written, and says so once. A later sync would then succeed
//! over data that is on no disk. A brick with others beside it leaves the set and heals; one that is alone writes the data of
//! its unsynced changes, and their records, from memory once more. Until that is done all its syncs fail. Nobody knows whether
//! a sync of a process that was killed had failed: the next process writes all that is not known to be on disk once more.

use crate::open::Brick;
use file_system::File;
use ids::{Fid, Lsn};
use std::collections::BTreeMap;
use std::ops::Range;
use wire::{Change, Errno};

/// Bytes that are written again at most: more than that a brick hardly gets in the time between two syncs of everything.
const MOST: u64 = 1 << 30;
/// Bytes at a time.
const CHUNK: u64 = 1 << 20;

impl Brick {
    /// A sync failed: what the kernel could not write it has dropped, and no later sync says so. All beyond the durable
    /// position is stale from now on, for the next process too, and the journal beyond it is written again. Where the mark
    /// cannot be written the state says that memory was lost, which comes to the same: a small write in place, to the page
    /// cache. Syncs fail from then on, until this is called once more and the mark is written.
    ///
    /// # Errors
    /// The kernel's: neither could be written. The brick is not closed in order.
    pub fn mark_unsynced_stale(&mut self) -> Result<(), Errno> {
        let durable = self.durable().lsn;
        self.write_journal_again(durable);
        match self.begin_heal(durable, &[], Lsn(0)) {
            Ok(()) => self.shared.regain(),
            Err(e) => {
                tracing::error!(brick = %self.path.display(), error = %e, "the stale set could not be written");
                self.shared.lose()
            }
        }
    }

    /// As long as this fails no sync makes anything durable.
    pub(crate) fn write_journal_again(&self, durable: Lsn) {
        let failed = self.shared.failed();
        match self.journal.write_again(durable) {
            Ok(()) => self.shared.rewrote(failed),
            Err(e) => {
                tracing::error!(brick = %self.path.display(), error = %e, "the journal could not be written again")
            }
        }
    }

    /// A sync failed, and no other brick has what this one has: the next sync brings all to disk, or fails as well.
    ///
    /// # Errors
    /// The kernel's; `EFBIG` if it is too much. All syncs fail until this succeeds, or the brick is opened anew.
    pub fn write_unsynced_again(&mut self) -> Result<(), Errno> {
        let failed = self.shared.failed();
        // It moves the kernel's times. Whoever opens the brick after a kill in the midst takes them from the journal.
        self.shared.unflush(self.durable().lsn)?;
        for (fid, ranges) in self.unsynced_data(MOST)? {
            match self.write_data_again(fid, &ranges) {
                Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        self.flush_all_that_waits();
        self.journal.write_again(self.durable().lsn)?;
        // The mark of what is stale may have failed while others had it, too. Now nothing is.
        self.shared.regain()?;
        self.shared.rewrote(failed);
        Ok(())
    }

    /// Opening a brick whose memory was kept (`in_memory`): what it finds may be in memory only, because a sync of an earlier
    /// process failed, which nobody wrote down. So it is written once more, also where the brick is to heal: what is right
    /// is not copied. Where that fails its syncs do, until this is made good.
    ///
    /// # Errors
    /// The kernel's, of a brick that is to heal: its healing would end without a sync that fails.
    pub(crate) fn write_at_opening(&mut self, in_memory: bool) -> Result<(), Errno> {
        if !in_memory || self.found.clean || self.identity.arbiter {
            return Ok(());
        }
        match self.write_all_again() {
            Err(e) if !self.stale.is_set() => {
                tracing::error!(brick = %self.path.display(), error = %e, "what was not synced could not be written again");
                self.shared.fail();
                Ok(())
            }
            done => done,
        }
    }

    fn write_all_again(&mut self) -> Result<(), Errno> {
        let wanted = self.unsynced_data(u64::MAX)?;
        if !wanted.is_empty() {
            // Whoever opens the brick after a kill in the midst takes the times from the journal.
            self.shared.unflush(self.durable().lsn)?;
        }
        for (fid, ranges) in wanted {
            match self.write_data_again(fid, &ranges).and_then(|()| self.flush_node(fid)) {
                Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Where the changes beyond the durable position wrote data; `EFBIG` if it is more than `most` bytes.
    fn unsynced_data(&self, most: u64) -> Result<BTreeMap<Fid, Vec<Range<u64>>>, Errno> {
        let mut out: BTreeMap<Fid, Vec<Range<u64>>> = BTreeMap::new();
        let mut sum = 0_u64;
        for record in self.journal.iterate(self.durable().lsn.next().max(self.journal.first())) {
            let (fid, offset, len) = match record?.change {
                Change::Write { fid, offset, len, .. } => (fid, offset, u64::from(len)),
                Change::CopyRange { to, to_offset, len, .. } => (to, to_offset, len),
                _ => continue,
            };
            let range = offset..offset.saturating_add(len);
            let ranges = out.entry(fid).or_default();
            match ranges.last_mut() {
                Some(last) if range.start <= last.end && last.start <= range.start => {
                    sum = u64::saturating_add(sum, range.end.saturating_sub(last.end));
                    last.end = last.end.max(range.end);
                }
                _ => {
                    sum = sum.saturating_add(len);
                    ranges.push(range);
                }
            }
            if sum > most {
                return Err(Errno::EFBIG);
            }
        }
        Ok(out)
    }

    fn write_data_again(&mut self, fid: Fid, ranges: &[Range<u64>]) -> Result<(), Errno> {
        let open = self.file(fid)?;
        self.keep_times(fid)?;
        ranges.iter().try_for_each(|range| write_range_again(&open, range))
    }
}

/// Writes what the file has there; it may have become shorter since.
fn write_range_again(file: &File, range: &Range<u64>) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let some = usize::try_from((range.end - at).min(CHUNK)).unwrap_or(0);
        let data = file.read(at, some, false)?;
        if data.is_empty() {
            break;
        }
        file.write_all(at, &data)?;
        at += data.len() as u64;
    }
    Ok(())
}
