//! Files whose names wait for the end of a transaction with another set, over power cuts and kills.

use super::common::*;
use super::disk::Disk;
use brick::Brick;
use ids::{Fid, Lsn, OpId, SessionId, SetId};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use wire::Change;
use wire::change::Replaced;
use wire::op::{EntryName, Intent};

/// The file is to move from the root to a directory of another set.
fn intent() -> Intent {
    let there = Fid { set: SetId(2), ..ROOT };
    Intent {
        tx: OpId { session: SessionId(5), seq: 6 },
        coordinator: SetId(2),
        drop: Some(EntryName { dir: ROOT, name: name("file") }),
        add: Some(EntryName { dir: there.names(), name: name("there") }),
    }
}

fn sync(s: &mut Set) {
    s.bricks[0].flush_attrs().unwrap();
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
}

/// A file that is marked, on disk; and then the end.
fn moved(disk: &mut Disk) -> (Set, Fid) {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let fid = s.file(ROOT, "file");
    disk.pass_time();
    s.apply(&Change::PrepareFile { fid, intent: intent() }, b"").unwrap();
    sync(&mut s);
    disk.pass_time();
    let Intent { drop, add, .. } = intent();
    s.apply(&Change::EndFile { fid, drop, add, orphan: false, time: time(9) }, b"").unwrap();
    (s, fid)
}

fn is_moved(b: &mut Brick, fid: Fid) -> bool {
    let Intent { drop, add, .. } = intent();
    let leads =
        |b: &mut Brick, at: EntryName| matches!(b.entry(at.dir, &at.name), Ok(Some(e)) if e.fid == fid);
    let (old, new) = (leads(b, drop.unwrap()), leads(b, add.unwrap()));
    assert!(!(old && new), "a rename leaves one name");
    new
}

#[test]
fn a_power_cut_takes_no_mark_without_the_names_that_its_end_changed() {
    let (mut lost, mut told, mut whole) = (0, 0, 0);
    for seed in 0..400 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let (mut s, fid) = moved(&mut disk);
        assert!(!s.bricks[0].is_pending(fid).unwrap());
        if seed % 2 == 0 {
            s.bricks[0].flush_attrs().unwrap();
        }
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let mut b = disk.open().unwrap();
        if b.is_pending(fid).unwrap() {
            assert_eq!(b.intent(fid), Ok(Some(intent())), "{seed}");
            lost += 1;
            // Of the others the journal tells.
            if b.marked_files() == [fid] {
                told += 1;
                // Another power cut before anybody has asked.
                drop(b);
                disk.crash(CrashRule::Hostile, &mut |_| 0);
                let mut b = disk.open().unwrap();
                assert_eq!((b.is_pending(fid), b.marked_files()), (Ok(true), vec![fid]), "{seed}");
            }
        } else {
            assert!(is_moved(&mut b, fid), "{seed}: neither marked nor moved");
            whole += 1;
        }
    }
    assert!(lost > 50 && told > lost / 2, "{lost}, {told} and {whole}");
}

/// Two files with names in another set's directories that change places there: marked on disk, the names, and both ends.
fn changed_places(disk: &mut Disk) -> (Set, [(Fid, EntryName); 2]) {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let far = Fid { set: SetId(2), ..ROOT };
    let files = ["x", "y"].map(|n| (s.file(ROOT, n), EntryName { dir: far.names(), name: name(n) }));
    let end = |fid, add| Change::EndFile { fid, drop: None, add, orphan: false, time: time(8) };
    for (fid, place) in &files {
        let intent = Intent { drop: None, add: Some(place.clone()), ..intent() };
        s.apply(&Change::PrepareFile { fid: *fid, intent }, b"").unwrap();
        s.apply(&end(*fid, Some(place.clone())), b"").unwrap();
    }
    sync(&mut s);
    let [(f, x), (g, y)] = files.clone();
    for (fid, drop, add) in [(f, &x, &y), (g, &y, &x)] {
        let intent = Intent { drop: Some(drop.clone()), add: Some(add.clone()), ..intent() };
        s.apply(&Change::PrepareFile { fid, intent }, b"").unwrap();
    }
    sync(&mut s);
    disk.pass_time();
    let (parent, to_parent, time) = (x.dir, y.dir, time(9));
    let (name, to_name) = (x.name, y.name);
    s.apply(&Change::Exchange { parent, name, fid: f, to_parent, to_name, to_fid: g, time }, b"").unwrap();
    s.apply(&end(g, None), b"").unwrap();
    s.apply(&end(f, None), b"").unwrap();
    (s, files)
}

