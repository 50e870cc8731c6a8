//! Exchanges of names in directories of two sets, told as scripts (docs/design/0019): this set decides, or it has the other name.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, dir};
use crate::common::{ME, Rig, To, answer, asked, done, errno, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use set_core::Input;
use wire::op::{EntryName, Successor, rename_flags};
use wire::{Attr, Body, Change, Errno, Fail, Op};

const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
const THIRD: SetId = SetId(3);
/// A directory of the other set.
const FAR: Fid = of(THERE, 60);
/// A file of the other set, and one of a third set.
const FILE: Fid = of(THERE, 51);
const OTHER: Fid = of(THIRD, 52);
/// A file of this set, `own`, and one of a third set with a name here, `stub`.
const OWN: Fid = of(HERE, 40);
const STUB: Fid = of(THIRD, 50);
const REGULAR: u32 = 0o100_000;

const fn of(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(5), lsn: Lsn(n) }
}

fn tx(seq: u64) -> OpId {
    OpId { session: SessionId(88), seq }
}

fn at(dir: Fid, s: &str) -> EntryName {
    EntryName { dir, name: name(s) }
}

fn rig() -> Rig {
    let names = [((ROOT, name("own")), (OWN, HERE)), ((ROOT, name("stub")), (STUB, THIRD))].into();
    Rig::with(Memory { names, files: [OWN, STUB].into(), ..Memory::default() }, &[])
}

fn attr(fid: Fid) -> Result<Body, Fail> {
    Ok(Body::Attr { attr: Attr { home: fid.set, mode: 0o100_644, nlink: 1, ..dir(fid) } })
}

fn elsewhere(fid: Fid, kind: u32) -> Result<Body, Fail> {
    Ok(Body::Elsewhere { fid, home: fid.set, kind })
}

fn exchange(to: &str) -> Op {
    let flags = rename_flags::EXCHANGE;
    Op::MoveIn { from: THERE, parent: FAR, name: name("far"), to_parent: ROOT, to_name: name(to), flags }
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

fn changes(rig: &mut Rig) -> Vec<String> {
    let word = |c: &Change| format!("{c:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned();
    rig.core.brick_mut().journal.iter().map(|e| word(&e.body)).collect()
}

fn leads(rig: &mut Rig, dir: Fid, s: &str) -> Option<Fid> {
    rig.core.brick_mut().names.get(&(dir, name(s))).map(|(fid, _)| *fid)
}

/// Neither file is of this set: the set of the other name marks its file, then the home of this name's; the entry is the moment it
/// counts. The other set has done its part, on disk, before the home of what goes there hears of it.
#[test]
fn two_names_change_places() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, exchange("stub")), ["ask 1: prepareexchange of 2 as 2"]);
    assert_eq!(answer(&mut rig, 1, attr(FILE)), ["ask 2: fsync of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: preparefile of 3 as 3"]);
    assert_eq!(answer(&mut rig, 3, attr(STUB)), ["ask 4: fsync of 3"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 4), ["ask 5: syncfs of 1"]);
    assert_eq!((changes(&mut rig), leads(&mut rig, ROOT, "stub")), (vec!["Enter".to_owned()], Some(FILE)));
    assert_eq!(done(&mut rig, 5), ["ask 6: endfile of 2"], "its entry leads to the other file");
    assert_eq!(done(&mut rig, 6), ["ask 7: endfile of 2"], "its mark ends");
    assert_eq!(done(&mut rig, 7), ["ask 8: syncfs of 2"]);
    assert_eq!(done(&mut rig, 8), ["ask 9: endfile of 3"]);
    assert_eq!(done(&mut rig, 9), ["reply 1: done for 250 ms"]);
}

/// The set of the other name cannot be told: the homes are not told either, as they would ask it.
#[test]
fn homes_wait_for_the_other_set() {
    for failing in [6, 7, 8] {
        let mut rig = rig();
        rig.ask(7, exchange("stub"));
        answer(&mut rig, 1, attr(FILE));
        done(&mut rig, 2);
        answer(&mut rig, 3, attr(STUB));
        (4..failing).for_each(|ask| _ = done(&mut rig, ask));
        assert_eq!(answer(&mut rig, failing, Err(Fail::Busy)), ["reply 1: done for 250 ms"], "{failing}");
    }
}

