//! What lies beneath directories of other sets comes to its path (crates/set-core/src/paths.rs).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::Memory;
use crate::common::{ME, Rig, answer, name};
use ids::{Epoch, Fid, Lsn, SetId};
use namespace::placement::SetRoom;
use set_core::{Done, Input, Settings};
use std::collections::VecDeque;
use std::time::Duration;
use wire::op::Ancestor;
use wire::{Body, Change, Fail, Op};

const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
/// A directory of the other set.
const FAR: Fid = Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(60) };

const fn here(n: u64) -> Fid {
    Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(n) }
}

fn rig() -> Rig {
    Rig::with(Memory::default(), &[])
}

fn changes(rig: &mut Rig) -> Vec<&'static str> {
    rig.core.brick_mut().journal.iter().map(|e| e.body.variant()).collect()
}

fn relocations(rig: &mut Rig) -> usize {
    changes(rig).iter().filter(|change| **change == "Relocate").count()
}

fn entry(fid: Fid, s: &str) -> Ancestor {
    Ancestor { fid, home: fid.set, name: name(s) }
}

/// This set, which is asked first, tells that the other one has the entry of a directory; that one tells the path.
fn is_told(rig: &mut Rig, first: u64, dir: Fid, path: Vec<Ancestor>) {
    let nothing = Ok(Body::Path { path: Vec::new(), other: Some((dir, THERE)) });
    assert_eq!(answer(rig, first, nothing), [format!("ask {}: pathof of 2", first + 1)]);
    answer(rig, first + 1, Ok(Body::Path { path, other: None }));
}

/// Maintenance at a later time: what is begun to list what may lie elsewhere than at its path, and its number.
fn begins_pass(rig: &mut Rig) -> Option<(String, u64)> {
    rig.now += Duration::from_secs(11);
    let out = rig.step(Input::Maintenance);
    let begun = |l: &String| {
        let (id, what) = l.strip_prefix("start ")?.split_once(": ")?;
        ["folders", "walk"].contains(&what).then(|| (what.to_owned(), id.parse().ok()))
    };
    out.iter().find_map(begun).and_then(|(what, id)| Some((what, id?)))
}

/// The set that got the entry of a directory may end before its last word: then the directory's set asks where it is to lie.
#[test]
fn a_directory_whose_path_nobody_told_asks_for_it() {
    let mut rig = rig();
    let lost = here(70);
    rig.core.brick_mut().hangs.insert(lost, THERE);
    rig.core.brick_mut().without_place.insert(lost);
    let (what, id) = begins_pass(&mut rig).unwrap();
    assert_eq!(what, "walk", "a new epoch");
    // An entry of this set's own is not asked for.
    let found = Ok(Done::Placed(vec![here(71), lost]));
    assert_eq!(rig.step(Input::Worked(id, found)), ["ask 1: pathof of 1"]);
    is_told(&mut rig, 1, lost, vec![entry(lost, "new"), entry(FAR, "far")]);
    let moved = rig.core.brick_mut().journal.iter().map(|e| e.body.clone()).collect::<Vec<_>>();
    let path = vec![entry(FAR, "far")];
    assert_eq!(moved, [Change::Relocate { fid: lost, path, name: name("new") }]);
}

/// All directories are walked over twice in an epoch, and when another set has renamed some, or something was not at its path.
#[test]
fn a_walk_follows_renames_on_other_sets() {
    let mut rig = rig();
    rig.core.brick_mut().without_place.insert(here(70));
    let pass = |rig: &mut Rig| {
        let (what, id) = begins_pass(rig)?;
        let found = if what == "walk" { Done::Placed(Vec::new()) } else { Done::Hidden(Vec::new()) };
        rig.step(Input::Worked(id, Ok(found)));
        Some(what)
    };
    let passes = |rig: &mut Rig| -> Vec<String> { (0..4).filter_map(|_| pass(rig)).collect() };
    assert_eq!(passes(&mut rig), ["walk", "walk", "folders", "folders"]);
    let room = SetRoom { renames: 1, ..SetRoom::new(THERE, 1 << 40, 1 << 41) };
    rig.world.rooms.borrow_mut().insert(THERE, room);
    assert_eq!(passes(&mut rig), ["walk", "folders", "folders", "folders"]);
    rig.core.brick_mut().without_place.clear();
    assert!(passes(&mut rig).is_empty(), "nothing lies in lost+found");
}

