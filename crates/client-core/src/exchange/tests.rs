//! Exchanges told as stories: what came of the step before, and which step follows.

use super::*;
use crate::connections::Connections;
use crate::set::Opening;
use ids::Lsn;
use wire::{Body, Errno};

const HARD: RetryPolicy =
    RetryPolicy { soft: None, network_timeout: ms(4000), quorum_wait: Duration::ZERO, once: false };
const TARGET: Target = Target { set: SetId(1), epoch: Epoch(3), server: ServerId(7) };

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn file(n: u64) -> Fid {
    Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
}

fn era() -> Era {
    Connections::new(1).era()
}

fn call(binds: bool) -> Exchange {
    Exchange::call(TARGET, HARD, ms(10), binds)
}

fn fine() -> Reply {
    Reply(Ok(Body::Done))
}

fn wrong_view() -> Reply {
    Reply(Err(Fail::WrongView { epoch: Epoch(4) }))
}

fn request() -> Step {
    Step::Send { what: Message::Request, finished: 0 }
}

fn opens(files: impl Iterator<Item = u64>) -> Step {
    Step::Send { what: Message::Opens(files.map(file).collect()), finished: 0 }
}

fn end(how: Ended, fate: Fate) -> Step {
    Step::End { how, fate: Some(fate) }
}

/// A set that was told that nothing is open.
fn told() -> SetState {
    let mut set = SetState::default();
    let mark = ReclaimMark { epoch: TARGET.epoch, server: TARGET.server, era: era() };
    set.begin_reclaim(mark);
    set.end_reclaim(Some(mark));
    set
}

/// Holds files 1 to `n` open; the set has not heard of that.
fn holding(n: u64) -> SetState {
    let mut set = SetState::default();
    (1..=n).for_each(|n| set.created(file(n)));
    set
}

#[test]
fn a_set_that_knows_what_is_open_is_asked_at_once() {
    let mut set = told();
    let mut e = call(true);
    assert_eq!(e.first(), Step::Connect);
    set.begin_change();
    let seq = set.begin_change();
    set.end_change(seq);
    assert_eq!(e.connected(true, era(), || &mut set), request());
    let nobody = || -> &mut SetState { unreachable!("nothing of the set is needed") };
    assert_eq!(e.answered(&fine(), nobody), end(Ended::Answered, Fate::PutBack));
}

#[test]
fn what_is_finished_is_said_with_the_request() {
    let mut set = told();
    let seq = set.begin_change();
    set.end_change(seq);
    let step = call(false).connected(true, era(), || &mut set);
    assert_eq!(step, Step::Send { what: Message::Request, finished: 1 });
}

#[test]
fn a_set_that_may_have_forgotten_is_told_first_some_files_at_a_time() {
    let mut set = holding(100);
    let mut e = call(false);
    assert_eq!(e.connected(false, era(), || &mut set), opens(1..=64));
    for _ in 0..63 {
        assert_eq!(e.answered(&fine(), || &mut set), Step::Wait);
    }
    assert_eq!(e.answered(&Reply::errno(116), || &mut set), opens(65..=100), "the file is gone: no matter");
    for _ in 0..35 {
        assert_eq!(e.answered(&fine(), || &mut set), Step::Wait);
    }
    assert_eq!(e.answered(&fine(), || &mut set), request());
    assert_eq!(e.answered(&fine(), || &mut set), end(Ended::Answered, Fate::PutBack));
    assert_eq!(call(false).connected(false, era(), || &mut set), request(), "it was told");
}

#[test]
fn while_somebody_else_tells_the_set_the_call_comes_later() {
    let mut set = holding(1);
    let mut first = call(false);
    first.connected(false, era(), || &mut set);
    assert_eq!(call(true).connected(false, era(), || &mut set), end(Ended::Busy, Fate::PutBack));
}

/// Further answers may come: the connection is whole only after the last one.
#[test]
fn a_set_that_refuses_to_be_told_is_not_asked() {
    let mut set = holding(3);
    let mut e = call(false);
    assert_eq!(e.connected(false, era(), || &mut set), opens(1..=3));
    assert_eq!(e.answered(&wrong_view(), || &mut set), Step::Wait);
    assert_eq!(e.answered(&fine(), || &mut set), Step::Wait);
    assert_eq!(e.answered(&fine(), || &mut set), end(Ended::WrongView, Fate::PutBack));
    assert_eq!(call(false).connected(false, era(), || &mut set), opens(1..=3), "again");
}

/// An open that lies on the connection must not come in after a release of the same file.
#[test]
fn whoever_gives_up_while_the_set_is_told_gives_the_connection_up() {
    let mut set = holding(1);
    let mut read = call(false);
    read.connected(false, era(), || &mut set);
    assert_eq!(read.failed(Failure::Interrupted, ms(20), || &mut set), end(Ended::Interrupted, Fate::GiveUp));
    assert_eq!(call(false).connected(false, era(), || &mut set), opens(1..=1), "the claim was given back");
}

