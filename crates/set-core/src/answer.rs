//! Answers: completed from the state of the brick, and sent when the replication core has committed that state.

use crate::brick::LocalBrick;
use crate::core::{Cx, Next, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::waiters::{Address, AfterReply, ReplyShape, Waiter};
use alloc::vec::Vec;
use bytes::Bytes;
use ids::Fid;
use replica::{Input, SyncToken, Ticket};
use wire::{Attr, Body, Change, Errno, Fail, Op, Reply, Wire};

/// What a request that changes nothing is answered, before the core lets it go.
pub(crate) type Answer = Result<(Body, Bytes), Errno>;

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// An answer that may leave now.
    pub(crate) fn complete(&mut self, cx: &mut Cx<'_, B, R>, ticket: Ticket) {
        let Some(waiter) = self.waiters.take(ticket) else { return };
        if let AfterReply::EndFile { tx } = waiter.after {
            return self.on_joint_committed(cx, tx, waiter);
        }
        waiter.to.reply(waiter.reply, waiter.payload, cx.out);
        match waiter.after {
            AfterReply::Nothing | AfterReply::EndFile { .. } => {}
            AfterReply::EndTransaction { home, fid, tx, keep, lock, of } => {
                self.ask(
                    cx,
                    Asking::TransactionEnded(home, fid, of),
                    home,
                    Op::EndTransaction { fid, tx: Some(tx), keep },
                    None,
                );
                if let Some(lock) = lock {
                    self.unlock(cx, lock);
                }
            }
            AfterReply::Unlock(lock) => self.unlock(cx, lock),
        }
    }

    /// An answer that may show anything of the set's present state.
    pub(crate) fn reply_when_all_committed(&mut self, cx: &mut Cx<'_, B, R>, waiter: Waiter<R>) {
        if let Reply(Err(Fail::Errno { errno })) = &waiter.reply
            && self.gives_way(cx, Errno(*errno))
        {
            return waiter.refuse(Fail::Busy, cx.out);
        }
        let ticket = self.waiters.issue(waiter);
        let lsn = self.last().lsn;
        self.next.push_back(Next::Feed(Input::Await { ticket, lsn }));
    }

    /// An answer that shows these objects.
    pub(crate) fn reply_when_committed(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: Address<R>,
        objects: Vec<Fid>,
        answer: Answer,
    ) {
        if let Err(e) = answer
            && self.gives_way(cx, e)
        {
            return self.refuse(cx, to, Fail::Busy);
        }
        let (reply, payload) = match answer {
            Ok((body, payload)) => (Reply(Ok(body)), payload),
            Err(e) => (Reply::errno(e.0), Bytes::new()),
        };
        let ticket = self.waiters.issue(Waiter::with(to, reply, payload));
        self.next.push_back(Next::Feed(Input::ReadReply { ticket, objects }));
    }

    /// The brick's file system fails, and others hold the data: this brick leaves the set, and the client asks another one.
    fn gives_way(&mut self, cx: &mut Cx<'_, B, R>, error: Errno) -> bool {
        let gives_way = matches!(error, Errno::EIO | Errno::ESHUTDOWN) && self.is_accompanied();
        if gives_way {
            tracing::warn!("{}: brick {} cannot answer and leaves: {error}", self.settings.name, self.me);
            self.feed(cx, Input::Synced { token: SyncToken::Local(0), errno: error.0 });
        }
        gives_way
    }

    /// Completes a waiter's answer from the state after its change.
    pub(crate) fn complete_answer(&mut self, ticket: Ticket, result_fid: Option<Fid>) {
        let Some(shape) = self.waiters.get_mut(ticket).map(|w| w.shape) else { return };
        let result = match shape {
            ReplyShape::Given => return,
            ReplyShape::Done => Ok(Body::Done),
            ReplyShape::Attr => match self.attr_of_result(result_fid) {
                Ok(attr) => Ok(Body::Attr { attr }),
                Err(fail) => self.made_elsewhere(result_fid).ok_or(fail),
            },
            ReplyShape::AttrAndOpen(session) => self.attr_of_result(result_fid).map(|attr| {
                self.opens.add(session, attr.fid);
                Body::Attr { attr }
            }),
            ReplyShape::Written(len) => {
                self.attr_of_result(result_fid).map(|attr| Body::Written { len, attr })
            }
            ReplyShape::Offset(offset) => Ok(Body::Offset { offset }),
        };
        if let Some(waiter) = self.waiters.get_mut(ticket) {
            waiter.reply = Reply(result);
        }
    }

    fn attr_of_result(&mut self, result_fid: Option<Fid>) -> Result<Attr, Fail> {
        self.brick.attr(result_fid.ok_or(Errno::EIO)?).map_err(Fail::from)
    }

    /// The answer about what lives on another set: a directory that an earlier primary has made, or a stub that was marked.
    fn made_elsewhere(&mut self, result_fid: Option<Fid>) -> Option<Body> {
        let copy = self.brick.attr_of_any(result_fid?).ok().filter(|copy| copy.home != self.set)?;
        Some(Body::Elsewhere { fid: copy.fid, home: copy.home, kind: copy.mode & 0o170_000 })
    }

    /// Gives the answer to a change the attributes of the directories that it touched, for whoever may keep them.
    pub(crate) fn add_directories(&mut self, ticket: Ticket, change: &Change) {
        let mut dirs: Vec<Fid> = match change {
            Change::Create { parent, .. }
            | Change::Unlink { parent, .. }
            | Change::Rmdir { parent, .. }
            | Change::Link { parent, .. }
            | Change::Enter { parent, .. }
            | Change::Swap { parent, .. } => [*parent].into(),
            Change::Rename { parent, to_parent, .. } | Change::Exchange { parent, to_parent, .. } => {
                [*parent, *to_parent].into()
            }
            _ => return,
        };
        if !self.waiters.get_mut(ticket).is_some_and(|w| w.to.is_granted()) {
            return;
        }
        dirs.dedup();
        dirs.retain(|dir| !dir.is_names());
        dirs.extend(self.renamed_directories(change).iter().map(|entry| entry.fid));
        let attrs: Vec<Attr> = dirs.iter().filter_map(|d| self.brick.attr(*d).ok()).collect();
        if let Some(waiter) = self.waiters.get_mut(ticket) {
            waiter.payload = attrs.to_bytes().into();
        }
    }
}
