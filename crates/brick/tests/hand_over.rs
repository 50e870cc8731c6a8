//! Directories that change the set which answers for them: what they are afterwards, on both bricks of a set.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::pair::Bricks;
use crate::common::*;
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use namespace::TreeState;
use std::collections::BTreeMap;
use std::path::Path;
use wire::codec::Blob;
use wire::op::{Ancestor, EntryName, HandedDir, HandedEntry, Intent, Node, Taken};
use wire::{Change, Errno, Op};

const OTHER: SetId = SetId(2);
const THIRD: SetId = SetId(7);
const TX: OpId = OpId { session: SessionId(3), seq: 8 };
/// A directory of the other set in the root, and one in that, which comes here.
const TOP: Fid = of(OTHER, 1);
const FAR: Fid = of(OTHER, 2);
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

const fn of(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(4), lsn: Lsn(n) }
}

type Names = BTreeMap<String, (Fid, SetId, u32)>;
type Xattrs = BTreeMap<String, Vec<u8>>;

/// An access list that gives user 4242 something.
fn list(mask: u16) -> Vec<u8> {
    let mut v = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [(1u16, 7u16, !0u32), (2, 5, 4242), (4, 5, !0), (0x10, mask, !0), (0x20, 1, !0)] {
        v.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        v.extend(id.to_le_bytes());
    }
    v
}

fn xattrs(of: &[(&str, &[u8])]) -> Xattrs {
    of.iter().map(|(n, value)| ((*n).to_owned(), value.to_vec())).collect()
}

fn with_lists() -> Xattrs {
    xattrs(&[
        ("system.posix_acl_access", &list(5)),
        ("system.posix_acl_default", &list(7)),
        ("user.a", b"value"),
        ("trusted.b", b""),
    ])
}

impl Bricks {
    /// The root is this set's, and the other one has a directory in it.
    fn with_top() -> Bricks {
        let mut b = Bricks::new();
        let (home, node, mode, uid, gid) = (OTHER, Node::Dir, 0o755, 0, 0);
        let (parent, fid, time) = (ROOT, TOP, time(4));
        b.apply(&Change::Create { parent, name: name("top"), fid, home, node, mode, uid, gid, time });
        b
    }

    fn apply(&mut self, change: &Change) {
        self.s.apply(change, b"").unwrap();
    }

    /// They are stopped in order, and both are the same.
    fn stop_alike(&mut self) {
        self.close();
        let [first, second] = [1, 2].map(|n| tree(&self.brick(n)));
        // Nobody asks how old a copy of another set's directory is.
        let is_copy = |seen: &Seen| {
            let tag = disk_format::Tag::decode(&seen.xattrs[disk_format::tag::XATTR.as_bytes()]).unwrap();
            tag.home != SET && tag.stub_kind().is_none()
        };
        for (path, seen) in first.iter().filter(|(_, seen)| !is_copy(seen)) {
            assert_eq!(Some(seen), second.get(path), "{}", path.display());
        }
        assert_eq!(first.len(), second.len());
        self.open();
    }

    /// What all bricks say alike.
    fn all<T: PartialEq + std::fmt::Debug>(&mut self, ask: impl Fn(&mut brick::Brick) -> T) -> T {
        let mut all: Vec<T> = self.s.bricks.iter_mut().map(ask).collect();
        assert_eq!(all[0], all[1]);
        all.remove(0)
    }

    fn names_in(&mut self, dir: Fid) -> Result<Names, Errno> {
        let listed = |b: &mut brick::Brick| b.readdir(dir, 0, true, 64 << 10).map(|(entries, _)| entries);
        let own = |b: &mut brick::Brick| b.entries(dir, 0, 64 << 10).map(drop);
        self.all(own)?;
        let mut names = Names::new();
        for e in self.s.bricks[0].readdir(dir, 0, true, 64 << 10)?.0 {
            if e.home == SET {
                assert_eq!(e.attr.map(|attr| attr.fid), Some(e.fid), "{}", e.name);
            }
            names.insert(e.name.to_string(), (e.fid, e.home, e.kind));
        }
        assert_eq!(listed(&mut self.s.bricks[1]).unwrap().len(), names.len());
        Ok(names)
    }

