//! The buffers of one worker thread, allocated at its first request and reused.

use crate::abi::{IN_HEADER, PAGE, WRITE_IN};

/// Bytes whose `lead`-th byte begins a page, so that the kernel copies the
/// payload page by page without straddling.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    const EMPTY: Aligned = Aligned { memory: Vec::new(), start: 0, len: 0 };

    fn new(len: usize, lead: usize) -> Aligned {
        let memory = vec![0_u8; len + PAGE];
        let first = memory.as_ptr().addr() + lead;
        let start = first.next_multiple_of(PAGE) - first;
        Aligned { memory, start, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.memory.get_mut(self.start..self.start + self.len).unwrap_or_default()
    }
}

/// Where requests are read to and replies are built.
pub(crate) struct Buffers {
    request: Aligned,
    data: Aligned,
    /// The body of a reply that is encoded.
    pub(crate) body: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Buffers {
        Buffers { request: Aligned::EMPTY, data: Aligned::EMPTY, body: Vec::new() }
    }

    /// Room for a request with `max_write` bytes of payload.
    pub(crate) fn request(&mut self, max_write: usize) -> &mut [u8] {
        let needed = max_write + PAGE;
        if self.request.len < needed {
            self.request = Aligned::new(needed, IN_HEADER + WRITE_IN);
        }
        self.request.bytes()
    }

    /// The first `len` bytes of what was read, with the other buffers.
    pub(crate) fn split(&mut self, len: usize) -> (&[u8], ReplyBuffers<'_>) {
        let request = self.request.bytes().get(..len).unwrap_or_default();
        (request, ReplyBuffers { data: &mut self.data, body: &mut self.body })
    }
}

/// The buffers for one reply.
pub(crate) struct ReplyBuffers<'a> {
    data: &'a mut Aligned,
    pub(crate) body: &'a mut Vec<u8>,
}

impl ReplyBuffers<'_> {
    /// Room for `size` bytes of file data; its contents are stale.
    pub(crate) fn data(&mut self, size: usize) -> &mut [u8] {
        if self.data.len < size {
            *self.data = Aligned::new(size.max(1 << 20), 0);
        }
        self.data.bytes().get_mut(..size).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_begin_on_a_page() {
        let mut buffers = Buffers::new();
        let request = buffers.request(1 << 16);
        assert_eq!(request.len(), (1 << 16) + PAGE);
        assert_eq!((request.as_ptr().addr() + IN_HEADER + WRITE_IN) % PAGE, 0);
        let (request, mut reply) = buffers.split(100);
        assert_eq!(request.len(), 100);
        assert_eq!(reply.data(5000).as_ptr().addr() % PAGE, 0);
        assert_eq!(reply.data(2 << 20).len(), 2 << 20);
    }
}
