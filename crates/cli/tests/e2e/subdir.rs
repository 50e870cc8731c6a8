//! Keys for what lies beneath one directory: a mount works in it as in a volume of its own, and no client gets out of it.

use crate::harness::{Mounted, Pool, eventually, eventually_within, files, mortar, run, tool};
use crate::sets::{home, sets};
use client::{Client, Key, NewEntry, Object, Options, Payload, Span};
use ids::{Epoch, Fid, Lsn, SetId};
use rustix::io::Errno as Os;
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use wire::op::{LockClaim, Node, SetAttr};
use wire::{Attr, Errno, Name, Op};

const ONE: [(usize, &str); 2] = [(0, "b"), (1, "b")];
pub(crate) const TWO: [(usize, &str); 4] = [(0, "b1"), (1, "b1"), (0, "b2"), (1, "b2")];

pub(crate) fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

/// A volume with a directory `p` in which there are directories of each set, `p/s0` and so on, each with a file; and the same
/// in `o`, beside it.
pub(crate) fn volume(pool: &Pool, bricks: &[(usize, &str)]) -> Mounted {
    pool.volume("v", 2, bricks);
    let m = pool.mount("v");
    let all = sets(pool, bricks);
    let mut made: Vec<Vec<String>> = vec![Vec::new(); all.len()];
    // Both tops are of the set of the volume's root: what hangs in that can be moved into them.
    eventually("there are enough directories of each set", || {
        let dir = format!("dir{}", made.iter().flatten().count());
        fs::create_dir(m.path(&dir)).unwrap();
        made[home(&all, &m, &dir)].push(dir);
        (made[0].len() >= 4 && made.iter().all(|of_set| of_set.len() >= 2)).then_some(())
    });
    let mut take = |set: usize, to: &str| fs::rename(m.path(&made[set].pop().unwrap()), m.path(to)).unwrap();
    for top in ["p", "o"] {
        take(0, top);
        for set in 0..all.len() {
            take(set, &format!("{top}/s{set}"));
            fs::write(m.path(top).join(format!("s{set}/file")), format!("{top}{set}")).unwrap();
        }
        fs::write(m.path(top).join("file"), top).unwrap();
    }
    for rest in made.iter().flatten() {
        fs::remove_dir(m.path(rest)).unwrap();
    }
    m
}

pub(crate) fn connect(pool: &Pool, key: PathBuf) -> Client {
    let options = Options { key: Some(Key::File(key)), ..Options::default() };
    let options = Options { soft: Some(Duration::from_secs(20)), ..options };
    Client::connect(std::slice::from_ref(&pool.servers[0].address), "v", options).unwrap()
}

/// What lies at a path from the client's root.
pub(crate) fn find(client: &Client, path: &str) -> Result<Attr, Errno> {
    let root = client.getattr(client.root());
    path.split('/')
        .filter(|part| !part.is_empty())
        .fold(root, |at, part| client.lookup(Object::from(&at?), &name(part)))
}

pub(crate) fn object(client: &Client, path: &str) -> Object {
    Object::from(&find(client, path).unwrap_or_else(|e| panic!("{path}: {e}")))
}

pub(crate) fn errno<T>(result: std::io::Result<T>) -> Option<Os> {
    result.err().and_then(|e| Os::from_io_error(&e))
}

/// The server that leads the set whose bricks have this path.
fn leader(pool: &Pool, in_brick: &str) -> usize {
    let status = pool.status("v");
    let leads = |b: &&serde_json::Value| {
        b["role"] == "primary" && Path::new(b["path"].as_str().unwrap()).join(in_brick).exists()
    };
    let bricks = status["bricks"].as_array().unwrap();
    let host = bricks.iter().find(leads).unwrap()["server"].as_str().unwrap().to_owned();
    pool.servers.iter().position(|s| s.host == host).unwrap()
}

