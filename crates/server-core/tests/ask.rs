//! Requests of one set's primary to another's.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use crate::pool::{ME, MINE, OTHER, SET, THEIRS, pool, view};
use cluster::{BrickSpec, Command, NewVolume};
use ids::{Fid, OpId, SessionId, SetId};
use server_core::Asker;
use server_core::ask::{Broken, Step};
use std::collections::BTreeMap;
use std::time::Duration;
use wire::{Body, Call, Errno, Fail, Name, Op, Reply};

const SESSION: SessionId = SessionId(77);

fn change() -> Op {
    Op::Unlink { parent: Fid::default(), name: Name::new(b"a").unwrap() }
}

fn read() -> Op {
    Op::Lookup { parent: Fid::default(), name: Name::new(b"a").unwrap() }
}

/// What was sent to the other server: the connection's number, the oldest one, the request.
fn sent(step: Step) -> (u64, u64, Call) {
    let Step::There { server, connection, oldest, call, timeout } = step else { panic!("{step:?}") };
    assert!(server == OTHER && timeout > Duration::ZERO);
    (connection, oldest, call)
}

#[test]
fn a_change_keeps_its_name_and_a_failed_try_is_ended_by_the_next() {
    let mut state = pool();
    view(&mut state, THEIRS, &[MINE, THEIRS]);
    let mut asker = Asker::new(SESSION);
    let mut question = asker.begin(None, (SET, SET), change());
    let (one, oldest, first) = sent(asker.look(&mut question, &state, ME));
    assert_eq!((one, oldest, first.id), (1, 1, OpId { session: SESSION, seq: 1 }));
    let pause = asker.answered(&mut question, Err(Broken));
    assert!(matches!(pause, Step::Pause(_)), "{pause:?}");
    let (two, oldest, again) = sent(asker.look(&mut question, &state, ME));
    assert_eq!((two, oldest, again.id), (2, 2, first.id), "a newer connection, which ends the other");
    let done = asker.answered(&mut question, Ok(Reply(Ok(Body::Done))));
    assert_eq!(done, Step::Done(Ok(Body::Done)));
    let mut next = asker.begin(None, (SET, SET), change());
    let (same, _, call) = sent(asker.look(&mut next, &state, ME));
    assert_eq!((same, call.id.seq), (2, 2), "the connection serves on");
}

#[test]
fn questions_share_a_connection_and_one_failure_ends_it_once() {
    let mut state = pool();
    view(&mut state, THEIRS, &[MINE, THEIRS]);
    let mut asker = Asker::new(SESSION);
    let (mut a, mut b) = (asker.begin(None, (SET, SET), change()), asker.begin(None, (SET, SET), read()));
    assert_eq!(sent(asker.look(&mut a, &state, ME)).0, 1);
    let (shared, _, unnamed) = sent(asker.look(&mut b, &state, ME));
    assert_eq!((shared, unnamed.id.seq), (1, 0), "what only reads has no name");
    asker.answered(&mut a, Err(Broken));
    assert_eq!(sent(asker.look(&mut a, &state, ME)).0, 2);
    asker.answered(&mut b, Err(Broken));
    assert_eq!(sent(asker.look(&mut b, &state, ME)).0, 2, "the new one is not to blame");
    asker.closed(OTHER, 1);
    let mut c = asker.begin(None, (SET, SET), read());
    assert_eq!(sent(asker.look(&mut c, &state, ME)).0, 2);
    asker.closed(OTHER, 2);
    let mut d = asker.begin(None, (SET, SET), read());
    assert_eq!(sent(asker.look(&mut d, &state, ME)).0, 3);
}

