//! The head of a redb file as redb is shown it.
//!
//! Layout, from redb's design document: byte 9 holds flags, then two commit slots of 128 bytes follow at 64 and 192,
//! whose last 24 bytes are the number of the commit and the slot's checksum.

use redb::{BackendError, StorageBackend};
use std::io;
use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const HEAD: usize = 320;
const FLAGS: usize = 9;
/// Slot 1 holds the last commit.
const SECOND_SLOT: u8 = 1;
const NOT_CLOSED: u8 = 2;
const TWO_PHASE: u8 = 4;
const NUMBERS: [Range<usize>; 2] = [168..176, 296..304];
const SUMS: [Range<usize>; 2] = [176..192, 304..320];

/// A file whose head says, until redb writes it for the first time, that it was not closed in order.
#[derive(Debug)]
pub(crate) struct Unproven<B> {
    file: B,
    written: AtomicBool,
    last_or_none: Arc<AtomicBool>,
}

impl<B> Unproven<B> {
    /// `last_or_none` becomes true if the last commit is known to have been on disk, so that an older one must not
    /// take its place.
    pub(crate) fn new(file: B, last_or_none: Arc<AtomicBool>) -> Unproven<B> {
        Unproven { file, written: AtomicBool::new(false), last_or_none }
    }
}

/// Makes the head look like that of a file that was not closed in order; true if an older commit must not take the
/// place of the last one.
fn unprove(head: &mut [u8; HEAD]) -> bool {
    let last = usize::from(head[FLAGS] & SECOND_SLOT != 0);
    let other = 1 - last;
    let two_phase = head[FLAGS] & TWO_PHASE != 0;
    // Without the two-phase flag redb does not believe the map of free pages that it keeps in the file.
    head[FLAGS] = (head[FLAGS] | NOT_CLOSED) & !TWO_PHASE;
    if number(head, other) > number(head, last) {
        // A commit was about to become the last one, or the flag that tells the slots apart is damaged. redb takes the
        // newer commit if it is whole.
        return false;
    }
    // A cleared checksum keeps redb from the older commit. It also tells the next opening that this one was
    // interrupted after redb had written the head as it was shown.
    let sum = &mut head[SUMS[other].clone()];
    let last_or_none = two_phase || sum.iter().all(|b| *b == 0);
    if last_or_none {
        sum.fill(0);
    }
    last_or_none
}

fn number(head: &[u8; HEAD], slot: usize) -> u64 {
    head[NUMBERS[slot].clone()].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

impl<B: StorageBackend> StorageBackend for Unproven<B> {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read(offset, out)?;
        if offset == 0
            && !self.written.load(Relaxed)
            && let Some(head) = out.first_chunk_mut::<HEAD>()
        {
            self.last_or_none.store(unprove(head), Relaxed);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        if offset == 0 {
            self.written.store(true, Relaxed);
        }
        self.file.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_was_on_disk_stays_the_only_one_over_interrupted_openings() {
        let mut head = [7; HEAD];
        head[FLAGS] = SECOND_SLOT | TWO_PHASE;
        assert!(unprove(&mut head));
        assert_eq!(head[FLAGS], SECOND_SLOT | NOT_CLOSED);
        assert_eq!(
            (head[SUMS[0].clone()].as_ref(), head[SUMS[1].clone()].as_ref()),
            (&[0; 16][..], &[7; 16][..])
        );
        assert!(unprove(&mut head), "redb wrote the head as it was shown");
    }

    #[test]
    fn the_older_commit_stays_if_the_last_may_be_incomplete() {
        let mut head = [7; HEAD];
        head[FLAGS] = NOT_CLOSED;
        assert!(!unprove(&mut head));
        assert_eq!(head[FLAGS], NOT_CLOSED);
        assert_eq!(head[SUMS[1].clone()], [7; 16]);
    }

    #[test]
    fn a_newer_commit_in_the_other_slot_is_shown() {
        let mut head = [7; HEAD];
        head[FLAGS] = SECOND_SLOT | TWO_PHASE;
        head[NUMBERS[0].start] = 8;
        assert!(!unprove(&mut head));
        assert_eq!(head[SUMS[0].clone()], [7; 16]);
    }
}
