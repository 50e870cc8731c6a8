//! The locks that the processes of one mount have on its files: `fcntl` locks of ranges, and `flock` locks.
//!
//! The rules are those of Linux (fcntl(2), flock(2)). An owner is whatever the kernel calls one: a process for `fcntl`, an
//! open file for `flock` and for `F_OFD_SETLK`. Nothing here waits, asks or reads a clock.
//!
//! Always true: the ranges of one owner do not overlap, and those that touch differ in kind; of two owners' ranges that
//! overlap both are shared.

use std::collections::{BTreeMap, BTreeSet};

/// The most ranges of all files together: a program must not fill our memory.
const RANGES_MAX: usize = 1 << 20;

/// A file: the kernel's number of its node.
type Node = u64;
type Owner = u64;

/// The two kinds of locks, which do not see each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Family {
    /// Of `fcntl`.
    Ranges,
    /// Of `flock`: of the whole file.
    Whole,
}

/// The locks of one family on one file.
pub(crate) type Place = (Node, Family);

/// A lock that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) owner: Owner,
    /// The first byte, and the last one.
    pub(crate) range: (u64, u64),
    pub(crate) exclusive: bool,
    pub(crate) pid: u32,
    /// The open file that it comes through.
    pub(crate) handle: u64,
}

/// A range that is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) exclusive: bool,
    pub(crate) pid: u32,
}

/// Why a lock is not granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// Another owner's lock is in the way.
    Conflict,
    /// There are too many.
    TooMany,
}

#[derive(Debug, Default)]
struct Owned {
    /// By first byte.
    ranges: BTreeMap<u64, Range>,
    /// The open files through which they were taken.
    handles: BTreeSet<u64>,
}

/// Somebody who waits for a lock.
#[derive(Clone, Copy, Debug)]
struct Wait {
    place: Place,
    ask: Ask,
}

/// All locks of a mount.
#[derive(Debug, Default)]
pub(crate) struct LockTable {
    files: BTreeMap<Place, BTreeMap<Owner, Owned>>,
    ranges: usize,
    waits: BTreeMap<u64, Wait>,
    next_wait: u64,
}

impl LockTable {
    /// How many files have locks, counted by family.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }

    /// Whether any lock was taken through this open file.
    pub(crate) fn has_handle(&self, handle: u64) -> bool {
        self.files.values().flat_map(BTreeMap::values).any(|o| o.handles.contains(&handle))
    }

    /// All open files through which locks were taken.
    pub(crate) fn handles(&self) -> BTreeSet<u64> {
        self.files.values().flat_map(BTreeMap::values).flat_map(|o| &o.handles).copied().collect()
    }

    /// A lock that is in the way.
    pub(crate) fn test(&self, place: Place, ask: &Ask) -> Option<Range> {
        self.blockers(place, ask).next().map(|(_, range)| range)
    }

    fn blockers(&self, place: Place, ask: &Ask) -> impl Iterator<Item = (Owner, Range)> {
        let (owner, exclusive, (start, end)) = (ask.owner, ask.exclusive, ask.range);
        let others = self.files.get(&place).into_iter().flatten().filter(move |(o, _)| **o != owner);
        others.flat_map(move |(o, owned)| {
            let near = owned.ranges.range(..=end).rev().map(|(_, r)| *r).take_while(move |r| r.end >= start);
            near.filter(move |r| exclusive || r.exclusive).map(|r| (*o, r))
        })
    }

    /// Grants a lock, in the place of what the owner has in its range.
    ///
    /// # Errors
    /// It is not granted. The owner keeps what it had, but for a lock of the whole file: that one is gone, as flock(2) says.
    pub(crate) fn set(&mut self, place: Place, ask: &Ask) -> Result<(), Refused> {
        if place.1 == Family::Whole {
            if self.has_same(place, ask) {
                return Ok(());
            }
            self.drop_owner(place, ask.owner);
        }
        if self.test(place, ask).is_some() {
            return Err(Refused::Conflict);
        }
        // What is there may be cut in two.
        if self.ranges + 2 > RANGES_MAX {
            return Err(Refused::TooMany);
        }
        let (start, end) = ask.range;
        let owned = self.files.entry(place).or_default().entry(ask.owner).or_default();
        let before = owned.ranges.len();
        owned.handles.insert(ask.handle);
        owned.cut(start, end);
        owned.put(Range { start, end, exclusive: ask.exclusive, pid: ask.pid });
        self.ranges = self.ranges + owned.ranges.len() - before;
        Ok(())
    }

    fn has_same(&self, place: Place, ask: &Ask) -> bool {
        let owned = self.files.get(&place).and_then(|f| f.get(&ask.owner));
        owned.is_some_and(|o| o.ranges.values().any(|r| r.exclusive == ask.exclusive))
    }

