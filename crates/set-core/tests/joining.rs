//! A brick joins: the primary's outputs, then the joining brick's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common;
use crate::common::Rig;
use crate::common::brick::Memory;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, Time};
use namespace::TreeState;
use set_core::{Done, Input, LocalBrick};
use wire::peer::{Object, PeerBody, Sent, Stamp};
use wire::{Change, Errno, Op};

const NONE: [&str; 0] = [];

fn join(join_id: u64) -> PeerBody {
    PeerBody::Join { join_id, consistent_to: Lsn(0), held: Lsn(0), history: vec![] }
}

/// A brick that was sent away asks to join. The number of that.
fn asked_to_join(rig: &mut Rig) -> u64 {
    rig.follow(2);
    let asked = rig.step(Input::Tick);
    asked[0].strip_prefix("send 2: join ").unwrap().parse().unwrap()
}

fn two_changes() -> Rig {
    let mut rig = Rig::primary(&[]);
    rig.mkfile(7, "a");
    rig.mkfile(7, "b");
    rig
}

#[test]
fn a_joining_brick_is_sent_what_it_missed_and_then_every_change() {
    let mut rig = two_changes();
    assert_eq!(rig.peer(2, join(5)), ["send 2: joinaccepted"]);
    assert_eq!(rig.wake(), ["send 2: catchup", "send 2: catchup", "send 2: caughtup"]);
    assert!(rig.mkfile(7, "c").contains(&"send 2: replicate".to_owned()));
}

/// It has healed and is waited for, but no view names it yet: that it is gone changes no view.
#[test]
fn nobody_waits_for_a_joining_brick_that_was_removed() {
    let mut rig = two_changes();
    rig.peer(2, join(5));
    rig.wake();
    rig.peer(2, PeerBody::Healed { join_id: 5, lsn: Lsn(2) });
    rig.ask(7, Op::SyncFs);
    rig.wake();
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Synced(Lsn(2))))), NONE, "it is waited for");
    let mut settings = rig.settings(BrickId(1), [BrickId(1)].into());
    settings.members.remove(&BrickId(2));
    let out = rig.step(Input::Settings(settings));
    assert!(out.iter().any(|l| l.starts_with("reply")), "{out:?}");
}

#[test]
fn a_full_connection_is_sent_no_more_for_a_while() {
    let mut rig = two_changes();
    rig.peer(2, join(5));
    rig.world.queued.set(64 << 20);
    rig.world.last_call.set(rig.now);
    assert_eq!(rig.wake(), NONE);
    assert!(rig.core.next_wake().unwrap() > rig.now, "clients go first");
    rig.world.queued.set(0);
    assert_eq!(rig.wake(), ["send 2: catchup", "send 2: catchup", "send 2: caughtup"]);
}

#[test]
fn a_newer_attempt_ends_the_older_one() {
    let mut rig = two_changes();
    rig.peer(2, join(5));
    assert_eq!(rig.peer(2, join(6)), ["send 2: joinaccepted"]);
    let mut sent = Vec::new();
    while rig.core.next_wake().is_some() {
        sent.extend(rig.wake());
    }
    assert_eq!(sent, ["send 2: catchup", "send 2: catchup", "send 2: caughtup"]);
}

#[test]
fn questions_of_a_joining_brick_are_answered_in_turns() {
    let mut rig = two_changes();
    rig.peer(2, join(5));
    while rig.core.next_wake().is_some() {
        rig.wake();
    }
    let fid = common::brick::ROOT;
    for _ in 0..3 {
        assert_eq!(rig.peer(2, PeerBody::AskObject { fid, data: false, have: None }), NONE);
    }
    assert_eq!(rig.wake(), ["send 2: object", "send 2: object", "send 2: object"]);
    rig.peer(2, PeerBody::AskObject { fid, data: false, have: None });
    rig.peer(2, PeerBody::AskObject { fid, data: false, have: None });
    rig.slow = std::time::Duration::from_millis(1);
    assert_eq!(rig.wake(), ["send 2: object"], "one turn");
    assert_eq!(rig.wake(), ["send 2: object"], "the next one");
}

