//! Requests and answers, told as scripts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT};
use crate::common::{self, Rig, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use set_core::{Done, Input, Settings};
use std::collections::BTreeSet;
use std::time::Duration;
use wire::limits::GETATTRS_MAX;
use wire::op::{Intent, Node};
use wire::{Change, Errno, Op};

const NONE: [&str; 0] = [];

#[test]
fn a_change_goes_out_before_it_is_made_here_and_is_answered_when_all_have_it() {
    let mut rig = Rig::primary(&[2]);
    assert_eq!(rig.mkfile(7, "a"), ["send 2: replicate"]);
    assert_eq!(rig.core.brick_mut().journal.len(), 1);
    assert_eq!(rig.ack(2, 1), ["reply 1: attr 1.1.1 for 250 ms"]);
    assert_eq!(rig.ask_as(7, 1, common::create("a", Node::File)), ["reply 1: attr 1.1.1"], "once");
    assert_eq!(rig.core.brick_mut().journal.len(), 1);
}

#[test]
fn what_is_answered_is_on_all_bricks() {
    let mut rig = Rig::primary(&[2]);
    rig.mkfile(7, "a");
    assert_eq!(rig.ask(7, Op::Lookup { parent: ROOT, name: name("a") }), NONE, "it shows the change");
    let answers = rig.ack(2, 1);
    assert_eq!(answers, ["reply 1: attr 1.1.1 for 250 ms", "reply 2: attr 1.1.1 for 250 ms"]);
}

#[test]
fn an_answer_does_not_leave_when_the_lease_ran_out_during_the_change() {
    let mut rig = Rig::primary(&[]);
    rig.slow = Duration::from_secs(100);
    assert_eq!(rig.mkfile(7, "a"), NONE);
    rig.slow = Duration::ZERO;
    rig.lease = rig.now + Duration::from_secs(60);
    assert_eq!(rig.step(Input::Tick)[0], "reply 1: attr 1.1.1 for 250 ms");
}

#[test]
fn a_change_waits_for_what_another_session_was_granted() {
    let mut rig = Rig::primary(&[]);
    let gone = || Op::Lookup { parent: ROOT, name: name("x") };
    assert_eq!(rig.ask(7, gone()), ["reply 1: no such file or directory for 250 ms"]);
    assert_eq!(rig.mkfile(8, "x"), NONE);
    assert_eq!(rig.core.next_wake(), Some(rig.now + Duration::from_millis(250)));
    assert_eq!(rig.ask(7, gone()), ["reply 3: no such file or directory"], "nothing is granted any more");
    assert_eq!(rig.wake(), ["reply 2: attr 1.1.1"]);
}

/// Directories change their sets from this level of the pool on: who asks the one that had it hears where it is.
#[test]
fn a_set_with_a_copy_of_a_directory_says_whose_it_is() {
    let far = Fid { set: SetId(2), epoch: Epoch(1), lsn: Lsn(5) };
    let names = [((ROOT, name("d")), (far, SetId(2)))].into();
    let mut rig = Rig::with(Memory { names, ..Memory::default() }, &[]);
    let told = rig.ask(7, Op::GetAttr { fid: far });
    assert!(told[0].contains("stale"), "{told:?}");
    let settings = rig.settings(common::ME, [common::ME].into());
    rig.step(Input::Settings(Settings { level: 6, ..settings }));
    let told = rig.ask(7, Op::GetAttr { fid: far });
    assert!(told[0].contains("elsewhere") && told[0].contains("home: setid(2)"), "{told:?}");
    let told = rig.ask(7, Op::GetAttr { fid: Fid { lsn: Lsn(6), ..far } });
    assert!(told[0].contains("stale"), "{told:?}");
}

#[test]
fn a_request_on_a_connection_that_was_given_up_is_not_begun() {
    let mut rig = Rig::primary(&[]);
    assert_eq!(rig.ask_as(7, 0, common::create("a", Node::File)), NONE);
    assert!(rig.core.brick_mut().journal.is_empty());
}

#[test]
fn syncs_asked_for_together_are_one_round() {
    let mut rig = Rig::primary(&[]);
    let fsync = Op::Fsync { fid: ROOT };
    assert_eq!(rig.ask(7, fsync.clone()), NONE);
    assert_eq!((rig.ask(7, fsync.clone()), rig.ask(7, fsync)), (vec![], vec![]));
    let started = rig.wake();
    assert!(started.len() == 1 && started[0].starts_with("start 1: sync("), "{started:?}");
    let answers = rig.step(Input::Worked(1, Ok(Done::Synced(Lsn(0)))));
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert_eq!(rig.step(Input::Worked(1, Ok(Done::Synced(Lsn(0))))), NONE, "a ticket counts once");
}

/// The kernel asks for them before the next change; what they are is known from the entries, in memory.
#[test]
fn a_rename_tells_each_directory_that_it_touched_once() {
    let object = |lsn| Fid { epoch: Epoch(1), lsn: Lsn(lsn), ..ROOT };
    let (file, dir, to) = (object(51), object(52), object(53));
    let copy = Fid { set: SetId(2), ..object(54) };
    let of = |fid: Fid| (fid, fid.set);
    let names = [("f", file), ("d", dir), ("t", to), ("c", copy)];
    let names = names.map(|(n, fid)| ((ROOT, name(n)), of(fid))).into();
    let mut rig = Rig::with(Memory { names, files: [file].into(), ..Memory::default() }, &[]);
    let mut rename = |from: (Fid, &str), to: (Fid, &str), flags| {
        let (name, to_name) = (name(from.1), name(to.1));
        rig.told(7, Op::Rename { parent: from.0, name, to_parent: to.0, to_name, flags })
    };
    assert_eq!(rename((ROOT, "f"), (ROOT, "g"), 0), [ROOT]);
    assert_eq!(rename((ROOT, "g"), (to, "f"), 0), [ROOT, to]);
    assert_eq!(rename((ROOT, "d"), (ROOT, "e"), 0), [ROOT, dir]);
    assert_eq!(rename((ROOT, "c"), (ROOT, "b"), 0), [ROOT], "another set answers for it");
    assert_eq!(rename((ROOT, "e"), (to, "f"), 2), [ROOT, to, dir], "an exchange");
}

/// A power cut of all may have taken a file that somebody still holds: that must not pass for synced.
#[test]
fn a_file_that_is_gone_is_not_synced() {
    let mut rig = Rig::primary(&[]);
    let gone = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(9) };
    let out = rig.ask(7, Op::Fsync { fid: gone });
    assert!(out.len() == 1 && out[0].contains("stale file handle"), "{out:?}");
}

