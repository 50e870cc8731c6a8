//! Connections by hand, encrypted or not, on which a test says what it likes.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;
use trust::{Channel, KeyFile, client_config, read_private};
use wire::codec::Blob;
use wire::hello::{Hello, HelloReply, Purpose};
use wire::{Frame, FrameHead, Kind, Wire};

/// The beginning of an encrypted connection of somebody with that key.
pub(crate) fn channel_of(key: &Path) -> Channel {
    let file = KeyFile::decode(&read_private(key).unwrap()).unwrap();
    Channel::client(client_config(&file).unwrap()).unwrap()
}

/// A connection by hand, encrypted if there is a key.
pub(crate) struct Raw {
    stream: TcpStream,
    channel: Option<Channel>,
}

impl Raw {
    /// What the server answers to a hello; `None`: it ends the connection without a word.
    pub(crate) fn hello(
        address: &str,
        key: Option<&Path>,
        purpose: Purpose,
        from: u64,
    ) -> Option<(Raw, HelloReply)> {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        Raw::over(stream, key.map(channel_of), purpose, from)
    }

    /// The same on a connection that was made.
    pub(crate) fn over(
        stream: TcpStream,
        channel: Option<Channel>,
        purpose: Purpose,
        from: u64,
    ) -> Option<(Raw, HelloReply)> {
        let mut raw = Raw::begin(stream, channel)?;
        let hello = Hello {
            versions: Blob(wire::frame::VERSIONS.to_vec()),
            purpose,
            pool: [0; 16],
            from: ids::ServerId(from),
            session: ids::SessionId(4711),
        };
        raw.send(&Frame::new(Kind::Hello, 1, hello.to_bytes()));
        let answer = raw.receive()?;
        Some((raw, HelloReply::from_bytes(&answer).unwrap()))
    }

    /// A connection on which nothing was said, after the handshake of TLS if it is encrypted.
    pub(crate) fn begin(stream: TcpStream, channel: Option<Channel>) -> Option<Raw> {
        let mut raw = Raw { stream, channel };
        while raw.channel.as_ref().is_some_and(Channel::is_shaking_hands) {
            raw.push();
            raw.pull()?;
            let channel = raw.channel.as_mut().unwrap();
            while channel.is_shaking_hands() && channel.process().ok()? {}
        }
        raw.push();
        Some(raw)
    }

    fn push(&mut self) {
        if let Some(channel) = &mut self.channel {
            // Who was refused may have closed it.
            let _gone = channel.send(|parts| self.stream.write_vectored(parts));
        }
    }

    fn pull(&mut self) -> Option<()> {
        let channel = self.channel.as_mut().unwrap();
        match self.stream.read(channel.room()) {
            Ok(0) => None,
            Ok(n) => {
                channel.received(n);
                Some(())
            }
            Err(e) => ended(&e),
        }
    }

    /// How long to wait for the server to say something, and to take something.
    pub(crate) fn set_timeouts(&self, read: Duration, write: Duration) {
        self.stream.set_read_timeout(Some(read)).unwrap();
        self.stream.set_write_timeout(Some(write)).unwrap();
    }

    /// Sends bytes; false if the server does not take all of them within the time that the socket waits.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> bool {
        self.write_all(bytes).is_ok()
    }

    pub(crate) fn send(&mut self, frame: &Frame) {
        let bytes = frame.head_and_body();
        match &mut self.channel {
            None => drop(self.stream.write_all(&bytes)),
            Some(channel) => {
                channel.seal(&[IoSlice::new(&bytes)]).unwrap();
                self.push();
            }
        }
    }

    /// The body of the next frame; `None`: the server ended the connection.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut head = [0; wire::frame::HEAD];
        self.fill(&mut head)?;
        let mut body = vec![0; FrameHead::decode(&head).unwrap().body_len];
        self.fill(&mut body)?;
        Some(body)
    }

    fn fill(&mut self, room: &mut [u8]) -> Option<()> {
        self.read_exact(room).map_or_else(|e| ended(&e), Some)
    }

    /// Closes this side, and waits until the server has closed its own; the bytes that it said before.
    pub(crate) fn end(mut self) -> io::Result<usize> {
        match &mut self.channel {
            Some(channel) => {
                channel.close();
                self.push();
            }
            None => self.stream.shutdown(Shutdown::Write)?,
        }
        self.read_to_end(&mut Vec::new())
    }
}

/// Whether the server ended the connection. It has to do something.
fn ended(e: &io::Error) -> Option<()> {
    let waits = matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
    assert!(!waits, "the server neither answers nor ends the connection: {e}");
    None
}

impl Read for Raw {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let Some(channel) = &mut self.channel else { return self.stream.read(room) };
        while !room.is_empty() {
            let mut at = 0;
            let opened = channel.open(room.len(), |bytes| {
                room[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
            })?;
            if opened > 0 || channel.is_ended() {
                return Ok(opened);
            }
            match self.stream.read(channel.room())? {
                0 => return Ok(0),
                n => channel.received(n),
            }
        }
        Ok(0)
    }
}

impl Write for Raw {
    /// Nothing of it counts as written if the server does not take it in time.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(channel) = &mut self.channel else { return self.stream.write(bytes) };
        let sealed = channel.seal(&[IoSlice::new(bytes)])?;
        channel.send(|parts| self.stream.write_vectored(parts))?;
        Ok(sealed)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
