//! Files whose names wait for the end of a transaction with another set, over power cuts and kills.

use super::common::*;
use super::disk::Disk;
use brick::Brick;
use ids::{Fid, OpId, SessionId, SetId};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use wire::Change;
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
        let mut random: u64 = seed;
        disk.crash(CrashRule::Hostile, &mut |below| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (random >> 33) % below
        });
        let mut b = disk.open().unwrap();
        if b.is_pending(fid).unwrap() {
            assert_eq!(b.intent(fid), Ok(Some(intent())), "{seed}");
            lost += 1;
            // Of the others the journal tells.
            if b.found().marked_files == [fid] {
                told += 1;
                // Another power cut before anybody has asked.
                drop(b);
                disk.crash(CrashRule::Hostile, &mut |_| 0);
                let mut b = disk.open().unwrap();
                assert_eq!(
                    (b.is_pending(fid), &b.found().marked_files[..]),
                    (Ok(true), &[fid][..]),
                    "{seed}"
                );
            }
        } else {
            assert!(is_moved(&mut b, fid), "{seed}: neither marked nor moved");
            whole += 1;
        }
    }
    assert!(lost > 50 && told > lost / 2, "{lost}, {told} and {whole}");
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
