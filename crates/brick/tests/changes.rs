//! What each change does, on two bricks at once; and that the kernel's clock never shows.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::{self, *};
use ids::{Fid, Time};
use namespace::TreeState;
use std::os::unix::fs::MetadataExt;
use wire::codec::Blob;
use wire::op::{Node, SetAttr, SetTime};
use wire::{Change, Errno, Op};

fn two() -> (tempfile::TempDir, Set) {
    let t = temp();
    let bricks = vec![new_brick(t.path(), 1), new_brick(t.path(), 2)];
    (t, Set::new(bricks))
}

/// Both bricks have the same tree, in memory and on disk, and a check finds nothing wrong.
fn same(t: &tempfile::TempDir, mut set: Set) {
    for b in &mut set.bricks {
        b.flush_attrs().unwrap();
    }
    let trees: Vec<_> = (1..=2).map(|n| tree(&t.path().join(format!("b{n}")))).collect();
    for (path, a) in &trees[0] {
        assert_eq!(Some(a), trees[1].get(path), "{}", path.display());
        assert!(a.mtime.0 < 1_100_000_000, "{}: the kernel's time leaks: {:?}", path.display(), a.mtime);
    }
    assert_eq!(trees[0].len(), trees[1].len());
    for b in set.bricks {
        let path = b.path().to_path_buf();
        b.close().unwrap();
        let report = brick::check(&path, false).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

#[test]
fn everything_once() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s.write(f, 0, b"hello");
    s.write(f, 5, b" world");
    let sym = s.make(d, "sym", Node::Symlink { target: Blob(b"../f".to_vec()) }, 0o777);
    s.make(d, "fifo", Node::Fifo, 0o600);
    s.make(d, "sock", Node::Socket, 0o600);
    s.make(d, "chr", Node::Char { rdev: 0x0103 }, 0o600);
    s.make(d, "blk", Node::Block { rdev: 0x10700 }, 0o600);
    s.make(d, "suid", Node::File, 0o6755);
    let sticky = s.make(ROOT, "setgid", Node::Dir, 0o2775);
    let sub = s.dir(sticky, "sub");
    assert_eq!(s.bricks[1].attr(sub).unwrap().mode & 0o7777, 0o2755);
    assert_eq!(s.bricks[0].readlink(sym).unwrap(), b"../f");
    s.run(&Op::Link { fid: f, parent: ROOT, name: name("hard") }, b"").unwrap();
    assert_eq!(s.bricks[0].attr(f).unwrap().nlink, 2);
    s.run(&Op::Link { fid: sym, parent: ROOT, name: name("hardsym") }, b"").unwrap();
    s.run(&Op::Unlink { parent: d, name: name("f") }, b"").unwrap();
    let g = s.file(d, "g");
    s.open.insert(g);
    let over = Op::Rename { parent: ROOT, name: name("hard"), to_parent: d, to_name: name("g"), flags: 0 };
    s.run(&over, b"").unwrap();
    assert_eq!(s.bricks[0].attr(g).unwrap().nlink, 0);
    s.write(g, 0, b"orphans take writes");
    let e = s.dir(ROOT, "e");
    let ex = Op::Rename { parent: ROOT, name: name("e"), to_parent: d, to_name: name("g"), flags: 2 };
    s.run(&ex, b"").unwrap();
    assert_eq!(s.bricks[1].lookup(d, &name("g")).unwrap().unwrap().fid, e);
    let mv = Op::Rename { parent: d, name: name("g"), to_parent: sticky, to_name: name("sub"), flags: 0 };
    s.run(&mv, b"").unwrap();
    assert_eq!(s.bricks[1].attr(sub), Err(Errno::ESTALE));
    let mut above = |dir| s.bricks[0].lineage(dir).unwrap().own;
    assert!(above(e).contains(&sticky) && !above(d).contains(&e));
    let set = SetAttr {
        mode: Some(0o4711),
        uid: Some(5),
        gid: Some(6),
        size: Some(100_000),
        atime: Some(SetTime::At { time: time(77) }),
        ..set_attr()
    };
    s.run(&Op::SetAttr { fid: f, set }, b"").unwrap();
    let a = s.bricks[1].attr(f).unwrap();
    assert_eq!((a.mode & 0o7777, a.uid, a.gid, a.size, a.atime), (0o4711, 5, 6, 100_000, time(77)));
    s.run(&Op::SetAttr { fid: f, set: SetAttr { uid: Some(9), ..set_attr() } }, b"").unwrap();
    assert_eq!(s.bricks[1].attr(f).unwrap().mode & 0o7777, 0o4711);
    for (mode, offset, len) in [(0, 0, 200_000), (1, 0, 300_000), (3, 65536, 65536), (0x10, 0, 4096)] {
        s.run(&Op::Fallocate { fid: f, mode, offset, len }, b"").unwrap();
    }
    s.run(&Op::Fallocate { fid: f, mode: 8, offset: 65536, len: 65536 }, b"").unwrap();
    s.run(&Op::Fallocate { fid: f, mode: 0x20, offset: 65536, len: 65536 }, b"").unwrap();
    let copy = Op::CopyRange { from: g, from_offset: 3, to: f, to_offset: 70_000, len: 1000 };
    s.run(&copy, b"").unwrap();
    s.run(&Op::SetXattr { fid: f, name: name("user.a"), flags: 0 }, b"value").unwrap();
    s.run(&Op::SetXattr { fid: f, name: name("user.b"), flags: 0 }, b"").unwrap();
    s.run(&Op::RemoveXattr { fid: f, name: name("user.a") }, b"").unwrap();
    s.run(&Op::SetXattr { fid: sym, name: name("trusted.x"), flags: 0 }, b"on a link").unwrap();
    assert_eq!(s.bricks[0].listxattr(f).unwrap(), [name("user.b")]);
    assert_eq!(s.bricks[0].getxattr(sym, &name("trusted.x")).unwrap().unwrap(), b"on a link");
    assert_eq!(s.bricks[0].begin_orphans().unwrap().unwrap().run().unwrap(), [g]);
    s.apply(&Change::DropOrphan { fid: g }, b"").unwrap();
    assert_eq!(s.bricks[0].attr(g), Err(Errno::ESTALE));
    let rm = Op::Rmdir { parent: ROOT, name: name("setgid") };
    assert_eq!(s.run(&rm, b""), Err(Errno::ENOTEMPTY));
    s.run(&Op::Rmdir { parent: sticky, name: name("sub") }, b"").unwrap();
    s.run(&rm, b"").unwrap();
    same(&t, s);
}

#[test]
fn acls_are_inherited_and_change_the_mode() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let acl = |mask: u16| {
        let mut v = 2u32.to_le_bytes().to_vec();
        for (tag, perm, id) in
            [(1u16, 7u16, !0u32), (2, 7, 4242), (4, 5, !0), (0x10, mask, !0), (0x20, 0, !0)]
        {
            v.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
            v.extend(id.to_le_bytes());
        }
        v
    };
    s.run(&Op::SetXattr { fid: d, name: name("system.posix_acl_default"), flags: 0 }, &acl(5)).unwrap();
    assert!(s.bricks[1].has_default_acl(d).unwrap());
    let f = s.make(d, "f", Node::File, 0o666);
    assert_eq!(s.bricks[0].attr(f).unwrap().mode & 0o777, 0o640);
    let sub = s.make(d, "sub", Node::Dir, 0o777);
    assert!(s.bricks[1].has_default_acl(sub).unwrap());
    s.run(&Op::SetXattr { fid: f, name: name("system.posix_acl_access"), flags: 0 }, &acl(3)).unwrap();
    assert_eq!(s.bricks[1].attr(f).unwrap().mode & 0o777, 0o730);
    let bad = Op::SetXattr { fid: f, name: name("system.posix_acl_access"), flags: 0 };
    assert!(s.run(&bad, b"rubbish").is_err());
    let big = Op::SetXattr { fid: f, name: name("user.big"), flags: 0 };
    assert_eq!(s.run(&big, &[1; 5000]), Err(Errno::ENOSPC));
    same(&t, s);
}

