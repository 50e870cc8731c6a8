//! A brick that was away becomes like the one that went on, whatever happened on either and while changes go on.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests")]

use crate::common::partners::*;
use crate::common::*;
use brick::{Arriving, Brick, HealSession};
use ids::{Epoch, Fid, Lsn};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use wire::op::{Node, SetAttr};
use wire::peer::{PeerBody, Stamp};
use wire::{Change, Op};

fn run(seed: u64, full: bool) {
    println!("seed {seed}");
    let dir = temp();
    let mut p = new_brick(dir.path(), 1);
    let mut j = new_brick(dir.path(), 2);
    let mut w = World { dirs: vec![ROOT], files: vec![], rng: Rng(seed) };
    let (first, data) = (create(ROOT, "first", Node::File, 0o644), vec![]);
    let mut both = vec![(first, data)];
    for _ in 0..w.rng.below(60) + 1 {
        for (op, data) in std::mem::take(&mut both) {
            if let Some((s, c)) = decided(&mut p, &w.files, Epoch(1), &op, &data) {
                w.learn(&c);
                p.apply(s.clone(), OP, None, &c, &data).unwrap();
                j.apply(s, OP, None, &c, &data).unwrap();
            }
        }
        both.push(w.op());
    }
    let common = p.last();
    // The one that goes away has changes that nobody else saw; the other goes on.
    for _ in 0..w.rng.below(4) {
        let (op, data) = w.op();
        if let Some((s, c)) = decided(&mut j, &w.files, Epoch(1), &op, &data) {
            j.apply(s, OP, None, &c, &data).unwrap();
        }
    }
    let step = |w: &mut World, p: &mut Brick| {
        let (op, data) = w.op();
        let (s, c) = decided(p, &w.files, Epoch(2), &op, &data)?;
        w.learn(&c);
        p.apply(s.clone(), OP, None, &c, &data).unwrap();
        Some((s, c, data))
    };
    for _ in 0..w.rng.below(60) {
        step(&mut w, &mut p);
    }
    let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { common };
    let mut healing = accept_join(&mut p, &mut j, &common, full);
    // Questions and what is said are each in order, with any delay between.
    let (mut asked, mut said) = (VecDeque::new(), VecDeque::new());
    // Checksums are worked out at once and told later.
    let mut late = VecDeque::new();
    let mut live = w.rng.below(120);
    let mut kills = w.rng.below(3);
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 100_000, "seed {seed}: healing does not end");
        if kills > 0 && w.rng.below(60) == 0 {
            kills -= 1;
            (asked, said, late) = Default::default();
            drop(j);
            j = open(&dir.path().join("b2"), &identity(2));
            let from = j.stale_set().unwrap().from;
            assert!(!full || from == Lsn(0));
            let common = p.stamp_at(from).unwrap().unwrap_or(common.clone());
            healing = accept_join(&mut p, &mut j, &common, full);
        }
        match w.rng.below(5) {
            0 if live > 0 => {
                live -= 1;
                if let Some((s, c, data)) = step(&mut w, &mut p) {
                    said.push_back(Said::Change(s, c, data));
                }
            }
            1 => {
                if let Some(question) = asked.pop_front() {
                    let (body, data) = answer(&mut p, &question);
                    match body {
                        PeerBody::Sums { .. } => late.push_back(Said::Answer(body, data)),
                        _ => said.push_back(Said::Answer(body, data)),
                    }
                }
            }
            2 => match said.pop_front() {
                Some(Said::Change(s, change, payload)) => {
                    let a =
                        Arriving { stamp: &s, op: OP, result_fid: None, change: &change, payload: &payload };
                    healing.apply(&mut j, a).unwrap();
                }
                Some(Said::Answer(body, data)) => take(&mut healing, &mut j, &body, &data),
                None => {}
            },
            3 => said.extend(late.pop_front()),
            _ => asked.extend(healing.ask(&mut j)),
        }
        if healing.looks_at_absent() {
            healing.look_at_absent(&mut j).unwrap();
        }
        if live == 0 && asked.is_empty() && said.is_empty() && late.is_empty() && healing.is_done(&j) {
            break;
        }
    }
    end(&mut j);
    p.flush_attrs().unwrap();
    j.flush_attrs().unwrap();
    assert_eq!(p.last(), j.last(), "seed {seed}");
    let (a, b) = (tree(&dir.path().join("b1")), tree(&dir.path().join("b2")));
    let only = |x: &std::collections::BTreeMap<std::path::PathBuf, Seen>,
                y: &std::collections::BTreeMap<std::path::PathBuf, Seen>| {
        x.keys().filter(|k| !y.contains_key(*k)).cloned().collect::<Vec<_>>()
    };
    assert_eq!((only(&a, &b), only(&b, &a)), (vec![], vec![]), "seed {seed}: only there, only here");
    for (path, seen) in &a {
        let here = b.get(path).unwrap();
        if seen.content != here.content {
            let at = seen.content.iter().zip(&here.content).position(|(a, b)| a != b);
            let sizes = (seen.content.len(), here.content.len());
            panic!("seed {seed}: {} differs at {at:?} of {sizes:?}", path.display());
        }
        let bare = |s: &Seen| Seen { content: vec![], ..s.clone() };
        assert_eq!(bare(seen), bare(here), "seed {seed}: {}", path.display());
    }
    assert_eq!(
        a.len(),
        b.len(),
        "seed {seed}: {:?}",
        b.keys().filter(|k| !a.contains_key(*k)).collect::<Vec<_>>()
    );
    for (brick, n) in [(p, 1), (j, 2)] {
        brick.close().unwrap();
        let checked = brick::check(&dir.path().join(format!("b{n}")), false).unwrap();
        assert!(checked.problems.is_empty(), "seed {seed}: brick {n}: {:#?}", checked.problems);
    }
}

