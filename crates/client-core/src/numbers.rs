//! Numbers of a session's changes of one set.

use alloc::vec::Vec;

/// Which numbers were given, and which of them are under way.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    last: u64,
    /// Ascending: numbers are given in order.
    under_way: Vec<u64>,
}

impl Numbers {
    pub(crate) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.under_way.push(self.last);
        self.last
    }

    pub(crate) fn end(&mut self, seq: u64) {
        let at = self.under_way.binary_search(&seq);
        assert!(at.is_ok(), "a change ends once");
        if let Ok(at) = at {
            self.under_way.remove(at);
        }
    }

    /// The largest number up to which all are finished.
    pub(crate) fn finished(&self) -> u64 {
        self.under_way.first().map_or(self.last, |seq| seq - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finished_stops_below_the_oldest_change_under_way() {
        let mut n = Numbers::default();
        assert_eq!(n.finished(), 0);
        let (a, b, c) = (n.begin(), n.begin(), n.begin());
        assert_eq!((a, b, c, n.finished()), (1, 2, 3, 0));
        n.end(b);
        assert_eq!(n.finished(), 0);
        n.end(a);
        assert_eq!(n.finished(), 2);
        n.end(c);
        assert_eq!(n.finished(), 3);
    }

    #[test]
    #[should_panic(expected = "a change ends once")]
    fn a_change_that_ended_does_not_end_again() {
        let mut n = Numbers::default();
        let seq = n.begin();
        n.end(seq);
        n.end(seq);
    }
}
