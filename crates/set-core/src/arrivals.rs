//! Copies of files that are on their way here from other sets (docs/design/0018): nobody has a name for them yet.
//!
//! The primary alone knows of them, in memory. Whoever makes one and finds that this primary knows of it still has lost
//! nothing that it was told is done: a primary that took over, or came back, knows of none.

use alloc::collections::BTreeMap;
use core::time::Duration;
use ids::Fid;

/// One to which nothing came for so long is given up by who made it.
const SILENCE: Duration = Duration::from_secs(60);

/// The copies, and when something last came.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(BTreeMap<Fid, Duration>);

impl Arrivals {
    /// One begins.
    pub(crate) fn begin(&mut self, now: Duration, fid: Fid) {
        self.0.retain(|_, heard| now < *heard + SILENCE);
        self.0.insert(fid, now);
    }

    /// Something came for a file, which may be one.
    pub(crate) fn hear(&mut self, now: Duration, fid: Fid) {
        if let Some(heard) = self.0.get_mut(&fid).filter(|heard| now < **heard + SILENCE) {
            *heard = now;
        }
    }

    /// Whether the file is one that somebody makes.
    pub(crate) fn are_under_way(&self, now: Duration, fid: Fid) -> bool {
        self.0.get(&fid).is_some_and(|heard| now < *heard + SILENCE)
    }

    /// The transaction about it has ended.
    pub(crate) fn end(&mut self, fid: Fid) {
        self.0.remove(&fid);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SetId};

    #[test]
    fn what_nobody_writes_to_is_given_up() {
        let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let at = Duration::from_secs;
        let mut arrivals = Arrivals::default();
        arrivals.hear(at(1), fid);
        assert!(!arrivals.are_under_way(at(1), fid), "nobody has begun it");
        arrivals.begin(at(1), fid);
        arrivals.hear(at(50), fid);
        assert!(arrivals.are_under_way(at(100), fid));
        arrivals.hear(at(200), fid);
        assert!(!arrivals.are_under_way(at(200), fid), "it was given up");
    }
}
