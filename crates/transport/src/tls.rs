//! Encrypted connections: a socket, and beside it what [`trust::Channel`] decides.
//!
//! The two halves of a connection may be used by different tasks. A frame is encrypted by whoever sends it.

use crate::TransportError;
use rustix::io::read;
use rustix::net::{Shutdown, shutdown};
use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use trust::{Channel, Identity};

#[derive(Debug)]
pub(crate) struct Shared {
    socket: TcpStream,
    channel: Mutex<Channel>,
}

impl Shared {
    pub(crate) fn new(socket: TcpStream, channel: Channel) -> Shared {
        Shared { socket, channel: Mutex::new(channel) }
    }

    /// The two halves of a connection whose handshake is over.
    pub(crate) fn into_connection(self, identity: Option<Identity>) -> TlsConnection {
        let shared = Arc::new(self);
        TlsConnection { reader: TlsReader(shared.clone()), writer: TlsWriter(shared), identity }
    }

    fn channel(&self) -> MutexGuard<'_, Channel> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is sealed, as far as the socket takes it; whether that was all.
    fn push(&self, channel: &mut Channel) -> io::Result<bool> {
        match channel.send(|parts| self.socket.try_write_vectored(parts)) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Reads what the socket has; `None`: nothing now.
    fn pull(&self, channel: &mut Channel) -> io::Result<Option<usize>> {
        let room = channel.room();
        let mut got = None;
        let done = self.socket.try_io(Interest::READABLE, || {
            let n = read(&self.socket, &mut *room)?;
            got = Some(n);
            // It had no more: the next read waits for news of the socket, and need not ask first.
            if (1..room.len()).contains(&n) { Err(ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match done {
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
        if let Some(n) = got {
            channel.received(n);
        }
        Ok(got)
    }
}

/// The reading half of an encrypted connection.
#[derive(Debug)]
pub struct TlsReader(Arc<Shared>);

impl TlsReader {
    /// The socket and its encryption; `None` while the other half lives.
    pub(crate) fn into_parts(self) -> Option<(TcpStream, Channel)> {
        let Shared { socket, channel } = Arc::into_inner(self.0)?;
        Some((socket, channel.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// The writing half of an encrypted connection.
#[derive(Debug)]
pub struct TlsWriter(Arc<Shared>);

/// An encrypted connection, and who is on the other side.
#[derive(Debug)]
pub struct TlsConnection {
    /// What it reads from.
    pub reader: TlsReader,
    /// What it writes to.
    pub writer: TlsWriter,
    /// Whose key the other side showed; `None`: it has none.
    pub identity: Option<Identity>,
}

/// Does the handshake of TLS on a connection that was just made, on either side. `address` is for errors.
///
/// # Errors
/// The other side is not believed, does not believe us, speaks no TLS, or took longer than `timeout`.
pub async fn secure(
    socket: TcpStream,
    channel: Channel,
    address: &str,
    timeout: Duration,
) -> Result<TlsConnection, TransportError> {
    let shared = Shared::new(socket, channel);
    match tokio::time::timeout(timeout, shake_hands(&shared)).await {
        Ok(done) => {
            done.map_err(|source| TransportError::Insecure { address: address.to_owned(), source })?
        }
        Err(_) => {
            return Err(TransportError::TimedOut { address: address.to_owned(), seconds: timeout.as_secs() });
        }
    }
    let identity = shared.channel().identity().map_err(|e| TransportError::Insecure {
        address: address.to_owned(),
        source: io::Error::new(ErrorKind::InvalidData, e),
    })?;
    Ok(shared.into_connection(identity))
}

async fn shake_hands(shared: &Shared) -> io::Result<()> {
    loop {
        let (sent, wanting) = {
            let mut channel = shared.channel();
            (shared.push(&mut channel)?, channel.is_shaking_hands())
        };
        if !sent {
            shared.socket.writable().await?;
            continue;
        }
        if !wanting {
            return Ok(());
        }
        shared.socket.readable().await?;
        let mut channel = shared.channel();
        if shared.pull(&mut channel)? == Some(0) {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let mut more = true;
        while more && channel.is_shaking_hands() {
            more = channel.process().inspect_err(|_| {
                // The other side learns why, if the socket takes it.
                let _unsent = shared.push(&mut channel);
            })?;
        }
    }
}

impl AsyncRead for TlsReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            {
                let mut channel = self.0.channel();
                let opened = channel.open(into.remaining(), |bytes| into.put_slice(bytes))?;
                if channel.has_unsent() {
                    // An answer of TLS itself. What the socket does not take goes with the next frame.
                    self.0.push(&mut channel)?;
                }
                if opened > 0 {
                    return Poll::Ready(Ok(()));
                }
                if channel.is_ended() {
                    return Poll::Ready(Ok(()));
                }
                match self.0.pull(&mut channel)? {
                    // Frames say their lengths: an end without a word is one between frames, or seen as one within.
                    Some(0) => return Poll::Ready(Ok(())),
                    Some(_) => continue,
                    None => {}
                }
            }
            ready!(self.0.socket.poll_read_ready(context))?;
        }
    }
}

impl TlsWriter {
    /// Takes bytes and writes them as far as the socket takes them at once.
    ///
    /// # Errors
    /// The socket's; [`ErrorKind::WouldBlock`] if nothing was taken.
    pub(crate) fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut channel = self.0.channel();
        if !self.0.push(&mut channel)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let taken = channel.seal(parts)?;
        self.0.push(&mut channel)?;
        Ok(taken)
    }

    /// Writes what was taken and not written yet; whether that was all.
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        self.0.push(&mut self.0.channel())
    }

    /// Waits until the socket takes more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.0.socket.writable().await
    }
}

impl AsyncWrite for TlsWriter {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            match self.try_write_vectored(parts) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
            ready!(self.0.socket.poll_write_ready(context))?;
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.try_flush()? {
            ready!(self.0.socket.poll_write_ready(context))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.channel().close();
        ready!(self.as_mut().poll_flush(context))?;
        match shutdown(&self.0.socket, Shutdown::Write) {
            Err(e) if e != rustix::io::Errno::NOTCONN => Poll::Ready(Err(e.into())),
            _ => Poll::Ready(Ok(())),
        }
    }
}