#[test]
fn a_brick_whose_sync_fails_leaves() {
    let mut rig = Rig::primary(&[2]);
    rig.ask(7, Op::SyncFs);
    assert_eq!(rig.wake(), ["start 1: syncall"]);
    let out = rig.step(Input::Worked(1, Err(Errno::EIO)));
    assert!(out.iter().any(|l| l.starts_with("propose")), "{out:?}");
}

/// The tree and the journal are in memory: they are there also when the disk is dead.
#[test]
fn a_disk_is_looked_at_by_a_sync_of_everything_although_nothing_has_changed() {
    let mut rig = Rig::primary(&[2]);
    assert_eq!(rig.core.report(Duration::ZERO).disk_answered, None);
    assert_eq!(rig.step(Input::LookAtDisk), ["start 1: syncall"]);
    assert_eq!(rig.step(Input::LookAtDisk), NONE, "one is under way");
    rig.now += Duration::from_secs(9);
    let ended = rig.now;
    rig.step(Input::Worked(1, Ok(Done::Synced(Lsn(0)))));
    assert_eq!(rig.core.report(ended).disk_answered, Some(ended));
    assert_eq!(rig.step(Input::LookAtDisk), ["start 2: syncall"]);
    let out = rig.step(Input::Worked(2, Err(Errno::EIO)));
    assert_eq!(rig.core.report(ended).disk_answered, Some(ended));
    assert!(out.iter().any(|l| l.starts_with("propose")), "it leaves, as after any failed sync: {out:?}");
}