/// What lies there is a stub: its file's home is marked first, then the stub, which is told what takes its place.
#[test]
fn the_other_name_may_be_one_of_a_third_sets_file() {
    let mut rig = rig();
    rig.ask(7, exchange("stub"));
    assert_eq!(answer(&mut rig, 1, errno(Errno::EXDEV)), ["ask 2: lookup of 2"]);
    assert_eq!(answer(&mut rig, 2, elsewhere(OTHER, REGULAR)), ["ask 3: checkmark of 3"]);
    assert_eq!(answer(&mut rig, 3, errno(Errno::ENOENT)), ["ask 4: preparefile of 3 as 3"]);
    assert_eq!(answer(&mut rig, 4, attr(OTHER)), ["ask 5: fsync of 3"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: prepareexchange of 2 as 4"]);
    assert_eq!(answer(&mut rig, 6, elsewhere(OTHER, REGULAR)), ["ask 7: fsync of 2"]);
    assert_eq!(done(&mut rig, 7), ["ask 8: preparefile of 3 as 5"]);
    assert_eq!(answer(&mut rig, 8, attr(STUB)), ["ask 9: fsync of 3"]);
    assert_eq!(done(&mut rig, 9), ["ask 10: syncfs of 1"]);
    // Both files have one home: there the names change places, and then each mark ends.
    for (ask, next) in [(10, "endfile of 2"), (11, "endfile of 2"), (12, "syncfs of 2")] {
        assert_eq!(done(&mut rig, ask), [format!("ask {}: {next}", ask + 1)]);
    }
    for ask in 13..16 {
        assert_eq!(done(&mut rig, ask), [format!("ask {}: endfile of 3", ask + 1)]);
    }
    assert_eq!(done(&mut rig, 16), ["reply 1: done for 250 ms"]);
}

/// The file of this set is marked like one of any home, and has no name between the entry and the end of its mark.
#[test]
fn a_file_of_this_set_goes_to_the_other_name() {
    let mut rig = rig();
    rig.ask(7, exchange("own"));
    answer(&mut rig, 1, attr(FILE));
    let (mark, id) = to_own_set(&mut rig, Input::Answered(2, Ok(Body::Done)));
    let coordinator = |op: &Op| matches!(op, Op::PrepareFile { coordinator: THERE, fid: Some(OWN), .. });
    assert!(coordinator(&mark), "the other set's entry decides for it: {mark:?}");
    assert!(rig.ask_as(id.session.0, id.seq, mark)[0].contains("attr 1.5.40"));
    assert_eq!(answer(&mut rig, 3, attr(OWN)), ["ask 4: fsync of 1"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: syncfs of 1"]);
    assert_eq!(changes(&mut rig), ["PrepareFile", "Enter"]);
    (5..8).for_each(|ask| _ = done(&mut rig, ask));
    let own = rig.outputs(Input::Answered(8, Ok(Body::Done)));
    assert!(format!("{own:?}").contains("EndFile"), "{own:?}");
}

/// A server may be older, and take the mark for that of a rename: nothing is asked.
#[test]
fn an_exchange_waits_for_the_pools_level() {
    let mut rig = rig();
    let settings = rig.settings(ME, [ME].into());
    rig.step(Input::Settings(set_core::Settings { level: 3, ..settings }));
    assert_eq!(rig.ask(7, exchange("stub")), ["reply 1: crosses sets for 250 ms"]);
}

/// Directories wait for a higher one.
#[test]
fn directories_are_not_exchanged_while_servers_are_older() {
    let mut rig = rig();
    rig.ask(7, exchange("stub"));
    answer(&mut rig, 1, errno(Errno::EXDEV));
    let refused = answer(&mut rig, 2, elsewhere(of(THERE, 70), 0o040_000));
    assert_eq!(refused, ["reply 1: crosses sets for 250 ms"]);
    rig.core.brick_mut().names.insert((ROOT, name("dir")), (of(HERE, 41), HERE));
    rig.now += std::time::Duration::from_secs(1);
    assert_eq!(rig.ask(7, exchange("dir")), ["reply 2: crosses sets for 250 ms"]);
}

fn mark(fid: Option<Fid>, s: &str, successor: Fid) -> Op {
    let (coordinator, add) = match fid {
        // What a stub stands for asks its home.
        Some(fid) => (fid.set, None),
        None => (THERE, Some(at(FAR, "far"))),
    };
    let successor = Successor { fid: successor, home: successor.set, kind: REGULAR };
    Op::PrepareExchange { tx: tx(1), coordinator, fid, drop: at(ROOT, s), add, successor, by: SessionId(7) }
}

fn end(fid: Fid, commit: bool) -> Op {
    Op::EndFile { fid, tx: tx(1), commit, by: SessionId(7) }
}

/// This set has the other name. Its file leads nowhere else until the end, and nobody is told what its name will lead to before
/// that is certain; then the name leads there in one change, and the file gets its other name with the end of its mark.
#[test]
fn the_entry_leads_to_the_other_file_in_one_change() {
    let mut rig = rig();
    assert!(rig.ask_as(88, 1, mark(None, "own", FILE))[0].contains("attr 1.5.40"));
    let check = |fid| Op::CheckOutcome { parent: ROOT, name: name("own"), fid, tx: tx(1) };
    assert_eq!(rig.ask(9, check(FILE)), ["reply 1: busy"], "it may come to lead there");
    let other = Op::CheckOutcome { parent: ROOT, name: name("own"), fid: FILE, tx: tx(2) };
    let told = rig.ask(9, other);
    assert!(told[0].contains("no such file"), "another transaction's exchange is none of its own: {told:?}");
    assert!(rig.ask(9, Op::Lookup { parent: ROOT, name: name("own") })[0].contains("busy"));
    assert!(rig.ask_as(88, 2, end(OWN, true))[0].contains("done"));
    assert_eq!(changes(&mut rig), ["PrepareExchange", "Enter"]);
    assert_eq!(leads(&mut rig, ROOT, "own"), Some(FILE));
    assert_eq!(rig.ask(9, check(FILE)), ["reply 4: done"]);
    assert!(rig.core.brick_mut().marked.contains_key(&OWN), "it has no name");
    assert!(rig.ask_as(88, 3, end(OWN, true))[0].contains("done"));
    assert_eq!(changes(&mut rig), ["PrepareExchange", "Enter", "EndFile"]);
    assert_eq!(leads(&mut rig, FAR.names(), "far"), Some(OWN));
    assert!(rig.ask_as(88, 4, end(OWN, true))[0].contains("done"), "once");
    assert_eq!(changes(&mut rig).len(), 3);
}

/// Two transactions each of which is to take the other one's entry do not give each other up by turns: the one with the smaller
/// name goes on. Those of this set are of session 99.
#[test]
fn what_an_entry_leads_to_is_not_marked_while_a_smaller_transaction_is_about_it() {
    let marked_by = |session, fid, s| {
        let mut op = mark(fid, s, FILE);
        let Op::PrepareExchange { tx, .. } = &mut op else { panic!("{op:?}") };
        tx.session = SessionId(session);
        op
    };
    let mut rig = rig();
    rig.ask_as(7, 1, exchange("own"));
    rig.ask_as(7, 2, exchange("stub"));
    assert_eq!(rig.ask_as(100, 1, marked_by(100, None, "own")), ["reply 1: busy"]);
    let tx = OpId { session: SessionId(100), seq: 1 };
    let (drop, add, by) = (Some(at(ROOT, "own")), Some(at(FAR, "far")), SessionId(7));
    let file = Op::PrepareFile { tx, coordinator: THERE, fid: None, drop, add, by };
    assert_eq!(rig.ask_as(100, 2, file), ["reply 2: busy"]);
    assert_eq!(
        rig.ask_as(100, 3, marked_by(100, None, "stub")),
        ["reply 3: busy"],
        "nor told where it lives"
    );
    assert_eq!(rig.ask_as(100, 4, marked_by(100, Some(STUB), "stub")), ["reply 4: busy"]);
    assert!(rig.ask_as(88, 1, marked_by(88, None, "own"))[0].contains("attr 1.5.40"));
    assert_eq!(changes(&mut rig), ["PrepareExchange"]);
    assert_eq!(rig.ask_as(88, 2, marked_by(88, Some(STUB), "stub")), ["ask 3: checkmark of 3"]);
    done(&mut rig, 3);
    assert_eq!(changes(&mut rig), ["PrepareExchange", "PrepareExchange"]);
    assert_eq!(answer(&mut rig, 2, attr(FILE)), ["ask 4: fsync of 2"]);
    let given_up = done(&mut rig, 4);
    assert_eq!(given_up, ["ask 5: endfile of 2, given up", "reply 2: busy for 250 ms"]);
}

/// It is given up: nothing has changed.
#[test]
fn an_entry_that_was_marked_stays_as_it_was() {
    let mut rig = rig();
    rig.ask_as(88, 1, mark(None, "own", FILE));
    rig.ask_as(88, 2, end(OWN, false));
    assert_eq!(changes(&mut rig), ["PrepareExchange", "EndFile"]);
    assert_eq!((leads(&mut rig, ROOT, "own"), leads(&mut rig, FAR.names(), "far")), (Some(OWN), None));
}

/// The set that decides has not told the end. Who has the entry asks it, and is told twice what it has to do.
#[test]
fn who_has_the_entry_asks_how_it_ended() {
    let mut rig = rig();
    rig.ask_as(88, 1, mark(None, "own", FILE));
    for round in 0..2 {
        assert_eq!(asked(&mut rig), [format!("ask {}: checkoutcome of 2", 4 * round + 1)]);
        assert_eq!(done(&mut rig, 4 * round + 1), [format!("ask {}: fsync of 2", 4 * round + 2)]);
        assert_eq!(done(&mut rig, 4 * round + 2), [format!("ask {}: checkoutcome of 2", 4 * round + 3)]);
        assert_eq!(done(&mut rig, 4 * round + 3), [format!("ask {}: endfile of 1", 4 * round + 4)]);
        let by = SessionId(0);
        rig.ask_as(77, round + 1, Op::EndFile { fid: OWN, tx: tx(1), commit: true, by });
        done(&mut rig, 4 * round + 4);
    }
    assert_eq!(changes(&mut rig), ["PrepareExchange", "Enter", "EndFile"]);
}

/// A stub here is marked when its file is, as for a rename; a file of this set comes to its name from the folder of names.
#[test]
fn a_file_of_this_set_takes_the_place_of_a_stub() {
    let mut rig = rig();
    rig.core.brick_mut().names.insert((FAR.names(), name("far")), (OWN, HERE));
    let (drop, add, by) = (Some(at(FAR, "far")), Some(at(ROOT, "stub")), SessionId(7));
    assert_eq!(rig.ask_as(88, 1, mark(Some(STUB), "stub", OWN)), ["ask 1: checkmark of 3"]);
    done(&mut rig, 1);
    let own = Op::PrepareFile { tx: tx(1), coordinator: HERE, fid: Some(OWN), drop, add, by };
    assert!(rig.ask_as(88, 2, own)[0].contains("attr 1.5.40"));
    rig.ask_as(88, 3, end(STUB, true));
    assert_eq!(changes(&mut rig), ["PrepareExchange", "PrepareFile", "Rename"]);
    assert_eq!((leads(&mut rig, ROOT, "stub"), leads(&mut rig, FAR.names(), "far")), (Some(OWN), None));
    rig.ask_as(88, 4, end(STUB, true));
    rig.ask_as(88, 5, end(OWN, true));
    assert_eq!(changes(&mut rig), ["PrepareExchange", "PrepareFile", "Rename", "EndFile", "EndFile"]);
}

/// What a stub stands for comes back to a name here while the stub is marked still: it waits.
#[test]
fn a_marked_stub_gets_no_other_name() {
    let mut rig = rig();
    rig.ask_as(88, 1, mark(Some(STUB), "stub", FILE));
    done(&mut rig, 1);
    rig.ask_as(88, 2, end(STUB, true));
    assert_eq!(leads(&mut rig, ROOT, "stub"), Some(FILE));
    let link = Op::LinkIn { fid: STUB, home: THIRD, parent: ROOT, name: name("new") };
    assert_eq!(rig.ask(7, link), ["ask 2: preparefile of 3 as 3"]);
    answer(&mut rig, 2, attr(STUB));
    let refused = done(&mut rig, 3);
    assert!(refused.iter().any(|line| line.contains("busy")), "{refused:?}");
}

/// Nor does it by another exchange, which would be undone by a late end of the first one.
#[test]
fn a_marked_stub_is_not_exchanged() {
    let mut rig = rig();
    rig.core.brick_mut().names.insert((ROOT, name("more")), (STUB, THIRD));
    rig.ask_as(88, 1, mark(Some(STUB), "stub", FILE));
    done(&mut rig, 1);
    rig.ask_as(88, 2, end(STUB, true));
    // Back again, as this set decides.
    rig.ask(7, exchange("stub"));
    answer(&mut rig, 2, errno(Errno::EXDEV));
    answer(&mut rig, 3, elsewhere(STUB, REGULAR));
    answer(&mut rig, 4, errno(Errno::ENOENT));
    answer(&mut rig, 5, attr(STUB));
    done(&mut rig, 6);
    answer(&mut rig, 7, elsewhere(STUB, REGULAR));
    done(&mut rig, 8);
    answer(&mut rig, 9, attr(FILE));
    let refused = done(&mut rig, 10);
    assert!(refused.iter().any(|line| line.contains("busy")), "{refused:?}");
    assert_eq!(leads(&mut rig, ROOT, "stub"), Some(FILE));
}

/// A file that loses one name before it gets another has only its other ones meanwhile: they are on disk before.
#[test]
fn other_names_are_on_disk_before_one_goes() {
    let mut rig = rig();
    rig.ask(7, exchange("stub"));
    let linked = Ok(Body::Attr { attr: Attr { home: THERE, mode: 0o100_644, nlink: 2, ..dir(FILE) } });
    assert_eq!(answer(&mut rig, 1, linked), ["ask 2: syncfs of 2"]);
}
