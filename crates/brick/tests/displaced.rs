//! The entry of a directory that lives on another set than its parent is known in lost+found too.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::partners::*;
use crate::common::*;
use brick::{Brick, DirLocation};
use ids::{Epoch, Fid, Lsn, SetId};
use namespace::TreeState;
use std::path::Path;
use wire::op::Ancestor;
use wire::peer::Stamp;
use wire::{Change, Errno};

const THEIRS: SetId = SetId(2);
const TOP: Fid = Fid { set: THEIRS, epoch: Epoch(1), lsn: Lsn(1) };
const INTENT: &str = disk_format::tag::INTENT;

fn ours(n: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) }
}

/// Bricks of a set that has no root of its own.
fn placed_brick(dir: &Path, n: u32) -> Brick {
    let path = dir.join(format!("b{n}"));
    brick::format(&path, &placed_identity(n), ids::Time::default()).unwrap();
    open(&path, &placed_identity(n))
}

fn placed_identity(n: u32) -> disk_format::Identity {
    disk_format::Identity { root: Fid::root(THEIRS), root_home: THEIRS, ..identity(n) }
}

fn prepare(path: &[(Fid, &str)], n: &str, fid: Fid) -> Change {
    let path = path.iter().map(|(fid, n)| Ancestor { fid: *fid, name: name(n), home: THEIRS }).collect();
    Change::PrepareMkdir { path, name: name(n), fid, mode: 0o755, uid: 0, gid: 0, time: time(5) }
}

fn keep(fid: Fid) -> Change {
    Change::EndTransaction { fid, keep: true }
}

/// `ours(2)` is being removed when another directory gets its name, `ours(6)` when its copied parent's name is another
/// directory's; `ours(12)` finds its name taken.
fn history() -> Vec<Change> {
    vec![
        Change::Nop,
        prepare(&[(TOP, "top")], "d", ours(2)),
        keep(ours(2)),
        Change::PrepareRmdir { fid: ours(2) },
        prepare(&[(TOP, "top")], "d", ours(5)),
        prepare(&[], "e", ours(6)),
        prepare(&[(Fid { lsn: Lsn(3), ..TOP }, "e")], "x", ours(7)),
        keep(ours(7)),
        keep(ours(5)),
        prepare(&[(TOP, "top")], "d", ours(10)),
        keep(ours(10)),
        Change::PrepareRmdir { fid: ours(10) },
    ]
}

fn check_locations(b: &mut Brick, case: &str) {
    let root = Fid::root(THEIRS);
    for (n, parent, entry) in [(2, TOP, "d"), (6, root, "e"), (10, TOP, "d"), (5, TOP, "d")] {
        let wanted = DirLocation { home: SET, parent, parent_home: THEIRS, name: name(entry) };
        assert_eq!(b.location_of(ours(n)), Ok(wanted), "{case}: {n}");
    }
    assert_eq!(b.listxattr(ours(2)), Ok(vec![]), "users do not see it");
}

/// A directory hangs where the set says that has its entry: its own set knows which one that is, also in lost+found.
#[test]
fn what_lies_above_is_known_up_to_an_entry_of_another_set() {
    let t = temp();
    let mut b = placed_brick(t.path(), 1);
    applied(&mut b, &history());
    let above = |b: &mut Brick, fid| b.lineage(fid).map(|l| (l.own, l.other));
    for n in [5, 2, 10] {
        assert_eq!(above(&mut b, ours(n)), Ok((vec![ours(n)], Some((ours(n), THEIRS)))), "{n}");
    }
    assert_eq!(above(&mut b, TOP), Err(Errno::ESTALE), "neither it nor its entry is ours");
    let make = |parent, n: &str, fid: Fid| {
        let (home, node, time) = (fid.set, wire::op::Node::Dir, time(6));
        Change::Create { parent, name: name(n), fid, home, node, mode: 0o755, uid: 0, gid: 0, time }
    };
    let far = Fid { lsn: Lsn(30), ..TOP };
    applied(&mut b, &[make(ours(5), "sub", ours(13)), make(ours(13), "far", far)]);
    let wanted = (vec![far, ours(13), ours(5)], Some((ours(5), THEIRS)));
    assert_eq!(above(&mut b, far), Ok(wanted), "its entry is ours");
}

