//! What each operation does, as two mounts see it and as it lies on the bricks.

use super::*;
use crate::harness::tool;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};

#[test]
fn a_file_is_moved_to_a_directory_of_another_set() {
    let rig = Rig::new(2, &TWO);
    let (one, two) = (rig.mount(), rig.mount());
    let (old, new) = (rig.at(&one, 0, "f"), rig.at(&one, 1, "g"));
    fs::write(&old, "content").unwrap();
    fs::set_permissions(&old, fs::Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(rig.at(&two, 0, "f")).unwrap();
    fs::rename(&old, &new).unwrap();
    is_gone(&old);
    is_gone(&rig.at(&two, 0, "f"));
    is_one_file(b"content", &[new.clone(), rig.at(&two, 1, "g")], 1);
    let after = fs::metadata(rig.at(&two, 1, "g")).unwrap();
    assert_eq!((after.ino(), after.mode(), after.mtime()), (before.ino(), 0o100_640, before.mtime()));
    assert_eq!(rig.dirs.names(&two, 0), Vec::<String>::new());
    assert_eq!(rig.dirs.names(&two, 1), ["g"]);
    // An empty file stands for it on the bricks of its directory's set.
    let stub = fs::metadata(rig.on_brick(1, 1, "g")).unwrap();
    assert_eq!((stub.mode(), stub.len()), (0o101_000, 0));
    assert!(!rig.on_brick(0, 0, "f").exists());
    // Within its new directory's set, changed and looked at there.
    fs::write(rig.at(&two, 1, "g"), "other content").unwrap();
    fs::rename(rig.at(&two, 1, "g"), rig.at(&two, 1, "h")).unwrap();
    is_gone(&new);
    is_one_file(b"other content", &[rig.at(&one, 1, "h"), rig.at(&two, 1, "h")], 1);
    fs::remove_file(rig.at(&one, 1, "h")).unwrap();
    is_gone(&rig.at(&two, 1, "h"));
    two.end();
    rig.leaves_nothing(one);
}

#[test]
fn a_moved_file_replaces_whatever_lives_wherever() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let write = |set, name: &str| fs::write(rig.at(&one, set, name), name).unwrap();
    // In a directory of set 1, the target lives there, on the home of what comes, and on a third set.
    write(1, "own");
    for (set, name) in [(0, "home"), (2, "third")] {
        write(set, name);
        fs::rename(rig.at(&one, set, name), rig.at(&one, 1, name)).unwrap();
    }
    for target in ["own", "home", "third"] {
        let new = format!("on {target}");
        write(0, &new);
        let held = fs::File::open(rig.at(&two, 1, target)).unwrap();
        let refused =
            renameat_with(CWD, rig.at(&one, 0, &new), CWD, rig.at(&one, 1, target), RenameFlags::NOREPLACE);
        assert_eq!(refused, Err(Errno::EXIST));
        is_one_file(target.as_bytes(), &[rig.at(&two, 1, target)], 1);
        fs::rename(rig.at(&one, 0, &new), rig.at(&one, 1, target)).unwrap();
        is_gone(&rig.at(&two, 0, &new));
        is_one_file(new.as_bytes(), &[rig.at(&one, 1, target), rig.at(&two, 1, target)], 1);
        // What gave way lives on for who holds it open.
        assert_eq!(held.metadata().unwrap().nlink(), 0, "{target}");
        assert_eq!(io::read_to_string(&held).unwrap(), target);
    }
    // Within one directory: a file of its own set onto one of another, and the other way.
    write(1, "plain");
    fs::rename(rig.at(&one, 1, "plain"), rig.at(&one, 1, "home")).unwrap();
    is_one_file(b"plain", &[rig.at(&two, 1, "home")], 1);
    fs::rename(rig.at(&one, 1, "third"), rig.at(&one, 1, "home")).unwrap();
    is_one_file(b"on third", &[rig.at(&two, 1, "home")], 1);
    assert_eq!(rig.dirs.names(&two, 1), ["home", "own"]);
    two.end();
    rig.leaves_nothing(one);
}

