//! Frozen samples of what the pool store keeps: each command, each outcome, and the pool's state, as JSON.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../../admin/tests/json_sample/mod.rs"]
mod json_sample;

use cluster::{
    BrickSpec, ClientKey, Command, ConfigVolume, FewerCopies, HOSTS_BY_NAME, Joining, Key, KeyHolder,
    KeySubdir, KeyUser, MoreCopies, NewBrick, NewBricks, NewServer, NewVolume, OptionChange, Outcome,
    Proposal, Squash, State, Status, Token, ViewChange,
};
use ids::{BrickId, Epoch, KeyId, Lsn, ServerId, SetId, VolumeId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::PathBuf;

fn folder(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/v1").join(kind)
}

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(kind: &str, name: &str, value: &T) {
    let samples = json_sample::frozen(&folder(kind), name, &serde_json::to_value(value).unwrap());
    let read: Vec<T> = samples.into_iter().map(|s| serde_json::from_value(s).unwrap()).collect();
    assert_eq!(read.last(), Some(value), "{kind} {name}");
}

fn server(n: u64) -> NewServer {
    NewServer {
        identity: format!("{n:032x}"),
        host: format!("server{n}"),
        address: format!("192.0.2.{n}:24240"),
    }
}

fn volume() -> NewVolume {
    let brick = |n: u64| BrickSpec { server: ServerId(n), path: "/data/home".to_owned() };
    NewVolume {
        name: "home".to_owned(),
        replica: 3,
        arbiter: 1,
        bricks: (1..=3).map(brick).collect(),
        force: true,
        created: 1_795_305_600,
        expect_brick: None,
        options: BTreeMap::new(),
    }
}

/// A volume that begins with options. Those of the samples of states have none: they were made before there were any.
fn volume_with_options() -> NewVolume {
    let options = [("cluster.large-file-size".to_owned(), "1MB".to_owned())].into();
    NewVolume { options, ..volume() }
}

fn client_key() -> Key {
    let squash = Some(Squash { uid: 1000, gid: 100 });
    let (name, volume) = ("web-1".to_owned(), VolumeId(1));
    let client = ClientKey { name, volume, read_only: true, squash, users: vec![], subdir: None };
    Key { holder: KeyHolder::Client(client), created: 1_795_305_600, until: Some(1_795_392_000) }
}

fn token() -> Token {
    let replaces = Some(ServerId(3));
    Token { hash: "ab".repeat(32), until: 1_795_392_000, replaces, spent: None }
}

fn joining() -> Joining {
    let (hash, public) = ("ab".repeat(32), "cd".repeat(32));
    Joining { token: KeyId(6), hash, public, server: server(4), now: 1_795_305_800 }
}

fn webhook() -> Command {
    let url = Some("https://hooks.example.org/mortar".to_owned());
    Command::SetWebhook { url, at_ms: Some(1_795_305_900_123) }
}

fn note_hosts() -> Command {
    let addresses = ["192.0.2.7", "2001:db8::7"].map(|a| a.parse().unwrap());
    Command::NoteHosts { hosts: [("desk.example.org".to_owned(), addresses.into())].into() }
}

fn option(value: &str) -> OptionChange {
    let (volume, key) = ("home".to_owned(), "features.read-only".to_owned());
    OptionChange { volume, key, value: Some(value.to_owned()) }
}

/// The name of a command's sample. Without a wildcard: a new command has to be named here, and given a value below.
fn name(command: &Command) -> &'static str {
    match command {
        Command::InitPool { .. } => "init-pool",
        Command::AddServer(_) => "add-server",
        Command::RemoveServer { .. } => "remove-server",
        Command::ReplaceServer { .. } => "replace-server",
        Command::SetServerAddress { .. } => "set-server-address",
        Command::CreateVolume(_) => "create-volume",
        Command::AdoptVolume(_) => "adopt-volume",
        Command::AddBricks(_) => "add-bricks",
        Command::ReplaceBrick(_) => "replace-brick",
        Command::AddCopies(_) => "add-copies",
        Command::RemoveCopies(_) => "remove-copies",
        Command::StartVolume { .. } => "start-volume",
        Command::StopVolume { .. } => "stop-volume",
        Command::DeleteVolume { .. } => "delete-volume",
        Command::RetireVolume { .. } => "retire-volume",
        Command::ImportVolume { .. } => "import-volume",
        Command::ForgetRetired { .. } => "forget-retired",
        Command::SetOptions { .. } => "set-options",
        Command::ApplyConfig { .. } => "apply-config",
        Command::ChangeView(_) => "change-view",
        Command::ServerDown { .. } => "server-down",
        Command::BrickFailed { .. } => "brick-failed",
        Command::BrickMounted { .. } => "brick-mounted",
        Command::SetVoters { .. } => "set-voters",
        Command::RecoverPool { .. } => "recover-pool",
        Command::AddKey(_) => "add-key",
        Command::RevokeKey { .. } => "revoke-key",
        Command::RotateKey { .. } => "rotate-key",
        Command::SecurePool { .. } => "secure-pool",
        Command::AnnounceAuthority { .. } => "announce-authority",
        Command::BeginAuthority { .. } => "begin-authority",
        Command::EndAuthority { .. } => "end-authority",
        Command::AddToken { .. } => "add-token",
        Command::JoinServer(_) => "join-server",
        Command::SetWebhook { .. } => "set-webhook",
        Command::NoteHosts { .. } => "note-hosts",
        Command::RaiseLevel { .. } => "raise-level",
        Command::Promote { .. } => "promote",
    }
}