/// A directory that found its name taken waits for its path in lost+found, and comes there when somebody tells it. One that a
/// transaction has marked waits for that.
#[test]
fn a_directory_in_lost_and_found_waits_for_its_path() {
    let t = temp();
    let mut b = placed_brick(t.path(), 1);
    let (marked, before) = (Change::PrepareRmdir { fid: ours(10) }, history());
    assert_eq!(before.last(), Some(&marked));
    applied(&mut b, &before[..before.len() - 1]);
    let asks = |b: &mut Brick, n| set_core::LocalBrick::has_entry_elsewhere(b, ours(n));
    let path = vec![Ancestor { fid: TOP, name: name("top"), home: THEIRS }];
    assert!(asks(&mut b, 10) && !b.is_at_path(ours(10), &path, &name("d")).unwrap());
    let moved = Change::Relocate { fid: ours(10), path: path.clone(), name: name("new") };
    applied(&mut b, &[marked, moved.clone()]);
    assert!(asks(&mut b, 10) && !b.is_at_path(ours(10), &path, &name("new")).unwrap(), "marked");
    applied(&mut b, &[keep(ours(10))]);
    assert!(asks(&mut b, 5) && b.is_at_path(ours(5), &path, &name("d")).unwrap());
    assert!(!asks(&mut b, 99), "it is not there");
    assert!(!set_core::LocalBrick::has_entry_elsewhere(&mut b, Fid::root(THEIRS)));
    applied(&mut b, &[moved]);
    assert!(b.is_at_path(ours(10), &path, &name("new")).unwrap());
    assert!(t.path().join("b1/top/new").is_dir());
}

/// A directory of ours hangs beneath a copy that it does not belong to any more: the copy's entry moves into it.
#[test]
fn a_directory_moves_into_one_that_hangs_beneath_it_here_only() {
    let t = temp();
    let mut b = new_brick(t.path(), 1);
    let root = Fid::root(SET);
    let make = |n: &str, fid: Fid| {
        let (home, node, time) = (fid.set, wire::op::Node::Dir, time(6));
        Change::Create { parent: root, name: name(n), fid, home, node, mode: 0o755, uid: 0, gid: 0, time }
    };
    let to = |n: &str, fid, to_parent, to_name: &str| {
        let (parent, name, to_name) = (root, name(n), name(to_name));
        Change::Rename { parent, name, fid, to_parent, to_name, replaced: None, time: time(7) }
    };
    let beneath = |n: u64, fid| {
        prepare(&[(Fid { lsn: Lsn(40 + n), ..TOP }, ["a", "b"][usize::from(n == 1)])], "d", fid)
    };
    let copy = |n: u64| Fid { lsn: Lsn(40 + n), ..TOP };
    applied(&mut b, &[make("a", copy(0)), make("b", copy(1)), make("c", ours(3)), make("e", ours(4))]);
    applied(&mut b, &[beneath(0, ours(5)), keep(ours(5)), beneath(1, ours(7)), keep(ours(7))]);
    applied(&mut b, &[to("a", copy(0), ours(5), "x")]);
    assert_eq!(in_lost_found(t.path(), 1), 1);
    let hidden = format!("{:08x}{:08x}{:016x}", SET.0, 1, 5);
    assert!(t.path().join("b1/.mortar/limbo").join(hidden).join("x").is_dir());
    let kept = DirLocation { home: SET, parent: copy(0), parent_home: THEIRS, name: name("d") };
    assert_eq!(b.location_of(ours(5)), Ok(kept));
    let exchange = Change::Exchange {
        parent: root,
        name: name("b"),
        fid: copy(1),
        to_parent: ours(7),
        to_name: name("y"),
        to_fid: ours(15),
        time: time(8),
    };
    let inner = Change::Create {
        parent: ours(7),
        name: name("y"),
        fid: ours(15),
        home: SET,
        node: wire::op::Node::Dir,
        mode: 0o755,
        uid: 0,
        gid: 0,
        time: time(7),
    };
    applied(&mut b, &[inner, exchange]);
    assert_eq!(in_lost_found(t.path(), 1), 2);
    assert_eq!(b.lookup(ours(7), &name("y")).unwrap().unwrap().fid, copy(1));
    assert_eq!(b.lookup(root, &name("b")).unwrap().unwrap().fid, ours(15));
    // What is above it here in truth is refused by the rules, and by the brick.
    let s = stamp(b.last().lsn.0 + 1);
    assert!(b.apply(s, OP, None, &to("c", ours(3), ours(3), "z"), b"").is_err());
}

