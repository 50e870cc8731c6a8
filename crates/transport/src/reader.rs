//! Reading frames off a socket.

use crate::memory::{Account, Reserved};
use crate::timeout::within;
use crate::{ReadingHalf, TransportError};
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use wire::DecodeError;
use wire::frame::{Frame, FrameHead, HEAD};

/// What whoever is on the other side may use of this process's memory and time.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Bytes of a frame's body.
    pub body: usize,
    /// Bytes of a frame's payload.
    pub payload: usize,
    /// How long a frame may take to come in whole, from its first byte on.
    pub wait: Duration,
    /// Bytes of frames longer than [`Bounds::FREE`] are taken from here before they are read.
    pub memory: Account,
}

impl Bounds {
    /// A frame of up to so many bytes is read without asking for memory.
    pub const FREE: usize = 64 << 10;
}

/// Reads whole frames. A frame's body and payload are slices of the read buffer, not copies.
#[derive(Debug)]
pub struct FrameReader<R> {
    from: R,
    buffer: Buffer,
    /// TLS has checked the bytes.
    encrypted: bool,
}

/// The least size of a buffer.
const CHUNK: usize = 64 << 10;
/// With less room than this a buffer is not read into any more.
const REST: usize = 8 << 10;

/// Bytes that were read and do not make a frame yet.
#[derive(Debug, Default)]
struct Buffer {
    bytes: BytesMut,
    /// About how long the longest of the recent frames was: frames of one size often follow each other.
    longest: usize,
}

impl Buffer {
    /// Sees to it that there is room to read the rest of a frame of `n` bytes. How many bytes were copied for it: a frame
    /// that does not fit where it began is carried over, so the next buffer is made for the like of it.
    fn make_room(&mut self, n: usize) -> usize {
        self.longest = n.max(self.longest - self.longest / 64);
        let held = self.bytes.len();
        let room = n.saturating_sub(held).max(REST);
        let whole = self.longest.max(CHUNK) + REST;
        if self.bytes.capacity() - held >= room || self.bytes.try_reclaim(whole.saturating_sub(held)) {
            return 0;
        }
        let mut fresh = BytesMut::with_capacity(whole);
        fresh.extend_from_slice(&self.bytes);
        self.bytes = fresh;
        held
    }
}

impl From<ReadingHalf> for FrameReader<ReadingHalf> {
    /// What comes over an encrypted connection TLS has checked, better than the checksums of frames could: those are not looked at.
    fn from(from: ReadingHalf) -> FrameReader<ReadingHalf> {
        let encrypted = from.is_encrypted();
        FrameReader { from, buffer: Buffer::default(), encrypted }
    }
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of frames from `from`.
    pub fn new(from: R) -> FrameReader<R> {
        FrameReader { from, buffer: Buffer::default(), encrypted: false }
    }

    /// Like [`FrameReader::next`] from somebody who is not trusted: the frame, and the memory that was reserved for it if it
    /// is a long one. What is begun and does not end within the time is an error.
    ///
    /// # Errors
    /// The connection broke, or the frame is not allowed by `bounds`.
    pub async fn next_within(
        &mut self,
        bounds: &Bounds,
    ) -> Result<Option<(Frame, Option<Reserved>)>, TransportError> {
        if self.buffer.bytes.is_empty() && !self.fill(1).await? {
            return Ok(None);
        }
        let whole = async {
            self.fill(HEAD).await?;
            let head = self.head()?;
            if head.body_len > bounds.body || head.payload_len > bounds.payload {
                return Err(DecodeError::Bounds("frame length").into());
            }
            let length = HEAD + head.body_len + head.payload_len;
            let memory =
                if length > Bounds::FREE { Some(bounds.memory.reserve(length).await?) } else { None };
            Ok((self.take(head).await?, memory))
        };
        within(bounds.wait, whole).await.unwrap_or(Err(TransportError::Stalled)).map(Some)
    }

    /// Reads until `n` bytes are buffered; false if the stream ends before the first of them.
    async fn fill(&mut self, n: usize) -> Result<bool, TransportError> {
        while self.buffer.bytes.len() < n {
            self.buffer.make_room(n);
            if self.from.read_buf(&mut self.buffer.bytes).await? == 0 {
                return if self.buffer.bytes.is_empty() { Ok(false) } else { Err(TransportError::Closed) };
            }
        }
        Ok(true)
    }

    /// The next frame; `None` when the other side closed the connection between two frames.
    pub async fn next(&mut self) -> Result<Option<Frame>, TransportError> {
        if !self.fill(HEAD).await? {
            return Ok(None);
        }
        let head = self.head()?;
        self.take(head).await.map(Some)
    }

    /// The head that is buffered.
    fn head(&self) -> Result<FrameHead, DecodeError> {
        FrameHead::decode(self.buffer.bytes.first_chunk::<HEAD>().ok_or(DecodeError::Short)?)
    }

    /// The frame that begins with the head that is buffered.
    async fn take(&mut self, head: FrameHead) -> Result<Frame, TransportError> {
        self.fill(HEAD + head.body_len + head.payload_len).await?;
        let _ = self.buffer.bytes.split_to(HEAD);
        let body = self.buffer.bytes.split_to(head.body_len).freeze();
        let payload = if head.payload_len == 0 {
            Bytes::new()
        } else {
            self.buffer.bytes.split_to(head.payload_len).freeze()
        };
        if !self.encrypted {
            head.verify(&body, &payload)?;
        }
        Ok(Frame { kind: head.kind, id: head.id, body, payload, grant: head.grant, user: head.user })
    }

