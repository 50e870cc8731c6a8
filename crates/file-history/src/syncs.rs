//! What syncs may and must answer after a power cut of all bricks of a set.
//!
//! A client whose change was not synced before the cut is told by the next sync, once (`docs/design/0007`). What it is told
//! depends on its own calls only, so no order has to be sought.

use crate::{Excuse, Excuses, Loss, Record, Violation, wrong};
use ids::{Fid, SetId};
use std::collections::{BTreeMap, BTreeSet};
use wire::op::{Node, rename_flags};
use wire::{Errno, Op};

/// Objects that the operation changes.
pub(crate) fn changed(op: &Op) -> Vec<Fid> {
    match op {
        Op::SetAttr { fid, .. }
        | Op::Write { fid, .. }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. }
        | Op::Fallocate { fid, .. }
        | Op::CopyRange { to: fid, .. }
        | Op::Create { parent: fid, .. }
        | Op::Unlink { parent: fid, .. }
        | Op::Rmdir { parent: fid, .. } => vec![*fid],
        Op::Rename { parent, to_parent, .. } | Op::MoveIn { parent, to_parent, .. } => {
            vec![*parent, *to_parent]
        }
        Op::Link { fid, parent, .. } | Op::LinkIn { fid, parent, .. } => vec![*fid, *parent],
        _ => vec![],
    }
}

/// Whether a sync covers what a loss of that set may have taken of an object.
fn covers(sync: &Record, fid: Fid, set: SetId) -> bool {
    match sync.op {
        Op::Fsync { fid: of } => of == fid,
        Op::SyncFs => sync.set == set,
        _ => false,
    }
}

fn fsynced(op: &Op) -> Option<Fid> {
    if let Op::Fsync { fid } = op { Some(*fid) } else { None }
}

fn failed(r: &Record) -> bool {
    matches!(r.answer, Some((_, Err(_))))
}

/// Whether a loss may have taken what a change did to a file, or a client that has not heard of it may think so. Of a file on several
/// sets only data lies on others than its own; it may have got parts there since the loss.
fn may_take(excuses: &Excuses, change: &Record, fid: Fid, loss: &Loss) -> bool {
    let is_data = matches!(change.op, Op::Write { .. } | Op::Fallocate { .. });
    let has_part = excuses.parted.get(&fid).is_some_and(|parted| parted.sets.contains_key(&loss.set));
    fid.set == loss.set || has_part && is_data || excuses.was_on(fid, loss.set)
}

fn answered(r: &Record) -> Option<u64> {
    r.answer.as_ref().map(|(at, _)| *at)
}

/// Whether a set may have a part in the operation that has none of its directories: a directory may lie on any other set than
/// its entry, also one that gives way to a rename; a file on one from which a name was given to it, here or where it was
/// moved from.
fn may_ask(r: &Record, set: SetId, records: &[Record]) -> bool {
    let until = answered(r).unwrap_or(u64::MAX);
    match r.op {
        Op::Create { node: Node::Dir, .. } | Op::Rmdir { .. } => true,
        Op::Unlink { .. } | Op::Rename { .. } | Op::MoveIn { .. } => {
            let replaces = matches!(r.op, Op::Rename { .. });
            let from = came_from(&r.op);
            let dir = |o: &Record| {
                let made = matches!(o.op, Op::Create { node: Node::Dir, .. });
                made && (replaces && o.set == r.set || from.is_some())
            };
            let names = sets_with_names_from(set, until, records);
            let leads_there = |of: SetId| names.contains(&of);
            records.iter().any(|o| o.begun <= until && dir(o))
                || leads_there(r.set)
                || from.is_some_and(leads_there)
        }
        _ => false,
    }
}

/// The sets whose directories may have names of files of `home`: given to them there, in exchange for another name, or moved on
/// from another such set.
fn sets_with_names_from(home: SetId, until: u64, records: &[Record]) -> BTreeSet<SetId> {
    let mut found = BTreeSet::new();
    loop {
        let has = |set: SetId| set == home || found.contains(&set);
        let next: Vec<SetId> = records
            .iter()
            .filter(|o| o.begun <= until)
            .flat_map(gave_names)
            .filter(|(from, to)| has(*from) && !found.contains(to))
            .map(|(_, to)| to)
            .collect();
        if next.is_empty() {
            return found;
        }
        found.extend(next);
    }
}

/// The set of a file that gets a name in a directory of another one.
fn came_from(op: &Op) -> Option<SetId> {
    match op {
        Op::MoveIn { from, .. } => Some(*from),
        Op::LinkIn { home, .. } => Some(*home),
        _ => None,
    }
}

