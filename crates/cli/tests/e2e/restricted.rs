//! Renames, exchanges and links between sets with keys that do not let their holders do everything: each set checks its own part, and a
//! client that was changed gets no further.

use crate::harness::{Mounted, Pool, eventually_ok, files, run};
use crate::sets::{sets, spread};
use crate::subdir::{TWO, connect, errno, name, object, volume};
use client::{Client, Object, Payload};
use rustix::fs::{CWD, FileType, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno as Os;
use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use wire::op::rename_flags::EXCHANGE;
use wire::{Errno, Op};

const THREE: [(usize, &str); 6] = [(0, "b1"), (1, "b1"), (1, "b2"), (2, "b2"), (2, "b3"), (0, "b3")];

const ANN: u32 = 1000;
const BOB: u32 = 1001;
const ROOT: u32 = 0;

/// A volume with a directory of each set, `t0` and so on, and in each of them the same.
struct Trees {
    pool: Pool,
    all: Mounted,
}

fn exchange(one: &Path, two: &Path) -> rustix::io::Result<()> {
    renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE)
}

/// What is in each tree: a name, which ends in `/` for a directory, a mode and an owner.
const IN_EACH: [(&str, u32, u32); 16] = [
    ("mine/", 0o755, ANN),
    ("shut/", 0o755, ROOT),
    ("open/", 0o777, ROOT),
    ("sticky/", 0o1777, ROOT),
    ("bobs/", 0o755, BOB),
    ("mine/file", 0o600, ANN),
    ("mine/dir/", 0o755, ANN),
    ("mine/dir/in", 0o644, ANN),
    ("shut/file", 0o666, ROOT),
    ("open/secret", 0o600, ROOT),
    ("open/readable", 0o644, ROOT),
    ("open/writable", 0o666, ROOT),
    ("open/setuid", 0o4777, ROOT),
    ("open/dir/", 0o755, ROOT),
    ("sticky/theirs", 0o666, ROOT),
    ("bobs/file", 0o644, BOB),
];