#[test]
fn what_binds_and_is_not_answered_takes_its_connection_along() {
    let mut set = told();
    for (binds, why, step) in [
        (true, Failure::Interrupted, end(Ended::Interrupted, Fate::GiveUp)),
        (false, Failure::Interrupted, end(Ended::Interrupted, Fate::Close)),
        (true, Failure::Stopped, end(Ended::Stopped, Fate::GiveUp)),
        (false, Failure::Stopped, end(Ended::Stopped, Fate::Close)),
        (false, Failure::Moved, end(Ended::Moved, Fate::Broke)),
        (false, Failure::Broke, end(Ended::OldBroke, Fate::Broke)),
        (false, Failure::Stalled, end(Ended::Lost, Fate::Broke)),
        (false, Failure::Unusable, end(Ended::Lost, Fate::Broke)),
    ] {
        let mut e = call(binds);
        e.connected(true, era(), || &mut set);
        assert_eq!(e.failed(why, ms(20), || &mut set), step, "{why:?} {binds}");
    }
}

#[test]
fn only_an_old_connection_that_broke_is_old_news() {
    let mut set = told();
    let mut e = call(false);
    e.connected(false, era(), || &mut set);
    assert_eq!(e.failed(Failure::Broke, ms(20), || &mut set), end(Ended::Lost, Fate::Broke));
}

#[test]
fn without_a_connection_there_is_none_to_give_up() {
    let nobody = || -> &mut SetState { unreachable!("nothing was taken from the set") };
    for (why, how) in [
        (Failure::TimedOut, Ended::Lost),
        (Failure::Broke, Ended::Lost),
        (Failure::Interrupted, Ended::Interrupted),
        (Failure::Moved, Ended::Moved),
    ] {
        assert_eq!(call(true).failed(why, ms(20), nobody), Step::End { how, fate: None }, "{why:?}");
    }
}

#[test]
fn a_server_that_is_slow_but_answers_handshakes_gets_more_time() {
    let mut set = told();
    let mut e = call(true);
    e.connected(true, era(), || &mut set);
    assert_eq!(e.deadline(), ms(4010));
    assert_eq!(e.failed(Failure::TimedOut, ms(4010), || &mut set), Step::Handshake);
    assert_eq!(e.deadline(), ms(6010));
    assert_eq!(e.handshake_done(ms(4100)), Step::Wait);
    assert_eq!(e.deadline(), ms(8100));
    assert_eq!(e.answered(&fine(), || &mut set), end(Ended::Answered, Fate::PutBack));
}

#[test]
fn a_server_that_answers_no_handshake_is_given_up() {
    let mut set = told();
    for why in [Failure::TimedOut, Failure::Broke] {
        let mut e = call(true);
        e.connected(true, era(), || &mut set);
        assert_eq!(e.failed(Failure::TimedOut, ms(4010), || &mut set), Step::Handshake);
        assert_eq!(e.failed(why, ms(6010), || &mut set), end(Ended::Lost, Fate::Broke), "{why:?}");
    }
}

#[test]
fn a_server_that_answers_handshakes_only_is_given_up_in_the_end() {
    let mut set = told();
    let mut e = call(false);
    e.connected(true, era(), || &mut set);
    let mut handshakes = 0;
    while e.failed(Failure::TimedOut, e.deadline(), || &mut set) == Step::Handshake {
        handshakes += 1;
        e.handshake_done(e.deadline());
    }
    assert_eq!(handshakes, SLOW);
}

#[test]
fn a_soft_mount_does_not_wait_for_handshakes_nor_beyond_its_time() {
    let mut set = told();
    let soft = RetryPolicy { soft: Some(ms(300)), ..HARD };
    let mut e = Exchange::call(TARGET, soft, ms(10), false);
    assert_eq!(e.deadline(), ms(300));
    e.connected(true, era(), || &mut set);
    assert_eq!(e.failed(Failure::TimedOut, ms(300), || &mut set), end(Ended::Lost, Fate::Broke));
    assert_eq!(Exchange::reclaim(TARGET, soft, ms(10)).deadline(), ms(4010), "nobody waits for that");
}

#[test]
fn a_time_out_while_the_set_is_told_asks_for_no_handshake() {
    let mut set = holding(1);
    let mut e = call(false);
    e.connected(true, era(), || &mut set);
    assert_eq!(e.failed(Failure::TimedOut, ms(4010), || &mut set), end(Ended::Lost, Fate::Broke));
    let mark = ReclaimMark { epoch: TARGET.epoch, server: TARGET.server, era: era() };
    assert!(set.begin_reclaim(mark).is_some(), "the claim was given back");
}

