//! Which directories go to another set as this one works clearly more of its time, though files need not move for room
//! (docs/design/0018, "By load").
//!
//! The directories that are used most are known by some counters, as in Metwally, Agrawal and El Abbadi, "Efficient Computation of
//! Frequent and Top-k Elements in Data Streams" (2005): one that is not counted yet takes over the counter of the least used one. So a
//! counter may say too much, but none that is used much is missing. All of it is in the memory of the primary.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::io::ReplyTo;
use crate::rebalance_settings::RebalanceState;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::slice::from_ref;
use core::time::Duration;
use ids::{Fid, SetId};
use namespace::placement::{self, CLEARLY_BUSIER, SetRoom};
use wire::Op;

/// Directories that are counted at a time.
const COUNTERS: usize = 32;
/// Figures that count for the average, about: they come once a second.
const FIGURES: u32 = 16;
/// The average is kept in parts of a percent point.
const PARTS: u32 = 1024;
/// The figures after a directory went say what came of it only after so long.
const SETTLES: Duration = Duration::from_secs(20);
/// A directory that is worth less than so many percent points stays.
const WORTH: u64 = 3;
/// Directories that went and whose files are to follow, at most.
const FOLLOWED: usize = 64;

/// How much more this set works than the least busy one, and what of it could go there.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// How often directories were used of late.
    used: Vec<(Fid, u32)>,
    /// And all together.
    all: u64,
    /// By how many percent points this set was busier, on average, in parts.
    more: u32,
    /// Figures until the counters are halved.
    figures: u32,
    next_at: Duration,
    /// Directories that could not go.
    stay: Vec<Fid>,
    /// The directory that was last begun with, and where it goes.
    goes: Option<(Fid, SetId)>,
    /// Directories that went, and where: their files are to follow.
    went: VecDeque<(Fid, SetId)>,
}

impl Load {
    /// An operation was asked for that uses the directory.
    pub(crate) fn note_use(&mut self, dir: Fid) {
        self.all += 1;
        if let Some((_, times)) = self.used.iter_mut().find(|(fid, _)| *fid == dir) {
            *times = times.saturating_add(1);
        } else if self.used.len() < COUNTERS {
            self.used.push((dir, 1));
        } else if let Some(least) = self.used.iter_mut().min_by_key(|(_, times)| *times) {
            *least = (dir, least.1.saturating_add(1));
        }
    }

    /// A second has passed in which this set was busier than the least busy one by so many percent points.
    pub(crate) fn sample(&mut self, more: u8) {
        self.more = self.more - self.more / FIGURES + u32::from(more) * (PARTS / FIGURES);
        self.figures += 1;
        if self.figures < FIGURES {
            return;
        }
        self.figures = 0;
        self.all /= 2;
        self.used.iter_mut().for_each(|(_, times)| *times /= 2);
        self.used.retain(|(_, times)| *times > 0);
        if self.more() < CLEARLY_BUSIER {
            self.stay.clear();
        }
    }

    fn more(&self) -> u8 {
        u8::try_from(self.more / PARTS).unwrap_or(100)
    }

    /// The directory that is to go now, if this set works for so many percent of its time: the most used one that does not make the
    /// other set the busier one.
    pub(crate) fn choose(&self, now: Duration, busy: u8) -> Option<Fid> {
        let more = self.more();
        if more < CLEARLY_BUSIER || now < self.next_at {
            return None;
        }
        let weight = |times: u32| u64::from(busy) * u64::from(times) / self.all.max(1);
        let fits = |(_, times): &&(Fid, u32)| (WORTH..=u64::from(more) * 3 / 4).contains(&weight(*times));
        let may_go = |(dir, _): &&(Fid, u32)| !self.stay.contains(dir);
        let chosen = self.used.iter().filter(may_go).filter(fits).max_by_key(|(_, times)| *times);
        chosen.map(|(dir, _)| *dir)
    }

    /// It goes to that set.
    pub(crate) fn begin(&mut self, now: Duration, dir: Fid, to: SetId) {
        self.goes = Some((dir, to));
        self.next_at = now + SETTLES;
    }

    /// It cannot go.
    pub(crate) fn note_stays(&mut self, dir: Fid) {
        if self.stay.len() >= COUNTERS {
            self.stay.clear();
        }
        self.stay.push(dir);
        self.goes = self.goes.filter(|(goes, _)| *goes != dir);
    }

    /// A directory has gone.
    pub(crate) fn note_went(&mut self, dir: Fid) {
        let Some((_, to)) = self.goes.take_if(|(goes, _)| *goes == dir) else { return };
        self.used.retain(|(used, _)| *used != dir);
        if self.went.len() < FOLLOWED {
            self.went.push_back((dir, to));
        }
    }

    /// The directory whose files are to follow it next, and where it is.
    pub(crate) fn followed(&self) -> Option<(Fid, SetId)> {
        self.went.front().copied()
    }

    /// Its files were gone through.
    pub(crate) fn end_following(&mut self) {
        self.went.pop_front();
    }

    /// Nothing is to go by load, or this brick leads no more.
    pub(crate) fn clear(&mut self) {
        *self = Load::default();
    }
}

