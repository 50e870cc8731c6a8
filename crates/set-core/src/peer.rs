//! Messages between the bricks of the set.

use crate::brick::Brick;
use crate::content::Content;
use crate::core::{Cx, SetCore};
use crate::healing::Healing;
use crate::io::{Output, ReplyTo};
use bytes::Bytes;
use ids::{BrickId, Epoch, Lsn, ServerId};
use replica::{Entry, Input, Message};
use wire::peer::{PeerBody, PeerMessage};

impl<B: Brick, R: ReplyTo> SetCore<B, R> {
    /// A message from another brick of the set.
    pub(crate) fn on_peer(&mut self, cx: &mut Cx<'_, B, R>, m: PeerMessage, payload: Bytes) {
        if m.to != self.me || !self.settings.members.contains_key(&m.from) {
            tracing::debug!("set {}: message from brick {} to brick {} is not for here", m.set, m.from, m.to);
            return;
        }
        let (from, epoch, now) = (m.from, m.epoch, cx.at.now);
        self.silence.heard(now, from);
        let message = match m.body {
            PeerBody::Replicate { stamp, commit, op, about, change } => {
                let entry = Entry { stamp, op, about, body: Content::new(change, payload) };
                return self.feed(cx, Input::Replicate { from, epoch, commit, entry });
            }
            PeerBody::Missed { stamp, op, about, change } => {
                let entry = Entry { stamp, op, about, body: Content::new(change, payload) };
                self.target.healing.iter_mut().for_each(|h: &mut Healing| h.hear(now));
                return self.feed(cx, Input::Replicate { from, epoch, commit: Lsn(0), entry });
            }
            PeerBody::Ack { lsn, durable, available } => Message::Ack { lsn, durable, available },
            PeerBody::Failed { lsn: _, errno } => Message::Failed { errno },
            PeerBody::Sync { ticket, lsn, fid } => Message::Sync { ticket, lsn, fid },
            PeerBody::Synced { ticket, errno } => Message::Synced { ticket, errno },
            PeerBody::WhereAreYou => Message::WhereAreYou,
            PeerBody::HereIAm { last, durable, kept } => Message::HereIAm { last, durable, kept },
            PeerBody::SendTail { after } => Message::SendTail { after },
            PeerBody::Committed { lsn } => Message::Committed { lsn },
            PeerBody::Healed { number, lsn } => Message::Healed { number, lsn },
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
            return;
        }
        match body {
            PeerBody::Join { number, sure, held, history } => {
                self.welcome(cx, from, number, (sure, held), &history);
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
            Message::WhereAreYou => PeerBody::WhereAreYou,
            Message::HereIAm { last, durable, kept } => PeerBody::HereIAm { last, durable, kept },
            Message::SendTail { after } => PeerBody::SendTail { after },
            Message::Committed { lsn } => PeerBody::Committed { lsn },
            Message::Healed { number, lsn } => PeerBody::Healed { number, lsn },
        };
        self.send(cx, to, epoch, body, Bytes::new());
    }

    pub(crate) fn replicate(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        epoch: Epoch,
        commit: Lsn,
        entry: Entry<Content>,
    ) {
        let is_arbiter = self.settings.view.arbiters.contains(&to);
        let payload = if is_arbiter { Bytes::new() } else { entry.body.payload };
        let change = (*entry.body.change).clone();
        let (stamp, op, about) = (entry.stamp, entry.op, entry.about);
        self.send(cx, to, epoch, PeerBody::Replicate { stamp, commit, op, about, change }, payload);
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
