//! The end of the stale set on a brick that went on alone after a power cut.
//!
//! For each object that may differ from its journal the brick orders a change (`Touch`) that says so. When all of them are
//! on disk the stale set is cleared.

use crate::brick::LocalBrick;
use crate::core::{Cx, Later, SetCore};
use crate::flush::Then;
use crate::io::{Done, ReplyTo};
use ids::{Fid, Lsn};
use replica::{Input, SyncToken};
use wire::{Change, Errno};

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins to announce the stale objects, once.
    pub(crate) fn announce_stale(&mut self) {
        if self.told {
            return;
        }
        let Some(objects) = self.brick.stale_objects() else { return };
        self.told = true;
        let told = Lsn(self.last().lsn.0 + objects.len() as u64);
        self.later.extend(objects.into_iter().map(Later::Touch));
        self.later.push_back(Later::ClearStaleSet(told));
    }

    /// Tells of one object.
    pub(crate) fn touch(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) {
        if self.is_primary() {
            self.order_own(cx, Change::Touch { fid });
        }
    }

    /// All were told, if the journal reaches that far: what was told goes to disk.
    pub(crate) fn clear_stale_set(&mut self, cx: &mut Cx<'_, B, R>, told: Lsn) {
        if !self.is_primary() || self.last().lsn < told {
            // Not all could be journaled: once more.
            self.told = false;
            return;
        }
        self.flush_then(cx, Then::ClearStaleSet);
    }

    pub(crate) fn on_stale_synced(&mut self, cx: &mut Cx<'_, B, R>, synced: Result<Done, Errno>) {
        if let Err(e) = &synced {
            self.mark_unsynced_stale();
            self.feed(cx, Input::Synced { token: SyncToken::Local(0), errno: e.0 });
        }
        if self.is_primary() && synced.is_ok() {
            self.flush_then(cx, Then::StaleSetSynced);
        } else {
            self.told = false;
        }
    }

    /// What was told is on disk, and attributes that changed since are written.
    pub(crate) fn end_stale_set(&mut self, written: Result<(), Errno>) {
        if !self.is_primary() {
            self.told = false;
        } else if let Err(e) = written.and_then(|()| self.brick.end_heal()) {
            tracing::error!("set {}: clear the stale set of brick {}: {e}", self.set, self.me);
            self.told = false;
        }
    }
}
