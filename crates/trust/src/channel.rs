//! One side of a connection's encryption: bytes go in and out, the socket is somebody else's.

use crate::error::{IdentityError, TrustError};
use crate::identity::Identity;
use crate::tls::{identity_of, server_name};
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};
use std::io::{self, BufRead, ErrorKind, IoSlice, Write};
use std::sync::Arc;

/// Bytes that are read from a socket at once: from few, so that idle connections are small, to many.
const ROOM: std::ops::RangeInclusive<usize> = 4 << 10..=256 << 10;
/// So many times in a row an eighth of the room has to be enough before there is less of it: a connection on which small and
/// large pieces come by turns would get other memory each time.
const SMALL_IN_A_ROW: u8 = 64;
/// Sealed bytes that may wait for the socket.
const UNSENT: usize = 256 << 10;

/// The state of one side of an encrypted connection.
#[derive(Debug)]
pub struct Channel {
    connection: Connection,
    /// What came from the socket, of which `from..to` was not opened yet.
    incoming: Vec<u8>,
    from: usize,
    to: usize,
    room: Room,
}

/// How much is read at once.
#[derive(Debug)]
struct Room {
    /// The next time, in bytes.
    next: usize,
    /// How often in a row an eighth was enough.
    small: u8,
}

impl Room {
    /// So many bytes came, and there was room for `had`.
    fn came(&mut self, bytes: usize, had: usize) {
        if bytes == had {
            self.next = (self.next * 4).min(*ROOM.end());
        }
        self.small = if bytes < had / 8 { self.small + 1 } else { 0 };
        if self.small == SMALL_IN_A_ROW {
            self.small = 0;
            self.next = (self.next / 4).max(*ROOM.start());
        }
    }
}

/// Gives what is to be written to a function.
struct Outlet<F>(F);

impl<F: FnMut(&[IoSlice<'_>]) -> io::Result<usize>> Write for Outlet<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        (self.0)(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refused(why: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

impl Channel {
    /// The side that connects.
    ///
    /// # Errors
    /// TLS does not take the settings.
    pub fn client(config: Arc<ClientConfig>) -> Result<Channel, TrustError> {
        Ok(Channel::new(ClientConnection::new(config, server_name())?.into()))
    }

    /// The side that was connected to.
    ///
    /// # Errors
    /// TLS does not take the settings.
    pub fn server(config: Arc<ServerConfig>) -> Result<Channel, TrustError> {
        Ok(Channel::new(ServerConnection::new(config)?.into()))
    }

    fn new(mut connection: Connection) -> Channel {
        connection.set_buffer_limit(Some(UNSENT));
        Channel {
            connection,
            incoming: Vec::new(),
            from: 0,
            to: 0,
            room: Room { next: *ROOM.start(), small: 0 },
        }
    }

    /// Whether the handshake is not over on this side.
    pub fn is_shaking_hands(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Who is on the other side, after the handshake; `None`: somebody without a key.
    ///
    /// # Errors
    /// Its certificate says nothing.
    pub fn identity(&self) -> Result<Option<Identity>, IdentityError> {
        identity_of(self.connection.peer_certificates())
    }

    /// Room for bytes from the socket. To be asked for when all that came was opened.
    pub fn room(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
            if self.incoming.len() != self.room.next {
                self.incoming.resize(self.room.next, 0);
                self.incoming.shrink_to_fit();
            }
        }
        self.incoming.get_mut(self.to..).unwrap_or_default()
    }

    /// So many bytes were put into [`Channel::room`].
    ///
    /// # Panics
    /// There was no room for so many.
    pub fn received(&mut self, bytes: usize) {
        self.to += bytes;
        assert!(self.to <= self.incoming.len(), "no more comes than there is room for");
        self.room.came(bytes, self.incoming.len());
    }

    /// Gives the next of what came to TLS; false if nothing is left.
    ///
    /// # Errors
    /// The other side is refused, refuses us, or sends what is no TLS. An alert may wait to be sent.
    pub fn process(&mut self) -> io::Result<bool> {
        let mut rest = self.incoming.get(self.from..self.to).unwrap_or_default();
        let before = rest.len();
        if before == 0 {
            return Ok(false);
        }
        self.connection.read_tls(&mut rest)?;
        let taken = before - rest.len();
        // After its end nothing of the other side counts.
        self.from = if taken == 0 { self.to } else { self.from + taken };
        self.connection.process_new_packets().map_err(refused)?;
        Ok(taken > 0)
    }

    /// Gives what the other side sent, as far as it came, at most `most` bytes; how many these were. 0: more has to come from
    /// the socket first.
    ///
    /// # Errors
    /// As [`Channel::process`].
    pub fn open(&mut self, most: usize, mut give: impl FnMut(&[u8])) -> io::Result<usize> {
        let mut done = 0;
        while done < most {
            let mut opened = self.connection.reader();
            match opened.fill_buf() {
                // The end that the other side told.
                Ok([]) => break,
                Ok(bytes) => {
                    let bytes = bytes.get(..most - done).unwrap_or(bytes);
                    give(bytes);
                    let given = bytes.len();
                    opened.consume(given);
                    done += given;
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            if !self.process()? {
                break;
            }
        }
        Ok(done)
    }

    /// Whether what came already can be given, or is the end: [`Channel::open`] would not ask for more from the socket.
    ///
    /// # Errors
    /// As [`Channel::process`].
    pub fn has_opened(&mut self) -> io::Result<bool> {
        loop {
            match self.connection.reader().fill_buf() {
                Ok(_) => return Ok(true),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            if !self.process()? {
                return Ok(false);
            }
        }
    }

    /// Whether the other side said that it sends nothing more.
    pub fn is_ended(&mut self) -> bool {
        self.connection.reader().fill_buf().is_ok_and(<[u8]>::is_empty)
    }

    /// Takes bytes that are to be sent, as many as there is room for; they go with the next [`Channel::send`].
    ///
    /// # Errors
    /// None that is known.
    pub fn seal(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.connection.writer().write_vectored(parts)
    }

    /// Whether there is something for the socket.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Hands what is for the socket to `write`, until nothing is left.
    ///
    /// # Errors
    /// Those of `write`; what it did not take stays.
    pub fn send(&mut self, write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>) -> io::Result<()> {
        let mut write = Outlet(write);
        while self.connection.wants_write() {
            if self.connection.write_tls(&mut write)? == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
        }
        Ok(())
    }

    /// Says that nothing more will be sent.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It grows at once, and gets less only when little has come for long.
    #[test]
    fn small_and_large_pieces_by_turns_leave_the_room_as_it_is() {
        let mut room = Room { next: *ROOM.start(), small: 0 };
        (0..4).for_each(|_| room.came(room.next, room.next));
        assert_eq!(room.next, *ROOM.end());
        for _ in 0..1000 {
            room.came(100, room.next);
            room.came(room.next / 2, room.next);
            assert_eq!(room.next, *ROOM.end());
        }
        let mut small = || {
            room.came(100, room.next);
            room.next > *ROOM.start()
        };
        assert_eq!((0..1000).take_while(|_| small()).count(), 3 * usize::from(SMALL_IN_A_ROW) - 1);
    }
}
