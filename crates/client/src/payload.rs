//! Where the data of answers goes.

use std::ops::Deref;

use wire::DecodeError;

#[derive(Debug)]
enum Room<'a> {
    /// Grows as needed.
    Own(Vec<u8>),
    /// The caller's memory, as large as it asked for data.
    Lent(&'a mut [u8]),
}

/// Takes the data that comes with an answer, where it is to stay: nothing is copied on the way.
#[derive(Debug)]
pub struct Payload<'a> {
    room: Room<'a>,
    len: usize,
}

impl Default for Payload<'_> {
    fn default() -> Self {
        Payload::new()
    }
}

impl<'a> Payload<'a> {
    /// An empty one that grows.
    pub const fn new() -> Payload<'a> {
        Payload { room: Room::Own(Vec::new()), len: 0 }
    }

    /// One that grows, with room for `len` bytes that are expected.
    pub fn with_room(len: usize) -> Payload<'a> {
        Payload { room: Room::Own(vec![0; len]), len: 0 }
    }

    /// The caller's memory; answers with more data than fits are errors.
    pub fn lent(room: &'a mut [u8]) -> Payload<'a> {
        Payload { room: Room::Lent(room), len: 0 }
    }

    /// The data, owned.
    pub fn into_vec(self) -> Vec<u8> {
        match self.room {
            Room::Own(mut bytes) => {
                bytes.truncate(self.len);
                bytes
            }
            Room::Lent(room) => room[..self.len].to_vec(),
        }
    }

    /// Makes room for `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), DecodeError> {
        match &mut self.room {
            Room::Own(bytes) if bytes.len() < len => bytes.resize(len, 0),
            Room::Lent(room) if room.len() < len => return Err(DecodeError::Bounds("data of an answer")),
            Room::Own(_) | Room::Lent(_) => {}
        }
        Ok(())
    }

    /// All room there is, whatever it holds.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        match &mut self.room {
            Room::Own(bytes) => bytes,
            Room::Lent(room) => room,
        }
    }

    /// Says how many bytes of the room are data.
    pub(crate) fn set_len(&mut self, len: usize) {
        assert!(len <= self.room().len(), "data lies within the room");
        self.len = len;
    }
}

impl Deref for Payload<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.room {
            Room::Own(bytes) => &bytes[..self.len],
            Room::Lent(room) => &room[..self.len],
        }
    }
}
