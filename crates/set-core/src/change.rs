//! Requests that change something: decided by the rules against the brick's present state, then ordered.

use crate::brick::LocalBrick;
use crate::content::Content;
use crate::core::{Cx, SetCore};
use crate::io::ReplyTo;
use crate::request::AdmittedRequest;
use crate::waiters::{AfterReply, ReplyShape, Waiter};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, OpId, SetId};
use namespace::{Context, Decision, decide};
use replica::Input;
use wire::op::Node;
use wire::{Change, Errno, Fail, Op, Reply};

/// What comes with a request that changes something.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    /// The request's name.
    pub(crate) id: OpId,
    pub(crate) payload: &'a [u8],
    /// The set that has agreed, and the directory there.
    pub(crate) placed: Option<(SetId, Fid)>,
    /// What other sets have said lies above their directories.
    pub(crate) above: Option<&'a BTreeMap<Fid, Vec<Fid>>>,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    pub(crate) fn serve_change(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        if self.settings.read_only && !matches!(request.op, Op::EndTransaction { .. }) {
            return self.refuse(cx, request.to, Errno::EROFS.into());
        }
        // The entry of a directory that lives elsewhere takes little room: a set that is full for all else has it.
        if let Op::Create { parent, node: Node::Dir, .. } = &request.op
            && self.has_room(self.min_free / 2)
            && let Some(home) = self.choose_home(cx, *parent)
        {
            return self.make_elsewhere(cx, request.id, request.op, home, request.to);
        }
        self.change_here(cx, request);
    }

    /// Whether more than this is free on all bricks in sync.
    fn has_room(&mut self, kept: u64) -> bool {
        self.replica.available().min(self.available()) > kept
    }

    /// A change that begins with this set.
    pub(crate) fn change_here(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        let AdmittedRequest { id, op, payload, to, session } = request;
        if needs_room(&op) && !self.has_room(self.min_free) {
            return self.refuse(cx, to, Errno::ENOSPC.into());
        }
        let shape = ReplyShape::of(&op, session, &payload);
        let ask = Ask { id, payload: &payload, ..Ask::default() };
        let decision = self.decide(cx, &op, ask).and_then(|decision| {
            if let Decision::Change(change, _) = &decision {
                self.brick.validate(change)?;
            }
            Ok(decision)
        });
        match decision {
            Ok(Decision::RemoveElsewhere(entry)) => self.remove_elsewhere(cx, id, op, entry, to),
            Ok(Decision::AskAbove(..)) => self.move_across(cx, id, op, to),
            decision => self.carry_out(cx, id, decision, payload, Waiter { shape, ..Waiter::done(to) }),
        }
    }

    /// Decides an operation against the brick's present state.
    pub(crate) fn decide(&mut self, cx: &Cx<'_, B, R>, op: &Op, ask: Ask<'_>) -> Result<Decision, Errno> {
        let next = self.replica.next();
        let (opens, pending, nothing) = (&self.opens, &self.pending, BTreeMap::new());
        let now = cx.at.now;
        let context = Context {
            set: self.set,
            epoch: next.epoch,
            lsn: next.lsn,
            now: cx.at.wall,
            placed: ask.placed,
            payload: ask.payload,
            is_open: &|fid| opens.may_be_open(now, fid),
            op: ask.id,
            holder: &|fid| pending.holder(fid),
            above: ask.above.unwrap_or(&nothing),
        };
        let decision = decide(op, &mut self.brick, &context);
        if decision == Err(Errno::EAGAIN) || matches!(op, Op::EndTransaction { .. }) {
            self.find_mark(cx, op);
        }
        decision
    }

    /// A directory that is marked may be one whose record is no longer in the journal.
    fn find_mark(&mut self, cx: &Cx<'_, B, R>, op: &Op) {
        let dir = match op {
            Op::Create { parent, .. } | Op::Link { parent, .. } => *parent,
            Op::Rename { to_parent, .. } => *to_parent,
            Op::PrepareRmdir { fid, .. } | Op::EndTransaction { fid, .. } => *fid,
            _ => return,
        };
        if self.brick.is_pending(dir) == Ok(true) {
            self.pending.found(cx.at.now, dir);
        }
    }

    /// Does what was decided; the waiter's answer is completed from the state after the change.
    pub(crate) fn carry_out(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        id: OpId,
        decision: Result<Decision, Errno>,
        payload: Bytes,
        mut waiter: Waiter<R>,
    ) {
        match decision {
            Ok(Decision::Change(change, result_fid)) => {
                if let Change::CopyRange { len, .. } = &change {
                    waiter.shape = ReplyShape::Offset(*len);
                }
                let keep = matches!(change, Change::Write { .. });
                let body = Content::new(change, if keep { payload } else { Bytes::new() });
                self.order(cx, id, result_fid, body, waiter);
            }
            Ok(Decision::Answer(body)) => {
                self.reply_when_all_committed(cx, Waiter { reply: Reply(Ok(body)), ..waiter })
            }
            Ok(Decision::RemoveElsewhere(_) | Decision::AskAbove(..)) | Err(Errno::EAGAIN) => {
                waiter.refuse(Fail::Busy, cx.out);
            }
            Err(e) => {
                let after = AfterReply::Nothing;
                self.reply_when_all_committed(cx, Waiter { reply: Reply::errno(e.0), after, ..waiter });
            }
        }
    }

    /// Gives a change its place in the order.
    pub(crate) fn order(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        op: OpId,
        result_fid: Option<Fid>,
        body: Content,
        waiter: Waiter<R>,
    ) {
        assert!(self.next.is_empty(), "a change is decided against a brick that has all changes before it");
        let ticket = self.waiters.issue(waiter);
        self.feed(cx, Input::Decided { ticket, op, result_fid, body });
    }

    /// Orders a change of the core's own.
    pub(crate) fn order_own(&mut self, cx: &mut Cx<'_, B, R>, change: Change) {
        let body = Content::new(change, Bytes::new());
        self.order(cx, OpId::default(), None, body, Waiter::nobody());
    }
}

fn needs_room(op: &Op) -> bool {
    matches!(
        op,
        Op::Create { .. }
            | Op::Write { .. }
            | Op::Link { .. }
            | Op::SetXattr { .. }
            | Op::Fallocate { .. }
            | Op::CopyRange { .. }
            | Op::PrepareMkdir { .. }
    )
}
