//! Renames and links between two sets for clients that are not trusted to have looked (docs/design/0021): this set looks at its
//! own part, and asks the other one whether the client may do the rest before anything begins. What is found then has to be so
//! still when the entry is decided: which object it is about, and this set's own part.
//!
//! Always true: nothing is decided for such a client that one of the sets has not allowed, each for what it answers for.

use crate::answer::Answer;
use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::joint::{Joint, is_gone};
use crate::moves::DIR;
use crate::request::AdmittedRequest;
use crate::waiters::Address;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, SetId};
use namespace::{permission, rights};
use wire::rights::{Person, Right, Within};
use wire::{Body, Errno, Fail, Op, User};

/// What another set has allowed.
#[derive(Debug)]
pub(crate) struct Permit {
    /// Whose permissions count here.
    user: Option<User>,
    /// What may get the new name, and nothing else.
    object: Fid,
}

/// A request that waits for another set's word.
#[derive(Debug)]
pub(crate) struct RightAsked<R> {
    request: AdmittedRequest<R>,
    user: Option<User>,
    set: SetId,
    right: Right,
}

/// What an answer leads to.
#[derive(PartialEq, Eq, Debug)]
enum Next {
    /// That set has to be asked for this, too.
    Ask(SetId, Right),
    /// The client may, with this object.
    Permitted(Fid),
}

/// What is known from an answer of that set.
fn learn((set, right): (SetId, &Right), answer: Result<Body, Fail>) -> Result<Next, Fail> {
    match (right, answer) {
        (Right::Leave { .. }, Ok(Body::Elsewhere { fid, home, kind: DIR })) if home != set => {
            Ok(Next::Ask(home, Right::Move { fid }))
        }
        (Right::Leave { .. }, Ok(Body::Elsewhere { fid, .. })) => Ok(Next::Permitted(fid)),
        (Right::Move { fid } | Right::Link { fid }, Ok(Body::Done)) => Ok(Next::Permitted(*fid)),
        (_, Ok(_)) => Err(Errno::EIO.into()),
        // Its set has lost it, and only the name is left.
        (Right::Move { .. }, Err(Fail::Errno { errno })) if is_gone(errno) => Err(Errno::ENOENT.into()),
        // An older server does not know the question.
        (_, Err(Fail::Errno { errno })) if errno == Errno::EINVAL.0 => Err(Errno::EXDEV.into()),
        (_, Err(Fail::WrongView { .. })) => Err(Fail::Busy),
        (_, Err(fail)) => Err(fail),
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The request, if no other set has to be asked whether its client may.
    pub(crate) fn ask_for_right(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
        (user, beneath): (Option<&User>, Option<Fid>),
    ) -> Option<AdmittedRequest<R>> {
        let (set, right) = match &request.op {
            Op::MoveIn { from, parent, name, .. } if user.is_some() => {
                (*from, Right::Leave { dir: *parent, name: name.clone() })
            }
            Op::LinkIn { fid, home, .. } if !request.is_trusted => (*home, Right::Link { fid: *fid }),
            _ => return Some(request),
        };
        // Which is refused as such.
        if set == self.set {
            return Some(request);
        }
        if !self.is_of_volume(set) {
            self.refuse_right(cx, request.to, Errno::ESTALE.into());
            return None;
        }
        // Directories are known to lie beneath it already.
        let is_file = matches!(right, Right::Link { .. });
        let root = beneath.filter(|_| is_file);
        let within = root.map(|root| Within { root, session: request.session });
        let asked = RightAsked { request, user: user.cloned(), set, right };
        self.send_right(cx, asked, within);
        None
    }

    fn send_right(&mut self, cx: &mut Cx<'_, B, R>, asked: RightAsked<R>, within: Option<Within>) {
        let (set, right, user) = (asked.set, asked.right.clone(), asked.user.as_ref().map(Person::from));
        let op = Op::CheckRight { right, user, within };
        self.ask(cx, Asking::Right(Box::new(asked)), set, op, None);
    }

    /// Another set has said whether a client may do that set's part.
    pub(crate) fn on_right(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut asked: Box<RightAsked<R>>,
        answer: Result<Body, Fail>,
    ) {
        let (id, session) = (asked.request.id, asked.request.session);
        // It may have been done meanwhile, as the client asks again: then the name has gone that the answer is about. Or somebody
        // else was alone here for a while, and may keep what he was told.
        let waits = self.transactions.serves(self.replica.view().epoch, id)
            || self.grants.wait(cx.at.now, session).is_some();
        let free = self.admit_again(cx, id).and(if waits { Err(Fail::Busy) } else { Ok(()) });
        match free.and_then(|()| learn((asked.set, &asked.right), answer)) {
            Ok(Next::Ask(home, right)) => {
                (asked.set, asked.right) = (home, right);
                if home != self.set {
                    return self.send_right(cx, *asked, None);
                }
                let (_, answer) = self.check_right(&asked.right, asked.user.as_ref().map(Person::from));
                self.on_right(cx, asked, answer.map(|(body, _)| body).map_err(Fail::from));
            }
            Ok(Next::Permitted(object)) => {
                let RightAsked { mut request, user, .. } = *asked;
                request.permit = Some(Permit { user, object });
                self.serve_change(cx, request);
            }
            Err(fail) => self.refuse_right(cx, asked.request.to, fail),
        }
    }

    fn refuse_right(&mut self, cx: &mut Cx<'_, B, R>, mut to: Address<R>, fail: Fail) {
        to.grant = 0;
        self.refuse_for_other(cx, to, fail);
    }

    /// Whether what its client may do is so still, now that the entry is to be decided: another object may have the name, and here
    /// others have changed things as well.
    pub(crate) fn still_permits(&mut self, joint: &Joint<R>) -> Result<(), Fail> {
        let Some(Permit { user, object }) = &joint.permit else { return Ok(()) };
        if joint.incoming.as_ref().is_some_and(|attr| attr.fid != *object) {
            return Err(Fail::Busy);
        }
        if let Some(user) = user {
            permission::check(user, &mut joint.op.clone(), self.set, &mut self.brick)?;
        }
        Ok(())
    }

    /// [`Op::CheckRight`]; that it lies beneath the key's directory is known.
    pub(crate) fn check_right(&mut self, right: &Right, user: Option<Person>) -> (Vec<Fid>, Answer) {
        let objects = [right.object()].into();
        let found = match user.map(User::try_from).transpose() {
            Ok(Some(user)) => rights::check(&user, right, self.set, &mut self.brick),
            Ok(None) => rights::known(right, &mut self.brick).map(|()| None),
            Err(e) => Err(e),
        };
        let body = found.map(|entry| match entry {
            Some(namespace::Entry { fid, home, kind }) => Body::Elsewhere { fid, home, kind },
            None => Body::Done,
        });
        (objects, body.map(|body| (body, Bytes::new())))
    }
}
