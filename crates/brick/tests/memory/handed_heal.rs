//! A brick that was away while its set took or gave a directory, or alone did so, becomes like the other one.

use super::common::partners::{OP, accept_join, agreed, heal_all};
use super::common::*;
use super::disk::{Disk, Seen};
use super::handed::*;
use brick::{Brick, DirLocation};
use disk_format::tag::INTENT;
use ids::{Epoch, Fid, Lsn, SetId, Time};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use std::collections::BTreeMap;
use wire::op::{Ancestor, EntryName, Intent, Node};
use wire::peer::Stamp;
use wire::{Change, Errno};

/// The second brick heals from the first one.
fn heal(p: &mut Brick, j: &mut Brick, full: bool) {
    let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
    let from = j.stale_set().map_or(Lsn(u64::MAX), |stale| stale.from);
    let upto = from.min(agreed(p, j));
    let full = full || upto.next() < p.journal_start();
    let common = if full { none } else { p.stamp_at(upto).unwrap().unwrap_or(none) };
    let mut healing = accept_join(p, j, &common, full);
    heal_all(p, j, &mut healing);
}

fn apply(b: &mut Brick, epoch: u32, change: &Change) {
    let stamp = Stamp { epoch: Epoch(epoch), lsn: b.last().lsn.next() };
    b.apply(stamp, OP, None, change, b"").unwrap();
}

/// Two bricks of a set, as they are before the change.
struct Pair {
    disks: [Disk; 2],
    at: Start,
    p: Brick,
    j: Option<Brick>,
}

impl Pair {
    fn new(start: fn(&mut Disk) -> Start) -> Pair {
        let mut disks = [1, 2].map(|n| Disk::new(n, CrashRule::Ordered));
        let [mut at, mut other] = disks.each_mut().map(start);
        let (p, j) = (at.s.bricks.remove(0), other.s.bricks.remove(0));
        disks.iter_mut().for_each(Disk::pass_time);
        Pair { disks, at, p, j: Some(j) }
    }

    fn j(&mut self) -> &mut Brick {
        self.j.as_mut().unwrap()
    }

    fn open_j(&mut self) {
        self.j = None;
        self.disks[1].empty();
        self.j = Some(self.disks[1].open().unwrap());
    }

    /// The second one heals, and is like the first one, to who asks and to who looks.
    fn become_equal(mut self, full: bool, why: &str) {
        let (dir, names) = (self.at.dir, self.at.names.clone());
        let j = self.j.as_mut().unwrap();
        heal(&mut self.p, j, full);
        let (wanted, seen) = (view(&mut self.p, dir, &names), view(j, dir, &names));
        assert_eq!(seen.without_unused_copies(), wanted.without_unused_copies(), "{why}");
        self.p.close().unwrap();
        self.j.take().unwrap().close().unwrap();
        let [there, here] = self.disks.each_ref().map(|disk| {
            let mut tree = disk.tree();
            // It counts only in a copy of another set's directory.
            tree.values_mut().for_each(|seen| drop(seen.xattrs.remove(INTENT.as_bytes())));
            tree
        });
        // Which copies there are, how old they are, and whether names lie there or in their folder is each brick's own matter.
        let is_copy = |path: &str| {
            let tag = |tree: &BTreeMap<String, Seen>| tree.get(path).and_then(|seen| seen.tag);
            [tag(&here), tag(&there)].iter().flatten().any(|tag| tag.home != SET && tag.stub_kind().is_none())
        };
        let compared = |path: &&String| {
            let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
            !ends.into_iter().any(|end| is_copy(&path[..end]))
        };
        for path in here.keys().chain(there.keys()).filter(compared) {
            assert_eq!(here.get(path), there.get(path), "{why}, {path}: here, and there");
        }
        for disk in &self.disks {
            assert_eq!(disk.problems(), [], "{why}");
        }
    }
}

/// What follows the change of a start: nothing, its end, its end and what begins anew.
fn histories(at: &Start) -> Vec<Vec<Change>> {
    let (fid, change) = (at.dir, at.change.clone());
    let keep = Change::EndTransaction { fid, keep: true };
    let all: Vec<Vec<Change>> = match &change {
        Change::TakeDir { .. } => vec![
            vec![],
            vec![keep.clone()],
            vec![give(fid)],
            vec![keep.clone(), give(fid)],
            vec![give(fid), change.clone()],
            vec![keep.clone(), give(fid), change.clone(), keep],
        ],
        Change::GiveDir { .. } => {
            let again = take(fid, &at.names);
            vec![vec![], vec![again.clone()], vec![again.clone(), keep.clone()], vec![again, give(fid)]]
        }
        _ => vec![vec![], vec![give(fid)], vec![give(fid), take(fid, &at.names)]],
    };
    all.into_iter().map(|after| [vec![change.clone()], after].concat()).collect()
}

