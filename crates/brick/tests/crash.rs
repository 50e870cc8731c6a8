//! Kills, torn and damaged journals, lost indexes, two processes on one brick.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Brick, JournalError, OpenError, Options};
use ids::{Lsn, OpId};
use namespace::TreeState;
use std::path::{Path, PathBuf};
use wire::op::Node;
use wire::{Change, Op};

fn segments(brick: &Path) -> Vec<PathBuf> {
    let mut v: Vec<_> =
        std::fs::read_dir(brick.join(".mortar/journal")).unwrap().map(|e| e.unwrap().path()).collect();
    v.sort();
    v
}

/// A brick whose journal holds `change` as its last record, which was never applied: `cp -a` of a brick before the
/// change, with the journal of after it.
fn unapplied(op: &Op, payload: &[u8]) -> (tempfile::TempDir, Brick, Set) {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s.write(f, 0, b"0123456789");
    s.file(d, "g");
    assert_eq!((d.lsn, f.lsn), (Lsn(1), Lsn(2)));
    let path = s.bricks[0].path().to_path_buf();
    // A copy has other inodes: its index is made anew from its tree.
    copy_tree(&path, &t.path().join("copy"));
    s.run(op, payload).unwrap();
    for f in segments(&path) {
        std::fs::copy(&f, t.path().join("copy/.mortar/journal").join(f.file_name().unwrap())).unwrap();
    }
    std::fs::remove_file(t.path().join("copy/.mortar/index.redb")).unwrap();
    let b = open(&t.path().join("copy"), &identity(1));
    (t, b, s)
}

fn fid(lsn: u64) -> ids::Fid {
    ids::Fid { set: SET, epoch: ids::Epoch(1), lsn: Lsn(lsn) }
}

#[test]
fn the_last_record_is_applied_again() {
    let at = |n: &str| (fid(1), name(n));
    let ops = [
        create(fid(1), "new", Node::File, 0o640),
        create(fid(1), "new", Node::Dir, 0o2750),
        create(fid(1), "new", Node::Symlink { target: wire::codec::Blob(b"x".to_vec()) }, 0o777),
        Op::Unlink { parent: at("f").0, name: at("f").1 },
        Op::Rename { parent: fid(1), name: name("f"), to_parent: ROOT, to_name: name("z"), flags: 0 },
        Op::Rename { parent: fid(1), name: name("f"), to_parent: fid(1), to_name: name("g"), flags: 0 },
        Op::Rename { parent: fid(1), name: name("f"), to_parent: fid(1), to_name: name("g"), flags: 2 },
        Op::Link { fid: fid(2), parent: ROOT, name: name("l") },
        Op::SetXattr { fid: fid(2), name: name("user.x"), flags: 0 },
    ];
    for op in ops {
        let (t, mut b, mut s) = unapplied(&op, b"");
        assert!(b.found().incomplete.is_none(), "{op:?}");
        b.flush_attrs().unwrap();
        s.bricks[0].flush_attrs().unwrap();
        drop(b);
        let (a, b) = (tree(&t.path().join("b1")), tree(&t.path().join("copy")));
        assert_eq!(a, b, "{op:?}");
        // And once more, when all of it is there.
        drop(s);
        let b = open(&t.path().join("copy"), &identity(1));
        b.close().unwrap();
        assert_eq!(a, tree(&t.path().join("copy")), "{op:?}");
    }
}

/// A power cut may have left a removal and taken its record. The set went on with that, and users know that it is gone.
#[test]
fn what_was_synced_is_not_applied_again() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.file(ROOT, "f");
    let path = s.bricks[0].path().to_path_buf();
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    drop(s);
    std::fs::remove_file(path.join("f")).unwrap();
    let mut b = open(&path, &identity(1));
    assert_eq!(b.entry(ROOT, &name("f")).unwrap(), None);
    assert!(!path.join("f").exists());
}

#[test]
fn a_write_whose_data_is_missing_is_told() {
    let op = Op::Write { fid: fid(2), offset: 5, append: false, kill_suid: false };
    let (_t, mut b, _s) = unapplied(&op, b"other");
    assert_eq!(b.found().incomplete, Some(fid(2)));
    assert_eq!(b.last(), stamp(5));
    assert_eq!(b.attr(fid(2)).unwrap().mtime, time(5));
}