/// What programs do in a directory, and another mount sees it.
pub(crate) fn works(m: &Mounted, dir: &str, other: &Path) {
    let at = |name: &str| m.path(dir).join(name);
    fs::write(at("new"), "new").unwrap();
    assert_eq!(fs::read(other.join("new")).unwrap(), b"new");
    File::options().append(true).open(at("new")).unwrap().write_all(b"er").unwrap();
    assert_eq!(fs::read_to_string(at("new")).unwrap(), "newer");
    fs::hard_link(at("new"), at("link")).unwrap();
    assert_eq!(fs::metadata(at("link")).unwrap().nlink(), 2);
    fs::rename(at("new"), at("renamed")).unwrap();
    assert_eq!(fs::read_to_string(at("renamed")).unwrap(), "newer");
    fs::remove_file(at("renamed")).unwrap();
    assert_eq!(fs::read_to_string(at("link")).unwrap(), "newer");
    fs::rename(at("link"), at("file2")).unwrap();
    symlink("file2", at("symlink")).unwrap();
    assert_eq!(fs::read_to_string(at("symlink")).unwrap(), "newer");
    fs::set_permissions(at("file2"), fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(other.join("file2")).unwrap().mode() & 0o777, 0o640);
    rustix::fs::setxattr(at("file2"), "user.a", b"value", rustix::fs::XattrFlags::CREATE).unwrap();
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(at("file2"), "user.a", &mut value), Ok(5));
    File::options().write(true).open(at("file2")).unwrap().set_len(2).unwrap();
    assert_eq!(fs::read_to_string(at("file2")).unwrap(), "ne");
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::write(at("a/b/c/deep"), "deep").unwrap();
    fs::rename(at("a/b/c/deep"), at("deep")).unwrap();
    fs::remove_dir(at("a/b/c")).unwrap();
    fs::remove_dir_all(at("a")).unwrap();
    assert_eq!(fs::read_to_string(other.join("deep")).unwrap(), "deep");
    for n in 0..40 {
        fs::write(at(&format!("many{n}")), n.to_string()).unwrap();
    }
    let listed = files::names(&m.path(dir));
    assert_eq!(listed, files::names(other));
    tool(&format!("ls -lR {}", at("").display()));
    // An open file lives on without a name.
    let mut open = File::options().read(true).write(true).create_new(true).open(at("open")).unwrap();
    fs::remove_file(at("open")).unwrap();
    open.write_all(b"still there").unwrap();
    open.sync_all().unwrap();
    open.rewind().unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still there");
    for name in listed.iter().filter(|name| at(name).symlink_metadata().is_ok_and(|meta| !meta.is_dir())) {
        if name != "file" {
            fs::remove_file(at(name)).unwrap();
        }
    }
}

fn a_mount_works(bricks: &[(usize, &str)]) {
    let mut pool = Pool::new(3);
    let all = volume(&pool, bricks);
    let key = pool.client_key("web", "v", "--subdir /p");
    let m = pool.mount_key("v", &key);
    assert_eq!(files::names(&m.path("")), files::names(&all.path("p")));
    assert_eq!(
        fs::metadata(m.path("..")).unwrap().ino(),
        fs::metadata(m.path("").parent().unwrap()).unwrap().ino()
    );
    works(&m, "", &all.path("p"));
    for set in 0..bricks.len() / 2 {
        let dir = format!("s{set}");
        assert_eq!(fs::read_to_string(m.path(&dir).join("file")).unwrap(), format!("p{set}"));
        works(&m, &dir, &all.path("p").join(&dir));
    }
    // A key for a directory of the last set, whose entry the first one has.
    let last = bricks.len() / 2 - 1;
    let own = pool.mount_key("v", &pool.client_key("own", "v", &format!("--subdir /p/s{last}")));
    assert_eq!(fs::read_to_string(own.path("file")).unwrap(), format!("p{last}"));
    works(&own, "", &all.path(&format!("p/s{last}")));
    own.end();
    // What others do is seen, and a file that they have renamed is found again.
    fs::rename(all.path("p/s0/file"), all.path("p/s0/other")).unwrap();
    assert_eq!(fs::read_to_string(m.path("s0/other")).unwrap(), "p0");
    fs::rename(all.path("p/s0/other"), all.path("p/s0/file")).unwrap();
    assert_eq!(fs::read_to_string(m.path("s0/file")).unwrap(), "p0");
    // The directory is renamed: the mount goes with it.
    fs::rename(all.path("p"), all.path("o/q")).unwrap();
    eventually("the mount is where the directory is", || fs::read_to_string(m.path("file")).ok());
    fs::rename(all.path("o/q"), all.path("p")).unwrap();
    // Open files live on at another primary.
    let path = m.path(&format!("s{last}")).join("file");
    let open = File::options().read(true).write(true).open(&path).unwrap();
    let create = |path: &Path| File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let made = create(&path.with_file_name("made"));
    made.write_all_at(b"before", 0).unwrap();
    fs::rename(path.with_file_name("made"), path.with_file_name("moved")).unwrap();
    // More of them than may wait for another set at a time, and one that has no name to be shown by.
    let many: Vec<File> = (0..30).map(|n| create(&path.with_file_name(format!("open{n}")))).collect();
    let nameless = create(&path.with_file_name("nameless"));
    fs::remove_file(path.with_file_name("nameless")).unwrap();
    pool.wait_in_sync();
    pool.kill(leader(&pool, &format!("p/s{last}/file")));
    open.write_all_at(b"after", 0).unwrap();
    made.write_all_at(b"after", 6).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "after");
    assert_eq!(fs::read_to_string(path.with_file_name("moved")).unwrap(), "beforeafter");
    let mut bytes = [0; 11];
    made.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"beforeafter");
    for (n, file) in many.iter().enumerate() {
        file.write_all_at(b"open", 0).unwrap();
        fs::remove_file(path.with_file_name(format!("open{n}"))).unwrap();
        file.read_exact_at(&mut bytes[..4], 0).unwrap();
        assert_eq!(&bytes[..4], b"open");
    }
    assert_eq!(errno(nameless.write_all_at(b"x", 0)), Some(Os::STALE));
    drop((open, made, many, nameless));
    m.end();
    all.end();
}

