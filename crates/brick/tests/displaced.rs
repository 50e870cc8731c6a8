//! The entry of a directory that lives on another set than its parent is known in lost+found too.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use brick::{Brick, DirLocation};
use common::partners::*;
use common::*;
use ids::{Epoch, Fid, Lsn, SetId};
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
    brick::format(&path, &placed_identity(n)).unwrap();
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
    let entry = format!("a directory that lost its place; its entry is d in directory {TOP} of set 2");
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
