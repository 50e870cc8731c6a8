//! Changes that fail: half-way on a full disk, and after they were done.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Brick, Options};
use ids::{Fid, OpId};
use namespace::TreeState as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::op::Node;
use wire::{Change, Errno};

/// A small file system in memory; gone when dropped.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Small {
        let t = temp();
        let done =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=24m", "small"]).arg(t.path()).status();
        assert!(done.unwrap().success());
        Small(t)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn room(&self) -> u64 {
        let s = rustix::fs::statvfs(self.path()).unwrap();
        s.f_bavail * s.f_frsize
    }

    /// Takes all room but so much.
    fn leave(&self, bytes: u64) {
        let ballast = std::fs::File::create(self.path().join("ballast")).unwrap();
        let flags = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&ballast, flags, 0, self.room() - bytes).unwrap();
    }

    /// Gives the room back. A process that another test is about to start may still have the file open: what it holds
    /// would stay until then.
    fn free(&self) {
        let ballast = self.path().join("ballast");
        std::fs::OpenOptions::new().write(true).open(&ballast).unwrap().set_len(0).unwrap();
        std::fs::remove_file(ballast).unwrap();
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.0.path()).status().unwrap();
    }
}

/// The objects that the journal's changes after a position touched.
fn touched_after(brick: &Brick, lsn: ids::Lsn) -> Vec<Fid> {
    brick.iterate(lsn.next()).flat_map(|r| r.unwrap().change.touched()).collect()
}

const MIB: usize = 1 << 20;

/// A file of 2 MiB, and a write of 4 MiB over and beyond it that the disk has no room for.
fn half_written(small: &Small) -> (Set, Fid, Change, Vec<u8>) {
    let mut s = Set::new(vec![new_brick(small.path(), 1)]);
    let f = s.file(ROOT, "f");
    for at in [0, MIB] {
        s.write(f, at as u64, &vec![1; MIB]);
    }
    s.bricks[0].flush_attrs().unwrap();
    small.leave(MIB as u64);
    let change = Change::Write { fid: f, offset: 0, len: 4 << 20, mode: None, time: time(9) };
    (s, f, change, vec![2; 4 * MIB])
}

fn content(brick: &Path) -> Vec<u8> {
    std::fs::read(brick.join("f")).unwrap()
}

/// Alone: what is there of the write is what the file is, and whoever heals from the journal hears that it is not what it
/// was. The same after the brick was opened anew.
#[test]
fn a_write_done_in_part_is_recorded() {
    let small = Small::new();
    let (mut s, f, change, data) = half_written(&small);
    let before = s.bricks[0].last();
    let version = s.bricks[0].version(f).unwrap();
    assert_eq!(s.apply(&change, &data), Err(Errno::ENOSPC));
    let path = s.bricks[0].path().to_path_buf();
    assert_eq!(content(&path)[0], 2, "the test's write is not done in part");
    let b = &mut s.bricks[0];
    assert!(b.is_partial());
    assert_eq!(b.apply(stamp(b.last().lsn.0 + 1), OpId::default(), None, &Change::Nop, b""), Err(Errno::EIO));
    assert_eq!(b.record_partial().unwrap(), Change::Touch { fid: f });
    assert_eq!(touched_after(b, before.lsn), [f], "no record says that the file is another one");
    assert!(b.version(f).unwrap().lsn > version.lsn, "its version says that it is what it was");
    // Changes go on, on the full disk.
    let size = b.attr(f).unwrap().size;
    assert_eq!(size, content(&path).len() as u64);
    s.apply(&Change::Write { fid: f, offset: 0, len: 3, mode: None, time: time(10) }, b"abc").unwrap();
    let brick = s.bricks.remove(0);
    // As after a kill.
    drop(brick);
    small.free();
    let mut b = open(&path, &identity(1));
    assert_eq!(touched_after(&b, before.lsn), [f, f]);
    assert_eq!(b.attr(f).unwrap().size, size);
    assert_eq!(b.found().incomplete, None);
    assert!(b.stale_set().is_none());
    b.close().unwrap();
    assert!(brick::check(&path, false).unwrap().problems.is_empty());
}

/// With others beside it: the file is stale before its record goes.
#[test]
fn a_write_done_in_part_is_stale() {
    let small = Small::new();
    let (mut s, f, change, data) = half_written(&small);
    let before = s.bricks[0].last();
    assert_eq!(s.apply(&change, &data), Err(Errno::ENOSPC));
    let b = &mut s.bricks[0];
    // No room for the mark: the record stays, and the brick is not closed in order.
    assert_eq!(b.abandon_partial(), Err(Errno::ENOSPC));
    assert!(b.is_partial() && b.last().lsn == before.lsn.next());
    small.free();
    b.abandon_partial().unwrap();
    assert_eq!(b.last(), before);
    assert_eq!(b.stale_set().unwrap().objects, [f]);
}

/// Left as it is, it is found when the brick is opened anew.
#[test]
fn a_write_done_in_part_is_found_again() {
    let small = Small::new();
    let (mut s, f, change, data) = half_written(&small);
    assert_eq!(s.apply(&change, &data), Err(Errno::ENOSPC));
    let b = s.bricks.remove(0);
    let path = b.path().to_path_buf();
    b.close().unwrap_err();
    small.free();
    let b = open(&path, &identity(1));
    assert_eq!(b.found().incomplete, Some(f));
    assert_eq!(b.stale_set().unwrap().objects, [f]);
}

