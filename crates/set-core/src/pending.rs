//! Directories and files of this set that wait for the end of a transaction with another set, as the journal tells.

use crate::moves::DIR;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Fid, OpId, SessionId, SetId};
use namespace::transaction::Mark;
use wire::change::Replaced;
use wire::op::{EntryName, Intent};
use wire::{Change, Name};

/// What is known of a marked directory.
#[derive(Debug)]
struct Marked {
    /// The transaction: the operation that made the mark.
    holder: Option<OpId>,
    since: Duration,
    /// Whether the set with the entry is being asked.
    asking: bool,
    /// The entry, if the mark came with the directory: its parent (`None`: the root) and its name.
    entry: Option<(Option<(Fid, SetId)>, Name)>,
    /// Its entry may be gone already.
    removes: bool,
}

impl Marked {
    fn new(holder: Option<OpId>, since: Duration) -> Marked {
        Marked { holder, since, asking: false, entry: None, removes: false }
    }
}

/// A marked file.
#[derive(Debug)]
struct MarkedFile {
    /// What is to become of its names; `None` if its mark does not say.
    intent: Option<Intent>,
    /// The name that it is to lose leads to something else already.
    lost: bool,
    /// Who asked for the mark, if that is known.
    by: Option<SessionId>,
    since: Duration,
    asking: bool,
}

impl MarkedFile {
    fn new(intent: Option<Intent>, since: Duration) -> MarkedFile {
        MarkedFile { intent, lost: false, by: None, since, asking: false }
    }

    /// The name that the file is to lose, if its mark says so.
    fn drops(&self) -> Option<&EntryName> {
        self.intent.as_ref()?.drop.as_ref()
    }
}

/// What is marked, and who holds it.
#[derive(Debug, Default)]
pub struct Pending {
    dirs: BTreeMap<Fid, Marked>,
    files: BTreeMap<Fid, MarkedFile>,
    /// Those of them whose transaction could not end for want of room, and when that was tried last.
    refused: BTreeMap<Fid, Duration>,
    /// Files whose transaction has ended, as the journal of an earlier process says.
    ended: BTreeSet<Fid>,
}

impl Pending {
    /// Takes note of a change in the journal of an earlier process. `certain`: no power cut has taken it.
    pub fn note_earlier(&mut self, now: Duration, op: OpId, change: &Change, certain: bool) {
        if let Change::EndFile { fid, .. }
        | Change::EndCopy { fid, .. }
        | Change::MoveOut { fid, .. }
        | Change::MoveOn { fid, .. }
        | Change::Redirect { fid, .. }
        | Change::DropOrphan { fid }
        | Change::Swap { out: Replaced { fid, .. }, .. } = change
        {
            // A power cut may have brought its mark back, this one or an earlier one.
            self.look_for(*fid);
            if !certain {
                return;
            }
        }
        self.note(now, op, change);
        if !certain {
            // That too.
            self.files.values_mut().for_each(|marked| marked.lost = false);
        }
    }

    /// A file that may be marked, though no journal says so.
    pub(crate) fn look_for(&mut self, fid: Fid) {
        self.ended.insert(fid);
    }

    /// Some of the files whose mark an earlier process may have seen again, each of them once.
    pub(crate) fn some_ended(&mut self, most: usize) -> Vec<Fid> {
        core::iter::from_fn(|| self.ended.pop_first()).take(most).collect()
    }

