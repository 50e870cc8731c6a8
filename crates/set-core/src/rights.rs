//! What clients may do that are not trusted to have looked, where another set knows it (docs/design/0021): it is asked before
//! anything begins. That is its own part of a rename, of an exchange or of a link that this set coordinates, and what it knows of
//! an object to which an entry of this set leads. Whoever may take a name out of a directory may put another thing there. What was
//! found has to be so still when the entry is decided: which object it is about, and all that this set knows itself.
//!
//! Always true: nothing is decided for such a client that one of the sets has not allowed, each for what it answers for.

use crate::answer::Answer;
use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::joint::is_gone;
use crate::moves::DIR;
use crate::request::AdmittedRequest;
use crate::waiters::Address;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Epoch, Fid};
use namespace::permission::{self, Question, Refusal};
use namespace::rights;
use wire::rights::{Person, Right, STICKY, Within};
use wire::{Attr, Body, Errno, Fail, Op, User};

/// Questions for one request. A rename needs four at most; more come about only if names change in between.
const MOST: usize = 8;

/// What a client may, as far as other sets have said it.
#[derive(Debug)]
pub(crate) struct Permit {
    /// Whose permissions count.
    user: Option<User>,
    /// Only what lies beneath this directory may be named.
    beneath: Option<Fid>,
    /// What other sets have allowed, and what they are to be asked yet.
    known: Vec<Right>,
    open: Vec<Question>,
    /// Of a rename, exchange or link between sets: what may get the new name, and nothing else.
    object: Option<Fid>,
    /// A set has said that it does not have the object of this question.
    gone: Option<Question>,
}

impl Permit {
    /// `None`: the client is trusted.
    pub(crate) fn of(user: Option<User>, beneath: Option<Fid>) -> Option<Permit> {
        let is_limited = user.is_some() || beneath.is_some();
        let (known, open) = (Vec::new(), Vec::new());
        is_limited.then_some(Permit { user, beneath, known, open, object: None, gone: None })
    }

    /// Whether permissions count.
    pub(crate) fn is_of_user(&self) -> bool {
        self.user.is_some()
    }

    /// What the other set of a rename, exchange or link is asked first.
    fn first_question(&self, op: &Op) -> Option<Question> {
        let (set, right) = match op {
            _ if self.object.is_some() => return None,
            Op::MoveIn { from, parent, name, .. } if self.user.is_some() => {
                (*from, Right::Leave { dir: *parent, name: name.clone() })
            }
            Op::LinkIn { fid, home, .. } => (*home, Right::Link { fid: *fid }),
            _ => return None,
        };
        Some(Question { set, right, otherwise: Errno::EXDEV })
    }

    /// Takes a set's answer.
    fn learn(&mut self, question: Question, answer: Answer) -> Result<(), Errno> {
        let Question { set, ref right, otherwise } = question;
        match (right, answer.map(|(body, _)| body)) {
            (Right::Leave { .. }, Ok(Body::Elsewhere { fid, home, kind })) => {
                self.object = Some(fid);
                if home != set {
                    let ask = |right, otherwise| Question { set: home, right, otherwise };
                    let owns = ask(Right::Own { fid }, Errno::EPERM);
                    let writes = ask(Right::Move { fid }, Errno::EXDEV);
                    let wanted = [(kind & STICKY != 0, owns), (kind & !STICKY == DIR, writes)];
                    self.open.extend(wanted.into_iter().filter(|(is, _)| *is).map(|(_, question)| question));
                }
                Ok(())
            }
            (Right::Link { fid }, Ok(Body::Done)) => {
                self.object = Some(*fid);
                Ok(())
            }
            (Right::Move { .. } | Right::Own { .. }, Ok(Body::Done)) => {
                self.known.push(question.right);
                Ok(())
            }
            (_, Ok(_)) => Err(Errno::EIO),
            // An older server does not know the question.
            (_, Err(Errno::EINVAL)) => Err(otherwise),
            (Right::Move { .. } | Right::Own { .. }, Err(e)) if is_gone(e.0) => self.look_again(question),
            (_, Err(e)) => Err(e),
        }
    }