impl Trees {
    fn new() -> Trees {
        let pool = Pool::new(3);
        pool.volume("v", 2, &THREE);
        let all = pool.mount("v");
        fs::set_permissions(all.path(""), Permissions::from_mode(0o755)).unwrap();
        let homes = spread(&sets(&pool, &THREE), &all);
        for set in 0..3 {
            let dir = homes.iter().find(|(_, home)| **home == set).unwrap().0;
            let top = all.path(&format!("t{set}"));
            fs::rename(all.path(dir), &top).unwrap();
            fs::set_permissions(&top, Permissions::from_mode(0o755)).unwrap();
            for (what, mode, owner) in IN_EACH {
                let path = top.join(what.trim_end_matches('/'));
                if what.ends_with('/') {
                    fs::create_dir(&path).unwrap();
                } else {
                    fs::write(&path, format!("{what} of {set}")).unwrap();
                }
                chown(&path, Some(owner), Some(owner)).unwrap();
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
        }
        let trees = Trees { pool, all };
        // The pool has to know that all servers do: then directories go between any sets.
        eventually_ok("directories move", || {
            let [here, there] = [trees.path(0, "moves"), trees.path(1, "moves")];
            let _there = fs::create_dir(&here);
            fs::rename(&here, &there).and_then(|()| fs::rename(&there, trees.path(2, "moves"))).map_err(|e| {
                let _back = fs::rename(&there, &here);
                e.to_string()
            })
        });
        fs::remove_dir(trees.path(2, "moves")).unwrap();
        trees
    }

    /// A path as everybody's mount sees it.
    fn path(&self, set: usize, path: &str) -> PathBuf {
        self.all.path(&format!("t{set}")).join(path)
    }

    fn squashed(&self) -> PathBuf {
        self.pool.client_key("web", "v", &format!("--squash {ANN}:{ANN}"))
    }

    /// Nothing was moved that may not be.
    fn are_whole(&self) {
        for set in 0..3 {
            for (what, mode, owner) in IN_EACH {
                let meta = fs::symlink_metadata(self.path(set, what.trim_end_matches('/'))).unwrap();
                let of = (meta.mode() & 0o7777, meta.uid());
                assert_eq!(of, (mode, owner), "{what} of {set}");
                if !meta.is_dir() {
                    let text = fs::read_to_string(self.path(set, what)).unwrap();
                    assert_eq!((text, meta.nlink()), (format!("{what} of {set}"), 1));
                }
            }
        }
    }
}

#[test]
fn a_squashed_mount_renames_exchanges_and_links_between_sets() {
    let trees = Trees::new();
    let m = trees.pool.mount_key("v", &trees.squashed());
    let at = |set: usize, path: &str| m.path(&format!("t{set}")).join(path);
    let ino = |path: PathBuf| fs::symlink_metadata(path).unwrap().ino();
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2)] {
        // A file goes there, on to the third set, and comes home; it is the same one, also while it is open.
        let (file, before) = (at(from, "mine/file"), ino(at(from, "mine/file")));
        let mut open = File::open(&file).unwrap();
        let third = 3 - from - to;
        fs::rename(&file, at(to, "mine/moved")).unwrap();
        fs::rename(at(to, "mine/moved"), at(third, "open/moved")).unwrap();
        let seen = trees.path(third, "open/moved");
        assert_eq!((fs::read_to_string(&seen).unwrap(), ino(seen)), (format!("mine/file of {from}"), before));
        fs::rename(at(third, "open/moved"), &file).unwrap();
        let mut text = String::new();
        open.rewind().unwrap();
        open.read_to_string(&mut text).unwrap();
        assert_eq!((text, ino(file.clone())), (format!("mine/file of {from}"), before));
        // An exchange, of files that lived with their names before, and of those that do not; in a sticky directory of his own.
        fs::write(at(to, "sticky/own"), "own").unwrap();
        for (dir, there, here) in [(from, "mine/file of", "own"), (third, "own", "mine/file of")] {
            let names = (at(from, "mine/file"), at(to, "sticky/own"));
            exchange(&names.0, &names.1).unwrap();
            let seen = [trees.path(to, "sticky/own"), trees.path(from, "mine/file")];
            let texts = seen.map(|path| fs::read_to_string(path).unwrap());
            assert!(texts[0].starts_with(there) && texts[1].starts_with(here), "{texts:?}");
            fs::rename(&names.1, at(dir, "open/away")).unwrap();
            fs::rename(at(dir, "open/away"), &names.1).unwrap();
        }
        std::os::unix::fs::symlink("there", at(from, "open/link")).unwrap();
        exchange(&at(from, "open/link"), &at(to, "sticky/own")).unwrap();
        assert_eq!(fs::read_link(trees.path(to, "sticky/own")).unwrap(), PathBuf::from("there"));
        fs::remove_file(at(to, "sticky/own")).unwrap();
        fs::remove_file(at(from, "open/link")).unwrap();
        // A device, which he could not make.
        let (null, device) = (rustix::fs::makedev(1, 3), trees.path(from, "open/null"));
        mknodat(CWD, &device, FileType::CharacterDevice, 0o666.into(), null).unwrap();
        exchange(&at(from, "open/null"), &at(to, "mine/file")).unwrap();
        assert!(fs::metadata(trees.path(to, "mine/file")).unwrap().file_type().is_char_device());
        exchange(&at(to, "mine/file"), &at(from, "open/null")).unwrap();
        fs::remove_file(at(from, "open/null")).unwrap();
        // A link, and over it a rename, upon which one name is left.
        fs::hard_link(&file, at(to, "mine/link")).unwrap();
        assert_eq!(fs::metadata(trees.path(to, "mine/link")).unwrap().nlink(), 2);
        fs::write(at(from, "mine/new"), "new").unwrap();
        fs::rename(at(from, "mine/new"), at(to, "mine/link")).unwrap();
        assert_eq!(fs::read_to_string(trees.path(to, "mine/link")).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().nlink(), 1);
        fs::remove_file(at(to, "mine/link")).unwrap();
        // What anybody could write may be linked, though it is somebody else's.
        fs::hard_link(at(from, "open/writable"), at(to, "mine/link")).unwrap();
        File::options().append(true).open(at(to, "mine/link")).unwrap().write_all(b"").unwrap();
        fs::remove_file(at(to, "mine/link")).unwrap();
        // A file of his own in a sticky directory.
        fs::write(at(from, "sticky/own"), "own").unwrap();
        fs::rename(at(from, "sticky/own"), at(to, "sticky/own")).unwrap();
        // It lives elsewhere now, and is his all the same.
        fs::rename(at(to, "sticky/own"), at(to, "sticky/again")).unwrap();
        fs::rename(at(to, "sticky/again"), at(third, "sticky/own")).unwrap();
        fs::remove_file(at(third, "sticky/own")).unwrap();
        // A directory, in the same way; then over an empty one.
        let before = ino(at(from, "mine/dir"));
        fs::rename(at(from, "mine/dir"), at(to, "mine/moved")).unwrap();
        fs::rename(at(to, "mine/moved"), at(third, "open/moved")).unwrap();
        let seen = trees.path(third, "open/moved");
        assert_eq!(fs::read_to_string(seen.join("in")).unwrap(), format!("mine/dir/in of {from}"));
        assert_eq!(ino(seen), before);
        fs::create_dir(at(from, "mine/dir")).unwrap();
        fs::rename(at(third, "open/moved"), at(from, "mine/dir")).unwrap();
        assert_eq!(ino(trees.path(from, "mine/dir")), before);
    }
    m.end();
    trees.are_whole();
}