fn each_history(mut each: impl FnMut(Pair, &[Change], bool, &str)) {
    for (what, start) in STARTS {
        let count = histories(&Pair::new(start).at).len();
        for (n, full) in (0..count).flat_map(|n| [(n, false), (n, true)]) {
            let pair = Pair::new(start);
            let history = histories(&pair.at).swap_remove(n);
            each(pair, &history, full, &format!("{what}, history {n}, full {full}"));
        }
    }
}

#[test]
fn a_brick_that_was_away_becomes_like_the_other() {
    each_history(|mut pair, history, full, why| {
        history.iter().for_each(|change| apply(&mut pair.p, 1, change));
        pair.open_j();
        pair.become_equal(full, why);
    });
}

/// Each start in which a directory is given away, with the set that gets it, and which stays an entry of this set.
fn given_entries() -> impl Iterator<Item = (&'static str, Pair, Fid, SetId, DirLocation)> {
    STARTS.into_iter().filter_map(|(what, start)| {
        let mut pair = Pair::new(start);
        let Change::GiveDir { fid, to, .. } = pair.at.change else { return None };
        let at = pair.p.location_of(fid).unwrap();
        (at.parent_home == SET).then_some((what, pair, fid, to, at))
    })
}

/// What has become a copy is marked to lose its entry: the brick that missed both knows what the mark means.
#[test]
fn a_copy_that_was_marked_meanwhile_is_marked_with_what_is_meant() {
    let mut any = false;
    for (what, mut pair, fid, to, at) in given_entries() {
        any = true;
        let drop = Some(EntryName { dir: at.parent, name: at.name });
        let intent = Intent { tx: TX, coordinator: to, drop, add: None };
        apply(&mut pair.p, 1, &pair.at.change);
        apply(&mut pair.p, 1, &Change::PrepareFile { fid, intent: intent.clone() });
        pair.open_j();
        heal(&mut pair.p, pair.j.as_mut().unwrap(), false);
        assert_eq!(pair.j().intent(fid), Ok(Some(intent)), "{what}");
    }
    assert!(any, "one of them is an entry of this set");
}

/// A copy loses its entry while a brick is away on which it is marked for that, and waits there with what it holds. When it is an entry
/// again it is not marked on that brick either: the entry would go with the end of the old mark.
#[test]
fn a_copy_that_lost_its_entry_meanwhile_is_not_marked_any_more() {
    let mut any = false;
    for (what, mut pair, fid, to, at) in given_entries() {
        let drop = EntryName { dir: at.parent, name: at.name.clone() };
        let intent = Intent { tx: TX, coordinator: to, drop: Some(drop.clone()), add: None };
        for change in [pair.at.change.clone(), Change::PrepareFile { fid, intent }] {
            apply(&mut pair.p, 1, &change);
            apply(pair.j(), 1, &change);
        }
        let (drop, time) = (Some(drop), Time { sec: 9, nsec: 0 });
        apply(&mut pair.p, 1, &Change::EndFile { fid, drop, add: None, orphan: false, time });
        pair.open_j();
        assert_eq!(pair.j().is_pending(fid), Ok(true), "{what}: it knows of no end");
        heal(&mut pair.p, pair.j.as_mut().unwrap(), false);
        any |= pair.j().is_pending(fid) == Ok(false);
        let (parent, name) = (at.parent, at.name);
        let enter = Change::Enter { parent, name, fid, home: to, kind: 0o040_000, replaced: None, time };
        apply(&mut pair.p, 1, &enter);
        apply(pair.j(), 1, &enter);
        for b in [&mut pair.p, pair.j.as_mut().unwrap()] {
            assert_eq!((b.is_pending(fid), b.intent(fid)), (Ok(false), Ok(None)), "{what}");
        }
    }
    assert!(any, "one of them holds something");
}

/// It led, and nobody heard of what it did.
#[test]
fn a_brick_that_was_alone_becomes_like_the_other() {
    each_history(|mut pair, history, full, why| {
        history.iter().for_each(|change| apply(pair.j(), 1, change));
        apply(&mut pair.p, 2, &Change::Nop);
        pair.open_j();
        pair.become_equal(full, why);
    });
}

