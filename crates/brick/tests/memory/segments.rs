//! Segments of the journal that only the page cache has, when the power fails.

use super::common::*;
use super::disk::Disk;
use brick::Brick;
use ids::{Lsn, OpId};
use memory_fs::CrashRule;
use wire::codec::Blob;
use wire::{Change, Errno};

fn files(s: &mut Set, numbers: std::ops::Range<u64>) {
    numbers.for_each(|n| _ = s.file(ROOT, &format!("f{n}")));
}

/// A sync of one file, then a power cut that takes all that was not synced: what is left of the journal.
fn synced_and_left(disk: &mut Disk, mut s: Set) -> (Lsn, Lsn) {
    let first = ids::Fid { lsn: Lsn(1), epoch: ids::Epoch(1), set: SET };
    let synced = s.bricks[0].begin_sync_of(&[first]).unwrap().run().unwrap();
    drop(s);
    disk.crash(CrashRule::Hostile, &mut |_| 0);
    let left: Brick = disk.open().unwrap();
    (synced, left.last().lsn)
}

/// However many: those that are complete, and the one that records are appended to.
#[test]
fn a_sync_covers_segments_that_were_begun_since_the_last_one() {
    for more in 1..30 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        files(&mut s, 0..3);
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        files(&mut s, 3..3 + more);
        assert_eq!(synced_and_left(&mut disk, s), (Lsn(3 + more), Lsn(3 + more)));
    }
}

#[test]
fn a_sync_covers_segments_that_a_killed_process_left() {
    let mut disk = Disk::new(1, CrashRule::Hostile);
    let mut killed = Set::new(vec![disk.open().unwrap()]);
    files(&mut killed, 0..40);
    drop(killed);
    let s = Set::new(vec![disk.open().unwrap()]);
    assert_eq!(synced_and_left(&mut disk, s), (Lsn(40), Lsn(40)));
}

/// What a full disk took of a record is no part of the journal: the bytes are a client's, and could look like a record.
#[test]
fn half_a_record_is_cut_off() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let fid = s.file(ROOT, "a");
    let before = disk.journal_bytes();
    disk.fill();
    let value = Blob(vec![7; 6000]);
    let large = Change::SetXattr { fid, name: name("user.x"), value, time: time(2) };
    let op = OpId::default();
    assert_eq!(s.bricks[0].apply(stamp(2), op, None, &large, b""), Err(Errno::ENOSPC));
    assert_eq!(disk.journal_bytes(), before);
    s.bricks[0].apply(stamp(2), op, None, &Change::Nop, b"").unwrap();
    drop(s);
    disk.cut_power_after(u64::MAX);
    assert_eq!(disk.open().unwrap().last(), stamp(2));
}

/// A brick that heals has cut off durable changes, and takes others in their place, when its power fails: what was durable
/// before the cut is no damage after it.
#[test]
fn a_power_cut_after_durable_changes_were_cut_off_is_no_damage() {
    for (rule, seed) in (0..300u64).flat_map(|n| [(CrashRule::Ordered, n), (CrashRule::Hostile, n)]) {
        for anew in [false, true] {
            let mut disk = Disk::new(1, rule);
            let mut s = Set::new(vec![disk.open().unwrap()]);
            files(&mut s, 0..6);
            let b = &mut s.bricks[0];
            assert_eq!(b.begin_sync(None).unwrap().run(), Ok(Lsn(6)));
            let common = b.stamp_at(Lsn(2)).unwrap().unwrap();
            b.begin_heal(common.lsn, &[ROOT], common.lsn).unwrap();
            if anew {
                b.reset_journal(common).unwrap()
            } else {
                b.truncate_after(common.lsn).unwrap()
            }
            for lsn in 3..6 {
                let at = wire::peer::Stamp { epoch: ids::Epoch(9), lsn: Lsn(lsn) };
                b.note(&at, OpId::default(), None, &Change::Touch { fid: ROOT }).unwrap();
            }
            drop(s);
            disk.crash_by_chance(rule, seed);
            let opened = disk.open();
            assert!(opened.is_ok(), "{rule:?} {seed} {anew}: {:?}", opened.err());
        }
    }
}

/// Of the segments before, some are left, but not those that hold what was durable; the new one is not there as a whole.
#[test]
fn a_power_cut_while_a_journal_begins_anew_farther_on_is_no_damage() {
    for (rule, seed) in (0..300u64).flat_map(|n| [(CrashRule::Ordered, n), (CrashRule::Hostile, n)]) {
        let mut disk = Disk::new(1, rule);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        files(&mut s, 0..30);
        let b = &mut s.bricks[0];
        assert_eq!(b.begin_sync(None).unwrap().run(), Ok(Lsn(30)));
        b.begin_heal(Lsn(0), &[], Lsn(0)).unwrap();
        let at = |lsn| wire::peer::Stamp { epoch: ids::Epoch(9), lsn: Lsn(lsn) };
        b.reset_journal(at(60)).unwrap();
        b.note(&at(61), OpId::default(), None, &Change::Touch { fid: ROOT }).unwrap();
        drop(s);
        disk.crash_by_chance(rule, seed);
        let opened = disk.open();
        assert!(opened.is_ok(), "{rule:?} {seed}: {:?}", opened.err());
    }
}

/// Wherever it fails: the position is the one before or the new one.
#[test]
fn a_journal_that_cannot_be_begun_anew_keeps_its_position() {
    let positions = (0..40).map(|writes_left| {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        files(&mut s, 0..30);
        let b = &mut s.bricks[0];
        b.begin_sync(None).unwrap().run().unwrap();
        b.begin_heal(Lsn(0), &[], Lsn(0)).unwrap();
        disk.fail_writes_after(writes_left);
        let done = b.reset_journal(wire::peer::Stamp { epoch: ids::Epoch(9), lsn: Lsn(60) });
        drop(s);
        disk.fail_writes(false);
        let last = disk.open().unwrap().last().lsn;
        assert!(done.is_err() || last == Lsn(60), "{last}");
        last
    });
    let positions: std::collections::BTreeSet<Lsn> = positions.collect();
    assert_eq!(positions, [Lsn(30), Lsn(60)].into());
}
