//! Files with names in directories of other sets: how stubs and folders of names lie on a brick, and that they are found again,
//! healed and checked like everything else.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::partners::*;
use crate::common::*;
use brick::{Arriving, Brick};
use disk_format::tag::{INTENT, encode_intent};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use namespace::{Entry, TreeState};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wire::change::{DirTimes, Replaced, directories};
use wire::codec::Blob;
use wire::op::{COPY_NAMES, EntryName, Intent, Node, encode_names};
use wire::peer::Stamp;
use wire::{Attr, Change, Errno, Name, Op};

const OTHER: SetId = SetId(2);
/// A directory of the other set.
const FAR: Fid = there(90);
const TX: OpId = OpId { session: SessionId(3), seq: 8 };

const fn there(n: u64) -> Fid {
    Fid { set: OTHER, epoch: Epoch(4), lsn: Lsn(n) }
}

fn at(dir: Fid, s: &str) -> EntryName {
    EntryName { dir, name: name(s) }
}

fn two() -> (tempfile::TempDir, Set) {
    let t = temp();
    let bricks = vec![new_brick(t.path(), 1), new_brick(t.path(), 2)];
    (t, Set::new(bricks))
}

fn enter(parent: Fid, s: &str, fid: Fid, kind: u32, replaced: Option<Replaced>) -> Change {
    Change::Enter { parent, name: name(s), fid, home: OTHER, kind, replaced, time: time(500) }
}

fn prepare(fid: Fid, drop: Option<EntryName>, add: Option<EntryName>) -> Change {
    Change::PrepareFile { fid, intent: Intent { tx: TX, coordinator: OTHER, drop, add } }
}

fn end(fid: Fid, drop: Option<EntryName>, add: Option<EntryName>, orphan: bool) -> Change {
    Change::EndFile { fid, drop, add, orphan, time: time(600) }
}

fn leave(fid: Fid, drop: Option<EntryName>) -> Change {
    Change::PrepareLeave { fid, intent: Intent { tx: TX, coordinator: OTHER, drop, add: None } }
}

fn come_home(parent: Fid, s: &str, fid: Fid, copy: Fid) -> Change {
    let (mtime, ctime, time) = (time(700), time(700), time(800));
    Change::ComeHome { parent, name: name(s), fid, copy, mtime, ctime, time }
}

/// The users' tree, and what is in folders of names. Of stubs only their home knows times, and nobody asks for those of folders of
/// names; what Mortar notes beside objects may lag behind.
fn whole(path: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut all = tree(path);
    let lost_found = tree_of(&path.join(".mortar/limbo"));
    all.extend(lost_found.into_iter().map(|(p, s)| (Path::new("lost+found").join(p), s)));
    // The folder itself is no object: its times are the kernel's.
    all.remove(Path::new("lost+found/"));
    for (path, seen) in &mut all {
        seen.xattrs.retain(|name, _| !name.starts_with(b"trusted.mortar."));
        let folder = path.starts_with("lost+found") && seen.mode & 0o170_000 == 0o040_000;
        if folder || seen.mode == 0o101_000 {
            seen.mtime = (0, 0);
        }
    }
    all
}

fn tree_of(top: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut out = BTreeMap::new();
    walk(top, top, &mut out);
    out
}

/// The bricks are alike, and a check finds nothing wrong; they are opened anew.
fn reopened(t: &tempfile::TempDir, mut s: Set) -> Set {
    for b in &mut s.bricks {
        b.flush_attrs().unwrap();
    }
    let path = |n: usize| t.path().join(format!("b{n}"));
    assert_eq!(whole(&path(1)), whole(&path(2)));
    for b in s.bricks.drain(..) {
        let path = b.path().to_path_buf();
        b.close().unwrap();
        let report = brick::check(&path, false).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
    s.bricks = (1..=2).map(|n| open(&path(n), &identity(u32::try_from(n).unwrap()))).collect();
    s
}

fn entry(s: &mut Set, dir: Fid, n: &str) -> Option<Entry> {
    let all: Vec<_> = s.bricks.iter_mut().map(|b| b.entry(dir, &name(n)).unwrap()).collect();
    assert_eq!(all[0], all[1]);
    all[0]
}

fn on_disk(s: &Set, path: &str) -> Seen {
    whole(s.bricks[0].path()).remove(Path::new(path)).unwrap()
}

/// Whoever shows the page leaves out what is about to change.
#[test]
fn a_page_tells_that_a_file_is_marked() {
    let (t, mut s) = two();
    let f = s.file(ROOT, "f");
    let marked =
        |s: &mut Set| set_core::LocalBrick::readdir(&mut s.bricks[0], ROOT, 0, true, 4096).unwrap().marked;
    assert!(!marked(&mut s));
    s.apply(&prepare(f, None, Some(at(FAR, "f"))), b"").unwrap();
    for _ in 0..2 {
        assert!(marked(&mut s));
        s = reopened(&t, s);
    }
    s.apply(&end(f, None, None, false), b"").unwrap();
    assert!(!marked(&mut s));
}

#[test]
fn a_stub_stands_for_a_file_of_another_set() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    let (file, link) = (there(5), there(6));
    let stands = |fid, kind| Some(Entry { fid, home: OTHER, kind });
    s.apply(&enter(d, "s", file, 0o100_000, None), b"").unwrap();
    s.apply(&enter(ROOT, "s2", file, 0o100_000, None), b"").unwrap();
    s.apply(&enter(d, "l", link, 0o120_000, None), b"").unwrap();
    for _ in 0..2 {
        assert_eq!(entry(&mut s, d, "s"), stands(file, 0o100_000));
        assert_eq!(entry(&mut s, ROOT, "s2"), stands(file, 0o100_000));
        assert_eq!(entry(&mut s, d, "l"), stands(link, 0o120_000));
        assert_eq!(s.bricks[0].attr(file), Err(Errno::ESTALE), "its home knows what it is like");
        let stub = on_disk(&s, "d/s");
        assert_eq!((stub.mode, stub.nlink, stub.content), (0o101_000, 2, vec![]));
        assert_eq!(on_disk(&s, "d/l").mode, 0o101_000);
        s = reopened(&t, s);
    }
    // Listed with its kind and without attributes.
    let (listed, end) = s.bricks[0].readdir(d, 0, true, 65536).unwrap();
    let seen = listed.iter().find(|e| e.name == name("l")).unwrap();
    assert!(end && seen.kind == 0o120_000 && seen.home == OTHER && seen.attr.is_none(), "{seen:?}");
    // Another takes the place of an own file, one of the other set that of a stub.
    let out = |fid| Some(Replaced { fid, dir: false, orphan: false });
    s.apply(&enter(d, "f", there(7), 0o100_000, out(f)), b"").unwrap();
    assert_eq!(s.bricks[1].attr(f), Err(Errno::ESTALE));
    s.apply(&enter(d, "l", there(8), 0o100_000, out(link)), b"").unwrap();
    assert_eq!(entry(&mut s, d, "l"), stands(there(8), 0o100_000));
    let (parent, to_parent) = (d, ROOT);
    let (from, to) = (name("s"), name("moved"));
    let rename = Change::Rename {
        parent,
        name: from,
        fid: file,
        to_parent,
        to_name: to,
        replaced: None,
        time: time(501),
    };
    s.apply(&rename, b"").unwrap();
    assert_eq!((entry(&mut s, d, "s"), entry(&mut s, ROOT, "moved")), (None, stands(file, 0o100_000)));
    s = reopened(&t, s);
    // All names of one go; later the same file comes again.
    for n in ["moved", "s2"] {
        let gone = Change::Unlink { parent: ROOT, name: name(n), fid: file, orphan: false, time: time(502) };
        s.apply(&gone, b"").unwrap();
    }
    assert_eq!(entry(&mut s, ROOT, "s2"), None);
    s.apply(&enter(ROOT, "again", file, 0o100_000, None), b"").unwrap();
    assert_eq!(on_disk(&s, "again").nlink, 1);
    s = reopened(&t, s);
    assert_eq!(entry(&mut s, ROOT, "again"), stands(file, 0o100_000));
}

