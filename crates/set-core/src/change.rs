//! Requests that change something: decided by the rules against the brick's present state, then ordered.

use crate::brick::LocalBrick;
use crate::content::Content;
use crate::core::{Cx, SetCore};
use crate::hand_over::HAND_OVER;
use crate::io::ReplyTo;
use crate::request::AdmittedRequest;
use crate::waiters::{AfterReply, ReplyShape, Waiter};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Epoch, Fid, OpId, SetId};
use namespace::{Context, Decision, Need, decide, placement};
use replica::Input;
use wire::op::Node;
use wire::{Attr, Change, Errno, Fail, Op, Reply};

/// What comes with a request that changes something.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ask<'a> {
    /// The request's name.
    pub(crate) id: OpId,
    /// The transaction about a file's names that is to be decided.
    pub(crate) tx: OpId,
    pub(crate) payload: &'a [u8],
    /// The set that has agreed, and the directory there.
    pub(crate) placed: Option<(SetId, Fid)>,
    /// What homes have agreed to, and the file that is to get a name here.
    pub(crate) agreed: &'a [Need],
    pub(crate) incoming: Option<&'a Attr>,
    /// What other sets have said lies above their directories.
    pub(crate) above: Option<&'a BTreeMap<Fid, Vec<Fid>>>,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    pub(crate) fn serve_change(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        let ends = matches!(
            request.op,
            Op::EndTransaction { .. } | Op::EndFile { .. } | Op::Redirect { .. } | Op::EndTaking { .. }
        );
        if self.settings.read_only && !ends {
            return self.refuse(cx, request.to, Errno::EROFS.into());
        }
        let Some(request) = self.look_at_stripes(cx, request) else { return };
        // The entry of a directory that lives elsewhere takes little room: a set that is full for all else has it.
        if let Op::Create { parent, node: Node::Dir, .. } = &request.op
            && self.has_room(self.min_free / 2)
            && let Some(home) = self.choose_home(cx, *parent)
        {
            return self.make_elsewhere(cx, request.id, request.op, home, request.to);
        }
        if let Op::Write { fid, .. } | Op::SetXattr { fid, .. } | Op::Land { fid, .. } = &request.op {
            self.departures.arrivals.hear(cx.at.now, *fid);
        }
        let Some(request) = self.confirm_stub(cx, request) else { return };
        let Some(request) = self.stripe_first(cx, request) else { return };
        if let Some(request) = self.place_first(cx, request) {
            self.change_here(cx, request);
        }
    }

    /// Whether more than this is free on all bricks in sync.
    pub(crate) fn has_room(&mut self, kept: u64) -> bool {
        self.replica.available().min(self.available()) > kept
    }

    /// Whether there is no room for such a change. Some may take half of what is to stay free: entries, which take little, and
    /// what they lead to can grow on another set; and writes to files that cannot go to another set now, where one has room.
    fn is_full_for(&mut self, cx: &Cx<'_, B, R>, op: &Op) -> bool {
        if !needs_room(op) || self.has_room(self.min_free) {
            return false;
        }
        let may_take_half = match op {
            Op::Create { node, .. } => *node != Node::Dir,
            Op::Link { .. } | Op::LinkIn { .. } | Op::MoveIn { .. } => true,
            Op::Write { .. } => placement::roomiest(self.set, &self.rooms(cx)).is_some(),
            _ => false,
        };
        !(may_take_half && self.places() && self.has_room(self.min_free / 2))
    }

    /// A change that begins with this set.
    pub(crate) fn change_here(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        let AdmittedRequest { id, op, payload, to, session, permit, .. } = request;
        let is_new = matches!(op, Op::PrepareMkdir { .. } | Op::Arrive | Op::TakeDir { .. });
        if self.is_full_for(cx, &op) || is_new && self.settings.rebalance.drains {
            return self.refuse(cx, to, Errno::ENOSPC.into());
        }
        if let Op::SetAttr { fid, .. } = &op
            && self.brick.attr(*fid).is_ok_and(|attr| self.is_held(cx.at.now, &attr))
        {
            // Its answer shows the number of links, or a directory's time, which is about to change.
            return self.refuse(cx, to, Fail::Busy);
        }
        let shape = ReplyShape::of(&op, session, &payload);
        let ask = Ask { id, payload: &payload, ..Ask::default() };
        let decision = self.decide(cx, &op, ask).and_then(|decision| self.validated(cx, decision));
        match decision {
            Ok(Decision::RemoveElsewhere(entry)) => {
                self.remove_elsewhere(cx, (id, op, permit), entry, None, to);
            }
            Ok(Decision::AskAbove(..)) => self.move_across(cx, id, (op, permit), to),
            Ok(Decision::AskHome(need)) => self.begin_joint(cx, (id, session), (op, need, permit), to),
            decision => self.carry_out(cx, id, decision, payload, Waiter { shape, ..Waiter::done(to) }),
        }
    }

    /// What the brick can do of what was decided.
    pub(crate) fn validated(&mut self, cx: &mut Cx<'_, B, R>, decision: Decision) -> Result<Decision, Errno> {
        let Decision::Change(change, _) = &decision else { return Ok(decision) };
        let valid = self.brick.validate(change);
        if valid == Err(Errno::EAGAIN) {
            // It waits until the end of another transaction is on disk.
            let ticket = self.waiters.issue(Waiter::nobody());
            self.feed(cx, Input::Sync { ticket, fid: None });
        }
        valid?;
        let set_aside = self.set_aside(change);
        if set_aside > 0 && !self.has_room(self.min_free.saturating_add(set_aside)) {
            return Err(Errno::ENOSPC);
        }
        Ok(decision)
    }

    /// Bytes that a change takes without data that came with it. What the file has already counts as being there.
    fn set_aside(&mut self, change: &Change) -> u64 {
        const KEEP_SIZE: u32 = 1;
        const ZERO: u32 = 0x10;
        match change {
            Change::Fallocate { fid, mode, len, .. } if matches!(mode & !KEEP_SIZE, 0 | ZERO) => {
                let has = self.brick.attr(*fid).map_or(0, |attr| attr.blocks.saturating_mul(512));
                len.saturating_sub(has)
            }
            _ => 0,
        }
    }

    /// Decides an operation against the brick's present state.
    pub(crate) fn decide(&mut self, cx: &Cx<'_, B, R>, op: &Op, ask: Ask<'_>) -> Result<Decision, Errno> {
        let next = self.replica.next();
        let (opens, pending, nothing) = (&self.opens, &self.pending, BTreeMap::new());
        let (arrivals, departures) = (&self.departures.arrivals, &self.departures);
        let (now, holder, hand_over) = (cx.at.now, self.holder_for(op), &self.hand_over);
        let context = Context {
            set: self.set,
            epoch: next.epoch,
            lsn: next.lsn,
            now: cx.at.wall,
            placed: ask.placed,
            payload: ask.payload,
            is_open: &|fid| opens.may_be_open_besides(now, fid, holder),
            op: ask.id,
            tx: ask.tx,
            holder: &|fid| pending.holder(fid),
            agreed: ask.agreed,
            incoming: ask.incoming,
            holds_names: &|dir| pending.holds_names(dir),
            is_arriving: &|fid| arrivals.are_under_way(now, fid),
            is_copied: &|fid, copy| departures.is_copied(fid, copy),
            has_taken: &|fid, tx| hand_over.has_taken(fid, tx),
            is_given: &|fid, tx, to| hand_over.may_give(next.epoch, fid, tx, to),
            above: ask.above.unwrap_or(&nothing),
        };
        let decision = match decide(op, &mut self.brick, &context) {
            _ if self.is_preceded(next.epoch, op) => Err(Errno::EAGAIN),
            Ok(Decision::Change(change, _)) if self.hand_over.is_touched_by(&change) => Err(Errno::EAGAIN),
            Ok(Decision::Change(
                Change::PrepareFile { fid, intent } | Change::PrepareSwap { fid, intent, .. },
                _,
            )) if self.transactions.awaits_directory(next.epoch, intent.tx, fid) => Err(Errno::EAGAIN),
            // No directory has changed its set: it is a late request, and older servers do not know the change.
            Ok(Decision::Change(Change::PrepareMove { .. }, _)) if self.settings.level < HAND_OVER => {
                Err(Errno::ESTALE)
            }
            decision => decision,
        };
        if decision == Err(Errno::EAGAIN) || matches!(op, Op::EndTransaction { .. }) {
            self.find_mark(cx, op);
        }
        decision
    }

    /// Whether it asks for what an entry leads to that another transaction is about, which comes first.
    fn is_preceded(&self, epoch: Epoch, op: &Op) -> bool {
        let (tx, drop) = match op {
            Op::PrepareFile { tx, drop: Some(drop), .. } | Op::PrepareExchange { tx, drop, .. } => {
                (*tx, drop)
            }
            _ => return false,
        };
        self.transactions.is_preceded(epoch, tx, drop.dir, &drop.name)
    }

    /// A directory that is marked may be one whose record is no longer in the journal.
    fn find_mark(&mut self, cx: &Cx<'_, B, R>, op: &Op) {
        let dir = match op {
            Op::Create { parent, .. } | Op::Link { parent, .. } | Op::LinkIn { parent, .. } => *parent,
            Op::Rename { to_parent, .. } | Op::MoveIn { to_parent, .. } => *to_parent,
            Op::PrepareRmdir { fid, .. } | Op::EndTransaction { fid, .. } => *fid,
            _ => return self.find_marked_named(cx.at.now, op),
        };
        self.find_marked_named(cx.at.now, op);
        match op {
            Op::Rename { .. } | Op::MoveIn { .. } => self.find_marked_above(cx.at.now, dir),
            _ => self.find_marked(cx.at.now, dir),
        }
    }

    /// A directory may be marked, of which the journal does not tell any more.
    pub(crate) fn find_marked(&mut self, now: Duration, dir: Fid) {
        if self.brick.is_pending(dir) == Ok(true) && !self.waits_for_names(now, dir) {
            let taken = self.is_taken(dir);
            self.pending.found(now, dir, taken);
        }
    }

    /// Whether it is a directory that this set is to answer for, and does not yet.
    fn is_taken(&mut self, dir: Fid) -> bool {
        self.brick.taken(dir).is_ok_and(|taken| taken.is_some())
    }

    /// Likewise those above it.
    pub(crate) fn find_marked_above(&mut self, now: Duration, dir: Fid) {
        let above = self.brick.lineage(dir).map_or_else(|_| [dir].into(), |l| l.own);
        above.into_iter().for_each(|fid| self.find_marked(now, fid));
    }

    /// Likewise what the operation's names lead to.
    pub(crate) fn find_marked_named(&mut self, now: Duration, op: &Op) {
        let names = match op {
            Op::Create { parent, name, .. }
            | Op::Unlink { parent, name }
            | Op::Rmdir { parent, name }
            | Op::LinkIn { parent, name, .. }
            | Op::Depart { parent, name, .. }
            | Op::Retarget { parent, name, .. }
            | Op::Link { parent, name, .. } => [Some((parent, name)), None],
            Op::Rename { parent, name, to_parent, to_name, .. } => {
                [Some((parent, name)), Some((to_parent, to_name))]
            }
            Op::MoveIn { to_parent, to_name, .. } => [Some((to_parent, to_name)), None],
            Op::PrepareFile { drop: Some(drop), .. } | Op::PrepareExchange { drop, .. } => {
                [Some((&drop.dir, &drop.name)), None]
            }
            Op::DepartAll { names, .. } => [names.first().map(|place| (&place.dir, &place.name)), None],
            _ => [None, None],
        };
        let named =
            names.into_iter().flatten().filter_map(|(dir, name)| self.brick.entry(*dir, name).ok()?);
        let mut fids: Vec<Fid> = named.map(|e| e.fid).collect();
        if let Op::Link { fid, .. }
        | Op::PrepareFile { fid: Some(fid), .. }
        | Op::PrepareExchange { fid: Some(fid), .. }
        | Op::PrepareLeave { fid, .. } = op
        {
            fids.push(*fid);
        }
        fids.into_iter().for_each(|fid| self.find_marked(now, fid));
    }

    /// Whether the names of a file wait for the end of a transaction, or the entry of a directory that is to move.
    pub(crate) fn waits_for_names(&mut self, now: Duration, fid: Fid) -> bool {
        if self.brick.is_pending(fid) != Ok(true) || self.is_taken(fid) {
            return false;
        }
        match self.brick.intent(fid) {
            // It is a directory of this set, and being made or removed.
            Ok(None) if self.brick.attr(fid).is_ok_and(|attr| attr.is_dir()) => return false,
            Ok(intent) => self.pending.found_file(now, fid, intent),
            Err(_) => {}
        }
        true
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
            Ok(Decision::RemoveElsewhere(_) | Decision::AskAbove(..) | Decision::AskHome(_))
            | Err(Errno::EAGAIN) => {
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
            | Op::LinkIn { .. }
            | Op::MoveIn { .. }
            | Op::SetXattr { .. }
            | Op::Fallocate { .. }
            | Op::CopyRange { .. }
            | Op::WritePiece { .. }
            | Op::AllocatePiece { .. }
            | Op::PrepareMkdir { .. }
            | Op::PrepareExchange { .. }
            | Op::TakeDir { .. }
            | Op::Arrive
    )
}