/// `HEAL_SEEDS=A-B` runs others.
fn seeds(usual: std::ops::RangeInclusive<u64>) -> std::ops::RangeInclusive<u64> {
    let Ok(text) = std::env::var("HEAL_SEEDS") else { return usual };
    let (a, b) = text.split_once('-').unwrap();
    a.parse().unwrap()..=b.parse().unwrap()
}

#[test]
fn what_was_missed_is_healed_while_changes_go_on() {
    for seed in seeds(1..=120) {
        run(seed, false);
    }
}

#[test]
fn a_full_comparison_heals_all() {
    for seed in seeds(1000..=1080) {
        run(seed, true);
    }
}

fn same_trees(dir: &std::path::Path, p: &mut Brick, j: &mut Brick) {
    p.flush_attrs().unwrap();
    j.flush_attrs().unwrap();
    assert_eq!(tree(&dir.join("b1")), tree(&dir.join("b2")));
}

/// While a directory's names are taken over so many objects may be made that its attributes leave the memory: it has the
/// other brick's times all the same.
#[test]
fn a_directory_of_which_many_names_are_healed_keeps_its_times() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1)]);
    new_brick(dir.path(), 2).close().unwrap();
    let few = brick::Options { nodes: 2, ..brick::Options::default() };
    let mut j = Brick::open(&dir.path().join("b2"), &identity(2), few).unwrap();
    for n in 0..40 {
        s.file(ROOT, &format!("n{n}"));
    }
    let p = &mut s.bricks[0];
    let mut healing = accept_join(p, &mut j, &Stamp { epoch: Epoch(0), lsn: Lsn(0) }, false);
    heal_all(p, &mut j, &mut healing);
    same_trees(dir.path(), p, &mut j);
}

/// No record says what an interrupted healing made: the next process finds it all the same.
#[test]
fn what_an_interrupted_healing_made_is_healed_on() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
    s.file(ROOT, "first");
    let mut j = s.bricks.remove(1);
    let common = j.last();
    // The index is on disk as it is now.
    j.begin_sync(None).unwrap().run().unwrap();
    let d = s.dir(ROOT, "d");
    s.file(d, "f");
    let p = &mut s.bricks[0];
    let mut healing = accept_join(p, &mut j, &common, false);
    while j.lookup(ROOT, &name("d")).unwrap().is_none() {
        let question = healing.ask(&mut j).unwrap();
        let (body, data) = answer(p, &question);
        take(&mut healing, &mut j, &body, &data);
    }
    drop(j);
    let mut j = open(&dir.path().join("b2"), &identity(2));
    assert!(j.attr_of_any(d).is_ok(), "it is found by its fid, before any name leads to it");
    let mut healing = accept_join(p, &mut j, &common, false);
    // The directory is asked about before the names above it are told.
    let asked: Vec<_> = std::iter::from_fn(|| healing.ask(&mut j)).collect();
    assert_eq!(asked.len(), 2);
    for question in asked {
        let (body, data) = answer(p, &question);
        take(&mut healing, &mut j, &body, &data);
    }
    heal_all(p, &mut j, &mut healing);
    same_trees(dir.path(), p, &mut j);
}

/// Both bricks with a dense file of 8 MiB and a sparse one, then 1 MiB of the first changed on one of them.
fn large(dir: &std::path::Path) -> (Set, Fid, Fid, Stamp) {
    let mut s = Set::new(vec![new_brick(dir, 1), new_brick(dir, 2)]);
    let (dense, sparse) = (s.file(ROOT, "dense"), s.file(ROOT, "sparse"));
    for i in 0..8 {
        s.write(dense, i << 20, &vec![u8::try_from(i).unwrap(); 1 << 20]);
    }
    s.write(sparse, 40 << 20, b"far out");
    let common = s.bricks[0].last();
    (s, dense, sparse, common)
}

fn blocks(path: &std::path::Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().blocks()
}

#[test]
fn only_what_differs_is_copied() {
    for full in [false, true] {
        let dir = temp();
        let (mut s, dense, sparse, common) = large(dir.path());
        let mut j = s.bricks.pop().unwrap();
        s.write(dense, (3 << 20) + 5, &vec![99; 1 << 20]);
        s.write(sparse, 20 << 20, b"in between");
        let mut p = s.bricks.pop().unwrap();
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        let done = healing.progress();
        assert!(done.bytes <= (2 << 20) + (1 << 20), "full {full}: {done:?}");
        assert!(!full || done.same >= 6 << 20, "{done:?}");
        same_trees(dir.path(), &mut p, &mut j);
        for name in ["dense", "sparse"] {
            let (a, b) =
                (blocks(&dir.path().join("b1").join(name)), blocks(&dir.path().join("b2").join(name)));
            assert!(a.abs_diff(b) <= 16, "full {full}: {name} takes {a} and {b} blocks");
        }
    }
}

