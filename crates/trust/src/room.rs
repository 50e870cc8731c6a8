//! How much memory a connection has for what is on its way: little as long as little comes.

use std::ops::RangeInclusive;

/// Bytes that are read from a socket at once: from few, so that idle connections are small, to many.
const BYTES: RangeInclusive<usize> = 4 << 10..=256 << 10;
/// So many times in a row little has to be enough before there is less room: a connection on which small and large pieces come by
/// turns would get other memory each time.
pub(crate) const SMALL_IN_A_ROW: u8 = 64;

/// How much is read at once.
#[derive(Debug)]
pub(crate) struct Room {
    /// The next time, in bytes.
    next: usize,
    /// How often in a row an eighth was enough.
    small: u8,
}

impl Default for Room {
    fn default() -> Room {
        Room { next: *BYTES.start(), small: 0 }
    }
}

impl Room {
    /// So many bytes came, and there was room for `had`.
    pub(crate) fn came(&mut self, bytes: usize, had: usize) {
        if bytes == had {
            self.next = (self.next * 4).min(*BYTES.end());
        }
        self.small = if bytes < had / 8 { self.small + 1 } else { 0 };
        if self.small == SMALL_IN_A_ROW {
            self.small = 0;
            self.next = (self.next / 4).max(*BYTES.start());
        }
    }

    /// Gives a buffer its size, which has `kept` bytes of a record whose rest has to come: half of it is free, if it can be.
    pub(crate) fn make(&mut self, buffer: &mut Vec<u8>, kept: usize) {
        while kept > self.next / 2 && self.next < *BYTES.end() {
            self.next = (self.next * 4).min(*BYTES.end());
        }
        if buffer.len() != self.next {
            buffer.resize(self.next, 0);
            buffer.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It grows at once, and gets less only when little has come for long.
    #[test]
    fn small_and_large_pieces_by_turns_leave_the_room_as_it_is() {
        let mut room = Room::default();
        (0..4).for_each(|_| room.came(room.next, room.next));
        assert_eq!(room.next, *BYTES.end());
        for _ in 0..1000 {
            room.came(100, room.next);
            room.came(room.next / 2, room.next);
            assert_eq!(room.next, *BYTES.end());
        }
        let mut small = || {
            room.came(100, room.next);
            room.next > *BYTES.start()
        };
        assert_eq!((0..1000).take_while(|_| small()).count(), 3 * usize::from(SMALL_IN_A_ROW) - 1);
    }

    /// A record has 16 KiB and some bytes, a message of TLS 64 KiB at most.
    #[test]
    fn there_is_room_for_the_rest_of_a_record() {
        let (mut room, mut buffer) = (Room::default(), Vec::new());
        room.make(&mut buffer, 0);
        assert_eq!(buffer.len(), *BYTES.start());
        for kept in [100, 3000, 16 << 10, 100 << 10] {
            room.make(&mut buffer, kept);
            assert!(buffer.len() >= 2 * kept);
        }
        room.make(&mut buffer, *BYTES.end());
        assert_eq!(buffer.len(), *BYTES.end(), "there is none for more");
    }
}
