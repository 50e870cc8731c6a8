//! Syncs that fail: what the kernel drops then, no later sync brings to disk.

use super::common::*;
use super::disk::Disk;
use brick::{Brick, ReadOutcome};
use ids::{Fid, Lsn};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use std::collections::BTreeSet;
use wire::codec::Blob;
use wire::{Change, Op};

/// A brick whose sync has failed.
fn failed(disk: &mut Disk) -> Set {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    s.file(ROOT, "a");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    s.file(ROOT, "b");
    disk.fail_syncs(true);
    assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
    disk.fail_syncs(false);
    s
}

/// The journal's records are on disk when a sync says so.
fn survives(disk: &mut Disk, mut s: Set, rule: CrashRule) {
    let lsn = s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    assert_eq!((lsn, s.bricks[0].durable().lsn), (Lsn(2), Lsn(2)));
    drop(s);
    disk.crash(rule, &mut |_| 0);
    let b = disk.open().unwrap();
    let lsns: BTreeSet<u64> = b.iterate(Lsn(1)).map(|r| r.unwrap().stamp.lsn.0).collect();
    assert_eq!(lsns, BTreeSet::from([1, 2]), "{rule:?}");
}

#[test]
fn the_journal_is_written_again_after_a_failed_sync() {
    for rule in [CrashRule::Ordered, CrashRule::Hostile] {
        let mut disk = Disk::new(1, rule);
        let mut s = failed(&mut disk);
        assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err(), "nothing was written again yet");
        s.bricks[0].mark_unsynced_stale().unwrap();
        survives(&mut disk, s, rule);
    }
}

/// A disk that takes nothing at all for a while: when it is well again the brick can heal, and needs no new process.
#[test]
fn syncs_succeed_again_when_what_is_stale_could_be_written() {
    for rule in [CrashRule::Ordered, CrashRule::Hostile] {
        let mut disk = Disk::new(1, rule);
        let mut s = failed(&mut disk);
        disk.fail_writes(true);
        assert!(s.bricks[0].mark_unsynced_stale().is_err());
        disk.fail_writes(false);
        assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err(), "nothing says what is stale");
        s.bricks[0].mark_unsynced_stale().unwrap();
        survives(&mut disk, s, rule);
    }
}

/// The process ends before it hears of the failure.
#[test]
fn the_next_process_writes_the_journal_again() {
    for rule in [CrashRule::Ordered, CrashRule::Hostile] {
        let mut disk = Disk::new(1, rule);
        drop(failed(&mut disk));
        let s = Set::new(vec![disk.open().unwrap()]);
        survives(&mut disk, s, rule);
    }
}

/// A segment that has no records yet has a head, which the others need.
#[test]
fn the_head_of_an_empty_journal_is_written_again() {
    for (rule, begins) in [(CrashRule::Ordered, 0), (CrashRule::Hostile, 0), (CrashRule::Hostile, 7)] {
        for same_process in [true, false] {
            let mut disk = Disk::new(1, rule);
            let mut b = disk.open().unwrap();
            b.begin_sync(None).unwrap().run().unwrap();
            b.reset_journal(stamp(begins)).unwrap();
            disk.fail_syncs(true);
            assert!(b.begin_sync(None).unwrap().run().is_err());
            disk.fail_syncs(false);
            if same_process {
                b.mark_unsynced_stale().unwrap();
            } else {
                drop(b);
                b = disk.open().unwrap();
            }
            b.apply(stamp(begins + 1), ids::OpId::default(), None, &wire::Change::Nop, b"").unwrap();
            assert_eq!(b.begin_sync(None).unwrap().run(), Ok(Lsn(begins + 1)));
            drop(b);
            disk.crash(rule, &mut |_| 0);
            let opened = disk.open();
            assert_eq!(
                opened.map(|b| b.last()).map_err(|e| e.to_string()),
                Ok(stamp(begins + 1)),
                "{rule:?}"
            );
        }
    }
}

