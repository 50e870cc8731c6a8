//! Requests of clients whose key is for what lies beneath one directory (docs/design/0027): each fid that such a request names
//! has to be known to lie there, or is a file that its session holds open.
//!
//! Directories are looked at from below. Where the way up leaves this set, the next one is asked, and the request waits; what
//! was found counts for [`KNOWN_FOR`] from when the question began. A file is known by a name: one that the session was told
//! here, or shows.
//!
//! Always true: what is not known to lie beneath the directory is refused before anything else is done for the request, and
//! like something that is not there; nothing here grows with the number of files.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::{ReplyTo, Request};
use crate::request::AdmittedRequest;
use crate::waiters::{Address, Waiter};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use core::time::Duration;
use ids::{Epoch, Fid, SessionId, SetId};
use namespace::Lineage;
use namespace::beneath::{self, FileName, Side, is_absent};
use replica::Outcome;
use wire::limits::DEPTH_MAX;
use wire::op::EntryName;
use wire::{Body, Errno, Fail, Name, Op, Reply};

/// How long it counts what was found of a directory.
const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Directories of which it is kept.
const DIRECTORIES: usize = 4096;
/// Names that are kept of a session; the oldest goes.
const NAMES: usize = 1024;
/// Sessions of which names are kept.
const SESSIONS: usize = 4096;
/// Requests of all sessions, and of one, that wait for other sets.
const WAITING: (usize, usize) = (64, 8);

/// A file by which name it was told to a session, or shown by it.
#[derive(Debug, Default)]
struct GivenNames {
    by_file: BTreeMap<Fid, (u64, FileName)>,
    by_age: BTreeMap<u64, Fid>,
    last: u64,
}

impl GivenNames {
    fn note(&mut self, fid: Fid, name: FileName) {
        self.forget(fid);
        self.last += 1;
        self.by_age.insert(self.last, fid);
        self.by_file.insert(fid, (self.last, name));
        if self.by_file.len() > NAMES
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_file.remove(&oldest);
        }
    }

    fn forget(&mut self, fid: Fid) {
        if let Some((age, _)) = self.by_file.remove(&fid) {
            self.by_age.remove(&age);
        }
    }
}

/// What is known of places.
#[derive(Debug, Default)]
pub(crate) struct Beneath {
    given: BTreeMap<SessionId, GivenNames>,
    /// Where directories are as this set sees it, by the key's directory; as of that many moves, that epoch and that time.
    near: BTreeMap<(Fid, Fid), Side>,
    near_of: Option<(u64, Epoch, Duration)>,
    /// Whether directories lie beneath the key's one, as the set has said that has the entry; until then.
    far: BTreeMap<(Fid, Fid, SetId), (bool, Duration)>,
    /// How many requests wait for other sets.
    waiting: BTreeMap<SessionId, usize>,
}

impl Beneath {
    /// A session was told that this name leads to that file, if names of it are kept.
    pub(crate) fn note_found(
        &mut self,
        session: SessionId,
        fid: Fid,
        (dir, name, home): (Fid, &Name, SetId),
    ) {
        if let Some(names) = self.given.get_mut(&session) {
            names.note(fid, FileName { at: EntryName { dir, name: name.clone() }, home });
        }
    }

    /// The session is gone for good.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.given.remove(&session);
    }

    /// This brick does not lead any more. Who waits for an answer still does.
    pub(crate) fn forget_all(&mut self) {
        *self = Beneath { waiting: core::mem::take(&mut self.waiting), ..Beneath::default() };
    }

    /// Names of the session are kept from now on.
    fn keep_names(&mut self, session: SessionId) {
        if self.given.len() >= SESSIONS && !self.given.contains_key(&session) {
            self.given.clear();
        }
        self.given.entry(session).or_default();
    }

    fn name_of(&self, session: SessionId, fid: Fid) -> Option<FileName> {
        self.given.get(&session)?.by_file.get(&fid).map(|(_, name)| name.clone())
    }

    fn forget_name(&mut self, session: SessionId, fid: Fid) {
        if let Some(names) = self.given.get_mut(&session) {
            names.forget(fid);
        }
    }

    /// Drops what this set has seen itself, if that may be another way by now.
    fn refresh(&mut self, now: Duration, moves: u64, epoch: Epoch) {
        let holds = |(m, e, since)| (m, e) == (moves, epoch) && now < since + KNOWN_FOR;
        if !self.near_of.is_some_and(holds) || self.near.len() >= DIRECTORIES {
            self.near.clear();
            self.near_of = Some((moves, epoch, now));
        }
    }

    fn far(&self, now: Duration, key: (Fid, Fid, SetId)) -> Side {
        match self.far.get(&key) {
            Some((inside, until)) if now < *until => {
                if *inside {
                    Side::Inside
                } else {
                    Side::Outside
                }
            }
            _ => Side::Ask(key.1, key.2),
        }
    }

    fn note_far(&mut self, now: Duration, key: (Fid, Fid, SetId), known: (bool, Duration)) {
        if self.far.len() >= DIRECTORIES {
            self.far.retain(|_, (_, until)| now < *until);
        }
        if self.far.len() >= DIRECTORIES {
            self.far.clear();
        }
        self.far.insert(key, known);
    }

    /// Whether one more request of the session may wait.
    fn begin_to_wait(&mut self, session: SessionId) -> bool {
        let (all, own) = (self.waiting.values().sum::<usize>(), self.waiting.get(&session).copied());
        let fits = all < WAITING.0 && own.unwrap_or(0) < WAITING.1;
        if fits {
            *self.waiting.entry(session).or_default() += 1;
        }
        fits
    }

    fn end_to_wait(&mut self, session: SessionId) {
        if let Some(own) = self.waiting.get_mut(&session) {
            *own -= 1;
            if *own == 0 {
                self.waiting.remove(&session);
            }
        }
    }
}

