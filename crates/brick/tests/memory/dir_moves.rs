//! Directories that move to another set's directory, over power cuts and on full disks.

use super::common::*;
use super::disk::Disk;
use brick::Brick;
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use wire::op::{Ancestor, EntryName, Intent};
use wire::{Change, Errno};

const OTHER: SetId = SetId(9);
const FAR: Fid = theirs(1);
const TX: OpId = OpId { session: SessionId(3), seq: 8 };

const fn ours(n: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) }
}

const fn theirs(n: u64) -> Fid {
    Fid { set: OTHER, epoch: Epoch(1), lsn: Lsn(n) }
}

fn sync(s: &mut Set) {
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
}

/// A directory in the root, with a file, that is marked to move to `FAR/new`, and that is on disk.
fn marked(disk: &mut Disk) -> (Set, Fid) {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let dir = s.dir(ROOT, "dir");
    s.file(dir, "file");
    sync(&mut s);
    disk.pass_time();
    let drop = Some(EntryName { dir: ROOT, name: name("dir") });
    let add = Some(EntryName { dir: FAR, name: name("new") });
    let intent = Intent { tx: TX, coordinator: OTHER, drop, add };
    s.apply(&Change::PrepareFile { fid: dir, intent }, b"").unwrap();
    s.bricks[0].begin_sync_of(&[dir]).unwrap().run().unwrap();
    (s, dir)
}

fn move_out(s: &mut Set, dir: Fid) {
    let (name, to_name, time) = (name("dir"), name("new"), time(700));
    let (parent, to, to_dir) = (ROOT, OTHER, FAR);
    let change = Change::MoveOut { parent, name, fid: dir, tx: TX, to, to_dir, to_name, time };
    s.apply(&change, b"").unwrap();
}

/// The power fails while a directory waits for the end of a move, its attributes written or not: it waits still, with what is in it.
fn after_a_cut((mut s, dir): (Set, Fid), disk: &mut Disk, (rule, seed): (CrashRule, u64)) -> Brick {
    if seed % 3 == 0 {
        s.bricks[0].flush_attrs().unwrap();
    }
    drop(s);
    disk.crash_by_chance(rule, seed);
    let mut b = disk.open().unwrap();
    assert_eq!(b.is_pending(dir), Ok(true), "{seed}");
    assert!(b.entry(dir, &name("file")).unwrap().is_some(), "{seed}: what is in it stays");
    b
}

/// The brick closes in order, and nothing is wrong with it.
fn is_sound(b: Brick, disk: &Disk, seed: u64) {
    b.close().unwrap();
    assert_eq!(disk.problems(), [], "{seed}");
}

/// Until it is on disk that it has left it is marked, here or there: what is asked then is the same entry of the other set.
#[test]
fn a_power_cut_never_takes_the_mark_of_a_directory_that_has_left() {
    let (mut here, mut left) = (0, 0);
    for seed in 0..200 {
        let rule = if seed % 2 == 0 { CrashRule::Hostile } else { CrashRule::Ordered };
        let mut disk = Disk::new(1, rule);
        let (mut s, dir) = marked(&mut disk);
        assert!(s.bricks[0].intent(dir).unwrap().is_some());
        move_out(&mut s, dir);
        assert_eq!(s.bricks[0].intent(dir), Ok(None), "it is where it is to be");
        let mut b = after_a_cut((s, dir), &mut disk, (rule, seed));
        let at_home = b.entry(ROOT, &name("dir")).unwrap().is_some();
        match b.intent(dir).unwrap() {
            Some(intent) => {
                assert!(at_home, "{seed}");
                assert_eq!((intent.tx, intent.coordinator), (TX, OTHER), "{seed}");
                here += 1;
            }
            None => {
                assert!(!at_home, "{seed}");
                let at = b.location_of(dir).unwrap();
                assert_eq!((at.parent, at.parent_home, at.name), (FAR, OTHER, name("new")), "{seed}");
                left += 1;
            }
        }
        is_sound(b, &disk, seed);
    }
    println!("{here} times where it was, {left} times where it is to be");
    assert!(here > 10 && left > 10, "{here}, {left}");
}

#[test]
fn a_directory_that_has_left_on_disk_stays_where_it_is() {
    for seed in 0..40 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let (mut s, dir) = marked(&mut disk);
        move_out(&mut s, dir);
        sync(&mut s);
        s.apply(&Change::EndTransaction { fid: dir, keep: true }, b"").unwrap();
        if seed % 2 == 0 {
            sync(&mut s);
        }
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let mut b = disk.open().unwrap();
        assert_eq!(b.entry(ROOT, &name("dir")).unwrap(), None, "{seed}");
        assert_eq!(b.location_of(dir).unwrap().parent_home, OTHER, "{seed}");
        is_sound(b, &disk, seed);
    }
}

