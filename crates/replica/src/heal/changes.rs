//! What a change means to a brick that heals: what it leaves stale if it was missed, and whether it can be applied.

use super::DirtySet;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use ids::Fid;
use wire::op::Node;
use wire::{Change, Name};

/// What to do with a change of the stream (it is journaled in any case).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamAction {
    /// Apply it.
    Apply,
    /// Leave it out: what it touches is fetched later.
    Skip,
}

impl DirtySet {
    /// A change that this brick missed, or may have lost.
    pub fn mark(&mut self, change: &Change) {
        for (dir, name) in names(change) {
            self.mark_name(dir, name);
        }
        match change {
            Change::Create { fid, home, node, .. } => match node {
                Node::Dir if fid.set != *home => {}
                Node::Dir => self.mark_dir(*fid),
                _ => self.mark_file(*fid, false),
            },
            Change::PrepareMkdir { fid, .. } => self.mark_dir(*fid),
            Change::TakeDir { .. } | Change::GiveDir { .. } => self.mark_handed(change),
            Change::Arrive { fid, .. } => self.mark_file(*fid, false),
            Change::Touch { .. } | Change::Partial { .. } => {
                change.touched().into_iter().for_each(|fid| self.mark_unknown(fid));
            }
            _ => self.mark_object(change),
        }
    }

    /// A directory that has come to the set or left it, and the folder of names that files have in it otherwise.
    fn mark_handed(&mut self, change: &Change) {
        let (Change::TakeDir { fid, .. } | Change::GiveDir { fid, .. }) = change else { return };
        for fid in change.touched() {
            self.mark_meta(fid);
        }
        // The primary may not have given it away: what is in it goes with the change.
        self.mark_dir(*fid);
        self.mark_dir(fid.names());
    }

    /// What a change does to the object itself, names apart.
    fn mark_object(&mut self, change: &Change) {
        self.linked.extend(change.named());
        match change {
            Change::Nop => {}
            Change::Write { fid, offset, len, .. } => {
                self.mark_range(*fid, *offset, offset.saturating_add(u64::from(*len)));
            }
            Change::CopyRange { to, to_offset, len, .. } => {
                self.mark_range(*to, *to_offset, to_offset.saturating_add(*len));
            }
            Change::Fallocate { fid, mode, offset, len, .. } => {
                // Collapse and insert move everything behind.
                let end = if mode & 0x28 != 0 { u64::MAX } else { offset.saturating_add(*len) };
                self.mark_range(*fid, *offset, end);
            }
            // What lay beyond a truncation must not come back when the file grows again.
            Change::SetAttr { fid, size: Some(size), .. } => self.mark_range(*fid, *size, u64::MAX),
            other => {
                for fid in objects(other) {
                    self.mark_meta(fid);
                }
            }
        }
    }

    /// Whether entries at this name are as the primary has them.
    fn name_is_clean(&self, dir: Fid, name: &Name) -> bool {
        let at = (self.order)(name);
        match self.dirty.get(&dir).filter(|d| !d.entries.is_empty()) {
            None => !self.is_unproven(dir),
            Some(d) => !d.entries.touches(at, at.saturating_add(1)),
        }
    }

    /// A change of the stream arrives.
    pub fn on_streamed(&mut self, change: &Change) -> StreamAction {
        // What others made of these objects cannot be worked out from changes: it is fetched.
        if !change.is_invalidation() && self.dirty.is_empty() {
            return StreamAction::Apply;
        }
        if self.can_apply(change) {
            if let Change::Create { fid, .. } | Change::Arrive { fid, .. } = change {
                self.prove(*fid);
            }
            return StreamAction::Apply;
        }
        for (dir, name) in names(change) {
            self.mark_name(dir, name);
        }
        match change {
            // A new object is found missing when its directory is compared; until then nothing can be done to it.
            Change::Create { fid, home, node: Node::Dir, .. } if fid.set == *home => self.mark_dir(*fid),
            Change::Create { node: Node::Dir, .. } => {}
            Change::Create { fid, .. } | Change::Arrive { fid, .. } => self.mark_file(*fid, false),
            Change::PrepareMkdir { fid, .. } => self.mark_dir(*fid),
            Change::TakeDir { .. } | Change::GiveDir { .. } => self.mark_handed(change),
            Change::Touch { .. } | Change::Partial { .. } => {
                change.touched().into_iter().for_each(|fid| self.mark_unknown(fid));
            }
            _ => self.mark_object(change),
        }
        StreamAction::Skip
    }

