//! Random and mutated bytes for whatever reads bytes of others: frames, messages, records, keys, requests (of the kernel
//! and over HTTP too), settings.
//!
//! Owns: the inputs ([`input`]), which are frozen samples with a few edits, and the decoders that take them ([`targets`]).
//! A decoder gives a value or an error. What it must not do is panic, or give a value that it reads otherwise when it is
//! written again. Everything follows from a seed, so an input that is found is found again.

mod mutate;
mod rng;
mod samples;
mod targets;

pub use mutate::input;
pub use rng::Rng;
pub use targets::{Target, planted, targets};

/// What inputs led to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count {
    /// How many there were.
    pub inputs: u64,
    /// How many of them were read as a value.
    pub read: u64,
}

impl Target {
    /// Whether a sample is read as it is.
    pub fn reads_a_sample(&self) -> bool {
        self.samples.iter().any(|s| (self.read)(s))
    }

    /// Gives the decoder so many inputs. `look` sees each of them before.
    pub fn run(&self, seed: u64, inputs: u64, mut look: impl FnMut(&[u8])) -> Count {
        let mut rng = Rng::new(seed);
        let mut count = Count::default();
        for _ in 0..inputs {
            let bytes = input(&self.samples, &mut rng);
            look(&bytes);
            count.inputs += 1;
            count.read += u64::from((self.read)(&bytes));
        }
        count
    }
}
