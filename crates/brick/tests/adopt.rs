//! Existing data that becomes a brick where it lies: what stays, what refuses it, and power cuts at every call.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Brick, FormatError, Obstacle, OpenError, Options, adopt_on, begin_adoption, check_adoptable};
use disk_format::Tag;
use file_system::{File, FileSystem, Host, S_IFDIR, S_IFLNK};
use ids::{Fid, Lsn, Time};
use memory_fs::{CrashRule, Faults, MemoryFs};
use namespace::TreeState;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

const FOREVER: &dyn Fn() -> bool = &|| true;

/// A directory with all kinds of objects.
fn data(dir: &Path) {
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/f"), b"content").unwrap();
    fs::hard_link(dir.join("a/f"), dir.join("a/b/again")).unwrap();
    symlink("a/f", dir.join("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    fs::set_permissions(dir.join("a/f"), fs::Permissions::from_mode(0o400)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::lsetxattr(dir.join("a/f"), "user.colour", b"red", flags).unwrap();
    std::os::unix::fs::chown(dir.join("a"), Some(1000), Some(1001)).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o2750)).unwrap();
}

fn adopt(dir: &Path) -> Result<(), OpenError> {
    adopt_on(&Host, dir, &identity(1), &|_| ())
}

fn adopted(dir: &Path) -> Brick {
    check_adoptable(dir, |_| false, FOREVER).unwrap();
    begin_adoption(dir, &identity(1)).unwrap();
    assert!(brick::is_adopting(&Host, dir, &identity(1)) && !brick::is_adopting(&Host, dir, &identity(2)));
    adopt(dir).unwrap();
    assert!(!brick::is_adopting(&Host, dir, &identity(1)), "it is a brick");
    Brick::open(dir, &identity(1), Options::default()).unwrap()
}

/// What anybody sees of a file, its times included.
fn seen(path: &Path) -> (u32, u32, u32, u64, [i64; 4]) {
    let m = fs::symlink_metadata(path).unwrap();
    (m.mode(), m.uid(), m.gid(), m.nlink(), [m.mtime(), m.mtime_nsec(), m.atime(), m.atime_nsec()])
}

#[test]
fn everything_stays_as_it_is_and_is_the_volumes() {
    let t = temp();
    let dir = t.path().join("d");
    data(&dir);
    let paths = ["", "a", "a/f", "a/b", "a/b/again", "link", "pipe"];
    let before: Vec<_> = paths.iter().map(|p| (seen(&dir.join(p)), dir.join(p))).collect();
    let changed = fs::metadata(dir.join("a/f")).unwrap();
    let mut brick = adopted(&dir);
    for (was, path) in &before {
        // The top directory got the folder `.mortar`.
        assert!(*path == dir.join("") || seen(path) == *was, "{}", path.display());
    }
    let fid = |ino: u64| Fid { lsn: Lsn(ino), ..ROOT };
    let mut find = |parent: Fid, n: &str| brick.lookup(parent, &name(n)).unwrap().unwrap();
    let a = find(ROOT, "a");
    let f = find(a.fid, "f");
    assert_eq!(f.fid, fid(changed.ino()));
    let b = find(a.fid, "b").fid;
    assert_eq!(find(b, "again"), f, "all names lead to one file");
    let link = find(ROOT, "link");
    assert_eq!((link.kind, find(ROOT, "pipe").kind), (S_IFLNK, 0o010_000));
    let attr = brick.attr(f.fid).unwrap();
    assert_eq!((attr.size, attr.nlink, attr.mode & 0o7777), (7, 2, 0o400));
    assert_eq!(attr.ctime, Time { sec: changed.ctime(), nsec: u32::try_from(changed.ctime_nsec()).unwrap() });
    assert_eq!(brick.getxattr(f.fid, &name("user.colour")).unwrap(), Some(b"red".to_vec()));
    let root = brick.attr(ROOT).unwrap();
    assert_eq!((root.mode & 0o7777, brick.attr(a.fid).unwrap().uid), (0o2750, 1000));

    // Changes go on after the numbers that were given.
    let first = brick.last().lsn;
    assert!(first.0 >= changed.ino() && brick.journal_start() == first.next(), "nothing reaches back");
    let mut set = Set::new(vec![brick]);
    let new = set.file(a.fid, "new");
    set.write(f.fid, 7, b", more");
    assert_eq!(set.bricks[0].last().lsn, Lsn(first.0 + 2));
    assert_eq!(new.lsn, first.next());
    for brick in set.bricks {
        brick.close().unwrap();
    }
    assert_eq!(fs::read(dir.join("a/b/again")).unwrap(), b"content, more");
    let report = brick::check(&dir, false).unwrap();
    assert!(report.is_sound() && report.problems.is_empty(), "{report:?}");
    assert_eq!((report.files, report.directories), (4, 2));
}

