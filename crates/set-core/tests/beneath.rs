//! Clients whose keys are for what lies beneath a directory, told as scripts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, SET};
use crate::common::{Rig, create, name};
use ids::{Epoch, Fid, Lsn, SetId};
use set_core::Input;
use std::time::Duration;
use wire::op::{LockClaim, Node, rename_flags};
use wire::{Body, Errno, Fail, Op};

const NONE: [&str; 0] = [];
const OTHER: SetId = SetId(2);

const fn fid(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(1), lsn: Lsn(n) }
}

/// The key's directory, and what is beneath it.
const P: Fid = fid(SET, 101);
const D: Fid = fid(SET, 102);
const F: Fid = fid(SET, 103);
/// Beside it.
const O: Fid = fid(SET, 104);
const G: Fid = fid(SET, 105);
/// A directory of this set, and a file, beneath directories of the other one.
const X: Fid = fid(SET, 106);
const Y: Fid = fid(SET, 107);
const FAR: Fid = fid(OTHER, 108);

fn rig() -> Rig {
    let mut brick = Memory::default();
    for (dir, s, to) in
        [(ROOT, "p", P), (P, "d", D), (D, "f", F), (ROOT, "o", O), (O, "g", G), (FAR.names(), "y", Y)]
    {
        brick.names.insert((dir, name(s)), (to, SET));
    }
    brick.files.extend([F, G, Y]);
    brick.hangs.insert(X, OTHER);
    Rig::with(brick, &[])
}

/// What somebody asks in session 8, with a key for `P`: the last answer without its number.
fn ask(rig: &mut Rig, op: Op) -> String {
    let out = rig.ask_beneath(8, P, op);
    out.last().map(|line| said(line)).unwrap_or_default()
}

/// An answer without its number, and for how long it may be kept.
fn said(line: &str) -> String {
    let said = line.split_once(": ").map_or(line, |(_, said)| said);
    said.split(" for ").next().unwrap_or_default().to_owned()
}

/// Somebody else asks, after all that was granted has run out.
fn other(rig: &mut Rig, op: Op) {
    rig.now += Duration::from_millis(300);
    assert_eq!(rig.ask(7, op).iter().map(|line| said(line)).collect::<Vec<_>>(), ["done"]);
}

fn attr(fid: Fid) -> Op {
    Op::GetAttr { fid }
}

fn lookup(parent: Fid, s: &str) -> Op {
    Op::Lookup { parent, name: name(s) }
}

fn show(fid: Fid, dir: Fid, s: &str, home: SetId) -> Op {
    Op::Show { fid, dir, name: name(s), home, open: false }
}

fn rename(parent: Fid, s: &str, to_parent: Fid) -> Op {
    Op::Rename { parent, name: name(s), to_parent, to_name: name(s), flags: 0 }
}

fn is(said: &str, e: Errno) -> bool {
    said == e.to_string().split(" (").next().unwrap_or_default()
}

fn above(own: &[Fid], other: Option<(Fid, SetId)>) -> Result<Body, Fail> {
    Ok(Body::Lineage { own: own.to_vec(), other })
}

#[test]
fn directories_beneath_it_are_there_and_others_are_not() {
    let mut rig = rig();
    for dir in [P, D] {
        assert!(ask(&mut rig, attr(dir)).starts_with("attr"), "{dir}");
    }
    for outside in [ROOT, O, FAR, FAR.names(), P.names(), fid(SET, 999)] {
        for op in [attr(outside), lookup(outside, "g"), Op::ReadDir { fid: outside, cookie: 0, plus: true }] {
            assert!(is(&ask(&mut rig, op), Errno::ESTALE), "{outside}");
        }
    }
    assert!(is(&ask(&mut rig, rename(O, "g", D)), Errno::ESTALE));
    assert!(is(&ask(&mut rig, rename(D, "f", O)), Errno::ESTALE));
    assert!(is(&ask(&mut rig, rename(ROOT, "p", D)), Errno::ESTALE), "its own entry is not beneath it");
    assert!(is(&ask(&mut rig, create_in(O, "n", false)), Errno::ESTALE));
    assert_eq!(ask(&mut rig, rename(D, "f", P)), "done");
}

fn create_in(parent: Fid, s: &str, open: bool) -> Op {
    match create(s, Node::File) {
        Op::Create { name, node, mode, umask, uid, gid, .. } => {
            Op::Create { parent, name, node, mode, umask, uid, gid, open }
        }
        other => other,
    }
}

