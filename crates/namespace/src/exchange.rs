//! Exchanges of two files whose names are in directories of two sets (docs/design/0019).
//!
//! The set that is asked decides, as for a rename of the other set's file to its own name. The other set has marked its entry
//! before, with what that is to lead to: when it hears that the transaction has committed the entry leads there in one change,
//! and then its mark ends. The home of the file that goes there asks that set how it ended, as after any rename.

use crate::decide::{Context, Decision, InExchange, NameIn, Need, check_name, open_dir, result_fid, touch};
use crate::files::{check_still_its, check_stub_unmarked, come_home, leads_to, place, stub_to_go};
use crate::tree_state::{Entry, TreeState};
use ids::{Fid, SetId};
use wire::change::Replaced;
use wire::op::{EntryName, Intent, Successor};
use wire::{Attr, Body, Change, Errno};

/// An exchange of name `drop` in a directory of set `from` and `add` in one of this set, which decides.
pub(crate) fn exchange_in(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    from: SetId,
    drop: NameIn<'_>,
    add: NameIn<'_>,
) -> Result<Decision, Errno> {
    let dir = open_dir(view, add.dir)?;
    check_name(add)?;
    let target = view.entry(add.dir, add.name)?.ok_or(Errno::ENOENT)?;
    if target.is_dir() {
        return Err(Errno::EXDEV);
    }
    let marked = view.is_pending(target.fid)?;
    if marked && !is_marked_by(view, cx, target.fid)? {
        return Err(Errno::EAGAIN);
    }
    let Entry { fid, home, kind } = target;
    let leads = Some(InExchange::Source(Successor { fid, home, kind }));
    let source = Need {
        home: from,
        fid: None,
        drop: Some(place(drop)),
        add: Some(place(add)),
        copy: None,
        exchange: leads,
    };
    let Some(file) = cx.incoming else { return Ok(Decision::AskHome(source)) };
    if file.is_dir() {
        return Err(Errno::EXDEV);
    }
    if file.fid == fid {
        return Ok(Decision::Answer(Body::Done));
    }
    if file.home != from {
        let stub = Need { exchange: source.exchange, ..stub_to_go(from, file.fid, drop) };
        if !cx.agreed.contains(&stub) {
            return Ok(Decision::AskHome(stub));
        }
    } else if !cx.agreed.contains(&source) {
        // The other set was told of something that this entry has led to before.
        return Err(Errno::EAGAIN);
    }
    let (goes, comes) = (Some(place(add)), Some(place(drop)));
    let exchange = Some(InExchange::Target(from));
    let other = Need { home, fid: Some(fid), drop: goes, add: comes, copy: None, exchange };
    if !cx.agreed.contains(&other) {
        return Ok(Decision::AskHome(other));
    }
    if home == cx.set && !marked {
        return Err(Errno::EAGAIN);
    }
    commit(view, cx, (drop, add), file, (&dir, target))
}

fn is_marked_by(view: &mut dyn TreeState, cx: &Context<'_>, fid: Fid) -> Result<bool, Errno> {
    Ok(view.intent(fid)?.is_some_and(|intent| intent.tx == cx.tx))
}

/// All have agreed: the entry of this set leads to the other file from now on.
fn commit(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (drop, add): (NameIn<'_>, NameIn<'_>),
    file: &Attr,
    (dir, target): (&Attr, Entry),
) -> Result<Decision, Errno> {
    let out = if target.home == cx.set { Some(view.attr(target.fid)?) } else { None };
    let replaced = pushed_out(target.fid, out.as_ref());
    let (parent, name) = (add.dir, add.name.clone());
    let time = out.as_ref().map_or(cx.now, |attr| touch(attr, cx.now)).max(touch(dir, cx.now));
    if file.home != cx.set {
        check_stub_unmarked(view, file.fid)?;
        let (fid, home, kind) = (file.fid, file.home, file.mode & 0o170_000);
        return result_fid(
            fid,
            Change::Enter { parent, name, fid, home, kind, replaced: Some(replaced), time },
        );
    }
    if out.is_none() {
        return come_home(view, cx, (drop, add), file.fid, (dir, Some(replaced)));
    }
    let at = EntryName { dir: drop.dir.names(), name: drop.name.clone() };
    if !is_marked_by(view, cx, file.fid)? || check_still_its(view, &at, file.fid).is_err() {
        return Err(Errno::EAGAIN);
    }
    result_fid(file.fid, change_places((&at, file.fid), (&place(add), target.fid), time))
}

/// A file of this set has no name then, until the end of its transaction gives it the other one.
fn pushed_out(fid: Fid, own: Option<&Attr>) -> Replaced {
    Replaced { fid, dir: false, orphan: own.is_some_and(|attr| attr.nlink <= 1) }
}

fn change_places(one: (&EntryName, Fid), two: (&EntryName, Fid), time: ids::Time) -> Change {
    let ((from, fid), (to, to_fid)) = (one, two);
    let (parent, name) = (from.dir, from.name.clone());
    let (to_parent, to_name) = (to.dir, to.name.clone());
    Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, time }
}

/// The transaction that has marked `fid` has committed, and its entry here is to lead to something else: the change that does it, if
/// it is not done yet.
pub(crate) fn succeed(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    intent: &Intent,
) -> Result<Option<Decision>, Errno> {
    let (Some(next), Some(at)) = (view.successor(fid)?, &intent.drop) else { return Ok(None) };
    if !leads_to(view, at, fid)? {
        return Ok(None);
    }
    let own = match view.attr(fid) {
        Ok(attr) => Some(attr),
        Err(Errno::ESTALE | Errno::ENOENT) => None,
        Err(e) => return Err(e),
    };
    let dir = view.attr(at.dir)?;
    let time = own.as_ref().map_or(cx.now, |attr| touch(attr, cx.now)).max(touch(&dir, cx.now));
    let replaced = pushed_out(fid, own.as_ref());
    let (parent, name) = (at.dir, at.name.clone());
    if next.home != cx.set {
        check_stub_unmarked(view, next.fid)?;
        let Successor { fid, home, kind } = next;
        let change = Change::Enter { parent, name, fid, home, kind, replaced: Some(replaced), time };
        return Ok(Some(Decision::Change(change, None)));
    }
    let theirs = match view.intent(next.fid) {
        Ok(theirs) => theirs.filter(|theirs| theirs.tx == intent.tx).and_then(|theirs| theirs.drop),
        // It is lost: the name goes.
        Err(Errno::ESTALE | Errno::ENOENT) => return Ok(None),
        Err(e) => return Err(e),
    };
    let Some(theirs) = theirs.filter(|place| place.dir.is_names()) else { return Err(Errno::EAGAIN) };
    if check_still_its(view, &theirs, next.fid).is_err() {
        return Err(Errno::EAGAIN);
    }
    let change = match own {
        Some(_) => change_places((&theirs, next.fid), (at, fid), time),
        None => Change::Rename {
            parent: theirs.dir,
            name: theirs.name,
            fid: next.fid,
            to_parent: parent,
            to_name: name,
            replaced: Some(replaced),
            time,
        },
    };
    Ok(Some(Decision::Change(change, None)))
}
