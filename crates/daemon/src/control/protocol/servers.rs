//! What servers ask each other beside leases and data: who are you, join, make bricks, how do they do.
//!
//! Fields may be added, with a default; none is renamed.

use crate::findings::Health;
use admin::{
    AdminError, AdoptReport, BrickStatus, ClientStatus, Event, OpenFile, ProfileAction, ProfileSpan,
    QueueStatus, ServerCounters, TopReport, WebhookServer,
};
use cluster::arbitration::Evidence;
use ids::{BrickId, KeyId, ServerId, SetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What servers ask each other.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClusterRequest {
    /// Whoever is at this address: who are you?
    Identify,
    /// Become a server of this pool; refused by one that has volumes or peers.
    JoinInvite {
        /// The pool's id.
        pool: String,
        /// The id you get.
        server: ServerId,
        /// The identity this is meant for.
        identity: String,
        /// The name you were probed by.
        host: String,
        /// Whom to ask for the pool: id and address.
        members: BTreeMap<ServerId, String>,
    },
    /// You are out of the pool: become a pool of one again.
    Detached {
        /// The pool's id.
        pool: String,
        /// The id you had.
        server: ServerId,
    },
    /// The pool was recovered without you: stop acting as its server.
    #[serde(rename = "cut-off")]
    Fence {
        /// The pool's id.
        pool: String,
        /// The identity this is meant for.
        identity: String,
        /// How often the pool was recovered.
        #[serde(rename = "recoveries")]
        generation: u32,
        /// The server that it goes on from.
        host: String,
    },
    /// Can this directory become a brick? Make it if it is not there.
    BrickPrepare {
        /// The directory.
        path: String,
        /// Also if it is not empty.
        #[serde(default)]
        force: bool,
        /// Its data is to become the brick's.
        #[serde(default)]
        adopt: bool,
    },
    /// How do your bricks of this volume do?
    Status {
        /// Its name.
        volume: String,
    },
    /// Who uses your bricks of this volume?
    Clients {
        /// Its name.
        volume: String,
    },
    /// Which files of your bricks of this volume are open?
    Fds {
        /// Its name.
        volume: String,
    },
    /// What waits at your bricks of this volume?
    Queues {
        /// Its name.
        volume: String,
    },
    /// Begin or end a profile of this volume, or tell it.
    Profile {
        /// Its name.
        volume: String,
        /// Which.
        action: ProfileAction,
    },
    /// What of your bricks of this volume is asked for most?
    Top {
        /// Its name.
        volume: String,
    },
    /// How do you do yourself?
    Health,
    /// What happened?
    Events {
        /// Not before then.
        since_ms: u64,
        /// At most so many of the newest.
        most: usize,
    },
    /// How does your sending of events do?
    Webhook,
    /// Take what lies in your bricks of this volume without being its into it, or tell how far that has come.
    Adopt {
        /// Its name.
        volume: String,
        /// From the volume's top.
        below: String,
        /// Begin, unless it is at work.
        begin: bool,
    },
    /// Take your key and the pool's authority; refused once the pool is secured.
    TakeKeys(NewKeys),
    /// Make yourself another key, and use it from now on.
    RotateKey,
    /// Believe this authority, too, which is to take the place of the pool's.
    BelieveAuthority(NextAuthority),
    /// Believe only the authority with this fingerprint from now on, which has taken the place of the other.
    ReplaceAuthority {
        /// 64 hex digits.
        next: String,
    },
    /// Is your brick open, and what does it hold?
    Evidence {
        /// The pool's id: another pool may have given the same numbers.
        pool: String,
        /// Its set.
        set: SetId,
        /// Which.
        brick: BrickId,
    },
}

/// Keys for a server. Secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewKeys {
    /// Whose.
    pub(crate) server: ServerId,
    /// The file of the pool's authority.
    pub(crate) authority: String,
    /// The server's key file.
    pub(crate) key: String,
}

impl std::fmt::Debug for NewKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewKeys(of server {})", self.server)
    }
}

/// The file of an authority. A secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextAuthority(pub(crate) String);

impl std::fmt::Debug for NextAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NextAuthority(..)")
    }
}

/// The answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClusterReply {
    /// Done.
    Done,
    /// To BrickPrepare: it can.
    BrickPrepared {
        /// What speaks against it all the same, for people.
        #[serde(default)]
        warnings: Vec<String>,
    },
    /// To Identify.
    Identity {
        /// The server's identity.
        identity: String,
        /// Its pool.
        pool: String,
        /// Its id there.
        server: ServerId,
        /// Servers in its pool.
        servers: u32,
        /// Volumes in its pool.
        volumes: u32,
        /// How often its pool was recovered from one server.
        #[serde(default)]
        #[serde(rename = "recoveries")]
        generation: u32,
        /// The program's version.
        #[serde(default)]
        program: String,
    },
    /// To Status.
    Status {
        /// Its bricks.
        bricks: Vec<BrickStatus>,
        /// Its counts.
        counters: ServerCounters,
    },
    /// Refused or failed.
    Error(AdminError),
    /// To Evidence.
    Evidence(Evidence),
    /// To RotateKey: the number of the new one.
    KeyRotated(KeyId),
    /// To Adopt.
    Adopt(AdoptReport),
    /// To Clients.
    Clients(Vec<ClientStatus>),
    /// To Fds: how many there are, and some of them.
    Fds(u64, Vec<OpenFile>),
    /// To Queues.
    Queues(Vec<QueueStatus>),
    /// To Profile: since it began and since the last look, if there is one.
    Profile(Option<(ProfileSpan, ProfileSpan)>),
    /// To Top.
    Top(TopReport),
    /// To Health.
    Health(Health),
    /// To Events.
    Events(Vec<Event>),
    /// To Webhook.
    Webhook {
        /// What administrators are told.
        told: WebhookServer,
        /// Changes of the pool up to this version are sent or given up, as far as the server knows.
        done: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::ErrorCode;
    use cluster::arbitration::Holding;
    use ids::{Epoch, Lsn};

    fn round<T: Serialize + for<'a> Deserialize<'a> + PartialEq + std::fmt::Debug>(value: T) -> String {
        let text = serde_json::to_string(&value).unwrap();
        assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value);
        text
    }

    #[test]
    fn servers_talk_in_json() {
        assert_eq!(round(ClusterRequest::Identify), "\"identify\"");
        let (pool, identity) = ("p".to_owned(), "i".to_owned());
        round(ClusterRequest::Fence { pool, identity, generation: 1, host: "h".to_owned() });
        round(ClusterReply::Error(AdminError::new(ErrorCode::Conflict, "no")));
        let ask = ClusterRequest::Evidence { pool: "p".to_owned(), set: SetId(1), brick: BrickId(2) };
        assert_eq!(round(ask), r#"{"evidence":{"pool":"p","set":1,"brick":2}}"#);
        let holding = Holding { epoch: Epoch(3), last: Lsn(9), durable: Lsn(7) };
        let lost = ClusterReply::Evidence(Evidence::LostMemory(holding));
        assert_eq!(round(lost), r#"{"evidence":{"lost-memory":{"epoch":3,"last":9,"durable":7}}}"#);
        let refused = ClusterReply::Evidence(Evidence::Refused { millis: 5 });
        assert_eq!(round(refused), r#"{"evidence":{"refused":{"millis":5}}}"#);
        let older = r#"{"identity":{"identity":"i","pool":"p","server":1,"servers":1,"volumes":0}}"#;
        let reply: ClusterReply = serde_json::from_str(older).unwrap();
        assert!(matches!(reply, ClusterReply::Identity { generation: 0, .. }));
    }
}
