use super::*;
use crate::{Command, NewBricks, NewVolume, testing};
use ids::VolumeId;

/// Numbers of a volume's sets.
fn numbers(state: &State, volume: &str) -> Vec<u32> {
    state.sets_of(state.volume(volume).unwrap()).map(|s| s.number).collect()
}

fn create(state: &mut State, name: &str, bricks: &[(u64, &str)]) {
    let new = NewVolume {
        name: name.into(),
        bricks: testing::specs(bricks),
        ..testing::volume(state, name, 1, 0, 1)
    };
    state.apply(&Command::CreateVolume(new)).unwrap();
}

fn grow(state: &mut State, volume: &str, path: &str) {
    let bricks = testing::specs(&[(1, path)]);
    let new = NewBricks { volume: volume.into(), bricks, force: false, expect_brick: state.next_brick };
    state.apply(&Command::AddBricks(new)).unwrap();
}

/// Volume v has sets 1, 2 and 4 of the pool, volume w set 3.
fn two_volumes() -> State {
    let mut state = testing::pool(1);
    create(&mut state, "v", &[(1, "/a"), (1, "/b")]);
    create(&mut state, "w", &[(1, "/c")]);
    grow(&mut state, "v", "/d");
    state
}

/// The state as a program of before would have written it.
fn of_before(state: &State) -> String {
    let mut record = serde_json::to_value(state).unwrap();
    let strip = |value: &mut serde_json::Value| {
        let value = value.as_object_mut().unwrap();
        (value.remove("number"), value.remove("numbered"))
    };
    let stripped: Vec<_> = ["sets", "volumes"]
        .iter()
        .flat_map(|kind| record[kind].as_object_mut().unwrap().values_mut().map(strip).collect::<Vec<_>>())
        .collect();
    assert!(stripped.iter().all(|(number, numbered)| number.is_some() || numbered.is_some()));
    record.to_string()
}

#[test]
fn each_volume_counts_its_sets_from_one() {
    let state = two_volumes();
    assert_eq!((numbers(&state, "v"), numbers(&state, "w")), (vec![1, 2, 3], vec![1]));
    assert_eq!(state.named(SetId(3)).to_string(), "set 1 of volume w");
    assert_eq!(state.named(SetId(4)).to_string(), "set 3 of volume v");
    assert_eq!(state.named(SetId(9)).to_string(), "set #9", "there is none, so it has no number");
}

#[test]
fn records_of_before_get_the_same_numbers_everywhere() {
    let now = two_volumes();
    let read: State = serde_json::from_str(&of_before(&now)).unwrap();
    assert_eq!(read.sets, now.sets);
    read.check();
    // A server that has read such a record, and one that has kept numbers from the start, give the next set the same.
    let (mut a, mut b) = (read, now);
    for state in [&mut a, &mut b] {
        grow(state, "w", "/e");
        grow(state, "v", "/f");
    }
    assert_eq!((numbers(&a, "v"), numbers(&a, "w")), (vec![1, 2, 3, 4], vec![1, 2]));
    assert_eq!(a, b);
}

#[test]
fn a_number_is_never_given_again() {
    let mut state = two_volumes();
    state.sets.remove(&SetId(4));
    state.volumes.get_mut(&VolumeId(1)).unwrap().sets.retain(|s| *s != SetId(4));
    let mut read: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(read, state);
    grow(&mut read, "v", "/e");
    assert_eq!(numbers(&read, "v"), [1, 2, 4]);
    read.sets.remove(&SetId(1));
    read.volumes.get_mut(&VolumeId(1)).unwrap().sets.retain(|s| *s != SetId(1));
    let read: State = serde_json::from_str(&serde_json::to_string(&read).unwrap()).unwrap();
    assert_eq!(numbers(&read, "v"), [2, 4], "the others keep theirs");
}

#[test]
fn a_deleted_volume_keeps_its_numbers() {
    let mut state = two_volumes();
    let before = numbers(&state, "v");
    state.apply(&Command::RetireVolume { name: "v".into() }).unwrap();
    let mut record = serde_json::to_value(&state).unwrap();
    for set in record["retired"]["1"]["sets"].as_array_mut().unwrap() {
        set.as_object_mut().unwrap().remove("number").unwrap();
    }
    let mut read: State = serde_json::from_value(record).unwrap();
    let present = (1..=4).map(ids::BrickId).collect();
    read.apply(&Command::ImportVolume { volume: VolumeId(1), present }).unwrap();
    assert_eq!(numbers(&read, "v"), before);
}

#[test]
fn a_refusal_of_before_names_the_id() {
    let text = r#"{"set-offline": {"set": 7}}"#;
    let refusal: crate::Refusal = serde_json::from_str(text).unwrap();
    assert!(refusal.to_string().starts_with("set #7 is offline"), "{refusal}");
    let now = crate::Refusal::SetOffline { set: two_volumes().named(SetId(3)) };
    let json = serde_json::to_value(&now).unwrap();
    assert_eq!(json, serde_json::json!({"set-offline": {"set": 3, "set_number": 1, "volume": "w"}}));
    assert_eq!(serde_json::from_value::<crate::Refusal>(json).unwrap(), now);
}
