//! The same from a client whose key is restricted: it gets no answer that its key does not allow, and what is beyond its key
//! stays as it was.
//!
//! What is beyond it holds words that nobody else says, so that an answer which tells of it is known by them.

use super::messages::{Known, Messages};
use super::set::{Role, Set, fid};
use super::{Reached, SeedRuns};
use crate::pool::SET;
use cluster::{ClientKey, KeySubdir, KeyUser, Squash};
use ids::{Fid, SessionId, SetId, Time, VolumeId};
use server_core::Limits;
use wire::codec::Blob;
use wire::op::{Node, SetAttr, SetTime, rename_flags};
use wire::{Change, Errno, Name, Op};

/// Messages of one run.
const MESSAGES: usize = 150;
/// The client's session.
const MINE: SessionId = SessionId(1);
const VOLUME: VolumeId = VolumeId(1);
const ANN: u32 = 1000;
const BOB: u32 = 1001;

/// A directory that only root may enter, with a file and a symbolic link.
const CLOSED: u64 = 5;
const FILE: u64 = 6;
const LINK: u64 = 7;
/// Ann's directory, which also is the one that keys for a directory are for, and her file in it.
const OWN: u64 = 10;
const OWN_FILE: u64 = 11;

const FILE_NAME: &str = "quicksilver";
const CONTENT: &str = "a hollow oak behind the mill";
const VALUE: &str = "seven paces to the north";
const TARGET: &str = "where/the/river/bends";

