use std::collections::BTreeSet;

use ids::{BrickId, Epoch, ServerId, SetId, VolumeId};

use crate::{Command, Refusal, State, Status, limits, testing};

fn name() -> String {
    "v".to_owned()
}

/// A pool of three servers with a volume of two sets of three, stopped and deleted.
fn deleted() -> State {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 6);
    state.apply(&Command::StartVolume { name: name() }).unwrap();
    state.apply(&Command::BrickFailed { brick: BrickId(2), reason: String::new() }).unwrap();
    let refused = testing::refuse(&mut state, Command::RetireVolume { name: name() });
    assert_eq!(refused, Refusal::VolumeStarted { name: name() });
    state.apply(&Command::StopVolume { name: name() }).unwrap();
    state.apply(&Command::RetireVolume { name: name() }).unwrap();
    assert!(state.volumes.is_empty() && state.sets.is_empty() && state.retired("v").is_some());
    state
}

fn import(present: &[u32]) -> Command {
    Command::ImportVolume { volume: VolumeId(1), present: present.iter().map(|b| BrickId(*b)).collect() }
}

fn in_sync(state: &State, set: u32) -> Vec<u32> {
    state.sets[&SetId(set)].view.in_sync.iter().map(|b| b.0).collect()
}

#[test]
fn a_deleted_volume_comes_back_as_it_was() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 6);
    let before = state.clone();
    state.apply(&Command::RetireVolume { name: name() }).unwrap();
    assert_eq!(state.retired_with(BrickId(6)).map(|r| r.volume.id), Some(VolumeId(1)));
    assert!(state.retired_with(BrickId(7)).is_none());
    state.apply(&import(&[1, 2, 3, 4, 5, 6])).unwrap();
    assert_eq!(state.volumes, before.volumes);
    for (id, set) in &state.sets {
        let was = &before.sets[id];
        assert_eq!((&set.bricks, &set.view.in_sync), (&was.bricks, &was.view.in_sync));
        assert_eq!((set.view.primary, set.view.epoch), (was.view.primary, was.view.epoch.next()));
    }
    assert!(state.retired.is_empty());
    let refused = testing::refuse(&mut state, import(&[1, 2, 3, 4, 5, 6]));
    assert!(refused.to_string().contains("there is no deleted volume"), "{refused}");
}

#[test]
fn it_goes_on_with_those_that_are_there_and_have_the_latest_data() {
    let mut state = deleted();
    // Brick 2 was not in sync.
    let refused = testing::refuse(&mut state, import(&[2, 4, 5, 6])).to_string();
    assert!(refused.contains("set 1") && refused.contains("h1:/b1, h3:/b3"), "{refused}");
    state.apply(&import(&[2, 3, 4, 5])).unwrap();
    assert_eq!((in_sync(&state, 1), in_sync(&state, 2)), (vec![3], vec![4, 5]));
    assert_eq!(state.sets[&SetId(1)].view.primary, Some(BrickId(3)));
    assert!(state.sets[&SetId(1)].view.epoch > Epoch(2));
    assert_eq!(state.volume("v").map(|v| v.status), Some(Status::Stopped));
}

#[test]
fn what_took_its_place_meanwhile_refuses_it() {
    let all = || import(&[1, 2, 3, 4, 5, 6]);
    let mut state = deleted();
    testing::create(&mut state, "v", 1, 0, 1);
    assert_eq!(testing::refuse(&mut state, all()), Refusal::VolumeExists { name: name() });
    let mut state = deleted();
    testing::create(&mut state, "w", 1, 0, 1);
    let refused = testing::refuse(&mut state, all());
    assert_eq!(refused, Refusal::BrickInUse { brick: "h1:/b1".into(), volume: "w".into() });
    let mut state = deleted();
    state.apply(&Command::RemoveServer { server: ServerId(3), force: true }).unwrap();
    assert_eq!(testing::refuse(&mut state, all()), Refusal::UnknownServer { id: ServerId(3) });
    state.apply(&Command::ForgetRetired { volume: VolumeId(1) }).unwrap();
    assert!(state.retired.is_empty());
}

#[test]
fn the_oldest_are_forgotten() {
    let mut state = testing::pool(1);
    for n in 0..=limits::RETIRED {
        testing::create(&mut state, "v", 1, 0, 1);
        state.apply(&Command::RetireVolume { name: name() }).unwrap();
        assert_eq!(state.retired("v").map(|r| r.volume.id.0), Some(n as u32 + 1), "the newest of the name");
    }
    let kept: BTreeSet<VolumeId> = state.retired.keys().copied().collect();
    assert_eq!((kept.len(), kept.first()), (limits::RETIRED, Some(&VolumeId(2))));
}
