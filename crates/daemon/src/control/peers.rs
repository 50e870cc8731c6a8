//! Connections of this server's control plane to other servers'.

use super::answers::{not_reached, unreachable};
use super::protocol::{self, Request, Response};
use crate::shared::{Shared, lock};
use admin::AdminError;
use bytes::Bytes;
use config_store::{BoxFuture, TransportError as StoreTransportError};
use ids::ServerId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use transport::{Caller, Established, TransportError};
use wire::Kind;

const CONNECT: Duration = Duration::from_secs(2);

/// Why another server gave no answer that can be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// It was not reached, or did not answer.
    #[error("{0}")]
    Silent(#[from] TransportError),
    /// Its answer cannot be read.
    #[error("{address}: {why}")]
    Unreadable {
        /// The server's address.
        address: String,
        /// What is wrong with it.
        why: String,
    },
}

impl From<NoAnswer> for AdminError {
    fn from(e: NoAnswer) -> AdminError {
        match e {
            NoAnswer::Silent(e) => not_reached(&e),
            NoAnswer::Unreadable { .. } => unreachable(e.to_string()),
        }
    }
}

/// One connection an address, made when needed.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    shared: Arc<Shared>,
    callers: Arc<Mutex<HashMap<String, Caller>>>,
}

impl Peers {
    pub(crate) fn new(shared: Arc<Shared>) -> Peers {
        Peers { shared, callers: Arc::default() }
    }

    async fn caller(&self, address: &str) -> Result<Caller, TransportError> {
        if let Some(caller) = lock(&self.callers).get(address).filter(|c| !c.is_closed()) {
            return Ok(caller.clone());
        }
        // The pool is not named: a server that is being taken in, or was, belongs to another one.
        let hello = Established::control([0; 16], self.shared.me());
        let keys = self.shared.dials()?;
        let established = transport::connect(address, &hello, keys.as_ref(), CONNECT).await?;
        // Without keys a server that is about to come in says a number of its own pool.
        let visit = self.shared.visit(&established, ServerId(0))?;
        let caller = Caller::over(established, address, async move { visit.ended().await });
        lock(&self.callers).insert(address.to_owned(), caller.clone());
        Ok(caller)
    }

    async fn call(&self, address: &str, body: Vec<u8>, timeout: Duration) -> Result<Bytes, TransportError> {
        let caller = self.caller(address).await?;
        let frame = caller.call(Kind::Control, body, Bytes::new(), timeout).await;
        if matches!(frame, Err(TransportError::TimedOut { .. })) {
            // A server that froze: a new connection finds out sooner whether it is back.
            lock(&self.callers).remove(address);
        }
        Ok(frame?.body)
    }

    /// Asks the server at `address`.
    pub(crate) async fn ask(
        &self,
        address: &str,
        request: &Request,
        timeout: Duration,
    ) -> Result<Response, NoAnswer> {
        let body = self.call(address, protocol::encode(request), timeout).await?;
        response(address, &body)
    }

    /// Asks a server that is not in the pool any more, and has not heard so.
    pub(crate) async fn ask_departed(
        &self,
        address: &str,
        request: &Request,
        timeout: Duration,
    ) -> Result<Response, NoAnswer> {
        let hello = Established::control([0; 16], self.shared.me());
        let keys = self.shared.dials()?;
        let caller = Caller::connect(address, &hello, keys.as_ref(), CONNECT).await?;
        let answer = caller.call(Kind::Control, protocol::encode(request), Bytes::new(), timeout).await?;
        response(address, &answer.body)
    }

    /// Makes new connections from now on: to those of before nobody listens any more.
    pub(crate) fn forget(&self) {
        lock(&self.callers).clear();
    }

    /// Whether the server at `address` lets in somebody without a key.
    pub(crate) async fn lets_anybody_in(&self, address: &str) -> bool {
        let hello = Established::control([0; 16], ServerId(0));
        transport::connect(address, &hello, None, CONNECT).await.is_ok()
    }

    /// Whether nothing listens at `address` for certain.
    pub(crate) async fn is_gone(&self, address: &str) -> bool {
        let hello = Established::control([0; 16], self.shared.me());
        let Ok(keys) = self.shared.dials() else { return false };
        let answer = transport::connect(address, &hello, keys.as_ref(), CONNECT).await;
        matches!(answer, Err(TransportError::Refused { .. }))
    }
}

fn response(address: &str, body: &[u8]) -> Result<Response, NoAnswer> {
    protocol::decode_response(body).map_err(|why| NoAnswer::Unreadable { address: address.to_owned(), why })
}

impl config_store::Transport for Peers {
    fn send(
        &self,
        _to: ServerId,
        address: String,
        request: Vec<u8>,
    ) -> BoxFuture<Result<Vec<u8>, StoreTransportError>> {
        let this = self.clone();
        Box::pin(async move {
            let body = protocol::encode_raft(&request);
            let answer = this.call(&address, body, Duration::from_secs(10)).await;
            let answer = answer.map_err(|e| StoreTransportError(e.to_string()))?;
            match protocol::decode::<Response>(&answer) {
                Ok(protocol::Incoming::Raft(bytes)) => Ok(bytes.to_vec()),
                Ok(protocol::Incoming::Json(Response::Error(e))) => Err(StoreTransportError(e)),
                Ok(protocol::Incoming::Json(_)) => {
                    Err(StoreTransportError("an unexpected answer".to_owned()))
                }
                Err(e) => Err(StoreTransportError(e)),
            }
        })
    }
}
