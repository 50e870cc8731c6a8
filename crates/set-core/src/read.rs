//! Requests that change nothing.

use crate::answer::Answer;
use crate::brick::{DirPage, LocalBrick, Read};
use crate::core::{Cx, Later, Purpose, SetCore};
use crate::hand_over::HAND_OVER;
use crate::io::{Done, ReplyTo};
use crate::request::AdmittedRequest;
use crate::stripes::FileKind;
use crate::waiters::{Address, Waiter};
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Fid, SessionId, SetId};
use namespace::lock_right::Held;
use replica::Input;
use wire::limits::{DIR_PAGE, GETATTRS_MAX, IO_MAX};
use wire::op::{Ancestor, LockClaim};
use wire::reply::Room;
use wire::{Attr, Body, Errno, Fail, Name, Op, Reply};

/// A page of a directory that is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    fid: Fid,
    cookie: u64,
    plus: bool,
    /// About how long.
    bytes: usize,
}

/// About how long a page is whose names have to be looked up: each costs system calls, while others wait.
const UNKNOWN: usize = DIR_PAGE as usize / 8;

/// Objects that are read from the disk for one answer: others wait meanwhile.
const LOADS_MAX: usize = 16;

/// Of a set that is to be emptied: nobody shall count on it.
const NO_ROOM: Room = Room { total: 0, free: 0, available: 0, files: 0, files_free: 0 };

