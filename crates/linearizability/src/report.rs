//! What to show of a history that no order explains.

use crate::history::Call;
use std::fmt::{self, Debug, Write as _};

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

pub(crate) fn counterexample<I: Debug, O: Debug, S: Debug>(
    calls: &[Call<I, O>],
    longest: &[usize],
    state: &S,
) -> Counterexample {
    let mut text = String::from("no order explains these answers; an order of the beginning ends so:\n");
    let line = |text: &mut String, call: &Call<I, O>| {
        let until = call.answer.as_ref().map_or("never".to_owned(), |(_, at)| at.to_string());
        let told = call.answer.as_ref().map(|(told, _)| told);
        // Writing to a string does not fail.
        let _written = writeln!(text, "  {} to {until}: {:?} -> {told:?}", call.begun, call.input);
    };
    for op in longest.iter().skip(longest.len().saturating_sub(LINES)) {
        line(&mut text, &calls[*op]);
    }
    let _written = writeln!(text, "then the state is {state:?}, and none of these can follow:");
    let mut rest: Vec<&Call<I, O>> =
        calls.iter().enumerate().filter(|(i, _)| !longest.contains(i)).map(|(_, call)| call).collect();
    // The first of them has to be next.
    rest.sort_by_key(|call| (call.answer.as_ref().map_or(u64::MAX, |(_, at)| *at), call.begun));
    for call in rest.into_iter().take(LINES) {
        line(&mut text, call);
    }
    Counterexample { text }
}