/// On a dead disk even the attributes that are written before a sync fail, again and again: the brick does not stay in sync.
/// On a full one they fit later.
#[test]
fn a_brick_that_cannot_write_attributes_leaves_unless_its_disk_is_full() {
    for (others, e, leaves) in
        [(&[2][..], Errno::EIO, true), (&[2], Errno::ENOSPC, false), (&[], Errno::EIO, false)]
    {
        let mut rig = Rig::primary(others);
        rig.core.brick_mut().flush_fails = Some(e);
        let out = rig.step(Input::LookAtDisk);
        assert_eq!(out.iter().any(|l| l.starts_with("propose")), leaves, "{others:?} {e}: {out:?}");
        assert_eq!(rig.core.has_failed(), leaves);
        if !leaves {
            rig.core.brick_mut().flush_fails = None;
            assert_eq!(rig.step(Input::LookAtDisk), ["start 1: syncall"], "it is tried again");
        }
    }
}

#[test]
fn the_stale_set_ends_when_all_was_announced_and_is_on_disk() {
    let some = |n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
    let brick = Memory { stale_objects: Some(vec![some(1), some(2)]), ..Memory::default() };
    let mut rig = Rig::with(brick, &[]);
    assert_eq!(rig.step(Input::Tick), ["start 1: end"]);
    assert_eq!(rig.core.brick_mut().journal.len(), 2);
    assert_eq!(rig.step(Input::Worked(1, Err(Errno::EIO))).len(), 0);
    assert!(rig.core.brick_mut().stale_objects.is_some());
    let again = rig.step(Input::Tick);
    assert_eq!(again, ["start 2: end"], "told once more");
    rig.step(Input::Worked(2, Ok(Done::Ended)));
    assert!(rig.core.brick_mut().stale_objects.is_none());
}

/// A power cut may leave a million of them.
#[test]
fn stale_objects_are_announced_in_turns_and_clients_are_served_between() {
    let some = |n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
    let brick = Memory { stale_objects: Some((1..=5).map(some).collect()), ..Memory::default() };
    let mut rig = Rig::with(brick, &[]);
    rig.slow = Duration::from_millis(1);
    rig.step(Input::Tick);
    let mut turns = 1;
    while rig.core.next_wake().is_some() {
        assert!(rig.core.brick_mut().journal.len() <= 2 * turns, "one at a time");
        assert_eq!(rig.mkfile(7, &format!("f{turns}")).len(), 1);
        if rig.wake() == ["start 1: end"] {
            break;
        }
        turns += 1;
    }
    let told = |e: &&replica::LogEntry<Change>| matches!(e.body, Change::Touch { .. });
    let told: BTreeSet<Fid> =
        rig.core.brick_mut().journal.iter().filter(told).flat_map(|e| e.body.touched()).collect();
    assert_eq!((told, turns), ((1..=5).map(some).collect(), 5));
}

/// What could not be journaled is told once more.
#[test]
fn an_announcement_that_fails_begins_anew() {
    let some = |n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
    let brick = Memory { stale_objects: Some(vec![some(1), some(2)]), ..Memory::default() };
    let mut rig = Rig::with(brick, &[]);
    rig.core.brick_mut().fails = Some((Errno::ENOSPC, false));
    assert!(!rig.step(Input::Tick).contains(&"start 1: end".to_owned()));
    rig.core.brick_mut().fails = None;
    assert_eq!(rig.step(Input::Tick), ["start 1: end"]);
    assert_eq!(rig.core.brick_mut().journal.len(), 2);
}

#[test]
fn what_a_resend_or_a_listing_shows_is_on_all_bricks() {
    let mut rig = Rig::primary(&[2]);
    rig.mkfile(7, "a");
    rig.ack(2, 1);
    rig.mkfile(7, "b");
    assert_eq!(
        rig.ask_as(7, 1, common::create("a", Node::File)),
        NONE,
        "the object may be newer than the change"
    );
    assert_eq!(rig.ask(7, Op::ReadDir { fid: ROOT, cookie: 0, plus: false }), NONE);
    assert_eq!(rig.ack(2, 2).len(), 3);
}