    fn xattrs_of(&mut self, dir: Fid) -> Xattrs {
        self.all(|b| {
            let names = b.listxattr(dir).unwrap();
            names.iter().map(|n| (n.to_string(), b.getxattr(dir, n).unwrap().unwrap())).collect()
        })
    }

    fn links(&mut self, fid: Fid) -> Result<u32, Errno> {
        self.all(|b| b.attr(fid).map(|attr| attr.nlink))
    }

    /// A file of this set gets a name in the directory of the other one, or loses it.
    fn far_name(&mut self, fid: Fid, drop: Option<&str>, add: Option<&str>) {
        let at = |n: &str| EntryName { dir: FAR.names(), name: name(n) };
        let (drop, add) = (drop.map(at), add.map(at));
        let intent = Intent { tx: TX, coordinator: OTHER, drop: drop.clone(), add: add.clone() };
        self.apply(&Change::PrepareFile { fid, intent });
        self.apply(&Change::EndFile { fid, drop, add, orphan: false, time: time(600) });
    }

    fn enter(&mut self, parent: Fid, n: &str, (fid, home, kind): (Fid, SetId, u32)) {
        let (name, replaced, time) = (name(n), None, time(7));
        self.apply(&Change::Enter { parent, name, fid, home, kind, replaced, time });
    }

    fn set_xattr(&mut self, fid: Fid, n: &str, value: &[u8]) {
        self.s.run(&Op::SetXattr { fid, name: name(n), flags: 0 }, value).unwrap();
    }
}

fn handed(xattrs: &Xattrs, names: &Names) -> HandedDir {
    let held = |(n, (fid, home, kind)): (&String, &(Fid, SetId, u32))| HandedEntry {
        name: name(n),
        fid: *fid,
        home: *home,
        kind: *kind,
    };
    HandedDir {
        mode: 0o3751,
        uid: 1000,
        gid: 1001,
        atime: time(701),
        mtime: time(702),
        ctime: time(703),
        xattrs: xattrs.iter().map(|(n, value)| (name(n), Blob(value.clone()))).collect(),
        entries: names.iter().map(held).collect(),
    }
}

fn take(xattrs: &Xattrs, names: &Names) -> Change {
    let path = vec![Ancestor { fid: TOP, home: OTHER, name: name("top") }];
    Change::TakeDir { fid: FAR, tx: TX, from: OTHER, path, name: name("far"), dir: handed(xattrs, names) }
}

fn others() -> Names {
    let there = |n: &str, set, lsn, kind| (n.to_owned(), (of(set, lsn), set, kind));
    [
        there("file", OTHER, 50, FILE),
        there("link", OTHER, 51, LINK),
        there("third", THIRD, 52, FILE),
        there("fifo", THIRD, 53, 0o010_000),
    ]
    .into()
}

/// What is here of the directory before it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Nothing,
    /// Names that files of this set have in it wait in a folder.
    Folder,
    /// They lie in a copy.
    Copy,
}

/// Bricks to which the directory is to come, and all that is in it.
fn before(kind: Before) -> (Bricks, Names) {
    let (mut b, mut names) = (Bricks::with_top(), others());
    if kind == Before::Nothing {
        return (b, names);
    }
    let [two, only] = ["two", "only"].map(|n| b.s.file(ROOT, n));
    let link = b.s.make(ROOT, "ours", Node::Symlink { target: Blob(b"target".to_vec()) }, 0o777);
    for (n, fid, kind) in [("two", two, FILE), ("only", only, FILE), ("ours", link, LINK)] {
        b.far_name(fid, None, Some(n));
        names.insert(n.to_owned(), (fid, SET, kind));
    }
    b.sync();
    for n in ["only", "ours"] {
        b.s.run(&Op::Unlink { parent: ROOT, name: name(n) }, b"").unwrap();
    }
    while kind == Before::Copy && !b.have("top/far/only") {
        let path = vec![Ancestor { fid: TOP, home: OTHER, name: name("top") }];
        b.apply(&Change::Relocate { fid: FAR.names(), path, name: name("far") });
        b.sync();
    }
    (b, names)
}

