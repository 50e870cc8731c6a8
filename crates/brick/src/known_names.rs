//! What names lead to, kept in memory.

use crate::lru::Lru;
use ids::Fid;
use namespace::Entry;

/// The names that are kept, up to a bound.
pub(crate) struct KnownNames {
    /// By hash of parent and name; `None`: there is no such entry.
    entries: Lru<u128, Option<Entry>>,
    max: usize,
    /// Nobody outside can tell which names have one hash.
    seed: u64,
}

impl KnownNames {
    pub(crate) fn new(max: usize, seed: u64) -> KnownNames {
        KnownNames { entries: Lru::new(), max, seed }
    }

    fn key(&self, parent: Fid, name: &[u8]) -> u128 {
        let mut bytes = [0u8; Fid::SIZE + 255];
        bytes[..Fid::SIZE].copy_from_slice(&parent.to_bytes());
        let n = name.len().min(255);
        bytes[Fid::SIZE..Fid::SIZE + n].copy_from_slice(&name[..n]);
        xxhash_rust::xxh3::xxh3_128_with_seed(&bytes[..Fid::SIZE + n], self.seed)
    }

    /// What a name leads to, if that is known: perhaps nothing.
    pub(crate) fn get(&mut self, parent: Fid, name: &[u8]) -> Option<Option<Entry>> {
        let key = self.key(parent, name);
        self.entries.get(&key).copied()
    }

    /// Keeps what a name leads to.
    pub(crate) fn note(&mut self, parent: Fid, name: &[u8], entry: Option<Entry>) {
        let key = self.key(parent, name);
        self.entries.insert(key, entry);
        while self.entries.len() > self.max {
            self.entries.pop_oldest();
        }
    }

    /// Forgets what a name leads to: it has to be looked up again.
    pub(crate) fn forget(&mut self, parent: Fid, name: &[u8]) {
        let key = self.key(parent, name);
        self.entries.remove(&key);
    }

    /// Forgets all names.
    pub(crate) fn clear(&mut self) {
        while self.entries.pop_oldest().is_some() {}
    }
}
