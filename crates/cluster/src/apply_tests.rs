use super::*;
use crate::{NewVolume, testing};

fn set(volume: &str, key: &str, value: Option<&str>) -> OptionChange {
    OptionChange { volume: volume.into(), key: key.into(), value: value.map(str::to_string) }
}

#[test]
fn a_pool_begins_once() {
    let mut state = State::default();
    assert_eq!(testing::refuse(&mut state, Command::AddServer(testing::server(1))), Refusal::NoPool);
    let init = |pool: &str| Command::InitPool { pool: pool.into(), server: testing::server(1) };
    assert!(testing::refuse(&mut state, init("xyz")).to_string().contains("32 lower-case hex digits"));
    assert_eq!(state.apply(&init(&hex::encode(1))), Ok(Outcome::Server(ServerId(1))));
    assert_eq!(state.servers[&ServerId(1)].role, Role::Voter);
    assert_eq!(testing::refuse(&mut state, init(&hex::encode(2))), Refusal::PoolExists);
    assert_eq!(state.version, 1);
}

#[test]
fn servers_come_and_go_under_new_ids() {
    let mut state = testing::pool(2);
    let again = testing::refuse(&mut state, Command::AddServer(testing::server(2)));
    assert_eq!(again, Refusal::ServerExists { host: "h2".into(), id: ServerId(2) });
    let near = NewServer { address: "127.0.0.2:24240".into(), ..testing::server(3) };
    assert!(
        testing::refuse(&mut state, Command::AddServer(near)).to_string().contains("belongs to server 'h2'")
    );
    state.apply(&Command::RemoveServer { server: ServerId(2), force: false }).unwrap();
    assert_eq!(state.apply(&Command::AddServer(testing::server(2))), Ok(Outcome::Server(ServerId(3))));
}

#[test]
fn servers_with_bricks_and_the_last_one_stay() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let remove = |id| Command::RemoveServer { server: ServerId(id), force: true };
    let refusal = testing::refuse(&mut state, remove(2)).to_string();
    assert!(refusal.starts_with("server 'h2' holds bricks of volume 'v': let its bricks move"), "{refusal}");
    assert_eq!(testing::refuse(&mut state, remove(9)), Refusal::UnknownServer { id: ServerId(9) });
    state.apply(&Command::DeleteVolume { name: "v".into() }).unwrap();
    state.apply(&remove(2)).unwrap();
    assert_eq!(testing::refuse(&mut state, remove(1)), Refusal::LastServer { host: "h1".into() });
}

#[test]
fn addresses_change() {
    let mut state = testing::pool(2);
    let to = |address: &str| Command::SetServerAddress { server: ServerId(2), address: address.into() };
    state.apply(&to("h2:1")).unwrap();
    state.apply(&to("h2:1")).unwrap();
    assert_eq!(state.servers[&ServerId(2)].address, "h2:1");
    assert!(matches!(testing::refuse(&mut state, to("127.0.0.1:24240")), Refusal::AddressInUse { .. }));
    assert!(matches!(testing::refuse(&mut state, to("nonsense")), Refusal::Address { .. }));
}

#[test]
fn the_life_of_a_volume() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let name = || "v".to_string();
    assert!(matches!(
        testing::refuse(&mut state, Command::StopVolume { name: name() }),
        Refusal::NotStarted { .. }
    ));
    state.apply(&Command::StartVolume { name: name() }).unwrap();
    let again = testing::refuse(&mut state, Command::StartVolume { name: name() });
    assert_eq!(again, Refusal::AlreadyStarted { name: name() });
    let refusal = testing::refuse(&mut state, Command::DeleteVolume { name: name() }).to_string();
    assert_eq!(refusal, "volume 'v' is started: stop it first (mortar volume stop v)");
    state.apply(&Command::StopVolume { name: name() }).unwrap();
    assert_eq!(state.volume("v").unwrap().status, Status::Stopped);
    state.apply(&Command::DeleteVolume { name: name() }).unwrap();
    assert!(state.volumes.is_empty() && state.sets.is_empty());
    assert!(matches!(
        testing::refuse(&mut state, Command::StartVolume { name: name() }),
        Refusal::UnknownVolume { .. }
    ));
}

