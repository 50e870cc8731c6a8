//! How keys of maps in memory are hashed: a few multiplications, with a seed that nobody outside knows. Each request looks up
//! a dozen of them.

use std::hash::{BuildHasher, Hasher, RandomState};

/// An odd number whose bits are as good as random: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// A map's own seed.
#[derive(Clone, Debug)]
pub(crate) struct KeySeed(u64);

impl Default for KeySeed {
    fn default() -> Self {
        KeySeed(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for KeySeed {
    type Hasher = KeyHasher;

    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0)
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_u64(&mut self, n: u64) {
        let word = self.0 ^ n;
        let high = (u128::from(word) * u128::from(FACTOR)) >> 64;
        self.0 = word.wrapping_mul(FACTOR) ^ (high as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Fid, Lsn, SetId};
    use std::collections::BTreeSet;

    /// A table takes the lowest bits for the place and the highest ones to tell those of one place apart.
    #[test]
    fn objects_of_a_set_are_spread_over_a_table() {
        const MANY: u64 = 1 << 14;
        for _ in 0..20 {
            let seed = KeySeed::default();
            let fid = |n| Fid { set: SetId(1), epoch: Epoch(3), lsn: Lsn(n) };
            for step in [1, 2, 3, 1 << 10, 1 << 14, 1 << 40] {
                let hashes: Vec<u64> = (0..MANY).map(|n| seed.hash_one(fid(n * step))).collect();
                let places: BTreeSet<u64> = hashes.iter().map(|h| h % MANY).collect();
                let tags: BTreeSet<u64> = hashes.iter().map(|h| h >> 57).collect();
                assert!(places.len() as u64 > MANY / 2, "{step}: {} places", places.len());
                assert_eq!(tags.len(), 128, "{step}");
            }
        }
    }

    #[test]
    fn each_part_of_a_key_counts() {
        let seed = KeySeed::default();
        let keys = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)];
        let fids = keys.map(|(s, e, l)| Fid { set: SetId(s), epoch: Epoch(e), lsn: Lsn(l) });
        let hashes: BTreeSet<u64> = fids.iter().map(|f| seed.hash_one(f)).collect();
        assert_eq!(hashes.len(), 4);
        assert_ne!(seed.hash_one(1u128 << 64), seed.hash_one(1u128 << 65));
    }
}
