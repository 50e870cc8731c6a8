//! Directories that another set answers for than the one that told of them, as a rebalance gives directories to other sets
//! (docs/design/0018).
//!
//! Whoever uses the client, a shell whose working directory it is for one, may know such a directory by its old set for long: no
//! lookup of its name tells of the new one. The old set answers `ESTALE`, the client looks for the new one among the sets, and
//! remembers it here.
//!
//! What must always be true: an operation leaves here for the sets that are known, in the form that fits them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use ids::{Fid, SetId};
use wire::{Call, Op};

/// How many are remembered. Beyond that all are forgotten: each is looked for once more.
const MAX: usize = 1 << 16;

/// See the module.
#[derive(Debug, Default)]
pub struct Homes {
    of: BTreeMap<Fid, SetId>,
}

impl Homes {
    /// Whether no directory is known to have changed its set.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// That set answers for the directory.
    pub fn note(&mut self, dir: Fid, home: SetId) {
        if self.of.len() >= MAX {
            self.of.clear();
        }
        self.of.insert(dir, home);
    }

    /// Nobody knows the directory any more.
    pub fn forget(&mut self, dir: Fid) {
        self.of.remove(&dir);
    }

    /// The set that answers for the directory, if another one is known than was told.
    pub fn of(&self, dir: Fid, told: SetId) -> SetId {
        self.of.get(&dir).copied().unwrap_or(told)
    }

    /// Has an operation go to the sets that answer for its directories. Whether that changes it.
    pub fn redirect(&self, call: &mut Call) -> bool {
        if let Op::Show { dir, home, .. } = &mut call.op {
            *home = self.of(*dir, *home);
        }
        let before: Vec<SetId> = directories(call).into_iter().map(|(_, at)| at).collect();
        let now: Vec<SetId> = directories(call).into_iter().map(|(dir, at)| self.of(dir, at)).collect();
        if now == before {
            return false;
        }
        let old = call.set;
        call.set = now.last().copied().unwrap_or(old);
        let from = now.first().copied().unwrap_or(old);
        call.op = across(call.op.clone(), (from, call.set), old);
        true
    }
}

/// An operation of two objects is another one if two sets have them. `from`: the set of the first directory, `to`: that of the last
/// one, which is asked. `old`: the set that was.
fn across(op: Op, (from, to): (SetId, SetId), old: SetId) -> Op {
    match op {
        Op::Rename { parent, name, to_parent, to_name, flags }
        | Op::MoveIn { parent, name, to_parent, to_name, flags, .. } => {
            if from == to {
                Op::Rename { parent, name, to_parent, to_name, flags }
            } else {
                Op::MoveIn { from, parent, name, to_parent, to_name, flags }
            }
        }
        Op::LinkIn { fid, home, parent, name } if home == to => Op::Link { fid, parent, name },
        Op::Link { fid, parent, name } if old != to => Op::LinkIn { fid, home: old, parent, name },
        op => op,
    }
}

