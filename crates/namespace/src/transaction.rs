//! Decisions of operations that touch two sets (docs/design/0005), without I/O.
//!
//! The set that has the entry is the *coordinator*, the set that has the directory is the *participant*. A transaction is
//! named by the [`OpId`] of the coordinator's request to the participant, which the participant's journal records with
//! the mark. The entry decides: a transaction that made a directory has committed when the entry exists, one that removes
//! a directory when it does not.

use crate::tree_state::TreeState;
use alloc::collections::BTreeMap;
use core::time::Duration;
use ids::{Epoch, Fid, OpId};
use wire::{Change, Errno, Name};

/// What the participant knows of a directory's mark.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// No transaction holds the directory.
    Free,
    /// This transaction holds it; `None` if the record that would name it is no longer in the journal.
    Held(Option<OpId>),
}

/// What becomes of a transaction's wish to hold a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prepared {
    /// It may be marked.
    Mark,
    /// It is marked by this transaction already.
    Done,
    /// Another transaction has to end first.
    Wait,
}

impl Mark {
    /// Whether `tx` may hold the directory. A mark is never taken over: only its own transaction's end removes it.
    pub fn prepare(self, tx: OpId) -> Prepared {
        match self {
            Mark::Free => Prepared::Mark,
            Mark::Held(Some(holder)) if holder == tx => Prepared::Done,
            Mark::Held(_) => Prepared::Wait,
        }
    }

    /// Whether the end of `tx` ends this mark. The end of any other transaction, early or late, does nothing.
    pub fn is_ended_by(self, tx: Option<OpId>) -> bool {
        self == Mark::Held(tx)
    }
}

/// The change that ends a directory's mark. Nothing is made in a marked directory, but a power cut may bring the mark back:
/// then the directory stays with what is in it.
pub(crate) fn end_mark(view: &mut dyn TreeState, fid: Fid, keep: bool) -> Result<Change, Errno> {
    Ok(Change::EndTransaction { fid, keep: keep || !view.is_empty(fid)? })
}

/// A transaction that the coordinator may still commit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Active {
    tx: OpId,
    epoch: Epoch,
    request: OpId,
    /// Somebody who ends another transaction about the entry has asked for the outcome.
    asked: bool,
    /// The other set's agreement is on its way to disk, which waits for nothing but the disk.
    syncing: bool,
    /// A directory of another set is to come there.
    directory: bool,
}

/// The transactions of a coordinator, in the memory of its primary. None outlives its epoch (presumed abort): a primary
/// of a later epoch finds the entry made or not made, and nothing can change that on behalf of an older transaction.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Transactions {
    by_entry: BTreeMap<(Fid, Name), Active>,
    /// The clients' requests, and the epoch in which each was taken up last.
    requests: BTreeMap<OpId, Epoch>,
}

impl Transactions {
    /// Begins a transaction about an entry, for a client's request. False if another one about the entry is under way.
    pub fn begin(&mut self, epoch: Epoch, tx: OpId, request: OpId, parent: Fid, name: &Name) -> bool {
        if self.is_about(epoch, parent, name) {
            return false;
        }
        // What an earlier epoch left about the entry will not commit.
        if let Some(old) = self.by_entry.insert(
            (parent, name.clone()),
            Active { tx, epoch, request, asked: false, syncing: false, directory: false },
        ) {
            self.forget(&old);
        }
        self.requests.insert(request, epoch);
        true
    }

    /// The other set has agreed and brings that to its disk, or has done so. Meanwhile questions do not give the
    /// transaction up: it waits for no other one, and a slow disk would let none ever end.
    pub fn sync(&mut self, tx: OpId, parent: Fid, name: &Name, syncing: bool) {
        if let Some(active) = self.by_entry.get_mut(&(parent, name.clone())).filter(|a| a.tx == tx) {
            (active.syncing, active.asked) = (syncing, false);
        }
    }

    /// Ends the transaction. True if the coordinator may commit now: it knows it, and it is still the epoch in which it
    /// began.
    pub fn end(&mut self, epoch: Epoch, tx: OpId, parent: Fid, name: &Name) -> bool {
        let key = (parent, name.clone());
        if self.by_entry.get(&key).is_none_or(|a| a.tx != tx) {
            return false;
        }
        let Some(active) = self.by_entry.remove(&key) else { return false };
        self.forget(&active);
        active.epoch == epoch
    }

    /// The entry leads to something else: no transaction about it that began before may commit.
    pub fn give_up(&mut self, parent: Fid, name: &Name) {
        if let Some(active) = self.by_entry.remove(&(parent, name.clone())) {
            self.forget(&active);
        }
    }