#[test]
fn a_home_keeps_names_elsewhere_in_folders() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s.write(f, 0, b"content");
    let (old, new) = (at(d, "f"), at(FAR.names(), "x"));
    let folder = "lost+found/".to_owned() + &hidden(FAR.names());
    let change = prepare(f, Some(old.clone()), Some(new.clone()));
    s.bricks[0].validate(&change).unwrap();
    s.apply(&change, b"").unwrap();
    for _ in 0..2 {
        for b in &mut s.bricks {
            assert!(b.is_pending(f).unwrap());
            let Some(intent) = b.intent(f).unwrap() else { panic!("no intent") };
            assert_eq!((intent.tx, intent.drop, intent.add), (TX, Some(old.clone()), Some(new.clone())));
        }
        // Data goes on.
        s.write(f, 7, b"+");
        s = reopened(&t, s);
    }
    s.apply(&end(f, Some(old), Some(new.clone()), false), b"").unwrap();
    for _ in 0..2 {
        assert_eq!(entry(&mut s, d, "f"), None);
        assert_eq!(entry(&mut s, FAR.names(), "x").map(|e| e.fid), Some(f));
        for b in &mut s.bricks {
            assert!(!b.is_pending(f).unwrap());
            assert_eq!(b.intent(f).unwrap(), None);
            assert_eq!((b.attr(f).unwrap().nlink, b.attr(f).unwrap().ctime), (1, time(600)));
        }
        assert_eq!(on_disk(&s, &format!("{folder}/x")).content, b"content+");
        s = reopened(&t, s);
    }
    // A second name at home, and one more elsewhere; then all go, and the folder with the last.
    s.run(&Op::Link { fid: f, parent: ROOT, name: name("l") }, b"").unwrap();
    let more = at(FAR.names(), "y");
    s.apply(&prepare(f, None, Some(more.clone())), b"").unwrap();
    s.apply(&end(f, None, Some(more.clone()), false), b"").unwrap();
    assert_eq!(s.bricks[1].attr(f).unwrap().nlink, 3);
    for name in [new, more] {
        s.apply(&prepare(f, Some(name.clone()), None), b"").unwrap();
        s.apply(&end(f, Some(name), None, false), b"").unwrap();
    }
    assert_eq!(s.bricks[1].attr(f).unwrap().nlink, 1);
    assert!(!whole(s.bricks[0].path()).keys().any(|p| p.starts_with("lost+found/")), "the folder is gone");
    reopened(&t, s);
}

/// While a folder of names is compared, the only name of it that the healing brick has goes.
#[test]
fn a_folder_of_names_goes_while_it_is_compared() {
    for full in [false, true] {
        // How many answers come before the change.
        for answers in 0..12 {
            let (t, mut s) = two();
            let (f, g) = (s.file(ROOT, "f"), s.file(ROOT, "g"));
            let far = |n: &str| Some(at(FAR.names(), n));
            s.apply(&prepare(g, Some(at(ROOT, "g")), far("g")), b"").unwrap();
            s.apply(&end(g, Some(at(ROOT, "g")), far("g"), false), b"").unwrap();
            let both = s.bricks[0].last();
            let mut j = s.bricks.pop().unwrap();
            // The other one was away.
            s.apply(&prepare(f, Some(at(ROOT, "f")), far("f")), b"").unwrap();
            s.apply(&end(f, Some(at(ROOT, "f")), far("f"), false), b"").unwrap();
            let mut p = s.bricks.pop().unwrap();
            let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { both };
            let mut healing = accept_join(&mut p, &mut j, &common, full);
            for _ in 0..answers {
                let Some(question) = healing.ask(&mut j) else { break };
                let (body, data) = answer(&mut p, &question);
                take(&mut healing, &mut j, &body, &data);
            }
            for change in [prepare(g, far("g"), None), end(g, far("g"), None, false)] {
                let stamp = Stamp { lsn: p.last().lsn.next(), ..p.last() };
                p.apply(stamp.clone(), OP, None, &change, b"").unwrap();
                let (stamp, change) = (&stamp, &change);
                let arriving = Arriving { stamp, op: OP, result_fid: None, change, payload: b"" };
                healing.apply(&mut j, arriving).unwrap();
            }
            heal_all(&mut p, &mut j, &mut healing);
            let mut s = Set::new(vec![p, j]);
            assert_eq!(entry(&mut s, FAR.names(), "f").map(|e| e.fid), Some(f), "{full}, {answers} answers");
            reopened(&t, s);
        }
    }
}

/// Within one healing a folder of names goes, comes back with the next name, and goes again.
#[test]
fn a_folder_of_names_goes_twice_in_one_healing() {
    let (t, mut s) = two();
    let folder = hidden(FAR.names());
    for n in 0..4 {
        // The same name again, and others.
        let (f, far) = (s.file(ROOT, &format!("f{n}")), at(FAR.names(), &format!("x{}", n / 2)));
        s.apply(&prepare(f, None, Some(far.clone())), b"").unwrap();
        s.apply(&end(f, None, Some(far), false), b"").unwrap();
        for b in &mut s.bricks {
            assert!(b.path().join(".mortar/limbo").join(&folder).exists());
            assert_eq!(b.take_nothing(FAR.names()), Ok(false));
            assert!(!b.path().join(".mortar/limbo").join(&folder).exists());
            let kept = std::fs::read_dir(b.path().join(".mortar/aside").join(&folder)).unwrap().count();
            assert_eq!(kept, n + 1, "each file keeps its names until the end");
        }
    }
    for b in &mut s.bricks {
        b.begin_end().unwrap().run().unwrap();
        assert_eq!(std::fs::read_dir(b.path().join(".mortar/aside")).unwrap().count(), 0);
        for n in 0..4 {
            assert_eq!(std::fs::metadata(b.path().join(format!("f{n}"))).unwrap().nlink(), 1);
        }
    }
    reopened(&t, s);
}

#[test]
fn a_transaction_that_was_given_up_leaves_the_names() {
    let (t, mut s) = two();
    let f = s.file(ROOT, "f");
    s.apply(&prepare(f, Some(at(ROOT, "f")), Some(at(FAR.names(), "x"))), b"").unwrap();
    s.apply(&end(f, None, None, false), b"").unwrap();
    s = reopened(&t, s);
    assert!(!s.bricks[0].is_pending(f).unwrap());
    assert_eq!(entry(&mut s, ROOT, "f").map(|e| e.fid), Some(f));
}

