//! A brick in memory: entries, empty files, a journal, and nothing else. What the scripts do not need answers `EIO`.

use ids::{Epoch, Fid, Lsn, OpId, SetId, Time};
use namespace::{Entry as Found, Lineage, TreeState};
use replica::LogEntry;
use replica::heal::Order;
use replica::healing::{Arriving, HealTarget, Made, Sum};
use set_core::{DirLocation, DirPage, Done, Entries, JournalPlace, LocalBrick, Read};
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::Blob;
use wire::op::{Intent, Leaving, Node, Taken};
use wire::peer::{Object, Stamp};
use wire::reply::{DirEntry, Room};
use wire::stripes::{PIECE, PieceOf, STRIPES, Stripes};
use wire::{Attr, Change, Errno, Name};

pub(crate) const SET: SetId = SetId(1);
pub(crate) const ROOT: Fid = Fid { set: SET, epoch: Epoch(0), lsn: Lsn(0) };

#[derive(Default)]
pub(crate) struct Memory {
    /// What the index has lost.
    pub(crate) lost: Option<Fid>,
    pub(crate) names: BTreeMap<(Fid, Name), (Fid, SetId)>,
    pub(crate) journal: Vec<LogEntry<Change>>,
    pub(crate) stale_objects: Option<Vec<Fid>>,
    /// How often it was told that what was not synced may be lost.
    pub(crate) unsynced: u32,
    /// How often it was to write that again.
    pub(crate) written_again: u32,
    /// Syncs fail until it was begun so often to write again.
    pub(crate) syncs_fail: u32,
    /// How many slices that takes, and how many are left of it.
    pub(crate) much_unsynced: u32,
    pub(crate) left_unsynced: u32,
    /// Directories whose entries these sets have.
    pub(crate) hangs: BTreeMap<Fid, SetId>,
    /// Those of them that lie in lost+found.
    pub(crate) without_place: BTreeSet<Fid>,
    /// Folders of which names came to their places, and more wait.
    pub(crate) unsettled: BTreeSet<Fid>,
    /// Directories whose entries another set had.
    pub(crate) came_home: BTreeSet<Fid>,
    /// Whose files and directories are that are not root's.
    pub(crate) owners: BTreeMap<Fid, u32>,
    /// Directories like /tmp.
    pub(crate) sticky: BTreeSet<Fid>,
    /// Files of any kind; all else is a directory.
    pub(crate) files: BTreeSet<Fid>,
    pub(crate) orphans: BTreeSet<Fid>,
    /// Something of it may be lost or half there.
    pub(crate) uncertain: bool,
    pub(crate) durable: Lsn,
    /// Up to where the tree is as the journal says, if that is not its end.
    pub(crate) consistent_to: Option<Lsn>,
    /// Records that were dropped at the journal's beginning.
    pub(crate) dropped: u64,
    /// How changes fail now, and whether they are then done in part.
    pub(crate) fails: Option<(Errno, bool)>,
    /// There is no room.
    pub(crate) full: bool,
    /// What was done in part and recorded, and what was given up.
    pub(crate) parts: (u32, u32),
    /// How many objects lie in the heal trash and are not forgotten.
    pub(crate) trash: usize,
    /// How long a page was that it was asked for.
    pub(crate) longest_page: usize,
    /// How attributes cannot be written now.
    pub(crate) flush_fails: Option<Errno>,
    /// The names of directories have to be read.
    pub(crate) unlisted: bool,
    /// What is in the one directory that a script lists.
    pub(crate) listed: Vec<DirEntry>,
    /// What its names lead to has to be read from a disk.
    pub(crate) cold: bool,
    /// What is in files, where a script asks for it.
    pub(crate) data: BTreeMap<Fid, Vec<u8>>,
    /// What is kept beside striped files and pieces.
    pub(crate) beside: BTreeMap<(Fid, &'static str), Vec<u8>>,
    /// Files whose names wait for the end of a transaction.
    pub(crate) marked: BTreeMap<Fid, Intent>,
    /// Directories that another set removes.
    pub(crate) removed: BTreeSet<Fid>,
    /// Directories that are gone.
    pub(crate) gone: BTreeSet<Fid>,
    /// What the names of those are to lead to that are exchanged with another set.
    pub(crate) successors: BTreeMap<Fid, wire::op::Successor>,
    /// Those of them that are to leave.
    pub(crate) leaving: BTreeSet<Fid>,
    /// Those that have left, and where they went.
    pub(crate) left: BTreeMap<Fid, Leaving>,
    /// Those of them of which no journal tells.
    pub(crate) unrecorded: Vec<Fid>,
    /// Directories that this set is to answer for, and does not yet.
    pub(crate) taken: BTreeMap<Fid, Taken>,
    /// Directories that other sets answer for by now.
    pub(crate) given: BTreeMap<Fid, SetId>,
}

/// Work as the scripts see it.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Work {
    SyncAll,
    Walk,
    Page,
    Sync(Vec<Fid>),
    End,
    Orphans,
    Folders,
    Trash,
    List,
    Sums,
}

