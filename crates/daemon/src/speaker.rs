//! Who is on a connection, and what he may ask there: the table of `docs/design/0021-trust.md`.
//!
//! Invariant: what a role may not ask is refused by the kind of the frame and its first byte; it is not decoded.

use cluster::{KeyHolder, LOCAL_NAME, State};
use ids::{KeyId, ServerId, VolumeId};
use server_core::{Limits, pool_bytes};
use std::net::IpAddr;
use transport::Connection;
use trust::{Holder, Identity};
use wire::Kind;
use wire::hello::Purpose;

/// Bytes of the one frame of somebody who joins.
pub(crate) const JOIN_BODY: usize = 4096;

/// The first byte of a body, see [`crate::control::protocol`].
const FROM_SERVER: std::ops::RangeInclusive<u8> = 0..=1;
/// Of a request to join.
pub(crate) const JOIN: u8 = 3;
/// Of an invitation into another pool.
pub(crate) const INVITATION: u8 = 4;

/// Who is on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Speaker {
    /// Somebody on a connection that is not encrypted: nothing is known of him.
    Anybody,
    /// Root of this machine, on the local socket.
    Root,
    /// Somebody without a key, who may have a token.
    Nobody,
    /// Somebody who showed this key.
    Key(Identity),
}

/// What root of a server's machine is called: `root.server1` as an administrator.
pub(crate) fn local_admin(server: ServerId) -> String {
    format!("{LOCAL_NAME}{}", server.0)
}

/// The same as a client of a volume: `root.server1.volume2`.
pub(crate) fn local_client(server: ServerId, volume: VolumeId) -> String {
    format!("{}.volume{}", local_admin(server), volume.0)
}

/// Whom all clients of that volume are that are root on machines of servers, if this is one of them.
fn local_client_of(name: &str) -> Option<String> {
    let (_, volume) = name.strip_prefix(LOCAL_NAME)?.split_once('.')?;
    // No key can be called so.
    Some(format!("root/{volume}"))
}

impl Speaker {
    /// Who made a connection over TCP.
    pub(crate) fn on(connection: &Connection) -> Speaker {
        match (&connection.identity, connection.is_encrypted()) {
            (Some(identity), _) => Speaker::Key(identity.clone()),
            (None, true) => Speaker::Nobody,
            (None, false) => Speaker::Anybody,
        }
    }

    /// The server that it is.
    pub(crate) fn server(&self) -> Option<ServerId> {
        match self {
            Speaker::Key(Identity { holder: Holder::Server(server), .. }) => Some(*server),
            _ => None,
        }
    }

    /// Whether the pool lets him in at `now`, seconds since 1970. `secured`: only keys are let in.
    ///
    /// # Errors
    /// Words for him.
    pub(crate) fn admitted(&self, state: &State, secured: bool, now: u64) -> Result<(), String> {
        let identity = match self {
            Speaker::Anybody if secured => {
                return Err(
                    "this pool takes encrypted connections only: mount with -o key=FILE (mortar client add \
                            makes one), and give commands --key FILE (mortar pool key makes one)"
                        .to_owned(),
                );
            }
            Speaker::Anybody | Speaker::Root | Speaker::Nobody => return Ok(()),
            Speaker::Key(identity) => identity,
        };
        // One that was let in before this server left the pool that it was in.
        if !state.pool.is_empty() && identity.pool != pool_bytes(state) {
            return Err("this key is another pool's".to_owned());
        }
        // A server that joins, or was away, learns of other servers' keys from those servers. The authority signed this one.
        if identity.key >= state.keys.next && matches!(identity.holder, Holder::Server(_)) {
            return Ok(());
        }
        let known = state.keys.get(identity.key, now).map(|key| &key.holder);
        let same = known.is_some_and(|known| match (known, &identity.holder) {
            (KeyHolder::Server(known), Holder::Server(shown)) => known == shown,
            (KeyHolder::Client(known), Holder::Client(shown)) => known.name == shown.as_str(),
            (KeyHolder::Admin { name }, Holder::Admin(shown)) => name == shown.as_str(),
            _ => false,
        });
        if same { Ok(()) } else { Err("this key is revoked or expired: ask for another one".to_owned()) }
    }

    /// Whether he may stay, who is that server or says so (0: none), once he was let in: as [`Speaker::admitted`], and in a
    /// pool without keys not as a server that has left it.
    pub(crate) fn may_stay(&self, server: ServerId, state: &State, secured: bool, now: u64) -> bool {
        let has_left = !state.servers.contains_key(&server) && server < state.next_server;
        let nobodys = *self == Speaker::Anybody && server != ServerId(0) && has_left;
        !nobodys && self.admitted(state, secured, now).is_ok()
    }

