//! Syncs of this brick: those that were asked for, in rounds, and everything now and then.

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, Purpose, SetCore};
use crate::flush::Then;
use crate::io::{Done, ReplyTo};
use crate::write_again::LOOK_AGAIN;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Fid, Lsn};
use replica::{Input, SyncToken};
use wire::Errno;

/// Syncs that are done together at most: each keeps a descriptor open meanwhile.
const ROUND: usize = 64;
/// Rounds under way at once, at most: one with much data does not hold up all others.
const ROUNDS: usize = 8;

/// Syncs that wait for a round, and the rounds under way. What is asked for while all rounds are busy is done together, in
/// the next one.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    waiting: Vec<(SyncToken, Option<Fid>)>,
    under_way: usize,
    /// Before the next one, what the brick could not write again was tried once more.
    tried: bool,
}

/// What one round makes durable.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Round {
    tokens: Vec<SyncToken>,
    /// `None`: everything.
    objects: Option<Vec<Fid>>,
}

impl Rounds {
    /// Something is to be made durable. True if another round may begin for it.
    pub(crate) fn ask(&mut self, token: SyncToken, fid: Option<Fid>) -> bool {
        self.waiting.push((token, fid));
        let may = self.under_way < ROUNDS;
        self.under_way += usize::from(may);
        may
    }

    /// What a round that may begin consists of; `None` ends it.
    fn begin(&mut self) -> Option<Round> {
        let wanted: Vec<_> = self.waiting.drain(..self.waiting.len().min(ROUND)).collect();
        if wanted.is_empty() {
            self.under_way -= 1;
            return None;
        }
        let mut objects: Option<Vec<Fid>> = wanted.iter().map(|(_, fid)| *fid).collect();
        if let Some(objects) = &mut objects {
            objects.sort();
            objects.dedup();
        }
        Some(Round { tokens: wanted.into_iter().map(|(token, _)| token).collect(), objects })
    }
}

/// The sync of everything, now and then, so that the brick's durable position moves on.
#[derive(Debug)]
pub(crate) struct Periodic {
    last: Duration,
    reached: Lsn,
    under_way: bool,
    /// When one last ended well.
    answered: Option<Duration>,
}

impl Periodic {
    pub(crate) fn new(now: Duration) -> Periodic {
        Periodic { last: now, reached: Lsn(0), under_way: false, answered: None }
    }

    /// Whether it is time, or much waits for it (`wanted`), and there is something to sync.
    pub(crate) fn is_due(&self, now: Duration, interval: Duration, newest: Lsn, wanted: bool) -> bool {
        (wanted || now >= self.last + interval) && !self.under_way && newest > self.reached
    }

