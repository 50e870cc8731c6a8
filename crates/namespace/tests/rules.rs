//! The POSIX rules as a table: a tree, an operation, and what is decided.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId, Time};
use namespace::{Context, Decision, Entry, Lineage, TreeState, decide};
use std::collections::BTreeMap;
use wire::op::{Node, SetAttr, rename_flags};
use wire::{Attr, Body, Change, Errno, Name, Op};

const SET: SetId = SetId(1);
const OTHER: SetId = SetId(2);
const ROOT: Fid = Fid { set: SET, epoch: Epoch(0), lsn: Lsn(0) };
const NOW: Time = Time { sec: 100, nsec: 0 };
const TX: OpId = OpId { session: SessionId(9), seq: 4 };

const fn mine(n: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) }
}
const fn theirs(n: u64) -> Fid {
    Fid { set: OTHER, epoch: Epoch(1), lsn: Lsn(n) }
}

const FULL: Fid = mine(1);
const EMPTY: Fid = mine(2);
const FILE: Fid = mine(3);
const TWICE: Fid = mine(4);
const DEEP: Fid = mine(5);
const NAMELESS: Fid = mine(6);
const GROUP: Fid = mine(7);
const THERE: Fid = theirs(1);
const GONE: Fid = mine(99);
/// Lies beneath `THERE`.
const BENEATH: Fid = mine(8);

fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).unwrap()
}

/// ```text
/// /full/{deep/, file2}  /empty/  /file (open)  /a and /b: one file  /group/ (setgid, default ACL)  /there/ (another set's)
/// ```
struct Tree {
    names: BTreeMap<(Fid, &'static str), (Fid, SetId)>,
    pending: Option<Fid>,
}

impl Tree {
    fn new() -> Tree {
        let own = [
            (ROOT, "full", FULL),
            (ROOT, "empty", EMPTY),
            (ROOT, "file", FILE),
            (ROOT, "a", TWICE),
            (ROOT, "b", TWICE),
            (ROOT, "group", GROUP),
            (FULL, "deep", DEEP),
            (FULL, "file2", mine(9)),
        ];
        let mut names: BTreeMap<_, _> = own.into_iter().map(|(p, n, f)| ((p, n), (f, SET))).collect();
        names.insert((ROOT, "there"), (THERE, OTHER));
        Tree { names, pending: None }
    }
}

fn is_dir(fid: Fid) -> bool {
    [ROOT, FULL, EMPTY, DEEP, GROUP, THERE, BENEATH].contains(&fid)
}

impl TreeState for Tree {
    fn attr(&mut self, fid: Fid) -> Result<Attr, Errno> {
        if fid.set != SET || fid == GONE {
            return Err(Errno::ESTALE);
        }
        let mode = match fid {
            GROUP => 0o042_755,
            f if is_dir(f) => 0o040_755,
            _ => 0o106_755,
        };
        let nlink = match fid {
            NAMELESS => 0,
            TWICE => 2,
            f if is_dir(f) => 2,
            _ => 1,
        };
        let t = Time { sec: 50, nsec: 0 };
        let (uid, gid, rdev, size, blocks, home) = (0, 33, 0, 10, 1, SET);
        Ok(Attr { fid, home, mode, uid, gid, nlink, rdev, size, blocks, atime: t, mtime: t, ctime: t })
    }
    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno> {
        let found = self.names.iter().find(|((p, n), _)| *p == parent && n.as_bytes() == name.as_bytes());
        let kind = |fid| if is_dir(fid) { 0o040_000 } else { 0o100_000 };
        Ok(found.map(|(_, (fid, home))| Entry { fid: *fid, home: *home, kind: kind(*fid) }))
    }
    fn is_empty(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(!self.names.keys().any(|(parent, _)| *parent == dir))
    }
    fn is_pending(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(self.pending == Some(dir))
    }
    fn intent(&mut self, _: Fid) -> Result<Option<wire::op::Intent>, Errno> {
        Ok(None)
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

    fn leaving(&mut self, _: Fid) -> Result<Option<wire::op::Leaving>, Errno> {
        Ok(None)
    }
    fn successor(&mut self, _: Fid) -> Result<Option<wire::op::Successor>, Errno> {
        Ok(None)
    }
    fn names_of_copy(&mut self, _: Fid) -> Result<Vec<wire::op::EntryName>, Errno> {
        Ok(Vec::new())
    }

    fn has_default_acl(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(dir == GROUP)
    }
    fn xattr(&mut self, _: Fid, _: &Name) -> Result<Option<Vec<u8>>, Errno> {
        Ok(None)
    }
    fn lineage(&mut self, dir: Fid) -> Result<Lineage, Errno> {
        let own = match dir {
            DEEP => vec![DEEP, FULL],
            ROOT => vec![],
            other => vec![other],
        };
        Ok(Lineage { own, other: (dir == BENEATH).then_some((THERE, OTHER)) })
    }
}

struct Case {
    tree: Tree,
    payload: &'static [u8],
    above: BTreeMap<Fid, Vec<Fid>>,
    placed: Option<(SetId, Fid)>,
}

fn case() -> Case {
    Case { tree: Tree::new(), payload: b"", above: BTreeMap::new(), placed: None }
}

impl Case {
    fn decide(&mut self, op: &Op) -> Result<Decision, Errno> {
        let context = Context {
            set: SET,
            epoch: Epoch(3),
            lsn: Lsn(77),
            now: NOW,
            placed: self.placed,
            payload: self.payload,
            is_open: &|fid| [FILE, TWICE].contains(&fid),
            op: TX,
            holder: &|_| None,
            agreed: &[],
            incoming: None,
            holds_names: &|_| false,
            is_arriving: &|_| false,
            tx: ids::OpId::default(),
            is_copied: &|_, _| false,
            is_given: &|_, _, _| false,
            has_taken: &|_, _| false,
            above: &self.above,
        };
        decide(op, &mut self.tree, &context)
    }

