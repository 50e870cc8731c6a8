//! A rename that brings a directory beneath directories of other sets. Those are asked what lies above them, under the lock
//! on the tree's shape, which has to hold when the rename is decided.

use crate::brick::LocalBrick;
use crate::change::Ask;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::waiters::{Address, AfterReply, ReplyShape, Waiter};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Epoch, Fid, OpId, SetId};
use namespace::Decision;
use namespace::transaction::{LOCK_USE, TreeLock};
use wire::limits::DEPTH_MAX;
use wire::{Body, Change, Errno, Fail, Op};

/// What the core keeps of the tree's shape across sets.
#[derive(Debug)]
pub(crate) struct Tree {
    /// In the root's set: who may change the shape.
    pub(crate) lock: TreeLock,
    /// Directories that were moved to other directories by this set: what was seen above one before may no longer hold.
    pub(crate) moves: u64,
    /// How many directories were placed by room, from a start that differs between sets.
    pub(crate) spread: u64,
}

impl Tree {
    pub(crate) fn new(set: SetId) -> Tree {
        Tree { lock: TreeLock::default(), moves: 0, spread: set.0.into() }
    }

    /// Counts the directories that this set moves to other directories.
    pub(crate) fn note_move(&mut self, change: &Change) {
        let (from, to) = match change {
            Change::Rename { parent, to_parent, .. } | Change::Exchange { parent, to_parent, .. } => {
                (parent, to_parent)
            }
            _ => return,
        };
        self.moves += u64::from(from != to);
    }
}

/// A lock on the tree's shape, and its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lock {
    /// The root's set, which gives it.
    root: SetId,
    tx: OpId,
}

/// What a rename under the lock knows.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) lock: Lock,
    /// How long the lock may be used, and what must not have changed by then.
    until: Duration,
    epoch: Epoch,
    moves: u64,
    /// What lies above the directories that were asked about.
    pub(crate) above: BTreeMap<Fid, Vec<Fid>>,
}

/// A rename under way.
#[derive(Debug)]
pub(crate) struct Move<R> {
    id: OpId,
    op: Op,
    to: Address<R>,
    held: Held,
    /// The directory that is being asked about: where the walk began, how far it is, who is asked now.
    walk: (Fid, Vec<Fid>, Fid),
}

/// What an answer about what lies above leads to.
#[derive(PartialEq, Eq, Debug)]
enum Walk {
    /// This directory of that set is next.
    Ask(Fid, SetId),
    /// The walk has reached the root.
    Ended,
    /// The rename fails.
    Fails(Fail),
}

