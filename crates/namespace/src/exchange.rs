//! Exchanges of two files whose names are in directories of two sets (docs/design/0019).
//!
//! The set that is asked decides, as for a rename of the other set's file to its own name. The other set has marked its entry
//! before, with what that is to lead to: when it hears that the transaction has committed the entry leads there in one change,
//! and then its mark ends. The home of the file that goes there asks that set how it ended, as after any rename.

use crate::decide::{Context, Decision, InExchange, NameIn, Need, check_name, open_dir, result_fid, touch};
use crate::files::{check_still_its, check_stub_unmarked, leads_to, place, stub_to_go};
use crate::tree_state::{Entry, TreeState};
use ids::{Fid, SetId, Time};
use wire::change::Replaced;
use wire::op::{EntryName, Intent, Successor};
use wire::{Body, Change, Errno};

/// An exchange of name `drop` in a directory of set `from` and `add` in one of this set, which decides.
pub(crate) fn exchange_in(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    from: SetId,
    drop: NameIn<'_>,
    add: NameIn<'_>,
) -> Result<Decision, Errno> {
    open_dir(view, add.dir)?;
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
    let (here, there) = (Some(place(add)), Some(place(drop)));
    let leads = Some(InExchange::Source(Successor { fid, home, kind }));
    let source = Need { exchange: leads, ..Need::of_names(from, None, there.clone(), here.clone()) };
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
    let exchange = Some(InExchange::Target(from));
    let other = Need { exchange, ..Need::of_names(home, Some(fid), here, there) };
    if !cx.agreed.contains(&other) {
        return Ok(Decision::AskHome(other));
    }
    if home == cx.set && !marked {
        return Err(Errno::EAGAIN);
    }
    if file.home == cx.set && !is_marked_by(view, cx, file.fid)? {
        return Err(Errno::EAGAIN);
    }
    let next = Successor { fid: file.fid, home: file.home, kind: file.mode & 0o170_000 };
    let theirs = Some(EntryName { dir: drop.dir.names(), name: drop.name.clone() });
    result_fid(file.fid, lead_to(view, cx, (&place(add), fid), next, theirs)?)
}

fn is_marked_by(view: &mut dyn TreeState, cx: &Context<'_>, fid: Fid) -> Result<bool, Errno> {
    Ok(view.intent(fid)?.is_some_and(|intent| intent.tx == cx.tx))
}

/// The entry `at`, which leads to `out`, leads to `next` from now on. `theirs`: the name that `next` has until then, if it is a file
/// of this set.
fn lead_to(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (at, out): (&EntryName, Fid),
    next: Successor,
    theirs: Option<EntryName>,
) -> Result<Change, Errno> {
    let own = match view.attr(out) {
        Ok(attr) => Some(attr),
        Err(Errno::ESTALE | Errno::ENOENT) => None,
        Err(e) => return Err(e),
    };
    let dir = view.attr(at.dir)?;
    let mut time = own.as_ref().map_or(cx.now, |attr| touch(attr, cx.now)).max(touch(&dir, cx.now));
    // A file of this set has no name then, until the end of its transaction gives it the other one.
    let orphan = own.as_ref().is_some_and(|attr| attr.nlink <= 1);
    let replaced = Some(Replaced { fid: out, dir: false, orphan });
    let Successor { fid, home, kind } = next;
    if home != cx.set {
        check_stub_unmarked(view, fid)?;
        let (parent, name) = (at.dir, at.name.clone());
        return Ok(Change::Enter { parent, name, fid, home, kind, replaced, time });
    }
    let theirs = theirs.ok_or(Errno::EAGAIN)?;
    if check_still_its(view, &theirs, fid).is_err() {
        return Err(Errno::EAGAIN);
    }
    for changed in [theirs.dir, fid] {
        time = time.max(touch(&view.attr(changed)?, cx.now));
    }
    if own.is_some() {
        return Ok(change_places((&theirs, fid), (at, out), time));
    }
    let EntryName { dir: parent, name } = theirs;
    let (to_parent, to_name) = (at.dir, at.name.clone());
    Ok(Change::Rename { parent, name, fid, to_parent, to_name, replaced, time })
}

pub(crate) fn change_places(one: (&EntryName, Fid), two: (&EntryName, Fid), time: Time) -> Change {
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
    // What is in a folder of names leads to nothing else.
    let Some(at) = intent.drop.as_ref().filter(|at| !at.dir.is_names()) else { return Ok(None) };
    let Some(next) = view.successor(fid)? else { return Ok(None) };
    if !leads_to(view, at, fid)? {
        return Ok(None);
    }
    let mut theirs = None;
    if next.home == cx.set {
        let mark = match view.intent(next.fid) {
            // It is lost: the name goes.
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(None),
            other => other?.filter(|mark| mark.tx == intent.tx),
        };
        theirs = mark.and_then(|mark| mark.drop).filter(|place| place.dir.is_names());
    }
    let change = lead_to(view, cx, (at, fid), next, theirs)?;
    Ok(Some(Decision::Change(change, None)))
}
