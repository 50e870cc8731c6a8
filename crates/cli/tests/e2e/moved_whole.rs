//! Files of all kinds leave their set with all that belongs to them: attributes (gluster/glusterfs 4148, 1625, 942, 3064) and holes
//! (2317), also if they are changed meanwhile.

use crate::adopt::is_sound;
use crate::drain::drain_set;
use crate::grow::words;
use crate::harness::files::{self, Seen};
use crate::harness::{Mounted, Pool, eventually_within};
use crate::posix::acl;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const BRICKS: [(usize, &str); 2] = [(0, "a"), (1, "b")];
const MODES: [u32; 6] = [0o4755, 0o2750, 0o1777, 0o640, 0o600, 0o000];
const PAGE: usize = 4096;
const NOBODY: u32 = u32::MAX;
/// How fast files move beside other tests is not at issue.
const LONG: Duration = Duration::from_secs(120);

/// Extended attributes by their names.
pub(crate) type Xattrs = BTreeMap<Vec<u8>, Vec<u8>>;

fn xattrs(path: &Path) -> Xattrs {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let value = |name: &[u8]| {
        let mut value = vec![0; 4096];
        let c_name = CStr::from_bytes_with_nul(name).unwrap();
        let len = rustix::fs::lgetxattr(path, c_name, &mut value[..]).unwrap();
        value.truncate(len);
        value
    };
    names[..len].split_inclusive(|b| *b == 0).map(|name| (name.to_vec(), value(name))).collect()
}

/// What each file is, with its extended attributes.
pub(crate) type Whole = BTreeMap<PathBuf, (Seen, Xattrs)>;

/// All beneath a directory.
pub(crate) fn whole(top: &Path) -> Whole {
    let tree = files::tree(top);
    let of = |path: PathBuf, seen| {
        let attributes = xattrs(&top.join(&path));
        (path, (seen, attributes))
    };
    tree.into_iter().map(|(path, seen)| of(path, seen)).collect()
}

fn set_times(path: &Path, seconds: i64) {
    let at = |tv_nsec| Timespec { tv_sec: seconds, tv_nsec };
    let times = Timestamps { last_access: at(123_456_789), last_modification: at(987_654_321) };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Files and directories of all modes, with owners, lists, capabilities and times; links and a pipe.
pub(crate) fn make_all(top: &Path) {
    let list = acl(&[(1, 6, NOBODY), (2, 4, 12345), (4, 0, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)]);
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    for (n, mode) in MODES.into_iter().enumerate() {
        let (dir, id) = (top.join(format!("d{mode:o}")), 1000 + n as u32);
        fs::create_dir(&dir).unwrap();
        for (f, of_file) in MODES.into_iter().enumerate() {
            let file = dir.join(format!("f{f}"));
            fs::write(&file, files::noise((n * 10 + f) as u64, 3000 * f)).unwrap();
            std::os::unix::fs::chown(&file, Some(id), Some(2000 + f as u32)).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(of_file)).unwrap();
            for a in 0..f {
                set(&file, &format!("user.a{a}"), &files::noise(a as u64, 100 * a));
            }
            if f == 3 {
                set(&file, "system.posix_acl_access", &list);
            }
            if f == 4 {
                set(
                    &file,
                    "security.capability",
                    &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                );
            }
            set_times(&file, 100 + f as i64);
        }
        fs::hard_link(dir.join("f1"), dir.join("linked")).unwrap();
        symlink("f1", dir.join("link")).unwrap();
        let pipe = dir.join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::from(0o640), 0).unwrap();
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(7));
        rustix::fs::chownat(CWD, dir.join("link"), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        set(&dir, "system.posix_acl_default", &list);
        set(&dir, "user.of_dir", b"1");
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        ["link", "pipe"].iter().for_each(|name| set_times(&dir.join(name), 50));
        set_times(&dir, 200);
    }
}

/// Files with holes of all kinds; the blocks of each.
fn make_holes(top: &Path) -> Vec<(PathBuf, u64)> {
    fs::create_dir(top).unwrap();
    let page = |n: u64| files::noise(n, PAGE);
    let make = |name: &str, length: u64, pages: &[u64]| {
        let path = top.join(name);
        let file = File::create(&path).unwrap();
        file.set_len(length).unwrap();
        pages.iter().for_each(|n| file.write_all_at(&page(*n), n * PAGE as u64).unwrap());
        (path, file)
    };
    let many: Vec<u64> = (0..1000).map(|n| 2 * n).collect();
    let all = [
        make("between", 40 << 20, &[0, 9000]),
        make("at_the_end", 20 << 20, &[0, 1, 2]),
        make("at_the_beginning", (4000 + 1) * PAGE as u64, &[4000]),
        make("only_a_hole", 30 << 20, &[]),
        make("many", 2000 * PAGE as u64, &many),
        make("punched", 200 * PAGE as u64, &(0..200).collect::<Vec<_>>()),
    ];
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&all[5].1, punch, 10 * PAGE as u64, 150 * PAGE as u64).unwrap();
    all.into_iter()
        .map(|(path, file)| {
            file.sync_all().unwrap();
            (path, file.metadata().unwrap().blocks())
        })
        .collect()
}

