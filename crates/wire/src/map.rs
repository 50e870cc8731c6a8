//! What a client must know to route: sent on a watch, and again at every change of it.

use crate::codec::Blob;
use crate::user::User;
use crate::{wire_enum, wire_struct};
use ids::{Epoch, Fid, ServerId, SetId, VolumeId};

wire_struct! {
    /// Asks for a volume's map now and at every change ([`crate::Kind::Watch`]).
    pub struct Watch {
        /// The volume's name.
        pub volume: Blob,
    }
}

wire_struct! {
    /// Who serves a set.
    pub struct SetView {
        /// The set.
        pub set: SetId,
        /// The epoch of its view.
        pub epoch: Epoch,
        /// A power cut took all its bricks: what was acknowledged in earlier epochs is there only if it was synced.
        pub lost_before: Epoch,
        /// The server of its primary brick; none while no brick may serve.
        pub primary: Option<ServerId>,
    }
}

wire_struct! {
    /// Where a server listens.
    pub struct ServerAddress {
        /// The server.
        pub server: ServerId,
        /// `host:port`.
        pub address: Blob,
    }
}

wire_struct! {
    /// The map of a volume.
    pub struct VolumeMap {
        /// The pool store's version it was made from: a higher one replaces a lower one.
        pub version: u64,
        /// The pool.
        pub pool: [u8; 16],
        /// The volume.
        pub volume: VolumeId,
        /// Its root directory.
        pub root: Fid,
        /// Whether the volume is started.
        pub started: bool,
        /// Its sets.
        pub sets: Vec<SetView>,
        /// All servers of the pool.
        pub servers: Vec<ServerAddress>,
        /// Options that differ from their defaults: key and value.
        pub options: Vec<(Blob, Blob)>,
    }
}

/// The name among a map's options of the user as whom servers take all requests of the client that is told: `UID:GID`. It is no
/// option of the volume's, but what the client's key says.
pub const SQUASH: &str = "key.squash";
/// Likewise of the users that the client's key is for: their numbers, with commas between them. The client has to name one of
/// them in each call.
pub const USERS: &str = "key.users";

/// Likewise if the key is for what lies beneath a directory: the number of the set that answers for it. The map names it as its
/// root. A file outside answers `ESTALE`, and so does one that was not shown to the set that has it ([`crate::Op::Show`]).
pub const BENEATH: &str = "key.root";

impl VolumeMap {
    /// The set that answers for the root, if the client's key is for what lies beneath that.
    pub fn beneath(&self) -> Option<SetId> {
        str::from_utf8(self.option(BENEATH)?).ok()?.parse().ok().map(SetId)
    }

    /// The value of an option, if it is not the default.
    pub fn option(&self, key: &str) -> Option<&[u8]> {
        self.options.iter().find(|(k, _)| k.0 == key.as_bytes()).map(|(_, value)| value.0.as_slice())
    }

    /// The user as whom servers take all requests of this client.
    pub fn squash(&self) -> Option<User> {
        str::from_utf8(self.option(SQUASH)?).ok()?.parse().ok()
    }

    /// The users that the client's key is for; `None`: for all. What is no number is nobody's.
    pub fn users(&self) -> Option<Vec<u32>> {
        let list = self.option(USERS)?.split(|b| *b == b',');
        Some(list.filter_map(|number| str::from_utf8(number).ok()?.parse().ok()).collect())
    }
}

wire_enum! {
    /// The body of every [`crate::Kind::Event`] of a watch.
    pub enum WatchEvent {
        /// The map that holds now.
        1 Map { map: VolumeMap },
        /// The watch ends: this client may not watch the volume, or what it sent was no name of one.
        2 End { reason: Blob },
        /// The watch ends: there is no such volume, or not any more.
        3 NoVolume,
    }
}