fn commands() -> Vec<Command> {
    let name = || "home".to_owned();
    let config = ConfigVolume {
        volume: volume(),
        status: Some(Status::Stopped),
        options: [("features.read-only".to_owned(), "on".to_owned())].into(),
    };
    vec![
        Command::InitPool { pool: format!("{:032x}", 7), server: server(1) },
        Command::AddServer(server(2)),
        Command::RemoveServer { server: ServerId(2), force: true },
        Command::ReplaceServer { server: ServerId(2), new: server(4) },
        Command::SetServerAddress { server: ServerId(2), address: "192.0.2.9:24240".to_owned() },
        Command::CreateVolume(volume_with_options()),
        Command::AdoptVolume(volume_with_options()),
        Command::AddBricks(NewBricks {
            volume: name(),
            bricks: vec![BrickSpec { server: ServerId(2), path: "/data2/home".to_owned() }],
            force: true,
            expect_brick: BrickId(4),
        }),
        Command::ReplaceBrick(NewBrick {
            set: SetId(1),
            expect_epoch: Epoch(3),
            old: BrickId(2),
            new: BrickSpec { server: ServerId(4), path: "/data/home".to_owned() },
            force: true,
        }),
        Command::AddCopies(MoreCopies {
            volume: name(),
            replica: 3,
            arbiter: 1,
            bricks: vec![BrickSpec { server: ServerId(4), path: "/data/home".to_owned() }],
        }),
        Command::RemoveCopies(FewerCopies {
            volume: name(),
            replica: 2,
            bricks: vec![BrickSpec { server: ServerId(4), path: "/data/home".to_owned() }],
            force: true,
        }),
        Command::StartVolume { name: name() },
        Command::StopVolume { name: name() },
        Command::DeleteVolume { name: name() },
        Command::RetireVolume { name: name() },
        Command::ImportVolume { volume: VolumeId(3), present: [BrickId(1), BrickId(4)].into() },
        Command::ForgetRetired { volume: VolumeId(3) },
        Command::SetOptions { changes: vec![option("on")] },
        Command::ApplyConfig { volumes: vec![config], expect_brick: Some(BrickId(4)) },
        Command::ChangeView(ViewChange {
            set: SetId(1),
            expect_epoch: Epoch(3),
            primary: Some(BrickId(2)),
            in_sync: [BrickId(2), BrickId(3)].into(),
            healed: [BrickId(3)].into(),
            lost: true,
            reason: "a brick lost changes".to_owned(),
        }),
        Command::ServerDown { server: ServerId(2) },
        Command::BrickFailed { brick: BrickId(2), reason: "the disk is full".to_owned() },
        Command::BrickMounted { brick: BrickId(2), mount: "/data".to_owned() },
        Command::SetVoters { voters: [ServerId(1), ServerId(3)].into() },
        Command::RecoverPool { server: ServerId(1) },
        webhook(),
        note_hosts(),
        Command::RaiseLevel { level: 1 },
        Command::Promote { set: SetId(1), expect_epoch: Epoch(3), brick: BrickId(2) },
        Command::AddKey(client_key()),
        Command::RevokeKey { key: KeyId(4) },
        Command::RotateKey { key: KeyId(4), created: 1_795_305_700, end: 1_795_392_100, users: vec![] },
        Command::SecurePool { keys: [(ServerId(1), KeyId(2)), (ServerId(2), KeyId(3))].into() },
        Command::AnnounceAuthority { next: "ef".repeat(32) },
        Command::BeginAuthority { next: "ef".repeat(32) },
        Command::EndAuthority { next: "ef".repeat(32) },
        Command::AddToken { token: token(), now: 1_795_305_700 },
        Command::JoinServer(joining()),
    ]
}

