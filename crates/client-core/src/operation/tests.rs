//! Operations told as stories.

use super::*;
use ids::{Lsn, SetId};
use wire::Name;

const POLICY: RetryPolicy = RetryPolicy {
    soft: None,
    network_timeout: Duration::from_secs(4),
    quorum_wait: Duration::ZERO,
    once: false,
};

fn file(n: u64) -> Fid {
    Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
}

fn write(n: u64) -> Op {
    Op::Write { fid: file(n), offset: 0, append: false, kill_suid: false }
}

fn now() -> Duration {
    Duration::ZERO
}

fn begin(op: &Op, epoch: u32, set: &mut SetState) -> Operation {
    Operation::begin(op, Epoch(epoch), POLICY, || set)
}

fn send(operation: &mut Operation, set: &mut SetState) -> u64 {
    assert!(matches!(operation.look(Known::Primary(1), now, || set), Action::Send(_)));
    operation.seq()
}

/// Sends it once, and it is answered.
fn done(op: &Op, epoch: u32, lost_before: u32, set: &mut SetState) -> Finished {
    let mut operation = begin(op, epoch, set);
    send(&mut operation, set);
    assert_eq!(operation.ended(Ended::Answered, now, || &mut *set), Action::Return);
    operation.finish(op, Ok(()), || Epoch(lost_before), || set)
}

#[test]
fn operations_have_classes() {
    let fid = file(1);
    assert_eq!(Class::of(&Op::GetAttr { fid }), Class::Read);
    assert_eq!(Class::of(&Op::Open { fid }), Class::Read);
    assert_eq!(Class::of(&Op::RemoveXattr { fid, name: Name::new(b"a").unwrap() }), Class::Change);
    assert_eq!(Class::of(&Op::Fsync { fid }), Class::Sync(Some(fid)));
    assert_eq!(Class::of(&Op::SyncFs), Class::Sync(None));
}

#[test]
fn changes_and_opens_bind_and_reads_do_not() {
    let mut set = SetState::default();
    assert!(begin(&write(1), 1, &mut set).binds());
    assert!(begin(&Op::Open { fid: file(1) }, 1, &mut set).binds());
    assert!(begin(&Op::Release { fid: file(1) }, 1, &mut set).binds());
    assert!(!begin(&Op::GetAttr { fid: file(1) }, 1, &mut set).binds());
    assert!(!begin(&Op::SyncFs, 1, &mut set).binds());
}

#[test]
fn a_change_keeps_its_number_and_counts_as_under_way_until_it_is_finished() {
    let mut set = SetState::default();
    let mut change = begin(&write(1), 1, &mut set);
    assert_eq!((change.seq(), set.finished()), (0, 0), "not sent yet");
    assert_eq!(send(&mut change, &mut set), 1);
    change.ended(Ended::Lost, now, || &mut set);
    assert_eq!(send(&mut change, &mut set), 1);
    change.ended(Ended::Answered, now, || &mut set);
    assert_eq!(set.finished(), 0);
    let finished = change.finish(&write(1), Err(Errno::ENOSPC), || Epoch(0), || &mut set);
    assert_eq!(finished, Finished { result: Err(Errno::ENOSPC), sync_now: false });
    assert_eq!(set.finished(), 1);
}

#[test]
fn what_was_refused_because_it_is_held_is_a_new_operation_next_time() {
    let mut set = SetState::default();
    let mut change = begin(&write(1), 1, &mut set);
    send(&mut change, &mut set);
    change.ended(Ended::Held, now, || &mut set);
    assert_eq!((change.seq(), set.finished()), (0, 1), "that one was answered");
    assert_eq!(send(&mut change, &mut set), 2);
}

#[test]
fn a_change_that_nobody_waits_for_is_finished_and_not_noted() {
    let mut set = SetState::default();
    let mut change = begin(&write(1), 3, &mut set);
    send(&mut change, &mut set);
    assert_eq!(change.ended(Ended::Interrupted, now, || &mut set), Action::Fail(Errno::EINTR));
    change.finish(&write(1), Err(Errno::EINTR), || Epoch(0), || &mut set);
    assert_eq!(set.finished(), 1);
    assert_eq!(done(&Op::Fsync { fid: file(1) }, 5, 4, &mut set).result, Ok(()));
}

