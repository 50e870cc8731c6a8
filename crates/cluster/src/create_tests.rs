use super::*;
use crate::{Command, testing};

fn spec(server: u64, path: &str) -> BrickSpec {
    BrickSpec { server: ServerId(server), path: path.into() }
}

fn try_create(state: &mut State, replica: u32, arbiter: u32, bricks: &[BrickSpec]) -> String {
    let bricks = bricks.to_vec();
    let new = NewVolume {
        name: "w".into(),
        replica,
        arbiter,
        bricks,
        force: false,
        created: 0,
        expect_brick: None,
        options: BTreeMap::new(),
    };
    testing::refuse(state, Command::CreateVolume(new)).to_string()
}

#[test]
fn sets_start_in_sync_with_spread_primaries() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 9);
    let sets: Vec<_> = state.sets.values().collect();
    assert_eq!(sets.len(), 3);
    for set in &sets {
        assert_eq!((set.view.epoch, set.view.in_sync.len()), (Epoch(1), 3));
    }
    assert!(state.primaries().values().all(|n| *n == 1));
    assert_eq!(state.volume("v").unwrap().status, Status::Created);
}

#[test]
fn bricks_in_use_twice_or_nested_are_refused() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let one = |state: &mut State, path: &str| try_create(state, 1, 0, &[spec(1, path)]);
    assert_eq!(one(&mut state, "/b1/"), "brick h1:/b1 is in use by volume 'v': choose another directory");
    let inside = "brick h1:/b1/x lies inside or around brick h1:/b1: choose a directory apart from it";
    assert_eq!(one(&mut state, "/b1/x"), inside);
    assert!(one(&mut state, "rel").contains("it must be absolute"));
    let twice = try_create(&mut state, 1, 0, &[spec(1, "/n"), spec(1, "/n")]);
    assert_eq!(twice, "brick h1:/n is given twice: name each directory once");
    let nested = try_create(&mut state, 1, 0, &[spec(1, "/n/m"), spec(1, "/n")]);
    assert!(nested.starts_with("brick h1:/n/m lies inside or around brick h1:/n:"), "{nested}");
}

#[test]
fn the_same_path_on_two_servers_is_two_bricks() {
    let mut state = testing::pool(2);
    let new =
        NewVolume { bricks: vec![spec(1, "/b"), spec(2, "/b")], ..testing::volume(&state, "v", 2, 0, 0) };
    state.apply(&Command::CreateVolume(new)).unwrap();
}

#[test]
fn one_server_twice_in_a_set_needs_force() {
    let mut state = testing::pool(2);
    let bricks = [spec(1, "/a"), spec(1, "/b")];
    let refusal = try_create(&mut state, 2, 0, &bricks);
    assert!(refusal.contains("h1:/a and h1:/b") && refusal.ends_with("or add --force"), "{refusal}");
    let forced = NewVolume { force: true, bricks: bricks.to_vec(), ..testing::volume(&state, "v", 2, 0, 0) };
    state.apply(&Command::CreateVolume(forced)).unwrap();
}

#[test]
fn shapes_that_make_no_sets() {
    let mut state = testing::pool(3);
    let three = [spec(1, "/a"), spec(2, "/a"), spec(3, "/a")];
    assert!(try_create(&mut state, 2, 0, &three).contains("3 bricks cannot be sets of 2"));
    assert!(try_create(&mut state, 0, 0, &three).contains("replica 0"));
    assert!(try_create(&mut state, 9, 0, &three).contains("use 1 to 8"));
    assert!(try_create(&mut state, 3, 2, &three).contains("use replica 3 arbiter 1"));
    assert!(try_create(&mut state, 1, 0, &[]).contains("no bricks"));
    assert!(try_create(&mut state, 1, 0, &[spec(9, "/a")]).contains("server 9 is not in the pool"));
}

#[test]
fn names_are_unique_and_ids_never_reused() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let again = testing::volume(&state, "v", 2, 0, 2);
    let refusal = testing::refuse(&mut state, Command::CreateVolume(again));
    assert_eq!(refusal, Refusal::VolumeExists { name: "v".into() });
    state.apply(&Command::DeleteVolume { name: "v".into() }).unwrap();
    testing::create(&mut state, "v", 2, 0, 2);
    let volume = state.volume("v").unwrap();
    assert_eq!((volume.id, &volume.sets[..]), (VolumeId(2), &[SetId(2)][..]));
    assert!(state.brick(BrickId(3)).is_some() && state.brick(BrickId(1)).is_none());
}

#[test]
fn set_numbers_run_out_kindly() {
    let mut state = testing::pool(2);
    state.next_set = SetId(SetId::MAX.0 - 1);
    let many: Vec<_> = (0..4).map(|i| spec(1, &format!("/{i}"))).collect();
    assert!(try_create(&mut state, 1, 0, &many).contains("no numbers are left"));
}

#[test]
fn bricks_as_users_write_them() {
    let state = testing::pool(2);
    assert_eq!(state.resolve_brick("h2:/x/").unwrap(), spec(2, "/x"));
    assert_eq!(state.resolve_brick("127.0.0.2:24240:/x").unwrap(), spec(2, "/x"));
    let refusal = state.resolve_brick("h9:/x").unwrap_err().to_string();
    assert_eq!(refusal, "server 'h9' is not in the pool: probe it first (mortar peer probe h9)");
    for bad in ["/x", ":/x", "h1", "h1:x"] {
        assert_eq!(state.resolve_brick(bad), Err(Refusal::BrickSyntax { brick: bad.into() }));
    }
}