#[test]
fn the_last_name_elsewhere_leaves_an_orphan_to_who_has_it_open() {
    let (t, mut s) = two();
    let f = s.file(ROOT, "f");
    let far = at(FAR.names(), "x");
    s.apply(&prepare(f, Some(at(ROOT, "f")), Some(far.clone())), b"").unwrap();
    s.apply(&end(f, Some(at(ROOT, "f")), Some(far.clone()), false), b"").unwrap();
    s.apply(&prepare(f, Some(far.clone()), None), b"").unwrap();
    s.apply(&end(f, Some(far), None, true), b"").unwrap();
    s.write(f, 0, b"still written");
    s = reopened(&t, s);
    assert_eq!(s.bricks[1].attr(f).unwrap().nlink, 0);
    s.apply(&Change::DropOrphan { fid: f }, b"").unwrap();
    assert_eq!(s.bricks[1].attr(f), Err(Errno::ESTALE));
    reopened(&t, s);
}

/// A brick that missed all of it becomes like the one that went on.
#[test]
fn stubs_marks_and_folders_of_names_are_healed() {
    for full in [false, true] {
        let t = temp();
        let mut s = Set::new(vec![new_brick(t.path(), 1), new_brick(t.path(), 2)]);
        let d = s.dir(ROOT, "d");
        let names = ["moves", "linked", "marked", "early"];
        let files = names.map(|n| s.file(d, n));
        let [moves, linked, marked, early] = files;
        s.apply(&enter(d, "old stub", there(3), 0o100_000, None), b"").unwrap();
        let far = |n| Some(at(FAR.names(), n));
        s.apply(&prepare(early, Some(at(d, "early")), far("early")), b"").unwrap();
        s.apply(&end(early, Some(at(d, "early")), far("early"), false), b"").unwrap();
        let mut j = s.bricks.pop().unwrap();
        let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { j.last() };
        let gone =
            |n: &str, fid| Change::Unlink { parent: d, name: name(n), fid, orphan: false, time: time(700) };
        for change in [
            gone("old stub", there(3)),
            enter(d, "new stub", there(4), 0o120_000, None),
            enter(ROOT, "new stub 2", there(4), 0o120_000, None),
            prepare(moves, Some(at(d, "moves")), far("moved")),
            end(moves, Some(at(d, "moves")), far("moved"), false),
            prepare(linked, None, far("linked")),
            end(linked, None, far("linked"), false),
            prepare(early, far("early"), None),
            end(early, far("early"), None, false),
            prepare(marked, Some(at(d, "marked")), far("later")),
        ] {
            s.apply(&change, b"").unwrap();
        }
        let mut p = s.bricks.pop().unwrap();
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        assert!(j.is_pending(marked).unwrap(), "full: {full}: the mark comes along");
        assert_eq!(j.intent(marked), p.intent(marked), "and so does what it means");
        assert_eq!(j.attr(linked).unwrap().nlink, 2);
        assert_eq!(j.attr(early), Err(Errno::ESTALE));
        s.bricks = vec![p, j];
        let both = |s: &mut Set, dir, n: &str| entry(s, dir, n).map(|e| (e.fid, e.home));
        assert_eq!(both(&mut s, ROOT, "new stub 2"), Some((there(4), OTHER)));
        assert_eq!(both(&mut s, FAR.names(), "moved"), Some((moves, SET)));
        assert_eq!(both(&mut s, d, "old stub"), None);
        // They end alike, too.
        s.apply(&end(marked, Some(at(d, "marked")), far("later"), false), b"").unwrap();
        reopened(&t, s);
    }
}

/// A marked stub is found by who opens the brick, and by one that heals; so is the end of its mark.
#[test]
fn marks_of_stubs_are_kept_and_healed() {
    for full in [false, true] {
        let t = temp();
        let mut s = Set::new(vec![new_brick(t.path(), 1), new_brick(t.path(), 2)]);
        let d = s.dir(ROOT, "d");
        let [known, goes, stays] = [3, 4, 5].map(there);
        for (n, fid) in [("known", known), ("goes", goes), ("stays", stays)] {
            s.apply(&enter(d, n, fid, 0o100_000, None), b"").unwrap();
        }
        let drop = |n: &str| Some(at(d, n));
        for (n, fid) in [("goes", goes), ("stays", stays)] {
            s.apply(&prepare(fid, drop(n), None), b"").unwrap();
        }
        s = reopened(&t, s);
        for b in &mut s.bricks {
            assert!(
                b.is_pending(goes).unwrap() && b.is_pending(stays).unwrap() && !b.is_pending(known).unwrap()
            );
            assert_eq!(b.intent(goes).unwrap().unwrap().drop, drop("goes"));
        }
        let mut j = s.bricks.pop().unwrap();
        let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { j.last() };
        for change in [
            prepare(known, drop("known"), None),
            enter(d, "new", there(6), 0o120_000, None),
            prepare(there(6), drop("new"), None),
            end(goes, drop("goes"), None, false),
            end(stays, None, None, false),
        ] {
            s.apply(&change, b"").unwrap();
        }
        let mut p = s.bricks.pop().unwrap();
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        for fid in [known, there(6)] {
            assert!(j.is_pending(fid).unwrap(), "full: {full}: the mark comes along");
            assert_eq!(j.intent(fid), p.intent(fid));
            assert!(j.marked_files().contains(&fid), "who leads next looks for it");
        }
        assert!(!j.is_pending(stays).unwrap(), "full: {full}: so does its end");
        s.bricks = vec![p, j];
        assert_eq!(entry(&mut s, d, "goes"), None);
        for (n, fid) in [("known", known), ("new", there(6))] {
            s.apply(&end(fid, drop(n), None, false), b"").unwrap();
            assert_eq!(entry(&mut s, d, n), None);
        }
        reopened(&t, s);
    }
}

/// A mark of a stub whose record a power cut took is there, or not, as the tag says; nothing of it is taken away.
#[test]
fn a_power_cut_leaves_the_mark_of_a_stub() {
    let (t, mut s) = two();
    s.apply(&enter(ROOT, "s", there(3), 0o100_000, None), b"").unwrap();
    s.apply(&prepare(there(3), Some(at(ROOT, "s")), None), b"").unwrap();
    s.bricks.iter_mut().for_each(|b| b.flush_attrs().unwrap());
    s.bricks.clear();
    let path = t.path().join("b1");
    let state = path.join(".mortar/state");
    let mut read = disk_format::State::decode(&std::fs::read(&state).unwrap()).unwrap();
    read.boot = [7; 16];
    std::fs::write(&state, read.encode()).unwrap();
    let mut b = open(&path, &identity(1));
    assert!(b.found().rebooted);
    assert!(b.marked_files().contains(&there(3)));
    assert_eq!(b.intent(there(3)).unwrap().unwrap().drop, Some(at(ROOT, "s")));
}

