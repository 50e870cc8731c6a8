//! From the words of the pool's state to those of the admin protocol, and back.
//!
//! Each has types of its own: what the pool's store keeps and what commands say are two formats, and one may change without the
//! other.

use admin::ErrorCode::Exists;
use admin::{
    AdminError, ClientAdd, ErrorCode, KeyLine, KeyRole, OptionLine, ServerRole, SignedBy, VolumeState,
};
use cluster::{ClientKey, Key, KeyHolder, KeyRefusal, KeySubdir, Refusal, Role, State, Status};
use config_store::ProposeError;
use ids::{KeyId, VolumeId};
use transport::TransportError;

/// A refusal because of the present state.
pub(super) fn conflict(line: String) -> AdminError {
    AdminError::new(ErrorCode::Conflict, line)
}

/// Something that the request names does not exist.
pub(super) fn not_found(line: String) -> AdminError {
    AdminError::new(ErrorCode::NotFound, line)
}

/// A server tried and could not.
pub(super) fn failed(line: impl ToString) -> AdminError {
    AdminError::new(ErrorCode::Failed, line.to_string())
}

/// A server does not answer.
pub(super) fn unreachable(line: String) -> AdminError {
    AdminError::new(ErrorCode::Unreachable, line)
}

/// A connection to a server that a request concerns could not be made, or ended.
pub(super) fn not_reached(e: &TransportError) -> AdminError {
    let code = match e {
        TransportError::Refused { .. } => ErrorCode::ConnectionRefused,
        _ => ErrorCode::Unreachable,
    };
    AdminError::new(code, e.to_string())
}

/// What the pool's state refuses.
pub(super) fn refused(refusal: &Refusal) -> AdminError {
    AdminError::new(code(refusal), refusal.to_string())
}

/// What the pool's store says instead of doing it.
pub(super) fn not_agreed(e: &ProposeError) -> AdminError {
    match e {
        ProposeError::Refused(refusal) => refused(refusal),
        ProposeError::NotLeader { .. } | ProposeError::Unavailable { .. } | ProposeError::Stopped { .. } => {
            AdminError::new(ErrorCode::Unavailable, e.to_string())
        }
    }
}

fn code(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::Identity { .. }
        | Refusal::Address { .. }
        | Refusal::Host { .. }
        | Refusal::Webhook { .. }
        | Refusal::VolumeName { .. }
        | Refusal::Replica { .. }
        | Refusal::Arbiter { .. }
        | Refusal::BrickCount { .. }
        | Refusal::NoBricks { .. }
        | Refusal::BrickSyntax { .. }
        | Refusal::BrickPath { .. }
        | Refusal::DuplicateBrick { .. }
        | Refusal::NestedBrick { .. }
        | Refusal::SameServer { .. }
        | Refusal::NotMoreCopies { .. }
        | Refusal::NotFewerCopies { .. }
        | Refusal::CopiesCount { .. }
        | Refusal::UnevenCopies { .. }
        | Refusal::ArbiterStays { .. }
        | Refusal::OptionValue { .. }
        | Refusal::DescribedTwice { .. }
        | Refusal::NoVoters => ErrorCode::Invalid,
        Refusal::UnknownHost { .. }
        | Refusal::UnknownServer { .. }
        | Refusal::UnknownVolume { .. }
        | Refusal::NotDeleted { .. }
        | Refusal::UnknownOption { .. }
        | Refusal::UnknownSet { .. }
        | Refusal::NoBrickOf { .. }
        | Refusal::UnknownBrick { .. } => ErrorCode::NotFound,
        Refusal::PoolExists | Refusal::ServerExists { .. } | Refusal::VolumeExists { .. } => Exists,
        Refusal::Keys(why) => code_of_keys(why),
        Refusal::NoPool
        | Refusal::StripesTooEarly
        | Refusal::AddressInUse { .. }
        | Refusal::ServerHasBricks { .. }
        | Refusal::LastServer { .. }
        | Refusal::VolumeStarted { .. }
        | Refusal::AlreadyStarted { .. }
        | Refusal::NotStarted { .. }
        | Refusal::BrickInUse { .. }
        | Refusal::BricksDiffer { .. }
        | Refusal::NotMember { .. }
        | Refusal::BadPrimary { .. }
        | Refusal::NotHealed { .. }
        | Refusal::BeingReplaced { .. }
        | Refusal::BrickLeaves { .. }
        | Refusal::CopyNotInSync { .. }
        | Refusal::LastCopy { .. }
        | Refusal::OfflineKeeps { .. }
        | Refusal::NeverInSync { .. }
        | Refusal::ServerHasBrickOfSet { .. }
        | Refusal::CopyLess { .. }
        | Refusal::OnlyCopy { .. }
        | Refusal::SetOffline { .. }
        | Refusal::OfflineOnly
        | Refusal::SetMissing { .. }
        | Refusal::DataWouldBeLost { .. } => ErrorCode::Conflict,
        Refusal::TooManyServers { .. }
        | Refusal::TooManyVolumes { .. }
        | Refusal::TooManyBricks { .. }
        | Refusal::OptionsTooLong { .. }
        | Refusal::TooManyChanges { .. }
        | Refusal::OutOfIds => ErrorCode::Limit,
        Refusal::StaleEpoch { .. } | Refusal::BrickIdTaken { .. } => ErrorCode::Stale,
        Refusal::NewerFormat { .. } => ErrorCode::Version,
    }
}