/// What several seconds of maintenance lead to while the other set tells each path at once; when a listing takes place nothing
/// is found.
fn seconds(rig: &mut Rig, count: usize, tells: &mut dyn FnMut(Fid, u64) -> Result<Body, Fail>) {
    for _ in 0..count {
        rig.now += Duration::from_secs(1);
        let mut said: VecDeque<String> = rig.step(Input::Maintenance).into();
        while let Some(line) = said.pop_front() {
            let (what, rest) = line.split_once(' ').unwrap_or((&line, ""));
            let Some(id) = rest.split(':').next().and_then(|id| id.parse().ok()) else { continue };
            let out = match what {
                "start" if rest.ends_with("walk") => {
                    rig.step(Input::Worked(id, Ok(Done::Placed(Vec::new()))))
                }
                "start" if rest.ends_with("folders") => {
                    rig.step(Input::Worked(id, Ok(Done::Hidden(Vec::new()))))
                }
                "ask" => {
                    let set = rest.rsplit(' ').next().and_then(|set| set.parse().ok()).unwrap_or_default();
                    let answer = tells(here(70), set);
                    rig.step(Input::Answered(id, answer))
                }
                _ => continue,
            };
            said.extend(out);
        }
    }
}

/// The path of a directory that the other set has in its root; this set says whose the entry is.
fn at_top(dir: Fid, set: u64) -> Result<Body, Fail> {
    if set == 1 {
        return Ok(Body::Path { path: Vec::new(), other: Some((dir, THERE)) });
    }
    Ok(Body::Path { path: vec![entry(dir, "new")], other: None })
}

/// A rig in which one directory hangs at an old path, and another set just told so.
fn told(lost: Fid) -> Rig {
    let mut rig = rig();
    rig.core.brick_mut().hangs.insert(lost, THERE);
    rig.core.brick_mut().without_place.insert(lost);
    rig.core.brick_mut().files.insert(lost);
    let old = vec![entry(FAR, "old")];
    let op = Op::Relocate { fid: lost, path: old, name: name("new") };
    let said = rig.ask(9, op);
    assert!(said.iter().any(|l| l.contains("done")), "{said:?}");
    assert!(changes(&mut rig).is_empty(), "whoever tells may have an old path");
    rig
}

/// A directory that cannot have its place, for whatever reason, is moved less and less often, and holds up nothing else.
#[test]
fn what_cannot_have_its_place_is_tried_less_often() {
    let lost = here(70);
    let mut rig = told(lost);
    let mut moves = Vec::new();
    for second in 0..4000 {
        seconds(&mut rig, 1, &mut at_top);
        let now = relocations(&mut rig);
        (moves.len()..now).for_each(|_| moves.push(second));
    }
    assert_eq!(moves[..5], [0, 10, 20, 30, 50]);
    let rests: Vec<i32> = moves.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(rests.last(), Some(&640), "{moves:?}");
    rig.core.brick_mut().without_place.clear();
    seconds(&mut rig, 700, &mut at_top);
    let before = changes(&mut rig).len();
    seconds(&mut rig, 2000, &mut at_top);
    assert_eq!(changes(&mut rig).len(), before, "it has its place");
}

/// Another brick may have had something in its way, or no room.
#[test]
fn what_is_moved_is_told_twice_and_until_all_bricks_have_room() {
    let mut rig = told(here(70));
    let moves = |rig: &mut Rig, count| {
        let before = relocations(rig);
        seconds(rig, count, &mut at_top);
        relocations(rig) - before
    };
    assert_eq!(moves(&mut rig, 1), 1);
    rig.core.brick_mut().without_place.clear();
    assert_eq!(moves(&mut rig, 11), 1, "once more, though it is at its place here");
    assert_eq!(moves(&mut rig, 2000), 0);

    let mut rig = told(here(70));
    rig.core.brick_mut().full = true;
    assert_eq!(moves(&mut rig, 1), 1);
    rig.core.brick_mut().without_place.clear();
    assert!(moves(&mut rig, 100) > 2);
    rig.core.brick_mut().full = false;
    assert_eq!(moves(&mut rig, 700), 1);
    assert_eq!(moves(&mut rig, 2000), 0);
}

