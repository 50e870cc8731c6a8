//! Requests of clients: admitted by the replication core, decided by the rules, answered when the core lets go.

use super::content::Content;
use super::grants::GRANT;
use super::sessions::Connection;
use super::set::{SetDriver, SetHandle};
use crate::clock;
use brick::ReadOutcome;
use bytes::Bytes;
use ids::{Fid, OpId, SessionId};
use namespace::{Context, Decision, View as _, decide};
use replica::{Admission, Input, Role};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::{spawn_blocking, spawn_local};
use transport::FrameSender;
use wire::limits::{DIR_PAGE, IO_MAX};
use wire::op::Node;
use wire::{Attr, Body, Call, Change, Errno, Fail, Frame, Kind, Op, Reply, Wire};

/// Nameless files that are dropped in one go, and changes that may be under way when the next ones follow.
const UNCLAIMED_AT_ONCE: usize = 64;
const UNCLAIMED_BEHIND: u64 = 256;

/// Where an answer goes.
pub(crate) enum ReplyTo {
    /// To a client, on its connection: the request's number, and for how long the answer may be kept.
    Client(FrameSender, u64, u16, Connection),
    /// Nobody waits.
    Nobody,
}

impl ReplyTo {
    pub(crate) fn new(sender: FrameSender, id: u64, connection: Connection) -> ReplyTo {
        ReplyTo::Client(sender, id, 0, connection)
    }

    /// Whether the session has given up the connection that the request came on, and asks on another one.
    fn is_given_up(&self) -> bool {
        matches!(self, ReplyTo::Client(_, _, _, connection) if connection.is_given_up())
    }

    pub(super) fn send(&self, reply: Reply, payload: Bytes) {
        if let ReplyTo::Client(sender, id, grant, _) = self {
            let frame = Frame::with_payload(Kind::Reply, *id, reply.to_bytes(), payload);
            sender.send(Frame { grant: *grant, ..frame });
        }
    }

    fn is_granted(&self) -> bool {
        matches!(self, ReplyTo::Client(_, _, grant, _) if *grant > 0)
    }

    fn grant(&mut self, ms: u16) {
        if let ReplyTo::Client(_, _, grant, _) = self {
            *grant = ms;
        }
    }
}

/// Somebody who waits for an answer, with the answer that is ready to leave.
pub(crate) struct Waiter {
    to: ReplyTo,
    reply: Reply,
    payload: Bytes,
    /// Runs when the answer leaves (not when it is refused).
    then: Option<Box<dyn FnOnce()>>,
}

impl Waiter {
    pub(super) fn new(to: ReplyTo, reply: Reply, payload: Bytes) -> Waiter {
        Waiter { to, reply, payload, then: None }
    }

    pub(super) fn then(mut self, then: impl FnOnce() + 'static) -> Waiter {
        self.then = Some(Box::new(then));
        self
    }

    pub(super) fn answer(self) {
        self.to.send(self.reply, self.payload);
        if let Some(then) = self.then {
            then();
        }
    }

    pub(super) fn answer_with(self, reply: Reply) {
        self.to.send(reply, Bytes::new());
    }
}

/// What kind of answer a change's request wants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked {
    Done,
    Attr,
    /// Like `Attr`, and the session has the file open from now on.
    AttrAndOpen(SessionId),
    Written(u32),
    Offset(u64),
    /// The object lives on another set, and this is what that set said of it: nothing to look up.
    Given,
}

impl Asked {
    fn of(op: &Op, session: SessionId, payload: &[u8]) -> Asked {
        match op {
            Op::Create { open: true, node: Node::File, .. } => Asked::AttrAndOpen(session),
            Op::Create { .. } | Op::Link { .. } | Op::SetAttr { .. } | Op::Place { .. } => Asked::Attr,
            Op::Write { .. } => Asked::Written(u32::try_from(payload.len()).unwrap_or(0)),
            Op::CopyRange { len, .. } => Asked::Offset(*len),
            _ => Asked::Done,
        }
    }
}