#[test]
fn every_command_is_frozen() {
    for command in commands() {
        check("command", name(&command), &command);
    }
    let proposal =
        Proposal { id: 0x0123_4567_89ab_cdef, command: Command::StartVolume { name: "home".to_owned() } };
    check("command", "proposal", &proposal);
}

#[test]
fn every_outcome_is_frozen() {
    check("outcome", "done", &Outcome::Done);
    check("outcome", "server", &Outcome::Server(ServerId(2)));
    check("outcome", "volume", &Outcome::Volume(VolumeId(3)));
    check("outcome", "key", &Outcome::Key(KeyId(4)));
    check("outcome", "joined", &Outcome::Joined { server: ServerId(4), key: KeyId(7) });
    check("outcome", "views", &Outcome::Views(vec![(SetId(1), Epoch(4))]));
}

/// A key is for some users or makes all one: the other sample of the command has no users.
#[test]
fn a_key_of_some_users_is_frozen() {
    let users = vec![KeyUser { uid: 1000, gid: 100, groups: vec![27, 44], name: None }];
    let (name, volume) = ("web-2".to_owned(), VolumeId(1));
    let client = ClientKey { name, volume, read_only: false, squash: None, users, subdir: None };
    let key = Key { holder: KeyHolder::Client(client), created: 1_795_305_600, until: None };
    check("command", "add-key-of-users", &Command::AddKey(key));
}

/// One whose users were named, and what takes its place when they were looked up again.
#[test]
fn users_who_are_looked_up_are_frozen() {
    let named = Some("ann".to_owned());
    let users = vec![KeyUser { uid: 1000, gid: 100, groups: vec![27, 44], name: named }];
    let (name, volume) = ("web-4".to_owned(), VolumeId(1));
    let client =
        ClientKey { name, volume, read_only: false, squash: None, users: users.clone(), subdir: None };
    let key = Key { holder: KeyHolder::Client(client), created: 1_795_305_600, until: None };
    check("command", "add-key-of-named-users", &Command::AddKey(key));
    let rotated = Command::RotateKey { key: KeyId(4), created: 1_795_305_700, end: 1_795_392_100, users };
    check("command", "rotate-key-looked-up", &rotated);
}

/// A key for a directory, likewise.
#[test]
fn a_key_of_a_directory_is_frozen() {
    let subdir = KeySubdir {
        set: SetId(1),
        epoch: Epoch(4),
        lsn: Lsn(1 << 40),
        home: SetId(2),
        path: "/projects/web".to_owned(),
    };
    let (name, volume, subdir) = ("web-3".to_owned(), VolumeId(1), Some(subdir));
    let client = ClientKey { name, volume, read_only: false, squash: None, users: vec![], subdir };
    let key = Key { holder: KeyHolder::Client(client), created: 1_795_305_600, until: None };
    check("command", "add-key-of-directory", &Command::AddKey(key));
}

/// A state made by commands, so that every kind of object is in it.
#[test]
fn the_state_is_frozen() {
    let mut state = State::default();
    for command in [
        Command::InitPool { pool: format!("{:032x}", 7), server: server(1) },
        Command::AddServer(server(2)),
        Command::AddServer(server(3)),
        Command::CreateVolume(volume()),
        Command::SetOptions { changes: vec![option("on")] },
        Command::StartVolume { name: "home".to_owned() },
        Command::BrickMounted { brick: BrickId(2), mount: "/data".to_owned() },
    ] {
        state.apply(&command).unwrap();
    }
    check("state", "pool", &state);
}