/// A set of two begins to get empty.
fn begin_to_empty_first_set(pool: &Pool) {
    pool.ok("volume set v cluster.rebalance-throttle fast");
    drain_set(pool, &BRICKS[..1], "start");
}

/// A set of two gets empty, as far as it can.
fn empty_first_set(pool: &Pool) -> u64 {
    begin_to_empty_first_set(pool);
    nothing_more_moves(pool)
}

/// Waits for that; how many files have moved.
fn nothing_more_moves(pool: &Pool) -> u64 {
    let status = eventually_within(LONG, "nothing more can move", || {
        let now = drain_set(pool, &BRICKS[..1], "status");
        (now["moved"]["none_can_move"] == true).then_some(now)
    });
    status["moved"]["files"].as_u64().unwrap()
}

fn volume_of_one_set() -> (Pool, Mounted) {
    let mut pool = Pool::new(2);
    pool.expect_errors(&["is not a brick"]);
    pool.volume("v", 1, &BRICKS[..1]);
    let mount = pool.mount("v");
    (pool, mount)
}

fn add_second_set(pool: &Pool) {
    pool.ok(&format!("volume add-brick v {}", words(pool, &BRICKS[1..])));
}

fn end(mut pool: Pool, mounts: Vec<Mounted>) {
    mounts.into_iter().for_each(Mounted::end);
    (0..2).for_each(|s| pool.stop(s));
    pool.paths(&BRICKS).iter().for_each(|brick| is_sound(brick));
}

#[test]
fn attributes_and_holes_go_along() {
    let (pool, mount) = volume_of_one_set();
    make_all(&mount.dir);
    let holes = make_holes(&mount.path("holes"));
    let before = whole(&mount.dir);
    add_second_set(&pool);
    let moved = empty_first_set(&pool);
    let shown = whole(&mount.dir);
    for (path, seen) in &before {
        assert_eq!(shown.get(path), Some(seen), "{path:?}");
    }
    assert_eq!(shown.len(), before.len());
    for (path, blocks) in holes {
        let now = fs::metadata(&path).unwrap().blocks();
        assert!(now <= blocks + 64, "{path:?}: {now} blocks, before {blocks}");
    }
    // Those of several names are not counted there.
    assert!(moved as usize >= MODES.len() * MODES.len(), "{moved} files moved");
    end(pool, vec![mount]);
}

/// Another mount changes everything of files that move, and knows what they are like at last.
#[test]
fn attributes_of_files_that_move_are_changed() {
    const FILES: u64 = 60;
    let (pool, mount) = volume_of_one_set();
    let other = pool.mount("v");
    let dir = other.path("d");
    fs::create_dir(&dir).unwrap();
    for f in 0..FILES {
        fs::write(dir.join(format!("f{f}")), files::noise(f, 200_000)).unwrap();
    }
    add_second_set(&pool);
    let stop = Arc::new(AtomicBool::new(false));
    let over = stop.clone();
    let changes = std::thread::spawn(move || {
        let mut known = BTreeMap::new();
        for round in 0.. {
            let (f, n) = (round % FILES, (round / FILES) as u32);
            let path = dir.join(format!("f{f}"));
            let (mode, id) = (0o600 | (n & 0o77), 1000 + n);
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&path, Some(id), Some(id + 1)).unwrap();
            rustix::fs::setxattr(&path, "user.round", &n.to_le_bytes(), XattrFlags::empty()).unwrap();
            let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(200_000 - u64::from(n)).unwrap();
            set_times(&path, 1000 + i64::from(n));
            known.insert(path.file_name().unwrap().to_owned(), (f, n, mode, id));
            if n > 3 && over.load(Ordering::Relaxed) {
                return known;
            }
        }
        unreachable!("rounds do not end")
    });
    begin_to_empty_first_set(&pool);
    // Each of them is changed more often than a move takes.
    let moved = eventually_within(LONG, "all move that are changed", || {
        let status = drain_set(&pool, &BRICKS[..1], "status");
        status["moved"]["files"].as_u64().filter(|files| *files >= FILES)
    });
    stop.store(true, Ordering::Relaxed);
    let known = changes.join().unwrap();
    assert_eq!(nothing_more_moves(&pool), moved);
    for (name, (f, n, mode, id)) in known {
        let path = mount.path("d").join(name);
        let meta = fs::metadata(&path).unwrap();
        let len = 200_000 - n as usize;
        assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (mode, id, id + 1), "{path:?}");
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (1000 + i64::from(n), 987_654_321), "{path:?}");
        assert!(fs::read(&path).unwrap() == files::noise(f, 200_000)[..len], "{path:?}");
        assert_eq!(xattrs(&path), [(b"user.round\0".to_vec(), n.to_le_bytes().to_vec())].into(), "{path:?}");
    }
    end(pool, vec![mount, other]);
}
