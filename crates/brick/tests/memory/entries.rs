//! What a sync of a directory brings to disk, and names that a power cut leaves to files that were to lose them.

use super::common::*;
use super::disk::Disk;
use brick::Brick;
use ids::{Epoch, Fid, Lsn, SetId};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use replica::healing::HealTarget;
use wire::op::Ancestor;
use wire::{Change, Op};

fn sync_of(b: &mut Brick, fid: Fid) {
    b.begin_sync_of(&[fid]).unwrap().run().unwrap();
}

/// Nothing survives that was not synced.
fn reopen(disk: &mut Disk, s: Set) -> Brick {
    drop(s);
    disk.crash(CrashRule::Hostile, &mut |_| 0);
    disk.open().unwrap()
}

fn ours(n: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) }
}

fn found(b: &mut Brick, n: &str) -> Option<Fid> {
    b.lookup(ROOT, &name(n)).unwrap().map(|e| e.fid)
}

#[test]
fn a_sync_of_a_directory_keeps_what_was_made_in_it() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (file, dir) = (s.file(ROOT, "file"), s.dir(ROOT, "dir"));
    let moved = s.file(dir, "moved");
    s.run(
        &Op::Rename { parent: dir, name: name("moved"), to_parent: ROOT, to_name: name("here"), flags: 0 },
        b"",
    )
    .unwrap();
    sync_of(&mut s.bricks[0], ROOT);
    let mut b = reopen(&mut disk, s);
    let there: Vec<_> = ["file", "dir", "here"].map(|n| found(&mut b, n)).into();
    assert_eq!(there, [Some(file), Some(dir), Some(moved)]);
}

/// An earlier process made it, and was killed.
#[test]
fn a_sync_of_a_directory_keeps_what_an_earlier_process_made() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let file = s.file(ROOT, "file");
    drop(s);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    sync_of(&mut s.bricks[0], ROOT);
    assert_eq!(found(&mut reopen(&mut disk, s), "file"), Some(file));
}

#[test]
fn a_sync_of_a_file_keeps_the_place_of_the_directory_above() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let dir = s.dir(ROOT, "old");
    let file = s.file(dir, "file");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    let (parent, to_parent) = (ROOT, ROOT);
    s.run(&Op::Rename { parent, name: name("old"), to_parent, to_name: name("new"), flags: 0 }, b"").unwrap();
    sync_of(&mut s.bricks[0], file);
    let mut b = reopen(&mut disk, s);
    assert_eq!((found(&mut b, "old"), found(&mut b, "new")), (None, Some(dir)));
}

/// A brick on which a file was synced and then removed, while somebody had it open.
fn with_orphan() -> (Disk, Set, Fid) {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let file = s.file(ROOT, "file");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    disk.pass_time();
    let change = Change::Unlink { parent: ROOT, name: name("file"), fid: file, orphan: true, time: time(9) };
    s.apply(&change, b"").unwrap();
    s.bricks[0].flush_attrs().unwrap();
    (disk, s, file)
}

/// One of the operations on the disk survives the power cut, each in its turn: among them the file's tag alone.
#[test]
fn a_file_that_keeps_its_name_is_no_orphan() {
    let count = with_orphan().0.unsynced();
    for survivor in 0..count {
        let (mut disk, s, file) = with_orphan();
        drop(s);
        let mut at = 0;
        disk.crash(CrashRule::Hostile, &mut |n| {
            at += usize::from(n == 4);
            // A quarter of what is drawn survives.
            u64::from(n == 5 || at != survivor + 1)
        });
        // The first process that opens it is killed at once.
        for opening in 0..2 {
            let mut b = disk.open().unwrap();
            match found(&mut b, "file") {
                Some(there) => {
                    assert!(there == file && !b.is_orphan(file), "{survivor}, {opening}: it has its name");
                }
                None => assert!(b.is_orphan(file), "{survivor}, {opening}: it has no name"),
            }
        }
    }
}

