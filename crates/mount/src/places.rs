//! Where the kernel may know a directory: by which names in which directories.
//!
//! Linux has one entry for each directory. When a name leads to a directory that it knows elsewhere, as another mount has renamed
//! it, it moves the entry, for which it tries to take the lock of renames across directories. In the midst of such a rename it
//! has that lock itself, and the program is told ESTALE, however often it tries. So the kernel has to forget the old entry before
//! it hears of the new one.
//!
//! Always true: a directory that the kernel knows has its entry at one of its places here, or none.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A name in a directory.
pub(crate) type Place = (u64, OsString);

/// Places of one directory that are remembered, at most. More come from listings alone.
const PLACES: usize = 8;

#[derive(Default)]
struct Known {
    of_node: HashMap<u64, Vec<Place>>,
    at_place: HashMap<Place, u64>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Places(Mutex<Known>);

impl Known {
    fn leave(&mut self, place: &Place) -> Option<u64> {
        let node = self.at_place.remove(place)?;
        if let Some(places) = self.of_node.get_mut(&node) {
            places.retain(|p| p != place);
        }
        Some(node)
    }

    fn enter(&mut self, node: u64, place: Place) {
        self.leave(&place);
        let places = self.of_node.entry(node).or_default();
        if places.len() >= PLACES {
            let oldest = places.remove(0);
            self.at_place.remove(&oldest);
        }
        self.of_node.entry(node).or_default().push(place.clone());
        self.at_place.insert(place, node);
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is about to hear that the name leads to the directory: the other places that it has to forget first. In the same
    /// directory it moves the entry without that lock.
    pub(crate) fn found(&self, node: u64, parent: u64, name: &OsStr) -> Vec<Place> {
        let mut known = self.lock();
        let before = known.of_node.get(&node).map_or(&[][..], Vec::as_slice);
        if matches!(before, [(p, n)] if *p == parent && n == name) {
            return Vec::new();
        }
        let before = known.of_node.remove(&node).unwrap_or_default();
        for place in &before {
            known.at_place.remove(place);
        }
        known.enter(node, (parent, name.to_owned()));
        before.into_iter().filter(|(p, _)| *p != parent).collect()
    }

    /// A listing shows it there. The kernel takes that over if it can.
    pub(crate) fn listed(&self, node: u64, parent: u64, name: &OsStr) {
        let mut known = self.lock();
        let is_there = |places: &Vec<Place>| places.iter().any(|(p, n)| *p == parent && n == name);
        if !known.of_node.get(&node).is_some_and(is_there) {
            known.enter(node, (parent, name.to_owned()));
        }
    }

    /// A program of this mount has renamed what was there, and the kernel knows.
    pub(crate) fn renamed(&self, from: Place, to: Place, exchange: bool) {
        let mut known = self.lock();
        let (moved, replaced) = (known.leave(&from), known.leave(&to));
        if let Some(node) = moved {
            known.enter(node, to);
        }
        if let Some(node) = replaced.filter(|_| exchange) {
            known.enter(node, from);
        }
    }

    /// The kernel knows it no more.
    pub(crate) fn forget(&self, node: u64) {
        let mut known = self.lock();
        for place in known.of_node.remove(&node).unwrap_or_default() {
            known.at_place.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(parent: u64, name: &str) -> Place {
        (parent, name.into())
    }

    fn found(places: &Places, node: u64, parent: u64, name: &str) -> Vec<Place> {
        places.found(node, parent, OsStr::new(name))
    }

    #[test]
    fn a_directory_that_is_found_elsewhere_leaves_where_it_was() {
        let places = Places::default();
        for _ in 0..2 {
            assert_eq!(found(&places, 7, 1, "a"), [], "it is there for the first time, or still");
        }
        assert_eq!(found(&places, 7, 2, "a"), [at(1, "a")]);
        assert_eq!(found(&places, 7, 2, "b"), [], "the kernel moves it within a directory");
        assert_eq!(found(&places, 8, 2, "b"), [], "another one is there now");
        assert_eq!(found(&places, 7, 3, "b"), [], "it had no place any more");
        places.forget(7);
        assert_eq!(found(&places, 7, 1, "x"), []);
    }

    #[test]
    fn renames_of_this_mount_are_known_to_the_kernel() {
        let places = Places::default();
        found(&places, 7, 1, "a");
        found(&places, 8, 2, "b");
        places.renamed(at(1, "a"), at(3, "c"), false);
        assert_eq!(found(&places, 7, 3, "c"), []);
        places.renamed(at(3, "c"), at(2, "b"), true);
        assert_eq!((found(&places, 7, 2, "b"), found(&places, 8, 3, "c")), (vec![], vec![]));
        places.renamed(at(2, "b"), at(3, "c"), false);
        assert_eq!(found(&places, 8, 5, "d"), [], "it was replaced");
        places.renamed(at(9, "nothing"), at(3, "c"), false);
        assert_eq!(found(&places, 7, 4, "c"), []);
    }

    #[test]
    fn what_is_only_listed_may_be_at_either_place() {
        let places = Places::default();
        found(&places, 7, 1, "a");
        places.listed(7, 2, OsStr::new("b"));
        places.listed(7, 2, OsStr::new("b"));
        assert_eq!(found(&places, 7, 3, "c"), [at(1, "a"), at(2, "b")]);
        for n in 0..100 {
            places.listed(7, n + 10, OsStr::new("b"));
        }
        assert_eq!(found(&places, 7, 3, "c").len(), PLACES);
        assert_eq!(places.lock().at_place.len(), 1);
    }
}
