//! Files of this set that leave it while their only name is in a directory of another set (docs/design/0018).
//!
//! The set of the directory decides, with a change of its entry, after this one has agreed. From then on until it is told how
//! that ended this set answers nothing about the file: the entry may lead to the copy already, and others may change that. It
//! holds as long as the mark does, whoever leads.

use crate::brick::LocalBrick;
use crate::core::SetCore;
use crate::io::ReplyTo;
use core::time::Duration;
use ids::{Fid, SetId};
use wire::Op;

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The set of a directory: no directory changes its set.
    pub(crate) fn set_of(&self, dir: Fid) -> SetId {
        let (root, home) = self.brick.root();
        if dir == root { home } else { dir.set }
    }

    /// Whether the operation reads, opens or changes a file that is marked to leave.
    pub(crate) fn is_about_a_leaver(&mut self, now: Duration, op: &Op) -> bool {
        if self.pending.marked_files() == 0 {
            return false;
        }
        match op {
            Op::Release { .. } => false,
            Op::CopyRange { from, to, .. } => self.is_leaving(now, *from) || self.is_leaving(now, *to),
            op => op.object().is_some_and(|fid| self.is_leaving(now, fid)),
        }
    }

    fn is_leaving(&mut self, now: Duration, fid: Fid) -> bool {
        if !self.waits_for_names(now, fid) {
            return false;
        }
        // A copy that is to get several names has them beside it too, and keeps being made.
        let drops = self.brick.intent(fid).is_ok_and(|intent| intent.is_some_and(|i| i.add.is_none()));
        drops && self.brick.names_of_copy(fid).is_ok_and(|names| !names.is_empty())
    }
}
