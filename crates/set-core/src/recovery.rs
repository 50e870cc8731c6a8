//! The end of doubt on a brick that went on alone after a power cut.
//!
//! It tells, by a change each, which objects may not be what the journal made of them; when all is on disk nothing is in
//! doubt any more.

use crate::brick::Brick;
use crate::core::{Cx, Later, Purpose, SetCore};
use crate::io::{Done, ReplyTo};
use ids::{Fid, Lsn};
use replica::{Input, SyncToken};
use wire::{Change, Errno};

impl<B: Brick, R: ReplyTo> SetCore<B, R> {
    /// Begins to tell what is in doubt, once.
    pub(crate) fn tell_doubts(&mut self) {
        if self.told {
            return;
        }
        let Some(objects) = self.brick.doubtful() else { return };
        self.told = true;
        let told = Lsn(self.last().lsn.0 + objects.len() as u64);
        self.later.extend(objects.into_iter().map(Later::Touch));
        self.later.push_back(Later::EndDoubt(told));
    }

    /// Tells of one object.
    pub(crate) fn touch(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) {
        if self.is_primary() {
            self.order_own(cx, Change::Touch { fid });
        }
    }

    /// All were told, if the journal reaches that far: what was told goes to disk.
    pub(crate) fn end_doubt(&mut self, cx: &mut Cx<'_, B, R>, told: Lsn) {
        if !self.is_primary() || self.last().lsn < told {
            // Not all could be journaled: once more.
            self.told = false;
            return;
        }
        let work = self.brick.begin_end();
        self.start(cx, Purpose::EndDoubt, work);
    }

    pub(crate) fn on_doubt_synced(&mut self, cx: &mut Cx<'_, B, R>, synced: Result<Done, Errno>) {
        if let Err(e) = &synced {
            self.doubt_unsynced();
            self.feed(cx, Input::Synced { token: SyncToken::Local(0), errno: e.0 });
        }
        if !self.is_primary() {
            self.told = false;
        } else if let Err(e) = synced.and_then(|_| self.brick.end_heal()) {
            tracing::error!("set {}: end the doubt of brick {}: {e}", self.set, self.me);
            self.told = false;
        }
    }
}
