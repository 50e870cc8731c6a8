//! What crashes leave.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use file_system::{File, FileSystem, Renaming, S_IFDIR, S_IFREG};
use memory_fs::{CrashRule, Faults, MemoryFs};
use std::collections::BTreeSet;
use std::path::Path;
use wire::Errno;

const RULES: [CrashRule; 2] = [CrashRule::Ordered, CrashRule::Hostile];

fn draws(mut seed: u64) -> impl FnMut(u64) -> u64 {
    move |n| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    }
}

fn root(fs: &MemoryFs) -> File {
    fs.open_dir(Path::new("/")).unwrap()
}

fn make(dir: &File, name: &[u8], data: &[u8]) -> File {
    let f = dir.make_file(name, 0o644).unwrap();
    f.write_all(0, data).unwrap();
    f
}

#[test]
fn what_was_synced_survives_with_its_name() {
    for rule in RULES {
        for seed in 0..200 {
            let fs = MemoryFs::new(1 << 20);
            fs.set_rule(rule);
            let top = root(&fs);
            top.make_dir(b"d", 0o755).unwrap();
            let dir = top.open_at(b"d", S_IFDIR).unwrap();
            make(&dir, b"other", b"x");
            let f = make(&dir, b"f", &[7; 10_000]);
            f.set_xattr(b"user.a", b"1").unwrap();
            f.sync().unwrap();
            f.write_all(0, b"later").unwrap();
            fs.crash(rule, &mut draws(seed));
            let dir = root(&fs).open_at(b"d", S_IFDIR).unwrap();
            let f = dir.open_at(b"f", S_IFREG).unwrap();
            let data = f.read_whole().unwrap();
            assert_eq!(data.len(), 10_000);
            assert!(data.starts_with(&[7; 5]) || data.starts_with(b"later"));
            assert!(data[5..].iter().all(|b| *b == 7));
            assert_eq!(f.whole_xattr(b"user.a").unwrap().unwrap(), b"1");
        }
    }
}

#[test]
fn a_rename_is_done_or_not() {
    for rule in RULES {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let fs = MemoryFs::new(1 << 20);
            fs.set_rule(rule);
            let top = root(&fs);
            make(&top, b"new", b"n").sync().unwrap();
            make(&top, b"old", b"o").sync().unwrap();
            top.sync().unwrap();
            top.rename(b"new", &top, b"old", file_system::Renaming::Replace).unwrap();
            fs.crash(rule, &mut draws(seed));
            let top = root(&fs);
            let read = |n: &[u8]| top.open_at(n, S_IFREG).and_then(|f| f.read_whole()).ok();
            seen.insert((read(b"new"), read(b"old")));
        }
        let (n, o) = (Some(b"n".to_vec()), Some(b"o".to_vec()));
        assert_eq!(seen, BTreeSet::from([(None, n.clone()), (n, o)]));
    }
}

/// The new directory may be lost, and with it what was made there; what was synced stays where it was.
#[test]
fn a_move_into_a_new_directory_loses_nothing_that_was_synced() {
    for rule in RULES {
        let mut seen = BTreeSet::new();
        for seed in 0..200 {
            let fs = MemoryFs::new(1 << 20);
            fs.set_rule(rule);
            let top = root(&fs);
            make(&top, b"f", b"f").sync().unwrap();
            make(&top, b"g", b"g").sync().unwrap();
            top.sync().unwrap();
            top.make_dir(b"new", 0o755).unwrap();
            let new = top.open_at(b"new", S_IFDIR).unwrap();
            make(&new, b"h", b"h");
            top.rename(b"f", &new, b"f", Renaming::NoReplace).unwrap();
            top.rename(b"g", &new, b"h", Renaming::Exchange).unwrap();
            fs.crash(rule, &mut draws(seed));
            let top = root(&fs);
            let read = |dir: &File, n: &[u8]| dir.open_at(n, S_IFREG).and_then(|f| f.read_whole()).ok();
            let new = top.open_at(b"new", S_IFDIR);
            let found = [(b"f", b"f"), (b"g", b"h")].map(|(old, now)| {
                let moved = new.as_ref().is_ok_and(|new| read(new, now).is_some_and(|data| data == old));
                assert!(moved || read(&top, old).is_some_and(|data| data == old), "{rule:?} {seed}");
                moved
            });
            seen.insert((new.is_ok(), found));
        }
        for moved in [[false, false], [true, true]] {
            assert!(seen.contains(&(true, moved)), "{rule:?}: {seen:?}");
        }
        assert!(seen.contains(&(false, [false, false])), "{rule:?}: {seen:?}");
    }
}