/// The file of the index fails once, while it is written: nobody has to start the server anew for it.
#[test]
fn the_index_is_used_again_after_an_error() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let mut files: Vec<_> = (0..20).map(|n| s.file(ROOT, &format!("a{n}"))).collect();
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    files.extend((0..20).map(|n| s.file(ROOT, &format!("b{n}"))));
    let job = s.bricks[0].begin_sync(None).unwrap();
    disk.fail_writes(true);
    assert!(job.run().is_err(), "the index was written");
    disk.fail_writes(false);
    let all_there = |b: &mut Brick| files.iter().all(|f| b.attr(*f).is_ok());
    assert!(all_there(&mut s.bricks[0]));
    s.bricks[0].mark_unsynced_stale().unwrap();
    let last = s.bricks[0].last().lsn;
    assert_eq!(s.bricks[0].begin_sync(None).unwrap().run(), Ok(last));
    assert!(all_there(&mut s.bricks[0]));
    drop(s);
    disk.crash(CrashRule::Ordered, &mut |_| 0);
    let mut b = disk.open().unwrap();
    assert!(!b.found().index_rebuilt && all_there(&mut b));
}

/// A brick is closed after a change was done in part; the next process does it again, and is killed.
#[test]
fn what_was_made_in_part_at_first_is_known_after_a_kill() {
    let mut in_part = 0;
    for calls in 0..10 {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        disk.fail_writes_after(calls);
        let made = s.run(&create(ROOT, "a", wire::op::Node::File, 0o644), b"");
        disk.fail_writes(false);
        let mut b = s.bricks.pop().unwrap();
        if made.is_ok() || !b.is_partial() {
            continue;
        }
        in_part += 1;
        assert!(b.shut().is_err(), "{calls}");
        drop(b);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let file = s.bricks[0].lookup(ROOT, &name("a")).unwrap().map(|e| e.fid);
        s.file(ROOT, "b");
        drop(s);
        let mut b = disk.open().unwrap();
        assert!(file.is_some_and(|f| b.attr(f).is_ok()), "{calls}");
    }
    assert!(in_part > 0);
}

/// A record gave way to a shorter one, or was written in part, and what was left of it could not be cut off at once.
#[test]
fn an_orderly_close_leaves_no_part_of_a_record() {
    let (mut cut, long) = (0, "a".repeat(200));
    for calls in 0..20 {
        for in_part in [false, true] {
            let mut disk = Disk::new(1, CrashRule::Ordered);
            let mut s = Set::new(vec![disk.open().unwrap()]);
            disk.fail_writes_after(calls);
            let made = s.run(&create(ROOT, &long, wire::op::Node::File, 0o644), b"");
            let mut b = s.bricks.pop().unwrap();
            if in_part && b.is_partial() {
                // One write, and not the cut after it.
                disk.fail_writes_after(1);
                b.record_partial().unwrap();
                cut += 1;
            }
            disk.fail_writes(false);
            let partial = b.is_partial();
            assert_eq!(b.close().is_ok(), !partial, "{calls}: {made:?}");
            if !partial {
                let mut problems = disk.problems();
                // What a change made in part stays as it is.
                problems.retain(|p| p.path.starts_with(".mortar"));
                assert_eq!(problems, [], "{calls}: {made:?}");
            }
        }
    }
    assert!(cut > 0);
}

/// A journal's next segment could not be begun: nothing of it is left at an orderly close.
#[test]
fn an_orderly_close_leaves_no_part_of_a_segment() {
    let mut in_part = 0;
    for calls in 0..20 {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        // Up to the size of a segment: the next record is to be the first of another one.
        while disk.journal_bytes() < 1500 {
            s.file(ROOT, &format!("f{}", s.bricks[0].last().lsn.0));
        }
        disk.fail_writes_after(calls);
        let made = s.run(&create(ROOT, "next", wire::op::Node::File, 0o644), b"");
        disk.fail_writes(false);
        let b = s.bricks.pop().unwrap();
        if b.is_partial() {
            continue;
        }
        in_part += u32::from(made.is_err());
        b.close().unwrap();
        assert_eq!(disk.problems(), [], "{calls}: {made:?}");
    }
    assert!(in_part > 0);
}

