//! The edges of the rules: one position, one moment or one brick further they would not hold.

use crate::common::{Rig, entry, fid, op, stamp};
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn};
use replica::{Admission, Input, Message, Role, SyncToken};

#[test]
fn a_read_waits_for_the_newest_change_of_an_object() {
    let mut a = Rig::primary(1, &[1, 2]);
    for (ticket, lsn) in [(5, 1), (6, 2)] {
        a.decide(ticket, 9);
        a.applied(lsn);
    }
    assert_eq!(a.ack(2, 1, 1), ["complete 5"]);
    assert!(a.reply_when_committed(7, 9).is_empty(), "its newest change is on one brick only");
    assert_eq!(a.ack(2, 1, 2), ["complete 6", "complete 7"]);
}

#[test]
fn a_read_of_several_objects_waits_for_all_of_them() {
    let mut a = Rig::primary(1, &[1, 2]);
    for (ticket, object, lsn) in [(5, 8, 1), (6, 9, 2)] {
        a.decide(ticket, object);
        a.applied(lsn);
    }
    assert!(a.give(Input::ReadReply { ticket: 7, objects: vec![fid(8), fid(9)] }).is_empty());
    assert_eq!(a.ack(2, 1, 1), ["complete 5"]);
    assert_eq!(a.ack(2, 1, 2), ["complete 6", "complete 7"]);
}

#[test]
fn a_lease_ends_at_its_end() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    a.applied(1);
    a.now = Duration::from_secs(3600);
    assert!(!a.replica.lease_holds(a.now));
    assert_eq!(a.admit(1, 0), Admission::Busy);
    assert!(a.ack(2, 1, 1).is_empty());
    a.now += Duration::from_secs(100);
    assert!(a.give(Input::Lease(a.now - Duration::from_secs(1))).is_empty(), "it is over again");
    assert_eq!(a.give(Input::Lease(a.now + Duration::from_secs(1))), ["complete 5"]);
}

#[test]
fn a_change_of_an_older_epoch_after_a_newer_one_does_not_belong_to_this_history() {
    let mut b = Rig::new(2);
    b.view(2, 1, &[1, 2]);
    assert_eq!(b.replicate(1, 2, entry(2, 1, 9)), ["apply 2.1"]);
    assert_eq!(b.replicate(1, 2, entry(1, 2, 9)), ["diverged"]);
    assert_eq!(b.replica.role(), Role::Failed);
}

/// Brick 2 healed from brick 1, which then lost its journal's end in a power cut and has another one now. That brick 2 has to
/// join again was lost on the way.
#[test]
fn a_brick_that_has_healed_does_not_follow_a_primary_whose_journal_parted_from_its_own() {
    for (lsn, parted) in [(1, false), (2, true), (3, false)] {
        let mut b = Rig::new(2);
        b.view(2, 1, &[1]);
        b.give(Input::Joined { join_id: 4, start: stamp(0, 0), full: false });
        b.replicate(1, 2, entry(2, 1, 9));
        b.replicate(1, 2, entry(2, 2, 9));
        b.applied(1);
        b.applied(2);
        b.give(Input::Healed);
        b.view(3, 1, &[1]);
        let epoch = if lsn == 1 { 2 } else { 3 };
        let out = b.replicate(1, 3, entry(epoch, lsn, 9));
        assert_eq!(out.contains(&"diverged".to_owned()), parted, "{lsn}: {out:?}");
    }
}

#[test]
fn a_secondary_does_not_sync_what_it_has_but_did_not_apply() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2]);
    b.replicate(1, 1, entry(1, 1, 9));
    assert!(b.peer(1, 1, Message::Sync { ticket: 5, lsn: Lsn(1), fid: None }).is_empty());
    assert_eq!(b.applied(1).len(), 2, "an acknowledgement and the sync");
}

/// A brick joins a primary that is alone, up to the moment at which it has everything.
fn joining(brick: u32) -> Rig {
    let mut a = Rig::primary(1, &[1]);
    a.give(Input::Joining { brick: BrickId(brick), join_id: 4 });
    a.give(Input::JoinerCaughtUp(BrickId(brick)));
    a
}

