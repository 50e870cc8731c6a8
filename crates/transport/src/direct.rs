//! Sending at once: a frame goes to the socket before `send` returns, unless the socket is full.
//!
//! For senders on the connection's own thread that have work to do after sending: what waits in a queue for a task would
//! leave only after that work.

use crate::{TransportError, WritingHalf};
use bytes::{Buf, Bytes};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::rc::Rc;
use tokio::sync::Notify;
use wire::Frame;

#[derive(Debug)]
struct Shared {
    socket: WritingHalf,
    /// What the socket had no room for.
    rest: RefCell<VecDeque<Bytes>>,
    more: Notify,
}

/// Sends frames on one connection, in order. Clones send on the same.
#[derive(Clone, Debug)]
pub struct DirectSender(Rc<Shared>);

impl DirectSender {
    /// Takes a connection's writing half.
    pub fn new(socket: impl Into<WritingHalf>) -> DirectSender {
        let socket = socket.into();
        DirectSender(Rc::new(Shared { socket, rest: RefCell::default(), more: Notify::new() }))
    }

    /// Sends a frame, now as far as the socket takes it.
    pub fn send(&self, frame: Frame) {
        let mut rest = self.0.rest.borrow_mut();
        let idle = rest.is_empty();
        rest.push_back(frame.head_and_body().into());
        if !frame.payload.is_empty() {
            rest.push_back(frame.payload);
        }
        // An error will show again to the task that runs `drain`.
        if idle && !matches!(self.push(&mut rest), Ok(true)) {
            self.0.more.notify_one();
        }
    }

    /// Bytes that the socket had no room for.
    pub fn queued(&self) -> usize {
        self.0.rest.borrow().iter().map(Bytes::len).sum()
    }

    /// Writes what the socket takes; whether that was all.
    fn push(&self, rest: &mut VecDeque<Bytes>) -> std::io::Result<bool> {
        while !rest.is_empty() {
            let slices: Vec<IoSlice<'_>> = rest.iter().take(64).map(|b| IoSlice::new(b)).collect();
            let mut written = match self.0.socket.try_write_vectored(&slices) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            };
            while let Some(first) = rest.front_mut() {
                if first.len() > written {
                    first.advance(written);
                    break;
                }
                written -= first.len();
                rest.pop_front();
            }
        }
        self.0.socket.try_flush()
    }

    /// Writes what [`DirectSender::send`] could not, until the connection breaks.
    pub async fn drain(&self) -> TransportError {
        loop {
            self.0.more.notified().await;
            loop {
                match self.push(&mut self.0.rest.borrow_mut()) {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(e) => return e.into(),
                }
                if let Err(e) = self.0.socket.writable().await {
                    return e.into();
                }
            }
        }
    }
}
