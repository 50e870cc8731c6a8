//! An operation from its begin to its result: its number over all tries, and what is unsynced before and after it.
//!
//! What must always be true: the number of a change counts as under way until the operation is finished; what a sync comes
//! after is noted before the sync is sent, and what was lost is looked up after it was answered.

use core::ops::DerefMut;
use core::time::Duration;

use ids::{Epoch, Fid};
use wire::{Errno, Op};

use crate::call::{Action, CallMachine, Ended, Known, Number, RetryPolicy};
use crate::set::{SetState, SyncMark};

/// What an operation is for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It changes nothing.
    Read,
    /// It changes something, which is noted until it is synced.
    Change,
    /// It syncs one object, or everything: it fails if something was lost before.
    Sync(Option<Fid>),
}

impl Class {
    /// The class of an operation.
    pub fn of(op: &Op) -> Class {
        match op {
            Op::Fsync { fid } => Class::Sync(Some(*fid)),
            Op::SyncFs => Class::Sync(None),
            op if op.changes() => Class::Change,
            _ => Class::Read,
        }
    }
}

/// What is left to do after an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished {
    /// The result for whoever made the call.
    pub result: Result<(), Errno>,
    /// So much is unsynced that the set is to be synced now ([`Operation::begin_unasked_sync`]).
    pub sync_now: bool,
}

/// An operation of one set.
#[derive(Debug)]
pub struct Operation {
    class: Class,
    binds: bool,
    call: CallMachine,
    /// The epoch of the set's view when the operation began.
    epoch: Epoch,
    /// Its number; 0 while it has none.
    seq: u64,
    sync: Option<SyncMark>,
    /// Nobody waits for the outcome of this sync.
    unasked: bool,
}

/// `set` gives the client's memory of the set; it is asked only if it is needed.
impl Operation {
    /// An operation that begins now; `epoch` is that of the set's view. Its own policy is that [of](RetryPolicy::of) the
    /// operation.
    pub fn begin<S>(op: &Op, epoch: Epoch, retry_policy: RetryPolicy, set: impl FnOnce() -> S) -> Operation
    where
        S: DerefMut<Target = SetState>,
    {
        let class = Class::of(op);
        let sync = if let Class::Sync(fid) = class { Some(set().begin_sync(fid)) } else { None };
        let binds = class == Class::Change
            || matches!(op, Op::Open { .. } | Op::Show { open: true, .. } | Op::Release { .. });
        let call = CallMachine::new(retry_policy.of(op), class == Class::Change);
        Operation { class, binds, call, epoch, seq: 0, sync, unasked: false }
    }

    /// A sync of everything that nobody asked for: who asks later hears of losses.
    pub fn begin_unasked_sync<S>(
        epoch: Epoch,
        retry_policy: RetryPolicy,
        set: impl FnOnce() -> S,
    ) -> Operation
    where
        S: DerefMut<Target = SetState>,
    {
        Operation { unasked: true, ..Operation::begin(&Op::SyncFs, epoch, retry_policy, set) }
    }

    /// As [`CallMachine::look`]; after [`Action::Send`] the operation has its number.
    pub fn look<S>(
        &mut self,
        known: Known,
        waited: impl FnOnce() -> Duration,
        set: impl FnOnce() -> S,
    ) -> Action
    where
        S: DerefMut<Target = SetState>,
    {
        let action = self.call.look(known, waited);
        if action == Action::Send(Number::New) {
            assert!(self.seq == 0, "a change has one number at a time");
            self.seq = set().begin_change();
        }
        action
    }

    /// As [`CallMachine::ended`].
    pub fn ended<S>(
        &mut self,
        how: Ended,
        waited: impl FnOnce() -> Duration,
        set: impl FnOnce() -> S,
    ) -> Action
    where
        S: DerefMut<Target = SetState>,
    {
        let action = self.call.ended(how, waited);
        if !self.call.is_numbered() {
            self.end_number(set);
        }
        action
    }

    /// The operation is over, with this result. `lost_before` says what the map that holds now says; it is asked only if it
    /// is needed.
    pub fn finish<S>(
        mut self,
        op: &Op,
        result: Result<(), Errno>,
        lost_before: impl FnOnce() -> Epoch,
        set: impl FnOnce() -> S,
    ) -> Finished
    where
        S: DerefMut<Target = SetState>,
    {
        let as_told = Finished { result, sync_now: false };
        match (self.class, self.sync) {
            (Class::Read, _) => as_told,
            (Class::Change, _) if self.seq == 0 => as_told,
            (Class::Change, _) => {
                let mut set = set();
                self.end_number(|| &mut *set);
                Finished { result, sync_now: result.is_ok() && set.changed(op, self.epoch) }
            }
            (Class::Sync(_), Some(mark)) if result.is_ok() => {
                let lost_before = lost_before();
                let mut set = set();
                if self.unasked {
                    set.synced_unasked(mark, lost_before);
                    return as_told;
                }
                Finished { result: set.synced(mark, lost_before), ..as_told }
            }
            (Class::Sync(_), _) => as_told,
        }
    }

    fn end_number<S>(&mut self, set: impl FnOnce() -> S)
    where
        S: DerefMut<Target = SetState>,
    {
        if self.seq != 0 {
            set().end_change(self.seq);
            self.seq = 0;
        }
    }

    /// What it is for the client.
    pub fn class(&self) -> Class {
        self.class
    }

    /// How patient it is.
    pub fn retry_policy(&self) -> RetryPolicy {
        self.call.retry_policy()
    }

    /// Its number; 0 while it has none.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether it must not be done after nobody waits for it any more.
    pub fn binds(&self) -> bool {
        self.binds
    }
}

#[cfg(test)]
mod tests;