/// The colons of an address are not that before the path.
#[test]
fn addresses_stand_in_brackets() {
    let mut state = testing::pool(1);
    let server = crate::NewServer {
        identity: crate::hex::encode(9),
        host: "fd00::1".into(),
        address: "[fd00::1]:24240".into(),
    };
    state.apply(&Command::AddServer(server)).unwrap();
    let id = state.server_by_host("[fd00::1]").unwrap().id;
    for written in ["[fd00::1]:/p", "fd00::1:/p", "[fd00::1]:24240:/p"] {
        let found = state.resolve_brick(written).unwrap();
        assert_eq!((found.server, found.path.as_str()), (id, "/p"));
        assert_eq!(state.spec_name(&found), "[fd00::1]:/p");
    }
}

/// Its directories are bricks already, with the numbers that the pool would have given them.
#[test]
fn a_volume_whose_bricks_have_numbers_given_to_others_is_refused() {
    let mut state = testing::pool(1);
    let mut new = testing::volume(&state, "w", 1, 0, 1);
    new.expect_brick = Some(state.next_brick);
    testing::create(&mut state, "v", 1, 0, 1);
    new.bricks[0].path = "/w".into();
    let document = |new: &NewVolume| {
        let volume = crate::ConfigVolume { volume: new.clone(), status: None, options: Default::default() };
        Command::ApplyConfig { volumes: vec![volume], expect_brick: new.expect_brick }
    };
    for command in [Command::CreateVolume(new.clone()), document(&new)] {
        let refusal = testing::refuse(&mut state, command);
        assert!(refusal.is_stale(), "{refusal}");
    }
    new.expect_brick = Some(state.next_brick);
    state.apply(&Command::CreateVolume(new.clone())).unwrap();
    assert!(state.volume("w").is_some());
}

#[test]
fn of_a_volume_with_adopted_data_one_brick_is_in_sync_at_first() {
    let mut state = testing::pool(4);
    let new = testing::volume(&state, "v", 2, 0, 4);
    state.apply(&Command::AdoptVolume(new.clone())).unwrap();
    let sets: Vec<&Set> = state.sets.values().collect();
    let ids = |set: &Set| set.bricks.iter().map(|b| b.id.0).collect::<Vec<_>>();
    assert_eq!((ids(sets[0]), ids(sets[1])), (vec![1, 2], vec![3, 4]));
    assert_eq!(
        sets[0].view,
        View { epoch: Epoch(1), primary: Some(BrickId(1)), in_sync: [BrickId(1)].into() }
    );
    assert_eq!(sets[0].bricks.iter().map(|b| b.joining).collect::<Vec<_>>(), [false, true]);
    assert_eq!(
        (sets[1].view.in_sync.len(), sets[1].bricks[1].joining),
        (2, false),
        "it holds nothing that is old"
    );
    assert_eq!(state.volume("v").unwrap().replica, 2);

    let bricks = vec![new.bricks[0].clone(), BrickSpec { path: "/other".into(), ..new.bricks[0].clone() }];
    let beside = NewVolume { name: "w".into(), bricks, force: true, ..new };
    assert!(testing::refuse(&mut state, Command::AdoptVolume(beside)).to_string().contains("/b"));
}

#[test]
fn an_arbiter_of_a_volume_with_adopted_data_is_filled_too() {
    let mut state = testing::pool(3);
    let new = testing::volume(&state, "v", 3, 1, 3);
    state.apply(&Command::AdoptVolume(new)).unwrap();
    let set = state.sets.values().next().unwrap();
    assert_eq!(
        set.bricks.iter().map(|b| (b.arbiter, b.joining)).collect::<Vec<_>>(),
        [(false, false), (false, true), (true, true)]
    );
    assert_eq!(set.view.in_sync, [BrickId(1)].into());
}

/// They stand in the command: one of a program of before makes the same volume today as it did then.
#[test]
fn a_new_volume_begins_with_the_options_of_its_command() {
    let mut state = testing::pool(2);
    assert_eq!(state.options_of_new_volumes(), BTreeMap::new(), "a server of before would leave them out");
    state.apply(&Command::RaiseLevel { level: NEW_VOLUMES_HAVE_OPTIONS }).unwrap();
    let options = state.options_of_new_volumes();
    for (name, adopt) in [("made", false), ("adopted", true)] {
        let mut new = NewVolume { options: options.clone(), ..testing::volume(&state, name, 1, 0, 2) };
        new.bricks.iter_mut().for_each(|b| b.path.push_str(name));
        let command = if adopt { Command::AdoptVolume(new) } else { Command::CreateVolume(new) };
        state.apply(&command).unwrap();
        let volume = state.volume(name).unwrap();
        assert_eq!((&volume.options, volume.typed_options().large_file_size), (&options, 1 << 20));
    }
    let of_before = serde_json::json!({"create-volume": {
        "name": "before", "replica": 1, "bricks": [{"server": 1, "path": "/0"}, {"server": 2, "path": "/0"}],
    }});
    state.apply(&serde_json::from_value(of_before).unwrap()).unwrap();
    let volume = state.volume("before").unwrap();
    assert_eq!((volume.options.len(), volume.typed_options().large_file_size), (0, 0));
}

#[test]
fn options_that_a_volume_cannot_have_refuse_it() {
    let mut state = testing::pool(2);
    let mut with = |key: &str, value: &str| {
        let options = [(key.to_owned(), value.to_owned())].into();
        let new = NewVolume { options, ..testing::volume(&state.clone(), "w", 2, 0, 2) };
        testing::refuse(&mut state, Command::CreateVolume(new)).to_string()
    };
    assert!(with("cluster.large-file", "1MB").contains("cluster.large-file-size"));
    assert!(with("cluster.quorum-count", "3").contains("at most 2"));
    assert!(with("user.a", &"x".repeat(limits::OPTION_VALUE + 1)).contains("user.a"));
}