/// The joining brick takes 3 s of silence for the end of its healing, and begins it anew.
#[test]
fn checksums_from_a_slow_disk_are_not_held_back_for_long() {
    let mut rig = two_changes();
    rig.core.brick_mut().data.insert(common::brick::ROOT, Vec::new());
    rig.peer(2, join(5));
    while rig.core.next_wake().is_some() {
        rig.wake();
    }
    let ask = PeerBody::AskSums { fid: common::brick::ROOT, offset: 0, len: 1 << 20, ask: 1 };
    rig.peer(2, ask);
    assert_eq!(rig.wake(), ["start 1: sums"]);
    rig.now += std::time::Duration::from_secs(2);
    rig.world.last_call.set(rig.now);
    let sums = replica::healing::Sums { sums: vec![(1, 1)], len: 1 << 20, end: true };
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Sums(sums)))), NONE, "clients go first");
    assert!(rig.core.next_wake().unwrap() <= rig.now + std::time::Duration::from_millis(500));
    assert_eq!(rig.wake(), ["send 2: sums"]);
}

/// Each name may lead to something that has to be read from the disk.
#[test]
fn what_names_lead_to_is_read_before_a_joining_brick_is_told_and_clients_do_not_wait_for_it() {
    let ask = PeerBody::AskEntries { fid: common::brick::ROOT, after: 0 };
    let mut rig = Rig::with(Memory { cold: true, ..Memory::default() }, &[]);
    rig.peer(2, ask.clone());
    assert_eq!(rig.wake(), ["start 1: page"]);
    assert_eq!(rig.mkfile(7, "c").len(), 1, "a client is answered meanwhile");
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Listed))), ["send 2: entries"]);
    rig.peer(2, ask.clone());
    assert_eq!(rig.wake(), ["start 2: page"]);
    rig.lead(&[]);
    assert_eq!(rig.step(Input::Worked(2, Ok(Done::Listed))), NONE, "it was asked in another epoch");
    rig.core.brick_mut().cold = false;
    rig.peer(2, ask);
    assert_eq!(rig.wake(), ["send 2: entries"]);
}

/// The same on the joining brick: once it has asked it has to take the answer.
#[test]
fn a_joining_brick_asks_for_names_when_its_own_are_at_hand() {
    let mut rig = Rig::with(Memory { cold: true, ..Memory::default() }, &[]);
    let join_id = asked_to_join(&mut rig);
    let start = Memory::default_stamp;
    let (common, agree) = (start(), Lsn(0));
    rig.peer(2, PeerBody::JoinAccepted { join_id, common, agree, start: start(), full: false });
    let (fid, name) = (common::brick::ROOT, common::name("n"));
    let change = Change::Rmdir { parent: fid, name, fid: placed(9), time: Time::default() };
    let last = Stamp { epoch: Epoch(1), lsn: start().lsn.next() };
    let (op, result_fid) = (OpId::default(), None);
    rig.peer(2, PeerBody::CatchUp { stamp: last.clone(), op, result_fid, change });
    let asked = rig.peer(2, PeerBody::CaughtUp { join_id, last: last.clone(), placed: vec![] });
    assert_eq!(asked, ["send 2: askobject"]);
    let attr = Memory::default().attr(fid).unwrap();
    let object = Some(Object { attr, version: last.clone(), flags: 0, xattrs: vec![], place: None });
    let object = PeerBody::Object { fid, at: last.lsn, object, data: Sent::Nothing };
    assert_eq!(rig.peer(2, object), ["start 1: page"]);
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Listed))), ["send 2: askentries"]);
}

/// A primary whose journal does not reach back.
fn journal_lost() -> Rig {
    let mut rig = Rig::with(Memory { dropped: 1, ..Memory::default() }, &[]);
    rig.mkfile(7, "a");
    rig.mkfile(7, "b");
    rig
}

fn placed(n: u64) -> Fid {
    Fid { set: common::brick::SET, epoch: Epoch(1), lsn: Lsn(n) }
}

#[test]
fn a_full_comparison_begins_when_the_primary_has_walked_and_clients_do_not_wait_for_it() {
    let mut rig = journal_lost();
    assert_eq!(rig.peer(2, join(5)), ["start 1: walk"]);
    assert_eq!(rig.mkfile(7, "c").len(), 1, "a client is answered meanwhile");
    assert_eq!(rig.peer(2, join(6)), NONE, "one walk is enough");
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Placed(vec![placed(9)])))), ["send 2: joinaccepted"]);
    let mut sent = Vec::new();
    while rig.core.next_wake().is_some() {
        sent.extend(rig.wake());
    }
    assert_eq!(sent.first().unwrap(), "send 2: placed [1.9]");
    assert_eq!(sent.last().unwrap(), "send 2: caughtup");
}

