//! Join ids: each join of a brick has an id. An answer counts only if it carries an id that was issued since the brick was
//! opened.
//!
//! A primary that was frozen answers everything it was asked meanwhile, also by an earlier process of the brick, whose
//! journal may have reached farther. Ids are only compared for equality, because they come from a clock that starts again
//! with the machine.

use alloc::collections::VecDeque;

/// Join ids that are remembered: an answer may arrive after later joins.
const MAX: usize = 64;

/// The issued ids, oldest first, from the one that was answered last.
#[derive(Clone, Debug, Default)]
pub struct JoinIds(VecDeque<u64>);

impl JoinIds {
    /// Records a new join; its id is given to no other join.
    pub fn ask(&mut self, join_id: u64) {
        if self.0.len() == MAX {
            self.0.pop_front();
        }
        self.0.push_back(join_id);
    }

    /// Whether an answer counts. After it, answers to older joins do not count.
    pub fn answered(&mut self, join_id: u64) -> bool {
        let Some(at) = self.0.iter().position(|n| *n == join_id) else { return false };
        self.0.drain(..at);
        true
    }

    /// The id of the join that was answered last.
    pub fn current(&self) -> u64 {
        self.0.front().copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_and_not_older_answers_count() {
        let mut join_ids = JoinIds::default();
        assert!(!join_ids.answered(7), "somebody else asked");
        for n in [9, 3, 5] {
            join_ids.ask(n);
        }
        assert!(join_ids.answered(3) && join_ids.answered(3));
        assert_eq!(join_ids.current(), 3);
        assert!(!join_ids.answered(9) && join_ids.answered(5));
        (100..100 + 2 * MAX as u64).for_each(|n| join_ids.ask(n));
        assert_eq!(join_ids.0.len(), MAX);
    }
}
