use super::*;
use crate::Command;
use crate::testing::{create, pool, server};

fn client(name: &str, volume: u32) -> Key {
    let client = ClientKey {
        name: name.to_owned(),
        volume: VolumeId(volume),
        read_only: false,
        squash: None,
        users: vec![],
        subdir: None,
    };
    Key { holder: KeyHolder::Client(client), created: 1, until: Some(100) }
}

fn server_key(n: u64) -> Key {
    Key { holder: KeyHolder::Server(ServerId(n)), created: 1, until: None }
}

fn number(outcome: Result<Outcome, Refusal>) -> KeyId {
    match outcome {
        Ok(Outcome::Key(key)) => key,
        other => panic!("{other:?}"),
    }
}

/// A pool of `n` servers that each have a key.
fn secured(n: u64) -> State {
    let mut state = pool(n);
    let keys: BTreeMap<ServerId, KeyId> =
        (1..=n).map(|i| (ServerId(i), number(state.apply(&Command::AddKey(server_key(i)))))).collect();
    let few = keys.clone().into_iter().skip(1).collect();
    assert_eq!(state.apply(&Command::SecurePool { keys: few }), Err(KeyRefusal::ServersWithout.into()));
    state.apply(&Command::SecurePool { keys }).unwrap();
    state
}

fn joining(token: KeyId, hash: char, n: u64) -> Joining {
    let hex = |c: char| c.to_string().repeat(64);
    Joining { token, hash: hex(hash), public: hex('d'), server: server(n), now: 50 }
}

fn token(state: &mut State, replaces: Option<ServerId>) -> KeyId {
    let token = Token { hash: "a".repeat(64), until: 60, replaces, spent: None };
    number(state.apply(&Command::AddToken { token, now: 50 }))
}

#[test]
fn a_key_is_let_in_until_it_expires_or_is_revoked() {
    let mut state = pool(2);
    create(&mut state, "v", 1, 0, 2);
    let key = number(state.apply(&Command::AddKey(client("web", 1))));
    assert!(state.keys.get(key, 100).is_some());
    assert!(state.keys.get(key, 101).is_none());
    let twice = state.apply(&Command::AddKey(client("web", 1)));
    assert_eq!(twice, Err(KeyRefusal::Exists { name: "web".to_owned() }.into()));
    state.apply(&Command::RevokeKey { key }).unwrap();
    assert!(state.keys.get(key, 1).is_none());
    assert_eq!(state.apply(&Command::RevokeKey { key }), Err(KeyRefusal::Unknown { key }.into()));
    let next = number(state.apply(&Command::AddKey(client("web", 1))));
    assert!(next > key, "a number is given once");
    for bad in ["", "-a", "a b", "a/b", &"x".repeat(65)] {
        let refused = state.apply(&Command::AddKey(client(bad, 1)));
        assert_eq!(refused, Err(KeyRefusal::Name { name: bad.to_owned() }.into()));
    }
    assert!(state.apply(&Command::AddKey(client("other", 9))).is_err(), "there is no such volume");
    assert!(state.apply(&Command::AddKey(server_key(9))).is_err());
}

#[test]
fn a_key_makes_nobody_root() {
    let mut state = pool(1);
    create(&mut state, "v", 1, 0, 1);
    let key = |name: &str, uid, gid| {
        let (volume, squash) = (VolumeId(1), Some(Squash { uid, gid }));
        let client = ClientKey {
            name: name.to_owned(),
            volume,
            read_only: false,
            squash,
            users: vec![],
            subdir: None,
        };
        Command::AddKey(Key { holder: KeyHolder::Client(client), created: 1, until: None })
    };
    for (uid, gid) in [(0, 1), (0, 0), (u32::MAX, 1), (1, u32::MAX)] {
        let refused = Err(KeyRefusal::Squash { uid, gid }.into());
        assert_eq!(state.apply(&key("web", uid, gid)), refused);
    }
    let old = number(state.apply(&key("web", 1000, 0)));
    let rotated = number(state.apply(&Command::RotateKey { key: old, created: 2, end: 3, users: vec![] }));
    assert_eq!(state.keys.keys[&rotated].holder, state.keys.keys[&old].holder, "with the same limits");
}