#[test]
fn files_are_there_by_names_that_were_told_or_shown() {
    let mut rig = rig();
    assert!(is(&ask(&mut rig, attr(F)), Errno::ESTALE), "a guess");
    assert!(ask(&mut rig, lookup(D, "f")).starts_with("attr"));
    assert!(ask(&mut rig, attr(F)).starts_with("attr"));
    let another = rig.ask_beneath(9, P, attr(F));
    assert!(is(&said(&another[0]), Errno::ESTALE), "{another:?}: another session");
    // What is shown has to be so.
    let lies = [
        show(G, D, "f", SET),
        show(G, O, "g", SET),
        show(F, D, "g", SET),
        show(F, P, "f", SET),
        show(F, D.names(), "f", SET),
        show(Y, FAR.names(), "y", SET),
        show(Y, FAR, "y", SET),
        show(D, P, "d", SET),
        show(Y, FAR, "y", SetId(77)),
    ];
    for lie in lies {
        assert!(is(&ask(&mut rig, lie.clone()), Errno::ESTALE), "{lie:?}");
    }
    assert_eq!(ask(&mut rig, show(F, D, "f", OTHER)), "done", "the directory was another set's");
    for fid in [G, Y] {
        for op in [attr(fid), Op::Open { fid }, Op::Fsync { fid }, Op::Release { fid }] {
            assert!(is(&ask(&mut rig, op), Errno::ESTALE));
        }
    }
    assert!(is(&ask(&mut rig, Op::Link { fid: G, parent: D, name: name("n") }), Errno::ESTALE));
    // Somebody else gives it another name: it is shown anew.
    other(&mut rig, rename(D, "f", P));
    assert!(is(&ask(&mut rig, attr(F)), Errno::ESTALE));
    assert_eq!(ask(&mut rig, show(F, P, "f", SET)), "done");
    assert!(ask(&mut rig, attr(F)).starts_with("attr"));
    // It leaves, and what is open stays.
    other(&mut rig, rename(P, "f", O));
    assert!(is(&ask(&mut rig, attr(F)), Errno::ESTALE));
    other(&mut rig, rename(O, "f", P));
    assert!(
        ask(&mut rig, Op::Show { open: true, fid: F, dir: P, name: name("f"), home: SET })
            .starts_with("attr")
    );
    other(&mut rig, rename(P, "f", O));
    assert!(ask(&mut rig, attr(F)).starts_with("attr"));
    assert_eq!(ask(&mut rig, Op::Release { fid: F }), "done");
    assert!(is(&ask(&mut rig, attr(F)), Errno::ESTALE));
}

#[test]
fn a_directory_that_leaves_is_out_of_reach_at_once_within_a_set() {
    let mut rig = rig();
    assert!(ask(&mut rig, lookup(D, "f")).starts_with("attr"));
    assert!(ask(&mut rig, Op::Open { fid: D }).starts_with("attr"));
    other(&mut rig, rename(P, "d", O));
    for fid in [D, F] {
        assert!(is(&ask(&mut rig, attr(fid)), Errno::ESTALE), "{fid}: also one that was opened");
    }
    other(&mut rig, rename(O, "d", P));
    assert!(ask(&mut rig, attr(D)).starts_with("attr"));
}

#[test]
fn another_set_is_asked_what_lies_above_and_believed_for_a_second() {
    let mut rig = rig();
    assert_eq!(rig.ask_beneath(8, P, attr(X)), ["ask 1: lineage of 2"]);
    let next = (fid(OTHER, 500), SET);
    assert_eq!(rig.step(Input::Answered(1, above(&[X, next.0], Some(next)))), ["ask 2: lineage of 1"]);
    assert_eq!(
        rig.step(Input::Answered(2, above(&[next.0, D, P], None)))[0].split(" for ").next(),
        Some(&*format!("reply 1: attr {X}"))
    );
    assert!(ask(&mut rig, attr(X)).starts_with("attr"));
    rig.now += Duration::from_secs(1);
    assert_eq!(ask(&mut rig, attr(X)), "lineage of 2");
    // It has left.
    let out = rig.step(Input::Answered(3, above(&[X, fid(OTHER, 501)], None)));
    assert!(is(&said(&out[0]), Errno::ESTALE), "{out:?}");
    assert!(is(&ask(&mut rig, attr(X)), Errno::ESTALE), "nobody is asked");
    rig.now += Duration::from_secs(1);
    // What cannot be known is tried again; what is not there is outside, and so is a walk without an end.
    assert_eq!(ask(&mut rig, attr(X)), "lineage of 2");
    assert!(rig.step(Input::Answered(4, Err(Fail::BelowQuorum)))[0].contains("belowquorum"));
    assert_eq!(ask(&mut rig, attr(X)), "lineage of 2");
    assert!(rig.step(Input::Answered(5, above(&[D], None)))[0].contains("busy"));
    assert_eq!(ask(&mut rig, attr(X)), "lineage of 2");
    let mut id = 6;
    let last = loop {
        let out = rig.step(Input::Answered(id, above(&[X], Some((X, OTHER)))));
        match out[0].starts_with("ask") {
            true => id += 1,
            false => break out,
        }
    };
    assert!(is(&said(&last[0]), Errno::ESTALE), "{last:?}");
}