#[test]
fn reads_do_not_look_at_the_set() {
    let nobody = || -> &mut SetState { unreachable!("nothing of the set is needed") };
    let op = Op::GetAttr { fid: file(1) };
    let mut read = Operation::begin(&op, Epoch(1), POLICY, nobody);
    assert_eq!(read.look(Known::Primary(1), now, nobody), Action::Send(Number::None));
    assert_eq!(read.ended(Ended::Answered, now, nobody), Action::Return);
    let lost_before = || unreachable!("reads lose nothing");
    assert_eq!(read.finish(&op, Ok(()), lost_before, nobody).result, Ok(()));
}

#[test]
fn a_sync_fails_if_what_came_before_it_was_lost_before_its_answer() {
    let mut set = SetState::default();
    let sync = Op::Fsync { fid: file(1) };
    done(&write(1), 3, 0, &mut set);
    assert_eq!(
        done(&sync, 5, 4, &mut set).result,
        Err(Errno::EIO),
        "the epoch of the write counts, not of the sync"
    );
    assert_eq!(done(&sync, 5, 4, &mut set).result, Ok(()));
}

/// The epoch that counts is the one in which a change was first sent, and it is known before it is sent.
#[test]
fn what_was_sent_before_a_loss_and_answered_after_it_counts_as_lost() {
    let mut set = SetState::default();
    let mut change = begin(&write(1), 3, &mut set);
    send(&mut change, &mut set);
    change.ended(Ended::Moved, now, || &mut set);
    send(&mut change, &mut set);
    change.ended(Ended::Answered, now, || &mut set);
    change.finish(&write(1), Ok(()), || Epoch(4), || &mut set);
    assert_eq!(done(&Op::Fsync { fid: file(1) }, 5, 4, &mut set).result, Err(Errno::EIO));
}

#[test]
fn what_is_written_during_a_sync_is_not_covered_by_it() {
    let mut set = SetState::default();
    let sync = Op::Fsync { fid: file(1) };
    done(&write(1), 3, 0, &mut set);
    let mut under_way = begin(&sync, 3, &mut set);
    send(&mut under_way, &mut set);
    done(&write(1), 3, 0, &mut set);
    under_way.ended(Ended::Answered, now, || &mut set);
    assert_eq!(under_way.finish(&sync, Ok(()), || Epoch(0), || &mut set).result, Ok(()));
    assert_eq!(done(&sync, 5, 4, &mut set).result, Err(Errno::EIO));
}

#[test]
fn a_sync_that_failed_covers_nothing() {
    let mut set = SetState::default();
    let sync = Op::Fsync { fid: file(1) };
    done(&write(1), 3, 0, &mut set);
    let mut failed = begin(&sync, 3, &mut set);
    send(&mut failed, &mut set);
    failed.ended(Ended::Answered, now, || &mut set);
    let finished = failed.finish(&sync, Err(Errno::ENOSPC), || Epoch(0), || &mut set);
    assert_eq!(finished.result, Err(Errno::ENOSPC));
    assert_eq!(done(&sync, 5, 4, &mut set).result, Err(Errno::EIO));
}

#[test]
fn a_sync_that_nobody_asked_for_leaves_the_news_to_those_who_ask() {
    let mut set = SetState::default();
    done(&write(1), 3, 0, &mut set);
    let mut unasked = Operation::begin_unasked_sync(Epoch(5), POLICY, || &mut set);
    assert_eq!(unasked.class(), Class::Sync(None));
    send(&mut unasked, &mut set);
    unasked.ended(Ended::Answered, now, || &mut set);
    assert_eq!(unasked.finish(&Op::SyncFs, Ok(()), || Epoch(4), || &mut set).result, Ok(()));
    assert_eq!(done(&Op::SyncFs, 5, 4, &mut set).result, Err(Errno::EIO));
}

#[test]
fn so_much_that_is_unsynced_is_synced_unasked() {
    let mut set = SetState::default();
    let first = (0..70_000).find(|n| done(&write(*n), 1, 0, &mut set).sync_now);
    assert_eq!(first, Some(65_535));
}
