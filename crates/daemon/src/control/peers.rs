//! Connections of this server's control plane to other servers'.

use super::protocol::{self, Request, Response};
use crate::shared::{Shared, lock};
use bytes::Bytes;
use config_store::{BoxFuture, TransportError as StoreTransportError};
use ids::ServerId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use transport::{Caller, Established, TransportError};
use wire::Kind;

const CONNECT: Duration = Duration::from_secs(2);

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
    ) -> Result<Response, String> {
        let body = self.call(address, protocol::encode(request), timeout).await.map_err(|e| e.to_string())?;
        protocol::decode_response(&body).map_err(|e| format!("{address}: {e}"))
    }

    /// Asks a server that is not in the pool any more, and has not heard so.
    pub(crate) async fn ask_departed(
        &self,
        address: &str,
        request: &Request,
        timeout: Duration,
    ) -> Result<Response, String> {
        let told = async {
            let hello = Established::control([0; 16], self.shared.me());
            let keys = self.shared.dials()?;
            let caller = Caller::connect(address, &hello, keys.as_ref(), CONNECT).await?;
            caller.call(Kind::Control, protocol::encode(request), Bytes::new(), timeout).await
        };
        let answer = told.await.map_err(|e| e.to_string())?;
        protocol::decode_response(&answer.body).map_err(|e| format!("{address}: {e}"))
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