#[test]
fn an_ordered_file_system_keeps_the_order_of_names() {
    let mut counts = BTreeSet::new();
    for seed in 0..300 {
        let fs = MemoryFs::new(1 << 20);
        let top = root(&fs);
        for n in 0..10u8 {
            top.make_dir(&[b'a' + n], 0o755).unwrap();
        }
        fs.crash(CrashRule::Ordered, &mut draws(seed));
        let mut names = Vec::new();
        root(&fs)
            .list(&mut |n, _, _| {
                names.push(n[0] - b'a');
                true
            })
            .unwrap();
        let expected: Vec<u8> = (0..).take(names.len()).collect();
        assert_eq!(names, expected);
        counts.insert(names.len());
    }
    assert!(counts.len() > 5, "{counts:?}");
}

/// What was in the directory was removed before it, and is gone with it.
#[test]
fn a_removed_directory_stays_removed_when_that_was_synced() {
    for rule in RULES {
        let fs = MemoryFs::new(1 << 20);
        fs.set_rule(rule);
        let top = root(&fs);
        for name in [b"d", b"e"] {
            top.make_dir(name, 0o755).unwrap();
            make(&top.open_at(name, S_IFDIR).unwrap(), b"f", b"x");
        }
        top.make_dir(b"new", 0o755).unwrap();
        top.sync_all().unwrap();
        for name in [b"d", b"e"] {
            top.open_at(name, S_IFDIR).unwrap().unlink(b"f").unwrap();
        }
        top.remove_dir(b"d").unwrap();
        top.rename(b"new", &top, b"e", Renaming::Replace).unwrap();
        top.sync().unwrap();
        fs.crash(rule, &mut |_| 0);
        let mut names = BTreeSet::new();
        root(&fs)
            .list(&mut |name, _, _| {
                names.insert(name.to_vec());
                true
            })
            .unwrap();
        assert_eq!(names, BTreeSet::from([b"e".to_vec()]), "{rule:?}");
    }
}

#[test]
fn a_hostile_file_system_loses_a_tag_and_keeps_the_name() {
    let mut seen = BTreeSet::new();
    for seed in 0..300 {
        let fs = MemoryFs::new(1 << 20);
        fs.set_rule(CrashRule::Hostile);
        let top = root(&fs);
        let f = top.make_file(b"f", 0o644).unwrap();
        f.set_xattr(b"user.tag", b"t").unwrap();
        fs.crash(CrashRule::Hostile, &mut draws(seed));
        let f = root(&fs).open_at(b"f", S_IFREG);
        seen.insert(f.ok().map(|f| f.whole_xattr(b"user.tag").unwrap().is_some()));
    }
    assert_eq!(seen, BTreeSet::from([None, Some(false), Some(true)]));
}

#[test]
fn an_inode_survives_as_it_was_at_one_moment() {
    for rule in RULES {
        let mut seen = BTreeSet::new();
        for seed in 0..300 {
            let fs = MemoryFs::new(1 << 20);
            fs.set_rule(rule);
            let top = root(&fs);
            let f = top.make_file(b"f", 0o644).unwrap();
            f.sync().unwrap();
            f.chown(Some(7), Some(7)).unwrap();
            f.chmod(0o4755).unwrap();
            f.set_xattr(b"trusted.tag", b"t").unwrap();
            f.set_xattr(b"user.a", b"1").unwrap();
            fs.crash(rule, &mut draws(seed));
            let f = root(&fs).open_at(b"f", S_IFREG).unwrap();
            let stat = f.stat().unwrap();
            let has = |name: &[u8]| f.whole_xattr(name).unwrap().is_some();
            seen.insert((stat.uid == 7, stat.mode & 0o7777 == 0o4755, has(b"trusted.tag"), has(b"user.a")));
        }
        let inode = |s: &(bool, bool, bool, bool)| (s.0, s.1, s.2);
        let moments = [(false, false, false), (true, false, false), (true, true, false), (true, true, true)];
        assert_eq!(seen.iter().map(inode).collect::<BTreeSet<_>>(), BTreeSet::from(moments), "{rule:?}");
        let apart = seen.contains(&(false, false, false, true));
        assert_eq!(apart, rule == CrashRule::Hostile, "attributes of users lie in a block of their own");
    }
}

