//! After a power cut: transactions about names of files that had ended, but perhaps not on disk (docs/design/0016).
//!
//! They end once more. What a name leads to may have changed since they ended: only what the journal tells counts, as the rest
//! of it was not synced.

use crate::error::OpenError;
use crate::open::{Brick, Site};
use crate::recover::given;
use disk_format::Tag;
use disk_format::tag::{INTENT, Meant, PENDING};
use ids::{Fid, Lsn};
use wire::op::EntryName;
use wire::{Change, Errno};

/// A transaction whose end may be lost.
struct LostEnd {
    fid: Fid,
    meant: Meant,
    at: Lsn,
}

impl LostEnd {
    /// Takes in a change after the end. A name that it gave to the file is not the one that the file was to lose.
    fn take_in(&mut self, change: &Change) {
        let gives = |place: &EntryName| {
            let names = given(change);
            names.contains(&(place.dir, &place.name)) && change.touched().contains(&self.fid)
        };
        if self.meant.intent.drop.as_ref().is_some_and(gives) {
            self.meant.intent.drop = None;
        }
    }
}

impl Brick {
    /// Marks those of these files again whose transactions ended after `durable`.
    pub(crate) fn bring_marks_back(
        &mut self,
        at: &Site,
        changed: &[Fid],
        durable: Lsn,
    ) -> Result<(), OpenError> {
        let mut lost = self.lost_ends(changed, durable).map_err(|e| at.io("look for marks in", e))?;
        if let Some(first) = lost.iter().map(|end| end.at).min() {
            for record in self.journal.iterate(first.next().max(self.journal.first())) {
                let record = record?;
                let before = lost.iter_mut().filter(|end| end.at < record.stamp.lsn);
                before.for_each(|end| end.take_in(&record.change));
            }
        }
        self.mark_again(&lost).map_err(|e| at.io("mark files in", e))
    }

    fn lost_ends(&mut self, changed: &[Fid], durable: Lsn) -> Result<Vec<LostEnd>, Errno> {
        let mut lost = Vec::new();
        for fid in changed {
            let open = match self.open_fid(*fid) {
                Err(Errno::ESTALE | Errno::ENOENT) => continue,
                other => other?,
            };
            let own = self.identity.set;
            // What is beside a directory of this set is of another kind.
            let waits = |tag: Tag| tag.flags & PENDING != 0 && (!open.is_dir() || tag.home != own);
            if !open.tag()?.is_some_and(waits) {
                continue;
            }
            if let Some(meant @ Meant { ended: Some(at), .. }) = open.meant()?
                && at.lsn > durable
            {
                lost.push(LostEnd { fid: *fid, meant, at: at.lsn });
            }
        }
        Ok(lost)
    }

    fn mark_again(&mut self, lost: &[LostEnd]) -> Result<(), Errno> {
        for LostEnd { fid, meant, .. } in lost {
            let again = Meant { ended: None, ..meant.clone() };
            self.open_fid(*fid)?.set_xattr(INTENT.as_bytes(), &again.encode())?;
            if let Some(node) = self.nodes.peek(*fid) {
                node.mark_again();
            }
        }
        Ok(())
    }
}
