//! What syncs may and must answer after a power cut of all bricks of a set.
//!
//! A client whose change was not synced before the cut is told by the next sync, once (`docs/design/0007`). What it is told
//! depends on its own calls only, so no order has to be sought.

use crate::{Excuses, Loss, Record, Violation, wrong};
use ids::{Fid, SetId};
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
        Op::Rename { parent, to_parent, .. } => vec![*parent, *to_parent],
        Op::Link { fid, parent, .. } => vec![*fid, *parent],
        _ => vec![],
    }
}

/// What a sync covers.
fn covers(sync: &Record, fid: Fid) -> bool {
    match sync.op {
        Op::Fsync { fid: of } => of == fid,
        Op::SyncFs => sync.set == fid.set,
        _ => false,
    }
}

pub(crate) fn is_sync(op: &Op) -> bool {
    matches!(op, Op::Fsync { .. } | Op::SyncFs)
}

fn answered(r: &Record) -> Option<u64> {
    r.answer.as_ref().map(|(at, _)| *at)
}

/// Whether a fault explains the record's error.
pub(crate) fn is_excused(r: &Record, excuses: &Excuses) -> bool {
    let Some((at, Err(errno))) = &r.answer else { return false };
    let sets = [Some(r.set)].into_iter().chain(changed(&r.op).into_iter().map(|f| Some(f.set)));
    let sets: Vec<Option<SetId>> = sets.collect();
    excuses.errors.iter().any(|e| {
        e.errno == *errno && (e.set.is_none() || sets.contains(&e.set)) && e.from <= *at && r.begun <= e.until
    })
}

struct Syncs<'a> {
    records: &'a [Record],
    losses: &'a [Loss],
}

impl Syncs<'_> {
    /// Changes of the sync's client that it covers and that a loss may have taken, as (change, loss).
    fn at_risk(&self, sync: &Record) -> impl Iterator<Item = (usize, &Loss)> {
        let until = answered(sync).unwrap_or(u64::MAX);
        let client = sync.client;
        let (set, of) = (sync.set, sync.op.clone());
        let covered = move |fid: &Fid| match of {
            Op::Fsync { fid: of } => of == *fid,
            _ => fid.set == set,
        };
        self.records
            .iter()
            .enumerate()
            .filter(move |(_, r)| r.client == client && r.op.changes() && r.begun <= until)
            .filter(|(_, r)| !matches!(r.answer, Some((_, Err(_)))))
            .flat_map(move |(i, r)| {
                let sets: Vec<SetId> = changed(&r.op).iter().filter(|f| covered(f)).map(|f| f.set).collect();
                let losses = self.losses.iter().filter(move |l| sets.contains(&l.set));
                losses.filter(move |l| r.begun <= l.until && l.from <= until).map(move |l| (i, l))
            })
    }

    /// Whether the client was told that this change is synced, or may be lost, before the loss or before `sync` began.
    fn was_told(&self, sync: &Record, change: usize, loss: &Loss) -> bool {
        let Some(change) = self.records.get(change) else { return false };
        let Some(done) = answered(change) else { return false };
        let fids = changed(&change.op);
        self.records.iter().filter(|r| r.client == sync.client && is_sync(&r.op)).any(|r| {
            let Some((at, told)) = &r.answer else { return false };
            let after = r.begun >= done && fids.iter().any(|f| covers(r, *f)) && *at <= sync.begun;
            // A sync of everything tells, and leaves the files to tell as well.
            let tells = match told {
                Ok(_) => *at <= loss.from || matches!(r.op, Op::Fsync { .. }),
                Err(Errno::EIO) => std::mem::discriminant(&r.op) == std::mem::discriminant(&sync.op),
                Err(_) => false,
            };
            after && tells
        })
    }

    /// Whether a loss explains that the sync failed.
    fn explains(&self, sync: &Record) -> bool {
        self.at_risk(sync).any(|(change, loss)| !self.was_told(sync, change, loss))
    }

    /// Whether the sync says that nothing was lost of what its client changed before.
    fn vouches(&self, sync: &Record) -> bool {
        let surely = |(change, loss): (usize, &Loss)| {
            let done = self.records.get(change).and_then(answered);
            done.is_some_and(|at| at < loss.from)
                && loss.until < sync.begun
                && !self.was_told(sync, change, loss)
        };
        matches!(sync.op, Op::Fsync { .. }) && self.at_risk(sync).any(surely)
    }
}

/// Checks the errors of syncs. Which records say that nothing was lost.
///
/// # Errors
/// A sync failed without a reason.
pub(crate) fn judge(records: &[Record], losses: &[Loss], excuses: &Excuses) -> Result<Vec<bool>, Violation> {
    let syncs = Syncs { records, losses };
    let mut vouches = vec![false; records.len()];
    for (n, r) in records.iter().enumerate().filter(|(_, r)| is_sync(&r.op)) {
        match &r.answer {
            Some((_, Err(Errno::EIO))) if !is_excused(r, excuses) && !syncs.explains(r) => {
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
