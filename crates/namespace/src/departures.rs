//! Files that move to another set (docs/design/0018): the copy there, and the entry that leads to it then.

use crate::decide::{Context, Decision, MODE_BITS, NameIn, Need, open_dir, result_fid};
use crate::files::{check_still_its, check_unmarked, leads_to, place};
use crate::tree_state::TreeState;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ids::{Fid, SetId};
use wire::change::{DirTimes, directories};
use wire::limits::COPY_NAMES_MAX;
use wire::op::{EntryName, Intent, Leaving};
use wire::{Attr, Body, Change, Errno, Op};

/// Operations that only files need which move.
pub(crate) fn decide_departure(
    op: &Op,
    view: &mut dyn TreeState,
    cx: &Context<'_>,
) -> Result<Decision, Errno> {
    match op {
        Op::Arrive => Ok(arrive(cx)),
        Op::Land { fid, mode, uid, gid, size, atime, mtime, ctime } => {
            let now = view.attr(*fid)?;
            if !(cx.is_arriving)(*fid) {
                return Err(Errno::ESTALE);
            }
            // Who owns it already keeps what a change of owner would take away.
            let (uid, gid) = ((now.uid != *uid).then_some(*uid), (now.gid != *gid).then_some(*gid));
            let (mode, size) = (Some(*mode & MODE_BITS), (now.size != *size).then_some(*size));
            let (fid, atime, mtime, time) = (*fid, Some(*atime), Some(*mtime), *ctime);
            result_fid(fid, Change::SetAttr { fid, mode, uid, gid, size, atime, mtime, time })
        }
        Op::Depart { parent, name, fid, to, copy } => {
            depart(view, cx, NameIn { dir: *parent, name }, *fid, (*to, *copy))
        }
        Op::DepartAll { fid, to, copy, names } => depart_all(view, cx, names, *fid, (*to, *copy)),
        Op::Retarget { parent, name, fid, home, to, copy } => {
            retarget(view, cx, NameIn { dir: *parent, name }, (*fid, *home), (*to, *copy))
        }
        Op::Redirect { fid, home, to, copy, names } => redirect(view, cx, names, (*fid, *home), (*to, *copy)),
        Op::PrepareLeave { tx, coordinator, fid, copy, drop, by: _ } => {
            let drop = EntryName { dir: drop.dir.names(), name: drop.name.clone() };
            let intent = Intent { tx: *tx, coordinator: *coordinator, drop: Some(drop), add: None };
            prepare_leave(view, cx, *fid, *copy, intent)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// A file without a name, for the copy of one that moves here.
fn arrive(cx: &Context<'_>) -> Decision {
    let fid = Fid { set: cx.set, epoch: cx.epoch, lsn: cx.lsn };
    Decision::Change(Change::Arrive { fid, time: cx.now }, Some(fid))
}

/// The entry of a file is to lead to its copy. `EBUSY`: it changed since, somebody has it open, or it has other names.
fn depart(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    at: NameIn<'_>,
    fid: Fid,
    (to, copy): (SetId, Fid),
) -> Result<Decision, Errno> {
    // A name in a folder of names is another set's: that set has the entry.
    if to == cx.set || at.dir.is_names() {
        return Err(Errno::EINVAL);
    }
    let dir = open_dir(view, at.dir)?;
    let entry = view.entry(at.dir, at.name)?.filter(|e| e.fid == fid && e.home == cx.set);
    let entry = entry.ok_or(Errno::ESTALE)?;
    check_unmarked(view, entry)?;
    let attr = view.attr(fid)?;
    let kind = attr.mode & 0o170_000;
    let may_go = kind == 0o100_000 && attr.nlink == 1 && !(cx.is_open)(fid) && (cx.is_copied)(fid, copy);
    if !may_go {
        return Err(Errno::EBUSY);
    }
    match cx.incoming {
        None => Ok(Decision::AskHome(to_arrive(to, copy, place(at)))),
        Some(file) if file.fid == copy && file.home == to && file.size == attr.size => {
            let (parent, name) = (at.dir, at.name.clone());
            let (mtime, ctime) = (dir.mtime, dir.ctime);
            result_fid(copy, Change::Depart { parent, name, fid, to, copy, kind, mtime, ctime })
        }
        Some(_) => Err(Errno::EIO),
    }
}

/// Likewise all entries of a file. If some are in directories of other sets the file goes for good, and these hear of it.
fn depart_all(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    names: &[EntryName],
    fid: Fid,
    (to, copy): (SetId, Fid),
) -> Result<Decision, Errno> {
    let (Some(first), true) = (names.first(), names.len() <= COPY_NAMES_MAX && to != cx.set) else {
        return Err(Errno::EINVAL);
    };
    for EntryName { dir, name } in names {
        open_dir(view, *dir)?;
        let entry = view.entry(*dir, name)?.filter(|e| e.fid == fid && e.home == cx.set);
        check_unmarked(view, entry.ok_or(Errno::ESTALE)?)?;
    }
    let attr = view.attr(fid)?;
    let kind = attr.mode & 0o170_000;
    let different: BTreeSet<(Fid, &[u8])> = names.iter().map(|p| (p.dir, p.name.as_bytes())).collect();
    // So many names as it has links are all that it has.
    let are_all = different.len() == names.len() && usize::try_from(attr.nlink) == Ok(names.len());
    let may_go = kind == 0o100_000 && are_all && !(cx.is_open)(fid) && (cx.is_copied)(fid, copy);
    if !may_go {
        return Err(Errno::EBUSY);
    }
    match cx.incoming {
        None => Ok(Decision::AskHome(to_arrive(to, copy, first.clone()))),
        Some(file) if file.fid == copy && file.home == to && file.size == attr.size => {
            let (names, time) = (names.to_vec(), attr.ctime);
            if names.iter().any(|place| place.dir.is_names()) {
                return result_fid(copy, Change::Leave { fid, tx: cx.tx, to, copy, names });
            }
            result_fid(copy, Change::DepartAll { fid, to, copy, kind, names, time })
        }
        Some(_) => Err(Errno::EIO),
    }
}

/// What a copy's set has to agree to.
fn to_arrive(to: SetId, copy: Fid, add: EntryName) -> Need {
    Need::of_names(to, Some(copy), None, Some(add))
}

/// The entry of a file of another set is to lead to the file's copy. The copy is marked first, so that the file is held up for
/// as short as may be.
fn retarget(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    at: NameIn<'_>,
    (fid, home): (Fid, SetId),
    (to, copy): (SetId, Fid),
) -> Result<Decision, Errno> {
    if at.dir.is_names() || home == cx.set || home == to {
        return Err(Errno::EINVAL);
    }
    let dir = open_dir(view, at.dir)?;
    let entry = view.entry(at.dir, at.name)?.filter(|e| (e.fid, e.home) == (fid, home));
    let kind = entry.filter(|e| e.kind == 0o100_000).ok_or(Errno::ESTALE)?.kind;
    let Some(file) = cx.incoming else { return Ok(Decision::AskHome(to_arrive(to, copy, place(at)))) };
    if (file.fid, file.home) != (copy, to) {
        return Err(Errno::EIO);
    }
    let need = Need { copy: Some(copy), ..Need::of_names(home, Some(fid), Some(place(at)), None) };
    if !cx.agreed.contains(&need) {
        return Ok(Decision::AskHome(need));
    }
    let (parent, name, mtime, ctime) = (at.dir, at.name.clone(), dir.mtime, dir.ctime);
    if to != cx.set {
        return result_fid(copy, Change::Depart { parent, name, fid, to, copy, kind, mtime, ctime });
    }
    let arrived = view.attr(copy)?;
    if arrived.nlink != 0 || !(cx.is_arriving)(copy) {
        return Err(Errno::ESTALE);
    }
    let time = arrived.ctime;
    result_fid(copy, Change::ComeHome { parent, name, fid, copy, mtime, ctime, time })
}

/// Entries of a file that has left its home for good are to lead to its copy; those that do already, or lead to something else,
/// stay. At the home itself what is left of the file are its names.
fn redirect(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    names: &[EntryName],
    (fid, home): (Fid, SetId),
    (to, copy): (SetId, Fid),
) -> Result<Decision, Errno> {
    if to == home || names.len() > COPY_NAMES_MAX {
        return Err(Errno::EINVAL);
    }
    let leaving = if home == cx.set && view.is_pending(fid)? { view.leaving(fid)? } else { None };
    let leaving = leaving.filter(|l| leads(l, (to, copy)));
    if home == cx.set && leaving.is_none() {
        return Err(Errno::ESTALE);
    }
    let mut here: Vec<EntryName> = Vec::new();
    for place in names {
        match view.entry(place.dir, &place.name) {
            Ok(Some(e)) if (e.fid, e.home, e.kind) == (fid, home, 0o100_000) => {}
            Ok(_) | Err(Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR) => continue,
            Err(e) => return Err(e),
        }
        if place.dir.is_names() && home != cx.set {
            return Err(Errno::EINVAL);
        }
        if !here.contains(place) {
            here.push(place.clone());
        }
    }
    if here.is_empty() {
        let Some(leaving) = leaving else { return Ok(Decision::Answer(Body::Done)) };
        for place in &leaving.names {
            // All are told of at last: these were those of a directory that has come here since.
            if leads_to(view, place, fid)? {
                return Ok(Decision::Answer(Body::Done));
            }
        }
        // A power cut has left it a name that it had lost before: so it is a file again.
        let (drop, add, orphan, time) = (None, None, false, view.attr(fid)?.ctime);
        return Ok(Decision::Change(Change::EndFile { fid, drop, add, orphan, time }, None));
    }
    let time = if to == cx.set { view.attr(copy)?.ctime } else { cx.now };
    let (kind, mut dirs) = (0o100_000, Vec::new());
    for dir in directories(&here) {
        let Attr { mtime, ctime, .. } = view.attr(dir)?;
        dirs.push(DirTimes { dir, mtime, ctime });
    }
    Ok(Decision::Change(Change::Redirect { fid, to, copy, kind, names: here, dirs, time }, None))
}

fn leads(leaving: &Leaving, (to, copy): (SetId, Fid)) -> bool {
    (leaving.to, leaving.copy) == (to, copy)
}

/// The home of a file is asked whether it may go with its only name, which is in a directory of another set.
fn prepare_leave(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    copy: Fid,
    intent: Intent,
) -> Result<Decision, Errno> {
    if view.is_pending(fid)? {
        return Err(Errno::EAGAIN);
    }
    if let Some(drop) = &intent.drop {
        check_still_its(view, drop, fid)?;
    }
    let attr = view.attr(fid)?;
    let is_file = attr.mode & 0o170_000 == 0o100_000;
    let may_go = is_file && attr.nlink == 1 && !(cx.is_open)(fid) && (cx.is_copied)(fid, copy);
    if !may_go {
        return Err(Errno::EBUSY);
    }
    result_fid(fid, Change::PrepareLeave { fid, intent })
}
