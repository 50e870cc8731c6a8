//! A connected socket, encrypted or not: bytes out and in, never blocking but in [`crate::wait`].

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ids::ServerId;
use rustix::io::Errno;
use rustix::net::{self, SendAncillaryBuffer, SendFlags};
use trust::{Channel, Holder};

use crate::conn::Broken;
use crate::key::KeyReader;
use crate::wait::Waiting;

/// A socket, and its encryption if there is one.
pub(crate) struct Socket {
    fd: OwnedFd,
    channel: Option<Box<Channel>>,
}

fn transmit(fd: &OwnedFd, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    net::sendmsg(fd, parts, &mut SendAncillaryBuffer::default(), flags)
}

impl Socket {
    /// Does the handshake of TLS on a connected socket if there is a key.
    pub(crate) fn new(fd: OwnedFd, key: Option<&KeyReader>, waiting: &Waiting<'_>) -> Result<Socket, Broken> {
        let mut socket = Socket { fd, channel: None };
        let Some(key) = key else { return Ok(socket) };
        let settings = key.settings().map_err(|e| Broken::Refused(e.to_string()))?;
        let channel = Channel::client(settings).map_err(|e| Broken::Refused(e.to_string()))?;
        socket.channel = Some(Box::new(channel));
        socket.shake_hands(waiting).map_err(|why| match why {
            Broken::Io(e) if e.kind() == ErrorKind::InvalidData => Broken::Refused(format!("TLS: {e}")),
            other => other,
        })?;
        Ok(socket)
    }

    fn shake_hands(&mut self, waiting: &Waiting<'_>) -> Result<(), Broken> {
        loop {
            self.push(waiting)?;
            let Some(channel) = &mut self.channel else { return Ok(()) };
            if !channel.is_shaking_hands() {
                return Ok(());
            }
            pull(&self.fd, channel, waiting)?;
            let mut more = true;
            while more && channel.is_shaking_hands() {
                more = channel.process()?;
            }
        }
    }

    /// The number of the server whose key the other side showed; `None`: the connection is not encrypted.
    pub(crate) fn server(&self) -> Result<Option<ServerId>, Broken> {
        let Some(channel) = &self.channel else { return Ok(None) };
        let shown = channel.identity().map_err(|e| Broken::Refused(e.to_string()))?;
        match shown.map(|identity| identity.holder) {
            Some(Holder::Server(server)) => Ok(Some(server)),
            _ => Err(Broken::Refused("it is no server of the pool".to_owned())),
        }
    }

    /// Whether it is encrypted: then TLS has checked what comes.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.channel.is_some()
    }

    /// The socket.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whether there is something to read that does not wait on the socket any more.
    pub(crate) fn has_received(&mut self) -> bool {
        // An error will show again to whoever reads.
        self.channel.as_mut().is_some_and(|channel| channel.has_opened().unwrap_or(true))
    }

    /// Sends all of it.
    pub(crate) fn send(&mut self, front: &[u8], back: &[u8], waiting: &Waiting<'_>) -> Result<(), Broken> {
        let (mut sent, total) = (0, front.len() + back.len());
        while sent < total {
            let first = front.get(sent..).unwrap_or_default();
            let second = back.get(sent.saturating_sub(front.len())..).unwrap_or_default();
            let parts = [IoSlice::new(first), IoSlice::new(second)];
            if let Some(channel) = &mut self.channel {
                sent += channel.seal(&parts)?;
                self.push(waiting)?;
                continue;
            }
            match transmit(&self.fd, &parts) {
                Ok(n) => sent += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => waiting.writable(self.fd.as_fd())?,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Sends what is encrypted already.
    fn push(&mut self, waiting: &Waiting<'_>) -> Result<(), Broken> {
        let Some(channel) = &mut self.channel else { return Ok(()) };
        loop {
            match channel.send(|parts| Ok(transmit(&self.fd, parts)?)) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => waiting.writable(self.fd.as_fd())?,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reads into both slices, waiting for the first byte.
    pub(crate) fn read(
        &mut self,
        first: &mut [u8],
        second: &mut [u8],
        waiting: &Waiting<'_>,
    ) -> Result<usize, Broken> {
        let Some(channel) = &mut self.channel else { return read(&self.fd, first, second, waiting) };
        loop {
            let (mut at, room) = (0, first.len());
            let opened = channel.open(room + second.len(), |bytes| {
                let split = bytes.len().min(room.saturating_sub(at));
                let (front, back) = bytes.split_at(split);
                if let Some(to) = first.get_mut(at..at + front.len()) {
                    to.copy_from_slice(front);
                }
                let after = (at + split).saturating_sub(room);
                if let Some(to) = second.get_mut(after..after + back.len()) {
                    to.copy_from_slice(back);
                }
                at += bytes.len();
            })?;
            if opened > 0 {
                return Ok(opened);
            }
            if channel.is_ended() {
                return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
            }
            pull(&self.fd, channel, waiting)?;
        }
    }
}

/// Takes what the socket has, waiting for the first byte.
fn pull(fd: &OwnedFd, channel: &mut Channel, waiting: &Waiting<'_>) -> Result<(), Broken> {
    let n = read(fd, channel.room(), &mut [], waiting)?;
    channel.received(n);
    Ok(())
}

/// Reads into both slices, waiting for the first byte.
fn read(fd: &OwnedFd, first: &mut [u8], second: &mut [u8], waiting: &Waiting<'_>) -> Result<usize, Broken> {
    loop {
        match rustix::io::readv(fd, &mut [IoSliceMut::new(first), IoSliceMut::new(second)]) {
            Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof).into()),
            Ok(n) => return Ok(n),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => waiting.readable(fd.as_fd())?,
            Err(e) => return Err(e.into()),
        }
    }
}
