//! The end of the stale set on a brick that went on alone after a power cut.
//!
//! For each object that may differ from its journal the brick orders a change (`Touch`) that says so: in short turns between
//! the clients' requests, as they may be a million. When all of them are on disk the stale set is cleared.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, Later, SetCore};
use crate::flush::Then;
use crate::io::{Done, ReplyTo};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Fid, Lsn};
use replica::{Input, SyncToken};
use wire::{Change, Errno};

/// The announcement of the stale objects.
#[derive(Debug, Default)]
pub(crate) struct Announcement {
    /// It was begun: what is left of it follows, and then the end of the stale set.
    begun: bool,
    left: Vec<Fid>,
    /// The last change that was ordered for it: in the journal when the next one is.
    ordered: Lsn,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins to announce the stale objects, once.
    pub(crate) fn announce_stale(&mut self, cx: &mut Cx<'_, B, R>) {
        if self.announcement.begun {
            return;
        }
        let Some(left) = self.brick.stale_objects() else { return };
        self.announcement = Announcement { begun: true, left, ordered: Lsn(0) };
        self.later.push_back(Later::Announce(cx.at.now));
    }

    /// Tells of one object, in the turn that began then. When all were told, what was told goes to disk.
    pub(crate) fn announce_one(&mut self, cx: &mut Cx<'_, B, R>, begun: Duration) {
        let last = self.last().lsn;
        if !self.is_primary() || last < self.announcement.ordered {
            // Not all could be journaled: once more.
            self.announcement = Announcement::default();
            return;
        }
        if self.announcement.left.is_empty() {
            return self.forget_trash_then(cx, Then::ClearStaleSet);
        }
        if self.is_turn_over(cx, begun, Due::Announce) {
            return;
        }
        if let Some(fid) = self.announcement.left.pop() {
            self.announcement.ordered = last.next();
            self.order_own(cx, Change::Touch { fid });
        }
        self.later.push_back(Later::Announce(begun));
    }

    pub(crate) fn on_stale_synced(&mut self, cx: &mut Cx<'_, B, R>, synced: Result<Done, Errno>) {
        if let Err(e) = &synced {
            self.mark_unsynced_stale();
            self.feed(cx, Input::Synced { token: SyncToken::Local(0), errno: e.0 });
        }
        if self.is_primary() && synced.is_ok() {
            self.flush_then(cx, Then::StaleSetSynced);
        } else {
            self.announcement.begun = false;
        }
    }

    /// What was told is on disk, and attributes that changed since are written.
    pub(crate) fn end_stale_set(&mut self, written: Result<(), Errno>) {
        if !self.is_primary() {
            self.announcement.begun = false;
        } else if let Err(e) = written.and_then(|()| self.brick.end_heal()) {
            tracing::error!("{}: clear the stale set of brick {}: {e}", self.settings.name, self.me);
            self.announcement.begun = false;
        }
    }
}
