//! Whether what a request names lies beneath the directory that its client's key is for (docs/design/0027).
//!
//! Always true: what cannot be known counts as outside, and only a set that answers for a directory, or has its entry, says
//! what lies above it.

use crate::tree_state::{Lineage, TreeState};
use ids::{Fid, SetId};
use wire::op::EntryName;
use wire::{Errno, Op};

/// Where a directory is, seen from the directory that a key is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Beneath it, or it itself.
    Inside,
    /// Anywhere else, or nowhere.
    Outside,
    /// This set has the entry of that directory, and knows what lies above.
    Ask(Fid, SetId),
}

impl Side {
    /// What is known of a directory's place from what lies above it.
    pub fn of(root: Fid, above: &Lineage) -> Side {
        match above.other {
            _ if above.own.contains(&root) => Side::Inside,
            Some((dir, set)) => Side::Ask(dir, set),
            None => Side::Outside,
        }
    }
}

/// A name of a file, and the set that answers for its directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileName {
    /// The name, in its directory.
    pub at: EntryName,
    /// The directory's set.
    pub home: SetId,
}

/// What such a client may never ask for: what is the whole volume's, and what sets ask each other.
///
/// # Errors
/// What to answer.
pub fn permit(op: &Op) -> Result<(), Errno> {
    match op {
        Op::HoldLocks { .. } | Op::DropLocks { .. } => Err(Errno::ENOLCK),
        // Where a piece belongs its own set cannot tell.
        op if op.is_about_stripes() => Err(Errno::EOPNOTSUPP),
        // Nobody needs it: whoever misses attributes asks for them one by one.
        Op::GetAttrs { .. } => Err(Errno::EINVAL),
        op => op.named().map(drop).ok_or(Errno::EPERM),
    }
}

/// Where a directory is that this set answers for, or whose entry it has.
///
/// # Errors
/// Those of a brick that cannot say.
pub fn place(root: Fid, dir: Fid, state: &mut dyn TreeState) -> Result<Side, Errno> {
    if dir.is_names() {
        return Ok(Side::Outside);
    }
    match state.lineage(dir) {
        Ok(above) => Ok(Side::of(root, &above)),
        Err(e) if is_absent(e) => Ok(Side::Outside),
        Err(e) => Err(e),
    }
}

/// Whether a name leads to a file of this set. Names in directories of other sets are those that the set keeps itself
/// (docs/design/0016).
///
/// # Errors
/// Those of a brick that cannot say.
pub fn leads(name: &FileName, fid: Fid, set: SetId, state: &mut dyn TreeState) -> Result<bool, Errno> {
    let dir = name.at.dir;
    if dir.is_names() {
        return Ok(false);
    }
    match state.entry(if name.home == set { dir } else { dir.names() }, &name.at.name) {
        Ok(entry) => Ok(entry.is_some_and(|e| e.fid == fid && !e.is_dir())),
        // Something is there that is not the volume's.
        Err(Errno::EEXIST) => Ok(false),
        Err(e) if is_absent(e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether an error says that there is no such thing on this set.
pub fn is_absent(e: Errno) -> bool {
    matches!(e, Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    #[test]
    fn the_way_up_tells_where_a_directory_is() {
        let root = fid(5);
        let of = |own: &[u64], other| {
            Side::of(root, &Lineage { own: own.iter().map(|n| fid(*n)).collect(), other })
        };
        let other = Some((fid(7), SetId(2)));
        assert_eq!(of(&[5], None), Side::Inside, "it itself");
        assert_eq!(of(&[8, 5, 7], other), Side::Inside, "nobody else is asked");
        assert_eq!(of(&[8, 7], other), Side::Ask(fid(7), SetId(2)));
        assert_eq!(of(&[8, 7], None), Side::Outside);
        assert_eq!(of(&[], None), Side::Outside, "the volume's root");
    }

    #[test]
    fn what_only_sets_ask_each_other_has_no_objects_of_a_clients() {
        assert_eq!(permit(&Op::Lineage { fid: fid(1) }), Err(Errno::EPERM));
        assert_eq!(permit(&Op::Arrive), Err(Errno::EPERM));
        assert_eq!(permit(&Op::StatFs), Ok(()));
        assert_eq!(permit(&Op::Open { fid: fid(1) }), Ok(()));
    }
}