/// The objects of an operation that may be directories, each with the set that it is taken to be of; the one of the set that is
/// asked is the last one.
pub fn directories(call: &Call) -> Vec<(Fid, SetId)> {
    let set = call.set;
    match &call.op {
        Op::Lookup { parent, .. }
        | Op::Create { parent, .. }
        | Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. }
        | Op::Link { parent, .. }
        | Op::LinkIn { parent, .. } => vec![(*parent, set)],
        Op::Rename { parent, to_parent, .. } => vec![(*parent, set), (*to_parent, set)],
        Op::MoveIn { from, parent, to_parent, .. } => vec![(*parent, *from), (*to_parent, set)],
        Op::ReadDir { fid, .. }
        | Op::Fsync { fid }
        | Op::GetAttr { fid }
        | Op::SetAttr { fid, .. }
        | Op::GetXattr { fid, .. }
        | Op::ListXattr { fid }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. } => vec![(*fid, set)],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};
    use wire::Name;

    fn dir(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn name(name: &str) -> Name {
        Name::new(name.as_bytes()).unwrap()
    }

    fn call(set: u32, op: Op) -> Call {
        Call::unsent(SetId(set), op)
    }

    fn rename(from: u64, to: u64) -> Op {
        let (parent, to_parent) = (dir(from), dir(to));
        Op::Rename { parent, name: name("a"), to_parent, to_name: name("b"), flags: 0 }
    }

    fn move_in(from: u32, (parent, to_parent): (u64, u64)) -> Op {
        let (parent, to_parent) = (dir(parent), dir(to_parent));
        Op::MoveIn { from: SetId(from), parent, name: name("a"), to_parent, to_name: name("b"), flags: 0 }
    }

    /// Directory 1 is of set 2 by now, directory 2 of set 3.
    fn homes() -> Homes {
        let mut homes = Homes::default();
        homes.note(dir(1), SetId(2));
        homes.note(dir(2), SetId(3));
        homes
    }

    fn redirected(set: u32, op: Op) -> (bool, u32, Op) {
        let mut call = call(set, op);
        let changed = homes().redirect(&mut call);
        (changed, call.set.0, call.op)
    }

    #[test]
    fn an_operation_goes_to_the_set_that_answers_for_its_directory() {
        let lookup = |n| Op::Lookup { parent: dir(n), name: name("a") };
        assert_eq!(redirected(1, lookup(1)), (true, 2, lookup(1)));
        assert_eq!(redirected(2, lookup(1)), (false, 2, lookup(1)), "it goes there already");
        assert_eq!(redirected(1, lookup(9)), (false, 1, lookup(9)), "nothing is known of it");
        let list = Op::ReadDir { fid: dir(2), cookie: 7, plus: true };
        assert_eq!(redirected(1, list.clone()), (true, 3, list));
        let read = Op::Read { fid: dir(1), offset: 0, len: 1 };
        assert_eq!(redirected(1, read.clone()), (false, 1, read), "it is no directory that is read");
    }

    #[test]
    fn a_rename_is_one_between_sets_when_its_directories_are() {
        assert_eq!(redirected(1, rename(1, 1)), (true, 2, rename(1, 1)));
        assert_eq!(redirected(1, rename(1, 9)), (true, 1, move_in(2, (1, 9))));
        assert_eq!(redirected(1, rename(9, 2)), (true, 3, move_in(1, (9, 2))));
        assert_eq!(redirected(1, rename(1, 2)), (true, 3, move_in(2, (1, 2))));
        assert_eq!(redirected(2, move_in(1, (1, 9))), (true, 2, rename(1, 9)), "they have come together");
        assert_eq!(redirected(1, rename(8, 9)), (false, 1, rename(8, 9)));
    }

    #[test]
    fn a_link_tells_the_set_of_the_file() {
        let link = |parent| Op::Link { fid: dir(70), parent: dir(parent), name: name("a") };
        let link_in = |home, parent| {
            let (fid, parent, home) = (dir(70), dir(parent), SetId(home));
            Op::LinkIn { fid, home, parent, name: name("a") }
        };
        assert_eq!(redirected(1, link(2)), (true, 3, link_in(1, 2)));
        assert_eq!(redirected(1, link_in(3, 2)), (true, 3, link(2)));
        assert_eq!(redirected(1, link_in(4, 2)), (true, 3, link_in(4, 2)));
    }

    #[test]
    fn what_is_forgotten_is_looked_for_again() {
        let mut homes = homes();
        homes.forget(dir(1));
        assert_eq!((homes.of(dir(1), SetId(1)), homes.of(dir(2), SetId(1))), (SetId(1), SetId(3)));
        homes.forget(dir(2));
        assert!(homes.is_empty());
        for n in 0..=MAX as u64 {
            homes.note(dir(n), SetId(5));
        }
        assert_eq!(homes.of.len(), 1, "memory is bounded");
    }
}
