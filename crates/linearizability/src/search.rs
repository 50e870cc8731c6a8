//! The search for an order of the operations that explains their answers.
//!
//! Four reductions keep it short, none of which loses an order:
//! * An answered operation that only looks comes first if it is explained: nothing depends on it.
//! * Otherwise the next operation is among those that conflict, directly or through others, with the one that has to be
//!   next because its answer is the earliest. What conflicts with none of these may as well come later (persistent sets;
//!   Godefroid, "Partial-Order Methods", 1996).
//! * A dead end is blamed on the operations that could not go on. Steps that have nothing to do with them are not tried in
//!   other ways.
//! * An operation without an answer comes as late as possible: before one that conflicts with it.

use crate::history::{Call, Timeline};
use crate::report::{Counterexample, counterexample};
use crate::{Model, Operation, Spec};
use std::collections::{BTreeSet, HashMap};
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

/// How many operations without an answer may come between two that have one: few are tried before many.
const BETWEEN: [usize; 4] = [1, 2, 4, usize::MAX];

/// Looks for an order that explains all answers, starting in `initial`, with at most about `limit` steps.
pub fn explain<S: Spec>(
    spec: &S,
    initial: &S::State,
    calls: &[Call<S::Input, S::Output>],
    limit: u64,
) -> Outcome {
    let mut steps = 0;
    for between in BETWEEN {
        let mut search = Search {
            spec,
            calls,
            line: Timeline::new(calls, |a, b| spec.conflict(&calls[a].input, &calls[b].input)),
            closed: HashMap::new(),
            path: Vec::new(),
            longest: (Vec::new(), initial.clone()),
            left: usize::MAX,
            steps: 0,
            between,
            is_cut: false,
        };
        let found = search.run(initial, limit / BETWEEN.len() as u64);
        steps += search.steps;
        match found {
            Some(true) => return Outcome::Explained { steps },
            Some(false) if !search.is_cut => {
                return Outcome::Refuted(counterexample(calls, &search.longest.0, &search.longest.1));
            }
            Some(false) | None => {}
        }
    }
    Outcome::Undecided
}

/// A configuration: the operations that have their places, those without an answer that were placed last and
/// how many, the state.
type Key<State> = (u128, Vec<usize>, usize, State);

/// A step that was taken, and those that were not taken instead.
struct Frame<State> {
    op: usize,
    /// Operations without an answer that were placed just before, with no answered one since, and that have to conflict
    /// with the next one.
    late: Vec<usize>,
    /// How many were placed so.
    between: usize,
    /// Other choices, the next one last.
    rest: Vec<(usize, State)>,
    /// Where the choice was made.
    at: Junction<State>,
}

/// A place where the search may go on in several ways.
struct Junction<State> {
    /// `None`: there was one way only.
    key: Option<Key<State>>,
    /// The operations of which one had to be next.
    group: Vec<usize>,
    /// An operation leads to several states, or makes certain what was not: which of them it was, and what came before, may
    /// matter to anything.
    forks: bool,
    /// The operations because of which the ways that were tried led nowhere.
    blamed: BTreeSet<usize>,
}

/// The ways on.
enum Ways<State> {
    Open(Vec<(usize, State)>, Junction<State>),
    /// There is none, because of these operations.
    Closed(BTreeSet<usize>),
}

struct Search<'a, S: Spec> {
    spec: &'a S,
    calls: &'a [Call<S::Input, S::Output>],
    line: Timeline,
    /// Configurations from which no order was found, and the operations that are to blame.
    closed: HashMap<Key<S::State>, BTreeSet<usize>>,
    path: Vec<Frame<S::State>>,
    /// The order that was found with the most answers, and the state after it.
    longest: (Vec<usize>, S::State),
    /// How many answers it leaves.
    left: usize,
    steps: u64,
    /// So many operations without an answer may come between two that have one.
    between: usize,
    /// More would have been possible.
    is_cut: bool,
}