    /// Whether his key may be newer than what this server knows of the store; a server's is not waited for.
    pub(crate) fn may_be_new(&self, state: &State) -> bool {
        let new = |identity: &Identity| identity.key >= state.keys.next;
        matches!(self, Speaker::Key(identity) if self.server().is_none() && new(identity))
    }

    /// What he may use, as the store says; `None`: no limits.
    pub(crate) fn limits(&self, state: &State) -> Option<Limits> {
        let Speaker::Key(Identity { holder: Holder::Client(_), key, .. }) = self else { return None };
        Some(match state.keys.keys.get(key).map(|key| &key.holder) {
            Some(KeyHolder::Client(client)) => Limits::of(client),
            // It was revoked just now.
            _ => Limits::nothing(),
        })
    }

    /// What the client is called to whom its sessions belong; `None`: to somebody who is no client with a key.
    pub(crate) fn owner(&self) -> Option<String> {
        let Speaker::Key(Identity { holder: Holder::Client(name), .. }) = self else { return None };
        // Root's mount shows a key of another server's when the one that gave it goes.
        Some(local_client_of(name.as_str()).unwrap_or_else(|| name.to_string()))
    }

    /// The name of a client's key.
    pub(crate) fn client_name(&self) -> Option<String> {
        match self {
            Speaker::Key(Identity { holder: Holder::Client(name), .. }) => Some(name.to_string()),
            _ => None,
        }
    }

    /// What metrics call a client at that address: by the name of its key, if it has one.
    pub(crate) fn client(&self, from: IpAddr) -> String {
        self.client_name().unwrap_or_else(|| ids::bracketed(&from.to_string()))
    }

    /// Whether addresses that may use a volume bind him: servers and administrators come from anywhere.
    pub(crate) fn is_bound_to_address(&self) -> bool {
        match self {
            Speaker::Anybody | Speaker::Nobody => true,
            Speaker::Root => false,
            Speaker::Key(identity) => matches!(identity.holder, Holder::Client(_)),
        }
    }

    /// What the log of events calls him.
    pub(crate) fn called(&self, from: Option<IpAddr>) -> String {
        let from = from.map(|address| ids::bracketed(&address.to_string()));
        let at = from.as_ref().map_or_else(String::new, |address| format!(" at {address}"));
        match self {
            Speaker::Root => "root".to_owned(),
            Speaker::Anybody | Speaker::Nobody => from.unwrap_or_else(|| "somebody".to_owned()),
            Speaker::Key(Identity { holder: Holder::Server(server), .. }) => format!("server {server}{at}"),
            Speaker::Key(Identity { holder: Holder::Client(name), .. }) => format!("client {name}{at}"),
            Speaker::Key(Identity { holder: Holder::Admin(name), .. }) => format!("{name}{at}"),
        }
    }

    /// Whether he may make a connection for that, as server `from` (0: as none).
    pub(crate) fn may_connect(&self, purpose: &Purpose, from: ServerId) -> bool {
        let none = from == ServerId(0);
        match self {
            Speaker::Anybody => true,
            Speaker::Root | Speaker::Nobody => none && matches!(purpose, Purpose::Control),
            Speaker::Key(identity) => match (&identity.holder, purpose) {
                (Holder::Server(own), Purpose::Peer { .. }) => from == *own,
                (Holder::Server(own), Purpose::Control | Purpose::Session { .. }) => none || from == *own,
                (Holder::Client(_), Purpose::Control | Purpose::Session { .. }) => none,
                (Holder::Admin(_), Purpose::Control) => none,
                _ => false,
            },
        }
    }

    /// Whether he may send such a frame on a connection for the control plane.
    pub(crate) fn may_send(&self, kind: Kind, body: &[u8]) -> bool {
        let first = body.first().copied();
        let control = kind == Kind::Control;
        let watch = kind == Kind::Watch;
        let admin = control && first == Some(admin::TAG);
        let invitation = control && first == Some(INVITATION);
        match self {
            Speaker::Anybody => control || watch,
            Speaker::Root => admin || watch || invitation,
            Speaker::Nobody => (invitation || control && first == Some(JOIN)) && body.len() <= JOIN_BODY,
            Speaker::Key(identity) => match identity.holder {
                Holder::Server(_) => watch || control && first.is_some_and(|tag| FROM_SERVER.contains(&tag)),
                Holder::Client(_) => watch,
                Holder::Admin(_) => admin || watch,
            },
        }
    }

