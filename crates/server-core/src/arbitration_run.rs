//! Runs the arbitration of a set, as a state machine: which servers to ask for evidence, what to propose, and when to ask
//! again. What is right is decided by [`cluster::arbitration`].
//!
//! A brick that cannot be certain of what it holds, after a power cut or with stale objects, waits here until the pool has
//! said where it stands. If it is not in sync it waits for the end of the epoch in which it was opened: until then an
//! earlier process of it may be let in, which had healed. A brick that cannot be opened, or whose disk hangs, leaves its view
//! here, once another one is open.
//! The pool's store orders what comes out of it, and says from which epoch on nothing is missing: a client that wrote
//! before and syncs after is told.

use crate::RecoveryVerdict;
use cluster::arbitration::{Evidence, Verdict, decide};
use cluster::{Set, State, ViewChange};
use ids::{BrickId, Epoch, ServerId, SetId};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const AGAIN: Duration = Duration::from_millis(300);
const VOTERS: &str = "it waits for the pool to say where it stands: most of the voters do not answer";

/// Why a brick asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// It cannot be certain of what it holds. It waits for as long as it takes.
    Uncertain,
    /// It could not be opened. Asked again after each attempt to open it.
    Refused,
    /// Its disk hangs, and it gets no leases: it serves as little as one that cannot be opened. What is once proposed is
    /// proposed until it is agreed on or refused, so that no copy of it can be agreed on later.
    Hung,
}

/// Where something is known of a brick.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// On this server.
    Here,
    /// On that one.
    Server(ServerId),
}

/// Where the bricks of a set are; without those whose servers are lost. `me`: this server.
pub fn sources(state: &State, set: &Set, me: ServerId) -> Vec<(BrickId, Source)> {
    let source = |b: &cluster::Brick| match b.server {
        here if here == me => Some((b.id, Source::Here)),
        there if state.servers.get(&there).is_none_or(|s| s.lost) => None,
        there => Some((b.id, Source::Server(there))),
    };
    set.bricks.iter().filter_map(source).collect()
}

/// What is to be done next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Read the pool's state with everything that was agreed until now, then say [`ArbitrationRun::on_state`].
    Read,
    /// Say [`ArbitrationRun::on_state`] with the state that is known here.
    Look,
    /// Ask for evidence of these bricks, then say [`ArbitrationRun::on_evidence`]. Who does not answer soon is left out.
    Ask(Vec<(BrickId, Source)>),
    /// Propose this view, then say [`ArbitrationRun::on_proposed`].
    Propose(ViewChange),
    /// Say [`ArbitrationRun::go_on`] after that time.
    Pause(Duration),
    /// It is over. For an uncertain brick: where it stands; `None`: there is no such set any more.
    Done(Option<RecoveryVerdict>),
}

/// What came of a proposal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proposed {
    /// It was agreed on.
    Agreed,
    /// It was refused: another view came first, or it is not allowed.
    Refused {
        /// Another view came first.
        stale: bool,
    },
    /// Nobody knows.
    Unknown,
}

/// The arbitration of a set, run for one brick.
#[derive(Clone, Debug)]
pub struct ArbitrationRun {
    set: SetId,
    brick: BrickId,
    cause: Cause,
    /// The first epoch that was read.
    first: Option<Epoch>,
    /// The set as last read, and how its bricks are called.
    read: Option<(Set, BTreeMap<BrickId, String>)>,
    proposed: Option<ViewChange>,
    why: Option<String>,
}

impl ArbitrationRun {
    fn new(set: SetId, brick: BrickId, cause: Cause) -> ArbitrationRun {
        ArbitrationRun { set, brick, cause, first: None, read: None, proposed: None, why: None }
    }

    /// Of a brick that cannot be certain of what it holds. [`ArbitrationRun::go_on`] comes next, here and below.
    pub fn of_uncertain(set: SetId, brick: BrickId) -> ArbitrationRun {
        ArbitrationRun::new(set, brick, Cause::Uncertain)
    }

    /// Of a brick that could not be opened.
    pub fn of_refusal(set: SetId, brick: BrickId) -> ArbitrationRun {
        ArbitrationRun::new(set, brick, Cause::Refused)
    }

    /// Of a brick whose disk hangs.
    pub fn of_hang(set: SetId, brick: BrickId) -> ArbitrationRun {
        ArbitrationRun::new(set, brick, Cause::Hung)
    }

