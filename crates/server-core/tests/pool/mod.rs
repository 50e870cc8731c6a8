//! A pool for tests: two servers, a volume of one set on both.
#![allow(clippy::unwrap_used, reason = "shared by several tests")]

use cluster::{BrickSpec, Command, NewServer, NewVolume, State, ViewChange, hex};
use ids::{BrickId, ServerId, SetId};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const ME: ServerId = ServerId(1);
pub(crate) const OTHER: ServerId = ServerId(2);
pub(crate) const SET: SetId = SetId(1);
pub(crate) const MINE: BrickId = BrickId(1);
pub(crate) const THEIRS: BrickId = BrickId(2);

fn server(n: u64) -> NewServer {
    NewServer {
        identity: hex::encode(u128::from(n) + 1000),
        host: format!("h{n}"),
        address: format!("127.0.0.{n}:24240"),
    }
}

/// The volume is started, and the first brick leads.
pub(crate) fn pool() -> State {
    let mut state = State::default();
    let brick = |n: u64| BrickSpec { server: ServerId(n), path: format!("/b{n}") };
    let volume = NewVolume {
        name: "v".into(),
        replica: 2,
        arbiter: 0,
        bricks: vec![brick(1), brick(2)],
        force: false,
        created: 0,
        expect_brick: None,
        options: BTreeMap::new(),
    };
    for command in [
        Command::InitPool { pool: hex::encode(7), server: server(1) },
        Command::AddServer(server(2)),
        Command::CreateVolume(volume),
        Command::StartVolume { name: "v".into() },
    ] {
        state.apply(&command).unwrap();
    }
    state
}

/// The set goes on in this view.
pub(crate) fn view(state: &mut State, primary: BrickId, in_sync: &[BrickId]) {
    let expect_epoch = state.sets.get(&SET).unwrap().view.epoch;
    let change = ViewChange {
        set: SET,
        expect_epoch,
        primary: Some(primary),
        in_sync: in_sync.iter().copied().collect::<BTreeSet<_>>(),
        healed: BTreeSet::new(),
        lost: false,
        reason: String::new(),
    };
    state.apply(&Command::ChangeView(change)).unwrap();
}
