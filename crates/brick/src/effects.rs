//! What a change does to the times, versions and marks of objects, for applying and for recovering alike.

use crate::nodes::Effect;
use disk_format::tag::{ORPHAN, PENDING};
use ids::{Fid, Time};
use wire::Change;
use wire::change::{DirTimes, directories};

/// What a change does to the times, versions and marks of objects.
pub(crate) fn effects(change: &Change) -> Vec<(Fid, Effect)> {
    let c = changed;
    let m = |time: &Time| Effect { mtime: Some(*time), ..c(time) };
    let entries = |time: &Time| entries(time, time);
    let gone = |time: &Time, orphan: bool| Effect { set: if orphan { ORPHAN } else { 0 }, ..c(time) };
    match change {
        Change::Nop | Change::DropOrphan { .. } | Change::PrepareMkdir { .. } => vec![],
        Change::Arrive { fid, .. } => vec![(*fid, Effect { set: ORPHAN, ..Effect::default() })],
        // The new object gets its own with its making.
        Change::Create { parent, time, .. } => vec![(*parent, entries(time))],
        Change::Unlink { parent, fid, orphan, time, .. } => {
            vec![(*parent, entries(time)), (*fid, gone(time, *orphan))]
        }
        Change::Rmdir { parent, time, .. } => vec![(*parent, entries(time))],
        Change::Rename { parent, fid, to_parent, replaced, time, .. } => {
            let mut v = vec![(*parent, entries(time)), (*fid, renamed(time))];
            v.extend((to_parent != parent).then(|| (*to_parent, entries(time))));
            v.extend(replaced.as_ref().map(|r| (r.fid, gone(time, r.orphan))));
            v
        }
        Change::Exchange { parent, fid, to_parent, to_fid, time, .. } => {
            let mut v = vec![(*parent, entries(time)), (*fid, c(time)), (*to_fid, c(time))];
            v.extend((to_parent != parent).then(|| (*to_parent, entries(time))));
            v
        }
        Change::Link { fid, parent, time, .. } => vec![(*parent, entries(time)), (*fid, c(time))],
        Change::SetAttr { fid, atime, mtime, time, .. } => {
            vec![(*fid, Effect { mtime: *mtime, atime: *atime, ..c(time) })]
        }
        Change::Write { fid, time, .. } | Change::Fallocate { fid, time, .. } => vec![(*fid, m(time))],
        Change::CopyRange { to, time, .. } => vec![(*to, m(time))],
        Change::SetXattr { fid, time, .. } | Change::RemoveXattr { fid, time, .. } => vec![(*fid, c(time))],
        Change::PrepareFile { fid, .. }
        | Change::PrepareMove { fid, .. }
        | Change::PrepareExchange { fid, .. }
        | Change::PrepareSwap { fid, .. }
        | Change::PrepareLeave { fid, .. }
        | Change::Leave { fid, .. }
        | Change::PrepareRmdir { fid } => vec![(*fid, Effect { set: PENDING, ..Effect::default() })],
        Change::EndFile { fid, drop, add, orphan, time } => {
            let mut dirs: Vec<Fid> = drop.iter().chain(add).map(|place| place.dir).collect();
            dirs.dedup();
            let ctime = (!dirs.is_empty()).then_some(*time);
            // What has arrived gets its first name so.
            let clear = if add.is_some() { PENDING | ORPHAN } else { PENDING };
            let ended = Effect { ctime, clear, ended: true, ..gone(time, *orphan) };
            dirs.into_iter().map(|dir| (dir, entries(time))).chain([(*fid, ended)]).collect()
        }
        Change::Enter { parent, replaced, time, .. } => {
            let mut v = vec![(*parent, entries(time))];
            v.extend(replaced.as_ref().map(|r| (r.fid, gone(time, r.orphan))));
            v
        }
        Change::MoveOut { .. }
        | Change::MoveOn { .. }
        | Change::Swap { .. }
        | Change::Depart { .. }
        | Change::DepartAll { .. }
        | Change::EndCopy { .. }
        | Change::ComeHome { .. }
        | Change::Redirect { .. } => effects_of_names(change),
        Change::TakeDir { .. } | Change::GiveDir { .. } | Change::EndTransaction { .. } => {
            effects_of_transaction(change)
        }
        Change::Relocate { fid, .. } | Change::Touch { fid } => vec![(*fid, Effect::default())],
        Change::Partial { objects } => objects.iter().map(|fid| (*fid, Effect::default())).collect(),
    }
}

