//! From records to questions about names and objects.

mod answers;
mod files;
mod tree;

use crate::listing::listings;
use crate::names::{self, Key, Obj, S_IFREG};
use crate::split::{Question, Table};
use crate::syncs::is_excused;
use crate::{Excuses, Loss, Record, Violation, inode, wrong};
use ids::{Fid, SetId};
use wire::op::rename_flags;
use wire::{Errno, Op};

/// Errors that only faults explain.
const FAULTS: [Errno; 12] = [
    Errno::EIO,
    Errno::EROFS,
    Errno::ENOSPC,
    Errno::EINTR,
    Errno::EAGAIN,
    Errno::EBUSY,
    Errno::ENOMEM,
    Errno::ETIMEDOUT,
    Errno::ENOTCONN,
    Errno::ESHUTDOWN,
    Errno::EACCES,
    Errno::EDQUOT,
];

pub(crate) struct Emitter<'a> {
    pub(crate) records: &'a [Record],
    losses: &'a [Loss],
    pub(crate) excuses: &'a Excuses,
    pub(crate) table: Table,
    pub(crate) names: Vec<Question<names::Ask, names::Told>>,
    pub(crate) inodes: Vec<Question<(Obj, inode::Ask), inode::Told>>,
    pub(crate) excused: usize,
    pub(crate) unanswered: usize,
}

