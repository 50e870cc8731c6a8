//! A directory moves from another set's entries to one of this set (docs/design/0019): what its transaction has beside that of a
//! file's name. The lock on the tree's shape, and what lies above the new entry; and at the end that the directory has left on
//! disk before its mark goes.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::joint::{Joint, decider};
use crate::joint_ends::Participant;
use crate::moves::{Held, Step, Walk};
use alloc::boxed::Box;
use ids::{Fid, SetId};
use namespace::Need;
use wire::op::EntryName;
use wire::{Body, Errno, Fail, Op};

/// From this level of the pool on directories move from their own set's entries to another set's: `cluster::LEVEL`.
const DIRECTORIES: u32 = 2;
/// From this one on also those whose entry is another set's than their own.
const PLACED: u32 = 3;
/// From this one on they change places with what has a name on another set.
pub(crate) const SWAPS: u32 = 8;

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A directory of set `home` was found there. It moves if no server is older.
    pub(crate) fn ask_for_directory(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        (fid, home): (Fid, SetId),
    ) {
        let missed = joint.source.is_some() && joint.misses_again();
        let (Some((from, drop)), Some((dir, name))) = (joint.comes_from(), decider(&joint.op)) else {
            return self.give_up(cx, *joint, Errno::EXDEV.into());
        };
        let needed = if home == from { DIRECTORIES } else { PLACED };
        if self.settings.level < if joint.is_exchange() { SWAPS } else { needed } {
            return self.give_up(cx, *joint, Errno::EXDEV.into());
        }
        if let Some(source) = joint.source {
            let same = source == (fid, home) && home != from && joint.incoming.is_none();
            if missed || !same {
                let fail = if same { Errno::ENOENT.into() } else { Fail::Busy };
                return self.give_up(cx, *joint, fail);
            }
        }
        self.transactions.brings_directory(joint.transaction.tx, dir, name);
        let add = Some(EntryName { dir, name: name.clone() });
        let need = Need::of_names(home, Some(fid), Some(drop), add);
        (joint.source, joint.of_directory) = (Some((fid, home)), true);
        match joint.exchange_with().cloned().filter(|_| home == from) {
            // It is marked with what its entry is to lead to.
            Some(exchange) => self.ask_home(cx, joint, Need { exchange: Some(exchange), ..need }),
            None => self.ask_home(cx, joint, need),
        }
    }

    /// The lock is there, or not.
    pub(crate) fn on_locked_for(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        held: Held,
        locked: Result<Body, Fail>,
    ) {
        match locked {
            Ok(_) => {
                joint.held = Some(held);
                self.go_on_joint(cx, joint);
            }
            Err(fail) => self.give_up(cx, *joint, fail),
        }
    }

    /// What lies above the new entry of a directory has to be known: a set is asked, and then the one above.
    pub(crate) fn ask_above_for(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        joint: Box<Joint<R>>,
        (start, home): (Fid, SetId),
    ) {
        let walk = Walk::new(start, joint.comes_beneath(start));
        self.ask(cx, Asking::JointLineage(joint, walk), home, Op::Lineage { fid: start }, None);
    }

    pub(crate) fn on_lineage_for(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        mut walk: Walk,
        answer: Result<Body, Fail>,
    ) {
        let Some(held) = &mut joint.held else { return self.give_up(cx, *joint, Fail::Busy) };
        if held.begins_again(&answer) {
            return self.go_on_joint(cx, joint);
        }
        match walk.go_on(answer, &mut held.above) {
            Step::Ask(fid, home) => {
                self.ask(cx, Asking::JointLineage(joint, walk), home, Op::Lineage { fid }, None);
            }
            Step::Ended => self.go_on_joint(cx, joint),
            Step::Fails(fail) => {
                if let (Fail::Busy, Some((_, from))) = (&fail, joint.comes_from()) {
                    // Something above is marked, perhaps for a rename that gives up for the mark of this one.
                    let took = cx.at.now.saturating_sub(joint.since);
                    self.pauses.note(cx.at.now, (from.dir, &from.name), joint.transaction.tx, took);
                }
                self.give_up(cx, *joint, fail);
            }
        }
    }

    /// A directory that has moved here has left its old entry for good, or its set will look itself.
    pub(crate) fn on_left_on_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        part: Participant,
        answer: Result<Body, Fail>,
    ) {
        let Participant { home, fid, tx, .. } = part;
        match answer {
            Ok(_) => {
                let end = Op::EndTransaction { fid, tx: Some(tx), keep: true };
                self.ask(cx, Asking::LeaveEnded(part), home, end, None);
            }
            Err(fail) => tracing::debug!("bring to disk that {fid} of set {home} has moved: {fail:?}"),
        }
    }

    /// Then it comes to its path.
    pub(crate) fn on_leave_ended(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        Participant { home, fid, .. }: Participant,
        answer: Result<Body, Fail>,
    ) {
        match answer {
            Ok(_) => self.send_place(cx, fid),
            Err(fail) => tracing::debug!("end the move of {fid} of set {home}: {fail:?}"),
        }
    }
}
