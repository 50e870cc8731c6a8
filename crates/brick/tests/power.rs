//! Power cuts: real file systems that forget what was not synced, and journals of which any unsynced part is missing.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Arriving, Brick, HealSession, JournalError, OpenError, Options, ReadOutcome};
use ids::{Fid, Lsn};
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::peer::{PeerBody, Sent, Stamp};
use wire::{Change, Op};

fn tool(line: &str) {
    let status = Command::new("sh").args(["-c", line]).status().unwrap();
    assert!(status.success(), "{line}");
}

/// A file system in a file, which writes nothing on its own for as long as a test takes.
struct Disk {
    image: PathBuf,
    dir: PathBuf,
    options: &'static str,
}

impl Disk {
    fn new(kind: &str, dir: &Path) -> Disk {
        std::fs::create_dir(dir).unwrap();
        let image = dir.with_extension("img");
        std::fs::File::create(&image).unwrap().set_len(320 << 20).unwrap();
        let quiet = if kind == "ext4" { "-F" } else { "-f" };
        tool(&format!("mkfs.{kind} -q {quiet} {}", image.display()));
        let options = if kind == "ext4" { "loop,commit=600" } else { "loop" };
        let disk = Disk { image, dir: dir.to_path_buf(), options };
        disk.mount();
        disk
    }

    fn mount(&self) {
        tool(&format!("mount -o {} {} {}", self.options, self.image.display(), self.dir.display()));
    }

    fn cut_power(&self) {
        tool(&format!("xfs_io -x -c shutdown {}", self.dir.display()));
    }

    fn come_back(&self) {
        // A process that another test starts holds copies of our descriptors until it runs its program.
        let mut tries = 0;
        while !Command::new("umount").arg(&self.dir).status().unwrap().success() {
            tries += 1;
            assert!(tries < 1000, "the file system stays in use");
        }
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
    }
}

fn small() -> Options {
    Options { segment_size: 2000, ..Options::default() }
}

fn brick_on(disk: &Disk) -> Set {
    let path = disk.dir.join("b");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    Set::new(vec![Brick::open(&path, &identity(1), small()).unwrap()])
}

fn sync_of(b: &mut Brick, fid: Fid) -> Lsn {
    b.begin_sync_of(&[fid]).unwrap().run().unwrap()
}

fn lsns(b: &Brick, from: Lsn) -> Vec<u64> {
    b.iterate(from).map(|r| r.unwrap().stamp.lsn.0).collect()
}

#[test]
fn a_sync_covers_segments_that_ended_since_the_last_one() {
    for kind in ["ext4", "xfs"] {
        let t = temp();
        let disk = Disk::new(kind, &t.path().join("disk"));
        let mut s = brick_on(&disk);
        let f = s.file(ROOT, "f");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        let durable = s.bricks[0].durable();
        // The segment is synced, and appended to afterwards.
        s.write(f, 0, b"one");
        sync_of(&mut s.bricks[0], f);
        for n in 0..60 {
            s.file(ROOT, &format!("g{n}"));
        }
        s.write(f, 0, b"two");
        let synced = sync_of(&mut s.bricks[0], f);
        assert_eq!(s.bricks[0].last().lsn, synced);
        // What nobody synced.
        for n in 0..60 {
            s.file(ROOT, &format!("h{n}"));
        }
        disk.cut_power();
        drop(s);
        disk.come_back();
        let b = Brick::open(&disk.dir.join("b"), &identity(1), small()).unwrap();
        assert!(b.found().rebooted, "{kind}");
        assert!(b.durable().lsn <= durable.lsn, "{kind}");
        assert!(b.last().lsn >= synced, "{kind}: {} of {synced}", b.last().lsn);
        assert_eq!(lsns(&b, Lsn(1)), (1..=b.last().lsn.0).collect::<Vec<_>>(), "{kind}");
        assert_eq!(std::fs::read(disk.dir.join("b/f")).unwrap(), b"two");
    }
}

