//! Directories that live on another set than their parent get other names (docs/design/0005): the set of the parent renames the
//! entry, the directory stays where it is.

use crate::harness::{Mounted, Pool, eventually, eventually_ok, files, mortar, run};
use crate::sets::{sets, spread};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const BRICKS: [(usize, &str); 4] = [(0, "b1"), (1, "b1"), (1, "b2"), (2, "b2")];

/// A volume of two sets, with directories at its top: of the root's set, and of the other one.
struct Rig {
    pool: Pool,
    near: String,
    far: Vec<String>,
}

impl Rig {
    fn new() -> Rig {
        let pool = Pool::new(3);
        pool.volume("v", 2, &BRICKS);
        let mount = pool.mount("v");
        let sets = sets(&pool, &BRICKS);
        let mut homes = spread(&sets, &mount);
        let near = homes.iter().find(|(_, on)| **on == 0).unwrap().0.clone();
        let far = eventually("three directories live on the other set", || {
            let far: Vec<String> = homes.iter().filter(|(_, on)| **on == 1).map(|(d, _)| d.clone()).collect();
            if far.len() >= 3 {
                return Some(far);
            }
            let dir = format!("more{}", homes.len());
            fs::create_dir(mount.path(&dir)).unwrap();
            fs::write(mount.path(&dir).join("probe"), "x").unwrap();
            let there = sets[1][0].join(&dir).join("probe").exists();
            fs::remove_file(mount.path(&dir).join("probe")).unwrap();
            homes.insert(dir, usize::from(there));
            None
        });
        mount.end();
        Rig { pool, near, far }
    }

    /// The bricks of each set come to have the same files, and `mortar brick check` finds nothing wrong.
    fn assert_sound(mut self) {
        let bricks: Vec<PathBuf> = self.pool.paths(&BRICKS);
        for pair in bricks.chunks(2) {
            eventually_ok("the bricks of a set have the same files", || {
                let all = |brick: &PathBuf| {
                    let tree = files::tree(brick).into_iter();
                    tree.map(|(path, seen)| (path, seen.kind, seen.content)).collect::<Vec<_>>()
                };
                let (one, other) = (all(&pair[0]), all(&pair[1]));
                if one == other { Ok(()) } else { Err(format!("{one:?} and {other:?}")) }
            });
        }
        (0..self.pool.servers.len()).for_each(|i| self.pool.stop(i));
        for brick in &bricks {
            let mut command = mortar();
            command.args(["brick", "check"]).arg(brick);
            let output = run(command);
            assert_eq!(output.code, Some(0), "{}: {output:?}", brick.display());
        }
    }
}

fn failed<T>(result: io::Result<T>, errno: Errno) -> bool {
    result.err().and_then(|e| e.raw_os_error()) == Some(errno.raw_os_error())
}