/// A mark whose transaction cannot be told is named by a check; a repair takes it away, and its set has it again.
#[test]
fn a_check_names_marks_that_cannot_be_told() {
    let intent = |coordinator, drop, add| encode_intent(&Intent { tx: TX, coordinator, drop, add });
    let (own, far) = (|| Some(at(ROOT, "s")), || Some(at(FAR.names(), "s")));
    for (beside, wrong) in [
        (Some(intent(OTHER, own(), None)), None),
        (Some(b"rubbish".to_vec()), Some("is damaged")),
        (None, None),
        (Some(intent(SET, own(), None)), Some("none of a stub's")),
        (Some(intent(OTHER, own(), far())), Some("none of a stub's")),
    ] {
        let (t, mut s) = two();
        let f = s.file(ROOT, "f");
        s.apply(&enter(ROOT, "s", there(3), 0o100_000, None), b"").unwrap();
        s.apply(&prepare(there(3), own(), None), b"").unwrap();
        s.apply(&prepare(f, Some(at(ROOT, "f")), far()), b"").unwrap();
        s.bricks.drain(..).for_each(|b| b.close().unwrap());
        let path = t.path().join("b1");
        let stub = path.join("s");
        match &beside {
            Some(value) => {
                rustix::fs::lsetxattr(&stub, INTENT, value, rustix::fs::XattrFlags::empty()).unwrap()
            }
            None => rustix::fs::lremovexattr(&stub, INTENT).unwrap(),
        }
        let found = brick::check(&path, false).unwrap().problems;
        let Some(wrong) = wrong else {
            assert!(found.is_empty(), "{found:?}");
            continue;
        };
        assert!(found.len() == 1 && found[0].path == Path::new("s"), "{found:?}");
        assert!(found[0].problem.contains(wrong), "{found:?}");
        let repaired = brick::check(&path, true).unwrap();
        assert!(repaired.is_sound() && repaired.to_heal == Some(brick::ToHeal::Objects(1)), "{repaired:?}");
        assert!(brick::check(&path, false).unwrap().problems.is_empty());
        let (mut p, mut j) = (open(&t.path().join("b2"), &identity(2)), open(&path, &identity(1)));
        assert!(!j.is_pending(there(3)).unwrap() && j.is_pending(f).unwrap());
        let common = j.last();
        let mut healing = accept_join(&mut p, &mut j, &common, false);
        heal_all(&mut p, &mut j, &mut healing);
        assert!(j.is_pending(there(3)).unwrap());
        assert_eq!(j.intent(there(3)), p.intent(there(3)));
    }
}

fn exchange((a, fid): (&EntryName, Fid), (b, to_fid): (&EntryName, Fid)) -> Change {
    let (parent, name) = (a.dir, a.name.clone());
    let (to_parent, to_name) = (b.dir, b.name.clone());
    Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, time: time(650) }
}

/// Neither name is free before the other: they change places in one step, and the marks stay until each file has heard.
#[test]
fn two_names_elsewhere_change_places() {
    for other in [FAR, there(91)] {
        let (t, mut s) = two();
        let (f, g) = (s.file(ROOT, "f"), s.file(ROOT, "g"));
        let (x, y) = (at(FAR.names(), "x"), at(other.names(), "y"));
        for (fid, old, new) in [(f, "f", &x), (g, "g", &y)] {
            s.apply(&prepare(fid, Some(at(ROOT, old)), Some(new.clone())), b"").unwrap();
            s.apply(&end(fid, Some(at(ROOT, old)), Some(new.clone()), false), b"").unwrap();
        }
        s.apply(&prepare(f, Some(x.clone()), Some(y.clone())), b"").unwrap();
        s.apply(&prepare(g, Some(y.clone()), Some(x.clone())), b"").unwrap();
        s.apply(&exchange((&x, f), (&y, g)), b"").unwrap();
        for marked in [true, false] {
            s = reopened(&t, s);
            for (place, fid) in [(&x, g), (&y, f)] {
                assert_eq!(
                    entry(&mut s, place.dir, if fid == g { "x" } else { "y" }).map(|e| e.fid),
                    Some(fid)
                );
                assert_eq!(s.bricks[1].is_pending(fid), Ok(marked));
                let attr = s.bricks[0].attr(fid).unwrap();
                assert_eq!((attr.nlink, attr.ctime), (1, time(650)));
                if marked {
                    s.apply(&end(fid, None, None, false), b"").unwrap();
                }
            }
        }
    }
}

/// The name in the folder of names becomes an entry in one change; the folder goes with its last name.
#[test]
fn a_file_comes_home_to_its_set() {
    let (t, mut s) = two();
    let (f, g) = (s.file(ROOT, "f"), s.file(ROOT, "g"));
    for (fid, n) in [(f, "f"), (g, "g")] {
        s.apply(&prepare(fid, Some(at(ROOT, n)), Some(at(FAR.names(), n))), b"").unwrap();
        s.apply(&end(fid, Some(at(ROOT, n)), Some(at(FAR.names(), n)), false), b"").unwrap();
    }
    let victim = s.file(ROOT, "victim");
    let back = |fid, n: &str, to: &str, replaced| Change::Rename {
        parent: FAR.names(),
        name: name(n),
        fid,
        to_parent: ROOT,
        to_name: name(to),
        replaced,
        time: time(900),
    };
    let out = Some(Replaced { fid: victim, dir: false, orphan: false });
    for (fid, n, to, replaced) in [(f, "f", "back", None), (g, "g", "victim", out)] {
        let mark = Intent { tx: TX, coordinator: SET, drop: Some(at(FAR.names(), n)), add: None };
        s.apply(&Change::PrepareFile { fid, intent: mark }, b"").unwrap();
        s.apply(&back(fid, n, to, replaced), b"").unwrap();
        assert!(s.bricks[0].is_pending(fid).unwrap(), "until the other set has heard");
        s = reopened(&t, s);
        assert_eq!(entry(&mut s, ROOT, to).map(|e| (e.fid, e.home)), Some((fid, SET)));
        s.apply(&end(fid, None, None, false), b"").unwrap();
        assert_eq!(s.bricks[1].attr(fid).unwrap().nlink, 1);
    }
    assert!(!whole(s.bricks[0].path()).keys().any(|p| p.starts_with("lost+found/")), "the folder is gone");
    assert_eq!(s.bricks[0].attr(victim), Err(Errno::ESTALE));
    reopened(&t, s);
}

/// A kill between the making of a stub and its tag: the same file gets the tag, and nothing comes to lie in lost+found.
#[test]
fn a_half_made_stub_is_finished() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.apply(&enter(ROOT, "s", there(5), 0o100_000, None), b"").unwrap();
    let path = s.bricks[0].path().to_path_buf();
    drop(s);
    let ino = std::fs::metadata(path.join("s")).unwrap().ino();
    rustix::fs::removexattr(path.join("s"), "trusted.mortar.id").unwrap();
    let mut b = open(&path, &identity(1));
    assert_eq!(b.entry(ROOT, &name("s")).unwrap().map(|e| e.fid), Some(there(5)));
    assert_eq!(std::fs::metadata(path.join("s")).unwrap().ino(), ino);
    assert_eq!(std::fs::read_dir(path.join(".mortar/limbo")).unwrap().count(), 0);
}

