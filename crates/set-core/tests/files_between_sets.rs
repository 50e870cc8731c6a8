//! Names of files in directories of other sets, told as scripts: this set is the one whose entry decides, or the home of the
//! file.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, dir};
use crate::common::{self, Rig, answer, asked, create, done, errno, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId, Time};
use set_core::{Input, Pending};
use std::time::Duration;
use wire::op::{EntryName, Intent, Node, SetAttr};
use wire::{Attr, Body, Change, Errno, Fail, Op};

const NONE: [&str; 0] = [];
const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
/// A directory of the other set.
const FAR: Fid = there(60);
/// A file of the other set with a name here, `stub`.
const STUB: Fid = there(50);
/// A file of the other set without one.
const FILE: Fid = there(51);
/// A file of this set, `own`.
const OWN: Fid = Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(40) };

const fn there(n: u64) -> Fid {
    Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(n) }
}

fn tx(seq: u64) -> OpId {
    OpId { session: SessionId(88), seq }
}

fn memory() -> Memory {
    let names = [((ROOT, name("own")), (OWN, HERE)), ((ROOT, name("stub")), (STUB, THERE))].into();
    Memory { names, files: [OWN, STUB].into(), ..Memory::default() }
}

fn rig() -> Rig {
    Rig::with(memory(), &[])
}

fn agreed(fid: Fid) -> Result<Body, Fail> {
    Ok(Body::Attr { attr: Attr { home: THERE, mode: 0o100_644, nlink: 1, ..dir(fid) } })
}

fn move_in(to: &str) -> Op {
    Op::MoveIn { from: THERE, parent: FAR, name: name("old"), to_parent: ROOT, to_name: name(to), flags: 0 }
}

fn unlink(s: &str) -> Op {
    Op::Unlink { parent: ROOT, name: name(s) }
}

fn check(s: &str, fid: Fid) -> Op {
    Op::CheckEntry { parent: ROOT, name: name(s), fid }
}