#[test]
fn what_a_squashed_user_may_not_do_is_refused_between_sets_too() {
    let trees = Trees::new();
    // Directories of the third set: their entries are the first one's.
    for (name, owner) in [("theirs", ROOT), ("his", ANN)] {
        fs::create_dir(trees.path(2, name)).unwrap();
        chown(trees.path(2, name), Some(owner), Some(owner)).unwrap();
        fs::rename(trees.path(2, name), trees.path(0, "open").join(name)).unwrap();
    }
    let m = trees.pool.mount_key("v", &trees.squashed());
    let at = |set: usize, path: &str| m.path(&format!("t{set}")).join(path);
    for (from, to, said) in [
        ("shut/file", "mine/x", Os::ACCESS),
        ("mine/file", "shut/x", Os::ACCESS),
        ("mine/file", "shut/file", Os::ACCESS),
        ("bobs/file", "mine/x", Os::ACCESS),
        ("sticky/theirs", "mine/x", Os::PERM),
        ("mine/file", "sticky/theirs", Os::PERM),
        ("open/dir", "mine/x", Os::ACCESS),
        ("open/theirs", "mine/x", Os::ACCESS),
        ("open/missing", "mine/x", Os::NOENT),
    ] {
        assert_eq!(errno(fs::rename(at(0, from), at(1, to))), Some(said), "{from} to {to}");
    }
    // Within the set that has its entry.
    assert_eq!(errno(fs::rename(at(0, "open/theirs"), at(0, "mine/x"))), Some(Os::ACCESS));
    fs::rename(at(0, "open/his"), at(0, "mine/his")).unwrap();
    fs::rename(at(0, "mine/his"), at(0, "open/his")).unwrap();
    // It comes to its own set, which looks itself.
    assert_eq!(errno(fs::rename(at(0, "open/theirs"), at(2, "mine/x"))), Some(Os::ACCESS));
    fs::rename(at(0, "open/his"), at(1, "mine/his")).unwrap();
    fs::rename(at(1, "mine/his"), at(2, "mine/his")).unwrap();
    for (file, dir, said) in [
        ("open/secret", "mine", Os::PERM),
        ("open/readable", "mine", Os::PERM),
        ("open/setuid", "mine", Os::PERM),
        ("bobs/file", "mine", Os::PERM),
        ("open/writable", "shut", Os::ACCESS),
    ] {
        let linked = fs::hard_link(at(0, file), at(1, dir).join("link"));
        assert_eq!(errno(linked), Some(said), "{file} to {dir}");
    }
    for (one, two, said) in [
        ("shut/file", "mine/file", Os::ACCESS),
        ("bobs/file", "mine/file", Os::ACCESS),
        ("sticky/theirs", "mine/file", Os::PERM),
        ("open/dir", "mine/file", Os::ACCESS),
        ("open/theirs", "mine/file", Os::ACCESS),
        ("open/missing", "mine/file", Os::NOENT),
    ] {
        // Whichever of the two sets decides.
        for (one, two) in [(at(0, one), at(1, two)), (at(1, two), at(0, one))] {
            assert_eq!(exchange(&one, &two), Err(said), "{one:?} and {two:?}");
        }
    }
    m.end();
    trees.are_whole();
}

