//! What programs expect of a file system.

use crate::harness::{Pool, files, tool};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

fn with_mount(test: impl FnOnce(&Path)) {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mount = pool.mount("v");
    test(&mount.dir);
    mount.end();
}

#[test]
fn names() {
    with_mount(|d| {
        let long = "ü".repeat(127) + "x";
        fs::write(d.join(&long), "long").unwrap();
        assert_eq!(files::names(d), [long.as_str()]);
        assert_eq!(fs::read(d.join(&long)).unwrap(), b"long");
        let too_long = fs::write(d.join(long + "y"), "").unwrap_err();
        assert_eq!(too_long.raw_os_error(), Some(Errno::NAMETOOLONG.raw_os_error()));
        for name in [" ", "a b", "-x", "new\nline", "\u{1}", "*", "x\\y", ".hidden", "..."] {
            fs::write(d.join(name), name).unwrap();
            assert_eq!(fs::read_to_string(d.join(name)).unwrap(), name);
        }
        let raw = std::ffi::OsStr::from_encoded(b"\xff\xfe");
        fs::write(d.join(raw), "raw").unwrap();
        assert_eq!(fs::read(d.join(raw)).unwrap(), b"raw");
        fs::write(d.join(".mortar"), "x").unwrap_err();
    });
}

trait FromEncoded {
    fn from_encoded(bytes: &[u8]) -> &std::ffi::OsStr;
}

impl FromEncoded for std::ffi::OsStr {
    fn from_encoded(bytes: &[u8]) -> &std::ffi::OsStr {
        std::os::unix::ffi::OsStrExt::from_bytes(bytes)
    }
}

/// A program that runs can neither be written to nor emptied (ETXTBSY), however it is opened.
#[test]
fn a_program_that_runs_is_not_changed() {
    with_mount(|d| {
        let program = d.join("program");
        let sleep =
            ["/usr/bin/sleep", "/bin/sleep"].into_iter().find(|path| Path::new(path).exists()).unwrap();
        fs::copy(sleep, &program).unwrap();
        let length = fs::metadata(&program).unwrap().len();
        let mut running = std::process::Command::new(&program).arg("60").spawn().unwrap();
        let flags = [OFlags::WRONLY, OFlags::RDWR, OFlags::WRONLY | OFlags::TRUNC, OFlags::TRUNC];
        let opened: Vec<_> =
            flags.iter().map(|how| rustix::fs::open(&program, *how, Mode::empty())).collect();
        let (ended, left) = (running.try_wait().unwrap(), fs::metadata(&program).unwrap().len());
        running.kill().unwrap();
        running.wait().unwrap();
        assert!(opened.iter().all(|opened| matches!(opened, Err(Errno::TXTBSY))), "{opened:?}");
        assert_eq!((ended, left), (None, length));
        fs::write(&program, "empty now").unwrap();
        assert_eq!(fs::read(&program).unwrap(), b"empty now");
    });
}

