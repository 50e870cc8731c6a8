//! Directories that change the set which answers for them (docs/design/0018), as users and their programs meet it.

use crate::adopt::is_sound;
use crate::grow::words;
use crate::harness::{Disk, Mounted, Pool, eventually, eventually_within, files, tool};
use crate::moved_whole::{make_all, whole};
use crate::subdir::{connect, errno, find, name, object, works};
use disk_format::tag::{Tag, XATTR};
use ids::SetId;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, openat, renameat_with};
use rustix::io::Errno as Os;
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const OLD: [(usize, &str); 2] = [(0, "old/b"), (1, "old/b")];
const NEW: [(usize, &str); 2] = [(1, "new/b"), (2, "new/b")];
const ALL: [(usize, &str); 4] = [OLD[0], OLD[1], NEW[0], NEW[1]];
/// The set that is added.
const ADDED: SetId = SetId(2);
const LEAVES: usize = 200;
/// How fast directories move beside other tests is not at issue.
const LONG: Duration = Duration::from_secs(120);

/// A volume of one set whose disks are so full that all goes to another set that can, once there is one.
fn volume() -> Pool {
    let mut pool = Pool::new(3);
    for (server, brick) in ALL {
        let dir = pool.servers[server].path(brick.trim_end_matches("/b"));
        pool.disks.push(Disk::new("ext4", &dir, 512));
    }
    for disk in &pool.disks[..2] {
        tool(&format!("fallocate -l 250M {}", disk.dir.join("filler").display()));
    }
    pool.volume("v", 2, &OLD);
    pool
}

/// The volume gets the other set, and directories go there.
fn begin(pool: &Pool) {
    pool.ok("volume set v cluster.rebalance-throttle fast");
    pool.ok(&format!("volume add-brick v {}", words(pool, &NEW)));
    pool.ok("volume rebalance v start");
}

/// The set that answers for a directory, as a brick of the first one knows.
fn home(pool: &Pool, dir: &str) -> SetId {
    let mut value = [0; 256];
    let path = pool.paths(&OLD)[0].join(dir);
    let len = rustix::fs::lgetxattr(&path, XATTR, &mut value[..]).unwrap_or_else(|e| panic!("{dir}: {e}"));
    Tag::decode(&value[..len]).unwrap().home
}

fn has_gone(pool: &Pool, dir: &str) -> Option<()> {
    (home(pool, dir) == ADDED).then_some(())
}

fn await_gone(pool: &Pool, dir: &str) {
    eventually_within(LONG, &format!("{dir} goes to the new set"), || has_gone(pool, dir));
}

/// Directories that went, as status tells.
fn gone(pool: &Pool) -> u64 {
    pool.json("volume rebalance v status")["moved"]["directories"].as_u64().unwrap()
}

fn leaf(n: usize) -> String {
    format!("t{}/l{n}", n % 4)
}

/// Many directories with files of all kinds, some of which have names in two of them.
fn make_leaves(top: &Mounted, count: usize) {
    for n in 0..count {
        let dir = top.path(&leaf(n));
        fs::create_dir_all(&dir).unwrap();
        for f in 0..3 {
            fs::write(dir.join(format!("f{f}")), files::noise((n * 3 + f) as u64, 500 * f)).unwrap();
        }
        symlink("f1", dir.join("symbolic")).unwrap();
        fs::hard_link(dir.join("f1"), dir.join("again")).unwrap();
        if n >= 4 {
            fs::hard_link(dir.join("f2"), top.path(&leaf(n - 4)).join("of_next")).unwrap();
        }
    }
}

/// The inode number of each directory.
fn numbers(top: &Path) -> Vec<(PathBuf, u64)> {
    let tree = files::tree(top);
    let dirs = tree.into_iter().filter(|(_, seen)| seen.is_dir());
    dirs.map(|(path, _)| (path.clone(), fs::metadata(top.join(&path)).unwrap().ino())).collect()
}