#[test]
fn a_half_made_object_is_finished() {
    let op = create(fid(1), "new", Node::File, 0o640);
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.dir(ROOT, "d");
    s.run(&op, b"").unwrap();
    let path = s.bricks[0].path().to_path_buf();
    drop(s);
    rustix::fs::removexattr(path.join("d/new"), "trusted.mortar.id").unwrap();
    let mut b = open(&path, &identity(1));
    let e = b.entry(fid(1), &name("new")).unwrap().unwrap();
    assert_eq!(e.fid, fid(2));
    assert_eq!(b.attr(fid(2)).unwrap().mtime, time(2));
}

/// What a power cut leaves of a create whose record it took: an object without a tag, of any kind.
#[test]
fn what_an_interrupted_create_left_is_in_nobodys_way() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1), new_brick(t.path(), 2)]);
    let d = s.dir(ROOT, "d");
    let other = s.file(ROOT, "other");
    let inside = t.path().join("b1/d");
    std::fs::write(inside.join("file"), b"").unwrap();
    std::fs::create_dir(inside.join("dir")).unwrap();
    std::os::unix::fs::symlink("nowhere", inside.join("link")).unwrap();
    for n in ["renamed", "linked", "left"] {
        std::fs::write(inside.join(n), b"").unwrap();
    }
    let f = s.file(d, "file");
    let e = s.dir(d, "dir");
    s.make(d, "link", Node::File, 0o644);
    let linked = Op::Link { fid: other, parent: d, name: name("linked") };
    s.run(&linked, b"").unwrap();
    let moved =
        Op::Rename { parent: ROOT, name: name("other"), to_parent: d, to_name: name("renamed"), flags: 0 };
    s.run(&moved, b"").unwrap();
    for (n, fid) in [("file", f), ("dir", e), ("renamed", other), ("linked", other)] {
        assert_eq!(s.bricks[0].lookup(d, &name(n)).unwrap().map(|e| e.fid), Some(fid), "{n}");
    }
    for n in ["file", "link", "renamed", "linked"] {
        s.run(&Op::Unlink { parent: d, name: name(n) }, b"").unwrap();
    }
    s.run(&Op::Rmdir { parent: d, name: name("dir") }, b"").unwrap();
    s.run(&Op::Rmdir { parent: ROOT, name: name("d") }, b"").unwrap();
    for n in 1..=2 {
        assert!(!t.path().join(format!("b{n}/d")).exists());
    }
    // Moved to lost+found, not removed.
    let moved = std::fs::read_dir(t.path().join("b1/.mortar/limbo")).unwrap().count();
    assert_eq!(moved, 6);
}

/// A file that somebody copied in keeps its name and its directory.
#[test]
fn a_file_with_content_is_no_remains() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    let d = s.dir(ROOT, "d");
    std::fs::write(t.path().join("b1/d/precious"), b"x").unwrap();
    std::fs::create_dir(t.path().join("b1/d/full")).unwrap();
    std::fs::write(t.path().join("b1/d/full/precious"), b"x").unwrap();
    for n in ["precious", "full"] {
        assert_eq!(s.run(&create(d, n, Node::File, 0o644), b""), Err(wire::Errno::EEXIST));
    }
    let rmdir = Op::Rmdir { parent: ROOT, name: name("d") };
    assert_eq!(s.run(&rmdir, b""), Err(wire::Errno::ENOTEMPTY));
}

#[test]
fn a_torn_tail_is_cut_and_damage_in_the_middle_is_refused() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    for n in 0..10 {
        s.file(ROOT, &format!("f{n}"));
    }
    let path = s.bricks[0].path().to_path_buf();
    drop(s);
    let seg = segments(&path).pop().unwrap();
    let good = std::fs::read(&seg).unwrap();
    std::fs::write(&seg, &good[..good.len() - 3]).unwrap();
    let report = brick::check(&path, false).unwrap();
    assert_eq!((report.records, report.problems.len(), report.is_sound()), (9, 1, false));
    let b = open(&path, &identity(1));
    assert_eq!((b.last(), b.found().cut > 0), (stamp(9), true));
    drop(b);
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 0x40;
    std::fs::write(&seg, &bad).unwrap();
    let Err(OpenError::Journal(e @ JournalError::Damaged { .. })) =
        Brick::open(&path, &identity(1), Options::default())
    else {
        panic!("damage is refused")
    };
    assert!(e.to_string().contains("0000000000000001.seg: damaged at byte"), "{e}");
    assert!(!brick::check(&path, false).unwrap().is_sound());
    let report = brick::check(&path, true).unwrap();
    assert!(report.is_sound() && !report.problems.is_empty(), "{:?}", report.problems);
    let mut b = open(&path, &identity(1));
    assert!(b.last() == stamp(10) && b.durable() == stamp(10), "no position is given twice");
    assert!(b.stale_set().is_some(), "what the tree holds is to be compared");
    assert!(b.lookup(ROOT, &name("f9")).unwrap().is_some(), "the tree is the truth");
}

