//! One value of each request and answer, every field set.

use admin::*;
use ids::{BrickId, Epoch, KeyId, Lsn, ServerId, SetId, SetName, VolumeId};

fn name() -> String {
    "home".to_owned()
}

fn set() -> SetName {
    SetName { id: SetId(4), number: 2 }
}

fn probe() -> PeerProbe {
    PeerProbe { host: "server2".to_owned(), port: Some(24241), fingerprint: Some("ab".repeat(32)) }
}

fn client_add() -> ClientAdd {
    ClientAdd {
        name: "web-1".to_owned(),
        volume: name(),
        read_only: true,
        squash: Some(SQUASH),
        users: vec![key_user()],
        subdir: Some("/projects/web".to_owned()),
        expires: Some(3600),
    }
}

pub(crate) fn requests() -> Vec<AdminRequest> {
    let host = || "server2".to_owned();
    vec![
        probe().into_request(),
        PeerDetach { host: host(), force: true }.into_request(),
        PeerReplace { host: host(), by: Some("server7:24241".to_owned()) }.into_request(),
        GetPeerStatus {}.into_request(),
        PoolList {}.into_request(),
        PoolSecure {}.into_request(),
        GetPoolToken { valid: 86_400, replace: Some(host()) }.into_request(),
        PoolKey { name: "ann".to_owned() }.into_request(),
        PoolRotateKey { server: Some(host()) }.into_request(),
        PoolRotateAuthority { finish: true, force: true }.into_request(),
        GetLocalKey { volume: Some("home".to_owned()) }.into_request(),
        client_add().into_request(),
        ClientList {}.into_request(),
        ClientRevoke { name: "web-1".to_owned() }.into_request(),
        ClientRotate { name: "web-1".to_owned(), after: 86_400, users: vec![key_user()] }.into_request(),
        VolumeCreate {
            name: name(),
            replica: Some(3),
            arbiter: Some(1),
            stripe: None,
            bricks: vec!["server1:/data/home".to_owned(), "server2:/data/home".to_owned()],
            force: true,
            adopt: false,
        }
        .into_request(),
        VolumeAddBrick {
            name: name(),
            replica: Some(3),
            arbiter: Some(1),
            bricks: vec!["server3:/data/home".to_owned()],
            force: true,
        }
        .into_request(),
        VolumeRemoveBrick {
            name: name(),
            replica: 2,
            bricks: vec!["server3:/data/home".to_owned()],
            force: true,
        }
        .into_request(),
        VolumeReplaceBrick {
            name: name(),
            old: "server2:/data/home".to_owned(),
            new: "server4:/data/home".to_owned(),
            force: true,
        }
        .into_request(),
        VolumeStart { name: name() }.into_request(),
        VolumeStop { name: name() }.into_request(),
        VolumeDelete { name: name(), release: false }.into_request(),
        VolumeImport { name: name(), bricks: Vec::new(), force: true }.into_request(),
        VolumeInfo { name: Some(name()) }.into_request(),
        VolumeStatus { name: Some(name()) }.into_request(),
        VolumeClients { name: name() }.into_request(),
        VolumeFds { name: name() }.into_request(),
        VolumeQueues { name: name() }.into_request(),
        VolumeProfile { name: name(), action: ProfileAction::Stop }.into_request(),
        VolumeTop { name: name() }.into_request(),
        GetDoctor {}.into_request(),
        EventsWebhook { url: Some("https://hooks.example.org/mortar".to_owned()), remove: true }
            .into_request(),
        GetEvents { since_ms: 1_795_305_600_000, most: 100 }.into_request(),
        VolumeList {}.into_request(),
        VolumeSet { name: name(), options: vec![("features.read-only".to_owned(), "on".to_owned())] }
            .into_request(),
        VolumeGet { name: name(), key: Some("features.read-only".to_owned()) }.into_request(),
        VolumeReset { name: name(), key: Some("features.read-only".to_owned()) }.into_request(),
        ConfigExport {}.into_request(),
        ConfigApply {
            document: "format = 1\n".to_owned(),
            dry_run: true,
            plan: Some(vec!["stop volume home".to_owned()]),
        }
        .into_request(),
        ConfigDiff { document: "format = 1\n".to_owned() }.into_request(),
        VolumeHeal { name: name() }.into_request(),
        VolumeHealInfo { name: name() }.into_request(),
        VolumePromote { name: name(), brick: "server2:/data/b".to_owned() }.into_request(),
        VolumeAdopt { name: name(), path: Some("/docs".to_owned()), begin: true }.into_request(),
        VolumeRebalance { name: name(), action: RebalanceAction::Start, dry_run: true }.into_request(),
        PeerDrain { host: "server2".to_owned() }.into_request(),
        VolumeDrain { name: name(), bricks: vec!["server2:/data/b".to_owned()], action: DrainAction::Commit }
            .into_request(),
    ]
}

