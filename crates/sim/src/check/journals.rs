//! Journals: one stamp names one change for ever, on whatever brick; the bricks in sync end with equal journals in which no
//! operation occurs twice.

use crate::brick::Record;
use crate::world::World;
use ids::{Epoch, Lsn, OpId};
use std::collections::{BTreeMap, BTreeSet};
use wire::Change;

/// What every stamp was given to.
#[derive(Default)]
pub(crate) struct Stamps(BTreeMap<(usize, Epoch, Lsn), (OpId, Change, u64)>);

fn key(set: usize, entry: &Record) -> (usize, Epoch, Lsn) {
    (set, entry.stamp.epoch, entry.stamp.lsn)
}

impl Stamps {
    /// A brick is about to journal the entry.
    pub(crate) fn ordered(&mut self, set: usize, entry: &Record) -> Option<String> {
        let content = (entry.op, entry.body.change().clone(), entry.body.tag());
        let known = self.0.entry(key(set, entry)).or_insert_with(|| content.clone());
        (*known != content).then(|| format!("journals: {:?} is both {known:?} and {content:?}", entry.stamp))
    }

    /// A brick alone could not apply its change and gives the position again.
    pub(crate) fn withdrawn(&mut self, set: usize, entry: &Record) {
        self.0.remove(&key(set, entry));
    }
}

impl World {
    pub(crate) fn check_journals(&self, set: usize) -> Result<(), String> {
        let journal = self.final_journal(set);
        let mut seen = BTreeSet::new();
        for pair in journal.windows(2) {
            if let [a, b] = pair
                && (b.stamp.lsn != a.stamp.lsn.next() || b.stamp.epoch < a.stamp.epoch)
            {
                return Err(format!("journals: set {set}: {:?} after {:?}", b.stamp, a.stamp));
            }
        }
        match journal.iter().find(|e| e.op.seq > 0 && !seen.insert(e.op)) {
            Some(twice) => Err(format!("once: set {set}: {:?} was done twice: {twice:?}", twice.op)),
            None => Ok(()),
        }
    }
}
