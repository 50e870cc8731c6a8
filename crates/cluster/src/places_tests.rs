use crate::{Command, OptionChange, State, testing};
use ids::{BrickId, ServerId};

/// The place for a brick, if every brick has its number as room.
fn place(state: &State, old: u32, same_server: bool) -> Option<(u64, String)> {
    let (set, brick) = state.brick(BrickId(old)).unwrap();
    let volume = state.volume("v").unwrap();
    let place = state.place_for(volume, set, brick, same_server, &|b| u64::from(b.id.0))?;
    let ServerId(server) = place.server;
    Some((server, place.path))
}

fn empty(state: &mut State, sets: &str) {
    let (volume, key) = ("v".to_owned(), "cluster.drain".to_owned());
    let changes = vec![OptionChange { volume, key, value: Some(sets.to_owned()) }];
    state.apply(&Command::SetOptions { changes }).unwrap();
}

/// Sets 1 and 2 are on servers 1 and 2, set 3 on 3 and 4.
fn three_sets() -> State {
    let mut state = testing::pool(4);
    let bricks = [(1, "/a"), (2, "/a"), (1, "/b"), (2, "/b"), (3, "/c"), (4, "/c")];
    let new = crate::NewVolume { bricks: testing::specs(&bricks), ..testing::volume(&state, "v", 2, 0, 2) };
    state.apply(&Command::CreateVolume(new)).unwrap();
    state
}

#[test]
fn a_brick_goes_where_most_room_is_on_a_server_without_its_set() {
    let mut state = three_sets();
    assert_eq!(place(&state, 1, false), Some((4, "/c-set1".to_owned())));
    assert_eq!(place(&state, 5, false), Some((2, "/b-set3".to_owned())), "the newest has most room");
    empty(&mut state, "2");
    assert_eq!(place(&state, 5, false), Some((2, "/a-set3".to_owned())), "not to one that is emptied");
    empty(&mut state, "3");
    assert_eq!(place(&state, 1, false), None, "servers 1 and 2 have the set");
    assert_eq!(place(&state, 1, true), Some((1, "/b-set1".to_owned())), "its own server has another disk");
}

#[test]
fn a_guest_is_known_by_its_place() {
    let mut state = three_sets();
    let guests = |state: &State| -> Vec<u32> {
        let (_, host) = state.brick(BrickId(5)).unwrap();
        state.guests_of(host).map(|b| b.id.0).collect()
    };
    assert_eq!(guests(&state), [0; 0]);
    let (set, old) = state.brick(BrickId(1)).unwrap();
    let new = crate::BrickSpec { server: ServerId(3), path: "/c-set1".to_owned() };
    let (set, expect_epoch, old, force) = (set.id, set.view.epoch, old.id, false);
    state.apply(&Command::ReplaceBrick(crate::NewBrick { set, expect_epoch, old, new, force })).unwrap();
    assert_eq!(guests(&state), [7]);
}

#[test]
fn beside_a_mount_point_is_no_place() {
    let mut state = three_sets();
    for set in state.sets.values_mut() {
        for b in set.bricks.iter_mut().filter(|b| b.path == "/c") {
            b.mount.clone_from(&b.path);
        }
    }
    assert_eq!(place(&state, 1, false), None);
}