/// The entry of a directory that comes here takes the place of an empty one, or nothing has happened.
#[test]
fn a_full_disk_keeps_the_directory_that_was_to_give_way() {
    for full in [false, true] {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let out = s.dir(ROOT, "here");
        let replaced = Some(wire::change::Replaced { fid: out, dir: true, orphan: false });
        let (parent, fid, home, kind, time) = (ROOT, FAR, OTHER, 0o040_000, time(9));
        let enter = Change::Enter { parent, name: name("here"), fid, home, kind, replaced, time };
        if full {
            disk.fill();
        }
        let done = s.apply(&enter, b"");
        let b = &mut s.bricks[0];
        let found = b.entry(ROOT, &name("here")).unwrap().map(|e| e.fid);
        if full {
            assert_eq!((done, found), (Err(Errno::ENOSPC), Some(out)));
            assert!(!b.is_partial());
        } else {
            assert_eq!((done, found), (Ok(()), Some(FAR)));
            assert_eq!(b.attr(out), Err(Errno::ESTALE));
        }
    }
}

const THIRD: SetId = SetId(7);
const FAR3: Fid = Fid { set: THIRD, epoch: Epoch(1), lsn: Lsn(4) };

fn far(fid: Fid, s: &str) -> Option<EntryName> {
    Some(EntryName { dir: fid, name: name(s) })
}

/// A directory of this set whose entry is `FAR/old`, with a file.
fn placed(s: &mut Set) -> Fid {
    let fid = ours(900);
    let path = vec![Ancestor { fid: FAR, home: OTHER, name: name("far") }];
    let (mode, uid, gid, time) = (0o755, 0, 0, time(5));
    s.apply(&Change::PrepareMkdir { path, name: name("old"), fid, mode, uid, gid, time }, b"").unwrap();
    s.apply(&Change::EndTransaction { fid, keep: true }, b"").unwrap();
    s.file(fid, "file");
    fid
}

/// Its entry goes from one set to another. Where it hangs says nothing of that: what is kept beside it does, and is never half
/// there.
#[test]
fn a_power_cut_never_leaves_it_open_which_entry_a_directory_is_to_leave() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..200 {
        let rule = if seed % 2 == 0 { CrashRule::Hostile } else { CrashRule::Ordered };
        let mut disk = Disk::new(1, rule);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let dir = placed(&mut s);
        sync(&mut s);
        disk.pass_time();
        let intent = Intent { tx: TX, coordinator: THIRD, drop: far(FAR, "old"), add: far(FAR3, "new") };
        s.apply(&Change::PrepareFile { fid: dir, intent: intent.clone() }, b"").unwrap();
        s.bricks[0].begin_sync_of(&[dir]).unwrap().run().unwrap();
        assert_eq!(s.bricks[0].intent(dir), Ok(Some(intent.clone())));
        let other = |set| Ok(Some((dir, set)));
        assert_eq!(s.bricks[0].lineage(dir).map(|l| l.other), other(OTHER));
        let (tx, to, to_dir, to_name, time) = (TX, THIRD, FAR3, name("new"), time(700));
        s.apply(&Change::MoveOn { fid: dir, tx, to, to_dir, to_name, time }, b"").unwrap();
        assert_eq!(s.bricks[0].intent(dir), Ok(None));
        assert_eq!(s.bricks[0].lineage(dir).map(|l| l.other), other(THIRD));
        let mut b = after_a_cut((s, dir), &mut disk, (rule, seed));
        let found = b.intent(dir).unwrap();
        let (at, owner) = (b.location_of(dir).unwrap(), b.lineage(dir).unwrap().other);
        if found.is_some() {
            assert_eq!(found, Some(intent), "{seed}");
            assert_eq!((at.parent_home, owner), (OTHER, Some((dir, OTHER))), "{seed}");
            before += 1;
        } else {
            assert_eq!((at.parent, at.parent_home, at.name), (FAR3, THIRD, name("new")), "{seed}");
            assert_eq!(owner, Some((dir, THIRD)), "{seed}");
            after += 1;
        }
        is_sound(b, &disk, seed);
    }
    println!("{before} times what was before, {after} times what is after");
    assert!(before > 10 && after > 10, "{before}, {after}");
}