#[test]
fn options_are_set_all_or_none() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let both = vec![set("v", "features.read-only", Some("on")), set("v", "network.ping-timeuot", Some("3s"))];
    let refusal = testing::refuse(&mut state, Command::SetOptions { changes: both }).to_string();
    assert!(refusal.contains("did you mean 'network.ping-timeout'?"), "{refusal}");
    let good = vec![set("v", "features.read-only", Some(" on ")), set("v", "user.note", Some("hello"))];
    state.apply(&Command::SetOptions { changes: good }).unwrap();
    assert_eq!(state.volume("v").unwrap().options["features.read-only"], "on");
    let reset = vec![set("v", "features.read-only", None), set("v", "cluster.min-free-disk", None)];
    state.apply(&Command::SetOptions { changes: reset }).unwrap();
    assert_eq!(state.volume("v").unwrap().options.len(), 1);
}

/// The options go to each client in one message.
#[test]
fn options_have_a_bound_together() {
    let mut state = testing::pool(1);
    testing::create(&mut state, "v", 1, 0, 1);
    let change = |n: usize| OptionChange {
        volume: "v".into(),
        key: format!("user.{n}"),
        value: Some("x".repeat(limits::OPTION_VALUE)),
    };
    let all = |n: usize| Command::SetOptions { changes: (0..n).map(change).collect() };
    let refused = testing::refuse(&mut state, all(64));
    assert_eq!(refused, Refusal::OptionsTooLong { volume: "v".into(), max: limits::OPTIONS });
    state.apply(&all(60)).unwrap();
    let refused =
        testing::refuse(&mut state, Command::SetOptions { changes: (100..110).map(change).collect() });
    assert!(matches!(refused, Refusal::OptionsTooLong { .. }), "with those that are there");
}

#[test]
fn options_out_of_range_name_the_range() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let mut refusal = |key: &str, value: &str| {
        let changes = vec![set("v", key, Some(value))];
        testing::refuse(&mut state, Command::SetOptions { changes }).to_string()
    };
    let timeout = refusal("network.ping-timeout", "2h");
    assert_eq!(
        timeout,
        "option network.ping-timeout of volume 'v' cannot be '2h': use a duration from 1s to 60s"
    );
    assert!(refusal("cluster.quorum-count", "3").contains("at most 2"));
    let changes = vec![set("nope", "user.a", Some("1"))];
    assert!(matches!(
        testing::refuse(&mut state, Command::SetOptions { changes }),
        Refusal::UnknownVolume { .. }
    ));
}

#[test]
fn a_key_of_another_version_can_be_taken_away() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    state.volumes.values_mut().next().unwrap().options.insert("old.key".into(), "1".into());
    state.apply(&Command::SetOptions { changes: vec![set("v", "old.key", None)] }).unwrap();
    assert!(state.volume("v").unwrap().options.is_empty());
}

fn wanted(volume: NewVolume, status: Option<Status>, options: &[(&str, &str)]) -> ConfigVolume {
    let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    ConfigVolume { volume, status, options }
}

fn config(volumes: Vec<ConfigVolume>) -> Command {
    Command::ApplyConfig { volumes, expect_brick: None }
}

#[test]
fn a_document_adds_sets_after_those_that_are_there() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let more = testing::volume(&state, "v", 2, 0, 4);
    let grow = |volume: NewVolume, expect_brick| Command::ApplyConfig {
        volumes: vec![wanted(volume, None, &[])],
        expect_brick,
    };
    let refusal = testing::refuse(&mut state, grow(more.clone(), None));
    assert!(refusal.is_stale(), "{refusal}");
    let mut swapped = more.clone();
    swapped.bricks.rotate_left(2);
    let next = Some(state.next_brick);
    let refusal = testing::refuse(&mut state, grow(swapped, next));
    assert_eq!(refusal, Refusal::BricksDiffer { name: "v".into() });
    let mut odd = more.clone();
    odd.bricks.pop();
    let refusal = testing::refuse(&mut state, grow(odd, next));
    assert_eq!(refusal, Refusal::BrickCount { count: 1, replica: 2 });
    state.apply(&grow(more.clone(), next)).unwrap();
    assert_eq!(state.volume("v").unwrap().sets.len(), 2);
    state.apply(&grow(more, None)).unwrap();
}