#[test]
fn a_file_has_names_on_several_sets() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let names = |mount: &Mounted| {
        [(0, "a"), (1, "b"), (1, "b2"), (2, "c")].map(|(set, name)| rig.at(mount, set, name))
    };
    let ([a, b, b2, c], [a_two, b_two, ..]) = (names(&one), names(&two));
    fs::write(&a, "first").unwrap();
    fs::hard_link(&a, &b).unwrap();
    fs::hard_link(&b_two, names(&two)[3].clone()).unwrap();
    fs::hard_link(&a_two, names(&two)[2].clone()).unwrap();
    is_one_file(b"first", &names(&one), 4);
    is_one_file(b"first", &names(&two), 4);
    fs::write(&b, "second").unwrap();
    is_one_file(b"second", &names(&two), 4);
    assert!(failed(fs::hard_link(&a, &b), Errno::EXIST));
    // Two names of one file: a rename does nothing.
    fs::rename(&a, &b).unwrap();
    fs::rename(&b, &b2).unwrap();
    is_one_file(b"second", &names(&two), 4);
    // Each name may go first: that at home, and those elsewhere.
    fs::remove_file(&a_two).unwrap();
    is_gone(&a);
    is_one_file(b"second", &names(&two)[1..], 3);
    fs::remove_file(&b).unwrap();
    is_gone(&b_two);
    is_one_file(b"second", &names(&two)[2..], 2);
    fs::remove_file(&c).unwrap();
    is_one_file(b"second", &[b2.clone(), names(&two)[2].clone()], 1);
    // A name at home again? Not yet, but a name beside the last one.
    fs::hard_link(&b2, &b).unwrap_or_else(|e| panic!("a second name beside a stub: {e}"));
    is_one_file(b"second", &[b_two, names(&two)[2].clone()], 2);
    two.end();
    rig.leaves_nothing(one);
}

/// From one set to another while it lives on a third one, and back to where it lives: the same file all the time.
#[test]
fn a_file_is_renamed_between_any_sets() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let at = |set, name: &str| rig.at(&one, set, name);
    let there = |set, name: &str| rig.at(&two, set, name);
    let flags = |from: PathBuf, to: PathBuf, flags| renameat_with(CWD, from, CWD, to, flags);
    fs::write(at(0, "f"), "moved").unwrap();
    let inode = fs::metadata(at(0, "f")).unwrap().ino();
    fs::rename(at(0, "f"), at(1, "f")).unwrap();
    for (from, to) in [(1, 2), (2, 1), (1, 0), (0, 2), (2, 0)] {
        fs::rename(at(from, "f"), at(to, "f")).unwrap_or_else(|e| panic!("{from} to {to}: {e}"));
        is_gone(&there(from, "f"));
        is_one_file(b"moved", &[there(to, "f")], 1);
        assert_eq!(fs::metadata(there(to, "f")).unwrap().ino(), inode, "{from} to {to}");
        assert!(rig.dirs.names(&two, from).is_empty());
    }
    // Over files of each set, and over none.
    for (n, victim) in [0, 1, 2].into_iter().enumerate() {
        let name = format!("n{n}");
        fs::write(at(0, &name), "comes").unwrap();
        fs::rename(at(0, &name), at(1, &name)).unwrap();
        for to in [2, 0] {
            fs::write(at(victim, "victim"), "gives way").unwrap();
            if victim != to {
                fs::rename(at(victim, "victim"), at(to, "victim")).unwrap();
            }
            assert_eq!(flags(at(1, &name), at(to, "victim"), RenameFlags::NOREPLACE), Err(Errno::EXIST));
            fs::rename(at(1, &name), at(to, "victim")).unwrap();
            is_gone(&there(1, &name));
            is_one_file(b"comes", &[there(to, "victim")], 1);
            fs::rename(at(to, "victim"), at(1, &name)).unwrap();
        }
        fs::remove_file(at(1, &name)).unwrap();
    }
    // Two names of one file: nothing is done.
    fs::hard_link(at(0, "f"), at(1, "one")).unwrap();
    fs::hard_link(at(0, "f"), at(2, "two")).unwrap();
    fs::rename(at(1, "one"), at(2, "two")).unwrap();
    fs::rename(at(1, "one"), at(0, "f")).unwrap();
    is_one_file(b"moved", &[there(0, "f"), there(1, "one"), there(2, "two")], 3);
    symlink("to somewhere", at(0, "link")).unwrap();
    fs::rename(at(0, "link"), at(1, "link")).unwrap();
    fs::rename(at(1, "link"), at(2, "link")).unwrap();
    assert_eq!(fs::read_link(there(2, "link")).unwrap(), Path::new("to somewhere"));
    two.end();
    rig.leaves_nothing(one);
}