#[test]
fn what_is_said_in_an_older_epoch_about_open_files_and_syncs_is_not_heard() {
    let mut rig = Rig::primary(&[]);
    rig.lead(&[]);
    let ops = [Op::Fsync { fid: ROOT }, Op::SyncFs, Op::Open { fid: ROOT }, Op::Release { fid: ROOT }];
    for (seq, op) in (1..).zip(ops) {
        let granted = if matches!(op, Op::Fsync { .. } | Op::SyncFs) { "" } else { " for 250 ms" };
        let out = rig.ask_in(1, 7, seq, op);
        assert_eq!(out, [format!("reply {seq}: wrongview {{ epoch: epoch(2) }}{granted}")]);
    }
}

/// Sets have each other sync: whoever is alone stays alone, and what the others do next waits for nobody who asked for one.
#[test]
fn who_has_all_brought_to_disk_is_granted_nothing_and_ends_nobodys_grants() {
    let mut rig = Rig::primary(&[]);
    assert_eq!(rig.ask(88, Op::SyncFs), NONE);
    assert_eq!(rig.mkfile(7, "a"), ["reply 2: attr 1.1.1 for 250 ms"], "at once");
    assert_eq!(rig.ask(88, Op::SyncFs), NONE);
    assert_eq!(rig.mkfile(7, "b"), ["reply 4: attr 1.1.2 for 250 ms"], "it is alone");
}

#[test]
fn a_new_primary_waits_for_what_its_predecessor_granted() {
    let mut rig = Rig::primary(&[]);
    rig.follow(2);
    rig.now += Duration::from_secs(10);
    rig.lead(&[]);
    assert_eq!(rig.mkfile(7, "a"), NONE);
    assert_eq!(rig.core.next_wake(), Some(rig.now + Duration::from_millis(250)));
}

#[test]
fn a_failed_sync_is_recorded_on_the_brick() {
    let mut rig = Rig::primary(&[2]);
    rig.ask(7, Op::SyncFs);
    rig.wake();
    rig.step(Input::Worked(1, Err(Errno::EIO)));
    assert_eq!((rig.core.brick_mut().unsynced, rig.core.brick_mut().written_again), (1, 0));
}

#[test]
fn what_the_only_brick_could_not_sync_is_written_again() {
    let mut rig = Rig::primary(&[]);
    rig.ask(7, Op::SyncFs);
    rig.wake();
    let out = rig.step(Input::Worked(1, Err(Errno::EIO)));
    assert!(out.iter().any(|l| l.contains("reply")), "{out:?}");
    assert_eq!((rig.core.brick_mut().unsynced, rig.core.brick_mut().written_again), (0, 1));
}

/// A brick was opened while its disk refused writes, say.
#[test]
fn what_could_not_be_written_again_is_tried_once_more_before_a_sync() {
    for (syncs_fail, tried) in [(0, 0), (1, 1), (2, 1)] {
        let mut rig = Rig::with(Memory { syncs_fail, ..Memory::default() }, &[]);
        rig.ask(7, Op::SyncFs);
        let mut begun = rig.wake();
        while begun.is_empty() {
            begun = rig.wake();
        }
        assert_eq!((begun, rig.core.brick_mut().written_again), (vec!["start 1: syncall".to_owned()], tried));
    }
    let mut rig = Rig::with(Memory { syncs_fail: 1, ..Memory::default() }, &[2]);
    rig.ask(7, Op::SyncFs);
    rig.wake();
    assert_eq!(rig.core.brick_mut().written_again, 0, "another brick has it, and this one leaves");
}

