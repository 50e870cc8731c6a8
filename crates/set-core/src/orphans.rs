//! Files without a name: kept for those who hold them open, dropped when nobody does.

use crate::brick::LocalBrick;
use crate::core::{Cx, Later, Purpose, SetCore};
use crate::io::{Done, ReplyTo};
use alloc::vec::Vec;
use ids::Fid;
use wire::{Change, Errno};

/// Nameless files that are dropped in one go, and changes that may be under way when the next ones follow.
const UNCLAIMED_AT_ONCE: usize = 64;
const UNCLAIMED_BEHIND: u64 = 256;

/// Nameless files that are looked at in one go: each may be held by any session.
const LOOKED_AT: usize = 1024;

/// Nameless files that are yet to be looked at, since all were listed last.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    left: Vec<Fid>,
    listing: bool,
}

impl Orphans {
    /// Whether the next ones need not wait for the next second.
    pub(crate) fn are_more(&self) -> bool {
        !self.left.is_empty()
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A nameless file that nobody holds any more goes.
    pub(crate) fn drop_orphan(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) {
        let now = cx.at.now;
        let held = self.opens.may_be_open(now, fid) || self.departures.arrivals.are_under_way(now, fid);
        let may_go = !held && self.is_primary() && self.brick.is_orphan(fid) && !self.may_be_piece(fid);
        if may_go && !self.waits_for_names(now, fid) {
            self.order_own(cx, Change::DropOrphan { fid });
        }
    }

    /// Some time after a change of primary nameless files that no client claimed go, a few at a time: others want to be
    /// served meanwhile. Nothing more goes while the set is behind with what went. Another thread lists them.
    pub(crate) fn drop_unclaimed(&mut self, cx: &mut Cx<'_, B, R>) {
        let behind = self.last().lsn.0 - self.replica.commit().0;
        if !self.is_primary() || self.opens.is_grace(cx.at.now) || behind > UNCLAIMED_BEHIND {
            return;
        }
        if self.orphans.left.is_empty() {
            if !self.orphans.listing
                && let Ok(Some(work)) = self.brick.begin_orphans()
            {
                self.orphans.listing = true;
                self.start(cx, Purpose::Orphans, Ok(work));
            }
            return;
        }
        self.look_at_orphans(cx);
    }

    /// They are listed.
    pub(crate) fn on_orphans(&mut self, cx: &mut Cx<'_, B, R>, listed: Result<Done, Errno>) {
        self.orphans.listing = false;
        if let Ok(Done::Hidden(found)) = listed {
            self.orphans.left = found;
            self.pieces.begin_listing(cx.at.now);
            self.look_at_orphans(cx);
        }
    }

    fn look_at_orphans(&mut self, cx: &mut Cx<'_, B, R>) {
        let mut unclaimed = 0;
        for _ in 0..LOOKED_AT {
            let Some(fid) = self.orphans.left.pop() else { break };
            if self.may_be_piece(fid) {
                if !self.pieces.may_ask() {
                    self.orphans.left.push(fid);
                    break;
                }
                self.check_piece(cx, fid);
                continue;
            }
            if !self.opens.is_open(fid) {
                self.later.push_back(Later::DropOrphan(fid));
                unclaimed += 1;
            }
            if unclaimed == UNCLAIMED_AT_ONCE {
                break;
            }
        }
    }
}