#[test]
fn a_power_cut_leaves_two_names_in_place_or_exchanged_and_takes_no_mark_before() {
    let mut seen = [0; 3];
    for seed in 0..400 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let (mut s, [(f, x), (g, y)]) = changed_places(&mut disk);
        if seed % 2 == 0 {
            s.bricks[0].flush_attrs().unwrap();
        }
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let mut b = disk.open().unwrap();
        let mut at = |place: &EntryName| b.entry(place.dir, &place.name).unwrap().map(|e| e.fid);
        let there = (at(&x), at(&y));
        let exchanged = there == (Some(g), Some(f));
        assert!(exchanged || there == (Some(f), Some(g)), "{seed}: {there:?}");
        let marked = [f, g].map(|fid| b.is_pending(fid).unwrap());
        assert!(exchanged || marked == [true, true], "{seed}: a mark has gone before the names");
        seen[usize::from(exchanged) + usize::from(exchanged && marked == [false, false])] += 1;
    }
    assert!(seen[0] > 20 && seen[1] > 20, "{seen:?}");
}

#[test]
fn a_kill_brings_no_mark_back() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let (mut s, fid) = moved(&mut disk);
    s.bricks[0].flush_attrs().unwrap();
    drop(s);
    let mut b = disk.open().unwrap();
    assert!(is_moved(&mut b, fid));
    assert_eq!((b.is_pending(fid), b.intent(fid)), (Ok(false), Ok(None)));
}

#[test]
fn the_next_transaction_waits_until_the_end_of_the_last_is_on_disk() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let (mut s, fid) = moved(&mut disk);
    let again = Change::PrepareFile { fid, intent: intent() };
    assert_eq!(s.bricks[0].validate(&again), Err(wire::Errno::EAGAIN));
    sync(&mut s);
    assert_eq!(s.bricks[0].validate(&again), Ok(()));
}

#[test]
fn a_name_that_the_file_got_again_is_not_lost_when_a_power_cut_brings_the_mark_back() {
    for linked in [false, true] {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let (mut s, fid) = moved(&mut disk);
        if linked {
            s.apply(&Change::Link { fid, parent: ROOT, name: name("file"), time: time(10) }, b"").unwrap();
        }
        s.bricks[0].begin_sync_of(&[fid, ROOT]).unwrap().run().unwrap();
        drop(s);
        disk.crash(CrashRule::Ordered, &mut |_| 0);
        let mut b = disk.open().unwrap();
        assert_eq!(b.is_pending(fid), Ok(true), "the end of the transaction is not known to be on disk");
        let Intent { drop, add, .. } = b.intent(fid).unwrap().unwrap();
        assert_eq!((drop.is_some(), add.is_some()), (!linked, true));
    }
}

/// A brick whose machine lost power with a marked file, and that goes on alone; it is killed then.
fn alone_after_a_loss() -> (Disk, Brick, Fid) {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let fid = s.file(ROOT, "file");
    s.apply(&Change::PrepareFile { fid, intent: intent() }, b"").unwrap();
    sync(&mut s);
    drop(s);
    disk.crash(CrashRule::Hostile, &mut |_| 0);
    let mut b = disk.open().unwrap();
    b.reset_journal(stamp(b.last().lsn.next().0)).unwrap();
    end_heal(&mut b);
    drop(b);
    let b = disk.open().unwrap();
    (disk, b, fid)
}

#[test]
fn a_mark_of_which_no_record_is_left_is_known_after_a_kill() {
    let (mut disk, mut b, fid) = alone_after_a_loss();
    assert!(!b.found().rebooted && b.stale_set().is_none());
    assert_eq!((b.is_pending(fid), b.marked_files()), (Ok(true), vec![fid]));
    b.close().unwrap();
    let mut s = Set::new(vec![disk.open().unwrap()]);
    assert_eq!(s.bricks[0].marked_files(), [fid], "nor is it forgotten by a brick that is closed");
    s.apply(&Change::EndFile { fid, drop: None, add: None, orphan: false, time: time(9) }, b"").unwrap();
    s.bricks.remove(0).close().unwrap();
    assert_eq!(disk.open().unwrap().marked_files(), []);
}

