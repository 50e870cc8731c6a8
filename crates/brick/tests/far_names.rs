//! Names that files of this set have in directories of other sets lie at those directories' paths, if there are copies.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::pair::Bricks;
use crate::common::*;
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use namespace::TreeState;
use std::path::{Path, PathBuf};
use wire::op::{Ancestor, EntryName, Intent};
use wire::{Change, Name};

/// The set that the directories are of.
const OTHER: SetId = SetId(2);
/// A directory of the other set, and one above it.
const FAR: Fid = there(90);
const ABOVE: Fid = there(91);
const TX: OpId = OpId { session: SessionId(3), seq: 8 };

const fn there(n: u64) -> Fid {
    Fid { set: OTHER, epoch: Epoch(4), lsn: Lsn(n) }
}

fn at(dir: Fid, s: &str) -> EntryName {
    EntryName { dir: dir.names(), name: name(s) }
}

fn path_of(names: &[(Fid, &str)]) -> Vec<Ancestor> {
    names.iter().map(|(fid, s)| Ancestor { fid: *fid, home: OTHER, name: name(s) }).collect()
}

/// The set has the root; names go to directories of the other set.
impl Bricks {
    fn stop(&mut self) {
        self.close();
        self.open();
    }

    fn names(&mut self, fid: Fid, drop: Option<EntryName>, add: Option<EntryName>) {
        let intent = Intent { tx: TX, coordinator: OTHER, drop: drop.clone(), add: add.clone() };
        self.s.apply(&Change::PrepareFile { fid, intent }, b"").unwrap();
        self.s.apply(&Change::EndFile { fid, drop, add, orphan: false, time: time(600) }, b"").unwrap();
    }

    fn relocate(&mut self, dir: Fid, path: &[(Fid, &str)], s: &str) {
        let (fid, path, name) = (dir.names(), path_of(path), name(s));
        self.s.apply(&Change::Relocate { fid, path, name }, b"").unwrap();
    }

    /// The copy is made and on disk, and the names come into it.
    fn place(&mut self, dir: Fid, path: &[(Fid, &str)], s: &str) {
        self.relocate(dir, path, s);
        self.sync();
        self.relocate(dir, path, s);
    }

    fn leads(&mut self, dir: Fid, s: &str) -> Option<Fid> {
        let all: Vec<_> =
            self.s.bricks.iter_mut().map(|b| b.entry(dir.names(), &name(s)).ok().flatten()).collect();
        assert_eq!(all[0], all[1]);
        all[0].map(|e| e.fid)
    }

    fn listed(&mut self, dir: Fid) -> Vec<Name> {
        self.s.bricks[0].readdir(dir.names(), 0, true, 4096).unwrap().0.into_iter().map(|e| e.name).collect()
    }
}

fn hidden(fid: Fid) -> PathBuf {
    Path::new(".mortar/limbo").join(format!("{:08x}{:08x}{:016x}", fid.set.0, fid.epoch.0, fid.lsn.0))
}