/// A name leads to one of the two files at any time, and what has a name is no orphan.
#[test]
fn a_rename_over_an_open_file_is_done_or_not() {
    for made in 0..10 {
        for rule in [CrashRule::Ordered, CrashRule::Hostile] {
            let mut disk = Disk::new(1, rule);
            let mut s = Set::new(vec![disk.open().unwrap()]);
            let (new, old) = (s.file(ROOT, "new"), s.file(ROOT, "old"));
            s.open.insert(old);
            s.bricks[0].begin_sync(None).unwrap().run().unwrap();
            disk.cut_power_after(made);
            let (parent, to_parent) = (ROOT, ROOT);
            let rename = Op::Rename { parent, name: name("new"), to_parent, to_name: name("old"), flags: 0 };
            let _ = s.run(&rename, b"");
            drop(s);
            // All that was done survives.
            disk.crash(rule, &mut |n| n - 1);
            let mut b = disk.open().unwrap();
            let (at_new, at_old) = (found(&mut b, "new"), found(&mut b, "old"));
            let why = format!("{rule:?} after {made} changes");
            assert!(
                at_old == Some(old) || (at_new, at_old) == (None, Some(new)),
                "{why}: {at_new:?} {at_old:?}"
            );
            let links = b.attr(old).map(|a| a.nlink);
            let named = at_old == Some(old);
            assert_eq!((links, b.is_orphan(old)), (Ok(u32::from(named)), !named), "{why}");
        }
    }
}

/// Both names of a file were removed; a power cut took one of the removals.
#[test]
fn a_file_with_a_name_left_is_no_orphan() {
    for survivor in 0..20 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let file = s.file(ROOT, "a");
        s.run(&Op::Link { fid: file, parent: ROOT, name: name("b") }, b"").unwrap();
        s.open.insert(file);
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        disk.pass_time();
        for n in ["a", "b"] {
            s.run(&Op::Unlink { parent: ROOT, name: name(n) }, b"").unwrap();
        }
        drop(s);
        let mut at = 0;
        disk.crash(CrashRule::Hostile, &mut |n| {
            at += usize::from(n == 4);
            u64::from(n == 5 || at != survivor + 1)
        });
        let mut b = disk.open().unwrap();
        let names = u32::from(found(&mut b, "a").is_some()) + u32::from(found(&mut b, "b").is_some());
        let links = b.attr(file).map(|a| a.nlink);
        assert_eq!((links, b.is_orphan(file)), (Ok(names), names == 0), "{survivor}");
    }
}

/// The file is gone and the record that says so is lost: others may have it.
#[test]
fn an_orphan_whose_end_has_lost_its_record_is_stale() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let file = s.file(ROOT, "file");
    s.open.insert(file);
    s.run(&Op::Unlink { parent: ROOT, name: name("file") }, b"").unwrap();
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    disk.pass_time();
    s.apply(&Change::DropOrphan { fid: file }, b"").unwrap();
    drop(s);
    // The tree survives, the end of the journal does not.
    disk.crash(CrashRule::Ordered, &mut |n| if n == 5 { 0 } else { n - 1 });
    let mut b = disk.open().unwrap();
    assert!(b.attr(file).is_err() && b.stale_set().is_some_and(|s| s.objects.contains(&file)));
}

/// What says when everything was synced last is worth nothing if the clock was set back since.
#[test]
fn what_was_renamed_after_the_clock_was_set_back_is_known() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    s.file(ROOT, "synced");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    disk.set_clock_back();
    let file = s.file(ROOT, "old");
    let (parent, to_parent) = (ROOT, ROOT);
    s.run(&Op::Rename { parent, name: name("old"), to_parent, to_name: name("new"), flags: 0 }, b"").unwrap();
    drop(s);
    // The tree survives, the journal does not.
    disk.crash(CrashRule::Ordered, &mut |n| if n == 5 { 0 } else { n - 1 });
    let mut b = disk.open().unwrap();
    assert!(b.attr(file).is_ok() && b.stale_set().is_some_and(|s| s.objects.contains(&file)));
}

