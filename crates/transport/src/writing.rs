//! The writing half of a connection, plain or encrypted, also for who writes without waiting.

use crate::TlsWriter;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::unix;

/// A writing half.
#[derive(Debug)]
pub enum WritingHalf {
    /// Of a socket.
    Plain(OwnedWriteHalf),
    /// Of an encrypted connection.
    Tls(TlsWriter),
    /// Of a local socket.
    Local(unix::OwnedWriteHalf),
}

impl From<OwnedWriteHalf> for WritingHalf {
    fn from(socket: OwnedWriteHalf) -> WritingHalf {
        WritingHalf::Plain(socket)
    }
}

impl From<TlsWriter> for WritingHalf {
    fn from(writer: TlsWriter) -> WritingHalf {
        WritingHalf::Tls(writer)
    }
}

impl WritingHalf {
    /// Writes as much as is taken at once.
    pub(crate) fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            WritingHalf::Plain(socket) => socket.try_write_vectored(parts),
            WritingHalf::Local(socket) => socket.try_write_vectored(parts),
            WritingHalf::Tls(writer) => writer.try_write_vectored(parts),
        }
    }

    /// Whether nothing is left of what was taken.
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        match self {
            WritingHalf::Plain(_) | WritingHalf::Local(_) => Ok(true),
            WritingHalf::Tls(writer) => writer.try_flush(),
        }
    }

    /// Waits until more is taken.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            WritingHalf::Plain(socket) => socket.writable().await,
            WritingHalf::Local(socket) => socket.writable().await,
            WritingHalf::Tls(writer) => writer.writable().await,
        }
    }
}

impl AsyncWrite for WritingHalf {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            WritingHalf::Plain(half) => Pin::new(half).poll_write_vectored(context, parts),
            WritingHalf::Tls(half) => Pin::new(half).poll_write_vectored(context, parts),
            WritingHalf::Local(half) => Pin::new(half).poll_write_vectored(context, parts),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            WritingHalf::Plain(half) => Pin::new(half).poll_flush(context),
            WritingHalf::Tls(half) => Pin::new(half).poll_flush(context),
            WritingHalf::Local(half) => Pin::new(half).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            WritingHalf::Plain(half) => Pin::new(half).poll_shutdown(context),
            WritingHalf::Tls(half) => Pin::new(half).poll_shutdown(context),
            WritingHalf::Local(half) => Pin::new(half).poll_shutdown(context),
        }
    }
}
