//! Keys that make all who use them one user: what the server lets that user do, whatever the client has checked.

use crate::harness::{Mounted, Pool, eventually, mortar, run, tool};
use client::{Client, Key, NewEntry, Object, Options, Payload, Span};
use rustix::fs::{Access, XattrFlags};
use rustix::io::Errno as Os;
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{Error, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wire::op::{Node, SetAttr};
use wire::{Attr, Errno, Name};

const UID: u32 = 1000;
const GID: u32 = 100;

/// Makes a file or, if the name ends in `/`, a directory with this mode and owner.
fn make(m: &Mounted, name: &str, mode: u32, owner: u32) {
    let path = m.path(name.trim_end_matches('/'));
    if name.ends_with('/') {
        fs::create_dir(&path).unwrap();
    } else {
        fs::write(&path, name).unwrap();
    }
    chown(&path, Some(owner), Some(owner)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

/// The number of the error that must come.
fn errno<T>(result: Result<T, Error>) -> Os {
    Os::from_io_error(&result.err().expect("it is refused")).unwrap()
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

/// Runs a shell on this machine as somebody else; whether it went well.
fn as_user(uid: u32, line: &str) -> bool {
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={uid}"), &format!("--regid={uid}"), "--clear-groups", "sh", "-c", line]);
    run(command).code == Some(0)
}

fn volume(pool: &Pool) -> Mounted {
    let m = pool.mount("v");
    fs::set_permissions(m.path(""), Permissions::from_mode(0o755)).unwrap();
    for (name, mode, owner) in [
        ("open/", 0o777, 0),
        ("shut/", 0o755, 0),
        ("blind/", 0o711, 0),
        ("hidden/", 0o700, 0),
        ("sticky/", 0o1777, 0),
        ("home/", 0o700, UID),
        ("open/secret", 0o600, 0),
        ("open/readable", 0o644, 0),
        ("open/writable", 0o4777, 0),
        ("shut/file", 0o644, 0),
        ("hidden/file", 0o666, 0),
        ("sticky/theirs", 0o666, 0),
        ("home/mine", 0o600, UID),
    ] {
        make(&m, name, mode, owner);
    }
    m
}

#[test]
fn a_squashed_mount_is_one_user_whoever_asks() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let all = volume(&pool);
    let key = pool.client_key("web", "v", &format!("--squash {UID}:{GID}"));
    let m = pool.mount_key("v", &key);
    // Root of this machine makes files of that user.
    fs::write(m.path("open/new"), "new").unwrap();
    fs::create_dir(m.path("open/dir")).unwrap();
    std::os::unix::fs::symlink("new", m.path("open/link")).unwrap();
    for name in ["open/new", "open/dir", "open/link"] {
        assert_eq!((owner(&m.path(name)), owner(&all.path(name))), ((UID, GID), (UID, GID)), "{name}");
        let on_brick = pool.servers[0].path("b").join(name);
        assert_eq!(owner(&on_brick), (UID, GID), "{}", on_brick.display());
    }
    // And so does anybody else, who may read what is that user's.
    assert!(as_user(65534, &format!("echo x > {}", m.path("open/others").display())));
    assert_eq!(owner(&all.path("open/others")), (UID, GID));
    assert!(as_user(65534, &format!("test \"$(cat {})\" = home/mine", m.path("home/mine").display())));
    // What that user may not do root may not do either.
    assert_eq!(errno(fs::write(m.path("shut/new"), "x")), Os::ACCESS);
    assert_eq!(errno(fs::create_dir(m.path("shut/dir"))), Os::ACCESS);
    assert_eq!(errno(fs::remove_file(m.path("shut/file"))), Os::ACCESS);
    assert_eq!(errno(fs::rename(m.path("shut/file"), m.path("open/file"))), Os::ACCESS);
    assert_eq!(errno(File::open(m.path("open/secret"))), Os::ACCESS);
    assert_eq!(errno(fs::read(m.path("hidden/file"))), Os::ACCESS);
    assert_eq!(errno(fs::read_dir(m.path("blind")).and_then(|mut d| d.next().unwrap())), Os::ACCESS);
    assert_eq!(errno(File::options().append(true).open(m.path("open/readable"))), Os::ACCESS);
    assert_eq!(errno(File::create(m.path("open/readable"))), Os::ACCESS);
    assert_eq!(fs::read(m.path("open/readable")).unwrap(), b"open/readable");
    let may = |name: &str, access| rustix::fs::access(m.path(name), access);
    assert_eq!(may("open/readable", Access::WRITE_OK), Err(Os::ACCESS));
    assert_eq!(may("open/readable", Access::READ_OK), Ok(()));
    assert_eq!(may("hidden", Access::EXEC_OK), Err(Os::ACCESS));
    // Sticky directories.
    assert_eq!(errno(fs::remove_file(m.path("sticky/theirs"))), Os::PERM);
    fs::write(m.path("sticky/mine"), "x").unwrap();
    fs::rename(m.path("sticky/mine"), m.path("sticky/renamed")).unwrap();
    fs::remove_file(m.path("sticky/renamed")).unwrap();
    // Owners, modes, devices.
    assert_eq!(errno(chown(m.path("open/new"), Some(0), None)), Os::PERM);
    assert_eq!(errno(chown(m.path("open/new"), None, Some(0))), Os::PERM);
    assert_eq!(errno(fs::set_permissions(m.path("open/readable"), Permissions::from_mode(0o777))), Os::PERM);
    fs::set_permissions(m.path("open/new"), Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(fs::metadata(all.path("open/new")).unwrap().mode() & 0o7777, 0o4755);
    let mut mknod = Command::new("mknod");
    mknod.arg(m.path("open/zero")).args(["c", "1", "5"]);
    assert!(run(mknod).stderr.contains("not permitted"));
    // Nobody here becomes the local user of that number by a program that he has made.
    let line = |mount: &Mounted| {
        let (dir, mounts) = (mount.path(""), fs::read_to_string("/proc/self/mounts").unwrap());
        let dir = dir.to_str().unwrap().trim_end_matches('/');
        mounts.lines().find(|line| line.contains(&format!(" {dir} "))).unwrap().to_owned()
    };
    let listed = line(&m);
    assert!(listed.contains("nosuid") && !listed.contains("default_permissions"), "{listed}");
    // With other flags of the kernel's neither, whether they say so or not.
    for (words, sets) in [("remount,noatime", "noatime"), ("remount,suid", "nosuid"), ("remount,rw", "rw")] {
        for mount in [&m, &all] {
            let mut command = mortar();
            command.args(["mount", &pool.source("v")]).arg(mount.path("")).args(["-o", words]);
            run(command).ok();
        }
        assert!(line(&m).contains("nosuid") && line(&m).contains(sets), "{words}: {}", line(&m));
        assert!(!line(&all).contains("nosuid"), "{words}: {}", line(&all));
    }
    // A file of his own that nobody may open.
    fs::set_permissions(m.path("home/mine"), Permissions::from_mode(0o000)).unwrap();
    assert_eq!(errno(File::open(m.path("home/mine"))), Os::ACCESS);
    m.end();
    all.end();
}

#[test]
fn attributes_and_lists_of_a_squashed_mount() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let all = volume(&pool);
    let m = pool.mount_key("v", &pool.client_key("web", "v", &format!("--squash {UID}:{GID} --expires 1d")));
    let set = |name: &str, key: &str, value: &[u8]| {
        rustix::fs::setxattr(m.path(name), key, value, XattrFlags::empty())
    };
    set("home/mine", "user.a", b"1").unwrap();
    assert_eq!(set("open/readable", "user.a", b"1"), Err(Os::ACCESS));
    assert_eq!(set("home/mine", "trusted.a", b"1"), Err(Os::PERM));
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(set("home/mine", "security.capability", &capability), Err(Os::PERM));
    rustix::fs::setxattr(all.path("home/mine"), "trusted.b", b"1", XattrFlags::empty()).unwrap();
    let mut names = vec![0u8; 4096];
    let len = rustix::fs::listxattr(m.path("home/mine"), &mut names[..]).unwrap();
    assert_eq!(&names[..len], b"user.a\0");
    // Who writes to a file takes away what lets it run as somebody else.
    rustix::fs::setxattr(all.path("open/writable"), "security.capability", &capability, XattrFlags::empty())
        .unwrap();
    File::options().append(true).open(m.path("open/writable")).unwrap().write_all(b"x").unwrap();
    assert_eq!(fs::metadata(all.path("open/writable")).unwrap().mode() & 0o7777, 0o777);
    let gone = rustix::fs::getxattr(all.path("open/writable"), "security.capability", &mut [0u8; 64][..]);
    assert_eq!(gone, Err(Os::NODATA));
    // An access list lets him in; his own he may set.
    assert_eq!(errno(File::open(m.path("open/secret"))), Os::ACCESS);
    let entries = [(1u16, 6u16, 0u32), (2, 4, UID), (4, 0, 0), (0x10, 4, 0), (0x20, 0, 0)];
    let bytes = |(tag, bits, id): &(u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let list: Vec<u8> = 2u32.to_le_bytes().into_iter().chain(entries.iter().flat_map(bytes)).collect();
    let acl = "system.posix_acl_access";
    rustix::fs::setxattr(all.path("open/secret"), acl, &list, XattrFlags::empty()).unwrap();
    assert_eq!(fs::read(m.path("open/secret")).unwrap(), b"open/secret");
    assert_eq!(errno(File::options().write(true).open(m.path("open/secret"))), Os::ACCESS);
    set("home/mine", acl, &list).unwrap();
    assert_eq!(set("open/readable", acl, &list), Err(Os::PERM));
    // The list of keys says so, and nobody is squashed to root.
    let keys = pool.json("client list");
    let line = keys["keys"].as_array().unwrap().iter().find(|k| k["name"] == "web").unwrap().clone();
    assert_eq!((line["squash"]["uid"].as_u64(), line["squash"]["gid"].as_u64()), (Some(1000), Some(100)));
    assert!(pool.ok("client list").contains("1000:100"));
    pool.cli("client add x --volume v --squash 0:0").refused_with(&["0:0", "whom permissions bind"]);
    pool.cli("client add x --volume v --squash 4294967295:1").refused();
    assert_eq!(pool.cli("client add x --volume v --squash ann:users").code, Some(2));
    // Another key of that name which makes nobody a user would leave a mount without anybody who checks.
    pool.ok("client revoke web --yes");
    let file = pool.dir.join("web.key");
    fs::remove_file(&file).unwrap();
    pool.client_key("web", "v", "");
    let refused = eventually("the mount ends", || fs::read_dir(m.path("")).err());
    assert!(refused.raw_os_error().is_some(), "{refused}");
    tool(&format!("umount -l {}", m.path("").display()));
    all.end();
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn new(what: &str, node: Node) -> NewEntry {
    NewEntry { name: name(what), node, mode: 0o777, umask: 0, uid: 0, gid: 0 }
}

/// Finds an object by its path.
fn find(client: &Client, path: &str) -> Attr {
    let root = client.getattr(client.root()).unwrap();
    path.split('/').fold(root, |at, part| client.lookup(Object::from(&at), &name(part)).unwrap())
}

/// A client that checks nothing and says that it is root; what it asks about it has from elsewhere.
#[test]
fn a_client_that_checks_nothing_gets_no_further() {
    let pool = Pool::new(2);
    pool.volume("v", 1, &[(0, "b"), (1, "b")]);
    let all = volume(&pool);
    let key = pool.client_key("web", "v", &format!("--squash {UID}:{GID}"));
    let servers: Vec<String> = pool.servers.iter().map(|s| s.address.clone()).collect();
    let connect = |key: PathBuf| {
        let options = Options { key: Some(Key::File(key)), ..Options::default() };
        Client::connect(&servers, "v", Options { soft: Some(Duration::from_secs(10)), ..options }).unwrap()
    };
    let trusted = connect(pool.client_key("all", "v", ""));
    let client = connect(key);
    assert_eq!(client.squash().unwrap().to_string(), "1000:100");
    let object = |path: &str| Object::from(&find(&trusted, path));
    // Directories go to either set, once the sets have told each other of their room.
    let (mut homes, mut n) = (BTreeSet::new(), 0);
    eventually("directories are on both sets", || {
        n += 1;
        let made = client.create(object("open"), new(&format!("dir{n}"), Node::Dir)).unwrap();
        assert_eq!((made.uid, made.gid), (UID, GID));
        let within = client.create(Object::from(&made), new("file", Node::File)).unwrap();
        assert_eq!((within.uid, within.gid), (UID, GID));
        let refused = client.create(object("shut"), new(&format!("dir{n}"), Node::Dir));
        assert_eq!(refused.unwrap_err(), Errno::EACCES);
        homes.insert(made.home);
        (homes.len() == 2).then_some(())
    });
    let secret = object("open/secret");
    let read = |object| client.read(object, 0, 100, &mut Payload::new());
    assert_eq!(read(secret), Err(Errno::EACCES));
    read(object("open/readable")).unwrap();
    let at = Span { offset: 0, append: false, kill_suid: false };
    assert_eq!(client.write(secret, at, b"x").unwrap_err(), Errno::EACCES);
    let (_, attr) = client.write(object("open/writable"), at, b"x").unwrap();
    assert_eq!(attr.mode & 0o7777, 0o777, "setuid goes, whatever the client says");
    let none =
        SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false };
    for (set, errno) in [
        (SetAttr { uid: Some(UID), ..none.clone() }, Errno::EPERM),
        (SetAttr { mode: Some(0o777), ..none.clone() }, Errno::EPERM),
        (SetAttr { size: Some(0), ..none }, Errno::EACCES),
    ] {
        assert_eq!(client.setattr(secret, set.clone()).unwrap_err(), errno, "{set:?}");
    }
    assert_eq!(client.lookup(object("hidden"), &name("file")).unwrap_err(), Errno::EACCES);
    assert_eq!(client.unlink(object("shut"), name("file")), Err(Errno::EACCES));
    assert_eq!(client.unlink(object("sticky"), name("theirs")), Err(Errno::EPERM));
    let (from, to) = ((object("shut"), name("file")), (object("open"), name("file")));
    assert_ne!(client.rename(from, to, 0), Ok(()));
    assert_ne!(client.link(secret, object("home"), name("mine-now")).err(), None);
    let device = new("zero", Node::Char { rdev: 0x105 });
    assert_eq!(client.create(object("open"), device).unwrap_err(), Errno::EPERM);
    assert_eq!(client.setxattr(secret, name("user.a"), b"1", 0), Err(Errno::EACCES));
    assert_eq!(client.copy_range((secret, 0), (secret, 100), 1), Err(Errno::EACCES));
    // Nothing of it was done.
    let mut text = String::new();
    File::open(all.path("open/secret")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "open/secret");
    assert!(all.path("shut/file").exists() && all.path("sticky/theirs").exists());
    drop((client, trusted));
    all.end();
}