#[test]
fn a_brick_in_use_is_known_as_such_after_a_power_cut() {
    for kind in ["ext4", "xfs"] {
        let t = temp();
        let disk = Disk::new(kind, &t.path().join("disk"));
        let mut s = brick_on(&disk);
        // At the very first opening, too.
        let f = s.file(ROOT, "f");
        disk.cut_power();
        drop(s);
        disk.come_back();
        let path = disk.dir.join("b");
        let b = Brick::open(&path, &identity(1), small()).unwrap();
        assert!(b.found().rebooted && b.stale_set().is_some(), "{kind}: the first opening");
        let mut s = Set::new(vec![b]);
        assert_eq!(s.bricks[0].last().lsn, Lsn(0));
        let again = s.file(ROOT, "f");
        assert_eq!(again, f);
        s.bricks[0].begin_end().unwrap().run().unwrap();
        s.bricks[0].end_heal().unwrap();
        s.bricks.pop().unwrap().close().unwrap();
        s.bricks.push(Brick::open(&path, &identity(1), small()).unwrap());
        assert!(s.bricks[0].found().clean);
        s.write(f, 0, &[1; 100_000]);
        assert_eq!(s.bricks[0].last().lsn, Lsn(2));
        disk.cut_power();
        drop(s);
        disk.come_back();
        let b = Brick::open(&path, &identity(1), small()).unwrap();
        assert!(!b.found().clean && b.found().rebooted, "{kind}: {:?}", b.found());
        assert!(b.stale_set().is_some_and(|d| d.from == Lsn(1)), "{kind}");
    }
}

/// A brick whose journal has many segments, durable in the middle; its files before each loss.
fn torn_brick(dir: &Path) -> (PathBuf, Vec<PathBuf>, Lsn) {
    let path = dir.join("b");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    let mut s = Set::new(vec![Brick::open(&path, &identity(1), small()).unwrap()]);
    for n in 0..50 {
        s.file(ROOT, &format!("f{n}"));
    }
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    let durable = s.bricks[0].durable().lsn;
    for n in 0..90 {
        s.file(ROOT, &format!("g{n}"));
    }
    drop(s);
    // The state is that of another boot.
    let state = path.join(".mortar/state");
    let mut read = disk_format::State::decode(&std::fs::read(&state).unwrap()).unwrap();
    read.boot = [7; 16];
    std::fs::write(&state, read.encode()).unwrap();
    let mut segments: Vec<_> =
        std::fs::read_dir(path.join(".mortar/journal")).unwrap().map(|e| e.unwrap().path()).collect();
    segments.sort();
    (path, segments, durable)
}

fn first_of(segment: &Path) -> Lsn {
    Lsn(u64::from_str_radix(segment.file_stem().unwrap().to_str().unwrap(), 16).unwrap())
}

/// The bytes of an older segment are lost, those of newer ones are there.
#[test]
fn a_journal_torn_beyond_the_durable_position_ends_there() {
    let t = temp();
    let (path, segments, durable) = torn_brick(t.path());
    let journal = path.join(".mortar/journal");
    copy_tree(&journal, &t.path().join("journal"));
    let state = std::fs::read(path.join(".mortar/state")).unwrap();
    let all = segments.len();
    assert!(all > 8);
    type Loss = fn(&Path);
    let losses: [(&str, Loss); 6] = [
        ("gone", |f| std::fs::remove_file(f).unwrap()),
        ("empty", |f| std::fs::write(f, b"").unwrap()),
        ("half a head", |f| std::fs::File::options().write(true).open(f).unwrap().set_len(17).unwrap()),
        ("zeros", |f| std::fs::write(f, vec![0; 2000]).unwrap()),
        ("half", |f| std::fs::File::options().write(true).open(f).unwrap().set_len(300).unwrap()),
        ("zeros in the middle", |f| {
            let mut bytes = std::fs::read(f).unwrap();
            let half = bytes.len() / 2;
            bytes[half - 60..half + 60].fill(0);
            std::fs::write(f, bytes).unwrap();
        }),
    ];
    for (what, lose) in losses {
        for (n, segment) in segments.iter().enumerate() {
            std::fs::remove_dir_all(&journal).unwrap();
            copy_tree(&t.path().join("journal"), &journal);
            std::fs::write(path.join(".mortar/state"), &state).unwrap();
            let _ = std::fs::remove_file(path.join(".mortar/heal"));
            lose(segment);
            let (first, next) = (first_of(segment), segments.get(n + 1).map(|s| first_of(s)));
            let opened = Brick::open(&path, &identity(1), small());
            if first > durable {
                let b = opened.unwrap_or_else(|e| panic!("segment {n} {what}: {e}"));
                let last = b.last().lsn;
                assert!(last.next() >= first, "segment {n} {what}: {last}");
                assert!(next.is_none_or(|next| last.next() < next), "segment {n} {what}: {last}");
                assert_eq!(lsns(&b, Lsn(1)), (1..=last.0).collect::<Vec<_>>(), "segment {n} {what}");
                let stale_set = b.stale_set().unwrap();
                assert_eq!(stale_set.from, durable, "segment {n} {what}");
                if n + 2 < all {
                    assert!(
                        stale_set.objects.contains(&ROOT),
                        "segment {n} {what}: the records behind name it"
                    );
                }
                let mut s = Set::new(vec![b]);
                s.file(ROOT, &format!("{what}-{n}"));
                drop(s);
                Brick::open(&path, &identity(1), small()).unwrap();
            } else if next.is_some_and(|next| next <= durable.next()) {
                let refused = match opened {
                    Err(OpenError::Journal(JournalError::Damaged { .. } | JournalError::Missing { .. })) => {
                        true
                    }
                    // The records before are needed by nobody here, and damage shows when they are read.
                    Ok(b) => b.iterate(b.journal_start()).any(|r| r.is_err()) || b.journal_start() > Lsn(1),
                    Err(e) => panic!("segment {n} {what}: {e}"),
                };
                assert!(refused, "segment {n} {what}");
            }
        }
    }
}