/// The ticket of the sync that the primary asks of a joining brick.
fn asked_to_sync(out: &[String]) -> u64 {
    let [sync] = out else { panic!("{out:?}") };
    let ticket = sync.split(' ').nth(1).and_then(|ticket| ticket.parse().ok());
    ticket.unwrap_or_else(|| panic!("{out:?}"))
}

#[test]
fn a_brick_that_has_healed_syncs_once_more_before_it_is_let_in() {
    let mut a = joining(3);
    let ticket = asked_to_sync(&a.peer(3, 1, Message::Healed { join_id: 4, lsn: Lsn(0) }));
    assert_eq!(a.peer(3, 1, Message::Synced { ticket, errno: 0 }), ["propose Some(1) of [1, 3] after 1"]);
}

#[test]
fn a_brick_that_has_healed_is_not_let_in_behind_what_was_answered() {
    let mut a = joining(3);
    a.decide(5, 9);
    assert_eq!(a.applied(1), ["replicate 1.1 to 3 in 1", "complete 5"]);
    let ticket = asked_to_sync(&a.peer(3, 1, Message::Healed { join_id: 4, lsn: Lsn(0) }));
    assert!(a.peer(3, 1, Message::Synced { ticket, errno: 0 }).is_empty(), "it has not change 1");
    a.ack(3, 1, 1);
    let again = a.peer(3, 1, Message::Healed { join_id: 4, lsn: Lsn(1) });
    assert_eq!(again, ["propose Some(1) of [1, 3] after 1"]);
}

#[test]
fn only_the_last_join_of_a_brick_counts() {
    let mut a = joining(3);
    assert!(a.peer(3, 1, Message::Healed { join_id: 3, lsn: Lsn(0) }).is_empty(), "an earlier join");
    assert!(!a.replica.is_joiner(BrickId(3)));
}

#[test]
fn a_brick_that_was_proposed_and_left_ends_the_epoch() {
    let mut a = joining(3);
    let ticket = asked_to_sync(&a.peer(3, 1, Message::Healed { join_id: 4, lsn: Lsn(0) }));
    a.peer(3, 1, Message::Synced { ticket, errno: 0 });
    assert!(!a.replica.may_join(BrickId(3)));
    a.now += Duration::from_secs(60);
    let out = a.give(Input::LinkUp(BrickId(3)));
    assert_eq!(out, ["propose Some(1) of [1] after 1"], "the view with it may come at any time");
    // Until a new epoch no answer leaves without it.
    assert_eq!(a.decide(5, 9), ["apply 1.1"]);
    assert!(a.applied(1).iter().all(|o| !o.starts_with("release")));
    assert_eq!(a.view(2, 1, &[1]), ["complete 5"]);
}

#[test]
fn a_change_that_a_joining_brick_was_sent_is_not_this_bricks_alone() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.give(Input::Joining { brick: BrickId(3), join_id: 1 });
    a.give(Input::JoinerCaughtUp(BrickId(3)));
    assert!(a.decide(5, 9).contains(&"replicate 1.1 to 3 in 1".to_owned()));
    a.view(2, 1, &[1]);
    assert!(!a.replica.alone_has(Lsn(1)));
}

#[test]
fn alone_a_change_goes_to_joining_bricks_only_when_it_is_done() {
    let mut a = joining(3);
    assert_eq!(a.decide(5, 9), ["apply 1.1"]);
    assert_eq!(a.applied(1), ["replicate 1.1 to 3 in 1", "complete 5"]);
}

#[test]
fn a_withdrawn_change_is_forgotten_with_its_result() {
    let mut a = Rig::primary(1, &[1]);
    a.decide(5, 9);
    a.apply_failed(1);
    a.decide(6, 9);
    a.applied(1);
    assert_eq!(a.admit(1, 5), Admission::Go, "another operation has its position now");
}

#[test]
fn what_two_journals_have_in_common_is_bounded_by_both_and_by_the_tree() {
    let mut a = Rig::primary(1, &[1]);
    for lsn in 1..=8 {
        a.decide(10 + lsn, 9);
        a.applied(lsn);
    }
    let common = |tree, history: &[_]| a.replica.common_with(Lsn(tree), history);
    assert_eq!(common(9, &[stamp(1, 5)]), stamp(1, 5));
    assert_eq!(common(9, &[stamp(1, 12)]), stamp(1, 8), "this one's end");
    assert_eq!(common(3, &[stamp(1, 5)]), stamp(1, 3), "the other's tree");
    assert_eq!(common(9, &[stamp(2, 5)]), stamp(0, 0), "another history");
}