#[test]
fn a_directory_that_lives_elsewhere_gets_other_names() {
    let rig = Rig::new();
    let (one, two) = (rig.pool.mount("v"), rig.pool.mount("v"));
    let at = |path: &str| one.path(path);
    let sees = |path: &str, content: &str| {
        let seen = fs::read_to_string(two.path(path)).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(seen, content, "{path}");
    };
    let (near, [first, second, third]) = (&rig.near, [&rig.far[0], &rig.far[1], &rig.far[2]]);
    let mut open = fs::File::create(at(first).join("open")).unwrap();
    fs::write(at(first).join("in"), "in").unwrap();

    fs::rename(at(first), at("moved")).unwrap();
    sees("moved/in", "in");
    assert!(failed(fs::metadata(two.path(first)), Errno::NOENT));
    open.write_all(b"still open").unwrap();
    sees("moved/open", "still open");
    eventually_ok("it lies at its path on its bricks too", || {
        fs::metadata(rig.pool.paths(&BRICKS)[2].join("moved/in")).map(drop).map_err(|e| e.to_string())
    });

    // Into another directory of the root's set, and what is in it moves with it.
    let deep = format!("{near}/deep");
    fs::create_dir(at(&deep)).unwrap();
    fs::create_dir_all(at("moved/a/b")).unwrap();
    fs::rename(at("moved"), at(&deep).join("x")).unwrap();
    fs::rename(at(&deep).join("x/a/b"), at(&deep).join("x/b")).unwrap();
    sees(&format!("{deep}/x/in"), "in");
    assert!(failed(fs::rename(at(near), at(&deep).join("x/b/y")), Errno::INVAL), "beneath itself");

    // What gives way has to be empty.
    fs::write(two.path(second).join("in"), "second").unwrap();
    assert!(failed(fs::rename(at(&deep).join("x"), at(second)), Errno::NOTEMPTY));
    fs::remove_file(two.path(second).join("in")).unwrap();
    fs::rename(at(&deep).join("x"), at(second)).unwrap();
    sees(&format!("{second}/in"), "in");
    fs::rename(at(&deep), at(third)).unwrap();
    assert!(fs::read_dir(two.path(third)).unwrap().next().is_none());

    let (a, b) = (at(second), at(near));
    assert_eq!(renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE), Err(Errno::EXIST));
    renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE).unwrap();
    sees(&format!("{near}/open"), "still open");
    assert!(failed(fs::metadata(two.path(second).join("in")), Errno::NOENT));
    drop(open);
    one.end();
    two.end();
    rig.assert_sound();
}

/// Moves a directory between the top and another directory, with one more file in it each time.
fn work(mount: &Mounted, dir: &str, near: &str, done: &AtomicUsize, over: &AtomicBool) -> usize {
    let (home, away) = (mount.path(dir), mount.path(near).join(dir));
    for n in 0.. {
        let (from, to) = if n % 2 == 0 { (&home, &away) } else { (&away, &home) };
        if n % 2 == 0 && n >= 20 && over.load(Ordering::Relaxed) {
            return n;
        }
        fs::write(from.join(format!("f{n}")), format!("{n}")).unwrap();
        fs::rename(from, to).unwrap_or_else(|e| panic!("{} to {}: {e}", from.display(), to.display()));
        assert!(failed(fs::metadata(from), Errno::NOENT), "{} is there still", from.display());
        done.fetch_add(1, Ordering::Relaxed);
    }
    0
}

#[test]
fn servers_are_killed_in_the_midst_of_renames_of_directories() {
    let mut rig = Rig::new();
    let mounts = [rig.pool.mount("v"), rig.pool.mount("v")];
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let goes_on = |what: &str, more: usize| {
        let before = done.load(Ordering::Relaxed);
        eventually(what, || (done.load(Ordering::Relaxed) > before + more).then_some(()));
    };
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let (done, over, near) = (&done, &over, &rig.near);
        let work = |mount, dir| scope.spawn(move || work(mount, dir, near, done, over));
        let threads: Vec<_> = mounts.iter().zip(&rig.far).map(|(mount, dir)| work(mount, dir)).collect();
        for server in [1, 0, 2] {
            goes_on("work goes on", 6);
            rig.pool.kill(server);
            goes_on("work goes on without a server", 4);
            rig.pool.start(server);
            eventually("all bricks are in sync", || {
                let status = rig.pool.status("v");
                let bricks = status["bricks"].as_array()?;
                bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
            });
        }
        over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    println!("{counts:?} renames");
    let seen = rig.pool.mount("v");
    for (dir, count) in rig.far.iter().zip(counts) {
        let there = files::names(&seen.path(dir));
        assert_eq!(there.len(), count, "{dir}: {there:?}");
        assert!((0..count).all(|n| there.contains(&format!("f{n}"))), "{dir}: {there:?}");
    }
    mounts.into_iter().chain([seen]).for_each(Mounted::end);
    rig.assert_sound();
}
