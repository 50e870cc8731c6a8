//! What a heal session believes of the brick that it heals, and of what the primary says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that fails says where")]

use ids::{Epoch, Fid, Lsn, OpId, SetId, Time};
use replica::heal::{Ask, DirtySet, Order, StreamAction};
use replica::healing::{Arriving, HealSession, HealTarget, Made, Sums};
use wire::codec::Blob;
use wire::limits::SUM_BYTES;
use wire::peer::{Object, PeerBody, Stamp};
use wire::reply::DirEntry;
use wire::{Change, Errno};

const MIB: u64 = SUM_BYTES as u64;
const NOTHING: Stamp = Stamp { epoch: Epoch(0), lsn: Lsn(0) };

fn fid(n: u64) -> Fid {
    Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
}

fn at(lsn: u64) -> Stamp {
    Stamp { epoch: Epoch(1), lsn: Lsn(lsn) }
}

/// A change of an object whose data stays as it is.
fn touch(n: u64) -> Change {
    Change::RemoveXattr { fid: fid(n), name: wire::Name::new(b"user.x").unwrap(), time: Time::default() }
}

fn write(n: u64, offset: u64, len: u32) -> Change {
    Change::Write { fid: fid(n), offset, len, time: Time::default(), mode: None }
}

/// A brick that knows its journal, and remembers what healing told it.
#[derive(Default)]
struct Brick {
    journal: Vec<Change>,
    stale: Option<Vec<Fid>>,
    versions_valid_to: Lsn,
    /// From where on, which objects, and up to where versions count, as it was told last.
    told: Option<(Lsn, Vec<Fid>, Lsn)>,
    /// Data that it took over.
    taken: Vec<(Fid, u64)>,
    /// How often it was told that the primary does not have an object.
    nothing: usize,
    /// Those of which nothing is in its place any more.
    gone: Vec<Fid>,
    /// How names that are to be taken over fail.
    entries_fail: Option<Errno>,
}