#[test]
fn a_document_is_applied_all_or_none() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let v = testing::volume(&state, "v", 2, 0, 2);
    let mut w = testing::volume(&state, "w", 2, 0, 2);
    w.bricks.iter_mut().for_each(|b| b.path.push_str("-w"));
    let bad =
        vec![wanted(v.clone(), Some(Status::Started), &[]), wanted(w.clone(), None, &[("no.such", "1")])];
    testing::refuse(&mut state, config(bad));
    let good = vec![
        wanted(v.clone(), Some(Status::Started), &[("features.read-only", "on")]),
        wanted(w, Some(Status::Created), &[]),
    ];
    state.apply(&config(good.clone())).unwrap();
    assert_eq!(state.volume("v").unwrap().status, Status::Started);
    assert_eq!(state.volume("w").unwrap().status, Status::Created);
    state.apply(&config(good)).unwrap();
    state.apply(&config(vec![wanted(v.clone(), Some(Status::Stopped), &[])])).unwrap();
    let volume = state.volume("v").unwrap();
    assert!(volume.options.is_empty() && volume.status == Status::Stopped);
    let twice = vec![wanted(v.clone(), None, &[]), wanted(v.clone(), None, &[])];
    let refusal = testing::refuse(&mut state, config(twice));
    assert_eq!(refusal, Refusal::DescribedTwice { name: "v".into() });
    let other = NewVolume { replica: 1, ..v };
    let refusal = testing::refuse(&mut state, config(vec![wanted(other, None, &[])]));
    assert_eq!(refusal, Refusal::BricksDiffer { name: "v".into() });
}

#[test]
fn a_command_sent_twice_is_applied_once() {
    let mut state = testing::pool(1);
    let proposal = Proposal { id: 5, command: Command::AddServer(testing::server(2)) };
    let first = state.apply_proposal(&proposal);
    let before = state.clone();
    assert_eq!(state.apply_proposal(&proposal), first);
    assert_eq!(state, before);
    for id in 0..limits::RECENT as u128 * 2 {
        let command = Command::SetServerAddress { server: ServerId(1), address: "h1:1".into() };
        state.apply_proposal(&Proposal { id: id + 100, command }).unwrap();
    }
    assert_eq!(state.recent.len(), limits::RECENT);
    assert!(state.recent.iter().all(|r| r.id != 5), "the oldest answers are forgotten");
}

#[test]
fn voters_are_recorded() {
    let mut state = testing::pool(3);
    let voters = |ids: &[u64]| Command::SetVoters { voters: ids.iter().map(|id| ServerId(*id)).collect() };
    state.apply(&voters(&[2, 3])).unwrap();
    let roles: Vec<_> = state.servers.values().map(|s| s.role).collect();
    assert_eq!(roles, [Role::Learner, Role::Voter, Role::Voter]);
    assert_eq!(testing::refuse(&mut state, voters(&[])), Refusal::NoVoters);
    assert_eq!(testing::refuse(&mut state, voters(&[9])), Refusal::UnknownServer { id: ServerId(9) });
}

