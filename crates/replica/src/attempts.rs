//! A joining brick's attempts: each has a number, and an answer to any but those made since the brick was opened is void.
//!
//! A primary that was frozen answers everything it was asked meanwhile, also by an earlier process of the brick, whose
//! journal may have reached farther. Numbers are compared for being the same only: clocks begin anew with the machine.

use alloc::collections::VecDeque;

/// Attempts remembered: an answer may come while later ones were made.
const MAX: usize = 64;

/// What was asked, oldest first. Nothing older than the attempt that was answered last.
#[derive(Clone, Debug, Default)]
pub struct Attempts(VecDeque<u64>);

impl Attempts {
    /// Another attempt is made, by a number that no other has.
    pub fn ask(&mut self, number: u64) {
        if self.0.len() == MAX {
            self.0.pop_front();
        }
        self.0.push_back(number);
    }

    /// Whether an answer counts; from then on, none to an older attempt does.
    pub fn answered(&mut self, number: u64) -> bool {
        let Some(at) = self.0.iter().position(|n| *n == number) else { return false };
        self.0.drain(..at);
        true
    }

    /// The attempt that was answered last.
    pub fn current(&self) -> u64 {
        self.0.front().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_and_not_older_answers_count() {
        let mut attempts = Attempts::default();
        assert!(!attempts.answered(7), "somebody else asked");
        for n in [9, 3, 5] {
            attempts.ask(n);
        }
        assert!(attempts.answered(3) && attempts.answered(3));
        assert_eq!(attempts.current(), 3);
        assert!(!attempts.answered(9) && attempts.answered(5));
        (100..100 + 2 * MAX as u64).for_each(|n| attempts.ask(n));
        assert_eq!(attempts.0.len(), MAX);
    }
}