#[test]
fn a_missing_segment_is_noticed() {
    let t = temp();
    let path = t.path().join("b");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    let options = Options { segment_size: 500, ..Options::default() };
    let mut s = Set::new(vec![Brick::open(&path, &identity(1), options.clone()).unwrap()]);
    for n in 0..30 {
        s.file(ROOT, &format!("f{n}"));
    }
    drop(s);
    let all = segments(&path);
    assert!(all.len() > 4);
    std::fs::remove_file(&all[2]).unwrap();
    let e = Brick::open(&path, &identity(1), options).err().unwrap();
    assert!(matches!(e, OpenError::Journal(JournalError::Missing { .. })), "{e}");
    assert!(brick::check(&path, true).unwrap().is_sound());
    assert!(Brick::open(&path, &identity(1), Options::default()).is_ok());
}

#[test]
fn the_journal_is_read_cut_and_dropped() {
    let t = temp();
    let path = t.path().join("b");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    let options = Options { segment_size: 500, ..Options::default() };
    let mut s = Set::new(vec![Brick::open(&path, &identity(1), options.clone()).unwrap()]);
    for n in 0..30 {
        s.file(ROOT, &format!("f{n}"));
    }
    let b = &mut s.bricks[0];
    let lsns = |b: &Brick, from| b.iterate(Lsn(from)).map(|r| r.unwrap().stamp.lsn.0).collect::<Vec<_>>();
    assert_eq!(lsns(b, 1), (1..=30).collect::<Vec<_>>());
    assert_eq!(lsns(b, 17), (17..=30).collect::<Vec<_>>());
    assert_eq!(lsns(b, 31), Vec::<u64>::new());
    let r = b.iterate(Lsn(7)).next().unwrap().unwrap();
    assert_eq!(r.op, OpId { session: ids::SessionId(7), seq: 7 });
    for n in 0..=30 {
        let epoch = ids::Epoch(u32::from(n > 0));
        assert_eq!(b.stamp_at(Lsn(n)).unwrap().unwrap(), wire::peer::Stamp { epoch, lsn: Lsn(n) });
    }
    b.truncate_after(Lsn(20)).unwrap();
    assert_eq!((b.last(), lsns(b, 19)), (stamp(20), vec![19, 20]));
    b.apply(stamp(21), OpId::default(), None, &Change::Nop, b"").unwrap();
    let wrong = b.apply(stamp(23), OpId::default(), None, &Change::Nop, b"");
    assert_eq!(wrong, Err(wire::Errno::EIO));
    // Nothing may go that recovery needs: the index is not committed yet.
    b.drop_before(Lsn(15)).unwrap();
    assert_eq!(b.journal_start(), Lsn(1));
    let lsn = b.begin_sync(None).unwrap().run().unwrap();
    assert_eq!((lsn, b.durable()), (Lsn(21), stamp(21)));
    b.drop_before(Lsn(15)).unwrap();
    assert!(b.journal_start() > Lsn(9) && b.journal_start() <= Lsn(15));
    assert!(b.iterate(Lsn(1)).next().unwrap().is_err());
    assert_eq!(b.stamp_at(Lsn(1)).unwrap(), None);
    b.reset_journal(wire::peer::Stamp { epoch: ids::Epoch(9), lsn: Lsn(1000) }).unwrap();
    drop(s);
    let b = Brick::open(&path, &identity(1), options).unwrap();
    assert_eq!(b.last(), wire::peer::Stamp { epoch: ids::Epoch(9), lsn: Lsn(1000) });
}

#[test]
fn a_journal_beyond_its_bound_drops_what_is_safe() {
    let t = temp();
    let path = t.path().join("b");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    let options = Options { segment_size: 1000, journal_size: 5000, ..Options::default() };
    let mut s = Set::new(vec![Brick::open(&path, &identity(1), options).unwrap()]);
    for n in 0..200 {
        s.file(ROOT, &format!("f{n}"));
        if n % 10 == 9 {
            s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        }
    }
    let bytes: u64 = segments(&path).iter().map(|p| p.metadata().unwrap().len()).sum();
    assert!(bytes < 8000, "{bytes}");
}

