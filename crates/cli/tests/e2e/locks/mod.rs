//! Locks of files: as on a local disk within a mount, and never in two mounts at once.

use crate::drain::{await_out, drain_set};
use crate::faults::all_in_sync;
use crate::grow::words;
use crate::harness::{Mounted, Pool, alone, eventually, tool};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const LOCKER: &str = include_str!("locker.py");

/// The script, and a directory that goes with it.
struct Script(PathBuf);

impl Script {
    fn new() -> Script {
        let dir = Path::new("/dev/shm").join(format!("mortar-locks-{}-{:p}", std::process::id(), &LOCKER));
        let dir = dir.with_extension(format!("{:?}", std::thread::current().id()).replace(['(', ')'], ""));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("locker.py"), LOCKER).unwrap();
        Script(dir)
    }

    fn run(&self, words: &str) {
        tool(&format!("python3 {} {words}", self.0.join("locker.py").display()));
    }

    /// A program that takes a lock; its answer.
    fn hold(&self, file: &Path, how: &str) -> (Holder, String) {
        let mut command = Command::new("python3");
        command.arg(self.0.join("locker.py")).arg("hold").arg(file).arg(how);
        Holder::begin(command)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A program that has a file open.
struct Holder {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Holder {
    /// Starts the program; the first line that it says.
    fn begin(mut command: Command) -> (Holder, String) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (orders, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut holder = Holder { child, orders, answers };
        let told = holder.answer();
        (holder, told)
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    fn tell(&mut self, order: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        self.answer()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.orders.take();
        self.child.wait().unwrap();
    }
}

fn with_two(test: impl FnOnce(&mut Pool, Mounted, Mounted, &Script)) {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let (one, two) = (pool.mount("v"), pool.mount("v"));
    for name in ["f", "g"] {
        fs::write(one.path(name), "").unwrap();
    }
    test(&mut pool, one, two, &Script::new());
}

/// Random locks of several processes are answered as by the kernel's own file system in memory.
#[test]
fn locks_are_those_of_a_local_disk() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let (mount, script) = (pool.mount("v"), Script::new());
    let (here, there) = (script.0.join("f"), mount.path("f"));
    for file in [&here, &there] {
        fs::write(file, "").unwrap();
    }
    for seed in 0..5 {
        script.run(&format!("compare {seed} 1500 {} {}", here.display(), there.display()));
    }
    mount.end();
}

#[test]
fn the_first_lock_of_a_new_volume_waits_for_nobody() {
    let _alone = alone();
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let (mount, script) = (pool.mount("v"), Script::new());
    fs::write(mount.path("f"), "").unwrap();
    let begun = Instant::now();
    assert_eq!(script.hold(&mount.path("f"), "fcntl").1, "ok");
    assert!(begun.elapsed() < Duration::from_secs(5), "nobody can have had locks: {:?}", begun.elapsed());
    mount.end();
}

#[test]
fn those_who_wait_for_locks_hold_up_nobody() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let (mount, script) = (pool.mount("v"), Script::new());
    fs::write(mount.path("f"), "").unwrap();
    script.run(&format!("waits {}", mount.path("f").display()));
    mount.end();
}

#[test]
fn one_mount_at_a_time_has_locks() {
    with_two(|_, one, two, script| {
        let (first, told) = script.hold(&one.path("f"), "fcntl");
        assert_eq!(told, "ok");
        for (file, how) in [("f", "fcntl"), ("f", "flock"), ("g", "fcntl"), ("g", "flock")] {
            assert_eq!(script.hold(&two.path(file), how).1, "ENOLCK", "{file} {how}");
        }
        assert!(two.log().contains("programs of another mount of the volume have locks"), "{}", two.log());
        let (second, told) = script.hold(&one.path("g"), "flock");
        assert_eq!(told, "ok", "the mount that has locks gives more");
        assert_eq!(script.hold(&one.path("g"), "flock").1, "EAGAIN");
        drop(first);
        assert_eq!(script.hold(&two.path("f"), "fcntl").1, "ENOLCK");
        drop(second);
        // A mount that has just dropped its last lock gives way while the other one waits.
        let (third, told) = script.hold(&two.path("f"), "flock");
        assert_eq!(told, "ok");
        assert_eq!(script.hold(&one.path("f"), "fcntl").1, "ENOLCK");
        drop(third);
        // One that ends gives way at once.
        assert_eq!(script.hold(&two.path("f"), "flock").1, "ok");
        two.end();
        assert_eq!(script.hold(&one.path("f"), "fcntl").1, "ok");
        one.end();
    });
}

#[test]
fn locks_outlive_servers() {
    with_two(|pool, one, two, script| {
        let (mut first, told) = script.hold(&one.path("f"), "fcntl");
        assert_eq!(told, "ok");
        for i in 0..3 {
            pool.kill(i);
            assert_eq!(script.hold(&one.path("f"), "fcntl").1, "EAGAIN", "after server {i}");
            assert_eq!(script.hold(&one.path("g"), "fcntl").1, "ok");
            assert_eq!(script.hold(&two.path("g"), "fcntl").1, "ENOLCK");
            assert_eq!(first.tell("x"), "ok");
            pool.start(i);
            pool.wait_in_sync();
        }
        drop(first);
        one.end();
        two.end();
    });
}

/// The kernel does not tell of each close of these open files.
#[test]
fn the_last_close_ends_a_lock_however_the_file_was_opened() {
    with_two(|_, one, two, script| {
        for (i, how) in ["x", "w", "r"].into_iter().enumerate() {
            let file = one.path(&format!("n{i}"));
            if how != "x" {
                fs::write(&file, "").unwrap();
            }
            let opened = format!(
                "import fcntl, sys; f = open(sys.argv[1], '{how}'); \
                                  fcntl.lockf(f, fcntl.LOCK_SH if '{how}' == 'r' else fcntl.LOCK_EX); \
                                  print('held', flush=True); sys.stdin.read()"
            );
            let mut command = Command::new("python3");
            command.args(["-c", &opened]).arg(&file);
            let (holder, told) = Holder::begin(command);
            assert_eq!(told, "held", "{how}");
            assert_eq!(script.hold(&file, "fcntl").1, "EAGAIN", "{how}");
            drop(holder);
            eventually("the lock goes with the process", || {
                (script.hold(&file, "fcntl").1 == "ok").then_some(())
            });
        }
        one.end();
        two.end();
    });
}

/// Files grow large while programs have locks on them, and go to another set, or get pieces there: nobody else gets the locks, also
/// after a kill of a server.
fn locks_stay_as_files_grow(striped: bool) {
    const FILES: usize = 6;
    let program = "import fcntl, os, sys; fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600); \
        (fcntl.lockf if sys.argv[2] == 'fcntl' else fcntl.flock)(fd, fcntl.LOCK_EX); print('held', flush=True); \
        [print(os.pwrite(fd, b'x' * (2 << 20), 0), flush=True) for line in sys.stdin]";
    let mut pool = Pool::new(2);
    let bricks = [(0, "a"), (1, "b")];
    pool.volume("v", 1, &bricks);
    pool.ok(&format!("volume set v cluster.stripe-count {}", if striped { 2 } else { 1 }));
    all_in_sync(&pool);
    let (mount, script) = (pool.mount("v"), Script::new());
    fs::create_dir(mount.path("d")).unwrap();
    let files: Vec<(PathBuf, &str)> =
        (0..FILES).map(|n| (mount.path(&format!("d/f{n}")), ["fcntl", "flock"][n % 2])).collect();
    let mut holders: Vec<Holder> = Vec::new();
    for (file, how) in &files {
        let mut command = Command::new("python3");
        command.args(["-c", program]).arg(file).arg(how);
        let (mut holder, told) = Holder::begin(command);
        assert_eq!(told, "held");
        assert_eq!(holder.tell("write"), (2 << 20).to_string());
        holders.push(holder);
    }
    let pieces = |brick: &PathBuf| {
        let all = fs::read_dir(brick.join(".mortar/orphans")).unwrap();
        all.filter(|e| e.as_ref().unwrap().metadata().is_ok_and(|m| m.len() > 1 << 16)).count()
    };
    let whole = |brick: &PathBuf| {
        let large = |n: &usize| fs::metadata(brick.join(format!("d/f{n}"))).is_ok_and(|m| m.len() > 1 << 20);
        (0..FILES).filter(large).count()
    };
    eventually("some of them are on either set, or parts of all", || {
        let brick = pool.paths(&bricks);
        let (there, parts): (Vec<usize>, Vec<usize>) = brick.iter().map(|b| (whole(b), pieces(b))).unzip();
        let spread = there.iter().all(|many| *many > 0) && there.iter().sum::<usize>() == FILES;
        let done = if striped { parts == [FILES, FILES] } else { spread && parts == [0, 0] };
        done.then_some(())
    });
    let others_wait = || files.iter().all(|(file, how)| script.hold(file, how).1 == "EAGAIN");
    assert!(others_wait());
    pool.kill(1);
    pool.start(1);
    pool.wait_in_sync();
    assert!(others_wait(), "after a kill");
    assert!(holders.iter_mut().all(|holder| holder.tell("write") == (2 << 20).to_string()));
    drop(holders);
    assert!(files.iter().all(|(file, how)| script.hold(file, how).1 == "ok"));
    mount.end();
}

#[test]
fn locks_stay_when_files_go_to_another_set() {
    locks_stay_as_files_grow(false);
}

#[test]
fn locks_stay_when_files_become_striped() {
    locks_stay_as_files_grow(true);
}

/// Files that programs have locks on, or have mapped, stay on a set that is emptied, and go along with its bricks: nobody else gets
/// the locks meanwhile, nor afterwards, and what is written shows in another mount.
#[test]
fn locks_stay_when_their_set_is_emptied() {
    const MAPPED: &str = "import mmap, os, sys; fd = os.open(sys.argv[1], os.O_RDWR); m = mmap.mmap(fd, 8); os.close(fd); \
        print('mapped', flush=True); \
        [print(m.__setitem__(slice(0, 8), l.strip().encode()) or m.flush() or 'ok', flush=True) for l in sys.stdin]";
    const DIRS: usize = 6;
    let mut pool = Pool::new(3);
    pool.expect_errors(&["is not a brick"]);
    let bricks = [(0, "a"), (1, "b")];
    pool.volume("v", 1, &bricks[..1]);
    let (one, two, script) = (pool.mount("v"), pool.mount("v"), Script::new());
    for d in 0..DIRS {
        fs::create_dir(one.path(&format!("d{d}"))).unwrap();
        for name in ["locked", "mapped", "f0", "f1", "f2"] {
            fs::write(one.path(&format!("d{d}/{name}")), "unchanged").unwrap();
        }
    }
    let locked: Vec<(String, &str)> =
        (0..DIRS).map(|d| (format!("d{d}/locked"), ["fcntl", "flock"][d % 2])).collect();
    let mut holders: Vec<Holder> = Vec::new();
    for (file, how) in &locked {
        let (holder, told) = script.hold(&one.path(file), how);
        assert_eq!(told, "ok");
        holders.push(holder);
    }
    let mut command = Command::new("python3");
    command.args(["-c", MAPPED]).arg(two.path("d0/mapped"));
    let (mut mapper, told) = Holder::begin(command);
    assert_eq!(told, "mapped");
    pool.ok(&format!("volume add-brick v {}", words(&pool, &bricks[1..])));
    pool.ok("volume set v cluster.rebalance-throttle fast");
    drain_set(&pool, &bricks[..1], "start");
    let others_wait = |when: &str| {
        for (file, how) in &locked {
            assert_eq!(script.hold(&one.path(file), how).1, "EAGAIN", "{file} {when}");
        }
        assert_eq!(script.hold(&two.path(&locked[0].0), locked[0].1).1, "ENOLCK", "{when}");
    };
    let mut write = |holders: &mut [Holder], text: &str| {
        assert!(holders.iter_mut().all(|holder| holder.tell(text) == "ok"));
        locked
            .iter()
            .for_each(|(file, _)| assert!(fs::read_to_string(two.path(file)).unwrap().starts_with(text)));
        assert_eq!(mapper.tell(&format!("mapped{text:.2}")), "ok");
        assert_eq!(fs::read_to_string(one.path("d0/mapped")).unwrap(), format!("mapped{text:.2}d"));
    };
    others_wait("as files move");
    let of_set = || drain_set(&pool, &bricks[..1], "status")["moved"].clone();
    eventually("nothing more can move", || (of_set()["none_can_move"] == true).then_some(()));
    let moved = of_set()["files"].as_u64().unwrap();
    assert_eq!(moved as usize, 4 * DIRS - 1, "all move but what is locked or mapped");
    others_wait("after others have moved");
    write(&mut holders, "emptied");
    drain_set(&pool, &bricks[..1], "commit");
    await_out(&pool, &[pool.servers[0].brick("a")]);
    others_wait("after the bricks have gone");
    pool.kill(0);
    write(&mut holders, "gone");
    others_wait("after the server has gone");
    pool.start(0);
    drop(holders);
    drop(mapper);
    for (file, how) in &locked {
        assert_eq!(script.hold(&one.path(file), how).1, "ok", "{file}");
    }
    one.end();
    two.end();
}

/// A mount that was cut off for so long that another one has got the right to grant locks.
#[test]
fn lost_locks_are_told_by_eio() {
    with_two(|_, one, two, script| {
        let (mut first, told) = script.hold(&one.path("f"), "fcntl");
        assert_eq!(told, "ok");
        one.freeze();
        let begun = Instant::now();
        let mut second = eventually("the other mount may grant locks", || {
            let (holder, told) = script.hold(&two.path("f"), "fcntl");
            if told == "ok" {
                return Some(holder);
            }
            assert_eq!(told, "ENOLCK");
            drop(holder);
            None
        });
        assert!(begun.elapsed() > Duration::from_secs(15), "{:?}", begun.elapsed());
        one.thaw();
        assert_eq!(first.tell("mine"), "EIO");
        assert_eq!(second.tell("other"), "ok");
        assert!(one.log().contains("locks are lost"), "{}", one.log());
        drop(first);
        let (mut third, told) = script.hold(&one.path("f"), "fcntl");
        assert_eq!((told.as_str(), third.tell("x").as_str()), ("ENOLCK", "ok"));
        drop(second);
        assert_eq!(third.tell("fcntl"), "ok");
        drop(third);
        one.end();
        two.end();
    });
}