#[test]
fn to_reclaim_is_to_tell_and_no_more() {
    let mut set = holding(1);
    let mut e = Exchange::reclaim(TARGET, HARD, ms(0));
    assert_eq!(e.connected(true, era(), || &mut set), opens(1..=1));
    assert_eq!(e.answered(&fine(), || &mut set), end(Ended::Answered, Fate::PutBack));
    let mut again = Exchange::reclaim(TARGET, HARD, ms(0));
    assert_eq!(again.connected(true, era(), || &mut set), end(Ended::Answered, Fate::PutBack));
}

/// Files 1 and 2 were closed, and their releases are taken.
fn releasing() -> (SetState, Exchange) {
    let mut set = holding(2);
    set.close(file(1));
    set.close(file(2));
    let fids = set.take_releases(9);
    (set, Exchange::release(TARGET, HARD, ms(0), fids))
}

#[test]
fn releases_are_sent_without_telling_what_is_open() {
    let (mut set, mut e) = releasing();
    let what = Message::Releases([1, 2].map(file).to_vec());
    assert_eq!(e.connected(true, era(), || &mut set), Step::Send { what, finished: 0 });
    assert_eq!(e.answered(&fine(), || &mut set), Step::Wait);
    assert_eq!(set.open(file(1)), Opening::Wait);
    assert_eq!(e.answered(&Reply::errno(116), || &mut set), end(Ended::Answered, Fate::PutBack));
    assert_eq!(set.open(file(1)), Opening::Tell);
    assert!(!set.has_releases());
}

#[test]
fn releases_are_due_again_however_they_failed() {
    let refused = |set: &mut SetState, e: &mut Exchange| {
        e.connected(true, era(), || &mut *set);
        e.answered(&wrong_view(), || &mut *set);
        e.answered(&fine(), || &mut *set)
    };
    let broke = |set: &mut SetState, e: &mut Exchange| {
        e.connected(false, era(), || &mut *set);
        e.failed(Failure::Broke, ms(1), || &mut *set)
    };
    let unreachable = |set: &mut SetState, e: &mut Exchange| e.failed(Failure::Broke, ms(1), || &mut *set);
    let stopped = |set: &mut SetState, e: &mut Exchange| {
        e.connected(false, era(), || &mut *set);
        e.failed(Failure::Stopped, ms(1), || &mut *set)
    };
    type Story = fn(&mut SetState, &mut Exchange) -> Step;
    let stories: [(Story, Step); 4] = [
        (refused, end(Ended::WrongView, Fate::PutBack)),
        (broke, end(Ended::Lost, Fate::Broke)),
        (unreachable, Step::End { how: Ended::Lost, fate: None }),
        (stopped, end(Ended::Stopped, Fate::GiveUp)),
    ];
    for (story, step) in stories {
        let (mut set, mut e) = releasing();
        assert_eq!(story(&mut set, &mut e), step);
        assert_eq!(set.take_releases(9), [file(1), file(2)]);
    }
}

#[test]
fn answers_have_ends() {
    for (reply, how) in [
        (fine(), Ended::Answered),
        (Reply::errno(Errno::ENOENT.0), Ended::Answered),
        (Reply::errno(Errno::EAGAIN.0), Ended::Held),
        (wrong_view(), Ended::WrongView),
        (Reply(Err(Fail::Busy)), Ended::Busy),
        (Reply(Err(Fail::BelowQuorum)), Ended::BelowQuorum),
    ] {
        assert_eq!(Ended::from(&reply), how);
    }
}

#[test]
fn a_time_out_of_what_nobody_needs_says_nothing_against_the_server() {
    let once = HARD.of(&wire::Op::GetAttrs { fids: Vec::new() });
    for why in [Failure::TimedOut, Failure::Stalled] {
        let mut set = told();
        let mut e = Exchange::call(TARGET, once, ms(10), false);
        assert_eq!(e.deadline(), ms(100));
        e.connected(true, era(), || &mut set);
        assert_eq!(e.failed(why, ms(100), || &mut set), end(Ended::Interrupted, Fate::Close));
    }
    let mut set = holding(1);
    let mut e = Exchange::call(TARGET, once, ms(10), false);
    e.connected(true, era(), || &mut set);
    let given_up = end(Ended::Interrupted, Fate::GiveUp);
    assert_eq!(e.failed(Failure::TimedOut, ms(100), || &mut set), given_up, "an open may still lie there");
    let mark = ReclaimMark { epoch: TARGET.epoch, server: TARGET.server, era: era() };
    assert!(set.begin_reclaim(mark).is_some(), "the claim was given back");
}
