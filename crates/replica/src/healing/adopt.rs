//! A brick that alone has a set's data goes on with what it has.

use super::HealTarget;
use alloc::vec::Vec;
use ids::{Epoch, Fid, Lsn};
use wire::Errno;
use wire::peer::Stamp;

/// The only brick with a set's data is not certain of the end of its journal: what it has becomes the set's history. Cuts
/// the journal and keeps in mind, until the brick has told others by [`wire::Change::Touch`], which objects may not be what they
/// were. Answers where the journal ends now.
///
/// Where more is stale than can be named the journal begins anew in `epoch`, which no other brick's journal holds: so the
/// others compare everything.
///
/// # Errors
/// The kernel's.
pub fn adopt_history<P: HealTarget>(brick: &mut P, epoch: Epoch) -> Result<Stamp, Errno> {
    let mut beyond_names = brick.is_stale_beyond_names();
    let consistent_to = brick.stamp_at(brick.consistent_to())?;
    let mut objects: Vec<Fid> = brick.incomplete().into_iter().collect();
    brick.changes_after(consistent_to.lsn, &mut |change| objects.extend(change.touched()))?;
    brick.begin_heal(consistent_to.lsn, &objects, Lsn(0))?;
    beyond_names |= brick.is_stale_beyond_names();
    if beyond_names {
        let start = Stamp { epoch, lsn: brick.newest().next() };
        brick.reset_journal(&start)?;
        return Ok(start);
    }
    brick.cut_journal(&consistent_to)?;
    Ok(consistent_to)
}