fn in_lost_found(dir: &Path, n: u32) -> usize {
    dir.join(format!("b{n}/.mortar/limbo")).read_dir().unwrap().count()
}

fn applied(b: &mut Brick, changes: &[Change]) {
    for c in changes {
        let s = stamp(b.last().lsn.0 + 1);
        b.apply(s, OP, None, c, b"").unwrap();
    }
}

#[test]
fn the_entry_of_a_directory_that_lost_its_place_outlives_a_restart() {
    let dir = temp();
    let mut b = placed_brick(dir.path(), 1);
    applied(&mut b, &history());
    assert_eq!(in_lost_found(dir.path(), 1), 3);
    check_locations(&mut b, "at once");
    b.close().unwrap();
    let mut b = open(&dir.path().join("b1"), &placed_identity(1));
    check_locations(&mut b, "after a restart");
    // A copy of another set's directory has none.
    applied(&mut b, &[prepare(&[(TOP, "other")], "y", ours(13))]);
    b.close().unwrap();
}

/// Whatever a brick has missed, it knows the entries as the one does from which it heals.
#[test]
fn the_entry_of_a_directory_that_lost_its_place_is_healed() {
    let history = history();
    for (full, from) in [false, true].into_iter().flat_map(|full| (1..=history.len()).map(move |n| (full, n)))
    {
        let dir = temp();
        let (mut p, mut j) = (placed_brick(dir.path(), 1), placed_brick(dir.path(), 2));
        applied(&mut p, &history);
        applied(&mut j, &history[..from]);
        let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { j.last() };
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        let case = format!("missed from {from} on, full: {full}");
        assert_eq!(in_lost_found(dir.path(), 2), 3, "{case}");
        check_locations(&mut j, &case);
        drop(j);
        check_locations(&mut open(&dir.path().join("b2"), &placed_identity(2)), &case);
    }
}

/// A copy gave way to a directory that is elsewhere by now. Who was away then has it where it was; what hangs on it is to
/// hang where the others have it.
#[test]
fn what_hangs_on_a_copy_is_healed_to_where_the_copy_is() {
    let before = vec![Change::Nop, prepare(&[(TOP, "top")], "d", ours(2)), keep(ours(2))];
    let elsewhere = Change::Relocate { fid: ours(4), path: Vec::new(), name: name("f") };
    let missed = vec![prepare(&[], "top", ours(4)), keep(ours(4)), elsewhere, Change::Touch { fid: ours(2) }];
    let dir = temp();
    let (mut p, mut j) = (placed_brick(dir.path(), 1), placed_brick(dir.path(), 2));
    applied(&mut p, &[before.clone(), missed].concat());
    applied(&mut j, &before);
    assert!(!dir.path().join("b1/top").exists() && dir.path().join("b2/top/d").is_dir());
    let common = j.last();
    let mut healing = accept_join(&mut p, &mut j, &common, false);
    heal_all(&mut p, &mut j, &mut healing);
    assert!(dir.path().join("b2/f").is_dir());
    assert!(!dir.path().join("b2/top").exists(), "the copy gave way here too");
    assert_eq!(in_lost_found(dir.path(), 1), in_lost_found(dir.path(), 2));
}

