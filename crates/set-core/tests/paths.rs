//! What lies beneath directories of other sets comes to its path (crates/set-core/src/paths.rs).
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::Memory;
use crate::common::{Rig, answer, name};
use ids::{Epoch, Fid, Lsn, SetId};
use namespace::placement::SetRoom;
use set_core::{Done, Input};
use std::time::Duration;
use wire::op::Ancestor;
use wire::{Body, Change};

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
    let nothing = Ok(Body::Path { path: Vec::new(), other: Some((lost, THERE)) });
    assert_eq!(answer(&mut rig, 1, nothing), ["ask 2: pathof of 2"]);
    let entry = |fid: Fid, s| Ancestor { fid, home: fid.set, name: name(s) };
    let told = Ok(Body::Path { path: vec![entry(lost, "new"), entry(FAR, "far")], other: None });
    answer(&mut rig, 2, told);
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

/// A directory that cannot have its place, for whatever reason, is moved less and less often.
#[test]
fn what_cannot_have_its_place_is_tried_less_often() {
    let mut rig = rig();
    let lost = here(70);
    rig.core.brick_mut().hangs.insert(lost, THERE);
    rig.core.brick_mut().without_place.insert(lost);
    let number = |said: &[String]| -> u64 {
        let ask = said.iter().find_map(|l| l.strip_prefix("ask ")).expect("another set is asked");
        ask.split_once(':').and_then(|(n, _)| n.parse().ok()).expect("a number")
    };
    let mut walks = Vec::new();
    for round in 0..400 {
        let Some((what, id)) = begins_pass(&mut rig) else { continue };
        assert_eq!(what, "walk");
        let asked = rig.step(Input::Worked(id, Ok(Done::Placed(vec![lost]))));
        let nothing = Ok(Body::Path { path: Vec::new(), other: Some((lost, THERE)) });
        let asked = answer(&mut rig, number(&asked), nothing);
        let entry = Ancestor { fid: lost, home: HERE, name: name("new") };
        answer(&mut rig, number(&asked), Ok(Body::Path { path: vec![entry], other: None }));
        walks.push(round);
    }
    let moves = changes(&mut rig).iter().filter(|change| **change == "Relocate").count();
    assert_eq!(moves, walks.len());
    assert_eq!(walks[..5], [0, 1, 2, 3, 4]);
    let last: Vec<i32> = walks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(last.last(), Some(&59), "after ten minutes: {walks:?}");
}
