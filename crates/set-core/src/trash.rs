//! Before the end of a healing: what lies in the heal trash is forgotten, in short turns between the clients' requests, as it
//! may be a million objects. Another thread lists them.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, Later, Purpose, SetCore};
use crate::flush::Then;
use crate::io::{Done, ReplyTo};
use alloc::vec::Vec;
use core::time::Duration;
use ids::Fid;
use wire::Errno;

/// What is left to be forgotten, and what follows.
#[derive(Debug, Default)]
pub(crate) struct Trash(Option<(Vec<Fid>, Then)>);

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Has the heal trash forgotten and attributes written, then does that.
    pub(crate) fn forget_trash_then(&mut self, cx: &mut Cx<'_, B, R>, then: Then) {
        match self.brick.begin_trash() {
            Ok(None) => self.flush_then(cx, then),
            Ok(Some(work)) => self.start(cx, Purpose::Trash(then), Ok(work)),
            Err(e) => self.start(cx, Purpose::Trash(then), Err(e)),
        }
    }

    /// The heal trash is listed.
    pub(crate) fn on_trash(&mut self, cx: &mut Cx<'_, B, R>, then: Then, listed: Result<Done, Errno>) {
        match listed {
            Ok(Done::Hidden(found)) => {
                self.trash = Trash(Some((found, then)));
                self.later.push_back(Later::ForgetTrash(None));
            }
            Ok(_) => self.flushed(cx, then, Err(Errno::EIO)),
            Err(e) => self.flushed(cx, then, Err(e)),
        }
    }

    /// Forgets one object, in the turn that began then, or begins now.
    pub(crate) fn forget_trash_on(&mut self, cx: &mut Cx<'_, B, R>, begun: Option<Duration>) {
        let begun = begun.unwrap_or(cx.at.now);
        if self.is_turn_over(cx, begun, Due::Trash) {
            return;
        }
        let Some((mut left, then)) = self.trash.0.take() else { return };
        let Some(fid) = left.pop() else { return self.flush_then(cx, then) };
        if let Err(e) = self.brick.forget_trashed(fid) {
            return self.flushed(cx, then, Err(e));
        }
        self.trash.0 = Some((left, then));
        self.later.push_back(Later::ForgetTrash(Some(begun)));
    }
}
