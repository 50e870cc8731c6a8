//! Renames, exchanges and links between sets for clients that are not trusted to have looked, told as scripts: this set is the one that gets
//! the name, or the one that is asked.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, SET, dir};
use crate::common::{GIVEN_UP, Rig, answer, done, errno, line, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use set_core::{Input, Output};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::op::{EntryName, Successor, rename_flags};
use wire::rights::{Person, Right, STICKY, Within};
use wire::{Attr, Body, Errno, Fail, Op, User};

const THERE: SetId = SetId(2);
const THIRD: SetId = SetId(3);
const ANN: User = User::of_one_group(1000, 100);

const fn fid(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(5), lsn: Lsn(n) }
}

/// A directory of the other set, and what may be in it.
const FAR: Fid = fid(THERE, 60);
const FILE: Fid = fid(THERE, 51);
/// Of this one: Ann's directory with a file of hers, a directory in it that is not hers, and one that is.
const HERS: Fid = fid(SET, 40);
const OWN: Fid = fid(SET, 41);
const ROOTS: Fid = fid(SET, 42);
const INNER: Fid = fid(SET, 43);

fn rig() -> Rig {
    let mut brick = Memory::default();
    for (parent, s, to) in
        [(ROOT, "hers", HERS), (HERS, "own", OWN), (HERS, "roots", ROOTS), (HERS, "in", INNER)]
    {
        brick.names.insert((parent, name(s)), (to, SET));
    }
    brick.names.insert((HERS, name("far")), (fid(THIRD, 80), THIRD));
    brick.files.insert(OWN);
    brick.owners.extend([HERS, OWN, INNER].map(|fid| (fid, 1000)));
    Rig::with(brick, &[])
}

fn move_in(to_parent: Fid, flags: u32) -> Op {
    Op::MoveIn { from: THERE, parent: FAR, name: name("old"), to_parent, to_name: name("new"), flags }
}

fn exchange(to_parent: Fid, s: &str) -> Op {
    let (name, to_name, flags) = (name("old"), name(s), rename_flags::EXCHANGE);
    Op::MoveIn { from: THERE, parent: FAR, name, to_parent, to_name, flags }
}

fn link_in(fid: Fid, home: SetId) -> Op {
    Op::LinkIn { fid, home, parent: HERS, name: name("new") }
}

fn leads(fid: Fid, home: SetId, kind: u32) -> Result<Body, Fail> {
    Ok(Body::Elsewhere { fid, home, kind })
}

fn agreed(fid: Fid) -> Result<Body, Fail> {
    Ok(Body::Attr { attr: Attr { home: THERE, mode: 0o100_644, nlink: 1, ..dir(fid) } })
}

/// Ann asks something under this number.
fn ask(rig: &mut Rig, seq: u64, op: Op) -> Vec<String> {
    rig.ask_limited((7, seq), (Some(ANN), None), op).into_iter().map(line).collect()
}

fn changes(rig: &mut Rig) -> Vec<&'static str> {
    rig.core.brick_mut().journal.iter().map(|e| e.body.variant()).collect()
}

