//! The replication core, input by input.

use crate::common::{self, Rig, entry, fid, op, stamp};
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn};
use replica::limits::{ACK_TIMEOUT, RESEND, SYNC_RESEND};
use replica::{Admission, Input, Message, Outcome, Role, SyncToken};

fn ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[test]
fn a_brick_alone_answers_when_it_has_applied() {
    let mut a = Rig::primary(1, &[1]);
    assert_eq!(a.decide(5, 9), ["apply 1.1"]);
    assert_eq!(a.applied(1), ["complete 5"]);
    assert_eq!(a.replica.commit(), Lsn(1));
}

#[test]
fn an_answer_waits_for_every_brick_in_sync() {
    for (in_sync, others) in [(&[1, 2][..], &[2][..]), (&[1, 2, 3], &[2, 3])] {
        let mut a = Rig::primary(1, in_sync);
        let sent = a.decide(5, 9);
        assert_eq!(sent.len(), in_sync.len());
        assert!(others.iter().all(|b| sent.contains(&format!("replicate 1.1 to {b} in 1"))));
        assert!(a.applied(1).is_empty());
        let (last, first) = others.split_last().unwrap();
        assert!(first.iter().all(|b| a.ack(*b, 1, 1).is_empty()));
        assert_eq!(a.ack(*last, 1, 1), ["complete 5"]);
    }
    // The primary itself may be the last.
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    assert!(a.ack(2, 1, 1).is_empty());
    assert_eq!(a.applied(1), ["complete 5"]);
}

#[test]
fn changes_are_answered_in_order() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 8);
    a.decide(6, 9);
    a.applied(1);
    a.applied(2);
    assert_eq!(a.ack(2, 1, 2), ["complete 5", "complete 6"]);
}

#[test]
fn a_read_waits_for_what_it_shows_and_for_nothing_else() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    a.applied(1);
    assert!(a.reply_when_committed(6, 9).is_empty());
    assert_eq!(a.reply_when_committed(7, 8), ["complete 7"]);
    assert_eq!(a.ack(2, 1, 1), ["complete 5", "complete 6"]);
    assert_eq!(a.reply_when_committed(8, 9), ["complete 8"]);
}

#[test]
fn a_secondary_applies_in_order_and_acknowledges() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2]);
    assert!(b.replicate(1, 1, entry(1, 2, 9)).is_empty(), "a gap");
    assert_eq!(b.replicate(1, 1, entry(1, 1, 9)), ["apply 1.1", "apply 1.2"]);
    assert_eq!(b.applied(1), ["ack 1 to 1 in 1"]);
    assert_eq!(b.applied(2), ["ack 2 to 1 in 1"]);
    assert_eq!(b.replicate(1, 1, entry(1, 1, 9)), ["ack 2 to 1 in 1"], "seen before");
    assert!(b.replicate(3, 1, entry(1, 3, 9)).is_empty(), "not from the primary");
}

#[test]
fn an_older_epoch_is_refused_and_a_newer_one_waits_for_its_view() {
    let mut b = Rig::new(2);
    b.view(2, 1, &[1, 2]);
    assert!(b.replicate(1, 1, entry(1, 1, 9)).is_empty());
    assert!(b.replicate(1, 3, entry(3, 1, 9)).is_empty());
    assert_eq!(b.view(3, 1, &[1, 2]), ["apply 3.1"]);
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    a.applied(1);
    a.view(2, 1, &[1, 2]);
    assert!(a.ack(2, 1, 1).is_empty(), "an acknowledgement of an older epoch");
    assert_eq!(a.ack(2, 2, 1), ["complete 5"]);
}

#[test]
fn a_resend_is_answered_and_not_redone() {
    let mut a = Rig::primary(1, &[1, 2]);
    assert_eq!(a.admit(1, 5), Admission::Go);
    a.decide(5, 9);
    a.applied(1);
    assert_eq!(a.admit(1, 5), Admission::Done(Outcome { lsn: Lsn(1), result_fid: None, amount: 9 }));
    assert!(a.give(Input::Await { ticket: 6, lsn: Lsn(1) }).is_empty(), "not before it is done");
    assert_eq!(a.ack(2, 1, 1), ["complete 5", "complete 6"]);
    assert_eq!(a.give(Input::Await { ticket: 7, lsn: Lsn(1) }), ["complete 7"]);
}

