//! What is acknowledged is in every in-sync brick's journal, and what was synced is on every in-sync brick's disk.

use crate::answer::Answer;
use crate::server::Waiter;
use crate::world::{World, server_of};
use ids::{Fid, Lsn, OpId};
use wire::Op;

impl World {
    pub(crate) fn check_kept(&mut self, set: usize, waiter: &Waiter) {
        let record = &self.checks.history[waiter.request.record];
        let vouched = match &record.op {
            Op::Fsync { fid } if waiter.answer == Answer::Done(None) => self.newest_acked(set, *fid, waiter),
            _ => waiter.lsn,
        };
        let Some(lsn) = vouched else { return };
        let (id, is_sync) = (record.id, matches!(record.op, Op::Fsync { .. }));
        if is_sync && let Some(e) = self.entry(set, lsn) {
            self.checks.synced.push((set, e.0, e.1));
        }
        let bricks = self.store.views[set].in_sync.iter().map(|b| &self.servers[server_of(*b)].bricks[&set]);
        let lacks = |b: &&crate::brick::Brick| {
            if is_sync { b.disk.durable() < lsn } else { b.disk.at(lsn).is_none_or(|e| e.op != id) }
        };
        // A brick after a power cut is about to leave the view.
        let lacking: Vec<_> = bricks.filter(|b| !b.torn || is_sync).filter(lacks).map(|b| b.id).collect();
        if !lacking.is_empty() {
            let op = record.op.clone();
            self.fail(|| format!("kept: set {set}: {op:?} is answered, but {lsn} is not on {lacking:?}"));
        }
    }

    fn entry(&self, set: usize, lsn: Lsn) -> Option<(Lsn, OpId)> {
        self.final_journal(set).iter().find(|e| e.stamp.lsn == lsn).map(|e| (e.stamp.lsn, e.op))
    }

    /// What was synced is still there, even after the power failed everywhere.
    pub(crate) fn check_synced(&self, set: usize) -> Result<(), String> {
        let of_set = self.checks.synced.iter().filter(|s| s.0 == set);
        match of_set.into_iter().find(|(_, lsn, id)| self.entry(set, *lsn) != Some((*lsn, *id))) {
            Some((_, lsn, id)) => Err(format!("kept: set {set}: {lsn} ({id:?}) was synced and is lost")),
            None => Ok(()),
        }
    }

    /// The newest change of `fid` that was answered before the sync was asked for.
    fn newest_acked(&self, set: usize, fid: Fid, waiter: &Waiter) -> Option<Lsn> {
        let asked = self.checks.history[waiter.request.record].invoked;
        let journal = self.final_journal(set);
        let acked = |id: OpId| {
            let mut same = self.checks.history.iter().filter(|r| r.id == id);
            same.any(|r| r.answer.is_some() && r.returned <= asked)
        };
        let newest = journal.iter().rev().find(|e| e.body.change().touched().contains(&fid) && acked(e.op));
        newest.map(|e| e.stamp.lsn)
    }
}