/// A million of them would not fit into one message, and take long to send.
#[test]
fn what_a_comparison_does_not_meet_is_told_in_parts_and_clients_are_served_between() {
    let mut rig = journal_lost();
    rig.peer(2, join(5));
    rig.step(Input::Worked(1, Ok(Done::Placed((1..=10_000).map(placed).collect()))));
    for part in ["placed 4096", "placed 4096", "placed 1808"] {
        assert_eq!(rig.wake(), [format!("send 2: {part}")]);
        assert_eq!(rig.ask(7, wire::Op::GetAttr { fid: common::brick::ROOT }).len(), 1);
    }
    assert_eq!(rig.wake(), ["send 2: catchup", "send 2: caughtup"]);
}

/// What was told may be lost with the connection, and nothing on the joining brick would show it.
#[test]
fn a_link_that_breaks_ends_the_catching_up_that_went_over_it() {
    for up in [false, true] {
        let mut rig = journal_lost();
        rig.peer(2, join(5));
        rig.step(Input::Worked(1, Ok(Done::Placed((1..=10_000).map(placed).collect()))));
        assert_eq!(rig.wake(), ["send 2: placed 4096"]);
        rig.step(Input::Link(ids::ServerId(2), up));
        while rig.core.next_wake().is_some() {
            assert_eq!(rig.wake(), NONE, "it joins anew");
        }
        assert_eq!(rig.peer(2, join(6)), ["send 2: joinaccepted"]);
        assert_eq!(rig.wake(), ["send 2: placed 4096"], "from the beginning");
    }
}

#[test]
fn a_join_in_the_middle_of_the_catching_up_needs_no_second_walk() {
    let mut rig = journal_lost();
    rig.peer(2, join(5));
    rig.step(Input::Worked(1, Ok(Done::Placed(vec![]))));
    assert_eq!(rig.peer(2, join(6)), ["send 2: joinaccepted"]);
}

#[test]
fn a_walk_that_fails_or_was_begun_in_another_epoch_is_made_anew() {
    let mut rig = journal_lost();
    assert_eq!(rig.peer(2, join(5)), ["start 1: walk"]);
    assert_eq!(rig.step(Input::Worked(1, Err(Errno::EIO))), NONE);
    assert_eq!(rig.peer(2, join(6)), ["start 2: walk"]);
    rig.lead(&[]);
    assert_eq!(rig.step(Input::Worked(2, Ok(Done::Placed(vec![])))), NONE);
    assert_eq!(rig.peer(2, join(7)), ["start 3: walk"]);
}

/// The joining brick looks for the same on its own tree, and leaves that alone until it has.
#[test]
fn a_joining_brick_compares_when_it_has_walked_too() {
    let mut rig = Rig::primary(&[]);
    let join_id = asked_to_join(&mut rig);
    let (common, start) = (Memory::default_stamp(), Memory::default_stamp());
    let accept_join = PeerBody::JoinAccepted { join_id, common, agree: Lsn(0), start, full: true };
    assert_eq!(rig.peer(2, accept_join), ["start 1: walk"]);
    assert_eq!(rig.peer(2, PeerBody::Placed { join_id, placed: vec![placed(7)] }), NONE);
    assert_eq!(rig.peer(2, PeerBody::Placed { join_id: join_id + 1, placed: vec![placed(6)] }), NONE);
    let live = PeerBody::CaughtUp { join_id, last: Memory::default_stamp(), placed: vec![placed(8)] };
    assert_eq!(rig.peer(2, live), NONE, "its own walk has not ended");
    for _ in 0..20 {
        rig.now += std::time::Duration::from_secs(1);
        assert_eq!(rig.step(Input::Tick), NONE, "it is busy, not forgotten");
    }
    let asked = rig.step(Input::Worked(1, Ok(Done::Placed(vec![placed(9)]))));
    assert_eq!(asked, ["send 2: askobject"; 4], "the root, and what either has found");
}

/// A brick that was sent away asks to join, and is accepted.
fn join_accepted() -> Rig {
    let mut rig = Rig::primary(&[]);
    let join_id = asked_to_join(&mut rig);
    assert_eq!(rig.step(Input::Tick), NONE, "not again at once");
    let (common, start) = (Memory::default_stamp(), Memory::default_stamp());
    let accept_join = PeerBody::JoinAccepted { join_id, common, agree: Lsn(0), start, full: false };
    assert_eq!(rig.peer(2, accept_join), NONE);
    let live = PeerBody::CaughtUp { join_id, last: Memory::default_stamp(), placed: vec![] };
    assert_eq!(rig.peer(2, live), ["start 1: end"], "nothing is dirty: to disk with it");
    rig
}

#[test]
fn a_brick_that_was_sent_away_heals_and_says_so_when_all_is_on_disk() {
    let mut rig = join_accepted();
    assert!(rig.core.report(rig.now).heal.unwrap().finishing);
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Ended))), ["send 2: healed"]);
}

