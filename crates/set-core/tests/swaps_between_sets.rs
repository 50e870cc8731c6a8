//! Exchanges of directories with what has a name in a directory of another set, told as scripts (docs/design/0019): this set decides,
//! or it has the other name.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, dir};
use crate::common::{self, Rig, To, answer, asked, done, errno, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use set_core::{Input, Settings};
use std::time::Duration;
use wire::op::{EntryName, Intent, Successor, rename_flags};
use wire::{Attr, Body, Errno, Fail, Op};

const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
const THIRD: SetId = SetId(3);
/// A directory of the other set, and what has a name in it.
const FAR: Fid = of(THERE, 60);
const FAR_DIR: Fid = of(THERE, 61);
const FILE: Fid = of(THERE, 51);
/// A directory of this set, and one of a third set with a name here.
const DIR: Fid = of(HERE, 40);
const COPY: Fid = of(THIRD, 50);
const TX: OpId = OpId { session: SessionId(88), seq: 1 };
const KIND: u32 = 0o040_000;

const fn of(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(5), lsn: Lsn(n) }
}

fn at(dir: Fid, s: &str) -> EntryName {
    EntryName { dir, name: name(s) }
}

fn rig() -> Rig {
    let names = [((ROOT, name("dir")), (DIR, HERE)), ((ROOT, name("copy")), (COPY, THIRD))].into();
    let mut rig = Rig::with(Memory { names, ..Memory::default() }, &[]);
    let settings = rig.settings(common::ME, [common::ME].into());
    rig.step(Input::Settings(Settings { level: 8, ..settings }));
    rig
}

fn directory(fid: Fid) -> Result<Body, Fail> {
    Ok(Body::Attr { attr: Attr { home: fid.set, ..dir(fid) } })
}

fn file(fid: Fid) -> Result<Body, Fail> {
    Ok(Body::Attr { attr: Attr { home: fid.set, mode: 0o100_644, nlink: 1, ..dir(fid) } })
}

fn exchange(to_parent: Fid, to: &str) -> Op {
    let flags = rename_flags::EXCHANGE;
    Op::MoveIn { from: THERE, parent: FAR, name: name("far"), to_parent, to_name: name(to), flags }
}

fn above(own: &[Fid], other: Option<(Fid, SetId)>) -> Result<Body, Fail> {
    Ok(Body::Lineage { own: own.to_vec(), other })
}

fn changes(rig: &mut Rig) -> Vec<&'static str> {
    rig.core.brick_mut().journal.iter().map(|e| e.body.variant()).collect()
}

fn leads(rig: &mut Rig, dir: Fid, s: &str) -> Option<Fid> {
    rig.core.brick_mut().names.get(&(dir, name(s))).map(|(fid, _)| *fid)
}

fn pause(rig: &mut Rig) {
    rig.now += Duration::from_secs(1);
}

/// The request to the own set that a step leads to, as it is sent.
fn to_own_set(rig: &mut Rig, input: Input<To>) -> (Op, OpId) {
    let outputs = rig.outputs(input);
    let own = outputs.into_iter().find_map(|o| match o {
        set_core::Output::Ask { set: HERE, op, name: Some(name), .. } => Some((op, name)),
        _ => None,
    });
    own.expect("the own set is asked")
}

