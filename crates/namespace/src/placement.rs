//! Which set a new directory lives on (docs/design/0017), and a large file (docs/design/0023).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use ids::SetId;

/// What is known of a set when a place is sought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetRoom {
    /// The set.
    pub set: SetId,
    /// Bytes free for users on the in-sync brick with the least.
    pub available: u64,
    /// Bytes in all on that brick.
    pub total: u64,
    /// Directories that were placed there since the figures are from: they will want room.
    pub promised: u32,
    /// For how much of the last seconds its thread or its disk worked, in percent.
    pub busy: u8,
    /// Whether clients ask the server of its primary for something. What moves there goes slowly then.
    pub asked: bool,
    /// Whether it can take changes now.
    pub writable: bool,
    /// Another number after each rename of a directory there. No room, but told as often: who has something beneath one of them
    /// asks for its path.
    pub renames: u64,
}

/// The directory in which a new one is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// The set that it lives on.
    pub set: SetId,
    /// Directories above it; 0: it is the root.
    pub depth: u32,
    /// Directories in it.
    pub subdirectories: u32,
}

/// How much fuller than the mean, in percent points, a set must be before deep directories leave it.
const CLEARLY_FULLER: u64 = 10;
/// How much busier than the least busy set, in percent points, a set may be and still get as much as its room is worth.
pub const CLEARLY_BUSIER: u8 = 20;
/// So many percent of what it would get are withheld from a busy set at most: its load is over soon, and its room stays.
const MOST_HELD_BACK: u8 = 75;
/// How much fuller than another set, in thousandths, a set must be before files move there.
const UNEVEN: u64 = 30;
/// Each round of a plan halves what is left of it.
const PLAN_ROUNDS: u32 = 64;
/// Room that a directory is expected to need, for those placed since the figures were taken.
const EXPECTED: u64 = 64 << 20;
/// A directory at depth `n` keeps this to the power of `n` subdirectories on its own set; those after them are spread.
const KEPT: u32 = 8;
/// So many for each set are spread one by one; a directory with more is one of thousands of small ones, and making them fast counts.
const SPREAD: usize = 8;
/// But as many in all at least, and at most.
const SPREAD_IN_ALL: (usize, usize) = (64, 512);
/// Of those beyond, one of so many is spread.
const SPARSE: usize = 1024;
/// 2^64 divided by the golden ratio: multiples of it, taken modulo 2^64, are spread evenly however many there are.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

impl SetRoom {
    /// A set that takes changes, with so many bytes free of so many in all, and of which nothing else is known.
    pub const fn new(set: SetId, available: u64, total: u64) -> SetRoom {
        SetRoom { set, available, total, promised: 0, busy: 0, asked: false, writable: true, renames: 0 }
    }

    /// What the choice goes by. Promises take half of the room at most: they are a guess.
    fn expected_room(&self) -> u64 {
        let promised = u64::from(self.promised) * EXPECTED.min(self.total / 256 + 1);
        self.available - promised.min(self.available / 2)
    }

    /// How full it is, in so many parts.
    fn full_parts(&self, of: u64) -> u64 {
        of - (self.available.saturating_mul(of) / self.total.max(1)).min(of)
    }

    fn percent_full(&self) -> u64 {
        self.full_parts(100)
    }

    /// In thousandths.
    fn fullness(&self) -> u64 {
        self.full_parts(1000)
    }

    fn is_candidate(&self) -> bool {
        self.writable && self.available > 0
    }

    /// The room that counts if the least busy set works for that much of its time: less than there is if this one works for
    /// clearly more.
    fn share(&self, least: u8) -> u64 {
        let more = self.busy.min(100).saturating_sub(least).saturating_sub(CLEARLY_BUSIER);
        let percent = 100 - u64::from(more.min(MOST_HELD_BACK));
        (self.expected_room() / 100).saturating_mul(percent).max(1)
    }
}

/// The sets that may get something new, and the room of each that counts.
fn shares(sets: &[SetRoom]) -> Vec<(SetId, u64)> {
    let candidates = || sets.iter().filter(|s| s.is_candidate());
    let least = candidates().map(|s| s.busy.min(100)).min().unwrap_or(0);
    candidates().map(|s| (s.set, s.share(least))).collect()
}

/// The set that files of `own` move to, so that sets become alike: the emptiest, if it is clearly emptier. And how many bytes
/// of them: half of what would make the two alike, as the figures are a little old when the files are there.
pub fn emptier(own: &SetRoom, sets: &[SetRoom]) -> Option<(SetId, u64)> {
    let candidates = sets.iter().filter(|s| s.set != own.set && s.is_candidate());
    let emptiest = candidates.min_by_key(|s| (s.fullness(), s.set))?;
    let more = own.fullness().checked_sub(emptiest.fullness()).filter(|more| *more >= UNEVEN)?;
    Some((emptiest.set, own.total.min(emptiest.total) / 4000 * more))
}

/// The least busy set of those that are not so much fuller than `own` that files would come back, and by how many percent points it is
/// less busy.
pub fn idler(own: &SetRoom, sets: &[SetRoom]) -> Option<(SetId, u8)> {
    let has_room =
        |s: &&SetRoom| s.set != own.set && s.is_candidate() && s.fullness() < own.fullness() + UNEVEN / 2;
    let idlest = sets.iter().filter(has_room).min_by_key(|s| (s.busy.min(100), s.set))?;
    Some((idlest.set, own.busy.min(100).saturating_sub(idlest.busy.min(100))))
}

