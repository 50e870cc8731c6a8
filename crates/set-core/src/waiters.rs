//! Requests that wait, each with the answer that will be sent.

use crate::io::{Output, ReplyTo};
use crate::moves::Lock;
use crate::steps::TransactionKind;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, OpId, SessionId, SetId};
use wire::op::Node;
use wire::{Body, Fail, Op, Reply};

/// Where an answer goes, and for how long it may be kept there.
#[derive(Debug)]
pub(crate) struct Address<R> {
    to: Option<R>,
    /// In milliseconds; 0: not at all.
    pub(crate) grant: u16,
}

impl<R> Address<R> {
    /// Nobody waits.
    pub(crate) const NOBODY: Address<R> = Address { to: None, grant: 0 };

    pub(crate) fn of(to: R) -> Address<R> {
        Address { to: Some(to), grant: 0 }
    }

    /// Whether who asked asks on another connection by now.
    pub(crate) fn is_given_up(&self) -> bool
    where
        R: ReplyTo,
    {
        self.to.as_ref().is_some_and(ReplyTo::is_given_up)
    }

    /// Whether who asked may keep what it is told.
    pub(crate) fn is_granted(&self) -> bool {
        self.to.is_some() && self.grant > 0
    }

    pub(crate) fn reply<W>(self, reply: Reply, payload: Bytes, out: &mut Vec<Output<W, R>>) {
        if let Some(to) = self.to {
            out.push(Output::Reply { to, reply, payload, grant: self.grant });
        }
    }
}

/// What is done when an answer leaves (not when it is refused).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterReply {
    Nothing,
    /// The transaction has committed: it ends on the other set, and the lock under which that was decided is not needed.
    EndTransaction {
        home: SetId,
        fid: Fid,
        tx: OpId,
        keep: bool,
        lock: Option<Lock>,
        of: TransactionKind,
    },
    /// The entry of a transaction about a file is made or gone: it goes to disk first.
    EndFile {
        tx: OpId,
    },
    /// The lock on the tree's shape is not needed any more.
    Unlock(Lock),
}

/// What kind of answer a change's request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReplyShape {
    Done,
    Attr,
    /// Like `Attr`, and the session has the file open from now on.
    AttrAndOpen(SessionId),
    Written(u32),
    Offset(u64),
    /// The object lives on another set, and this is what that set said of it: nothing to look up.
    Given,
}

impl ReplyShape {
    pub(crate) fn of(op: &Op, session: SessionId, payload: &[u8]) -> ReplyShape {
        match op {
            Op::Create { open: true, node: Node::File, .. } => ReplyShape::AttrAndOpen(session),
            Op::Create { .. } | Op::Link { .. } | Op::SetAttr { .. } | Op::Extend { .. } => ReplyShape::Attr,
            Op::PrepareMkdir { .. }
            | Op::PrepareFile { .. }
            | Op::PrepareExchange { .. }
            | Op::PrepareLeave { .. }
            | Op::Arrive => ReplyShape::Attr,
            Op::Write { .. } => ReplyShape::Written(u32::try_from(payload.len()).unwrap_or(0)),
            Op::CopyRange { len, .. } => ReplyShape::Offset(*len),
            _ => ReplyShape::Done,
        }
    }
}

/// Somebody who waits for an answer, with the answer that is ready to leave.
#[derive(Debug)]
pub(crate) struct Waiter<R> {
    pub(crate) to: Address<R>,
    pub(crate) reply: Reply,
    pub(crate) payload: Bytes,
    /// How the answer is completed from the state after its change.
    pub(crate) shape: ReplyShape,
    pub(crate) after: AfterReply,
}

impl<R> Waiter<R> {
    /// Somebody who is told that it is done.
    pub(crate) fn done(to: Address<R>) -> Waiter<R> {
        Waiter::with(to, Reply(Ok(Body::Done)), Bytes::new())
    }

    /// Somebody with a complete answer.
    pub(crate) fn with(to: Address<R>, reply: Reply, payload: Bytes) -> Waiter<R> {
        Waiter { to, reply, payload, shape: ReplyShape::Given, after: AfterReply::Nothing }
    }

    /// Nobody: a change of the core's own.
    pub(crate) fn nobody() -> Waiter<R> {
        Waiter::done(Address::NOBODY)
    }

    /// Another answer than the one that was meant.
    pub(crate) fn refuse<W>(self, fail: Fail, out: &mut Vec<Output<W, R>>) {
        self.to.reply(Reply(Err(fail)), Bytes::new(), out);
    }
}