    /// The owner gives up what it has in a range.
    ///
    /// # Errors
    /// There would be too many ranges.
    pub(crate) fn unset(
        &mut self,
        place: Place,
        owner: Owner,
        (start, end): (u64, u64),
    ) -> Result<(), Refused> {
        if self.ranges >= RANGES_MAX && (start, end) != (0, i64::MAX.unsigned_abs()) {
            return Err(Refused::TooMany);
        }
        let Some(owned) = self.files.get_mut(&place).and_then(|f| f.get_mut(&owner)) else { return Ok(()) };
        let before = owned.ranges.len();
        owned.cut(start, end);
        self.ranges = self.ranges + owned.ranges.len() - before;
        if owned.ranges.is_empty() {
            self.drop_owner(place, owner);
        }
        Ok(())
    }

    /// The owner gives up all that it has there; whether it had anything.
    pub(crate) fn drop_owner(&mut self, place: Place, owner: Owner) -> bool {
        let Some(file) = self.files.get_mut(&place) else { return false };
        let owned = file.remove(&owner);
        if file.is_empty() {
            self.files.remove(&place);
        }
        self.ranges -= owned.as_ref().map_or(0, |o| o.ranges.len());
        owned.is_some()
    }

    /// The last descriptor of an open file was closed. Whoever has locks through it has closed a descriptor of the file, and
    /// so lost all of them; whether there were any.
    pub(crate) fn release(&mut self, node: Node, handle: u64) -> bool {
        let mut found = false;
        for place in [(node, Family::Ranges), (node, Family::Whole)] {
            let through = |o: &Owned| o.handles.contains(&handle);
            let owners = self.files.get(&place).into_iter().flatten().filter(|(_, o)| through(o));
            for owner in owners.map(|(owner, _)| *owner).collect::<Vec<_>>() {
                found |= self.drop_owner(place, owner);
            }
        }
        found
    }

    /// All locks are gone.
    pub(crate) fn clear(&mut self) {
        self.files.clear();
        self.ranges = 0;
    }

    /// Somebody waits from now on; his number. `None`: he would wait for somebody who waits for him.
    pub(crate) fn begin_wait(&mut self, place: Place, ask: &Ask) -> Option<u64> {
        let wait = Wait { place, ask: *ask };
        // Owners of `flock` locks are open files: who waits for one may close another at any time.
        if place.1 == Family::Ranges && self.is_circle(&wait) {
            return None;
        }
        self.next_wait += 1;
        self.waits.insert(self.next_wait, wait);
        Some(self.next_wait)
    }

    /// He waits no more.
    pub(crate) fn end_wait(&mut self, number: u64) {
        self.waits.remove(&number);
    }

    fn is_circle(&self, wait: &Wait) -> bool {
        let blockers = |w: &Wait| self.blockers(w.place, &w.ask).map(|(owner, _)| owner).collect::<Vec<_>>();
        let (mut look, mut seen) = (blockers(wait), BTreeSet::new());
        while let Some(owner) = look.pop() {
            if owner == wait.ask.owner {
                return true;
            }
            if seen.insert(owner) {
                let his = |w: &&Wait| w.ask.owner == owner && w.place.1 == Family::Ranges;
                look.extend(self.waits.values().filter(his).flat_map(blockers));
            }
        }
        false
    }
}

impl Owned {
    /// Takes a range out.
    fn cut(&mut self, start: u64, end: u64) {
        let near = self.ranges.range(..=end).rev().map(|(_, r)| *r).take_while(|r| r.end >= start);
        for range in near.collect::<Vec<_>>() {
            self.ranges.remove(&range.start);
            if let Some(last) = start.checked_sub(1)
                && range.start < start
            {
                self.ranges.insert(range.start, Range { end: last, ..range });
            }
            if range.end > end {
                self.ranges.insert(end + 1, Range { start: end + 1, ..range });
            }
        }
    }

    /// Puts a range where none is, and joins it with its neighbours.
    fn put(&mut self, mut range: Range) {
        if let Some((_, left)) = self.ranges.range(..range.start).next_back().map(|(s, r)| (*s, *r))
            && left.end + 1 == range.start
            && left.exclusive == range.exclusive
        {
            self.ranges.remove(&left.start);
            range.start = left.start;
        }
        if let Some(right) = range.end.checked_add(1).and_then(|next| self.ranges.get(&next)).copied()
            && right.exclusive == range.exclusive
        {
            self.ranges.remove(&right.start);
            range.end = right.end;
        }
        self.ranges.insert(range.start, range);
    }
}

#[cfg(test)]
mod tests;
