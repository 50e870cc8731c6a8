//! What a brick owes its set and its clients when it is not certain of something, or not the one to decide.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, SET};
use crate::common::{ME, Rig, create, name};
use bytes::Bytes;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, SetId};
use namespace::placement::SetRoom;
use set_core::{Done, Input, Settings};
use std::time::Duration;
use wire::op::Node;
use wire::peer::{PeerBody, PeerMessage, Stamp};
use wire::{Body, Change, Errno, Op, User};

const NONE: [&str; 0] = [];

fn at(epoch: u32, lsn: u64) -> Stamp {
    Stamp { epoch: Epoch(epoch), lsn: Lsn(lsn) }
}

fn fid(epoch: u32, lsn: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(epoch), lsn: Lsn(lsn) }
}

/// A primary that is alone and has made so many files.
fn primary_with(files: u64) -> Rig {
    let mut rig = Rig::primary(&[]);
    (0..files).for_each(|n| _ = rig.mkfile(7, &format!("{n}")));
    assert_eq!(rig.core.brick_mut().journal.len() as u64, files);
    rig
}

fn dropped(rig: &mut Rig, fid: Fid) -> bool {
    rig.core.brick_mut().journal.iter().any(|e| e.body == Change::DropOrphan { fid })
}

fn unlink(rig: &mut Rig, session: u64, file: &str) {
    rig.now += Duration::from_secs(1);
    let out = rig.ask(session, Op::Unlink { parent: ROOT, name: name(file) });
    assert!(out.len() == 1 && out[0].contains("done"), "{out:?}");
}

/// The primary may remember the room of before this brick was closed, when its disk was full.
#[test]
fn a_brick_says_how_much_room_it_has_when_it_comes_into_a_view() {
    let mut rig = Rig::primary(&[]);
    rig.follow(2);
    let told = rig.second_says(2);
    assert!(
        told.iter().any(|m| matches!(m, PeerBody::Ack { available, .. } if *available == 1 << 39)),
        "{told:?}"
    );
}

#[test]
fn a_file_lives_while_a_session_holds_it_open() {
    for created_open in [true, false] {
        let mut rig = Rig::primary(&[]);
        let Op::Create { parent, name, node, mode, umask, uid, gid, .. } = create("a", Node::File) else {
            unreachable!()
        };
        rig.ask(8, Op::Create { parent, name, node, mode, umask, uid, gid, open: created_open });
        if !created_open {
            rig.ask(8, Op::Open { fid: fid(1, 1) });
        }
        unlink(&mut rig, 7, "a");
        assert!(rig.core.brick_mut().orphans.contains(&fid(1, 1)), "created open: {created_open}");
        rig.maintain();
        assert!(!dropped(&mut rig, fid(1, 1)));
        rig.ask(8, Op::Release { fid: fid(1, 1) });
        assert!(dropped(&mut rig, fid(1, 1)));
    }
}

/// Who else holds it has not said so yet.
#[test]
fn a_file_that_one_holder_closes_stays_until_others_had_time_to_claim_it() {
    let mut rig = Rig::with(Memory { orphans: [fid(0, 5)].into(), ..Memory::default() }, &[]);
    rig.ask(8, Op::Open { fid: fid(0, 5) });
    rig.ask(8, Op::Release { fid: fid(0, 5) });
    rig.maintain();
    assert!(!dropped(&mut rig, fid(0, 5)));
    rig.now += Duration::from_secs(60);
    rig.lease = rig.now + Duration::from_secs(60);
    rig.maintain();
    assert!(dropped(&mut rig, fid(0, 5)));
}

#[test]
fn files_that_nobody_claims_go_however_many_others_are_held() {
    let held: Vec<Fid> = (1..=64).map(|n| fid(0, n)).collect();
    let orphans = held.iter().copied().chain([fid(0, 65)]).collect();
    let mut rig = Rig::with(Memory { orphans, ..Memory::default() }, &[]);
    held.iter().for_each(|fid| _ = rig.ask(8, Op::Open { fid: *fid }));
    rig.now += Duration::from_secs(61);
    rig.lease = rig.now + Duration::from_secs(60);
    rig.maintain();
    assert_eq!(rig.core.brick_mut().orphans.iter().copied().collect::<Vec<_>>(), held);
}