/// What comes with a request that changes something.
#[derive(Clone, Copy, Default)]
pub(super) struct Ask<'a> {
    /// The request's name.
    pub(super) id: OpId,
    pub(super) payload: &'a [u8],
    /// The set that has agreed, and the directory there.
    pub(super) placed: Option<(ids::SetId, Fid)>,
    /// What other sets have said lies above their directories.
    pub(super) above: Option<&'a BTreeMap<Fid, Vec<Fid>>>,
}

type Answer = Result<(Body, Bytes), Errno>;

impl SetHandle {
    /// Takes one request. The answer leaves later, through `to`.
    pub(crate) fn serve(&self, call: Call, payload: Bytes, mut to: ReplyTo, session: SessionId) {
        if to.is_given_up() {
            return;
        }
        let mut guard = self.driver.borrow_mut();
        let d = &mut *guard;
        let changes = call.op.changes();
        if let Some(until) = d.keep_grants(&call.op, &mut to, session) {
            let this = self.clone();
            spawn_local(async move {
                tokio::time::sleep(until.saturating_sub(clock::now())).await;
                this.serve(call, payload, to, session);
            });
            return;
        }
        d.counters.count(call.op.index());
        let id = if changes { call.id } else { OpId { session, seq: 0 } };
        if changes && d.transactions.serves(d.replica.view().epoch, id) {
            return SetDriver::refuse(&to, Fail::Busy);
        }
        let admission = match call.op {
            Op::Fsync { .. } | Op::SyncFs | Op::Open { .. } | Op::Release { .. } => {
                d.replica.admit_sync(clock::now(), call.epoch)
            }
            _ => d.replica.admit(clock::now(), call.epoch, id, call.finished),
        };
        match admission {
            Admission::Go if changes && self.joiner_lags(d) => return SetDriver::refuse(&to, Fail::Busy),
            Admission::Go => {}
            Admission::WrongView(epoch) => return SetDriver::refuse(&to, Fail::WrongView { epoch }),
            Admission::Busy => return SetDriver::refuse(&to, Fail::Busy),
            Admission::BelowQuorum => return SetDriver::refuse(&to, Fail::BelowQuorum),
            Admission::Done(outcome) => {
                let ticket = d.ticket(Waiter::new(to, Reply(Ok(Body::Done)), Bytes::new()));
                let asked = match Asked::of(&call.op, session, &payload) {
                    Asked::Offset(_) => Asked::Offset(outcome.amount),
                    asked => asked,
                };
                d.fill_answer(ticket, &asked, outcome.about);
                // What the answer shows of the object may be newer than the change itself.
                let lsn = d.replica.last().lsn;
                return self.step(d, Input::Await { ticket, lsn });
            }
        }
        if changes {
            self.serve_change(d, id, call.op, payload, to, session);
        } else {
            self.serve_read(d, call.op, to, session);
        }
    }

    fn serve_change(
        &self,
        d: &mut SetDriver,
        id: OpId,
        op: Op,
        payload: Bytes,
        to: ReplyTo,
        session: SessionId,
    ) {
        if d.read_only && !matches!(op, Op::Settle { .. }) {
            return SetDriver::refuse(&to, Errno::EROFS.into());
        }
        if d.needs_room(&op) && d.replica.available().min(d.available()) <= d.min_free {
            return SetDriver::refuse(&to, Errno::ENOSPC.into());
        }
        if let Op::Create { parent, node: Node::Dir, .. } = &op
            && let Some(home) = self.choose_home(d, *parent)
        {
            return self.make_elsewhere(d, id, op, home, to);
        }
        let asked = Asked::of(&op, session, &payload);
        let decision = d.decide(&op, Ask { id, payload: &payload, ..Ask::default() }).and_then(|decision| {
            if let Decision::Change(change, _) = &decision {
                d.brick.validate(change)?;
            }
            Ok(decision)
        });
        if let Ok(Decision::RemoveElsewhere(entry)) = decision {
            return self.remove_elsewhere(d, id, op, entry, to);
        }
        if let Ok(Decision::AskAbove(..)) = decision {
            return self.move_across(d, id, op, to);
        }
        self.carry_out(d, id, decision, payload, asked, Waiter::new(to, Reply(Ok(Body::Done)), Bytes::new()));
    }

