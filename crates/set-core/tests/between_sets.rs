//! Directories on other sets, told as scripts. Set 2 has all the room.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, dir};
use crate::common::{Rig, answer, create, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use namespace::placement::SetRoom;
use std::time::Duration;
use wire::op::Node;
use wire::{Attr, Body, Errno, Fail, Op};

const NONE: [&str; 0] = [];
const THERE: Fid = Fid { set: SetId(2), epoch: Epoch(5), lsn: Lsn(50) };

fn rig() -> Rig {
    let rig = Rig::primary(&[]);
    let room = |set, writable| SetRoom { writable, ..SetRoom::new(set, 1 << 40, 1 << 41) };
    let rooms = [(SetId(1), room(SetId(1), false)), (SetId(2), room(SetId(2), true))];
    rig.world.rooms.borrow_mut().extend(rooms);
    rig
}

fn attr() -> Body {
    Body::Attr { attr: Attr { home: SetId(2), ..dir(THERE) } }
}

#[test]
fn mkdir_elsewhere_counts_with_its_entry() {
    let mut rig = rig();
    assert_eq!(rig.ask(7, create("d", Node::Dir)), ["promised 2", "ask 1: preparemkdir of 2 as 1"]);
    assert_eq!(rig.ask_as(7, 1, create("d", Node::Dir)), ["reply 1: busy for 250 ms"], "it is under way");
    let check = Op::CheckEntry { parent: ROOT, name: name("d"), fid: THERE };
    assert_eq!(rig.ask(9, check.clone()), ["reply 2: busy"], "nobody may end it meanwhile");
    let made = answer(&mut rig, 1, Ok(attr()));
    assert_eq!(made, ["reply 1: attr 2.5.50 for 250 ms", "ask 2: endtransaction of 2"]);
    assert_eq!(answer(&mut rig, 2, Ok(Body::Done)), NONE);
    assert_eq!(rig.ask(9, check), ["reply 3: done"]);
}

#[test]
fn mkdir_elsewhere_that_spans_a_change_of_view_ends_as_the_entry_says() {
    let mut rig = rig();
    rig.ask(7, create("d", Node::Dir));
    rig.lead(&[]);
    assert_eq!(
        answer(&mut rig, 1, Ok(attr())),
        ["ask 2: checkentry of 1", "reply 1: busy for 250 ms"],
        "a later epoch owes the transaction nothing"
    );
    let gone = Err(Fail::Errno { errno: Errno::ENOENT.0 });
    assert_eq!(answer(&mut rig, 2, gone), ["ask 3: endtransaction of 2, gone"]);
    assert!(rig.core.brick_mut().journal.is_empty());
}

/// The question was sent again, and somebody had ended the transaction meanwhile.
#[test]
fn mkdir_elsewhere_whose_directory_is_gone_is_tried_again() {
    let mut rig = rig();
    rig.ask(7, create("d", Node::Dir));
    let gone = Err(Fail::Errno { errno: Errno::ESTALE.0 });
    assert_eq!(answer(&mut rig, 1, gone), ["reply 1: busy for 250 ms"]);
    assert!(rig.core.brick_mut().journal.is_empty());
}

#[test]
fn mkdir_elsewhere_that_the_other_set_has_no_room_for_is_made_with_its_parent() {
    for errno in [Errno::ENOSPC, Errno::EROFS, Errno::EDQUOT] {
        let mut rig = rig();
        rig.ask(7, create("d", Node::Dir));
        let made = answer(&mut rig, 1, Err(Fail::Errno { errno: errno.0 }));
        assert!(made[0].starts_with("reply 1: attr 1."), "{errno}: {made:?}");
        assert_eq!(rig.core.brick_mut().journal.len(), 1);
    }
}

#[test]
fn a_directory_with_many_subdirectories_spreads_them() {
    let mut rig = rig();
    let room = |set, available| SetRoom::new(set, available, 1 << 60);
    rig.world.rooms.borrow_mut().insert(SetId(1), room(SetId(1), 1 << 30));
    let full = SetRoom { writable: false, ..room(SetId(2), 0) };
    rig.world.rooms.borrow_mut().insert(SetId(2), full);
    assert!(rig.ask(7, create("p", Node::Dir))[0].starts_with("promised 1"), "the root's are always chosen");
    let parent = rig.core.brick_mut().names[&(ROOT, name("p"))].0;
    let inside = |n: usize| match create(&format!("d{n}"), Node::Dir) {
        Op::Create { name, node, mode, umask, uid, gid, open, .. } => {
            Op::Create { parent, name, node, mode, umask, uid, gid, open }
        }
        other => other,
    };
    // What is spread goes to the other set, which has a million times the room.
    rig.world.rooms.borrow_mut().insert(SetId(2), room(SetId(2), 1 << 50));
    for n in 0..8 {
        let made = rig.ask(7, inside(n));
        assert!(made[0].starts_with("reply"), "{n}: {made:?}");
    }
    assert_eq!(rig.ask(7, inside(8)), ["promised 2", "ask 1: preparemkdir of 2 as 1"]);
}

#[test]
fn mkdir_elsewhere_that_the_other_set_refuses_changes_nothing() {
    let mut rig = rig();
    rig.ask(7, create("d", Node::Dir));
    let full = Err(Fail::Errno { errno: Errno::EIO.0 });
    assert_eq!(answer(&mut rig, 1, full), ["reply 1: input/output error for 250 ms"]);
    assert_eq!(rig.ask(7, create("d", Node::Dir)), ["promised 2", "ask 2: preparemkdir of 2 as 2"], "again");
}

#[test]
fn rmdir_elsewhere_asks_first_and_settles_after() {
    let names = [((ROOT, name("d")), (THERE, SetId(2)))].into();
    let mut rig = Rig::with(Memory { names, ..Memory::default() }, &[]);
    let rmdir = || Op::Rmdir { parent: ROOT, name: name("d") };
    assert_eq!(rig.ask(7, rmdir()), ["ask 1: preparermdir of 2 as 1"]);
    let full = Err(Fail::Errno { errno: Errno::ENOTEMPTY.0 });
    assert_eq!(answer(&mut rig, 1, full), ["reply 1: directory not empty for 250 ms"]);
    assert_eq!(rig.ask(7, rmdir()), ["ask 2: preparermdir of 2 as 2"]);
    assert_eq!(
        answer(&mut rig, 2, Ok(Body::Done)),
        ["reply 2: done for 250 ms", "ask 3: endtransaction of 2, gone"]
    );
    assert!(rig.core.brick_mut().names.is_empty());
}

/// The other set's directory is marked by a transaction that failed: a removal waits for its end, which waits for the entry.
#[test]
fn a_removal_that_waits_for_who_asks_for_the_entry_gives_way() {
    let names = [((ROOT, name("d")), (THERE, SetId(2)))].into();
    let mut rig = Rig::with(Memory { names, ..Memory::default() }, &[]);
    rig.ask(7, Op::Rmdir { parent: ROOT, name: name("d") });
    let check = || Op::CheckEntry { parent: ROOT, name: name("d"), fid: THERE };
    assert_eq!(rig.ask(9, check()), ["reply 2: busy"]);
    assert_eq!(rig.ask(9, check()), ["reply 3: done"]);
    let agreed = answer(&mut rig, 1, Ok(Body::Done));
    assert_eq!(agreed, ["ask 2: checkentry of 1", "reply 1: busy for 250 ms"], "the entry was answered for");
    assert!(!rig.core.brick_mut().names.is_empty());
}

#[test]
fn the_lock_on_the_trees_shape_is_given_to_one() {
    let mut rig = rig();
    let tx = |seq| ids::OpId { session: ids::SessionId(5), seq };
    rig.now += Duration::from_secs(10);
    assert_eq!(rig.ask(9, Op::LockTree { tx: tx(1) }), ["reply 1: done"]);
    assert_eq!(rig.ask(9, Op::LockTree { tx: tx(2) }), ["reply 2: busy"]);
    assert_eq!(rig.ask(9, Op::UnlockTree { tx: tx(1) }), ["reply 3: done"]);
    assert_eq!(rig.ask(9, Op::LockTree { tx: tx(2) }), ["reply 4: done"]);
}

#[test]
fn mkdir_elsewhere_that_loses_its_name_meanwhile_ends_as_the_entry_says() {
    let mut rig = rig();
    rig.ask(7, create("d", Node::Dir));
    rig.mkfile(7, "d");
    let refused = answer(&mut rig, 1, Ok(attr()));
    assert_eq!(refused, ["ask 2: checkentry of 1", "reply 1: file exists for 250 ms"]);
}

#[test]
fn an_unclear_answer_about_an_entry_ends_no_transaction() {
    for unclear in [Fail::Busy, Fail::Errno { errno: Errno::EIO.0 }, Fail::BelowQuorum] {
        let mut rig = rig();
        rig.ask(7, create("d", Node::Dir));
        rig.lead(&[]);
        answer(&mut rig, 1, Ok(attr()));
        assert_eq!(answer(&mut rig, 2, Err(unclear)), NONE);
    }
}

fn with_names(names: &[(&str, Fid)]) -> Rig {
    let names = names.iter().map(|(n, fid)| ((ROOT, name(n)), (*fid, SetId(2)))).collect();
    Rig::with(Memory { names, ..Memory::default() }, &[])
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename { parent: ROOT, name: name(from), to_parent: ROOT, to_name: name(to), flags: 0 }
}

/// Its own set knows only which set has its entry.
#[test]
fn an_entry_that_was_renamed_here_still_counts() {
    let mut rig = with_names(&[("d", THERE)]);
    assert_eq!(rig.ask(7, rename("d", "e")), ["reply 1: done for 250 ms", "ask 1: relocate of 2"]);
    answer(&mut rig, 1, Ok(Body::Done));
    let check = || Op::CheckEntry { parent: ROOT, name: name("d"), fid: THERE };
    assert_eq!(rig.ask(9, check()), ["reply 2: done"]);
    rig.ask(7, Op::Rmdir { parent: ROOT, name: name("e") });
    assert_eq!(rig.ask(9, check()), ["reply 4: busy"], "it may go under the name that it has now");
    answer(&mut rig, 2, Ok(Body::Done));
    assert_eq!(rig.ask(9, check()), ["reply 5: no such file or directory"]);
}

#[test]
fn a_directory_elsewhere_gives_way_to_a_rename_when_its_set_agrees() {
    let other = Fid { lsn: Lsn(51), ..THERE };
    let mut rig = with_names(&[("d", THERE), ("e", other)]);
    assert_eq!(rig.ask(7, rename("d", "e")), ["ask 1: preparermdir of 2 as 1"]);
    let full = Err(Fail::Errno { errno: Errno::ENOTEMPTY.0 });
    assert_eq!(answer(&mut rig, 1, full), ["reply 1: directory not empty for 250 ms"]);
    rig.ask(7, rename("d", "e"));
    let done = answer(&mut rig, 2, Ok(Body::Done));
    let told = ["reply 2: done for 250 ms", "ask 3: endtransaction of 2, gone", "ask 4: relocate of 2"];
    assert_eq!(done, told);
    let names: Vec<_> = rig.core.brick_mut().names.clone().into_iter().collect();
    assert_eq!(names, [((ROOT, name("e")), (THERE, SetId(2)))]);
}

/// What fills the directory may have been made after its source had gone.
#[test]
fn a_refusal_of_the_other_set_counts_only_while_the_source_of_the_rename_is_there() {
    let other = Fid { lsn: Lsn(51), ..THERE };
    let mut rig = with_names(&[("d", THERE), ("e", other)]);
    rig.ask(7, rename("d", "e"));
    assert_eq!(rig.ask(7, rename("d", "f")), ["reply 2: done for 250 ms", "ask 2: relocate of 2"]);
    let full = Err(Fail::Errno { errno: Errno::ENOTEMPTY.0 });
    assert_eq!(answer(&mut rig, 1, full), ["reply 1: busy for 250 ms"]);
    assert_eq!(rig.ask(7, rename("d", "e")), ["reply 3: no such file or directory for 250 ms"]);
}

/// A failover may take the source away, and what was refused for it was never so.
#[test]
fn a_refusal_of_the_other_set_is_told_when_what_it_stands_on_is_on_all_bricks() {
    let other = Fid { lsn: Lsn(51), ..THERE };
    let names = [("d", THERE), ("e", other)].map(|(n, fid)| ((ROOT, name(n)), (fid, SetId(2)))).into();
    let mut rig = Rig::with(Memory { names, ..Memory::default() }, &[2]);
    assert_eq!(rig.mkfile(7, "a"), ["send 2: replicate"]);
    assert_eq!(rig.ask(7, rename("d", "e")), ["ask 1: preparermdir of 2 as 1"]);
    let full = Err(Fail::Errno { errno: Errno::ENOTEMPTY.0 });
    assert_eq!(answer(&mut rig, 1, full), NONE);
    let told = ["reply 1: attr 1.1.1 for 250 ms", "reply 2: directory not empty for 250 ms"];
    assert_eq!(rig.ack(2, 1), told);
}

#[test]
fn a_directory_elsewhere_stays_if_the_view_changes_before_it_gives_way() {
    let other = Fid { lsn: Lsn(51), ..THERE };
    let mut rig = with_names(&[("d", THERE), ("e", other)]);
    rig.ask(7, rename("d", "e"));
    rig.lead(&[]);
    let late = answer(&mut rig, 1, Ok(Body::Done));
    assert_eq!(late, ["ask 2: checkentry of 1", "reply 1: busy for 250 ms"]);
    assert_eq!(rig.core.brick_mut().names.len(), 2);
}

/// The directory that was to give way is what the client's own names lead to by now.
#[test]
fn what_was_agreed_about_an_entry_ends_when_it_is_renamed() {
    let other = Fid { lsn: Lsn(51), ..THERE };
    for (op, prepared) in [
        (rename("d", "e"), Ok(Body::Done)),
        (Op::Rmdir { parent: ROOT, name: name("e") }, Ok(Body::Done)),
        (Op::Rmdir { parent: ROOT, name: name("e") }, Err(Fail::Errno { errno: Errno::ENOTEMPTY.0 })),
    ] {
        let mut rig = with_names(&[("d", THERE), ("e", other)]);
        rig.ask(7, op);
        rig.ask(7, rename("e", "f"));
        answer(&mut rig, 2, Ok(Body::Done));
        let late = answer(&mut rig, 1, prepared.clone());
        assert!(late.contains(&"reply 1: busy for 250 ms".to_owned()), "{late:?}");
        assert_eq!(late.contains(&"ask 3: checkentry of 1".to_owned()), prepared.is_ok(), "{late:?}");
        assert_eq!(rig.core.brick_mut().names.len(), 2);
    }
}

#[test]
fn an_entry_counts_if_it_leads_to_the_directory() {
    let names = [((ROOT, name("d")), (THERE, SetId(2)))].into();
    let mut rig = Rig::with(Memory { names, ..Memory::default() }, &[]);
    let check = |fid| Op::CheckEntry { parent: ROOT, name: name("d"), fid };
    assert_eq!(rig.ask(9, check(THERE)), ["reply 1: done"]);
    let other = Fid { lsn: Lsn(51), ..THERE };
    assert_eq!(rig.ask(9, check(other)), ["reply 2: no such file or directory"]);
}

/// A directory of this set that another set's entry leads to loses it: who has been granted what it knows waits for nobody.
#[test]
fn a_removal_elsewhere_waits_for_the_grants_of_others_than_who_removes() {
    for (by, waits) in [(7, false), (8, true)] {
        let mut rig = rig();
        rig.ask(7, Op::GetAttr { fid: ROOT });
        let out = rig.ask(99, Op::PrepareRmdir { fid: ROOT, by: SessionId(by) });
        assert_eq!(out.is_empty(), waits, "{out:?}");
    }
}

/// Another set may have removed the entry of a marked directory: nobody is told how it was before until that has ended.
#[test]
fn a_directory_that_may_be_removed_is_not_shown() {
    let fid = Fid { set: SetId(1), epoch: Epoch(5), lsn: Lsn(40) };
    let list = || Op::ReadDir { fid, cookie: 0, plus: false };
    let xattr = || Op::SetXattr { fid, name: name("user.x"), flags: 0 };
    let begun = |prepare| {
        let mut rig = rig();
        rig.core.brick_mut().names.insert((ROOT, name("d")), (fid, SetId(1)));
        rig.ask_as(99, 5, prepare);
        rig
    };
    let tx = Some(OpId { session: SessionId(99), seq: 5 });
    for keep in [true, false] {
        let mut rig = begun(Op::PrepareRmdir { fid, by: SessionId(7) });
        for op in [Op::GetAttr { fid }, list(), xattr()] {
            assert!(rig.ask(7, op)[0].contains(": busy"));
        }
        let all = rig.ask(7, Op::GetAttrs { fids: vec![fid] });
        assert!(all[0].contains("attrs") && !all[0].contains(&fid.to_string()), "{all:?}");
        let to_disk = rig.ask(99, Op::Fsync { fid });
        assert!(!to_disk.iter().any(|line| line.contains("busy")), "the mark goes to disk: {to_disk:?}");
        rig.ask_as(99, 6, Op::EndTransaction { fid, tx, keep });
        assert_eq!(rig.ask(9, Op::GetAttr { fid })[0].contains("attr"), keep);
    }
    // A power cut has brought the mark back, and what was made in it since.
    let mut rig = begun(Op::PrepareRmdir { fid, by: SessionId(7) });
    rig.core.brick_mut().names.insert((fid, name("x")), (Fid { lsn: Lsn(41), ..fid }, SetId(1)));
    assert!(rig.ask(9, Op::GetAttr { fid })[0].contains("attr"), "it stays");
    // Or taken the record of the end alone.
    let mut rig = begun(Op::PrepareRmdir { fid, by: SessionId(7) });
    rig.core.brick_mut().removed.clear();
    assert!(rig.ask(9, Op::GetAttr { fid })[0].contains("attr"), "it is over");
    // And the directory was gone by then: nobody asks for ever how that has ended.
    let mut rig = begun(Op::PrepareRmdir { fid, by: SessionId(7) });
    assert_eq!(rig.core.report(rig.now).marked, 1);
    rig.core.brick_mut().gone.insert(fid);
    rig.now += Duration::from_secs(10);
    assert!(!rig.maintain().iter().any(|line| line.starts_with("ask")));
    assert_eq!(rig.core.report(rig.now).marked, 0);
}

/// Renamed here, it is nobody else's matter: the answer waits for no disk, however often it is asked for.
#[test]
fn a_renamed_directory_of_another_set_is_told_again_at_once() {
    let mut rig = rig();
    rig.core.brick_mut().names.insert((ROOT, name("d")), (THERE, SetId(2)));
    let op = Op::Rename { parent: ROOT, name: name("d"), to_parent: ROOT, to_name: name("e"), flags: 0 };
    let first = rig.ask_as(7, 1, op.clone());
    assert!(first.iter().any(|l| l.starts_with("reply 1: done")), "{first:?}");
    assert_eq!(rig.ask_as(7, 1, op.clone()), ["reply 1: done"]);
    // Nobody knows any more what it was: it may have been a file of that set.
    rig.core.brick_mut().names.clear();
    let again = rig.ask_as(7, 1, op);
    assert!(again.len() == 1 && again[0].ends_with(": fsync of 1"), "{again:?}");
}

#[test]
fn the_right_to_grant_locks_is_given_to_one_session() {
    use wire::op::LockClaim;
    let hold = |claim| Op::HoldLocks { term: 1, claim };
    let mut rig = rig();
    rig.now += Duration::from_secs(1);
    assert_eq!(
        rig.ask(7, hold(LockClaim::New)),
        ["reply 1: done"],
        "nothing was done here: nobody can have it"
    );
    assert_eq!(rig.ask(8, hold(LockClaim::New)), ["reply 2: no locks: another mount has them"]);
    assert_eq!(rig.ask(8, Op::DropLocks { term: 1 }), ["reply 3: done"]);
    assert_eq!(rig.ask(8, hold(LockClaim::New)), ["reply 4: no locks: another mount has them"]);
    assert_eq!(rig.ask(7, Op::DropLocks { term: 1 }), ["reply 5: done"]);
    assert_eq!(rig.ask(8, hold(LockClaim::New)), ["reply 6: done"], "no grants: it is no activity");
}