/// What a directory of this set is like.
pub(crate) fn dir(fid: Fid) -> Attr {
    let time = Time::default();
    Attr {
        fid,
        home: SET,
        mode: 0o040_755,
        uid: 0,
        gid: 0,
        nlink: 2,
        rdev: 0,
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

impl TreeState for Memory {
    fn attr(&mut self, fid: Fid) -> Result<Attr, Errno> {
        if self.taken.contains_key(&fid) {
            return Err(Errno::EAGAIN);
        }
        if self.given.contains_key(&fid) {
            return Err(Errno::ESTALE);
        }
        let named = self.names.values().any(|(f, home)| *f == fid && *home == SET);
        let uid = self.owners.get(&fid).copied().unwrap_or_default();
        let known = fid == ROOT
            || named
            || self.hangs.contains_key(&fid)
            || fid.is_names() && self.names.keys().any(|(dir, _)| *dir == fid);
        if self.orphans.contains(&fid) || known && self.files.contains(&fid) {
            let links = self.names.values().filter(|(f, home)| (*f, *home) == (fid, SET)).count() as u32;
            let nlink = if self.orphans.contains(&fid) { 0 } else { links };
            let size = self.data.get(&fid).map_or(0, |data| data.len() as u64);
            return Ok(Attr { mode: 0o100_644, nlink, size, uid, ..dir(fid) });
        }
        let is_dir = |(parent, made): (&Fid, &Fid)| *parent == fid && !self.files.contains(made);
        let within = self.names.iter().filter(|((parent, _), (made, _))| is_dir((parent, made))).count();
        let mode = if self.sticky.contains(&fid) { 0o041_777 } else { dir(fid).mode };
        if known { Ok(Attr { nlink: 2 + within as u32, uid, mode, ..dir(fid) }) } else { Err(Errno::ESTALE) }
    }
    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Found>, Errno> {
        let is_own = parent.set == SET || parent.is_names() || self.taken.contains_key(&parent);
        if !is_own || self.given.contains_key(&parent) || self.gone.contains(&parent) {
            return Err(Errno::ESTALE);
        }
        let found = self.names.get(&(parent, name.clone()));
        let kind = |fid| if self.files.contains(fid) { 0o100_000 } else { 0o040_000 };
        Ok(found.map(|(fid, home)| Found { fid: *fid, home: *home, kind: kind(fid) }))
    }
    fn is_empty(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(!self.names.keys().any(|(parent, _)| *parent == dir))
    }
    fn is_pending(&mut self, fid: Fid) -> Result<bool, Errno> {
        if self.gone.contains(&fid) {
            return Err(Errno::ESTALE);
        }
        let is_marked = self.marked.contains_key(&fid) || self.removed.contains(&fid);
        Ok(is_marked || self.taken.contains_key(&fid))
    }
    fn intent(&mut self, fid: Fid) -> Result<Option<Intent>, Errno> {
        let far = |i: &Intent| i.drop.as_ref().is_some_and(|drop| drop.dir.set != SET);
        let moves =
            |i: &&Intent| !self.came_home.contains(&fid) && (!self.hangs.contains_key(&fid) || far(i));
        Ok(self.marked.get(&fid).filter(moves).cloned())
    }
    fn successor(&mut self, fid: Fid) -> Result<Option<wire::op::Successor>, Errno> {
        let moves = self.intent(fid)?.is_some();
        Ok(self.successors.get(&fid).filter(|_| moves).cloned())
    }
    fn names_of_copy(&mut self, fid: Fid) -> Result<Vec<wire::op::EntryName>, Errno> {
        if let Some(leaving) = self.left.get(&fid) {
            return Ok(leaving.names.clone());
        }
        let intent = self.marked.get(&fid).filter(|_| self.leaving.contains(&fid));
        Ok(intent.and_then(|intent| intent.drop.clone()).into_iter().collect())
    }

    fn stripes(&mut self, fid: Fid) -> Result<Option<Stripes>, Errno> {
        self.beside.get(&(fid, STRIPES)).map(|v| Stripes::decode(v).map_err(|_| Errno::EIO)).transpose()
    }

    fn piece_of(&mut self, fid: Fid) -> Result<Option<PieceOf>, Errno> {
        self.beside.get(&(fid, PIECE)).map(|v| PieceOf::decode(v).map_err(|_| Errno::EIO)).transpose()
    }

    fn taken(&mut self, fid: Fid) -> Result<Option<Taken>, Errno> {
        Ok(self.taken.get(&fid).cloned())
    }

    fn leaving(&mut self, fid: Fid) -> Result<Option<Leaving>, Errno> {
        Ok(self.left.get(&fid).cloned())
    }

    fn has_default_acl(&mut self, _: Fid) -> Result<bool, Errno> {
        Ok(false)
    }
    fn xattr(&mut self, _: Fid, _: &Name) -> Result<Option<Vec<u8>>, Errno> {
        Ok(None)
    }
    fn lineage(&mut self, dir: Fid) -> Result<Lineage, Errno> {
        let (mut above, mut at) = (Lineage::default(), dir);
        while at != ROOT {
            above.own.push(at);
            if let Some(set) = self.hangs.get(&at) {
                above.other = Some((at, *set));
                break;
            }
            let Some(((parent, _), _)) = self.names.iter().find(|(_, (fid, _))| *fid == at) else {
                return Err(Errno::ESTALE);
            };
            at = *parent;
        }
        Ok(above)
    }
}

impl HealTarget for Memory {
    const ORDER: Order = |_| 1;

    fn set(&self) -> SetId {
        SET
    }
    fn own_root(&self) -> Option<Fid> {
        Some(ROOT)
    }
    fn is_arbiter(&self) -> bool {
        false
    }
    fn stale_objects(&self) -> Option<Vec<Fid>> {
        self.stale_objects.clone()
    }
    fn incomplete(&self) -> Option<Fid> {
        None
    }
    fn newest(&self) -> Lsn {
        self.last().lsn
    }
    fn consistent_to(&self) -> Lsn {
        self.consistent_to.unwrap_or(self.newest())
    }
    fn is_uncertain(&self) -> bool {
        self.uncertain
    }
    fn stamp_at(&self, lsn: Lsn) -> Result<Stamp, Errno> {
        let found = self.journal.iter().find(|e| e.stamp.lsn == lsn);
        Ok(found.map_or(Stamp { epoch: Epoch(0), lsn: Lsn(0) }, |e| e.stamp.clone()))
    }
    fn changes_after(&mut self, _: Lsn, _: &mut dyn FnMut(&Change)) -> Result<(), Errno> {
        Ok(())
    }
    fn begin_heal(&mut self, _: Lsn, _: &[Fid], _: Lsn) -> Result<(), Errno> {
        Ok(())
    }
    fn cut_journal(&mut self, _: &Stamp) -> Result<(), Errno> {
        Ok(())
    }
    fn reset_journal(&mut self, _: &Stamp) -> Result<(), Errno> {
        Ok(())
    }
    fn note(&mut self, a: Arriving<'_>) -> Result<(), Errno> {
        let (stamp, body) = (a.stamp.clone(), a.change.clone());
        self.journal.push(LogEntry { stamp, op: a.op, result_fid: a.result_fid, body });
        Ok(())
    }
    fn apply(&mut self, a: Arriving<'_>) -> Result<(), Errno> {
        self.carry_out(a.stamp, a.op, a.result_fid, a.change, a.payload)
    }
    fn version(&mut self, _: Fid) -> Option<Stamp> {
        None
    }
    fn is_known(&mut self, _: Fid) -> Result<bool, Errno> {
        Ok(false)
    }
    fn take_object(&mut self, fid: Fid, _: &Object, _: Option<&[u8]>, _: bool) -> Result<bool, Errno> {
        Ok(self.lost != Some(fid))
    }
    fn complete(&mut self, _: Fid, _: &Stamp) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn take_nothing(&mut self, fid: Fid) -> Result<bool, Errno> {
        Ok(self.files.contains(&fid))
    }
    fn take_entries(
        &mut self,
        _: Fid,
        _: u64,
        _: Option<u64>,
        _: &[DirEntry],
        _: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno> {
        Ok(Vec::new())
    }
    fn take_data(&mut self, _: Fid, _: u64, _: &[u8]) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
    fn take_hole(&mut self, _: Fid, _: u64, _: u64) -> Result<(), Errno> {
        Err(Errno::EIO)
    }
}

impl LocalBrick for Memory {
    type Work = Work;
    const HOLE: u64 = 1;

    fn run(_: Work) -> Result<Done, Errno> {
        Err(Errno::EIO)
    }
    fn sum(_: &[u8]) -> Sum {
        (0, 0)
    }
    fn root(&self) -> (Fid, SetId) {
        (ROOT, SET)
    }
    fn last(&self) -> Stamp {
        self.journal.last().map_or(Stamp { epoch: Epoch(0), lsn: Lsn(0) }, |e| e.stamp.clone())
    }
    fn durable(&self) -> Lsn {
        self.durable
    }
    fn journal_start(&self) -> Lsn {
        Lsn(self.dropped + 1)
    }
    fn some_records(&self, from: Lsn, _: &mut JournalPlace) -> Result<Vec<LogEntry<Change>>, Errno> {
        Ok(self.journal.iter().filter(|e| e.stamp.lsn >= from).take(512).cloned().collect())
    }
    fn room(&mut self) -> Result<Room, Errno> {
        let available = if self.full { 0 } else { 1 << 39 };
        Ok(Room { total: 1 << 40, free: 1 << 39, available, files: 1 << 20, files_free: 1 << 19 })
    }
    fn lookup(&mut self, parent: Fid, name: &Name) -> Result<Option<Found>, Errno> {
        self.entry(parent, name)
    }
    fn attr_of_any(&mut self, fid: Fid) -> Result<Attr, Errno> {
        if let Some(home) = self.given.get(&fid) {
            return Ok(Attr { home: *home, ..dir(fid) });
        }
        match self.names.values().find(|(f, home)| *f == fid && *home != SET && !self.files.contains(f)) {
            Some((_, home)) => Ok(Attr { home: *home, ..dir(fid) }),
            None => self.attr(fid),
        }
    }
    fn readlink(&mut self, _: Fid) -> Result<Vec<u8>, Errno> {
        Err(Errno::EIO)
    }
    fn is_loaded(&mut self, _: Fid) -> bool {
        !self.cold
    }
    fn readdir(&mut self, _: Fid, _: u64, _: bool, bytes: usize) -> Result<DirPage, Errno> {
        self.longest_page = self.longest_page.max(bytes);
        Ok(DirPage { entries: self.listed.clone(), end: true, marked: false })
    }
    fn readdir_known(&mut self, d: Fid, c: u64, plus: bool, n: usize) -> Result<Option<DirPage>, Errno> {
        if self.cold { Ok(None) } else { self.readdir(d, c, plus, n).map(Some) }
    }
    fn listxattr(&mut self, fid: Fid) -> Result<Vec<Name>, Errno> {
        self.data.get(&fid).map(|_| Vec::new()).ok_or(Errno::EIO)
    }
    fn lseek(&mut self, _: Fid, _: u64, _: u32) -> Result<u64, Errno> {
        Err(Errno::EIO)
    }
    fn read(&mut self, fid: Fid, offset: u64, len: u32) -> Result<Read<Work>, Errno> {
        let data = self.data.get(&fid).ok_or(Errno::EIO)?;
        Ok(Read::Data(data.iter().skip(offset as usize).take(len as usize).copied().collect()))
    }
    fn location_of(&mut self, fid: Fid) -> Result<DirLocation, Errno> {
        if let (Some(parent_home), Some(Intent { add: Some(add), .. })) =
            (self.hangs.get(&fid), self.marked.get(&fid))
        {
            let (home, parent_home) = (SET, *parent_home);
            return Ok(DirLocation { home, parent: add.dir, parent_home, name: add.name.clone() });
        }
        let found = self.names.iter().find(|(_, (f, _))| *f == fid).ok_or(Errno::ESTALE)?;
        let ((parent, name), (_, home)) = found;
        Ok(DirLocation { home: *home, parent: *parent, parent_home: SET, name: name.clone() })
    }
    fn marked_at(&mut self, _: &[wire::op::Ancestor], _: &Name) -> Result<Option<Fid>, Errno> {
        Ok(None)
    }
    fn is_orphan(&mut self, fid: Fid) -> bool {
        self.orphans.contains(&fid)
    }
    fn begin_orphans(&mut self) -> Result<Option<Work>, Errno> {
        Ok((!self.orphans.is_empty()).then_some(Work::Orphans))
    }
    fn begin_folders(&mut self) -> Result<Option<Work>, Errno> {
        Ok((!self.without_place.is_empty()).then_some(Work::Folders))
    }
    fn has_entry_elsewhere(&mut self, dir: Fid) -> bool {
        self.hangs.contains_key(&dir)
    }
    fn settle_waiting(&mut self) {}
    fn take_unsettled(&mut self, folder: Fid) -> bool {
        self.unsettled.remove(&folder)
    }
    fn is_at_path(&mut self, of: Fid, _: &[wire::op::Ancestor], _: &Name) -> Result<bool, Errno> {
        Ok(!self.without_place.contains(&of))
    }
    fn marked_files(&self) -> Vec<Fid> {
        self.unrecorded.clone()
    }
    fn validate(&mut self, _: &Change) -> Result<(), Errno> {
        Ok(())
    }
    fn carry_out(
        &mut self,
        stamp: &Stamp,
        op: OpId,
        result_fid: Option<Fid>,
        change: &Change,
        _: &[u8],
    ) -> Result<(), Errno> {
        if let Some((errno, _)) = self.fails {
            return Err(errno);
        }
        match change {
            Change::Create { parent, name, fid, home, node, .. } => {
                self.names.insert((*parent, name.clone()), (*fid, *home));
                if *node != Node::Dir {
                    self.files.insert(*fid);
                }
            }
            Change::Unlink { parent, name, fid, orphan, .. } => {
                self.names.remove(&(*parent, name.clone()));
                if *orphan {
                    self.orphans.insert(*fid);
                }
            }
            Change::Link { fid, parent, name, .. } => {
                self.names.insert((*parent, name.clone()), (*fid, SET));
            }
            Change::DropOrphan { fid } => _ = self.orphans.remove(fid),
            Change::Rmdir { parent, name, .. } => {
                self.names.remove(&(*parent, name.clone()));
            }
            Change::Rename { parent, name, to_parent, to_name, .. } => {
                if let Some(moved) = self.names.remove(&(*parent, name.clone())) {
                    self.names.insert((*to_parent, to_name.clone()), moved);
                }
            }
            Change::Exchange { parent, name, to_parent, to_name, .. } => {
                let [a, b] = [(*parent, name.clone()), (*to_parent, to_name.clone())];
                if let (Some(one), Some(two)) = (self.names.remove(&a), self.names.remove(&b)) {
                    self.names.extend([(a, two), (b, one)]);
                }
            }
            Change::Enter { parent, name, fid, home, kind, replaced, .. } => {
                self.orphans.extend(replaced.iter().filter(|out| out.orphan).map(|out| out.fid));
                self.names.insert((*parent, name.clone()), (*fid, *home));
                if *home == SET {
                    self.hangs.remove(fid);
                    self.came_home.insert(*fid);
                }
                if *kind != 0o040_000 {
                    self.files.insert(*fid);
                }
            }
            Change::MoveOut { parent, name, fid, to, .. } => {
                self.names.remove(&(*parent, name.clone()));
                self.hangs.insert(*fid, *to);
            }
            Change::MoveOn { fid, to, .. } => {
                self.hangs.insert(*fid, *to);
                self.marked.entry(*fid).and_modify(|intent| intent.drop = None);
            }
            Change::PrepareRmdir { fid } => _ = self.removed.insert(*fid),
            Change::EndTransaction { fid, keep: false } => {
                self.removed.remove(fid);
                self.names.retain(|_, (found, _)| found != fid);
            }
            Change::EndTransaction { fid, keep: true } => {
                self.removed.remove(fid);
                self.marked.remove(fid);
                self.taken.remove(fid);
            }
            Change::TakeDir { fid, tx, from, .. } => {
                self.taken.insert(*fid, Taken { tx: *tx, from: *from });
                self.hangs.insert(*fid, *from);
            }
            Change::GiveDir { fid, to, .. } => {
                self.taken.remove(fid);
                self.given.insert(*fid, *to);
            }
            Change::SetAttr { fid, size: Some(size), .. } => {
                self.data.entry(*fid).or_default().resize(usize::try_from(*size).unwrap_or(0), 0);
            }
            Change::SetXattr { fid, name, value, .. } => {
                if let Some(own) = [STRIPES, PIECE].into_iter().find(|own| own.as_bytes() == name.as_bytes())
                {
                    self.beside.insert((*fid, own), value.0.clone());
                }
            }
            Change::Arrive { fid, .. } => {
                self.files.insert(*fid);
                self.orphans.insert(*fid);
            }
            Change::Depart { parent, name, to, copy, .. } => {
                self.names.insert((*parent, name.clone()), (*copy, *to));
                self.files.insert(*copy);
            }
            Change::ComeHome { parent, name, copy, .. } => {
                self.names.insert((*parent, name.clone()), (*copy, SET));
                self.orphans.remove(copy);
            }
            Change::PrepareLeave { fid, intent } => {
                self.marked.insert(*fid, intent.clone());
                self.leaving.insert(*fid);
            }
            Change::Leave { fid, tx, to, copy, names } => {
                let intent = Intent { tx: *tx, coordinator: SET, drop: None, add: None };
                self.marked.insert(*fid, intent);
                self.left.insert(*fid, Leaving { to: *to, copy: *copy, names: names.clone() });
            }
            Change::Redirect { fid, to, copy, names, .. } => {
                for place in names {
                    self.names.remove(&(place.dir, place.name.clone()));
                    if !place.dir.is_names() {
                        self.names.insert((place.dir, place.name.clone()), (*copy, *to));
                    }
                }
                self.files.insert(*copy);
                self.marked.remove(fid);
                self.left.remove(fid);
            }
            Change::PrepareFile { fid, intent } => _ = self.marked.insert(*fid, intent.clone()),
            Change::PrepareExchange { fid, intent, successor } => {
                self.marked.insert(*fid, intent.clone());
                self.successors.insert(*fid, successor.clone());
            }
            Change::PrepareSwap { fid, intent, successor, .. } => {
                self.marked.insert(*fid, intent.clone());
                self.successors.insert(*fid, successor.clone());
            }
            Change::Swap { parent, name, out, next, theirs, .. } => {
                self.names.insert((*parent, name.clone()), (next.fid, next.home));
                if let Some(at) = theirs {
                    self.names.remove(&(at.dir, at.name.clone()));
                }
                self.orphans.extend(out.orphan.then_some(out.fid));
                match (next.kind, next.home) {
                    (0o040_000, SET) => {
                        self.hangs.remove(&next.fid);
                        self.came_home.insert(next.fid);
                    }
                    (0o040_000, _) => {}
                    _ => _ = self.files.insert(next.fid),
                }
                if let Some(intent) = self.marked.get(&out.fid).filter(|i| out.dir && i.add.is_some()) {
                    self.hangs.insert(out.fid, intent.coordinator);
                }
            }
            Change::EndFile { fid, drop, add, .. } => {
                self.marked.remove(fid);
                for gone in drop.iter() {
                    self.names.remove(&(gone.dir, gone.name.clone()));
                }
                for new in add.iter() {
                    self.orphans.remove(fid);
                    self.names.insert((new.dir, new.name.clone()), (*fid, SET));
                }
            }
            _ => {}
        }
        self.journal.push(LogEntry { stamp: stamp.clone(), op, result_fid, body: change.clone() });
        Ok(())
    }
    fn is_partial(&self) -> bool {
        self.fails.is_some_and(|(_, partial)| partial)
    }
    fn record_partial(&mut self) -> Result<Change, Errno> {
        self.parts.0 += 1;
        Ok(Change::Partial { objects: vec![ROOT] })
    }
    fn abandon_partial(&mut self) -> Result<(), Errno> {
        self.parts.1 += 1;
        Ok(())
    }
    fn mark_unsynced_stale(&mut self) -> Result<(), Errno> {
        self.unsynced += 1;
        Ok(())
    }
    fn syncs_fail(&self) -> bool {
        self.syncs_fail > 0
    }
    fn begin_write_again(&mut self) {
        self.syncs_fail = self.syncs_fail.saturating_sub(1);
        self.left_unsynced = self.much_unsynced;
    }
    fn write_again_slice(&mut self) -> Result<bool, Errno> {
        self.written_again += 1;
        self.left_unsynced = self.left_unsynced.saturating_sub(1);
        Ok(self.left_unsynced == 0)
    }
    fn take_late_failure(&mut self) -> Option<Errno> {
        None
    }
    fn begin_flush(&mut self) {}
    fn flush_slice(&mut self) -> Result<bool, Errno> {
        self.flush_fails.map_or(Ok(true), Err)
    }
    fn object(&mut self, _: Fid) -> Result<Option<Object>, Errno> {
        Ok(None)
    }
    fn entries(&mut self, _: Fid, _: u64, _: usize) -> Result<Entries, Errno> {
        Ok((Vec::new(), Vec::new(), None))
    }
    fn hole(&mut self, fid: Fid, _: u64, _: u64) -> Result<Option<(u64, bool)>, Errno> {
        self.data.get(&fid).map(|_| None).ok_or(Errno::EIO)
    }
    fn data_before_hole(&mut self, fid: Fid, _: u64, len: u32) -> Result<u32, Errno> {
        self.data.get(&fid).map(|_| len).ok_or(Errno::EIO)
    }
    fn begin_list(&mut self, _: Fid) -> Option<Work> {
        self.unlisted.then_some(Work::List)
    }
    fn begin_page(&mut self, _: Fid, _: u64, _: bool, _: usize) -> Option<Work> {
        self.cold.then_some(Work::Page)
    }
    fn wants_sync(&self) -> bool {
        false
    }

    fn begin_sync(&mut self) -> Work {
        Work::SyncAll
    }
    fn begin_sync_of(&mut self, objects: &[Fid]) -> Result<Work, Errno> {
        Ok(Work::Sync(objects.to_vec()))
    }
    fn begin_sums(&mut self, _: Fid, _: u64, _: u32) -> Result<Work, Errno> {
        Ok(Work::Sums)
    }
    fn begin_placed(&mut self) -> Work {
        Work::Walk
    }
    fn begin_placed_directories(&mut self) -> Work {
        Work::Walk
    }
    fn begin_trash(&mut self) -> Result<Option<Work>, Errno> {
        Ok((self.trash > 0).then_some(Work::Trash))
    }
    fn forget_trashed(&mut self, _: Fid) -> Result<(), Errno> {
        self.trash -= 1;
        Ok(())
    }
    fn begin_end(&mut self) -> Result<Work, Errno> {
        Ok(Work::End)
    }
    fn end_heal(&mut self) -> Result<(), Errno> {
        self.stale_objects = None;
        Ok(())
    }
}
