//! Directories that come to a set or leave it, on a disk in memory: how they are before, the change, and what is seen of them.

use super::common::*;
use super::disk::Disk;
use super::entries::ancestors;
use brick::Brick;
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use namespace::TreeState as _;
use std::collections::BTreeMap;
use wire::codec::Blob;
use wire::op::{EntryName, HandedDir, HandedEntry, Intent, Node};
use wire::{Change, Errno, Op};

pub(super) const OTHER: SetId = SetId(9);
pub(super) const THIRD: SetId = SetId(7);
pub(super) const TX: OpId = OpId { session: SessionId(3), seq: 8 };
/// What the directory that comes here lies in, and the directory itself.
pub(super) const TOP: Fid = of(OTHER, 1);
pub(super) const FAR: Fid = of(OTHER, 2);

const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

pub(super) const fn of(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(1), lsn: Lsn(n) }
}

/// What names lead to: the fid, its set, and its kind.
pub(super) type Names = BTreeMap<String, (Fid, SetId, u32)>;

/// A directory, all that is to be in it as its set sees it, and a change about it that is not made yet.
pub(super) struct Start {
    pub(super) s: Set,
    pub(super) dir: Fid,
    pub(super) names: Names,
    pub(super) change: Change,
}

impl Start {
    /// The names that lead to files of this set.
    pub(super) fn own(&self) -> Names {
        self.names.iter().filter(|(_, (_, home, _))| *home == SET).map(|(n, e)| (n.clone(), *e)).collect()
    }
}

pub(super) fn sync(s: &mut Set) {
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
}

/// What is in the directory, or in its folder of names.
pub(super) fn names_in(b: &mut Brick, dir: Fid) -> Result<Names, Errno> {
    let (entries, _, end) = b.entries(dir, 0, 64 << 10)?;
    assert_eq!(end, None);
    Ok(entries.into_iter().map(|e| (e.name.to_string(), (e.fid, e.home, e.kind))).collect())
}

/// The directory comes here; either the other set's, or one that was this set's before.
pub(super) fn take(fid: Fid, names: &Names) -> Change {
    let held = |(n, (fid, home, kind)): (&String, &(Fid, SetId, u32))| HandedEntry {
        name: name(n),
        fid: *fid,
        home: *home,
        kind: *kind,
    };
    let xattr = |n: &str, value: &[u8]| (name(n), Blob(value.to_vec()));
    let dir = HandedDir {
        mode: 0o2751,
        uid: 1000,
        gid: 1001,
        atime: time(701),
        mtime: time(702),
        ctime: time(703),
        xattrs: vec![xattr("user.a", b"value"), xattr("trusted.b", b"")],
        entries: names.iter().map(held).collect(),
    };
    let (path, name) = match fid == FAR {
        true => (ancestors(&[(TOP, "top")]), name("far")),
        false => (vec![], name("dir")),
    };
    Change::TakeDir { fid, tx: TX, from: OTHER, path, name, dir }
}

pub(super) fn give(fid: Fid) -> Change {
    Change::GiveDir { fid, to: OTHER, time: time(710) }
}

/// The set's root has another set's directory.
fn with_top(disk: &mut Disk) -> Set {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let (home, node, mode, uid, gid) = (OTHER, Node::Dir, 0o755, 0, 0);
    let (parent, fid, time) = (ROOT, TOP, time(4));
    let top = Change::Create { parent, name: name("top"), fid, home, node, mode, uid, gid, time };
    s.apply(&top, b"").unwrap();
    s
}

fn add_name(s: &mut Set, fid: Fid, n: &str) {
    let add = Some(EntryName { dir: FAR.names(), name: name(n) });
    let intent = Intent { tx: TX, coordinator: OTHER, drop: None, add: add.clone() };
    s.apply(&Change::PrepareFile { fid, intent }, b"").unwrap();
    s.apply(&Change::EndFile { fid, drop: None, add, orphan: false, time: time(600) }, b"").unwrap();
}

/// Files of other sets that the directory has.
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

/// Nothing is here of the directory that comes.
pub(super) fn nothing(disk: &mut Disk) -> Start {
    let mut s = with_top(disk);
    sync(&mut s);
    let names = others();
    Start { s, dir: FAR, change: take(FAR, &names), names }
}

/// Files of this set have names in the directory that comes: one of them no other name.
fn with_names(disk: &mut Disk) -> Start {
    let mut s = with_top(disk);
    let (two, only) = (s.file(ROOT, "two"), s.file(ROOT, "only"));
    let link = s.make(ROOT, "link", Node::Symlink { target: Blob(b"target".to_vec()) }, 0o777);
    s.write(only, 0, b"content");
    let mut names = others();
    for (n, fid, kind) in [("two", two, FILE), ("only", only, FILE), ("ours", link, LINK)] {
        add_name(&mut s, fid, n);
        names.insert(n.to_owned(), (fid, SET, kind));
    }
    // A name that a power cut may take back is no reason for another one to go.
    sync(&mut s);
    for n in ["only", "link"] {
        s.run(&Op::Unlink { parent: ROOT, name: name(n) }, b"").unwrap();
    }
    Start { s, dir: FAR, change: take(FAR, &names), names }
}

/// The names wait in their folder.
pub(super) fn waiting(disk: &mut Disk) -> Start {
    let mut start = with_names(disk);
    sync(&mut start.s);
    start
}