    /// Whether a whole frame is buffered already, so that [`FrameReader::next`] would not wait.
    pub fn has_frame(&self) -> bool {
        let Some(raw) = self.buffer.bytes.first_chunk::<HEAD>() else { return false };
        match FrameHead::decode(raw) {
            Ok(head) => self.buffer.bytes.len() >= HEAD + head.body_len + head.payload_len,
            Err(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Kind;

    /// Takes frames of these sizes out of a stream that comes in pieces; how many bytes were carried from buffer to buffer,
    /// and the largest buffer. The last `kept` frames are still in use while the next ones come.
    fn carried(sizes: &[usize], piece: usize, kept: usize) -> (usize, usize) {
        let (mut buffer, mut held) = (Buffer::default(), std::collections::VecDeque::new());
        let (mut sum, mut largest, mut left) = (0, 0, sizes.iter().sum::<usize>());
        for size in sizes {
            while buffer.bytes.len() < *size {
                sum += buffer.make_room(*size);
                let spare = buffer.bytes.capacity() - buffer.bytes.len();
                let read = piece.min(spare).min(left);
                buffer.bytes.extend_from_slice(&vec![7; read]);
                left -= read;
                largest = largest.max(buffer.bytes.capacity());
            }
            held.push_back(buffer.bytes.split_to(*size).freeze());
            while held.len() > kept {
                held.pop_front();
            }
        }
        (sum, largest)
    }

    #[test]
    fn long_frames_are_not_copied_about() {
        let mixed: Vec<usize> = [100 << 10, 100, 200].into_iter().cycle().take(600).collect();
        for kept in [0, 1, 7] {
            let (copied, largest) = carried(&mixed, 1 << 20, kept);
            assert!(copied < 200 * REST + CHUNK, "{copied} bytes were copied for 200 frames of 100 KiB");
            assert!(largest < 256 << 10, "a buffer of {largest} bytes");
        }
        let (copied, largest) = carried(&[50; 100_000], 9_000, 3);
        assert!(copied < 100_000 && largest < 2 * CHUNK, "{copied} bytes copied, {largest} in a buffer");
    }

    fn bounds(memory: usize) -> Bounds {
        let memory = Account::new(memory, None);
        Bounds { body: 1000, payload: 100 << 10, wait: Duration::from_secs(30), memory }
    }

    fn bytes(frame: &Frame) -> Vec<u8> {
        [&frame.head()[..], &frame.body, &frame.payload].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn a_frame_that_does_not_end_is_not_waited_for() {
        let (mut to, from) = tokio::io::duplex(1 << 20);
        let mut reader = FrameReader::new(from);
        let frame = bytes(&Frame::new(Kind::Call, 1, vec![1; 100]));
        let (begin, _) = frame.split_at(50);
        tokio::io::AsyncWriteExt::write_all(&mut to, begin).await.expect("written");
        assert!(matches!(reader.next_within(&bounds(0)).await, Err(TransportError::Stalled)));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_at_all_may_come_for_any_time() {
        let (to, from) = tokio::io::duplex(1 << 20);
        let mut reader = FrameReader::new(from);
        let quiet = tokio::time::timeout(Duration::from_secs(3600), reader.next_within(&bounds(0))).await;
        assert!(quiet.is_err(), "it waits");
        drop(to);
        assert!(reader.next_within(&bounds(0)).await.expect("the end").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn long_frames_wait_for_memory_and_frames_beyond_the_bounds_are_refused() {
        let (mut to, from) = tokio::io::duplex(1 << 20);
        let mut reader = FrameReader::new(from);
        let bounds = bounds(80 << 10);
        let long = Frame::with_payload(Kind::Call, 1, vec![1; 100], vec![2; 70 << 10].into());
        for frame in [&long, &long, &Frame::new(Kind::Call, 2, vec![1; 1001])] {
            tokio::io::AsyncWriteExt::write_all(&mut to, &bytes(frame)).await.expect("written");
        }
        let (first, memory) = reader.next_within(&bounds).await.expect("read").expect("a frame");
        assert_eq!((first.id, bounds.memory.left()), (1, (10 << 10) - HEAD - 100));
        assert!(memory.is_some());
        let second = tokio::time::timeout(Duration::from_secs(10), reader.next_within(&bounds)).await;
        assert!(second.is_err(), "there is no memory for it");
        drop(memory);
        let second = reader.next_within(&bounds).await.expect("read").expect("a frame");
        assert!(second.1.is_some());
        let third = reader.next_within(&bounds).await;
        assert!(matches!(third, Err(TransportError::Decode(DecodeError::Bounds(_)))), "{third:?}");
    }

    #[tokio::test]
    async fn frames_of_all_sizes_come_through() {
        let sizes = [100 << 10, 10, 3 << 10, 100 << 10, 0, 64 << 10, 100 << 10, 1 << 20, 5];
        let frames: Vec<Frame> = (1..=90u64)
            .zip(sizes.into_iter().cycle())
            .map(|(id, size)| Frame::with_payload(Kind::Reply, id, vec![1; 40], vec![7; size].into()))
            .collect();
        let (to, from) = tokio::io::duplex(9000);
        let (sender, queue) = crate::writer::FrameSender::channel();
        let writer = tokio::spawn(crate::writer::write_frames(to, queue, None));
        frames.iter().for_each(|f| assert!(sender.send(f.clone())));
        drop(sender);
        let mut reader = FrameReader::new(from);
        for frame in frames {
            let read = reader.next().await.expect("a frame").expect("not the end");
            assert_eq!((read.id, &read.payload), (frame.id, &frame.payload));
        }
        assert!(reader.next().await.expect("the end").is_none());
        writer.await.expect("no panic").expect("written");
    }
}
