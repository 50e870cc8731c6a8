//! Which thread of a server serves which set (see `docs/design/0013-hung-disks.md`).
//!
//! Always true: a set keeps its thread for as long as the process lives, as the connections that ask for it are known to
//! that thread alone. The front thread serves no set, so no disk ever holds it up. As far as the bounds allow, no thread
//! serves bricks on two file systems.

use ids::{BrickId, SetId};
use std::collections::{BTreeMap, BTreeSet};

/// The thread that serves no set.
pub const FRONT: usize = 0;

/// The most threads of a server that serve sets. File systems beyond share.
const MOST: usize = 128;

/// The file system that a brick is on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Disk {
    /// The one that is mounted there.
    Mounted(String),
    /// Not known, or not the one where the brick was: its disk may be missing now, and come later.
    Unknown(BrickId),
}

/// A brick's disk: `found`, where its file system is mounted now if that could be told; `known`: where it was when the
/// brick was last opened, empty if that is not known.
pub fn disk(brick: BrickId, found: Option<&str>, known: &str) -> Disk {
    match found {
        Some(found) if known.is_empty() || known == found => Disk::Mounted(found.to_owned()),
        _ => Disk::Unknown(brick),
    }
}

/// The sets and their threads, which are numbered from 1.
#[derive(Debug)]
pub struct Threads {
    /// Threads for as many sets of one file system as there are cores serve at the same time.
    cores: usize,
    threads: Vec<Thread>,
    sets: BTreeMap<SetId, usize>,
}

#[derive(Debug)]
struct Thread {
    disk: Disk,
    sets: BTreeSet<SetId>,
}

impl Threads {
    /// No sets yet, on a machine with so many cores.
    pub fn new(cores: usize) -> Threads {
        Threads { cores: cores.clamp(1, MOST / 4), threads: Vec::new(), sets: BTreeMap::new() }
    }

    /// The most that there can be, the front one among them.
    pub const fn most() -> usize {
        MOST + 1
    }

    /// The thread of a set that has one.
    pub fn of(&self, set: SetId) -> Option<usize> {
        self.sets.get(&set).copied()
    }

    /// The thread for a set: the one that it has, or one that serves its disk, or a new one.
    ///
    /// Each file system has a thread of its own. Beyond that threads are made as long as there are fewer than four times as
    /// many as cores, so that a server with few disks uses all of its cores for each.
    pub fn place(&mut self, set: SetId, disk: &Disk) -> usize {
        if let Some(known) = self.of(set) {
            return known;
        }
        let of_disk: Vec<usize> =
            self.all().filter(|n| self.thread(*n).is_some_and(|t| t.disk == *disk)).collect();
        let free = of_disk.iter().copied().find(|n| self.load(*n) == 0);
        let may_grow =
            of_disk.is_empty() || of_disk.len() < self.cores && self.threads.len() < 4 * self.cores;
        let number = match free {
            Some(free) => free,
            None if may_grow && self.threads.len() < MOST => {
                self.threads.push(Thread { disk: disk.clone(), sets: BTreeSet::new() });
                self.threads.len()
            }
            None if of_disk.is_empty() => self.least(self.all()),
            None => self.least(of_disk.into_iter()),
        };
        if let Some(thread) = self.threads.get_mut(number - 1) {
            if thread.sets.is_empty() {
                thread.disk = disk.clone();
            }
            thread.sets.insert(set);
        }
        self.sets.insert(set, number);
        number
    }

    /// The pool has no such sets any more, and will not have them again: numbers are never given twice.
    pub fn forget(&mut self, gone: impl Fn(SetId) -> bool) {
        self.sets.retain(|set, _| !gone(*set));
        self.threads.iter_mut().for_each(|t| t.sets.retain(|set| !gone(*set)));
    }

    fn all(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.threads.len()
    }

    fn thread(&self, number: usize) -> Option<&Thread> {
        self.threads.get(number.checked_sub(1)?)
    }

    fn load(&self, number: usize) -> usize {
        self.thread(number).map_or(0, |t| t.sets.len())
    }

    /// The one with the fewest sets.
    fn least(&self, among: impl Iterator<Item = usize>) -> usize {
        among.min_by_key(|n| self.load(*n)).unwrap_or(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(mount: &str) -> Disk {
        Disk::Mounted(mount.to_owned())
    }

    fn placed(threads: &mut Threads, disk: &Disk, sets: std::ops::Range<u32>) -> Vec<usize> {
        sets.map(|s| threads.place(SetId(s), disk)).collect()
    }

    #[test]
    fn one_disk_has_as_many_threads_as_cores() {
        let mut threads = Threads::new(3);
        assert_eq!(placed(&mut threads, &on("/"), 1..8), [1, 2, 3, 1, 2, 3, 1]);
        assert_eq!(threads.of(SetId(5)), Some(2));
        assert_eq!(threads.of(SetId(8)), None);
        assert_eq!(threads.place(SetId(5), &on("/elsewhere")), 2, "it keeps its thread");
    }

    #[test]
    fn no_thread_serves_two_disks() {
        let mut threads = Threads::new(2);
        assert_eq!(placed(&mut threads, &on("/a"), 1..4), [1, 2, 1]);
        assert_eq!(placed(&mut threads, &on("/b"), 4..7), [3, 4, 3]);
        assert_eq!(placed(&mut threads, &on("/c"), 7..10), [5, 6, 5]);
        assert_eq!(placed(&mut threads, &on("/d"), 10..13), [7, 8, 7]);
        assert_eq!(placed(&mut threads, &on("/e"), 13..16), [9, 9, 9], "enough for two cores");
        assert_eq!(placed(&mut threads, &on("/a"), 16..18), [2, 1]);
    }

    #[test]
    fn threads_are_bounded() {
        let mut threads = Threads::new(64);
        let all: BTreeSet<usize> =
            (1..1000).map(|n| threads.place(SetId(n), &on(&format!("/disk{n}")))).collect();
        assert_eq!(all, (1..Threads::most()).collect());
        assert!(!all.contains(&FRONT));
        assert!(Threads::new(0).place(SetId(1), &on("/")) == 1 && Threads::new(999).cores < MOST);
    }

    #[test]
    fn a_set_that_is_gone_makes_room() {
        let mut threads = Threads::new(2);
        assert_eq!(placed(&mut threads, &on("/"), 1..3), [1, 2]);
        threads.forget(|set| set == SetId(2));
        assert_eq!(threads.of(SetId(2)), None);
        assert_eq!(threads.place(SetId(3), &on("/")), 2);
    }

    #[test]
    fn a_disk_that_is_missing_or_not_known_is_nobody_elses() {
        let brick = BrickId(7);
        assert_eq!(disk(brick, Some("/d"), ""), on("/d"));
        assert_eq!(disk(brick, Some("/d"), "/d"), on("/d"));
        assert_eq!(disk(brick, Some("/"), "/d"), Disk::Unknown(brick));
        assert_eq!(disk(brick, None, "/d"), Disk::Unknown(brick));
    }
}