/// A power cut took a copy its tag, and the index does not know the one beneath it: both are made again, and what hangs on
/// the old ones comes to the new ones.
#[test]
fn what_hangs_on_copies_that_a_power_cut_took_is_healed_to_the_new_ones() {
    let made = [prepare(&[(TOP, "top")], "d", ours(1)), keep(ours(1))];
    let [above, below] = [8, 9].map(|n| Fid { lsn: Lsn(n), ..TOP });
    let path = [(TOP, "top"), (above, "a"), (below, "b")];
    let path = path.map(|(fid, n)| Ancestor { fid, name: name(n), home: THEIRS });
    let moved = Change::Relocate { fid: ours(1), path: path.to_vec(), name: name("d") };
    let dir = temp();
    let (mut p, mut j) = (placed_brick(dir.path(), 1), placed_brick(dir.path(), 2));
    for b in [&mut p, &mut j] {
        applied(b, &made);
        b.begin_sync(None).unwrap().run().unwrap();
        applied(b, &[moved.clone(), Change::Touch { fid: ours(1) }]);
    }
    drop(j);
    let old = dir.path().join("b2/.mortar/limbo/unknown-1-0");
    std::fs::rename(dir.path().join("b2/top/a"), &old).unwrap();
    rustix::fs::lremovexattr(&old, disk_format::tag::XATTR).unwrap();
    let mut j = open(&dir.path().join("b2"), &placed_identity(2));
    assert!(j.attr(ours(1)).is_ok() && j.location_of(below).is_err());
    let object = p.object(ours(1)).unwrap().unwrap();
    assert!(j.take_object(ours(1), &object, None, true).unwrap());
    assert!(dir.path().join("b2/top/a/b/d").is_dir() && !old.join("b/d").exists());
}

/// Who has no room for it beside the users' attributes keeps its place; the newcomer waits in lost+found.
#[test]
fn a_directory_whose_entry_does_not_fit_beside_it_keeps_its_place() {
    let dir = temp();
    let mut b = placed_brick(dir.path(), 1);
    let [nop, made, kept, marked, newcomer, ..] = &history()[..] else { panic!() };
    applied(&mut b, &[nop.clone(), made.clone(), kept.clone()]);
    let path = dir.path().join("b1/top/d");
    let flags = rustix::fs::XattrFlags::empty();
    let fits = |len| rustix::fs::lsetxattr(&path, "user.large", &vec![b'x'; len], flags).is_ok();
    if fits(4096) {
        return; // This file system has room for any.
    }
    (1..4096).rev().find(|len| fits(*len)).unwrap();
    applied(&mut b, &[marked.clone(), newcomer.clone()]);
    assert_eq!(in_lost_found(dir.path(), 1), 1);
    for n in [2, 5] {
        let wanted = DirLocation { home: SET, parent: TOP, parent_home: THEIRS, name: name("d") };
        assert_eq!(b.location_of(ours(n)), Ok(wanted), "{n}");
    }
    assert!(rustix::fs::lgetxattr(&path, INTENT, &mut [0u8; 512][..]).is_err());
}

#[test]
fn a_check_says_where_a_directory_that_lost_its_place_belongs() {
    let dir = temp();
    let path = dir.path().join("b1");
    let mut b = placed_brick(dir.path(), 1);
    applied(&mut b, &history());
    b.close().unwrap();
    let hidden = |n: u64| format!(".mortar/limbo/00000001000000010000000{n:09x}");
    let said = |n, repair| {
        let report = brick::check(&path, repair).unwrap();
        let of = report.problems.iter().filter(|p| p.path == Path::new(&hidden(n)));
        of.map(|p| p.problem.clone()).collect::<Vec<_>>()
    };
    let entry = format!("a directory that lost its place; its entry is d in directory {TOP} of set #2");
    assert_eq!(said(2, false), [entry]);
    // A damaged one is healed.
    let file = path.join(hidden(2));
    rustix::fs::lsetxattr(&file, INTENT, b"\x01rubbish", rustix::fs::XattrFlags::empty()).unwrap();
    let lost = "a directory that lost its place".to_owned();
    assert_eq!(said(2, true), [lost.clone(), "what is kept of its entry is damaged".to_owned()]);
    let unknown = format!("{lost}; it waits for its entry, and nothing says which that is");
    assert_eq!(said(2, false), [unknown]);
    let mut j = open(&path, &placed_identity(1));
    assert_eq!(j.stale_set().unwrap().objects, [ours(2)]);
    assert_eq!(j.location_of(ours(2)), Err(Errno::ESTALE));
    let mut p = placed_brick(dir.path(), 2);
    applied(&mut p, &history());
    let common = j.last();
    let mut healing = accept_join(&mut p, &mut j, &common, false);
    heal_all(&mut p, &mut j, &mut healing);
    check_locations(&mut j, "healed");
}

