//! Questions of other sets about a directory that this set does not answer for any more (docs/design/0018).
//!
//! Whoever asks goes by the set that made the directory, or by what was written down when another set had it. The set that answers
//! for it now is looked for among all, and asked; what it says has to be on its disks before it counts, as whoever asks brings to
//! disk what is here.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::hand_over::HAND_OVER;
use crate::io::ReplyTo;
use crate::joint::is_gone;
use crate::request::AdmittedRequest;
use crate::waiters::Waiter;
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, SetId};
use wire::{Body, Errno, Fail, Op, Reply};

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// That set is asked whether it answers for the directory.
    Search,
    /// It is asked what this one was.
    First,
    /// What it said is on its disks.
    Sync,
    /// It says so still.
    Second,
}

/// A question that goes to another set.
#[derive(Debug)]
pub(crate) struct Relay<R> {
    request: AdmittedRequest<R>,
    dir: Fid,
    /// Who is asked, and who is next.
    set: SetId,
    left: Vec<SetId>,
    stage: Stage,
}

/// The directory that another set's question is about, if the answer is up to who answers for it. Questions about entries of
/// directories are not: a directory that changes its set has none.
fn about(op: &Op) -> Option<Fid> {
    let dir = match op {
        Op::CheckName { parent, .. } | Op::Retarget { parent, .. } => *parent,
        Op::Redirect { names, .. } => {
            let first = names.first()?.dir;
            names.iter().all(|place| place.dir == first).then_some(first)?
        }
        Op::PathOf { fid } => *fid,
        _ => return None,
    };
    (!dir.is_names()).then_some(dir)
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The request, unless it is one that another set has to answer, and goes there.
    pub(crate) fn relay(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        let dir =
            about(&request.op).filter(|dir| self.settings.level >= HAND_OVER && *dir != self.brick.root().0);
        let Some(dir) = dir else { return Some(request) };
        // The set that has the entry of a directory tells its path.
        let knows = matches!(request.op, Op::PathOf { .. }) && self.brick.lineage(dir).is_ok();
        if knows || !matches!(self.brick.attr(dir), Err(Errno::ESTALE | Errno::ENOENT)) {
            return Some(request);
        }
        let hint = self.brick.attr_of_any(dir).map(|copy| copy.home).ok();
        let mut left: Vec<SetId> = self.settings.sets.iter().map(|(set, _)| *set).collect();
        left.retain(|set| *set != self.set);
        left.sort_by_key(|set| Some(*set) == hint);
        let Some(set) = left.pop() else { return Some(request) };
        let relay = Relay { request, dir, set, left, stage: Stage::Search };
        self.ask(cx, Asking::Relayed(Box::new(relay)), set, Op::GetAttr { fid: dir }, None);
        None
    }

    pub(crate) fn on_relayed(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut relay: Box<Relay<R>>,
        answer: Result<Body, Fail>,
    ) {
        let gone = matches!(&answer, Err(Fail::Errno { errno }) if is_gone(*errno));
        match (relay.stage, answer) {
            (Stage::Search, Ok(Body::Attr { .. })) => self.ask_on(cx, relay, Stage::First),
            // One that only knows of another set is none that answers.
            (Stage::Search, answer) if gone || answer.is_ok() => match relay.left.pop() {
                Some(set) => {
                    relay.set = set;
                    let op = Op::GetAttr { fid: relay.dir };
                    self.ask(cx, Asking::Relayed(relay), set, op, None);
                }
                // It was removed.
                None => self.serve_here(cx, relay.request),
            },
            (Stage::First, answer) if gone || answer.is_ok() => match relay.request.op {
                Op::PathOf { .. } => self.answer_relayed(cx, *relay, answer),
                _ => self.ask_on(cx, relay, Stage::Sync),
            },
            (Stage::Sync, Ok(_)) => self.ask_on(cx, relay, Stage::Second),
            (Stage::Second, answer) => self.answer_relayed(cx, *relay, answer),
            (_, Err(fail)) => self.refuse(cx, relay.request.to, fail),
            (Stage::Search | Stage::First, Ok(_)) => self.refuse(cx, relay.request.to, Fail::Busy),
        }
    }

    fn ask_on(&mut self, cx: &mut Cx<'_, B, R>, mut relay: Box<Relay<R>>, stage: Stage) {
        relay.stage = stage;
        let (set, request) = (relay.set, &relay.request);
        let (op, name) = match stage {
            Stage::Sync => (Op::SyncFs, None),
            _ => (request.op.clone(), request.op.changes().then_some(request.id)),
        };
        self.ask(cx, Asking::Relayed(relay), set, op, name);
    }

    fn answer_relayed(&mut self, cx: &mut Cx<'_, B, R>, relay: Relay<R>, answer: Result<Body, Fail>) {
        match answer {
            Ok(_) | Err(Fail::Errno { .. }) => {
                let waiter = Waiter::with(relay.request.to, Reply(answer), Bytes::new());
                self.reply_when_all_committed(cx, waiter);
            }
            Err(fail) => self.refuse(cx, relay.request.to, fail),
        }
    }
}
