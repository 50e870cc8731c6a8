//! A new primary brings all bricks of its view to one history before it serves.
//!
//! The journals of the bricks in sync differ only at their ends: each is the beginning of the longest one. A change that
//! one of them lacks was not acknowledged, so it may be kept or dropped; it is kept, because nobody has to leave then. The
//! new primary takes the longest history that all can be brought to, fetches what it lacks of it, and sends the others what
//! they lack. `docs/design/0009-completing-failover.md` has the whole protocol, and why it is right.

use crate::io::{ChangeBody, LogEntry, Message, Output};
use crate::limits::{ACK_TIMEOUT, RESEND, TAIL, TAIL_BYTES};
use crate::peer_state::PeerState;
use crate::replica::{Out, Replica, Role};
use crate::results::Outcome;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Lsn};
use wire::peer::Stamp;

/// Where a brick stands.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// The newest change in its journal.
    pub(crate) last: Stamp,
    /// It can send the changes after this one, with their data.
    pub(crate) kept: Lsn,
}

/// The end of another brick's journal on its way here. It is adopted when it is complete.
#[derive(Clone, Debug)]
pub(crate) struct Fetch<B> {
    from: BrickId,
    after: Stamp,
    upto: Stamp,
    entries: BTreeMap<Lsn, LogEntry<B>>,
}

impl<B> Fetch<B> {
    /// The newest change without a gap before it.
    fn reached(&self) -> Stamp {
        let next = |at: &Stamp| self.entries.get(&at.lsn.next()).map(|e| e.stamp.clone());
        core::iter::successors(Some(self.after.clone()), next).last().unwrap_or(self.after.clone())
    }

    fn is_complete(&self) -> bool {
        self.entries.len() as u64 == self.upto.lsn.0 - self.after.lsn.0
    }
}

impl<B: ChangeBody> Replica<B> {
    pub(crate) fn become_primary(&mut self, now: Duration, out: &mut Out<B>) {
        self.leave_lead(out);
        self.role = Role::Reconciling;
        self.role_since = now;
        for peer in self.others() {
            self.peers.insert(peer, PeerState { waits_since: Some(now), ..PeerState::default() });
            self.send(peer, Message::StateQuery, out);
        }
        self.reconcile(now, out);
    }

    /// A new primary asks. The answer waits until all that is ordered here is in the journal: it counts as acknowledged.
    pub(crate) fn on_state_query(&mut self, from: BrickId, out: &mut Out<B>) {
        if self.role != Role::Secondary || self.view.primary != Some(from) {
            return;
        }
        self.asked = true;
        if self.applied == self.last.lsn {
            let (last, durable, kept) = (self.last.clone(), self.durable, self.kept());
            self.send(from, Message::StateReport { last, durable, kept }, out);
        }
    }

    pub(crate) fn on_state_report(
        &mut self,
        now: Duration,
        from: BrickId,
        durable: Lsn,
        report: Report,
        out: &mut Out<B>,
    ) {
        if self.role == Role::Primary {
            return self.on_open_brick(now, from, out);
        }
        // A later one says nothing new: what the brick is sent after the first it acknowledges.
        if self.role != Role::Reconciling || self.reports.contains_key(&from) {
            return;
        }
        let Some(peer) = self.peers.get_mut(&from) else { return };
        peer.durable = durable;
        peer.waits_since = None;
        self.reports.insert(from, report);
        self.reconcile(now, out);
    }

    /// What there is to do now that something is known: fetch, send, serve, or leave bricks out.
    pub(crate) fn reconcile(&mut self, now: Duration, out: &mut Out<B>) {
        let known = self.others().iter().all(|b| self.reports.contains_key(b));
        if self.role != Role::Reconciling || !known || self.fetch.is_some() || self.applied != self.last.lsn {
            return;
        }
        let (holder, followers) = self.best_history();
        if followers != self.view.in_sync {
            // A brick that stays out has changes that no brick can send to the others, or lacks such changes. It heals.
            let primary = if followers.contains(&self.me) { self.me } else { holder };
            return self.propose(now, Some(primary), followers, "its journal ends elsewhere", out);
        }
        match self.reports.get(&holder).cloned() {
            Some(report) if report.last != self.last => self.begin_fetch(now, holder, report, out),
            _ => self.bring_up(now, out),
        }
    }