fn refused(dir: &Path) -> FormatError {
    let e = check_adoptable(dir, |_| false, FOREVER).unwrap_err();
    assert_eq!(e.to_string().lines().count(), 1);
    e
}

#[test]
fn what_cannot_be_adopted_is_named() {
    let t = temp();
    let dir = t.path().join("d");
    data(&dir);
    let obstacle = |path: &str| match refused(&dir) {
        FormatError::CannotAdopt { path: at, why } if at == dir.join(path) => why,
        other => panic!("{other}"),
    };
    fs::hard_link(dir.join("a/f"), t.path().join("outside")).unwrap();
    assert!(matches!(
        refused(&dir),
        FormatError::CannotAdopt { why: Obstacle::LinkedOutside { links: 3, within: 2 }, .. }
    ));
    // As much as can be looked at in the time is fine.
    check_adoptable(&dir, |_| false, &|| false).unwrap();
    fs::remove_file(t.path().join("outside")).unwrap();
    check_adoptable(&dir, |_| false, FOREVER).unwrap();

    let stub = Tag {
        flags: disk_format::tag::stub_flags(file_system::S_IFREG),
        fid: Fid { lsn: Lsn(9), ..ROOT },
        home: ids::SetId(4),
        version: disk_format::tag::Version::default(),
        ctime: Time::default(),
        atime: Time::default(),
    };
    let flags = rustix::fs::XattrFlags::empty();
    fs::write(dir.join("stub"), b"").unwrap();
    rustix::fs::lsetxattr(dir.join("stub"), disk_format::tag::XATTR, &stub.encode(), flags).unwrap();
    assert_eq!(obstacle("stub"), Obstacle::Stub { home: ids::SetId(4) });
    fs::remove_file(dir.join("stub")).unwrap();

    let at = dir.join("a/b");
    let is_mounted =
        std::process::Command::new("mount").arg("--bind").args([&at, &at]).status().unwrap().success();
    if is_mounted {
        let why = refused(&dir).to_string();
        assert!(std::process::Command::new("umount").arg(&at).status().unwrap().success());
        assert!(why.contains("a/b: another file system"), "{why}");
    }

    fs::create_dir(dir.join("a/brick")).unwrap();
    brick::format(&dir.join("a/brick"), &identity(3), ids::Time::default()).unwrap();
    assert!(matches!(refused(&dir), FormatError::Around { inner, .. } if inner == dir.join("a/brick")));
    assert!(matches!(refused(&dir.join("a/brick")), FormatError::AlreadyBrick { .. }));
    assert!(matches!(refused(&dir.join("a/brick/in")), FormatError::Inside { .. }));
    assert!(matches!(refused(&dir.join("a/f")), FormatError::NotDirectory { .. }));
}

#[test]
fn a_brick_of_others_is_left_alone() {
    let t = temp();
    let used = t.path().join("used");
    brick::format(&used, &identity(1), ids::Time::default()).unwrap();
    Brick::open(&used, &identity(1), Options::default()).unwrap().close().unwrap();
    fs::remove_file(used.join(".mortar/identity")).unwrap();
    assert!(matches!(refused(&used), FormatError::Leftover { .. }), "it lost its identity");
    assert!(matches!(begin_adoption(&used, &identity(1)), Err(FormatError::Leftover { .. })));

    let dir = t.path().join("d");
    data(&dir);
    begin_adoption(&dir, &identity(2)).unwrap();
    assert!(matches!(refused(&dir), FormatError::AlreadyBrick { .. }), "it is to be another's");
    check_adoptable(&dir, |found| *found == identity(2), FOREVER).unwrap();
    brick::release(&dir, &identity(3)).unwrap();
    assert!(brick::is_adopting(&Host, &dir, &identity(2)), "not this one's");
    brick::release(&dir, &identity(2)).unwrap();
    assert!(!dir.join(".mortar").exists() && dir.join("a/f").exists());
    check_adoptable(&dir, |_| false, FOREVER).unwrap();
}

/// Data that was a brick's before gets new tags; what another transaction noted beside it goes.
#[test]
fn tags_of_an_earlier_volume_are_replaced() {
    let t = temp();
    let dir = t.path().join("d");
    data(&dir);
    let mut brick = adopted(&dir);
    let f = brick.lookup(ROOT, &name("a")).unwrap().unwrap().fid;
    brick.close().unwrap();
    fs::remove_dir_all(dir.join(".mortar")).unwrap();
    let copy = t.path().join("copy");
    copy_tree(&dir, &copy);
    let mut brick = adopted(&copy);
    let again = brick.lookup(ROOT, &name("a")).unwrap().unwrap().fid;
    assert_ne!(f, again);
    assert_eq!(again.lsn.0, fs::metadata(copy.join("a")).unwrap().ino());
    brick.close().unwrap();
    assert!(brick::check(&copy, false).unwrap().problems.is_empty());
}

