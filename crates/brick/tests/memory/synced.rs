//! What has to be there after every power cut: what was synced and not changed since.

use super::common::*;
use brick::{Brick, ReadOutcome};
use ids::{Fid, Lsn};
use namespace::TreeState;
use std::collections::BTreeMap;
use wire::{Attr, Change, Name};

/// An object as users see it.
#[derive(PartialEq, Eq, Debug, Clone)]
pub(crate) struct State {
    attr: Attr,
    data: brick::Sum,
    xattrs: Vec<(Name, Vec<u8>)>,
}

pub(crate) fn state(b: &mut Brick, fid: Fid) -> Option<State> {
    // How much of a file are holes may differ: a healing writes small ones as zeros.
    let attr = Attr { blocks: 0, ..b.attr(fid).ok()? };
    let data = match attr.mode & 0o170_000 {
        0o100_000 => match b.read(fid, 0, u32::try_from(attr.size).unwrap()).unwrap() {
            ReadOutcome::Data(d) => d.to_vec(),
            ReadOutcome::NeedsBlocking(job) => job.run().unwrap().to_vec(),
        },
        0o120_000 => b.readlink(fid).unwrap(),
        _ => vec![],
    };
    let mut xattrs = Vec::new();
    for name in b.listxattr(fid).unwrap() {
        let value = b.getxattr(fid, &name).unwrap().unwrap();
        xattrs.push((name, value));
    }
    xattrs.sort();
    Some(State { attr, data: brick::sum(&data), xattrs })
}

/// What was synced when.
#[derive(Default)]
pub(crate) struct Synced {
    /// All objects, and the last change that touched each.
    touched: BTreeMap<Fid, Lsn>,
    /// Objects that were synced by themselves, and after which change.
    objects: BTreeMap<Fid, Lsn>,
    /// The last change before which everything was synced.
    all: Lsn,
    /// The last change whose record was synced.
    pub(crate) journal: Lsn,
    names: BTreeMap<Fid, Vec<(Fid, Name)>>,
}

impl Synced {
    pub(crate) fn changed(&mut self, lsn: Lsn, change: &Change) {
        for fid in change.touched() {
            self.touched.insert(fid, lsn);
        }
        match change {
            Change::Create { parent, name, fid, .. } | Change::Link { parent, name, fid, .. } => {
                self.names.entry(*fid).or_default().push((*parent, name.clone()));
            }
            Change::Rename { fid, to_parent, to_name, .. } => {
                self.names.insert(*fid, vec![(*to_parent, to_name.clone())]);
            }
            Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, .. } => {
                self.names.insert(*fid, vec![(*to_parent, to_name.clone())]);
                self.names.insert(*to_fid, vec![(*parent, name.clone())]);
            }
            Change::Unlink { fid, .. } => drop(self.names.remove(fid)),
            Change::DropOrphan { fid } => drop(self.touched.insert(*fid, lsn)),
            _ => {}
        }
    }

    pub(crate) fn synced_object(&mut self, fid: Fid, upto: Lsn, there: bool) {
        if there {
            self.objects.insert(fid, upto);
        }
        self.journal = self.journal.max(upto);
    }

    pub(crate) fn synced_all(&mut self, upto: Lsn) {
        self.all = self.all.max(upto);
        self.journal = self.journal.max(upto);
    }

    /// Whether the object cannot have changed since it was last synced.
    fn is_sure(&self, fid: Fid) -> bool {
        let touched = self.touched.get(&fid).copied().unwrap_or(Lsn(0));
        let synced = self.objects.get(&fid).copied().unwrap_or(Lsn(0)).max(self.all);
        touched <= synced
    }

    /// Compares what must be there with the brick that has everything. Counts of
    /// links are left out: a name may be left in lost+found.
    pub(crate) fn check(&self, whole: &mut Brick, cut: &mut Brick) -> usize {
        let mut count = 0;
        for fid in self.touched.keys().chain([&ROOT]).filter(|fid| self.is_sure(**fid)) {
            let (mut expected, mut found) = (state(whole, *fid), state(cut, *fid));
            for s in [&mut expected, &mut found].into_iter().flatten() {
                s.attr.nlink = 0;
            }
            assert_eq!(found, expected, "{fid} was synced");
            count += usize::from(expected.is_some());
            for (parent, name) in self.names.get(fid).into_iter().flatten() {
                let there = whole.lookup(*parent, name).ok().flatten().map(|e| e.fid);
                if there == Some(*fid) {
                    let here = cut.lookup(*parent, name).unwrap_or_else(|e| panic!("{fid}: {parent}: {e}"));
                    assert_eq!(here.map(|e| e.fid), Some(*fid), "the entry {name} of {fid}");
                }
            }
        }
        count
    }
}
