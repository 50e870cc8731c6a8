//! Objects that the primary does not have, and that are here still when it says so.
//!
//! The comparison of a directory takes most of them away. What none takes away is looked at once more when all else is
//! right, one object at a time, as they may be very many.

use super::{HealSession, HealTarget};
use alloc::collections::VecDeque;
use ids::Fid;
use wire::Errno;

/// Those objects, the one that was looked at longest ago first.
#[derive(Clone, Debug, Default)]
pub(super) struct Absent {
    /// Each with how many pages of names had been compared when it was last looked at.
    left: VecDeque<(Fid, u64)>,
    compared: u64,
}

impl Absent {
    /// It was looked at, and is here still.
    pub(super) fn keep(&mut self, fid: Fid) {
        self.left.push_back((fid, self.compared));
    }

    /// A page of a directory was compared, which may have moved them: all of them are to be looked at again.
    pub(super) fn after_page(&mut self) {
        self.compared += 1;
    }

    /// Whether one is to be looked at again.
    pub(super) fn is_due(&self) -> bool {
        self.left.front().is_some_and(|(_, at)| *at < self.compared)
    }

    fn take(&mut self) -> Option<Fid> {
        if self.is_due() { self.left.pop_front().map(|(fid, _)| fid) } else { None }
    }
}

impl HealSession {
    /// Whether all is compared, and objects that the primary does not have are yet to be looked at again.
    pub fn looks_at_absent(&self) -> bool {
        self.has_compared() && self.absent.is_due()
    }

    /// Looks at one of them again. True if there are more.
    ///
    /// # Errors
    /// The kernel's: the brick cannot go on.
    pub fn look_at_absent<P: HealTarget>(&mut self, brick: &mut P) -> Result<bool, Errno> {
        if let Some(fid) = self.absent.take()
            && brick.take_nothing(fid)?
        {
            self.absent.keep(fid);
        }
        Ok(self.absent.is_due())
    }
}
