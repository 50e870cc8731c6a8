//! Random numbers of one opening of a brick.

use std::sync::atomic::{AtomicU64, Ordering};

/// A random number of the machine's.
pub(crate) fn draw_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// Numbers that no two callers get.
pub(crate) struct Nonces {
    seed: u64,
    /// How many were given.
    given: AtomicU64,
}

impl Nonces {
    /// With the same seed they are the same.
    pub(crate) fn new(seed: u64) -> Nonces {
        Nonces { seed, given: AtomicU64::new(0) }
    }

    pub(crate) fn next(&self) -> u64 {
        let count = self.given.fetch_add(1, Ordering::Relaxed);
        xxhash_rust::xxh3::xxh3_64_with_seed(&count.to_le_bytes(), self.seed)
    }
}
