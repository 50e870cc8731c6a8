//! Directories that change the set which answers for them (docs/design/0018).
//!
//! The set that answers decides: the one that is to answer has the directory before, with all that is in it, marked. The change by
//! which the first one gives it away is the outcome.

use crate::decide::{Context, Decision, result_fid, touch};
use crate::files::leads_to;
use crate::tree_state::TreeState;
use alloc::collections::BTreeSet;
use ids::{Fid, OpId, SetId};
use wire::op::{Ancestor, EntryName, HandedEntry, Taken};
use wire::{Body, Change, Errno, Op};

/// Operations that only directories need which change their set.
pub(crate) fn decide_hand_over(
    op: &Op,
    view: &mut dyn TreeState,
    cx: &Context<'_>,
) -> Result<Decision, Errno> {
    match op {
        Op::TakeDir { fid, tx, from, path, name, dir } => {
            let (fid, tx, from) = (*fid, *tx, *from);
            if check_taken(view, cx, fid, Taken { tx, from })? {
                return Ok(Decision::Answer(Body::Done));
            }
            check_told(fid, path, &dir.entries)?;
            for held in &dir.entries {
                // The names of a file that is marked are about to change, and a stub that is marked gets no other name.
                let waits = view.is_pending(held.fid) == Ok(true);
                let at = EntryName { dir: fid.names(), name: held.name.clone() };
                // Told late: it has another name by now, and was to keep the one that it has lost if the directory stays.
                let is_old =
                    held.home == cx.set && view.attr(held.fid).is_ok() && !leads_to(view, &at, held.fid)?;
                if waits || is_old {
                    return Err(Errno::EAGAIN);
                }
            }
            let (path, name, dir) = (path.clone(), name.clone(), dir.clone());
            Ok(Decision::Change(Change::TakeDir { fid, tx, from, path, name, dir }, None))
        }
        Op::GiveDir { fid, tx, to } => give(view, cx, *fid, *tx, *to),
        Op::EndTaking { fid, tx, keep } => end_taking(view, cx, *fid, *tx, *keep),
        _ => Err(Errno::EINVAL),
    }
}

/// What another set tells can be a directory that may go: it has one place, which is not within itself, and no name twice.
fn check_told(fid: Fid, path: &[Ancestor], entries: &[HandedEntry]) -> Result<(), Errno> {
    let above: BTreeSet<Fid> = path.iter().map(|a| a.fid).collect();
    let is_place = above.len() == path.len() && !above.contains(&fid);
    let are_named = above.iter().all(|dir| !dir.is_root() && !dir.is_names());
    let names: BTreeSet<&[u8]> = entries.iter().map(|held| held.name.as_bytes()).collect();
    let are_files = entries.iter().all(|held| held.kind & 0o170_000 != 0o040_000 && held.fid != fid);
    let is_told = is_place && are_named && names.len() == entries.len() && are_files;
    if is_told { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Whether the set has the directory by this transaction already.
fn check_taken(view: &mut dyn TreeState, cx: &Context<'_>, fid: Fid, by: Taken) -> Result<bool, Errno> {
    if by.from == cx.set || fid.is_root() || fid.is_names() {
        return Err(Errno::EINVAL);
    }
    match view.taken(fid) {
        Ok(Some(known)) if known == by && (cx.has_taken)(fid, by.tx) => return Ok(true),
        Ok(Some(_)) => return Err(Errno::EAGAIN),
        Ok(None) | Err(Errno::ESTALE | Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    match view.attr(fid) {
        // It answers for the directory: the question is an old one.
        Ok(_) => Err(Errno::ESTALE),
        // What the set has of it is marked: its entry is about to go, or it is about to be its own by another transaction.
        Err(Errno::ESTALE | Errno::ENOENT) if view.is_pending(fid) == Ok(true) => Err(Errno::EAGAIN),
        Err(Errno::ESTALE | Errno::ENOENT) => match view.lineage(fid) {
            // Who gives a directory has its entry. Told late, the entry has come here by now, and may name a third set: it would name
            // that one again if the directory stays.
            Ok(_) => Err(Errno::EAGAIN),
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(false),
            Err(e) => Err(e),
        },
        Err(e) => Err(e),
    }
}

/// The set that answers for a directory gives it away, if this primary has begun that in this epoch and not given it up.
fn give(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    tx: OpId,
    to: SetId,
) -> Result<Decision, Errno> {
    if to == cx.set {
        return Err(Errno::EINVAL);
    }
    let attr = view.attr(fid)?;
    if !attr.is_dir() || !(cx.is_given)(fid, tx, to) || view.is_pending(fid)? {
        return Err(Errno::EAGAIN);
    }
    result_fid(fid, Change::GiveDir { fid, to, time: touch(&attr, cx.now) })
}

fn end_taking(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    tx: OpId,
    keep: bool,
) -> Result<Decision, Errno> {
    let taken = match view.taken(fid) {
        Err(Errno::ESTALE | Errno::ENOENT) => None,
        other => other?,
    };
    let Some(taken) = taken.filter(|taken| taken.tx == tx) else { return Ok(Decision::Answer(Body::Done)) };
    let change = match keep {
        true => Change::EndTransaction { fid, keep: true },
        false => Change::GiveDir { fid, to: taken.from, time: cx.now },
    };
    Ok(Decision::Change(change, None))
}