#[test]
fn links_and_renames() {
    with_mount(|d| {
        fs::write(d.join("a"), "A").unwrap();
        fs::hard_link(d.join("a"), d.join("b")).unwrap();
        assert_eq!(fs::metadata(d.join("a")).unwrap().nlink(), 2);
        assert_eq!(fs::metadata(d.join("a")).unwrap().ino(), fs::metadata(d.join("b")).unwrap().ino());
        fs::write(d.join("b"), "B").unwrap();
        assert_eq!(fs::read(d.join("a")).unwrap(), b"B");
        fs::remove_file(d.join("a")).unwrap();
        assert_eq!(fs::metadata(d.join("b")).unwrap().nlink(), 1);
        symlink("b", d.join("s")).unwrap();
        assert_eq!(fs::read(d.join("s")).unwrap(), b"B");
        assert_eq!(fs::read_link(d.join("s")).unwrap(), Path::new("b"));
        // Rename over a file that is open: who has it open keeps it.
        fs::write(d.join("old"), "old").unwrap();
        let mut held = File::open(d.join("old")).unwrap();
        fs::write(d.join("new"), "new").unwrap();
        fs::rename(d.join("new"), d.join("old")).unwrap();
        assert_eq!(fs::read(d.join("old")).unwrap(), b"new");
        let mut text = String::new();
        held.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
        // Over directories: only empty ones.
        fs::create_dir_all(d.join("d1/x")).unwrap();
        fs::create_dir(d.join("d2")).unwrap();
        let full = fs::rename(d.join("d2"), d.join("d1")).unwrap_err();
        assert_eq!(full.kind(), std::io::ErrorKind::DirectoryNotEmpty);
        fs::rename(d.join("d1"), d.join("d2")).unwrap();
        assert_eq!(files::names(&d.join("d2")), ["x"]);
        let inside = fs::rename(d.join("d2"), d.join("d2/x/y")).unwrap_err();
        assert_eq!(inside.raw_os_error(), Some(Errno::INVAL.raw_os_error()));
        let flags = |from: &str, to: &str, flags| {
            rustix::fs::renameat_with(CWD, d.join(from), CWD, d.join(to), flags)
        };
        assert_eq!(flags("old", "b", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        flags("old", "b", RenameFlags::EXCHANGE).unwrap();
        assert_eq!(
            (fs::read(d.join("old")).unwrap(), fs::read(d.join("b")).unwrap()),
            (b"B".to_vec(), b"new".to_vec())
        );
    });
}

#[test]
fn an_unlinked_file_stays_for_those_who_have_it_open() {
    with_mount(|d| {
        let mut file =
            File::options().create(true).read(true).write(true).truncate(true).open(d.join("f")).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(d.join("f")).unwrap();
        assert!(!d.join("f").exists());
        file.write_all(b" after").unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before after");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        fs::write(d.join("f"), "another").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 12);
    });
}

#[test]
fn attributes() {
    with_mount(|d| {
        fs::write(d.join("f"), "x").unwrap();
        fs::set_permissions(d.join("f"), fs::Permissions::from_mode(0o4751)).unwrap();
        std::os::unix::fs::chown(d.join("f"), Some(7), Some(8)).unwrap();
        let meta = fs::metadata(d.join("f")).unwrap();
        // chown by root of an executable clears setuid, as local file systems do.
        assert_eq!((meta.uid(), meta.gid(), meta.mode() & 0o7777), (7, 8, 0o751));
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
        File::options().write(true).open(d.join("f")).unwrap().set_modified(time).unwrap();
        assert_eq!(fs::metadata(d.join("f")).unwrap().modified().unwrap(), time);
        tool(&format!("mkfifo {}", d.join("fifo").display()));
        assert!(fs::metadata(d.join("fifo")).unwrap().file_type().is_fifo());
        tool(&format!("mknod {} c 1 3", d.join("null").display()));
        assert_eq!(fs::metadata(d.join("null")).unwrap().rdev(), 0x103);
        let vfs = rustix::fs::statvfs(d).unwrap();
        assert!(vfs.f_blocks > 0 && vfs.f_bavail > 0 && vfs.f_namemax == 255);
    });
}

#[test]
fn extended_attributes() {
    with_mount(|d| {
        let f = d.join("f");
        fs::write(&f, "x").unwrap();
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&f, name, value, flags);
        let get = |name: &str| {
            let mut buffer = vec![0; 70_000];
            rustix::fs::getxattr(&f, name, &mut buffer[..]).map(|n| buffer[..n].to_vec())
        };
        set("user.a", b"1", XattrFlags::empty()).unwrap();
        assert_eq!(get("user.a").unwrap(), b"1");
        assert_eq!(set("user.a", b"2", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.b", b"2", XattrFlags::REPLACE), Err(Errno::NODATA));
        let large = files::noise(3, 3000);
        set("user.large", &large, XattrFlags::empty()).unwrap();
        set("user.empty", b"", XattrFlags::empty()).unwrap();
        assert_eq!((get("user.large").unwrap(), get("user.empty").unwrap()), (large, vec![]));
        let mut list = vec![0; 1000];
        let n = rustix::fs::listxattr(&f, &mut list[..]).unwrap();
        let mut names: Vec<&[u8]> = list[..n].split(|b| *b == 0).filter(|s| !s.is_empty()).collect();
        names.sort_unstable();
        assert_eq!(names, [&b"user.a"[..], b"user.empty", b"user.large"], "our own attributes must not show");
        rustix::fs::removexattr(&f, "user.a").unwrap();
        assert_eq!(get("user.a"), Err(Errno::NODATA));
        set("trusted.mortar.x", b"1", XattrFlags::empty()).unwrap_err();
    });
}

/// A program with capabilities that somebody writes to has none afterwards, on no brick.
#[test]
fn capabilities_go_with_a_write() {
    with_mount(|d| {
        let f = d.join("program");
        let name = "security.capability";
        let has = || rustix::fs::getxattr(&f, name, &mut [0u8; 64][..]).is_ok();
        // Version 2, cap_net_raw permitted and effective.
        let raw = [1u8, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for change in [|f: &mut File| f.write_all(b"more"), |f: &mut File| f.set_len(1)] {
            fs::write(&f, "x").unwrap();
            rustix::fs::setxattr(&f, name, &raw, XattrFlags::empty()).unwrap();
            assert!(has());
            change(&mut OpenOptions::new().append(true).open(&f).unwrap()).unwrap();
            assert!(!has(), "the capability is still there");
        }
    });
}

/// The bytes of an access list: tag, permissions and id of each entry.
pub(crate) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut out = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&perm.to_le_bytes());
        out.extend_from_slice(&id.to_le_bytes());
    }
    out
}

#[test]
fn access_lists() {
    const NOBODY: u32 = u32::MAX;
    with_mount(|d| {
        // Owner rw, user 12345 r, group none, mask r, others none.
        let list =
            acl(&[(1, 6, NOBODY), (2, 4, 12345), (4, 0, NOBODY), (0x10, 4, NOBODY), (0x20, 0, NOBODY)]);
        let dir = d.join("shared");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(d, fs::Permissions::from_mode(0o755)).unwrap();
        let reads = |path: &Path, uid: u32| {
            let mut command = std::process::Command::new("setpriv");
            command.args([format!("--reuid={uid}"), format!("--regid={uid}")]);
            command.args(["--clear-groups", "cat"]).arg(path);
            crate::harness::run(command).code == Some(0)
        };
        let f = dir.join("f");
        fs::write(&f, "x").unwrap();
        rustix::fs::setxattr(&f, "system.posix_acl_access", &list, XattrFlags::empty()).unwrap();
        assert_eq!((reads(&f, 12345), reads(&f, 12346)), (true, false));
        assert_eq!(fs::metadata(&f).unwrap().mode() & 0o777, 0o640, "the mask shows as the group's bits");
        // What is made in a directory with a default list has it.
        rustix::fs::setxattr(&dir, "system.posix_acl_default", &list, XattrFlags::empty()).unwrap();
        let g = dir.join("g");
        fs::write(&g, "x").unwrap();
        assert_eq!((reads(&g, 12345), reads(&g, 12346)), (true, false));
        let sub = dir.join("sub");
        fs::create_dir(&sub).unwrap();
        let mut buffer = [0u8; 256];
        let n = rustix::fs::getxattr(&sub, "system.posix_acl_default", &mut buffer[..]).unwrap();
        assert_eq!(n, list.len());
    });
}

#[test]
fn space() {
    with_mount(|d| {
        let file =
            File::options().create(true).read(true).write(true).truncate(true).open(d.join("f")).unwrap();
        // A hole of a gigabyte takes no room, here and on the bricks.
        file.write_all_at(b"end", 1 << 30).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(meta.len(), (1 << 30) + 3);
        assert!(meta.blocks() < 1000, "{} blocks", meta.blocks());
        let mut zeros = [1; 100];
        file.read_exact_at(&mut zeros, 12345).unwrap();
        assert_eq!(zeros, [0; 100]);
        let data = rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap();
        assert!(data > 0 && data <= 1 << 30, "data at {data}");
        assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)).unwrap(), 0);
        file.set_len(10).unwrap();
        assert_eq!(fs::read(d.join("f")).unwrap(), [0; 10]);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 2 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        file.write_all_at(&[7; 8192], 0).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 0, 4096).unwrap();
        let mut bytes = [1; 8192];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..4096] == [0; 4096] && bytes[4096..] == [7; 4096]);
        let copy = File::create(d.join("copy")).unwrap();
        let n = rustix::fs::copy_file_range(&file, Some(&mut 4096), &copy, Some(&mut 0), 4096).unwrap();
        assert_eq!((n, fs::read(d.join("copy")).unwrap()), (4096, vec![7; 4096]));
        rustix::fs::fsync(&copy).unwrap();
        let dir = rustix::fs::openat(CWD, d, OFlags::DIRECTORY, Mode::empty()).unwrap();
        rustix::fs::fsync(dir).unwrap();
    });
}