/// Names lie at the path as soon as it is known, and follow it; all that is done with them is done there, over kills as well.
#[test]
fn names_lie_at_the_path_of_their_directory() {
    let mut b = Bricks::new();
    let own = b.s.dir(ROOT, "own");
    let f = b.s.file(own, "f");
    b.s.write(f, 0, b"content");
    b.names(f, None, Some(at(FAR, "x")));
    let folder = hidden(FAR.names()).join("x");
    assert!(b.have(folder.to_str().unwrap()), "nobody has said where the directory is");
    // The root is this set's: what hangs on it is an entry.
    let (fid, home, node, time) = (ABOVE, OTHER, wire::op::Node::Dir, time(5));
    let (parent, mode, uid, gid) = (ROOT, 0o755, 0, 0);
    let entry = Change::Create { parent, name: name("above"), fid, home, node, mode, uid, gid, time };
    b.s.apply(&entry, b"").unwrap();
    b.place(FAR, &[(ABOVE, "above")], "far");
    assert!(b.have("above/far/x") && !b.have(folder.to_str().unwrap()));
    for round in 0..3 {
        assert_eq!((b.leads(FAR, "x"), b.leads(FAR, "y")), (Some(f), None));
        assert_eq!(b.s.bricks[1].attr(f).unwrap().nlink, 2);
        assert_eq!(b.listed(FAR), [name("x")]);
        if round == 0 { b.kill() } else { b.stop() }
    }
    // More names, at once, and others for them.
    b.names(f, None, Some(at(FAR, "y")));
    b.names(f, Some(at(FAR, "x")), Some(at(FAR, "z")));
    assert!(b.have("above/far/y") && b.have("above/far/z") && !b.have("above/far/x"));
    b.kill();
    assert_eq!((b.leads(FAR, "x"), b.leads(FAR, "y"), b.leads(FAR, "z")), (None, Some(f), Some(f)));
    // The directory is renamed.
    b.relocate(FAR, &[(ABOVE, "above")], "moved");
    assert!(b.have("above/moved/y") && !b.have("above/far"));
    let path = path_of(&[(ABOVE, "above")]);
    let are = |b: &mut Bricks, s: &str| b.s.bricks[0].is_at_path(FAR.names(), &path, &name(s)).unwrap();
    assert!(are(&mut b, "moved") && !are(&mut b, "far"));
    b.stop();
    b.names(f, Some(at(FAR, "y")), None);
    b.names(f, Some(at(FAR, "z")), None);
    assert!(!b.have("above/moved/y") && !b.have("above/moved/z"));
    assert!(!b.have(hidden(FAR.names()).to_str().unwrap()), "the folder is empty");
    b.stop();
    assert_eq!(b.s.bricks[0].attr(f).unwrap().nlink, 1);
}

/// Bricks sync at times of their own: one has the copy of the directory on disk when a file gets a name there, and the other not.
/// That one brings the name to its place by itself, as soon as the copy is on its disk.
#[test]
fn bricks_that_sync_at_different_times_come_to_be_the_same() {
    let mut b = Bricks::new();
    let f = b.s.file(ROOT, "f");
    let (fid, home, node, time) = (FAR, OTHER, wire::op::Node::Dir, time(5));
    let (parent, mode, uid, gid) = (ROOT, 0o755, 0, 0);
    let entry = Change::Create { parent, name: name("far"), fid, home, node, mode, uid, gid, time };
    b.s.apply(&entry, b"").unwrap();
    let _ = b.s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    b.names(f, None, Some(at(FAR, "x")));
    let folder = hidden(FAR.names()).join("x");
    let lies = |b: &Bricks, n| [&folder, Path::new("far/x")].map(|at| b.brick(n).join(at).exists());
    assert_eq!((lies(&b, 1), lies(&b, 2)), ([false, true], [true, false]));
    b.s.bricks.iter_mut().for_each(set_core::LocalBrick::settle_waiting);
    assert_eq!(lies(&b, 2), [true, false], "its copy may be lost yet");
    b.sync();
    b.s.bricks.iter_mut().for_each(set_core::LocalBrick::settle_waiting);
    assert_eq!((lies(&b, 1), lies(&b, 2)), ([false, true], [false, true]));
    assert_eq!(b.leads(FAR, "x"), Some(f));
    b.kill();
    assert_eq!(b.leads(FAR, "x"), Some(f));
    b.stop();
}

/// Something else is to have the place of a name: the name goes back to its folder, and is served there.
#[test]
fn a_name_gives_way_to_a_directory() {
    let mut b = Bricks::new();
    let f = b.s.file(ROOT, "f");
    b.names(f, None, Some(at(FAR, "x")));
    let (fid, home, node, time) = (FAR, OTHER, wire::op::Node::Dir, time(5));
    let (mode, uid, gid) = (0o755, 0, 0);
    let entry = Change::Create { parent: ROOT, name: name("far"), fid, home, node, mode, uid, gid, time };
    b.s.apply(&entry, b"").unwrap();
    b.place(FAR, &[], "far");
    assert!(b.have("far/x"));
    let placed = Fid { set: SET, epoch: Epoch(1), lsn: Lsn(1000) };
    let path = path_of(&[(FAR, "far")]);
    b.s.apply(&Change::PrepareMkdir { path, name: name("x"), fid: placed, mode, uid, gid, time }, b"")
        .unwrap();
    assert!(b.brick(1).join("far/x").is_dir() && b.have(hidden(FAR.names()).join("x").to_str().unwrap()));
    b.kill();
    assert_eq!(b.leads(FAR, "x"), Some(f));
    assert_eq!(b.s.bricks[0].attr(f).unwrap().nlink, 2);
    // What an earlier process made is taken to be on disk after the next sync only.
    b.sync();
    b.names(f, Some(at(FAR, "x")), Some(at(FAR, "y")));
    assert!(b.have("far/y"));
    b.names(f, Some(at(FAR, "y")), None);
    assert!(!b.have("far/y") && b.brick(2).join("far/x").is_dir());
}