/// What a record says of its outcome.
enum Outcome {
    Done,
    Failed(Errno),
    /// Done or not, perhaps in part.
    Unknown {
        torn: bool,
    },
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(
        records: &'a [Record],
        losses: &'a [Loss],
        excuses: &'a Excuses,
        table: Table,
    ) -> Emitter<'a> {
        let (names, inodes) = (Vec::new(), Vec::new());
        Emitter { records, losses, excuses, table, names, inodes, excused: 0, unanswered: 0 }
    }

    fn wrong<T>(&self, n: usize, what: &str) -> Result<T, Violation> {
        Err(wrong(self.records, &[n], what))
    }

    fn outcome(&mut self, n: usize) -> Result<Outcome, Violation> {
        let r = &self.records[n];
        Ok(match &r.answer {
            None => {
                self.unanswered += 1;
                Outcome::Unknown { torn: self.may_be_torn(n) }
            }
            Some((_, Ok(_))) => Outcome::Done,
            Some((_, Err(_))) if is_excused(r, self.excuses, self.records) => {
                self.excused += 1;
                Outcome::Unknown { torn: true }
            }
            // What a loss explains was looked at before.
            Some((_, Err(Errno::EIO))) if r.op.is_sync() => Outcome::Unknown { torn: false },
            Some((_, Err(e))) if FAULTS.contains(e) => return self.wrong(n, "no fault explains this error"),
            Some((_, Err(e))) => Outcome::Failed(*e),
        })
    }

    /// Whether a disk failed since the call began, so that a change may have been done in part. Nobody was told the error.
    fn may_be_torn(&self, n: usize) -> bool {
        let r = &self.records[n];
        let disk = [Errno::EIO, Errno::ENOSPC];
        let parts = || r.op.object().into_iter().flat_map(|fid| self.excuses.sets_of(fid));
        let of = |e: &crate::Excuse| e.set.is_none_or(|set| set == r.set || parts().any(|part| part == set));
        self.excuses.errors.iter().any(|e| disk.contains(&e.errno) && of(e) && r.begun <= e.until)
    }

    /// Takes one record apart.
    pub(crate) fn record(&mut self, n: usize, vouches: bool) -> Result<(), Violation> {
        let outcome = self.outcome(n)?;
        let r = &self.records[n];
        // What failed was done or not; that it was done once more shows in few things.
        if r.answer.is_none() || !matches!(outcome, Outcome::Unknown { .. }) || shows_twice(&r.op) {
            for _ in 0..self.times_repeated(n) {
                self.answer(n, Outcome::Unknown { torn: true }, false)?;
            }
        }
        self.cut_short(n);
        self.answer(n, outcome, vouches)
    }

    /// How many power cuts may have taken what is known of the call, and left what it did: after each it is sent and done once
    /// more, also by a client that dies before it is answered.
    fn times_repeated(&self, n: usize) -> usize {
        let r = &self.records[n];
        let died = || self.excuses.dead.iter().find(|(client, _)| *client == r.client).map(|(_, at)| *at);
        // Of a call that waits still only what shows if it was done twice: the search would take too long with all.
        let waits = || shows_twice(&r.op).then_some(u64::MAX);
        let Some(at) = r.answer.as_ref().map(|(at, _)| *at).or_else(died).or_else(waits) else { return 0 };
        if !r.op.changes() {
            return 0;
        }
        let changed = crate::syncs::changed(&r.op).into_iter();
        let sets: Vec<_> = changed.flat_map(|fid| self.excuses.sets_of(fid)).collect();
        let losses = self.losses.iter().map(|l| (l.set, l.from, l.until));
        let unrecorded = self.excuses.unrecorded.iter().map(|u| (u.set, u.from, u.until));
        let spanned = |(set, from, until): &_| sets.contains(set) && r.begun <= *until && *from <= at;
        losses.chain(unrecorded).filter(spanned).count()
    }

    /// The change of data may have been cut short, and is done when it is sent again: before that the file had its time, and a
    /// part of the data.
    fn cut_short(&mut self, n: usize) {
        let r = &self.records[n];
        let (Op::Write { fid, .. } | Op::Fallocate { fid, .. }) = r.op else { return };
        let ended = r.answer.as_ref().map_or(u64::MAX, |(at, _)| *at);
        if self
            .excuses
            .cut_short
            .iter()
            .any(|c| self.excuses.lies_on(fid, c.set) && (r.begun..=ended).contains(&c.at))
        {
            let obj = self.table.object(fid);
            self.touched(n, obj, Some(inode::Told::Done));
            self.written_in_part(n, obj);
        }
    }

    /// An operation moved the times of an object, before all else that it does.
    pub(crate) fn touched(&mut self, n: usize, obj: Obj, told: Option<inode::Told>) {
        let touch = inode::NewAttr { touch: true, ..inode::NewAttr::default() };
        self.ask_of(n, obj, inode::Ask::SetAttr(touch), told, None);
    }

    fn answer(&mut self, n: usize, outcome: Outcome, vouches: bool) -> Result<(), Violation> {
        match &self.records[n].op {
            Op::Lookup { .. }
            | Op::Create { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::MoveIn { .. }
            | Op::LinkIn { .. }
            | Op::ReadDir { .. } => self.tree(n, outcome),
            Op::Open { .. } | Op::Release { .. } | Op::GetAttr { .. } | Op::ReadLink { .. } => {
                self.object(n, outcome)
            }
            Op::GetAttrs { .. } => self.objects(n, &outcome),
            Op::Fsync { .. } | Op::SyncFs => {
                self.sync(n, outcome, vouches);
                Ok(())
            }
            Op::SetAttr { .. }
            | Op::Read { .. }
            | Op::Write { .. }
            | Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Fallocate { .. }
            | Op::Lseek { .. }
            | Op::CopyRange { .. } => self.file(n, outcome),
            // Of locks, room and pieces nothing is checked, and what sets ask each other is no part of a history.
            wire::between_sets!()
            | Op::StatFs
            | Op::Show { .. }
            | Op::HoldLocks { .. }
            | Op::DropLocks { .. }
            | Op::Stripes { .. }
            | Op::ReadPiece { .. }
            | Op::PieceAttr { .. }
            | Op::WritePiece { .. }
            | Op::AllocatePiece { .. }
            | Op::Extend { .. }
            | Op::Append { .. } => Ok(()),
        }
    }

    /// A question about names. `told`: `None` if nobody knows. Its position.
    fn ask(&mut self, n: usize, ask: names::Ask, told: Option<names::Told>, after: Option<usize>) -> usize {
        let r = &self.records[n];
        let answer = told.zip(r.answer.as_ref().map(|(at, _)| *at));
        self.names.push(Question { record: n, ask, begun: r.begun, answer, after });
        self.names.len() - 1
    }

    /// A question about one object.
    pub(crate) fn ask_of(
        &mut self,
        n: usize,
        obj: Obj,
        ask: inode::Ask,
        told: Option<inode::Told>,
        after: Option<usize>,
    ) -> usize {
        let r = &self.records[n];
        let answer = told.zip(r.answer.as_ref().map(|(at, _)| *at));
        self.inodes.push(Question { record: n, ask: (obj, ask), begun: r.begun, answer, after });
        self.inodes.len() - 1
    }

    /// The object was there. It matters only if it is gone some time.
    fn was_there(&mut self, n: usize, obj: Obj) {
        if self.table.gone.contains(&obj) {
            self.ask(n, names::Ask::Touch(obj), Some(names::Told::Done), None);
        }
    }

    /// The object was gone, says the answer.
    fn was_gone(&mut self, n: usize, obj: Obj, errno: Errno) {
        self.ask(n, names::Ask::Touch(obj), Some(names::Told::Not(errno)), None);
    }

    /// Syncs of sets that lose nothing change nothing that anybody could see.
    fn sync(&mut self, n: usize, outcome: Outcome, vouches: bool) {
        let r = &self.records[n];
        let (fid, set) = match r.op {
            Op::Fsync { fid } => (Some(fid), fid.set),
            _ => (None, r.set),
        };
        let obj = fid.map(|fid| self.table.object(fid));
        match (outcome, obj) {
            (Outcome::Failed(e), Some(obj)) => self.was_gone(n, obj, e),
            (Outcome::Done, Some(obj)) => self.was_there(n, obj),
            _ => {}
        }
        let loses = |set: SetId| self.table.losing.contains(&set);
        let concerned = loses(set) || fid.is_some_and(|fid| self.excuses.sets_of(fid).any(loses));
        if !concerned || !matches!(r.answer, Some((_, Ok(_)))) {
            return;
        }
        let ask = obj.map_or(names::Ask::SyncAll(set), |obj| names::Ask::Sync { obj, vouches });
        self.ask(n, ask, Some(names::Told::Done), None);
        let synced: Vec<Obj> = match obj {
            Some(obj) => vec![obj],
            None => (0..self.table.objects.len())
                .filter(|o| self.table.objects[*o].set == set)
                .filter(|o| self.table.objects[*o].fid.is_some_and(|f| self.lies_on_its_own_set(f)))
                .collect(),
        };
        for obj in synced {
            self.ask_of(n, obj, inode::Ask::Sync { vouches }, Some(inode::Told::Done), None);
        }
    }

    /// Whether a sync of the set that made a file is one of the file for certain.
    fn lies_on_its_own_set(&self, fid: Fid) -> bool {
        !self.excuses.parted.contains_key(&fid) && !self.excuses.moved.contains_key(&fid)
    }

    /// What happened beside the records.
    pub(crate) fn events(&mut self) {
        let record = self.records.len();
        for loss in self.losses {
            let answer = Some((names::Told::Done, loss.until));
            let ask = names::Ask::Lose(loss.set);
            self.names.push(Question { record, ask, begun: loss.from, answer, after: None });
        }
        for (client, at) in &self.excuses.dead {
            if let Some(bit) = self.table.clients.get(client) {
                let ask = names::Ask::End(*bit);
                self.names.push(Question { record, ask, begun: *at, answer: None, after: None });
            }
        }
    }

    /// Listings of several pages: names that do not change meanwhile are listed, or not, as they are.
    pub(crate) fn listings(&mut self) -> Result<(), Violation> {
        for listing in listings(self.records) {
            listing.check(self.records)?;
            let dir = self.table.object(listing.dir);
            let lossy =
                |l: &Loss| l.set == listing.dir.set && l.from <= listing.ended && listing.begun <= l.until;
            if self.losses.iter().any(lossy) {
                continue;
            }
            for name in 0..self.table.names.len() {
                let text = self.table.names[name].clone();
                if !listing.is_steady(self.records, &text) || listing.entries.contains_key(&text) {
                    continue;
                }
                let ask = names::Ask::Look(Key { dir, name });
                let answer = Some((names::Told::Not(Errno::ENOENT), listing.ended));
                let record = listing.records.first().copied().unwrap_or_default();
                self.names.push(Question { record, ask, begun: listing.begun, answer, after: None });
            }
        }
        Ok(())
    }

    fn is_file(&self, obj: Obj) -> bool {
        self.table.objects[obj].kind == Some(S_IFREG)
    }
}

/// Whether it shows in what comes of it that a call was done once more.
fn shows_twice(op: &Op) -> bool {
    match op {
        Op::Write { append, .. } => *append,
        Op::Rename { flags, .. } => flags & rename_flags::EXCHANGE != 0,
        _ => false,
    }
}
