//! After a failed sync of a brick that alone has the set's data: what may have been dropped is written again, in short turns
//! between the clients' requests. Until that has ended syncs wait: they would fail.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, Later, SetCore};
use crate::io::ReplyTo;
use core::time::Duration;

/// How often syncs that wait look whether it has ended.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(10);

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins, unless it is under way: the brick takes a sync that fails meanwhile into account.
    pub(crate) fn write_again(&mut self) {
        if !self.writing_again {
            self.writing_again = true;
            self.brick.begin_write_again();
            self.later.push_back(Later::WriteAgain(None));
        }
    }

    /// The next slice, in the turn that began then, or begins now.
    pub(crate) fn write_again_on(&mut self, cx: &mut Cx<'_, B, R>, begun: Option<Duration>) {
        let begun = begun.unwrap_or(cx.at.now);
        if self.is_turn_over(cx, begun, Due::WriteAgain) {
            return;
        }
        match self.brick.write_again_slice() {
            Ok(false) => return self.later.push_back(Later::WriteAgain(Some(begun))),
            Ok(true) => {}
            Err(e) => tracing::error!("{}: write again what could not be synced: {e}", self.settings.name),
        }
        self.writing_again = false;
    }
}