#[test]
fn times_are_merged_flushed_and_never_the_kernels() {
    let (t, mut s) = two();
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s.write(f, 0, b"x");
    let at = s.bricks[0].attr(f).unwrap();
    assert_eq!((at.mtime, at.ctime), (time(3), time(3)));
    assert_eq!(s.bricks[0].attr(d).unwrap().mtime, time(2));
    // Not written yet, and yet seen after a new start: the journal brings it back.
    let path = s.bricks[0].path().to_path_buf();
    drop(s.bricks.remove(0));
    let b = open(&path, &identity(1));
    s.bricks.insert(0, b);
    assert!(!s.bricks[0].found().clean);
    assert_eq!(s.bricks[0].attr(f).unwrap(), at);
    assert_eq!(s.bricks[0].attr(d).unwrap().mtime, time(2));
    let set = SetAttr { mtime: Some(SetTime::At { time: Time { sec: -5, nsec: 7 } }), ..set_attr() };
    s.run(&Op::SetAttr { fid: f, set }, b"").unwrap();
    s.bricks[0].flush_attrs_of(f).unwrap();
    // A backup reads the brick: users see nothing of it.
    std::fs::read(path.join("d/f")).unwrap();
    assert!(std::fs::read_dir(path.join("d")).unwrap().count() == 1);
    drop(s.bricks.remove(0));
    let b = open(&path, &identity(1));
    s.bricks.insert(0, b);
    for x in [f, d] {
        assert_eq!(s.bricks[0].attr(x).unwrap(), s.bricks[1].attr(x).unwrap());
    }
    let on_disk = std::fs::symlink_metadata(path.join("d/f")).unwrap();
    assert_eq!((on_disk.mtime(), on_disk.mtime_nsec()), (-5, 7));
    same(&t, s);
}