fn code_of_keys(refusal: &KeyRefusal) -> ErrorCode {
    match refusal {
        KeyRefusal::Name { .. }
        | KeyRefusal::Squash { .. }
        | KeyRefusal::SquashOfUsers
        | KeyRefusal::Subdir { .. }
        | KeyRefusal::User { .. }
        | KeyRefusal::Hash => ErrorCode::Invalid,
        KeyRefusal::Exists { .. } => ErrorCode::Exists,
        KeyRefusal::Unknown { .. } => ErrorCode::NotFound,
        KeyRefusal::TooMany { .. } | KeyRefusal::ManyUsers { .. } => ErrorCode::Limit,
        KeyRefusal::OtherUsers
        | KeyRefusal::Secured
        | KeyRefusal::NotSecured
        | KeyRefusal::ServersWithout
        | KeyRefusal::AuthorityChanges
        | KeyRefusal::AnotherAuthority
        | KeyRefusal::AuthorityStays
        | KeyRefusal::OldKeys
        | KeyRefusal::BadToken => ErrorCode::Conflict,
    }
}

pub(super) fn role(role: Role) -> ServerRole {
    match role {
        Role::Voter => ServerRole::Voter,
        Role::Learner => ServerRole::Learner,
    }
}

pub(super) fn volume_state(status: Status) -> VolumeState {
    match status {
        Status::Created => VolumeState::Created,
        Status::Started => VolumeState::Started,
        Status::Stopped => VolumeState::Stopped,
    }
}

pub(super) fn option_line(line: cluster::options::OptionLine) -> OptionLine {
    let cluster::options::OptionLine { key, value, default, is_set, help } = line;
    OptionLine { key, value, default, is_set, help }
}

/// A key as it is listed, with the number of its connections.
pub(super) fn key_line(state: &State, id: KeyId, key: &Key, connections: usize) -> KeyLine {
    let (role, client) = match &key.holder {
        KeyHolder::Server(_) => (KeyRole::Server, None),
        KeyHolder::Admin { .. } => (KeyRole::Admin, None),
        KeyHolder::Client(client) => (KeyRole::Client, Some(client)),
    };
    let signed_by = || if state.is_signed_by_next(id) { SignedBy::Next } else { SignedBy::Old };
    KeyLine {
        key: id,
        name: state.key_name(key),
        role,
        volume: client.and_then(|c| state.volumes.get(&c.volume)).map(|v| v.name.clone()),
        read_only: client.is_some_and(|c| c.read_only),
        squash: client.and_then(|c| c.squash).map(told_squash),
        users: client.map_or_else(Vec::new, |c| c.users.clone()),
        subdir: client.and_then(|c| c.subdir.as_ref()).map(|subdir| subdir.path.clone()),
        created: key.created,
        until: key.until,
        connections: u32::try_from(connections).unwrap_or(u32::MAX),
        authority: state.keys.change.as_ref().map(|_| signed_by()),
    }
}

pub(super) fn told_squash(cluster::Squash { uid, gid }: cluster::Squash) -> admin::Squash {
    admin::Squash { uid, gid }
}

/// The key that somebody asks for.
pub(super) fn asked_client(asked: ClientAdd, volume: VolumeId, subdir: Option<KeySubdir>) -> ClientKey {
    let squash = |admin::Squash { uid, gid }| cluster::Squash { uid, gid };
    ClientKey {
        name: asked.name,
        volume,
        read_only: asked.read_only,
        squash: asked.squash.map(squash),
        users: asked.users,
        subdir,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_where_nobody_listens_has_a_code_of_its_own() {
        let address = "h:1".to_owned();
        let refused = not_reached(&TransportError::Refused { address: address.clone() });
        assert_eq!(refused.code, ErrorCode::ConnectionRefused);
        assert!(refused.message.starts_with("h:1: connection refused"), "{refused}");
        let slow = not_reached(&TransportError::TimedOut { address, seconds: 2 });
        assert_eq!(slow.code, ErrorCode::Unreachable);
    }

    #[test]
    fn errors_keep_their_line_and_get_a_code() {
        let refusal = Refusal::UnknownVolume { name: "v".to_owned() };
        let line = refusal.to_string();
        for e in [refused(&refusal), not_agreed(&ProposeError::Refused(refusal.clone()))] {
            assert_eq!((e.code, e.message.as_str()), (ErrorCode::NotFound, line.as_str()));
        }
        let away = ProposeError::Unavailable { reason: "no vote".to_owned() };
        assert_eq!(not_agreed(&away).code, ErrorCode::Unavailable);
        let e = refused(&Refusal::OutOfIds).before("volume v: ").after("; end");
        assert_eq!(e.code, ErrorCode::Limit);
        assert!(e.message.starts_with("volume v: ") && e.message.ends_with("; end"), "{e}");
    }
}
