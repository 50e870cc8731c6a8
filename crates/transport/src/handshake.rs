//! The first frames of a connection.

use crate::{Connection, FrameReader, ReadingHalf, TransportError, WritingHalf, secure};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use trust::{Channel, ClientConfig, Holder, Identity};
use wire::frame::VERSIONS;
use wire::hello::{Hello, HelloReply, Purpose};
use wire::{Frame, Kind, Wire, codec::Blob};

/// A connection after its handshake.
#[derive(Debug)]
pub struct Established {
    /// The connection, nothing beyond the handshake read or written.
    pub connection: Connection,
    /// What the other side said.
    pub reply: HelloReply,
}

async fn write(to: &mut WritingHalf, frame: &Frame) -> Result<(), TransportError> {
    to.write_all(&frame.head_and_body()).await?;
    // What TLS took is not on its way yet.
    to.flush().await?;
    Ok(())
}

/// Reads exactly one frame: nothing of what follows it may be taken from the socket.
async fn read_one<R: AsyncRead + Unpin>(from: &mut R) -> Result<Frame, TransportError> {
    let mut raw = [0; wire::frame::HEAD];
    from.read_exact(&mut raw).await?;
    let head = wire::FrameHead::decode(&raw)?;
    if head.body_len > 4096 || head.payload_len != 0 {
        return Err(TransportError::Decode(wire::DecodeError::Bounds("handshake")));
    }
    let mut body = vec![0; head.body_len];
    from.read_exact(&mut body).await?;
    head.verify(&body, &[])?;
    Ok(Frame::new(head.kind, head.id, body))
}

/// Connects to `address`, a `host:port` or the path of a local socket, and does the handshake; the one of TLS before it if
/// there are keys.
///
/// # Errors
/// Nobody there, no answer within `timeout`, or a refusal, each naming the address.
pub async fn connect(
    address: &str,
    hello: &Hello,
    keys: Option<&Arc<ClientConfig>>,
    timeout: Duration,
) -> Result<Established, TransportError> {
    let attempt = async {
        let mut connection = open(address, keys, timeout).await?;
        let reply = exchange(&mut connection, hello).await?;
        let Connection { reader, writer, identity } = connection;
        if !reply.refused.0.is_empty() {
            let reason = String::from_utf8_lossy(&reply.refused.0).into_owned();
            return Err(TransportError::Unwelcome { address: address.to_owned(), reason });
        }
        // A server is the one that its key says.
        if let Some(Identity { holder: Holder::Server(shown), .. }) = &identity
            && *shown != reply.server
        {
            let reason =
                format!("it says to be server {}, and shows the key of server {shown}", reply.server);
            return Err(TransportError::Unwelcome { address: address.to_owned(), reason });
        }
        Ok(Established { connection: Connection { reader, writer, identity }, reply })
    };
    match tokio::time::timeout(timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(TransportError::TimedOut { address: address.to_owned(), seconds: timeout.as_secs() }),
    }
}

/// Says hello, and hears the answer, a refusal or not.
async fn exchange(connection: &mut Connection, hello: &Hello) -> Result<HelloReply, TransportError> {
    write(&mut connection.writer, &Frame::new(Kind::Hello, 0, hello.to_bytes())).await?;
    let frame = read_one(&mut connection.reader).await?;
    if frame.kind != Kind::HelloReply {
        return Err(TransportError::Decode(wire::DecodeError::Bounds("handshake")));
    }
    Ok(HelloReply::from_bytes(&frame.body)?)
}

/// Which server of which pool is at `address`, as it says itself: nothing of it is proven. Without a key; one that lets
/// nobody in without a key says it, too.
///
/// # Errors
/// Nobody there, or no answer within `timeout`.
pub async fn handshake_reply(address: &str, timeout: Duration) -> Result<HelloReply, TransportError> {
    let hello = Established::control([0; 16], ids::ServerId(0));
    let attempt = async { exchange(&mut open(address, None, timeout).await?, &hello).await };
    match tokio::time::timeout(timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(TransportError::TimedOut { address: address.to_owned(), seconds: timeout.as_secs() }),
    }
}

async fn open(
    address: &str,
    keys: Option<&Arc<ClientConfig>>,
    timeout: Duration,
) -> Result<Connection, TransportError> {
    let failed = |source: std::io::Error| {
        if source.kind() == std::io::ErrorKind::ConnectionRefused {
            TransportError::Refused { address: address.to_owned() }
        } else {
            TransportError::Connect { address: address.to_owned(), source }
        }
    };
    if address.starts_with('/') {
        return Ok(UnixStream::connect(address).await.map_err(failed)?.into());
    }
    let socket = TcpStream::connect(address).await.map_err(failed)?;
    socket.set_nodelay(true)?;
    let Some(keys) = keys else { return Ok(socket.into()) };
    let channel = Channel::client(keys.clone()).map_err(|e| TransportError::Insecure {
        address: address.to_owned(),
        source: std::io::Error::other(e),
    })?;
    Ok(secure(socket, channel, address, timeout).await?.into())
}

/// Reads the handshake of somebody who connected, and its id for [`answer`].
pub async fn accept(from: &mut ReadingHalf) -> Result<(Hello, u64), TransportError> {
    let frame = read_one(from).await?;
    if frame.kind != Kind::Hello {
        return Err(TransportError::Decode(wire::DecodeError::Bounds("handshake")));
    }
    Ok((Hello::from_bytes(&frame.body)?, frame.id))
}

/// Answers a handshake; `reply.refused` says whether it is a refusal.
pub async fn answer(to: &mut WritingHalf, id: u64, reply: &HelloReply) -> Result<(), TransportError> {
    write(to, &Frame::new(Kind::HelloReply, id, reply.to_bytes())).await
}

impl Established {
    /// A handshake for the control plane from the command line or a server.
    pub fn control(pool: [u8; 16], from: ids::ServerId) -> Hello {
        Hello {
            versions: Blob(VERSIONS.to_vec()),
            purpose: Purpose::Control,
            pool,
            from,
            session: ids::SessionId(0),
        }
    }

    /// A reader and a writer of frames on the connection.
    pub fn split(self) -> (FrameReader<ReadingHalf>, WritingHalf, HelloReply) {
        let Connection { reader, writer, identity: _ } = self.connection;
        (FrameReader::from(reader), writer, self.reply)
    }
}
