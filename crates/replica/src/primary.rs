//! The primary's part: order, send, wait for all, answer.

use crate::io::{ChangeBody, LogEntry, Message, Output, SyncToken, Ticket};
use crate::join::ADMISSION;
use crate::limits::{ACK_TIMEOUT, RESEND, SYNC_RESEND};
use crate::replica::{Out, Replica, Role};
use crate::results::Outcome;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Fid, Lsn, OpId};

/// A sync on its way.
#[derive(Clone, Debug)]
pub(crate) struct Syncing {
    /// It covers all changes up to here, so they must be committed as well.
    pub(crate) lsn: Lsn,
    pub(crate) fid: Option<Fid>,
    pub(crate) missing: BTreeSet<BrickId>,
    /// When it was last asked for.
    pub(crate) asked: Duration,
}

impl<B: ChangeBody> Replica<B> {
    pub(crate) fn others(&self) -> Vec<BrickId> {
        self.view.in_sync.iter().copied().filter(|b| *b != self.me).collect()
    }

    /// A new view in which this brick goes on as primary: fewer or more bricks to wait for.
    pub(crate) fn stay_primary(&mut self, now: Duration, out: &mut Out<B>) {
        let others = self.others();
        self.peers.retain(|b, _| others.contains(b));
        for peer in others {
            // A brick that comes in was among `pending_adds`: it is a peer already, and answers have waited for it.
            self.joiners.remove(&peer);
            self.peers.entry(peer).or_default();
            self.resend(now, peer, out);
        }
        let in_sync = self.view.in_sync.clone();
        for sync in self.syncs.values_mut() {
            sync.missing.retain(|b| in_sync.contains(b));
        }
        self.find_complete_syncs();
        self.advance(now, out);
    }

    pub(crate) fn on_decided(
        &mut self,
        now: Duration,
        ticket: Ticket,
        op: OpId,
        result_fid: Option<Fid>,
        body: B,
        out: &mut Out<B>,
    ) {
        if self.role != Role::Primary {
            out.push(Output::Redirect(ticket));
            return;
        }
        let entry = LogEntry { stamp: self.next(), op, result_fid, body };
        assert!(entry.stamp.epoch >= self.last.epoch, "epochs grow along the journal");
        self.last = entry.stamp.clone();
        let lsn = entry.stamp.lsn;
        self.history.insert(entry.stamp.epoch, lsn);
        self.results.record(op, Outcome { lsn, result_fid, amount: entry.body.amount() });
        for fid in entry.body.touched() {
            self.pending.insert(fid, lsn);
        }
        self.window_bytes += entry.body.size();
        self.window.push_back(entry.clone());
        self.waiting.entry(lsn).or_default().push(ticket);
        for peer in self.peers.values_mut() {
            peer.waits_since.get_or_insert(now);
        }
        self.told = self.commit;
        for to in self.others() {
            out.push(Output::Replicate {
                to,
                epoch: self.view.epoch,
                commit: self.commit,
                entry: entry.clone(),
            });
        }
        self.feed_joiners(lsn, out);
        out.push(Output::Apply(entry, Some(ticket)));
    }