    /// Takes note of an applied change.
    pub(crate) fn note(&mut self, now: Duration, op: OpId, change: &Change) {
        let (fid, entry) = match change {
            Change::PrepareMkdir { fid, path, name, .. } => {
                (*fid, Some((path.last().map(|a| (a.fid, a.home)), name.clone())))
            }
            Change::PrepareRmdir { fid } => (*fid, None),
            Change::PrepareFile { fid, intent }
            | Change::PrepareMove { fid, intent, .. }
            | Change::PrepareExchange { fid, intent, .. }
            | Change::PrepareSwap { fid, intent, .. }
            | Change::PrepareLeave { fid, intent } => {
                let by = Some(op.session);
                self.files.insert(*fid, MarkedFile { by, ..MarkedFile::new(Some(intent.clone()), now) });
                return;
            }
            Change::Leave { fid, .. } => {
                self.files.insert(*fid, MarkedFile::new(None, now));
                return;
            }
            Change::EndFile { fid, .. } | Change::EndCopy { fid, .. } | Change::DropOrphan { fid } => {
                return self.forget_file(*fid);
            }
            Change::Redirect { fid, names, .. } => return self.note_redirected(*fid, names),
            Change::TakeDir { fid, tx, .. } => {
                self.dirs.insert(*fid, Marked::new(Some(*tx), now));
                return;
            }
            Change::EndTransaction { fid, .. } | Change::Rmdir { fid, .. } | Change::GiveDir { fid, .. } => {
                self.dirs.remove(fid);
                return self.forget_file(*fid);
            }
            // From now on it is one whose entry was made by that transaction.
            Change::MoveOut { fid, tx, .. } | Change::MoveOn { fid, tx, .. } => {
                return self.note_moved(now, *fid, *tx);
            }
            // A directory of this set that was marked for that has come home.
            Change::Enter { fid, kind: DIR, .. } => {
                let intent = self.files.get(fid).and_then(|marked| marked.intent.as_ref());
                if let Some(tx) = intent.map(|intent| intent.tx) {
                    self.note_moved(now, *fid, tx);
                }
                return self.note_succeeded(change);
            }
            Change::Swap { .. } => return self.note_swapped(now, change),
            _ => return self.note_succeeded(change),
        };
        let removes = entry.is_none();
        self.dirs.insert(fid, Marked { entry, removes, ..Marked::new(Some(op), now) });
    }

    /// A directory that was marked to move is where it is to be. The transaction that has marked it has to end.
    fn note_moved(&mut self, now: Duration, fid: Fid, tx: OpId) {
        self.forget_file(fid);
        self.dirs.insert(fid, Marked::new(Some(tx), now));
    }

    /// An entry leads to another directory now, or to something else than a directory. Each of this set's that has lost its place by
    /// that, or come home, is where it is to be, and its transaction has to end.
    fn note_swapped(&mut self, now: Duration, change: &Change) {
        let Change::Swap { parent, name, out, next, tx, .. } = change else { return };
        // What is here of another set's directory is marked as a stub is: to lose a name, and to get none.
        let is_own = |marked: &MarkedFile| marked.intent.as_ref().is_some_and(|intent| intent.add.is_some());
        for (fid, is_dir) in [(out.fid, out.dir), (next.fid, next.is_dir())] {
            if is_dir && self.files.get(&fid).is_some_and(is_own) {
                self.note_moved(now, fid, *tx);
            }
        }
        self.note_lost(out.fid, *parent, name);
    }

