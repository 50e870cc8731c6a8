//! The search for an order of the operations that explains their answers.

use crate::{Model, Operation};
use std::collections::HashSet;
use std::fmt::{self, Write as _};

/// A history for which there is no such order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterexample {
    /// The operations that no order explains, one a line: the longest explained beginning, and what could not follow.
    pub text: String,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Counterexample {}

/// Lines of each part of a counterexample.
const LINES: usize = 12;
/// The place before the first event.
const HEAD: usize = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Head,
    Begin,
    Answer,
}

/// An event of the history, in a list from which operations are lifted when they got their point.
struct Event {
    what: What,
    op: usize,
    before: usize,
    after: Option<usize>,
}

struct Events {
    list: Vec<Event>,
    /// Each operation's two events.
    of: Vec<(usize, Option<usize>)>,
    /// Answers that are still in the list.
    open: usize,
}

impl Events {
    fn new<M: Model>(ops: &[Operation<M>]) -> Events {
        let mut moments = Vec::with_capacity(ops.len() * 2);
        for (i, op) in ops.iter().enumerate() {
            // What is begun at the moment of an answer overlaps with it.
            moments.push((op.begun, 0, i));
            moments.extend(op.answer.as_ref().map(|(_, at)| (*at.max(&op.begun), 1, i)));
        }
        moments.sort_unstable();
        let mut list = vec![Event { what: What::Head, op: 0, before: HEAD, after: None }];
        let mut of = vec![(HEAD, None); ops.len()];
        for (_, answers, op) in moments {
            let at = list.len();
            let what = if answers == 1 { What::Answer } else { What::Begin };
            list[at - 1].after = Some(at);
            list.push(Event { what, op, before: at - 1, after: None });
            if answers == 1 {
                of[op].1 = Some(at);
            } else {
                of[op].0 = at;
            }
        }
        let open = ops.iter().filter(|o| o.answer.is_some()).count();
        Events { list, of, open }
    }

    fn remove(&mut self, at: usize) {
        let (before, after) = (self.list[at].before, self.list[at].after);
        self.list[before].after = after;
        if let Some(after) = after {
            self.list[after].before = before;
        }
    }

    fn restore(&mut self, at: usize) {
        let (before, after) = (self.list[at].before, self.list[at].after);
        self.list[before].after = Some(at);
        if let Some(after) = after {
            self.list[after].before = at;
        }
    }

    fn lift(&mut self, op: usize) {
        let (begin, answer) = self.of[op];
        self.remove(begin);
        if let Some(answer) = answer {
            self.remove(answer);
            self.open -= 1;
        }
    }

    fn unlift(&mut self, op: usize) {
        let (begin, answer) = self.of[op];
        if let Some(answer) = answer {
            self.restore(answer);
            self.open += 1;
        }
        self.restore(begin);
    }
}

/// Which operations have their points.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn with(&self, op: usize) -> Done {
        let mut bits = self.0.clone();
        bits[op / 64] |= 1 << (op % 64);
        Done(bits)
    }
}

/// Looks for an order that explains all answers.
///
/// # Errors
/// There is none: the history is not linearizable.
pub fn check<M: Model>(ops: &[Operation<M>]) -> Result<(), Counterexample> {
    let mut events = Events::new(ops);
    let mut state = M::initial();
    let mut done = Done(vec![0; ops.len().div_ceil(64)]);
    let mut seen: HashSet<(Done, M::State)> = HashSet::new();
    let mut path: Vec<(usize, M::State, Done)> = Vec::new();
    let mut longest: Vec<usize> = Vec::new();
    let mut at = events.list[HEAD].after;
    while events.open > 0 {
        // Every open answer is behind its beginning, so the list does not end before one is met.
        let Some(here) = at else { return Err(counterexample(ops, &longest)) };
        let op = events.list[here].op;
        if events.list[here].what == What::Begin {
            let (next, output) = M::step(&state, &ops[op].input);
            let explained = ops[op].answer.as_ref().is_none_or(|(told, _)| *told == output);
            let now = done.with(op);
            if explained && seen.insert((now.clone(), next.clone())) {
                path.push((op, std::mem::replace(&mut state, next), std::mem::replace(&mut done, now)));
                events.lift(op);
                at = events.list[HEAD].after;
            } else {
                at = events.list[here].after;
            }
            continue;
        }
        // This one was answered before anything else could have its point: something on the way here is wrong.
        if path.len() > longest.len() {
            longest = path.iter().map(|(op, ..)| *op).collect();
        }
        let Some((last, before, was)) = path.pop() else { return Err(counterexample(ops, &longest)) };
        (state, done) = (before, was);
        events.unlift(last);
        at = events.list[events.of[last].0].after;
    }
    Ok(())
}

