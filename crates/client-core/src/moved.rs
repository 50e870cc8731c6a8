//! Files that went on as others, on other sets, while this client held them open (docs/design/0023).
//!
//! Whoever uses the client knows a file by the fid that it had when it was first met, as long as it is remembered here: the
//! inode number that programs see stays the same.
//!
//! What must always be true: a fid that a file has now leads back to one that it had first, and from there to itself.

use alloc::collections::{BTreeMap, BTreeSet};

use ids::{Fid, SetId};
use wire::{Body, Op};

/// See the module.
#[derive(Debug, Default)]
pub struct Moved {
    /// By the first fid.
    now: BTreeMap<Fid, Fid>,
    /// By the present fid.
    first: BTreeMap<Fid, Fid>,
    /// First fids of files that lost changes before they moved, and whose next sync has to tell so.
    lost: BTreeSet<Fid>,
}

impl Moved {
    /// Whether no file has moved.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }

    /// The fid that a file has now.
    pub fn now(&self, fid: Fid) -> Fid {
        self.now.get(&fid).copied().unwrap_or(fid)
    }

    /// The fid that a file had when it was first met.
    pub fn first(&self, fid: Fid) -> Fid {
        self.first.get(&fid).copied().unwrap_or(fid)
    }

    /// A file goes on as another one; false if that is known already.
    pub fn note(&mut self, file: Fid, copy: Fid) -> bool {
        let first = self.first.remove(&file).unwrap_or(file);
        if self.now.contains_key(&first) && self.now(first) != file {
            // An answer that was late.
            self.first.insert(self.now(first), first);
            return false;
        }
        self.now.insert(first, copy);
        self.first.insert(copy, first);
        assert!(self.now.len() == self.first.len(), "each file has one first and one present fid");
        true
    }

    /// Changes of the file were lost before it moved.
    pub fn note_lost(&mut self, file: Fid) {
        self.lost.insert(self.first.get(&file).copied().unwrap_or(file));
    }

    /// Whether such a loss is to be told now, as the file was synced.
    pub fn take_lost(&mut self, fid: Fid) -> bool {
        self.lost.remove(&fid)
    }

    /// Nobody knows the file by its first fid any more.
    pub fn forget(&mut self, first: Fid) {
        if let Some(now) = self.now.remove(&first) {
            self.first.remove(&now);
        }
        self.lost.remove(&first);
    }

    /// Has an operation on one file be one on what it is now; the set to ask, if it is another file than was named.
    pub fn redirect(&self, op: &mut Op) -> Option<SetId> {
        let fid = file_of(op)?;
        let now = *self.now.get(fid)?;
        *fid = now;
        Some(now.set)
    }

    /// Has an answer tell of files by their first fids.
    pub fn restore(&self, body: &mut Body) {
        let first = |fid: &mut Fid| {
            if let Some(known) = self.first.get(fid) {
                *fid = *known;
            }
        };
        match body {
            Body::Attr { attr } | Body::Written { attr, .. } | Body::Stripes { attr, .. } => {
                first(&mut attr.fid);
            }
            Body::Elsewhere { fid, .. } => first(fid),
            Body::Attrs { attrs } => attrs.iter_mut().for_each(|attr| first(&mut attr.fid)),
            Body::Page { entries, .. } => {
                for e in entries {
                    first(&mut e.fid);
                    e.attr.iter_mut().for_each(|attr| first(&mut attr.fid));
                }
            }
            _ => {}
        }
    }
}

/// The file that an operation of its home alone is about.
pub fn file_of(op: &mut Op) -> Option<&mut Fid> {
    match op {
        Op::Fsync { fid } => Some(fid),
        op => op.object_mut(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};

    fn file(set: u32, n: u64) -> Fid {
        Fid { set: SetId(set), epoch: Epoch(1), lsn: Lsn(n) }
    }

    #[test]
    fn a_file_keeps_its_first_name_however_often_it_moves() {
        let (a, b, c) = (file(1, 1), file(2, 2), file(3, 3));
        let mut moved = Moved::default();
        assert!(moved.note(a, b));
        assert!(!moved.note(a, b), "two requests were told");
        assert!(moved.note(b, c));
        assert!(!moved.note(a, b), "a late answer");
        assert_eq!((moved.now(a), moved.now(c)), (c, c));
        assert_eq!((moved.first(c), moved.first(a)), (a, a));
        let mut op = Op::Fsync { fid: a };
        assert_eq!((moved.redirect(&mut op), op), (Some(SetId(3)), Op::Fsync { fid: c }));
        let mut body = Body::Elsewhere { fid: c, home: SetId(3), kind: 0 };
        moved.restore(&mut body);
        assert_eq!(body, Body::Elsewhere { fid: a, home: SetId(3), kind: 0 });
        moved.forget(a);
        assert!(moved.is_empty() && moved.now(a) == a);
        let mut body = Body::Elsewhere { fid: c, home: SetId(3), kind: 0 };
        moved.restore(&mut body);
        assert_eq!(body, Body::Elsewhere { fid: c, home: SetId(3), kind: 0 });
    }

    #[test]
    fn a_loss_before_the_move_is_told_once() {
        let (a, b) = (file(1, 1), file(2, 2));
        let mut moved = Moved::default();
        moved.note(a, b);
        moved.note_lost(b);
        assert!(moved.take_lost(a) && !moved.take_lost(a));
    }
}