#[test]
fn a_question_follows_the_view_and_gives_up_at_last() {
    let mut state = pool();
    let mut asker = Asker::new(SESSION);
    let name = asker.next_id();
    let mut question = asker.begin(Some(name), (SET, SET), change());
    let Step::Here(call) = asker.look(&mut question, &state, ME) else { panic!("this server leads") };
    assert_eq!(call.id, name);
    let moved = Fail::WrongView { epoch: call.epoch.next() };
    assert!(matches!(asker.answered(&mut question, Ok(Reply(Err(moved)))), Step::Pause(_)));
    view(&mut state, THEIRS, &[THEIRS]);
    let (_, _, there) = sent(asker.look(&mut question, &state, ME));
    assert_eq!((there.id, there.epoch), (name, call.epoch.next()));
    let mut pauses = Vec::new();
    let mut step = asker.answered(&mut question, Ok(Reply(Err(Fail::Busy))));
    while let Step::Pause(pause) = step {
        pauses.push(pause.as_millis());
        sent(asker.look(&mut question, &state, ME));
        step = asker.answered(&mut question, Ok(Reply(Err(Fail::Busy))));
    }
    assert_eq!(step, Step::Done(Err(Fail::Busy)));
    assert_eq!(pauses[..6], [4, 8, 16, 32, 50, 50], "soon at first");
    assert!((1900..=2100).contains(&pauses.iter().sum::<u128>()), "{pauses:?}");
}

/// A power cut of the set may have taken what was to be synced.
#[test]
fn a_sync_over_a_loss_is_not_done() {
    let fsync = || Op::Fsync { fid: Fid::default() };
    for (op, lost) in [(fsync(), true), (fsync(), false), (read(), true)] {
        let mut state = pool();
        view(&mut state, THEIRS, &[THEIRS]);
        let mut asker = Asker::new(SESSION);
        let mut question = asker.begin(None, (SET, SET), op.clone());
        sent(asker.look(&mut question, &state, ME));
        asker.answered(&mut question, Err(Broken));
        view(&mut state, THEIRS, &[THEIRS]);
        if lost {
            let set = state.sets.get_mut(&SET).unwrap();
            set.lost_before = set.view.epoch;
        }
        let step = asker.look(&mut question, &state, ME);
        assert_eq!(step == Step::Done(Err(Fail::Busy)), lost && op == fsync(), "{step:?}");
    }
}

#[test]
fn a_sync_may_take_long() {
    let mut state = pool();
    view(&mut state, THEIRS, &[THEIRS]);
    let mut asker = Asker::new(SESSION);
    let mut wait = |op| {
        let mut question = asker.begin(None, (SET, SET), op);
        match asker.look(&mut question, &state, ME) {
            Step::There { timeout, .. } => timeout,
            step => panic!("{step:?}"),
        }
    };
    let fid = Fid::default();
    assert!(wait(Op::Fsync { fid }) >= wait(Op::GetAttr { fid }) * 10, "its disk may be slow");
}

#[test]
fn a_refusal_is_an_answer_and_a_set_that_is_gone_is_not_asked() {
    let mut state = pool();
    let mut asker = Asker::new(SESSION);
    let mut question = asker.begin(None, (SET, SET), read());
    assert!(matches!(asker.look(&mut question, &state, ME), Step::Here(_)));
    let refused = Fail::Errno { errno: Errno::ENOENT.0 };
    let step = asker.answered(&mut question, Ok(Reply(Err(refused.clone()))));
    assert_eq!(step, Step::Done(Err(refused)));
    state.sets.clear();
    let mut question = asker.begin(None, (SET, SET), read());
    assert_eq!(asker.look(&mut question, &state, ME), Step::Done(Err(Fail::Busy)));
}

/// A server may ask a set for anything. A client that may use one volume only must not have that done in another one.
#[test]
fn a_set_asks_sets_of_its_own_volume_only() {
    let mut state = pool();
    let other = NewVolume {
        name: "w".into(),
        replica: 1,
        arbiter: 0,
        bricks: vec![BrickSpec { server: ME, path: "/w".into() }],
        force: false,
        created: 0,
        expect_brick: None,
        options: BTreeMap::new(),
    };
    for command in [Command::CreateVolume(other), Command::StartVolume { name: "w".into() }] {
        state.apply(&command).unwrap();
    }
    let foreign = SetId(2);
    assert!(state.sets.get(&foreign).is_some_and(|set| set.view.primary.is_some()));
    let mut asker = Asker::new(SESSION);
    for (from, set) in [(SET, foreign), (foreign, SET)] {
        for op in [change(), read()] {
            let mut question = asker.begin(None, (from, set), op);
            let step = asker.look(&mut question, &state, ME);
            assert_eq!(step, Step::Done(Err(Fail::Errno { errno: Errno::EXDEV.0 })), "{from} asks {set}");
        }
    }
    let mut question = asker.begin(None, (foreign, foreign), change());
    assert!(matches!(asker.look(&mut question, &state, ME), Step::Here(_)));
}
