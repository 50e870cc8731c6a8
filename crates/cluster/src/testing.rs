//! Small pools for tests.

use std::collections::BTreeMap;

use ids::{BrickId, ServerId, SetId};

use crate::{BrickSpec, Command, NewServer, NewVolume, Outcome, Refusal, State, ViewChange, hex};

/// Server `n` as `h<n>`.
pub(crate) fn server(n: u64) -> NewServer {
    NewServer {
        identity: hex::encode(u128::from(n) + 1000),
        host: format!("h{n}"),
        address: format!("127.0.0.{n}:24240"),
    }
}

/// A pool of `n` servers h1, h2, ...
pub(crate) fn pool(n: u64) -> State {
    let mut state = State::default();
    state.apply(&Command::InitPool { pool: hex::encode(7), server: server(1) }).unwrap();
    for i in 2..=n {
        state.apply(&Command::AddServer(server(i))).unwrap();
    }
    state
}

/// Bricks /b1, /b2, ... dealt to servers 1.. in turn.
pub(crate) fn volume(state: &State, name: &str, replica: u32, arbiter: u32, bricks: u64) -> NewVolume {
    let servers = state.servers.len() as u64;
    let brick = |i: u64| BrickSpec { server: ServerId(i % servers + 1), path: format!("/b{}", i + 1) };
    NewVolume {
        name: name.into(),
        replica,
        arbiter,
        bricks: (0..bricks).map(brick).collect(),
        force: false,
        created: 0,
        expect_brick: None,
        options: BTreeMap::new(),
    }
}

pub(crate) fn create(state: &mut State, name: &str, replica: u32, arbiter: u32, bricks: u64) {
    let new = volume(state, name, replica, arbiter, bricks);
    state.apply(&Command::CreateVolume(new)).unwrap();
}

/// Directories of servers.
pub(crate) fn specs(bricks: &[(u64, &str)]) -> Vec<BrickSpec> {
    let spec = |(server, path): &(u64, &str)| BrickSpec { server: ServerId(*server), path: (*path).into() };
    bricks.iter().map(spec).collect()
}

/// The primary of set 1 says who is in sync now, with who was healed.
pub(crate) fn view(
    state: &mut State,
    primary: u32,
    in_sync: &[u32],
    healed: &[u32],
) -> Result<Outcome, Refusal> {
    let b = |ids: &[u32]| ids.iter().map(|id| BrickId(*id)).collect();
    let change = ViewChange {
        set: SetId(1),
        expect_epoch: state.sets[&SetId(1)].view.epoch,
        primary: Some(BrickId(primary)),
        in_sync: b(in_sync),
        healed: b(healed),
        lost: false,
        reason: "test".into(),
    };
    let done = state.apply(&Command::ChangeView(change));
    state.check();
    done
}

/// Applies, and sees that a refusal changes nothing.
pub(crate) fn refuse(state: &mut State, command: Command) -> Refusal {
    let before = state.clone();
    let refusal = state.apply(&command).unwrap_err();
    assert_eq!(*state, before, "a refused command changes nothing");
    refusal
}

/// Applies and returns the epochs of the changed views.
pub(crate) fn views(state: &mut State, command: Command) -> Vec<(u32, u32)> {
    match state.apply(&command).unwrap() {
        Outcome::Views(v) => v.into_iter().map(|(s, e)| (s.0, e.0)).collect(),
        other => panic!("{other:?}"),
    }
}
