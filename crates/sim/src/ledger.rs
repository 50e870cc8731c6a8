//! What the injected faults explain: which losses, which errors, and when.

use cluster::State;
use core::time::Duration;
use ids::{BrickId, SetId};
use std::collections::{BTreeMap, BTreeSet};
use wire::Errno;

/// An error is explained for so long after its cause is gone.
const SLACK: Duration = Duration::from_secs(6);

/// A loss of what was not synced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loss {
    pub(crate) set: SetId,
    pub(crate) from: Duration,
    pub(crate) until: Duration,
}

/// A time in which a set may answer with an error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Excuse {
    pub(crate) errno: Errno,
    pub(crate) set: SetId,
    /// The brick whose disk is the cause; `None`: there are too few of them.
    brick: Option<BrickId>,
    pub(crate) from: Duration,
    pub(crate) until: Option<Duration>,
}

/// When a brick lost what was not synced.
#[derive(Clone, Copy, Debug)]
struct Torn {
    from: Duration,
    /// A disk that fails may drop something until it is well again. What a brick said before its power failed tells nothing
    /// of what it has after that: [`Duration::MAX`] until it is opened.
    until: Duration,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    arbiters: BTreeSet<BrickId>,
    set_of: BTreeMap<BrickId, SetId>,
    /// Bricks that lost what was not synced, and have not been made whole since.
    torn: BTreeMap<BrickId, Torn>,
    /// Bricks whose disks fail just now.
    failing: BTreeSet<BrickId>,
    losses: Vec<Loss>,
    /// When a brick that had lost memory went on, and nothing was lost that anybody was told.
    unrecorded: Vec<Loss>,
    excuses: Vec<Excuse>,
    cut_short: Vec<(SetId, Duration)>,
    below: BTreeSet<SetId>,
}

impl Ledger {
    pub(crate) fn new(state: &State) -> Ledger {
        Ledger {
            arbiters: state.bricks().filter(|(_, b)| b.arbiter).map(|(_, b)| b.id).collect(),
            set_of: state.bricks().map(|(s, b)| (b.id, s.id)).collect(),
            ..Ledger::default()
        }
    }

    /// A set has another brick.
    pub(crate) fn member(&mut self, set: SetId, brick: &cluster::Brick) {
        self.set_of.insert(brick.id, set);
        if brick.arbiter {
            self.arbiters.insert(brick.id);
        }
    }

    /// The power failed on a brick, or its disk dropped what it should have written.
    pub(crate) fn power_failed(&mut self, now: Duration, brick: BrickId) {
        self.torn.insert(brick, Torn { from: now, until: Duration::MAX });
    }

    /// A brick takes part from here on, with what it has.
    pub(crate) fn opened(&mut self, now: Duration, brick: BrickId) {
        if let Some(torn) = self.torn.get_mut(&brick) {
            torn.until = now;
        }
    }

    /// The brick's process ended in the midst of a change: what was cut short is stale, and a brick that is opened with an
    /// old stale set counts as one that lost memory.
    pub(crate) fn cut_short(&mut self, now: Duration, brick: BrickId) {
        self.power_failed(now, brick);
        self.failed_at_work(now, brick);
    }

    /// The brick is to be closed, for a change failed. What was done of it by then may show until it is sent again.
    ///
    /// If the disk of another brick of the set fails, it may be as well that it was told of a change that was done there only in
    /// part: it has to compare itself with that one, and cannot say that it is whole.
    pub(crate) fn failed_at_work(&mut self, now: Duration, brick: BrickId) {
        let Some(set) = self.set_of.get(&brick) else { return };
        self.cut_short.push((*set, now));
        if self.failing.iter().any(|other| *other != brick && self.set_of.get(other) == Some(set)) {
            self.torn.entry(brick).or_insert(Torn { from: now, until: now });
        }
    }

    /// What the brick has is its set's history from here on.
    pub(crate) fn goes_on(&mut self, now: Duration, brick: BrickId) {
        if let (Some(torn), Some(set)) = (self.torn.get(&brick), self.set_of.get(&brick)) {
            self.goes_on_unrecorded(*set, torn.from, now);
        }
        if !self.failing.contains(&brick) {
            self.torn.remove(&brick);
        }
    }

    /// A set goes on with bricks of which the last one lost its memory at `from`: once for each such time.
    fn goes_on_unrecorded(&mut self, set: SetId, from: Duration, now: Duration) {
        if !self.unrecorded.iter().chain(&self.losses).any(|l| (l.set, l.from) == (set, from)) {
            self.unrecorded.push(Loss { set, from, until: now });
        }
    }