/// The clock was set right again: the file seems older than the last sync of everything.
#[test]
fn what_was_made_while_the_clock_was_slow_is_known() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let old = s.file(ROOT, "synced");
    for _ in 0..2 {
        disk.pass_time();
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    }
    disk.set_clock_back();
    let file = s.file(ROOT, "file");
    drop(s);
    disk.set_clock_right();
    // The tree survives, the journal does not.
    disk.crash(CrashRule::Ordered, &mut |n| if n == 5 { 0 } else { n - 1 });
    let mut b = disk.open().unwrap();
    assert!(b.attr(file).is_ok(), "it is found by its fid before anybody asks for its name");
    assert_eq!(found(&mut b, "file"), Some(file));
    let stale = b.stale_set().unwrap().objects.clone();
    assert!(stale.contains(&file) && !stale.contains(&old), "{stale:?}");
}

/// A power cut may keep a new file's name and data and lose its tag: nobody can know whose it was, and its name is free.
/// Something that was there at the last sync already is no such thing.
#[test]
fn what_a_power_cut_left_without_its_tag_is_in_nobodys_way() {
    let mut moved = 0;
    for seed in 0..400 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        disk.put("foreign", b"older");
        let old = s.file(ROOT, "old");
        for _ in 0..2 {
            disk.pass_time();
            s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        }
        disk.pass_time();
        let file = s.file(ROOT, "file");
        s.write(file, 0, b"data");
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let named = disk.tree().get("/file").map(|seen| seen.tag.is_some());
        let before = disk.tree()["/old"].clone();
        let mut b = disk.open().unwrap();
        let (tree, hidden) = (disk.tree(), disk.names("limbo"));
        assert_eq!(
            (found(&mut b, "file").is_some(), tree.contains_key("/file")),
            (named == Some(true), named == Some(true)),
            "{seed}"
        );
        assert_eq!((hidden.len(), &tree["/old"]), (usize::from(named == Some(false)), &before), "{seed}");
        assert!(tree.contains_key("/foreign"), "{seed}: it was there before");
        assert_eq!(found(&mut b, "old"), Some(old));
        if named != Some(true) {
            Set::new(vec![b]).file(ROOT, "file");
        }
        moved += hidden.len();
    }
    assert!(moved > 5, "{moved}");
}

/// The primary told that a file lost its last name, and lost that in a power cut, before this brick had taken over the names.
#[test]
fn a_file_that_has_its_name_again_is_no_orphan_any_more() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let file = s.file(ROOT, "file");
    let b = &mut s.bricks[0];
    let named = b.object(file).unwrap().unwrap();
    let orphan = wire::peer::Object { flags: disk_format::tag::ORPHAN, ..named.clone() };
    b.take_object(file, &orphan, None, true).unwrap();
    assert_eq!(b.begin_orphans().unwrap().unwrap().run().unwrap(), [file], "and has a name here still");
    b.take_object(file, &named, None, true).unwrap();
    assert!(b.begin_orphans().unwrap().is_none());
    assert_eq!((found(b, "file"), b.attr(file).unwrap().nlink), (Some(file), 1));
}

/// What was moved to the heal trash got another name while its brick was healed: it stays under that, and the index knows it
/// after a kill, too.
#[test]
fn what_got_a_name_while_it_lay_in_the_heal_trash_stays_known() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (a, d) = (s.file(ROOT, "a"), s.dir(ROOT, "d"));
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    s.bricks[0].begin_heal(Lsn(0), &[], Lsn(0)).unwrap();
    let (mut entries, ..) = s.bricks[0].entries(ROOT, 0, 64 << 10).unwrap();
    entries.retain(|e| e.fid == d);
    s.bricks[0].take_entries(ROOT, 0, None, &entries, &[]).unwrap();
    s.apply(&Change::Link { fid: a, parent: d, name: name("b"), time: time(9) }, b"").unwrap();
    // An opening looks again at the last records.
    for n in ["c", "d", "e"] {
        s.dir(d, n);
    }
    s.bricks[0].begin_end().unwrap().run().unwrap();
    s.bricks[0].end_heal().unwrap();
    drop(s);
    disk.open().unwrap().close().unwrap();
    assert_eq!(disk.problems(), []);
}

