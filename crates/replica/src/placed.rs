//! What a full comparison does not meet from the root: directories that hang on other sets' directories or lie in
//! lost+found, and files without a name. Both bricks look for them before the comparison begins.

use crate::heal::DirtySet;
use alloc::vec::Vec;
use ids::Fid;

/// Those that have still to be compared: a few at a time become dirty.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToMeet(Vec<Fid>);

/// What becomes dirty of them in one go, when less than that is dirty.
const FEW: usize = 256;

impl ToMeet {
    pub(crate) fn new(placed: Vec<Fid>) -> ToMeet {
        ToMeet(placed)
    }

    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    /// Makes a few of them dirty, as long as little is.
    pub(crate) fn meet(&mut self, dirty_set: &mut DirtySet) {
        while self.left() > 0 && dirty_set.left() < FEW as u64 {
            for fid in self.0.split_off(self.0.len().saturating_sub(FEW)) {
                if dirty_set.is_unproven(fid) {
                    dirty_set.mark_unknown(fid);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SetId};

    #[test]
    fn all_are_met_a_few_at_a_time() {
        let fids: Vec<Fid> = (0..1000).map(|n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }).collect();
        let (mut left, mut dirty_set) = (ToMeet::new(fids.clone()), DirtySet::new(|_| 1, true));
        let (mut met, mut most) = (Vec::new(), 0);
        loop {
            left.meet(&mut dirty_set);
            most = most.max(dirty_set.left());
            let Some(ask) = dirty_set.ask() else { break };
            met.push(ask.fid());
            dirty_set.got_nothing(ask.fid());
        }
        met.sort();
        assert_eq!((met, left.left()), (fids, 0));
        assert!(most < 2 * FEW as u64, "{most} dirty at once");
    }
}