/// A rename over a directory is done or not, also on a full disk.
#[test]
fn a_directory_takes_the_place_of_another_without_room() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (a, b) = (s.dir(ROOT, "a"), s.dir(ROOT, "b"));
    disk.fill();
    let op = Op::Rename { parent: ROOT, name: name("a"), to_parent: ROOT, to_name: name("b"), flags: 0 };
    let done = s.run(&op, b"");
    let entries = ["a", "b"].map(|n| s.bricks[0].entry(ROOT, &name(n)).unwrap().map(|e| e.fid));
    assert_eq!((done, entries), (Ok(None), [None, Some(a)]));
    assert_eq!(s.bricks[0].attr(b), Err(wire::Errno::ESTALE));
    let (listed, _) = s.bricks[0].readdir(ROOT, 0, false, 4096).unwrap();
    assert_eq!(listed.iter().map(|e| e.fid).collect::<Vec<_>>(), [a]);
}

/// All that a failed sync may have dropped, in slices.
fn read(b: &mut Brick, f: Fid, at: u64, len: u32) -> Vec<u8> {
    match b.read(f, at, len).unwrap() {
        ReadOutcome::Data(data) => data.to_vec(),
        ReadOutcome::NeedsBlocking(job) => job.run().unwrap().to_vec(),
    }
}

fn write_again(b: &mut Brick) -> Result<(), wire::Errno> {
    b.begin_write_again();
    while !b.write_again_slice()? {}
    Ok(())
}

/// Nobody can heal it: the data that was dropped goes to disk with the next sync, and until then no sync succeeds.
#[test]
fn what_a_failed_sync_dropped_is_written_again_where_nobody_else_has_it() {
    let rules = [CrashRule::Ordered, CrashRule::Hostile];
    // While others had it, too, and the disk took not even the mark of what is stale.
    for (rule, unmarked) in rules.into_iter().flat_map(|rule| [(rule, false), (rule, true)]) {
        let mut disk = Disk::new(1, rule);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let f = s.file(ROOT, "f");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.write(f, 0, b"first");
        s.write(f, 9000, b"second");
        let time = s.bricks[0].attr(f).unwrap().mtime;
        disk.fail_syncs(true);
        assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
        disk.fail_syncs(false);
        assert!(s.bricks[0].begin_sync(Some(f)).unwrap().run().is_err(), "the kernel says it only once");
        if unmarked {
            disk.fail_writes(true);
            assert!(s.bricks[0].mark_unsynced_stale().is_err());
            disk.fail_writes(false);
        }
        write_again(&mut s.bricks[0]).unwrap();
        s.bricks[0].begin_sync(Some(f)).unwrap().run().unwrap();
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        assert_eq!(s.bricks[0].attr(f).unwrap().mtime, time);
        drop(s);
        disk.crash(rule, &mut |_| 0);
        let mut b = disk.open().unwrap();
        let found = (&read(&mut b, f, 0, 5)[..], &read(&mut b, f, 9000, 9)[..]);
        assert_eq!(found, (&b"first"[..], &b"second"[..]));
        assert_eq!(b.attr(f).unwrap().mtime, time);
    }
}

