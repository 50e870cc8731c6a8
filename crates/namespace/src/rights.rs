//! What this set says to another one that asks what a user may do here: of a rename, an exchange or a link that the other one
//! coordinates, and of objects of this set that entries of the other one lead to (docs/design/0021). The rows are those of
//! [`crate::permission`] for the same within one set.
//!
//! Always true: what is allowed is allowed for the object that is told, and for no other.

use crate::permission::Check;
use crate::tree_state::{Entry, TreeState};
use ids::SetId;
use wire::rights::{Right, STICKY};
use wire::user::{EXECUTE, WRITE};
use wire::{Errno, User};

/// Whether the user has the right; what the name leads to, if it is about one, with [`STICKY`] in its kind if only its owner may
/// take it, and that is not known here. A directory that lives elsewhere has to be asked for there, too ([`Right::Move`]).
///
/// # Errors
/// `EACCES` and `EPERM` as Linux gives them; `ENOENT`: there is no such name; `EAGAIN`: it is not certain what it leads to; `ESTALE`:
/// this set does not answer for the object; errors of the state.
pub fn check(
    user: &User,
    right: &Right,
    set: SetId,
    state: &mut dyn TreeState,
) -> Result<Option<Entry>, Errno> {
    known(right, state)?;
    let mut check = Check { user, set, state, known: &[], ask: None };
    match right {
        Right::Leave { dir, name } => {
            let attr = check.dir(*dir, EXECUTE)?;
            let mut entry = check.state.entry(*dir, name)?.ok_or(Errno::ENOENT)?;
            // A name whose object is another set's may have gone already, or lead to something else, and this set hear it late.
            if entry.home != set && check.state.is_pending(entry.fid) == Ok(true) {
                return Err(Errno::EAGAIN);
            }
            match check.may_take(&attr, entry) {
                Err(_) if check.ask.is_some() => entry.kind |= STICKY,
                taken => taken?,
            }
            if entry.is_dir() && entry.home == set {
                check.may_leave(entry, true)?;
            }
            Ok(Some(entry))
        }
        Right::Move { fid } => check.dir(*fid, WRITE).map(|_| None),
        Right::Link { fid } => check.link(*fid).map(|()| None),
        Right::Own { fid } => check.owner(*fid).map(|()| None),
    }
}

/// Whether this set answers for the object, and users see it.
///
/// # Errors
/// `ESTALE`: it does not; errors of the state.
pub fn known(right: &Right, state: &mut dyn TreeState) -> Result<(), Errno> {
    let fid = right.object();
    if fid.is_names() { Err(Errno::ESTALE) } else { state.attr(fid).map(drop) }
}
