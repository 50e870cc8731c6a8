//! The properties, one file each, and what they look at.

mod journals;
mod kept;
mod leaders;
mod linear;
mod live;
mod same;
mod stay;

pub(crate) use journals::Stamps;
pub(crate) use leaders::Leaders;

use crate::answer::Answer;
use crate::server::Waiter;
use crate::world::World;
use core::time::Duration;
use ids::{Fid, OpId};
use std::collections::BTreeSet;
use wire::{Name, Op};

/// One operation of a client.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) set: usize,
    pub(crate) op: Op,
    /// The data of a write: unique.
    pub(crate) tag: u64,
    pub(crate) id: OpId,
    pub(crate) invoked: Duration,
    /// What the client was answered, and when.
    pub(crate) answer: Option<Answer>,
    pub(crate) returned: Duration,
}

/// What the checkers remember of a run.
#[derive(Default)]
pub(crate) struct Checks {
    pub(crate) history: Vec<Record>,
    pub(crate) stamps: Stamps,
    pub(crate) views: leaders::Views,
    pub(crate) leaders: Leaders,
    /// Files of their own that were synced: set, name, and the newest write then.
    pub(crate) synced: Vec<(usize, Name, Fid, u64)>,
    /// Sets all of whose bricks in sync have been through a power cut.
    pub(crate) excused: BTreeSet<usize>,
}

impl World {
    /// An answer leaves.
    pub(crate) fn check_release(&mut self, s: usize, set: usize, waiter: &Waiter) {
        self.check_leader(s, set);
        self.check_kept(set, waiter);
    }

    /// Everything is at rest.
    pub(crate) fn check_end(&mut self) -> Result<(), String> {
        for set in 0..self.sets.len() {
            self.check_same(set)?;
            self.check_synced(set)?;
            if !self.checks.excused.contains(&set) {
                self.check_journals(set)?;
                self.check_linear(set)?;
            }
        }
        Ok(())
    }
}