#[test]
fn a_server_takes_the_place_of_another() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 3);
    let old = state.servers[&ServerId(2)].clone();
    let same_host = NewServer { host: old.host.clone(), address: old.address.clone(), ..testing::server(9) };
    let replace =
        |server: u64, new: &NewServer| Command::ReplaceServer { server: ServerId(server), new: new.clone() };
    assert_eq!(
        testing::refuse(&mut state, replace(9, &same_host)),
        Refusal::UnknownServer { id: ServerId(9) }
    );
    for clash in [testing::server(2), NewServer { host: "h1".into(), ..same_host.clone() }] {
        assert!(matches!(testing::refuse(&mut state, replace(2, &clash)), Refusal::ServerExists { .. }));
    }
    assert_eq!(state.apply(&replace(2, &same_host)), Ok(Outcome::Server(ServerId(4))));
    assert!(!state.servers.contains_key(&ServerId(2)) && state.servers[&ServerId(4)].host == "h2");
    let set = state.sets.values().next().unwrap().clone();
    let brick = set.bricks.iter().find(|b| b.server == ServerId(4)).unwrap();
    assert!(!set.view.in_sync.contains(&brick.id), "it holds nothing until it has healed");
    assert_ne!(set.view.primary, Some(brick.id));
    // The only brick with the data stays the one that everybody waits for.
    let mut alone = testing::pool(2);
    testing::create(&mut alone, "w", 1, 0, 2);
    let new = NewServer { host: "h2".into(), ..testing::server(9) };
    alone.apply(&replace(2, &new)).unwrap();
    let set = alone.sets.values().nth(1).unwrap();
    assert!(set.view.primary.is_none() && set.view.in_sync.len() == 1);
    alone.check();
}

#[test]
fn a_recovered_pool_goes_on_from_one_server() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 3);
    state.apply(&Command::RecoverPool { server: ServerId(2) }).unwrap();
    assert!(!state.servers[&ServerId(2)].lost && state.servers[&ServerId(1)].lost);
    let set = state.sets.values().next().unwrap();
    let view = &set.view;
    assert_eq!(view.in_sync.len(), 1);
    assert_eq!(set.lost_before, view.epoch, "clients are told");
    // Numbers that the others may have given since are left out.
    assert!(view.epoch.0 > limits::RECOVERY_EPOCHS && state.generation == 1);
    let limits = u64::from(limits::RECOVERY_IDS);
    assert!(state.next_server.0 > limits && u64::from(state.next_brick.0) > limits);
    assert!(!state.is_server(ServerId(1), &testing::server(1).identity), "who was fenced off is nobody");
    let unknown = testing::refuse(&mut state, Command::RecoverPool { server: ServerId(9) });
    assert_eq!(unknown, Refusal::UnknownServer { id: ServerId(9) });
}

#[test]
fn numbers_do_not_overflow_however_often_a_pool_is_recovered() {
    let mut state = testing::pool(1);
    testing::create(&mut state, "v", 1, 0, 1);
    let recover = Command::RecoverPool { server: ServerId(1) };
    let recovered = (0..70_000).take_while(|_| state.apply(&recover).is_ok()).count();
    assert!((60_000..70_000).contains(&recovered), "{recovered} times");
    assert_eq!(testing::refuse(&mut state, recover), Refusal::OutOfIds);
    state.check();
}

#[test]
fn commands_tolerate_added_fields() {
    let text = r#"{"start-volume":{"name":"v","added":1}}"#;
    assert_eq!(serde_json::from_str::<Command>(text).unwrap(), Command::StartVolume { name: "v".into() });
    let bare = r#"{"create-volume":{"name":"v","replica":1,"bricks":[{"server":1,"path":"/b"}]}}"#;
    assert!(matches!(serde_json::from_str::<Command>(bare).unwrap(), Command::CreateVolume(_)));
}

#[test]
fn a_newer_format_is_refused() {
    let state = State { format: limits::STATE_FORMAT + 1, ..State::default() };
    assert!(state.check_format().unwrap_err().to_string().contains("update it"));
    assert_eq!(State::default().check_format(), Ok(()));
}

#[test]
fn a_lowered_lease_is_remembered() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 3);
    let mut set = |value: &str| {
        let change = OptionChange {
            volume: "v".into(),
            key: "network.ping-timeout".into(),
            value: Some(value.into()),
        };
        state.apply(&Command::SetOptions { changes: vec![change] }).unwrap();
        (state.lease_length().as_secs(), state.longest_lease().as_secs())
    };
    assert_eq!(set("60s"), (60, 60));
    assert_eq!(set("2s"), (2, 60));
    assert_eq!(set("30s"), (30, 60));
}