#[test]
fn a_lost_index_is_rebuilt() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s.open.insert(f);
    s.run(&Op::Unlink { parent: d, name: name("f") }, b"").unwrap();
    let g = s.file(d, "g");
    let path = s.bricks[0].path().to_path_buf();
    s.bricks.pop().unwrap().close().unwrap();
    std::fs::remove_file(path.join(".mortar/index.redb")).unwrap();
    assert!(!brick::check(&path, false).unwrap().is_sound());
    let mut b = open(&path, &identity(1));
    assert!(b.found().index_rebuilt && b.found().clean);
    assert!(b.attr(g).is_ok() && b.attr(f).unwrap().nlink == 0);
    b.close().unwrap();
    std::fs::write(path.join(".mortar/index.redb"), b"rubbish").unwrap();
    let mut b = open(&path, &identity(1));
    assert!(b.found().index_rebuilt && b.attr(g).is_ok());
    b.close().unwrap();
    // A copy of the whole brick has other inodes.
    copy_tree(&path, &t.path().join("copy"));
    let copy = t.path().join("copy");
    assert!(!brick::check(&copy, false).unwrap().is_sound());
    assert!(brick::check(&copy, true).unwrap().is_sound());
    assert!(brick::check(&copy, false).unwrap().problems.is_empty());
    assert!(open(&copy, &identity(1)).attr(g).is_ok());
}

#[test]
fn directories_that_moved_are_found_after_a_kill() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    let a = s.dir(ROOT, "a");
    let f = s.file(a, "f");
    let b = s.dir(ROOT, "b");
    let mv = |p, n: &str, q, m: &str| Op::Rename {
        parent: p,
        name: name(n),
        to_parent: q,
        to_name: name(m),
        flags: 0,
    };
    s.run(&mv(ROOT, "a", b, "x"), b"").unwrap();
    s.run(&mv(ROOT, "b", ROOT, "c"), b"").unwrap();
    s.run(&mv(b, "x", b, "y"), b"").unwrap();
    let path = s.bricks[0].path().to_path_buf();
    drop(s);
    let mut k = open(&path, &identity(1));
    assert!(k.attr(f).is_ok() && k.attr(a).is_ok() && k.lineage(a).unwrap().own.contains(&b));
}

#[test]
fn one_process_at_a_time() {
    let t = temp();
    let b = new_brick(t.path(), 1);
    let path = b.path().to_path_buf();
    let again = Brick::open(&path, &identity(1), Options::default()).err().unwrap();
    assert!(matches!(again, OpenError::Locked { .. }), "{again}");
    assert!(matches!(brick::check(&path, false), Err(OpenError::Locked { .. })));
    drop(b);
    let other = Brick::open(&path, &identity(2), Options::default()).err().unwrap();
    assert!(other.to_string().contains("is brick 1 of volume home, not brick 2"), "{other}");
    let none = Brick::open(t.path(), &identity(1), Options::default()).err().unwrap();
    assert!(matches!(none, OpenError::NotBrick { .. }));
}

/// A power cut may keep a tag from the disk, or the move that it tells of: a file's place says whether it has a name.
#[test]
fn a_file_among_the_orphans_is_one_whatever_its_tag_says() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1)]);
    let fid = s.file(ROOT, "f");
    // The last change is done again: let that be another one.
    s.file(ROOT, "g");
    drop(s);
    let path = dir.path().join("b1");
    let orphans = path.join(".mortar/orphans");
    let hidden = orphans.join(format!("{:08x}{:08x}{:016x}", fid.set.0, fid.epoch.0, fid.lsn.0));
    std::fs::rename(path.join("f"), &hidden).unwrap();
    let remains = orphans.join(format!("{:032x}", 1));
    std::fs::write(&remains, b"").unwrap();
    let mut b = open(&path, &identity(1));
    assert!(b.is_orphan(fid));
    assert_eq!(b.object(fid).unwrap().unwrap().attr.nlink, 0);
    assert!(!remains.exists(), "a file that nobody can know of stays");
    b.flush_attrs().unwrap();
    drop(b);
    std::fs::rename(&hidden, path.join("f")).unwrap();
    let mut b = open(&path, &identity(1));
    assert_eq!(b.object(fid).unwrap().unwrap().attr.nlink, 1);
    assert!(!b.is_orphan(fid));
}
