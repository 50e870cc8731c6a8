//! Open files of a set, told as stories.

use super::*;
use crate::connections::Connections;
use alloc::vec;
use ids::{Lsn, ServerId, SetId};

fn file(n: u64) -> Fid {
    Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
}

fn mark(epoch: u32) -> ReclaimMark {
    ReclaimMark { epoch: Epoch(epoch), server: ServerId(1), era: Connections::new(1).era() }
}

#[test]
fn the_set_hears_of_first_opens_and_last_closes() {
    let mut s = SetState::default();
    assert_eq!(s.open(file(5)), Opening::Tell);
    assert_eq!(s.open(file(5)), Opening::Tell, "until the set is known to know");
    s.opened(file(5));
    assert_eq!(s.open(file(5)), Opening::Known);
    assert!(!s.close(file(5)) && !s.close(file(5)));
    assert_eq!(s.open_files(), 1);
    assert!(s.close(file(5)), "the last one");
    assert_eq!(s.open_files(), 0);
    assert_eq!(s.open(file(5)), Opening::Known, "opened again before the release left");
    assert!(s.take_releases(9).is_empty());
    assert!(s.close(file(5)));
    assert_eq!(s.take_releases(9), [file(5)]);
    assert_eq!(s.open(file(5)), Opening::Wait);
    assert_eq!(s.open_files(), 0, "who waits is not counted");
    s.released(&[file(5)]);
    assert_eq!(s.open(file(5)), Opening::Tell);
}

#[test]
fn a_close_that_closes_nothing_is_none() {
    let mut s = SetState::default();
    assert!(!s.close(file(5)));
    s.created(file(5));
    assert!(s.close(file(5)));
    assert!(!s.close(file(5)));
    assert_eq!(s.take_releases(9), [file(5)]);
}

#[test]
fn releases_are_due_once_and_taken_some_at_a_time() {
    let mut s = SetState::default();
    (1..=5).for_each(|n| s.created(file(n)));
    let due: Vec<bool> = (1..=5).map(|n| s.close(file(n))).collect();
    assert_eq!(due, [true, false, false, false, false]);
    assert_eq!(s.take_releases(2), [file(1), file(2)]);
    assert!(s.has_releases());
    assert_eq!(s.take_releases(9), [file(3), file(4), file(5)]);
    assert!(!s.has_releases());
}

#[test]
fn a_release_that_failed_is_sent_again_and_nobody_trusts_that_the_set_knows() {
    let mut s = SetState::default();
    s.created(file(5));
    s.close(file(5));
    let taken = s.take_releases(9);
    s.release_failed(&taken);
    assert!(s.has_releases());
    assert_eq!(s.open(file(5)), Opening::Tell);
    assert!(!s.open_failed(file(5), Errno::ESTALE), "it was due already");
    assert_eq!(s.take_releases(9), [file(5)]);
}

#[test]
fn an_open_that_was_refused_leaves_nothing() {
    let mut s = SetState::default();
    s.open(file(5));
    assert!(!s.open_failed(file(5), Errno::ESTALE));
    assert!(!s.has_releases());
    assert_eq!(s.begin_reclaim(mark(3)), Some(vec![]));
}

/// The set may hold the file open for the session.
#[test]
fn an_open_that_nobody_waited_for_is_released() {
    let mut s = SetState::default();
    s.open(file(5));
    assert!(s.open_failed(file(5), Errno::EINTR));
    assert_eq!(s.open(file(5)), Opening::Tell);
    s.open_failed(file(5), Errno::ESTALE);
    assert_eq!(s.take_releases(9), [file(5)]);
}

#[test]
fn the_failed_open_of_one_is_the_last_close_after_the_good_open_of_another() {
    let mut s = SetState::default();
    s.open(file(5));
    s.open(file(5));
    s.opened(file(5));
    assert!(!s.close(file(5)));
    assert!(s.open_failed(file(5), Errno::ESTALE));
    assert_eq!(s.take_releases(9), [file(5)]);
}