/// A kill before any change of a transaction was applied: its record is applied when the brick is opened again.
#[test]
fn changes_of_transactions_are_applied_again_after_a_kill() {
    let f = Fid { set: SET, epoch: Epoch(1), lsn: Lsn(2) };
    let far = || Some(at(FAR.names(), "x"));
    let own = || Some(at(Fid { lsn: Lsn(1), ..f }, "f"));
    let g = Fid { lsn: Lsn(4), ..f };
    let made = |fid| {
        let (parent, name, home, node) = (ROOT, name("g"), SET, Node::File);
        Change::Create { parent, name, fid, home, node, mode: 0o644, uid: 0, gid: 0, time: time(4) }
    };
    // what came before, and the last record
    let table = [
        (vec![], enter(ROOT, "s", there(5), 0o100_000, None)),
        (vec![enter(ROOT, "s", there(5), 0o100_000, None)], enter(ROOT, "s2", there(5), 0o100_000, None)),
        (
            vec![enter(ROOT, "s", there(5), 0o100_000, None)],
            enter(
                ROOT,
                "s",
                there(6),
                0o100_000,
                Some(Replaced { fid: there(5), dir: false, orphan: false }),
            ),
        ),
        (vec![], prepare(f, own(), far())),
        (vec![prepare(f, own(), far())], end(f, own(), far(), false)),
        (vec![prepare(f, own(), far())], end(f, None, None, false)),
        (vec![prepare(f, None, far())], end(f, None, far(), false)),
        (vec![], leave(f, own())),
        (vec![enter(ROOT, "s", there(5), 0o100_000, None)], prepare(there(5), Some(at(ROOT, "s")), None)),
        (
            vec![enter(ROOT, "s", there(5), 0o100_000, None), prepare(there(5), Some(at(ROOT, "s")), None)],
            end(there(5), Some(at(ROOT, "s")), None, false),
        ),
        (
            vec![prepare(f, own(), far()), end(f, own(), far(), false)],
            Change::Rename {
                parent: FAR.names(),
                name: name("x"),
                fid: f,
                to_parent: ROOT,
                to_name: name("back"),
                replaced: None,
                time: time(900),
            },
        ),
        (
            vec![
                Change::Link { fid: f, parent: ROOT, name: name("other"), time: time(3) },
                made(g),
                prepare(f, own(), far()),
                end(f, own(), far(), false),
                prepare(g, None, Some(at(FAR.names(), "y"))),
                end(g, None, Some(at(FAR.names(), "y")), false),
            ],
            exchange((&at(FAR.names(), "x"), f), (&at(FAR.names(), "y"), g)),
        ),
        (
            vec![
                enter(ROOT, "s", there(5), 0o100_000, None),
                Change::Arrive { fid: Fid { lsn: Lsn(4), ..f }, time: time(3) },
            ],
            come_home(ROOT, "s", there(5), Fid { lsn: Lsn(4), ..f }),
        ),
    ];
    for (before, last) in table {
        let t = temp();
        let mut s = Set::new(vec![new_brick(t.path(), 1)]);
        let d = s.dir(ROOT, "d");
        assert_eq!((s.file(d, "f"), d.lsn), (f, Lsn(1)));
        before.iter().for_each(|c| s.apply(c, b"").unwrap());
        let path = s.bricks[0].path().to_path_buf();
        // A copy has other inodes: its index is made anew from its tree.
        let copy = t.path().join("copy");
        copy_tree(&path, &copy);
        s.apply(&last, b"").unwrap();
        for segment in std::fs::read_dir(path.join(".mortar/journal")).unwrap().map(|e| e.unwrap()) {
            std::fs::copy(segment.path(), copy.join(".mortar/journal").join(segment.file_name())).unwrap();
        }
        std::fs::remove_file(copy.join(".mortar/index.redb")).unwrap();
        // Once when nothing of it is there, and once when all of it is.
        for _ in 0..2 {
            let mut b: Brick = open(&copy, &identity(1));
            assert!(b.found().incomplete.is_none(), "{last:?}");
            b.flush_attrs().unwrap();
            s.bricks[0].flush_attrs().unwrap();
            drop(b);
            assert_eq!(whole(&path), whole(&copy), "{last:?}");
        }
    }
}

/// What an administrator may do to a stub is found.
#[test]
fn a_check_looks_at_stubs() {
    let (t, mut s) = two();
    s.apply(&enter(ROOT, "s", there(5), 0o100_000, None), b"").unwrap();
    s = reopened(&t, s);
    let path = s.bricks[0].path().to_path_buf();
    s.bricks.drain(..).for_each(|b| b.close().unwrap());
    rustix::fs::lremovexattr(path.join("s"), "trusted.mortar.id").unwrap();
    let report = brick::check(&path, false).unwrap();
    assert!(report.problems.iter().any(|p| p.path == Path::new("s")), "{:?}", report.problems);
}

fn hidden(fid: Fid) -> String {
    format!("{:08x}{:08x}{:016x}", fid.set.0, fid.epoch.0, fid.lsn.0)
}

/// Names that a test uses are names.
#[test]
fn a_folder_of_names_has_a_fid_of_its_own() {
    assert!(FAR.names().is_names() && !FAR.is_names());
    assert_eq!(FAR.names().without_names(), FAR);
    assert!(Name::new(hidden(FAR.names()).as_bytes()).is_ok());
}

/// A copy arrives without a name, gets one in one go, and is found again; a file departs, and its directory keeps its times.
#[test]
fn a_file_arrives_and_another_departs() {
    let (t, mut s) = two();
    let copy = Fid { set: SET, epoch: Epoch(1), lsn: s.bricks[0].last().lsn.next() };
    s.apply(&Change::Arrive { fid: copy, time: time(3) }, b"").unwrap();
    s.write(copy, 0, b"content");
    assert_eq!(s.bricks[1].attr(copy).unwrap().nlink, 0);
    let far = at(FAR.names(), "x");
    s = reopened(&t, s);
    s.apply(&prepare(copy, None, Some(far.clone())), b"").unwrap();
    s.apply(&end(copy, None, None, false), b"").unwrap();
    assert_eq!(s.bricks[1].attr(copy).unwrap().nlink, 0, "it was given up");
    s.apply(&prepare(copy, None, Some(far.clone())), b"").unwrap();
    s.apply(&end(copy, None, Some(far), false), b"").unwrap();
    for _ in 0..2 {
        assert_eq!(entry(&mut s, FAR.names(), "x").map(|e| e.fid), Some(copy));
        assert_eq!(s.bricks[1].attr(copy).unwrap().nlink, 1);
        assert!(!s.bricks[1].is_orphan(copy));
        s = reopened(&t, s);
    }
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    let Attr { mtime, ctime, .. } = s.bricks[0].attr(d).unwrap();
    let (parent, name, kind) = (d, name("f"), 0o100_000);
    let gone = Change::Depart { parent, name, fid: f, to: OTHER, copy: there(5), kind, mtime, ctime };
    s.apply(&gone, b"").unwrap();
    for _ in 0..2 {
        assert_eq!(entry(&mut s, d, "f"), Some(Entry { fid: there(5), home: OTHER, kind }));
        assert_eq!(s.bricks[1].attr(f), Err(Errno::ESTALE));
        let attr = s.bricks[1].attr(d).unwrap();
        assert_eq!((attr.mtime, attr.ctime), (mtime, ctime));
        s = reopened(&t, s);
    }
}

fn depart_all(fid: Fid, names: &[EntryName]) -> Change {
    let (names, time) = (names.to_vec(), time(800));
    Change::DepartAll { fid, to: OTHER, copy: there(5), kind: 0o100_000, names, time }
}

