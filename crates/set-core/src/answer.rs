//! Answers: completed from the state they show, and let go by the replication core.

use crate::brick::Brick;
use crate::core::{Cx, Next, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::waiters::{Address, AfterReply, Shape, Waiter};
use alloc::vec::Vec;
use bytes::Bytes;
use ids::Fid;
use replica::{Input, SyncToken, Ticket};
use wire::{Attr, Body, Change, Errno, Fail, Op, Reply, Wire};

/// What a request that changes nothing is answered, before the core lets it go.
pub(crate) type Answer = Result<(Body, Bytes), Errno>;

impl<B: Brick, R: ReplyTo> SetCore<B, R> {
    /// An answer that may leave now.
    pub(crate) fn release(&mut self, cx: &mut Cx<'_, B, R>, ticket: Ticket) {
        let Some(waiter) = self.waiters.take(ticket) else { return };
        waiter.to.reply(waiter.reply, waiter.payload, cx.out);
        match waiter.after {
            AfterReply::Nothing => {}
            AfterReply::Settle { home, fid, tx, keep } => {
                self.ask(cx, Asking::Settled(home, fid), home, Op::Settle { fid, tx: Some(tx), keep }, None);
            }
            AfterReply::Unlock { root, tx } => self.unlock(cx, root, tx),
        }
    }

    /// An answer that may show anything of the set's present state.
    pub(crate) fn show_all(&mut self, cx: &mut Cx<'_, B, R>, waiter: Waiter<R>) {
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
    pub(crate) fn show(&mut self, cx: &mut Cx<'_, B, R>, to: Address<R>, objects: Vec<Fid>, answer: Answer) {
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
        self.next.push_back(Next::Feed(Input::Shown { ticket, objects }));
    }

    /// The brick's file system fails, and others hold the data: this brick leaves the set, and the client asks another one.
    fn gives_way(&mut self, cx: &mut Cx<'_, B, R>, error: Errno) -> bool {
        let gives_way = matches!(error, Errno::EIO | Errno::ESHUTDOWN) && self.is_accompanied();
        if gives_way {
            tracing::warn!("set {}: brick {} cannot answer and leaves: {error}", self.set, self.me);
            self.feed(cx, Input::Synced { token: SyncToken::Local(0), errno: error.0 });
        }
        gives_way
    }

    /// Completes a waiter's answer from the state after its change.
    pub(crate) fn complete_answer(&mut self, ticket: Ticket, about: Option<Fid>) {
        let Some(shape) = self.waiters.get_mut(ticket).map(|w| w.shape) else { return };
        let result = match shape {
            Shape::Given => return,
            Shape::Done => Ok(Body::Done),
            Shape::Attr => match self.attr_about(about) {
                Ok(attr) => Ok(Body::Attr { attr }),
                Err(fail) => self.made_elsewhere(about).ok_or(fail),
            },
            Shape::AttrAndOpen(session) => self.attr_about(about).map(|attr| {
                self.opens.add(session, attr.fid);
                Body::Attr { attr }
            }),
            Shape::Written(len) => self.attr_about(about).map(|attr| Body::Written { len, attr }),
            Shape::Offset(offset) => Ok(Body::Offset { offset }),
        };
        if let Some(waiter) = self.waiters.get_mut(ticket) {
            waiter.reply = Reply(result);
        }
    }

    fn attr_about(&mut self, about: Option<Fid>) -> Result<Attr, Fail> {
        self.brick.attr(about.ok_or(Errno::EIO)?).map_err(Fail::from)
    }

    /// The answer to a request that an earlier primary has done, if the directory that it made lives on another set.
    fn made_elsewhere(&mut self, about: Option<Fid>) -> Option<Body> {
        let copy = self.brick.attr_of_any(about?).ok().filter(|copy| copy.home != self.set)?;
        Some(Body::Elsewhere { fid: copy.fid, home: copy.home, kind: copy.mode & 0o170_000 })
    }

    /// Gives the answer to a change the attributes of the directories that it touched, for whoever may keep them.
    pub(crate) fn add_directories(&mut self, ticket: Ticket, change: &Change) {
        let dirs: Vec<Fid> = match change {
            Change::Create { parent, .. }
            | Change::Unlink { parent, .. }
            | Change::Rmdir { parent, .. }
            | Change::Link { parent, .. } => [*parent].into(),
            Change::Rename { parent, to_parent, fid, .. } => [*parent, *to_parent, *fid].into(),
            Change::Exchange { parent, to_parent, fid, to_fid, .. } => {
                [*parent, *to_parent, *fid, *to_fid].into()
            }
            _ => return,
        };
        let Some(waiter) = self.waiters.get_mut(ticket).filter(|w| w.to.is_granted()) else { return };
        let attrs = dirs.iter().filter_map(|d| self.brick.attr(*d).ok()).filter(Attr::is_dir);
        waiter.payload = attrs.collect::<Vec<Attr>>().to_bytes().into();
    }
}