/// The same file again after an interruption: what is there is not copied again.
#[test]
fn an_interrupted_healing_copies_nothing_twice() {
    let dir = temp();
    let (mut s, dense, _, common) = large(dir.path());
    let mut j = s.bricks.pop().unwrap();
    for i in 0..8 {
        s.write(dense, i << 20, &vec![77; 1 << 20]);
    }
    let small = s.file(ROOT, "small");
    s.write(small, 0, b"not much");
    let mut p = s.bricks.pop().unwrap();
    let mut healing = accept_join(&mut p, &mut j, &common, false);
    while healing.progress().bytes < 5 << 20 {
        let question = healing.ask(&mut j).unwrap();
        let (body, data) = answer(&mut p, &question);
        take(&mut healing, &mut j, &body, &data);
    }
    let before = healing.progress().bytes;
    drop(j);
    let mut j = open(&dir.path().join("b2"), &identity(2));
    let mut healing = accept_join(&mut p, &mut j, &common, false);
    heal_all(&mut p, &mut j, &mut healing);
    let after = healing.progress();
    assert!(before + after.bytes <= (8 << 20) + 8, "{before} bytes first, then {after:?}");
    assert!(after.same >= 5 << 20, "{after:?}");
    same_trees(dir.path(), &mut p, &mut j);
}

/// The machine was started anew: what came after the durable position is stale, and comes from the other brick.
#[test]
fn after_a_reboot_a_brick_is_healed_from_its_durable_position() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
    let f = s.file(ROOT, "f");
    s.write(f, 0, &[1; 5000]);
    s.bricks[1].begin_sync(None).unwrap().run().unwrap();
    let durable = s.bricks[1].durable();
    assert_eq!(durable, s.bricks[1].last());
    s.write(f, 1000, &[2; 100]);
    s.file(ROOT, "late");
    let mut p = s.bricks.remove(0);
    drop(s);
    // The power failed: the file's new data is lost, its size wrong, and the state is that of another boot.
    let b2 = dir.path().join("b2");
    std::fs::write(b2.join("f"), [1; 4096]).unwrap();
    let state = b2.join(".mortar/state");
    let mut read = disk_format::State::decode(&std::fs::read(&state).unwrap()).unwrap();
    read.boot = [7; 16];
    std::fs::write(&state, read.encode()).unwrap();
    let mut j = open(&b2, &identity(2));
    assert!(j.found().rebooted);
    assert_eq!(j.durable(), durable);
    let mut healing = HealSession::begin(&mut j, (&durable, &durable), durable.lsn, false).unwrap();
    for r in p.iterate(durable.lsn.next()).map(Result::unwrap).collect::<Vec<_>>() {
        let (stamp, change) = (&r.stamp, &r.change);
        healing.apply(&mut j, Arriving { stamp, op: OP, result_fid: None, change, payload: b"" }).unwrap();
    }
    healing.on_caught_up(&mut j, &p.last(), vec![]).unwrap();
    heal_all(&mut p, &mut j, &mut healing);
    assert_eq!(p.last(), j.last());
    let (mut a, mut b) = (p.attr_of_any(f).unwrap(), j.attr_of_any(f).unwrap());
    (a.blocks, b.blocks) = (0, 0);
    assert_eq!(a, b);
    assert!(b2.join("late").exists());
}

/// The power of a brick's machine failed: its state is that of another boot.
fn cut_power(brick: &std::path::Path) {
    let state = brick.join(".mortar/state");
    let mut read = disk_format::State::decode(&std::fs::read(&state).unwrap()).unwrap();
    (read.boot, read.clean) = ([7; 16], false);
    std::fs::write(&state, read.encode()).unwrap();
}

fn same_data(p: &mut Brick, j: &mut Brick, fid: Fid) {
    assert!(read(p, fid, 0, 10_000) == read(j, fid, 0, 10_000), "the data differs in spite of the healing");
}

/// Both bricks say that a file's last change is the same. The one that leads lost its data in a power cut and goes on alone;
/// the other was in the midst of a full comparison before that, when versions still said what is in objects.
#[test]
fn a_version_from_before_a_loss_is_not_believed() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
    let f = s.file(ROOT, "f");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    s.write(f, 0, &[1; 5000]);
    let version = s.bricks[0].version(f).unwrap();
    // Far enough back: the record is not in the part of the journal that goes with a full comparison.
    for n in 0..20 {
        s.file(ROOT, &format!("later {n}"));
    }
    let (mut j, mut p) = (s.bricks.pop().unwrap(), s.bricks.pop().unwrap());
    let common = p.last();
    let healing = accept_join(&mut p, &mut j, &common, true);
    assert!(j.stale_set().unwrap().versions_valid_to >= version.lsn);
    drop((healing, j, p));
    let b1 = dir.path().join("b1");
    std::fs::write(b1.join("f"), [0; 5000]).unwrap();
    cut_power(&b1);
    let mut p = open(&b1, &identity(1));
    assert!(
        p.found().rebooted && p.version(f).unwrap() == version,
        "the version is on disk, the data is not"
    );
    let alone = Stamp { epoch: Epoch(5), lsn: p.last().lsn.next() };
    p.reset_journal(alone.clone()).unwrap();
    end(&mut p);
    // Nothing in common: the epoch of the one that goes on is in no other's journal.
    let mut j = open(&dir.path().join("b2"), &identity(2));
    let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
    let mut healing = HealSession::begin(&mut j, (&none, &alone), Lsn(0), true).unwrap();
    healing.on_caught_up(&mut j, &p.last(), vec![]).unwrap();
    heal_all(&mut p, &mut j, &mut healing);
    same_data(&mut p, &mut j, f);
}