/// A file of several names leaves under all of them at once, also if the last record is applied once more; another arrives.
#[test]
fn a_file_of_several_names_departs_and_another_arrives() {
    let (t, mut s) = two();
    let (d, e) = (s.dir(ROOT, "d"), s.dir(ROOT, "e"));
    let f = s.file(d, "f");
    s.write(f, 0, b"content");
    s.run(&Op::Link { fid: f, parent: e, name: name("g") }, b"").unwrap();
    s.run(&Op::SetXattr { fid: f, name: name("user.a"), flags: 0 }, b"value").unwrap();
    let before: Vec<Attr> = [d, e].map(|dir| s.bricks[0].attr(dir).unwrap()).into();
    s.apply(&depart_all(f, &[at(d, "f"), at(e, "g")]), b"").unwrap();
    for round in 0..4 {
        if round < 2 {
            // A kill: the record is the last one, or not.
            s.bricks.clear();
            s.bricks = (1..=2).map(|n| open(&t.path().join(format!("b{n}")), &identity(n))).collect();
        }
        for (dir, n) in [(d, "f"), (e, "g")] {
            assert_eq!(entry(&mut s, dir, n), Some(Entry { fid: there(5), home: OTHER, kind: 0o100_000 }));
        }
        assert_eq!(s.bricks[1].attr(f), Err(Errno::ESTALE));
        let seen = on_disk(&s, "d/f");
        assert_eq!((seen.mode, seen.content, seen.nlink), (0o101_000, vec![], 2));
        assert!(seen.xattrs.is_empty(), "{:?}", seen.xattrs);
        for was in &before {
            let now = s.bricks[1].attr(was.fid).unwrap();
            assert_eq!((now.mtime, now.ctime), (was.mtime, was.ctime));
        }
        match round {
            0 | 1 => {
                s.make(ROOT, &format!("later{round}"), wire::op::Node::Fifo, 0o600);
            }
            _ => s = reopened(&t, s),
        }
    }
    // The stub takes changes as any other.
    s.apply(
        &Change::Unlink { parent: d, name: name("f"), fid: there(5), orphan: false, time: time(900) },
        b"",
    )
    .unwrap();
    s = reopened(&t, s);
    let copy = Fid { set: SET, epoch: Epoch(1), lsn: s.bricks[0].last().lsn.next() };
    s.apply(&Change::Arrive { fid: copy, time: time(3) }, b"").unwrap();
    let names = [at(FAR.names(), "x"), at(there(91).names(), "y"), at(FAR.names(), "z")];
    let (attribute, value) = (name(COPY_NAMES), Blob(encode_names(&names)));
    s.apply(&Change::SetXattr { fid: copy, name: attribute, value, time: time(3) }, b"").unwrap();
    s.apply(&prepare(copy, None, Some(names[0].clone())), b"").unwrap();
    assert_eq!(s.bricks[1].names_of_copy(copy).unwrap(), names);
    s = reopened(&t, s);
    s.apply(&Change::EndCopy { fid: copy, names: names.to_vec(), time: time(900) }, b"").unwrap();
    for _ in 0..2 {
        for place in &names {
            let found = entry(&mut s, place.dir, std::str::from_utf8(place.name.as_bytes()).unwrap());
            assert_eq!(found.map(|e| e.fid), Some(copy));
        }
        assert_eq!(s.bricks[1].attr(copy).unwrap().nlink, 3);
        assert!(!s.bricks[1].is_orphan(copy) && !s.bricks[1].is_pending(copy).unwrap());
        s = reopened(&t, s);
    }
    // The next transaction about it is about one name.
    s.apply(&prepare(copy, None, Some(at(FAR.names(), "w"))), b"").unwrap();
    assert_eq!(s.bricks[1].names_of_copy(copy).unwrap(), []);
}

/// A brick that was away while a file of several names left makes stubs of its names.
#[test]
fn the_departure_of_a_file_of_several_names_is_healed() {
    for full in [false, true] {
        let (t, mut s) = two();
        let (d, e) = (s.dir(ROOT, "d"), s.dir(ROOT, "e"));
        let f = s.file(d, "f");
        s.write(f, 0, b"content");
        s.run(&Op::Link { fid: f, parent: e, name: name("g") }, b"").unwrap();
        let mut j = s.bricks.pop().unwrap();
        let common = j.last();
        s.apply(&depart_all(f, &[at(d, "f"), at(e, "g")]), b"").unwrap();
        let mut p = s.bricks.pop().unwrap();
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        let mut s = Set::new(vec![p, j]);
        for (dir, n) in [(d, "f"), (e, "g")] {
            assert_eq!(entry(&mut s, dir, n), Some(Entry { fid: there(5), home: OTHER, kind: 0o100_000 }));
        }
        reopened(&t, s);
    }
}

/// A power cut may leave a file that became a stub what it held as a file.
#[test]
fn a_stub_that_a_power_cut_left_with_content_is_emptied() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s.write(f, 0, b"content");
    s.run(&Op::Link { fid: f, parent: d, name: name("g") }, b"").unwrap();
    s.apply(&depart_all(f, &[at(d, "f"), at(d, "g")]), b"").unwrap();
    s.bricks.clear();
    let path = t.path().join("b1");
    let stub = path.join("d/f");
    std::fs::write(&stub, b"content").unwrap();
    std::fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let state = path.join(".mortar/state");
    let mut read = disk_format::State::decode(&std::fs::read(&state).unwrap()).unwrap();
    read.boot = [7; 16];
    std::fs::write(&state, read.encode()).unwrap();
    assert!(open(&path, &identity(1)).found().rebooted);
    let seen = std::fs::metadata(&stub).unwrap();
    assert_eq!((seen.mode(), seen.len(), seen.nlink()), (0o101_000, 0, 2));
}

/// A power cut may take the tag of a folder of names, and leave what is in it.
#[test]
fn what_is_in_a_folder_of_names_without_a_tag_is_found() {
    let (t, mut s) = two();
    let copy = Fid { set: SET, epoch: Epoch(1), lsn: s.bricks[0].last().lsn.next() };
    s.apply(&Change::Arrive { fid: copy, time: time(3) }, b"").unwrap();
    let far = at(FAR.names(), "x");
    s.apply(&prepare(copy, None, Some(far.clone())), b"").unwrap();
    s.apply(&end(copy, None, Some(far), false), b"").unwrap();
    s.bricks.drain(..).for_each(|b| b.close().unwrap());
    let path = t.path().join("b1");
    let folder = path.join(".mortar/limbo").join(hidden(FAR.names()));
    rustix::fs::lremovexattr(folder, "trusted.mortar.id").unwrap();
    std::fs::remove_file(path.join(".mortar/index.redb")).unwrap();
    let mut b = open(&path, &identity(1));
    assert_eq!(b.entry(FAR.names(), &name("x")).unwrap().map(|e| e.fid), Some(copy));
    assert_eq!(b.attr(copy).unwrap().nlink, 1);
}

/// A check finds nothing of a file that departed before a kill.
#[test]
fn what_departed_before_a_kill_is_forgotten() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s = reopened(&t, s);
    let Attr { mtime, ctime, .. } = s.bricks[0].attr(d).unwrap();
    let (parent, name, kind) = (d, name("f"), 0o100_000);
    s.apply(&Change::Depart { parent, name, fid: f, to: OTHER, copy: there(5), kind, mtime, ctime }, b"")
        .unwrap();
    s.dir(ROOT, "e");
    s.bricks.clear();
    s.bricks = (1..=2).map(|n| open(&t.path().join(format!("b{n}")), &identity(n))).collect();
    assert_eq!(s.bricks[1].attr(f), Err(Errno::ESTALE));
    reopened(&t, s);
}