/// It may be very much.
#[test]
fn it_is_written_again_in_turns_and_clients_are_served_between_but_for_their_syncs() {
    let mut rig = Rig::with(Memory { much_unsynced: 3, ..Memory::default() }, &[]);
    rig.ask(7, Op::SyncFs);
    rig.wake();
    rig.slow = Duration::from_millis(1);
    rig.step(Input::Worked(1, Err(Errno::EIO)));
    assert_eq!(rig.core.brick_mut().written_again, 1, "one turn");
    assert_eq!(rig.mkfile(7, "a").len(), 1);
    rig.ask(7, Op::SyncFs);
    let mut begun = Vec::new();
    while begun.is_empty() {
        assert!(rig.core.brick_mut().written_again <= 3);
        begun = rig.wake();
    }
    assert_eq!((begun, rig.core.brick_mut().written_again), (vec!["start 2: syncall".to_owned()], 3));
}

/// Somebody else may have moved or removed the entry since: nothing of it may be kept.
#[test]
fn what_was_made_and_removed_since_is_answered_as_made() {
    let mut rig = Rig::primary(&[]);
    let target = wire::codec::Blob(b"to".to_vec());
    let make = || common::create("a", Node::Symlink { target: target.clone() });
    assert_eq!(rig.ask_as(7, 2, make()), ["reply 2: attr 1.1.1 for 250 ms"]);
    rig.now += Duration::from_secs(1);
    rig.ask_as(8, 1, Op::Unlink { parent: ROOT, name: name("a") });
    rig.now += Duration::from_secs(1);
    assert_eq!(rig.ask_as(7, 2, make()), ["reply 2: attr 1.1.1"]);
    assert_eq!(rig.core.brick_mut().journal.len(), 2, "it is not made again");
    rig.core.brick_mut().journal.remove(0);
    assert_eq!(rig.ask_as(7, 2, make()), ["reply 2: attr 1.1.1"], "the journal does not reach back to it");
}

/// `ESTALE` would have the kernel of the client try again, with whatever has the name now.
#[test]
fn a_link_whose_file_is_gone_since_is_answered_as_done() {
    let mut rig = Rig::primary(&[]);
    let (file, link) = (Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) }, name("b"));
    rig.ask_as(7, 1, common::create("a", Node::File));
    let link = || Op::Link { fid: file, parent: ROOT, name: link.clone() };
    assert_eq!(rig.ask_as(7, 2, link()), ["reply 2: attr 1.1.1 for 250 ms"]);
    rig.now += Duration::from_secs(1);
    rig.ask_as(8, 1, Op::Unlink { parent: ROOT, name: name("a") });
    assert_eq!(rig.ask_as(7, 2, link()), ["reply 2: attr 1.1.1"], "it has the new name");
    rig.now += Duration::from_secs(1);
    rig.ask_as(8, 2, Op::Unlink { parent: ROOT, name: name("b") });
    assert_eq!(rig.ask_as(7, 2, link()), ["reply 2: done"]);
}

/// Each name of a page may lead to something that has to be read from the disk.
#[test]
fn what_a_page_of_names_leads_to_is_read_on_another_thread_first() {
    for plus in [false, true] {
        let mut rig = Rig::with(Memory { cold: true, ..Memory::default() }, &[]);
        assert_eq!(rig.ask(7, Op::ReadDir { fid: ROOT, cookie: 0, plus }), ["start 1: page"]);
        assert_eq!(rig.mkfile(7, "a").len(), 1, "others are answered meanwhile");
        assert!(rig.step(Input::Worked(1, Ok(Done::Listed)))[0].starts_with("reply 1: page"));
        assert_eq!(rig.core.brick_mut().longest_page, 32 << 10, "a short one");
        rig.core.brick_mut().cold = false;
        rig.ask(7, Op::ReadDir { fid: ROOT, cookie: 0, plus });
        assert_eq!(rig.core.brick_mut().longest_page, 256 << 10);
    }
}

