//! Two mounts of one volume are one file system.

use crate::harness::{Mounted, Pool, files};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn with_two(test: impl FnOnce(&Mounted, &Mounted)) {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let (one, two) = (pool.mount("v"), pool.mount("v"));
    test(&one, &two);
    one.end();
    two.end();
}

/// A directory that one mount has renamed is renamed by another one that knows it where it was, without a look at it before:
/// rename(2) itself finds it.
#[test]
fn a_directory_that_was_renamed_elsewhere_is_renamed_at_once() {
    let pool = Pool::new(2);
    pool.volume("v", 1, &[(0, "a"), (1, "b")]);
    let mounts = [pool.mount("v"), pool.mount("v")];
    for dir in ["a", "b", "c"] {
        fs::create_dir(mounts[0].path(dir)).unwrap();
    }
    fs::create_dir(mounts[0].path("a/d")).unwrap();
    for round in 0..20 {
        let (one, two) = (&mounts[round % 2], &mounts[1 - round % 2]);
        let file = format!("a/d/f{round}");
        fs::write(two.path(&file), "x").unwrap();
        for (mount, from, to) in [(one, "a/d", "b/e"), (two, "b/e", "c/d"), (one, "c/d", "a/d")] {
            fs::rename(mount.path(from), mount.path(to))
                .unwrap_or_else(|e| panic!("{round}: {from} to {to}: {e}"));
        }
        assert_eq!(fs::read(one.path(&file)).unwrap(), b"x");
        fs::remove_file(one.path(&file)).unwrap();
    }
    mounts.into_iter().for_each(Mounted::end);
}

