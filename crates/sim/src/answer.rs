//! What a request comes to on a tree: the simulated primary and the checkers ask the same question.

use crate::tree::{BLOCK, Tree};
use ids::{Epoch, Fid, Lsn, SetId, Time};
use namespace::{Context, Decision, Entry, Lineage, View, decide};
use std::collections::BTreeSet;
use wire::{Attr, Change, Errno, Name, Op};

/// An answer as a client sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// It is done; the object it is about, if it is about one.
    Done(Option<Fid>),
    /// Attributes of an object.
    Attr(Attr),
    /// The newest write of each block of a file.
    Data(Vec<u64>),
    /// The entries of a directory.
    Names(Vec<(Name, Fid)>),
    /// It was not done.
    Errno(i32),
}

/// What there is to do for a request.
pub(crate) enum Outcome {
    Change(Change, Option<Fid>),
    Answer(Answer),
}

/// Which change it would be, if it is one.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) set: SetId,
    pub(crate) epoch: Epoch,
    pub(crate) lsn: Lsn,
    pub(crate) now: Time,
}

/// As much of it as is said to be written.
static NOTHING: [u8; 2 * BLOCK as usize] = [0; 2 * BLOCK as usize];

/// Every third file is always open somewhere: without its last name it is kept for a while.
fn is_open(fid: Fid) -> bool {
    fid.lsn.0.is_multiple_of(3)
}

/// A view that remembers which objects the rules looked at: the answer shows their state.
struct Watched<'a> {
    tree: &'a mut Tree,
    seen: BTreeSet<Fid>,
}

impl View for Watched<'_> {
    fn attr(&mut self, fid: Fid) -> Result<Attr, Errno> {
        self.seen.insert(fid);
        self.tree.attr(fid)
    }

    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno> {
        self.seen.insert(parent);
        let entry = self.tree.entry(parent, name)?;
        self.seen.extend(entry.map(|e| e.fid));
        Ok(entry)
    }

    fn is_empty(&mut self, dir: Fid) -> Result<bool, Errno> {
        self.seen.insert(dir);
        self.tree.is_empty(dir)
    }

    fn is_pending(&mut self, dir: Fid) -> Result<bool, Errno> {
        self.seen.insert(dir);
        self.tree.is_pending(dir)
    }

    fn has_default_acl(&mut self, dir: Fid) -> Result<bool, Errno> {
        self.tree.has_default_acl(dir)
    }

    fn xattr(&mut self, fid: Fid, name: &Name) -> Result<Option<Vec<u8>>, Errno> {
        self.seen.insert(fid);
        self.tree.xattr(fid, name)
    }

    fn lineage(&mut self, dir: Fid) -> Result<Lineage, Errno> {
        let lineage = self.tree.lineage(dir)?;
        self.seen.extend(&lineage.own);
        self.seen.insert(dir);
        Ok(lineage)
    }

    fn is_beneath(&mut self, dir: Fid, above: Fid) -> Result<bool, Errno> {
        let mut at = dir;
        self.seen.insert(at);
        while at != above
            && !at.is_root()
            && let Some(up) = self.tree.parent(at)
        {
            at = up;
            self.seen.insert(at);
        }
        self.tree.is_beneath(dir, above)
    }
}

/// Works out the request on the tree, and the objects that the outcome shows.
pub(crate) fn work_out(tree: &mut Tree, op: &Op, tag: u64, place: Place) -> (Outcome, Vec<Fid>) {
    let mut view = Watched { tree, seen: BTreeSet::new() };
    let outcome = if op.changes() {
        let len = BLOCK as usize * (1 + usize::from(tag.is_multiple_of(3)));
        let cx = Context {
            set: place.set,
            epoch: place.epoch,
            lsn: place.lsn,
            now: place.now,
            placed: None,
            payload: NOTHING.get(..len).unwrap_or_default(),
            is_open: &is_open,
            op: ids::OpId::default(),
            holder: &|_| None,
            above: &std::collections::BTreeMap::new(),
        };
        match decide(op, &mut view, &cx) {
            Ok(Decision::Change(change, about)) => Outcome::Change(change, about),
            Ok(Decision::Answer(_)) => Outcome::Answer(Answer::Done(None)),
            Ok(Decision::RemoveElsewhere(_) | Decision::AskAbove(..)) => {
                Outcome::Answer(Answer::Errno(Errno::EXDEV.0))
            }
            Err(e) => Outcome::Answer(Answer::Errno(e.0)),
        }
    } else {
        Outcome::Answer(read(&mut view, op).unwrap_or_else(|e| Answer::Errno(e.0)))
    };
    (outcome, view.seen.into_iter().collect())
}

fn read(view: &mut Watched<'_>, op: &Op) -> Result<Answer, Errno> {
    match op {
        Op::Lookup { parent, name } => {
            let entry = view.entry(*parent, name)?.ok_or(Errno::ENOENT)?;
            view.attr(entry.fid).map(Answer::Attr)
        }
        Op::GetAttr { fid } => view.attr(*fid).map(Answer::Attr),
        Op::Read { fid, .. } => {
            view.attr(*fid)?;
            Ok(Answer::Data(view.tree.get(*fid).map(|o| o.data.clone()).unwrap_or_default()))
        }
        Op::ReadDir { fid, .. } => {
            if !view.attr(*fid)?.is_dir() {
                return Err(Errno::ENOTDIR);
            }
            let entries = view.tree.get(*fid).map(|o| o.entries.clone()).unwrap_or_default();
            Ok(Answer::Names(entries.into_iter().collect()))
        }
        Op::Fsync { fid } => view.attr(*fid).map(|_| Answer::Done(None)),
        _ => Err(Errno::EINVAL),
    }
}