/// Likewise, of what makes a directory another set's, and of the end of a mark.
fn effects_of_transaction(change: &Change) -> Vec<(Fid, Effect)> {
    match change {
        Change::TakeDir { fid, dir, .. } => {
            let (ctime, mtime, atime) = (Some(dir.ctime), Some(dir.mtime), Some(dir.atime));
            vec![(*fid, Effect { ctime, mtime, atime, set: PENDING, ..Effect::default() })]
        }
        Change::GiveDir { fid, .. } => {
            let given = Effect { clear: PENDING, ..Effect::default() };
            vec![(*fid, given), (fid.names(), Effect::default())]
        }
        Change::EndTransaction { fid, keep: true } => {
            vec![(*fid, Effect { clear: PENDING, ..Effect::default() })]
        }
        _ => vec![],
    }
}

/// Likewise, of a change of all names of a file that moves, or of an entry of a directory that does.
fn effects_of_names(change: &Change) -> Vec<(Fid, Effect)> {
    match change {
        Change::MoveOut { parent, fid, time, .. } => {
            vec![(*parent, entries(time, time)), (*fid, changed(time))]
        }
        Change::MoveOn { fid, time, .. } => vec![(*fid, changed(time))],
        Change::Swap { parent, out, next, theirs, time, .. } => {
            let gone = Effect { set: if out.orphan { ORPHAN } else { 0 }, ..changed(time) };
            let mut v = vec![(*parent, entries(time, time)), (out.fid, gone)];
            if let Some(at) = theirs {
                v.extend([(at.dir, entries(time, time)), (next.fid, renamed(time))]);
            }
            v
        }
        Change::Depart { parent, fid, mtime, ctime, .. } => {
            vec![(*parent, entries(mtime, ctime)), (*fid, changed(ctime))]
        }
        Change::DepartAll { fid, names, time, .. } => {
            // Their entries lead elsewhere, and neither they nor their times are touched.
            let version = Effect { only_times: true, ..Effect::default() };
            directories(names).into_iter().map(|dir| (dir, version)).chain([(*fid, changed(time))]).collect()
        }
        Change::EndCopy { fid, names, time } => {
            let ended = Effect { clear: PENDING | ORPHAN, ended: true, ..changed(time) };
            let named = |dir| (dir, entries(time, time));
            directories(names).into_iter().map(named).chain([(*fid, ended)]).collect()
        }
        Change::ComeHome { parent, fid, copy, mtime, ctime, time, .. } => {
            let named = Effect { clear: ORPHAN, ..changed(time) };
            vec![(*parent, entries(mtime, ctime)), (*fid, changed(ctime)), (*copy, named)]
        }
        Change::Redirect { fid, copy, dirs, time, .. } => {
            let before = |times: &DirTimes| (times.dir, entries(&times.mtime, &times.ctime));
            let named = Effect { clear: ORPHAN, ..changed(time) };
            dirs.iter().map(before).chain([(*fid, changed(time)), (*copy, named)]).collect()
        }
        _ => vec![],
    }
}

/// An object's attributes or names changed.
fn changed(time: &Time) -> Effect {
    Effect { ctime: Some(*time), ..Effect::default() }
}

/// An object has another name, and nothing else of it changed.
fn renamed(ctime: &Time) -> Effect {
    Effect { only_times: true, ..changed(ctime) }
}

/// A directory's entries changed.
fn entries(mtime: &Time, ctime: &Time) -> Effect {
    Effect { mtime: Some(*mtime), only_times: true, ..changed(ctime) }
}