#[test]
fn a_mount_works_beneath_its_directory() {
    a_mount_works(&ONE);
}

#[test]
fn a_mount_works_beneath_its_directory_on_two_sets() {
    a_mount_works(&TWO);
}

/// All that a changed client could ask about an object by its number.
fn all_about(fid: Fid, inside: Object) -> Vec<Op> {
    let (n, into) = (name("file"), inside.fid);
    let set = SetAttr {
        mode: Some(0o777),
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        kill_suid: false,
    };
    vec![
        Op::GetAttr { fid },
        Op::Open { fid },
        Op::Lookup { parent: fid, name: n.clone() },
        Op::ReadDir { fid, cookie: 0, plus: true },
        Op::ReadLink { fid },
        Op::Read { fid, offset: 0, len: 100 },
        Op::Write { fid, offset: 0, append: false, kill_suid: false },
        Op::Fsync { fid },
        Op::SetAttr { fid, set },
        Op::GetXattr { fid, name: name("user.a") },
        Op::ListXattr { fid },
        Op::SetXattr { fid, name: name("user.a"), flags: 0 },
        Op::RemoveXattr { fid, name: name("user.a") },
        Op::Fallocate { fid, mode: 0, offset: 0, len: 1 },
        Op::Lseek { fid, offset: 0, whence: 3 },
        Op::Unlink { parent: fid, name: n.clone() },
        Op::Rmdir { parent: fid, name: name("s0") },
        Op::Rename { parent: fid, name: n.clone(), to_parent: into, to_name: n.clone(), flags: 0 },
        Op::Rename { parent: into, name: n.clone(), to_parent: fid, to_name: n.clone(), flags: 0 },
        Op::Link { fid, parent: into, name: name("link") },
        Op::CopyRange { from: fid, from_offset: 0, to: fid, to_offset: 0, len: 1 },
        Op::Show { fid, dir: into, name: n.clone(), home: inside.home, open: true },
        Op::Show { fid, dir: into.names(), name: n, home: inside.home, open: true },
    ]
}