    /// When everything was last brought to disk: until then the disk did its work.
    pub(crate) fn answered(&self) -> Option<Duration> {
        self.answered
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A round of syncs, if any waits for one.
    pub(crate) fn begin_round(&mut self, cx: &mut Cx<'_, B, R>) {
        // The disk may be well again since that failed: nobody is told of an error that is over.
        if !self.rounds.tried && self.replica.is_only() && self.brick.syncs_fail() {
            self.rounds.tried = true;
            self.write_again();
        }
        if self.writing_again {
            return self.timers.set(cx.at.now + LOOK_AGAIN, Due::Syncs);
        }
        self.rounds.tried = false;
        let Some(Round { tokens, objects }) = self.rounds.begin() else { return };
        let Some(objects) = objects else { return self.flush_then(cx, Then::Round(tokens)) };
        let work = self.brick.begin_sync_of(&objects);
        self.start(cx, Purpose::Round(tokens), work);
    }

    /// A round is over; the next one follows at once.
    pub(crate) fn end_round(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        tokens: Vec<SyncToken>,
        result: Result<Done, Errno>,
    ) {
        let errno = result.err().map_or(0, |e| e.0);
        if errno != 0 {
            self.mark_unsynced_stale();
        }
        for token in tokens {
            self.feed(cx, Input::Synced { token, errno });
        }
        self.timers.set(cx.at.now, Due::Syncs);
    }

    /// Brings the whole brick to disk.
    pub(crate) fn sync_all(&mut self, cx: &mut Cx<'_, B, R>) {
        (self.periodic.last, self.periodic.under_way) = (cx.at.now, true);
        self.flush_then(cx, Then::Periodic);
    }

    /// Somebody has to know whether the disk works, which memory does not tell: a sync of everything goes there, also if
    /// nothing has changed. If it fails so does the brick, like after any failed sync.
    pub(crate) fn look_at_disk(&mut self, cx: &mut Cx<'_, B, R>) {
        if !self.periodic.under_way && !self.writing_again {
            self.sync_all(cx);
        }
    }

    /// It could not begin: it is tried again in its time.
    pub(crate) fn skip_periodic(&mut self) {
        self.periodic.under_way = false;
    }

    pub(crate) fn end_periodic(&mut self, cx: &mut Cx<'_, B, R>, result: Result<Done, Errno>) {
        self.periodic.under_way = false;
        let e = match result {
            Ok(Done::Synced(lsn)) => {
                (self.periodic.reached, self.periodic.answered) = (lsn, Some(cx.at.now));
                self.brick.settle_waiting();
                let available = self.available();
                return self.feed(cx, Input::Durable { lsn, available });
            }
            Ok(_) => Errno::EIO,
            Err(e) => e,
        };
        tracing::error!("{}: sync: {e}", self.settings.name);
        self.mark_unsynced_stale();
        self.feed(cx, Input::Synced { token: SyncToken::Local(0), errno: e.0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, SetId};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    #[test]
    fn what_is_asked_for_together_is_one_round() {
        let mut rounds = Rounds::default();
        assert!(rounds.ask(SyncToken::Local(1), Some(fid(9))));
        for ticket in 2..=4 {
            rounds.ask(SyncToken::Local(ticket), Some(fid(9 - ticket % 2)));
        }
        let round = rounds.begin().unwrap();
        assert_eq!((round.tokens.len(), round.objects), (4, Some([fid(8), fid(9)].into())));
        assert_eq!(rounds.begin(), None);
    }

    #[test]
    fn a_sync_of_everything_makes_its_round_one() {
        let mut rounds = Rounds::default();
        rounds.ask(SyncToken::Local(1), Some(fid(9)));
        rounds.ask(SyncToken::Local(2), None);
        assert_eq!(rounds.begin().unwrap().objects, None);
    }

    #[test]
    fn rounds_and_what_is_in_them_are_bounded() {
        let mut rounds = Rounds::default();
        let begun = (1..=100).filter(|t| rounds.ask(SyncToken::Local(*t), Some(fid(*t)))).count();
        assert_eq!(begun, ROUNDS);
        assert_eq!(rounds.begin().unwrap().tokens.len(), ROUND);
        assert_eq!(rounds.begin().unwrap().tokens.len(), 100 - ROUND);
        assert_eq!(rounds.begin(), None);
        assert_eq!(rounds.under_way, ROUNDS - 1, "one has ended");
        assert!(rounds.ask(SyncToken::Local(101), None), "another may begin in its place");
    }

    #[test]
    fn everything_is_synced_when_there_is_something_new() {
        let at = Duration::from_secs;
        let mut periodic = Periodic::new(at(10));
        assert!(!periodic.is_due(at(12), at(5), Lsn(3), false));
        assert!(
            periodic.is_due(at(15), at(5), Lsn(3), false) && !periodic.is_due(at(15), at(5), Lsn(0), false)
        );
        assert!(periodic.is_due(at(12), at(5), Lsn(3), true), "much waits for it");
        periodic.under_way = true;
        assert!(!periodic.is_due(at(30), at(5), Lsn(3), true), "one at a time");
    }
}