/// Each user of a list has his own rights, and his groups are those of the key.
#[test]
fn users_of_a_list_rename_exchange_and_link_between_sets() {
    let trees = Trees::new();
    let (all, open) = (&trees.all, |set| trees.path(set, "open/team"));
    for set in 0..2 {
        fs::create_dir(open(set)).unwrap();
        chown(open(set), Some(ROOT), Some(27)).unwrap();
        fs::set_permissions(open(set), Permissions::from_mode(0o770)).unwrap();
    }
    fs::write(open(0).join("file"), "ours").unwrap();
    let key = trees.pool.client_key("web", "v", &format!("--users {ANN}:{ANN}+27,{BOB}:{BOB}"));
    let m = trees.pool.mount_key("v", &key);
    let script = |uid: u32, groups: &str, what: &str, from: &str, to: &str| {
        // mv would copy what cannot be renamed.
        let line = format!("{what}($ARGV[0], $ARGV[1]) or die $!");
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={uid}"), format!("--groups={groups}")]);
        command.args(["perl", "-e", &line]).args([m.path(from), m.path(to)]);
        run(command)
    };
    let moved = script(ANN, "1000,27", "rename", "t0/open/team/file", "t1/open/team/file");
    assert_eq!(moved.code, Some(0), "{}", moved.stderr);
    assert_eq!(fs::read_to_string(open(1).join("file")).unwrap(), "ours");
    for (uid, what, from, to) in [
        (BOB, "rename", "t1/mine/file", "t0/bobs/x"),
        (ANN, "rename", "t1/mine/file", "t0/bobs/x"),
        (BOB, "link", "t1/mine/file", "t0/bobs/x"),
    ] {
        let refused = script(uid, &uid.to_string(), what, from, to);
        assert!(
            refused.stderr.contains("ermission denied") || refused.stderr.contains("not permitted"),
            "{what}"
        );
    }
    let linked = script(ANN, "1000", "link", "t1/mine/file", "t0/mine/link");
    assert_eq!(linked.code, Some(0), "{}", linked.stderr);
    fs::remove_file(all.path("t0/mine/link")).unwrap();
    m.end();
    // One that checks nothing itself.
    let client = connect(&trees.pool, key);
    let trusted = connect(&trees.pool, trees.pool.client_key("all", "v", ""));
    let dir = |path: &str| object(&trusted, path);
    let file = name("file");
    for (uid, said) in [(BOB, Errno::EACCES), (ROOT, Errno::EACCES), (1002, Errno::EACCES)] {
        client::user::act_as(uid);
        let renamed = client.rename((dir("t1/mine"), file.clone()), (dir("t0/bobs"), name("x")), 0);
        assert_eq!(renamed, Err(said), "{uid}");
        let mines = ((dir("t1/mine"), file.clone()), (dir("t0/mine"), file.clone()));
        assert_eq!(client.rename(mines.0, mines.1, EXCHANGE), Err(said), "{uid}");
    }
    client::user::act_as(BOB);
    assert_eq!(client.link(dir("t1/mine/file"), dir("t0/bobs"), name("x")), Err(Errno::EPERM));
    client.rename((dir("t1/bobs"), file.clone()), (dir("t0/bobs"), name("x")), 0).unwrap();
    client.rename((dir("t0/bobs"), name("x")), (dir("t1/bobs"), file.clone()), 0).unwrap();
    for there in ["t0/bobs/file of 1", "t0/bobs/file of 0"] {
        client.rename((dir("t1/bobs"), file.clone()), (dir("t0/bobs"), file.clone()), EXCHANGE).unwrap();
        let (path, end) = there.split_at("t0/bobs/file".len());
        assert_eq!(fs::read_to_string(all.path(path)).unwrap(), format!("bobs/file{end}"));
    }
    client::user::act_as(0);
    drop((client, trusted));
    trees.are_whole();
}

fn move_in(from: Object, what: &str, to: Object, flags: u32) -> Op {
    let (name, to_name) = (name(what), name("moved"));
    Op::MoveIn { from: from.home, parent: from.fid, name, to_parent: to.fid, to_name, flags }
}

