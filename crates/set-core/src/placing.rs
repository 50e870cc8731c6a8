//! Files that grow large as they are made, or for which their set has no room, go on as files of another set
//! (docs/design/0023).
//!
//! The request that would have a file grow waits while the file moves, small as it is, by the means of
//! [`crate::departures`]. Its session may have the file open, and is told where it lives from then on. If the file cannot
//! move the request is carried out here.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::file_move::FileMove;
use crate::io::ReplyTo;
use crate::opens::{CLAIM_TIME, Opens};
use crate::request::AdmittedRequest;
use crate::waiters::{Address, Waiter};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Fid, OpId, SessionId};
use namespace::placement::{self, Turns};
use replica::Outcome;
use wire::op::{Node, SetAttr};
use wire::{Attr, Body, Change, Fail, Name, Op, Reply};

/// Requests that wait at the same time, at most.
const WAITING: usize = 256;
/// Names of files that are being made that are remembered, at most, and of files that have moved.
const REMEMBERED: usize = 16_384;

/// A file that has moved.
#[derive(Clone, Copy, Debug)]
struct Moved {
    holder: SessionId,
    copy: Fid,
    until: Duration,
}

/// See the module.
pub(crate) struct Placing<R> {
    turns: Turns,
    /// The names of files that sessions have made, or looked up while there is no room, and may still hold open.
    names: BTreeMap<Fid, (Fid, Name)>,
    /// The requests that wait, by the numbers of their files' moves.
    waiting: BTreeMap<u64, AdmittedRequest<R>>,
    /// Where files went, for sessions that ask for them still.
    moved: BTreeMap<Fid, Moved>,
}

impl<R> Default for Placing<R> {
    fn default() -> Self {
        let (names, waiting, moved) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Placing { turns: Turns::default(), names, waiting, moved }
    }
}

impl<R> Placing<R> {
    /// A session has made a file, or found it.
    fn note(&mut self, fid: Fid, (parent, name): (Fid, &Name), opens: &Opens) {
        if self.names.len() >= REMEMBERED {
            self.names.retain(|fid, _| opens.is_open(*fid));
        }
        if self.names.len() < REMEMBERED {
            self.names.insert(fid, (parent, name.clone()));
        }
    }

    /// Nobody holds the file open any more.
    pub(crate) fn forget(&mut self, fid: Fid) {
        self.names.remove(&fid);
    }

    /// A file has another name, of those that this brick made or changed.
    pub(crate) fn renamed(&mut self, change: &Change) {
        if let Change::Rename { fid, to_parent, to_name, .. } = change
            && let Some(name) = self.names.get_mut(fid)
        {
            *name = (*to_parent, to_name.clone());
        }
    }

    /// The copy that a file of the session's has become, if it has moved a short time ago.
    pub(crate) fn moved_to(&self, now: Duration, session: SessionId, fid: Fid) -> Option<Fid> {
        let moved = self.moved.get(&fid).filter(|m| m.holder == session && now < m.until)?;
        Some(moved.copy)
    }

    fn note_moved(&mut self, now: Duration, fid: Fid, copy: Fid, holder: SessionId) {
        self.names.remove(&fid);
        if self.moved.len() >= REMEMBERED {
            self.moved.retain(|_, m| now < m.until);
        }
        if self.moved.len() < REMEMBERED {
            self.moved.insert(fid, Moved { holder, copy, until: now + CLAIM_TIME });
        }
    }
}

/// The file that an operation is about, by its fid: the one that is written to, if there are two.
fn file_of(op: &Op) -> Option<Fid> {
    match op {
        Op::Link { fid, .. } | Op::Fsync { fid } | Op::CopyRange { to: fid, .. } => Some(*fid),
        op => op.object(),
    }
}

/// What a request makes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    /// It ends there at least.
    AtLeast(u64),
    /// It gets so much longer.
    Longer(u64),
}

impl Length {
    /// Where a file of that size ends then, at least.
    pub(crate) fn end(self, size: u64) -> u64 {
        match self {
            Length::AtLeast(end) => end,
            Length::Longer(more) => size.saturating_add(more),
        }
    }
}

