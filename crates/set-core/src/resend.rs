//! Requests that were done before, and whose answer did not get to the client.

use crate::brick::{JournalPlace, LocalBrick};
use crate::core::{Cx, Next, SetCore};
use crate::io::ReplyTo;
use crate::joint::{decider, sync_of};
use crate::request::AdmittedRequest;
use crate::waiters::{ReplyShape, Waiter};
use alloc::vec::Vec;
use ids::{Fid, Lsn, SetId, Time};
use replica::{Input, Outcome};
use wire::op::Node;
use wire::{Attr, Body, Change, Errno, Fail, Op, Reply};

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A request that was done before.
    pub(crate) fn answer_again(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut request: AdmittedRequest<R>,
        outcome: Outcome,
    ) {
        if let Some(sync) = self.decided_for_others(&request.op, outcome.lsn) {
            // The answer may have been refused as the entry could not be brought to disk.
            request.to.grant = 0;
            return self.answer_when_entered(cx, request.to, sync);
        }
        if let Some(copy) = self.has_moved_it(&request.op, &outcome) {
            request.to.grant = 0;
            return self.redirect_again(cx, request.to, copy);
        }
        if let Op::SetAttr { fid, .. } = &request.op
            && self.brick.attr(*fid).is_ok_and(|attr| self.is_held(cx.at.now, &attr))
        {
            // As at first: the number of links is about to change.
            return self.refuse(cx, request.to, Fail::Busy);
        }
        let shape = match ReplyShape::of(&request.op, request.session, &request.payload) {
            ReplyShape::Offset(_) => ReplyShape::Offset(outcome.amount),
            shape => shape,
        };
        let mut waiter = Waiter { shape, ..Waiter::done(request.to) };
        // Others may have changed since where the name leads.
        waiter.to.grant = 0;
        let ticket = self.waiters.issue(waiter);
        self.complete_answer(ticket, outcome.result_fid);
        let gone = Reply::errno(Errno::ESTALE.0);
        if self.waiters.get_mut(ticket).is_some_and(|w| w.reply == gone)
            && let Some(reply) = self.answer_for_gone(&request.op, &outcome)
            && let Some(waiter) = self.waiters.get_mut(ticket)
        {
            waiter.reply = reply;
        }
        // What the answer shows of the object may be newer than the change itself.
        let lsn = self.last().lsn;
        self.next.push_back(Next::Feed(Input::Await { ticket, lsn }));
    }

    /// What brings the entry to disk that this change made or removed, if it decided a transaction about files of other sets.
    fn decided_for_others(&mut self, op: &Op, lsn: Lsn) -> Option<Op> {
        let (dir, _) = decider(op)?;
        let joint = match op {
            Op::MoveIn { .. } | Op::LinkIn { .. } => true,
            _ => match self.record(lsn) {
                None => true,
                Some(change) => {
                    let others = change.touched().into_iter().filter(|fid| fid.set != self.set);
                    let others: Vec<Fid> = others.filter(|fid| !removed_directory(&change, *fid)).collect();
                    others.into_iter().any(|fid| !self.is_known_directory(fid))
                }
            },
        };
        joint.then(|| sync_of(op, dir))
    }

    /// A directory of another set is renamed without asking that set, and nothing has to be on disk for it.
    fn is_known_directory(&mut self, fid: Fid) -> bool {
        self.brick.attr_of_any(fid).is_ok_and(|attr| attr.is_dir())
    }

    /// A change that was done before, if the journal reaches back to it.
    fn record(&self, lsn: Lsn) -> Option<Change> {
        let records = self.brick.some_records(lsn, &mut JournalPlace::default()).ok()?;
        records.into_iter().next().filter(|r| r.stamp.lsn == lsn).map(|r| r.body)
    }

    /// The answer to a request that was done, if what it is about has been removed since. `ESTALE` would have the client's
    /// kernel look the path up once more and do it twice.
    pub(crate) fn answer_for_gone(&self, op: &Op, outcome: &Outcome) -> Option<Reply> {
        match op {
            Op::Create { .. } => {
                let attr = self.attr_as_made(outcome.lsn).or_else(|| attr_as_asked(op, outcome.result_fid));
                attr.map(|attr| Reply(Ok(Body::Attr { attr })))
            }
            Op::Link { .. } => Some(Reply(Ok(Body::Done))),
            _ => None,
        }
    }

    /// What was made by this change, as it was then; without a name now.
    fn attr_as_made(&self, lsn: Lsn) -> Option<Attr> {
        let Change::Create { fid, home, node, mode, uid, gid, time, .. } = self.record(lsn)? else {
            return None;
        };
        Some(unnamed(fid, home, &node, mode, (uid, gid), time))
    }
}

/// Whether the change had this directory give way.
fn removed_directory(change: &Change, fid: Fid) -> bool {
    matches!(change, Change::Rename { replaced: Some(replaced), .. } if replaced.fid == fid && replaced.dir)
}

/// What was made, where the journal does not reach back to it: it begins anew after a power cut of all bricks.
fn attr_as_asked(op: &Op, result_fid: Option<Fid>) -> Option<Attr> {
    let Op::Create { node, mode, umask, uid, gid, .. } = op else { return None };
    let fid = result_fid?;
    Some(unnamed(fid, fid.set, node, mode & 0o7777 & !umask, (*uid, *gid), Time::default()))
}

fn unnamed(fid: Fid, home: SetId, node: &Node, mode: u32, (uid, gid): (u32, u32), time: Time) -> Attr {
    let size = if let Node::Symlink { target } = node { target.0.len() as u64 } else { 0 };
    let rdev = if let Node::Char { rdev } | Node::Block { rdev } = node { *rdev } else { 0 };
    let permissions = if matches!(node, Node::Symlink { .. }) { 0o777 } else { mode };
    Attr {
        fid,
        home,
        mode: node.type_bits() | permissions,
        uid,
        gid,
        nlink: 0,
        rdev,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
    }
}