/// Segments that had been removed are there again, others are not: the journal begins behind the gap, and all is stale.
#[test]
fn what_a_power_cut_left_of_removed_segments_is_dropped() {
    let t = temp();
    let (path, segments, durable) = torn_brick(t.path());
    let (gone, next) = (&segments[1], first_of(&segments[2]));
    assert!(next <= durable);
    std::fs::remove_file(gone).unwrap();
    for again in 0..2 {
        let b = Brick::open(&path, &identity(1), small()).unwrap();
        assert!(!segments[0].exists());
        assert_eq!(lsns(&b, b.journal_start()), (next.0..=140).collect::<Vec<_>>());
        let stale_set = b.stale_set().unwrap();
        assert_eq!((stale_set.from, stale_set.versions_valid_to), (Lsn(0), Lsn(0)), "opening {again}");
    }
    // Without a power cut a gap is damage.
    std::fs::remove_file(&segments[3]).unwrap();
    let e = Brick::open(&path, &identity(1), small()).map(drop).unwrap_err();
    assert!(matches!(e, OpenError::Journal(JournalError::Missing { .. })), "{e}");
}

const OP: ids::OpId = ids::OpId { session: ids::SessionId(1), seq: 1 };

/// Asks the other brick until nothing is stale any more.
fn heal(p: &mut Brick, j: &mut Brick, healing: &mut HealSession) {
    while let Some(question) = healing.ask(j) {
        let at = p.last().lsn;
        let (answer, payload) = match question {
            PeerBody::AskObject { fid, .. } => {
                let object = p.object(fid).unwrap();
                let file = object.as_ref().is_some_and(|o| o.attr.mode & 0o170_000 == 0o100_000);
                let content = if file { read(p, fid, 0, 65536) } else { vec![] };
                let data = if file { Sent::Payload } else { Sent::Nothing };
                (PeerBody::Object { fid, at, object, data }, content)
            }
            PeerBody::AskEntries { fid, after } => {
                let (entries, targets, upto) = p.entries(fid, after, 4096).unwrap();
                (PeerBody::Entries { fid, at, after, upto, entries, targets }, vec![])
            }
            other => panic!("files are small here: {other:?}"),
        };
        healing.take(j, &answer, &payload).unwrap();
    }
    assert!(healing.is_done(j));
}

fn read(p: &mut Brick, fid: Fid, offset: u64, len: u32) -> Vec<u8> {
    match p.read(fid, offset, len).unwrap() {
        ReadOutcome::Data(d) => d.to_vec(),
        ReadOutcome::NeedsBlocking(job) => job.run().unwrap().to_vec(),
    }
}