/// Names of one directory: files of one home, of two, of the set itself, and a directory.
#[test]
fn names_are_exchanged_wherever_their_files_live() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let at = |name: &str| rig.at(&one, 1, name);
    for (set, name) in [(0, "home"), (0, "too"), (2, "third"), (1, "own")] {
        fs::write(rig.at(&one, set, name), name).unwrap();
        if set != 1 {
            fs::rename(rig.at(&one, set, name), at(name)).unwrap();
        }
    }
    fs::create_dir(at("d")).unwrap();
    let inode = |name: &str| fs::metadata(rig.at(&two, 1, name)).unwrap().ino();
    for (a, b) in [("home", "too"), ("too", "third"), ("own", "home"), ("third", "d"), ("d", "own")] {
        let before = (inode(a), inode(b));
        for (before, after) in [(before, (before.1, before.0)), ((before.1, before.0), before)] {
            assert_eq!((inode(a), inode(b)), before, "{a} and {b}");
            renameat_with(CWD, at(a), CWD, at(b), RenameFlags::EXCHANGE)
                .unwrap_or_else(|e| panic!("{a} and {b}: {e}"));
            assert_eq!((inode(a), inode(b)), after, "{a} and {b}");
        }
    }
    for name in ["home", "too", "third", "own"] {
        is_one_file(name.as_bytes(), &[rig.at(&two, 1, name)], 1);
    }
    two.end();
    rig.leaves_nothing(one);
}

/// Kinds other than plain files are moved and linked like them.
#[test]
fn links_and_nodes_live_elsewhere_like_files() {
    let rig = Rig::new(2, &TWO);
    let (one, two) = (rig.mount(), rig.mount());
    symlink("to somewhere", rig.at(&one, 0, "link")).unwrap();
    tool(&format!("mkfifo {}", rig.at(&one, 0, "fifo").display()));
    tool(&format!("mknod {} c 1 3", rig.at(&one, 0, "null").display()));
    for name in ["link", "fifo", "null"] {
        fs::hard_link(rig.at(&one, 0, name), rig.at(&one, 1, &format!("{name}2"))).unwrap();
        fs::rename(rig.at(&one, 0, name), rig.at(&one, 1, name)).unwrap();
    }
    for name in ["link", "link2"] {
        assert_eq!(fs::read_link(rig.at(&two, 1, name)).unwrap(), Path::new("to somewhere"));
    }
    let meta = |name| fs::symlink_metadata(rig.at(&two, 1, name)).unwrap();
    assert!(meta("fifo").file_type().is_fifo() && meta("fifo2").file_type().is_fifo());
    assert!(meta("null").file_type().is_char_device() && meta("null2").rdev() == meta("null").rdev());
    assert_eq!(meta("link").nlink(), 2);
    // As a listing tells them, too.
    let listed = tool(&format!("find {} -type l -printf %f.", rig.at(&two, 1, "").display()));
    assert_eq!(listed.split('.').filter(|n| n.starts_with("link")).count(), 2, "{listed}");
    two.end();
    rig.leaves_nothing(one);
}

