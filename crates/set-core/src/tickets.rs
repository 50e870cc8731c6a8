//! A table of things that wait, each under a number that is issued once.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

/// What waits, by its ticket.
#[derive(Debug)]
pub(crate) struct Tickets<T> {
    last: u64,
    /// Boxed: mostly one or none waits, and the map's only node, which comes and goes with it, has room for eleven.
    waiting: BTreeMap<u64, Box<T>>,
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Tickets { last: 0, waiting: BTreeMap::new() }
    }
}

impl<T> Tickets<T> {
    /// Keeps it, and gives it a ticket.
    pub(crate) fn issue(&mut self, what: T) -> u64 {
        self.last += 1;
        self.waiting.insert(self.last, Box::new(what));
        self.last
    }

    /// Gives up what waits under the ticket; once.
    pub(crate) fn take(&mut self, ticket: u64) -> Option<T> {
        self.waiting.remove(&ticket).map(|what| *what)
    }

    /// What waits under the ticket.
    pub(crate) fn get(&self, ticket: u64) -> Option<&T> {
        self.waiting.get(&ticket).map(|what| &**what)
    }

    /// What waits under the ticket, to be changed.
    pub(crate) fn get_mut(&mut self, ticket: u64) -> Option<&mut T> {
        self.waiting.get_mut(&ticket).map(|what| &mut **what)
    }

    /// All that waits.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.waiting.values().map(|what| &**what)
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Gives up everything.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + use<T> {
        core::mem::take(&mut self.waiting).into_values().map(|what| *what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_given_and_taken_once() {
        let mut tickets = Tickets::default();
        let (a, b) = (tickets.issue('a'), tickets.issue('b'));
        assert!(a != b);
        assert_eq!((tickets.take(a), tickets.take(a)), (Some('a'), None));
        assert!(!tickets.is_empty() && tickets.issue('c') > b);
        assert_eq!(tickets.drain().count(), 2);
        assert!(tickets.is_empty());
    }
}
