//! Questions to a coordinator, as long after each other as it takes for a transaction to give way.

use ids::{Epoch, Fid};
use namespace::transaction::{GIVES_WAY_AFTER, Transactions};
use std::time::Duration;
use wire::Name;

/// Whether a transaction about the entry may still commit; the second question is too much.
pub(crate) fn asked(memory: &mut Transactions, epoch: Epoch, parent: Fid, name: &Name) -> bool {
    let before = memory.clone();
    let may = memory.may_commit(Duration::ZERO, epoch, parent, name);
    may && (*memory != before || memory.may_commit(GIVES_WAY_AFTER, epoch, parent, name))
}
