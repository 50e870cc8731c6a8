//! Exchanges of two names in directories of two sets (docs/design/0019).
//!
//! The set that is asked decides, as for a rename of the other set's file or directory to its own name. The other set has marked its
//! entry before, with what that is to lead to: when it hears that the transaction has committed the entry leads there in one
//! change, and then its mark ends. The home of what goes there asks that set how it ended, as after any rename.
//!
//! Always true: of a directory that changes its place the directories above the new one are known under the lock on the tree's
//! shape, up to one that is marked by the same transaction or to the root, and it is none of them.

use crate::decide::{Context, Decision, InExchange, NameIn, Need, check_name, open_dir, result_fid, touch};
use crate::files::{check_still_its, check_stub_unmarked, leads_to, place, stub_to_go};
use crate::rename::keeps_tree;
use crate::tree_state::{Entry, TreeState};
use ids::{Fid, OpId, SetId, Time};
use wire::change::Replaced;
use wire::op::{EntryName, Intent, Successor};
use wire::{Attr, Body, Change, Errno, Name};

const TYPE: u32 = 0o170_000;
const DIR: u32 = 0o040_000;

/// An exchange of name `drop` in a directory of set `from` and `add` in one of this set, which decides.
pub(crate) fn exchange_in(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    from: SetId,
    drop: NameIn<'_>,
    add: NameIn<'_>,
) -> Result<Decision, Errno> {
    if cx.incoming.is_some_and(|file| file.fid == add.dir) {
        // It is marked, and would have this wait for itself.
        return Err(Errno::EINVAL);
    }
    open_dir(view, add.dir)?;
    check_name(add)?;
    let target = view.entry(add.dir, add.name)?.ok_or(Errno::ENOENT)?;
    let Entry { fid, home, kind } = target;
    let marked = view.is_pending(fid)?;
    // It may have gone already, as its home knows.
    if marked && !is_marked_by(view, fid, cx.tx)? {
        return Err(Errno::EAGAIN);
    }
    if fid == drop.dir {
        return Err(Errno::EINVAL);
    }
    if let Some(need) = open_need(cx, from, (drop, add), target)? {
        return Ok(Decision::AskHome(need));
    }
    let Some(file) = cx.incoming else { return Err(Errno::EAGAIN) };
    if file.fid == fid {
        // A directory has one name: it has come here since the other set said that it has that one.
        return if file.is_dir() { Err(Errno::EAGAIN) } else { Ok(Decision::Answer(Body::Done)) };
    }
    if home == cx.set && !marked {
        return Err(Errno::EAGAIN);
    }
    if file.home == cx.set && !is_marked_by(view, file.fid, cx.tx)? {
        return Err(Errno::EAGAIN);
    }
    if let Some((at, set)) = what_lies_above(view, cx, (from, drop), (file, add), target)? {
        return Ok(Decision::AskAbove(at, set));
    }
    let next = Successor { fid: file.fid, home: file.home, kind: file.mode & TYPE };
    let theirs = Some(EntryName { dir: drop.dir.names(), name: drop.name.clone() });
    let out = Out { fid, kind, tx: cx.tx };
    result_fid(file.fid, lead_to(view, cx, (&place(add), out), next, theirs)?)
}

/// Who has to agree yet before the target's entry can lead to what comes.
fn open_need(
    cx: &Context<'_>,
    from: SetId,
    (drop, add): (NameIn<'_>, NameIn<'_>),
    Entry { fid, home, kind }: Entry,
) -> Result<Option<Need>, Errno> {
    let (here, there) = (Some(place(add)), Some(place(drop)));
    let leads = Some(InExchange::Source(Successor { fid, home, kind }));
    let of_source =
        |fid| Need { exchange: leads.clone(), ..Need::of_names(from, fid, there.clone(), here.clone()) };
    let Some(file) = cx.incoming else { return Ok(Some(of_source(None))) };
    if file.fid == fid {
        return Ok(None);
    }
    if file.home != from {
        let stub = Need { exchange: leads, ..stub_to_go(from, file.fid, drop) };
        if !cx.agreed.contains(&stub) {
            return Ok(Some(stub));
        }
    } else if !cx.agreed.contains(&of_source(file.is_dir().then_some(file.fid))) {
        // The other set was told of something that this entry has led to before.
        return Err(Errno::EAGAIN);
    }
    let exchange = Some(InExchange::Target(from));
    let other = Need { exchange, ..Need::of_names(home, Some(fid), here, there) };
    Ok((!cx.agreed.contains(&other)).then_some(other))
}