#[test]
fn changes_show_at_once() {
    with_two(|one, two| {
        for i in 0..50 {
            let name = format!("f{i}");
            assert!(!two.path(&name).exists());
            fs::write(one.path(&name), "first").unwrap();
            assert_eq!(fs::read(two.path(&name)).unwrap(), b"first");
            fs::write(two.path(&name), "second, longer").unwrap();
            assert_eq!(fs::metadata(one.path(&name)).unwrap().len(), 14);
            assert_eq!(fs::read(one.path(&name)).unwrap(), b"second, longer");
            fs::rename(one.path(&name), one.path("moved")).unwrap();
            assert!(!two.path(&name).exists());
            assert_eq!(files::names(&two.dir), ["moved"]);
            fs::remove_file(two.path("moved")).unwrap();
            assert_eq!(files::names(&one.dir), Vec::<String>::new());
        }
        fs::create_dir(one.path("d")).unwrap();
        fs::set_permissions(two.path("d"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(fs::metadata(one.path("d")).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(one.path("d")).unwrap().ino(), fs::metadata(two.path("d")).unwrap().ino());
    });
}

/// A mount that made a file while it was alone knows that it has no extended attributes, but no longer than it is alone.
#[test]
fn extended_attributes_of_a_fresh_file_show_at_once() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    with_two(|one, two| {
        let value = |mount: &Mounted, file: &str, name: &str| {
            let mut got = [0; 16];
            getxattr(mount.path(file), name, &mut got).map(|n| got[..n].to_vec())
        };
        for i in 0..20 {
            let file = format!("f{i}");
            fs::write(one.path(&file), "x").unwrap();
            assert_eq!(value(one, &file, "user.a"), Err(rustix::io::Errno::NODATA));
            setxattr(one.path(&file), "user.a", b"own", XattrFlags::empty()).unwrap();
            assert_eq!(value(one, &file, "user.a").unwrap(), b"own");
            let second = format!("g{i}");
            fs::write(one.path(&second), "x").unwrap();
            setxattr(two.path(&second), "user.b", b"other's", XattrFlags::empty()).unwrap();
            assert_eq!(value(one, &second, "user.b").unwrap(), b"other's");
        }
    });
}

/// A file that both hold open: what one writes the other reads.
#[test]
fn an_open_file_is_shared() {
    with_two(|one, two| {
        let a = File::options().create_new(true).read(true).write(true).open(one.path("f")).unwrap();
        let b = File::options().read(true).write(true).open(two.path("f")).unwrap();
        for i in 0..100u64 {
            a.write_all_at(&i.to_le_bytes(), i * 8).unwrap();
            let mut got = [0; 8];
            b.read_exact_at(&mut got, i * 8).unwrap();
            assert_eq!(u64::from_le_bytes(got), i);
            b.write_all_at(&(i + 1000).to_le_bytes(), i * 8).unwrap();
            a.read_exact_at(&mut got, i * 8).unwrap();
            assert_eq!(u64::from_le_bytes(got), i + 1000);
        }
        // Unlinked at one mount, open at the other.
        fs::remove_file(one.path("f")).unwrap();
        let mut got = [0; 8];
        b.read_exact_at(&mut got, 0).unwrap();
        assert_eq!(u64::from_le_bytes(got), 1000);
    });
}

/// O_APPEND from both: every line is there, whole.
#[test]
fn appends_do_not_overwrite_each_other() {
    with_two(|one, two| {
        File::create(one.path("log")).unwrap();
        std::thread::scope(|scope| {
            for (mount, who) in [(one, "one"), (two, "two")] {
                scope.spawn(move || {
                    let mut file = File::options().append(true).open(mount.path("log")).unwrap();
                    for i in 0..500 {
                        file.write_all(format!("{who} {i:05}\n").as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(one.path("log")).unwrap();
        assert_eq!(text.len(), 10 * 1000);
        for who in ["one", "two"] {
            let mine: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix(who)).collect();
            let wanted: Vec<String> = (0..500).map(|i| format!(" {i:05}")).collect();
            assert_eq!(mine, wanted, "lines of {who}");
        }
    });
}

/// Of many who make the same name, one wins.
#[test]
fn only_one_makes_a_name() {
    with_two(|one, two| {
        let won: usize = std::thread::scope(|scope| {
            let makers: Vec<_> = [one, two]
                .into_iter()
                .map(|m| {
                    scope.spawn(move || {
                        (0..200).filter(|i| fs::create_dir(m.path(&format!("d{i}"))).is_ok()).count()
                    })
                })
                .collect();
            makers.into_iter().map(|m| m.join().unwrap()).sum()
        });
        assert_eq!(won, 200);
        assert_eq!(files::names(&one.dir).len(), 200);
    });
}

/// The kernel of a mount notes a file's new time without dropping what it has of the file's data.
#[test]
fn a_change_of_attributes_does_not_keep_old_data() {
    with_two(|one, two| {
        for i in 0..20 {
            let name = format!("f{i}");
            fs::write(one.path(&name), "old-").unwrap();
            let open = File::open(two.path(&name)).unwrap();
            let read = || {
                let mut bytes = [0; 4];
                open.read_exact_at(&mut bytes, 0).unwrap();
                bytes
            };
            assert_eq!(&read(), b"old-");
            File::options().write(true).open(one.path(&name)).unwrap().write_all_at(b"new-", 0).unwrap();
            open.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
            assert_eq!(&read(), b"new-", "file {i}");
        }
    });
}

/// Of several programs that read at one moment, the first one's question has the kernel drop what it has; the others must not
/// be given it meanwhile.
#[test]
fn programs_that_read_at_once_read_the_same() {
    const READERS: usize = 3;
    with_two(|one, two| {
        fs::write(one.path("file"), 0u64.to_le_bytes()).unwrap();
        let file = File::options().write(true).open(one.path("file")).unwrap();
        let (begin, end) = (Barrier::new(READERS + 1), Barrier::new(READERS + 1));
        let (done, stale) = (AtomicBool::new(false), AtomicU64::new(0));
        let value = AtomicU64::new(0);
        let until = Instant::now() + Duration::from_secs(5);
        std::thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    let open = File::open(two.path("file")).unwrap();
                    loop {
                        begin.wait();
                        if done.load(Ordering::Relaxed) {
                            return;
                        }
                        let mut bytes = [0; 8];
                        open.read_exact_at(&mut bytes, 0).unwrap();
                        if u64::from_le_bytes(bytes) != value.load(Ordering::Relaxed) {
                            stale.fetch_add(1, Ordering::Relaxed);
                        }
                        end.wait();
                    }
                });
            }
            while Instant::now() < until {
                let next = value.fetch_add(1, Ordering::Relaxed) + 1;
                file.write_all_at(&next.to_le_bytes(), 0).unwrap();
                begin.wait();
                end.wait();
            }
            done.store(true, Ordering::Relaxed);
            begin.wait();
        });
        let rounds = value.load(Ordering::Relaxed);
        println!("{rounds} rounds");
        assert_eq!(stale.load(Ordering::Relaxed), 0, "reads of {rounds} rounds");
        assert!(rounds > 20, "only {rounds} rounds");
    });
}

/// A tree is made like `cp -r` does, and removed like `rm -rf`, while others do the same: what somebody else did first is an answer.
fn make_and_remove(top: &std::path::Path, until: Instant) -> u64 {
    let is_an_answer = |e: &std::io::Error| {
        use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotFound, StaleNetworkFileHandle};
        matches!(e.kind(), AlreadyExists | DirectoryNotEmpty | NotFound | StaleNetworkFileHandle)
    };
    let allowed = |done: std::io::Result<()>| match done {
        Err(e) if !is_an_answer(&e) => panic!("{}: {e}", top.display()),
        other => other.is_ok(),
    };
    let mut rounds = 0;
    while Instant::now() < until {
        for dir in ["", "a", "a/b", "c"] {
            allowed(fs::create_dir(top.join(dir)));
            for f in 0..3 {
                allowed(fs::write(top.join(dir).join(format!("f{f}")), "x"));
            }
        }
        rounds += u64::from(allowed(fs::remove_dir_all(top)));
    }
    rounds
}

/// Three mounts make and remove one tree at once (gluster/glusterfs 4424, 2601: stale handles for ever): in the end they see the
/// same, one of them removes it, and nothing of it is left.
#[test]
fn mounts_make_and_remove_the_same_tree() {
    let mut pool = Pool::new(2);
    let bricks = [(0, "a"), (1, "b")];
    pool.volume("v", 1, &bricks);
    let mounts = [pool.mount("v"), pool.mount("v"), pool.mount("v")];
    let until = Instant::now() + Duration::from_secs(8);
    std::thread::scope(|s| {
        let work = |m: &Mounted| {
            let top = m.path("tree");
            s.spawn(move || make_and_remove(&top, until))
        };
        let running: Vec<_> = mounts.iter().map(work).collect();
        let rounds: Vec<u64> = running.into_iter().map(|r| r.join().unwrap()).collect();
        println!("removed {rounds:?} times");
    });
    let shown: Vec<files::Tree> = mounts.iter().map(|m| files::tree(&m.dir)).collect();
    assert!(shown.iter().all(|tree| *tree == shown[0]), "{shown:?}");
    if mounts[1].path("tree").exists() {
        fs::remove_dir_all(mounts[1].path("tree")).unwrap();
    }
    fs::create_dir_all(mounts[2].path("tree/a/b")).unwrap();
    fs::remove_dir_all(mounts[0].path("tree")).unwrap();
    assert!(mounts.iter().all(|m| files::names(&m.dir).is_empty()));
    mounts.into_iter().for_each(Mounted::end);
    (0..2).for_each(|s| pool.stop(s));
    for brick in pool.paths(&bricks) {
        crate::adopt::is_sound(&brick);
        let left: Vec<_> = files::brick_tree(&brick).into_iter().filter(|(_, seen)| !seen.is_dir()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}