/// The stale set is gone: what is not applied now would be healed by nobody.
#[test]
fn a_brick_that_has_healed_and_cannot_apply_a_change_leaves() {
    let mut rig = join_accepted();
    rig.step(Input::Worked(1, Ok(Done::Ended)));
    rig.core.brick_mut().fails = Some((Errno::EIO, false));
    let epoch = rig.settings(common::ME, [common::ME].into()).view.epoch;
    let (stamp, op) = (Stamp { epoch, lsn: Lsn(1) }, OpId::default());
    let change = Change::Nop;
    let body = PeerBody::Replicate { stamp, commit: Lsn(0), op, result_fid: None, change };
    assert_eq!(rig.peer(2, body), ["send 2: failed"]);
    assert!(rig.core.has_failed());
}

/// The primary has a new process, which lost the end of its journal, and begins with another acceptance: its changes do not
/// follow what is here, however well their numbers fit.
#[test]
fn changes_after_an_acceptance_that_was_not_taken_are_not_taken_either() {
    let mut rig = join_accepted();
    rig.step(Input::Worked(1, Ok(Done::Ended)));
    let epoch = rig.settings(common::ME, [common::ME].into()).view.epoch;
    let (stamp, op, change) = (Stamp { epoch, lsn: Lsn(1) }, OpId::default(), Change::Nop);
    let missed = PeerBody::CatchUp { stamp: stamp.clone(), op, result_fid: None, change: change.clone() };
    assert_eq!(rig.peer(2, missed.clone()), NONE, "it has all that it missed");
    let start = Memory::default_stamp;
    let accept_join = PeerBody::JoinAccepted {
        join_id: u64::MAX,
        common: start(),
        agree: Lsn(0),
        start: start(),
        full: false,
    };
    assert_eq!(rig.peer(2, accept_join), NONE);
    assert_eq!(rig.peer(2, missed), NONE);
    let new = PeerBody::Replicate { stamp, commit: Lsn(0), op, result_fid: None, change };
    assert_eq!(rig.peer(2, new), NONE);
    assert_eq!(rig.core.brick_mut().last().lsn, Lsn(0));
    rig.now += std::time::Duration::from_secs(1);
    let told = rig.step(Input::Tick);
    assert!(
        told.iter().any(|s| s.starts_with("send 2: join")),
        "it does not wait until all is silent: {told:?}"
    );
}

#[test]
fn a_healing_that_cannot_go_to_disk_begins_anew() {
    let mut rig = join_accepted();
    assert_eq!(rig.step(Input::Worked(1, Err(Errno::EIO))), NONE);
    assert_eq!(rig.core.report(rig.now).heal, None);
    rig.now += std::time::Duration::from_secs(1);
    assert!(rig.step(Input::Tick)[0].starts_with("send 2: join"));
}

#[test]
fn the_end_of_an_older_healing_is_void() {
    let mut rig = join_accepted();
    rig.follow(3);
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Ended))), NONE);
}

#[test]
fn only_the_primarys_answer_to_this_brick_counts() {
    let mut rig = Rig::primary(&[]);
    let join_id = asked_to_join(&mut rig);
    let start = Memory::default_stamp;
    let accept_join = |join_id| PeerBody::JoinAccepted {
        join_id,
        common: start(),
        agree: Lsn(0),
        start: start(),
        full: false,
    };
    let live = |join_id| PeerBody::CaughtUp { join_id, last: start(), placed: vec![] };
    for (from, join_id) in [(3, join_id), (2, join_id + 1)] {
        assert_eq!(rig.peer(from, accept_join(join_id)), NONE);
        assert_eq!(rig.peer(from, live(join_id)), NONE, "brick {from}, join {join_id}");
    }
    rig.peer(2, accept_join(join_id));
    assert_eq!(rig.peer(2, live(join_id)), ["start 1: end"]);
}