#[test]
fn a_set_is_told_again_when_its_view_its_server_or_a_connection_changed() {
    let mut s = SetState::default();
    let mut connections = Connections::new(1);
    let first = ReclaimMark { epoch: Epoch(3), server: ServerId(1), era: connections.era() };
    assert!(s.needs_reclaim(first), "it never heard");
    assert_eq!(s.begin_reclaim(first), Some(vec![]));
    assert_eq!(s.begin_reclaim(first), None, "one at a time");
    s.end_reclaim(Some(first));
    assert!(!s.needs_reclaim(first));
    assert!(s.needs_reclaim(ReclaimMark { epoch: Epoch(4), ..first }));
    assert!(s.needs_reclaim(ReclaimMark { server: ServerId(2), ..first }));
    connections.idle_broke();
    assert!(s.needs_reclaim(ReclaimMark { era: connections.era(), ..first }));
}

#[test]
fn a_reclaim_that_failed_is_done_again() {
    let mut s = SetState::default();
    s.created(file(5));
    assert_eq!(s.begin_reclaim(mark(3)), Some(vec![file(5)]));
    s.end_reclaim(None);
    assert!(s.needs_reclaim(mark(3)));
    assert_eq!(s.begin_reclaim(mark(3)), Some(vec![file(5)]));
    s.end_reclaim(Some(mark(3)));
    assert!(!s.needs_reclaim(mark(3)));
    s.begin_reclaim(mark(3));
    s.end_reclaim(None);
    assert!(!s.needs_reclaim(mark(3)), "what was told once stays told");
}

/// An open that is told again and a release of the same file are never on their way at once.
#[test]
fn releases_and_reclaims_keep_apart() {
    let mut s = SetState::default();
    s.created(file(5));
    s.created(file(6));
    s.close(file(5));
    assert_eq!(
        s.begin_reclaim(mark(3)),
        Some(vec![file(5), file(6)]),
        "until it is released it may be opened again unasked"
    );
    assert!(s.take_releases(9).is_empty());
    s.end_reclaim(Some(mark(3)));
    assert_eq!(s.take_releases(9), [file(5)]);
    assert_eq!(s.begin_reclaim(mark(4)), Some(vec![file(6)]));
}

#[test]
fn a_set_is_told_of_an_open_file_that_came_from_another_one() {
    let (mut from, mut to) = (SetState::default(), SetState::default());
    from.created(file(5));
    from.open(file(5));
    to.created(file(6));
    to.begin_reclaim(mark(3));
    to.end_reclaim(Some(mark(3)));
    let (count, lost) = from.leave(file(5), Epoch(0));
    assert_eq!((count, lost, from.open_files()), (2, false, 0));
    assert!(!from.close(file(5)) && !from.has_releases(), "it is none of this set's files any more");
    to.arrive(file(7), count);
    assert!(to.needs_reclaim(mark(3)) && to.wants_reclaim(mark(3)));
    assert_eq!(to.begin_reclaim(mark(3)), Some(vec![file(7)]), "of the other one it knows");
    to.end_reclaim(None);
    assert_eq!(to.begin_reclaim(mark(4)), Some(vec![file(6), file(7)]), "a new primary");
    to.end_reclaim(Some(mark(4)));
    assert!(!to.needs_reclaim(mark(4)));
    assert!(!to.close(file(7)) && to.close(file(7)));
    assert_eq!(to.take_releases(9), [file(7)]);
}

#[test]
fn a_file_that_lost_changes_before_it_left_says_so() {
    let mut s = SetState::default();
    s.changed(&Op::Write { fid: file(1), offset: 0, append: false, kill_suid: false }, Epoch(3));
    assert_eq!(s.leave(file(1), Epoch(4)), (0, true));
    assert_eq!(s.leave(file(1), Epoch(4)), (0, false));
}

#[test]
fn a_sync_of_nothing_that_was_lost_succeeds() {
    let mut s = SetState::default();
    let write = |n| Op::Write { fid: file(n), offset: 0, append: false, kill_suid: false };
    s.changed(&write(1), Epoch(5));
    let mark = s.begin_sync(None);
    assert_eq!(s.synced(mark, Epoch(4)), Ok(()));
    s.changed(&write(1), Epoch(5));
    let unasked = s.begin_sync(None);
    s.synced_unasked(unasked, Epoch(6));
    let mark = s.begin_sync(None);
    assert_eq!(s.synced(mark, Epoch(6)), Err(Errno::EIO), "nobody was told by the one before");
}