/// Both directories are marked, each at its set, then what lies above the two names is asked for under the lock. The entry is the
/// moment it counts.
#[test]
fn two_directories_change_places() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, exchange(ROOT, "copy")), ["ask 1: prepareexchange of 2 as 2"]);
    assert_eq!(answer(&mut rig, 1, errno(Errno::EXDEV)), ["ask 2: lookup of 2"]);
    assert_eq!(answer(&mut rig, 2, directory(FAR_DIR)), ["ask 3: prepareexchange of 2 as 3"]);
    assert_eq!(answer(&mut rig, 3, directory(FAR_DIR)), ["ask 4: fsync of 2"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: preparefile of 3 as 4"]);
    assert_eq!(answer(&mut rig, 5, directory(COPY)), ["ask 6: fsync of 3"]);
    assert_eq!(done(&mut rig, 6), ["ask 7: locktree of 1"]);
    assert_eq!(done(&mut rig, 7), ["ask 8: lineage of 2"], "the own root lies above the other name");
    assert!(changes(&mut rig).is_empty());
    let told = answer(&mut rig, 8, above(&[FAR], None));
    assert_eq!(told, ["ask 9: unlocktree of 1", "ask 10: syncfs of 1"]);
    assert_eq!((changes(&mut rig), leads(&mut rig, ROOT, "copy")), (vec!["Swap"], Some(FAR_DIR)));
    assert_eq!(done(&mut rig, 10), ["ask 11: endfile of 2"], "its entry leads to the other directory");
    assert_eq!(done(&mut rig, 11), ["ask 12: endfile of 2"]);
    assert_eq!(done(&mut rig, 12), ["ask 13: syncfs of 2"]);
    assert_eq!(done(&mut rig, 13), ["ask 14: endfile of 2"], "the directory there has left");
    assert_eq!(done(&mut rig, 14), ["ask 15: syncfs of 2", "ask 16: endfile of 3"]);
    assert_eq!(done(&mut rig, 16), ["ask 17: syncfs of 3", "reply 1: done for 250 ms"]);
    assert_eq!(done(&mut rig, 15), ["ask 18: endtransaction of 2"]);
    assert_eq!(done(&mut rig, 17), ["ask 19: endtransaction of 3"]);
    assert_eq!(done(&mut rig, 18), ["ask 20: relocate of 2"]);
}

/// A file comes for a directory of this set, which waits for its place from then on.
#[test]
fn a_directory_changes_places_with_a_file() {
    let mut rig = rig();
    rig.ask(7, exchange(ROOT, "dir"));
    assert_eq!(answer(&mut rig, 1, file(FILE)), ["ask 2: fsync of 2"]);
    let (mark, id) = to_own_set(&mut rig, Input::Answered(2, Ok(Body::Done)));
    let coordinator = |op: &Op| matches!(op, Op::PrepareFile { coordinator: THERE, fid: Some(DIR), .. });
    assert!(coordinator(&mark), "the other set's entry decides for it: {mark:?}");
    rig.ask_as(id.session.0, id.seq, mark);
    assert_eq!(answer(&mut rig, 3, directory(DIR)), ["ask 4: fsync of 1"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: locktree of 1"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: lineage of 2"]);
    answer(&mut rig, 6, above(&[FAR], None));
    assert_eq!((changes(&mut rig), leads(&mut rig, ROOT, "dir")), (vec!["PrepareFile", "Swap"], Some(FILE)));
    let (own, there) = (rig.core.brick_mut().hangs.get(&DIR).copied(), Some(THERE));
    assert_eq!(own, there, "it waits for its place");
    // The other set has to be told first. It asks by itself otherwise: its own disk and the other set's say so.
    assert_eq!(asked(&mut rig), ["ask 9: checkentry of 2"]);
    assert_eq!(answer(&mut rig, 9, Err(Fail::Busy)), Vec::<String>::new(), "the entry leads there soon");
    assert_eq!(asked(&mut rig), ["ask 10: checkentry of 2"]);
    assert_eq!(done(&mut rig, 10), ["ask 11: syncfs of 2"]);
    assert_eq!(done(&mut rig, 11), ["ask 12: checkentry of 2"]);
    assert_eq!(done(&mut rig, 12), ["ask 13: syncfs of 1"]);
    assert_eq!(done(&mut rig, 13), ["ask 14: endtransaction of 1"]);
}

/// Neither comes beneath itself: what lies above the other name is told up to the directory that is to go there.
#[test]
fn no_directory_comes_beneath_itself() {
    for (goes, refused) in [(COPY, true), (of(THIRD, 77), false)] {
        let mut rig = rig();
        rig.ask(7, exchange(ROOT, "copy"));
        answer(&mut rig, 1, file(FILE));
        done(&mut rig, 2);
        answer(&mut rig, 3, directory(COPY));
        done(&mut rig, 4);
        done(&mut rig, 5);
        let told = answer(&mut rig, 6, above(&[FAR, goes], (goes == COPY).then_some((goes, THIRD))));
        let is_refused = told.iter().any(|line| line.contains("invalid argument"));
        assert_eq!((is_refused, changes(&mut rig).is_empty()), (refused, refused), "{told:?}");
    }
    // The name is in the other directory itself.
    let mut rig = rig();
    rig.core.brick_mut().names.insert((ROOT, name("above")), (FAR, THERE));
    assert_eq!(rig.ask(7, exchange(ROOT, "above")), ["reply 1: invalid argument for 250 ms"]);
    // But for all that is known here it has gone from there.
    let (tx, drop) = (TX, Some(at(ROOT, "above")));
    let intent = Intent { tx, coordinator: THERE, drop, add: None };
    rig.core.brick_mut().marked.insert(FAR, intent);
    pause(&mut rig);
    assert_eq!(rig.ask(7, exchange(ROOT, "above")), ["reply 2: busy for 250 ms"]);
    rig.core.brick_mut().marked.clear();
    // Or the directory that comes is the one that has this name.
    pause(&mut rig);
    rig.ask(7, exchange(DIR, "in"));
    rig.core.brick_mut().names.insert((DIR, name("in")), (of(HERE, 41), HERE));
    pause(&mut rig);
    rig.ask(7, exchange(DIR, "in"));
    answer(&mut rig, 1, errno(Errno::EXDEV));
    let own = Body::Elsewhere { fid: DIR, home: HERE, kind: KIND };
    let (mark, id) = to_own_set(&mut rig, Input::Answered(2, Ok(own)));
    assert!(matches!(mark, Op::PrepareFile { fid: Some(DIR), .. }), "{mark:?} {id:?}");
    answer(&mut rig, 3, directory(DIR));
    let told = done(&mut rig, 4);
    assert!(told.iter().any(|line| line.contains("invalid argument")), "{told:?}");
}

fn mark(fid: Fid, s: &str, successor: Fid) -> Op {
    let (coordinator, add) = if fid.set == HERE { (THERE, Some(at(FAR, "far"))) } else { (fid.set, None) };
    let successor = Successor { fid: successor, home: successor.set, kind: KIND };
    let (fid, drop) = (Some(fid), at(ROOT, s));
    Op::PrepareExchange { tx: TX, coordinator, fid, drop, add, successor, by: SessionId(7) }
}

fn end(fid: Fid, commit: bool) -> Op {
    Op::EndFile { fid, tx: TX, commit, by: SessionId(7) }
}

/// This set has the other name, and its own directory goes from there.
#[test]
fn the_entry_leads_to_the_other_directory_in_one_change() {
    let mut rig = rig();
    assert!(rig.ask_as(88, 1, mark(DIR, "dir", FAR_DIR))[0].contains("attr 1.5.40"));
    assert_eq!(changes(&mut rig), ["PrepareSwap"]);
    let check = Op::CheckEntry { parent: ROOT, name: name("dir"), fid: FAR_DIR };
    assert_eq!(rig.ask(9, check.clone()), ["reply 1: busy"], "it may come to lead there");
    assert!(rig.ask(9, Op::Lookup { parent: ROOT, name: name("dir") })[0].contains("busy"));
    // Nobody tells the end. The set that decides is asked; what it says is on its disks.
    assert_eq!(asked(&mut rig), ["ask 1: checkoutcome of 2"]);
    assert_eq!(done(&mut rig, 1), ["ask 2: fsync of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: checkoutcome of 2"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: endfile of 1"]);
    assert!(rig.ask_as(88, 2, end(DIR, true))[0].contains("done"));
    assert_eq!(
        (changes(&mut rig), leads(&mut rig, ROOT, "dir")),
        (vec!["PrepareSwap", "Swap"], Some(FAR_DIR))
    );
    let told = rig.ask(9, check);
    assert!(told[0].contains("done"), "{told:?}");
    assert!(rig.ask_as(88, 3, end(DIR, true))[0].contains("done"), "once");
    assert_eq!(changes(&mut rig).len(), 2);
    rig.ask_as(88, 4, Op::EndTransaction { fid: DIR, tx: Some(TX), keep: true });
    assert_eq!(changes(&mut rig), ["PrepareSwap", "Swap", "EndTransaction"]);
}

/// It is given up: nothing has changed.
#[test]
fn a_directory_that_was_marked_stays_where_it_is() {
    let mut rig = rig();
    rig.ask_as(88, 1, mark(DIR, "dir", FAR_DIR));
    rig.ask_as(88, 2, end(DIR, false));
    assert_eq!(changes(&mut rig), ["PrepareSwap", "EndTransaction"]);
    assert_eq!(leads(&mut rig, ROOT, "dir"), Some(DIR));
}

/// What this set has of another one's directory is marked when that one says that it has marked it, and goes with its entry.
#[test]
fn a_copy_makes_room_for_the_other_directory() {
    for commit in [true, false] {
        let mut rig = rig();
        assert_eq!(rig.ask_as(88, 1, mark(COPY, "copy", FAR_DIR)), ["ask 1: checkmark of 3"]);
        let told = done(&mut rig, 1);
        assert!(told[0].contains("elsewhere"), "{told:?}");
        assert_eq!(changes(&mut rig), ["PrepareExchange"]);
        // Its set is asked how it ended.
        assert_eq!(asked(&mut rig), ["ask 2: checkmark of 3"]);
        assert_eq!(answer(&mut rig, 2, errno(Errno::ENOENT)), ["ask 3: syncfs of 3"]);
        assert_eq!(done(&mut rig, 3), ["ask 4: checkowner of 3"]);
        let owner = if commit { errno(Errno::ENOENT) } else { Ok(Body::Done) };
        answer(&mut rig, 4, owner);
        rig.ask_as(88, 2, end(COPY, commit));
        rig.ask_as(88, 3, end(COPY, commit));
        let leads = leads(&mut rig, ROOT, "copy");
        assert_eq!(leads, Some(if commit { FAR_DIR } else { COPY }));
        let swapped = ["PrepareExchange", "Swap", "EndFile"];
        assert_eq!(
            changes(&mut rig)[..2],
            if commit { swapped[..2].to_vec() } else { vec![swapped[0], swapped[2]] }
        );
    }
}

/// What is here of the directory that is to come is marked still: it was this set's entry, and its home has not been asked since.
/// That one would say that it is this set's, as it is again.
#[test]
fn a_name_is_not_marked_for_what_has_not_left() {
    let mut rig = rig();
    rig.core.brick_mut().names.insert((ROOT, name("left")), (of(THIRD, 55), THIRD));
    rig.ask_as(88, 1, mark(COPY, "copy", of(THIRD, 54)));
    done(&mut rig, 1);
    pause(&mut rig);
    let other = OpId { seq: 2, ..TX };
    let Op::PrepareExchange { coordinator, drop, add, by, .. } = mark(DIR, "dir", COPY) else {
        unreachable!()
    };
    let successor = Successor { fid: COPY, home: THIRD, kind: KIND };
    let late = Op::PrepareExchange { tx: other, coordinator, fid: Some(DIR), drop, add, successor, by };
    assert_eq!(rig.ask_as(88, 2, late), ["reply 2: busy"]);
    assert_eq!(changes(&mut rig), ["PrepareExchange"]);
}

/// The directory that this name leads to has changed its set while the other one was asked: the client tries again, and is not told
/// that it is gone.
#[test]
fn a_directory_that_has_changed_its_set_is_asked_for_there() {
    for changes in [true, false] {
        let mut rig = rig();
        rig.ask(7, exchange(ROOT, "copy"));
        answer(&mut rig, 1, file(FILE));
        assert_eq!(done(&mut rig, 2), ["ask 3: preparefile of 3 as 3"]);
        if changes {
            rig.core.brick_mut().names.insert((ROOT, name("copy")), (COPY, THERE));
        }
        let told = answer(&mut rig, 3, errno(Errno::ESTALE));
        let wanted = if changes { "busy" } else { "no such file" };
        assert!(told.iter().any(|line| line.contains(wanted)), "{told:?}");
    }
}
