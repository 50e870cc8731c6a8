//! Names of files, also of those that live on another set than their directory (docs/design/0016).
//!
//! The set that has the entry decides, after the file's home has agreed ([`Need`]); the entry is the outcome. The home marks
//! the file, and changes its names when it hears of the end.

use crate::decide::{Context, Decision, NameIn, Need, check_name, free_name, open_dir, result_fid, touch};
use crate::dir_moves;
use crate::exchange::{exchange_in, marked};
use crate::file_ends::end_file;
use crate::rename::{check_flags, check_target};
use crate::tree_state::{Entry, TreeState};
use ids::{Fid, SetId};
use wire::change::Replaced;
use wire::op::{EntryName, Intent, rename_flags};
use wire::{Attr, Body, Change, Errno, Name, Op};

/// Operations that only files with names on several sets need.
pub(crate) fn decide_joint(op: &Op, view: &mut dyn TreeState, cx: &Context<'_>) -> Result<Decision, Errno> {
    match op {
        Op::PrepareFile { tx, coordinator, fid, drop, add, by: _ } => {
            let intent = Intent { tx: *tx, coordinator: *coordinator, drop: drop.clone(), add: add.clone() };
            prepare_file(view, cx, *fid, intent)
        }
        Op::PrepareExchange { tx, coordinator, fid, drop, add, successor, by: _ } => {
            let drop = Some(drop.clone());
            let intent = Intent { tx: *tx, coordinator: *coordinator, drop, add: add.clone() };
            let prepared = prepare_file(view, cx, *fid, intent)?;
            marked(view, cx, prepared, successor)
        }
        Op::EndFile { fid, tx, commit, by: _ } => end_file(view, cx, *fid, *tx, *commit),
        Op::MoveIn { from, parent, name, to_parent, to_name, flags } => {
            let (drop, add) = (NameIn { dir: *parent, name }, NameIn { dir: *to_parent, name: to_name });
            move_in(view, cx, *from, drop, add, *flags)
        }
        Op::LinkIn { fid, home, parent, name } => {
            link_in(view, cx, (*fid, *home), NameIn { dir: *parent, name })
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Whether an object that loses a name loses its last one, and somebody may hold it open. Only regular files are held: the
/// kernels of clients open all else themselves, without a word to the server.
pub(crate) fn may_be_held(attr: &Attr, cx: &Context<'_>) -> bool {
    attr.nlink <= 1 && attr.mode & 0o170_000 == 0o100_000 && (cx.is_open)(attr.fid)
}

/// A file whose names wait for the end of a transaction has to wait, and a directory that is to move.
pub(crate) fn check_unmarked(view: &mut dyn TreeState, entry: Entry) -> Result<(), Errno> {
    if view.is_pending(entry.fid)? { Err(Errno::EAGAIN) } else { Ok(()) }
}

/// Whether a directory of this set has no entries. One whose last ones may be about to go has to wait.
pub(crate) fn is_empty(view: &mut dyn TreeState, cx: &Context<'_>, dir: Fid) -> Result<(), Errno> {
    match view.is_empty(dir)? {
        true => Ok(()),
        false if (cx.holds_names)(dir) => Err(Errno::EAGAIN),
        false => Err(Errno::ENOTEMPTY),
    }
}

pub(crate) fn place(at: NameIn<'_>) -> EntryName {
    EntryName { dir: at.dir, name: at.name.clone() }
}

/// What the home of an entry's file still has to agree to.
pub(crate) fn needs(
    cx: &Context<'_>,
    entry: Entry,
    drop: NameIn<'_>,
    add: Option<NameIn<'_>>,
) -> Option<Need> {
    if entry.home == cx.set || entry.is_dir() {
        return None;
    }
    let (drop, add) = (Some(place(drop)), add.map(place));
    let need = Need::of_names(entry.home, Some(entry.fid), drop, add);
    (!cx.agreed.contains(&need)).then_some(need)
}

/// A file that loses its entry to another one. If it lives elsewhere its home takes care of who holds it open.
pub(crate) fn pushed_out(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    target: Entry,
) -> Result<Replaced, Errno> {
    let orphan = target.home == cx.set && may_be_held(&view.attr(target.fid)?, cx);
    Ok(Replaced { fid: target.fid, dir: false, orphan })
}

pub(crate) fn unlink(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    parent: Fid,
    name: &Name,
) -> Result<Decision, Errno> {
    let dir = view.attr(parent)?;
    let entry = view.entry(parent, name)?.ok_or(Errno::ENOENT)?;
    if entry.is_dir() {
        check_unmarked(view, entry)?;
        return Err(Errno::EISDIR);
    }
    if let Some(need) = needs(cx, entry, NameIn { dir: parent, name }, None) {
        return Ok(Decision::AskHome(need));
    }
    check_unmarked(view, entry)?;
    let mut time = touch(&dir, cx.now);
    let mut orphan = false;
    if entry.home == cx.set {
        let attr = view.attr(entry.fid)?;
        orphan = may_be_held(&attr, cx);
        time = time.max(touch(&attr, cx.now));
    }
    Ok(Decision::Change(Change::Unlink { parent, name: name.clone(), fid: entry.fid, orphan, time }, None))
}

pub(crate) fn link(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    parent: Fid,
    name: &Name,
) -> Result<Decision, Errno> {
    let dir = open_dir(view, parent)?;
    let attr = view.attr(fid)?;
    free_name(view, NameIn { dir: parent, name })?;
    if attr.is_dir() {
        return Err(Errno::EPERM);
    }
    if view.is_pending(fid)? {
        return Err(Errno::EAGAIN);
    }
    if attr.nlink == 0 {
        return Err(Errno::ENOENT);
    }
    let time = touch(&dir, cx.now).max(touch(&attr, cx.now));
    result_fid(fid, Change::Link { fid, parent, name: name.clone(), time })
}

/// A rename of a file from a directory of set `from` to one of this set.
fn move_in(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    from: SetId,
    drop: NameIn<'_>,
    add: NameIn<'_>,
    flags: u32,
) -> Result<Decision, Errno> {
    check_flags(flags)?;
    if from == cx.set {
        return Err(Errno::EINVAL);
    }
    if flags & rename_flags::EXCHANGE != 0 {
        return exchange_in(view, cx, from, drop, add);
    }
    if cx.incoming.is_some_and(|moved| moved.fid == add.dir) {
        // It is marked, and would have this wait for itself.
        return Err(Errno::EINVAL);
    }
    let dir = open_dir(view, add.dir)?;
    check_name(add)?;
    let target = view.entry(add.dir, add.name)?;
    if let Some(target) = target {
        check_unmarked(view, target)?;
    }
    let Some(file) = cx.incoming else {
        let (drop, add) = (Some(place(drop)), Some(place(add)));
        return Ok(Decision::AskHome(Need::of_names(from, None, drop, add)));
    };
    check_target(flags, target)?;
    if file.is_dir() {
        return dir_moves::move_in(view, cx, (drop, add), (file, from), (&dir, target));
    }
    match target {
        Some(target) if target.fid == file.fid => return Ok(Decision::Answer(Body::Done)),
        Some(target) if target.is_dir() => return Err(Errno::EISDIR),
        _ => {}
    }
    if file.home != from {
        let need = stub_to_go(from, file.fid, drop);
        if !cx.agreed.contains(&need) {
            return Ok(Decision::AskHome(need));
        }
    }
    if let Some(need) = target.and_then(|t| needs(cx, t, add, None)) {
        return Ok(Decision::AskHome(need));
    }
    let replaced = match target {
        Some(target) => Some(pushed_out(view, cx, target)?),
        None => None,
    };
    if file.home == cx.set {
        return come_home(view, cx, (drop, add), file.fid, (&dir, replaced));
    }
    enter(view, cx, add, file, &dir, replaced)
}

/// What the set of a stub, or of a copy of a directory, has to agree to before its name there goes.
pub(crate) fn stub_to_go(set: SetId, fid: Fid, drop: NameIn<'_>) -> Need {
    Need::of_names(set, Some(fid), Some(place(drop)), None)
}

/// A file of this set gets a name in a directory of this set in place of one in another set's. It has to be marked for that.
fn come_home(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (drop, add): (NameIn<'_>, NameIn<'_>),
    fid: Fid,
    (dir, replaced): (&Attr, Option<Replaced>),
) -> Result<Decision, Errno> {
    let marked = view.intent(fid)?.is_some_and(|intent| intent.tx == cx.tx);
    let from = EntryName { dir: drop.dir.names(), name: drop.name.clone() };
    if !marked || check_still_its(view, &from, fid).is_err() {
        return Err(Errno::EAGAIN);
    }
    let time =
        touch(dir, cx.now).max(touch(&view.attr(from.dir)?, cx.now)).max(touch(&view.attr(fid)?, cx.now));
    let EntryName { dir: parent, name } = from;
    let (to_parent, to_name) = (add.dir, add.name.clone());
    result_fid(fid, Change::Rename { parent, name, fid, to_parent, to_name, replaced, time })
}

/// A link to a file of set `home` in a directory of this set.
fn link_in(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (fid, home): (Fid, SetId),
    at: NameIn<'_>,
) -> Result<Decision, Errno> {
    if home == cx.set {
        return Err(Errno::EINVAL);
    }
    let dir = open_dir(view, at.dir)?;
    free_name(view, at)?;
    match cx.incoming {
        None => {
            let add = Some(place(at));
            Ok(Decision::AskHome(Need::of_names(home, Some(fid), None, add)))
        }
        Some(file) => enter(view, cx, at, file, &dir, None),
    }
}

/// What this set has of another one's file gets no name as long as it is marked, by an earlier transaction that takes a name of it
/// here: a late end of that would take the new one.
pub(crate) fn check_stub_unmarked(view: &mut dyn TreeState, fid: Fid) -> Result<(), Errno> {
    match view.is_pending(fid) {
        Ok(true) => Err(Errno::EAGAIN),
        Ok(false) | Err(Errno::ESTALE | Errno::ENOENT) => Ok(()),
        Err(e) => Err(e),
    }
}

fn enter(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    at: NameIn<'_>,
    file: &Attr,
    dir: &Attr,
    replaced: Option<Replaced>,
) -> Result<Decision, Errno> {
    if file.home == cx.set || file.is_dir() {
        return Err(Errno::EXDEV);
    }
    check_stub_unmarked(view, file.fid)?;
    let time = touch(dir, cx.now);
    let (parent, name) = (at.dir, at.name.clone());
    let (fid, home, kind) = (file.fid, file.home, file.mode & 0o170_000);
    result_fid(fid, Change::Enter { parent, name, fid, home, kind, replaced, time })
}

/// Whether the file has this name already; its folder of names need not be there.
pub(crate) fn leads_to(view: &mut dyn TreeState, at: &EntryName, fid: Fid) -> Result<bool, Errno> {
    match view.entry(at.dir, &at.name) {
        Ok(entry) => Ok(entry.is_some_and(|e| e.fid == fid)),
        Err(Errno::ESTALE | Errno::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// A name that is to go is still the file's.
///
/// # Errors
/// `ESTALE` if it is not; those of the folder of names.
pub(crate) fn check_still_its(view: &mut dyn TreeState, drop: &EntryName, fid: Fid) -> Result<(), Errno> {
    let there = view.entry(drop.dir, &drop.name)?;
    if there.is_some_and(|e| e.fid == fid) { Ok(()) } else { Err(Errno::ESTALE) }
}

/// Whether this set, which has the entry of a stub, is asked whether it may go: that is told by the directory of the name.
fn is_about_a_stub(view: &mut dyn TreeState, intent: &Intent) -> Result<bool, Errno> {
    let dir = if intent.add.is_none() { intent.drop.as_ref().map(|drop| drop.dir) } else { None };
    dir.filter(|dir| !dir.is_names()).map_or(Ok(false), |dir| is_own_dir(view, dir))
}

/// Whether this set answers for the directory.
///
/// # Errors
/// `EAGAIN`: that is not certain yet.
pub(crate) fn is_own_dir(view: &mut dyn TreeState, dir: Fid) -> Result<bool, Errno> {
    match view.attr(dir) {
        Err(Errno::EAGAIN) => Err(Errno::EAGAIN),
        found => Ok(found.is_ok()),
    }
}

/// The set of a stub, or of a copy, is asked whether it may go when the object has another name. Its home is asked how that ends,
/// and marked already.
fn prepare_stub(view: &mut dyn TreeState, fid: Fid, intent: Intent) -> Result<Decision, Errno> {
    let Some(drop) = &intent.drop else { return Err(Errno::EINVAL) };
    let entry = view.entry(drop.dir, &drop.name)?;
    let leads = entry.is_some_and(|e| (e.fid, e.home) == (fid, intent.coordinator));
    if !leads || view.is_pending(fid)? {
        return Err(Errno::EAGAIN);
    }
    result_fid(fid, Change::PrepareFile { fid, intent })
}

/// The home of a file is asked whether its names may change.
fn prepare_file(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Option<Fid>,
    mut intent: Intent,
) -> Result<Decision, Errno> {
    if let Some(fid) = fid
        && intent.coordinator != cx.set
        && is_about_a_stub(view, &intent)?
    {
        return prepare_stub(view, fid, intent);
    }
    if let Some(fid) = fid
        && view.attr(fid).is_ok_and(|attr| attr.is_dir())
    {
        return dir_moves::prepare(view, cx, fid, intent);
    }
    let fid = match (fid, &mut intent.drop) {
        (Some(fid), drop) => {
            // First: the name may be one that the file is about to get.
            if view.is_pending(fid)? {
                return Err(Errno::EAGAIN);
            }
            if let Some(drop) = drop {
                // A directory of this set has the name itself.
                if !is_own_dir(view, drop.dir)? {
                    drop.dir = drop.dir.names();
                }
                check_still_its(view, drop, fid)?;
            }
            fid
        }
        (None, Some(drop)) => {
            let entry = view.entry(drop.dir, &drop.name)?.ok_or(Errno::ENOENT)?;
            // Who asks for what lives elsewhere has to ask its home first, and for a directory by its fid.
            if entry.is_dir() || entry.home != cx.set {
                return Err(Errno::EXDEV);
            }
            check_unmarked(view, entry)?;
            entry.fid
        }
        (None, None) => return Err(Errno::EINVAL),
    };
    if let Some(add) = &mut intent.add {
        add.dir = add.dir.names();
    }
    let attr = view.attr(fid)?;
    if attr.is_dir() {
        return Err(Errno::EPERM);
    }
    if attr.nlink == 0 && !(cx.is_arriving)(fid) {
        return Err(Errno::ENOENT);
    }
    let added = intent.add.as_ref().map(|add| {
        let dir = if intent.coordinator == cx.set { add.dir.without_names() } else { add.dir };
        EntryName { dir, name: add.name.clone() }
    });
    if let Some(add) = added
        && leads_to(view, &add, fid)?
    {
        // The entry is there already, and would say that a transaction has committed which did not.
        return Ok(Decision::Answer(Body::Attr { attr }));
    }
    result_fid(fid, Change::PrepareFile { fid, intent })
}
