//! Data by ranges, for healing: where there is none, and what the checksums of its pieces are.
//!
//! A file that may be right already is compared piece by piece before anything is copied. Holes are told apart from zeros,
//! so that a sparse file stays sparse.

use crate::object::OpenObject;
use crate::open::Brick;
use file_system::File;
use ids::Fid;
use replica::healing::{Sum, Sums};
use std::sync::Arc;
use wire::Errno;
use wire::limits::{SMALL_FILE, SUM_BYTES};

/// A shorter hole is copied as zeros when data is around it: a block of most file systems, so a copy takes no more room than the
/// file. What lies between two holes takes a question of its own.
const SMALL_HOLE: u64 = 4 << 10;

/// Mode bits of `fallocate` that make a hole.
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;

/// The checksum of data.
pub fn sum(data: &[u8]) -> Sum {
    let sum = xxhash_rust::xxh3::xxh3_128(data);
    let half = |n: u128| u64::try_from(n & u128::from(u64::MAX)).unwrap_or(0);
    (half(sum >> 64), half(sum))
}

/// Reads a part of a file and works out its checksums. Runs on any thread.
pub struct SumsJob {
    file: Arc<File>,
    offset: u64,
    len: u32,
}

impl SumsJob {
    /// Does it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self) -> Result<Sums, Errno> {
        let size = self.file.stat()?.size;
        let wanted = self.offset.saturating_add(self.len.into());
        let stop = wanted.min(size).max(self.offset);
        let (mut at, mut data, mut sums) = (self.offset, Some(0), Vec::new());
        while at < stop {
            let to = (at + u64::from(SUM_BYTES)).min(stop);
            if data.is_some_and(|d| d < at) {
                data = self.file.next_data(at)?;
            }
            if data.is_some_and(|d| d < to) {
                let len = usize::try_from(to - at).map_err(|_| Errno::EINVAL)?;
                sums.push(sum(&self.file.read(at, len, false)?));
            } else {
                sums.push((0, 0));
            }
            at = to;
        }
        let len = u32::try_from(stop - self.offset).unwrap_or(self.len);
        Ok(Sums { sums, len, end: size <= wanted })
    }
}

impl Brick {
    fn regular(&mut self, fid: Fid) -> Result<OpenObject, Errno> {
        let open = self.open_fid(fid)?;
        if open.is_file() { Ok(open) } else { Err(Errno::EINVAL) }
    }

    /// What works out the checksums of `len` bytes from `offset` on.
    ///
    /// # Errors
    /// `ESTALE` if there is no such file.
    pub fn sums(&mut self, fid: Fid, offset: u64, len: u32) -> Result<SumsJob, Errno> {
        Ok(SumsJob { file: self.regular(fid)?.share(), offset, len })
    }

    /// How many bytes from `offset` on hold no data, if they are many or all up to the end, and whether they are that.
    ///
    /// # Errors
    /// `ESTALE` if there is no such file; the kernel's.
    pub fn hole(&mut self, fid: Fid, offset: u64, many: u64) -> Result<Option<(u64, bool)>, Errno> {
        let open = self.regular(fid)?;
        Ok(match open.next_data(offset)? {
            Some(at) => (at - offset >= many).then_some((at - offset, false)),
            None => Some((open.stat()?.size.saturating_sub(offset), true)),
        })
    }

    /// How much of `len` bytes from `offset` on is worth copying in one go: up to the next large hole.
    ///
    /// # Errors
    /// `ESTALE` if there is no such file; the kernel's.
    pub fn data_before_hole(&mut self, fid: Fid, offset: u64, len: u32) -> Result<u32, Errno> {
        let open = self.regular(fid)?;
        let stop = offset.saturating_add(len.into());
        let mut at = offset;
        while at < stop {
            let Some(hole) = open.next_hole(at)?.filter(|hole| *hole < stop) else { break };
            match open.next_data(hole)? {
                Some(data) if data - hole < SMALL_HOLE => at = data,
                // Also one up to the end of the file.
                _ if hole > offset => return Ok(u32::try_from(hole - offset).unwrap_or(len)),
                _ => break,
            }
        }
        Ok(len)
    }

    /// A hole that is told as such when data is asked for.
    pub const HOLE: u64 = SMALL_HOLE;

    /// The checksum of a small file's data, if it is in memory.
    pub fn small_sum(&mut self, fid: Fid) -> Option<Sum> {
        let size = self.fresh(fid).ok()?.1.size;
        if size == 0 || size > u64::from(SMALL_FILE) || self.identity.arbiter {
            return None;
        }
        let open = self.regular(fid).ok()?;
        let len = usize::try_from(size).ok()?;
        open.read(0, len, true).ok().filter(|d| d.len() == len).map(|d| sum(&d))
    }

    /// Takes data out of a file: the other brick has none there.
    ///
    /// # Errors
    /// `ESTALE` if there is no such file here; the kernel's.
    pub fn take_hole(&mut self, fid: Fid, offset: u64, len: u64) -> Result<(), Errno> {
        let open = self.loaded(fid)?;
        if !open.is_file() || self.identity.arbiter || len == 0 {
            return Ok(());
        }
        // What lies beyond the end there was cut off, and must not come back when the file grows again.
        let stop = offset.saturating_add(len).min(open.stat()?.size);
        if offset >= stop || open.next_data(offset)?.is_none_or(|at| at >= stop) {
            return Ok(());
        }
        open.keep_capability(|| match open.allocate(PUNCH_HOLE | KEEP_SIZE, offset, stop - offset) {
            Ok(()) => self.keep_times(fid),
            Err(Errno::EOPNOTSUPP) => self.take_zeros(fid, offset, stop),
            Err(e) => Err(e),
        })
    }

    /// Where no hole can be made.
    fn take_zeros(&mut self, fid: Fid, offset: u64, stop: u64) -> Result<(), Errno> {
        let open = self.open_fid(fid)?;
        let stop = stop.min(open.stat()?.size);
        let zeros = vec![0; SUM_BYTES as usize];
        let mut at = offset;
        while at < stop {
            let n = usize::try_from(stop - at).unwrap_or(zeros.len()).min(zeros.len());
            self.take_data(fid, at, zeros.get(..n).unwrap_or_default())?;
            at += n as u64;
        }
        Ok(())
    }
}
