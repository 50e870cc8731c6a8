//! The secondary's part: apply in order, acknowledge.

use crate::io::{Body, Entry, Message, Output, SyncToken};
use crate::limits::EARLY;
use crate::replica::{Out, Replica, Role};
use crate::results::Outcome;
use ids::{BrickId, Fid, Lsn};

impl<B: Body> Replica<B> {
    pub(crate) fn on_replicate(&mut self, from: BrickId, commit: Lsn, entry: Entry<B>, out: &mut Out<B>) {
        if !matches!(self.role, Role::Secondary | Role::Healing) || self.view.primary != Some(from) {
            return;
        }
        let lsn = entry.stamp.lsn;
        if lsn <= self.last.lsn {
            // Seen before: say again how far this brick is.
            self.acknowledge(out);
            return;
        }
        if self.gap.len() < EARLY {
            self.gap.insert(lsn, entry);
        }
        while let Some(entry) = self.gap.remove(&self.last.lsn.next()) {
            if entry.stamp.epoch < self.last.epoch {
                self.fail(out);
                return;
            }
            self.last = entry.stamp.clone();
            self.history.insert(entry.stamp.epoch, entry.stamp.lsn);
            let (lsn, about, amount) = (entry.stamp.lsn, entry.about, entry.body.amount());
            self.results.record(entry.op, Outcome { lsn, about, amount });
            out.push(Output::Apply(entry));
        }
        self.commit = self.commit.max(commit.min(self.applied));
    }

    /// Tells the primary how far this brick is, and runs the syncs that waited for it.
    pub(crate) fn acknowledge(&mut self, out: &mut Out<B>) {
        let Some(primary) = self.view.primary else { return };
        let message = Message::Ack { lsn: self.applied, durable: self.durable, available: self.available };
        self.send(primary, message, out);
        let applied = self.applied;
        let due = |s: &(BrickId, u64, Lsn, Option<Fid>)| s.2 <= applied;
        for (from, ticket, _, fid) in self.late_syncs.extract_if(.., |s| due(s)) {
            out.push(Output::Sync { token: SyncToken::Peer(from, ticket, self.view.epoch), fid });
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
            out.push(Output::Sync { token: SyncToken::Peer(from, ticket, self.view.epoch), fid });
        } else if self.late_syncs.len() < EARLY && !self.late_syncs.iter().any(|s| s.1 == ticket) {
            self.late_syncs.push((from, ticket, lsn, fid));
        }
    }
}
