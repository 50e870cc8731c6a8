//! The admin protocol: what the command line asks a server, and what the server answers. JSON in control frames.
//!
//! Owns [`AdminRequest`] (one struct a request), [`AdminAnswer`] (one type an answer, tied to its request by [`Ask`]),
//! [`AdminError`] (a code and one line) and the versioned envelope around them. `docs/formats/admin.md` describes the JSON.
//! Always true: fields may be added, with a default; none is renamed. `testdata` holds a frozen sample of each message.
//! Deliberately absent: sockets, decisions, and the texts that the command line prints.

mod activity;
mod answer;
mod doctor;
mod drain;
mod envelope;
mod error;
mod event;
mod keys;
mod peer;
mod profile;
mod rebalance;
mod request;
mod status;
mod volume;

pub use activity::{
    ClientReports, ClientStatus, OpenFile, OpenFileReports, QueueReports, QueueStatus, RestingMounts,
};
pub use answer::{
    AdoptReport, BrickReplaced, BricksAdded, BricksRemoved, Changes, Document, NotAdopted, OptionsReset,
    OptionsSet, PeerDetached, PeerProbed, PeerReplaced, VolumeCreated, VolumeDeleted, VolumeImported,
    VolumePromoted, VolumeStarted, VolumeStopped,
};
pub use doctor::{DoctorReport, Finding, Severity};
pub use drain::{DrainReport, DrainedBrick, DrainedSet, PeerDrained};
pub use envelope::{TAG, Unreadable, VERSION, decode_answer, decode_request, encode_answer, encode_request};
pub use error::{AdminError, ErrorCode};
pub use event::{Event, EventReports, EventsWebhook, GetEvents, WebhookReport, WebhookServer};
pub use ids::KeyUser;
pub use keys::{
    AuthorityRotated, ClientAdd, ClientList, ClientRevoke, ClientRotate, GetLocalKey, GetPoolToken, KeyLine,
    KeyList, KeyMade, KeyRole, KeysRevoked, KeysRotated, LocalKey, PoolKey, PoolRotateAuthority,
    PoolRotateKey, PoolSecure, PoolSecured, PoolToken, RotatedKey, SignedBy, Squash,
};
pub use peer::{Peer, PeerStatus, Peers, ServerRole};
pub use profile::{
    LatencyClass, OperationProfile, ProfileReport, ProfileSpan, SetProfile, TopLine, TopReport,
};
pub use rebalance::{MovedFiles, PlannedMove, RebalanceReport, RebalanceState, SetMoves};
pub use request::{
    AdminAnswer, AdminRequest, Ask, ConfigApply, ConfigDiff, ConfigExport, DrainAction, GetDoctor,
    GetPeerStatus, PeerDetach, PeerDrain, PeerProbe, PeerReplace, PoolList, ProfileAction, REQUESTS,
    RebalanceAction, VolumeAddBrick, VolumeAdopt, VolumeClients, VolumeCreate, VolumeDelete, VolumeDrain,
    VolumeFds, VolumeGet, VolumeHeal, VolumeHealInfo, VolumeImport, VolumeInfo, VolumeList, VolumeProfile,
    VolumePromote, VolumeQueues, VolumeRebalance, VolumeRemoveBrick, VolumeReplaceBrick, VolumeReset,
    VolumeSet, VolumeStart, VolumeStatus, VolumeStop, VolumeTop,
};
pub use status::{
    BrickRole, BrickStatus, HealInfo, HealMode, HealProgress, HealState, ServerCounters, VolumeReport,
    VolumeReports,
};
pub use volume::{
    BrickDescription, OptionLine, OptionLines, SetDescription, VolumeDescription, VolumeDescriptions,
    VolumeNames, VolumeState,
};