/// A directory moves with all that is in it, as one change: its files stay where they are, and open.
#[test]
fn a_directory_is_renamed_to_another_set() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let at = |set, name: &str| rig.at(&one, set, name);
    fs::create_dir_all(at(0, "d/deep/er")).unwrap();
    fs::write(at(0, "d/deep/file"), "in").unwrap();
    let mut open = fs::File::options().append(true).open(at(0, "d/deep/file")).unwrap();
    let before = fs::metadata(at(0, "d")).unwrap();
    fs::rename(at(0, "d"), at(1, "moved")).unwrap();
    let after = fs::metadata(rig.at(&two, 1, "moved")).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    is_gone(&rig.at(&two, 0, "d"));
    assert_eq!(rig.dirs.names(&two, 1), ["moved"]);
    open.write_all(b" it").unwrap();
    is_one_file(b"in it", &[rig.at(&two, 1, "moved/deep/file")], 1);
    // Over an empty directory, with what was made in it since; not over a full one, nor a file.
    fs::write(at(1, "moved/new"), "new").unwrap();
    fs::create_dir_all(at(0, "e/in")).unwrap();
    fs::create_dir_all(at(1, "full/in")).unwrap();
    fs::create_dir(at(1, "empty")).unwrap();
    fs::write(at(1, "f"), "f").unwrap();
    assert!(failed(fs::rename(at(0, "e"), at(1, "moved")), Errno::NOTEMPTY), "it lives elsewhere");
    assert!(failed(fs::rename(at(0, "e"), at(1, "full")), Errno::NOTEMPTY));
    assert!(failed(fs::rename(at(0, "e"), at(1, "f")), Errno::NOTDIR));
    fs::rename(at(0, "e"), at(1, "empty")).unwrap();
    assert!(rig.at(&two, 1, "empty/in").is_dir());
    is_gone(&rig.at(&two, 0, "e"));
    // It is a directory like others: what is in it goes, and it does.
    fs::remove_dir_all(at(1, "moved")).unwrap();
    fs::remove_dir_all(at(1, "empty")).unwrap();
    two.end();
    rig.leaves_nothing(one);
}

/// It lives on one set, its entry goes from the second to the third, and comes home, as often as one likes.
#[test]
fn a_directory_goes_from_set_to_set_and_comes_home() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let at = |set, name: &str| rig.at(&one, set, name);
    fs::create_dir_all(at(0, "d/deep")).unwrap();
    fs::write(at(0, "d/deep/file"), "in").unwrap();
    let mut open = fs::File::options().append(true).open(at(0, "d/deep/file")).unwrap();
    let before = fs::metadata(at(0, "d")).unwrap();
    for round in 0..3 {
        for (from, to) in [(0, 1), (1, 2), (2, 1), (1, 0)] {
            fs::rename(at(from, "d"), at(to, "d")).unwrap();
            let after = fs::metadata(rig.at(&two, to, "d")).unwrap();
            assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()), "{round}: {from} to {to}");
            is_gone(&rig.at(&two, from, "d"));
            assert_eq!(rig.dirs.names(&two, to), ["d"], "{round}: {from} to {to}");
        }
    }
    open.write_all(b" it").unwrap();
    is_one_file(b"in it", &[rig.at(&two, 0, "d/deep/file")], 1);
    // Not beneath itself, wherever its entry is.
    fs::rename(at(0, "d"), at(1, "d")).unwrap();
    assert!(failed(fs::rename(at(1, "d"), at(1, "d/deep/d")), Errno::INVAL));
    // Over an empty directory of the set that gets it, and not over a full one.
    fs::create_dir_all(at(2, "full/in")).unwrap();
    fs::create_dir(at(2, "empty")).unwrap();
    assert!(failed(fs::rename(at(1, "d"), at(2, "full")), Errno::NOTEMPTY));
    fs::rename(at(1, "d"), at(2, "empty")).unwrap();
    is_one_file(b"in it", &[rig.at(&two, 2, "empty/deep/file")], 1);
    fs::create_dir(at(0, "empty")).unwrap();
    fs::rename(at(2, "empty"), at(0, "empty")).unwrap();
    is_one_file(b"in it", &[rig.at(&two, 0, "empty/deep/file")], 1);
    fs::remove_dir_all(at(0, "empty")).unwrap();
    fs::remove_dir_all(at(2, "full")).unwrap();
    two.end();
    rig.leaves_nothing(one);
}

