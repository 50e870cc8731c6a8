//! The writing half of a connection, plain or encrypted, for who writes without waiting.

use crate::TlsWriter;
use std::io::{self, IoSlice};
use tokio::net::tcp::OwnedWriteHalf;

/// A writing half.
#[derive(Debug)]
pub enum WritingHalf {
    /// Of a socket.
    Plain(OwnedWriteHalf),
    /// Of an encrypted connection.
    Tls(TlsWriter),
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
            WritingHalf::Tls(writer) => writer.try_write_vectored(parts),
        }
    }

    /// Whether nothing is left of what was taken.
    pub(crate) fn try_flush(&self) -> io::Result<bool> {
        match self {
            WritingHalf::Plain(_) => Ok(true),
            WritingHalf::Tls(writer) => writer.try_flush(),
        }
    }

    /// Waits until more is taken.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            WritingHalf::Plain(socket) => socket.writable().await,
            WritingHalf::Tls(writer) => writer.writable().await,
        }
    }
}
