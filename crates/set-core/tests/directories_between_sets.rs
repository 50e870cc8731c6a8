//! Directories that move from one set's entries to another's, told as scripts: this set is the one that gets the entry, the
//! directory's own, or the one that had the entry.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, dir};
use crate::common::{self, Rig, answer, asked, done, errno, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use set_core::{Input, Settings};
use std::time::Duration;
use wire::op::{EntryName, Node};
use wire::{Attr, Body, Errno, Fail, Op};

const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
const THIRD: SetId = SetId(3);
/// A directory of a third set.
const FAR3: Fid = Fid { set: THIRD, epoch: Epoch(5), lsn: Lsn(80) };
/// A directory of the other set, and one in it.
const FAR: Fid = there(60);
const FAR_DIR: Fid = there(61);
/// Directories of this set: `dir`, and `in` in it.
const DIR: Fid = here(40);
const INNER: Fid = here(41);

const fn there(n: u64) -> Fid {
    Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(n) }
}

const fn here(n: u64) -> Fid {
    Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(n) }
}

const TX: OpId = OpId { session: SessionId(88), seq: 1 };

fn rig() -> Rig {
    let entry = |dir, s, fid| ((dir, name(s)), (fid, HERE));
    let names = [entry(ROOT, "dir", DIR), entry(DIR, "in", INNER), entry(ROOT, "other", here(42))].into();
    Rig::with(Memory { names, ..Memory::default() }, &[])
}

fn directory(fid: Fid) -> Result<Body, Fail> {
    Ok(Body::Attr { attr: Attr { home: fid.set, ..dir(fid) } })
}

fn move_in(to_parent: Fid, to: &str) -> Op {
    Op::MoveIn { from: THERE, parent: FAR, name: name("old"), to_parent, to_name: name(to), flags: 0 }
}

fn make(parent: Fid, s: &str, node: Node) -> Op {
    let (mode, umask, uid, gid, open) = (0o755, 0, 0, 0, false);
    Op::Create { parent, name: name(s), node, mode, umask, uid, gid, open }
}

fn changes(rig: &mut Rig) -> Vec<&'static str> {
    rig.core.brick_mut().journal.iter().map(|e| e.body.variant()).collect()
}

/// The mark comes first, on its set's disks, then the entry, and at last it leaves where it was, on disk as well before the mark
/// goes.
#[test]
fn a_directory_moves_in_with_its_entry() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, move_in(ROOT, "new")), ["ask 1: preparefile of 2 as 2"]);
    assert_eq!(answer(&mut rig, 1, errno(Errno::EXDEV)), ["ask 2: lookup of 2"]);
    assert_eq!(answer(&mut rig, 2, directory(FAR_DIR)), ["ask 3: preparefile of 2 as 3"]);
    assert_eq!(answer(&mut rig, 3, directory(FAR_DIR)), ["ask 4: fsync of 2"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 4), ["ask 5: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: endfile of 2"]);
    assert_eq!(done(&mut rig, 6), ["ask 7: syncfs of 2", "reply 1: done for 250 ms"]);
    assert_eq!(done(&mut rig, 7), ["ask 8: endtransaction of 2"]);
    assert_eq!(done(&mut rig, 8), ["ask 9: relocate of 2"], "it is to lie at its path");
    assert!(done(&mut rig, 9).is_empty());
    assert_eq!(rig.ask_as(7, 1, move_in(ROOT, "new")), ["ask 10: fsync of 1"], "once");
    assert_eq!(changes(&mut rig), ["Enter"]);
}