    fn forget(&mut self, active: &Active) {
        if self.requests.get(&active.request) == Some(&active.epoch) {
            self.requests.remove(&active.request);
        }
    }

    /// Whether a transaction about the entry may still commit. If not, the entry is the outcome of all that ever were.
    pub fn is_about(&self, epoch: Epoch, parent: Fid, name: &Name) -> bool {
        self.by_entry.get(&(parent, name.clone())).is_some_and(|a| a.epoch == epoch)
    }

    /// It is a directory of another set that is to come there.
    pub fn brings_directory(&mut self, tx: OpId, parent: Fid, name: &Name) {
        if let Some(active) = self.by_entry.get_mut(&(parent, name.clone())).filter(|a| a.tx == tx) {
            active.directory = true;
        }
    }

    /// Whether a transaction of a smaller name than `tx` may still bring a directory of another set to this one. It would find this
    /// one on its way, and be given up, if this one were marked to move meanwhile: several directories that are each to come to
    /// the next one would never get there. The one with the smallest name waits for none.
    pub fn awaits_directory(&self, epoch: Epoch, tx: OpId, dir: Fid) -> bool {
        let comes = |a: &Active| a.directory && a.epoch == epoch && a.tx < tx;
        self.by_entry.iter().any(|((parent, _), a)| *parent == dir && comes(a))
    }

    /// Whether a transaction of a smaller name than `tx` may still commit about the entry, which `tx` is to take something from. If
    /// what the entry leads to were marked for `tx` meanwhile that one would find the mark and be given up: two each of which is to
    /// replace what the other one moves would be given up by turns. The one with the smallest name waits for none.
    pub fn is_preceded(&self, epoch: Epoch, tx: OpId, parent: Fid, name: &Name) -> bool {
        let key = (parent, name.clone());
        self.by_entry.get(&key).is_some_and(|a| a.epoch == epoch && a.tx < tx)
    }

    /// `tx` is to take something from the entry: a transaction of a greater name about the entry is given up.
    pub fn precede(&mut self, epoch: Epoch, tx: OpId, parent: Fid, name: &Name) {
        let active = self.by_entry.get(&(parent, name.clone()));
        if active.is_some_and(|a| a.epoch == epoch && a.tx > tx) {
            self.give_up(parent, name);
        }
    }

    /// Whether a transaction about an entry of the directory may still commit.
    pub fn is_in(&self, epoch: Epoch, dir: Fid) -> bool {
        self.by_entry.iter().any(|((parent, _), a)| *parent == dir && a.epoch == epoch)
    }

    /// Somebody asks for the entry, to end a transaction about it. Whether another one may still commit, so that the entry is
    /// no outcome yet. A transaction that is asked about twice is given up: it may itself wait for the one that is to end.
    /// One that waits for a disk does not.
    pub fn may_commit(&mut self, epoch: Epoch, parent: Fid, name: &Name) -> bool {
        let key = (parent, name.clone());
        let Some(active) = self.by_entry.get_mut(&key).filter(|a| a.epoch == epoch) else { return false };
        if active.syncing || !core::mem::replace(&mut active.asked, true) {
            return true;
        }
        let tx = active.tx;
        self.end(epoch, tx, parent, name);
        false
    }

    /// Whether the client's request has a transaction under way.
    pub fn serves(&self, epoch: Epoch, request: OpId) -> bool {
        self.requests.get(&request) == Some(&epoch)
    }
}

/// How long the lock on the tree's shape lasts, by the clock of the primary that gives it.
pub const LOCK_TIME: Duration = Duration::from_secs(6);
/// How long its holder may use it, by the holder's clock, from before it asked for it. The difference covers clocks that
/// do not run alike.
pub const LOCK_USE: Duration = Duration::from_secs(3);

/// The volume-wide lock that a rename holds while it asks other sets what lies above its target. It is kept in memory by
/// the primary of the root's set: nobody gets it from a new primary before what all earlier ones gave has run out.
#[derive(Clone, Copy, Default, Debug)]
pub struct TreeLock {
    /// In which epoch the set was led from here last.
    epoch: Option<Epoch>,
    holder: Option<OpId>,
    until: Duration,
}

impl TreeLock {
    /// The set is led from here in this epoch. If it was not in the one before, somebody else may have given the lock, and it
    /// may still be held.
    pub fn enter(&mut self, now: Duration, epoch: Epoch) {
        if self.epoch.is_none_or(|led| led != epoch && led.next() != epoch) {
            *self = TreeLock { epoch: None, holder: None, until: now + LOCK_TIME };
        }
        self.epoch = Some(epoch);
    }

