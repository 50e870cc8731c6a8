//! How transactions about names of files end at the homes of the files, and at sets that have stubs of them
//! (docs/design/0016, docs/design/0019).

use crate::decide::{Context, Decision, touch};
use crate::dir_moves;
use crate::exchange::{change_places, succeed};
use crate::files::{is_own_dir, leads_to, may_be_held};
use crate::tree_state::TreeState;
use alloc::vec::Vec;
use ids::{Fid, OpId, Time};
use wire::op::{EntryName, Intent};
use wire::{Body, Change, Errno};

/// Whether a file lacks a name that a transaction has given to it. Busy while another file has it: the one that gave way is
/// told of it as well.
fn is_to_come(view: &mut dyn TreeState, place: &EntryName, fid: Fid) -> Result<bool, Errno> {
    match view.entry(place.dir, &place.name) {
        Ok(Some(e)) if e.fid == fid => Ok(false),
        Ok(Some(_)) => Err(Errno::EAGAIN),
        Ok(None) | Err(Errno::ESTALE | Errno::ENOENT) => Ok(true),
        Err(e) => Err(e),
    }
}

/// The transaction about a copy has committed: it has all of its names.
fn end_copy(
    view: &mut dyn TreeState,
    fid: Fid,
    names: Vec<EntryName>,
    time: Time,
) -> Result<Decision, Errno> {
    let mut lacks: Vec<EntryName> = Vec::new();
    for EntryName { dir, name } in names {
        // Entries of this set's own lead to it before.
        if is_own_dir(view, dir)? {
            continue;
        }
        let place = EntryName { dir: dir.names(), name };
        if is_to_come(view, &place, fid)? && !lacks.contains(&place) {
            lacks.push(place);
        }
    }
    Ok(Decision::Change(Change::EndCopy { fid, names: lacks, time }, None))
}

/// The end of a transaction about a file of another set that has a stub here, or a directory: the name goes, or stays.
fn end_stub(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    tx: OpId,
    commit: bool,
) -> Result<Decision, Errno> {
    let intent = match view.intent(fid) {
        Err(Errno::ESTALE | Errno::ENOENT) => None,
        other => other?.filter(|intent| intent.tx == tx),
    };
    let Some(intent) = intent else { return Ok(Decision::Answer(Body::Done)) };
    if commit && let Some(first) = succeed(view, cx, fid, &intent)? {
        return Ok(first);
    }
    let (mut drop, mut time) = (intent.drop.filter(|_| commit), cx.now);
    if let Some(from) = &drop {
        if leads_to(view, from, fid)? {
            time = touch(&view.attr(from.dir)?, cx.now);
        } else {
            // A power cut has taken it.
            drop = None;
        }
    }
    Ok(Decision::Change(Change::EndFile { fid, drop, add: None, orphan: false, time }, None))
}

/// Whether it has arrived for nothing. The entry may have led to it for a while, until a power cut took that back: what is written to it
/// by those who have seen it would be lost.
fn gets_no_name(view: &mut dyn TreeState, intent: &Intent, fid: Fid) -> Result<bool, Errno> {
    let (None, Some(EntryName { dir, name })) = (&intent.drop, &intent.add) else { return Ok(false) };
    for dir in [dir.names(), dir.without_names()] {
        // A power cut may have left the name, and that it has none.
        if leads_to(view, &EntryName { dir, name: name.clone() }, fid)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The end of a transaction about a file's names.
pub(crate) fn end_file(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    tx: OpId,
    commit: bool,
) -> Result<Decision, Errno> {
    let done = Ok(Decision::Answer(Body::Done));
    let attr = match view.attr(fid) {
        Err(Errno::ESTALE | Errno::ENOENT) => return end_stub(view, cx, fid, tx, commit),
        other => other?,
    };
    let Some(intent) = view.intent(fid)?.filter(|intent| intent.tx == tx) else { return done };
    if commit && let Some(first) = succeed(view, cx, fid, &intent)? {
        return Ok(first);
    }
    if attr.is_dir() {
        return dir_moves::end(view, cx, &attr, intent, commit);
    }
    if !commit && attr.nlink == 0 && gets_no_name(view, &intent, fid)? {
        return Ok(Decision::Change(Change::DropOrphan { fid }, None));
    }
    // What has arrived keeps the time of what it is a copy of.
    let mut time = if attr.nlink == 0 { attr.ctime } else { touch(&attr, cx.now) };
    let Intent { mut drop, mut add, coordinator, .. } = intent;
    // If this set coordinates the entry is here, in no folder of names: what decided gave it, and took the name that goes at
    // once. A name that is still there was not taken by this transaction, though another change may have made the entry
    // meanwhile.
    if !commit || coordinator == cx.set {
        (drop, add) = (None, None);
    }
    // This set answers for the directory by now, which came with the name.
    if let Some(to) = add.as_mut().filter(|to| to.dir.is_names())
        && is_own_dir(view, to.dir.without_names())?
    {
        to.dir = to.dir.without_names();
    }
    if drop.is_none() && add.is_some() {
        let names = view.names_of_copy(fid)?;
        if !names.is_empty() {
            return end_copy(view, fid, names, attr.ctime);
        }
    }
    let mut orphan = false;
    if let Some(from) = &drop {
        if leads_to(view, from, fid)? {
            time = time.max(touch(&view.attr(from.dir)?, cx.now));
        } else {
            // A power cut has taken it.
            drop = None;
        }
        // One that was marked to leave nobody has open, also where it is not known: all that is done from now on is its copy's.
        let goes = drop.is_some() && add.is_none();
        orphan = goes && may_be_held(&attr, cx) && view.names_of_copy(fid)?.is_empty();
    }
    if let (Some(from), Some(to)) = (&drop, &add)
        && let Some(other) = changes_places(view, tx, (fid, from), to)?
    {
        return exchange_names(view, cx, (fid, from), (other, to));
    }
    if let Some(to) = &add
        && !is_to_come(view, to, fid)?
    {
        add = None;
    }
    Ok(Decision::Change(Change::EndFile { fid, drop, add, orphan, time }, None))
}

/// Another file of this set has the name that the file is to get, and the same transaction gives it the file's.
fn changes_places(
    view: &mut dyn TreeState,
    tx: OpId,
    (fid, from): (Fid, &EntryName),
    to: &EntryName,
) -> Result<Option<Fid>, Errno> {
    let there = match view.entry(to.dir, &to.name) {
        Err(Errno::ESTALE | Errno::ENOENT) => None,
        other => other?,
    };
    let Some(other) = there.filter(|e| e.fid != fid && !e.is_dir()) else { return Ok(None) };
    let means = |i: Intent| i.tx == tx && (i.drop.as_ref(), i.add.as_ref()) == (Some(to), Some(from));
    Ok(view.intent(other.fid)?.is_some_and(means).then_some(other.fid))
}

/// Neither of two names can be given before the other: they change places while both files are marked, and then each mark ends
/// as that of a file which has its name already.
fn exchange_names(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (fid, from): (Fid, &EntryName),
    (to_fid, to): (Fid, &EntryName),
) -> Result<Decision, Errno> {
    let mut time = cx.now;
    for changed in [from.dir, to.dir, fid, to_fid] {
        time = time.max(touch(&view.attr(changed)?, cx.now));
    }
    Ok(Decision::Change(change_places((from, fid), (to, to_fid), time), None))
}