/// An older server would not know what the mark means.
#[test]
fn a_directory_stays_as_long_as_servers_are_older() {
    let mut rig = rig();
    let settings = rig.settings(common::ME, [common::ME].into());
    rig.step(Input::Settings(Settings { level: 1, ..settings }));
    rig.ask(7, move_in(ROOT, "new"));
    answer(&mut rig, 1, errno(Errno::EXDEV));
    assert_eq!(answer(&mut rig, 2, directory(FAR_DIR)), ["reply 1: crosses sets for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
}

/// What lies above the new entry is asked for only when the directory is marked, and told up to it.
#[test]
fn a_directory_does_not_come_beneath_itself() {
    for (above, beneath) in [(FAR_DIR, true), (there(62), false)] {
        let mut rig = rig();
        let hanging = here(70);
        rig.core.brick_mut().hangs.insert(hanging, THERE);
        rig.ask(7, move_in(hanging, "new"));
        answer(&mut rig, 1, errno(Errno::EXDEV));
        answer(&mut rig, 2, directory(FAR_DIR));
        answer(&mut rig, 3, directory(FAR_DIR));
        assert_eq!(done(&mut rig, 4), ["ask 5: locktree of 1"], "a slow disk may take longer than it lasts");
        assert_eq!(done(&mut rig, 5), ["ask 6: lineage of 2"]);
        let other = beneath.then_some((above, THERE));
        let told = answer(&mut rig, 6, Ok(Body::Lineage { own: [hanging, above].into(), other }));
        if beneath {
            assert_eq!(
                told,
                [
                    "ask 7: unlocktree of 1",
                    "ask 8: endfile of 2, given up",
                    "reply 1: invalid argument for 250 ms"
                ]
            );
            assert!(changes(&mut rig).is_empty());
        } else {
            assert_eq!(told, ["ask 7: unlocktree of 1", "ask 8: fsync of 1"]);
            assert_eq!(changes(&mut rig), ["Enter"]);
        }
    }
}

fn prepare() -> Op {
    let (drop, add) = (EntryName { dir: ROOT, name: name("dir") }, EntryName { dir: FAR, name: name("new") });
    let (drop, add) = (Some(drop), Some(add));
    Op::PrepareFile { tx: TX, coordinator: THERE, fid: Some(DIR), drop, add, by: SessionId(7) }
}

fn end(commit: bool) -> Op {
    Op::EndFile { fid: DIR, tx: TX, commit, by: SessionId(7) }
}

/// While it is marked nobody sees where it is, and nothing comes into it or beneath it. What is in it is served.
#[test]
fn a_marked_directory_waits_and_leaves() {
    let mut rig = rig();
    assert_eq!(rig.ask(88, prepare()), ["reply 1: attr 1.1.40"]);
    let into = |to_parent| {
        let (name, to_name) = (name("other"), name("moved"));
        Op::Rename { parent: ROOT, name, to_parent, to_name, flags: 0 }
    };
    let waits = [
        Op::Lookup { parent: ROOT, name: name("dir") },
        Op::ReadDir { fid: ROOT, cookie: 0, plus: false },
        make(DIR, "new", Node::File),
        make(ROOT, "dir", Node::Dir),
        Op::Unlink { parent: ROOT, name: name("dir") },
        Op::Rmdir { parent: ROOT, name: name("dir") },
        Op::Rename { parent: ROOT, name: name("dir"), to_parent: ROOT, to_name: name("b"), flags: 0 },
        into(INNER),
        Op::Lineage { fid: DIR },
        Op::PrepareRmdir { fid: DIR, by: SessionId(7) },
    ];
    for op in waits {
        rig.now += Duration::from_secs(1);
        let said = rig.ask(9, op.clone());
        assert!(said.iter().any(|s| s.contains("busy")), "{op:?}: {said:?}");
    }
    let told = rig.ask(9, Op::Lineage { fid: INNER });
    assert!(told[0].contains("lineage"), "what lies above is told up to it: {told:?}");
    assert!(!rig.ask(9, Op::Lookup { parent: DIR, name: name("in") })[0].contains("busy"));

    assert!(rig.ask(88, end(true))[0].ends_with(": done"));
    assert_eq!(changes(&mut rig), ["PrepareFile", "MoveOut"]);
    assert!(rig.ask(9, Op::Lookup { parent: ROOT, name: name("dir") })[0].contains("no such file"));
    let new = make(DIR, "new", Node::File);
    assert!(rig.ask(9, new.clone())[0].contains("busy"), "until it is on disk that it has left");
    rig.ask(88, Op::EndTransaction { fid: DIR, tx: Some(TX), keep: true });
    assert!(!rig.ask(9, new)[0].contains("busy"));
}

#[test]
fn a_move_that_is_given_up_leaves_the_directory_where_it_is() {
    let mut rig = rig();
    rig.ask(88, prepare());
    // A late word of the end that a power cut has undone.
    rig.ask(88, Op::EndTransaction { fid: DIR, tx: Some(TX), keep: true });
    assert!(rig.ask(9, Op::Lookup { parent: ROOT, name: name("dir") })[0].contains("busy"));
    rig.ask(88, end(false));
    assert_eq!(changes(&mut rig), ["PrepareFile", "EndTransaction"]);
    assert!(!rig.ask(9, Op::Lookup { parent: ROOT, name: name("dir") })[0].contains("busy"));
}

/// Whoever finds the mark asks for the entry, and before it goes has on disk where the directory is.
#[test]
fn a_directory_whose_move_is_not_told_asks() {
    let mut rig = rig();
    rig.ask(88, prepare());
    assert_eq!(asked(&mut rig), ["ask 1: checkoutcome of 2"]);
    assert_eq!(done(&mut rig, 1), ["ask 2: fsync of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: checkoutcome of 2"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: endfile of 1"]);
    rig.ask(88, end(true));
    done(&mut rig, 4);
    assert_eq!(changes(&mut rig), ["PrepareFile", "MoveOut"]);
    // The entry is there, and the mark goes when the directory's new place is on disk.
    assert_eq!(asked(&mut rig), ["ask 5: checkentry of 2"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: syncfs of 1"]);
    assert_eq!(done(&mut rig, 6), ["ask 7: endtransaction of 1"]);
}

/// It lives on neither of the two sets: its set is marked first, what the set of the old entry has of it next, and that hears of
/// the end first.
#[test]
fn a_directory_of_a_third_set_moves_in() {
    let mut rig = rig();
    let elsewhere = || Ok(Body::Elsewhere { fid: FAR3, home: THIRD, kind: 0o040_000 });
    rig.ask(7, move_in(ROOT, "new"));
    assert_eq!(answer(&mut rig, 1, errno(Errno::EXDEV)), ["ask 2: lookup of 2"]);
    assert_eq!(answer(&mut rig, 2, elsewhere()), ["ask 3: preparefile of 3 as 3"]);
    assert_eq!(answer(&mut rig, 3, directory(FAR3)), ["ask 4: fsync of 3"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: preparefile of 2 as 4"]);
    assert_eq!(answer(&mut rig, 5, elsewhere()), ["ask 6: fsync of 2"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 6), ["ask 7: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    assert_eq!(done(&mut rig, 7), ["ask 8: endfile of 2"]);
    assert_eq!(done(&mut rig, 8), ["ask 9: endfile of 3"]);
    assert_eq!(done(&mut rig, 9), ["ask 10: syncfs of 3", "reply 1: done for 250 ms"]);
    assert_eq!(done(&mut rig, 10), ["ask 11: endtransaction of 3"]);
    assert_eq!(done(&mut rig, 11), ["ask 12: relocate of 3"]);
}

/// The name leads to a directory of a third set, which that marks as for `rmdir`: last of all, and it is told first.
#[test]
fn an_empty_directory_of_a_third_set_gives_way() {
    // Until the directory that moves is marked.
    let begun = |onto: Fid| {
        let mut rig = rig();
        rig.core.brick_mut().names.insert((ROOT, name("new")), (onto, onto.set));
        rig.ask(7, move_in(ROOT, "new"));
        answer(&mut rig, 1, errno(Errno::EXDEV));
        answer(&mut rig, 2, directory(FAR_DIR));
        answer(&mut rig, 3, directory(FAR_DIR));
        let told = done(&mut rig, 4);
        (rig, told)
    };
    let (mut rig, told) = begun(FAR3);
    assert_eq!(told, ["ask 5: preparermdir of 3 as 1"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 5), ["ask 6: fsync of 3"], "a power cut must not let it be filled meanwhile");
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 6), ["ask 7: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    assert_eq!(done(&mut rig, 7), ["ask 8: endtransaction of 3, gone"]);
    assert_eq!(done(&mut rig, 8), ["ask 9: endfile of 2"]);
    assert_eq!(done(&mut rig, 9), ["ask 10: syncfs of 2", "reply 1: done for 250 ms"]);

    // It refuses, or is gone.
    let (mut rig, _) = begun(FAR3);
    let said = answer(&mut rig, 5, errno(Errno::ENOTEMPTY));
    assert_eq!(said, ["ask 6: endfile of 2, given up", "reply 1: directory not empty for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
    let (mut rig, _) = begun(FAR3);
    assert_eq!(answer(&mut rig, 5, errno(Errno::ESTALE)), ["ask 6: fsync of 1"]);
    assert_eq!(done(&mut rig, 6), ["ask 7: endfile of 2"]);

    // The name leads to another one by now, which could go at once: the entry says what becomes of the one that has agreed.
    let (mut rig, _) = begun(FAR3);
    let other = here(43);
    rig.core.brick_mut().names.insert((ROOT, name("new")), (other, HERE));
    done(&mut rig, 5);
    let said = done(&mut rig, 6);
    assert_eq!(said, ["ask 7: endfile of 2, given up", "ask 8: checkentry of 1", "reply 1: busy for 250 ms"]);
    assert!(changes(&mut rig).is_empty());

    // It holds what moves: its set is not asked, as it would wait for the end of this.
    let (mut rig, told) = begun(FAR);
    assert_eq!(told, ["ask 5: endfile of 2, given up", "reply 1: directory not empty for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
}

/// A server of level 2 takes the mark of such a directory for that of `rmdir`.
#[test]
fn a_directory_of_a_third_set_stays_as_long_as_servers_are_older() {
    let mut rig = rig();
    let settings = rig.settings(common::ME, [common::ME].into());
    rig.step(Input::Settings(Settings { level: 2, ..settings }));
    rig.ask(7, move_in(ROOT, "new"));
    answer(&mut rig, 1, errno(Errno::EXDEV));
    let elsewhere = Ok(Body::Elsewhere { fid: FAR3, home: THIRD, kind: 0o040_000 });
    assert_eq!(answer(&mut rig, 2, elsewhere), ["reply 1: crosses sets for 250 ms"]);
}

/// Its entry was one of set 2, and is to be one of this set, which answers for it: the change of the entry ends what the mark
/// means, and the mark goes when the other set has heard.
#[test]
fn a_directory_comes_home() {
    let mut rig = rig();
    let hanging = here(70);
    rig.core.brick_mut().hangs.insert(hanging, THERE);
    let elsewhere = || Ok(Body::Elsewhere { fid: hanging, home: HERE, kind: 0o040_000 });
    rig.ask(7, move_in(ROOT, "new"));
    answer(&mut rig, 1, errno(Errno::EXDEV));
    assert_eq!(answer(&mut rig, 2, elsewhere()), ["ask 3: preparefile of 1 as 3"]);
    let (drop, add) = (EntryName { dir: FAR, name: name("old") }, EntryName { dir: ROOT, name: name("new") });
    let (drop, add, by) = (Some(drop), Some(add), SessionId(7));
    // The first id that this set gives.
    let tx = OpId { session: SessionId(99), seq: 1 };
    let mark = Op::PrepareFile { tx, coordinator: HERE, fid: Some(hanging), drop, add, by };
    rig.ask(88, mark);
    assert_eq!(changes(&mut rig), ["PrepareFile"]);
    answer(&mut rig, 3, Ok(Body::Attr { attr: dir(hanging) }));
    assert_eq!(done(&mut rig, 4), ["ask 5: preparefile of 2 as 4"]);
    answer(&mut rig, 5, elsewhere());
    assert_eq!(done(&mut rig, 6), ["ask 7: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["PrepareFile", "Enter"]);
    assert_eq!(done(&mut rig, 7), ["ask 8: endfile of 2"]);
    assert_eq!(done(&mut rig, 8), ["ask 9: endfile of 1"]);
    let make = || make(hanging, "x", Node::File);
    rig.now += Duration::from_secs(1);
    assert!(rig.ask(9, make())[0].contains("busy"), "it is marked until the other set has heard");
    rig.ask(88, Op::EndFile { fid: hanging, tx, commit: true, by });
    rig.ask(88, Op::EndTransaction { fid: hanging, tx: Some(tx), keep: true });
    assert_eq!(changes(&mut rig), ["PrepareFile", "Enter", "EndTransaction"]);
    assert!(!rig.ask(9, make())[0].contains("busy"));
}

/// Its entry was in a directory of this set, which is gone. By now who asks late has the entry itself.
#[test]
fn a_directory_that_has_left_is_not_marked_once_more() {
    let (hanging, gone) = (here(70), here(80));
    for (coordinator, dir, marks) in [(THIRD, FAR, true), (THERE, gone, false)] {
        let mut rig = rig();
        rig.core.brick_mut().hangs.insert(hanging, THERE);
        rig.core.brick_mut().gone.insert(gone);
        let (drop, add) = (EntryName { dir, name: name("old") }, EntryName { dir: FAR3, name: name("new") });
        let (drop, add, by) = (Some(drop), Some(add), SessionId(7));
        let told = rig.ask(88, Op::PrepareFile { tx: TX, coordinator, fid: Some(hanging), drop, add, by });
        assert_eq!(changes(&mut rig) == ["PrepareFile"], marks, "{told:?}");
        assert!(marks || told[0].contains("busy"), "{told:?}");
    }
}

/// The set that has the entry of another one's directory marks what it has of it, when the directory's set says that it is marked
/// for that, and lets nobody see the name.
#[test]
fn what_is_there_of_a_directory_goes_with_its_entry() {
    for commit in [false, true] {
        let mut rig = rig();
        rig.core.brick_mut().names.insert((ROOT, name("far")), (FAR3, THIRD));
        let drop = Some(EntryName { dir: ROOT, name: name("far") });
        let mark = Op::PrepareFile {
            tx: TX,
            coordinator: THIRD,
            fid: Some(FAR3),
            drop,
            add: None,
            by: SessionId(7),
        };
        assert_eq!(rig.ask(88, mark), ["ask 1: checkmark of 3"]);
        assert!(changes(&mut rig).is_empty());
        done(&mut rig, 1);
        assert_eq!(changes(&mut rig), ["PrepareFile"]);
        let from = || (ROOT, name("far"));
        let waits = [
            Op::Lookup { parent: ROOT, name: name("far") },
            Op::ReadDir { fid: ROOT, cookie: 0, plus: false },
            make(ROOT, "far", Node::Dir),
            Op::Rmdir { parent: ROOT, name: name("far") },
            Op::Rename { parent: ROOT, name: from().1, to_parent: ROOT, to_name: name("b"), flags: 0 },
            Op::Rename { parent: ROOT, name: name("other"), to_parent: ROOT, to_name: from().1, flags: 0 },
            Op::CheckEntry { parent: ROOT, name: name("far"), fid: FAR3 },
        ];
        for op in waits {
            rig.now += Duration::from_secs(1);
            let said = rig.ask(9, op.clone());
            assert!(said.iter().any(|s| s.contains("busy")), "{op:?}: {said:?}");
        }
        // Nobody tells how it ended: the directory's set is asked, and what it says has to be on its disks.
        assert_eq!(asked(&mut rig), ["ask 2: checkmark of 3"]);
        assert_eq!(answer(&mut rig, 2, errno(Errno::ENOENT)), ["ask 3: syncfs of 3"]);
        assert_eq!(done(&mut rig, 3), ["ask 4: checkoutcome of 3"]);
        let entry = if commit { errno(Errno::ENOENT) } else { Ok(Body::Done) };
        let said = answer(&mut rig, 4, entry);
        assert_eq!(said, [if commit { "ask 5: endfile of 1" } else { "ask 5: endfile of 1, given up" }]);
        rig.ask(88, Op::EndFile { fid: FAR3, tx: TX, commit, by: SessionId(7) });
        assert_eq!(changes(&mut rig), ["PrepareFile", "EndFile"]);
        let told = rig.ask(9, Op::Lookup { parent: ROOT, name: name("far") });
        assert_eq!(told[0].contains("no such file"), commit, "{told:?}");
    }
}

/// The directory's set, when its entry goes from one set to another.
#[test]
fn a_directory_whose_entry_is_another_sets_moves_on() {
    let mut rig = rig();
    let hanging = here(70);
    rig.core.brick_mut().hangs.insert(hanging, THERE);
    let (drop, add) = (EntryName { dir: FAR, name: name("old") }, EntryName { dir: FAR3, name: name("new") });
    let prepare = |tx, drop: &EntryName| {
        let (fid, drop, add) = (Some(hanging), Some(drop.clone()), Some(add.clone()));
        Op::PrepareFile { tx, coordinator: THIRD, fid, drop, add, by: SessionId(7) }
    };
    // A late request of a move from where it is not any more.
    let stale = EntryName { dir: FAR3, ..drop.clone() };
    assert!(rig.ask(88, prepare(TX, &stale))[0].contains("stale"));
    assert!(changes(&mut rig).is_empty(), "what is kept of its entry stays");
    let tx = OpId { seq: 2, ..TX };
    rig.ask(88, prepare(tx, &drop));
    assert_eq!(changes(&mut rig), ["PrepareFile"]);
    assert!(rig.ask(9, Op::GetAttr { fid: hanging })[0].contains("busy"));
    let still = Op::CheckEntry { parent: FAR.names(), name: name("old"), fid: hanging };
    assert!(rig.ask(88, still.clone())[0].contains("done"));
    rig.ask(88, Op::EndFile { fid: hanging, tx, commit: true, by: SessionId(7) });
    assert_eq!(changes(&mut rig), ["PrepareFile", "MoveOn"]);
    assert!(rig.ask(88, still)[0].contains("no such file"), "so what set 2 has of it goes");
    rig.ask(88, Op::EndTransaction { fid: hanging, tx: Some(tx), keep: true });
    assert!(!rig.ask(9, Op::GetAttr { fid: hanging })[0].contains("busy"));
}

/// A rename under the lock has learnt what lies above its target; a directory that comes here meanwhile may bring that beneath what
/// is renamed, and does not need the lock itself.
#[test]
fn what_was_learnt_of_the_tree_is_forgotten_when_a_directory_comes() {
    let mut rig = rig();
    let hanging = here(70);
    rig.core.brick_mut().hangs.insert(hanging, THERE);
    let beneath =
        Op::Rename { parent: ROOT, name: name("dir"), to_parent: hanging, to_name: name("moved"), flags: 0 };
    assert_eq!(rig.ask(9, beneath), ["ask 1: locktree of 1"]);
    assert_eq!(done(&mut rig, 1), ["ask 2: lineage of 2"]);
    // What lies above `hanging`, `FAR_DIR` among it, comes beneath `dir`.
    rig.now += Duration::from_secs(1);
    rig.ask(7, move_in(DIR, "new"));
    answer(&mut rig, 3, errno(Errno::EXDEV));
    answer(&mut rig, 4, directory(FAR_DIR));
    answer(&mut rig, 5, directory(FAR_DIR));
    done(&mut rig, 6);
    assert_eq!(changes(&mut rig), ["Enter"]);
    let told = Ok(Body::Lineage { own: [hanging, FAR_DIR].into(), other: None });
    let said = answer(&mut rig, 2, told);
    assert!(said.iter().any(|s| s.contains("busy")), "{said:?}");
    assert_eq!(changes(&mut rig), ["Enter"], "no loop");
}

/// An entry may move between two questions: then the walk begins again, once.
#[test]
fn a_walk_begins_again_when_an_entry_is_not_where_it_was_told() {
    let mut rig = rig();
    let hanging = here(70);
    rig.core.brick_mut().hangs.insert(hanging, THERE);
    let beneath =
        Op::Rename { parent: ROOT, name: name("dir"), to_parent: hanging, to_name: name("moved"), flags: 0 };
    rig.ask(9, beneath);
    assert_eq!(done(&mut rig, 1), ["ask 2: lineage of 2"]);
    assert_eq!(answer(&mut rig, 2, errno(Errno::ESTALE)), ["ask 3: lineage of 2"]);
    let said = answer(&mut rig, 3, errno(Errno::ESTALE));
    assert!(said.iter().any(|s| s.contains("stale")), "it is lost for good: {said:?}");
}