/// A brick was away while directories went with all that was in them, stubs too. What its healing removes is gone from its index
/// as well.
#[test]
fn what_a_healing_removes_leaves_the_index() {
    for full in [false, true] {
        let (t, mut s) = two();
        let d = s.dir(ROOT, "d");
        let deeper = s.dir(d, "deeper");
        let files = [(d, s.file(d, "f")), (deeper, s.file(deeper, "f"))];
        let stubs = [(d, there(1)), (deeper, there(2))];
        for (dir, fid) in stubs {
            s.apply(&enter(dir, "stub", fid, 0o100_000, None), b"").unwrap();
        }
        let kept = s.file(ROOT, "kept");
        s.run(&Op::Link { fid: kept, parent: deeper, name: name("kept") }, b"").unwrap();
        let mut j = s.bricks.pop().unwrap();
        let common = j.last();
        let (orphan, time) = (false, time(700));
        for (n, (parent, fid)) in files.into_iter().chain(stubs).enumerate() {
            let name = name(if n < 2 { "f" } else { "stub" });
            s.apply(&Change::Unlink { parent, name, fid, orphan, time }, b"").unwrap();
        }
        s.run(&Op::Unlink { parent: deeper, name: name("kept") }, b"").unwrap();
        s.apply(&Change::Rmdir { parent: d, name: name("deeper"), fid: deeper, time }, b"").unwrap();
        s.apply(&Change::Rmdir { parent: ROOT, name: name("d"), fid: d, time }, b"").unwrap();
        let mut p = s.bricks.pop().unwrap();
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        assert_eq!(j.attr(kept).unwrap().nlink, 1);
        reopened(&t, Set::new(vec![p, j]));
    }
}

/// The copy of another set's directory has lost its tag on one brick: nothing leads to it any more, and its healing makes it anew.
#[test]
fn a_copy_without_a_tag_is_made_anew() {
    let (t, mut s) = two();
    let copy = Change::Create {
        parent: ROOT,
        name: name("copy"),
        fid: there(1),
        home: OTHER,
        node: wire::op::Node::Dir,
        mode: 0o755,
        uid: 0,
        gid: 0,
        time: time(500),
    };
    s.apply(&copy, b"").unwrap();
    s.bricks.pop().unwrap().close().unwrap();
    let path = t.path().join("b2");
    rustix::fs::lremovexattr(path.join("copy"), disk_format::tag::XATTR).unwrap();
    let mut j = open(&path, &identity(2));
    let mut p = s.bricks.pop().unwrap();
    let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
    let mut healing = accept_join(&mut p, &mut j, &none, true);
    heal_all(&mut p, &mut j, &mut healing);
    let found = j.entry(ROOT, &name("copy")).unwrap().map(|e| (e.fid, e.home));
    assert_eq!(found, Some((there(1), OTHER)));
    j.close().unwrap();
    let left = brick::check(&path, false).unwrap().problems;
    assert!(left.iter().all(|p| p.path.starts_with(".mortar/limbo")), "{left:?}");
}

/// A file whose name is in another set's directory is marked to leave with it, and goes or stays.
#[test]
fn a_file_is_marked_to_leave() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    let far = at(FAR.names(), "x");
    s.apply(&prepare(f, Some(at(d, "f")), Some(far.clone())), b"").unwrap();
    s.apply(&end(f, Some(at(d, "f")), Some(far.clone()), false), b"").unwrap();
    for goes in [false, true] {
        s = reopened(&t, s);
        s.apply(&leave(f, Some(far.clone())), b"").unwrap();
        for _ in 0..2 {
            for b in &mut s.bricks {
                let meant = b.intent(f).unwrap().unwrap();
                assert_eq!((meant.drop, meant.add), (Some(far.clone()), None));
                assert_eq!(b.names_of_copy(f).unwrap(), [at(FAR, "x")]);
            }
            s = reopened(&t, s);
        }
        s.apply(&end(f, goes.then(|| far.clone()), None, false), b"").unwrap();
        assert!(!goes || s.bricks[1].attr(f) == Err(Errno::ESTALE));
        assert!(goes || !s.bricks[1].is_pending(f).unwrap());
    }
    // Another transaction leaves nothing of it.
    let g = s.file(d, "g");
    s.apply(&leave(g, Some(at(d, "g"))), b"").unwrap();
    s.apply(&end(g, None, None, false), b"").unwrap();
    s = reopened(&t, s);
    s.apply(&prepare(g, None, Some(far)), b"").unwrap();
    assert_eq!(s.bricks[1].names_of_copy(g).unwrap(), []);
}

/// A copy takes the place of the stub, with its content and its time; the directory keeps its own.
#[test]
fn a_file_comes_home() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    s.apply(&enter(d, "s", there(5), 0o100_000, None), b"").unwrap();
    let copy = Fid { set: SET, epoch: Epoch(1), lsn: s.bricks[0].last().lsn.next() };
    s.apply(&Change::Arrive { fid: copy, time: time(3) }, b"").unwrap();
    s.write(copy, 0, b"content");
    s = reopened(&t, s);
    s.apply(&prepare(copy, None, Some(at(d.names(), "s"))), b"").unwrap();
    s.apply(&come_home(d, "s", there(5), copy), b"").unwrap();
    s.apply(&end(copy, None, None, false), b"").unwrap();
    for _ in 0..2 {
        assert_eq!(entry(&mut s, d, "s"), Some(Entry { fid: copy, home: SET, kind: 0o100_000 }));
        let attr = s.bricks[1].attr(copy).unwrap();
        assert_eq!((attr.nlink, attr.size, attr.ctime), (1, 7, time(800)));
        let dir = s.bricks[1].attr(d).unwrap();
        assert_eq!((dir.mtime, dir.ctime), (time(700), time(700)));
        assert!(!s.bricks[1].is_orphan(copy) && !s.bricks[1].is_pending(copy).unwrap());
        assert_eq!(on_disk(&s, "d/s").content, b"content");
        s = reopened(&t, s);
    }
    s.bricks.iter().for_each(|b| assert!(!b.path().join(".mortar/limbo").join(hidden(d.names())).exists()));
}

/// A brick that was away while a file came home takes it there.
#[test]
fn what_came_home_is_healed() {
    for full in [false, true] {
        for before in [false, true] {
            let (t, mut s) = two();
            let d = s.dir(ROOT, "d");
            s.apply(&enter(d, "s", there(5), 0o100_000, None), b"").unwrap();
            let copy = Fid { set: SET, epoch: Epoch(1), lsn: s.bricks[0].last().lsn.next() };
            let arrive = |s: &mut Set| {
                s.apply(&Change::Arrive { fid: copy, time: time(3) }, b"").unwrap();
                s.write(copy, 0, b"content");
            };
            if before {
                arrive(&mut s);
            }
            let mut j = s.bricks.pop().unwrap();
            let common = j.last();
            if !before {
                arrive(&mut s);
            }
            s.apply(&prepare(copy, None, Some(at(d.names(), "s"))), b"").unwrap();
            s.apply(&come_home(d, "s", there(5), copy), b"").unwrap();
            let mut p = s.bricks.pop().unwrap();
            let mut healing = accept_join(&mut p, &mut j, &common, full);
            heal_all(&mut p, &mut j, &mut healing);
            let mut s = Set::new(vec![p, j]);
            assert_eq!(entry(&mut s, d, "s"), Some(Entry { fid: copy, home: SET, kind: 0o100_000 }));
            assert!(s.bricks[1].is_pending(copy).unwrap() && !s.bricks[1].is_orphan(copy));
            assert_eq!(on_disk(&s, "d/s").content, b"content");
            reopened(&t, s);
        }
    }
}

fn redirect(s: &mut Set, fid: Fid, (to, copy): (SetId, Fid), names: &[EntryName]) -> Change {
    let before = |dir| {
        let Attr { mtime, ctime, .. } = s.bricks[0].attr(dir).unwrap();
        DirTimes { dir, mtime, ctime }
    };
    let dirs = directories(names).into_iter().map(before).collect();
    let (names, kind, time) = (names.to_vec(), 0o100_000, time(800));
    Change::Redirect { fid, to, copy, kind, names, dirs, time }
}

