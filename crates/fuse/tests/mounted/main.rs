//! The layer against the real kernel: mounts a file system in memory.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod guard;
mod memfs;
mod threads;

use std::fs;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuse::{
    Errno, Filesystem, InitConfig, Kernel, Mount, MountError, MountOptions, ROOT, Session, SessionConfig,
    Unmount,
};
use guard::{is_mounted, mount, mount_as, mount_with, temp_dir};
use memfs::LONG;
use rustix::fs::{FlockOperation, XattrFlags};

#[test]
fn files_and_directories() {
    let Some(m) = mount() else { return };
    for size in [0, 1, 2, 3, 4096, 100_003, (1 << 20) + 1, 5 << 20] {
        let data: Vec<u8> = (0..size).map(|i: usize| (i / 7) as u8).collect();
        fs::write(m.at("file"), &data).unwrap();
        assert!(fs::read(m.at("file")).unwrap() == data, "{size} bytes come back");
    }
    let mut file = fs::File::options().read(true).write(true).open(m.at("file")).unwrap();
    file.set_len(10).unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    file.write_all(b"abc").unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    let mut text = String::new();
    file.take(3).read_to_string(&mut text).unwrap();
    assert_eq!((&*text, fs::metadata(m.at("file")).unwrap().len()), ("abc", 10));
    fs::create_dir(m.at("dir")).unwrap();
    fs::rename(m.at("file"), m.at("dir/moved")).unwrap();
    assert_eq!(fs::metadata(m.at("file")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::metadata(m.at("dir/moved")).unwrap().len(), 10);
    std::os::unix::fs::symlink("dir/moved", m.at("link")).unwrap();
    assert_eq!(fs::read_link(m.at("link")).unwrap().to_str(), Some("dir/moved"));
    assert_eq!(fs::read(m.at("link")).unwrap().len(), 10);
    fs::remove_file(m.at("dir/moved")).unwrap();
    fs::remove_dir(m.at("dir")).unwrap();
    let long = fs::metadata(m.at(&"x".repeat(256))).unwrap_err();
    assert_eq!(long.raw_os_error(), Some(libc::ENAMETOOLONG));
    // The kernel's translation of ENOSYS to LINK.
    assert_eq!(fs::hard_link(m.at("link"), m.at("other")).unwrap_err().raw_os_error(), Some(libc::EPERM));
}

#[test]
fn a_directory_of_thousands_is_listed_once() {
    let Some(m) = mount() else { return };
    let mut names: Vec<String> = (0..3000).map(|i| format!("a-rather-long-name-{i}")).collect();
    for name in &names {
        m.fs.add_file(name);
    }
    let mut listed: Vec<String> = Vec::new();
    for entry in fs::read_dir(&m.path).unwrap() {
        listed.push(entry.unwrap().file_name().into_string().unwrap());
    }
    names.sort();
    listed.sort();
    assert!(names == listed);
}

#[test]
fn extended_attributes() {
    let Some(m) = mount() else { return };
    fs::write(m.at("f"), "").unwrap();
    let mut buf = [0_u8; 64];
    rustix::fs::setxattr(m.at("f"), "user.a", b"12345", XattrFlags::empty()).unwrap();
    rustix::fs::setxattr(m.at("f"), "user.b", b"", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::getxattr(m.at("f"), "user.a", &mut buf), Ok(5));
    assert_eq!(&buf[..5], b"12345");
    assert_eq!(rustix::fs::getxattr_query(m.at("f"), "user.a"), Ok(5));
    assert_eq!(rustix::fs::getxattr(m.at("f"), "user.a", &mut [0_u8; 2]), Err(rustix::io::Errno::RANGE));
    let len = rustix::fs::listxattr(m.at("f"), &mut buf).unwrap();
    assert_eq!(&buf[..len], b"user.a\0user.b\0");
    rustix::fs::removexattr(m.at("f"), "user.a").unwrap();
    assert_eq!(rustix::fs::getxattr(m.at("f"), "user.a", &mut buf), Err(rustix::io::Errno::NODATA));
}

#[test]
fn flock_and_fcntl_are_told_apart() {
    let Some(m) = mount() else { return };
    let file = fs::File::create(m.at("f")).unwrap();
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!((m.fs.seen.flocks.load(Ordering::SeqCst), m.fs.seen.fcntls.load(Ordering::SeqCst)), (1, 0));
    rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!((m.fs.seen.flocks.load(Ordering::SeqCst), m.fs.seen.fcntls.load(Ordering::SeqCst)), (1, 1));
}

/// Starts a command that blocks inside the file system, and kills it there.
fn kill_blocked(m: &guard::Mounted, command: &mut Command, signal: rustix::process::Signal) {
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    let _call = m.fs.take_calls(1);
    let (before, start) = (m.fs.seen.interrupted.load(Ordering::SeqCst), Instant::now());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal).unwrap();
    assert!(!child.wait().unwrap().success());
    assert!(start.elapsed() < Duration::from_secs(2), "killed after {:?}", start.elapsed());
    assert_eq!(m.fs.seen.interrupted.load(Ordering::SeqCst), before + 1);
}

