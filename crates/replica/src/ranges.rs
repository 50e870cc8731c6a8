//! A set of byte ranges.

use alloc::collections::BTreeMap;

/// Disjoint, non-adjacent ranges `start..end`; `end` may be [`u64::MAX`] for "to the end of the file, wherever that is".
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ranges {
    ends: BTreeMap<u64, u64>,
}

impl Ranges {
    /// Everything.
    pub fn all() -> Ranges {
        let mut r = Ranges::default();
        r.add(0, u64::MAX);
        r
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Adds `start..end`.
    pub fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut from, mut to) = (start, end);
        // Whatever touches the new range melts into it.
        while let Some((&s, &e)) = self.ends.range(..=to).next_back()
            && e >= from
        {
            self.ends.remove(&s);
            from = from.min(s);
            to = to.max(e);
        }
        self.ends.insert(from, to);
    }

    /// Takes `start..end` out.
    pub fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        while let Some((&s, &e)) = self.ends.range(..end).next_back()
            && e > start
        {
            self.ends.remove(&s);
            if e > end {
                self.ends.insert(end, e);
            }
            if s < start {
                self.ends.insert(s, start);
            }
        }
    }

    /// Whether any byte of `start..end` is in it.
    pub fn touches(&self, start: u64, end: u64) -> bool {
        start < end && self.ends.range(..end).next_back().is_some_and(|(_, &e)| e > start)
    }

    /// The first range.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.ends.first_key_value().map(|(s, e)| (*s, *e))
    }

    /// Takes out everything from `end` on.
    pub fn cut(&mut self, end: u64) {
        self.remove(end, u64::MAX);
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ends.iter().map(|(s, e)| (*s, *e))
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "tests")]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn list(r: &Ranges) -> Vec<(u64, u64)> {
        r.iter().collect()
    }

    #[test]
    fn ranges_melt_and_split() {
        let mut r = Ranges::default();
        r.add(10, 20);
        r.add(30, 40);
        r.add(20, 30);
        assert_eq!(list(&r), [(10, 40)]);
        r.remove(15, 18);
        assert_eq!(list(&r), [(10, 15), (18, 40)]);
        assert!(r.touches(14, 16) && !r.touches(15, 18) && r.touches(0, 100) && !r.touches(40, 50));
        r.cut(12);
        assert_eq!(list(&r), [(10, 12)]);
        r.add(0, u64::MAX);
        assert_eq!(r.first(), Some((0, u64::MAX)));
        r.remove(0, u64::MAX);
        assert!(r.is_empty());
    }

    /// Against a plain set of numbers.
    #[test]
    fn like_a_set_of_numbers() {
        let mut seed = 12345u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let (mut r, mut model) = (Ranges::default(), [false; 64]);
        for _ in 0..5000 {
            let (a, b) = (next(64), next(64));
            let (a, b) = (a.min(b), a.max(b));
            let put = next(2) == 0;
            if put {
                r.add(a, b)
            } else {
                r.remove(a, b)
            }
            for x in &mut model[a as usize..b as usize] {
                *x = put;
            }
            for (i, x) in model.iter().enumerate() {
                assert_eq!(r.touches(i as u64, i as u64 + 1), *x);
            }
            let ends: Vec<_> = r.iter().collect();
            assert!(ends.windows(2).all(|w| w[0].1 < w[1].0), "disjoint and apart: {ends:?}");
        }
    }
}