/// The directory above which nothing is known yet, of those to which a directory is to come, and its set. Neither of two directories
/// may come beneath itself. What was seen of one holds for the other, too: none of the two lies above the other one's new entry.
fn what_lies_above(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (from, drop): (SetId, NameIn<'_>),
    (file, add): (&Attr, NameIn<'_>),
    target: Entry,
) -> Result<Option<(Fid, SetId)>, Errno> {
    if file.is_dir()
        && let Some(open) = keeps_tree(view, cx, file.fid, add.dir)?
    {
        return Ok(Some(open));
    }
    // Nothing lies above the root.
    if !target.is_dir() || drop.dir.is_root() {
        return Ok(None);
    }
    match cx.above.get(&drop.dir) {
        None => Ok(Some((drop.dir, from))),
        Some(above) if above.contains(&target.fid) => Err(Errno::EINVAL),
        Some(_) => Ok(None),
    }
}

/// The other set is asked to mark what its entry leads to, which leads to `successor` when the transaction has committed.
pub(crate) fn marked(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    prepared: Decision,
    successor: &Successor,
) -> Result<Decision, Errno> {
    if successor.is_dir() && successor.home != cx.set {
        // An earlier transaction may have it leave this set still. Its home would say of that one that it came to nothing, as the
        // directory is this set's again, and the copy would keep the name that it has lost.
        check_stub_unmarked(view, successor.fid)?;
    }
    let (fid, intent, from) = match prepared {
        Decision::Change(Change::PrepareFile { fid, intent }, _) => {
            let from = intent.drop.as_ref().map_or(cx.set, |drop| drop.dir.set);
            (fid, intent, from)
        }
        Decision::Change(Change::PrepareMove { fid, intent, from }, _) => (fid, intent, from),
        other => return Ok(other),
    };
    let successor = successor.clone();
    let is_own_dir = match view.attr(fid) {
        Err(Errno::ESTALE | Errno::ENOENT) => false,
        attr => attr?.is_dir(),
    };
    if !is_own_dir {
        return result_fid(fid, Change::PrepareExchange { fid, intent, successor });
    }
    // Of a directory whose entry is another set's that set has a copy to mark.
    if from != cx.set {
        return Err(Errno::ESTALE);
    }
    result_fid(fid, Change::PrepareSwap { fid, intent, successor, from })
}

fn is_marked_by(view: &mut dyn TreeState, fid: Fid, tx: OpId) -> Result<bool, Errno> {
    Ok(view.intent(fid)?.is_some_and(|intent| intent.tx == tx))
}

/// What an entry leads to that is to lead to something else, and the transaction.
struct Out {
    fid: Fid,
    kind: u32,
    tx: OpId,
}

/// The entry `at`, which leads to `out`, leads to `next` from now on. `theirs`: the name that `next` has until then, if it is a file
/// of this set.
fn lead_to(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    (at, out): (&EntryName, Out),
    next: Successor,
    theirs: Option<EntryName>,
) -> Result<Change, Errno> {
    let own = match view.attr(out.fid) {
        Ok(attr) => Some(attr),
        Err(Errno::ESTALE | Errno::ENOENT) => None,
        Err(e) => return Err(e),
    };
    let dir = view.attr(at.dir)?;
    let mut time = own.as_ref().map_or(cx.now, |attr| touch(attr, cx.now)).max(touch(&dir, cx.now));
    let is_dir = out.kind & TYPE == DIR;
    // A file of this set has no name then, until the end of its transaction gives it the other one.
    let orphan = !is_dir && own.as_ref().is_some_and(|attr| attr.nlink <= 1);
    let replaced = Replaced { fid: out.fid, dir: is_dir, orphan };
    let comes = next.is_dir();
    let Successor { fid, home, kind } = next;
    let (parent, name) = (at.dir, at.name.clone());
    if home != cx.set {
        check_stub_unmarked(view, fid)?;
        if is_dir || comes {
            return Ok(swap((parent, name), replaced, next, (None, out.tx, time)));
        }
        return Ok(Change::Enter { parent, name, fid, home, kind, replaced: Some(replaced), time });
    }
    if comes {
        if !is_marked_by(view, fid, out.tx)? {
            return Err(Errno::EAGAIN);
        }
        time = time.max(touch(&view.attr(fid)?, cx.now));
        return Ok(swap((parent, name), replaced, next, (None, out.tx, time)));
    }
    let theirs = theirs.ok_or(Errno::EAGAIN)?;
    if check_still_its(view, &theirs, fid).is_err() {
        return Err(Errno::EAGAIN);
    }
    for changed in [theirs.dir, fid] {
        time = time.max(touch(&view.attr(changed)?, cx.now));
    }
    if is_dir {
        return Ok(swap((parent, name), replaced, next, (Some(theirs), out.tx, time)));
    }
    if own.is_some() {
        return Ok(change_places((&theirs, fid), (at, out.fid), time));
    }
    let EntryName { dir: from, name: from_name } = theirs;
    Ok(Change::Rename {
        parent: from,
        name: from_name,
        fid,
        to_parent: parent,
        to_name: name,
        replaced: Some(replaced),
        time,
    })
}

fn swap(
    (parent, name): (Fid, Name),
    out: Replaced,
    next: Successor,
    (theirs, tx, time): (Option<EntryName>, OpId, Time),
) -> Change {
    Change::Swap { parent, name, out, next, theirs, tx, time }
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
    // What is there has the kind of an entry: of a stub its own attributes do not tell.
    let kind = view.entry(at.dir, &at.name)?.map_or(0, |entry| entry.kind);
    let out = Out { fid, kind, tx: intent.tx };
    let change = lead_to(view, cx, (at, out), next, theirs)?;
    Ok(Some(Decision::Change(change, None)))
}