#[test]
fn the_tag_costs_no_block() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.file(ROOT, "f");
    assert_eq!(std::fs::metadata(t.path().join("b1/f")).unwrap().blocks(), 0);
}

#[test]
fn copies_of_other_sets_directories() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    let other = ids::SetId(2);
    let there = |n| Fid { set: other, epoch: ids::Epoch(3), lsn: ids::Lsn(n) };
    let create = |parent, n: &str, fid| Change::Create {
        parent,
        name: name(n),
        fid,
        home: other,
        node: Node::Dir,
        mode: 0o750,
        uid: 1,
        gid: 2,
        time: time(1),
    };
    let place = |path: &[(Fid, &str)], n: &str, fid| Change::PrepareMkdir {
        path: path.iter().map(|(f, n)| wire::op::Ancestor { fid: *f, name: name(n), home: other }).collect(),
        name: name(n),
        fid,
        mode: 0o700,
        uid: 1,
        gid: 2,
        time: time(2),
    };
    let mine = |n| Fid { set: SET, epoch: ids::Epoch(1), lsn: ids::Lsn(n) };
    let top = t.path().join("b1");
    // An entry of ours that leads to set 2, and beneath its copy a directory of ours.
    s.apply(&create(ROOT, "far", there(1)), b"").unwrap();
    assert_eq!(s.bricks[0].lookup(ROOT, &name("far")).unwrap().unwrap().home, other);
    assert_eq!(s.bricks[0].attr(there(1)), Err(Errno::ESTALE));
    assert!(s.bricks[0].attr_of_any(there(1)).unwrap().is_dir());
    s.apply(&place(&[(there(1), "far"), (there(2), "deep")], "near", mine(2)), b"").unwrap();
    assert!(top.join("far/deep/near").is_dir());
    assert!(s.bricks[0].is_pending(mine(2)).unwrap());
    s.apply(&Change::EndTransaction { fid: mine(2), keep: true }, b"").unwrap();
    assert!(!s.bricks[0].is_pending(mine(2)).unwrap());
    let f = s.file(mine(2), "f");
    // A pending one gives way and stays until its transaction ends; another one does not.
    s.apply(&place(&[(there(1), "far")], "p", mine(10)), b"").unwrap();
    let far = [wire::op::Ancestor { fid: there(1), name: name("far"), home: other }];
    assert_eq!(s.bricks[0].marked_at(&far, &name("p")), Ok(Some(mine(10))));
    assert_eq!(s.bricks[0].marked_at(&far, &name("q")), Ok(None));
    s.apply(&place(&[(there(1), "far")], "p", mine(11)), b"").unwrap();
    assert_eq!(s.bricks[0].marked_at(&far, &name("p")), Ok(Some(mine(11))));
    assert!(s.bricks[0].is_pending(mine(10)).unwrap(), "its transaction may still commit");
    s.apply(&Change::EndTransaction { fid: mine(10), keep: false }, b"").unwrap();
    assert_eq!(s.bricks[0].attr(mine(10)), Err(Errno::ESTALE));
    s.apply(&Change::EndTransaction { fid: mine(11), keep: true }, b"").unwrap();
    s.apply(&place(&[(there(1), "far")], "p", mine(12)), b"").unwrap();
    assert!(top.join(".mortar/limbo").read_dir().unwrap().count() == 1);
    assert!(s.bricks[0].attr(mine(12)).unwrap().is_dir());
    // A copy with a stale name makes room.
    s.apply(&place(&[(there(1), "far")], "deep", mine(13)), b"").unwrap();
    assert!(top.join("far/deep").is_dir());
    assert!(s.bricks[0].attr(f).is_ok(), "what lies beneath stays within reach");
    // Moved after its entry, prepared for removal, and gone.
    let path = vec![wire::op::Ancestor { fid: there(1), name: name("far"), home: other }];
    s.apply(&Change::Relocate { fid: mine(2), path, name: name("moved") }, b"").unwrap();
    assert!(top.join("far/moved/f").is_file());
    s.run(&Op::Unlink { parent: mine(2), name: name("f") }, b"").unwrap();
    s.apply(&Change::PrepareRmdir { fid: mine(2) }, b"").unwrap();
    assert_eq!(s.run(&common::create(mine(2), "late", Node::File, 0o644), b""), Err(Errno::EAGAIN));
    s.apply(&Change::EndTransaction { fid: mine(2), keep: false }, b"").unwrap();
    assert!(!top.join("far/moved").exists());
    // The entry goes while its copy still holds something.
    s.apply(&Change::Rmdir { parent: ROOT, name: name("far"), fid: there(1), time: time(9) }, b"").unwrap();
    assert!(!top.join("far").exists());
    assert!(s.bricks[0].attr(mine(11)).is_ok());
    drop(s);
    let mut b = open(&top, &identity(1));
    assert!(b.attr(mine(11)).is_ok() && b.attr(mine(12)).is_ok());
}