#[test]
fn a_large_directory() {
    with_mount(|d| {
        let begun = std::time::Instant::now();
        for i in 0..5000 {
            File::create(d.join(format!("file{i:05}"))).unwrap();
        }
        println!("5,000 files made in {:?}", begun.elapsed());
        let begun = std::time::Instant::now();
        let names = files::names(d);
        println!("listed in {:?}", begun.elapsed());
        let wanted: Vec<String> = (0..5000).map(|i| format!("file{i:05}")).collect();
        assert_eq!(names, wanted);
        // Removed while it is being listed: every file is seen once.
        let removed = fs::read_dir(d).unwrap().map(|e| fs::remove_file(e.unwrap().path()).unwrap()).count();
        assert_eq!(removed, 5000);
        assert_eq!(files::names(d), Vec::<String>::new());
    });
}

#[test]
fn permissions_are_kept_by_the_kernel() {
    with_mount(|d| {
        fs::set_permissions(d, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(d.join("secret"), "x").unwrap();
        fs::set_permissions(d.join("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        let as_nobody = |line: &str| {
            let mut command = std::process::Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", line]);
            crate::harness::run(command).code
        };
        let secret = d.join("secret").display().to_string();
        assert_ne!(as_nobody(&format!("cat {secret}")), Some(0));
        assert_ne!(as_nobody(&format!("rm -f {secret}")), Some(0));
        fs::set_permissions(d.join("secret"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(as_nobody(&format!("cat {secret}")), Some(0));
        assert!(
            rustix::fs::accessat(CWD, d.join("secret"), rustix::fs::Access::EXEC_OK, AtFlags::empty())
                .is_err()
        );
    });
}