    /// Does what was decided; the waiter's answer is completed from the state after the change as `asked`.
    pub(super) fn carry_out(
        &self,
        d: &mut SetDriver,
        id: OpId,
        decision: Result<Decision, Errno>,
        payload: Bytes,
        asked: Asked,
        waiter: Waiter,
    ) {
        match decision {
            Ok(Decision::Change(change, about)) => {
                let keep = matches!(change, Change::Write { .. });
                let asked = match (&change, asked) {
                    (Change::CopyRange { len, .. }, _) => Asked::Offset(*len),
                    (_, asked) => asked,
                };
                let body = Content::new(change, if keep { payload } else { Bytes::new() });
                let ticket = d.ticket(waiter);
                d.deciding = Some((ticket, asked));
                self.step(d, Input::Decided { ticket, op: id, about, body });
            }
            Ok(Decision::Answer(body)) => {
                self.show_all(d, Waiter { reply: Reply(Ok(body)), ..waiter });
            }
            Ok(Decision::RemoveElsewhere(_) | Decision::AskAbove(..)) => {
                waiter.answer_with(Reply(Err(Fail::Busy)))
            }
            Err(Errno::EAGAIN) => waiter.answer_with(Reply(Err(Fail::Busy))),
            Err(e) => self.show_all(d, Waiter { reply: Reply::errno(e.0), then: None, ..waiter }),
        }
    }

    /// An answer that may show anything of the set's present state.
    fn show_all(&self, d: &mut SetDriver, waiter: Waiter) {
        if let Reply(Err(Fail::Errno { errno })) = &waiter.reply
            && self.gives_way(d, Errno(*errno))
        {
            return waiter.answer_with(Reply(Err(Fail::Busy)));
        }
        let ticket = d.ticket(waiter);
        let lsn = d.replica.last().lsn;
        self.step(d, Input::Await { ticket, lsn });
    }

    /// The brick's file system fails, and others hold the data: this brick leaves the set, and the client asks another one.
    fn gives_way(&self, d: &mut SetDriver, error: Errno) -> bool {
        let gives_way = matches!(error, Errno::EIO | Errno::ESHUTDOWN) && d.is_accompanied();
        if gives_way {
            tracing::warn!("set {}: brick {} cannot answer and leaves: {error}", d.set, d.me);
            self.step(d, Input::Synced { token: replica::SyncToken::Local(0), errno: error.0 });
        }
        gives_way
    }

    fn show(&self, d: &mut SetDriver, to: ReplyTo, objects: Vec<Fid>, answer: Answer) {
        if let Err(e) = answer
            && self.gives_way(d, e)
        {
            return SetDriver::refuse(&to, Fail::Busy);
        }
        let (reply, payload) = match answer {
            Ok((body, payload)) => (Reply(Ok(body)), payload),
            Err(e) => (Reply::errno(e.0), Bytes::new()),
        };
        let ticket = d.ticket(Waiter::new(to, reply, payload));
        self.step(d, Input::Shown { ticket, objects });
    }

