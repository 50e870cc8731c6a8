//! Request and response on one connection, any number at a time.

use crate::{Established, FrameSender, TransportError, connect, write_frames};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use trust::{ClientConfig, Identity};
use wire::hello::{Hello, HelloReply};
use wire::{Frame, Kind};

type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Frame>>>>>;

/// A connection on which requests are answered in any order. Cheap to clone; closed when the last clone goes.
#[derive(Clone, Debug)]
pub struct Caller {
    send: FrameSender,
    waiting: Waiting,
    next: Arc<AtomicU64>,
    hello: Arc<HelloReply>,
    identity: Option<Arc<Identity>>,
    address: Arc<str>,
}

impl Caller {
    /// Connects and does the handshake, as [`connect`] does.
    pub async fn connect(
        address: &str,
        hello: &Hello,
        keys: Option<&Arc<ClientConfig>>,
        timeout: Duration,
    ) -> Result<Caller, TransportError> {
        let established = connect(address, hello, keys, timeout).await?;
        Ok(Caller::over(established, address, std::future::pending()))
    }

    /// On a connection to `address` that was made. It is closed when `end` is ready, too.
    pub fn over(
        established: Established,
        address: &str,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Caller {
        let identity = established.connection.identity.clone().map(Arc::new);
        let (mut reader, writer, reply) = established.split();
        let (send, queue) = FrameSender::channel();
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let for_reader = waiting.clone();
        tokio::spawn(async move {
            let read = async {
                while let Ok(Some(frame)) = reader.next().await {
                    let mut map = for_reader.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(waiter) = map.as_mut().and_then(|m| m.remove(&frame.id)) {
                        let _gone = waiter.send(frame);
                    }
                }
            };
            tokio::select! {
                () = read => {}
                _ = write_frames(writer, queue, None) => {}
                () = end => {}
            }
            // Nobody will be answered any more: dropping the senders wakes all who wait.
            *for_reader.lock().unwrap_or_else(PoisonError::into_inner) = None;
        });
        let next = Arc::new(AtomicU64::new(1));
        Caller { send, waiting, next, hello: Arc::new(reply), identity, address: address.into() }
    }

    /// What the server said in its handshake.
    pub fn hello(&self) -> &HelloReply {
        &self.hello
    }

    /// Whose key the server showed; `None`: the connection is not encrypted.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Sends a request and waits for its answer, at most `timeout`.
    pub async fn call(
        &self,
        kind: Kind,
        body: Vec<u8>,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Frame, TransportError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        match self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(map) => map.insert(id, answer),
            None => return Err(TransportError::Closed),
        };
        if !self.send.send(Frame::with_payload(kind, id, body, payload)) {
            return Err(TransportError::Closed);
        }
        match tokio::time::timeout(timeout, answered).await {
            Ok(Ok(frame)) => Ok(frame),
            Ok(Err(_)) => Err(TransportError::Closed),
            Err(_) => {
                if let Some(map) = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                    map.remove(&id);
                }
                Err(TransportError::TimedOut {
                    address: self.address.to_string(),
                    seconds: timeout.as_secs(),
                })
            }
        }
    }
}