/// The directory beneath which all has to lie that a request names, and the session whose it is. Another set asks for a client of
/// its own.
fn within<R>(request: &Request<R>) -> Option<(Fid, SessionId)> {
    match (&request.call.op, request.beneath) {
        (_, Some(root)) => Some((root, request.session)),
        (Op::CheckRight { within: Some(within), .. }, None) => Some((within.root, within.session)),
        _ => None,
    }
}

/// A request that waits until it is known what lies above a directory.
#[derive(Debug)]
pub(crate) struct AboveAsked<R> {
    request: Request<R>,
    /// Whose it is.
    session: SessionId,
    /// What will be known: the key's directory, the one that is looked at, and the set that was asked first.
    key: (Fid, Fid, SetId),
    since: Duration,
    /// Who is asked about now, and how many directories were told.
    asked: Fid,
    told: usize,
}

impl<R> AboveAsked<R> {
    /// What an answer says.
    fn learn(&mut self, answer: Result<Body, Fail>) -> Result<Side, Fail> {
        match answer {
            Ok(Body::Lineage { own, other }) if own.is_empty() || own.first() == Some(&self.asked) => {
                self.told += own.len().max(1);
                let place = Side::of(self.key.0, &Lineage { own, other });
                if let Side::Ask(dir, _) = place {
                    self.asked = dir;
                }
                let endless = self.told > DEPTH_MAX && place != Side::Inside;
                Ok(if endless { Side::Outside } else { place })
            }
            Err(Fail::Errno { errno }) if is_absent(Errno(errno)) => Ok(Side::Outside),
            Ok(_) | Err(Fail::Errno { .. }) => Err(Fail::Busy),
            Err(fail) => Err(if matches!(fail, Fail::WrongView { .. }) { Fail::Busy } else { fail }),
        }
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The request, if all that it names may be asked for with its key. Else it is refused, or waits for another set's answer.
    pub(crate) fn look_beneath(&mut self, cx: &mut Cx<'_, B, R>, request: Request<R>) -> Option<Request<R>> {
        let Some((root, session)) = within(&request).filter(|_| self.is_primary()) else {
            return Some(request);
        };
        if request.beneath.is_some() {
            self.beneath.keep_names(session);
        }
        match self.place_of_request(cx.at.now, (root, session), &request) {
            Ok(Side::Inside) => Some(request),
            Ok(Side::Outside) => self.refuse_beneath(cx, request, Errno::ESTALE),
            Err(errno) => self.refuse_beneath(cx, request, errno),
            Ok(Side::Ask(dir, set)) => {
                if self.beneath.begin_to_wait(session) {
                    let (key, since) = ((root, dir, set), cx.at.now);
                    let asked = Box::new(AboveAsked { request, session, key, since, asked: dir, told: 0 });
                    self.ask(cx, Asking::Beneath(asked), set, Op::Lineage { fid: dir }, None);
                } else {
                    self.refuse(cx, Address::of(request.to), Fail::Busy);
                }
                None
            }
        }
    }

    /// What is refused here may stand on changes that are not committed.
    fn refuse_beneath(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: Request<R>,
        errno: Errno,
    ) -> Option<Request<R>> {
        let reply = Reply::errno(errno.0);
        self.reply_when_all_committed(cx, Waiter { reply, ..Waiter::done(Address::of(request.to)) });
        None
    }

    /// Another set has said what lies above a directory: the request is looked at again.
    pub(crate) fn on_above(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut asked: Box<AboveAsked<R>>,
        answer: Result<Body, Fail>,
    ) {
        let inside = match asked.learn(answer) {
            Ok(Side::Ask(fid, set)) => {
                return self.ask(cx, Asking::Beneath(asked), set, Op::Lineage { fid }, None);
            }
            Ok(place) => Ok(place == Side::Inside),
            Err(fail) => Err(fail),
        };
        let AboveAsked { request, session, key, since, .. } = *asked;
        self.beneath.end_to_wait(session);
        match inside {
            Ok(inside) => {
                self.beneath.note_far(cx.at.now, key, (inside, since + KNOWN_FOR));
                self.serve(cx, request);
            }
            Err(fail) => self.refuse(cx, Address::of(request.to), fail),
        }
    }

    /// Where all is that the request names.
    fn place_of_request(
        &mut self,
        now: Duration,
        (root, session): (Fid, SessionId),
        request: &Request<R>,
    ) -> Result<Side, Errno> {
        let op = &request.call.op;
        if let (Op::CheckRight { right, .. }, None) = (op, request.beneath) {
            return self.place_of(now, root, (session, right.object()));
        }
        beneath::permit(op)?;
        if let Op::Release { fid } = op {
            return Ok(if self.opens.holds(session, *fid) { Side::Inside } else { Side::Outside });
        }
        if let Op::Show { fid, dir, name, home, .. } = op {
            // Whoever tells a new primary of many files may have to tell them again.
            if self.holds_file(session, *fid) {
                return Ok(Side::Inside);
            }
            let name = FileName { at: EntryName { dir: *dir, name: name.clone() }, home: *home };
            let place = if self.is_of_volume(*home) {
                self.place_of_name(now, root, *fid, &name)?
            } else {
                Side::Outside
            };
            if place == Side::Inside {
                self.beneath.note_found(session, *fid, (*dir, &name.at.name, *home));
            }
            return Ok(place);
        }
        match op {
            Op::MoveIn { from, parent, to_parent, .. } if *from != self.set => {
                return match self.place_of_far(now, root, (*parent, *from)) {
                    Side::Inside => self.place_of(now, root, (session, *to_parent)),
                    other => Ok(other),
                };
            }
            // The file's own set is asked for it ([`crate::rights`]).
            Op::LinkIn { home, parent, .. } if *home != self.set => {
                return self.place_of(now, root, (session, *parent));
            }
            _ => {}
        }
        for fid in op.named().unwrap_or_default() {
            match self.place_of(now, root, (session, fid))? {
                Side::Inside => {}
                other => return Ok(other),
            }
        }
        Ok(Side::Inside)
    }

    /// Where a directory is that another set answers for, as a client says.
    fn place_of_far(&self, now: Duration, root: Fid, (dir, home): (Fid, SetId)) -> Side {
        if dir.is_names() || !self.is_of_volume(home) {
            return Side::Outside;
        }
        self.beneath.far(now, (root, dir, home))
    }

    /// Whether it is a set that may be asked.
    pub(crate) fn is_of_volume(&self, set: SetId) -> bool {
        set == self.set || self.settings.sets.iter().any(|(known, _)| *known == set)
    }

    /// Whether the session holds it open, and it is no directory.
    fn holds_file(&mut self, session: SessionId, fid: Fid) -> bool {
        self.opens.holds(session, fid) && self.brick.attr(fid).is_ok_and(|attr| !attr.is_dir())
    }

    fn place_of(
        &mut self,
        now: Duration,
        root: Fid,
        (session, fid): (SessionId, Fid),
    ) -> Result<Side, Errno> {
        // The session is told only where its file went that it holds open.
        if self.placing.moved_to(now, session, fid).is_some() {
            return Ok(Side::Inside);
        }
        let attr = match self.brick.attr(fid) {
            Ok(attr) if !fid.is_names() => attr,
            Err(e) if !is_absent(e) => return Err(e),
            _ => return Ok(Side::Outside),
        };
        if attr.is_dir() {
            return self.place_of_directory(now, root, fid);
        }
        if self.opens.holds(session, fid) {
            return Ok(Side::Inside);
        }
        let Some(name) = self.beneath.name_of(session, fid) else { return Ok(Side::Outside) };
        let place = self.place_of_name(now, root, fid, &name)?;
        if place == Side::Outside {
            self.beneath.forget_name(session, fid);
        }
        Ok(place)
    }

    /// Where the name is, if it leads to the file.
    fn place_of_name(&mut self, now: Duration, root: Fid, fid: Fid, name: &FileName) -> Result<Side, Errno> {
        if !beneath::leads(name, fid, self.set, &mut self.brick)? {
            return Ok(Side::Outside);
        }
        if name.home == self.set {
            self.place_of_directory(now, root, name.at.dir)
        } else {
            Ok(self.beneath.far(now, (root, name.at.dir, name.home)))
        }
    }

    fn place_of_directory(&mut self, now: Duration, root: Fid, dir: Fid) -> Result<Side, Errno> {
        self.beneath.refresh(now, self.tree.moves, self.replica.view().epoch);
        let near = match self.beneath.near.get(&(root, dir)) {
            Some(near) => *near,
            None => {
                let near = beneath::place(root, dir, &mut self.brick)?;
                self.beneath.near.insert((root, dir), near);
                near
            }
        };
        Ok(if let Side::Ask(dir, set) = near { self.beneath.far(now, (root, dir, set)) } else { near })
    }

    /// The answer to a request that was done before, if what it made is not known to be in its place still: it may be the
    /// session's no more, and the answer would show it, and hold it open.
    pub(crate) fn gone_beneath(
        &mut self,
        now: Duration,
        beneath: Option<Fid>,
        request: &AdmittedRequest<R>,
        outcome: &Outcome,
    ) -> Option<Reply> {
        let (root, Op::Create { parent, name, .. }) = (beneath?, &request.op) else { return None };
        let fid = outcome.result_fid?;
        let place = match self.brick.attr(fid) {
            // Its number is all that is told then.
            Err(e) if is_absent(e) => return None,
            Ok(_) if self.opens.holds(request.session, fid) => return None,
            Ok(attr) if attr.is_dir() => self.place_of_directory(now, root, fid),
            Ok(_) => {
                let at = EntryName { dir: *parent, name: name.clone() };
                self.place_of_name(now, root, fid, &FileName { at, home: self.set })
            }
            Err(e) => Err(e),
        };
        if place == Ok(Side::Inside) { None } else { self.answer_for_gone(&request.op, outcome) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::Lsn;

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn name(s: &str) -> Name {
        Name::new(s.as_bytes()).unwrap_or_else(|_| unreachable!("a name"))
    }

    #[test]
    fn names_are_kept_of_sessions_that_need_them_and_the_oldest_go() {
        let (one, other) = (SessionId(1), SessionId(2));
        let mut b = Beneath::default();
        b.keep_names(one);
        for n in 0..=NAMES as u64 {
            for session in [one, other] {
                b.note_found(session, fid(n), (fid(9), &name("a"), SetId(1)));
            }
        }
        assert!(b.name_of(one, fid(0)).is_none() && b.name_of(one, fid(1)).is_some());
        assert!(b.name_of(other, fid(1)).is_none(), "nothing is kept of it");
        b.forget_name(one, fid(1));
        assert!(b.name_of(one, fid(1)).is_none());
        b.end(one);
        assert!(b.given.is_empty());
    }

    #[test]
    fn what_was_found_counts_for_a_second() {
        let (mut b, now) = (Beneath::default(), Duration::from_secs(7));
        let (inside, outside) = ((fid(1), fid(2), SetId(2)), (fid(1), fid(3), SetId(2)));
        b.note_far(now, inside, (true, now + KNOWN_FOR));
        b.note_far(now, outside, (false, now + KNOWN_FOR));
        assert_eq!((b.far(now, inside), b.far(now, outside)), (Side::Inside, Side::Outside));
        let later = now + KNOWN_FOR;
        assert_eq!(b.far(later, inside), Side::Ask(fid(2), SetId(2)));
        assert_eq!(b.far(now, (fid(4), fid(2), SetId(2))), Side::Ask(fid(2), SetId(2)), "of another key");
        // What this set sees itself: until a directory moves, a new epoch, or as long.
        let near = |b: &mut Beneath| b.near.insert((fid(1), fid(2)), Side::Inside);
        for (now, moves, epoch, kept) in [
            (now, 1, 1, false),
            (now, 1, 1, true),
            (now, 2, 1, false),
            (now, 2, 2, false),
            (later, 2, 2, false),
        ] {
            b.refresh(now, moves, Epoch(epoch));
            assert_eq!(near(&mut b).is_some(), kept, "{now:?} {moves} {epoch}");
        }
    }

    #[test]
    fn few_requests_wait_for_other_sets() {
        let mut b = Beneath::default();
        let begun = |b: &mut Beneath, s| (0..WAITING.0).filter(|_| b.begin_to_wait(SessionId(s))).count();
        assert_eq!(begun(&mut b, 1), WAITING.1);
        let all: usize = (2..40).map(|s| begun(&mut b, s)).sum();
        assert_eq!(all, WAITING.0 - WAITING.1);
        b.end_to_wait(SessionId(1));
        assert_eq!(begun(&mut b, 50), 1);
    }
}
