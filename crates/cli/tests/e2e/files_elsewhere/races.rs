//! Several mounts that want the same file or the same name at one time.

use super::*;
use crate::transactions::race;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LASTS: Duration = Duration::from_secs(4);

/// Two move one file to two sets, or one removes what the other moves: one of them gets it.
#[test]
fn of_two_that_want_one_file_one_gets_it() {
    let rig = Rig::new(3, &THREE);
    let dirs = &rig.dirs;
    let (one, two, seen) = (rig.mount(), rig.mount(), rig.mount());
    let begun = Instant::now();
    let mut won = [[0, 0], [0, 0]];
    let mut rounds = 0;
    while begun.elapsed() < LASTS {
        let old = |mount: &Mounted| dirs.at(mount, 0, "f");
        fs::write(old(&seen), "x").unwrap();
        let removes = rounds % 2 == 1;
        let (first, second) = race(
            || fs::rename(old(&one), dirs.at(&one, 1, "to one")),
            || {
                if removes {
                    fs::remove_file(old(&two))
                } else {
                    fs::rename(old(&two), dirs.at(&two, 2, "to two"))
                }
            },
        );
        let none = Errno::NOENT.raw_os_error();
        for lost in [&first, &second].into_iter().filter_map(|r| r.as_ref().err()) {
            assert_eq!(lost.raw_os_error(), Some(none), "round {rounds}: {first:?}, {second:?}");
        }
        assert!(first.is_ok() != second.is_ok(), "round {rounds}: {first:?}, {second:?}");
        is_gone(&old(&seen));
        let there = [dirs.at(&seen, 1, "to one"), dirs.at(&seen, 2, "to two")].map(|p| p.exists());
        assert_eq!(there, [first.is_ok(), second.is_ok() && !removes], "round {rounds}");
        for (set, name) in [(1, "to one"), (2, "to two")] {
            let _gone = fs::remove_file(dirs.at(&seen, set, name));
        }
        won[usize::from(removes)][usize::from(second.is_ok())] += 1;
        rounds += 1;
    }
    println!("{rounds} rounds, won: {won:?}");
    assert!(rounds > 10, "only {rounds} rounds");
    one.end();
    two.end();
    rig.leaves_nothing(seen);
}

/// Two move files of theirs onto one name, a third links one to it: one file is there, and the others are where they were or
/// gone.
#[test]
fn of_files_that_want_one_name_one_has_it() {
    let rig = Rig::new(3, &THREE);
    let dirs = &rig.dirs;
    let (one, two, seen) = (rig.mount(), rig.mount(), rig.mount());
    let begun = Instant::now();
    let mut rounds = 0;
    while begun.elapsed() < LASTS {
        fs::write(dirs.at(&seen, 0, "a"), "a").unwrap();
        fs::write(dirs.at(&seen, 2, "b"), "b").unwrap();
        let to = |mount: &Mounted| dirs.at(mount, 1, "name");
        let links = rounds % 2 == 1;
        let (first, second) = race(
            || fs::rename(dirs.at(&one, 0, "a"), to(&one)),
            || {
                let from = dirs.at(&two, 2, "b");
                if links { fs::hard_link(from, to(&two)) } else { fs::rename(from, to(&two)) }
            },
        );
        first.unwrap_or_else(|e| panic!("round {rounds}: nothing is in its way: {e}"));
        assert!(second.is_ok() || links && failed(second, Errno::EXIST), "round {rounds}");
        let content = fs::read_to_string(to(&seen)).unwrap();
        assert!(content == "a" || content == "b" && !links, "round {rounds}: {content}");
        assert_eq!(fs::metadata(to(&seen)).unwrap().nlink(), 1, "round {rounds}");
        is_gone(&dirs.at(&seen, 0, "a"));
        let left = dirs.at(&seen, 2, "b");
        if links {
            is_one_file(b"b", std::slice::from_ref(&left), 1);
            fs::remove_file(left).unwrap();
        } else {
            is_gone(&left);
        }
        fs::remove_file(to(&seen)).unwrap();
        rounds += 1;
    }
    println!("{rounds} rounds");
    assert!(rounds > 10, "only {rounds} rounds");
    one.end();
    two.end();
    rig.leaves_nothing(seen);
}

/// While files move from one directory to another: who looks at the old one first finds each at least once, and who looks at
/// the new one first at most once.
#[test]
fn nobody_sees_a_file_nowhere_or_twice() {
    const FILES: usize = 60;
    let rig = Rig::new(2, &TWO);
    let dirs = &rig.dirs;
    let (one, two) = (rig.mount(), rig.mount());
    for n in 0..FILES {
        fs::write(dirs.at(&one, 0, &format!("f{n}")), "x").unwrap();
    }
    let (done, looked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let names = |set: usize| dirs.names(&two, set).into_iter().collect::<BTreeSet<_>>();
            while !done.load(Ordering::Relaxed) {
                let (old, new) = (names(0), names(1));
                let all: BTreeSet<_> = old.union(&new).collect();
                assert_eq!(all.len(), FILES, "old directory {old:?}, then the new one {new:?}");
                let (new, old) = (names(1), names(0));
                let both: Vec<_> = new.intersection(&old).collect();
                assert!(both.is_empty(), "in the new directory, then in the old one: {both:?}");
                looked.fetch_add(1, Ordering::Relaxed);
            }
        });
        for n in 0..FILES {
            let name = format!("f{n}");
            fs::rename(dirs.at(&one, 0, &name), dirs.at(&one, 1, &name)).unwrap();
            // A listing waits while names of the directory are about to go: it has its turn now and then.
            if n % 6 == 0 {
                let before = looked.load(Ordering::Relaxed);
                eventually("it was looked", || (looked.load(Ordering::Relaxed) > before).then_some(()));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    println!("looked {} times", looked.into_inner());
    assert_eq!(dirs.names(&two, 1).len(), FILES);
    two.end();
    rig.leaves_nothing(one);
}