#[test]
fn a_key_of_some_users_is_for_none_who_is_root() {
    let mut state = pool(1);
    create(&mut state, "v", 1, 0, 1);
    let user = |uid, gid, groups: &[u32]| KeyUser { uid, gid, groups: groups.to_vec(), name: None };
    let key = |users: Vec<KeyUser>, squash| {
        let client = ClientKey {
            name: "web".to_owned(),
            volume: VolumeId(1),
            read_only: false,
            squash,
            users,
            subdir: None,
        };
        Command::AddKey(Key { holder: KeyHolder::Client(client), created: 1, until: None })
    };
    for bad in [user(0, 1, &[]), user(u32::MAX, 1, &[]), user(7, u32::MAX, &[]), user(7, 1, &[2, u32::MAX])] {
        let refused = Err(KeyRefusal::User { uid: bad.uid }.into());
        assert_eq!(state.apply(&key(vec![user(8, 8, &[]), bad], None)), refused);
    }
    let twice = vec![user(8, 8, &[]), user(8, 9, &[])];
    assert_eq!(state.apply(&key(twice, None)), Err(KeyRefusal::User { uid: 8 }.into()));
    let squash = Some(Squash { uid: 1, gid: 1 });
    assert_eq!(state.apply(&key(vec![user(8, 8, &[])], squash)), Err(KeyRefusal::SquashOfUsers.into()));
    let (users, groups) = (limits::KEY_USERS, limits::KEY_GROUPS);
    let many = Err(Refusal::from(KeyRefusal::ManyUsers { users, groups }));
    let all = (1..=257).map(|uid| user(uid, 1, &[])).collect();
    assert_eq!(state.apply(&key(all, None)), many);
    assert_eq!(state.apply(&key(vec![user(8, 8, &vec![5; groups + 1])], None)), many);
    let old = number(state.apply(&key(vec![user(8, 0, &[0, 5]), user(9, 9, &[])], None)));
    let rotated = number(state.apply(&Command::RotateKey { key: old, created: 2, end: 3, users: vec![] }));
    assert_eq!(state.keys.keys[&rotated].holder, state.keys.keys[&old].holder, "with the same users");
}

#[test]
fn users_who_are_looked_up_again_are_the_same_with_other_groups() {
    let mut state = pool(1);
    create(&mut state, "v", 1, 0, 1);
    let user = |uid, gid, groups: &[u32]| {
        let name = Some(format!("user{uid}"));
        KeyUser { uid, gid, groups: groups.to_vec(), name }
    };
    let add = |name: &str, users: Vec<KeyUser>| {
        let (name, volume) = (name.to_owned(), VolumeId(1));
        let client = ClientKey { name, volume, read_only: true, squash: None, users, subdir: None };
        Command::AddKey(Key { holder: KeyHolder::Client(client), created: 1, until: Some(9) })
    };
    let old = number(state.apply(&add("web", vec![user(8, 5, &[6]), user(9, 9, &[])])));
    let plain = number(state.apply(&add("plain", vec![])));
    let rotate = |key, users| Command::RotateKey { key, created: 2, end: 3, users };
    let others = Err(Refusal::from(KeyRefusal::OtherUsers));
    for users in [vec![user(8, 5, &[])], vec![user(9, 9, &[]), user(8, 5, &[])], vec![user(8, 5, &[]); 2]] {
        assert_eq!(state.apply(&rotate(old, users)), others);
    }
    assert_eq!(state.apply(&rotate(plain, vec![user(8, 5, &[])])), others, "it was for all");
    let wrong = vec![user(8, u32::MAX, &[]), user(9, 9, &[])];
    assert_eq!(state.apply(&rotate(old, wrong)), Err(KeyRefusal::User { uid: 8 }.into()));
    let users = vec![user(8, 4, &[7, 27]), user(9, 9, &[5])];
    let new = number(state.apply(&rotate(old, users.clone())));
    let [old, new] = [old, new].map(|key| state.keys.keys[&key].clone());
    let KeyHolder::Client(mut client) = old.holder else { panic!("{old:?}") };
    client.users = users;
    assert_eq!(new, Key { holder: KeyHolder::Client(client), created: 2, until: Some(9) });
    assert_eq!(old.until, Some(3));
}