impl<S: Spec> Search<'_, S> {
    /// Whether there is an order. `None`: it takes too long.
    fn run(&mut self, initial: &S::State, limit: u64) -> Option<bool> {
        let mut state = initial.clone();
        while !self.line.is_complete() {
            if self.steps > limit {
                return None;
            }
            match self.go_on(&state) {
                Some(next) => state = next,
                None => return Some(false),
            }
        }
        Some(true)
    }

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
    fn ways(&mut self, state: &S::State) -> Ways<S::State> {
        let (open, urgent) = self.line.open();
        let free: Vec<usize> = open.iter().copied().filter(|op| self.line.is_free(*op)).collect();
        let mut tried: Vec<(usize, Vec<S::State>)> = Vec::with_capacity(open.len());
        let mut too_late = Vec::new();
        for op in free.iter().copied().filter(|op| self.calls[*op].answer.is_some()) {
            let next = self.step(state, op);
            if next.len() == 1 && next[0] == *state && self.looks(op) {
                if !self.is_in_place(op) {
                    // It belongs before what was placed late, unless that made certain what it shows.
                    too_late.push(op);
                    continue;
                }
                let junction =
                    Junction { key: None, group: Vec::new(), forks: false, blamed: BTreeSet::new() };
                return Ways::Open(next.into_iter().map(|s| (op, s)).collect(), junction);
            }
            tried.push((op, next));
        }
        let group = self.line.group(urgent, &open);
        tried.retain(|(op, _)| group.contains(op) && self.is_in_place(*op));
        let mut silent: Vec<usize> = group.iter().copied().filter(|op| free.contains(op)).collect();
        silent.retain(|op| self.calls[*op].answer.is_none());
        silent.sort_by_key(|op| std::cmp::Reverse(self.calls[*op].begun));
        if !silent.is_empty() && self.path.last().is_some_and(|f| f.between >= self.between) {
            self.is_cut = true;
            silent.clear();
        }
        for op in silent {
            let next = self.step(state, op);
            tried.push((op, next.into_iter().filter(|s| s != state).collect()));
        }
        let blamed: BTreeSet<usize> = self.late().iter().chain(&group).chain(&too_late).copied().collect();
        let count: usize = tried.iter().map(|(_, next)| next.len()).sum();
        if count == 0 {
            return Ways::Closed(blamed);
        }
        let learns = |op: usize, s: &S::State| s != state && self.looks(op) || self.spec.learns(state, s);
        let forks = tried.iter().any(|(op, next)| next.len() > 1 || next.iter().any(|s| learns(*op, s)));
        let key =
            (count > 1).then(|| (self.line.done(), self.late().to_vec(), self.between(), state.clone()));
        if let Some(blamed) = key.as_ref().and_then(|key| self.closed.get(key)) {
            return Ways::Closed(blamed.clone());
        }
        let ways = tried.into_iter().rev().flat_map(|(op, next)| next.into_iter().map(move |s| (op, s)));
        Ways::Open(ways.collect(), Junction { key, group, forks, blamed })
    }

    /// The operations without an answer at the end of the path that have to come before one that conflicts with them.
    fn late(&self) -> &[usize] {
        self.path.last().map_or(&[], |f| &f.late)
    }

    /// How many operations without an answer are at the end of the path, if that is bounded.
    fn between(&self) -> usize {
        if self.between == usize::MAX { 0 } else { self.path.last().map_or(0, |f| f.between) }
    }

    /// Whether what was placed late has to come before `op`.
    fn is_in_place(&self, op: usize) -> bool {
        self.late().iter().all(|late| self.line.conflicts(*late, op))
    }

    /// Goes on from a state. `None`: there is no order.
    fn go_on(&mut self, from: &S::State) -> Option<S::State> {
        match self.ways(from) {
            Ways::Open(mut rest, at) => {
                let (op, next) = rest.pop()?;
                self.place(op, rest, at);
                Some(next)
            }
            Ways::Closed(blamed) => {
                if self.line.left() < self.left {
                    self.left = self.line.left();
                    self.longest = (self.path.iter().map(|f| f.op).collect(), from.clone());
                }
                self.backtrack(blamed)
            }
        }
    }

    fn place(&mut self, op: usize, rest: Vec<(usize, S::State)>, at: Junction<S::State>) {
        let (mut late, mut between) = (Vec::new(), 0);
        if self.calls[op].answer.is_none() {
            late.extend(self.late().iter().copied().filter(|other| !self.line.conflicts(*other, op)));
            late.push(op);
            late.sort_unstable();
            between = self.path.last().map_or(0, |f| f.between) + 1;
        }
        self.line.lift(op);
        self.path.push(Frame { op, late, between, rest, at });
    }

    /// Whether another place of `op` could help these.
    fn matters(&self, op: usize, blamed: &BTreeSet<usize>) -> bool {
        blamed.contains(&op)
            || blamed.iter().any(|b| self.spec.conflict(&self.calls[op].input, &self.calls[*b].input))
    }

    /// Goes back to the last step that has something to do with those to blame (conflict-directed backjumping; Prosser,
    /// 1993), and takes another one instead.
    fn backtrack(&mut self, blamed: BTreeSet<usize>) -> Option<S::State> {
        let mut blamed = blamed;
        loop {
            let Frame { op, mut rest, mut at, .. } = self.path.pop()?;
            self.line.unlift(op);
            if at.group.is_empty() {
                continue;
            }
            if at.forks || self.matters(op, &blamed) {
                at.blamed.append(&mut blamed);
                if let Some((op, next)) = rest.pop() {
                    self.place(op, rest, at);
                    return Some(next);
                }
                blamed = at.blamed;
            }
            if let Some(key) = at.key {
                self.closed.insert(key, blamed.clone());
            }
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