/// From which sets to which the operation may have brought names of files: of two names that change places, both ways.
fn gave_names(o: &Record) -> impl Iterator<Item = (SetId, SetId)> {
    let exchanges = matches!(o.op, Op::MoveIn { flags, .. } if flags & rename_flags::EXCHANGE != 0);
    let there = came_from(&o.op).map(|from| (from, o.set));
    let back = there.filter(|_| exchanges).map(|(from, to)| (to, from));
    there.into_iter().chain(back)
}

/// Whether the operation has something brought to disk before it is answered: a sync, or a change of names of a file that may
/// live on another set than its directory.
fn may_sync(r: &Record, records: &[Record], excuses: &Excuses) -> bool {
    match r.op {
        Op::MoveIn { .. } | Op::LinkIn { .. } => true,
        Op::Unlink { .. } | Op::Rename { .. } => {
            let until = answered(r).unwrap_or(u64::MAX);
            let came = |o: &Record| o.begun <= until && gave_names(o).any(|(_, to)| to == r.set);
            !excuses.moved.is_empty() || records.iter().any(came)
        }
        _ => r.op.is_sync(),
    }
}

/// Whether a fault explains the record's error.
pub(crate) fn is_excused(r: &Record, excuses: &Excuses, records: &[Record]) -> bool {
    let Some((at, Err(errno))) = &r.answer else { return false };
    let files = changed(&r.op).into_iter().chain(r.op.object()).chain(fsynced(&r.op));
    let sets = [Some(r.set)].into_iter().chain(files.flat_map(|fid| excuses.sets_of(fid)).map(Some));
    let sets: Vec<Option<SetId>> = sets.collect();
    let concerned = |e: &Excuse| sets.contains(&e.set) || e.set.is_none_or(|set| may_ask(r, set, records));
    // A sync says EIO also where the disk is full.
    let same = |e: &Excuse| {
        let full = (e.errno, *errno) == (Errno::ENOSPC, Errno::EIO);
        e.errno == *errno || (full && may_sync(r, records, excuses))
    };
    excuses.errors.iter().any(|e| same(e) && concerned(e) && e.from <= *at && r.begun <= e.until)
}

/// A change of an object that a loss may have taken.
struct Risk<'a> {
    change: &'a Record,
    fid: Fid,
    loss: &'a Loss,
}

struct Syncs<'a> {
    records: &'a [Record],
    excuses: &'a Excuses,
    /// With when each client knew of it for certain.
    losses: Vec<(&'a Loss, BTreeMap<u32, u64>)>,
}

/// When each client knew of the loss for certain: when it was first answered by the set as it went on. What only looks is
/// answered also to a client that has not heard of the set's new view yet.
fn knew(records: &[Record], loss: &Loss) -> BTreeMap<u32, u64> {
    let mut knew = BTreeMap::new();
    let needs_view = |op: &Op| op.changes() || op.is_sync() || matches!(op, Op::Open { .. });
    let asked = |r: &&Record| r.set == loss.set && r.begun > loss.until && needs_view(&r.op);
    for r in records.iter().filter(asked) {
        if let Some(at) = answered(r) {
            let first = knew.entry(r.client).or_insert(at);
            *first = at.min(*first);
        }
    }
    knew
}

impl<'a> Syncs<'a> {
    fn new(records: &'a [Record], losses: &'a [Loss], excuses: &'a Excuses) -> Syncs<'a> {
        let losses = losses.iter().map(|l| (l, knew(records, l))).collect();
        Syncs { records, excuses, losses }
    }
}

impl Syncs<'_> {
    /// Changes of the sync's client that it covers and that a loss may have taken. The client goes by the epoch in which it
    /// first sent a change: one that began before it knew of the loss counts as if it had been before it.
    fn at_risk<'b>(&'b self, sync: &'b Record) -> impl Iterator<Item = Risk<'b>> {
        let until = answered(sync).unwrap_or(u64::MAX);
        let (client, excuses) = (sync.client, self.excuses);
        let covered = move |change: &Record, fid: Fid, loss: &Loss| {
            may_take(excuses, change, fid, loss) && covers(sync, fid, loss.set) && loss.from <= until
        };
        let changes =
            self.records.iter().filter(move |r| r.client == client && r.op.changes() && r.begun <= until);
        // What failed on one set may have been done on others.
        let done = move |r: &Record, fid: Fid| !failed(r) || excuses.parted.contains_key(&fid);
        changes.flat_map(move |change| {
            changed(&change.op).into_iter().filter(move |fid| done(change, *fid)).flat_map(move |fid| {
                let losses = self.losses.iter().filter(move |(l, _)| covered(change, fid, l));
                let losses = losses.filter(move |(l, knew)| {
                    change.begun <= l.until || knew.get(&client).is_none_or(|knew| change.begun < *knew)
                });
                losses.map(move |(loss, _)| Risk { change, fid, loss })
            })
        })
    }

