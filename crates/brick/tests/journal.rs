//! What the journal promises: one history, whole up to the durable position, and as long as recovery needs it.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Brick, JournalError, OpenError, Options};
use ids::{Epoch, Lsn, OpId};
use std::path::{Path, PathBuf};
use wire::peer::Stamp;
use wire::{Change, Errno};

fn segments(brick: &Path) -> Vec<PathBuf> {
    let mut v: Vec<_> =
        std::fs::read_dir(brick.join(".mortar/journal")).unwrap().map(|e| e.unwrap().path()).collect();
    v.sort();
    v
}

fn first_of(segment: &Path) -> u64 {
    u64::from_str_radix(segment.file_stem().unwrap().to_str().unwrap(), 16).unwrap()
}

fn brick_with(dir: &Path, options: &Options) -> Set {
    let path = dir.join("b");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    Set::new(vec![Brick::open(&path, &identity(1), options.clone()).unwrap()])
}

/// From now on the brick's state is that of another boot.
fn another_boot(brick: &Path) {
    let state = brick.join(".mortar/state");
    let mut read = disk_format::State::decode(&std::fs::read(&state).unwrap()).unwrap();
    read.boot = [7; 16];
    std::fs::write(&state, read.encode()).unwrap();
}

#[test]
fn a_change_of_an_older_epoch_is_not_journaled_after_a_newer_one() {
    let t = temp();
    let mut b = new_brick(t.path(), 1);
    let at = |epoch, lsn| Stamp { epoch: Epoch(epoch), lsn: Lsn(lsn) };
    b.apply(at(5, 1), OpId::default(), None, &Change::Nop, b"").unwrap();
    assert_eq!(b.apply(at(4, 2), OpId::default(), None, &Change::Nop, b""), Err(Errno::EIO));
    assert_eq!(b.last(), at(5, 1));
    b.apply(at(6, 2), OpId::default(), None, &Change::Nop, b"").unwrap();
}

/// A brick with a few files in each segment of its journal, durable up to the 50th; all segments, and the durable one's.
fn durable_in_the_middle(dir: &Path) -> (PathBuf, Vec<PathBuf>, usize) {
    let options = Options { segment_size: 2000, ..Options::default() };
    let mut s = brick_with(dir, &options);
    for n in 1..=50 {
        s.file(ROOT, &format!("f{n}"));
    }
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    assert_eq!(s.bricks[0].durable().lsn, Lsn(50));
    for n in 51..=140 {
        s.file(ROOT, &format!("f{n}"));
    }
    drop(s);
    let path = dir.join("b");
    another_boot(&path);
    let all = segments(&path);
    let durable = all.iter().rposition(|s| first_of(s) <= 50).unwrap();
    assert!(
        first_of(&all[durable]) < 50 && first_of(&all[durable + 1]) > 51,
        "it is in the middle of a segment"
    );
    (path, all, durable)
}

/// What was brought to disk and is not there is no power cut's doing: nothing may be cut off for it.
#[test]
fn damage_before_the_durable_position_is_refused_after_a_power_cut() {
    let t = temp();
    let (path, all, durable) = durable_in_the_middle(t.path());
    let mut bytes = std::fs::read(&all[durable]).unwrap();
    bytes[disk_format::journal::HEAD + 5] ^= 1;
    std::fs::write(&all[durable], &bytes).unwrap();
    match Brick::open(&path, &identity(1), Options::default()) {
        Err(OpenError::Journal(JournalError::Damaged { file, .. })) => assert_eq!(file, all[durable]),
        Err(e) => panic!("{e}"),
        Ok(b) => panic!("its journal ends at {}", b.last().lsn),
    }
    assert_eq!(std::fs::read(&all[durable]).unwrap(), bytes, "what is left of it stays");
}

/// Their content may be there although their records are cut off.
#[test]
fn all_objects_that_records_behind_a_tear_name_are_stale() {
    let t = temp();
    let (path, all, durable) = durable_in_the_middle(t.path());
    std::fs::write(&all[durable + 1], b"").unwrap();
    // Nothing but their records says that there were these: their times are lost with them.
    (131..=140).for_each(|n| std::fs::remove_file(path.join(format!("f{n}"))).unwrap());
    let b = Brick::open(&path, &identity(1), Options::default()).unwrap();
    let from = first_of(&all[durable + 2]);
    assert!(b.last().lsn < Lsn(from) && from < 130);
    let stale = &b.stale_set().unwrap().objects;
    let fid = |n| ids::Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) };
    let missing: Vec<u64> = (from..=140).filter(|n| !stale.contains(&fid(*n))).collect();
    assert!(missing.is_empty() && stale.contains(&ROOT), "not stale: {missing:?}");
}

/// However the bound of the journal and a sync fall together.
#[test]
fn no_record_is_dropped_that_recovery_needs() {
    for synced in 1..40 {
        let t = temp();
        let options = Options { segment_size: 600, journal_size: 2000, ..Options::default() };
        let mut s = brick_with(t.path(), &options);
        (0..synced).for_each(|n| _ = s.file(ROOT, &format!("f{n}")));
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        for n in synced..60 {
            s.file(ROOT, &format!("f{n}"));
            let start = s.bricks[0].journal_start();
            assert!(start <= Lsn(synced + 1), "synced up to {synced}: the journal begins at {start}");
        }
    }
}

