//! How a primary leaves its set: another brick takes its place, or the set is to have fewer.
//!
//! Nobody takes the lead from it, as it may be answering by a lease of any length. So it ends its service first, and then
//! asks for the view without itself, again and again until there is another view. What was not acknowledged by then its
//! successor keeps or drops, as after a failure. The successor has to be open: the primary asks it where it stands, and goes
//! when the answer comes.

use crate::io::{ChangeBody, Message};
use crate::replica::{Out, Replica, Role};
use core::time::Duration;
use ids::BrickId;

impl<B: ChangeBody> Replica<B> {
    /// Whether the set can do without this brick, which is to leave it: changes are accepted afterwards if they are
    /// accepted now.
    fn may_leave(&self) -> bool {
        let left = self.view.in_sync.len().saturating_sub(1);
        let served = left >= self.view.quorum || !self.view.has_quorum();
        self.view.leaving.contains(&self.me) && self.role == Role::Primary && served
    }

    /// The primary looks for a brick that can lead in its place.
    pub(crate) fn look_for_successor(&self, out: &mut Out<B>) {
        if self.may_leave() {
            for successor in self.view.in_sync.iter().copied().filter(|b| self.view.stays_with_data(*b)) {
                self.send(successor, Message::StateQuery, out);
            }
        }
    }

    /// A brick is open: the primary ends its service, if that one can lead in its place.
    pub(crate) fn on_open_brick(&mut self, now: Duration, brick: BrickId, out: &mut Out<B>) {
        let fit = self.view.in_sync.contains(&brick) && self.view.stays_with_data(brick);
        if !fit || !self.may_leave() {
            return;
        }
        self.successor = Some(brick);
        self.leave_lead(out);
        self.drop_window();
        self.role = Role::Idle;
        self.abdicate(now, out);
    }

    /// Asks for the view without this brick, if it has ended its service. False if it has not.
    pub(crate) fn abdicate(&mut self, now: Duration, out: &mut Out<B>) -> bool {
        let Some(successor) = self.successor else { return false };
        let rest = self.view.in_sync.iter().copied().filter(|b| *b != self.me).collect();
        self.propose(now, Some(successor), rest, "it leaves the set", out);
        true
    }
}