impl<R> Move<R> {
    fn walk_on(&mut self, answer: Result<Body, Fail>) -> Walk {
        let (start, above, asked) = &mut self.walk;
        match answer {
            Ok(Body::Lineage { own, other }) if own.first() == Some(&*asked) => {
                above.extend(own);
                match other {
                    Some(_) if above.len() > DEPTH_MAX => Walk::Fails(Errno::ELOOP.into()),
                    Some((fid, home)) => {
                        *asked = fid;
                        Walk::Ask(fid, home)
                    }
                    None => {
                        self.held.above.insert(*start, core::mem::take(above));
                        Walk::Ended
                    }
                }
            }
            Ok(_) => Walk::Fails(Fail::Busy),
            Err(fail) => Walk::Fails(fail),
        }
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins such a rename: first the lock.
    pub(crate) fn move_across(&mut self, cx: &mut Cx<'_, B, R>, id: OpId, op: Op, to: Address<R>) {
        let (_, root) = self.brick.root();
        let tx = cx.outside.next_id();
        let none = Fid::default();
        let held = Held {
            lock: Lock { root, tx },
            until: cx.at.now + LOCK_USE,
            epoch: self.replica.view().epoch,
            moves: self.tree.moves,
            above: BTreeMap::new(),
        };
        let m = Move { id, op, to, held, walk: (none, Vec::new(), none) };
        self.ask(cx, Asking::Locked(m), root, Op::LockTree { tx }, None);
    }

    pub(crate) fn on_locked(&mut self, cx: &mut Cx<'_, B, R>, m: Move<R>, locked: Result<Body, Fail>) {
        match locked {
            Ok(_) => self.look_above(cx, m),
            Err(fail) => self.refuse(cx, m.to, fail),
        }
    }

    /// Asks what lies above the next directory of another set that the rename needs to know of.
    fn look_above(&mut self, cx: &mut Cx<'_, B, R>, mut m: Move<R>) {
        let ask = Ask { id: m.id, above: Some(&m.held.above), ..Ask::default() };
        match self.decide(cx, &m.op, ask) {
            Ok(Decision::AskAbove(start, home)) => {
                m.walk = (start, Vec::new(), start);
                self.ask(cx, Asking::Lineage(m), home, Op::Lineage { fid: start }, None);
            }
            _ => self.decide_move(cx, m, Ok(())),
        }
    }

    pub(crate) fn on_lineage(&mut self, cx: &mut Cx<'_, B, R>, mut m: Move<R>, answer: Result<Body, Fail>) {
        match m.walk_on(answer) {
            Walk::Ask(fid, home) => self.ask(cx, Asking::Lineage(m), home, Op::Lineage { fid }, None),
            Walk::Ended => self.look_above(cx, m),
            Walk::Fails(fail) => self.decide_move(cx, m, Err(fail)),
        }
    }

    /// All is known, or cannot be: the rename is decided, if the lock still holds.
    fn decide_move(&mut self, cx: &mut Cx<'_, B, R>, m: Move<R>, known: Result<(), Fail>) {
        let Move { id, op, to, held, .. } = m;
        let ready = self.admit_again(cx, id).and(if self.holds(cx, &held) { known } else { Err(Fail::Busy) });
        if let Err(fail) = ready {
            self.unlock(cx, held.lock);
            return self.refuse_for_other(cx, to, fail);
        }
        let decision = self.decide(cx, &op, Ask { id, above: Some(&held.above), ..Ask::default() });
        if let Ok(Decision::RemoveElsewhere(entry)) = decision {
            return self.remove_elsewhere(cx, (id, op), entry, Some(held), to);
        }
        if let Ok(Decision::AskHome(need)) = decision {
            return self.begin_joint(cx, (id, id.session), (op, need), Some(held), to);
        }
        if !matches!(decision, Ok(Decision::Change(..))) {
            self.unlock(cx, held.lock);
        }
        let after = AfterReply::Unlock(held.lock);
        let waiter = Waiter { shape: ReplyShape::Done, after, ..Waiter::done(to) };
        self.carry_out(cx, id, decision, Bytes::new(), waiter);
    }

    /// Whether what a rename has learnt under the lock is still so.
    pub(crate) fn holds(&self, cx: &Cx<'_, B, R>, held: &Held) -> bool {
        let same = self.replica.view().epoch == held.epoch && self.tree.moves == held.moves;
        cx.at.now < held.until && same
    }

    /// Releases the lock, in the background.
    pub(crate) fn unlock(&mut self, cx: &mut Cx<'_, B, R>, lock: Lock) {
        let Lock { root, tx } = lock;
        self.ask(cx, Asking::Unlocked, root, Op::UnlockTree { tx }, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Lsn, SessionId};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn walk() -> Move<()> {
        let id = OpId { session: SessionId(1), seq: 1 };
        let lock = Lock { root: SetId(1), tx: id };
        let held = Held { lock, until: LOCK_USE, epoch: Epoch(1), moves: 0, above: BTreeMap::new() };
        Move { id, op: Op::SyncFs, to: Address::NOBODY, held, walk: (fid(1), Vec::new(), fid(1)) }
    }

    fn says(own: &[u64], other: Option<(Fid, SetId)>) -> Result<Body, Fail> {
        Ok(Body::Lineage { own: own.iter().map(|n| fid(*n)).collect(), other })
    }

    #[test]
    fn a_walk_goes_from_set_to_set_up_to_the_root() {
        let mut m = walk();
        let next = (fid(2), SetId(2));
        assert_eq!(m.walk_on(says(&[1, 2], Some(next))), Walk::Ask(next.0, next.1));
        assert_eq!(m.walk_on(says(&[2, 3, 4], None)), Walk::Ended);
        assert_eq!(m.held.above, [(fid(1), [1, 2, 2, 3, 4].map(fid).into())].into());
    }

    #[test]
    fn a_walk_ends_at_an_answer_to_something_else_and_at_a_loop() {
        assert_eq!(walk().walk_on(says(&[2], None)), Walk::Fails(Fail::Busy));
        assert_eq!(walk().walk_on(Ok(Body::Done)), Walk::Fails(Fail::Busy));
        assert_eq!(walk().walk_on(Err(Fail::BelowQuorum)), Walk::Fails(Fail::BelowQuorum));
        let mut m = walk();
        let again = || says(&[1], Some((fid(1), SetId(2))));
        let asked = (0..2 * DEPTH_MAX).take_while(|_| matches!(m.walk_on(again()), Walk::Ask(..))).count();
        assert_eq!(asked, DEPTH_MAX);
    }
}