/// It did some of it, and is killed in the midst of one change, or its disk fails. The other one has gone on.
#[test]
fn a_brick_that_was_interrupted_becomes_like_the_other() {
    each_history(|pair, history, full, why| {
        let start = STARTS.iter().find(|(what, _)| why.starts_with(&format!("{what}, h"))).unwrap().1;
        drop(pair);
        for (calls, lost, alone) in
            (0..80).step_by(3).flat_map(|n| [(n, n % 2 == 0, true), (n, n % 2 == 1, false)])
        {
            let mut pair = Pair::new(start);
            if lost {
                pair.disks[1].cut_power_after(calls);
            } else {
                pair.disks[1].fail_writes_after(calls);
            }
            for change in history {
                // The end comes when all of it is on disk.
                let ends = matches!(change, Change::EndTransaction { .. });
                if ends && pair.j().begin_sync(None).and_then(|job| job.run()).is_err() {
                    break;
                }
                let stamp = Stamp { epoch: Epoch(1), lsn: pair.j().last().lsn.next() };
                if pair.j().apply(stamp, OP, None, change, b"").is_err() {
                    break;
                }
            }
            if alone {
                apply(&mut pair.p, 2, &Change::Nop);
            } else {
                history.iter().for_each(|change| apply(&mut pair.p, 1, change));
            }
            pair.j = None;
            if lost {
                pair.disks[1].crash_by_chance(CrashRule::Ordered, calls);
                pair.disks[1].pass_time();
            }
            pair.open_j();
            let dir = pair.at.dir;
            if lost && alone && pair.j().attr_of_any(dir).is_err() {
                // Of a directory beneath a copy that went nothing tells: the other brick gives it up as well.
                continue;
            }
            pair.become_equal(full, &format!("{why}, {calls} calls, lost {lost}, alone {alone}"));
        }
    });
}

/// A directory has left one that goes to another set, or was lost in a power cut: the brick that missed both has it where the other
/// one does, or no more.
#[test]
fn a_directory_in_what_has_become_a_copy_is_where_the_other_one_has_it() {
    let (fid, file) = (of(SET, 900), of(SET, 901));
    let made = |parent, fid, n: &str, node| {
        let (name, home, mode, uid, gid, time) = (name(n), SET, 0o755, 0, 0, time(9));
        Change::Create { parent, name, fid, home, node, mode, uid, gid, time }
    };
    let (n, time) = (|| name("sub"), time(10));
    let history = |why, parent| match why {
        "gone" => {
            let unlink = Change::Unlink { parent: fid, name: name("file"), fid: file, orphan: false, time };
            vec![unlink, Change::Rmdir { parent, name: n(), fid, time }]
        }
        "renamed" => {
            let (to_parent, replaced) = (ROOT, None);
            vec![Change::Rename { parent, name: n(), fid, to_parent, to_name: n(), replaced, time }]
        }
        // Its entry is another set's.
        "moved" => {
            let (drop, add) = (EntryName { dir: parent, name: n() }, EntryName { dir: FAR, name: n() });
            let (tx, coordinator, to, to_dir) = (TX, OTHER, OTHER, FAR);
            let intent = Intent { tx, coordinator, drop: Some(drop), add: Some(add) };
            let out = Change::MoveOut { parent, name: n(), fid, tx, to, to_dir, to_name: n(), time };
            vec![Change::PrepareFile { fid, intent }, out, Change::EndTransaction { fid, keep: true }]
        }
        _ => vec![],
    };
    let all = ["lost", "gone", "renamed", "moved"];
    // What was lost only a full comparison finds.
    for (why, full) in all.into_iter().flat_map(|why| [(why, false), (why, true)]).skip(1) {
        let mut pair = Pair::new(given);
        let (dir, give) = (pair.at.dir, pair.at.change.clone());
        for change in [made(dir, fid, "sub", Node::Dir), made(fid, file, "file", Node::File)] {
            // Its record is there still.
            apply(&mut pair.p, 1, if why == "lost" { &Change::Nop } else { &change });
            apply(pair.j(), 1, &change);
        }
        history(why, dir).iter().chain([&give]).for_each(|change| apply(&mut pair.p, 1, change));
        if why == "moved" {
            let path = vec![Ancestor { fid: dir, home: OTHER, name: name("dir") }];
            apply(&mut pair.p, 1, &Change::Relocate { fid, path, name: n() });
        }
        pair.open_j();
        heal(&mut pair.p, pair.j.as_mut().unwrap(), full);
        let seen = [&mut pair.p, pair.j.as_mut().unwrap()].map(|b| {
            let at = b.location_of(fid).map(|at| (at.parent, at.name));
            (at, b.entry(fid, &name("file")).map(|entry| entry.map(|e| e.fid)))
        });
        assert_eq!(seen[1], seen[0], "{why}, full {full}");
        let wanted = if matches!(why, "lost" | "gone") { Err(Errno::ESTALE) } else { Ok(Some(file)) };
        assert_eq!(seen[0].1, wanted, "{why}, full {full}");
    }
}
