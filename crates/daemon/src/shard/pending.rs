//! Directories of this set that wait for the end of a transaction with another set, as the journal tells.

use ids::Fid;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use wire::Change;

/// Pending directories, and since when they are known to be.
#[derive(Debug, Default)]
pub(crate) struct Pending(BTreeMap<Fid, Instant>);

impl Pending {
    /// Takes note of an applied change.
    pub(crate) fn note(&mut self, change: &Change) {
        match change {
            Change::Place { fid, .. } | Change::Condemn { fid } => {
                self.0.insert(*fid, Instant::now());
            }
            Change::Settle { fid, .. } | Change::Rmdir { fid, .. } => {
                self.0.remove(fid);
            }
            _ => {}
        }
    }

    /// Those whose transaction should be over.
    pub(crate) fn older_than(&self, age: Duration) -> Vec<Fid> {
        self.0.iter().filter(|(_, since)| since.elapsed() >= age).map(|(f, _)| *f).collect()
    }
}