/// Whether the shift was done before the kill cannot be seen; a second one would move what is right.
#[test]
fn data_that_the_last_change_shifts_is_not_shifted_twice() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    let f = s.file(ROOT, "f");
    let blocks: Vec<u8> = (0..8).flat_map(|n| [n; 4096]).collect();
    s.write(f, 0, &blocks);
    let collapse = Change::Fallocate { fid: f, mode: 0x08, offset: 4096, len: 4096, time: time(9) };
    s.apply(&collapse, b"").unwrap();
    let path = s.bricks[0].path().to_path_buf();
    // As after a kill.
    drop(s);
    let b = open(&path, &identity(1));
    assert_eq!(b.found().incomplete, Some(f), "it has to be compared");
    let left = std::fs::read(path.join("f")).unwrap();
    assert_eq!((left.len(), left[4096]), (7 * 4096, 2));
}

/// Nothing of it is read when the brick is opened, as all is in the tree: a brick that joins would need it.
#[test]
fn a_missing_segment_is_noticed_by_who_does_not_read_it() {
    let t = temp();
    let options = Options { segment_size: 600, ..Options::default() };
    let mut s = brick_with(t.path(), &options);
    (0..30).for_each(|n| _ = s.file(ROOT, &format!("f{n}")));
    let b = s.bricks.remove(0);
    let path = b.path().to_path_buf();
    b.close().unwrap();
    let all = segments(&path);
    std::fs::remove_file(&all[all.len() / 2]).unwrap();
    match Brick::open(&path, &identity(1), options) {
        Err(OpenError::Journal(JournalError::Missing { .. })) => {}
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it is in use"),
    }
}

#[test]
fn a_damaged_mark_of_healing_means_that_everything_is_stale() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.file(ROOT, "f");
    let b = s.bricks.remove(0);
    let path = b.path().to_path_buf();
    b.close().unwrap();
    std::fs::write(path.join(".mortar/heal"), b"what a power cut left of it").unwrap();
    let b = open(&path, &identity(1));
    let stale_set = b.stale_set().expect("something was not healed");
    assert_eq!((stale_set.from, stale_set.versions_valid_to), (Lsn(0), Lsn(0)));
}

/// While a brick heals its journal says what is stale.
#[test]
fn a_journal_that_loses_what_it_says_is_stale_makes_everything_stale() {
    let t = temp();
    let options = Options { segment_size: 600, journal_size: 1000, ..Options::default() };
    let mut s = brick_with(t.path(), &options);
    (0..5).for_each(|n| _ = s.file(ROOT, &format!("f{n}")));
    s.bricks[0].begin_heal(Lsn(2), &[], Lsn(2)).unwrap();
    for n in 5..200 {
        s.file(ROOT, &format!("f{n}"));
        if n % 10 == 0 {
            s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        }
        let (start, from) = (s.bricks[0].journal_start(), s.bricks[0].stale_set().unwrap().from);
        assert!(
            from == Lsn(0) || start <= from.next(),
            "stale from {from} on: the journal begins at {start}"
        );
    }
    assert!(s.bricks[0].journal_start() > Lsn(3), "it is kept within some bound");
}

/// Nothing would tell the others which objects differ: they have to compare everything.
#[test]
fn a_brick_that_goes_on_alone_and_cannot_name_all_that_is_stale_begins_its_journal_anew() {
    let many = |n| (0..n).map(|n| ids::Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) }).collect::<Vec<_>>();
    for (named, anew) in [(1 << 20, false), ((1 << 20) + 1, true)] {
        let t = temp();
        let mut s = Set::new(vec![new_brick(t.path(), 1)]);
        s.file(ROOT, "f");
        let b = &mut s.bricks[0];
        b.begin_sync(None).unwrap().run().unwrap();
        let last = b.last();
        b.begin_heal(last.lsn, &many(named), Lsn(0)).unwrap();
        let start = Stamp { epoch: Epoch(9), lsn: last.lsn.next() };
        let ends = replica::healing::adopt_history(b, Epoch(9)).unwrap();
        assert_eq!((&ends, &b.last()), if anew { (&start, &start) } else { (&last, &last) }, "{named}");
    }
}

/// A healing that was to compare everything was not finished: its journal names only what it came to.
#[test]
fn a_brick_that_is_stale_since_before_its_journal_begins_its_journal_anew() {
    let t = temp();
    let options = Options { segment_size: 600, journal_size: 2000, ..Options::default() };
    let mut s = brick_with(t.path(), &options);
    for n in 0..60 {
        s.file(ROOT, &format!("f{n}"));
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    }
    let b = &mut s.bricks[0];
    assert!(b.journal_start() > Lsn(10));
    b.begin_heal(Lsn(5), &[ROOT], Lsn(0)).unwrap();
    let last = b.last();
    let ends = replica::healing::adopt_history(b, Epoch(9)).unwrap();
    assert_eq!(ends, Stamp { epoch: Epoch(9), lsn: last.lsn.next() });
}

/// They would take room, and bricks would differ in it.
#[test]
fn what_is_written_again_after_a_kill_fills_no_holes() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    let f = s.file(ROOT, "f");
    s.write(f, 0, &[1; 100_000]);
    let punch = Change::Fallocate { fid: f, mode: 0x03, offset: 4096, len: 61_440, time: time(9) };
    s.apply(&punch, b"").unwrap();
    let path = s.bricks[0].path().to_path_buf();
    let before = std::fs::read(path.join("f")).unwrap();
    std::fs::File::open(path.join("f")).unwrap().sync_all().unwrap();
    let blocks = |path: &std::path::Path| std::os::unix::fs::MetadataExt::blocks(&path.metadata().unwrap());
    let taken = blocks(&path.join("f"));
    // As after a kill.
    drop(s);
    drop(open(&path, &identity(1)));
    std::fs::File::open(path.join("f")).unwrap().sync_all().unwrap();
    assert_eq!(blocks(&path.join("f")), taken);
    assert!(std::fs::read(path.join("f")).unwrap() == before);
}