#[test]
fn what_a_user_is_called_is_short_and_in_one_line() {
    let mut state = pool(1);
    create(&mut state, "v", 1, 0, 1);
    let mut add = |name: &str, called: &str| {
        let user = KeyUser { uid: 8, gid: 8, groups: vec![], name: Some(called.to_owned()) };
        let (name, volume, users) = (name.to_owned(), VolumeId(1), vec![user]);
        let client = ClientKey { name, volume, read_only: false, squash: None, users, subdir: None };
        state.apply(&Command::AddKey(Key { holder: KeyHolder::Client(client), created: 1, until: None }))
    };
    for bad in ["", "a\nb", &"x".repeat(limits::USER_NAME + 1)] {
        assert_eq!(add("web", bad), Err(KeyRefusal::User { uid: 8 }.into()), "{bad:?}");
    }
    number(add("web", &"x".repeat(limits::USER_NAME)));
}

#[test]
fn a_key_for_a_directory_is_for_one_beneath_the_volumes_own() {
    let mut state = pool(1);
    create(&mut state, "v", 1, 0, 1);
    let home = state.volumes[&VolumeId(1)].sets[0];
    let subdir = |lsn, home, path: &str| {
        let (set, epoch, lsn) = (SetId(1), Epoch(u32::from(lsn > 0)), Lsn(lsn));
        KeySubdir { set, epoch, lsn, home, path: path.to_owned() }
    };
    let key = |subdir: KeySubdir| {
        let (name, volume, subdir) = ("web".to_owned(), VolumeId(1), Some(subdir));
        let client = ClientKey { name, volume, read_only: false, squash: None, users: vec![], subdir };
        Command::AddKey(Key { holder: KeyHolder::Client(client), created: 1, until: None })
    };
    let long = "/x".repeat(limits::KEY_PATH);
    for bad in [
        subdir(0, home, "/root"),
        subdir(1 << 63 | 5, home, "/names"),
        subdir(5, SetId(99), "/elsewhere"),
        subdir(5, home, &long),
    ] {
        let path = bad.path.clone();
        assert_eq!(state.apply(&key(bad)), Err(KeyRefusal::Subdir { path }.into()));
    }
    let old = number(state.apply(&key(subdir(5, home, "/p"))));
    let rotated = number(state.apply(&Command::RotateKey { key: old, created: 2, end: 3, users: vec![] }));
    assert_eq!(state.keys.keys[&rotated].holder, state.keys.keys[&old].holder, "for the same directory");
}

/// Nobody sees an expired key in a list: it must not stand in the way of another one, nor stay for ever.
#[test]
fn a_key_that_expired_is_in_nobodys_way() {
    let mut state = pool(1);
    create(&mut state, "v", 1, 0, 1);
    let old = number(state.apply(&Command::AddKey(client("web", 1))));
    let made = |name: &str, created| Command::AddKey(Key { created, until: None, ..client(name, 1) });
    let exists = Err(KeyRefusal::Exists { name: "web".to_owned() }.into());
    assert_eq!(state.apply(&made("web", 100)), exists, "in its last second");
    let new = number(state.apply(&made("web", 101)));
    assert_eq!(state.apply(&made("web", 101)), exists);
    let rotate = |key| Command::RotateKey { key, created: 101, end: 200, users: vec![] };
    assert_eq!(
        state.apply(&rotate(old)),
        Err(KeyRefusal::Unknown { key: old }.into()),
        "the new one would be expired"
    );
    number(state.apply(&rotate(new)));
    assert!(state.keys.keys.contains_key(&old), "it can be revoked");
    number(state.apply(&made("other", 100 + limits::EXPIRED_KEPT)));
    assert!(state.keys.keys.contains_key(&old));
    number(state.apply(&made("third", 101 + limits::EXPIRED_KEPT)));
    assert!(!state.keys.keys.contains_key(&old) && state.keys.keys.contains_key(&new));
}

