//! Directories of this set that another set is to answer for (docs/design/0018): which are on their way, and what waits for them.
//!
//! The other set gets the directory with all that is in it, marked, and on disk. Then a change of this set gives it away: that is
//! the outcome, which the other set hears, or asks for. Until then the directory takes no change here, which only this primary's
//! memory knows: whoever leads next knows nothing of it, and says that the directory is this set's.
//!
//! What goes is a directory without others in it, whose entry is this set's own. Several go together, so that they are brought to
//! disk together.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Epoch, Fid, OpId, SetId};
use wire::{Change, Name, Op};

/// From this level of the pool on directories change their sets: `cluster::LEVEL`.
pub(crate) const HAND_OVER: u32 = 6;
/// Directories that are on their way at the same time, at most.
pub(crate) const MOST: usize = 64;
/// So long after its first directory a group gets no more; what nothing is heard of for so long is left behind.
pub(crate) const GATHER: Duration = Duration::from_millis(250);

/// How far a group of directories is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Stage {
    /// The other set gets them.
    Taking,
    /// Has them on disk.
    Syncing,
    /// So has this set, as what is in them must neither be lost here from now on nor come back.
    Saving,
    /// And had them by then.
    Confirming,
    /// What clients may still keep of them runs out.
    Waiting,
    /// They are given away.
    Giving,
    /// That goes to disk.
    OnDisk,
}

/// How far a directory is with what each of a group does for itself in a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Todo,
    /// Since then.
    Asked(Duration),
    Done,
}

/// A directory that is given to another set.
#[derive(Debug)]
pub(crate) struct Giving {
    pub(crate) fid: Fid,
    pub(crate) tx: OpId,
    /// The entry that leads to it.
    pub(crate) place: (Fid, Name),
    /// What the other set is asked.
    pub(crate) take: Op,
    pub(crate) step: Step,
}

/// Directories that go to the same set together.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) to: SetId,
    pub(crate) epoch: Epoch,
    pub(crate) stage: Stage,
    pub(crate) dirs: Vec<Giving>,
    pub(crate) begun: Duration,
    /// When the stage began, and when one of them was last done with it.
    pub(crate) since: Duration,
    heard: Duration,
    /// What was granted before has run out then; since then nobody is granted what shows one of them.
    pub(crate) kept_until: Duration,
}

impl Group {
    /// All have done what each does for itself in this stage.
    pub(crate) fn is_done(&self) -> bool {
        self.dirs.iter().all(|giving| giving.step == Step::Done)
    }

    /// Whether more may join it, which has so many at most.
    pub(crate) fn gathers(&self, now: Duration, size: usize) -> bool {
        self.stage == Stage::Taking && self.dirs.len() < size && now < self.begun + GATHER
    }

    pub(crate) fn enter(&mut self, stage: Stage, now: Duration) {
        (self.stage, self.since, self.heard) = (stage, now, now);
        self.dirs.iter_mut().for_each(|giving| giving.step = Step::Todo);
    }

    pub(crate) fn transactions(&self) -> Vec<OpId> {
        self.dirs.iter().map(|giving| giving.tx).collect()
    }

    /// What is done for it just now that others have to wait for, as long as one thing is done at a time.
    fn working(&self) -> usize {
        let asked = self.dirs.iter().filter(|giving| matches!(giving.step, Step::Asked(_))).count();
        match self.stage {
            Stage::Taking => asked,
            Stage::Giving => asked.max(1),
            Stage::Syncing | Stage::Saving | Stage::OnDisk => 1,
            Stage::Confirming | Stage::Waiting => 0,
        }
    }

    /// Takes out those that keep the others waiting: for so long none was done.
    fn slow_ones(&mut self, now: Duration) -> Vec<Giving> {
        let none_is_done = self.dirs.iter().all(|giving| giving.step != Step::Done);
        if none_is_done || now < self.heard + GATHER {
            return Vec::new();
        }
        self.dirs.extract_if(.., |giving| matches!(giving.step, Step::Asked(_))).collect()
    }
}

/// The directories that are being given away, and those that are here.
#[derive(Debug, Default)]
pub(crate) struct HandOver {
    /// Numbers are never given twice: an answer may come when its group is gone.
    last: u64,
    groups: BTreeMap<u64, Group>,
    /// What is done next begins then, as clients go first.
    pub(crate) next_at: Duration,
    /// The directories that this set is to answer for and of which this primary has seen that all of it is here, and the
    /// transactions.
    taken: BTreeMap<Fid, OpId>,
}

impl HandOver {
    /// A change was made.
    pub(crate) fn note(&mut self, change: &Change) {
        match change {
            Change::TakeDir { fid, tx, .. } => drop(self.taken.insert(*fid, *tx)),
            Change::EndTransaction { fid, .. } | Change::GiveDir { fid, .. } => drop(self.taken.remove(fid)),
            _ => {}
        }
    }

    /// Whether all of the directory is here, by this transaction.
    pub(crate) fn has_taken(&self, fid: Fid, tx: OpId) -> bool {
        self.taken.get(&fid) == Some(&tx)
    }

    fn all(&self) -> impl Iterator<Item = &Giving> {
        self.groups.values().flat_map(|group| &group.dirs)
    }

    /// How many are on their way.
    pub(crate) fn on_their_way(&self) -> usize {
        self.groups.values().map(|group| group.dirs.len()).sum()
    }

    /// Whether the directory is being given away: nothing is begun about what is in it.
    pub(crate) fn gives(&self, dir: Fid) -> bool {
        self.all().any(|giving| giving.fid == dir)
    }