    pub(crate) fn on_ack(
        &mut self,
        now: Duration,
        from: BrickId,
        lsn: Lsn,
        durable: Lsn,
        available: u64,
        out: &mut Out<B>,
    ) {
        let last = self.last.lsn;
        if !self.leads() || lsn > last {
            return;
        }
        if let Some(joiner) = self.joiners.get_mut(&from) {
            joiner.acked = joiner.acked.max(lsn);
            joiner.durable = joiner.durable.max(durable);
            joiner.set_room(now, available);
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.durable = peer.durable.max(durable);
        peer.set_room(now, available);
        if self.role == Role::Reconciling {
            return self.on_tail_ack(now, from, lsn, out);
        }
        if lsn > peer.acked {
            peer.acked = lsn;
            peer.waits_since = (lsn < last).then_some(now);
            self.advance(now, out);
        }
    }

    /// Moves the commit position to what every in-sync brick has, and lets go what waited for it.
    pub(crate) fn advance(&mut self, now: Duration, out: &mut Out<B>) {
        if self.role != Role::Primary {
            return;
        }
        let all = self.peers.values().map(|p| p.acked).fold(self.applied, Lsn::min);
        while let Some(entry) = self.window.front()
            && entry.stamp.lsn <= all
        {
            let lsn = entry.stamp.lsn;
            for fid in entry.body.touched() {
                if self.pending.get(&fid).is_some_and(|l| *l <= lsn) {
                    self.pending.remove(&fid);
                }
            }
            self.window_bytes -= entry.body.size();
            self.commit = lsn;
            self.base = entry.stamp.clone();
            self.window.pop_front();
            for ticket in self.waiting.remove(&lsn).unwrap_or_default() {
                self.release(now, ticket, out);
            }
        }
        self.finish_syncs(now, out);
    }

    pub(crate) fn on_own_failure(&mut self, now: Duration, lsn: Lsn, errno: i32, out: &mut Out<B>) {
        if lsn == self.last.lsn && (self.peers.is_empty() || self.alone_has(lsn)) {
            // Alone: the change never was. With peers it may live on there, so this brick has to leave.
            self.withdraw_last(lsn);
            // A sync asked for meanwhile covers what is left.
            let last = self.last.lsn;
            self.syncs.values_mut().for_each(|s| s.lsn = s.lsn.min(last));
            self.find_complete_syncs();
            for peer in self.peers.values_mut().filter(|p| p.acked >= last) {
                peer.waits_since = None;
            }
            self.fail_waiting(lsn, errno, out);
            self.finish_syncs(now, out);
            return;
        }
        self.propose_removal(now, &[self.me], "it could not apply a change", out);
        self.fail(out);
    }

    /// Whether this brick is the only one that has, and ever had, the change of that position: no other brick is in sync,
    /// and joining bricks are sent only what is applied here.
    pub fn alone_has(&self, lsn: Lsn) -> bool {
        self.role == Role::Primary
            && self.others().is_empty()
            && self.streamed_to < lsn
            && lsn == self.last.lsn
    }

    /// The change was done only in part, and nobody else has it: what is here of its objects is the set's content, and the
    /// change that says so is the one that all others get. The operation failed.
    pub(crate) fn on_part(&mut self, now: Duration, lsn: Lsn, errno: i32, body: B, out: &mut Out<B>) {
        if !self.alone_has(lsn) {
            // Others took part meanwhile: they may have the change itself under this stamp.
            return self.on_broken(now, out);
        }
        let Some(entry) = self.window.back_mut() else { return };
        assert!(entry.stamp.lsn == lsn, "only the newest change gives way");
        self.results.withdraw(entry.op, lsn);
        self.window_bytes -= entry.body.size();
        self.window_bytes += body.size();
        (entry.op, entry.result_fid, entry.body) = (OpId::default(), None, body);
        self.fail_waiting(lsn, errno, out);
        self.on_applied(now, lsn, out);
    }

    /// The first waiting request asked for the change. The others only read its result; their clients ask again.
    fn fail_waiting(&mut self, lsn: Lsn, errno: i32, out: &mut Out<B>) {
        let mut tickets = self.waiting.remove(&lsn).unwrap_or_default().into_iter();
        out.extend(tickets.next().map(|t| Output::Fail(t, errno)));
        out.extend(tickets.map(Output::Redirect));
    }

    fn withdraw_last(&mut self, lsn: Lsn) {
        let Some(entry) = self.window.pop_back() else { return };
        assert!(entry.stamp.lsn == lsn, "only the newest change is withdrawn");
        self.window_bytes -= entry.body.size();
        self.results.withdraw(entry.op, lsn);
        for fid in entry.body.touched() {
            let before = self.window.iter().rev().find(|e| e.body.touched().contains(&fid));
            match before {
                Some(e) => self.pending.insert(fid, e.stamp.lsn),
                None => self.pending.remove(&fid),
            };
        }
        self.last = self.window.back().map_or_else(|| self.base.clone(), |e| e.stamp.clone());
        self.history.retain(|_, end| *end < lsn);
        if self.last.lsn > Lsn(0) {
            self.history.insert(self.last.epoch, self.last.lsn);
        }
        if self.streamed_to >= lsn {
            // The change was ordered in an older epoch, while other bricks were in sync: its client sends the request
            // again.
            self.streamed_to = self.last.lsn;
            self.joiners.clear();
        }
    }

    pub(crate) fn on_sync(&mut self, now: Duration, ticket: Ticket, fid: Option<Fid>, out: &mut Out<B>) {
        if self.role != Role::Primary {
            out.push(Output::Redirect(ticket));
            return;
        }
        let lsn = self.last.lsn;
        let mut missing: BTreeSet<BrickId> = self.peers.keys().copied().collect();
        for to in missing.iter().copied() {
            self.send(to, Message::Sync { ticket, lsn, fid }, out);
        }
        missing.insert(self.me);
        self.syncs.insert(ticket, Syncing { lsn, fid, missing, asked: now });
        out.push(Output::Sync { token: SyncToken::Local(ticket), fid });
    }

    pub(crate) fn on_sync_part(
        &mut self,
        now: Duration,
        from: BrickId,
        ticket: Ticket,
        errno: i32,
        out: &mut Out<B>,
    ) {
        if ticket & ADMISSION != 0 {
            return match errno {
                0 => self.on_admission(now, from, ticket, out),
                _ => self.drop_joiner(now, from, out),
            };
        }
        let Some(sync) = self.syncs.get_mut(&ticket) else { return };
        if errno != 0 {
            if !self.view.in_sync.contains(&from) {
                return self.drop_joiner(now, from, out);
            }
            // The kernel has dropped the pages it could not write: that brick's content is unknown now.
            if self.view.in_sync.len() > 1 {
                self.propose_removal(now, &[from], "its file system could not sync", out);
            } else {
                self.syncs.remove(&ticket);
                out.push(Output::Fail(ticket, errno));
            }
            return;
        }
        sync.missing.remove(&from);
        if sync.missing.is_empty() {
            self.synced.insert((sync.lsn, ticket));
        }
        self.finish_syncs(now, out);
    }

    /// A sync that is on the disks of all is answered when what it covers is committed. To be called when fewer bricks are
    /// waited for.
    pub(crate) fn find_complete_syncs(&mut self) {
        let complete = |(ticket, sync): (&Ticket, &Syncing)| (sync.lsn, *ticket);
        self.synced = self.syncs.iter().filter(|(_, s)| s.missing.is_empty()).map(complete).collect();
    }

    fn finish_syncs(&mut self, now: Duration, out: &mut Out<B>) {
        while let Some((lsn, ticket)) = self.synced.first().copied()
            && lsn <= self.commit
        {
            self.synced.pop_first();
            if self.syncs.remove(&ticket).is_some() {
                self.release(now, ticket, out);
            }
        }
    }

    /// Sends a peer again what it has not acknowledged.
    pub(crate) fn resend(&mut self, now: Duration, to: BrickId, out: &mut Out<B>) {
        if !self.leads() || !self.peers.contains_key(&to) {
            return;
        }
        if self.role == Role::Reconciling {
            return self.resend_reconciling(now, to, out);
        }
        let Some(peer) = self.peers.get_mut(&to) else { return };
        peer.resent = now;
        let acked = peer.acked;
        for entry in self.window.iter().filter(|e| e.stamp.lsn > acked) {
            let entry = entry.clone();
            out.push(Output::Replicate { to, epoch: self.view.epoch, commit: self.commit, entry });
        }
        for (ticket, sync) in &self.syncs {
            if sync.missing.contains(&to) {
                self.send(to, Message::Sync { ticket: *ticket, lsn: sync.lsn, fid: sync.fid }, out);
            }
        }
    }

    /// The answer may be lost on a connection that this brick does not see break.
    fn ask_again_for_syncs(&mut self, now: Duration, out: &mut Out<B>) {
        for (ticket, sync) in self.syncs.iter_mut().filter(|(_, s)| now >= s.asked + SYNC_RESEND) {
            sync.asked = now;
            for to in sync.missing.iter().copied().filter(|b| *b != self.me) {
                let message = Message::Sync { ticket: *ticket, lsn: sync.lsn, fid: sync.fid };
                out.push(Output::Send { to, epoch: self.view.epoch, message });
            }
        }
    }

    /// Proposes the view without bricks that seem to be away. If there is no quorum without them, then either they are away
    /// or this server is cut off, and only a server that is surely not cut off says so.
    pub(crate) fn leave_out(
        &mut self,
        now: Duration,
        away: &[BrickId],
        reason: &'static str,
        out: &mut Out<B>,
    ) {
        let left = self.view.in_sync.iter().filter(|b| !away.contains(b)).count();
        if left >= self.view.quorum || !self.view.has_quorum() || self.is_connected(now) {
            self.propose_removal(now, away, reason, out);
        }
    }

    pub(crate) fn on_tick(&mut self, now: Duration, out: &mut Out<B>) {
        match self.role {
            Role::Reconciling => self.tick_reconciling(now, out),
            Role::Primary => {
                self.peers.values_mut().for_each(|peer| peer.forget_old_room(now));
                let waits = |s: &Option<Duration>, d: Duration| s.is_some_and(|s| now >= s + d);
                let silent: Vec<BrickId> = self
                    .peers
                    .iter()
                    .filter(|(_, p)| waits(&p.waits_since, ACK_TIMEOUT))
                    .map(|(b, _)| *b)
                    .collect();
                let (removed, joining): (Vec<BrickId>, Vec<BrickId>) =
                    silent.into_iter().partition(|b| self.view.in_sync.contains(b));
                for brick in joining {
                    self.drop_joiner(now, brick, out);
                }
                if !removed.is_empty() {
                    self.leave_out(now, &removed, "it does not acknowledge changes", out);
                }
                let slow: Vec<BrickId> = self
                    .peers
                    .iter()
                    .filter(|(_, p)| waits(&p.waits_since, RESEND) && now >= p.resent + RESEND)
                    .map(|(b, _)| *b)
                    .collect();
                for peer in slow {
                    self.resend(now, peer, out);
                }
                self.ask_again_for_syncs(now, out);
                self.send_commit(out);
                self.bump_epoch(now, out);
                self.look_for_successor(out);
            }
            Role::Healing => self.send_healed_again(now, out),
            Role::Idle => self.seek_view(now, out),
            Role::Secondary => self.offer_to_lead(now, out),
            Role::Failed => {}
        }
    }
}
