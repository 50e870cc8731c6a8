//! The search for an order of the operations that explains their answers.
//!
//! Three reductions keep it short, none of which loses an order:
//! * An answered operation that only looks comes first if it is explained: nothing depends on it.
//! * Otherwise the next operation is among those that conflict, directly or through others, with the one that has to be
//!   next because its answer is the earliest. What conflicts with none of these may as well come later (persistent sets;
//!   Godefroid, "Partial-Order Methods", 1996).
//! * An operation without an answer comes as late as possible: before one that conflicts with it.

use crate::history::{Call, Timeline};
use crate::report::{Counterexample, counterexample};
use crate::{Model, Operation, Spec};
use std::collections::HashSet;
use std::marker::PhantomData;

/// What the search has found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// There is an order.
    Explained {
        /// Operations that were tried at some place.
        steps: u64,
    },
    /// There is none.
    Refuted(Counterexample),
    /// The search took more steps than it was allowed.
    Undecided,
}

/// Steps of [`check`]: in practice no limit.
const ENDLESS: u64 = u64::MAX;

/// Looks for an order that explains all answers, starting in `initial`, with at most `limit` steps.
pub fn explain<S: Spec>(
    spec: &S,
    initial: &S::State,
    calls: &[Call<S::Input, S::Output>],
    limit: u64,
) -> Outcome {
    let mut search = Search {
        spec,
        calls,
        line: Timeline::new(calls, |a, b| spec.conflict(&calls[a].input, &calls[b].input)),
        seen: HashSet::new(),
        path: Vec::new(),
        longest: (Vec::new(), initial.clone()),
        steps: 0,
    };
    let mut state = initial.clone();
    loop {
        if search.steps > limit {
            return Outcome::Undecided;
        }
        if search.line.is_complete() {
            return Outcome::Explained { steps: search.steps };
        }
        let choices = search.choices(&state);
        let next = search.descend(&state, choices).or_else(|| search.backtrack());
        match next {
            Some(next) => state = next,
            None => return Outcome::Refuted(counterexample(calls, &search.longest.0, &search.longest.1)),
        }
    }
}

/// A step that was taken, and those that were not taken instead.
struct Frame<State> {
    op: usize,
    /// Operations without an answer that were placed just before, with no answered one since.
    late: Vec<usize>,
    /// Other choices, the next one last.
    rest: Vec<(usize, State)>,
}

struct Search<'a, S: Spec> {
    spec: &'a S,
    calls: &'a [Call<S::Input, S::Output>],
    line: Timeline,
    seen: HashSet<(u128, Vec<usize>, S::State)>,
    path: Vec<Frame<S::State>>,
    /// The longest order that was found, and the state after it.
    longest: (Vec<usize>, S::State),
    steps: u64,
}

impl<S: Spec> Search<'_, S> {
    fn step(&mut self, state: &S::State, op: usize) -> Vec<S::State> {
        self.steps += 1;
        let call = &self.calls[op];
        self.spec.step(state, &call.input, call.answer.as_ref().map(|(told, _)| told)).collect()
    }

    fn looks(&self, op: usize) -> bool {
        let call = &self.calls[op];
        self.spec.looks(&call.input, call.answer.as_ref().map(|(told, _)| told))
    }

    /// What may be done next, the first choice last.
    fn choices(&mut self, state: &S::State) -> Vec<(usize, S::State)> {
        let (open, urgent) = self.line.open();
        let mut tried: Vec<(usize, Vec<S::State>)> = Vec::with_capacity(open.len());
        let free: Vec<usize> = open.iter().copied().filter(|op| self.line.is_free(*op)).collect();
        for op in free.iter().copied().filter(|op| self.calls[*op].answer.is_some()) {
            let next = self.step(state, op);
            if next.len() == 1 && next[0] == *state && self.looks(op) {
                return if self.is_in_place(op) {
                    next.into_iter().map(|s| (op, s)).collect()
                } else {
                    vec![]
                };
            }
            tried.push((op, next));
        }
        let group = self.line.group(urgent, &open);
        tried.retain(|(op, _)| group.contains(op) && self.is_in_place(*op));
        for op in group.iter().copied().filter(|op| free.contains(op) && self.calls[*op].answer.is_none()) {
            let next = self.step(state, op);
            tried.push((op, next.into_iter().filter(|s| s != state).collect()));
        }
        let more = tried.iter().map(|(_, next)| next.len()).sum::<usize>() > 1;
        if more && !self.seen.insert((self.line.done(), self.late().to_vec(), state.clone())) {
            return Vec::new();
        }
        tried.into_iter().rev().flat_map(|(op, next)| next.into_iter().map(move |s| (op, s))).collect()
    }

    /// The operations without an answer at the end of the path.
    fn late(&self) -> &[usize] {
        self.path.last().map_or(&[], |f| &f.late)
    }

    /// Whether each operation without an answer at the end of the path has to come before what follows it, with `op` next.
    fn is_in_place(&self, op: usize) -> bool {
        let late = self.late();
        late.iter().enumerate().all(|(i, one)| {
            self.line.conflicts(*one, op)
                || late[i + 1..].iter().any(|other| self.line.conflicts(*one, *other))
        })
    }

    fn descend(&mut self, from: &S::State, mut choices: Vec<(usize, S::State)>) -> Option<S::State> {
        let Some((op, next)) = choices.pop() else {
            if self.path.len() > self.longest.0.len() {
                self.longest = (self.path.iter().map(|f| f.op).collect(), from.clone());
            }
            return None;
        };
        let mut late = Vec::new();
        if self.calls[op].answer.is_none() {
            late = self.late().to_vec();
            late.push(op);
        }
        self.line.lift(op);
        self.path.push(Frame { op, late, rest: choices });
        Some(next)
    }

    fn backtrack(&mut self) -> Option<S::State> {
        loop {
            let frame = self.path.pop()?;
            self.line.unlift(frame.op);
            let mut rest = frame.rest;
            let Some((op, next)) = rest.pop() else { continue };
            let mut late = Vec::new();
            if self.calls[op].answer.is_none() {
                late = self.late().to_vec();
                late.push(op);
            }
            self.line.lift(op);
            self.path.push(Frame { op, late, rest });
            return Some(next);
        }
    }
}

/// A model as a specification: one answer and one successor.
struct Deterministic<'a, M>(PhantomData<&'a M>);

impl<'a, M: Model> Spec for Deterministic<'a, M> {
    type State = M::State;
    type Input = &'a M::Input;
    type Output = &'a M::Output;

    fn step(
        &self,
        state: &M::State,
        input: &&'a M::Input,
        told: Option<&&'a M::Output>,
    ) -> impl Iterator<Item = M::State> {
        let (next, output) = M::step(state, input);
        told.is_none_or(|told| **told == output).then_some(next).into_iter()
    }
}

/// Looks for an order that explains all answers.
///
/// # Errors
/// There is none: the history is not linearizable.
pub fn check<M: Model>(ops: &[Operation<M>]) -> Result<(), Counterexample> {
    let calls: Vec<_> = ops
        .iter()
        .map(|op| Call {
            input: &op.input,
            begun: op.begun,
            answer: op.answer.as_ref().map(|(told, at)| (told, *at)),
            after: None,
        })
        .collect();
    match explain(&Deterministic::<M>(PhantomData), &M::initial(), &calls, ENDLESS) {
        Outcome::Refuted(counterexample) => Err(counterexample),
        Outcome::Explained { .. } | Outcome::Undecided => Ok(()),
    }
}

#[cfg(test)]
mod reductions;
#[cfg(test)]
mod tests;