/// Each look at one that is held costs something, and there may be any number of them.
#[test]
fn nameless_files_that_are_held_are_listed_elsewhere_and_looked_at_a_part_at_a_time() {
    let held: Vec<Fid> = (1..=5000).map(|n| fid(0, n)).collect();
    let orphans = held.iter().copied().chain([fid(0, 0)]).collect();
    let mut rig = Rig::with(Memory { orphans, ..Memory::default() }, &[]);
    held.iter().for_each(|fid| _ = rig.ask(8, Op::Open { fid: *fid }));
    rig.now += Duration::from_secs(61);
    rig.lease = rig.now + Duration::from_secs(60);
    rig.maintain();
    let mut ticks = 0;
    while !dropped(&mut rig, fid(0, 0)) {
        rig.step(Input::Tick);
        ticks += 1;
    }
    assert!((4..=6).contains(&ticks), "{ticks}");
    assert_eq!(rig.core.brick_mut().orphans.iter().copied().collect::<Vec<_>>(), held);
}

#[test]
fn a_primary_without_a_lease_commits_no_transaction() {
    let mut rig = Rig::primary(&[]);
    let room = |set, writable| SetRoom { writable, ..SetRoom::new(set, 1 << 40, 1 << 41) };
    let rooms = [(SetId(1), room(SetId(1), false)), (SetId(2), room(SetId(2), true))];
    rig.world.rooms.borrow_mut().extend(rooms);
    assert_eq!(rig.ask(7, create("d", Node::Dir)), ["promised 2", "ask 1: preparemkdir of 2 as 1"]);
    let attr = namespace::TreeState::attr(&mut Memory::default(), ROOT).unwrap();
    let attr = wire::Attr { fid: Fid { set: SetId(2), ..fid(1, 1) }, home: SetId(2), ..attr };
    rig.now = rig.lease;
    let out = rig.step(Input::Answered(1, Ok(Body::Attr { attr })));
    assert_eq!(out, ["ask 2: checkentry of 1", "reply 1: busy for 250 ms"]);
    assert!(rig.core.brick_mut().journal.is_empty());
}

#[test]
fn a_brick_whose_periodic_sync_fails_leaves_and_knows_what_is_stale() {
    let mut rig = Rig::primary(&[2]);
    rig.mkfile(7, "a");
    rig.ack(2, 1);
    rig.now += Duration::from_secs(6);
    rig.lease = rig.now + Duration::from_secs(60);
    assert!(rig.step(Input::Tick).contains(&"start 1: syncall".to_owned()));
    let out = rig.step(Input::Worked(1, Err(Errno::EIO)));
    assert!(out.iter().any(|l| l.starts_with("propose")), "{out:?}");
    assert_eq!(rig.core.brick_mut().unsynced, 1);
}

#[test]
fn a_failing_disk_refuses_nobody_while_others_hold_the_data() {
    let mut rig = Rig::primary(&[2]);
    let out = rig.ask(7, Op::ReadLink { fid: ROOT });
    assert!(out.contains(&"reply 1: busy for 250 ms".to_owned()), "{out:?}");
    assert!(out.iter().any(|l| l.starts_with("propose")), "{out:?}");
    let mut alone = Rig::primary(&[]);
    assert_eq!(alone.ask(7, Op::ReadLink { fid: ROOT }), ["reply 1: input/output error for 250 ms"]);
}

/// The others have all of the change: what is there of it here is not the set's.
#[test]
fn a_change_done_in_part_is_the_history_of_a_brick_that_is_alone_only() {
    for (others, parts) in [(&[2][..], (0, 1)), (&[], (1, 0))] {
        let mut rig = Rig::primary(others);
        rig.core.brick_mut().fails = Some((Errno::ENOSPC, true));
        rig.mkfile(7, "a");
        assert_eq!(rig.core.brick_mut().parts, parts, "with {others:?}: recorded, given up");
        assert_eq!(rig.core.has_failed(), !others.is_empty());
    }
}

