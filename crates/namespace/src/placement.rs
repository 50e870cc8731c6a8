//! Which set a new directory lives on (design section 7).

use ids::SetId;

/// What is known of a set when a place is sought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetRoom {
    /// The set.
    pub set: SetId,
    /// Bytes free for users on the in-sync brick with the least.
    pub available: u64,
    /// Bytes in all on that brick.
    pub total: u64,
    /// Directories that were placed there since the figures are from: they will want room.
    pub promised: u32,
    /// Whether it can take changes now.
    pub writable: bool,
}

/// How much fuller than the mean, in percent points, a set must be before deep directories leave it.
const CLEARLY_FULLER: u64 = 10;
/// Room that a directory is expected to need, for those placed since the figures were taken.
const EXPECTED: u64 = 64 << 20;

impl SetRoom {
    fn expected_room(&self) -> u64 {
        self.available.saturating_sub(u64::from(self.promised) * EXPECTED.min(self.total / 256 + 1))
    }

    fn percent_full(&self) -> u64 {
        100 - (self.available.saturating_mul(100) / self.total.max(1)).min(100)
    }
}

/// The set for a new directory: children of the root go where most room is expected, deeper ones stay with their parent
/// unless its set is clearly fuller than the mean. `spread` breaks ties between sets of like room (the caller's counter).
pub fn choose(parent_is_root: bool, own: SetId, sets: &[SetRoom], spread: usize) -> SetId {
    let candidates = || sets.iter().filter(|s| s.writable && s.available > 0);
    let Some(most) = candidates().map(SetRoom::expected_room).max() else { return own };
    if !parent_is_root {
        let fullness = |s: &SetRoom| s.percent_full();
        let count = candidates().count() as u64;
        let mean = candidates().map(fullness).sum::<u64>() / count.max(1);
        let mine = sets.iter().find(|s| s.set == own).map_or(0, fullness);
        if mine <= mean + CLEARLY_FULLER {
            return own;
        }
    }
    // Sets within a tenth of the best count as alike: take turns among them.
    let alike = || candidates().filter(|s| s.expected_room() >= most - most / 10);
    alike().nth(spread % alike().count().max(1)).map_or(own, |s| s.set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room(set: u32, available: u64) -> SetRoom {
        SetRoom { set: SetId(set), available, total: 1000 << 30, promised: 0, writable: true }
    }

    #[test]
    fn children_of_the_root_take_turns_on_equal_sets() {
        let sets = [room(1, 500 << 30), room(2, 500 << 30), room(3, 490 << 30)];
        let got: alloc::vec::Vec<u32> = (0..6).map(|i| choose(true, SetId(1), &sets, i).0).collect();
        assert_eq!(got, [1, 2, 3, 1, 2, 3]);
    }

    #[test]
    fn the_emptier_set_is_preferred_and_full_ones_are_left() {
        let sets = [room(1, 100 << 30), room(2, 900 << 30)];
        assert_eq!(choose(true, SetId(1), &sets, 0), SetId(2));
        assert_eq!(choose(false, SetId(1), &sets, 0), SetId(2));
        assert_eq!(choose(false, SetId(2), &sets, 0), SetId(2));
        let near = [room(1, 500 << 30), room(2, 600 << 30)];
        assert_eq!(choose(false, SetId(1), &near, 0), SetId(1));
    }

    #[test]
    fn a_set_that_takes_no_changes_is_not_chosen() {
        let mut sets = [room(1, 100 << 30), room(2, 900 << 30)];
        sets[1].writable = false;
        assert_eq!(choose(true, SetId(1), &sets, 5), SetId(1));
    }
}
