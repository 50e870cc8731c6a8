//! Calls told as stories: what happens, after so many milliseconds, and what the call does then.

use super::Action::{Fail, Look, Return, Send};
use super::*;

enum What {
    Map(Known),
    Try(Ended, Fate),
}

use Fate::{Broke, GiveUp, PutBack};
use Known::{NoPrimary, Primary};
use What::{Map, Try};

const HARD: RetryPolicy = RetryPolicy {
    soft: None,
    network_timeout: Duration::from_secs(4),
    quorum_wait: Duration::ZERO,
    once: false,
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn pause(n: u64) -> Action {
    Action::Pause { time: ms(n), alarm: false }
}

fn tell(retry_policy: RetryPolicy, changes: bool, story: &[(u64, What, Action)]) {
    let mut call = CallMachine::new(retry_policy, changes);
    for (line, (at, what, wanted)) in story.iter().enumerate() {
        let did = match what {
            Map(known) => call.look(*known, || ms(*at)),
            Try(ended, fate) => {
                assert_eq!(ended.fate(changes), *fate, "line {line}");
                call.ended(*ended, || ms(*at))
            }
        };
        assert_eq!(did, *wanted, "line {line}");
    }
}

#[test]
fn a_lost_answer_is_asked_for_again_on_a_fresh_connection_under_the_same_number() {
    tell(
        HARD,
        true,
        &[
            (0, Map(Primary(1)), Send(Number::New)),
            (4, Try(Ended::OldBroke, Broke), Look),
            (4, Map(Primary(1)), Send(Number::Same)),
            (9, Try(Ended::OldBroke, Broke), pause(1)),
            (10, Map(Primary(1)), Send(Number::Same)),
            (4010, Try(Ended::Lost, Broke), Action::Pause { time: ms(2), alarm: true }),
            (4012, Map(Primary(1)), Send(Number::Same)),
            (4013, Try(Ended::Answered, PutBack), Return),
        ],
    );
}

#[test]
fn a_failover_begins_the_pauses_anew_with_each_map() {
    tell(
        HARD,
        true,
        &[
            (0, Map(Primary(1)), Send(Number::New)),
            (1, Try(Ended::WrongView, PutBack), pause(1)),
            (2, Map(Primary(1)), Send(Number::Same)),
            (3, Try(Ended::WrongView, PutBack), pause(2)),
            (4, Map(NoPrimary(2)), pause(1)),
            (5, Map(NoPrimary(2)), pause(2)),
            (7, Map(NoPrimary(2)), pause(4)),
            (9, Map(Primary(3)), Send(Number::Same)),
            (10, Try(Ended::Busy, PutBack), pause(1)),
            (11, Map(Primary(3)), Send(Number::Same)),
            (12, Try(Ended::Answered, PutBack), Return),
        ],
    );
}

#[test]
fn a_map_that_names_another_server_ends_the_wait_for_the_old_one() {
    tell(
        HARD,
        true,
        &[
            (0, Map(Primary(1)), Send(Number::New)),
            (900, Try(Ended::Moved, Broke), Look),
            (900, Map(Primary(2)), Send(Number::Same)),
            (901, Try(Ended::OldBroke, Broke), Look),
            (901, Map(Primary(2)), Send(Number::Same)),
            (902, Try(Ended::Answered, PutBack), Return),
        ],
    );
}

#[test]
fn a_directory_that_is_held_refuses_and_the_next_try_is_a_new_operation() {
    tell(
        HARD,
        true,
        &[
            (0, Map(Primary(1)), Send(Number::New)),
            (1, Try(Ended::Busy, PutBack), pause(1)),
            (2, Map(Primary(1)), Send(Number::Same)),
            (3, Try(Ended::Held, PutBack), pause(2)),
            (5, Map(Primary(1)), Send(Number::New)),
            (6, Try(Ended::Answered, PutBack), Return),
        ],
    );
}

#[test]
fn changes_wait_for_a_quorum_so_long_and_reads_for_ever() {
    let retry_policy = RetryPolicy { quorum_wait: ms(100), ..HARD };
    let change = [
        (0, Map(Primary(1)), Send(Number::New)),
        (99, Try(Ended::BelowQuorum, PutBack), pause(1)),
        (100, Map(Primary(1)), Send(Number::Same)),
        (101, Try(Ended::BelowQuorum, PutBack), Fail(Errno::EROFS)),
    ];
    tell(retry_policy, true, &change);
    let read = [
        (0, Map(Primary(1)), Send(Number::None)),
        (101, Try(Ended::BelowQuorum, PutBack), pause(1)),
        (102, Map(Primary(1)), Send(Number::None)),
    ];
    tell(retry_policy, false, &read);
}

#[test]
fn a_soft_mount_gives_up() {
    let retry_policy = RetryPolicy { soft: Some(ms(300)), ..HARD };
    tell(
        retry_policy,
        false,
        &[
            (0, Map(NoPrimary(1)), pause(1)),
            (299, Map(NoPrimary(1)), pause(2)),
            (300, Map(NoPrimary(1)), Fail(Errno::ETIMEDOUT)),
        ],
    );
}

#[test]
fn a_change_or_an_open_that_is_interrupted_gives_its_connection_up() {
    let interrupted = (1, Try(Ended::Interrupted, GiveUp), Fail(Errno::EINTR));
    tell(HARD, true, &[(0, Map(Primary(1)), Send(Number::New)), interrupted]);
    assert_eq!(Ended::Interrupted.fate(false), Fate::Close);
    assert_eq!(Ended::Stopped.fate(true), GiveUp, "an open, for one");
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    tell(HARD, false, &[(0, Map(Known::Deleted), Fail(Errno::ENOTCONN))]);
    tell(HARD, false, &[(0, Map(Known::NoSet), Fail(Errno::ESTALE))]);
    tell(
        HARD,
        true,
        &[
            (0, Map(Primary(1)), Send(Number::New)),
            (1, Try(Ended::Stopped, GiveUp), Fail(Errno::ESHUTDOWN)),
            (1, Map(Known::Stopped), Fail(Errno::ESHUTDOWN)),
        ],
    );
}

#[test]
fn a_call_waits_for_a_stopped_volume_unless_the_mount_is_soft() {
    tell(
        HARD,
        true,
        &[
            (0, Map(Primary(1)), Send(Number::New)),
            (1, Try(Ended::WrongView, PutBack), pause(1)),
            (2, Map(Known::NotStarted), pause(2)),
            (900, Map(Known::NotStarted), Action::Pause { time: ms(4), alarm: true }),
            (901, Map(Primary(2)), Send(Number::Same)),
            (902, Try(Ended::Answered, PutBack), Return),
        ],
    );
    let soft = RetryPolicy { soft: Some(ms(300)), ..HARD };
    tell(soft, true, &[(0, Map(Known::NotStarted), Fail(Errno::ENOTCONN))]);
    tell(RetryPolicy { once: true, ..HARD }, false, &[(0, Map(Known::NotStarted), Fail(Errno::ENOTCONN))]);
}

#[test]
fn pauses_grow_to_a_quarter_of_a_second() {
    let mut call = CallMachine::new(HARD, false);
    let mut last = Duration::ZERO;
    for _ in 0..20 {
        let Action::Pause { time, .. } = call.look(NoPrimary(1), || ms(1)) else { unreachable!() };
        assert!(time >= last);
        last = time;
    }
    assert_eq!(last, PAUSE.1);
}

#[test]
fn what_nobody_needs_is_tried_once_and_not_for_long() {
    let policy = HARD.of(&Op::GetAttrs { fids: [].into() });
    assert_eq!((policy.soft, policy.once), (Some(IMPATIENCE), true));
    let short = RetryPolicy { soft: Some(ms(20)), ..HARD };
    assert_eq!(short.of(&Op::GetAttrs { fids: [].into() }).soft, Some(ms(20)));
    assert!(!HARD.of(&Op::SyncFs).once);
    let first = || (0, Map(Primary(1)), Send(Number::None));
    for (how, fate) in [
        (Ended::Busy, PutBack),
        (Ended::WrongView, PutBack),
        (Ended::OldBroke, Broke),
        (Ended::Lost, Broke),
        (Ended::BelowQuorum, PutBack),
    ] {
        tell(policy, false, &[first(), (1, Try(how, fate), Fail(Errno::ETIMEDOUT))]);
    }
    tell(policy, false, &[(0, Map(NoPrimary(1)), Fail(Errno::ETIMEDOUT))]);
    tell(policy, false, &[first(), (1, Try(Ended::Moved, Broke), Look)]);
}
