//! Healing: how a brick that was away becomes like the primary again, while changes go on.
//!
//! The brick gets every new change from the primary, in order, and beside them the present state of the objects that it
//! missed something of (the dirty set). What it asks for is answered in the same ordered stream, so an object's state
//! stands for exactly the changes before it. A change that touches only clean objects is applied at once; one that needs an
//! object not healed yet is left out, and that object is fetched later. When nothing is dirty the brick has everything.
//!
//! This is the deciding part: what is dirty, what to ask for, which changes to apply. Like all of this crate it does no I/O.
//! Invariant: an object that is not in the dirty set equals the primary's object at this point of the stream.

mod changes;

pub use crate::dirty::Ask;
pub use changes::{StreamAction, names};

use crate::dirty::Dirty;
use crate::fids::Fids;
use crate::ranges::Ranges;
use alloc::collections::{BTreeMap, BTreeSet};
use ids::Fid;
use wire::Name;
use wire::limits::{IO_MAX, SMALL_FILE};

/// Questions under way at once.
pub const WINDOW: usize = 64;
/// Bytes of data asked for and not yet here, about.
pub const WINDOW_BYTES: u64 = 8 << 20;
/// Bytes whose checksums one question asks for.
pub const SUMS_MAX: u32 = 8 << 20;

/// With a full comparison: objects that are stale at once, about. Beyond it files are compared before more names are.
const CROWD: usize = 8 << 10;

/// The order of names in a directory, the same on every brick; 0 is before all.
pub type Order = fn(&Name) -> u64;

/// A brick's healing.
#[derive(Clone, Debug)]
pub struct DirtySet {
    order: Order,
    dirty: BTreeMap<Fid, Dirty>,
    /// Dirty objects that wait for their turn: directories before files, so that names come before what they lead to.
    queue: BTreeSet<(bool, Fid)>,
    /// What is asked about.
    asked: BTreeSet<Fid>,
    asked_bytes: u64,
    /// What is stale may well be right: data is compared before it is copied.
    compare: bool,
    /// Files with a name that may not be here yet: the loss of another one must not be their end.
    linked: BTreeSet<Fid>,
    /// With a full comparison: the objects that are known to be right. All others are stale.
    proven: Option<Fids>,
    /// With a full comparison: objects not known to be right yet whose version here no longer says what is in them.
    renamed: BTreeSet<Fid>,
    /// Objects that became clean.
    pub done: u64,
    /// Bytes of data taken over.
    pub bytes: u64,
    /// Bytes of data that were compared and found right.
    pub same: u64,
}

impl DirtySet {
    /// Nothing dirty. With `full`, every object is stale until it was compared: the caller marks those to begin with.
    pub fn new(order: Order, full: bool) -> DirtySet {
        DirtySet {
            order,
            dirty: BTreeMap::new(),
            queue: BTreeSet::new(),
            asked: BTreeSet::new(),
            asked_bytes: 0,
            compare: full,
            linked: BTreeSet::new(),
            proven: full.then(Fids::default),
            renamed: BTreeSet::new(),
            done: 0,
            bytes: 0,
            same: 0,
        }
    }

    /// An earlier healing may have brought much of it already: data is compared before it is copied.
    pub fn compare_first(&mut self) {
        self.compare = true;
    }

    /// The question under way about an object.
    pub fn asked(&self, fid: Fid) -> Option<Ask> {
        self.dirty.get(&fid)?.asked
    }

