//! Frames over TCP, encrypted or not, and local sockets with tokio: reading, writing, handshake, and request-response on one connection.
//!
//! Owns connections and nothing else: what a frame means is its receiver's matter. Clients' blocking connections are in
//! crate `client`. Invariant: a frame that is handed out passed its checksum.

mod caller;
mod connection;
mod direct;
mod error;
mod handshake;
mod local;
mod memory;
mod reader;
mod timeout;
mod tls;
mod writer;
mod writing;

pub use caller::Caller;
pub use connection::{Connection, Detached, ReadingHalf};
pub use direct::DirectSender;
pub use error::TransportError;
pub use handshake::{Established, accept, answer, connect, handshake_reply};
pub use local::{LocalSocket, listen_locally, local_socket_of, local_sockets};
pub use memory::{Account, Common, Reserved};
pub use reader::{Bounds, FrameReader};
pub use tls::{TlsConnection, TlsReader, TlsWriter, secure};
pub use writer::{FrameSender, Queued, write_frames};
pub use writing::WritingHalf;

/// The port that servers listen on unless told otherwise.
pub const DEFAULT_PORT: u16 = 24240;

/// `host:port` of `HOST[:PORT]`; an IPv6 address may stand in brackets.
pub fn with_port(host: &str) -> String {
    let has_port = match host.rfind(':') {
        None => false,
        Some(_) if host.starts_with('[') => host.contains("]:"),
        Some(at) => !host.get(..at).is_some_and(|h| h.contains(':')),
    };
    match (has_port, host.contains(':') && !host.starts_with('[')) {
        (true, _) => host.to_owned(),
        (false, true) => format!("[{host}]:{DEFAULT_PORT}"),
        (false, false) => format!("{host}:{DEFAULT_PORT}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn default_port_is_added() {
        for (given, wanted) in [
            ("a", "a:24240"),
            ("a:1", "a:1"),
            ("127.0.0.1", "127.0.0.1:24240"),
            ("::1", "[::1]:24240"),
            ("[::1]", "[::1]:24240"),
            ("[::1]:9", "[::1]:9"),
        ] {
            assert_eq!(super::with_port(given), wanted);
        }
    }
}
