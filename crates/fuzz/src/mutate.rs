//! Inputs that are almost right: samples with a few edits, and now and then bytes without any sense.

use crate::rng::Rng;

/// Longer inputs are not made: bounds of length are met by lengths that lie.
const LONGEST: usize = 16 << 10;

/// Numbers at which lengths, counts and sums go wrong.
const EDGES: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// What a text may hold that its reader does not expect.
const WORDS: [&str; 24] = [
    "-1",
    "0",
    "1e999",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\\u0000",
    "\n",
    "..",
    "/",
    ".mortar",
    "*",
    "0.0.0.0/0",
    "::1/129",
    "[",
    "]",
    ",",
    "=",
    "%",
];

/// The next input for a decoder of which these are samples.
pub fn input(samples: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = match rng.pick(samples) {
        Some(sample) if rng.below(32) > 0 => sample.clone(),
        _ => (0..rng.below(200)).map(|_| rng.byte()).collect(),
    };
    for _ in 0..1 + rng.below(4) {
        edit(&mut bytes, samples, rng);
    }
    bytes.truncate(LONGEST);
    bytes
}

fn edit(bytes: &mut Vec<u8>, samples: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.below(bytes.len() + 1);
    let some = at..(at + rng.below(24)).min(bytes.len());
    match rng.below(10) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        1 => {
            let new = rng.byte();
            if let Some(byte) = bytes.get_mut(at) {
                *byte = new;
            }
        }
        2 => write_number(bytes, at, rng),
        3 => {
            bytes.drain(some);
        }
        4 => {
            let again = bytes.get(some).unwrap_or_default().to_vec();
            bytes.splice(at..at, again);
        }
        5 => bytes.truncate(at),
        6 => {
            let new: Vec<u8> = (0..rng.below(16)).map(|_| rng.byte()).collect();
            bytes.splice(at..at, new);
        }
        7 => {
            let word = rng.pick(&WORDS).copied().unwrap_or_default();
            bytes.splice(some, word.bytes());
        }
        8 => replace_digits(bytes, at, rng),
        _ => {
            let other = rng.pick(samples).map(Vec::as_slice).unwrap_or_default();
            let from = rng.below(other.len() + 1);
            bytes.truncate(at);
            bytes.extend(other.get(from..).unwrap_or_default());
        }
    }
}

/// A number of one, two, four or eight bytes at which things go wrong, or next to such a one.
fn write_number(bytes: &mut [u8], at: usize, rng: &mut Rng) {
    let near = rng.below(3) as u64;
    let number = rng.pick(&EDGES).copied().unwrap_or_default().wrapping_add(near).wrapping_sub(1);
    let width = 1 << rng.below(4);
    for (to, from) in bytes.iter_mut().skip(at).zip(number.to_le_bytes()).take(width) {
        *to = from;
    }
}

/// The number that is written there or behind becomes another one.
fn replace_digits(bytes: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let is_digit = |b: &u8| b.is_ascii_digit();
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(before) = rest.iter().position(is_digit) else { return };
    let digits = rest.iter().skip(before).take_while(|b| is_digit(b)).count();
    let number = rng.pick(&EDGES).copied().unwrap_or_default();
    bytes.splice(at + before..at + before + digits, number.to_string().bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_follow_from_the_seed_and_differ_from_each_other() {
        let samples = vec![b"a sample of some bytes".to_vec(), b"another".to_vec()];
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            (0..200).map(|_| input(&samples, &mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        let mut all = draw(1);
        all.sort();
        all.dedup();
        assert!(all.len() > 150, "{}", all.len());
        assert!(all.iter().all(|i| i.len() <= LONGEST));
    }
}
