//! The first words on a connection.

use crate::codec::Blob;
use crate::{wire_enum, wire_struct};
use ids::{ServerId, SessionId};

wire_enum! {
    /// What a connection is for.
    pub enum Purpose {
        /// Replication from another server's bricks, for the sets of one shard.
        2 Peer { shard: u16 },
        /// Control plane: JSON requests.
        3 Control,
        /// File operations of a session for the sets of one shard. The session numbers its connections, ascending, and has
        /// given up those below `oldest`: nothing that still lies there may be done any more.
        4 Session { shard: u16, connection: u64, oldest: u64 },
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
        /// Connections for set `s` are asked for by shard `s % shards`.
        pub shards: u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Wire;

    #[test]
    fn the_greeting_of_a_session_has_these_bytes() {
        let hello = Hello {
            versions: Blob(vec![1]),
            purpose: Purpose::Session { shard: 2, connection: 7, oldest: 5 },
            pool: [9; 16],
            from: ServerId(0),
            session: SessionId(0x1234),
        };
        let mut bytes = vec![1, 0, 0, 0, 1, 4, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([9; 16]);
        bytes.extend(ServerId(0).to_bytes());
        bytes.extend([0x34, 0x12, 0, 0, 0, 0, 0, 0]);
        assert_eq!(hello.to_bytes(), bytes);
        assert_eq!(Hello::from_bytes(&bytes), Ok(hello));
        *bytes.get_mut(5).unwrap() = 1;
        assert!(Hello::from_bytes(&bytes).is_err(), "a tag that is out of use");
    }
}