/// What was moved there since the list was made is in memory still.
#[test]
fn only_what_was_forgotten_leaves_the_heal_trash() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (a, b) = (s.file(ROOT, "a"), s.file(ROOT, "b"));
    let brick = &mut s.bricks[0];
    brick.begin_heal(Lsn(0), &[], Lsn(0)).unwrap();
    assert!(brick.begin_trash().unwrap().is_none());
    let (mut entries, ..) = brick.entries(ROOT, 0, 64 << 10).unwrap();
    entries.retain(|e| e.fid == b);
    brick.take_entries(ROOT, 0, None, &entries, &[]).unwrap();
    let listed = brick.begin_trash().unwrap().unwrap().run().unwrap();
    assert_eq!(listed, [a]);
    brick.take_entries(ROOT, 0, None, &[], &[]).unwrap();
    listed.into_iter().for_each(|fid| brick.forget_trashed(fid).unwrap());
    brick.begin_end().unwrap().run().unwrap();
    assert_eq!(brick.begin_trash().unwrap().unwrap().run().unwrap(), [b]);
    assert!(HealTarget::is_known(brick, b).unwrap() && !HealTarget::is_known(brick, a).unwrap());
}

/// The directory that had the name went to the heal trash as a whole. Who has the file open keeps it, whatever else ends.
#[test]
fn a_file_without_a_name_stays_though_its_old_name_is_in_the_heal_trash() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let d = s.dir(ROOT, "d");
    let file = s.file(d, "file");
    let b = &mut s.bricks[0];
    b.begin_heal(Lsn(0), &[], Lsn(0)).unwrap();
    let named = b.object(file).unwrap().unwrap();
    let orphan = wire::peer::Object { flags: disk_format::tag::ORPHAN, ..named };
    b.take_object(file, &orphan, None, true).unwrap();
    b.take_entries(ROOT, 0, None, &[], &[]).unwrap();
    s.apply(&Change::EndFile { fid: file, drop: None, add: None, orphan: false, time: time(9) }, b"")
        .unwrap();
    let b = &mut s.bricks[0];
    for gone in [d, file] {
        b.forget_trashed(gone).unwrap();
    }
    b.begin_end().unwrap().run().unwrap();
    b.end_heal().unwrap();
    assert_eq!(b.begin_orphans().unwrap().unwrap().run().unwrap(), [file]);
    assert_eq!(b.attr(file).unwrap().nlink, 0);
}

/// It was healed as a file without a name before the directory was compared that still has one here.
#[test]
fn an_orphan_that_ends_before_its_name_is_healed_goes_with_the_name() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let file = s.file(ROOT, "file");
    let b = &mut s.bricks[0];
    b.begin_heal(b.last().lsn, &[ROOT, file], Lsn(0)).unwrap();
    let named = b.object(file).unwrap().unwrap();
    let orphan = wire::peer::Object { flags: disk_format::tag::ORPHAN, ..named };
    b.take_object(file, &orphan, None, true).unwrap();
    s.apply(&Change::DropOrphan { fid: file }, b"").unwrap();
    let b = &mut s.bricks[0];
    b.take_entries(ROOT, 0, None, &[], &[]).unwrap();
    b.begin_end().unwrap().run().unwrap();
    b.end_heal().unwrap();
    assert!(b.begin_orphans().unwrap().is_none());
    assert!(found(b, "file").is_none() && b.version(file).is_none());
}

/// A marked directory that loses its place to another one: its transaction ends only while somebody knows where to ask.
#[test]
fn a_power_cut_leaves_no_marked_directory_without_its_entry() {
    let mut lay_there = 0;
    for seed in 0..200 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let theirs = |n| Fid { set: SetId(9), ..ours(n) };
        let make = |fid| Change::PrepareMkdir {
            path: vec![Ancestor { fid: theirs(1), home: SetId(9), name: name("top") }],
            name: name("d"),
            fid,
            mode: 0o755,
            uid: 0,
            gid: 0,
            time: time(5),
        };
        let (fid, home, node) = (theirs(1), SetId(9), wire::op::Node::Dir);
        let (mode, uid, gid, time) = (0o755, 0, 0, time(4));
        let top = Change::Create { parent: ROOT, name: name("top"), fid, home, node, mode, uid, gid, time };
        s.apply(&top, b"").unwrap();
        s.apply(&make(ours(101)), b"").unwrap();
        s.apply(&Change::EndTransaction { fid: ours(101), keep: true }, b"").unwrap();
        s.apply(&Change::PrepareRmdir { fid: ours(101) }, b"").unwrap();
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.apply(&make(ours(102)), b"").unwrap();
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let mut b = disk.open().unwrap();
        let at = b.location_of(ours(101)).map(|at| (at.parent, at.name));
        assert_eq!(at, Ok((theirs(1), name("d"))), "{seed}");
        lay_there += disk.names("limbo").len();
    }
    assert!(lay_there > 20, "it seldom came to lie in lost+found");
}