    /// A set does not have an object that a name led to when that was looked at: it may have gone since, with the name, or another
    /// set may answer for it by now. So the name is looked at once more. If it leads there still its set has lost the object, and only
    /// the name is left.
    fn look_again(&mut self, question: Question) -> Result<(), Errno> {
        match &self.gone {
            None => {
                (self.object, self.gone) = (None, Some(question));
                self.open.clear();
                Ok(())
            }
            Some(gone) if *gone == question => match question.right {
                Right::Move { .. } => Err(Errno::ENOENT),
                _ => Err(question.otherwise),
            },
            Some(_) => Err(Errno::EAGAIN),
        }
    }
}

/// A request that waits for another set's word.
#[derive(Debug)]
pub(crate) struct RightAsked<R> {
    request: AdmittedRequest<R>,
    /// When it was let in.
    epoch: Epoch,
    question: Question,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The request, if its client may have it. Else it is refused, or waits for another set's answer.
    pub(crate) fn permitted(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        loop {
            let question = match self.what_is_open(cx, &mut request) {
                Ok(None) => return Some(request),
                Ok(Some(question)) => question,
                Err(fail) => {
                    self.refuse_right(cx, request.to, fail);
                    return None;
                }
            };
            if question.set != self.set {
                self.send_right(cx, request, question);
                return None;
            }
            // What another set has told of lives here.
            let user = request.permit.as_ref().and_then(|permit| permit.user.as_ref()).map(Person::from);
            let (_, answer) = self.check_right(cx.at.now, &question.right, user);
            let learnt = request.permit.as_mut().map_or(Ok(()), |permit| permit.learn(question, answer));
            if let Err(e) = learnt {
                self.refuse_right(cx, request.to, e.into());
                return None;
            }
        }
    }

    /// What has to be asked yet before the request may go on.
    fn what_is_open(
        &mut self,
        cx: &Cx<'_, B, R>,
        request: &mut AdmittedRequest<R>,
    ) -> Result<Option<Question>, Fail> {
        let AdmittedRequest { op, permit: Some(permit), .. } = request else { return Ok(None) };
        if let Some(user) = &permit.user {
            match permission::check(user, op, self.set, &mut self.brick, &permit.known) {
                Ok(()) => {}
                Err(Refusal::Errno(Errno::EAGAIN)) => {
                    self.find_marked_named(cx.at.now, op);
                    return Err(Fail::Busy);
                }
                Err(Refusal::Errno(e)) => return Err(e.into()),
                Err(Refusal::Ask(question)) if permit.known.len() < MOST => return Ok(Some(question)),
                Err(Refusal::Ask(_)) => return Err(Fail::Busy),
            }
        }
        if let Some(question) = permit.open.pop() {
            return Ok(Some(question));
        }
        // A set that is named wrongly is refused as such, and one of another volume is not asked.
        match permit.first_question(op).filter(|question| question.set != self.set) {
            Some(question) if !self.is_of_volume(question.set) => Err(Errno::ESTALE.into()),
            question => Ok(question),
        }
    }

    fn send_right(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>, question: Question) {
        let Question { set, right, .. } = question.clone();
        let permit = request.permit.as_ref();
        let user = permit.and_then(|permit| permit.user.as_ref()).map(Person::from);
        // Directories are known to lie beneath it already.
        let root = permit.and_then(|permit| permit.beneath).filter(|_| matches!(right, Right::Link { .. }));
        let within = root.map(|root| Within { root, session: request.session });
        let asked = Box::new(RightAsked { request, epoch: self.replica.view().epoch, question });
        self.ask(cx, Asking::Right(asked), set, Op::CheckRight { right, user, within }, None);
    }

