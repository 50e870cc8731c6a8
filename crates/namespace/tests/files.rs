//! Names of files in directories of other sets, as a table: what homes have to agree to, what is decided, what waits.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId, Time};
use namespace::{Context, Decision, Entry, InExchange, Lineage, Need, TreeState, decide};
use std::collections::{BTreeMap, BTreeSet};
use wire::change::{DirTimes, Replaced};
use wire::op::{COPY_NAMES, EntryName, Intent, Leaving, Node, Successor, encode_names, rename_flags};
use wire::{Attr, Body, Change, Errno, Name, Op};

const SET: SetId = SetId(1);
const OTHER: SetId = SetId(2);
const THIRD: SetId = SetId(3);
const NOW: Time = Time { sec: 100, nsec: 0 };
/// When the objects were changed last: later than the clock says now.
const LAST: Time = Time { sec: 100, nsec: 7 };
const NEXT: Time = Time { sec: 100, nsec: 8 };
const BY: SessionId = SessionId(7);

const fn fid(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(1), lsn: Lsn(n) }
}

const ROOT: Fid = Fid { set: SET, epoch: Epoch(0), lsn: Lsn(0) };
const DIR: Fid = fid(SET, 1);
const SUB: Fid = fid(SET, 2);
/// Open; it has one name, `DIR/own`.
const OWN: Fid = fid(SET, 3);
/// Also in a directory of another set.
const TWICE: Fid = fid(SET, 4);
const NAMELESS: Fid = fid(SET, 5);
/// Open; all its names are in a directory of another set.
const AWAY: Fid = fid(SET, 6);
const STUB: Fid = fid(OTHER, 1);
const STUB3: Fid = fid(THIRD, 1);
/// Directories of another set.
const FAR: Fid = fid(OTHER, 9);
const BARE: Fid = fid(OTHER, 10);
/// The copy of a file of another set, not named yet; and the copy there of `DIR/own`.
const ARRIVING: Fid = fid(SET, 7);
const FAR_COPY: Fid = fid(OTHER, 11);
const GONE: Fid = fid(SET, 99);

fn tx(seq: u64) -> OpId {
    OpId { session: SessionId(9), seq }
}

fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).unwrap()
}

fn place(dir: Fid, s: &str) -> EntryName {
    EntryName { dir, name: name(s) }
}

fn is_dir(fid: Fid) -> bool {
    [ROOT, DIR, SUB, FAR.names()].contains(&fid)
}

fn attr_of(fid: Fid, home: SetId, nlink: u32) -> Attr {
    let mode = if is_dir(fid) { 0o040_755 } else { 0o100_644 };
    let (uid, gid, rdev, size, blocks) = (0, 0, 0, 10, 1);
    let (atime, mtime, ctime) = (LAST, LAST, LAST);
    Attr { fid, home, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime }
}

/// ```text
/// /dir/{sub/, own (open), a, stub, stub2: one file of set 2, stub3: of set 3}
/// names of directory FAR of set 2: {a2: the file a, away (open)}
/// ```
struct Tree {
    names: BTreeMap<(Fid, &'static str), (Fid, SetId)>,
    marked: BTreeMap<Fid, Intent>,
    successors: BTreeMap<Fid, Successor>,
    closed: BTreeSet<Fid>,
    /// The names that copies are to get.
    arrived: BTreeMap<Fid, Vec<EntryName>>,
    /// Where files went.
    left: BTreeMap<Fid, Leaving>,
}

impl Tree {
    fn links(&self, fid: Fid) -> u32 {
        u32::try_from(self.names.values().filter(|(f, _)| *f == fid).count()).unwrap()
    }
}

impl TreeState for Tree {
    fn attr(&mut self, fid: Fid) -> Result<Attr, Errno> {
        if fid.set == SET && fid != GONE || fid == FAR.names() {
            return Ok(attr_of(fid, SET, self.links(fid)));
        }
        Err(Errno::ESTALE)
    }
    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno> {
        if !is_dir(parent) {
            return Err(Errno::ESTALE);
        }
        let found = self.names.iter().find(|((p, n), _)| *p == parent && n.as_bytes() == name.as_bytes());
        let kind = |fid| if is_dir(fid) { 0o040_000 } else { 0o100_000 };
        Ok(found.map(|(_, (fid, home))| Entry { fid: *fid, home: *home, kind: kind(*fid) }))
    }
    fn is_empty(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(!self.names.keys().any(|(parent, _)| *parent == dir))
    }
    fn is_pending(&mut self, fid: Fid) -> Result<bool, Errno> {
        Ok(self.marked.contains_key(&fid))
    }
    fn intent(&mut self, fid: Fid) -> Result<Option<Intent>, Errno> {
        Ok(self.marked.get(&fid).cloned())
    }
    fn stripes(&mut self, _: Fid) -> Result<Option<wire::stripes::Stripes>, Errno> {
        Ok(None)
    }
    fn piece_of(&mut self, _: Fid) -> Result<Option<wire::stripes::PieceOf>, Errno> {
        Ok(None)
    }
    fn taken(&mut self, _fid: Fid) -> Result<Option<wire::op::Taken>, Errno> {
        Ok(None)
    }

    fn leaving(&mut self, fid: Fid) -> Result<Option<Leaving>, Errno> {
        Ok(self.left.get(&fid).cloned())
    }
    fn successor(&mut self, fid: Fid) -> Result<Option<Successor>, Errno> {
        Ok(self.successors.get(&fid).cloned())
    }
    fn names_of_copy(&mut self, fid: Fid) -> Result<Vec<EntryName>, Errno> {
        Ok(self.arrived.get(&fid).cloned().unwrap_or_default())
    }

    fn has_default_acl(&mut self, _: Fid) -> Result<bool, Errno> {
        Ok(false)
    }
    fn xattr(&mut self, _: Fid, _: &Name) -> Result<Option<Vec<u8>>, Errno> {
        Ok(None)
    }
    fn lineage(&mut self, _: Fid) -> Result<Lineage, Errno> {
        Ok(Lineage::default())
    }
}

struct Case {
    tree: Tree,
    agreed: Vec<Need>,
    incoming: Option<Attr>,
    holds_names: bool,
    payload: Vec<u8>,
}

fn case() -> Case {
    let names = [
        (ROOT, "dir", DIR, SET),
        (DIR, "sub", SUB, SET),
        (DIR, "own", OWN, SET),
        (DIR, "a", TWICE, SET),
        (DIR, "stub", STUB, OTHER),
        (DIR, "stub2", STUB, OTHER),
        (DIR, "stub3", STUB3, THIRD),
        (FAR.names(), "a2", TWICE, SET),
        (FAR.names(), "away", AWAY, SET),
    ];
    let names = names.into_iter().map(|(dir, name, fid, home)| ((dir, name), (fid, home))).collect();
    let (marked, closed, arrived, left) = Default::default();
    let successors = BTreeMap::new();
    let tree = Tree { names, marked, successors, closed, arrived, left };
    Case { tree, agreed: Vec::new(), incoming: None, holds_names: false, payload: Vec::new() }
}

impl Case {
    fn decide(&mut self, op: &Op) -> Result<Decision, Errno> {
        let closed = self.tree.closed.clone();
        let context = Context {
            set: SET,
            epoch: Epoch(3),
            lsn: Lsn(77),
            now: NOW,
            placed: None,
            payload: &self.payload,
            is_open: &|fid| [OWN, TWICE, AWAY].contains(&fid) && !closed.contains(&fid),
            op: tx(1),
            holder: &|_| None,
            agreed: &self.agreed,
            incoming: self.incoming.as_ref(),
            holds_names: &|_| self.holds_names,
            is_arriving: &|fid| fid == ARRIVING,
            tx: tx(1),
            is_copied: &|fid, copy| [(OWN, FAR_COPY), (AWAY, FAR_COPY)].contains(&(fid, copy)),
            is_given: &|_, _, _| false,
            has_taken: &|_, _| false,
            above: &BTreeMap::new(),
        };
        decide(op, &mut self.tree, &context)
    }