/// The directory is as it was handed over, and this set answers for it.
fn is_ours(b: &mut Bricks, dir: Fid, xattrs: &Xattrs, names: &Names) {
    let attr = b.all(|b| b.attr(dir)).unwrap();
    assert_eq!((attr.home, attr.mode, attr.uid, attr.gid), (SET, 0o043_751, 1000, 1001));
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (time(701), time(702), time(703)));
    assert_eq!(b.names_in(dir).as_ref(), Ok(names));
    assert_eq!(&b.xattrs_of(dir), xattrs);
    for (n, (fid, ..)) in names {
        assert_eq!(b.all(|b| b.entry(dir, &name(n))).unwrap().map(|e| e.fid), Some(*fid), "{n}");
    }
    assert_eq!(b.all(|b| b.attr_of_any(dir.names()).map(drop)), Err(Errno::ESTALE), "no name is left there");
}

#[test]
fn a_directory_comes_with_all_that_is_in_it() {
    for kind in [Before::Nothing, Before::Folder, Before::Copy] {
        let (mut b, names) = before(kind);
        let xattrs = with_lists();
        b.apply(&take(&xattrs, &names));
        for round in 0..3 {
            assert_eq!(b.all(|b| b.attr(FAR)), Err(Errno::EAGAIN), "{kind:?}");
            assert_eq!(b.all(|b| b.entry(FAR, &name("two"))), Err(Errno::EAGAIN), "{kind:?}");
            assert_eq!(b.all(|b| b.lookup(FAR, &name("two"))), Err(Errno::EAGAIN), "{kind:?}");
            assert_eq!(b.all(|b| TreeState::xattr(b, FAR, &name("user.a"))), Err(Errno::EAGAIN), "{kind:?}");
            assert_eq!(b.all(|b| b.is_empty(FAR)), Err(Errno::EAGAIN), "{kind:?}");
            assert_eq!(b.all(|b| b.taken(FAR)), Ok(Some(Taken { tx: TX, from: OTHER })), "{kind:?}");
            assert_eq!(b.all(|b| b.is_pending(FAR)), Ok(true), "{kind:?}");
            if round == 0 { b.kill() } else { b.stop_alike() }
        }
        b.apply(&Change::EndTransaction { fid: FAR, keep: true });
        for round in 0..3 {
            is_ours(&mut b, FAR, &xattrs, &names);
            assert_eq!(b.all(|b| b.taken(FAR)), Ok(None), "{kind:?}");
            assert_eq!(b.all(|b| b.location_of(FAR)).map(|at| (at.parent, at.parent_home)), Ok((TOP, OTHER)));
            if round == 0 { b.kill() } else { b.stop_alike() }
        }
        if let Some((two, ..)) = names.get("two") {
            assert_eq!(b.links(*two), Ok(2), "{kind:?}");
        }
        // It is like any other one.
        let new = b.s.file(FAR, "new");
        let to =
            Op::Rename { parent: FAR, name: name("new"), to_parent: ROOT, to_name: name("new"), flags: 0 };
        b.s.run(&to, b"").unwrap();
        assert_eq!(b.links(new), Ok(1));
        b.stop_alike();
    }
}