/// Of a change that was under way in the power cut the data may be on disk, and neither its version nor its record. Nobody
/// else knows of it: no version is believed, by the next process as little as by the one that found out.
#[test]
fn after_a_reboot_no_version_is_believed_until_the_brick_has_healed() {
    for processes in [1, 2] {
        let dir = temp();
        let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
        let f = s.file(ROOT, "f");
        s.write(f, 0, &[1; 5000]);
        s.bricks[1].begin_sync(None).unwrap().run().unwrap();
        let mut p = s.bricks.remove(0);
        let common = p.last();
        drop(s);
        let b2 = dir.path().join("b2");
        std::fs::write(b2.join("f"), [2; 5000]).unwrap();
        cut_power(&b2);
        for _ in 1..processes {
            drop(open(&b2, &identity(2)));
        }
        let mut j = open(&b2, &identity(2));
        assert_eq!(j.version(f), p.version(f));
        let mut healing = accept_join(&mut p, &mut j, &common, true);
        heal_all(&mut p, &mut j, &mut healing);
        same_data(&mut p, &mut j, f);
    }
}

/// An interrupted full comparison with the same primary goes on: versions that were believed before still are.
#[test]
fn a_resumed_comparison_believes_versions_of_one_history() {
    let dir = temp();
    let (mut s, dense, ..) = large(dir.path());
    let (mut j, mut p) = (s.bricks.pop().unwrap(), s.bricks.pop().unwrap());
    let common = p.last();
    drop(accept_join(&mut p, &mut j, &common, true));
    drop(j);
    let mut j = open(&dir.path().join("b2"), &identity(2));
    let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
    let mut healing = accept_join(&mut p, &mut j, &none, true);
    heal_all(&mut p, &mut j, &mut healing);
    same_data(&mut p, &mut j, dense);
    let done = healing.progress();
    assert_eq!((done.bytes, done.same), (0, 0), "data was compared though its version says enough");
}

#[test]
fn a_placed_directory_that_nobody_else_has_goes() {
    let theirs = ids::SetId(2);
    for (full, root_home) in [(false, theirs), (true, theirs), (false, SET), (true, SET)] {
        let dir = temp();
        let new = |n: u32| {
            let id = disk_format::Identity { root: Fid::root(root_home), root_home, ..identity(n) };
            let path = dir.path().join(format!("b{n}"));
            brick::format(&path, &id, ids::Time::default()).unwrap();
            open(&path, &id)
        };
        let (mut p, mut j) = (new(1), new(2));
        let at = |epoch, lsn| Stamp { epoch: Epoch(epoch), lsn: Lsn(lsn) };
        for b in [&mut p, &mut j] {
            b.apply(at(1, 1), OP, None, &Change::Nop, b"").unwrap();
        }
        // Only the one that goes away places a directory, beneath a copy of another set's or in lost+found.
        let copy = Fid { set: theirs, epoch: Epoch(1), lsn: Lsn(9) };
        let path = vec![wire::op::Ancestor { fid: copy, home: theirs, name: name("theirs") }];
        let fid = Fid { set: SET, epoch: Epoch(1), lsn: Lsn(2) };
        let (mode, uid, gid) = (0o755, 0, 0);
        let place = Change::PrepareMkdir { path, name: name("ours"), fid, mode, uid, gid, time: time(5) };
        j.apply(at(1, 2), OP, None, &place, b"").unwrap();
        assert!(j.attr_of_any(fid).is_ok());
        p.apply(at(2, 2), OP, None, &Change::Nop, b"").unwrap();
        let mut healing = accept_join(&mut p, &mut j, &at(1, 1), full);
        heal_all(&mut p, &mut j, &mut healing);
        assert!(j.attr_of_any(fid).is_err(), "full: {full}, root: {root_home}");
        assert!(!dir.path().join("b2/theirs/ours").exists());
        for folder in ["aside", "limbo"] {
            let path = dir.path().join("b2/.mortar").join(folder);
            assert_eq!(std::fs::read_dir(path).unwrap().count(), 0, "{folder}, full: {full}");
        }
        assert_eq!(p.last(), j.last());
    }
}

/// Bricks of a set that has no root of its own.
fn placed_bricks(dir: &std::path::Path, count: u32) -> Vec<Brick> {
    let theirs = ids::SetId(2);
    let new = |n: u32| {
        let id = disk_format::Identity { root: Fid::root(theirs), root_home: theirs, ..identity(n) };
        let path = dir.join(format!("b{n}"));
        brick::format(&path, &id, ids::Time::default()).unwrap();
        open(&path, &id)
    };
    (1..=count).map(new).collect()
}