/// A write takes a file's capability away, the brick's own, too, as on Linux: it is there again when the data was written again,
/// after a failed sync as after a kill. One that a later write took away does not come back.
#[test]
fn a_file_that_is_written_again_keeps_its_capability() {
    let capability = "security.capability";
    for kill in [false, true] {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let [f, g] = ["f", "g"].map(|name| s.file(ROOT, name));
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        for fid in [f, g] {
            s.write(fid, 0, b"program");
            let value = Blob(b"may bind".to_vec());
            s.apply(&Change::SetXattr { fid, name: name(capability), value, time: time(9) }, b"").unwrap();
        }
        s.write(g, 0, b"another");
        if kill {
            drop(s);
            s = Set::new(vec![disk.open().unwrap()]);
        } else {
            disk.fail_syncs(true);
            assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
            disk.fail_syncs(false);
            write_again(&mut s.bricks[0]).unwrap();
        }
        let found = [f, g].map(|fid| s.bricks[0].xattr(fid, &name(capability)).unwrap());
        assert_eq!(found, [Some(b"may bind".to_vec()), None], "after a kill: {kill}");
    }
}

/// What a brick that heals takes over of a large file comes after its attributes.
#[test]
fn a_file_keeps_its_capability_when_its_data_is_healed() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let fid = s.file(ROOT, "f");
    s.write(fid, 0, &[7; 20_000]);
    let (attribute, value) = (name("security.capability"), Blob(b"may bind".to_vec()));
    s.apply(&Change::SetXattr { fid, name: attribute.clone(), value, time: time(9) }, b"").unwrap();
    let b = &mut s.bricks[0];
    b.take_data(fid, 0, b"program").unwrap();
    assert_eq!(b.xattr(fid, &attribute).unwrap(), Some(b"may bind".to_vec()));
    b.take_hole(fid, 8192, 4096).unwrap();
    assert_eq!(b.xattr(fid, &attribute).unwrap(), Some(b"may bind".to_vec()));
    assert_eq!((read(b, fid, 0, 7), read(b, fid, 8192, 5)), (b"program".to_vec(), vec![0; 5]));
}

/// The data is in memory when the brick is opened to heal, and compares as right: no copy of it is taken.
#[test]
fn what_a_failed_sync_dropped_is_on_disk_when_the_brick_has_healed() {
    for (rule, marked) in
        [CrashRule::Ordered, CrashRule::Hostile].into_iter().flat_map(|rule| [(rule, false), (rule, true)])
    {
        let mut disk = Disk::new(1, rule);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let f = s.file(ROOT, "f");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.write(f, 0, b"first");
        let time = s.bricks[0].attr(f).unwrap().mtime;
        disk.fail_syncs(true);
        assert!(s.bricks[0].begin_sync(Some(f)).unwrap().run().is_err());
        disk.fail_syncs(!marked);
        s.bricks[0].mark_unsynced_stale().unwrap();
        disk.fail_syncs(false);
        drop(s);
        let mut b = disk.open().unwrap();
        assert!(b.stale_set().is_some(), "{rule:?} {marked}");
        assert_eq!(b.attr(f).unwrap().mtime, time);
        b.begin_end().unwrap().run().unwrap();
        b.end_heal().unwrap();
        drop(b);
        disk.crash(rule, &mut |_| 0);
        let mut b = disk.open().unwrap();
        let data = read(&mut b, f, 0, 5);
        assert_eq!((&data[..], b.attr(f).unwrap().mtime), (&b"first"[..], time), "{rule:?} {marked}");
    }
}

/// What waits to be committed when a sync fails does not wait for a position that a healing has taken the brick back from.
#[test]
fn the_index_goes_back_with_the_journal() {
    for cut in [false, true] {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        s.dir(ROOT, "a");
        let first = s.bricks[0].last();
        s.dir(ROOT, "b");
        s.dir(ROOT, "c");
        disk.fail_syncs(true);
        assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
        disk.fail_syncs(false);
        let mut b = s.bricks.remove(0);
        b.mark_unsynced_stale().unwrap();
        b.begin_heal(Lsn(0), &[], Lsn(0)).unwrap();
        if cut { b.truncate_after(first.lsn) } else { b.reset_journal(first) }.unwrap();
        b.begin_end().unwrap().run().unwrap();
        b.end_heal().unwrap();
        b.close().unwrap();
        assert_eq!(disk.problems(), [], "cut: {cut}");
    }
}

