//! Requests of clients whose key is for what lies beneath one directory (docs/design/0027): each fid that such a request names
//! has to be known to lie there, or is a file that its session holds open.
//!
//! Directories are looked at from below. Where the way up leaves this set, the next one is asked, and the request waits; what
//! was found counts for [`KNOWN_FOR`] from when the question began. A file is known by a name: one that the session was told
//! here, or shows.
//!
//! Always true: what is not known to lie beneath the directory is refused before anything else is done for the request, and
//! like something that is not there. What is kept is in [`crate::known_places`].

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::{ReplyTo, Request};
use crate::known_places::KNOWN_FOR;
use crate::request::AdmittedRequest;
use crate::waiters::{Address, Waiter};
use alloc::boxed::Box;
use core::time::Duration;
use ids::{Fid, SessionId, SetId};
use namespace::Lineage;
use namespace::beneath::{self, FileName, Side, is_absent};
use replica::Outcome;
use wire::limits::DEPTH_MAX;
use wire::op::EntryName;
use wire::{Body, Errno, Fail, Op, Reply};

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
            self.beneath.keep_names(session, root);
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
            // What a session holds open is its own: that it is one with this key was looked at when it came here itself.
            if !self.beneath.is_known(session, root) {
                return Ok(Side::Outside);
            }
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
        let name = FileName { home: self.home_now(name)?, ..name.clone() };
        if !beneath::leads(&name, fid, self.set, &mut self.brick)? {
            return Ok(Side::Outside);
        }
        if name.home == self.set {
            self.place_of_directory(now, root, name.at.dir)
        } else {
            Ok(self.beneath.far(now, (root, name.at.dir, name.home)))
        }
    }

    /// The set that answers for the directory of a name, which may be another one than when the name was shown
    /// ([`crate::hand_over`]): this one, or the one to which it gave the directory.
    fn home_now(&mut self, name: &FileName) -> Result<SetId, Errno> {
        match self.brick.attr(name.at.dir) {
            Ok(_) => Ok(self.set),
            Err(e) if !is_absent(e) => Err(e),
            Err(_) if name.home == self.set => {
                Ok(self.brick.attr_of_any(name.at.dir).map_or(name.home, |copy| copy.home))
            }
            Err(_) => Ok(name.home),
        }
    }

    fn place_of_directory(&mut self, now: Duration, root: Fid, dir: Fid) -> Result<Side, Errno> {
        self.beneath.refresh(now, self.tree.moves, self.replica.view().epoch);
        let near = match self.beneath.near(root, dir) {
            Some(near) => near,
            None => {
                let near = beneath::place(root, dir, &mut self.brick)?;
                self.beneath.note_near(root, dir, near);
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