#[test]
fn a_brick_that_goes_back_forgets_what_it_did_beyond() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2]);
    for lsn in 1..=3 {
        b.replicate(1, 1, entry(1, lsn, 9));
        b.applied(lsn);
    }
    b.view(2, 1, &[1]);
    b.give(Input::Joined { join_id: 1, start: stamp(1, 1), full: false });
    b.give(Input::Healed);
    b.view(3, 2, &[2]);
    assert!(matches!(b.admit(3, 1), Admission::Done(_)));
    assert_eq!(b.admit(3, 3), Admission::Go, "it never was");
}

#[test]
fn a_brick_that_is_uncertain_proposes_to_leave() {
    let mut b = Rig::with_journal(2, 0, stamp(1, 4));
    b.replica.set_uncertain(false);
    let out = b.view(2, 2, &[1, 2]);
    assert_eq!((b.replica.role(), out), (Role::Idle, vec![]));
    assert_eq!(b.tick(1), ["propose Some(1) of [1] after 2"]);
}

#[test]
fn a_new_primary_waits_for_the_word_of_all() {
    let mut b = Rig::with_journal(2, 0, stamp(1, 4));
    b.view(2, 2, &[2, 3, 4]);
    let report = || Message::StateReport { last: stamp(1, 4), durable: Lsn(0), kept: Lsn(4) };
    b.peer(3, 2, report());
    assert_eq!(b.replica.role(), Role::Reconciling);
    b.peer(4, 2, report());
    assert_eq!(b.replica.role(), Role::Primary);
}

#[test]
fn a_new_primary_serves_only_when_nobody_lacks_anything() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2, 3, 4]);
    b.replicate(1, 1, entry(1, 1, 9));
    b.applied(1);
    b.view(2, 2, &[2, 3, 4]);
    let behind = || Message::StateReport { last: stamp(0, 0), durable: Lsn(0), kept: Lsn(0) };
    b.peer(3, 2, Message::StateReport { last: stamp(1, 1), durable: Lsn(0), kept: Lsn(0) });
    assert_eq!(b.peer(4, 2, behind()), ["replicate 1.1 to 4 in 2"]);
    assert_eq!(b.replica.role(), Role::Reconciling, "one is behind");
    b.ack(4, 2, 1);
    assert_eq!(b.replica.role(), Role::Primary);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_says_nothing() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2, 3, 4]);
    b.replicate(1, 1, entry(1, 1, 9));
    b.applied(1);
    b.view(2, 2, &[2, 3, 4]);
    b.peer(3, 2, Message::StateReport { last: stamp(0, 0), durable: Lsn(0), kept: Lsn(0) });
    b.ack(3, 2, 1);
    b.peer(4, 2, Message::StateReport { last: stamp(1, 1), durable: Lsn(0), kept: Lsn(0) });
    assert_eq!(b.replica.role(), Role::Reconciling, "brick 3 was sent nothing when it spoke");
}

#[test]
fn a_sync_that_a_broken_connection_took_is_asked_for_again_once_it_is_back() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    a.applied(1);
    a.give(Input::Sync { ticket: 6, fid: Some(fid(9)) });
    a.give(Input::Synced { token: SyncToken::Local(6), errno: 0 });
    let out = a.give(Input::LinkUp(BrickId(2)));
    assert_eq!(out, ["replicate 1.1 to 2 in 1", "sync 6 at 1 to 2"]);
}

#[test]
fn an_operation_of_an_older_epoch_is_answered_if_it_was_done_and_not_begun_if_not() {
    let mut a = Rig::primary(1, &[1]);
    a.decide(5, 9);
    a.applied(1);
    a.view(2, 1, &[1]);
    assert!(matches!(a.replica.admit(a.now, Epoch(1), op(5), 0), Admission::Done(_)));
    assert_eq!(a.replica.admit(a.now, Epoch(1), op(6), 0), Admission::WrongView(Epoch(2)));
}