    /// A view was agreed on that somebody had proposed at `sent`.
    pub(crate) fn agreed(
        &mut self,
        (sent, now): (Duration, Duration),
        before: &cluster::Set,
        after: &cluster::Set,
        quorum: usize,
    ) {
        let holders = before.view.in_sync.iter().filter(|b| !self.arbiters.contains(b));
        let torn: Option<Vec<Duration>> = holders.map(|b| self.torn.get(b).map(|t| t.from)).collect();
        if let Some(last) = torn.and_then(|torn| torn.into_iter().max()) {
            self.goes_on_unrecorded(before.id, last, now);
        }
        for brick in after.view.in_sync.difference(&before.view.in_sync) {
            // It has healed from one that is in sync, and synced, before that was proposed.
            if !self.failing.contains(brick) && self.torn.get(brick).is_some_and(|t| t.until < sent) {
                self.torn.remove(brick);
            }
        }
        let below = after.view.in_sync.len() < quorum;
        if below && self.below.insert(after.id) {
            self.begin(now, Errno::EROFS, after.id, None);
        } else if !below && self.below.remove(&after.id) {
            self.end(now, Errno::EROFS, after.id, None);
        }
    }

    /// A set goes on with what a power cut left.
    pub(crate) fn lost(
        &mut self,
        now: Duration,
        set: SetId,
        in_sync: &BTreeSet<BrickId>,
    ) -> Result<(), String> {
        let holders = || in_sync.iter().filter(|b| !self.arbiters.contains(b));
        if let Some(whole) = holders().find(|b| !self.torn.contains_key(b)) {
            return Err(format!("set {set} gives up changes although brick {whole} lost nothing"));
        }
        let from = holders().filter_map(|b| self.torn.get(b)).map(|t| t.from).max().unwrap_or(now);
        self.losses.push(Loss { set, from, until: now });
        Ok(())
    }

    /// From now on the sets of a brick may answer with that error. What the kernel drops is as lost as by a power cut; and a
    /// brick that cannot write down what is stale counts as one that lost memory, as does one whose change fails with
    /// `EIO`: nobody knows what failed.
    pub(crate) fn disk_fails(&mut self, now: Duration, brick: BrickId, errno: Errno) {
        let until = self.torn.get(&brick).map_or(now, |t| t.until.max(now));
        self.torn.insert(brick, Torn { from: now, until });
        self.failing.insert(brick);
        if let Some(set) = self.set_of.get(&brick).copied() {
            self.begin(now, errno, set, Some(brick));
        }
    }

    /// The disk is well again.
    pub(crate) fn disk_heals(&mut self, now: Duration, brick: BrickId) {
        if self.failing.remove(&brick)
            && let Some(torn) = self.torn.get_mut(&brick)
            && torn.until != Duration::MAX
        {
            torn.until = now;
        }
        if let Some(set) = self.set_of.get(&brick).copied() {
            for errno in [Errno::EIO, Errno::ENOSPC] {
                self.end(now, errno, set, Some(brick));
            }
        }
    }

    fn begin(&mut self, now: Duration, errno: Errno, set: SetId, brick: Option<BrickId>) {
        self.excuses.push(Excuse { errno, set, brick, from: now, until: None });
    }

    fn end(&mut self, now: Duration, errno: Errno, set: SetId, brick: Option<BrickId>) {
        let open = |e: &&mut Excuse| (e.errno, e.set, e.brick) == (errno, set, brick) && e.until.is_none();
        self.excuses.iter_mut().filter(open).for_each(|e| e.until = Some(now + SLACK));
    }

    pub(crate) fn losses(&self) -> &[Loss] {
        &self.losses
    }

    pub(crate) fn unrecorded(&self) -> &[Loss] {
        &self.unrecorded
    }

    pub(crate) fn excuses(&self) -> &[Excuse] {
        &self.excuses
    }

    pub(crate) fn changes_cut_short(&self) -> &[(SetId, Duration)] {
        &self.cut_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two disks of a set are full, and one is well again: the other explains errors still.
    #[test]
    fn a_disk_that_heals_ends_only_what_it_explains() {
        let (set, [first, second]) = (SetId(1), [BrickId(1), BrickId(2)]);
        let mut ledger = Ledger { set_of: [(first, set), (second, set)].into(), ..Ledger::default() };
        ledger.disk_fails(Duration::from_secs(1), first, Errno::ENOSPC);
        ledger.disk_fails(Duration::from_secs(2), second, Errno::ENOSPC);
        ledger.disk_heals(Duration::from_secs(3), first);
        let ends: Vec<_> = ledger.excuses().iter().map(|e| e.until).collect();
        assert_eq!(ends, [Some(Duration::from_secs(3) + SLACK), None]);
    }
}
