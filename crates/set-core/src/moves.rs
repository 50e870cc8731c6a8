//! A rename that brings a directory beneath directories of other sets. Those are asked what lies above them, under the lock
//! on the tree's shape, which has to hold when the rename is decided.

use crate::brick::LocalBrick;
use crate::change::Ask;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::joint::{Joint, is_gone};
use crate::rights::Permit;
use crate::waiters::{Address, AfterReply, ReplyShape, Waiter};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Epoch, Fid, OpId, SetId};
use namespace::Decision;
use namespace::transaction::{LOCK_USE, TreeLock};
use wire::limits::DEPTH_MAX;
use wire::{Body, Change, Errno, Fail, Op};

/// The type bits of a directory.
pub(crate) const DIR: u32 = 0o040_000;

/// Directories of which it is kept how deep they lie.
const DEPTHS: usize = 256;

/// What the core keeps of the tree's shape across sets.
#[derive(Debug)]
pub(crate) struct Tree {
    /// In the root's set: who may change the shape.
    pub(crate) lock: TreeLock,
    /// Directories that were moved to other directories by this set: what was seen above one before may no longer hold.
    pub(crate) moves: u64,
    /// Directories that this brick gave another name or another place since it was opened: other sets may have what lies beneath
    /// them at old paths.
    renames: u32,
    /// How many directories were placed by room, from a start that differs between sets.
    pub(crate) spread: u64,
    /// How many directories lie above some of them: to find out takes several system calls for each level.
    depths: BTreeMap<Fid, u32>,
}

impl Tree {
    pub(crate) fn new(set: SetId) -> Tree {
        Tree {
            lock: TreeLock::default(),
            moves: 0,
            renames: 0,
            spread: set.0.into(),
            depths: BTreeMap::new(),
        }
    }

    /// A number that is another one after each such rename, whoever leads.
    pub(crate) fn renames_in(&self, epoch: Epoch) -> u64 {
        u64::from(epoch.0) << 32 | u64::from(self.renames)
    }

    /// Counts what may change what lies above a directory: renames between two directories of this set, and directories that
    /// come from another set's or leave for one, or both, which are renames of directories for certain.
    pub(crate) fn note_move(&mut self, change: &Change) {
        match change {
            Change::Rename { parent, to_parent, .. } | Change::Exchange { parent, to_parent, .. }
                if parent != to_parent => {}
            Change::Enter { kind: DIR, .. }
            | Change::MoveOut { .. }
            | Change::MoveOn { .. }
            | Change::Swap { .. } => {
                self.count_rename();
            }
            _ => return,
        }
        self.moves += 1;
        self.depths.clear();
    }

    /// A directory has another name or another place now.
    pub(crate) fn count_rename(&mut self) {
        self.renames = self.renames.wrapping_add(1);
    }

    /// How deep a directory lies, if that is known. What other sets move is not heard of: it is for a guess only.
    pub(crate) fn depth(&self, dir: Fid) -> Option<u32> {
        self.depths.get(&dir).copied()
    }

    pub(crate) fn keep_depth(&mut self, dir: Fid, depth: u32) {
        if self.depths.len() >= DEPTHS {
            self.depths.clear();
        }
        self.depths.insert(dir, depth);
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
    /// A set that was asked did not have the entry of which another one had told.
    begun_again: bool,
}

impl Held {
    /// Whether to begin again from the target upwards, as that answer may only say that an entry has moved meanwhile. Once: it
    /// may be lost for good, too.
    pub(crate) fn begins_again(&mut self, answer: &Result<Body, Fail>) -> bool {
        let gone = matches!(answer, Err(Fail::Errno { errno }) if is_gone(*errno));
        gone && !core::mem::replace(&mut self.begun_again, true)
    }
}

/// A rename under way.
#[derive(Debug)]
pub(crate) struct Move<R> {
    id: OpId,
    op: Op,
    /// What its client may, unless it is trusted.
    permit: Option<Permit>,
    to: Address<R>,
    held: Held,
    walk: Walk,
}

/// A directory of another set that is asked about, and those above it.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Where it began, what was told, and who is asked now.
    start: Fid,
    above: Vec<Fid>,
    asked: Fid,
    /// The directory that is to move, if another set has marked it: above it nothing is told, and nothing has to be known.
    moved: Option<Fid>,
}

/// What an answer about what lies above leads to.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// This directory of that set is next.
    Ask(Fid, SetId),
    /// The walk has reached the root.
    Ended,
    /// The rename fails.
    Fails(Fail),
}

impl Walk {
    pub(crate) fn new(start: Fid, moved: Option<Fid>) -> Walk {
        Walk { start, above: Vec::new(), asked: start, moved }
    }

