//! Files without a name: kept for those who hold them open, dropped when nobody does.

use crate::brick::LocalBrick;
use crate::core::{Cx, Later, SetCore};
use crate::io::ReplyTo;
use core::time::Duration;
use ids::Fid;
use wire::Change;

/// Nameless files that are dropped in one go, and changes that may be under way when the next ones follow.
const UNCLAIMED_AT_ONCE: usize = 64;
const UNCLAIMED_BEHIND: u64 = 256;

/// Whether there are more nameless files to drop than were dropped in one go.
#[derive(Debug, Default)]
pub(crate) struct Orphans(bool);

impl Orphans {
    pub(crate) fn are_more(&self) -> bool {
        self.0
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A nameless file that nobody holds any more goes.
    pub(crate) fn drop_orphan(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) {
        let held = self.opens.may_be_open(cx.at.now, fid);
        if !held && self.is_primary() && self.brick.is_orphan(fid) {
            self.order_own(cx, Change::DropOrphan { fid });
        }
    }

    /// Some time after a change of primary nameless files that no client claimed go, a few at a time: others want to be
    /// served meanwhile. Nothing more goes while the set is behind with what went.
    pub(crate) fn drop_unclaimed(&mut self, now: Duration) {
        let behind = self.last().lsn.0 - self.replica.commit().0;
        if !self.is_primary() || self.opens.is_grace(now) || behind > UNCLAIMED_BEHIND {
            return;
        }
        let opens = &self.opens;
        let some = self.brick.some_orphans(UNCLAIMED_AT_ONCE, &mut |fid| !opens.is_open(fid));
        let some = some.unwrap_or_default();
        self.orphans = Orphans(some.len() == UNCLAIMED_AT_ONCE);
        self.later.extend(some.into_iter().map(Later::DropOrphan));
    }
}