fn counterexample<M: Model>(ops: &[Operation<M>], longest: &[usize]) -> Counterexample {
    let mut text = String::from("no order explains these answers; an order of the beginning ends so:\n");
    let mut state = M::initial();
    for op in longest {
        state = M::step(&state, &ops[*op].input).0;
    }
    let line = |text: &mut String, op: &Operation<M>| {
        let until = op.answer.as_ref().map_or("never".to_owned(), |(_, at)| at.to_string());
        let told = op.answer.as_ref().map(|(o, _)| o);
        // Writing to a string does not fail.
        let _written = writeln!(text, "  {} to {until}: {:?} -> {told:?}", op.begun, op.input);
    };
    for op in longest.iter().skip(longest.len().saturating_sub(LINES)) {
        line(&mut text, &ops[*op]);
    }
    let _written = writeln!(text, "then the state is {state:?}, and none of these can follow:");
    let mut rest: Vec<&Operation<M>> =
        ops.iter().enumerate().filter(|(i, _)| !longest.contains(i)).map(|(_, op)| op).collect();
    rest.sort_by_key(|op| op.begun);
    for op in rest.into_iter().take(LINES) {
        line(&mut text, op);
    }
    Counterexample { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Register;

    #[derive(Debug)]
    enum Ask {
        Write(u64),
        Read,
    }

    impl Model for Register {
        type State = u64;
        type Input = Ask;
        type Output = u64;

        fn initial() -> u64 {
            0
        }

        fn step(state: &u64, input: &Ask) -> (u64, u64) {
            match input {
                Ask::Write(v) => (*v, 0),
                Ask::Read => (*state, *state),
            }
        }
    }

    fn write(v: u64, begun: u64, ended: u64) -> Operation<Register> {
        Operation { input: Ask::Write(v), begun, answer: Some((0, ended)) }
    }

    fn read(v: u64, begun: u64, ended: u64) -> Operation<Register> {
        Operation { input: Ask::Read, begun, answer: Some((v, ended)) }
    }

    #[test]
    fn one_after_the_other() {
        assert_eq!(check(&[read(0, 0, 1), write(5, 2, 3), read(5, 4, 5)]), Ok(()));
        assert!(check(&[write(5, 2, 3), read(0, 4, 5)]).is_err(), "a stale read");
    }

    #[test]
    fn overlapping_operations_may_have_either_order() {
        assert_eq!(check(&[write(5, 0, 10), read(0, 1, 2), read(5, 3, 4)]), Ok(()));
        let back = check(&[write(5, 0, 10), read(5, 1, 2), read(0, 3, 4)]);
        assert!(back.unwrap_err().text.contains("none of these can follow"));
        assert_eq!(check(&[write(1, 0, 10), write(2, 0, 10), read(2, 11, 12), read(2, 13, 14)]), Ok(()));
        assert!(check(&[write(1, 0, 10), write(2, 0, 10), read(2, 11, 12), read(1, 13, 14)]).is_err());
    }

    #[test]
    fn an_operation_without_an_answer_was_done_some_time_or_never() {
        let lost = |v| Operation { input: Ask::Write(v), begun: 0, answer: None };
        assert_eq!(check(&[lost(5), read(0, 1, 2)]), Ok(()));
        assert_eq!(check(&[lost(5), read(0, 1, 2), read(5, 300, 301)]), Ok(()));
        assert!(check(&[lost(5), read(5, 1, 2), read(0, 3, 4)]).is_err());
        assert!(check(&[Operation { begun: 10, ..lost(5) }, read(5, 1, 2)]).is_err(), "it was not begun yet");
    }

    #[test]
    fn long_histories_are_checked_in_reasonable_time() {
        let mut ops = Vec::new();
        for n in 0..20_000u64 {
            ops.push(write(n + 1, n * 10, n * 10 + 14));
            ops.push(read(n + 1, n * 10 + 5, n * 10 + 16));
        }
        assert_eq!(check(&ops), Ok(()));
    }
}
