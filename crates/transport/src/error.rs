//! Why a connection ended or a call failed.

use std::io;

/// An error of a connection.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Nobody listens there.
    #[error("{address}: connection refused: no Mortar server runs there")]
    Refused {
        /// Where.
        address: String,
    },
    /// The connection could not be made.
    #[error("{address}: {source}")]
    Connect {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// It took too long.
    #[error("{address}: no answer within {seconds} s")]
    TimedOut {
        /// Where.
        address: String,
        /// How long was waited.
        seconds: u64,
    },
    /// The other side said no to the handshake.
    #[error("{address}: {reason}")]
    Unwelcome {
        /// Where.
        address: String,
        /// Its words.
        reason: String,
    },
    /// The handshake of TLS failed: one side does not believe the other, or speaks something else.
    #[error("{address}: TLS: {source}")]
    Insecure {
        /// Where.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// The connection broke.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// The other side closed the connection.
    #[error("connection closed by the other side")]
    Closed,
    /// The other side sends or takes nothing, in the midst of a frame.
    #[error("the other side stopped in the midst of a message")]
    Stalled,
    /// What came is not a message of this protocol.
    #[error("bad message: {0}")]
    Decode(#[from] wire::DecodeError),
}
