//! After a failed sync: what the kernel dropped is stale, or is written again if nobody can heal it.
//!
//! Linux keeps what it could not write in memory, takes it for written, and says so once. A later sync would then succeed
//! over data that is on no disk. A brick with others beside it leaves the set and heals; one that is alone writes the data of
//! its unsynced changes, and their records, from memory once more. Until that is done all its syncs fail. Nobody knows whether
//! a sync of a process that was killed had failed: the next process writes all that is not known to be on disk once more.

use crate::object::CAPABILITY;
use crate::open::Brick;
use file_system::File;
use ids::{Fid, Lsn};
use set_core::JournalPlace;
use std::collections::BTreeMap;
use std::ops::Range;
use wire::{Change, Errno};

/// Bytes that are written again at most: more than that a brick hardly gets in the time between two syncs of everything.
const MOST: u64 = 1 << 30;
/// Bytes at a time.
const CHUNK: u64 = 256 << 10;

/// What a hole consists of.
const BLOCK: u64 = 4096;

/// What a failed sync may have dropped is written again, in slices between changes.
pub(crate) struct WritingAgain {
    /// How many syncs had failed when it began.
    failed: u64,
    step: Step,
}

enum Step {
    /// The journal says where data was written.
    Find(Unsynced),
    /// That data is written again.
    Data(BTreeMap<Fid, Written>),
    /// The journal is, from that place on.
    Journal(Option<(Lsn, u64)>),
}

/// Where a file was written, and the capability that it got after that.
#[derive(Default)]
struct Written {
    ranges: Vec<Range<u64>>,
    capability: Option<Vec<u8>>,
}

/// Where the changes beyond the durable position wrote data, as far as their records were read.
#[derive(Default)]
struct Unsynced {
    next: Lsn,
    upto: Lsn,
    place: JournalPlace,
    files: BTreeMap<Fid, Written>,
    bytes: u64,
}

impl Unsynced {
    fn add(&mut self, fid: Fid, offset: u64, len: u64) {
        let range = offset..offset.saturating_add(len);
        let Written { ranges, capability } = self.files.entry(fid).or_default();
        *capability = None;
        match ranges.last_mut() {
            Some(last) if range.start <= last.end && last.start <= range.start => {
                self.bytes = self.bytes.saturating_add(range.end.saturating_sub(last.end));
                last.end = last.end.max(range.end);
            }
            _ => {
                self.bytes = self.bytes.saturating_add(len);
                ranges.push(range);
            }
        }
    }

    /// A change tells where data was written, or gives a file that was written a capability, or takes it away.
    fn note(&mut self, change: Change) {
        let (fid, now) = match change {
            Change::Write { fid, offset, len, .. } => return self.add(fid, offset, len.into()),
            Change::CopyRange { to, to_offset, len, .. } => return self.add(to, to_offset, len),
            Change::SetXattr { fid, name, value, .. } if name.as_bytes() == CAPABILITY => {
                (fid, Some(value.0))
            }
            Change::RemoveXattr { fid, name, .. } if name.as_bytes() == CAPABILITY => (fid, None),
            Change::SetAttr { fid, uid, gid, size, .. }
                if uid.is_some() || gid.is_some() || size.is_some() =>
            {
                (fid, None)
            }
            Change::Fallocate { fid, .. } => (fid, None),
            _ => return,
        };
        if let Some(written) = self.files.get_mut(&fid) {
            written.capability = now;
        }
    }
}