/// There may be a million of them, and each may have to be read from a disk.
#[test]
fn what_the_primary_does_not_have_is_looked_at_again_in_turns_and_clients_are_served_between() {
    const GONE: u64 = 5;
    let here = (1..=GONE).map(placed).collect();
    let mut rig = Rig::with(Memory { files: here, ..Memory::default() }, &[]);
    let join_id = asked_to_join(&mut rig);
    let start = Memory::default_stamp;
    let (common, agree) = (start(), Lsn(0));
    rig.peer(2, PeerBody::JoinAccepted { join_id, common, agree, start: start(), full: false });
    let (parent, name, time) = (common::brick::ROOT, common::name("n"), Time::default());
    let mut last = start();
    for n in 1..=GONE {
        last = Stamp { epoch: Epoch(1), lsn: last.lsn.next() };
        let change = Change::Unlink { parent, name: name.clone(), fid: placed(n), orphan: false, time };
        let (op, result_fid) = (OpId::default(), None);
        rig.peer(2, PeerBody::CatchUp { stamp: last.clone(), op, result_fid, change });
    }
    rig.peer(2, PeerBody::CaughtUp { join_id, last: last.clone(), placed: vec![] });
    let at = last.lsn;
    for n in 1..=GONE {
        rig.peer(2, PeerBody::Object { fid: placed(n), at, object: None, data: Sent::Nothing });
    }
    let attr = Memory::default().attr(parent).unwrap();
    let object = Some(Object { attr, version: last, flags: 0, xattrs: vec![], place: None });
    rig.peer(2, PeerBody::Object { fid: parent, at, object, data: Sent::Nothing });
    rig.slow = std::time::Duration::from_millis(1);
    let page = PeerBody::Entries { fid: parent, at, after: 0, upto: None, entries: vec![], targets: vec![] };
    assert_eq!(rig.peer(2, page), NONE, "one turn");
    for _ in 1..GONE - 1 {
        assert_eq!(rig.wake(), NONE, "one turn");
    }
    let mut told = rig.wake();
    while told.is_empty() {
        told = rig.wake();
    }
    assert_eq!(told, ["start 1: end"]);
}

/// A large directory's names leave the memory when others are asked for: reading them takes most of a second.
#[test]
fn names_that_left_the_memory_are_read_on_another_thread_again() {
    let ask = PeerBody::AskEntries { fid: common::brick::ROOT, after: 0 };
    let mut rig = Rig::with(Memory { cold: true, ..Memory::default() }, &[]);
    rig.peer(2, ask);
    assert_eq!(rig.wake(), ["start 1: page"]);
    rig.core.brick_mut().unlisted = true;
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Listed))), ["start 2: list"]);
    rig.core.brick_mut().unlisted = false;
    assert_eq!(rig.step(Input::Worked(2, Ok(Done::Listed))), ["start 3: page"]);
    assert_eq!(rig.step(Input::Worked(3, Ok(Done::Listed))), ["send 2: entries"]);
    let read = wire::Op::ReadDir { fid: common::brick::ROOT, cookie: 0, plus: true };
    assert_eq!(rig.ask(7, read), ["start 4: page"]);
    rig.core.brick_mut().unlisted = true;
    assert_eq!(rig.step(Input::Worked(4, Ok(Done::Listed))), ["start 5: list"]);
    rig.core.brick_mut().unlisted = false;
    assert_eq!(rig.step(Input::Worked(5, Ok(Done::Listed))), ["start 6: page"]);
    assert!(rig.step(Input::Worked(6, Ok(Done::Listed)))[0].starts_with("reply 1: page"));
}

/// No change that was missed has its name: a later comparison of all changes does.
#[test]
fn a_healing_that_ends_without_an_object_of_the_primary_begins_anew_from_the_first_change() {
    let mut rig = Rig::with(Memory { lost: Some(placed(1)), ..Memory::default() }, &[]);
    rig.follow(2);
    let mut join = || {
        rig.now += std::time::Duration::from_secs(1);
        let asked = rig.messages(Input::Tick);
        let [PeerBody::Join { join_id, held, .. }] = asked[..] else { panic!("{asked:?}") };
        let start = Memory::default_stamp;
        let (common, agree) = (start(), Lsn(0));
        rig.peer(2, PeerBody::JoinAccepted { join_id, common, agree, start: start(), full: false });
        let last = Stamp { epoch: Epoch(1), lsn: Lsn(1) };
        let change = Change::Touch { fid: placed(1) };
        let (op, result_fid) = (OpId::default(), None);
        rig.peer(2, PeerBody::CatchUp { stamp: last.clone(), op, result_fid, change });
        rig.peer(2, PeerBody::CaughtUp { join_id, last: last.clone(), placed: vec![] });
        let attr = Memory::default().attr(common::brick::ROOT).unwrap();
        let object = Some(Object { attr, version: last, flags: 0, xattrs: vec![], place: None });
        let answer = PeerBody::Object { fid: placed(1), at: Lsn(1), object, data: Sent::Nothing };
        (held, rig.peer(2, answer))
    };
    let (_, told) = join();
    assert_eq!(told, NONE, "it is not in sync");
    let (held, told) = join();
    assert_eq!(held, Lsn(0));
    assert_eq!(told, ["start 1: end"], "once");
}
