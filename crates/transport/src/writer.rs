//! Writing frames to a socket: a queue, and a task that empties it with as few system calls as it can.

use crate::TransportError;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use wire::Frame;

/// Puts frames into a connection's queue. The queue is bounded by what its user may have outstanding.
#[derive(Clone, Debug)]
pub struct FrameSender(mpsc::UnboundedSender<Frame>);

impl FrameSender {
    /// A queue and its end for [`write_frames`].
    pub fn channel() -> (FrameSender, mpsc::UnboundedReceiver<Frame>) {
        let (send, receive) = mpsc::unbounded_channel();
        (FrameSender(send), receive)
    }

    /// Queues a frame; false if the connection is gone.
    pub fn send(&self, frame: Frame) -> bool {
        self.0.send(frame).is_ok()
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

const SLICES: usize = 64;

/// Writes queued frames until the queue is dropped or the connection breaks.
pub async fn write_frames<W: AsyncWrite + Unpin>(
    mut to: W,
    mut queue: mpsc::UnboundedReceiver<Frame>,
) -> Result<(), TransportError> {
    let mut pieces: VecDeque<Bytes> = VecDeque::new();
    let push = |frame: Frame, pieces: &mut VecDeque<Bytes>| {
        // Head and a small body go out as one piece: fewer slices for the kernel.
        let mut head = Vec::with_capacity(wire::frame::HEAD + frame.body.len());
        head.extend_from_slice(&frame.head());
        head.extend_from_slice(&frame.body);
        pieces.push_back(head.into());
        if !frame.payload.is_empty() {
            pieces.push_back(frame.payload);
        }
    };
    while let Some(frame) = queue.recv().await {
        push(frame, &mut pieces);
        while !pieces.is_empty() {
            while pieces.len() < SLICES
                && let Ok(frame) = queue.try_recv()
            {
                push(frame, &mut pieces);
            }
            let slices: Vec<IoSlice<'_>> = pieces.iter().take(SLICES).map(|p| IoSlice::new(p)).collect();
            let mut written = to.write_vectored(&slices).await?;
            if written == 0 {
                return Err(TransportError::Closed);
            }
            while let Some(first) = pieces.front_mut() {
                if first.len() > written {
                    first.advance(written);
                    break;
                }
                written -= first.len();
                pieces.pop_front();
            }
        }
    }
    to.shutdown().await?;
    Ok(())
}