/// What is asked of the other set.
fn question(outputs: Vec<Output<crate::common::brick::Work, crate::common::To>>) -> Op {
    match outputs.into_iter().next() {
        Some(Output::Ask { op, set: THERE, .. }) => op,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_set_that_loses_the_name_is_asked_before_anything_begins() {
    let mut rig = rig();
    let ann = User { groups: Some([5, 6].into()), ..ANN };
    let asked = question(rig.ask_limited((7, 1), (Some(ann), None), move_in(HERS, 0)));
    let user = Some(Person { uid: 1000, gid: 100, groups: vec![5, 6] });
    let right = Right::Leave { dir: FAR, name: name("old") };
    assert_eq!(asked, Op::CheckRight { right, user, within: None });
    assert_eq!(answer(&mut rig, 1, leads(FILE, THERE, 0o100_000)), ["ask 2: preparefile of 2 as 2"]);
    assert_eq!(ask(&mut rig, 1, move_in(HERS, 0)), ["reply 1: busy for 250 ms"], "it is under way");
    assert_eq!(answer(&mut rig, 2, agreed(FILE)), ["ask 3: fsync of 2"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: endfile of 2"]);
    assert_eq!(done(&mut rig, 5), ["reply 1: done for 250 ms"]);
}

/// Each for a reason of its own.
#[test]
fn what_either_set_refuses_does_not_begin() {
    let mut rig = rig();
    // Its own part, of which nobody else is asked.
    assert_eq!(ask(&mut rig, 1, move_in(ROOT, 0)), ["reply 1: permission denied"]);
    assert_eq!(ask(&mut rig, 2, exchange(ROOT, "hers")), ["reply 2: permission denied"]);
    let strange = Op::MoveIn {
        from: SetId(77),
        parent: FAR,
        name: name("old"),
        to_parent: HERS,
        to_name: name("new"),
        flags: 0,
    };
    assert_eq!(ask(&mut rig, 3, strange), ["reply 3: stale file handle"]);
    assert_eq!(ask(&mut rig, 4, link_in(FILE, SetId(77))), ["reply 4: stale file handle"]);
    assert_eq!(ask(&mut rig, 5, link_in(OWN, SET)), ["reply 5: invalid argument for 250 ms"]);
    for (n, (said, told)) in [
        (errno(Errno::EACCES), "permission denied"),
        (errno(Errno::EPERM), "operation not permitted"),
        (errno(Errno::ENOENT), "no such file or directory"),
        (errno(Errno::ESTALE), "stale file handle"),
        // An older server.
        (errno(Errno::EINVAL), "crosses sets"),
        (Err(Fail::Busy), "busy"),
        (Err(Fail::BelowQuorum), "belowquorum"),
        (Err(Fail::WrongView { epoch: Epoch(9) }), "busy"),
        (Ok(Body::Done), "input/output error"),
    ]
    .into_iter()
    .enumerate()
    {
        for (is_second, op) in [(0, move_in(HERS, 0)), (1, exchange(HERS, "own"))] {
            let (n, seq) = (2 * n as u64 + is_second + 1, 2 * n as u64 + is_second + 10);
            assert_eq!(ask(&mut rig, seq, op), [format!("ask {n}: checkright of 2")]);
            let out = answer(&mut rig, n, said.clone());
            let reply = out[0].split(" (").next().unwrap_or_default().to_owned();
            assert_eq!(reply, format!("reply {seq}: {told}"), "{out:?}");
        }
    }
    assert!(changes(&mut rig).is_empty());
}

/// The name may lead to something else by the time at which it is marked, of which nobody was asked.
#[test]
fn what_is_allowed_is_allowed_for_one_object() {
    let mut rig = rig();
    ask(&mut rig, 1, move_in(HERS, 0));
    answer(&mut rig, 1, leads(FILE, THERE, 0o100_000));
    assert_eq!(answer(&mut rig, 2, agreed(fid(THERE, 52))), ["ask 3: fsync of 2"]);
    let out = done(&mut rig, 3);
    assert_eq!(out, ["ask 4: endfile of 2, given up", "reply 1: busy for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
    // Nothing has begun: it is asked for anew.
    assert_eq!(ask(&mut rig, 1, move_in(HERS, 0)), ["ask 5: checkright of 2"]);
}

/// Either of the two says of its own name whether it may be taken: then another thing may be put there.
#[test]
fn both_sets_are_asked_before_an_exchange_begins() {
    let other = fid(THIRD, 81);
    let mut rig = rig();
    rig.core.brick_mut().names.insert((HERS, name("stub")), (other, THIRD));
    rig.core.brick_mut().files.insert(other);
    let asked = question(rig.ask_limited((7, 1), (Some(ANN), None), exchange(HERS, "stub")));
    let right = Right::Leave { dir: FAR, name: name("old") };
    assert_eq!(asked, Op::CheckRight { right, user: Some(Person::from(&ANN)), within: None });
    let marks = "ask 2: prepareexchange of 2 as 2";
    assert_eq!(answer(&mut rig, 1, leads(FILE, THERE, 0o100_000)), [marks]);
    assert_eq!(answer(&mut rig, 2, agreed(FILE)), ["ask 3: fsync of 2"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: preparefile of 3 as 3"]);
    let their = Attr { home: THIRD, mode: 0o100_644, nlink: 1, ..dir(other) };
    assert_eq!(answer(&mut rig, 4, Ok(Body::Attr { attr: their })), ["ask 5: fsync of 3"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: syncfs of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    // Something else has the other name by then, of which nobody was asked.
    let mut rig = self::rig();
    ask(&mut rig, 1, exchange(HERS, "own"));
    answer(&mut rig, 1, leads(FILE, THERE, 0o100_000));
    answer(&mut rig, 2, agreed(fid(THERE, 52)));
    let out = done(&mut rig, 3);
    assert_eq!(out, ["ask 4: endfile of 2, given up", "reply 1: busy for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
    // Or this one, which is not hers.
    ask(&mut rig, 2, exchange(HERS, "own"));
    answer(&mut rig, 5, leads(FILE, THERE, 0o100_000));
    answer(&mut rig, 6, agreed(FILE));
    let brick = rig.core.brick_mut();
    brick.owners.insert(HERS, 0);
    brick.sticky.insert(HERS);
    brick.names.insert((HERS, name("own")), (ROOTS, SET));
    let out = done(&mut rig, 7);
    assert_eq!(out[1].split(" (").next(), Some("reply 2: operation not permitted for 250 ms"), "{out:?}");
    assert!(changes(&mut rig).is_empty());
}

/// What lies above both changes: who has the one says whether it may be written to.
#[test]
fn directories_that_are_exchanged_are_written_to() {
    const DIR: u32 = 0o040_000;
    let mut rig = rig();
    assert_eq!(ask(&mut rig, 1, exchange(HERS, "roots")), ["reply 1: permission denied"]);
    // One of a third set, and then that of the other name.
    let asked = rig.ask_limited((7, 2), (Some(ANN), None), exchange(HERS, "far")).into_iter().next();
    let Some(Output::Ask { op: Op::CheckRight { right, .. }, set: THIRD, .. }) = asked else {
        panic!("{asked:?}")
    };
    assert_eq!(right, Right::Move { fid: fid(THIRD, 80) });
    assert_eq!(done(&mut rig, 1), ["ask 2: checkright of 2"]);
    assert_eq!(answer(&mut rig, 2, leads(fid(THIRD, 84), THIRD, DIR)), ["ask 3: checkright of 3"]);
    let out = answer(&mut rig, 3, errno(Errno::EACCES));
    assert!(out[0].starts_with("reply 2: permission denied"), "{out:?}");
    assert!(changes(&mut rig).is_empty());
}

/// An exchange that this set does not decide has come about, and it was not told: its name leads to something else already, and
/// nobody is refused for what it was.
#[test]
fn nobody_is_refused_for_what_a_name_may_lead_to_no_more() {
    let mut rig = rig();
    let brick = rig.core.brick_mut();
    let (tmp, theirs) = (fid(SET, 50), fid(SET, 51));
    brick.names.extend([((ROOT, name("tmp")), (tmp, SET)), ((tmp, name("it")), (theirs, SET))]);
    brick.sticky.insert(tmp);
    brick.files.insert(theirs);
    let unlink = || Op::Unlink { parent: tmp, name: name("it") };
    let leave = || Right::Leave { dir: tmp, name: name("it") };
    assert!(ask(&mut rig, 1, unlink())[0].starts_with("reply 1: operation not permitted"));
    assert_eq!(told(&mut rig, leave(), Some(ANN), None), "operation not permitted");
    let at = |dir, s| EntryName { dir, name: name(s) };
    let tx = OpId { session: SessionId(88), seq: 1 };
    let (add, by) = (Some(at(FAR, "old")), SessionId(7));
    let successor = Successor { fid: FILE, home: THERE, kind: 0o100_000 };
    let drop = at(tmp, "it");
    let mark = Op::PrepareExchange { tx, coordinator: THERE, fid: None, drop, add, successor, by };
    assert!(rig.ask_as(88, 1, mark)[0].contains("attr"));
    assert!(ask(&mut rig, 2, unlink())[0].starts_with("reply 2: busy"));
    assert_eq!(told(&mut rig, leave(), Some(ANN), None), "busy");
    // What this set knows for certain it says.
    assert!(ask(&mut rig, 3, exchange(ROOT, "tmp"))[0].starts_with("reply 3: permission denied"));
    rig.ask_as(88, 2, Op::EndFile { fid: theirs, tx, commit: true, by });
    // A copy of another set's directory, or a stub, is marked: its home may have heard already that the name goes.
    let (stub, mark) = (
        fid(THIRD, 90),
        Op::PrepareFile {
            tx,
            coordinator: THIRD,
            fid: Some(fid(THIRD, 90)),
            drop: Some(at(ROOT, "stub")),
            add: None,
            by,
        },
    );
    rig.core.brick_mut().names.insert((ROOT, name("stub")), (stub, THIRD));
    rig.core.brick_mut().owners.insert(ROOT, 1000);
    let leave_stub = || Right::Leave { dir: ROOT, name: name("stub") };
    assert!(told(&mut rig, leave_stub(), Some(ANN), None).contains(&stub.to_string()));
    assert_eq!(rig.ask_as(88, 3, mark), ["ask 1: checkmark of 3"]);
    assert!(done(&mut rig, 1)[0].contains("elsewhere"));
    assert_eq!(told(&mut rig, leave_stub(), Some(ANN), None), "busy");
    // By now it is another set's file.
    let asked = question(rig.ask_limited((7, 4), (Some(ANN), None), unlink()));
    assert!(matches!(asked, Op::CheckRight { right: Right::Own { fid: FILE }, .. }), "{asked:?}");
}

/// So is what this set knows itself: others go on while homes are asked.
#[test]
fn this_sets_own_part_has_to_be_so_when_the_entry_is_decided() {
    for (owner, gives_way, said) in [
        (1000, false, "ask 4: fsync of 1"),
        (1001, false, "reply 1: permission denied for 250 ms"),
        (1000, true, "reply 1: operation not permitted for 250 ms"),
    ] {
        let mut rig = rig();
        ask(&mut rig, 1, move_in(HERS, 0));
        answer(&mut rig, 1, leads(FILE, THERE, 0o100_000));
        answer(&mut rig, 2, agreed(FILE));
        let brick = rig.core.brick_mut();
        brick.owners.insert(HERS, owner);
        if gives_way {
            brick.owners.insert(HERS, 0);
            brick.sticky.insert(HERS);
            brick.names.insert((HERS, name("new")), (ROOTS, SET));
        }
        let out = done(&mut rig, 3);
        assert_eq!(out.last().map(|line| line.split(" (").next().unwrap()), Some(said), "{out:?}");
        assert_eq!(changes(&mut rig).len(), usize::from(said.starts_with("ask")));
    }
}

/// A client that hears nothing asks again, and both questions are answered: the second one finds the name gone.
#[test]
fn what_is_asked_twice_is_done_once_and_told_so() {
    let mut rig = rig();
    ask(&mut rig, 1, move_in(HERS, 0));
    assert_eq!(ask(&mut rig, 1, move_in(HERS, 0)), ["ask 2: checkright of 2"]);
    assert_eq!(answer(&mut rig, 1, leads(FILE, THERE, 0o100_000)), ["ask 3: preparefile of 2 as 2"]);
    assert!(answer(&mut rig, 2, errno(Errno::ENOENT))[0].starts_with("reply 1: busy"), "it is under way");
    assert_eq!(ask(&mut rig, 1, move_in(HERS, 0)), ["reply 1: busy for 250 ms"]);
    let mut late = self::rig();
    ask(&mut late, 1, move_in(HERS, 0));
    ask(&mut late, 1, move_in(HERS, 0));
    answer(&mut late, 1, leads(FILE, THERE, 0o100_000));
    answer(&mut late, 3, agreed(FILE));
    for n in [4, 5, 6] {
        done(&mut late, n);
    }
    assert_eq!(changes(&mut late), ["Enter"]);
    assert!(answer(&mut late, 2, errno(Errno::ENOENT))[0].starts_with("reply 1: busy"), "it is done");
    assert_eq!(ask(&mut late, 1, move_in(HERS, 0)), ["ask 7: fsync of 1"]);
    assert_eq!(done(&mut late, 7), ["reply 1: done"]);
}

/// This server may lead no more, or somebody may have been alone here meanwhile who keeps what he was told.
#[test]
fn who_has_waited_is_let_in_anew() {
    let mut rig = rig();
    ask(&mut rig, 1, move_in(HERS, 0));
    rig.follow(2);
    let out = answer(&mut rig, 1, leads(FILE, THERE, 0o100_000));
    assert!(out[0].starts_with("reply 1: wrongview"), "{out:?}");
    // Another one may have answered the client in between.
    let mut rig = self::rig();
    ask(&mut rig, 1, move_in(HERS, 0));
    rig.follow(2);
    rig.lead(&[]);
    let out = answer(&mut rig, 1, leads(FILE, THERE, 0o100_000));
    assert!(out[0].starts_with("reply 1: wrongview"), "{out:?}");
    // And so may this one, on another connection.
    let mut rig = self::rig();
    ask(&mut rig, 1, move_in(HERS, 0));
    GIVEN_UP.with_borrow_mut(|all| all.insert(1));
    assert!(answer(&mut rig, 1, leads(FILE, THERE, 0o100_000)).is_empty());
    GIVEN_UP.with_borrow_mut(BTreeSet::clear);
    let mut rig = self::rig();
    ask(&mut rig, 1, move_in(HERS, 0));
    rig.now += Duration::from_secs(6);
    assert!(rig.ask(8, Op::GetAttr { fid: ROOT })[0].ends_with("for 250 ms"));
    assert_eq!(answer(&mut rig, 1, leads(FILE, THERE, 0o100_000)), ["reply 1: busy"]);
}

/// What lies above a directory changes with it: its own set knows whether it may be written to.
#[test]
fn a_directory_of_a_third_set_is_asked_for_there() {
    const DIR: u32 = 0o040_000;
    let far = fid(THIRD, 80);
    let mut rig = rig();
    ask(&mut rig, 1, move_in(HERS, 0));
    assert_eq!(answer(&mut rig, 1, leads(far, THIRD, DIR)), ["ask 2: checkright of 3"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: preparefile of 2 as 2"]);
    ask(&mut rig, 2, move_in(INNER, 0));
    answer(&mut rig, 4, leads(far, THIRD, DIR));
    assert!(answer(&mut rig, 5, errno(Errno::EACCES))[0].starts_with("reply 2: permission denied"));
    ask(&mut rig, 3, move_in(INNER, 0));
    answer(&mut rig, 6, leads(far, THIRD, DIR));
    let gone = || errno(Errno::ESTALE);
    assert_eq!(answer(&mut rig, 7, gone()), ["ask 8: checkright of 2"], "is that what the name leads to?");
    assert_eq!(answer(&mut rig, 8, leads(far, THIRD, DIR)), ["ask 9: checkright of 3"]);
    assert!(answer(&mut rig, 9, gone())[0].starts_with("reply 3: no such file or directory"), "it is lost");
    // The other set has looked at its own itself.
    ask(&mut rig, 4, move_in(INNER, 0));
    assert!(answer(&mut rig, 10, leads(FILE, THERE, DIR))[0].starts_with("ask 11: preparefile of 2"));
    // And so does this one.
    for (dir, said) in [(INNER, "ask 2: preparefile of 2"), (ROOTS, "reply 1: permission denied")] {
        let mut rig = self::rig();
        ask(&mut rig, 1, move_in(HERS, 0));
        let out = answer(&mut rig, 1, leads(dir, SET, DIR));
        assert!(out[0].starts_with(said), "{out:?}");
    }
}

/// A directory has gone, or changed its set, between two questions: nothing is said of it, and its name is looked at once more.
#[test]
fn what_has_gone_meanwhile_is_looked_for_by_its_name() {
    const DIR: u32 = 0o040_000;
    let (far, gone) = (fid(THIRD, 80), || errno(Errno::ESTALE));
    for (said, told) in [
        (leads(far, THERE, DIR), "ask 4: preparefile of 2 as 2"),
        (leads(fid(THIRD, 82), THIRD, DIR), "ask 4: checkright of 3"),
        (errno(Errno::ENOENT), "reply 1: no such file or directory"),
        (Err(Fail::Busy), "reply 1: busy"),
    ] {
        let mut rig = rig();
        ask(&mut rig, 1, move_in(INNER, 0));
        answer(&mut rig, 1, leads(far, THIRD, DIR));
        assert_eq!(answer(&mut rig, 2, gone()), ["ask 3: checkright of 2"]);
        let out = answer(&mut rig, 3, said);
        assert_eq!(out[0].split(" (").next(), Some(told), "{out:?}");
        if told == "ask 4: checkright of 3" {
            // Each time another one: the client asks anew, after a while.
            assert!(answer(&mut rig, 4, gone())[0].starts_with("reply 1: busy"));
        }
        assert!(changes(&mut rig).is_empty());
    }
}

/// Whose a file is that lives elsewhere, its own set knows: so it can go again from a sticky directory.
#[test]
fn in_a_sticky_directory_the_objects_own_set_says_whose_it_is() {
    let (tmp, stub) = (fid(SET, 50), fid(THIRD, 81));
    let sticky = || {
        let mut rig = rig();
        let brick = rig.core.brick_mut();
        brick.names.extend([((ROOT, name("tmp")), (tmp, SET)), ((tmp, name("stub")), (stub, THIRD))]);
        brick.sticky.insert(tmp);
        brick.files.insert(stub);
        rig
    };
    let unlink = || Op::Unlink { parent: tmp, name: name("stub") };
    let mut rig = sticky();
    let asked = rig.ask_limited((7, 1), (Some(ANN), None), unlink()).into_iter().next();
    let Some(Output::Ask { op, set: THIRD, .. }) = asked else { panic!("{asked:?}") };
    let right = Right::Own { fid: stub };
    assert_eq!(op, Op::CheckRight { right, user: Some(Person::from(&ANN)), within: None });
    assert_eq!(done(&mut rig, 1), ["ask 2: preparefile of 3 as 2"]);
    // Another one's has the name when its home has agreed.
    rig.core.brick_mut().names.insert((tmp, name("stub")), (fid(THIRD, 82), THIRD));
    answer(&mut rig, 2, agreed(stub));
    assert_eq!(done(&mut rig, 3), ["ask 4: endfile of 3, given up", "reply 1: busy for 250 ms"]);
    for (said, told) in [
        (errno(Errno::EPERM), "operation not permitted"),
        (errno(Errno::EINVAL), "operation not permitted"),
        (errno(Errno::ESTALE), "operation not permitted"),
        (Err(Fail::Busy), "busy"),
    ] {
        let mut rig = sticky();
        ask(&mut rig, 1, unlink());
        let mut out = answer(&mut rig, 1, said.clone());
        if out == ["ask 2: checkright of 3"] {
            out = answer(&mut rig, 2, said);
        }
        assert!(out[0].starts_with(&format!("reply 1: {told}")), "{out:?}");
    }
    // The same where the other set of a rename has it, and of a directory both.
    let owned = |kind| leads(fid(THIRD, 80), THIRD, kind | STICKY);
    let mut rig = sticky();
    ask(&mut rig, 1, move_in(HERS, 0));
    assert_eq!(answer(&mut rig, 1, owned(0o100_000)), ["ask 2: checkright of 3"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: preparefile of 2 as 2"]);
    let mut rig = sticky();
    ask(&mut rig, 1, move_in(HERS, 0));
    assert_eq!(answer(&mut rig, 1, owned(0o040_000)), ["ask 2: checkright of 3"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: checkright of 3"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: preparefile of 2 as 2"]);
    let said = told(&mut rig, Right::Leave { dir: tmp, name: name("stub") }, Some(ANN), None);
    assert!(said.contains(&format!("kind: {}", 0o101_000)), "{said}");
    assert_eq!(told(&mut rig, Right::Own { fid: OWN }, Some(ANN), None), "done");
    assert_eq!(told(&mut rig, Right::Own { fid: ROOTS }, Some(ANN), None), "operation not permitted");
}

/// A rename within this set of a directory that lives elsewhere: its own set says whether it may be written to, and what has the
/// name when the tree is locked has to be that one.
#[test]
fn a_directory_that_lives_elsewhere_is_renamed_here() {
    let rename =
        || Op::Rename { parent: HERS, name: name("far"), to_parent: INNER, to_name: name("far"), flags: 0 };
    let mut rig = rig();
    assert_eq!(ask(&mut rig, 1, rename()), ["ask 1: checkright of 3"]);
    assert!(done(&mut rig, 1)[0].starts_with("reply 1: done"));
    assert_eq!(changes(&mut rig), ["Rename"]);
    // Beneath a directory of another set it needs the lock.
    let mut rig = self::rig();
    rig.core.brick_mut().hangs.insert(INNER, THERE);
    ask(&mut rig, 1, rename());
    assert_eq!(done(&mut rig, 1), ["ask 2: locktree of 1"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: lineage of 2"]);
    rig.core.brick_mut().names.insert((HERS, name("far")), (ROOTS, SET));
    let out = rig.step(Input::Answered(3, Ok(Body::Lineage { own: vec![INNER], other: None })));
    assert_eq!(out, ["ask 4: unlocktree of 1", "reply 1: permission denied for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
}

/// Its set has agreed that it goes, and the directory is closed by then.
#[test]
fn an_empty_directory_goes_if_it_still_may() {
    for (owner, said) in [(1000, "reply 1: done"), (1001, "reply 1: permission denied")] {
        let mut rig = rig();
        let rmdir = Op::Rmdir { parent: HERS, name: name("far") };
        assert_eq!(ask(&mut rig, 1, rmdir), ["ask 1: preparermdir of 3 as 1"]);
        rig.core.brick_mut().owners.insert(HERS, owner);
        let out = done(&mut rig, 1);
        assert!(out.iter().any(|line| line.starts_with(said)), "{out:?}");
        assert_eq!(changes(&mut rig).is_empty(), owner != 1000);
    }
}

#[test]
fn a_files_own_set_is_asked_whether_it_may_be_linked() {
    let mut rig = rig();
    let asked = question(rig.ask_limited((7, 1), (Some(ANN), None), link_in(FILE, THERE)));
    let user = Some(Person::from(&ANN));
    assert_eq!(asked, Op::CheckRight { right: Right::Link { fid: FILE }, user, within: None });
    assert_eq!(done(&mut rig, 1), ["ask 2: preparefile of 2 as 2"]);
    // A key for what lies beneath a directory: its own set knows the file's names, and what is held open.
    let asked = question(rig.ask_limited((7, 2), (None, Some(HERS)), link_in(FILE, THERE)));
    let within = Some(Within { root: HERS, session: ids::SessionId(7) });
    assert_eq!(asked, Op::CheckRight { right: Right::Link { fid: FILE }, user: None, within });
    assert!(answer(&mut rig, 3, errno(Errno::ESTALE))[0].starts_with("reply 2: stale file handle"));
    // The directory that is to have it is this set's.
    let out = rig.ask_limited((7, 3), (None, Some(INNER)), link_in(FILE, THERE));
    assert_eq!(out.into_iter().map(line).collect::<Vec<_>>(), ["reply 3: stale file handle"]);
    // Others pay nothing.
    let mut link = link_in(FILE, THERE);
    if let Op::LinkIn { name: n, .. } = &mut link {
        *n = name("other");
    }
    assert_eq!(rig.ask_as(7, 4, link), ["ask 4: preparefile of 2 as 4"]);
}

/// Another set asks.
fn told(rig: &mut Rig, right: Right, user: Option<User>, within: Option<Within>) -> String {
    let user = user.as_ref().map(Person::from);
    let out = rig.ask_limited((50, 99), (None, None), Op::CheckRight { right, user, within });
    let line = out.into_iter().map(line).next().unwrap_or_default();
    line.split_once(": ").map_or(line.clone(), |(_, said)| said.to_owned())
}

fn leave(s: &str) -> Right {
    Right::Leave { dir: HERS, name: name(s) }
}

#[test]
fn this_set_answers_for_what_is_its_own() {
    let mut rig = rig();
    let of_ann = |rig: &mut Rig, right| told(rig, right, Some(ANN), None);
    let said = of_ann(&mut rig, leave("own"));
    assert!(said.starts_with("elsewhere") && said.contains(&OWN.to_string()), "{said}");
    assert!(of_ann(&mut rig, leave("in")).contains(&INNER.to_string()));
    assert_eq!(of_ann(&mut rig, leave("roots")), "permission denied");
    assert!(of_ann(&mut rig, leave("far")).contains(&fid(THIRD, 80).to_string()), "it is asked for there");
    assert_eq!(of_ann(&mut rig, leave("missing")), "no such file or directory");
    assert_eq!(of_ann(&mut rig, Right::Leave { dir: ROOT, name: name("hers") }), "permission denied");
    assert_eq!(of_ann(&mut rig, Right::Leave { dir: FAR, name: name("old") }), "stale file handle");
    assert_eq!(of_ann(&mut rig, Right::Link { fid: OWN }), "done");
    assert_eq!(of_ann(&mut rig, Right::Link { fid: FILE }), "stale file handle");
    assert_eq!(of_ann(&mut rig, Right::Move { fid: INNER }), "done");
    assert_eq!(of_ann(&mut rig, Right::Move { fid: ROOTS }), "permission denied");
    let many = User { groups: Some((0..5000).collect()), ..ANN };
    assert_eq!(told(&mut rig, Right::Link { fid: OWN }, Some(many), None), "invalid argument");
    // Whoever is alone here goes on keeping what he is told.
    assert!(rig.ask(9, Op::GetAttr { fid: ROOT })[0].ends_with("for 250 ms"));
    of_ann(&mut rig, leave("own"));
    assert!(rig.ask(9, Op::GetAttr { fid: ROOT })[0].ends_with("for 250 ms"));
    rig.follow(2);
    assert!(of_ann(&mut rig, leave("own")).starts_with("wrongview"));
}

/// As it is for requests of that session itself.
#[test]
fn a_file_lies_beneath_a_directory_by_a_name_that_its_session_knows() {
    let mut rig = rig();
    let hangs = fid(SET, 44);
    let brick = rig.core.brick_mut();
    brick.hangs.insert(hangs, THERE);
    brick.names.insert((hangs, name("deep")), (fid(SET, 45), SET));
    brick.files.insert(fid(SET, 45));
    let beneath = |rig: &mut Rig, session, root, fid| {
        let within = Some(Within { root, session: ids::SessionId(session) });
        told(rig, Right::Link { fid }, None, within)
    };
    assert_eq!(beneath(&mut rig, 8, HERS, OWN), "stale file handle", "a guess");
    assert!(rig.ask_beneath(8, HERS, Op::Lookup { parent: HERS, name: name("own") })[0].contains("attr"));
    assert_eq!(beneath(&mut rig, 8, HERS, OWN), "done");
    assert_eq!(beneath(&mut rig, 9, HERS, OWN), "stale file handle", "another session's");
    assert_eq!(beneath(&mut rig, 8, INNER, OWN), "stale file handle", "another key's directory");
    // It is open, and stays the session's wherever it goes.
    let open = Op::Show { fid: OWN, dir: HERS, name: name("own"), home: SET, open: true };
    assert!(rig.ask_beneath(8, HERS, open)[0].contains("attr"));
    rig.core.brick_mut().names.remove(&(HERS, name("own")));
    rig.core.brick_mut().names.insert((ROOT, name("gone")), (OWN, SET));
    assert_eq!(beneath(&mut rig, 8, HERS, OWN), "done");
    // Who names a session that is somebody else's gets nothing of what that one has open.
    assert_eq!(beneath(&mut rig, 8, INNER, OWN), "stale file handle");
    rig.ask(9, Op::Open { fid: OWN });
    assert_eq!(beneath(&mut rig, 9, HERS, OWN), "stale file handle");
    // What lies above another set's directory that set says, and the question waits.
    let show = Op::Show { fid: fid(SET, 45), dir: hangs, name: name("deep"), home: SET, open: false };
    assert_eq!(rig.ask_beneath(8, HERS, show), ["ask 1: lineage of 2"]);
    rig.step(Input::Answered(1, Ok(Body::Lineage { own: vec![hangs, HERS], other: None })));
    assert_eq!(beneath(&mut rig, 8, HERS, fid(SET, 45)), "done");
    rig.now += Duration::from_secs(1);
    assert_eq!(beneath(&mut rig, 8, HERS, fid(SET, 45)), "lineage of 2");
    let out =
        rig.step(Input::Answered(2, Ok(Body::Lineage { own: vec![hangs, fid(THERE, 7)], other: None })));
    assert_eq!(out, ["reply 99: stale file handle"]);
    // And as a user, if the key says so too.
    let within = Some(Within { root: HERS, session: ids::SessionId(8) });
    let right = || Right::Link { fid: OWN };
    assert_eq!(told(&mut rig, right(), Some(ANN), within.clone()), "done");
    rig.core.brick_mut().owners.remove(&OWN);
    assert_eq!(told(&mut rig, right(), Some(ANN), within), "operation not permitted");
}