#[test]
fn a_client_that_guesses_gets_nothing_from_outside() {
    let pool = Pool::new(2);
    let all = volume(&pool, &TWO);
    let trusted = connect(&pool, pool.client_key("all", "v", ""));
    let client = connect(&pool, pool.client_key("web", "v", "--subdir p"));
    assert_eq!(client.root(), object(&trusted, "p"));
    let inside = object(&client, "");
    // A client that was not changed looks for directories among all sets.
    let ask = |set, op: Op| client.call_alone(set, op);
    for path in ["", "o", "o/file", "o/s0", "o/s1", "o/s0/file", "o/s1/file"] {
        let outside = object(&trusted, path);
        for op in all_about(outside.fid, inside) {
            let said = ask(outside.home, op.clone());
            assert_eq!(said.clone().err(), Some(Errno::ESTALE), "{path}: {op:?}: {said:?}");
        }
        let dir = outside.fid.names();
        assert_eq!(ask(outside.home, Op::GetAttr { fid: dir }).err(), Some(Errno::ESTALE), "{path}");
        let (home, parent) = (outside.home, inside.fid);
        let link = Op::LinkIn { fid: outside.fid, home, parent, name: name("l") };
        assert_eq!(ask(inside.home, link).err(), Some(Errno::ESTALE), "{path}");
        let (n, from, to_parent) = (name("file"), home, inside.fid);
        let move_in =
            Op::MoveIn { from, parent: outside.fid, name: n.clone(), to_parent, to_name: n, flags: 0 };
        assert_eq!(ask(inside.home, move_in).err(), Some(Errno::ESTALE), "{path}");
        assert_eq!(ask(home, Op::Lineage { fid: outside.fid }).err(), Some(Errno::EPERM), "{path}");
    }
    let locks = Op::HoldLocks { term: 1, claim: LockClaim::New };
    assert_eq!(ask(SetId(1), locks).err(), Some(Errno::ENOLCK));
    client.statfs().unwrap();
    client.sync().unwrap();
    // Each fid up to the newest: directories beneath are all that answers.
    let known = ["", "s0", "s1"].map(|path| object(&trusted, &format!("p/{path}")));
    let mut found = Vec::new();
    let sets = client.map().sets;
    for view in &sets {
        for (epoch, lsn) in (0..=view.epoch.0).flat_map(|e| (0..60).map(move |lsn| (e, lsn))) {
            let fid = Fid { set: view.set, epoch: Epoch(epoch), lsn: Lsn(lsn) };
            for home in sets.iter().map(|view| view.set) {
                match ask(home, Op::GetAttr { fid }) {
                    Ok(_) => found.push(Object { fid, home }),
                    Err(e) => assert_eq!(e, Errno::ESTALE, "{fid} of {home}"),
                }
            }
        }
    }
    assert!(!found.is_empty() && found.iter().all(|object| known.contains(object)), "{found:?} of {known:?}");
    // What was not touched.
    let at = |path: &str| fs::read_to_string(all.path(path)).unwrap();
    assert_eq!([at("o/file"), at("o/s0/file"), at("o/s1/file")], ["o", "o0", "o1"]);
    assert_eq!(files::names(&all.path("p")), ["file", "s0", "s1"]);
    drop((client, trusted));
    all.end();
}

#[test]
fn a_directory_that_is_moved_out_is_out_of_reach_within_a_second() {
    let pool = Pool::new(2);
    let all = volume(&pool, &TWO);
    let key = pool.client_key("web", "v", "--subdir /p");
    let client = connect(&pool, key.clone());
    for set in 0..2 {
        let dir = object(&client, &format!("s{set}"));
        let file = object(&client, &format!("s{set}/file"));
        let open = client.create_open(
            dir,
            NewEntry { name: name("open"), node: Node::File, mode: 0o600, umask: 0, uid: 0, gid: 0 },
        );
        let open = Object::from(&open.unwrap());
        client.getattr(file).unwrap();
        fs::rename(all.path(&format!("p/s{set}")), all.path("moved")).unwrap();
        let moved = Instant::now();
        let gone = |object| match client.getattr(object) {
            Err(Errno::ESTALE) => Some(()),
            Err(e) => panic!("{e}"),
            Ok(_) => None,
        };
        eventually("the directory and its file are out of reach", || gone(dir).and_then(|()| gone(file)));
        assert!(moved.elapsed() < Duration::from_millis(1500), "{:?}", moved.elapsed());
        assert_eq!(client.lookup(dir, &name("file")).err(), Some(Errno::ESTALE));
        assert_eq!(client.read_dir(dir, 0, true).err(), Some(Errno::ESTALE));
        let read = client.read(file, 0, 9, &mut Payload::new());
        assert_eq!(read.err(), Some(Errno::ESTALE));
        // What is open stays, as a descriptor does.
        let at = Span { offset: 0, append: false, kill_suid: false };
        assert_eq!(client.write(open, at, b"open").unwrap().0, 4);
        client.release(open);
        let gone = || matches!(client.getattr(open), Err(Errno::ESTALE)).then_some(());
        eventually_within(Duration::from_secs(10), "it is closed, and out of reach", gone);
        assert_eq!(fs::read_to_string(all.path("moved/open")).unwrap(), "open");
        fs::rename(all.path("moved"), all.path(&format!("p/s{set}"))).unwrap();
        eventually("it is back", || find(&client, &format!("s{set}/file")).ok());
    }
    // The key's directory goes: another one of its name is not the key's.
    fs::rename(all.path("p"), all.path("old")).unwrap();
    fs::create_dir(all.path("p")).unwrap();
    fs::write(all.path("p/secret"), "x").unwrap();
    assert_eq!(find(&client, "secret").err(), Some(Errno::ENOENT));
    assert!(find(&client, "file").is_ok());
    fs::remove_dir_all(all.path("old")).unwrap();
    let gone = || (find(&client, "").err() == Some(Errno::ESTALE)).then_some(());
    eventually("the key reaches nothing", gone);
    drop(client);
    let mut mount = mortar();
    mount.args(["mount", &pool.source("v"), all.path("").with_extension("none").to_str().unwrap(), "-o"]);
    mount.arg(format!("key={}", key.display()));
    fs::create_dir(all.path("").with_extension("none")).unwrap();
    assert!(run(mount).refused().contains("v"));
    all.end();
}

