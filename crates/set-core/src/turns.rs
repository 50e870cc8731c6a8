//! Turns: work that may be very much is done a little at a time, between the clients' requests. While clients are active,
//! turns take at most a quarter of the thread's time.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, SetCore};
use crate::io::ReplyTo;
use core::time::Duration;

/// How long one turn is, about.
const TURN: Duration = Duration::from_micros(500);
/// While clients are active, so many times a turn's length passes before the next one.
const REST: u32 = 3;
/// Clients are active if one asked something within this time.
const ACTIVE: Duration = Duration::from_millis(20);

fn are_active(now: Duration, last_call: Duration) -> bool {
    now < last_call + ACTIVE
}

/// When work goes on after `spent` was spent on it while clients are active: they go first.
pub(crate) fn rested(now: Duration, spent: Duration, rest: u32) -> Duration {
    if rest > 0 { now + (spent * rest).max(Duration::from_millis(1)) } else { now }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// When work goes on after `spent` was spent on it.
    pub(crate) fn rested(&self, cx: &Cx<'_, B, R>, spent: Duration) -> Duration {
        self.rested_for(cx, spent, REST)
    }

    /// The same, for work that rests so many times as long as it took.
    pub(crate) fn rested_for(&self, cx: &Cx<'_, B, R>, spent: Duration, rest: u32) -> Duration {
        if self.clients_are_active(cx) { rested(cx.at.now, spent, rest) } else { cx.at.now }
    }

    /// Whether one asked this server for something just now.
    pub(crate) fn clients_are_active(&self, cx: &Cx<'_, B, R>) -> bool {
        are_active(cx.at.now, cx.outside.last_call())
    }

    /// Whether the turn that began then is over. `next` is due after a rest then.
    pub(crate) fn is_turn_over(&mut self, cx: &Cx<'_, B, R>, begun: Duration, next: Due<R>) -> bool {
        let spent = cx.at.now.saturating_sub(begun);
        let over = spent >= TURN;
        if over {
            self.timers.set(self.rested(cx, spent), next);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_go_first_while_they_are_active() {
        let at = Duration::from_millis;
        assert!(!are_active(at(1000), at(900)), "nobody asked for a while");
        assert!(are_active(at(1000), at(990)));
        assert_eq!(rested(at(1000), at(5), 3), at(1015));
        assert_eq!(rested(at(1000), at(0), 3), at(1001), "a rest is a rest");
        assert_eq!(rested(at(1000), at(5), 0), at(1000), "without a rest");
    }
}