/// A healing may have moved a million objects there.
#[test]
fn the_heal_trash_is_forgotten_in_turns_and_clients_are_served_between() {
    let brick = Memory { stale_objects: Some(vec![]), trash: 3, ..Memory::default() };
    let mut rig = Rig::with(brick, &[]);
    assert_eq!(rig.step(Input::Tick), ["start 1: trash"]);
    assert_eq!(rig.mkfile(7, "a").len(), 1);
    rig.slow = Duration::from_millis(1);
    let found = (1..=3).map(|n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }).collect();
    rig.step(Input::Worked(1, Ok(Done::Hidden(found))));
    assert_eq!(rig.core.brick_mut().trash, 2, "one turn");
    assert_eq!(rig.mkfile(7, "b").len(), 1);
    assert_eq!(rig.wake(), NONE);
    assert_eq!(rig.core.brick_mut().trash, 1);
    while rig.wake() != ["start 2: end"] {}
    assert_eq!(rig.core.brick_mut().trash, 0);
}

fn attributes_of(fids: impl IntoIterator<Item = u64>) -> Op {
    let object = |lsn| Fid { epoch: Epoch(1), lsn: Lsn(lsn), ..ROOT };
    Op::GetAttrs { fids: fids.into_iter().map(object).collect() }
}

#[test]
fn attributes_of_several_objects_are_of_those_that_are_there_and_wait_for_their_changes() {
    let mut rig = Rig::primary(&[2]);
    rig.mkfile(7, "a");
    rig.ack(2, 1);
    rig.mkfile(7, "b");
    assert_eq!(rig.ask(7, attributes_of([9, 1])), ["reply 3: attrs [1.1.1] for 250 ms"]);
    assert_eq!(rig.ask(7, attributes_of([2, 9, 1])), NONE, "it shows the change");
    assert_eq!(rig.ack(2, 2)[1], "reply 4: attrs [1.1.2, 1.1.1] for 250 ms");
    assert_eq!(rig.ask(7, attributes_of([])), ["reply 5: attrs [] for 250 ms"]);
    let too_many = rig.ask(7, attributes_of(0..=GETATTRS_MAX as u64));
    assert!(too_many[0].starts_with("reply 6: invalid argument"), "{too_many:?}");
}

#[test]
fn a_file_that_is_about_to_lose_a_name_is_left_out_of_several() {
    let mut rig = Rig::primary(&[]);
    rig.mkfile(7, "a");
    rig.mkfile(7, "b");
    let marked = Fid { epoch: Epoch(1), lsn: Lsn(1), ..ROOT };
    let tx = OpId { session: SessionId(9), seq: 1 };
    let intent = Intent { tx, coordinator: SetId(2), drop: None, add: None };
    rig.core.brick_mut().marked.insert(marked, intent);
    assert_eq!(rig.ask(7, attributes_of([1, 2])), ["reply 3: attrs [1.1.2] for 250 ms"]);
}

/// Each of them may be a seek of a disk.
#[test]
fn an_answer_about_several_objects_reads_few_of_them_from_the_disk() {
    let mut rig = Rig::primary(&[]);
    for n in 0..40 {
        rig.mkfile(7, &format!("f{n}"));
    }
    let mut told = |cold| {
        rig.core.brick_mut().cold = cold;
        let out = rig.ask(7, attributes_of(1..=40));
        out.first().map(|line| line.matches("1.1.").count())
    };
    assert_eq!((told(true), told(false)), (Some(16), Some(40)));
}

/// A listing asks for them though perhaps only names are wanted.
#[test]
fn who_asks_for_attributes_of_several_objects_ends_nobodys_grants() {
    let mut rig = Rig::primary(&[]);
    assert_eq!(rig.mkfile(7, "a"), ["reply 1: attr 1.1.1 for 250 ms"]);
    assert_eq!(rig.ask(8, attributes_of([1])), ["reply 2: attrs [1.1.1]"]);
    assert_eq!(rig.mkfile(7, "b"), ["reply 3: attr 1.1.2 for 250 ms"]);
    rig.now += Duration::from_secs(6);
    rig.lease = rig.now + Duration::from_secs(60);
    assert_eq!(rig.ask(8, attributes_of([1])), ["reply 4: attrs [1.1.1] for 250 ms"], "it is alone now");
}