/// The process is killed before it hears of the failure, and its brick was alone: nothing is stale.
#[test]
fn the_next_process_writes_the_data_again() {
    for rule in [CrashRule::Ordered, CrashRule::Hostile] {
        let mut disk = Disk::new(1, rule);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let f = s.file(ROOT, "f");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.write(f, 0, b"first");
        s.run(&Op::SetXattr { fid: f, name: name("user.a"), flags: 0 }, b"value").unwrap();
        let time = s.bricks[0].attr(f).unwrap().mtime;
        disk.fail_syncs(true);
        assert!(s.bricks[0].begin_sync(Some(f)).unwrap().run().is_err());
        disk.fail_syncs(false);
        drop(s);
        let mut b = disk.open().unwrap();
        assert!(b.stale_set().is_none() && b.attr(f).unwrap().mtime == time, "{rule:?}");
        b.begin_sync(Some(f)).unwrap().run().unwrap();
        drop(b);
        disk.crash(rule, &mut |_| 0);
        let mut b = disk.open().unwrap();
        let data = read(&mut b, f, 0, 5);
        assert_eq!((&data[..], b.attr(f).unwrap().mtime), (&b"first"[..], time), "{rule:?}");
    }
}

/// Clients go on between the slices: what they write then is not undone, and a sync that fails then counts.
#[test]
fn what_is_written_while_data_is_written_again_stays() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let f = s.file(ROOT, "f");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    let old = vec![1; 1 << 20];
    s.write(f, 0, &old);
    disk.fail_syncs(true);
    assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
    s.bricks[0].begin_write_again();
    let mut slices = 0;
    while !s.bricks[0].write_again_slice().unwrap() {
        slices += 1;
        let time = s.bricks[0].attr(f).unwrap().mtime;
        disk.pass_time();
        if slices == 1 {
            assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err(), "it is not written again yet");
            disk.fail_syncs(false);
        } else if slices < 8 {
            s.write(f, slices * 100_000, &[2; 100]);
        } else {
            // A second does it once more.
            s.bricks[0].begin_flush();
            while !s.bricks[0].flush_slice().unwrap() {}
            assert_eq!(s.bricks[0].attr(f).unwrap().mtime, time);
        }
    }
    assert!(slices > 8, "{slices} slices");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    let time = s.bricks[0].attr(f).unwrap().mtime;
    drop(s);
    disk.crash(CrashRule::Ordered, &mut |_| 0);
    let mut b = disk.open().unwrap();
    let mut wanted = old;
    (2..8).for_each(|n| wanted[n * 100_000..][..100].fill(2));
    let read = match b.read(f, 0, 1 << 20).unwrap() {
        ReadOutcome::Data(data) => data,
        ReadOutcome::NeedsBlocking(job) => job.run().unwrap(),
    };
    assert!(read == wanted);
    assert_eq!(b.attr(f).unwrap().mtime, time);
}

/// The process is killed while it writes the data again: the kernel's times are not what users see afterwards.
#[test]
fn a_kill_while_data_is_written_again_moves_no_times() {
    for (calls, index) in (0..).flat_map(|calls| [(calls, false), (calls, true)]) {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let (f, g) = (s.file(ROOT, "f"), s.file(ROOT, "g"));
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.write(f, 0, b"first");
        s.write(g, 0, b"second");
        s.run(&Op::SetXattr { fid: f, name: name("user.a"), flags: 0 }, b"value").unwrap();
        let times = [f, g].map(|f| s.bricks[0].attr(f).unwrap().mtime);
        disk.fail_syncs(true);
        assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
        disk.pass_time();
        disk.cut_power_after(calls);
        let done = write_again(&mut s.bricks[0]).is_ok();
        drop(s);
        disk.fail_syncs(false);
        if !index {
            disk.lose_index();
        }
        let mut b = disk.open().unwrap();
        assert_eq!([f, g].map(|f| b.attr(f).unwrap().mtime), times, "killed after {calls} calls, {index}");
        if done && index {
            break;
        }
    }
}

