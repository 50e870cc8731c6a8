//! A map that knows which of its entries was used longest ago.

use crate::key_hash::KeySeed;
use std::collections::HashMap;
use std::hash::Hash;

const NONE: usize = usize::MAX;

/// Who was used before and after. Apart from keys and values, so that those of many entries lie close together: each use
/// touches those of several.
#[derive(Clone, Copy)]
struct Links {
    newer: usize,
    older: usize,
}

/// The map. It never drops anything by itself: the owner asks for the oldest.
pub(crate) struct Lru<K, V> {
    places: HashMap<K, usize, KeySeed>,
    slots: Vec<Option<(K, V)>>,
    links: Vec<Links>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
}

impl<K: Hash + Eq + Copy, V> Lru<K, V> {
    pub(crate) fn new() -> Self {
        let (slots, links, free) = (Vec::new(), Vec::new(), Vec::new());
        Lru { places: HashMap::default(), slots, links, free, newest: NONE, oldest: NONE }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn value(&mut self, at: usize) -> Option<&mut V> {
        self.slots.get_mut(at)?.as_mut().map(|(_, value)| value)
    }

    fn unlink(&mut self, at: usize) {
        let Some(Links { newer, older }) = self.links.get(at).copied() else { return };
        match self.links.get_mut(newer) {
            Some(l) => l.older = older,
            None => self.newest = older,
        }
        match self.links.get_mut(older) {
            Some(l) => l.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, at: usize) {
        let was = self.newest;
        if let Some(l) = self.links.get_mut(at) {
            *l = Links { newer: NONE, older: was };
        }
        match self.links.get_mut(was) {
            Some(l) => l.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    /// The value, which becomes the newest.
    pub(crate) fn get(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.places.get(key)?;
        if at != self.newest {
            self.unlink(at);
            self.link(at);
        }
        self.value(at)
    }

    /// The value, whose age stays as it is.
    pub(crate) fn peek(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.places.get(key)?;
        self.value(at)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(v) = self.get(&key) {
            *v = value;
            return;
        }
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some((key, value));
                at
            }
            None => {
                self.slots.push(Some((key, value)));
                self.links.push(Links { newer: NONE, older: NONE });
                self.slots.len() - 1
            }
        };
        self.places.insert(key, at);
        self.link(at);
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.places.remove(key)?;
        self.unlink(at);
        self.free.push(at);
        self.slots.get_mut(at).and_then(Option::take).map(|(_, value)| value)
    }

    /// The key used longest ago.
    pub(crate) fn oldest(&self) -> Option<K> {
        self.slots.get(self.oldest).and_then(Option::as_ref).map(|(key, _)| *key)
    }

    /// Takes out the entry used longest ago.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        let key = self.oldest()?;
        self.remove(&key).map(|v| (key, v))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let mut l = Lru::new();
        for i in 0..4 {
            l.insert(i, i * 10);
        }
        assert_eq!(l.get(&0), Some(&mut 0));
        assert_eq!(l.remove(&2), Some(20));
        assert_eq!(l.pop_oldest(), Some((1, 10)));
        l.insert(9, 90);
        assert_eq!(l.len(), 3);
        assert_eq!(l.pop_oldest(), Some((3, 30)));
        assert_eq!(l.pop_oldest(), Some((0, 0)));
        assert_eq!(l.pop_oldest(), Some((9, 90)));
        assert_eq!(l.pop_oldest(), None);
    }
}