fn changes(rig: &mut Rig) -> Vec<String> {
    let word = |c: &Change| format!("{c:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned();
    rig.core.brick_mut().journal.iter().map(|e| word(&e.body)).collect()
}

/// The moment it counts is the entry; before, the mark is on the home's disks, and before the home ends it, the entry on ours.
#[test]
fn a_file_moves_in_with_its_entry() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, move_in("new")), ["ask 1: preparefile of 2 as 2"]);
    assert_eq!(rig.ask_as(7, 1, move_in("new")), ["reply 1: busy for 250 ms"], "it is under way");
    assert_eq!(rig.ask(7, move_in("new")), ["reply 2: busy for 250 ms"], "and so is its name");
    assert_eq!(answer(&mut rig, 1, agreed(FILE)), ["ask 2: fsync of 2"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 2), ["ask 3: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: endfile of 2"]);
    assert_eq!(done(&mut rig, 4), ["reply 1: done for 250 ms"], "all is as it will be");
    assert_eq!(rig.ask_as(7, 1, move_in("new")), ["ask 5: fsync of 1"], "once");
    assert_eq!(done(&mut rig, 5), ["reply 1: done"]);
    assert_eq!(rig.ask(9, check("new", FILE)), ["reply 3: done"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
}

#[test]
fn a_link_comes_in_like_a_file_that_moves() {
    let mut rig = rig();
    let link = Op::LinkIn { fid: FILE, home: THERE, parent: ROOT, name: name("new") };
    assert_eq!(rig.ask(7, link), ["ask 1: preparefile of 2 as 2"]);
    assert_eq!(answer(&mut rig, 1, agreed(FILE)), ["ask 2: fsync of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: fsync of 1"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: endfile of 2"]);
    assert_eq!(done(&mut rig, 4), ["reply 1: done for 250 ms"]);
}

#[test]
fn a_file_elsewhere_loses_its_name_with_the_entry() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, unlink("stub")), ["ask 1: preparefile of 2 as 2"]);
    assert_eq!(answer(&mut rig, 1, agreed(STUB)), ["ask 2: fsync of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Unlink"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: endfile of 2"]);
    assert_eq!(done(&mut rig, 4), ["reply 1: done for 250 ms"]);
    // One that a power cut has taken from its home: only the entry is left.
    for gone in [Errno::ENOENT, Errno::ESTALE] {
        let mut rig = self::rig();
        rig.ask(7, unlink("stub"));
        assert_eq!(answer(&mut rig, 1, errno(gone)), ["ask 2: fsync of 1"]);
        assert_eq!(done(&mut rig, 2), ["reply 1: done for 250 ms"]);
        assert_eq!(changes(&mut rig), ["Unlink"]);
    }
}

/// Both have agreed before the entry changes. The one that gives way is told first: the other one waits for its name.
#[test]
fn a_file_moves_onto_one_of_the_same_home() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, move_in("stub")), ["ask 1: preparefile of 2 as 2"]);
    assert_eq!(answer(&mut rig, 1, agreed(FILE)), ["ask 2: fsync of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: preparefile of 2 as 3"]);
    assert_eq!(answer(&mut rig, 3, agreed(STUB)), ["ask 4: fsync of 2"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    let ended = |outputs: Vec<set_core::Output<_, _>>| {
        outputs.into_iter().find_map(|o| match o {
            set_core::Output::Ask { op: Op::EndFile { fid, commit, .. }, .. } => Some((fid, commit)),
            _ => None,
        })
    };
    assert_eq!(ended(rig.outputs(Input::Answered(5, Ok(Body::Done)))), Some((STUB, true)));
    assert_eq!(ended(rig.outputs(Input::Answered(6, Ok(Body::Done)))), Some((FILE, true)));
    assert_eq!(done(&mut rig, 7), ["reply 1: done for 250 ms"]);
    // The second one does not agree: the first one is given up.
    let mut rig = self::rig();
    rig.ask(7, move_in("stub"));
    answer(&mut rig, 1, agreed(FILE));
    done(&mut rig, 2);
    let refused = answer(&mut rig, 3, Err(Fail::Busy));
    assert_eq!(refused, ["ask 4: endfile of 2, given up", "reply 1: busy for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
}

#[test]
fn what_the_home_refuses_changes_nothing() {
    for (refusal, said) in [
        (errno(Errno::ENOENT), "no such file or directory"),
        (errno(Errno::EMLINK), "too many links"),
        (Err(Fail::Busy), "busy"),
    ] {
        let mut rig = rig();
        rig.ask(7, move_in("new"));
        let reply = answer(&mut rig, 1, refusal);
        assert_eq!(reply, [format!("reply 1: {said} for 250 ms")]);
        assert!(changes(&mut rig).is_empty());
        assert_eq!(rig.ask(7, move_in("new")), ["ask 2: preparefile of 2 as 4"], "the name is free again");
    }
}

/// Another transaction has marked the stub meanwhile, and its home has heard of the end: the name is about to lead to something else.
#[test]
fn a_name_that_is_about_to_lead_to_something_else_is_not_missing() {
    for (marked, said) in [(false, "no such file or directory"), (true, "busy")] {
        let mut rig = rig();
        let (parent, to_parent, flags) = (ROOT, ROOT, 0);
        let rename = Op::Rename { parent, name: name("stub"), to_parent, to_name: name("new"), flags };
        assert_eq!(rig.ask(7, rename), ["ask 1: preparefile of 2 as 2"]);
        if marked {
            let drop = Some(EntryName { dir: ROOT, name: name("stub") });
            let intent = Intent { tx: tx(9), coordinator: THIRD, drop, add: None };
            rig.core.brick_mut().marked.insert(STUB, intent);
        }
        assert_eq!(answer(&mut rig, 1, errno(Errno::ENOENT)), [format!("reply 1: {said} for 250 ms")]);
        assert!(changes(&mut rig).is_empty());
    }
}

/// A set where a third set's files may live.
const THIRD: SetId = SetId(3);
/// A file of it, with a name in `FAR`.
const FAR_STUB: Fid = Fid { set: THIRD, epoch: Epoch(2), lsn: Lsn(70) };

fn elsewhere(fid: Fid, home: SetId, kind: u32) -> Result<Body, Fail> {
    Ok(Body::Elsewhere { fid, home, kind })
}

fn agreed_by(fid: Fid, home: SetId) -> Result<Body, Fail> {
    let Ok(Body::Attr { attr }) = agreed(fid) else { panic!("it is an attribute") };
    Ok(Body::Attr { attr: Attr { home, ..attr } })
}

/// What lives neither there nor here: its home is marked first, the stub after it, and both hear of the end.
#[test]
fn a_file_of_a_third_set_moves_in_with_its_entry() {
    let begun = || {
        let mut rig = rig();
        assert_eq!(rig.ask(7, move_in("new")), ["ask 1: preparefile of 2 as 2"]);
        assert_eq!(answer(&mut rig, 1, errno(Errno::EXDEV)), ["ask 2: lookup of 2"]);
        rig
    };
    let home_knows = || {
        let mut rig = begun();
        let said = answer(&mut rig, 2, elsewhere(FAR_STUB, THIRD, 0o100_000));
        assert_eq!(said, ["ask 3: checkmark of 3"]);
        assert_eq!(answer(&mut rig, 3, errno(Errno::ENOENT)), ["ask 4: preparefile of 3 as 3"]);
        rig
    };
    let home_agreed = || {
        let mut rig = home_knows();
        assert_eq!(answer(&mut rig, 4, agreed_by(FAR_STUB, THIRD)), ["ask 5: fsync of 3"]);
        assert_eq!(done(&mut rig, 5), ["ask 6: preparefile of 2 as 4"]);
        rig
    };
    let mut rig = home_agreed();
    assert_eq!(answer(&mut rig, 6, elsewhere(FAR_STUB, THIRD, 0o100_000)), ["ask 7: fsync of 2"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 7), ["ask 8: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
    assert_eq!(done(&mut rig, 8), ["ask 9: endfile of 2"]);
    assert_eq!(done(&mut rig, 9), ["ask 10: endfile of 3"]);
    assert_eq!(done(&mut rig, 10), ["reply 1: done for 250 ms"]);

    // Nothing, and what has changed meanwhile.
    for (found, said) in [(errno(Errno::ENOENT), "no such file or directory"), (agreed(FILE), "busy")] {
        let mut rig = begun();
        assert_eq!(answer(&mut rig, 2, found), [format!("reply 1: {said} for 250 ms")]);
    }
    // A home that does not know the question, as it is of an older version, or that cannot be asked now, is not marked.
    for (answered, said) in [(errno(Errno::EINVAL), "crosses sets"), (Err(Fail::Busy), "busy")] {
        let mut rig = begun();
        answer(&mut rig, 2, elsewhere(FAR_STUB, THIRD, 0o100_000));
        assert_eq!(answer(&mut rig, 3, answered), [format!("reply 1: {said} for 250 ms")]);
    }
    // The home does not know the name: it is another one by now, or it was when the home was asked, or only the stub is left.
    let missed = || {
        let mut rig = home_knows();
        assert_eq!(answer(&mut rig, 4, errno(Errno::ESTALE)), ["ask 5: lookup of 2"]);
        rig
    };
    let found = |fid| elsewhere(fid, THIRD, 0o100_000);
    assert_eq!(answer(&mut missed(), 5, found(STUB)), ["reply 1: busy for 250 ms"]);
    let missed_again = || {
        let mut rig = missed();
        assert_eq!(answer(&mut rig, 5, found(FAR_STUB)), ["ask 6: checkmark of 3"]);
        assert_eq!(answer(&mut rig, 6, errno(Errno::ENOENT)), ["ask 7: preparefile of 3 as 4"]);
        rig
    };
    assert_eq!(answer(&mut missed_again(), 7, agreed_by(FAR_STUB, THIRD)), ["ask 8: fsync of 3"]);
    let mut rig = missed_again();
    assert_eq!(answer(&mut rig, 7, errno(Errno::ESTALE)), ["ask 8: lookup of 2"]);
    assert_eq!(answer(&mut rig, 8, found(FAR_STUB)), ["reply 1: no such file or directory for 250 ms"]);
    // The stub does not agree; an older server does not know how.
    let mut rig = home_agreed();
    let given_up = answer(&mut rig, 6, Err(Fail::Busy));
    assert_eq!(given_up, ["ask 7: endfile of 3, given up", "reply 1: busy for 250 ms"]);
    let mut rig = home_agreed();
    assert_eq!(answer(&mut rig, 6, errno(Errno::ESTALE)), ["ask 7: lookup of 2"]);
    let given_up = answer(&mut rig, 7, elsewhere(FAR_STUB, THIRD, 0o100_000));
    assert_eq!(given_up, ["ask 8: endfile of 3, given up", "reply 1: crosses sets for 250 ms"]);
}

/// This set is the file's home: it is marked as by anybody, and its name in the folder of names becomes the entry.
#[test]
fn a_file_comes_home_with_its_entry() {
    let names = [((FAR.names(), name("old")), (OWN, HERE))].into();
    let mut rig = Rig::with(Memory { names, files: [OWN].into(), ..Memory::default() }, &[]);
    rig.ask(7, move_in("new"));
    answer(&mut rig, 1, errno(Errno::EXDEV));
    let outputs = rig.outputs(Input::Answered(2, elsewhere(OWN, HERE, 0o100_000)));
    let prepare = outputs.into_iter().find_map(|o| match o {
        set_core::Output::Ask { set: HERE, op, name: Some(name), .. } => Some((op, name)),
        _ => None,
    });
    let (op, id) = prepare.expect("the own set is asked");
    let said = rig.ask_as(id.session.0, id.seq, op);
    assert!(said[0].contains("attr 1.1.40"), "{said:?}");
    assert_eq!(answer(&mut rig, 3, agreed_by(OWN, HERE)), ["ask 4: fsync of 1"]);
    assert!(done(&mut rig, 4)[0].starts_with("ask 5: preparefile of 2"));
    assert_eq!(answer(&mut rig, 5, elsewhere(OWN, HERE, 0o100_000)), ["ask 6: fsync of 2"]);
    assert_eq!(done(&mut rig, 6), ["ask 7: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["PrepareFile", "Rename"]);
    assert_eq!(rig.core.brick_mut().names.get(&(ROOT, name("new"))), Some(&(OWN, HERE)));
    assert!(rig.core.brick_mut().marked.contains_key(&OWN), "until the other set has heard");
    assert_eq!(done(&mut rig, 7), ["ask 8: endfile of 2"]);
    assert_eq!(done(&mut rig, 8), ["ask 9: endfile of 1"]);
    assert_eq!(done(&mut rig, 9), ["reply 1: done for 250 ms"]);
}

/// A stub is marked if its file is, and nothing is begun about the name until that is known.
#[test]
fn a_stub_is_marked_when_its_home_confirms_that() {
    let drop = || Some(EntryName { dir: ROOT, name: name("stub") });
    let (coordinator, by) = (THERE, SessionId(7));
    let mark = || Op::PrepareFile { tx: tx(1), coordinator, fid: Some(STUB), drop: drop(), add: None, by };
    let mut rig = rig();
    assert_eq!(rig.ask_as(88, 1, mark()), ["ask 1: checkmark of 2"]);
    assert!(rig.ask(7, unlink("stub"))[0].contains("busy"), "it waits");
    assert!(rig.ask_as(88, 1, mark())[0].contains("busy"), "it is under way");
    assert_eq!(done(&mut rig, 1).len(), 1);
    assert_eq!(changes(&mut rig), ["PrepareFile"]);
    assert!(rig.core.brick_mut().marked.contains_key(&STUB));
    // The transaction is over, or nobody knows; or the set is led anew meanwhile.
    for said in [errno(Errno::ENOENT), Err(Fail::Busy), errno(Errno::EIO)] {
        let mut rig = self::rig();
        rig.ask_as(88, 1, mark());
        assert!(answer(&mut rig, 1, said)[0].contains("busy"));
        assert!(changes(&mut rig).is_empty());
    }
    let mut rig = self::rig();
    rig.ask_as(88, 1, mark());
    rig.lead(&[]);
    done(&mut rig, 1);
    assert!(changes(&mut rig).is_empty());
}

/// A home says whether a transaction holds the file.
#[test]
fn a_home_tells_whose_mark_it_is() {
    let mut rig = marked();
    let mut tell = |seq| rig.ask(9, Op::CheckMark { fid: OWN, tx: tx(seq) });
    assert_eq!(tell(1), ["reply 1: done"]);
    assert_eq!(tell(2), ["reply 2: no such file or directory"]);
}

/// A mark on a stub: nobody is told of the name, and the file's home is asked how it ended.
#[test]
fn a_marked_stub_asks_the_home() {
    let drop = Some(EntryName { dir: ROOT, name: name("stub") });
    let intent = Intent { tx: tx(1), coordinator: THERE, drop, add: None };
    for (there, ended) in [(true, "ask 5: endfile of 1, given up"), (false, "ask 5: endfile of 1")] {
        let brick = Memory { marked: [(STUB, intent.clone())].into(), unrecorded: vec![STUB], ..memory() };
        let mut rig = Rig::with(brick, &[]);
        for op in [
            Op::Lookup { parent: ROOT, name: name("stub") },
            Op::ReadDir { fid: ROOT, cookie: 0, plus: false },
            create("stub", Node::File),
        ] {
            let said = rig.ask(7, op);
            assert!(said[0].contains("busy"), "{said:?}");
        }
        // Whoever asks for the entry learns nothing: a later transaction may have made it.
        assert_eq!(rig.ask(9, check("stub", STUB)), ["reply 4: busy"]);
        assert_eq!(asked(&mut rig), ["ask 1: checkmark of 2"]);
        assert_eq!(done(&mut rig, 1), NONE, "it is under way");
        assert_eq!(asked(&mut rig), ["ask 2: checkmark of 2"]);
        assert_eq!(answer(&mut rig, 2, errno(Errno::ENOENT)), ["ask 3: fsync of 2"]);
        assert_eq!(done(&mut rig, 3), ["ask 4: checkoutcome of 2"]);
        let said = if there { Ok(Body::Done) } else { errno(Errno::ENOENT) };
        assert_eq!(answer(&mut rig, 4, said), [ended]);
    }
}

/// It may be gone after a power cut: nothing has counted yet.
#[test]
fn a_mark_that_is_not_on_disk_counts_for_nothing() {
    for (failure, said) in [(errno(Errno::EIO), "input/output error"), (errno(Errno::ESTALE), "busy")] {
        let mut rig = rig();
        rig.ask(7, move_in("new"));
        answer(&mut rig, 1, agreed(FILE));
        let reply = answer(&mut rig, 2, failure);
        assert_eq!(reply[0], "ask 3: endfile of 2, given up");
        assert!(reply[1].to_lowercase().contains(said), "{reply:?}");
        assert!(changes(&mut rig).is_empty());
    }
}

#[test]
fn a_name_that_is_taken_meanwhile_is_looked_at_again() {
    let mut rig = rig();
    let flags = wire::op::rename_flags::NOREPLACE;
    let (parent, to_parent) = (FAR, ROOT);
    rig.ask(7, Op::MoveIn { from: THERE, parent, name: name("old"), to_parent, to_name: name("new"), flags });
    rig.mkfile(7, "new");
    answer(&mut rig, 1, agreed(FILE));
    assert_eq!(done(&mut rig, 2), ["ask 3: endfile of 2, given up", "reply 1: file exists for 250 ms"]);
}

/// Both names of a file: the home, which marks no file for a name that it has, cannot know that the name goes meanwhile.
#[test]
fn a_name_that_the_file_loses_meanwhile_is_asked_about_again() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, move_in("stub")), ["ask 1: preparefile of 2 as 2"]);
    assert_eq!(answer(&mut rig, 1, agreed(STUB)), ["ask 2: fsync of 2"]);
    let (from, to) = ((ROOT, name("stub")), (ROOT, name("moved")));
    let rename = Op::Rename { parent: from.0, name: from.1, to_parent: to.0, to_name: to.1, flags: 0 };
    assert_eq!(rig.ask(7, rename), ["ask 3: preparefile of 2 as 4"]);
    assert_eq!(answer(&mut rig, 3, agreed(STUB)), ["ask 4: fsync of 2"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: fsync of 1"]);
    assert_eq!(done(&mut rig, 2), ["ask 6: endfile of 2, given up", "reply 1: busy for 250 ms"]);
    assert_eq!(changes(&mut rig), ["Rename"]);
    // Where it has the name still there is nothing to do.
    let mut rig = self::rig();
    rig.ask(7, move_in("stub"));
    answer(&mut rig, 1, agreed(STUB));
    assert_eq!(done(&mut rig, 2)[1..], ["reply 1: done for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
}

/// The coordinator's primary is another one, or one anew, at each point.
#[test]
fn a_new_view_before_the_entry_gives_it_up() {
    let mut before = rig();
    before.ask(7, move_in("new"));
    before.lead(&[]);
    // The transaction is unknown: its mark goes, once it is on disk or not.
    let given_up = |out: &[String]| out.iter().any(|l| l.ends_with("endfile of 2, given up"));
    let mut said = answer(&mut before, 1, agreed(FILE));
    if !given_up(&said) {
        said = done(&mut before, 2);
    }
    assert!(given_up(&said) && said.iter().any(|l| l.starts_with("reply 1: busy")), "{said:?}");
    assert!(changes(&mut before).is_empty());

    let mut marked = rig();
    marked.ask(7, move_in("new"));
    answer(&mut marked, 1, agreed(FILE));
    marked.lead(&[]);
    let said = done(&mut marked, 2);
    assert!(given_up(&said) && said.iter().any(|l| l.starts_with("reply 1: busy")), "{said:?}");
    assert!(changes(&mut marked).is_empty());
    assert_eq!(marked.ask(9, check("new", FILE)), ["reply 2: no such file or directory"]);

    // Another brick leads: this one neither commits nor answers as if it did.
    let mut deposed = rig();
    deposed.ask(7, move_in("new"));
    answer(&mut deposed, 1, agreed(FILE));
    deposed.follow(2);
    let said = done(&mut deposed, 2);
    assert!(!said.iter().any(|l| l.contains("done")), "{said:?}");
    assert!(changes(&mut deposed).is_empty());
}

#[test]
fn a_new_view_after_the_entry_leaves_the_end_to_the_home() {
    let mut rig = Rig::with(memory(), &[2]);
    rig.ask(7, move_in("new"));
    answer(&mut rig, 1, agreed(FILE));
    assert_eq!(done(&mut rig, 2), ["send 2: replicate"]);
    let said = rig.lead(&[]);
    assert!(!said.iter().any(|l| l.contains("endfile") || l.contains("done")), "{said:?}");
    assert_eq!(changes(&mut rig), ["Enter"]);
    // Whoever asks learns that it has committed: the client, and the home.
    let again = rig.ask_as(7, 1, move_in("new"));
    let sync = again.iter().find_map(|l| l.strip_prefix("ask ")?.strip_suffix(": fsync of 1")?.parse().ok());
    assert_eq!(done(&mut rig, sync.expect("it goes to disk first")), ["reply 1: done"]);
    assert_eq!(rig.ask(9, check("new", FILE)), ["reply 2: done"]);
    assert_eq!(changes(&mut rig), ["Enter"]);
}

#[test]
fn an_entry_that_is_not_on_disk_is_told_to_nobody() {
    let mut rig = rig();
    rig.ask(7, move_in("new"));
    answer(&mut rig, 1, agreed(FILE));
    done(&mut rig, 2);
    let failed = answer(&mut rig, 3, errno(Errno::EIO));
    assert!(failed.len() == 1 && failed[0].starts_with("reply 1: "), "{failed:?}");
    assert!(!failed[0].contains("done"), "{failed:?}");
    // Nor when the client asks again.
    assert_eq!(rig.ask_as(7, 1, move_in("new")), ["ask 4: fsync of 1"]);
    let failed = answer(&mut rig, 4, errno(Errno::EIO));
    assert!(failed.len() == 1 && !failed[0].contains("done"), "{failed:?}");
    assert_eq!(rig.ask_as(7, 1, move_in("new")), ["ask 5: fsync of 1"]);
    assert_eq!(done(&mut rig, 5), ["reply 1: done"]);
}

/// A home that asks may wait for the very transaction that waits for it: asked twice, it gives way.
#[test]
fn who_asks_for_the_entry_twice_ends_what_is_under_way() {
    let mut rig = rig();
    rig.ask(7, move_in("new"));
    assert_eq!(rig.ask(9, check("new", FILE)), ["reply 2: busy"]);
    assert_eq!(rig.ask(9, check("new", FILE)), ["reply 3: no such file or directory"]);
    answer(&mut rig, 1, agreed(FILE));
    let said = done(&mut rig, 2);
    assert_eq!(said, ["ask 3: endfile of 2, given up", "reply 1: busy for 250 ms"], "it was answered for");
    assert!(changes(&mut rig).is_empty());
}

/// The disk of a set to which many files move runs full: one of them is tried each second, another one each time, and no other
/// disk has to sync for the rest. When there is room again all get their names.
#[test]
fn files_that_wait_for_room_are_tried_one_at_a_time() {
    let own: Vec<Fid> = (0..3).map(|n| Fid { lsn: Lsn(40 + n), ..OWN }).collect();
    let mark = |n: u64| Some(EntryName { dir: FAR, name: name(&format!("n{n}")) });
    let intent = |n: u64| Intent { tx: tx(n), coordinator: THERE, drop: None, add: mark(n) };
    let marked = own.iter().zip(0..).map(|(fid, n)| (*fid, intent(n))).collect();
    let brick = Memory { marked, files: own.iter().copied().collect(), unrecorded: own.clone(), ..memory() };
    let mut rig = Rig::with(brick, &[]);
    for fid in &own {
        rig.ask(7, Op::GetAttr { fid: *fid });
    }
    let mut asks = 0;
    // Asks how it ended, and is answered that the file is to have its name; how many files that is about.
    let mut tried = |rig: &mut Rig, end: Result<Body, Fail>| {
        let first = asked(rig);
        let count = first.len() as u64;
        for n in 0..3 * count {
            let said = done(rig, asks + 1 + n);
            assert_eq!(said.len(), 1, "{said:?}");
        }
        for n in 3 * count..4 * count {
            answer(rig, asks + 1 + n, end.clone());
        }
        asks += 4 * count;
        count
    };
    let full = || errno(Errno::ENOSPC);
    assert_eq!(tried(&mut rig, full()), 3, "nobody knows that yet");
    assert_eq!([(); 4].map(|()| tried(&mut rig, full())), [1; 4]);
    // There is room, and one has its name.
    let end = |n: u64| Op::EndFile { fid: own[n as usize], tx: tx(n), commit: true, by: SessionId(0) };
    rig.ask(99, end(1));
    assert_eq!(tried(&mut rig, full()), 2);
}

fn prepare(seq: u64) -> Op {
    let place = |dir, s| Some(EntryName { dir, name: name(s) });
    let (drop, add, by) = (place(ROOT, "own"), place(FAR, "new"), SessionId(7));
    Op::PrepareFile { tx: tx(seq), coordinator: THERE, fid: None, drop, add, by }
}

fn end(seq: u64, commit: bool) -> Op {
    Op::EndFile { fid: OWN, tx: tx(seq), commit, by: SessionId(7) }
}

fn marked() -> Rig {
    let mut rig = rig();
    assert_eq!(rig.ask_as(88, 1, prepare(1)), ["reply 1: attr 1.1.40"]);
    rig
}

#[test]
fn a_home_marks_a_file_once() {
    let mut rig = marked();
    assert_eq!(rig.ask_as(88, 1, prepare(1)), ["reply 1: attr 1.1.40"], "the same message again");
    assert_eq!(rig.ask_as(88, 2, prepare(2)), ["reply 2: busy"], "another transaction");
    assert_eq!(changes(&mut rig), ["PrepareFile"]);
    let looks: [Op; 8] = [
        Op::Lookup { parent: ROOT, name: name("own") },
        Op::GetAttr { fid: OWN },
        Op::SetAttr { fid: OWN, set: set_mode() },
        unlink("own"),
        Op::Link { fid: OWN, parent: ROOT, name: name("l") },
        create("own", Node::File),
        Op::ReadDir { fid: ROOT, cookie: 0, plus: false },
        Op::Rename { parent: ROOT, name: name("own"), to_parent: ROOT, to_name: name("x"), flags: 0 },
    ];
    for op in looks {
        let shown = format!("{op:?}");
        let said = rig.ask(7, op);
        assert!(said.len() == 1 && said[0].contains("busy"), "{shown}: {said:?}");
    }
    // Who has it open does not notice.
    let write = Op::Write { fid: OWN, offset: 0, append: false, kill_suid: false };
    assert!(rig.ask(7, write)[0].contains("written"));
    assert_eq!(changes(&mut rig), ["PrepareFile", "Write"]);
}

fn set_mode() -> SetAttr {
    let (uid, gid, size, atime, mtime) = (None, None, None, None, None);
    SetAttr { mode: Some(0o600), uid, gid, size, atime, mtime, kill_suid: false }
}

#[test]
fn the_end_of_a_transaction_ends_its_mark_only() {
    for commit in [true, false] {
        let mut rig = marked();
        assert_eq!(rig.ask_as(88, 2, end(9, commit)), ["reply 2: done"], "an older one's, late");
        assert_eq!(rig.ask_as(88, 3, end(9, !commit)), ["reply 3: done"]);
        assert_eq!(changes(&mut rig), ["PrepareFile"]);
        assert_eq!(rig.ask_as(88, 4, end(1, commit)), ["reply 4: done"]);
        assert_eq!(changes(&mut rig), ["PrepareFile", "EndFile"]);
        let names = rig.core.brick_mut().names.clone();
        assert_eq!(names.contains_key(&(ROOT, name("own"))), !commit);
        assert_eq!(names.get(&(FAR.names(), name("new"))), commit.then_some(&(OWN, HERE)));
        // Again, and the other way: it is over.
        assert_eq!(rig.ask_as(88, 5, end(1, commit)), ["reply 5: done"]);
        assert_eq!(rig.ask_as(88, 6, end(1, !commit)), ["reply 6: done"]);
        // Nor does the transaction's own late message mark it again.
        rig.ask_as(88, 1, prepare(1));
        assert_eq!(changes(&mut rig), ["PrepareFile", "EndFile"]);
        let found = rig.ask(7, Op::GetAttr { fid: OWN });
        assert_eq!(found, ["reply 1: attr 1.1.40 for 250 ms"]);
    }
}

#[test]
fn a_home_that_hears_nothing_asks_for_the_entry() {
    let gone = || errno(Errno::ENOENT);
    // first answer, second answer, what it does
    for (first, second, end) in [
        (Ok(Body::Done), Ok(Body::Done), "ask 4: endfile of 1"),
        (gone(), gone(), "ask 4: endfile of 1, given up"),
        // A power cut of the coordinator took the entry meanwhile, or brought it to light.
        (Ok(Body::Done), gone(), "ask 4: endfile of 1, given up"),
        (gone(), Ok(Body::Done), "ask 4: endfile of 1"),
    ] {
        let mut rig = marked();
        assert_eq!(
            rig.step(Input::Maintenance).iter().filter(|l| l.starts_with("ask")).count(),
            0,
            "it is young"
        );
        assert_eq!(asked(&mut rig), ["ask 1: checkoutcome of 2"]);
        assert_eq!(asked(&mut rig), NONE, "one question at a time");
        assert_eq!(answer(&mut rig, 1, first), ["ask 2: fsync of 2"]);
        assert_eq!(done(&mut rig, 2), ["ask 3: checkoutcome of 2"]);
        assert_eq!(answer(&mut rig, 3, second), [end]);
        assert_eq!(changes(&mut rig), ["PrepareFile"]);
    }
}

#[test]
fn an_unclear_answer_ends_no_transaction() {
    for unclear in [Err(Fail::Busy), errno(Errno::EIO), Err(Fail::BelowQuorum)] {
        for step in 1..=3 {
            let mut rig = marked();
            assert_eq!(asked(&mut rig), ["ask 1: checkoutcome of 2"]);
            for id in 1..step {
                done(&mut rig, id);
            }
            assert_eq!(answer(&mut rig, step, unclear.clone()), NONE);
            let again = asked(&mut rig);
            assert_eq!(again, [format!("ask {}: checkoutcome of 2", step + 1)], "from the beginning");
        }
    }
}

/// A primary whose journal no longer has the record of a mark finds the mark with the file.
#[test]
fn a_mark_without_a_record_is_found_with_the_file() {
    let place = |dir, s| Some(EntryName { dir, name: name(s) });
    let (drop, add) = (place(ROOT, "own"), place(FAR.names(), "new"));
    let intent = Intent { tx: tx(1), coordinator: THERE, drop, add };
    let mut rig = Rig::with(Memory { marked: [(OWN, intent)].into(), ..memory() }, &[]);
    assert_eq!(asked(&mut rig), NONE, "nobody has met it");
    let looked = rig.ask(7, Op::GetAttr { fid: OWN });
    assert!(looked[0].contains("busy"), "{looked:?}");
    assert_eq!(asked(&mut rig), ["ask 1: checkoutcome of 2"]);
    done(&mut rig, 1);
    done(&mut rig, 2);
    assert_eq!(done(&mut rig, 3), ["ask 4: endfile of 1"]);
    // As it reaches this set.
    assert_eq!(rig.ask_as(99, 1, end(1, true)), ["reply 1: done"]);
    assert_eq!(changes(&mut rig), ["EndFile"]);
    done(&mut rig, 4);
    assert_eq!(asked(&mut rig), ["ask 5: pathof of 2"], "where the new name is to lie");
}

/// The name that it gets in a directory of the other set.
fn away() -> Option<EntryName> {
    Some(EntryName { dir: FAR.names(), name: name("away") })
}

/// Its end is in the journal; a power cut has brought the mark back, and nobody may ever meet the file again.
#[test]
fn a_mark_that_ended_in_an_earlier_process_is_looked_for() {
    let drop = Some(EntryName { dir: ROOT, name: name("own") });
    let intent = Intent { tx: tx(1), coordinator: THERE, drop: drop.clone(), add: away() };
    for back in [true, false] {
        let end =
            Change::EndFile { fid: OWN, drop: drop.clone(), add: None, orphan: false, time: Time::default() };
        let mut pending = Pending::default();
        pending.note_earlier(Duration::ZERO, tx(2), &end, true);
        let marked = if back { [(OWN, intent.clone())].into() } else { [].into() };
        let mut rig = Rig::with_pending(Memory { marked, ..memory() }, pending, &[]);
        let first = asked(&mut rig);
        assert_eq!(first, if back { vec!["ask 1: checkoutcome of 2"] } else { vec![] });
    }
}

/// Its record is in no journal: the brick met the file when it was opened, or as it healed.
#[test]
fn a_mark_that_the_brick_has_met_is_looked_for() {
    let drop = Some(EntryName { dir: ROOT, name: name("own") });
    let intent = Intent { tx: tx(1), coordinator: THERE, drop, add: away() };
    let brick = Memory { marked: [(OWN, intent)].into(), unrecorded: vec![OWN], ..memory() };
    let mut rig = Rig::with(brick, &[]);
    assert_eq!(asked(&mut rig), ["ask 1: checkoutcome of 2"]);
}

/// A listing before the first question would show the name that is about to go.
#[test]
fn a_new_primary_knows_its_marks_before_it_is_asked() {
    let drop = Some(EntryName { dir: ROOT, name: name("own") });
    let intent = Intent { tx: tx(1), coordinator: THERE, drop, add: away() };
    let brick = Memory { marked: [(OWN, intent)].into(), unrecorded: vec![OWN], ..memory() };
    let mut rig = Rig::with(brick, &[]);
    let listing = rig.ask(7, Op::ReadDir { fid: ROOT, cookie: 0, plus: false });
    assert!(listing.iter().all(|l| l.contains("busy")), "{listing:?}");
    assert!(!listing.is_empty());
}

/// One of two that are asked about ends by itself: the other is not forgotten.
#[test]
fn one_that_ends_by_itself_leaves_the_others_asking() {
    let drop = Some(EntryName { dir: ROOT, name: name("own") });
    let intent = Intent { tx: tx(1), coordinator: THERE, drop, add: away() };
    let nothing = Intent { tx: tx(2), coordinator: THERE, drop: None, add: None };
    let other = Fid { lsn: Lsn(OWN.lsn.0 + 40), ..OWN };
    for (first, second) in [(OWN, other), (other, OWN)] {
        let marked = [(first, nothing.clone()), (second, intent.clone())].into();
        let files = [OWN, STUB, other].into();
        let brick = Memory { marked, files, unrecorded: vec![first, second], ..memory() };
        let mut rig = Rig::with(brick, &[]);
        let all = [asked(&mut rig), asked(&mut rig)].concat();
        assert_eq!(all, ["ask 1: checkoutcome of 2"], "{first} and {second}");
        assert!(!rig.core.brick_mut().marked.contains_key(&first), "its mark is gone");
    }
}

/// The journal told that the file got the name again that it was to lose: nothing is left of the transaction.
#[test]
fn a_transaction_of_which_nothing_is_left_ends_by_itself() {
    let intent = Intent { tx: tx(1), coordinator: THERE, drop: None, add: None };
    let brick = Memory { marked: [(OWN, intent)].into(), unrecorded: vec![OWN], ..memory() };
    let mut rig = Rig::with(brick, &[]);
    assert_eq!(asked(&mut rig), NONE, "nobody is asked");
    assert!(rig.core.brick_mut().marked.is_empty(), "the mark is gone");
}

/// Its end cannot be written for a while: it is ended as soon as it can.
#[test]
fn what_ends_by_itself_ends_when_its_disk_takes_changes_again() {
    let intent = Intent { tx: tx(1), coordinator: THERE, drop: None, add: None };
    let brick = Memory { marked: [(OWN, intent)].into(), unrecorded: vec![OWN], ..memory() };
    let mut rig = Rig::with(Memory { fails: Some((Errno::ENOSPC, false)), ..brick }, &[]);
    assert_eq!(asked(&mut rig), NONE);
    assert!(rig.core.brick_mut().marked.contains_key(&OWN), "its end could not be written");
    rig.core.brick_mut().fails = None;
    assert_eq!(asked(&mut rig), NONE);
    assert!(rig.core.brick_mut().marked.is_empty(), "the mark is gone");
}

/// A brick that does not lead asks nobody; when it leads it does.
#[test]
fn the_next_primary_asks() {
    let mut rig = marked();
    rig.second(2);
    assert_eq!(asked(&mut rig), NONE);
    rig.lead(&[]);
    assert_eq!(asked(&mut rig), ["ask 1: checkoutcome of 2"]);
}

/// Another file of the other set with a name here, `second`.
const SECOND: Fid = there(52);

fn two_stubs() -> Rig {
    let mut memory = memory();
    memory.names.insert((ROOT, name("second")), (SECOND, THERE));
    memory.files.insert(SECOND);
    Rig::with(memory, &[])
}

fn exchange(from: &str, to: &str) -> Op {
    Op::Rename { parent: ROOT, name: name(from), to_parent: ROOT, to_name: name(to), flags: 2 }
}

fn ends(rig: &mut Rig, id: u64) -> Option<(Fid, bool)> {
    rig.outputs(Input::Answered(id, Ok(Body::Done))).into_iter().find_map(|o| match o {
        set_core::Output::Ask { op: Op::EndFile { fid, commit, .. }, .. } => Some((fid, commit)),
        _ => None,
    })
}

/// Both homes agree, here one and the same: it hears of one of the two a second time, as its first end has the names change
/// places.
#[test]
fn two_files_elsewhere_change_places_with_their_entries() {
    let mut rig = two_stubs();
    assert_eq!(rig.ask(7, exchange("stub", "second")), ["ask 1: preparefile of 2 as 3"]);
    assert_eq!(answer(&mut rig, 1, agreed(STUB)), ["ask 2: fsync of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: preparefile of 2 as 4"]);
    assert_eq!(answer(&mut rig, 3, agreed(SECOND)), ["ask 4: fsync of 2"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(done(&mut rig, 4), ["ask 5: fsync of 1"]);
    assert_eq!(changes(&mut rig), ["Exchange"]);
    assert_eq!(ends(&mut rig, 5), Some((SECOND, true)));
    assert_eq!(ends(&mut rig, 6), Some((STUB, true)));
    assert_eq!(ends(&mut rig, 7), Some((SECOND, true)));
    assert_eq!(done(&mut rig, 8), ["reply 1: done for 250 ms"]);
    for (at, fid) in [("stub", SECOND), ("second", STUB)] {
        assert_eq!(rig.ask(9, check(at, fid)).last().unwrap().split(": ").nth(1), Some("done"));
    }
    assert_eq!(rig.ask_as(7, 1, exchange("stub", "second")), ["ask 9: fsync of 1"], "it is not done twice");
    // The second one does not agree.
    let mut rig = two_stubs();
    rig.ask(7, exchange("stub", "second"));
    answer(&mut rig, 1, agreed(STUB));
    done(&mut rig, 2);
    let refused = answer(&mut rig, 3, Err(Fail::Busy));
    assert_eq!(refused, ["ask 4: endfile of 2, given up", "reply 1: busy for 250 ms"]);
    assert_eq!(
        rig.ask(7, exchange("stub", "second")),
        ["ask 5: preparefile of 2 as 7"],
        "both names are free"
    );
}

/// A home of before would wait for ever until one of the two names is free.
#[test]
fn two_files_of_one_home_stay_while_a_server_may_be_older() {
    let mut rig = two_stubs();
    let settings = rig.settings(common::ME, [common::ME].into());
    rig.step(Input::Settings(set_core::Settings { level: 0, ..settings }));
    let said = rig.ask(7, exchange("stub", "second"));
    assert!(said.len() == 1 && said[0].contains("crosses sets"), "{said:?}");
    assert_eq!(rig.ask(7, exchange("own", "stub")).len(), 1, "one of them alone does not wait");
    assert!(rig.ask(7, exchange("own", "second"))[0].contains("busy"), "a name of it is held");
}

/// Each of the two entries decides for the file that goes there: no home is told what is not certain yet.
#[test]
fn both_names_of_an_exchange_are_held() {
    for (asked, fid) in [("stub", SECOND), ("second", STUB)] {
        let mut rig = two_stubs();
        rig.ask(7, exchange("stub", "second"));
        answer(&mut rig, 1, agreed(STUB));
        done(&mut rig, 2);
        assert_eq!(rig.ask(9, check(asked, fid)), ["reply 2: busy"]);
        assert_eq!(rig.ask(9, check(asked, fid)), ["reply 3: no such file or directory"]);
        answer(&mut rig, 3, agreed(SECOND));
        let said = done(&mut rig, 4);
        assert_eq!(said.iter().filter(|l| l.ends_with("endfile of 2, given up")).count(), 2, "{said:?}");
        assert!(changes(&mut rig).is_empty(), "it was answered for");
        assert_eq!(rig.ask(7, unlink(asked)).len(), 1, "the names are free");
    }
    // One of them is another transaction's.
    for taken in ["stub", "second"] {
        let mut rig = two_stubs();
        assert_eq!(rig.ask(7, unlink(taken)), ["ask 1: preparefile of 2 as 2"]);
        assert_eq!(rig.ask(7, exchange("stub", "second")), ["reply 2: busy for 250 ms"]);
        let other = if taken == "stub" { "second" } else { "stub" };
        assert!(rig.ask(7, unlink(other))[0].starts_with("ask 2: "), "nothing is held for it");
    }
}

#[test]
fn an_own_file_changes_places_with_one_that_lives_elsewhere() {
    for (from, to) in [("own", "stub"), ("stub", "own")] {
        let mut rig = rig();
        assert_eq!(rig.ask(7, exchange(from, to)), ["ask 1: preparefile of 2 as 3"]);
        assert_eq!(answer(&mut rig, 1, agreed(STUB)), ["ask 2: fsync of 2"]);
        assert_eq!(done(&mut rig, 2), ["ask 3: fsync of 1"]);
        assert_eq!(changes(&mut rig), ["Exchange"]);
        assert_eq!(ends(&mut rig, 3), Some((STUB, true)));
        assert_eq!(done(&mut rig, 4), ["reply 1: done for 250 ms"]);
    }
}

/// The home of both: neither name is free before the other, so they change places first, while both are marked.
#[test]
fn a_home_has_two_names_change_places() {
    let second = Fid { lsn: Lsn(OWN.lsn.0 + 1), ..OWN };
    let far = |s| EntryName { dir: FAR, name: name(s) };
    let kept = |s| (FAR.names(), name(s));
    let prepare = |fid, seq, drop, add| {
        let (drop, add, by) = (Some(far(drop)), Some(far(add)), SessionId(7));
        Op::PrepareFile { tx: tx(seq), coordinator: THERE, fid: Some(fid), drop, add, by }
    };
    let end = |fid, seq, commit| Op::EndFile { fid, tx: tx(seq), commit, by: SessionId(7) };
    let marked = || {
        let names = [(kept("x"), (OWN, HERE)), (kept("y"), (second, HERE))].into();
        let mut rig = Rig::with(Memory { names, files: [OWN, second].into(), ..Memory::default() }, &[]);
        rig.ask_as(88, 1, prepare(OWN, 1, "x", "y"));
        rig.ask_as(88, 2, prepare(second, 1, "y", "x"));
        assert_eq!(changes(&mut rig), ["PrepareFile", "PrepareFile"]);
        rig
    };
    for (first, other) in [(OWN, second), (second, OWN)] {
        let mut rig = marked();
        assert_eq!(rig.ask_as(88, 3, end(first, 1, true)), ["reply 3: done"]);
        assert_eq!(changes(&mut rig)[2..], ["Exchange"]);
        assert_eq!(rig.core.brick_mut().marked.len(), 2, "nobody sees it before both have heard");
        rig.ask_as(88, 4, end(other, 1, true));
        rig.ask_as(88, 5, end(first, 1, true));
        assert_eq!(changes(&mut rig)[2..], ["Exchange", "EndFile", "EndFile"]);
        let brick = rig.core.brick_mut();
        assert!(brick.marked.is_empty());
        assert_eq!(brick.names, [(kept("x"), (second, HERE)), (kept("y"), (OWN, HERE))].into());
    }
    // It was given up.
    let mut rig = marked();
    rig.ask_as(88, 3, end(second, 1, false));
    rig.ask_as(88, 4, end(OWN, 1, false));
    assert_eq!(changes(&mut rig)[2..], ["EndFile", "EndFile"]);
    assert_eq!(rig.core.brick_mut().names[&kept("x")], (OWN, HERE));
    // What has the name belongs to another transaction: it has to go first.
    let names = [(kept("x"), (OWN, HERE)), (kept("y"), (second, HERE))].into();
    let mut rig = Rig::with(Memory { names, files: [OWN, second].into(), ..Memory::default() }, &[]);
    rig.ask_as(88, 1, prepare(OWN, 1, "x", "y"));
    rig.ask_as(88, 2, prepare(second, 2, "y", "x"));
    assert_eq!(rig.ask_as(88, 3, end(OWN, 1, true)), ["reply 3: busy"]);
    assert_eq!(changes(&mut rig), ["PrepareFile", "PrepareFile"]);
}

/// A directory goes beneath one of another set, and a file of a third comes back for it: the lock is taken when the file is marked
/// on disk, however slow that is, and held until the exchange is decided.
#[test]
fn a_directory_changes_places_with_a_file_elsewhere_under_the_lock() {
    let own = |n| Fid { lsn: Lsn(n), ..OWN };
    let (dir, below) = (own(44), own(45));
    let lineage = || Ok(Body::Lineage { own: vec![below], other: None });
    let begun = || {
        let mut memory = memory();
        memory.names.insert((ROOT, name("dir")), (dir, HERE));
        memory.names.insert((below, name("file")), (STUB, THERE));
        memory.hangs.insert(below, THERE);
        let mut rig = Rig::with(memory, &[]);
        rig.step(Input::Maintenance);
        rig.now += Duration::from_secs(10);
        let to_name = name("file");
        let op = Op::Rename { parent: ROOT, name: name("dir"), to_parent: below, to_name, flags: 2 };
        assert_eq!(rig.ask(7, op), ["ask 1: locktree of 1"]);
        assert_eq!(done(&mut rig, 1), ["ask 2: lineage of 2"]);
        assert_eq!(
            answer(&mut rig, 2, lineage()),
            ["ask 3: unlocktree of 1", "ask 4: preparefile of 2 as 4"]
        );
        assert_eq!(answer(&mut rig, 4, agreed(STUB)), ["ask 5: fsync of 2"]);
        // The disk is slow: what lies above it may be another one by now.
        rig.now += Duration::from_secs(4);
        assert_eq!(done(&mut rig, 5), ["ask 6: locktree of 1"]);
        assert_eq!(done(&mut rig, 6), ["ask 7: lineage of 2"]);
        rig
    };
    let mut rig = begun();
    assert_eq!(answer(&mut rig, 7, lineage()), ["ask 8: unlocktree of 1", "ask 9: syncfs of 1"]);
    assert_eq!(changes(&mut rig), ["Exchange"]);
    assert_eq!(ends(&mut rig, 9), Some((STUB, true)));
    assert_eq!(done(&mut rig, 10), ["reply 1: done for 250 ms"]);
    // The lock is not used for longer than it lasts.
    let mut rig = begun();
    rig.now += Duration::from_secs(4);
    let late = answer(&mut rig, 7, lineage());
    assert_eq!(late, ["ask 8: unlocktree of 1", "ask 9: endfile of 2, given up", "reply 1: busy for 250 ms"]);
    assert!(changes(&mut rig).is_empty());
}
