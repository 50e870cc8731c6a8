//! Stubs of this set that another set's transaction marks, as their file is to get a name elsewhere, and copies of directories
//! likewise (docs/design/0019).
//!
//! Such a mark has to be of a transaction that has marked the file too. One that comes late, when the name is a later
//! transaction's, would take it away: so the home is asked first, and nothing else is begun about the name meanwhile.

use crate::answer::Answer;
use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::{Asking, Transaction};
use crate::io::ReplyTo;
use crate::request::AdmittedRequest;
use crate::steps::TransactionKind;
use crate::waiters::Address;
use bytes::Bytes;
use ids::{Fid, OpId, SessionId};
use wire::op::Successor;
use wire::{Body, Errno, Fail, Name, Op};

/// A mark that waits for the home's word.
#[derive(Debug)]
pub(crate) struct StubMark<R> {
    id: OpId,
    op: Op,
    session: SessionId,
    to: Address<R>,
    hold: Transaction,
}

impl<R> StubMark<R> {
    pub(crate) fn kind(&self) -> TransactionKind {
        let exchanges = matches!(self.op, Op::PrepareExchange { .. });
        if exchanges { TransactionKind::Exchange } else { TransactionKind::Rename }
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// If the request is one to mark a stub: asks its home, and answers nothing back.
    pub(crate) fn confirm_stub(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        let (tx, home, fid, drop) = match &request.op {
            Op::PrepareFile { tx, coordinator, fid: Some(fid), drop: Some(drop), add: None, .. }
            | Op::PrepareExchange { tx, coordinator, fid: Some(fid), drop, add: None, .. } => {
                (*tx, *coordinator, *fid, drop)
            }
            _ => return Some(request),
        };
        if home == self.set || drop.dir.is_names() || self.brick.attr(drop.dir).is_err() {
            return Some(request);
        }
        let epoch = self.replica.view().epoch;
        self.transactions.precede(epoch, tx, drop.dir, &drop.name);
        let Some(hold) = self.begin(cx, request.id, drop.dir, &drop.name) else {
            self.refuse(cx, request.to, Fail::Busy);
            return None;
        };
        let AdmittedRequest { id, op, to, session, .. } = request;
        let mark = StubMark { id, op, session, to, hold };
        self.ask(cx, Asking::StubConfirmed(mark), home, Op::CheckMark { fid, tx }, None);
        None
    }

    /// The home has said whether the transaction has marked the file.
    pub(crate) fn on_stub_confirmed(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mark: StubMark<R>,
        answer: Result<Body, Fail>,
    ) {
        let known = self.end(cx, mark.id, &mark.hold);
        let StubMark { id, op, session, to, .. } = mark;
        match (answer, known) {
            (Ok(_), Ok(())) => {
                self.change_here(cx, AdmittedRequest { session, ..AdmittedRequest::of(id, op, to) });
            }
            (_, Err(fail)) => self.refuse(cx, to, fail),
            (Err(_), Ok(())) => self.refuse(cx, to, Fail::Busy),
        }
    }

    /// [`Op::CheckMark`].
    pub(crate) fn check_mark(&mut self, fid: Fid, tx: OpId) -> Answer {
        match self.brick.intent(fid) {
            Ok(Some(intent)) if intent.tx == tx => Ok((Body::Done, Bytes::new())),
            Ok(_) | Err(Errno::ESTALE) => Err(Errno::ENOENT),
            Err(e) => Err(e),
        }
    }

    /// Whether the name is a stub's, or a copy's, that is marked to lose it: whether a later transaction has made it is not known.
    /// Or it is to lead to that object when the transaction `tx` has committed, which has marked what it leads to now. What another
    /// one would have it lead to says nothing: that cannot commit as long as `tx` holds the object. And two exchanges of the same
    /// names, each of which has marked one of the files, would wait for each other. Without `tx` it is asked about a directory that
    /// has left its entry already, as the exchange has committed, or that another transaction holds, which gives the exchange up.
    pub(crate) fn is_to_go(&mut self, parent: Fid, name: &Name, fid: Fid, tx: Option<OpId>) -> bool {
        let Ok(Some(entry)) = self.brick.lookup(parent, name) else { return false };
        if entry.fid == fid && entry.home == self.set {
            return false;
        }
        let Some(intent) = self.brick.intent(entry.fid).ok().flatten() else { return false };
        let leads = |next: Successor| next.fid == fid && tx.is_none_or(|tx| tx == intent.tx);
        if entry.fid != fid && !self.brick.successor(entry.fid).ok().flatten().is_some_and(leads) {
            return false;
        }
        intent.drop.is_some_and(|drop| drop.dir == parent && drop.name == *name)
    }
}