#[test]
fn a_mark_that_a_healing_met_is_known_after_a_kill() {
    let (mut first, mut second) = (Disk::new(1, CrashRule::Hostile), Disk::new(2, CrashRule::Hostile));
    let mut s = Set::new(vec![first.open().unwrap(), second.open().unwrap()]);
    let fid = s.file(ROOT, "file");
    let mut joiner = s.bricks.remove(1);
    s.apply(&Change::PrepareFile { fid, intent: intent() }, b"").unwrap();
    joiner.begin_heal(joiner.last().lsn, &[fid], Lsn(0)).unwrap();
    let object = s.bricks[0].object(fid).unwrap().unwrap();
    assert!(joiner.take_object(fid, &object, None, true).unwrap());
    assert_eq!(joiner.marked_files(), [fid], "it may lead before it is opened again");
    joiner.reset_journal(s.bricks[0].last()).unwrap();
    for ended in [false, true] {
        if ended {
            joiner.begin_end().unwrap().run().unwrap();
            second.fail_syncs(true);
            joiner.end_heal().expect("the brick's own thread waits for no disk");
            second.fail_syncs(false);
        }
        drop(joiner);
        joiner = second.open().unwrap();
        assert_eq!(joiner.stale_set().is_none(), ended);
        assert_eq!((joiner.is_pending(fid), joiner.marked_files()), (Ok(true), vec![fid]));
    }
}

/// A power cut may take the name that a transaction gave a file, and no other one that went after it.
#[test]
fn a_file_keeps_its_names_until_those_that_it_was_given_are_on_disk() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (fid, other) = (s.file(ROOT, "file"), s.file(ROOT, "other"));
    let add = intent().add;
    let link = Intent { drop: None, add: add.clone(), ..intent() };
    s.apply(&Change::PrepareFile { fid, intent: link }, b"").unwrap();
    s.apply(&Change::EndFile { fid, drop: None, add, orphan: false, time: time(9) }, b"").unwrap();
    let replaced = || Some(Replaced { fid, dir: false, orphan: false });
    let (file, far) = (name("file"), Fid { set: SetId(2), ..other });
    let gone = [
        Change::Unlink { parent: ROOT, name: file.clone(), fid, orphan: false, time: time(10) },
        Change::Rename {
            parent: ROOT,
            name: name("other"),
            fid: other,
            to_parent: ROOT,
            to_name: file.clone(),
            replaced: replaced(),
            time: time(10),
        },
        Change::Enter {
            parent: ROOT,
            name: file,
            fid: far,
            home: SetId(2),
            kind: 0o100_000,
            replaced: replaced(),
            time: time(10),
        },
    ];
    for change in &gone {
        assert_eq!(s.bricks[0].validate(change), Err(wire::Errno::EAGAIN), "{change:?}");
    }
    sync(&mut s);
    for change in &gone {
        assert_eq!(s.bricks[0].validate(change), Ok(()), "{change:?}");
    }
}

/// A folder of names with one name, on a brick that heals.
fn with_folder() -> (Disk, Set, Fid, Fid) {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (fid, folder) = (s.file(ROOT, "old"), intent().add.unwrap().dir);
    give_name(&mut s, fid, "a");
    let b = &mut s.bricks[0];
    b.begin_heal(b.last().lsn, &[folder], Lsn(0)).unwrap();
    (disk, s, fid, folder)
}

fn give_name(s: &mut Set, fid: Fid, n: &str) {
    let add = Some(EntryName { dir: intent().add.unwrap().dir, name: name(n) });
    s.apply(&Change::PrepareFile { fid, intent: intent() }, b"").unwrap();
    s.apply(&Change::EndFile { fid, drop: None, add, orphan: false, time: time(9) }, b"").unwrap();
}

fn end_heal(b: &mut Brick) {
    b.begin_end().unwrap().run().unwrap();
    b.end_heal().unwrap();
}

/// It has the fid that it had: what is remembered of the old one is not in the new one.
#[test]
fn a_folder_of_names_that_healing_took_away_and_that_is_made_again_is_empty() {
    let (_disk, mut s, _, folder) = with_folder();
    assert!(!s.bricks[0].take_nothing(folder).unwrap(), "it goes");
    end_heal(&mut s.bricks[0]);
    let new = s.file(ROOT, "new");
    give_name(&mut s, new, "b");
    let mut leads = |n: &str| s.bricks[0].entry(folder, &name(n)).unwrap().map(|e| e.fid);
    assert_eq!((leads("a"), leads("b")), (None, Some(new)));
}

/// The primary had none when the first healing asked, which did not end.
#[test]
fn a_folder_of_names_that_a_healing_took_away_comes_back_with_the_next() {
    let (mut disk, mut s, fid, folder) = with_folder();
    let object = s.bricks[0].object(folder).unwrap().unwrap();
    assert!(!s.bricks[0].take_nothing(folder).unwrap());
    drop(s);
    let mut b = disk.open().unwrap();
    assert!(b.take_object(folder, &object, None, true).unwrap());
    end_heal(&mut b);
    assert_eq!(b.entry(folder, &name("a")).unwrap().map(|e| e.fid), Some(fid));
}