#[test]
fn a_successor_knows_the_results() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2]);
    b.replicate(1, 1, entry(1, 1, 9));
    b.applied(1);
    b.view(2, 2, &[2]);
    assert_eq!(b.admit(2, 1), Admission::Done(Outcome { lsn: Lsn(1), result_fid: None, amount: 9 }));
}

#[test]
fn a_late_change_is_not_done() {
    let mut a = Rig::primary(1, &[1]);
    a.view(2, 1, &[1]);
    assert_eq!(a.admit(1, 5), Admission::WrongView(Epoch(2)), "routed by an older view");
    assert_eq!(a.admit(1, 0), Admission::Go, "a read does no harm");
    assert_eq!(a.replica.admit_sync(a.now, Epoch(1)), Admission::WrongView(Epoch(2)));
    assert_eq!(a.replica.admit_sync(a.now, Epoch(2)), Admission::Go);
    assert_eq!(a.admit(3, 5), Admission::Busy, "the view is on its way");
    a.admit(2, 5);
    a.decide(5, 9);
    a.applied(1);
    assert_eq!(a.replica.admit(a.now, Epoch(2), op(6), 5), Admission::Go);
    assert_eq!(a.admit(2, 5), Admission::Busy, "its client has finished with it");
}

#[test]
fn a_sync_waits_for_all() {
    let mut a = Rig::primary(1, &[1, 2]);
    let sync = Input::Sync { ticket: 5, fid: Some(fid(9)) };
    assert_eq!(a.give(sync), ["sync 5 at 0 to 2", "sync Local(5)"]);
    assert!(a.give(Input::Synced { token: SyncToken::Local(5), errno: 0 }).is_empty());
    assert_eq!(a.peer(2, 1, Message::Synced { ticket: 5, errno: 0 }), ["complete 5"]);
}

#[test]
fn a_lost_sync_is_asked_for_again() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.give(Input::Sync { ticket: 5, fid: None });
    assert!(a.tick(ms(SYNC_RESEND) - 1).is_empty());
    assert_eq!(a.tick(1), ["sync 5 at 0 to 2"]);
    assert_eq!(a.give(Input::LinkUp(BrickId(2))), ["sync 5 at 0 to 2"]);
}

#[test]
fn a_secondary_syncs_after_what_the_sync_covers() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2]);
    assert!(b.peer(1, 1, Message::Sync { ticket: 5, lsn: Lsn(1), fid: None }).is_empty());
    b.replicate(1, 1, entry(1, 1, 9));
    assert_eq!(b.applied(1), ["ack 1 to 1 in 1", "sync Peer(BrickId(1), 5, Epoch(1))"]);
    let token = SyncToken::Peer(BrickId(1), 5, Epoch(1));
    assert_eq!(b.give(Input::Synced { token, errno: 0 }), ["synced 5 (0) to 1"]);
    b.view(2, 1, &[1, 2]);
    assert!(b.give(Input::Synced { token, errno: 0 }).is_empty(), "another process may count tickets anew");
}

#[test]
fn a_failed_sync_takes_the_brick_out() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2]);
    let token = SyncToken::Peer(BrickId(3), 5, Epoch(0));
    assert_eq!(b.give(Input::Synced { token, errno: 5 }), ["failed 5 to 1", "diverged"]);
    let mut a = Rig::primary(1, &[1, 2]);
    a.give(Input::Sync { ticket: 5, fid: None });
    let failed = Input::Synced { token: SyncToken::Local(5), errno: 5 };
    assert_eq!(a.give(failed), ["propose Some(2) of [2] after 1", "redirect 5", "diverged"]);
    let mut a = Rig::primary(1, &[1, 2]);
    a.give(Input::Sync { ticket: 5, fid: None });
    let theirs = Message::Synced { ticket: 5, errno: 5 };
    assert_eq!(a.peer(2, 1, theirs), ["propose Some(1) of [1] after 1"]);
    let mut a = Rig::primary(1, &[1]);
    a.give(Input::Sync { ticket: 5, fid: None });
    assert_eq!(a.give(Input::Synced { token: SyncToken::Local(5), errno: 5 }), ["fail 5 (5)"], "alone");
}

