//! Arbitration: which bricks of a set continue after some were opened that cannot be certain of what they hold, or cannot
//! be opened.
//!
//! Each server that has such a brick asks the servers of the other bricks for [`Evidence`] and calls [`decide`] for its own
//! brick. The pool's store orders the view changes that come out of it (compare-and-set by epoch), so a decision that was
//! made on old evidence about the view changes nothing.
//!
//! Always true:
//! - A brick gives its place up only to one that is open. An answering server is no proof.
//! - A brick that kept its memory holds every acknowledged change, so the others follow it. While a brick that may be such
//!   a one is silent, the bricks that lost changes wait for it.
//! - If no brick kept its memory, the one with the most goes on alone and the clients are told. Everything that was synced
//!   is on every brick in sync, so any of them would be correct; a fixed order makes all servers choose the same one.
//! - A brick that its own server cannot open never leads. Those that can be opened go on without it: they have all that
//!   was synced.
//! - The lead is never taken from a brick that may be serving: its server may hold a lease of any length. Only a brick
//!   that leads in the view and says of itself that it does not serve is followed by another one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ids::{BrickId, Epoch, Lsn};
use serde::{Deserialize, Serialize};

use crate::{Set, ViewChange};

/// A brick that cannot be opened is waited for so long by bricks that lost changes: its disk may be mounted late.
pub const LATE_DISK: Duration = Duration::from_secs(10);

/// What a brick holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Holding {
    /// The epoch of its last change.
    pub epoch: Epoch,
    /// Its last change.
    pub last: Lsn,
    /// Its last change that is on disk for certain.
    pub durable: Lsn,
}

/// What a server says of its own brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    /// No answer, or the brick is still being opened: nothing is known.
    #[default]
    Silent,
    /// The brick cannot be opened, for so many milliseconds now. It serves nothing.
    Refused {
        /// Since the first attempt.
        millis: u64,
    },
    /// It was opened and lost its memory in a power cut. It serves nothing before the arbitration.
    LostMemory(Holding),
    /// It was opened, lost no memory, and some of its objects are stale. It serves nothing before the arbitration.
    Uncertain(Holding),
    /// It is open and holds everything that it acknowledged.
    Whole(Holding),
}

/// What a brick has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Ask again later: it depends on these bricks.
    Wait(Vec<BrickId>),
    /// Propose this view.
    Propose(ViewChange),
    /// No view has to change: the brick is alone in its view, and its own recovery says what of it counts.
    Stand,
}

/// Decides for brick `me` of a set, which is in sync. `evidence`: of the bricks in sync, `me` among them.
pub fn decide(set: &Set, me: BrickId, evidence: &BTreeMap<BrickId, Evidence>) -> Verdict {
    let case = Case { set, me, evidence };
    match case.of(me) {
        Evidence::LostMemory(_) | Evidence::Uncertain(_) => case.uncertain(),
        Evidence::Refused { .. } => case.refused(),
        Evidence::Silent | Evidence::Whole(_) => Verdict::Wait(vec![]),
    }
}

struct Case<'a> {
    set: &'a Set,
    me: BrickId,
    evidence: &'a BTreeMap<BrickId, Evidence>,
}

impl Case<'_> {
    fn of(&self, brick: BrickId) -> Evidence {
        self.evidence.get(&brick).copied().unwrap_or_default()
    }

    fn is_data(&self, brick: BrickId) -> bool {
        self.set.brick(brick).is_some_and(|b| !b.arbiter)
    }

    /// The bricks in sync that hold the data.
    fn holders(&self) -> impl Iterator<Item = BrickId> + '_ {
        self.set.view.in_sync.iter().copied().filter(|b| self.is_data(*b))
    }

    fn refused(&self) -> Verdict {
        self.leave().unwrap_or_else(|| Verdict::Wait(self.holders().filter(|b| *b != self.me).collect()))
    }

    fn uncertain(&self) -> Verdict {
        if let Some(leave) = self.leave() {
            return leave;
        }
        let awaited: Vec<BrickId> = self.holders().filter(|b| *b != self.me && self.may_matter(*b)).collect();
        if !awaited.is_empty() {
            return Verdict::Wait(awaited);
        }
        match self.best() {
            Some(best) if best == self.me => self.go_on(),
            best => Verdict::Wait(best.into_iter().collect()),
        }
    }

    /// Whether a brick may hold everything although nothing is known of it now.
    fn may_matter(&self, brick: BrickId) -> bool {
        match self.of(brick) {
            Evidence::Silent => true,
            Evidence::Refused { millis } => Duration::from_millis(millis) < LATE_DISK,
            Evidence::LostMemory(_) | Evidence::Uncertain(_) | Evidence::Whole(_) => false,
        }
    }

    /// Of the open bricks that cannot be certain of what they hold, the one with the most.
    fn best(&self) -> Option<BrickId> {
        let rank = |brick: BrickId| match self.of(brick) {
            Evidence::Uncertain(holding) => Some((true, holding, Reverse(brick))),
            Evidence::LostMemory(holding) => Some((false, holding, Reverse(brick))),
            Evidence::Silent | Evidence::Refused { .. } | Evidence::Whole(_) => None,
        };
        self.holders().filter_map(rank).max().map(|(.., Reverse(brick))| brick)
    }

    /// The open brick with everything that has the most.
    fn successor(&self) -> Option<BrickId> {
        let rank = |brick: BrickId| match self.of(brick) {
            Evidence::Whole(holding) => Some((holding, Reverse(brick))),
            _ => None,
        };
        self.holders().filter_map(rank).max().map(|(_, Reverse(brick))| brick)
    }

    /// This brick leaves, if another one is open and holds everything.
    fn leave(&self) -> Option<Verdict> {
        let successor = self.successor()?;
        let serves_not = |primary: BrickId| {
            primary == self.me
                || matches!(
                    self.of(primary),
                    Evidence::Refused { .. } | Evidence::LostMemory(_) | Evidence::Uncertain(_)
                )
        };
        let primary = self.set.view.primary.filter(|p| !serves_not(*p)).unwrap_or(successor);
        let rest = self.set.view.in_sync.iter().copied().filter(|b| *b != self.me).collect();
        let refused = matches!(self.of(self.me), Evidence::Refused { .. });
        let reason = if refused { "a brick does not open" } else { "a brick lost changes" };
        Some(self.propose(primary, rest, false, reason))
    }

    /// This brick goes on alone. The others compare themselves with it, an arbiter too.
    fn go_on(&self) -> Verdict {
        let alone = BTreeSet::from([self.me]);
        let lost = matches!(self.of(self.me), Evidence::LostMemory(_));
        if !lost && self.set.view.in_sync == alone {
            return Verdict::Stand;
        }
        self.propose(self.me, alone, lost, "no brick came through whole")
    }

    fn propose(
        &self,
        primary: BrickId,
        in_sync: BTreeSet<BrickId>,
        lost: bool,
        reason: &'static str,
    ) -> Verdict {
        Verdict::Propose(ViewChange {
            set: self.set.id,
            expect_epoch: self.set.view.epoch,
            primary: Some(primary),
            in_sync,
            healed: BTreeSet::new(),
            lost,
            reason: reason.to_owned(),
        })
    }
}

#[cfg(test)]
#[path = "arbitration_tests.rs"]
mod tests;
