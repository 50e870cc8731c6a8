//! What is acknowledged is in every in-sync brick's journal, and what was synced is on every in-sync brick's disk.

use crate::answer::Answer;
use crate::server::Waiter;
use crate::tree::{FIRST_DIRS, first_dir};
use crate::world::{World, server_of, set_id};
use ids::{Fid, Lsn, OpId};
use wire::Op;

impl World {
    pub(crate) fn check_kept(&mut self, set: usize, waiter: &Waiter) {
        if self.checks.excused.contains(&set) {
            return;
        }
        let record = &self.checks.history[waiter.request.record];
        let vouched = match &record.op {
            Op::Fsync { fid } if waiter.answer == Answer::Done(None) => self.newest_acked(set, *fid, waiter),
            _ => waiter.lsn,
        };
        let Some(lsn) = vouched else { return };
        let (id, is_sync) = (record.id, matches!(record.op, Op::Fsync { .. }));
        let bricks = self.store.views[set].in_sync.iter().map(|b| &self.servers[server_of(*b)].bricks[&set]);
        let lacks = |b: &&crate::brick::Brick| {
            if is_sync { b.disk.safe() < lsn } else { b.disk.at(lsn).is_none_or(|e| e.op != id) }
        };
        // A brick after a power cut is about to leave the view.
        let lacking: Vec<_> = bricks.filter(|b| !b.torn).filter(lacks).map(|b| b.id).collect();
        if !lacking.is_empty() {
            let op = record.op.clone();
            self.fail(|| format!("kept: set {set}: {op:?} is answered, but {lsn} is not on {lacking:?}"));
        }
    }

    /// What was synced is still there, even after the power failed everywhere.
    pub(crate) fn check_synced(&self, set: usize) -> Result<(), String> {
        let Some(primary) = self.store.views[set].primary else { return Ok(()) };
        let tree = &self.servers[server_of(primary)].bricks[&set].disk.tree;
        let dir = tree.get(first_dir(set_id(set), FIRST_DIRS)).map(|d| &d.entries);
        for (_, name, fid, tag) in self.checks.synced.iter().filter(|s| s.0 == set) {
            let named = dir.and_then(|d| d.get(name)) == Some(fid);
            let data = tree.get(*fid).and_then(|o| o.data.first().copied());
            if !named || data != Some(*tag) {
                return Err(format!(
                    "kept: set {set}: {name} was synced with {tag}, and is {data:?}, {named}"
                ));
            }
        }
        Ok(())
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