/// Nothing of the kernel's clock is in the root.
#[test]
fn a_root_begins_with_the_time_that_is_given() {
    let t = temp();
    let path = t.path().join("b");
    brick::format(&path, &identity(1), time(5)).unwrap();
    let root = open(&path, &identity(1)).attr(ROOT).unwrap();
    assert_eq!([root.atime, root.mtime, root.ctime], [time(5); 3]);
    std::fs::remove_dir_all(&path).unwrap();
    brick::format_again(&file_system::Host, &path, &identity(1), time(5)).unwrap();
    assert_eq!(open(&path, &identity(1)).attr(ROOT), Ok(root), "one that lost all it held begins alike");
}

#[test]
fn an_arbiter_keeps_sizes_and_no_data() {
    let t = temp();
    let mut id = identity(9);
    id.arbiter = true;
    let path = t.path().join("arb");
    brick::format(&path, &id, ids::Time::default()).unwrap();
    let mut s = Set::new(vec![new_brick(t.path(), 1), open(&path, &id)]);
    let f = s.file(ROOT, "f");
    s.write(f, 1000, &[7; 5000]);
    s.run(&Op::Fallocate { fid: f, mode: 0, offset: 0, len: 200_000 }, b"").unwrap();
    s.run(&Op::Fallocate { fid: f, mode: 8, offset: 0, len: 65536 }, b"").unwrap();
    let (a, b) = (s.bricks[0].attr(f).unwrap(), s.bricks[1].attr(f).unwrap());
    assert_eq!((a.size, a.mtime, a.ctime), (b.size, b.mtime, b.ctime));
    assert_eq!(b.blocks, 0);
}