/// What is in a brick's lost+found.
fn lost_found(dir: &std::path::Path, n: u32) -> Vec<std::path::PathBuf> {
    fn walk(at: &std::path::Path, top: &std::path::Path, out: &mut Vec<std::path::PathBuf>) {
        for e in std::fs::read_dir(at).unwrap().map(Result::unwrap) {
            out.push(e.path().strip_prefix(top).unwrap().to_path_buf());
            if e.file_type().unwrap().is_dir() {
                walk(&e.path(), top, out);
            }
        }
    }
    let top = dir.join(format!("b{n}/.mortar/limbo"));
    let mut out = vec![];
    walk(&top, &top, &mut out);
    out.sort();
    out
}

/// Directories whose path was taken by others lie in lost+found, with all that is in them: they are healed as any others,
/// by a brick that has nothing, by one that missed them, and by one that missed what happened in them.
#[test]
fn what_lies_in_lost_found_is_healed() {
    let theirs = ids::SetId(2);
    let far = |n| Fid { set: theirs, epoch: Epoch(1), lsn: Lsn(n) };
    let ours = |n| Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) };
    let place = |path: &[(Fid, &str)], n: &str, fid| Change::PrepareMkdir {
        path: path.iter().map(|(f, n)| wire::op::Ancestor { fid: *f, name: name(n), home: theirs }).collect(),
        name: name(n),
        fid,
        mode: 0o755,
        uid: 0,
        gid: 0,
        time: time(5),
    };
    let keep = |fid| (Change::EndTransaction { fid, keep: true }, vec![]);
    let make = |parent, n: &str, fid, node| {
        let (mode, uid, gid) = (0o644, 3, 4);
        let change =
            Change::Create { parent, name: name(n), fid, home: SET, node, mode, uid, gid, time: time(6) };
        (change, vec![])
    };
    let write = |fid, data: &[u8]| {
        let len = u32::try_from(data.len()).unwrap();
        (Change::Write { fid, offset: 0, len, mode: None, time: time(7) }, data.to_vec())
    };
    let history: Vec<(Change, Vec<u8>)> = vec![
        (Change::Nop, vec![]),
        // Two directories of ours beneath copies, with something in them.
        (place(&[(far(1), "top")], "x", ours(2)), vec![]),
        keep(ours(2)),
        make(ours(2), "f", ours(4), Node::File),
        write(ours(4), b"in lost+found"),
        make(ours(2), "s", ours(6), Node::Dir),
        make(ours(6), "g", ours(7), Node::File),
        (place(&[(far(1), "top"), (far(2), "deep")], "y", ours(8)), vec![]),
        keep(ours(8)),
        // `top` was renamed, and its name is another directory's now.
        (place(&[(far(3), "top")], "z", ours(10)), vec![]),
        keep(ours(10)),
        // A name that a directory of ours holds.
        (place(&[(far(3), "top")], "z", ours(12)), vec![]),
        keep(ours(12)),
        make(ours(12), "h", ours(14), Node::File),
        // What happens in lost+found.
        write(ours(4), b"and goes on in lost+found"),
        make(ours(8), "k", ours(16), Node::File),
        write(ours(16), b"deep"),
    ];
    let end_of = history.len() as u64;
    for full in [false, true] {
        for missed_from in 1..=end_of {
            let dir = temp();
            let mut bricks = placed_bricks(dir.path(), 2);
            let (mut j, mut p) = (bricks.pop().unwrap(), bricks.pop().unwrap());
            for (i, (change, data)) in history.iter().enumerate() {
                let lsn = i as u64 + 1;
                p.apply(stamp(lsn), OP, None, change, data).unwrap();
                if lsn <= missed_from {
                    j.apply(stamp(lsn), OP, None, change, data).unwrap();
                }
            }
            let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { stamp(missed_from) };
            let mut healing = accept_join(&mut p, &mut j, &common, full);
            heal_all(&mut p, &mut j, &mut healing);
            let case = format!("full: {full}, missed from {missed_from} on");
            assert_eq!(lost_found(dir.path(), 1), lost_found(dir.path(), 2), "{case}");
            let paths = |n| tree(&dir.path().join(n)).into_keys().collect::<Vec<_>>();
            assert_eq!(paths("b1"), paths("b2"), "{case}");
            for fid in [2, 4, 6, 7, 8, 10, 12, 14, 16].map(ours) {
                let (mut a, mut b) = (p.attr_of_any(fid).unwrap(), j.attr_of_any(fid).expect(&case));
                (a.blocks, b.blocks) = (0, 0);
                assert_eq!(a, b, "{case}: {fid}");
            }
            for fid in [4, 16].map(ours) {
                assert_eq!(read(&mut p, fid, 0, 100), read(&mut j, fid, 0, 100), "{case}: {fid}");
            }
        }
    }
}

fn prepare(path: &[(Fid, ids::SetId, &str)], n: &str, fid: Fid) -> Change {
    let path = path.iter().map(|(fid, home, n)| wire::op::Ancestor { fid: *fid, name: name(n), home: *home });
    let (mode, uid, gid) = (0o755, 0, 0);
    Change::PrepareMkdir { path: path.collect(), name: name(n), fid, mode, uid, gid, time: time(5) }
}

