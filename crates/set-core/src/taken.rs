//! Directories that this set is to answer for (docs/design/0018): the set that gives one is asked whether it has, if nobody says.

use crate::answer::Answer;
use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::joint::is_gone;
use bytes::Bytes;
use ids::{Fid, OpId, SetId};
use wire::op::Taken;
use wire::{Body, Errno, Fail, Op};

/// How far the question is whether a directory has been given to this set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asked {
    First,
    /// What was found then is on disk.
    Sync,
    /// It is still so.
    Second,
}

/// A directory that this set is to answer for, about which the set that gives it is asked.
#[derive(Clone, Debug)]
pub(crate) struct TakenResolve {
    fid: Fid,
    taken: Taken,
    holder: Option<OpId>,
    asked: Asked,
}

impl TakenResolve {
    pub(crate) fn asked(&self) -> Asked {
        self.asked
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Whether a directory was given to that set. `EAGAIN`: it may still be.
    pub(crate) fn check_given(&mut self, fid: Fid, tx: OpId, to: SetId) -> Answer {
        if self.hand_over.is_in(tx) {
            return Err(Errno::EAGAIN);
        }
        let copy = self.brick.attr_of_any(fid)?;
        if copy.home == to && to != self.set { Ok((Body::Done, Bytes::new())) } else { Err(Errno::ENOENT) }
    }

    /// Asks whether a directory that this set is to answer for was given to it; false if it is none.
    pub(crate) fn ask_if_given(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, holder: Option<OpId>) -> bool {
        let Ok(Some(taken)) = self.brick.taken(fid) else { return false };
        self.ask_given(cx, TakenResolve { fid, taken, holder, asked: Asked::First });
        true
    }

    fn ask_given(&mut self, cx: &mut Cx<'_, B, R>, resolve: TakenResolve) {
        let (fid, tx, from) = (resolve.fid, resolve.taken.tx, resolve.taken.from);
        let op = match resolve.asked {
            Asked::First | Asked::Second => Op::CheckGiven { fid, tx, to: self.set },
            Asked::Sync => Op::SyncFs,
        };
        self.ask(cx, Asking::GivenChecked(resolve), from, op, None);
    }

    pub(crate) fn on_given_checked(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        resolve: TakenResolve,
        answer: Result<Body, Fail>,
    ) {
        let TakenResolve { fid, holder, asked, .. } = resolve;
        let tx = resolve.taken.tx;
        let keep = match answer {
            Ok(_) => true,
            Err(Fail::Errno { errno }) if is_gone(errno) && asked != Asked::Sync => false,
            Err(fail) => {
                tracing::debug!("ask whether {fid} was given to set {}: {fail:?}", self.set);
                return self.pending.asked(fid, holder);
            }
        };
        // That the directory stays does not count either before it is on disk: the change that gives it may have failed there.
        let next = match asked {
            Asked::First => Some(Asked::Sync),
            Asked::Sync => Some(Asked::Second),
            Asked::Second => None,
        };
        if let Some(asked) = next {
            return self.ask_given(cx, TakenResolve { asked, ..resolve });
        }
        self.pending.asked(fid, holder);
        self.ask(cx, Asking::TakingEnded(self.set, fid), self.set, Op::EndTaking { fid, tx, keep }, None);
    }
}