#[test]
fn open_files_of_an_earlier_boot_answer_nothing() {
    let fs = MemoryFs::new(1 << 20);
    let top = root(&fs);
    let f = make(&top, b"f", b"x");
    let boot_id = top.boot_id();
    assert!(f.lock().unwrap());
    f.sync().unwrap();
    fs.crash(CrashRule::Ordered, &mut draws(1));
    assert_eq!(f.stat(), Err(Errno::ESHUTDOWN));
    drop(f);
    assert_ne!(root(&fs).boot_id(), boot_id);
    let f = root(&fs).open_at(b"f", S_IFREG).unwrap();
    assert!(f.lock().unwrap());
    assert!(!root(&fs).open_at(b"f", S_IFREG).unwrap().lock().unwrap());
    assert_eq!(f.read(0, 1, true), Err(Errno::EAGAIN), "nothing is in memory after a crash");
    assert_eq!(f.read(0, 1, false).unwrap(), b"x");
    assert_eq!(f.read(0, 1, true).unwrap(), b"x");
}

#[test]
fn an_open_file_outlives_its_name_until_a_crash() {
    let fs = MemoryFs::new(1 << 20);
    let top = root(&fs);
    let f = make(&top, b"f", b"x");
    let handle = f.handle().unwrap();
    top.unlink(b"f").unwrap();
    assert_eq!(f.read_whole().unwrap(), b"x");
    assert_eq!(f.stat().unwrap().nlink, 0);
    assert!(top.open_handle(&handle, S_IFREG).is_ok());
    drop(f);
    assert_eq!(top.open_handle(&handle, S_IFREG).err(), Some(Errno::ESTALE));
}

#[test]
fn faults() {
    let fs = MemoryFs::new(3 * 4096);
    let top = root(&fs);
    let f = make(&top, b"f", &[1; 4096]);
    assert_eq!(f.write(4096, &[1; 10_000]).unwrap(), 8192, "what fits is written");
    assert_eq!(f.write(20_000, b"x"), Err(Errno::ENOSPC));
    f.sync().unwrap();
    f.write_all(0, b"lost").unwrap();
    fs.set_faults(Faults { syncs: Some(Errno::EIO), ..Faults::default() });
    assert_eq!(f.sync(), Err(Errno::EIO));
    fs.set_faults(Faults::default());
    f.sync().unwrap();
    assert_eq!(f.read(0, 4, false).unwrap(), b"lost");
    fs.crash(CrashRule::Ordered, &mut draws(1));
    let f = root(&fs).open_at(b"f", S_IFREG).unwrap();
    fs.set_faults(Faults { reads: Some(Errno::EIO), ..Faults::default() });
    assert_eq!(f.read(0, 4, false), Err(Errno::EIO));
    fs.set_faults(Faults { writes_left: Some(1), ..Faults::default() });
    assert_eq!(f.read(0, 4, false).unwrap(), [1; 4], "a sync that failed dropped the page");
    f.chmod(0o600).unwrap();
    assert_eq!(f.chmod(0o600), Err(Errno::EIO));
}

#[test]
fn a_synced_move_of_a_directory_takes_earlier_ones_along() {
    let fs = MemoryFs::new(1 << 20);
    fs.set_rule(CrashRule::Hostile);
    let top = root(&fs);
    let sub = |dir: &File, name: &[u8]| {
        dir.make_dir(name, 0o755).unwrap();
        dir.open_at(name, S_IFDIR).unwrap()
    };
    let a = sub(&top, b"a");
    let x = sub(&a, b"x");
    let y = sub(&x, b"y");
    top.sync_all().unwrap();
    // The second would make a loop without the first.
    a.rename(b"x", &top, b"x", Renaming::NoReplace).unwrap();
    top.rename(b"a", &y, b"a", Renaming::NoReplace).unwrap();
    y.sync().unwrap();
    fs.crash(CrashRule::Hostile, &mut |_| 0);
    let mut dir = root(&fs);
    for name in [b"x", b"y", b"a"] {
        dir = dir.open_at(name, S_IFDIR).unwrap();
    }
}