impl HealTarget for Brick {
    const ORDER: Order = |_| 1;
    fn set(&self) -> SetId {
        SetId(1)
    }
    fn own_root(&self) -> Option<Fid> {
        None
    }
    fn is_arbiter(&self) -> bool {
        false
    }
    fn stale_objects(&self) -> Option<Vec<Fid>> {
        self.stale.clone()
    }
    fn incomplete(&self) -> Option<Fid> {
        None
    }
    fn versions_valid_to(&self) -> Lsn {
        self.versions_valid_to
    }
    fn newest(&self) -> Lsn {
        Lsn(self.journal.len() as u64)
    }
    fn consistent_to(&self) -> Lsn {
        self.newest()
    }
    fn stamp_at(&self, lsn: Lsn) -> Result<Stamp, Errno> {
        Ok(at(lsn.0))
    }
    fn changes_after(&mut self, lsn: Lsn, each: &mut dyn FnMut(&Change)) -> Result<(), Errno> {
        self.journal.iter().skip(usize::try_from(lsn.0).unwrap()).for_each(each);
        Ok(())
    }
    fn begin_heal(&mut self, from: Lsn, objects: &[Fid], versions_valid_to: Lsn) -> Result<(), Errno> {
        self.told = Some((from, objects.to_vec(), versions_valid_to));
        self.stale.get_or_insert_default().extend(objects);
        Ok(())
    }
    fn cut_journal(&mut self, common: &Stamp) -> Result<(), Errno> {
        self.journal.truncate(usize::try_from(common.lsn.0).unwrap());
        Ok(())
    }
    fn reset_journal(&mut self, last: &Stamp) -> Result<(), Errno> {
        self.journal = vec![Change::Nop; usize::try_from(last.lsn.0).unwrap()];
        Ok(())
    }
    fn note(&mut self, a: Arriving<'_>) -> Result<(), Errno> {
        self.journal.push(a.change.clone());
        Ok(())
    }
    fn apply(&mut self, a: Arriving<'_>) -> Result<(), Errno> {
        self.note(a)
    }
    fn version(&mut self, _: Fid) -> Option<Stamp> {
        None
    }
    fn is_known(&mut self, fid: Fid) -> Result<bool, Errno> {
        Ok(!self.gone.contains(&fid))
    }
    fn take_object(&mut self, fid: Fid, _: &Object, _: Option<&[u8]>, _: bool) -> Result<bool, Errno> {
        Ok(!self.gone.contains(&fid))
    }
    fn complete(&mut self, _: Fid, _: &Stamp) -> Result<(), Errno> {
        Ok(())
    }
    fn take_nothing(&mut self, fid: Fid) -> Result<bool, Errno> {
        self.nothing += 1;
        Ok(!self.gone.contains(&fid))
    }
    fn take_entries(
        &mut self,
        _: Fid,
        _: u64,
        _: Option<u64>,
        _: &[DirEntry],
        _: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno> {
        self.entries_fail.map_or(Ok(vec![]), Err)
    }
    fn take_data(&mut self, fid: Fid, offset: u64, _: &[u8]) -> Result<(), Errno> {
        self.taken.push((fid, offset));
        Ok(())
    }
    fn take_hole(&mut self, fid: Fid, offset: u64, _: u64) -> Result<(), Errno> {
        self.taken.push((fid, offset));
        Ok(())
    }
}

fn with_journal(changes: u64) -> Brick {
    Brick { journal: (1..=changes).map(touch).collect(), ..Brick::default() }
}

/// The primary has nothing in common with this brick: what its versions say is of another history.
#[test]
fn versions_of_another_history_are_not_believed() {
    let mut brick = with_journal(5);
    HealSession::begin(&mut brick, (&NOTHING, &NOTHING), Lsn(0), true).unwrap();
    assert_eq!(brick.told, Some((Lsn(0), vec![], Lsn(0))));
}

#[test]
fn versions_are_believed_up_to_the_end_of_this_bricks_journal() {
    let mut brick = with_journal(5);
    HealSession::begin(&mut brick, (&at(3), &at(5)), Lsn(5), true).unwrap();
    assert_eq!(brick.told, Some((Lsn(0), vec![], Lsn(5))));
    let mut partly = with_journal(5);
    HealSession::begin(&mut partly, (&at(3), &at(5)), Lsn(5), false).unwrap();
    assert_eq!(partly.told, Some((Lsn(3), vec![], Lsn(3))));
}

/// An earlier healing gave objects versions whose data had not come yet.
#[test]
fn versions_that_an_unfinished_healing_left_are_not_believed() {
    let mut brick = Brick { stale: Some(vec![]), versions_valid_to: Lsn(2), ..with_journal(5) };
    HealSession::begin(&mut brick, (&at(3), &at(5)), Lsn(5), true).unwrap();
    assert_eq!(brick.told, Some((Lsn(0), vec![], Lsn(2))));
}

/// What the cut changes did to the tree stays there: those objects are not what the journal says.
#[test]
fn what_is_cut_off_the_journal_is_stale() {
    for full in [false, true] {
        let mut brick = with_journal(5);
        HealSession::begin(&mut brick, (&at(3), &at(3)), Lsn(3), full).unwrap();
        assert_eq!(brick.told.unwrap().1, [fid(4), fid(5)], "full: {full}");
    }
}

/// A session in which a file is asked about, and the question.
fn asks_about_a_file(brick: &mut Brick) -> HealSession {
    let mut session = HealSession::begin(brick, (&NOTHING, &NOTHING), Lsn(0), false).unwrap();
    arrives(&mut session, brick, 1, &write(9, 0, 100));
    session.on_caught_up(brick, &at(1), vec![]).unwrap();
    assert_eq!(session.ask(brick), Some(PeerBody::AskObject { fid: fid(9), data: false, have: None }));
    session
}

fn arrives(session: &mut HealSession, brick: &mut Brick, lsn: u64, change: &Change) {
    let (stamp, op) = (at(lsn), OpId::default());
    session.apply(brick, Arriving { stamp: &stamp, op, result_fid: None, change, payload: &[] }).unwrap();
}

fn meta(session: &mut HealSession, brick: &mut Brick, lsn: u64, size: u64) {
    object(session, brick, lsn, (fid(9), 0o100_644), size);
}

fn object(session: &mut HealSession, brick: &mut Brick, lsn: u64, (fid, mode): (Fid, u32), size: u64) {
    let time = Time::default();
    let attr = wire::Attr {
        fid,
        home: SetId(1),
        mode,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
    };
    let object = Object { attr, version: at(lsn), flags: 0, xattrs: vec![], place: None };
    let (object, data) = (Some(object), wire::peer::Sent::Nothing);
    session.take(brick, &PeerBody::Object { fid, at: Lsn(lsn), object, data }, &[]).unwrap();
}

/// The changes before it got lost with a connection: it would move here what only those explain.
#[test]
fn an_answer_that_stands_for_changes_which_did_not_come_is_not_taken() {
    let mut brick = Brick::default();
    let mut session = asks_about_a_file(&mut brick);
    meta(&mut session, &mut brick, 1, 100);
    assert_eq!(session.ask(&mut brick), Some(PeerBody::AskData { fid: fid(9), offset: 0, len: 100 }));
    for (lsn, taken) in [(2, false), (1, true)] {
        let (at, offset, len, end) = (Lsn(lsn), 0, 100, true);
        for answer in [
            PeerBody::Data { fid: fid(9), at, offset, len, end },
            PeerBody::Hole { fid: fid(9), at, offset, len: len.into(), end },
        ] {
            session.take(&mut brick, &answer, &[0; 100]).unwrap();
        }
        assert_eq!(!brick.taken.is_empty(), taken, "an answer of {lsn}");
    }
    assert!(session.is_done(&brick));
}

/// Nothing is dirty, and yet a change that was sent before may have got lost.
#[test]
fn a_healing_ends_when_all_has_come_that_was_missed() {
    let mut brick = Brick::default();
    let mut session = HealSession::begin(&mut brick, (&NOTHING, &NOTHING), Lsn(0), false).unwrap();
    session.on_caught_up(&mut brick, &at(2), vec![]).unwrap();
    assert!(!session.is_done(&brick));
    arrives(&mut session, &mut brick, 1, &Change::Nop);
    assert!(!session.is_done(&brick));
    arrives(&mut session, &mut brick, 2, &Change::Nop);
    assert!(session.is_done(&brick));
}

/// The primary has no such object of this set, as it lives on another one; its name is healed all the same, and then goes.
#[test]
fn the_name_of_another_sets_directory_goes_when_its_removal_comes_after_its_healing() {
    let (parent, name, time) = (fid(1), wire::Name::new(b"d").unwrap(), Time::default());
    let home = SetId(3);
    let placed = Fid { set: home, ..fid(9) };
    for later in [false, true] {
        let mut brick = Brick::default();
        let mut session = HealSession::begin(&mut brick, (&NOTHING, &NOTHING), Lsn(0), false).unwrap();
        let rename = Change::Rename {
            parent,
            name: name.clone(),
            fid: placed,
            to_parent: parent,
            to_name: name.clone(),
            replaced: None,
            time,
        };
        arrives(&mut session, &mut brick, 1, &rename);
        session.on_caught_up(&mut brick, &at(1), vec![]).unwrap();
        while let Some(question) = session.ask(&mut brick) {
            let nothing =
                |fid| PeerBody::Object { fid, at: Lsn(1), object: None, data: wire::peer::Sent::Nothing };
            match question {
                PeerBody::AskObject { fid, .. } if fid == placed => {
                    session.take(&mut brick, &nothing(fid), &[]).unwrap();
                }
                PeerBody::AskObject { fid, .. } => object(&mut session, &mut brick, 1, (fid, 0o040_755), 0),
                PeerBody::AskEntries { fid, after } => {
                    let entry = DirEntry {
                        name: name.clone(),
                        fid: placed,
                        home,
                        kind: 0o040_000,
                        cookie: 1,
                        attr: None,
                    };
                    let entries = if later { vec![] } else { vec![entry] };
                    let (at, upto, targets) = (Lsn(1), None, vec![]);
                    let answer = PeerBody::Entries { fid, at, after, upto, entries, targets };
                    session.take(&mut brick, &answer, &[]).unwrap();
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(session.is_done(&brick));
        let rmdir = Change::Rmdir { parent, name: name.clone(), fid: placed, time };
        arrives(&mut session, &mut brick, 2, &rmdir);
        assert!(session.is_done(&brick), "it was applied");
    }
}

/// This brick's file is shorter than the primary's by more than a piece.
#[test]
fn pieces_that_are_missing_here_differ() {
    let mut brick = Brick { stale: Some(vec![fid(9)]), ..Brick::default() };
    let mut session = HealSession::begin(&mut brick, (&NOTHING, &NOTHING), Lsn(0), false).unwrap();
    session.on_caught_up(&mut brick, &NOTHING, vec![]).unwrap();
    assert!(matches!(session.ask(&mut brick), Some(PeerBody::AskObject { .. })));
    meta(&mut session, &mut brick, 0, 3 * MIB);
    let Some(PeerBody::AskSums { offset: 0, ask, .. }) = session.ask(&mut brick) else {
        panic!("what an unfinished healing left is compared first");
    };
    assert!(session.awaits(fid(9), ask));
    let there = Sums { sums: vec![(1, 1), (2, 2), (3, 3)], len: 3 * SUM_BYTES, end: true };
    let here = Sums { sums: vec![(1, 1)], len: SUM_BYTES, end: true };
    session.compare(&mut brick, (fid(9), 0), &there, Ok(here)).unwrap();
    let asked: Vec<u64> = core::iter::from_fn(|| {
        let Some(PeerBody::AskData { offset, len, .. }) = session.ask(&mut brick) else { return None };
        let answer = PeerBody::Data { fid: fid(9), at: Lsn(0), offset, len, end: false };
        session.take(&mut brick, &answer, &[]).unwrap();
        Some(offset)
    })
    .collect();
    assert_eq!(
        (asked.first(), session.is_done(&brick)),
        (Some(&MIB), true),
        "from the second piece on: {asked:?}"
    );
    assert!(asked.contains(&(2 * MIB)), "{asked:?}");
}

/// A file of which this brick has what it had before a time, in a comparison of its data.
fn compared() -> DirtySet {
    let mut dirty_set = DirtySet::new(|_| 1, false);
    dirty_set.compare_first();
    dirty_set.mark_file(fid(9), false);
    assert_eq!(dirty_set.ask(), Some(Ask::Meta(fid(9))));
    dirty_set.got_meta(fid(9), 4 * MIB, false);
    assert!(matches!(dirty_set.ask(), Some(Ask::Sums(_, 0, _))));
    dirty_set
}

/// The checksums may be of before that change, on either brick.
#[test]
fn what_changed_since_checksums_were_asked_for_is_copied() {
    let mut dirty_set = compared();
    assert_eq!(dirty_set.on_streamed(&write(9, MIB, 10)), StreamAction::Skip);
    dirty_set.got_sums(fid(9), (0, 4 * MIB), true, &[]);
    assert_eq!(dirty_set.ask(), Some(Ask::Meta(fid(9))), "its times changed as well");
    dirty_set.got_meta(fid(9), 4 * MIB, false);
    assert_eq!(dirty_set.ask(), Some(Ask::Data(fid(9), MIB, 10)));
    let mut unchanged = compared();
    unchanged.got_sums(fid(9), (0, 4 * MIB), true, &[]);
    assert!(unchanged.is_done());
}

#[test]
fn a_copy_waits_until_its_source_is_healed() {
    let copy = |from, to| Change::CopyRange {
        from: fid(from),
        from_offset: 0,
        to: fid(to),
        to_offset: 0,
        len: 10,
        time: Time::default(),
    };
    for (from, to, action) in
        [(9, 10, StreamAction::Skip), (10, 9, StreamAction::Skip), (10, 11, StreamAction::Apply)]
    {
        let mut dirty_set = DirtySet::new(|_| 1, false);
        dirty_set.mark(&write(9, 0, 100));
        assert_eq!(dirty_set.on_streamed(&copy(from, to)), action, "from {from} to {to}");
    }
}

/// A change of its name gave it a version, whatever is in it.
#[test]
fn in_a_full_comparison_a_renamed_object_has_no_version_to_believe() {
    let mut dirty_set = DirtySet::new(|_| 1, true);
    assert!(dirty_set.may_be_valid(fid(9)));
    dirty_set.invalidate_version(fid(9));
    assert!(!dirty_set.may_be_valid(fid(9)) && dirty_set.may_be_valid(fid(10)));
}

fn nothing(fid: Fid, at: Lsn) -> PeerBody {
    PeerBody::Object { fid, at, object: None, data: wire::peer::Sent::Nothing }
}

fn no_entries(fid: Fid, at: Lsn, after: u64) -> PeerBody {
    PeerBody::Entries { fid, at, after, upto: None, entries: vec![], targets: vec![] }
}

/// They may be a million, and there are as many pages of names: each page took them all up again.
#[test]
fn what_the_primary_does_not_have_is_looked_at_again_when_all_is_compared_one_at_a_time() {
    const GONE: u64 = 100;
    let mut brick = Brick::default();
    let mut session = HealSession::begin(&mut brick, (&NOTHING, &NOTHING), Lsn(0), false).unwrap();
    for n in 1..=GONE {
        arrives(&mut session, &mut brick, n, &touch(n));
    }
    let (parent, name) = (fid(1000), wire::Name::new(b"d").unwrap());
    let rmdir = Change::Rmdir { parent, name, fid: fid(1001), time: Time::default() };
    arrives(&mut session, &mut brick, GONE + 1, &rmdir);
    session.on_caught_up(&mut brick, &at(GONE + 1), vec![]).unwrap();
    let mut pages = 0;
    let newest = brick.newest();
    while let Some(question) = session.ask(&mut brick) {
        assert!(!session.looks_at_absent(), "not all is compared");
        let before = brick.nothing;
        match question {
            PeerBody::AskObject { fid: dir, .. } if dir == parent => {
                object(&mut session, &mut brick, newest.0, (dir, 0o040_755), 0);
            }
            PeerBody::AskObject { fid, .. } => session.take(&mut brick, &nothing(fid, newest), &[]).unwrap(),
            PeerBody::AskEntries { fid, after } => {
                pages += 1;
                session.take(&mut brick, &no_entries(fid, newest, after), &[]).unwrap();
            }
            other => panic!("{other:?}"),
        }
        assert!(brick.nothing <= before + 1, "one answer is about one object");
    }
    assert_eq!(pages, 1);
    brick.nothing = 0;
    brick.gone = (1..GONE / 2).map(fid).collect();
    // The directory was compared before the files were asked about: what is known of them is new.
    assert!(!session.looks_at_absent() && session.is_done(&brick));
    arrives(&mut session, &mut brick, GONE + 2, &Change::Touch { fid: parent });
    while let Some(question) = session.ask(&mut brick) {
        match question {
            PeerBody::AskObject { fid, .. } => {
                object(&mut session, &mut brick, GONE + 2, (fid, 0o040_755), 0);
            }
            PeerBody::AskEntries { fid, after } => {
                session.take(&mut brick, &no_entries(fid, Lsn(GONE + 2), after), &[]).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    let mut looks = 0;
    while session.looks_at_absent() {
        assert!(!session.is_done(&brick));
        session.look_at_absent(&mut brick).unwrap();
        looks += 1;
        assert_eq!(brick.nothing, looks, "one at a time");
    }
    assert!(session.is_done(&brick) && looks >= GONE as usize);
}

/// It was taken over in part: the rest would differ for good.
#[test]
fn a_page_of_names_that_fails_does_not_count_as_taken_unless_the_directory_is_gone() {
    for (errno, gone) in [Errno::ESTALE, Errno::ENOENT].into_iter().flat_map(|e| [(e, false), (e, true)]) {
        let mut brick = Brick::default();
        let mut session = HealSession::begin(&mut brick, (&NOTHING, &NOTHING), Lsn(0), false).unwrap();
        let (parent, name) = (fid(1000), wire::Name::new(b"d").unwrap());
        let rmdir = Change::Rmdir { parent, name, fid: fid(1001), time: Time::default() };
        arrives(&mut session, &mut brick, 1, &rmdir);
        session.on_caught_up(&mut brick, &at(1), vec![]).unwrap();
        session.ask(&mut brick).unwrap();
        object(&mut session, &mut brick, 1, (parent, 0o040_755), 0);
        let Some(PeerBody::AskEntries { fid, after }) = session.ask(&mut brick) else { panic!("names") };
        brick.entries_fail = Some(errno);
        brick.gone.extend(gone.then_some(fid));
        let taken = session.take(&mut brick, &no_entries(fid, Lsn(1), after), &[]);
        assert_eq!(taken, if gone { Ok(()) } else { Err(errno) });
    }
}

/// An index may have lost an object that no change since then has a name of: the healing must not end as if it had it.
#[test]
fn a_healing_that_ends_without_an_object_of_the_primary_says_so() {
    let mut brick = Brick { gone: [fid(9)].into(), ..Brick::default() };
    let mut session = HealSession::begin(&mut brick, (&NOTHING, &NOTHING), Lsn(0), false).unwrap();
    arrives(&mut session, &mut brick, 1, &touch(9));
    session.on_caught_up(&mut brick, &at(1), vec![]).unwrap();
    session.ask(&mut brick).unwrap();
    object(&mut session, &mut brick, 1, (fid(9), 0o100_644), 5);
    assert!(session.is_done(&brick));
    assert_eq!(session.lacks(), Some(fid(9)));
    // It was removed meanwhile: the primary says so when it is asked again.
    let parent = fid(1);
    let name = wire::Name::new(b"f").unwrap();
    let unlink = Change::Unlink { parent, name, fid: fid(9), orphan: false, time: Time::default() };
    arrives(&mut session, &mut brick, 2, &unlink);
    while let Some(question) = session.ask(&mut brick) {
        match question {
            PeerBody::AskObject { fid, .. } if fid == parent => {
                object(&mut session, &mut brick, 2, (fid, 0o040_755), 0);
            }
            PeerBody::AskObject { fid, .. } => session.take(&mut brick, &nothing(fid, Lsn(2)), &[]).unwrap(),
            PeerBody::AskEntries { fid, after } => {
                session.take(&mut brick, &no_entries(fid, Lsn(2), after), &[]).unwrap();
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(session.lacks(), None);
}