fn key_made(name: &str) -> KeyMade {
    let file = "mortar key 1\n".to_owned();
    KeyMade { name: name.to_owned(), key: KeyId(4), file, until: Some(1_795_392_000) }
}

const SQUASH: Squash = Squash { uid: 1000, gid: 100 };

fn key_user() -> KeyUser {
    KeyUser { uid: 1001, gid: 100, groups: vec![27, 44], name: Some("ann".to_owned()) }
}

fn key_line() -> KeyLine {
    KeyLine {
        key: KeyId(4),
        name: "web-1".to_owned(),
        role: KeyRole::Client,
        volume: Some(name()),
        read_only: true,
        squash: Some(SQUASH),
        users: vec![key_user()],
        subdir: Some("/projects/web".to_owned()),
        created: 1_795_305_600,
        until: Some(1_795_392_000),
        connections: 7,
        authority: Some(SignedBy::Old),
    }
}

fn peer() -> Peer {
    Peer {
        id: ServerId(2),
        identity: "00112233445566778899aabbccddeeff".to_owned(),
        host: "server2".to_owned(),
        address: "server2:24240".to_owned(),
        role: ServerRole::Voter,
        connected: Some(true),
        lost: false,
        witness: true,
    }
}

fn brick() -> BrickStatus {
    BrickStatus {
        set: set(),
        brick: BrickId(9),
        server: "server2".to_owned(),
        path: "/data/home".to_owned(),
        online: true,
        in_sync: false,
        role: BrickRole::Healing,
        epoch: Epoch(7),
        lsn: Lsn(1234),
        durable_lsn: Lsn(1200),
        free_bytes: 5_000_000_000,
        total_bytes: 9_000_000_000,
        heal: Some(HealProgress {
            done: 10,
            total: 25,
            bytes: 4096,
            same_bytes: 8192,
            mode: HealMode::Full,
            total_known: true,
            state: HealState::Copying,
            seconds: 3,
            objects_per_second: 5,
            bytes_per_second: 2048,
        }),
        moved: Some(moved()),
        error: Some("the disk is full".to_owned()),
    }
}

fn moved() -> MovedFiles {
    MovedFiles {
        files: 12,
        bytes: 70_000,
        left: 3,
        files_per_second: 2,
        bytes_per_second: 9000,
        none_can_move: true,
        problem: Some("d/f: input/output error".to_owned()),
        directories: 5,
    }
}

fn heal() -> HealInfo {
    HealInfo { name: name(), bricks: vec![brick()], notes: vec!["set 4 is healing".to_owned()] }
}

fn client() -> ClientStatus {
    ClientStatus {
        address: "192.0.2.7".to_owned(),
        name: Some("web-1".to_owned()),
        key: Some(KeyId(7)),
        session: "00c0ffee00c0ffee".to_owned(),
        connections: 2,
        requests: 70,
        read_bytes: 4096,
        written_bytes: 8192,
        open_files: 3,
        seconds: 61,
        mounts: 0,
    }
}