    /// Whether the client was told that this change is synced, or may be lost, before the loss or before `sync` began.
    /// `perhaps`: also by an error that a fault may explain, which then told of no loss; or that of a sync of everything which
    /// told of an earlier loss and brought this change to disk.
    fn was_told(&self, sync: &Record, risk: &Risk<'_>, perhaps: bool) -> bool {
        let Some(done) = answered(risk.change) else { return false };
        self.records.iter().filter(|r| r.client == sync.client && r.op.is_sync()).any(|r| {
            let Some((at, told)) = &r.answer else { return false };
            // One that was under way as the change was done, and long enough to hear of the loss, may have told of it.
            let heard = perhaps && *told == Err(Errno::EIO) && *at >= done && *at >= risk.loss.from;
            let after = (r.begun >= done || heard) && covers(r, risk.fid, risk.loss.set) && *at <= sync.begun;
            // Of a file on several sets each one tells for itself.
            let tells_all = perhaps || !self.excuses.parted.contains_key(&risk.fid);
            // A sync of everything tells, and leaves the files to tell as well.
            let tells = match told {
                Ok(_) => *at <= risk.loss.from || matches!(r.op, Op::Fsync { .. }),
                Err(Errno::EIO) if perhaps && *at <= risk.loss.from => true,
                Err(Errno::EIO) => {
                    std::mem::discriminant(&r.op) == std::mem::discriminant(&sync.op)
                        && tells_all
                        && (perhaps || !is_excused(r, self.excuses, self.records))
                }
                Err(_) => false,
            };
            after && tells
        })
    }

    /// Whether a loss explains that the sync failed.
    fn explains(&self, sync: &Record) -> bool {
        self.at_risk(sync).any(|risk| !self.was_told(sync, &risk, false))
    }

    /// Whether the sync says that nothing was lost of what its client changed before.
    fn vouches(&self, sync: &Record) -> bool {
        // The home of a file that has got a name on another set has nothing to lose of that: its mark is on disk.
        let at_home = |risk: &Risk<'_>| came_from(&risk.change.op) == Some(risk.fid.set);
        let surely = |risk: &Risk<'_>| {
            answered(risk.change).is_some_and(|at| at < risk.loss.from)
                && risk.loss.until < sync.begun
                && !failed(risk.change)
                && self.surely_there(risk)
                && !at_home(risk)
                && !self.was_told(sync, risk, true)
        };
        let Op::Fsync { fid } = sync.op else { return false };
        if self.excuses.moved.contains_key(&fid) {
            return false;
        }
        let risks: Vec<Risk<'_>> = self.at_risk(sync).filter(surely).collect();
        // One set says nothing of what others have lost of the file.
        let is_all = |loss: &Loss| risks.iter().any(|risk| risk.loss == loss);
        let takes = |loss: &Loss| self.excuses.may_take(fid, loss);
        let mut losses = self.losses.iter().map(|(loss, _)| *loss).filter(|loss| takes(loss));
        !risks.is_empty() && (!self.excuses.parted.contains_key(&fid) || losses.all(is_all))
    }

    /// Whether the set that lost something certainly had something of the change.
    fn surely_there(&self, risk: &Risk<'_>) -> bool {
        let (change, fid) = (risk.change, risk.fid);
        // The file may have lost its layout.
        let is_whole =
            || !self.losses.iter().any(|(l, _)| l.set == fid.set && Some(l.from) <= answered(change));
        let wrote = |parted: &crate::Parted| {
            parted.surely_wrote(risk.loss.set, change.begun, &change.op, change.payload.len() as u64)
        };
        fid.set == risk.loss.set || is_whole() && self.excuses.parted.get(&fid).is_some_and(wrote)
    }
}

/// Checks the errors of syncs. Which records say that nothing was lost.
///
/// # Errors
/// A sync failed without a reason.
pub(crate) fn judge(records: &[Record], losses: &[Loss], excuses: &Excuses) -> Result<Vec<bool>, Violation> {
    let syncs = Syncs::new(records, losses, excuses);
    // A client is told with the next sync of the set that it lost something of a file which has left that set since.
    let may_fail = !losses.is_empty() && !excuses.moved.is_empty();
    let mut vouches = vec![false; records.len()];
    for (n, r) in records.iter().enumerate().filter(|(_, r)| r.op.is_sync()) {
        match &r.answer {
            Some((_, Err(Errno::EIO)))
                if !may_fail && !is_excused(r, excuses, records) && !syncs.explains(r) =>
            {
                return Err(wrong(records, &[n], "a sync fails though nothing of this client's was lost"));
            }
            Some((_, Ok(_))) => {
                if let Some(v) = vouches.get_mut(n) {
                    *v = !losses.is_empty() && syncs.vouches(r);
                }
            }
            _ => {}
        }
    }
    Ok(vouches)
}