    fn change(&mut self, op: &Op) -> Change {
        match self.decide(op) {
            Ok(Decision::Change(change, _)) => change,
            other => panic!("{op:?}: {other:?}"),
        }
    }
}

fn refused(op: &Op) -> Errno {
    case().decide(op).unwrap_err()
}

fn rename(from: (Fid, &str), to: (Fid, &str), flags: u32) -> Op {
    Op::Rename { parent: from.0, name: name(from.1), to_parent: to.0, to_name: name(to.1), flags }
}

fn create(parent: Fid, what: &str, node: Node) -> Op {
    Op::Create { parent, name: name(what), node, mode: 0o777, umask: 0o022, uid: 5, gid: 6, open: false }
}

#[test]
fn names_that_are_there_or_not() {
    let unlink = |n| Op::Unlink { parent: ROOT, name: name(n) };
    let rmdir = |n| Op::Rmdir { parent: ROOT, name: name(n) };
    for (op, errno) in [
        (create(ROOT, "file", Node::File), Errno::EEXIST),
        (create(ROOT, "empty", Node::Dir), Errno::EEXIST),
        (unlink("x"), Errno::ENOENT),
        (unlink("empty"), Errno::EISDIR),
        (rmdir("x"), Errno::ENOENT),
        (rmdir("file"), Errno::ENOTDIR),
        (rmdir("full"), Errno::ENOTEMPTY),
        (Op::Link { fid: EMPTY, parent: ROOT, name: name("x") }, Errno::EPERM),
        (Op::Link { fid: FILE, parent: ROOT, name: name("a") }, Errno::EEXIST),
        (Op::Link { fid: NAMELESS, parent: ROOT, name: name("x") }, Errno::ENOENT),
    ] {
        assert_eq!(refused(&op), errno, "{op:?}");
    }
    assert!(matches!(case().change(&rmdir("empty")), Change::Rmdir { fid: EMPTY, .. }));
    assert!(matches!(case().decide(&rmdir("there")), Ok(Decision::RemoveElsewhere(e)) if e.fid == THERE));
}

#[test]
fn a_file_that_is_open_outlives_its_last_name() {
    let unlink = |n| Op::Unlink { parent: ROOT, name: name(n) };
    assert!(matches!(case().change(&unlink("file")), Change::Unlink { orphan: true, .. }));
    assert!(
        matches!(case().change(&unlink("a")), Change::Unlink { orphan: false, .. }),
        "it has another name"
    );
    let onto = |n: &str| case().change(&rename((FULL, "file2"), (ROOT, n), 0));
    assert!(matches!(onto("file"), Change::Rename { replaced: Some(r), .. } if r.orphan && r.fid == FILE));
    assert!(matches!(onto("b"), Change::Rename { replaced: Some(r), .. } if !r.orphan));
    let back = case().change(&rename((ROOT, "file"), (FULL, "file2"), 0));
    assert!(
        matches!(back, Change::Rename { replaced: Some(r), .. } if !r.orphan),
        "not the moved one counts"
    );
}

#[test]
fn what_a_rename_may_replace() {
    for (from, to, flags, errno) in [
        ((ROOT, "x"), (ROOT, "y"), 0, Errno::ENOENT),
        ((ROOT, "empty"), (ROOT, "full"), 0, Errno::ENOTEMPTY),
        ((ROOT, "file"), (ROOT, "empty"), 0, Errno::EISDIR),
        ((FULL, "file2"), (ROOT, "full"), 0, Errno::ENOTEMPTY),
        ((ROOT, "empty"), (ROOT, "file"), 0, Errno::ENOTDIR),
        ((ROOT, "file"), (ROOT, "a"), rename_flags::NOREPLACE, Errno::EEXIST),
        ((ROOT, "empty"), (ROOT, "full"), rename_flags::NOREPLACE, Errno::EEXIST),
        ((ROOT, "file"), (ROOT, "x"), rename_flags::EXCHANGE, Errno::ENOENT),
        ((ROOT, "file"), (ROOT, "x"), 3, Errno::EINVAL),
        ((ROOT, "file"), (THERE, "x"), 0, Errno::ESTALE),
        ((ROOT, "file"), (GONE, "x"), 0, Errno::ESTALE),
    ] {
        assert_eq!(refused(&rename(from, to, flags)), errno, "{from:?} {to:?} {flags}");
    }
    // It may have moved.
    let mut c = case();
    c.tree.pending = Some(DEEP);
    c.tree.names.insert((DEEP, "file3"), (FILE, SET));
    let out = rename((DEEP, "file3"), (ROOT, "full"), 0);
    assert!(matches!(c.decide(&out), Err(Errno::EISDIR)));
    c.tree.pending = None;
    assert!(matches!(c.decide(&out), Err(Errno::ENOTEMPTY)));
    let same = case().decide(&rename((ROOT, "a"), (ROOT, "b"), 0));
    assert!(matches!(same, Ok(Decision::Answer(Body::Done))), "two names of one file: nothing is done");
    let empty = case().change(&rename((ROOT, "full"), (ROOT, "empty"), 0));
    assert!(matches!(empty, Change::Rename { replaced: Some(r), .. } if r.dir && r.fid == EMPTY));
}

/// Its entry is this set's, whatever set it lives on.
#[test]
fn a_directory_of_another_set_gets_another_name() {
    let moved = |to| case().change(&rename((ROOT, "there"), to, 0));
    assert!(matches!(moved((ROOT, "x")), Change::Rename { fid: THERE, replaced: None, .. }));
    assert!(matches!(moved((FULL, "x")), Change::Rename { fid: THERE, to_parent: FULL, .. }));
    assert!(matches!(moved((ROOT, "empty")), Change::Rename { replaced: Some(r), .. } if r.fid == EMPTY));
    assert_eq!(refused(&rename((ROOT, "there"), (ROOT, "full"), 0)), Errno::ENOTEMPTY);
    for (a, b) in [("there", "empty"), ("empty", "there"), ("there", "file")] {
        let change = case().change(&rename((ROOT, a), (ROOT, b), rename_flags::EXCHANGE));
        assert!(matches!(change, Change::Exchange { .. }), "{a} {b}");
    }
}

/// Its set says whether it is empty.
#[test]
fn a_directory_of_another_set_gives_way_when_that_set_agrees() {
    let onto = rename((ROOT, "full"), (ROOT, "there"), 0);
    assert!(matches!(case().decide(&onto), Ok(Decision::RemoveElsewhere(e)) if e.fid == THERE));
    assert_eq!(refused(&rename((ROOT, "file"), (ROOT, "there"), 0)), Errno::EISDIR);
    let mut c = Case { placed: Some((OTHER, theirs(9))), ..case() };
    assert!(matches!(c.decide(&onto), Ok(Decision::RemoveElsewhere(_))), "it agreed about another one");
    c.placed = Some((OTHER, THERE));
    assert!(matches!(c.change(&onto), Change::Rename { replaced: Some(r), .. } if r.dir && r.fid == THERE));
    // What lies above comes first: the other set is asked under the lock.
    let mut c = case();
    c.tree.names.insert((BENEATH, "there"), (theirs(8), OTHER));
    let onto = rename((ROOT, "full"), (BENEATH, "there"), 0);
    assert!(matches!(c.decide(&onto), Ok(Decision::AskAbove(THERE, OTHER))));
}

#[test]
fn no_directory_moves_beneath_itself() {
    let into = |dir| rename((ROOT, "full"), (dir, "x"), 0);
    assert_eq!(refused(&into(DEEP)), Errno::EINVAL);
    assert_eq!(refused(&into(FULL)), Errno::EINVAL);
    let exchange = |from, to| rename(from, to, rename_flags::EXCHANGE);
    assert_eq!(refused(&exchange((DEEP, "x"), (ROOT, "full"))), Errno::ENOENT);
    let mut c = case();
    c.tree.names.insert((DEEP, "x"), (EMPTY, SET));
    assert_eq!(c.decide(&exchange((DEEP, "x"), (ROOT, "full"))), Err(Errno::EINVAL), "the target moves, too");
}

#[test]
fn what_lies_above_another_sets_directory_is_asked_for() {
    let into = rename((ROOT, "full"), (BENEATH, "x"), 0);
    assert!(matches!(case().decide(&into), Ok(Decision::AskAbove(THERE, OTHER))));
    let mut c = case();
    c.above.insert(THERE, vec![theirs(2), FULL, theirs(3)]);
    assert_eq!(c.decide(&into), Err(Errno::EINVAL), "the moved one is among them");
    c.above.insert(THERE, vec![theirs(2), EMPTY]);
    assert!(matches!(c.decide(&into), Ok(Decision::Change(Change::Rename { .. }, None))));
}

#[test]
fn mode_and_group_of_what_is_made() {
    let made = |parent, node| match case().change(&create(parent, "x", node)) {
        Change::Create { mode, gid, fid, .. } if fid == (Fid { set: SET, epoch: Epoch(3), lsn: Lsn(77) }) => {
            (mode, gid)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(made(ROOT, Node::File), (0o755, 6), "the umask counts");
    assert_eq!(
        made(GROUP, Node::File),
        (0o777, 33),
        "a default ACL stands for the umask; the group is inherited"
    );
    assert_eq!(made(GROUP, Node::Dir), (0o2777, 33), "and goes on to directories");
}

#[test]
fn writes_and_sizes() {
    let write = |append, kill_suid| Op::Write { fid: FILE, offset: 3, append, kill_suid };
    let mut c = case();
    c.payload = b"abc";
    assert!(matches!(c.change(&write(false, false)), Change::Write { offset: 3, len: 3, mode: None, .. }));
    assert!(matches!(c.change(&write(true, false)), Change::Write { offset: 10, len: 3, .. }), "at the end");
    assert!(matches!(c.change(&write(false, true)), Change::Write { mode: Some(0o755), .. }), "setuid goes");
    let size = |size| Op::SetAttr { fid: FILE, set: SetAttr { size: Some(size), ..set_nothing() } };
    for n in [3, 10, 30] {
        let stamped = c.change(&size(n));
        assert!(matches!(stamped, Change::SetAttr { mtime: Some(NOW), time: NOW, .. }), "{stamped:?}");
    }
    let of_dir = Op::SetAttr { fid: EMPTY, set: SetAttr { size: Some(1), ..set_nothing() } };
    assert_eq!(refused(&of_dir), Errno::EISDIR);
}

fn set_nothing() -> SetAttr {
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false }
}

#[test]
fn copies_within_and_between_files() {
    let copy =
        |from, from_offset, to, to_offset, len| Op::CopyRange { from, from_offset, to, to_offset, len };
    for (op, len) in
        [(copy(FILE, 0, TWICE, 0, 4), 4), (copy(FILE, 4, TWICE, 0, 100), 6), (copy(FILE, 0, FILE, 4, 4), 4)]
    {
        assert_eq!(case().change(&op).amount(), len, "{op:?}");
    }
    assert_eq!(refused(&copy(FILE, 0, FILE, 3, 4)), Errno::EINVAL, "they overlap");
    assert_eq!(refused(&copy(FILE, 3, FILE, 0, 4)), Errno::EINVAL, "they overlap");
    assert_eq!(refused(&copy(theirs(5), 0, FILE, 0, 4)), Errno::EXDEV);
    assert_eq!(refused(&copy(GONE, 0, FILE, 0, 4)), Errno::ESTALE);
    assert!(matches!(
        case().decide(&copy(FILE, 10, TWICE, 0, 4)),
        Ok(Decision::Answer(Body::Offset { offset: 0 }))
    ));
}

#[test]
fn a_directory_is_prepared_for_its_removal_if_it_is_empty_and_free() {
    let prepare = |fid| Op::PrepareRmdir { fid, by: SessionId(7) };
    assert_eq!(refused(&prepare(FULL)), Errno::ENOTEMPTY);
    assert_eq!(refused(&prepare(FILE)), Errno::ENOTDIR);
    assert!(matches!(case().change(&prepare(EMPTY)), Change::PrepareRmdir { fid: EMPTY }));
    let mut held = case();
    held.tree.pending = Some(EMPTY);
    assert_eq!(held.decide(&prepare(EMPTY)), Err(Errno::EAGAIN), "by a transaction that nobody knows");
    let end = |tx| Op::EndTransaction { fid: EMPTY, tx, keep: true };
    assert!(matches!(held.decide(&end(Some(TX))), Ok(Decision::Answer(Body::Done))), "another one's end");
    assert!(matches!(held.change(&end(None)), Change::EndTransaction { fid: EMPTY, keep: true }));
    assert!(matches!(case().decide(&end(None)), Ok(Decision::Answer(Body::Done))), "it is over");
}

/// A power cut took the end of the transaction that made it, and its entry: what was made in it since is there.
#[test]
fn a_marked_directory_that_is_not_empty_is_not_removed() {
    for (fid, kept) in [(EMPTY, false), (FULL, true)] {
        let mut held = case();
        held.tree.pending = Some(fid);
        let end = Op::EndTransaction { fid, tx: None, keep: false };
        assert!(matches!(held.change(&end), Change::EndTransaction { keep, .. } if keep == kept), "{fid}");
    }
}
