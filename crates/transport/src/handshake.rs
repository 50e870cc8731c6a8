//! The first frames of a connection.

use crate::{FrameReader, TransportError};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use wire::frame::VERSIONS;
use wire::hello::{Hello, HelloReply, Purpose};
use wire::{Frame, Kind, Wire, codec::Blob};

/// A connection after its handshake.
#[derive(Debug)]
pub struct Established {
    /// The socket, nothing beyond the handshake read or written.
    pub stream: TcpStream,
    /// What the other side said.
    pub reply: HelloReply,
}

async fn write(stream: &mut TcpStream, frame: &Frame) -> Result<(), TransportError> {
    stream.write_all(&frame.head_and_body()).await?;
    Ok(())
}

/// Reads exactly one frame: nothing of what follows it may be taken from the socket.
async fn read_one(stream: &mut TcpStream) -> Result<Frame, TransportError> {
    use tokio::io::AsyncReadExt;
    let mut raw = [0; wire::frame::HEAD];
    stream.read_exact(&mut raw).await?;
    let head = wire::FrameHead::decode(&raw)?;
    if head.body_len > 4096 || head.payload_len != 0 {
        return Err(TransportError::Decode(wire::DecodeError::Bounds("handshake")));
    }
    let mut body = vec![0; head.body_len];
    stream.read_exact(&mut body).await?;
    head.verify(&body, &[])?;
    Ok(Frame::new(head.kind, head.id, body))
}

/// Connects to `address` and does the handshake.
///
/// # Errors
/// Nobody there, no answer within `timeout`, or a refusal, each naming the address.
pub async fn connect(address: &str, hello: &Hello, timeout: Duration) -> Result<Established, TransportError> {
    let attempt = async {
        let mut stream = TcpStream::connect(address).await.map_err(|source| {
            if source.kind() == std::io::ErrorKind::ConnectionRefused {
                TransportError::Refused { address: address.to_owned() }
            } else {
                TransportError::Connect { address: address.to_owned(), source }
            }
        })?;
        stream.set_nodelay(true)?;
        write(&mut stream, &Frame::new(Kind::Hello, 0, hello.to_bytes())).await?;
        let frame = read_one(&mut stream).await?;
        if frame.kind != Kind::HelloReply {
            return Err(TransportError::Decode(wire::DecodeError::Bounds("handshake")));
        }
        let reply = HelloReply::from_bytes(&frame.body)?;
        if !reply.refused.0.is_empty() {
            let reason = String::from_utf8_lossy(&reply.refused.0).into_owned();
            return Err(TransportError::Unwelcome { address: address.to_owned(), reason });
        }
        Ok(Established { stream, reply })
    };
    match tokio::time::timeout(timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(TransportError::TimedOut { address: address.to_owned(), seconds: timeout.as_secs() }),
    }
}

/// Reads the handshake of somebody who connected, and its id for [`answer`].
pub async fn accept(stream: &mut TcpStream) -> Result<(Hello, u64), TransportError> {
    stream.set_nodelay(true)?;
    let frame = read_one(stream).await?;
    if frame.kind != Kind::Hello {
        return Err(TransportError::Decode(wire::DecodeError::Bounds("handshake")));
    }
    Ok((Hello::from_bytes(&frame.body)?, frame.id))
}

/// Answers a handshake; `reply.refused` says whether it is a refusal.
pub async fn answer(stream: &mut TcpStream, id: u64, reply: &HelloReply) -> Result<(), TransportError> {
    write(stream, &Frame::new(Kind::HelloReply, id, reply.to_bytes())).await
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
    pub fn split(
        self,
    ) -> (FrameReader<tokio::net::tcp::OwnedReadHalf>, tokio::net::tcp::OwnedWriteHalf, HelloReply) {
        let (r, w) = self.stream.into_split();
        (FrameReader::new(r), w, self.reply)
    }
}