/// A primary lost its power together with its last records, which no other brick has. The kernel had written out what they
/// did: a file's data, a new file, a removal.
#[test]
fn what_reached_the_disk_without_its_record_is_healed() {
    for kind in ["ext4", "xfs"] {
        let t = temp();
        let disk = Disk::new(kind, &t.path().join("disk"));
        let x = disk.dir.join("b");
        let mut s = brick_on(&disk);
        s.bricks.push(new_brick(t.path(), 2));
        let (d, old) = (s.dir(ROOT, "d"), s.file(ROOT, "old"));
        let (f, untouched) = (s.file(d, "f"), s.file(d, "untouched"));
        s.write(f, 0, b"acknowledged");
        s.write(untouched, 0, b"untouched");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        // Older than the grain of the clock.
        let aged = std::time::SystemTime::now();
        while aged.elapsed().unwrap().as_millis() < 2100 {
            std::thread::yield_now();
        }
        s.file(ROOT, "later");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        let common = s.bricks[0].last();
        let mut y = s.bricks.pop().unwrap();
        // Nobody else hears of these.
        s.write(f, 0, b"not acknowledged at all");
        s.file(d, "new");
        s.run(&Op::Unlink { parent: ROOT, name: name("old") }, b"").unwrap();
        for dir in ["f", "new", ""] {
            std::fs::File::open(x.join("d").join(dir)).unwrap().sync_all().unwrap();
        }
        std::fs::File::open(&x).unwrap().sync_all().unwrap();
        disk.cut_power();
        drop(s);
        disk.come_back();
        let mut j = Brick::open(&x, &identity(1), small()).unwrap();
        assert!(j.last().lsn <= common.lsn, "{kind}: the records are lost");
        assert_eq!(std::fs::read(x.join("d/f")).unwrap(), b"not acknowledged at all", "{kind}");
        assert!(x.join("d/new").exists() && !x.join("old").exists(), "{kind}");
        let stale_set = j.stale_set().unwrap().objects.clone();
        assert!([ROOT, d, f].iter().all(|o| stale_set.contains(o)), "{kind}: {stale_set:?}");
        assert!(!stale_set.contains(&untouched), "{kind}: {stale_set:?}");
        // The other brick led meanwhile.
        let go_on = Stamp { epoch: ids::Epoch(2), lsn: common.lsn.next() };
        y.apply(go_on, OP, None, &Change::Nop, b"").unwrap();
        let agree = j.last();
        let consistent_to = y.stamp_at(j.durable().lsn).unwrap().unwrap();
        let mut healing = HealSession::begin(&mut j, (&consistent_to, &agree), agree.lsn, false).unwrap();
        for r in y.iterate(agree.lsn.next()).map(Result::unwrap).collect::<Vec<_>>() {
            let (stamp, change) = (&r.stamp, &r.change);
            healing
                .apply(&mut j, Arriving { stamp, op: OP, result_fid: None, change, payload: b"" })
                .unwrap();
        }
        healing.on_caught_up(&mut j, &y.last(), vec![]).unwrap();
        heal(&mut y, &mut j, &mut healing);
        j.begin_end().unwrap().run().unwrap();
        j.end_heal().unwrap();
        assert_eq!(j.lookup(ROOT, &name("old")).unwrap().map(|e| e.fid), Some(old), "{kind}");
        j.close().unwrap();
        y.close().unwrap();
        assert_eq!(tree(&x), tree(&t.path().join("b2")), "{kind}");
    }
}

/// The mark of what a failed sync dropped cannot be written: the next process takes memory for lost.
#[test]
fn a_failed_sync_that_cannot_be_marked_counts_as_lost_memory() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.file(ROOT, "f");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    s.file(ROOT, "g");
    let path = s.bricks[0].path().to_path_buf();
    let in_the_way = path.join(".mortar/heal.new");
    std::fs::create_dir(&in_the_way).unwrap();
    s.bricks[0].mark_unsynced_stale().unwrap();
    assert!(s.bricks.pop().unwrap().close().is_err(), "not closed in order");
    let refused = Brick::open(&path, &identity(1), Options::default());
    assert!(matches!(refused, Err(OpenError::Io { .. })), "not without a mark");
    std::fs::remove_dir(&in_the_way).unwrap();
    let b = open(&path, &identity(1));
    assert!(b.found().rebooted);
    assert!(b.stale_set().is_some_and(|d| d.from == Lsn(1)));
}

/// A server that comes back in another mount namespace finds other numbers of mounts, whether or not the file system was
/// away.
#[test]
fn another_mount_namespace_hides_no_loss_and_makes_none() {
    for kind in ["ext4", "xfs"] {
        let t = temp();
        let disk = Disk::new(kind, &t.path().join("disk"));
        let mut s = brick_on(&disk);
        let path = disk.dir.join("b");
        let elsewhere = |space: u8| {
            let state = path.join(".mortar/state");
            let mut read = disk_format::State::decode(&std::fs::read(&state).unwrap()).unwrap();
            read.boot[6..].fill(space);
            std::fs::write(&state, read.encode()).unwrap();
        };
        s.file(ROOT, "f");
        drop(s);
        elsewhere(3);
        let b = Brick::open(&path, &identity(1), small()).unwrap();
        assert!(!b.found().rebooted && b.last().lsn == Lsn(1), "{kind}: only the process was away");
        b.close().unwrap();
        let mut s = Set::new(vec![Brick::open(&path, &identity(1), small()).unwrap()]);
        s.file(ROOT, "g");
        disk.cut_power();
        drop(s);
        disk.come_back();
        elsewhere(4);
        let b = Brick::open(&path, &identity(1), small()).unwrap();
        assert!(b.found().rebooted && b.stale_set().is_some(), "{kind}: its file system was away");
    }
}