#[test]
fn a_set_that_is_read_only_takes_no_changes_but_the_ends_of_transactions() {
    let mut rig = Rig::primary(&[]);
    let settings = rig.settings(ME, [ME].into());
    rig.step(Input::Settings(Settings { read_only: true, ..settings }));
    assert_eq!(rig.mkfile(7, "a"), ["reply 1: read-only file system for 250 ms"]);
    let end = Op::EndTransaction { fid: fid(1, 1), tx: None, keep: true };
    let out = rig.ask(99, end);
    assert!(!out.concat().contains("read-only"), "{out:?}");
    assert!(rig.core.brick_mut().names.is_empty());
}

fn replicate(rig: &Rig, lsn: u64, change: Change) -> PeerMessage {
    let epoch = rig.settings(ME, [ME].into()).view.epoch;
    let (stamp, op) = (Stamp { epoch, lsn: Lsn(lsn) }, OpId::default());
    let body = PeerBody::Replicate { stamp, commit: Lsn(0), op, result_fid: None, change };
    PeerMessage { set: SET, from: BrickId(2), to: ME, epoch, body }
}

/// What the primary has of the object is only to be had by healing.
#[test]
fn a_brick_that_is_told_that_an_object_is_uncertain_leaves_to_heal() {
    let mut rig = Rig::primary(&[]);
    rig.second(2);
    let touch = replicate(&rig, 1, Change::Touch { fid: ROOT });
    assert_eq!(rig.step(Input::Peer(touch, Bytes::new())), ["send 2: failed"]);
    assert!(rig.core.has_failed());
}