#[test]
fn keys_go_with_their_volume_and_their_server() {
    let mut state = secured(2);
    create(&mut state, "v", 1, 0, 1);
    let key = number(state.apply(&Command::AddKey(client("web", 1))));
    let name = || "v".to_owned();
    state.apply(&Command::DeleteVolume { name: name() }).unwrap();
    assert!(state.keys.get(key, 1).is_none());
    let of_server = |state: &State| state.keys.keys.values().filter(|k| **k == server_key(2)).count();
    assert_eq!(of_server(&state), 1);
    state.apply(&Command::RemoveServer { server: ServerId(2), force: false }).unwrap();
    assert_eq!(of_server(&state), 0);
}

#[test]
fn a_rotated_key_leaves_the_old_one_some_time() {
    let mut state = pool(1);
    create(&mut state, "v", 1, 0, 1);
    let old = number(state.apply(&Command::AddKey(client("web", 1))));
    let new = number(state.apply(&Command::RotateKey { key: old, created: 40, end: 60, users: vec![] }));
    assert!(state.keys.get(old, 60).is_some() && state.keys.get(old, 61).is_none());
    assert_eq!(state.keys.get(new, 100).unwrap().holder, client("web", 1).holder);
    assert!(state.keys.get(new, 101).is_none(), "the same limits");
}

#[test]
fn a_token_lets_one_server_in() {
    let mut state = secured(1);
    let one = token(&mut state, None);
    assert_eq!(state.apply(&Command::JoinServer(joining(one, 'b', 2))), Err(KeyRefusal::BadToken.into()));
    let late = Joining { now: 61, ..joining(one, 'a', 2) };
    assert_eq!(state.apply(&Command::JoinServer(late)), Err(KeyRefusal::BadToken.into()));
    let joined = state.apply(&Command::JoinServer(joining(one, 'a', 2))).unwrap();
    let Outcome::Joined { server: id, key } = joined else { panic!("{joined:?}") };
    assert_eq!((id, &state.keys.keys[&key].holder), (ServerId(2), &KeyHolder::Server(ServerId(2))));
    assert_eq!(state.apply(&Command::JoinServer(joining(one, 'a', 2))), Ok(joined), "the answer was lost");
    let other = Joining { public: "e".repeat(64), ..joining(one, 'a', 3) };
    assert_eq!(state.apply(&Command::JoinServer(other)), Err(KeyRefusal::BadToken.into()), "it is spent");
    // Its key was revoked: the token does not bring it back.
    state.apply(&Command::RevokeKey { key }).unwrap();
    assert_eq!(state.apply(&Command::JoinServer(joining(one, 'a', 2))), Err(KeyRefusal::BadToken.into()));
}

#[test]
fn a_token_may_give_the_place_of_a_server() {
    let mut state = secured(2);
    create(&mut state, "v", 2, 0, 2);
    let one = token(&mut state, Some(ServerId(2)));
    let joined = state.apply(&Command::JoinServer(joining(one, 'a', 3))).unwrap();
    assert!(matches!(joined, Outcome::Joined { server: ServerId(3), .. }));
    assert!(!state.servers.contains_key(&ServerId(2)));
    assert_eq!(state.bricks_of(ServerId(3)).count(), 1);
    assert!(!state.keys.keys.values().any(|k| *k == server_key(2)), "the old server's key is gone");
}

#[test]
fn a_pool_without_keys_gives_no_tokens() {
    let mut state = pool(1);
    let token = Token { hash: "a".repeat(64), until: 60, replaces: None, spent: None };
    assert_eq!(state.apply(&Command::AddToken { token, now: 1 }), Err(KeyRefusal::NotSecured.into()));
    assert!(!serde_json::to_string(&state).unwrap().contains("keys"), "its record is as it was");
}