#[test]
fn strangers_are_invisible_and_in_nobodys_way_for_long() {
    let (t, mut s) = two();
    std::fs::write(t.path().join("b1/stranger"), b"x").unwrap();
    std::fs::write(t.path().join("b2/other"), b"x").unwrap();
    assert_eq!(s.bricks[0].lookup(ROOT, &name("stranger")), Ok(None));
    assert_eq!(s.bricks[0].readdir(ROOT, 0, true, 4096).unwrap(), (vec![], true));
    assert_eq!(s.run(&create(ROOT, "stranger", Node::File, 0o644), b""), Err(Errno::EEXIST));
    // Decided by a primary that has no such stranger, the secondary makes room for it.
    s.file(ROOT, "other");
    assert!(t.path().join("b2/.mortar/limbo").read_dir().unwrap().next().is_some());
    assert_eq!(std::fs::read(t.path().join("b2/other")).unwrap(), b"");
}

#[test]
fn reads() {
    let (_t, mut s) = two();
    let f = s.file(ROOT, "f");
    s.write(f, 0, &[3; 10_000]);
    s.write(f, 1 << 20, b"end");
    match s.bricks[0].read(f, 9_000, 4_000).unwrap() {
        brick::ReadOutcome::Data(d) => {
            assert!(d.len() == 4000 && d[..1000] == [3; 1000] && d[1000..] == [0; 3000])
        }
        brick::ReadOutcome::NeedsBlocking(j) => assert_eq!(j.run().unwrap().len(), 4000),
    }
    match s.bricks[0].read(f, 1 << 20, 4_000).unwrap() {
        brick::ReadOutcome::Data(d) => assert_eq!(d[..], b"end"[..]),
        brick::ReadOutcome::NeedsBlocking(j) => assert_eq!(j.run().unwrap()[..], b"end"[..]),
    }
    assert_eq!(s.bricks[0].lseek(f, 1 << 19, 3), Ok(1 << 20));
    assert_eq!(s.bricks[0].lseek(f, 2 << 20, 3), Err(Errno::ENXIO));
    assert!(s.bricks[0].room().unwrap().available > 0);
    assert!(matches!(s.bricks[0].read(ROOT, 0, 1), Err(Errno::EISDIR)));
}

/// What is known of a directory stays known while only files come and go in it; its links are always those on disk.
#[test]
fn links_of_directories_are_those_on_disk() {
    let (t, mut s) = two();
    let dirs: Vec<(Fid, &str)> = ["d", "e"].map(|n| (s.dir(ROOT, n), n)).to_vec();
    let (d, e) = (dirs[0].0, dirs[1].0);
    let rename = |from, n: &str, to, to_n: &str, flags| Op::Rename {
        parent: from,
        name: name(n),
        to_parent: to,
        to_name: name(to_n),
        flags,
    };
    let ops = [
        create(d, "f", Node::File, 0o600),
        create(d, "s1", Node::Dir, 0o700),
        create(e, "g", Node::File, 0o600),
        // A directory and a file change places.
        rename(d, "s1", e, "g", 2),
        rename(d, "f", e, "f", 0),
        rename(e, "g", d, "s2", 0),
        create(e, "s3", Node::Dir, 0o700),
        rename(d, "s2", e, "s3", 0),
        Op::Link { fid: d, parent: e, name: name("none") },
        Op::Unlink { parent: e, name: name("f") },
        create(d, "s4", Node::Dir, 0o700),
        create(d, "f", Node::File, 0o600),
        Op::Rmdir { parent: d, name: name("s4") },
        Op::Rmdir { parent: e, name: name("s3") },
    ];
    for op in ops {
        assert_eq!(s.run(&op, b"").err(), matches!(op, Op::Link { .. }).then_some(Errno::EPERM), "{op:?}");
        for (b, brick) in s.bricks.iter_mut().enumerate() {
            for (fid, n) in &dirs {
                let on_disk = std::fs::metadata(t.path().join(format!("b{}/{n}", b + 1))).unwrap();
                let known = brick.attr(*fid).unwrap();
                assert_eq!(
                    (u64::from(known.nlink), known.mode),
                    (on_disk.nlink(), on_disk.mode()),
                    "{n}: {op:?}"
                );
            }
        }
    }
    same(&t, s);
}