    fn serve_read(&self, d: &mut SetDriver, op: Op, to: ReplyTo, session: SessionId) {
        let plain = |body| (body, Bytes::new());
        let (objects, answer): (Vec<Fid>, Answer) = match op {
            Op::Lookup { parent, name } => d.lookup(parent, &name),
            Op::GetAttr { fid } => (vec![fid], d.brick.attr(fid).map(|attr| plain(Body::Attr { attr }))),
            Op::ReadLink { fid } => (vec![fid], d.brick.readlink(fid).map(|t| (Body::Data, Bytes::from(t)))),
            Op::Open { fid } => {
                let answer = d.brick.attr(fid).map(|attr| plain(Body::Attr { attr }));
                if answer.is_ok() {
                    d.opens.add(session, fid);
                }
                (vec![fid], answer)
            }
            Op::Release { fid } => {
                if d.opens.remove(session, fid) {
                    self.drop_orphan(d, fid);
                }
                (vec![], Ok(plain(Body::Done)))
            }
            Op::Read { fid, offset, len } => return self.serve_data(d, fid, offset, len.min(IO_MAX), to),
            Op::Fsync { fid } => {
                let ticket = d.ticket(Waiter::new(to, Reply(Ok(Body::Done)), Bytes::new()));
                return self.step(d, Input::Sync { ticket, fid: Some(fid) });
            }
            Op::SyncFs => {
                let ticket = d.ticket(Waiter::new(to, Reply(Ok(Body::Done)), Bytes::new()));
                return self.step(d, Input::Sync { ticket, fid: None });
            }
            Op::ReadDir { fid, cookie, plus } => {
                let page = d.brick.readdir(fid, cookie, plus, DIR_PAGE as usize);
                let reply = match page {
                    Ok((entries, end)) => Reply(Ok(Body::Page { entries, end })),
                    Err(e) => Reply::errno(e.0),
                };
                return self.show_all(d, Waiter::new(to, reply, Bytes::new()));
            }
            Op::StatFs => (vec![], d.brick.room().map(|room| plain(Body::Room { room }))),
            Op::GetXattr { fid, name } => {
                let value = d.brick.getxattr(fid, &name).and_then(|v| v.ok_or(Errno::ENODATA));
                (vec![fid], value.map(|v| (Body::Data, Bytes::from(v))))
            }
            Op::ListXattr { fid } => {
                (vec![fid], d.brick.listxattr(fid).map(|names| plain(Body::Names { names })))
            }
            Op::Lseek { fid, offset, whence } => {
                (vec![fid], d.brick.lseek(fid, offset, whence).map(|offset| plain(Body::Offset { offset })))
            }
            Op::Vouch { parent, name, fid } => {
                if d.transactions.is_about(d.replica.view().epoch, parent, &name) {
                    return SetDriver::refuse(&to, Fail::Busy);
                }
                let there = match d.brick.lookup(parent, &name) {
                    Ok(entry) => Ok(entry.is_some_and(|e| e.fid == fid)),
                    // The parent is gone, and it was empty.
                    Err(Errno::ESTALE) => Ok(false),
                    Err(e) => Err(e),
                };
                let answer = there.and_then(|t| if t { Ok(plain(Body::Done)) } else { Err(Errno::ENOENT) });
                (vec![parent, fid], answer)
            }
            Op::LockTree { tx } => {
                let epoch = d.replica.view().epoch;
                if !d.tree_lock.take(clock::now(), epoch, tx) {
                    return SetDriver::refuse(&to, Fail::Busy);
                }
                (vec![], Ok(plain(Body::Done)))
            }
            Op::UnlockTree { tx } => {
                d.tree_lock.release(clock::now(), tx);
                (vec![], Ok(plain(Body::Done)))
            }
            Op::Lineage { fid } => match d.brick.lineage(fid) {
                Ok(l) => (l.own.clone(), Ok(plain(Body::Lineage { own: l.own, other: l.other }))),
                Err(e) => (vec![fid], Err(e)),
            },
            Op::SetAttr { .. }
            | Op::Create { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Write { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Fallocate { .. }
            | Op::CopyRange { .. }
            | Op::Place { .. }
            | Op::Condemn { .. }
            | Op::Settle { .. }
            | Op::Relocate { .. } => (vec![], Err(Errno::EINVAL)),
        };
        self.show(d, to, objects, answer);
    }

    /// File data: from the page cache at once, from the disk on another thread.
    fn serve_data(&self, d: &mut SetDriver, fid: Fid, offset: u64, len: u32, to: ReplyTo) {
        let job = match d.brick.read(fid, offset, len) {
            Ok(ReadOutcome::Data(data)) => {
                return self.show(d, to, vec![fid], Ok((Body::Data, Bytes::from(data))));
            }
            Ok(ReadOutcome::NeedsBlocking(job)) => job,
            Err(e) => return self.show(d, to, vec![fid], Err(e)),
        };
        let this = self.clone();
        spawn_local(async move {
            let read = spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO));
            let mut d = this.driver.borrow_mut();
            this.show(&mut d, to, vec![fid], read.map(|data| (Body::Data, Bytes::from(data))));
        });
    }

