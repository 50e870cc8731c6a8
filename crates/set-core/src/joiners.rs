//! Limits for joining bricks that receive changes more slowly than clients make them.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::io::ReplyTo;
use core::time::Duration;
use ids::BrickId;
use replica::Input;

/// Bytes of new changes that may wait for a joining brick's connection: beyond it clients wait for it.
const LAG: usize = 32 << 20;
/// A joining brick whose queue is full and does not shrink for this long is given up: it asks to join anew.
const STUCK: Duration = Duration::from_secs(2);

/// Since when a joining brick's queue is full and has not shrunk, and how much is in it.
#[derive(Debug, Default)]
pub(crate) struct Lag(Option<(Duration, usize)>);

impl Lag {
    /// The fullest queue of a joining brick is as long as this (`None`: none is full). True if it is stuck.
    fn look(&mut self, now: Duration, queued: Option<usize>) -> bool {
        match (self.0, queued) {
            (_, None) => self.0 = None,
            (Some((since, least)), Some(queued)) if queued >= least => {
                if now >= since + STUCK {
                    self.0 = None;
                    return true;
                }
            }
            (_, Some(queued)) => self.0 = Some((now, queued)),
        }
        false
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Bricks that get every change and are not in sync yet.
    fn joiners(&self) -> impl Iterator<Item = BrickId> + '_ {
        self.settings.members.keys().copied().filter(|b| self.replica.is_joiner(*b))
    }

    /// Bytes for a brick that wait for its server's connection.
    pub(crate) fn queued(&self, cx: &Cx<'_, B, R>, to: BrickId) -> usize {
        self.settings.members.get(&to).map_or(0, |server| cx.outside.queued(*server))
    }

    /// Whether a joining brick has to catch up before more changes are made.
    pub(crate) fn joiner_lags(&self, cx: &Cx<'_, B, R>) -> bool {
        self.joiners().any(|brick| self.queued(cx, brick) > LAG)
    }

    /// A joining brick that takes nothing in any more does not hold up the clients.
    pub(crate) fn watch_joiners(&mut self, cx: &mut Cx<'_, B, R>) {
        let full = self.joiners().map(|b| (self.queued(cx, b), b)).filter(|(n, _)| *n > LAG).max();
        if self.lag.look(cx.at.now, full.map(|(queued, _)| queued))
            && let Some((_, brick)) = full
        {
            tracing::warn!("{}: brick {brick} takes no changes in: it has to join anew", self.settings.name);
            self.feed(cx, Input::LinkUp(brick));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_does_not_shrink_is_stuck() {
        let at = Duration::from_secs;
        let mut lag = Lag::default();
        assert!(!lag.look(at(10), Some(50)) && !lag.look(at(11), Some(60)));
        assert!(!lag.look(at(12), Some(40)), "it has shrunk");
        assert!(!lag.look(at(13), Some(40)) && lag.look(at(14), Some(40)));
        assert!(!lag.look(at(15), Some(40)), "it joins anew");
        assert!(!lag.look(at(16), None) && !lag.look(at(18), Some(40)));
    }
}