    /// Another set has said whether a client may.
    pub(crate) fn on_right(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        asked: RightAsked<R>,
        answer: Result<Body, Fail>,
    ) {
        let RightAsked { mut request, epoch, question } = asked;
        if request.to.is_given_up() {
            return;
        }
        // The view that another set has is no business of the client's.
        let answer = answer.map_err(|fail| if let Fail::WrongView { .. } = fail { Fail::Busy } else { fail });
        let answer = match self.is_still_admitted(cx, &request, epoch).and(answer) {
            Ok(body) => Ok((body, Bytes::new())),
            Err(Fail::Errno { errno }) => Err(Errno(errno)),
            Err(fail) => return self.refuse_right(cx, request.to, fail),
        };
        match request.permit.as_mut().map_or(Ok(()), |permit| permit.learn(question, answer)) {
            Ok(()) => self.serve_permitted(cx, request),
            Err(e) => self.refuse_right(cx, request.to, e.into()),
        }
    }

    /// Whether the request may go on that was let in in that epoch. It may have been done meanwhile, as the client asks again: then
    /// the name has gone that an answer is about. Or another primary has answered the client, which went on. Or somebody else was
    /// alone here for a while, and may keep what he was told.
    fn is_still_admitted(
        &mut self,
        cx: &Cx<'_, B, R>,
        request: &AdmittedRequest<R>,
        epoch: Epoch,
    ) -> Result<(), Fail> {
        let now = self.replica.view().epoch;
        if epoch != now {
            return Err(Fail::WrongView { epoch: now });
        }
        let waits = self.transactions.serves(now, request.id)
            || self.joiner_lags(cx)
            || self.awaits_end(cx.at.now, request.session, &request.op)
            || self.grants.wait(cx.at.now, request.session).is_some();
        self.admit_again(cx, request.id).and(if waits { Err(Fail::Busy) } else { Ok(()) })
    }

    /// Answers that a client may not, or that it has to ask again.
    fn refuse_right(&mut self, cx: &mut Cx<'_, B, R>, mut to: Address<R>, fail: Fail) {
        to.grant = 0;
        let is_open = fail == Errno::EAGAIN.into();
        self.refuse_for_other(cx, to, if is_open { Fail::Busy } else { fail });
    }

    /// Whether what its client may do is so still, now that the operation is to be decided with this object, if it is one of
    /// another set: others may have changed names, and rights here, while sets were asked.
    pub(crate) fn still_permits(
        &mut self,
        permit: Option<&Permit>,
        op: &Op,
        incoming: Option<&Attr>,
    ) -> Result<(), Fail> {
        let Some(permit) = permit else { return Ok(()) };
        if let (Some(object), Some(attr)) = (permit.object, incoming)
            && attr.fid != object
        {
            return Err(Fail::Busy);
        }
        let Some(user) = &permit.user else { return Ok(()) };
        match permission::check(user, &mut op.clone(), self.set, &mut self.brick, &permit.known) {
            Ok(()) => Ok(()),
            // Something else has the name by now, or is about to.
            Err(Refusal::Ask(_) | Refusal::Errno(Errno::EAGAIN)) => Err(Fail::Busy),
            Err(Refusal::Errno(e)) => Err(e.into()),
        }
    }

    /// [`Op::CheckRight`]; that it lies beneath the key's directory is known.
    pub(crate) fn check_right(
        &mut self,
        now: Duration,
        right: &Right,
        user: Option<Person>,
    ) -> (Vec<Fid>, Answer) {
        let objects = [right.object()].into();
        let found = match user.map(User::try_from).transpose() {
            Ok(Some(user)) => rights::check(&user, right, self.set, &mut self.brick),
            Ok(None) => rights::known(right, &mut self.brick).map(|()| None),
            Err(e) => Err(e),
        };
        if let (Err(Errno::EAGAIN), Right::Leave { dir, name }) = (&found, right)
            && let Ok(Some(entry)) = self.brick.entry(*dir, name)
        {
            self.find_marked(now, entry.fid);
        }
        let body = found.map(|entry| match entry {
            Some(namespace::Entry { fid, home, kind }) => Body::Elsewhere { fid, home, kind },
            None => Body::Done,
        });
        (objects, body.map(|body| (body, Bytes::new())))
    }
}
