//! A connection of any kind as one type: over TCP, plain or encrypted, or over a local socket.

use crate::tls::Shared;
use crate::{TlsConnection, TlsReader, TransportError, WritingHalf};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UnixStream, tcp, unix};
use trust::{Channel, Identity};

/// The reading half of a connection.
#[derive(Debug)]
pub enum ReadingHalf {
    /// Of a socket.
    Plain(tcp::OwnedReadHalf),
    /// Of an encrypted connection.
    Tls(TlsReader),
    /// Of a local socket.
    Local(unix::OwnedReadHalf),
}

impl AsyncRead for ReadingHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadingHalf::Plain(half) => Pin::new(half).poll_read(context, into),
            ReadingHalf::Tls(half) => Pin::new(half).poll_read(context, into),
            ReadingHalf::Local(half) => Pin::new(half).poll_read(context, into),
        }
    }
}

impl ReadingHalf {
    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        matches!(self, ReadingHalf::Tls(_))
    }
}

/// A connection, and whose key the other side showed.
#[derive(Debug)]
pub struct Connection {
    /// What it reads from.
    pub reader: ReadingHalf,
    /// What it writes to.
    pub writer: WritingHalf,
    /// Whose key it is; `None`: it has none, or the connection is not encrypted.
    pub identity: Option<Identity>,
}

impl From<TcpStream> for Connection {
    fn from(socket: TcpStream) -> Connection {
        let (reader, writer) = socket.into_split();
        Connection { reader: ReadingHalf::Plain(reader), writer: WritingHalf::Plain(writer), identity: None }
    }
}

impl From<UnixStream> for Connection {
    fn from(socket: UnixStream) -> Connection {
        let (reader, writer) = socket.into_split();
        Connection { reader: ReadingHalf::Local(reader), writer: WritingHalf::Local(writer), identity: None }
    }
}

impl From<TlsConnection> for Connection {
    fn from(tls: TlsConnection) -> Connection {
        let TlsConnection { reader, writer, identity } = tls;
        Connection { reader: ReadingHalf::Tls(reader), writer: WritingHalf::Tls(writer), identity }
    }
}

/// A TCP connection that belongs to no event loop, on its way to another thread.
#[derive(Debug)]
pub struct Detached {
    socket: std::net::TcpStream,
    channel: Option<Channel>,
    identity: Option<Identity>,
}

impl Connection {
    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.reader.is_encrypted()
    }

    /// Takes it out of this thread's event loop.
    ///
    /// # Errors
    /// It is a local socket's, or the system's error.
    pub fn detach(self) -> Result<Detached, TransportError> {
        let Connection { reader, writer, identity } = self;
        let (socket, channel) = match (reader, writer) {
            (ReadingHalf::Plain(reader), WritingHalf::Plain(writer)) => {
                (reader.reunite(writer).map_err(|_| TransportError::Closed)?, None)
            }
            (ReadingHalf::Tls(reader), WritingHalf::Tls(writer)) => {
                drop(writer);
                let (socket, channel) = reader.into_parts().ok_or(TransportError::Closed)?;
                (socket, Some(channel))
            }
            _ => return Err(TransportError::Closed),
        };
        Ok(Detached { socket: socket.into_std()?, channel, identity })
    }
}

impl Detached {
    /// Gives it to the event loop of the thread that calls this.
    ///
    /// # Errors
    /// The system's.
    pub fn attach(self) -> Result<Connection, TransportError> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(match self.channel {
            None => socket.into(),
            Some(channel) => Shared::new(socket, channel).into_connection(self.identity).into(),
        })
    }
}