/// What gives way lives on another set than its entry, and so may what takes its place.
#[test]
fn a_directory_takes_the_place_of_one_of_any_set() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let at = |set, name: &str| rig.at(&one, set, name);
    for from in 0..3 {
        for lives in 0..3 {
            for to in (0..3).filter(|to| *to != from) {
                for gives_way in (0..3).filter(|home| *home != to) {
                    let what = format!("{lives}, at {from}, to {to}, over one of {gives_way}");
                    fs::create_dir(at(lives, "d")).unwrap();
                    fs::write(at(lives, "d/file"), "in it").unwrap();
                    fs::create_dir(at(gives_way, "empty")).unwrap();
                    fs::rename(at(lives, "d"), at(from, "e")).unwrap();
                    fs::rename(at(gives_way, "empty"), at(to, "empty")).unwrap();
                    let before = fs::metadata(at(from, "e")).unwrap();
                    fs::write(at(to, "empty/not"), "").unwrap();
                    assert!(failed(fs::rename(at(from, "e"), at(to, "empty")), Errno::NOTEMPTY), "{what}");
                    fs::remove_file(rig.at(&two, to, "empty/not")).unwrap();
                    fs::rename(at(from, "e"), at(to, "empty")).unwrap_or_else(|e| panic!("{what}: {e}"));
                    let after = fs::metadata(rig.at(&two, to, "empty")).unwrap();
                    assert_eq!(after.ino(), before.ino(), "{what}");
                    is_one_file(b"in it", &[rig.at(&two, to, "empty/file")], 1);
                    is_gone(&rig.at(&two, from, "e"));
                    fs::remove_dir_all(at(to, "empty")).unwrap();
                }
            }
        }
    }
    two.end();
    rig.leaves_copies_at_most(one);
}

/// What is refused changes nothing.
#[test]
fn what_is_refused_changes_nothing() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let at = |set, name: &str| rig.at(&one, set, name);
    fs::write(at(0, "f"), "moved").unwrap();
    fs::rename(at(0, "f"), at(1, "f")).unwrap();
    fs::write(at(0, "g"), "g").unwrap();
    fs::create_dir(at(0, "d")).unwrap();
    fs::write(at(0, "d/in"), "in").unwrap();
    fs::create_dir(at(1, "full")).unwrap();
    fs::write(at(1, "full/in"), "in").unwrap();
    let exchange = renameat_with(CWD, at(0, "d"), CWD, at(1, "none"), RenameFlags::EXCHANGE);
    assert_eq!(exchange, Err(Errno::NOENT), "a directory, and nothing in its place");
    assert!(failed(fs::rename(at(0, "g"), at(1, "full")), Errno::ISDIR));
    assert!(failed(fs::rename(at(0, "none"), at(1, "x")), Errno::NOENT));
    assert!(failed(fs::hard_link(at(0, "g"), at(1, "full")), Errno::EXIST));
    is_one_file(b"moved", &[rig.at(&two, 1, "f")], 1);
    is_one_file(b"g", &[rig.at(&two, 0, "g")], 1);
    assert_eq!(rig.dirs.names(&two, 0), ["d", "g"]);
    assert_eq!(rig.dirs.names(&two, 1), ["f", "full"]);
    two.end();
    rig.leaves_nothing(one);
}