#[test]
fn a_file_in_a_directory_of_another_set_is_shown_by_the_name_that_its_home_keeps() {
    let mut rig = rig();
    assert_eq!(ask(&mut rig, show(Y, FAR, "y", OTHER)), "lineage of 2");
    assert!(rig.step(Input::Answered(1, above(&[FAR, P], None)))[0].contains("done"));
    assert!(ask(&mut rig, attr(Y)).starts_with("attr"));
    rig.now += Duration::from_secs(1);
    assert_eq!(ask(&mut rig, attr(Y)), "lineage of 2");
    assert!(rig.step(Input::Answered(2, Err(Errno::ESTALE.into())))[0].contains("stale"));
}

/// A directory has been given to another set, or comes from there: who has its files open may know it by its old set, and tells
/// a new primary so.
#[test]
fn a_name_is_looked_up_where_its_directory_is_by_now() {
    let mut rig = rig();
    let names = &mut rig.core.brick_mut().names;
    names.remove(&(D, name("f")));
    names.extend([((P, name("d")), (D, OTHER)), ((D.names(), name("f")), (F, SET))]);
    assert_eq!(ask(&mut rig, show(F, D, "f", SET)), "lineage of 2");
    let given = rig.step(Input::Answered(1, above(&[D], Some((D, SET)))));
    assert_eq!(given, ["ask 2: lineage of 1"], "it has the entry");
    assert!(rig.step(Input::Answered(2, above(&[D, P], None)))[0].contains("done"));
    let mut rig = self::rig();
    assert_eq!(ask(&mut rig, show(F, D, "f", OTHER)), "done", "it is here by now");
}

#[test]
fn few_requests_wait_and_others_are_busy() {
    let mut rig = rig();
    for _ in 0..8 {
        assert_eq!(ask(&mut rig, attr(X)), "lineage of 2");
    }
    assert_eq!(ask(&mut rig, attr(X)), "busy");
    assert_eq!(rig.ask_beneath(9, P, attr(X)), ["ask 9: lineage of 2"], "another session");
    assert!(rig.step(Input::Answered(1, above(&[X, P], None)))[0].contains("attr"));
    assert!(ask(&mut rig, attr(X)).starts_with("attr"));
}

/// A session with very many files open would else be asked for all of them again and again.
#[test]
fn a_file_that_is_open_is_not_looked_at_again() {
    let mut rig = rig();
    let open = || Op::Show { open: true, fid: Y, dir: FAR, name: name("y"), home: OTHER };
    assert_eq!(ask(&mut rig, open()), "lineage of 2");
    assert!(rig.step(Input::Answered(1, above(&[FAR, P], None)))[0].contains("attr"));
    rig.now += Duration::from_secs(5);
    assert!(ask(&mut rig, open()).starts_with("attr"));
    assert_eq!(ask(&mut rig, Op::Release { fid: Y }), "done");
    assert!(is(&ask(&mut rig, Op::Release { fid: Y }), Errno::ESTALE));
    assert_eq!(ask(&mut rig, open()), "lineage of 2");
    // A directory that was opened is no file.
    assert!(ask(&mut rig, Op::Open { fid: D }).starts_with("attr"));
    other(&mut rig, rename(P, "d", O));
    assert!(is(&ask(&mut rig, show(D, P, "d", SET)), Errno::ESTALE));
}

#[test]
fn what_is_the_whole_volumes_is_refused() {
    let mut rig = rig();
    for (op, errno) in [
        (Op::HoldLocks { term: 1, claim: LockClaim::New }, Errno::ENOLCK),
        (Op::DropLocks { term: 1 }, Errno::ENOLCK),
        (Op::GetAttrs { fids: vec![F, G] }, Errno::EINVAL),
        (Op::Lineage { fid: D }, Errno::EPERM),
    ] {
        assert!(is(&ask(&mut rig, op.clone()), errno), "{op:?}");
    }
    assert!(ask(&mut rig, Op::StatFs).starts_with("room"));
}

fn move_in((from, parent): (SetId, Fid), to_parent: Fid, flags: u32) -> Op {
    Op::MoveIn { from, parent, name: name("y"), to_parent, to_name: name("n"), flags }
}