/// The file that the request may have grow, how, and whether that takes room.
pub(crate) fn length_after(op: &Op, payload: usize) -> Option<(Fid, Length, bool)> {
    /// fallocate(2) that makes no hole and moves nothing.
    const KEEP_SIZE: u32 = 1;
    match op {
        Op::Write { fid, append: true, .. } => Some((*fid, Length::Longer(payload as u64), true)),
        Op::Write { fid, offset, .. } => {
            Some((*fid, Length::AtLeast(offset.saturating_add(payload as u64)), true))
        }
        Op::Fallocate { fid, mode, offset, len } if *mode & !KEEP_SIZE == 0 => {
            Some((*fid, Length::AtLeast(offset.saturating_add(*len)), true))
        }
        Op::SetAttr { fid, set: SetAttr { size: Some(size), .. } } => {
            Some((*fid, Length::AtLeast(*size), false))
        }
        // Within the set data need not be copied at all.
        Op::CopyRange { to, .. } => Some((*to, Length::Longer(0), true)),
        _ => None,
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Answers a session that asks for a file which it holds open and which has moved; the request of all others.
    pub(crate) fn redirect_holder(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        if self.placing.moved.is_empty() && self.placing.waiting.is_empty() {
            return Some(request);
        }
        let Some(fid) = file_of(&request.op) else { return Some(request) };
        if self.departures.is_leaving_its_holder(fid) {
            self.refuse(cx, request.to, Fail::Busy);
            return None;
        }
        let Some(copy) = self.placing.moved_to(cx.at.now, request.session, fid) else { return Some(request) };
        tell(request.to, copy, cx);
        None
    }

    /// Begins to move the file that a request would have grow, if it should live elsewhere; otherwise the request.
    pub(crate) fn place_first(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        if !self.places() {
            return Some(request);
        }
        let Some((fid, length, takes_room)) = length_after(&request.op, request.payload.len()) else {
            return Some(request);
        };
        if self.departures.leaves_its_holder(fid) {
            // What it changes would be missing in the copy.
            self.refuse(cx, request.to, Fail::Busy);
            return None;
        }
        let is_full = takes_room && !self.has_room(self.min_free);
        if is_full && self.striping.is_at_work(fid) {
            // It has room on other sets in a moment.
            self.refuse(cx, request.to, Fail::Busy);
            return None;
        }
        let Some(file) = self.place_for(cx, (fid, length), is_full, request.session) else {
            return Some(request);
        };
        let number = self.depart_with(cx, file, Some(request.session), Duration::ZERO);
        self.placing.waiting.insert(number, request);
        None
    }

    /// Whether files are placed at all.
    pub(crate) fn places(&self) -> bool {
        self.settings.sets.len() > 1 && self.settings.large.is_some()
    }

    /// Where the file is to live, if that is another set.
    fn place_for(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        (fid, length): (Fid, Length),
        is_full: bool,
        session: SessionId,
    ) -> Option<(FileMove, Attr)> {
        let large = self.settings.large;
        let is_short = |end: u64| large.is_none_or(|large| end < large);
        if !is_full && matches!(length, Length::AtLeast(end) if is_short(end)) {
            return None;
        }
        let attr = self.brick.attr(fid).ok()?;
        let end = length.end(attr.size);
        let becomes_large = is_short(attr.size) && !is_short(end);
        if !(is_full || becomes_large) || !self.may_leave_its_holder(cx, &attr, session) {
            return None;
        }
        let (parent, name) = self.placing.names.get(&fid)?.clone();
        let entry = self.brick.lookup(parent, &name).ok()??;
        if (entry.fid, entry.home) != (fid, self.set) {
            return None;
        }
        let rooms = self.rooms(cx);
        let to = if is_full {
            placement::roomiest(self.set, &rooms)?.0
        } else {
            self.placing.turns.next(self.set, &rooms)?
        };
        (to != self.set).then_some((FileMove { parent, name, also: Vec::new(), to }, attr))
    }

    fn may_leave_its_holder(&mut self, cx: &Cx<'_, B, R>, attr: &Attr, session: SessionId) -> bool {
        let now = cx.at.now;
        attr.mode & 0o170_000 == 0o100_000
            && attr.nlink == 1
            && self.placing.waiting.len() < WAITING
            && !self.opens.may_be_open_besides(now, attr.fid, Some(session))
            && !self.departures.arrivals.are_under_way(now, attr.fid)
            && !self.departures.moves(attr.fid)
            && !self.may_be_striped(attr.fid)
            && !self.striping.is_at_work(attr.fid)
            && !self.is_held(now, attr)
    }

    /// A session has made a file and holds it open.
    pub(crate) fn note_made(&mut self, change: &Change) {
        if let Change::Create { parent, name, fid, node: Node::File, .. } = change
            && self.places()
            && self.opens.is_open(*fid)
        {
            self.placing.note(*fid, (*parent, name), &self.opens);
        }
    }

    /// A session looks a file up, perhaps to open it and write.
    pub(crate) fn note_found(&mut self, fid: Fid, at: (Fid, &Name)) {
        if self.places() && !self.has_room(self.min_free) {
            self.placing.note(fid, at, &self.opens);
        }
    }

    /// The name of the request that has the file move: the move is its outcome.
    pub(crate) fn asked_by(&self, number: u64) -> Option<OpId> {
        self.placing.waiting.get(&number).map(|request| request.id)
    }

    /// The file has moved.
    pub(crate) fn on_moved(&mut self, cx: &mut Cx<'_, B, R>, number: u64, fid: Fid, copy: Fid) {
        let Some(request) = self.placing.waiting.remove(&number) else { return };
        self.opens.remove(request.session, fid);
        self.placing.note_moved(cx.at.now, fid, copy, request.session);
        tell(request.to, copy, cx);
    }

    /// The file stays: what was asked is done here, unless it is not known whether it stays.
    pub(crate) fn on_stayed(&mut self, cx: &mut Cx<'_, B, R>, number: u64, why: &Fail) {
        let Some(request) = self.placing.waiting.remove(&number) else { return };
        let is_certain = matches!(why, Fail::Errno { .. }) || !self.transactions_serve(&request);
        match self.admit_again(cx, request.id) {
            Ok(()) if is_certain => {
                // It may have become striped meanwhile.
                if let Some(request) = self.look_at_stripes(cx, request) {
                    self.change_here(cx, request);
                }
            }
            Ok(()) => self.refuse(cx, request.to, Fail::Busy),
            Err(fail) => self.refuse(cx, request.to, fail),
        }
    }

    fn transactions_serve(&self, request: &AdmittedRequest<R>) -> bool {
        self.transactions.serves(self.replica.view().epoch, request.id)
    }

    /// This brick leads no more.
    pub(crate) fn clear_placing(&mut self, cx: &mut Cx<'_, B, R>) {
        let epoch = self.replica.view().epoch;
        for request in core::mem::take(&mut self.placing).waiting.into_values() {
            self.refuse(cx, request.to, Fail::WrongView { epoch });
        }
    }

    /// A request whose outcome was that its file moved, as an earlier answer said or would have said: the file, if so.
    pub(crate) fn has_moved_it(&self, op: &Op, outcome: &Outcome) -> Option<Fid> {
        let (fid, copy) = (length_after(op, 0)?.0, outcome.result_fid?);
        (copy != fid && copy.set != self.set).then_some(copy)
    }

    /// Answers such a request once more, when the entry is on disk.
    pub(crate) fn redirect_again(&mut self, cx: &mut Cx<'_, B, R>, to: Address<R>, copy: Fid) {
        let waiter = Waiter { reply: Reply(Ok(Body::Moved { fid: copy })), ..Waiter::done(to) };
        let entered = Asking::EnteredOnDisk(Box::new(waiter), Vec::new());
        self.ask(cx, entered, self.set, Op::SyncFs, None);
    }

    /// The session that may hold the file open which is to leave.
    pub(crate) fn holder_for(&self, op: &Op) -> Option<SessionId> {
        if let Op::Depart { fid, copy, .. } = op { self.departures.holder(*fid, *copy) } else { None }
    }
}

fn tell<B: LocalBrick, R: ReplyTo>(mut to: Address<R>, copy: Fid, cx: &mut Cx<'_, B, R>) {
    to.grant = 0;
    to.reply(Reply(Ok(Body::Moved { fid: copy })), bytes::Bytes::new(), cx.out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SetId};

    #[test]
    fn what_makes_a_file_grow() {
        let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let write = |offset, append| Op::Write { fid, offset, append, kill_suid: false };
        let fallocate = |mode| Op::Fallocate { fid, mode, offset: 8, len: 100 };
        assert_eq!(length_after(&write(5, false), 10), Some((fid, Length::AtLeast(15), true)));
        assert_eq!(length_after(&write(5, true), 10), Some((fid, Length::Longer(10), true)));
        assert_eq!(length_after(&write(u64::MAX, false), 10), Some((fid, Length::AtLeast(u64::MAX), true)));
        assert_eq!(length_after(&fallocate(0), 0), Some((fid, Length::AtLeast(108), true)));
        assert_eq!(length_after(&fallocate(1), 0), Some((fid, Length::AtLeast(108), true)));
        assert_eq!(length_after(&fallocate(3), 0), None, "a hole");
        assert_eq!(length_after(&Op::Open { fid }, 0), None);
    }
}