/// The directories whose names an operation of a client asks for or changes.
fn directories_of(op: &Op) -> [Option<Fid>; 2] {
    match op {
        Op::Lookup { parent, .. }
        | Op::Create { parent, .. }
        | Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. }
        | Op::Link { parent, .. }
        | Op::LinkIn { parent, .. } => [Some(*parent), None],
        Op::ReadDir { fid, .. } => [Some(*fid), None],
        Op::Rename { parent, to_parent, .. } if parent == to_parent => [Some(*parent), None],
        Op::Rename { parent, to_parent, .. } => [Some(*parent), Some(*to_parent)],
        Op::MoveIn { to_parent, .. } => [Some(*to_parent), None],
        _ => [None, None],
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    fn balances_load(&self) -> bool {
        let settings = self.settings.rebalance;
        settings.state == RebalanceState::On && !settings.drains && self.is_primary()
    }

    /// An operation is served.
    pub(crate) fn note_use(&mut self, op: &Op) {
        if self.balances_load() {
            directories_of(op).into_iter().flatten().for_each(|dir| self.departures.load.note_use(dir));
        }
    }

    /// Once a second: a directory goes to the least busy set, if this one works clearly more.
    pub(crate) fn balance_load(&mut self, cx: &mut Cx<'_, B, R>) {
        if !self.balances_load() {
            return self.departures.load.clear();
        }
        let (own, rooms) = self.rooms_of_moves(cx);
        let Some((own, (to, more))) = own.and_then(|own| Some((own, placement::idler(&own, &rooms)?))) else {
            return;
        };
        self.departures.load.sample(more);
        if !self.departures.rebalance.follows && self.follow_to(Some(own), &rooms).is_none() {
            self.departures.load.end_following();
        }
        let Some(dir) = self.departures.load.choose(cx.at.now, own.busy.min(100)) else { return };
        if self.begin_giving(cx, dir, to) {
            tracing::info!("{}: directory {dir} goes to set {to}, which is less busy", self.settings.name);
            self.departures.load.begin(cx.at.now, dir, to);
        } else {
            self.departures.load.note_stays(dir);
        }
    }

    /// Where files follow a directory that went by load, and how many bytes may go before the rooms are looked at anew.
    pub(crate) fn follow_to(&self, own: Option<SetRoom>, rooms: &[SetRoom]) -> Option<(SetId, u64)> {
        let (_, to) = self.departures.load.followed()?;
        let there = rooms.iter().find(|room| room.set == to)?;
        placement::idler(&own?, from_ref(there)).map(|_| (to, there.available / 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};

    fn dir(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    /// A set that was busier than another one for half a minute, by so many percent points.
    fn busier(more: u8, uses: &[(u64, u32)]) -> Load {
        let mut load = Load::default();
        for _ in 0..30 {
            uses.iter().for_each(|(n, times)| (0..*times).for_each(|_| load.note_use(dir(*n))));
            load.sample(more);
        }
        load
    }

    #[test]
    fn the_most_used_directory_goes_that_does_not_make_the_other_set_the_busier_one() {
        let now = Duration::from_secs(30);
        let load = busier(60, &[(1, 70), (2, 20), (3, 10)]);
        assert_eq!(load.choose(now, 80), Some(dir(2)), "56, 16 and 8 of 80 percent points");
        assert!(busier(60, &[(1, 50), (2, 50)]).choose(now, 60).is_some());
        assert_eq!(
            busier(60, &[(1, 100)]).choose(now, 60),
            None,
            "all of it: the other one would be as busy"
        );
        assert_eq!(busier(15, &[(1, 50), (2, 50)]).choose(now, 60), None, "about as busy");
        let many: Vec<(u64, u32)> = (0..200).map(|n| (n, 1)).collect();
        assert_eq!(busier(60, &many).choose(now, 60), None, "none of very many is worth it");
    }

    #[test]
    fn one_goes_at_a_time_and_one_that_cannot_makes_way_for_the_next() {
        let now = Duration::from_secs(30);
        let mut load = busier(50, &[(1, 40), (2, 30), (3, 30)]);
        assert_eq!(load.choose(now, 50), Some(dir(1)));
        load.note_stays(dir(1));
        let second = load.choose(now, 50);
        assert!(second.is_some_and(|second| second != dir(1)), "{second:?}");
        load.begin(now, dir(2), SetId(2));
        assert_eq!(load.choose(now + Duration::from_secs(10), 50), None, "what came of it is not known yet");
        load.note_went(dir(2));
        assert_eq!(load.followed(), Some((dir(2), SetId(2))));
        load.end_following();
        assert_eq!((load.followed(), load.choose(now + SETTLES, 50)), (None, Some(dir(3))));
    }

    /// Of many directories that are used once the one that is used again and again is known.
    #[test]
    fn a_directory_that_is_used_much_is_found_among_very_many() {
        let mut load = Load::default();
        for n in 0..100_000 {
            load.note_use(dir(1000 + n));
            if n % 5 == 0 {
                load.note_use(dir(1));
            }
        }
        assert!(load.used.len() <= COUNTERS);
        let most = load.used.iter().max_by_key(|(_, times)| *times);
        assert_eq!(most.map(|(dir, _)| *dir), Some(dir(1)));
    }
}