/// Takes a part off some ranges that is as much as is written at a time.
fn take_some(ranges: &mut Vec<Range<u64>>) -> Range<u64> {
    let Some(last) = ranges.last_mut() else { return 0..0 };
    let start = last.end.saturating_sub(CHUNK).max(last.start);
    let some = start..last.end;
    last.end = start;
    if last.is_empty() {
        ranges.pop();
    }
    some
}

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

    /// What came of a sync in the midst of a change. One that failed counts like any other: some file systems drop more with it
    /// than what it was asked for.
    pub(crate) fn synced(&self, done: Result<(), Errno>) -> Result<(), Errno> {
        done.inspect_err(|_| self.shared.fail())
    }

    /// Whether every sync fails: one failed before, or what an opening found could not be written again, and that was not made
    /// good since.
    pub fn syncs_fail(&self) -> bool {
        self.shared.failed() != self.shared.rewritten()
    }

    /// A sync failed, and no other brick has what this one has: it is to be written again, and the sync after that brings all
    /// to disk, or fails as well. [`Brick::write_again_slice`] does it.
    pub fn begin_write_again(&mut self) {
        let next = self.durable().lsn.next().max(self.journal.first());
        let found = Unsynced { next, upto: self.journal.last().lsn, ..Unsynced::default() };
        *self.progress.writing_again() =
            Some(WritingAgain { failed: self.shared.failed(), step: Step::Find(found) });
    }

    /// Does a part of it that takes about as long as a large write; true if all is done.
    ///
    /// # Errors
    /// The kernel's; `EFBIG` if it is too much. It is over then, and all syncs fail until it is begun anew and succeeds, or
    /// the brick is opened anew.
    pub fn write_again_slice(&mut self) -> Result<bool, Errno> {
        let Some(WritingAgain { failed, step }) = self.progress.writing_again().take() else {
            return Ok(true);
        };
        let next = match step {
            Step::Find(mut found) => {
                let more = self.find_some_unsynced(&mut found, MOST)?;
                if more { Step::Find(found) } else { Step::Data(found.files) }
            }
            Step::Data(mut files) => match files.first_entry() {
                Some(mut first) => {
                    let (fid, written) = (*first.key(), first.get_mut());
                    let ranges = vec![take_some(&mut written.ranges)];
                    let some = Written { ranges, capability: written.capability.clone() };
                    if written.ranges.is_empty() {
                        first.remove();
                    }
                    self.write_some_again(fid, &some)?;
                    Step::Data(files)
                }
                None => Step::Journal(self.journal.begin_write_again(self.durable().lsn)),
            },
            Step::Journal(Some(at)) => Step::Journal(self.journal.write_some_again(at)?),
            Step::Journal(None) => {
                self.journal.end_write_again(self.durable().lsn)?;
                // The mark of what is stale may have failed while others had it, too. Now nothing is.
                self.shared.regain()?;
                if self.shared.failed() == failed {
                    self.shared.rewrote(failed);
                    return Ok(true);
                }
                // One more has failed meanwhile, and may have dropped what was written already.
                self.begin_write_again();
                return Ok(false);
            }
        };
        *self.progress.writing_again() = Some(WritingAgain { failed, step: next });
        Ok(false)
    }

    fn write_some_again(&mut self, fid: Fid, some: &Written) -> Result<(), Errno> {
        // It moves the kernel's times. Whoever opens the brick after a kill in the midst takes them from the journal.
        self.shared.unflush(self.durable().lsn)?;
        match self.write_data_again(fid, some) {
            Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.flush_all_that_waits();
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
        let next = self.durable().lsn.next().max(self.journal.first());
        let mut found = Unsynced { next, upto: self.journal.last().lsn, ..Unsynced::default() };
        while self.find_some_unsynced(&mut found, u64::MAX)? {}
        if !found.files.is_empty() {
            // Whoever opens the brick after a kill in the midst takes the times from the journal.
            self.shared.unflush(self.durable().lsn)?;
        }
        for (fid, written) in found.files {
            match self.write_data_again(fid, &written).and_then(|()| self.flush_node(fid)) {
                Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Where the changes beyond the durable position wrote data, from some more of the journal's records. True if there are
    /// more.
    ///
    /// # Errors
    /// `EFBIG` if it is more than `most` bytes; what is wrong with the journal.
    fn find_some_unsynced(&self, found: &mut Unsynced, most: u64) -> Result<bool, Errno> {
        if found.next > found.upto.min(self.journal.last().lsn) {
            return Ok(false);
        }
        let records = self.journal.part(found.next, &mut found.place)?;
        for record in records {
            found.next = record.stamp.lsn.next();
            found.note(record.change);
        }
        if found.bytes > most { Err(Errno::EFBIG) } else { Ok(true) }
    }

    /// Also the capability that the file got after it was written: where the process is killed in between the next one finds it
    /// in the journal, as this one did.
    fn write_data_again(&mut self, fid: Fid, written: &Written) -> Result<(), Errno> {
        let open = self.file(fid)?;
        self.keep_times(fid)?;
        written.ranges.iter().try_for_each(|range| write_range_again(&open, range))?;
        written.capability.as_ref().map_or(Ok(()), |value| self.loaded(fid)?.set_xattr(CAPABILITY, value))
    }
}

/// Writes what the file has there; it may have become shorter since. A hole stays one: where a block of zeros lies in it
/// nothing can be lost.
fn write_range_again(file: &File, range: &Range<u64>) -> Result<(), Errno> {
    let mut at = range.start;
    while at < range.end {
        let some = usize::try_from((range.end - at).min(CHUNK)).unwrap_or(0);
        let data = file.read(at, some, false)?;
        if data.is_empty() {
            break;
        }
        let mut left = &data[..];
        while !left.is_empty() {
            let to_next = usize::try_from(BLOCK - at % BLOCK).unwrap_or(left.len());
            let (block, rest) = left.split_at(to_next.min(left.len()));
            let end = at + block.len() as u64;
            let is_zero = block.iter().all(|b| *b == 0);
            if !is_zero || file.next_data(at)?.is_some_and(|next| next < end) {
                file.write_all(at, block)?;
            }
            (at, left) = (end, rest);
        }
    }
    Ok(())
}
