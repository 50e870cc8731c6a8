//! A set of objects that stays small with millions of them.
//!
//! Fids of one set and epoch are told apart by their lsn, and most of a set's objects were made in few epochs: their lsns
//! are kept in chunks of 65,536, as a sorted list while there are few of them in the chunk and as bits from then on. So a
//! set takes at most two bytes an object, and some hundred bytes for each chunk that has any.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use ids::{Epoch, Fid, SetId};

/// Objects of a chunk from which on bits take less room than a list.
const MANY: usize = 4096;
/// Words of a chunk's bits.
const WORDS: usize = 1 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
enum Chunk {
    Few(Vec<u16>),
    Many(Box<[u64]>),
}

impl Chunk {
    fn insert(&mut self, low: u16) {
        match self {
            Chunk::Few(list) => {
                let Err(at) = list.binary_search(&low) else { return };
                list.insert(at, low);
                if list.len() > MANY {
                    let mut bits = vec![0; WORDS].into_boxed_slice();
                    list.iter().for_each(|low| set_bit(&mut bits, *low));
                    *self = Chunk::Many(bits);
                }
            }
            Chunk::Many(bits) => set_bit(bits, low),
        }
    }

    fn contains(&self, low: u16) -> bool {
        match self {
            Chunk::Few(list) => list.binary_search(&low).is_ok(),
            Chunk::Many(bits) => bits.get(usize::from(low >> 6)).is_some_and(|w| w >> (low & 63) & 1 == 1),
        }
    }
}

fn set_bit(bits: &mut [u64], low: u16) {
    if let Some(word) = bits.get_mut(usize::from(low >> 6)) {
        *word |= 1 << (low & 63);
    }
}

/// The set.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Fids(BTreeMap<(SetId, Epoch, u64), Chunk>);

/// The chunk of an object, and its place there.
fn place(fid: Fid) -> ((SetId, Epoch, u64), u16) {
    let [low, high, ..] = fid.lsn.0.to_le_bytes();
    ((fid.set, fid.epoch, fid.lsn.0 >> 16), u16::from_le_bytes([low, high]))
}

impl Fids {
    /// Puts an object in.
    pub fn insert(&mut self, fid: Fid) {
        let (chunk, low) = place(fid);
        self.0.entry(chunk).or_insert_with(|| Chunk::Few(Vec::new())).insert(low);
    }

    /// Whether the object is in it.
    pub fn contains(&self, fid: Fid) -> bool {
        let (chunk, low) = place(fid);
        self.0.get(&chunk).is_some_and(|c| c.contains(low))
    }

    /// The bytes that it takes, about: for the bound.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let chunk = |c: &Chunk| match c {
            Chunk::Few(list) => list.capacity() * 2,
            Chunk::Many(bits) => bits.len() * 8,
        };
        self.0.values().map(|c| 64 + chunk(c)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::Lsn;

    fn fid(epoch: u32, lsn: u64) -> Fid {
        Fid { set: SetId(3), epoch: Epoch(epoch), lsn: Lsn(lsn) }
    }

    #[test]
    fn what_is_in_it_is_what_was_put_in() {
        let mut fids = Fids::default();
        let lsns = || (0..30_000u64).map(|n| n * n % 200_003).filter(|n| n % 3 != 0);
        let all: alloc::collections::BTreeSet<u64> = lsns().collect();
        lsns().for_each(|lsn| fids.insert(fid(2, lsn)));
        assert!(fids.0.values().any(|c| matches!(c, Chunk::Many(_))));
        for lsn in 0..200_100 {
            assert_eq!(fids.contains(fid(2, lsn)), all.contains(&lsn), "{lsn}");
            assert!(!fids.contains(fid(1, lsn)));
        }
        fids.insert(fid(9, u64::MAX));
        assert!(fids.contains(fid(9, u64::MAX)) && !fids.contains(fid(9, 0xffff)));
    }

    #[test]
    fn a_million_objects_take_less_than_four_bytes_each() {
        let mut fids = Fids::default();
        (0..1_000_000).for_each(|n| fids.insert(fid(1, 5 * n)));
        assert!(fids.bytes() < 4_000_000, "{} bytes", fids.bytes());
    }
}
