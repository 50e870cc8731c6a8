//! Memory for large reads that is used again.
//!
//! Memory that the allocator gives back to the kernel comes back as zeroed pages, one fault each: of reads of 1 MiB that costs as
//! much as encrypting them.

use bytes::Bytes;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Less than this the allocator has at hand.
const LARGE: usize = 128 << 10;
/// What a client may read at once. More is read by few, and seldom.
const MOST: usize = 1 << 20;
/// How many pieces of [`MOST`] bytes the process keeps: 16 MiB in all.
const KEPT: usize = 16;

static FREE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn free() -> MutexGuard<'static, Vec<Vec<u8>>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory for a read.
#[derive(Debug)]
pub(crate) struct ReadMemory(Vec<u8>);

impl ReadMemory {
    /// Memory for so many bytes.
    pub(crate) fn take(len: usize) -> ReadMemory {
        if !(LARGE..=MOST).contains(&len) {
            return ReadMemory(Vec::with_capacity(len));
        }
        let free = free().pop();
        ReadMemory(free.unwrap_or_else(|| Vec::with_capacity(MOST)))
    }

    /// To be filled.
    pub(crate) fn empty(&mut self) -> &mut Vec<u8> {
        self.0.clear();
        &mut self.0
    }

    /// What was read. Its memory is free when nobody uses it any more.
    pub(crate) fn share(mut self) -> Bytes {
        if self.0.capacity() < LARGE {
            return Bytes::from(std::mem::take(&mut self.0));
        }
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for ReadMemory {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for ReadMemory {
    fn drop(&mut self) {
        if self.0.capacity() == MOST {
            let mut free = free();
            if free.len() < KEPT {
                free.push(std::mem::take(&mut self.0));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(len: usize) -> Bytes {
        let mut memory = ReadMemory::take(len);
        memory.empty().extend((0..len).map(|n| n as u8));
        memory.share()
    }

    #[test]
    fn memory_of_large_reads_is_used_again_and_what_is_kept_is_bounded() {
        let many: Vec<Bytes> = (0..3 * KEPT).map(|n| read(LARGE + n * 1000)).collect();
        for (n, bytes) in many.iter().enumerate() {
            assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == at as u8), "read {n} is its own");
        }
        let part = many[5].slice(100..200);
        drop(many);
        assert_eq!(free().len(), KEPT);
        assert_eq!(part[..], read(200)[100..], "a part keeps all of it");
        let (small, huge) = (read(LARGE - 1), read(MOST + 1));
        drop((small, huge, part));
        assert_eq!(free().len(), KEPT);
        let again = read(MOST);
        assert_eq!((again.len(), free().len()), (MOST, KEPT - 1));
    }
}