    /// The brick whose history most bricks can be brought to, and these bricks. This brick's own, if that is as good; the
    /// longest of several.
    fn best_history(&self) -> (BrickId, BTreeSet<BrickId>) {
        let mine = Report { last: self.last.clone(), kept: self.kept() };
        let all: Vec<(BrickId, &Report)> =
            core::iter::once((self.me, &mine)).chain(self.reports.iter().map(|(b, r)| (*b, r))).collect();
        all.iter()
            .filter(|(b, _)| !self.view.arbiters.contains(b))
            .map(|(b, r)| {
                let follows = |other: &&(BrickId, &Report)| self.can_follow(other.1, *b, r);
                (*b, r.last.clone(), all.iter().filter(follows).map(|(b, _)| *b).collect::<BTreeSet<_>>())
            })
            .max_by_key(|(b, last, followers)| (followers.len(), *b == self.me, last.epoch, last.lsn))
            .map_or((self.me, BTreeSet::from([self.me])), |(b, _, followers)| (b, followers))
    }

    /// Whether a brick that stands at `report` can be brought to where `holder` stands, with what that one has kept and
    /// what this one has.
    fn can_follow(&self, report: &Report, holder: BrickId, there: &Report) -> bool {
        let (last, upto) = (&report.last, &there.last);
        if last == upto {
            return true;
        }
        let sendable = there.kept <= last.lsn || (there.kept <= self.last.lsn && self.kept() <= last.lsn);
        let is_beginning = last.lsn < upto.lsn && last.epoch <= upto.epoch;
        let is_ours = holder != self.me || self.holds(last);
        sendable && is_beginning && is_ours && upto.lsn.0 - last.lsn.0 <= TAIL as u64
    }

    fn begin_fetch(&mut self, now: Duration, from: BrickId, report: Report, out: &mut Out<B>) {
        let shortest = self.reports.values().map(|r| &r.last).chain([&self.last]).min_by_key(|s| s.lsn);
        let shortest = shortest.cloned().unwrap_or(self.last.clone());
        // The others need from here what the shortest lacks, too.
        let after = if self.kept() <= shortest.lsn { self.last.clone() } else { shortest };
        self.fetch = Some(Fetch { from, after, upto: report.last, entries: BTreeMap::new() });
        self.ask_for_tail(now, out);
    }