/// In a comparison of everything that is nearly all of them.
#[test]
fn an_object_that_is_right_is_not_written() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (f, d) = (s.file(ROOT, "f"), s.dir(ROOT, "d"));
    s.write(f, 0, b"data");
    let b = &mut s.bricks[0];
    b.flush_attrs().unwrap();
    let [file, dir] = [f, d].map(|fid| b.object(fid).unwrap().unwrap());
    for (fid, object) in [(f, &file), (d, &dir)] {
        disk.fail_writes(true);
        assert!(b.take_object(fid, object, None, true).unwrap(), "{fid}");
        let mut others = [object.clone(), object.clone(), object.clone()];
        others[0].attr.mtime.sec += 1;
        others[1].attr.mode ^= 0o200;
        others[2].version.lsn = Lsn(99);
        for other in &others {
            assert!(b.take_object(fid, other, None, true).is_err(), "{fid}");
        }
        assert!(
            b.take_object(fid, object, None, false).is_err(),
            "its data is to follow: it has no version yet"
        );
        disk.fail_writes(false);
    }
    // What waits to be written is not on the disk.
    s.write(f, 0, b"date");
    let b = &mut s.bricks[0];
    let file = b.object(f).unwrap().unwrap();
    disk.fail_writes(true);
    assert!(b.take_object(f, &file, None, true).is_err());
}

/// A directory of ours at `path`, beneath copies of another set's.
pub(super) fn placed(path: &[(Fid, &str)], n: &str, fid: Fid) -> [Change; 2] {
    let (mode, uid, gid, time) = (0o755, 0, 0, time(5));
    let made = Change::PrepareMkdir { path: ancestors(path), name: name(n), fid, mode, uid, gid, time };
    [made, Change::EndTransaction { fid, keep: true }]
}

pub(super) fn ancestors(path: &[(Fid, &str)]) -> Vec<Ancestor> {
    path.iter().map(|(fid, n)| Ancestor { fid: *fid, home: fid.set, name: name(n) }).collect()
}

/// Entries of directories that wait for their place are entries: what a power cut did to them is found there too.
#[test]
fn a_power_cut_leaves_no_name_of_a_nameless_file_in_a_directory_in_lost_found() {
    let mut named = 0;
    for seed in 0..100 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        // Nobody has the copies above it, and the root is ours: it finds no place.
        let copy = Fid { set: SetId(9), ..ours(1) };
        placed(&[(copy, "top")], "d", ours(101)).iter().for_each(|c| s.apply(c, b"").unwrap());
        let file = s.file(ours(101), "file");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        let gone =
            Change::Unlink { parent: ours(101), name: name("file"), fid: file, orphan: true, time: time(9) };
        s.apply(&gone, b"").unwrap();
        s.bricks[0].flush_attrs().unwrap();
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let mut b = disk.open().unwrap();
        if let Some(e) = b.entry(ours(101), &name("file")).unwrap() {
            assert_eq!(b.attr(e.fid).map(|attr| attr.nlink), Ok(1), "{seed}");
            named += 1;
        }
    }
    assert!(named > 20, "{named}");
}

