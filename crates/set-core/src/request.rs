//! Admission of requests, and the grants that go with their answers.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, SetCore};
use crate::grants::GRANT;
use crate::io::{ReplyTo, Request};
use crate::rights::Permit;
use crate::waiters::{Address, Waiter};
use bytes::Bytes;
use core::time::Duration;
use ids::{OpId, SessionId};
use namespace::permission;
use replica::Admission;
use wire::limits::DEPTH_MAX;
use wire::{Body, Errno, Fail, Op, Reply};

/// A request that was let in.
#[derive(Debug)]
pub(crate) struct AdmittedRequest<R> {
    pub(crate) id: OpId,
    pub(crate) op: Op,
    pub(crate) payload: Bytes,
    pub(crate) to: Address<R>,
    pub(crate) session: SessionId,
    /// The client has checked permissions, and may ask for all of the volume.
    pub(crate) is_trusted: bool,
    /// What the client may, unless it is trusted.
    pub(crate) permit: Option<Permit>,
}

impl<R> AdmittedRequest<R> {
    /// One without data that goes on here, after another set was asked.
    pub(crate) fn of(id: OpId, op: Op, to: Address<R>) -> AdmittedRequest<R> {
        let (payload, session) = (Bytes::new(), id.session);
        AdmittedRequest { id, op, payload, to, session, is_trusted: false, permit: None }
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Takes one request.
    pub(crate) fn serve(&mut self, cx: &mut Cx<'_, B, R>, request: Request<R>) {
        if request.to.is_given_up() {
            return;
        }
        if let Op::PrepareMkdir { path, .. } | Op::Relocate { path, .. } | Op::TakeDir { path, .. } =
            &request.call.op
            && path.len() > DEPTH_MAX
        {
            return self.refuse(cx, Address::of(request.to), Errno::ELOOP.into());
        }
        let Some(request) = self.look_beneath(cx, request) else { return };
        let session = request.session;
        let mut grant = 0;
        if let Some(until) = self.keep_grants(cx.at.now, &request.call.op, &mut grant, session) {
            return self.timers.set(until, Due::Request(request));
        }
        let Request { mut call, payload, to, user, beneath, .. } = request;
        if let Some(user) = &user {
            permission::take_as(user, &mut call.op);
        }
        let mut to = Address::of(to);
        to.grant = grant;
        let changes = call.op.changes();
        let id = if changes { call.id } else { OpId { session, seq: 0 } };
        if changes && self.transactions.serves(self.replica.view().epoch, id) {
            return self.refuse(cx, to, Fail::Busy);
        }
        let admission = match call.op {
            Op::Fsync { .. }
            | Op::SyncFs
            | Op::Open { .. }
            | Op::Show { .. }
            | Op::Release { .. }
            | Op::HoldLocks { .. }
            | Op::DropLocks { .. } => self.replica.admit_sync(cx.at.now, call.epoch),
            _ => self.replica.admit(cx.at.now, call.epoch, id, call.finished),
        };
        let is_trusted = user.is_none() && beneath.is_none();
        let (op, permit) = (call.op, Permit::of(user, beneath));
        let request = AdmittedRequest { id, op, payload, to, session, is_trusted, permit };
        match admission {
            Admission::Go if changes && self.joiner_lags(cx) => self.refuse(cx, request.to, Fail::Busy),
            Admission::Go if self.awaits_end(cx.at.now, session, &request.op) => {
                self.refuse(cx, request.to, Fail::Busy);
            }
            Admission::Go if let Some(errno) = self.refusals.of(id).filter(|_| changes) => {
                let waiter = Waiter { reply: Reply::errno(errno.0), ..Waiter::done(request.to) };
                self.reply_when_all_committed(cx, waiter);
            }
            Admission::Go => {
                if let Some(request) = self.redirect_holder(cx, request) {
                    self.serve_permitted(cx, request);
                }
            }
            Admission::Done(outcome) => match self.gone_beneath(cx.at.now, beneath, &request, &outcome) {
                Some(reply) => {
                    let mut waiter = Waiter { reply, ..Waiter::done(request.to) };
                    waiter.to.grant = 0;
                    self.reply_when_all_committed(cx, waiter);
                }
                None => self.answer_again(cx, request, outcome),
            },
            Admission::WrongView(epoch) => self.refuse(cx, request.to, Fail::WrongView { epoch }),
            Admission::Busy => self.refuse(cx, request.to, Fail::Busy),
            Admission::BelowQuorum => self.refuse(cx, request.to, Fail::BelowQuorum),
        }
    }

    /// Whether it is about something that is answered for when a transaction with another set has ended.
    pub(crate) fn awaits_end(&mut self, now: Duration, session: SessionId, op: &Op) -> bool {
        self.is_about_a_moving_file(now, session, op) || self.is_about_one_that_goes(op)
    }

    /// Serves what the client may have, if it is not trusted to have looked.
    pub(crate) fn serve_permitted(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        let Some(request) = self.permitted(cx, request) else { return };
        self.note_use(&request.op);
        if let Some(request) = self.relay(cx, request) {
            self.serve_here(cx, request);
        }
    }

    /// Serves what this set has to answer itself.
    pub(crate) fn serve_here(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        if let Op::Relocate { fid, .. } = request.op {
            self.paths.note(fid);
        }
        match request.op {
            Op::ListXattr { fid } if request.permit.as_ref().is_some_and(Permit::is_of_user) => {
                let names = self.brick.listxattr(fid).map(|mut names| {
                    names.retain(permission::shows_xattr);
                    (Body::Names { names }, Bytes::new())
                });
                self.reply_when_committed(cx, request.to, [fid].into(), names);
            }
            ref op if op.changes() => self.serve_change(cx, request),
            _ => self.serve_read(cx, request),
        }
    }

    /// Grants the asker what may be granted; until when the request has to wait for what was granted to others.
    fn keep_grants(
        &mut self,
        now: Duration,
        op: &Op,
        grant: &mut u16,
        session: SessionId,
    ) -> Option<Duration> {
        if !self.is_primary() {
            return None;
        }
        let who = match op {
            op if is_not_seen(op) => return None,
            // It waited already until nobody keeps what it changes ([`crate::departures`]).
            Op::Depart { .. } | Op::DepartAll { .. } | Op::PrepareLeave { .. } => return None,
            // Who goes by the entry as it was asks the file's home next, and waits there, or asks once more.
            Op::Retarget { .. } | Op::Redirect { .. } => return None,
            // Likewise.
            Op::GiveDir { .. } => return None,
            Op::EndFile { fid, .. } if self.departures.moves(*fid) => return None,
            // Sets ask each other for it, and whoever does keeps nothing of the answer.
            Op::Fsync { .. } | Op::SyncFs => return None,
            // Perhaps only names are listed: whoever is alone here is left alone, and nothing of the answer is kept.
            Op::GetAttrs { .. } if self.grants.are_anothers(now, session) => return None,
            // Nobody knows of it yet.
            Op::Write { fid, .. }
            | Op::SetXattr { fid, .. }
            | Op::PrepareFile { fid: Some(fid), .. }
            | Op::EndFile { fid, .. }
                if self.departures.arrivals.are_under_way(now, *fid) =>
            {
                return None;
            }
            Op::PrepareRmdir { by, .. }
            | Op::PrepareFile { by, .. }
            | Op::PrepareExchange { by, .. }
            | Op::EndFile { by, .. } => {
                // Whoever is alone here would be granted more and more meanwhile.
                self.grants.arrive(now, *by);
                *by
            }
            _ => {
                let granted = self.grants.arrive(now, session);
                let moves = self.departures.are_shown_by(op) || self.hand_over.is_shown_by(op);
                *grant = if moves { 0 } else { granted };
                session
            }
        };
        if !op.changes() {
            return None;
        }
        let before = self.primary_since.map(|since| since + GRANT).filter(|until| now < *until);
        self.grants.wait(now, who).max(before)
    }

    /// Answers with what another set refuses. That it was asked stands on what this set has decided so far: as long as that
    /// may be lost, so may the reason.
    pub(crate) fn refuse_for_other(&mut self, cx: &mut Cx<'_, B, R>, to: Address<R>, fail: Fail) {
        match fail {
            Fail::Errno { errno } => {
                self.reply_when_all_committed(cx, Waiter { reply: Reply::errno(errno), ..Waiter::done(to) });
            }
            fail => self.refuse(cx, to, fail),
        }
    }

    /// Answers a request that no change and no state stands behind.
    pub(crate) fn refuse(&self, cx: &mut Cx<'_, B, R>, to: Address<R>, fail: Fail) {
        to.reply(Reply(Err(fail)), Bytes::new(), cx.out);
    }
}

/// Whether no user sees what it does, and nothing of its answer is kept.
fn is_not_seen(op: &Op) -> bool {
    matches!(
        op,
        // Between primaries: the change that users see comes with the entry, in the other set.
        Op::PrepareMkdir { .. }
        | Op::EndTransaction { .. }
        | Op::Relocate { .. }
        | Op::CheckEntry { .. }
        | Op::CheckOutcome { .. }
        | Op::CheckMark { .. }
        | Op::CheckRight { .. }
        | Op::CheckGiven { .. }
        | Op::CheckOwner { .. }
        | Op::CheckName { .. }
        // Nobody is answered about the directory before, and whoever knew it asked another set.
        | Op::TakeDir { .. }
        | Op::EndTaking { .. }
        // A lock that is kept for hours shall not end the grants of whoever is alone otherwise.
        | Op::HoldLocks { .. }
        | Op::DropLocks { .. }
        | Op::LockTree { .. }
        | Op::UnlockTree { .. }
        | Op::Lineage { .. }
        | Op::PathOf { .. }
        | Op::Arrive
        | Op::Land { .. }
        | Op::Stripe { .. }
        | Op::FencePiece { .. }
        | Op::TrimPiece { .. }
        | Op::CheckCut { .. }
        | Op::CheckPiece { .. }
    )
}
