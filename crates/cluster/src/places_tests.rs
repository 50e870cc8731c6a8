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
    assert_eq!(place(&state, 1, false), Some((4, "/c-set1-7".to_owned())));
    assert_eq!(place(&state, 5, false), Some((2, "/b-set3-7".to_owned())), "the newest has most room");
    empty(&mut state, "2");
    assert_eq!(place(&state, 5, false), Some((2, "/a-set3-7".to_owned())), "not to one that is emptied");
    empty(&mut state, "3");
    assert_eq!(place(&state, 1, false), None, "servers 1 and 2 have the set");
    assert_eq!(place(&state, 1, true), Some((1, "/b-set1-7".to_owned())), "its own server has another disk");
}

#[test]
fn a_guest_is_known_by_its_place() {
    for path in ["/c-set1", "/c-set1-7"] {
        let guests = guests_after(path);
        assert_eq!(guests, [7], "{path}");
    }
    for path in ["/c-set12", "/c-set1-old", "/c-set", "/d-set1"] {
        assert_eq!(guests_after(path), [0; 0], "{path}");
    }
}

/// Of another volume's set 1, whose id is not 1: places have the number, those of before the id.
#[test]
fn a_place_has_the_sets_number() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "w", 1, 0, 1);
    let new = crate::NewVolume {
        bricks: testing::specs(&[(1, "/a"), (2, "/a")]),
        ..testing::volume(&state, "v", 1, 0, 1)
    };
    state.apply(&Command::CreateVolume(new)).unwrap();
    assert_eq!(place(&state, 2, false), Some((2, "/a-set1-4".to_owned())));
    for (path, is_guest) in [("/a-set1-4", true), ("/a-set2-4", true), ("/a-set3-4", false)] {
        let mut state = state.clone();
        moves_to(&mut state, 2, (2, path));
        let host = state.brick(BrickId(3)).unwrap().1;
        assert_eq!(state.guests_of(host).count() == 1, is_guest, "{path}");
    }
}

/// The guests of brick 5, at `/c`, when a brick of set 1 has been replaced by one at that path on its server.
fn guests_after(path: &str) -> Vec<u32> {
    let mut state = three_sets();
    let guests = |state: &State| -> Vec<u32> {
        let (_, host) = state.brick(BrickId(5)).unwrap();
        state.guests_of(host).map(|b| b.id.0).collect()
    };
    assert_eq!(guests(&state), [0; 0]);
    let (set, old) = state.brick(BrickId(1)).unwrap();
    let new = crate::BrickSpec { server: ServerId(3), path: path.to_owned() };
    let (set, expect_epoch, old, force) = (set.id, set.view.epoch, old.id, false);
    state.apply(&Command::ReplaceBrick(crate::NewBrick { set, expect_epoch, old, new, force })).unwrap();
    guests(&state)
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

/// Has a brick replaced by a new one, which is in sync; its number.
fn moves_to(state: &mut State, old: u32, (server, path): (u64, &str)) -> u32 {
    let (set, old) = state.brick(BrickId(old)).unwrap();
    let (set, expect_epoch, old, force) = (set.id, set.view.epoch, old.id, false);
    let new = crate::BrickSpec { server: ServerId(server), path: path.to_owned() };
    state.apply(&Command::ReplaceBrick(crate::NewBrick { set, expect_epoch, old, new, force })).unwrap();
    let set = state.sets.get_mut(&set).unwrap();
    let new = set.bricks.iter_mut().find(|b| b.path == path).unwrap();
    new.replaces = None;
    let id = new.id;
    set.bricks.retain(|b| b.id != old);
    set.view.in_sync.retain(|b| *b != old);
    id.0
}

/// The directory of the brick that was there stays, and is no place any more.
#[test]
fn a_set_that_is_taken_out_again_finds_another_place() {
    let mut state = three_sets();
    let (server, path) = place(&state, 2, false).unwrap();
    let guest = moves_to(&mut state, 2, (server, &path));
    let back = moves_to(&mut state, guest, (2, "/back"));
    let (_, again) = place(&state, back, false).unwrap();
    assert!(path.starts_with("/c-set1") && again.starts_with("/c-set1"), "{path} {again}");
    assert_ne!(again, path);
}