/// A move that came to nothing is no longer what the next mark means.
#[test]
fn a_directory_that_is_removed_is_not_taken_for_one_that_moves() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let dir = placed(&mut s);
    let intent = Intent { tx: TX, coordinator: THIRD, drop: far(FAR, "old"), add: far(FAR3, "new") };
    s.apply(&Change::PrepareFile { fid: dir, intent }, b"").unwrap();
    s.apply(&Change::EndTransaction { fid: dir, keep: true }, b"").unwrap();
    s.apply(&Change::PrepareRmdir { fid: dir }, b"").unwrap();
    let b = &mut s.bricks[0];
    assert_eq!((b.is_pending(dir), b.intent(dir)), (Ok(true), Ok(None)));
    assert_eq!(b.lineage(dir).unwrap().other, Some((dir, OTHER)), "its entry is where it was");
}

/// What a set has of another one's directory goes with the entry, at once and for good: the directory may come back.
#[test]
fn a_copy_whose_entry_has_gone_does_not_come_back() {
    for (seed, hangs) in (0..60).flat_map(|seed| [(seed, false), (seed, true)]) {
        let rule = if seed % 2 == 0 { CrashRule::Hostile } else { CrashRule::Ordered };
        let mut disk = Disk::new(1, rule);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let (parent, kind, replaced) = (ROOT, 0o040_000, None);
        let enter = Change::Enter {
            parent,
            name: name("here"),
            fid: FAR3,
            home: THIRD,
            kind,
            replaced,
            time: time(5),
        };
        s.apply(&enter, b"").unwrap();
        let own = ours(901);
        if hangs {
            let path = vec![Ancestor { fid: FAR3, home: THIRD, name: name("here") }];
            let (mode, uid, gid, time) = (0o755, 0, 0, time(6));
            let made = Change::PrepareMkdir { path, name: name("in"), fid: own, mode, uid, gid, time };
            s.apply(&made, b"").unwrap();
            s.apply(&Change::EndTransaction { fid: own, keep: true }, b"").unwrap();
        }
        sync(&mut s);
        disk.pass_time();
        let intent = Intent { tx: TX, coordinator: THIRD, drop: far(ROOT, "here"), add: None };
        s.apply(&Change::PrepareFile { fid: FAR3, intent: intent.clone() }, b"").unwrap();
        s.bricks[0].begin_sync_of(&[FAR3]).unwrap().run().unwrap();
        assert_eq!(s.bricks[0].intent(FAR3), Ok(Some(intent)));
        let (drop, add, orphan) = (far(ROOT, "here"), None, false);
        s.apply(&Change::EndFile { fid: FAR3, drop, add, orphan, time: time(800) }, b"").unwrap();
        assert_eq!(s.bricks[0].entry(ROOT, &name("here")), Ok(None));
        std::mem::drop(s);
        disk.crash_by_chance(rule, seed);
        let mut b = disk.open().unwrap();
        assert_eq!(b.entry(ROOT, &name("here")), Ok(None), "{seed}");
        if hangs {
            assert!(b.attr(own).is_ok(), "{seed}: what hangs on it stays");
            assert_eq!(b.lineage(own).unwrap().other, Some((own, THIRD)), "{seed}");
        }
        is_sound(b, &disk, seed);
    }
}

/// Where a directory lies is no reason to leave the set: on a full disk, and with a path that is none, it stays where it is.
#[test]
fn a_directory_that_cannot_come_to_its_path_stays() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (parent, replaced, time) = (ROOT, None, time(5));
    let (fid, home, kind) = (FAR, OTHER, 0o040_000);
    s.apply(&Change::Enter { parent, name: name("far"), fid, home, kind, replaced, time }, b"").unwrap();
    let dir = placed(&mut s);
    let file = s.file(ROOT, "plain");
    let a = |fid: Fid, home, n| Ancestor { fid, home, name: name(n) };
    let beneath = |above: Ancestor| vec![a(FAR, OTHER, "far"), above];
    let new = beneath(a(theirs(5), OTHER, "new"));
    let paths = [
        new.clone(),
        beneath(a(file, SET, "plain")),
        beneath(a(ROOT, OTHER, "root")),
        vec![a(theirs(6), OTHER, ".mortar")],
    ];
    for (n, path) in paths.into_iter().enumerate() {
        if n == 0 {
            disk.fill();
        } else {
            disk.empty();
        }
        s.apply(&Change::Relocate { fid: dir, path, name: name("old") }, b"").unwrap();
        assert!(!s.bricks[0].is_partial(), "{n}");
        assert!(s.bricks[0].entry(dir, &name("file")).unwrap().is_some(), "{n}");
    }
    s.apply(&Change::Relocate { fid: dir, path: new, name: name("old") }, b"").unwrap();
    assert_eq!(s.bricks[0].location_of(dir).unwrap().parent, theirs(5));
    sync(&mut s);
    let b = s.bricks.remove(0);
    is_sound(b, &disk, 0);
}
