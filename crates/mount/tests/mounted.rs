//! The whole mount against the real kernel and a server in this process. Needs /dev/fuse; skipped without.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

#[path = "../../client/tests/fake/mod.rs"]
#[allow(dead_code, reason = "tests of the client use all of it")]
mod fake;
mod tree;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fake::{Fake, map};
use mount::{Failure, MountOptions, Options, Stop};
use rustix::fs::XattrFlags;
use tree::Tree;
use wire::{Call, Op};

struct Guard {
    dir: PathBuf,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
    tree: Arc<Tree>,
    server: Arc<Fake>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.force(Duration::ZERO).unwrap();
        self.thread.take().unwrap().join().unwrap();
        fs::remove_dir(&self.dir).unwrap();
    }
}

fn server() -> (Arc<Tree>, Arc<Fake>) {
    let tree = Arc::new(Tree::new());
    let script = Arc::clone(&tree);
    let server = Fake::start(1, move |call, payload| script.serve(call, payload));
    server.push(&map(1, &[(1, 1, Some(1))], &[&server]));
    (tree, Arc::new(server))
}

fn try_mount(server: &(Arc<Tree>, Arc<Fake>), subdir: &str, words: &str) -> Option<Result<Guard, Failure>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if let Err(e) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        println!("skipped: /dev/fuse: {e}");
        return None;
    }
    let (tree, server) = server.clone();
    let dir = format!("mortar-mount-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
    let dir = std::env::temp_dir().join(dir);
    fs::create_dir(&dir).unwrap();
    let source = mount::source::parse(&format!("{}:/vol{subdir}", server.address)).unwrap();
    let mut options = Options::default();
    options.apply(words).unwrap();
    let mounted = match mount::mount(MountOptions { source, dir: dir.clone(), options }) {
        Ok(mounted) => mounted,
        Err(e) => {
            fs::remove_dir(&dir).unwrap();
            return Some(Err(e));
        }
    };
    let stop = mounted.stop_handle();
    let (send, ready) = mpsc::channel();
    let thread = std::thread::spawn(move || mounted.run(move || send.send(()).unwrap()).unwrap());
    ready.recv_timeout(Duration::from_secs(10)).unwrap();
    Some(Ok(Guard { dir, stop, thread: Some(thread), tree, server }))
}

fn mount() -> Option<Guard> {
    try_mount(&server(), "", "_netdev").map(|m| m.unwrap_or_else(|e| panic!("{e}")))
}

fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn names(dir: &Path) -> Vec<String> {
    let mut all: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn files_of_all_sizes_and_kinds() {
    let Some(m) = mount() else { return };
    let at = |name: &str| m.dir.join(name);
    for size in [0, 1, 4097, (3 << 20) + 5] {
        let data: Vec<u8> = (0..size).map(|i: usize| (i / 5) as u8).collect();
        fs::write(at("f"), &data).unwrap();
        assert!(fs::read(at("f")).unwrap() == data, "{size}");
        assert_eq!(fs::metadata(at("f")).unwrap().len(), size as u64);
    }
    let mut f = OpenOptions::new().append(true).open(at("f")).unwrap();
    f.set_len(3).unwrap();
    f.write_all(b"xyz").unwrap();
    f.sync_all().unwrap();
    assert_eq!(fs::read(at("f")).unwrap()[3..], *b"xyz");
    assert_eq!(File::create_new(at("f")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(
        OpenOptions::new().write(true).truncate(true).open(at("f")).unwrap().metadata().unwrap().len(),
        0
    );
    fs::create_dir(at("d")).unwrap();
    fs::hard_link(at("f"), at("d/hard")).unwrap();
    symlink("d/hard", at("soft")).unwrap();
    assert_eq!(fs::metadata(at("soft")).unwrap().nlink(), 2);
    fs::rename(at("d/hard"), at("moved")).unwrap();
    fs::set_permissions(at("moved"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(at("f")).unwrap().mode() & 0o7777, 0o640);
    let time = std::time::UNIX_EPOCH + Duration::from_nanos(1_234_567_891_234_567_891);
    File::options().write(true).open(at("f")).unwrap().set_modified(time).unwrap();
    assert_eq!(fs::metadata(at("f")).unwrap().modified().unwrap(), time);
    assert_eq!(fs::remove_dir(at("d/none")).unwrap_err().kind(), ErrorKind::NotFound);
    fs::remove_dir(at("d")).unwrap();
    assert_eq!(names(&m.dir), ["f", "moved", "soft"]);
    assert_eq!(fs::metadata(&m.dir).unwrap().ino(), 1);
    let room = rustix::fs::statvfs(&m.dir).unwrap();
    assert_eq!((room.f_blocks * room.f_frsize, room.f_namemax), (1 << 40, 255));
    let mut buf = [0; 16];
    rustix::fs::setxattr(at("f"), "user.a", b"12345", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr(at("f"), "user.a", &mut buf), Ok(5));
    assert_eq!(rustix::fs::listxattr(at("f"), &mut buf[..]), Ok(7));
    rustix::fs::removexattr(at("f"), "user.a").unwrap();
    assert_eq!(rustix::fs::getxattr(at("f"), "user.a", &mut buf), Err(rustix::io::Errno::NODATA));
    drop(f);
    wait_until("all is released", || m.tree.count().1 == 0);
}

/// Another mount has removed the file before the answer came. The kernel would take it for an error if it were of another kind.
#[test]
fn a_link_whose_file_is_gone_by_then_was_made() {
    let Some(m) = mount() else { return };
    let at = |name: &str| m.dir.join(name);
    fs::write(at("file"), b"data").unwrap();
    symlink("there", at("soft")).unwrap();
    for name in ["file", "soft"] {
        fs::hard_link(at(name), at(str::from_utf8(tree::GONE).unwrap())).unwrap();
    }
}

#[test]
fn small_files_take_few_calls() {
    let Some(m) = mount() else { return };
    let before = m.server.calls().len();
    for i in 0..10 {
        let mut f = File::create_new(m.dir.join(format!("f{i}"))).unwrap();
        (0..5).for_each(|_| f.write_all(b"some data").unwrap());
    }
    wait_until("all is released", || m.tree.count().1 == 0);
    let calls = m.server.calls().split_off(before);
    let count = |what: fn(&Op) -> bool| calls.iter().filter(|c| what(&c.op)).count();
    assert_eq!(count(|op| matches!(op, Op::Write { .. })), 50);
    let sought =
        calls.iter().filter_map(|c| if let Op::GetXattr { name, .. } = &c.op { Some(name) } else { None });
    let sought: Vec<_> = sought.collect();
    let capability = sought.iter().filter(|n| n.as_bytes() == b"security.capability").count();
    assert_eq!(capability, 0, "no capability is sought before a write: {sought:?}");
    // Per file: lookup, create, release; and attributes, which the kernel may not keep (directory twice, file once).
    // A security module of the machine may read an extended attribute of its own as a file is opened, and has its
    // attributes read again.
    let asked = |c: &&Call| !matches!(c.op, Op::Write { .. } | Op::GetXattr { .. });
    let others: Vec<_> = calls.iter().filter(asked).map(|c| c.op.name()).collect();
    assert!(others.len() <= 10 * 6 + sought.len(), "{others:?}");
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let Some(m) = mount() else { return };
    let path = m.dir.join("f");
    let mut f = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    f.write_all(b"still here").unwrap();
    f.set_len(5).unwrap();
    let mut buf = [0; 5];
    f.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!((&buf, f.metadata().unwrap().nlink()), (b"still", 0));
    assert_eq!(m.tree.count(), (2, 1));
    drop(f);
    wait_until("the set hears of the close", || m.tree.count() == (1, 0));
}

#[test]
fn long_listings_with_and_without_attributes() {
    let Some(m) = mount() else { return };
    let mut made: Vec<String> = (0..1500).map(|i| format!("a-name-of-some-length-{i}")).collect();
    made.iter().for_each(|n| fs::write(m.dir.join(n), n).unwrap());
    made.sort();
    assert!(names(&m.dir) == made);
    let sizes: u64 = fs::read_dir(&m.dir).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(sizes, made.iter().map(|n| n.len() as u64).sum());
    // A listing that began after a change shows it.
    fs::remove_file(m.dir.join(made.pop().unwrap())).unwrap();
    fs::write(m.dir.join("zzz"), "").unwrap();
    made.push("zzz".to_owned());
    assert!(names(&m.dir) == made);
    made.iter().for_each(|n| fs::remove_file(m.dir.join(n)).unwrap());
    assert!(names(&m.dir).is_empty());
}

#[test]
fn two_mounts_see_one_truth() {
    let s = server();
    let Some(a) = try_mount(&s, "", "fsname=first") else { return };
    let a = a.unwrap_or_else(|e| panic!("{e}"));
    fs::create_dir_all(a.dir.join("x/y")).unwrap();
    let b = try_mount(&s, "/x/y", "").unwrap().unwrap_or_else(|e| panic!("{e}"));
    fs::write(a.dir.join("x/y/f"), "one").unwrap();
    let mut open = File::open(b.dir.join("f")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one");
    for i in 0..20 {
        fs::write(a.dir.join("x/y/f"), format!("{i:04}")).unwrap();
        let mut buf = [0; 4];
        open.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!(buf, format!("{i:04}").as_bytes());
        fs::write(b.dir.join(format!("g{i}")), "").unwrap();
        assert_eq!(names(&a.dir.join("x/y")).len(), 2 + i);
    }
    fs::remove_file(b.dir.join("f")).unwrap();
    assert_eq!(fs::metadata(a.dir.join("x/y/f")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(open.metadata().unwrap().nlink(), 0);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(table.lines().any(|l| l.contains(" fuse.mortar first ")), "{table}");
    let e = try_mount(&s, "/x/none", "").unwrap().map(|_| ()).unwrap_err().to_string();
    assert!(e.starts_with("directory /x/none of volume vol: no such file"), "{e}");
    assert!(s.0.count().0 > 20);
}

#[test]
fn read_only_and_direct() {
    let s = server();
    let Some(a) = try_mount(&s, "", "") else { return };
    let a = a.unwrap_or_else(|e| panic!("{e}"));
    let f = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT)
        .open(a.dir.join("f"))
        .unwrap();
    f.write_all_at(&[7; 8192], 0).unwrap();
    let mut buf = vec![0; 10000];
    assert_eq!(f.read_at(&mut buf, 100).unwrap(), 8092);
    let b = try_mount(&s, "", "ro").unwrap().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(fs::read(b.dir.join("f")).unwrap().len(), 8192);
    assert_eq!(fs::write(b.dir.join("g"), "").unwrap_err().raw_os_error(), Some(libc::EROFS));
}

#[test]
fn a_pause_of_the_set_is_not_seen_and_the_killed_die() {
    let Some(m) = mount() else { return };
    let path = m.dir.join("f");
    fs::write(&path, "before").unwrap();
    m.server.push(&map(2, &[(1, 2, None)], &[&m.server]));
    let copied = m.dir.join("g");
    let copier = std::thread::spawn(move || fs::copy(path, &copied).and_then(|_| fs::read(copied)));
    // Others than the one who waits are served, and whoever is killed goes.
    let mut killed = std::process::Command::new("mkdir").arg(m.dir.join("d")).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(killed.try_wait().unwrap().is_none());
    killed.kill().unwrap();
    wait_until("mkdir dies", || killed.try_wait().unwrap().is_some());
    assert!(!copier.is_finished());
    m.server.push(&map(3, &[(1, 3, Some(1))], &[&m.server]));
    assert_eq!(copier.join().unwrap().unwrap(), b"before");
}