/// A shell in a directory that makes, lists, renames and removes files there, until there is a file `stop` beside it.
fn shell(dir: &Path) -> Child {
    let script = "n=0; while [ ! -e ../stop ]; do n=$((n+1)); mkdir s && rmdir s && echo $n > a$n && mv a$n b$n && \
        ln b$n c$n && [ \"$(cat c$n)\" = $n ] && ls -l > /dev/null && rm b$n && chmod 600 c$n && rm c$n && \
        [ \"$(echo *)\" = kept ] && cd . && [ \"$(basename \"$(pwd -P)\")\" = \"$0\" ] || exit 1; done; echo $n";
    let mut command = Command::new("sh");
    command.args(["-c", script, dir.file_name().unwrap().to_str().unwrap()]).current_dir(dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// How often it went round, when it has ended.
fn rounds(shell: Child) -> u64 {
    let output = shell.wait_with_output().unwrap();
    assert!(output.status.success(), "a call of the shell failed");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

fn end(mut pool: Pool, mounts: Vec<Mounted>) {
    mounts.into_iter().for_each(Mounted::end);
    (0..3).for_each(|s| pool.stop(s));
    pool.paths(&ALL).iter().for_each(|brick| is_sound(brick));
}

/// All directories that can go do, and status counts them. Nobody sees a difference, with a handle of before neither.
#[test]
fn directories_go_to_a_new_set_and_look_the_same() {
    let pool = volume();
    let mount = pool.mount("v");
    make_leaves(&mount, LEAVES);
    make_all(&mount.path("t0"));
    let (before, inodes) = (whole(&mount.dir), numbers(&mount.dir));
    let open = File::open(mount.path(&leaf(7))).unwrap();
    begin(&pool);
    (0..LEAVES).for_each(|n| await_gone(&pool, &leaf(n)));
    let dirs: Vec<&str> = inodes.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    let went = || dirs.iter().filter(|dir| has_gone(&pool, dir).is_some()).count() as u64;
    eventually("status tells how many went", || (gone(&pool) == went()).then_some(()));
    assert!(went() >= LEAVES as u64 + 6, "{} of {}", went(), dirs.len());
    for top in 0..4 {
        assert_eq!(home(&pool, &format!("t{top}")), SetId(1), "it has directories");
    }
    let text = pool.ok("volume rebalance v status");
    assert!(text.contains(&format!("set 1: {} directories went to other sets", went())), "{text}");
    let other = pool.mount("v");
    for m in [&mount, &other] {
        let shown = whole(&m.dir);
        for (path, seen) in &before {
            assert_eq!(shown.get(path), Some(seen), "{path:?}");
        }
        assert_eq!(shown.len(), before.len());
        assert_eq!(numbers(&m.dir), inodes);
    }
    assert_eq!(open.metadata().unwrap().ino(), fs::metadata(mount.path(&leaf(7))).unwrap().ino());
    // What was made before they went is changed by either mount, and the other one sees it at once.
    works(&mount, &leaf(1), &other.path(&leaf(1)));
    works(&other, &leaf(2), &mount.path(&leaf(2)));
    let (from, to) = (mount.path(&leaf(3)), mount.path("t1/renamed"));
    fs::rename(&from, &to).unwrap();
    assert_eq!(files::names(&other.path("t1/renamed")).len(), 6);
    fs::rename(to.join("f0"), mount.path("t1/f0")).unwrap();
    fs::hard_link(mount.path("t1/f0"), to.join("back")).unwrap();
    assert_eq!(fs::metadata(other.path("t1/f0")).unwrap().nlink(), 2);
    fs::remove_dir_all(&to).unwrap();
    assert_eq!(errno(fs::metadata(other.path("t1/renamed"))), Some(Os::NOENT));
    (0..4).for_each(|top| fs::remove_dir_all(mount.path(&format!("t{top}"))).unwrap());
    assert_eq!(files::names(&other.dir), [""; 0]);
    drop(open);
    end(pool, vec![mount, other]);
}

/// A directory in which a shell works, and one in which a program has opened it.
struct Busy {
    shell: Child,
    open: OwnedFd,
}

impl Busy {
    fn begin(mount: &Mounted, n: usize) -> Busy {
        let [dir, held] = ["work", "held"].map(|kind| mount.path(&format!("busy/{kind}{n}")));
        fs::create_dir_all(&dir).unwrap();
        fs::create_dir(&held).unwrap();
        fs::write(dir.join("kept"), "x").unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let open = openat(CWD, &held, flags, Mode::empty()).unwrap();
        Busy { shell: shell(&dir), open }
    }

    /// What is done with nothing but the handle, and another mount sees it at once.
    fn use_handle(&self, other: &Path, round: usize) {
        let at = |name: &str| format!("{name}{round}");
        let (dir, flags) = (&self.open, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR);
        let file = File::from(openat(dir, at("a"), flags, Mode::from(0o600)).unwrap());
        file.write_all_at(b"content", 0).unwrap();
        renameat_with(dir, at("a"), dir, at("b"), RenameFlags::NOREPLACE).unwrap();
        assert_eq!(fs::read(other.join(at("b"))).unwrap(), b"content");
        fs::write(other.join(at("theirs")), "x").unwrap();
        let mut names: Vec<String> =
            rustix::fs::Dir::read_from(dir).unwrap().map(|e| e.unwrap()).map(named).collect();
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        assert_eq!(names, [at("b"), at("theirs")]);
        rustix::fs::unlinkat(dir, at("theirs"), rustix::fs::AtFlags::empty()).unwrap();
        assert_eq!(errno(fs::metadata(other.join(at("theirs")))), Some(Os::NOENT));
        fs::remove_file(other.join(at("b"))).unwrap();
        // It has no name by now.
        let mut back = [0; 7];
        file.read_exact_at(&mut back, 0).unwrap();
        assert_eq!(&back, b"content");
    }
}

fn named(entry: rustix::fs::DirEntry) -> String {
    entry.file_name().to_str().unwrap().to_owned()
}

/// Directories go while programs are at work in them, by two mounts; `meanwhile` is what happens to the servers, and how many
/// of the directories go. No call fails.
fn directories_go_that_are_in_use(quiet: usize, meanwhile: impl FnOnce(&mut Pool, &[String])) {
    const BUSY: usize = 4;
    let mut pool = volume();
    let (mount, other) = (pool.mount("v"), pool.mount("v"));
    make_leaves(&mount, quiet);
    let before = whole(&mount.dir);
    let busy: Vec<Busy> =
        (0..BUSY).map(|n| Busy::begin(if n % 2 == 0 { &mount } else { &other }, n)).collect();
    let dirs: Vec<String> = (0..BUSY)
        .flat_map(|n| [format!("busy/held{n}"), format!("busy/work{n}")])
        .chain((0..quiet).map(leaf))
        .collect();
    let over = AtomicBool::new(false);
    begin(&pool);
    let rounds_of_handles = std::thread::scope(|s| {
        let user = s.spawn(|| {
            let mut round = 0;
            while !over.load(Ordering::Relaxed) {
                for (n, busy) in busy.iter().enumerate() {
                    let theirs = if n % 2 == 0 { &other } else { &mount };
                    busy.use_handle(&theirs.path(&format!("busy/held{n}")), round);
                }
                round += 1;
            }
            round
        });
        meanwhile(&mut pool, &dirs);
        // They go on as they did before.
        std::thread::sleep(Duration::from_secs(1));
        over.store(true, Ordering::Relaxed);
        user.join().unwrap()
    });
    assert!(rounds_of_handles > 0);
    fs::write(mount.path("busy/stop"), "").unwrap();
    for Busy { shell, .. } in busy {
        assert!(rounds(shell) > 0);
    }
    fs::remove_dir_all(other.path("busy")).unwrap();
    for m in [&mount, &other] {
        let shown = whole(&m.dir);
        for (path, seen) in &before {
            assert_eq!(shown.get(path), Some(seen), "{path:?}");
        }
        assert_eq!(shown.len(), before.len());
    }
    end(pool, vec![mount, other]);
}

#[test]
fn programs_in_directories_that_go_notice_nothing() {
    directories_go_that_are_in_use(40, |pool, dirs| {
        dirs.iter().for_each(|dir| await_gone(pool, dir));
        eventually("status tells how many went", || (gone(pool) == dirs.len() as u64).then_some(()));
    });
}

#[test]
fn directories_go_while_servers_are_killed() {
    directories_go_that_are_in_use(160, |pool, dirs| {
        let went = |pool: &Pool| dirs.iter().filter(|dir| has_gone(pool, dir).is_some()).count();
        for (server, is_killed) in [(1, true), (2, true), (0, true), (0, false)] {
            let before = went(pool);
            let go_on = |now: usize| now > before + 2 || now == dirs.len();
            eventually_within(LONG, "some go", || go_on(went(pool)).then_some(()));
            if is_killed {
                pool.kill(server);
            } else {
                pool.stop(server);
            }
            std::thread::sleep(Duration::from_secs(1));
            pool.start(server);
            pool.wait_in_sync();
        }
        // One that could not go when servers were away stays for now.
        eventually_within(LONG, "most are gone", || (went(pool) * 4 > dirs.len() * 3).then_some(()));
    });
}

/// Keys for a directory that goes, for the one above it and for one that is made in it afterwards.
#[test]
fn keys_for_directories_follow_them() {
    let mut pool = volume();
    let all = pool.mount("v");
    for dir in ["p/leaf", "p/other", "o/leaf"] {
        fs::create_dir_all(all.path(dir)).unwrap();
        fs::write(all.path(dir).join("file"), dir).unwrap();
        fs::write(all.path(dir).join("held"), dir).unwrap();
    }
    let key = |name: &str, words: &str| pool.client_key(name, "v", words);
    let above = pool.mount_key("v", &key("above", "--subdir /p"));
    let own = pool.mount_key("v", &key("own", "--subdir /p/leaf"));
    let guest = connect(&pool, key("guest", "--subdir /p"));
    let trusted = connect(&pool, key("all", ""));
    let held = object(&guest, "leaf/file");
    let outside = object(&trusted, "o/leaf");
    let files = [above.path("leaf/held"), own.path("held"), above.path("other/held")];
    let open = |path: &PathBuf| File::options().read(true).write(true).open(path).unwrap();
    let open: Vec<File> = files.iter().map(open).collect();
    begin(&pool);
    ["p/leaf", "p/other", "o/leaf"].iter().for_each(|dir| await_gone(&pool, dir));
    // What a client knows of before is in its reach, and what is outside is not.
    assert_eq!(guest.getattr(held).map(|attr| attr.size), Ok(6));
    for at in [outside, client::Object { home: ADDED, ..outside }] {
        assert_eq!(guest.getattr(at).err(), Some(wire::Errno::ESTALE));
        assert_eq!(guest.lookup(at, &name("file")).err(), Some(wire::Errno::ESTALE));
        assert_eq!(guest.read_dir(at, 0, true).err(), Some(wire::Errno::ESTALE));
    }
    open.iter().for_each(|file| file.write_all_at(b"still", 0).unwrap());
    // A new primary hears by which names files are open.
    pool.kill(0);
    open.iter().for_each(|file| file.write_all_at(b"later", 0).unwrap());
    assert_eq!(fs::read(all.path("p/leaf/file")).unwrap(), b"p/leaf");
    pool.start(0);
    drop(open);
    pool.wait_in_sync();
    works(&above, "leaf", &all.path("p/leaf"));
    works(&own, "", &all.path("p/leaf"));
    works(&above, "other", &all.path("p/other"));
    // Between a directory that went and one that did not.
    works(&above, "", &all.path("p"));
    fs::rename(above.path("leaf/file"), above.path("moved")).unwrap();
    fs::hard_link(above.path("moved"), above.path("other/linked")).unwrap();
    fs::rename(above.path("moved"), above.path("leaf/file")).unwrap();
    assert_eq!(fs::read_to_string(own.path("file")).unwrap(), "p/leaf");
    fs::create_dir(own.path("deeper")).unwrap();
    fs::write(own.path("deeper/file"), "deeper").unwrap();
    // Keys that are made now, and mounts that are.
    let late = pool.mount_key("v", &pool.client_key("late", "v", "--subdir /p/leaf/deeper"));
    works(&late, "", &all.path("p/leaf/deeper"));
    let again = pool.mount_key("v", &pool.dir.join("own.key"));
    works(&again, "", &all.path("p/leaf"));
    // It leaves the key's directory, and comes back.
    fs::rename(all.path("p/leaf"), all.path("o/moved")).unwrap();
    let is_gone = || (find(&guest, "leaf").is_err() && guest.getattr(held).is_err()).then_some(());
    eventually("it is out of reach", is_gone);
    eventually("the other key goes with it", || fs::read_to_string(own.path("file")).ok());
    fs::rename(all.path("o/moved"), all.path("p/leaf")).unwrap();
    eventually("it is back", || find(&guest, "leaf/file").ok());
    drop((guest, trusted));
    end(pool, vec![all, above, own, late, again]);
}

/// A user's permissions are looked at by the sets that know the owners.
#[test]
fn a_squashed_mount_may_what_its_user_may_in_directories_that_went() {
    let pool = volume();
    let all = pool.mount("v");
    fs::set_permissions(all.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    for (dir, mode, owner) in
        [("mine", 0o755, 1000), ("open", 0o777, 0), ("sticky", 0o1777, 0), ("shut", 0o755, 0)]
    {
        fs::create_dir(all.path(dir)).unwrap();
        for (file, owner) in [("mine", 1000), ("theirs", 0)] {
            let path = all.path(dir).join(file);
            fs::write(&path, "x").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(&path, Some(owner), Some(owner)).unwrap();
        }
        std::os::unix::fs::chown(all.path(dir), Some(owner), Some(owner)).unwrap();
        fs::set_permissions(all.path(dir), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::create_dir(all.path("stays")).unwrap();
    std::os::unix::fs::chown(all.path("stays"), Some(1000), Some(1000)).unwrap();
    fs::create_dir(all.path("stays/in")).unwrap();
    let m = pool.mount_key("v", &pool.client_key("web", "v", "--squash 1000:1000"));
    let at = |path: &str| m.path(path);
    assert_eq!(fs::read(at("mine/mine")).unwrap(), b"x");
    begin(&pool);
    ["mine", "open", "sticky", "shut"].iter().for_each(|dir| await_gone(&pool, dir));
    assert_eq!(home(&pool, "stays"), SetId(1));
    for dir in ["mine", "open", "sticky", "shut"] {
        assert_eq!(fs::read(at(dir).join("mine")).unwrap(), b"x", "{dir}");
        assert_eq!(errno(fs::read(at(dir).join("theirs"))), Some(Os::ACCESS), "{dir}");
        let moved = fs::rename(at(dir).join("mine"), at("stays/moved"));
        assert_eq!(errno(moved), (dir == "shut").then_some(Os::ACCESS), "{dir}");
        if dir != "shut" {
            fs::hard_link(at("stays/moved"), at(dir).join("mine")).unwrap();
            fs::remove_file(at("stays/moved")).unwrap();
        }
        let removed = fs::remove_file(at(dir).join("theirs"));
        let why = [("shut", Os::ACCESS), ("sticky", Os::PERM)].into_iter().find(|(of, _)| *of == dir);
        assert_eq!(errno(removed), why.map(|(_, why)| why), "{dir}");
        let made = fs::write(at(dir).join("new"), "new");
        assert_eq!(errno(made), (dir == "shut").then_some(Os::ACCESS), "{dir}");
    }
    end(pool, vec![all, m]);
}

/// Threads that look at this end, also when the test fails.
struct EndsWork<'a>(&'a AtomicBool);

impl Drop for EndsWork<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Of two sets with as much room one has all directories that are used: some of them go to the other one, with their files, and
/// programs in them notice nothing.
#[test]
fn directories_of_a_busy_set_go_to_an_idle_one() {
    const FILES: usize = 20;
    let pool = Pool::new(2);
    let bricks = [(0, "a"), (1, "a")];
    pool.volume("v", 1, &bricks);
    let mount = pool.mount("v");
    let top = mount.path("top");
    fs::create_dir(&top).unwrap();
    // The first ones stay with their parent.
    let dirs: Vec<PathBuf> = (0..6).map(|n| top.join(format!("d{n}"))).collect();
    for (dir, n) in dirs.iter().flat_map(|dir| (0..FILES).map(move |n| (dir, n))) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join(format!("f{n}")), files::noise(n as u64, 1000)).unwrap();
    }
    // What lies where its directory does has its data there; names of another set's files are empty.
    let held = |brick: &Path| {
        let all = files::brick_tree(brick);
        all.iter().filter(|(path, seen)| path.starts_with("top") && !seen.content.is_empty()).count()
    };
    let paths = pool.paths(&bricks);
    let idle = usize::from(held(&paths[0]) > 0);
    assert_eq!(held(&paths[idle]), 0, "one set has them all");
    pool.ok("volume rebalance v start");
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for dir in &dirs {
            scope.spawn(|| {
                let path = dir.join("again and again");
                while !ends.load(Ordering::Relaxed) {
                    File::create_new(&path).unwrap();
                    fs::remove_file(&path).unwrap();
                }
            });
        }
        let _ends = EndsWork(&ends);
        eventually_within(LONG, "a directory goes", || (gone(&pool) > 0).then_some(()));
        eventually_within(LONG, "its files follow", || (held(&paths[idle]) >= FILES).then_some(()));
    });
    assert!(gone(&pool) < dirs.len() as u64, "the set does not give all of it away");
    for (dir, n) in dirs.iter().flat_map(|dir| (0..FILES).map(move |n| (dir, n))) {
        let content = fs::read(dir.join(format!("f{n}"))).unwrap();
        assert!(content == files::noise(n as u64, 1000), "{dir:?}, file {n}");
    }
    assert_eq!(fs::read_dir(&dirs[0]).unwrap().count(), FILES);
}
