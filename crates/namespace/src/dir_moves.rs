//! Renames of directories from their set's entries to those of another set (docs/design/0019).
//!
//! The directory stays where it is; the entry changes its set. The set that gets it decides
//! after the directory's set has marked it, under the lock on the tree's shape if others' directories lie above: from then on nothing moves beneath the directory there, so that what lies above the
//! new entry stays what it is while it is asked for.

use crate::decide::{Context, Decision, NameIn, result_fid, touch};
use crate::rename::{keeps_tree, replaced};
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
    if dir.home != from {
        return Err(Errno::EXDEV);
    }
    if target.is_some_and(|target| target.fid == dir.fid) {
        return Ok(Decision::Answer(Body::Done));
    }
    if let Some((at, home)) = keeps_tree(view, cx, dir.fid, add.dir)? {
        return Ok(Decision::AskAbove(at, home));
    }
    let (fid, home, kind) = (dir.fid, dir.home, dir.mode & 0o170_000);
    let replaced = replaced(view, cx, drop.dir, Entry { fid, home, kind }, target)?;
    // Its set would have to agree as well.
    if target.is_some_and(|target| target.home != cx.set) {
        return Err(Errno::EXDEV);
    }
    let (parent, name, time) = (add.dir, add.name.clone(), touch(into, cx.now));
    result_fid(fid, Change::Enter { parent, name, fid, home, kind, replaced, time })
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
    if intent.coordinator == cx.set || drop.dir.is_names() {
        return Err(Errno::EINVAL);
    }
    if view.is_pending(fid)? {
        return Err(Errno::EAGAIN);
    }
    if view.entry(drop.dir, &drop.name)?.is_none_or(|e| e.fid != fid) {
        return Err(Errno::ESTALE);
    }
    result_fid(fid, Change::PrepareFile { fid, intent })
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
    let (true, Some(drop), Some(add)) = (commit, drop, add) else {
        return Ok(Decision::Change(Change::EndTransaction { fid, keep: true }, None));
    };
    let time = touch(&view.attr(drop.dir)?, cx.now).max(touch(dir, cx.now));
    let (parent, name, to_dir, to_name) = (drop.dir, drop.name, add.dir, add.name);
    Ok(Decision::Change(Change::MoveOut { parent, name, fid, tx, to, to_dir, to_name, time }, None))
}