/// What a brick says of its journal when it asks to join: up to where its tree is certain, and up to where its journal is.
fn asks_to_join(rig: &mut Rig) -> (Lsn, Lsn) {
    rig.follow(2);
    let sent = rig.messages(Input::Tick);
    match &sent[..] {
        [PeerBody::Join { consistent_to, held, .. }] => (*consistent_to, *held),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_joining_brick_claims_only_what_it_is_certain_of() {
    let mut certain = primary_with(3);
    assert_eq!(asks_to_join(&mut certain), (Lsn(3), Lsn(3)));
    let mut lost_memory = primary_with(3);
    lost_memory.core.brick_mut().uncertain = true;
    lost_memory.core.brick_mut().durable = Lsn(1);
    assert_eq!(asks_to_join(&mut lost_memory), (Lsn(1), Lsn(1)), "what was not on disk may be gone");
    let mut half_healed = primary_with(3);
    half_healed.core.brick_mut().consistent_to = Some(Lsn(2));
    assert_eq!(asks_to_join(&mut half_healed), (Lsn(2), Lsn(3)), "the journal is ahead of the tree");
}

/// A brick that was sent away asks to join, and is accepted; its join's id.
fn healing(rig: &mut Rig) -> u64 {
    rig.follow(2);
    let sent = rig.messages(Input::Tick);
    let [PeerBody::Join { join_id, .. }] = sent[..] else { panic!("{sent:?}") };
    join_id
}

fn accepted(join_id: u64) -> PeerBody {
    PeerBody::JoinAccepted { join_id, common: at(0, 0), agree: Lsn(0), start: at(0, 0), full: false }
}

#[test]
fn a_healing_does_not_end_while_something_is_dirty() {
    let mut rig = Rig::primary(&[]);
    let join_id = healing(&mut rig);
    rig.peer(2, accepted(join_id));
    let caught_up = PeerBody::CaughtUp { join_id, last: at(0, 0), placed: vec![] };
    assert_eq!(rig.peer(2, caught_up), ["start 1: end"]);
    // A change of the meantime does not fit the tree here.
    rig.core.brick_mut().fails = Some((Errno::ENOENT, false));
    let touched = replicate(&rig, 1, Change::DropOrphan { fid: fid(1, 1) });
    rig.step(Input::Peer(touched, Bytes::new()));
    let out = rig.step(Input::Worked(1, Ok(Done::Ended)));
    assert_eq!(out, ["send 2: askobject"], "not: it has healed");
}

#[test]
fn an_answer_of_an_older_epoch_begins_no_healing() {
    let mut rig = Rig::primary(&[]);
    let join_id = healing(&mut rig);
    let older = rig.settings(ME, [ME].into()).view.epoch;
    rig.follow(2);
    let message = PeerMessage { set: SET, from: BrickId(2), to: ME, epoch: older, body: accepted(join_id) };
    assert_eq!(rig.step(Input::Peer(message, Bytes::new())), NONE);
    assert_eq!(rig.core.report(rig.now).heal, None);
}

fn join(join_id: u64, consistent_to: u64, held: u64) -> PeerBody {
    let history = if held > 0 { vec![at(1, held)] } else { vec![] };
    PeerBody::Join { join_id, consistent_to: Lsn(consistent_to), held: Lsn(held), history }
}

/// All that a joining brick is sent, a wake at a time.
fn sent_in_turns(rig: &mut Rig) -> Vec<Vec<PeerBody>> {
    let mut turns = Vec::new();
    while let Some(at) = rig.core.next_wake() {
        rig.now = rig.now.max(at);
        turns.push(rig.messages(Input::Wake));
    }
    turns
}

#[test]
fn a_joining_brick_has_caught_up_when_the_last_slice_is_sent() {
    let mut rig = primary_with(2049);
    rig.peer(2, join(5, 0, 0));
    let sent = sent_in_turns(&mut rig).concat();
    let missed = sent.iter().filter(|m| matches!(m, PeerBody::CatchUp { .. })).count();
    assert_eq!(missed, 2049);
    assert!(matches!(sent.last(), Some(PeerBody::CaughtUp { last, .. }) if last.lsn == Lsn(2049)));
}

/// A clock that began again with the machine gives a later join a smaller id.
#[test]
fn only_the_join_that_was_accepted_last_is_served() {
    let mut rig = primary_with(2);
    rig.peer(2, join(6, 0, 0));
    rig.peer(2, join(5, 0, 0));
    let sent = sent_in_turns(&mut rig).concat();
    let ends = sent
        .iter()
        .filter_map(|m| if let PeerBody::CaughtUp { join_id, .. } = m { Some(*join_id) } else { None });
    assert_eq!(ends.collect::<Vec<_>>(), [5]);
}

#[test]
fn a_journal_that_does_not_reach_back_to_what_is_certain_means_a_full_comparison() {
    for (dropped, is_full) in [(1, false), (2, true)] {
        let mut rig = primary_with(5);
        rig.core.brick_mut().dropped = dropped;
        let epoch = rig.settings(ME, [ME].into()).view.epoch;
        let m = PeerMessage { set: SET, from: BrickId(2), to: ME, epoch, body: join(5, 1, 5) };
        let mut sent = rig.messages(Input::Peer(m, Bytes::new()));
        if is_full {
            assert!(sent.is_empty(), "it looks for what a comparison does not meet first");
            sent = rig.messages(Input::Worked(1, Ok(Done::Placed(vec![]))));
        }
        let [PeerBody::JoinAccepted { common, full, .. }] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!((common.lsn, *full), (Lsn(1), is_full), "without its first {dropped} records");
    }
}

#[test]
fn a_user_whose_permissions_count_is_refused_before_anything_is_decided() {
    let (ann, owner) = (User::of_one_group(1000, 100), User::of_one_group(0, 9));
    let mut rig = primary_with(1);
    let before = rig.core.brick_mut().journal.len();
    assert_eq!(rig.ask_of(ann.clone(), create("b", Node::File)), ["reply 2: permission denied"]);
    assert_eq!(rig.ask_of(ann.clone(), create("b", Node::Dir)), ["reply 3: permission denied"]);
    assert_eq!(
        rig.ask_of(ann.clone(), Op::Unlink { parent: ROOT, name: name("0") }),
        ["reply 4: permission denied"]
    );
    let across = Op::MoveIn {
        from: SetId(2),
        parent: Fid { set: SetId(2), ..ROOT },
        name: name("x"),
        to_parent: ROOT,
        to_name: name("y"),
        flags: 0,
    };
    assert_eq!(rig.ask_of(ann, across), ["reply 5: permission denied"]);
    assert_eq!(rig.core.brick_mut().journal.len(), before);
    rig.ask_of(owner, create("b", Node::File));
    let made = rig.core.brick_mut().journal.last().unwrap().body.clone();
    assert!(matches!(made, Change::Create { uid: 0, gid: 9, .. }), "not as the client says: {made:?}");
}