/// The program hears of the signal also where whoever started the tests ignores it (`nohup cargo test &`).
fn unignoring(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", program]);
    command
}

#[test]
fn signals_interrupt_blocked_requests() {
    use rustix::process::Signal;
    let Some(m) = mount() else { return };
    fs::write(m.at("f"), "block").unwrap();
    for signal in [Signal::TERM, Signal::KILL, Signal::INT] {
        kill_blocked(&m, unignoring("cat").arg(m.at("f")), signal);
        kill_blocked(&m, unignoring("flock").arg(m.at("f")).arg("true"), signal);
        kill_blocked(&m, unignoring("stat").arg(m.at("slow")), signal);
    }
    // Still well.
    fs::write(m.at("g"), "fine").unwrap();
    assert_eq!(fs::read(m.at("g")).unwrap(), b"fine");
}

#[test]
fn notifications_drop_what_the_kernel_caches() {
    let Some(m) = mount_with(LONG, SessionConfig::default()) else { return };
    let ino = m.fs.add_file("f");
    let len = || fs::metadata(m.at("f")).unwrap().len();
    assert_eq!(len(), 0);
    m.fs.set_data(ino, b"12345");
    assert_eq!(len(), 0, "cached");
    m.notifier.inval_inode(ino, 0, 0).unwrap();
    assert_eq!(len(), 5);
    assert!(!m.at("g").exists());
    m.fs.add_file("g");
    assert!(!m.at("g").exists(), "cached");
    m.notifier.inval_entry(ROOT, "g".as_ref()).unwrap();
    assert!(m.at("g").exists());
    m.notifier.expire_entry(ROOT, "g".as_ref()).unwrap();
    m.notifier.delete_entry(ROOT, ino, "f".as_ref()).unwrap();
    m.notifier.store(ino, 0, b"12345").unwrap();
    m.notifier.inval_inode(4711, -1, 0).unwrap();
    m.notifier.inval_entry(4711, "nothing".as_ref()).unwrap();
}

#[test]
fn unmounting_ends_run() {
    let Some(mut m) = mount() else { return };
    let file = fs::File::create(m.at("f")).unwrap();
    let busy = m.stopper.unmount(Unmount::Clean).unwrap_err();
    assert_eq!(busy.raw_os_error(), Some(libc::EBUSY));
    m.stopper.unmount(Unmount::Lazy).unwrap();
    assert!(!is_mounted(&m.path));
    (&file).write_all(b"still served").unwrap();
    drop(file);
    m.join().unwrap();
    assert_eq!(m.fs.seen.destroyed.load(Ordering::SeqCst), 1);
    // Nobody caches anything any more: no error, and no hanging.
    m.notifier.inval_inode(1, 0, 0).unwrap();
    m.stopper.unmount(Unmount::Clean).unwrap();
}

#[test]
fn unmounting_by_force_ends_requests_under_way() {
    let Some(mut m) = mount() else { return };
    let path = m.at("slow");
    let caller = std::thread::spawn(move || fs::metadata(path).is_err());
    let _call = m.fs.take_calls(1);
    m.stopper.unmount(Unmount::Force).unwrap();
    m.join().unwrap();
    assert!(caller.join().unwrap());
    assert_eq!(m.fs.seen.interrupted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_panic_leaves_no_mount() {
    let mut path = None;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let m = mount()?;
        path = Some(m.path.clone());
        assert!(is_mounted(&m.path));
        let _blocked = (fs::File::create(m.at("f")), fs::read_dir(&m.path));
        panic!("on purpose");
        #[allow(unreachable_code, reason = "gives the closure its type")]
        Some(())
    }));
    assert!(result.is_err() || path.is_none());
    assert!(path.is_none_or(|path| !is_mounted(&path)));
}