/// The set that it comes from says where that directory is.
#[test]
fn a_name_comes_from_a_directory_of_another_set_that_lies_beneath() {
    let mut rig = rig();
    assert_eq!(ask(&mut rig, move_in((OTHER, FAR), D, 0)), "lineage of 2");
    let out = rig.step(Input::Answered(1, above(&[FAR, P], None)));
    assert_eq!(said(&out[0]), "preparefile of 2 as 2", "nobody is asked for permissions");
    // What is known counts for a second, for each set that was asked.
    assert!(is(&ask(&mut rig, move_in((OTHER, FAR), O, 0)), Errno::ESTALE));
    assert!(ask(&mut rig, move_in((OTHER, FAR), P, 0)).starts_with("preparefile of 2"));
    rig.now += Duration::from_secs(1);
    assert_eq!(ask(&mut rig, move_in((OTHER, FAR), P, 0)), "lineage of 2");
    assert!(said(&rig.step(Input::Answered(4, above(&[FAR], None)))[0]).contains("stale"), "outside");
    rig.now += Duration::from_secs(1);
    // That set does not answer for it.
    assert_eq!(ask(&mut rig, move_in((OTHER, FAR), P, 0)), "lineage of 2");
    assert!(said(&rig.step(Input::Answered(5, Err(Errno::ESTALE.into())))[0]).contains("stale"));
    for lie in [
        move_in((OTHER, FAR.names()), D, 0),
        move_in((SetId(77), FAR), D, 0),
        move_in((SET, FAR), D, 0),
        move_in((SET, O), D, 0),
        move_in((OTHER, FAR), FAR, 0),
        move_in((OTHER, FAR), D.names(), 0),
    ] {
        assert!(is(&ask(&mut rig, lie.clone()), Errno::ESTALE), "{lie:?}");
    }
    assert!(is(&ask(&mut rig, move_in((SET, D), D, 0)), Errno::EINVAL), "as for everybody");
}

/// Both directories lie beneath it, and so does what is in them.
#[test]
fn names_of_two_directories_beneath_it_are_exchanged() {
    let exchange = |from: Fid, to_parent, s: &str| {
        let (name, to_name, flags) = (name("y"), name(s), rename_flags::EXCHANGE);
        Op::MoveIn { from: OTHER, parent: from, name, to_parent, to_name, flags }
    };
    let mut rig = rig();
    assert_eq!(ask(&mut rig, exchange(FAR, D, "f")), "lineage of 2");
    let out = rig.step(Input::Answered(1, above(&[FAR, P], None)));
    assert_eq!(said(&out[0]), "prepareexchange of 2 as 2", "nobody is asked for permissions");
    assert!(is(&ask(&mut rig, exchange(FAR, O, "g")), Errno::ESTALE));
    assert!(is(&ask(&mut rig, exchange(FAR, ROOT, "p")), Errno::ESTALE), "its own entry is not beneath it");
    assert!(is(&ask(&mut rig, exchange(FAR.names(), D, "f")), Errno::ESTALE));
    let out = fid(OTHER, 109);
    assert_eq!(ask(&mut rig, exchange(out, D, "f")), "lineage of 2");
    assert!(said(&rig.step(Input::Answered(3, above(&[out], None)))[0]).contains("stale"), "outside");
}

/// It would show what the file is like by now, and hold it open.
#[test]
fn asking_again_for_what_was_made_tells_nothing_of_what_has_left() {
    let mut rig = rig();
    let make = || create_in(D, "n", true);
    let made = rig.ask_beneath_as(8, P, 50, make());
    let fid = rig.core.brick_mut().names[&(D, name("n"))].0;
    assert!(made[0].starts_with(&format!("reply 50: attr {fid}")), "{made:?}");
    assert!(rig.ask_beneath_as(8, P, 50, make())[0].starts_with(&format!("reply 50: attr {fid}")));
    assert_eq!(ask(&mut rig, Op::Release { fid }), "done");
    other(&mut rig, rename(D, "n", O));
    let told = rig.ask_beneath_as(8, P, 50, make());
    assert!(told[0].starts_with(&format!("reply 50: attr {fid}")), "{told:?}: as it was made");
    assert!(is(&ask(&mut rig, attr(fid)), Errno::ESTALE), "it is not open");
}

#[test]
fn guesses_do_not_end_the_grants_of_whoever_is_alone() {
    let mut rig = rig();
    assert!(rig.ask(7, attr(O))[0].ends_with("for 250 ms"));
    for _ in 0..3 {
        assert!(is(&ask(&mut rig, attr(G)), Errno::ESTALE));
    }
    assert!(rig.ask(7, attr(O))[0].ends_with("for 250 ms"));
    assert_ne!(rig.ask_beneath(8, P, attr(D)), NONE);
    assert!(!rig.ask(7, attr(O))[0].ends_with("for 250 ms"));
}