#[test]
fn a_silent_secondary_is_voted_out_and_its_answers_leave() {
    let mut a = Rig::primary(1, &[1, 2, 3]);
    a.decide(5, 9);
    a.applied(1);
    a.ack(2, 1, 1);
    assert_eq!(a.tick(ms(RESEND)), ["replicate 1.1 to 3 in 1"]);
    let out = a.tick(ms(ACK_TIMEOUT - RESEND));
    assert_eq!(out.first().map(String::as_str), Some("propose Some(1) of [1, 2] after 1"));
    assert!(!a.tick(1).iter().any(|o| o.starts_with("propose")), "once is enough for a while");
    assert_eq!(a.view(2, 1, &[1, 2]), ["complete 5"]);
}

#[test]
fn a_secondary_that_is_idle_is_not_voted_out() {
    let mut a = Rig::primary(1, &[1, 2]);
    assert!(a.tick(ms(ACK_TIMEOUT) * 9).is_empty());
    assert_eq!(a.give(Input::LinkDead(BrickId(2))), ["propose Some(1) of [1] after 1"], "but a dead one is");
}

#[test]
fn a_new_primary_asks_where_the_others_are() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2, 3, 4]);
    b.replicate(1, 1, entry(1, 1, 9));
    b.applied(1);
    let asked = b.view(2, 2, &[2, 3, 4]);
    assert_eq!(asked, ["state query to 3", "state query to 4"]);
    assert_eq!(b.admit(2, 5), Admission::Busy);
    b.peer(3, 2, Message::StateReport { last: stamp(1, 1), durable: Lsn(0), kept: Lsn(1) });
    assert_eq!(b.replica.role(), Role::Reconciling);
    let ahead = Message::StateReport { last: stamp(1, 2), durable: Lsn(0), kept: Lsn(2) };
    assert_eq!(b.peer(4, 2, ahead), ["propose Some(2) of [2, 3] after 2"]);
    b.view(3, 2, &[2, 3]);
    b.peer(3, 3, Message::StateReport { last: stamp(1, 1), durable: Lsn(0), kept: Lsn(1) });
    assert_eq!(b.replica.role(), Role::Primary);
    assert_eq!(b.replica.next(), stamp(3, 2));
}

#[test]
fn a_mute_secondary_does_not_hold_up_a_new_primary() {
    let mut b = Rig::new(2);
    b.view(1, 2, &[2, 3]);
    assert_eq!(b.tick(100), ["state query to 3"]);
    assert_eq!(b.tick(ms(ACK_TIMEOUT)), ["propose Some(2) of [2] after 1"]);
    b.view(2, 2, &[2]);
    assert_eq!(b.replica.role(), Role::Primary);
}

#[test]
fn nobody_serves_or_answers_for_what_is_not_in_its_journal_yet() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2, 3]);
    b.replicate(1, 1, entry(1, 1, 9));
    assert!(b.view(2, 2, &[2]).is_empty());
    assert_eq!(b.replica.role(), Role::Reconciling);
    b.applied(1);
    assert_eq!(b.replica.role(), Role::Primary);
    let mut c = Rig::new(3);
    c.view(1, 1, &[1, 2, 3]);
    c.replicate(1, 1, entry(1, 1, 9));
    c.view(2, 2, &[2, 3]);
    assert!(c.peer(2, 2, Message::StateQuery).is_empty());
    c.applied(1);
    assert_eq!(c.peer(2, 2, Message::StateQuery), ["state report of 1.1 to 2"]);
}

#[test]
fn without_a_lease_answers_are_held() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    a.applied(1);
    a.now = Duration::from_secs(4000);
    assert!(a.ack(2, 1, 1).is_empty());
    assert!(a.reply_when_committed(6, 8).is_empty());
    assert_eq!(a.admit(1, 0), Admission::Busy);
    assert_eq!(a.give(Input::Lease(Duration::from_secs(4001))), ["complete 5", "complete 6"]);
    a.now = Duration::from_secs(5000);
    a.reply_when_committed(7, 8);
    assert_eq!(a.view(2, 2, &[1, 2]), ["redirect 7"]);
    assert!(a.give(Input::Lease(Duration::from_secs(6000))).is_empty());
}