/// The copy of a directory that went elsewhere, or is gone, holds a name: it gives way, and what hangs on it waits to be told its
/// path.
#[test]
fn a_copy_gives_way_to_a_name() {
    for empty in [false, true] {
        let mut b = Bricks::new();
        let f = b.s.file(ROOT, "f");
        let (fid, home, node, time) = (FAR, OTHER, wire::op::Node::Dir, time(5));
        let (mode, uid, gid) = (0o755, 0, 0);
        let entry = Change::Create { parent: ROOT, name: name("far"), fid, home, node, mode, uid, gid, time };
        b.s.apply(&entry, b"").unwrap();
        let placed = Fid { set: SET, epoch: Epoch(1), lsn: Lsn(1000) };
        let path = path_of(&[(FAR, "far"), (there(93), "n")]);
        let made = Change::PrepareMkdir { path, name: name("d"), fid: placed, mode, uid, gid, time };
        b.s.apply(&made, b"").unwrap();
        b.s.apply(&Change::EndTransaction { fid: placed, keep: !empty }, b"").unwrap();
        assert!(b.have("far/n") && b.have("far/n/d") != empty);
        b.names(f, None, Some(at(FAR, "n")));
        b.place(FAR, &[], "far");
        assert!((1..=2).all(|n| b.brick(n).join("far/n").is_file()), "{empty}");
        let waits = hidden(there(93));
        assert!(b.have(waits.to_str().unwrap()), "the index leads to it, also after a kill");
        b.stop();
        assert_eq!(b.leads(FAR, "n"), Some(f));
    }
}

/// Two names change places, one of which has no path yet, and two that lie at their path.
#[test]
fn names_change_places_wherever_they_lie() {
    const UNKNOWN: Fid = there(92);
    let mut b = Bricks::new();
    let (f, g) = (b.s.file(ROOT, "f"), b.s.file(ROOT, "g"));
    let (fid, home, node, time) = (FAR, OTHER, wire::op::Node::Dir, time(5));
    let (mode, uid, gid) = (0o755, 0, 0);
    let entry = Change::Create { parent: ROOT, name: name("far"), fid, home, node, mode, uid, gid, time };
    b.s.apply(&entry, b"").unwrap();
    b.names(f, None, Some(at(FAR, "x")));
    b.place(FAR, &[], "far");
    b.names(g, None, Some(at(UNKNOWN, "y")));
    let waits = hidden(UNKNOWN.names()).join("y");
    assert!(b.have("far/x") && b.have(waits.to_str().unwrap()));
    let exchange = |(one, fid): (EntryName, Fid), (two, to_fid): (EntryName, Fid)| {
        let (parent, name, to_parent, to_name) = (one.dir, one.name, two.dir, two.name);
        Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, time }
    };
    b.s.apply(&exchange((at(FAR, "x"), f), (at(UNKNOWN, "y"), g)), b"").unwrap();
    for kill in [true, false] {
        assert_eq!((b.leads(FAR, "x"), b.leads(UNKNOWN, "y")), (Some(g), Some(f)));
        assert!(b.have("far/x") && b.have(waits.to_str().unwrap()));
        if kill { b.kill() } else { b.stop() }
    }
    b.names(f, None, Some(at(FAR, "z")));
    b.s.apply(&exchange((at(FAR, "x"), g), (at(FAR, "z"), f)), b"").unwrap();
    b.stop();
    assert_eq!((b.leads(FAR, "x"), b.leads(FAR, "z")), (Some(f), Some(g)));
    assert!(b.have("far/x") && b.have("far/z"));
}