    /// Gives the lock to `tx`, or says that it has to wait.
    pub fn take(&mut self, now: Duration, epoch: Epoch, tx: OpId) -> bool {
        self.enter(now, epoch);
        if now < self.until && self.holder != Some(tx) {
            return false;
        }
        (self.holder, self.until) = (Some(tx), now + LOCK_TIME);
        true
    }

    /// The holder needs it no more.
    pub fn release(&mut self, now: Duration, tx: OpId) {
        if self.holder == Some(tx) {
            (self.holder, self.until) = (None, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Lsn, SessionId, SetId};

    const fn tx(n: u64) -> OpId {
        OpId { session: SessionId(9), seq: n }
    }

    #[test]
    fn a_mark_is_ended_by_its_own_transaction_only() {
        // mark, transaction, may hold, ends
        let table = [
            (Mark::Free, tx(1), Prepared::Mark, false),
            (Mark::Held(Some(tx(1))), tx(1), Prepared::Done, true),
            (Mark::Held(Some(tx(2))), tx(1), Prepared::Wait, false),
            (Mark::Held(None), tx(1), Prepared::Wait, false),
        ];
        for (mark, tx, prepared, ends) in table {
            assert_eq!((mark.prepare(tx), mark.is_ended_by(Some(tx))), (prepared, ends), "{mark:?}");
        }
        assert!(Mark::Held(None).is_ended_by(None));
        assert!(!Mark::Held(Some(tx(1))).is_ended_by(None));
        assert!(!Mark::Free.is_ended_by(None));
    }

    #[test]
    fn a_transaction_commits_once_and_in_its_epoch_only() {
        let parent = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let name = Name::new(b"d").unwrap();
        let mut all = Transactions::default();
        assert!(all.begin(Epoch(5), tx(1), tx(100), parent, &name));
        assert!(!all.begin(Epoch(5), tx(2), tx(101), parent, &name), "one at a time");
        assert!(all.is_about(Epoch(5), parent, &name) && all.serves(Epoch(5), tx(100)));
        assert!(all.end(Epoch(5), tx(1), parent, &name));
        assert!(!all.end(Epoch(5), tx(1), parent, &name), "not twice");
        assert!(!all.is_about(Epoch(5), parent, &name));

        assert!(all.begin(Epoch(5), tx(3), tx(102), parent, &name));
        assert!(!all.is_about(Epoch(7), parent, &name), "a later epoch owes it nothing");
        assert!(!all.serves(Epoch(7), tx(102)));
        assert!(all.begin(Epoch(7), tx(4), tx(102), parent, &name));
        assert!(!all.end(Epoch(7), tx(3), parent, &name), "it was answered for");
        assert!(all.end(Epoch(7), tx(4), parent, &name));
        assert!(all.begin(Epoch(7), tx(5), tx(104), parent, &name));
        all.give_up(parent, &name);
        assert!(!all.serves(Epoch(7), tx(104)), "the client tries again");
        assert!(!all.end(Epoch(7), tx(5), parent, &name), "the entry leads to something else");
        assert!(all.begin(Epoch(7), tx(5), tx(103), parent, &name));
        assert!(!all.end(Epoch(8), tx(5), parent, &name));
    }

    /// A sync of a slow disk lasts longer than two questions take.
    #[test]
    fn a_transaction_that_waits_for_a_disk_is_not_given_up() {
        let parent = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let name = Name::new(b"d").unwrap();
        let mut all = Transactions::default();
        all.begin(Epoch(5), tx(1), tx(100), parent, &name);
        all.sync(tx(2), parent, &name, true);
        assert!(all.may_commit(Epoch(5), parent, &name));
        all.sync(tx(1), parent, &name, true);
        for _ in 0..9 {
            assert!(all.may_commit(Epoch(5), parent, &name));
        }
        all.sync(tx(1), parent, &name, false);
        assert!(all.may_commit(Epoch(5), parent, &name), "questions are counted from now on");
        assert!(!all.may_commit(Epoch(5), parent, &name));
    }

    /// It may wait for the end of the transaction that the question is about.
    #[test]
    fn a_transaction_that_is_asked_about_twice_is_given_up() {
        let parent = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let name = Name::new(b"d").unwrap();
        let mut all = Transactions::default();
        assert!(!all.may_commit(Epoch(5), parent, &name));
        all.begin(Epoch(5), tx(1), tx(100), parent, &name);
        assert!(!all.may_commit(Epoch(6), parent, &name), "of an earlier epoch");
        assert!(all.may_commit(Epoch(5), parent, &name));
        assert!(all.end(Epoch(5), tx(1), parent, &name), "one question does it no harm");
        all.begin(Epoch(5), tx(2), tx(101), parent, &name);
        assert!(all.may_commit(Epoch(5), parent, &name), "each has one question");
        assert!(!all.may_commit(Epoch(5), parent, &name));
        assert!(!all.serves(Epoch(5), tx(101)));
        assert!(!all.end(Epoch(5), tx(2), parent, &name), "it was answered for");
    }

    #[test]
    fn a_directory_waits_for_those_that_are_to_come_to_it() {
        let at = |n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
        let name = Name::new(b"d").unwrap();
        let mut all = Transactions::default();
        all.begin(Epoch(5), tx(1), tx(100), at(1), &name);
        assert!(!all.awaits_directory(Epoch(5), tx(2), at(1)), "it may be a file");
        all.brings_directory(tx(2), at(1), &name);
        assert!(!all.awaits_directory(Epoch(5), tx(2), at(1)), "of another transaction");
        all.brings_directory(tx(1), at(1), &name);
        assert!(all.awaits_directory(Epoch(5), tx(2), at(1)));
        assert!(!all.awaits_directory(Epoch(5), tx(2), at(2)), "of another directory");
        assert!(!all.awaits_directory(Epoch(6), tx(2), at(1)), "of an earlier epoch");
        assert!(!all.awaits_directory(Epoch(5), tx(1), at(1)), "it does not wait for itself");
        assert!(!all.awaits_directory(Epoch(5), tx(0), at(1)), "nor for a greater one");
        assert!(all.end(Epoch(5), tx(1), at(1), &name));
        assert!(!all.awaits_directory(Epoch(5), tx(2), at(1)));
    }

    #[test]
    fn what_an_entry_leads_to_waits_for_a_transaction_of_a_smaller_name() {
        let parent = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let (one, two) = (Name::new(b"one").unwrap(), Name::new(b"two").unwrap());
        let mut all = Transactions::default();
        all.begin(Epoch(5), tx(2), tx(100), parent, &one);
        assert!(all.is_preceded(Epoch(5), tx(3), parent, &one));
        assert!(!all.is_preceded(Epoch(5), tx(3), parent, &two), "of another entry");
        assert!(!all.is_preceded(Epoch(6), tx(3), parent, &one), "of an earlier epoch");
        assert!(!all.is_preceded(Epoch(5), tx(2), parent, &one), "it does not wait for itself");
        assert!(!all.is_preceded(Epoch(5), tx(1), parent, &one), "nor for a greater one");
        all.precede(Epoch(5), tx(3), parent, &one);
        all.precede(Epoch(5), tx(1), parent, &two);
        assert!(all.end(Epoch(5), tx(2), parent, &one), "it goes on");
        assert!(!all.is_preceded(Epoch(5), tx(3), parent, &one));
        all.begin(Epoch(5), tx(4), tx(100), parent, &one);
        all.precede(Epoch(5), tx(3), parent, &one);
        assert!(!all.end(Epoch(5), tx(4), parent, &one), "it is given up");
    }

    #[test]
    fn a_lock_is_given_to_one_at_a_time() {
        let second = Duration::from_secs;
        let mut lock = TreeLock::default();
        assert!(!lock.take(second(100), Epoch(3), tx(1)), "one of an earlier epoch may be held");
        assert!(lock.take(second(100) + LOCK_TIME, Epoch(3), tx(1)));
        assert!(lock.take(second(107), Epoch(3), tx(1)), "asked again");
        assert!(!lock.take(second(108), Epoch(3), tx(2)));
        lock.release(second(109), tx(2));
        assert!(!lock.take(second(109), Epoch(3), tx(2)), "another's lock is not released");
        lock.release(second(109), tx(1));
        assert!(lock.take(second(109), Epoch(3), tx(2)));
        assert!(lock.take(second(109) + LOCK_TIME, Epoch(3), tx(3)), "its holder is gone");
        assert!(!lock.take(second(116), Epoch(5), tx(4)), "another brick may have given it in epoch 4");
        assert!(lock.take(second(116) + LOCK_TIME, Epoch(5), tx(4)));
        assert!(!lock.take(second(123), Epoch(6), tx(5)), "it is known who has it");
        lock.release(second(123), tx(4));
        assert!(lock.take(second(123), Epoch(6), tx(5)), "it is known that nobody has it");
        assert!(LOCK_USE * 2 <= LOCK_TIME);
    }
}
