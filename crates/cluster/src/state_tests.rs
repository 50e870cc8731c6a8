use super::*;
use crate::{Command, testing};

#[test]
fn json_keeps_everything_and_tolerates_more() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 1, 6);
    let text = serde_json::to_string(&state).unwrap();
    assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
    let more = text.replacen("{\"format\"", "{\"later\":[1],\"format\"", 1);
    assert_eq!(serde_json::from_str::<State>(&more).unwrap(), state);
    assert!(text.contains("\"servers\":{\"1\":{"), "ids are bare numbers: {text}");
}

#[test]
fn look_ups() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    assert_eq!(state.server_by_host("h2").unwrap().id, ServerId(2));
    assert_eq!(state.server_by_host("127.0.0.2:24240").unwrap().id, ServerId(2));
    assert!(state.server_by_host("h9").is_none());
    let identity = state.servers[&ServerId(2)].identity.clone();
    assert_eq!(state.server_by_identity(&identity).unwrap().id, ServerId(2));
    let (set, brick) = state.brick(BrickId(2)).unwrap();
    assert_eq!((set.id, state.brick_name(brick)), (SetId(1), "h2:/b2".to_string()));
    assert_eq!(state.bricks_of(ServerId(1)).count(), 1);
    assert_eq!(state.primaries(), BTreeMap::from([(ServerId(1), 1), (ServerId(2), 0)]));
}

#[test]
fn a_wiped_server_is_not_the_one_it_was() {
    let state = testing::pool(2);
    let identity = &state.servers[&ServerId(2)].identity;
    assert!(state.is_server(ServerId(2), identity));
    assert!(!state.is_server(ServerId(1), identity) && !state.is_server(ServerId(2), "other"));
}

#[test]
fn write_quorum() {
    let mut state = testing::pool(4);
    testing::create(&mut state, "v", 4, 0, 4);
    let mut quorum = |replica: u32, options: &[(&str, &str)]| {
        let volume = state.volumes.values_mut().next().unwrap();
        volume.options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        volume.write_quorum(replica)
    };
    assert_eq!([1, 2, 3, 4, 5].map(|n| quorum(n, &[])), [1, 1, 2, 3, 3]);
    assert_eq!(quorum(3, &[("cluster.quorum-type", "none")]), 1);
    assert_eq!(quorum(3, &[("cluster.quorum-type", "fixed"), ("cluster.quorum-count", "3")]), 3);
    assert_eq!(quorum(2, &[("cluster.quorum-type", "fixed"), ("cluster.quorum-count", "3")]), 2);
}

#[test]
#[should_panic(expected = "a primary is in sync")]
fn check_sees_a_primary_out_of_sync() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    state.sets.get_mut(&SetId(1)).unwrap().view.in_sync.remove(&BrickId(1));
    state.check();
}

#[test]
#[should_panic(expected = "no two bricks share a directory")]
fn check_sees_nested_bricks() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 4);
    state.sets.get_mut(&SetId(2)).unwrap().bricks[0].path = "/b1/x".into();
    state.check();
}

#[test]
fn a_random_history_is_deterministic_and_sound() {
    let (mut a, mut b) = (testing::pool(4), testing::pool(4));
    let mut seed = 1u64;
    for step in 0..400u64 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let pick = (seed >> 33) % 8;
        let name = format!("v{}", (seed >> 40) % 5);
        let command = match pick {
            0 => {
                let mut new = testing::volume(&a, &name, 2, 0, 4);
                new.bricks.iter_mut().for_each(|b| b.path = format!("/{step}{}", b.path));
                Command::CreateVolume(new)
            }
            1 => Command::DeleteVolume { name },
            2 => Command::StartVolume { name },
            3 => Command::StopVolume { name },
            4 | 5 => Command::ServerDown { server: ServerId((seed >> 50) % 4 + 1) },
            _ => {
                let Some(set) = a.sets.values().nth((seed >> 45) as usize % a.sets.len().max(1)) else {
                    continue;
                };
                let all: BTreeSet<BrickId> = set.bricks.iter().map(|b| b.id).collect();
                Command::ChangeView(crate::ViewChange {
                    set: set.id,
                    expect_epoch: set.view.epoch,
                    primary: set.bricks.first().map(|b| b.id),
                    in_sync: all.clone(),
                    healed: all,
                    lost: false,
                    reason: String::new(),
                })
            }
        };
        assert_eq!(a.apply(&command), b.apply(&command));
    }
    assert_eq!(serde_json::to_string(&a).unwrap(), serde_json::to_string(&b).unwrap());
    assert!(a.version > 100, "commands were applied: {}", a.version);
}