    /// Whether a question is under way.
    pub fn is_asking(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Whether nothing is dirty.
    pub fn is_done(&self) -> bool {
        self.dirty.is_empty()
    }

    /// Objects still dirty.
    pub fn left(&self) -> u64 {
        self.dirty.len() as u64
    }

    /// Changes what is known of an object, and puts it where it belongs in the queue.
    fn touch(&mut self, fid: Fid, change: impl FnOnce(&mut Dirty)) {
        let d = self.dirty.entry(fid).or_default();
        change(d);
        self.queue.remove(&(true, fid));
        self.queue.remove(&(false, fid));
        if d.asked.is_some() {
            return;
        }
        if d.is_clean() {
            self.dirty.remove(&fid);
            self.prove(fid);
            self.done += 1;
        } else {
            // Entries and data of one object follow each other, so that few are half done at a time.
            self.queue.insert((d.entries.is_empty(), fid));
        }
    }

    fn prove(&mut self, fid: Fid) {
        if let Some(proven) = &mut self.proven {
            proven.insert(fid);
            self.renamed.remove(&fid);
        }
    }

    /// Whether nothing was compared of the object yet, and it has to be.
    pub(crate) fn is_unproven(&self, fid: Fid) -> bool {
        self.proven.as_ref().is_some_and(|p| !p.contains(fid))
    }

    /// With a full comparison: the object's version here does not say any more what is in it.
    pub fn invalidate_version(&mut self, fid: Fid) {
        if self.is_unproven(fid) {
            self.renamed.insert(fid);
        }
    }

    /// With a full comparison: whether the object's version may still say what is in it.
    pub fn may_be_valid(&self, fid: Fid) -> bool {
        self.is_unproven(fid) && !self.renamed.contains(&fid)
    }

    /// An object that a full comparison met.
    pub fn mark_met(&mut self, fid: Fid, dir: bool) {
        if self.is_unproven(fid) {
            if dir { self.mark_dir(fid) } else { self.mark_file(fid, false) }
        }
    }

    /// The whole directory is stale.
    pub fn mark_dir(&mut self, fid: Fid) {
        self.touch(fid, |d| {
            d.meta = true;
            d.entries = Ranges::all();
        });
    }

    /// What a directory has at that name is stale, and its attributes are.
    fn mark_name(&mut self, dir: Fid, name: &Name) {
        if self.is_unproven(dir) && !self.dirty.contains_key(&dir) {
            return self.mark_unknown(dir);
        }
        let at = (self.order)(name);
        self.touch(dir, |d| {
            d.meta = true;
            d.entries.add(at, at.saturating_add(1));
        });
    }

    /// The object's attributes are stale.
    pub fn mark_meta(&mut self, fid: Fid) {
        if self.is_unproven(fid) && !self.dirty.contains_key(&fid) {
            return self.mark_unknown(fid);
        }
        self.touch(fid, |d| d.meta = true);
    }

    /// The whole object is stale. `fresh`: it was only just made here, empty.
    pub fn mark_file(&mut self, fid: Fid, fresh: bool) {
        self.touch(fid, |d| {
            d.meta = true;
            d.dirty_data(0, u64::MAX);
            d.fresh |= fresh;
        });
    }

    /// An object of which not even the kind is known is stale altogether.
    pub fn mark_unknown(&mut self, fid: Fid) {
        self.mark_dir(fid);
        self.touch(fid, |d| d.dirty_data(0, u64::MAX));
    }

    fn mark_range(&mut self, fid: Fid, start: u64, end: u64) {
        if self.is_unproven(fid) && !self.dirty.contains_key(&fid) {
            return self.mark_file(fid, false);
        }
        self.touch(fid, |d| {
            d.meta = true;
            d.dirty_data(start, end);
        });
    }

    fn is_dirty(&self, fid: Fid) -> bool {
        self.dirty.contains_key(&fid) || self.is_unproven(fid)
    }

    /// The next question, if one may go out now.
    pub fn ask(&mut self) -> Option<Ask> {
        if self.asked.len() >= WINDOW || self.asked_bytes >= WINDOW_BYTES {
            return None;
        }
        // A file that a full comparison has met is here: its directory has made it.
        let crowded = self.proven.is_some() && self.dirty.len() > CROWD;
        let file = if crowded { self.queue.range((true, Fid::default())..).next() } else { None };
        let next @ (rank, fid) = *file.or(self.queue.first())?;
        // Files wait until all names are right: a file that is missing here is made by its directory.
        if rank && !crowded && self.asked.iter().any(|f| self.dirty.get(f).is_some_and(Dirty::wants_names)) {
            return None;
        }
        self.queue.remove(&next);
        let compare = self.compare;
        let d = self.dirty.get_mut(&fid)?;
        let ask = if d.meta {
            Ask::Meta(fid)
        } else if let Some((at, _)) = d.entries.first() {
            Ask::Entries(fid, at.saturating_sub(1))
        } else {
            let (start, end) = d.ranges.first().unwrap_or((0, 0));
            let len = |end: u64, max: u32| u32::try_from(end - start).unwrap_or(max).min(max);
            // What differs is part of what is stale: at the beginning, or behind what is yet to be compared.
            match d.differs.first() {
                // What is small is as soon copied as compared.
                _ if !compare || d.fresh || end - start <= u64::from(SMALL_FILE) => {
                    Ask::Data(fid, start, len(end, IO_MAX))
                }
                Some((s, e)) if s <= start => Ask::Data(fid, start, len(end.min(e), IO_MAX)),
                Some((s, _)) => Ask::Sums(fid, start, len(end.min(s), SUMS_MAX)),
                None => Ask::Sums(fid, start, len(end, SUMS_MAX)),
            }
        };
        d.asked = Some(ask);
        d.stale = Ranges::default();
        self.asked.insert(fid);
        self.asked_bytes += ask.bytes();
        Some(ask)
    }

    fn answered(&mut self, fid: Fid, change: impl FnOnce(&mut Dirty)) {
        let Some(d) = self.dirty.get_mut(&fid) else { return };
        if let Some(ask) = d.asked.take() {
            self.asked.remove(&fid);
            self.asked_bytes -= ask.bytes();
        }
        self.touch(fid, change);
    }

    /// The object's attributes were taken over; a file has this size now (0 for what holds no data).
    pub fn got_meta(&mut self, fid: Fid, size: u64, dir: bool) {
        self.answered(fid, |d| {
            d.meta = false;
            d.ranges.cut(size);
            d.differs.cut(size);
            if !dir {
                d.entries = Ranges::default();
            }
        });
    }

    /// The primary has no such object, or it is none of this set: whoever names it will be compared.
    pub fn got_nothing(&mut self, fid: Fid) {
        self.answered(fid, |d| *d = Dirty::default());
    }

    /// Entries after a position were taken over, up to another one (`None`: to the end).
    pub fn got_entries(&mut self, fid: Fid, after: u64, upto: Option<u64>) {
        let mut complete = false;
        self.answered(fid, |d| {
            let start = if after == 0 { 0 } else { after.saturating_add(1) };
            d.entries.remove(start, upto.map_or(u64::MAX, |upto| upto.saturating_add(1)));
            complete = d.entries.is_empty();
        });
        if complete {
            // Its attributes may be stale still, its names are not.
            self.prove(fid);
        }
    }

    /// Data was taken over. `end`: the file ends within or before this range at the primary.
    pub fn got_data(&mut self, fid: Fid, start: u64, len: u32, end: bool) {
        self.bytes += u64::from(len);
        self.has(fid, start, u64::from(len), end);
    }

    /// There is no data in this range at the primary, and none here any more.
    pub fn got_hole(&mut self, fid: Fid, start: u64, len: u64, end: bool) {
        self.has(fid, start, len, end);
    }

    fn has(&mut self, fid: Fid, start: u64, len: u64, end: bool) {
        self.answered(fid, |d| {
            let stop = if end { u64::MAX } else { start.saturating_add(len) };
            d.ranges.remove(start, stop);
            d.differs.remove(start, stop);
        });
    }

    /// Checksums of `start..stop` were compared: these parts differ, the rest is alike. What changed since they were asked
    /// for counts as different. `end`: the file ends within or before `stop` at the primary.
    pub fn got_sums(&mut self, fid: Fid, (start, stop): (u64, u64), end: bool, differ: &[(u64, u64)]) {
        let mut same = stop.saturating_sub(start);
        self.answered(fid, |d| {
            let mut differs = core::mem::take(&mut d.stale);
            differs.cut(if end { u64::MAX } else { stop });
            for &(from, to) in differ {
                differs.add(from, to);
                same = same.saturating_sub(to - from);
            }
            d.ranges.remove(start, if end { u64::MAX } else { stop });
            for (from, to) in differs.iter().map(|(from, to)| (from.max(start), to)) {
                d.ranges.add(from, to);
                d.differs.add(from, to);
            }
        });
        self.same += same;
    }

    /// The object's data, all of it, is what it is at the primary.
    pub fn got_same(&mut self, fid: Fid, size: u64) {
        self.same += size;
        self.has(fid, 0, size, true);
    }

    /// Whether all data of the object is stale.
    pub fn wants_all(&self, fid: Fid) -> bool {
        self.dirty.get(&fid).is_some_and(|d| d.ranges.first() == Some((0, u64::MAX)))
    }

    /// Whether the object is to be compared before it is copied.
    pub fn compares(&self, fid: Fid) -> bool {
        self.compare && !self.is_fresh(fid)
    }

    /// Whether anything of the object's data is stale.
    pub fn wants_data(&self, fid: Fid) -> bool {
        self.dirty.get(&fid).is_some_and(|d| !d.ranges.is_empty())
    }

    /// Whether the object was only just made here, so that nothing of it needs comparing.
    pub fn is_fresh(&self, fid: Fid) -> bool {
        self.dirty.get(&fid).is_some_and(|d| d.fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::{Ask, DirtySet, StreamAction};
    use alloc::vec;
    use alloc::vec::Vec;
    use ids::{Epoch, Fid, Lsn, SetId};
    use wire::Change;

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    /// What the primary has of the objects is not to be had from changes, however clean they are here.
    #[test]
    fn what_was_done_in_part_is_fetched() {
        for change in [Change::Touch { fid: fid(4) }, Change::Partial { objects: vec![fid(4)] }] {
            let mut dirty_set = DirtySet::new(|_| 1, false);
            assert_eq!(dirty_set.on_streamed(&change), StreamAction::Skip);
            assert!(!dirty_set.is_done());
            assert_eq!(dirty_set.ask(), Some(Ask::Meta(fid(4))));
        }
    }

    /// How many names a file has here says nothing while some of them wait in the heal trash.
    #[test]
    fn a_transaction_that_ends_without_a_name_is_fetched_while_anything_is_stale() {
        let mut dirty_set = DirtySet::new(|_| 1, false);
        let time = ids::Time::default();
        let ended = Change::EndFile { fid: fid(8), drop: None, add: None, orphan: false, time };
        assert_eq!(dirty_set.on_streamed(&ended), StreamAction::Apply, "nothing is stale");
        dirty_set.mark(&Change::EndTransaction { fid: fid(4), keep: false });
        assert_eq!(dirty_set.on_streamed(&ended), StreamAction::Skip);
        assert_eq!([dirty_set.ask(), dirty_set.ask()], [4, 8].map(|n| Some(Ask::Meta(fid(n)))));
    }

    /// What is stale here may hold its path.
    #[test]
    fn a_placed_directory_is_fetched_while_anything_is_stale() {
        let mut dirty_set = DirtySet::new(|_| 1, false);
        let (path, name) = (vec![], wire::Name::new(b"d").expect("a name"));
        let (mode, uid, gid, time) = (0o755, 0, 0, ids::Time::default());
        let place = Change::PrepareMkdir { path, name, fid: fid(8), mode, uid, gid, time };
        assert_eq!(dirty_set.on_streamed(&place), StreamAction::Apply, "nothing is stale");
        dirty_set.mark(&Change::EndTransaction { fid: fid(4), keep: false });
        assert_eq!(dirty_set.on_streamed(&place), StreamAction::Skip);
        assert_eq!(dirty_set.ask(), Some(Ask::Meta(fid(8))));
    }

    /// It may be this set's at the primary still, with all that the change took out of it here.
    #[test]
    fn what_a_brick_gave_away_alone_is_compared_with_all_that_is_in_it() {
        let mut dirty_set = DirtySet::new(|_| 1, false);
        dirty_set.mark(&Change::GiveDir { fid: fid(4), to: SetId(2), time: ids::Time::default() });
        assert_eq!(dirty_set.ask(), Some(Ask::Meta(fid(4))));
        dirty_set.got_meta(fid(4), 0, true);
        let asks: Vec<_> = core::iter::from_fn(|| dirty_set.ask()).collect();
        assert!(asks.contains(&Ask::Entries(fid(4), 0)), "{asks:?}");
    }

    /// The order of these tests: names are numbers.
    fn order(name: &wire::Name) -> u64 {
        name.as_bytes().iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0'))
    }

    fn create(n: u64, name: &str) -> Change {
        let name = wire::Name::new(name.as_bytes()).expect("a name");
        let (fid, home, node) = (fid(n), SetId(1), wire::op::Node::File);
        let time = ids::Time::default();
        Change::Create { parent: self::fid(1), name, fid, home, node, mode: 0, uid: 0, gid: 0, time }
    }

    #[test]
    fn one_missed_name_does_not_make_a_whole_directory_stale() {
        let mut dirty_set = DirtySet::new(order, false);
        dirty_set.mark(&create(900, "5000"));
        dirty_set.mark(&create(901, "7000"));
        assert_eq!(dirty_set.ask(), Some(Ask::Meta(fid(1))));
        assert_eq!(dirty_set.on_streamed(&create(902, "4999")), StreamAction::Apply);
        assert_eq!(dirty_set.on_streamed(&create(903, "5000")), StreamAction::Skip);
        dirty_set.got_meta(fid(1), 0, true);
        assert_eq!(dirty_set.ask(), Some(Ask::Entries(fid(1), 4999)));
        // Another name becomes stale before the page does, which ends before it.
        dirty_set.got_entries(fid(1), 4999, Some(6000));
        assert_eq!(dirty_set.ask(), Some(Ask::Entries(fid(1), 6999)));
        assert_eq!(dirty_set.on_streamed(&create(904, "5000")), StreamAction::Apply);
        dirty_set.got_entries(fid(1), 6999, None);
        assert_eq!(dirty_set.ask(), Some(Ask::Meta(fid(900))), "then come the files");
    }

    /// A full comparison holds no more stale at once than a crowd, however many files a directory has.
    #[test]
    fn a_full_comparison_of_many_files_keeps_few_dirty() {
        let mut dirty_set = DirtySet::new(order, true);
        dirty_set.mark_dir(fid(1));
        let (mut next, mut most) = (0u64, 0);
        while let Some(ask) = dirty_set.ask() {
            match ask {
                Ask::Entries(dir, after) => {
                    (1..=700).for_each(|n| dirty_set.mark_met(fid(10 + next + n), false));
                    next += 700;
                    dirty_set.got_entries(dir, after, (next < 100_000).then_some(next));
                }
                Ask::Meta(fid) => dirty_set.got_meta(fid, 0, fid == self::fid(1)),
                other => unreachable!("{other:?}"),
            }
            most = most.max(dirty_set.left());
        }
        assert!(dirty_set.is_done() && dirty_set.done > 100_000, "{} are done", dirty_set.done);
        assert!(most < 10_000, "{most} stale at once");
    }
}