fn leave_for_good(fid: Fid, names: &[EntryName]) -> Change {
    Change::Leave { fid, tx: TX, to: OTHER, copy: there(5), names: names.to_vec() }
}

/// A file with a name at home and two in other sets' directories.
fn with_names_elsewhere(s: &mut Set, d: Fid) -> (Fid, [EntryName; 3]) {
    let f = s.file(d, "f");
    s.write(f, 0, b"content");
    let names = [at(d, "f"), at(FAR.names(), "x"), at(there(91).names(), "y")];
    for far in &names[1..] {
        s.apply(&prepare(f, None, Some(far.clone())), b"").unwrap();
        s.apply(&end(f, None, Some(far.clone()), false), b"").unwrap();
        sync(s);
    }
    (f, names)
}

fn sync(s: &mut Set) {
    for b in &mut s.bricks {
        b.begin_sync(None).unwrap().run().unwrap();
    }
}

/// A file that leaves for good says where it goes until its names have gone; then a stub has its own ones.
#[test]
fn a_file_of_names_elsewhere_leaves_for_good() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let (f, names) = with_names_elsewhere(&mut s, d);
    let before = s.bricks[0].attr(d).unwrap();
    s.bricks[0].validate(&leave_for_good(f, &names)).unwrap();
    s.apply(&leave_for_good(f, &names), b"").unwrap();
    for _ in 0..2 {
        for b in &mut s.bricks {
            let leaving = b.leaving(f).unwrap().unwrap();
            assert_eq!((leaving.to, leaving.copy, leaving.names), (OTHER, there(5), names.to_vec()));
            let meant = b.intent(f).unwrap().unwrap();
            assert_eq!((meant.tx, meant.coordinator, meant.drop, meant.add), (TX, SET, None, None));
            assert_eq!(b.names_of_copy(f).unwrap(), names);
            assert_eq!(b.attr(f).unwrap().nlink, 3);
        }
        s = reopened(&t, s);
    }
    let change = redirect(&mut s, f, (OTHER, there(5)), &names);
    s.apply(&change, b"").unwrap();
    for round in 0..4 {
        if round < 2 {
            // A kill: the record is the last one, or not.
            s.bricks.clear();
            s.bricks = (1..=2).map(|n| open(&t.path().join(format!("b{n}")), &identity(n))).collect();
        }
        assert_eq!(entry(&mut s, d, "f"), Some(Entry { fid: there(5), home: OTHER, kind: 0o100_000 }));
        assert_eq!(s.bricks[1].attr(f), Err(Errno::ESTALE));
        assert_eq!(s.bricks[1].attr(FAR.names()), Err(Errno::ESTALE), "its folder of names went with it");
        let seen = on_disk(&s, "d/f");
        assert_eq!((seen.mode, seen.content, seen.nlink), (0o101_000, vec![], 1));
        let now = s.bricks[1].attr(d).unwrap();
        assert_eq!((now.mtime, now.ctime), (before.mtime, before.ctime));
        match round {
            0 | 1 => drop(s.make(ROOT, &format!("later{round}"), wire::op::Node::Fifo, 0o600)),
            _ => s = reopened(&t, s),
        }
    }
}

/// The copy takes the place of all names of the stub; what is done already, by a change that was done in part, is left so.
#[test]
fn entries_lead_to_a_copy_that_came_home() {
    for done in 0..=2 {
        let (t, mut s) = two();
        let (d, e) = (s.dir(ROOT, "d"), s.dir(ROOT, "e"));
        let names = [at(d, "s"), at(e, "s2")];
        for place in &names {
            let n = std::str::from_utf8(place.name.as_bytes()).unwrap();
            s.apply(&enter(place.dir, n, there(5), 0o100_000, None), b"").unwrap();
        }
        let copy = Fid { set: SET, epoch: Epoch(1), lsn: s.bricks[0].last().lsn.next() };
        s.apply(&Change::Arrive { fid: copy, time: time(3) }, b"").unwrap();
        s.write(copy, 0, b"content");
        let told = [at(d, "s"), at(e, "s2"), at(FAR, "far")];
        let value = Blob(encode_names(&told));
        s.apply(&Change::SetXattr { fid: copy, name: name(COPY_NAMES), value, time: time(3) }, b"").unwrap();
        s.apply(&prepare(copy, None, Some(at(d.names(), "s"))), b"").unwrap();
        let times: Vec<Attr> = [d, e].map(|dir| s.bricks[0].attr(dir).unwrap()).into();
        for part in [&names[..done], &names[done..]] {
            if !part.is_empty() {
                let change = redirect(&mut s, there(5), (SET, copy), part);
                s.apply(&change, b"").unwrap();
            }
            if done == 1 {
                s.bricks.clear();
                s.bricks = (1..=2).map(|n| open(&t.path().join(format!("b{n}")), &identity(n))).collect();
            }
        }
        let far = vec![at(FAR.names(), "far")];
        s.apply(&Change::EndCopy { fid: copy, names: far, time: time(800) }, b"").unwrap();
        for _ in 0..2 {
            for (dir, n) in [(d, "s"), (e, "s2"), (FAR.names(), "far")] {
                assert_eq!(entry(&mut s, dir, n), Some(Entry { fid: copy, home: SET, kind: 0o100_000 }));
            }
            let attr = s.bricks[1].attr(copy).unwrap();
            assert_eq!((attr.nlink, attr.size, attr.ctime), (3, 7, time(800)));
            for was in &times {
                let now = s.bricks[1].attr(was.fid).unwrap();
                assert_eq!((now.mtime, now.ctime), (was.mtime, was.ctime));
            }
            assert!(!s.bricks[1].is_orphan(copy) && !s.bricks[1].is_pending(copy).unwrap());
            assert_eq!(on_disk(&s, "e/s2").content, b"content");
            s = reopened(&t, s);
        }
        assert!(std::fs::read_dir(t.path().join("b1/.mortar/orphans")).unwrap().next().is_none());
    }
}

/// A brick that was away while a file left for good, or while its names went, has what the others have.
#[test]
fn what_left_for_good_is_healed() {
    for full in [false, true] {
        for left in [false, true] {
            let (t, mut s) = two();
            let d = s.dir(ROOT, "d");
            let (f, names) = with_names_elsewhere(&mut s, d);
            if left {
                s.apply(&leave_for_good(f, &names), b"").unwrap();
            }
            let mut j = s.bricks.pop().unwrap();
            let common = j.last();
            let change = match left {
                true => redirect(&mut s, f, (OTHER, there(5)), &names),
                false => leave_for_good(f, &names),
            };
            s.apply(&change, b"").unwrap();
            let mut p = s.bricks.pop().unwrap();
            let mut healing = accept_join(&mut p, &mut j, &common, full);
            heal_all(&mut p, &mut j, &mut healing);
            let mut s = Set::new(vec![p, j]);
            let found = entry(&mut s, d, "f").unwrap();
            assert_eq!((found.fid, found.home), if left { (there(5), OTHER) } else { (f, SET) });
            if !left {
                for b in &mut s.bricks {
                    assert_eq!(b.leaving(f).unwrap().unwrap().names, names);
                }
            }
            reopened(&t, s);
        }
    }
}