    /// The number of his key.
    pub(crate) fn key(&self) -> Option<KeyId> {
        match self {
            Speaker::Key(identity) => Some(identity.key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{ClientKey, Key, Squash};
    use trust::KeyName;
    use wire::User;

    const PEER: Purpose = Purpose::Peer { shard: 1 };
    const SESSION: Purpose = Purpose::Session { shard: 1, connection: 1, oldest: 0 };
    const CONTROL: Purpose = Purpose::Control;

    fn name(name: &str) -> KeyName {
        KeyName::new(name).unwrap()
    }

    fn speaker(key: u64, holder: Holder) -> Speaker {
        Speaker::Key(Identity { pool: [1; 16], key: KeyId(key), holder })
    }

    fn all() -> [Speaker; 6] {
        [
            Speaker::Anybody,
            Speaker::Root,
            Speaker::Nobody,
            speaker(2, Holder::Server(ServerId(3))),
            speaker(3, Holder::Client(name("web"))),
            speaker(4, Holder::Admin(name("ann"))),
        ]
    }

    /// The table, as what is allowed: those on a connection that is not encrypted, root, without a key, server, client, admin.
    #[test]
    fn each_role_connects_for_its_purposes_only() {
        let (none, own, other) = (ServerId(0), ServerId(3), ServerId(4));
        for (purpose, from, allowed) in [
            (PEER, none, [true, false, false, false, false, false]),
            (PEER, own, [true, false, false, true, false, false]),
            (PEER, other, [true, false, false, false, false, false]),
            (SESSION, none, [true, false, false, true, true, false]),
            (SESSION, own, [true, false, false, true, false, false]),
            (SESSION, other, [true, false, false, false, false, false]),
            (CONTROL, none, [true, true, true, true, true, true]),
            (CONTROL, own, [true, false, false, true, false, false]),
            (CONTROL, other, [true, false, false, false, false, false]),
        ] {
            let may = all().map(|speaker| speaker.may_connect(&purpose, from));
            assert_eq!(may, allowed, "{purpose:?} from {from}");
        }
    }

    #[test]
    fn each_role_sends_its_frames_only() {
        let long = vec![JOIN; JOIN_BODY + 1];
        for (kind, body, allowed) in [
            (Kind::Control, &[0, b'{'][..], [true, false, false, true, false, false]),
            (Kind::Control, &[1, 2][..], [true, false, false, true, false, false]),
            (Kind::Control, &[admin::TAG][..], [true, true, false, false, false, true]),
            (Kind::Control, &[JOIN][..], [true, false, true, false, false, false]),
            (Kind::Control, &long[..], [true, false, false, false, false, false]),
            (Kind::Control, &[9][..], [true, false, false, false, false, false]),
            (Kind::Control, &[][..], [true, false, false, false, false, false]),
            (Kind::Watch, &[][..], [true, true, false, true, true, true]),
            (Kind::Call, &[][..], [false; 6]),
            (Kind::Peer, &[][..], [false; 6]),
        ] {
            assert_eq!(
                all().map(|speaker| speaker.may_send(kind, body)),
                allowed,
                "{kind:?} {:?}",
                body.first()
            );
        }
    }

    fn state() -> State {
        let mut state = State { pool: "01".repeat(16), ..State::default() };
        state.keys.next = KeyId(10);
        let client = ClientKey {
            name: "web".to_owned(),
            volume: VolumeId(5),
            read_only: true,
            squash: Some(Squash { uid: 7, gid: 8 }),
            users: vec![],
            subdir: None,
        };
        for (id, holder, until) in [
            (2, KeyHolder::Server(ServerId(3)), None),
            (3, KeyHolder::Client(client), Some(100)),
            (4, KeyHolder::Admin { name: "ann".to_owned() }, None),
        ] {
            state.keys.keys.insert(KeyId(id), Key { holder, created: 1, until });
        }
        state
    }

    /// A mount goes on with its session when the server of its machine goes that gave it its key.
    #[test]
    fn root_owns_his_sessions_whichever_server_gave_the_key() {
        let owner = |of: &str| speaker(3, Holder::Client(name(of))).owner().unwrap();
        assert_eq!(owner("web"), "web");
        let from = "fd00::1".parse().unwrap();
        assert_eq!(speaker(3, Holder::Client(name("web"))).client(from), "web");
        assert_eq!(Speaker::Anybody.client(from), "[fd00::1]");
        assert_eq!(owner(&local_client(ServerId(1), VolumeId(2))), "root/volume2");
        assert_eq!(owner(&local_client(ServerId(30), VolumeId(2))), "root/volume2");
        assert!(
            cluster::is_local_name(&local_client(ServerId(1), VolumeId(2)))
                && cluster::is_local_name(&local_admin(ServerId(1)))
        );
        assert!(!cluster::is_local_name("root") && !cluster::is_local_name("rooted.server"));
    }

    #[test]
    fn only_keys_that_the_store_knows_are_let_in() {
        let state = state();
        let admitted = |speaker: &Speaker, now| speaker.admitted(&state, true, now).is_ok();
        assert_eq!(all().map(|speaker| admitted(&speaker, 100)), [false, true, true, true, true, true]);
        assert!(Speaker::Anybody.admitted(&state, false, 100).is_ok(), "a pool without keys");
        assert!(!admitted(&speaker(3, Holder::Client(name("web"))), 101), "expired");
        for wrong in [
            speaker(9, Holder::Server(ServerId(3))),
            speaker(2, Holder::Server(ServerId(4))),
            speaker(3, Holder::Server(ServerId(3))),
            speaker(3, Holder::Client(name("other"))),
            speaker(2, Holder::Admin(name("ann"))),
            speaker(3, Holder::Admin(name("web"))),
        ] {
            assert!(!admitted(&wrong, 1), "{wrong:?}");
        }
    }

    /// Numbers of keys of two pools mean nothing to each other.
    #[test]
    fn keys_of_the_pool_that_this_server_has_left_are_let_in_no_more() {
        let mut state = state();
        assert!(speaker(11, Holder::Server(ServerId(4))).admitted(&state, true, 1).is_ok());
        state.pool = "02".repeat(16);
        for known in all() {
            let is_key = known.key().is_some();
            assert_eq!(known.admitted(&state, false, 1).is_err(), is_key, "{known:?}");
        }
        assert!(speaker(11, Holder::Server(ServerId(4))).admitted(&state, true, 1).is_err());
    }

    #[test]
    fn who_says_to_be_a_server_that_left_the_pool_does_not_stay() {
        let mut state = State { next_server: ServerId(3), ..state() };
        let server = cluster::Server {
            id: ServerId(1),
            identity: String::new(),
            host: "one".to_owned(),
            address: "one:1".to_owned(),
            role: cluster::Role::Voter,
            lost: false,
        };
        state.servers.insert(ServerId(1), server);
        let stays = |server| Speaker::Anybody.may_stay(ServerId(server), &state, false, 1);
        assert_eq!([0, 1, 2, 3].map(stays), [true, true, false, true]);
        assert!(!Speaker::Anybody.may_stay(ServerId(1), &state, true, 1), "a pool with keys");
    }

    #[test]
    fn who_joins_hears_servers_before_it_knows_their_keys() {
        let joining = State::default();
        let admitted = |speaker: Speaker| speaker.admitted(&joining, true, 1).is_ok();
        assert_eq!(all().map(admitted), [false, true, true, true, false, false]);
    }

    /// Else it could not catch up from a leader that joined while it was away.
    #[test]
    fn who_was_away_hears_servers_whose_keys_are_newer_than_what_it_knows() {
        let state = state();
        let admitted = |key, holder| speaker(key, holder).admitted(&state, true, 1).is_ok();
        assert!(admitted(10, Holder::Server(ServerId(9))));
        assert!(!admitted(9, Holder::Server(ServerId(9))), "it knows that this one is not let in");
        assert!(!admitted(10, Holder::Client(name("web"))));
        assert!(!admitted(10, Holder::Admin(name("ann"))));
        let waited_for = |key, holder| speaker(key, holder).may_be_new(&state);
        assert!(waited_for(10, Holder::Client(name("web"))) && waited_for(10, Holder::Admin(name("ann"))));
        assert!(!waited_for(9, Holder::Client(name("web"))) && !waited_for(10, Holder::Server(ServerId(9))));
        assert!(!Speaker::Root.may_be_new(&state));
    }

    #[test]
    fn the_log_of_events_tells_who_and_where() {
        let from = Some(IpAddr::from([192, 0, 2, 7]));
        let called = [
            "192.0.2.7",
            "root",
            "192.0.2.7",
            "server 3 at 192.0.2.7",
            "client web at 192.0.2.7",
            "ann at 192.0.2.7",
        ];
        assert_eq!(all().map(|speaker| speaker.called(from)), called);
        assert_eq!(all().map(|speaker| speaker.called(None))[5], "ann");
        let six = Some("fd00::1".parse().unwrap());
        let called = all().map(|speaker| speaker.called(six));
        assert_eq!((&*called[0], &*called[5]), ("[fd00::1]", "ann at [fd00::1]"));
        assert_eq!(
            all().map(|speaker| speaker.is_bound_to_address()),
            [true, false, true, false, true, false]
        );
    }

    #[test]
    fn a_client_is_limited_and_others_are_not() {
        let squash = Some(User::of_one_group(7, 8));
        let limits =
            Some(Limits { volume: VolumeId(5), read_only: true, squash, users: None, beneath: None });
        assert_eq!(all().map(|speaker| speaker.limits(&state())), [None, None, None, None, limits, None]);
        let nothing = speaker(3, Holder::Client(name("web"))).limits(&State::default()).unwrap();
        assert!(nothing.read_only && nothing.volume == VolumeId(0), "revoked meanwhile");
    }
}