/// They lie in the copy.
pub(super) fn copied(disk: &mut Disk) -> Start {
    let mut start = with_names(disk);
    for _ in 0..2 {
        let (fid, path, name) = (FAR.names(), ancestors(&[(TOP, "top")]), name("far"));
        start.s.apply(&Change::Relocate { fid, path, name }, b"").unwrap();
        sync(&mut start.s);
    }
    start
}

/// The directory came here, and `change` is next.
fn taken(mut start: Start, change: Change) -> Start {
    start.s.apply(&start.change, b"").unwrap();
    sync(&mut start.s);
    Start { change, ..start }
}

/// It stays here.
pub(super) fn kept(disk: &mut Disk) -> Start {
    taken(copied(disk), Change::EndTransaction { fid: FAR, keep: true })
}

/// It goes back.
pub(super) fn back(disk: &mut Disk) -> Start {
    taken(copied(disk), give(FAR))
}

/// It went back, which is not on disk, and comes once more.
pub(super) fn again(disk: &mut Disk) -> Start {
    let mut start = back(disk);
    start.s.apply(&start.change, b"").unwrap();
    let change = take(start.dir, &start.names);
    Start { change, ..start }
}

/// It goes back, and no file of this set is in it.
pub(super) fn back_to_nothing(disk: &mut Disk) -> Start {
    taken(nothing(disk), give(FAR))
}

/// A directory of this set goes to another one.
pub(super) fn given(disk: &mut Disk) -> Start {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let dir = s.dir(ROOT, "dir");
    let (two, only) = (s.file(dir, "two"), s.file(dir, "only"));
    s.run(&Op::Link { fid: two, parent: ROOT, name: name("other") }, b"").unwrap();
    let link = s.make(dir, "ours", Node::Symlink { target: Blob(b"target".to_vec()) }, 0o777);
    s.write(only, 0, b"content");
    let mut names = others();
    for (n, (fid, home, kind)) in &names {
        let (parent, name, replaced, time) = (dir, name(n), None, time(7));
        let (fid, home, kind) = (*fid, *home, *kind);
        s.apply(&Change::Enter { parent, name, fid, home, kind, replaced, time }, b"").unwrap();
    }
    for (n, fid, kind) in [("two", two, FILE), ("only", only, FILE), ("ours", link, LINK)] {
        names.insert(n.to_owned(), (fid, SET, kind));
    }
    s.run(&Op::SetXattr { fid: dir, name: name("user.old"), flags: 0 }, b"old").unwrap();
    sync(&mut s);
    Start { s, dir, names, change: give(dir) }
}

/// It comes back.
pub(super) fn taken_back(disk: &mut Disk) -> Start {
    let mut start = given(disk);
    start.s.apply(&start.change, b"").unwrap();
    sync(&mut start.s);
    Start { change: take(start.dir, &start.names), ..start }
}

/// Makes such a start on an empty disk.
pub(super) type Begin = fn(&mut Disk) -> Start;

/// All of these.
pub(super) const STARTS: [(&str, Begin); 9] = [
    ("nothing", nothing),
    ("waiting", waiting),
    ("copied", copied),
    ("kept", kept),
    ("back", back),
    ("again", again),
    ("back to nothing", back_to_nothing),
    ("given", given),
    ("taken back", taken_back),
];

/// What a directory is, as who asks the brick sees it.
#[derive(PartialEq, Eq, Debug, Clone)]
pub(super) struct View {
    /// The set that answers for it, as its tag says; `None` without it.
    pub(super) home: Option<SetId>,
    /// What a client is told.
    attr: Result<wire::Attr, Errno>,
    pub(super) is_marked: bool,
    xattrs: BTreeMap<String, Option<Vec<u8>>>,
    pub(super) names: Result<Names, Errno>,
    pub(super) far_names: Result<Names, Errno>,
    /// How many names each file of this set has.
    links: BTreeMap<String, Result<u32, Errno>>,
}

impl View {
    /// A copy of another set's directory may be there in which nothing is, and no folder of names either.
    pub(super) fn without_unused_copies(&self) -> View {
        let far_names = match &self.far_names {
            Ok(names) if names.is_empty() => Err(Errno::ESTALE),
            other => other.clone(),
        };
        View { home: self.home.filter(|home| *home == SET), far_names, ..self.clone() }
    }
}

pub(super) fn view(b: &mut Brick, dir: Fid, names: &Names) -> View {
    let any = b.attr_of_any(dir).ok();
    let (home, is_dir) = (any.as_ref().map(|attr| attr.home), any.is_some());
    let own = home == Some(SET);
    let mut xattrs = BTreeMap::new();
    for name in b.listxattr(dir).unwrap_or_default().into_iter().filter(|_| own) {
        xattrs.insert(name.to_string(), b.getxattr(dir, &name).unwrap());
    }
    // How long a directory is is the file system's matter.
    let shown = |attr: wire::Attr| wire::Attr { size: 0, blocks: 0, nlink: 0, ..attr };
    let attr = match b.attr(dir) {
        Err(Errno::EAGAIN) => Err(Errno::EAGAIN),
        other => other.map(shown),
    };
    let own_files = names.iter().filter(|(_, (_, home, _))| *home == SET);
    let links = own_files.map(|(n, (fid, ..))| (n.clone(), b.attr(*fid).map(|attr| attr.nlink))).collect();
    View {
        home,
        attr,
        is_marked: is_dir && b.is_pending(dir).unwrap(),
        xattrs,
        names: names_in(b, dir),
        far_names: names_in(b, dir.names()),
        links,
    }
}
