//! Each reduction of the search against a search without it.

use crate::{Call, Outcome, Spec, explain};

/// Some registers; `Plain` forgets which operations are independent.
struct Registers {
    plain: bool,
}

#[derive(Clone, Copy, Debug)]
enum Ask {
    Write(usize, u8),
    Read(usize),
    /// Of two that have the same.
    ReadBoth(usize, usize),
    /// Sets one register to what another has.
    Copy(usize, usize),
    /// Sets one to 1 or 2, as the next read shows.
    Blur(usize),
    /// Two that have the same are read, and the third of them all gets that.
    Take(usize, usize),
}

const REGISTERS: usize = 3;
/// What a register has that nobody has read since.
const BLURRED: u8 = 9;

/// A register beside these.
fn third(one: usize, other: usize) -> usize {
    (0..REGISTERS).find(|at| *at != one && *at != other).unwrap()
}

impl Spec for Registers {
    type State = [u8; REGISTERS];
    type Input = Ask;
    type Output = u8;

    fn step(&self, state: &Self::State, ask: &Ask, told: Option<&u8>) -> impl Iterator<Item = Self::State> {
        let mut next = *state;
        let mut read = |at: usize| {
            let blurred = next[at] == BLURRED;
            if blurred {
                next[at] = told.copied().unwrap_or(BLURRED);
            }
            told.is_some_and(|value| if blurred { *value > 0 } else { *value == next[at] })
        };
        let fits = match ask {
            Ask::Write(at, value) => {
                next[*at] = *value;
                true
            }
            Ask::Read(at) => read(*at),
            Ask::ReadBoth(one, other) => read(*one) & read(*other),
            Ask::Blur(at) => {
                next[*at] = BLURRED;
                true
            }
            Ask::Take(one, other) => {
                let fits = read(*one) & read(*other);
                next[third(*one, *other)] = next[*one];
                fits
            }
            Ask::Copy(from, to) => {
                // What is copied has to be known.
                let known = if state[*from] == BLURRED { 1..=2 } else { state[*from]..=state[*from] };
                let copied = known.map(|value| {
                    let mut next = *state;
                    (next[*from], next[*to]) = (value, value);
                    next
                });
                return copied.collect::<Vec<_>>().into_iter();
            }
        };
        Vec::from_iter(fits.then_some(next)).into_iter()
    }

    fn looks(&self, ask: &Ask, _: Option<&u8>) -> bool {
        !self.plain && matches!(ask, Ask::Read(_) | Ask::ReadBoth(..))
    }

    fn learns(&self, before: &Self::State, after: &Self::State) -> bool {
        let blurred = |state: &Self::State| state.iter().filter(|value| **value == BLURRED).count();
        blurred(after) < blurred(before)
    }

    fn conflict(&self, a: &Ask, b: &Ask) -> bool {
        let touched = |ask: &Ask| match ask {
            Ask::Write(at, _) | Ask::Blur(at) => (vec![], vec![*at]),
            Ask::Read(at) => (vec![*at], vec![]),
            Ask::ReadBoth(one, other) => (vec![*one, *other], vec![]),
            Ask::Copy(from, to) => (vec![*from], vec![*to]),
            Ask::Take(one, other) => (vec![*one, *other], vec![third(*one, *other)]),
        };
        let ((reads, writes), (other_reads, other_writes)) = (touched(a), touched(b));
        let meet = |a: &[usize], b: &[usize]| a.iter().any(|x| b.contains(x));
        self.plain
            || meet(&writes, &other_reads)
            || meet(&writes, &other_writes)
            || meet(&reads, &other_writes)
    }
}

/// Numbers that only look random.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn register(&mut self) -> usize {
        usize::try_from(self.below(REGISTERS as u64)).unwrap()
    }

    fn history(&mut self) -> Vec<Call<Ask, u8>> {
        let count = 3 + self.below(6);
        let mut calls: Vec<Call<Ask, u8>> = Vec::new();
        for n in 0..count {
            let begun = self.below(20);
            let value = u8::try_from(self.below(3)).unwrap();
            let input = match self.below(9) {
                0 | 1 => Ask::Write(self.register(), value),
                2 => Ask::Copy(self.register(), self.register()),
                3 => Ask::Blur(self.register()),
                4 | 5 => Ask::ReadBoth(self.register(), self.register()),
                6 => Ask::Take(self.register(), self.register()),
                _ => Ask::Read(self.register()),
            };
            let known = self.below(5) > 0;
            let answer = known.then(|| (value, begun + 1 + self.below(12)));
            let first = usize::try_from(self.below(n + 1)).unwrap();
            let after =
                (self.below(4) == 0 && calls.get(first).is_some_and(|c| c.answer.is_some())).then_some(first);
            calls.push(Call { input, begun, answer, after });
        }
        calls
    }
}

#[test]
fn no_reduction_changes_the_verdict() {
    let mut draw = Draw(1);
    let mut refused = 0;
    for _ in 0..20_000 {
        let history = draw.history();
        let verdict = |plain| {
            matches!(
                explain(&Registers { plain }, &[0; REGISTERS], &history, u64::MAX),
                Outcome::Explained { .. }
            )
        };
        assert_eq!(verdict(false), verdict(true), "{history:?}");
        refused += u32::from(!verdict(false));
    }
    assert!((4_000..16_000).contains(&refused), "{refused} refused: the histories are too easy or too hard");
}

/// What an operation makes certain matters to others, with which it does not conflict.
#[test]
fn what_makes_something_certain_is_tried_later_too() {
    let call = |input, (begun, ended), told| Call { input, begun, answer: Some((told, ended)), after: None };
    for certain in [Ask::ReadBoth(0, 1), Ask::Take(0, 1)] {
        let calls = [
            call(Ask::Blur(0), (0, 1), 0),
            call(Ask::Blur(1), (2, 3), 0),
            call(certain, (9, 100), 1),
            call(Ask::Write(0, 1), (10, 101), 0),
            call(Ask::Read(0), (11, 20), 1),
            call(Ask::Read(1), (30, 40), 2),
            call(Ask::Write(1, 1), (50, 60), 0),
        ];
        let found = explain(&Registers { plain: false }, &[0; REGISTERS], &calls, 1000);
        assert!(matches!(found, Outcome::Explained { .. }), "{found:?}");
    }
}

#[test]
fn what_is_independent_is_not_tried_in_all_orders() {
    // Eight writers at once, of which only the last conflicts with the reads.
    let mut calls = Vec::new();
    for round in 0..100 {
        for n in 0..8 {
            let input = Ask::Write(usize::from(n == 7), 1 + u8::from(n == 7));
            calls.push(Call { input, begun: round * 10, answer: Some((0, round * 10 + 9)), after: None });
        }
        calls.push(Call {
            input: Ask::Read(1),
            begun: round * 10,
            answer: Some((2, round * 10 + 9)),
            after: None,
        });
    }
    let Outcome::Explained { steps } = explain(&Registers { plain: false }, &[0; REGISTERS], &calls, 50_000)
    else {
        panic!("it is not explained within the steps");
    };
    assert!(steps > 900);
}
