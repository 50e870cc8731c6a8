//! The order of directories: by a hash of the name, the same on every brick, so that a listing survives a change of
//! primary. Listings are kept, up to a bound of names, and kept up to date.

use crate::lru::Lru;
use ids::Fid;
use std::collections::BTreeMap;

/// The place of a name in its directory: 63 bits, never 0.
pub(crate) fn cookie(name: &[u8]) -> u64 {
    (xxhash_rust::xxh3::xxh3_64(name) >> 1).max(3)
}

/// A directory's names, each with the type bits that the file system gave (0 if it did not say).
#[derive(Default)]
pub(crate) struct Listing {
    names: BTreeMap<(u64, Box<[u8]>), u32>,
    used: u32,
}

impl Listing {
    pub(crate) fn insert(&mut self, name: &[u8], kind: u32) {
        self.names.insert((cookie(name), name.into()), kind);
    }

    /// Names after `after`, at least `min` of them if there are as many; names of one cookie stay together.
    pub(crate) fn after(&self, after: u64, min: usize) -> Vec<(u64, Box<[u8]>, u32)> {
        let mut out: Vec<(u64, Box<[u8]>, u32)> = Vec::with_capacity(min.min(self.names.len()) + 1);
        let Some(start) = after.checked_add(1) else { return out };
        for ((cookie, name), kind) in self.names.range((start, Box::default())..) {
            if out.len() >= min && out.last().is_some_and(|l| l.0 != *cookie) {
                break;
            }
            out.push((*cookie, name.clone(), *kind));
        }
        out
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }
}

/// The listings kept.
pub(crate) struct Listings {
    kept: Lru<Fid, Listing>,
    names: usize,
    max: usize,
    tick: u32,
}

/// Ticks after which an unused listing is dropped.
const IDLE: u32 = 60;

impl Listings {
    pub(crate) fn new(max: usize) -> Listings {
        Listings { kept: Lru::new(), names: 0, max, tick: 0 }
    }

    pub(crate) fn get(&mut self, dir: Fid) -> Option<&Listing> {
        let tick = self.tick;
        let l = self.kept.get(&dir)?;
        l.used = tick;
        Some(l)
    }

    /// Whether the directory is listed, without counting as use.
    pub(crate) fn peek(&mut self, dir: Fid) -> Option<&Listing> {
        self.kept.peek(&dir).map(|l| &*l)
    }

    pub(crate) fn keep(&mut self, dir: Fid, mut listing: Listing) {
        listing.used = self.tick;
        self.forget(dir);
        self.names += listing.len();
        self.kept.insert(dir, listing);
        // The newest stays even if it alone is beyond the bound: re-reading it for every page would cost more.
        while self.names > self.max && self.kept.len() > 1 {
            let Some((_, old)) = self.kept.pop_oldest() else { break };
            self.names -= old.len();
        }
    }

    pub(crate) fn forget(&mut self, dir: Fid) {
        if let Some(old) = self.kept.remove(&dir) {
            self.names -= old.len();
        }
    }

    pub(crate) fn added(&mut self, dir: Fid, name: &[u8], kind: u32) {
        if let Some(l) = self.kept.peek(&dir) {
            let was = l.len();
            l.insert(name, kind);
            self.names = self.names - was + l.len();
        }
    }

    pub(crate) fn removed(&mut self, dir: Fid, name: &[u8]) {
        if let Some(l) = self.kept.peek(&dir)
            && l.names.remove(&(cookie(name), name.into())).is_some()
        {
            self.names -= 1;
        }
    }

    /// Called about once a second: drops what was not used for a minute.
    pub(crate) fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        while let Some(dir) = self.kept.oldest() {
            let idle = self.kept.peek(&dir).is_some_and(|l| self.tick.wrapping_sub(l.used) > IDLE);
            if !idle {
                break;
            }
            self.forget(dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::SetId;

    #[test]
    fn the_order_is_frozen() {
        // Bricks of different builds serve one directory after the other.
        assert_eq!(cookie(b"a"), xxhash_rust::xxh3::xxh3_64(b"a") >> 1);
        let mut l = Listing::default();
        for n in 0..100u32 {
            l.insert(format!("f{n}").as_bytes(), 0);
        }
        let all = l.after(0, usize::MAX);
        assert_eq!(all.len(), 100);
        assert!(all.is_sorted_by_key(|e| e.0));
        let first = l.after(0, 10);
        assert_eq!(l.after(first.last().map_or(0, |e| e.0), 90), all[10..].to_vec());
    }

    #[test]
    fn the_bound_counts_names() {
        let mut ls = Listings::new(15);
        let fid = |n| Fid { set: SetId(n), ..Fid::default() };
        for d in 0..3 {
            let mut l = Listing::default();
            for n in 0..10u32 {
                l.insert(format!("f{n}").as_bytes(), 0);
            }
            ls.keep(fid(d), l);
        }
        assert!(ls.get(fid(1)).is_none());
        assert_eq!(ls.names, 10);
        ls.added(fid(2), b"x", 0);
        ls.removed(fid(2), b"f0");
        ls.removed(fid(2), b"f0");
        assert_eq!(ls.names, 10);
    }
}