fn plain(body: Body) -> (Body, Bytes) {
    (body, Bytes::new())
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    pub(crate) fn serve_read(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        let Some(request) = self.look_at_stripes(cx, request) else { return };
        let Some(request) = self.serve_piece(cx, request) else { return };
        let AdmittedRequest { op, to, session, .. } = request;
        let (objects, answer) = match op {
            Op::Read { fid, offset, len } => return self.serve_data(cx, fid, offset, len.min(IO_MAX), to),
            Op::Fsync { fid } => match self.brick.attr_of_any(fid) {
                Ok(_) => return self.sync_file(cx, fid, to),
                // Nothing of it can be made durable: not even that it exists.
                Err(e) => (one(fid), Err(e)),
            },
            Op::SyncFs => return self.sync_for(cx, None, to),
            Op::ReadDir { fid, .. } if self.pending.holds_names(fid) => {
                return self.refuse(cx, to, Fail::Busy);
            }
            Op::ReadDir { fid, cookie, plus } => {
                return self.begin_page(cx, Page { fid, cookie, plus, bytes: DIR_PAGE as usize }, to);
            }
            Op::Open { fid } | Op::Show { fid, open: true, .. } => self.open(session, fid),
            Op::Show { fid, .. } => (one(fid), self.brick.attr(fid).map(|_| plain(Body::Done))),
            Op::Release { fid } => {
                if self.opens.remove(session, fid) {
                    self.placing.forget(fid);
                    self.later.push_back(Later::DropOrphan(fid));
                }
                (Vec::new(), Ok(plain(Body::Done)))
            }
            Op::CheckEntry { .. } | Op::CheckOutcome { .. } | Op::CheckName { .. } => {
                match self.outcome(op) {
                    Some(told) => told,
                    None => return self.refuse(cx, to, Fail::Busy),
                }
            }
            Op::CheckMark { fid, tx } => (one(fid), self.check_mark(fid, tx)),
            Op::CheckGiven { fid, tx, to } => (one(fid), self.check_given(fid, tx, to)),
            Op::CheckOwner { fid, set } => (one(fid), self.check_owner(set, fid)),
            Op::CheckRight { right, user, within: _ } => self.check_right(cx.at.now, &right, user),
            Op::LockTree { tx } => {
                let epoch = self.replica.view().epoch;
                if !self.tree.lock.take(cx.at.now, epoch, tx) {
                    return self.refuse(cx, to, Fail::Busy);
                }
                (Vec::new(), Ok(plain(Body::Done)))
            }
            Op::HoldLocks { term, claim } => {
                (Vec::new(), self.hold_locks(cx.at.now, (session, term), &claim))
            }
            Op::DropLocks { term } => {
                self.lock_right.release(cx.at.now, (session, term));
                (Vec::new(), Ok(plain(Body::Done)))
            }
            Op::UnlockTree { tx } => {
                self.tree.lock.release(cx.at.now, tx);
                (Vec::new(), Ok(plain(Body::Done)))
            }
            Op::GetAttr { fid } => (one(fid), self.attr_or_home(cx.at.now, fid)),
            Op::GetAttrs { fids } => self.attrs(cx.at.now, session, fids),
            Op::Lookup { parent, name } => self.lookup((cx.at.now, session), parent, &name),
            Op::Lineage { fid } => self.lineage(cx.at.now, fid),
            op => self.look(op),
        };
        if answer == Err(Errno::EAGAIN) {
            return self.refuse(cx, to, Fail::Busy);
        }
        self.reply_when_committed(cx, to, objects, answer);
    }

    fn begin_page(&mut self, cx: &mut Cx<'_, B, R>, page: Page, to: Address<R>) {
        // What lies in another set's directory here is no listing of it.
        if let Err(e) = self.brick.attr(page.fid) {
            return self.refuse_look(cx, to, page.fid, e);
        }
        match self.brick.begin_list(page.fid) {
            Some(work) => self.start(cx, Purpose::List(page, to), Ok(work)),
            None => self.prepare_shown_page(cx, page, to),
        }
    }

    /// There is nothing to look at, or it is not certain yet.
    fn refuse_look(&mut self, cx: &mut Cx<'_, B, R>, to: Address<R>, fid: Fid, e: Errno) {
        if e == Errno::EAGAIN {
            self.find_marked(cx.at.now, fid);
            return self.refuse(cx, to, Fail::Busy);
        }
        self.reply_when_committed(cx, to, one(fid), Err(e));
    }

    /// A page of a directory whose names are at hand. What they lead to may have to be read from the disk, one by one.
    pub(crate) fn prepare_shown_page(&mut self, cx: &mut Cx<'_, B, R>, page: Page, to: Address<R>) {
        let Page { fid, cookie, plus, bytes } = page;
        match self.brick.readdir_known(fid, cookie, plus, bytes) {
            Ok(None) => {}
            Ok(Some(known)) => return self.reply_page(cx, to, Ok(known)),
            Err(e) => return self.reply_page(cx, to, Err(e)),
        }
        let page = Page { bytes: UNKNOWN, ..page };
        match self.brick.begin_page(fid, cookie, plus, UNKNOWN) {
            Some(work) => self.start(cx, Purpose::ListPage(page, to), Ok(work)),
            None => self.show_page(cx, page, to),
        }
    }

    /// What a page leads to is in memory. The names themselves may have left it meanwhile.
    pub(crate) fn show_read_page(&mut self, cx: &mut Cx<'_, B, R>, page: Page, to: Address<R>) {
        match self.brick.begin_list(page.fid) {
            Some(work) => self.start(cx, Purpose::List(page, to), Ok(work)),
            None => self.show_page(cx, page, to),
        }
    }

    /// A page of a directory of which all is at hand.
    pub(crate) fn show_page(&mut self, cx: &mut Cx<'_, B, R>, page: Page, to: Address<R>) {
        let Page { fid, cookie, plus, bytes } = page;
        let read = self.brick.readdir(fid, cookie, plus, bytes);
        self.reply_page(cx, to, read);
    }

    fn reply_page(&mut self, cx: &mut Cx<'_, B, R>, to: Address<R>, page: Result<DirPage, Errno>) {
        let reply = match page {
            Ok(DirPage { mut entries, end, marked }) => {
                // What is about to get or lose a name is asked for by itself, and waits then.
                for e in &mut entries {
                    let asked = |attr: &&Attr| marked || attr.is_dir();
                    if e.attr.as_ref().filter(asked).is_some_and(|attr| self.is_held(cx.at.now, attr)) {
                        e.attr = None;
                    }
                }
                Reply(Ok(Body::Page { entries, end }))
            }
            Err(e) => Reply::errno(e.0),
        };
        self.reply_when_all_committed(cx, Waiter::with(to, reply, Bytes::new()));
    }

    /// What lies above a directory, up to one that is to move: that may lie beneath something else when the answer is used, so
    /// who asks further has to wait.
    fn lineage(&mut self, now: Duration, fid: Fid) -> (Vec<Fid>, Answer) {
        let mut l = match self.brick.lineage(fid) {
            Ok(l) => l,
            Err(e) => return (one(fid), Err(e)),
        };
        match l.own.iter().position(|fid| self.brick.is_pending(*fid) != Ok(false)) {
            None => {}
            Some(0) => {
                self.find_marked_above(now, fid);
                return (one(fid), Err(Errno::EAGAIN));
            }
            Some(marked) => {
                l.own.truncate(marked + 1);
                l.other = l.own.last().map(|fid| (*fid, self.set));
            }
        }
        (l.own.clone(), Ok(plain(Body::Lineage { own: l.own, other: l.other })))
    }

    /// What only the brick has to be asked for.
    fn look(&mut self, op: Op) -> (Vec<Fid>, Answer) {
        let (brick, drains) = (&mut self.brick, self.settings.rebalance.drains);
        match op {
            Op::ReadLink { fid } => (one(fid), brick.readlink(fid).map(|t| (Body::Data, Bytes::from(t)))),
            Op::StatFs if drains => (Vec::new(), Ok(plain(Body::Room { room: NO_ROOM }))),
            Op::StatFs => (Vec::new(), brick.room().map(|room| plain(Body::Room { room }))),
            Op::GetXattr { fid, name } => {
                let value = brick.xattr(fid, &name).and_then(|v| v.ok_or(Errno::ENODATA));
                (one(fid), value.map(|v| (Body::Data, Bytes::from(v))))
            }
            Op::ListXattr { fid } => {
                (one(fid), brick.listxattr(fid).map(|names| plain(Body::Names { names })))
            }
            Op::Lseek { fid, offset, whence } => {
                let found = brick.lseek(fid, offset, whence);
                (one(fid), found.map(|offset| plain(Body::Offset { offset })))
            }
            Op::PathOf { fid } => path_of(brick, fid),
            _ => (Vec::new(), Err(Errno::EINVAL)),
        }
    }

    /// The attributes of an object. A file waits whose names are about to change: so does the number of its links. So does a
    /// directory from which one is about to go: whoever has its listing keeps it as long as its times are the same.
    fn unmarked_attr(&mut self, now: Duration, fid: Fid) -> Answer {
        let attr = self.brick.attr(fid)?;
        if self.is_held(now, &attr) {
            return Err(Errno::EAGAIN);
        }
        Ok(plain(Body::Attr { attr }))
    }

    /// The attributes of an object, or which set has the directory by now, as far as this one knows that gave it away or has a copy.
    fn attr_or_home(&mut self, now: Duration, fid: Fid) -> Answer {
        let answer = self.unmarked_attr(now, fid);
        if answer == Err(Errno::ESTALE) && self.settings.level >= HAND_OVER && !fid.is_names() {
            let copy = self.brick.attr_of_any(fid).ok().filter(|copy| copy.is_dir() && copy.home != self.set);
            let found =
                copy.map(|Attr { home, mode, .. }| Body::Elsewhere { fid, home, kind: mode & 0o170_000 });
            return found.map(plain).ok_or(Errno::ESTALE);
        }
        answer
    }

    /// Attributes of several objects, in their order. What is gone, moves, or is about to get or lose a name is left out: it
    /// is asked for by itself. The answer ends early if much has to be read from the disk.
    fn attrs(&mut self, now: Duration, session: SessionId, fids: Vec<Fid>) -> (Vec<Fid>, Answer) {
        if fids.len() > GETATTRS_MAX {
            return (Vec::new(), Err(Errno::EINVAL));
        }
        let (mut found, mut attrs, mut loads) = (Vec::new(), Vec::new(), 0);
        for fid in fids {
            loads += usize::from(!self.brick.is_loaded(fid));
            if loads > LOADS_MAX {
                break;
            }
            if self.departures.is_leaving_its_holder(fid)
                || self.placing.moved_to(now, session, fid).is_some()
            {
                continue;
            }
            match self.brick.attr(fid) {
                Ok(attr) if self.is_held(now, &attr) => {}
                Ok(attr) => {
                    found.push(fid);
                    attrs.push(attr);
                }
                Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return (one(fid), Err(e)),
            }
        }
        (found, Ok(plain(Body::Attrs { attrs })))
    }

    pub(crate) fn is_held(&mut self, now: Duration, attr: &Attr) -> bool {
        let is_held = attr.is_dir() && (self.pending.holds_names(attr.fid) || self.may_be_removed(attr.fid));
        is_held || self.waits_for_names(now, attr.fid)
    }

    /// Whether another set may have removed the entry of a directory, and this one has not heard yet. One that holds something stays.
    fn may_be_removed(&mut self, dir: Fid) -> bool {
        // A power cut may have taken the record of the end, and not the end.
        let is_marked = self.pending.removes(dir) && self.brick.is_pending(dir) == Ok(true);
        is_marked && self.brick.is_empty(dir) == Ok(true)
    }

    /// Whether it looks at such a directory, or changes it.
    pub(crate) fn is_about_one_that_goes(&mut self, op: &Op) -> bool {
        match op {
            Op::GetAttr { fid }
            | Op::ReadDir { fid, .. }
            | Op::SetAttr { fid, .. }
            | Op::GetXattr { fid, .. }
            | Op::ListXattr { fid }
            | Op::SetXattr { fid, .. }
            | Op::RemoveXattr { fid, .. } => self.may_be_removed(*fid),
            _ => false,
        }
    }

    fn lookup(
        &mut self,
        (now, session): (Duration, SessionId),
        parent: Fid,
        name: &Name,
    ) -> (Vec<Fid>, Answer) {
        match self.brick.lookup(parent, name) {
            // Its home may have heard already that the name goes.
            Ok(Some(e)) if e.home != self.set && self.waits_for_names(now, e.fid) => {
                (one(parent), Err(Errno::EAGAIN))
            }
            Ok(Some(e)) if e.home != self.set => {
                (one(parent), Ok(plain(Body::Elsewhere { fid: e.fid, home: e.home, kind: e.kind })))
            }
            Ok(Some(e)) => {
                self.note_found(e.fid, (parent, name));
                if !e.is_dir() {
                    self.beneath.note_found(session, e.fid, (parent, name, self.set));
                }
                let answer = self.unmarked_attr(now, e.fid);
                ([parent, e.fid].into(), answer)
            }
            Ok(None) => (one(parent), Err(Errno::ENOENT)),
            Err(e) => (one(parent), Err(e)),
        }
    }

    /// `EAGAIN`: it is not known yet.
    fn hold_locks(&mut self, now: Duration, term: (SessionId, u64), claim: &LockClaim) -> Answer {
        match self.lock_right.hold(now, term, claim) {
            Held::Given => Ok(plain(Body::Done)),
            Held::Taken => Err(Errno::ENOLCK),
            Held::Wait => Err(Errno::EAGAIN),
        }
    }

    fn open(&mut self, session: SessionId, fid: Fid) -> (Vec<Fid>, Answer) {
        let answer = self.brick.attr(fid).map(|attr| plain(Body::Attr { attr }));
        if answer.is_ok() {
            self.opens.add(session, fid);
        }
        (one(fid), answer)
    }

    /// Where the entry of another set's directory is, if it is not where that set takes it to be: it was renamed here.
    fn moved_entry(&mut self, parent: Fid, name: &Name, fid: Fid) -> Option<(Fid, Name)> {
        let at = self.brick.location_of(fid).ok()?;
        let entry = self.brick.lookup(at.parent, &at.name).ok()??;
        let leads = entry.fid == fid && entry.is_dir() && entry.home != self.set;
        (leads && (at.parent, &at.name) != (parent, name)).then_some((at.parent, at.name))
    }

    /// Whether there is an entry that a transaction was about; `None` while one may still commit, or while others hear of one.
    fn outcome(&mut self, op: Op) -> Option<(Vec<Fid>, Answer)> {
        let (parent, name, fid, tx) = match op {
            Op::CheckEntry { parent, name, fid } => (parent, name, fid, None),
            Op::CheckOutcome { parent, name, fid, tx } | Op::CheckName { parent, name, fid, tx } => {
                (parent, name, fid, Some(tx))
            }
            _ => return None,
        };
        match self.is_on_its_way(parent, &name, fid) {
            Ok(false) => {}
            Ok(true) => return None,
            Err(e) => return Some((one(fid), Err(e))),
        }
        let epoch = self.replica.view().epoch;
        let moved = self.moved_entry(parent, &name, fid);
        let may_commit = |(dir, name): &(Fid, Name)| self.transactions.may_commit(epoch, *dir, name);
        let told = (parent, name);
        if moved.iter().chain([&told]).any(may_commit) {
            return None;
        }
        let (parent, name) = moved.unwrap_or(told);
        if self.is_to_go(parent, &name, fid, tx) {
            return None;
        }
        if parent.is_names() && self.brick.attr(fid).is_ok_and(|attr| attr.is_dir()) {
            let set = self.set_of(parent.without_names());
            return Some((one(fid), self.check_owner(set, fid)));
        }
        Some(self.check_entry(parent, &name, fid))
    }

    /// Whether the entry of a directory of this set is still one of that set. Each directory has one entry.
    fn check_owner(&mut self, set: SetId, fid: Fid) -> Answer {
        let other = self.brick.lineage(fid)?.other;
        let there = other.is_some_and(|(at, owner)| at == fid && owner == set);
        if there { Ok(plain(Body::Done)) } else { Err(Errno::ENOENT) }
    }

    /// Whether the entry exists that another set's directory needs.
    fn check_entry(&mut self, parent: Fid, name: &Name, fid: Fid) -> (Vec<Fid>, Answer) {
        let there = match self.brick.lookup(parent, name) {
            Ok(entry) => Ok(entry.is_some_and(|e| e.fid == fid)),
            // The parent is gone, and it was empty.
            Err(Errno::ESTALE) => Ok(false),
            Err(e) => Err(e),
        };
        let answer = there.and_then(|t| if t { Ok(plain(Body::Done)) } else { Err(Errno::ENOENT) });
        ([parent, fid].into(), answer)
    }

    /// Who syncs a striped file is told that it is one: what lies elsewhere is to be synced there.
    fn sync_file(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, to: Address<R>) {
        let striped = self.kind_of(fid) == Ok(FileKind::Striped);
        let layout = striped.then(|| self.brick.stripes(fid).ok().flatten()).flatten().map(|s| s.layout);
        let told = layout.map_or(Body::Done, |layout| Body::Offset { offset: layout.generation });
        let ticket = self.waiters.issue(Waiter::with(to, Reply(Ok(told)), Bytes::new()));
        self.feed(cx, Input::Sync { ticket, fid: Some(fid) });
    }

    fn sync_for(&mut self, cx: &mut Cx<'_, B, R>, fid: Option<Fid>, to: Address<R>) {
        let ticket = self.waiters.issue(Waiter::done(to));
        self.feed(cx, Input::Sync { ticket, fid });
    }

    /// File data: from the page cache at once, else by work that may wait for the disk.
    pub(crate) fn serve_data(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        fid: Fid,
        offset: u64,
        len: u32,
        to: Address<R>,
    ) {
        match self.brick.read(fid, offset, len) {
            Ok(Read::Data(data)) => self.reply_when_committed(cx, to, one(fid), Ok((Body::Data, data))),
            Ok(Read::Work(work)) => self.start(cx, Purpose::Read(fid, to), Ok(work)),
            Err(e) => self.reply_when_committed(cx, to, one(fid), Err(e)),
        }
    }

    pub(crate) fn on_read(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        fid: Fid,
        to: Address<R>,
        read: Result<Done, Errno>,
    ) {
        let answer = match read {
            Ok(Done::Data(data)) => Ok((Body::Data, data)),
            Ok(_) => Err(Errno::EIO),
            Err(e) => Err(e),
        };
        self.reply_when_committed(cx, to, one(fid), answer);
    }
}

fn one(fid: Fid) -> Vec<Fid> {
    [fid].into()
}

/// The entries that lead to a directory, as far up as they are this set's.
fn path_of<B: LocalBrick>(brick: &mut B, dir: Fid) -> (Vec<Fid>, Answer) {
    let lineage = match brick.lineage(dir) {
        Ok(lineage) => lineage,
        Err(e) => return (one(dir), Err(e)),
    };
    let known = lineage.own.len() - usize::from(lineage.other.is_some());
    let names = lineage.own.iter().take(known).map(|fid| {
        let at = brick.location_of(*fid)?;
        Ok(Ancestor { fid: *fid, home: at.home, name: at.name })
    });
    let path = names.collect::<Result<Vec<_>, Errno>>();
    (lineage.own, path.map(|path| plain(Body::Path { path, other: lineage.other })))
}