fn span() -> ProfileSpan {
    let classes =
        vec![LatencyClass { at_most_us: Some(100), calls: 6 }, LatencyClass { at_most_us: None, calls: 1 }];
    let operation = OperationProfile {
        operation: "write".to_owned(),
        calls: 7,
        total_us: 900,
        p50_us: Some(100),
        p99_us: None,
        classes,
    };
    let failures = [("busy".to_owned(), 2)].into();
    let of_set =
        SetProfile { set: set(), read_bytes: 10, written_bytes: 20, failures, operations: vec![operation] };
    ProfileSpan { milliseconds: 61_000, sets: vec![of_set] }
}

pub(crate) fn answers() -> Vec<AdminAnswer> {
    let host = || "server2".to_owned();
    let learner = Peer { role: ServerRole::Learner, connected: None, lost: true, witness: false, ..peer() };
    let described = VolumeDescription {
        id: VolumeId(3),
        name: name(),
        status: VolumeState::Started,
        replica: 3,
        arbiter: 1,
        created: 1_795_305_600,
        sets: vec![SetDescription {
            id: SetId(4),
            number: 2,
            bricks: vec![BrickDescription {
                id: BrickId(9),
                name: "server2:/data/home".to_owned(),
                arbiter: true,
            }],
        }],
        options: [("features.read-only".to_owned(), "on".to_owned())].into(),
    };
    let report = VolumeReport {
        name: name(),
        status: VolumeState::Stopped,
        bricks: vec![brick()],
        servers: vec![ServerCounters { server: host(), ops: [("lookup".to_owned(), 12)].into() }],
        notes: vec!["set 4 is read-only".to_owned()],
    };
    let line = OptionLine {
        key: "features.read-only".to_owned(),
        value: "on".to_owned(),
        default: "off".to_owned(),
        is_set: true,
        help: "refuse every change".to_owned(),
    };
    vec![
        AdminAnswer::PeerProbe(PeerProbed {
            host: host(),
            server: ServerId(2),
            already: true,
            confirm: Some("ab".repeat(32)),
        }),
        AdminAnswer::PeerDetach(PeerDetached { host: host(), told: true }),
        AdminAnswer::PeerReplace(PeerReplaced {
            host: "server7".to_owned(),
            server: ServerId(8),
            replaced: ServerId(2),
            bricks: 2,
            offline: vec!["set 4 of volume home is offline".to_owned()],
        }),
        AdminAnswer::PeerStatus(PeerStatus {
            pool: "ffeeddccbbaa99887766554433221100".to_owned(),
            me: ServerId(1),
            leader: Some(ServerId(2)),
            level: 1,
            peers: vec![peer(), learner],
            notes: vec!["two voters are one too few".to_owned()],
        }),
        AdminAnswer::PoolList(Peers { peers: vec![peer()] }),
        AdminAnswer::PoolSecure(PoolSecured { fingerprint: "ab".repeat(32), servers: 3 }),
        AdminAnswer::PoolToken(PoolToken {
            token: "mortar-join-1-00".to_owned(),
            until: 1_795_392_000,
            address: "server1:24240".to_owned(),
        }),
        AdminAnswer::PoolKey(key_made("ann")),
        AdminAnswer::PoolRotateKey(KeysRotated {
            servers: vec![RotatedKey { host: "server2".to_owned(), key: KeyId(17) }],
        }),
        AdminAnswer::PoolRotateAuthority(AuthorityRotated {
            fingerprint: "ef".repeat(32),
            old_keys: vec!["web-1".to_owned()],
            believe_both: vec!["web-2".to_owned()],
            finished: true,
        }),
        AdminAnswer::LocalKey(LocalKey { file: Some("mortar key 1".to_owned()) }),
        AdminAnswer::ClientAdd(key_made("web-1")),
        AdminAnswer::ClientList(KeyList { keys: vec![key_line()] }),
        AdminAnswer::ClientRevoke(KeysRevoked { name: "web-1".to_owned(), keys: 2 }),
        AdminAnswer::ClientRotate(key_made("web-1")),
        AdminAnswer::VolumeCreate(VolumeCreated {
            name: name(),
            notes: vec!["brick server2:/data/home is in memory (tmpfs)".to_owned()],
        }),
        AdminAnswer::VolumeAddBrick(BricksAdded {
            name: name(),
            sets: vec![SetId(5), SetId(6)],
            numbers: vec![3, 4],
            replica: Some(3),
            serving: true,
        }),
        AdminAnswer::VolumeRemoveBrick(BricksRemoved {
            name: name(),
            replica: 2,
            leaving: vec!["server3:/data/home".to_owned()],
        }),
        AdminAnswer::VolumeReplaceBrick(BrickReplaced {
            name: name(),
            old: "server2:/data/home".to_owned(),
            new: "server4:/data/home".to_owned(),
            set: set(),
            at_once: true,
        }),
        AdminAnswer::VolumeStart(VolumeStarted { name: name(), serving: true, already: true }),
        AdminAnswer::VolumeStop(VolumeStopped { name: name(), already: true }),
        AdminAnswer::VolumeDelete(VolumeDeleted {
            name: name(),
            not_released: Some("server2:24240: connection refused".to_owned()),
        }),
        AdminAnswer::VolumeImport(VolumeImported {
            name: name(),
            missing: vec!["brick server2:/data/home: it is no brick: is its disk mounted?".to_owned()],
        }),
        AdminAnswer::VolumeInfo(VolumeDescriptions { volumes: vec![described] }),
        AdminAnswer::VolumeStatus(VolumeReports { volumes: vec![report] }),
        AdminAnswer::VolumeClients(ClientReports {
            name: name(),
            clients: vec![client()],
            resting: vec![RestingMounts { address: "192.0.2.8".to_owned(), mounts: 2 }],
            notes: vec!["server server3 did not answer in time".to_owned()],
        }),
        AdminAnswer::VolumeFds(OpenFileReports {
            name: name(),
            total: 7,
            files: vec![OpenFile { path: "/a/b".to_owned(), set: set(), clients: 2 }],
            notes: vec!["server server3 did not answer in time".to_owned()],
        }),
        AdminAnswer::VolumeQueues(QueueReports {
            name: name(),
            bricks: vec![QueueStatus {
                set: set(),
                brick: "server2:/data/home".to_owned(),
                waiting: 3,
                disk: 1,
                asked: 2,
                queued_bytes: 4096,
                unsynced: 17,
                journal_bytes: 65_536,
                long_steps: 5,
            }],
            notes: vec!["server server3 did not answer in time".to_owned()],
        }),
        AdminAnswer::VolumeProfile(ProfileReport {
            name: name(),
            running: true,
            total: span(),
            interval: ProfileSpan { milliseconds: 5, ..span() },
            notes: vec!["server server3 did not answer in time".to_owned()],
        }),
        AdminAnswer::VolumeTop(TopReport {
            name: name(),
            files: vec![TopLine { path: "/a/b".to_owned(), set: set(), count: 70, error: 2 }],
            bytes: vec![TopLine { path: "/a/b".to_owned(), set: set(), count: 70_000, error: 2 }],
            directories: vec![TopLine { path: "/a".to_owned(), set: set(), count: 7, error: 0 }],
            clients: vec![client()],
            notes: vec!["server server3 did not answer in time".to_owned()],
        }),
        AdminAnswer::Doctor(DoctorReport {
            checked: vec!["server server2".to_owned()],
            findings: vec![Finding {
                severity: Severity::Warning,
                object: "server server2".to_owned(),
                cause: "its clock differs by 2.0 s".to_owned(),
                remedy: "let it keep its time by NTP".to_owned(),
            }],
        }),
        AdminAnswer::Events(EventReports {
            events: vec![Event {
                at_ms: 1_795_305_600_000,
                server: "server2".to_owned(),
                kind: "admin".to_owned(),
                text: "volume-start {\"name\":\"home\"}: done".to_owned(),
                who: Some("192.0.2.7".to_owned()),
                volume: Some(name()),
                version: Some(17),
            }],
            notes: vec!["server server3 did not answer in time".to_owned()],
        }),
        AdminAnswer::EventsWebhook(WebhookReport {
            url: Some("https://hooks.example.org/mortar".to_owned()),
            servers: vec![WebhookServer {
                server: "server2".to_owned(),
                sent: 12,
                dropped: 3,
                waiting: 2,
                error: Some("the receiver answered 503".to_owned()),
            }],
            notes: vec!["server server3 did not answer in time".to_owned()],
        }),
        AdminAnswer::VolumeList(VolumeNames { names: vec![name()] }),
        AdminAnswer::VolumeSet(OptionsSet { name: name(), options: 2 }),
        AdminAnswer::VolumeGet(OptionLines { options: vec![line] }),
        AdminAnswer::VolumeReset(OptionsReset { name: name(), options: 1 }),
        AdminAnswer::ConfigExport(Document { document: "format = 1\n".to_owned() }),
        AdminAnswer::ConfigApply(Changes {
            changes: vec!["volume home: features.read-only = on".to_owned()],
            dry_run: true,
            stopped: vec![name()],
            servers: vec![probe()],
            keys: vec![client_add()],
        }),
        AdminAnswer::ConfigDiff(Changes {
            changes: vec!["stop volume home".to_owned()],
            dry_run: true,
            stopped: vec![name()],
            servers: Vec::new(),
            keys: Vec::new(),
        }),
        AdminAnswer::VolumeHeal(heal()),
        AdminAnswer::VolumeHealInfo(heal()),
        AdminAnswer::VolumePromote(VolumePromoted {
            name: name(),
            brick: "server2:/data/b".to_owned(),
            set: set(),
        }),
        AdminAnswer::VolumeAdopt(AdoptReport {
            name: name(),
            running: true,
            files: 3,
            directories: 2,
            bytes: 70_000,
            left: 1,
            named: vec![NotAdopted { path: "server2:/data/b/f".to_owned(), why: "it changed".to_owned() }],
            absent: false,
        }),
        AdminAnswer::VolumeRebalance(RebalanceReport {
            name: name(),
            state: RebalanceState::On,
            throttle: "gentle".to_owned(),
            dry_run: true,
            moved: moved(),
            remaining_bytes: 90_000,
            remaining_seconds: Some(10),
            plan: vec![PlannedMove {
                from: SetId(4),
                from_number: 2,
                to: SetId(5),
                to_number: 3,
                bytes: 90_000,
            }],
            sets: vec![SetMoves { set: set(), free_bytes: 1000, total_bytes: 400_000, moved: moved() }],
            notes: vec!["set 5 has no room that is known".to_owned()],
        }),
        AdminAnswer::PeerDrain(PeerDrained {
            host: "server2".to_owned(),
            bricks: vec![DrainedBrick { brick: "server2:/data/b".to_owned(), goes_to: None }],
            notes: vec!["server2:/data/b stays".to_owned()],
        }),
        AdminAnswer::VolumeDrain(DrainReport {
            name: name(),
            sets: vec![DrainedSet {
                set: set(),
                drains: true,
                moved: moved(),
                bricks: vec![DrainedBrick {
                    brick: "server2:/data/b".to_owned(),
                    goes_to: Some("server3:/data/c-set4".to_owned()),
                }],
            }],
            notes: vec!["set 5 is not led".to_owned()],
        }),
    ]
}
