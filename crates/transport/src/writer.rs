//! Writing frames to a socket: a queue, and a task that empties it with as few system calls as it can.

use crate::TransportError;
use crate::memory::Reserved;
use crate::timeout::within;
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use wire::Frame;

/// A frame that is to be written, and what is held until it was.
#[derive(Debug)]
pub struct Queued {
    /// The frame.
    pub frame: Frame,
    held: Option<Reserved>,
}

/// Puts frames into a connection's queue. The queue is bounded by what its user may have outstanding.
#[derive(Clone, Debug)]
pub struct FrameSender(mpsc::UnboundedSender<Queued>);

impl FrameSender {
    /// A queue and its end for [`write_frames`].
    pub fn channel() -> (FrameSender, mpsc::UnboundedReceiver<Queued>) {
        let (send, receive) = mpsc::unbounded_channel();
        (FrameSender(send), receive)
    }

    /// Queues a frame; false if the connection is gone.
    pub fn send(&self, frame: Frame) -> bool {
        self.send_holding(frame, None)
    }

    /// Queues a frame, and lets go of `held` when it was written or never will be; false if the connection is gone.
    pub fn send_holding(&self, frame: Frame, held: Option<Reserved>) -> bool {
        self.0.send(Queued { frame, held }).is_ok()
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

const SLICES: usize = 64;

/// Bytes on their way, and what is held until the last of a frame's were written.
type Piece = (Bytes, Option<Reserved>);

fn push(queued: Queued, pieces: &mut VecDeque<Piece>) {
    let Queued { frame, held } = queued;
    // Head and a small body go out as one piece: fewer slices for the kernel.
    let head = Bytes::from(frame.head_and_body());
    if frame.payload.is_empty() {
        pieces.push_back((head, held));
    } else {
        pieces.push_back((head, None));
        pieces.push_back((frame.payload, held));
    }
}

/// Writes queued frames until the queue is dropped or the connection breaks.
///
/// # Errors
/// The connection broke, or the other side took nothing for as long as `timeout`.
pub async fn write_frames<W: AsyncWrite + Unpin>(
    mut to: W,
    mut queue: mpsc::UnboundedReceiver<Queued>,
    timeout: Option<Duration>,
) -> Result<(), TransportError> {
    let mut pieces: VecDeque<Piece> = VecDeque::new();
    while let Some(queued) = queue.recv().await {
        push(queued, &mut pieces);
        while !pieces.is_empty() {
            while pieces.len() < SLICES
                && let Ok(queued) = queue.try_recv()
            {
                push(queued, &mut pieces);
            }
            let slices: Vec<IoSlice<'_>> = pieces.iter().take(SLICES).map(|(p, _)| IoSlice::new(p)).collect();
            let writing = to.write_vectored(&slices);
            let mut written = match timeout {
                None => writing.await?,
                Some(time) => within(time, writing).await.ok_or(TransportError::Stalled)??,
            };
            if written == 0 {
                return Err(TransportError::Closed);
            }
            while let Some((first, _)) = pieces.front_mut() {
                if first.len() > written {
                    first.advance(written);
                    break;
                }
                written -= first.len();
                pieces.pop_front();
            }
        }
        // What TLS took is not on its way yet.
        match timeout {
            None => to.flush().await?,
            Some(time) => within(time, to.flush()).await.ok_or(TransportError::Stalled)??,
        }
    }
    to.shutdown().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, DuplexStream};
    use tokio::sync::Semaphore;
    use tokio::task::JoinHandle;
    use wire::Kind;

    /// A frame of more bytes than the pipe holds, sent with all of a memory of 10; the other end of the pipe.
    async fn sent() -> (Arc<Semaphore>, FrameSender, JoinHandle<Result<(), TransportError>>, DuplexStream) {
        let memory = Arc::new(Semaphore::new(10));
        let (to, from) = tokio::io::duplex(1000);
        let (sender, queue) = FrameSender::channel();
        let writer = tokio::spawn(write_frames(to, queue, Some(Duration::from_secs(60))));
        let held = memory.clone().acquire_many_owned(10).await.expect("free");
        let frame = Frame::with_payload(Kind::Reply, 1, vec![1], vec![2; 2000].into());
        assert!(sender.send_holding(frame, Some(held.into())));
        (memory, sender, writer, from)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_frame_holds_is_let_go_when_it_was_written() {
        let (memory, sender, writer, mut from) = sent().await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(memory.available_permits(), 0, "the other side has not read it");
        let mut read = vec![0; 2000];
        from.read_exact(&mut read).await.expect("read");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(memory.available_permits(), 10);
        drop(sender);
        writer.await.expect("no panic").expect("written");
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_given_up() {
        let (memory, sender, writer, _from) = sent().await;
        assert!(matches!(writer.await.expect("no panic"), Err(TransportError::Stalled)));
        assert_eq!(memory.available_permits(), 10);
        assert!(sender.is_closed());
    }
}
