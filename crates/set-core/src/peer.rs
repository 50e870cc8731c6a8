//! Messages between the bricks of the set.

use crate::brick::LocalBrick;
use crate::content::Content;
use crate::core::{Cx, SetCore};
use crate::healing::Healing;
use crate::io::{Output, ReplyTo};
use bytes::Bytes;
use ids::{BrickId, Epoch, Lsn, ServerId};
use replica::{Input, LogEntry, Message};
use wire::peer::{PeerBody, PeerMessage};

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A message from another brick of the set.
    pub(crate) fn on_peer(&mut self, cx: &mut Cx<'_, B, R>, m: PeerMessage, payload: Bytes) {
        if m.to != self.me || !self.settings.members.contains_key(&m.from) {
            tracing::debug!("set {}: message from brick {} to brick {} is not for here", m.set, m.from, m.to);
            return;
        }
        let (from, epoch, now) = (m.from, m.epoch, cx.at.now);
        self.failure_detector.heard(now, from);
        let message = match m.body {
            PeerBody::Replicate { .. } if self.has_missed_acceptance() => return,
            PeerBody::CatchUp { .. } if self.has_missed_acceptance() || !self.is_catching_up() => return,
            PeerBody::Replicate { stamp, commit, op, result_fid, change } => {
                let entry = LogEntry { stamp, op, result_fid, body: Content::new(change, payload) };
                return self.feed(cx, Input::Replicate { from, epoch, commit, entry });
            }
            PeerBody::CatchUp { stamp, op, result_fid, change } => {
                let entry = LogEntry { stamp, op, result_fid, body: Content::new(change, payload) };
                self.target.healing.iter_mut().for_each(|h: &mut Healing| h.hear(now));
                return self.feed(cx, Input::Replicate { from, epoch, commit: Lsn(0), entry });
            }
            PeerBody::Ack { lsn, durable, available } => Message::Ack { lsn, durable, available },
            PeerBody::Failed { lsn: _, errno } => Message::Failed { errno },
            PeerBody::Sync { ticket, lsn, fid } => Message::Sync { ticket, lsn, fid },
            PeerBody::Synced { ticket, errno } => Message::Synced { ticket, errno },
            PeerBody::StateQuery => Message::StateQuery,
            PeerBody::StateReport { last, durable, kept } => Message::StateReport { last, durable, kept },
            PeerBody::SendTail { after } => Message::SendTail { after },
            PeerBody::Committed { lsn } => Message::Committed { lsn },
            PeerBody::Healed { join_id, lsn } => Message::Healed { join_id, lsn },
            body => return self.on_heal_message(cx, from, epoch, body, &payload),
        };
        self.feed(cx, Input::Peer { from, epoch, message });
    }

    /// A message about healing.
    fn on_heal_message(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        from: BrickId,
        epoch: Epoch,
        body: PeerBody,
        payload: &[u8],
    ) {
        if epoch != self.replica.view().epoch {
            if matches!(body, PeerBody::JoinAccepted { .. }) {
                self.miss_acceptance();
            }
            return;
        }
        match body {
            PeerBody::Join { join_id, consistent_to, held, history } => {
                self.accept_join(cx, from, join_id, (consistent_to, held), &history);
            }
            PeerBody::AskObject { .. }
            | PeerBody::AskEntries { .. }
            | PeerBody::AskData { .. }
            | PeerBody::AskSums { .. } => self.on_question(cx, from, body),
            other => self.on_heal_answer(cx, from, other, payload),
        }
    }

    /// A connection to a server was made, or its port refuses connections.
    pub(crate) fn on_link(&mut self, cx: &mut Cx<'_, B, R>, server: ServerId, up: bool) {
        let there = |(brick, s): (&BrickId, &ServerId)| (*s == server).then_some(*brick);
        let bricks: alloc::vec::Vec<BrickId> = self.settings.members.iter().filter_map(there).collect();
        for brick in bricks {
            self.catch_ups.forget(brick);
            self.feed(cx, if up { Input::LinkUp(brick) } else { Input::LinkDead(brick) });
        }
    }

    pub(crate) fn send_message(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        epoch: Epoch,
        message: Message,
    ) {
        let body = match message {
            Message::Ack { lsn, durable, available } => PeerBody::Ack { lsn, durable, available },
            Message::Failed { errno } => PeerBody::Failed { lsn: self.last().lsn, errno },
            Message::Sync { ticket, lsn, fid } => PeerBody::Sync { ticket, lsn, fid },
            Message::Synced { ticket, errno } => PeerBody::Synced { ticket, errno },
            Message::StateQuery => PeerBody::StateQuery,
            Message::StateReport { last, durable, kept } => PeerBody::StateReport { last, durable, kept },
            Message::SendTail { after } => PeerBody::SendTail { after },
            Message::Committed { lsn } => PeerBody::Committed { lsn },
            Message::Healed { join_id, lsn } => PeerBody::Healed { join_id, lsn },
        };
        self.send(cx, to, epoch, body, Bytes::new());
    }

    pub(crate) fn replicate(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        epoch: Epoch,
        commit: Lsn,
        entry: LogEntry<Content>,
    ) {
        let is_arbiter = self.settings.view.arbiters.contains(&to);
        let payload = if is_arbiter { Bytes::new() } else { entry.body.payload };
        let change = (*entry.body.change).clone();
        let (stamp, op, result_fid) = (entry.stamp, entry.op, entry.result_fid);
        self.send(cx, to, epoch, PeerBody::Replicate { stamp, commit, op, result_fid, change }, payload);
    }

    pub(crate) fn send(
        &self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        epoch: Epoch,
        body: PeerBody,
        payload: Bytes,
    ) {
        let Some(server) = self.settings.members.get(&to).copied() else { return };
        let message = PeerMessage { set: self.set, from: self.me, to, epoch, body };
        cx.out.push(Output::Send { server, message, payload });
    }

    /// Sends a message in the present epoch.
    pub(crate) fn say(&self, cx: &mut Cx<'_, B, R>, to: BrickId, body: PeerBody, payload: Bytes) {
        self.send(cx, to, self.replica.view().epoch, body, payload);
    }
}