#[test]
fn below_quorum_nothing_changes() {
    let mut a = Rig::primary(1, &[1]);
    let mut v = common::view(2, 1, &[1]);
    v.quorum = 2;
    a.give(Input::View(v));
    assert_eq!(a.admit(2, 5), Admission::BelowQuorum);
    assert_eq!(a.admit(2, 0), Admission::Go);
}

#[test]
fn alone_a_failed_change_is_refused_and_its_position_given_again() {
    let mut a = Rig::primary(1, &[1]);
    a.decide(5, 9);
    a.reply_when_committed(6, 9);
    a.give(Input::Sync { ticket: 7, fid: None });
    a.give(Input::Synced { token: SyncToken::Local(7), errno: 0 });
    assert_eq!(a.apply_failed(1), ["fail 5 (28)", "redirect 6", "complete 7"]);
    assert_eq!(a.replica.next(), stamp(1, 1));
    assert_eq!(a.admit(1, 5), Admission::Go, "it may be tried again");
    assert_eq!(a.reply_when_committed(8, 9), ["complete 8"]);
    assert_eq!(a.decide(9, 9), ["apply 1.1"]);
    assert_eq!(a.applied(1), ["complete 9"]);
}

#[test]
fn a_withdrawn_change_leaves_its_objects_to_the_change_before() {
    let mut a = Rig::primary(1, &[1]);
    a.decide(5, 9);
    a.decide(6, 9);
    assert_eq!(a.apply_failed(2), ["fail 6 (28)"]);
    assert!(a.reply_when_committed(7, 9).is_empty());
    assert_eq!(a.applied(1), ["complete 5", "complete 7"]);
}

#[test]
fn alone_with_more_under_way_it_gives_up() {
    let mut a = Rig::primary(1, &[1]);
    a.decide(5, 9);
    a.decide(6, 9);
    assert_eq!(a.apply_failed(1), ["redirect 5", "redirect 6", "diverged"]);
    assert_eq!(a.replica.role(), Role::Failed);
}

#[test]
fn with_peers_a_failed_primary_steps_down() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    let out = a.apply_failed(1);
    assert_eq!(out, ["propose Some(2) of [2] after 1", "redirect 5", "diverged"]);
    assert_eq!(a.admit(1, 6), Admission::WrongView(Epoch(1)));
}

#[test]
fn a_failed_secondary_says_so_and_is_voted_out() {
    let mut b = Rig::new(2);
    b.view(1, 1, &[1, 2]);
    b.replicate(1, 1, entry(1, 1, 9));
    assert_eq!(b.apply_failed(1), ["failed 28 to 1", "diverged"]);
    assert!(b.replicate(1, 1, entry(1, 2, 9)).is_empty());
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    a.applied(1);
    assert_eq!(a.peer(2, 1, Message::Failed { errno: 28 }), ["propose Some(1) of [1] after 1"]);
}

#[test]
fn a_restarted_brick_acts_only_in_newer_views() {
    let mut a = Rig::with_journal(1, 3, stamp(2, 7));
    assert!(a.view(3, 1, &[1]).is_empty());
    assert_eq!(a.replica.role(), Role::Idle);
    a.view(4, 1, &[1]);
    assert_eq!((a.replica.role(), a.replica.next()), (Role::Primary, stamp(4, 8)));
}

#[test]
fn who_has_healed_says_so_in_every_epoch_until_it_is_let_in() {
    let mut joiner = Rig::with_journal(3, 0, stamp(1, 4));
    joiner.view(2, 1, &[1, 2]);
    joiner.give(Input::Joined { join_id: 1, start: stamp(1, 4), full: false });
    assert_eq!(joiner.give(Input::Healed), ["healed at 4 to 1"]);
    // Another one left meanwhile: what the primary knew of the joiner may be gone with that epoch.
    joiner.view(3, 1, &[1]);
    assert_eq!(joiner.tick(1), ["healed at 4 to 1"]);
    joiner.view(4, 1, &[1, 3]);
    assert!(joiner.tick(1000).iter().all(|o| !o.starts_with("healed")));
}

