//! Reading frames off a socket.

use crate::TransportError;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use wire::frame::{Frame, FrameHead, HEAD};

/// Reads whole frames. A frame's body and payload are slices of the read buffer, not copies.
#[derive(Debug)]
pub struct FrameReader<R> {
    from: R,
    buffer: BytesMut,
}

const CHUNK: usize = 64 << 10;

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// A reader of frames from `from`.
    pub fn new(from: R) -> FrameReader<R> {
        FrameReader { from, buffer: BytesMut::new() }
    }

    /// Reads until `n` bytes are buffered; false if the stream ends before the first of them.
    async fn fill(&mut self, n: usize) -> Result<bool, TransportError> {
        while self.buffer.len() < n {
            let missing = n - self.buffer.len();
            self.buffer.reserve(missing.max(if n > CHUNK { 0 } else { CHUNK }));
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(false) } else { Err(TransportError::Closed) };
            }
        }
        Ok(true)
    }

    /// The next frame; `None` when the other side closed the connection between two frames.
    pub async fn next(&mut self) -> Result<Option<Frame>, TransportError> {
        if !self.fill(HEAD).await? {
            return Ok(None);
        }
        let mut raw = [0; HEAD];
        raw.copy_from_slice(self.buffer.get(..HEAD).unwrap_or(&[0; HEAD]));
        let head = FrameHead::decode(&raw)?;
        self.fill(HEAD + head.body_len + head.payload_len).await?;
        let _ = self.buffer.split_to(HEAD);
        let body = self.buffer.split_to(head.body_len).freeze();
        let payload = if head.payload_len == 0 {
            Bytes::new()
        } else {
            self.buffer.split_to(head.payload_len).freeze()
        };
        head.verify(&body, &payload)?;
        Ok(Some(Frame { kind: head.kind, id: head.id, body, payload, grant: head.grant }))
    }

    /// Whether a whole frame is buffered already, so that [`FrameReader::next`] would not wait.
    pub fn has_frame(&self) -> bool {
        let Some(raw) = self.buffer.first_chunk::<HEAD>() else { return false };
        match FrameHead::decode(raw) {
            Ok(head) => self.buffer.len() >= HEAD + head.body_len + head.payload_len,
            Err(_) => true,
        }
    }
}