/// Directories of other sets, by their numbers, and the path that they make.
fn theirs(path: &[(u64, &str)]) -> Vec<Ancestor> {
    let fid = |n| Fid { lsn: Lsn(n), ..TOP };
    path.iter().map(|(n, s)| Ancestor { fid: fid(*n), name: name(s), home: THEIRS }).collect()
}

fn placed(path: &[(u64, &str)], n: &str, fid: Fid) -> [Change; 2] {
    let (path, name, time) = (theirs(path), name(n), time(5));
    [Change::PrepareMkdir { path, name, fid, mode: 0o755, uid: 0, gid: 0, time }, keep(fid)]
}

/// Other sets renamed what lies above, and each name has been something else's: whoever is told its path comes there, and what
/// held it until then waits, and comes to its own.
#[test]
fn what_hangs_on_copies_comes_to_its_path_whoever_held_that() {
    let t = temp();
    let mut b = placed_brick(t.path(), 1);
    applied(&mut b, &placed(&[(1, "a"), (2, "b")], "d", ours(2)));
    applied(&mut b, &placed(&[(1, "a"), (2, "b")], "e", ours(4)));
    applied(&mut b, &placed(&[(1, "a")], "f", ours(6)));
    // b/a instead of a/b; d and e changed places, and f has the name that b had.
    let at = |n: u64| match n {
        2 => (theirs(&[(2, "b")]), name("e")),
        4 => (theirs(&[(2, "b")]), name("d")),
        _ => (theirs(&[(2, "b"), (1, "a")]), name("b")),
    };
    for round in 0..2 {
        for n in [2, 4, 6] {
            let (path, name) = at(n);
            applied(&mut b, &[Change::Relocate { fid: ours(n), path: path.clone(), name: name.clone() }]);
            assert!(b.is_at_path(ours(n), &path, &name).unwrap(), "{round}: {n}");
            // In the first round one has displaced the other.
            assert_eq!(in_lost_found(t.path(), 1), usize::from(round == 0 && n == 2), "{round}: {n}");
        }
    }
    for n in [2, 4, 6] {
        let (path, name) = at(n);
        assert!(b.is_at_path(ours(n), &path, &name).unwrap());
    }
    assert!(["e", "d", "a/b"].iter().all(|n| t.path().join("b1/b").join(n).is_dir()));
    assert!(!t.path().join("b1/a").exists());
}

/// A directory of this set in the path of another one comes to its place with it, unless a transaction has marked it.
#[test]
fn what_lies_above_comes_along() {
    for marked in [false, true] {
        let t = temp();
        let mut b = placed_brick(t.path(), 1);
        applied(&mut b, &placed(&[(1, "a")], "d", ours(2)));
        let above = Ancestor { fid: ours(2), name: name("d"), home: SET };
        let far = Change::Create {
            parent: ours(2),
            name: name("c"),
            fid: Fid { lsn: Lsn(3), ..TOP },
            home: THEIRS,
            node: wire::op::Node::Dir,
            mode: 0o755,
            uid: 0,
            gid: 0,
            time: time(6),
        };
        let copy = theirs(&[(3, "c")]).remove(0);
        let path = vec![theirs(&[(1, "a")]).remove(0), above.clone(), copy.clone()];
        let time = time(5);
        let inner =
            Change::PrepareMkdir { path, name: name("x"), fid: ours(4), mode: 0, uid: 0, gid: 0, time };
        applied(&mut b, &[far, inner, keep(ours(4))]);
        if marked {
            applied(&mut b, &[Change::PrepareRmdir { fid: ours(2) }]);
        }
        let path = [theirs(&[(7, "new")]), vec![Ancestor { name: name("moved"), ..above }, copy]].concat();
        applied(&mut b, &[Change::Relocate { fid: ours(4), path: path.clone(), name: name("y") }]);
        let (here, there) = (t.path().join("b1/a/d/c/y"), t.path().join("b1/new/moved/c/y"));
        assert_eq!((here.is_dir(), there.is_dir()), (marked, !marked));
    }
}