/// A brick whose disk was full has ended, and nobody can agree to leave it out: it may have room by now.
#[test]
fn what_a_brick_said_of_its_room_long_ago_counts_no_more() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.give(Input::Durable { lsn: Lsn(0), available: 70 });
    a.decide(5, 9);
    a.applied(1);
    a.ack(2, 1, 1);
    for _ in 0..3 {
        a.tick(1000);
        assert_eq!(a.replica.available(), 9);
    }
    a.tick(1000);
    assert_eq!(a.replica.available(), 70);
    // It speaks again.
    a.peer(2, 1, Message::Ack { lsn: Lsn(1), durable: Lsn(0), available: 8 });
    a.tick(1000);
    assert_eq!(a.replica.available(), 8);
}

/// The primary may have little room to count with for as long as it hears nothing: a brick that heals may have nothing to
/// acknowledge for long.
#[test]
fn who_heals_tells_how_much_room_it_has_and_no_more() {
    let mut joiner = Rig::with_journal(3, 0, stamp(1, 4));
    joiner.view(2, 1, &[1]);
    joiner.give(Input::Joined { join_id: 1, start: stamp(1, 4), full: false });
    assert_eq!(joiner.give(Input::Durable { lsn: Lsn(4), available: 70 }), ["ack 0 to 1 in 2"]);
    let mut a = Rig::primary(1, &[1]);
    a.give(Input::Joining { brick: BrickId(3), join_id: 1 });
    a.give(Input::JoinerCaughtUp(BrickId(3)));
    a.decide(5, 9);
    a.applied(1);
    a.ack(3, 1, 1);
    a.peer(3, 1, Message::Healed { join_id: 1, lsn: Lsn(1) });
    assert_eq!(a.replica.available(), 9);
    let told = Message::Ack { lsn: Lsn(0), durable: Lsn(0), available: 70 };
    assert!(a.peer(3, 1, told).is_empty());
    assert_eq!(a.replica.available(), 70);
    // It is not behind by that.
    a.decide(6, 9);
    a.applied(2);
    assert_eq!(a.ack(3, 1, 2), ["complete 6"]);
}

#[test]
fn an_arbiter_never_succeeds() {
    let mut a = Rig::new(1);
    let mut v = common::view(1, 1, &[1, 2]);
    v.arbiters.insert(BrickId(2));
    a.give(Input::View(v));
    a.peer(2, 1, Message::StateReport { last: stamp(0, 0), durable: Lsn(0), kept: Lsn(0) });
    a.decide(5, 9);
    assert_eq!(a.apply_failed(1), ["redirect 5", "diverged"], "there is nobody to propose");
}

#[test]
fn a_change_done_in_part_by_a_brick_alone_is_in_the_history_as_that() {
    let mut a = Rig::primary(1, &[1]);
    a.give(Input::Joining { brick: BrickId(3), join_id: 1 });
    a.give(Input::JoinerCaughtUp(BrickId(3)));
    assert_eq!(a.decide(5, 9), ["apply 1.1"]);
    assert!(a.replica.alone_has(Lsn(1)));
    let part =
        |lsn, object| Input::AppliedInPart { lsn: Lsn(lsn), errno: 28, body: common::Change(fid(object)) };
    // Who heals is sent what stands in its place.
    assert_eq!(a.give(part(1, 9)), ["fail 5 (28)", "replicate 1.1 to 3 in 1"]);
    assert_eq!((a.replica.last(), a.replica.commit()), (stamp(1, 1), Lsn(1)));
    // The operation is not done: it may be tried again.
    assert_eq!(a.admit(1, 5), Admission::Go);
    assert_eq!(a.decide(6, 9), ["apply 1.2"]);
    assert_eq!(a.applied(2), ["replicate 1.2 to 3 in 1", "complete 6"]);
}

#[test]
fn what_others_may_have_is_not_done_in_part() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.decide(5, 9);
    assert!(!a.replica.alone_has(Lsn(1)));
    let out = a.give(Input::AppliedInPart { lsn: Lsn(1), errno: 28, body: common::Change(fid(9)) });
    assert!(out.contains(&"redirect 5".to_owned()), "{out:?}");
    assert_eq!(a.replica.role(), Role::Failed);
}