    /// What it waits for, in words for people.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// At the beginning, and after a pause.
    pub fn go_on(&mut self) -> Step {
        match &self.proposed {
            Some(change) => Step::Propose(change.clone()),
            None if self.cause == Cause::Hung => Step::Look,
            None => Step::Read,
        }
    }

    /// The pool's state, if it could be read. `me`: this server.
    pub fn on_state(&mut self, state: Option<&State>, me: ServerId) -> Step {
        let Some(state) = state else {
            return match self.cause {
                Cause::Uncertain => self.wait_for(VOTERS.to_owned()),
                Cause::Refused | Cause::Hung => Step::Done(None),
            };
        };
        let Some(set) = state.sets.get(&self.set) else { return Step::Done(None) };
        let first = *self.first.get_or_insert(set.view.epoch);
        if !set.view.in_sync.contains(&self.brick) {
            if self.cause == Cause::Uncertain && set.view.epoch == first {
                return self.end_epoch(set);
            }
            return Step::Done(Some(RecoveryVerdict { epoch: set.view.epoch, last: false }));
        }
        if self.cause == Cause::Hung && set.view.in_sync.len() == 1 {
            return Step::Done(None);
        }
        let names = set.bricks.iter().map(|b| (b.id, state.brick_name(b))).collect();
        self.read = Some((set.clone(), names));
        let mut asked = sources(state, set, me);
        asked
            .retain(|(b, _)| set.view.in_sync.contains(b) && (self.cause != Cause::Hung || *b != self.brick));
        Step::Ask(asked)
    }

    /// What the servers said of the bricks that they were asked for.
    pub fn on_evidence(&mut self, mut evidence: BTreeMap<BrickId, Evidence>) -> Step {
        let Some((set, names)) = self.read.take() else { return self.go_on() };
        if self.cause == Cause::Hung {
            evidence.insert(self.brick, Evidence::Refused { millis: 0 });
        }
        let refused = evidence.get(&self.brick).is_some_and(|e| matches!(e, Evidence::Refused { .. }));
        if self.cause == Cause::Refused && !refused {
            // It was opened meanwhile: whoever opened it asks for it, and a loss is told once.
            return Step::Done(None);
        }
        match decide(&set, self.brick, &evidence) {
            Verdict::Propose(mut change) => {
                if self.cause == Cause::Hung {
                    "a disk hangs".clone_into(&mut change.reason);
                }
                self.proposed = Some(change.clone());
                Step::Propose(change)
            }
            Verdict::Stand => Step::Done(Some(RecoveryVerdict { epoch: set.view.epoch, last: false })),
            Verdict::Wait(_) if self.cause != Cause::Uncertain => Step::Done(None),
            Verdict::Wait(others) => {
                let names: Vec<&str> =
                    others.iter().filter_map(|b| names.get(b)).map(String::as_str).collect();
                self.wait_for(format!(
                    "it may have lost changes that were not synced, and waits for bricks that may have kept them: {}",
                    names.join(", ")
                ))
            }
        }
    }

    /// Proposes the same view in a new epoch: the primary may have asked to let the brick in, as what it was before it lost
    /// changes. In a new epoch that is refused, and the primary only lets in what has healed in that one.
    fn end_epoch(&mut self, set: &Set) -> Step {
        let change = ViewChange {
            set: set.id,
            expect_epoch: set.view.epoch,
            primary: set.view.primary,
            in_sync: set.view.in_sync.clone(),
            healed: BTreeSet::new(),
            lost: false,
            reason: "a brick that is to heal was opened".to_owned(),
        };
        self.proposed = Some(change.clone());
        Step::Propose(change)
    }

    fn wait_for(&mut self, why: String) -> Step {
        self.why = Some(why);
        Step::Pause(AGAIN)
    }

    /// What came of the proposal.
    pub fn on_proposed(&mut self, outcome: Proposed) -> Step {
        match (self.cause, outcome) {
            (Cause::Hung, Proposed::Unknown) => Step::Pause(AGAIN),
            (Cause::Hung | Cause::Refused, _) => {
                self.proposed = None;
                Step::Done(None)
            }
            (Cause::Uncertain, outcome) => {
                let change = self.proposed.take();
                match outcome {
                    Proposed::Agreed => match change {
                        Some(change) if change.lost => Step::Done(Some(RecoveryVerdict {
                            epoch: change.expect_epoch.next(),
                            last: true,
                        })),
                        _ => Step::Read,
                    },
                    Proposed::Refused { stale: true } => Step::Read,
                    Proposed::Refused { stale: false } | Proposed::Unknown => Step::Pause(AGAIN),
                }
            }
        }
    }
}