/// What was taken for a transaction that came to nothing leaves nothing behind.
#[test]
fn a_directory_that_was_taken_in_vain_is_what_it_was() {
    for kind in [Before::Nothing, Before::Folder, Before::Copy] {
        let (mut b, names) = before(kind);
        b.stop_alike();
        let seen = |b: &Bricks| {
            // How old the copy above it is no one asks.
            let mut seen = tree(&b.brick(1));
            seen.remove(Path::new("top"));
            seen.into_iter()
                .map(|(path, seen)| (path, seen.mode & 0o170_000, seen.nlink, seen.content))
                .collect::<Vec<_>>()
        };
        let wanted = seen(&b);
        let far = if kind == Before::Nothing { Err(Errno::ESTALE) } else { b.names_in(FAR.names()) };
        b.apply(&take(&with_lists(), &names));
        b.apply(&Change::GiveDir { fid: FAR, to: OTHER, time: time(9) });
        for round in 0..3 {
            assert_eq!(b.all(|b| b.attr(FAR).map(drop)), Err(Errno::ESTALE), "{kind:?}");
            assert_eq!(b.names_in(FAR.names()), far, "{kind:?}");
            for (fid, home, _) in names.values() {
                assert_eq!(b.all(|b| b.attr_of_any(*fid).is_ok()), *home == SET, "{kind:?}");
            }
            if round == 0 { b.kill() } else { b.stop_alike() }
        }
        if kind != Before::Folder {
            assert_eq!(seen(&b), wanted, "{kind:?}");
        }
        for (n, (fid, ..)) in names.iter().filter(|(_, (_, home, _))| *home == SET) {
            let links = b.links(*fid).unwrap();
            b.far_name(*fid, Some(n), None);
            let left = if links == 1 { Err(Errno::ESTALE) } else { Ok(1) };
            assert_eq!(b.links(*fid), left, "{kind:?}, {n}");
        }
        b.stop_alike();
        assert!(!b.have("top/far"), "{kind:?}: the copy is of no use");
    }
}

/// A directory of this set with files of all kinds, and its names.
fn own_dir(b: &mut Bricks) -> (Fid, Names) {
    let dir = b.s.dir(ROOT, "dir");
    let [two, only] = ["two", "only"].map(|n| b.s.file(dir, n));
    b.s.run(&Op::Link { fid: two, parent: ROOT, name: name("other") }, b"").unwrap();
    let link = b.s.make(dir, "ours", Node::Symlink { target: Blob(b"target".to_vec()) }, 0o777);
    let mut names = others();
    for (n, who) in &names {
        b.enter(dir, n, *who);
    }
    for (n, fid, kind) in [("two", two, FILE), ("only", only, FILE), ("ours", link, LINK)] {
        names.insert(n.to_owned(), (fid, SET, kind));
    }
    b.set_xattr(dir, "system.posix_acl_access", &list(7));
    b.set_xattr(dir, "system.posix_acl_default", &list(7));
    b.set_xattr(dir, "user.old", b"old");
    (dir, names)
}

fn own(names: &Names) -> Names {
    names.iter().filter(|(_, (_, home, _))| *home == SET).map(|(n, e)| (n.clone(), *e)).collect()
}

/// The directory is another set's.
fn has_gone(b: &mut Bricks, dir: Fid, names: &Names) {
    assert_eq!(b.all(|b| b.attr(dir).map(drop)), Err(Errno::ESTALE));
    assert_eq!(b.all(|b| b.lookup(dir, &name("two"))), Err(Errno::ESTALE));
    assert_eq!(b.all(|b| b.entries(dir, 0, 4096).map(drop)), Err(Errno::ESTALE));
    assert_eq!(b.all(|b| b.attr_of_any(dir).map(|attr| attr.home)), Ok(OTHER));
    let entry = b.all(|b| b.lookup(ROOT, &name("dir"))).unwrap().unwrap();
    assert_eq!((entry.fid, entry.home), (dir, OTHER), "the entry is this set's still");
    assert_eq!(b.names_in(dir.names()), Ok(own(names)));
    for (n, (fid, home, _)) in names {
        assert_eq!(b.all(|b| b.attr_of_any(*fid).is_ok()), *home == SET, "{n}");
        assert_eq!(b.have(Path::new("dir").join(n)), *home == SET, "{n}");
    }
    assert_eq!(b.xattrs_of(dir), Xattrs::new(), "they are the other set's");
}