fn link_in(Object { fid, home }: Object, to: Object) -> Op {
    Op::LinkIn { fid, home, parent: to.fid, name: name("link") }
}

fn ask(client: &Client, to: Object, op: Op) -> Option<Errno> {
    client.call(to.home, op, &[], &mut Payload::new()).err()
}

/// A client that was not changed looks for directories among all sets.
fn ask_alone(client: &Client, to: Object, op: Op) -> Option<Errno> {
    client.call_alone(to.home, op).err()
}

/// It names sets that do not answer for what it wants, and folders that users do not see.
#[test]
fn a_changed_client_gets_nowhere_by_naming_other_sets() {
    let trees = Trees::new();
    let trusted = connect(&trees.pool, trees.pool.client_key("all", "v", ""));
    let client = connect(&trees.pool, trees.squashed());
    let at = |path: &str| object(&trusted, path);
    let (shut, open, to) = (at("t0/shut"), at("t0/open"), at("t1/mine"));
    // A file of the first set that has a name in a directory of the second.
    trusted.link(at("t0/open/secret"), at("t1/open"), name("stub")).unwrap();
    let far = at("t1/open");
    for home in client.map().sets.iter().map(|view| view.set).filter(|home| *home != to.home) {
        let of = |object: Object| Object { home, ..object };
        let said = if home == shut.home { Errno::EACCES } else { Errno::ESTALE };
        assert_eq!(ask_alone(&client, to, move_in(of(shut), "file", to, 0)), Some(said), "{home}");
        let said = if home == shut.home { Errno::EPERM } else { Errno::ESTALE };
        assert_eq!(ask_alone(&client, to, link_in(of(at("t0/open/secret")), to)), Some(said), "{home}");
        let folder = Object { fid: far.fid.names(), home };
        assert_eq!(ask_alone(&client, to, move_in(folder, "stub", to, 0)), Some(Errno::ESTALE), "{home}");
        assert_eq!(ask_alone(&client, to, link_in(folder, to)), Some(Errno::ESTALE), "{home}");
        // The name of this set may be taken.
        let mine = name("file");
        let exchange = |from: Object, what: &str| {
            let Op::MoveIn { from, parent, name, to_parent, flags, .. } = move_in(from, what, to, EXCHANGE)
            else {
                panic!("it is one")
            };
            Op::MoveIn { from, parent, name, to_parent, to_name: mine.clone(), flags }
        };
        let said = if home == shut.home { Errno::EACCES } else { Errno::ESTALE };
        assert_eq!(ask_alone(&client, to, exchange(of(shut), "file")), Some(said), "{home}");
        assert_eq!(ask_alone(&client, to, exchange(folder, "stub")), Some(Errno::ESTALE), "{home}");
    }
    let nowhere = Object { home: ids::SetId(77), ..open };
    assert_eq!(ask_alone(&client, to, move_in(nowhere, "readable", to, 0)), Some(Errno::ESTALE));
    assert_eq!(
        ask_alone(&client, to, link_in(Object { home: ids::SetId(77), ..at("t0/open/writable") }, to)),
        Some(Errno::ESTALE)
    );
    // What only sets ask each other.
    let right = wire::rights::Right::Link { fid: at("t0/open/secret").fid };
    let question = Op::CheckRight { right, user: None, within: None };
    for of in [&client, &trusted] {
        assert_eq!(ask_alone(of, open, question.clone()), Some(Errno::EPERM));
    }
    trusted.unlink(far, name("stub")).unwrap();
    drop((client, trusted));
    trees.are_whole();
}