    fn can_apply(&self, change: &Change) -> bool {
        if !names(change).iter().all(|(dir, name)| self.name_is_clean(*dir, name)) {
            return false;
        }
        match change {
            Change::Nop | Change::Create { .. } | Change::Arrive { .. } => true,
            Change::Unlink { fid, .. } | Change::Depart { fid, .. } | Change::DepartAll { fid, .. } => {
                !self.linked.contains(fid)
            }
            // What is to go may hold leftovers here: the comparison of its directory clears them away.
            Change::Rmdir { fid, .. } => !self.is_dirty(*fid),
            Change::Rename { replaced, .. } | Change::Enter { replaced, .. } => !replaced
                .as_ref()
                .is_some_and(|r| r.dir && self.is_dirty(r.fid) || self.linked.contains(&r.fid)),
            Change::Exchange { .. } => true,
            // The object may not be here yet.
            Change::Link { fid, .. } => !self.is_dirty(*fid),
            Change::Write { fid, offset, len, .. } => match self.dirty.get(fid) {
                Some(d) => !d.meta && !d.ranges.touches(*offset, offset.saturating_add(u64::from(*len))),
                None => !self.is_unproven(*fid),
            },
            Change::CopyRange { from, to, .. } => !self.is_dirty(*from) && !self.is_dirty(*to),
            // Whether it stays among the orphans goes by what a power cut left, and here by what a healing took away as well.
            Change::EndFile { drop: None, add: None, .. } => false,
            Change::EndFile { fid, add, .. } => {
                !self.is_dirty(*fid) && (add.is_some() || !self.linked.contains(fid))
            }
            Change::ComeHome { fid, copy, .. } | Change::Redirect { fid, copy, .. } => {
                !self.is_dirty(*copy) && !self.linked.contains(fid)
            }
            Change::SetAttr { fid, .. }
            | Change::Fallocate { fid, .. }
            | Change::SetXattr { fid, .. }
            | Change::RemoveXattr { fid, .. }
            | Change::DropOrphan { fid }
            | Change::PrepareRmdir { fid }
            | Change::PrepareFile { fid, .. }
            | Change::PrepareMove { fid, .. }
            | Change::PrepareExchange { fid, .. }
            | Change::PrepareSwap { fid, .. }
            | Change::PrepareLeave { fid, .. }
            | Change::Leave { fid, .. }
            | Change::EndTransaction { fid, .. }
            | Change::EndCopy { fid, .. } => !self.is_dirty(*fid),
            // What holds the path of a placed directory here may be stale: the primary says where it lies.
            Change::Touch { .. }
            | Change::Partial { .. }
            | Change::PrepareMkdir { .. }
            | Change::MoveOut { .. }
            | Change::MoveOn { .. }
            | Change::Swap { .. }
            | Change::TakeDir { .. }
            | Change::GiveDir { .. }
            | Change::Relocate { .. } => false,
        }
    }
}

/// The names that a change touches.
pub fn names(change: &Change) -> Vec<(Fid, &Name)> {
    match change {
        Change::Create { parent, name, .. }
        | Change::Unlink { parent, name, .. }
        | Change::Rmdir { parent, name, .. }
        | Change::Link { parent, name, .. }
        | Change::Enter { parent, name, .. }
        | Change::Depart { parent, name, .. }
        | Change::MoveOut { parent, name, .. }
        | Change::ComeHome { parent, name, .. } => vec![(*parent, name)],
        Change::EndFile { drop, add, .. } => drop.iter().chain(add).map(|p| (p.dir, &p.name)).collect(),
        Change::DepartAll { names, .. } | Change::EndCopy { names, .. } | Change::Redirect { names, .. } => {
            names.iter().map(|p| (p.dir, &p.name)).collect()
        }
        Change::Rename { parent, name, to_parent, to_name, .. }
        | Change::Exchange { parent, name, to_parent, to_name, .. } => {
            vec![(*parent, name), (*to_parent, to_name)]
        }
        Change::Swap { parent, name, theirs, .. } => {
            let theirs = theirs.iter().map(|at| (at.dir, &at.name));
            [(*parent, name)].into_iter().chain(theirs).collect()
        }
        _ => vec![],
    }
}

/// The objects that a change touches as such, not as directories of names.
fn objects(change: &Change) -> Vec<Fid> {
    let dirs: BTreeSet<Fid> = names(change).iter().map(|(d, _)| *d).collect();
    change.touched().into_iter().filter(|f| !dirs.contains(f)).collect()
}