/// A copy of another set's directory has lost its tag, and a directory that was on disk long ago had just been moved beneath it.
#[test]
fn a_power_cut_keeps_what_was_moved_beneath_a_copy_that_lost_its_tag() {
    let mut copies_lost = 0;
    for seed in 0..1000 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let theirs = |n| Fid { set: SetId(9), ..ours(n) };
        let (fid, home, node) = (theirs(1), SetId(9), wire::op::Node::Dir);
        let (mode, uid, gid, time) = (0o755, 0, 0, time(4));
        let top = Change::Create { parent: ROOT, name: name("top"), fid, home, node, mode, uid, gid, time };
        s.apply(&top, b"").unwrap();
        placed(&[(theirs(1), "top")], "d", ours(101)).iter().for_each(|c| s.apply(c, b"").unwrap());
        let [below, file] = [s.dir(ours(101), "below"), s.file(ours(101), "file")];
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        let path = ancestors(&[(theirs(1), "top"), (theirs(2), "new")]);
        s.apply(&Change::Relocate { fid: ours(101), path, name: name("e") }, b"").unwrap();
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        if seed % 2 == 0 {
            disk.lose_index();
        }
        // The power fails again, before anything was synced.
        if seed % 4 < 2 {
            drop(disk.open().unwrap());
            disk.crash_by_chance(CrashRule::Hostile, seed);
        }
        let mut b = disk.open().unwrap();
        let entry = |b: &mut Brick, n| b.lookup(ours(101), &name(n)).map(|e| e.map(|e| e.fid));
        assert_eq!(
            [entry(&mut b, "below"), entry(&mut b, "file")],
            [Ok(Some(below)), Ok(Some(file))],
            "{seed}"
        );
        copies_lost += disk.names("limbo").iter().filter(|n| n.starts_with("unknown")).count();
        b.close().unwrap();
        assert_eq!(disk.problems(), [], "{seed}");
    }
    assert!(copies_lost > 5, "{copies_lost}");
}

/// A directory has lost its tag, and files that were on disk long ago had just got names in it: these count no more.
#[test]
fn a_power_cut_leaves_files_no_names_in_a_directory_that_lost_its_tag() {
    let (mut links, mut moves) = (0, 0);
    for seed in 0..1000 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let [linked, moved] = ["linked", "moved"].map(|n| s.file(ROOT, n));
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        let d = s.dir(ROOT, "d");
        s.run(&Op::Link { fid: linked, parent: d, name: name("linked") }, b"").unwrap();
        let to =
            Op::Rename { parent: ROOT, name: name("moved"), to_parent: d, to_name: name("moved"), flags: 0 };
        s.run(&to, b"").unwrap();
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let tree = disk.tree();
        let is_lost = tree.get("/d").is_some_and(|seen| seen.tag.is_none());
        let has = |path| is_lost && tree.contains_key(path);
        let (link, only) = (has("/d/linked"), has("/d/moved") && !tree.contains_key("/moved"));
        let mut b = disk.open().unwrap();
        if link {
            assert_eq!((found(&mut b, "linked"), b.attr(linked).unwrap().nlink), (Some(linked), 1), "{seed}");
        }
        assert!(!only || b.attr(moved).is_err(), "{seed}");
        (links, moves) = (links + usize::from(link), moves + usize::from(only));
        b.close().unwrap();
        assert_eq!(disk.problems(), [], "{seed}");
    }
    assert!(links > 3 && moves > 3, "{links} {moves}");
}

/// What was removed before a kill, or before a power cut that the records may not survive, is not in the index afterwards.
#[test]
fn what_went_before_a_crash_leaves_the_index() {
    for seed in 0..40 {
        let power = seed > 0;
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        s.dir(ROOT, "dir");
        s.file(ROOT, "file");
        let open = s.file(ROOT, "open");
        s.open.insert(open);
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.run(&Op::Rmdir { parent: ROOT, name: name("dir") }, b"").unwrap();
        for n in ["file", "open"] {
            s.run(&Op::Unlink { parent: ROOT, name: name(n) }, b"").unwrap();
        }
        s.apply(&Change::DropOrphan { fid: open }, b"").unwrap();
        disk.cut_power_after(if power { 0 } else { u64::MAX });
        drop(s);
        if power {
            disk.crash_by_chance(CrashRule::Hostile, seed);
        }
        disk.open().unwrap().close().unwrap();
        assert_eq!(disk.problems(), [], "seed {seed}");
    }
}