/// A sync brings its record to disk, not what the record says.
#[test]
fn a_sync_makes_no_change_durable_that_was_done_in_part() {
    let small = Small::new();
    let (mut s, f, change, data) = half_written(&small);
    let before = s.bricks[0].last();
    assert_eq!(s.apply(&change, &data), Err(Errno::ENOSPC));
    let mut b = s.bricks.remove(0);
    let path = b.path().to_path_buf();
    small.free();
    assert_eq!(b.begin_sync(None).unwrap().run(), Ok(before.lsn));
    b.begin_flush();
    while !b.flush_slice().unwrap() {}
    assert_eq!(b.begin_sync_of_flushed().run(), Ok(before.lsn));
    assert_eq!(b.durable(), before);
    b.close().unwrap_err();
    assert_eq!(open(&path, &identity(1)).found().incomplete, Some(f));
}

/// What there is no room for is refused before it is begun; what needs none is not.
#[test]
fn a_full_disk_refuses_before_it_begins() {
    let small = Small::new();
    let (mut s, f, change, data) = half_written(&small);
    let (b, before) = (&mut s.bricks[0], content(&small.path().join("b1")));
    assert_eq!(b.validate(&change), Err(Errno::ENOSPC));
    let over = Change::Write { fid: f, offset: 0, len: 2 << 20, mode: None, time: time(9) };
    assert_eq!(b.validate(&over), Ok(()));
    let far = Change::Write { fid: f, offset: i64::MAX as u64 - 10, len: 100, mode: None, time: time(9) };
    assert_eq!(b.validate(&far), Err(Errno::EFBIG));
    assert_eq!(content(&small.path().join("b1")), before);
    s.apply(&over, &data[..2 * MIB]).unwrap();
}

/// An object that could not be finished is not there, and its name can be given again.
#[test]
fn what_cannot_be_made_leaves_nothing() {
    let small = Small::new();
    let mut s = Set::new(vec![new_brick(small.path(), 1)]);
    let d = s.dir(ROOT, "d");
    small.leave(0);
    let before = s.bricks[0].last();
    let mut made = Vec::new();
    let failed = (0..4000).find_map(|n| {
        let op = create(d, &format!("f{n}"), Node::File, 0o600);
        match s.run(&op, b"") {
            Ok(fid) => made.extend(fid),
            Err(e) => return Some((op, e)),
        }
        None
    });
    let (op, e) = failed.expect("the disk is never full");
    assert_eq!(e, Errno::ENOSPC);
    let b = &mut s.bricks[0];
    if b.is_partial() {
        b.record_partial().unwrap();
    }
    assert_eq!(std::fs::read_dir(b.path().join("d")).unwrap().count(), made.len());
    assert!(b.last().lsn.0 >= before.lsn.0 + made.len() as u64);
    small.free();
    s.run(&op, b"").unwrap();
}

fn segments(brick: &Path) -> Vec<PathBuf> {
    let mut v: Vec<_> =
        std::fs::read_dir(brick.join(".mortar/journal")).unwrap().map(|e| e.unwrap().path()).collect();
    v.sort();
    v
}

/// A segment of the journal that cannot be removed: the journal is too long, and nothing else.
#[test]
fn a_segment_that_stays_refuses_nothing() {
    let t = temp();
    let path = t.path().join("b1");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    let options = Options { journal_size: 64 << 10, segment_size: 16 << 10, ..Options::default() };
    let mut s = Set::new(vec![Brick::open(&path, &identity(1), options.clone()).unwrap()]);
    let f = s.file(ROOT, "f");
    // A directory in its place is not unlinked.
    let first = segments(&path).remove(0);
    let moved = t.path().join("first");
    std::fs::rename(&first, &moved).unwrap();
    std::fs::create_dir(&first).unwrap();
    for n in 0..2000 {
        s.write(f, n, b"x");
        if n % 100 == 0 {
            s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        }
    }
    assert!(segments(&path).len() > 8, "nothing was to be removed");
    std::fs::remove_dir(&first).unwrap();
    std::fs::rename(&moved, &first).unwrap();
    // It is tried again when a segment ends.
    for n in 0..1000 {
        s.write(f, n, b"y");
        if n % 100 == 0 {
            s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        }
    }
    assert!(segments(&path).len() <= 6, "{:?}", segments(&path));
    assert_eq!(s.bricks[0].journal_start().0, first_of(&segments(&path)[0]));
    let b = s.bricks.remove(0);
    drop(b);
    Brick::open(&path, &identity(1), options).unwrap().close().unwrap();
}

fn first_of(segment: &Path) -> u64 {
    u64::from_str_radix(segment.file_stem().unwrap().to_str().unwrap(), 16).unwrap()
}

/// A sync that began before it was given up says nothing of it, nor of what takes its place.
#[test]
fn what_is_given_up_is_not_durable() {
    let small = Small::new();
    let (mut s, _, change, data) = half_written(&small);
    let before = s.bricks[0].last();
    assert_eq!(s.apply(&change, &data), Err(Errno::ENOSPC));
    small.free();
    let b = &mut s.bricks[0];
    assert_eq!(b.begin_sync(None).unwrap().run(), Ok(before.lsn));
    b.abandon_partial().unwrap();
    assert_eq!((b.last(), b.durable()), (before.clone(), before));
}