/// Whatever of a history of placed directories a brick has missed, each lies where the primary has it.
#[test]
fn a_placed_directory_is_healed_at_its_place() {
    let theirs = ids::SetId(2);
    let far = |n| Fid { set: theirs, epoch: Epoch(1), lsn: Lsn(n) };
    let ours = |n| Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) };
    let end = |fid, keep| Change::EndTransaction { fid, keep };
    let (mode, uid, gid) = (0o755, 0, 0);
    let copy = |parent, n: &str, fid| {
        let (home, node) = (theirs, Node::Dir);
        Change::Create { parent, name: name(n), fid, home, node, mode, uid, gid, time: time(6) }
    };
    let history = [
        // A name is given to one directory after the other.
        prepare(&[], "d", ours(9)),
        end(ours(9), true),
        Change::PrepareRmdir { fid: ours(9) },
        end(ours(9), false),
        prepare(&[], "d", ours(2)),
        end(ours(2), true),
        // A directory beneath another set's that hangs on one of ours: smaller numbers are healed first.
        prepare(&[], "top", ours(8)),
        end(ours(8), true),
        copy(ours(8), "f", far(1)),
        prepare(&[(ours(8), SET, "top"), (far(1), theirs, "f")], "y", ours(1)),
        end(ours(1), true),
    ];
    let count = history.len();
    // Missed up to here; what follows comes while the brick heals.
    for (from, upto, full) in
        (0..count).flat_map(|a| (a..=count).flat_map(move |b| [(a, b, false), (a, b, true)]))
    {
        let dir = temp();
        let mut bricks = placed_bricks(dir.path(), 2);
        let (mut j, mut p) = (bricks.pop().unwrap(), bricks.pop().unwrap());
        let at = |i: usize| stamp(i as u64 + 2);
        p.apply(stamp(1), OP, None, &Change::Nop, b"").unwrap();
        j.apply(stamp(1), OP, None, &Change::Nop, b"").unwrap();
        for (i, change) in history[..upto].iter().enumerate() {
            p.apply(at(i), OP, None, change, b"").unwrap();
            if i < from {
                j.apply(at(i), OP, None, change, b"").unwrap();
            }
        }
        let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { stamp(from as u64 + 1) };
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        for (i, change) in history.iter().enumerate().skip(upto) {
            let s = at(i);
            p.apply(s.clone(), OP, None, change, b"").unwrap();
            healing
                .apply(&mut j, Arriving { stamp: &s, op: OP, result_fid: None, change, payload: b"" })
                .unwrap();
        }
        heal_all(&mut p, &mut j, &mut healing);
        let case = format!("missed {from}..{upto}, full: {full}");
        let paths = |n| tree(&dir.path().join(n)).into_keys().collect::<Vec<_>>();
        assert_eq!((paths("b1"), lost_found(dir.path(), 1)), (paths("b2"), vec![]), "{case}");
        assert_eq!(lost_found(dir.path(), 2), Vec::<std::path::PathBuf>::new(), "{case}");
    }
}

/// Two directories were given one name, and the bricks saw that in another order: the primary's counts.
#[test]
fn directories_that_share_a_name_are_healed_as_the_primary_has_them() {
    let ours = |n| Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) };
    let dir = temp();
    let mut bricks = placed_bricks(dir.path(), 2);
    let (mut j, mut p) = (bricks.pop().unwrap(), bricks.pop().unwrap());
    for (b, first, second) in [(&mut p, ours(3), ours(5)), (&mut j, ours(5), ours(3))] {
        for (lsn, change) in [
            (1, prepare(&[], "d", first)),
            (2, Change::EndTransaction { fid: first, keep: true }),
            (3, prepare(&[], "d", second)),
            (4, Change::EndTransaction { fid: second, keep: true }),
        ] {
            b.apply(stamp(lsn), OP, None, &change, b"").unwrap();
        }
    }
    assert_ne!(lost_found(dir.path(), 1), lost_found(dir.path(), 2));
    let mut healing = accept_join(&mut p, &mut j, &Stamp { epoch: Epoch(0), lsn: Lsn(0) }, true);
    heal_all(&mut p, &mut j, &mut healing);
    assert_eq!(lost_found(dir.path(), 1), lost_found(dir.path(), 2));
    assert!(dir.path().join("b2/d").is_dir());
}

/// A directory leaves another one, which goes. The brick that was away finds that out first, and its new place after it:
/// what stands beside it there comes as well.
#[test]
fn a_directory_that_left_one_that_is_gone_comes_with_its_neighbours() {
    for full in [false, true] {
        let dir = temp();
        let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
        // Smaller numbers are healed first.
        let gone = s.dir(ROOT, "gone");
        let to = s.dir(ROOT, "to");
        s.dir(gone, "moved");
        let mut j = s.bricks.pop().unwrap();
        let common = j.last();
        for n in ["a", "b", "c", "d", "e", "f"] {
            s.file(to, n);
        }
        let (from, n) = (name("moved"), name("moved"));
        s.run(&Op::Rename { parent: gone, name: from, to_parent: to, to_name: n, flags: 0 }, b"").unwrap();
        s.run(&Op::Rmdir { parent: ROOT, name: name("gone") }, b"").unwrap();
        let mut p = s.bricks.pop().unwrap();
        let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { common };
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        same_trees(dir.path(), &mut p, &mut j);
    }
}

