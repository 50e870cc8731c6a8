//! Whether a recorded history of concurrent operations on one object is linearizable.
//!
//! Owns: the search. Each operation has a moment when it was begun and, unless its outcome is unknown, one when it was
//! answered. The history is linearizable if every answered operation can be given a point between its two moments such that
//! the answers are those of the operations done one after the other in the order of their points. An operation without an
//! answer may have been done at any time after it was begun, or never.
//! Linearizability is local (Herlihy and Wing, 1990): a history of many objects is linearizable if that of each object is.
//! So histories are checked object by object.
//! The search is Wing and Gong's with Lowe's memory of visited configurations ("Testing for Linearizability", 2017), as in
//! Porcupine.
//!
//! Tests use it: those with real processes and the simulator. Nothing of the product does.

mod history;
mod report;
mod search;

pub use history::Call;
pub use report::Counterexample;
pub use search::{Outcome, check, explain};

use std::fmt::Debug;
use std::hash::Hash;

/// What an object may do and answer, when operations come one after the other.
pub trait Spec {
    /// The object's state.
    type State: Clone + Eq + Hash + Debug;
    /// What is asked of it.
    type Input: Debug;
    /// What it answers.
    type Output: Debug;

    /// The states in which the object may be after the operation, if it answered `told`, or if nobody knows the answer.
    /// None: it can't have answered that.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        told: Option<&Self::Output>,
    ) -> impl Iterator<Item = Self::State>;

    /// Whether the operation, with this answer, changes nothing in any state; it may show more of the state than was known.
    fn looks(&self, input: &Self::Input, told: Option<&Self::Output>) -> bool {
        let _both = (input, told);
        false
    }

    /// Whether a step, besides what it changes, makes something certain that was not. Then what came before it may matter to
    /// operations that do not conflict with it. Of one that only looks that is all that a step can do.
    fn learns(&self, before: &Self::State, after: &Self::State) -> bool {
        let _both = (before, after);
        false
    }

    /// Whether the order of two operations may matter: to their answers, or to the state after both. The fewer conflict,
    /// the faster the search.
    fn conflict(&self, a: &Self::Input, b: &Self::Input) -> bool {
        let _both = (a, b);
        true
    }
}

/// What an object does when operations come one after the other.
pub trait Model {
    /// The object's state.
    type State: Clone + Eq + Hash + Debug;
    /// What is asked of it.
    type Input: Debug;
    /// What it answers.
    type Output: PartialEq + Debug;

    /// The state at first.
    fn initial() -> Self::State;

    /// Carries out one operation.
    fn step(state: &Self::State, input: &Self::Input) -> (Self::State, Self::Output);
}

/// One recorded operation. Times are on one clock that never goes back, in any unit.
#[derive(Debug)]
pub struct Operation<M: Model> {
    /// What was asked.
    pub input: M::Input,
    /// When it was begun.
    pub begun: u64,
    /// What was answered, and when; `None` if nobody knows.
    pub answer: Option<(M::Output, u64)>,
}
