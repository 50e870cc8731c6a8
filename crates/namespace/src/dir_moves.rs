//! Renames of directories from one set's entries to those of another set (docs/design/0019).
//!
//! The directory stays where it is; the entry changes its set. The set that gets it decides after the directory's set has marked
//! the directory, and the set that has the entry, if that is a third one, its copy; and under the lock on the tree's shape if
//! others' directories lie above. From the mark on nothing moves beneath the directory there, so that what lies above the new
//! entry stays what it is while it is asked for.

use crate::decide::{Context, Decision, NameIn, result_fid, touch};
use crate::files::stub_to_go;
use crate::rename::{is_elsewhere, keeps_tree, replaced};
use crate::tree_state::{Entry, TreeState};
use ids::{Fid, SetId};
use wire::op::Intent;
use wire::{Attr, Body, Change, Errno};

/// The set that gets the entry decides. `from`: that which has it, and `dir` the directory that has agreed.
pub(crate) fn move_in(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (drop, add): (NameIn<'_>, NameIn<'_>),
    (dir, from): (&Attr, SetId),
    (into, target): (&Attr, Option<Entry>),
) -> Result<Decision, Errno> {
    check_free(view, cx, dir)?;
    if dir.home != from {
        let need = stub_to_go(from, dir.fid, drop);
        if !cx.agreed.contains(&need) {
            return Ok(Decision::AskHome(need));
        }
    }
    if target.is_some_and(|target| target.fid == dir.fid) {
        return Ok(Decision::Answer(Body::Done));
    }
    // Before the lock, too: it is to be on a disk that it has agreed.
    if let Some(target) = target.filter(|target| target.is_dir() && is_elsewhere(cx, *target)) {
        // It holds the source, which its set would take for a name that is about to go.
        if target.fid == drop.dir {
            return Err(Errno::ENOTEMPTY);
        }
        return Ok(Decision::RemoveElsewhere(target));
    }
    if let Some((at, home)) = keeps_tree(view, cx, dir.fid, add.dir)? {
        return Ok(Decision::AskAbove(at, home));
    }
    let (fid, home, kind) = (dir.fid, dir.home, dir.mode & 0o170_000);
    let replaced = replaced(view, cx, drop.dir, Entry { fid, home, kind }, target)?;
    let (parent, name, time) = (add.dir, add.name.clone(), touch(into, cx.now));
    result_fid(fid, Change::Enter { parent, name, fid, home, kind, replaced, time })
}

/// Whether this set may have the directory as an entry. What it has of one that lives elsewhere may be marked to go still, by an
/// earlier move; one of its own has to be marked by this one.
fn check_free(view: &mut dyn TreeState, cx: &Context<'_>, dir: &Attr) -> Result<(), Errno> {
    let free = if dir.home == cx.set {
        view.intent(dir.fid)?.is_some_and(|intent| intent.tx == cx.tx)
    } else {
        match view.is_pending(dir.fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => true,
            other => !other?,
        }
    };
    if free { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// The directory's set is asked whether it may move.
pub(crate) fn prepare(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    intent: Intent,
) -> Result<Decision, Errno> {
    // It is no file: nothing else is asked for it.
    let (Some(drop), Some(_)) = (&intent.drop, &intent.add) else { return Err(Errno::EPERM) };
    if drop.dir.is_names() {
        return Err(Errno::EINVAL);
    }
    if view.is_pending(fid)? {
        return Err(Errno::EAGAIN);
    }
    // The set that has the entry.
    let from = match view.entry(drop.dir, &drop.name) {
        // That set is asked as well. What is kept beside the directory says which it is, and must not become wrong.
        Err(Errno::ESTALE) => match view.lineage(fid)?.other {
            // This set had both when who decides looked; by now that one has the entry, and what held it before is gone.
            Some((at, from)) if at == fid && from == intent.coordinator => return Err(Errno::EAGAIN),
            Some((at, from)) if at == fid => from,
            _ => return Err(Errno::ESTALE),
        },
        entry if intent.coordinator != cx.set => {
            if entry?.is_none_or(|e| e.fid != fid) {
                return Err(Errno::ESTALE);
            }
            cx.set
        }
        // The set may come to answer for the directory that has the entry, or not.
        _ if view.is_pending(drop.dir)? => return Err(Errno::EAGAIN),
        _ => return Err(Errno::EINVAL),
    };
    let change = match from == drop.dir.set {
        true => Change::PrepareFile { fid, intent },
        // The directory that has the entry has changed its set.
        false => Change::PrepareMove { fid, intent, from },
    };
    result_fid(fid, change)
}

/// The move has come about, or will not.
pub(crate) fn end(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    dir: &Attr,
    intent: Intent,
    commit: bool,
) -> Result<Decision, Errno> {
    let Intent { tx, coordinator: to, drop, add } = intent;
    let fid = dir.fid;
    // It has come home, and is marked until the other set has heard of it.
    if commit && to == cx.set {
        return Ok(Decision::Answer(Body::Done));
    }
    let (true, Some(drop), Some(add)) = (commit, drop, add) else {
        return Ok(Decision::Change(Change::EndTransaction { fid, keep: true }, None));
    };
    let (parent, name, to_dir, to_name) = (drop.dir, drop.name, add.dir, add.name);
    let mut time = touch(dir, cx.now);
    let has_entry = match view.entry(parent, &name) {
        Err(Errno::ESTALE) => false,
        // Another set had the directory that it leaves when the transaction began.
        entry => entry?.is_some_and(|e| e.fid == fid),
    };
    if !has_entry {
        return Ok(Decision::Change(Change::MoveOn { fid, tx, to, to_dir, to_name, time }, None));
    }
    time = time.max(touch(&view.attr(parent)?, cx.now));
    Ok(Decision::Change(Change::MoveOut { parent, name, fid, tx, to, to_dir, to_name, time }, None))
}