    /// Names that lead to something else now.
    fn note_succeeded(&mut self, change: &Change) {
        match change {
            Change::Enter { parent, name, replaced: Some(out), .. } => self.note_lost(out.fid, *parent, name),
            Change::Rename { to_parent, to_name, replaced: Some(out), .. } => {
                self.note_lost(out.fid, *to_parent, to_name);
            }
            Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, .. } => {
                self.note_lost(*fid, *parent, name);
                self.note_lost(*to_fid, *to_parent, to_name);
            }
            _ => {}
        }
    }

    /// What a mark has a file lose, it has lost: nobody has to wait for that.
    fn note_lost(&mut self, fid: Fid, dir: Fid, name: &Name) {
        if let Some(marked) = self.files.get_mut(&fid) {
            marked.lost |= marked.drops().is_some_and(|drop| (drop.dir, &drop.name) == (dir, name));
        }
    }

    /// Names of a file lead to its copy now. That ends the mark with which the file left its home. A stub's mark is of another
    /// transaction: it stays for the name that it is about.
    fn note_redirected(&mut self, fid: Fid, names: &[EntryName]) {
        let drops = self.files.get(&fid).and_then(MarkedFile::drops);
        if drops.is_none_or(|place| names.contains(place)) {
            self.forget_file(fid);
        }
    }

    /// A marked directory was met. Its record may no longer be in the journal.
    /// `taken`: the set is to answer for it.
    pub(crate) fn found(&mut self, now: Duration, fid: Fid, taken: bool) {
        let unnamed = || Marked { removes: !taken, ..Marked::new(None, now) };
        self.dirs.entry(fid).or_insert_with(unnamed);
    }

    /// How many directories are marked.
    pub(crate) fn marked_dirs(&self) -> usize {
        self.dirs.len()
    }

    /// Whether a transaction that may have committed removes the directory.
    pub(crate) fn removes(&self, fid: Fid) -> bool {
        self.dirs.get(&fid).is_some_and(|marked| marked.removes)
    }

    /// The transaction that holds the directory, if it is known.
    pub(crate) fn holder(&self, fid: Fid) -> Option<OpId> {
        self.dirs.get(&fid).and_then(|m| m.holder)
    }

    /// Those whose transaction should be over and about which nobody asks yet; now somebody does.
    pub(crate) fn ask_about(&mut self, now: Duration, age: Duration) -> Vec<(Fid, Option<OpId>)> {
        let due = self.dirs.iter_mut().filter(|(_, m)| !m.asking && now >= m.since + age);
        due.map(|(fid, m)| {
            m.asking = true;
            (*fid, m.holder)
        })
        .collect()
    }

    /// The question is over. If the mark is still there the next one may follow.
    pub(crate) fn asked(&mut self, fid: Fid, holder: Option<OpId>) {
        if let Some(m) = self.dirs.get_mut(&fid)
            && Mark::Held(m.holder).is_ended_by(holder)
        {
            m.asking = false;
        }
    }

    /// A marked file was met. Its record may no longer be in the journal.
    pub(crate) fn found_file(&mut self, now: Duration, fid: Fid, intent: Option<Intent>) {
        self.files.entry(fid).or_insert(MarkedFile::new(intent, now));
    }

    /// Whether that session has asked for the file's mark.
    pub(crate) fn is_marked_by(&self, fid: Fid, session: SessionId) -> bool {
        self.files.get(&fid).is_some_and(|marked| marked.by == Some(session))
    }

    /// How many files are marked, or may be.
    pub(crate) fn marked_files(&self) -> usize {
        self.files.len() + self.ended.len()
    }

    /// The directory is not marked.
    pub(crate) fn forget_dir(&mut self, fid: Fid) {
        self.dirs.remove(&fid);
    }

    /// The file is not marked.
    pub(crate) fn forget_file(&mut self, fid: Fid) {
        self.files.remove(&fid);
    }

    /// Whether a name in the directory waits for the end of a transaction.
    pub(crate) fn holds_names(&self, dir: Fid) -> bool {
        let waiting = self.files.values().filter(|marked| !marked.lost);
        waiting.filter_map(MarkedFile::drops).any(|place| place.dir == dir)
    }

    /// Files whose transaction should be over and about which nobody asks yet; now somebody does. Of those for which there was no
    /// room one is tried at a time, the next one each time: when it has ended all others are.
    pub(crate) fn ask_about_files(&mut self, now: Duration, age: Duration) -> Vec<Fid> {
        if self.refused.keys().any(|fid| !self.files.contains_key(fid)) {
            self.refused.clear();
        }
        let is_tried = self.refused.keys().any(|fid| self.files.get(fid).is_some_and(|m| m.asking));
        let next = self.refused.iter().min_by_key(|(_, tried)| **tried).map(|(fid, _)| *fid);
        let next = next.filter(|_| !is_tried);
        let may = |fid: &Fid| next.as_ref() == Some(fid) || !self.refused.contains_key(fid);
        let due = self.files.iter_mut().filter(|(fid, m)| !m.asking && now >= m.since + age && may(fid));
        due.map(|(fid, m)| {
            m.asking = true;
            *fid
        })
        .collect()
    }

    /// What ends the transaction about a marked file was tried, and there was no room for it.
    pub(crate) fn note_no_room(&mut self, now: Duration, fid: Fid) {
        if self.files.contains_key(&fid) {
            self.refused.insert(fid, now);
        }
    }

    /// Somebody asks about a marked file from now on; false if somebody does already.
    pub(crate) fn begin_to_ask(&mut self, fid: Fid) -> bool {
        self.files.get_mut(&fid).is_some_and(|m| !core::mem::replace(&mut m.asking, true))
    }

    /// The question about a file is over. If the mark is still there the next one may follow.
    pub(crate) fn file_asked(&mut self, fid: Fid) {
        if let Some(m) = self.files.get_mut(&fid) {
            m.asking = false;
        }
    }

    /// The entry that leads to the directory, if the mark came with it.
    pub(crate) fn entry(&self, fid: Fid) -> Option<(Option<(Fid, SetId)>, Name)> {
        self.dirs.get(&fid).and_then(|m| m.entry.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};

    const NOW: Duration = Duration::from_secs(100);

    const fn op(seq: u64) -> OpId {
        OpId { session: SessionId(1), seq }
    }

    #[test]
    fn a_mark_is_known_by_the_operation_that_made_it() {
        let fid = Fid { set: SetId(2), epoch: Epoch(1), lsn: Lsn(9) };
        let mut pending = Pending::default();
        pending.note(NOW, op(1), &Change::PrepareRmdir { fid });
        pending.found(NOW, fid, false);
        assert_eq!(pending.holder(fid), Some(op(1)));
        assert_eq!(pending.ask_about(NOW, Duration::ZERO), [(fid, Some(op(1)))]);
        assert_eq!(pending.ask_about(NOW, Duration::ZERO), [], "it is asked about");
        pending.note(NOW, op(2), &Change::EndTransaction { fid, keep: true });
        assert_eq!(pending.holder(fid), None);
        pending.note(NOW, op(3), &Change::PrepareRmdir { fid });
        assert_eq!(pending.ask_about(NOW, Duration::ZERO), [(fid, Some(op(3)))]);
        pending.asked(fid, Some(op(1)));
        pending.asked(fid, None);
        assert_eq!(pending.ask_about(NOW, Duration::ZERO), [], "the answer was another transaction's");
        pending.asked(fid, Some(op(3)));
        assert_eq!(pending.ask_about(NOW, Duration::ZERO).len(), 1);
    }

    /// A file loses one name here, and its home knows that already, while its other names begin to lead to a copy of it.
    #[test]
    fn a_stub_stays_marked_while_other_names_are_redirected() {
        let fid = |n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
        let (file, dir) = (fid(14), fid(2));
        let place = |s: &str| {
            let name = Name::new(s.as_bytes()).unwrap_or_else(|_| unreachable!("a name"));
            EntryName { dir, name }
        };
        let intent = Intent { tx: op(19), coordinator: SetId(1), drop: Some(place("n0")), add: None };
        let redirect = |name: &str| Change::Redirect {
            fid: file,
            to: SetId(2),
            copy: fid(34),
            kind: 0o100_000,
            names: [place(name)].into(),
            dirs: Vec::new(),
            time: ids::Time { sec: 1, nsec: 0 },
        };
        let mut pending = Pending::default();
        pending.note(NOW, op(20), &Change::PrepareFile { fid: file, intent });
        pending.note(NOW, op(21), &redirect("n3"));
        assert!(pending.holds_names(dir), "no listing shows what is to go");
        assert_eq!(pending.ask_about_files(NOW, Duration::ZERO), [file]);
        pending.note(NOW, op(22), &redirect("n0"));
        assert!(!pending.holds_names(dir));

        // At its home the file goes with its last names.
        let (tx, names) = (op(47), Vec::from([place("n3")]));
        pending.note(NOW, tx, &Change::Leave { fid: file, tx, to: SetId(2), copy: fid(34), names });
        pending.note(NOW, op(48), &redirect("n3"));
        assert_eq!(pending.marked_files(), 0);
    }

    /// It keeps its mark, for its other names; its directory is told of again.
    #[test]
    fn a_name_that_leads_elsewhere_is_waited_for_no_more() {
        let fid = |n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
        let (file, dir) = (fid(14), fid(2));
        let name = Name::new(b"n0").unwrap_or_else(|_| unreachable!("a name"));
        let drop = Some(EntryName { dir, name: name.clone() });
        let intent = Intent { tx: op(19), coordinator: SetId(2), drop, add: None };
        let enter = |out| Change::Enter {
            parent: dir,
            name: name.clone(),
            fid: fid(15),
            home: SetId(2),
            kind: 0o100_000,
            replaced: Some(wire::change::Replaced { fid: out, dir: false, orphan: false }),
            time: ids::Time { sec: 1, nsec: 0 },
        };
        let mut pending = Pending::default();
        pending.note(NOW, op(20), &Change::PrepareFile { fid: file, intent });
        pending.note(NOW, op(21), &enter(fid(16)));
        assert!(pending.holds_names(dir), "something else gave way");
        pending.note(NOW, op(22), &enter(file));
        assert!(!pending.holds_names(dir));
        assert_eq!(pending.ask_about_files(NOW, Duration::ZERO), [file]);
    }

    #[test]
    fn a_mark_without_a_record_is_found() {
        let fid = Fid { set: SetId(2), epoch: Epoch(1), lsn: Lsn(9) };
        let mut pending = Pending::default();
        pending.found(NOW, fid, false);
        assert_eq!(pending.ask_about(NOW, Duration::from_secs(60)), []);
        assert_eq!(pending.ask_about(NOW, Duration::ZERO), [(fid, None)]);
    }
}
