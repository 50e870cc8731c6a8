//! The only source of chance: everything follows from a seed.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng};

/// Draws what the edits of inputs need.
#[derive(Clone, Debug)]
pub struct Rng(StdRng);

impl Rng {
    /// A generator that gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Rng {
        Rng(StdRng::seed_from_u64(seed))
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.random_range(0..n.max(1))
    }

    /// One of them; `None` if there is none.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }

    /// A random byte.
    pub fn byte(&mut self) -> u8 {
        self.0.random()
    }
}