/// A file that grows goes to another set while it is open, and is found there by its name.
#[test]
fn a_file_that_grows_goes_to_another_set_and_stays_in_reach() {
    let pool = Pool::new(2);
    let all = volume(&pool, &TWO);
    let m = pool.mount_key("v", &pool.client_key("web", "v", "--subdir /p"));
    for n in 0..8 {
        let path = m.path(&format!("s0/large{n}"));
        let content = files::noise(n, 3 << 20);
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        content.chunks(256 << 10).for_each(|piece| file.write_all(piece).unwrap());
        file.sync_all().unwrap();
        let mut read = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut read).unwrap();
        assert!(read == content, "{n}");
        drop(file);
        File::options().append(true).open(&path).unwrap().write_all(b"end").unwrap();
        let read = fs::read(all.path(&format!("p/s0/large{n}"))).unwrap();
        assert!(read.len() == content.len() + 3 && read.starts_with(&content), "{n}");
        fs::rename(&path, path.with_extension("done")).unwrap();
        assert_eq!(fs::metadata(path.with_extension("done")).unwrap().len(), read.len() as u64);
    }
    let stub = |seen: &files::Seen| !seen.is_dir() && seen.mode & 0o7777 == 0o1000;
    let moved = pool.paths(&TWO).iter().filter(|brick| files::brick_tree(brick).values().any(stub)).count();
    assert_eq!(moved, 2, "the copies of one set have stubs for some of them");
    fs::remove_dir_all(m.path("s0")).unwrap();
    m.end();
    all.end();
}

/// It is renamed by its administrator while programs of the mount have files open in it.
#[test]
fn programs_lose_what_is_moved_out_and_keep_what_they_have_open() {
    let pool = Pool::new(2);
    let all = volume(&pool, &TWO);
    let m = pool.mount_key("v", &pool.client_key("web", "v", "--subdir /p"));
    let mut open = File::open(m.path("s1/file")).unwrap();
    assert_eq!(files::names(&m.path("s1")), ["file"]);
    fs::rename(all.path("p/s1"), all.path("o/moved")).unwrap();
    eventually("its name is gone", || {
        (errno(fs::metadata(m.path("s1/file"))) == Some(Os::NOENT)).then_some(())
    });
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "p1");
    assert_eq!(errno(fs::rename(m.path("file"), m.path("s1/file"))), Some(Os::NOENT));
    assert_eq!(files::names(&all.path("o/moved")), ["file"]);
    drop(open);
    m.end();
    all.end();
}

#[test]
fn a_key_for_a_directory_is_made_listed_and_refused_with_reasons() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let m = pool.mount("v");
    fs::create_dir_all(m.path("projects/web")).unwrap();
    fs::write(m.path("projects/file"), "x").unwrap();
    pool.client_key("web", "v", "--subdir projects//web/ --read-only");
    assert!(pool.ok("client list").contains("/projects/web"));
    let line = pool.json("client list")["keys"]
        .as_array()
        .unwrap()
        .iter()
        .find(|k| k["name"] == "web")
        .unwrap()
        .clone();
    assert_eq!(line["subdir"], "/projects/web");
    let add = |path: &str| pool.cli(&format!("client add x --volume v --subdir {path}"));
    add("/projects/none").refused_with(&["/projects/none", "volume v", "make it"]);
    add("/projects/file").refused_with(&["/projects/file", "no directory"]);
    add("/").refused_with(&["top", "leave --subdir out"]);
    add("/projects/../projects").refused_with(&["without '..'"]);
    assert!(!pool.ok("client list").contains(" x "));
    // Read-only, and users of a list, hold beneath it too.
    let m2 = pool.mount_key("v", &pool.client_key("ro", "v", "--subdir /projects --read-only"));
    assert_eq!(fs::read_to_string(m2.path("file")).unwrap(), "x");
    assert_eq!(errno(fs::write(m2.path("new"), "x")), Some(Os::ROFS));
    m2.end();
    fs::set_permissions(m.path("projects/web"), fs::Permissions::from_mode(0o777)).unwrap();
    let m3 =
        pool.mount_key("v", &pool.client_key("squashed", "v", "--subdir /projects/web --squash 1000:100"));
    fs::write(m3.path("new"), "x").unwrap();
    assert_eq!(fs::metadata(m.path("projects/web/new")).unwrap().uid(), 1000);
    m3.end();
    m.end();
}