/// A brick with a file that was written after the last sync, and the time of that.
fn written_after_a_sync() -> (Disk, Set, Fid, ids::Time) {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let f = s.file(ROOT, "f");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    s.write(f, 0, b"first");
    let time = s.bricks[0].attr(f).unwrap().mtime;
    (disk, s, f, time)
}

/// Likewise while a brick is opened that is to heal what came later: nobody compares the file.
#[test]
fn a_kill_at_the_opening_of_a_brick_that_is_to_heal_moves_no_times() {
    for calls in 0.. {
        let (mut disk, mut s, f, time) = written_after_a_sync();
        let last = s.bricks[0].last().lsn;
        s.bricks[0].begin_heal(last, &[], last).unwrap();
        drop(s);
        disk.pass_time();
        disk.cut_power_after(calls);
        let done = disk.open().is_ok();
        disk.fail_syncs(false);
        let mut b = disk.open().unwrap();
        assert_eq!(b.attr(f).unwrap().mtime, time, "killed after {calls} calls");
        if done {
            break;
        }
    }
}

/// Likewise if the file's last change was done in part, as the disk was full: its record tells no times.
#[test]
fn a_kill_after_a_change_in_part_moves_no_times() {
    for calls in 0.. {
        let (mut disk, mut s, f, time) = written_after_a_sync();
        disk.fill();
        let op = Op::Rename { parent: ROOT, name: name("f"), to_parent: ROOT, to_name: name("g"), flags: 0 };
        assert_eq!(s.run(&op, b""), Err(wire::Errno::ENOSPC));
        assert!(s.bricks[0].record_partial().unwrap().touched().contains(&f));
        disk.fail_syncs(true);
        assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
        disk.pass_time();
        disk.cut_power_after(calls);
        let done = write_again(&mut s.bricks[0]).is_ok();
        drop(s);
        disk.fail_syncs(false);
        let mut b = disk.open().unwrap();
        assert_eq!(b.attr(f).unwrap().mtime, time, "killed after {calls} calls");
        if done {
            break;
        }
    }
}

/// The disk takes nothing for a while, and then a few changes: what the state file says stands for what is on it.
#[test]
fn a_kill_after_a_disk_took_nothing_moves_no_times() {
    for calls in 0..12 {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let f = s.file(ROOT, "f");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.write(f, 0, b"first");
        s.file(ROOT, "g");
        s.bricks[0].flush_attrs().unwrap();
        let time = s.bricks[0].attr(f).unwrap().mtime;
        disk.fail_syncs(true);
        assert!(s.bricks[0].begin_sync(None).unwrap().run().is_err());
        disk.pass_time();
        disk.fail_writes(true);
        assert!(write_again(&mut s.bricks[0]).is_err());
        disk.fail_writes_after(calls);
        write_again(&mut s.bricks[0]).ok();
        drop(s);
        disk.fail_writes(false);
        disk.lose_index();
        let mut b = disk.open().unwrap();
        assert_eq!(b.attr(f).unwrap().mtime, time, "after {calls} calls");
    }
}

/// A change that was done in part, and that could not be marked as such, is done by the next process.
#[test]
fn a_sync_does_not_cover_a_change_done_in_part() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let a = s.dir(ROOT, "a");
    disk.fill();
    let op = Op::Rename { parent: ROOT, name: name("a"), to_parent: ROOT, to_name: name("b"), flags: 0 };
    assert_eq!(s.run(&op, b""), Err(wire::Errno::ENOSPC));
    let b = &mut s.bricks[0];
    assert!(b.is_partial() && b.abandon_partial().is_err());
    disk.fail_syncs(false);
    b.begin_sync(None).unwrap().run().unwrap();
    drop(s);
    let mut b = disk.open().unwrap();
    assert_eq!(b.entry(ROOT, &name("b")).unwrap().map(|e| e.fid), Some(a));
}
