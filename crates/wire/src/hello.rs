//! The first words on a connection.

use crate::codec::Blob;
use crate::{wire_enum, wire_struct};
use ids::{ServerId, SessionId};

wire_enum! {
    /// What a connection is for.
    pub enum Purpose {
        /// File operations of a client for the sets of one shard.
        1 Data { shard: u16 },
        /// Replication from another server's bricks, for the sets of one shard.
        2 Peer { shard: u16 },
        /// Control plane: JSON requests.
        3 Control,
    }
}

wire_struct! {
    /// Sent by whoever connects.
    pub struct Hello {
        /// Protocol versions it speaks.
        pub versions: Blob,
        /// What the connection is for.
        pub purpose: Purpose,
        /// The pool it means (128 bits); zero if it does not know one yet.
        pub pool: [u8; 16],
        /// The server that connects, 0 for a client or the command line.
        pub from: ServerId,
        /// The client's session, 0 if none.
        pub session: SessionId,
    }
}

wire_struct! {
    /// The answer. A refusal closes the connection after it.
    pub struct HelloReply {
        /// Why the connection is refused; empty if it is not.
        pub refused: Blob,
        /// The protocol version to use.
        pub version: u8,
        /// The pool of this server.
        pub pool: [u8; 16],
        /// This server.
        pub server: ServerId,
        /// Shards of this server: set `s` is served by shard `s % shards`.
        pub shards: u16,
    }
}