/// The set that files of `own` move to when all are to leave it: the one with most room. And how many bytes of them, before the
/// figures are looked at anew.
pub fn roomiest(own: SetId, sets: &[SetRoom]) -> Option<(SetId, u64)> {
    let candidates = sets.iter().filter(|s| s.set != own && s.is_candidate());
    candidates.max_by_key(|s| (s.available, s.set)).map(|s| (s.set, s.available / 4))
}

/// Bytes of files that would move from one set to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedMove {
    /// The fuller set.
    pub from: SetId,
    /// The emptier one.
    pub to: SetId,
    /// About how many bytes.
    pub bytes: u64,
}

/// What [`emptier`] would have moved by the time that no set is clearly fuller than another one, if all files could move.
pub fn plan(sets: &[SetRoom]) -> Vec<PlannedMove> {
    let mut rooms = sets.to_vec();
    let mut moved: BTreeMap<(SetId, SetId), u64> = BTreeMap::new();
    for _ in 0..PLAN_ROUNDS {
        let before = rooms.clone();
        for own in &before {
            let Some((to, bytes)) = emptier(own, &before).filter(|(_, bytes)| *bytes > 0) else { continue };
            *moved.entry((own.set, to)).or_default() += bytes;
            for room in &mut rooms {
                if room.set == own.set {
                    room.available = room.available.saturating_add(bytes).min(room.total);
                } else if room.set == to {
                    room.available = room.available.saturating_sub(bytes);
                }
            }
        }
        if rooms == before {
            break;
        }
    }
    moved.into_iter().map(|((from, to), bytes)| PlannedMove { from, to, bytes }).collect()
}

/// How many subdirectories of a directory stay with it: none of the root's, and more the deeper it is.
pub fn kept(depth: u32) -> u32 {
    if depth == 0 { 0 } else { KEPT.saturating_pow(depth) }
}

/// Whether subdirectory number `count` (from 0) of a directory at that depth is spread over so many sets whatever room there is.
fn is_spread(depth: u32, count: u32, sets: usize) -> bool {
    let one_by_one = sets.saturating_mul(SPREAD).clamp(SPREAD_IN_ALL.0, SPREAD_IN_ALL.1);
    let is_chosen = |beyond: usize| beyond < one_by_one || beyond.is_multiple_of(SPARSE);
    let beyond = count.checked_sub(kept(depth)).and_then(|beyond| usize::try_from(beyond).ok());
    depth == 0 || beyond.is_some_and(is_chosen)
}

/// The set for a new directory that is not to live with its parent; `None`: it does. `turn` differs from call to call, and
/// counts up.
pub fn choose(parent: &Parent, sets: &[SetRoom], turn: u64) -> Option<SetId> {
    if !is_spread(parent.depth, parent.subdirectories, sets.len()) && !is_to_be_left(parent.set, sets) {
        return None;
    }
    let shares = shares(sets);
    let all: u128 = shares.iter().map(|(_, share)| u128::from(*share)).sum();
    // A point on a line on which each set has a stretch as long as its room.
    let mut point = (u128::from(turn.wrapping_mul(GOLDEN)) * all.min(u64::MAX.into())) >> 64;
    let mut last = None;
    for (set, share) in shares {
        last = Some(set);
        match point.checked_sub(u128::from(share)) {
            Some(rest) => point = rest,
            None => break,
        }
    }
    last
}

/// A set's turn to get a large file is worth so much; all sets together earn as much with each file.
const TURN: i64 = 1 << 32;

/// Whose turn it is to get a large file. Sets get them in proportion to their room, busy ones fewer, and files that follow each other go to as
/// many sets as there are (smooth weighted round robin): those that are written now are spread over all sets, whatever the
/// figures do not show yet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Turns(BTreeMap<SetId, i64>);

impl Turns {
    /// The set for one more file, in whose directory's set that is decided. `None`: no set has room.
    pub fn next(&mut self, own: SetId, sets: &[SetRoom]) -> Option<SetId> {
        let shares = shares(sets);
        let all: u128 = shares.iter().map(|(_, share)| u128::from(*share)).sum();
        self.0.retain(|set, _| shares.iter().any(|(s, _)| s == set));
        for (set, share) in shares {
            let earned = (u128::from(share) << 32).checked_div(all).unwrap_or(0);
            *self.0.entry(set).or_default() += i64::try_from(earned).unwrap_or(TURN);
        }
        // The own set first: a file that stays costs nothing. Those that decide for other directories begin elsewhere.
        let after = |set: &SetId| set.0.wrapping_sub(own.0);
        let (set, earned) = self.0.iter_mut().max_by_key(|(set, earned)| (**earned, Reverse(after(set))))?;
        *earned -= TURN;
        Some(*set)
    }
}

/// Whether a set is full, takes no changes, or is clearly fuller than the mean.
fn is_to_be_left(set: SetId, sets: &[SetRoom]) -> bool {
    let candidates = || sets.iter().filter(|s| s.is_candidate());
    let Some(own) = candidates().find(|s| s.set == set) else { return true };
    let count = candidates().count() as u64;
    let mean = candidates().map(SetRoom::percent_full).sum::<u64>() / count.max(1);
    own.percent_full() > mean + CLEARLY_FULLER
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