    fn need(&mut self, op: &Op) -> Need {
        match self.decide(op) {
            Ok(Decision::AskHome(need)) => need,
            other => panic!("{op:?}: {other:?}"),
        }
    }

    fn change(&mut self, op: &Op) -> Change {
        match self.decide(op) {
            Ok(Decision::Change(change, _)) => change,
            other => panic!("{op:?}: {other:?}"),
        }
    }

    fn marked(mut self, fid: Fid, intent: Intent) -> Case {
        self.tree.marked.insert(fid, intent);
        self
    }
}

fn unlink(s: &str) -> Op {
    Op::Unlink { parent: DIR, name: name(s) }
}

fn rename(from: &str, to: &str, flags: u32) -> Op {
    Op::Rename { parent: DIR, name: name(from), to_parent: DIR, to_name: name(to), flags }
}

/// A rename from `FAR` to `DIR`.
fn move_in(to: &str, flags: u32) -> Op {
    Op::MoveIn { from: OTHER, parent: FAR, name: name("x"), to_parent: DIR, to_name: name(to), flags }
}

fn link_in(to: &str) -> Op {
    Op::LinkIn { fid: STUB, home: OTHER, parent: DIR, name: name(to) }
}

fn intent(drop: Option<EntryName>, add: Option<EntryName>) -> Intent {
    Intent { tx: tx(1), coordinator: OTHER, drop, add }
}

fn prepare(fid: Option<Fid>, drop: Option<EntryName>, add: Option<EntryName>) -> Op {
    Op::PrepareFile { tx: tx(1), coordinator: OTHER, fid, drop, add, by: BY }
}

fn end(fid: Fid, seq: u64, commit: bool) -> Op {
    Op::EndFile { fid, tx: tx(seq), commit, by: BY }
}

#[test]
fn homes_agree_before_a_name_goes_or_moves() {
    let need = |home, fid, drop: &str, add: Option<&str>| Need {
        home,
        fid: Some(fid),
        drop: Some(place(DIR, drop)),
        add: add.map(|s| place(DIR, s)),
        copy: None,
        exchange: None,
    };
    // operation, what the home of the file that moves or goes is asked, and then that of what gives way
    let table = [
        (unlink("stub"), Some(need(OTHER, STUB, "stub", None)), None),
        (rename("stub", "new", 0), Some(need(OTHER, STUB, "stub", Some("new"))), None),
        (rename("stub", "own", 0), Some(need(OTHER, STUB, "stub", Some("own"))), None),
        (
            rename("stub", "stub3", 0),
            Some(need(OTHER, STUB, "stub", Some("stub3"))),
            Some(need(THIRD, STUB3, "stub3", None)),
        ),
        (rename("own", "stub", 0), None, Some(need(OTHER, STUB, "stub", None))),
        (rename("stub", "own", rename_flags::EXCHANGE), Some(need(OTHER, STUB, "stub", Some("own"))), None),
        (rename("sub", "stub", rename_flags::EXCHANGE), None, Some(need(OTHER, STUB, "stub", Some("sub")))),
        (
            rename("stub", "stub3", rename_flags::EXCHANGE),
            Some(need(OTHER, STUB, "stub", Some("stub3"))),
            Some(need(THIRD, STUB3, "stub3", Some("stub"))),
        ),
    ];
    for (op, source, target) in table {
        let mut c = case();
        for need in [source, target].into_iter().flatten() {
            assert_eq!(c.need(&op), need, "{op:?}");
            c.agreed.push(need);
        }
        let change = c.change(&op);
        let fits = matches!(change, Change::Unlink { .. } | Change::Rename { .. } | Change::Exchange { .. });
        assert!(fits, "{op:?}: {change:?}");
    }
}

/// While a rename over a file waits for its home, that file may be renamed to the name that is renamed: its home has not
/// agreed to that.
#[test]
fn what_a_home_said_of_one_name_says_nothing_of_another() {
    let mut c = case();
    let over = Some(place(DIR, "own"));
    let need = |drop, add| Need { home: OTHER, fid: Some(STUB), drop, add, copy: None, exchange: None };
    c.agreed.push(need(over.clone(), None));
    let drop = Some(place(DIR, "stub"));
    assert_eq!(c.need(&unlink("stub")), need(drop.clone(), None));
    assert_eq!(c.need(&rename("stub", "own", 0)), need(drop, over));
}

#[test]
fn a_name_that_comes_is_agreed_to_before_what_gives_way() {
    let (drop, add) = (Some(place(FAR, "x")), |s| Some(place(DIR, s)));
    let file = attr_of(fid(OTHER, 5), OTHER, 1);
    let enter = |s: &str, replaced| Change::Enter {
        parent: DIR,
        name: name(s),
        fid: file.fid,
        home: OTHER,
        kind: 0o100_000,
        replaced,
        time: NEXT,
    };
    let out = |fid, orphan| Some(Replaced { fid, dir: false, orphan });
    for (to, second, replaced) in [
        ("new", None, None),
        ("own", None, out(OWN, true)),
        ("a", None, out(TWICE, false)),
        ("stub", Some((OTHER, STUB)), out(STUB, false)),
        ("stub3", Some((THIRD, STUB3)), out(STUB3, false)),
    ] {
        let mut c = case();
        let op = move_in(to, 0);
        assert_eq!(
            c.need(&op),
            Need { home: OTHER, fid: None, drop: drop.clone(), add: add(to), copy: None, exchange: None }
        );
        c.incoming = Some(file.clone());
        if let Some((home, fid)) = second {
            let need = Need { home, fid: Some(fid), drop: add(to), add: None, copy: None, exchange: None };
            assert_eq!(c.need(&op), need);
            c.agreed.push(need);
        }
        assert_eq!(c.change(&op), enter(to, replaced), "{to}");
    }
    let mut c = case();
    let need = Need { home: OTHER, fid: Some(STUB), drop: None, add: add("new"), copy: None, exchange: None };
    assert_eq!(c.need(&link_in("new")), need);
    c.incoming = Some(file.clone());
    assert_eq!(c.change(&link_in("new")), enter("new", None));
    // Its other name is there already: as POSIX says of two names of one file, nothing is done.
    c.incoming = Some(attr_of(STUB, OTHER, 2));
    assert_eq!(c.decide(&move_in("stub", 0)), Ok(Decision::Answer(Body::Done)));
}

#[test]
fn what_is_refused() {
    let to = |to_parent, to_name: &str, flags| Op::MoveIn {
        from: OTHER,
        parent: FAR,
        name: name("x"),
        to_parent,
        to_name: name(to_name),
        flags,
    };
    let own =
        Op::MoveIn { from: SET, parent: DIR, name: name("x"), to_parent: DIR, to_name: name("y"), flags: 0 };
    let link_own = Op::LinkIn { fid: OWN, home: SET, parent: DIR, name: name("y") };
    let before: [(Op, Errno); 12] = [
        (own, Errno::EINVAL),
        (to(DIR, "x", 3), Errno::EINVAL),
        (to(DIR, "none", rename_flags::EXCHANGE), Errno::ENOENT),
        (to(OWN, "x", 0), Errno::ENOTDIR),
        (to(GONE, "x", 0), Errno::ESTALE),
        (to(ROOT, ".mortar", 0), Errno::EPERM),
        (link_own, Errno::EINVAL),
        (link_in("own"), Errno::EEXIST),
        (link_in("stub"), Errno::EEXIST),
        (rename("own", "stub", rename_flags::NOREPLACE), Errno::EEXIST),
        (rename("stub", "sub", 0), Errno::EISDIR),
        (rename("sub", "stub", 0), Errno::ENOTDIR),
    ];
    for (op, errno) in before {
        assert_eq!(case().decide(&op), Err(errno), "{op:?}");
    }
    assert_eq!(case().decide(&Op::Rmdir { parent: DIR, name: name("stub") }), Err(Errno::ENOTDIR));
    // When the home of what comes has agreed: that it is there is looked at first, as on one set.
    let file = attr_of(fid(OTHER, 5), OTHER, 1);
    let dir = Attr { mode: 0o040_755, ..file.clone() };
    for (file, op, errno) in [
        (&file, move_in("own", rename_flags::NOREPLACE), Errno::EEXIST),
        (&file, move_in("sub", 0), Errno::EISDIR),
        // It would be beneath itself, and wait for its own mark.
        (&Attr { fid: DIR, ..dir.clone() }, move_in("new", 0), Errno::EINVAL),
        (&dir, move_in("own", 0), Errno::ENOTDIR),
        (&dir, move_in("sub", rename_flags::NOREPLACE), Errno::EEXIST),
        // Of a file of a third set all that is said before its name there is asked for.
        (&attr_of(STUB3, THIRD, 1), move_in("own", rename_flags::NOREPLACE), Errno::EEXIST),
        (&attr_of(STUB3, THIRD, 1), move_in("sub", 0), Errno::EISDIR),
        // It is not marked, or no more.
        (&attr_of(AWAY, SET, 1), home("away"), Errno::EAGAIN),
    ] {
        let mut c = case();
        c.incoming = Some(file.clone());
        c.agreed.push(stub_goes(AWAY, "away"));
        assert_eq!(c.decide(&op), Err(errno), "{op:?}");
    }
    let mut c = case();
    c.incoming = Some(dir.clone());
    let Ok(Decision::Change(Change::Enter { kind, replaced, .. }, _)) = c.decide(&move_in("sub", 0)) else {
        panic!("an empty directory gives way");
    };
    assert_eq!((kind, replaced.map(|r| r.dir)), (0o040_000, Some(true)));
}

/// A rename of a name of a file of this set in `FAR` to `DIR`.
fn home(from: &str) -> Op {
    let (name, to_name) = (name(from), name("back"));
    Op::MoveIn { from: OTHER, parent: FAR, name, to_parent: DIR, to_name, flags: 0 }
}

/// What the set of `FAR` is asked about a name there.
fn stub_goes(fid: Fid, s: &str) -> Need {
    Need { home: OTHER, fid: Some(fid), drop: Some(place(FAR, s)), add: None, copy: None, exchange: None }
}

#[test]
fn a_file_of_a_third_set_comes_when_its_stub_may_go() {
    let mut c = case();
    c.incoming = Some(attr_of(fid(THIRD, 5), THIRD, 1));
    assert_eq!(c.need(&move_in("own", 0)), stub_goes(fid(THIRD, 5), "x"));
    c.agreed.push(stub_goes(fid(THIRD, 5), "x"));
    let replaced = Some(Replaced { fid: OWN, dir: false, orphan: true });
    let (name, fid, kind) = (name("own"), fid(THIRD, 5), 0o100_000);
    let entered = Change::Enter { parent: DIR, name, fid, home: THIRD, kind, replaced, time: NEXT };
    assert_eq!(c.change(&move_in("own", 0)), entered);
    // What gives way is asked about last.
    let stub3 = Need {
        home: THIRD,
        fid: Some(STUB3),
        drop: Some(place(DIR, "stub3")),
        add: None,
        copy: None,
        exchange: None,
    };
    assert_eq!(c.need(&move_in("stub3", 0)), stub3);
    // Its other name is there already.
    c.incoming = Some(attr_of(STUB3, THIRD, 2));
    assert_eq!(c.decide(&move_in("stub3", 0)), Ok(Decision::Answer(Body::Done)));
}

/// Its copy on the set that has the entry has to be marked as well.
#[test]
fn a_directory_of_a_third_set_comes_when_its_copy_may_go() {
    let mut c = case();
    let there = fid(THIRD, 5);
    c.incoming = Some(Attr { mode: 0o040_755, ..attr_of(there, THIRD, 2) });
    assert_eq!(c.need(&move_in("new", 0)), stub_goes(there, "x"));
    c.agreed.push(stub_goes(there, "x"));
    let (name, kind, replaced) = (name("new"), 0o040_000, None);
    let entered = Change::Enter { parent: DIR, name, fid: there, home: THIRD, kind, replaced, time: NEXT };
    assert_eq!(c.change(&move_in("new", 0)), entered);
    // What this set has of it, from when its entry was here, is to go still.
    let going = Intent { tx: tx(2), coordinator: THIRD, drop: Some(place(DIR, "was")), add: None };
    let mut c = case().marked(there, going);
    c.incoming = Some(Attr { mode: 0o040_755, ..attr_of(there, THIRD, 2) });
    assert_eq!(c.decide(&move_in("new", 0)), Err(Errno::EAGAIN));
}

/// Its name in the folder of names becomes the entry.
#[test]
fn a_file_comes_home_by_one_change() {
    let back = |seq| Intent { tx: tx(seq), coordinator: SET, drop: None, add: None };
    let come = |marked, from| {
        let mut c = case().marked(AWAY, marked);
        c.incoming = Some(attr_of(AWAY, SET, 1));
        assert_eq!(c.need(&home(from)), stub_goes(AWAY, from));
        c.agreed.push(stub_goes(AWAY, from));
        c.decide(&home(from))
    };
    let change = Change::Rename {
        parent: FAR.names(),
        name: name("away"),
        fid: AWAY,
        to_parent: DIR,
        to_name: name("back"),
        replaced: None,
        time: NEXT,
    };
    assert_eq!(come(back(1), "away"), Ok(Decision::Change(change, Some(AWAY))));
    assert_eq!(come(back(2), "away"), Err(Errno::EAGAIN), "another transaction has marked it");
    assert_eq!(come(back(1), "a2"), Err(Errno::EAGAIN), "the name is another file's");
}

/// A power cut may bring its mark back after its end, and the set may have given the file that name meanwhile, without asking
/// anybody: what decides gives the entry and takes the other name at once, so nothing is left to be taken.
#[test]
fn the_end_of_coming_home_takes_no_name() {
    let intent = Intent {
        tx: tx(1),
        coordinator: SET,
        drop: Some(EntryName { dir: FAR.names(), name: name("away") }),
        add: Some(EntryName { dir: DIR.names(), name: name("back") }),
    };
    for commit in [true, false] {
        let ended = case().marked(AWAY, intent.clone()).change(&end(AWAY, 1, commit));
        let Change::EndFile { drop, add, orphan, .. } = ended else { panic!("{ended:?}") };
        assert_eq!((drop, add, orphan), (None, None, false), "commit: {commit}");
    }
}

/// The set of a stub is asked whether it may go, and told how that ends.
#[test]
fn a_stub_is_marked_and_goes() {
    let own = |s| Some(place(DIR, s));
    let mark = |fid, s| prepare(Some(fid), own(s), None);
    let marked = Change::PrepareFile { fid: STUB, intent: intent(own("stub"), None) };
    assert_eq!(case().decide(&mark(STUB, "stub")), Ok(Decision::Change(marked, Some(STUB))));
    for (fid, s) in [(STUB, "own"), (STUB, "none"), (STUB, "stub3"), (STUB3, "stub3"), (STUB, "sub")] {
        assert_eq!(case().decide(&mark(fid, s)), Err(Errno::EAGAIN), "{fid} {s}: not its home's stub");
    }
    let held = || case().marked(STUB, intent(own("stub"), None));
    for op in [mark(STUB, "stub"), rename("stub", "new", 0), rename("own", "stub", 0), move_in("stub", 0)] {
        assert_eq!(held().decide(&op), Err(Errno::EAGAIN), "{op:?}");
    }
    let mut agreed = held();
    agreed.agreed.push(Need {
        home: OTHER,
        fid: Some(STUB),
        drop: own("stub"),
        add: None,
        copy: None,
        exchange: None,
    });
    assert_eq!(agreed.decide(&unlink("stub")), Err(Errno::EAGAIN), "its home need not know that");

    let ended = |drop, time| Change::EndFile { fid: STUB, drop, add: None, orphan: false, time };
    assert_eq!(held().change(&end(STUB, 1, true)), ended(own("stub"), NEXT));
    assert_eq!(held().change(&end(STUB, 1, false)), ended(None, NOW));
    for (case, seq) in [(held(), 2), (case(), 1)] {
        let mut case = case;
        assert_eq!(case.decide(&end(STUB, seq, true)), Ok(Decision::Answer(Body::Done)));
    }
    // A power cut has taken the name.
    for s in ["none", "own"] {
        let mut case = case().marked(STUB, intent(own(s), None));
        assert_eq!(case.change(&end(STUB, 1, true)), ended(None, NOW));
    }
}

#[test]
fn names_of_a_marked_file_wait() {
    let create = Op::Create {
        parent: DIR,
        name: name("own"),
        node: Node::File,
        mode: 0o644,
        umask: 0,
        uid: 0,
        gid: 0,
        open: false,
    };
    for op in [
        create,
        unlink("own"),
        Op::Rmdir { parent: DIR, name: name("own") },
        Op::Link { fid: OWN, parent: DIR, name: name("new") },
        Op::Link { fid: TWICE, parent: DIR, name: name("own") },
        rename("own", "new", 0),
        rename("a", "own", 0),
        rename("a", "own", rename_flags::NOREPLACE),
        move_in("own", 0),
        link_in("own"),
        prepare(Some(OWN), None, Some(place(FAR, "new"))),
        // Its name is looked at later: it may be the one that it is about to get.
        prepare(Some(OWN), Some(place(FAR, "new")), None),
        prepare(None, Some(place(DIR, "own")), Some(place(FAR, "new"))),
    ] {
        let drop = intent(Some(place(DIR, "own")), Some(place(FAR.names(), "z")));
        assert_eq!(case().marked(OWN, drop).decide(&op), Err(Errno::EAGAIN), "{op:?}");
        assert_ne!(case().decide(&op), Err(Errno::EAGAIN), "{op:?}");
    }
    // Data is no name.
    let write = Op::Write { fid: OWN, offset: 0, append: false, kill_suid: false };
    assert!(matches!(case().marked(OWN, intent(None, None)).change(&write), Change::Write { .. }));
    // A directory that is about to be empty.
    for (holds_names, errno) in [(true, Errno::EAGAIN), (false, Errno::ENOTEMPTY)] {
        let mut c = case();
        c.holds_names = holds_names;
        assert_eq!(c.decide(&Op::Rmdir { parent: ROOT, name: name("dir") }), Err(errno));
        let prepare = Op::PrepareRmdir { fid: DIR, by: SessionId(3) };
        assert_eq!(c.decide(&prepare), Err(errno), "its entry lies on another set");
    }
}

#[test]
fn what_a_home_agrees_to() {
    let (far, names) = (|s| Some(place(FAR, s)), |s| Some(place(FAR.names(), s)));
    let own = |s| Some(place(DIR, s));
    for (op, fid, drop, add) in [
        (prepare(None, own("own"), far("new")), OWN, own("own"), names("new")),
        (prepare(None, own("a"), far("a3")), TWICE, own("a"), names("a3")),
        (prepare(Some(TWICE), None, far("new")), TWICE, None, names("new")),
        (prepare(Some(TWICE), far("a2"), None), TWICE, names("a2"), None),
        (prepare(Some(AWAY), far("away"), far("new")), AWAY, names("away"), names("new")),
    ] {
        let wanted = Change::PrepareFile { fid, intent: intent(drop, add) };
        assert_eq!(case().decide(&op), Ok(Decision::Change(wanted, Some(fid))), "{op:?}");
    }
    // What comes home: so does its entry.
    let home = |s: &str| Op::PrepareFile {
        tx: tx(1),
        coordinator: SET,
        fid: Some(TWICE),
        drop: far("a2"),
        add: Some(place(DIR, s)),
        by: BY,
    };
    let back = Intent { coordinator: SET, ..intent(names("a2"), Some(place(DIR.names(), "back"))) };
    assert_eq!(case().change(&home("back")), Change::PrepareFile { fid: TWICE, intent: back });
    let there = case().decide(&home("a"));
    assert!(matches!(&there, Ok(Decision::Answer(Body::Attr { attr })) if attr.fid == TWICE), "{there:?}");
    // It has that name: the entry would say that the transaction has committed.
    let there = case().decide(&prepare(None, own("a"), far("a2")));
    assert!(matches!(&there, Ok(Decision::Answer(Body::Attr { attr })) if attr.fid == TWICE), "{there:?}");
    for (op, errno) in [
        (prepare(None, None, far("new")), Errno::EINVAL),
        (prepare(None, own("none"), far("new")), Errno::ENOENT),
        (prepare(None, own("sub"), far("new")), Errno::EXDEV),
        (prepare(None, own("stub"), far("new")), Errno::EXDEV),
        (prepare(Some(SUB), None, far("new")), Errno::EPERM),
        (prepare(Some(NAMELESS), None, far("new")), Errno::ENOENT),
        (prepare(Some(GONE), None, far("new")), Errno::ESTALE),
        (prepare(Some(AWAY), far("a2"), None), Errno::ESTALE),
        (prepare(Some(AWAY), far("none"), None), Errno::ESTALE),
        (prepare(Some(AWAY), Some(place(BARE, "away")), None), Errno::ESTALE),
    ] {
        assert_eq!(case().decide(&op), Err(errno), "{op:?}");
    }
}

#[test]
fn names_change_as_agreed_or_stay() {
    let names = |s| Some(place(FAR.names(), s));
    let own = |s| Some(place(DIR, s));
    let bare = |s| Some(place(BARE.names(), s));
    // the file, drop and add as agreed, what is done of them, whether the file lives on without a name
    let table = [
        (OWN, own("own"), names("new"), own("own"), names("new"), false),
        (TWICE, None, bare("first there"), None, bare("first there"), false),
        (TWICE, names("a2"), None, names("a2"), None, false),
        (AWAY, names("away"), None, names("away"), None, true),
        (AWAY, names("away"), names("new"), names("away"), names("new"), false),
        // Done already, or taken by a power cut.
        (TWICE, own("none"), names("a2"), None, None, false),
        (TWICE, bare("none"), None, None, None, false),
        (OWN, names("a2"), None, None, None, false),
    ];
    for (fid, drop, add, dropped, added, orphan) in table {
        let shown = format!("{fid}: {drop:?} {add:?}");
        let marked = || case().marked(fid, intent(drop.clone(), add.clone()));
        let done = |drop, add, orphan| Change::EndFile { fid, drop, add, orphan, time: NEXT };
        assert_eq!(marked().change(&end(fid, 1, true)), done(dropped, added, orphan), "{shown}");
        assert_eq!(marked().change(&end(fid, 1, false)), done(None, None, false), "{shown}");
        for commit in [true, false] {
            let late = marked().decide(&end(fid, 2, commit));
            assert_eq!(late, Ok(Decision::Answer(Body::Done)), "{shown}: another transaction's end");
        }
        let mut closed = marked();
        closed.tree.closed.insert(fid);
        let change = closed.change(&end(fid, 1, true));
        assert!(matches!(change, Change::EndFile { orphan: false, .. }), "{shown}: nobody has it open");
    }
    for fid in [OWN, GONE] {
        let over = case().decide(&end(fid, 1, true));
        assert_eq!(over, Ok(Decision::Answer(Body::Done)), "{fid}: nothing is marked");
    }
    // What gives way to it at the same home is told first.
    let mut waits = case().marked(OWN, intent(own("own"), names("away")));
    assert_eq!(waits.decide(&end(OWN, 1, true)), Err(Errno::EAGAIN));
    assert!(
        matches!(waits.decide(&end(OWN, 1, false)), Ok(Decision::Change(..))),
        "given up it needs no name"
    );
}

/// The entry that decides, as the home asks for it: in the directory itself, not in the folder of its names.
#[test]
fn the_entry_that_decides() {
    let names = |s| Some(place(FAR.names(), s));
    for (drop, add, wanted) in [
        (Some(place(DIR, "own")), names("new"), Some((place(FAR, "new"), true))),
        (names("a2"), names("new"), Some((place(FAR, "new"), true))),
        (None, names("new"), Some((place(FAR, "new"), true))),
        (names("a2"), None, Some((place(FAR, "a2"), false))),
        // Beside a stub: the name that the home keeps.
        (Some(place(DIR, "stub")), None, Some((place(DIR.names(), "stub"), false))),
        (None, None, None),
    ] {
        assert_eq!(intent(drop, add).decider(), wanted);
    }
}

fn depart(s: &str, fid: Fid, copy: Fid) -> Op {
    Op::Depart { parent: DIR, name: name(s), fid, to: OTHER, copy }
}

/// A file leaves when its copy has agreed to take its name; the directory keeps its times.
#[test]
fn a_file_departs() {
    let closed = || {
        let mut case = case();
        case.tree.closed.insert(OWN);
        case
    };
    let op = depart("own", OWN, FAR_COPY);
    let (home, fid) = (OTHER, Some(FAR_COPY));
    let need = Need { home, fid, drop: None, add: Some(place(DIR, "own")), copy: None, exchange: None };
    assert_eq!(closed().need(&op), need);
    let agreed = |copy, size| {
        let mut case = closed();
        case.incoming = Some(Attr { size, ..attr_of(copy, OTHER, 0) });
        case.decide(&op)
    };
    let (parent, name, kind, mtime, ctime) = (DIR, name("own"), 0o100_000, LAST, LAST);
    let left = Change::Depart { parent, name, fid: OWN, to: OTHER, copy: FAR_COPY, kind, mtime, ctime };
    assert_eq!(agreed(FAR_COPY, 10), Ok(Decision::Change(left, Some(FAR_COPY))));
    assert_eq!(agreed(FAR_COPY, 9), Err(Errno::EIO), "not all of it is there");
    assert_eq!(agreed(STUB, 10), Err(Errno::EIO));
    assert_eq!(case().decide(&op), Err(Errno::EBUSY), "somebody has it open");
    assert_eq!(
        closed().decide(&depart("own", OWN, STUB)),
        Err(Errno::EBUSY),
        "it changed, or never was copied"
    );
    assert_eq!(case().decide(&depart("a", TWICE, FAR_COPY)), Err(Errno::EBUSY), "it has more names");
    for (s, fid) in [("own", TWICE), ("none", OWN), ("stub", STUB)] {
        assert_eq!(closed().decide(&depart(s, fid, FAR_COPY)), Err(Errno::ESTALE), "{s} leads elsewhere");
    }
    let mut marked = closed().marked(OWN, intent(None, Some(place(DIR, "x"))));
    assert_eq!(marked.decide(&op), Err(Errno::EAGAIN));
}

/// A file of several names leaves with all of them, or stays.
#[test]
fn a_file_of_several_names_departs() {
    let two = || {
        let mut case = case();
        case.tree.closed.insert(OWN);
        case.tree.names.insert((SUB, "own2"), (OWN, SET));
        case
    };
    let both = [place(DIR, "own"), place(SUB, "own2")];
    let op =
        |names: &[EntryName]| Op::DepartAll { fid: OWN, to: OTHER, copy: FAR_COPY, names: names.to_vec() };
    let add = Some(place(DIR, "own"));
    let need = Need { home: OTHER, fid: Some(FAR_COPY), drop: None, add, copy: None, exchange: None };
    assert_eq!(two().need(&op(&both)), need, "the first one decides");
    let agreed = |case: &mut Case, names: &[EntryName]| {
        case.incoming = Some(attr_of(FAR_COPY, OTHER, 0));
        case.decide(&op(names))
    };
    let (names, kind) = (both.to_vec(), 0o100_000);
    let left = Change::DepartAll { fid: OWN, to: OTHER, copy: FAR_COPY, kind, names, time: LAST };
    assert_eq!(agreed(&mut two(), &both), Ok(Decision::Change(left, Some(FAR_COPY))));
    assert_eq!(agreed(&mut two(), &both[..1]), Err(Errno::EBUSY), "it has one more");
    let twice = [both[0].clone(), both[0].clone()];
    assert_eq!(agreed(&mut two(), &twice), Err(Errno::EBUSY), "that is one name");
    assert_eq!(agreed(&mut two(), &[]), Err(Errno::EINVAL));
    let elsewhere = [both[0].clone(), place(FAR.names(), "a2")];
    assert_eq!(agreed(&mut two(), &elsewhere), Err(Errno::ESTALE), "that is another file's");
    let other = [both[0].clone(), place(DIR, "a")];
    assert_eq!(agreed(&mut two(), &other), Err(Errno::ESTALE), "that leads elsewhere");
    let mut more = two();
    more.tree.names.insert((FAR.names(), "own3"), (OWN, SET));
    assert_eq!(agreed(&mut more, &both), Err(Errno::EBUSY), "it has a name in another set's directory");
    let names = [both.as_slice(), &[place(FAR.names(), "own3")]].concat();
    let left = Change::Leave { fid: OWN, tx: tx(1), to: OTHER, copy: FAR_COPY, names: names.clone() };
    assert_eq!(agreed(&mut more, &names), Ok(Decision::Change(left, Some(FAR_COPY))), "that set hears of it");
    let mut open = two();
    open.tree.closed.clear();
    assert_eq!(agreed(&mut open, &both), Err(Errno::EBUSY), "somebody has it open");
    let mut full = two();
    full.incoming = Some(Attr { size: 9, ..attr_of(FAR_COPY, OTHER, 0) });
    assert_eq!(full.decide(&op(&both)), Err(Errno::EIO), "not all of it is there");
}

fn times(dir: Fid) -> DirTimes {
    DirTimes { dir, mtime: LAST, ctime: LAST }
}

/// Entries of a file that has left its home lead to its copy; what leads elsewhere stays as it is.
#[test]
fn entries_are_redirected() {
    let names = ["stub", "own", "none", "stub2", "stub2"].map(|n| place(DIR, n));
    let names = [names.as_slice(), &[place(GONE, "x")]].concat();
    let op = |to, copy, names: &[EntryName]| Op::Redirect {
        fid: STUB,
        home: OTHER,
        to,
        copy,
        names: names.to_vec(),
    };
    let here = vec![place(DIR, "stub"), place(DIR, "stub2")];
    for (to, copy, time) in [(THIRD, FAR_COPY, NOW), (SET, ARRIVING, LAST)] {
        let (dirs, kind) = (vec![times(DIR)], 0o100_000);
        let change = Change::Redirect { fid: STUB, to, copy, kind, names: here.clone(), dirs, time };
        assert_eq!(case().change(&op(to, copy, &[here.as_slice(), &here].concat())), change);
        assert_eq!(case().change(&op(to, copy, &names)), change);
    }
    assert_eq!(case().decide(&op(SET, GONE, &here)), Err(Errno::ESTALE), "there is no copy");
    assert_eq!(case().decide(&op(OTHER, FAR_COPY, &here)), Err(Errno::EINVAL));
    assert_eq!(case().decide(&op(THIRD, FAR_COPY, &names[1..3])), Ok(Decision::Answer(Body::Done)));
    assert_eq!(case().decide(&op(THIRD, FAR_COPY, &vec![place(DIR, "stub"); 257])), Err(Errno::EINVAL));
}

/// The home of a file that has left it drops its names at the end, if it is that file that left for that copy.
#[test]
fn a_file_that_has_left_loses_its_names() {
    let names = vec![place(DIR, "a"), place(FAR.names(), "a2")];
    let op = |copy| Op::Redirect { fid: TWICE, home: SET, to: OTHER, copy, names: names.clone() };
    let left = || {
        let mut case = case().marked(TWICE, intent(None, None));
        let leaving = Leaving { to: OTHER, copy: FAR_COPY, names: names.clone() };
        case.tree.left.insert(TWICE, leaving);
        case
    };
    assert_eq!(case().decide(&op(FAR_COPY)), Err(Errno::ESTALE), "it has not left");
    assert_eq!(left().decide(&op(STUB)), Err(Errno::ESTALE), "it went elsewhere");
    let mut other = left();
    other.tree.marked.clear();
    assert_eq!(other.decide(&op(FAR_COPY)), Err(Errno::ESTALE), "that is over");
    let (copy, kind) = (FAR_COPY, 0o100_000);
    let (dirs, names, time) = (vec![times(DIR), times(FAR.names())], names.clone(), NOW);
    let change = Change::Redirect { fid: TWICE, to: OTHER, copy, kind, names, dirs, time };
    assert_eq!(left().change(&op(FAR_COPY)), change);
    // Only those were told that are in a directory which has come here since, and they lead to the copy already.
    let few =
        Op::Redirect { fid: TWICE, home: SET, to: OTHER, copy: FAR_COPY, names: vec![place(SUB, "a2")] };
    assert_eq!(left().decide(&few), Ok(Decision::Answer(Body::Done)), "it has others");
    // A power cut has left it a name that is none of those.
    let mut back = left();
    back.tree.names.retain(|_, (fid, _)| *fid != TWICE);
    back.tree.names.insert((SUB, "old"), (TWICE, SET));
    let free = Change::EndFile { fid: TWICE, drop: None, add: None, orphan: false, time: LAST };
    assert_eq!(back.change(&op(FAR_COPY)), free);
}

/// A copy gets all of its names at once. What of it is done already is not done again.
#[test]
fn a_copy_of_several_names_arrives() {
    let names = vec![place(FAR, "new"), place(FAR, "new2")];
    let add = Some(place(FAR.names(), "new"));
    let case = || {
        let mut case = case().marked(ARRIVING, intent(None, add.clone()));
        case.tree.arrived.insert(ARRIVING, names.clone());
        case
    };
    let here = |name| place(FAR.names(), name);
    let ended = |names| Change::EndCopy { fid: ARRIVING, names, time: LAST };
    assert_eq!(case().change(&end(ARRIVING, 1, true)), ended(vec![here("new"), here("new2")]));
    let mut half = case();
    half.tree.names.insert((FAR.names(), "new"), (ARRIVING, SET));
    assert!(
        matches!(half.change(&end(ARRIVING, 1, true)), Change::EndCopy { names, .. } if names == [here("new2")])
    );
    let mut taken = case();
    taken.tree.names.insert((FAR.names(), "new2"), (OWN, SET));
    let waits = taken.decide(&end(ARRIVING, 1, true));
    assert_eq!(waits, Err(Errno::EAGAIN), "the one that gave way is told of it as well");
    let mut twice = case();
    twice.tree.arrived.insert(ARRIVING, vec![place(FAR, "new"), place(FAR, "new")]);
    assert_eq!(twice.change(&end(ARRIVING, 1, true)), ended(vec![here("new")]));
    let mut own = case();
    own.tree.arrived.insert(ARRIVING, vec![place(DIR, "new"), place(FAR, "new2")]);
    let here_too = own.change(&end(ARRIVING, 1, true));
    assert_eq!(here_too, ended(vec![here("new2")]), "an entry of this set leads to it already");
    assert_eq!(case().change(&end(ARRIVING, 1, false)), Change::DropOrphan { fid: ARRIVING });
    assert_eq!(case().decide(&end(ARRIVING, 2, true)), Ok(Decision::Answer(Body::Done)), "another one's end");
}

/// Only who makes a copy says what names it is to get, and only what can be read.
#[test]
fn the_names_of_a_copy_are_no_attribute_of_users() {
    let mut case = case();
    let set = |fid| Op::SetXattr { fid, name: name(COPY_NAMES), flags: 0 };
    assert_eq!(case.decide(&set(OWN)), Err(Errno::EPERM));
    assert_eq!(case.decide(&set(ARRIVING)), Err(Errno::EINVAL), "the value says nothing");
    case.payload = encode_names(&[place(FAR, "new")]);
    assert!(matches!(case.change(&set(ARRIVING)), Change::SetXattr { .. }));
    case.payload = encode_names(&vec![place(FAR, "new"); 257]);
    assert_eq!(case.decide(&set(ARRIVING)), Err(Errno::EINVAL), "too many");
}

/// The copy has no name until it is told that it gets one, and keeps the time of what it is a copy of.
#[test]
fn a_copy_arrives() {
    let fid = Fid { set: SET, epoch: Epoch(3), lsn: Lsn(77) };
    assert_eq!(case().change(&Op::Arrive), Change::Arrive { fid, time: NOW });
    let old = Time { sec: 5, nsec: 6 };
    let land =
        |fid| Op::Land { fid, mode: 0o4755, uid: 0, gid: 7, size: 10, atime: NOW, mtime: old, ctime: LAST };
    let change = case().change(&land(ARRIVING));
    let (mode, uid, gid, size) = (Some(0o4755), None, Some(7), None);
    let (atime, mtime, time) = (Some(NOW), Some(old), LAST);
    let landed = Change::SetAttr { fid: ARRIVING, mode, uid, gid, size, atime, mtime, time };
    assert_eq!(change, landed, "who owns it, and as long as it is, stays so");
    assert_eq!(case().decide(&land(OWN)), Err(Errno::ESTALE), "a file of users");
    let prepare = |fid| {
        let (drop, add) = (None, Some(place(FAR, "new")));
        Op::PrepareFile { tx: tx(1), coordinator: OTHER, fid: Some(fid), drop, add, by: BY }
    };
    assert!(matches!(case().change(&prepare(ARRIVING)), Change::PrepareFile { .. }));
    assert_eq!(case().decide(&prepare(NAMELESS)), Err(Errno::ENOENT), "what has lost its name gets none");
    let (drop, add) = (None, Some(place(FAR.names(), "new")));
    let mut marked = case().marked(ARRIVING, intent(None, add.clone()));
    let ended = |drop, add| Change::EndFile { fid: ARRIVING, drop, add, orphan: false, time: LAST };
    assert_eq!(marked.change(&end(ARRIVING, 1, true)), ended(drop, add));
    // It is for nobody then: an entry that a power cut took back may have led to it.
    assert_eq!(marked.change(&end(ARRIVING, 1, false)), Change::DropOrphan { fid: ARRIVING });
    for dir in [FAR.names(), FAR] {
        let mut named = case().marked(ARRIVING, intent(None, Some(place(FAR.names(), "new"))));
        named.tree.names.insert((dir, "new"), (ARRIVING, SET));
        let stays = named.change(&end(ARRIVING, 1, false));
        assert!(matches!(stays, Change::EndFile { drop: None, add: None, .. }), "a power cut took the end");
    }
    let about = intent(Some(place(DIR, "nameless")), Some(place(FAR.names(), "new")));
    let mut exchanged = case().marked(NAMELESS, about);
    let stays = exchanged.change(&end(NAMELESS, 1, false));
    assert!(matches!(stays, Change::EndFile { .. }), "it did not arrive: {stays:?}");
}

fn retarget(s: &str, fid: Fid, (home, to): (SetId, SetId), copy: Fid) -> Op {
    Op::Retarget { parent: DIR, name: name(s), fid, home, to, copy }
}

/// The entry of a file of another set leads to a copy: in the entry's own set, or in a third one. Both homes agree first, the
/// one that loses the file last.
#[test]
fn an_entry_is_retargeted() {
    const THIRD_COPY: Fid = fid(THIRD, 12);
    for (to, copy) in [(SET, ARRIVING), (THIRD, THIRD_COPY)] {
        let op = retarget("stub", STUB, (OTHER, to), copy);
        let at = || Some(place(DIR, "stub"));
        let mut c = case();
        assert_eq!(
            c.need(&op),
            Need { home: to, fid: Some(copy), drop: None, add: at(), copy: None, exchange: None }
        );
        c.incoming = Some(attr_of(copy, to, 0));
        let goes =
            Need { home: OTHER, fid: Some(STUB), drop: at(), add: None, copy: Some(copy), exchange: None };
        assert_eq!(c.need(&op), goes);
        c.agreed.push(Need { copy: None, ..goes.clone() });
        assert_eq!(c.need(&op), goes, "a name that goes is not a file that goes");
        c.agreed.push(goes);
        let (parent, name, kind, mtime, ctime) = (DIR, name("stub"), 0o100_000, LAST, LAST);
        let done = match to {
            SET => Change::ComeHome { parent, name, fid: STUB, copy, mtime, ctime, time: LAST },
            _ => Change::Depart { parent, name, fid: STUB, to, copy, kind, mtime, ctime },
        };
        assert_eq!(c.change(&op), done);
        c.incoming = Some(attr_of(copy, OTHER, 0));
        assert_eq!(c.decide(&op), Err(Errno::EIO), "another copy has agreed");
    }
    for (op, why) in [
        (retarget("stub", STUB3, (THIRD, SET), ARRIVING), Errno::ESTALE),
        (retarget("none", STUB, (OTHER, SET), ARRIVING), Errno::ESTALE),
        (retarget("own", OWN, (SET, OTHER), FAR_COPY), Errno::EINVAL),
        (retarget("stub", STUB, (OTHER, OTHER), FAR_COPY), Errno::EINVAL),
    ] {
        assert_eq!(case().decide(&op), Err(why), "{op:?}");
    }
    // What has arrived and was forgotten since, or has got a name, does not come home.
    let mut c = case();
    c.incoming = Some(attr_of(NAMELESS, SET, 0));
    let at = Some(place(DIR, "stub"));
    c.agreed.push(Need {
        home: OTHER,
        fid: Some(STUB),
        drop: at,
        add: None,
        copy: Some(NAMELESS),
        exchange: None,
    });
    assert_eq!(c.decide(&retarget("stub", STUB, (OTHER, SET), NAMELESS)), Err(Errno::ESTALE));
}

/// A file goes with its only name, in a directory of another set, if it is as it was copied and nobody has it open.
#[test]
fn a_file_agrees_to_leave() {
    let leave = |s: &str, fid, copy| {
        let drop = place(FAR, s);
        Op::PrepareLeave { tx: tx(1), coordinator: OTHER, fid, copy, drop, by: BY }
    };
    let closed = || {
        let mut case = case();
        case.tree.closed.insert(AWAY);
        case
    };
    let op = leave("away", AWAY, FAR_COPY);
    let left = Change::PrepareLeave { fid: AWAY, intent: intent(Some(place(FAR.names(), "away")), None) };
    assert_eq!(closed().change(&op), left);
    assert_eq!(case().decide(&op), Err(Errno::EBUSY), "somebody has it open");
    assert_eq!(closed().decide(&leave("away", AWAY, STUB)), Err(Errno::EBUSY), "not as it was copied");
    assert_eq!(closed().decide(&leave("a2", AWAY, FAR_COPY)), Err(Errno::ESTALE), "not its name");
    assert_eq!(closed().decide(&leave("a2", TWICE, FAR_COPY)), Err(Errno::EBUSY), "it has one more");
    let mut marked = closed().marked(AWAY, intent(None, Some(place(FAR.names(), "x"))));
    assert_eq!(marked.decide(&op), Err(Errno::EAGAIN));
    // It is gone at the end, or stays.
    let marked = || closed().marked(AWAY, intent(Some(place(FAR.names(), "away")), None));
    let drop = Some(place(FAR.names(), "away"));
    let ended = marked().change(&end(AWAY, 1, true));
    assert!(matches!(&ended, Change::EndFile { drop: d, add: None, .. } if *d == drop), "{ended:?}");
    let stays = marked().change(&end(AWAY, 1, false));
    assert!(matches!(stays, Change::EndFile { drop: None, add: None, .. }), "{stays:?}");
    // Who leads by then may not know that nobody has it open: what is done to it would be lost.
    for (leaves, kept) in [(true, false), (false, true)] {
        let mut open = case().marked(AWAY, intent(Some(place(FAR.names(), "away")), None));
        if leaves {
            open.tree.arrived.insert(AWAY, vec![place(FAR, "away")]);
        }
        let ended = open.change(&end(AWAY, 1, true));
        assert!(matches!(ended, Change::EndFile { orphan, .. } if orphan == kept), "{leaves}: {ended:?}");
    }
}

/// The end of a transaction of this set about a copy that has come home: the name is an entry, and no folder of names is made.
#[test]
fn a_copy_that_came_home_gets_no_name_in_a_folder() {
    let prepare = |fid| {
        let add = Some(place(DIR, "stub"));
        Op::PrepareFile { tx: tx(1), coordinator: SET, fid: Some(fid), drop: None, add, by: BY }
    };
    assert!(matches!(case().change(&prepare(ARRIVING)), Change::PrepareFile { .. }));
    let add = Some(place(DIR.names(), "stub"));
    for commit in [true, false] {
        let own = Intent { coordinator: SET, ..intent(None, add.clone()) };
        let mut marked = case().marked(ARRIVING, own);
        marked.tree.names.insert((DIR, "stub"), (ARRIVING, SET));
        let ended = marked.change(&end(ARRIVING, 1, commit));
        assert!(matches!(ended, Change::EndFile { drop: None, add: None, orphan: false, .. }), "{ended:?}");
    }
}

/// The other set is told what this entry leads to; if that is something else by the time all have agreed, it begins anew.
#[test]
fn an_exchange_is_about_what_both_entries_lead_to() {
    let mut c = case();
    let op = move_in("stub", rename_flags::EXCHANGE);
    let source = c.need(&op);
    let leads = |fid: Fid| InExchange::Source(Successor { fid, home: fid.set, kind: 0o100_000 });
    assert_eq!((source.home, source.fid, source.exchange.clone()), (OTHER, None, Some(leads(STUB))));
    c.incoming = Some(attr_of(fid(OTHER, 5), OTHER, 1));
    c.agreed.push(source);
    let target = c.need(&op);
    assert_eq!(
        (target.home, target.fid, &target.exchange),
        (OTHER, Some(STUB), &Some(InExchange::Target(OTHER)))
    );
    assert_eq!((target.drop.clone(), target.add.clone()), (Some(place(DIR, "stub")), Some(place(FAR, "x"))));
    c.agreed.push(target);
    let Change::Enter { fid: comes, replaced: Some(out), .. } = c.change(&op) else { panic!("an entry") };
    assert_eq!((comes, out.fid, out.orphan), (fid(OTHER, 5), STUB, false));
    c.tree.names.insert((DIR, "stub"), (STUB3, THIRD));
    assert_eq!(c.decide(&op), Err(Errno::EAGAIN));
    // Two names of one file.
    c.incoming = Some(attr_of(STUB3, THIRD, 1));
    assert_eq!(c.decide(&op), Ok(Decision::Answer(Body::Done)));
    // Of a directory that is the name which it has left.
    c.incoming = Some(Attr { mode: 0o040_755, ..attr_of(STUB3, THIRD, 2) });
    assert_eq!(c.decide(&op), Err(Errno::EAGAIN));
    // A directory came there meanwhile: it begins anew.
    c.incoming = Some(Attr { mode: 0o040_755, ..attr_of(fid(OTHER, 5), OTHER, 2) });
    assert_eq!(c.decide(&op), Err(Errno::EAGAIN));
}

/// A file of this set that goes is marked by the transaction, and stays among the orphans until its end if that was its only name.
#[test]
fn an_own_file_that_is_exchanged_has_to_be_marked() {
    for (s, own, orphan) in [("own", OWN, true), ("a", TWICE, false)] {
        let mut c = case();
        let op = move_in(s, rename_flags::EXCHANGE);
        let source = c.need(&op);
        c.incoming = Some(attr_of(fid(OTHER, 5), OTHER, 1));
        c.agreed.push(source);
        let target = c.need(&op);
        c.agreed.push(target.clone());
        assert_eq!(c.decide(&op), Err(Errno::EAGAIN), "it is not marked");
        let mark = Intent { tx: tx(2), coordinator: OTHER, drop: target.drop, add: target.add };
        c = c.marked(own, mark.clone());
        assert_eq!(c.decide(&op), Err(Errno::EAGAIN), "by another one");
        c = c.marked(own, Intent { tx: tx(1), ..mark });
        let Change::Enter { replaced: Some(out), .. } = c.change(&op) else { panic!("an entry") };
        assert_eq!((out.fid, out.orphan), (own, orphan), "{s}");
    }
}

/// The set with the other name does its part in one change, once; without its successor the name goes as in a rename.
#[test]
fn a_name_leads_to_its_successor() {
    let drops = |s: &str| Intent { drop: Some(place(DIR, s)), ..intent(None, None) };
    let successor = |fid: Fid| Successor { fid, home: fid.set, kind: 0o100_000 };
    let away = Intent { drop: Some(place(FAR.names(), "away")), ..intent(None, None) };
    // what has the name, and what is to have it
    let table = [
        ("own", OWN, STUB, "Enter"),
        ("stub3", STUB3, STUB, "Enter"),
        ("own", OWN, AWAY, "Exchange"),
        ("stub3", STUB3, AWAY, "Rename"),
    ];
    for (s, has, comes, word) in table {
        let mut c = case().marked(has, drops(s)).marked(AWAY, away.clone());
        c.tree.successors.insert(has, successor(comes));
        assert!(matches!(c.change(&end(has, 1, false)), Change::EndFile { drop: None, .. }), "given up: {s}");
        let change = format!("{:?}", c.change(&end(has, 1, true)));
        assert!(change.starts_with(word), "{s}: {change}");
        c.tree.names.insert((DIR, s), (comes, comes.set));
        assert!(matches!(c.change(&end(has, 1, true)), Change::EndFile { drop: None, .. }), "done: {s}");
    }
    // What is to come has not been marked by it, or is lost.
    let mut c = case().marked(OWN, drops("own"));
    c.tree.successors.insert(OWN, successor(AWAY));
    assert_eq!(c.decide(&end(OWN, 1, true)), Err(Errno::EAGAIN));
}
