//! Renames within a set, and what they may replace.

use crate::decide::{Context, Decision, NameIn, check_name, open_dir, touch};
use crate::files::{check_unmarked, is_empty, needs, pushed_out};
use crate::tree_state::{Entry, TreeState};
use ids::{Fid, SetId, Time};
use wire::change::Replaced;
use wire::op::rename_flags;
use wire::{Attr, Body, Change, Errno};

pub(crate) fn rename(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    from: NameIn<'_>,
    to: NameIn<'_>,
    flags: u32,
) -> Result<Decision, Errno> {
    check_flags(flags)?;
    let from_dir = view.attr(from.dir)?;
    // A directory of another set answers ESTALE here: it has changed its set, and the client looks it up again.
    let to_dir = open_dir(view, to.dir)?;
    check_name(to)?;
    let source = view.entry(from.dir, from.name)?.ok_or(Errno::ENOENT)?;
    let target = view.entry(to.dir, to.name)?;
    for entry in [Some(source), target].into_iter().flatten() {
        check_unmarked(view, entry)?;
    }
    check_target(flags, target)?;
    if target.is_some_and(|t| t.fid == source.fid) {
        return Ok(Decision::Answer(Body::Done));
    }
    if source.is_dir()
        && from.dir != to.dir
        && let Some((at, home)) = keeps_tree(view, cx, source.fid, to.dir)?
    {
        return Ok(Decision::AskAbove(at, home));
    }
    let dirs = (&from_dir, &to_dir);
    if flags & rename_flags::EXCHANGE != 0 {
        return exchange(view, cx, dirs, (from, source), (to, target.ok_or(Errno::ENOENT)?));
    }
    let replaced = replaced(view, cx, from.dir, source, target)?;
    if let Some(entry) = target.filter(|t| t.is_dir() && is_elsewhere(cx, *t)) {
        return Ok(Decision::RemoveElsewhere(entry));
    }
    if let Some(need) = needs(cx, source, from, Some(to)).or(target.and_then(|t| needs(cx, t, to, None))) {
        return Ok(Decision::AskHome(need));
    }
    Ok(Decision::Change(
        Change::Rename {
            parent: from.dir,
            name: from.name.clone(),
            fid: source.fid,
            to_parent: to.dir,
            to_name: to.name.clone(),
            replaced,
            time: touched(dirs, cx),
        },
        None,
    ))
}

fn touched((from, to): (&Attr, &Attr), cx: &Context<'_>) -> Time {
    touch(from, cx.now).max(touch(to, cx.now))
}

fn exchange(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    dirs: (&Attr, &Attr),
    (from, source): (NameIn<'_>, Entry),
    (to, target): (NameIn<'_>, Entry),
) -> Result<Decision, Errno> {
    if target.is_dir()
        && from.dir != to.dir
        && let Some((at, home)) = keeps_tree(view, cx, target.fid, from.dir)?
    {
        return Ok(Decision::AskAbove(at, home));
    }
    // One of the two entries decides for each home, and both change at once.
    let need = needs(cx, source, from, Some(to)).or_else(|| needs(cx, target, to, Some(from)));
    if let Some(need) = need {
        return Ok(Decision::AskHome(need));
    }
    Ok(Decision::Change(
        Change::Exchange {
            parent: from.dir,
            name: from.name.clone(),
            fid: source.fid,
            to_parent: to.dir,
            to_name: to.name.clone(),
            to_fid: target.fid,
            time: touched(dirs, cx),
        },
        None,
    ))
}

pub(crate) fn check_flags(flags: u32) -> Result<(), Errno> {
    let known = flags & !(rename_flags::NOREPLACE | rename_flags::EXCHANGE) == 0;
    if known && flags != 3 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// What the flags say of the new name comes before all that is wrong with the move.
pub(crate) fn check_target(flags: u32, target: Option<Entry>) -> Result<(), Errno> {
    match target {
        Some(_) if flags & rename_flags::NOREPLACE != 0 => Err(Errno::EEXIST),
        None if flags & rename_flags::EXCHANGE != 0 => Err(Errno::ENOENT),
        _ => Ok(()),
    }
}

/// Checks that `moved` may come beneath `dir`: that it is not above it. Returns the directory of another set above which
/// nothing is known yet.
///
/// As long as all directories above `dir` are this set's own they move by its decisions alone, one after the other, and
/// nobody has to be asked.
pub(crate) fn keeps_tree(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    moved: Fid,
    dir: Fid,
) -> Result<Option<(Fid, SetId)>, Errno> {
    let lineage = view.lineage(dir)?;
    for above in &lineage.own {
        if *above == moved {
            return Err(Errno::EINVAL);
        }
        // It is to move, to where something may be that this rename would bring beneath it, or has moved: what is above it here is
        // not above it then.
        if view.is_pending(*above)? {
            return Err(Errno::EAGAIN);
        }
    }
    let Some((at, home)) = lineage.other else { return Ok(None) };
    let Some(above) = cx.above.get(&at) else { return Ok(Some((at, home))) };
    if above.contains(&moved) {
        return Err(Errno::EINVAL);
    }
    Ok(None)
}

/// Whether an empty directory that gives way lives on another set, which has not agreed yet.
pub(crate) fn is_elsewhere(cx: &Context<'_>, target: Entry) -> bool {
    target.home != cx.set && cx.placed != Some((target.home, target.fid))
}

/// Whether it is known for certain that `dir` lies beneath `above`. Where things hang on a brick does not tell: what another set
/// has moved may hang at an old path there.
fn is_above(view: &mut dyn TreeState, dir: Fid, above: Fid) -> Result<bool, Errno> {
    let lineage = match view.lineage(dir) {
        Err(Errno::ESTALE) => return Ok(false),
        other => other?,
    };
    for at in lineage.own {
        if at == above {
            return Ok(true);
        }
        // It is to move, or has moved.
        if view.is_pending(at)? {
            return Ok(false);
        }
    }
    Ok(false)
}

/// What a rename onto `target` pushes out.
pub(crate) fn replaced(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    from_dir: Fid,
    source: Entry,
    target: Option<Entry>,
) -> Result<Option<Replaced>, Errno> {
    let Some(target) = target else { return Ok(None) };
    if target.is_dir() {
        if !source.is_dir() {
            // It holds the source itself: Linux says so first.
            return Err(if is_above(view, from_dir, target.fid)? { Errno::ENOTEMPTY } else { Errno::EISDIR });
        }
        if target.home == cx.set {
            is_empty(view, cx, target.fid)?;
        }
        return Ok(Some(Replaced { fid: target.fid, dir: true, orphan: false }));
    }
    if source.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    pushed_out(view, cx, target).map(Some)
}
