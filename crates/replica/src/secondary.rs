//! The secondary's part: apply in order, acknowledge.

use crate::io::{ChangeBody, LogEntry, Message, Output, SyncToken};
use crate::limits::EARLY;
use crate::replica::{Out, Replica, Role};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Fid, Lsn};
use wire::Errno;
use wire::peer::Stamp;

impl<B: ChangeBody> Replica<B> {
    pub(crate) fn on_replicate(
        &mut self,
        now: Duration,
        from: BrickId,
        commit: Lsn,
        entry: LogEntry<B>,
        out: &mut Out<B>,
    ) {
        if self.role == Role::Reconciling {
            return self.on_tail(now, from, entry, out);
        }
        if !matches!(self.role, Role::Secondary | Role::Healing) || self.view.primary != Some(from) {
            return;
        }
        let lsn = entry.stamp.lsn;
        if self.contradicts(&entry.stamp) {
            return self.on_apply_failed(now, lsn, Errno::EIO.0, out);
        }
        if lsn <= self.last.lsn {
            // Seen before: say again how far this brick is.
            self.acknowledge(out);
            return;
        }
        let mut next = None;
        if lsn == self.last.lsn.next() {
            self.gap.remove(&lsn);
            next = Some(entry);
        } else if self.gap.len() < EARLY {
            self.gap.insert(lsn, entry);
        }
        while let Some(entry) = next.take().or_else(|| self.gap.remove(&self.last.lsn.next())) {
            if entry.stamp.epoch < self.last.epoch {
                self.fail(out);
                return;
            }
            self.append(entry, out);
        }
        self.on_committed(commit);
    }

    /// Whether the primary has a later epoch's change where this brick's journal has another one. A power cut took the
    /// primary's, and its acceptance of this brick's new join was lost on the way: what follows does not follow here.
    fn contradicts(&self, stamp: &Stamp) -> bool {
        let ours = self.history.iter().find(|(_, end)| **end >= stamp.lsn);
        ours.is_some_and(|(epoch, _)| stamp.epoch > *epoch)
    }

    /// Tells the primary how far this brick is, and runs the syncs that waited for it.
    pub(crate) fn acknowledge(&mut self, out: &mut Out<B>) {
        let Some(primary) = self.view.primary else { return };
        let message = Message::Ack { lsn: self.applied, durable: self.durable, available: self.available };
        self.send(primary, message, out);
        let applied = self.applied;
        let due = |s: &(BrickId, u64, Lsn, Option<Fid>)| s.2 <= applied;
        let begun: Vec<_> = self.late_syncs.extract_if(.., |s| due(s)).collect();
        for (from, ticket, _, fid) in begun {
            self.begin_peer_sync(from, ticket, fid, out);
        }
    }

    /// On a brick that heals: tells the primary how much room it has, and nothing else. How far it is may be of a join that was
    /// accepted anew since.
    pub(crate) fn send_room(&mut self, out: &mut Out<B>) {
        let Some(primary) = self.view.primary else { return };
        let message = Message::Ack { lsn: Lsn(0), durable: Lsn(0), available: self.available };
        self.send(primary, message, out);
    }

    /// Begins a sync for the primary, unless the same one is under way: it covers all that was applied when it began.
    fn begin_peer_sync(&mut self, from: BrickId, ticket: u64, fid: Option<Fid>, out: &mut Out<B>) {
        let epoch = self.view.epoch;
        if self.peer_syncs.insert((from, ticket, epoch)) {
            out.push(Output::Sync { token: SyncToken::Peer(from, ticket, epoch), fid });
        }
    }

    pub(crate) fn on_peer_sync(
        &mut self,
        from: BrickId,
        ticket: u64,
        lsn: Lsn,
        fid: Option<Fid>,
        out: &mut Out<B>,
    ) {
        if !matches!(self.role, Role::Secondary | Role::Healing) || self.view.primary != Some(from) {
            return;
        }
        if lsn <= self.applied {
            self.begin_peer_sync(from, ticket, fid, out);
        } else if self.late_syncs.len() < EARLY && !self.late_syncs.iter().any(|s| s.1 == ticket) {
            self.late_syncs.push((from, ticket, lsn, fid));
        }
    }
}
