//! Which sets a server serves: it opens their bricks, closes them when they are its own no more, and opens anew those that
//! failed.
//!
//! The executor opens and closes; it gives each set that is open a handle of its own kind, which this machine keeps for it.
//! Closing takes a while: a brick that is wanted again meanwhile is opened after the executor has said that it is closed
//! ([`OpenSets::closed`]).

use ids::{BrickId, SetId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A brick that failed, or could not be opened, is opened anew after this.
const REOPEN: Duration = Duration::from_secs(3);

/// See the module.
#[derive(Debug)]
pub struct OpenSets<H> {
    sets: BTreeMap<SetId, (BrickId, Stage<H>)>,
    /// Bricks that the executor is closing, or whose opening it is giving up.
    closing: BTreeSet<BrickId>,
}

#[derive(Debug)]
enum Stage<H> {
    /// To be opened as soon as the brick is closed.
    Closing,
    Opening,
    Open(H),
    /// Could not be opened, or failed.
    Failed {
        until: Duration,
    },
}

/// What is to be done after the pool's state changed: in this order.
#[derive(Debug, PartialEq, Eq)]
pub struct Adopted<H> {
    /// Sets whose brick is no longer this server's, or was given up for another one. A set without a handle is not open: if
    /// it is being opened, that is given up.
    pub close: Vec<(SetId, BrickId, Option<H>)>,
    /// Sets that are open, and stay so: they hear of the new state.
    pub tell: Vec<(SetId, H)>,
    /// Bricks to open.
    pub open: Vec<(SetId, BrickId)>,
}

impl<H> Default for OpenSets<H> {
    fn default() -> OpenSets<H> {
        OpenSets { sets: BTreeMap::new(), closing: BTreeSet::new() }
    }
}

impl<H: Clone> OpenSets<H> {
    /// The set, if it is open.
    pub fn get(&self, set: SetId) -> Option<&H> {
        match self.sets.get(&set) {
            Some((_, Stage::Open(handle))) => Some(handle),
            _ => None,
        }
    }

    /// All that are open.
    pub fn all(&self) -> impl Iterator<Item = (SetId, &H)> {
        self.sets.iter().filter_map(|(set, (_, s))| match s {
            Stage::Open(handle) => Some((*set, handle)),
            _ => None,
        })
    }

    /// By the pool's state these bricks are to be served ([`crate::bricks_to_open`]).
    pub fn adopt(&mut self, wanted: &BTreeMap<SetId, BrickId>) -> Adopted<H> {
        let mut todo = Adopted { close: Vec::new(), tell: Vec::new(), open: Vec::new() };
        for (set, (brick, stage)) in std::mem::take(&mut self.sets) {
            if wanted.get(&set) == Some(&brick) {
                if let Stage::Open(handle) = &stage {
                    todo.tell.push((set, handle.clone()));
                }
                self.sets.insert(set, (brick, stage));
                continue;
            }
            if matches!(stage, Stage::Open(_) | Stage::Opening) {
                self.closing.insert(brick);
            }
            let handle = if let Stage::Open(handle) = stage { Some(handle) } else { None };
            todo.close.push((set, brick, handle));
        }
        let OpenSets { sets, closing } = self;
        for (set, brick) in wanted {
            sets.entry(*set).or_insert_with(|| {
                if closing.contains(brick) {
                    return (*brick, Stage::Closing);
                }
                todo.open.push((*set, *brick));
                (*brick, Stage::Opening)
            });
        }
        todo
    }

    /// A brick was opened.
    ///
    /// # Errors
    /// Gives the handle back if this opening was given up: the brick is to be closed.
    pub fn opened(&mut self, set: SetId, brick: BrickId, handle: H) -> Result<(), H> {
        match self.sets.get_mut(&set) {
            Some((b, stage @ Stage::Opening)) if *b == brick => {
                *stage = Stage::Open(handle);
                Ok(())
            }
            _ => Err(handle),
        }
    }

    /// A brick could not be opened: tried again after a while. False if this opening was given up: the brick is closed then,
    /// and nobody has to hear why.
    #[must_use]
    pub fn not_opened(&mut self, set: SetId, brick: BrickId, now: Duration) -> bool {
        match self.sets.get_mut(&set) {
            Some((b, stage @ Stage::Opening)) if *b == brick => {
                *stage = Stage::Failed { until: now + REOPEN };
                true
            }
            _ => false,
        }
    }

    /// A brick that was to be closed is: another opening finds it free. True if it is wanted again: the pool's state is to be
    /// adopted again.
    #[must_use]
    pub fn closed(&mut self, brick: BrickId) -> bool {
        self.closing.remove(&brick);
        let before = self.sets.len();
        self.sets.retain(|_, (b, stage)| *b != brick || !matches!(stage, Stage::Closing));
        self.sets.len() < before
    }

    /// Sets whose bricks failed are to be closed; they are opened anew after a while: what failed them may be over.
    pub fn close_failed(
        &mut self,
        now: Duration,
        has_failed: impl Fn(&H) -> bool,
    ) -> Vec<(SetId, BrickId, H)> {
        let mut failed = Vec::new();
        for (set, (brick, stage)) in &mut self.sets {
            if matches!(stage, Stage::Open(handle) if has_failed(handle))
                && let Stage::Open(handle) = std::mem::replace(stage, Stage::Failed { until: now + REOPEN })
            {
                self.closing.insert(*brick);
                failed.push((*set, *brick, handle));
            }
        }
        failed
    }

    /// Whether the time has come to open bricks anew: the pool's state is to be adopted again.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let before = self.sets.len();
        self.sets.retain(|_, (_, s)| !matches!(s, Stage::Failed { until } if now >= *until));
        self.sets.len() < before
    }

    /// The server stops: all that is open or is being opened, to be closed.
    pub fn stop(&mut self) -> Vec<(SetId, Option<H>)> {
        let open = |s| if let Stage::Open(handle) = s { Some(handle) } else { None };
        std::mem::take(&mut self.sets).into_iter().map(|(set, (_, s))| (set, open(s))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(bricks: &[(u32, u32)]) -> BTreeMap<SetId, BrickId> {
        bricks.iter().map(|(s, b)| (SetId(*s), BrickId(*b))).collect()
    }

    fn at(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn open<H: Clone>(sets: &mut OpenSets<H>, bricks: &[(u32, u32)], handle: H) {
        let todo = sets.adopt(&wanted(bricks));
        for (set, brick) in todo.open {
            assert!(sets.opened(set, brick, handle.clone()).is_ok());
        }
    }

    #[test]
    fn a_set_is_opened_once_and_hears_of_later_states() {
        let mut sets = OpenSets::default();
        let first = sets.adopt(&wanted(&[(1, 10), (2, 20)]));
        assert_eq!(first.open, [(SetId(1), BrickId(10)), (SetId(2), BrickId(20))]);
        assert!(sets.opened(SetId(1), BrickId(10), "one").is_ok());
        let second = sets.adopt(&wanted(&[(1, 10), (2, 20)]));
        assert_eq!(second, Adopted { close: vec![], tell: vec![(SetId(1), "one")], open: vec![] });
        assert_eq!((sets.get(SetId(1)), sets.get(SetId(2))), (Some(&"one"), None));
    }

    #[test]
    fn what_is_no_longer_ours_is_closed() {
        let mut sets = OpenSets::default();
        open(&mut sets, &[(1, 10)], "one");
        sets.adopt(&wanted(&[(1, 10), (2, 20)]));
        let todo = sets.adopt(&wanted(&[]));
        assert_eq!(todo.close, [(SetId(1), BrickId(10), Some("one")), (SetId(2), BrickId(20), None)]);
        // Its opening was under way, and ends now.
        assert_eq!(sets.opened(SetId(2), BrickId(20), "two"), Err("two"));
        assert!(sets.adopt(&wanted(&[])).close.is_empty());
    }

    #[test]
    fn another_brick_of_the_same_set_takes_the_place_of_the_first() {
        let mut sets = OpenSets::default();
        open(&mut sets, &[(1, 10)], "old");
        let todo = sets.adopt(&wanted(&[(1, 11)]));
        assert_eq!(todo.close, [(SetId(1), BrickId(10), Some("old"))]);
        assert_eq!(todo.open, [(SetId(1), BrickId(11))]);
        assert_eq!(sets.opened(SetId(1), BrickId(10), "late"), Err("late"));
        assert!(!sets.not_opened(SetId(1), BrickId(10), at(0)));
        assert!(sets.opened(SetId(1), BrickId(11), "new").is_ok());
    }

    #[test]
    fn a_brick_that_is_wanted_again_is_opened_once_it_is_closed() {
        let mut sets = OpenSets::default();
        open(&mut sets, &[(1, 10)], "first");
        assert_eq!(sets.adopt(&wanted(&[])).close.len(), 1);
        // The volume is started again before the executor is done with closing.
        let todo = sets.adopt(&wanted(&[(1, 10), (2, 20)]));
        assert_eq!((todo.close.len(), todo.open), (0, vec![(SetId(2), BrickId(20))]));
        assert_eq!(sets.get(SetId(1)), None);
        assert!(!sets.is_due(at(99_999)));
        assert!(sets.adopt(&wanted(&[(1, 10), (2, 20)])).open.is_empty());
        assert!(sets.closed(BrickId(10)));
        assert_eq!(sets.adopt(&wanted(&[(1, 10), (2, 20)])).open, [(SetId(1), BrickId(10))]);
        assert!(sets.opened(SetId(1), BrickId(10), "second").is_ok());
        assert_eq!(sets.get(SetId(1)), Some(&"second"));
    }

    #[test]
    fn a_brick_that_is_stopped_once_more_while_it_closes_stays_closed() {
        let mut sets = OpenSets::default();
        open(&mut sets, &[(1, 10)], "first");
        sets.adopt(&wanted(&[]));
        sets.adopt(&wanted(&[(1, 10)]));
        assert_eq!(sets.adopt(&wanted(&[])).close, [(SetId(1), BrickId(10), None)]);
        assert!(!sets.closed(BrickId(10)));
        assert_eq!(sets.adopt(&wanted(&[(1, 10)])).open, [(SetId(1), BrickId(10))]);
    }

    #[test]
    fn an_opening_that_was_given_up_ends_before_the_next_begins() {
        let mut sets = OpenSets::default();
        sets.adopt(&wanted(&[(1, 10), (2, 20)]));
        sets.adopt(&wanted(&[]));
        assert!(sets.adopt(&wanted(&[(1, 10), (2, 20)])).open.is_empty());
        assert_eq!(sets.opened(SetId(1), BrickId(10), "late"), Err("late"));
        assert!(sets.adopt(&wanted(&[(1, 10), (2, 20)])).open.is_empty());
        assert!(!sets.not_opened(SetId(2), BrickId(20), at(0)));
        assert!(sets.closed(BrickId(10)) && sets.closed(BrickId(20)));
        assert_eq!(sets.adopt(&wanted(&[(1, 10), (2, 20)])).open.len(), 2);
    }

    #[test]
    fn what_failed_is_opened_anew_after_it_is_closed() {
        let mut sets = OpenSets::default();
        open(&mut sets, &[(1, 10)], "open");
        assert_eq!(sets.close_failed(at(1000), |_| true), [(SetId(1), BrickId(10), "open")]);
        assert!(sets.is_due(at(4000)));
        assert!(sets.adopt(&wanted(&[(1, 10)])).open.is_empty());
        assert!(sets.closed(BrickId(10)));
        assert_eq!(sets.adopt(&wanted(&[(1, 10)])).open, [(SetId(1), BrickId(10))]);
    }

    #[test]
    fn what_failed_is_opened_anew_after_a_while() {
        let mut sets = OpenSets::default();
        open(&mut sets, &[(1, 10), (2, 20)], "open");
        assert!(sets.close_failed(at(1000), |_| false).is_empty());
        assert_eq!(sets.close_failed(at(1000), |_| true).len(), 2);
        assert!(!sets.closed(BrickId(10)) && !sets.closed(BrickId(20)));
        assert_eq!(sets.get(SetId(1)), None);
        assert!(!sets.is_due(at(3999)) && sets.adopt(&wanted(&[(1, 10), (2, 20)])).open.is_empty());
        assert!(sets.is_due(at(4000)));
        assert_eq!(sets.adopt(&wanted(&[(1, 10), (2, 20)])).open.len(), 2);
        assert!(sets.not_opened(SetId(1), BrickId(10), at(5000)));
        assert!(sets.opened(SetId(2), BrickId(20), "open").is_ok());
        assert!(!sets.is_due(at(7999)) && sets.is_due(at(8000)));
        assert_eq!(sets.stop(), [(SetId(2), Some("open"))]);
        assert!(!sets.is_due(at(99_999)));
    }
}