#[test]
fn a_mount_of_a_directory_renames_exchanges_and_links_between_sets() {
    let pool = Pool::new(2);
    let all = volume(&pool, &TWO);
    let m = pool.mount_key("v", &pool.client_key("web", "v", "--subdir /p"));
    for (from, to) in [("s0", "s1"), ("s1", "s0"), ("s1", ""), ("", "s1")] {
        let at = |dir: &str, name: &str| m.path(dir).join(name);
        fs::write(at(from, "new"), from).unwrap();
        fs::hard_link(at(from, "new"), at(to, "link")).unwrap();
        fs::rename(at(from, "new"), at(to, "moved")).unwrap();
        let seen = all.path("p").join(to);
        assert_eq!(fs::read_to_string(seen.join("moved")).unwrap(), from);
        assert_eq!(fs::metadata(seen.join("link")).unwrap().nlink(), 2);
        File::options().append(true).open(at(to, "moved")).unwrap().write_all(b"!").unwrap();
        assert_eq!(fs::read_to_string(at(to, "link")).unwrap(), format!("{from}!"));
        // To and fro, with what it is by now a file of another set.
        fs::rename(at(to, "moved"), at(from, "back")).unwrap();
        fs::remove_file(at(to, "link")).unwrap();
        fs::remove_file(at(from, "back")).unwrap();
        fs::create_dir(at(from, "dir")).unwrap();
        fs::write(at(from, "dir/in"), "in").unwrap();
        eventually_ok("the directory moves", || {
            fs::rename(at(from, "dir"), at(to, "dir2")).map_err(|e| e.to_string())
        });
        assert_eq!(fs::read_to_string(seen.join("dir2/in")).unwrap(), "in");
        assert_eq!(fs::read_to_string(at(to, "dir2/in")).unwrap(), "in");
        fs::remove_dir_all(at(to, "dir2")).unwrap();
    }
    // To and fro; both are open meanwhile, and are found by their new names.
    let files = [m.path("s0/file"), m.path("s1/file")];
    for texts in [["p1", "p0"], ["p0", "p1"]] {
        let mut open = files.each_ref().map(|path| File::options().append(true).open(path).unwrap());
        exchange(&files[0], &files[1]).unwrap();
        open.iter_mut().for_each(|file| file.write_all(b"").unwrap());
        assert_eq!(files.each_ref().map(|path| fs::read_to_string(path).unwrap()), texts);
        fs::hard_link(&files[0], m.path("s1/link")).unwrap();
        fs::remove_file(m.path("s1/link")).unwrap();
    }
    m.end();
    all.end();
}

/// Neither into the directory, nor out of it, nor by a file that it has not shown.
#[test]
fn nothing_comes_into_a_keys_directory_or_leaves_it() {
    let pool = Pool::new(2);
    let all = volume(&pool, &TWO);
    let trusted = connect(&pool, pool.client_key("all", "v", ""));
    let client = connect(&pool, pool.client_key("web", "v", "--subdir /p"));
    let at = |path: &str| object(&trusted, path);
    let homes: Vec<ids::SetId> = client.map().sets.iter().map(|view| view.set).collect();
    for (from, to) in [("o/s0", "p/s1"), ("o/s1", "p/s0"), ("p/s0", "o/s1"), ("p/s1", "o/s0"), ("o", "p/s1")]
    {
        for home in &homes {
            let (dir, file, to) = (at(from), at(&format!("{from}/file")), at(to));
            let of = |object: Object| Object { home: *home, ..object };
            for op in [move_in(of(dir), "file", to, 0), link_in(of(file), to)] {
                let said = ask(&client, to, op.clone());
                assert_eq!(said, Some(Errno::ESTALE), "{from} of {home}: {op:?}");
            }
            let (name, to_name, flags) = (name("file"), name("file"), EXCHANGE);
            let op = Op::MoveIn { from: *home, parent: dir.fid, name, to_parent: to.fid, to_name, flags };
            assert_eq!(ask(&client, to, op), Some(Errno::ESTALE), "{from} of {home}");
        }
    }
    // The directory itself is not beneath it.
    let parent = at("");
    assert_eq!(ask(&client, at("p/s1"), move_in(parent, "p", at("p/s1"), 0)), Some(Errno::ESTALE));
    // A file beneath it has to be shown before, which the client's own calls do by themselves.
    let file = at("p/s0/file");
    assert_eq!(ask(&client, at("p/s1"), link_in(file, at("p/s1"))), Some(Errno::ESTALE), "a guess");
    let known = object(&client, "s0/file");
    client.link(known, object(&client, "s1"), name("link")).unwrap();
    client.unlink(object(&client, "s1"), name("link")).unwrap();
    for set in ["s0", "s1"] {
        let text = fs::read_to_string(all.path("p").join(set).join("file")).unwrap();
        assert_eq!(text, format!("p{}", &set[1..]));
        assert_eq!(files::names(&all.path("o").join(set)), ["file"]);
    }
    drop((client, trusted));
    all.end();
}