#[test]
fn an_adoption_that_is_given_up_ends() {
    let t = temp();
    let dir = t.path().join("d");
    data(&dir);
    begin_adoption(&dir, &identity(1)).unwrap();
    let told = |_: u64| fs::remove_dir_all(dir.join(".mortar")).unwrap();
    assert!(adopt_on(&Host, &dir, &identity(1), &told).is_err());
    assert!(!dir.join(".mortar/identity").exists() && dir.join("a/f").exists());
}

const DISK: &str = "/b";

fn memory_data(rule: CrashRule) -> MemoryFs {
    let fs = MemoryFs::new(1 << 30);
    fs.set_rule(rule);
    fs.make_dirs(Path::new(DISK)).unwrap();
    fs.set_time(Time { sec: 1_700_000_000, nsec: 0 });
    let root = fs.open_dir(Path::new(DISK)).unwrap();
    root.make_dir(b"d", 0o755).unwrap();
    let d = root.open_at(b"d", S_IFDIR).unwrap();
    for n in [&b"f"[..], b"g"] {
        d.make_file(n, 0o644).unwrap().write_all(0, b"content").unwrap();
    }
    d.open_at(b"f", file_system::S_IFREG).unwrap().link(&root, b"again").unwrap();
    root.make_symlink(b"link", b"d/f").unwrap();
    brick::begin_adoption_on(&fs, Path::new(DISK), &identity(1)).unwrap();
    root.sync_all().unwrap();
    fs
}

fn tags(dir: &File, at: &str, out: &mut BTreeMap<String, (u64, Option<Fid>)>) {
    let mut names = Vec::new();
    dir.list(&mut |n, kind, _| {
        names.push((n.to_vec(), kind));
        true
    })
    .unwrap();
    for (n, kind) in names.into_iter().filter(|(n, _)| n != b".mortar") {
        let path = format!("{at}/{}", String::from_utf8_lossy(&n));
        let mut buf = [0; 64];
        let tag = dir.xattr_at(&n, disk_format::tag::XATTR.as_bytes(), &mut buf).unwrap();
        let tag = tag.map(|len| Tag::decode(&buf[..len]).unwrap().fid);
        out.insert(path.clone(), (dir.stat_at(&n).unwrap().ino, tag));
        if kind == S_IFDIR {
            tags(&dir.open_at(&n, kind).unwrap(), &path, out);
        }
    }
}

/// The power is cut after so many calls; what is left is adopted again. True if the adoption was over before the cut.
fn cut_after(calls: u64, rule: CrashRule, seed: u64) -> bool {
    let fs = memory_data(rule);
    let path = Path::new(DISK);
    fs.set_faults(Faults { power_left: Some(calls), ..Faults::default() });
    let done = adopt_on(&fs, path, &identity(1), &|_| ()).is_ok() && !fs.is_off();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    fs.crash(rule, &mut draw);
    fs.set_faults(Faults::default());
    let is_brick = !brick::is_adopting(&fs, path, &identity(1));
    assert!(is_brick || !done, "what was adopted is a brick");
    if !is_brick {
        adopt_on(&fs, path, &identity(1), &|_| ()).unwrap();
    }
    let mut brick =
        Brick::open_on(&fs, path, &identity(1), Options { seed: Some(1), ..Options::default() }).unwrap();
    assert!(brick.found().clean && !brick.found().marked, "{:?}", brick.found());
    let mut all = BTreeMap::new();
    tags(&fs.open_dir(path).unwrap(), "", &mut all);
    assert_eq!(all.len(), 5);
    for (path, (ino, tag)) in &all {
        assert_eq!(tag.map(|t| t.lsn.0), Some(*ino), "{path} after {calls} calls");
        assert!(*ino <= brick.last().lsn.0);
    }
    let d = brick.lookup(ROOT, &name("d")).unwrap().unwrap().fid;
    let f = brick.lookup(d, &name("f")).unwrap().unwrap();
    assert_eq!(brick.lookup(ROOT, &name("again")).unwrap(), Some(f));
    let mut set = Set::new(vec![brick]);
    set.write(f.fid, 0, b"C");
    done
}

#[test]
fn a_power_cut_at_any_call_leaves_data_that_is_adopted_again() {
    for rule in [CrashRule::Ordered, CrashRule::Hostile] {
        let mut calls = 0;
        // What survives is drawn; whether the adoption was over is not.
        while (0..4).filter(|seed| cut_after(calls, rule, *seed)).count() < 4 {
            calls += 1;
        }
        assert!(calls > 15, "{calls} calls were cut");
    }
}