    /// Whether one is being given away by this transaction.
    pub(crate) fn is_in(&self, tx: OpId) -> bool {
        self.all().any(|giving| giving.tx == tx)
    }

    /// Whether it may be given away now.
    pub(crate) fn may_give(&self, epoch: Epoch, fid: Fid, tx: OpId, to: SetId) -> bool {
        let gives = |g: &&Group| (g.epoch, g.to, g.stage) == (epoch, to, Stage::Giving);
        let mut all = self.groups.values().filter(gives).flat_map(|group| &group.dirs);
        all.any(|giving| (giving.fid, giving.tx) == (fid, tx) && giving.step != Step::Done)
    }

    /// Whether a change is about a directory that is being given away, or about what is in it.
    pub(crate) fn is_touched_by(&self, change: &Change) -> bool {
        if self.groups.is_empty() {
            return false;
        }
        let touched = change.touched();
        if let Change::GiveDir { fid: given, .. } = change {
            return self.all().any(|giving| giving.fid != *given && touched.contains(&giving.fid));
        }
        let mut meant = directories_meant(change).map(Fid::without_names);
        touched.into_iter().any(|fid| self.gives(fid)) || meant.any(|dir| self.gives(dir))
    }

    /// Whether the answer may show such a directory or what is in it.
    pub(crate) fn is_shown_by(&self, op: &Op) -> bool {
        let named = if self.groups.is_empty() { None } else { op.named() };
        self.all().any(|Giving { fid, place: (parent, name), .. }| match op {
            Op::Lookup { parent: dir, name: found } if dir == parent => found == name,
            Op::ReadDir { fid: dir, .. } if dir == parent => true,
            _ => named.as_ref().is_none_or(|all| all.contains(fid)),
        })
    }

    /// This brick leads no more.
    pub(crate) fn clear(&mut self) {
        *self = HandOver { last: self.last, ..HandOver::default() };
    }

    /// How much is done at the same time.
    pub(crate) fn working(&self) -> usize {
        self.groups.values().map(Group::working).sum()
    }

    /// The groups, the oldest first.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.groups.keys().copied().collect()
    }

    pub(crate) fn group(&mut self, number: u64) -> Option<&mut Group> {
        self.groups.get_mut(&number)
    }

    /// The group of a transaction.
    pub(crate) fn group_of(&self, tx: OpId) -> Option<(&Group, &Giving)> {
        let mut groups = self.groups.values();
        groups.find_map(|group| Some((group, group.dirs.iter().find(|giving| giving.tx == tx)?)))
    }

    /// How far a group is.
    pub(crate) fn stage_of(&self, number: u64) -> Option<Stage> {
        self.groups.get(&number).map(|group| group.stage)
    }

    /// One more joins the group that gathers for that set, or a new one, of so many at most.
    pub(crate) fn join(
        &mut self,
        giving: Giving,
        (to, epoch): (SetId, Epoch),
        (now, kept_until): (Duration, Duration),
        size: usize,
    ) {
        let joins = |g: &&mut Group| (g.to, g.epoch) == (to, epoch) && g.gathers(now, size);
        if let Some(group) = self.groups.values_mut().find(joins) {
            group.kept_until = group.kept_until.max(kept_until);
            return group.dirs.push(giving);
        }
        let (stage, dirs) = (Stage::Taking, [giving].into());
        self.begin(Group { to, epoch, stage, dirs, begun: now, since: now, heard: now, kept_until });
    }

    fn begin(&mut self, group: Group) {
        self.last += 1;
        self.groups.insert(self.last, group);
    }

    /// Directories that keep others waiting are a group of their own from now on.
    pub(crate) fn leave_slow_ones(&mut self, now: Duration, number: u64) {
        let Some(group) = self.groups.get_mut(&number) else { return };
        let Group { to, epoch, stage, begun, since, kept_until, .. } = *group;
        let dirs = group.slow_ones(now);
        if !dirs.is_empty() {
            self.begin(Group { to, epoch, stage, dirs, begun, since, heard: now, kept_until });
        }
    }

    /// One has done its part of the stage.
    pub(crate) fn note_done(&mut self, now: Duration, tx: OpId) {
        for group in self.groups.values_mut() {
            if let Some(giving) = group.dirs.iter_mut().find(|giving| giving.tx == tx) {
                (giving.step, group.heard) = (Step::Done, now);
            }
        }
    }

    /// One is on its way no more: what it was, and where it was to go. Its group goes with the last one.
    pub(crate) fn end(&mut self, tx: OpId) -> Option<(Giving, SetId)> {
        let ended = self.groups.values_mut().find_map(|group| {
            let at = group.dirs.iter().position(|giving| giving.tx == tx)?;
            Some((group.dirs.swap_remove(at), group.to))
        });
        self.groups.retain(|_, group| !group.dirs.is_empty());
        ended
    }
}

/// The directories whose names a change marks.
fn directories_meant(change: &Change) -> impl Iterator<Item = Fid> + '_ {
    let (intent, names) = match change {
        Change::PrepareFile { intent, .. }
        | Change::PrepareMove { intent, .. }
        | Change::PrepareExchange { intent, .. }
        | Change::PrepareSwap { intent, .. }
        | Change::PrepareLeave { intent, .. } => (Some(intent), None),
        Change::Leave { names, .. } => (None, Some(names)),
        _ => (None, None),
    };
    let meant = intent.into_iter().flat_map(|intent| intent.drop.iter().chain(&intent.add));
    meant.chain(names.into_iter().flatten()).map(|place| place.dir)
}
