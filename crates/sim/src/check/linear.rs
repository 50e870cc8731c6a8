//! Linearizability, with the final journal as witness.
//!
//! The journal's order must fit real time and the answers of the changes; every other answer must be right at some point of
//! that order between what was over before it began and what began after it was over. Points are given as early as possible,
//! in the order in which answers came, which finds a placing if there is one (a point given later only narrows the room of
//! those that follow). This is stronger than linearizability of each object alone: it holds for the whole set at once.

use crate::answer::{Answer, Outcome, Place, work_out};
use crate::check::Record;
use crate::disk::FIRST;
use crate::tree::Tree;
use crate::world::{World, set_id};
use ids::{Epoch, Lsn, OpId, Time};
use std::collections::BTreeMap;
use wire::Errno;

/// The set's states, one for each position of the journal.
struct Witness {
    set: usize,
    states: Vec<Tree>,
    /// The position after each named operation's change, and what the change is about.
    places: BTreeMap<OpId, (usize, Option<ids::Fid>)>,
}

impl Witness {
    /// Whether the operation gives this answer, changing nothing, in the state at `point`.
    fn fits(&mut self, point: usize, record: &Record) -> bool {
        let place = Place { set: set_id(self.set), epoch: Epoch(0), lsn: Lsn(0), now: Time::default() };
        let Some(tree) = self.states.get_mut(point) else { return false };
        let (outcome, _) = work_out(tree, &record.op, record.tag, place);
        matches!(outcome, Outcome::Answer(a) if Some(&a) == record.answer.as_ref())
    }
}

impl World {
    pub(crate) fn check_linear(&self, set: usize) -> Result<(), String> {
        let mut witness = self.witness(set);
        let records: Vec<&Record> = self.checks.history.iter().filter(|r| r.set == set).collect();
        let mut events = Vec::new();
        for (i, r) in records.iter().enumerate() {
            events.push((r.invoked, 0, i));
            // What returns at the moment at which another begins is not before it.
            events.extend(r.answer.as_ref().map(|_| (r.returned, 1, i)));
        }
        events.sort_unstable();
        let uppers = self.uppers(&records, &witness);
        let mut lower = vec![0; records.len()];
        let mut floor = 0;
        for (_, is_return, i) in events {
            let record = records[i];
            if is_return == 0 {
                lower[i] = floor;
            } else {
                floor = floor.max(self.place(record, lower[i], uppers(record), &mut witness)?);
            }
        }
        Ok(())
    }

    fn witness(&self, set: usize) -> Witness {
        let mut tree = Tree::new(set_id(set));
        let mut states = vec![tree.clone()];
        let mut places = BTreeMap::new();
        for e in self.final_journal(set) {
            tree.apply(&e.stamp, e.body.change(), e.body.tag());
            states.push(tree.clone());
            places.insert(e.op, (usize::try_from(e.stamp.lsn.0 - FIRST.0).unwrap_or(0), e.about));
        }
        Witness { set, states, places }
    }

    /// For an answer: the last point before every change that was asked for only after it.
    fn uppers<'a>(
        &self,
        records: &[&'a Record],
        witness: &Witness,
    ) -> impl Fn(&'a Record) -> usize + use<'a> {
        let mut changes: Vec<(core::time::Duration, usize)> =
            records.iter().filter_map(|r| Some((r.invoked, witness.places.get(&r.id)?.0))).collect();
        changes.sort_unstable();
        let mut least = usize::MAX;
        for c in changes.iter_mut().rev() {
            least = least.min(c.1);
            c.1 = least;
        }
        let end = witness.states.len() - 1;
        move |r| {
            let after = changes.partition_point(|(invoked, _)| *invoked <= r.returned);
            changes.get(after).map_or(end, |(_, first)| first - 1)
        }
    }

    /// The point of an operation with an answer.
    fn place(&self, r: &Record, lower: usize, upper: usize, witness: &mut Witness) -> Result<usize, String> {
        let (set, op, answer) = (r.set, &r.op, r.answer.as_ref());
        if r.id.seq > 0
            && let Some((point, about)) = witness.places.get(&r.id).copied()
        {
            if answer != Some(&Answer::Done(about)) {
                return Err(format!("once: set {set}: {op:?} was done at {point}, but answered {answer:?}"));
            }
            if point <= lower {
                return Err(format!("linear: set {set}: {op:?} at {point} is not after {lower}"));
            }
            return Ok(point);
        }
        let refused = [Errno::ENOSPC.0, Errno::EIO.0].iter().any(|e| answer == Some(&Answer::Errno(*e)));
        if refused && (r.op.changes() || matches!(r.op, wire::Op::Fsync { .. })) {
            return Ok(lower);
        }
        match (lower..=upper).find(|p| witness.fits(*p, r)) {
            Some(point) => Ok(point),
            None => Err(format!(
                "linear: set {set}: {op:?} ({:?}, from {:?} to {:?}) is answered {answer:?}, true nowhere from {lower} to {upper}",
                r.id, r.invoked, r.returned
            )),
        }
    }
}