fn xattr() -> Name {
    name("user.way")
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

/// What the run's tree has beside that of all runs.
fn more() -> Vec<(Change, &'static [u8])> {
    let time = Time::default();
    let create = |parent: Fid, called: &str, lsn, node, mode, uid| {
        let (name, gid) = (name(called), if uid == 0 { 0 } else { 100 });
        Change::Create { parent, name, fid: fid(lsn), home: SET, node, mode, uid, gid, time }
    };
    let (file, len) = (fid(FILE), u32::try_from(CONTENT.len()).unwrap());
    let target = Blob(TARGET.as_bytes().to_vec());
    let value = Blob(VALUE.as_bytes().to_vec());
    vec![
        (create(Fid::root(SET), "closed", CLOSED, Node::Dir, 0o700, 0), b""),
        (create(fid(CLOSED), FILE_NAME, FILE, Node::File, 0o600, 0), b""),
        (create(fid(CLOSED), "link", LINK, Node::Symlink { target }, 0o777, 0), b""),
        (Change::Write { fid: file, offset: 0, len, mode: None, time }, CONTENT.as_bytes()),
        (Change::SetXattr { fid: file, name: xattr(), value, time }, b""),
        (create(Fid::root(SET), "own", OWN, Node::Dir, 0o755, ANN), b""),
        (create(fid(OWN), "mine", OWN_FILE, Node::File, 0o644, ANN), b""),
    ]
}

/// A restricted key, another one for each of the lowest bits.
fn key(seed: u64) -> ClientKey {
    let bit = |n: u64| seed >> n & 1 == 1;
    let user = |uid, gid, groups: &[u32]| KeyUser { uid, gid, groups: groups.to_vec(), name: None };
    let subdir =
        KeySubdir { set: SET, epoch: fid(OWN).epoch, lsn: fid(OWN).lsn, home: SET, path: "/own".into() };
    ClientKey {
        name: "web".into(),
        // Once in a while one for another volume.
        volume: VolumeId(if seed.is_multiple_of(16) { 2 } else { 1 }),
        read_only: bit(0) && bit(1),
        squash: (bit(2) && !bit(3)).then_some(Squash { uid: ANN, gid: 100 }),
        users: if bit(3) { vec![user(ANN, 100, &[]), user(BOB, 101, &[27])] } else { vec![] },
        subdir: (bit(1) && !bit(0)).then_some(subdir),
    }
}

/// Words that no answer to this key may have.
fn forbidden(key: &ClientKey) -> Vec<Vec<u8>> {
    let is_user = key.squash.is_some() || !key.users.is_empty();
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let mut all = Vec::new();
    if is_user || key.subdir.is_some() {
        all.extend(words(&[FILE_NAME, CONTENT, VALUE]));
    }
    if key.subdir.is_some() {
        // Everybody may read a link, and know what a fid leads to.
        all.extend(words(&[TARGET]));
        all.extend((1..=LINK).map(|n| wire::Wire::to_bytes(&fid(n))));
    }
    all
}

/// What somebody who is trusted sees of what the key does not reach.
fn beyond(set: &mut Set, key: &ClientKey) -> Vec<Vec<u8>> {
    let whole = |fid| Op::Read { fid, offset: 0, len: 4096 };
    let list = |fid| Op::ReadDir { fid, cookie: 0, plus: true };
    let mut ops = vec![list(fid(CLOSED)), whole(fid(FILE)), Op::ListXattr { fid: fid(FILE) }];
    ops.push(Op::GetXattr { fid: fid(FILE), name: xattr() });
    ops.push(Op::ReadLink { fid: fid(LINK) });
    ops.extend([CLOSED, FILE, LINK].map(|n| Op::GetAttr { fid: fid(n) }));
    if key.subdir.is_some() || key.read_only {
        ops.extend([list(Fid::root(SET)), list(fid(2)), whole(fid(1)), Op::GetAttr { fid: fid(4) }]);
    }
    if key.read_only {
        ops.extend([list(fid(OWN)), whole(fid(OWN_FILE)), Op::ListXattr { fid: fid(OWN_FILE) }]);
    }
    ops.into_iter().map(|op| set.ask_as_server(op)).collect()
}

/// Whether the key leaves something out of its reach.
fn is_restricted(key: &ClientKey) -> bool {
    key.read_only || key.squash.is_some() || !key.users.is_empty() || key.subdir.is_some()
}

/// A request for what is beyond keys, from somebody who has guessed right.
fn aimed(messages: &mut Messages) -> Op {
    let [closed, file, link, own, own_file] = [CLOSED, FILE, LINK, OWN, OWN_FILE].map(fid);
    let (name, new) = (name(FILE_NAME), name("new"));
    let attr = |mode, uid, size| {
        let (atime, mtime) = (None, Some(SetTime::Now));
        SetAttr { mode, uid, gid: None, size, atime, mtime, kill_suid: false }
    };
    let rename = |flags| Op::Rename {
        parent: closed,
        name: name.clone(),
        to_parent: own,
        to_name: new.clone(),
        flags,
    };
    let copy = |from, to| Op::CopyRange { from, from_offset: 0, to, to_offset: 0, len: 100 };
    let all = [
        Op::Lookup { parent: closed, name: name.clone() },
        Op::Read { fid: file, offset: 0, len: 100 },
        Op::ReadDir { fid: closed, cookie: 0, plus: messages.chance(2) },
        Op::GetXattr { fid: file, name: xattr() },
        Op::ReadLink { fid: link },
        Op::GetAttr { fid: file },
        Op::GetAttrs { fids: vec![own_file, file] },
        Op::Open { fid: file },
        Op::Write { fid: file, offset: 3, append: false, kill_suid: false },
        Op::SetAttr { fid: file, set: attr(Some(0o666), None, None) },
        Op::SetAttr { fid: closed, set: attr(None, Some(ANN), None) },
        Op::SetAttr { fid: file, set: attr(None, None, Some(0)) },
        Op::SetXattr { fid: file, name: xattr(), flags: 0 },
        Op::RemoveXattr { fid: file, name: xattr() },
        Op::Fallocate { fid: file, mode: 0, offset: 0, len: 5000 },
        Op::Unlink { parent: closed, name: name.clone() },
        Op::Link { fid: file, parent: own, name: new.clone() },
        rename(0),
        rename(rename_flags::NOREPLACE),
        copy(file, own_file),
        copy(own_file, file),
    ];
    all[messages.below(all.len())].clone()
}

/// Sends a run's requests to a set, as far as a server's shard lets them through. `checked`: the set hears whose they are.
fn attack(set: &mut Set, messages: &mut Messages, limits: &Limits, checked: bool) -> usize {
    let mut refused = 0;
    for _ in 0..MESSAGES {
        set.go_on(messages);
        let mut known = set.known();
        known.fids.extend((CLOSED..=OWN_FILE).map(fid));
        let (mut call, payload) = (messages.call(&known), messages.payload());
        if messages.chance(4) {
            (call.op, call.id.session, call.epoch) = (aimed(messages), MINE, known.epoch);
        }
        let named = [0, 0, ANN, ANN, BOB, 7, u32::MAX][messages.below(7)];
        let permitted = limits.permit(VOLUME, MINE, &call);
        match permitted.and_then(|()| limits.user(named, &call.op)) {
            Ok(user) => {
                assert_eq!(limits.volume, VOLUME, "a key for another volume is for nothing here");
                let beneath = limits.beneath.map(|(fid, _)| fid).filter(|_| checked);
                set.request_of(call, payload, (MINE, user.filter(|_| checked), beneath));
            }
            Err(why) => {
                assert!([Errno::EACCES, Errno::EPERM, Errno::EROFS].contains(&why), "{why}");
                refused += 1;
            }
        }
    }
    refused
}

fn run(seed: u64, said: &mut Reached) {
    let (mut messages, key) = (Messages::new(seed), key(seed));
    // One that waits for its follower answers fewer requests, and others are in its way.
    let role = if (seed / 16).is_multiple_of(8) { Role::Primary } else { Role::Alone };
    let mut set = Set::with(role, seed, &more());
    let before = (role == Role::Alone && is_restricted(&key)).then(|| beyond(&mut set, &key));
    let last = set.known().last;
    set.forbidden = forbidden(&key);
    said.refused += attack(&mut set, &mut messages, &Limits::of(&key), true);
    assert!(!set.has_failed(), "a client's request made the brick fail");
    assert_eq!(set.leaked, Vec::<String>::new(), "{key:?}");
    set.forbidden.clear();
    if let Some(before) = before {
        assert!(
            !key.read_only || set.known().last == last,
            "a key that changes nothing has changed something"
        );
        assert!(before == beyond(&mut set, &key), "{key:?}: what it does not reach has changed");
    }
    said.add(&set);
}

/// Other sets are not the client's: they tell of nothing that is beyond its key.
pub(super) fn known_elsewhere(known: &Known) -> Known {
    let elsewhere = |fid: &Fid| Fid { set: SetId(7), ..*fid };
    Known { fids: known.fids.iter().map(elsewhere).collect(), ..known.clone() }
}

#[test]
fn who_has_a_restricted_key_gets_no_further_than_it() {
    let runs = SeedRuns::new(800);
    let said = runs.all(run);
    assert!(runs.are_few() || (said.answered > 100 && said.refused > 100 && said.worked > 10));
}

/// The words are told, and what is beyond the key is changed, if a set does not hear whose the requests are.
#[test]
fn an_attack_would_be_seen() {
    let (mut told, mut changed) = (0, 0);
    for seed in 1..100 {
        let key = key(seed);
        let mut set = Set::with(Role::Alone, seed, &more());
        let before = beyond(&mut set, &key);
        set.forbidden = forbidden(&key);
        attack(&mut set, &mut Messages::new(seed), &Limits::of(&key), false);
        told += set.leaked.len();
        set.forbidden.clear();
        changed += usize::from(before != beyond(&mut set, &key));
    }
    assert!(told > 200 && changed > 50, "{told} answers tell, {changed} sets have changed");
}