/// A state that says where events are sent.
#[test]
fn the_state_of_a_pool_with_a_webhook_is_frozen() {
    let mut state = State::default();
    let pool = Command::InitPool { pool: format!("{:032x}", 7), server: server(1) };
    [pool, webhook()].iter().for_each(|command| drop(state.apply(command).unwrap()));
    check("state", "webhook", &state);
}

/// A state that says how far all servers go.
#[test]
fn the_state_of_a_pool_with_a_level_is_frozen() {
    let mut state = State::default();
    let pool = Command::InitPool { pool: format!("{:032x}", 7), server: server(1) };
    [pool, Command::RaiseLevel { level: 1 }].iter().for_each(|command| drop(state.apply(command).unwrap()));
    check("state", "level", &state);
}

/// A program of before has set an address without saying when.
/// A state whose options name a host.
#[test]
fn the_state_of_a_pool_with_hosts_is_frozen() {
    let mut state = State::default();
    let pool = Command::InitPool { pool: format!("{:032x}", 7), server: server(1) };
    let level = Command::RaiseLevel { level: HOSTS_BY_NAME };
    [pool, level, note_hosts()].iter().for_each(|command| drop(state.apply(command).unwrap()));
    check("state", "hosts", &state);
}

#[test]
fn a_webhook_of_before_is_read() {
    let command = r#"{"set-webhook": {"url": "http://h/"}}"#;
    let read: Command = serde_json::from_str(command).unwrap();
    assert_eq!(read, Command::SetWebhook { url: Some("http://h/".to_owned()), at_ms: None });
    let state = State { webhook: Some("http://h/".to_owned()), ..State::default() };
    let mut json = serde_json::to_value(&state).unwrap();
    assert_eq!(json.as_object_mut().unwrap().remove("webhook_since"), None);
    assert_eq!(serde_json::from_value::<State>(json).unwrap(), state);
}

/// A state in which another authority takes the place of the pool's.
#[test]
fn the_state_of_a_pool_that_changes_its_authority_is_frozen() {
    let mut state = State::default();
    for command in [
        Command::InitPool { pool: format!("{:032x}", 7), server: server(1) },
        Command::AddKey(Key { holder: KeyHolder::Server(ServerId(1)), created: 1_795_305_600, until: None }),
        Command::SecurePool { keys: [(ServerId(1), KeyId(2))].into() },
        Command::AnnounceAuthority { next: "ef".repeat(32) },
    ] {
        state.apply(&command).unwrap();
    }
    check("state", "announced-authority", &state);
    let version = state.version;
    state.apply(&Command::BeginAuthority { next: "ef".repeat(32) }).unwrap();
    // The sample was made when authorities were not announced yet.
    state.version = version;
    check("state", "authority", &state);
}

/// A state with keys of all kinds, and a token that was spent.
#[test]
fn the_state_of_a_secured_pool_is_frozen() {
    let mut state = State::default();
    let of_server = |n| Key { holder: KeyHolder::Server(ServerId(n)), created: 1_795_305_600, until: None };
    let admin = KeyHolder::Admin { name: "ann".to_owned() };
    for command in [
        Command::InitPool { pool: format!("{:032x}", 7), server: server(1) },
        Command::AddServer(server(2)),
        Command::AddServer(server(3)),
        Command::CreateVolume(volume()),
        Command::AddKey(of_server(1)),
        Command::AddKey(of_server(2)),
        Command::AddKey(of_server(3)),
        Command::AddKey(client_key()),
        Command::AddKey(Key { holder: admin, created: 1_795_305_600, until: None }),
        Command::SecurePool { keys: (1..=3).map(|n| (ServerId(n), KeyId(n + 1))).collect() },
        Command::AddToken { token: token(), now: 1_795_305_700 },
        Command::JoinServer(Joining { token: KeyId(7), ..joining() }),
        Command::AddToken { token: Token { replaces: None, ..token() }, now: 1_795_305_800 },
    ] {
        state.apply(&command).unwrap();
    }
    check("state", "secured", &state);
}