    fn ask_for_tail(&mut self, now: Duration, out: &mut Out<B>) {
        let Some(fetch) = &self.fetch else { return };
        let (from, after) = (fetch.from, fetch.reached());
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.waits_since.get_or_insert(now);
            peer.resent = now;
        }
        self.send(from, Message::SendTail { after }, out);
    }

    /// The new primary lacks changes that this brick has.
    pub(crate) fn on_send_tail(&mut self, to: BrickId, after: &Stamp, out: &mut Out<B>) {
        let follows = self.role == Role::Secondary && self.view.primary == Some(to);
        if !follows || self.applied != self.last.lsn || !self.holds(after) || after.lsn < self.kept() {
            return;
        }
        for entry in self.window.iter().filter(|e| e.stamp.lsn > after.lsn) {
            let (epoch, commit, entry) = (self.view.epoch, self.commit, entry.clone());
            out.push(Output::Replicate { to, epoch, commit, entry });
        }
    }

    /// On the new primary: a change of the tail that it asked for.
    pub(crate) fn on_tail(&mut self, now: Duration, from: BrickId, entry: LogEntry<B>, out: &mut Out<B>) {
        let Some(fetch) = self.fetch.as_mut().filter(|f| f.from == from) else { return };
        let lsn = entry.stamp.lsn;
        if lsn <= fetch.after.lsn || lsn > fetch.upto.lsn || fetch.entries.contains_key(&lsn) {
            return;
        }
        fetch.entries.insert(lsn, entry);
        let complete = fetch.is_complete();
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.waits_since = (!complete).then_some(now);
            peer.resent = now;
        }
        if complete && let Some(fetch) = self.fetch.take() {
            self.adopt(now, fetch, out);
            self.reconcile(now, out);
        }
    }

    /// Takes over the tail: what is known here already to send it on, the rest into the journal. The changes keep their
    /// stamps, and their operations are known from now on.
    fn adopt(&mut self, now: Duration, fetch: Fetch<B>, out: &mut Out<B>) {
        let mut before = fetch.after.epoch;
        let fits = fetch.entries.values().all(|e| {
            let grows = e.stamp.epoch >= core::mem::replace(&mut before, e.stamp.epoch);
            grows && (e.stamp.lsn > self.last.lsn || self.holds(&e.stamp))
        });
        if !fits || fetch.entries.values().last().is_some_and(|e| e.stamp != fetch.upto) {
            return self.propose_removal(now, &[fetch.from], "its journal is not what it said", out);
        }
        let kept = self.kept();
        let (known, new): (Vec<_>, Vec<_>) =
            fetch.entries.into_values().partition(|e| e.stamp.lsn <= self.last.lsn);
        for entry in known.into_iter().rev().filter(|e| e.stamp.lsn <= kept) {
            self.window_bytes += entry.body.size();
            self.window.push_front(entry);
        }
        for entry in new {
            self.append(entry, out);
        }
    }

    /// Sends the others what they lack, and serves when nobody lacks anything. What this brick calls committed must be in its
    /// own journal too: another process of it would otherwise come back without changes that were answered.
    fn bring_up(&mut self, now: Duration, out: &mut Out<B>) {
        let behind: Vec<BrickId> =
            self.reports.iter().filter(|(_, r)| r.last != self.last).map(|(b, _)| *b).collect();
        for to in &behind {
            if self.peers.get(to).is_some_and(|p| p.waits_since.is_none()) {
                self.send_tail(now, *to, out);
            }
        }
        if behind.is_empty() && self.applied == self.last.lsn {
            self.begin_service(now, out);
        }
    }

    fn send_tail(&mut self, now: Duration, to: BrickId, out: &mut Out<B>) {
        let (Some(report), Some(peer)) = (self.reports.get(&to), self.peers.get_mut(&to)) else { return };
        peer.waits_since.get_or_insert(now);
        peer.resent = now;
        for entry in self.window.iter().filter(|e| e.stamp.lsn > report.last.lsn) {
            let (epoch, commit, entry) = (self.view.epoch, self.commit, entry.clone());
            out.push(Output::Replicate { to, epoch, commit, entry });
        }
    }

    /// On the new primary: a brick has taken over so much of the tail.
    pub(crate) fn on_tail_ack(&mut self, now: Duration, from: BrickId, lsn: Lsn, out: &mut Out<B>) {
        let at = self.stamp_at(lsn);
        let complete = lsn == self.last.lsn;
        let (Some(report), Some(peer)) = (self.reports.get_mut(&from), self.peers.get_mut(&from)) else {
            return;
        };
        // Only what was sent counts: before, the brick speaks of a journal that may be another one.
        if peer.waits_since.is_none() || lsn <= report.last.lsn {
            return;
        }
        peer.waits_since = (!complete).then_some(now);
        peer.resent = now;
        report.last = at;
        self.reconcile(now, out);
    }

    /// All stand where this brick stands: that is the history, and committed.
    fn begin_service(&mut self, now: Duration, out: &mut Out<B>) {
        self.role = Role::Primary;
        self.role_since = now;
        self.reports.clear();
        self.drop_window();
        let last = self.last.lsn;
        (self.commit, self.streamed_to, self.told) = (last, last, Lsn(0));
        self.base = self.last.clone();
        for peer in self.peers.values_mut() {
            peer.acked = last;
            peer.waits_since = None;
        }
        self.advance(now, out);
    }

    /// Repeats questions and changes, and proposes the removal of bricks that do not answer.
    pub(crate) fn tick_reconciling(&mut self, now: Duration, out: &mut Out<B>) {
        let waits = |d: Duration| move |p: &PeerState| p.waits_since.is_some_and(|s| now >= s + d);
        let which = |is: &dyn Fn(&PeerState) -> bool| -> Vec<BrickId> {
            self.peers.iter().filter(|(_, p)| is(p)).map(|(b, _)| *b).collect()
        };
        let mute = which(&waits(ACK_TIMEOUT));
        let slow = which(&|p: &PeerState| p.waits_since.is_some() && now >= p.resent + RESEND);
        if !mute.is_empty() {
            return self.propose_removal(now, &mute, "it does not say where it stands", out);
        }
        for peer in slow {
            self.resend_reconciling(now, peer, out);
        }
        self.reconcile(now, out);
    }

    /// What a brick may have missed of the reconciliation goes out again.
    pub(crate) fn resend_reconciling(&mut self, now: Duration, to: BrickId, out: &mut Out<B>) {
        if !self.reports.contains_key(&to) {
            self.send(to, Message::StateQuery, out);
        } else if self.fetch.as_ref().is_some_and(|f| f.from == to) {
            self.ask_for_tail(now, out);
        } else if self.peers.get(&to).is_some_and(|p| p.waits_since.is_some()) {
            self.send_tail(now, to, out);
        }
    }

    /// This brick can send the changes after this one, with their data. An arbiter was given none.
    pub(crate) fn kept(&self) -> Lsn {
        match self.window.front() {
            Some(first) if !self.view.arbiters.contains(&self.me) => Lsn(first.stamp.lsn.0 - 1),
            _ => self.last.lsn,
        }
    }

    /// The stamp at a position of this brick's journal.
    fn stamp_at(&self, lsn: Lsn) -> Stamp {
        let epoch = self.history.iter().find(|(_, end)| **end >= lsn).map(|(epoch, _)| *epoch);
        Stamp { epoch: epoch.filter(|_| lsn > Lsn(0)).unwrap_or_default(), lsn }
    }

    /// Whether this brick's journal has that change, and with it all before it.
    fn holds(&self, stamp: &Stamp) -> bool {
        stamp.lsn <= self.last.lsn && self.stamp_at(stamp.lsn) == *stamp
    }

    /// The next change of the journal, from whoever ordered it.
    pub(crate) fn append(&mut self, entry: LogEntry<B>, out: &mut Out<B>) {
        self.last = entry.stamp.clone();
        self.history.insert(entry.stamp.epoch, entry.stamp.lsn);
        let (lsn, result_fid, amount) = (entry.stamp.lsn, entry.result_fid, entry.body.amount());
        self.results.record(entry.op, Outcome { lsn, result_fid, amount });
        // A brick that heals is sent changes without their data, until it has healed.
        if self.role != Role::Healing || !self.uncertain {
            self.window_bytes += entry.body.size();
            self.window.push_back(entry.clone());
            while self.window.len() > TAIL || self.window_bytes > TAIL_BYTES {
                self.drop_first();
            }
        }
        out.push(Output::Apply(entry, None));
    }

    /// All in-sync bricks have everything up to there: nobody will need it from here.
    pub(crate) fn on_committed(&mut self, commit: Lsn) {
        self.commit = self.commit.max(commit.min(self.applied));
        while self.window.front().is_some_and(|e| e.stamp.lsn <= commit) {
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        if let Some(entry) = self.window.pop_front() {
            self.window_bytes -= entry.body.size();
        }
    }

    pub(crate) fn drop_window(&mut self) {
        self.window.clear();
        self.window_bytes = 0;
    }

    /// Without new changes the others would not learn what is committed, and keep it.
    pub(crate) fn send_commit(&mut self, out: &mut Out<B>) {
        if self.told < self.commit {
            self.told = self.commit;
            for to in self.peers.keys().copied() {
                self.send(to, Message::Committed { lsn: self.commit }, out);
            }
        }
    }
}