#[test]
fn a_directory_that_goes_is_a_copy() {
    let mut b = Bricks::with_top();
    let (dir, names) = own_dir(&mut b);
    b.apply(&Change::GiveDir { fid: dir, to: OTHER, time: time(9) });
    for round in 0..3 {
        has_gone(&mut b, dir, &names);
        assert_eq!(b.links(names["two"].0), Ok(2));
        if round == 0 { b.kill() } else { b.stop_alike() }
    }
}

/// What is placed beneath the copy inherits nothing from the time when the directory was this set's.
#[test]
fn a_directory_that_has_gone_leaves_no_access_list_to_inherit() {
    let mut b = Bricks::with_top();
    let (dir, _) = own_dir(&mut b);
    b.apply(&Change::GiveDir { fid: dir, to: OTHER, time: time(9) });
    let (fid, path) = (of(SET, 900), vec![Ancestor { fid: dir, home: OTHER, name: name("dir") }]);
    let (mode, uid, gid, time) = (0o755, 0, 0, time(10));
    b.apply(&Change::PrepareMkdir { path, name: name("beneath"), fid, mode, uid, gid, time });
    b.apply(&Change::EndTransaction { fid, keep: true });
    assert_eq!(
        (b.all(|b| b.attr(fid).map(|attr| attr.mode)), b.xattrs_of(fid)),
        (Ok(0o040_755), Xattrs::new())
    );
}

/// It goes and comes back, again and again, and changes while it is away: nothing of what it was stays.
#[test]
fn a_directory_that_comes_back_is_as_the_other_set_had_it() {
    for kill in [false, true] {
        let mut b = Bricks::with_top();
        let (dir, mut names) = own_dir(&mut b);
        for round in 0..4_u64 {
            b.apply(&Change::GiveDir { fid: dir, to: OTHER, time: time(9) });
            has_gone(&mut b, dir, &names);
            if kill {
                b.kill()
            }
            // One of its files leaves it, one comes, another set's takes a name.
            let (n, file) = (format!("new{round}"), b.s.file(ROOT, "new"));
            let place = |n: &str| Some(EntryName { dir: dir.names(), name: name(n) });
            let (gone, (out, ..)) = own(&names).pop_first().unwrap();
            for (fid, drop, add) in [(file, None, place(&n)), (out, place(&gone), None)] {
                let intent = Intent { tx: TX, coordinator: OTHER, drop: drop.clone(), add: add.clone() };
                b.apply(&Change::PrepareFile { fid, intent });
                b.apply(&Change::EndFile { fid, drop, add, orphan: false, time: time(600) });
            }
            b.sync();
            b.s.run(&Op::Unlink { parent: ROOT, name: name("new") }, b"").unwrap();
            names.insert(n, (file, SET, FILE));
            names.insert(gone, (of(OTHER, 60 + round), OTHER, FILE));
            names.remove("file");
            let xattrs = if round % 2 == 0 { xattrs(&[("user.round", b"1")]) } else { with_lists() };
            let (path, tx, dir_name) = (vec![], OpId { seq: round, ..TX }, name("dir"));
            let handed = handed(&xattrs, &names);
            b.apply(&Change::TakeDir { fid: dir, tx, from: OTHER, path, name: dir_name, dir: handed });
            if kill {
                b.kill()
            }
            b.apply(&Change::EndTransaction { fid: dir, keep: true });
            is_ours(&mut b, dir, &xattrs, &names);
            if kill {
                b.stop_alike()
            }
        }
        b.stop_alike();
    }
}

/// An attribute that was removed where the directory lived meanwhile does not come back with it.
#[test]
fn a_directory_has_the_attributes_that_it_came_with_and_no_older_ones() {
    let (mut b, none) = (Bricks::with_top(), Names::new());
    b.apply(&take(&xattrs(&[("user.a", b"1"), ("user.b", b"1")]), &none));
    b.apply(&Change::GiveDir { fid: FAR, to: OTHER, time: time(4) });
    let now = xattrs(&[("user.b", b"2")]);
    b.apply(&take(&now, &none));
    b.apply(&Change::EndTransaction { fid: FAR, keep: true });
    assert_eq!(b.xattrs_of(FAR), now);
    b.stop_alike();
}