    /// Takes an answer. What lies above the start is known then, if the walk has ended.
    pub(crate) fn go_on(&mut self, answer: Result<Body, Fail>, known: &mut BTreeMap<Fid, Vec<Fid>>) -> Step {
        match answer {
            Ok(Body::Lineage { own, other }) if own.first() == Some(&self.asked) => {
                self.above.extend(own);
                let met = self.moved.is_some_and(|moved| self.above.contains(&moved));
                match other.filter(|_| !met) {
                    Some(_) if self.above.len() > DEPTH_MAX => Step::Fails(Errno::ELOOP.into()),
                    Some((fid, home)) => {
                        self.asked = fid;
                        Step::Ask(fid, home)
                    }
                    None => {
                        known.insert(self.start, core::mem::take(&mut self.above));
                        Step::Ended
                    }
                }
            }
            Ok(_) => Step::Fails(Fail::Busy),
            Err(fail) => Step::Fails(fail),
        }
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins such a rename: first the lock.
    pub(crate) fn move_across(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        id: OpId,
        (op, permit): (Op, Option<Permit>),
        to: Address<R>,
    ) {
        let held = self.hold(cx);
        let Lock { root, tx } = held.lock;
        let m = Move { id, op, permit, to, held, walk: Walk::new(Fid::default(), None) };
        self.ask(cx, Asking::Locked(m), root, Op::LockTree { tx }, None);
    }

    /// What is known when the lock is asked for.
    fn hold(&self, cx: &Cx<'_, B, R>) -> Held {
        let (_, root) = self.brick.root();
        Held {
            lock: Lock { root, tx: cx.outside.next_id() },
            until: cx.at.now + LOCK_USE,
            epoch: self.replica.view().epoch,
            moves: self.tree.moves,
            above: BTreeMap::new(),
            begun_again: false,
        }
    }

    /// A directory that is marked is to move beneath directories of other sets. The lock comes after the mark, which has to get to
    /// a disk: that may take longer than the lock may be used.
    pub(crate) fn lock_for(&mut self, cx: &mut Cx<'_, B, R>, joint: Box<Joint<R>>) {
        let held = self.hold(cx);
        let Lock { root, tx } = held.lock;
        self.ask(cx, Asking::JointLocked(joint, held), root, Op::LockTree { tx }, None);
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
                m.walk = Walk::new(start, None);
                self.ask(cx, Asking::Lineage(m), home, Op::Lineage { fid: start }, None);
            }
            _ => self.decide_move(cx, m, Ok(())),
        }
    }

    pub(crate) fn on_lineage(&mut self, cx: &mut Cx<'_, B, R>, mut m: Move<R>, answer: Result<Body, Fail>) {
        if m.held.begins_again(&answer) {
            return self.look_above(cx, m);
        }
        match m.walk.go_on(answer, &mut m.held.above) {
            Step::Ask(fid, home) => self.ask(cx, Asking::Lineage(m), home, Op::Lineage { fid }, None),
            Step::Ended => self.look_above(cx, m),
            Step::Fails(fail) => self.decide_move(cx, m, Err(fail)),
        }
    }

    /// All is known, or cannot be: the rename is decided, if the lock still holds.
    fn decide_move(&mut self, cx: &mut Cx<'_, B, R>, m: Move<R>, known: Result<(), Fail>) {
        let Move { id, op, permit, to, held, .. } = m;
        let ready = self.admit_again(cx, id).and(if self.holds(cx, &held) { known } else { Err(Fail::Busy) });
        let ready = ready.and_then(|()| self.still_permits(permit.as_ref(), &op, None));
        if let Err(fail) = ready {
            self.unlock(cx, held.lock);
            return self.refuse_for_other(cx, to, fail);
        }
        let decision = self.decide(cx, &op, Ask { id, above: Some(&held.above), ..Ask::default() });
        if let Ok(Decision::RemoveElsewhere(entry)) = decision {
            return self.remove_elsewhere(cx, (id, op, permit), entry, Some(held), to);
        }
        if let Ok(Decision::AskHome(need)) = decision {
            // The lock is taken once more when the home's mark is on disk: that may take longer than the lock may be used.
            self.unlock(cx, held.lock);
            return self.begin_joint(cx, (id, id.session), (op, need, permit), to);
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
    use ids::Lsn;

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn says(own: &[u64], other: Option<(Fid, SetId)>) -> Result<Body, Fail> {
        Ok(Body::Lineage { own: own.iter().map(|n| fid(*n)).collect(), other })
    }

    #[test]
    fn a_walk_goes_from_set_to_set_up_to_the_root() {
        let (mut walk, mut known) = (Walk::new(fid(1), None), BTreeMap::new());
        let next = (fid(2), SetId(2));
        assert_eq!(walk.go_on(says(&[1, 2], Some(next)), &mut known), Step::Ask(next.0, next.1));
        assert_eq!(walk.go_on(says(&[2, 3, 4], None), &mut known), Step::Ended);
        assert_eq!(known, [(fid(1), [1, 2, 2, 3, 4].map(fid).into())].into());
    }

    /// Its set tells nothing of what lies above it.
    #[test]
    fn a_walk_ends_at_the_directory_that_is_to_move() {
        let known = &mut BTreeMap::new();
        let told = || says(&[1, 2], Some((fid(2), SetId(2))));
        assert_eq!(Walk::new(fid(1), Some(fid(2))).go_on(told(), known), Step::Ended);
        assert_eq!(known.get(&fid(1)), Some(&Vec::from([1, 2].map(fid))));
        let other = Walk::new(fid(1), Some(fid(3))).go_on(told(), known);
        assert_eq!(other, Step::Ask(fid(2), SetId(2)));
    }

    #[test]
    fn a_walk_ends_at_an_answer_to_something_else_and_at_a_loop() {
        let known = &mut BTreeMap::new();
        let walk = || Walk::new(fid(1), None);
        assert_eq!(walk().go_on(says(&[2], None), known), Step::Fails(Fail::Busy));
        assert_eq!(walk().go_on(Ok(Body::Done), known), Step::Fails(Fail::Busy));
        assert_eq!(walk().go_on(Err(Fail::BelowQuorum), known), Step::Fails(Fail::BelowQuorum));
        let mut walk = walk();
        let again = || says(&[1], Some((fid(1), SetId(2))));
        let asked =
            (0..2 * DEPTH_MAX).take_while(|_| matches!(walk.go_on(again(), known), Step::Ask(..))).count();
        assert_eq!(asked, DEPTH_MAX);
    }
}