/// A directory goes while a file that lay in it is open: the brick that was away keeps the file too.
#[test]
fn a_file_without_a_name_outlives_its_directory() {
    for full in [false, true] {
        let dir = temp();
        let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
        let parent = s.dir(ROOT, "d");
        let fid = s.file(parent, "f");
        s.write(fid, 0, b"held open");
        let common = s.bricks[0].last();
        let mut j = s.bricks.pop().unwrap();
        let (time, orphan) = (time(9), true);
        s.apply(&Change::Unlink { parent, name: name("f"), fid, orphan, time }, b"").unwrap();
        s.apply(&Change::Rmdir { parent: ROOT, name: name("d"), fid: parent, time }, b"").unwrap();
        let mut p = s.bricks.pop().unwrap();
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        end(&mut j);
        assert!(j.is_orphan(fid), "full: {full}");
        same_data(&mut p, &mut j, fid);
        same_trees(dir.path(), &mut p, &mut j);
    }
}

/// After a power cut the index may not know of a file that is in the tree: it is healed when its name is found.
#[test]
fn a_file_that_the_index_has_lost_is_healed() {
    for full in [false, true] {
        let dir = temp();
        let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
        let (path, index) = (dir.path().join("b2"), "b2/.mortar/index.redb");
        let early = dir.path().join("early");
        s.bricks[1].begin_sync(None).unwrap().run().unwrap();
        std::fs::copy(dir.path().join(index), &early).unwrap();
        let common = s.bricks[0].last();
        // It is asked about before the directory that it lies in.
        let (fid, d) = (s.file(ROOT, "f"), s.dir(ROOT, "d"));
        let (from, to) = (name("f"), name("g"));
        s.run(&Op::Rename { parent: ROOT, name: from, to_parent: d, to_name: to, flags: 0 }, b"").unwrap();
        s.write(fid, 0, b"as both had it");
        let mut j = s.bricks.pop().unwrap();
        s.write(fid, 3, b"missed");
        let mut p = s.bricks.pop().unwrap();
        j.flush_attrs().unwrap();
        j.begin_heal(common.lsn, &[fid], Lsn(0)).unwrap();
        drop(j);
        std::fs::copy(&early, dir.path().join(index)).unwrap();
        let mut j = open(&path, &identity(2));
        let mut healing = accept_join(&mut p, &mut j, &common, full);
        heal_all(&mut p, &mut j, &mut healing);
        end(&mut j);
        same_data(&mut p, &mut j, fid);
        same_trees(dir.path(), &mut p, &mut j);
    }
}

/// A file is cut off at the primary while its data is asked for, and grows again after the answer: what it had before does
/// not come back on the brick that heals.
#[test]
fn what_was_cut_off_before_an_answer_does_not_come_back() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
    let fid = s.file(ROOT, "f");
    s.write(fid, 0, &[1; 100_000]);
    let common = s.bricks[0].last();
    let mut j = s.bricks.pop().unwrap();
    s.write(fid, 0, &[2; 100_000]);
    let mut p = s.bricks.pop().unwrap();
    let mut healing = accept_join(&mut p, &mut j, &common, false);
    let question = loop {
        let question = healing.ask(&mut j).expect("its data is stale");
        if matches!(question, PeerBody::AskData { .. }) {
            break question;
        }
        let (body, data) = answer(&mut p, &question);
        take(&mut healing, &mut j, &body, &data);
    };
    let happens = |p: &mut Brick, j: &mut Brick, healing: &mut HealSession, op: &Op, payload: &[u8]| {
        let (stamp, change) = decided(p, &[], Epoch(1), op, payload).unwrap();
        p.apply(stamp.clone(), OP, None, &change, payload).unwrap();
        healing
            .apply(j, Arriving { stamp: &stamp, op: OP, result_fid: None, change: &change, payload })
            .unwrap();
    };
    let cut = Op::SetAttr { fid, set: SetAttr { size: Some(0), ..set_attr() } };
    happens(&mut p, &mut j, &mut healing, &cut, b"");
    let (body, data) = answer(&mut p, &question);
    take(&mut healing, &mut j, &body, &data);
    let grow = Op::Write { fid, offset: 5000, append: false, kill_suid: false };
    happens(&mut p, &mut j, &mut healing, &grow, b"again");
    heal_all(&mut p, &mut j, &mut healing);
    same_data(&mut p, &mut j, fid);
}