    /// A nameless file that nobody holds any more goes.
    pub(super) fn drop_orphan(&self, d: &mut SetDriver, fid: Fid) {
        let held = d.opens.may_be_open(clock::now(), fid);
        if held || d.replica.role() != Role::Primary || !d.brick.is_orphan(fid) {
            return;
        }
        let body = Content::new(Change::DropOrphan { fid }, Bytes::new());
        let ticket = d.ticket(Waiter::new(ReplyTo::Nobody, Reply(Ok(Body::Done)), Bytes::new()));
        d.deciding = None;
        self.step(d, Input::Decided { ticket, op: OpId::default(), about: None, body });
    }

    /// Some time after a change of primary nameless files that no client claimed go, a few at a time: others want to be
    /// served meanwhile. Nothing more goes while the set is behind with what went.
    pub(super) fn drop_unclaimed(&self, d: &mut SetDriver) {
        let behind = d.replica.last().lsn.0 - d.replica.commit().0;
        if d.replica.role() != Role::Primary || d.opens.is_grace(clock::now()) || behind > UNCLAIMED_BEHIND {
            return;
        }
        let opens = &d.opens;
        let some = d.brick.some_orphans(UNCLAIMED_AT_ONCE, |fid| !opens.is_open(fid)).unwrap_or_default();
        d.more_unclaimed = some.len() == UNCLAIMED_AT_ONCE;
        for fid in some {
            self.drop_orphan(d, fid);
        }
    }
}

impl SetDriver {
    /// Grants the asker what may be granted; until when the request has to wait for what was granted to others.
    fn keep_grants(&mut self, op: &Op, to: &mut ReplyTo, session: SessionId) -> Option<Duration> {
        if self.replica.role() != Role::Primary {
            return None;
        }
        let now = clock::now();
        let who = match op {
            // Between primaries: the change that users see comes with the entry, in the other set.
            Op::Place { .. }
            | Op::Settle { .. }
            | Op::Relocate { .. }
            | Op::Vouch { .. }
            | Op::LockTree { .. }
            | Op::UnlockTree { .. }
            | Op::Lineage { .. } => return None,
            Op::Condemn { by, .. } => *by,
            _ => {
                to.grant(self.grants.arrive(now, session));
                session
            }
        };
        if !op.changes() {
            return None;
        }
        let before = self.primary_since.map(|since| since + GRANT).filter(|until| now < *until);
        self.grants.wait(now, who).max(before)
    }

    /// Decides an operation against the brick's present state.
    pub(super) fn decide(&mut self, op: &Op, ask: Ask<'_>) -> Result<Decision, Errno> {
        let next = self.replica.next();
        let (opens, pending, nothing) = (&self.opens, &self.pending, BTreeMap::new());
        let now = clock::now();
        let cx = Context {
            set: self.set,
            epoch: next.epoch,
            lsn: next.lsn,
            now: clock::wall(),
            placed: ask.placed,
            payload: ask.payload,
            is_open: &|fid| opens.may_be_open(now, fid),
            op: ask.id,
            holder: &|fid| pending.holder(fid),
            above: ask.above.unwrap_or(&nothing),
        };
        let decision = decide(op, &mut self.brick, &cx);
        if decision == Err(Errno::EAGAIN) || matches!(op, Op::Settle { .. }) {
            self.find_mark(op);
        }
        decision
    }

    /// A directory that is marked may be one whose record is no longer in the journal.
    fn find_mark(&mut self, op: &Op) {
        let dir = match op {
            Op::Create { parent, .. } | Op::Link { parent, .. } => *parent,
            Op::Rename { to_parent, .. } => *to_parent,
            Op::Condemn { fid, .. } | Op::Settle { fid, .. } => *fid,
            _ => return,
        };
        if self.brick.is_pending(dir) == Ok(true) {
            self.pending.found(dir);
        }
    }