/// A set that does not answer is asked once in ten seconds, whoever needs it, and what needs another one goes on.
#[test]
fn a_set_that_is_away_holds_up_nothing_else() {
    let lost = here(70);
    let mut rig = told(lost);
    let mut asked = 0;
    seconds(&mut rig, 100, &mut |dir, set| {
        asked += u32::from(set == 2);
        if set == 1 {
            return Ok(Body::Path { path: vec![entry(dir, "d")], other: Some((FAR, THERE)) });
        }
        Err(Fail::Busy)
    });
    assert!((3..=8).contains(&asked), "{asked} in 100 s");
    assert!(changes(&mut rig).is_empty(), "half a path is none");
    seconds(&mut rig, 200, &mut at_top);
    assert!(!changes(&mut rig).is_empty());
}

/// What is gone by the time that it would be asked for again is forgotten.
#[test]
fn what_is_gone_is_not_asked_for() {
    let folder = FAR.names();
    let mut rig = told(folder);
    let mut asked = 0;
    let mut gone = |_, _| {
        asked += 1;
        Err(Fail::Errno { errno: wire::Errno::ESTALE.0 })
    };
    seconds(&mut rig, 5, &mut gone);
    rig.core.brick_mut().hangs.remove(&folder);
    seconds(&mut rig, 2000, &mut gone);
    assert_eq!(asked, 1);
}

/// The walk of an epoch may end in the next one: that says nothing of how long a walk takes.
#[test]
fn a_walk_over_the_end_of_an_epoch_holds_up_nothing() {
    let mut rig = rig();
    let (_, id) = begins_pass(&mut rig).unwrap();
    rig.lead(&[]);
    assert!(begins_pass(&mut rig).is_none(), "one at a time");
    rig.step(Input::Worked(id, Ok(Done::Placed(Vec::new()))));
    // It took some ten seconds.
    let next = (0..30).find_map(|_| begins_pass(&mut rig)).unwrap();
    assert_eq!(next.0, "walk");
}

/// A walk that failed takes place again.
#[test]
fn a_walk_that_failed_is_repeated() {
    let mut rig = rig();
    for _ in 0..4 {
        let (what, id) = begins_pass(&mut rig).unwrap();
        assert_eq!(what, "walk");
        rig.step(Input::Worked(id, Err(wire::Errno::EIO)));
    }
}

/// As long as names come to their places a folder is looked at each second.
#[test]
fn a_folder_of_many_names_is_not_left_alone() {
    let mut rig = told(FAR.names());
    let mut tells = |_, set| match set {
        1 => Ok(Body::Done),
        _ => Ok(Body::Path { path: vec![entry(FAR, "far")], other: None }),
    };
    for _ in 0..30 {
        seconds(&mut rig, 1, &mut tells);
        rig.core.brick_mut().unsettled.insert(FAR.names());
    }
    let moves = relocations(&mut rig);
    assert_eq!(moves, 2 * (1 + 20), "once before the copy is on disk, and once after it");
}

/// Where there is no other set nothing can hang on one: a volume of one set is not walked over.
#[test]
fn a_volume_of_one_set_is_not_walked_over() {
    let mut rig = rig();
    rig.core.brick_mut().without_place.insert(here(70));
    let sets = vec![(HERE, true)];
    let alone = Settings { sets, ..rig.settings(ME, [ME].into()) };
    rig.step(Input::Settings(alone));
    assert!((0..4).all(|_| begins_pass(&mut rig).is_none()));
    let settings = rig.settings(ME, [ME].into());
    rig.step(Input::Settings(settings));
    assert!(begins_pass(&mut rig).is_some());
}