/// A healing made a file with two names, was killed, and the index did not learn of it: it is one file in the end.
#[test]
fn a_file_with_two_names_stays_one_file() {
    use std::os::unix::fs::MetadataExt;
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
    let (path, index) = (dir.path().join("b2"), "b2/.mortar/index.redb");
    let early = dir.path().join("early");
    // Directories are compared in the order of their fids.
    let (first, second) = (s.dir(ROOT, "first"), s.dir(ROOT, "second"));
    s.bricks[1].begin_sync(None).unwrap().run().unwrap();
    std::fs::copy(dir.path().join(index), &early).unwrap();
    let common = s.bricks[0].last();
    let mut j = s.bricks.pop().unwrap();
    let fid = s.file(second, "old");
    s.write(fid, 0, b"before");
    let mut p = s.bricks.pop().unwrap();
    let mut healing = accept_join(&mut p, &mut j, &common, false);
    heal_all(&mut p, &mut j, &mut healing);
    j.flush_attrs().unwrap();
    j.begin_heal(common.lsn, &[], Lsn(0)).unwrap();
    drop(j);
    std::fs::copy(&early, dir.path().join(index)).unwrap();
    let mut s = Set::new(vec![p]);
    s.apply(&Change::Link { fid, parent: first, name: name("new"), time: time(8) }, b"").unwrap();
    s.write(fid, 0, b"afterwards");
    let mut p = s.bricks.pop().unwrap();
    let mut j = open(&path, &identity(2));
    let mut healing = accept_join(&mut p, &mut j, &common, false);
    heal_all(&mut p, &mut j, &mut healing);
    end(&mut j);
    same_data(&mut p, &mut j, fid);
    same_trees(dir.path(), &mut p, &mut j);
    let ino = |n: &str| std::fs::metadata(path.join(n)).unwrap().ino();
    assert_eq!(ino("first/new"), ino("second/old"));
}

/// The primary's index lost a file that it has: it answers that there is none, and then names it among its entries.
#[test]
fn a_file_that_the_primarys_index_has_lost_is_healed() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
    let (path, index) = (dir.path().join("b1"), "b1/.mortar/index.redb");
    let early = dir.path().join("early");
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    std::fs::copy(dir.path().join(index), &early).unwrap();
    let common = s.bricks[0].last();
    // It is asked about before the directory that it lies in.
    let (fid, d) = (s.file(ROOT, "f"), s.dir(ROOT, "d"));
    let (from, to) = (name("f"), name("g"));
    s.run(&Op::Rename { parent: ROOT, name: from, to_parent: d, to_name: to, flags: 0 }, b"").unwrap();
    let mut j = s.bricks.pop().unwrap();
    s.write(fid, 0, b"missed");
    let mut p = s.bricks.pop().unwrap();
    p.flush_attrs().unwrap();
    p.begin_heal(common.lsn, &[], Lsn(0)).unwrap();
    drop(p);
    std::fs::copy(&early, dir.path().join(index)).unwrap();
    let mut p = open(&path, &identity(1));
    j.begin_heal(common.lsn, &[fid], Lsn(0)).unwrap();
    let mut healing = accept_join(&mut p, &mut j, &common, true);
    heal_all(&mut p, &mut j, &mut healing);
    end(&mut j);
    same_data(&mut p, &mut j, fid);
    same_trees(dir.path(), &mut p, &mut j);
}

/// After an interrupted healing a file is asked for before the names of its directory: what is changed of it meanwhile
/// waits for the name, and is no change that fails.
#[test]
fn a_change_to_a_file_whose_name_is_not_here_yet_waits_for_it() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1), new_brick(dir.path(), 2)]);
    s.file(ROOT, "first");
    let mut j = s.bricks.remove(1);
    let common = j.last();
    let f = s.file(ROOT, "f");
    let p = &mut s.bricks[0];
    drop(accept_join(p, &mut j, &common, false));
    // What it had journaled of the first healing is cut off again.
    let mut healing = HealSession::begin(&mut j, (&common, &common), common.lsn, false).unwrap();
    for r in p.iterate(common.lsn.next()).map(Result::unwrap).collect::<Vec<_>>() {
        let (stamp, change) = (&r.stamp, &r.change);
        let missed = Arriving { stamp, op: OP, result_fid: None, change, payload: b"" };
        healing.apply(&mut j, missed).unwrap();
    }
    healing.on_caught_up(&mut j, &p.last(), vec![]).unwrap();
    let asked: Vec<_> = std::iter::from_fn(|| healing.ask(&mut j)).collect();
    let is_about = |q: &PeerBody| matches!(q, PeerBody::AskObject { fid, .. } if *fid == f);
    let (first, later): (Vec<_>, Vec<_>) = asked.into_iter().partition(is_about);
    assert_eq!(first.len(), 1, "its name is asked for first");
    let answered = |healing: &mut HealSession, j: &mut Brick, p: &mut Brick, questions: Vec<PeerBody>| {
        for question in questions {
            let (body, data) = answer(p, &question);
            take(healing, j, &body, &data);
        }
    };
    answered(&mut healing, &mut j, p, first);
    let set = SetAttr { mode: Some(0o600), ..set_attr() };
    let (stamp, change) = decided(p, &[], Epoch(1), &Op::SetAttr { fid: f, set }, b"").unwrap();
    p.apply(stamp.clone(), OP, None, &change, b"").unwrap();
    let arriving = Arriving { stamp: &stamp, op: OP, result_fid: None, change: &change, payload: b"" };
    let errors = Errors::default();
    tracing::subscriber::with_default(errors.clone(), || healing.apply(&mut j, arriving)).unwrap();
    assert_eq!(errors.0.load(Ordering::Relaxed), 0, "it was tried and failed");
    answered(&mut healing, &mut j, p, later);
    heal_all(p, &mut j, &mut healing);
    same_trees(dir.path(), p, &mut j);
}

/// Counts lines of the log that tell of errors.
#[derive(Clone, Default)]
struct Errors(Arc<AtomicU32>);

impl tracing::Subscriber for Errors {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() == tracing::Level::ERROR
    }

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