    /// Counts the directories that this set moves to other directories.
    pub(super) fn note_move(&mut self, change: &Change) {
        let (from, to) = match change {
            Change::Rename { parent, to_parent, .. } | Change::Exchange { parent, to_parent, .. } => {
                (parent, to_parent)
            }
            _ => return,
        };
        self.moves += u64::from(from != to);
    }

    fn needs_room(&self, op: &Op) -> bool {
        matches!(
            op,
            Op::Create { .. }
                | Op::Write { .. }
                | Op::Link { .. }
                | Op::SetXattr { .. }
                | Op::Fallocate { .. }
                | Op::CopyRange { .. }
                | Op::Place { .. }
        )
    }

    fn lookup(&mut self, parent: Fid, name: &wire::Name) -> (Vec<Fid>, Answer) {
        match self.brick.lookup(parent, name) {
            Ok(Some(e)) if e.home != self.set => {
                (vec![parent], Ok((Body::Elsewhere { fid: e.fid, home: e.home, kind: e.kind }, Bytes::new())))
            }
            Ok(Some(e)) => {
                let attr = self.brick.attr(e.fid);
                (vec![parent, e.fid], attr.map(|attr| (Body::Attr { attr }, Bytes::new())))
            }
            Ok(None) => (vec![parent], Err(Errno::ENOENT)),
            Err(e) => (vec![parent], Err(e)),
        }
    }

    /// Gives the answer to a change the attributes of the directories that it touched, for whoever may keep them.
    pub(super) fn add_directories(&mut self, ticket: replica::Ticket, change: &Change) {
        let dirs: Vec<Fid> = match change {
            Change::Create { parent, .. }
            | Change::Unlink { parent, .. }
            | Change::Rmdir { parent, .. }
            | Change::Link { parent, .. } => vec![*parent],
            Change::Rename { parent, to_parent, fid, .. } => vec![*parent, *to_parent, *fid],
            Change::Exchange { parent, to_parent, fid, to_fid, .. } => {
                vec![*parent, *to_parent, *fid, *to_fid]
            }
            _ => return,
        };
        let Some(waiter) = self.waiters.get_mut(&ticket).filter(|w| w.to.is_granted()) else { return };
        let attrs = dirs.iter().filter_map(|d| self.brick.attr(*d).ok()).filter(Attr::is_dir);
        waiter.payload = attrs.collect::<Vec<Attr>>().to_bytes().into();
    }

    /// The answer to a request that an earlier primary has done, if the directory that it made lives on another set.
    fn made_elsewhere(&mut self, about: Option<Fid>) -> Option<Body> {
        let copy = self.brick.attr_of_any(about?).ok().filter(|copy| copy.home != self.set)?;
        Some(Body::Elsewhere { fid: copy.fid, home: copy.home, kind: copy.mode & 0o170_000 })
    }

    /// Completes a waiter's answer from the state after its change.
    pub(super) fn fill_answer(&mut self, ticket: replica::Ticket, asked: &Asked, about: Option<Fid>) {
        let attr = |d: &mut SetDriver| -> Result<Attr, Fail> {
            d.brick.attr(about.ok_or(Errno::EIO)?).map_err(Fail::from)
        };
        let result = match asked {
            Asked::Given => return,
            Asked::Done => Ok(Body::Done),
            Asked::Attr => match attr(self) {
                Ok(attr) => Ok(Body::Attr { attr }),
                Err(fail) => self.made_elsewhere(about).ok_or(fail),
            },
            Asked::AttrAndOpen(session) => attr(self).map(|attr| {
                self.opens.add(*session, attr.fid);
                Body::Attr { attr }
            }),
            Asked::Written(len) => attr(self).map(|attr| Body::Written { len: *len, attr }),
            Asked::Offset(offset) => Ok(Body::Offset { offset: *offset }),
        };
        if let Some(waiter) = self.waiters.get_mut(&ticket) {
            waiter.reply = Reply(result);
        }
    }
}