#[test]
fn a_session_dropped_before_it_ran_leaves_no_mount() {
    let Some(m) = mount() else { return };
    let path = temp_dir();
    let dropped = Mount::new(&path, &MountOptions::new("a b:/\\c", "mortartest")).unwrap();
    assert!(is_mounted(&path));
    drop(fuse::Session::new(m.fs.clone(), dropped, SessionConfig::default()));
    assert!(!is_mounted(&path));
    fs::remove_dir(path).unwrap();
}

#[test]
fn mount_errors_name_the_cause() {
    let Some(m) = mount() else { return };
    let options = MountOptions::new("x:/y", "mortartest");
    let fails = |name: &str| Mount::new(&m.at(name), &options).unwrap_err();
    assert!(matches!(fails("missing"), MountError::MountPointMissing { .. }));
    fs::write(m.at("file"), "").unwrap();
    assert!(matches!(fails("file"), MountError::NotADirectory { .. }));
    let twice = fails("");
    assert!(matches!(twice, MountError::AlreadyMounted { .. }));
    assert!(twice.to_string().contains("127.0.0.1:/vol"), "{twice}");
}

struct Broken;

impl Filesystem for Broken {
    fn init(&self, _: &Kernel, _: &mut InitConfig) -> Result<(), Errno> {
        Err(Errno::EACCES)
    }
}

#[test]
fn a_failing_init_ends_the_session() {
    let Some(_usable) = mount() else { return };
    let path = temp_dir();
    let mount = Mount::new(&path, &MountOptions::new("broken:/v", "mortartest")).unwrap();
    let error = Session::new(Arc::new(Broken), mount, SessionConfig::default()).run().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EACCES));
    assert!(!is_mounted(&path));
    fs::remove_dir(path).unwrap();
}

/// As root, runs itself again as nobody, in a mount namespace where `/dev/fuse` is for everyone (without udev it
/// is root's alone) and where there is an `/etc/mtab` (without it `fusermount3` unmounts nothing).
#[test]
fn the_helper_mounts_without_root() {
    const AS_NOBODY: &str = r#"set -e
        node=$(mktemp -u); mknod -m 666 $node c 10 229; mount --bind $node /dev/fuse; rm $node
        if ! [ -e /etc/mtab ]; then
            etc=$(mktemp -d); mount -t tmpfs etc $etc; cp -a /etc/. $etc; ln -s /proc/self/mounts $etc/mtab
            mount --bind $etc /etc; umount $etc; rmdir $etc
        fi
        exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@""#;
    let installed = |name: &str| {
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|dir| dir.join(name).exists())
    };
    if !["fusermount3", "setpriv", "unshare"].into_iter().all(installed) {
        println!("skipped: fusermount3, setpriv and unshare are needed");
        return;
    }
    if rustix::process::geteuid().is_root() {
        let mut again = Command::new("unshare");
        again.args(["--mount", "sh", "-c", AS_NOBODY, "sh"]).arg(std::env::current_exe().unwrap());
        let output =
            again.args(["--exact", "the_helper_mounts_without_root", "--nocapture"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && !said.contains("skipped"),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        return;
    }
    let options = MountOptions { allow_other: false, ..MountOptions::new("h,ost:/v", "mortartest") };
    let Some(m) = mount_as(&options, Duration::ZERO, SessionConfig::default()) else { return };
    fs::create_dir(m.at("d")).unwrap();
    let busy = fs::File::open(m.at("d")).unwrap();
    assert!(m.stopper.unmount(Unmount::Clean).is_err());
    drop(busy);
    m.stopper.unmount(Unmount::Lazy).unwrap();
    assert!(!is_mounted(&m.path));
    let path = temp_dir();
    let options = MountOptions { allow_other: false, ..MountOptions::new("h:/v", "mortartest") };
    drop(Mount::new(&path, &options).unwrap());
    assert!(!is_mounted(&path));
    fs::remove_dir(path).unwrap();
    let refused = Mount::new("/etc".as_ref(), &options).unwrap_err();
    assert!(matches!(refused, MountError::HelperFailed { .. }), "{refused}");
}

#[test]
fn a_panicking_file_system_answers_eio() {
    let Some(m) = mount() else { return };
    assert_eq!(fs::metadata(m.at("panic")).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert!(fs::metadata(&m.path).is_ok());
}

#[test]
fn waiting_outside_a_session_is_plain_poll() {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let wait = || fuse::wait::readable(ours.as_fd(), Some(Duration::from_millis(1))).unwrap();
    assert_eq!(wait(), fuse::wait::Wake::TimedOut);
    (&theirs).write_all(b"x").unwrap();
    assert_eq!(wait(), fuse::wait::Wake::Ready);
    fuse::wait::leave_leadership();
}
