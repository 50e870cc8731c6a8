//! What is sealed and not with the socket yet.

use crate::room::SMALL_IN_A_ROW;
use rustls::unbuffered::{EncodeError, EncryptError, InsufficientSizeError};
use std::io::{self, ErrorKind, IoSlice};

/// What a record carries at most.
const RECORD: usize = 16 << 10;
/// What a record has beside that is less than this.
const AROUND: usize = 64;
/// What may wait for the socket: so many bytes are taken at once.
const UNSENT: usize = 64 << 10;
/// What is kept of the buffer when it is empty.
const KEPT: usize = 24 << 10;

/// Bytes for a socket, in order.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    buffer: Vec<u8>,
    /// What the socket did not take yet: `from..to`.
    from: usize,
    to: usize,
    /// How often in a row [`KEPT`] was enough.
    small: u8,
}

/// Why TLS did not write into the room that it had: it wants so much.
pub(crate) trait Wanted: std::error::Error + Send + Sync + 'static {
    /// In bytes, if that is why.
    fn wanted(&self) -> Option<usize>;
}

impl Wanted for EncodeError {
    fn wanted(&self) -> Option<usize> {
        match self {
            EncodeError::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            EncodeError::AlreadyEncoded => None,
        }
    }
}

impl Wanted for EncryptError {
    fn wanted(&self) -> Option<usize> {
        match self {
            EncryptError::InsufficientSize(InsufficientSizeError { required_size }) => Some(*required_size),
            EncryptError::EncryptExhausted => None,
        }
    }
}

impl Outgoing {
    pub(crate) fn has_unsent(&self) -> bool {
        self.from < self.to
    }

    /// Has TLS write something behind what is there.
    pub(crate) fn put<E: Wanted>(
        &mut self,
        mut write: impl FnMut(&mut [u8]) -> Result<usize, E>,
    ) -> io::Result<()> {
        let mut room = AROUND;
        loop {
            match write(self.room(room)) {
                Ok(n) => {
                    self.to += n;
                    return Ok(());
                }
                Err(why) => match why.wanted().filter(|wanted| *wanted > room) {
                    Some(wanted) => room = wanted,
                    None => return Err(io::Error::new(ErrorKind::InvalidData, why)),
                },
            }
        }
    }

    /// Room for so many bytes behind what is there.
    fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.from > UNSENT {
            // What was sent makes way, however slowly the rest is taken.
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        let end = self.to + bytes;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        self.buffer.get_mut(self.to..).unwrap_or_default()
    }

    /// Seals what follows `sealed` in the parts, as much as may wait, in records that are as long as they can be.
    pub(crate) fn seal(
        &mut self,
        parts: &[IoSlice<'_>],
        sealed: &mut usize,
        mut seal: impl FnMut(&[u8], &mut [u8]) -> Result<usize, EncryptError>,
    ) -> io::Result<()> {
        let mut left = UNSENT.saturating_sub(self.to - self.from);
        let mut skip = *sealed;
        let mut parts = parts.iter().map(|part| &**part).filter_map(|part| {
            let rest = part.get(skip..).unwrap_or_default();
            skip -= part.len() - rest.len();
            (!rest.is_empty()).then_some(rest)
        });
        let (mut part, mut joined) = (parts.next(), Vec::new());
        while let Some(bytes) = part {
            let bytes = bytes.get(..left).unwrap_or(bytes);
            if bytes.is_empty() {
                break;
            }
            // Whole records of one part are sealed from where they are; pieces of several make one together.
            let whole = bytes.len() - bytes.len() % RECORD;
            let taken = if joined.is_empty() && whole > 0 {
                let (records, _) = bytes.split_at(whole);
                self.room(whole + whole / RECORD * AROUND);
                self.put(|room| seal(records, room))?;
                *sealed += whole;
                whole
            } else {
                let piece = bytes.get(..RECORD - joined.len()).unwrap_or(bytes);
                joined.extend_from_slice(piece);
                piece.len()
            };
            left -= taken;
            part = part
                .and_then(|part| part.get(taken..))
                .filter(|rest| !rest.is_empty())
                .or_else(|| parts.next());
            if joined.len() == RECORD || !joined.is_empty() && (part.is_none() || left == 0) {
                self.room(joined.len() + AROUND);
                self.put(|room| seal(&joined, room))?;
                *sealed += joined.len();
                joined.clear();
            }
        }
        Ok(())
    }

    /// Hands it to `write`, until nothing is left.
    pub(crate) fn send(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        while let Some(unsent) = self.buffer.get(self.from..self.to).filter(|unsent| !unsent.is_empty()) {
            match write(&[IoSlice::new(unsent)])? {
                0 => return Err(ErrorKind::WriteZero.into()),
                n => self.from += n,
            }
        }
        self.rest();
        Ok(())
    }

    /// All was sent: a large buffer stays as long as it is used.
    fn rest(&mut self) {
        if self.to == 0 {
            return;
        }
        self.small = if self.to <= KEPT { self.small.saturating_add(1) } else { 0 };
        (self.from, self.to) = (0, 0);
        if self.buffer.len() > KEPT && self.small >= SMALL_IN_A_ROW {
            self.buffer = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a cipher that adds nothing would seal.
    fn copied(bytes: &[u8], room: &mut [u8]) -> Result<usize, EncryptError> {
        let required_size = bytes.len();
        let into = room.get_mut(..required_size).ok_or(InsufficientSizeError { required_size })?;
        into.copy_from_slice(bytes);
        Ok(required_size)
    }

    /// A socket that never takes all: what is there stays in order, and is not kept beyond what may wait and was just sent.
    #[test]
    fn a_socket_that_is_never_empty_costs_no_more_and_more() {
        let mut outgoing = Outgoing::default();
        let (mut sealed, mut sent) = (Vec::new(), Vec::new());
        for round in 0..200u32 {
            let bytes: Vec<u8> = (0..40_000u32).map(|n| (n * 7 + round) as u8).collect();
            let mut n = 0;
            outgoing.seal(&[IoSlice::new(&bytes)], &mut n, copied).unwrap();
            sealed.extend_from_slice(&bytes[..n]);
            let mut left = 39_000;
            let full = outgoing.send(|parts| {
                let n = parts[0].len().min(left);
                left -= n;
                sent.extend_from_slice(&parts[0][..n]);
                if n == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(n) }
            });
            assert!(full.is_err() || !outgoing.has_unsent());
        }
        assert!(outgoing.has_unsent());
        assert!(outgoing.buffer.len() <= 2 * UNSENT + 2 * 40_000, "{}", outgoing.buffer.len());
        outgoing
            .send(|parts| {
                sent.extend_from_slice(&parts[0]);
                Ok(parts[0].len())
            })
            .unwrap();
        assert!(sealed == sent && sealed.len() > 7_000_000);
    }

    /// A large buffer is given back when little was sent for long.
    #[test]
    fn a_quiet_connection_is_small() {
        let mut outgoing = Outgoing::default();
        let mut send = |size: usize| {
            outgoing.seal(&[IoSlice::new(&vec![1; size])], &mut 0, copied).unwrap();
            outgoing.send(|parts| Ok(parts[0].len())).unwrap();
            // Whoever sends looks before and afterwards whether something is left.
            outgoing.send(|_| unreachable!("nothing is left")).unwrap();
            outgoing.buffer.len()
        };
        assert!(send(200_000) > KEPT);
        assert!((1..SMALL_IN_A_ROW).all(|_| send(100) > KEPT));
        assert!(send(100) <= KEPT);
    }
}
