//! A map that knows which of its entries was used longest ago.

use std::collections::HashMap;
use std::hash::Hash;

const NONE: usize = usize::MAX;

struct Slot<K, V> {
    key: K,
    value: V,
    newer: usize,
    older: usize,
}

/// The map. It never drops anything by itself: the owner asks for the oldest.
pub(crate) struct Lru<K, V> {
    places: HashMap<K, usize>,
    slots: Vec<Option<Slot<K, V>>>,
    free: Vec<usize>,
    newest: usize,
    oldest: usize,
}

impl<K: Hash + Eq + Copy, V> Lru<K, V> {
    pub(crate) fn new() -> Self {
        Lru { places: HashMap::new(), slots: Vec::new(), free: Vec::new(), newest: NONE, oldest: NONE }
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    fn slot(&mut self, at: usize) -> Option<&mut Slot<K, V>> {
        self.slots.get_mut(at).and_then(Option::as_mut)
    }

    fn unlink(&mut self, at: usize) {
        let Some(s) = self.slot(at) else { return };
        let (newer, older) = (s.newer, s.older);
        match self.slot(newer) {
            Some(s) => s.older = older,
            None => self.newest = older,
        }
        match self.slot(older) {
            Some(s) => s.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, at: usize) {
        let was = self.newest;
        if let Some(s) = self.slot(at) {
            s.newer = NONE;
            s.older = was;
        }
        match self.slot(was) {
            Some(s) => s.newer = at,
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
        self.slot(at).map(|s| &mut s.value)
    }

    /// The value, whose age stays as it is.
    pub(crate) fn peek(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.places.get(key)?;
        self.slot(at).map(|s| &mut s.value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(v) = self.get(&key) {
            *v = value;
            return;
        }
        let slot = Some(Slot { key, value, newer: NONE, older: NONE });
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
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
        self.slots.get_mut(at).and_then(Option::take).map(|s| s.value)
    }

    /// The key used longest ago.
    pub(crate) fn oldest(&self) -> Option<K> {
        self.slots.get(self.oldest).and_then(Option::as_ref).map(|s| s.key)
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
